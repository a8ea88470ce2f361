// The old graph panel as a time series panel, or as a histogram or bar chart by its x axis.

import { calculationOf, fixedColor, overrideOf } from './legacy_common.js';
import { defined, listOf, numberOf, objectOf, objectsOf, textOf, wholeOf } from './limits.js';

/** @typedef {import('./legacy_common.js').Json} Json */
/** @typedef {import('./legacy_common.js').Note} Note */
/** @typedef {import('./legacy_common.js').Converted} Converted */

/** Colours of graph thresholds by `colorMode`. */
const MODES = new Map([['critical', 'red'], ['warning', 'orange'], ['ok', 'green']]);

/** Unit, bounds, label and scale of both axes. @param {Json} panel @returns {[Json, Json]} */
function axesOf(panel) {
  const axes = objectsOf(panel.yaxes);
  if (axes.length > 0) return [axes[0], objectOf(axes[1])];
  // The form before schema version 12.
  const grid = objectOf(panel.grid);
  const formats = listOf(panel.y_formats);
  const shown = panel['y-axis'] !== false;
  return [
    { format: formats[0], min: grid.leftMin, max: grid.leftMax, logBase: grid.leftLogBase, show: shown,
      label: panel.leftYAxisLabel },
    { format: formats[1], min: grid.rightMin, max: grid.rightMax, logBase: grid.rightLogBase, show: shown,
      label: panel.rightYAxisLabel },
  ];
}

/** Properties of fields on an axis. @param {Json} axis @returns {Record<string, unknown>} */
function axisProperties(axis) {
  const logBase = numberOf(axis.logBase) ?? 1;
  return defined({
    unit: textOf(axis.format) || undefined,
    decimals: numberOf(axis.decimals) ?? undefined,
    min: numberOf(axis.min) ?? undefined,
    max: numberOf(axis.max) ?? undefined,
    'custom.axisLabel': textOf(axis.label) || undefined,
    'custom.axisPlacement': axis.show === false ? 'hidden' : undefined,
    'custom.scaleDistribution': logBase > 1 ? { type: 'log', log: logBase } : undefined,
  });
}

/** @param {unknown} mode of null points @returns {Record<string, unknown>} */
function nullProperties(mode) {
  if (mode === 'connected') return { 'custom.spanNulls': true };
  return mode === 'null as zero' ? { nullValueMode: 'null as zero' } : {};
}

/**
 * Looks of lines, bars and points, of the panel or of one series.
 * @param {Json} source
 * @param {Json} base values for what the source leaves out
 * @returns {Record<string, unknown>}
 */
function lookProperties(source, base) {
  /** @param {string} name */
  const has = (name) => Object.hasOwn(source, name);
  const merged = { ...base, ...source };
  /** @type {Record<string, unknown>} */
  const result = {};
  if (has('lines') || has('bars') || has('points')) {
    const onlyPoints = merged.points === true && merged.lines !== true && merged.bars !== true;
    result['custom.drawStyle'] = merged.bars === true ? 'bars' : onlyPoints ? 'points' : 'line';
    result['custom.showPoints'] = merged.points === true ? 'always' : 'never';
    if (merged.lines !== true && merged.bars !== true && !onlyPoints) result['custom.lineWidth'] = 0;
  }
  if (has('fill') && merged.bars !== true) result['custom.fillOpacity'] = wholeOf(Number(source.fill) * 10, 0, 100, 0);
  if (merged.bars === true && (has('bars') || has('fill'))) result['custom.fillOpacity'] = 100;
  const gradient = numberOf(source.fillGradient) ?? 0;
  if (has('fillGradient')) result['custom.gradientMode'] = gradient > 0 ? 'opacity' : 'none';
  if (has('linewidth') && result['custom.lineWidth'] === undefined) {
    result['custom.lineWidth'] = wholeOf(source.linewidth, 0, 10, 1);
  }
  if (has('pointradius')) result['custom.pointSize'] = 2 + 2 * (numberOf(source.pointradius) ?? 0);
  if (has('steppedLine')) result['custom.lineInterpolation'] = source.steppedLine === true ? 'stepAfter' : 'linear';
  if (has('dashes')) {
    const dash = [wholeOf(merged.dashLength, 1, 100, 10), wholeOf(merged.spaceLength, 1, 100, 10)];
    result['custom.lineStyle'] = source.dashes === true ? { fill: 'dash', dash } : { fill: 'solid' };
  }
  return { ...result, ...nullProperties(source.nullPointMode) };
}

