// The limits of an organisation in human units, with their usage.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { send } from '../client/server.js';
import { field, form } from '../components/form.js';
import { card, saved } from '../components/parts.js';
import { limitText, parseLimit, sizeText } from '../model/limit_units.js';

/**
 * @typedef {import('../model/limit_units.js').LimitKind} LimitKind
 * @typedef {import('../model/limit_units.js').Limit} Limit
 * @typedef {{name: string, label: string, kind: LimitKind, hint: string, used?: string}} Setting
 *   `name` in the API; `used`: the entry of `usage` that counts against it
 * @typedef {{settings: Record<string, Limit>, defaults?: Record<string, Limit>,
 *   usage: Record<string, number>}} Org
 */

/** @type {{heading: string, intro: string, settings: Setting[]}[]} */
const GROUPS = [
  {
    heading: 'Storage',
    intro: 'How long samples are kept, and how much of the disk they may take.',
    settings: [
      { name: 'retention_days', label: 'Retention', kind: 'days', hint: 'Older samples are deleted.' },
      {
        name: 'retention_bytes',
        label: 'Retention size',
        kind: 'bytes',
        hint: 'Beyond it the oldest samples are deleted.',
        used: 'bytes',
      },
      { name: 'max_disk_bytes', label: 'Disk', kind: 'bytes', hint: 'Beyond it writes are refused.', used: 'bytes' },
    ],
  },
  {
    heading: 'Series and writes',
    intro: 'What senders may write. Samples beyond a limit are refused, and the others are stored.',
    settings: [
      { name: 'max_series', label: 'Active series', kind: 'count', hint: 'At the same time.', used: 'series' },
      { name: 'max_new_series_per_s', label: 'New series per second', kind: 'count', hint: 'Bursts last ten seconds.' },
      { name: 'max_labels', label: 'Labels per series', kind: 'count', hint: 'The metric name counts as one.' },
      { name: 'max_label_value_bytes', label: 'Length of a label value', kind: 'bytes', hint: 'In UTF-8.' },
      {
        name: 'ooo_window_s',
        label: 'Late samples',
        kind: 'seconds',
        hint: 'How far a sample may be behind the newest one.',
      },
      {
        name: 'max_memory_bytes',
        label: 'Memory',
        kind: 'bytes',
        hint: 'For samples that are not on disk yet.',
        used: 'memory_bytes',
      },
    ],
  },
  {
    heading: 'Queries',
    intro: 'What one query may cost before it is cancelled.',
    settings: [
      { name: 'max_samples_per_query', label: 'Samples per query', kind: 'count', hint: 'In memory at once.' },
      { name: 'query_timeout_s', label: 'Query timeout', kind: 'seconds', hint: 'From the start of the query.' },
    ],
  },
];

/** The label of a setting by its name in the API. */
const LABELS = new Map(GROUPS.flatMap(({ settings }) => settings).map(({ name, label }) => [name, label]));

/**
 * The usage, as a bar if there is a limit.
 * @param {Setting} setting
 * @param {Org} org
 */
function usageOf({ kind, name, label, used }, { settings, defaults, usage }) {
  if (used === undefined) return null;
  const value = usage[used] ?? 0;
  const text = kind === 'bytes' ? sizeText(value) : value.toLocaleString('en');
  const limit = settings[name] ?? defaults?.[name];
  if (typeof limit !== 'number') return h('p', { class: 'used', text: `${text} used` });
  const share = Math.min(1, value / limit);
  const percent = share > 0 && share < 0.01 ? 'under 1' : Math.round(share * 100);
  return h(
    'div',
    { class: 'used' },
    h('meter', { min: '0', max: '1', high: '0.9', value: String(share), 'aria-label': `Used of ${label}` }),
    h('span', { text: `${text} used (${percent} %)` }),
  );
}

/**
 * The message of a refusal in words of the page.
 * @param {unknown} error
 */
function inWords(error) {
  if (!(error instanceof ApiError) || error.status !== 403) return error;
  const name = [...LABELS.keys()].find((key) => error.detail.includes(key));
  const label = name && LABELS.get(name);
  return label
    ? new Error(`${label}: only an administrator of the server may exceed the default of the server.`)
    : error;
}

/**
 * The card of all limits.
 * @param {{base: string, signedOut: () => void}} options `base` is the organisation's path
 */
export function limits({ base, signedOut }) {
  /** @param {import('../components/parts.js').Part} part */
  const fill = async (part) => {
    const org = /** @type {Org} */ (await send('GET', base));
    const all = GROUPS.flatMap(({ settings }) => settings);
    const shown = new Map(all.map(({ name, kind }) => [name, limitText(org.settings[name], kind)]));
    const placeholder = (/** @type {Setting} */ { name, kind }) => {
      const usual = org.defaults?.[name];
      return usual === undefined || usual === null ? 'Default' : `Default: ${limitText(usual, kind)}`;
    };
    const groups = GROUPS.map(({ heading, intro, settings }) =>
      h(
        'section',
        { class: 'limit-group' },
        h('h3', { text: heading }),
        h('p', { class: 'hint', text: intro }),
        h(
          'div',
          { class: 'settings' },
          settings.map((setting) => {
            const { name, label, hint } = setting;
            const entry = field(
              label,
              name,
              {
                required: false,
                value: shown.get(name) ?? '',
                placeholder: placeholder(setting),
                autocomplete: 'off',
                maxlength: '40',
              },
              hint,
            );
            const used = usageOf(setting, org);
            if (used) entry.append(used);
            return entry;
          }),
        ),
      ),
    );
    return [
      form(
        {
          submit: 'Save limits',
          action: async (values) => {
            const changed = all.filter(({ name }) => values[name].trim() !== shown.get(name));
            const settings = changed.map(({ name, kind, label }) => {
              try {
                return [name, parseLimit(values[name], kind)];
              } catch (error) {
                throw new Error(`${label}: ${error instanceof Error ? error.message : error}`);
              }
            });
            await send('PATCH', base, { settings: Object.fromEntries(settings) }).catch((error) => {
              throw inWords(error);
            });
            await part.reload(saved());
          },
        },
        ...groups,
      ),
    ];
  };
  return card({
    heading: 'Limits',
    intro: 'An empty field has the default of the server. Write "no limit" for none.',
    fill,
    signedOut,
  });
}
