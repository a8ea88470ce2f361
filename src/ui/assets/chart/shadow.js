// The shadow tree of <metric-chart>.

import { h } from './dom.js';
import { sheet } from './style.js';

/** @typedef {ReturnType<typeof shadowTree>} Parts */

/**
 * Attaches the shadow tree to a chart and returns its nodes.
 * @param {HTMLElement} host
 * @param {() => void} resetZoom
 */
export function shadowTree(host, resetZoom) {
  const root = host.attachShadow({ mode: 'open' });
  root.adoptedStyleSheets = [sheet];
  const title = h('div', { class: 'title', part: 'title' });
  const base = h('canvas', { 'aria-hidden': 'true' });
  const over = h('canvas', { 'aria-hidden': 'true' });
  const cursor = h('div', {
    class: 'cursor',
    role: 'slider',
    tabindex: '0',
    'aria-valuemin': '0',
    'aria-keyshortcuts': 'Plus Minus 0',
  });
  const hair = h('div', { class: 'hair', hidden: true, 'aria-hidden': 'true' });
  const tip = h('div', { class: 'tip', part: 'tooltip', hidden: true, 'aria-hidden': 'true' });
  const state = h('div', { class: 'state', part: 'state', role: 'status' });
  const reset = h('button', {
    type: 'button',
    class: 'reset',
    part: 'reset',
    hidden: true,
    text: 'Reset zoom',
    on: { click: resetZoom },
  });
  const legend = h('div', { class: 'legend', part: 'legend', role: 'group', 'aria-label': 'Series' });
  const note = h('p', { class: 'note', part: 'note' });
  const table = h('div', { class: 'unseen' });
  const probe = h('i', { hidden: true });
  const plot = h('div', { class: 'plot', part: 'plot' }, base, over, hair, cursor, reset, tip, state);
  // Content of the cabinet that has the time axis of the plot.
  const below = h('slot', { name: 'below' });
  root.append(h('div', { class: 'frame', part: 'frame' }, title, plot, below, legend, note, table, probe));
  return { root, title, base, over, hair, cursor, tip, state, reset, legend, note, table, probe, plot };
}
