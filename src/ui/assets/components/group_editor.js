// The editor of a rule group: its YAML, the place of an error, the preview of the rule at the caret.

import { h } from '../chart/dom.js';
import { bareName, deleteGroup, isConflict, readGroup, saveGroup } from '../client/alerting.js';
import { isMissing, isSignedOut } from '../client/server.js';
import {
  groupInterval,
  groupLimit,
  groupName,
  groupOffset,
  offsetOf,
  pathName,
  ruleAt,
  rulesOf,
} from '../model/rule_text.js';
import { changedRecordingRules } from '../model/backfill.js';
import { counted } from '../model/metrics.js';
import { textButton } from './buttons.js';
import { confirmLoss } from './confirm.js';
import { confirmed } from './dialog.js';
import { groupVersions } from './group_versions.js';
import { rulePreview } from './rule_preview.js';
import { toast } from './toast.js';
import { errorPlace, yamlEditor } from './yaml_editor.js';

/** @typedef {import('../client/alerting.js').StoredGroup} StoredGroup */

/** A group to begin with. */
const EXAMPLE = `name: example
interval: 1m
rules:
  - alert: InstanceDown
    expr: up == 0
    for: 5m
    labels:
      severity: page
    annotations:
      summary: '{{ $labels.instance }} is down'
`;

/** Texts that were not saved, by organisation and group, while this document is open. @type {Map<string, string>} */
const drafts = new Map();

/**
 * @param {{org: string, edits: boolean, stored: StoredGroup|null, rule: string, signedOut: () => void,
 *   leave: () => void, renamed: (name: string) => void}} options no `stored` group: a new one; `rule` is previewed
 *   first; `leave` shows the list again; `renamed` is called with the name of a new group once it is saved
 */
