// Hex values of the colour names in dashboards, for light and for dark pages.

/** @typedef {'light' | 'dark'} Theme */

/** Shades of a name, from the palest. The prefix precedes the name: `semi-dark-red`. */
const SHADES = ['super-light-', 'light-', '', 'semi-dark-', 'dark-'];

/**
 * Five shades of each name, evenly spaced in OKLCH lightness. On a light page each has a contrast of 3:1
 * or more on #ffffff and #f4f5f9, on a dark page on #15171e.
 * @type {Record<Theme, Record<string, string[]>>}
 */
const HUES = {
  light: {
    red: ['#e6443d', '#d73431', '#c51e21', '#a70712', '#80040b'],
    orange: ['#d06206', '#be5a0a', '#a84e05', '#8a4007', '#6a2f03'],
    yellow: ['#a5810c', '#97750a', '#866701', '#6d5405', '#533f03'],
    green: ['#20a04e', '#0e9344', '#06823b', '#066a2f', '#015122'],
    blue: ['#3d84ea', '#3177dc', '#2068cb', '#0052b4', '#023e8a'],
    purple: ['#9964e5', '#8e57d8', '#7f47c7', '#6b30af', '#550f95'],
  },
  dark: {
    red: ['#fec9c2', '#fda79d', '#fe8074', '#f45249', '#d4302e'],
    orange: ['#fecbaf', '#fdaa7b', '#fd8537', '#e16c10', '#ba5702'],
    yellow: ['#edd59d', '#dfbd67', '#cfa529', '#b48c0e', '#947202'],
    green: ['#aee8b9', '#81d894', '#51c672', '#33ac5a', '#049041'],
    blue: ['#c0d9fe', '#9ac3ff', '#74acfe', '#4a91f8', '#2d74d9'],
    purple: ['#deceff', '#ccb0ff', '#bb91ff', '#a670f3', '#8b54d4'],
  },
};

/** Colours of series: the eight of the chart element, each followed by its deeper or paler shades. */
const SERIES = {
  light: ['#2563c9', '#c2500a', '#047857', '#b0307f', '#8a6100', '#6d3fd1', '#0b7d94', '#56606e'],
  dark: ['#7aaeff', '#ff9d5c', '#3fd0a4', '#f58fc8', '#f2c14e', '#b9a1ff', '#62d3e8', '#b4bfcc'],
};
const REST = {
  light: { text: '#1c2130', background: '#ffffff', gray: '#5b6474' },
  dark: { text: '#e8eaf0', background: '#15171e', gray: '#9aa4b5' },
};

/** @param {string} hex `#rgb`, `#rrggbb` or with two digits of alpha @returns {number[]} channels, 0 to 255 */
export function channels(hex) {
  const digits = hex.slice(1);
  const wide = digits.length < 6 ? [...digits].map((digit) => digit + digit).join('') : digits;
  return [0, 2, 4].map((at) => Number.parseInt(wide.slice(at, at + 2), 16));
}

/**
 * @param {string} from hex
 * @param {string} to hex
 * @param {number} part of `to`, from 0 to 1
 * @returns {string} hex
 */
export function mix(from, to, part) {
  const target = channels(to);
  return `#${channels(from).map((channel, index) =>
    Math.round(channel + (target[index] - channel) * part).toString(16).padStart(2, '0')).join('')}`;
}

/** @param {Theme} theme */
function make(theme) {
  /** @type {Map<string, string>} */
  const named = new Map();
  for (const [hue, shades] of Object.entries(HUES[theme])) {
    shades.forEach((hex, index) => named.set(SHADES[index] + hue, hex));
  }
  const { text, background, gray } = REST[theme];
  for (const [name, hex] of [['text', text], ['gray', gray], ['grey', gray], ['panel-bg', background],
    ['white', '#ffffff'], ['black', '#000000'], ['transparent', '#00000000']]) named.set(name, hex);
  const deeper = SERIES[theme].map((hex) => mix(hex, text, 0.35));
  return { named, series: [...SERIES[theme], ...deeper], text, background, gray };
}

const PALETTES = { light: make('light'), dark: make('dark') };

/**
 * Returns the colours of a theme: `named` by the names in dashboards, `series` in the order of series.
 * @param {Theme} theme
 */
export const palette = (theme) => PALETTES[theme];

/**
 * Returns a colour of a dashboard as CSS takes it: a name of the palette as hex, hex and rgb() as they
 * are. Anything else is gray.
 * @param {unknown} colour
 * @param {Theme} theme
 * @returns {string}
 */
export function resolveColor(colour, theme) {
  const { named, gray } = PALETTES[theme];
  if (typeof colour !== 'string' || colour.length > 64) return gray;
  const known = named.get(colour);
  if (known) return known;
  if (/^#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$/i.test(colour)) return colour;
  return /^(?:rgb|hsl)a?\([\d\s.,%/]{1,40}\)$/i.test(colour) ? colour : gray;
}
