// Alerts and silences: matchers as text, fingerprints, and the states of alerts over a range of time.

import { splitMatchers } from '../chart/query.js';
import { fullName } from '../chart/scale.js';
import { grouped } from './metrics.js';
import { safeRegex } from './pattern.js';

/**
 * @typedef {Record<string, string>} Labels
 * @typedef {{name: string, value: string, isEqual: boolean, isRegex: boolean}} Matcher
 * @typedef {'inactive'|'pending'|'firing'} AlertState
 * @typedef {{labels: Labels, at: number, state: string}} Transition `at` in unix seconds; the state from then on
 * @typedef {{from: number, to: number, state: string}} Span of a lane, in unix seconds; `to` is exclusive
 * @typedef {{name: string, spans: Span[]}} Lane the states of one alert
 */

/** States of alerts, the most urgent first. @type {AlertState[]} */
export const STATES = ['firing', 'pending', 'inactive'];

/** @param {boolean} isEqual @param {boolean} isRegex */
const operatorOf = (isEqual, isRegex) => (isEqual ? (isRegex ? '=~' : '=') : isRegex ? '!~' : '!=');

/** Matchers as a selector without braces. @param {Matcher[]} matchers */
export const matchersText = (matchers) =>
  matchers
    .map(({ name, value, isEqual, isRegex }) => `${name}${operatorOf(isEqual, isRegex)}${JSON.stringify(value)}`)
    .join(', ');

/** The matchers that select exactly these labels. @param {Labels} labels @returns {Matcher[]} */
export const matchersOf = (labels) =>
  Object.entries(labels).map(([name, value]) => ({ name, value, isEqual: true, isRegex: false }));

/**
 * Reads matchers, with or without braces around them.
 * @param {string} text
 * @returns {Matcher[]}
 * @throws {Error} that names the part that is no matcher
 */
export function parseMatchers(text) {
  const parts = splitMatchers(text.trim().replace(/^\{([^]*)\}$/, '$1'));
  if (parts.length === 0) throw new Error('Enter at least one matcher, such as alertname="InstanceDown".');
  return parts.map((part) => {
    const [, name, operator, quoted] = /^([\w.:]+)\s*(=~|!~|!=|=)\s*("(?:\\.|[^"\\])*")$/.exec(part) ?? [];
    try {
      const value = JSON.parse(quoted);
      return { name, value, isEqual: operator[0] === '=', isRegex: operator.endsWith('~') };
    } catch {
      throw new Error(`Write matchers such as severity="page" or instance=~"db-.*". This is none: ${part}`);
    }
  });
}

/**
 * Whether all matchers match the labels; a missing label counts as empty.
 * @param {Matcher[]} matchers
 * @param {Labels} labels
 */
export const matches = (matchers, labels) =>
  matchers.every(({ name, value, isEqual, isRegex }) => {
    const found = Object.hasOwn(labels, name) ? labels[name] : '';
    if (!isRegex) return (found === value) === isEqual;
    const regex = safeRegex(`^(?:${value})$`, { whole: false });
    // The server's expressions have forms that this page does not know.
    return regex !== null && regex.test(found) === isEqual;
  });

/** The prime of the 64-bit FNV-1a hash. */
const FNV_PRIME = 0x100000001b3n;

/**
 * The fingerprint of labels as Alertmanager computes it: FNV-1a over the sorted names and values, each with a
 * byte 255 after it.
 * @param {Labels} labels
 * @returns {string} 16 hexadecimal digits
 */
export function fingerprint(labels) {
  const encoder = new TextEncoder();
  let sum = 0xcbf29ce484222325n;
  const add = (/** @type {Iterable<number>} */ bytes) => {
    for (const byte of bytes) sum = BigInt.asUintN(64, (sum ^ BigInt(byte)) * FNV_PRIME);
  };
  for (const name of Object.keys(labels).sort()) {
    for (const text of [name, labels[name]]) {
      add(encoder.encode(text));
      add([255]);
    }
  }
  return sum.toString(16).padStart(16, '0');
}

/**
 * Short names of alerts: only the labels that differ among them.
 * @param {Labels[]} all
 */
function laneNames(all) {
  const names = [...new Set(all.flatMap(Object.keys))].sort();
  const differing = names.filter((name) => all.some((labels) => labels[name] !== all[0][name]));
  return all.map((labels) => {
    const parts = differing.filter((name) => labels[name] !== undefined).map((name) => `${name}=${labels[name]}`);
    return parts.join(' ') || labels.alertname || fullName(labels);
  });
}

/**
 * The lanes of transitions: one for each set of labels, until the end of the range.
 * @param {Transition[]} transitions in any order
 * @param {number} end unix seconds
 * @returns {Lane[]}
 */
export function lanesOf(transitions, end) {
  const byLabels = grouped(transitions, ({ labels }) => fullName(labels));
  const all = [...byLabels.values()].map((own) => own.sort((left, right) => left.at - right.at));
  const names = laneNames(all.map(([first]) => first.labels));
  return all.map((own, at) => ({
    name: names[at],
    spans: own
      .map(({ at: from, state }, index) => ({ from, to: own[index + 1]?.at ?? end, state }))
      .filter(({ state, from, to }) => (state === 'pending' || state === 'firing') && to >= from),
  }));
}

/**
 * The transitions that the series ALERTS show: an alert without a point at a step is not active.
 * @param {{metric: Labels, values: [number, string][]}[]} matrix
 * @param {{start: number, end: number, step: number}} grid
 * @returns {Transition[]}
 */
export function transitionsOf(matrix, { start, end, step }) {
  /** State by step of each alert. @type {Map<string, {labels: Labels, states: Map<number, string>}>} */
  const alerts = new Map();
  for (const { metric, values } of matrix) {
    const { __name__: _, alertstate, ...labels } = metric;
    const key = fullName(labels);
    const alert = alerts.get(key) ?? { labels, states: new Map() };
    alerts.set(key, alert);
    for (const [at] of values) {
      const index = Math.round((at - start) / step);
      // A change within one step leaves both series: the later state is firing.
      if (alert.states.get(index) !== 'firing') alert.states.set(index, alertstate);
    }
  }
  const count = Math.floor((end - start) / step + 1e-6) + 1;
  /** @type {Transition[]} */
  const found = [];
  for (const { labels, states } of alerts.values()) {
    let before = 'inactive';
    for (let index = 0; index < count; index += 1) {
      const state = states.get(index) ?? 'inactive';
      if (state !== before) found.push({ labels, at: start + index * step, state });
      before = state;
    }
  }
  return found;
}
