// The texts that members of an organisation see for the errors of a panel.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { errorText } from '../model/error_text.js';
import { DashboardError } from '../model/limits.js';

/** @type {import('./panel_frame.js').Words} */
export const MEMBER_WORDS = {
  problem(error, expr, retry) {
    const known = error instanceof ApiError || error instanceof DashboardError;
    const advice =
      error instanceof ApiError && error.status === 400 ? 'Correct the query in the dashboard’s JSON.' : '';
    return h(
      'div',
      { class: 'panel-error', role: 'alert', tabindex: '0' },
      h('strong', { text: expr ? 'A query cannot run' : 'No data' }),
      h('p', { text: errorText(error) }),
      advice && h('p', { class: 'hint', text: advice }),
      expr && h('code', { text: expr.slice(0, 500) }),
      known && error.code && h('p', { class: 'code', text: error.code }),
      h('button', { type: 'button', text: 'Try again', on: { click: retry } }),
    );
  },
  late: (error) => `Not updated: ${errorText(error)}`,
  notes: (texts) => texts,
};
