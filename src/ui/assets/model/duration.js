// Durations in Prometheus' syntax.

const DAY = 86_400;

/**
 * Seconds as a Prometheus duration: 5400 is "1h30m".
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  let left = Math.round(seconds * 1000);
  let text = '';
  for (const [unit, size] of /** @type {[string, number][]} */ ([
    ['d', DAY],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
    ['ms', 0.001],
  ])) {
    const count = Math.floor(left / (size * 1000));
    if (count > 0) text += `${count}${unit}`;
    left -= count * size * 1000;
  }
  return text || '0s';
}
