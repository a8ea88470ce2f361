//! The CPU time of a process, which Linux shows in `/proc/PID/stat`.

use std::fs;

/// The unit of CPU time in `/proc/PID/stat`: `USER_HZ`, which is 100 on all usual architectures.
const TICKS_PER_S: f64 = 100.0;

/// Returns the CPU time of a process so far in seconds, user and system, with ended threads. `None`
/// if there is no such process.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain spaces and parentheses.
    let (_, fields) = text.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().ok());
    Some(times.sum::<Option<f64>>()? / TICKS_PER_S)
}
