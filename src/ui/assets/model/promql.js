// The PromQL of completion: the context of the caret, units, and first queries of metrics.

/** Aggregations: `by` and `without` may stand between their name and the bracket. */
export const AGGREGATIONS = new Set(
  (
    'sum avg count min max group stddev stdvar topk bottomk quantile count_values limitk limit_ratio'
  ).split(' '),
);
/** Keywords that a list of label names follows. */
export const LABEL_LISTS = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right']);
/** Words that are neither metrics nor functions. */
export const KEYWORDS = new Set([
  ...LABEL_LISTS,
  ...'and or unless atan2 bool offset fill fill_left fill_right anchored smoothed start end inf nan'.split(' '),
]);
/** Longer expressions are not searched for metric names; the caret's own context is always read. */
const SEARCHED_MAX = 20_000;

/**
 * @typedef {Object} Completion
 * @property {'name'|'label'|'value'|'duration'} kind a name is a metric, a function or a keyword
 * @property {string} word the part before the caret that a suggestion replaces
 * @property {string} [metric] the metric of the labels; without it, labels of any metric
 * @property {string} [label]
 * @property {boolean} [operator] whether a name stands where only a keyword can follow
 * @property {boolean} [list] whether the label is part of a list such as `by (...)`, without a
 *   matcher
 */

/**
 * The kind of completion at the caret, or null.
 * @param {string} before the text before the caret
 * @param {string} [after] the text after it
 * @returns {Completion|null}
 */
