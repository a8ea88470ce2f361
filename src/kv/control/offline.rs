//! Read-only access to control without a server: for checks, and for the rows that a repair writes
//! into a new folder.
//!
//! The same rule as at a start decides what is complete: a state counts if it and the journal after
//! it lead to the last change known to anything in the folder. sled cannot open a database without
//! writing to it, so a copy is opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::export::{self, Export};
use super::open::try_open;
use super::state::META_KEY;
use super::txn;
use crate::kv::database::ScanControl;
use crate::kv::files::{self, FileError};
use crate::kv::finding::{Finding, Weight};
use crate::kv::folder::{self, FolderError};
use crate::kv::frame::DamagedRow;
use crate::kv::journal::{self, JournalError, Survey};
use crate::kv::key::TableKey;
use crate::kv::record::{self, Record};
use crate::kv::rows;
use crate::kv::with_sources;
use crate::model::StoreId;

/// Errors that prevent any statement about a folder.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// `STORE` is missing, damaged or of a newer version.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A journal belongs to another store or has a newer version.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Numbers about the accounts that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfflineFacts {
    /// Sequence number of the last readable change.
    pub seq: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of journal files.
    pub journal_files: u64,
    /// Number of changes in the files.
    pub journal_records: u64,
    /// Number of intact exports.
    pub exports: u64,
}

/// The readable rows of control.
pub struct OfflineControl {
    store: StoreId,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    facts: OfflineFacts,
    findings: Vec<Finding>,
}

impl OfflineControl {
    /// Reads the accounts of the folder or backup `dir`. `scratch` is a path that does not exist;
    /// the copy of the database is made there and removed again.
    ///
    /// # Errors
    /// [`OfflineError`] if no statement about the folder is possible. Damage is not an error: it is
    /// among the findings.
    pub fn read(dir: &Path, scratch: &Path) -> Result<OfflineControl, OfflineError> {
        let store = folder::store_in_folder(dir)?;
        let mut reading = OfflineReader {
            dir,
            store,
            survey: if dir.join("journal").is_dir() {
                journal::survey(&dir.join("journal"), store)?
            } else {
                Survey::default()
            },
            exports: Vec::new(),
            findings: Vec::new(),
        };
        if let Some(what) = folder::identity_damage(dir)? {
            let what =
                format!("{what}; the next start rewrites it: the journal and all markers name the store");
            reading.findings.push(Finding::new(Weight::Repairable, "STORE", what));
        }
        reading.list_exports()?;
        let control = if dir.join("control").exists() { reading.database(scratch)? } else { None };
        Ok(reading.decide(control))
    }

    /// Returns the id of the store.
    pub fn store_id(&self) -> StoreId {
        self.store
    }

    /// Returns the counts of rows and changes that were read.
    pub fn facts(&self) -> OfflineFacts {
        self.facts
    }

