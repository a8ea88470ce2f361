// The table panel: sorting, colours, bars, links and a footer. Unknown kinds are tables, too.

import { h } from '../chart/dom.js';
import { displayValue } from '../model/fields.js';
import { reduceField, reducerOf } from '../model/reduce.js';
import { objectOf } from '../model/limits.js';
import { valueText } from '../plot/legend.js';
import { formatIn, inkOn, textColor } from '../plot/values.js';

/**
 * @typedef {import('./kinds.js').View} View
 * @typedef {import('../model/frame.js').Frame} Frame
 * @typedef {import('../model/frame.js').Field} Field
 */

/** Rows that are shown at first, and more with each click. */
const ROWS = 100;
/** Most columns. */
const COLUMNS_MAX = 60;


/** The look of a column's cells, in the words of old and current dashboards. @param {Field} field */
const lookOf = ({ config }) => {
  const custom = objectOf(config.custom);
  return String(objectOf(custom.cellOptions).type ?? custom.displayMode ?? 'auto');
};

/** One frame of the last values of series, where no frame is a table. @param {Frame[]} frames @returns {Frame[]} */
function combined(frames) {
  if (frames.length < 2 || frames.some(({ kind, fields }) => kind !== 'series' || fields.length !== 2)) return frames;
  const names = frames.map(({ fields }) => fields[1].config.displayName || fields[1].name);
  const [, first] = frames[0].fields;
  return [
    {
      refId: '',
      name: 'Last values',
      length: frames.length,
      fields: [
        { name: 'Series', type: 'string', values: names, config: { displayName: 'Series' } },
        {
          ...first,
          name: 'Last',
          labels: undefined,
          config: { ...first.config, displayName: 'Last *' },
          values: frames.map(({ fields }) => reduceField(fields[1], 'lastNotNull')),
        },
      ],
    },
    ...frames,
  ];
}

/**
 * @param {HTMLElement} box
 * @param {View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { memory } = view;
  const frames = combined(view.frames.filter(({ fields }) => fields.length > 0));
  if (frames.length === 0 || frames.every(({ length }) => length === 0)) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const chosen = Math.min(Number(memory.get('frame') ?? 0), frames.length - 1);
  const scrolled = box.querySelector('.table-scroll')?.scrollTop ?? 0;
  const place = h('div', { class: 'table-box' });
  const show = (/** @type {number} */ index) => {
    memory.set('frame', index);
    place.replaceChildren(tableOf(frames[index], view, () => show(index)));
  };
  const picker =
    frames.length > 1 &&
    h(
      'select',
      {
        'aria-label': 'Frame',
        class: 'frame-picker',
        on: {
          change: (/** @type {Event} */ event) => show(Number(/** @type {HTMLSelectElement} */ (event.target).value)),
        },
      },
      frames.slice(0, 500).map((frame, index) =>
        h('option', {
          value: String(index),
          selected: index === chosen,
          text: frame.name || frame.refId || `Frame ${index + 1}`,
        }),
      ),
    );
  show(chosen);
  box.replaceChildren(place, ...(picker ? [picker] : []));
  const scroll = box.querySelector('.table-scroll');
  if (scroll) scroll.scrollTop = scrolled;
  return {};
}

/**
 * @param {Frame} frame
 * @param {View} view
 * @param {() => void} again draws the frame once more
 */
