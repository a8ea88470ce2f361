// Programs for a backend that sign embed tokens: Node, Python, PHP, Go and Rust.

/**
 * @typedef {import('./share_policy.js').Json} Json
 * @typedef {{org: string, kid: string, ttl: number, ms: Object<string, Json>}} Token `ttl` in seconds; an
 *   empty `ms` restricts nothing
 * @typedef {{id: string, title: string, note: string, text: string}} BackendSnippet
 */

/** The environment variable with the secret of the key, in all languages. */
export const SECRET = 'PROMLET_API_SECRET';

/**
 * Characters that a string literal shows as an escape: controls, formats such as marks of the writing
 * direction, line separators, and spaces that look like others.
 */
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/**
 * A writer of string literals in double quotes.
 * @param {Object<string, string>} escapes by character
 * @param {(code: number) => string} escape of another code point
 * @returns {(text: string) => string}
 */
const literal = (escapes, escape) => (text) =>
  `"${Array.from(text, (char) => {
    if (Object.hasOwn(escapes, char)) return escapes[char];
    return HIDDEN.test(char) ? escape(/** @type {number} */ (char.codePointAt(0))) : char;
  }).join('')}"`;

const hex = (/** @type {number} */ code, /** @type {number} */ digits) => code.toString(16).padStart(digits, '0');
const COMMON = { '\\': '\\\\', '"': '\\"', '\n': '\\n', '\r': '\\r', '\t': '\\t' };
/** `\u` with four digits, or `\U` with eight. @param {number} code */
const long = (code) => (code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`);

/** @param {string} text */
const javascriptString = (text) =>
  `'${literal({ ...COMMON, '"': '"', "'": "\\'" }, (code) => `\\u{${hex(code, 1)}}`)(text).slice(1, -1)}'`;

/**
 * The words of a language for JSON: `list` and `map` are the texts before the first and after the last
 * member, `entry` is one member of a map.
 * @typedef {{string: (text: string) => string, none: string, indent: string,
 *   list: [string, string], map: (keys: string[]) => [string, string],
 *   entry: (name: string, value: string) => string}} Words
 */

/** @type {Words} */
const JAVASCRIPT = {
  string: javascriptString,
  none: 'null',
  indent: '  ',
  list: ['[', ']'],
  map: () => ['{', '}'],
  entry: (name, value) => {
    // In an object literal, __proto__ sets the prototype unless its name is computed.
    if (name === '__proto__') return `['__proto__']: ${value}`;
    return `${/^[A-Za-z_]\w*$/.test(name) ? name : javascriptString(name)}: ${value}`;
  },
};

const pythonString = literal(COMMON, long);
/** @type {Words} */
const PYTHON = {
  string: pythonString,
  none: 'None',
  indent: '    ',
  list: ['[', ']'],
  map: () => ['{', '}'],
  entry: (name, value) => `${pythonString(name)}: ${value}`,
};

const phpString = literal({ ...COMMON, $: '\\$' }, (code) => `\\u{${hex(code, 1)}}`);
/** @type {Words} */
const PHP = {
  string: phpString,
  none: 'null',
  indent: '    ',
  list: ['[', ']'],
  // An array whose names are numbers, or an empty one, would become a list in JSON.
  map: (keys) => (keys.every((key) => /^\d+$/.test(key)) ? ['(object) [', ']'] : ['[', ']']),
  entry: (name, value) => `${phpString(name)} => ${value}`,
};

const goString = literal(COMMON, long);
/** @type {Words} */
const GO = {
  string: goString,
  none: 'nil',
  indent: '\t',
  list: ['[]any{', '}'],
  map: () => ['map[string]any{', '}'],
  entry: (name, value) => `${goString(name)}: ${value}`,
};

const rustString = literal(COMMON, (code) => `\\u{${hex(code, 1)}}`);
/** @type {Words} */
const RUST = {
  string: rustString,
  none: 'null',
  indent: '    ',
  list: ['[', ']'],
  map: () => ['{', '}'],
  entry: (name, value) => `${rustString(name)}: ${value}`,
};

/** A list or a map is written on one line up to this many characters. */
const LINE_MAX = 60;

/**
 * A value as an expression of a language.
 * @param {Words} words
 * @param {Json} value
 * @param {string} before indentation of the line that it begins on
 * @returns {string}
 */
function expression(words, value, before) {
  if (value === null) return words.none;
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return words.string(value);
  const inner = before + words.indent;
  const isList = Array.isArray(value);
  const [open, close] = isList ? words.list : words.map(Object.keys(value));
  const members = isList
    ? value.map((one) => expression(words, one, inner))
    : Object.entries(value).map(([name, one]) => words.entry(name, expression(words, one, inner)));
  const line = members.join(', ');
  if (members.length === 0) return open + close;
  if (isList && line.length <= LINE_MAX && !line.includes('\n')) return open + line + close;
  return `${open}\n${members.map((one) => `${inner}${one},\n`).join('')}${before}${close}`;
}

/**
 * The claim `ms` as a member of the claims; empty without restrictions.
 * @param {Words} words
 * @param {Token} token
 * @param {string} before indentation
 */
const restrictions = (words, { ms }, before) =>
  Object.keys(ms).length === 0 ? '' : `${before}${words.entry('ms', expression(words, ms, before))},\n`;

/** The first lines of a program. Lines of this module that begin with `import` are its own. @param {string[]} all */
const head = (...all) => all.join('\n');

const NODE_HEAD = head('// npm install jose', "import { SignJWT } from 'jose';");

/** @param {Token} token */
const node = (token) => `${NODE_HEAD}

const secret = new TextEncoder().encode(process.env.${SECRET});

export function embedToken() {
  const claims = {
    org: ${javascriptString(token.org)},
${restrictions(JAVASCRIPT, token, '    ')}  };
  return new SignJWT(claims)
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT', kid: ${javascriptString(token.kid)} })
    .setAudience('ms-embed')
    .setIssuedAt()
    .setExpirationTime('${token.ttl}s')
    .sign(secret);
}
`;

const PYTHON_HEAD = head('# pip install PyJWT', 'import os', 'import time', '', 'import jwt');

/** @param {Token} token */
const python = (token) => `${PYTHON_HEAD}


def embed_token():
    now = int(time.time())
    claims = {
        "aud": "ms-embed",
        "org": ${pythonString(token.org)},
        "iat": now,
        "exp": now + ${token.ttl},
${restrictions(PYTHON, token, '        ')}    }
    headers = {"kid": ${pythonString(token.kid)}}
    return jwt.encode(claims, os.environ["${SECRET}"], algorithm="HS256", headers=headers)
`;

/** @param {Token} token */
const php = (token) => `<?php
// No package is needed.

function embed_token(): string
{
    $now = time();
    $header = ["alg" => "HS256", "typ" => "JWT", "kid" => ${phpString(token.kid)}];
    $claims = [
        "aud" => "ms-embed",
        "org" => ${phpString(token.org)},
        "iat" => $now,
        "exp" => $now + ${token.ttl},
${restrictions(PHP, token, '        ')}    ];
    $encoded = fn (string $bytes) => rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
    $json = fn (array $part) => $encoded(json_encode($part, JSON_THROW_ON_ERROR));
    $signed = $json($header) . '.' . $json($claims);
    return $signed . '.' . $encoded(hash_hmac('sha256', $signed, getenv('${SECRET}'), true));
}
`;

const GO_HEAD = head(
  '// go get github.com/golang-jwt/jwt/v5',
  'package embed',
  '',
  'import (',
  '\t"os"',
  '\t"time"',
  '',
  '\t"github.com/golang-jwt/jwt/v5"',
  ')',
);

/** @param {Token} token */
const go = (token) => `${GO_HEAD}

func Token() (string, error) {
	now := time.Now().Unix()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"aud": "ms-embed",
		"org": ${goString(token.org)},
		"iat": now,
		"exp": now + ${token.ttl},
${restrictions(GO, token, '\t\t')}	})
	token.Header["kid"] = ${goString(token.kid)}
	return token.SignedString([]byte(os.Getenv("${SECRET}")))
}
`;

/** @param {Token} token */
const rust = (token) => `// cargo add serde_json
// cargo add jsonwebtoken@11 --features rust_crypto
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

pub fn embed_token() -> Result<String, Box<dyn std::error::Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some(${rustString(token.kid)}.to_owned());
    let claims = json!({
        "aud": "ms-embed",
        "org": ${rustString(token.org)},
        "iat": now,
        "exp": now + ${token.ttl},
${restrictions(RUST, token, '        ')}    });
    let secret = std::env::var("${SECRET}")?;
    Ok(encode(&header, &claims, &EncodingKey::from_secret(secret.as_bytes()))?)
}
`;

/**
 * The program of each language that signs the token with HS256.
 * @param {Token} token
 * @returns {BackendSnippet[]}
 */
export function backendSnippets(token) {
  return [
    { id: 'node', title: 'Node', note: 'With the package jose.', text: node(token) },
    { id: 'python', title: 'Python', note: 'With the package PyJWT.', text: python(token) },
    { id: 'php', title: 'PHP', note: 'Without a package.', text: php(token) },
    { id: 'go', title: 'Go', note: 'With the module golang-jwt.', text: go(token) },
    { id: 'rust', title: 'Rust', note: 'With the crate jsonwebtoken.', text: rust(token) },
  ];
}
