//! The log while it is written: records of all organisations, one sync for all that waits.
//!
//! ```text
//! callers --submit--> queue --one of them at a time: number, one pwrite, one fdatasync, apply in log order--> outcomes
//! ```
//! Whoever submits and finds nobody writing writes a group itself, so that a lone request pays for no other thread; what
//! came meanwhile is the next group, which the log's own thread takes over. One lock holds numbering, writing and
//! applying together: records reach the head in the order of their numbers.
//!
//! What is applied is what was logged, through the function that replay uses: what a record does to the head is a function
//! of the log alone. Samples are not read back from the bytes just made of them (a dev build checks that they could be). A failed write or sync closes the log until a restart: what a failed
//! `fdatasync` left behind is unknown, and asking again would say yes (docs/storage.md section 18).
//!
//! With [`Durability::Interval`] a group is applied and answered once it is written, which a killed process survives, and
//! synced at the latest within the interval, which bounds what a power cut takes. A record still says only what was
//! *synced* when it was written (its lag), so what a cut leaves of unsynced records is a torn tail to the replay, of at most
//! 2 MiB and one group. Seals, marks and switches are synced in every mode, with all that is before them.

mod committer;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use committer::Committer;

use super::file::{self, LogFile, MakeError, NewFile};
use super::record::{Kind, OrgSpan};
use super::samples::LogSample;
use super::trimmed::{Removed, Trimmed};
use crate::kv::keyed::RecordKey;
use crate::model::{OrgId, StoreId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk::{self, Disk};
use crate::tsdb::error::{AppendError, Damage};
use crate::tsdb::options::Durability;
use crate::tsdb::report::Writes;

/// Bodies that wait at most; then submitting waits. Every waiting body has a waiting caller, and lanes bound those.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// A body at most when writing: with its header and a first mark it fits the smallest file.
pub(in crate::tsdb) const BODY_BYTES_WRITTEN_MAX: usize = 640 << 10;
/// After so long without traffic a mark vouches for the last group.
const MARK_AFTER: Duration = Duration::from_millis(100);

/// A record before it has a number.
#[derive(Debug)]
pub(in crate::tsdb) struct Draft {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: Kind,
    pub(in crate::tsdb) body: Vec<u8>,
    /// What a body of [`Kind::Samples`] says.
    pub(in crate::tsdb) samples: Vec<LogSample>,
    /// The greatest time of a sample in it; the least possible if it has none.
    pub(in crate::tsdb) greatest_ms: i64,
}

impl Draft {
    /// One without samples of the usual kind.
    pub(in crate::tsdb) fn new(org: OrgId, kind: Kind, body: Vec<u8>) -> Draft {
        Draft { org, kind, body, samples: Vec::new(), greatest_ms: i64::MIN }
    }
}

/// A sample that the head refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct RefusedSample {
    pub(in crate::tsdb) series: u32,
    pub(in crate::tsdb) at_ms: i64,
    /// Bit patterns: what came and what is there.
    pub(in crate::tsdb) bits: u64,
    pub(in crate::tsdb) have: u64,
}

/// What applying a record did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct Outcome {
    pub(in crate::tsdb) stored: u64,
    pub(in crate::tsdb) refused: u64,
    /// Samples of series that nothing defines.
    pub(in crate::tsdb) orphans: u64,
    /// Of a seal, a deletion, a drop: its record's number.
    pub(in crate::tsdb) record_seq: u64,
    /// The first of the refused.
    pub(in crate::tsdb) first: Vec<RefusedSample>,
    /// Histograms among the stored.
    pub(in crate::tsdb) histograms: u64,
    /// The first of the refused histograms: series and time.
    pub(in crate::tsdb) first_histograms: Vec<(u32, i64)>,
    /// Exemplars that were not there before.
    pub(in crate::tsdb) exemplars: u64,
}

/// Puts a record, with its number, into the head. Called by one thread at a time, in order of seq.
///
/// A record that was just written and cannot be read is a defect: it closes the log.
pub(in crate::tsdb) type Apply = Box<dyn FnMut(u64, &Draft) -> Result<Outcome, Damage> + Send>;

/// Takes the outcomes of a caller's records, or why nothing of them is acknowledged. Called at most once, by whoever
/// writes the log: it must be short.
pub(in crate::tsdb) type Done = Box<dyn FnOnce(Result<Vec<Outcome>, AppendError>) + Send>;

/// Records of one caller on their way.
struct Caller {
    left: usize,
    outcomes: Vec<Outcome>,
    done: Option<Done>,
}

/// Answers the caller of a record; its records share it.
#[derive(Clone)]
struct Reply(Arc<Mutex<Caller>>);

