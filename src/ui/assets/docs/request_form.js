// A form that sends a request of the API page, and the same request as a curl command.

import { quotedWord } from '../model/shell.js';
import { h } from '../chart/dom.js';
import { ROOT } from '../client/root.js';
import { copyButton } from '../components/copy.js';
import { example } from './schema.js';

/**
 * @typedef {import('./schema.js').Api} Api
 * @typedef {import('./schema.js').Operation} Operation
 * @typedef {import('./schema.js').Schema} Schema
 */

/** A longer response is cut on the page, in characters. */
const SHOWN_MAX = 20_000;

/**
 * Fields to fill in, the curl line that they make, and the response of this server.
 * @param {Api} api
 * @param {string} verb
 * @param {string} path
 * @param {Operation} about
 * @param {string|undefined} media the type of the body
 */
export function requestForm(api, verb, path, about, media) {
  const binary = media && !media.includes('json') && !media.includes('form');
  const rows = /** @type {any[]} */ (about.parameters ?? []).map((one) => {
    const id = `${about.operationId}-${one.name}`;
    const input = h('input', {
      id,
      spellcheck: 'false',
      autocomplete: 'off',
      placeholder: one.required ? 'required' : '',
    });
    return {
      one,
      input,
      row: h('tr', {}, h('th', { scope: 'row' }, h('label', { for: id, text: one.name })), h('td', {}, input)),
    };
  });
  const schema = /** @type {Schema} */ (media && about.requestBody.content[media].schema);
  const body =
    media === undefined || binary ? null : h('textarea', { rows: '5', spellcheck: 'false', 'aria-label': 'Body' });
  if (body && media?.includes('json')) body.value = JSON.stringify(example(api, schema), null, 2);
  else if (body)
    body.value = new URLSearchParams(
      Object.entries(schema.properties ?? {})
        .filter(([name]) => schema.required?.includes(name))
        .map(([name]) => [name, '']),
    ).toString();
  const schemes = /** @type {string[]} */ (
    about.security.flatMap((/** @type {Object<string, any>} */ one) => Object.keys(one))
  );
  const keyed = schemes.some((name) => name !== 'session');
  const token = h('input', {
    type: 'password',
    autocomplete: 'off',
    'aria-label': 'Bearer token or API key',
    placeholder: 'Bearer token or API key; empty: the session of this browser',
  });
  const curl = h('pre', { class: 'shape', tabindex: '0', role: 'group', 'aria-label': 'The same request with curl' });
  const copied = copyButton(() => curl.textContent ?? '', { what: 'curl command', source: curl });
  const reply = h('div', { class: 'reply part', role: 'status' });
  const send = h('button', { class: 'primary', text: 'Send' });
  const target = () => {
    let at = path;
    const query = new URLSearchParams();
    for (const { one, input } of rows) {
      if (one.in === 'path')
        at = at.replace(`{${one.name}}`, input.value ? encodeURIComponent(input.value) : `{${one.name}}`);
      else if (input.value !== '') query.append(one.name, input.value);
    }
    return `${ROOT}${at}${query.size ? `?${query}` : ''}`;
  };
  /**
   * The required parameters of the path that are empty: without them there is no URL to request.
   */
  const missing = () =>
    rows.filter(({ one, input }) => one.in === 'path' && input.value === '').map(({ input }) => input);
  const draw = () => {
    for (const { input } of rows) if (input.value !== '') input.removeAttribute('aria-invalid');
    const words = ['curl'];
    if (verb !== 'get') words.push('-X', verb.toUpperCase());
    words.push(quotedWord(`${location.origin}${target()}`));
    // A secret typed here stays in its field.
    if (token.value || (keyed && !schemes.includes('session'))) words.push('-H "Authorization: Bearer $TOKEN"');
    else if (schemes.includes('session')) words.push('-b cookies');
    if (media) words.push('-H', quotedWord(`Content-Type: ${media}`));
    if (body) words.push('-d', quotedWord(body.value));
    if (binary) words.push('--data-binary', '@file');
    curl.textContent = words.join(' ');
  };
  const form = h(
    'form',
    { class: 'try' },
    h('h3', { text: 'Try it' }),
    rows.length > 0 &&
      h(
        'table',
        { class: 'fields' },
        h(
          'tbody',
          {},
          rows.map(({ row }) => row),
        ),
      ),
    body,
    keyed && token,
    h('div', { class: 'curl' }, curl, copied),
    !binary &&
      h(
        'div',
        { class: 'row' },
        send,
        verb !== 'get' && h('span', { class: 'hint', text: 'This changes data on the server.' }),
      ),
    reply,
  );
  form.addEventListener('input', draw);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const [empty] = missing();
    if (empty) {
      empty.setAttribute('aria-invalid', 'true');
      empty.focus();
      reply.replaceChildren(
        h('p', {
          class: 'alert',
          text: `Enter ${empty.id.slice(about.operationId.length + 1)} first: it is part of the path.`,
        }),
      );
      return;
    }
    send.disabled = true;
    /** @type {Object<string, string>} */
    const headers = {
      ...(media ? { 'Content-Type': media } : {}),
      ...(token.value ? { Authorization: `Bearer ${token.value}` } : {}),
    };
    try {
      const begun = performance.now();
      const response = await fetch(target(), {
        method: verb.toUpperCase(),
        headers,
        body: body ? body.value : undefined,
        credentials: token.value ? 'omit' : 'same-origin',
        cache: 'no-store',
        redirect: 'manual',
      });
      const took = Math.round(performance.now() - begun);
      let text = await response.text();
      if (response.headers.get('Content-Type')?.includes('json')) text = JSON.stringify(JSON.parse(text), null, 2);
      reply.replaceChildren(
        h('p', { class: 'status', text: `${response.status || 'A redirect'} in ${took} ms` }),
        text
          ? h('pre', {
              class: 'shape',
              tabindex: '0',
              role: 'group',
              'aria-label': 'Response',
              text: text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}\n…` : text,
            })
          : '',
      );
    } catch (error) {
      reply.replaceChildren(
        h('p', { class: 'alert', text: `No answer: ${error instanceof Error ? error.message : error}` }),
      );
    } finally {
      send.disabled = false;
    }
  });
  draw();
  return form;
}
