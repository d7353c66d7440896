/** Makes text of a report fit to be shown: not endless, and without characters that hide or that reorder other text. */

/** The beginning of a text, with an ellipsis where more follows. */
export function clip(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** Characters that nobody sees, that look like a blank, or that change the order in which others are shown. */
const HIDDEN =
  /(?![ \t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** A piece of text as it is, or the name of a character that is hidden: "U+202E". */
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

/** The pages to which links of a report may lead: PyTorch's, and its registry of graph breaks. */
const KNOWN_PAGES =
  /^https:\/\/(?:(?:[a-z0-9-]+\.)*pytorch\.org|meta-pytorch\.github\.io\/compile-graph-break-site)(?:[/?#]|$)/i;

/** Whether a link of a report may be followed out of it. */
export function isKnownPage(address: string): boolean {
  return KNOWN_PAGES.test(address);
}
