//! The alerts of an organisation.

use std::sync::Arc;

use crate::model::{Alert, Timestamp};
use crate::notify::alertmanager::AmAlert;
use crate::notify::labels::{AlertLabels, pairs_bytes};
use crate::notify::limits::{ALERT_BYTES_MAX, ALERT_PAIRS_MAX};
use crate::notify::rows::StoredAlert;

/// The longest time for which a firing alert stays valid after a start without being sent again, in
/// milliseconds.
const RESTORED_VALIDITY_MAX_MS: i64 = 86_400_000;

/// An alert, and the counts of its uses.
#[derive(Clone, Debug)]
pub(in crate::notify) struct AlertEntry {
    pub(in crate::notify) labels: Arc<AlertLabels>,
    pub(in crate::notify) annotations: Arc<AlertLabels>,
    pub(in crate::notify) starts_at: Timestamp,
    pub(in crate::notify) ends_at: Timestamp,
    pub(in crate::notify) updated_at: Timestamp,
    pub(in crate::notify) is_resolved: bool,
    pub(in crate::notify) expr: Arc<str>,
    /// How long the alert stays valid after it was sent, in milliseconds.
    validity_ms: i64,
    /// Whether `ends_at` is the end that the sender wants, also if it does not send the alert
    /// again.
    has_own_end: bool,
    /// The number of groups that contain it.
    pub(in crate::notify) groups: u32,
    /// The number of pairs of a group and an integration to which it was reported as firing.
    pub(in crate::notify) notified: u32,
    /// The epoch of the silences that were compared, and the active ones that match.
    pub(in crate::notify) silenced: (u64, Vec<Arc<str>>),
}

impl AlertEntry {
    /// Returns the entry of a new alert; none if the alert is larger than the limits.
    pub(in crate::notify) fn new(alert: Alert, now: Timestamp) -> Option<AlertEntry> {
        let Alert { mut labels, mut annotations, starts_at, ends_at, has_own_end, resolved, expr, .. } =
            alert;
        labels.retain(|_, value| !value.is_empty());
        annotations.retain(|_, value| !value.is_empty());
        let bytes = pairs_bytes(&labels) + pairs_bytes(&annotations) + expr.len();
        let pairs = labels.len().max(annotations.len());
        if labels.is_empty() || bytes > ALERT_BYTES_MAX || pairs > ALERT_PAIRS_MAX {
            return None;
        }
        Some(AlertEntry {
            labels: Arc::new(labels),
            annotations: Arc::new(annotations),
            starts_at,
            ends_at: if resolved { ends_at.max(starts_at) } else { ends_at },
            updated_at: now,
            is_resolved: resolved,
            expr: expr.into(),
            validity_ms: ends_at.ms_since(now).max(0),
            has_own_end,
            groups: 0,
            notified: 0,
            silenced: (0, Vec::new()),
        })
    }

    /// Takes a newer state of the same alert. A firing alert that overlaps the known one keeps the
    /// earlier start. Returns whether the stored form has to be written again.
    pub(in crate::notify) fn update(&mut self, newer: AlertEntry, now: Timestamp) -> bool {
        let own_end = |entry: &AlertEntry| entry.has_own_end.then_some(entry.ends_at);
        let before = (self.starts_at, self.is_resolved, own_end(self));
        let was_firing = self.is_firing(now);
        if newer.is_resolved {
            // A late message about an earlier alert with these labels.
            if newer.ends_at < self.starts_at || self.is_resolved {
                return false;
            }
            self.is_resolved = true;
            self.ends_at = newer.ends_at;
        } else {
            self.starts_at = if was_firing { self.starts_at.min(newer.starts_at) } else { newer.starts_at };
            self.is_resolved = false;
            self.has_own_end = newer.has_own_end && (!was_firing || self.keeps_own_end(&newer));
            self.ends_at = newer.ends_at;
            self.validity_ms = newer.validity_ms;
        }
        if !newer.annotations.is_empty() || !newer.is_resolved {
            self.annotations = newer.annotations;
        }
        self.expr = newer.expr;
        self.updated_at = now;
        self.notified > 0 && before != (self.starts_at, self.is_resolved, own_end(self))
    }

