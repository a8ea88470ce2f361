//! The labels of a group, as the path of a push names them: `job/<job>{/<label>/<value>}`.
//!
//! A name that ends in `@base64` has a value in base64url, with or without padding; `=` stands for
//! the empty text (Pushgateway, README, "URL").

use std::collections::BTreeMap;
use std::sync::LazyLock;

use data_encoding::{BASE64URL_NOPAD, Encoding};

use crate::model::{is_label_name, percent_decoded};

/// The most labels of a group, inclusive.
const LABELS_MAX: usize = 32;
/// The most bytes of a path with labels, inclusive.
const PATH_BYTES_MAX: usize = 8 * 1_024;

/// The labels of a group; they always have `job`. Labels of the API key replace those of the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupingLabels(BTreeMap<String, String>);

/// The reason why a path names no group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupingError {
    /// The first label is not `job`, or it is empty.
    #[error("the path begins with job/<name>, and the name is not empty: /metrics/job/<job>/<label>/<value>")]
    Job,
    /// A label has no value.
    #[error("the label {0:?} has no value; labels and values alternate: /metrics/job/<job>/<label>/<value>")]
    NoValue(String),
    /// A label name is invalid.
    #[error("{0:?} is not a valid label name: letters, digits and _, without a digit or __ at the start")]
    Name(String),
    /// A label occurs twice.
    #[error("the label {0:?} occurs twice")]
    Twice(String),
    /// A value is not base64url.
    #[error("the value of the label {0:?} is not base64 with the URL alphabet")]
    Base64(String),
    /// A segment is not UTF-8.
    #[error("the value of the label {0:?} is not UTF-8")]
    Utf8(String),
    /// The path is too long.
    #[error("the path of a group has at most {PATH_BYTES_MAX} bytes and {LABELS_MAX} labels")]
    TooLong,
}

impl GroupingLabels {
    /// Parses the path below `/metrics/`, whose segments are percent-encoded.
    ///
    /// # Errors
    /// [`GroupingError`].
    pub fn parse(path: &str) -> Result<GroupingLabels, GroupingError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(GroupingError::TooLong);
        }
        let mut segments = path.split('/');
        let mut labels = BTreeMap::new();
        while let Some(segment) = segments.next() {
            let (name, is_base64) = match segment.strip_suffix("@base64") {
                Some(name) => (name, true),
                None => (segment, false),
            };
            if labels.is_empty() && name != "job" {
                return Err(GroupingError::Job);
            }
            if !is_label_name(name) || name.starts_with("__") {
                return Err(GroupingError::Name(name.to_owned()));
            }
            let Some(encoded) = segments.next() else { return Err(GroupingError::NoValue(name.to_owned())) };
            let bytes = percent_decoded(encoded).into_owned();
            let bytes = match is_base64 {
                true => base64_decoded(&bytes).ok_or_else(|| GroupingError::Base64(name.to_owned()))?,
                false => bytes,
            };
            let value = String::from_utf8(bytes).map_err(|_| GroupingError::Utf8(name.to_owned()))?;
            if labels.len() >= LABELS_MAX {
                return Err(GroupingError::TooLong);
            }
            if labels.insert(name.to_owned(), value).is_some() {
                return Err(GroupingError::Twice(name.to_owned()));
            }
        }
        match labels.get("job") {
            Some(job) if !job.is_empty() => Ok(GroupingLabels(labels)),
            _ => Err(GroupingError::Job),
        }
    }

    /// Returns labels that were stored.
    pub fn of_stored(labels: impl IntoIterator<Item = (String, String)>) -> GroupingLabels {
        GroupingLabels(labels.into_iter().collect())
    }

    /// Adds labels, which replace those of the same name.
    #[must_use]
    pub fn with<'l>(mut self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> GroupingLabels {
        self.0.extend(labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    /// Returns the labels in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether the group has all of these labels with these values.
    pub fn has_all<'l>(&self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> bool {
        labels.into_iter().all(|(name, value)| self.0.get(name).is_some_and(|own| own == value))
    }

    /// Returns whether a label with this name is one of the group.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Base64url, and the standard alphabet. Bits that the last character has too many are ignored.
static BASE64: LazyLock<Encoding> = LazyLock::new(|| {
    let mut base64 = BASE64URL_NOPAD.specification();
    base64.check_trailing_bits = false;
    base64.translate.from.push_str("+/");
    base64.translate.to.push_str("-_");
    base64.encoding().expect("no symbol is translated to two others")
});

/// Decodes [`BASE64`], with or without padding.
fn base64_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    BASE64.decode(&text[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(path: &str) -> Result<Vec<(String, String)>, GroupingError> {
        let labels = GroupingLabels::parse(path)?;
        Ok(labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn a_path_names_the_labels_of_a_group() {
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (path, labels) in [
            ("job/backup", &[("job", "backup")][..]),
            ("job/a/instance/b", &[("instance", "b"), ("job", "a")]),
            (
                "job@base64/YmF0Y2gvam9i/path@base64/L3Zhci90bXA",
                &[("job", "batch/job"), ("path", "/var/tmp")],
            ),
            ("job/a/b@base64/=", &[("b", ""), ("job", "a")]),
            ("job/a/b@base64/", &[("b", ""), ("job", "a")]),
            ("job@base64/YQ==", &[("job", "a")]),
            ("job@base64/4pyT", &[("job", "✓")]),
            // Both alphabets, and a last character with more bits than the byte has.
            ("job@base64/Pz8_/a@base64/Pz8%2F", &[("a", "???"), ("job", "???")]),
            ("job@base64/YR", &[("job", "a")]),
            ("job/a%20b%2fc", &[("job", "a b/c")]),
            ("job/100%", &[("job", "100%")]),
        ] {
            assert_eq!(parsed(path), Ok(pairs(labels)), "{path}");
        }
    }

    #[test]
    fn a_path_without_a_job_or_with_invalid_labels_is_refused() {
        for (path, error) in [
            ("", GroupingError::Job),
            ("job/", GroupingError::Job),
            ("job@base64/=", GroupingError::Job),
            ("instance/a", GroupingError::Job),
            ("job/a/b", GroupingError::NoValue("b".into())),
            ("job/a//c", GroupingError::Name(String::new())),
            ("job/a/__name__/c", GroupingError::Name("__name__".into())),
            ("job/a/1b/c", GroupingError::Name("1b".into())),
            ("job/a/job/b", GroupingError::Twice("job".into())),
            ("job@base64/a", GroupingError::Base64("job".into())),
            ("job@base64/a%20b", GroupingError::Base64("job".into())),
            ("job@base64/_w", GroupingError::Utf8("job".into())),
            ("job/%ff", GroupingError::Utf8("job".into())),
        ] {
            assert_eq!(parsed(path), Err(error), "{path}");
        }
        let many: String = (0..40).map(|n| format!("/l{n}/v")).collect();
        assert_eq!(parsed(&format!("job/a{many}")), Err(GroupingError::TooLong));
    }

    #[test]
    fn a_group_is_recognised_by_some_of_its_labels() {
        let labels = GroupingLabels::parse("job/a/source/laptop").expect("valid");
        assert!(labels.has_all([]) && labels.has_all([("source", "laptop")]));
        assert!(!labels.has_all([("source", "phone")]) && !labels.has_all([("x", "")]));
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[a-z@%/=0-9_]{0,60}|\\PC{0,60}|job@base64/[A-Za-z0-9_-]{0,20}") {
            let _ = GroupingLabels::parse(&path);
        }
    }
}
