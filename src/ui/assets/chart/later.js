// The parts of a chart that most charts never need: the live stream, explanations of errors, and
// the event `select`.

import { explain } from './diagnosis.js';
import { follow } from './follower.js';
import { selection } from './selection.js';

export { explain, follow, selection };
