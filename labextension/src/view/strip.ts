/** The strip of a run, and the bars of a call's time below it. */
import { makeElement } from './elements';

/** Collapse the strip of a run to one row, with a button for the rest. */
export function addStripButton(root: HTMLElement): () => void {
  const strip = root.querySelector<HTMLElement>('.gb-strip');
  if (strip === null) {
    return () => undefined;
  }
  const button = makeElement('button', 'gb-strip-more');
  button.type = 'button';
  const box = makeElement('div', 'gb-strip-box');
  strip.replaceWith(box);
  box.append(strip, button);
  const show = (): void => {
    const isOpen = strip.classList.contains('gb-open');
    button.textContent = isOpen ? 'less' : 'more';
    button.setAttribute('aria-expanded', String(isOpen));
    button.hidden = !isOpen && strip.scrollWidth <= strip.clientWidth + 2;
  };
  button.addEventListener('click', () => {
    strip.classList.toggle('gb-open');
    show();
  });
  return show;
}

/** Switch the width of bars between time and number of operations. */
export function addMeasureButtons(root: HTMLElement): void {
  for (const times of root.querySelectorAll<HTMLElement>('.gb-times')) {
    const button = makeElement('button', 'gb-measure');
    button.type = 'button';
    button.textContent = 'by operations';
    button.setAttribute('aria-pressed', 'false');
    button.addEventListener('click', () => {
      const isByOps = button.getAttribute('aria-pressed') === 'false';
      button.setAttribute('aria-pressed', String(isByOps));
      for (const bar of times.querySelectorAll('li')) {
        bar.style.flexGrow =
          (isByOps ? bar.dataset.ops : bar.dataset.time) ?? '0';
        bar.hidden = isByOps && bar.dataset.ops === '0';
      }
    });
    times.append(button);
  }
}
