/**
 * Communication between a report and the application around it.
 *
 * The script of a widget is not part of the application, so the two communicate through the page: a report announces
 * itself by an event that bubbles, and the listener keeps the report's handle.
 */
import type { OmittedItems } from './list';

/** The maximum number of animation frames to wait until a report is on the page. */
const MAX_FRAMES = 600;

/** The time that a frame may take after its scripts, in milliseconds. */
const PAINT_MS = 50;

/** The operations of a report that the application can call. */
export interface IReportHandle {
  /** The element of the report. */
  readonly root: HTMLElement;
  /** Show only the conclusions, because editors nearby show the sources, or show the sources beside the conclusions. */
  setColumn(isColumn: boolean): void;
  /** Highlight the part with a reference, or no part for an empty string; with `reveal`, scroll to it. */
  highlight(reference: string, reveal: boolean): void;
  /** Show the line of the selected break in the report, because its editor is out of sight. */
  quote(): void;
  /** Select the element under the pointer, or stop doing so. */
  setFollowing(isFollowing: boolean): void;
}

/** The parts of the report that are not in its markup. */
export interface IReportData {
  omittedItems(name: string): Promise<OmittedItems>;
  text(): Promise<string>;
  json(): Promise<string>;
}

/** The actions of the application on remedies. */
export interface IRemedyActions {
  /**
   * Apply remedies, or statements that compile functions, by their indexes in the report.
   *
   * @returns The result; rejected with the reason if nothing was applied.
   */
  apply(refs: readonly IApplicableRef[]): Promise<IApplied>;
  /** Run the cell again and try remedies. */
  tryRemedies(): Promise<void>;
}

/** The result of applying remedies, and the possible next steps. */
export interface IApplied {
  readonly message: string;
  /** Revert the change; rejected with the reason if that is not possible. */
  undo?(): Promise<string>;
  /** Run the changed cells again. */
  runAgain?(): Promise<void>;
}

/** Identifies an applicable item of a report by its list and index. */
export interface IApplicableRef {
  readonly list: 'remedies' | 'compiled';
  readonly at: number;
}

/** A report is on the page. */
export interface IReady {
  readonly handle: IReportHandle;
  /** Set by a listener that can change the notebook around the report. */
  actions: IRemedyActions | null;
  /** Set by a listener that has the data, so no kernel is needed. */
  data: IReportData | null;
}

/** The reader selected a part of a report. */
export interface ISelected {
  /** The reference as in the ids of the markup; empty if the selection was removed. */
  readonly reference: string;
  /** Whether the pointer made the selection by hovering. */
  readonly isPointer: boolean;
}

/** The reader switched selection by the pointer on or off. */
export interface IFollowing {
  readonly isFollowing: boolean;
}

/** The reader followed a link to a line that the report does not show, because an editor does. */
export interface IVisit {
  /** The index of the source in the report. */
  readonly source: number;
  readonly line: number;
  /** Set by a listener that shows the line. */
  isHandled: boolean;
}

/** A run shows its progress. */
export interface IRunning {
  /** The current activity in words; empty at the end of the run. */
  readonly activity: string;
}

interface IEvents {
  'graphbreak-ready': IReady;
  'graphbreak-visit': IVisit;
  'graphbreak-running': IRunning;
  'graphbreak-selected': ISelected;
  'graphbreak-following': IFollowing;
}

/** Send an event to the application, if there is one. */
export function emitEvent<K extends keyof IEvents>(
  root: HTMLElement,
  name: K,
  detail: IEvents[K]
): void {
  root.dispatchEvent(
    new CustomEvent(name, { detail, bubbles: true, composed: true })
  );
}

/** Listen to events of reports within an element. */
export function onReportEvent<K extends keyof IEvents>(
  within: EventTarget,
  name: K,
  listener: (detail: IEvents[K], root: HTMLElement) => void
): void {
  within.addEventListener(
    name,
    event =>
    listener((event as CustomEvent<IEvents[K]>).detail, event.target as HTMLElement) // prettier-ignore
  );
}

/** Stop events of reports within an element from reaching the application. */
export function isolateReports(within: EventTarget): void {
  const names: readonly (keyof IEvents)[] = [
    'graphbreak-ready',
    'graphbreak-visit',
    'graphbreak-selected',
    'graphbreak-following'
  ];
  for (const name of names) {
    within.addEventListener(name, event => event.stopPropagation());
  }
}

/** Run a function as soon as an element is on the page; widgets are created before that. */
export function whenConnected(element: HTMLElement, act: () => void): void {
  const wait = (frames: number): void => {
    if (element.isConnected) {
      act();
    } else if (frames > 0) {
      requestAnimationFrame(() => wait(frames - 1));
    }
  };
  wait(MAX_FRAMES);
}

/**
 * Run a function after the next paint.
 *
 * @returns A function that cancels it.
 */
export function afterPaint(act: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const frame = requestAnimationFrame(() => {
    timer = setTimeout(act, PAINT_MS);
  });
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
}
