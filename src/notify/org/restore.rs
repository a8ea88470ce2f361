//! The state after a start, and after a change of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OrgNotifier;
use super::entry::AlertEntry;
use super::group::AlertGroup;
use super::suppress::{AlertAcknowledgement, StoredAcknowledgement};
use crate::model::Timestamp;
use crate::notify::config::NotifyConfig;
use crate::notify::labels::AlertFingerprint;
use crate::notify::limits::ALERTS_MAX;
use crate::notify::rows::{
    NotifiedAlerts, NotifyRow, NotifyRowKey, NotifyRowKind, StoredAlert, decode_notified,
};

impl OrgNotifier {
    /// Restores stored rows, and sets the configuration. Rows that cannot be read are removed,
    /// except silences.
    pub fn restore(&mut self, rows: Vec<NotifyRow>, config: Arc<NotifyConfig>, now: Timestamp) {
        let mut notified = BTreeMap::new();
        for NotifyRow { key, value } in rows {
            if !self.restore_row(key, &value, &mut notified, now) {
                self.changes.insert(key, None);
            }
        }
        self.config = config;
        let stored = self.entries.keys().copied().collect();
        self.regroup(notified, stored, now);
    }

    fn restore_row(
        &mut self,
        key: NotifyRowKey,
        value: &[u8],
        notified: &mut BTreeMap<NotifyRowKey, NotifiedAlerts>,
        now: Timestamp,
    ) -> bool {
        match key.kind {
            kind if kind == NotifyRowKind::Silence as u8 => {
                self.silences.restore(value);
                true
            }
            kind if kind == NotifyRowKind::Acknowledgement as u8 => {
                let stored = serde_json::from_slice::<StoredAcknowledgement>(value);
                let one = stored.ok().map(AlertAcknowledgement::from_stored);
                one.map(|one| self.acknowledgements.insert(key.fingerprint(), one)).is_some()
            }
            kind if kind == NotifyRowKind::Notified as u8 => {
                decode_notified(value).map(|alerts| notified.insert(key, alerts)).is_some()
            }
            kind if kind == NotifyRowKind::Alert as u8 => {
                let Ok(stored) = serde_json::from_slice::<StoredAlert>(value) else { return false };
                let fingerprint = AlertFingerprint::of(&stored.labels);
                if fingerprint != key.fingerprint() || self.entries.len() >= ALERTS_MAX {
                    return false;
                }
                let entry = AlertEntry::from_stored(stored, now);
                self.entries_bytes += entry.bytes();
                self.entries.insert(fingerprint, entry);
                true
            }
            kind if kind == NotifyRowKind::MailBudget as u8 => {
                self.mails.restore(value);
                true
            }
            _ => false,
        }
    }

    /// Changes the configuration. Groups and integrations that stay keep what they were told.
    pub fn set_config(&mut self, config: Arc<NotifyConfig>, now: Timestamp) {
        if self.config == config {
            return;
        }
        let mut notified = BTreeMap::new();
        for (key, group) in &self.groups {
            for outlet in &group.outlets {
                notified.insert(NotifyRowKey::of_notified(key, &outlet.id), outlet.notified.clone());
            }
        }
        self.config = config;
        let has_row = self.entries.iter().filter(|(_, entry)| entry.notified > 0);
        let stored = has_row.map(|(print, _)| *print).collect();
        self.regroup(notified, stored, now);
        let ids: Vec<Arc<str>> = self.config.integrations.iter().map(|one| Arc::clone(&one.id)).collect();
        self.channels.retain(|id, _| ids.contains(id));
        // A changed receiver may work at once.
        for channel in self.channels.values_mut() {
            channel.history.retry_at = None;
        }
    }

    /// Makes the groups of all alerts again, each integration with what it was told before.
    /// `stored` are the alerts with a row.
    fn regroup(
        &mut self,
        mut notified: BTreeMap<NotifyRowKey, NotifiedAlerts>,
        stored: Vec<AlertFingerprint>,
        now: Timestamp,
    ) {
        self.inhibitors_at = None;
        let before = std::mem::take(&mut self.groups);
        self.memberships = 0;
        for entry in self.entries.values_mut() {
            (entry.groups, entry.notified) = (0, 0);
        }
        let all: Vec<AlertFingerprint> = self.entries.keys().copied().collect();
        for fingerprint in all {
            self.join_groups(fingerprint, now);
        }
        let mut believed = Vec::new();
        for (key, group) in &mut self.groups {
            if let Some(known) = before.get(key) {
                (group.next_flush, group.wait_ms) = (known.next_flush, known.wait_ms);
                group.has_flushed = known.has_flushed;
            }
            let mut has_notified = false;
            for outlet in &mut group.outlets {
                let row = NotifyRowKey::of_notified(key, &outlet.id);
                outlet.notified = notified.remove(&row).unwrap_or_default();
                outlet.notified.retain(|print, _| group.members.contains(print));
                has_notified |= !outlet.notified.is_empty();
                believed.extend(outlet.notified.keys().copied());
                let known = before.get(key).and_then(|known| find(known, &outlet.id));
                outlet.is_in_flight = known.is_some_and(|known| known.is_in_flight);
                outlet.pending_since = known.and_then(|known| known.pending_since);
            }
            if has_notified && !before.contains_key(key) {
                // The group was notified before the start: it waits for alerts to come back.
                let wait = self.config.routes.get(group.route).map_or(0, |route| route.times.group_wait_ms);
                (group.next_flush, group.wait_ms, group.has_flushed) = (now.plus_ms(wait), wait, true);
            }
        }
        for fingerprint in believed {
            if let Some(entry) = self.entries.get_mut(&fingerprint) {
                entry.notified += 1;
            }
        }
        // Groups or integrations that no longer exist.
        for (row, alerts) in notified {
            if !alerts.is_empty() {
                self.changes.insert(row, None);
            }
        }
        for fingerprint in stored {
            if self.entries.get(&fingerprint).is_none_or(|entry| entry.notified == 0) {
                self.changes.insert(NotifyRowKey::of_alert(NotifyRowKind::Alert, fingerprint), None);
            }
        }
    }
}

fn find<'g>(group: &'g AlertGroup, id: &Arc<str>) -> Option<&'g super::group::GroupOutlet> {
    group.outlets.iter().find(|outlet| outlet.id == *id)
}
