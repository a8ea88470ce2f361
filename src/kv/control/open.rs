//! Opening control: what journal and exports say against what sled says, and a rebuild where sled is not to be trusted.
//!
//! Two rules decide. A state may be taken only if it and the journal behind it lead to the last change that anything in
//! the folder knows of, be it a record, the database or the name of an export: else the start is refused with the
//! numbers, so that what was revoked never comes back in silence. And before the journal is given up, an export is made.

use std::path::{Path, PathBuf};

use super::Control;
use super::committer::{EXPORT_BYTES, Exports};
use super::export::{self, BadExport, Export, ExportError};
use super::state::{Meta, State};
use super::txn::CHANGE_ROWS_MAX;
use crate::kv::database::DatabaseError;
use crate::kv::files::{self, FileError};
use crate::kv::folder::{DataFolder, FolderError, Initialised};
use crate::kv::journal::{self, Journal, JournalError, Survey};
use crate::kv::ops;
use crate::kv::reserve::Reserve;
use crate::kv::rows::Rows;
use crate::kv::with_sources;
use crate::model::{StoreId, Timestamp};

/// What opening needs to know.
#[derive(Clone, Copy, Debug)]
pub struct ControlOptions {
    /// The present, for file headers and quarantine names.
    pub now: Timestamp,
    /// The table of users: with `INITIALISED` and no row in it, the start is refused.
    pub users_table: u8,
}

/// Why control cannot be opened. Nothing was lost: at most a rebuilt database stands in the place of a damaged one.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A marker of the folder is damaged or cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// sled failed while it was being built or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The journal is damaged, incomplete or another's.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal lacks changes that were answered, and nothing else can stand in for it.
    #[error("account changes {first}-{last} are missing: {why}")]
    ChangesMissing {
        /// The first missing change.
        first: u64,
        /// The last missing change.
        last: u64,
        /// How that is known.
        why: String,
    },
    /// The end of the journal cannot be read, and neither control nor an export has what it held.
    #[error("account changes from {first} on may be missing: {why}")]
    EndMissing {
        /// The first change that may be missing.
        first: u64,
        /// How that is known.
        why: String,
    },
    /// An export cannot be read though it was whole a moment ago, or it is a newer program's.
    #[error("{0}")]
    Export(String),
    /// The journal is damaged, and no export could be made to go on without it.
    #[error("the journal is damaged, and no export of the accounts could be made to go on without it")]
    NoExport(#[source] ExportError),
    /// The folder was set up, but no user is left in control or its journal: first set-up is not opened again.
    #[error("{} says that this store had users, but control, its exports and its journal hold none: restore them from a backup (`promlet restore`)", marker.display())]
    AccountsGone {
        /// `INITIALISED`.
        marker: PathBuf,
    },
    /// The thread could not be started.
    #[error("cannot start control's thread")]
    Thread(#[source] std::io::Error),
}

/// How control came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new store.
    Created,
    /// Journal and database agreed.
    Intact,
    /// The database lacked the last changes of the journal; they were applied.
    CaughtUp,
    /// The database was not to be trusted and was rebuilt from an export and the journal.
    Rebuilt {
        /// What was wrong with it.
        why: String,
        /// The last change of the export; none if it was the journal alone.
        export: Option<u64>,
        /// Where the old one is now, if there was one.
        quarantined: Option<PathBuf>,
    },
    /// The disk has no room for the database: the rows are in memory until the process ends. The journal keeps every
    /// change, and the next start with room makes the database.
    InMemory {
        /// What there was no room for.
        why: String,
    },
}

