//! Who writes the log: numbers what waits, writes it, syncs it, applies it and answers, in this order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Apply, Draft, FullFile, QUEUE_BYTES_MAX, Reply, Resume, Shared, Spare, lock};
use crate::clock::Stopwatch;
use crate::kv::descriptors::is_transient;
use crate::kv::keyed::RecordKey;
use crate::kv::ops;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::AppendError;
use crate::tsdb::options::Durability;
use crate::tsdb::report::Writes;
use crate::tsdb::wal::file::{LARGE_BYTES, LogFile, NewFile, SMALL_BYTES};
use crate::tsdb::wal::record::{Kind, Layout, Mark, NewRecord, OrgSpan, encode_switch, record_bytes};

/// A group: 1 MiB of records,
const GROUP_BYTES_MAX: usize = 1 << 20;
/// or so many.
const GROUP_RECORDS_MAX: usize = 256;
/// Bytes that wait for a sync at most: with a group behind them they stay below what a torn tail may have.
const UNSYNCED_BYTES_MAX: u64 = 2 << 20;
/// A file that is half full within this makes the next one large: full within 10 s.
const FAST_HALF: Duration = Duration::from_secs(5);
/// How often free space is asked for besides before each new file.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// What has been written and not synced.
#[derive(Debug)]
struct Unsynced {
    since: Stopwatch,
    bytes: u64,
}

