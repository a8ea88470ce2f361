// The modules that pages, panels and other modules loaded later import. The build script fills it; a
// folder that is being edited has an empty table.

/** Names of modules. @type {string[]} */
export const MODULES = [];
/** What a module imports, directly or through others, as indices of `MODULES`. @type {Record<string, number[]>} */
export const IMPORTED = {};