    /// Returns whether a newer state of this firing alert has an end that its sender wants. Senders
    /// such as Prometheus set an end that moves with each sending: they will send the alert again,
    /// and moving ends are not stored each time.
    fn keeps_own_end(&self, newer: &AlertEntry) -> bool {
        if newer.ends_at == self.ends_at {
            return self.has_own_end;
        }
        self.validity_ms.abs_diff(newer.validity_ms) > newer.validity_ms.unsigned_abs() / 8
    }

    /// Returns whether the alert fires. An alert that was not sent again in time is resolved.
    pub(in crate::notify) fn is_firing(&self, now: Timestamp) -> bool {
        !self.is_resolved && now < self.ends_at
    }

    /// Returns the bytes that count against the limit of all alerts.
    pub(in crate::notify) fn bytes(&self) -> usize {
        pairs_bytes(&self.labels) + pairs_bytes(&self.annotations) + self.expr.len()
    }

    /// Returns the state for Alertmanagers. The alert gets the external labels that it lacks.
    pub(in crate::notify) fn for_alertmanager(
        &self,
        external_labels: &AlertLabels,
        generator_url: String,
    ) -> AmAlert {
        let mut labels = Arc::clone(&self.labels);
        for (name, value) in external_labels {
            if !labels.contains_key(name) {
                Arc::make_mut(&mut labels).insert(name.clone(), value.clone());
            }
        }
        AmAlert {
            labels,
            annotations: Arc::clone(&self.annotations),
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            generator_url,
        }
    }

    pub(in crate::notify) fn to_stored(&self) -> StoredAlert {
        StoredAlert {
            labels: (*self.labels).clone(),
            annotations: (*self.annotations).clone(),
            starts_at_ms: self.starts_at.as_ms(),
            ends_at_ms: self.ends_at.as_ms(),
            validity_ms: self.validity_ms,
            has_own_end: self.has_own_end,
            resolved: self.is_resolved,
            expr: self.expr.to_string(),
        }
    }

    /// Returns a stored alert after a start. An end that the sender set stays. Another firing alert
    /// stays valid for as long after the start as it was after it was sent, so that it can be sent
    /// again.
    pub(in crate::notify) fn from_stored(stored: StoredAlert, now: Timestamp) -> AlertEntry {
        let validity_ms = stored.validity_ms.clamp(0, RESTORED_VALIDITY_MAX_MS);
        let ends_at = Timestamp::from_ms(stored.ends_at_ms);
        let ends_at = match stored.resolved || stored.has_own_end {
            true => ends_at,
            false => ends_at.max(now.plus_ms(validity_ms)),
        };
        AlertEntry {
            labels: Arc::new(stored.labels),
            annotations: Arc::new(stored.annotations),
            starts_at: Timestamp::from_ms(stored.starts_at_ms),
            ends_at,
            updated_at: now,
            is_resolved: stored.resolved,
            expr: stored.expr.into(),
            validity_ms: stored.validity_ms,
            has_own_end: stored.has_own_end,
            groups: 0,
            notified: 0,
            silenced: (0, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> AlertLabels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn alertmanagers_get_the_external_labels_that_an_alert_lacks() {
        let alert = Alert {
            labels: pairs(&[("alertname", "Down"), ("cluster", "own"), ("zone", "")]),
            annotations: AlertLabels::new(),
            value: 1.0,
            starts_at: Timestamp::from_s(1),
            ends_at: Timestamp::from_s(2),
            has_own_end: false,
            resolved: false,
            expr: "up == 0".to_owned(),
        };
        let entry = AlertEntry::new(alert, Timestamp::from_s(1)).expect("within the limits");
        let external = pairs(&[("cluster", "c1"), ("replica", "a"), ("zone", "b")]);
        let sent = entry.for_alertmanager(&external, String::new());
        let expected = [("alertname", "Down"), ("cluster", "own"), ("replica", "a"), ("zone", "b")];
        assert_eq!(*sent.labels, pairs(&expected));
        assert_eq!(*entry.labels, pairs(&expected[..2]), "receivers of this server get the own labels");
    }
}
