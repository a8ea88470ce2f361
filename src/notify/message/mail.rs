//! Mails about alerts, as plain text.

use super::{MessageAlert, MessageView, one_line};
use crate::notify::labels::{AlertLabels, format_labels};
use crate::outbound::PlainMail;

/// The most alerts that a mail describes.
const ALERTS_MAX: usize = 50;
/// The most characters of an annotation in a mail.
const ANNOTATION_MAX: usize = 2_000;

pub(super) fn mail(to: &str, view: &MessageView<'_>) -> PlainMail {
    PlainMail { to: to.to_owned(), subject: view.title(), text: text(view), at: view.now }
}

fn text(view: &MessageView<'_>) -> String {
    let mut text = String::new();
    let common = view.common_labels();
    let resolved = view.alerts.len() - view.firing();
    text.push_str(&format!("{} firing, {resolved} resolved\n", view.firing()));
    if !common.is_empty() {
        text.push_str(&format!("Common labels: {}\n", one_line(&format_labels(&common), 2_000)));
    }
    for alert in view.alerts.iter().take(ALERTS_MAX) {
        text.push('\n');
        push_alert(&mut text, alert, &common);
    }
    let left = view.alerts.len().saturating_sub(ALERTS_MAX) + view.truncated;
    if left > 0 {
        text.push_str(&format!("\nand {left} more\n"));
    }
    if !view.external_url.is_empty() {
        text.push_str(&format!("\n{}\n", view.external_url));
    }
    text.push_str(&format!("\nThis mail was sent to the receiver {:?}.\n", view.receiver));
    text
}

fn push_alert(text: &mut String, alert: &MessageAlert<'_>, common: &AlertLabels) {
    let own: AlertLabels = alert
        .labels
        .iter()
        .filter(|(name, _)| !common.contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let name = alert.labels.get("alertname").map_or("alert", String::as_str);
    let since = alert.starts_at.to_rfc3339();
    let state = match alert.ended_at {
        None => format!("firing since {since}"),
        Some(end) => format!("resolved at {}, fired since {since}", end.to_rfc3339()),
    };
    text.push_str(&format!("{}: {state}\n", one_line(name, 200)));
    if !own.is_empty() {
        text.push_str(&format!("  {}\n", one_line(&format_labels(&own), 2_000)));
    }
    for (name, value) in alert.annotations {
        text.push_str(&format!("  {name}: {}\n", one_line(value, ANNOTATION_MAX)));
    }
    if !alert.generator_url.is_empty() {
        text.push_str(&format!("  {}\n", alert.generator_url));
    }
}
