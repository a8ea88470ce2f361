//! The data folder: its lock, its identity, and the markers that determine how to start.
//!
//! All markers are text, written once or by rename, each with its own checksum (CRC32C, hex) over
//! the lines before it:
//! ```text
//! STORE  promlet store          INITIALISED  promlet initialised  CLEAN  promlet clean stop
//!        layout 1                            id <32 hex digits>          id <32 hex digits>
//!        id <32 hex digits>                  at <RFC 3339>               at <RFC 3339>
//!        created <RFC 3339>                  crc <8 hex digits>          crc <8 hex digits>
//!        crc <8 hex digits>
//! FOLLOWING      drawn in src/standby/base.rs
//! RUNNING        promlet running, id, at, crc
//! UNCLEAN        promlet unclean stops, id, at (the last one's next start), count <number>, crc
//! AGENT          promlet agent, id, at, crc; in folders of `promlet agent` only
//! LOCK           pid <number>, started <RFC 3339>; held with flock while the process lives
//! master.key     64 hex digits, mode 0600
//! ```
//! `STORE` is the first file that is made durable in a new folder and never changes. `CLEAN` exists
//! only between a clean stop and the next start. `RUNNING` exists while a server serves, until its
//! clean stop; a server that finds it at its start counts an unclean stop in `UNCLEAN`. Nothing
//! else depends on these two: a restored folder, or a start that was refused, has no `CLEAN`
//! either. `AGENT` is written before the first record: an agent removes forwarded samples, so
//! neither a server nor a command opens a folder that has the file, and an agent opens no other.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::files::{self, FileError, is_no_room};
use super::keyed::RecordKey;
use super::ops;
use crate::entropy::Entropy;
use crate::model::{StoreId, Timestamp};

mod evidence;

/// The layout of the folder that this program reads and writes.
const LAYOUT: u32 = 1;
/// The marker of an agent's folder. Only the existence of the file matters, not its content.
const AGENT_MARKER: &str = "AGENT";
/// Files and folders of which a server creates at least one before its first record or account.
const SERVER_PARTS: [&str; 6] = ["wal", "journal", "exports", "segments", "INITIALISED", "RUNNING"];
/// First line of `UNCLEAN`.
const UNCLEAN_TITLE: &str = "promlet unclean stops";
/// The marker of a base that is not a follower's store yet (docs/standby.md section 7).
pub const FOLLOWING: &str = "FOLLOWING";
/// Maximum length of a marker in bytes; markers have about a hundred.
const MARKER_BYTES_MAX: u64 = 4_096;

/// Reasons why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process uses the folder.
    #[error("{} is in use by another promlet ({holder})", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The content of `LOCK`: pid and start time.
        holder: String,
    },
    /// The folder has other files but no store; it is left unchanged.
    #[error("{} is not empty and holds no promlet store: it has {found:?}, but no STORE", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The first name that does not belong to a store.
        found: String,
    },
    /// The folder holds the base of a follower that never ran.
    #[error("{} is the beginning of a standby: start it with `promlet follow`", path.display())]
    Following {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has no store.
    #[error("{} holds no promlet store", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was written by a newer version; it is left unchanged.
    #[error("{} has layout {found}, but this program reads {LAYOUT}: use the newer program", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// The layout.
        found: u32,
    },
    /// The folder is the queue of an agent.
    #[error(
        "{} is the queue of `promlet agent`, which keeps only what it has not forwarded: use another folder",
        path.display()
    )]
    OfAgent {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a store that is not the queue of an agent.
    #[error(
        "{} holds the store of a server; an agent would remove its samples once they are forwarded: use another folder",
        path.display()
    )]
    OfServer {
        /// The folder.
        path: PathBuf,
    },
    /// A marker is damaged.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The key file is missing. No key is created for a store that has users, nor outside of the
    /// folder, because sealed secrets need the old one.
    #[error(
        "the master key {} is missing: restore it from your backup (or, to continue without the secrets that it sealed, start \
         once with --new-master-key)",
        path.display()
    )]
    MasterKeyMissing {
        /// The expected path.
        path: PathBuf,
    },
    /// The key is not 32 bytes.
    #[error(
        "the master key from {origin} is neither 64 hexadecimal digits nor 32 bytes in base64: put it back from your backup"
    )]
    MasterKeyShape {
        /// The file, or "its setting".
        origin: String,
    },
    /// Every user of the machine can read the key.
    #[error("{} is readable by other users of this machine (mode {mode:o}): run chmod 600 on it", path.display())]
    MasterKeyOpen {
        /// The file.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
}

