// The time range and the refresh interval of a dashboard.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { durationMs } from '../model/time.js';
import { signButton } from './buttons.js';
import { openMenu } from './popup.js';
import { QUICK, timeRangeForm } from './time_range_form.js';

/**
 * @typedef {import('../model/time.js').Range} Range
 * @typedef {{from: string, to: string}} Wanted expressions such as `now-6h`, or milliseconds as text
 */

const REFRESHES = ['5s', '10s', '30s', '1m', '5m', '15m', '30m', '1h', '2h', '1d'];

/** The range in words. @param {Range} range @param {string} [timeZone] as the dashboard names it */
export function rangeText({ from, to, raw }, timeZone) {
  const known = QUICK.find(([start, end]) => start === raw.from && end === raw.to);
  if (known) return known[2];
  const relative = /^now-(\d+)([smhdwMy])$/.exec(String(raw.from));
  if (relative && raw.to === 'now') {
    const unit = { s: 'second', m: 'minute', h: 'hour', d: 'day', w: 'week', M: 'month', y: 'year' }[relative[2]] ?? '';
    return `Last ${relative[1]} ${unit}${relative[1] === '1' ? '' : 's'}`;
  }
  return `${formatMoment(from / 1000, timeZone)} to ${formatMoment(to / 1000, timeZone)}`;
}

/**
 * @param {{change: (range: Wanted) => void, refreshNow: () => void, interval: (interval: string) => void}} host
 */
export function timeControl({ change, refreshNow, interval }) {
  /** @type {Range | null} */
  let current = null;
  let timeZone = '';
  const label = h('span');
  const open = h(
    'button',
    {
      type: 'button',
      class: 'time-button',
      'aria-haspopup': 'dialog',
      'aria-expanded': 'false',
      on: { click: () => menu() },
    },
    h('span', { class: 'unseen', text: 'Time range: ' }),
    label,
  );
  const choose = h(
    'select',
    { id: 'dashboard-refresh', 'aria-label': 'Refresh interval', on: { change: () => interval(choose.value) } },
    h('option', { value: '', text: 'Off' }),
    REFRESHES.map((text) => h('option', { value: text, text })),
  );
  const moved = (/** @type {(from: number, to: number) => [number, number]} */ make) => {
    if (!current) return;
    const [from, to] = make(current.from, current.to);
    change({ from: String(Math.round(from)), to: String(Math.round(to)) });
  };
  const node = h(
    'div',
    { class: 'time-control' },
    signButton('Earlier', '‹', () => moved((from, to) => [from - (to - from) / 2, to - (to - from) / 2])),
    h('div', { class: 'anchor' }, open),
    signButton('Later', '›', () => moved((from, to) => [from + (to - from) / 2, to + (to - from) / 2])),
    signButton('Zoom out', '−', () => moved((from, to) => [from - (to - from) / 2, to + (to - from) / 2])),
    signButton('Refresh', '↻', refreshNow),
    choose,
  );

  function menu() {
    if (!current) return;
    const close = openMenu(
      open,
      timeRangeForm({
        raw: current.raw,
        timeZone,
        apply: ({ from, to, start, end }) => {
          close();
          const text = (/** @type {string} */ value, /** @type {number} */ at) =>
            value.startsWith('now') ? value : String(at);
          change({ from: text(from, start), to: text(to, end) });
          open.focus();
        },
      }),
      { class: 'time-popup', label: 'Time range' },
    );
  }

  return {
    node,
    /** @param {Range} range @param {string} refresh @param {string} [zone] as the dashboard names it */
    show(range, refresh, zone = '') {
      current = range;
      timeZone = zone;
      label.textContent = rangeText(range, zone);
      if (refresh && durationMs(refresh) && ![...choose.options].some(({ value }) => value === refresh)) {
        choose.append(h('option', { value: refresh, text: refresh }));
      }
      choose.value = durationMs(refresh) ? refresh : '';
    },
  };
}
