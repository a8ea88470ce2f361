//! The modules of the UI one by one: the type checker, the types of the API's answers, the unit
//! tests of the pure modules, units and transformations beside those of Grafana, and public
//! dashboards.
//!
//! Node comes from apt, TypeScript and `@grafana/data` from npm below `target/`; if one is
//! unavailable, the test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
#[expect(dead_code, reason = "shared: only the browser tests drive scenarios")]
mod chromium;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/shared_folder.rs"]
mod shared_folder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use chromium::root;
use harness::Server;
use packages::{installed, latest_debian, npm, run};
use promlet::dashboards::{Context, Dashboard, InterpolateError, VariableAccess, VariableQuery};
use promlet::promql::syntax::{Caps, parse};
use serde_json::json;
use shared_folder::shared_folder;

/// A new major version may find new errors in correct modules.
const TYPESCRIPT: &str = "typescript@5";
/// A new major version may format values in another way.
const GRAFANA: &str = "@grafana/data@11";

/// Returns a command that runs a script of `tests/peers`.
fn script(name: &str) -> Command {
    let mut node = Command::new(installed("node", "nodejs"));
    node.arg(root().join("tests/peers").join(name)).current_dir(root());
    node
}

#[test]
fn every_module_passes_the_strict_type_checker() {
    let compiler = npm("typescript", TYPESCRIPT).join("node_modules/typescript/bin/tsc");
    let mut check = Command::new(installed("node", "nodejs"));
    check.arg(compiler).arg("--project").arg(root().join("tests/ui/tsconfig.json"));
    run(&mut check, "the modules of the UI have type errors");
}

#[test]
fn programs_with_the_element_pass_the_type_checker_where_they_are_right() {
    let compiler = npm("typescript", TYPESCRIPT).join("node_modules/typescript/bin/tsc");
    let mut check = Command::new(installed("node", "nodejs"));
    check.arg(compiler).arg("--project").arg(root().join("tests/ui/embed_types/tsconfig.json"));
    run(&mut check, "the types of the element do not hold");
}

#[test]
fn served_modules_do_what_their_sources_do() {
    let served = tempfile::tempdir().expect("a folder");
    for path in promlet::ui::bundles() {
        let file = served.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("our folder");
        std::fs::write(file, promlet::ui::file(path).expect("a file").bytes).expect("our folder");
    }
    let mut compare = script("minified.mjs");
    compare.arg(npm("typescript", TYPESCRIPT)).arg(root().join("src/ui/assets")).arg(served.path());
    println!("{}", run(&mut compare, "a served module differs from its source"));
}

#[test]
fn types_of_the_client_hold_for_every_answer_of_the_openapi_document() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(&dir.path().join("data"));
    let document = dir.path().join("openapi.json");
    std::fs::write(&document, &server.get("/api/v1/openapi.json", &[]).body).expect("our folder");
    let mut compare = script("api_types.mjs");
    compare.arg(npm("typescript", TYPESCRIPT)).arg(document).arg(dir.path());
    println!("{}", run(&mut compare, "a type of the client differs from the OpenAPI document"));
}

#[test]
fn the_unit_tests_of_the_pure_modules_pass() {
    let tests = std::fs::read_dir(root().join("tests/ui")).expect("a folder");
    let mut files: Vec<PathBuf> = tests.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".test.mjs"));
    assert!(files.len() >= 15, "{files:?}");
    let mut node = Command::new(installed("node", "nodejs"));
    let said = run(node.arg("--test").args(files), "unit tests of the UI fail");
    assert!(said.contains("# skipped 0") && said.contains("# todo 0"), "{said}");
}

#[test]
fn values_in_all_units_have_the_text_that_grafana_gives_them() {
    println!("{}", run(script("units.mjs").arg(npm("grafana", GRAFANA)), "units differ from Grafana's"));
}

#[test]
fn transformations_reducers_and_mappings_give_what_grafana_gives() {
    let mut compare = script("transformations.mjs");
    // Text is converted to times in the zone of the process.
    compare.arg(npm("grafana", GRAFANA)).env("TZ", "UTC");
    println!("{}", run(&mut compare, "transformations differ from Grafana's"));
}

#[test]
fn public_dashboards_are_imported_without_an_edit() {
    assert_eq!(import_dashboards(&shared_folder("dashboards")), &[] as &[String]);
}

#[test]
fn the_dashboards_of_ceph_are_imported_without_an_edit() {
    let folder = latest_debian("ceph", &["ceph-grafana-dashboards"]).join("etc/grafana/dashboards");
    assert_eq!(import_dashboards(&folder), &[] as &[String]);
}

