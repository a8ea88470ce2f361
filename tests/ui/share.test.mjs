// The Share dialog: restrictions, HTML, images and snapshots.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import {
  chartHtml,
  dashboardHtml,
  frameHtml,
  linkFrameHtml,
  imageSnippets,
  imageUrl,
} from '../../src/ui/assets/model/share_html.js';
import {
  isOrigin,
  lifetimeOf,
  limitRules,
  originsOf,
  restrictionsOf,
  variableRules,
} from '../../src/ui/assets/model/share_policy.js';
import { laterParts, snapshotHtml, withoutQueries } from '../../src/ui/assets/model/share_snapshot.js';
import { HOSTILE } from './share_samples.mjs';

const none = { maxRange: '', maxLookback: '', minStep: '' };
test('a variable is locked, open or fixed, with a label only if it has another name', () => {
  const choice = (name, access, values = [], label = name) => ({ name, access, values, label });
  assert.deepEqual(variableRules([choice('a', 'fixed', ['x'])]), {});
  assert.deepEqual(
    variableRules([
      choice('tenant', 'locked', ['t42']),
      choice('env', 'locked', ['prod', 'stage'], ''),
      choice('host', 'locked', ['a:9100'], 'instance'),
      choice('route', 'open', ['/a', '/b']),
      choice('zone', 'open'),
    ]),
    {
      locked: { tenant: 't42', env: ['prod', 'stage'], host: { label: 'instance', values: ['a:9100'] } },
      open: { route: ['/a', '/b'], zone: null },
    },
  );
  assert.deepEqual(variableRules([choice('zone', 'open'), choice('b', 'open')]), { open: ['zone', 'b'] });
  const proto = variableRules([choice('__proto__', 'locked', ['x'])]);
  assert.equal(JSON.stringify(proto), '{"locked":{"__proto__":"x"}}');
});

test('what the server refuses is refused in the form with its reason', () => {
  const many = (count, access) =>
    Array.from({ length: count }, (_, at) => ({ name: `v${at}`, access, values: ['x'], label: '' }));
  assert.throws(() => variableRules(many(17, 'locked')), /At most 16 variables can be locked/);
  assert.throws(() => variableRules(many(33, 'open')), /At most 32 variables can be open/);
  assert.equal(Object.keys(variableRules(many(16, 'locked')).locked).length, 16);
  const one = (values) => variableRules([{ name: 'a', access: 'locked', values, label: '' }]);
  assert.throws(() => one([]), /a: enter the value/);
  assert.throws(() => one(Array.from({ length: 65 }, String)), /at most 64 values/);
  assert.throws(() => one(['x'.repeat(257)]), /at most 256 characters/);
  assert.throws(() => one(['\ud800']), /not valid Unicode/);
  assert.deepEqual(one(['😀'.repeat(256)]), { locked: { a: '😀'.repeat(256) } });
  assert.throws(() => limitRules({ ...none, maxRange: 'soon' }), /Longest range: enter a duration/);
  assert.throws(() => limitRules({ ...none, minStep: '500ms' }), /Smallest step/);
  assert.deepEqual(limitRules({ maxRange: '1d', maxLookback: ' ', minStep: '15' }), {
    max_range_s: 86400,
    min_step_s: 15,
  });
  assert.throws(() => lifetimeOf('', 3600), /Lifetime: enter 60 to 3600/);
  assert.throws(() => lifetimeOf('2h', 3600), /Lifetime/);
  assert.throws(() => lifetimeOf('59', 3600), /Lifetime/);
  assert.equal(lifetimeOf('10m', 3600), 600);
});

test('origins are those that a browser sends, and a page gets advice', () => {
  for (const good of [
    '*',
    'https://app.example.com',
    'http://127.0.0.1:8000',
    'http://[::1]:80',
    `https://${'a'.repeat(255)}`,
  ])
    assert.ok(isOrigin(good), good);
  for (const bad of [
    '',
    'app.example.com',
    'https://',
    'https://A.example',
    'https://a/',
    'ftp://a',
    'https://a b',
    `https://${'a'.repeat(256)}`,
  ])
    assert.ok(!isOrigin(bad), bad);
  assert.deepEqual(originsOf(' https://a.example \n\n*\n'), ['https://a.example', '*']);
  assert.throws(() => originsOf('https://A.example/page?x'), /is no origin: enter https:\/\/a\.example\./);
  assert.throws(() => originsOf('a.example'), /enter scheme and host as/);
  assert.throws(() => originsOf('https://a.example\n'.repeat(33)), /At most 32/);
});

