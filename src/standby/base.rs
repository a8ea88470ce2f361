//! The base: a copy of the primary's folder, from which a follower begins (docs/standby.md,
//! section 7).
//!
//! `FOLLOWING` in the folder marks a base that is not a follower's store yet:
//! ```text
//! promlet following
//! begun | whole
//! epoch <n>, log <n>, accounts <n>, link <n>      (a line each, only if whole)
//! ```
//! While `STORE` is missing the base is incomplete, and everything in the folder is removed by the
//! next attempt.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::follower::{Incoming, LinkError};
use super::frame::{Frame, FrameError, FrameReader};
use crate::clock::Stopwatch;
use crate::kv::{Control, FOLLOWING, StandbyRole, with_sources};

/// The bytes of one data frame.
const PIECE_BYTES: usize = 256 << 10;
/// The limit of files in a base.
const FILES_MAX: u64 = 1_000_000;
/// The names at the top of a base.
const TOP_LEVEL: [&str; 8] =
    ["STORE", "INITIALISED", "master.key", "exports", "journal", "series", "segments", "wal"];
/// The title of `FOLLOWING`.
const TITLE: &str = "promlet following";
/// The time without a byte after which the primary counts as disconnected. It sends heartbeats
/// while it stages a base.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The reason why a base was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The primary could not stage it.
    #[error("the base could not be staged: {0}")]
    Source(String),
    /// The receiver has disconnected.
    #[error("the follower has disconnected")]
    Gone,
    /// A file operation failed.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The stream is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The folder is neither empty nor a follower's.
    #[error("{} has other files: a follower needs a folder of its own", .0.display())]
    NotEmpty(PathBuf),
    /// `FOLLOWING` is damaged.
    #[error("{} is damaged: remove the folder and follow again", .0.display())]
    Marker(PathBuf),
    /// The role was not stored.
    #[error("the role of this store was not stored: {0}")]
    Role(String),
}

fn at<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> BaseError + 'p {
    move |source| BaseError::File { what, path: path.to_owned(), source }
}

/// Sends the files of a staged base, `STORE` last. After `before_end` follows the frame `end`, with
/// the number of files.
pub(super) fn send_base(
    staged: &Path,
    end: &Frame,
    before_end: &mut dyn FnMut() -> Result<(), BaseError>,
    send: &mut (dyn FnMut(Vec<u8>) -> bool + Send),
) -> Result<(), BaseError> {
    let mut paths = Vec::new();
    list(staged, Path::new(""), &mut paths)?;
    paths.sort_by_key(|path| (path == Path::new("STORE"), path.clone()));
    for path in &paths {
        let full = staged.join(path);
        let mut file = File::open(&full).map_err(at("open", &full))?;
        let bytes = file.metadata().map_err(at("look at", &full))?.len();
        let mut out = Vec::new();
        Frame::File { bytes, path: path.to_string_lossy().into_owned() }.encode(&mut out);
        let mut left = bytes;
        loop {
            let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
            file.read_exact(&mut piece).map_err(at("read", &full))?;
            left -= piece.len() as u64;
            if !piece.is_empty() {
                Frame::Data(piece).encode(&mut out);
            }
            if !send(std::mem::take(&mut out)) {
                return Err(BaseError::Gone);
            }
            if left == 0 {
                break;
            }
        }
    }
    before_end()?;
    let mut out = Vec::new();
    if let Frame::BaseEnd { log, accounts, epoch, link, .. } = end {
        let (log, accounts, epoch, link) = (*log, *accounts, *epoch, *link);
        Frame::BaseEnd { files: paths.len() as u64, log, accounts, epoch, link }.encode(&mut out);
    }
    if send(out) { Ok(()) } else { Err(BaseError::Gone) }
}

