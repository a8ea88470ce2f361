// Asks the queries of the panels in sight: those that come into sight together share one request.

import { ApiError } from '../chart/request.js';
import { firstStep, joinSteps } from '../model/increment.js';
import { BATCH_MAX } from '../model/limits.js';

/**
 * @typedef {import('../model/panel_queries.js').PanelPlan} PanelPlan
 * @typedef {import('../model/panel_queries.js').PanelQuery} PanelQuery
 * @typedef {{query: PanelQuery, answer: import('../client/batch.js').BatchAnswer}} Answered
 *
 * @typedef {{id: string, ask: Record<string, unknown>, type: 'range' | 'instant', start?: number, end?: number,
 *   step?: number, time?: number}} BatchQuery
 * Times in unix seconds, `step` in seconds; `start` and `end` are those of the batch by default.
 * @typedef {{start: number, end: number, queries: BatchQuery[], signal: AbortSignal,
 *   answered: (answer: import('../client/batch.js').BatchAnswer) => void}} Batch
 *
 * @typedef {Object} Source answers the queries of panels
 * @property {(batch: Batch) => Promise<string[]>} send resolves after the last answer, with the ids without one
 * @property {(error: unknown) => void} failed a request has failed; the panels show it
 *
 * @typedef {Object} Runnable
 * @property {HTMLElement} node
 * @property {() => PanelPlan} plan the queries for the current range; errors are shown in the panel
 * @property {() => void} waiting
 * @property {(plan: PanelPlan, answers: Answered[]) => void} show
 * @property {(error: unknown) => void} fail
 *
 * @typedef {{frame: Runnable, visible: boolean, due: boolean, generation: number,
 *   known: Map<string, import('../model/increment.js').Known>}} Entry
 * `known` has the last answers by type, step and text of the query.
 */

/** Panels that come into sight within this time share a request, in milliseconds. */
const GATHER_MS = 25;
/** Panels are asked this far before they come into sight. */
const MARGIN = '160px 0px';

export class PanelRunner {
  /** @type {Map<Element, Entry>} */
  #entries = new Map();
  /** @type {Set<AbortController>} */
  #requests = new Set();
  #timer = 0;
  #stopped = false;
  /** Whether no panel has been asked yet. */
  #first = true;
  #source;
  #observer;

  /** @param {Source} source */
  constructor(source) {
    this.#source = source;
    this.#observer = new IntersectionObserver(
      (changed) => {
        for (const { target, isIntersecting } of changed) {
          const entry = this.#entries.get(target);
          if (entry) entry.visible = isIntersecting;
        }
        this.#schedule();
        // The first report has all panels of the first screen: there is nothing to wait for.
        if (this.#first && this.#isAsking()) {
          this.#first = false;
          clearTimeout(this.#timer);
          this.#run();
        }
      },
      { rootMargin: MARGIN },
    );
  }

  /** @param {Runnable} frame */
  add(frame) {
    this.#entries.set(frame.node, { frame, visible: false, due: true, generation: 0, known: new Map() });
    this.#observer.observe(frame.node);
  }

  /** Adds one that is always in sight. @param {Runnable} frame */
  addHidden(frame) {
    this.#entries.set(frame.node, { frame, visible: true, due: true, generation: 0, known: new Map() });
  }

  /** @param {Runnable} frame */
  remove(frame) {
    this.#observer.unobserve(frame.node);
    const entry = this.#entries.get(frame.node);
    if (entry) entry.generation = -1;
    this.#entries.delete(frame.node);
  }

