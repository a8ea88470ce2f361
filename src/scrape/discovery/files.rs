//! Reads the files of `file_sd_configs`. Files that did not change are not read again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::glob::matching_files;
use super::groups::{GROUPS_BYTES_MAX, groups_of_json, groups_of_yaml};
use super::settings::{FileDiscovery, TargetGroup};
use super::state::{RefreshAnswer, SourceAnswer};
use crate::scrape::config::read_bounded;

/// The most files of a discovery, inclusive.
const FILES_MAX: usize = 10_000;
/// The label with the path of the file.
const FILE_PATH: &str = "__meta_filepath";

/// The metadata of a file that change with its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// The reader of a discovery's files.
#[derive(Debug, Default)]
pub(super) struct FileReader {
    stamps: HashMap<PathBuf, FileStamp>,
}

impl FileReader {
    /// Reads the files that changed since the last call. Blocks while it reads.
    pub(super) fn read(&mut self, config: &FileDiscovery) -> RefreshAnswer {
        let mut paths = Vec::new();
        for pattern in &config.files {
            paths.extend(matching_files(pattern, FILES_MAX)?);
        }
        paths.sort_unstable();
        paths.dedup();
        if paths.len() > FILES_MAX {
            return Err(format!("more than {FILES_MAX} files"));
        }
        self.stamps.retain(|path, _| paths.binary_search(path).is_ok());
        Ok(paths.into_iter().map(|path| (path.display().to_string(), self.read_file(path))).collect())
    }

    fn read_file(&mut self, path: PathBuf) -> SourceAnswer {
        let stamp = match stamp(&path) {
            Ok(stamp) => stamp,
            Err(error) => {
                self.stamps.remove(&path);
                let shown = format!("cannot read {}: {error}", path.display());
                return match error.kind() {
                    std::io::ErrorKind::NotFound => SourceAnswer::Missing(shown),
                    _ => SourceAnswer::Failed(shown),
                };
            }
        };
        if self.stamps.get(&path) == Some(&stamp) {
            return SourceAnswer::Unchanged;
        }
        match groups_of_file(&path) {
            Ok(groups) => {
                self.stamps.insert(path, stamp);
                SourceAnswer::Groups(groups)
            }
            // Without a stamp the file is read again at the next check.
            Err(error) => {
                self.stamps.remove(&path);
                SourceAnswer::Failed(error)
            }
        }
    }
}

fn stamp(path: &Path) -> std::io::Result<FileStamp> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path)?;
    Ok(FileStamp { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() })
}

fn groups_of_file(path: &Path) -> Result<Vec<TargetGroup>, String> {
    let text = read_bounded(path, GROUPS_BYTES_MAX as u64)?;
    let is_json = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    let groups = if is_json { groups_of_json(&text) } else { groups_of_yaml(&text) };
    let shown = path.display().to_string();
    let groups = groups.map_err(|error| format!("{shown}: {error}"))?;
    Ok(groups.into_iter().map(|group| group.with_label(FILE_PATH, &shown)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(reader: &mut FileReader, config: &FileDiscovery) -> Vec<SourceAnswer> {
        reader.read(config).expect("read").into_iter().map(|(_, answer)| answer).collect()
    }

    #[test]
    fn changed_files_are_read_and_unchanged_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.json"), r#"[{"targets": ["a:1"]}]"#).expect("written");
        std::fs::write(path("b.yml"), "- targets: ['b:1']\n").expect("written");
        let config = FileDiscovery {
            files: vec![path("*.json"), path("b.yml"), path("c.yml")],
            refresh_interval_ms: 1_000,
        };
        let mut reader = FileReader::default();
        let first = answers(&mut reader, &config);
        let [SourceAnswer::Groups(a), SourceAnswer::Groups(b), SourceAnswer::Missing(_)] = first.as_slice()
        else {
            panic!("{first:?}")
        };
        assert_eq!(a[0].targets, ["a:1"]);
        assert_eq!(b[0].labels.value(FILE_PATH), path("b.yml").display().to_string());
        std::fs::write(path("a.json"), "[{\"targets\": [\"a:1\"").expect("written");
        let second = answers(&mut reader, &config);
        assert!(
            matches!(&second[0], SourceAnswer::Failed(error) if error.contains("a.json: EOF")),
            "{second:?}"
        );
        assert_eq!(second[1], SourceAnswer::Unchanged);
        std::fs::remove_file(path("a.json")).expect("removed");
        assert_eq!(answers(&mut reader, &config).len(), 2, "the file is no longer a source");
    }
}
