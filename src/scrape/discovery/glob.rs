//! Files whose last path part matches a pattern with `*`, `?` and `[a-z]`, as Go's `filepath.Glob`
//! finds them.

use std::path::{Path, PathBuf};

/// The most entries of a folder that are compared with a pattern, inclusive.
const ENTRIES_MAX: usize = 100_000;

/// Returns the files that a path names, sorted. Its last part may be a pattern; a folder that does
/// not exist has no files. A path without a pattern is returned whether or not it exists.
///
/// # Errors
/// A sentence, if the folder cannot be read, the pattern is not valid, or more than `files_max`
/// files match.
pub(in crate::scrape) fn matching_files(path: &Path, files_max: usize) -> Result<Vec<PathBuf>, String> {
    let Some(last) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(format!("{} is not the path of a file", path.display()));
    };
    if !last.contains(['*', '?', '[', '\\']) {
        return Ok(vec![path.to_owned()]);
    }
    let pattern = Glob::parse(last).ok_or_else(|| format!("{last:?} is not a valid pattern"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
    };
    let mut found = Vec::new();
    for entry in entries.take(ENTRIES_MAX) {
        let entry = entry.map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| pattern.matches(name)) {
            found.push(path.with_file_name(name));
        }
        if found.len() > files_max {
            return Err(format!("{} matches more than {files_max} files", path.display()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A parsed pattern.
struct Glob(Vec<GlobPart>);

enum GlobPart {
    /// Any characters.
    Star,
    /// One character.
    Any,
    /// This character.
    Char(char),
    /// One character inside or, if the flag is set, outside of the ranges.
    Class(Vec<(char, char)>, bool),
}

impl Glob {
    fn parse(text: &str) -> Option<Glob> {
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' => GlobPart::Star,
                '?' => GlobPart::Any,
                '\\' => GlobPart::Char(chars.next()?),
                '[' => {
                    let is_negated = chars.next_if_eq(&'^').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        let first = match chars.next()? {
                            ']' if !ranges.is_empty() => break,
                            '\\' => chars.next()?,
                            ']' | '-' => return None,
                            other => other,
                        };
                        let last = match chars.next_if_eq(&'-') {
                            Some(_) => chars.next().filter(|last| *last != ']')?,
                            None => first,
                        };
                        ranges.push((first, last));
                    }
                    GlobPart::Class(ranges, is_negated)
                }
                other => GlobPart::Char(other),
            });
        }
        Some(Glob(parts))
    }

    /// Returns whether the whole of `text` matches. Takes at most length times length steps.
    fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut part) = (0, 0);
        // Where to continue if a part after the last star does not match.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let is_match = match (self.0.get(part), text.get(at)) {
                (None, None) => return true,
                (Some(GlobPart::Star), _) => {
                    retry = Some((at, part + 1));
                    part += 1;
                    continue;
                }
                (Some(GlobPart::Any), Some(_)) => true,
                (Some(GlobPart::Char(want)), Some(have)) => want == have,
                (Some(GlobPart::Class(ranges, is_negated)), Some(have)) => {
                    let inside = ranges.iter().any(|(first, last)| (first..=last).contains(&have));
                    inside != *is_negated
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            if is_match {
                at += 1;
                part += 1;
                continue;
            }
            match retry.filter(|(start, _)| *start < text.len()) {
                Some((start, after)) => {
                    retry = Some((start + 1, after));
                    (at, part) = (start + 1, after);
                }
                None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_those_of_go_do() {
        for (pattern, text, is_match) in [
            ("*.json", "a.json", Some(true)),
            ("*.json", ".json", Some(true)),
            ("*.json", "a.jsonx", Some(false)),
            ("a*b*c", "axxbyyc", Some(true)),
            ("a*b*c", "axxbyy", Some(false)),
            ("a?c", "abc", Some(true)),
            ("[a-c]x", "bx", Some(true)),
            ("[^a-c]x", "bx", Some(false)),
            ("\\*", "*", Some(true)),
            ("\\*", "a", Some(false)),
            ("[", "a", None),
            ("[]a]", "a", None),
            ("[a-]", "a", None),
        ] {
            assert_eq!(Glob::parse(pattern).map(|glob| glob.matches(text)), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn only_the_last_part_of_a_path_is_a_pattern() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.json", "a.json", "c.yml"] {
            std::fs::write(folder.path().join(name), "[]").expect("written");
        }
        let found = matching_files(&folder.path().join("*.json"), 10).expect("read");
        assert_eq!(found, [folder.path().join("a.json"), folder.path().join("b.json")]);
        assert_eq!(matching_files(&folder.path().join("x/*.json"), 10), Ok(vec![]));
        assert_eq!(matching_files(&folder.path().join("x.json"), 10), Ok(vec![folder.path().join("x.json")]));
        assert!(matching_files(&folder.path().join("*.json"), 1).is_err());
    }

    proptest! {
        #[test]
        fn any_pattern_is_parsed_or_refused(pattern in "[\\*\\?\\[\\]\\^\\-\\\\a-c]{0,20}", text in "[a-c]{0,20}") {
            if let Some(glob) = Glob::parse(&pattern) {
                let _ = glob.matches(&text);
            }
            let around = format!("*{text}*");
            prop_assert!(Glob::parse(&around).is_some_and(|glob| glob.matches(&text)));
        }
    }
}
