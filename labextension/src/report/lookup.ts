/** Finds parts of a report by id, and keeps the original lengths of truncated lists. */
import type { Break, Report } from './types';

/** A part of a report that other parts refer to. */
interface IIdentified {
  readonly id: string;
}

const INDEXES = new WeakMap<readonly IIdentified[], Map<string, number>>();

/** The index of the first part of a list with the given id; -1 if there is none. */
export function indexOf(
  parts: readonly IIdentified[],
  id: string | null | undefined
): number {
  let index = INDEXES.get(parts);
  if (index === undefined) {
    index = new Map();
    for (let position = parts.length - 1; position >= 0; position -= 1) {
      index.set(parts[position]!.id, position);
    }
    INDEXES.set(parts, index);
  }
  return index.get(id ?? '') ?? -1;
}

/** The part with an id, if it exists. */
export function withId<T extends IIdentified>(
  parts: readonly T[],
  id: string | null | undefined
): T | undefined {
  return parts[indexOf(parts, id)];
}

/**
 * The breaks in reading order: those to fix first come first, and the numbers follow this order. Breaks that the
 * report's `order` lacks come last.
 */
export function orderedBreaks(report: Report): readonly Break[] {
  let breaksInOrder = ORDERED_BREAKS.get(report);
  if (breaksInOrder === undefined) {
    const positions = new Map(report.order.map((id, index) => [id, index]));
    const positionOf = ({ id }: Break): number =>
      positions.get(id) ?? positions.size;
    breaksInOrder = [...report.breaks].sort(
      (one, other) => positionOf(one) - positionOf(other)
    );
    ORDERED_BREAKS.set(report, breaksInOrder);
  }
  return breaksInOrder;
}

const ORDERED_BREAKS = new WeakMap<Report, readonly Break[]>();

const TOTALS = new WeakMap<readonly unknown[], number>();

/** The original length of a list, which may be truncated. */
export function totalOf(list: readonly unknown[]): number {
  return TOTALS.get(list) ?? list.length;
}

/** Store the original length of a truncated list. */
export function setTotal(list: readonly unknown[], total: number): void {
  if (total > list.length) {
    TOTALS.set(list, total);
  }
}

/** Add to a list that keeps only its first entries and counts the rest. */
export function pushUpTo<T>(list: T[], limit: number, make: () => T): void {
  if (list.length < limit) {
    list.push(make());
  } else {
    TOTALS.set(list, totalOf(list) + 1);
  }
}
