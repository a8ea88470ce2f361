//! Patterns of file names: `*`, `?` and `[a-z]` within one part of a path, as Go's filepath.Glob.

use std::path::{Component, Path, PathBuf};

/// Returns the existing paths that match, sorted. A pattern without a wildcard is a path.
///
/// # Errors
/// The message for a class without its end.
pub(super) fn glob(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let text = component.as_os_str().to_string_lossy().into_owned();
        let wild = matches!(component, Component::Normal(_)) && text.contains(['*', '?', '[', '\\']);
        if !wild {
            found = found.into_iter().map(|path| path.join(component)).collect();
            continue;
        }
        let parts = parse(&text).ok_or_else(|| format!("syntax error in pattern {text:?}"))?;
        let mut next = Vec::new();
        for path in found {
            let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path.as_path() };
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let characters: Vec<char> = name.to_string_lossy().chars().collect();
                if matches(&parts, &characters) {
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

enum GlobPart {
    Literal(char),
    /// `?`.
    One,
    /// `*`.
    Any,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

fn parse(pattern: &str) -> Option<Vec<GlobPart>> {
    let mut parts = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => GlobPart::Any,
            '?' => GlobPart::One,
            '\\' => GlobPart::Literal(chars.next()?),
            '[' => {
                let negated = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                loop {
                    let mut low = chars.next()?;
                    if low == ']' && !ranges.is_empty() {
                        break;
                    }
                    if low == '\\' {
                        low = chars.next()?;
                    }
                    let mut high = low;
                    if chars.next_if_eq(&'-').is_some() {
                        high = chars.next()?;
                    }
                    ranges.push((low, high));
                }
                GlobPart::Class { negated, ranges }
            }
            c => GlobPart::Literal(c),
        });
    }
    Some(parts)
}

/// Returns whether the parts match the whole name. Cost: parts times characters.
fn matches(parts: &[GlobPart], name: &[char]) -> bool {
    // `reached[at]`: the parts so far match the first `at` characters.
    let mut reached = vec![false; name.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for part in parts {
        let mut next = vec![false; name.len() + 1];
        if let GlobPart::Any = part {
            let mut any = false;
            for (before, after) in reached.iter().zip(&mut next) {
                any |= *before;
                *after = any;
            }
        } else {
            let admits = |c: char| match part {
                GlobPart::Literal(literal) => *literal == c,
                GlobPart::Class { negated, ranges } => {
                    ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
                }
                GlobPart::One | GlobPart::Any => true,
            };
            for ((before, c), after) in reached.iter().zip(name).zip(next.iter_mut().skip(1)) {
                *after = *before && admits(*c);
            }
        }
        reached = next;
    }
    reached.last().copied().unwrap_or_default()
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
