//! The writer of the log. It numbers queued records, writes, syncs and applies them, and replies,
//! in this order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::copy::CopiedRecord;
use super::tail::CurrentFile;
use super::{Apply, Draft, FullFile, LogState, QUEUE_BYTES_MAX, Reply, Resume, Spare, lock};
use crate::clock::Stopwatch;
use crate::kv::descriptors::is_transient;
use crate::kv::keyed::RecordKey;
use crate::kv::ops;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::{AppendError, CopyError};
use crate::tsdb::options::Durability;
use crate::tsdb::report::Writes;
use crate::tsdb::wal::file::{LARGE_BYTES, LogFile, NewFile, SMALL_BYTES};
use crate::tsdb::wal::record::{
    Layout, Mark, NewRecord, OrgSpan, RecordKind, encode_switch, parse_switch, record_bytes,
};

/// The limit of the records of a group, in bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// The limit of the number of records in a group.
const GROUP_RECORDS_MAX: usize = 256;
/// The limit of unsynced bytes. Together with a following group they stay below the limit of a torn
/// tail.
const UNSYNCED_BYTES_MAX: u64 = 2 << 20;
/// If half of a file fills within this time, the next file is large (see `LARGE_BYTES`).
const FAST_HALF: Duration = Duration::from_secs(5);
/// The interval between checks of free space, in addition to the check before each new file.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// The record bytes that are written and not synced.
#[derive(Debug)]
struct Unsynced {
    since: Stopwatch,
    bytes: u64,
}

/// The state of the log's single writer. The lock around it makes its holder the only writer.
pub(super) struct Committer {
    shared: Arc<LogState>,
    apply: Apply,
    file: LogFile,
    offset: u32,
    /// The number of the last record written.
    written: u64,
    /// The number of the last record synced.
    durable: u64,
    unsynced: Option<Unsynced>,
    /// Whether written records are not in the head yet.
    unapplied: bool,
    /// Set while the file is new. Its first record is then a mark with the spans of the file before
    /// it.
    first_mark: Option<Vec<OrgSpan>>,
    spans: BTreeMap<OrgId, OrgSpan>,
    buffer: Vec<u8>,
    /// The bytes after `offset` that a failed write may have left in the file.
    remains: usize,
    key: RecordKey,
    /// The number of files made so far; each gets a secret of its own.
    files_made: Cell<u64>,
    /// Syncs of the current file since it was opened.
    file_syncs: u64,
    /// The bytes that those syncs made durable.
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
    /// Creates a committer that continues where the log ended.
    pub(super) fn new(shared: Arc<LogState>, apply: Apply, resume: Resume) -> Committer {
        let Resume { file, offset, first_mark, last_seq, spans, key, .. } = resume;
        Committer {
            shared,
            apply,
            written: last_seq,
            durable: last_seq,
            unsynced: None,
            unapplied: false,
            offset,
            first_mark,
            file,
            spans,
            buffer: Vec::new(),
            remains: 0,
            key,
            files_made: Cell::new(0),
            file_syncs: 0,
            synced_bytes: 0,
            since_file: Stopwatch::start(),
            since_space: Stopwatch::start(),
        }
    }

