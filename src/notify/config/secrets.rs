//! The secrets of a configuration document. They are write-only: a document that is stored again
//! without them keeps the stored ones, found by the id of each integration, never by its position.
//! A secret is kept only while the origin of its URL stays the same.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::entropy::Entropy;
use crate::model::TargetUrl;

/// The lists of integrations in a receiver.
pub(super) const INTEGRATION_LISTS: [&str; 4] =
    ["email_configs", "webhook_configs", "ntfy_configs", "slack_configs"];
/// The list of Alertmanagers in a document.
pub(super) const ALERTMANAGER_LIST: &str = "alertmanagers";
/// The fields of `auth` that are secrets.
const AUTH_SECRETS: [&str; 3] = ["password", "token", "client_secret"];

/// Calls `visit` with the list's name and the object of each integration and Alertmanager.
fn visit_all(document: &mut Value, visit: &mut dyn FnMut(&'static str, &mut Map<String, Value>)) {
    let objects = |list: Option<&mut Value>, name, visit: &mut dyn FnMut(_, &mut Map<String, Value>)| {
        for element in list.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(object) = element.as_object_mut() {
                visit(name, object);
            }
        }
    };
    objects(document.get_mut(ALERTMANAGER_LIST), ALERTMANAGER_LIST, visit);
    let receivers = document.get_mut("receivers").and_then(Value::as_array_mut);
    for receiver in receivers.into_iter().flatten() {
        for name in INTEGRATION_LISTS {
            objects(receiver.get_mut(name), name, visit);
        }
    }
}

/// Gives an id to each integration without one.
pub(super) fn assign_ids(document: &mut Value, rng: &mut Entropy) {
    visit_all(document, &mut |_, object| {
        if object.get("id").is_none_or(Value::is_null) {
            let id = u64::from_le_bytes(rng.bytes());
            object.insert("id".to_owned(), Value::String(format!("{id:016x}")));
        }
    });
}

/// Copies secrets that `document` lacks from `stored`.
pub(super) fn keep_secrets(document: &mut Value, stored: &Value) {
    let mut stored = stored.clone();
    let mut known = BTreeMap::new();
    visit_all(&mut stored, &mut |list, object| {
        if let Some(id) = object.get("id").and_then(Value::as_str) {
            known.insert((list, id.to_owned()), object.clone());
        }
    });
    visit_all(document, &mut |list, object| {
        let id = object.get("id").and_then(Value::as_str).unwrap_or_default();
        if let Some(before) = known.get(&(list, id.to_owned())) {
            keep(object, before);
        }
    });
}

fn origin(object: &Map<String, Value>, field: &str) -> Option<(bool, String, u16)> {
    let url = TargetUrl::parse(object.get(field)?.as_str()?).ok()?;
    let (is_tls, host, port) = url.origin();
    Some((is_tls, host.to_owned(), port))
}

/// Copies a field that is absent or null.
fn keep_field(object: &mut Map<String, Value>, before: &Map<String, Value>, name: &str) {
    if object.get(name).is_none_or(Value::is_null)
        && let Some(value) = before.get(name)
    {
        object.insert(name.to_owned(), value.clone());
    }
}

fn keep(object: &mut Map<String, Value>, before: &Map<String, Value>) {
    let wants = object.get("has_secret").and_then(Value::as_bool) == Some(true);
    // The URL of a chat webhook is the secret itself.
    if !object.contains_key("url") && wants {
        keep_field(object, before, "url");
    }
    let is_same = match (origin(object, "url"), origin(before, "url")) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    };
    if !is_same {
        return;
    }
    // An absent secret is kept; null removes it.
    if !object.contains_key("secret") {
        keep_field(object, before, "secret");
    }
    if let (Some(Value::Object(auth)), Some(Value::Object(known))) =
        (object.get_mut("auth"), before.get("auth"))
        && auth.get("type") == known.get("type")
        && origin(auth, "token_url") == origin(known, "token_url")
    {
        AUTH_SECRETS.iter().for_each(|name| keep_field(auth, known, name));
    }
    if let (Some(Value::Object(headers)), Some(Value::Object(known))) =
        (object.get_mut("headers"), before.get("headers"))
    {
        let names: Vec<String> = headers.keys().cloned().collect();
        names.iter().for_each(|name| keep_field(headers, known, name));
    }
    if let (Some(Value::Object(tls)), Some(Value::Object(known))) = (object.get_mut("tls"), before.get("tls"))
        && tls.get("client_cert_pem").is_some_and(Value::is_string)
    {
        keep_field(tls, known, "client_key_pem");
    }
}

/// Removes the notes about secrets that [`hide_secrets`] adds.
pub(super) fn drop_notes(document: &mut Value) {
    visit_all(document, &mut |_, object| {
        object.remove("has_secret");
        for part in ["auth", "tls"] {
            if let Some(Value::Object(part)) = object.get_mut(part) {
                part.remove("has_secret");
            }
        }
    });
}

/// Removes the secrets, and records their places.
pub(super) fn hide_secrets(document: &mut Value) {
    let hide = |object: &mut Map<String, Value>, names: &[&str]| {
        // Null replaces a removed secret.
        let is_secret = |name: &&&str| object.remove(**name).is_some_and(|value| !value.is_null());
        let removed = names.iter().filter(is_secret).count();
        if removed > 0 {
            object.insert("has_secret".to_owned(), Value::Bool(true));
        }
    };
    visit_all(document, &mut |list, object| {
        hide(object, if list == "slack_configs" { &["url"] } else { &["secret"] });
        if let Some(Value::Object(auth)) = object.get_mut("auth") {
            hide(auth, &AUTH_SECRETS);
        }
        if let Some(Value::Object(tls)) = object.get_mut("tls") {
            hide(tls, &["client_key_pem"]);
        }
        if let Some(Value::Object(headers)) = object.get_mut("headers") {
            headers.values_mut().for_each(|value| *value = Value::Null);
        }
    });
}
