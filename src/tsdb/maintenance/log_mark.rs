//! The high-water mark of the log: the number of the last durable record, stored in control,
//! outside of the log files.
//!
//! A log file that was replaced by an older copy of itself, or that reads as zeros from a record
//! boundary, is valid by itself. The mark shows that it once held more records. Such a log is
//! damaged, and the store opens read-only. The mark is written with each checkpoint, after each new
//! log file, every few seconds while records arrive, and at a clean stop. It is one small change of
//! control with its sync, and no sync in the path of a write. It does not detect the loss of
//! records after the newest mark. If the log ends with an incomplete record, start and check report
//! the last record that was certainly durable.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::wal::sink::Sink;

/// The least time between two marks while records arrive.
const EVERY: Duration = Duration::from_secs(4);

/// The condition for writing the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum MarkWrite {
    /// Stores the mark at once, if the log has grown.
    Now,
    /// Stores the mark if the newest one is old enough, or the log has a new file.
    IfDue,
}

/// The mark that this process wrote last.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct LogMark {
    last: Mutex<Option<WrittenMark>>,
}

#[derive(Debug)]
struct WrittenMark {
    seq: u64,
    /// The number of the first record of the log file at that time.
    file_first_seq: u64,
    since: Stopwatch,
}

impl Tsdb {
    /// Records the end of the durable log in control, if it has advanced. `tasks` calls it every
    /// few seconds.
    pub fn note_log_mark(&self) {
        self.record_log_end(MarkWrite::IfDue);
    }

    /// Records the end of the durable log in control. A failure is logged, and the next mark makes
    /// up for it.
    pub(in crate::tsdb) fn record_log_end(&self, write: MarkWrite) {
        let (Sink::Log(log), Some(manifest)) = (&self.log, &self.manifest) else { return };
        let counters = log.counters();
        let seq = counters.durable_seq.load(Ordering::Acquire);
        let file_first_seq = counters.file_first_seq.load(Ordering::Acquire);
        let mut last = self.log_mark.last.lock().ignore_poison();
        let due = last.as_ref().is_none_or(|last| {
            let new_file = last.file_first_seq != file_first_seq;
            seq > last.seq && (write == MarkWrite::Now || new_file || last.since.elapsed() >= EVERY)
        });
        if seq == 0 || !due {
            return;
        }
        // At the first call of a process the mark may already be stored.
        let is_written = last.is_none() && manifest.log_mark().is_ok_and(|stored| stored >= seq);
        match if is_written { Ok(()) } else { manifest.set_log_mark(seq) } {
            Ok(()) => *last = Some(WrittenMark { seq, file_first_seq, since: Stopwatch::start() }),
            // The store was closed in the meantime.
            Err(crate::tsdb::error::ManifestError::Closed) => {}
            Err(e) => tracing::warn!("cannot store the end of the log in control: {}", with_sources(&e)),
        }
    }
}
