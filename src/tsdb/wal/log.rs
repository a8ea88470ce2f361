//! The log while it is written. It holds the records of all organisations; one sync covers all
//! queued records.
//!
//! ```text
//! callers --submit--> queue --one writer at a time--> outcomes
//!                             number, one pwrite, one fdatasync, apply in log order
//! ```
//! A caller that submits while no group is being written writes a group itself, so a lone request
//! pays for no thread switch. Records that arrive meanwhile form the next group, which the log's
//! own thread writes. One lock covers numbering, writing and applying, so records reach the head in
//! the order of their numbers.
//!
//! Live writes and replay apply records through the same function, so the effect of a record on the
//! head depends on the log alone. Samples are not decoded again from the bytes just encoded (a dev
//! build checks that they could be). A failed write or sync closes the log until a restart: the
//! state after a failed `fdatasync` is unknown, and a second one would report success
//! (docs/storage.md section 18).
//!
//! With [`Durability::Interval`] a group is applied and acknowledged once it is written, which
//! survives a killed process. It is synced at the latest within the interval, which bounds the loss
//! in a power cut. A record still states only what was *synced* when it was written (its lag). So a
//! replay takes unsynced records that a power cut destroyed for a torn tail, of at most 2 MiB and
//! one group. Seals, marks and switches are synced in every mode, with all records before them.

mod committer;
pub(in crate::tsdb) mod tail;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use committer::Committer;
use tail::CurrentFile;

use super::copy::CopiedRecord;
use super::file::{self, LogFile, MakeError, NewFile};
use super::record::{OrgSpan, RecordKind};
use super::samples::LogSample;
use super::trimmed::{Removed, Trimmed};
use crate::kv::keyed::RecordKey;
use crate::model::{GateAnswer, OrgId, StandbyRefusal, StoreId, Timestamp, WriteGate};
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk::{self, Disk};
use crate::tsdb::error::{AppendError, CopyError, Damage};
use crate::tsdb::options::Durability;
use crate::tsdb::report::Writes;

/// The limit of queued body bytes; above it `submit` waits. Each queued body has a waiting caller,
/// and the lanes bound the number of callers.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// The limit of a written body. Together with the header and a first mark it fits into the smallest
/// file.
pub(in crate::tsdb) const BODY_BYTES_WRITTEN_MAX: usize = 640 << 10;
/// The time without traffic after which a mark records that the last group is durable.
const MARK_AFTER: Duration = Duration::from_millis(100);

/// A record without a number.
#[derive(Debug)]
pub(in crate::tsdb) struct Draft {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: RecordKind,
    pub(in crate::tsdb) body: Vec<u8>,
    /// The decoded samples of a body of [`RecordKind::Samples`].
    pub(in crate::tsdb) samples: Vec<LogSample>,
    /// The greatest sample time in it; `i64::MIN` if it has no samples.
    pub(in crate::tsdb) greatest_ms: i64,
    /// Whether it is the copy of a primary's record, whose series are not in the table yet.
    pub(in crate::tsdb) is_copied: bool,
}

impl Draft {
    /// Creates a draft of another kind than samples.
    pub(in crate::tsdb) fn new(org: OrgId, kind: RecordKind, body: Vec<u8>) -> Draft {
        Draft { org, kind, body, samples: Vec::new(), greatest_ms: i64::MIN, is_copied: false }
    }

    /// Returns whether the record does not wait for a follower. No caller waits for seals and
    /// drops, which the store makes itself, and a deletion waits once its tombstone is stored.
    fn is_internal(&self) -> bool {
        matches!(self.kind, RecordKind::Seal | RecordKind::SealAll | RecordKind::Delete | RecordKind::Dropped)
    }
}

/// A sample that the head refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct RefusedSample {
    pub(in crate::tsdb) series: u32,
    pub(in crate::tsdb) at_ms: i64,
    /// The bit pattern of the refused value.
    pub(in crate::tsdb) bits: u64,
    /// The bit pattern of the stored value.
    pub(in crate::tsdb) have: u64,
}

/// The effect of applying a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct ApplyOutcome {
    pub(in crate::tsdb) stored: u64,
    pub(in crate::tsdb) refused: u64,
    /// Samples of series without a definition.
    pub(in crate::tsdb) orphans: u64,
    /// The record's number; 0 of an outcome without a record.
    pub(in crate::tsdb) record_seq: u64,
    /// The number of the organisation's record before it, if that one was applied since the start;
    /// any lower number otherwise.
    pub(in crate::tsdb) seq_before: u64,
    /// The first of the refused samples.
    pub(in crate::tsdb) first: Vec<RefusedSample>,
    /// The number of histograms among the stored samples.
    pub(in crate::tsdb) histograms: u64,
    /// The series and time of the first refused histograms.
    pub(in crate::tsdb) first_histograms: Vec<(u32, i64)>,
    /// The number of exemplars that were not stored before.
    pub(in crate::tsdb) exemplars: u64,
}

