//! Read-only memory maps of immutable files, and the handling of pages that cannot be read.
//!
//! If a page is no longer there (the file was truncated, or the disk fails), the kernel answers a
//! read with SIGBUS, which ends the process. The handler here maps a page of zeros at that address
//! instead and records its offset. The checksum of the block then fails, and the error names file
//! and offset. Faults at any other address are passed to the handler that was installed before.
//!
//! This is the only file of the store with `unsafe` code.
#![expect(
    unsafe_code,
    reason = "maps of files and the handler of their faults need the operating system's calls"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Once, OnceLock};

/// With a small readahead setting of the disk, the kernel loads at most this many bytes for one
/// request and drops the rest of a longer one.
const ASKED_BYTES: usize = 128 << 10;
/// Maximum number of maps of one process: half of what Linux allows (`vm.max_map_count`, 65,530),
/// so that other maps have room.
///
/// Segments stay open while they are listed, since a map costs little compared with its file: 24
/// bytes here, 200 in the kernel, and page tables for the pages that were read, which the kernel
/// reclaims with the pages. 2^15 files of 4 GiB, the largest, would fill the address space of 2^47
/// bytes; files of a day take a thousandth of that. 90 days of floats are about 120 files, so the
/// bound is enough for 270 such organisations.
const MAPS_MAX: usize = 1 << 15;
/// An entry of the table that the signal handler reads. The table is static and of fixed size,
/// since a handler may neither lock nor allocate.
struct MapSlot {
    /// Address of the map; 0: the slot is free, 1: the slot is reserved.
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// One more than the greatest offset of a page that could not be read; 0: there is none.
    failed: AtomicU64,
}

static SLOTS: [MapSlot; MAPS_MAX] =
    [const { MapSlot { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), failed: AtomicU64::new(0) } };
        MAPS_MAX];
/// Slot at which the next search for a free one begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4_096);
static INSTALLED: Once = Once::new();
/// The action for SIGBUS before the handler was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The order in which a map is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessPattern {
    /// Reads at random offsets.
    Normal,
    /// Reads from the start to the end.
    Sequential,
    /// No reads for now: the pages leave the memory of the process, and stay in the kernel's cache.
    NotNeeded,
}

/// Returns free memory of the allocator to the kernel, which takes some milliseconds. Call it after
/// much memory was freed that is not needed again soon. Small allocations lie between long-lived
/// ones, so the allocator would hardly return their pages by itself.
pub(in crate::tsdb) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and touches only free memory, under the allocator's own
    // locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the memory of the machine in bytes, if the system reports it.
pub(in crate::tsdb) fn machine_memory() -> Option<u64> {
    // SAFETY: both calls only return a number.
    let (pages, bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(bytes).ok()?)
}

/// A memory-mapped file.
#[derive(Debug)]
pub(in crate::tsdb) struct Map {
    start: NonNull<u8>,
    bytes: usize,
    slot: &'static MapSlot,
}

impl std::fmt::Debug for MapSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({:#x})", self.start.load(Ordering::Relaxed))
    }
}

