// The old singlestat panel, and the first versions of stat, gauge and bar gauge.

import { mappingsOf, oldMappingsOf, overrideOf, reduceOptions, stepsOf, thresholdsOf } from './legacy_common.js';
import { defined, isObject, numberOf, objectOf, objectsOf, textOf } from './limits.js';

/** @typedef {import('./legacy_common.js').Json} Json */
/** @typedef {import('./legacy_common.js').Note} Note */
/** @typedef {import('./legacy_common.js').Converted} Converted */

/**
 * `options.prefix` and `options.postfix` are this model's own: today's stat panel has no such
 * options.
 * @param {Json} panel
 * @param {Note} note
 * @returns {Converted}
 */
export function convertSinglestat(panel, note) {
  const gauge = objectOf(panel.gauge);
  const isGauge = gauge.show === true;
  const thresholds = textOf(panel.thresholds).trim() === '' ? { mode: 'absolute', steps: [
    { color: textOf(Array.isArray(panel.colors) ? panel.colors[0] : '', 'green'), value: null }] }
    : thresholdsOf(panel.thresholds, panel.colors);
  const colored = panel.colorBackground === true || panel.colorValue === true || isGauge;
  const defaults = defined({
    unit: textOf(panel.format) || undefined,
    decimals: numberOf(panel.decimals) ?? undefined,
    min: isGauge ? numberOf(gauge.minValue) ?? 0 : undefined,
    max: isGauge ? numberOf(gauge.maxValue) ?? 100 : undefined,
    noValue: textOf(panel.nullText) || undefined,
    nullValueMode: textOf(panel.nullPointMode) || undefined,
    mappings: oldMappingsOf(panel),
    thresholds: colored ? thresholds : { mode: 'absolute', steps: [{ color: 'text', value: null }] },
    color: { mode: 'thresholds' },
  });
  const column = textOf(panel.tableColumn);
  const reduce = reduceOptions(panel.valueName, column === '' ? {}
    : { fields: `/^${column.replace(/[\\^$*+?.()|[\]{}/]/g, '\\$&')}$/` });
  const text = defined({ prefix: textOf(panel.prefix) || undefined, postfix: textOf(panel.postfix) || undefined });
  if (panel.valueName === 'last_time') note('the time of the last value is shown as the value', 'warning');
  const fieldConfig = { defaults, overrides: [] };
  if (isGauge) {
    return { type: 'gauge', fieldConfig, options: { reduceOptions: reduce, ...text, orientation: 'horizontal',
      showThresholdLabels: gauge.thresholdLabels === true, showThresholdMarkers: gauge.thresholdMarkers !== false } };
  }
  const colorMode = panel.colorBackground === true ? 'background' : panel.colorValue === true ? 'value' : 'none';
  return { type: 'stat', fieldConfig, options: { reduceOptions: reduce, ...text, colorMode,
    graphMode: objectOf(panel.sparkline).show === true ? 'area' : 'none', justifyMode: 'auto',
    orientation: 'horizontal', textMode: panel.valueName === 'name' ? 'name' : 'auto' } };
}

/** Whether a stat, gauge or bar gauge is from before version 7. @param {Json} panel */
export function isOldGauge(panel) {
  const options = objectOf(panel.options);
  return isObject(options.fieldOptions) || isObject(options.valueOptions) || options.thresholds !== undefined
    || objectOf(panel['options-gauge']).valueOptions !== undefined;
}

/**
 * Stat, gauge and bar gauge of versions 5.4 to 6.7: `valueOptions` or `fieldOptions` instead of a
 * field configuration.
 * @param {Json} panel
 * @returns {Converted}
 */
export function convertOldGauge(panel) {
  const given = isObject(panel.options) && Object.keys(panel.options).length > 0 ? panel.options
    : objectOf(panel['options-gauge']);
  const { fieldOptions, valueOptions, thresholds, valueMappings, minValue, maxValue, ...kept } = given;
  const fields = objectOf(fieldOptions);
  const values = objectOf(valueOptions);
  const own = { ...objectOf(fields.defaults), ...objectOf(fields.override) };
  const config = objectOf(panel.fieldConfig);
  const found = fields.thresholds ?? own.thresholds ?? thresholds;
  const defaults = defined({
    ...own,
    displayName: textOf(own.displayName) || textOf(own.title) || undefined,
    unit: textOf(own.unit) || textOf(values.unit) || undefined,
    decimals: numberOf(own.decimals) ?? numberOf(values.decimals) ?? undefined,
    min: numberOf(own.min) ?? numberOf(minValue) ?? undefined,
    max: numberOf(own.max) ?? numberOf(maxValue) ?? undefined,
    mappings: mappingsOf(fields.mappings ?? own.mappings ?? valueMappings),
    thresholds: found === undefined ? undefined : stepsOf(found),
    color: isObject(own.color) ? own.color : { mode: 'thresholds' },
    ...objectOf(config.defaults),
  });
  delete defaults.title;
  const calculation = Array.isArray(fields.calcs) ? fields.calcs[0] : values.stat;
  const options = { ...kept, ...defined({
    reduceOptions: reduceOptions(calculation, { values: fields.values === true,
      ...defined({ limit: numberOf(fields.limit) ?? undefined }) }),
    prefix: textOf(values.prefix) || undefined, postfix: textOf(values.suffix) || undefined }) };
  const overrides = objectsOf(config.overrides ?? fields.overrides).filter((one) => isObject(one.matcher))
    .map((one) => ({ matcher: one.matcher, properties: objectsOf(one.properties)
      .map((property) => ({ id: textOf(property.id), value: property.value })) }));
  return { type: textOf(panel.type), fieldConfig: { defaults, overrides }, options };
}

/**
 * The pie chart plugin that Grafana's own pie chart replaced.
 * @param {Json} panel
 * @param {Note} note
 * @returns {Converted}
 */
export function convertPie(panel, note) {
  const legend = objectOf(panel.legend);
  const onGraph = panel.legendType === 'On graph';
  const values = [...(legend.values === true ? ['value'] : []), ...(legend.percentage === true ? ['percent'] : [])];
  const combine = objectOf(panel.combine);
  if ((numberOf(combine.threshold) ?? 0) > 0) note('small slices are not combined', 'info');
  return {
    type: 'piechart',
    fieldConfig: {
      defaults: defined({ unit: textOf(panel.format) || undefined, decimals: numberOf(panel.decimals) ?? undefined,
        color: { mode: 'palette-classic' }, mappings: [] }),
      overrides: Object.entries(objectOf(panel.aliasColors)).filter(([, color]) => textOf(color) !== '')
        .map(([alias, color]) => overrideOf(alias, { color: { mode: 'fixed', fixedColor: textOf(color) } })),
    },
    options: {
      pieType: panel.pieType === 'donut' ? 'donut' : 'pie',
      reduceOptions: reduceOptions(panel.valueName, {}),
      displayLabels: onGraph ? ['name', ...values] : [],
      legend: { showLegend: legend.show !== false && !onGraph, displayMode: values.length > 0 ? 'table' : 'list',
        placement: panel.legendType === 'Right side' ? 'right' : 'bottom', values },
      tooltip: { mode: 'single', sort: 'none' },
    },
  };
}
