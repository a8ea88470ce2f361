// A snapshot of a dashboard: one HTML file with the element, the answers, and a policy against requests.

import { escaped } from './share_html.js';

/** The script that hands the data to the element, and says of which time they are. */
const START = `
const data = JSON.parse(document.getElementById('snapshot').textContent);
const when = (time) => new Date(time).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
const note = document.createElement('p');
note.textContent = when(data.range.from) + ' to ' + when(data.range.to) + ', a snapshot';
const element = document.createElement('metric-dashboard');
element.snapshot = data;
document.body.append(note, element);
`;

/** JSON inside a script element: no text ends the element or begins a comment. @param {unknown} data */
const inlineJson = (data) =>
  JSON.stringify(data).replace(/[<\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);

/**
 * A module inside a script element. `</script` and `<!--` occur only in strings and regular expressions,
 * where a backslash before a slash or an exclamation mark changes nothing.
 * @param {string} source
 */
const inlineScript = (source) => source.replace(/<\/(?=script)/gi, '<\\/').replaceAll('<!--', '<\\!--');

/** The members of an answer that a panel shows: the others have the text of the query. */
const SHOWN = ['status', 'data', 'step', 'code', 'detail', 'http_status', 'warnings', 'infos'];

/**
 * @typedef {{view: unknown, answers: Record<string, Record<string, any>>, range: {from: number, to: number},
 *   selections: Record<string, string[]>}} Snapshot the property `snapshot` of the element
 */

/**
 * The snapshot without the texts of queries.
 * @param {Snapshot} snapshot
 * @returns {Snapshot}
 */
export const withoutQueries = (snapshot) => ({
  ...snapshot,
  answers: Object.fromEntries(
    Object.entries(snapshot.answers).map(([name, answer]) => [
      name,
      Object.fromEntries(Object.entries(answer).filter(([member]) => SHOWN.includes(member))),
    ]),
  ),
});

/**
 * The names of the files that the bundle of the element loads later.
 * @param {string} script the bundle
 */
export const laterParts = (script) => [...new Set(script.match(/embed-dashboard\.\w{1,32}\.js/g) ?? [])];

/** A script as a URL that an import map names. @param {string} source */
function scriptUrl(source) {
  const bytes = new TextEncoder().encode(source);
  let binary = '';
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return `data:text/javascript;base64,${btoa(binary)}`;
}

/**
 * The HTML of a snapshot. Its policy permits only the scripts inside, and no request.
 * @param {Object} options
 * @param {string} options.title
 * @param {string} options.script the text of `embed-dashboard.js`
 * @param {[name: string, text: string][]} options.parts the files that it loads later
 * @param {Snapshot} options.data
 * @param {((text: string) => Promise<string>) | null} options.digest SHA-256 in base64; null where the
 *   browser has none, which is on pages without TLS
 */
export async function snapshotHtml({ title, script, parts, data, digest }) {
  // The bundle asks for its parts with its version.
  const [version = ''] = /\?v=[0-9a-f]{8}/.exec(script) ?? [];
  const imports = Object.fromEntries(parts.map(([name, text]) => [`./${name}${version}`, scriptUrl(text)]));
  const scripts = [inlineJson({ imports }), inlineScript(script), START];
  const hashes = digest && (await Promise.all(scripts.map(digest)));
  const allowed = hashes ? hashes.map((hash) => `'sha256-${hash}'`).join(' ') : "'unsafe-inline'";
  const policy =
    `default-src 'none'; script-src ${allowed} data:; style-src 'unsafe-inline'; img-src data: blob:; ` +
    "base-uri 'none'; form-action 'none'";
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>${escaped(title)}</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 12px; }
p { margin: 0; opacity: .75; }
</style>
<body>
<script type="application/json" id="snapshot">${inlineJson(data)}</script>
<script type="importmap">${scripts[0]}</script>
<script type="module">${scripts[1]}</script>
<script type="module">${scripts[2]}</script>
</body>
</html>
`;
}