/// The end of the previous process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// No stop happened, because the folder is new.
    New,
    /// A clean stop.
    Clean,
    /// A crash, a kill or a power cut.
    Unclean,
}

/// The state of the marker `INITIALISED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialised {
    /// The file does not exist.
    No,
    /// The file exists, but its content is damaged or names another store.
    Unusable,
    /// The file exists and is valid.
    Yes,
}

/// The source of the master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    /// `master.key` in the folder, created if the store is new.
    Folder,
    /// A file elsewhere; never created.
    File(PathBuf),
    /// The key itself: 64 hex digits or base64.
    Value(String),
}

/// The key that seals secrets in control.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey(pub [u8; 32]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(***)")
    }
}

/// An open data folder, locked until it is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    store: StoreId,
    created: Timestamp,
    last_stop: LastStop,
    /// Repairs made by this opening, one sentence each.
    notes: Vec<String>,
    /// Whether `RUNNING` was written by this process.
    serves: AtomicBool,
    /// Random key of this process, from which the secrets of new journal files are derived.
    record_key: RecordKey,
    /// Held until the folder is dropped.
    _lock: FolderLock,
}

/// An exclusive flock of `LOCK`, which ends when this value is dropped.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being started has a copy of the
        // descriptor until it runs its program, and the copy would hold the lock. If the call
        // fails, the lock ends when the last copy is closed.
        let _ = self.0.unlock();
    }
}

impl DataFolder {
    /// Opens and locks the folder. Creates it with its missing parents if it does not exist.
    ///
    /// # Errors
    /// [`FolderError::InUse`] names the process that uses it; [`FolderError::Foreign`] and
    /// [`FolderError::Newer`] leave it unchanged, as does [`FolderError::OfAgent`] for the queue of
    /// an agent.
    pub fn open(path: &Path, now: Timestamp, rng: &mut Entropy) -> Result<DataFolder, FolderError> {
        if path.join(FOLLOWING).exists() {
            return Err(FolderError::Following { path: path.to_owned() });
        }
        DataFolder::open_following(path, now, rng)
    }

    /// Opens the folder like [`DataFolder::open`], and also one with a base that is not a
    /// follower's store yet.
    ///
    /// # Errors
    /// As for [`DataFolder::open`].
    pub fn open_following(path: &Path, now: Timestamp, rng: &mut Entropy) -> Result<DataFolder, FolderError> {
        refuse_agent(path)?;
        let folder = DataFolder::open_any(path, now, rng)?;
        // Another process may have created it before the lock was taken.
        refuse_agent(path)?;
        Ok(folder)
    }

    /// Like [`DataFolder::open`], for the queue of an agent.
    ///
    /// # Errors
    /// Those of [`DataFolder::open`]; [`FolderError::OfServer`] if the folder has a log or accounts
    /// of a server.
    pub fn open_agent(path: &Path, now: Timestamp, rng: &mut Entropy) -> Result<DataFolder, FolderError> {
        refuse_server(path)?;
        let folder = DataFolder::open_any(path, now, rng)?;
        refuse_server(path)?;
        if !path.join(AGENT_MARKER).exists() {
            folder.write_marker(AGENT_MARKER, "promlet agent", now)?;
        }
        Ok(folder)
    }

