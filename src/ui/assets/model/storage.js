// Values that this browser remembers. Private windows may refuse to; then nothing is remembered.

/**
 * @template T
 * @param {string} key
 * @param {T} fallback
 * @returns {T}
 */
export function recall(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`promlet.${key}`) ?? 'null') ?? fallback;
  } catch {
    return fallback;
  }
}

/**
 * @param {string} key
 * @param {any} value
 */
export function remember(key, value) {
  try {
    localStorage.setItem(`promlet.${key}`, JSON.stringify(value));
  } catch {
    // Without storage only the history is lost.
  }
}

/**
 * The storage of this browser for one origin; null where it is refused.
 * @returns {Storage | null}
 */
export function ownStorage() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}
