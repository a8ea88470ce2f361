// The line above a dashboard with a draft of this browser: resume it, or discard it.

import { h } from '../chart/dom.js';
import { dropDraft } from '../model/drafts.js';
import { ownStorage } from '../model/storage.js';
import { confirmed } from './dialog.js';

/** The time of today, or date and time. @param {number} at milliseconds */
export function clock(at) {
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  return date.toLocaleString([], today ? { timeStyle: 'short' } : { dateStyle: 'medium', timeStyle: 'short' });
}

/**
 * @param {{org: string, stored: {uid: string, version: number}, draft: import('../model/drafts.js').Draft,
 *   resume: () => void, discarded: () => void}} options
 */
export function draftBar({ org, stored, draft, resume, discarded }) {
  const older = draft.version !== stored.version;
  const discard = async () => {
    const sure = await confirmed({
      heading: 'Discard your changes?',
      loss: `The changes from ${clock(draft.at)} will be lost.`,
      action: 'Discard',
    });
    if (!sure) return;
    dropDraft(ownStorage(), org, stored.uid);
    node.remove();
    discarded();
  };
  const node = h(
    'section',
    { class: 'draft-bar', 'aria-label': 'Draft' },
    h(
      'p',
      {},
      h('strong', { text: `You have unsaved changes from ${clock(draft.at)}.` }),
      older
        ? ` They were made to version ${draft.version}; version ${stored.version} has been saved since.`
        : ' Only this browser has them.',
    ),
    h('button', { type: 'button', class: 'primary', text: 'Resume', on: { click: resume } }),
    h('button', { type: 'button', text: 'Discard', on: { click: discard } }),
  );
  return node;
}
