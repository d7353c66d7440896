/** Columns as an editor counts them: Python counts characters, an editor counts UTF-16 units. */

/** Half of a character that is two units. */
const ASTRAL = /[\ud800-\udfff]/;

/** The column of an editor for a column of a report. */
export function editorColumn(text: string, column: number): number {
  return ASTRAL.test(text)
    ? Array.from(text).slice(0, column).join('').length
    : Math.min(column, text.length);
}

/** The same for the column where something starts; without a column it starts where the line's text does. */
export function startColumn(text: string, column: number | null): number {
  return column === null
    ? text.length - text.trimStart().length
    : editorColumn(text, column);
}

/** The same for the column where something ends; without a column it ends where the line's text does. */
export function endColumn(text: string, column: number | null): number {
  return column === null ? text.trimEnd().length : editorColumn(text, column);
}
