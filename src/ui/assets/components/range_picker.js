// The time range and the refresh interval of the explore page.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { recall, remember } from '../model/storage.js';

const RANGES = ['15m', '1h', '3h', '6h', '1d', '7d', '30d'];
const REFRESHES = [
  ['0', 'Refresh off'],
  ['5', 'Every 5 s'],
  ['15', 'Every 15 s'],
  ['30', 'Every 30 s'],
  ['60', 'Every minute'],
];
/** The value of the refresh picker while a fixed range is shown. */
const PAUSED = 'paused';

/**
 * @typedef {{range?: string, zoom?: {start: number, end: number}|null}} RangeChange
 */

/**
 * The pickers. `interval` returns the refresh interval in seconds as text, '0' for none.
 * @param {(change: RangeChange) => void} navigate
 */
export function rangePicker(navigate) {
  const ranges = h('fieldset', { class: 'segments' }, h('legend', { class: 'unseen', text: 'Time range' }));
  const fixed = h('div', { class: 'row fixed', hidden: true });
  const refresh = h(
    'select',
    { id: 'refresh', 'aria-label': 'Refresh' },
    REFRESHES.map(([value, text]) => h('option', { value, text })),
    h('option', { value: PAUSED, text: 'Refresh paused', hidden: true, disabled: true }),
  );
  let interval = recall('refresh', '15');
  if (!REFRESHES.some(([value]) => value === interval)) interval = '15';
  refresh.addEventListener('change', () => {
    interval = refresh.value;
    remember('refresh', interval);
    navigate({});
  });
  /**
   * Shows a state. Each radio is created once, so that the arrow keys keep the focus.
   * @param {string} range
   * @param {{start: number, end: number}|null} zoom
   */
  const show = (range, zoom) => {
    for (const one of RANGES.includes(range) ? RANGES : [...RANGES, range]) {
      if (ranges.querySelector(`input[value="${CSS.escape(one)}"]`)) continue;
      const radio = h('input', { type: 'radio', name: 'range', value: one });
      radio.addEventListener('click', () => navigate({ range: one, zoom: null }));
      ranges.append(h('label', {}, radio, h('span', { text: one })));
    }
    for (const radio of ranges.querySelectorAll('input')) radio.checked = !zoom && radio.value === range;
    fixed.hidden = !zoom;
    fixed.replaceChildren(
      ...(zoom
        ? [
            h('span', { text: `${formatMoment(zoom.start)} to ${formatMoment(zoom.end)}` }),
            h('button', {
              type: 'button',
              class: 'plain',
              text: `Back to the last ${range}`,
              on: { click: () => navigate({ zoom: null }) },
            }),
          ]
        : []),
    );
    refresh.value = zoom ? PAUSED : interval;
    refresh.disabled = zoom !== null;
  };
  return { nodes: [ranges, fixed, refresh], show, interval: () => interval };
}
