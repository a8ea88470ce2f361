//! A message for webhooks that take Slack's format (Slack, Mattermost, Rocket.Chat).

use serde_json::{Value, json};

use super::MessageView;

/// The most alerts that a message lists.
const LINES_MAX: usize = 20;
/// The most characters of a message.
const TEXT_MAX: usize = 3_500;

/// Escapes the characters that begin links, mentions and entities.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn body(channel: Option<&str>, username: Option<&str>, view: &MessageView<'_>) -> Value {
    let title = view.title();
    let lines: String = view.lines(LINES_MAX).join("\n").chars().take(TEXT_MAX).collect();
    let mut body = json!({
        "text": escaped(&title),
        "attachments": [{
            "color": if view.firing() > 0 { "danger" } else { "good" },
            "fallback": escaped(&title),
            "title": escaped(&title),
            "title_link": view.external_url,
            "text": escaped(&lines),
            "ts": view.now.as_s(),
        }],
    });
    if let Some(channel) = channel {
        body["channel"] = json!(channel);
    }
    if let Some(username) = username {
        body["username"] = json!(username);
    }
    body
}