fn list(root: &Path, below: &Path, paths: &mut Vec<PathBuf>) -> Result<(), BaseError> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
        let entry = entry.map_err(at("list", &dir))?;
        let path = below.join(entry.file_name());
        if entry.file_type().map_err(at("look at", &dir))?.is_dir() {
            list(root, &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// The state of a follower's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// A base is needed.
    NeedsBase,
    /// There is a store.
    HasStore,
}

/// Looks at a follower's folder, and empties it if it holds an incomplete base.
///
/// # Errors
/// [`BaseError::NotEmpty`]: the folder has other files.
pub fn prepare_folder(dir: &Path) -> Result<Prepared, BaseError> {
    if dir.join("STORE").exists() {
        return Ok(Prepared::HasStore);
    }
    if !dir.exists() {
        return Ok(Prepared::NeedsBase);
    }
    let names = fs::read_dir(dir).map_err(at("list", dir))?;
    let mut found = Vec::new();
    for entry in names {
        found.push(entry.map_err(at("list", dir))?);
    }
    let marker = dir.join(FOLLOWING);
    found.retain(|entry| entry.file_name() != "lost+found");
    if !found.is_empty() && !marker.exists() {
        return Err(BaseError::NotEmpty(dir.to_owned()));
    }
    for entry in found.into_iter().filter(|entry| entry.file_name() != FOLLOWING) {
        let path = entry.path();
        let is_dir = entry.file_type().map_err(at("look at", &path))?.is_dir();
        if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .map_err(at("remove", &path))?;
    }
    Ok(Prepared::NeedsBase)
}

/// Receives a base into `dir`, which [`prepare_folder`] has emptied. Everything is durable when
/// this returns. `progress` gets the number of received bytes.
///
/// # Errors
/// [`BaseError`]: the folder is incomplete, and the next attempt empties it.
pub fn fetch_base(
    dir: &Path,
    incoming: &mut dyn Incoming,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BaseError> {
    create_dir(dir)?;
    write_marker(dir, "begun\n")?;
    let mut receiver = Receiver { dir, open: None, store: Vec::new(), files: 0, dirs: vec![dir.to_owned()] };
    let (mut reader, mut received) = (FrameReader::default(), 0);
    let mut quiet = Stopwatch::start();
    loop {
        while let Some(frame) = reader.next_frame()? {
            if receiver.take(frame)? {
                return Ok(());
            }
        }
        match incoming.read(Duration::from_secs(1))? {
            Some(bytes) => {
                quiet = Stopwatch::start();
                received += bytes.len() as u64;
                progress(received);
                reader.push(&bytes);
            }
            None if quiet.elapsed() > SILENCE_MAX => return Err(LinkError::Ended.into()),
            None => {}
        }
    }
}

struct Receiver<'d> {
    dir: &'d Path,
    /// The file being received, and its missing bytes. The content of `STORE` is in `store`.
    open: Option<(Option<File>, PathBuf, u64)>,
    store: Vec<u8>,
    files: u64,
    dirs: Vec<PathBuf>,
}

impl Receiver<'_> {
    /// Takes one frame. Returns whether the base is complete.
    fn take(&mut self, frame: Frame) -> Result<bool, BaseError> {
        match frame {
            Frame::File { bytes, path } => {
                if self.open.is_some() || !self.store.is_empty() || self.files >= FILES_MAX {
                    return Err(FrameError("a file where none may begin").into());
                }
                let path = self.checked(&path)?;
                self.files += 1;
                let is_store = path == self.dir.join("STORE");
                let file = if is_store { None } else { Some(create_file(&path)?) };
                self.open = Some((file, path, bytes));
                self.end_of_file()?;
            }
            Frame::Data(data) => {
                let Some((file, path, left)) = &mut self.open else {
                    return Err(FrameError("data without a file").into());
                };
                *left = left
                    .checked_sub(data.len() as u64)
                    .ok_or(FrameError("a file is longer than announced"))?;
                match file {
                    Some(file) => file.write_all(&data).map_err(at("write", path))?,
                    None if self.store.len() + data.len() <= 4_096 => self.store.extend_from_slice(&data),
                    None => return Err(FrameError("STORE is too long").into()),
                }
                self.end_of_file()?;
            }
            Frame::BaseEnd { files, log, accounts, epoch, link } => {
                if self.open.is_some() || self.store.is_empty() || files != self.files {
                    return Err(FrameError("the base is incomplete").into());
                }
                for dir in &self.dirs {
                    sync_dir(dir)?;
                }
                write_marker(
                    self.dir,
                    &format!("whole\nepoch {epoch}\nlog {log}\naccounts {accounts}\nlink {link}\n"),
                )?;
                write_whole(self.dir, "STORE", &self.store)?;
                return Ok(true);
            }
            Frame::Heartbeat { .. } => {}
            _ => return Err(FrameError("a frame of a stream in a base").into()),
        }
        Ok(false)
    }

    fn end_of_file(&mut self) -> Result<(), BaseError> {
        if let Some((file, path, _)) = self.open.take_if(|(_, _, left)| *left == 0)
            && let Some(file) = file
        {
            file.sync_all().map_err(at("sync", &path))?;
        }
        Ok(())
    }

    /// Returns the full path of a file of the base, and creates its directories.
    fn checked(&mut self, path: &str) -> Result<PathBuf, BaseError> {
        let invalid = FrameError("a path leads out of the base");
        let plain = |name: &str| {
            !name.is_empty()
                && !name.starts_with('.')
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
        };
        let mut parts = Vec::new();
        for part in Path::new(path).components() {
            let Component::Normal(name) = part else { return Err(invalid.into()) };
            parts.push(name.to_str().filter(|name| plain(name)).ok_or(invalid)?);
        }
        let is_known = parts.first().is_some_and(|top| TOP_LEVEL.contains(top));
        if !is_known || parts.len() > 3 {
            return Err(invalid.into());
        }
        let mut full = self.dir.to_owned();
        for (place, part) in parts.iter().enumerate() {
            full.push(part);
            if place + 1 < parts.len() && !self.dirs.contains(&full) {
                create_dir(&full)?;
                self.dirs.push(full.clone());
            }
        }
        Ok(full)
    }
}