// SAFETY: the map is read-only, nothing is tied to the thread that created it, and only `drop`
// unmaps it.
unsafe impl Send for Map {}
// SAFETY: as above; `&Map` gives out only shared slices.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` bytes of a file, at least one.
    ///
    /// The file must not be written to while the map lives. Segments fulfil this: they are written
    /// once, under another name, in a folder that this process has locked.
    pub(in crate::tsdb) fn new(file: &File, bytes: u64) -> io::Result<Map> {
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this length cannot be mapped"))?;
        install();
        let (before, from) = SLOTS.split_at(NEXT.fetch_add(1, Ordering::Relaxed) % MAPS_MAX);
        let is_free =
            |slot: &&MapSlot| slot.start.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let slot = from.iter().chain(before).find(is_free).ok_or_else(|| {
            io::Error::other(format!(
                "{MAPS_MAX} segment files are open, which is the limit: merge them (`promlet seal`) or shorten the retention"
            ))
        })?;
        // SAFETY: requests a new mapping at any address, with a length of at least one and an open
        // descriptor.
        let found = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let start = if found == libc::MAP_FAILED { None } else { NonNull::new(found.cast::<u8>()) };
        let Some(start) = start else {
            let error = io::Error::last_os_error();
            slot.start.store(0, Ordering::SeqCst);
            return Err(error);
        };
        slot.failed.store(0, Ordering::SeqCst);
        slot.bytes.store(bytes, Ordering::SeqCst);
        slot.start.store(start.as_ptr().addr(), Ordering::SeqCst);
        Ok(Map { start, bytes, slot })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` and `bytes` describe a mapping that lives until `drop`, which needs `&mut
        // self`. No process writes to the file (see `new`). If a page cannot be read, the handler
        // maps zeros and records the failure.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the offset in the file of the last page that could not be read and was replaced by
    /// zeros.
    pub(super) fn failed(&self) -> Option<u64> {
        // A thread that has read a byte of such a page sees the record: it is stored before the
        // zeros are mapped, and an acquire fence orders the reads before it with the load after it.
        // A full fence would also wait for the stores of this thread, so that each series would
        // wait for the previous one.
        fence(Ordering::Acquire);
        self.slot.failed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Tells the kernel how the map will be read. This is advice only, so errors are ignored.
    pub(super) fn advise(&self, advice: AccessPattern) {
        let advice = match advice {
            AccessPattern::Normal => libc::MADV_NORMAL,
            AccessPattern::Sequential => libc::MADV_SEQUENTIAL,
            AccessPattern::NotNeeded => libc::MADV_DONTNEED,
        };
        // SAFETY: the range is that of a live mapping of a file that is only read, and no kind of
        // advice changes its content.
        unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.bytes, advice);
        }
    }

    /// Asks the kernel to load bytes from the disk and does not wait for them. A later read then
    /// waits for these bytes only, and not for everything that the kernel would read around them.
    /// This is advice only, so errors are ignored.
    pub(in crate::tsdb) fn will_need(&self, range: Range<usize>) {
        let end = range.end.min(self.bytes);
        let mut from = range.start - range.start % PAGE_BYTES.load(Ordering::Relaxed);
        while from < end {
            let bytes = (end - from).min(ASKED_BYTES);
            // SAFETY: begins at a page of a live mapping and ends within it; this kind of advice
            // changes no content.
            unsafe {
                libc::madvise(self.start.as_ptr().add(from).cast(), bytes, libc::MADV_WILLNEED);
            }
            from += bytes;
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.slot.start.store(1, Ordering::SeqCst);
        // SAFETY: `new` made the mapping with this length, and no slice of it outlives `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
        self.slot.start.store(0, Ordering::SeqCst);
    }
}

/// Installs the handler, once per process. If the system refuses, faults end the process as before.
fn install() {
    INSTALLED.call_once(|| {
        // SAFETY: only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page) {
            PAGE_BYTES.store(page.max(1), Ordering::SeqCst);
        }
        let mut before = empty_action();
        // SAFETY: reads the current action into memory of the right type.
        let read = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) };
        // Stored before the handler can run for the first time. No other code sets it.
        if read != 0 || BEFORE.set(before).is_err() {
            return;
        }
        let mut action = empty_action();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO requires, and is async-signal-safe.
        unsafe {
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

fn empty_action() -> libc::sigaction {
    // SAFETY: the struct has integers, a bit set and an optional function, and zero is valid for
    // all of them.
    unsafe { std::mem::zeroed() }
}

/// Handles SIGBUS. Async-signal-safe: it uses loads, stores and one system call, and restores
/// `errno`.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: reads the `errno` of this thread, which the interrupted code must find unchanged.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a filled `siginfo_t`. The address is set if a fault was the cause
    // (code above 0).
    let (fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if !(fault && cover(address)) {
        hand_on(signal, info, context, fault);
    }
    // SAFETY: as above.
    unsafe {
        *libc::__errno_location() = errno;
    }
}

/// Maps a page of zeros at the address if it is in one of our maps. Returns whether the address was
/// in a map.
fn cover(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::SeqCst);
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::SeqCst);
        let end = start.saturating_add(slot.bytes.load(Ordering::SeqCst).next_multiple_of(page_bytes));
        // 0 and 1 are not addresses of maps.
        if start < 2 || address < start || address >= end {
            continue;
        }
        let page = address - address % page_bytes;
        slot.failed.fetch_max((page - start) as u64 + 1, Ordering::SeqCst);
        // SAFETY: replaces one page of a mapping of ours. The mapping is alive, since the thread
        // that reads it is in this handler.
        let done = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(page),
                page_bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        return done != libc::MAP_FAILED;
    }
    false
}