    /// Opens the folder of a server or of an agent.
    fn open_any(path: &Path, now: Timestamp, rng: &mut Entropy) -> Result<DataFolder, FolderError> {
        make_with_parents(path)?;
        // Checked before LOCK is created: a folder that is not a store stays unchanged.
        identity(path)?;
        let lock = take_lock(path, now)?;
        let mut notes = Vec::new();
        let (store, created, last_stop) = match identity(path)? {
            Some(Identity { store, created, damage }) => {
                let created = created.unwrap_or(now);
                if let Some(what) = damage {
                    notes.push(rewrite_identity(path, store, created, now, &what)?);
                }
                (store, created, take_clean_marker(path, store)?)
            }
            None => {
                let store = StoreId(rng.bytes());
                write_identity(path, store, now)?;
                (store, now, LastStop::New)
            }
        };
        let (serves, record_key) = (AtomicBool::new(false), RecordKey::random(rng));
        let path = path.to_owned();
        Ok(DataFolder { path, store, created, last_stop, notes, serves, record_key, _lock: lock })
    }

    /// Returns the repairs made by this opening, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the id of the store, which is in every file of it.
    pub fn store_id(&self) -> StoreId {
        self.store
    }

    /// Returns the key from which the secrets of new journal files are derived.
    pub(super) fn record_key(&self) -> RecordKey {
        self.record_key
    }

    /// Returns the time of creation.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Returns the end of the previous process.
    pub fn last_stop(&self) -> LastStop {
        self.last_stop
    }

    /// Returns the number of unclean stops of serving processes; before
    /// [`DataFolder::begin_serving`] including the last one.
    ///
    /// # Errors
    /// [`FolderError`] if the count cannot be read.
    pub fn unclean_stops(&self) -> Result<u64, FolderError> {
        let lines = match read_marker(&self.path.join("UNCLEAN"), UNCLEAN_TITLE) {
            // The file has only a count; a damaged one restarts at 0.
            Err(FolderError::Damaged { .. }) => None,
            read => read?,
        };
        let known = lines.and_then(|lines| line(&lines, "count")?.parse().ok()).unwrap_or(0_u64);
        let serves = self.serves.load(Ordering::Relaxed);
        // A damaged `RUNNING` counts as well.
        let left_running = !serves && self.path.join("RUNNING").exists();
        Ok(known.saturating_add(u64::from(left_running)))
    }

    /// Records that this process serves from now on. If the previous one did not stop cleanly,
    /// counts that.
    ///
    /// # Errors
    /// [`FolderError`] if it cannot be written; the next start then counts that stop.
    pub fn begin_serving(&self, now: Timestamp) -> Result<(), FolderError> {
        if self.path.join("RUNNING").exists() {
            let counted = self.unclean_stops()?;
            self.write_marker_with("UNCLEAN", UNCLEAN_TITLE, &format!("count {counted}\n"), now)?;
        }
        self.serves.store(true, Ordering::Relaxed);
        self.write_marker("RUNNING", "promlet running", now)
    }

    /// Records a clean stop; everything else must be closed and durable before.
    ///
    /// # Errors
    /// [`FolderError`] if it cannot be written; the next start then treats this stop as unclean.
    pub fn close_clean(self, now: Timestamp) -> Result<(), FolderError> {
        let running = self.path.join("RUNNING");
        if self.serves.load(Ordering::Relaxed) && running.exists() {
            ops::remove_file(&running).map_err(FileError::at("remove", &running))?;
        }
        self.write_marker("CLEAN", "promlet clean stop", now)
    }

    /// Returns whether a valid `INITIALISED` exists, which means that the store had an owner.
    ///
    /// # Errors
    /// [`FolderError`] if the file cannot be read.
    pub fn is_initialised(&self) -> Result<bool, FolderError> {
        Ok(self.initialised()? == Initialised::Yes)
    }

