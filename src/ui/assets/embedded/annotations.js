// The annotations of a dashboard for visitors, asked for by their places.

import { writeAnnotationReference } from './view.js';

/** @typedef {import('../components/annotation_source.js').AnnotationSource} AnnotationSource */

export class Annotations {
  #runner;
  #host;
  /** @type {AnnotationSource | null} */
  #source = null;

  /**
   * @param {import('../components/panel_runner.js').PanelRunner} runner
   * @param {ConstructorParameters<typeof import('../components/annotation_source.js').AnnotationSource>[0]} host
   */
  constructor(runner, host) {
    this.#runner = runner;
    this.#host = host;
  }

  /** The events that a panel shows. @param {number | null} id */
  of(id) {
    return this.#source?.of(id) ?? [];
  }

  /** The answers from which the events were made; null without any. */
  get shown() {
    return this.#source?.shown ?? null;
  }

  /** Has the annotations that the view now has asked together with its panels. */
  async update() {
    if (this.#source) this.#runner.remove(this.#source);
    if (this.#host.view().annotations.length === 0) return;
    const { AnnotationSource } = await import('../components/annotation_source.js');
    this.#source ??= new AnnotationSource({ ...this.#host, write: writeAnnotationReference });
    this.#runner.remove(this.#source);
    this.#runner.addHidden(this.#source);
  }
}
