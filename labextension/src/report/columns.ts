/** Converts columns, because Python counts characters and an editor counts UTF-16 units. */

/** One half of a character that consists of two units. */
const SURROGATE = /[\ud800-\udfff]/;

/** The editor's column for a column of a report, clamped to the text. */
export function editorColumn(text: string, column: number): number {
  if (!SURROGATE.test(text)) {
    return Math.max(0, Math.min(column, text.length));
  }
  let unitCount = 0;
  for (let count = 0; count < column && unitCount < text.length; count += 1) {
    unitCount += text.codePointAt(unitCount)! > 0xffff ? 2 : 1;
  }
  return unitCount;
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
