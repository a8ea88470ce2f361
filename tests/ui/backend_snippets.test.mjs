// Programs of the Share dialog that sign embed tokens, in five languages.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { backendSnippets } from '../../src/ui/assets/model/backend_snippets.js';
import { HOSTILE, random } from './share_samples.mjs';

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

test('in PHP, a map whose names are numbers stays a map in JSON', () => {
  const php = (open) => programOf('php', { org: 'a', kid: 'k', ttl: 60, ms: { dashboard: { uid: 'u', open } } });
  assert.match(php({ 0: null, 17: ['x'] }), /"open" => \(object\) \[\n/);
  assert.match(php({ 0: null, route: ['x'] }), /"open" => \[\n/);
});