test('a token is restricted to the dashboard with its variables, or to the expression of the chart', () => {
  const limits = { ...none, minStep: '1m', origins: 'https://a.example' };
  assert.deepEqual(restrictionsOf({ uid: 'n', choices: [] }, limits), {
    dashboard: { uid: 'n' },
    min_step_s: 60,
    origins: ['https://a.example'],
  });
  const chart = { expr: 'up', matchers: ['tenant="a"'] };
  assert.deepEqual(restrictionsOf(chart, { ...none, origins: '' }), { exprs: ['up'], match: ['tenant="a"'] });
});

/** The attributes of the first element with this tag, decoded. */
function attributesOf(html, tag) {
  const [, inner] = new RegExp(`<${tag}\\s([^<>]*)>`).exec(html);
  return Object.fromEntries(
    [...inner.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, name, value]) => [
      name,
      value.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code)),
    ]),
  );
}

test('attributes hold any text, and none of it becomes markup', async () => {
  const server = { server: 'https://m.example/promlet', org: 'acme' };
  for (const text of HOSTILE) {
    const html = chartHtml(server, { expr: text, range: '1h', 'token-endpoint': text });
    assert.equal(html.match(/</g).length, 4, html);
    assert.deepEqual(attributesOf(html, 'metric-chart'), {
      org: 'acme',
      expr: text,
      range: '1h',
      'token-endpoint': text,
    });
    const frame = frameHtml(server, { title: text, endpoint: text, lifetime: 600, attributes: { from: text, to: '' } });
    assert.equal(attributesOf(frame, 'iframe').title, text);
    const { searchParams } = new URL(attributesOf(frame, 'iframe').src);
    assert.deepEqual(
      [...searchParams],
      [
        ['token', 'TOKEN'],
        ['from', text.toWellFormed()],
      ],
    );
    const [, script] = /<script>([^]*)<\/script>\n$/.exec(frame);
    assert.ok(!script.includes('<'), script);
    const fetched = [];
    const fake = (url) => (fetched.push(url), { text: async () => 't' });
    const sent = [];
    const shown = { contentWindow: { postMessage: (message, origin) => sent.push([message, origin]) }, height: '600' };
    const runs = {};
    new Function('fetch', 'document', 'setInterval', 'addEventListener', script)(
      fake,
      { getElementById: () => shown },
      (run) => (runs.renew = run),
      (type, run) => (runs[type] = run),
    );
    await runs.renew();
    assert.deepEqual(fetched, [text]);
    assert.deepEqual(sent, [[{ type: 'promlet-token', token: 't' }, 'https://m.example']]);
    runs.message({ source: {}, data: { type: 'promlet-height', height: 9 } });
    assert.equal(shown.height, '600', 'only the frame says its height');
    runs.message({ source: shown.contentWindow, data: { type: 'promlet-height', height: 900 } });
    assert.equal(shown.height, 900);
  }
  const link = linkFrameHtml({ title: 'a "b"', url: 'https://m.example/share?link=mpl_x' });
  assert.equal(attributesOf(link, 'iframe').title, 'a "b"');
  const html = dashboardHtml(server, { uid: 'node', panel: 4, from: 'now-6h', to: '', live: undefined });
  assert.equal(
    html,
    '<script type="module" src="https://m.example/promlet/embed-dashboard.js"></script>\n' +
      '<metric-dashboard org="acme" uid="node" panel="4" from="now-6h"></metric-dashboard>\n',
  );
});

