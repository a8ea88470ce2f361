// The options of the panel: its kind, what the kind draws, its fields, and a search over all.

import { h } from '../../chart/dom.js';
import { switchKind } from '../../model/edit_panel.js';
import { COLOR_MODES } from '../../model/color.js';
import { textOf } from '../../model/limits.js';
import { control, select } from './controls.js';
import { linksGroup } from './links.js';
import { mappingsGroup } from './mappings.js';
import { DEFAULTS, KIND_OPTIONS, kindOptions } from './options/index.js';
import { overridesGroup } from './overrides.js';
import { thresholdsGroup } from './thresholds.js';

/** @typedef {import('./controls.js').Option} Option */
/** @typedef {import('./controls.js').Choice} Choice */

/** @type {Record<string, string>} */
const MODE_NAMES = {
  fixed: 'One colour',
  shades: 'Shades of one colour',
  thresholds: 'By thresholds',
  'palette-classic': 'Palette, by series',
  'palette-classic-by-name': 'Palette, by name',
};

/** @type {Choice[]} */
const MODES = COLOR_MODES.map((mode) => [mode, MODE_NAMES[mode]
  ?? `Scale ${mode.replace('continuous-', '').replace(/(?<=[a-z])(?=[A-Z])/g, ' to ')}`]);
const oneColour = (/** @type {(path: string) => any} */ get) =>
  ['fixed', 'shades'].includes(get(`${DEFAULTS}color.mode`));

/** Options of fields that all kinds have. @type {Option[]} */
const STANDARD = [
  { path: `${DEFAULTS}unit`, label: 'Unit', control: 'unit' },
  { path: `${DEFAULTS}decimals`, label: 'Decimals', control: 'number', min: 0, max: 20, step: 1 },
  { path: `${DEFAULTS}min`, label: 'Minimum', control: 'number' },
  { path: `${DEFAULTS}max`, label: 'Maximum', control: 'number' },
  {
    path: `${DEFAULTS}displayName`, label: 'Display name', control: 'text', placeholder: 'Auto',
    hint: 'May use ${__field.labels.job}.',
  },
  { path: `${DEFAULTS}noValue`, label: 'Text without a value', control: 'text' },
  {
    path: `${DEFAULTS}color.mode`, label: 'Colour scheme', control: 'select',
    choices: [[undefined, 'Auto'], ...MODES],
  },
  { path: `${DEFAULTS}color.fixedColor`, label: 'Colour', control: 'colour', when: oneColour },
  {
    path: `${DEFAULTS}color.seriesBy`, label: 'Series have the colour of', control: 'select', default: 'last',
    choices: [['last', 'Their last value'], ['min', 'Their lowest value'], ['max', 'Their highest value']],
    when: (get) => /^(?:thresholds|continuous)/.test(get(`${DEFAULTS}color.mode`) ?? ''),
  },
];

/**
 * @param {import('./draft.js').Draft} draft
 * @param {{variables: string[], remembered: Map<string, unknown>, open: Map<string, boolean>,
 *   search: {words: string}}} state what outlives a rebuild: options of other kinds, open groups, and
 *   the words of the search
 * @returns {HTMLElement[]}
 */
export function optionsPane(draft, state) {
  const type = textOf(draft.raw.type);
  const kind = kindOptions(type);
  const kinds = [...KIND_OPTIONS].map(([id, { name }]) => /** @type {Choice} */ ([id, name]));
  const chooser = h(
    'div',
    { class: 'field kind-chooser' },
    h('label', { for: 'panel-kind', text: 'Kind of panel' }),
    select(kinds, type, { id: 'panel-kind', 'data-focus': 'kind' }, (next) => {
      const made = switchKind(draft.raw, String(next), state.remembered);
      state.remembered = made.remembered;
      draft.set(made.raw, { rebuild: true });
    }),
    !KIND_OPTIONS.has(type) && h('p', { class: 'hint', text: 'This kind is shown as a table.' }),
  );
  const get = (/** @type {string} */ path) => draft.get(path);
  const controls = (/** @type {Option[]} */ options) =>
    options.filter(({ when }) => when?.(get) ?? true).map((option) => control(option, draft.access(option.path)));
  /** @param {string} title @param {(HTMLElement | null)[]} content @param {boolean} opened */
  const group = (title, content, opened) => {
    const node = h('details', { class: 'group', 'data-title': title }, h('summary', { text: title }),
      h('div', { class: 'stack tight' }, content));
    node.open = state.open.get(title) ?? opened;
    node.addEventListener('toggle', () => {
      if (state.search.words === '') state.open.set(title, node.open);
    });
    return node;
  };
  const repeats = /** @type {Choice[]} */ ([[undefined, 'Off'], ...state.variables.map((name) => [name, `$${name}`])]);
  const repeat = textOf(draft.raw.repeat) || undefined;
  /** @type {Option[]} */
  const general = [
    { path: 'title', label: 'Title', control: 'text' },
    { path: 'description', label: 'Description', control: 'lines' },
    { path: 'transparent', label: 'Transparent background', control: 'switch', default: false },
    { path: 'repeat', label: 'Repeat for each value of', control: 'select', choices: repeats },
    ...(repeat ? /** @type {Option[]} */ ([
      {
        path: 'repeatDirection', label: 'Direction', control: 'select', default: 'h',
        choices: [['h', 'Horizontal'], ['v', 'Vertical']],
      },
      { path: 'maxPerRow', label: 'Most in a row', control: 'number', min: 1, max: 24, step: 1, default: 4 },
    ]) : []),
  ];
  const groups = [
    group('Panel', controls(general), true),
    ...kind.groups.map(({ title, options }) =>
      group(title, controls(options), !['Legend', 'Tooltip', 'Axis'].includes(title))),
    ...(kind.plain ? [] : [
      group('Fields', controls(STANDARD), true),
      group('Thresholds', thresholdsGroup(draft), false),
      group('Value mappings', mappingsGroup(draft.access(`${DEFAULTS}mappings`)), false),
      group('Data links', linksGroup(draft.access(`${DEFAULTS}links`)), false),
      group('Overrides', overridesGroup(draft, type, STANDARD), false),
    ]),
    group('Panel links', linksGroup(draft.access('links')), false),
  ];
  const none = h('p', { class: 'hint', role: 'status' });
  const search = h('input', {
    type: 'search', placeholder: 'Search options', 'aria-label': 'Search options', autocomplete: 'off',
    'data-focus': 'search options',
  });
  search.value = state.search.words;
  const filter = () => {
    const words = search.value.trim().toLowerCase();
    state.search.words = search.value.trim();
    let hits = 0;
    for (const node of groups) {
      const title = (node.dataset.title ?? '').toLowerCase();
      let inside = 0;
      for (const field of node.querySelectorAll('.field')) {
        const label = (field.querySelector('label')?.textContent ?? '').toLowerCase();
        const hit = words === '' || title.includes(words) || label.includes(words);
        /** @type {HTMLElement} */ (field).hidden = !hit;
        inside += Number(hit);
      }
      node.hidden = words !== '' && inside === 0 && !title.includes(words);
      if (words !== '') node.open = !node.hidden;
      else node.open = state.open.get(node.dataset.title ?? '') ?? node.open;
      hits += Number(!node.hidden);
    }
    none.textContent = hits === 0 ? 'No option matches.' : '';
  };
  search.addEventListener('input', filter);
  if (state.search.words !== '') filter();
  return [chooser, h('div', { class: 'field' }, search), none, ...groups];
}
