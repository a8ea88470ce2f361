//! Allocations that grow with a request, refused where the operating system has no memory for them.
//!
//! Rust ends the process when an allocation fails. Memory that a request can make large is therefore asked for in one of
//! these ways before it is used; a failure refuses the request alone. It takes a limit of the process (`RLIMIT_DATA`,
//! `RLIMIT_AS`) or a system without overcommitment for an allocation to fail at all.

use std::fs;
use std::hint::black_box;
use std::sync::LazyLock;

use rustix::process::{Resource, getrlimit};

/// Allocations of fewer bytes are not checked: [`SPARE_BYTES`] pay for them.
const CHECKED_BYTES: u64 = 1 << 20;
/// What must be left for small allocations beside a large one.
const SPARE_BYTES: u64 = 8 << 20;

/// The operating system has no memory for a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has no memory left: {bytes} bytes could not be allocated")]
pub struct OutOfMemory {
    /// The bytes asked for.
    pub bytes: u64,
}

/// Checks that the process can allocate `bytes` now, for what is allocated in many pieces afterwards.
///
/// Costs nothing below a MiB, two cheap system calls from a MiB on, and two more (a mapping of the whole size, made and
/// removed) in a process whose memory is limited. Threads that allocate at the same time may still take the memory in
/// between.
///
/// # Errors
/// [`OutOfMemory`].
pub fn check_available(bytes: u64) -> Result<(), OutOfMemory> {
    let is_small = bytes < CHECKED_BYTES;
    if is_small || !can_fail() || has(bytes.saturating_add(SPARE_BYTES)) {
        Ok(())
    } else {
        Err(OutOfMemory { bytes })
    }
}

/// Whether an allocation of this process can fail now: it has a limit, or the system does not overcommit memory.
///
/// A limit can be set on a running process, so it is read each time.
fn can_fail() -> bool {
    static IS_OVERCOMMITTED: LazyLock<bool> = LazyLock::new(|| {
        // 2: never overcommit (proc_sys_vm(5)). Where there is no such file, allocations are checked.
        let policy = fs::read_to_string("/proc/sys/vm/overcommit_memory");
        policy.is_ok_and(|policy| matches!(policy.trim(), "0" | "1"))
    });
    let is_limited = |resource| getrlimit(resource).current.is_some();
    !*IS_OVERCOMMITTED || is_limited(Resource::Data) || is_limited(Resource::As)
}

/// Whether the process can allocate `bytes`.
fn has(bytes: u64) -> bool {
    // The allocator adapts to large allocations that are freed, by keeping more memory to itself, up to 32 MiB. Only a
    // process that is about to have none is asked exactly.
    const NEVER_ADAPTED_TO: u64 = 33 << 20;
    allocates(bytes.max(NEVER_ADAPTED_TO)) || bytes < NEVER_ADAPTED_TO && allocates(bytes)
}

fn allocates(bytes: u64) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    let reserved = probe.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX));
    // An allocation that nothing looks at may be left out by the compiler.
    black_box(&probe);
    reserved.is_ok()
}

/// An empty vector with room for `len` items.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_with_capacity<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut items = Vec::new();
    try_reserve_exact(&mut items, len)?;
    Ok(items)
}

/// Makes room for `more` items behind those of a vector.
///
/// # Errors
/// [`OutOfMemory`], also where too little is left beside a large allocation.
pub fn try_reserve_exact<T>(items: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    let bytes = bytes_of::<T>(more);
    let reserved = items.try_reserve_exact(more).is_ok();
    if reserved && (bytes < CHECKED_BYTES || !can_fail() || has(SPARE_BYTES)) {
        Ok(())
    } else {
        Err(OutOfMemory { bytes })
    }
}

/// Bytes of `len` items.
pub const fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_can_have_is_refused_and_small_allocations_are_not_checked() {
        let most = u64::MAX;
        assert!(!has(most) && has(CHECKED_BYTES));
        assert_eq!(check_available(CHECKED_BYTES), Ok(()));
        let refused = try_with_capacity::<u64>(usize::MAX);
        assert_eq!(refused, Err(OutOfMemory { bytes: most }));
        let mut items = try_with_capacity(3).expect("24 bytes");
        items.push(1_u64);
        try_reserve_exact(&mut items, 1_000).expect("8 kB");
        assert!(items.capacity() > 1_000 && items == [1]);
    }
}
