/** Columns as an editor counts them: Python counts characters, an editor counts UTF-16 units. */

/** Half of a character that is two units. */
const ASTRAL = /[\ud800-\udfff]/;

/** The column of an editor for a column of a report; one that the text does not have is its beginning or its end. */
export function editorColumn(text: string, column: number): number {
  if (!ASTRAL.test(text)) {
    return Math.max(0, Math.min(column, text.length));
  }
  let units = 0;
  for (let left = column; left > 0 && units < text.length; left -= 1) {
    units += text.codePointAt(units)! > 0xffff ? 2 : 1;
  }
  return units;
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
