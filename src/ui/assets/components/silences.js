// Silences: the dialog of a new one, and the list.

import { h } from '../chart/dom.js';
import { createSilence, endSilence, listSilences } from '../client/alerting.js';
import { matches, matchersText, parseMatchers } from '../model/alerting.js';
import { parseDuration } from '../chart/scale.js';
import { counted } from '../model/metrics.js';
import { textButton } from './buttons.js';
import { openDialog } from './dialog.js';
import { field, form, lines } from './form.js';
import { stateBadge } from './live.js';
import { card, table, time } from './parts.js';
import { toast } from './toast.js';

/**
 * @typedef {import('../client/alerting.js').Silence} Silence
 * @typedef {import('../model/alerting.js').Matcher} Matcher
 */

/**
 * The dialog of a new silence. Resolves with whether one was made.
 * @param {{org: string, matchers: Matcher[], alerts: () => Record<string, string>[]}} options `alerts`: the labels of
 *   the alerts that are active now
 * @returns {Promise<boolean>}
 */
export function silenceDialog({ org, matchers, alerts }) {
  return openDialog(
    'New silence',
    false,
    (close) => {
      const text = lines(
        'Matchers',
        'matchers',
        matchersText(matchers),
        4,
        'All of them must match. Use =, !=, =~ and !~, and commas between.',
      );
      const input = /** @type {HTMLTextAreaElement} */ (text.querySelector('textarea'));
      const effect = h('p', { class: 'hint', role: 'status' });
      const count = () => {
        try {
          const parsed = parseMatchers(input.value);
          const many = alerts().filter((labels) => matches(parsed, labels)).length;
          effect.textContent = `Matches ${counted(many, 'alert')} that ${many === 1 ? 'is' : 'are'} active now.`;
        } catch {
          effect.textContent = '';
        }
      };
      input.addEventListener('input', count);
      count();
      return [
        form(
          {
            submit: 'Silence',
            action: async (values) => {
              const seconds = parseDuration(values.duration);
              if (seconds === null) throw new Error('Duration: write it such as 30m, 2h or 7d.');
              await createSilence(org, { matchers: parseMatchers(values.matchers), seconds, comment: values.comment });
              close(true);
            },
          },
          text,
          effect,
          field(
            'Duration',
            'duration',
            { value: '2h', maxlength: '32', autocomplete: 'off' },
            'Such as 30m, 2h or 7d.',
          ),
          field('Comment', 'comment', { maxlength: '1024' }, 'The reason, for other members.'),
        ),
        textButton('Cancel', () => close(false), { class: 'plain' }),
      ];
    },
    { class: 'wide' },
  );
}

/**
 * The card with all silences.
 * @param {{org: string, edits: boolean, signedOut: () => void, alerts: () => Record<string, string>[],
 *   changed: () => void}} options
 */
export function silenceList({ org, edits, signedOut, alerts, changed }) {
  return card({
    heading: 'Silences',
    intro: 'Alerts whose labels match all matchers of a silence send no notifications until it ends.',
    signedOut,
    live: true,
    fill: async (part) => {
      const all = await listSilences(org);
      const rows = (/** @type {Silence[]} */ some) =>
        some.map((silence) => {
          const badge = stateBadge();
          badge.set(silence.state);
          const end = part.button('End now', async () => {
            await endSilence(org, silence.id);
            toast('The silence has ended.');
            changed();
          });
          return [
            h('code', { text: matchersText(silence.matchers) }),
            badge.node,
            time(silence.endsAt),
            silence.comment,
            silence.createdBy,
            ...(edits ? [silence.state === 'expired' ? '' : end] : []),
          ];
        });
      const heads = ['Matchers', 'State', 'Ends', 'Comment', 'By', ...(edits ? [''] : [])];
      const expired = all.filter(({ state }) => state === 'expired').reverse();
      const open = all.filter(({ state }) => state !== 'expired');
      const create = part.button('New silence', async () => {
        if (!(await silenceDialog({ org, matchers: [], alerts }))) return;
        toast('The silence was created.');
        changed();
      });
      return [
        edits && h('div', { class: 'row' }, create),
        table(heads, rows(open), 'Silences', 'No silences.'),
        expired.length > 0 &&
          h(
            'details',
            {},
            h('summary', { text: counted(expired.length, 'expired silence') }),
            table(heads, rows(expired), 'Expired silences'),
          ),
      ];
    },
  });
}
