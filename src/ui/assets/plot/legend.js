// The legend of a panel: names, or a table with calculations; a click hides or shows a series.

import { h } from '../chart/dom.js';
import { displayValue } from '../model/fields.js';
import { reduceField, reduceValues, reducerOf } from '../model/reduce.js';
import { display, formatUnit } from '../model/units.js';

/**
 * @typedef {import('../model/frame.js').Field} Field
 * @typedef {{key: string, name: string, color: string, field: Field, values: ArrayLike<any>, inLegend?: boolean}} Item
 * @typedef {{displayMode?: string, showLegend?: boolean, placement?: string, calcs?: string[], sortBy?: string,
 *   sortDesc?: boolean, width?: number, values?: string[]}} LegendOptions
 * @typedef {{hidden: Set<string>, change: () => void, light?: (key: string | null) => void}} LegendHost
 */

/** The most rows; a button shows the others. */
const ROWS_MAX = 60;

/** A line in the colour of a series. @param {string} color */
export function swatch(color) {
  const node = h('span', { class: 'swatch', 'aria-hidden': 'true' });
  node.style.backgroundColor = color;
  return node;
}

/** The text of a value in the unit of its field. @param {Field} field @param {any} value @param {string} [calc]
 *  the calculation that made it */
export function valueText(field, value, calc = '') {
  if (value === null || value === undefined) return field.config.noValue ?? '';
  if (typeof value === 'number' && ['count', 'distinctCount', 'changeCount'].includes(calc)) return String(value);
  if (typeof value === 'number' && calc === 'diffperc') return display(value, 'percent', 1);
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
  const { mappings, unit, decimals } = field.config;
  // If there are no mappings, the unit formats the text; the colour of a display is not needed.
  const plain = typeof value === 'number' && field.type === 'number' && !(mappings?.length > 0);
  const { prefix, text, suffix } = plain ? formatUnit(value, unit, decimals) : displayValue(field, value, formatUnit);
  return prefix + text + suffix;
}

/** Whether a legend is shown next to the plot. @param {LegendOptions} options */
export const legendPlace = ({ displayMode, showLegend, placement }) =>
  showLegend === false || displayMode === 'hidden' ? 'none' : placement === 'right' ? 'right' : 'bottom';

/**
 * @param {Item[]} items
 * @param {LegendOptions} options
 * @param {LegendHost & {memory: Map<string, any>}} host
 * @returns {HTMLElement | null}
 */
export function legendOf(items, options, host) {
  const shown = items.filter(({ inLegend }) => inLegend !== false);
  if (legendPlace(options) === 'none' || shown.length === 0) return null;
  const calcs = (Array.isArray(options.calcs) ? options.calcs : []).filter((id) => reducerOf(id)).slice(0, 8);
  if (options.displayMode === 'table') return tableLegend(shown, calcs, options, host);
  return calcs.length > 0 ? listLegend(shown, calcs, host) : keptLegend(shown, host);
}

/**
 * A list of names only: that of the last drawing if it has the same names.
 * @param {Item[]} items
 * @param {LegendHost & {memory: Map<string, any>}} host
 */
function keptLegend(items, host) {
  const names = items.map(({ key, name, color }) => `${key}\n${name}\n${color}`).join('\n\n');
  const known = host.memory.get('legend');
  if (known?.names === names) {
    known.host = host;
    return known.node;
  }
  /** @type {{names: string, host: typeof host, node: HTMLElement | null}} */
  const kept = { names, host, node: null };
  kept.node = listLegend(items, [], {
    hidden: host.hidden,
    memory: host.memory,
    change: () => kept.host.change(),
    light: (key) => kept.host.light?.(key),
  });
  host.memory.set('legend', kept);
  return kept.node;
}

/** @param {Item} item @param {Item[]} all @param {LegendHost} host */
function button(item, all, host) {
  return h(
    'button',
    {
      type: 'button',
      class: 'legend-name',
      'data-focus': `legend ${item.key}`,
      title: item.name,
      'aria-pressed': String(!host.hidden.has(item.key)),
      on: {
        click: (/** @type {MouseEvent} */ event) => {
          const only = event.ctrlKey || event.metaKey || event.shiftKey;
          const others = all.filter(({ key }) => key !== item.key).map(({ key }) => key);
          const alone = !host.hidden.has(item.key) && others.every((key) => host.hidden.has(key));
          if (only) {
            host.hidden.clear();
            if (!alone) for (const key of others) host.hidden.add(key);
          } else if (!host.hidden.delete(item.key)) host.hidden.add(item.key);
          host.change();
        },
        pointerenter: () => host.light?.(item.key),
        pointerleave: () => host.light?.(null),
        focus: () => host.light?.(item.key),
        blur: () => host.light?.(null),
      },
    },
    swatch(item.color),
    h('span', { text: item.name }),
  );
}