fn create_dir(dir: &Path) -> Result<(), BaseError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(at("create directory", dir))
}

fn create_file(path: &Path) -> Result<File, BaseError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(at("create", path))
}

fn sync_dir(dir: &Path) -> Result<(), BaseError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at("sync", dir))
}

fn write_whole(dir: &Path, name: &str, content: &[u8]) -> Result<(), BaseError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at("remove", &new)(e)),
        _ => {}
    }
    let mut file = create_file(&new)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(at("write", &new))?;
    fs::rename(&new, &path).map_err(at("rename", &new))?;
    sync_dir(dir)
}

fn write_marker(dir: &Path, content: &str) -> Result<(), BaseError> {
    write_whole(dir, FOLLOWING, format!("{TITLE}\n{content}").as_bytes())
}

/// Makes the store of a whole base a follower, if it is not one yet: commits the role, then removes
/// `FOLLOWING`.
///
/// # Errors
/// [`BaseError`].
pub fn finish_adoption(dir: &Path, control: &Control) -> Result<(), BaseError> {
    let marker = dir.join(FOLLOWING);
    let text = match fs::read_to_string(&marker) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(at("read", &marker))?,
    };
    let mut lines = text.lines();
    let is_whole = lines.next() == Some(TITLE) && lines.next() == Some("whole");
    let number = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.and_then(|digits| digits.parse::<u64>().ok())
    };
    let numbers = (number("epoch"), number("accounts"), number("link"), is_whole);
    let (Some(epoch), Some(accounts), Some(link), true) = numbers else {
        return Err(BaseError::Marker(marker));
    };
    let stored = control.change_standby(move |row| {
        (row.role, row.epoch, row.accounts) = (StandbyRole::Follower, epoch, accounts);
        (row.accounts_check, row.incomplete, row.caught_up) = (0, false, false);
        row.hold = 0;
        (row.link, row.link_before) = (link, 0);
    });
    stored.map_err(|e| BaseError::Role(with_sources(&e)))?;
    control.gate().set_mode(crate::model::GateMode::Follower);
    fs::remove_file(&marker).map_err(at("remove", &marker))?;
    sync_dir(dir)
}
