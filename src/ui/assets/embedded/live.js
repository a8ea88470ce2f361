// Keeps the panels of a dashboard up to date by the live stream of the page.

import { subscribe } from '../chart/live_hub.js';
import { LivePoints } from '../chart/live_points.js';

/**
 * @typedef {import('../components/panel_frame.js').PanelFrame} PanelFrame
 * @typedef {import('../components/panel_runner.js').Answered} Answered
 * @typedef {import('../chart/live_hub.js').StreamAddress} StreamAddress
 */

/** The shortest and the longest step of a stream, in seconds; panels with another one are not live. */
const [STEP_MIN, STEP_MAX] = [1, 3600];

export class LivePanels {
  #address;
  #host;
  /** Ends the subscriptions of each panel. @type {Map<PanelFrame, (() => void)[]>} */
  #followed = new Map();
  /** The panels with a query that has no stream. @type {Set<PanelFrame>} */
  #partial = new Set();

  /**
   * @param {StreamAddress} address
   * @param {{retry: (frame: PanelFrame) => void, failed: (error: unknown) => void}} host `retry`: the panel asks
   *   for its whole range again
   */
  constructor(address, host) {
    this.#address = address;
    this.#host = host;
  }

  /** Continues the answers of a panel. @param {PanelFrame} frame */
  follow(frame) {
    this.leave(frame);
    const { shown } = frame;
    if (!shown || shown.plan.range.info) return;
    let { plan } = shown;
    const answers = shown.answers.map((one) => ({ ...one }));
    let redraw = 0;
    const show = (/** @type {number} */ time) => {
      const length = plan.range.to - plan.range.from;
      const to = Math.max(plan.range.to, time * 1000);
      plan = { ...plan, range: { ...plan.range, from: to - length, to } };
      // The queries of a panel have their points in the same moment.
      redraw ||= requestAnimationFrame(() => {
        redraw = 0;
        frame.update(plan, answers);
      });
    };
    const ends = answers.map((one) => this.#subscribe(one, plan, show, () => this.#host.retry(frame)));
    this.#followed.set(frame, [...ends.flatMap((end) => end ?? []), () => cancelAnimationFrame(redraw)]);
    if (ends.includes(null)) this.#partial.add(frame);
  }

  /**
   * Whether all points of a panel come with the stream.
   * @param {import('../components/panel_runner.js').Runnable} frame
   */
  isComplete(frame) {
    const panel = /** @type {PanelFrame} */ (frame);
    return this.#followed.has(panel) && !this.#partial.has(panel);
  }

  /**
   * @param {Answered} answered its answer becomes a copy with new points
   * @param {import('../model/panel_queries.js').PanelPlan} plan
   * @param {(time: number) => void} show
   * @param {() => void} retry
   */
  #subscribe(answered, plan, show, retry) {
    const { step, ask } = answered.query;
    const points = rangePoints(answered, plan);
    if (!points || !Number.isInteger(step) || step < STEP_MIN || step > STEP_MAX) return null;
    return subscribe(this.#address, {
      query: { ...ask, step, range: rangeSeconds(plan.range) },
      since: Math.floor(plan.range.to / 1000 / step) * step,
      points: ({ time, data }) => {
        points.append(time, data?.result ?? []);
        show(time);
      },
      gap: retry,
      failed: (problem, isFinal) => {
        if (isFinal) this.#host.failed(problem);
      },
    });
  }

  /** @param {PanelFrame} frame */
  leave(frame) {
    for (const end of this.#followed.get(frame) ?? []) end();
    this.#followed.delete(frame);
    this.#partial.delete(frame);
  }

  stop() {
    for (const frame of [...this.#followed.keys()]) this.leave(frame);
  }
}

/**
 * The length of a range, for `$__range`, in whole seconds: viewers of equal ranges share their queries.
 * @param {{from: number, to: number}} range
 */
export const rangeSeconds = ({ from, to }) => Math.max(1, Math.round((to - from) / 1000));

/**
 * Takes points into a copy of the answer of a range query; null for an answer with anything else than numbers.
 * @param {Answered} answered gets the copy
 * @param {import('../model/panel_queries.js').PanelPlan} plan
 */
function rangePoints(answered, { range }) {
  const {
    query: { step, type },
    answer,
  } = answered;
  if (type !== 'range' || answer.data?.resultType !== 'matrix') return null;
  const rows = /** @type {import('../model/frame.js').Row[]} */ (answer.data.result);
  if (rows.some((row) => row.histograms)) return null;
  // The answer that the runner continues stays as it is.
  const result = rows.map((row) => ({ ...row, values: [...(row.values ?? [])] }));
  const own = { ...answer, data: { ...answer.data, result } };
  answered.answer = own;
  const [start, end] = [range.from, range.to].map((time) => Math.floor(time / 1000 / step) * step);
  const query = { grid: { start, end, step, tail: null } };
  return new LivePoints(/** @type {any} */ ({ answer: own, tail: null, query }));
}
