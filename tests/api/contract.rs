//! Checks every response that a test receives against the OpenAPI document: its status, code, media
//! type and shape.

use std::sync::{Arc, Mutex};

use promlet::api::openapi;
use promlet::api::routes::RouteDoc;
use serde_json::Value;

use super::{Reply, met};

/// The OpenAPI document, in which operations are looked up.
pub(crate) struct Contract(Arc<Value>);

/// The documents of earlier servers. To make one takes longer than most tests.
static KNOWN: Mutex<Vec<(Vec<RouteDoc>, Arc<Value>)>> = Mutex::new(Vec::new());

impl Contract {
    /// Covers the described routes. The tests' own probes are not described.
    pub(crate) fn of(rows: &[RouteDoc]) -> Contract {
        let described: Vec<RouteDoc> =
            rows.iter().filter(|row| openapi::is_described(row)).cloned().collect();
        let mut known = KNOWN.lock().expect("unpoisoned");
        if let Some((_, document)) = known.iter().find(|(rows, _)| *rows == described) {
            return Contract(Arc::clone(document));
        }
        let document = serde_json::from_str(&openapi::text(&described, "/")).expect("JSON");
        let document = Arc::new(document);
        known.push((described, Arc::clone(&document)));
        Contract(document)
    }

    /// Fails the test if the document does not describe this response.
    #[track_caller]
    pub(crate) fn assert_documented(&self, method: &str, path: &str, reply: &Reply) {
        let Some((template, operation)) = self.operation(method, path) else { return };
        let status = reply.status.as_u16();
        // An unknown method is refused before any operation is reached, and the document has no
        // `HEAD`.
        if status == 405 || matches!(method, "OPTIONS" | "HEAD") {
            return;
        }
        met::record(method, template, status, reply.refused);
        let place = format!("{method} {template} answered {status} {}", reply.body);
        let response = &operation["responses"][status.to_string()];
        assert!(response.is_object(), "{place}: this status is not documented");
        if let Some(code) = reply.refused {
            let codes = met::codes(response);
            assert!(codes.contains(&code.as_str()), "{place}: {code:?} is not documented here");
        }
        if reply.body.is_empty() {
            return;
        }
        let media = reply.header("content-type");
        let essence = media.split(';').next().unwrap_or_default();
        let content = &response["content"][essence];
        assert!(content.is_object(), "{place}: {essence} is not documented here");
        let documents: Vec<&str> = match essence {
            "application/x-ndjson" => reply.body.lines().collect(),
            _ if essence.ends_with("json") => vec![&reply.body],
            _ => Vec::new(),
        };
        for document in documents {
            let value: Value = serde_json::from_str(document).expect("JSON");
            let mut wrong = Vec::new();
            self.check(&content["schema"], &value, "$", &mut wrong);
            assert!(wrong.is_empty(), "{place}: {}", wrong.join("; "));
        }
    }

    /// The documented operation of a request. As in the router, the template with the fewest
    /// parameters wins.
    fn operation(&self, method: &str, target: &str) -> Option<(&str, &Value)> {
        let path = target.split('?').next().unwrap_or_default().trim_end_matches('/');
        let path = match path.strip_prefix("/auth/") {
            Some(rest) => format!("/api/v1/auth/{rest}"),
            None => path.to_owned(),
        };
        let verb = method.to_ascii_lowercase();
        let fits = |template: &str| {
            let (mut ours, mut theirs) = (template.split('/'), path.split('/'));
            loop {
                match (ours.next(), theirs.next()) {
                    (None, None) => return true,
                    (Some(ours), Some(theirs)) if ours == theirs => {}
                    (Some(ours), Some(theirs)) if ours.starts_with('{') && !theirs.is_empty() => {}
                    _ => return false,
                }
            }
        };
        let paths = self.0["paths"].as_object()?;
        let found = paths.iter().filter(|(template, methods)| fits(template) && methods[&verb].is_object());
        let best = found.min_by_key(|(template, _)| template.matches('{').count())?;
        Some((best.0.as_str(), &best.1[&verb]))
    }

    /// Checks the part of JSON Schema that the document uses.
    fn check(&self, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.trim_start_matches("#/components/schemas/");
            return self.check(&self.0["components"]["schemas"][name], value, at, wrong);
        }
        let list = |key: &str| schema[key].as_array().map_or(&[][..], Vec::as_slice);
        for one in list("allOf") {
            self.check(one, value, at, wrong);
        }
        let fits = |one: &Value| {
            let mut mistakes = Vec::new();
            self.check(one, value, at, &mut mistakes);
            mistakes.is_empty()
        };
        if !list("anyOf").is_empty() && !list("anyOf").iter().any(fits) {
            wrong.push(format!("{at} fits none of {}", schema["anyOf"]));
        }
        if !list("enum").is_empty() && !list("enum").contains(value) {
            wrong.push(format!("{at} is {value}, not one of {}", schema["enum"]));
        }
        if schema.get("const").is_some_and(|only| only != value) {
            wrong.push(format!("{at} is {value}, not {}", schema["const"]));
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(some) => some.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_kind(kind, value)) {
            wrong.push(format!("{at} is {value}, not {}", schema["type"]));
        }
        if let Value::Object(members) = value {
            for name in list("required").iter().filter_map(Value::as_str) {
                if !members.contains_key(name) {
                    wrong.push(format!("{at} lacks {name}"));
                }
            }
            for (name, member) in members {
                match (&schema["properties"][name], &schema["additionalProperties"]) {
                    (Value::Null, Value::Bool(false)) => wrong.push(format!("{at}.{name} is not known")),
                    (Value::Null, Value::Object(_)) => {
                        self.check(&schema["additionalProperties"], member, &format!("{at}.{name}"), wrong);
                    }
                    (known, _) => self.check(known, member, &format!("{at}.{name}"), wrong),
                }
            }
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let schema = match &schema["prefixItems"] {
                Value::Array(each) => &each[index.min(each.len() - 1)],
                _ => &schema["items"],
            };
            self.check(schema, item, &format!("{at}[{index}]"), wrong);
        }
    }
}

fn is_kind(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    }
}