/**
 * Converts names such as `custom.lineWidth` into `{custom: {lineWidth}}`.
 * @param {Record<string, unknown>} properties
 */
function nested(properties) {
  /** @type {Json} */
  const result = { custom: {} };
  for (const [id, value] of Object.entries(properties)) {
    if (id.startsWith('custom.')) result.custom[id.slice(7)] = value;
    else result[id] = value;
  }
  return result;
}

/**
 * @param {Json} override of the old panel
 * @param {Json} panel
 * @param {Json} rightAxis
 * @param {Note} note
 */
function seriesOverride(override, panel, rightAxis, note) {
  /** @type {Record<string, unknown>} */
  const properties = lookProperties(override, panel);
  if (numberOf(override.yaxis) === 2) {
    Object.assign(properties, axisProperties(rightAxis));
    properties['custom.axisPlacement'] ??= 'right';
  }
  if (textOf(override.color) !== '') properties.color = fixedColor(override.color);
  if (override.stack === false) properties['custom.stacking'] = { mode: 'none', group: false };
  else if (override.stack === true || typeof override.stack === 'string') {
    const group = typeof override.stack === 'string' && override.stack !== 'true' ? override.stack : 'A';
    properties['custom.stacking'] = { mode: panel.percentage === true ? 'percent' : 'normal', group };
  }
  if (override.transform === 'negative-Y' || override.transform === 'constant') {
    properties['custom.transform'] = override.transform;
  }
  if (textOf(override.fillBelowTo) !== '') properties['custom.fillBelowTo'] = textOf(override.fillBelowTo);
  const hidden = { legend: override.legend === false, tooltip: override.hideTooltip === true,
    viz: override.hiddenSeries === true };
  if (Object.values(hidden).some(Boolean)) properties['custom.hideFrom'] = hidden;
  const alias = textOf(override.alias);
  if (alias === '') note('a series override without an alias is ignored', 'warning');
  return overrideOf(alias, properties);
}

/** @param {Json} panel @param {Note} note @returns {{thresholds: Json, style: string} | null} */
function graphThresholds(panel, note) {
  const grid = objectOf(panel.grid);
  const list = objectsOf(panel.thresholds);
  for (const which of [1, 2]) {
    const value = numberOf(grid[`threshold${which}`]);
    // The form before schema version 12.
    if (value !== null) {
      list.push({ value, op: 'gt', colorMode: 'custom', fill: grid.thresholdLine !== true,
        line: grid.thresholdLine === true, fillColor: grid[`threshold${which}Color`],
        lineColor: grid[`threshold${which}Color`] });
    }
  }
  const usable = list.filter((one) => numberOf(one.value) !== null);
  if (usable.length === 0) return null;
  usable.sort((left, right) => Number(left.value) - Number(right.value));
  /** @type {{value: number | null, color: string}[]} */
  const steps = [{ value: null, color: 'transparent' }];
  for (const one of usable) {
    const color = MODES.get(one.colorMode) ?? (textOf(one.fillColor) || textOf(one.lineColor) || 'red');
    const value = numberOf(one.value);
    if (one.op !== 'lt') steps.push({ value, color });
    else {
      steps[steps.length - 1].color = color;
      steps.push({ value, color: 'transparent' });
    }
    if (textOf(one.yaxis) === 'right') note('a threshold of the right axis is drawn on the left axis', 'info');
  }
  const fill = usable.some((one) => one.fill === true);
  const line = usable.some((one) => one.line === true);
  return { thresholds: { mode: 'absolute', steps }, style: fill ? (line ? 'line+area' : 'area') : 'line' };
}

