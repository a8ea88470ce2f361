// Prints the programs that the Share dialog shows for a token, as an object by language:
//
//   node share_programs.mjs '{"org": ..., "kid": ..., "ttl": ..., "ms": ...}'

import { backendSnippets } from '../../src/ui/assets/model/backend_snippets.js';

const programs = backendSnippets(JSON.parse(process.argv[2])).map(({ id, text }) => [id, text]);
process.stdout.write(JSON.stringify(Object.fromEntries(programs)));
