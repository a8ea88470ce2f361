// The CPU time of work, which other processes on the machine change little.

/**
 * Returns the CPU time of this process for the work, in milliseconds.
 * @param {() => unknown} work
 */
export function cpuMs(work) {
  const begun = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}
