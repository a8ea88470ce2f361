// A real OpenID provider for tests/peers_oidc.rs: npm's oidc-provider, on loopback.
//
//   node oidc_provider.mjs MODULE PORT REDIRECT_URI
//
// Its development pages accept any name; a name that begins with "unverified" has an address that was not
// verified. "ready" on standard output says that it listens.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [module, port, redirectUri] = process.argv.slice(2);
const found = createRequire(pathToFileURL(module + '/')).resolve('oidc-provider');
const { default: Provider } = await import(pathToFileURL(found));

const client = {
  client_id: 'promlet',
  client_secret: 'a secret with spaces & signs',
  redirect_uris: [redirectUri],
  grant_types: ['authorization_code'],
  response_types: ['code'],
};
const person = (_context, id) => ({
  accountId: id,
  claims: () => ({ sub: id, name: id, email: `${id}@example.com`, email_verified: !id.startsWith('unverified') }),
});
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [client],
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'] },
  features: { devInteractions: { enabled: true } },
  findAccount: person,
  pkce: { required: () => true },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