export function groupEditor({ org, edits, stored, rule, signedOut, leave, renamed }) {
  /** The stored group that the text is a version of; null for a new one. */
  let before = stored;
  const readonly = !edits || stored?.source === 'file';
  const draftKey = () => JSON.stringify([org, before?.name ?? '']);
  const draft = readonly ? undefined : drafts.get(draftKey());
  const text = () => editor.input.value;
  const saved = () => before?.yaml ?? '';
  const status = h('p', { class: 'hint', role: 'status' });
  const conflict = h('div', { class: 'notice stack', role: 'alert', hidden: true });

  const preview = rulePreview({ org, signedOut, problem: (place) => editor.mark(place) });
  const follow = (/** @type {number} */ offset) =>
    preview.show({
      rule: ruleAt(text(), offset),
      interval: groupInterval(text()),
      offset: groupOffset(text()),
      limit: groupLimit(text()),
    });
  const changed = () => {
    const isNew = text() !== saved();
    if (isNew && !readonly) drafts.set(draftKey(), text());
    else drafts.delete(draftKey());
    save.disabled = !isNew;
    discard.hidden = !isNew || !before;
    status.textContent = isNew && !readonly ? 'Not saved yet.' : '';
  };
  const editor = yamlEditor({
    label: readonly ? 'YAML, read-only' : 'YAML',
    value: draft ?? (stored ? stored.yaml : EXAMPLE),
    readonly,
    edited: () => {
      editor.mark(null);
      changed();
      follow(editor.input.selectionStart);
    },
    moved: follow,
  });

  /** Saves the text over a version; null: there must be no group. @param {number|null} version */
  async function store(version) {
    conflict.hidden = true;
    const yaml = text();
    const own = groupName(yaml);
    if (!own) return editor.mark({ line: 1, column: 1, message: 'The group needs a name, such as name: example.' });
    if (before && own !== bareName(before))
      return editor.mark({
        line: 0,
        column: 1,
        message: `A stored group keeps its name: write name: ${bareName(before)}, or create a new group.`,
      });
    const name = before?.name ?? pathName(own);
    const key = draftKey();
    const recording = changedRecordingRules(rulesOf(yaml), rulesOf(saved()));
    save.disabled = true;
    status.textContent = 'Saving…';
    try {
      before = { ...(await saveGroup(org, { name, yaml, version })), yaml };
      drafts.delete(key);
      editor.mark(null);
      changed();
      remove.hidden = false;
      history.refresh();
      const backfill = async () => {
        const { openBackfill } = await import('./backfill_dialog.js');
        await openBackfill({ org, yaml, rules: recording, signedOut });
        editor.input.focus();
      };
      toast(`${own} was saved.`, recording.length > 0 ? { text: 'Backfill…', click: backfill } : undefined);
      if (!stored) renamed(name);
    } catch (error) {
      changed();
      if (isSignedOut(error)) signedOut();
      else if (isConflict(error)) await changedMeanwhile(name);
      else editor.mark(errorPlace(error));
    }
  }
  /** Shows the stored text. */
  function reset() {
    editor.set(saved());
    changed();
    follow(0);
  }
  /** @param {string} name */
  async function changedMeanwhile(name) {
    /** @type {StoredGroup|null} */
    let now = null;
    try {
      now = await readGroup(org, name);
    } catch (error) {
      if (!isMissing(error)) return editor.mark(errorPlace(error));
    }
    const use = textButton('Show the stored text', () => {
      conflict.hidden = true;
      drafts.delete(draftKey());
      before = now;
      history.refresh();
      reset();
    });
    const over = textButton('Save mine over it', () => store(now?.version ?? null), { class: 'danger' });
    conflict.replaceChildren(
      h('p', {
        text: now
          ? `${name} was stored by somebody else in the meantime. Your text is not saved.`
          : `${name} was deleted in the meantime. Your text is not saved.`,
      }),
      h('div', { class: 'row' }, now && use, over),
    );
    conflict.hidden = false;
  }

  // For a read-only group, the button is not shown, and disabled because of its shortcut.
  const save = textButton('Save', () => store(before?.version ?? null), {
    class: 'primary',
    'aria-keyshortcuts': 'Control+S Meta+S',
    disabled: readonly,
  });
  const discard = textButton(
    'Discard changes',
    () => {
      reset();
      editor.input.focus();
    },
    { hidden: true },
  );
  const remove = textButton('Delete group…', removeGroup, { class: 'danger', hidden: !stored });
  async function removeGroup() {
    const group = before;
    if (!group) return;
    const deleted = await confirmLoss({
      heading: `Delete ${group.name}`,
      loss: `The evaluation of ${counted(rulesOf(group.yaml).length, 'rule')} ends. Recorded samples stay.`,
      action: 'Delete group',
      run: () => deleteGroup(org, group.name, group.version),
    });
    if (!deleted) return;
    drafts.delete(draftKey());
    toast(`${group.name} was deleted.`);
    leave();
  }
  /** Stores the text of an older version. @param {number} version @param {string} yaml */
  async function restore(version, yaml) {
    const isLost = text() !== saved() && text() !== yaml;
    const sure = await confirmed({
      heading: `Restore version ${version}?`,
      action: 'Restore',
      loss: `Its text becomes the newest version.${isLost ? ' Your text, which is not saved, is lost.' : ''}`,
    });
    if (!sure) return;
    editor.set(yaml);
    changed();
    follow(0);
    await store(before?.version ?? null);
  }
  const history = groupVersions({ org, group: () => before, restore: readonly ? undefined : restore, signedOut });
  history.refresh();
  const why = !edits
    ? 'Your role may read rules only.'
    : 'This group is in a file of the server. Change the file, and reload the server with SIGHUP.';
  const unload = (/** @type {BeforeUnloadEvent} */ event) => {
    if (drafts.size > 0) event.preventDefault();
  };
  addEventListener('beforeunload', unload);
  if (!readonly) changed();
  if (draft !== undefined && draft !== saved())
    status.textContent = 'Your text from before is shown. It is not saved yet.';
  const wanted = rulesOf(text()).find(({ name }) => name === rule);
  follow(wanted ? offsetOf(text(), { line: wanted.line + 1, column: 1, message: '' }) : 0);
  const node = h(
    'div',
    { class: 'rule-editor' },
    h(
      'section',
      { class: 'card part', 'aria-labelledby': 'group-title' },
      h('h2', { id: 'group-title', text: stored?.name ?? 'New group' }),
      readonly && h('p', { class: 'hint', text: why }),
      editor.node,
      conflict,
      !readonly && h('div', { class: 'row' }, save, discard, remove, status),
      history.node,
    ),
    preview.node,
  );
  node.addEventListener('keydown', (event) => {
    if (event.key !== 's' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    save.click();
  });
  return {
    node,
    stop() {
      removeEventListener('beforeunload', unload);
      preview.stop();
    },
  };
}
