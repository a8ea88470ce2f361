// Texts that would end a string, an attribute or a script if they were copied into one, and a generator.

export const HOSTILE = [
  "it's",
  '"quoted"',
  'back\\slash',
  '\\',
  "\\'",
  'line\nfeed',
  'return\r',
  'tab\t',
  '</script><script>alert(1)</script>',
  '<!--',
  ']]>',
  '${x}',
  '$x',
  '{$x}',
  '`tick`',
  '#{x}',
  '%s %d',
  '{{x}}',
  '&#60;',
  '\u2028\u2029',
  '\u0000\u0007\u007f',
  'é ß 漢字',
  '😀',
  '\u202eabc',
  '?>',
  '*/',
  '//',
  '__proto__',
  'constructor',
  '"""',
  "'''",
  '\\u0041',
  '\\x41',
  '\\N{DASH}',
  '\u00a0',
];

/** A generator of numbers below 1 (mulberry32). */
export function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
