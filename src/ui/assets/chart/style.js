// The style sheet of <metric-chart>, constructed because the policy forbids inline styles.

/**
 * Light and dark variants of eight colours that people with any colour vision can distinguish, with
 * a contrast of at least 3:1.
 * A page overrides them, like everything named --metric-chart-*, from its own style sheet.
 */
const SERIES = [
  ['#2563c9', '#7aaeff'],
  ['#c2500a', '#ff9d5c'],
  ['#047857', '#3fd0a4'],
  ['#b0307f', '#f58fc8'],
  ['#8a6100', '#f2c14e'],
  ['#6d3fd1', '#b9a1ff'],
  ['#0b7d94', '#62d3e8'],
  ['#56606e', '#b4bfcc'],
];

// The page may set display and height of the element itself; `.frame`, the layout inside, does not
// depend on it.
const css = `
:host {
  display: block; min-width: 0; position: relative;
  --background: var(--metric-chart-background, light-dark(#ffffff, #15171e));
  --text: var(--metric-chart-text, light-dark(#1c2130, #e8eaf0));
  --muted: var(--metric-chart-muted, light-dark(#5b6474, #9aa4b5));
  --grid: var(--metric-chart-grid, light-dark(#edf0f4, #232733));
  --axis: var(--metric-chart-axis, light-dark(#cdd3dd, #3d4454));
  --cursor: light-dark(#8a93a3, #7d879a);
  --accent: var(--metric-chart-accent, light-dark(#4338ca, #a5b4fc));
  --danger: var(--metric-chart-danger, light-dark(#b42318, #ff9b8f));
  ${SERIES.map(([light, dark], index) => `--s${index}: var(--metric-chart-series-${index + 1}, light-dark(${light}, ${dark}));`).join('\n  ')}
  color: var(--text); background: var(--background);
  font: 13px/1.45 var(--metric-chart-font, ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif);
  font-variant-numeric: tabular-nums;
}
.frame { display: flex; flex-direction: column; min-width: 0; height: 100%; }
:host([hidden]) { display: none; }
:host([theme="light"]) { color-scheme: light; }
:host([theme="dark"]) { color-scheme: dark; }
:host([theme="auto"]) { color-scheme: light dark; }
* { box-sizing: border-box; }
.title { flex: none; margin: 0 0 6px; font-size: 14px; font-weight: 600; text-wrap: balance; overflow-wrap: anywhere; }
.title:empty, .note:empty, .legend:empty { display: none; }
.plot { position: relative; flex: 1 1 var(--metric-chart-height, 280px); min-height: 120px; }
canvas, .cursor { position: absolute; inset: 0; width: 100%; height: 100%; }
.cursor { border-radius: 6px; touch-action: pan-y; cursor: crosshair; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.swatch { flex: none; width: 14px; height: 3px; border-radius: 2px; background: currentColor; }
.d1 { background: repeating-linear-gradient(90deg, currentColor 0 5px, transparent 5px 8px); }
.d2 { background: repeating-linear-gradient(90deg, currentColor 0 2px, transparent 2px 4px); }
.d3 { background: repeating-linear-gradient(90deg, currentColor 0 7px, transparent 7px 9px, currentColor 9px 11px, transparent 11px 13px); }
${SERIES.map((_, index) => `.c${index} { color: var(--s${index}); }`).join(' ')}
.legend { flex: 0 1 auto; min-height: 28px; display: flex; flex-wrap: wrap; gap: 2px 4px; margin-top: 6px; max-height: 116px; overflow: auto; }
.legend button {
  display: inline-flex; align-items: center; gap: 7px; max-width: 100%; min-height: 24px; padding: 1px 8px; border: 0; border-radius: 6px;
  background: none; color: var(--text); font: inherit; font-size: 12px; cursor: pointer;
}
.legend button:hover { background: var(--grid); }
.legend button:focus-visible { outline-offset: -2px; }
.legend span:last-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.legend [aria-pressed="false"] { color: var(--muted); text-decoration: line-through; }
.legend [aria-pressed="false"] .swatch { opacity: .25; }
.legend .all { color: var(--accent); }
.note { margin: 6px 0 0; color: var(--muted); font-size: 12px; }
.state { position: absolute; inset: 0; display: grid; place-content: center; justify-items: center; gap: 6px; padding: 12px; text-align: center; color: var(--muted); pointer-events: none; }
.state:empty { display: none; }
.state strong { color: var(--text); font-weight: 600; }
.state p { margin: 0; max-width: 60ch; overflow-wrap: anywhere; }
.state .code { font: 12px ui-monospace, monospace; }
.state button { pointer-events: auto; margin-top: 4px; padding: 5px 14px; border: 1px solid var(--axis); border-radius: 7px; background: var(--background); color: var(--text); font: inherit; cursor: pointer; }
.state.error strong { color: var(--danger); }
.state.late { inset: 0 0 auto auto; padding: 3px 8px; border-radius: 6px; background: var(--background); border: 1px solid var(--axis); font-size: 12px; }
.bars { display: flex; align-items: end; gap: 5px; height: 44px; }
.bars i { width: 6px; height: 100%; border-radius: 3px; background: var(--accent); opacity: .55; transform: scaleY(.3); transform-origin: bottom; animation: wave 1.1s ease-in-out infinite alternate; }
.bars i:nth-child(even) { animation-delay: -.5s }
@keyframes wave { to { transform: none; } }
.reset { position: absolute; z-index: 1; top: 12px; right: 14px; padding: 3px 10px; border: 1px solid var(--axis); border-radius: 7px; background: var(--background); color: var(--text); font: inherit; font-size: 12px; cursor: pointer; }
.reset[hidden] { display: none; }
.unseen { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (prefers-reduced-motion: reduce) { .bars i { animation: none; transform: scaleY(.6); } }
`;

export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);

const NAMES = ['background', 'text', 'muted', 'grid', 'axis', 'cursor', 'accent'];

/**
 * @typedef {{background: string, text: string, muted: string, grid: string, axis: string,
 *   cursor: string, accent: string, series: string[]}} Colours
 */

/**
 * The canvas colours of the current scheme.
 * @param {HTMLElement} probe a node of the element without content
 * @returns {Colours}
 */
export function colours(probe) {
  // One node a colour: with one for all, each would be a new computation of the style.
  if (probe.childElementCount === 0) {
    for (const name of [...NAMES, ...SERIES.map((_, index) => `s${index}`)]) {
      const node = document.createElement('i');
      node.style.color = `var(--${name})`;
      probe.append(node);
    }
  }
  const found = [...probe.children].map((node) => getComputedStyle(node).color);
  const named = /** @type {any} */ (Object.fromEntries(NAMES.map((name, index) => [name, found[index]])));
  return { ...named, series: found.slice(NAMES.length) };
}

/** The number of series colours before they repeat. */
export const COLOURS = SERIES.length;
