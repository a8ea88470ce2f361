// The variables of a dashboard for visitors: values of attributes, choices, and options of the server.

import { resolveWith } from '../model/resolve_variables.js';
import { allowedOptions, attributeValues, sentValues } from './view.js';

/**
 * @typedef {import('../model/variables.js').Variable} Variable
 * @typedef {import('../model/interpolate.js').Selections} Selections
 * @typedef {import('./view.js').View['access']} Access
 */

/** The most rounds of questions: a variable may depend on the ones before it. */
const ROUNDS_MAX = 4;

export class Variables {
  /** @type {Selections} */
  selections = new Map();
  /** @type {Variable[]} */
  #variables = [];
  /** @type {Access} */
  #access = new Map();
  /** Values that are shown although the options may lack them. @type {Map<string, string[]>} */
  #wanted = new Map();
  /** The variables of a snapshot. @type {Record<string, string[]> | null} */
  #stored = null;

  /** @param {import('./source.js').DashboardSource} source */
  constructor(source) {
    this.source = source;
  }

  /**
   * @param {Variable[]} variables
   * @param {Access} access
   * @param {Record<string, string[]> | null} stored values of a snapshot
   */
  adopt(variables, access, stored) {
    [this.#variables, this.#access, this.#stored] = [variables, access, stored];
    this.#wanted = new Map(Object.entries(stored ?? {}));
  }

  /** Takes the values of attributes such as `var-host`. @param {Iterable<{name: string, value: string}>} attributes */
  setAttributes(attributes) {
    if (this.#stored) return;
    for (const [name, values] of attributeValues(attributes, this.#variables)) {
      if (this.#access.get(name)?.access === 'open') this.#wanted.set(name, values);
    }
  }

  /** A choice of the visitor. @param {string} name @param {string[]} values */
  choose(name, values) {
    // Only the server knows which variables depend on it, so the other variables keep their values
    // if their options have them.
    this.#variables = this.#variables.map((variable) => {
      const selection = this.selections.get(variable.name);
      if (variable.type !== 'query' || variable.name === name || !selection) return variable;
      this.#wanted.delete(variable.name);
      return { ...variable, current: { text: selection.text, value: selection.value } };
    });
    this.#wanted.set(name, values);
  }

  /** The values of all variables, for a snapshot. */
  values() {
    return Object.fromEntries([...this.selections].map(([name, { value }]) => [name, [value].flat().map(String)]));
  }

  /**
   * Asks for options until the values do not change any more.
   * @param {{range: import('../model/time.js').Range}} context
   */
  async resolve(context) {
    /** @type {Map<string, Promise<unknown[]>>} */
    const asked = new Map();
    let sent = this.#before();
    for (let round = 1; ; round += 1) {
      const found = await resolveWith(this.#variables, this.#wanted, {
        context,
        answer: ({ name }) => {
          const { [name]: _, ...others } = sent;
          const key = JSON.stringify([name, others]);
          const answer = asked.get(key) ?? this.source.options(name, others, context.range);
          asked.set(key, answer);
          return answer.then((options) => allowedOptions(options, this.#access.get(name)));
        },
      });
      this.selections = found.selections;
      const next = sentValues(found.selections, this.#access);
      if (round === ROUNDS_MAX || JSON.stringify(next) === JSON.stringify(sent)) return found.resolved;
      sent = next;
    }
  }

  /** The values before any option is known. @returns {Record<string, string[]>} */
  #before() {
    const known = this.#variables.flatMap(({ name, current }) => {
      const values = this.#wanted.get(name) ?? [current.value].flat().filter((value) => value !== '');
      return this.#access.get(name)?.access === 'open' && values.length > 0 ? [[name, values]] : [];
    });
    return Object.fromEntries(known);
  }
}
