//! Reads what a start and the first questions are going to look at, so that they find it in memory and do not wait for the disk:
//! the program itself, and the newest segments.
//!
//! Both come into the kernel's cache and not into the process, and go first where memory is short. What others read and write
//! meanwhile waits for two steps at most, since the next one is asked for only when the one before the last is there.

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

use super::segment::{Map, machine_memory};
use super::segments::Part;
use super::store::Stores;
use crate::sync::IgnorePoison as _;

/// How much is asked for at once: a slow disk takes 10 ms for it.
const STEP_BYTES: usize = 1 << 20;
/// Of the program; a release build has half of it.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// A thread that reads; it ends by itself, or with this.
#[derive(Debug, Default)]
pub struct Warming {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<Reading>>,
}

/// The thread while it is not waited for.
#[derive(Debug)]
struct Reading {
    thread: JoinHandle<()>,
    /// Nothing comes from here; it is closed when the thread is done.
    ended: Receiver<Infallible>,
}

/// Begins to read the program's own file. A start looks at its pages here and there, and each look would wait for the disk: it
/// takes less time beside one that reads it through.
pub fn warm_program() -> Warming {
    Warming::by("warm-program", |stop| {
        let Ok(file) = std::env::current_exe().and_then(File::open) else { return };
        let bytes = file.metadata().map_or(0, |found| found.len()).min(bytes_at_most(PROGRAM_BYTES_MAX));
        // What cannot be read is the kernel's to tell.
        if let Ok(map) = Map::new(&file, bytes) {
            let ask = |range| {
                map.ask(range);
                true
            };
            drop(read_through(&file, bytes, stop, ask));
        }
    })
}

impl Warming {
    /// Begins to read what the stores have now, up to so many bytes.
    pub(super) fn start(stores: &Stores, bytes_max: u64) -> Warming {
        let all = stores.all();
        let sets: Vec<_> = all.iter().map(|store| store.segments()).collect();
        let of_set = |parts: &[Arc<Part>]| {
            parts.iter().map(|part| (part.meta().max_ms, part.meta().file_bytes)).collect()
        };
        let sizes: Vec<_> = sets.iter().map(|set| of_set(&set.parts)).collect();
        let chosen = newest(&sizes, bytes_at_most(bytes_max)).into_iter();
        let wanted: Vec<(Weak<Part>, u64)> = chosen
            .filter_map(|(set, part, bytes)| Some((Arc::downgrade(sets.get(set)?.parts.get(part)?), bytes)))
            .collect();
        if wanted.is_empty() {
            return Warming::default();
        }
        Warming::by("warm-segments", move |stop| {
            // What cannot be read is told to whoever asks for it.
            wanted.iter().for_each(|(part, bytes)| drop(warm(part, *bytes, stop)));
        })
    }

    fn by(name: &str, read: impl FnOnce(&AtomicBool) + Send + 'static) -> Warming {
        let stop = Arc::<AtomicBool>::default();
        let told = Arc::clone(&stop);
        let (at_work, ended) = channel();
        let work = move || {
            let _at_work = at_work;
            read(&told);
        };
        // Without a thread to spare first questions wait for the disk, and that is all.
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).ok();
        Warming { stop, thread: Mutex::new(thread.map(|thread| Reading { thread, ended })) }
    }

    /// Waits until all is read, but no longer than this.
    pub(super) fn wait_for(&self, longest: Duration) {
        if let Some(reading) = &*self.lock() {
            // That it is closed and that it takes longer is the same here.
            let _ = reading.ended.recv_timeout(longest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        // Whole after every statement.
        self.thread.lock().ignore_poison()
    }

    /// Ends it, after the step under way.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wait();
    }

    pub(super) fn wait(&self) {
        let reading = self.lock().take();
        if let Some(Reading { thread, .. }) = reading {
            // A panic of the thread was told when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.end();
    }
}

/// No more than a sixteenth of the machine's memory.
fn bytes_at_most(bytes_max: u64) -> u64 {
    machine_memory().map_or(bytes_max, |memory| bytes_max.min(memory / 16))
}

/// What to read of which segments, in that order: set, place in it, bytes. A set is an organisation's segments with the time
/// of the newest sample and the size of each. The newest segment of every organisation comes before the second of any, and the
/// small ones first, so that they are those of as many as possible.
fn newest(sets: &[Vec<(i64, u64)>], bytes_max: u64) -> Vec<(usize, usize, u64)> {
    let mut all = Vec::new();
    for (set, parts) in sets.iter().enumerate() {
        let mut places: Vec<usize> = (0..parts.len()).collect();
        let of = |place: &usize| parts.get(*place).copied().unwrap_or_default();
        places.sort_by_key(|place| std::cmp::Reverse(of(place)));
        all.extend(places.iter().enumerate().map(|(age, place)| (age, of(place).1, set, *place)));
    }
    all.sort_unstable();
    let mut left = bytes_max;
    let mut chosen = Vec::new();
    for (_, bytes, set, place) in all {
        let bytes = bytes.min(left);
        if bytes == 0 {
            break;
        }
        left -= bytes;
        chosen.push((set, place, bytes));
    }
    chosen
}

/// Reads so much of a segment, unless it goes or `stop` is said.
fn warm(part: &Weak<Part>, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let path = part.upgrade().map(|part| part.segment.path().to_owned());
    let Some(file) = path.map(File::open).transpose()? else { return Ok(()) };
    // Not held while the disk reads: a file whose segment somebody holds cannot go.
    let ask = |range| {
        part.upgrade().is_some_and(|part| {
            part.segment.ask_for(range);
            true
        })
    };
    read_through(&file, bytes, stop, ask)
}

/// Has the beginning of a file read step by step, until `ask`, which is called for each of them, says that it is enough.
fn read_through(
    file: &File,
    bytes: u64,
    stop: &AtomicBool,
    ask: impl Fn(Range<usize>) -> bool,
) -> io::Result<()> {
    let wait_for = |end: usize| file.read_at(&mut [0], end.saturating_sub(1) as u64);
    let (mut before, end) = (0, usize::try_from(bytes).unwrap_or(usize::MAX));
    for from in (0..end).step_by(STEP_BYTES) {
        let to = end.min(from + STEP_BYTES);
        if stop.load(Ordering::Relaxed) || !ask(from..to) {
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
