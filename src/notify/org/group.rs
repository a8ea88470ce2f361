//! Groups of alerts, and the notifications that each integration of a group needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entry::AlertEntry;
use crate::model::Timestamp;
use crate::notify::labels::{AlertFingerprint, AlertLabels};
use crate::notify::limits::{MESSAGE_ALERTS_MAX, MESSAGE_BYTES_MAX};
use crate::notify::notified::NotifiedAlerts;
use crate::notify::rows::NotifiedAlert;

/// The time after which attempts to report a resolved alert end, in milliseconds.
const RESOLVED_KEPT_MS: i64 = 86_400_000;

/// All alerts of an organisation.
pub(in crate::notify) type AlertEntries = BTreeMap<AlertFingerprint, AlertEntry>;

/// The alerts of one route with the same values of its `group_by` labels.
#[derive(Clone, Debug)]
pub(in crate::notify) struct AlertGroup {
    /// The index of the route.
    pub(in crate::notify) route: usize,
    /// The labels that the alerts have in common.
    pub(in crate::notify) labels: AlertLabels,
    pub(in crate::notify) members: BTreeSet<AlertFingerprint>,
    /// The time of the next flush.
    pub(in crate::notify) next_flush: Timestamp,
    /// The length of the wait for it, in milliseconds.
    pub(in crate::notify) wait_ms: i64,
    pub(in crate::notify) has_flushed: bool,
    /// The state of each integration of the receiver.
    pub(in crate::notify) integrations: Vec<GroupIntegrationState>,
}

/// The state of one integration in one group.
#[derive(Clone, Debug)]
pub(in crate::notify) struct GroupIntegrationState {
    /// The index of the integration.
    pub(in crate::notify) integration: usize,
    pub(in crate::notify) id: Arc<str>,
    /// The alerts that the integration was last notified of as firing.
    pub(in crate::notify) notified: NotifiedAlerts,
    /// Since when a notification waits to be sent.
    pub(in crate::notify) pending_since: Option<Timestamp>,
    pub(in crate::notify) is_in_flight: bool,
}

impl GroupIntegrationState {
    pub(in crate::notify) fn new(
        integration: usize,
        id: Arc<str>,
        notified: NotifiedAlerts,
    ) -> GroupIntegrationState {
        GroupIntegrationState { integration, id, notified, pending_since: None, is_in_flight: false }
    }
}

/// The contents of a notification.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::notify) struct GroupMessage {
    /// The firing alerts, with the start that is reported.
    pub(in crate::notify) firing: Vec<(AlertFingerprint, Timestamp)>,
    /// The resolved alerts that were last reported as firing.
    pub(in crate::notify) resolved: Vec<AlertFingerprint>,
    /// The number of alerts that belong to the notification and do not fit.
    pub(in crate::notify) truncated: usize,
}

/// The inputs of a message besides the group.
#[derive(Clone, Copy)]
pub(in crate::notify) struct MessageContext<'c> {
    pub(in crate::notify) entries: &'c AlertEntries,
    /// The alerts of the group that are silenced, inhibited or acknowledged.
    pub(in crate::notify) suppressed: &'c BTreeSet<AlertFingerprint>,
    pub(in crate::notify) repeat_interval_ms: i64,
    pub(in crate::notify) send_resolved: bool,
    pub(in crate::notify) now: Timestamp,
}

impl AlertGroup {
    /// Returns the message that an integration has to get now; none if there is nothing to report.
    pub(in crate::notify) fn message(
        &self,
        state: &GroupIntegrationState,
        context: &MessageContext<'_>,
    ) -> Option<GroupMessage> {
        let MessageContext { entries, suppressed, now, .. } = *context;
        let (mut due, mut known) = (Vec::new(), Vec::new());
        for fingerprint in &self.members {
            let Some(entry) = entries.get(fingerprint).filter(|entry| entry.is_firing(now)) else { continue };
            if suppressed.contains(fingerprint) {
                continue;
            }
            let is_due = state.notified.get(*fingerprint).is_none_or(|notified| {
                notified.starts_at < entry.starts_at
                    || now.ms_since(notified.at) >= context.repeat_interval_ms
            });
            let one = (*fingerprint, entry.starts_at);
            if is_due { due.push(one) } else { known.push(one) }
        }
        let resolved = if context.send_resolved { self.resolved(state, entries, now) } else { Vec::new() };
        if due.is_empty() && resolved.is_empty() {
            return None;
        }
        let total = due.len() + known.len() + resolved.len();
        let mut message = GroupMessage::default();
        let mut bytes = 0;
        let mut fits = |fingerprint: &AlertFingerprint, taken: usize| {
            bytes += entries.get(fingerprint).map_or(0, AlertEntry::bytes);
            taken < MESSAGE_ALERTS_MAX && (taken == 0 || bytes <= MESSAGE_BYTES_MAX)
        };
        // Resolved alerts come first, so that the next message can report the rest.
        for fingerprint in resolved {
            if fits(&fingerprint, message.resolved.len()) {
                message.resolved.push(fingerprint);
            }
        }
        for one in due.into_iter().chain(known) {
            if fits(&one.0, message.resolved.len() + message.firing.len()) {
                message.firing.push(one);
            }
        }
        message.truncated = total - message.firing.len() - message.resolved.len();
        Some(message)
    }

    /// Returns the alerts that were reported as firing to an integration and do not fire any more.
    pub(in crate::notify) fn resolved(
        &self,
        state: &GroupIntegrationState,
        entries: &AlertEntries,
        now: Timestamp,
    ) -> Vec<AlertFingerprint> {
        let is_over = |fingerprint: &AlertFingerprint| {
            entries.get(fingerprint).is_some_and(|entry| !entry.is_firing(now))
        };
        state.notified.fingerprints().filter(is_over).collect()
    }

    /// Returns whether an alert that does not fire any more needs no notification: it was reported
    /// to no integration, or it ended more than [`RESOLVED_KEPT_MS`] ago.
    pub(in crate::notify) fn is_settled(
        &self,
        fingerprint: AlertFingerprint,
        ends_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let is_notified = self.integrations.iter().any(|state| state.notified.contains(fingerprint));
        !is_notified || now.ms_since(ends_at) > RESOLVED_KEPT_MS
    }

    /// Returns whether the group can be removed.
    pub(in crate::notify) fn is_empty(&self) -> bool {
        let is_quiet = |state: &GroupIntegrationState| state.notified.is_empty() && !state.is_in_flight;
        self.members.is_empty() && self.integrations.iter().all(is_quiet)
    }
}

/// Records a delivered message in the notified alerts of an integration. Returns the alerts that
/// were added and those that were removed.
pub(in crate::notify) fn apply_notified(
    notified: &mut NotifiedAlerts,
    message: &GroupMessage,
    at: Timestamp,
) -> (Vec<AlertFingerprint>, Vec<AlertFingerprint>) {
    let mut added = Vec::new();
    for (fingerprint, starts_at) in &message.firing {
        if notified.insert(*fingerprint, NotifiedAlert { starts_at: *starts_at, at }) {
            added.push(*fingerprint);
        }
    }
    let removed =
        message.resolved.iter().filter(|fingerprint| notified.remove(**fingerprint)).copied().collect();
    (added, removed)
}