/// The refused samples that an outcome lists.
const REFUSED_MAX: usize = 10;

impl ApplyOutcome {
    /// Counts a refused sample.
    pub(in crate::tsdb) fn refuse(&mut self, sample: RefusedSample) {
        self.refused += 1;
        if self.first.len() < REFUSED_MAX {
            self.first.push(sample);
        }
    }
}

/// Applies a record, with its number, to the head. Only one thread at a time calls it, in order of
/// seq.
///
/// A record that was just written and cannot be read is a defect, which closes the log.
pub(in crate::tsdb) type Apply = Box<dyn FnMut(u64, &Draft) -> Result<ApplyOutcome, Damage> + Send>;

/// Receives the outcomes of a caller's records, or the reason why none of them is acknowledged. It
/// is called at most once, mostly under the writer's lock. So it must return quickly, and
/// [`Log::commit`] or [`Log::flush`] in it would never return.
pub(in crate::tsdb) type Done = Box<dyn FnOnce(Result<Vec<ApplyOutcome>, AppendError>) + Send>;

/// The pending records of one caller.
struct Caller {
    pending: usize,
    outcomes: Vec<ApplyOutcome>,
    done: Option<Done>,
}

/// The reply to a caller. All of its records share it.
#[derive(Clone)]
struct Reply(Arc<Mutex<Caller>>);

impl Reply {
    fn new(records: usize, done: Done) -> Reply {
        let outcomes = Vec::with_capacity(records);
        Reply(Arc::new(Mutex::new(Caller { pending: records, outcomes, done: Some(done) })))
    }

    /// Records the outcome of one record. The caller is notified after the last one, or at the
    /// first failure.
    fn send(&self, outcome: Result<ApplyOutcome, AppendError>) {
        let mut caller = lock(&self.0);
        let result = match outcome {
            Ok(outcome) => {
                caller.outcomes.push(outcome);
                caller.pending = caller.pending.saturating_sub(1);
                (caller.pending == 0).then(|| Ok(std::mem::take(&mut caller.outcomes)))
            }
            Err(why) => Some(Err(why)),
        };
        let done = result.and_then(|result| Some((caller.done.take()?, result)));
        drop(caller);
        if let Some((done, result)) = done {
            done(result);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reply").field(&lock(&self.0).pending).finish()
    }
}

/// The position at which the log continues.
#[derive(Debug)]
pub(in crate::tsdb) struct Resume {
    pub(in crate::tsdb) file: LogFile,
    pub(in crate::tsdb) offset: u32,
    /// Set if the file has no record yet: the spans of the file before it, for its first mark.
    pub(in crate::tsdb) first_mark: Option<Vec<OrgSpan>>,
    pub(in crate::tsdb) last_seq: u64,
    /// The random key of this process from which the secrets of new files are derived.
    pub(in crate::tsdb) key: RecordKey,
    /// The spans of the records that the file already holds.
    pub(in crate::tsdb) spans: BTreeMap<OrgId, OrgSpan>,
    /// The number of its first record, or of the next record if it has none.
    pub(in crate::tsdb) first_seq: u64,
    /// The files before the current one, in order of number.
    pub(in crate::tsdb) full: Vec<FullFile>,
    pub(in crate::tsdb) files: u64,
    pub(in crate::tsdb) file_bytes: u64,
}

/// The log's counters. `written_bytes`, `records` and `syncs` count since the start of the process;
/// `files` and `file_bytes` are the present size of the log.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Counters {
    pub(in crate::tsdb) files: AtomicU64,
    pub(in crate::tsdb) file_bytes: AtomicU64,
    pub(in crate::tsdb) written_bytes: AtomicU64,
    pub(in crate::tsdb) records: AtomicU64,
    pub(in crate::tsdb) syncs: AtomicU64,
    pub(in crate::tsdb) last_seq: AtomicU64,
    /// Every record up to this number is durable.
    pub(in crate::tsdb) durable_seq: AtomicU64,
    /// Every record up to this number is in the head.
    pub(in crate::tsdb) applied_seq: AtomicU64,
    /// Every record up to this number is durable and in the head.
    pub(in crate::tsdb) readable_seq: AtomicU64,
    /// The number of the first record of the current file.
    pub(in crate::tsdb) file_first_seq: AtomicU64,
    /// The number of the current file.
    pub(in crate::tsdb) file_number: AtomicU64,
    /// The end of the last record in the current file.
    pub(in crate::tsdb) file_offset: AtomicU64,
    /// Bytes of files that only pins or a follower keep. They are part of `file_bytes`.
    pub(in crate::tsdb) held_bytes: AtomicU64,
}

