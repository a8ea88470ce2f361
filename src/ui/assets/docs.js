// A viewer of /api/v1/openapi.json with a way to send requests to this server.

import { h } from './chart/dom.js';
import { ROOT } from './client/server.js';
import { copyButton } from './components/copy.js';

/**
 * @typedef {Object<string, any>} Schema a JSON schema of the document
 * @typedef {Object<string, any>} Api the OpenAPI document
 * @typedef {Object<string, any>} Operation
 */

const view = /** @type {HTMLElement} */ (document.getElementById('docs'));
const VERBS = ['get', 'post', 'patch', 'delete'];
/** A longer response is cut on the page, in characters. */
const SHOWN_MAX = 20_000;

const found = await fetch(`${ROOT}/api/v1/openapi.json`, { cache: 'no-store' }).catch(() => null);
if (found?.ok) show(await found.json());
else view.replaceChildren(h('h1', { class: 'unseen', text: 'API' }), h('p', { class: 'booting', role: 'alert', text: 'The API document cannot be read. It may be switched off (PROMLET_DOCS=off).' }));

/** @param {Api} api */
function show(api) {
  const all = Object.entries(/** @type {Object<string, Object<string, Operation>>} */ (api.paths)).flatMap(([path, methods]) => VERBS.filter((verb) => methods[verb])
    .map((verb) => operation(api, verb, path, methods[verb])));
  const groups = /** @type {{name: string, description: string}[]} */ (api.tags).map(({ name, description }) => {
    const own = all.filter(({ tag }) => tag === name);
    const count = h('span', { class: 'count', text: String(own.length) });
    const id = `group-${name.toLowerCase().replace(/[^a-z]+/g, '-')}`;
    const node = h('section', { class: 'group', id, 'aria-labelledby': `${id}-title` },
      h('h2', { id: `${id}-title` }, name, h('span', { class: 'hint', text: description })), ...own.map((one) => one.node));
    return { own, node, count, link: h('li', {}, h('a', { href: `#${id}` }, name, count)) };
  }).filter(({ own }) => own.length > 0);
  const search = h('input', { type: 'search', id: 'search', placeholder: 'Search: login, rotate, 429', 'aria-label': 'Search the API', autocomplete: 'off', spellcheck: 'false' });
  const none = h('p', { class: 'quiet', role: 'status', hidden: true, text: 'No operation matches.' });
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { own, node, count } of groups) {
      const fitting = own.filter(({ text, node: entry }) => {
        entry.hidden = !words.every((word) => text.includes(word));
        return !entry.hidden;
      });
      node.hidden = fitting.length === 0;
      count.textContent = String(fitting.length);
    }
    none.hidden = groups.some(({ node }) => !node.hidden);
  };
  search.addEventListener('input', filter);
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || ['INPUT', 'TEXTAREA'].includes(document.activeElement?.tagName ?? '')) return;
    event.preventDefault();
    search.focus();
  });
  const version = document.getElementById('version');
  if (version) version.textContent = `API ${api.info.version}`;
  view.replaceChildren(
    h('nav', { 'aria-label': 'Parts of the API' }, search, h('ul', {}, groups.map(({ link }) => link))),
    h('div', { class: 'operations' }, h('h1', { text: 'API' }), h('p', { class: 'about' }, ...marked(api.info.description)), ...groups.map(({ node }) => node), none));
  /** Opens the operation that the address names, whatever was searched for. */
  const open = () => {
    const node = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!node) return;
    if (node.hidden || node.parentElement?.hidden) {
      search.value = '';
      filter();
    }
    if (node instanceof HTMLDetailsElement) node.open = true;
    node.scrollIntoView();
  };
  open();
  addEventListener('hashchange', open);
}

/**
 * Text with `code` between backticks.
 * @param {string} text
 * @returns {(Node|string)[]}
 */
function marked(text) {
  return text.split('`').map((piece, index) => (index % 2 ? h('code', { text: piece }) : piece));
}

/**
 * @param {Api} api
 * @param {string} verb
 * @param {string} path
 * @param {Operation} about
 */
