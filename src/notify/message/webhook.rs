//! The JSON of Alertmanager's webhooks, version 4, and the signature of a request.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{MessageAlert, MessageView};
use crate::model::{TargetSecret, Timestamp};

/// The end of a firing alert: Alertmanager writes the zero time of its language.
const NO_END: &str = "0001-01-01T00:00:00Z";

pub(super) fn body(view: &MessageView<'_>) -> Value {
    let alert = |alert: &MessageAlert<'_>| {
        json!({
            "status": if alert.ended_at.is_none() { "firing" } else { "resolved" },
            "labels": alert.labels,
            "annotations": alert.annotations,
            "startsAt": alert.starts_at.to_rfc3339(),
            "endsAt": alert.ended_at.map_or_else(|| NO_END.to_owned(), Timestamp::to_rfc3339),
            "generatorURL": alert.generator_url,
            "fingerprint": alert.fingerprint.to_string(),
        })
    };
    json!({
        "version": "4",
        "groupKey": view.group_key,
        "truncatedAlerts": view.truncated,
        "status": view.status(),
        "receiver": view.receiver,
        "groupLabels": view.group_labels,
        "commonLabels": view.common_labels(),
        "commonAnnotations": view.common_annotations(),
        "externalURL": view.external_url,
        "alerts": view.alerts.iter().map(alert).collect::<Vec<Value>>(),
    })
}

/// Returns the headers of a request: its id, its time, and its signature if there is a key.
pub(super) fn headers(
    secret: Option<&TargetSecret>,
    view: &MessageView<'_>,
    body: &[u8],
) -> Vec<(&'static str, String)> {
    let timestamp = view.now.as_s();
    let mut headers =
        vec![("x-promlet-delivery", view.delivery.clone()), ("x-promlet-timestamp", timestamp.to_string())];
    if let Some(signature) = secret.and_then(|secret| sign_webhook(secret.reveal(), timestamp, body)) {
        headers.push(("x-promlet-signature", signature));
    }
    headers
}

/// Returns the signature of a request: `v1=` and, in hexadecimal, HMAC-SHA-256 with the key
/// `secret` over the timestamp in seconds as decimal digits, a dot, and the body.
pub fn sign_webhook(secret: &str, timestamp_s: i64, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(timestamp_s.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("v1={hex}"))
}