/// A file that takes no more records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct FullFile {
    pub(in crate::tsdb) number: u64,
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) bytes: u64,
    pub(in crate::tsdb) first_seq: u64,
    pub(in crate::tsdb) last_seq: u64,
    /// The content per organisation; none if it must be read from the file.
    pub(in crate::tsdb) spans: Option<Vec<OrgSpan>>,
}

/// The log of a running store.
#[derive(Debug)]
pub(in crate::tsdb) struct Log {
    shared: Arc<LogState>,
    committer: Arc<Mutex<Committer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The state that the callers and both threads of the log share.
#[derive(Debug)]
struct LogState {
    dir: PathBuf,
    store: StoreId,
    disk: Disk,
    counters: Counters,
    queue: Mutex<CommitQueue>,
    /// Signals new work or the end to the log's own thread.
    work: Condvar,
    /// Signals that the queue became shorter.
    queue_space: Condvar,
    spare: Mutex<Spare>,
    spare_changed: Condvar,
    /// True once a mark states that the last group is durable.
    vouched: AtomicBool,
    /// The number of groups written.
    groups: AtomicU64,
    /// The number of callers of [`Log::flush`] that wait for the lock.
    flushes: AtomicUsize,
    durability: Durability,
    /// The files before the current one, in order of number.
    full: Mutex<Vec<FullFile>>,
    current: Mutex<CurrentFile>,
    trimmed: Trimmed,
    /// Held by readers while they check whether to wait.
    tails: Mutex<()>,
    /// Signals a new readable record, or the end of the log, to the readers.
    tails_changed: Condvar,
    /// The number of readers that wait.
    tails_waiting: AtomicUsize,
    /// True once no further record will be readable.
    tails_end: AtomicBool,
    /// Decides whether records are accepted and when they are acknowledged; none in tests of the
    /// log alone.
    gate: OnceLock<Arc<WriteGate>>,
    /// Durable records that wait for the follower, in order.
    waiting: Mutex<VecDeque<WaitingRecord>>,
    /// The last record that the follower confirmed. Changed under the lock of `waiting`.
    confirmed: AtomicU64,
}

/// A durable record that waits for the confirmation of the follower.
#[derive(Debug)]
struct WaitingRecord {
    seq: u64,
    reply: WaitingReply,
    ticks: u8,
}

/// The caller that waits for a confirmation.
enum WaitingReply {
    /// A caller that waits for one record, of possibly several.
    Record(Reply, ApplyOutcome),
    /// A caller without records, because all of its samples were in the log before.
    Nothing(Done),
}

impl WaitingReply {
    fn send(self, confirmed: Result<(), AppendError>) {
        match (self, confirmed) {
            (WaitingReply::Record(reply, outcome), Ok(())) => reply.send(Ok(outcome)),
            (WaitingReply::Record(reply, _), Err(why)) => reply.send(Err(why)),
            (WaitingReply::Nothing(done), confirmed) => done(confirmed.map(|()| Vec::new())),
        }
    }
}

impl std::fmt::Debug for WaitingReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitingReply")
    }
}

/// The calls of [`Log::expire_waiting`] after which a record without confirmation fails.
const WAIT_TICKS: u8 = 10;

/// The records that wait to be written, and the state of writes.
#[derive(Debug)]
struct CommitQueue {
    drafts: VecDeque<(Draft, Reply)>,
    bytes: usize,
    writes: Writes,
    closing: Closing,
    now_ms: i64,
    /// Set while a caller of [`Log::settle`] waits for a small new file.
    settle: Option<Sender<()>>,
}

/// The way in which the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// End after the queued records are written.
    Drain,
    /// End at once, without a request to close the store.
    Abandon,
}

/// The file that the log will continue in.
#[derive(Debug)]
enum Spare {
    /// Not requested.
    None,
    /// Requested from the thread that creates files.
    Requested(NewFile),
    Ready(LogFile),
    Failed(MakeError),
    /// The log has ended.
    Stopped,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section here leaves its value consistent, and a panic elsewhere must not stop
    // the log.
    mutex.lock().ignore_poison()
}

