// The style sheets of <metric-dashboard>, constructed because pages forbid inline styles.

/**
 * The texts of the sheets by name: the build script writes them, so that none is requested.
 * @type {Record<string, string>}
 */
const TEXTS = {};

/** Later sheets win. */
const NAMES = ['embed-dashboard.css', 'panels.css'];

/** @type {Promise<CSSStyleSheet[]> | null} */
let made = null;

/** All sheets, made once a page. */
export function sheets() {
  made ??= Promise.all(NAMES.map(sheet));
  return made;
}

/** @param {string} name */
async function sheet(name) {
  const css = new CSSStyleSheet();
  css.replaceSync(TEXTS[name] ?? (await (await fetch(new URL(`../${name}`, import.meta.url))).text()));
  return css;
}
