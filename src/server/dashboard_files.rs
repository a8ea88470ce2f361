//! Dashboards from the files of a folder (`--dashboards`), which is polled for changes.
//!
//! Each pass lists the folder and reads the files whose size or times differ from the pass before.
//! A file that changed is read in two passes, so that a half-written one is read again. A file that
//! cannot be used keeps its last good version, and its problem is logged once for each change.
//!
//! A uid belongs to the file that already shows it, then to the first file in the order of paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::identity::{
    DASHBOARD_BYTES_MAX, DashboardDocument, DocumentError, ProvisionedDashboard, ProvisionedDashboards,
    parse_folder, provisioned_uid,
};
use crate::model::Timestamp;

/// Maximum number of files that are read.
const FILES_MAX: usize = 500;
/// Maximum length of all documents together, bytes.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Maximum depth of folders below the one that is named.
const DEPTH_MAX: usize = 8;
/// Maximum number of entries of all folders, of any kind.
const ENTRIES_MAX: usize = 10_000;

/// The reason why a file or folder is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    /// The operating system refuses.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// A folder, a pipe or a device.
    #[error("is not a regular file")]
    NotAFile,
    /// The file changed in every pass.
    #[error("was changed while it was read")]
    Changing,
    /// The bytes are not UTF-8.
    #[error("is not UTF-8 at line {line} column {column}")]
    Encoding {
        /// Line in the file, from 1.
        line: usize,
        /// Byte in the line, from 1.
        column: usize,
    },
    /// The text is not a dashboard.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Another file has the same uid.
    #[error("has the uid {uid} of {}", .other.display())]
    DuplicateUid {
        /// The uid.
        uid: String,
        /// Path of the other file, relative to the folder.
        other: PathBuf,
    },
    /// The files are too large together. The file exceeds the limit of all files together. Contains
    /// the length of this file in bytes.
    #[error("has {0} bytes, and all files together may have {TOTAL_BYTES_MAX}")]
    NoRoom(usize),
    /// The folder has too many files. Contains their number.
    #[error("has {0} files, and the first {FILES_MAX} in the order of their paths are used")]
    TooManyFiles(usize),
    /// The folder has too many entries to list them.
    #[error("has more than {ENTRIES_MAX} entries, so no change is read")]
    TooManyEntries,
    /// A folder is too deep.
    #[error("is more than {DEPTH_MAX} folders deep")]
    TooDeep,
    /// A symbolic link leads to a folder.
    #[error("is a link to a folder, which is not followed")]
    LinkToFolder,
}

impl From<io::Error> for FileProblem {
    fn from(error: io::Error) -> FileProblem {
        FileProblem::Unreadable(error.to_string())
    }
}

/// Reads a dashboard, at most a byte more than it may have.
///
/// # Errors
/// [`FileProblem`] if the text is not a dashboard that this server accepts.
pub fn read_dashboard(from: impl Read) -> Result<DashboardDocument, FileProblem> {
    let mut bytes = Vec::new();
    from.take(DASHBOARD_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > DASHBOARD_BYTES_MAX {
        return Err(DocumentError::TooLarge(bytes.len()).into());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line_start = valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        FileProblem::Encoding { line, column: valid.len() - line_start + 1 }
    })?;
    let document = DashboardDocument::parse(text)?;
    document.check_stored_size()?;
    Ok(document)
}

/// The properties that change with the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn of(file: &Metadata) -> FileStamp {
        FileStamp {
            file: (file.dev(), file.ino()),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Returns the time of the last modification. An impossible time becomes `now` or 1970.
    fn modified_at(&self, now: Timestamp) -> Timestamp {
        let (s, ns) = self.modified;
        let ms = s.saturating_mul(1_000).saturating_add(ns / 1_000_000);
        Timestamp::from_ms(ms.clamp(0, now.as_ms().max(0)))
    }
}

/// A file in the pass before.
#[derive(Debug, Default)]
struct FileState {
    /// `None` if there was none, or the file changed while it was read.
    stamp: Option<FileStamp>,
    /// Whether the file was read twice with this stamp.
    settled: bool,
    shown: Option<Arc<ProvisionedDashboard>>,
    problem: Option<FileProblem>,
    reported: bool,
}

impl FileState {
    fn bytes(&self) -> usize {
        self.shown.as_ref().map_or(0, |shown| shown.text.len())
    }

