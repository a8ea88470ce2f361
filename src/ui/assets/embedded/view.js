// A visitor's view of a dashboard: its document, and the values that its variables may have.

import { filterText, readFilterTexts } from '../model/filter_text.js';
import { isObject, objectOf, textOf, textsOf } from '../model/limits.js';
import { durationText } from '../model/time.js';
import { optionsOf } from '../model/variables.js';

/**
 * @typedef {import('../model/variables.js').Variable} Variable
 * @typedef {import('../model/interpolate.js').Selections} Selections
 * @typedef {{access: 'open' | 'fixed' | 'locked', values: string[] | null}} Access
 * `values` are those that a locked or a fixed variable has, or that an open one may have; null: every value.
 * @typedef {{uid: string, title: string, version: number, document: Record<string, any>, access: Map<string, Access>,
 *   longest: number, leastStep: number}} View
 * `longest` is the longest range and `leastStep` the shortest step, in milliseconds; without a limit they are
 *   Infinity and 0.
 */

/**
 * Reads the answer of the server, which may have any shape.
 * @param {unknown} answer
 * @returns {View}
 */
export function readView(answer) {
  const root = objectOf(answer);
  /** @type {Map<string, Access>} */
  const access = new Map();
  for (const [name, one] of Object.entries(objectOf(root.variables))) {
    const kind = ['open', 'fixed', 'locked'].includes(one?.access) ? one.access : 'fixed';
    const values = kind === 'open' ? one.values : one?.value;
    access.set(name, { access: kind, values: Array.isArray(values) ? textsOf(values) : null });
  }
  const seconds = (/** @type {unknown} */ value) => (Number(value) > 0 ? Number(value) * 1000 : 0);
  return {
    uid: textOf(root.uid),
    title: textOf(root.title),
    version: Number(root.version) || 0,
    document: objectOf(root.dashboard),
    access,
    longest: seconds(root.max_range_s) || Infinity,
    leastStep: seconds(root.min_step_s),
  };
}

/**
 * The variables as the visitor has them: those that are not open have the values of the answer and no
 * control.
 * @param {Variable[]} variables
 * @param {View['access']} access
 * @returns {Variable[]}
 */
export function visitorVariables(variables, access) {
  return variables.map((variable) => {
    const { type, current } = variable;
    if (type === 'datasource') return variable;
    const { access: kind, values } = access.get(variable.name) ?? { access: 'fixed', values: null };
    if (type === 'adhoc') return kind === 'open' ? openFilters(variable, values) : { ...variable, hide: 2 };
    if (kind === 'open') return values && type !== 'query' ? listed(variable, values) : variable;
    const value = values ?? [current.value].flat();
    // The length of an automatic interval depends on the range.
    if (type === 'interval') return { ...variable, hide: 2, current: { text: value[0] ?? '', value: value[0] ?? '' } };
    const all = value[0] === '$__all';
    const options =
      type === 'custom' ? optionsOf({ ...variable, includeAll: false }).map((option) => option.value) : [];
    return {
      ...listed(variable, all ? options : value),
      hide: 2,
      multi: true,
      includeAll: all,
      current: { text: value, value },
    };
  });
}

/** An ad hoc variable that a visitor may set: to any filters, or to some of those that the server allows.
 *  @param {Variable} variable @param {string[] | null} values @returns {Variable} */
function openFilters(variable, values) {
  if (!values) return variable;
  const options = values.map((value) => ({ text: readFilterTexts([value]).map(filterWords).join() || value, value }));
  const none = { text: [], value: [] };
  return { ...variable, type: 'custom', valuesFormat: 'json', query: JSON.stringify(options), multi: true, current: none };
}

/** @param {import('../model/filter_text.js').Filter} filter */
const filterWords = ({ label, op, value }) => `${label} ${op} ${value || '""'}`;

/** A variable that offers some values, with the texts that it has for them. @param {Variable} variable
 *  @param {string[]} values @returns {Variable} */
function listed(variable, values) {
  const known = variable.type === 'custom' ? optionsOf({ ...variable, includeAll: false }) : [];
  const options = values.map((value) => known.find((option) => option.value === value) ?? { text: value, value });
  return { ...variable, type: 'custom', valuesFormat: 'json', query: JSON.stringify(options) };
}

/**
 * The values of an open variable that the visitor may choose, in the order of the answer.
 * @param {unknown[]} answer of the server, for all values
 * @param {Access | undefined} access
 */
