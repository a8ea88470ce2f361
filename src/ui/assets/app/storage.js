// What this browser remembers. Private windows may refuse to; then nothing is remembered.

export function recall(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`promlet.${key}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(`promlet.${key}`, JSON.stringify(value));
  } catch {
    // Full or forbidden storage costs the history, nothing else.
  }
}

/** Copies a text and says so on the button for a moment. */
export async function copy(text, button) {
  const before = button.textContent;
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  button.textContent = done ? 'Copied' : 'Press Ctrl+C';
  if (!done) prompt('Copy this:', text);
  setTimeout(() => { button.textContent = before; }, 1500);
}
