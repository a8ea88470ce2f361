// Words of a POSIX shell, for commands that people copy.

/** A word in single quotes. @param {string} text */
export const quotedWord = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A word, with quotes if it needs them. @param {string} text */
export const shellWord = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : quotedWord(text));
