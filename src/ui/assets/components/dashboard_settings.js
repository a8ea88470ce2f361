// The settings of a dashboard: names, time range, refresh, tooltips and links.

import { h } from '../chart/dom.js';
import { setDashboardSettings } from '../model/edit_dashboard.js';
import { listOf, objectOf, sameJson, textOf } from '../model/limits.js';
import { durationMs, parseTime } from '../model/time.js';
import { openDialog } from './dialog.js';
import { choice, field, form, lines } from './form.js';
import { linksForm } from './links_form.js';

/** Texts of `graphTooltip` 0, 1 and 2. */
const TOOLTIPS = ['One panel', 'All panels: crosshair', 'All panels: crosshair and tooltip'];
const ZONES = ['Browser', 'UTC'];
const NO_REFRESH = 'Off';
const REFRESHES = [NO_REFRESH, '5s', '10s', '30s', '1m', '5m', '15m', '30m', '1h', '2h', '1d'];

/** A time zone as the document stores it, from its text. @param {string} text */
const zoneOf = (text) => (text === 'Browser' ? 'browser' : text === 'UTC' ? 'utc' : text);

/**
 * The settings of the dialog's texts.
 * @param {Record<string, string>} values
 * @returns {Record<string, unknown>}
 */
const settingsOf = (values) => ({
  title: values.title.trim(),
  description: values.description,
  tags: [
    ...new Set(
      values.tags
        .split(',')
        .map((tag) => tag.trim())
        .filter(Boolean),
    ),
  ],
  refresh: values.refresh === NO_REFRESH ? '' : values.refresh,
  time: { from: values.from.trim(), to: values.to.trim() },
  timezone: zoneOf(values.timezone),
  graphTooltip: TOOLTIPS.indexOf(values.tooltip),
});

/** @param {string} text @param {string} label */
function checkTime(text, label) {
  if (parseTime(text) === null) throw new Error(`${label}: write times such as now-6h, now/d or 2026-01-31 08:00.`);
}

/**
 * Asks for new settings.
 * @param {{document: Record<string, any>, folder: string}} state
 * @returns {Promise<{document: Record<string, any>, folder: string} | null>} null if it was cancelled
 */
export function settingsDialog({ document, folder }) {
  const time = objectOf(document.time);
  const refresh = textOf(document.refresh) || NO_REFRESH;
  const zone = textOf(document.timezone) || 'browser';
  const zoneText = zone === 'browser' ? 'Browser' : zone === 'utc' ? 'UTC' : zone;
  const shown = {
    title: textOf(document.title),
    description: textOf(document.description),
    tags: listOf(document.tags)
      .map((tag) => textOf(tag))
      .join(', '),
    from: textOf(time.from) || 'now-6h',
    to: textOf(time.to) || 'now',
    refresh,
    timezone: zoneText,
    tooltip: TOOLTIPS[Number(document.graphTooltip)] ?? TOOLTIPS[0],
  };
  const withOwn = (/** @type {string[]} */ all, /** @type {string} */ own) => (all.includes(own) ? all : [...all, own]);
  const title = { maxlength: '200', value: shown.title, autocomplete: 'off' };
  const links = linksForm(document.links);
  const optional = { required: false, autocomplete: 'off' };
  return openDialog(
    'Dashboard settings',
    /** @type {{document: Record<string, any>, folder: string} | null} */ (null),
    (close) => {
      const entry = form(
        {
          submit: 'Apply',
          action: (values) => {
            checkTime(values.from, 'From');
            checkTime(values.to, 'To');
            if (values.refresh !== NO_REFRESH && durationMs(values.refresh) === null)
              throw new Error('The refresh interval is not a duration.');
            // A setting that was not edited is not written, also if the document lacks it.
            const given = { ...shown, ...values };
            const settings = Object.entries(settingsOf(given)).filter(
              ([name, value]) => !sameJson(value, settingsOf(shown)[name]),
            );
            if (!sameJson(links.links(), document.links)) settings.push(['links', links.links()]);
            const next = setDashboardSettings(document, Object.fromEntries(settings));
            close({ document: settings.length > 0 ? next : document, folder: values.folder.trim() });
          },
        },
        field('Title', 'title', title),
        h(
          'div',
          { class: 'field-pair' },
          field('Folder', 'folder', { ...optional, maxlength: '200', value: folder }, 'Such as Infra/Hosts.'),
          field(
            'Tags',
            'tags',
            { ...optional, maxlength: '2000', value: shown.tags },
            'Separated by commas.',
          ),
        ),
        lines('Description', 'description', shown.description, 2, ''),
        h(
          'div',
          { class: 'field-pair' },
          field('From', 'from', { value: shown.from, autocomplete: 'off', spellcheck: 'false' }),
          field('To', 'to', { value: shown.to, autocomplete: 'off', spellcheck: 'false' }),
        ),
        h(
          'div',
          { class: 'field-pair' },
          choice('Refresh', 'refresh', withOwn(REFRESHES, refresh), refresh),
          choice('Time zone', 'timezone', withOwn(ZONES, zoneText), zoneText),
        ),
        choice('Tooltips', 'tooltip', TOOLTIPS, shown.tooltip),
        links.node,
      );
      const apply = entry.querySelector('button.primary');
      const cancel = h('button', { type: 'button', text: 'Cancel', on: { click: () => close(null) } });
      if (apply) entry.append(h('div', { class: 'row' }, apply, cancel));
      return [entry];
    },
    { class: 'wide-dialog' },
  );
}

/**
 * Asks for the title of a row and the variable that repeats it.
 * @param {Record<string, any>} row
 * @param {string[]} variables
 * @returns {Promise<{title: string, repeat: string} | null>}
 */
export function rowDialog(row, variables) {
  const none = 'Not repeated';
  const own = textOf(row.repeat);
  const options = [none, ...variables, ...(own && !variables.includes(own) ? [own] : [])];
  return openDialog('Row', /** @type {{title: string, repeat: string} | null} */ (null), (close) => {
    const entry = form(
      {
        submit: 'Apply',
        action: ({ title, repeat }) => close({ title: title.trim(), repeat: repeat === none ? '' : repeat }),
      },
      field('Title', 'title', { value: textOf(row.title), required: false, maxlength: '200', autocomplete: 'off' }),
      choice('Repeat for each value of', 'repeat', options, own || none),
    );
    const apply = entry.querySelector('button.primary');
    const cancel = h('button', { type: 'button', text: 'Cancel', on: { click: () => close(null) } });
    if (apply) entry.append(h('div', { class: 'row' }, apply, cancel));
    return [entry];
  });
}
