// The tab Link: the address of the cabinet's own page, for people with an account.

import { h } from '../../chart/dom.js';
import { copyButton } from '../copy.js';
import { checkbox } from '../form.js';
import { selectField } from './fields.js';

/** @typedef {import('./subject.js').Subject} Subject */

/** The dashboard and its panels, as options. @param {import('./subject.js').SharedDashboard} dashboard */
export const panelOptions = ({ panels }) => [
  { value: '', text: 'The dashboard' },
  ...panels.map(({ id, title }) => ({ value: id, text: `Panel: ${title}` })),
];

/** @param {Subject} subject */
export function linkTab({ dashboard, linkOf, range }) {
  const panel = dashboard && selectField('What is shown', panelOptions(dashboard), dashboard.panel);
  const relative = String(range.raw.from).includes('now') || String(range.raw.to).includes('now');
  const box = (/** @type {string} */ text, /** @type {boolean} */ checked) => {
    const node = checkbox(text, '', checked);
    return { node, input: /** @type {HTMLInputElement} */ (node.querySelector('input')) };
  };
  const absolute = box('Fix the time range, so that everybody sees the same data', false);
  const values = box('With the selected values of the variables', true);
  const link = h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Link' });
  const node = h(
    'div',
    { class: 'stack' },
    h('p', { class: 'hint', text: 'For members of the organisation: the page asks for a sign-in.' }),
    panel?.node,
    relative && absolute.node,
    dashboard && dashboard.variables.length > 0 && values.node,
    link,
    h(
      'div',
      { class: 'row' },
      copyButton(() => link.textContent ?? '', { label: 'Copy link', source: link, class: 'primary' }),
    ),
  );
  const show = () => {
    link.textContent = linkOf({
      absolute: absolute.input.checked,
      values: values.input.checked,
      panel: panel?.select.value ?? '',
    });
  };
  node.addEventListener('change', show);
  show();
  return node;
}
