/** Lines of a folded source, shown in the card of the break that stands on them. */
import { makeElement } from './elements';

/** Lines before and after the line of a break. */
const AROUND = 2;

/** Whether the source of a line is shown by the report at all; those of cells are in editors nearby. */
export function isInReport(line: HTMLElement, root: HTMLElement): boolean {
  return (
    !root.matches('.gb-column') ||
    line.closest<HTMLElement>('.gb-source')?.dataset.kind !== 'cell'
  );
}

/** Show a line and those around it in a card, once, below the row that says what the card is about. */
export function excerpt(line: HTMLElement, card: HTMLElement): HTMLElement {
  const known = card.querySelector<HTMLElement>('.gb-excerpt .gb-selected');
  if (known !== null && known.offsetParent !== null) {
    return known;
  }
  removeExcerpt(card);
  const lines = Array.from(
    line.closest('.gb-code')?.querySelectorAll<HTMLElement>('.gb-line') ?? []
  );
  const index = lines.indexOf(line);
  const box = makeElement('div', 'gb-excerpt gb-code');
  const text = makeElement('pre');
  let own = line;
  for (const near of lines.slice(
    Math.max(0, index - AROUND),
    index + AROUND + 2
  )) {
    // prettier-ignore
    const copy = near.cloneNode(true) as HTMLElement;
    copy.removeAttribute('id');
    copy.classList.remove('gb-with', 'gb-selected');
    if (near === line) {
      own = copy;
      copy.classList.add('gb-selected');
    }
    text.append(copy);
  }
  box.append(text);
  const details = card.querySelector<HTMLDetailsElement>(':scope > details');
  if (details?.open) {
    details.querySelector(':scope > summary')!.after(box);
  } else {
    card.append(box);
  }
  return own;
}

/** Take the lines out of a card again. */
export function removeExcerpt(card: Element): void {
  card.querySelector('.gb-excerpt')?.remove();
}
