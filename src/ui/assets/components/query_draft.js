// A query that was edited but not run, kept in the entry of the browser's history: it survives a
// reload, and a sign-in after the session has ended.

/** The shortest time between two stores of the draft, in milliseconds: browsers limit how often an
 *  entry may be replaced. */
const DRAFT_MS = 300;

/** The draft of one page. `stop` ends its timer. */
export function queryDraft() {
  /** @type {string|null} */
  let draft = null;
  let timer = 0;
  let storedAt = -Infinity;
  const store = () => {
    clearTimeout(timer);
    if (draft !== null) history.replaceState({ draft }, '');
    draft = null;
    storedAt = performance.now();
  };
  addEventListener('beforeunload', store);
  return {
    store,
    /** @param {string} text */
    keep(text) {
      draft = text;
      if (performance.now() - storedAt > DRAFT_MS) store();
      clearTimeout(timer);
      timer = setTimeout(store, DRAFT_MS);
    },
    /** Forgets the draft that is not stored yet. */
    drop() {
      draft = null;
    },
    /** The draft of the present entry, or null. @returns {string|null} */
    stored: () => (typeof history.state?.draft === 'string' ? history.state.draft : null),
    stop() {
      removeEventListener('beforeunload', store);
      clearTimeout(timer);
    },
  };
}
