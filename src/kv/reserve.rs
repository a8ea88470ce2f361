//! Space set aside for account changes on a full disk (docs/storage.md section 12), and the refusal when that is used up.
//!
//! `reserve` in the data folder: 16 MiB of allocated blocks without content. It is unlinked when less than 8 MiB are
//! free, so that people can still log out and keys can still be revoked, and made again once there is plenty. A change
//! that would leave less than the floor is refused before anything of it is written: sled must never meet a full disk,
//! since its database is not to be trusted after that, and neither is control until a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{self, FileError};

/// Below this nothing is written: a journal file and several of sled's segments of 512 KiB fit into it.
const FLOOR_BYTES: u64 = 8 << 20;
/// What is set aside: thousands of changes.
const RESERVE_BYTES: u64 = 16 << 20;
/// It is made only where it is a small part of what is free: the samples stop well before this.
const PLENTY_BYTES: u64 = 512 << 20;

/// The file, and whom to ask how much is free.
pub(super) struct Reserve {
    dir: PathBuf,
    path: PathBuf,
    /// What a test says is free while the reserve is there; 0 stays 0 without it, `u64::MAX` asks the file system.
    #[cfg(test)]
    pub(super) pretended: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Reserve {
    /// That of a data folder.
    pub(super) fn new(dir: &Path) -> Reserve {
        Reserve {
            dir: dir.to_owned(),
            path: dir.join("reserve"),
            #[cfg(test)]
            pretended: std::sync::Arc::new(u64::MAX.into()),
        }
    }

    /// Whether a group of changes may be written; gives the reserve up where that is what makes the room.
    ///
    /// # Errors
    /// `StorageFull`, with the numbers; nothing was written, and it may be tried again.
    pub(super) fn room(&self) -> Result<(), FileError> {
        if self.free()? >= FLOOR_BYTES {
            return Ok(());
        }
        // A crash may have left one that was being made.
        for path in [&self.path, &self.dir.join("reserve.new")] {
            if path.exists() {
                fs::remove_file(path).map_err(FileError::at("give up", path))?;
            }
        }
        files::sync_dir(&self.dir)?;
        match self.free()? {
            free if free >= FLOOR_BYTES => Ok(()),
            free => {
                let why = format!("{free} bytes are free, {FLOOR_BYTES} are needed");
                Err(FileError::at("find room in", &self.dir)(io::Error::new(io::ErrorKind::StorageFull, why)))
            }
        }
    }

    /// Sets the space aside again if it is not and there is plenty.
    ///
    /// # Errors
    /// Where the file system refuses; nothing depends on it but what a full disk still allows.
    pub(super) fn refill(&self) -> Result<(), FileError> {
        if self.path.exists() || self.free()? < PLENTY_BYTES {
            return Ok(());
        }
        let new = self.dir.join("reserve.new");
        let file = files::create_file(&new)?;
        let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE_BYTES)
            .map_err(io::Error::from)
            .and_then(|()| file.sync_all());
        if let Err(e) = made {
            // Half a reserve is none; that it could not be removed says less than why it was not made.
            let _ = fs::remove_file(&new);
            return Err(FileError::at("allocate", &new)(e));
        }
        files::rename(&new, &self.path)?;
        files::sync_dir(&self.dir)
    }

    fn free(&self) -> Result<u64, FileError> {
        #[cfg(test)]
        match self.pretended.load(std::sync::atomic::Ordering::SeqCst) {
            u64::MAX => {}
            0 => return Ok(0),
            beside if self.path.exists() => return Ok(beside),
            beside => return Ok(beside + RESERVE_BYTES),
        }
        let found = rustix::fs::statvfs(&self.dir)
            .map_err(|e| FileError::at("look at the space of", &self.dir)(e.into()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn it_is_given_up_once_below_the_floor_and_made_again_with_plenty() {
        let dir = tempfile::tempdir().expect("temp");
        let reserve = Reserve::new(dir.path());
        let pretend = |bytes| reserve.pretended.store(bytes, Ordering::SeqCst);
        let blocks = || fs::metadata(&reserve.path).map(|found| found.blocks() * 512);
        pretend(PLENTY_BYTES);
        reserve.refill().expect("made");
        assert!(blocks().expect("there") >= RESERVE_BYTES, "it takes space and not only a length");
        pretend(FLOOR_BYTES);
        reserve.room().expect("enough");
        assert!(blocks().is_ok(), "kept while there is room without it");
        pretend(FLOOR_BYTES - 1);
        reserve.room().expect("made room");
        assert!(blocks().is_err());
        reserve.refill().expect("not yet");
        assert!(blocks().is_err(), "not while space is short");
        pretend(PLENTY_BYTES);
        reserve.refill().expect("again");
        assert!(blocks().is_ok());
    }
}
