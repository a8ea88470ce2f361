//! Folders of tests, which create many files and delete them soon.

use std::io::Result;
use std::path::Path;

use tempfile::TempDir;

/// The free space that the file system in memory must have, in bytes. Containers often have 64 MiB.
const MEMORY_BYTES_MIN: u64 = 2 << 30;

/// Creates a temporary folder: in memory where the system has `/dev/shm` with enough space, because
/// files and syncs cost little there, otherwise in the usual place.
///
/// # Errors
/// That of creating the folder.
pub(crate) fn temporary_folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let has_space = rustix::fs::statvfs(memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= MEMORY_BYTES_MIN);
    if has_space { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
