/** A page for the tests, made before anything else is loaded. */
import { JSDOM } from 'jsdom';

const { window } = new JSDOM('<!doctype html><body></body>', {
  pretendToBeVisual: true
});
const wanted = [
  'document',
  'window',
  'Element',
  'HTMLElement',
  'Node',
  'MutationObserver',
  'WebSocket',
  'navigator',
  'Event',
  'requestAnimationFrame',
  'cancelAnimationFrame'
];
for (const name of wanted) {
  if (!(name in globalThis)) {
    Object.defineProperty(globalThis, name, {
      value: name === 'window' ? window : window[name],
      configurable: true
    });
  }
}
// Lumino derives a class from it, and jsdom has none.
globalThis.DragEvent = class extends window.MouseEvent {};
// Node's own events cannot be dispatched to elements of jsdom.
globalThis.CustomEvent = window.CustomEvent;
