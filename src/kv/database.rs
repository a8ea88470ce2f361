//! sled with additional guards: the steps that its own code omits, and its behaviour on damaged
//! files.
//!
//! * sled refuses an intact database that has a `snap.*.generating` of length 0, which a full
//!   disk leaves. Such a file is removed first.
//! * sled panics at some damaged files. Every call that may read its files for the first time
//!   catches the panic.
//! * Its threads hold the file lock for some 12 ms after a drop. "Lock held" is retried for 2 s.
//! * Its `flush` neither writes metadata nor flushes the device. [`Database::flush`] syncs `db` on
//!   a descriptor of its own.
//! * It never syncs its files in `blobs/` (pages over 128 KiB): see [`Database::sync_blobs`].

use std::fs::{self, File};
use std::io;
use std::ops::{Bound, Deref};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, FileError};
use super::frame::DamagedRow;
use super::ops;

/// Errors of opening, reading or writing a database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// A file operation outside of sled failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// sled returned an error.
    #[error("database {}: {action}", path.display())]
    Engine {
        /// The requested operation.
        action: &'static str,
        /// Directory of the database.
        path: PathBuf,
        /// The error of sled.
        source: EngineError,
    },
    /// sled panicked, as it does on damaged files.
    #[error("database {}: {action} panicked: {message}", path.display())]
    Panicked {
        /// The requested operation.
        action: &'static str,
        /// Directory of the database.
        path: PathBuf,
        /// Message of the panic.
        message: String,
    },
    /// A row is damaged.
    #[error("database {}", path.display())]
    Damaged {
        /// Directory of the database.
        path: PathBuf,
        /// The row and its damage.
        source: DamagedRow,
    },
}

impl DatabaseError {
    /// Returns whether the disk, its inodes or a quota are used up. Some functions of sled panic
    /// with the error's text.
    pub(super) fn is_no_room(&self) -> bool {
        match self {
            DatabaseError::File(e) => files::is_no_room(&e.source),
            DatabaseError::Engine { source: EngineError(sled::Error::Io(e)), .. } => files::is_no_room(e),
            DatabaseError::Panicked { message, .. } => {
                ["StorageFull", "QuotaExceeded", "os error 28", "os error 122"]
                    .iter()
                    .any(|sign| message.contains(sign))
            }
            DatabaseError::Engine { .. } | DatabaseError::Damaged { .. } => false,
        }
    }
}

/// An error of sled; its type stays inside this room.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(sled::Error);

/// The handle of sled. Its drop writes, and panics if it cannot (a file system that became
/// read-only). Such a panic must not abort a process that is about to report why it ends.
struct Engine(Option<sled::Db>);

impl Engine {
    fn close(mut self, dir: &Path) -> Result<(), DatabaseError> {
        let db = self.0.take();
        guarded("close", dir, || {
            drop(db);
            Ok(())
        })
    }
}

impl Deref for Engine {
    type Target = sled::Db;

    fn deref(&self) -> &sled::Db {
        self.0.as_ref().expect("only close and drop take it")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(db) = self.0.take() else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(db))) {
            let message = panic_message(payload.as_ref());
            tracing::warn!("a database was not closed cleanly, the next start checks it: {message}");
        }
    }
}

/// One open sled database.
pub(super) struct Database {
    db: Engine,
    /// Our own descriptor of `db`: a sync applies to the file, whichever descriptor is used.
    data: File,
    dir: PathBuf,
    /// Set by a test to make syncs fail.
    #[cfg(test)]
    pub(super) fail_sync: std::sync::atomic::AtomicBool,
}

