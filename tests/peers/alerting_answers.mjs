// Canned answers of the API for targets, rules, alerts, silences and notifications, with a state that requests change.

const MINUTE = 60_000;

/** The fingerprint of the alert that fires. */
export const FIRING = 'df716fc76be7a659';

/** A text that markup must not become. */
export const HOSTILE = '<img src=x onerror=alert(1)>';

/** @param {number} minutes before now */
const past = (minutes) => new Date(Date.now() - minutes * MINUTE).toISOString();

const target = (port, health, lastError = '') => ({
  discoveredLabels: {
    __address__: `db-${port}:${port}`, __metrics_path__: '/metrics', __scheme__: 'http', __meta_zone: 'eu-1', job: 'node',
  },
  labels: { instance: `db-${port}:${port}`, job: 'node', zone: 'eu-1' },
  scrapePool: 'node',
  scrapeUrl: `http://db-${port}:${port}/metrics`,
  globalUrl: `http://db-${port}:${port}/metrics`,
  lastError,
  lastScrape: health === 'unknown' ? '0001-01-01T00:00:00Z' : past(0.1),
  lastScrapeDuration: 0.0421,
  health,
  scrapeInterval: '15s',
  scrapeTimeout: '10s',
});

const TARGETS = {
  activeTargets: [
    target(9100, 'up'),
    target(9101, 'down', `Get "http://db-9101:9101/metrics": line 17: unexpected ${HOSTILE}\nexpected a number`),
    target(9102, 'unknown'),
    { ...target(8080, 'up'), scrapePool: 'promlet', scrapeUrl: 'http://127.0.0.1:8080/metrics' },
  ],
  droppedTargets: [
    { scrapePool: 'node', discoveredLabels: { __address__: 'test-1:9100', __meta_zone: 'us-1', job: 'node' } },
  ],
  droppedTargetCounts: { node: 41, promlet: 0 },
};

const steps = (labels) => ({
  steps: [
    {
      rule: { source_labels: ['__meta_zone'], separator: ';', regex: '(eu-.*)', target_label: 'zone', replacement: '$1', action: 'replace' },
      output: labels.__meta_zone?.startsWith('eu') ? { ...labels, zone: labels.__meta_zone } : labels,
      keep: true,
    },
    {
      rule: { source_labels: ['zone'], separator: ';', regex: 'eu-.+', replacement: '$1', action: 'keep' },
      output: labels.__meta_zone?.startsWith('eu') ? { ...labels, zone: labels.__meta_zone } : {},
      keep: Boolean(labels.__meta_zone?.startsWith('eu')),
    },
  ],
});

const alert = (instance, state, value, minutes) => ({
  labels: { alertname: 'HighLoad', instance, severity: 'page' },
  annotations: { summary: `Load of ${instance} is high`, description: HOSTILE },
  state,
  activeAt: past(minutes),
  value,
});

const rule = (name, more) => ({
  name, query: 'up == 0', duration: 300, keepFiringFor: 0, labels: { severity: 'page' }, annotations: {}, alerts: [],
  health: 'ok', evaluationTime: 0.0007, lastEvaluation: past(0.2), type: 'alerting', state: 'inactive', ...more,
});

const GROUPS = () => [
  {
    name: 'hosts', file: 'api', interval: 60, limit: 0, evaluationTime: 0.0021, lastEvaluation: past(0.2),
    rules: [
      rule('HighLoad', {
        query: 'node_load1 > 4', state: 'firing', duration: 600, keepFiringFor: 120,
        alerts: [alert('db-1:9100', 'firing', '7.25e+00', 42), alert('db-2:9100', 'pending', '4.5e+00', 3)],
      }),
      rule('InstanceDown', { state: 'inactive' }),
      {
        name: 'job:up:sum', query: 'sum by (job) (up)', labels: {}, health: 'ok', evaluationTime: 0.0004,
        lastEvaluation: past(0.2), type: 'recording',
      },
    ],
  },
  {
    name: 'disk', file: '/etc/promlet/rules/disk.yml', interval: 30, limit: 0, evaluationTime: 0.0009, lastEvaluation: past(0.4),
    rules: [
      rule('DiskFull', {
        query: 'disk_free_bytes / disk_size_bytes < 0.1', health: 'err', duration: 0,
        lastError: 'many-to-one matching must be explicit (group_left/group_right)',
      }),
      rule('SlowDisk', {
        query: 'disk_latency_seconds > 0.2', state: 'pending', duration: 900,
        alerts: [{ ...alert('db-3:9100', 'pending', '3.1e-01', 6), labels: { alertname: 'SlowDisk', instance: 'db-3:9100', severity: 'ticket' } }],
      }),
    ],
  },
  {
    name: 'queue', file: 'shop', interval: 60, limit: 0, evaluationTime: 0.0003, lastEvaluation: past(0.3),
    rules: [rule('QueueStuck', { query: 'queue_length > 100', duration: 0 })],
  },
];

