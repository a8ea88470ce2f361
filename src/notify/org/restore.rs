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
use crate::notify::notified::{NotifiedAlerts, PARTS_MAX};
use crate::notify::rows::{
    NotifiedPart, NotifyRow, NotifyRowKey, NotifyRowKind, StoredAlert, decode_notified,
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
        notified: &mut BTreeMap<NotifyRowKey, NotifiedPart>,
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

    /// Changes the configuration. Groups and integrations that stay keep their notified alerts.
    pub fn set_config(&mut self, config: Arc<NotifyConfig>, now: Timestamp) {
        if self.config == config {
            return;
        }
        let mut notified = BTreeMap::new();
        for (key, group) in &self.groups {
            for state in &group.integrations {
                let row = NotifyRowKey::of_notified(key, &state.id);
                notified.extend(state.notified.parts().map(|(part, alerts)| (row.part(part), alerts)));
            }
        }
        self.config = config;
        let has_row = self.entries.iter().filter(|(_, entry)| entry.notified > 0);
        let stored = has_row.map(|(print, _)| *print).collect();
        self.regroup(notified, stored, now);
        let ids: Vec<Arc<str>> = self.config.integrations.iter().map(|one| Arc::clone(&one.id)).collect();
        self.requests.retain(|id, _| ids.contains(id));
        // A changed receiver may accept requests at once.
        for requests in self.requests.values_mut() {
            requests.history.retry_at = None;
        }
    }

    /// Makes the groups of all alerts again. `notified` are the notified alerts of the integrations
    /// before, and `stored` the alerts with a row.
    fn regroup(
        &mut self,
        mut notified: BTreeMap<NotifyRowKey, NotifiedPart>,
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
        let mut reported = Vec::new();
        for (key, group) in &mut self.groups {
            if let Some(known) = before.get(key) {
                (group.next_flush, group.wait_ms) = (known.next_flush, known.wait_ms);
                group.has_flushed = known.has_flushed;
            }
            let mut has_notified = false;
            for state in &mut group.integrations {
                let row = NotifyRowKey::of_notified(key, &state.id);
                state.notified = NotifiedAlerts::default();
                for part in 0..PARTS_MAX {
                    if let Some(alerts) = notified.remove(&row.part(part)) {
                        state.notified.add_part(part, alerts);
                    }
                }
                state.notified.retain(|print| group.members.contains(&print));
                has_notified |= !state.notified.is_empty();
                reported.extend(state.notified.fingerprints());
                let known = before.get(key).and_then(|known| find(known, &state.id));
                state.is_in_flight = known.is_some_and(|known| known.is_in_flight);
                state.pending_since = known.and_then(|known| known.pending_since);
            }
            if has_notified && !before.contains_key(key) {
                // The group was notified before the start: it waits for alerts to come back.
                let wait = self.config.routes.get(group.route).map_or(0, |route| route.times.group_wait_ms);
                (group.next_flush, group.wait_ms, group.has_flushed) = (now.plus_ms(wait), wait, true);
            }
        }
        for fingerprint in reported {
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

fn find<'g>(group: &'g AlertGroup, id: &Arc<str>) -> Option<&'g super::group::GroupIntegrationState> {
    group.integrations.iter().find(|state| state.id == *id)
}
