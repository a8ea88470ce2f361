//! Recovery of a store's identity from other files of its folder when `STORE` is damaged.
//!
//! The headers of journal and exports decide, each protected by its own checksum; markers must not
//! contradict them. If any file belongs to another store, or if the id in the damaged `STORE`
//! differs in more than a few digits, there is no result: a folder never takes over the identity of
//! another store. Log, segments and registries are compared when they are opened.

use std::path::Path;

use super::{FolderError, line, read_marker, store_in};
use crate::kv::control::store_of_export;
use crate::kv::files::{self, FileError};
use crate::kv::journal;
use crate::model::StoreId;

/// Names and first lines of the markers that carry the id.
const MARKERS: [(&str, &str); 5] = [
    ("AGENT", "promlet agent"),
    ("INITIALISED", "promlet initialised"),
    ("CLEAN", "promlet clean stop"),
    ("RUNNING", "promlet running"),
    ("UNCLEAN", super::UNCLEAN_TITLE),
];
/// Maximum number of digits of the id that a damage of `STORE` may have changed.
const DIGITS_CHANGED_MAX: usize = 4;

/// Returns the only store that the journal, the exports and the markers in `path` belong to.
/// Returns `None` if neither journal nor exports name one, or if the files disagree. `damaged` is
/// the text of `STORE`.
///
/// # Errors
/// [`FolderError`] if a file cannot be read.
pub(super) fn store_of(path: &Path, damaged: &str) -> Result<Option<StoreId>, FolderError> {
    let mut found = ids(&path.join("journal"), ".jnl", journal::store_of_file)?;
    found.extend(ids(&path.join("exports"), ".plx", store_of_export)?);
    let Some(store) = found.first().copied() else { return Ok(None) };
    for (name, title) in MARKERS {
        let marker = path.join(name);
        match read_marker(&marker, title) {
            Ok(lines) => found.extend(lines.and_then(|lines| store_in(&marker, &lines).ok())),
            Err(FolderError::Damaged { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    let agree = found.iter().all(|other| *other == store);
    Ok((agree && !contradicts(damaged, store)).then_some(store))
}

fn ids(
    dir: &Path,
    ending: &str,
    read: impl Fn(&Path) -> Result<Option<StoreId>, FileError>,
) -> Result<Vec<StoreId>, FolderError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let names = files::names(dir)?;
    let mut found = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(ending)) {
        found.extend(read(&dir.join(name))?);
    }
    Ok(found)
}

/// Returns whether the damaged text names another store: an id that differs in more digits than
/// damage explains.
fn contradicts(damaged: &str, store: StoreId) -> bool {
    let lines: Vec<String> = damaged.lines().map(str::to_owned).collect();
    let Some(id) = line(&lines, "id").filter(|id| id.len() == 32) else { return false };
    let is_id = id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let differing = id.bytes().zip(store.to_string().bytes()).filter(|(one, other)| one != other).count();
    is_id && differing > DIGITS_CHANGED_MAX
}
