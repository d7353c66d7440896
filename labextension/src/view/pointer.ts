/** Distinguishes movements of the pointer from events that scrolling below a resting pointer sends. */

/** A position of the pointer on the screen. */
type ScreenPosition = Pick<MouseEvent, 'screenX' | 'screenY'>;

export class PointerMoves {
  /** @param signal - Ends the listening. */
  constructor(signal?: AbortSignal) {
    const options = { capture: true, passive: true, signal };
    document.addEventListener(
      'pointermove',
      event => (this._last = event),
      options
    );
  }

  /**
   * Returns whether the pointer has moved since the last event, and remembers its position.
   *
   * It is meant for handlers of events that precede `pointermove`, such as `pointerover`.
   */
  isMove({ screenX, screenY }: ScreenPosition): boolean {
    const last = this._last;
    this._last = { screenX, screenY };
    return last?.screenX !== screenX || last.screenY !== screenY;
  }

  private _last: ScreenPosition | undefined;
}
