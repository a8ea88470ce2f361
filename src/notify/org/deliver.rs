//! Deliveries: the messages that can be sent now, and the effects of their outcomes.

use std::sync::Arc;

use super::group::{GroupMessage, apply_notified};
use super::{Delivery, InFlight, OrgNotifier};
use crate::model::Timestamp;
use crate::notify::config::{IntegrationKind, NotifyIntegration};
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::labels::{AlertFingerprint, AlertLabels};
use crate::notify::limits::IN_FLIGHT_MAX;
use crate::notify::message::{DeliveryContent, MessageAlert, MessageView, NotifyRequest, render};
use crate::notify::rows::NotifyRowKey;

/// The reason why a test is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestRefusal {
    /// `not_found`.
    #[error("no such receiver")]
    NoReceiver,
    /// `limit_reached`.
    #[error("too many tests or mails in this hour")]
    TooMany,
}

impl OrgNotifier {
    /// Returns the notifications that can be sent now, the longest waiting first.
    pub(super) fn deliver_groups(&mut self, now: Timestamp) -> Vec<Delivery> {
        let mut waiting: Vec<(Timestamp, Arc<str>, usize)> = Vec::new();
        for (key, group) in &self.groups {
            for (index, state) in group.integrations.iter().enumerate() {
                if let Some(since) = state.pending_since.filter(|_| !state.is_in_flight) {
                    waiting.push((since, Arc::clone(key), index));
                }
            }
        }
        waiting.sort();
        waiting.into_iter().filter_map(|(_, key, index)| self.deliver_to(&key, index, now)).collect()
    }

    /// Returns the delivery of a group's message to an integration; none if there is no message or
    /// the integration has to wait.
    fn deliver_to(&mut self, key: &Arc<str>, index: usize, now: Timestamp) -> Option<Delivery> {
        let config = Arc::clone(&self.config);
        let state = self.groups.get(key)?.integrations.get(index)?;
        let integration = config.integrations.get(state.integration)?;
        let requests = self.requests.entry(Arc::clone(&integration.id)).or_default();
        // A receiver that fails gets one request at a time.
        let most = if requests.history.is_failing() { 1 } else { IN_FLIGHT_MAX };
        if requests.in_flight >= most || requests.history.has_to_wait(now) {
            return None;
        }
        let group = self.groups.get(key)?;
        let message = self.message_of(group, group.integrations.get(index)?, &self.suppressed(group), now);
        let Some(message) = message else {
            // The alerts have been resolved or are held back meanwhile.
            self.groups.get_mut(key)?.integrations.get_mut(index)?.pending_since = None;
            return None;
        };
        if matches!(integration.kind, IntegrationKind::Mail { .. })
            && let Err(until) = self.mails.spend(1, now, &mut self.changes)
        {
            self.counts.mails_delayed += 1;
            let requests = self.requests.entry(Arc::clone(&integration.id)).or_default();
            let reason = "the limit of mails in an hour is reached; the next hour continues";
            requests.history.postpone(until, reason, now);
            return None;
        }
        let content = self.render_group(key, integration, &message, now)?;
        self.requests.entry(Arc::clone(&integration.id)).or_default().in_flight += 1;
        self.groups.get_mut(key)?.integrations.get_mut(index)?.is_in_flight = true;
        let in_flight = InFlight::Group {
            group: Arc::clone(key),
            integration: Arc::clone(&integration.id),
            message,
            at: now,
        };
        Some(self.start(integration.id.to_string(), content, in_flight))
    }

    fn start(&mut self, client_key: String, content: DeliveryContent, in_flight: InFlight) -> Delivery {
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight.insert(number, in_flight);
        Delivery { number, client_key, content }
    }

    fn render_group(
        &self,
        key: &Arc<str>,
        integration: &NotifyIntegration,
        message: &GroupMessage,
        now: Timestamp,
    ) -> Option<DeliveryContent> {
        let group = self.groups.get(key)?;
        let alert = |fingerprint: AlertFingerprint, starts_at: Option<Timestamp>| {
            let entry = self.entries.get(&fingerprint)?;
            Some(MessageAlert {
                fingerprint,
                labels: &entry.labels,
                annotations: &entry.annotations,
                starts_at: starts_at.unwrap_or(entry.starts_at),
                ended_at: starts_at.is_none().then(|| entry.ends_at.min(now)),
                generator_url: self.expr_link(&entry.expr),
            })
        };
        let firing = message.firing.iter().filter_map(|(print, start)| alert(*print, Some(*start)));
        let resolved = message.resolved.iter().filter_map(|print| alert(*print, None));
        let mut alerts: Vec<MessageAlert<'_>> = firing.chain(resolved).collect();
        let most = match integration.kind {
            IntegrationKind::Webhook { max_alerts, .. } => max_alerts,
            _ => usize::MAX,
        };
        let truncated = message.truncated + alerts.len().saturating_sub(most);
        alerts.truncate(most);
        let view = MessageView {
            receiver: &integration.receiver,
            group_key: key,
            group_labels: &group.labels,
            delivery: delivery_id(key, &integration.id, message),
            alerts,
            truncated,
            external_url: &self.options.external_url,
            now,
        };
        Some(render(integration, &view))
    }

