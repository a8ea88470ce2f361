// The audit log of an organisation or of the server: a table with filters, and its entries as CSV.

import { h } from '../chart/dom.js';
import { actionText, actorText, auditCsv } from '../model/audit.js';
import { counted } from '../model/metrics.js';
import { paged, table, time } from './parts.js';

/**
 * @typedef {import('./parts.js').Part} Part
 * @typedef {import('../model/audit.js').AuditEntry} AuditEntry
 */

/**
 * Fills a card with the audit log below `path`, newest first.
 * @param {string} path
 * @param {[string, string][]} groups filters of the API, and their texts
 * @returns {(part: Part) => Promise<Node[]>}
 */
export function auditLog(path, groups) {
  let group = '';
  let person = '';
  return async (part) => {
    /** @type {AuditEntry[]} */
    let rows = [];
    const matching = () => rows.filter((row) => !person || actorText(row) === person);
    const actions = h(
      'select',
      {},
      h('option', { value: '', text: 'All actions' }),
      groups.map(([value, text]) => h('option', { value, text, selected: value === group })),
    );
    const people = h('select');
    const count = h('p', { class: 'hint', role: 'status' });
    const place = h('div');
    const fillPeople = () => {
      const names = [...new Set([...rows.map(actorText), ...(person ? [person] : [])])].sort();
      people.replaceChildren(
        h('option', { value: '', text: 'All people' }),
        ...names.map((text) => h('option', { value: text, text, selected: text === person })),
      );
    };
    const show = () => {
      const shown = matching();
      const some = shown.length < rows.length ? `${shown.length} of ` : '';
      count.textContent = `${some}${counted(rows.length, 'loaded entry', 'loaded entries')}`;
      place.replaceChildren(
        table(
          ['Time', 'Person', 'Action', 'Target', 'Details', 'Address'],
          shown.map((row) => [
            time(row.at),
            actorText(row),
            h('span', { title: row.action, text: actionText(row.action) }),
            row.target ?? '',
            row.meta.detail ?? '',
            row.ip ?? '',
          ]),
          'Audit log',
          'No entries match.',
        ),
      );
    };
    actions.addEventListener('change', async () => {
      group = actions.value;
      await part.reload();
      part.node.querySelector('select')?.focus();
    });
    people.addEventListener('change', () => {
      person = people.value;
      show();
    });
    const save = h('button', { type: 'button', text: 'Download CSV' });
    save.addEventListener('click', () => {
      const href = URL.createObjectURL(new Blob([auditCsv(matching())], { type: 'text/csv' }));
      h('a', { href, download: 'audit-log.csv' }).click();
      setTimeout(() => URL.revokeObjectURL(href), 1000);
    });
    const listed = await paged(
      part,
      path,
      (all) => {
        rows = all;
        fillPeople();
        show();
        return place;
      },
      { limit: '100', more: 'Load older entries', query: group ? { action: group } : {} },
    );
    return [
      h(
        'div',
        { class: 'row filters' },
        h('label', { class: 'row' }, h('span', { text: 'Action' }), actions),
        h('label', { class: 'row' }, h('span', { text: 'Person' }), people),
        h('div', { class: 'row end' }, count, save),
      ),
      ...listed,
    ];
  };
}