    /// Returns the findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Like [`super::Control::scan`].
    ///
    /// # Errors
    /// [`DamagedRow`] if a row is damaged.
    pub fn scan<R: Record>(&self, leading: &impl TableKey) -> Result<Vec<(R::Key, R)>, DamagedRow> {
        let prefix = record::prefix::<R, _>(leading);
        let rows = self.rows.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        txn::collect::<R>(&rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Returns the number of rows of a table.
    pub fn count(&self, table: u8) -> u64 {
        self.rows.keys().filter(|key| key.first() == Some(&table)).count() as u64
    }

    /// Removes a value from the copy that [`OfflineControl::export`] writes; the folder is not
    /// changed.
    pub fn remove<R: Record>(&mut self, key: &R::Key) {
        let key = record::full_key::<R>(key);
        for number in 0..=rows::ROWS_MAX {
            self.rows.remove(&rows::numbered(&key, number));
        }
    }

    /// Sets a value in the copy that [`OfflineControl::export`] writes; the folder is not changed.
    ///
    /// # Errors
    /// A description of why the value cannot be stored.
    pub fn put<R: Record>(&mut self, key: &R::Key, value: &R) -> Result<(), String> {
        self.remove::<R>(key);
        let body = record::encode_body(value)?;
        let split = rows::split(&record::full_key::<R>(key), R::VERSION, R::KIND, &body);
        self.rows.extend(split.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Writes all rows as an export into the data folder `dir`, from which its first start builds
    /// control.
    ///
    /// # Errors
    /// [`export::ExportError`].
    pub fn export(&self, dir: &Path) -> Result<export::ExportReport, export::ExportError> {
        let exports = dir.join("exports");
        files::create_dir(&exports)?;
        let mut rows = self.rows.iter();
        let count = self.rows.len() as u64;
        let target = export::ExportTarget { store: self.store, seq: self.facts.seq, expected_rows: count };
        export::write_rows(&exports, target, |each| {
            for (key, value) in rows.by_ref() {
                if matches!(each(key, value), ScanControl::Stop) {
                    break;
                }
            }
            Ok(())
        })
    }
}

type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

struct OfflineReader<'d> {
    dir: &'d Path,
    store: StoreId,
    survey: Survey,
    /// Exports of this store, newest first, and whether each is intact.
    exports: Vec<(Export, bool)>,
    findings: Vec<Finding>,
}

impl OfflineReader<'_> {
    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.dir).unwrap_or(path).to_owned()
    }

    fn list_exports(&mut self) -> Result<(), FileError> {
        for export in export::list(&self.dir.join("exports"))? {
            if let Some(other) = export::foreign(&export, self.store) {
                let what = format!("an export of store {other}: it is ignored");
                self.findings.push(Finding::new(Weight::Note, self.relative(&export.path), what));
                continue;
            }
            let whole = match export::verify(&export, self.store) {
                Ok(_) => true,
                Err(bad) => {
                    let what = format!("{}; the other export and the journal replace it", with_sources(&bad));
                    let finding = Finding::new(Weight::Repairable, self.relative(&export.path), what);
                    self.findings.push(match bad.offset() {
                        Some(offset) => finding.at(offset),
                        None => finding,
                    });
                    false
                }
            };
            self.exports.push((export, whole));
        }
        Ok(())
    }

    /// Returns the database's rows and its last change if a copy of it can be opened and is intact.
    fn database(&mut self, scratch: &Path) -> Result<Option<(u64, RowMap)>, FileError> {
        let control = self.dir.join("control");
        files::create_dir(scratch)?;
        let copied = copy_flat(&control, &scratch.join("control"));
        let read = copied.map_err(|e| with_sources(&e)).and_then(|()| {
            let (state, meta) = try_open(&scratch.join("control"), self.store)?;
            let rows = state.rows(&[]).map_err(|e| with_sources(&e))?;
            Ok((meta.seq, rows))
        });
        std::fs::remove_dir_all(scratch).map_err(FileError::at("remove", scratch))?;
        Ok(match read {
            Ok((seq, mut rows)) => {
                rows.remove(META_KEY);
                Some((seq, rows))
            }
            Err(what) => {
                let what = format!("the database cannot be trusted ({what}); the next start rebuilds it");
                self.findings.push(Finding::new(Weight::Repairable, "control", what));
                None
            }
        })
    }

