// The attributes of <metric-chart>, and its properties with the same names.

import { propertiesOf } from './properties.js';
import { QUERY_ATTRIBUTES } from './query.js';

/** Attributes that change only how a response is shown. */
export const DISPLAY_ATTRIBUTES = ['title', 'unit', 'legend', 'theme', 'refresh', 'live'];
/** Properties that are no text. */
export const KINDS = { numbers: ['start', 'end', 'refresh'], booleans: ['live'] };

/** The greatest length of a text that is drawn, in characters. */
const TEXT_MAX = 200;

/** Every property that mirrors an attribute, with its attribute. */
export const PROPERTIES = propertiesOf([...QUERY_ATTRIBUTES, ...DISPLAY_ATTRIBUTES]);

/**
 * An attribute that is drawn, at most TEXT_MAX characters of it.
 * @param {{getAttribute: (name: string) => string|null}} element
 * @param {string} name
 */
export const textOf = (element, name) => (element.getAttribute(name) ?? '').slice(0, TEXT_MAX);
