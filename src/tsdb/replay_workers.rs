//! Samples of the log on their way into the heads at a start, by several threads.
//!
//! ```text
//! the reading thread: records, checksums, names, everything that is no sample --+--> applier 0: stripes 0, n, 2n, ..
//!                                                                               +--> applier 1: stripes 1, n+1, ..
//! ```
//! What becomes of a sample depends on what came to its stripe before it, and on the barrier. Each stripe has one
//! applier, which is handed the records in their order; and what concerns whole heads (seals, deletions, drops) waits
//! until all appliers are done and is done by the reading thread. So the heads are, bit for bit, those that one thread
//! alone would make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use super::error::{Damage, OpenError};
use super::store::{OrgStore, Record, RowSeqs, Stores, skipped};
use super::wal::record::Kind;
use super::wal::samples::{self, LogSample};

/// Pieces of records that wait for an applier at most.
const QUEUE_MAX: usize = 16;
/// Samples of a piece, 0.4 MB: all that wait are 6 MB at most. What this version writes fits into one.
const PIECE_SAMPLES: usize = 16_384;

/// Samples of one record.
struct Piece {
    store: Arc<OrgStore>,
    seq: u64,
    samples: Vec<LogSample>,
}

enum Work {
    Apply(Arc<Piece>),
    /// Say so when everything before this is done.
    Meet(Sender<()>),
}

/// The appliers, and the thread that hands out records.
pub(super) struct Appliers<'scope> {
    stores: &'scope Stores,
    rows: &'scope RowSeqs,
    queues: Vec<SyncSender<Work>>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    stored: Arc<AtomicU64>,
    orphans: u64,
    /// Something is in the queues.
    is_behind: bool,
    scratch: Vec<LogSample>,
}

impl<'scope> Appliers<'scope> {
    /// Starts so many threads; with none of them everything is done where it is handed out.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        stores: &'scope Stores,
        rows: &'scope RowSeqs,
    ) -> Result<Appliers<'scope>, OpenError> {
        let stored = Arc::new(AtomicU64::new(0));
        let mut appliers = Appliers {
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
            appliers.threads.push(thread.spawn_scoped(scope, run).map_err(OpenError::Thread)?);
            appliers.queues.push(queue);
        }
        Ok(appliers)
    }

    /// Does what a record says, or has it done.
    ///
    /// # Errors
    /// [`OpenError::Thread`] where an applier has ended. The inner one: the record cannot be read.
    pub(super) fn take(&mut self, record: Record<'_>) -> Result<Result<(), Damage>, OpenError> {
        if record.kind.is_samples() && !self.queues.is_empty() {
            return self.hand_out(record);
        }
        if concerns_heads(record.kind) {
            self.meet()?;
        }
        Ok(self.stores.apply(record, &mut self.scratch, Some(self.rows)).map(|outcome| {
            self.stored.fetch_add(outcome.stored, Ordering::Relaxed);
            self.orphans += outcome.orphans;
        }))
    }

    /// As [`Stores::apply`] does with samples, but for the head's part.
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
        self.orphans += store.keep_replayed(seq, &mut samples);
        store.note_samples(seq, &samples);
        self.is_behind = true;
        while samples.len() > PIECE_SAMPLES {
            let rest = samples.split_off(PIECE_SAMPLES);
            self.queue(Piece { store: Arc::clone(&store), seq, samples })?;
            samples = rest;
        }
        self.queue(Piece { store, seq, samples })?;
        Ok(Ok(()))
    }

    fn queue(&self, piece: Piece) -> Result<(), OpenError> {
        let piece = Arc::new(piece);
        for queue in &self.queues {
            queue.send(Work::Apply(Arc::clone(&piece))).map_err(|_| ended())?;
        }
        Ok(())
    }

    /// Waits until everything that was handed out is done.
    fn meet(&mut self) -> Result<(), OpenError> {
        if !std::mem::take(&mut self.is_behind) {
            return Ok(());
        }
        let (done, dones) = channel();
        for queue in &self.queues {
            queue.send(Work::Meet(done.clone())).map_err(|_| ended())?;
        }
        drop(done);
        for _ in &self.queues {
            dones.recv().map_err(|_| ended())?;
        }
        Ok(())
    }

    /// Samples stored so far.
    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Waits for the last sample; answers how many were stored, and how many are of series that nothing defines.
    pub(super) fn finish(mut self) -> Result<(u64, u64), OpenError> {
        self.meet()?;
        self.queues.clear();
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| ended())?;
        }
        Ok((self.stored(), self.orphans))
    }
}

/// Whether a record changes heads otherwise than by samples.
const fn concerns_heads(kind: Kind) -> bool {
    match kind {
        Kind::Seal
        | Kind::SealAll
        | Kind::Delete
        | Kind::Dropped
        | Kind::Samples
        | Kind::SamplesV1 => true,
        Kind::Series
        | Kind::Metadata
        | Kind::Mark
        | Kind::Switch
        | Kind::RegistrySeries
        | Kind::RegistryMetadata
        // Beside the heads, in a table of their own.
        | Kind::Histograms
        | Kind::Exemplars
        | Kind::Starts => false,
    }
}

fn ended() -> OpenError {
    OpenError::Thread(std::io::Error::other("a thread that replays the log has ended"))
}

fn apply(
    stores: &Stores,
    rows: &RowSeqs,
    stored: &AtomicU64,
    work: &Receiver<Work>,
    takes: impl Fn(u32) -> bool,
) {
    for work in work {
        match work {
            Work::Apply(piece) => {
                let Piece { store, seq, samples } = &*piece;
                let skip = skipped(Some(rows), store.org, *seq);
                let outcome = store.head.apply_to(&takes, *seq, samples, skip);
                stored.fetch_add(outcome.stored, Ordering::Relaxed);
                stores.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
            }
            // Who stopped waiting has met with an error.
            Work::Meet(done) => drop(done.send(())),
        }
    }
}
