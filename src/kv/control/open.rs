//! Opening of control: comparison of journal, exports and sled, and a rebuild if sled cannot
//! be trusted.
//!
//! Two rules apply. First, a state is accepted only if it and the journal after it lead to the last
//! change known to anything in the folder: a record, the database, or the name of an export.
//! Otherwise the start is refused with the missing numbers, so that nothing revoked silently
//! becomes valid again. Second, an export is written before the journal is abandoned.

use std::path::{Path, PathBuf};

use super::Control;
use super::committer::{EXPORT_BYTES, Exports};
use super::export::{self, BadExport, Export, ExportError};
use super::state::{ControlState, Meta};
use super::txn::CHANGE_ROWS_MAX;
use crate::kv::database::DatabaseError;
use crate::kv::files::{self, FileError};
use crate::kv::folder::{DataFolder, FolderError, Initialised};
use crate::kv::journal::{self, Journal, JournalError, Survey};
use crate::kv::ops;
use crate::kv::reserve::Reserve;
use crate::kv::rows::RowChanges;
use crate::kv::with_sources;
use crate::model::{StoreId, Timestamp};

/// Parameters of [`Control::open`].
#[derive(Clone, Copy, Debug)]
pub struct ControlOptions {
    /// The current time, for file headers and quarantine names.
    pub now: Timestamp,
    /// The table of users: if `INITIALISED` exists and the table is empty, the start is refused.
    pub users_table: u8,
}

/// Errors of opening control. No change is lost: at most a rebuilt database has replaced a damaged
/// one.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A marker of the folder is damaged or cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// sled failed while the database was built or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The journal is damaged, incomplete or another store's.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal lacks confirmed changes, and no other file has them.
    #[error("account changes {first}-{last} are missing: {why}")]
    ChangesMissing {
        /// The first missing change.
        first: u64,
        /// The last missing change.
        last: u64,
        /// The reason why a change is missed.
        why: String,
    },
    /// The end of the journal cannot be read, and neither control nor an export has its changes.
    #[error("account changes from {first} on may be missing: {why}")]
    EndMissing {
        /// The first change that may be missing.
        first: u64,
        /// The reason why a change is missed.
        why: String,
    },
    /// An export that was intact a moment ago cannot be read, or it has a newer version.
    #[error("{0}")]
    Export(String),
    /// The journal is damaged, and no export could be written to continue without it.
    #[error("the journal is damaged, and no export of the accounts could be written to continue without it")]
    NoExport(#[source] ExportError),
    /// The folder was set up, but neither control nor its journal has a user: set-up is not offered
    /// again.
    #[error("{} states that this store had users, but control, its exports and its journal hold none: restore them from a backup (`promlet restore`)", marker.display())]
    AccountsGone {
        /// `INITIALISED`.
        marker: PathBuf,
    },
    /// The thread could not be started.
    #[error("cannot start control's thread")]
    Thread(#[source] std::io::Error),
}

/// The way in which control was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new store was created.
    Created,
    /// Journal and database agreed.
    Intact,
    /// The database lacked the last changes of the journal, which were applied.
    CaughtUp,
    /// The database could not be trusted and was rebuilt from an export and the journal.
    Rebuilt {
        /// The problem of the database.
        why: String,
        /// The last change of the export; `None` if only the journal was used.
        export: Option<u64>,
        /// New path of the old database, if there was one.
        quarantined: Option<PathBuf>,
    },
    /// The disk has no room for the database: the rows are in memory until the process ends. The
    /// journal has every change, and the next start with room creates the database.
    InMemory {
        /// The failed operation.
        why: String,
    },
}

/// The result of opening, for the log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The way in which control was opened.
    pub start: Start,
    /// Sequence number of the last account change.
    pub seq: u64,
    /// Number of changes read and checked in the journal.
    pub journal_records: u64,
    /// Number of changes applied from the journal to the database.
    pub applied: u64,
    /// Number of rows in the database.
    pub rows: u64,
    /// Bytes zeroed at the end of the journal: an incomplete change that was never confirmed.
    pub torn_bytes: u64,
    /// Number of files in `blobs/`, normally 0; they were synced.
    pub blobs: u64,
    /// Whether `INITIALISED` was missing although users exist, and was written.
    pub initialised_made: bool,
    /// The last change of an export that had to be written at once because the journal was not
    /// sufficient.
    pub exported: Option<u64>,
    /// Damage and its handling, for the operator.
    pub notes: Vec<String>,
}

