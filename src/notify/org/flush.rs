//! Steps of time: a group is flushed when its wait ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::group::{AlertGroup, GroupIntegrationState, GroupMessage, MessageContext};
use super::suppress::{Inhibitors, Suppression};
use super::{Delivery, OrgNotifier};
use crate::model::Timestamp;
use crate::notify::labels::AlertFingerprint;
use crate::notify::limits::STEP_TESTS_MAX;
use crate::notify::rows::{NotifyRowKey, NotifyRowKind, to_json_bytes};

/// A longer pause between two steps, in milliseconds, is a jump of the clock or a suspended
/// machine. It counts as this long.
const STEP_MAX_MS: i64 = 120_000;

/// How long the sources of inhibition are used while no alert changes, in milliseconds.
const INHIBITORS_MS: i64 = 10_000;

impl OrgNotifier {
    /// Advances to `now`. Returns the deliveries to make. To be called at least once a minute,
    /// and after each change.
    pub fn step(&mut self, now: Timestamp) -> Vec<Delivery> {
        self.follow_clock(now);
        self.silences.tick(now, &mut self.changes);
        self.find_inhibitors(now);
        self.drop_acknowledgements(now);
        let due: Vec<Arc<str>> = self
            .groups
            .iter()
            .filter(|(_, group)| is_due(group, now))
            .map(|(key, _)| Arc::clone(key))
            .collect();
        let (mut tests, silences) = (0, self.silences.active_count());
        for key in &due {
            // The rest is due in the next step, so other organisations get their turn.
            if tests > STEP_TESTS_MAX {
                break;
            }
            tests += self.groups.get(key).map_or(0, |group| group.members.len() * (silences + 1));
            self.flush(key, now);
        }
        self.sweep(now);
        let mut deliveries = self.deliver_groups(now);
        deliveries.extend(self.deliver_alertmanagers(now));
        deliveries
    }

    /// Finds the alerts that inhibit others, if alerts have changed or may have ended.
    fn find_inhibitors(&mut self, now: Timestamp) {
        let is_recent = self.inhibitors_at.is_some_and(|at| now.ms_since(at).abs() < INHIBITORS_MS);
        if !is_recent {
            self.inhibitors_at = Some(now);
            self.inhibitors = Inhibitors::of(&self.config, &self.entries, now);
        }
    }

    /// Moves ends and waits along when the clock jumps, so that no alert expires, and no group
    /// waits, because of the jump.
    fn follow_clock(&mut self, now: Timestamp) {
        let passed = self.stepped_at.map_or(0, |before| now.ms_since(before));
        self.stepped_at = Some(now);
        let jump = if passed < 0 { passed } else { (passed - STEP_MAX_MS).max(0) };
        if jump == 0 {
            return;
        }
        for entry in self.entries.values_mut() {
            // An alert that was sent after the jump has the new time already.
            if !entry.is_resolved && entry.updated_at.ms_since(now).abs() > STEP_MAX_MS {
                entry.ends_at = entry.ends_at.plus_ms(jump);
            }
        }
        for group in self.groups.values_mut() {
            if jump < 0 {
                group.next_flush = group.next_flush.plus_ms(jump);
            }
            // A time in the future would hold back repeated notifications.
            for state in &mut group.integrations {
                state.notified.limit_times(now);
            }
        }
    }

    fn drop_acknowledgements(&mut self, now: Timestamp) {
        let over: Vec<AlertFingerprint> = self
            .acknowledgements
            .iter()
            .filter(|(print, one)| {
                let entry = self.entries.get(print);
                entry.is_none_or(|entry| !entry.is_firing(now) || entry.starts_at != one.starts_at)
            })
            .map(|(print, _)| *print)
            .collect();
        for fingerprint in over {
            self.withdraw_acknowledgement(fingerprint);
        }
    }

    /// Flushes a group: marks the integrations that have to be notified, forgets settled alerts,
    /// and sets the time of the next flush.
    fn flush(&mut self, key: &Arc<str>, now: Timestamp) {
        self.refresh_silences(key, now);
        let config = Arc::clone(&self.config);
        let Some(group) = self.groups.get(key) else { return };
        let Some(route) = config.routes.get(group.route) else { return };
        let suppressed = self.suppressed(group);
        let wants = |state| self.message_of(group, state, &suppressed, now).is_some();
        let wants: Vec<bool> = group.integrations.iter().map(wants).collect();
        let Some(group) = self.groups.get_mut(key) else { return };
        for (state, wants) in group.integrations.iter_mut().zip(wants) {
            state.pending_since = if wants { state.pending_since.or(Some(now)) } else { None };
        }
        let interval = route.times.group_interval_ms;
        // Without drift, unless a flush was missed.
        let is_late = now.ms_since(group.next_flush).abs() >= interval;
        let base = if is_late || !group.has_flushed { now } else { group.next_flush };
        group.next_flush = base.plus_ms(interval);
        group.wait_ms = interval;
        group.has_flushed = true;
        self.settle(key, now);
    }

    /// Computes which silences match the members of a group, unless that is known.
    fn refresh_silences(&mut self, key: &Arc<str>, now: Timestamp) {
        let Some(group) = self.groups.get(key) else { return };
        let epoch = self.silences.epoch();
        for fingerprint in &group.members {
            if let Some(entry) = self.entries.get_mut(fingerprint)
                && entry.silenced.0 != epoch
            {
                entry.silenced = (epoch, self.silences.matching(&entry.labels, now));
            }
        }
    }

