//! Applies the samples of the log to the heads at a start, on several threads.
//!
//! ```text
//! the reading thread: records, checksums, names, all other kinds of records
//!     +--> worker 0: stripes 0, n, 2n, ..
//!     +--> worker 1: stripes 1, n+1, ..
//! ```
//! The effect of a sample depends on the earlier samples of its stripe and on the barrier. Each
//! stripe has one worker, which gets the records in order. Records that change whole heads (seals,
//! deletions, drops) wait until all workers are done, and the reading thread applies them. So the
//! heads are, bit for bit, those of a replay by one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use crate::tsdb::error::{Damage, OpenError};
use crate::tsdb::store::{OrgStore, Record, RowSeqs, Stores, skipped};
use crate::tsdb::wal::record::RecordKind;
use crate::tsdb::wal::samples::{self, LogSample};

/// The limit of batches that wait for a worker.
const QUEUE_MAX: usize = 16;
/// The samples of a batch, 0.4 MB, so that waiting batches have at most 6 MB. A record of this
/// version fits into one.
const BATCH_SAMPLES: usize = 16_384;

/// Samples of one record.
struct SampleBatch {
    store: Arc<OrgStore>,
    seq: u64,
    samples: Vec<LogSample>,
}

/// A task of a worker.
enum WorkerTask {
    Apply(Arc<SampleBatch>),
    /// Report when all earlier work is done.
    Barrier(Sender<()>),
}

/// The replay workers, and the thread that hands out records.
pub(in crate::tsdb) struct ReplayWorkers<'scope> {
    stores: &'scope Stores,
    rows: &'scope RowSeqs,
    queues: Vec<SyncSender<WorkerTask>>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    stored: Arc<AtomicU64>,
    orphans: u64,
    /// Whether the queues may hold work.
    is_behind: bool,
    scratch: Vec<LogSample>,
}

impl<'scope> ReplayWorkers<'scope> {
    /// Starts `threads` workers. Without workers, the calling thread applies all records.
    pub(in crate::tsdb) fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        stores: &'scope Stores,
        rows: &'scope RowSeqs,
    ) -> Result<ReplayWorkers<'scope>, OpenError> {
        let stored = Arc::new(AtomicU64::new(0));
        let mut workers = ReplayWorkers {
            stores,
            rows,
            queues: Vec::with_capacity(threads),
            threads: Vec::with_capacity(threads),
            stored: Arc::clone(&stored),
            orphans: 0,
            is_behind: false,
            scratch: Vec::new(),
        };
        let all = u32::try_from(threads).unwrap_or(u32::MAX);
        for number in 0..all {
            let (queue, work) = sync_channel(QUEUE_MAX);
            let stored = Arc::clone(&stored);
            let run = move || apply(stores, rows, &stored, &work, |stripe| stripe % all == number);
            let thread = std::thread::Builder::new().name(format!("replay-{number}"));
            workers.threads.push(thread.spawn_scoped(scope, run).map_err(OpenError::Thread)?);
            workers.queues.push(queue);
        }
        Ok(workers)
    }

    /// Applies a record, or hands it to the workers.
    ///
    /// # Errors
    /// [`OpenError::Thread`] if a worker has ended. The inner error means that the record cannot be
    /// read.
    pub(in crate::tsdb) fn take(&mut self, record: Record<'_>) -> Result<Result<(), Damage>, OpenError> {
        if record.kind.is_samples() && !self.queues.is_empty() {
            return self.hand_out(record);
        }
        if concerns_heads(record.kind) {
            self.wait_for_workers()?;
        }
        Ok(self.stores.apply(record, &mut self.scratch, Some(self.rows)).map(|outcome| {
            self.stored.fetch_add(outcome.stored, Ordering::Relaxed);
            self.orphans += outcome.orphans;
        }))
    }

    /// Hands samples to the workers. Like [`Stores::apply`], except for the head.
    fn hand_out(&mut self, record: Record<'_>) -> Result<Result<(), Damage>, OpenError> {
        let Record { seq, org, kind, body, .. } = record;
        if self.stores.is_dropped(org) {
            return Ok(Ok(()));
        }
        let store = self.stores.org_or_new(org);
        store.count_record(body);
        let mut samples = std::mem::take(&mut self.scratch);
        if let Err(damage) = samples::decode(kind, body, &mut samples) {
            return Ok(Err(damage));
        }
        self.orphans += store.retain_replayed(seq, &mut samples);
        store.record_samples(seq, &samples);
        self.is_behind = true;
        while samples.len() > BATCH_SAMPLES {
            let rest = samples.split_off(BATCH_SAMPLES);
            self.queue(SampleBatch { store: Arc::clone(&store), seq, samples })?;
            samples = rest;
        }
        self.queue(SampleBatch { store, seq, samples })?;
        Ok(Ok(()))
    }

    fn queue(&self, batch: SampleBatch) -> Result<(), OpenError> {
        let batch = Arc::new(batch);
        for queue in &self.queues {
            queue.send(WorkerTask::Apply(Arc::clone(&batch))).map_err(|_| ended())?;
        }
        Ok(())
    }

    /// Waits until the workers have applied all records so far.
    fn wait_for_workers(&mut self) -> Result<(), OpenError> {
        if !std::mem::take(&mut self.is_behind) {
            return Ok(());
        }
        let (done, all_done) = channel();
        for queue in &self.queues {
            queue.send(WorkerTask::Barrier(done.clone())).map_err(|_| ended())?;
        }
        drop(done);
        for _ in &self.queues {
            all_done.recv().map_err(|_| ended())?;
        }
        Ok(())
    }

    /// Returns the number of samples stored so far.
    pub(in crate::tsdb) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Waits for the last sample. Returns the number of stored samples, and of samples without a
    /// defined series.
    pub(in crate::tsdb) fn finish(mut self) -> Result<(u64, u64), OpenError> {
        self.wait_for_workers()?;
        self.queues.clear();
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| ended())?;
        }
        Ok((self.stored(), self.orphans))
    }
}

/// Returns whether a record changes heads in another way than by adding samples.
const fn concerns_heads(kind: RecordKind) -> bool {
    match kind {
        RecordKind::Seal
        | RecordKind::SealAll
        | RecordKind::Delete
        | RecordKind::Dropped
        | RecordKind::Samples
        | RecordKind::SamplesV1 => true,
        RecordKind::Series
        | RecordKind::Metadata
        | RecordKind::Mark
        | RecordKind::Switch
        | RecordKind::RegistrySeries
        | RecordKind::RegistryMetadata
        // Side data are stored in a table of their own, not in the heads.
        | RecordKind::Histograms
        | RecordKind::Exemplars
        | RecordKind::Starts => false,
    }
}

fn ended() -> OpenError {
    OpenError::Thread(std::io::Error::other("a thread that replays the log has ended"))
}

fn apply(
    stores: &Stores,
    rows: &RowSeqs,
    stored: &AtomicU64,
    work: &Receiver<WorkerTask>,
    takes: impl Fn(u32) -> bool,
) {
    for work in work {
        match work {
            WorkerTask::Apply(batch) => {
                let SampleBatch { store, seq, samples } = &*batch;
                let skip = skipped(Some(rows), store.org, *seq);
                let outcome = store.head.apply_to(&takes, *seq, samples, skip);
                stored.fetch_add(outcome.stored, Ordering::Relaxed);
                stores.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
            }
            // The receiver is dropped only after an error.
            WorkerTask::Barrier(done) => drop(done.send(())),
        }
    }
}
