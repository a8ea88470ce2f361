// The dialog that backfills a recording rule: its range, an estimate, the progress, and the result.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { backfillRule, previewRule } from '../client/alerting.js';
import { isSignedOut, readOrg } from '../client/server.js';
import {
  backfillGrid,
  backfillRanges,
  estimatedSamples,
  finishedPart,
  runBackfill,
  sampledGrid,
  skipped,
  stepsOf,
  withoutTime,
} from '../model/backfill.js';
import { costText } from '../model/cost.js';
import { formatDuration } from '../model/duration.js';
import { errorText } from '../model/error_text.js';
import { counted } from '../model/metrics.js';
import { groupInterval, groupLimit, groupOffset } from '../model/rule_text.js';
import { parseTime } from '../model/time.js';
import { textButton } from './buttons.js';
import { openDialog } from './dialog.js';
import { field } from './form.js';
import { toast } from './toast.js';
import { zoneName } from './zone.js';

/**
 * @typedef {import('../model/backfill.js').Grid} Grid
 * @typedef {import('../model/backfill.js').Outcome} Outcome
 * @typedef {import('../model/rule_text.js').RuleText} RuleText
 */

/** The pause after the last change of the range before the estimate is requested, in milliseconds. */
const PAUSE_MS = 400;
/** The choice of an own start and end. */
const OWN = 'own';
const EXAMPLE = 'Write times such as now-6h, 2026-01-31 08:00 or 2026-01-31T08:00:00Z.';

const moment = (/** @type {number} */ at) => formatMoment(at, zoneName());
const count = (/** @type {number} */ value) => value.toLocaleString('en');

/** The stored samples, and the refused ones if there are any. @param {Outcome} outcome */
function writtenText({ stored, refused }) {
  const others = refused ? `, ${count(refused)} were refused` : '';
  return `${count(stored)} ${stored === 1 ? 'sample is' : 'samples are'} stored${others}.`;
}

/** The retention of an organisation in days; null without one. @param {string} org @returns {Promise<number|null>} */
async function retentionOf(org) {
  const { settings, defaults } = await readOrg(org, '');
  const days = settings?.retention_days ?? defaults?.retention_days ?? null;
  return typeof days === 'number' ? days : null;
}

/**
 * The choice of the range. `change` is called after each change.
 * @param {{ranges: {seconds: number, text: string}[], proposed: number}} proposal
 * @param {() => void} change
 */
function rangeFields({ ranges, proposed }, change) {
  const select = h(
    'select',
    { id: 'backfill-range', on: { change: () => choose() } },
    ranges.map(({ seconds, text }) => h('option', { value: String(seconds), text, selected: seconds === proposed })),
    h('option', { value: OWN, text: 'Own start and end' }),
  );
  const end = (/** @type {string} */ label, /** @type {string} */ name, /** @type {string} */ value) => {
    const attributes = { value, autocomplete: 'off', spellcheck: 'false', on: { input: change } };
    const node = field(label, name, attributes);
    const hint = node.querySelector('.hint');
    hint?.setAttribute('role', 'alert');
    return { node, input: node.querySelector('input'), hint };
  };
  const [from, to] = [end('From', 'from', 'now-1d'), end('To', 'to', 'now')];
  const own = h('div', { class: 'backfill-ends', hidden: true }, from.node, to.node);
  const say = (/** @type {typeof from} */ { input, hint }, /** @type {string} */ text) => {
    if (hint && hint.textContent !== text) hint.textContent = text;
    if (text) input?.setAttribute('aria-invalid', 'true');
    else input?.removeAttribute('aria-invalid');
  };
  const choose = () => {
    own.hidden = select.value !== OWN;
    change();
  };
  return {
    nodes: [h('div', { class: 'field' }, h('label', { for: select.id, text: 'Range' }), select), own],
    /** The chosen range in unix seconds; null if it is wrong, which the fields say. */
    range() {
      const now = Date.now();
      const timeZone = zoneName();
      const isOwn = select.value === OWN;
      const start = isOwn ? parseTime(from.input?.value, { timeZone }) : now - 1000 * Number(select.value);
      const stop = isOwn ? parseTime(to.input?.value, { timeZone, roundUp: true }) : now;
      const isEmpty = start !== null && stop !== null && start >= stop;
      const wrong =
        stop === null
          ? EXAMPLE
          : isEmpty
            ? 'The end must be later than the start.'
            : stop > now + 1000
              ? 'The end must not be in the future.'
              : '';
      say(from, start === null ? EXAMPLE : '');
      say(to, wrong);
      if (start === null || stop === null || wrong) return null;
      return { start: Math.ceil(start / 1000), end: Math.floor(Math.min(now, stop) / 1000) };
    },
  };
}

