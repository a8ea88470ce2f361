//! The sizes of a process that Linux shows in `/proc/PID/status`.

use std::fs;

/// Returns a size in `/proc/PID/status` in bytes, for example `VmHWM`. `None` if the process has
/// ended.
pub(crate) fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
