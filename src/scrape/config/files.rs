//! Files that a configuration names: secrets, certificates, further configurations, targets.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The most bytes of a file with a secret or a certificate, inclusive.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Which local files a configuration may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrapeFiles {
    /// Any file. Relative paths begin at this folder.
    Below(PathBuf),
    /// None: the configuration was sent by a person who may not read the files of this server.
    Refused,
}

impl ScrapeFiles {
    /// Returns the path of a file.
    ///
    /// # Errors
    /// A sentence, if files are refused.
    pub(super) fn path(&self, name: &str) -> Result<PathBuf, String> {
        match self {
            ScrapeFiles::Below(folder) => Ok(folder.join(name)),
            ScrapeFiles::Refused => {
                Err("a configuration that is set by the API may not name local files".to_owned())
            }
        }
    }

    /// Reads a secret or certificate, without white space at its ends.
    ///
    /// # Errors
    /// A sentence with the path.
    pub(super) fn secret(&self, name: &str) -> Result<String, String> {
        let path = self.path(name)?;
        let text = read_bounded(&path, SECRET_BYTES_MAX)?;
        Ok(text.trim().to_owned())
    }
}

/// Reads a file of at most `bytes_max` bytes, inclusive.
///
/// # Errors
/// A sentence with the path.
pub(in crate::scrape) fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let kind = file.metadata().map_err(|error| failed(&error))?;
    if !kind.is_file() {
        return Err(failed(&"it is not a regular file"));
    }
    let mut text = String::new();
    let mut limited = file.take(bytes_max.saturating_add(1));
    limited.read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > bytes_max {
        return Err(failed(&format!("it has more than {bytes_max} bytes")));
    }
    Ok(text)
}
