// A popup below a button: Escape, a click elsewhere, and leaving it with the keyboard close it.

import { h } from '../chart/dom.js';

/**
 * Opens a popup below a button, or closes the one that is open there.
 * @param {HTMLElement} button
 * @param {import('../chart/dom.js').Child[]} content
 * @param {{class?: string, closed?: () => void, label?: string}} [options]
 * @returns {() => void} closes it
 */
export function openMenu(button, content, { class: name = '', closed = () => {}, label } = {}) {
  const open = button.nextElementSibling;
  if (open instanceof HTMLElement && open.classList.contains('popup')) {
    open.dispatchEvent(new Event('close'));
    return () => {};
  }
  const box = h(
    'div',
    { class: `popup card ${name}`.trim(), tabindex: '-1', ...(label ? { role: 'dialog', 'aria-label': label } : {}) },
    content,
  );
  let done = false;
  const close = (focus = false) => {
    if (done) return;
    done = true;
    document.removeEventListener('pointerdown', outside);
    removeEventListener('resize', replace);
    box.remove();
    button.setAttribute('aria-expanded', 'false');
    if (focus) button.focus();
    closed();
  };
  const outside = (/** @type {Event} */ event) => {
    // In a shadow tree the target is the host, but the path has the node inside.
    const path = event.composedPath();
    if (!path.includes(box) && !path.includes(button)) close();
  };
  box.addEventListener('close', () => close());
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    close(true);
  });
  box.addEventListener('focusout', (event) => {
    const to = event.relatedTarget;
    if (to instanceof Node && !box.contains(to) && to !== button) close();
  });
  box.addEventListener('click', (event) => {
    if (event.target instanceof Element && event.target.closest('a, [data-closes]')) close();
  });
  const replace = () => (box.isConnected ? place(button, box) : close());
  document.addEventListener('pointerdown', outside);
  addEventListener('resize', replace);
  button.setAttribute('aria-expanded', 'true');
  button.after(box);
  place(button, box);
  const first = box.querySelector('input, button, a, [tabindex="0"]');
  (first instanceof HTMLElement ? first : box).focus({ preventScroll: true });
  return close;
}

/** Keeps the popup inside the window. @param {HTMLElement} button @param {HTMLElement} box */
function place(button, box) {
  const parent = box.offsetParent?.getBoundingClientRect() ?? new DOMRect();
  const at = button.getBoundingClientRect();
  const width = box.offsetWidth;
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
  box.style.left = `${left - parent.left}px`;
  box.style.top = `${at.bottom - parent.top + 4}px`;
}