impl Log {
    /// Starts the log's threads.
    ///
    /// # Errors
    /// The operating system's error if a thread cannot be started.
    pub(in crate::tsdb) fn start(
        dir: PathBuf,
        store: StoreId,
        disk: Disk,
        durability: Durability,
        mut resume: Resume,
        apply: Apply,
    ) -> std::io::Result<Log> {
        let counters = Counters::default();
        counters.files.store(resume.files, Ordering::Relaxed);
        counters.file_bytes.store(resume.file_bytes, Ordering::Relaxed);
        counters.last_seq.store(resume.last_seq, Ordering::Relaxed);
        counters.durable_seq.store(resume.last_seq, Ordering::Relaxed);
        counters.applied_seq.store(resume.last_seq, Ordering::Relaxed);
        counters.readable_seq.store(resume.last_seq, Ordering::Relaxed);
        counters.file_offset.store(u64::from(resume.offset), Ordering::Relaxed);
        counters.file_first_seq.store(resume.first_seq, Ordering::Relaxed);
        counters.file_number.store(resume.file.number, Ordering::Relaxed);
        let queue = CommitQueue {
            drafts: VecDeque::new(),
            bytes: 0,
            writes: Writes::Open,
            closing: Closing::No,
            now_ms: 0,
            settle: None,
        };
        let current = CurrentFile { number: resume.file.number, first_seq: resume.first_seq };
        let shared = Arc::new(LogState {
            dir,
            store,
            disk,
            counters,
            queue: Mutex::new(queue),
            work: Condvar::new(),
            queue_space: Condvar::new(),
            spare: Mutex::new(Spare::None),
            spare_changed: Condvar::new(),
            vouched: AtomicBool::new(true),
            groups: AtomicU64::new(0),
            flushes: AtomicUsize::new(0),
            durability,
            full: Mutex::new(std::mem::take(&mut resume.full)),
            current: Mutex::new(current),
            trimmed: Trimmed::default(),
            tails: Mutex::new(()),
            tails_changed: Condvar::new(),
            tails_waiting: AtomicUsize::new(0),
            tails_end: AtomicBool::new(false),
            gate: OnceLock::new(),
            waiting: Mutex::default(),
            confirmed: AtomicU64::new(0),
        });
        let committer = Committer::new(Arc::clone(&shared), apply, resume);
        let committer = Arc::new(Mutex::new(committer));
        let for_thread = Arc::clone(&committer);
        let log = Log { shared: Arc::clone(&shared), committer, threads: Mutex::new(Vec::new()) };
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| -> std::io::Result<()> {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
            lock(&log.threads).push(thread);
            Ok(())
        };
        let for_committer = Arc::clone(&shared);
        start("wal-commit", Box::new(move || run(&for_committer, &for_thread)))?;
        start("wal-spare", Box::new(move || make_spares(&shared)))?;
        Ok(log)
    }

    /// Makes records durable, applies them, and waits for both. They get consecutive numbers in
    /// this order, but may be in several groups.
    ///
    /// # Errors
    /// [`AppendError`]: none of them is acknowledged, though records before the failure may be
    /// stored.
    pub(in crate::tsdb) fn commit(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<ApplyOutcome>, AppendError> {
        let (sender, outcomes) = mpsc::channel();
        // The receiver waits below, so sending cannot fail.
        self.submit(drafts, now, Box::new(move |result| drop(sender.send(result))));
        if self.write_group() {
            self.shared.work.notify_one();
        }
        let ended = |_| AppendError::Fenced("a thread of the log has ended".to_owned());
        outcomes.recv().map_err(ended)?
    }

    /// Like [`Log::commit`] for several callers, without waiting: each `done` gets the result of
    /// its records, perhaps before this returns. One sync makes all records durable that one group
    /// holds. Unless another thread writes, this one writes all queued records, including those
    /// that arrive meanwhile. So no request should wait for the caller.
    pub(in crate::tsdb) fn commit_all_then(
        &self,
        callers: impl IntoIterator<Item = (Vec<Draft>, Timestamp, Done)>,
    ) {
        let mut bytes = 0;
        for (drafts, now, done) in callers {
            bytes += drafts.iter().map(|draft| draft.body.len()).sum::<usize>();
            self.submit(drafts, now, done);
            // `submit` could otherwise wait for space that only this thread makes.
            if bytes >= BODY_BYTES_WRITTEN_MAX {
                bytes = 0;
                while self.write_group() {}
            }
        }
        while self.write_group() {}
    }

    /// Puts records into the queue. Waits while the queue is full.
    fn submit(&self, drafts: Vec<Draft>, now: Timestamp, done: Done) {
        let is_internal = !drafts.is_empty() && drafts.iter().all(Draft::is_internal);
        if let Err(why) = self.shared.admit_by_gate(is_internal) {
            return done(Err(why));
        }
        let gives_space = drafts.iter().all(|draft| draft.kind.gives_space());
        let mut queue = lock(&self.shared.queue);
        let mut admitted = self.shared.admit(&mut queue, gives_space);
        while queue.bytes > QUEUE_BYTES_MAX && queue.writes == Writes::Open {
            queue = self.shared.queue_space.wait(queue).ignore_poison();
            admitted = self.shared.admit(&mut queue, gives_space);
        }
        if drafts.is_empty() || admitted.is_err() {
            drop(queue);
            return match (admitted, self.shared.answer()) {
                // Samples that the request repeats may be in the log and not on the follower.
                (Ok(()), GateAnswer::Wait) => {
                    let seq = self.shared.counters.last_seq.load(Ordering::Acquire);
                    self.shared.wait(seq, WaitingReply::Nothing(done));
                }
                (admitted, _) => done(admitted.map(|()| Vec::new())),
            };
        }
        queue.now_ms = queue.now_ms.max(now.as_ms());
        let reply = Reply::new(drafts.len(), done);
        for draft in drafts {
            queue.bytes += draft.body.len();
            queue.drafts.push_back((draft, reply.clone()));
        }
    }

    /// Writes a group unless another thread holds the writer's lock, which then sees to the queue.
    /// Returns whether more records are queued, which this caller must then take care of.
    fn write_group(&self) -> bool {
        if self.shared.flushes.load(Ordering::Acquire) > 0 {
            // The lock is unfair: a thread that writes group after group would starve the flushes.
            // The log's own thread waits for the lock instead.
            self.shared.work.notify_one();
            return false;
        }
        let mut committer = match self.committer.try_lock() {
            Ok(committer) => committer,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(ended)) => ended.into_inner(),
        };
        self.shared.guarded(|| committer.write_group());
        drop(committer);
        !lock(&self.shared.queue).drafts.is_empty()
    }

