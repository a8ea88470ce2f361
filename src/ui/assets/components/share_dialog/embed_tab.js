// The tab Embed: a token's restrictions, the HTML of the page, and the program that signs the token.

import { h } from '../../chart/dom.js';
import { ROOT } from '../../client/server.js';
import { backendSnippets } from '../../model/backend_snippets.js';
import { errorText } from '../../model/error_text.js';
import { chartHtml, dashboardHtml, frameHtml } from '../../model/share_html.js';
import { lifetimeOf, linesOf, restrictionsOf } from '../../model/share_policy.js';
import { snippetChoice } from '../snippet_choice.js';
import { limitFields, linesField, selectField, textField, variableFields } from './fields.js';
import { keyChoice } from './key_choice.js';
import { panelOptions } from './link_tab.js';
import { preview } from './preview.js';

/**
 * @typedef {import('./subject.js').Subject} Subject
 * @typedef {{ms: Object<string, any>, lifetime: number, attributes: Object<string, string>, endpoint: string}} Embed
 */

/** Stands for the id of the key while none is chosen. */
const NO_KEY = 'YOUR_KEY_ID';
/** The longest lifetime while no key is chosen, in seconds. */
const LIFETIME_MAX_S = 86_400;

/** The range of the element. @param {Subject} subject @returns {Object<string, string>} */
function rangeOf({ range: { from, to, raw }, dashboard }) {
  if (dashboard) return { from: String(raw.from), to: String(raw.to) };
  const relative = /^now-(\w+)$/.exec(String(raw.from));
  if (relative && raw.to === 'now') return { range: relative[1] };
  return { start: String(Math.floor(from / 1000)), end: String(Math.ceil(to / 1000)) };
}

/** @param {Subject} subject */
export function embedTab(subject) {
  const { org, role, dashboard, chart } = subject;
  const key = keyChoice({ org, role, changed: () => show() });
  const panel =
    dashboard &&
    selectField(
      'What is embedded',
      panelOptions(dashboard),
      dashboard.panel,
      'A token grants all panels of the dashboard, whichever the page shows.',
    );
  const variables = dashboard && variableFields(dashboard.variables);
  const matchers =
    chart &&
    linesField('Label matchers', 'match', '', 'One per line, such as tenant="a". Every series must match all of them.');
  const limits = limitFields();
  const origins = linesField(
    'Origins',
    'origins',
    '',
    'Pages that may use the token: one origin (scheme and host) per line. Without any, those of the key.',
  );
  const lifetime = textField(
    'Lifetime of a token',
    'lifetime',
    { value: '10m' },
    'Such as 10m; the page gets the next one.',
  );
  const endpoint = textField(
    'Where your site returns tokens',
    'endpoint',
    { value: '/metrics-token' },
    'A path of your site that runs the program below for its visitor.',
  );
  const alert = h('p', { class: 'alert', role: 'alert' });
  const page = snippetChoice('Where the chart is shown');
  const backend = snippetChoice('Language of your backend');
  const json = h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Restrictions' });

  /** The embed that the form describes. @returns {Embed} @throws {Error} */
  function read() {
    const given = { ...limits.limits(), origins: origins.value() };
    const ms = dashboard
      ? restrictionsOf({ uid: dashboard.uid, choices: variables?.choices() ?? [] }, given)
      : restrictionsOf({ expr: chart?.expr ?? '', matchers: linesOf(matchers?.value() ?? '') }, given);
    const shown = panel?.select.value ?? '';
    return {
      ms,
      lifetime: lifetimeOf(lifetime.value(), key.key()?.longest ?? LIFETIME_MAX_S),
      attributes: dashboard
        ? { uid: dashboard.uid, panel: shown, ...rangeOf(subject), refresh: dashboard.refresh, hide: shown && 'title' }
        : { expr: chart?.expr ?? '', ...rangeOf(subject), unit: chart?.unit ?? '' },
      endpoint: endpoint.value().trim(),
    };
  }

  const tried = preview(() => {
    const signing = key.key();
    const embed = signing && attemptRead();
    if (!signing || !embed) return null;
    const attributes = Object.fromEntries(Object.entries(embed.attributes).filter(([, value]) => value !== ''));
    const tag = dashboard ? 'metric-dashboard' : 'metric-chart';
    return { org, kid: signing.id, longest: signing.longest, ms: embed.ms, tag, attributes: { org, ...attributes } };
  });

  /** The result of `read`; null if the form is invalid. */
  function attemptRead() {
    try {
      return read();
    } catch {
      return null;
    }
  }

  const about = h('p', { class: 'hint' });
  const results = h(
    'div',
    { class: 'stack' },
    h('h3', { text: '1. Your page' }),
    page.node,
    h('h3', { text: '2. Your backend' }),
    about,
    backend.node,
    h('details', {}, h('summary', { text: 'The restrictions as JSON (claim ms)' }), json),
    h('h3', { text: '3. Try it' }),
    tried.node,
  );

  function show() {
    alert.textContent = '';
    tried.update();
    try {
      const { ms, lifetime: ttl, attributes, endpoint: url } = read();
      // The token names the dashboard.
      const { uid: _, ...shown } = attributes;
      const server = { server: `${location.origin}${ROOT}`, org };
      const given = { ...attributes, 'token-endpoint': url };
      const element = dashboard ? dashboardHtml(server, given) : chartHtml(server, given);
      page.show([
        { id: 'element', title: 'Element', note: 'In the HTML of your page.', text: element },
        ...(dashboard
          ? [
              {
                id: 'frame',
                title: 'Frame',
                note: 'Where no script of ours may run. Your backend writes the first token in place of TOKEN.',
                text: frameHtml(server, { title: dashboard.title, endpoint: url, lifetime: ttl, attributes: shown }),
              },
            ]
          : []),
      ]);
      backend.show(backendSnippets({ org, kid: key.key()?.id ?? NO_KEY, ttl, ms }));
      const locked = ms.dashboard?.locked ? ' Replace locked values by those of the visitor.' : '';
      about.textContent = `It signs a token for each visitor with the secret of the key, which stays there.${locked}`;
      json.textContent = JSON.stringify(ms, null, 2);
      results.hidden = false;
    } catch (error) {
      alert.textContent = errorText(error);
      results.hidden = true;
    }
  }

  const settings = h(
    'div',
    { class: 'stack' },
    key.node,
    panel?.node,
    variables && h('details', { open: true }, h('summary', { text: 'Variables' }), variables.node),
    matchers?.node,
    h(
      'details',
      {},
      h('summary', { text: 'Limits and origins' }),
      h('div', { class: 'stack' }, limits.node, origins.node),
    ),
    h('div', { class: 'settings' }, lifetime.node, endpoint.node),
    alert,
  );
  for (const event of ['input', 'change']) settings.addEventListener(event, show);
  show();
  return h('div', { class: 'stack' }, settings, results);
}
