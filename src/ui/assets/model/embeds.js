// The list of embeds: its order, its texts, and the effect of a revocation.

import { counted } from './metrics.js';

/**
 * @typedef {Object} EmbedPage a row of `GET /orgs/{slug}/embeds`
 * @property {{id: string, name: string|null}|null} api_key null for a public link
 * @property {{id: string, name: string|null}|null} public_link null for a token
 * @property {string|null} origin null for requests of servers, and for the page of a public link
 * @property {boolean} blocked
 * @property {{uid: string, title: string|null}|null} dashboard
 * @property {number} viewers of the last five minutes, an estimate
 * @property {number} streams
 * @property {number} requests
 * @property {number} refused
 * @property {number} query_seconds
 * @property {number} samples
 * @property {string} first_seen_at
 * @property {string} last_seen_at
 *
 * @typedef {{id: string, name: string, query_seconds_per_minute: number|null,
 *   query_seconds_last_minute: number, blocked_origins: string[]}} EmbedKey
 * @typedef {{since: string, rows_max: number, data: EmbedPage[], keys: EmbedKey[]}} Embeds
 * @typedef {'origin'|'dashboard'|'credential'|'viewers'|'requests'|'query_seconds'|'last_seen_at'}
 *   EmbedColumn
 * @typedef {{by: EmbedColumn, descending: boolean}} EmbedOrder
 * @typedef {'origin'|'dashboard'|'credential'} Revocation what is revoked
 */

/** Headings, in the order of the columns. @type {readonly {id: EmbedColumn, text: string, number: boolean}[]} */
export const EMBED_COLUMNS = [
  { id: 'origin', text: 'Origin', number: false },
  { id: 'dashboard', text: 'Dashboard', number: false },
  { id: 'credential', text: 'Key or link', number: false },
  { id: 'viewers', text: 'Viewers', number: true },
  { id: 'requests', text: 'Requests', number: true },
  { id: 'query_seconds', text: 'Query time', number: true },
  { id: 'last_seen_at', text: 'Last seen', number: false },
];

/** @param {EmbedPage} page */
export function originText({ origin, public_link: link }) {
  if (origin === null) return link ? 'Shared page' : 'Servers';
  if (origin === 'null') return 'Pages without an origin';
  return origin === 'invalid' ? 'Not an origin' : origin;
}

/** The key or the link, unless it was deleted. @param {EmbedPage} page */
export const hasCredential = ({ api_key: key, public_link: link }) => (key ?? link)?.name != null;

/** Whether requests of this origin can be refused. @param {EmbedPage} page */
export const canBlock = (page) =>
  page.api_key !== null && hasCredential(page) && !page.blocked && /^https?:\/\//.test(page.origin ?? '');

/** @param {EmbedPage} page */
export function credentialText({ api_key: key, public_link: link }) {
  const { id, name } = key ?? link ?? { id: '', name: '' };
  if (name === null) return `Deleted (${id})`;
  return name || (link ? 'Unnamed link' : id);
}

/** @param {EmbedPage} page */
export const dashboardText = ({ dashboard }) => (dashboard ? (dashboard.title ?? `Deleted (${dashboard.uid})`) : '');

/** The text or number that a column is ordered by. @param {EmbedPage} page @param {EmbedColumn} column */
function orderKey(page, column) {
  if (column === 'origin') return originText(page);
  if (column === 'dashboard') return dashboardText(page);
  return column === 'credential' ? credentialText(page) : page[column];
}

/**
 * The pages in an order; equal ones keep theirs.
 * @param {readonly EmbedPage[]} pages
 * @param {EmbedOrder} order
 * @returns {EmbedPage[]}
 */
export function sortPages(pages, { by, descending }) {
  const sign = descending ? -1 : 1;
  return [...pages].sort((a, b) => {
    const [one, other] = [orderKey(a, by), orderKey(b, by)];
    if (typeof one === 'number' && typeof other === 'number') return sign * (one - other);
    return sign * String(one).localeCompare(String(other), 'en');
  });
}

/** @param {EmbedPage} page */
export const credentialId = ({ api_key: key, public_link: link }) => (key ?? link)?.id;

/**
 * The pages that a revocation ends.
 * @param {readonly EmbedPage[]} pages
 * @param {EmbedPage} page the row that it was chosen for
 * @param {Revocation} what
 */
export function endingPages(pages, page, what) {
  return pages.filter((other) => {
    if (what === 'dashboard') return page.dashboard !== null && other.dashboard?.uid === page.dashboard.uid;
    const isSame = credentialId(other) === credentialId(page);
    return isSame && (what === 'credential' || other.origin === page.origin);
  });
}

/**
 * The viewers and streams that end with pages: "2 pages with 31 viewers and 4 live streams".
 * @param {readonly EmbedPage[]} pages
 */
export function endingText(pages) {
  const sum = (/** @type {'viewers'|'streams'} */ column) => pages.reduce((all, page) => all + page[column], 0);
  const streams = sum('streams');
  const live = streams ? ` and ${counted(streams, 'live stream')}` : '';
  return `${counted(pages.length, 'page')} with ${counted(sum('viewers'), 'viewer')}${live}`;
}

/**
 * A count with three digits: "999", "1.23M".
 * @param {number} count
 */
export const shortCount = (count) =>
  count.toLocaleString('en', { notation: 'compact', maximumSignificantDigits: 3 });

/**
 * The used part of a key's budget: "12.5 of 60 s used".
 * @param {EmbedKey} key
 */
export function budgetText({ query_seconds_last_minute: used, query_seconds_per_minute: budget }) {
  if (budget === null) return `${evaluationText(used)} used, no limit`;
  return `${used.toLocaleString('en', { maximumFractionDigits: 1 })} of ${budget.toLocaleString('en')} s used`;
}

/**
 * Seconds of evaluation with three significant digits, in one unit: "820 ms", "1.2 s", "2 h".
 * @param {number} seconds at least 0
 */
export function evaluationText(seconds) {
  /** @type {[string, number][]} */
  const units = [['h', 3600], ['min', 60], ['s', 1], ['ms', 0.001]];
  const [unit, length] = units.find(([, least]) => seconds >= least) ?? units[3];
  return `${(seconds / length).toLocaleString('en', { maximumSignificantDigits: 3 })} ${unit}`;
}
