// A safe subset of Markdown as a tree of plain objects; markup in the text stays text.

import { safeUrl } from './safe_url.js';

/**
 * @typedef {{tag: string, href?: string, children: (Node | string)[]}} Node
 * `tag`: h2 to h5, p, ul, ol, li, pre, code, strong, em, a, hr, br, blockquote.
 */

/** Maximum length of a text, and maximum number of its blocks. */
const TEXT_MAX = 100_000;
const BLOCKS_MAX = 2000;
/** Code, link, bold (two ways), italic (two ways) and a plain address; quantifiers are bounded. */
const INLINE = [
  '`([^`]+)`',
  '!?\\[([^\\][]{0,500})\\]\\(\\s*<?([^\\s()<>]{1,2000})>?[^()]{0,200}\\)',
  '\\*\\*([^*]+)\\*\\*',
  '__([^_]+)__',
  '\\*([^*\\s][^*]*)\\*',
  '\\b_([^_]+)_\\b',
  '(https?:\\/\\/[^\\s<>"\')\\]]{1,2000})',
];
/** Longest line whose emphasis and links are read. */
const LINE_MAX = 5000;

/**
 * @param {string} source
 * @returns {Node[]}
 */
export function readMarkdown(source) {
  const lines = source.slice(0, TEXT_MAX).split(/\r?\n/);
  /** @type {Node[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length && blocks.length < BLOCKS_MAX) {
    const line = lines[at];
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (line.trim() === '') at += 1;
    else if (/^ {0,3}```/.test(line)) {
      let end = at + 1;
      while (end < lines.length && !/^ {0,3}```/.test(lines[end])) end += 1;
      blocks.push({ tag: 'pre', children: [lines.slice(at + 1, end).join('\n')] });
      at = end + 1;
    } else if (heading) {
      // The page has its own first level, and panels the second.
      const level = Math.min(6, heading[1].length + 2);
      blocks.push({ tag: `h${level}`, children: inline(heading[2].replace(/\s+#+\s*$/, '')) });
      at += 1;
    } else if (/^ {0,3}([-*_])(?:\s*\1){2,}\s*$/.test(line)) {
      blocks.push({ tag: 'hr', children: [] });
      at += 1;
    } else if (/^ {0,3}(?:[-*+]|\d{1,9}[.)])\s+/.test(line)) {
      const tag = /^ {0,3}\d/.test(line) ? 'ol' : 'ul';
      /** @type {Node[]} */
      const items = [];
      for (; at < lines.length && lines[at].trim() !== ''; at += 1) {
        const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)$/.exec(lines[at]);
        if (item) items.push({ tag: 'li', children: inline(item[1]) });
        else items[items.length - 1].children.push(' ', ...inline(lines[at].trim()));
      }
      blocks.push({ tag, children: items });
    } else {
      const quote = /^ {0,3}>\s?/;
      const quoted = quote.test(line);
      /** @type {(Node | string)[]} */
      const children = [];
      for (; at < lines.length && lines[at].trim() !== '' && quote.test(lines[at]) === quoted; at += 1) {
        if (children.length > 0 && /^ {0,3}(?:#{1,6}\s|```|[-*+]\s)/.test(lines[at])) break;
        if (children.length > 0) children.push(/ {2}$/.test(lines[at - 1]) ? { tag: 'br', children: [] } : ' ');
        children.push(...inline(quoted ? lines[at].replace(quote, '') : lines[at].trim()));
      }
      blocks.push({ tag: quoted ? 'blockquote' : 'p', children });
    }
  }
  return blocks;
}

/**
 * Code, links, bold and italic text of one line.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function inline(text) {
  if (text.length > LINE_MAX) return [text];
  const pattern = new RegExp(INLINE.join('|'), 'g');
  /** @type {(Node | string)[]} */
  const parts = [];
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > last) parts.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const [whole, code, label, url, bold, bold2, italic, italic2, plain] = found;
    const href = safeUrl(url ?? plain);
    if (code !== undefined) parts.push({ tag: 'code', children: [code] });
    else if (bold ?? bold2) parts.push({ tag: 'strong', children: [bold ?? bold2] });
    else if (italic ?? italic2) parts.push({ tag: 'em', children: [italic ?? italic2] });
    else if (href === null) parts.push(whole);
    else parts.push({ tag: 'a', href, children: [label || url || plain] });
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}
