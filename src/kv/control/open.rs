//! Opening control: what the journal says against what sled says, and a rebuild where sled is not to be trusted.

use std::path::{Path, PathBuf};

use super::Control;
use super::state::{Meta, State};
use super::txn::CHANGE_ROWS_MAX;
use crate::kv::database::DatabaseError;
use crate::kv::files::{self, FileError};
use crate::kv::folder::{DataFolder, FolderError};
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
    /// The folder was set up, but no user is left in control or its journal: first set-up is not opened again.
    #[error("{} says that this store had users, but control and its journal hold none: restore them from a backup", marker.display())]
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
    /// The database was not to be trusted and was rebuilt from the journal.
    Rebuilt {
        /// What was wrong with it.
        why: String,
        /// Where the old one is now, if there was one.
        quarantined: Option<PathBuf>,
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
}

pub(super) fn open(
    folder: &DataFolder,
    options: &ControlOptions,
) -> Result<(Control, RecoveryReport), OpenError> {
    let reserve = Reserve::new(folder.path());
    // On a full disk this is what lets sled open. Where even that is not enough, the step that needs more says so.
    let _ = reserve.room();
    let journal_dir = folder.path().join("journal");
    files::create_dir(&journal_dir)?;
    files::sync_dir(folder.path())?;
    remove_unfinished(&journal_dir)?;
    let survey = journal::survey(&journal_dir, folder.store_id())?;
    if let Some(first) = survey.first_seq.filter(|first| *first > 1) {
        let why = format!("the journal begins with change {first}");
        return Err(OpenError::ChangesMissing { first: 1, last: first - 1, why });
    }
    let control = folder.path().join("control");
    let Opened { state, meta, start, applied } = match try_open(&control, folder.store_id()) {
        Ok((state, mut meta)) => {
            refuse_a_short_journal(&survey, meta.seq)?;
            let applied = catch_up(&state, &mut meta, &survey, folder.store_id())?;
            let start = if applied == 0 { Start::Intact } else { Start::CaughtUp };
            Opened { state, meta, start, applied }
        }
        Err(_) if survey.records == 0 && folder.is_initialised()? => {
            return Err(OpenError::AccountsGone { marker: folder.path().join("INITIALISED") });
        }
        Err(why) => rebuild(folder, &control, &survey, why, options.now)?,
    };
    let users = meta.rows.get(&options.users_table).copied().unwrap_or_default();
    let initialised = folder.is_initialised()?;
    if users == 0 && initialised {
        return Err(OpenError::AccountsGone { marker: folder.path().join("INITIALISED") });
    }
    let initialised_made = users > 0 && !initialised;
    if initialised_made {
        folder.mark_initialised(options.now)?;
    }
    if let Some(torn) = &survey.torn {
        journal::trim(torn)?;
    }
    let journal = Journal::open(&journal_dir, folder.store_id(), &survey, options.now)?;
    let report = RecoveryReport {
        start,
        seq: meta.seq,
        journal_records: survey.records,
        applied,
        rows: meta.rows.values().sum(),
        torn_bytes: survey.torn.as_ref().map_or(0, |torn| torn.bytes),
        blobs: state.sync_blobs()?,
        initialised_made,
    };
    Ok((Control::start(state, journal, meta, reserve).map_err(OpenError::Thread)?, report))
}

struct Opened {
    state: State,
    meta: Meta,
    start: Start,
    /// Changes applied from the journal.
    applied: u64,
}

/// Every change that sled knows was durable in the journal first, so a journal that ends before is damaged.
fn refuse_a_short_journal(survey: &Survey, known: u64) -> Result<(), OpenError> {
    if known <= survey.last_seq {
        return Ok(());
    }
    let why = match &survey.torn {
        Some(torn) => format!("the journal is damaged in {} at offset {}", torn.path.display(), torn.offset),
        None => format!("the journal ends with change {}, control knows {known}", survey.last_seq),
    };
    Err(OpenError::ChangesMissing { first: survey.last_seq + 1, last: known, why })
}

/// Opens and checks the database; an error says in words why it is not to be trusted.
fn try_open(dir: &Path, store: StoreId) -> Result<(State, Meta), String> {
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

/// Builds `control.new` from the whole journal and puts it in the old one's place, which goes to quarantine.
fn rebuild(
    folder: &DataFolder,
    control: &Path,
    survey: &Survey,
    why: String,
    now: Timestamp,
) -> Result<Opened, OpenError> {
    let new = control.with_extension("new");
    if new.exists() {
        ops::remove_dir_all(&new).map_err(FileError::at("remove", &new))?;
    }
    let mut meta = Meta::empty(folder.store_id());
    let state = State::open(&new)?;
    state.apply(&mut meta, &Rows::new(), 0)?;
    let applied = catch_up(&state, &mut meta, survey, folder.store_id())?;
    state.sync_blobs()?;
    state.close()?;
    let existed = control.exists();
    let quarantined = if existed { Some(folder.quarantine(control, now)?) } else { None };
    files::rename(&new, control)?;
    files::sync_dir(folder.path())?;
    let state = State::open(control)?;
    let fresh = !existed && survey.records == 0;
    let start = if fresh { Start::Created } else { Start::Rebuilt { why, quarantined } };
    Ok(Opened { state, meta, start, applied })
}

/// Applies the changes behind `meta.seq`, up to 64 rows a commit; how many there were.
fn catch_up(state: &State, meta: &mut Meta, survey: &Survey, store: StoreId) -> Result<u64, OpenError> {
    let from = meta.seq + 1;
    let mut waiting = Rows::new();
    let mut waiting_seq = meta.seq;
    let mut applied = 0;
    journal::replay::<OpenError>(survey, store, from, |seq, rows| {
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
