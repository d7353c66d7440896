/**
 * What a report and the application around it tell each other.
 *
 * A report is shown by a script of its own, in JupyterLab as anywhere else, so the two meet on the page: the report
 * announces itself by an event that bubbles, and whoever hears it keeps its handle.
 */
import type { Rest } from './list';

/** How many frames of the screen a report waits to be put into the page. */
const MAX_FRAMES = 600;

/** What a frame of the screen may take once its scripts have run, in milliseconds. */
const PAINT_MS = 50;

/** What the application can do with a report. */
export interface IReportHandle {
  /** The element of the report. */
  readonly root: HTMLElement;
  /** Show conclusions only, because the sources stand in editors nearby; or sources beside them. */
  setColumn(isColumn: boolean): void;
  /** Highlight a part by its reference, the empty string for none; with `reveal` scroll to it. */
  highlight(reference: string, reveal: boolean): void;
  /** Show the line of the selected break here too, because its editor is out of sight. */
  quote(): void;
  /** Select whatever the pointer is on, or stop. */
  setFollowing(isFollowing: boolean): void;
}

/** The parts of the report that its markup does not hold. */
export interface IReportData {
  rest(name: string): Promise<Rest>;
  text(): Promise<string>;
  json(): Promise<string>;
}

/** What the application does about remedies where the reader asks for it. */
export interface IRemedyActions {
  /**
   * Apply remedies, or statements that compile what was compiled for the report, by their places in it.
   *
   * @returns What was done, in words; it is rejected with the reason where nothing was.
   */
  apply(places: readonly IPlace[]): Promise<string>;
  /** Run the cell again and try remedies. */
  tryRemedies(): Promise<void>;
}

/** Where something that can be applied is in a report. */
export interface IPlace {
  readonly list: 'remedies' | 'compiled';
  readonly at: number;
}

/** A report is there. */
export interface IReady {
  readonly handle: IReportHandle;
  /** Set by whoever can change the notebook around the report. */
  actions: IRemedyActions | null;
  /** Set by whoever has the data at hand, so that no kernel is asked for them. */
  data: IReportData | null;
}

/** The reader selected something in a report. */
export interface ISelected {
  /** As in the ids of the markup; the empty string where nothing is selected any more. */
  readonly reference: string;
  /** Whether the pointer only passed over it. */
  readonly isPointer: boolean;
}

/** The reader switched on or off that the pointer selects. */
export interface IFollowing {
  readonly isFollowing: boolean;
}

interface IEvents {
  'graphbreak-ready': IReady;
  'graphbreak-selected': ISelected;
  'graphbreak-following': IFollowing;
}

/** Tell the application something, if there is one that hears it. */
export function tell<K extends keyof IEvents>(
  root: HTMLElement,
  name: K,
  detail: IEvents[K]
): void {
  root.dispatchEvent(
    new CustomEvent(name, { detail, bubbles: true, composed: true })
  );
}

/** Hear what reports within an element tell. */
export function hear<K extends keyof IEvents>(
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

/** Keep from the application what the reports within an element tell. */
export function keepApart(within: EventTarget): void {
  const names: readonly (keyof IEvents)[] = [
    'graphbreak-ready',
    'graphbreak-selected',
    'graphbreak-following'
  ];
  for (const name of names) {
    within.addEventListener(name, event => event.stopPropagation());
  }
}

/** Do something as soon as an element is in the page; a widget is made before it is put there. */
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
 * Do something when the page has been painted next.
 *
 * @returns A function that calls it off.
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