    /// Runs `work` under the writer's lock, without writing a group.
    ///
    /// A caller that finds the lock taken leaves its records to the thread that holds it. So the
    /// log's own thread is woken afterwards if records have arrived.
    fn with_committer<T>(&self, work: impl FnOnce(&mut Committer) -> T) -> T {
        let out = work(&mut lock(&self.committer));
        if !lock(&self.shared.queue).drafts.is_empty() {
            self.shared.work.notify_one();
        }
        out
    }

    /// Returns whether a record vouches for all others, so that the log's own thread writes nothing
    /// until the next group.
    #[cfg(test)]
    pub(in crate::tsdb) fn is_marked(&self) -> bool {
        self.with_committer(|_| self.shared.vouched.load(Ordering::Acquire))
    }

    /// Runs `work` under the lock that a flush takes.
    #[cfg(test)]
    pub(in crate::tsdb) fn hold(&self, work: impl FnOnce()) {
        self.with_committer(|_| work());
    }

    /// Returns the number of records that wait to be written.
    #[cfg(test)]
    pub(in crate::tsdb) fn waiting_records(&self) -> usize {
        lock(&self.shared.queue).drafts.len()
    }

    /// Makes all applied records durable. Returns the number of the last one.
    ///
    /// # Errors
    /// [`AppendError::Fenced`].
    pub(in crate::tsdb) fn flush(&self) -> Result<u64, AppendError> {
        self.shared.flushes.fetch_add(1, Ordering::AcqRel);
        let synced = self.with_committer(|committer| {
            self.shared.flushes.fetch_sub(1, Ordering::AcqRel);
            committer.sync().map(|()| committer.durable())
        });
        synced.inspect_err(|why| self.shared.refuse_all(Vec::new(), why))
    }

    /// Checks whether a record of samples would be accepted now. Measures free space again if it
    /// was short.
    pub(in crate::tsdb) fn admit(&self) -> Result<(), AppendError> {
        self.shared.admit_by_gate(false)?;
        self.shared.admit(&mut lock(&self.shared.queue), false)
    }

    /// Checks whether a record that frees space would be accepted now.
    pub(in crate::tsdb) fn admit_giving_space(&self) -> Result<(), AppendError> {
        self.shared.admit_by_gate(false)?;
        self.shared.admit(&mut lock(&self.shared.queue), true)
    }

    /// Returns whether writes are open now. Measures free space again if it was short, since
    /// clients send nothing to a store that reports a full disk.
    pub(in crate::tsdb) fn writes(&self) -> Writes {
        let mut queue = lock(&self.shared.queue);
        // The state contains the refusal, too.
        drop(self.shared.admit(&mut queue, false));
        queue.writes.clone()
    }

    /// Accepts no more records until a restart. Queued records are still written. Does nothing if
    /// writes are closed.
    pub(in crate::tsdb) fn stop(&self, why: &str) {
        let mut queue = lock(&self.shared.queue);
        if matches!(queue.writes, Writes::Open | Writes::DiskFull { .. }) {
            queue.writes = Writes::Stopped(why.to_owned());
        }
        drop(queue);
        // Callers that wait for queue space must see the refusal.
        self.shared.queue_space.notify_all();
    }

    /// Switches to a small new file, unless the current one is small and holds only marks, and
    /// removes the spare file. Waits for completion. Does nothing unless writes are open.
    pub(in crate::tsdb) fn settle(&self) {
        let (done, settled) = mpsc::channel();
        {
            let mut queue = lock(&self.shared.queue);
            if queue.closing != Closing::No {
                return;
            }
            queue.settle = Some(done);
        }
        self.shared.work.notify_all();
        // The log's thread drops the sender if it ends first.
        let _ = settled.recv();
    }

