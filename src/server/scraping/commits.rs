//! Prepared batches of scrapes, which the log writes and syncs together.

use std::sync::{Arc, Mutex};

use crate::sync::IgnorePoison as _;
use crate::tsdb::{AppendError, Appended, Appending, Tsdb};

/// The number of samples that are not kept longer: about 4 MB in memory.
const SAMPLES_MAX: usize = 100_000;

/// Receives the result of a batch. It runs on the thread that writes the log, so it must be short.
type CommitDone = Box<dyn FnOnce(Result<Appended, AppendError>) + Send>;

#[derive(Default)]
struct WaitingCommits {
    batches: Vec<(Appending, CommitDone)>,
    samples: usize,
}

/// The batches that wait for [`ScrapeCommits::write`].
pub(super) struct ScrapeCommits {
    tsdb: Arc<Tsdb>,
    waiting: Mutex<WaitingCommits>,
}

impl ScrapeCommits {
    pub(super) fn new(tsdb: Arc<Tsdb>) -> ScrapeCommits {
        ScrapeCommits { tsdb, waiting: Mutex::default() }
    }

    /// Adds a batch with this many samples. Writes all batches if they have many samples.
    pub(super) fn add(
        &self,
        batch: Appending,
        samples: usize,
        done: impl FnOnce(Result<Appended, AppendError>) + Send + 'static,
    ) {
        let mut waiting = self.waiting.lock().ignore_poison();
        waiting.batches.push((batch, Box::new(done)));
        waiting.samples = waiting.samples.saturating_add(samples);
        let is_large = waiting.samples >= SAMPLES_MAX;
        drop(waiting);
        if is_large {
            self.write();
        }
    }

    /// Writes all batches.
    pub(super) fn write(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().ignore_poison());
        if !waiting.batches.is_empty() {
            self.tsdb.commit_all_then(waiting.batches);
        }
    }
}
