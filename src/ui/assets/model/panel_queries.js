// The queries of a panel with its variables, time range and step, and the frames of their answers.

import { applyFieldConfig } from './fields.js';
import { framesOf } from './frame.js';
import { interpolate } from './interpolate.js';
import { applyPanelTime, durationMs, intervalFor } from './time.js';

/**
 * @typedef {import('./panel.js').Panel} Panel
 * @typedef {import('./panel.js').Target} Target
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./time.js').Range} Range
 * @typedef {import('./frame.js').Frame} Frame
 *
 * @typedef {{target: Target, expr: string, ask: Record<string, unknown>, type: 'range' | 'instant', step: number,
 *   legend: string}} PanelQuery
 * `ask` is what the server evaluates; `expr` its text, or empty where a reader may not see it. `step` in seconds.
 * @typedef {{expr: string, ask: Record<string, unknown>}} Written
 * @typedef {(target: Target, selections: Selections, context: import('./interpolate.js').Context) => Written | null}
 *   Write null leaves the query out
 * @typedef {{range: Range, queries: PanelQuery[], problems: string[], context: import('./interpolate.js').Context}}
 *   PanelPlan
 */

/** Kinds that show one value a series: their points are not limited by the width of the panel. */
const POINTS = new Map([
  ['stat', 200],
  ['gauge', 100],
  ['bargauge', 100],
  ['piechart', 100],
  ['table', 100],
  ['heatmap', 120],
  ['state-timeline', 400],
  ['status-history', 100],
]);
/** Fewest and most points of a series that a panel asks. */
const POINTS_MIN = 60;
const POINTS_MAX = 1100;

/**
 * @param {Panel} panel
 * @param {{selections: Selections, range: Range, now: number, width: number,
 *   dashboard: {title: string, uid: string}, timeZone?: string, leastStep?: number, write: Write}} view `width` of the
 *   panel in CSS pixels, `leastStep` in milliseconds
 * @returns {PanelPlan}
 */
export function planPanel(panel, { selections, range, now, width, dashboard, timeZone, leastStep = 0, write }) {
  const own = applyPanelTime(
    range,
    {
      timeFrom: interpolate(panel.timeFrom, selections),
      timeShift: interpolate(panel.timeShift, selections),
      hideTimeOverride: panel.hideTimeOverride,
    },
    { now, timeZone },
  );
  const wanted = panel.maxDataPoints ?? POINTS.get(panel.type) ?? Math.round(width);
  const maxDataPoints = Math.min(POINTS_MAX, Math.max(panel.maxDataPoints === null ? POINTS_MIN : 1, wanted));
  /** @type {string[]} */
  const problems = [];
  /** @type {PanelQuery[]} */
  const queries = [];
  let context = {};
  for (const target of panel.targets) {
    if (target.hide) continue;
    if (target.unsupported) {
      if (target.expr || target.unsupported) problems.push(`Query ${target.refId}: ${target.unsupported}.`);
      continue;
    }
    const written = interpolate(target.interval || panel.interval, selections);
    const minInterval = leastStep > (durationMs(written) ?? 0) ? leastStep : written;
    const interval = intervalFor({
      from: own.from,
      to: own.to,
      maxDataPoints,
      minInterval,
      intervalFactor: target.intervalFactor,
    });
    context = { range: own, interval, dashboard, timeZone };
    const asked = write(target, selections, context);
    if (!asked) continue;
    const query = {
      ...asked,
      target,
      step: interval.intervalMs / 1000,
      legend: interpolate(target.legendFormat, selections, { ...context, format: 'text' }),
    };
    if (target.range) queries.push({ ...query, type: 'range' });
    if (target.instant) queries.push({ ...query, type: 'instant' });
  }
  if (!('interval' in context)) {
    const interval = intervalFor({ from: own.from, to: own.to, maxDataPoints });
    context = { range: own, interval, dashboard, timeZone };
  }
  return { range: own, queries, problems, context };
}

/** Defaults of the kinds whose series have colours of their own. */
const SERIES_KINDS = new Set(['timeseries', 'barchart', 'piechart', 'histogram']);

/** @param {Panel} panel @returns {Panel['fieldConfig']} with the defaults of its kind */
function configOf(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const mode = SERIES_KINDS.has(panel.type) ? 'palette-classic' : 'thresholds';
  return {
    overrides,
    defaults: {
      ...defaults,
      color: defaults.color?.mode ? defaults.color : { mode },
      thresholds:
        Array.isArray(defaults.thresholds?.steps) && defaults.thresholds.steps.length > 0
          ? defaults.thresholds
          : {
              mode: 'absolute',
              steps: [
                { color: 'green', value: null },
                { color: 'red', value: 80 },
              ],
            },
    },
  };
}

/** @typedef {typeof import('./transformations/index.js').transform} Transform */

/**
 * The frames that a panel draws.
 * @param {Panel} panel
 * @param {{query: PanelQuery, answer: import('./frame.js').Answer}[]} answers
 * @param {(text: string) => string} replace fills in variables
 * @param {Transform | null} transform null for a panel without transformations
 * @returns {{frames: Frame[], unsupported: string[]}}
 */
export function panelFrames(panel, answers, replace, transform) {
  const several = answers.length > 1;
  const raw = answers.flatMap(({ query, answer }) =>
    framesOf(
      answer,
      {
        refId: query.target.refId,
        legendFormat: query.legend,
        format: formatOf(panel, query.target, answer),
        expr: query.expr,
      },
      { several },
    ),
  );
  const transformed = transform?.(raw, panel.transformations, { replace });
  const { frames, unsupported } = transformed ?? { frames: raw, unsupported: [] };
  return { frames: applyFieldConfig(frames, configOf(panel), { replace }), unsupported };
}

/** Heatmaps of buckets and tables of instant queries need no format. @param {Panel} panel
 *  @param {Target} target @param {import('./frame.js').Answer} answer */
function formatOf(panel, target, answer) {
  if (panel.type !== 'heatmap' || panel.options.calculate === true) return target.format;
  const rows = Array.isArray(answer.result) ? answer.result : [];
  const buckets = rows.some((row) => row?.metric?.le !== undefined || row?.histograms || row?.histogram);
  return buckets ? 'heatmap' : target.format;
}
