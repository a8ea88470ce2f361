// What an API key is for: its permissions, and snippets with the key filled in.

/**
 * @typedef {{id: string, text: string, about: string, name: string, scopes: string[]}} Purpose
 * @typedef {{id: string, text: string, file: string, code: string}} Snippet `file`: where the code
 *   belongs
 */

/** @type {Purpose[]} */
export const PURPOSES = [
  {
    id: 'prometheus',
    text: 'Prometheus',
    about: 'Prometheus or an agent sends samples by remote write.',
    name: 'prometheus',
    scopes: ['ingest'],
  },
  {
    id: 'otel',
    text: 'OpenTelemetry',
    about: 'A collector or an SDK sends metrics over OTLP.',
    name: 'otel-collector',
    scopes: ['ingest'],
  },
  {
    id: 'script',
    text: 'Script or program',
    about: 'Your own program writes samples over HTTP.',
    name: 'script',
    scopes: ['ingest'],
  },
  {
    id: 'read',
    text: 'Grafana or another reader',
    about: 'A program queries samples through the Prometheus API.',
    name: 'grafana',
    scopes: ['read'],
  },
  {
    id: 'embed',
    text: 'Charts on a web site',
    about: 'Your server signs tokens for the visitors of its pages.',
    name: 'website',
    scopes: ['embed'],
  },
];

/**
 * The snippets for the scopes of a key; those of the purpose come first.
 * @param {{base: string, secret: string, scopes: string[], purpose: string}} options `base` is the
 *   organisation's URL in the API
 * @returns {Snippet[]}
 */
export function keySnippets({ base, secret, scopes, purpose }) {
  const bearer = `-H 'Authorization: Bearer ${secret}'`;
  /** @type {(Snippet & {scope: string})[]} */
  const all = [
    {
      scope: 'ingest',
      id: 'prometheus',
      text: 'Prometheus',
      file: 'prometheus.yml',
      code: `remote_write:
  - url: ${base}/prometheus/api/v1/write
    authorization:
      credentials: ${secret}
`,
    },
    {
      scope: 'ingest',
      id: 'otel',
      text: 'OpenTelemetry Collector',
      file: 'the configuration of the collector',
      code: `exporters:
  otlphttp/promlet:
    metrics_endpoint: ${base}/otlp/v1/metrics
    headers:
      Authorization: "Bearer ${secret}"
service:
  pipelines:
    metrics:
      exporters: [otlphttp/promlet]
`,
    },
    {
      scope: 'ingest',
      id: 'script',
      text: 'curl',
      file: 'a shell',
      code: `echo 'my_first_metric{source="curl"} 42' |
  curl ${bearer} \\
    --data-binary @- '${base}/import'
`,
    },
    {
      scope: 'read',
      id: 'read',
      text: 'Grafana',
      file: 'a data source of the type Prometheus',
      code: `URL:      ${base}/prometheus
User:     grafana
Password: ${secret}
`,
    },
    {
      scope: 'read',
      id: 'query',
      text: 'curl',
      file: 'a shell',
      code: `curl -sG ${bearer} \\
  '${base}/prometheus/api/v1/query' \\
  --data-urlencode 'query=up'
`,
    },
    {
      scope: 'embed',
      id: 'embed',
      text: 'Embed token',
      file: 'your server, for each visitor',
      code: `curl -s ${bearer} \\
  -H 'Content-Type: application/json' -d '{"ttl_s":600}' \\
  '${base}/embed/tokens'
`,
    },
  ];
  const ranked = all.filter(({ scope }) => scopes.includes(scope));
  return [...ranked.filter(({ id }) => id === purpose), ...ranked.filter(({ id }) => id !== purpose)];
}
