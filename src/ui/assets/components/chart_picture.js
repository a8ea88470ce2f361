// A picture of a chart with its title and legend, as PNG.

/** The most series of the legend. */
const LEGEND_MAX = 40;
const PAD = 16;
const ROW = 20;
/** The dashes of the legend's swatches, by their class `d0` to `d3`. */
const DASHES = [[], [6, 3], [3, 3], [7, 2, 3, 2]];
const FONT = 'ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';

/**
 * @param {HTMLElement} chart a <metric-chart> with a result
 * @param {string} title
 * @returns {Promise<Blob | null>} null without a drawing
 */
export function chartPicture(chart, title) {
  const root = chart.shadowRoot;
  const drawing = root?.querySelector('canvas');
  if (!root || !drawing || drawing.width === 0) return Promise.resolve(null);
  const ratio = drawing.width / drawing.clientWidth;
  const width = drawing.clientWidth + 2 * PAD;
  const canvas = document.createElement('canvas');
  const pen = canvas.getContext('2d');
  if (!pen) return Promise.resolve(null);
  const style = getComputedStyle(chart);
  const ink = style.color;
  const background = backgroundOf(chart);
  const entries = [...root.querySelectorAll('.legend button:not([aria-pressed="false"])')];
  const names = entries.slice(0, LEGEND_MAX).map((button) => {
    const swatch = button.querySelector('.swatch');
    const dash = DASHES[Number(/\bd(\d)\b/.exec(swatch?.className ?? '')?.[1] ?? 0)] ?? [];
    return { text: button.textContent?.trim() ?? '', colour: swatch ? getComputedStyle(swatch).color : ink, dash };
  });
  pen.font = `600 14px ${FONT}`;
  const titles = wrapped(pen, title, width - 2 * PAD, 3);
  pen.font = `12px ${FONT}`;
  /** @type {{text: string, colour: string, dash: number[], x: number, row: number}[]} */
  const places = [];
  let [x, row] = [0, 0];
  for (const { text, colour, dash } of names) {
    const shown = shortened(pen, text, width - 2 * PAD - 24);
    const wide = 24 + pen.measureText(shown).width + 14;
    if (x > 0 && x + wide > width - 2 * PAD) [x, row] = [0, row + 1];
    places.push({ text: shown, colour, dash, x, row });
    x += wide;
  }
  const top = PAD + titles.length * ROW + 6;
  const below = top + drawing.clientHeight + 10;
  const height = below + (names.length ? (row + 1) * ROW : 0) + PAD;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  pen.scale(ratio, ratio);
  pen.fillStyle = background;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = ink;
  pen.textBaseline = 'middle';
  pen.font = `600 14px ${FONT}`;
  titles.forEach((text, index) => pen.fillText(text, PAD, PAD + (index + 0.5) * ROW));
  pen.drawImage(drawing, PAD, top, drawing.clientWidth, drawing.clientHeight);
  pen.font = `12px ${FONT}`;
  pen.lineWidth = 3;
  for (const place of places) {
    const y = below + (place.row + 0.5) * ROW;
    pen.strokeStyle = place.colour;
    pen.setLineDash(place.dash);
    pen.beginPath();
    pen.moveTo(PAD + place.x, y);
    pen.lineTo(PAD + place.x + 15, y);
    pen.stroke();
    pen.fillText(place.text, PAD + place.x + 20, y);
  }
  return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
}

/** The colour behind an element. @param {Element} element */
function backgroundOf(element) {
  for (let at = /** @type {Element | null} */ (element); at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour !== 'transparent' && !/, 0\)$/.test(colour)) return colour;
  }
  return '#ffffff';
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} width
 */
function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

/**
 * Lines of a text; the last one is shortened.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} width
 * @param {number} most
 */
function wrapped(pen, text, width, most) {
  /** @type {string[]} */
  const lines = [];
  let line = '';
  const words = text.trim().slice(0, 2000).split(/\s+/);
  words.forEach((word, index) => {
    const longer = line ? `${line} ${word}` : word;
    if (line && lines.length < most - 1 && pen.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
    if (index === words.length - 1) lines.push(line);
  });
  return lines.map((one) => shortened(pen, one, width));
}
