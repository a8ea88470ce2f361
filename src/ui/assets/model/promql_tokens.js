// Splits PromQL into tokens for colours, finds pairs of brackets, and the place of an error.

import { AGGREGATIONS, KEYWORDS, LABEL_LISTS } from './promql.js';

/** Longer texts are shown without colours. */
export const COLOURED_MAX = 20_000;

/**
 * @typedef {'blank' | 'comment' | 'text' | 'variable' | 'number' | 'function' | 'aggregation' | 'keyword' |
 *   'label' | 'metric' | 'operator' | 'bracket' | 'other'} TokenKind
 * @typedef {{kind: TokenKind, from: number, to: number}} Token `to` is exclusive
 */

/** The first group that matches is the kind; the last one takes any character. */
const PIECES = new RegExp(
  [
    '(?<blank>\\s+)',
    '(?<comment>#[^\\n\\r]*)',
    '(?<text>"(?:\\\\[^]|[^"\\\\\\n])*"?|\'(?:\\\\[^]|[^\'\\\\\\n])*\'?|`[^`]*`?)',
    // Variables of dashboards: $x, ${x:regex}, [[x]].
    '(?<variable>\\$\\w+|\\$\\{[^{}\\n]*\\}?|\\[\\[\\w+(?::\\w+)?\\]\\])',
    '(?<number>(?:\\d|\\.\\d)(?:[\\w.]|(?<=[eE])[+-](?=\\d))*)',
    '(?<word>[a-zA-Z_:][\\w:]*)',
    '(?<operator>==|!=|=~|!~|<=|>=|<\\/|>\\/|[-+*\\/%^<>=@,:])',
    '(?<bracket>[()[\\]{}])',
    '(?<other>[^])',
  ].join('|'),
  'y',
);
/** A word inside braces or brackets ends at a colon, which separates range and step there. */
const WORD_WITHOUT_COLON = /:|[a-zA-Z_]\w*/y;
/** Keywords with a colour of another kind. @type {Map<string, TokenKind>} */
const SPECIAL = new Map([['inf', 'number'], ['nan', 'number'], ['start', 'function'], ['end', 'function']]);
/** @type {Record<string, string>} */
const CLOSING = { '(': ')', '[': ']', '{': '}' };

/**
 * The tokens of any text. They cover it without gaps: joined they are the text.
 * @param {string} text
 * @returns {Token[]}
 */
export function tokenize(text) {
  /** @type {Token[]} */
  const tokens = [];
  /** The brackets that are open, and whether each holds a list of labels. @type {{sign: string, labels: boolean}[]} */
  const open = [];
  /** The last word, if nothing but blanks followed it. */
  let word = '';
  for (let at = 0; at < text.length;) {
    PIECES.lastIndex = at;
    const found = PIECES.exec(text);
    const groups = found?.groups ?? {};
    let [name, piece] = Object.entries(groups).find(([, value]) => value !== undefined) ?? ['other', text[at]];
    const inside = open.at(-1);
    if (name === 'word' && (inside?.sign === '[' || inside?.sign === '{')) {
      WORD_WITHOUT_COLON.lastIndex = at;
      piece = WORD_WITHOUT_COLON.exec(text)?.[0] ?? piece;
      if (piece === ':') name = 'operator';
    }
    const to = at + piece.length;
    if (name === 'bracket') {
      if (Object.hasOwn(CLOSING, piece)) {
        open.push({ sign: piece, labels: piece === '(' && LABEL_LISTS.has(word.toLowerCase()) });
      } else {
        const matching = open.findLastIndex(({ sign }) => CLOSING[sign] === piece);
        if (matching >= 0) open.length = matching;
      }
    }
    const kind = name === 'word' ? kindOfWord(piece, inside, text, to) : /** @type {TokenKind} */ (name);
    if (kind !== 'blank' && kind !== 'comment') word = name === 'word' ? piece : '';
    tokens.push({ kind, from: at, to });
    at = to;
  }
  return tokens;
}

/**
 * @param {string} word
 * @param {{sign: string, labels: boolean} | undefined} inside the innermost open bracket
 * @param {string} text
 * @param {number} to the end of the word in the text
 * @returns {TokenKind}
 */
function kindOfWord(word, inside, text, to) {
  if (inside?.labels || inside?.sign === '{') return 'label';
  const lower = word.toLowerCase();
  if (AGGREGATIONS.has(lower)) return 'aggregation';
  if (KEYWORDS.has(lower)) return SPECIAL.get(lower) ?? 'keyword';
  while (/\s/.test(text[to] ?? '')) to += 1;
  return text[to] === '(' ? 'function' : 'metric';
}