/// Passes the signal to the action that was installed before, or restores the default action.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, fault: bool) {
    let before = BEFORE.get();
    match before.map(|action| (action.sa_sigaction, action.sa_flags & libc::SA_SIGINFO != 0)) {
        Some((handler, true)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the system returned this address as that of a handler with three arguments.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(ptr::without_provenance::<()>(handler)) };
            handler(signal, info, context);
        }
        Some((handler, false)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the system returned this address as that of a handler with one argument.
            let handler: extern "C" fn(libc::c_int) =
                unsafe { std::mem::transmute(ptr::without_provenance::<()>(handler)) };
            handler(signal);
        }
        _ => {
            let action = empty_action();
            // SAFETY: sets the default action (all zero). After a fault, the failed read is
            // repeated and ends the process. A signal that was sent does not repeat itself, so it
            // is raised again.
            unsafe {
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; bytes]).expect("written");
        file
    }

    #[test]
    fn a_truncated_file_reads_as_zeros_and_reports_the_offset() {
        let file = file(5 * 4_096 + 100);
        let map = Map::new(&file, 5 * 4_096 + 100).expect("mapped");
        assert_eq!((map.bytes()[4_096 * 4], map.failed()), (7, None));
        file.set_len(4_096).expect("cut");
        assert_eq!((map.bytes()[4_095], map.failed()), (7, None));
        assert_eq!((map.bytes()[3 * 4_096 + 5], map.failed()), (0, Some(3 * 4_096)));
        assert_eq!(map.bytes()[5 * 4_096 + 99], 0);
        assert_eq!(map.failed(), Some(5 * 4_096));
        assert_eq!((map.bytes()[2 * 4_096], map.failed()), (0, Some(5 * 4_096)), "the last place is kept");
        drop(map);
        let again = Map::new(&file, 4_096).expect("mapped");
        assert_eq!((again.bytes()[0], again.failed()), (7, None));
    }

    #[test]
    fn requests_for_any_range_change_nothing() {
        let file = file(300_000);
        let map = Map::new(&file, 300_000).expect("mapped");
        for range in [0..1, 5_000..290_000, 299_999..300_000, 299_999..usize::MAX, 300_000..400_000, 7..7] {
            map.will_need(range);
        }
        file.set_len(4_096).expect("cut");
        map.will_need(0..300_000);
        assert!(map.failed().is_none(), "asking looks at nothing");
        assert_eq!((map.bytes()[4_095], map.bytes()[200_000]), (7, 0));
        assert_eq!(map.failed(), Some(200_000 - 200_000 % 4_096));
    }

    #[test]
    fn an_empty_file_cannot_be_mapped() {
        assert!(Map::new(&file(0), 0).is_err());
    }

    /// Runs `act` in a forked child, and returns whether SIGBUS ended it.
    fn dies_of(act: impl FnOnce()) -> bool {
        // SAFETY: the child calls `act`, which only uses existing memory and system calls, and
        // exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                act();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS
        }
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process() {
        let (ours, others) = (file(4_096), file(4_096));
        let map = Map::new(&ours, 4_096).expect("mapped");
        // SAFETY: maps an open file.
        let foreign = unsafe {
            libc::mmap(ptr::null_mut(), 4_096, libc::PROT_READ, libc::MAP_SHARED, others.as_raw_fd(), 0)
        };
        assert_ne!(foreign, libc::MAP_FAILED);
        others.set_len(0).expect("cut");
        // SAFETY: the read causes the fault under test.
        assert!(dies_of(|| unsafe {
            foreign.cast::<u8>().read_volatile();
        }));
        ours.set_len(0).expect("cut");
        // SAFETY: the address is inside the map.
        assert!(!dies_of(|| unsafe {
            map.bytes().as_ptr().read_volatile();
        }));
        // The handler before ours is the standard library's, which uninstalls itself at the first
        // signal.
        // SAFETY: sends a signal to the calling thread.
        assert!(dies_of(|| unsafe {
            libc::raise(libc::SIGBUS);
            libc::raise(libc::SIGBUS);
        }));
    }
}
