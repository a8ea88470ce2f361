// The icons of the cabinet: strokes on a grid of 20 by 20 units, in the colour of the text.

import { svg } from '../plot/svg.js';

/** The outlines of each icon. @type {Record<string, string>} */
const PATHS = {
  home: 'M3 9 10 3l7 6v8h-5v-5H8v5H3z',
  explore: 'M3 16 8 9l4 4 5-9M13 4h4v4',
  dashboards: 'M3 3h6v8H3zM11 3h6v4h-6zM11 9h6v8h-6zM3 13h6v4H3z',
  metrics: 'M3 5h14M3 10h9M3 15h12M16 9v2',
  targets: 'M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM10 1v4M10 15v4M1 10h4M15 10h4',
  alerts: 'M5 14V9a5 5 0 0 1 10 0v5l1.5 1.5h-13zM8.5 18h3',
  rules: 'M3 5l1.5 1.5L7 4M3 12l1.5 1.5L7 11M10 5.5h7M10 12.5h7',
  ingest: 'M10 3v9M6 8l4 4 4-4M3 13v4h14v-4',
  organisation: 'M4 17V4h7v13M11 9h5v8M2 17h16M6.5 7.5h2M6.5 11h2M13.3 12.5h.5',
  account: 'M10 10a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM3.5 17a6.5 6.5 0 0 1 13 0',
  menu: 'M3 5h14M3 10h14M3 15h14',
  search: 'M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l4 4',
  fold: 'M3 4h14v12H3zM8 4v12M14 8l-2 2 2 2',
  close: 'M5 5l10 10M15 5 5 15',
  star: 'M10 3l2.2 4.6 5 .7-3.6 3.5.9 5L10 14.4l-4.5 2.4.9-5-3.6-3.5 5-.7z',
  clock: 'M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 6v4l3 2',
  query: 'M4 6l4 4-4 4M10 15h6',
  key: 'M7 13a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM10.5 9H17v3M14 9v2',
  leave: 'M8 4H4v12h4M9 10h8M14 7l3 3-3 3',
  plus: 'M10 4v12M4 10h12',
  upload: 'M10 12V3M6 7l4-4 4 4M3 13v4h14v-4',
};

/**
 * An icon without a meaning of its own: the text beside it, or the label of its button, says it.
 * @param {string} name
 */
export const icon = (name) =>
  svg(
    'svg',
    { viewBox: '0 0 20 20', width: 20, height: 20, class: 'icon-svg', 'aria-hidden': 'true', focusable: 'false' },
    svg('path', { d: PATHS[name] ?? '' }),
  );