    /// Uses `gate` from now on. Does nothing if there is one.
    pub(in crate::tsdb) fn set_gate(&self, gate: Arc<WriteGate>) {
        drop(self.shared.gate.set(gate));
    }

    /// Writes copied records with their own numbers, makes them durable and applies them. Records
    /// of deletions and drops are the caller's work.
    ///
    /// # Errors
    /// [`CopyError`]: a prefix of the records may be stored.
    pub(in crate::tsdb) fn append_copied(&self, records: Vec<CopiedRecord>) -> Result<(), CopyError> {
        match &lock(&self.shared.queue).writes {
            Writes::Open | Writes::DiskFull { .. } => {}
            Writes::Fenced(why) | Writes::Stopped(why) => {
                return Err(AppendError::Fenced(why.clone()).into());
            }
            Writes::ReadOnly(why) => return Err(AppendError::ReadOnly(why.clone()).into()),
            Writes::Closed => return Err(AppendError::Closed.into()),
        }
        let panicked = || AppendError::Fenced("writing the log has panicked".to_owned());
        let stored =
            self.shared.guarded(|| self.with_committer(|committer| committer.append_copied(records)));
        let stored = stored.unwrap_or_else(|| Err(panicked().into()));
        if let Err(CopyError::Append(why @ AppendError::Fenced(_))) = &stored {
            self.shared.refuse_all(Vec::new(), why);
        }
        stored
    }

    /// Runs `work` between two records, with the number of the last one, which is applied.
    pub(in crate::tsdb) fn between_records<T>(&self, work: impl FnOnce(u64) -> T) -> T {
        self.with_committer(|committer| work(committer.written()))
    }

    /// Begins to write marks again, after the promotion of a follower.
    pub(in crate::tsdb) fn begin_own_records(&self) {
        self.shared.vouched.store(false, Ordering::Release);
        let _looking = lock(&self.shared.queue);
        self.shared.work.notify_one();
    }

    /// Answers the records up to `seq`, which the follower has made durable.
    pub(in crate::tsdb) fn confirm(&self, seq: u64) {
        {
            let _alone = lock(&self.shared.waiting);
            self.shared.confirmed.fetch_max(seq, Ordering::AcqRel);
        }
        let confirmed = self.shared.take_waiting(|waiting| waiting.seq <= seq);
        for WaitingRecord { reply, .. } in confirmed {
            reply.send(Ok(()));
        }
    }

    /// Refuses the records that have waited for ten calls. Called once a second.
    pub(in crate::tsdb) fn expire_waiting(&self) {
        lock(&self.shared.waiting).iter_mut().for_each(|one| one.ticks = one.ticks.saturating_add(1));
        let expired = self.shared.take_waiting(|waiting| waiting.ticks >= WAIT_TICKS);
        self.shared.refuse_waiting(expired, &StandbyRefusal::Missing.into());
    }

    /// Refuses all records that wait for the follower, because none will confirm them.
    pub(in crate::tsdb) fn refuse_waiting(&self) {
        let why = match self.shared.answer() {
            GateAnswer::Refuse(why) => why,
            GateAnswer::Acknowledge | GateAnswer::Wait => StandbyRefusal::Missing,
        };
        let all = self.shared.take_waiting(|_| true);
        self.shared.refuse_waiting(all, &why.into());
    }

    /// Returns the number of records that wait for the follower.
    pub(in crate::tsdb) fn waiting_for_follower(&self) -> usize {
        lock(&self.shared.waiting).len()
    }

    pub(in crate::tsdb) fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Returns the files before the current one.
    pub(in crate::tsdb) fn full_files(&self) -> Vec<FullFile> {
        lock(&self.shared.full).clone()
    }

    /// Unlinks the first files, up to and excluding number `end`. The caller has durably recorded
    /// that the log begins there. From then on they are not part of the log, and a file that cannot
    /// be unlinked does not count in its size.
    pub(in crate::tsdb) fn remove_before(&self, end: u64) -> Removed {
        let mut full = lock(&self.shared.full);
        let count = full.iter().take_while(|file| file.number < end).count();
        let trimmed: Vec<FullFile> = full.drain(..count).collect();
        drop(full);
        for file in &trimmed {
            self.shared.counters.files.fetch_sub(1, Ordering::Relaxed);
            self.shared.counters.file_bytes.fetch_sub(file.bytes, Ordering::Relaxed);
        }
        self.shared.trimmed.remove(&self.shared.dir, trimmed)
    }

    /// Returns the files before the log's start that could not be unlinked.
    pub(in crate::tsdb) fn trimmed(&self) -> &Trimmed {
        &self.shared.trimmed
    }

