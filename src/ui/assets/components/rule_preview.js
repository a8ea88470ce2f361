// The simulated result of a rule over a past range, drawn while it is typed.

import { h } from '../chart/dom.js';
import { parseDuration } from '../chart/scale.js';
import { previewRule } from '../client/alerting.js';
import { isSignedOut } from '../client/server.js';
import { lanesOf } from '../model/alerting.js';
import { costText } from '../model/cost.js';
import { counted } from '../model/metrics.js';
import { placeInGroup } from '../model/rule_text.js';
import { RANGES, alertChart, rangeChoice } from './alert_chart.js';
import { errorPlace } from './yaml_editor.js';

/**
 * @typedef {import('../model/rule_text.js').RuleText} RuleText
 * @typedef {import('../model/rule_text.js').Place} Place
 * @typedef {{rule: RuleText|null, interval: number, offset?: string, limit?: number}} Wanted `interval` of the
 *   evaluation, in seconds, and the offset of its time and the limit as the group has them
 */

/** The pause after the last key press before the server is asked, in milliseconds. */
const PAUSE_MS = 500;
/** The server evaluates at most 11,000 steps. */
const STEPS_MAX = 10_000;

/** @param {import('../client/alerting.js').Preview} preview @param {number} end */
function outcome({ series, transitions }, end) {
  const lanes = lanesOf(transitions, end);
  const fired = lanes.filter(({ spans }) => spans.some(({ state }) => state === 'firing')).length;
  if (lanes.length === 0)
    return series.length ? counted(series.length, 'series', 'series') : 'The expression had no result';
  const waited = lanes.length - fired;
  return `${counted(fired, 'alert')} would have fired${waited > 0 ? `, ${waited} more only pending` : ''}`;
}

/**
 * @param {{org: string, signedOut: () => void, problem: (place: Place|null) => void}} options `problem` is called with
 *   the place of an error in the text of the group, and with null once there is none
 */
export function rulePreview({ org, signedOut, problem }) {
  const title = h('h2', { text: 'Preview' });
  const status = h('p', { class: 'hint', role: 'status' });
  const chart = alertChart({ label: 'Preview of the rule' });
  let range = '1d';
  let timer = 0;
  /** @type {AbortController|null} */
  let request = null;
  /** @type {Wanted} */
  let wanted = { rule: null, interval: 60 };
  let shown = '';

  async function load() {
    clearTimeout(timer);
    request?.abort();
    const { rule, interval, offset, limit } = wanted;
    if (!rule) return;
    const { signal } = (request = new AbortController());
    const seconds = parseDuration(range) ?? 86_400;
    const step = interval * Math.max(1, Math.ceil(seconds / interval / STEPS_MAX));
    const end = Math.floor(Date.now() / 1000 / step) * step;
    const grid = { start: end - Math.floor(seconds / step) * step, end, step };
    status.textContent = 'Computing…';
    try {
      const found = await previewRule(org, { yaml: rule.text, ...grid, query_offset: offset, limit }, signal);
      if (signal.aborted) return;
      chart.show({ ...found, grid });
      const cost = costText(found.estimate, null, null);
      status.textContent = `${outcome(found, end)} over the ${RANGES[range].toLowerCase()}. ${cost.text} an evaluation.`;
      problem(null);
    } catch (error) {
      if (signal.aborted) return;
      if (isSignedOut(error)) return signedOut();
      status.textContent = 'There is no preview of this text. The chart shows an earlier one.';
      problem(placeInGroup(errorPlace(error), rule));
    }
  }
  const choice = rangeChoice(range, (next) => {
    range = next;
    void load();
  });
  return {
    node: h('section', { class: 'card part' }, h('div', { class: 'row spread' }, title, choice), status, chart.node),
    /** Shows a rule, after a pause. @param {Wanted} next */
    show(next) {
      const key = JSON.stringify([next.rule?.text, next.interval, next.offset, next.limit]);
      wanted = next;
      title.textContent = next.rule ? `Preview of ${next.rule.name || 'the rule'}` : 'Preview';
      if (key === shown) return;
      const pause = shown ? PAUSE_MS : 0;
      shown = key;
      clearTimeout(timer);
      request?.abort();
      if (next.rule) timer = setTimeout(load, pause);
      else status.textContent = 'Put the caret into a rule to see what it would have done.';
    },
    stop() {
      clearTimeout(timer);
      request?.abort();
    },
  };
}