export function atCaret(before, after = '') {
  let [quote, brace, from] = ['', -1, 0];
  /** Positions of the round brackets that are open at the caret. @type {number[]} */
  const open = [];
  for (let index = 0; index < before.length; index += 1) {
    const sign = before[index];
    if (quote) {
      if (sign === '\\' && quote !== '`') index += 1;
      else if (sign === quote) quote = '';
    } else if ('"\'`'.includes(sign)) {
      [quote, from] = [sign, index + 1];
    } else if (sign === '{') {
      brace = index;
    } else if (sign === '}') {
      brace = -1;
    } else if (sign === '(') {
      open.push(index);
    } else if (sign === ')') {
      open.pop();
    }
  }
  const named = brace < 0 ? '' : (before.slice(0, brace).match(/[a-zA-Z_:][\w:]*$/)?.[0] ?? '');
  const metric = named && !KEYWORDS.has(named) ? { metric: named } : {};
  if (quote) {
    const [, label, sign] =
      (brace < 0 ? null : before.slice(brace, from - 1).match(/([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*$/)) ?? [];
    const text = before.slice(from);
    // The completion of a pattern replaces the alternative under the caret.
    return label
      ? { kind: 'value', word: sign.endsWith('~') ? (text.split('|').at(-1) ?? '') : text, ...metric, label }
      : null;
  }
  if (brace >= 0) {
    const word = before.slice(brace).match(/[{,]\s*([a-zA-Z_]\w*)?$/);
    return word ? { kind: 'label', word: word[1] ?? '', ...metric } : null;
  }
  const bracket = open.at(-1);
  if (bracket !== undefined && LABEL_LISTS.has(wordBefore(before, bracket))) {
    const word = before.slice(bracket).match(/[(,]\s*([a-zA-Z_]\w*)?$/);
    if (!word) return null;
    // `sum by (x) (metric)` names it later, `sum(metric) by (x)` and `on` earlier.
    const next = metricsOf(after)[0] ?? metricsOf(before.slice(0, bracket)).at(-1);
    return { kind: 'label', word: word[1] ?? '', list: true, ...(next ? { metric: next } : {}) };
  }
  const duration = before.match(/\[(?:[^[\]]*:)?\s*(\w*)$/);
  if (duration) return { kind: 'duration', word: duration[1] };
  const word = before.match(/(?:^|[^\w:[])([a-zA-Z_:][\w:]*)$/)?.[1];
  if (!word) return null;
  // After an aggregation, a metric or a bracket only a keyword can follow.
  const lead = before.slice(0, before.length - word.length).trimEnd();
  const last = wordBefore(lead, lead.length);
  const operator = /[)\]}]$/.test(lead) || (/[a-z_:]/.test(last) && !KEYWORDS.has(last));
  return { kind: 'name', word, ...(operator ? { operator } : {}) };
}

/** The word that ends before a position, in lower case. @param {string} text @param {number} end */
const wordBefore = (text, end) =>
  (/([\w:]+)\s*$/.exec(text.slice(Math.max(0, end - 40), end))?.[1] ?? '').toLowerCase();

const TEXTS = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`/g;
/** Parts that hold neither operators nor metrics: label matchers, windows, label lists. */
const ASIDES = /\{[^{}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g;
/** Operators and functions whose results are not in the metric's unit. */
const CHANGED =
  /[*/%^]|\b(?:count|count_over_time|count_values|absent|absent_over_time|changes|resets|group|time|timestamp|ln|log2|log10|exp|sqrt|bool)\b/;
/** @type {[RegExp, string][]} */
const SUFFIXES = [
  [/_bytes(_total|_sum)?$/, 'bytes'],
  [/_seconds(_total|_sum)?$/, 'seconds'],
  [/_ratio$/, 'percent'],
];
/** Buckets count observations; only a quantile of them is in the unit of the histogram. */
const BUCKETS = /_bucket$/;

/**
 * The names of metrics in an expression, in its order, each once.
 * @param {string} expr
 * @returns {string[]}
 */
export function metricsOf(expr) {
  const code = expr.slice(0, SEARCHED_MAX).replace(TEXTS, '""').replace(ASIDES, ' ');
  const found = [...code.matchAll(/(?<![\w:.])([a-zA-Z_:][\w:]*)(?![\w:]|\s*\()/g)].map(([, name]) => name);
  const names = found.filter((name) => !KEYWORDS.has(name.toLowerCase()) && !AGGREGATIONS.has(name.toLowerCase()));
  return [...new Set(names)];
}

/**
 * The unit of a query's values as far as the names of its metrics determine it; otherwise ''.
 * @param {string} expr
 * @returns {string}
 */
export function unitOf(expr) {
  const code = expr.replace(TEXTS, '').replace(ASIDES, '');
  if (CHANGED.test(code)) return '';
  // A name before a bracket is a function.
  const words = (code.match(/[a-zA-Z_:][\w:]*(?![\w:]|\s*\()/g) ?? []).filter((word) => word.includes('_'));
  const units = new Set(
    words.map((word) => unitOfName(code.includes('histogram_quantile') ? word.replace(BUCKETS, '') : word)),
  );
  if (units.size !== 1) return '';
  const [unit] = units;
  // Seconds per second have no unit; a quantile of a histogram keeps the unit of its observations.
  if (!/\b(?:i?rate|deriv)\s*\(/.test(code) || code.includes('histogram_quantile')) return unit;
  return unit === 'bytes' ? 'bytes/s' : '';
}

/** @param {string} name of a metric */
const unitOfName = (name) => SUFFIXES.find(([end]) => end.test(name))?.[1] ?? '';

/**
 * Whether a metric's name needs no quotes in a query; OTLP allows any UTF-8.
 * @param {string} name
 */
export const isPlainName = (name) => /^[a-zA-Z_:][\w:]*$/.test(name);

/** Whether a label's name needs no quotes in a query. @param {string} name */
export const isPlainLabel = (name) => /^[a-zA-Z_]\w*$/.test(name);

/**
 * The selector of exactly one series; names that are no words are quoted.
 * @param {Record<string, string>} labels
 */
export function selectorOf(labels) {
  const { __name__: name = '', ...rest } = labels;
  const pairs = Object.entries(rest)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([label, value]) => `${isPlainLabel(label) ? label : JSON.stringify(label)}=${JSON.stringify(value)}`);
  const plain = isPlainName(name);
  const inside = [...(plain || !name ? [] : [JSON.stringify(name)]), ...pairs].join(', ');
  return plain && !inside ? name : `${plain ? name : ''}{${inside}}`;
}

/**
 * A useful first query for a metric of which only name and type are known.
 * @param {{name: string, type: string}} metric
 * @returns {string}
 */
export function firstQuery({ name, type }) {
  if (!isPlainName(name)) return `{__name__=${JSON.stringify(name)}}`;
  if (name.endsWith('_bucket')) return `histogram_quantile(0.95, sum by (le) (rate(${name}[5m])))`;
  if (type === 'counter' || /_(total|count|sum)$/.test(name)) return `rate(${name}[5m])`;
  return name;
}
