//! The alerts that were last reported to an integration of a group as firing.
//!
//! They are stored in parts, each of which is a row: a row with all alerts of an organisation would
//! be too long, and a message changes few of them. An alert stays in its part, so each alert is in
//! exactly one row, also if some of the changed rows are not stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::labels::AlertFingerprint;
use super::limits::ALERTS_MAX;
use super::rows::{NotifiedAlert, NotifiedPart, encode_notified};
use crate::model::Timestamp;

/// The most alerts of a part, inclusive. A row of an earlier version becomes a first part, which
/// may have more alerts.
const PART_ALERTS_MAX: usize = 4_000;
/// The most parts.
pub(super) const PARTS_MAX: u8 = 3;
const PARTS: usize = PARTS_MAX as usize;
const _: () = assert!(PARTS * PART_ALERTS_MAX >= ALERTS_MAX);

/// The alerts that were last reported to an integration as firing.
#[derive(Clone, Debug, Default)]
pub(super) struct NotifiedAlerts {
    /// The alerts, each with the number of its part.
    alerts: BTreeMap<AlertFingerprint, (NotifiedAlert, u8)>,
    /// The number of alerts of each part.
    lengths: [usize; PARTS],
    /// Whether each part differs from its row.
    changed: [bool; PARTS],
}

impl NotifiedAlerts {
    pub(super) fn get(&self, fingerprint: AlertFingerprint) -> Option<&NotifiedAlert> {
        self.alerts.get(&fingerprint).map(|(alert, _)| alert)
    }

    pub(super) fn contains(&self, fingerprint: AlertFingerprint) -> bool {
        self.alerts.contains_key(&fingerprint)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alerts.is_empty()
    }

