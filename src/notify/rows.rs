//! The durable state of an organisation's notifications, as rows: silences, acknowledgements, the
//! notifications of each receiver, and the alerts that they name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::labels::{AlertFingerprint, AlertLabels};
use crate::model::Timestamp;

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotifyRowKind {
    /// A silence, by its id.
    Silence = 1,
    /// An acknowledgement, by the fingerprint of its alert.
    Acknowledgement = 2,
    /// A part of the alerts of one group that one integration was notified about.
    Notified = 3,
    /// An alert that an integration was notified about, by its fingerprint.
    Alert = 4,
    /// The mails of the current hour.
    MailBudget = 5,
}

/// The key of a row within its organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotifyRowKey {
    /// A value of [`NotifyRowKind`].
    pub kind: u8,
    /// The id, which is unique within the kind.
    pub id: [u8; 16],
}

impl NotifyRowKey {
    pub(super) const fn new(kind: NotifyRowKind, id: [u8; 16]) -> NotifyRowKey {
        NotifyRowKey { kind: kind as u8, id }
    }

    pub(super) fn of_alert(kind: NotifyRowKind, fingerprint: AlertFingerprint) -> NotifyRowKey {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&fingerprint.0.to_be_bytes());
        NotifyRowKey::new(kind, id)
    }

    pub(super) fn of_notified(group: &str, integration: &str) -> NotifyRowKey {
        let mut hash = Sha256::new();
        hash.update(group.as_bytes());
        hash.update([0]);
        hash.update(integration.as_bytes());
        let mut id = [0; 16];
        id.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        NotifyRowKey::new(NotifyRowKind::Notified, id)
    }

    /// Returns the key of another part of the same alerts. The part 0 has the key itself.
    pub(super) fn part(mut self, part: u8) -> NotifyRowKey {
        let [.., last] = &mut self.id;
        *last = last.wrapping_add(part);
        self
    }

    pub(super) fn fingerprint(&self) -> AlertFingerprint {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.id).for_each(|(to, from)| *to = from);
        AlertFingerprint(u64::from_be_bytes(bytes))
    }
}

/// A stored row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyRow {
    /// The key.
    pub key: NotifyRowKey,
    /// The value.
    pub value: Vec<u8>,
}

/// Changes of rows, by key; `None` removes a row. A later change replaces an earlier one, so their
/// number is bounded by that of the rows.
pub type NotifyChanges = BTreeMap<NotifyRowKey, Option<Vec<u8>>>;

/// The last notification of an integration about a firing alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotifiedAlert {
    /// The start of the alert that it was notified about.
    pub(super) starts_at: Timestamp,
    /// The time of the last notification.
    pub(super) at: Timestamp,
}

/// The alerts of a row: a part of those that were last reported to an integration as firing.
pub(super) type NotifiedPart = BTreeMap<AlertFingerprint, NotifiedAlert>;

const NOTIFIED_VERSION: u8 = 1;
const NOTIFIED_BYTES: usize = 24;

pub(super) fn encode_notified(notified: &NotifiedPart) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + notified.len() * NOTIFIED_BYTES);
    bytes.push(NOTIFIED_VERSION);
    for (fingerprint, one) in notified {
        bytes.extend(fingerprint.0.to_be_bytes());
        bytes.extend(one.starts_at.as_ms().to_be_bytes());
        bytes.extend(one.at.as_ms().to_be_bytes());
    }
    bytes
}

pub(super) fn decode_notified(bytes: &[u8]) -> Option<NotifiedPart> {
    let (version, rest) = bytes.split_first()?;
    if *version != NOTIFIED_VERSION || rest.len() % NOTIFIED_BYTES != 0 {
        return None;
    }
    let number = |part: &[u8]| part.try_into().map(u64::from_be_bytes).ok();
    let time = |part: &[u8]| part.try_into().map(i64::from_be_bytes).map(Timestamp::from_ms).ok();
    let one = |row: &[u8]| {
        let notified = NotifiedAlert { starts_at: time(row.get(8..16)?)?, at: time(row.get(16..)?)? };
        Some((AlertFingerprint(number(row.get(..8)?)?), notified))
    };
    rest.chunks(NOTIFIED_BYTES).map(one).collect()
}

/// An alert that a receiver was notified about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredAlert {
    pub(super) labels: AlertLabels,
    pub(super) annotations: AlertLabels,
    pub(super) starts_at_ms: i64,
    pub(super) ends_at_ms: i64,
    /// For how long the alert stays valid after it was sent, in milliseconds.
    pub(super) validity_ms: i64,
    /// Whether `ends_at_ms` is the end that the sender wants, also if it does not send the alert
    /// again.
    #[serde(default)]
    pub(super) has_own_end: bool,
    pub(super) resolved: bool,
    pub(super) expr: String,
}

/// The mails of the current hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredMails {
    pub(super) hour: i64,
    pub(super) mails: u32,
}

/// Serializes a value whose form has no error.
pub(super) fn to_json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn notified_alerts_have_a_stable_form() {
        let at = Timestamp::from_ms;
        let notified =
            NotifiedPart::from([(AlertFingerprint(1), NotifiedAlert { starts_at: at(2), at: at(-1) })]);
        let mut expected = vec![1];
        expected.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        expected.extend([255; 8]);
        assert_eq!(encode_notified(&notified), expected);
        assert_eq!(decode_notified(&expected), Some(notified));
        let key = NotifyRowKey::of_alert(NotifyRowKind::Alert, AlertFingerprint(7));
        assert_eq!(key.fingerprint(), AlertFingerprint(7));
        assert_ne!(NotifyRowKey::of_notified("a", "b"), NotifyRowKey::of_notified("ab", ""));
    }

    proptest! {
        #[test]
        fn no_row_makes_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(notified) = decode_notified(&bytes) {
                prop_assert_eq!(decode_notified(&encode_notified(&notified)), Some(notified));
            }
        }
    }
}
