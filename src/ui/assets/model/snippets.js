// The snippets of the page Add data: what sends samples to an organisation, ready to paste.

/**
 * @typedef {{title: string, text: string, note?: string}} Snippet
 * @typedef {{id: string, label: string, snippets: Snippet[]}} Source
 */

/** Stands for the secret while the page knows none. */
export const NO_KEY = 'YOUR_INGEST_KEY';

/** A secret that a line of a shell script or of YAML takes as it is. */
const PLAIN = /^[\w.-]{1,200}$/;

/**
 * Whether a text has the form of an ingest key: only such a text is put into a snippet.
 * @param {string} text
 */
export const isKey = (text) => PLAIN.test(text);

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
          note: 'Add the exporter to config.yaml, and its name to your pipeline of metrics.',
          text: `exporters:
  otlphttp/promlet:
    endpoint: ${base}/otlp
    headers:
      Authorization: Bearer ${secret}

service:
  pipelines:
    metrics:
      receivers: [otlp]
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
