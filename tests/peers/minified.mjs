// Compares the modules in the served bundles with their sources, tree by tree: only names of variables and
// private names differ, and each refers to the same declaration as in the source.
// Arguments: the folder that holds node_modules, the folder of the sources, the folder of the served files.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, normalize, resolve } from 'node:path';

const [packages, sources, served] = process.argv.slice(2);
const ts = createRequire(join(resolve(packages), 'node_modules', 'none.js'))('typescript');

/** Modules whose style sheets the build script writes or shortens: their texts may differ. */
const hasSheet = (name) => name.endsWith('style.js') || name === 'embedded/sheets.js';

/** @param {string} text @returns {{file: any, checker: any}} the tree of a module, and what its names refer to */
function parsed(text) {
  const file = ts.createSourceFile('/m.js', text, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  assert.deepEqual(file.parseDiagnostics.map((one) => one.messageText), []);
  const options = { allowJs: true, noLib: true, noResolve: true, types: [] };
  const host = { ...ts.createCompilerHost(options), getSourceFile: (name) => (name === '/m.js' ? file : undefined) };
  host.fileExists = (name) => name === '/m.js';
  host.readFile = () => undefined;
  return { file, checker: ts.createProgram(['/m.js'], options, host).getTypeChecker() };
}

const isCall = (node, name) => ts.isCallExpression(node) && node.expression.getText() === name;

/** Whether a node stands for an address of the module itself, or loads a module. */
function placeholder(node) {
  if (ts.isCallExpression(node)) {
    if (node.expression.kind === ts.SyntaxKind.ImportKeyword && ts.isStringLiteral(node.arguments[0])) return 'load';
    if (isCall(node, '$chunk') || /^Promise\.resolve\(\$\(\d+\)\)$/.test(node.getText())) return 'load';
  }
  if (ts.isNewExpression(node) && /^new URL\('[^']+\.js',import\.meta\.url\)$/.test(node.getText())) return 'address';
  return node.getText() === 'import.meta.url' ? 'address' : null;
}

/**
 * What the statements consist of. Variables and private names are numbers in the order of their first use.
 * @param {any[]} statements
 * @param {any} checker
 * @returns {{items: string[], symbols: any[]}}
 */
function itemsOf(statements, checker, withoutTexts = false) {
  const items = [];
  const symbols = new Map();
  const privates = new Map();
  const number = (map, key) => map.get(key) ?? map.set(key, map.size).get(key);
  const name = (node, symbol) =>
    items.push(symbol?.declarations?.length ? `variable ${number(symbols, symbol)}` : `free ${node.text}`);
  const isProperty = (node) => {
    const { parent } = node;
    if (ts.isBindingElement(parent)) return parent.propertyName === node;
    if (ts.isPropertyAccessExpression(parent) || ts.isMetaProperty(parent)) return parent.name === node;
    return parent.name === node && (ts.isPropertyAssignment(parent) || ts.isClassElement(parent));
  };
  const visit = (node) => {
    if (node.kind === ts.SyntaxKind.ExportKeyword) return;
    const stands = placeholder(node);
    if (stands) return void items.push(stands);
    // The build script fills the table of sheets.
    if (withoutTexts && ts.isObjectLiteralExpression(node) && /^\{('[\w-]+\.css':|\}$)/.test(node.getText()))
      return void items.push('sheets');
    if (ts.isIdentifier(node)) {
      if (isProperty(node)) items.push(`property ${node.text}`);
      else name(node, checker.getSymbolAtLocation(node));
    } else if (ts.isPrivateIdentifier(node)) items.push(`private ${number(privates, node.text)}`);
    else if (ts.isShorthandPropertyAssignment(node)) {
      items.push('PropertyAssignment  0', `property ${node.name.text}`);
      name(node.name, checker.getShorthandAssignmentValueSymbol(node));
      if (node.objectAssignmentInitializer) visit(node.objectAssignmentInitializer);
      items.push('end');
    } else {
      items.push(`${ts.SyntaxKind[node.kind]} ${node.operator ?? ''} ${node.flags & ts.NodeFlags.BlockScoped}`);
      const own = ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent);
      if (own && !node.propertyName && !node.dotDotDotToken) items.push(`property ${node.name.text}`);
      const isText = ts.isLiteralExpression(node) || node.kind >= ts.SyntaxKind.TemplateHead && node.kind <= ts.SyntaxKind.TemplateTail;
      if (isText && !withoutTexts) items.push(node.rawText ?? node.getText());
      ts.forEachChild(node, visit);
      items.push('end');
    }
  };
  statements.forEach(visit);
  return { items, symbols: [...symbols.keys()] };
}

/** The statement of an import in a bundle: `const{a:b}=$(1);`. */
function boundNumber(statement) {
  const call = ts.isVariableStatement(statement)
    ? statement.declarationList.declarations[0].initializer
    : ts.isExpressionStatement(statement) && statement.expression;
  return call && isCall(call, '$') ? Number(call.arguments[0].getText()) : null;
}

/** The texts of statements, without the white space, comments and semicolons that style sheets lose. */
function textsOf(statements) {
  let texts = '';
  const visit = (node) => {
    const isTemplate = node.kind >= ts.SyntaxKind.TemplateHead && node.kind <= ts.SyntaxKind.TemplateTail;
    if (ts.isStringLiteralLike(node) || isTemplate) texts += node.text;
    ts.forEachChild(node, visit);
  };
  statements.forEach(visit);
  return texts.replace(/\/\*.*?\*\//gs, '').replace(/[\s;]/g, '');
}

/** The functions of a bundle or chunk: their number and their body. */
function functionsOf(file) {
  const found = [];
  const visit = (node) => {
    const isAll = ts.isVariableDeclaration(node) && node.name.getText() === '$all';
    if (isAll) return node.initializer.elements.forEach((element, number) => found.push({ number, body: element.expression.body }));
    if (ts.isBinaryExpression(node) && /^\$all\[\d+\]$/.test(node.left.getText()))
      return void found.push({ number: Number(node.left.argumentExpression.getText()), body: node.right.expression.body });
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

const all = readdirSync(sources, { recursive: true }).map(String).filter((name) => name.endsWith('.js'));
/** The sources by what they consist of. */
const known = new Map();
for (const name of all) {
  const { file, checker } = parsed(readFileSync(join(sources, name), 'utf8'));
  const body = file.statements.filter((one) => !ts.isImportDeclaration(one) && !ts.isExportDeclaration(one));
  const { items, symbols } = itemsOf(body, checker, hasSheet(name));
  /** Which export of which module a name of this module is. */
  const imported = new Map();
  const exported = new Map();
  for (const statement of file.statements) {
    const from = statement.moduleSpecifier && normalize(join(dirname(name), statement.moduleSpecifier.text));
    const bindings = statement.importClause?.namedBindings;
    for (const one of bindings?.elements ?? [])
      imported.set(checker.getSymbolAtLocation(one.name), `${from} ${(one.propertyName ?? one.name).text}`);
    if (bindings && ts.isNamespaceImport(bindings)) imported.set(checker.getSymbolAtLocation(bindings.name), from);
    for (const one of statement.exportClause?.elements ?? [])
      exported.set(one.name.text, from ? `${from} ${one.name.text}` : checker.getExportSpecifierLocalTargetSymbol(one));
  }
  for (const symbol of checker.getExportsOfModule(file.symbol ?? checker.getSymbolAtLocation(file)) ?? [])
    // Types of JSDoc are no values.
    if (!exported.has(symbol.name) && symbol.flags & ts.SymbolFlags.Value) exported.set(symbol.name, symbol);
  const key = JSON.stringify(items);
  const place = (symbol) => (typeof symbol === 'string' ? symbol : (imported.get(symbol) ?? symbols.indexOf(symbol)));
  const texts = textsOf(body);
  const module = { name, symbols: symbols.map((symbol) => imported.get(symbol) ?? null), exported, place, texts };
  known.set(key, [...(known.get(key) ?? []), module]);
}
const seen = new Set();
let count = 0;
const bundles = readdirSync(served, { recursive: true }).map(String).filter((name) => name.endsWith('.js'));
/** The files of a bundle share numbers. */
for (const entry of ['app.js', 'docs.js', 'shared.js', 'embed.js', 'embed-alerts.js', 'embed-dashboard.js']) {
  const stem = `${entry.slice(0, -3)}.`;
  const files = bundles.filter((one) => one === entry || (one.startsWith(stem) && one !== entry) || (entry === 'embed.js' && one.startsWith('chart/')));
  const names = new Map();
  const uses = [];
  const offers = new Map();
  for (const one of files) {
    const { file, checker } = parsed(readFileSync(join(served, one), 'utf8'));
    for (const { number, body } of functionsOf(file)) {
      const statements = [...body.statements];
      const returned = statements.pop().expression.properties;
      const heads = statements.filter((statement) => boundNumber(statement) !== null);
      const rest = statements.filter((statement) => !heads.includes(statement));
      let { items, symbols } = itemsOf(rest, checker);
      if (!known.has(JSON.stringify(items))) items = itemsOf(rest, checker, true).items;
      const candidates = known.get(JSON.stringify(items));
      assert(candidates, `${one}: function ${number} is none of the sources: ${body.getText().slice(0, 300)}`);
      const bound = new Map();
      for (const statement of heads.filter(ts.isVariableStatement)) {
        const from = boundNumber(statement);
        const pattern = statement.declarationList.declarations[0].name;
        if (ts.isIdentifier(pattern)) bound.set(checker.getSymbolAtLocation(pattern), `${from}`);
        else for (const element of pattern.elements)
          bound.set(checker.getSymbolAtLocation(element.name), `${from} ${(element.propertyName ?? element.name).text}`);
      }
      // Equal modules are told apart by what they export, and style sheets by their texts.
      const fits = ({ exported, texts }) =>
        exported.size === returned.length && (candidates.length === 1 || texts === textsOf(rest));
      const module = candidates.find(fits);
      assert(module, `${one}: function ${number} exports something else than ${candidates[0].name}`);
      assert.equal(names.get(number) ?? module.name, module.name);
      names.set(number, module.name);
      seen.add(module.name);
      count += items.length;
      symbols.forEach((symbol, at) => {
        const [mine, theirs] = [bound.get(symbol) ?? null, module.symbols[at]];
        assert.equal(mine === null, theirs === null, `${module.name}: variable ${at}`);
        if (mine !== null) uses.push([mine, theirs]);
      });
      const values = returned.map((property) => {
        if (ts.isShorthandPropertyAssignment(property)) return [property.name.text, checker.getShorthandAssignmentValueSymbol(property)];
        const value = property.initializer;
        const passed = /^\$\((\d+)\)\.(\w+)$/.exec(value.getText());
        return [property.name.text, passed ? `${passed[1]} ${passed[2]}` : checker.getSymbolAtLocation(value)];
      });
      offers.set(number, { module, values, symbols, bound });
    }
  }
  /** The export of a source that a key of a function stands for. */
  const meant = (text) => {
    const [number, key] = text.split(' ');
    if (key === undefined) return names.get(Number(number));
    const { module, values, symbols, bound } = offers.get(Number(number));
    const [, value] = values.find(([name]) => name === key);
    if (typeof value === 'string') return meant(value);
    const place = bound.has(value) ? meant(bound.get(value)) : symbols.indexOf(value);
    const names_ = [...module.exported].filter(([, symbol]) => {
      const own = module.place(symbol);
      return own === place || (typeof own === 'string' && typeof place === 'string' && own === place);
    });
    assert.equal(names_.length, 1, `${module.name}: ${key}`);
    return `${module.name} ${names_[0][0]}`;
  };
  /** A source's import, through modules that pass it on. */
  const origin = (text) => {
    const [name, own] = text.split(' ');
    const passed = own && [...known.values()].flat().find((one) => one.name === name)?.exported.get(own);
    return typeof passed === 'string' ? origin(passed) : text;
  };
  for (const [mine, theirs] of uses) assert.equal(origin(meant(mine)), origin(theirs));
}
const missing = all.filter((name) => !seen.has(name) && name !== 'client/types.js');
assert.deepEqual(missing, [], 'modules that no bundle has');
console.log(`${seen.size} modules in ${bundles.length} files, ${count} parts are equal`);
