//! A reader of the log behind its writer. It returns every record once the record is durable and
//! applied, in order of number.
//!
//! The reader follows the switch records from file to file and reads with `pread`, so it holds up
//! no writer. A record up to `Counters::readable_seq` was written completely before that number
//! was published. So bytes at its offset that do not verify are damage, and never a torn write.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Log, LogState, lock};
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, TailError};
use crate::tsdb::wal::file;
use crate::tsdb::wal::record::{Layout, ParsedRecord, RecordHeader, RecordKind, parse_switch};

/// The bytes of one read. A longer record is read whole.
const READ_BYTES: usize = 128 << 10;

/// A record as the log holds it.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct RawRecord<'a> {
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: RecordKind,
    pub(in crate::tsdb) body: &'a [u8],
}

/// The file that takes records.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct CurrentFile {
    pub(in crate::tsdb) number: u64,
    pub(in crate::tsdb) first_seq: u64,
}

/// A position in the log that moves towards its end.
#[derive(Debug)]
pub(in crate::tsdb) struct RawTail {
    shared: Arc<LogState>,
    /// The number of the next record.
    next: u64,
    file: Option<TailFile>,
    /// The file that the last switch named.
    next_file: Option<u64>,
    buffer: Vec<u8>,
    /// The offset of the buffer in the file.
    start: u64,
    /// Every record up to this number was complete when the buffer was read.
    fresh_to: u64,
}

/// An open log file and the offset of the next record in it.
#[derive(Debug)]
struct TailFile {
    file: File,
    path: PathBuf,
    number: u64,
    layout: Layout,
    offset: u64,
    length: u64,
}

/// A record in the buffer: its header, and the range of its body.
struct BufferedRecord {
    header: RecordHeader,
    body: std::ops::Range<usize>,
    bytes: u64,
}

impl Log {
    /// Returns a reader whose first record is `from`. The record may not exist yet.
    ///
    /// # Errors
    /// [`TailError::Trimmed`] or [`TailError::Ahead`].
    pub(in crate::tsdb) fn tail(&self, from: u64) -> Result<RawTail, TailError> {
        let end = self.shared.counters.last_seq.load(Ordering::Relaxed);
        if from > end.saturating_add(1) {
            return Err(TailError::Ahead { asked: from, last: end });
        }
        let tail = RawTail {
            shared: Arc::clone(&self.shared),
            next: from,
            file: None,
            next_file: None,
            buffer: Vec::new(),
            start: 0,
            fresh_to: 0,
        };
        match tail.shared.file_of(from) {
            Ok(_) => Ok(tail),
            Err(first) => Err(trimmed(from, first)),
        }
    }

    /// Returns the number of the last file that begins at or before record `seq`; as an error the
    /// first record that the log has, if `seq` is before it.
    pub(in crate::tsdb) fn file_of(&self, seq: u64) -> Result<u64, u64> {
        self.shared.file_of(seq)
    }

    /// Returns the number of the first record that the log has.
    pub(in crate::tsdb) fn first_seq(&self) -> u64 {
        self.shared.first_seq()
    }

    /// Returns the bytes of the records from `seq` on. Within a file, records count as equally
    /// long.
    pub(in crate::tsdb) fn bytes_from(&self, seq: u64) -> u64 {
        let counters = &self.shared.counters;
        let current = *lock(&self.shared.current);
        let last = counters.last_seq.load(Ordering::Relaxed);
        let part = |first: u64, last: u64, bytes: u64| {
            let all = last.saturating_sub(first).saturating_add(1);
            let wanted = last.saturating_add(1).saturating_sub(seq.max(first)).min(all);
            u64::try_from(u128::from(bytes) * u128::from(wanted) / u128::from(all)).unwrap_or(u64::MAX)
        };
        let full: u64 = lock(&self.shared.full)
            .iter()
            .filter(|file| file.last_seq >= seq)
            .map(|file| part(file.first_seq, file.last_seq, file.bytes))
            .sum();
        let written = counters.file_offset.load(Ordering::Relaxed);
        full.saturating_add(part(current.first_seq, last, written))
    }
}

impl LogState {
    /// Publishes that all records up to `seq` are durable and applied.
    pub(super) fn publish_readable(&self, seq: u64) {
        self.counters.readable_seq.store(seq, Ordering::SeqCst);
        if self.tails_waiting.load(Ordering::SeqCst) > 0 {
            let _checking = lock(&self.tails);
            self.tails_changed.notify_all();
        }
    }

