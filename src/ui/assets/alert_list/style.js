// The style sheet of <metric-alerts>, constructed because the policy forbids inline styles. Its
// variables are those of <metric-chart>.

const css = `
:host {
  display: block; min-width: 0; position: relative;
  --background: var(--metric-chart-background, light-dark(#ffffff, #15171e));
  --text: var(--metric-chart-text, light-dark(#1c2130, #e8eaf0));
  --muted: var(--metric-chart-muted, light-dark(#5b6474, #9aa4b5));
  --grid: var(--metric-chart-grid, light-dark(#edf0f4, #232733));
  --axis: var(--metric-chart-axis, light-dark(#cdd3dd, #3d4454));
  --accent: var(--metric-chart-accent, light-dark(#4338ca, #a5b4fc));
  --danger: var(--metric-chart-danger, light-dark(#b42318, #ff9b8f));
  --pending: var(--metric-chart-pending, light-dark(#8a6100, #f2c14e));
  color: var(--text); background: var(--background);
  font: 13px/1.45 var(--metric-chart-font, ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif);
  font-variant-numeric: tabular-nums;
}
:host([hidden]) { display: none; }
:host([theme="light"]) { color-scheme: light; }
:host([theme="dark"]) { color-scheme: dark; }
:host([theme="auto"]) { color-scheme: light dark; }
* { box-sizing: border-box; }
[hidden] { display: none; }
.frame { display: flex; flex-direction: column; gap: 8px; min-width: 0; }
.title { font-size: 14px; font-weight: 600; text-wrap: balance; overflow-wrap: anywhere; }
.title:empty, .note:empty, .summary:empty, .state:empty { display: none; }
.summary { margin: 0; color: var(--muted); }
.groups { display: grid; gap: 12px; }
.groups:empty { display: none; }
.group { display: grid; gap: 6px; min-width: 0; }
.heading { margin: 0; font-size: 12px; font-weight: 600; color: var(--muted); }
ul { margin: 0; padding: 0; list-style: none; }
.alerts { display: grid; gap: 6px; }
.alert { min-width: 0; padding: 8px 12px; border: 1px solid var(--axis); border-left: 4px solid var(--danger); border-radius: 8px; }
.pending .alert { border-left: 4px dashed var(--pending); }
.head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 10px; }
.name { font-weight: 600; overflow-wrap: anywhere; min-width: 0; }
.badge { font-size: 12px; font-weight: 600; color: var(--danger); }
.pending .badge { color: var(--pending); }
time { margin-left: auto; color: var(--muted); font-size: 12px; white-space: nowrap; }
.annotation { margin: 3px 0 0; overflow-wrap: anywhere; white-space: pre-line; }
.labels { display: flex; flex-wrap: wrap; gap: 4px; margin-top: 6px; }
.labels li { max-width: 100%; padding: 0 7px; border-radius: 5px; background: var(--grid); font-size: 12px; overflow-wrap: anywhere; }
.note { margin: 0; color: var(--muted); font-size: 12px; }
.state { display: grid; place-content: center; justify-items: center; gap: 6px; min-height: 96px; padding: 12px; text-align: center; color: var(--muted); }
.state strong { color: var(--text); font-weight: 600; }
.state p { margin: 0; max-width: 60ch; overflow-wrap: anywhere; }
.state .code { font: 12px ui-monospace, monospace; }
.state.error strong { color: var(--danger); }
.state.late { justify-content: start; min-height: 0; padding: 3px 8px; border: 1px solid var(--axis); border-radius: 6px; font-size: 12px; text-align: start; }
button { justify-self: start; align-self: start; min-height: 28px; padding: 4px 14px; border: 1px solid var(--axis); border-radius: 7px; background: var(--background); color: var(--text); font: inherit; cursor: pointer; }
.state button { justify-self: center; }
button:hover { background: var(--grid); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
@media (forced-colors: active) { .alert { border-color: CanvasText; } }
`;

export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);
