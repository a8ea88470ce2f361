//! The OpenAPI document (API.md C8): every route is in it, and what it says can happen.
//!
//! That answers are what the document says is held for every answer of every test here (`contract.rs`).

use std::collections::BTreeSet;
use std::path::Path;

use promlet::api::ApiOptions;
use promlet::api::openapi::is_described;
use promlet::api::routes::Auth;
use serde_json::Value;

use crate::house::{House, Plan, Who, met};

fn is_probe(path: &str) -> bool {
    path.contains("probe")
}

#[tokio::test]
async fn every_route_is_in_the_document_and_described() {
    let house = House::new();
    let document = house.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], "http://127.0.0.1:8095");
    let mut undescribed = Vec::new();
    for row in house.rows.iter().filter(|row| !is_probe(&row.path)) {
        let operation = &document["paths"][&row.path][row.method.to_ascii_lowercase()];
        assert_eq!(operation["summary"], row.summary, "{} {}", row.method, row.path);
        if !is_described(row) {
            undescribed.push(format!("{} {}", row.method, row.path));
        }
    }
    assert!(undescribed.is_empty(), "api::openapi::operations says nothing of: {undescribed:#?}");
    let documented: usize = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .map(|path| path.as_object().map_or(0, serde_json::Map::len))
        .sum();
    assert_eq!(documented, house.rows.iter().filter(|row| !is_probe(&row.path)).count());
}

#[tokio::test]
async fn operations_have_names_of_their_own_and_references_lead_somewhere() {
    let house = House::new();
    let document = house.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    let mut names = BTreeSet::new();
    for operation in document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(Value::as_object)
        .flat_map(serde_json::Map::values)
    {
        let name = operation["operationId"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert!(operation["responses"].as_object().is_some_and(|all| all.len() > 5), "{name}");
    }
    let text = document.to_string();
    for rest in text.split("\"#/components/schemas/").skip(1) {
        let name = rest.split('"').next().expect("a name");
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    for scheme in ["session", "embedToken", "apiKey", "apiKeyBasic", "metricsToken"] {
        assert!(document["components"]["securitySchemes"][scheme].is_object(), "{scheme}");
    }
}

/// What takes a race, or four thousand million organisations.
const EVERYWHERE: met::Excuses = &[
    (
        "POST /api/v1/admin/seal",
        "",
        "the samples of these tests are in memory alone",
        "kill_dash_nine_at_any_moment_loses_no_acknowledged_sample_and_no_acknowledged_account_change",
    ),
    (
        "POST /api/v1/auth/oauth/{provider}/callback",
        "session_invalid",
        "who links was logged out while the provider was asked",
        "who_is_logged_out_meanwhile_links_nothing",
    ),
    (
        "POST /api/v1/auth/signup/complete",
        "conflict",
        "no number is left",
        "where_no_number_is_left_no_organisation_is_made",
    ),
    ("POST /api/v1/orgs", "conflict", "no number is left", "where_no_number_is_left_no_organisation_is_made"),
];

/// Of the routes that this folder is about: samples and questions have theirs in `tests/data_api`.
#[tokio::test]
async fn every_documented_answer_is_given_by_its_route() {
    let house = House::new();
    let document = house.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    let data = |operation: &str| {
        let row = house.rows.iter().find(|row| operation == format!("{} {}", row.method, row.path));
        let auth = row.expect("a row").auth;
        matches!(auth, Auth::Reader(_) | Auth::MountReader(_) | Auth::Machine)
            || ["/queries", "/rejects", "/prometheus"].iter().any(|part| operation.contains(part))
    };
    let documented = met::documented(&document, |operation| !data(operation));
    let met = met::of_all_tests("every_documented_answer_is_given_by_its_route");
    let unmet = met::unmet(&documented, &met, EVERYWHERE);
    assert!(unmet.is_empty(), "{} of {}:\n{}", unmet.len(), documented.len(), unmet.join("\n"));
}

/// A code that no test ever gets is a promise that nobody checked.
#[tokio::test]
async fn every_documented_code_is_met_by_a_test() {
    let house = House::new();
    let document = house.get("/api/v1/openapi.json", &Who::Nobody).await.body;
    let mut tests = String::new();
    for folder in ["tests/api", "tests/data_api", "tests/binary", "src/api", "src/identity/tests"] {
        read_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut tests);
    }
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let mut codes = BTreeSet::new();
    collect_codes(&document["paths"], &mut codes);
    assert!(codes.len() > 40, "{codes:?}");
    // The matrix and the tests of conversions name codes by their variants.
    tests.push_str(include_str!("../../src/api/access.rs"));
    let unmet: Vec<&str> = codes
        .iter()
        .map(String::as_str)
        .filter(|code| {
            let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
            let variant: String = code.split('_').map(capital).collect();
            !tests.contains(&format!("\"{code}\""))
                && !tests.contains(&format!("\"{code}\\\""))
                && !tests.contains(&format!("Code::{variant}"))
        })
        .collect();
    let unexcused: Vec<_> =
        unmet.iter().filter(|code| !UNMET.iter().any(|(excused, _)| excused == *code)).collect();
    assert!(unexcused.is_empty(), "no test meets {unexcused:?}");
    assert!(UNMET.iter().all(|(code, _)| codes.contains(*code)), "the list names what is not documented");
}

/// Codes that no test names, and why.
const UNMET: [(&str, &str); 1] =
    [("query_failed", "the questions' tests see it on the Prometheus mount, as `execution`")];

fn collect_codes(value: &Value, codes: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(words) = members.get("code").and_then(|code| code["enum"].as_array()) {
                codes.extend(words.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            members.values().for_each(|member| collect_codes(member, codes));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_codes(item, codes)),
        _ => {}
    }
}

/// The text of all tests in `folder`; of sources only what stands below `mod tests`.
fn read_below(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.ends_with("tests/api/openapi.rs") {
            // It names codes to say that no test does.
        } else if path.is_dir() {
            read_below(&path, text);
        } else if let Ok(source) = std::fs::read_to_string(&path) {
            let of_tests = match path.starts_with(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api")) {
                true => source.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests),
                false => &source,
            };
            text.push_str(of_tests);
        }
    }
}

#[tokio::test]
async fn docs_off_means_no_document() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.docs = false;
    let house = House::build(Plan { options, ..Plan::default() });
    house.get("/api/v1/openapi.json", &Who::Nobody).await.is(404, "not_found");
}
