// A page that uses <metric-chart> with its types. Each `@ts-expect-error` is an error of the compiler.

import type { MetricChartElement, MetricRange, MetricSelection } from '../../../src/ui/assets/embed.js';

const chart = document.createElement('metric-chart');
chart.org = 'acme';
chart.expr = 'up';
chart.live = true;
chart.refresh = null;
chart.start = 1_700_000_000;
chart.tokenEndpoint = '/metrics-token';
document.body.append(chart);

// @ts-expect-error
chart.range = 3600;
// @ts-expect-error
chart.live = 'yes';
// @ts-expect-error
chart.state = 'drawn';
// @ts-expect-error
chart.expression = 'up';
// @ts-expect-error
chart.zoomTo({ start: 1 });

const found: MetricChartElement | null = document.querySelector('metric-chart');
found?.reload().then(() => found.drawn.points.toFixed());

chart.addEventListener('zoom', (event) => {
  const range: MetricRange | null = event.detail;
  if (range && range.end - range.start < 60) event.preventDefault();
});
chart.addEventListener('select', (event) => {
  const { time, series, nearest }: MetricSelection = event.detail;
  console.log(new Date(time * 1000), series.map(({ labels, value }) => [labels.route, value]), nearest?.name);
  // @ts-expect-error
  event.detail.points;
});
chart.addEventListener('error', ({ detail }) => console.warn(detail.code, detail.message, detail.hint));
chart.addEventListener('token-expired', () => (chart.token = 'next'));
chart.addEventListener('load', ({ detail }) => console.log(detail.data.result.length));
chart.addEventListener('click', () => {});

chart.data = {
  data: { resultType: 'matrix', result: [{ metric: { job: 'api' }, values: [[1_700_000_000, '1']] }] },
  query: { start: 1_700_000_000, end: 1_700_000_060, step: 15 },
};
// @ts-expect-error
chart.data = { data: { resultType: 'vector', result: [] } };

// Listeners of a dashboard are removed with the types with which they were added.
const board = document.createElement('metric-dashboard');
const moved = (event: CustomEvent<{ start: number; end: number } | null>): void => console.log(event.detail?.start);
board.addEventListener('zoom', moved);
board.removeEventListener('zoom', moved);
// @ts-expect-error: the detail of `load` is another one.
board.removeEventListener('load', moved);

const alerts = document.createElement('metric-alerts');
alerts.org = 'acme';
alerts.alertState = 'firing';
alerts.limit = 20;
alerts.addEventListener('load', ({ detail }) => {
  console.log(detail.counts.firing, detail.data.map(({ labels, annotations }) => [labels.alertname, annotations.summary]));
  // @ts-expect-error
  detail.data[0].expr;
});
// @ts-expect-error
alerts.refresh = '30';
alerts.data = { data: [], counts: { firing: 0, pending: 0 }, next_cursor: null };
alerts.reload().then(() => alerts.state === 'drawn');