    fn decide(mut self, control: Option<(u64, RowMap)>) -> OfflineControl {
        let known = self.survey.last_seq().max(control.as_ref().map_or(0, |(seq, _)| *seq));
        let known = known.max(self.exports.first().map_or(0, |(newest, _)| newest.seq));
        let lost_end = self.survey.damage.iter().any(|damage| damage.is_last);
        let leads = |from: u64| self.survey.missing(from + 1, known).is_none();
        let from_control = control.as_ref().is_some_and(|(seq, _)| leads(*seq));
        let from_export =
            self.exports.iter().find(|(export, whole)| *whole && leads(export.seq) && !lost_end).cloned();
        let is_complete = from_control || from_export.is_some() || (leads(0) && !lost_end);
        self.describe_journal(known, is_complete);
        // If no state is complete, the latest one is used, with the changes of the journal that
        // follow it without a gap.
        let latest = self.exports.iter().find(|(_, whole)| *whole).cloned();
        let latest_seq = latest.as_ref().map_or(0, |(export, _)| export.seq);
        let (mut seq, mut rows) = match (control, from_export.or(latest)) {
            (Some((seq, rows)), _) if from_control || (!is_complete && seq >= latest_seq) => (seq, rows),
            (_, Some((export, _))) => (export.seq, self.rows_of(&export)),
            (_, None) => (0, RowMap::new()),
        };
        let replayed = journal::replay::<JournalError>(&self.survey, seq + 1, |number, changes| {
            if number == seq + 1 {
                seq = number;
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(rows.insert(key, value)),
                        None => drop(rows.remove(&key)),
                    }
                }
            }
            Ok(())
        });
        if let Err(e) = replayed {
            self.findings.push(Finding::new(Weight::Loss, "journal", with_sources(&e)));
        }
        let facts = OfflineFacts {
            seq,
            rows: rows.len() as u64,
            journal_files: self.survey.files.len() as u64,
            journal_records: self.survey.records(),
            exports: self.exports.iter().filter(|(_, whole)| *whole).count() as u64,
        };
        OfflineControl { store: self.store, rows, facts, findings: self.findings }
    }

    fn rows_of(&mut self, export: &Export) -> RowMap {
        let mut rows = RowMap::new();
        let read = export::read::<export::BadExport>(export, self.store, |(key, value)| {
            rows.insert(key, value);
            Ok(())
        });
        if let Err(bad) = read {
            // The export was intact when it was listed.
            self.findings.push(Finding::new(Weight::Loss, self.relative(&export.path), with_sources(&bad)));
        }
        rows
    }

    fn describe_journal(&mut self, known: u64, is_complete: bool) {
        let weight = if is_complete { Weight::Repairable } else { Weight::Loss };
        for damage in self.survey.damage.clone() {
            let addition =
                if is_complete { "; no change is lost, the accounts have all of them" } else { "" };
            let what = format!("{}{addition}", damage.what);
            self.findings.push(Finding::new(weight, self.relative(&damage.path), what).at(damage.offset));
        }
        if let Some(torn) = &self.survey.torn {
            let what = format!(
                "{} bytes of an incomplete change after change {}, which may have been confirmed",
                torn.bytes,
                self.survey.last_seq()
            );
            self.findings
                .push(Finding::new(Weight::Repairable, self.relative(&torn.path), what).at(torn.offset));
        }
        for file in &self.survey.files {
            if let Some(what) = file.unusable {
                let what = format!("an unused journal file: {what}");
                self.findings.push(Finding::new(Weight::Repairable, self.relative(&file.path), what));
            }
        }
        if is_complete {
            return;
        }
        let best = self.exports.iter().find(|(_, whole)| *whole).map_or(0, |(export, _)| export.seq);
        self.findings.push(match self.survey.missing(best + 1, known) {
            Some((first, last)) => {
                Finding::new(Weight::Loss, "journal", format!("account changes {first}-{last} are missing"))
                    .counting(last - first + 1)
            }
            None => {
                let what = format!("account changes from {} on may be missing", known + 1);
                Finding::new(Weight::Loss, "journal", what)
            }
        });
    }
}

/// Copies the files of a folder but not of its subfolders, which sled does not need (`blobs/` is
/// empty).
fn copy_flat(from: &Path, to: &Path) -> Result<(), FileError> {
    files::create_dir(to)?;
    for name in files::names(from)? {
        let path = from.join(&name);
        if path.is_file() {
            std::fs::copy(&path, to.join(&name)).map_err(FileError::at("copy", &path))?;
        }
    }
    Ok(())
}