/// What opening did, for the log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// How it came up.
    pub start: Start,
    /// The last account change.
    pub seq: u64,
    /// Changes read and checked in the journal.
    pub journal_records: u64,
    /// Changes applied from the journal to the database.
    pub applied: u64,
    /// Rows in the database.
    pub rows: u64,
    /// Bytes zeroed at the end of the journal: a change that was being written, never answered.
    pub torn_bytes: u64,
    /// Files in `blobs/`, where none should ever be; they were synced.
    pub blobs: u64,
    /// Whether `INITIALISED` was missing though users exist, and was made.
    pub initialised_made: bool,
    /// The last change of the export that had to be made at once, since the journal alone would not lead there.
    pub exported: Option<u64>,
    /// What was found damaged and what became of it: the operator should know.
    pub notes: Vec<String>,
}

impl OpenError {
    /// Whether the disk, its inodes or a quota are used up.
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
    // On a full disk this is what lets sled open. Where even that is not enough, the step that needs more says so.
    let _ = reserve.room();
    let journal_dir = folder.path().join("journal");
    let export_dir = folder.path().join("exports");
    files::create_dir(&journal_dir)?;
    export::prepare(&export_dir)?;
    files::sync_dir(folder.path())?;
    remove_unfinished(&journal_dir)?;
    let mut opening = Opening {
        folder,
        now: options.now,
        survey: journal::survey(&journal_dir, folder.store_id())?,
        exports: export::list(&export_dir)?,
        whole: Vec::new(),
        notes: folder.notes().to_vec(),
    };
    opening.leave_foreign_exports();
    let Opened { state, meta, start, applied } = match opening.state() {
        Err(e) if e.is_no_room() => opening.in_memory(e)?,
        opened => opened?,
    };
    let users = meta.rows.get(&options.users_table).copied().unwrap_or_default();
    let marker = folder.path().join("INITIALISED");
    let initialised = folder.initialised()?;
    // A damaged marker was there, so the store had users: first set-up is not opened to strangers.
    if users == 0 && initialised != Initialised::No {
        return Err(OpenError::AccountsGone { marker });
    }
    let initialised_made = users > 0 && initialised != Initialised::Yes;
    if initialised_made {
        match folder.mark_initialised(options.now) {
            // The next start with room makes it.
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
    let Opening { survey, whole, notes, .. } = opening;
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
    Ok((Control::start(state, journal, meta, reserve, exports).map_err(OpenError::Thread)?, report))
}

struct Opened {
    state: State,
    meta: Meta,
    start: Start,
    /// Changes applied from the journal.
    applied: u64,
}

struct Opening<'f> {
    folder: &'f DataFolder,
    now: Timestamp,
    survey: Survey,
    /// By name, newest first, without those of other stores.
    exports: Vec<Export>,
    /// Seqs of those that were read and are whole, newest first.
    whole: Vec<u64>,
    /// What was found damaged, and what became of it.
    notes: Vec<String>,
}

impl Opening<'_> {
    /// Another store's exports say nothing about this one.
    fn leave_foreign_exports(&mut self) {
        let store = self.folder.store_id();
        let notes = &mut self.notes;
        self.exports.retain(|export| match export::foreign(export, store) {
            Some(other) => {
                notes
                    .push(format!("{} belongs to store {other} and is not looked at", export.path.display()));
                false
            }
            None => true,
        });
    }

    /// The database with the last change in it: as it is, caught up, or built anew.
    fn state(&mut self) -> Result<Opened, OpenError> {
        let control = self.folder.path().join("control");
        let store = self.folder.store_id();
        let (opened, why) = match try_open(&control, store) {
            Ok(opened) => (Some(opened), String::new()),
            Err(why) => (None, why),
        };
        let in_control = opened.as_ref().map(|(_, meta)| meta.seq);
        let known = self.survey.last_seq().max(in_control.unwrap_or_default());
        let known = known.max(self.exports.first().map_or(0, |newest| newest.seq));
        // Every answered change is in a control that is whole; what damage at the journal's end held is in it too.
        if let Some((state, mut meta)) = opened {
            if self.survey.missing(meta.seq + 1, known).is_none() {
                let applied = catch_up(&state, &mut meta, &self.survey)?;
                let start = if applied == 0 { Start::Intact } else { Start::CaughtUp };
                return Ok(Opened { state, meta, start, applied });
            }
            let why = format!("it ends with change {}, others know {known}", meta.seq);
            drop(state);
            return self.rebuild(&control, in_control, known, why);
        }
        self.rebuild(&control, in_control, known, why)
    }

