// The Share dialog: restrictions, HTML, snapshots, and programs that sign tokens in five languages.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { backendSnippets } from '../../src/ui/assets/model/backend_snippets.js';
import { chartHtml, dashboardHtml, frameHtml, imageSnippets, imageUrl } from '../../src/ui/assets/model/share_html.js';
import {
  isOrigin,
  lifetimeOf,
  limitRules,
  originsOf,
  restrictionsOf,
  variableRules,
} from '../../src/ui/assets/model/share_policy.js';
import { laterParts, snapshotHtml, withoutQueries } from '../../src/ui/assets/model/share_snapshot.js';

const none = { maxRange: '', maxLookback: '', minStep: '' };
const HOSTILE = [
  "it's",
  '"quoted"',
  'back\\slash',
  '\\',
  "\\'",
  'line\nfeed',
  'return\r',
  'tab\t',
  '</script><script>alert(1)</script>',
  '<!--',
  ']]>',
  '${x}',
  '$x',
  '{$x}',
  '`tick`',
  '#{x}',
  '%s %d',
  '{{x}}',
  '\u2028\u2029',
  '\u0000\u0007\u007f',
  'é ß 漢字',
  '😀',
  '\u202eabc',
  '?>',
  '*/',
  '//',
  '__proto__',
  'constructor',
  '"""',
  "'''",
  '\\u0041',
  '\\x41',
  '\\N{DASH}',
  '\u00a0',
];

/** A generator of numbers below 1 (mulberry32). */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Tokens with hostile names and values in every place. */
function hostileTokens(seed, count) {
  const next = random(seed);
  const text = () =>
    Array.from({ length: 1 + Math.floor(next() * 3) }, () => HOSTILE[Math.floor(next() * HOSTILE.length)]).join('');
  return Array.from({ length: count }, () => ({
    org: text(),
    kid: text(),
    ttl: 60 + Math.floor(next() * 3600),
    ms: {
      dashboard: {
        uid: text(),
        locked: Object.fromEntries([
          [text(), text()],
          [text(), [text(), text()]],
          ['__proto__', { label: text(), values: [text()] }],
        ]),
        open: Object.fromEntries([
          [text(), null],
          ['0', [text()]],
        ]),
      },
      exprs: [text()],
      max_range_s: 3600,
    },
  }));
}

const claimsOf = ({ org, ttl, ms }) => ({ aud: 'ms-embed', org, iat: 1000, exp: 1000 + ttl, ms });
const programOf = (language, token) => backendSnippets(token).find(({ id }) => id === language).text;

/** Runs the program for Node with a signer that returns header and claims. */
async function runNode(token) {
  const program = programOf('node', token)
    .replace(/^import .*$/m, '')
    .replace('export function', 'return function');
  class SignJWT {
    constructor(claims) {
      this.claims = { ...claims };
    }
    setProtectedHeader(header) {
      this.header = header;
      return this;
    }
    setAudience(aud) {
      this.claims.aud = aud;
      return this;
    }
    setIssuedAt() {
      this.claims.iat = 1000;
      return this;
    }
    setExpirationTime(after) {
      this.claims.exp = 1000 + Number(/^(\d+)s$/.exec(after)[1]);
      return this;
    }
    sign() {
      return { header: this.header, claims: JSON.parse(JSON.stringify(this.claims)) };
    }
  }
  return new Function('SignJWT', 'process', program)(SignJWT, { env: { PROMLET_API_SECRET: 's' } })();
}

test('the program for Node signs exactly the restrictions, whatever their names and values are', async () => {
  const seed = 18;
  for (const token of hostileTokens(seed, 300)) {
    const { header, claims } = await runNode(token);
    const expected = JSON.parse(JSON.stringify(claimsOf(token)));
    assert.deepEqual(claims, expected, `seed ${seed}`);
    assert.equal(JSON.stringify(claims.ms), JSON.stringify(expected.ms), `seed ${seed}: __proto__ included`);
    assert.deepEqual(header, { alg: 'HS256', typ: 'JWT', kid: token.kid });
  }
});

const RUNNER = `
import json, os, sys, types
fake = types.ModuleType("jwt")
fake.encode = lambda claims, secret, algorithm, headers: [claims, secret, algorithm, headers]
sys.modules["jwt"] = fake
os.environ["PROMLET_API_SECRET"] = "s"
import time
time.time = lambda: 1000.5
results = []
for program in json.load(sys.stdin):
    names = {}
    exec(compile(program, "program", "exec"), names)
    results.append(names["embed_token"]())
json.dump(results, sys.stdout)
`;

test('the program for Python signs exactly the restrictions, whatever their names and values are', () => {
  const seed = 19;
  const tokens = hostileTokens(seed, 300);
  const input = JSON.stringify(tokens.map((token) => programOf('python', token)));
  const output = execFileSync('python3', ['-I', '-c', RUNNER], { input, encoding: 'utf8', maxBuffer: 1 << 26 });
  JSON.parse(output).forEach(([claims, secret, algorithm, headers], index) => {
    const expected = JSON.parse(JSON.stringify(claimsOf(tokens[index])));
    assert.equal(JSON.stringify(claims), JSON.stringify(expected), `seed ${seed}, token ${index}`);
    assert.deepEqual([secret, algorithm, headers], ['s', 'HS256', { kid: tokens[index].kid }]);
  });
});