    /// Iterates over the alerts in their order.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = AlertFingerprint> {
        self.alerts.keys().copied()
    }

    /// Adds or replaces an alert. Returns whether the alert is new.
    pub(super) fn insert(&mut self, fingerprint: AlertFingerprint, alert: NotifiedAlert) -> bool {
        let known = self.alerts.get(&fingerprint).map(|(_, part)| *part);
        let part = known.unwrap_or_else(|| self.free_part());
        self.alerts.insert(fingerprint, (alert, part));
        self.count(part, |length| length + usize::from(known.is_none()));
        known.is_none()
    }

    /// Removes an alert. Returns whether the alert was present.
    pub(super) fn remove(&mut self, fingerprint: AlertFingerprint) -> bool {
        let Some((_, part)) = self.alerts.remove(&fingerprint) else { return false };
        self.count(part, |length| length.saturating_sub(1));
        true
    }

    /// Removes all alerts but those of which `keeps` is true.
    pub(super) fn retain(&mut self, keeps: impl Fn(AlertFingerprint) -> bool) {
        let gone: Vec<AlertFingerprint> = self.fingerprints().filter(|print| !keeps(*print)).collect();
        for fingerprint in gone {
            self.remove(fingerprint);
        }
    }

    /// Replaces times of notifications after `now` by `now`. The rows stay as they are.
    pub(super) fn limit_times(&mut self, now: Timestamp) {
        for (alert, _) in self.alerts.values_mut() {
            alert.at = alert.at.min(now);
        }
    }

    /// Adds the alerts of a row. Existing entries stay.
    pub(super) fn add_part(&mut self, part: u8, alerts: NotifiedPart) {
        let mut added = 0;
        for (fingerprint, alert) in alerts {
            if let Entry::Vacant(entry) = self.alerts.entry(fingerprint) {
                entry.insert((alert, part));
                added += 1;
            }
        }
        if let Some(length) = self.lengths.get_mut(usize::from(part)) {
            *length += added;
        }
    }

    /// Returns the alerts of a part.
    fn part(&self, part: u8) -> NotifiedPart {
        let of_part = self.alerts.iter().filter(|(_, (_, other))| *other == part);
        of_part.map(|(print, (alert, _))| (*print, *alert)).collect()
    }

    /// Returns the parts that have alerts.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u8, NotifiedPart)> {
        (0..PARTS_MAX).map(|part| (part, self.part(part))).filter(|(_, alerts)| !alerts.is_empty())
    }

    /// Returns the rows of the parts that changed since the last call; `None` for one that is empty
    /// now.
    pub(super) fn take_changed(&mut self) -> Vec<(u8, Option<Vec<u8>>)> {
        let changed = (0..PARTS_MAX).zip(std::mem::take(&mut self.changed));
        let row = |(part, is_changed): (u8, bool)| {
            let alerts = is_changed.then(|| self.part(part))?;
            Some((part, (!alerts.is_empty()).then(|| encode_notified(&alerts))))
        };
        changed.filter_map(row).collect()
    }

    /// Returns the first part with room. The limit of alerts guarantees that the last part has
    /// room.
    fn free_part(&self) -> u8 {
        let mut parts = (0..PARTS_MAX).zip(self.lengths);
        parts.find(|(_, length)| *length < PART_ALERTS_MAX).map_or(PARTS_MAX - 1, |(part, _)| part)
    }

    fn count(&mut self, part: u8, new: impl Fn(usize) -> usize) {
        let part = usize::from(part);
        if let (Some(length), Some(changed)) = (self.lengths.get_mut(part), self.changed.get_mut(part)) {
            (*length, *changed) = (new(*length), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rows::decode_notified;
    use super::*;

    fn alert(at: i64) -> NotifiedAlert {
        NotifiedAlert { starts_at: Timestamp::from_ms(at), at: Timestamp::from_ms(at) }
    }

    /// Applies changed rows to stored ones.
    fn store(rows: &mut BTreeMap<u8, Vec<u8>>, notified: &mut NotifiedAlerts) -> usize {
        let changed = notified.take_changed();
        let count = changed.len();
        for (part, row) in changed {
            match row {
                Some(row) => drop(rows.insert(part, row)),
                None => drop(rows.remove(&part)),
            }
        }
        count
    }

    fn read(rows: &BTreeMap<u8, Vec<u8>>) -> NotifiedAlerts {
        let mut notified = NotifiedAlerts::default();
        for (part, row) in rows {
            notified.add_part(*part, decode_notified(row).expect("whole"));
        }
        notified
    }

    #[test]
    fn as_many_alerts_as_an_organisation_has_fit_into_rows_of_bounded_length() {
        let (mut notified, mut rows) = (NotifiedAlerts::default(), BTreeMap::new());
        for number in 0..ALERTS_MAX as u64 {
            // Fingerprints in no order.
            let print = AlertFingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(notified.insert(print, alert(1)));
        }
        assert_eq!(store(&mut rows, &mut notified), PARTS);
        assert!(rows.values().all(|row| row.len() <= 24 * PART_ALERTS_MAX + 1));
        assert_eq!(read(&rows).alerts, notified.alerts);
        // A change writes the rows of the changed alerts only.
        assert!(notified.remove(AlertFingerprint(0)));
        assert!(notified.insert(AlertFingerprint(7), alert(2)));
        assert_eq!(store(&mut rows, &mut notified), 1);
        assert_eq!(read(&rows).alerts, notified.alerts);
        notified.retain(|_| false);
        assert_eq!((store(&mut rows, &mut notified), rows.len()), (PARTS, 0));
    }

    #[test]
    fn a_row_of_an_earlier_version_is_the_first_part() {
        let old: NotifiedPart = (0..8_000).map(|number| (AlertFingerprint(number), alert(1))).collect();
        let mut rows = BTreeMap::from([(0, encode_notified(&old))]);
        let mut notified = read(&rows);
        for number in 8_000..10_000 {
            notified.insert(AlertFingerprint(number), alert(2));
        }
        assert_eq!(store(&mut rows, &mut notified), 1, "the new part");
        assert_eq!(read(&rows).alerts, notified.alerts);
        notified.retain(|print| print.0 % 2 == 0);
        store(&mut rows, &mut notified);
        assert_eq!((read(&rows).alerts.len(), rows.len()), (5_000, 2));
    }

    proptest! {
        #[test]
        fn rows_have_the_alerts_after_any_changes(
            changes in proptest::collection::vec((0..40u64, any::<bool>(), any::<bool>()), 0..80),
        ) {
            let (mut notified, mut rows) = (NotifiedAlerts::default(), BTreeMap::new());
            for (step, (print, is_added, is_stored)) in (0..).zip(changes) {
                let print = AlertFingerprint(print);
                let was_there = notified.contains(print);
                if is_added {
                    prop_assert_eq!(notified.insert(print, alert(step)), !was_there);
                } else {
                    prop_assert_eq!(notified.remove(print), was_there);
                }
                if is_stored {
                    store(&mut rows, &mut notified);
                    prop_assert_eq!(&read(&rows).alerts, &notified.alerts);
                    prop_assert_eq!(read(&rows).lengths, notified.lengths);
                }
            }
        }
    }
}
