// The difference of two texts by lines: the shortest one, for texts that differ in few lines.

/**
 * @typedef {{kind: 'same' | 'removed' | 'added' | 'skipped', text: string}} DiffLine `skipped`: lines
 *   that are the same and not shown; the text counts them
 */

/** The most lines that are searched for the shortest difference; with more, all of them are replaced. */
export const EDITS_MAX = 2000;
/** The most lines of a result. */
export const SHOWN_MAX = 4000;
/** Lines that are the same and shown around a difference. */
const CONTEXT = 3;

/**
 * The shortest edit from one list to the other, after E. W. Myers, "An O(ND) difference algorithm
 * and its variations" (1986): the farthest point of each diagonal for 0, 1, 2, ... edits.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {DiffLine[] | null} null where it takes over EDITS_MAX edits
 */
function shortestEdit(before, after) {
  const most = Math.min(EDITS_MAX, before.length + after.length);
  const middle = most + 1;
  const farthest = new Int32Array(2 * most + 3);
  /** The farthest points before each number of edits. @type {Int32Array[]} */
  const trace = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(farthest.slice(middle - edits - 1, middle + edits + 2));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = middle + diagonal;
      const down = diagonal === -edits || (diagonal !== edits && farthest[at - 1] < farthest[at + 1]);
      let x = down ? farthest[at + 1] : farthest[at - 1] + 1;
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x += 1;
      farthest[at] = x;
      if (x >= before.length && x - diagonal >= after.length) return walkedBack(before, after, trace);
    }
  }
  return null;
}

/** @param {string[]} before @param {string[]} after @param {Int32Array[]} trace */
function walkedBack(before, after, trace) {
  /** @type {DiffLine[]} */
  const lines = [];
  let x = before.length;
  let y = after.length;
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const diagonal = x - y;
    const point = (/** @type {number} */ of) => trace[edits][of + edits + 1];
    const down = diagonal === -edits || (diagonal !== edits && point(diagonal - 1) < point(diagonal + 1));
    const from = edits === 0 ? 0 : point(down ? diagonal + 1 : diagonal - 1);
    const fromY = edits === 0 ? 0 : from - (down ? diagonal + 1 : diagonal - 1);
    while (x > from && y > fromY) {
      lines.push({ kind: 'same', text: before[x - 1] });
      x -= 1;
      y -= 1;
    }
    if (edits > 0) lines.push(down ? { kind: 'added', text: after[y - 1] } : { kind: 'removed', text: before[x - 1] });
    x = from;
    y = fromY;
  }
  return lines.reverse();
}

/**
 * The lines of both texts that differ, with three lines around them.
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]} empty for equal texts; at most SHOWN_MAX lines
 */
export function lineDiff(before, after) {
  if (before === after) return [];
  const [old, now] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < Math.min(old.length, now.length) && old[start] === now[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, now.length) - start;
  while (end < most && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const [removed, added] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
  const same = (/** @type {string} */ text) => /** @type {DiffLine} */ ({ kind: 'same', text });
  const middle = shortestEdit(removed, added) ?? [
    ...removed.map((text) => /** @type {DiffLine} */ ({ kind: 'removed', text })),
    ...added.map((text) => /** @type {DiffLine} */ ({ kind: 'added', text })),
  ];
  const all = [...old.slice(0, start).map(same), ...middle, ...old.slice(old.length - end).map(same)];
  const shown = folded(all);
  if (shown.length <= SHOWN_MAX) return shown;
  return [...shown.slice(0, SHOWN_MAX - 1), { kind: 'skipped', text: `${shown.length - SHOWN_MAX + 1} more lines` }];
}

/** Replaces lines far from a difference by their number. @param {DiffLine[]} lines @returns {DiffLine[]} */
function folded(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(({ kind }, at) => {
    if (kind !== 'same') near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
  });
  /** @type {DiffLine[]} */
  const result = [];
  for (let at = 0; at < lines.length; at += 1) {
    if (near[at]) {
      result.push(lines[at]);
      continue;
    }
    const first = at;
    while (at + 1 < lines.length && !near[at + 1]) at += 1;
    const count = at - first + 1;
    result.push({ kind: 'skipped', text: `${count} ${count === 1 ? 'line' : 'lines'}` });
  }
  return result;
}