/// Numbers, writes, syncs and applies. Whoever holds it is the only one.
pub(super) struct Committer {
    shared: Arc<Shared>,
    apply: Apply,
    file: LogFile,
    offset: u32,
    /// The last number written,
    written: u64,
    /// and the last one synced.
    durable: u64,
    unsynced: Option<Unsynced>,
    /// The file is new: its first record is a mark with what the file before held.
    first_mark: Option<Vec<OrgSpan>>,
    spans: BTreeMap<OrgId, OrgSpan>,
    buffer: Vec<u8>,
    /// Bytes from the offset on that a write which failed may have left in the file.
    remains: usize,
    key: RecordKey,
    /// New files so far, so that each has a secret of its own.
    made: Cell<u64>,
    /// Syncs of the file at hand since it was opened, and the bytes that they made durable.
    file_syncs: u64,
    synced_bytes: u64,
    since_file: Stopwatch,
    since_space: Stopwatch,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer")
            .field("file", &self.file)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl Committer {
    /// One that goes on where the log ended.
    pub(super) fn new(shared: Arc<Shared>, apply: Apply, resume: Resume) -> Committer {
        let Resume { file, offset, first_mark, last_seq, spans, key, .. } = resume;
        Committer {
            shared,
            apply,
            written: last_seq,
            durable: last_seq,
            unsynced: None,
            offset,
            first_mark,
            file,
            spans,
            buffer: Vec::new(),
            remains: 0,
            key,
            made: Cell::new(0),
            file_syncs: 0,
            synced_bytes: 0,
            since_file: Stopwatch::start(),
            since_space: Stopwatch::start(),
        }
    }

    /// The last record that is on the disk.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Takes what waits, up to a group, and writes it; false where nothing waits.
    pub(super) fn write_group(&mut self) -> bool {
        let mut queue = lock(&self.shared.queue);
        let mut group = Vec::with_capacity(queue.drafts.len().min(GROUP_RECORDS_MAX));
        let crowded = queue.bytes > QUEUE_BYTES_MAX;
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
        if group.is_empty() {
            return false;
        }
        if crowded {
            self.shared.room.notify_all();
        }
        self.write(group);
        true
    }

    /// Makes a group durable, in as many writes as it touches files.
    fn write(&mut self, group: Vec<(Draft, Reply)>) {
        let gives_space = group.iter().all(|(draft, _)| draft.kind.gives_space());
        if !gives_space && self.since_space.elapsed() >= SPACE_EVERY {
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
            if self.room() < self.file.layout.record_bytes(draft.body.len())
                && let Err(why) = self.switch(draft.kind.gives_space())
            {
                return self.shared.refuse_all(left.collect(), &why);
            }
            self.buffer.clear();
            let mut seq = self.written;
            // Taken once it is written: a write that finds no resources is tried again.
            if let Some(orgs) = self.first_mark.clone() {
                seq += 1;
                let mark = Mark { durable: self.durable, orgs }.encode();
                let record = NewRecord { seq, org: OrgId(0), kind: Kind::Mark, durable: self.durable };
                self.file.layout.put(&mut self.buffer, record, &mark);
            }
            let (room, layout) = (self.room(), self.file.layout);
            let first_seq = seq + 1;
            let mut records = Vec::new();
            while let Some((draft, reply)) =
                left.next_if(|(draft, _)| self.buffer.len() + layout.record_bytes(draft.body.len()) <= room)
            {
                seq += 1;
                let record = NewRecord { seq, org: draft.org, kind: draft.kind, durable: self.durable };
                layout.put(&mut self.buffer, record, &draft.body);
                records.push((draft, reply));
            }
            let at_once = records.iter().any(|(draft, _): &(Draft, Reply)| draft.kind.is_synced_at_once());
            if let Err(why) = self.write_buffer(seq, at_once) {
                return self.shared.refuse_all(records.into_iter().chain(left).collect(), &why);
            }
            self.first_mark = None;
            for (seq, (draft, _)) in (first_seq..).zip(&records) {
                let fresh = OrgSpan { org: draft.org, greatest_ms: i64::MIN, last_seq: 0 };
                let span = self.spans.entry(draft.org).or_insert(fresh);
                span.greatest_ms = span.greatest_ms.max(draft.greatest_ms);
                span.last_seq = seq;
            }
            self.shared.counters.records.fetch_add(records.len() as u64, Ordering::Relaxed);
            self.shared.groups.fetch_add(1, Ordering::Release);
            if self.shared.vouched.swap(false, Ordering::AcqRel) {
                // The log's own thread begins to count the time until the mark. It looks and waits under this lock.
                let _looking = lock(&self.shared.queue);
                self.shared.work.notify_one();
            }
            if let Err(why) = self.apply(first_seq, records) {
                return self.shared.refuse_all(left.collect(), &why);
            }
            self.prepare_spare();
        }
    }

    /// Puts records into the head, in their order, and answers.
    fn apply(&mut self, first_seq: u64, records: Vec<(Draft, Reply)>) -> Result<(), AppendError> {
        let mut records = (first_seq..).zip(records);
        while let Some((seq, (draft, reply))) = records.next() {
            match (self.apply)(seq, &draft) {
                Ok(outcome) => {
                    self.shared.counters.applied_seq.store(seq, Ordering::Release);
                    reply.send(Ok(outcome));
                }
                Err(e) => {
                    let why = AppendError::Fenced(format!("record {seq} cannot be applied: {e}"));
                    let left = records.map(|(_, record)| record);
                    self.shared.refuse_all(std::iter::once((draft, reply)).chain(left).collect(), &why);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Says that everything so far is durable. Where the file has no room the next file's first mark says it.
    pub(super) fn mark(&mut self) {
        self.shared.vouched.store(true, Ordering::Release);
        if let Err(why) = self.sync() {
            return self.shared.refuse_all(Vec::new(), &why);
        }
        let mark = Mark { durable: self.durable, orgs: Vec::new() }.encode();
        if self.room() < self.file.layout.record_bytes(mark.len()) {
            return;
        }
        if !self.put_mark(&mark) {
            // It is written a while later, or by the next group.
            self.shared.vouched.store(false, Ordering::Release);
        }
    }

    /// Writes a mark; false where there are no resources for it now.
    fn put_mark(&mut self, mark: &[u8]) -> bool {
        self.buffer.clear();
        let seq = self.written + 1;
        let record = NewRecord { seq, org: OrgId(0), kind: Kind::Mark, durable: self.durable };
        self.file.layout.put(&mut self.buffer, record, mark);
        match self.write_buffer(seq, true) {
            Ok(()) => true,
            Err(AppendError::OutOfResources(_)) => false,
            Err(why) => {
                self.shared.refuse_all(Vec::new(), &why);
                true
            }
        }
    }

    /// Bytes for records; the switch's own are kept free. A file of version 1 takes its switch and nothing else: senders
    /// can make records that verify there.
    fn room(&self) -> usize {
        match self.file.layout {
            Layout::Keyed(_) => self.left().saturating_sub(self.file.layout.switch_bytes()),
            Layout::Plain | Layout::Lost => 0,
        }
    }

    /// Bytes of the file that nothing was written to.
    const fn left(&self) -> usize {
        self.file.bytes.saturating_sub(self.offset) as usize
    }

    fn is_at_first_record(&self) -> bool {
        self.offset as usize == self.file.layout.first_record()
    }

    /// One write, and in the usual mode one sync. `at_once`: in every mode.
    fn write_buffer(&mut self, last_seq: u64, at_once: bool) -> Result<(), AppendError> {
        if self.is_at_first_record() {
            self.shared.counters.file_first_seq.store(self.written + 1, Ordering::Release);
        }
        self.clear_remains()?;
        let disk = &self.shared.disk;
        let (file, path, bytes) = (&self.file.file, &self.file.path, self.buffer.len());
        if let Err(e) = disk.write_log(file, path, &self.buffer, u64::from(self.offset)) {
            let why = self.failed("write", &e);
            if matches!(why, AppendError::OutOfResources(_)) {
                self.remains = bytes;
                self.clear_remains()?;
            }
            return Err(why);
        }
        let counters = &self.shared.counters;
        counters.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counters.last_seq.store(last_seq, Ordering::Relaxed);
        self.written = last_seq;
        let unsynced = self.unsynced.get_or_insert_with(|| Unsynced { since: Stopwatch::start(), bytes: 0 });
        unsynced.bytes += bytes as u64;
        let synced = if at_once { self.sync() } else { self.sync_if_needed() };
        // A failure has named the place where these bytes begin.
        self.offset = self.offset.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        synced
    }

    /// Zeroes what a write that failed may have left behind the last record: of a shorter group in its place, what stands
    /// behind would be read as the next records.
    fn clear_remains(&mut self) -> Result<(), AppendError> {
        if self.remains > 0 {
            let LogFile { file, path, .. } = &self.file;
            ops::write_zeros(file, path, self.remains, u64::from(self.offset))
                .map_err(|e| self.failed("clear", &e))?;
            self.remains = 0;
        }
        Ok(())
    }

    /// Whether nothing stands behind the last record, such as a switch to a file that is to be removed; clears it.
    pub(super) fn is_clear(&mut self) -> bool {
        self.clear_remains().is_ok()
    }

    /// Why an operation on the file's bytes from the offset on fails: for want of something that comes back, or for good.
    fn failed(&self, what: &str, e: &std::io::Error) -> AppendError {
        let words = format!("{what} {} at byte {}: {e}", self.file.path.display(), self.offset);
        if is_transient(e) { AppendError::OutOfResources(words) } else { AppendError::Fenced(words) }
    }

    fn sync_if_needed(&mut self) -> Result<(), AppendError> {
        match (self.shared.durability, &self.unsynced) {
            // Half of the interval is left for the sync itself, and for a thread that is late.
            (Durability::Interval(interval), Some(unsynced))
                if unsynced.since.elapsed() < interval / 2 && unsynced.bytes < UNSYNCED_BYTES_MAX =>
            {
                Ok(())
            }
            _ => self.sync(),
        }
    }

    /// For the log's own thread, when nobody else comes by.
    pub(super) fn sync_if_due(&mut self) {
        if let Err(why) = self.sync_if_needed() {
            self.shared.refuse_all(Vec::new(), &why);
        }
    }

    /// Makes what is written durable.
    pub(super) fn sync(&mut self) -> Result<(), AppendError> {
        let Some(bytes) = self.unsynced.as_ref().map(|unsynced| unsynced.bytes) else { return Ok(()) };
        // Whatever the reason, what a sync that failed left behind is unknown.
        self.shared.disk.sync_log(&self.file.file, &self.file.path).map_err(|e| {
            AppendError::Fenced(format!("sync {} at byte {}: {e}", self.file.path.display(), self.offset))
        })?;
        self.unsynced = None;
        self.durable = self.written;
        self.shared.counters.durable_seq.store(self.durable, Ordering::Release);
        self.file_syncs += 1;
        self.synced_bytes += bytes;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves a small file at hand that nothing was written to but its first mark, and no spare.
    pub(super) fn settle(&mut self) {
        if !matches!(lock(&self.shared.queue).writes, Writes::Open) || !self.is_clear() {
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
                *spare = Spare::Wanted(NewFile { bytes: SMALL_BYTES, group_bytes: 0, ..self.next_file() });
                self.shared.spare_changed.notify_all();
            }
        }
        match self.switch(false) {
            Ok(()) => {
                // A file is never the log's only one without a record that says how far the log was.
                let orgs = self.first_mark.clone().unwrap_or_default();
                let mark = Mark { durable: self.durable, orgs }.encode();
                if self.put_mark(&mark) {
                    self.first_mark = None;
                    self.shared.vouched.store(true, Ordering::Release);
                }
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
        let number = self.file.number;
        self.made.set(self.made.get() + 1);
        let key = self.key.derive(number + 1, self.made.get());
        let group_bytes = self.synced_bytes / self.file_syncs.max(1);
        NewFile { number: number + 1, before: number, bytes, created_ms, urgent: false, key, group_bytes }
    }

    /// Has the next file made ready once this one is half full.
    fn prepare_spare(&self) {
        let first = u32::try_from(self.file.layout.first_record()).unwrap_or(u32::MAX);
        if self.offset.saturating_sub(first) < self.file.bytes.saturating_sub(first) / 2 {
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
        if self.left() < self.file.layout.switch_bytes() {
            self.clear_remains()?;
            return self.sync();
        }
        self.buffer.clear();
        let seq = self.written + 1;
        let body = encode_switch(next);
        let record = NewRecord { seq, org: OrgId(0), kind: Kind::Switch, durable: self.durable };
        self.file.layout.put(&mut self.buffer, record, &body);
        self.write_buffer(seq, true)
    }

    /// Goes on in the next file.
    fn switch(&mut self, urgent: bool) -> Result<(), AppendError> {
        let mut spare = lock(&self.shared.spare);
        // That there was no room or no descriptor when half of this file was written says nothing of now.
        let is_wanted = match &*spare {
            Spare::None => true,
            Spare::Failed(why) => why.is_transient(),
            Spare::Wanted(_) | Spare::Ready(_) | Spare::Over => false,
        };
        if is_wanted {
            let next = self.next_file();
            let bytes = if urgent { SMALL_BYTES } else { next.bytes };
            *spare = Spare::Wanted(NewFile { bytes, urgent, ..next });
            self.shared.spare_changed.notify_all();
        }
        while matches!(*spare, Spare::Wanted(_)) {
            spare = self.shared.spare_changed.wait(spare).ignore_poison();
        }
        let found = std::mem::replace(&mut *spare, Spare::None);
        drop(spare);
        match found {
            Spare::Ready(file) => {
                if let Err(why) = self.leave_for(file.number) {
                    let mut spare = lock(&self.shared.spare);
                    // After any other failure the switch may be on the disk: the file stays.
                    if matches!((&why, &*spare), (AppendError::OutOfResources(_), Spare::None)) {
                        *spare = Spare::Ready(file);
                    }
                    return Err(why);
                }
                let spans: Vec<OrgSpan> = std::mem::take(&mut self.spans).into_values().collect();
                let before = std::mem::replace(&mut self.file, file);
                let counters = &self.shared.counters;
                let first_seq = counters.file_first_seq.load(Ordering::Acquire);
                lock(&self.shared.full).push(FullFile {
                    number: before.number,
                    path: before.path,
                    bytes: u64::from(before.bytes),
                    first_seq,
                    last_seq: self.written,
                    spans: Some(spans.clone()),
                });
                self.offset = u32::try_from(self.file.layout.first_record()).unwrap_or(u32::MAX);
                (self.file_syncs, self.synced_bytes) = (0, 0);
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
