//! The folder with the data of others that are not part of the repository.

use std::path::{Path, PathBuf};

/// Returns a part of the folder that `PROMLET_SHARED` names; without the variable, of `../shared`.
///
/// # Panics
/// If there is no such part.
#[expect(clippy::disallowed_methods, reason = "a test finds foreign files by the environment")]
pub(crate) fn shared_folder(part: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let folder = std::env::var_os("PROMLET_SHARED").map_or_else(default, PathBuf::from).join(part);
    assert!(
        folder.is_dir(),
        "{} is no folder: PROMLET_SHARED names the folder with {part}",
        folder.display()
    );
    folder
}
