// Keeps the draft of the dashboard that is edited, and warns before unsaved changes leave the window.

import { dropDraft, keepDraft } from '../model/drafts.js';
import { ownStorage } from '../model/storage.js';
import { clock } from './draft_bar.js';

/** Time between a change and its draft, in milliseconds. */
const DRAFT_MS = 500;

/** @typedef {(document: Record<string, any>) => Record<string, any>} Edit returns the edited document */

export class DraftKeeper {
  #timer = 0;
  /** @type {Edit | null} */
  #unapplied = null;
  #host;
  #listeners = new AbortController();

  /**
   * @param {{org: string, uid: string, draft: () => Omit<import('../model/drafts.js').Draft, 'at'>,
   *   dirty: () => boolean, kept: (text: string) => void}} host `draft` returns the edited dashboard, `dirty`
   *   whether it has changes, `kept` shows the outcome
   */
  constructor(host) {
    this.#host = host;
    const { signal } = this.#listeners;
    addEventListener('pagehide', () => this.flush(), { signal });
    addEventListener('beforeunload', (event) => this.#isDirty && event.preventDefault(), { signal });
  }

  get #isDirty() {
    return this.#unapplied !== null || this.#host.dirty();
  }

  /** Plans the draft of a change. */
  changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), DRAFT_MS);
  }

  /** Keeps a change that an open editor has not applied, too; null: there is none. @param {Edit | null} edit */
  unapplied(edit) {
    if (edit === this.#unapplied) return;
    this.#unapplied = edit;
    this.changed();
  }

  /** Keeps a planned draft at once. */
  flush() {
    if (this.#timer === 0) return;
    clearTimeout(this.#timer);
    this.#timer = 0;
    const { org, uid, draft, kept } = this.#host;
    if (!this.#isDirty) return dropDraft(ownStorage(), org, uid);
    const own = draft();
    const document = this.#unapplied?.(own.document) ?? own.document;
    const at = Date.now();
    const done = keepDraft(ownStorage(), org, uid, { ...own, document, at });
    kept(done ? `Draft kept at ${clock(at)}` : 'Unsaved changes. This browser cannot keep a draft of them.');
  }

  /** Removes the draft: it was saved or discarded. */
  forget() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    dropDraft(ownStorage(), this.#host.org, this.#host.uid);
  }

  stop() {
    this.flush();
    // The editors close after this, because the draft contains their edits that were not applied.
    this.#unapplied = null;
    this.#listeners.abort();
  }
}
