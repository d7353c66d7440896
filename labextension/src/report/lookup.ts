/** Finds the parts of a report by their ids, and says how many a list had before only its beginning was read. */
import type { Break, Report } from './types';

/** A part of a report that other parts refer to. */
interface IIdentified {
  readonly id: string;
}

const INDEXES = new WeakMap<readonly IIdentified[], Map<string, number>>();

/** The place of a part in its list; -1 where no part has the id. Of two with one id the first counts. */
export function indexOf(
  parts: readonly IIdentified[],
  id: string | null | undefined
): number {
  let index = INDEXES.get(parts);
  if (index === undefined) {
    index = new Map();
    for (let place = parts.length - 1; place >= 0; place -= 1) {
      index.set(parts[place]!.id, place);
    }
    INDEXES.set(parts, index);
  }
  return index.get(id ?? '') ?? -1;
}

/** The part with an id. */
export function withId<T extends IIdentified>(
  parts: readonly T[],
  id: string | null | undefined
): T | undefined {
  return parts[indexOf(parts, id)];
}

/**
 * The breaks as a person reads them, what to fix first; their numbers count in this order. An older report has them as
 * they happened.
 */
export function orderedBreaks(report: Report): readonly Break[] {
  let ordered = ORDERED.get(report);
  if (ordered === undefined) {
    const places = new Map(report.order.map((id, place) => [id, place]));
    const placeOf = ({ id }: Break): number => places.get(id) ?? places.size;
    ordered = [...report.breaks].sort(
      (one, other) => placeOf(one) - placeOf(other)
    );
    ORDERED.set(report, ordered);
  }
  return ordered;
}

const ORDERED = new WeakMap<Report, readonly Break[]>();

const TOTALS = new WeakMap<readonly unknown[], number>();

/** How many entries a list had where it was read, which may be more than it holds. */
export function totalOf(list: readonly unknown[]): number {
  return TOTALS.get(list) ?? list.length;
}

/** Remember how many entries a list had, of which it holds only the first. */
export function setTotal(list: readonly unknown[], total: number): void {
  if (total > list.length) {
    TOTALS.set(list, total);
  }
}

/** Add to a list that keeps only its first entries and counts the others. */
export function pushUpTo<T>(list: T[], most: number, make: () => T): void {
  if (list.length < most) {
    list.push(make());
  } else {
    TOTALS.set(list, totalOf(list) + 1);
  }
}
