// A viewer of /api/v1/openapi.json with a way to send requests to this server.

import { h } from './chart/dom.js';
import { ROOT } from './client/root.js';
import { requestForm } from './docs/request_form.js';
import { kind, shape } from './docs/schema.js';

/**
 * @typedef {import('./docs/schema.js').Api} Api
 * @typedef {import('./docs/schema.js').Operation} Operation
 */

const view = /** @type {HTMLElement} */ (document.getElementById('docs'));
const VERBS = ['get', 'post', 'put', 'patch', 'delete'];

load();

/** Shows the document, or why there is none. */
async function load() {
  const found = await fetch(`${ROOT}/api/v1/openapi.json`, { cache: 'no-store' }).catch(() => null);
  if (found?.ok) return show(await found.json());
  return view.replaceChildren(
    h('h1', { class: 'unseen', text: 'API' }),
    h('p', {
      class: 'booting',
      role: 'alert',
      text: 'The API document cannot be read. It may be switched off (PROMLET_DOCS=off).',
    }),
  );
}

/** @param {Api} api */
function show(api) {
  const all = Object.entries(/** @type {Object<string, Object<string, Operation>>} */ (api.paths)).flatMap(
    ([path, methods]) => VERBS.filter((verb) => methods[verb]).map((verb) => operation(api, verb, path, methods[verb])),
  );
  const groups = /** @type {{name: string, description: string}[]} */ (api.tags)
    .map(({ name, description }) => {
      const own = all.filter(({ tag }) => tag === name);
      const count = h('span', { class: 'count', text: String(own.length) });
      const id = `group-${name.toLowerCase().replace(/[^a-z]+/g, '-')}`;
      const node = h(
        'section',
        { class: 'group', id, 'aria-labelledby': `${id}-title` },
        h('h2', { id: `${id}-title` }, name, h('span', { class: 'hint', text: description })),
        ...own.map((one) => one.node),
      );
      return { own, node, count, link: h('li', {}, h('a', { href: `#${id}` }, name, count)) };
    })
    .filter(({ own }) => own.length > 0);
  const search = h('input', {
    type: 'search',
    id: 'search',
    placeholder: 'Search: login, rotate, 429',
    'aria-label': 'Search the API',
    autocomplete: 'off',
    spellcheck: 'false',
  });
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
    h(
      'nav',
      { 'aria-label': 'Parts of the API' },
      search,
      h(
        'ul',
        {},
        groups.map(({ link }) => link),
      ),
    ),
    h(
      'div',
      { class: 'operations' },
      h('h1', { text: 'API' }),
      h('p', { class: 'about' }, ...marked(api.info.description)),
      ...groups.map(({ node }) => node),
      none,
    ),
  );
  /** Opens the operation that the address names, even if the search hides it. */
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
  const text = [
    verb,
    path,
    about.summary,
    about.operationId,
    about.tags[0],
    ...Object.values(/** @type {Object<string, any>} */ (about.responses)).map(({ description }) => description),
  ]
    .join(' ')
    .toLowerCase();
  const node = h(
    'details',
    { class: 'card operation', id: about.operationId },
    h(
      'summary',
      {},
      h('span', { class: `verb ${verb}`, text: verb.toUpperCase() }),
      h(
        'span',
        { class: 'path' },
        ...path.split(/(\{[^}]+\})/).map((part) => (part.startsWith('{') ? h('i', { text: part }) : part)),
      ),
      h('span', { class: 'summary' }, ...marked(about.summary)),
    ),
  );
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
  return h(
    'div',
    { class: 'inside' },
    h('p', { text: about.description }),
    parameters.length > 0 &&
      part(
        'Parameters',
        h(
          'table',
          { class: 'fields' },
          h(
            'tbody',
            {},
            parameters.map((one) =>
              h(
                'tr',
                {},
                h('th', { scope: 'row', class: one.required && 'must', text: one.name }),
                h('td', {}, one.description, ' ', h('span', { class: 'kind', text: kind(one.schema) })),
              ),
            ),
          ),
        ),
      ),
    body &&
      part(
        `Body: ${Object.keys(body).join(' or ')}`,
        about.requestBody.description && h('p', { text: about.requestBody.description }),
        shape(api, body[media].schema),
      ),
    part(
      'Responses',
      h(
        'ul',
        { class: 'answers' },
        good.map(([status, { description, content }]) => {
          const schema = content?.['application/json']?.schema;
          return h('li', {}, h('b', { text: status }), h('div', {}, description, schema && shape(api, schema)));
        }),
      ),
    ),
    part(
      'Errors',
      h(
        'ul',
        { class: 'answers' },
        bad.map(([status, { description }]) =>
          h('li', {}, h('b', { class: 'bad', text: status }), h('div', {}, ...marked(description))),
        ),
      ),
    ),
    requestForm(api, verb, path, about, media),
  );
}
