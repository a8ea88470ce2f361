//! The rehearsal of a start: the accounts of a folder are opened on a copy of the files that a
//! start may change.
//!
//! A check calls the functions of the server instead of applying rules of its own, so the two
//! cannot disagree. Markers, journal, exports and the database are small. They are copied because
//! sled writes to every database that it opens, and because a start repairs some kinds of damage.

use std::fs;
use std::io;
use std::path::Path;

use super::FolderAccessError;
use super::check::CheckOptions;
use super::file_tree::{self, TreeError};
use super::manifest::Manifest;
use crate::entropy::Entropy;
use crate::kv::{
    Control, ControlOptions, DataFolder, Finding, KeyBinding, OfflineControl, Start, Weight, with_sources,
};
use crate::model::Timestamp;

/// The markers that a start reads.
const MARKERS: [&str; 6] = ["STORE", "INITIALISED", "CLEAN", "RUNNING", "UNCLEAN", "master.key"];
/// The folders that the start of the accounts reads.
const FOLDERS: [&str; 3] = ["control", "journal", "exports"];

/// The result of a rehearsed start.
#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    /// The reason why the server would refuse to start, with the responsible file.
    refused: Option<(&'static str, String)>,
    /// The messages that the start would log, including those about repairs.
    notes: Vec<String>,
    /// The reason why the start would rebuild the database.
    rebuilt: Option<String>,
    /// Whether the start would create `INITIALISED`.
    initialised_made: bool,
}

/// Starts the accounts of `dir` in the scratch folder of a check, and removes the scratch folder
/// again.
pub(super) fn rehearse(
    dir: &Path,
    options: &CheckOptions,
    manifest: Option<&Manifest>,
) -> Result<Rehearsal, FolderAccessError> {
    let scratch = &options.scratch;
    file_tree::create_empty(scratch)?;
    let copied = copy(dir, scratch);
    let needs_key = manifest.is_none_or(|manifest| manifest.with_key);
    let rehearsal = copied.map(|()| start(dir, options, needs_key));
    fs::remove_dir_all(scratch).map_err(file_tree::at("remove", scratch))?;
    Ok(rehearsal?)
}

fn copy(dir: &Path, scratch: &Path) -> Result<(), TreeError> {
    for name in MARKERS {
        let from = dir.join(name);
        match fs::copy(&from, scratch.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(file_tree::at("copy", &from)(e)),
            _ => {}
        }
    }
    for name in FOLDERS.iter().filter(|name| dir.join(name).is_dir()) {
        for (path, _) in file_tree::files(&dir.join(name))? {
            let below = Path::new(name).join(path);
            file_tree::create_parents(scratch, &below)?;
            fs::copy(dir.join(&below), scratch.join(&below)).map_err(file_tree::at("copy", &below))?;
        }
    }
    Ok(())
}

fn start(dir: &Path, options: &CheckOptions, needs_key: bool) -> Rehearsal {
    let scratch = &options.scratch;
    let now = Timestamp::from_ms(0);
    let mut rng = Entropy::seeded(0);
    // Messages must name the original folder, not the copy.
    let in_original = |text: String| text.replace(&scratch.display().to_string(), &dir.display().to_string());
    let refused = |file, why: &dyn std::error::Error| Rehearsal {
        refused: Some((file, in_original(with_sources(why)))),
        ..Rehearsal::default()
    };
    let folder = match DataFolder::open(scratch, now, &mut rng) {
        Ok(folder) => folder,
        Err(e) => return refused("STORE", &e),
    };
    let (control, report) =
        match Control::open(&folder, &ControlOptions { now, users_table: options.users_table }) {
            Ok(opened) => opened,
            Err(e) => return refused("control", &e),
        };
    let mut rehearsal = Rehearsal {
        refused: None,
        notes: report.notes.into_iter().map(in_original).collect(),
        rebuilt: match report.start {
            // A backup and a restored folder have no database; the first start creates it.
            Start::Rebuilt { why, quarantined: Some(_), .. } => Some(in_original(why)),
            _ => None,
        },
        initialised_made: report.initialised_made,
    };
    if needs_key {
        let bound =
            folder.master_key(&options.master_key, &mut rng).map_err(|e| with_sources(&e)).and_then(|key| {
                let mark = (options.key_mark)(&key, folder.store_id());
                control.bind_master_key(mark).map_err(|e| with_sources(&e))
            });
        rehearsal.refused = match bound {
            Err(why) => Some(("master.key", in_original(why))),
            Ok(KeyBinding::Other) => {
                let why = "it is not the master key that the accounts in this folder were sealed with";
                Some(("master.key", why.to_owned()))
            }
            Ok(KeyBinding::First | KeyBinding::Same) => None,
        };
    }
    rehearsal
}

impl Rehearsal {
    /// Appends the findings about the accounts' files to `findings`, with the severity that the
    /// start gives them.
    pub(super) fn judge(self, dir: &Path, control: &OfflineControl, findings: &mut Vec<Finding>) {
        let accounts_open = self.refused.as_ref().is_none_or(|(file, _)| *file == "master.key");
        let mut found: Vec<Finding> = control.findings().to_vec();
        if accounts_open {
            // The start succeeds, so another copy replaces each damaged file.
            for finding in &mut found {
                finding.weight = finding.weight.min(Weight::Repairable);
            }
        }
        if self.initialised_made {
            let what = "missing or damaged although there are users; the next start creates it";
            found.push(Finding::new(Weight::Repairable, "INITIALISED", what));
        }
        if let Some((file, why)) = self.refused {
            let is_reported = !accounts_open && found.iter().any(|finding| finding.weight == Weight::Loss);
            if !is_reported {
                let what = format!("the server does not start: {why}");
                found.push(Finding::new(Weight::Loss, file, what));
            }
        }
        for note in self.notes.into_iter().chain(self.rebuilt) {
            let names = |finding: &Finding| {
                finding.weight >= Weight::Repairable
                    && (note.contains(&finding.file.display().to_string()) || finding.file == *"control")
            };
            if !found.iter().any(names) {
                let note = note.replace(&format!("{}/", dir.display()), "");
                found.push(Finding::new(Weight::Repairable, "control", note));
            }
        }
        findings.append(&mut found);
    }
}
