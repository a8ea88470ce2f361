// The name that a field has in legends, in table headings and for matchers.

export { fullName } from '../chart/scale.js';

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */

/** @param {Record<string, string>} labels */
const written = (labels) => {
  const pairs = Object.keys(labels).map((label) => `${label}=${JSON.stringify(labels[label])}`);
  return pairs.length ? `{${pairs.join(', ')}}` : '';
};

/**
 * The properties that the names of one set of frames depend on: whether frames differ in their
 * names, and the only label key among all fields (null when there are several or none). With
 * `asked`, a matcher sees the name that a field had when the first one asked for it, as in Grafana.
 * @typedef {{differ: boolean, label: string | null, asked?: Map<Field, string>}} Naming
 * @param {Frame[]} frames
 * @returns {Naming}
 */
export function namingOf(frames) {
  /** @type {Set<string>} */
  const keys = new Set();
  for (const frame of frames) {
    for (const field of frame.fields) for (const key of Object.keys(field.labels ?? {})) keys.add(key);
  }
  const [label] = keys;
  return { differ: frames.some((frame) => frame.name !== frames[0].name), label: keys.size === 1 ? label : null };
}

/** @param {Field} field @param {Frame} frame */
function numbered(field, frame) {
  const name = field.name || 'Value';
  const alike = frame.fields.filter((one) => one.name === field.name);
  return alike.length > 1 ? `${name} ${alike.indexOf(field) + 1}` : name;
}

/**
 * Returns the configured name of a field, or one from its distinguishing parts: frame, field and
 * labels.
 * @param {Field} field
 * @param {Frame} frame
 * @param {Naming} naming of all frames of the panel
 */
export function fieldName(field, frame, naming) {
  const { displayName, displayNameFromDS } = field.config;
  if (displayName) return displayName;
  if (displayNameFromDS) return displayNameFromDS;
  if (field.type === 'time' && !field.labels) return numbered(field, frame);
  const parts = naming.differ && frame.name ? [frame.name] : [];
  const framed = parts.length > 0;
  if (field.name && field.name !== 'Value') parts.push(field.name);
  const labels = field.labels ?? {};
  const told = naming.label === null ? written(labels) : labels[naming.label] ?? '';
  if (told) parts.push(told);
  if (frame.name && !framed && !told && field.name === 'Value') parts.push(frame.name);
  const name = parts.join(' ');
  return name === '' || name === field.name ? numbered(field, frame) : name;
}

/**
 * Names of the fields of all frames: one list a frame.
 * @param {Frame[]} frames
 * @returns {string[][]}
 */
export function fieldNames(frames) {
  const naming = namingOf(frames);
  return frames.map((frame) => frame.fields.map((field) => fieldName(field, frame, naming)));
}