  /**
   * Asks panels again: those in sight now, the others when they come into sight.
   * @param {(frame: Runnable) => boolean} [wanted] the panels; without it all, and requests under way are aborted
   */
  refresh(wanted) {
    if (!wanted) {
      for (const request of this.#requests) request.abort();
      this.#requests.clear();
    }
    for (const entry of this.#entries.values()) if (!wanted || wanted(entry.frame)) entry.due = true;
    this.#schedule();
  }

  /** Whether a request is under way. */
  get busy() {
    return this.#requests.size > 0;
  }

  /** @param {Runnable} frame */
  retry(frame) {
    const entry = this.#entries.get(frame.node);
    if (!entry) return;
    entry.known.clear();
    entry.due = true;
    entry.visible = true;
    this.#schedule();
  }

  stop() {
    this.#stopped = true;
    this.#observer.disconnect();
    clearTimeout(this.#timer);
    for (const request of this.#requests) request.abort();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (this.#stopped) return;
    if (this.#isAsking()) this.#timer = setTimeout(() => this.#run(), GATHER_MS);
  }

  /** Whether a panel in sight waits for its data. */
  #isAsking() {
    return [...this.#entries.values()].some((entry) => entry.visible && entry.due);
  }

  #run() {
    /** @type {Job[]} */
    const jobs = [];
    for (const entry of this.#entries.values()) {
      if (!entry.visible || !entry.due) continue;
      entry.due = false;
      entry.generation += 1;
      try {
        const plan = entry.frame.plan();
        if (plan.queries.length === 0) {
          entry.frame.waiting();
          entry.frame.show(plan, []);
          continue;
        }
        const asks = plan.queries.map((query) => {
          const whole = timed(query, plan);
          const key = `${query.type} ${query.step} ${JSON.stringify(query.ask)}`;
          const from = whole.type === 'range' ? firstStep(query.expr, whole, entry.known.get(key)) : undefined;
          return { key, whole, from };
        });
        jobs.push({ entry, plan, asks, generation: entry.generation, answers: [], left: asks.length, late: false });
      } catch (error) {
        entry.frame.fail(error);
      }
    }
    // A plan reads the width of its panel: a change before the next one would lay the page out once a panel.
    for (const { entry } of jobs) entry.frame.waiting();
    for (let at = 0; at < jobs.length;) {
      let [end, queries] = [at, 0];
      while (end < jobs.length && (end === at || queries + jobs[end].left <= BATCH_MAX)) {
        queries += jobs[end].left;
        end += 1;
      }
      this.#send(jobs.slice(at, end));
      at = end;
    }
  }

  /**
   * `from` is the first step that is asked; `late`: a sample came too late for the steps asked.
   * @typedef {{entry: Entry, plan: PanelPlan, asks: {key: string, whole: Timed, from: number | undefined}[],
   *   generation: number, answers: Answered[], left: number, late: boolean}} Job
   */

  /**
   * Takes an answer, together with the steps that were known before.
   * @param {Job} job
   * @param {number} index of the query
   * @param {import('../client/batch.js').BatchAnswer} answer
   */
  #take(job, index, answer) {
    const { key, whole, from } = job.asks[index];
    const known = job.entry.known.get(key);
    let all = answer;
    if (whole.type === 'range' && known && answer.data && from !== undefined && from > whole.start) {
      const data = joinSteps(known, answer.data, { start: whole.start, from });
      if (data) all = { ...answer, data };
      else job.late = true;
    }
    job.answers[index] = { query: job.plan.queries[index], answer: all };
  }

  /** Shows the answers of a panel, or asks the whole range if they do not continue the last ones. @param {Job} job */
  #finish({ entry, plan, asks, answers, late }) {
    const before = entry.known;
    entry.known = new Map();
    if (late) {
      entry.due = true;
      this.#schedule();
      return;
    }
    asks.forEach(({ key, whole, from }, index) => {
      const { data } = answers[index].answer;
      if (whole.type !== 'range' || from === undefined || !data) return;
      const refreshes = from > whole.start ? (before.get(key)?.refreshes ?? 0) + 1 : 0;
      entry.known.set(key, { ...whole, answer: data, refreshes });
    });
    entry.frame.show(plan, answers);
  }

  /** @param {Job[]} jobs */
  async #send(jobs) {
    const request = new AbortController();
    this.#requests.add(request);
    const queries = jobs.flatMap(({ asks }, job) =>
      asks.map(({ whole, from }, index) => ({
        ...whole,
        id: `${job}.${index}`,
        ...(from === undefined ? {} : { start: from }),
      })),
    );
    const { start, end } = mostUsed(queries);
    const sent = queries.map((query) => ({
      ...query,
      start: query.start === start ? undefined : query.start,
      end: query.end === end ? undefined : query.end,
    }));
    const current = (/** @type {Job} */ { entry, generation }) => entry.generation === generation;
    try {
      const missing = await this.#source.send({
        start,
        end,
        queries: sent,
        signal: request.signal,
        answered: (answer) => {
          const [job, index] = answer.id.split('.').map(Number);
          const one = jobs[job];
          this.#take(one, index, answer);
          one.left -= 1;
          if (one.left === 0 && current(one)) this.#finish(one);
        },
      });
      if (missing.length > 0) throw new ApiError({ code: 'incomplete_answer', detail: 'The answer ended too early.' });
    } catch (error) {
      if (request.signal.aborted) return;
      this.#source.failed(error);
      for (const job of jobs) if (job.left > 0 && current(job)) job.entry.frame.fail(error);
    } finally {
      this.#requests.delete(request);
    }
  }
}

/** @typedef {ReturnType<typeof timed>} Timed */

/**
 * A query with its times. The server evaluates from the start in steps: with a start that is a
 * multiple of the step, a refresh asks for the same times again.
 * @param {PanelQuery} query
 * @param {PanelPlan} plan
 */
export function timed({ ask, type, step }, { range }) {
  const end = Math.floor(range.to / 1000);
  return type === 'instant'
    ? { ask, type, time: end }
    : { ask, type, step, start: Math.floor(range.from / 1000 / step) * step, end };
}

/**
 * The times that most queries have: they are written once.
 * @param {{start?: number, end?: number, time?: number}[]} queries
 */
function mostUsed(queries) {
  const pick = (/** @type {number[]} */ times) => {
    const counts = new Map();
    for (const time of times) counts.set(time, (counts.get(time) ?? 0) + 1);
    return [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), [0, 0])[0];
  };
  const ends = queries.map(({ end, time }) => end ?? time ?? 0);
  return { start: pick(queries.map(({ start }) => start ?? 0)) || Math.max(0, pick(ends) - 3600), end: pick(ends) };
}
