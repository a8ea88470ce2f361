// Embed tokens as npm jose makes them, the good ones and what people get wrong. Speaks JSON on standard output.
//
//   node tokens.mjs keys FOLDER            makes key pairs, prints { alg: { pem, jwk } }, keeps the private ones
//   node tokens.mjs tokens FOLDER GIVEN    prints { name: token }; GIVEN is { org, hs: { kid, secret }, EdDSA: { kid }, ... }
import { createRequire } from 'node:module'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [, , step, folder, given] = process.argv
// The package is beside FOLDER, not beside this file.
const jose = await import(pathToFileURL(createRequire(join(folder, 'x.js')).resolve('jose')))
const ALGORITHMS = ['EdDSA', 'ES256', 'RS256']
const kept = join(folder, 'jose-keys.json')

if (step === 'keys') {
  const shown = {}
  const hidden = {}
  for (const alg of ALGORITHMS) {
    const { publicKey, privateKey } = await jose.generateKeyPair(alg, { extractable: true })
    shown[alg] = { pem: await jose.exportSPKI(publicKey), jwk: await jose.exportJWK(publicKey) }
    hidden[alg] = await jose.exportJWK(privateKey)
  }
  writeFileSync(kept, JSON.stringify(hidden))
  console.log(JSON.stringify(shown))
  process.exit(0)
}

const { org, hs, ...keys } = JSON.parse(given)
const hidden = JSON.parse(readFileSync(kept, 'utf8'))
const text = (secret) => new TextEncoder().encode(secret)
const now = Math.floor(Date.now() / 1000)
const plain = { org, ms: { match: ['customer="c42"'] } }

/** As the documentation says it, but for what `change` does to it. */
function token({ claims = plain, alg = 'HS256', kid = hs.kid, header = { alg, typ: 'JWT', kid }, key = text(hs.secret), change = (jwt) => jwt, aud = 'ms-embed' }) {
  const jwt = new jose.SignJWT(claims).setProtectedHeader(header).setIssuedAt().setExpirationTime('10m')
  return change(jwt.setAudience(aud)).sign(key)
}

const tokens = {
  good_HS256: await token({}),
  good_many_audiences: await token({ aud: ['other', 'ms-embed'] }),
  good_without_type: await token({ header: { alg: 'HS256', kid: hs.kid } }),
  good_with_more_claims: await token({ claims: { ...plain, name: 'Ada', roles: ['viewer'] } }),
  good_issuer: await token({ change: (jwt) => jwt.setIssuer(hs.kid).setSubject('viewer-42').setJti('1').setNotBefore(now) }),
  no_kid: await token({ header: { alg: 'HS256', typ: 'JWT' } }),
  kid_is_a_name: await token({ kid: 'website' }),
  kid_unknown: await token({ kid: 'ak_aaaaaaaaaaaaaaaa' }),
  no_audience: await new jose.SignJWT(plain).setProtectedHeader({ alg: 'HS256', kid: hs.kid }).setIssuedAt()
    .setExpirationTime('10m').sign(text(hs.secret)),
  other_audience: await token({ aud: 'https://example.com' }),
  no_organisation: await token({ claims: { ms: {} } }),
  other_organisation: await token({ claims: { ...plain, org: 'other' } }),
  no_expiry: await new jose.SignJWT(plain).setProtectedHeader({ alg: 'HS256', kid: hs.kid }).setAudience('ms-embed')
    .setIssuedAt().sign(text(hs.secret)),
  no_issued_at: await new jose.SignJWT(plain).setProtectedHeader({ alg: 'HS256', kid: hs.kid }).setAudience('ms-embed')
    .setExpirationTime('10m').sign(text(hs.secret)),
  milliseconds: await token({ change: (jwt) => jwt.setExpirationTime(Date.now() + 600_000) }),
  a_year: await token({ change: (jwt) => jwt.setExpirationTime('365 days') }),
  expired: await token({ change: (jwt) => jwt.setIssuedAt(now - 700).setExpirationTime(now - 100) }),
  not_yet: await token({ change: (jwt) => jwt.setNotBefore('5m') }),
  clock_ahead: await token({ change: (jwt) => jwt.setIssuedAt(now + 300) }),
  issuer_is_a_name: await token({ change: (jwt) => jwt.setIssuer('https://app.example.com') }),
  typo: await token({ claims: { org, ms: { matchs: ['customer="c42"'] } } }),
  restriction_beside: await token({ claims: { org, match: ['customer="c42"'] } }),
  restriction_as_text: await token({ claims: { org, ms: JSON.stringify(plain.ms) } }),
  restriction_null: await token({ claims: { org, ms: { match: null } } }),
  matcher_is_a_selector: await token({ claims: { org, ms: { match: ['{customer="c42"}'] } } }),
  matcher_with_or: await token({ claims: { org, ms: { match: ['customer="c42" or customer=~".*"'] } } }),
  other_secret: await token({ key: text(hs.secret.slice(0, -1) + '!') }),
  secret_without_prefix: await token({ key: text(hs.secret.slice(4)) }),
  secret_as_base64: await token({ key: Buffer.from(hs.secret, 'base64') }),
  HS512: await token({ alg: 'HS512', key: text(hs.secret) }),
  unsigned_without_kid: new jose.UnsecuredJWT(plain).setAudience('ms-embed').setIssuedAt().setExpirationTime('10m').encode(),
}
for (const alg of ALGORITHMS) {
  const key = await jose.importJWK(hidden[alg], alg)
  const other = (await jose.generateKeyPair(alg)).privateKey
  tokens[`good_${alg}`] = await token({ alg, kid: keys[alg].kid, key })
  tokens[`foreign_${alg}`] = await token({ alg, kid: keys[alg].kid, key: other })
  tokens[`kid_of_another_${alg}`] = await token({ alg, key })
  // The public key is not secret: a token signed with it as a secret must be refused.
  tokens[`confused_${alg}`] = await token({ kid: keys[alg].kid, key: text(keys[alg].pem) })
  tokens[`confused_trimmed_${alg}`] = await token({ kid: keys[alg].kid, key: text(keys[alg].pem.trim()) })
}
tokens.PS256_for_RS256 = await token({ alg: 'PS256', kid: keys.RS256.kid, key: await jose.importJWK(hidden.RS256, 'PS256') })
console.log(JSON.stringify(tokens))
