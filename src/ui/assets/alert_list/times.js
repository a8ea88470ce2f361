// How long an alert has been active, in words. Pure.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** @param {number} count @param {string} unit */
const counted = (count, unit) => (count > 0 ? `${count} ${unit}` : '');

/**
 * A duration in the two largest units of minutes, hours and days, such as `2 h 5 min`. Negative ones,
 * of a clock that is behind, count as 0.
 * @param {number} seconds
 */
export function durationText(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < MINUTE) return 'less than 1 min';
  const [days, hours, minutes] = [
    Math.floor(whole / DAY),
    Math.floor((whole % DAY) / HOUR),
    Math.floor((whole % HOUR) / MINUTE),
  ];
  if (days > 0) return [counted(days, 'd'), counted(hours, 'h')].filter(Boolean).join(' ');
  return [counted(hours, 'h'), counted(minutes, 'min')].filter(Boolean).join(' ');
}

/**
 * The number of alerts by state, such as `2 firing, 1 pending`.
 * @param {{firing: number, pending: number}} counts
 * @param {string} only the only state that is listed; '' for both
 */
export function countText({ firing, pending }, only) {
  const parts = [only !== 'pending' && `${firing} firing`, only !== 'firing' && `${pending} pending`];
  return parts.filter(Boolean).join(', ');
}
