// Shows the JSON schemas of the OpenAPI document as the JSON that they allow.

import { h } from '../chart/dom.js';

/**
 * @typedef {Object<string, any>} Schema a JSON schema of the document
 * @typedef {Object<string, any>} Api the OpenAPI document
 * @typedef {Object<string, any>} Operation
 */

/**
 * The kind of a schema in a few words.
 * @param {Schema} schema
 * @returns {string}
 */
export function kind(schema) {
  if (schema.enum) return schema.enum.join(' | ');
  if (schema.type === 'array') return `${kind(schema.items)}, repeatable`;
  const limits = [schema.minimum, schema.maximum].some((limit) => limit !== undefined)
    ? ` ${schema.minimum ?? ''}…${schema.maximum ?? ''}`
    : '';
  return `${schema.type ?? ''}${limits}${schema.examples ? `, as in ${schema.examples.join(', ')}` : ''}`;
}

/**
 * A schema as the JSON that it allows; references are followed four levels deep.
 * @param {Api} api
 * @param {Schema} schema
 */
export function shape(api, schema) {
  const pre = h('pre', { class: 'shape', tabindex: '0', role: 'group', 'aria-label': 'Schema' });
  const write = (/** @type {string} */ text, note = false) =>
    pre.append(note ? h('span', { class: 'note', text }) : text);
  draw(schema, '', 0);
  return pre;

  /**
   * @param {Schema} one
   * @param {string} indent
   * @param {number} depth
   * @returns {void}
   */
  function draw(one, indent, depth) {
    if (one.$ref) {
      const name = one.$ref.split('/').pop();
      const target = api.components.schemas[name];
      if (depth > 3) return write(name, true);
      return draw(target, indent, depth + 1);
    }
    const choices =
      one.anyOf ??
      (Array.isArray(one.type) && one.type.length > 1
        ? one.type.map((/** @type {string} */ type) => ({ ...one, type }))
        : null);
    if (choices)
      return choices.forEach((/** @type {Schema} */ choice, /** @type {number} */ index) => {
        if (index) write(' | ');
        draw(choice, indent, depth);
      });
    if ('const' in one) return write(JSON.stringify(one.const));
    if (one.enum) return write(one.enum.map((/** @type {any} */ value) => JSON.stringify(value)).join(' | '));
    if (one.type === 'array' && one.prefixItems) {
      write('[');
      one.prefixItems.forEach((/** @type {Schema} */ item, /** @type {number} */ index) => {
        if (index) write(', ');
        draw(item, indent, depth);
      });
      return write(']');
    }
    if (one.type === 'array') {
      write('[');
      draw(one.items ?? {}, indent, depth);
      return write(', …]');
    }
    if (one.properties) {
      write('{\n');
      for (const [name, value] of Object.entries(/** @type {Object<string, Schema>} */ (one.properties))) {
        write(`${indent}  ${JSON.stringify(name)}${one.required?.includes(name) ? '' : '?'}: `);
        draw(value, `${indent}  `, depth + 1);
        write(',');
        if (value.description) write(`  // ${value.description}`, true);
        write('\n');
      }
      return write(`${indent}}`);
    }
    if (typeof one.additionalProperties === 'object') {
      write('{ "…": ');
      draw(one.additionalProperties, indent, depth);
      return write(' }');
    }
    const [least, most] = [one.minimum ?? one.minLength, one.maximum ?? one.maxLength];
    const limits = least === undefined && most === undefined ? '' : ` ${least ?? ''}…${most ?? ''}`;
    const format = one.type === 'string' && one.format ? ` (${one.format})` : '';
    const notes = `${format}${one.type === 'null' ? '' : limits}`;
    return write(`${one.type ?? 'anything'}${notes}`);
  }
}

/**
 * An example of a body: its required members, each in its simplest form.
 * @param {Api} api
 * @param {Schema} schema
 * @returns {any}
 */
export function example(api, schema, depth = 0) {
  const one = schema.$ref ? api.components.schemas[schema.$ref.split('/').pop()] : schema;
  if (depth > 5) return null;
  if (one.anyOf) return example(api, one.anyOf[0], depth + 1);
  if ('const' in one) return one.const;
  if (one.enum) return one.enum[0];
  const type = Array.isArray(one.type) ? one.type[0] : one.type;
  if (type === 'object') {
    const wanted = Object.entries(/** @type {Object<string, Schema>} */ (one.properties ?? {})).filter(([name]) =>
      one.required?.includes(name),
    );
    return Object.fromEntries(wanted.map(([name, value]) => [name, example(api, value, depth + 1)]));
  }
  if (type === 'array') return [example(api, one.items ?? {}, depth + 1)];
  /** @type {Object<string, any>} */
  const simple = { string: '', integer: one.minimum ?? 0, number: 0, boolean: false };
  return simple[type] ?? null;
}