/// "Lock held" is retried for 2 s, 400 times every 5 ms: sled's threads release it within some 12
/// ms of a drop.
const LOCK_TRIES: u32 = 400;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl Database {
    /// Opens or creates the database in `dir`, whose parent must exist, with a page cache of
    /// `cache_bytes`.
    ///
    /// On creation its files, its directory and the parent are synced.
    pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<Database, DatabaseError> {
        let is_new = !dir.join("db").exists();
        files::create_dir(dir)?;
        remove_empty_snapshots(dir)?;
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes)
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        let mut tries = 0;
        let db = loop {
            match guarded("open", dir, || config.open()) {
                Err(e) if lock_is_held(&e) && tries < LOCK_TRIES => {
                    tries += 1;
                    std::thread::sleep(LOCK_PAUSE);
                }
                other => break other?,
            }
        };
        let path = dir.join("db");
        let data = File::open(&path).map_err(FileError::at("open", &path))?;
        let database = Database {
            db: Engine(Some(db)),
            data,
            dir: dir.to_owned(),
            #[cfg(test)]
            fail_sync: false.into(),
        };
        if is_new {
            database.sync_creation()?;
        }
        Ok(database)
    }

    fn sync_creation(&self) -> Result<(), DatabaseError> {
        for name in ["db", "conf"] {
            let path = self.dir.join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .map_err(FileError::at("set mode of", &path))?;
            files::sync_file(&path)?;
        }
        files::sync_dir(&self.dir)?;
        if let Some(parent) = self.dir.parent() {
            files::sync_dir(parent)?;
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        guarded("read", &self.dir, || self.db.get(key)).map(|found| found.map(|value| value.to_vec()))
    }

    pub(super) fn insert(&self, key: &[u8], value: Vec<u8>) -> Result<(), DatabaseError> {
        guarded("insert", &self.dir, || self.db.insert(key, value)).map(drop)
    }

    /// Applies all of `changes` or, after a crash, none; nothing is durable before
    /// [`Database::flush`].
    pub(super) fn apply<'c>(
        &self,
        changes: impl Iterator<Item = (&'c [u8], Option<&'c [u8]>)>,
    ) -> Result<(), DatabaseError> {
        let mut batch = sled::Batch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        guarded("apply", &self.dir, || self.db.apply_batch(batch))
    }

    /// Makes everything written so far durable. A failed sync must not be retried.
    pub(super) fn flush(&self) -> Result<(), DatabaseError> {
        guarded("flush", &self.dir, || self.db.flush())?;
        let path = || self.dir.join("db");
        #[cfg(test)]
        if self.fail_sync.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(FileError::at("sync", &path())(io::Error::from_raw_os_error(5)).into());
        }
        ops::to_disk(|| self.data.sync_data()).map_err(|e| FileError::at("sync", &path())(e))?;
        Ok(())
    }

    /// Syncs the files in `blobs/` and that directory. Returns their number.
    pub(super) fn sync_blobs(&self) -> Result<u64, DatabaseError> {
        let blobs = self.dir.join("blobs");
        let mut count = 0;
        if blobs.is_dir() {
            for name in files::names(&blobs)? {
                files::sync_file(&blobs.join(name))?;
                count += 1;
            }
            if count > 0 {
                files::sync_dir(&blobs)?;
            }
        }
        Ok(count)
    }

    /// Passes the rows whose keys begin with `prefix`, in key order, to `each` until it returns
    /// `Stop`.
    pub(super) fn scan(
        &self,
        prefix: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> ScanControl,
    ) -> Result<(), DatabaseError> {
        let mut rows = self.db.scan_prefix(prefix);
        while let Some((key, value)) = guarded("scan", &self.dir, || rows.next().transpose())? {
            if matches!(each(&key, &value), ScanControl::Stop) {
                break;
            }
        }
        Ok(())
    }

    /// Like [`Database::scan`], but in descending key order and only below `below` (exclusive).
    pub(super) fn scan_back(
        &self,
        prefix: &[u8],
        below: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> ScanControl,
    ) -> Result<(), DatabaseError> {
        let end = below.map_or_else(|| prefix_end(prefix), |below| Bound::Excluded(below.to_vec()));
        if matches!(&end, Bound::Excluded(end) if end.as_slice() <= prefix) {
            return Ok(());
        }
        let mut rows = self.db.range((Bound::Included(prefix.to_vec()), end)).rev();
        while let Some((key, value)) = guarded("scan", &self.dir, || rows.next().transpose())? {
            if matches!(each(&key, &value), ScanControl::Stop) {
                break;
            }
        }
        Ok(())
    }

    /// Closes the database and makes the directory's final state durable.
    pub(super) fn close(self) -> Result<(), DatabaseError> {
        let Database { db, data, dir, .. } = self;
        db.close(&dir)?;
        drop(data);
        for name in ["db", "conf"] {
            files::sync_file(&dir.join(name))?;
        }
        files::sync_dir(&dir)?;
        Ok(())
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Returns the exclusive end of the keys that begin with `prefix`.
fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    let counts = prefix.iter().rposition(|byte| *byte < 0xff);
    match counts.and_then(|at| prefix.get(..=at)).and_then(<[u8]>::split_last) {
        Some((last, before)) => Bound::Excluded([before, &[last + 1]].concat()),
        None => Bound::Unbounded,
    }
}

/// Whether a scan continues.
pub(super) enum ScanControl {
    Continue,
    Stop,
}

fn remove_empty_snapshots(dir: &Path) -> Result<(), FileError> {
    for name in files::names(dir)? {
        let path = dir.join(&name);
        let unfinished = name.starts_with("snap.") && name.ends_with(".generating");
        if unfinished && fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            fs::remove_file(&path).map_err(FileError::at("remove", &path))?;
        }
    }
    Ok(())
}

fn lock_is_held(error: &DatabaseError) -> bool {
    matches!(error, DatabaseError::Engine { source: EngineError(sled::Error::Io(e)), .. } if e.kind() == io::ErrorKind::Other && e.to_string().contains("lock"))
}

fn guarded<T>(
    action: &'static str,
    dir: &Path,
    call: impl FnOnce() -> sled::Result<T>,
) -> Result<T, DatabaseError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => {
            answer.map_err(|e| DatabaseError::Engine { action, path: dir.to_owned(), source: EngineError(e) })
        }
        Err(payload) => Err(DatabaseError::Panicked {
            action,
            path: dir.to_owned(),
            message: panic_message(payload.as_ref()),
        }),
    }
}

/// Returns the message of a caught panic.
pub(super) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
