/** The bars of a call's time. */
import { makeElement } from './elements';

/** Add buttons that switch the width of bars between time and number of operations. */
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