    pub(in crate::tsdb) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Writes the queued records and a last mark, removes the spare file, and ends the threads. A
    /// second call does nothing.
    pub(in crate::tsdb) fn close(&self) {
        self.end(Closing::Drain);
    }

    fn end(&self, how: Closing) {
        {
            let mut queue = lock(&self.shared.queue);
            if queue.closing == Closing::No {
                queue.closing = how;
            }
            if matches!(queue.writes, Writes::Open | Writes::DiskFull { .. }) {
                queue.writes = Writes::Closed;
            }
        }
        self.shared.work.notify_all();
        self.shared.queue_space.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A panicked thread has already reported its panic on standard error.
            drop(thread.join());
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end(Closing::Abandon);
    }
}

impl LogState {
    fn answer(&self) -> GateAnswer {
        self.gate.get().map_or(GateAnswer::Acknowledge, |gate| gate.answer())
    }

    fn is_follower(&self) -> bool {
        self.gate.get().is_some_and(|gate| gate.is_follower())
    }

    /// Asks the gate. Internal records are still written while no follower is connected.
    fn admit_by_gate(&self, is_internal: bool) -> Result<(), AppendError> {
        match self.gate.get().map_or(Ok(()), |gate| gate.admit()) {
            Err(StandbyRefusal::Missing) if is_internal => Ok(()),
            admitted => Ok(admitted?),
        }
    }

    /// Answers a record that is durable and applied, or lets it wait for the follower.
    fn acknowledge(&self, seq: u64, draft: &Draft, reply: Reply, outcome: ApplyOutcome) {
        match self.answer() {
            _ if draft.is_internal() => reply.send(Ok(outcome)),
            GateAnswer::Acknowledge => reply.send(Ok(outcome)),
            GateAnswer::Wait => {
                self.wait(seq, WaitingReply::Record(reply, outcome));
            }
            GateAnswer::Refuse(why) => reply.send(Err(why.into())),
        }
    }

    /// Answers a caller once the follower has confirmed record `seq`.
    fn wait(&self, seq: u64, reply: WaitingReply) {
        let mut waiting = lock(&self.waiting);
        if seq > self.confirmed.load(Ordering::Acquire) {
            // A request without records may come before the answer to the record before it.
            let place = waiting.iter().rposition(|one| one.seq <= seq).map_or(0, |place| place + 1);
            return waiting.insert(place, WaitingRecord { seq, reply, ticks: 0 });
        }
        drop(waiting);
        reply.send(Ok(()));
    }

    fn take_waiting(&self, is_due: impl Fn(&WaitingRecord) -> bool) -> Vec<WaitingRecord> {
        let mut waiting = lock(&self.waiting);
        let (due, rest) = std::mem::take(&mut *waiting).into_iter().partition::<Vec<_>, _>(|one| is_due(one));
        *waiting = rest.into();
        due
    }

    fn refuse_waiting(&self, records: Vec<WaitingRecord>, why: &AppendError) {
        for WaitingRecord { reply, .. } in records {
            reply.send(Err(why.clone()));
        }
    }

    fn note_progress(&self) {
        if let Some(gate) = self.gate.get() {
            gate.note_progress();
        }
    }

    fn admit(&self, queue: &mut CommitQueue, gives_space: bool) -> Result<(), AppendError> {
        if let Writes::DiskFull { needed, .. } = queue.writes {
            match self.disk.space(&self.dir) {
                Ok(space) if space.allows_samples_again(needed) => queue.writes = Writes::Open,
                Ok(space) => queue.writes = Writes::DiskFull { free: space.free, needed },
                Err(_) => {}
            }
        }
        match &queue.writes {
            Writes::Open => Ok(()),
            Writes::DiskFull { .. } if gives_space => Ok(()),
            Writes::DiskFull { free, needed } => Err(AppendError::DiskFull { free: *free, needed: *needed }),
            Writes::Fenced(why) | Writes::Stopped(why) => Err(AppendError::Fenced(why.clone())),
            Writes::ReadOnly(why) => Err(AppendError::ReadOnly(why.clone())),
            Writes::Closed => Err(AppendError::Closed),
        }
    }

    /// Replies to all queued records with this refusal, and closes writes accordingly.
    fn refuse_all(&self, group: Vec<(Draft, Reply)>, why: &AppendError) {
        let waiting = {
            let mut queue = lock(&self.queue);
            // No queued record was written, and the next request tries again.
            let continues = matches!(why, AppendError::OutOfResources(_));
            if !continues && !matches!(queue.writes, Writes::Fenced(_) | Writes::Stopped(_)) {
                queue.writes = match why {
                    AppendError::DiskFull { free, needed } => {
                        Writes::DiskFull { free: *free, needed: *needed }
                    }
                    AppendError::Closed => Writes::Closed,
                    other => Writes::Fenced(other.to_string()),
                };
            }
            queue.bytes = 0;
            std::mem::take(&mut queue.drafts)
        };
        self.queue_space.notify_all();
        for (_, reply) in group.into_iter().chain(waiting) {
            reply.send(Err(why.clone()));
        }
    }
}