export function allowedOptions(answer, access) {
  const allowed = access?.values;
  if (!allowed) return answer;
  const found = answer.filter((one) => allowed.includes(textOf(isObject(one) ? one.value : one)));
  return found.length > 0 ? found : allowed;
}

/**
 * The values of attributes such as `var-host`, by the names of variables: HTML has no capitals in the
 * names of attributes.
 * @param {Iterable<{name: string, value: string}>} attributes
 * @param {Variable[]} variables
 * @returns {Map<string, string[]>}
 */
export function attributeValues(attributes, variables) {
  const names = new Map(variables.map(({ name, multi }) => [name.toLowerCase(), { name, multi }]));
  /** @type {Map<string, string[]>} */
  const values = new Map();
  for (const { name, value } of attributes) {
    const known = name.startsWith('var-') ? names.get(name.slice(4).toLowerCase()) : undefined;
    if (known) values.set(known.name, known.multi ? value.split(',').map((one) => one.trim()) : [value]);
  }
  return values;
}

/**
 * The values of the open variables as a request has them.
 * @param {Selections} selections
 * @param {View['access']} access
 * @returns {Record<string, string[]>}
 */
export function sentValues(selections, access) {
  /** @type {Record<string, string[]>} */
  const sent = Object.create(null);
  for (const [name, { value, type, filters }] of selections) {
    if (access.get(name)?.access !== 'open' || type === 'datasource' || type === 'constant') continue;
    if (type === 'adhoc') {
      sent[name] = (filters ?? []).map(filterText);
      continue;
    }
    const values = [value].flat().map(String);
    // The server takes the saved value of a variable without options.
    if (values.length > 0) sent[name] = values;
  }
  return sent;
}

/**
 * A range that is not longer than the server allows: its end stays.
 * @param {import('../model/time.js').Range} range
 * @param {number} longest in milliseconds
 * @returns {import('../model/time.js').Range}
 */
export function boundedRange(range, longest) {
  if (range.to - range.from <= longest) return range;
  const from = range.to - longest;
  return { ...range, from, raw: { from, to: range.to } };
}

/**
 * Writes queries as references to the panel, which the server resolves.
 * @param {number | null} panel
 * @param {Selections} scoped of a repeated panel: its one value of each variable, open or not
 * @returns {import('../model/panel_queries.js').Write}
 */
export const writeReference =
  (panel, scoped) =>
  ({ refId }, selections, { interval }) => {
    if (panel === null || !interval) return null;
    const variables = Object.fromEntries([...scoped].map(([name, { value }]) => [name, [value].flat().map(String)]));
    const own = scoped.size > 0 ? { variables } : {};
    const { intervalMs, rateIntervalMs } = interval;
    const times = { interval: durationText(intervalMs), rate_interval: durationText(rateIntervalMs) };
    return { expr: '', ask: { panel, ref: refId, ...times, ...own } };
  };

/** Writes the query of an annotation as a reference to its place. @type {import('../model/annotations.js').WriteAnnotation} */
export const writeAnnotationReference = ({ place }, { interval: { intervalMs, rateIntervalMs } }) =>
  place === null
    ? null
    : {
        expr: '',
        ask: { annotation: place, interval: durationText(intervalMs), rate_interval: durationText(rateIntervalMs) },
      };

/**
 * The labels and values of shown results, which a visitor may filter by. Only these are requested.
 * @param {() => Iterable<{answer: any}>} shown
 * @returns {import('../components/filter_editor.js').Ask}
 */
export const suggestedFilters = (shown) => async (query) => {
  const found = new Set();
  for (const { answer } of shown()) {
    for (const row of Array.isArray(answer?.data?.result) ? answer.data.result : []) {
      const labels = objectOf(row?.metric);
      if (query.kind === 'label_values') found.add(textOf(labels[query.label]));
      else for (const name of Object.keys(labels)) if (name !== '__name__') found.add(name);
    }
  }
  return [...found].filter((text) => text !== '').sort();
};

/**
 * The name of a query in a snapshot: the same for every range and width.
 * @param {Record<string, any>} ask
 * @param {string} type
 */
export const snapshotKey = ({ panel, ref, annotation, variables }, type) =>
  annotation !== undefined
    ? `annotation:${annotation}:${type}`
    : [panel, ref, type, ...(variables ? [JSON.stringify(variables)] : [])].join(':');
