// The address of this page's server.

/** The path prefix of this server: empty, or the path of the public URL behind a proxy. */
export const ROOT = new URL('..', import.meta.url).pathname.replace(/(\/assets\/[0-9a-f]{16})?\/$/, '');
