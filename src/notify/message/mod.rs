//! The texts of notifications: webhook JSON, mail, ntfy and Slack.

mod mail;
mod ntfy;
mod slack;
mod webhook;

use serde_json::Value;

use super::config::{IntegrationKind, NotifyIntegration};
use super::labels::{AlertFingerprint, AlertLabels, common_pairs};
use crate::model::{Target, Timestamp};
use crate::outbound::PlainMail;

pub use webhook::sign_webhook;

/// An alert in a notification.
#[derive(Clone, Debug)]
pub struct MessageAlert<'m> {
    /// The fingerprint.
    pub fingerprint: AlertFingerprint,
    /// The labels.
    pub labels: &'m AlertLabels,
    /// The annotations.
    pub annotations: &'m AlertLabels,
    /// The time at which the alert began to fire.
    pub starts_at: Timestamp,
    /// The time at which the alert was resolved; `None` if it fires.
    pub ended_at: Option<Timestamp>,
    /// The page of the expression.
    pub generator_url: String,
}

/// A notification before it is written in the form of its receiver.
#[derive(Clone, Debug)]
pub struct MessageView<'m> {
    /// The name of the receiver.
    pub receiver: &'m str,
    /// The key of the group.
    pub group_key: &'m str,
    /// The labels of the group.
    pub group_labels: &'m AlertLabels,
    /// The alerts, firing ones first.
    pub alerts: Vec<MessageAlert<'m>>,
    /// The number of alerts that were left out.
    pub truncated: usize,
    /// The page of the organisation's alerts.
    pub external_url: &'m str,
    /// Identifies the contents, so that a receiver recognizes a repeated request.
    pub delivery: String,
    /// The time of the notification.
    pub now: Timestamp,
}

impl MessageView<'_> {
    fn firing(&self) -> usize {
        self.alerts.iter().filter(|alert| alert.ended_at.is_none()).count()
    }

    /// Returns `firing` if any alert fires, otherwise `resolved`.
    fn status(&self) -> &'static str {
        if self.firing() > 0 { "firing" } else { "resolved" }
    }

    fn common_labels(&self) -> AlertLabels {
        common_pairs(self.alerts.iter().map(|alert| alert.labels))
    }

    fn common_annotations(&self) -> AlertLabels {
        common_pairs(self.alerts.iter().map(|alert| alert.annotations))
    }

    /// Returns a title such as `[FIRING:2] HighLoad (prod)`.
    fn title(&self) -> String {
        let mut title = match self.firing() {
            0 => "[RESOLVED]".to_owned(),
            firing => format!("[FIRING:{firing}]"),
        };
        let common = self.common_labels();
        let name = common.get("alertname").or_else(|| self.group_labels.get("alertname"));
        title.push(' ');
        title.push_str(name.map_or("alerts", String::as_str));
        let others: Vec<&str> = self
            .group_labels
            .iter()
            .filter(|(name, _)| *name != "alertname")
            .map(|(_, v)| v.as_str())
            .collect();
        if !others.is_empty() {
            title.push_str(&format!(" ({})", others.join(" ")));
        }
        one_line(&title, 200)
    }

    /// Returns one line for each alert: its summary or its labels.
    fn lines(&self, most: usize) -> Vec<String> {
        let common = self.common_labels();
        let line = |alert: &MessageAlert<'_>| {
            let mark = if alert.ended_at.is_none() { "firing" } else { "resolved" };
            let own: Vec<String> = alert
                .labels
                .iter()
                .filter(|(name, _)| !common.contains_key(*name))
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let summary = ["summary", "description", "message"]
                .iter()
                .find_map(|name| alert.annotations.get(*name))
                .cloned()
                .unwrap_or_default();
            let parts = [summary, own.join(" ")];
            let text: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let text = if text.is_empty() {
                alert.labels.get("alertname").cloned().unwrap_or_default()
            } else {
                text.join(" - ")
            };
            one_line(&format!("{mark}: {text}"), 400)
        };
        let mut lines: Vec<String> = self.alerts.iter().take(most).map(line).collect();
        let left = self.alerts.len().saturating_sub(most) + self.truncated;
        if left > 0 {
            lines.push(format!("and {left} more"));
        }
        lines
    }
}

/// Returns a text without control characters and of at most `most` characters.
fn one_line(text: &str, most: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect()
}

/// An HTTP request to a receiver.
#[derive(Clone, Debug)]
pub struct NotifyRequest {
    /// The server.
    pub target: Target,
    /// Appended to the path of its URL.
    pub suffix: String,
    /// Headers besides those of the target.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The longest time for the request, in milliseconds.
    pub timeout_ms: i64,
}

/// The contents of a delivery.
#[derive(Clone, Debug)]
pub enum DeliveryContent {
    /// A request.
    Request(Box<NotifyRequest>),
    /// A mail.
    Mail(PlainMail),
}

/// Writes a notification in the form of an integration.
pub(super) fn render(integration: &NotifyIntegration, view: &MessageView<'_>) -> DeliveryContent {
    let request = |target: &Target, headers: Vec<(&'static str, String)>, body: Vec<u8>| {
        let mut all = vec![("content-type", "application/json".to_owned())];
        all.extend(headers);
        DeliveryContent::Request(Box::new(NotifyRequest {
            target: target.clone(),
            suffix: String::new(),
            headers: all,
            body,
            timeout_ms: integration.timeout_ms,
        }))
    };
    match &integration.kind {
        IntegrationKind::Mail { to } => DeliveryContent::Mail(mail::mail(to, view)),
        IntegrationKind::Webhook { target, secret, .. } => {
            let body = to_bytes(&webhook::body(view));
            let headers = webhook::headers(secret.as_ref(), view, &body);
            request(target, headers, body)
        }
        IntegrationKind::Ntfy { target, topic, priority } => {
            request(target, Vec::new(), to_bytes(&ntfy::body(topic, *priority, view)))
        }
        IntegrationKind::Slack { target, channel, username } => {
            let body = slack::body(channel.as_deref(), username.as_deref(), view);
            request(target, Vec::new(), to_bytes(&body))
        }
    }
}

fn to_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
