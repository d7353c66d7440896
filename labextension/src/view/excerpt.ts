/** Lines of a folded source, shown in the card of a break. */
import { makeElement } from './elements';

/** The number of lines that are shown before and after the line of a break. */
const CONTEXT_LINES = 2;

/** Whether the report shows the source of a line. In a column, editors show the sources that are cells. */
export function isInReport(line: HTMLElement, root: HTMLElement): boolean {
  return (
    !root.matches('.gb-column') ||
    line.closest<HTMLElement>('.gb-source')?.dataset.kind !== 'cell'
  );
}

/** Whether the report shows a source, by its index in the report. */
export function showsSource(root: HTMLElement, source: string): boolean {
  const lines = root.querySelector<HTMLElement>(`[data-list="l${source}"]`);
  return lines === null || isInReport(lines, root);
}

/** Show a line with context in a card, below the card's summary, at most once. */
export function showExcerpt(line: HTMLElement, card: HTMLElement): HTMLElement {
  const currentLine = card.querySelector<HTMLElement>(
    '.gb-excerpt .gb-selected'
  );
  if (currentLine !== null && currentLine.offsetParent !== null) {
    return currentLine;
  }
  removeExcerpt(card);
  const rows = Array.from(
    line.closest('.gb-code')?.querySelectorAll<HTMLElement>('.gb-line') ?? []
  );
  const lines = rows.filter(row => !row.matches('.gb-note'));
  const index = lines.indexOf(line);
  const first = lines[Math.max(0, index - CONTEXT_LINES)];
  const lineAfter = lines[index + CONTEXT_LINES + 1];
  const box = makeElement('div', 'gb-excerpt gb-code');
  const text = makeElement('pre');
  let shownLine = line;
  // The notes of a line are rows below it.
  for (const row of rows.slice(
    first && rows.indexOf(first),
    lineAfter && rows.indexOf(lineAfter)
  )) {
    const copy = row.cloneNode(true) as HTMLElement;
    copy.removeAttribute('id');
    copy.classList.remove('gb-related', 'gb-selected');
    if (row === line) {
      shownLine = copy;
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
  return shownLine;
}

/** Remove the lines from a card. */
export function removeExcerpt(card: Element): void {
  card.querySelector('.gb-excerpt')?.remove();
}
