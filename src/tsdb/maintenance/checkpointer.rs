//! The only writer of checkpoints. It decides when one is due, and counts them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::checkpoint::{self, CheckpointStart};
use super::log_mark::MarkWrite;
use crate::clock::Stopwatch;
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::error::CheckpointError;
use crate::tsdb::report::{CheckpointReport, Writes};
use crate::tsdb::wal::log::Log;
use crate::tsdb::wal::sink::Sink;

/// The time after a seal in which a checkpoint would contain little.
const RECENT_SEAL: Duration = Duration::from_secs(180);

/// Locked by the only writer of checkpoints.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Checkpoints;

/// Counts of checkpoints. It is locked for a few instructions at a time, never while one is
/// written.
#[derive(Debug)]
pub(in crate::tsdb) struct CheckpointCounts {
    pub(in crate::tsdb) made: AtomicU64,
    pub(in crate::tsdb) failed: AtomicU64,
    since: Mutex<Stopwatch>,
}

impl Default for CheckpointCounts {
    fn default() -> CheckpointCounts {
        let (made, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        CheckpointCounts { made, failed, since: Mutex::new(Stopwatch::start()) }
    }
}

impl CheckpointCounts {
    /// Returns the time since the last checkpoint, or since the store was opened.
    pub(in crate::tsdb) fn age(&self) -> Duration {
        self.since.lock().ignore_poison().elapsed()
    }
}

impl Tsdb {
    /// Writes a checkpoint, so that the next start replays only the log after it. Only one is
    /// written at a time; appends continue.
    ///
    /// # Errors
    /// [`CheckpointError`]: the previous checkpoint is still valid. The caller retries later with a
    /// new checkpoint.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointError> {
        let (Some(folder), Sink::Log(log)) = (&self.folder, &self.log) else {
            return Err(CheckpointError::Closed("the store has no writable log".to_owned()));
        };
        let _alone = self.checkpoints.lock().ignore_poison();
        let covered = self.stores.uncovered.load(Ordering::Relaxed);
        let space = self.options.disk.space(&folder.head)?;
        let held =
            [&*self.stores.head_bytes, &self.stores.name_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        let needed = space.growth_needs(held.iter().sum());
        let result = if space.free < needed {
            Err(CheckpointError::DiskFull { free: space.free, needed })
        } else {
            let flush = || log.flush().map_err(|e| CheckpointError::Closed(e.to_string()));
            self.covered(flush)
                .and_then(|covered| checkpoint::write(folder, &self.stores, covered, || flush().map(drop)))
        };
        self.record_log_end(MarkWrite::Now);
        if result.is_ok() {
            self.stores.uncovered.fetch_sub(covered, Ordering::Relaxed);
            self.checkpoint_counts.made.fetch_add(1, Ordering::Relaxed);
            *self.checkpoint_counts.since.lock().ignore_poison() = Stopwatch::start();
        } else {
            self.checkpoint_counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns a record up to which all records are applied, and the barriers after that record.
    fn covered(
        &self,
        flush: impl Fn() -> Result<u64, CheckpointError>,
    ) -> Result<CheckpointStart, CheckpointError> {
        loop {
            let barriers = checkpoint::barriers(&self.stores);
            let replay_seq = flush()?;
            // If no seal record came in between, none is missed or counted twice. Seals are minutes
            // apart.
            if checkpoint::barriers(&self.stores) == barriers {
                return Ok(CheckpointStart { replay_seq, barriers });
            }
        }
    }

    /// Returns whether a checkpoint is due: the last one is old and samples came since, or many
    /// samples came.
    pub fn checkpoint_due(&self) -> bool {
        let uncovered = self.stores.uncovered.load(Ordering::Relaxed);
        let age = self.checkpoint_counts.age();
        // A seal makes most of a checkpoint needless, and has just kept the disk busy.
        let rest = RECENT_SEAL.min(self.options.checkpoint_every);
        let sealed_lately = self.sealer.try_lock().is_ok_and(|sealer| sealer.made_within(rest));
        matches!(self.log, Sink::Log(_))
            && uncovered > 0
            && !sealed_lately
            && (age >= self.options.checkpoint_every || uncovered >= self.options.checkpoint_samples)
    }

    /// Writes a marker if the log was closed in order and a checkpoint has all of it. Later damage
    /// of such a log loses nothing.
    pub(in crate::tsdb) fn note_end(&self, log: &Log) {
        let Some(folder) = self.folder.as_ref().filter(|_| matches!(log.writes(), Writes::Closed)) else {
            return;
        };
        let last_seq = log.counters().last_seq.load(Ordering::Relaxed);
        if checkpoint::newest_replay_seq(&folder.head, folder.store) == last_seq
            && let Err(e) = (checkpoint::ClosedMarker { last_seq }).write(folder)
        {
            tracing::warn!("cannot record that the log was closed: {}", e.line());
        }
    }
}