#[test]
fn saved_queries_of_public_dashboards_have_the_text_that_the_page_gives_them() {
    let ceph = latest_debian("ceph", &["ceph-grafana-dashboards"]).join("etc/grafana/dashboards");
    let differences = [shared_folder("dashboards"), ceph].map(|folder| query_differences(&folder));
    assert_eq!(differences.concat(), [] as [String; 0]);
}

/// Compares the queries that the server makes of the saved dashboards of a folder with those of the
/// page. Returns the differences.
fn query_differences(folder: &Path) -> Vec<String> {
    let written = tempfile::NamedTempFile::new().expect("a file");
    let mut script = script("dashboard_queries.mjs");
    println!("{}", run(script.arg(folder).arg(written.path()), "the page has no queries of a dashboard"));
    let text = std::fs::read_to_string(written.path()).expect("the queries");
    let pages: Vec<serde_json::Value> = serde_json::from_str(&text).expect("an array of dashboards");
    let context = Context {
        from_ms: 1_700_000_000_000,
        to_ms: 1_700_021_600_000,
        interval_ms: 20_000,
        rate_interval_ms: 60_000,
    };
    let text_of = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (mut compared, mut differences) = (0, Vec::new());
    for page in pages {
        let file = text_of(&page["file"]);
        let dashboard = Dashboard::parse(&text_of(&page["uid"]), &text_of(&page["document"]));
        let dashboard = dashboard.expect("a dashboard");
        let none = BTreeMap::new();
        let selections = dashboard.selections(|_| VariableAccess::Fixed, [], &none).expect("saved values");
        let mut compare = |about: String, page: &str, server: Result<String, InterpolateError>| {
            compared += 1;
            if server.as_deref() != Ok(page) {
                differences.push(format!("{file}: {about}\n  page:   {page}\n  server: {server:?}"));
            }
        };
        for query in page["queries"].as_array().into_iter().flatten() {
            let (panel, ref_id) = (query["panel"].as_i64().expect("an id"), text_of(&query["ref"]));
            let about = format!("panel {panel}, query {ref_id}");
            let Some((_, target)) = dashboard.target(panel, &ref_id) else {
                compare(about, &text_of(&query["text"]), Ok("no such query".to_owned()));
                continue;
            };
            compare(about, &text_of(&query["text"]), dashboard.query(&target.expr, &selections, &context));
        }
        for variable in page["variables"].as_array().into_iter().flatten() {
            let name = text_of(&variable["name"]);
            let own = dashboard.variable(&name).expect("the same variables");
            let server =
                dashboard.variable_query(own, &selections, &context).map(|query| parts(query.as_ref()));
            compare(format!("variable {name}"), &variable["query"].to_string(), server);
        }
    }
    assert!(compared > 100, "{compared} queries");
    differences
}

/// Returns a variable's query as the page has it.
fn parts(query: Option<&VariableQuery>) -> String {
    let json = match query {
        None => json!({ "kind": "none" }),
        Some(VariableQuery::LabelValues { label, selector: None }) => {
            json!({ "kind": "label_values", "label": label })
        }
        Some(VariableQuery::LabelValues { label, selector: Some(selector) }) => {
            json!({ "kind": "label_values", "label": label, "match": selector })
        }
        Some(VariableQuery::LabelNames { selector: None }) => json!({ "kind": "label_names" }),
        Some(VariableQuery::LabelNames { selector: Some(selector) }) => {
            json!({ "kind": "label_names", "match": selector })
        }
        Some(VariableQuery::Metrics { regex }) => json!({ "kind": "metrics", "regex": regex }),
        Some(VariableQuery::QueryResult { expr }) => json!({ "kind": "query_result", "expr": expr }),
        Some(VariableQuery::Series { selector }) => json!({ "kind": "series", "match": selector }),
    };
    json.to_string()
}

/// Imports all dashboards of a folder. Returns the queries that the parser refuses, each with the
/// error.
fn import_dashboards(folder: &Path) -> Vec<String> {
    let written = tempfile::NamedTempFile::new().expect("a file");
    let mut import = script("dashboards.mjs");
    import.arg(folder).arg(written.path());
    println!("{}", run(&mut import, "a dashboard is not imported"));
    let text = std::fs::read_to_string(written.path()).expect("the queries");
    let queries: Vec<String> = serde_json::from_str(&text).expect("an array of queries");
    assert!(queries.len() > 100, "{} queries", queries.len());
    let refused = |query: &String| Some(format!("{query}: {}", parse(query, &Caps::default()).err()?));
    queries.iter().filter(|query| !query.is_empty()).filter_map(refused).collect()
}
