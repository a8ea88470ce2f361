//! Reads the program itself and the newest segments ahead, so that a start and the first queries
//! find them in memory and do not wait for the disk.
//!
//! Both are read into the page cache of the kernel, not into the process, and are evicted first
//! when memory is short. Other reads and writes wait for at most two steps, since the next step is
//! requested only after the last but one is complete.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::sync::IgnorePoison as _;
use crate::tsdb::segment::{Map, machine_memory};
use crate::tsdb::store::Stores;
use crate::tsdb::store::segments::IndexedSegment;

/// The bytes of one request. A slow disk takes 10 ms for it.
const STEP_BYTES: usize = 1 << 20;
/// The limit for the program. A release build has half of it.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// A background thread that reads ahead. It ends by itself, or when this is dropped.
#[derive(Debug, Default)]
pub struct Prefetch {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<PrefetchThread>>,
}

/// The thread while it is running.
#[derive(Debug)]
struct PrefetchThread {
    thread: JoinHandle<()>,
    /// A channel without messages. It is closed when the thread ends.
    ended: Receiver<Infallible>,
}

/// Starts to read the program's own file. A start touches its pages at random, and each would wait
/// for the disk. Together with a sequential read it takes less time.
pub fn prefetch_program() -> Prefetch {
    Prefetch::by("warm-program", |stop| {
        let Ok(file) = std::env::current_exe().and_then(File::open) else { return };
        let bytes = file.metadata().map_or(0, |found| found.len()).min(bytes_at_most(PROGRAM_BYTES_MAX));
        // A read error shows up again when the page is used.
        if let Ok(map) = Map::new(&file, bytes) {
            let request = |range| {
                map.will_need(range);
                true
            };
            drop(read_through(&file, bytes, stop, request));
        }
    })
}

impl Prefetch {
    /// Starts to read the newest segments of the stores, up to `bytes_max` bytes.
    pub(in crate::tsdb) fn start(stores: &Stores, bytes_max: u64) -> Prefetch {
        let all = stores.all();
        let sets: Vec<_> = all.iter().map(|store| store.segments()).collect();
        let of_set = |parts: &[Arc<IndexedSegment>]| {
            parts.iter().map(|part| (part.meta().max_ms, part.meta().file_bytes)).collect()
        };
        let sizes: Vec<_> = sets.iter().map(|set| of_set(&set.parts)).collect();
        let chosen = newest(&sizes, bytes_at_most(bytes_max)).into_iter();
        let wanted: Vec<(Weak<IndexedSegment>, u64)> = chosen
            .filter_map(|(set, part, bytes)| Some((Arc::downgrade(sets.get(set)?.parts.get(part)?), bytes)))
            .collect();
        if wanted.is_empty() {
            return Prefetch::default();
        }
        Prefetch::by("warm-segments", move |stop| {
            // A read error is reported to the query that reads the segment.
            wanted.iter().for_each(|(part, bytes)| drop(read_segment(part, *bytes, stop)));
        })
    }

    fn by(name: &str, read: impl FnOnce(&AtomicBool) + Send + 'static) -> Prefetch {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let (at_work, ended) = channel();
        let work = move || {
            let _at_work = at_work;
            read(&stopped);
        };
        // If no thread can be started, the first queries wait for the disk.
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).ok();
        Prefetch { stop, thread: Mutex::new(thread.map(|thread| PrefetchThread { thread, ended })) }
    }

    /// Waits until everything is read, or for `longest`.
    pub(in crate::tsdb) fn wait_for(&self, longest: Duration) {
        if let Some(reading) = &*self.lock() {
            // A closed channel and a timeout are treated alike.
            let _ = reading.ended.recv_timeout(longest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<PrefetchThread>> {
        // The value is consistent after every statement.
        self.thread.lock().ignore_poison()
    }

    /// Stops the thread after the current step.
    pub(in crate::tsdb) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wait();
    }

    /// Waits until the thread has ended.
    pub(in crate::tsdb) fn wait(&self) {
        let reading = self.lock().take();
        if let Some(PrefetchThread { thread, .. }) = reading {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Limits bytes to a sixteenth of the machine's memory.
fn bytes_at_most(bytes_max: u64) -> u64 {
    machine_memory().map_or(bytes_max, |memory| bytes_max.min(memory / 16))
}

/// Returns the segments to read, in that order: set, index in the set, bytes. A set holds the time
/// of the newest sample and the size of each segment of an organisation. The newest segment of
/// every organisation comes before the second of any. Among those, small ones come first, so that
/// as many organisations as possible are served.
fn newest(sets: &[Vec<(i64, u64)>], bytes_max: u64) -> Vec<(usize, usize, u64)> {
    let mut all = Vec::new();
    for (set, parts) in sets.iter().enumerate() {
        let mut indices: Vec<usize> = (0..parts.len()).collect();
        let of = |index: &usize| parts.get(*index).copied().unwrap_or_default();
        indices.sort_by_key(|index| std::cmp::Reverse(of(index)));
        all.extend(indices.iter().enumerate().map(|(age, index)| (age, of(index).1, set, *index)));
    }
    all.sort_unstable();
    let mut left = bytes_max;
    let mut chosen = Vec::new();
    for (_, bytes, set, index) in all {
        let bytes = bytes.min(left);
        if bytes == 0 {
            break;
        }
        left -= bytes;
        chosen.push((set, index, bytes));
    }
    chosen
}

/// Reads the first `bytes` of a segment, unless the segment is dropped or `stop` is set.
fn read_segment(part: &Weak<IndexedSegment>, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let path = part.upgrade().map(|part| part.segment.path().to_owned());
    let Some(file) = path.map(File::open).transpose()? else { return Ok(()) };
    // The segment is not kept alive during a read, because a file with a live segment cannot be
    // removed.
    let request = |range| {
        part.upgrade().is_some_and(|part| {
            part.segment.prefetch(range);
            true
        })
    };
    read_through(&file, bytes, stop, request)
}

/// Reads the beginning of a file step by step. Calls `request` for each step, and stops when it
/// returns false.
fn read_through(
    file: &File,
    bytes: u64,
    stop: &AtomicBool,
    request: impl Fn(Range<usize>) -> bool,
) -> io::Result<()> {
    let wait_for = |end: usize| file.read_at(&mut [0], end.saturating_sub(1) as u64);
    let (mut before, end) = (0, usize::try_from(bytes).unwrap_or(usize::MAX));
    for from in (0..end).step_by(STEP_BYTES) {
        let to = end.min(from + STEP_BYTES);
        if stop.load(Ordering::Relaxed) || !request(from..to) {
            return Ok(());
        }
        wait_for(before)?;
        before = to;
    }
    wait_for(before).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_segment_of_each_organisation_is_read_first_and_never_more_than_allowed() {
        let sets = [vec![(10, 500), (30, 900), (20, 100)], vec![], vec![(5, 300), (1, 50)]];
        let all = [(2, 0, 300), (0, 1, 900), (2, 1, 50), (0, 2, 100), (0, 0, 500)];
        assert_eq!(newest(&sets, u64::MAX), all);
        assert_eq!(newest(&sets, 1_850), all);
        assert_eq!(newest(&sets, 1_849), [&all[..4], &[(0, 0, 499)]].concat());
        assert_eq!(newest(&sets, 1_250), all[..3]);
        assert_eq!(newest(&sets, 1_000), [(2, 0, 300), (0, 1, 700)]);
        assert_eq!(newest(&sets, 0), []);
        assert_eq!(newest(&[], u64::MAX), []);
    }
}
