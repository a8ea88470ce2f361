//! Chromium and its driver, for tests of pages.
//!
//! Chromium comes from apt, its driver (playwright-core) and axe-core from npm below `target/`; if
//! one is unavailable, the test fails and reports it. The files that a browser and its scenario
//! write are in a folder of their own, which is removed at the end, also after a failure.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use super::packages::{installed, npm};

/// The driver's major version: a new one may drop the Chromium of Debian stable.
pub(crate) const PLAYWRIGHT: &str = "playwright-core@1";
/// Finds violations of WCAG in a page. A new major version may have new rules.
const AXE: &str = "axe-core@4";

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder: `CARGO_TARGET_TMPDIR` is its `tmp`.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp lies in the target folder")
}

/// Runs one scenario of the driver, and copies its output to that of the test.
pub(crate) fn drive(scenario: &str, server: &str, more: &Json) -> Result<(), String> {
    let (chromium, module) = (installed("chromium", "chromium"), npm("browser", PLAYWRIGHT));
    let axe = npm("axe", AXE);
    let mut given = json!({
        "module": module, "axe": axe, "chromium": chromium, "pictures": target().join("pictures"), "server": server,
    });
    let object = given.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    // Some pages have a script of their own, which knows one scenario.
    let mut node = Command::new("node");
    match scenario {
        "dashboards" => node.arg(root().join("tests/peers/dashboards_browser.mjs")),
        "explore_tools" => node.arg(root().join("tests/peers/explore_browser.mjs")),
        "shell" => node.arg(root().join("tests/peers/shell_browser.mjs")),
        "live" => node.arg(root().join("tests/peers/perf_browser.mjs")),
        "embed_live" => node.arg(root().join("tests/peers/live_browser.mjs")),
        "editor" => node.arg(root().join("tests/peers/editor_browser.mjs")),
        "panel" => node.arg(root().join("tests/peers/panel_browser.mjs")),
        "embeds" => node.arg(root().join("tests/peers/embeds_browser.mjs")),
        "alerting_server" => node.arg(root().join("tests/peers/alerting_server_browser.mjs")),
        "alerting" => node.arg(root().join("tests/peers/alerting_browser.mjs")),
        "data" => node.arg(root().join("tests/peers/data_browser.mjs")),
        "alert_list" => node.arg(root().join("tests/peers/alert_list_browser.mjs")),
        "share" => node.arg(root().join("tests/peers/share_browser.mjs")),
        "wrappers" => node.arg(root().join("tests/peers/wrappers_browser.mjs")),
        "embedded" => node.arg(root().join("tests/peers/embedded_browser.mjs")),
        _ => node.arg(root().join("tests/peers/browser.mjs")).arg(scenario),
    };
    end(node.arg(given.to_string()), scenario)
}

/// Runs a driver to its end. Its temporary files, and those of its browser, are removed.
pub(crate) fn end(node: &mut Command, scenario: &str) -> Result<(), String> {
    let temporary = tempfile::tempdir().expect("a folder");
    let status = node.env("TMPDIR", temporary.path()).stdin(Stdio::null()).status().expect("node starts");
    // A browser that is just ending may still write.
    for _ in 0..50 {
        if std::fs::remove_dir_all(temporary.path()).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    if status.success() { Ok(()) } else { Err(format!("{scenario}: see the lines above")) }
}
