// Server-sent events, read from the text of a response as it arrives.

import { ApiError } from './api_error.js';

/** The longest event, in characters. The server sends at most 1 MiB for one step of a query. */
const EVENT_CHARS_MAX = 4 << 20;

/**
 * @typedef {Object} ServerEvent
 * @property {string} type `message` if the server names none
 * @property {string} data lines are joined with `\n`
 * @property {string|null} id null without a line `id`
 */

/** A parser of one stream. It holds at most one event and one piece of text. */
export class EventReader {
  #rest = '';
  /** The characters of `#rest` that hold no line break. */
  #scanned = 0;
  /** The characters of the event so far. */
  #size = 0;
  #type = '';
  /** @type {string[]} */
  #data = [];
  /** @type {string|null} */
  #id = null;

  /**
   * Takes the next text. Returns the events that it completes. An event without data is dropped.
   * @param {string} text of any length; an event may begin and end anywhere in it
   * @returns {ServerEvent[]}
   * @throws {ApiError} for an event of more than EVENT_CHARS_MAX characters
   */
  push(text) {
    const events = [];
    this.#rest += text;
    let begin = 0;
    for (let end = this.#rest.indexOf('\n', this.#scanned); end >= 0; end = this.#rest.indexOf('\n', begin)) {
      const event = this.#line(this.#rest.slice(begin, this.#rest[end - 1] === '\r' && end > begin ? end - 1 : end));
      if (event) events.push(event);
      begin = end + 1;
    }
    this.#rest = this.#rest.slice(begin);
    this.#scanned = this.#rest.length;
    this.#bound(this.#size + this.#rest.length);
    return events;
  }

  /** @param {number} size */
  #bound(size) {
    if (size <= EVENT_CHARS_MAX) return;
    throw new ApiError({ code: 'unreadable_answer', detail: 'An event of the live stream is too long.' });
  }

  /**
   * @param {string} line without its line break
   * @returns {ServerEvent|null} the event that an empty line ends
   */
  #line(line) {
    if (line === '') {
      const event = { type: this.#type || 'message', data: this.#data.join('\n'), id: this.#id };
      const complete = this.#data.length > 0;
      [this.#type, this.#data, this.#id, this.#size] = ['', [], null, 0];
      return complete ? event : null;
    }
    this.#size += line.length;
    this.#bound(this.#size);
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
    if (name === 'data') this.#data.push(value);
    else if (name === 'event') this.#type = value;
    else if (name === 'id') this.#id = value;
    return null;
  }
}