    /// Returns the requests to Alertmanagers that can be sent now.
    pub(super) fn deliver_alertmanagers(&mut self, now: Timestamp) -> Vec<Delivery> {
        let mut ready = Vec::new();
        for (key, queue) in &mut self.alertmanagers {
            if let Some(body) = queue.take(now) {
                let request = NotifyRequest {
                    target: queue.endpoint.target.clone(),
                    suffix: queue.endpoint.path.clone(),
                    headers: vec![("content-type", "application/json".to_owned())],
                    body,
                    timeout_ms: queue.endpoint.timeout_ms,
                };
                ready.push((key.clone(), DeliveryContent::Request(Box::new(request))));
            }
        }
        let start = |(key, content): (String, DeliveryContent)| {
            self.start(key.clone(), content, InFlight::Alertmanager { key })
        };
        ready.into_iter().map(start).collect()
    }

    /// Records the outcome of a delivery.
    pub fn finish(&mut self, number: u64, outcome: DeliveryOutcome, now: Timestamp) {
        match self.in_flight.remove(&number) {
            Some(InFlight::Alertmanager { key }) => {
                if let Some(queue) = self.alertmanagers.get_mut(&key) {
                    queue.finish(outcome, now, &mut self.rng);
                }
            }
            Some(InFlight::Group { group, integration, message, at }) => {
                self.finish_group(&group, &integration, &outcome, &message, at);
                let requests = self.requests.entry(integration).or_default();
                requests.in_flight = requests.in_flight.saturating_sub(1);
                requests.history.record(outcome, now, &mut self.rng);
                self.settle(&group, now);
            }
            None => {}
        }
    }

    fn finish_group(
        &mut self,
        key: &Arc<str>,
        integration: &Arc<str>,
        outcome: &DeliveryOutcome,
        message: &GroupMessage,
        at: Timestamp,
    ) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let Some(index) = group.integrations.iter().position(|state| state.id == *integration) else {
            return;
        };
        let Some(state) = group.integrations.get_mut(index) else { return };
        state.is_in_flight = false;
        match outcome {
            DeliveryOutcome::Retry { .. } => {}
            // The next flush of the group tries again.
            DeliveryOutcome::Refused { .. } => state.pending_since = None,
            DeliveryOutcome::Sent => {
                let (added, removed) = apply_notified(&mut state.notified, message, at);
                if message.truncated == 0 {
                    state.pending_since = None;
                }
                self.count_notified(&added, &removed);
                self.store_notified(key, index);
            }
        }
    }

    /// Returns deliveries that test the integrations of a receiver, each with the id and kind of
    /// its integration. Their outcomes concern the caller alone.
    ///
    /// # Errors
    /// [`TestRefusal`].
    pub fn test(
        &mut self,
        receiver: &str,
        now: Timestamp,
    ) -> Result<Vec<(Arc<NotifyIntegration>, DeliveryContent)>, TestRefusal> {
        let config = Arc::clone(&self.config);
        let found = config.receivers.iter().find(|one| *one.name == *receiver);
        let found = found.ok_or(TestRefusal::NoReceiver)?;
        let indexes = found.integrations.iter();
        let integrations: Vec<&Arc<NotifyIntegration>> =
            indexes.filter_map(|index| config.integrations.get(*index)).collect();
        let mails =
            integrations.iter().filter(|one| matches!(one.kind, IntegrationKind::Mail { .. })).count();
        if !self.mails.spend_test(now) || self.mails.spend(mails, now, &mut self.changes).is_err() {
            return Err(TestRefusal::TooMany);
        }
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels = AlertLabels::from([text("alertname", "PromletTest"), text("severity", "none")]);
        let summary = "This is a test of the receiver; no alert fires.";
        let annotations = AlertLabels::from([text("summary", summary)]);
        let alert = MessageAlert {
            fingerprint: AlertFingerprint::of(&labels),
            labels: &labels,
            annotations: &annotations,
            starts_at: now,
            ended_at: None,
            generator_url: String::new(),
        };
        let view = MessageView {
            receiver,
            group_key: "{}:{alertname=\"PromletTest\"}",
            group_labels: &labels,
            alerts: vec![alert],
            truncated: 0,
            external_url: &self.options.external_url,
            delivery: format!("{:016x}", u64::from_le_bytes(self.rng.bytes())),
            now,
        };
        Ok(integrations.into_iter().map(|one| (Arc::clone(one), render(one, &view))).collect())
    }
}

/// Returns the id of a delivery: the same for a repeated request with the same alerts.
fn delivery_id(group: &str, integration: &str, message: &GroupMessage) -> String {
    let mut parts = vec![group.to_owned()];
    parts.extend(message.firing.iter().map(|(print, start)| format!("{print}@{}", start.as_ms())));
    parts.extend(message.resolved.iter().map(|print| format!("{print}!")));
    let key = NotifyRowKey::of_notified(&parts.join(" "), integration);
    format!("{:032x}", u128::from_be_bytes(key.id))
}
