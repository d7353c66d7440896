/** The order in which a person reads the breaks of a report, what to fix first; their numbers count in it. */
import type { Break, Report } from './types';

/** The breaks as a person reads them. An older report has them as they happened. */
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
