// The page of a shared dashboard: the meaning of its address and of messages to it, and texts for
// refusals.

/** Longest value of a parameter, in characters. */
const VALUE_MAX = 4096;
/** Parameters that are attributes of the dashboard. */
const NAMES = new Set(['link', 'token', 'panel', 'from', 'to', 'refresh', 'live', 'theme', 'hide']);

/**
 * The attributes of the dashboard from the query of an address. Several values of a variable are
 * joined with commas.
 * @param {string} search such as `?link=mpl_x&var-host=a`
 * @returns {Record<string, string>}
 */
export function frameAttributes(search) {
  /** @type {Record<string, string>} */
  const attributes = Object.create(null);
  for (const [name, value] of new URLSearchParams(search)) {
    const isVariable = /^var-\w{1,128}$/.test(name);
    if (value.length > VALUE_MAX || !(isVariable || NAMES.has(name))) continue;
    attributes[name] = isVariable && name in attributes ? `${attributes[name]},${value}` : value;
  }
  return { ...attributes };
}

/**
 * The token of a message `{"type": "promlet-token", "token": "..."}`; null for any other message.
 * @param {unknown} message
 * @returns {string | null}
 */
export function renewedToken(message) {
  if (typeof message !== 'object' || message === null) return null;
  const { type, token } = /** @type {Record<string, unknown>} */ (message);
  if (type !== 'promlet-token' || typeof token !== 'string' || token.length > VALUE_MAX) return null;
  return /^[\w-]+\.[\w-]+\.[\w-]+$/.test(token) ? token : null;
}

/** @type {Record<string, {heading: string, advice: string}>} */
const REFUSALS = {
  public_link_invalid: {
    heading: 'This link does not work any more',
    advice: 'It may have expired, or its owner withdrew it. Ask for a new one.',
  },
  token_expired: {
    heading: 'This view has ended',
    advice: 'Reload the page that shows it.',
  },
  embed_restricted: {
    heading: 'This dashboard is not shared',
    advice: 'The token of this page is not one of a dashboard.',
  },
};

/**
 * The text that visitors see when the server refuses a page.
 * @param {string} code of the error
 */
export const refusalText = (code) =>
  Object.hasOwn(REFUSALS, code)
    ? REFUSALS[code]
    : { heading: 'This dashboard cannot be shown', advice: 'The address is not complete, or it is no longer valid.' };