/**
 * Opens the dialog.
 * @param {{org: string, yaml: string, rules: RuleText[], signedOut: () => void}} options `yaml` is the text of the
 *   group, `rules` are its recording rules to choose from
 */
export async function openBackfill({ org, yaml, rules, signedOut }) {
  const retention = await retentionOf(org).catch(() => null);
  const abort = new AbortController();
  /** @type {Outcome|null} */
  let running = null;
  const keep = (/** @type {Outcome|null} */ outcome) => (running = outcome);
  await openDialog(
    rules.length === 1 ? `Backfill ${rules[0].name}` : 'Backfill a recording rule',
    undefined,
    (close) => [content({ org, yaml, rules, signedOut, retention, abort, close, keep })],
    { class: 'backfill' },
  );
  abort.abort();
  const stopped = /** @type {Outcome|null} */ (running);
  if (stopped?.next != null) toast(`The backfill was stopped at ${moment(stopped.next)}. ${writtenText(stopped)}`);
}

/**
 * The content of the dialog.
 * @param {{org: string, yaml: string, rules: RuleText[], signedOut: () => void, retention: number|null,
 *   abort: AbortController, close: (nothing: undefined) => void, keep: (running: Outcome|null) => void}} options
 *   `keep` is called with the state of a backfill that runs, and with null when it has ended
 */
