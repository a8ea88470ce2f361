// The style sheet of the crosshair and the tooltip of <metric-chart>.

// `.hair` is as high as the plot inside its axes.
const css = `
.hair { position: absolute; top: 8px; bottom: 24px; left: 0; width: 1px; background: var(--cursor); }
.tip {
  position: absolute; z-index: 2; top: 0; left: 0; max-width: min(340px, 88%); padding: 7px 10px 8px; pointer-events: none;
  background: var(--metric-chart-tip, light-dark(#fffffff2, #1f232ef2)); border: 1px solid var(--axis); border-radius: 8px;
  box-shadow: 0 6px 24px light-dark(#1c213026, #00000080); font-size: 12px;
}
.tip .when { color: var(--muted); margin-bottom: 3px; white-space: nowrap; }
.tip .row { display: grid; grid-template-columns: auto 1fr auto; gap: 7px; align-items: center; padding: 1px 0; }
.tip .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tip .value { font-weight: 600; }
.tip .near .name { font-weight: 600; }
.tip .more { color: var(--muted); }
@media (forced-colors: active) { .tip { border-width: 2px; } }
`;

export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);