test('lines that show an image keep its address and its title apart', () => {
  const server = { server: 'https://m.example', org: 'a b' };
  const url = imageUrl(server, 'svg', [
    ['expr', 'a)b "c"'],
    ['width', 800],
    ['title', ''],
    ['var-x', 'a'],
    ['var-x', 'b'],
  ]);
  assert.equal(url, 'https://m.example/api/v1/orgs/a%20b/render.svg?expr=a%29b+%22c%22&width=800&var-x=a&var-x=b');
  for (const title of HOSTILE) {
    const lines = Object.fromEntries(imageSnippets(url, title).map(({ id, text }) => [id, text]));
    assert.match(lines.markdown, /^!\[(?:[^\\[\]\n]|\\.)*\]\([^()\s]+\)\n$/);
    assert.equal(attributesOf(lines.html, 'img').src, url);
    assert.equal(attributesOf(lines.html, 'img').alt, title.trim() || 'Chart');
    assert.equal(JSON.parse(lines.slack).image_url, url);
  }
});

test('a snapshot holds any data without ending its script, and permits exactly its scripts', async () => {
  const digest = async (text) => createHash('sha256').update(text).digest('base64');
  const answers = Object.fromEntries(HOSTILE.map((text) => [text, { status: 'success', data: text }]));
  const data = { view: { title: HOSTILE.join(' ') }, answers, range: { from: 0, to: 1 }, selections: {} };
  const source = 'const v = "?v=0123abcd"; export const a = "</script>", b = /<\\/SCRIPT>/, c = "<!-- x", d = "</SCRIPT >";';
  const later = 'export const add = "</script> é 漢";'.repeat(5000);
  const parts = [['embed-dashboard.more.js', later]];
  const html = await snapshotHtml({ title: '</title><b>', script: source, parts, data, digest });
  const scripts = [...html.matchAll(/<script([^>]*)>([^]*?)<\/script/gi)].map(([, kind, text]) => ({ kind, text }));
  assert.deepEqual(
    scripts.map(({ kind }) => kind),
    [' type="application/json" id="snapshot"', ' type="importmap"', ' type="module"', ' type="module"'],
  );
  assert.deepEqual(JSON.parse(scripts[0].text), data);
  const { imports } = JSON.parse(scripts[1].text);
  assert.deepEqual(Object.keys(imports), ['./embed-dashboard.more.js?v=0123abcd']);
  const loaded = imports['./embed-dashboard.more.js?v=0123abcd'].slice('data:text/javascript;base64,'.length);
  assert.equal(Buffer.from(loaded, 'base64').toString('utf8'), later);
  assert.ok(!html.includes('<!--') && !html.includes('<b>') && !/[\u2028\u2029]/.test(scripts[0].text));
  const names = new Function(`${scripts[2].text.replace('export ', '')} return [a, String(b), c, d];`)();
  assert.deepEqual(names, ['</script>', '/<\\/SCRIPT>/', '<!-- x', '</SCRIPT >']);
  const policy = attributesOf(html, 'meta http-equiv="Content-Security-Policy"').content;
  const hashes = [...policy.matchAll(/'sha256-([^']+)'/g)].map(([, hash]) => hash);
  assert.deepEqual(hashes, await Promise.all(scripts.slice(1).map(({ text }) => digest(text))));
  assert.ok(policy.startsWith("default-src 'none'; ") && !policy.includes('connect-src'));
  assert.doesNotMatch(policy, /script-src[^;]*unsafe/);
  const plain = await snapshotHtml({ title: '', script: '', parts: [], data, digest: null });
  assert.ok(plain.includes("script-src 'unsafe-inline' data:;"), 'without TLS the browser has no digest');
});

test('the files that the bundle loads later are found by their names, each once', () => {
  const script =
    "const $where={'panels/a.js':['embed-dashboard.plots.js',1],b:['embed-dashboard.plots.js',2],c:['embed-dashboard.more.js',3]}";
  assert.deepEqual(laterParts(script), ['embed-dashboard.plots.js', 'embed-dashboard.more.js']);
  assert.deepEqual(laterParts('embed-dashboard.js'), []);
});

test('a snapshot keeps what panels show, and no text of a query', () => {
  const answer = {
    status: 'success',
    data: { result: [] },
    warnings: ['w'],
    query: { expr: 'up' },
    stats: {},
    expr: 'up',
  };
  const snapshot = { view: 1, answers: { '4:A': answer }, range: { from: 1, to: 2 }, selections: { a: ['b'] } };
  assert.deepEqual(withoutQueries(snapshot), {
    ...snapshot,
    answers: { '4:A': { status: 'success', data: { result: [] }, warnings: ['w'] } },
  });
});
