//! Read-only maps of files that never change, and what happens when a page of one cannot be read.
//!
//! The kernel answers a read of a page that is not there any more (the file was truncated, the disk fails) with SIGBUS,
//! which ends a process. Here a handler puts a page of zeros over the hole and notes where it was: the checksum of the
//! block then fails, which is an error that names file and offset (docs/storage.md section 18, finding 7). A fault anywhere else is
//! handed on to the handler that was there before.
//!
//! The only file of the store with `unsafe` in it.
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

/// The kernel takes no more at once where a disk is said to read ahead little; the rest of a longer wish is forgotten.
const ASKED_BYTES: usize = 128 << 10;
/// Maps of one process at most: half of what Linux allows (`vm.max_map_count`, 65,530), so that other maps have room.
///
/// Open segments are not closed while they are not asked, since a map costs next to nothing beside its file: 24 bytes here,
/// 200 in the kernel, and page tables for what was touched, which the kernel takes back under pressure with the pages; of
/// 2^47 bytes of address space 2^15 files of 4 GiB, the largest, take all, and files of a day the thousandth part. 90 days
/// of floats are some 120 files, so this is room for 270 organisations that keep so much.
const MAPS_MAX: usize = 1 << 15;
/// A place in the table that the handler reads. It is static and fixed, since a handler may neither lock nor allocate.
struct Slot {
    /// Where the map begins; 0: the place is free, 1: it is being taken.
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// One more than the greatest offset of a page that failed; 0: none did.
    failed: AtomicU64,
}

static SLOTS: [Slot; MAPS_MAX] =
    [const { Slot { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), failed: AtomicU64::new(0) } };
        MAPS_MAX];
/// Where the next free place is looked for first.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4_096);
static INSTALLED: Once = Once::new();
/// What handled SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// How a map is going to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Here and there.
    Normal,
    /// From the start to the end.
    Sequential,
}

/// Gives back to the kernel what the allocator holds and nobody uses. Takes some milliseconds: for when much was freed, and
/// is not needed again soon. What is small lies between what stays, so that pages would hardly go by themselves.
pub(in crate::tsdb) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and touches free memory alone, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How much memory the machine has, if it says so.
pub(in crate::tsdb) fn machine_memory() -> Option<u64> {
    // SAFETY: both ask for a number.
    let (pages, bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(bytes).ok()?)
}

/// A mapped file.
#[derive(Debug)]
pub(in crate::tsdb) struct Map {
    start: NonNull<u8>,
    bytes: usize,
    slot: &'static Slot,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({:#x})", self.start.load(Ordering::Relaxed))
    }
}

// SAFETY: the map is read-only, nothing is tied to the thread that made it, and it is taken away only by `drop`.
unsafe impl Send for Map {}
// SAFETY: as above; `&Map` gives out shared slices only.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` bytes of a file, at least one.
    ///
    /// The file must not be written to as long as the map lives: segments are written once, under another name, in a
    /// folder that this process has locked.
    pub(in crate::tsdb) fn new(file: &File, bytes: u64) -> io::Result<Map> {
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a length that cannot be mapped"))?;
        install();
        let (before, from) = SLOTS.split_at(NEXT.fetch_add(1, Ordering::Relaxed) % MAPS_MAX);
        let is_free =
            |slot: &&Slot| slot.start.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let slot = from.iter().chain(before).find(is_free).ok_or_else(|| {
            io::Error::other(format!(
                "{MAPS_MAX} segment files are open, which is as many as may be: merge them (`promlet seal`) or keep less"
            ))
        })?;
        // SAFETY: asks for a new mapping anywhere; a length of at least one and a descriptor that is open.
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
        // SAFETY: `start` and `bytes` are of a mapping that lives until `drop`, which needs `&mut self`. Nobody writes to
        // the file (see `new`); where a page cannot be read, the handler puts zeros there and notes it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Where a page could not be read and zeros were taken, the last such place in the file.
    pub(super) fn failed(&self) -> Option<u64> {
        // Whoever saw a byte of such a page before this call sees the note as well: it is made first, and what was read
        // before an acquiring fence stays before what is read behind it. One that also waited for what this thread wrote
        // would have each series wait for the one before.
        fence(Ordering::Acquire);
        self.slot.failed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Tells the kernel how the map will be read. Advice only: a refusal changes nothing.
    pub(super) fn advise(&self, advice: Advice) {
        let advice = match advice {
            Advice::Normal => libc::MADV_NORMAL,
            Advice::Sequential => libc::MADV_SEQUENTIAL,
        };
        // SAFETY: the range is that of a live mapping, and these two kinds of advice never change its content.
        unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.bytes, advice);
        }
    }

    /// Asks the kernel to read bytes from the disk that are going to be looked at, and does not wait for them. Whoever
    /// looks at one of them later waits for what was asked for and not for all that the kernel would read around it.
    /// Advice only, as above.
    pub(in crate::tsdb) fn ask(&self, range: Range<usize>) {
        let end = range.end.min(self.bytes);
        let mut from = range.start - range.start % PAGE_BYTES.load(Ordering::Relaxed);
        while from < end {
            let bytes = (end - from).min(ASKED_BYTES);
            // SAFETY: begins at a page of a live mapping and ends within it; this kind of advice changes no content.
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
        // SAFETY: the mapping was made by `new` with this length, and no slice of it outlives `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
        self.slot.start.store(0, Ordering::SeqCst);
    }
}

