// Refreshes a page in an interval; a window in the background waits until it is seen again.

import { durationMs } from '../model/time.js';

/** The shortest interval, in milliseconds. */
const REFRESH_MIN = 5000;

/**
 * @param {{interval: () => string | null, busy: () => boolean, refresh: () => void}} host `interval`:
 *   such as `30s`, anything else for none; a refresh that is due while the page is `busy` is left out
 */
export function refreshTimer({ interval, busy, refresh }) {
  let timer = 0;
  let due = false;
  /** Plans the next refresh. */
  function plan() {
    clearTimeout(timer);
    due = false;
    const wait = durationMs(interval() ?? '');
    if (wait === null) return;
    timer = setTimeout(
      () => {
        if (document.hidden) due = true;
        else if (busy()) plan();
        else refresh();
      },
      Math.max(REFRESH_MIN, wait),
    );
  }
  const wake = () => {
    if (!document.hidden && due) refresh();
  };
  document.addEventListener('visibilitychange', wake);
  return {
    plan,
    /** Cancels the planned refresh. */
    cancel: () => clearTimeout(timer),
    destroy() {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', wake);
    },
  };
}
