// The text panel: Markdown, plain text and code; HTML is shown as text.

import { h } from '../chart/dom.js';
import { readMarkdown } from '../model/markdown.js';

/** @param {import('../model/markdown.js').Node | string} node @returns {Node | string} */
function made(node) {
  if (typeof node === 'string') return node;
  return h(
    node.tag,
    node.tag === 'a' ? { href: node.href, rel: 'noopener noreferrer', target: '_blank' } : {},
    node.children.map(made),
  );
}

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, { panel, replace }) {
  const { mode = 'markdown', content = '' } = panel.options;
  const text = replace(String(content));
  const inner = mode === 'markdown' ? readMarkdown(text).map(made) : [h('pre', { text })];
  box.replaceChildren(h('div', { class: 'prose', tabindex: '0', role: 'group', 'aria-label': 'Text' }, inner));
  return {};
}