impl OpenError {
    /// Returns whether the disk, its inodes or a quota are used up.
    fn is_no_room(&self) -> bool {
        match self {
            OpenError::File(e) => files::is_no_room(&e.source),
            OpenError::Database(e) => e.is_no_room(),
            _ => false,
        }
    }
}

impl From<BadExport> for OpenError {
    fn from(bad: BadExport) -> OpenError {
        OpenError::Export(with_sources(&bad))
    }
}

pub(super) fn open(
    folder: &DataFolder,
    options: &ControlOptions,
) -> Result<(Control, RecoveryReport), OpenError> {
    let reserve = Reserve::new(folder.path());
    // On a full disk this gives sled the room to open. If it is not enough, a later step reports
    // the error.
    let _ = reserve.room();
    let journal_dir = folder.path().join("journal");
    let export_dir = folder.path().join("exports");
    files::create_dir(&journal_dir)?;
    export::prepare(&export_dir)?;
    files::sync_dir(folder.path())?;
    remove_unfinished(&journal_dir)?;
    let mut opening = ControlOpening {
        folder,
        now: options.now,
        survey: journal::survey(&journal_dir, folder.store_id())?,
        exports: export::list(&export_dir)?,
        whole: Vec::new(),
        notes: folder.notes().to_vec(),
    };
    opening.leave_foreign_exports();
    let OpenedControl { state, meta, start, applied } = match opening.state() {
        Err(e) if e.is_no_room() => opening.in_memory(e)?,
        opened => opened?,
    };
    let users = meta.rows.get(&options.users_table).copied().unwrap_or_default();
    let marker = folder.path().join("INITIALISED");
    let initialised = folder.initialised()?;
    // A damaged marker proves that the store had users: strangers must not get first set-up.
    if users == 0 && initialised != Initialised::No {
        return Err(OpenError::AccountsGone { marker });
    }
    let initialised_made = users > 0 && initialised != Initialised::Yes;
    if initialised_made {
        match folder.mark_initialised(options.now) {
            // The next start writes it if the disk has room.
            Err(FolderError::File(e)) if files::is_no_room(&e.source) => {
                opening.notes.push(format!("{}: no room to write it", marker.display()));
            }
            other => other?,
        }
    }
    if initialised == Initialised::Unusable {
        let what = "it was damaged; nothing is lost, it was written again";
        opening.notes.push(format!("{}: {what}", marker.display()));
    }
    let (journal, exported) = opening.journal(&journal_dir, &export_dir, &state, &meta)?;
    let ControlOpening { survey, whole, notes, .. } = opening;
    let report = RecoveryReport {
        start,
        seq: meta.seq,
        journal_records: survey.records(),
        applied,
        rows: meta.rows.values().sum(),
        torn_bytes: survey.torn.as_ref().map_or(0, |torn| torn.bytes),
        blobs: state.sync_blobs()?,
        initialised_made,
        exported,
        notes,
    };
    let exports = Exports::new(export_dir, whole, options.now);
    let control = Control::start(state, journal, meta, reserve, exports).map_err(OpenError::Thread)?;
    control.set_gate_by_role()?;
    Ok((control, report))
}

struct OpenedControl {
    state: ControlState,
    meta: Meta,
    start: Start,
    /// Number of changes applied from the journal.
    applied: u64,
}

struct ControlOpening<'f> {
    folder: &'f DataFolder,
    now: Timestamp,
    survey: Survey,
    /// Exports of this store by name, newest first.
    exports: Vec<Export>,
    /// Sequence numbers of those that were read and are intact, newest first.
    whole: Vec<u64>,
    /// Damage and its handling.
    notes: Vec<String>,
}

