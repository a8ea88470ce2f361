// The names of the members of an organisation.

import { orgPath, send } from './server.js';

/**
 * The members' names, or their addresses where they have none, by user id.
 * @param {string} org
 * @returns {Promise<Map<string, string>>}
 */
export async function memberNames(org) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (let cursor = ''; ; ) {
    const query = new URLSearchParams(cursor ? { cursor } : {});
    const { data, next_cursor: next } = await send('GET', `${orgPath(org)}/members?${query}`);
    for (const { user_id: id, name, email } of data) names.set(id, name || email);
    if (!next) return names;
    cursor = next;
  }
}
