// The time range and the refresh interval of a dashboard.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { dateText, durationMs, parseTime } from '../model/time.js';
import { openMenu } from './popup.js';

/**
 * @typedef {import('../model/time.js').Range} Range
 * @typedef {{from: string, to: string}} Wanted expressions such as `now-6h`, or milliseconds as text
 */

/** @type {[string, string, string][]} from, to, text */
const QUICK = [
  ['now-5m', 'now', 'Last 5 minutes'],
  ['now-15m', 'now', 'Last 15 minutes'],
  ['now-30m', 'now', 'Last 30 minutes'],
  ['now-1h', 'now', 'Last 1 hour'],
  ['now-3h', 'now', 'Last 3 hours'],
  ['now-6h', 'now', 'Last 6 hours'],
  ['now-12h', 'now', 'Last 12 hours'],
  ['now-24h', 'now', 'Last 24 hours'],
  ['now-2d', 'now', 'Last 2 days'],
  ['now-7d', 'now', 'Last 7 days'],
  ['now-30d', 'now', 'Last 30 days'],
  ['now-90d', 'now', 'Last 90 days'],
  ['now/d', 'now', 'Today so far'],
  ['now-1d/d', 'now-1d/d', 'Yesterday'],
];
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
  const step = (/** @type {string} */ text, /** @type {string} */ sign, /** @type {() => void} */ click) =>
    h(
      'button',
      { type: 'button', class: 'icon', title: text, on: { click } },
      h('span', { 'aria-hidden': 'true', text: sign }),
      h('span', { class: 'unseen', text }),
    );
  const node = h(
    'div',
    { class: 'time-control' },
    step('Earlier', '‹', () => moved((from, to) => [from - (to - from) / 2, to - (to - from) / 2])),
    h('div', { class: 'anchor' }, open),
    step('Later', '›', () => moved((from, to) => [from + (to - from) / 2, to + (to - from) / 2])),
    step('Zoom out', '−', () => moved((from, to) => [from - (to - from) / 2, to + (to - from) / 2])),
    step('Refresh', '↻', refreshNow),
    choose,
  );

  function menu() {
    if (!current) return;
    const { raw } = current;
    const written = (/** @type {string | number} */ value) =>
      /^\d{5,}$/.test(String(value)) ? dateText(Number(value), 'YYYY-MM-DD HH:mm:ss', timeZone) : String(value);
    const from = h('input', { id: 'time-from', autocomplete: 'off', spellcheck: 'false' });
    const to = h('input', { id: 'time-to', autocomplete: 'off', spellcheck: 'false' });
    from.value = written(raw.from);
    to.value = written(raw.to);
    const alert = h('p', { class: 'alert', role: 'alert' });
    const apply = (/** @type {Event} */ event) => {
      event.preventDefault();
      const ends = [parseTime(from.value, { timeZone }), parseTime(to.value, { roundUp: true, timeZone })];
      if (ends[0] === null || ends[1] === null || ends[0] >= ends[1]) {
        alert.textContent = 'Write times such as now-6h or 2026-01-31 08:00, the earlier one first.';
        (ends[0] === null ? from : to).focus();
        return;
      }
      close();
      const text = (/** @type {string} */ value, /** @type {number} */ at) =>
        value.trim().startsWith('now') ? value.trim() : String(at);
      change({ from: text(from.value, ends[0]), to: text(to.value, ends[1]) });
      open.focus();
    };
    const close = openMenu(
      open,
      [
        h(
          'form',
          { class: 'stack', on: { submit: apply } },
          h('div', { class: 'field' }, h('label', { for: 'time-from', text: 'From' }), from),
          h('div', { class: 'field' }, h('label', { for: 'time-to', text: 'To' }), to),
          alert,
          h('button', { class: 'primary', text: 'Apply' }),
        ),
        h(
          'div',
          { class: 'quick' },
          QUICK.map(([start, end, text]) =>
            h('button', {
              type: 'button',
              text,
              'data-closes': true,
              'aria-pressed': String(start === raw.from && end === raw.to),
              on: {
                click: () => {
                  change({ from: start, to: end });
                  open.focus();
                },
              },
            }),
          ),
        ),
      ],
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
