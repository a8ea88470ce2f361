// The name of a series.

/**
 * A selector as PromQL writes it: `up{job="api"}`.
 * @param {Object<string, string>} labels
 */
export function fullName(labels) {
  const pairs = Object.keys(labels)
    .filter((label) => label !== '__name__')
    .sort()
    .map((label) => `${label}=${JSON.stringify(labels[label])}`);
  const metric = labels.__name__ ?? '';
  return pairs.length || !metric ? `${metric}{${pairs.join(', ')}}` : metric;
}
