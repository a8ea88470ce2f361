//! Appending to the journal: one write and one sync per group.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{FILE_BYTES, JournalHeader, Layout, Survey, encode_header, encode_record};
use crate::kv::descriptors::is_transient;
use crate::kv::files::{self, FileError};
use crate::kv::keyed::{KEYED_FILE_HEADER_BYTES, RecordKey};
use crate::kv::ops;
use crate::kv::rows::RowChanges;
use crate::model::{StoreId, Timestamp};

/// Size of the writes of zeros: larger ones create large pages in the file cache, and the kernel
/// over-counts their dirty bytes.
const ZERO_STEP_BYTES: usize = 64 * 1024;

/// The journal, open for appending.
pub(in crate::kv) struct Journal {
    dir: PathBuf,
    store: StoreId,
    current: OpenFile,
    /// Empty files that follow `current`: one, except after a crash between two steps.
    ready: VecDeque<OpenFile>,
    /// Files before `current`, oldest first.
    full: VecDeque<FullFile>,
    last_seq: u64,
    /// Number of bytes after the last change that a failed write may have left in the current file.
    remains: usize,
    /// Number of bytes of changes since the last export.
    gathered: u64,
    /// Time of opening, which its files record as their creation.
    opened: Timestamp,
    /// Key from which the secrets of new files are derived.
    key: RecordKey,
    #[cfg(test)]
    pub(in crate::kv) faults: std::sync::Arc<Faults>,
}

/// Faults injected by a test.
#[cfg(test)]
#[derive(Default)]
pub(in crate::kv) struct Faults {
    pub(in crate::kv) journal_sync: std::sync::atomic::AtomicBool,
}

/// A file that can take records.
struct OpenFile {
    file: File,
    path: PathBuf,
    number: u64,
    offset: usize,
    layout: Layout,
}

/// A file that takes no more records.
struct FullFile {
    path: PathBuf,
    /// The last change in the file.
    last_seq: u64,
}