const QUEUE_YAML = `name: queue
rules:
  - alert: QueueStuck
    expr: queue_length > 100
`;

export const HOSTS_YAML = `name: hosts
interval: 1m
rules:
  - alert: HighLoad
    expr: node_load1 > 4
    for: 10m
    keep_firing_for: 2m
    labels:
      severity: page
    annotations:
      summary: Load of {{ $labels.instance }} is high
  # Whether anything answers.
  - alert: InstanceDown
    expr: up == 0
    for: 5m
  - record: job:up:sum
    expr: sum by (job) (up)
`;

const DISK_YAML = `name: disk
interval: 30s
rules:
  - alert: DiskFull
    expr: disk_free_bytes / disk_size_bytes < 0.1
  - alert: SlowDisk
    expr: disk_latency_seconds > 0.2
    for: 15m
`;

/** A wave that crosses the threshold a few times. */
function wave({ start, end, step }, metric) {
  const values = [];
  for (let at = start; at <= end; at += step) {
    const part = (at - start) / (end - start);
    values.push([at, String(3 + 3 * Math.sin(part * 14) + Math.sin(part * 90) / 4)]);
  }
  return { metric, values };
}

/** The state of an alert at a part of the range from 0 to 1. */
const stateAt = (part) => (part < 0.2 || (part > 0.55 && part < 0.7) ? '' : (part % 0.35) < 0.12 ? 'pending' : 'firing');

function alertsMatrix({ start, end, step }) {
  return ['pending', 'firing'].map((alertstate) => {
    const values = [];
    for (let at = start; at <= end; at += step)
      if (stateAt((at - start) / (end - start)) === alertstate) values.push([at, '1']);
    return { metric: { __name__: 'ALERTS', alertname: 'HighLoad', alertstate, instance: 'db-1:9100', severity: 'page' }, values };
  });
}

