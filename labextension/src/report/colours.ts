/** The colours of graphs. */

/** The number of graph colours in the style sheets and Python views; they repeat. */
const COLOURS = 8;

/** The colour of a graph, by its index in the report. */
export function graphColour(index: number): number {
  return index % COLOURS;
}
