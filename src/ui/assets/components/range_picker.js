// The time range, the time zone and the refresh interval of the explore page.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { moved, rangeChange, spanOf, widened } from '../model/explore_state.js';
import { recall, remember } from '../model/storage.js';
import { signButton } from './buttons.js';
import { applyZone, zoneName } from './zone.js';

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
 * @typedef {import('../model/explore_state.js').Span} Span
 * @typedef {{range?: string, zoom?: Span|null}} RangeChange
 */

/**
 * The pickers. `interval` returns the refresh interval in seconds as text, '0' for none.
 * @param {(change: RangeChange) => void} navigate also called after a change of the time zone
 */
export function rangePicker(navigate) {
  /** @type {{range: string, zoom: Span|null}} */
  let shown = { range: '1h', zoom: null };
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
  const now = () => Date.now() / 1000;
  const step = (/** @type {string} */ text, /** @type {string} */ sign, /** @type {(span: Span) => Span} */ make) =>
    signButton(text, sign, () => navigate({ zoom: make(spanOf(shown, now())) }));
  const later = step('Later', '›', (span) => moved(span, 0.5, now()));
  const custom = h('button', {
    type: 'button',
    class: 'custom',
    'aria-haspopup': 'dialog',
    'aria-expanded': 'false',
    text: 'Custom',
    on: { click: () => openForm() },
  });
  const steps = h(
    'div',
    { class: 'steps', role: 'group', 'aria-label': 'Move the time range' },
    step('Earlier', '‹', (span) => moved(span, -0.5, now())),
    later,
    step('Zoom out', '−', (span) => widened(span, now())),
    h('div', { class: 'anchor' }, custom),
  );

  async function openForm() {
    const [{ openMenu }, { timeRangeForm }, { zoneField }] = await Promise.all([
      import('./popup.js'),
      import('./time_range_form.js'),
      import('./zone_field.js'),
    ]);
    const { range, zoom } = shown;
    const zone = zoneField(zoneName(), (name) => {
      applyZone(name);
      close();
      navigate({});
      custom.focus();
    });
    const close = openMenu(
      custom,
      timeRangeForm({
        raw: zoom ? { from: zoom.start * 1000, to: zoom.end * 1000 } : { from: `now-${range}`, to: 'now' },
        timeZone: zoneName(),
        more: [zone],
        apply: ({ from, to, start, end }) => {
          close();
          navigate(rangeChange(from, to, { start: start / 1000, end: end / 1000 }));
          custom.focus();
        },
      }),
      { class: 'time-popup', label: 'Time range' },
    );
  }

  /**
   * Shows a state. Each radio is created once, so that the arrow keys keep the focus.
   * @param {string} range
   * @param {Span|null} zoom
   */
  const show = (range, zoom) => {
    shown = { range, zoom };
    for (const one of RANGES.includes(range) ? RANGES : [...RANGES, range]) {
      if (ranges.querySelector(`input[value="${CSS.escape(one)}"]`)) continue;
      const radio = h('input', { type: 'radio', name: 'range', value: one });
      radio.addEventListener('click', () => navigate({ range: one, zoom: null }));
      ranges.append(h('label', {}, radio, h('span', { text: one })));
    }
    for (const radio of ranges.querySelectorAll('input')) radio.checked = !zoom && radio.value === range;
    fixed.hidden = !zoom;
    const zone = zoneName();
    const named = zone === 'browser' ? '' : ` ${zone === 'utc' ? 'UTC' : zone}`;
    custom.textContent = zoom || !named ? 'Custom' : `Custom ·${named}`;
    fixed.replaceChildren(
      ...(zoom
        ? [
            h('span', { text: `${formatMoment(zoom.start)} to ${formatMoment(zoom.end)}${named}` }),
            h('button', {
              type: 'button',
              class: 'plain',
              text: `Back to the last ${range}`,
              on: { click: () => navigate({ zoom: null }) },
            }),
          ]
        : []),
    );
    // The range ends now at the latest.
    later.disabled = !zoom || zoom.end >= Math.floor(now());
    refresh.value = zoom ? PAUSED : interval;
    refresh.disabled = zoom !== null;
  };
  return { nodes: [ranges, steps, refresh, fixed], show, interval: () => interval };
}