impl ControlOpening<'_> {
    /// Drops the exports of other stores from the list.
    fn leave_foreign_exports(&mut self) {
        let store = self.folder.store_id();
        let notes = &mut self.notes;
        self.exports.retain(|export| match export::foreign(export, store) {
            Some(other) => {
                notes.push(format!("{} belongs to store {other} and is ignored", export.path.display()));
                false
            }
            None => true,
        });
    }

    /// Returns the database with the last change: unchanged, caught up, or rebuilt.
    fn state(&mut self) -> Result<OpenedControl, OpenError> {
        let control = self.folder.path().join("control");
        let store = self.folder.store_id();
        let (opened, why) = match try_open(&control, store) {
            Ok(opened) => (Some(opened), String::new()),
            Err(why) => (None, why),
        };
        let in_control = opened.as_ref().map(|(_, meta)| meta.seq);
        let known = self.survey.last_seq().max(in_control.unwrap_or_default());
        let known = known.max(self.exports.first().map_or(0, |newest| newest.seq));
        // An intact control has every confirmed change, including those in a damaged end of the
        // journal.
        if let Some((state, mut meta)) = opened {
            if self.survey.missing(meta.seq + 1, known).is_none() {
                let applied = catch_up(&state, &mut meta, &self.survey)?;
                let start = if applied == 0 { Start::Intact } else { Start::CaughtUp };
                return Ok(OpenedControl { state, meta, start, applied });
            }
            let why = format!("it ends with change {}, others know {known}", meta.seq);
            drop(state);
            return self.rebuild(&control, in_control, known, why);
        }
        self.rebuild(&control, in_control, known, why)
    }

    /// Builds `control.new` from the newest intact export and the journal, and replaces the old
    /// database, which is moved to quarantine. Refuses if changes would be missing.
    fn rebuild(
        &mut self,
        control: &Path,
        in_control: Option<u64>,
        known: u64,
        why: String,
    ) -> Result<OpenedControl, OpenError> {
        let base = self.base(in_control, known)?;
        if base.is_none() && known == 0 && self.folder.initialised()? != Initialised::No {
            return Err(OpenError::AccountsGone { marker: self.folder.path().join("INITIALISED") });
        }
        let store = self.folder.store_id();
        let new = control.with_extension("new");
        if new.exists() {
            ops::remove_dir_all(&new).map_err(FileError::at("remove", &new))?;
        }
        let mut meta = Meta::empty(store);
        let state = ControlState::open(&new)?;
        state.apply(&mut meta, &RowChanges::new(), 0)?;
        if let Some(export) = &base {
            load(&state, &mut meta, export, store)?;
        }
        let applied = catch_up(&state, &mut meta, &self.survey)?;
        state.sync_blobs()?;
        state.close()?;
        let existed = control.exists();
        let quarantined = if existed { Some(self.folder.quarantine(control, self.now)?) } else { None };
        files::rename(&new, control)?;
        files::sync_dir(self.folder.path())?;
        let state = ControlState::open(control)?;
        let fresh = !existed && known == 0;
        let export = base.map(|export| export.seq);
        let start = if fresh { Start::Created } else { Start::Rebuilt { why, export, quarantined } };
        Ok(OpenedControl { state, meta, start, applied })
    }

    /// Builds the rows in memory from the newest intact export and the journal, so that a disk
    /// without room for the database still serves reads. Returns the error `why` if the two do not
    /// have every change.
    fn in_memory(&mut self, why: OpenError) -> Result<OpenedControl, OpenError> {
        let store = self.folder.store_id();
        let control = self.folder.path().join("control");
        let known = self.survey.last_seq().max(self.exports.first().map_or(0, |newest| newest.seq));
        // Changes that only the database has are not known now. An undamaged journal with records
        // has them as well.
        if self.survey.records() == 0 || !self.survey.damage.is_empty() {
            return Err(why);
        }
        let Ok(base) = self.base(None, known) else { return Err(why) };
        let mut meta = Meta::empty(store);
        let state = ControlState::in_memory(&control);
        state.apply(&mut meta, &RowChanges::new(), 0)?;
        if let Some(export) = &base {
            load(&state, &mut meta, export, store)?;
        }
        let applied = catch_up(&state, &mut meta, &self.survey)?;
        let why = with_sources(&why);
        self.notes.push(format!(
            "no room for the database of the accounts ({why}): it is in memory until the next start, the journal keeps \
             every change"
        ));
        Ok(OpenedControl { state, meta, start: Start::InMemory { why }, applied })
    }

    /// Returns the base of a rebuild: the newest intact export from which the journal leads to the
    /// last change, or `None` if the journal begins with change 1.
    fn base(&mut self, in_control: Option<u64>, known: u64) -> Result<Option<Export>, OpenError> {
        // Unreadable changes at the end of the journal are in control or lost.
        let lost_end = self.survey.damage.iter().find(|damage| damage.is_last).cloned();
        let mut best = in_control.unwrap_or_default();
        for export in self.exports.clone() {
            match export::verify(&export, self.folder.store_id()) {
                Ok(_) => self.whole.push(export.seq),
                Err(e @ BadExport::Newer { .. }) => return Err(OpenError::Export(with_sources(&e))),
                Err(e) => {
                    self.notes.push(with_sources(&e));
                    continue;
                }
            }
            best = best.max(export.seq);
            if self.survey.missing(export.seq + 1, known).is_none() && lost_end.is_none() {
                return Ok(Some(export));
            }
        }
        if self.survey.missing(1, known).is_none() && lost_end.is_none() {
            return Ok(None);
        }
        let mut why = self.survey.damage.iter().map(describe).collect::<Vec<_>>();
        why.extend(self.notes.iter().cloned());
        if why.is_empty() {
            let begins = self.survey.first_seq().map_or_else(
                || "the journal is empty".to_owned(),
                |first| format!("the journal has {first}-{}", self.survey.last_seq()),
            );
            why.push(format!("{begins}, no intact export covers the rest"));
        }
        let why = why.join("; ");
        Err(match self.survey.missing(best + 1, known) {
            Some((first, last)) => OpenError::ChangesMissing { first, last, why },
            None => OpenError::EndMissing { first: known + 1, why },
        })
    }

    /// Opens the journal for appending. Also returns the sequence number of an export if one had to
    /// be written first.
    fn journal(
        &mut self,
        journal_dir: &Path,
        export_dir: &Path,
        state: &ControlState,
        meta: &Meta,
    ) -> Result<(Journal, Option<u64>), OpenError> {
        let (store, key) = (self.folder.store_id(), self.folder.record_key());
        let is_sound = self.survey.damage.is_empty()
            && (self.survey.records() == 0 || self.survey.last_seq() == meta.seq);
        self.find_a_whole_export();
        let leads_here = |from: u64| self.survey.missing(from + 1, meta.seq).is_none();
        let is_covered = is_sound && (leads_here(0) || self.whole.iter().any(|seq| leads_here(*seq)));
        let mut exported = None;
        if !is_covered {
            // Written before any part of the journal is abandoned, so that control is not the only
            // copy.
            match export::write(export_dir, state, meta) {
                Ok(made) => {
                    self.whole.retain(|seq| *seq < made.seq);
                    self.whole.insert(0, made.seq);
                    exported = Some(made.seq);
                }
                // No part of an intact journal is abandoned, so the export may be written later.
                Err(e) if is_sound && e.is_no_room() => {
                    self.notes.push(format!("no room for an export of the accounts: {}", with_sources(&e)));
                }
                Err(e) => return Err(OpenError::NoExport(e)),
            }
        }
        if is_sound {
            if let Some(torn) = &self.survey.torn {
                journal::trim(torn)?;
            }
            self.drop_unusable_spares(journal_dir)?;
            let mut journal = Journal::open(journal_dir, store, key, &self.survey, meta.seq, self.now)?;
            let newest = self.whole.first().copied().unwrap_or_default();
            journal.set_gathered(self.survey.bytes_behind(newest));
            return Ok((journal, exported));
        }
        let mut text: Vec<_> = self.survey.damage.iter().map(describe).collect();
        if text.is_empty() {
            text.push(format!("the journal ends with change {} of {}", self.survey.last_seq(), meta.seq));
        }
        let mut journal = Journal::start_new(journal_dir, store, key, &self.survey, meta.seq, self.now)?;
        // The older exports are useless without the old files. The next change triggers another
        // export, and then there are two.
        journal.set_gathered(EXPORT_BYTES);
        for file in self.survey.files.iter().filter(|file| file.path.exists()) {
            self.folder.quarantine(&file.path, self.now)?;
        }
        self.notes.push(format!(
            "{}: nothing is lost, the accounts have all changes; a new journal was started, its old files are in quarantine",
            text.join("; ")
        ));
        Ok((journal, exported))
    }

    /// Looks for the newest intact export unless one is known; records the damaged exports.
    fn find_a_whole_export(&mut self) {
        for export in &self.exports {
            if !self.whole.is_empty() {
                break;
            }
            match export::verify(export, self.folder.store_id()) {
                Ok(_) => self.whole.push(export.seq),
                Err(e) => {
                    let note = with_sources(&e);
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
            }
        }
    }

    /// Moves a spare file that cannot take a record to quarantine, and removes the empty ones after
    /// it.
    fn drop_unusable_spares(&mut self, journal_dir: &Path) -> Result<(), OpenError> {
        let Some(first) = self.survey.files.iter().position(|file| file.unusable.is_some()) else {
            return Ok(());
        };
        for (index, file) in self.survey.files.drain(first..).enumerate() {
            match file.unusable {
                Some(what) => {
                    let kept = self.folder.quarantine(&file.path, self.now)?;
                    let note = format!(
                        "{}: {what}; it had no change, kept as {}",
                        file.path.display(),
                        kept.display()
                    );
                    self.notes.push(note);
                }
                None if index > 0 => {
                    ops::remove_file(&file.path).map_err(FileError::at("remove", &file.path))?;
                    files::sync_dir(journal_dir)?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

fn describe(damage: &journal::Damage) -> String {
    format!("{} is damaged at offset {}: {}", damage.path.display(), damage.offset, damage.what)
}

/// Opens and checks the database. The error describes why it cannot be trusted.
pub(super) fn try_open(dir: &Path, store: StoreId) -> Result<(ControlState, Meta), String> {
    if !dir.join("db").exists() {
        return Err("there is no database".to_owned());
    }
    let state = ControlState::open(dir).map_err(|e| with_sources(&e))?;
    let meta = state.meta().map_err(|e| with_sources(&e))?.ok_or("it was never finished")?;
    if meta.store != store {
        return Err(format!("it belongs to store {}", meta.store));
    }
    state.verify(&meta)?;
    Ok((state, meta))
}

/// Loads the rows of an export into an empty database, 64 rows a commit.
fn load(state: &ControlState, meta: &mut Meta, export: &Export, store: StoreId) -> Result<(), OpenError> {
    let mut buffered = RowChanges::new();
    export::read::<OpenError>(export, store, |(key, value)| {
        buffered.insert(key, Some(value));
        if buffered.len() == CHANGE_ROWS_MAX {
            state.apply(meta, &std::mem::take(&mut buffered), 0)?;
        }
        Ok(())
    })?;
    state.apply(meta, &buffered, export.seq)?;
    Ok(())
}

/// Applies the changes after `meta.seq`, up to 64 rows a commit. Returns their number.
fn catch_up(state: &ControlState, meta: &mut Meta, survey: &Survey) -> Result<u64, OpenError> {
    let from = meta.seq + 1;
    let mut buffered = RowChanges::new();
    let mut buffered_seq = meta.seq;
    let mut applied = 0;
    journal::replay::<OpenError>(survey, from, |seq, rows| {
        if buffered.len() + rows.len() > CHANGE_ROWS_MAX && !buffered.is_empty() {
            state.apply(meta, &std::mem::take(&mut buffered), buffered_seq)?;
        }
        buffered.extend(rows);
        buffered_seq = seq;
        applied += 1;
        Ok(())
    })?;
    if applied > 0 {
        state.apply(meta, &buffered, buffered_seq)?;
    }
    Ok(applied)
}

/// Removes unfinished files that a crash left in the journal's directory.
fn remove_unfinished(dir: &Path) -> Result<(), FileError> {
    for name in files::names(dir)?.iter().filter(|name| name.ends_with(".new")) {
        let path = dir.join(name);
        ops::remove_file(&path).map_err(FileError::at("remove", &path))?;
    }
    Ok(())
}
