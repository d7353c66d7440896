/** The card of a break as Markdown, with the lines around the break, for an issue or a chat. */
import { ownLineOf } from './elements';

/** The number of source lines that are included before and after the line of the break. */
const CONTEXT_LINES = 5;

/** Words with Markdown syntax or mentions, which are shown as code. */
const SPECIAL = /(\S*[`*_<>[\]@#|~\\$!{}^&]\S*?)([,.;:]*)(?=\s|$)/g;

/**
 * Return the card of a break as Markdown.
 *
 * @param card - The `details` of the card.
 * @param root - The element of the report, which contains the source.
 */
export function cardAsMarkdown(card: HTMLElement, root: HTMLElement): string {
  const summary = card.querySelector(':scope > summary')!;
  const parts = Array.from(summary.children).filter(
    part => part.tagName !== 'BR'
  );
  const [title, ...rest] = parts.map(part => inline(part));
  return [
    `**Graph break:** ${(title ?? '').replace(/^✂\d+\s*/, '')}`,
    ...sourceAround(card, root),
    ...rest,
    ...blocks(card)
  ].join('\n\n');
}

/** The lines around the break, with a mark at the line of the break. */
function sourceAround(card: HTMLElement, root: HTMLElement): string[] {
  const item = card.closest<HTMLElement>('.gb-item')!;
  const prefix = root.dataset.prefix ?? '';
  const breakLine = root.querySelector(
    `[id="${prefix}${ownLineOf(item) ?? ''}"]`
  );
  const lines = Array.from(
    breakLine
      ?.closest('.gb-code')
      ?.querySelectorAll<HTMLElement>('.gb-line[id]') ?? []
  );
  const index = lines.findIndex(line => line === breakLine);
  if (index < 0) {
    return [];
  }
  const text = lines
    .slice(Math.max(0, index - CONTEXT_LINES), index + CONTEXT_LINES + 1)
    .map(line => {
      const number = (line.querySelector('i')?.textContent ?? '').trim();
      const code = codeOf(line);
      return `${line === breakLine ? '>' : ' '} ${number.padStart(4)}  ${code}`;
    });
  return [fenced(text.join('\n'), '')];
}

/** The source text of a line, without annotations. */
function codeOf(line: HTMLElement): string {
  const code = line.querySelector('code')?.cloneNode(true) as Element;
  code.querySelectorAll('.gb-via').forEach(note => note.remove());
  return (code.textContent ?? '').replace(/\n$/, '');
}

function blocks(element: Element): string[] {
  return Array.from(element.children).flatMap(child => {
    if (
      child.matches('.gb-actions, .gb-excerpt, .gb-item > details > summary')
    ) {
      return [];
    }
    switch (child.tagName) {
      case 'SUMMARY':
        // The parts of other folds have headings.
        return child.parentElement?.matches('.gb-failed')
          ? [`**${child.textContent?.trim() ?? ''}**`]
          : [];
      case 'H5':
        return [`**${child.textContent?.trim() ?? ''}**`];
      case 'P':
        return [inline(child)];
      case 'PRE':
        return [fenced(child.textContent ?? '', languageOf(child))];
      case 'UL':
        return [items(child, '')];
      case 'DL':
        return [pairs(child)];
      default:
        return blocks(child);
    }
  });
}

function languageOf(element: Element): string {
  return element.matches('.gb-diff') ? 'diff' : '';
}

function items(list: Element, indent: string): string {
  return Array.from(list.children)
    .map(item => {
      const inner = item.querySelector(':scope > ul');
      return inner === null
        ? `${indent}- ${inline(item)}`
        : items(inner, `${indent}  `);
    })
    .join('\n');
}

function pairs(list: Element): string {
  return Array.from(list.querySelectorAll(':scope > dt'), term => {
    const description = term.nextElementSibling;
    return `- ${term.textContent ?? ''}: ${description === null ? '' : inline(description)}`;
  }).join('\n');
}

function inline(element: Element): string {
  return Array.from(element.childNodes, node => {
    if (node.nodeType === Node.TEXT_NODE) {
      return (node.textContent ?? '').replace(/\s\|\s/g, '; ').replace(SPECIAL, (_, word: string, end: string) => span(word) + end); // prettier-ignore
    }
    const child = node as Element;
    switch (child.tagName) {
      case 'CODE':
        return span(child.textContent ?? '');
      case 'BR':
        return ' ';
      default:
        return inline(child);
    }
  })
    .join('')
    .replace(/\s+/g, ' ')
    .trim();
}

/** Text as inline code; it may contain backticks. */
function span(text: string): string {
  const fence = '`'.repeat(longestRun(text) + 1);
  const space = /^`|`$/.test(text) ? ' ' : '';
  return text === '' ? '' : `${fence}${space}${text}${space}${fence}`;
}

/** Text as a code block; it may contain backticks. */
function fenced(text: string, language: string): string {
  const fence = '`'.repeat(Math.max(3, longestRun(text) + 1));
  return `${fence}${language}\n${text.replace(/\n$/, '')}\n${fence}`;
}

function longestRun(text: string): number {
  let longest = 0;
  for (const [run] of text.matchAll(/`+/g)) {
    longest = Math.max(longest, run.length);
  }
  return longest;
}
