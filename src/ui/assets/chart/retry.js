// Retries of requests that the server asks to repeat later.

import { ApiError } from './api_error.js';

/** The longest Retry-After that is honoured, in seconds. */
const WAIT_MAX = 60;
const TRIES_MAX = 4;
/** The longest pause that no server asked for, in seconds. */
const PAUSE_MAX = 30;

/**
 * Resolves after `seconds`; rejects at once when the request is aborted.
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

/**
 * Waits as long as a refused request asks for. Throws the error where a retry would not help: 429 and
 * busy responses carry Retry-After, but a timed-out query would time out again.
 * @param {unknown} error
 * @param {number} attempt the number of requests so far
 * @param {AbortSignal} [signal]
 */
export async function waitToRetry(error, attempt, signal) {
  if (!(error instanceof ApiError) || ![429, 503].includes(error.status) || attempt >= TRIES_MAX) throw error;
  const wait = error.retryAfter || (error.status === 429 ? 1 : 0);
  if (wait === 0 || wait > WAIT_MAX) throw error;
  // Jitter spreads the retries.
  await pause(wait + Math.random() * 0.5, signal);
}

/**
 * The pause before the next try, in seconds. Half of it is random, so that the pages of a restarted
 * server do not come at once.
 * @param {number} failures in a row, at least 1
 * @param {number} asked Retry-After, or 0
 * @param {number} random at least 0, below 1
 */
export function reconnectPause(failures, asked, random) {
  const pause = Math.min(PAUSE_MAX, 2 ** Math.min(failures - 1, 10));
  return asked > 0 ? asked + random * Math.min(asked, PAUSE_MAX) : pause * (0.5 + random / 2);
}
