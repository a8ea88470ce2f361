//! The log while it is written: records of all organisations, one committer, one sync for all that waits.
//!
//! ```text
//! handlers --submit--> queue --committer: number, one pwrite, one fdatasync--> groups --applier, in log order--> head
//!    ^                                                                                        |
//!    +------------------------------------ outcome of each record -----------------------------+
//! ```
//! The applier reads the very bytes that were logged, through the function that replay uses: what a record does to the
//! head is a function of the log alone. A failed write or sync closes the log until a restart: what a failed
//! `fdatasync` left behind is unknown, and asking again would say yes (RELIABILITY.md, fsyncgate).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::file::{self, LARGE_BYTES, LogFile, MakeError, NewFile, SMALL_BYTES};
use super::record::{Kind, Mark, OrgSpan, SWITCH_BYTES, encode_switch, put_record, record_bytes};
use crate::clock::Stopwatch;
use crate::model::{OrgId, StoreId, Timestamp};
use crate::tsdb::disk::{self, Disk};
use crate::tsdb::error::{AppendError, Damage, DiskError};
use crate::tsdb::report::Writes;

/// A group: 1 MiB of records,
const GROUP_BYTES_MAX: usize = 1 << 20;
/// or so many.
const GROUP_RECORDS_MAX: usize = 256;
/// Bodies that wait at most; then submitting waits. Every waiting body has a waiting caller, and lanes bound those.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// A body at most when writing: with its header and a first mark it fits the smallest file.
pub(in crate::tsdb) const BODY_BYTES_WRITTEN_MAX: usize = 640 << 10;
/// Where records begin: after the file's header.
pub(in crate::tsdb) const FIRST_OFFSET: u32 = 64;
/// Groups that wait to be applied.
const GROUPS_MAX: usize = 4;
/// After so long without traffic a mark vouches for the last group.
const MARK_AFTER: Duration = Duration::from_millis(100);
/// A file that is half full within this makes the next one large: full within 10 s.
const FAST_HALF: Duration = Duration::from_secs(5);
/// How often free space is asked for besides before each new file.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// A record before it has a number.
#[derive(Debug)]
pub(in crate::tsdb) struct Draft {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: Kind,
    pub(in crate::tsdb) body: Vec<u8>,
    /// The greatest time of a sample in it; the least possible if it has none.
    pub(in crate::tsdb) greatest_ms: i64,
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
}

/// Puts a durable record into the head. Called by one thread, in order of seq.
///
/// A record that was just written and cannot be read is a defect: it closes the log.
pub(in crate::tsdb) type Apply = Box<dyn FnMut(u64, OrgId, Kind, &[u8]) -> Result<Outcome, Damage> + Send>;

type Reply = Sender<Result<Outcome, AppendError>>;

