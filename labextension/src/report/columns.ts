/** Converts columns, because Python counts characters and an editor counts UTF-16 units. */

/** One half of a character that consists of two units. */
const SURROGATE = /[\ud800-\udfff]/;

/** The editor's column for a column of a report, clamped to the text. */
export function editorColumn(text: string, column: number): number {
  if (!SURROGATE.test(text)) {
    return Math.max(0, Math.min(column, text.length));
  }
  let units = 0;
  for (let count = 0; count < column && units < text.length; count += 1) {
    units += text.codePointAt(units)! > 0xffff ? 2 : 1;
  }
  return units;
}

/** The editor's start column; without a column, the start of the line's text. */
export function startColumn(text: string, column: number | null): number {
  return column === null
    ? text.length - text.trimStart().length
    : editorColumn(text, column);
}

/** The editor's end column; without a column, the end of the line's text. */
export function endColumn(text: string, column: number | null): number {
  return column === null ? text.trimEnd().length : editorColumn(text, column);
}
