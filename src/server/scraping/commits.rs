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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::model::{BatchBuilder, Labels, OrgId, Sample, Timestamp};

    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

    #[test]
    fn batches_wait_to_be_written_until_they_have_many_samples() {
        let tsdb = Arc::new(Tsdb::scaffold());
        let commits = ScrapeCommits::new(Arc::clone(&tsdb));
        let (sender, received) = mpsc::channel();
        let add = |number: u64, samples| {
            let mut batch = BatchBuilder::default();
            let labels = Labels::from_pairs([("__name__", format!("m{number}"))]);
            batch.series(&labels, [Sample { at: NOW, value: 1.0 }]);
            let prepared = tsdb.prepare(OrgId(1), &batch.batch(), NOW).expect("admitted");
            let sender = sender.clone();
            commits.add(prepared, samples, move |result| {
                assert!(!result.expect("stored").has_refusals());
                sender.send(number).expect("received");
            });
        };
        add(1, 1);
        add(2, SAMPLES_MAX - 2);
        assert!(received.try_recv().is_err());
        commits.write();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2]);
        add(3, SAMPLES_MAX - 1);
        add(4, 1);
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [3, 4]);
        commits.write();
        assert!(received.try_recv().is_err());
    }
}