/** @param {Json} panel */
function legendOptions(panel) {
  const legend = objectOf(panel.legend);
  const shown = ['min', 'max', 'avg', 'current', 'total'].filter((name) => legend[name] === true);
  const calcs = legend.values === true ? shown.map((name) => calculationOf(name)) : [];
  const sort = textOf(legend.sort);
  return defined({
    showLegend: legend.show !== false,
    displayMode: legend.alignAsTable === true ? 'table' : 'list',
    placement: legend.rightSide === true ? 'right' : 'bottom',
    calcs,
    width: numberOf(legend.sideWidth) ?? undefined,
    sortBy: sort ? calculationOf(sort) : undefined,
    sortDesc: sort ? legend.sortDesc === true : undefined,
    hideEmpty: legend.hideEmpty === true ? true : undefined,
    hideZero: legend.hideZero === true ? true : undefined,
  });
}

/**
 * @param {Json} panel
 * @param {Note} note
 * @returns {Converted}
 */
export function convertGraph(panel, note) {
  const [left, right] = axesOf(panel);
  const looks = { lines: true, linewidth: 1, fill: 1, ...panel };
  const stackMode = panel.percentage === true ? 'percent' : 'normal';
  const stacking = { mode: panel.stack === true ? stackMode : 'none', group: 'A' };
  const thresholds = graphThresholds(panel, note);
  const defaults = nested({
    color: { mode: 'palette-classic' },
    ...(numberOf(panel.decimals) === null ? {} : { decimals: numberOf(panel.decimals) }),
    ...axisProperties(left),
    ...lookProperties(looks, {}),
    'custom.stacking': stacking,
    'custom.thresholdsStyle': { mode: thresholds?.style ?? 'off' },
    ...(thresholds ? { thresholds: thresholds.thresholds } : {}),
  });
  const overrides = [
    ...Object.entries(objectOf(panel.aliasColors)).filter(([, color]) => textOf(color) !== '')
      .map(([alias, color]) => overrideOf(alias, { color: fixedColor(color) })),
    ...Object.entries(objectOf(panel.aliasYAxis)).filter(([, axis]) => numberOf(axis) === 2)
      .map(([alias]) => seriesOverride({ alias, yaxis: 2 }, panel, right, note)),
    ...objectsOf(panel.seriesOverrides).map((override) => seriesOverride(override, panel, right, note)),
  ];
  const xAxis = objectOf(panel.xaxis);
  if (xAxis.show === false || panel['x-axis'] === false) {
    overrides.push({ matcher: { id: 'byType', options: 'time' },
      properties: [{ id: 'custom.axisPlacement', value: 'hidden' }] });
  }
  if (objectsOf(panel.timeRegions).length > 0) note('time regions are not drawn', 'warning');
  const tooltip = objectOf(panel.tooltip);
  const options = {
    legend: legendOptions(panel),
    tooltip: { mode: tooltip.shared === false ? 'single' : 'multi',
      sort: ['none', 'asc', 'desc'][wholeOf(tooltip.sort, 0, 2, 0)] },
  };
  const fieldConfig = { defaults, overrides };
  if (xAxis.mode === 'histogram') {
    return { type: 'histogram', fieldConfig,
      options: { ...options, ...defined({ bucketCount: numberOf(xAxis.buckets) ?? undefined, combine: true }) } };
  }
  if (xAxis.mode === 'series') {
    const calculation = calculationOf(listOf(xAxis.values)[0] ?? 'total');
    return { type: 'barchart', fieldConfig, options: { ...options, xField: 'Field' },
      transformations: [{ id: 'reduce', options: { reducers: [calculation] } }] };
  }
  return { type: 'timeseries', fieldConfig, options };
}