/** Reads the literals of a language's double quotes by its documented rules; throws for any other escape. */
const READERS = {
  // https://www.php.net/manual/en/language.types.string.php#language.types.string.syntax.double
  php: {
    single: { n: '\n', r: '\r', t: '\t', '\\': '\\', $: '$', '"': '"' },
    code: /^u\{([0-9a-f]{1,6})\}/,
    bare: /[^"$]/u,
  },
  // https://go.dev/ref/spec#String_literals
  go: {
    single: { n: '\n', r: '\r', t: '\t', '\\': '\\', '"': '"' },
    code: /^(?:u([0-9a-f]{4})|U([0-9a-f]{8}))/,
    bare: /[^"\n]/u,
  },
  // https://doc.rust-lang.org/reference/tokens.html#string-literals
  rust: { single: { n: '\n', r: '\r', t: '\t', '\\': '\\', '"': '"' }, code: /^u\{([0-9a-f]{1,6})\}/, bare: /[^"\r]/u },
};

function stringsOf(language, program) {
  const { single, code, bare } = READERS[language];
  const found = [];
  for (let at = program.indexOf('"'); at >= 0; at = program.indexOf('"', at)) {
    let text = '';
    for (at += 1; program[at] !== '"';) {
      assert.ok(at < program.length, 'a string ends');
      if (program[at] === '\\') {
        const numbered = code.exec(program.slice(at + 1, at + 12));
        const plain = single[program[at + 1]];
        assert.ok(numbered || plain, `an escape of ${language}: ${program.slice(at, at + 6)}`);
        text += plain ?? String.fromCodePoint(parseInt(numbered[1] ?? numbered[2], 16));
        at += plain ? 2 : 1 + numbered[0].length;
      } else {
        const char = String.fromCodePoint(program.codePointAt(at));
        assert.match(char, bare, `a bare character of ${language}`);
        text += char;
        at += char.length;
      }
    }
    at += 1;
    found.push(text);
  }
  return found;
}

/** All texts of a value, names before values, in order. */
const textsOf = (value) => {
  if (typeof value === 'string') return [value];
  if (value === null || typeof value !== 'object') return [];
  return Array.isArray(value)
    ? value.flatMap(textsOf)
    : Object.entries(value).flatMap(([name, one]) => [name, ...textsOf(one)]);
};

test('string literals of PHP, Go and Rust read back as the names and values', () => {
  const seed = 20;
  for (const token of hostileTokens(seed, 300)) {
    for (const language of Object.keys(READERS)) {
      const found = stringsOf(language, programOf(language, token));
      const wanted = ['ms', ...textsOf(token.ms)];
      const from = found.lastIndexOf('ms');
      assert.ok(found.includes(token.org) && found.includes(token.kid), `seed ${seed} ${language}`);
      const start = found.findIndex((_, at) => wanted.every((text, index) => found[at + index] === text));
      assert.ok(
        start >= 0,
        `seed ${seed} ${language}: ${JSON.stringify(found.slice(from))} has ${JSON.stringify(wanted)}`,
      );
    }
  }
});

test('no program shows a control, a mark of the writing direction or a space that looks like another', () => {
  for (const token of hostileTokens(21, 50))
    for (const { text } of backendSnippets(token))
      assert.doesNotMatch(text.replace(/[\n\t]/g, ''), /[\p{C}\p{Zl}\p{Zp}\u00a0]/u);
});

test('the programs of five languages stay as they were read and tried', () => {
  const token = {
    org: 'acme',
    kid: 'ak_0123456789abcdef',
    ttl: 600,
    ms: {
      dashboard: {
        uid: 'node',
        locked: { tenant: 't42', host: { label: 'instance', values: ['a:9100', 'b:9100'] } },
        open: { route: ['/a', '/b'], zone: null },
      },
      max_range_s: 86400,
      origins: ['https://app.example.com'],
    },
  };
  const golden = readFileSync(new URL('share_programs.txt', import.meta.url), 'utf8');
  const written = (shown) =>
    backendSnippets(shown)
      .map(({ title, text }) => `=== ${title}\n${text}`)
      .join('');
  assert.equal(written(token), golden);
  assert.ok(!written({ ...token, ms: {} }).includes('ms:'), 'no restriction, no claim');
});

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
  assert.throws(() => originsOf('a.example'), /enter scheme and host/);
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

test('attributes hold any text, and none of it becomes markup', () => {
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
    const frame = frameHtml(server, { title: text, endpoint: text, lifetime: 600 });
    assert.equal(attributesOf(frame, 'iframe').title, text);
    const [, script] = /<script>([^]*)<\/script>\n$/.exec(frame);
    assert.ok(!script.includes('<'), script);
    const fetched = [];
    const fake = (url) => (fetched.push(url), { text: async () => 't' });
    new Function('fetch', 'document', 'setInterval', script)(fake, { getElementById: () => ({}) }, (run) =>
      run().catch(() => {}),
    );
    assert.deepEqual(fetched, [text]);
  }
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
  const source = 'export const a = "</script>", b = /<\\/SCRIPT>/, c = "<!-- x", d = "</SCRIPT >";';
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
  assert.deepEqual(Object.keys(imports), ['./embed-dashboard.more.js']);
  const loaded = imports['./embed-dashboard.more.js'].slice('data:text/javascript;base64,'.length);
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
