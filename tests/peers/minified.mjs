// Compares each served module with its source, token by token: the minifier removes comments and white
// space, and nothing else.
// Arguments: the folder that holds node_modules, the folder of the sources, the folder of the served files.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const [packages, sources, served] = process.argv.slice(2);
const ts = createRequire(join(resolve(packages), 'node_modules', 'none.js'))('typescript');

/** @param {string} text @returns {string[]} the tokens of a module; a line break that ends a statement is none */
function tokensOf(text) {
  const file = ts.createSourceFile('module.js', text, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  assert.deepEqual(file.parseDiagnostics.map((one) => one.messageText), []);
  /** @type {string[]} */
  const tokens = [];
  const visit = (node) => {
    if (ts.isJSDoc(node)) return;
    const children = node.getChildren(file);
    // The shape of the tree shows where statements end.
    if (children.length) {
      tokens.push(`<${ts.SyntaxKind[node.kind]}`);
      children.forEach(visit);
      tokens.push('>');
    } else tokens.push(node.getText(file));
  };
  visit(file);
  return tokens;
}

// The build script fills the table of imports.
const names = readdirSync(sources, { recursive: true }).map(String)
  .filter((name) => name.endsWith('.js') && name !== join('client', 'import_table.js'));
let count = 0;
for (const name of names) {
  const [source, module] = [sources, served].map((folder) => tokensOf(readFileSync(join(folder, name), 'utf8')));
  const at = source.findIndex((token, index) => token !== module[index]);
  assert.equal(at, -1, `${name}: ${source.slice(at - 3, at + 3).join(' ')} became ${module.slice(at - 3, at + 3).join(' ')}`);
  assert.equal(module.length, source.length, name);
  count += source.length;
}
console.log(`${names.length} modules, ${count} tokens and nodes are equal`);