impl Reply {
    fn new(records: usize, done: Done) -> Reply {
        let outcomes = Vec::with_capacity(records);
        Reply(Arc::new(Mutex::new(Caller { left: records, outcomes, done: Some(done) })))
    }

    /// Of one record. The caller hears of it with the last one, or at once where one failed.
    fn send(&self, outcome: Result<Outcome, AppendError>) {
        let mut caller = lock(&self.0);
        let said = match outcome {
            Ok(outcome) => {
                caller.outcomes.push(outcome);
                caller.left = caller.left.saturating_sub(1);
                (caller.left == 0).then(|| Ok(std::mem::take(&mut caller.outcomes)))
            }
            Err(why) => Some(Err(why)),
        };
        let done = said.and_then(|said| Some((caller.done.take()?, said)));
        drop(caller);
        if let Some((done, said)) = done {
            done(said);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reply").field(&lock(&self.0).left).finish()
    }
}

/// Where the log goes on.
#[derive(Debug)]
pub(in crate::tsdb) struct Resume {
    pub(in crate::tsdb) file: LogFile,
    pub(in crate::tsdb) offset: u32,
    /// The file has no record yet: what its first mark says of the file before.
    pub(in crate::tsdb) first_mark: Option<Vec<OrgSpan>>,
    pub(in crate::tsdb) last_seq: u64,
    /// Secrets of new files are derived from it. Random, of this process.
    pub(in crate::tsdb) key: RecordKey,
    /// What the file holds already.
    pub(in crate::tsdb) spans: BTreeMap<OrgId, OrgSpan>,
    /// Its first record; without one, the next.
    pub(in crate::tsdb) first_seq: u64,
    /// The files before it.
    pub(in crate::tsdb) full: Vec<FullFile>,
    pub(in crate::tsdb) files: u64,
    pub(in crate::tsdb) file_bytes: u64,
}

/// Counters of the log since the start of the process.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Counters {
    pub(in crate::tsdb) files: AtomicU64,
    pub(in crate::tsdb) file_bytes: AtomicU64,
    pub(in crate::tsdb) written_bytes: AtomicU64,
    pub(in crate::tsdb) records: AtomicU64,
    pub(in crate::tsdb) syncs: AtomicU64,
    pub(in crate::tsdb) last_seq: AtomicU64,
    /// Every record up to this one is durable.
    pub(in crate::tsdb) durable_seq: AtomicU64,
    /// Every record up to this one is in the head.
    pub(in crate::tsdb) applied_seq: AtomicU64,
    /// The first record of the file at hand.
    pub(in crate::tsdb) file_first_seq: AtomicU64,
}

/// A file that takes no more records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct FullFile {
    pub(in crate::tsdb) number: u64,
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) bytes: u64,
    pub(in crate::tsdb) first_seq: u64,
    pub(in crate::tsdb) last_seq: u64,
    /// What it holds of each organisation; none: to be looked up in the file.
    pub(in crate::tsdb) spans: Option<Vec<OrgSpan>>,
}

/// The log of a running store.
#[derive(Debug)]
pub(in crate::tsdb) struct Log {
    shared: Arc<Shared>,
    committer: Arc<Mutex<Committer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    store: StoreId,
    disk: Disk,
    counters: Counters,
    queue: Mutex<Queue>,
    /// Something to write, or the end.
    work: Condvar,
    /// The queue became shorter.
    room: Condvar,
    spare: Mutex<Spare>,
    spare_changed: Condvar,
    /// A mark says that the last group is durable.
    vouched: AtomicBool,
    /// Groups written.
    groups: AtomicU64,
    /// Callers of [`Log::flush`] who wait for their turn.
    flushes: AtomicUsize,
    durability: Durability,
    /// Files before the one at hand, in order of number.
    full: Mutex<Vec<FullFile>>,
    trimmed: Trimmed,
}

#[derive(Debug)]
struct Queue {
    drafts: VecDeque<(Draft, Reply)>,
    bytes: usize,
    writes: Writes,
    closing: Closing,
    now_ms: i64,
    /// Somebody waits for a small new file.
    settle: Option<Sender<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// After what waits.
    Drain,
    /// At once: the process ends without being asked to.
    Abandon,
}

#[derive(Debug)]
enum Spare {
    None,
    Wanted(NewFile),
    Ready(LogFile),
    Failed(MakeError),
    Over,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section here leaves its value whole; a panic elsewhere must not take the log with it.
    mutex.lock().ignore_poison()
}

