// Snippets that use an API key, ready to paste: they send samples, query them, and sign tokens.

/**
 * @typedef {{title: string, text: string, note?: string}} Snippet
 * @typedef {{id: string, label: string, snippets: Snippet[]}} Source
 * @typedef {{id: string, text: string, about: string, name: string, scopes: string[]}} Purpose what an API
 *   key is for; `name` is the name that it gets
 */

/** The placeholder of a secret that the page does not know. */
export const NO_KEY = 'YOUR_INGEST_KEY';

/** A secret that a line of a shell script or of YAML takes as it is. */
const PLAIN = /^[\w.-]{1,200}$/;

/**
 * Whether a text has the form of an ingest key: only such a text is put into a snippet.
 * @param {string} text
 */
export const isKey = (text) => PLAIN.test(text);

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
    id: 'opentelemetry',
    text: 'OpenTelemetry',
    about: 'A collector or an SDK sends metrics over OTLP.',
    name: 'otel-collector',
    scopes: ['ingest'],
  },
  {
    id: 'curl',
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
  {
    id: 'alerting',
    text: 'Rules and silences',
    about: 'mimirtool, amtool or Grafana lists and changes them.',
    name: 'alerting',
    scopes: ['read', 'alerting'],
  },
];

/**
 * Ways to send samples, with a snippet for each program.
 * @param {{base: string, key: string}} options `base` is the URL of the organisation in the API,
 *   without a slash at its end; `key` is the secret of an ingest key, or empty
 * @returns {Source[]}
 */
export function sources({ base, key }) {
  const secret = isKey(key) ? key : NO_KEY;
  const bearer = `Authorization: Bearer ${secret}`;
  const piped = (/** @type {string} */ body, /** @type {string} */ path) =>
    `${body} |\n  curl -H '${bearer}' --data-binary @- \\\n  '${base}${path}'\n`;
  return [
    {
      id: 'prometheus',
      label: 'Prometheus',
      snippets: [
        {
          title: 'prometheus.yml',
          note: 'Add this to the configuration of Prometheus or of its agent, and reload it.',
          text: `remote_write:
  - url: ${base}/prometheus/api/v1/write
    protobuf_message: io.prometheus.write.v2.Request
    send_native_histograms: true
    authorization:
      credentials: ${secret}
`,
        },
        {
          title: 'Prometheus before version 3',
          note: 'Remote write 1.0, which Grafana Alloy, vmagent and other agents send as well.',
          text: `remote_write:
  - url: ${base}/prometheus/api/v1/write
    authorization:
      credentials: ${secret}
`,
        },
      ],
    },
    {
      id: 'opentelemetry',
      label: 'OpenTelemetry',
      snippets: [
        {
          title: 'OpenTelemetry Collector',
          note: 'A whole config.yaml. If yours has a pipeline of metrics, add the exporter and its name to it.',
          text: `receivers:
  otlp:
    protocols:
      grpc:
        endpoint: localhost:4317
      http:
        endpoint: localhost:4318

processors:
  batch: {}

exporters:
  otlphttp/promlet:
    endpoint: ${base}/otlp
    headers:
      Authorization: Bearer ${secret}

service:
  pipelines:
    metrics:
      receivers: [otlp]
      processors: [batch]
      exporters: [otlphttp/promlet]
`,
        },
        {
          title: 'SDK of an application',
          note: 'Set these variables where the application starts.',
          text: `export OTEL_METRICS_EXPORTER=otlp
export OTEL_EXPORTER_OTLP_ENDPOINT='${base}/otlp'
export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
export OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer%20${secret}'
export OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative
`,
        },
      ],
    },
    {
      id: 'influx',
      label: 'Influx',
      snippets: [
        {
          title: 'Telegraf',
          note: 'The bucket becomes the label db. Any organization will do.',
          text: `[[outputs.influxdb_v2]]
  urls = ["${base}/influx"]
  token = "${secret}"
  organization = "promlet"
  bucket = "telegraf"
`,
        },
        {
          title: 'Line protocol',
          note: 'For programs that write to InfluxDB 1 or 2: each field is a metric, here room_temperature.',
          text: `echo 'room,floor=2 temperature=21.5' |
  curl -H 'Authorization: Token ${secret}' --data-binary @- \\
  '${base}/influx/write?db=lab'
`,
        },
      ],
    },
    {
      id: 'curl',
      label: 'curl',
      snippets: [
        {
          title: 'Prometheus text',
          note: 'What a /metrics endpoint returns. Samples without a time get the current time.',
          text: piped(`printf 'temperature_celsius{city="Oslo"} 3.5\\n'`, '/import'),
        },
        {
          title: 'JSON lines',
          note: 'One series a line, with times in milliseconds.',
          text: piped(
            `echo '{"metric":{"__name__":"temperature_celsius","city":"Rome"},' \\\n` +
              `  '"values":[15],"timestamps":['$(date +%s)'000]}'`,
            '/import/jsonl',
          ),
        },
        {
          title: 'CSV',
          note: 'The parameter format names the columns by number.',
          text: piped(
            `printf 'Paris,9.5\\n'`,
            '/import/csv?format=1:label:city,2:metric:temperature_celsius',
          ),
        },
      ],
    },
  ];
}