function operation(api, verb, path, about) {
  const text = [verb, path, about.summary, about.operationId, about.tags[0], ...Object.values(/** @type {Object<string, any>} */ (about.responses)).map(({ description }) => description)].join(' ').toLowerCase();
  const node = h('details', { class: 'card operation', id: about.operationId },
    h('summary', {}, h('span', { class: `verb ${verb}`, text: verb.toUpperCase() }),
      h('span', { class: 'path' }, ...path.split(/(\{[^}]+\})/).map((part) => (part.startsWith('{') ? h('i', { text: part }) : part))),
      h('span', { class: 'summary' }, ...marked(about.summary))));
  // The content is built when the section is opened.
  node.addEventListener('toggle', () => {
    if (node.open && node.childElementCount === 1) node.append(inside(api, verb, path, about));
  });
  return { node, text, tag: about.tags[0] };
}

/**
 * @param {string} title
 * @param {...import('./chart/dom.js').Child} children
 */
const part = (title, ...children) => h('section', { class: 'part' }, h('h3', { text: title }), ...children);

/**
 * @param {Api} api
 * @param {string} verb
 * @param {string} path
 * @param {Operation} about
 */
function inside(api, verb, path, about) {
  const body = about.requestBody?.content;
  const media = body && Object.keys(body)[0];
  const parameters = /** @type {any[]} */ (about.parameters ?? []);
  const responses = Object.entries(/** @type {Object<string, any>} */ (about.responses));
  const good = responses.filter(([status]) => Number(status) < 400);
  const bad = responses.filter(([status]) => Number(status) >= 400);
  return h('div', { class: 'inside' },
    h('p', { text: about.description }),
    parameters.length > 0 && part('Parameters', h('table', { class: 'fields' }, h('tbody', {}, parameters.map((one) => h('tr', {},
      h('th', { scope: 'row', class: one.required && 'must', text: one.name }),
      h('td', {}, one.description, ' ', h('span', { class: 'kind', text: kind(one.schema) }))))))),
    body && part(`Body: ${Object.keys(body).join(' or ')}`, about.requestBody.description && h('p', { text: about.requestBody.description }), shape(api, body[media].schema)),
    part('Responses', h('ul', { class: 'answers' }, good.map(([status, { description, content }]) => {
      const schema = content?.['application/json']?.schema;
      return h('li', {}, h('b', { text: status }), h('div', {}, description, schema && shape(api, schema)));
    }))),
    part('Errors', h('ul', { class: 'answers' }, bad.map(([status, { description }]) =>
      h('li', {}, h('b', { class: 'bad', text: status }), h('div', {}, ...marked(description)))))),
    trial(api, verb, path, about, media));
}

/**
 * The kind of a schema in a few words.
 * @param {Schema} schema
 * @returns {string}
 */
function kind(schema) {
  if (schema.enum) return schema.enum.join(' | ');
  if (schema.type === 'array') return `${kind(schema.items)}, repeatable`;
  const limits = [schema.minimum, schema.maximum].some((limit) => limit !== undefined) ? ` ${schema.minimum ?? ''}…${schema.maximum ?? ''}` : '';
  return `${schema.type ?? ''}${limits}${schema.examples ? `, as in ${schema.examples.join(', ')}` : ''}`;
}

/**
 * A schema as the JSON that it allows; references are followed four levels deep.
 * @param {Api} api
 * @param {Schema} schema
 */