function content({ org, yaml, rules, signedOut, retention, abort, close, keep }) {
  const place = h('div', { class: 'stack' });
  const step = groupInterval(yaml);
  const group = { query_offset: groupOffset(yaml), limit: groupLimit(yaml) };
  let rule = rules[0];
  const every = formatDuration(step);
  const leave = () => close(undefined);
  const expired = () => {
    leave();
    signedOut();
  };
  /** Shows a state; the focus is on its first button. @param {(Node|false)[]} nodes */
  const show = (...nodes) => {
    place.replaceChildren(...nodes.filter((node) => node instanceof Node));
    place.querySelector('button')?.focus();
  };

  // -- the range
  const estimate = h('p', { class: 'hint', role: 'status' });
  let timer = 0;
  /** @type {AbortController|null} */
  let asked = null;
  const later = () => {
    clearTimeout(timer);
    asked?.abort();
    const grid = chosen();
    start.disabled = !grid;
    if (grid) {
      estimate.textContent = `${counted(stepsOf(grid), 'step')}, one every ${every}. Estimating the samples…`;
      timer = setTimeout(() => void load(grid), PAUSE_MS);
    }
  };
  /** The chosen steps; null if there are none, which the line says. */
  const chosen = () => {
    const range = fields.range();
    const grid = range && backfillGrid(range.start, range.end, step);
    if (!grid) estimate.textContent = range ? 'The range has no evaluation: choose a longer one.' : '';
    return grid;
  };
  /** Estimates the samples. @param {Grid} grid */
  async function load(grid) {
    const { signal } = (asked = new AbortController());
    const steps = `${counted(stepsOf(grid), 'step')}, one every ${every}.`;
    try {
      const found = await previewRule(org, { yaml: rule.text, ...sampledGrid(grid), ...group }, signal);
      if (signal.aborted) return;
      const samples = count(estimatedSamples(grid, found.series));
      const least = found.warnings.length ? 'More than' : 'About';
      const cost = costText(found.estimate, null, null).text;
      estimate.textContent = `${steps} ${least} ${samples} samples will be written. ${cost} an evaluation.`;
    } catch (error) {
      if (signal.aborted) return;
      if (isSignedOut(error)) return expired();
      estimate.textContent = `${steps} There is no estimate: ${errorText(error)}`;
    }
  }
  const start = textButton(
    'Start backfill',
    () => {
      const grid = chosen();
      if (grid) void run(grid);
    },
    { class: 'primary' },
  );
  const fields = rangeFields(backfillRanges(retention), later);
  const which = h(
    'select',
    { id: 'backfill-rule' },
    rules.map(({ name }, at) => h('option', { value: String(at), text: name })),
  );
  which.addEventListener('change', () => {
    rule = rules[Number(which.value)];
    later();
  });
  place.append(
    h('p', {
      text: 'The samples that the rule would have recorded are written. Samples that it has recorded stay as they are.',
    }),
    ...(rules.length > 1
      ? [h('div', { class: 'field' }, h('label', { for: which.id, text: 'Rule' }), which)]
      : []),
    ...fields.nodes,
    estimate,
    h('div', { class: 'row' }, start, textButton('Cancel', leave)),
  );
  later();

  // -- the progress
  /** @param {Grid} grid @param {Outcome} [from] that of an interrupted backfill */
  async function run(grid, from) {
    clearTimeout(timer);
    asked?.abort();
    const stop = new AbortController();
    abort.signal.addEventListener('abort', () => stop.abort());
    const bar = h('progress', { max: '1', value: '0', 'aria-label': `Progress of the backfill of ${rule.name}` });
    const reached = h('p', { class: 'hint' });
    const tell = (/** @type {Outcome} */ outcome) => {
      keep(outcome);
      const part = finishedPart(grid, outcome.next);
      bar.value = part;
      const at = outcome.next === null ? '' : `Reached ${moment(outcome.next)} of ${moment(grid.end)}. `;
      reached.textContent = `${at}${Math.floor(part * 100)} %. ${writtenText(outcome)}`;
    };
    tell(from ?? { stored: 0, refused: 0, next: grid.start, error: null, at: null });
    const running = h('p', { role: 'status', text: `Backfilling ${rule.name}…` });
    show(running, bar, reached, h('div', { class: 'row' }, textButton('Stop', () => stop.abort())));
    const write = (/** @type {number} */ at) =>
      backfillRule(org, { yaml: rule.text, ...grid, start: at, ...group }, stop.signal);
    const outcome = await runBackfill(grid, write, { signal: stop.signal, from, progress: tell });
    if (abort.signal.aborted) return;
    keep(null);
    if (isSignedOut(outcome.error)) return expired();
    if (outcome.next === null) return done(outcome);
    interrupted(grid, { ...outcome, next: outcome.at ?? outcome.next });
  }

  // -- the result
  /** @param {Outcome} outcome */
  function done(outcome) {
    show(
      h('p', { role: 'status', text: `The backfill is complete. ${writtenText(outcome)}` }),
      outcome.refused > 0 &&
        h('p', {
          class: 'hint',
          text: 'Refused samples are too old to be stored, or another rule has written the series at their time.',
        }),
      h('div', { class: 'row' }, textButton('Close', leave, { class: 'primary' })),
    );
  }
  /** Shows why a backfill ended early, and how it continues. @param {Grid} grid @param {Outcome} outcome */
  function interrupted(grid, outcome) {
    const { error, at, next } = outcome;
    const reason = error === null ? '' : withoutTime(errorText(error));
    const failed = at === null ? `The backfill failed. ${reason}` : `The step at ${moment(at)} failed: ${reason}`;
    const from = moment(next ?? grid.end);
    const skip = () => {
      const rest = skipped(grid, outcome);
      return rest.next === null ? done(rest) : void run(grid, rest);
    };
    show(
      error === null
        ? h('p', { role: 'status', text: `The backfill was stopped at ${from}.` })
        : h('p', { class: 'alert', role: 'alert', text: failed }),
      h('p', { class: 'hint', text: writtenText(outcome) }),
      h(
        'div',
        { class: 'row' },
        textButton(`Continue from ${from}`, () => void run(grid, outcome), { class: 'primary' }),
        at !== null && textButton('Skip this step', skip),
        textButton('Close', leave),
      ),
    );
  }
  return place;
}
