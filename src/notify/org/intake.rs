//! Alerts come in: they are stored, queued for Alertmanagers, and put into groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::OrgNotifier;
use super::entry::AlertEntry;
use super::group::{AlertGroup, GroupIntegrationState};
use crate::model::{Alert, Timestamp};
use crate::notify::labels::{AlertFingerprint, format_labels};
use crate::notify::limits::{ALERTS_BYTES_MAX, ALERTS_MAX, GROUPS_MAX, MEMBERSHIPS_MAX};
use crate::notify::notified::NotifiedAlerts;
use crate::notify::rows::{NotifyRowKey, NotifyRowKind, to_json_bytes};

impl OrgNotifier {
    /// Takes the state of an alert.
    pub fn offer(&mut self, alert: Alert, now: Timestamp) {
        self.counts.received += 1;
        let Some(entry) = AlertEntry::new(alert, now) else {
            self.counts.dropped += 1;
            return;
        };
        let fingerprint = AlertFingerprint::of(&entry.labels);
        if !self.alertmanagers.is_empty() {
            let sent = entry.for_alertmanager(&self.options.external_labels, self.expr_link(&entry.expr));
            for queue in self.alertmanagers.values_mut() {
                queue.push(fingerprint, sent.clone(), now);
            }
        }
        let is_resolved = entry.is_resolved;
        if !self.store_entry(fingerprint, entry, now) {
            return;
        }
        if is_resolved {
            self.forget_acknowledgement(fingerprint, now);
        } else {
            self.join_groups(fingerprint, now);
        }
    }

    /// Stores an alert. Returns whether the alert is known now.
    fn store_entry(&mut self, fingerprint: AlertFingerprint, entry: AlertEntry, now: Timestamp) -> bool {
        if let Some(known) = self.entries.get_mut(&fingerprint) {
            // Two alerts with the same fingerprint.
            if known.labels != entry.labels {
                self.counts.dropped += 1;
                return false;
            }
            let before = known.bytes();
            let was_firing = known.is_firing(now);
            let is_stored_changed = known.update(entry, now);
            if was_firing != known.is_firing(now) {
                self.inhibitors_at = None;
            }
            self.entries_bytes = self.entries_bytes + known.bytes() - before.min(self.entries_bytes);
            if is_stored_changed {
                let row = to_json_bytes(&known.to_stored());
                self.changes.insert(NotifyRowKey::of_alert(NotifyRowKind::Alert, fingerprint), Some(row));
            }
            return true;
        }
        // No receiver was notified about it.
        if entry.is_resolved {
            return false;
        }
        let bytes = entry.bytes();
        if self.entries.len() >= ALERTS_MAX || self.entries_bytes + bytes > ALERTS_BYTES_MAX {
            self.sweep(now);
        }
        if self.entries.len() >= ALERTS_MAX || self.entries_bytes + bytes > ALERTS_BYTES_MAX {
            self.counts.dropped += 1;
            return false;
        }
        self.entries_bytes += bytes;
        self.entries.insert(fingerprint, entry);
        self.inhibitors_at = None;
        true
    }

    /// Puts a firing alert into the groups of its routes.
    pub(super) fn join_groups(&mut self, fingerprint: AlertFingerprint, now: Timestamp) {
        let config = Arc::clone(&self.config);
        let Some(entry) = self.entries.get(&fingerprint) else { return };
        let (labels, starts_at) = (Arc::clone(&entry.labels), entry.starts_at);
        for index in config.routes_of(&labels) {
            let Some(route) = config.routes.get(index) else { continue };
            let group_labels = route.group_labels(&labels);
            let key: Arc<str> = format!("{}:{}", route.key, format_labels(&group_labels)).into();
            let has_room = self.memberships < MEMBERSHIPS_MAX;
            if !self.groups.contains_key(&key) {
                if self.groups.len() >= GROUPS_MAX || !has_room {
                    self.counts.dropped += 1;
                    continue;
                }
                let state = |(index, id)| GroupIntegrationState::new(index, id, NotifiedAlerts::default());
                let integrations = config.integrations_of(route).map(state).collect();
                let group = AlertGroup {
                    route: index,
                    labels: group_labels,
                    members: BTreeSet::new(),
                    next_flush: now.plus_ms(route.times.group_wait_ms),
                    wait_ms: route.times.group_wait_ms,
                    has_flushed: false,
                    integrations,
                };
                self.groups.insert(Arc::clone(&key), group);
            }
            let Some(group) = self.groups.get_mut(&key) else { continue };
            if !group.members.contains(&fingerprint) {
                if !has_room {
                    self.counts.dropped += 1;
                    continue;
                }
                group.members.insert(fingerprint);
                self.memberships += 1;
                if let Some(entry) = self.entries.get_mut(&fingerprint) {
                    entry.groups += 1;
                }
            }
            // An alert that has waited long enough in another group does not wait here, as in
            // Alertmanager.
            if !group.has_flushed && now.ms_since(starts_at) > route.times.group_wait_ms {
                group.next_flush = now;
                group.wait_ms = 0;
            }
        }
    }

    /// Removes the acknowledgement of an alert that does not fire any more.
    pub(super) fn forget_acknowledgement(&mut self, fingerprint: AlertFingerprint, now: Timestamp) {
        if self.entries.get(&fingerprint).is_none_or(|entry| !entry.is_firing(now)) {
            self.withdraw_acknowledgement(fingerprint);
        }
    }

    /// Removes alerts that neither fire nor concern a receiver.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let is_over = |entry: &AlertEntry| !entry.is_firing(now) && entry.groups == 0 && entry.notified == 0;
        let over: Vec<AlertFingerprint> =
            self.entries.iter().filter(|(_, entry)| is_over(entry)).map(|(print, _)| *print).collect();
        for fingerprint in over {
            if let Some(entry) = self.entries.remove(&fingerprint) {
                self.entries_bytes = self.entries_bytes.saturating_sub(entry.bytes());
            }
            self.withdraw_acknowledgement(fingerprint);
        }
    }
}