    /// Builds `control.new` from the newest export that is whole and the journal, and puts it in the place of the old
    /// one, which goes to quarantine. Refuses where that would lack changes.
    fn rebuild(
        &mut self,
        control: &Path,
        in_control: Option<u64>,
        known: u64,
        why: String,
    ) -> Result<Opened, OpenError> {
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
        let state = State::open(&new)?;
        state.apply(&mut meta, &Rows::new(), 0)?;
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
        let state = State::open(control)?;
        let fresh = !existed && known == 0;
        let export = base.map(|export| export.seq);
        let start = if fresh { Start::Created } else { Start::Rebuilt { why, export, quarantined } };
        Ok(Opened { state, meta, start, applied })
    }

    /// The rows in memory, from the newest export that is whole and the journal: on a disk without room for the database
    /// reads are served all the same. Refuses for the reason at hand where these two do not have every change.
    fn in_memory(&mut self, why: OpenError) -> Result<Opened, OpenError> {
        let store = self.folder.store_id();
        let control = self.folder.path().join("control");
        let known = self.survey.last_seq().max(self.exports.first().map_or(0, |newest| newest.seq));
        // What the database alone has is not known now. A journal that has records, none of them damaged, has it, too.
        if self.survey.records() == 0 || !self.survey.damage.is_empty() {
            return Err(why);
        }
        let Ok(base) = self.base(None, known) else { return Err(why) };
        let mut meta = Meta::empty(store);
        let state = State::in_memory(&control);
        state.apply(&mut meta, &Rows::new(), 0)?;
        if let Some(export) = &base {
            load(&state, &mut meta, export, store)?;
        }
        let applied = catch_up(&state, &mut meta, &self.survey)?;
        let why = with_sources(&why);
        self.notes.push(format!(
            "no room for the database of the accounts ({why}): it is in memory until the next start, the journal keeps \
             every change"
        ));
        Ok(Opened { state, meta, start: Start::InMemory { why }, applied })
    }

    /// What to build on: the newest whole export from which the journal leads to the last change, or nothing at all
    /// where the journal begins with change 1.
    fn base(&mut self, in_control: Option<u64>, known: u64) -> Result<Option<Export>, OpenError> {
        // Changes at the end of the journal that nobody can read are in control, or they are gone.
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
        let mut why = self.survey.damage.iter().map(words).collect::<Vec<_>>();
        why.extend(self.notes.iter().cloned());
        if why.is_empty() {
            let begins = self.survey.first_seq().map_or_else(
                || "the journal is empty".to_owned(),
                |first| format!("the journal has {first}-{}", self.survey.last_seq()),
            );
            why.push(format!("{begins}, no export that is whole covers the rest"));
        }
        let why = why.join("; ");
        Err(match self.survey.missing(best + 1, known) {
            Some((first, last)) => OpenError::ChangesMissing { first, last, why },
            None => OpenError::EndMissing { first: known + 1, why },
        })
    }

