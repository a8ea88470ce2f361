// Annotations of a dashboard: events from the answers of PromQL queries.

import { interpolate } from './interpolate.js';
import { queryText } from './query_text.js';
import { intervalFor } from './time.js';

/**
 * @typedef {import('./dashboard.js').Annotation} Annotation
 * @typedef {{from: number, to: number, title: string, text: string, color: string,
 *   annotation: Annotation}} AnnotationEvent milliseconds; `to` equals `from` for a moment
 */

/** The most events of one annotation query. */
const EVENTS_MAX = 500;
/** Grafana's step without a configured one, in seconds. */
const STEP = 60;

/**
 * Writes the query of an annotation; null for one that cannot be asked. `ask` are members of a request.
 * @typedef {(annotation: Annotation, context: {selections: import('./interpolate.js').Selections,
 *   range: import('./time.js').Range, interval: ReturnType<typeof intervalFor>}) =>
 *   {expr: string, ask: Record<string, any>} | null} WriteAnnotation
 */

/** @type {WriteAnnotation} */
export function writeAnnotation({ expr }, { selections, range, interval }) {
  const text = queryText(expr, selections, { range, interval });
  return text.trim() === '' ? null : { expr: text, ask: { expr: text } };
}

/**
 * The queries of the annotations that are enabled and come from PromQL.
 * @param {Annotation[]} annotations
 * @param {{selections: import('./interpolate.js').Selections, range: import('./time.js').Range}} view
 * @param {WriteAnnotation} [write]
 * @returns {{annotation: Annotation, expr: string, ask: Record<string, any>, step: number}[]} `step` in seconds
 */
export function annotationQueries(annotations, { selections, range }, write = writeAnnotation) {
  return annotations
    .filter(({ enable, supported, builtIn }) => enable && supported && !builtIn)
    .flatMap((annotation) => {
      const minInterval = interpolate(annotation.step, selections) || `${STEP}s`;
      const interval = intervalFor({ from: range.from, to: range.to, minInterval });
      const query = write(annotation, { selections, range, interval });
      return query ? [{ annotation, ...query, step: interval.intervalMs / 1000 }] : [];
    });
}

/** @param {string} template @param {Record<string, string>} labels */
const filled = (template, labels) =>
  template.replaceAll(/\{\{([^{}]{1,200})\}\}/g, (_, key) =>
    Object.hasOwn(labels, key.trim()) ? labels[key.trim()] : '',
  );

/**
 * Each sample other than 0 is an event; samples of a series that follow each other make one event
 * with a length. With `useValueForTime` the value is the time, in milliseconds.
 * @param {Annotation} annotation
 * @param {number} step of the query in seconds
 * @param {import('./frame.js').Answer} answer
 * @returns {AnnotationEvent[]}
 */
export function annotationEvents(annotation, step, answer) {
  /** @type {AnnotationEvent[]} */
  const events = [];
  for (const row of Array.isArray(answer.result) ? answer.result : []) {
    const labels = row.metric ?? {};
    const title = filled(annotation.titleFormat || annotation.name, labels);
    const text = filled(annotation.textFormat, labels);
    /** @type {AnnotationEvent | null} */
    let last = null;
    for (const [at, value] of row.values ?? (row.value ? [row.value] : [])) {
      const number = Number(value);
      if (!Number.isFinite(number) || number === 0 || events.length >= EVENTS_MAX) continue;
      const time = annotation.useValueForTime ? number : at * 1000;
      if (last && !annotation.useValueForTime && time - last.to <= step * 1000) last.to = time;
      else {
        last = { from: time, to: time, title, text, color: annotation.color, annotation };
        events.push(last);
      }
    }
  }
  return events;
}

/** Whether a panel shows an annotation. @param {Annotation} annotation @param {number | null} id */
export function isShownIn({ panelIds, exclude }, id) {
  if (panelIds.length === 0) return true;
  return (id !== null && panelIds.includes(id)) !== exclude;
}
