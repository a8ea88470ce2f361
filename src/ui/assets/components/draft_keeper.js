// Keeps the draft of the dashboard that is edited, and warns before unsaved changes leave the window.

import { dropDraft, keepDraft } from '../model/drafts.js';
import { ownStorage } from '../model/storage.js';
import { clock } from './draft_bar.js';

/** Time between a change and its draft, in milliseconds. */
const DRAFT_MS = 500;

export class DraftKeeper {
  #timer = 0;
  #host;
  #listeners = new AbortController();

  /**
   * @param {{org: string, uid: string, draft: () => Omit<import('../model/drafts.js').Draft, 'at'> | null,
   *   kept: (text: string) => void}} host `draft` returns null without changes, `kept` shows the outcome
   */
  constructor(host) {
    this.#host = host;
    const { signal } = this.#listeners;
    addEventListener('pagehide', () => this.flush(), { signal });
    addEventListener('beforeunload', (event) => host.draft() && event.preventDefault(), { signal });
  }

  /** Plans the draft of a change. */
  changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), DRAFT_MS);
  }

  /** Keeps a planned draft at once. */
  flush() {
    if (this.#timer === 0) return;
    clearTimeout(this.#timer);
    this.#timer = 0;
    const { org, uid, draft, kept } = this.#host;
    const own = draft();
    if (!own) return dropDraft(ownStorage(), org, uid);
    const at = Date.now();
    const done = keepDraft(ownStorage(), org, uid, { ...own, at });
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
    this.#listeners.abort();
  }
}
