/** The colours of graphs. */

/** How many colours the style sheets have for graphs; after the last they start anew. The Python views have as many. */
const COLOURS = 8;

/** The number of a graph's colour, by the graph's place in the report. */
export function graphColour(index: number): number {
  return index % COLOURS;
}