    fn shown_uid(&self) -> Option<&String> {
        self.shown.as_ref().map(|shown| &shown.dashboard.uid)
    }
}

/// The files and folders that a pass found.
#[derive(Debug, Default)]
struct Listing {
    files: BTreeSet<PathBuf>,
    /// Folders that could not be listed; the files known in them stay as they are.
    unread: Vec<PathBuf>,
    problems: BTreeMap<PathBuf, FileProblem>,
}

impl Listing {
    fn unread(&mut self, folder: PathBuf, problem: FileProblem) {
        self.problems.insert(folder.clone(), problem);
        self.unread.push(folder);
    }
}

/// A problem to log.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Path relative to the folder; empty for the folder itself.
    pub path: PathBuf,
    /// The problem.
    pub problem: FileProblem,
    /// Whether a version from before is still shown.
    pub keeps_last: bool,
}

/// The outcome of a pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// Whether other dashboards are shown than after the pass before.
    pub changed: bool,
    /// Problems that are new.
    pub reports: Vec<Report>,
}

/// The dashboards of a folder.
#[derive(Debug)]
pub struct DashboardFiles {
    dir: PathBuf,
    files: BTreeMap<PathBuf, FileState>,
    folder_problems: BTreeMap<PathBuf, FileProblem>,
    passes: u64,
}