/// Where the log goes on.
#[derive(Debug)]
pub(in crate::tsdb) struct Resume {
    pub(in crate::tsdb) file: LogFile,
    pub(in crate::tsdb) offset: u32,
    /// The file has no record yet: what its first mark says of the file before.
    pub(in crate::tsdb) first_mark: Option<Vec<OrgSpan>>,
    pub(in crate::tsdb) last_seq: u64,
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
    /// Files before the one at hand, in order of number.
    full: Mutex<Vec<FullFile>>,
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        resume: Resume,
        apply: Apply,
    ) -> std::io::Result<Log> {
        let counters = Counters::default();
        counters.files.store(resume.files, Ordering::Relaxed);
        counters.file_bytes.store(resume.file_bytes, Ordering::Relaxed);
        counters.last_seq.store(resume.last_seq, Ordering::Relaxed);
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
            full: Mutex::new(resume.full),
        });
        let (groups, to_apply) = mpsc::sync_channel(GROUPS_MAX);
        let committer = Committer {
            shared: Arc::clone(&shared),
            groups,
            durable: resume.last_seq,
            offset: resume.offset,
            first_mark: resume.first_mark,
            file: resume.file,
            spans: resume.spans,
            buffer: Vec::new(),
            vouched: true,
            since_file: Stopwatch::start(),
            since_space: Stopwatch::start(),
        };
        let log = Log { shared: Arc::clone(&shared), threads: Mutex::new(Vec::new()) };
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| -> std::io::Result<()> {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
            lock(&log.threads).push(thread);
            Ok(())
        };
        let for_applier = Arc::clone(&shared);
        let for_committer = Arc::clone(&shared);
        let commit = move || {
            if catch_unwind(AssertUnwindSafe(|| committer.run())).is_err() {
                // Nobody may wait for a thread that is gone.
                for_committer.refuse_all(
                    Vec::new(),
                    &AppendError::Fenced("the committing thread has ended".to_owned()),
                );
                *lock(&for_committer.spare) = Spare::Over;
                for_committer.spare_changed.notify_all();
            }
        };
        start("wal-commit", Box::new(commit))?;
        start("wal-apply", Box::new(move || apply_groups(&for_applier, &to_apply, apply)))?;
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
        let count = drafts.len();
        let (reply, outcomes) = mpsc::channel();
        let mut queue = lock(&self.shared.queue);
        self.shared.admit(&mut queue)?;
        while queue.bytes > QUEUE_BYTES_MAX && queue.writes == Writes::Open {
            queue = self.shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.shared.admit(&mut queue)?;
        queue.now_ms = queue.now_ms.max(now.as_ms());
        for draft in drafts {
            queue.bytes += draft.body.len();
            queue.drafts.push_back((draft, reply.clone()));
        }
        drop(queue);
        drop(reply);
        self.shared.work.notify_one();
        let mut done = Vec::with_capacity(count);
        while done.len() < count {
            let ended = |_| AppendError::Fenced("a thread of the log has ended".to_owned());
            done.push(outcomes.recv().map_err(ended)??);
        }
        Ok(done)
    }

    /// Whether a record would be taken now; asks for space again if there was none.
    pub(in crate::tsdb) fn admit(&self) -> Result<(), AppendError> {
        self.shared.admit(&mut lock(&self.shared.queue))
    }

    /// Whether writes are open now. Asks for space again if there was none: nobody sends to a store that says full.
    pub(in crate::tsdb) fn writes(&self) -> Writes {
        let mut queue = lock(&self.shared.queue);
        // The refusal is what the state says, too.
        drop(self.shared.admit(&mut queue));
        queue.writes.clone()
    }

    /// Goes on in a small new file unless the one at hand is still without samples, and gives the spare file back.
    /// Waits for it; does nothing where writes are closed.
    pub(in crate::tsdb) fn settle(&self) {
        let (done, settled) = mpsc::channel();
        lock(&self.shared.queue).settle = Some(done);
        self.shared.work.notify_all();
        // The committer drops it unanswered where it ends first.
        let _ = settled.recv();
    }

    /// The files before the one at hand.
    pub(in crate::tsdb) fn full_files(&self) -> Vec<FullFile> {
        lock(&self.shared.full).clone()
    }

    /// Unlinks the first files, up to and without number `end`; the caller has noted durably that the log begins there.
    ///
    /// # Errors
    /// Where the file system refuses; what could not be unlinked is removed by the next start.
    pub(in crate::tsdb) fn remove_before(&self, end: u64) -> Result<Vec<FullFile>, DiskError> {
        let mut full = lock(&self.shared.full);
        let count = full.iter().take_while(|file| file.number < end).count();
        let gone: Vec<FullFile> = full.drain(..count).collect();
        drop(full);
        for file in &gone {
            disk::remove_file(&file.path)?;
            self.shared.counters.files.fetch_sub(1, Ordering::Relaxed);
            self.shared.counters.file_bytes.fetch_sub(file.bytes, Ordering::Relaxed);
        }
        if !gone.is_empty() {
            disk::sync_dir(&self.shared.dir)?;
        }
        Ok(gone)
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
    fn admit(&self, queue: &mut Queue) -> Result<(), AppendError> {
        if let Writes::DiskFull { needed, .. } = queue.writes {
            // Resume only a tenth above the floor, so that writes do not flicker.
            match self.disk.space(&self.dir) {
                Ok(space) if space.free >= needed + needed / 10 => queue.writes = Writes::Open,
                Ok(space) => queue.writes = Writes::DiskFull { free: space.free, needed },
                Err(_) => {}
            }
        }
        match &queue.writes {
            Writes::Open => Ok(()),
            Writes::DiskFull { free, needed } => Err(AppendError::DiskFull { free: *free, needed: *needed }),
            Writes::Fenced(why) => Err(AppendError::Fenced(why.clone())),
            Writes::ReadOnly(why) => Err(AppendError::ReadOnly(why.clone())),
            Writes::Closed => Err(AppendError::Closed),
        }
    }

    /// Answers everything that waits with this refusal, and closes writes accordingly.
    fn refuse_all(&self, group: Vec<(Draft, Reply)>, why: &AppendError) {
        let waiting = {
            let mut queue = lock(&self.queue);
            if !matches!(queue.writes, Writes::Fenced(_)) {
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
            // A caller that stopped waiting needs no answer.
            drop(reply.send(Err(why.clone())));
        }
    }
}

/// A group that is durable.
struct Group {
    first_seq: u64,
    records: Vec<(Draft, Reply)>,
}

struct Committer {
    shared: Arc<Shared>,
    groups: SyncSender<Group>,
    file: LogFile,
    offset: u32,
    durable: u64,
    /// The file is new: its first record is a mark with what the file before held.
    first_mark: Option<Vec<OrgSpan>>,
    spans: BTreeMap<OrgId, OrgSpan>,
    buffer: Vec<u8>,
    /// A record says that the last group is durable.
    vouched: bool,
    since_file: Stopwatch,
    since_space: Stopwatch,
}

enum Next {
    Write(Vec<(Draft, Reply)>),
    Mark,
    Settle(Sender<()>),
    End(Closing),
}

impl Committer {
    fn run(mut self) {
        let how = loop {
            match self.next() {
                Next::Write(group) => self.write(group),
                Next::Mark => self.mark(),
                Next::Settle(done) => {
                    self.settle();
                    // Who stopped waiting needs no answer.
                    let _ = done.send(());
                }
                Next::End(how) => break how,
            }
        };
        if how == Closing::Drain && !self.vouched {
            self.mark();
        }
        self.shared.refuse_all(Vec::new(), &AppendError::Closed);
        let spare = std::mem::replace(&mut *lock(&self.shared.spare), Spare::Over);
        self.shared.spare_changed.notify_all();
        if let (Closing::Drain, Spare::Ready(file)) = (how, spare) {
            // An empty spare is harmless; the next start removes it if this does not.
            let _ = disk::remove_file(&file.path).and_then(|()| disk::sync_dir(&self.shared.dir));
        }
    }

    /// Waits for what to do.
    fn next(&self) -> Next {
        let mut queue = lock(&self.shared.queue);
        loop {
            if queue.closing == Closing::Abandon
                || (queue.closing == Closing::Drain && queue.drafts.is_empty())
            {
                return Next::End(queue.closing);
            }
            if !queue.drafts.is_empty() {
                break;
            }
            if let Some(done) = queue.settle.take() {
                return Next::Settle(done);
            }
            if self.vouched || !matches!(queue.writes, Writes::Open | Writes::DiskFull { .. }) {
                queue = self.shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.shared.work.wait_timeout(queue, MARK_AFTER);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if timeout.timed_out() && queue.drafts.is_empty() && queue.closing == Closing::No {
                return Next::Mark;
            }
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some((draft, _)) = queue.drafts.front() {
            bytes += record_bytes(draft.body.len());
            if !group.is_empty() && (bytes > GROUP_BYTES_MAX || group.len() == GROUP_RECORDS_MAX) {
                break;
            }
            queue.bytes = queue.bytes.saturating_sub(draft.body.len());
            group.extend(queue.drafts.pop_front());
        }
        drop(queue);
        self.shared.room.notify_all();
        Next::Write(group)
    }

    /// Makes a group durable, in as many writes as it touches files.
    fn write(&mut self, group: Vec<(Draft, Reply)>) {
        if self.since_space.elapsed() >= SPACE_EVERY {
            self.since_space = Stopwatch::start();
            if let Ok(space) = self.shared.disk.space(&self.shared.dir)
                && space.free < space.samples_floor()
            {
                let why = AppendError::DiskFull { free: space.free, needed: space.samples_floor() };
                return self.shared.refuse_all(group, &why);
            }
        }
        let mut left = group.into_iter().peekable();
        while let Some((draft, _)) = left.peek() {
            if self.room() < record_bytes(draft.body.len())
                && let Err(why) = self.switch()
            {
                return self.shared.refuse_all(left.collect(), &why);
            }
            self.buffer.clear();
            let mut seq = self.durable;
            if let Some(orgs) = self.first_mark.take() {
                seq += 1;
                let mark = Mark { durable: self.durable, orgs }.encode();
                put_record(&mut self.buffer, seq, OrgId(0), Kind::Mark, self.durable, &mark);
            }
            let room = self.room();
            let first_seq = seq + 1;
            let mut records = Vec::new();
            while let Some((draft, reply)) =
                left.next_if(|(draft, _)| self.buffer.len() + record_bytes(draft.body.len()) <= room)
            {
                seq += 1;
                put_record(&mut self.buffer, seq, draft.org, draft.kind, self.durable, &draft.body);
                let fresh = OrgSpan { org: draft.org, greatest_ms: i64::MIN, last_seq: 0 };
                let span = self.spans.entry(draft.org).or_insert(fresh);
                span.greatest_ms = span.greatest_ms.max(draft.greatest_ms);
                span.last_seq = seq;
                records.push((draft, reply));
            }
            if let Err(why) = self.sync_buffer(seq) {
                return self.shared.refuse_all(records.into_iter().chain(left).collect(), &why);
            }
            self.shared.counters.records.fetch_add(records.len() as u64, Ordering::Relaxed);
            self.vouched = false;
            if let Err(mpsc::SendError(group)) = self.groups.send(Group { first_seq, records }) {
                let why = AppendError::Fenced("the applying thread has ended".to_owned());
                return self.shared.refuse_all(group.records.into_iter().chain(left).collect(), &why);
            }
            self.prepare_spare();
        }
    }

    /// Says that everything so far is durable. Where the file has no room the next file's first mark says it.
    fn mark(&mut self) {
        self.vouched = true;
        let mark = Mark { durable: self.durable, orgs: Vec::new() }.encode();
        if self.room() < record_bytes(mark.len()) {
            return;
        }
        self.put_mark(&mark);
    }

    fn put_mark(&mut self, mark: &[u8]) {
        self.buffer.clear();
        let seq = self.durable + 1;
        put_record(&mut self.buffer, seq, OrgId(0), Kind::Mark, self.durable, mark);
        if let Err(why) = self.sync_buffer(seq) {
            self.shared.refuse_all(Vec::new(), &why);
        }
    }

    /// Bytes for records; the switch's own are kept free.
    fn room(&self) -> usize {
        (self.file.bytes.saturating_sub(self.offset) as usize).saturating_sub(SWITCH_BYTES)
    }

    /// One write, one sync.
    fn sync_buffer(&mut self, last_seq: u64) -> Result<(), AppendError> {
        let disk = &self.shared.disk;
        if self.offset == FIRST_OFFSET {
            self.shared.counters.file_first_seq.store(self.durable + 1, Ordering::Release);
        }
        let failed = |what: &str, e: std::io::Error| {
            AppendError::Fenced(format!("{what} {} at byte {}: {e}", self.file.path.display(), self.offset))
        };
        disk.write_log(&self.file.file, &self.file.path, &self.buffer, u64::from(self.offset))
            .map_err(|e| failed("write", e))?;
        disk.sync_log(&self.file.file, &self.file.path).map_err(|e| failed("sync", e))?;
        self.offset = self.offset.saturating_add(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX));
        self.durable = last_seq;
        let counters = &self.shared.counters;
        counters.syncs.fetch_add(1, Ordering::Relaxed);
        counters.written_bytes.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
        counters.last_seq.store(last_seq, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves a small file at hand that nothing was written to but its first mark, and no spare.
    fn settle(&mut self) {
        if !matches!(lock(&self.shared.queue).writes, Writes::Open) {
            return;
        }
        let spare = {
            let mut spare = lock(&self.shared.spare);
            // One that is being made is small work; it goes with the next settling.
            if matches!(*spare, Spare::Ready(_)) {
                std::mem::replace(&mut *spare, Spare::None)
            } else {
                Spare::None
            }
        };
        if let Spare::Ready(file) = spare {
            // An empty spare is harmless; the next start removes it if this does not.
            let _ = disk::remove_file(&file.path).and_then(|()| disk::sync_dir(&self.shared.dir));
        }
        if self.file.bytes == SMALL_BYTES && self.spans.is_empty() {
            return;
        }
        {
            let mut spare = lock(&self.shared.spare);
            if matches!(*spare, Spare::None) {
                *spare = Spare::Wanted(NewFile { bytes: SMALL_BYTES, ..self.next_file() });
                self.shared.spare_changed.notify_all();
            }
        }
        match self.switch() {
            Ok(()) => {
                // A file is never the log's only one without a record that says how far the log was.
                let orgs = self.first_mark.take().unwrap_or_default();
                let mark = Mark { durable: self.durable, orgs }.encode();
                self.put_mark(&mark);
                self.vouched = true;
            }
            Err(why @ AppendError::Fenced(_)) => self.shared.refuse_all(Vec::new(), &why),
            // Nothing waits for this file: it is tried again when one is needed, and told then.
            Err(_) => {}
        }
    }

    fn next_file(&self) -> NewFile {
        let fast = self.since_file.elapsed() < FAST_HALF;
        let created_ms = lock(&self.shared.queue).now_ms;
        let bytes = if fast { LARGE_BYTES } else { SMALL_BYTES };
        NewFile { number: self.file.number + 1, before: self.file.number, bytes, created_ms }
    }

    /// Has the next file made ready once this one is half full.
    fn prepare_spare(&self) {
        if self.offset < self.file.bytes / 2 {
            return;
        }
        let mut spare = lock(&self.shared.spare);
        if matches!(*spare, Spare::None) {
            *spare = Spare::Wanted(self.next_file());
            self.shared.spare_changed.notify_all();
        }
    }

    /// Says, durably, that the log goes on in a file that is there. A file filled by an earlier version, to its last
    /// bytes, has no room to say so.
    fn leave_for(&mut self, next: u64) -> Result<(), AppendError> {
        if (self.file.bytes.saturating_sub(self.offset) as usize) < SWITCH_BYTES {
            return Ok(());
        }
        self.buffer.clear();
        let seq = self.durable + 1;
        put_record(&mut self.buffer, seq, OrgId(0), Kind::Switch, self.durable, &encode_switch(next));
        self.sync_buffer(seq)
    }

    /// Goes on in the next file.
    fn switch(&mut self) -> Result<(), AppendError> {
        let mut spare = lock(&self.shared.spare);
        if matches!(*spare, Spare::None) {
            *spare = Spare::Wanted(self.next_file());
            self.shared.spare_changed.notify_all();
        }
        while matches!(*spare, Spare::Wanted(_)) {
            spare = self.shared.spare_changed.wait(spare).unwrap_or_else(PoisonError::into_inner);
        }
        let found = std::mem::replace(&mut *spare, Spare::None);
        drop(spare);
        match found {
            Spare::Ready(file) => {
                self.leave_for(file.number)?;
                let spans: Vec<OrgSpan> = std::mem::take(&mut self.spans).into_values().collect();
                let before = std::mem::replace(&mut self.file, file);
                let counters = &self.shared.counters;
                let first_seq = counters.file_first_seq.load(Ordering::Acquire);
                lock(&self.shared.full).push(FullFile {
                    number: before.number,
                    path: before.path,
                    bytes: u64::from(before.bytes),
                    first_seq,
                    last_seq: self.durable,
                    spans: Some(spans.clone()),
                });
                self.offset = FIRST_OFFSET;
                self.first_mark = Some(spans);
                self.since_file = Stopwatch::start();
                self.shared.counters.files.fetch_add(1, Ordering::Relaxed);
                self.shared.counters.file_bytes.fetch_add(u64::from(self.file.bytes), Ordering::Relaxed);
                Ok(())
            }
            Spare::Failed(why) => Err(why.refusal()),
            Spare::None | Spare::Wanted(_) | Spare::Over => Err(AppendError::Closed),
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
            _ => spare = shared.spare_changed.wait(spare).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The thread that puts durable records into the head and answers.
fn apply_groups(shared: &Shared, groups: &Receiver<Group>, mut apply: Apply) {
    while let Ok(group) = groups.recv() {
        for (seq, (draft, reply)) in (group.first_seq..).zip(group.records) {
            let outcome = match apply(seq, draft.org, draft.kind, &draft.body) {
                Ok(outcome) => outcome,
                Err(e) => {
                    let why = AppendError::Fenced(format!("record {seq} cannot be applied: {e}"));
                    return shared.refuse_all(vec![(draft, reply)], &why);
                }
            };
            shared.counters.applied_seq.store(seq, Ordering::Release);
            // A caller that stopped waiting needs no answer.
            drop(reply.send(Ok(outcome)));
        }
    }
}
