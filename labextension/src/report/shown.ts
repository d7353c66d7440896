/** Makes text of a report safe to show: of limited length, without characters that hide or reorder text. */

/** Truncate text with an ellipsis. */
export function clip(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

/** Characters that are invisible, look like a blank, or reorder other characters. */
const HIDDEN =
  /(?![ \t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** A piece of text, or the name of a hidden character: "U+202E". */
export interface IPiece {
  readonly text: string;
  readonly isHidden: boolean;
}

/** Split a line of text so that its hidden characters can be shown by their names. */
export function visiblePieces(text: string): IPiece[] {
  if (!HIDDEN.test(text)) {
    return [{ text, isHidden: false }];
  }
  const pieces: IPiece[] = [];
  let plain = '';
  const endPlain = (): void => {
    if (plain !== '') {
      pieces.push({ text: plain, isHidden: false });
      plain = '';
    }
  };
  for (const char of text) {
    if (HIDDEN.test(char)) {
      endPlain();
      const code = char.codePointAt(0)!.toString(16).toUpperCase();
      pieces.push({ text: `U+${code.padStart(4, '0')}`, isHidden: true });
    } else {
      plain += char;
    }
  }
  endPlain();
  return pieces;
}

/** Pages that a report may link to: PyTorch's pages, and its registry of graph breaks. */
const KNOWN_PAGES =
  /^https:\/\/(?:(?:[a-z0-9-]+\.)*pytorch\.org|meta-pytorch\.github\.io\/compile-graph-break-site)(?:[/?#]|$)/i;

/** Whether a report may link to an external page. */
export function isKnownPage(address: string): boolean {
  return KNOWN_PAGES.test(address);
}
