// Addresses of links in dashboards that are safe to follow.

/**
 * The address if it is http, https or relative; null for anything else, such as `javascript:`.
 * @param {unknown} url
 * @returns {string | null}
 */
export function safeUrl(url) {
  // Browsers leave out these characters before they read the scheme.
  const text = String(url ?? '').replace(/[\u0000-\u0020\u007f-\u009f]/g, '');
  if (text === '' || text.length > 8192 || /^[/\\]{2}/.test(text)) return null;
  const scheme = /^([a-z][a-z\d+.-]*):/i.exec(text);
  if (scheme && !/^https?$/i.test(scheme[1])) return null;
  return text;
}
