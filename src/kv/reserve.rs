//! Reserved space for account changes on a full disk (docs/storage.md section 12), and their
//! refusal when it is used up.
//!
//! `reserve` in the data folder has 16 MiB of allocated blocks without content. It is unlinked when
//! less than 8 MiB are free, so that people can still log out and revoke keys, and created again
//! once enough space is free. A change that would leave less than the floor is refused before
//! anything is written: sled must never run into a full disk, because afterwards neither its
//! database nor control can be trusted until a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{self, FileError};
use super::ops;

/// Minimum free space for a write: a journal file and several of sled's segments of 512 KiB.
const FLOOR_BYTES: u64 = 8 << 20;
/// Size of the reserve: room for thousands of changes.
const RESERVE_BYTES: u64 = 16 << 20;
/// Free space required to create the reserve, of which it is a small part; writes of samples stop
/// well before.
const PLENTY_BYTES: u64 = 512 << 20;

/// The reserve file, and the source of the free space.
pub(super) struct Reserve {
    dir: PathBuf,
    path: PathBuf,
    /// The free space in addition to the reserve that a test simulates; 0 stays 0 without the
    /// reserve, and `u64::MAX` asks the file system.
    #[cfg(test)]
    pub(super) pretended: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Reserve {
    /// Returns the reserve of a data folder.
    pub(super) fn new(dir: &Path) -> Reserve {
        Reserve {
            dir: dir.to_owned(),
            path: dir.join("reserve"),
            #[cfg(test)]
            pretended: std::sync::Arc::new(u64::MAX.into()),
        }
    }

    /// Checks whether a group of changes may be written; removes the reserve if this gives enough
    /// room.
    ///
    /// # Errors
    /// `StorageFull`, with the numbers. No byte was written, and the group may be retried.
    pub(super) fn room(&self) -> Result<(), FileError> {
        if self.free()? >= FLOOR_BYTES {
            return Ok(());
        }
        // A crash may have left an unfinished one.
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

    /// Creates the reserve again if it is missing and enough space is free.
    ///
    /// # Errors
    /// [`FileError`] if the file system refuses. The reserve only determines which changes are
    /// possible on a full disk.
    pub(super) fn refill(&self) -> Result<(), FileError> {
        if self.path.exists() || self.free()? < PLENTY_BYTES {
            return Ok(());
        }
        let new = self.dir.join("reserve.new");
        let file = files::create_file(&new)?;
        let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE_BYTES)
            .map_err(io::Error::from)
            .and_then(|()| ops::to_disk(|| file.sync_all()));
        if let Err(e) = made {
            // An incomplete reserve is useless. The error of its removal would hide the cause.
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
    fn the_reserve_is_removed_below_the_floor_and_created_again_with_enough_space() {
        let dir = crate::kv::scratch::temporary_folder().expect("temp");
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
