// Requests to the API as the member of an organisation who opens a sign-in link.

import { check } from './scenario.mjs';

/**
 * @param {{server: string, org: string, link?: string, cookie?: string}} given `link` of the member; or `cookie` is
 *   one that is signed in
 */
export function member({ server, org, link, cookie = '' }) {
  /** Signs in, which the first request needs. */
  async function signIn() {
    if (cookie) return;
    const response = await fetch(link, { redirect: 'manual' });
    cookie = response.headers.getSetCookie().map((one) => one.split(';')[0]).join('; ');
  }

  /**
   * The response to a request of the organisation; null if it has no body.
   * @param {string} method
   * @param {string} path below that of the organisation
   * @param {any} [body]
   * @param {Object<string, string>} [credential] a header in place of the cookie
   */
  async function api(method, path, body, credential = { Cookie: cookie }) {
    const response = await fetch(`${server}/api/v1/orgs/${org}${path}`, {
      method,
      headers: { ...credential, ...(body && { 'Content-Type': 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    check(response.ok, `${method} ${path} succeeds: ${response.status} ${await response.clone().text()}`);
    return response.status === 204 ? null : response.json();
  }
  return { signIn, api };
}
