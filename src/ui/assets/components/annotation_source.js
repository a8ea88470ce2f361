// Asks the annotations of a dashboard together with its panels.

import { h } from '../chart/dom.js';
import { annotationEvents, annotationQueries, isShownIn } from '../model/annotations.js';

/**
 * @typedef {import('../model/annotations.js').AnnotationEvent} AnnotationEvent
 * @typedef {import('./panel_runner.js').Runnable} Runnable
 */

/** The events of a dashboard; a `Runnable` without a place on the page. */
export class AnnotationSource {
  /** @type {AnnotationEvent[]} */
  #events = [];
  node = h('div');
  /** The answers from which the events were made. @type {{plan:
   * import('../model/panel_queries.js').PanelPlan,
   *   answers: import('./panel_runner.js').Answered[]} | null} */
  shown = null;

  /**
   * @param {{view: () => {annotations: import('../model/dashboard.js').Annotation[],
   *   selections: import('../model/interpolate.js').Selections, range: import('../model/time.js').Range},
   *   changed: () => void, write?: import('../model/annotations.js').WriteAnnotation}} host
   *   `changed`: the events differ from those before
   */
  constructor(host) {
    this.host = host;
  }

  /** The events that a panel shows. @param {number | null} id */
  of(id) {
    return this.#events.filter(({ annotation }) => isShownIn(annotation, id));
  }

  /** @returns {import('../model/panel_queries.js').PanelPlan} */
  plan() {
    const { annotations, selections, range } = this.host.view();
    const queries = annotationQueries(annotations, { selections, range }, this.host.write);
    const made = queries.map(({ annotation, expr, ask, step }) => ({
      target: /** @type {any} */ ({ refId: annotation.name, annotation }),
      expr,
      ask,
      step,
      type: /** @type {const} */ ('range'),
      legend: '',
    }));
    return { range, queries: made, problems: [], context: { range } };
  }

  waiting() {}

  /**
   * @param {import('../model/panel_queries.js').PanelPlan} plan
   * @param {import('./panel_runner.js').Answered[]} answers
   */
  show(plan, answers) {
    this.shown = { plan, answers };
    const events = answers.flatMap(({ query, answer }) =>
      answer.data ? annotationEvents(/** @type {any} */ (query.target).annotation, query.step, answer.data) : [],
    );
    const before = JSON.stringify(this.#events);
    this.#events = events;
    if (JSON.stringify(events) !== before) this.host.changed();
  }

  /** Panels are drawn without annotations that cannot be asked. */
  fail() {
    this.#events = [];
    this.shown = null;
  }
}
