// The parts of a chart that most charts never need: the live stream, explanations of errors, and retries.

import { explain } from './diagnosis.js';
import { follow } from './follower.js';
import { reconnectPause, waitToRetry } from './retry.js';

export { explain, follow, reconnectPause, waitToRetry };