    /// Wakes all waiting readers.
    pub(super) fn end_tails(&self) {
        self.tails_end.store(true, Ordering::SeqCst);
        let _checking = lock(&self.tails);
        self.tails_changed.notify_all();
    }

    /// Returns the number of the last readable record. Waits until that is at least `seq`, the log
    /// ends, or `wait` has passed.
    fn readable(&self, seq: u64, wait: Duration) -> u64 {
        let readable = || self.counters.readable_seq.load(Ordering::SeqCst);
        if readable() >= seq || wait.is_zero() {
            return readable();
        }
        self.tails_waiting.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.tails);
        let goes_on = |(): &mut ()| readable() < seq && !self.tails_end.load(Ordering::SeqCst);
        drop(self.tails_changed.wait_timeout_while(guard, wait, goes_on).ignore_poison());
        self.tails_waiting.fetch_sub(1, Ordering::SeqCst);
        readable()
    }

    fn first_seq(&self) -> u64 {
        let full = lock(&self.full);
        full.first().map_or_else(|| lock(&self.current).first_seq, |file| file.first_seq)
    }

    fn file_of(&self, seq: u64) -> Result<u64, u64> {
        let full = lock(&self.full);
        let current = *lock(&self.current);
        if current.first_seq <= seq {
            return Ok(current.number);
        }
        let found = full.iter().rev().find(|file| file.first_seq <= seq).map(|file| file.number);
        found.ok_or_else(|| full.first().map_or(current.first_seq, |file| file.first_seq))
    }
}

/// Returns the error for record `seq`, which is before the first record of the log.
const fn trimmed(seq: u64, first: u64) -> TailError {
    TailError::Trimmed { lost_from: seq, lost_to: first.saturating_sub(1) }
}

impl RawTail {
    /// Returns the number of the next record.
    pub(in crate::tsdb) const fn next_seq(&self) -> u64 {
        self.next
    }

    /// Returns the number of the last record that can be read now.
    pub(in crate::tsdb) fn readable_seq(&self) -> u64 {
        self.shared.counters.readable_seq.load(Ordering::SeqCst)
    }

    /// Makes record `seq`, which is not before the next one, the next one. It is found by the
    /// headers of the records before it, in the same file.
    pub(in crate::tsdb) fn skip_to(&mut self, seq: u64) {
        self.next = self.next.max(seq);
        let number = self.file.as_ref().map(|file| file.number).or(self.next_file);
        // The files in between may be removed before the next record is read.
        if self.shared.file_of(self.next).is_ok_and(|of_next| Some(of_next) != number) {
            (self.file, self.next_file) = (None, None);
        }
    }

