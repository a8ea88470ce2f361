//! The JSON with which a message is published on an ntfy server.

use serde_json::{Value, json};

use super::MessageView;

/// The most alerts that a message lists: phones show little more.
const LINES_MAX: usize = 10;
/// The most characters of a message; the server turns longer ones into attachments.
const TEXT_MAX: usize = 3_500;

pub(super) fn body(topic: &str, priority: u8, view: &MessageView<'_>) -> Value {
    let is_firing = view.firing() > 0;
    let text: String = view.lines(LINES_MAX).join("\n").chars().take(TEXT_MAX).collect();
    json!({
        "topic": topic,
        "title": view.title(),
        "message": text,
        // A resolved message has at most the default priority.
        "priority": if is_firing { priority } else { priority.min(3) },
        "tags": [if is_firing { "rotating_light" } else { "white_check_mark" }],
        "click": view.external_url,
    })
}
