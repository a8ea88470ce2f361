// Compares the types of `client/` with the OpenAPI document: every answer that the document allows must
// be a value of the type, and the type must not name members that no answer has.
// Arguments: the folder that holds node_modules with TypeScript, the OpenAPI document, a folder for the
// generated file.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const [packages, documentFile, folder] = process.argv.slice(2);
const ts = createRequire(join(resolve(packages), 'node_modules', 'none.js'))('typescript');
const document = JSON.parse(readFileSync(documentFile, 'utf8'));
const assets = join(dirname(fileURLToPath(import.meta.url)), '../../src/ui/assets');

/** The type in `client/`, and the schema or the operation whose answer it describes. */
const PAIRS = [
  ['client/types.js', 'Role', 'Role'],
  ['client/types.js', 'OrgOfUser', 'OrgOf'],
  ['client/types.js', 'User', 'User'],
  ['client/types.js', 'Me', 'GET /api/v1/auth/me'],
  ['client/types.js', 'AuthConfig', 'GET /api/v1/auth/config'],
  ['client/types.js', 'Metric', 'Metric'],
  ['client/types.js', 'Policy', 'Policy'],
  ['client/types.js', 'ApiKey', 'ApiKey'],
  ['client/types.js', 'QueryAnswer', 'Query'],
  ['client/dashboards.js', 'Entry', 'Dashboard'],
  ['client/dashboards.js', 'Version', 'DashboardVersion'],
];

/** @param {any} schema JSON Schema as the document uses it @returns {string} the same in TypeScript */
function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return 'any';
  if (schema.$ref) return `Schemas[${JSON.stringify(schema.$ref.split('/').at(-1))}]`;
  if ('const' in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(' | ');
  for (const key of ['oneOf', 'anyOf']) if (schema[key]) return schema[key].map((one) => `(${typeOf(one)})`).join(' | ');
  if (schema.allOf) return schema.allOf.map((one) => `(${typeOf(one)})`).join(' & ');
  if (Array.isArray(schema.type)) return schema.type.map((type) => `(${typeOf({ ...schema, type })})`).join(' | ');
  switch (schema.type) {
    case 'integer':
    case 'number':
      return 'number';
    case 'string':
    case 'boolean':
    case 'null':
      return schema.type;
    case 'array':
      return `Array<${typeOf(schema.items)}>`;
    case 'object': {
      const required = new Set(schema.required ?? []);
      const members = Object.entries(schema.properties ?? {}).map(([name, one]) =>
        `${JSON.stringify(name)}${required.has(name) ? '' : '?'}: ${typeOf(one)};`);
      if (members.length) return `{ ${members.join(' ')} }`;
      return `{ [name: string]: ${typeOf(schema.additionalProperties)} }`;
    }
    default:
      return 'any';
  }
}

/** @param {string} source a schema, or a method and a path @returns {string} */
function given(source) {
  const [method, path] = source.split(' ');
  if (!path) {
    assert.ok(document.components.schemas[source], `the document has no schema ${source}`);
    return `Schemas[${JSON.stringify(source)}]`;
  }
  const answer = document.paths[path]?.[method.toLowerCase()]?.responses['200'];
  assert.ok(answer, `the document has no answer of ${source}`);
  return typeOf(answer.content['application/json'].schema);
}

const schemas = Object.entries(document.components.schemas)
  .map(([name, schema]) => `  ${JSON.stringify(name)}: ${typeOf(schema)};`);
const checks = PAIRS.map(([file, type, source], index) => {
  const client = `import(${JSON.stringify(join(assets, file))}).${type}`;
  return `export const check${index}: ${client} = given<${given(source)}>();
export const members${index}: never = given<Exclude<Members<${client}>, Members<${given(source)}>>>();`;
});
const text = `interface Schemas {\n${schemas.join('\n')}\n}
type Members<T> = T extends string ? never : keyof T;
declare function given<T>(): T;
${checks.join('\n')}
`;
const file = join(folder, 'api_types.ts');
writeFileSync(file, text);
const program = ts.createProgram([file], {
  allowJs: true, checkJs: false, noEmit: true, strict: true, skipLibCheck: true, types: [],
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ES2022, moduleResolution: ts.ModuleResolutionKind.Bundler,
  lib: ['lib.es2023.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
});
const problems = ts.getPreEmitDiagnostics(program).filter((one) => one.file?.fileName === file);
const lines = text.split('\n');
for (const problem of problems) {
  const line = problem.file.getLineAndCharacterOfPosition(problem.start).line;
  const pair = PAIRS[Number(/\d+/.exec(lines[line])?.[0] ?? 0)];
  console.error(`${pair.join(' ')}: ${ts.flattenDiagnosticMessageText(problem.messageText, '\n')}`);
}
assert.equal(problems.length, 0, 'a type of the client differs from the OpenAPI document');
console.log(`${PAIRS.length} types of the client hold for ${schemas.length} schemas`);
