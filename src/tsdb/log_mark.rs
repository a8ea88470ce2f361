//! The high-water mark of the log: the last record known to be durable, noted in control, outside of the log files.
//!
//! A log file that was replaced by an older copy of itself, or that reads as zeros from a record boundary, is whole in
//! itself. The mark shows that it once held more: such a log is damaged, and the store opens read-only. The mark is
//! noted with each checkpoint, after each new log file, every few seconds while records come, and at a clean stop. It is
//! one small change of control with its sync, and no sync on the path of a write. A loss of records after the newest mark
//! is not detected by it; of an incomplete record behind the last one it tells what is certain.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Sink, Tsdb};
use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::sync::IgnorePoison as _;

/// The least time between marks while records come.
const EVERY: Duration = Duration::from_secs(4);

/// When to note the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noting {
    /// At once, if the log has grown.
    Now,
    /// If the newest mark is old enough, or the log has a new file.
    IfDue,
}

/// The mark that was noted last by this process.
#[derive(Debug, Default)]
pub(super) struct LogMark {
    last: Mutex<Option<Noted>>,
}

#[derive(Debug)]
struct Noted {
    seq: u64,
    /// The first record of the log file at that time.
    file_first_seq: u64,
    since: Stopwatch,
}

impl Tsdb {
    /// Notes durably and outside of the log how far it is durable, if it has grown; to be called every few seconds.
    pub fn note_log_mark(&self) {
        self.note_log_end(Noting::IfDue);
    }

    /// Notes in control how far the log is durable. A failure is logged: the next mark makes up for it.
    pub(super) fn note_log_end(&self, noting: Noting) {
        let (Sink::Log(log), Some(manifest)) = (&self.log, &self.manifest) else { return };
        let counters = log.counters();
        let seq = counters.durable_seq.load(Ordering::Acquire);
        let file_first_seq = counters.file_first_seq.load(Ordering::Acquire);
        let mut last = self.log_mark.last.lock().ignore_poison();
        let due = last.as_ref().is_none_or(|last| {
            let new_file = last.file_first_seq != file_first_seq;
            seq > last.seq && (noting == Noting::Now || new_file || last.since.elapsed() >= EVERY)
        });
        if seq == 0 || !due {
            return;
        }
        // At the first call of a process the mark may be there already.
        let is_noted = last.is_none() && manifest.log_mark().is_ok_and(|noted| noted >= seq);
        match if is_noted { Ok(()) } else { manifest.set_log_mark(seq) } {
            Ok(()) => *last = Some(Noted { seq, file_first_seq, since: Stopwatch::start() }),
            // The store was closed before.
            Err(super::ManifestError::Closed) => {}
            Err(e) => tracing::warn!("the end of the log was not noted in control: {}", with_sources(&e)),
        }
    }
}
