// The editor of a dashboard's variables, with a preview of their values.

import { h } from '../chart/dom.js';
import { variableReader } from '../client/variables.js';
import { moved, rootOf } from '../model/edit_panel.js';
import {
  definitionOf, duplicateOf, newVariable, storedVariables, usesOf, VARIABLE_KINDS, variableProblems,
} from '../model/edit_variable.js';
import { errorText } from '../model/error_text.js';
import { listOf, objectOf, sameJson, textOf } from '../model/limits.js';
import { readDashboard } from '../model/dashboard.js';
import { resolveVariables } from '../model/variable_answers.js';
import { textButton } from './buttons.js';
import { confirmed } from './dialog.js';
import { listButtons, select } from './panel_editor/controls.js';
import { variableForm } from './variable_editor/form.js';

/** @typedef {import('../model/limits.js').Json} Json */

/** Values of the preview. */
const PREVIEW_MAX = 100;
/** The pause after an edit before values are asked, in milliseconds. */
const PAUSE_MS = 400;

/**
 * Fills `host` with the editor of the variables.
 * @param {{document: any, org: string, host: HTMLElement, range: import('../model/time.js').Range,
 *   apply: (list: unknown[]) => void, close: () => void}} options `document` is the stored dashboard;
 *   `apply` gets its whole `templating.list`
 * @returns {{destroy: () => void}} `destroy` ends the listeners of the editor
 */