/** @param {Item} item @param {string[]} calcs */
const resultsOf = (item, calcs) => {
  const results = reduceValues(item.values, calcs, item.field.config.nullValueMode);
  return calcs.map((id) => results.get(id) ?? null);
};

/** @param {Item[]} items @param {LegendHost & {memory: Map<string, any>}} host @param {() => void} unfold
 *  @returns {{rows: Item[], more: HTMLElement | null}} */
function cut(items, host, unfold) {
  const all = host.memory.get('unfolded') === true;
  const rows = all ? items : items.slice(0, ROWS_MAX);
  const more =
    rows.length < items.length &&
    h('button', { type: 'button', class: 'plain', text: `${items.length - rows.length} more`, on: { click: unfold } });
  return { rows, more: more || null };
}

/** @param {Item[]} items @param {string[]} calcs @param {LegendHost & {memory: Map<string, any>}} host */
function listLegend(items, calcs, host) {
  const node = h('div', { class: 'legend-list', role: 'group', 'aria-label': 'Legend' });
  const fill = () => {
    const { rows, more } = cut(items, host, () => {
      host.memory.set('unfolded', true);
      fill();
    });
    node.replaceChildren(
      ...rows.map((item) =>
        h(
          'span',
          { class: 'legend-item' },
          button(item, items, host),
          resultsOf(item, calcs).map((value, at) =>
            h(
              'span',
              { class: 'legend-value' },
              h('small', { text: `${reducerOf(calcs[at])?.name}: ` }),
              valueText(item.field, value, calcs[at]),
            ),
          ),
        ),
      ),
      ...(more ? [more] : []),
    );
  };
  fill();
  return node;
}

/** @param {Item[]} items @param {string[]} calcs @param {LegendOptions} options
 *  @param {LegendHost & {memory: Map<string, any>}} host */
function tableLegend(items, calcs, options, host) {
  const names = ['Name', ...calcs.map((id) => reducerOf(id)?.name ?? id)];
  const sort = host.memory.get('legendSort') ?? {
    by: sortColumn(options.sortBy, calcs, names),
    desc: options.sortDesc !== false,
  };
  const body = h('tbody');
  const foot = h('div');
  const results = new Map(items.map((item) => [item, resultsOf(item, calcs)]));
  const heads = names.map((name, column) =>
    h(
      'th',
      { scope: 'col', class: column > 0 ? 'value' : '' },
      h('button', {
        type: 'button',
        text: name,
        'data-focus': `head ${column}`,
        on: {
          click: () => {
            sort.desc = sort.by === column ? !sort.desc : column > 0;
            sort.by = column;
            host.memory.set('legendSort', sort);
            fill();
          },
        },
      }),
    ),
  );
  const fill = () => {
    const ordered =
      sort.by < 0
        ? items
        : [...items].sort((left, right) => {
            const order =
              sort.by === 0
                ? left.name.localeCompare(right.name)
                : Number(results.get(left)?.[sort.by - 1] ?? -Infinity) -
                  Number(results.get(right)?.[sort.by - 1] ?? -Infinity);
            return sort.desc ? -order : order;
          });
    const { rows, more } = cut(ordered, host, () => {
      host.memory.set('unfolded', true);
      fill();
    });
    heads.forEach((head, column) => {
      if (column === sort.by) head.setAttribute('aria-sort', sort.desc ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    body.replaceChildren(
      ...rows.map((item) =>
        h(
          'tr',
          {},
          h('td', {}, button(item, items, host)),
          (results.get(item) ?? []).map((value, at) =>
            h('td', { class: 'value', text: valueText(item.field, value, calcs[at]) }),
          ),
        ),
      ),
    );
    foot.replaceChildren(...(more ? [more] : []));
  };
  fill();
  return h(
    'div',
    { class: 'legend-table', role: 'group', 'aria-label': 'Legend', tabindex: '0' },
    h('table', {}, h('thead', {}, h('tr', {}, heads)), body),
    foot,
  );
}

/** The column that a dashboard sorts by: a calculation's name or id. @param {string | undefined} sortBy
 *  @param {string[]} calcs @param {string[]} names @returns {number} -1 for none */
function sortColumn(sortBy, calcs, names) {
  if (!sortBy) return -1;
  const at = names.indexOf(sortBy);
  return at >= 0 ? at : calcs.indexOf(sortBy) + 1 || -1;
}

export { reduceField };