function shape(api, schema) {
  const pre = h('pre', { class: 'shape', tabindex: '0', role: 'group', 'aria-label': 'Schema' });
  const write = (/** @type {string} */ text, note = false) => pre.append(note ? h('span', { class: 'note', text }) : text);
  draw(schema, '', 0);
  return pre;

  /**
   * @param {Schema} one
   * @param {string} indent
   * @param {number} depth
   * @returns {void}
   */
  function draw(one, indent, depth) {
    if (one.$ref) {
      const name = one.$ref.split('/').pop();
      const target = api.components.schemas[name];
      if (depth > 3) return write(name, true);
      return draw(target, indent, depth + 1);
    }
    const choices = one.anyOf ?? (Array.isArray(one.type) && one.type.length > 1 ? one.type.map((/** @type {string} */ type) => ({ ...one, type })) : null);
    if (choices) return choices.forEach((/** @type {Schema} */ choice, /** @type {number} */ index) => { if (index) write(' | '); draw(choice, indent, depth); });
    if ('const' in one) return write(JSON.stringify(one.const));
    if (one.enum) return write(one.enum.map((/** @type {any} */ value) => JSON.stringify(value)).join(' | '));
    if (one.type === 'array' && one.prefixItems) {
      write('[');
      one.prefixItems.forEach((/** @type {Schema} */ item, /** @type {number} */ index) => { if (index) write(', '); draw(item, indent, depth); });
      return write(']');
    }
    if (one.type === 'array') {
      write('[');
      draw(one.items ?? {}, indent, depth);
      return write(', …]');
    }
    if (one.properties) {
      write('{\n');
      for (const [name, value] of Object.entries(/** @type {Object<string, Schema>} */ (one.properties))) {
        write(`${indent}  ${JSON.stringify(name)}${one.required?.includes(name) ? '' : '?'}: `);
        draw(value, `${indent}  `, depth + 1);
        write(',');
        if (value.description) write(`  // ${value.description}`, true);
        write('\n');
      }
      return write(`${indent}}`);
    }
    if (typeof one.additionalProperties === 'object') {
      write('{ "…": ');
      draw(one.additionalProperties, indent, depth);
      return write(' }');
    }
    const [least, most] = [one.minimum ?? one.minLength, one.maximum ?? one.maxLength];
    const limits = least === undefined && most === undefined ? '' : ` ${least ?? ''}…${most ?? ''}`;
    const notes = `${one.type === 'string' && one.format ? ` (${one.format})` : ''}${one.type === 'null' ? '' : limits}`;
    return write(`${one.type ?? 'anything'}${notes}`);
  }
}

/**
 * An example of a body: its required members, each in its simplest form.
 * @param {Api} api
 * @param {Schema} schema
 * @returns {any}
 */
function example(api, schema, depth = 0) {
  const one = schema.$ref ? api.components.schemas[schema.$ref.split('/').pop()] : schema;
  if (depth > 5) return null;
  if (one.anyOf) return example(api, one.anyOf[0], depth + 1);
  if ('const' in one) return one.const;
  if (one.enum) return one.enum[0];
  const type = Array.isArray(one.type) ? one.type[0] : one.type;
  if (type === 'object') {
    const wanted = Object.entries(/** @type {Object<string, Schema>} */ (one.properties ?? {})).filter(([name]) => one.required?.includes(name));
    return Object.fromEntries(wanted.map(([name, value]) => [name, example(api, value, depth + 1)]));
  }
  if (type === 'array') return [example(api, one.items ?? {}, depth + 1)];
  /** @type {Object<string, any>} */
  const simple = { string: '', integer: one.minimum ?? 0, number: 0, boolean: false };
  return simple[type] ?? null;
}

const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * Fields to fill in, the curl line that they make, and the response of this server.
 * @param {Api} api
 * @param {string} verb
 * @param {string} path
 * @param {Operation} about
 * @param {string|undefined} media the type of the body
 */
