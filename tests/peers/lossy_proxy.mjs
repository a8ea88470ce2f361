// A proxy on loopback that counts what it passes on, and loses connections on demand.

import { connect, createServer } from 'node:net';

/** Starts a server on a free port of loopback. Returns the port. @param {import('node:net').Server} server */
export const listening = (server) =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

/**
 * Starts a proxy. `received` are the bytes of the server, heads included; `requests` the methods and paths that the
 * server has got, preflights included. `lose(true)` ends all connections and accepts none, `lose(false)` ends them.
 * @param {string} to URL of the server
 */
export async function lossyProxy(to) {
  const { hostname, port } = new URL(to);
  const sockets = new Set();
  let down = false;
  const tcp = createServer((client) => {
    if (down) return client.destroy();
    const server = connect(Number(port), hostname);
    server.on('data', (chunk) => (proxy.received += chunk.length));
    client.on('data', (chunk) => {
      for (const [, line] of chunk.toString('latin1').matchAll(/^([A-Z]+ \S+) HTTP\/1\.1\r$/gm)) proxy.requests.push(line);
    });
    for (const [own, other] of [
      [client, server],
      [server, client],
    ]) {
      sockets.add(own);
      own.pipe(other);
      own.on('error', () => other.destroy());
      own.on('close', () => {
        sockets.delete(own);
        other.destroy();
      });
    }
  });
  const proxy = {
    url: `http://127.0.0.1:${await listening(tcp)}`,
    received: 0,
    requests: /** @type {string[]} */ ([]),
    lose(isDown) {
      down = isDown;
      for (const socket of sockets) socket.destroy();
    },
    close() {
      proxy.lose(true);
      tcp.close();
    },
  };
  return proxy;
}