/**
 * The bracket beside the caret and its partner, as indices of tokens. `null` without a bracket
 * beside the caret; one index if the bracket has no partner.
 * @param {string} text
 * @param {Token[]} tokens
 * @param {number} caret
 * @returns {number[] | null}
 */
export function bracketsAt(text, tokens, caret) {
  const beside = tokens.findLastIndex(
    ({ kind, from, to }) => kind === 'bracket' && (from === caret || to === caret),
  );
  if (beside < 0) return null;
  const sign = text[tokens[beside].from];
  const by = Object.hasOwn(CLOSING, sign) ? 1 : -1;
  let depth = 0;
  for (let index = beside; index >= 0 && index < tokens.length; index += by) {
    if (tokens[index].kind !== 'bracket') continue;
    depth += Object.hasOwn(CLOSING, text[tokens[index].from]) ? by : -by;
    if (depth > 0) continue;
    const [first, last] = [text[tokens[Math.min(beside, index)].from], text[tokens[Math.max(beside, index)].from]];
    return CLOSING[first] === last ? [beside, index] : [beside];
  }
  return [beside];
}

/**
 * Whether a text may be a whole expression: brackets and quotes are closed, and no operator or
 * comma ends it. The server decides whether it is one.
 * @param {string} text
 */
export function looksComplete(text) {
  if (text.trim() === '') return false;
  /** @type {string[]} */
  const open = [];
  let last = '';
  for (const { kind, from, to } of tokenize(text)) {
    if (kind === 'blank' || kind === 'comment') continue;
    last = text.slice(from, to);
    if (kind === 'text' && (to - from < 2 || !last.endsWith(last[0]))) return false;
    if (kind !== 'bracket') continue;
    if (Object.hasOwn(CLOSING, last)) open.push(CLOSING[last]);
    else if (open.pop() !== last) return false;
  }
  return open.length === 0 && !/^(?:[-+*/%^<>=@,:]|[=!<>][=~/])$/.test(last) && !OPEN_ENDS.has(last.toLowerCase());
}

/**
 * Whether an expression is a range selector or a subquery, which only an instant query can answer.
 * @param {string} expr
 */
export const isRangeSelector = (expr) =>
  /\]\s*(?:(?:offset\s+|@\s*)[-\w.()]+\s*)*$/i.test(expr.slice(-200)) && looksComplete(expr);

/** Keywords that something follows. */
const OPEN_ENDS = new Set(['and', 'or', 'unless', 'atan2', 'by', 'without', 'on', 'ignoring', 'offset', 'bool']);

/**
 * @typedef {{line: number, column: number, message: string, from: number, to: number}} QueryError
 * `line` and `column` count characters from 1; `from` to `to` (exclusive) is the part of the text
 * to underline, at least one character long unless the text is empty
 */

/**
 * The error of a query as the server words it: `2:13: parse error: unexpected ...`, where the
 * column counts bytes of UTF-8 from 1. `null` for a message without a place.
 * @param {string} text of the query
 * @param {string} detail
 * @returns {QueryError | null}
 */
export function queryError(text, detail) {
  const found = /(?:^|[\s:])(\d{1,6}):(\d{1,6}): (?:parse error: )?([^]*)$/.exec(detail);
  if (!found) return null;
  const line = Number(found[1]);
  let start = 0;
  for (let passed = 1; passed < line; passed += 1) {
    const end = text.indexOf('\n', start);
    if (end < 0) return null;
    start = end + 1;
  }
  let bytes = Number(found[2]) - 1;
  let at = start;
  while (bytes > 0 && at < text.length && text[at] !== '\n') {
    const code = text.codePointAt(at) ?? 0;
    bytes -= code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    at += code < 0x10000 ? 1 : 2;
  }
  const tokens = tokenize(text.slice(0, COLOURED_MAX));
  let token = tokens.find(({ from, to }) => from <= at && at < to);
  // At the end of the text, or on a blank, the last token before is underlined.
  if (!token || token.kind === 'blank')
    token = tokens.findLast(({ kind, from }) => kind !== 'blank' && from < Math.max(at, 1)) ?? token;
  const column = [...text.slice(start, at)].length + 1;
  const message = found[3].trim() || 'The query is not valid.';
  return { line, column, message, from: token?.from ?? at, to: token?.to ?? at };
}

/**
 * An error in words with its place.
 * @param {string} text of the query
 * @param {QueryError} error
 */
export function errorSentence(text, { line, column, message }) {
  const place = text.includes('\n') ? `line ${line}, column ${column}` : `column ${column}`;
  return `${message.charAt(0).toUpperCase()}${message.slice(1)} (${place}).`;
}
