// The form of overrides: fields that a matcher finds, and the properties that differ for them.

import { h } from '../../chart/dom.js';
import { moved } from '../../model/edit_panel.js';
import { objectOf, objectsOf, textOf } from '../../model/limits.js';
import { control, iconButton, listButtons, nameInput, select } from './controls.js';
import { linksGroup } from './links.js';
import { mappingsGroup } from './mappings.js';
import { DEFAULTS, fieldOptionsOf } from './options/index.js';
import { thresholdsForm } from './thresholds.js';

/** @typedef {import('../../model/limits.js').Json} Json */
/** @typedef {import('./controls.js').Option} Option */
/** @typedef {import('./controls.js').Choice} Choice */

const PATH = 'fieldConfig.overrides';

/** @type {Choice[]} */
const MATCHERS = [['byName', 'Field with the name'], ['byRegexp', 'Fields whose name matches'],
  ['byType', 'Fields of the type'], ['byFrameRefID', 'Fields of the query']];
/** @type {Choice[]} */
const TYPES = [['number', 'Number'], ['string', 'Text'], ['time', 'Time'], ['boolean', 'Boolean']];

/**
 * Properties that an override may set, by their id.
 * @param {string} type of the panel
 * @param {Option[]} standard
 * @returns {Map<string, Option>}
 */
function propertiesOf(type, standard) {
  const options = [...standard.filter(({ path }) => !path.includes('.color.')), ...fieldOptionsOf(type)];
  return new Map(options.map((option) => {
    const id = option.path.slice(DEFAULTS.length);
    return [id, { ...option, when: undefined }];
  }));
}

/** Properties whose value is an object of their own. @type {Choice[]} */
const OTHERS = [['color', 'Colour'], ['thresholds', 'Thresholds'], ['mappings', 'Value mappings'],
  ['links', 'Data links'], ['custom.hideFrom', 'Hide']];
/** @type {Choice[]} */
const HIDDEN = [
  [{ legend: false, tooltip: false, viz: false }, 'Nothing'],
  [{ legend: false, tooltip: false, viz: true }, 'In the drawing'],
  [{ legend: true, tooltip: false, viz: false }, 'In the legend'],
  [{ legend: false, tooltip: true, viz: false }, 'In the tooltip'],
  [{ legend: true, tooltip: true, viz: true }, 'Everywhere'],
];

/**
 * @param {import('./draft.js').Draft} draft
 * @param {string} type
 * @param {Option[]} standard the options of fields that all kinds have
 * @returns {HTMLElement[]}
 */
export function overridesGroup(draft, type, standard) {
  const list = objectsOf(draft.get(PATH));
  const write = (/** @type {Json[]} */ next) => draft.setAt(PATH, next, { rebuild: true });
  const known = propertiesOf(type, standard);
  const choices = /** @type {Choice[]} */ ([...[...known].map(([id, { label }]) => [id, label]), ...OTHERS]);

  /** @param {Json} override @param {number} at */
  const entry = (override, at) => {
    const matcher = objectOf(override.matcher);
    const properties = objectsOf(override.properties);
    const what = `override ${at + 1}`;
    const path = (/** @type {(string | number)[]} */ ...rest) => ['fieldConfig', 'overrides', at, ...rest];
    const setProperties = (/** @type {Json[]} */ next) => draft.setAt(path('properties'), next, { rebuild: true });
    const used = new Set(properties.map(({ id }) => id));
    return h('li', { class: 'entry' },
      h('div', { class: 'entry-head' }, h('strong', { text: `Override ${at + 1}` }),
        listButtons(what, at, list.length, {
          move: (to) => write(moved(list, at, to)),
          remove: () => write(list.toSpliced(at, 1)),
        })),
      select(MATCHERS, matcher.id, { 'aria-label': `Matcher of ${what}`, 'data-focus': `matcher ${at}` },
        (id) => draft.setAt(path('matcher'), { ...matcher, id, options: id === 'byType' ? 'number' : '' },
          { rebuild: true })),
      matcherValue(draft, matcher, path('matcher', 'options'), what),
      properties.map((property, index) =>
        h('div', { class: 'property' },
          propertyControl(draft, known, property, path('properties', index, 'value')),
          iconButton('×', `Remove ${labelOf(choices, property.id)}`,
            () => setProperties(properties.toSpliced(index, 1))))),
      select([['', 'Add property…'], ...choices.filter(([id]) => !used.has(id))], '',
        { 'aria-label': `Add property to ${what}`, 'data-focus': `property ${at}` },
        (id) => id !== '' && setProperties([...properties, { id, value: initial(String(id)) }])));
  };
  return [
    h('ol', { class: 'entries' }, list.map(entry)),
    h('div', { class: 'row' }, h('button', {
      type: 'button', text: 'Add override', 'data-focus': 'add override',
      on: { click: () => write([...list, { matcher: { id: 'byName', options: '' }, properties: [] }]) },
    })),
  ];
}

/** @param {string} id */
function initial(id) {
  if (id === 'color') return { mode: 'fixed', fixedColor: 'blue' };
  if (id === 'custom.hideFrom') return { legend: false, tooltip: false, viz: true };
  return id === 'mappings' || id === 'links' ? [] : id === 'thresholds' ? { mode: 'absolute', steps: [] } : undefined;
}

/** @param {Choice[]} choices @param {unknown} id */
const labelOf = (choices, id) => choices.find(([one]) => one === id)?.[1] ?? textOf(id);

let count = 0;

/** @param {import('./draft.js').Draft} draft @param {Json} matcher @param {(string | number)[]} path
 *  @param {string} what */
function matcherValue(draft, matcher, path, what) {
  const label = `Value of the matcher of ${what}`;
  if (typeof matcher.options === 'object' && matcher.options !== null) {
    return h('p', { class: 'hint', text: 'This matcher has options that are edited as JSON.' });
  }
  if (matcher.id === 'byType') {
    return select(TYPES, matcher.options, { 'aria-label': label }, (value) => draft.setAt(path, value));
  }
  count += 1;
  return nameInput(draft.access(path), { id: `matcher-${count}`, 'aria-label': label },
    matcher.id === 'byRegexp' ? '/errors.*/' : matcher.id === 'byFrameRefID' ? 'A' : 'Name');
}

/** @param {import('./draft.js').Draft} draft @param {Map<string, Option>} known @param {Json} property
 *  @param {(string | number)[]} path */
function propertyControl(draft, known, { id, value }, path) {
  const access = draft.access(path);
  const option = known.get(textOf(id));
  if (option) return control({ ...option, path: path.join('.') }, access);
  const titled = (/** @type {string} */ title, /** @type {HTMLElement[]} */ content) =>
    h('div', { class: 'field', role: 'group', 'aria-label': title }, h('span', { class: 'title', text: title }),
      content);
  switch (id) {
    case 'thresholds':
      return titled('Thresholds', thresholdsForm(access));
    case 'mappings':
      return titled('Value mappings', mappingsGroup(access));
    case 'links':
      return titled('Data links', linksGroup(access));
    case 'color':
      return control({ path: path.join('.'), label: 'Colour', control: 'colour' }, {
        get: () => access.get()?.fixedColor,
        set: (next) => access.set({ ...access.get(), mode: 'fixed', fixedColor: next }),
      });
    case 'custom.hideFrom':
      return control({ path: path.join('.'), label: 'Hide', control: 'select', choices: HIDDEN }, access);
    default:
      return titled(textOf(id), [h('code', { text: JSON.stringify(value)?.slice(0, 200) ?? '' })]);
  }
}
