//! Fallible allocations whose size depends on a request.
//!
//! Rust ends the process when an allocation fails. Memory that a request can make large is
//! therefore checked or reserved here before it is used, so that a failure refuses only that
//! request. An allocation can only fail under a limit of the process (`RLIMIT_DATA`, `RLIMIT_AS`)
//! or on a system without overcommitment.

use std::fs;
use std::hint::black_box;
use std::sync::LazyLock;

use rustix::process::{Resource, getrlimit};

/// Smaller allocations are not checked; [`SPARE_BYTES`] covers them.
const CHECKED_BYTES: u64 = 1 << 20;
/// The memory in bytes that must remain for small allocations after a large one.
const SPARE_BYTES: u64 = 8 << 20;

/// The operating system has no memory for a request at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is out of memory: {bytes} bytes could not be allocated")]
pub struct OutOfMemory {
    /// Requested size in bytes.
    pub bytes: u64,
}

/// Checks that the process can allocate `bytes` now, before they are allocated in many parts.
///
/// Costs nothing below 1 MiB, and two cheap system calls from 1 MiB on. In a process whose memory
/// is limited, and from 1 GiB on, it also maps and unmaps the whole size. Threads that allocate
/// concurrently may still take the memory in between.
///
/// # Errors
/// [`OutOfMemory`].
pub fn check_available(bytes: u64) -> Result<(), OutOfMemory> {
    let is_small = bytes < CHECKED_BYTES;
    if is_small || !can_fail(bytes) || has(bytes.saturating_add(SPARE_BYTES)) {
        Ok(())
    } else {
        Err(OutOfMemory { bytes })
    }
}

/// Returns whether an allocation of `bytes` can fail now: it is huge, the process has a limit, or
/// the system does not overcommit memory.
///
/// A limit can be set on a running process, so it is read each time.
fn can_fail(bytes: u64) -> bool {
    // A system that overcommits still refuses what exceeds its memory or the address space.
    const HUGE_BYTES: u64 = 1 << 30;
    static IS_OVERCOMMITTED: LazyLock<bool> = LazyLock::new(|| {
        // 2: never overcommit (proc_sys_vm(5)). Allocations are checked if there is no such file.
        let policy = fs::read_to_string("/proc/sys/vm/overcommit_memory");
        policy.is_ok_and(|policy| matches!(policy.trim(), "0" | "1"))
    });
    let is_limited = |resource| getrlimit(resource).current.is_some();
    bytes >= HUGE_BYTES || !*IS_OVERCOMMITTED || is_limited(Resource::Data) || is_limited(Resource::As)
}

/// Returns whether the process can allocate `bytes`.
fn has(bytes: u64) -> bool {
    // The allocator adapts to freed large allocations by keeping more memory, up to 32 MiB. Only a
    // process that is short of memory is probed with the exact size.
    const NEVER_ADAPTED_TO: u64 = 33 << 20;
    allocates(bytes.max(NEVER_ADAPTED_TO)) || bytes < NEVER_ADAPTED_TO && allocates(bytes)
}

fn allocates(bytes: u64) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    let reserved = probe.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX));
    // The compiler may remove an unused allocation.
    black_box(&probe);
    reserved.is_ok()
}

/// Returns an empty vector with capacity for `len` items.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_with_capacity<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut items = Vec::new();
    try_reserve_exact(&mut items, len)?;
    Ok(items)
}

/// Reserves capacity for `more` items after those of a vector.
///
/// # Errors
/// [`OutOfMemory`], also if too little memory would remain after a large allocation.
pub fn try_reserve_exact<T>(items: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    let bytes = bytes_of::<T>(more);
    let reserved = items.try_reserve_exact(more).is_ok();
    if reserved && (bytes < CHECKED_BYTES || !can_fail(bytes) || has(SPARE_BYTES)) {
        Ok(())
    } else {
        Err(OutOfMemory { bytes })
    }
}

/// Returns the size of `len` items in bytes.
pub const fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_allocations_are_refused_and_small_ones_are_not_checked() {
        let most = u64::MAX;
        assert_eq!(check_available(most), Err(OutOfMemory { bytes: most }));
        assert_eq!(check_available(CHECKED_BYTES), Ok(()));
        let refused = try_with_capacity::<u64>(usize::MAX);
        assert_eq!(refused, Err(OutOfMemory { bytes: most }));
        let mut items = try_with_capacity(3).expect("24 bytes");
        items.push(1_u64);
        try_reserve_exact(&mut items, 1_000).expect("8 kB");
        assert!(items.capacity() > 1_000 && items == [1]);
    }
}