    /// Where the journal goes on, and the seq of an export if one had to be made first.
    fn journal(
        &mut self,
        journal_dir: &Path,
        export_dir: &Path,
        state: &State,
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
            // Before anything of the journal is given up, so that control is not the only one that knows.
            match export::write(export_dir, state, meta) {
                Ok(made) => {
                    self.whole.retain(|seq| *seq < made.seq);
                    self.whole.insert(0, made.seq);
                    exported = Some(made.seq);
                }
                // Nothing is given up of a journal that is sound, so the export may come later.
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
        let mut text: Vec<_> = self.survey.damage.iter().map(words).collect();
        if text.is_empty() {
            text.push(format!("the journal ends with change {} of {}", self.survey.last_seq(), meta.seq));
        }
        let mut journal = Journal::begin_anew(journal_dir, store, key, &self.survey, meta.seq, self.now)?;
        // The older exports lead nowhere without the old files: with the next change there are two that do.
        journal.set_gathered(EXPORT_BYTES);
        for file in self.survey.files.iter().filter(|file| file.path.exists()) {
            self.folder.quarantine(&file.path, self.now)?;
        }
        self.notes.push(format!(
            "{}: nothing is lost, the accounts have all changes; the journal begins anew, its old files are in quarantine",
            text.join("; ")
        ));
        Ok((journal, exported))
    }

    /// Looks for the newest export that is whole, unless one is known; notes the damaged ones.
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

    /// A spare file that cannot take a record goes to quarantine; those behind it, which hold nothing, go.
    fn drop_unusable_spares(&mut self, journal_dir: &Path) -> Result<(), OpenError> {
        let Some(first) = self.survey.files.iter().position(|file| file.unusable.is_some()) else {
            return Ok(());
        };
        for (place, file) in self.survey.files.drain(first..).enumerate() {
            match file.unusable {
                Some(what) => {
                    let kept = self.folder.quarantine(&file.path, self.now)?;
                    let note = format!(
                        "{}: {what}; it held no change, kept as {}",
                        file.path.display(),
                        kept.display()
                    );
                    self.notes.push(note);
                }
                None if place > 0 => {
                    ops::remove_file(&file.path).map_err(FileError::at("remove", &file.path))?;
                    files::sync_dir(journal_dir)?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

fn words(damage: &journal::Damage) -> String {
    format!("{} is damaged at offset {}: {}", damage.path.display(), damage.offset, damage.what)
}

/// Opens and checks the database; an error says in words why it is not to be trusted.
pub(super) fn try_open(dir: &Path, store: StoreId) -> Result<(State, Meta), String> {
    if !dir.join("db").exists() {
        return Err("there is no database".to_owned());
    }
    let state = State::open(dir).map_err(|e| with_sources(&e))?;
    let meta = state.meta().map_err(|e| with_sources(&e))?.ok_or("it was never finished")?;
    if meta.store != store {
        return Err(format!("it belongs to store {}", meta.store));
    }
    state.verify(&meta)?;
    Ok((state, meta))
}

/// Puts the rows of an export into an empty database, 64 a commit.
fn load(state: &State, meta: &mut Meta, export: &Export, store: StoreId) -> Result<(), OpenError> {
    let mut waiting = Rows::new();
    export::read::<OpenError>(export, store, |(key, value)| {
        waiting.insert(key, Some(value));
        if waiting.len() == CHANGE_ROWS_MAX {
            state.apply(meta, &std::mem::take(&mut waiting), 0)?;
        }
        Ok(())
    })?;
    state.apply(meta, &waiting, export.seq)?;
    Ok(())
}

/// Applies the changes behind `meta.seq`, up to 64 rows a commit; how many there were.
fn catch_up(state: &State, meta: &mut Meta, survey: &Survey) -> Result<u64, OpenError> {
    let from = meta.seq + 1;
    let mut waiting = Rows::new();
    let mut waiting_seq = meta.seq;
    let mut applied = 0;
    journal::replay::<OpenError>(survey, from, |seq, rows| {
        if waiting.len() + rows.len() > CHANGE_ROWS_MAX && !waiting.is_empty() {
            state.apply(meta, &std::mem::take(&mut waiting), waiting_seq)?;
        }
        waiting.extend(rows);
        waiting_seq = seq;
        applied += 1;
        Ok(())
    })?;
    if applied > 0 {
        state.apply(meta, &waiting, waiting_seq)?;
    }
    Ok(applied)
}

/// Removes what a crash left half made in the journal's directory.
fn remove_unfinished(dir: &Path) -> Result<(), FileError> {
    for name in files::names(dir)?.iter().filter(|name| name.ends_with(".new")) {
        let path = dir.join(name);
        ops::remove_file(&path).map_err(FileError::at("remove", &path))?;
    }
    Ok(())
}
