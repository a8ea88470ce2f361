// Regular expressions from dashboards, with a bound on the time that matching takes.

/** Longest accepted expression, in UTF-16 code units. */
export const PATTERN_MAX = 1024;
/** Longest text that an expression runs over, in UTF-16 code units; longer text does not match. */
export const TEXT_MAX = 1024;
/** Backtracking steps allowed for one match: about a third of a second. */
const STEPS_MAX = 1e8;
/** An expression that is affordable on fewer code units than this is rejected. */
const TEXT_MIN = 64;
/** Time that one costly expression may use in total, in milliseconds. */
const SPENT_MAX_MS = 1000;
/** A counted repetition with more choices than this is treated as an unbounded one. */
const CHOICES_MAX = 16;
/** A group with choices inside may be repeated this often. */
const REPEATS_MAX = 4;

/**
 * @typedef {{min: number, max: number, literal: string | null, has: ((char: string) => boolean) | null,
 *   branches: Item[][] | null, any: boolean}} Item
 * `literal` is the one character that the item matches; `has` is null when its set is not known.
 * @typedef {{ways: number, degree: number, scans: boolean}} Cost
 * An expression takes at most `ways` times n to the power of `degree` paths on text of length n;
 * `scans` adds one run over the text to each path.
 */

/** Raised for syntax that has no bound: back references and nested repetition. */
class Unbounded extends Error {}

/** Set of the characters in an escape such as `\d`; null when it is not known. */
const ESCAPES = new Map(Object.entries({ d: /\d/, D: /\D/, w: /\w/, W: /\W/, s: /\s/, S: /\S/ }));

/** Reads an expression that `RegExp` accepts. Its depth is bounded by PATTERN_MAX. */
class Reader {
  /** @param {string} text @param {string} flags */
  constructor(text, flags) {
    this.text = text;
    this.flags = flags;
    this.at = 0;
  }

  /** @returns {Item[][]} */
  branches() {
    /** @type {Item[][]} */
    const branches = [[]];
    while (this.at < this.text.length && this.text[this.at] !== ')') {
      if (this.text[this.at] === '|') {
        this.at += 1;
        branches.push([]);
      } else branches[branches.length - 1].push(this.item());
    }
    return branches;
  }

  /** @returns {Item} */
  item() {
    const item = this.atom();
    const rest = this.text.slice(this.at, this.at + 24);
    const found = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(rest);
    if (!found) return item;
    this.at += found[0].length;
    if (this.text[this.at] === '?') this.at += 1;
    const sign = found[0][0];
    item.min = sign === '{' ? Number(found[1]) : sign === '+' ? 1 : 0;
    item.max = sign === '{' ? Number(found[3] || (found[2] ? Infinity : found[1])) : sign === '?' ? 1 : Infinity;
    return item;
  }

  /** @returns {Item} */
  atom() {
    /** @type {Item} */
    const item = { min: 1, max: 1, literal: null, has: null, branches: null, any: false };
    const char = this.text[this.at++];
    if (char === '(') {
      const prefix = /^\?(?:[:=!]|<[=!]|<[^>]*>)/.exec(this.text.slice(this.at));
      this.at += prefix ? prefix[0].length : 0;
      item.branches = this.branches();
      this.at += 1;
    } else if (char === '[') {
      const start = this.at - 1;
      while (this.at < this.text.length && this.text[this.at] !== ']') this.at += this.text[this.at] === '\\' ? 2 : 1;
      this.at += 1;
      const set = new RegExp(this.text.slice(start, this.at), this.flags.replace(/[gy]/g, ''));
      item.has = (one) => set.test(one);
    } else if (char === '\\') this.escape(item);
    else if (char === '.') Object.assign(item, { any: true, has: () => true });
    else if (char === '^' || char === '$') Object.assign(item, { min: 0, max: 0, literal: char });
    else this.fix(item, char);
    return item;
  }

  /** @param {Item} item */
  escape(item) {
    const char = this.text[this.at++];
    const set = ESCAPES.get(char);
    if (/[1-9k]/.test(char)) throw new Unbounded();
    if (set) item.has = (one) => set.test(one);
    else if (char === 'b' || char === 'B') Object.assign(item, { min: 0, max: 0 });
    else if (/[pPuxc]/.test(char)) {
      const found = /^(?:\{[^}]*\}|[0-9a-fA-F]{4}|[0-9a-fA-F]{2}|[A-Za-z])/.exec(this.text.slice(this.at));
      this.at += found ? found[0].length : 0;
    } else if (/[a-zA-Z0-9]/.test(char)) item.has = null;
    else this.fix(item, char);
  }

  /** @param {Item} item @param {string} char */
  fix(item, char) {
    const folded = this.flags.includes('i') ? char.toLowerCase() : char;
    item.literal = folded;
    item.has = (one) => one === char || (this.flags.includes('i') && one.toLowerCase() === folded);
  }
}

/** The kind of text after an item: one character, the end of the expression, or something unknown. */
const END = Symbol('end');
/** @typedef {string | symbol | null} Next */

/** @param {Item[]} items @param {Next} next @returns {Next} first character of a sequence */
function first(items, next) {
  for (const item of items) {
    if (item.max === 0) continue;
    if (item.min === 0) return null;
    if (!item.branches) return item.literal;
    return item.branches.length === 1 ? first(item.branches[0], null) : null;
  }
  return next;
}