impl Log {
    /// Starts the threads.
    ///
    /// # Errors
    /// Where the operating system starts none.
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
        counters.file_first_seq.store(resume.first_seq, Ordering::Relaxed);
        let queue = Queue {
            drafts: VecDeque::new(),
            bytes: 0,
            writes: Writes::Open,
            closing: Closing::No,
            now_ms: 0,
            settle: None,
        };
        let shared = Arc::new(Shared {
            dir,
            store,
            disk,
            counters,
            queue: Mutex::new(queue),
            work: Condvar::new(),
            room: Condvar::new(),
            spare: Mutex::new(Spare::None),
            spare_changed: Condvar::new(),
            vouched: AtomicBool::new(true),
            groups: AtomicU64::new(0),
            flushes: AtomicUsize::new(0),
            durability,
            full: Mutex::new(std::mem::take(&mut resume.full)),
            trimmed: Trimmed::default(),
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

    /// Makes records durable and applies them; waits for both. Consecutive numbers in this order, not one group.
    ///
    /// # Errors
    /// [`AppendError`]: nothing of it is acknowledged, though records before the failure may be kept.
    pub(in crate::tsdb) fn commit(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, AppendError> {
        let (sender, outcomes) = mpsc::channel();
        // The receiver waits below.
        self.submit(drafts, now, Box::new(move |said| drop(sender.send(said))));
        if self.write_group() {
            self.shared.work.notify_one();
        }
        let ended = |_| AppendError::Fenced("a thread of the log has ended".to_owned());
        outcomes.recv().map_err(ended)?
    }

    /// As [`Log::commit`], without waiting: `done` hears what came of it, perhaps before this returns. Unless somebody
    /// writes, what waits is written here, with what comes meanwhile: the caller should have nobody waiting for it.
    pub(in crate::tsdb) fn commit_then(&self, drafts: Vec<Draft>, now: Timestamp, done: Done) {
        self.submit(drafts, now, done);
        while self.write_group() {}
    }

    /// Puts records into the queue; waits while that is full.
    fn submit(&self, drafts: Vec<Draft>, now: Timestamp, done: Done) {
        let gives_space = drafts.iter().all(|draft| draft.kind.gives_space());
        let mut queue = lock(&self.shared.queue);
        let mut admitted = self.shared.admit(&mut queue, gives_space);
        while queue.bytes > QUEUE_BYTES_MAX && queue.writes == Writes::Open {
            queue = self.shared.room.wait(queue).ignore_poison();
            admitted = self.shared.admit(&mut queue, gives_space);
        }
        if drafts.is_empty() || admitted.is_err() {
            drop(queue);
            return done(admitted.map(|()| Vec::new()));
        }
        queue.now_ms = queue.now_ms.max(now.as_ms());
        let reply = Reply::new(drafts.len(), done);
        for draft in drafts {
            queue.bytes += draft.body.len();
            queue.drafts.push_back((draft, reply.clone()));
        }
    }

    /// Writes a group unless somebody writes: they look at the queue again when they are done. Whether more waits then,
    /// which is this caller's to see to.
    fn write_group(&self) -> bool {
        if self.shared.flushes.load(Ordering::Acquire) > 0 {
            // Who writes group after group would never let them in: the lock knows no order. The log's own thread waits.
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

    /// Makes everything durable that is applied; the last number of it.
    ///
    /// # Errors
    /// [`AppendError::Fenced`].
    pub(in crate::tsdb) fn flush(&self) -> Result<u64, AppendError> {
        self.shared.flushes.fetch_add(1, Ordering::AcqRel);
        let mut committer = lock(&self.committer);
        self.shared.flushes.fetch_sub(1, Ordering::AcqRel);
        if let Err(why) = committer.sync() {
            self.shared.refuse_all(Vec::new(), &why);
            return Err(why);
        }
        Ok(committer.durable())
    }

    /// Whether a record of samples would be taken now; asks for space again if there was none.
    pub(in crate::tsdb) fn admit(&self) -> Result<(), AppendError> {
        self.shared.admit(&mut lock(&self.shared.queue), false)
    }

    /// Whether a record that gives space back would be taken now.
    pub(in crate::tsdb) fn admit_giving_space(&self) -> Result<(), AppendError> {
        self.shared.admit(&mut lock(&self.shared.queue), true)
    }

    /// Whether writes are open now. Asks for space again if there was none: nobody sends to a store that says full.
    pub(in crate::tsdb) fn writes(&self) -> Writes {
        let mut queue = lock(&self.shared.queue);
        // The refusal is what the state says, too.
        drop(self.shared.admit(&mut queue, false));
        queue.writes.clone()
    }

    /// Takes no more records until a restart; what waits already is written. Does nothing where writes are closed.
    pub(in crate::tsdb) fn stop(&self, why: &str) {
        let mut queue = lock(&self.shared.queue);
        if matches!(queue.writes, Writes::Open | Writes::DiskFull { .. }) {
            queue.writes = Writes::Stopped(why.to_owned());
        }
        drop(queue);
        // Who waits for room must hear of it.
        self.shared.room.notify_all();
    }

    /// Goes on in a small new file unless the one at hand is still without samples, and gives the spare file back.
    /// Waits for it; does nothing where writes are closed.
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
        // The log's thread drops it unanswered where it ends first.
        let _ = settled.recv();
    }

    /// The files before the one at hand.
    pub(in crate::tsdb) fn full_files(&self) -> Vec<FullFile> {
        lock(&self.shared.full).clone()
    }

    /// Unlinks the first files, up to and without number `end`; the caller has noted durably that the log begins there.
    /// From now on they are no part of it: what cannot be unlinked does not count to its size.
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

    /// Files from before the log's beginning that could not be unlinked.
    pub(in crate::tsdb) fn trimmed(&self) -> &Trimmed {
        &self.shared.trimmed
    }

    pub(in crate::tsdb) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Writes what waits and a last mark, removes the spare file, ends the threads. A second call does nothing.
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
        self.shared.room.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A thread that panicked has said so on standard error; there is nobody else to tell.
            drop(thread.join());
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end(Closing::Abandon);
    }
}

impl Shared {
    fn admit(&self, queue: &mut Queue, gives_space: bool) -> Result<(), AppendError> {
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

    /// Answers everything that waits with this refusal, and closes writes accordingly.
    fn refuse_all(&self, group: Vec<(Draft, Reply)>, why: &AppendError) {
        let waiting = {
            let mut queue = lock(&self.queue);
            // Nothing of what waits was written, and the next request tries again.
            let goes_on = matches!(why, AppendError::OutOfResources(_));
            if !goes_on && !matches!(queue.writes, Writes::Fenced(_) | Writes::Stopped(_)) {
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
        self.room.notify_all();
        for (_, reply) in group.into_iter().chain(waiting) {
            reply.send(Err(why.clone()));
        }
    }
}

/// The log's own thread: what callers leave, marks, syncs, the end.
fn run(shared: &Shared, committer: &Mutex<Committer>) {
    let how = loop {
        match shared.next() {
            Next::Write => shared.guarded(|| lock(committer).write_group()),
            Next::Mark => shared.guarded(|| lock(committer).mark()),
            Next::Sync => shared.guarded(|| lock(committer).sync_if_due()),
            Next::Settle(done) => {
                shared.guarded(|| lock(committer).settle());
                // Who stopped waiting needs no answer.
                let _ = done.send(());
            }
            Next::End(how) => break how,
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
    // Nobody may wait for what will never come.
    lock(&shared.queue).settle = None;
    let spare = std::mem::replace(&mut *lock(&shared.spare), Spare::Over);
    shared.spare_changed.notify_all();
    if let (Closing::Drain, Spare::Ready(file)) = (how, spare)
        && lock(committer).is_clear()
    {
        // An empty spare is harmless; the next start removes it if this does not.
        let _ = disk::remove_file(&file.path).and_then(|()| disk::sync_dir(&shared.dir));
    }
}

enum Next {
    Write,
    Mark,
    Sync,
    Settle(Sender<()>),
    End(Closing),
}

impl Shared {
    /// Does something with the log; a panic closes it, since nobody may wait for what will never come.
    fn guarded<T>(&self, work: impl FnOnce() -> T) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.refuse_all(Vec::new(), &AppendError::Fenced("writing the log has panicked".to_owned()));
        }
    }

    /// Waits for what the log's own thread is to do.
    fn next(&self) -> Next {
        // A quarter of the interval: half of it may pass until a sync is begun.
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
                return Next::End(queue.closing);
            }
            if !queue.drafts.is_empty() {
                return Next::Write;
            }
            if let Some(done) = queue.settle.take() {
                return Next::Settle(done);
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
                return Next::Mark;
            }
            if matches!(self.durability, Durability::Interval(_)) {
                return Next::Sync;
            }
        }
    }
}

/// The thread that makes files ready.
fn make_spares(shared: &Shared) {
    let mut spare = lock(&shared.spare);
    loop {
        match &*spare {
            Spare::Over => return,
            Spare::Wanted(new) => {
                let new = *new;
                drop(spare);
                let made = file::make(&shared.disk, &shared.dir, shared.store, new);
                spare = lock(&shared.spare);
                if matches!(*spare, Spare::Wanted(_)) {
                    *spare = made.map_or_else(Spare::Failed, Spare::Ready);
                }
                shared.spare_changed.notify_all();
            }
            _ => spare = shared.spare_changed.wait(spare).ignore_poison(),
        }
    }
}
