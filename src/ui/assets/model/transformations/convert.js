// Transformation `convertFieldType`, and the text of times.

import { list, namesAmong, text, withFields } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Field} Field */

/** @param {number} value @param {number} [width] */
const padded = (value, width = 2) => String(value).padStart(width, '0');

/**
 * The text of a time in a format of letters as dashboards have it: YYYY, YY, MM, M, DD, D, HH, H, mm, m,
 * ss, s, SSS, x (milliseconds) and X (seconds). Other letters stay.
 * @param {number} time in milliseconds
 * @param {string} format
 */
export function timeText(time, format) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return 'Invalid date';
  const offset = -date.getTimezoneOffset();
  const zone = `${offset < 0 ? '-' : '+'}${padded(Math.floor(Math.abs(offset) / 60))}:${padded(Math.abs(offset) % 60)}`;
  /** @type {Map<string, string>} */
  const parts = new Map([
    ['YYYY', padded(date.getFullYear(), 4)], ['YY', padded(date.getFullYear() % 100)],
    ['MM', padded(date.getMonth() + 1)], ['M', String(date.getMonth() + 1)],
    ['DD', padded(date.getDate())], ['D', String(date.getDate())],
    ['HH', padded(date.getHours())], ['H', String(date.getHours())],
    ['mm', padded(date.getMinutes())], ['m', String(date.getMinutes())],
    ['ss', padded(date.getSeconds())], ['s', String(date.getSeconds())],
    ['SSS', padded(date.getMilliseconds(), 3)], ['Z', zone],
    ['x', String(date.getTime())], ['X', String(Math.floor(date.getTime() / 1000))],
  ]);
  return format.replace(/\[([^\]]*)\]|YYYY|YY|MM?|DD?|HH?|mm?|ss?|SSS|[ZxX]/g,
    (part, quoted) => quoted ?? parts.get(part) ?? part);
}

/** @param {any} value @returns {number | null} */
function toNumber(value) {
  const number = Number(typeof value === 'string' ? value.replaceAll(',', '') : value);
  return Number.isNaN(number) ? null : number;
}

/** @param {any} value @returns {number | null} in milliseconds */
function toTime(value) {
  if (typeof value === 'number') return Number.isNaN(value) ? null : value;
  // A date alone is one of the reader's time zone, as a date with a time is.
  const date = typeof value === 'string' ? value.trim() : '';
  const local = /^\d{4}-\d{2}-\d{2}$/.test(date) ? `${date}T00:00` : date;
  const time = /^\d{4}-\d{2}/.test(date) ? Date.parse(local) : NaN;
  return Number.isNaN(time) ? null : time;
}

/** @param {any} value @returns {any} what a text holds as JSON; null for other text */
function parsed(value) {
  if (typeof value !== 'string') return value;
  try {
    return JSON.parse(value);
  } catch {
    return null;
  }
}

/** @param {Field} field @param {any} conversion @returns {Field} */
function convert(field, conversion) {
  const all = Array.from(field.values);
  switch (conversion.destinationType) {
    case 'number': return { ...field, type: 'number', values: all.map(toNumber) };
    case 'boolean': return { ...field, type: 'boolean', values: all.map(Boolean) };
    case 'time': return { ...field, type: 'time', values: all.map(toTime) };
    case 'other': return { ...field, type: 'other', values: all.map(parsed) };
    case 'string': {
      const format = text(conversion.dateFormat) || 'YYYY-MM-DD[T]HH:mm:ssZ';
      return {
        ...field,
        type: 'string',
        values: all.map((value) => (field.type === 'time' ? timeText(value, format)
          : value !== null && typeof value === 'object' ? JSON.stringify(value) : String(value))),
      };
    }
    default: return field;
  }
}

/** Options: `conversions`, each `{targetField, destinationType, dateFormat}`. @type {Transformation} */
export function convertFieldType(frames, options) {
  const conversions = list(options.conversions)
    .filter((conversion) => conversion.targetField && conversion.destinationType);
  if (!conversions.length) return frames;
  const names = namesAmong(frames);
  return frames.map((frame) => withFields(frame, frame.fields.map((field) => {
    const name = names(field, frame);
    return conversions.filter((conversion) => [name, field.name].includes(conversion.targetField))
      .reduce(convert, field);
  })));
}