/** @param {Item[]} items @param {Next} next @returns {Cost} */
function sequence(items, next) {
  /** @type {Cost} */
  const total = { ways: 1, degree: 0, scans: false };
  items.forEach((item, index) => {
    if (item.max === 0) return;
    const one = single(item, first(items.slice(index + 1), next));
    total.ways *= one.ways;
    total.degree += one.degree;
    total.scans ||= one.scans;
  });
  return total;
}

/** @param {Item} item @param {Next} next @returns {Cost} */
function single(item, next) {
  const once = item.max <= 1;
  const body = item.branches ? alternatives(item.branches, once ? next : null) : { ways: 1, degree: 0, scans: false };
  const choices = item.max - item.min;
  if (!once && (body.ways > 1 || body.degree > 0)) {
    if (item.max > REPEATS_MAX) throw new Unbounded();
    body.ways **= item.max;
    body.degree *= item.max;
  }
  if (choices === 0) return body;
  const settled = next === END || (typeof next === 'string' && item.has !== null && !item.has(next));
  if (settled) return { ...body, scans: true };
  return choices > CHOICES_MAX ? { ...body, degree: body.degree + 1 } : { ...body, ways: body.ways * (choices + 1) };
}

/** @param {Item[][]} branches @param {Next} next @returns {Cost} */
function alternatives(branches, next) {
  const costs = branches.map((items) => sequence(items, next));
  const starts = new Set(branches.map((items) => first(items, null)));
  const distinct = starts.size === branches.length && !starts.has(null);
  const ways = costs.map((cost) => cost.ways);
  return {
    ways: distinct ? Math.max(...ways) : ways.reduce((sum, one) => sum + one, 0),
    degree: Math.max(...costs.map((cost) => cost.degree)),
    scans: costs.some((cost) => cost.scans),
  };
}

/** @param {Cost} cost @param {number} starts 1 when each position may start a match, else 0 */
function affordable(cost, starts) {
  const power = cost.degree + starts + (cost.scans ? 1 : 0);
  let orders = 1;
  for (let order = 2; order <= power; order += 1) orders *= order;
  if (cost.ways > STEPS_MAX) return 0;
  return power === 0 ? TEXT_MAX : Math.min(TEXT_MAX, Math.floor((STEPS_MAX * orders / cost.ways) ** (1 / power)));
}

/**
 * Longest text that the expression may run over, without and with line ends in it; null when it
 * has no useful bound. `leading` is true for an expression that begins with `.*` or `.+`: its match
 * starts at the first position or nowhere.
 * @param {RegExp} regex
 */
function bound(regex) {
  try {
    const branches = new Reader(regex.source, regex.flags).branches();
    const cost = alternatives(branches, END);
    const [head] = branches[0];
    const leading = branches.length === 1 && head?.any === true && head.max === Infinity;
    const anchored = regex.sticky
      || (!regex.multiline && branches.every((items) => items[0]?.max === 0 && items[0].literal === '^'));
    const plain = affordable(cost, anchored || leading ? 0 : 1);
    const lines = affordable(cost, anchored ? 0 : 1);
    return plain < TEXT_MIN ? null : { plain, lines, leading, costly: cost.degree > 1 };
  } catch (error) {
    if (error instanceof Unbounded || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** A regular expression that does not match text beyond its bound, nor after it used its time. */
class BoundedRegExp extends RegExp {
  /** @param {string | RegExp} pattern @param {string} [flags] */
  constructor(pattern, flags) {
    super(pattern, flags);
    this.bound = bound(this);
    this.spent = 0;
    this.fromStart = this.bound?.leading ? new RegExp(this.source, this.sticky ? this.flags : `${this.flags}y`) : null;
  }

  /** @param {string} text @returns {RegExpExecArray | null} */
  exec(text) {
    const lines = /[\n\r\u2028\u2029]/.test(text);
    const limit = this.bound ? this.bound[lines ? 'lines' : 'plain'] : 0;
    if (text.length > limit || this.spent > SPENT_MAX_MS) {
      this.lastIndex = 0;
      return null;
    }
    const began = this.bound?.costly ? performance.now() : 0;
    const found = this.fromStart && !lines ? this.start(this.fromStart, text) : super.exec(text);
    if (began > 0) this.spent += performance.now() - began;
    return found;
  }

  /** Whether any part of a text matches; unlike the native method, the same for each call. @param {string} text */
  test(text) {
    this.lastIndex = 0;
    const found = this.exec(text) !== null;
    this.lastIndex = 0;
    return found;
  }

  /** @param {RegExp} sticky @param {string} text */
  start(sticky, text) {
    const keeps = this.global || this.sticky;
    sticky.lastIndex = keeps ? this.lastIndex : 0;
    const found = sticky.exec(text);
    if (keeps) this.lastIndex = sticky.lastIndex;
    return found;
  }
}

/**
 * Compiles the text of a regular expression as Grafana does: `/expression/flags`, or an expression
 * for the whole text without slashes (`{whole: false}`: for any part of it). Returns null for an
 * invalid expression, for one over PATTERN_MAX, and for one whose backtracking has no bound: nested
 * repetition, back references, many overlapping repetitions.
 * @param {unknown} text
 * @param {{whole?: boolean}} [options]
 * @returns {RegExp | null}
 */
export function safeRegex(text, { whole = true } = {}) {
  if (typeof text !== 'string' || text.length > PATTERN_MAX) return null;
  const parts = text.startsWith('/') && whole ? /^\/([^]*)\/([gimsuy]*)$/.exec(text) : null;
  if (text.startsWith('/') && whole && !parts) return null;
  try {
    const regex = parts ? new BoundedRegExp(parts[1], parts[2]) : new BoundedRegExp(whole ? `^${text}$` : text);
    return regex.bound ? regex : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