function trial(api, verb, path, about, media) {
  const binary = media && !media.includes('json') && !media.includes('form');
  const rows = /** @type {any[]} */ (about.parameters ?? []).map((one) => {
    const id = `${about.operationId}-${one.name}`;
    const input = h('input', { id, spellcheck: 'false', autocomplete: 'off', placeholder: one.required ? 'required' : '' });
    return { one, input, row: h('tr', {}, h('th', { scope: 'row' }, h('label', { for: id, text: one.name })), h('td', {}, input)) };
  });
  const schema = /** @type {Schema} */ (media && about.requestBody.content[media].schema);
  const body = media === undefined || binary ? null : h('textarea', { rows: '5', spellcheck: 'false', 'aria-label': 'Body' });
  if (body && media?.includes('json')) body.value = JSON.stringify(example(api, schema), null, 2);
  else if (body) body.value = new URLSearchParams(Object.entries(schema.properties ?? {}).filter(([name]) => schema.required?.includes(name)).map(([name]) => [name, ''])).toString();
  const schemes = /** @type {string[]} */ (about.security.flatMap((/** @type {Object<string, any>} */ one) => Object.keys(one)));
  const keyed = schemes.some((name) => name !== 'session');
  const token = h('input', { type: 'password', autocomplete: 'off', 'aria-label': 'Bearer token or API key', placeholder: 'Bearer token or API key; empty: the session of this browser' });
  const curl = h('pre', { class: 'shape', tabindex: '0', role: 'group', 'aria-label': 'The same request with curl' });
  const copied = copyButton(() => curl.textContent ?? '', { what: 'curl command', source: curl });
  const reply = h('div', { class: 'reply part', role: 'status' });
  const send = h('button', { class: 'primary', text: 'Send' });
  const target = () => {
    let at = path;
    const query = new URLSearchParams();
    for (const { one, input } of rows) {
      if (one.in === 'path') at = at.replace(`{${one.name}}`, input.value ? encodeURIComponent(input.value) : `{${one.name}}`);
      else if (input.value !== '') query.append(one.name, input.value);
    }
    return `${ROOT}${at}${query.size ? `?${query}` : ''}`;
  };
  /** The required parameters of the path that are empty: without them there is no URL to request. */
  const missing = () => rows.filter(({ one, input }) => one.in === 'path' && input.value === '').map(({ input }) => input);
  const draw = () => {
    for (const { input } of rows) if (input.value !== '') input.removeAttribute('aria-invalid');
    const words = ['curl'];
    if (verb !== 'get') words.push('-X', verb.toUpperCase());
    words.push(quoted(`${location.origin}${target()}`));
    // A secret typed here stays in its field.
    if (token.value || (keyed && !schemes.includes('session'))) words.push('-H "Authorization: Bearer $TOKEN"');
    else if (schemes.includes('session')) words.push('-b cookies');
    if (media) words.push('-H', quoted(`Content-Type: ${media}`));
    if (body) words.push('-d', quoted(body.value));
    if (binary) words.push('--data-binary', '@file');
    curl.textContent = words.join(' ');
  };
  const form = h('form', { class: 'try' }, h('h3', { text: 'Try it' }),
    rows.length > 0 && h('table', { class: 'fields' }, h('tbody', {}, rows.map(({ row }) => row))), body,
    keyed && token, h('div', { class: 'curl' }, curl, copied),
    !binary && h('div', { class: 'row' }, send, verb !== 'get' && h('span', { class: 'hint', text: 'This changes data on the server.' })), reply);
  form.addEventListener('input', draw);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const [empty] = missing();
    if (empty) {
      empty.setAttribute('aria-invalid', 'true');
      empty.focus();
      reply.replaceChildren(h('p', { class: 'alert', text: `Enter ${empty.id.slice(about.operationId.length + 1)} first: it is part of the path.` }));
      return;
    }
    send.disabled = true;
    /** @type {Object<string, string>} */
    const headers = { ...(media ? { 'Content-Type': media } : {}), ...(token.value ? { Authorization: `Bearer ${token.value}` } : {}) };
    try {
      const begun = performance.now();
      const response = await fetch(target(), { method: verb.toUpperCase(), headers, body: body ? body.value : undefined, credentials: token.value ? 'omit' : 'same-origin', cache: 'no-store', redirect: 'manual' });
      const took = Math.round(performance.now() - begun);
      let text = await response.text();
      if (response.headers.get('Content-Type')?.includes('json')) text = JSON.stringify(JSON.parse(text), null, 2);
      reply.replaceChildren(h('p', { class: 'status', text: `${response.status || 'A redirect'} in ${took} ms` }),
        text ? h('pre', { class: 'shape', tabindex: '0', role: 'group', 'aria-label': 'Response', text: text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}\n…` : text }) : '');
    } catch (error) {
      reply.replaceChildren(h('p', { class: 'alert', text: `No answer: ${error instanceof Error ? error.message : error}` }));
    } finally {
      send.disabled = false;
    }
  });
  draw();
  return form;
}
