// The kinds of panels: which module draws which type.

/**
 * @typedef {import('../model/panel.js').Panel} Panel
 * @typedef {import('../model/frame.js').Frame} Frame
 *
 * @typedef {Object} View
 * @property {Panel} panel
 * @property {Frame[]} frames with their field configuration applied
 * @property {(text: string) => string} replace fills in variables
 * @property {import('../model/time.js').Range} range of the panel, in milliseconds
 * @property {'light' | 'dark'} theme
 * @property {string} timeZone of axes, tooltips and tables, as the dashboard names it
 * @property {import('../plot/sync.js').Sync} sync shares the crosshair with the other panels
 * @property {import('../model/annotations.js').AnnotationEvent[]} events annotations to draw
 * @property {Map<string, any>} memory what the panel remembers over a refresh
 * @property {(range: {from: number, to: number}) => void} zoom
 * @property {((chosen: Chosen) => void) | undefined} select called after a click on a series
 * @property {(link: Record<string, any>, more?: import('../model/interpolate.js').Context) =>
 *   import('../model/links.js').Link | null} link
 *
 * @typedef {{name: string, labels: Record<string, string>, value: number}} ChosenSeries
 * @typedef {{time: number, series: ChosenSeries[], nearest: ChosenSeries}} Chosen the series at a time, in
 *   milliseconds; the highest value is first
 * @typedef {{resize?: () => void, destroy?: () => void}} Drawing
 * @typedef {{draw: (box: HTMLElement, view: View) => Drawing, note?: string}} Kind
 */

/** @type {Map<string, () => Promise<Kind>>} */
const KINDS = new Map(
  Object.entries({
    timeseries: () => import('./timeseries.js'),
    stat: () => import('./stat.js'),
    gauge: () => import('./gauge.js'),
    bargauge: () => import('./bargauge.js'),
    table: () => import('./table.js'),
    text: () => import('./text.js'),
    heatmap: () => import('./heatmap.js'),
    'state-timeline': () => import('./state_timeline.js'),
    'status-history': () => import('./state_timeline.js'),
    barchart: () => import('./barchart.js'),
    piechart: () => import('./piechart.js'),
    histogram: () => import('./histogram.js'),
  }),
);

/**
 * Adds kinds that only some pages draw.
 * @param {Record<string, () => Promise<Kind>>} kinds
 */
export function addKinds(kinds) {
  for (const [type, load] of Object.entries(kinds)) KINDS.set(type, load);
}

/** A type as the class of its box: `table` for types that are drawn as one. @param {string} type */
export const kindOf = (type) => (KINDS.has(type) ? type : 'table');

/**
 * Loads the module that draws a type. A type without one is drawn as a table, and a note says so.
 * @param {string} type
 * @returns {Promise<Kind>}
 */
export async function loadPanel(type) {
  const load = KINDS.get(type);
  if (load) return { draw: (await load()).draw };
  const { draw } = await import('./table.js');
  return { draw, note: `Panel kind ${type || 'without a name'} is shown as a table.` };
}