    /// Returns the state of `INITIALISED`. A damaged marker, or one of another store, is not an
    /// error: control determines whether the store has users, and rewrites the marker if it has.
    ///
    /// # Errors
    /// [`FolderError`] if the file cannot be read.
    pub fn initialised(&self) -> Result<Initialised, FolderError> {
        let path = self.path.join("INITIALISED");
        match read_marker(&path, "promlet initialised") {
            Ok(None) => Ok(Initialised::No),
            Ok(Some(lines)) if store_in(&path, &lines).is_ok_and(|store| store == self.store) => {
                Ok(Initialised::Yes)
            }
            Ok(Some(_)) | Err(FolderError::Damaged { .. }) => Ok(Initialised::Unusable),
            Err(e) => Err(e),
        }
    }

    /// Writes `INITIALISED`, after the commit that creates the first owner and before its reply.
    /// Replaces a damaged marker; does nothing if a valid one exists.
    ///
    /// # Errors
    /// [`FolderError`] if it cannot be written.
    pub fn mark_initialised(&self, now: Timestamp) -> Result<(), FolderError> {
        if self.is_initialised()? {
            Ok(())
        } else {
            self.write_marker("INITIALISED", "promlet initialised", now)
        }
    }

    fn write_marker(&self, name: &str, title: &str, now: Timestamp) -> Result<(), FolderError> {
        self.write_marker_with(name, title, "", now)
    }

    fn write_marker_with(
        &self,
        name: &str,
        title: &str,
        more: &str,
        now: Timestamp,
    ) -> Result<(), FolderError> {
        let body = format!("{title}\nid {}\nat {}\n{more}", self.store, now.to_rfc3339());
        Ok(files::write_whole(&self.path, name, with_crc(body).as_bytes())?)
    }

    /// Returns the master key. Creates `master.key`, once, in a store that has no users yet.
    ///
    /// # Errors
    /// [`FolderError::MasterKeyMissing`] instead of a new key for a store that has users;
    /// [`FolderError::MasterKeyOpen`] if every user of the machine can read the file.
    pub fn master_key(&self, source: &MasterKeySource, rng: &mut Entropy) -> Result<MasterKey, FolderError> {
        let path = match source {
            MasterKeySource::Value(text) => return parse_key(text, "its setting"),
            MasterKeySource::File(path) => path.clone(),
            MasterKeySource::Folder => self.path.join("master.key"),
        };
        if let Some(text) = files::read_small(&path, MARKER_BYTES_MAX)? {
            let mode =
                fs::metadata(&path).map_err(FileError::at("look at", &path))?.permissions().mode() & 0o777;
            if mode & 0o007 != 0 {
                return Err(FolderError::MasterKeyOpen { path, mode });
            }
            return parse_key(&String::from_utf8_lossy(&text), &path.display().to_string());
        }
        // A damaged marker counts as an existing one: a new key must not silently replace a lost
        // one.
        if *source != MasterKeySource::Folder || self.initialised()? != Initialised::No {
            return Err(FolderError::MasterKeyMissing { path });
        }
        self.make_master_key(rng)
    }

    fn make_master_key(&self, rng: &mut Entropy) -> Result<MasterKey, FolderError> {
        let key = MasterKey(rng.bytes());
        let text = data_encoding::HEXLOWER.encode(&key.0) + "\n";
        files::write_whole(&self.path, "master.key", text.as_bytes())?;
        Ok(key)
    }

    /// Creates a new `master.key` after the loss of the old one; an existing file is moved to
    /// quarantine.
    ///
    /// # Errors
    /// [`FolderError`] if it cannot be moved or written.
    pub fn replace_master_key(&self, now: Timestamp, rng: &mut Entropy) -> Result<MasterKey, FolderError> {
        let path = self.path.join("master.key");
        if path.exists() {
            self.quarantine(&path, now)?;
        }
        self.make_master_key(rng)
    }

