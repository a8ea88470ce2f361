// Adds up the time of callbacks: imported before the modules that ask for frames and observers.

export const spent = { milliseconds: 0 };
let depth = 0;

/** Calls it and adds its time. */
export function timed(action) {
  if (depth > 0) return action();
  depth += 1;
  const from = performance.now();
  try {
    return action();
  } finally {
    depth -= 1;
    spent.milliseconds += performance.now() - from;
  }
}

const frame = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (callback) => frame((now) => timed(() => callback(now)));
for (const name of ['ResizeObserver', 'IntersectionObserver']) {
  const Plain = window[name];
  window[name] = class extends Plain {
    constructor(callback, options) {
      super((...entries) => timed(() => callback(...entries)), options);
    }
  };
}
