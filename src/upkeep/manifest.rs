//! `MANIFEST.json` of a backup: its files with their sizes and SHA-256, and last the hash of the
//! manifest itself.
//!
//! ```text
//! { "format": 1, "store": "<32 hex digits>", "made_at": "<RFC 3339>", "promlet": "<version>",
//!   "with_key": false,
//!   "account_changes": <last one>, "log_records": <last one>,
//!   "files": [ { "path": "...", "bytes": <n>, "sha256": "<64 hex digits>" }, ... ],
//!   "sha256": "<64 hex digits>" }
//! ```
//! The last value is the hash of the text before the comma that precedes it. A backup without a
//! manifest, or with a wrong hash, was never finished.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::file_tree::{self, TreeError};

/// The name of the manifest.
pub(super) const NAME: &str = "MANIFEST.json";
const FORMAT: u32 = 1;
/// The maximal size in bytes: a million files with two hundred bytes each.
const BYTES_MAX: u64 = 256 << 20;
/// The text before the manifest's own hash.
const OWN_HASH_PREFIX: &str = ",\n  \"sha256\": \"";

/// The description of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The store id in hexadecimal.
    pub store: String,
    /// The time of the backup, RFC 3339.
    pub made_at: String,
    /// Whether the backup contains `master.key`.
    pub with_key: bool,
    /// The number of the last account change in the backup.
    pub account_changes: u64,
    /// The number of the last log record in the backup.
    pub log_records: u64,
}

/// The reason why a folder cannot be used as a backup.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file system refused an operation.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The folder has no manifest.
    #[error("{} has no MANIFEST.json: it is not a backup, or was never finished", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The manifest is damaged.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The manifest.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// A newer promlet made the backup.
    #[error("{} has format {found}, but this program reads {FORMAT}: use the newer program", path.display())]
    Newer {
        /// The manifest.
        path: PathBuf,
        /// The format.
        found: u32,
    },
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// The parsed manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    pub(super) store: String,
    pub(super) made_at: String,
    promlet: String,
    pub(super) with_key: bool,
    pub(super) account_changes: u64,
    pub(super) log_records: u64,
    pub(super) files: Vec<ManifestFile>,
}

impl Manifest {
    pub(super) fn new(facts: &Facts, files: Vec<ManifestFile>) -> Manifest {
        Manifest {
            format: FORMAT,
            store: facts.store.clone(),
            made_at: facts.made_at.clone(),
            promlet: env!("CARGO_PKG_VERSION").to_owned(),
            with_key: facts.with_key,
            account_changes: facts.account_changes,
            log_records: facts.log_records,
            files,
        }
    }

    pub(super) fn encode(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("numbers, texts and lists");
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        format!("{body}{OWN_HASH_PREFIX}{}\"\n}}\n", digest(body))
    }

    /// Reads the manifest of the backup in `dir` and verifies its own hash.
    pub(super) fn read(dir: &Path) -> Result<Manifest, ManifestError> {
        let path = dir.join(NAME);
        let damaged = |what: &str| ManifestError::Damaged { path: path.clone(), what: what.to_owned() };
        let length = match fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(ManifestError::Missing { dir: dir.to_owned() });
            }
            other => other.map_err(file_tree::at("look at", &path))?.len(),
        };
        if length > BYTES_MAX {
            return Err(damaged("it is larger than any manifest"));
        }
        let text = fs::read_to_string(&path).map_err(file_tree::at("read", &path))?;
        // The format is read first, because a newer one may be signed differently.
        let format = serde_json::from_str::<serde_json::Value>(&text).ok();
        let format = format.and_then(|json| json.get("format")?.as_u64());
        if let Some(found) = format.and_then(|n| u32::try_from(n).ok()).filter(|found| *found > FORMAT) {
            return Err(ManifestError::Newer { path, found });
        }
        let (body, own) =
            text.rsplit_once(OWN_HASH_PREFIX).ok_or_else(|| damaged("it does not contain its own hash"))?;
        if own.strip_suffix("\"\n}\n") != Some(digest(body).as_str()) {
            return Err(damaged("its own hash is wrong"));
        }
        let manifest: Manifest =
            serde_json::from_str(&format!("{body}\n}}")).map_err(|e| damaged(&e.to_string()))?;
        let paths: BTreeSet<_> = manifest.files.iter().map(|file| &file.path).collect();
        if paths.len() != manifest.files.len() || !paths.iter().all(|path| file_tree::is_inside(path)) {
            return Err(damaged("it names a file twice, or one outside of the backup"));
        }
        Ok(manifest)
    }
}

fn digest(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let facts = Facts {
            store: "07".repeat(16),
            made_at: "2026-11-21T12:00:00Z".to_owned(),
            with_key: false,
            account_changes: 12,
            log_records: 345,
        };
        let file = |path: &str| ManifestFile { path: path.into(), bytes: 3, sha256: "ab".repeat(32) };
        Manifest::new(&facts, vec![file("STORE"), file("wal/0000000001.wal")])
    }

    fn read(text: &str) -> Result<Manifest, ManifestError> {
        let dir = crate::kv::scratch::temporary_folder().expect("temp");
        fs::write(dir.path().join(NAME), text).expect("written");
        Manifest::read(dir.path())
    }

    #[test]
    fn a_manifest_is_read_back_and_is_json() {
        let text = manifest().encode();
        assert_eq!(read(&text).expect("whole"), manifest());
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["files"][1]["path"], "wal/0000000001.wal");
        assert_eq!(json["sha256"].as_str().map(str::len), Some(64));
    }

    #[test]
    fn any_changed_character_is_detected() {
        let text = manifest().encode();
        for position in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[position] = if bytes[position] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert!(read(&changed).is_err(), "byte {position}");
            assert!(read(&text[..position]).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn a_newer_format_and_paths_outside_of_the_backup_are_refused() {
        let newer = Manifest { format: 2, ..manifest() }.encode();
        assert!(matches!(read(&newer), Err(ManifestError::Newer { found: 2, .. })));
        for path in ["../x", "/etc/passwd", "a/../../b", ""] {
            let mut hostile = manifest();
            hostile.files[0].path = path.into();
            assert!(matches!(read(&hostile.encode()), Err(ManifestError::Damaged { .. })), "{path}");
        }
    }
}