    /// Returns the number of the last durable record.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Writes the next group of the queue. Returns false if the queue is empty.
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
            self.shared.queue_space.notify_all();
        }
        self.write(group);
        true
    }

    /// Makes a group durable. Uses one write for each file that the group touches.
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
        let mut rest = group.into_iter().peekable();
        while let Some((draft, _)) = rest.peek() {
            if self.space_for_records() < self.file.layout.record_bytes(draft.body.len())
                && let Err(why) = self.switch(draft.kind.gives_space())
            {
                return self.shared.refuse_all(rest.collect(), &why);
            }
            self.buffer.clear();
            let mut seq = self.written;
            // The mark is taken only after a successful write: a write that lacks resources is
            // retried.
            if let Some(orgs) = self.first_mark.clone() {
                seq += 1;
                let mark = Mark { durable: self.durable, orgs }.encode();
                let record = NewRecord { seq, org: OrgId(0), kind: RecordKind::Mark, durable: self.durable };
                self.file.layout.put(&mut self.buffer, record, &mark);
            }
            let (space, layout) = (self.space_for_records(), self.file.layout);
            let first_seq = seq + 1;
            let mut records = Vec::new();
            while let Some((draft, reply)) =
                rest.next_if(|(draft, _)| self.buffer.len() + layout.record_bytes(draft.body.len()) <= space)
            {
                seq += 1;
                let record = NewRecord { seq, org: draft.org, kind: draft.kind, durable: self.durable };
                layout.put(&mut self.buffer, record, &draft.body);
                records.push((draft, reply));
            }
            let at_once = records.iter().any(|(draft, _): &(Draft, Reply)| draft.kind.is_synced_at_once());
            self.unapplied = true;
            if let Err(why) = self.write_buffer(seq, at_once) {
                // If resources are short, no byte was written.
                self.unapplied = !matches!(why, AppendError::OutOfResources(_));
                return self.shared.refuse_all(records.into_iter().chain(rest).collect(), &why);
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
                // The log's own thread starts to count the time until the mark. It checks and waits
                // under this lock.
                let _looking = lock(&self.shared.queue);
                self.shared.work.notify_one();
            }
            if let Err(why) = self.apply(first_seq, records) {
                return self.shared.refuse_all(rest.collect(), &why);
            }
            self.unapplied = false;
            self.publish();
            self.shared.note_progress();
            self.prepare_spare();
        }
    }

    /// Applies records to the head in their order, and replies to their callers.
    fn apply(&mut self, first_seq: u64, records: Vec<(Draft, Reply)>) -> Result<(), AppendError> {
        let mut records = (first_seq..).zip(records);
        while let Some((seq, (draft, reply))) = records.next() {
            match (self.apply)(seq, &draft) {
                Ok(outcome) => {
                    self.shared.counters.applied_seq.store(seq, Ordering::Release);
                    self.shared.acknowledge(seq, &draft, reply, outcome);
                }
                Err(e) => {
                    let why = AppendError::Fenced(format!("record {seq} cannot be applied: {e}"));
                    let rest = records.map(|(_, record)| record);
                    self.shared.refuse_all(std::iter::once((draft, reply)).chain(rest).collect(), &why);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Makes the records readable for tails that are durable and in the head.
    fn publish(&self) {
        if !self.unapplied {
            self.shared.publish_readable(self.durable);
        }
    }

    /// Writes a record that all earlier ones are durable. If the file has no room, the first mark
    /// of the next file says so.
    pub(super) fn mark(&mut self) {
        self.shared.vouched.store(true, Ordering::Release);
        if let Err(why) = self.sync() {
            return self.shared.refuse_all(Vec::new(), &why);
        }
        let mark = Mark { durable: self.durable, orgs: Vec::new() }.encode();
        if self.space_for_records() < self.file.layout.record_bytes(mark.len()) {
            return;
        }
        if !self.put_mark(&mark) {
            // The mark is written later, or by the next group.
            self.shared.vouched.store(false, Ordering::Release);
        }
    }

    /// Writes a mark. Returns false if resources are short now.
    fn put_mark(&mut self, mark: &[u8]) -> bool {
        self.buffer.clear();
        let seq = self.written + 1;
        let record = NewRecord { seq, org: OrgId(0), kind: RecordKind::Mark, durable: self.durable };
        self.file.layout.put(&mut self.buffer, record, mark);
        match self.write_buffer(seq, true) {
            Ok(()) => {
                self.shared.counters.applied_seq.store(seq, Ordering::Release);
                self.shared.note_progress();
                true
            }
            Err(AppendError::OutOfResources(_)) => false,
            Err(why) => {
                self.shared.refuse_all(Vec::new(), &why);
                true
            }
        }
    }

    /// Returns the bytes that are left for records, without those reserved for the switch. Only the
    /// switch record is appended to a file of version 1, because senders can forge records that
    /// verify there.
    fn space_for_records(&self) -> usize {
        match self.file.layout {
            Layout::Keyed(_) => self.unwritten_bytes().saturating_sub(self.file.layout.switch_bytes()),
            Layout::Plain | Layout::Lost => 0,
        }
    }

    /// Returns the bytes of the file that were never written.
    const fn unwritten_bytes(&self) -> usize {
        self.file.bytes.saturating_sub(self.offset) as usize
    }

    fn is_at_first_record(&self) -> bool {
        self.offset as usize == self.file.layout.first_record()
    }

    /// Writes the buffer, and syncs it as the durability mode demands. `at_once` syncs in every
    /// mode.
    fn write_buffer(&mut self, last_seq: u64, at_once: bool) -> Result<(), AppendError> {
        if self.is_at_first_record() {
            let first_seq = self.written + 1;
            self.shared.counters.file_first_seq.store(first_seq, Ordering::Release);
            *lock(&self.shared.current) = CurrentFile { number: self.file.number, first_seq };
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
        // The offset moves after the sync, so that a failure names the first byte of this write.
        self.offset = self.offset.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.shared.counters.file_offset.store(u64::from(self.offset), Ordering::Relaxed);
        synced
    }

    /// Zeroes the bytes that a failed write may have left after the last record. If a shorter group
    /// were written in their place, the rest of them would be read as the next records.
    fn clear_remains(&mut self) -> Result<(), AppendError> {
        if self.remains > 0 {
            let LogFile { file, path, .. } = &self.file;
            ops::write_zeros(file, path, self.remains, u64::from(self.offset))
                .map_err(|e| self.failed("clear", &e))?;
            self.remains = 0;
        }
        Ok(())
    }

    /// Clears the bytes after the last record, such as a switch to a file that is to be removed.
    /// Returns whether that succeeded.
    pub(super) fn is_clear(&mut self) -> bool {
        self.clear_remains().is_ok()
    }

    /// Returns the error for a failed operation at the current offset: transient if resources are
    /// short, otherwise fatal.
    fn failed(&self, what: &str, e: &std::io::Error) -> AppendError {
        let words = format!("{what} {} at byte {}: {e}", self.file.path.display(), self.offset);
        if is_transient(e) { AppendError::OutOfResources(words) } else { AppendError::Fenced(words) }
    }

    fn sync_if_needed(&mut self) -> Result<(), AppendError> {
        match (self.shared.durability, &self.unsynced) {
            // The other half of the interval is left for the sync itself and for a late thread.
            (Durability::Interval(interval), Some(unsynced))
                if unsynced.since.elapsed() < interval / 2 && unsynced.bytes < UNSYNCED_BYTES_MAX =>
            {
                Ok(())
            }
            _ => self.sync(),
        }
    }

    /// Syncs if the interval demands it. The log's own thread calls this when no group is written.
    pub(super) fn sync_if_due(&mut self) {
        if let Err(why) = self.sync_if_needed() {
            self.shared.refuse_all(Vec::new(), &why);
        }
    }

    /// Makes all written records durable.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] for any failure.
    pub(super) fn sync(&mut self) -> Result<(), AppendError> {
        let Some(bytes) = self.unsynced.as_ref().map(|unsynced| unsynced.bytes) else { return Ok(()) };
        // The state of the disk after a failed sync is unknown, for every cause.
        self.shared.disk.sync_log(&self.file.file, &self.file.path).map_err(|e| {
            AppendError::Fenced(format!("sync {} at byte {}: {e}", self.file.path.display(), self.offset))
        })?;
        self.unsynced = None;
        self.durable = self.written;
        self.shared.counters.durable_seq.store(self.durable, Ordering::Release);
        self.file_syncs += 1;
        self.synced_bytes += bytes;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.publish();
        if matches!(self.shared.durability, Durability::Interval(_)) {
            self.shared.note_progress();
        }
        Ok(())
    }

    /// Returns the number of the last record, which is written and applied.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Like [`Log::append_copied`](super::Log::append_copied).
    pub(super) fn append_copied(&mut self, records: Vec<CopiedRecord>) -> Result<(), CopyError> {
        let mut group: Vec<(u64, Draft)> = Vec::new();
        self.buffer.clear();
        for record in records {
            let expected = self.written + group.len() as u64 + 1;
            if record.seq != expected {
                let what = format!("record {} where {expected} follows", record.seq);
                return Err(CopyError::Diverged(what));
            }
            if record.kind == RecordKind::Switch {
                self.write_copied(&mut group)?;
                self.copy_switch(&record)?;
                // The buffer holds the switch, which is already in the previous file.
                self.buffer.clear();
                continue;
            }
            let is_full = self.buffer.len() >= GROUP_BYTES_MAX || group.len() >= GROUP_RECORDS_MAX;
            if is_full {
                self.write_copied(&mut group)?;
            }
            let is_first = self.first_mark.is_some() && group.is_empty();
            let draft = match (record.kind, is_first) {
                (RecordKind::Mark, _) => {
                    let orgs = self.first_mark.clone().filter(|_| is_first).unwrap_or_default();
                    let body = Mark { durable: self.durable, orgs }.encode();
                    Draft { is_copied: true, ..Draft::new(OrgId(0), RecordKind::Mark, body) }
                }
                (_, true) => {
                    return Err(CopyError::Diverged(format!("record {expected} is not the mark of a file")));
                }
                _ => record.into_draft()?,
            };
            if self.buffer.len() + self.file.layout.record_bytes(draft.body.len()) > self.space_for_records()
            {
                return Err(CopyError::Diverged(format!("record {expected} does not fit the log file")));
            }
            let Draft { org, kind, .. } = draft;
            let new = NewRecord { seq: expected, org, kind, durable: self.durable };
            self.file.layout.put(&mut self.buffer, new, &draft.body);
            group.push((expected, draft));
        }
        self.write_copied(&mut group)
    }

    /// Writes, syncs and applies the copied records in the buffer.
    fn write_copied(&mut self, group: &mut Vec<(u64, Draft)>) -> Result<(), CopyError> {
        let Some((last_seq, _)) = group.last() else { return Ok(()) };
        let last_seq = *last_seq;
        self.unapplied = true;
        if let Err(why) = self.write_buffer(last_seq, true) {
            // If resources are short, no byte was written.
            self.unapplied = !matches!(why, AppendError::OutOfResources(_));
            return Err(why.into());
        }
        self.buffer.clear();
        self.first_mark = None;
        self.shared.counters.records.fetch_add(group.len() as u64, Ordering::Relaxed);
        for (seq, draft) in group.drain(..) {
            if draft.kind != RecordKind::Mark {
                let fresh = OrgSpan { org: draft.org, greatest_ms: i64::MIN, last_seq: 0 };
                let span = self.spans.entry(draft.org).or_insert(fresh);
                span.greatest_ms = span.greatest_ms.max(draft.greatest_ms);
                span.last_seq = seq;
            }
            (self.apply)(seq, &draft)
                .map_err(|e| AppendError::Fenced(format!("record {seq} cannot be applied: {e}")))?;
            self.shared.counters.applied_seq.store(seq, Ordering::Release);
        }
        self.unapplied = false;
        self.publish();
        self.shared.note_progress();
        Ok(())
    }

    /// Continues in the next file, like the primary at this record.
    fn copy_switch(&mut self, record: &CopiedRecord) -> Result<(), CopyError> {
        let number = self.file.number + 1;
        if parse_switch(&record.body) != Ok(number) {
            return Err(CopyError::Diverged(format!("record {} leads to another log file", record.seq)));
        }
        let bytes = record.next_file_bytes;
        if !(SMALL_BYTES..=LARGE_BYTES).contains(&bytes) && !cfg!(test) {
            return Err(CopyError::Diverged(format!("a log file of {bytes} bytes")));
        }
        {
            let mut spare = lock(&self.shared.spare);
            match &*spare {
                Spare::Stopped => return Err(AppendError::Closed.into()),
                Spare::Ready(file) if file.bytes == bytes => {}
                Spare::Ready(file) => {
                    disk::remove_file(&file.path)?;
                    *spare = Spare::None;
                }
                _ => {}
            }
            if !matches!(*spare, Spare::Ready(_)) {
                *spare = Spare::Requested(NewFile { bytes, group_bytes: 0, ..self.next_file() });
                self.shared.spare_changed.notify_all();
            }
        }
        self.switch(false)?;
        if self.written == record.seq {
            Ok(())
        } else {
            Err(CopyError::Diverged(format!("record {} is a switch that does not fit", record.seq)))
        }
    }

    /// Switches to a small file that holds only its first mark, and removes the spare file.
    pub(super) fn settle(&mut self) {
        if self.shared.is_follower() {
            // The files of a follower are those of its primary.
            return;
        }
        if !matches!(lock(&self.shared.queue).writes, Writes::Open) || !self.is_clear() {
            return;
        }
        let spare = {
            let mut spare = lock(&self.shared.spare);
            // A spare that is being made is small and is removed at the next call.
            if matches!(*spare, Spare::Ready(_)) {
                std::mem::replace(&mut *spare, Spare::None)
            } else {
                Spare::None
            }
        };
        if let Spare::Ready(file) = spare {
            // An unused spare is harmless. The next start removes it if this fails.
            let _ = disk::remove_file(&file.path).and_then(|()| disk::sync_dir(&self.shared.dir));
        }
        if self.file.bytes == SMALL_BYTES && self.spans.is_empty() {
            return;
        }
        {
            let mut spare = lock(&self.shared.spare);
            if matches!(*spare, Spare::None) {
                *spare = Spare::Requested(NewFile { bytes: SMALL_BYTES, group_bytes: 0, ..self.next_file() });
                self.shared.spare_changed.notify_all();
            }
        }
        match self.switch(false) {
            Ok(()) => {
                // The only file of a log must have a record that states how far the log is durable.
                let orgs = self.first_mark.clone().unwrap_or_default();
                let mark = Mark { durable: self.durable, orgs }.encode();
                if self.put_mark(&mark) {
                    self.first_mark = None;
                    self.shared.vouched.store(true, Ordering::Release);
                }
            }
            Err(why @ AppendError::Fenced(_)) => self.shared.refuse_all(Vec::new(), &why),
            // No record waits for this file. The next one that needs it retries and reports the
            // error.
            Err(_) => {}
        }
    }

    fn next_file(&self) -> NewFile {
        let fast = self.since_file.elapsed() < FAST_HALF;
        let created_ms = lock(&self.shared.queue).now_ms;
        let bytes = if fast { LARGE_BYTES } else { SMALL_BYTES };
        let number = self.file.number;
        self.files_made.set(self.files_made.get() + 1);
        let key = self.key.derive(number + 1, self.files_made.get());
        let group_bytes = self.synced_bytes / self.file_syncs.max(1);
        NewFile { number: number + 1, before: number, bytes, created_ms, urgent: false, key, group_bytes }
    }

    /// Requests the next file once this one is half full.
    fn prepare_spare(&self) {
        let first = u32::try_from(self.file.layout.first_record()).unwrap_or(u32::MAX);
        if self.offset.saturating_sub(first) < self.file.bytes.saturating_sub(first) / 2 {
            return;
        }
        let mut spare = lock(&self.shared.spare);
        if matches!(*spare, Spare::None) {
            *spare = Spare::Requested(self.next_file());
            self.shared.spare_changed.notify_all();
        }
    }

    /// Writes and syncs a switch record that names the next file, which exists. A file that an
    /// earlier version filled to its last bytes has no room for a switch.
    fn leave_for(&mut self, next: u64) -> Result<(), AppendError> {
        if self.unwritten_bytes() < self.file.layout.switch_bytes() {
            self.clear_remains()?;
            return self.sync();
        }
        self.buffer.clear();
        let seq = self.written + 1;
        let body = encode_switch(next);
        let record = NewRecord { seq, org: OrgId(0), kind: RecordKind::Switch, durable: self.durable };
        self.file.layout.put(&mut self.buffer, record, &body);
        self.write_buffer(seq, true)?;
        self.shared.counters.applied_seq.store(seq, Ordering::Release);
        Ok(())
    }

    /// Continues the log in the next file.
    fn switch(&mut self, urgent: bool) -> Result<(), AppendError> {
        let mut spare = lock(&self.shared.spare);
        // A shortage of space or descriptors when this file was half full may be over by now.
        let is_wanted = match &*spare {
            Spare::None => true,
            Spare::Failed(why) => why.is_transient(),
            Spare::Requested(_) | Spare::Ready(_) | Spare::Stopped => false,
        };
        if is_wanted {
            let next = self.next_file();
            let bytes = if urgent { SMALL_BYTES } else { next.bytes };
            *spare = Spare::Requested(NewFile { bytes, urgent, ..next });
            self.shared.spare_changed.notify_all();
        }
        while matches!(*spare, Spare::Requested(_)) {
            spare = self.shared.spare_changed.wait(spare).ignore_poison();
        }
        let taken = std::mem::replace(&mut *spare, Spare::None);
        drop(spare);
        match taken {
            Spare::Ready(file) => {
                if let Err(why) = self.leave_for(file.number) {
                    let mut spare = lock(&self.shared.spare);
                    // After any other failure the switch may be on the disk, so the file stays.
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
                self.shared.counters.file_number.store(self.file.number, Ordering::Release);
                self.shared.counters.files.fetch_add(1, Ordering::Relaxed);
                self.shared.counters.file_bytes.fetch_add(u64::from(self.file.bytes), Ordering::Relaxed);
                Ok(())
            }
            Spare::Failed(why) => Err(why.refusal()),
            Spare::None | Spare::Requested(_) | Spare::Stopped => Err(AppendError::Closed),
        }
    }
}