    /// Moves a damaged file to `quarantine/<time>-<name>` and syncs both directories. Returns the
    /// new path.
    ///
    /// # Errors
    /// [`FileError`] if it cannot be moved.
    pub fn quarantine(&self, what: &Path, now: Timestamp) -> Result<PathBuf, FileError> {
        let dir = self.path.join("quarantine");
        files::create_dir(&dir)?;
        let name = what.file_name().unwrap_or_default().to_string_lossy();
        let time = now.to_rfc3339().replace(':', "");
        let free = (0..10_000).map(|n| match n {
            0 => dir.join(format!("{time}-{name}")),
            n => dir.join(format!("{time}-{n}-{name}")),
        });
        let to =
            free.into_iter().find(|to| !to.exists()).unwrap_or_else(|| dir.join(format!("{time}-{name}")));
        files::rename(what, &to)?;
        files::sync_dir(&dir)?;
        files::sync_dir(what.parent().unwrap_or(&self.path))?;
        Ok(to)
    }
}

/// Creates the folder and its missing parents (0700), each durable under its name.
fn make_with_parents(path: &Path) -> Result<(), FileError> {
    let absolute = std::path::absolute(path).map_err(FileError::at("find", path))?;
    let missing: Vec<_> = absolute.ancestors().take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        let made = ops::create_dir(dir);
        match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(FileError::at("create directory", dir))?,
        }
        if let Some(parent) = dir.parent() {
            files::sync_dir(parent)?;
        }
    }
    Ok(())
}

/// Returns the store of a folder without changing it, in use or not.
///
/// # Errors
/// [`FolderError::NoStore`] if there is no `STORE`, otherwise as for [`DataFolder::open`].
pub(super) fn store_in_folder(path: &Path) -> Result<StoreId, FolderError> {
    match identity(path) {
        Ok(Some(identity)) => Ok(identity.store),
        Ok(None) | Err(FolderError::Foreign { .. }) => Err(FolderError::NoStore { path: path.to_owned() }),
        Err(e) => Err(e),
    }
}

/// Returns the process that uses the folder, as named in its `LOCK`; `None` if none does. Changes
/// nothing.
///
/// # Errors
/// [`FolderError::File`].
pub fn holder(path: &Path) -> Result<Option<String>, FolderError> {
    let name = path.join("LOCK");
    let file = match File::open(&name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(FileError::at("open", &name))?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            (&file).take(MARKER_BYTES_MAX).read_to_string(&mut text).map_err(FileError::at("read", &name))?;
            Ok(Some(text.trim().replace('\n', ", ")))
        }
        Err(TryLockError::Error(e)) => Err(FileError::at("lock", &name)(e).into()),
    }
}

/// Returns the damage of `STORE` that the next start repairs; `None` if `STORE` is intact or cannot
/// be rewritten.
///
/// # Errors
/// As for [`store_in_folder`].
pub(super) fn identity_damage(path: &Path) -> Result<Option<String>, FolderError> {
    Ok(identity(path)?.and_then(|identity| identity.damage))
}

fn refuse_agent(path: &Path) -> Result<(), FolderError> {
    match path.join(AGENT_MARKER).exists() {
        true => Err(FolderError::OfAgent { path: path.to_owned() }),
        false => Ok(()),
    }
}

