//! The labels of alerts and the fingerprint that identifies an alert by them.

use std::collections::BTreeMap;
use std::fmt;

/// Labels, or annotations, by name.
pub type AlertLabels = BTreeMap<String, String>;

/// The fingerprint of an alert's labels: FNV-1a, as Alertmanager computes it, so that both show the
/// same alert under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlertFingerprint(pub u64);

impl AlertFingerprint {
    /// Computes the fingerprint of labels.
    pub fn of(labels: &AlertLabels) -> AlertFingerprint {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        let hash = labels.iter().fold(OFFSET, |hash, (name, value)| {
            let hash = add(name.bytes().fold(hash, add), 0xff);
            add(value.bytes().fold(hash, add), 0xff)
        });
        AlertFingerprint(hash)
    }

    /// Parses 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<AlertFingerprint> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(AlertFingerprint)).flatten()
    }
}

impl fmt::Display for AlertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Returns the bytes of names and values.
pub fn pairs_bytes(labels: &AlertLabels) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Returns the pairs that all of `sets` have in common.
pub fn common_pairs<'l>(mut sets: impl Iterator<Item = &'l AlertLabels>) -> AlertLabels {
    let mut common = sets.next().cloned().unwrap_or_default();
    for set in sets {
        common.retain(|name, value| set.get(name) == Some(value));
    }
    common
}

/// Formats labels as `{a="1", b="2"}`, with backslashes, quotes and line ends escaped.
pub fn format_labels(labels: &AlertLabels) -> String {
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape_value(value))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Escapes a value for double quotes.
pub fn escape_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_one_that_alertmanager_shows() {
        // The fingerprint of no labels is the offset of the hash.
        assert_eq!(AlertFingerprint::of(&AlertLabels::new()).to_string(), "cbf29ce484222325");
        let labels = AlertLabels::from([("alertname".to_owned(), "A".to_owned())]);
        let print = AlertFingerprint::of(&labels);
        assert_eq!(AlertFingerprint::parse(&print.to_string()), Some(print));
        for wrong in ["", "+bf29ce484222325", "cbf29ce48422232", "cbf29ce4842223255", "xyz9ce4842223255"] {
            assert_eq!(AlertFingerprint::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn common_pairs_are_those_of_every_set() {
        let set = |pairs: &[(&str, &str)]| -> AlertLabels {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let sets = [set(&[("a", "1"), ("b", "2")]), set(&[("a", "1"), ("b", "3")])];
        assert_eq!(common_pairs(sets.iter()), set(&[("a", "1")]));
        assert_eq!(common_pairs([].iter()), AlertLabels::new());
        assert_eq!(format_labels(&set(&[("a", "x\"y\\"), ("b", "\n")])), r#"{a="x\"y\\", b="\n"}"#);
    }
}