/// Puts the handler in place, once in the life of the process. If the system refuses, faults end the process as ever.
fn install() {
    INSTALLED.call_once(|| {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page) {
            PAGE_BYTES.store(page.max(1), Ordering::SeqCst);
        }
        let mut before = empty_action();
        // SAFETY: reads the present action into memory of the right type.
        let read = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) };
        // Noted before the handler can run for the first time; this is the only place that sets it.
        if read != 0 || BEFORE.set(before).is_err() {
            return;
        }
        let mut action = empty_action();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and does only what a handler may do.
        unsafe {
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

fn empty_action() -> libc::sigaction {
    // SAFETY: a struct of integers, a set of bits and an optional function, for all of which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Async-signal-safe: loads, stores, one system call, `errno` as it was.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the thread's own `errno`; the code interrupted must find it unchanged.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a filled `siginfo_t`; the address is there where a fault was the cause (code above 0).
    let (fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if !(fault && cover(address)) {
        hand_on(signal, info, context, fault);
    }
    // SAFETY: as above.
    unsafe {
        *libc::__errno_location() = errno;
    }
}

/// Puts zeros over the page, if it is of one of our maps.
fn cover(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::SeqCst);
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::SeqCst);
        let end = start.saturating_add(slot.bytes.load(Ordering::SeqCst).next_multiple_of(page_bytes));
        // 0 and 1 are no starts.
        if start < 2 || address < start || address >= end {
            continue;
        }
        let page = address - address % page_bytes;
        slot.failed.fetch_max((page - start) as u64 + 1, Ordering::SeqCst);
        // SAFETY: replaces one page inside a mapping of ours, which is alive, since a reader of it is in this handler.
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

/// Does what would have been done without us.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, fault: bool) {
    let before = BEFORE.get();
    match before.map(|action| (action.sa_sigaction, action.sa_flags & libc::SA_SIGINFO != 0)) {
        Some((handler, true)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the system gave this address as a handler with three arguments.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(ptr::without_provenance::<()>(handler)) };
            handler(signal, info, context);
        }
        Some((handler, false)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the system gave this address as a handler with one argument.
            let handler: extern "C" fn(libc::c_int) =
                unsafe { std::mem::transmute(ptr::without_provenance::<()>(handler)) };
            handler(signal);
        }
        _ => {
            let action = empty_action();
            // SAFETY: the default action (all zero); the read that failed is tried again and ends the process. A signal
            // that somebody sent does not come again by itself, so it is sent again.
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
    fn a_file_cut_under_its_map_reads_as_zeros_and_says_where() {
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
    fn what_is_asked_for_may_lie_anywhere_and_changes_nothing() {
        let file = file(300_000);
        let map = Map::new(&file, 300_000).expect("mapped");
        for range in [0..1, 5_000..290_000, 299_999..300_000, 299_999..usize::MAX, 300_000..400_000, 7..7] {
            map.ask(range);
        }
        file.set_len(4_096).expect("cut");
        map.ask(0..300_000);
        assert!(map.failed().is_none(), "asking looks at nothing");
        assert_eq!((map.bytes()[4_095], map.bytes()[200_000]), (7, 0));
        assert_eq!(map.failed(), Some(200_000 - 200_000 % 4_096));
    }

    #[test]
    fn nothing_cannot_be_mapped() {
        assert!(Map::new(&file(0), 0).is_err());
    }

    /// What a child does that nobody may outlive: it must not be ended by us but by the fault.
    fn dies_of(act: impl FnOnce()) -> bool {
        // SAFETY: the child calls `act`, which only uses memory made before and system calls, and ends.
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
    fn a_fault_elsewhere_ends_the_process_as_ever() {
        let (ours, others) = (file(4_096), file(4_096));
        let map = Map::new(&ours, 4_096).expect("mapped");
        // SAFETY: a mapping of a file that is open.
        let foreign = unsafe {
            libc::mmap(ptr::null_mut(), 4_096, libc::PROT_READ, libc::MAP_SHARED, others.as_raw_fd(), 0)
        };
        assert_ne!(foreign, libc::MAP_FAILED);
        others.set_len(0).expect("cut");
        // SAFETY: the read is the fault that is tried.
        assert!(dies_of(|| unsafe {
            foreign.cast::<u8>().read_volatile();
        }));
        ours.set_len(0).expect("cut");
        // SAFETY: inside the map.
        assert!(!dies_of(|| unsafe {
            map.bytes().as_ptr().read_volatile();
        }));
        // The handler before ours is the standard library's: it takes itself away at the first signal.
        // SAFETY: sends a signal to the calling thread.
        assert!(dies_of(|| unsafe {
            libc::raise(libc::SIGBUS);
            libc::raise(libc::SIGBUS);
        }));
    }
}