    /// Returns the next record. Waits at most `wait` for a record, and returns no record if none
    /// arrives in time.
    ///
    /// # Errors
    /// [`TailError`]. The position does not change, so the same record is tried again.
    pub(in crate::tsdb) fn next(&mut self, wait: Duration) -> Result<Option<RawRecord<'_>>, TailError> {
        if self.shared.readable(self.next, wait) < self.next {
            let is_over = self.shared.tails_end.load(Ordering::SeqCst);
            return if is_over { Err(TailError::Closed) } else { Ok(None) };
        }
        let (found, kind) = self.found().inspect_err(|_| {
            // The next attempt reads the file again, which may have been repaired.
            self.fresh_to = 0;
        })?;
        self.next += 1;
        let RecordHeader { seq, org, .. } = found.header;
        let body = self.buffer.get(found.body).unwrap_or_default();
        Ok(Some(RawRecord { seq, org, kind, body }))
    }

    /// Puts the next record into the buffer and moves the offset behind it.
    fn found(&mut self) -> Result<(BufferedRecord, RecordKind), TailError> {
        loop {
            let found = self.buffered()?;
            let header = found.header;
            if header.seq > self.next {
                return Err(self.damage("records are missing before it"));
            }
            let Some(kind) = header.kind else { return Err(self.damage("written by a newer version")) };
            let body = self.buffer.get(found.body.clone()).unwrap_or_default();
            let next_file = if kind == RecordKind::Switch { parse_switch(body).ok() } else { None };
            if kind == RecordKind::Switch && next_file.is_none() {
                return Err(self.damage("the switch names no file"));
            }
            if let Some(file) = &mut self.file {
                file.offset += found.bytes;
            }
            if next_file.is_some() {
                (self.file, self.next_file) = (None, next_file);
            }
            if header.seq == self.next {
                return Ok((found, kind));
            }
        }
    }

    /// Puts the record at the current offset into the buffer, and opens the next file if this one
    /// has no further record.
    fn buffered(&mut self) -> Result<BufferedRecord, TailError> {
        if self.file.is_none() {
            let number = match self.next_file {
                Some(number) => number,
                None => self.file_of_next()?,
            };
            self.open(number)?;
        }
        match self.parsed()? {
            Some(found) => Ok(found),
            None => {
                // Earlier versions filled files to the last byte, without a switch.
                let number = self.file_of_next()?;
                if self.file.as_ref().is_none_or(|file| file.number >= number) {
                    return Err(self.damage("the log ends before a record that was written"));
                }
                self.open(number)?;
                let found = self.parsed()?;
                found.ok_or_else(|| self.damage("there is no record, though later files have some"))
            }
        }
    }

    fn file_of_next(&self) -> Result<u64, TailError> {
        self.shared.file_of(self.next).map_err(|first| trimmed(self.next, first))
    }

    fn open(&mut self, number: u64) -> Result<(), TailError> {
        let path = file::path_of(&self.shared.dir, number);
        let Some(file) = disk::open_to_read(&path)? else {
            let first = self.shared.first_seq();
            return Err(if first > self.next {
                trimmed(self.next, first)
            } else {
                TailError::Damaged { path, offset: 0, what: "the file is missing" }
            });
        };
        let length = disk::length(&file, &path)?;
        let wanted =
            usize::try_from(length).map_or(KEYED_FILE_HEADER_BYTES, |l| l.min(KEYED_FILE_HEADER_BYTES));
        let mut start = vec![0; wanted];
        file.read_exact_at(&mut start, 0).map_err(DiskError::at("read", &path))?;
        let layout = Layout::of(&start, number);
        let offset = layout.first_record() as u64;
        self.file = Some(TailFile { file, path, number, layout, offset, length });
        self.next_file = None;
        self.buffer.clear();
        (self.start, self.fresh_to) = (0, 0);
        Ok(())
    }

    /// Parses the record at the current offset; none if the file has no more records.
    fn parsed(&mut self) -> Result<Option<BufferedRecord>, TailError> {
        let Some(TailFile { layout, offset, .. }) = &self.file else { return Ok(None) };
        let (layout, offset) = (*layout, *offset);
        self.fill(layout.header_bytes())?;
        let promised = layout.promised_bytes(self.buffer_from(offset));
        self.fill(promised)?;
        let at = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let what = match layout.parse(self.buffer_from(offset)) {
            ParsedRecord::Record(header, body, bytes) => {
                let start = at + layout.header_bytes();
                let body = start..start + body.len();
                return Ok(Some(BufferedRecord { header, body, bytes: bytes as u64 }));
            }
            ParsedRecord::End => return Ok(None),
            ParsedRecord::Unreadable(..) => "the body of the record does not verify",
            ParsedRecord::Bad(what) => what,
        };
        Err(self.damage(what))
    }

    fn buffer_from(&self, offset: u64) -> &[u8] {
        let skip = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default()
    }

    /// Reads until the buffer has `bytes` bytes from the current offset on, fewer at the end of the
    /// file. Bytes that were read before the next record was complete are read again.
    fn fill(&mut self, bytes: usize) -> Result<(), TailError> {
        let Some(file) = &self.file else { return Ok(()) };
        let left = usize::try_from(file.length.saturating_sub(file.offset)).unwrap_or(usize::MAX);
        let wanted = bytes.min(left);
        if self.fresh_to >= self.next && self.buffer_from(file.offset).len() >= wanted {
            return Ok(());
        }
        let fresh_to = self.shared.counters.readable_seq.load(Ordering::SeqCst);
        self.buffer.resize(wanted.max(READ_BYTES).min(left), 0);
        file.file.read_exact_at(&mut self.buffer, file.offset).map_err(DiskError::at("read", &file.path))?;
        (self.start, self.fresh_to) = (file.offset, fresh_to);
        Ok(())
    }

    fn damage(&self, what: &'static str) -> TailError {
        let (path, offset) = match &self.file {
            Some(file) => (file.path.clone(), file.offset),
            None => (self.shared.dir.clone(), 0),
        };
        TailError::Damaged { path, offset, what }
    }
}
