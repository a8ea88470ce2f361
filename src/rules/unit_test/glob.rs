//! Patterns of file names: `*`, `?` and `[a-z]` within one part of a path, as Go's filepath.Glob.

use std::path::{Component, Path, PathBuf};

use crate::model::FileGlob;

/// Returns the existing paths that match, sorted. A pattern without a wildcard is a path.
///
/// # Errors
/// The message for a wrong pattern.
pub(super) fn glob(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let text = component.as_os_str().to_string_lossy().into_owned();
        let wild = matches!(component, Component::Normal(_)) && text.contains(['*', '?', '[', '\\']);
        if !wild {
            found = found.into_iter().map(|path| path.join(component)).collect();
            continue;
        }
        let name_pattern =
            FileGlob::parse(&text).ok_or_else(|| format!("syntax error in pattern {text:?}"))?;
        let mut next = Vec::new();
        for path in found {
            let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path.as_path() };
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if name_pattern.matches(&name.to_string_lossy()) {
                    next.push(path.join(&name));
                }
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|path| path.exists());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_within_one_part_of_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a1.yml", "a2.yml", "b.yaml", "x/a1.yml", "y/a1.yml"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        for (pattern, expected) in [
            ("a1.yml", "a1.yml"),
            ("*.yml", "a1.yml a2.yml"),
            ("a?.yml", "a1.yml a2.yml"),
            ("a[2-9].yml", "a2.yml"),
            ("[^a]*.yaml", "b.yaml"),
            ("*/a*.yml", "x/a1.yml y/a1.yml"),
            ("none*.yml", ""),
            ("missing.yml", ""),
        ] {
            let found = glob(&folder.path().join(pattern)).expect("valid");
            let found: Vec<_> = found
                .iter()
                .map(|path| path.strip_prefix(folder.path()).expect("below").to_string_lossy().into_owned())
                .collect();
            assert_eq!(found.join(" "), expected, "{pattern}");
        }
        glob(Path::new("a[b")).expect_err("a class has no end");
    }
}