fn refuse_server(path: &Path) -> Result<(), FolderError> {
    let is_of_agent = path.join(AGENT_MARKER).exists();
    match !is_of_agent && SERVER_PARTS.iter().any(|part| path.join(part).exists()) {
        true => Err(FolderError::OfServer { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// The identity of a store.
struct Identity {
    store: StoreId,
    /// `None` if only the damaged `STORE` had it.
    created: Option<Timestamp>,
    /// Damage of `STORE`, in which case the identity comes from other files.
    damage: Option<String>,
}

/// Returns the identity in `STORE`; `None` in an empty folder. If `STORE` is damaged, the identity
/// comes from the other files that carry it, provided that all of them agree.
fn identity(path: &Path) -> Result<Option<Identity>, FolderError> {
    let marker = path.join("STORE");
    let bytes = match files::read_small(&marker, MARKER_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let ours = ["LOCK", "STORE.new", "lost+found"];
            return match files::names(path)?.into_iter().find(|name| !ours.contains(&name.as_str())) {
                Some(found) => Err(FolderError::Foreign { path: path.to_owned(), found }),
                None => Ok(None),
            };
        }
        // The file is longer than any marker, so it is damaged.
        Err(e) if e.source.kind() == io::ErrorKind::InvalidData => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    match whole_identity(path, &marker, &bytes) {
        Ok((store, created)) => Ok(Some(Identity { store, created: Some(created), damage: None })),
        Err(FolderError::Damaged { path: marker, what }) => {
            match evidence::store_of(path, &String::from_utf8_lossy(&bytes))? {
                Some(store) => Ok(Some(Identity { store, created: None, damage: Some(what) })),
                None => Err(FolderError::Damaged { path: marker, what }),
            }
        }
        Err(e) => Err(e),
    }
}

fn whole_identity(path: &Path, marker: &Path, bytes: &[u8]) -> Result<(StoreId, Timestamp), FolderError> {
    // The layout is checked first: a newer one may have other lines and another checksum.
    let text = String::from_utf8_lossy(bytes);
    let layout = text.lines().nth(1).and_then(|line| line.strip_prefix("layout ")?.parse::<u32>().ok());
    if let Some(found) = layout.filter(|found| *found > LAYOUT && text.starts_with("promlet store\n")) {
        // If the checksum fits the known layout's number, only that number is damaged.
        let known = text.replacen(&format!("\nlayout {found}\n"), &format!("\nlayout {LAYOUT}\n"), 1);
        if check_marker(marker, known.as_bytes(), "promlet store").is_err() {
            return Err(FolderError::Newer { path: path.to_owned(), found });
        }
    }
    let lines = check_marker(marker, bytes, "promlet store")?;
    let damaged = |what: &str| FolderError::Damaged { path: marker.to_owned(), what: what.to_owned() };
    let created =
        line(&lines, "created").and_then(Timestamp::from_rfc3339).ok_or_else(|| damaged("no time"))?;
    if line(&lines, "layout") != Some("1") {
        return Err(damaged("no layout"));
    }
    Ok((store_in(marker, &lines)?, created))
}

fn write_identity(path: &Path, store: StoreId, created: Timestamp) -> Result<(), FileError> {
    let body = format!("promlet store\nlayout {LAYOUT}\nid {store}\ncreated {}\n", created.to_rfc3339());
    files::write_whole(path, "STORE", with_crc(body).as_bytes())
}

/// Rewrites `STORE` and keeps the damaged file in `quarantine/`. Returns a sentence for the
/// operator.
fn rewrite_identity(
    path: &Path,
    store: StoreId,
    created: Timestamp,
    now: Timestamp,
    what: &str,
) -> Result<String, FileError> {
    let quarantine = path.join("quarantine");
    let kept = quarantine.join(format!("{}-STORE", now.to_rfc3339().replace(':', "")));
    // A hard link, so that a file named STORE exists at every moment. The quarantined copy is not
    // essential.
    let linked = files::create_dir(&quarantine).is_ok() && ops::link(&path.join("STORE"), &kept).is_ok();
    if linked {
        files::sync_dir(&quarantine)?;
    }
    write_identity(path, store, created)?;
    let kept = if linked { format!(", the damaged one is {}", kept.display()) } else { String::new() };
    Ok(format!(
        "{}: {what}; nothing is lost: the journal and all markers state that this is store {store}, so it was written again{kept}",
        path.join("STORE").display()
    ))
}

fn take_lock(path: &Path, now: Timestamp) -> Result<FolderLock, FolderError> {
    let name = path.join("LOCK");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&name)
        .map_err(FileError::at("open", &name))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.take(MARKER_BYTES_MAX).read_to_string(&mut text).map_err(FileError::at("read", &name))?;
            let holder = text.trim().replace('\n', ", ");
            let holder = if holder.is_empty() { "just starting".to_owned() } else { holder };
            return Err(FolderError::InUse { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(e)) => return Err(FileError::at("lock", &name)(e).into()),
    }
    let mut lock = FolderLock(file);
    let text = format!("pid {}\nstarted {}\n", std::process::id(), now.to_rfc3339());
    lock.0.set_len(0).map_err(FileError::at("empty", &name))?;
    match lock.0.write_all(text.as_bytes()) {
        // On a full disk the lock is held without its text.
        Err(e) if is_no_room(&e) => Ok(lock),
        other => other.map(|()| lock).map_err(|e| FileError::at("write", &name)(e).into()),
    }
}

/// Returns whether the last stop was clean. The marker is durably removed before anything else is
/// written.
fn take_clean_marker(path: &Path, store: StoreId) -> Result<LastStop, FolderError> {
    let marker = path.join("CLEAN");
    let is_clean = match read_marker(&marker, "promlet clean stop") {
        Ok(None) => return Ok(LastStop::Unclean),
        Ok(Some(lines)) => store_in(&marker, &lines).is_ok_and(|found| found == store),
        // The marker only saves time, so a damaged one counts as an unclean stop.
        Err(FolderError::Damaged { .. }) => false,
        Err(e) => return Err(e),
    };
    ops::remove_file(&marker).map_err(FileError::at("remove", &marker))?;
    files::sync_dir(path)?;
    Ok(if is_clean { LastStop::Clean } else { LastStop::Unclean })
}

/// Parses a key in hexadecimal, as in `master.key`, or in base64, as in `PROMLET_MASTER_KEY`. The
/// two are distinguished by their length.
fn parse_key(text: &str, origin: &str) -> Result<MasterKey, FolderError> {
    let text = text.trim().as_bytes();
    let hex = data_encoding::HEXLOWER_PERMISSIVE.decode(text).ok();
    let key = |bytes: Vec<u8>| <[u8; 32]>::try_from(bytes).ok();
    hex.and_then(key)
        .or_else(|| data_encoding::BASE64.decode(text).ok().and_then(key))
        .map(MasterKey)
        .ok_or_else(|| FolderError::MasterKeyShape { origin: origin.to_owned() })
}

fn with_crc(body: String) -> String {
    let crc = crc32c::crc32c(body.as_bytes());
    body + &format!("crc {crc:08x}\n")
}

/// Returns the lines of a marker between its title and its checksum; `None` if the file does not
/// exist.
fn read_marker(path: &Path, title: &str) -> Result<Option<Vec<String>>, FolderError> {
    match files::read_small(path, MARKER_BYTES_MAX)? {
        Some(bytes) => check_marker(path, &bytes, title).map(Some),
        None => Ok(None),
    }
}

fn check_marker(path: &Path, bytes: &[u8], title: &str) -> Result<Vec<String>, FolderError> {
    let damaged = |what: &str| FolderError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not valid UTF-8"))?;
    let at = text.find("\ncrc ").ok_or_else(|| damaged("it has no checksum"))?;
    let (body, _) = text.split_at(at + 1);
    if with_crc(body.to_owned()) != text {
        return Err(damaged("its checksum is wrong"));
    }
    let mut lines = body.lines().map(str::to_owned);
    if lines.next().as_deref() != Some(title) {
        return Err(damaged("it is another kind of file"));
    }
    Ok(lines.collect())
}

fn line<'l>(lines: &'l [String], name: &str) -> Option<&'l str> {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn store_in(path: &Path, lines: &[String]) -> Result<StoreId, FolderError> {
    line(lines, "id")
        .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok())
        .and_then(|bytes| bytes.try_into().ok().map(StoreId))
        .ok_or_else(|| FolderError::Damaged { path: path.to_owned(), what: "no store id".to_owned() })
}

#[cfg(test)]
mod tests;
