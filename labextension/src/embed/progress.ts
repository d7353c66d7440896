/** The progress line in an output during a run. */

import { emitEvent } from '../view/link';

/** The progress of a run, as reported by the kernel. */
export interface IProgress {
  phase: string;
  function: string | null;
  frames: number;
  graphs: number;
  breaks: number;
  elapsed_s: number;
  /** The time left for the activity, if it is limited. */
  left_s: number | null;
}

/** Milliseconds between two updates of the line. */
const TICK_MS = 200;

const STYLE = `
.gb-run { display: flex; gap: 9px; align-items: center; margin: 0; padding: 4px 0;
  color: var(--jp-ui-font-color1, var(--vscode-editor-foreground, inherit)); font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); }
.gb-run::before { content: ""; width: 9px; height: 9px; border: 2px solid var(--jp-brand-color1, #1f6feb); border-top-color: transparent;
  border-radius: 50%; animation: gb-turn 0.9s linear infinite; }
.gb-run b { font-weight: 600; }
.gb-preview .graphbreak.gb-live .gb-foot { display: none; }
@keyframes gb-turn { to { transform: rotate(360deg); } }
@media (prefers-reduced-motion: reduce) { .gb-run::before { animation: none; } }`;

/** The line on the page; its clock runs between messages of the kernel. */
export class ProgressLine {
  constructor() {
    this.element = document.createElement('div');
    const style = document.createElement('style');
    style.textContent = STYLE;
    this._line.className = 'gb-run';
    // Screen readers do not read out a timer at each change.
    this._line.setAttribute('role', 'timer');
    this._words.append(this._activity, this._counts);
    this._line.append(this._words);
    this.element.append(style, this._line);
    this._timer = setInterval(() => this._draw(), TICK_MS);
    this._draw();
  }

  readonly element: HTMLElement;

  show(progress: IProgress): void {
    this._progress = progress;
    this._startTime = performance.now() - progress.elapsed_s * 1000;
    emitEvent(this.element, 'graphbreak-running', {
      activity: activityOf(progress)
    });
  }

  dispose(): void {
    clearInterval(this._timer);
    emitEvent(this.element, 'graphbreak-running', { activity: '' });
    this.element.remove();
  }

  private _draw(): void {
    const elapsed = (performance.now() - this._startTime) / 1000;
    this._activity.textContent = activityOf(this._progress);
    const separator = typeof this._progress?.left_s === 'number' ? ', ' : ' | ';
    this._counts.textContent = separator + countsOf(this._progress, elapsed);
  }

  private readonly _line = document.createElement('p');
  private readonly _words = document.createElement('span');
  private readonly _activity = document.createElement('b');
  private readonly _counts = document.createElement('span');
  private readonly _timer: ReturnType<typeof setInterval>;
  private _progress: IProgress | null = null;
  private _startTime = performance.now();
}

/** The current phase in words. */
export function activityOf(progress: IProgress | null): string {
  if (progress === null) {
    return 'starting';
  }
  return progress.function
    ? `${progress.phase} ${progress.function}`
    : progress.phase;
}

/** The counts so far, or the remaining time, in words. */
export function countsOf(progress: IProgress | null, elapsed: number): string {
  const time = wordsOf(elapsed, 1);
  if (progress === null) {
    return time;
  }
  if (typeof progress.left_s === 'number') {
    const secondsLeft = progress.left_s - (elapsed - progress.elapsed_s);
    return secondsLeft > 0 ? `${wordsOf(secondsLeft, 0)} left` : 'about to end';
  }
  const counts = [
    count(progress.frames, 'frame'),
    count(progress.graphs, 'graph'),
    count(progress.breaks, 'break')
  ];
  return `${counts.join(', ')} so far | ${time}`;
}

function wordsOf(seconds: number, digits: number): string {
  return seconds < 60
    ? `${seconds.toFixed(digits)} s`
    : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