    /// Returns the alerts of a group that are held back.
    pub(super) fn suppressed(&self, group: &AlertGroup) -> BTreeSet<AlertFingerprint> {
        self.suppression().among(&group.members, &self.entries)
    }

    /// Returns the message that an integration of a group has to get now; none while the route is
    /// muted.
    pub(super) fn message_of(
        &self,
        group: &AlertGroup,
        state: &GroupIntegrationState,
        suppressed: &BTreeSet<AlertFingerprint>,
        now: Timestamp,
    ) -> Option<GroupMessage> {
        let route = self.config.routes.get(group.route)?;
        let integration = self.config.integrations.get(state.integration)?;
        if route.is_muted(now) {
            return None;
        }
        group.message(
            state,
            &MessageContext {
                entries: &self.entries,
                suppressed,
                repeat_interval_ms: route.times.repeat_interval_ms,
                send_resolved: integration.send_resolved,
                now,
            },
        )
    }

    pub(super) fn suppression(&self) -> Suppression<'_> {
        Suppression {
            config: &self.config,
            inhibitors: &self.inhibitors,
            acknowledgements: &self.acknowledgements,
        }
    }

    /// Removes the resolved alerts of a group that need no notification, and the group if it is
    /// empty.
    pub(super) fn settle(&mut self, key: &Arc<str>, now: Timestamp) {
        let config = Arc::clone(&self.config);
        let Some(group) = self.groups.get(key) else { return };
        let mut quiet = Vec::new();
        for (index, state) in group.integrations.iter().enumerate() {
            let sends = config.integrations.get(state.integration).is_some_and(|one| one.send_resolved);
            if !sends {
                quiet.push((index, group.resolved(state, &self.entries, now)));
            }
        }
        for (index, over) in quiet {
            self.forget_notified(key, index, &over);
        }
        let Some(group) = self.groups.get(key) else { return };
        let is_over = |print: &&AlertFingerprint| {
            let entry = self.entries.get(print);
            entry.is_none_or(|entry| !entry.is_firing(now) && group.is_settled(**print, entry.ends_at, now))
        };
        let over: Vec<AlertFingerprint> = group.members.iter().filter(is_over).copied().collect();
        for index in 0..group.integrations.len() {
            let dropped = self.forget_notified(key, index, &over);
            if dropped > 0
                && let Some(requests) = self.requests_of(key, index)
            {
                requests.history.counts.dropped_alerts += dropped as u64;
            }
        }
        for fingerprint in over {
            if let Some(group) = self.groups.get_mut(key)
                && group.members.remove(&fingerprint)
            {
                self.memberships = self.memberships.saturating_sub(1);
                if let Some(entry) = self.entries.get_mut(&fingerprint) {
                    entry.groups = entry.groups.saturating_sub(1);
                }
            }
        }
        if self.groups.get(key).is_some_and(AlertGroup::is_empty) {
            self.groups.remove(key);
        }
    }

    fn requests_of(&mut self, key: &Arc<str>, index: usize) -> Option<&mut super::IntegrationRequests> {
        let id = Arc::clone(&self.groups.get(key)?.integrations.get(index)?.id);
        Some(self.requests.entry(id).or_default())
    }

    /// Removes alerts from the notified alerts of an integration. Returns the number of removed
    /// alerts.
    fn forget_notified(&mut self, key: &Arc<str>, index: usize, alerts: &[AlertFingerprint]) -> usize {
        let state = self.groups.get_mut(key).and_then(|group| group.integrations.get_mut(index));
        let Some(state) = state else { return 0 };
        let was_notified = |print: &&AlertFingerprint| state.notified.remove(**print);
        let forgotten: Vec<AlertFingerprint> = alerts.iter().filter(was_notified).copied().collect();
        if !forgotten.is_empty() {
            self.count_notified(&[], &forgotten);
            self.store_notified(key, index);
        }
        forgotten.len()
    }

    /// Stores the notified alerts of an integration in a group.
    pub(super) fn store_notified(&mut self, key: &Arc<str>, index: usize) {
        let state = self.groups.get_mut(key).and_then(|group| group.integrations.get_mut(index));
        let Some(state) = state else { return };
        let row = NotifyRowKey::of_notified(key, &state.id);
        let changed = state.notified.take_changed().into_iter();
        self.changes.extend(changed.map(|(part, value)| (row.part(part), value)));
    }

    /// Counts, for each alert, the integrations to which it was reported as firing. The first one
    /// stores the alert, the last one removes it.
    pub(super) fn count_notified(&mut self, added: &[AlertFingerprint], removed: &[AlertFingerprint]) {
        for fingerprint in added {
            let Some(entry) = self.entries.get_mut(fingerprint) else { continue };
            entry.notified += 1;
            if entry.notified == 1 {
                let row = to_json_bytes(&entry.to_stored());
                self.changes.insert(NotifyRowKey::of_alert(NotifyRowKind::Alert, *fingerprint), Some(row));
            }
        }
        for fingerprint in removed {
            let Some(entry) = self.entries.get_mut(fingerprint) else { continue };
            entry.notified = entry.notified.saturating_sub(1);
            if entry.notified == 0 {
                self.changes.insert(NotifyRowKey::of_alert(NotifyRowKind::Alert, *fingerprint), None);
            }
        }
    }
}

/// Returns whether the wait of a group has ended. A wait longer than its length means that the
/// clock was set back.
fn is_due(group: &AlertGroup, now: Timestamp) -> bool {
    let left = group.next_flush.ms_since(now);
    left <= 0 || left > group.wait_ms
}
