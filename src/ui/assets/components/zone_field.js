// The choice of a time zone: the browser's, UTC, or one by its name.

import { h } from '../chart/dom.js';

/**
 * A labelled choice.
 * @param {string} zone the present one: `browser`, `utc` or an IANA name
 * @param {(zone: string) => void} chosen
 */
export function zoneField(zone, chosen) {
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const select = h(
    'select',
    { id: 'time-zone', on: { change: () => chosen(select.value) } },
    h('option', { value: 'browser', text: `Browser (${local})` }),
    h('option', { value: 'utc', text: 'UTC' }),
    Intl.supportedValuesOf('timeZone').map((name) => h('option', { value: name, text: name.replaceAll('_', ' ') })),
  );
  if (![...select.options].some(({ value }) => value === zone)) select.append(h('option', { value: zone, text: zone }));
  select.value = zone;
  return h('div', { class: 'field' }, h('label', { for: 'time-zone', text: 'Time zone' }), select);
}