/// The loop of the log's own thread: it writes queued groups, marks and syncs until the log ends.
fn run(shared: &LogState, committer: &Mutex<Committer>) {
    let how = loop {
        match shared.next() {
            CommitterTask::Write => {
                shared.guarded(|| lock(committer).write_group());
            }
            CommitterTask::Mark => {
                shared.guarded(|| lock(committer).mark());
            }
            CommitterTask::Sync => {
                shared.guarded(|| lock(committer).sync_if_due());
            }
            CommitterTask::Settle(done) => {
                shared.guarded(|| lock(committer).settle());
                // The receiver may have stopped waiting.
                let _ = done.send(());
            }
            CommitterTask::End(how) => break how,
        }
    };
    if how == Closing::Drain {
        shared.guarded(|| {
            let mut committer = lock(committer);
            while committer.write_group() {}
            if !shared.vouched.load(Ordering::Acquire) {
                committer.mark();
            }
        });
    }
    shared.refuse_all(Vec::new(), &AppendError::Closed);
    shared.end_tails();
    let unconfirmed = shared.take_waiting(|_| true);
    shared.refuse_waiting(unconfirmed, &AppendError::Closed);
    // The log is closed. Cancel the settle request so that its caller does not wait forever.
    lock(&shared.queue).settle = None;
    let spare = std::mem::replace(&mut *lock(&shared.spare), Spare::Stopped);
    shared.spare_changed.notify_all();
    if let (Closing::Drain, Spare::Ready(file)) = (how, spare)
        && lock(committer).is_clear()
    {
        // An unused spare is harmless. The next start removes the file if this call fails.
        let _ = disk::remove_file(&file.path).and_then(|()| disk::sync_dir(&shared.dir));
    }
}

/// A task of the log's own thread.
enum CommitterTask {
    Write,
    Mark,
    Sync,
    Settle(Sender<()>),
    End(Closing),
}

impl LogState {
    /// Runs `work` on the log. A panic closes the log, so that no caller waits forever.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work)).ok();
        if done.is_none() {
            self.refuse_all(Vec::new(), &AppendError::Fenced("writing the log has panicked".to_owned()));
        }
        done
    }

    /// Waits for the next task of the log's own thread.
    fn next(&self) -> CommitterTask {
        // A quarter of the interval, since up to half of it may pass before a sync begins.
        let check_after = match self.durability {
            Durability::Synced => MARK_AFTER,
            Durability::Interval(interval) => MARK_AFTER.min(interval / 4),
        };
        let mut groups = self.groups.load(Ordering::Acquire);
        let mut quiet = Duration::ZERO;
        let mut queue = lock(&self.queue);
        loop {
            if queue.closing == Closing::Abandon
                || (queue.closing == Closing::Drain && queue.drafts.is_empty())
            {
                return CommitterTask::End(queue.closing);
            }
            if !queue.drafts.is_empty() {
                return CommitterTask::Write;
            }
            if let Some(done) = queue.settle.take() {
                return CommitterTask::Settle(done);
            }
            let vouched = self.vouched.load(Ordering::Acquire);
            if vouched || !matches!(queue.writes, Writes::Open | Writes::DiskFull { .. }) {
                queue = self.work.wait(queue).ignore_poison();
                (groups, quiet) = (self.groups.load(Ordering::Acquire), Duration::ZERO);
                continue;
            }
            let waited = self.work.wait_timeout(queue, check_after);
            let (again, timeout) = waited.ignore_poison();
            queue = again;
            if !timeout.timed_out() || !queue.drafts.is_empty() || queue.closing != Closing::No {
                continue;
            }
            let written = self.groups.load(Ordering::Acquire);
            quiet = if written == groups { quiet + check_after } else { Duration::ZERO };
            groups = written;
            if quiet >= MARK_AFTER {
                return CommitterTask::Mark;
            }
            if matches!(self.durability, Durability::Interval(_)) {
                return CommitterTask::Sync;
            }
        }
    }
}

/// The loop of the thread that creates spare files.
fn make_spares(shared: &LogState) {
    let mut spare = lock(&shared.spare);
    loop {
        match &*spare {
            Spare::Stopped => return,
            Spare::Requested(new) => {
                let new = *new;
                drop(spare);
                let made = file::make(&shared.disk, &shared.dir, shared.store, new);
                spare = lock(&shared.spare);
                if matches!(*spare, Spare::Requested(_)) {
                    *spare = made.map_or_else(Spare::Failed, Spare::Ready);
                }
                shared.spare_changed.notify_all();
            }
            _ => spare = shared.spare_changed.wait(spare).ignore_poison(),
        }
    }
}
