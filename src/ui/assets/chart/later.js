// The parts of a chart that most charts never need: the live stream, explanations of errors, retries,
// and the event `select`.

import { explain } from './diagnosis.js';
import { follow } from './follower.js';
import { reconnectPause, waitToRetry } from './retry.js';
import { selection } from './selection.js';

export { explain, follow, reconnectPause, selection, waitToRetry };
