// The pen of a canvas, and the crosshair above it.

/**
 * The pen of a canvas with a size in CSS pixels; a new size clears the canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function penOf(canvas, width, height) {
  const ratio = Math.min(3, devicePixelRatio || 1);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const pen = canvas.getContext('2d');
  if (canvas.width !== wide || canvas.height !== high) {
    // A new size resets the transformation.
    [canvas.width, canvas.height] = [wide, high];
    pen?.scale(ratio, ratio);
  }
  return pen;
}

/**
 * Moves the crosshair, a node of its own: moving it paints nothing.
 * @param {HTMLElement} hair
 * @param {number|null} x pixels; null without a cursor
 */
export function moveHair(hair, x) {
  const hidden = x === null;
  if (hair.hidden !== hidden) hair.hidden = hidden;
  if (x !== null) hair.style.transform = `translateX(${Math.round(x)}px)`;
}
