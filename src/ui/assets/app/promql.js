// Just enough of PromQL to help while typing: what stands at the caret, and a first query for a metric.

export const FUNCTIONS = ('abs absent absent_over_time avg avg_over_time bottomk ceil changes clamp clamp_max clamp_min count '
  + 'count_over_time count_values delta deriv exp floor group histogram_quantile idelta increase irate label_join '
  + 'label_replace last_over_time ln log10 log2 max max_over_time min min_over_time predict_linear quantile '
  + 'quantile_over_time rate resets round scalar sort sort_desc sqrt stddev stddev_over_time sum sum_over_time time '
  + 'timestamp topk vector').split(' ');

/**
 * What the text before the caret asks for: a name (metric or function), a label, a label's value, or nothing.
 * @param {string} before
 * @returns {{kind: 'name'|'label'|'value', word: string, metric?: string, label?: string}|null}
 */
export function atCaret(before) {
  let [quote, brace, from] = ['', -1, 0];
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
    }
  }
  const metric = brace < 0 ? '' : before.slice(0, brace).match(/[a-zA-Z_:][\w:]*$/)?.[0] ?? '';
  if (quote) {
    const [, label, sign] = (brace < 0 ? null : before.slice(brace, from - 1).match(/([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*$/)) ?? [];
    const text = before.slice(from);
    // In a pattern the alternative under the caret is meant.
    return label && metric ? { kind: 'value', word: sign.endsWith('~') ? text.split('|').at(-1) : text, metric, label } : null;
  }
  if (brace >= 0) {
    const word = before.slice(brace).match(/[{,]\s*([a-zA-Z_]\w*)?$/);
    return word && metric ? { kind: 'label', word: word[1] ?? '', metric } : null;
  }
  // A word right after a digit or a bracket is a duration: rate(x[5m.
  const word = before.match(/(?:^|[^\w:[])([a-zA-Z_:][\w:]*)$/)?.[1];
  return word ? { kind: 'name', word } : null;
}

const TEXTS = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`/g;
/** What is neither operator nor metric: label matchers, windows, label lists. */
const ASIDES = /\{[^{}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g;
/** After these the values are no longer of the metric's unit. */
const CHANGED = /[*/%^]|\b(?:count|count_over_time|count_values|absent|absent_over_time|changes|resets|group|time|timestamp|ln|log2|log10|exp|sqrt|bool)\b/;
const SUFFIXES = [[/_bytes(_total)?$/, 'bytes'], [/_seconds(_total|_bucket|_sum)?$/, 'seconds'], [/_ratio$/, 'percent']];

/** The unit of a query's values as far as its metrics' names tell it for sure; else nothing. */
export function unitOf(expr) {
  const code = expr.replace(TEXTS, '').replace(ASIDES, '');
  if (CHANGED.test(code)) return '';
  const words = (code.match(/[a-zA-Z_:][\w:]*/g) ?? []).filter((word) => word.includes('_') && !FUNCTIONS.includes(word));
  const units = new Set(words.map((word) => SUFFIXES.find(([end]) => end.test(word))?.[1] ?? ''));
  if (units.size !== 1) return '';
  const [unit] = units;
  // Seconds per second are a share, a quantile of a histogram is of its own unit.
  if (!/\b(?:i?rate|deriv)\s*\(/.test(code) || code.includes('histogram_quantile')) return unit;
  return unit === 'bytes' ? 'bytes/s' : '';
}

/** Whether a metric's name can stand in a query as it is; senders of OTLP may use any UTF-8. */
export const isPlainName = (name) => /^[a-zA-Z_:][\w:]*$/.test(name);

/** A query worth looking at for a metric of which only name and type are known. */
export function firstQuery({ name, type }) {
  if (!isPlainName(name)) return `{__name__=${JSON.stringify(name)}}`;
  if (name.endsWith('_bucket')) return `histogram_quantile(0.95, sum by (le) (rate(${name}[5m])))`;
  if (type === 'counter' || /_(total|count|sum)$/.test(name)) return `rate(${name}[5m])`;
  return name;
}