export function openVariableEditor({ document: stored, org, host, range, apply, close }) {
  const root = rootOf(stored);
  // Entries that are no objects are kept behind the others.
  const unseen = listOf(objectOf(root.templating).list).filter((entry) => !storedVariables(root).includes(entry));
  let list = structuredClone(storedVariables(root));
  let saved = list;
  let chosen = 0;
  let timer = 0;
  let turn = 0;
  const dirty = () => !sameJson(list, saved);

  const heading = h('h2', { class: 'editor-title', tabindex: '-1', text: 'Variables' });
  const status = h('span', { class: 'hint', role: 'status' });
  const use = textButton('Apply', () => {
    apply([...structuredClone(list), ...unseen]);
    saved = list;
    show();
    status.textContent = 'Applied.';
    heading.focus({ preventScroll: true });
  }, { class: 'primary' });
  const discard = textButton('Discard', leave);
  const problems = h('ul', { class: 'problems', role: 'status', 'aria-label': 'Problems' });
  const entries = h('ol', { class: 'variable-list' });
  const form = h('div', { class: 'variable-form' });
  const values = h('div', { class: 'stack tight' });
  const side = h('div', { class: 'card' }, form, values);
  const node = h('section', { class: 'variable-editor', 'aria-label': 'Variable editor' },
    h('div', { class: 'editor-head' }, textButton('← Back to dashboard', leave, { class: 'plain' }), heading, status,
      h('div', { class: 'row' }, discard, use)),
    problems,
    h('div', { class: 'card' }, entries,
      h('div', { class: 'field' }, select([['', 'Add variable…'], ...VARIABLE_KINDS], '',
        { 'aria-label': 'Add variable', 'data-focus': 'add variable' }, add))),
    side);

  async function leave() {
    const sure = !dirty() || (await confirmed({
      heading: 'Discard the changes?',
      loss: 'The changes of the variables since the last Apply will be lost.',
      action: 'Discard changes',
    }));
    if (sure) close();
  }

  /** @param {unknown} type */
  function add(type) {
    if (type === '') return;
    list = [...list, newVariable(String(type), list)];
    chosen = list.length - 1;
    rebuild();
    form.querySelector('input')?.select();
    const chooser = node.querySelector('[data-focus="add variable"]');
    if (chooser instanceof HTMLSelectElement) chooser.value = '0';
  }

  /** @param {number} at */
  async function remove(at) {
    const name = textOf(list[at].name);
    const { panels, variables } = usesOf({ ...root, templating: { list } }, name);
    const users = [
      ...(panels.length > 0 ? [`Panels that use it: ${shortened(panels)}.`] : []),
      ...(variables.length > 0 ? [`Variables that use it: ${shortened(variables)}.`] : []),
    ];
    if (users.length > 0) {
      const sure = await confirmed({
        heading: `Remove $${name}?`, action: 'Remove variable',
        loss: `${users.join(' ')} Their queries keep the text $${name}.`,
      });
      if (!sure) return;
    }
    list = list.toSpliced(at, 1);
    chosen = Math.max(0, Math.min(chosen > at ? chosen - 1 : chosen, list.length - 1));
    rebuild();
  }

  function fillList() {
    entries.replaceChildren(...list.map((variable, at) => {
      const kind = VARIABLE_KINDS.find(([id]) => id === textOf(variable.type, 'query'))?.[1] ?? variable.type;
      const name = textOf(variable.name) || 'Without a name';
      return h('li', {},
        h('button', {
          type: 'button', class: 'variable-choice', 'aria-current': at === chosen ? 'true' : null,
          'data-focus': `variable ${at}`,
          on: {
            click: () => {
              chosen = at;
              rebuild();
            },
          },
        }, h('strong', { text: name }),
        h('span', { text: [kind, definitionOf(variable)].filter(Boolean).join(' · ') })),
        listButtons(name, at, list.length, {
          move: (to) => {
            const current = list[chosen];
            list = moved(list, at, to);
            chosen = list.indexOf(current);
            rebuild();
          },
          copy: () => {
            list = list.toSpliced(at + 1, 0, duplicateOf(variable, list));
            chosen = at + 1;
            rebuild();
          },
          remove: () => remove(at),
        }));
    }));
    if (list.length > 0) return;
    entries.replaceChildren(h('li', { class: 'hint', text: 'This dashboard has no variables.' }));
  }

  /** Makes the list and the form again; the focus stays where it was. */
  function rebuild() {
    const active = document.activeElement;
    const focus = active instanceof HTMLElement && node.contains(active) ? active.dataset.focus : undefined;
    fillList();
    side.hidden = list.length === 0;
    form.replaceChildren(...(list.length === 0 ? [] : variableForm({
      get: () => list[chosen],
      set: (next, again = false) => {
        list = list.with(chosen, next);
        if (again) rebuild();
        else {
          fillList();
          show();
        }
      },
    })));
    show();
    const again = focus && node.querySelector(`[data-focus="${CSS.escape(focus)}"]:not(:disabled)`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
    else if (document.activeElement === document.body) heading.focus({ preventScroll: true });
  }

  function show() {
    const found = variableProblems(root, list);
    problems.replaceChildren(...found.slice(0, 10).map(({ text }) => h('li', { text })));
    discard.disabled = !dirty();
    use.disabled = !dirty() || found.some(({ blocks }) => blocks);
    status.textContent = dirty() ? 'Not applied yet' : '';
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE_MS);
  }

  /** Asks the values as the dashboard does: with the default values of the other variables. */
  async function preview() {
    const mine = (turn += 1);
    const variable = list[chosen];
    if (!variable || textOf(variable.name) === '') return values.replaceChildren();
    try {
      const { dashboard } = readDashboard({ title: textOf(root.title), panels: [], templating: { list } });
      const { resolved } = await resolveVariables(dashboard.variables, new Map(), {
        ask: variableReader(org, range),
        context: { range, dashboard: { title: dashboard.title, uid: textOf(root.uid) } },
      });
      if (mine !== turn) return;
      const found = resolved.get(textOf(variable.name));
      if (found?.problem) throw found.problem;
      showValues(found?.options ?? [], textOf(variable.type));
    } catch (error) {
      if (mine === turn) values.replaceChildren(h('p', { class: 'alert', role: 'alert', text: errorText(error) }));
    }
  }

  /** @param {{text: string, value: string}[]} options @param {string} type */
  function showValues(options, type) {
    if (type === 'adhoc') return values.replaceChildren();
    values.replaceChildren(
      h('h3', { text: options.length === 1 ? '1 value' : `${options.length} values` }),
      h('ul', { class: 'variable-values', tabindex: '0', 'aria-label': 'Values' },
        options.slice(0, PREVIEW_MAX).map(({ text, value }) =>
          h('li', { text: text === value || value === '$__all' ? text || '(empty)' : `${text} : ${value}` }))),
      h('p', {
        class: 'hint',
        text: options.length > PREVIEW_MAX ? `The first ${PREVIEW_MAX} are shown.`
          : options.length === 0 ? 'No value: the query finds nothing in this time range.' : '',
      }),
    );
  }

  const keys = (/** @type {KeyboardEvent} */ event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== 'checkbox';
    if (event.key !== 'Escape' || event.defaultPrevented || dirty() || typing) return;
    if (document.querySelector('dialog[open]')) return;
    event.preventDefault();
    close();
  };
  document.addEventListener('keydown', keys);
  rebuild();
  host.replaceChildren(node);
  heading.focus({ preventScroll: true });
  return {
    destroy() {
      turn += 1;
      clearTimeout(timer);
      document.removeEventListener('keydown', keys);
    },
  };
}

/** @param {string[]} names */
function shortened(names) {
  const first = names.slice(0, 5).join(', ');
  return names.length > 5 ? `${first} and ${names.length - 5} more` : first;
}
