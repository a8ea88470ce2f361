// The HTML that a page needs to show a chart or a dashboard, and the lines that show an image of one.

/**
 * @typedef {{server: string, org: string}} Server `server`: its public URL without a slash at the end
 * @typedef {{[name: string]: string | number | null | undefined}} Attributes without those that are empty
 * @typedef {{id: string, title: string, note: string, text: string}} Snippet
 */

/** Stands for the token that the backend of a page fills in. */
export const TOKEN = 'TOKEN';

/** A text as the value of an attribute in double quotes. @param {string} text */
export const escaped = (text) => text.replace(/[&"<>\n\r\t]/g, (char) => `&#${char.charCodeAt(0)};`);

/** @param {Attributes} attributes */
const written = (attributes) =>
  Object.entries(attributes)
    .filter(([, value]) => value !== undefined && value !== null && value !== '')
    .map(([name, value]) => `${name}="${escaped(String(value))}"`);

/**
 * An element, with its attributes on further lines if one line would be long.
 * @param {string} tag
 * @param {Attributes} attributes
 */
function element(tag, attributes) {
  const all = written(attributes);
  const line = `<${tag} ${all.join(' ')}></${tag}>`;
  return line.length <= 100 ? line : `<${tag}\n  ${all.join('\n  ')}\n></${tag}>`;
}

/**
 * The script and the element of a chart.
 * @param {Server} server
 * @param {Attributes} attributes of `<metric-chart>`: `expr`, `range`, and `token` or `token-endpoint`
 */
export const chartHtml = ({ server, org }, attributes) =>
  `<script type="module" src="${escaped(server)}/embed.js"></script>
${element('metric-chart', { org, ...attributes })}
`;

/**
 * The script and the element of a dashboard.
 * @param {Server} server
 * @param {Attributes} attributes of `<metric-dashboard>`: `uid`, `from`, `to`, and so on
 */
export const dashboardHtml = ({ server, org }, attributes) =>
  `<script type="module" src="${escaped(server)}/embed-dashboard.js"></script>
${element('metric-dashboard', { org, ...attributes })}
`;

/** A string of JavaScript inside a script element. @param {string} text */
const scriptString = (text) => JSON.stringify(text).replaceAll('<', '\\u003c');

/**
 * A frame of a dashboard, and the script that gives it fresh tokens.
 * @param {Server} server
 * @param {{title: string, endpoint: string, lifetime: number}} page `endpoint`: the URL that returns a token;
 *   `lifetime` of a token in seconds
 */
export function frameHtml({ server }, { title, endpoint, lifetime }) {
  const frame = element('iframe', {
    id: 'promlet-frame',
    title,
    src: `${server}/frame?token=${TOKEN}`,
    width: '100%',
    height: '600',
    allow: 'local-network-access',
  });
  return `${frame}
<script>
  const frame = document.getElementById('promlet-frame');
  setInterval(async () => {
    const token = await (await fetch(${scriptString(endpoint)})).text();
    frame.contentWindow.postMessage({ type: 'promlet-token', token }, ${scriptString(new URL(server).origin)});
  }, ${Math.floor(lifetime * 0.8)} * 1000);
</script>
`;
}

/**
 * The URL of an image.
 * @param {Server} server
 * @param {'svg' | 'png'} format
 * @param {[string, string | number][]} parameters those that are empty are left out
 */
export function imageUrl({ server, org }, format, parameters) {
  const given = parameters.filter(([, value]) => value !== '').map(([name, value]) => [name, String(value)]);
  return `${server}/api/v1/orgs/${encodeURIComponent(org)}/render.${format}?${new URLSearchParams(given)}`;
}

/** A text inside the brackets of a Markdown image. @param {string} text */
const markdownText = (text) => text.replace(/\s+/g, ' ').replace(/[\\[\]`*_<>!&#|~]/g, '\\$&');

/**
 * Lines that show an image.
 * @param {string} url whose special characters are percent-encoded
 * @param {string} title
 * @returns {Snippet[]}
 */
export function imageSnippets(url, title) {
  const plain = title.trim() || 'Chart';
  // A bracket would end the address of a Markdown image.
  const address = url.replaceAll('(', '%28').replaceAll(')', '%29');
  return [
    { id: 'url', title: 'URL', note: 'The address of the image.', text: `${url}\n` },
    {
      id: 'markdown',
      title: 'Markdown',
      note: 'For a wiki or an issue.',
      text: `![${markdownText(plain)}](${address})\n`,
    },
    {
      id: 'html',
      title: 'HTML',
      note: 'For a mail or a page.',
      text: `<img src="${escaped(url)}" alt="${escaped(plain)}">\n`,
    },
    {
      id: 'slack',
      title: 'Slack',
      note: 'A block of a message. Slack fetches the image itself, so your server must be reachable from the Internet.',
      text: `${JSON.stringify({ type: 'image', image_url: url, alt_text: plain }, null, 2)}\n`,
    },
  ];
}