function preview({ yaml, start, end, step }) {
  const line = yaml.split('\n').findIndex((one) => /expr:.*\($/.test(one)) + 1;
  if (line > 0)
    return invalid(`line ${line}, column 9: unexpected end of input`);
  const labels = (instance) => ({ alertname: 'HighLoad', instance, severity: 'page' });
  const at = (part) => new Date(1000 * (start + Math.floor(((end - start) * part) / step) * step)).toISOString();
  return {
    body: {
      truncated: false,
      estimate: { series: 2, samples: 40, memory_bytes: 1280 },
      series: ['db-1:9100', 'db-2:9100'].map((instance) => wave({ start, end, step }, { __name__: 'node_load1', instance })),
      transitions: /record:|up == 0/.test(yaml) ? [] : [
        { labels: labels('db-1:9100'), at: at(0.1), state: 'pending' },
        { labels: labels('db-1:9100'), at: at(0.2), state: 'firing' },
        { labels: labels('db-1:9100'), at: at(0.4), state: 'resolved' },
        { labels: labels('db-2:9100'), at: at(0.6), state: 'pending' },
        { labels: labels('db-2:9100'), at: at(0.65), state: 'resolved' },
        { labels: labels('db-1:9100'), at: at(0.8), state: 'pending' },
        { labels: labels('db-1:9100'), at: at(0.9), state: 'firing' },
      ],
    },
  };
}

const problem = (status, detail, more = {}) => ({
  status, body: { type: 'about:blank', title: 'Error', status, code: 'invalid_request', detail, ...more },
});

/** The refusal of a text. @param {string} message */
const invalid = (message) =>
  problem(422, 'the body is invalid', {
    code: 'validation_failed',
    errors: [{ field: 'yaml', code: 'invalid', message }],
  });

/**
 * The answers of one organisation. `answer(method, path, search, body, headers)` returns status, body and headers, or
 * null for paths that are no part of this; `state` may be changed.
 */
export function cannedAnswers() {
  const state = {
    isEmpty: false,
    fails: false,
    silences: [
      {
        id: 'sil_1', matchers: [{ name: 'severity', value: 'ticket', isEqual: true, isRegex: false }], startsAt: past(10),
        endsAt: past(-120), createdBy: 'Ada', comment: 'Known; the new disks come on Monday.',
      },
      {
        id: 'sil_0', matchers: [{ name: 'instance', value: 'db-.*', isEqual: true, isRegex: true }], startsAt: past(900),
        endsAt: past(300), createdBy: 'Bo', comment: 'Maintenance',
      },
    ],
    acknowledged: new Set(),
    groups: new Map([
      ['hosts', { name: 'hosts', namespace: 'api', version: 3, source: 'api', yaml: HOSTS_YAML, updated_at: past(600) }],
      ['disk', { name: 'disk', namespace: 'disk.yml', version: 0, source: 'file', yaml: DISK_YAML, updated_at: null }],
      ['shop/queue', { name: 'shop/queue', namespace: 'shop', version: 1, source: 'api', yaml: QUEUE_YAML, updated_at: past(60) }],
    ]),
    /** The replaced versions of groups, the newest first. */
    versions: new Map(),
    document: {
      receivers: [{ name: 'on-call', webhook_configs: [{ id: 'hook', url: 'https://hooks.example/alerts', has_secret: true }] }],
      route: { receiver: 'on-call', group_by: ['alertname'] },
    },
    version: 1,
    tested: [],
    scraping: null,
    /** The bodies of backfills, and whether those that begin in the middle of the range fail. */
    backfills: [],
    failsToBackfill: false,
  };
  const success = (data) => ({ body: { status: 'success', data } });

  /** Writes a quarter of the range, or fails after its half. */
  function backfill(body) {
    const { start, end, step } = body;
    const first = state.backfills[0]?.start ?? start;
    state.backfills.push(body);
    const quarter = Math.ceil((end - first) / step / 4) * step;
    const at = (seconds) => new Date(1000 * seconds).toISOString().replace('.000', '');
    if (state.failsToBackfill && start >= first + 2 * quarter)
      return problem(422, `${at(start)}: found duplicate series for the match group {job="${HOSTILE}"}`, { code: 'query_failed', at: at(start) });
    const next = start + quarter;
    const stored = 2 * (Math.min(quarter, end - start + step) / step);
    return { body: { stored, refused: next > end ? 3 : 0, next: next > end ? null : at(next) } };
  }

  function groupAnswer(method, path, body, headers) {
    const [, name, number] = /^(.*?)(?:\/versions(?:\/(\d+))?)?$/.exec(path);
    const group = state.groups.get(name);
    if (path !== name) return versionAnswer(name, number);
    if (method === 'GET' && state.fails) return problem(500, 'the disk is full');
    if (method === 'GET') return group ? { body: group } : problem(404, 'no such group');
    const wanted = headers['if-match'];
    if (wanted && wanted !== `"${group?.version}"`) return problem(412, 'the version differs', { code: 'version_conflict' });
    if (group && !wanted) return problem(428, 'the group exists', { code: 'precondition_required' });
    if (method === 'DELETE') {
      state.groups.delete(name);
      return { status: 204 };
    }
    const line = body.yaml.split('\n').findIndex((one) => one.includes('fro:')) + 1;
    if (line > 0) return invalid(`line ${line}, column 5: unknown key fro; did you mean for?`);
    if (group) {
      const { version, yaml, updated_at: from } = group;
      const replaced = { version, valid_from: from, valid_until: past(0), updated_by: null, bytes: yaml.length };
      state.versions.set(name, [{ ...replaced, yaml }, ...(state.versions.get(name) ?? [])]);
    }
    const saved = { name, namespace: 'api', version: (group?.version ?? 0) + 1, source: 'api', yaml: body.yaml, updated_at: past(0) };
    state.groups.set(name, saved);
    return { body: saved };
  }

  function versionAnswer(name, number) {
    const { version, yaml, updated_at: from } = state.groups.get(name);
    const current = { version, valid_from: from, valid_until: null, updated_by: 'usr_gone', bytes: yaml.length, yaml };
    const versions = [current, ...(state.versions.get(name) ?? [])];
    if (number === undefined) return { body: { data: versions, next_cursor: null } };
    const found = versions.find((one) => one.version === Number(number));
    return found ? { text: found.yaml } : problem(404, 'this version is not stored');
  }

  function silenceAnswer(method, id, body) {
    const stateOf = ({ endsAt }) => (Date.parse(endsAt) <= Date.now() ? 'expired' : 'active');
    if (method === 'GET')
      return { body: { data: state.silences.map((one) => ({ ...one, status: { state: stateOf(one) } })) } };
    if (method === 'DELETE') {
      state.silences = state.silences.map((one) => (one.id === id ? { ...one, endsAt: past(0) } : one));
      return { status: 204 };
    }
    const made = { id: `sil_${state.silences.length + 1}`, createdBy: 'Ada', ...body };
    state.silences.push(made);
    return { status: 201, body: made };
  }

  function notificationAnswer(method, rest, body, headers) {
    if (rest === '/status')
      return { body: {
        alertmanagers: [],
        integrations: [{
          id: 'hook', type: 'webhook', receiver: 'on-call', pending: 2, lag_s: 61,
          last_error: { at: past(1), text: 'The receiver answered 500.' }, last_sent: past(300), next_retry: past(-1),
        }],
      } };
    if (rest === '/test') {
      state.tested.push(body.receiver);
      return { body: { data: [
        { id: 'hook', type: 'webhook', ok: false, error: 'The receiver answered 500.' },
        { id: 'mail/a@example.com', type: 'email', ok: true, error: null },
      ] } };
    }
    const tag = { ETag: `"${state.version}"` };
    if (method === 'GET') return { body: state.document, headers: tag };
    if (headers['if-match'] !== tag.ETag) return problem(412, 'the version differs', { code: 'version_conflict' });
    if (body.recievers)
      return problem(400, 'the document is invalid', { errors: [{ field: 'recievers', message: 'unknown key; did you mean receivers?' }] });
    state.version += 1;
    state.document = body;
    return { body, headers: { ETag: `"${state.version}"` } };
  }

  function scrapeAnswer(method, body) {
    if (method === 'GET' && state.scraping === null) return problem(404, 'no configuration is set');
    if (method === 'DELETE') {
      state.scraping = null;
      return { status: 204 };
    }
    if (method === 'PUT') {
      if (body.text.includes('job_nam:'))
        return problem(422, 'the body is invalid', {
          errors: [{ field: 'text', code: 'invalid', message: 'line 2, column 5: unknown key "job_nam"' }],
        });
      state.scraping = body.text;
    }
    const discoveries = [{ title: 'file_sd_configs', targets: 0, error: 'targets.json: no such file' }];
    const job = { name: 'node', targets: 1, dropped: 41, invalid: 0, duplicates: 2, failure: null, discoveries };
    return { body: {
      text: state.scraping, version: 1, updated_at: past(1), problem: null, jobs: [job],
      notices: ['line 1: alerting has no effect here'],
    } };
  }

  function answer(method, path, search, body, headers) {
    const own = /^\/api\/v1\/orgs\/[^/]+(\/.*)$/.exec(path)?.[1] ?? '';
    const [, api] = /^\/prometheus\/api\/v1\/(.*)$/.exec(own) ?? [];
    const known = ['targets', 'scrape_pools', 'targets/relabel_steps', 'rules'].includes(api);
    if (known && state.fails) return problem(500, 'the disk is full');
    const groups = state.isEmpty ? [] : GROUPS();
    if (api === 'targets') return success(state.isEmpty ? { activeTargets: [], droppedTargets: [], droppedTargetCounts: {} } : TARGETS);
    if (api === 'scrape_pools') return success({ scrapePools: state.isEmpty ? [] : ['node', 'promlet'] });
    if (api === 'targets/relabel_steps') return success(steps(JSON.parse(search.get('labels'))));
    if (api === 'rules')
      return success({ groups: search.get('type') === 'alert'
        ? groups.map((group) => ({ ...group, rules: group.rules.filter(({ type }) => type === 'alerting') }))
        : groups });
    if (own === '/query/expr-range' && /ALERTS|node_load1|queue_length/.test(search.get('expr'))) {
      const query = Object.fromEntries(['start', 'end', 'step'].map((name) => [name, Number(search.get(name))]));
      const result = search.get('expr').includes('ALERTS')
        ? alertsMatrix(query)
        : [wave(query, { __name__: 'node_load1', instance: 'db-1:9100' })];
      return { body: { data: { resultType: 'matrix', result }, query } };
    }
    if (own === '/rule-groups') return { body: { data: state.isEmpty ? [] : [...state.groups.values()] } };
    if (own === '/scrape-config') return scrapeAnswer(method, body);
    if (own === '/rules/preview') return preview(body);
    if (own === '/rules/backfill') return backfill(body);
    const [, list, rest = ''] = /^\/(rule-groups|silences|notifications|alerts)(\/.*)?$/.exec(own) ?? [];
    const name = decodeURIComponent(rest.slice(1));
    if (list === 'rule-groups') return groupAnswer(method, name, body, headers);
    if (list === 'silences') return silenceAnswer(method, name, body);
    if (list === 'notifications') return notificationAnswer(method, rest, body, headers);
    if (own === '/alertmanager/api/v2/alerts')
      return { body: [alert('db-1:9100', 'firing', '7', 42)].map(({ labels }) => ({
        labels,
        fingerprint: FIRING,
        status: { state: 'active', silencedBy: [], inhibitedBy: [], mutedBy: [] },
        acknowledgement: state.acknowledged.size ? { author: 'ada@example.com', comment: '', at: past(0) } : null,
      })) };
    if (list === 'alerts') {
      const fingerprint = name.replace('/acknowledgement', '');
      state.acknowledged[method === 'POST' ? 'add' : 'delete'](fingerprint);
      return { status: 204 };
    }
    return null;
  }
  return { state, answer };
}