/// Reasons why a group is not in the journal.
#[derive(Debug, thiserror::Error)]
pub(in crate::kv) enum AppendError {
    /// The next file could not be created, or the operating system had no resources for the write.
    /// No byte was written, and the group may be retried.
    #[error("no room for account changes")]
    NoRoom(#[source] FileError),
    /// The write or the sync failed: the state on disk is unknown until the next start.
    #[error("journal")]
    Unknown(#[source] FileError),
}

impl Journal {
    /// Opens the journal at the end found by the survey, whose torn tail has been trimmed. Creates
    /// the first file if there is none. `last_seq` is the last change, in the journal or, if
    /// nothing followed it, in an export.
    pub(in crate::kv) fn open(
        dir: &Path,
        store: StoreId,
        key: RecordKey,
        survey: &Survey,
        last_seq: u64,
        now: Timestamp,
    ) -> Result<Journal, FileError> {
        let found = survey.files.get(survey.current..).unwrap_or_default();
        let has_room = found.first().filter(|first| first.is_keyed);
        // Files of version 1 take no more changes. The files after the last change are empty.
        let (full, ready) = found.split_at(usize::from(has_room.is_none() && !found.is_empty()));
        let kept = ready.iter().take_while(|file| file.is_keyed).count();
        let (ready, outdated) = ready.split_at(kept);
        for file in outdated.iter().rev() {
            ops::remove_file(&file.path).map_err(FileError::at("remove", &file.path))?;
            files::sync_dir(dir)?;
        }
        let mut open = VecDeque::new();
        for found in ready {
            let (path, number) = (found.path.clone(), found.number);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(FileError::at("open", &path))?;
            let layout = layout_of_spare(&file, &path, number)?;
            open.push_back(OpenFile { file, path, number, offset: KEYED_FILE_HEADER_BYTES, layout });
        }
        let current = match open.pop_front() {
            Some(mut current) => {
                if has_room.is_some() {
                    current.offset = usize::try_from(survey.offset).unwrap_or(FILE_BYTES);
                    current.offset = current.offset.max(KEYED_FILE_HEADER_BYTES);
                }
                current
            }
            None => {
                let previous = full.last().map_or(0, |file| file.number);
                make_file(dir, JournalHeader::new(store, key, previous, now))?
            }
        };
        let mut journal = Journal::new(dir, store, key, current, last_seq, now);
        journal.ready = open;
        let before = survey.files.iter().enumerate().take(survey.current + full.len());
        for (index, found) in before {
            journal
                .full
                .push_back(FullFile { path: found.path.clone(), last_seq: survey.last_seq_in(index) });
        }
        journal.gathered = survey.bytes_behind(0);
        match journal.make_ready() {
            // The append that needs the file retries.
            Err(e) if files::is_no_room(&e.source) => {}
            other => other?,
        }
        Ok(journal)
    }

    /// Starts a new journal after the files of the survey. The caller moves these away: some are
    /// damaged, and an export replaces all of them.
    pub(in crate::kv) fn start_new(
        dir: &Path,
        store: StoreId,
        key: RecordKey,
        survey: &Survey,
        last_seq: u64,
        now: Timestamp,
    ) -> Result<Journal, FileError> {
        let previous = survey.files.last().map_or(0, |last| last.number);
        let current = make_file(dir, JournalHeader::new(store, key, previous, now))?;
        let mut journal = Journal::new(dir, store, key, current, last_seq, now);
        journal.make_ready()?;
        Ok(journal)
    }

    fn new(
        dir: &Path,
        store: StoreId,
        key: RecordKey,
        current: OpenFile,
        last_seq: u64,
        opened: Timestamp,
    ) -> Journal {
        Journal {
            dir: dir.to_owned(),
            store,
            current,
            ready: VecDeque::new(),
            full: VecDeque::new(),
            last_seq,
            remains: 0,
            gathered: 0,
            opened,
            key,
            #[cfg(test)]
            faults: std::sync::Arc::default(),
        }
    }

    /// Returns the directory of the journal.
    pub(in crate::kv) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of bytes of changes that no export covers yet.
    pub(in crate::kv) fn gathered(&self) -> u64 {
        self.gathered
    }

    /// Sets the number of bytes of changes that no export covers.
    pub(in crate::kv) fn set_gathered(&mut self, bytes: u64) {
        self.gathered = bytes;
    }

    /// Removes the files whose changes all have numbers up to `seq` (inclusive), oldest first. Each
    /// removal is durable before the next, so no crash leaves a gap. Returns the number of removed
    /// files.
    pub(in crate::kv) fn trim(&mut self, seq: u64) -> Result<u64, FileError> {
        let mut removed = 0;
        while let Some(full) = self.full.front().filter(|full| full.last_seq <= seq) {
            ops::remove_file(&full.path).map_err(FileError::at("remove", &full.path))?;
            files::sync_dir(&self.dir)?;
            self.full.pop_front();
            removed += 1;
        }
        Ok(removed)
    }

    /// Copies every file that has changes into `to`, the current one up to its end.
    pub(in crate::kv) fn copy_to(&self, to: &Path) -> Result<(), FileError> {
        for full in &self.full {
            let name = full.path.file_name().unwrap_or_default();
            std::fs::copy(&full.path, to.join(name)).map_err(FileError::at("copy", &full.path))?;
        }
        let OpenFile { path, offset, number, .. } = &self.current;
        let mut bytes = std::fs::read(path).map_err(FileError::at("read", path))?;
        bytes.resize(FILE_BYTES, 0);
        bytes.iter_mut().skip(*offset).for_each(|byte| *byte = 0);
        let copy = to.join(super::file_name(*number));
        ops::write_at(&files::create_file(&copy)?, &copy, &bytes, 0).map_err(FileError::at("write", &copy))
    }

    /// Writes one record per change and syncs once. Returns the sequence number of the last change.
    ///
    /// `changes` must fit into one file together: at most [`super::GROUP_BYTES_MAX`].
    pub(in crate::kv) fn append(&mut self, changes: &[RowChanges]) -> Result<u64, AppendError> {
        self.clear_remains()?;
        if self.current.offset + changes.iter().map(super::record_bytes).sum::<usize>() > FILE_BYTES {
            self.make_ready().map_err(AppendError::NoRoom)?;
            if let Some(next) = self.ready.pop_front() {
                let before = std::mem::replace(&mut self.current, next);
                self.full.push_back(FullFile { path: before.path, last_seq: self.last_seq });
            }
        }
        let mut bytes = Vec::new();
        let mut seq = self.last_seq;
        for (lag, rows) in (1..=u16::MAX).zip(changes) {
            seq += 1;
            encode_record(&mut bytes, self.current.layout, seq, lag, rows);
        }
        let OpenFile { file, path, offset, .. } = &mut self.current;
        if let Err(e) = ops::write_at(file, path, &bytes, *offset as u64) {
            let transient = is_transient(&e);
            let error = FileError::at("write", path)(e);
            if !transient {
                return Err(AppendError::Unknown(error));
            }
            self.remains = bytes.len();
            self.clear_remains()?;
            return Err(AppendError::NoRoom(error));
        }
        #[cfg(test)]
        if self.faults.journal_sync.load(std::sync::atomic::Ordering::SeqCst) {
            let injected = std::io::Error::from_raw_os_error(5);
            return Err(AppendError::Unknown(FileError::at("sync", path)(injected)));
        }
        ops::sync_data(file, path).map_err(|e| AppendError::Unknown(FileError::at("sync", path)(e)))?;
        *offset += bytes.len();
        self.gathered += bytes.len() as u64;
        self.last_seq = seq;
        Ok(seq)
    }

    /// Zeroes the bytes that a failed write may have left after the last change. Otherwise, after
    /// shorter changes in their place, the rest would be read as the next changes.
    fn clear_remains(&mut self) -> Result<(), AppendError> {
        if self.remains > 0 {
            let OpenFile { file, path, offset, .. } = &self.current;
            ops::write_zeros(file, path, self.remains, *offset as u64).map_err(|e| {
                let transient = is_transient(&e);
                let error = FileError::at("clear", path)(e);
                if transient { AppendError::NoRoom(error) } else { AppendError::Unknown(error) }
            })?;
            self.remains = 0;
        }
        Ok(())
    }

    /// Creates the file after the current one in advance, so that a change never waits for it and
    /// rarely fails on a full disk.
    pub(in crate::kv) fn make_ready(&mut self) -> Result<(), FileError> {
        if self.ready.is_empty() {
            let previous = self.current.number;
            let header = JournalHeader::new(self.store, self.key, previous, self.opened);
            self.ready.push_back(make_file(&self.dir, header)?);
        }
        Ok(())
    }
}

/// Returns the layout of an open file, from its header.
fn layout_of_spare(file: &File, path: &Path, number: u64) -> Result<Layout, FileError> {
    let mut start = vec![0; KEYED_FILE_HEADER_BYTES];
    file.read_exact_at(&mut start, 0).map_err(FileError::at("read", path))?;
    Ok(super::scan::layout_of(&start, number))
}

/// Creates a zeroed file with its header, durable under its name.
fn make_file(dir: &Path, header: JournalHeader) -> Result<OpenFile, FileError> {
    let path = dir.join(super::file_name(header.number));
    let new = path.with_extension("jnl.new");
    let written = write_file(&new, &header);
    let file = match written {
        Ok(file) => file,
        Err(e) => {
            // A file whose sync failed is never used; the next attempt creates a new one.
            let _ = ops::remove_file(&new);
            return Err(e);
        }
    };
    files::rename(&new, &path)?;
    files::sync_dir(dir)?;
    let JournalHeader { number, layout, .. } = header;
    Ok(OpenFile { file, path, number, offset: KEYED_FILE_HEADER_BYTES, layout })
}

fn write_file(path: &Path, header: &JournalHeader) -> Result<File, FileError> {
    let file = files::create_file(path)?;
    let mut step = vec![0; ZERO_STEP_BYTES];
    for front in (0..FILE_BYTES).step_by(ZERO_STEP_BYTES) {
        if front == 0 {
            step.iter_mut().zip(encode_header(header)).for_each(|(to, from)| *to = from);
        } else {
            step.fill(0);
        }
        ops::write_at(&file, path, &step, front as u64).map_err(FileError::at("write", path))?;
    }
    ops::sync_all(&file, path).map_err(FileError::at("sync", path))?;
    Ok(file)
}