impl DashboardFiles {
    /// Creates an empty reader for a folder that exists.
    ///
    /// # Errors
    /// The operating system's error if the folder cannot be listed.
    pub fn open(dir: &Path) -> io::Result<DashboardFiles> {
        fs::read_dir(dir)?;
        Ok(DashboardFiles {
            dir: dir.to_owned(),
            files: BTreeMap::new(),
            folder_problems: BTreeMap::new(),
            passes: 0,
        })
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the dashboards that are shown, by uid.
    pub fn dashboards(&self) -> ProvisionedDashboards {
        let shown = self.files.values().filter_map(|file| file.shown.as_ref());
        shown.map(|shown| (shown.dashboard.uid.clone(), Arc::clone(shown))).collect()
    }

    /// Returns the number of files that are shown, and of files and folders with a problem.
    pub fn counts(&self) -> (usize, usize) {
        let shown = self.files.values().filter(|file| file.shown.is_some()).count();
        let failed = self.files.values().filter(|file| file.problem.is_some()).count();
        (shown, failed + self.folder_problems.len())
    }

    /// Returns every file with its dashboard or its problem, and the problems of folders.
    pub fn outcomes(&self) -> Vec<(PathBuf, Result<Arc<ProvisionedDashboard>, FileProblem>)> {
        let folders = self.folder_problems.iter().map(|(path, why)| (path.clone(), Err(why.clone())));
        let files = self.files.iter().filter_map(|(path, file)| {
            let outcome = match (&file.problem, &file.shown) {
                (Some(problem), _) => Err(problem.clone()),
                (None, shown) => Ok(Arc::clone(shown.as_ref()?)),
            };
            Some((path.clone(), outcome))
        });
        folders.chain(files).collect()
    }

    /// Lists the folder and reads the files that changed. Blocks on the disk.
    pub fn pass(&mut self, now: Timestamp) -> Pass {
        let listing = self.list();
        let mut pass = Pass::default();
        let shown_before = self.files.values().filter(|file| file.shown.is_some()).count();
        self.files.retain(|path, _| {
            listing.files.contains(path) || listing.unread.iter().any(|folder| path.starts_with(folder))
        });
        pass.changed = shown_before != self.files.values().filter(|file| file.shown.is_some()).count();
        let read = self.read_changed(&listing.files, now);
        self.settle(read, &mut pass);
        for (path, problem) in &listing.problems {
            if self.folder_problems.get(path) != Some(problem) {
                let (path, problem) = (path.clone(), problem.clone());
                pass.reports.push(Report { path, problem, keeps_last: false });
            }
        }
        self.folder_problems = listing.problems;
        self.passes += 1;
        pass
    }

    fn list(&self) -> Listing {
        let (mut listing, mut entries) = (Listing::default(), 0_usize);
        let mut folders = vec![(PathBuf::new(), 0_usize)];
        while let Some((folder, depth)) = folders.pop() {
            let found = match fs::read_dir(self.dir.join(&folder)) {
                Ok(found) => found,
                Err(error) => {
                    listing.unread(folder, error.into());
                    continue;
                }
            };
            for entry in found {
                entries += 1;
                if entries > ENTRIES_MAX {
                    // The order of a directory listing is arbitrary, so an entry beyond the limit
                    // may be a known file.
                    listing = Listing::default();
                    listing.unread(PathBuf::new(), FileProblem::TooManyEntries);
                    return listing;
                }
                let (name, kind) = match entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?))) {
                    Ok(entry) => entry,
                    Err(error) => {
                        listing.unread(folder.clone(), error.into());
                        continue;
                    }
                };
                if name.as_encoded_bytes().starts_with(b".") {
                    continue;
                }
                let path = folder.join(name);
                let is_json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
                if kind.is_dir() && depth < DEPTH_MAX {
                    folders.push((path, depth + 1));
                } else if kind.is_dir() {
                    listing.problems.insert(path, FileProblem::TooDeep);
                } else if is_json {
                    listing.files.insert(path);
                } else if kind.is_symlink() && fs::metadata(self.dir.join(&path)).is_ok_and(|to| to.is_dir())
                {
                    listing.problems.insert(path, FileProblem::LinkToFolder);
                }
            }
        }
        if listing.files.len() > FILES_MAX {
            listing.problems.insert(PathBuf::new(), FileProblem::TooManyFiles(listing.files.len()));
            let beyond = listing.files.iter().nth(FILES_MAX).cloned();
            drop(beyond.map(|beyond| listing.files.split_off(&beyond)));
        }
        listing
    }

    /// Reads the files that changed since the pass before, or whose problem may be solved.
    fn read_changed(
        &mut self,
        listed: &BTreeSet<PathBuf>,
        now: Timestamp,
    ) -> BTreeMap<PathBuf, Result<ProvisionedDashboard, FileProblem>> {
        let mut total: usize = self.files.values().map(FileState::bytes).sum();
        let owners: BTreeMap<String, PathBuf> = self
            .files
            .iter()
            .filter_map(|(path, file)| Some((file.shown_uid()?.clone(), path.clone())))
            .collect();
        let mut read = BTreeMap::new();
        for path in listed {
            let is_owner_gone = |uid: &String| owners.get(uid).is_none_or(|owner| owner == path);
            if let Some(outcome) = self.read_one(path, is_owner_gone, &mut total, now) {
                read.insert(path.clone(), outcome);
            }
        }
        // A file that was read may no longer have a uid for which another file waits. Two files
        // that exchange their uids wait for each other.
        if read.values().any(Result::is_ok) {
            let waits = |path: &&PathBuf| {
                let problem = self.files.get(*path).and_then(|file| file.problem.as_ref());
                !read.contains_key(*path) && matches!(problem, Some(FileProblem::DuplicateUid { .. }))
            };
            for path in listed.iter().filter(waits).collect::<Vec<_>>() {
                if let Some(outcome) = self.read_one(path, |_| true, &mut total, now) {
                    read.insert(path.clone(), outcome);
                }
            }
        }
        read
    }

    /// Reads a file if it changed since the pass before, or if its problem may be solved: there is
    /// room now, or `is_free` returns true for the uid of another file. `total` is the number of
    /// bytes of all files.
    fn read_one(
        &mut self,
        path: &Path,
        is_free: impl FnOnce(&String) -> bool,
        total: &mut usize,
        now: Timestamp,
    ) -> Option<Result<ProvisionedDashboard, FileProblem>> {
        let state = self.files.entry(path.to_owned()).or_default();
        let whole = self.dir.join(path);
        let stamp = match fs::metadata(&whole) {
            Ok(file) if file.is_file() => Ok(FileStamp::of(&file)),
            Ok(_) => Err(FileProblem::NotAFile),
            Err(error) => Err(error.into()),
        };
        let stamp = match stamp {
            Ok(stamp) => stamp,
            Err(problem) => {
                (state.stamp, state.settled) = (None, false);
                return Some(Err(problem));
            }
        };
        let room = TOTAL_BYTES_MAX.saturating_sub(*total - state.bytes());
        let may_be_solved = match &state.problem {
            Some(FileProblem::NoRoom(bytes)) => *bytes <= room,
            Some(FileProblem::DuplicateUid { uid, .. }) => is_free(uid),
            _ => false,
        };
        let same = state.stamp == Some(stamp);
        if same && state.settled && !may_be_solved {
            return None;
        }
        if !same {
            state.reported &= state.problem == Some(FileProblem::Changing);
        }
        (state.stamp, state.settled) = (Some(stamp), same);
        let outcome = read_file(&whole, stamp, room).and_then(|document| {
            let (uid, folder) = place_of(path, &document)?;
            Ok(ProvisionedDashboard::new(uid, &document, folder, stamp.modified_at(now)))
        });
        match &outcome {
            Ok(made) => *total = *total - state.bytes() + made.text.len(),
            Err(FileProblem::Changing) => (state.stamp, state.settled) = (None, false),
            Err(_) => {}
        }
        Some(outcome)
    }

    /// Decides which of the files that were read are shown.
    fn settle(
        &mut self,
        read: BTreeMap<PathBuf, Result<ProvisionedDashboard, FileProblem>>,
        pass: &mut Pass,
    ) {
        let mut owners: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (path, file) in &self.files {
            if let Some(uid) = file.shown_uid()
                && !matches!(read.get(path), Some(Ok(_)))
            {
                owners.insert(uid.clone(), path.clone());
            }
        }
        for keeps_its_uid in [true, false] {
            for (path, outcome) in &read {
                let Ok(made) = outcome else { continue };
                let uid = &made.dashboard.uid;
                if (self.files.get(path).and_then(FileState::shown_uid) == Some(uid)) == keeps_its_uid {
                    owners.entry(uid.clone()).or_insert_with(|| path.clone());
                }
            }
        }
        for (path, outcome) in read {
            let outcome = outcome.and_then(|made| match owners.get(&made.dashboard.uid) {
                Some(other) if *other != path => {
                    let (uid, other) = (made.dashboard.uid, other.clone());
                    Err(FileProblem::DuplicateUid { uid, other })
                }
                _ => Ok(made),
            });
            let Some(file) = self.files.get_mut(&path) else { continue };
            match outcome {
                Ok(made) => {
                    (file.problem, file.reported) = (None, false);
                    let is_same = file.shown.as_ref().is_some_and(|shown| {
                        shown.hash == made.hash && shown.dashboard.uid == made.dashboard.uid
                    });
                    if !is_same {
                        file.shown = Some(Arc::new(made));
                        pass.changed = true;
                    }
                }
                Err(problem) => {
                    // The last good version is kept, unless another file has its uid now.
                    let owner = file.shown_uid().and_then(|uid| owners.get(uid));
                    if owner.is_some_and(|owner| *owner != path) {
                        file.shown = None;
                        pass.changed = true;
                    } else if let Some(uid) = file.shown_uid() {
                        owners.insert(uid.clone(), path.clone());
                    }
                    // A half-written file has another problem in the next pass, or none.
                    let is_same = file.problem.as_ref() == Some(&problem);
                    file.reported &= is_same;
                    let lasts = is_same || self.passes == 0;
                    if lasts && !file.reported {
                        file.reported = true;
                        let (problem, keeps_last) = (problem.clone(), file.shown.is_some());
                        pass.reports.push(Report { path, problem, keeps_last });
                    }
                    file.problem = Some(problem);
                }
            }
        }
    }
}

/// Reads a file whose path had `stamp`.
fn read_file(path: &Path, stamp: FileStamp, room: usize) -> Result<DashboardDocument, FileProblem> {
    let bytes = usize::try_from(stamp.bytes).unwrap_or(usize::MAX);
    if bytes > DASHBOARD_BYTES_MAX {
        return Err(DocumentError::TooLarge(bytes).into());
    }
    if bytes > room {
        return Err(FileProblem::NoRoom(bytes));
    }
    let file = File::open(path)?;
    let document = read_dashboard(&file);
    if FileStamp::of(&file.metadata()?) != stamp {
        return Err(FileProblem::Changing);
    }
    document
}

/// Returns the uid of a file and the folder that it is shown in.
fn place_of(path: &Path, document: &DashboardDocument) -> Result<(String, String), FileProblem> {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let folders = parts.split_last().map(|(_, folders)| folders.join("/")).unwrap_or_default();
    let uid = document.uid().map_or_else(|| provisioned_uid(&parts.join("/")), str::to_owned);
    Ok((uid, parse_folder(&folders)?))
}

#[cfg(test)]
mod tests;
