//! Patterns of file names: `*`, `?` and `[a-z]`, as in Go's `filepath.Match`.

/// A pattern of the name of one file.
#[derive(Debug)]
pub struct FileGlob(Vec<FileGlobPart>);

#[derive(Debug)]
enum FileGlobPart {
    /// Any characters.
    Star,
    /// One character.
    Any,
    /// This character.
    Char(char),
    /// One character inside or, if the flag is set, outside of the ranges.
    Class(Vec<(char, char)>, bool),
}

impl FileGlob {
    /// Parses a pattern; `None` for a class without an end and for other wrong ones.
    pub fn parse(text: &str) -> Option<FileGlob> {
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' => FileGlobPart::Star,
                '?' => FileGlobPart::Any,
                '\\' => FileGlobPart::Char(chars.next()?),
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
                    FileGlobPart::Class(ranges, is_negated)
                }
                other => FileGlobPart::Char(other),
            });
        }
        Some(FileGlob(parts))
    }

    /// Returns whether the whole of `text` matches. Takes at most length times length steps.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut part) = (0, 0);
        // The position to continue from if a part after the last star does not match.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let is_match = match (self.0.get(part), text.get(at)) {
                (None, None) => return true,
                (Some(FileGlobPart::Star), _) => {
                    retry = Some((at, part + 1));
                    part += 1;
                    continue;
                }
                (Some(FileGlobPart::Any), Some(_)) => true,
                (Some(FileGlobPart::Char(want)), Some(have)) => want == have,
                (Some(FileGlobPart::Class(ranges, is_negated)), Some(have)) => {
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
            assert_eq!(FileGlob::parse(pattern).map(|glob| glob.matches(text)), is_match, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_is_parsed_or_refused(pattern in "[\\*\\?\\[\\]\\^\\-\\\\a-c]{0,20}", text in "[a-c]{0,20}") {
            if let Some(glob) = FileGlob::parse(&pattern) {
                let _ = glob.matches(&text);
            }
            let around = format!("*{text}*");
            prop_assert!(FileGlob::parse(&around).is_some_and(|glob| glob.matches(&text)));
        }
    }
}
