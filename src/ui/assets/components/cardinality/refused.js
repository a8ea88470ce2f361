// The list of refused samples of an organisation, with reasons.

import { h } from '../../chart/dom.js';
import { orgPath, send } from '../../client/server.js';
import { errorText } from '../../model/error_text.js';
import { counted } from '../../model/metrics.js';
import { reasonOf } from '../../model/refusals.js';
import { table, time } from '../parts.js';

/**
 * The list as a node, which fills itself.
 * @param {{org: string, fail: (error: unknown) => boolean}} options `fail` returns whether it
 *   handled the error
 */
export function refusedSamples({ org, fail }) {
  const body = h('div', { class: 'stack' }, h('p', { class: 'hint', role: 'status', text: 'Loading…' }));
  const node = h(
    'section',
    { class: 'card part', 'aria-labelledby': 'refused-title' },
    h('h2', { id: 'refused-title', text: 'Refused samples' }),
    h('p', {
      class: 'hint',
      text: 'The newest 100 refusals since the server started. Equal refusals of one series are counted together.',
    }),
    body,
  );
  const load = async () => {
    const { data, refused } = await send('GET', `${orgPath(org)}/ingest/rejects`);
    const totals = Object.entries(/** @type {Record<string, number>} */ (refused)).sort(
      ([, left], [, right]) => right - left,
    );
    body.replaceChildren();
    if (totals.length > 0)
      body.append(
        h(
          'ul',
          { class: 'totals', 'aria-label': 'Samples by reason' },
          totals.map(([code, count]) =>
            h('li', {}, h('strong', { text: counted(count, 'sample') }), h('span', { text: reasonOf(code) })),
          ),
        ),
      );
    body.append(
      table(
        ['Time', 'Reason', 'Series', 'Times', 'Sender'],
        /** @type {import('../../model/refusals.js').Refusal[]} */ (data).map((row) => [
          time(row.at),
          [h('strong', { text: reasonOf(row.code) }), h('p', { class: 'hint', text: row.reason })],
          row.series ? h('code', { text: row.series }) : 'The whole request',
          h('span', { class: 'number', text: row.count.toLocaleString('en') }),
          row.sender.type === 'api_key' ? `Key ${row.sender.name ?? row.sender.id}` : 'A member',
        ]),
        'Table of refused samples',
        'No samples were refused.',
      ),
    );
  };
  load().catch((error) => {
    if (!fail(error)) body.replaceChildren(h('p', { class: 'alert', role: 'alert', text: errorText(error) }));
  });
  return node;
}