function tableOf(frame, view, again) {
  const { memory, panel, replace, theme } = view;
  const columns = frame.fields
    .filter(
      ({ config }) => objectOf(config.custom).hidden !== true && objectOf(objectOf(config.custom).hideFrom).viz !== true,
    )
    .slice(0, COLUMNS_MAX);
  const name = (/** @type {Field} */ field) => field.config.displayName || field.name;
  const sort = memory.get('sort') ?? savedSort(panel.options.sortBy, frame, name);
  const by = columns.find((field) => name(field) === sort?.by);
  const rows = Array.from({ length: frame.length }, (_, row) => row);
  if (by) rows.sort((left, right) => compare(by.values[left], by.values[right], sort.desc));
  const limit = Number(memory.get('rows') ?? ROWS);
  const heads = columns.map((field) =>
    h(
      'th',
      {
        scope: 'col',
        class: alignOf(field),
        'aria-sort': by === field ? (sort.desc ? 'descending' : 'ascending') : null,
      },
      h('button', {
        type: 'button',
        text: name(field),
        'data-focus': `column ${name(field)}`,
        on: {
          click: () => {
            const same = by === field;
            if (same && sort.desc) memory.set('sort', { by: null, desc: false });
            else memory.set('sort', { by: name(field), desc: same });
            again();
          },
        },
      }),
    ),
  );
  const footer = objectOf(panel.options.footer);
  const calc = Array.isArray(footer.reducer) ? String(footer.reducer[0] ?? '') : '';
  const foot =
    footer.show === true &&
    reducerOf(calc) &&
    h(
      'tfoot',
      {},
      h(
        'tr',
        {},
        columns.map((field, index) => {
          const wanted =
            !Array.isArray(footer.fields) || footer.fields.length === 0 || footer.fields.includes(name(field));
          const text =
            field.type === 'number' && wanted
              ? valueText(field, reduceField(field, calc), calc)
              : index === 0
                ? (reducerOf(calc)?.name ?? '')
                : '';
          return h('td', { class: alignOf(field), text });
        }),
      ),
    );
  const more =
    rows.length > limit &&
    h('button', {
      type: 'button',
      class: 'plain',
      text: `Show more of ${rows.length} rows`,
      on: {
        click: () => {
          memory.set('rows', limit + 5 * ROWS);
          again();
        },
      },
    });
  return h(
    'div',
    { class: 'table-scroll', tabindex: '0', role: 'group', 'aria-label': 'Table' },
    h(
      'table',
      {},
      panel.options.showHeader === false
        ? h('thead', { class: 'unseen' }, h('tr', {}, heads))
        : h('thead', {}, h('tr', {}, heads)),
      h(
        'tbody',
        {},
        rows.slice(0, limit).map((row) =>
          h(
            'tr',
            {},
            columns.map((field) => cell(field, row, frame, view, theme, replace)),
          ),
        ),
      ),
      foot || null,
    ),
    more || null,
  );
}

/** @param {Field} field */
function alignOf(field) {
  const align = objectOf(field.config.custom).align;
  if (['left', 'center', 'right'].includes(align)) return `align-${align}`;
  return field.type === 'number' ? 'align-right' : 'align-left';
}

/** @param {any} left @param {any} right @param {boolean} desc */
function compare(left, right, desc) {
  const none = (/** @type {any} */ value) => value === null || value === undefined || Number.isNaN(value);
  if (none(left) || none(right)) return Number(none(left)) - Number(none(right));
  const order =
    typeof left === 'number' && typeof right === 'number'
      ? left - right
      : String(left).localeCompare(String(right), 'en', { numeric: true });
  return desc ? -order : order;
}

/** @param {unknown} sortBy @param {Frame} frame @param {(field: Field) => string} name */
function savedSort(sortBy, frame, name) {
  const first = Array.isArray(sortBy) ? objectOf(sortBy[0]) : {};
  const field = Number.isInteger(first.column) ? frame.fields[first.column] : undefined;
  const by = field ? name(field) : first.displayName;
  return typeof by === 'string' ? { by, desc: first.desc === true } : null;
}

/**
 * @param {Field} field
 * @param {number} row
 * @param {Frame} frame
 * @param {View} view
 * @param {'light' | 'dark'} theme
 * @param {(text: string) => string} replace
 */
function cell(field, row, frame, view, theme, replace) {
  const value = field.values[row];
  const known = typeof value === 'number' && Number.isNaN(value) ? null : value;
  const shown = displayValue(field, known, formatIn(view.timeZone), { theme });
  const text = `${shown.prefix}${shown.text}${shown.suffix}`;
  const [first] = Array.isArray(field.config.links) ? field.config.links : [];
  const link = first
    ? view.link(first, {
        field: { name: field.name, labels: field.labels },
        value: { text, raw: value, numeric: typeof value === 'number' ? value : NaN },
        data: {
          refId: frame.refId,
          fields: frame.fields.map((one) => ({
            name: one.config.displayName || one.name,
            text: String(one.values[row] ?? ''),
            raw: one.values[row],
            numeric: one.values[row],
          })),
        },
      })
    : null;
  const inner = link?.href
    ? h('a', {
        href: link.href,
        text: text || link.text,
        title: link.text,
        ...(link.newTab ? { target: '_blank', rel: 'noopener noreferrer' } : {}),
      })
    : text;
  const look = lookOf(field);
  const node = h('td', { class: alignOf(field), title: text.length > 40 ? text : null }, inner);
  if (look.startsWith('color-background')) {
    node.style.backgroundColor = shown.color;
    node.style.color = inkOn(shown.color);
  } else if (look === 'color-text') node.style.color = textColor(shown.color, theme);
  else if (/gauge|lcd|basic/.test(look) && typeof value === 'number') {
    const { min, max } = field.range ?? { min: 0, max: 100 };
    const part = max > min ? Math.min(1, Math.max(0, (value - min) / (max - min))) : 0;
    node.classList.add('cell-gauge');
    node.style.setProperty('--part', `${(part * 100).toFixed(1)}%`);
    node.style.setProperty('--colour', shown.color);
  }
  return node;
}