/** Targets that the server collects samples from by itself, without a key. @type {Snippet} */
export const SCRAPE = {
  title: 'scrape_configs',
  note: 'This server collects the samples by itself, as Prometheus does. No key is needed.',
  text: `scrape_configs:
  - job_name: app
    scrape_interval: 15s
    static_configs:
      - targets: ['app.example:8080']
`,
};

/**
 * Snippets for readers and for embed tokens, by the purpose of a key.
 * @param {{base: string, key: string}} options as of `sources`
 * @returns {(Snippet & {id: string, scope: string})[]}
 */
function readers({ base, key }) {
  const bearer = `-H 'Authorization: Bearer ${key}'`;
  return [
    {
      id: 'read',
      scope: 'read',
      title: 'Grafana',
      note: 'Add a data source of the type Prometheus.',
      text: `URL:      ${base}/prometheus
User:     grafana
Password: ${key}
`,
    },
    {
      id: 'query',
      scope: 'read',
      title: 'curl',
      text: `curl -sG ${bearer} \\
  '${base}/prometheus/api/v1/query' \\
  --data-urlencode 'query=up'
`,
    },
    {
      id: 'alerting',
      scope: 'alerting',
      title: 'mimirtool',
      note: 'For amtool, the URL ends with /alertmanager, and the key is a bearer token.',
      text: `MIMIR_API_KEY=${key} mimirtool rules sync rules.yml \\
  --address='${base}' --id='${base.split('/').pop()}'
`,
    },
    {
      id: 'embed',
      scope: 'embed',
      title: 'Embed token',
      note: 'Your server asks for a token for each visitor. The Share dialog of a dashboard shows how it signs one.',
      text: `curl -s ${bearer} \\
  -H 'Content-Type: application/json' -d '{"ttl_s":600}' \\
  '${base}/embed/tokens'
`,
    },
  ];
}

/**
 * The snippets for the scopes of a key, one for each way to use it; that of the purpose comes first.
 * @param {{base: string, key: string, scopes: string[], purpose: string}} options as of `sources`;
 *   `purpose` is the id of one of PURPOSES
 * @returns {(Snippet & {id: string})[]}
 */
export function keySnippets({ base, key, scopes, purpose }) {
  const sending = sources({ base, key }).map(({ id, snippets }) => ({ ...snippets[0], id, scope: 'ingest' }));
  const all = [...sending, ...readers({ base, key })].filter(({ scope }) => scopes.includes(scope));
  return [...all.filter(({ id }) => id === purpose), ...all.filter(({ id }) => id !== purpose)];
}
