// Fuzzy search: how well a text matches typed words, and the best matches of a list.

/** Longest query and longest text that are compared, in UTF-16 code units. */
const QUERY_MAX = 100;
const TEXT_MAX = 300;

/** Whether a word starts at an index of a text. @param {string} text @param {number} at */
const startsWord = (text, at) => at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]);

/**
 * How well one word matches a text; null for no match. A part of the text counts more than scattered
 * letters, and the start of a word more than its middle.
 * @param {string} text in lower case
 * @param {string} word in lower case
 * @returns {number|null}
 */
function wordScore(text, word) {
  let best = -1;
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (best < 0 || startsWord(text, at)) best = at;
    if (startsWord(text, at)) break;
  }
  if (best >= 0) return 1000 + (startsWord(text, best) ? 500 : 0) - best;
  let from = -1;
  let gaps = 0;
  for (const letter of word) {
    const at = text.indexOf(letter, from + 1);
    if (at < 0) return null;
    if (at !== from + 1 && !startsWord(text, at)) gaps += 1;
    from = at + letter.length - 1;
  }
  // Letters scattered over a long text are chance.
  return gaps > word.length / 2 ? null : 400 - 40 * gaps;
}

/**
 * How well a text matches a query, whose words may come in any order; null if a word does not match.
 * Greater is better.
 * @param {string} text
 * @param {string} query
 * @returns {number|null}
 */
export function fuzzyScore(text, query) {
  const lower = text.slice(0, TEXT_MAX).toLowerCase();
  let score = 0;
  for (const word of query.slice(0, QUERY_MAX).toLowerCase().split(/\s+/).filter(Boolean)) {
    const found = wordScore(lower, word);
    if (found === null) return null;
    score += found;
  }
  return score - lower.length / 10;
}

/**
 * The best matches, best first. Entries that were used recently come first among matches of the
 * same quality, and first of all without a query.
 * @template {{id: string, text: string}} Entry
 * @param {Entry[]} entries
 * @param {string} query
 * @param {string[]} recent ids, the newest first
 * @param {number} most
 * @returns {Entry[]}
 */
export function bestMatches(entries, query, recent, most) {
  const used = (/** @type {Entry} */ entry) => {
    const at = recent.indexOf(entry.id);
    return at < 0 ? 0 : recent.length - at;
  };
  const asked = query.trim() !== '';
  return entries
    .flatMap((entry, order) => {
      const score = fuzzyScore(entry.text, query);
      // A use outweighs small differences between matches, never a better kind of match.
      return score === null ? [] : [{ entry, order, score: (asked ? score : 0) + used(entry) * (asked ? 5 : 1e4) }];
    })
    .sort((a, b) => b.score - a.score || a.order - b.order)
    .slice(0, most)
    .map(({ entry }) => entry);
}
