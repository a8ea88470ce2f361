// The matchers of ad hoc filters in every selector of a query.

import { isPlainLabel } from './promql.js';
import { tokenize } from './promql_tokens.js';

/** @typedef {import('./filter_text.js').Filter} Filter */

/** A matcher as PromQL writes it. @param {Filter} filter */
function matcherText({ label, op, value }) {
  return `${isPlainLabel(label) ? label : JSON.stringify(label)}${op}${JSON.stringify(value)}`;
}

/** Kinds of tokens that are names: which one it is does not matter here. */
const NAMES = new Set(['function', 'aggregation', 'keyword', 'label', 'metric']);

/** @typedef {{kind: 'text' | 'number' | 'name' | 'sign', text: string, from: number, to: number}} Token */

/** @param {string} expr @returns {Token[]} without space and comments */
function tokensOf(expr) {
  return tokenize(expr)
    .filter(({ kind }) => kind !== 'blank' && kind !== 'comment')
    .map(({ kind, from, to }) => {
      const own = kind === 'text' || kind === 'number' ? kind : NAMES.has(kind) ? 'name' : 'sign';
      return { kind: own, text: expr.slice(from, to), from, to };
    });
}

/** Names between an operand and the next one. */
const BINARY = new Set(['and', 'or', 'unless', 'atan2']);
/** Keywords that precede a list of labels. */
const LISTS = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right']);
/** Lists after which an operand is expected. */
const JOINS = new Set(['on', 'ignoring', 'group_left', 'group_right']);
const COMPARISONS = new Set(['==', '!=', '>', '<', '>=', '<=']);

/**
 * The query with matchers in each of its selectors. Any text has a result: where it is no PromQL, it
 * stays as it is.
 * @param {string} expr
 * @param {Filter[]} filters
 */
export function withMatchers(expr, filters) {
  if (filters.length === 0) return expr;
  const matchers = filters.map(matcherText).join(', ');
  const tokens = tokensOf(expr);
  const sign = (/** @type {number} */ at, /** @type {string} */ text) =>
    tokens[at]?.kind === 'sign' && tokens[at].text === text;
  /** @type {{at: number, text: string}[]} */
  const inserts = [];
  /** Whether an operand is expected, and not an operator. */
  let operand = true;
  /** Whether the last list was that of `on` or `ignoring`. */
  let joined = false;
  for (let at = 0; at < tokens.length; at += 1) {
    const { kind, text, to } = tokens[at];
    const name = kind === 'name' ? text.toLowerCase() : '';
    const wasJoined = joined;
    joined = false;
    if (kind === 'text' || kind === 'number') operand = false;
    else if (name !== '') {
      const called = sign(at + 1, '(');
      if (LISTS.has(name) && called) {
        at = closing(tokens, at + 1, ')');
        operand = JOINS.has(name);
        joined = name === 'on' || name === 'ignoring';
      } else if (!operand) operand = BINARY.has(name) || name === 'offset';
      else if (wasJoined && /^group_(?:left|right)$/.test(name)) continue;
      else if (name === 'bool' && tokens[at - 1]?.kind === 'sign' && COMPARISONS.has(tokens[at - 1].text)) continue;
      else if (called) continue;
      else if (['by', 'without'].includes(tokens[at + 1]?.text.toLowerCase()) && sign(at + 2, '(')) continue;
      else {
        operand = false;
        if (name === 'inf' || name === 'nan') continue;
        if (sign(at + 1, '{')) at = insertBefore(at + 1);
        else inserts.push({ at: to, text: `{${matchers}}` });
      }
    } else if (text === '{' && operand) {
      at = insertBefore(at);
      operand = false;
    } else if (text === '[' || text === '{') at = closing(tokens, at, text === '[' ? ']' : '}');
    else operand = text !== ')';
  }

  /** Inserts into braces that open at a token. Returns the index of the closing bracket. @param {number} open */
  function insertBefore(open) {
    const close = closing(tokens, open, '}');
    if (close < tokens.length) {
      const last = tokens[close - 1];
      const text = close === open + 1 ? matchers : sign(close - 1, ',') ? ` ${matchers}` : `, ${matchers}`;
      inserts.push({ at: last.to, text });
    }
    return close;
  }

  let result = '';
  let from = 0;
  for (const { at, text } of inserts) {
    result += expr.slice(from, at) + text;
    from = at;
  }
  return result + expr.slice(from);
}

/** The index of the next token with a sign, or the number of tokens. @param {Token[]} tokens
 *  @param {number} from @param {string} text */
function closing(tokens, from, text) {
  let at = from + 1;
  while (at < tokens.length && (tokens[at].kind !== 'sign' || tokens[at].text !== text)) at += 1;
  return Math.min(at, tokens.length);
}
