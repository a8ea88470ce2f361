//! The script time of charts beside that of uPlot, in the same run of a browser. This target has
//! one test, so that no other test takes the processor meanwhile.
//!
//! Node and Chromium come from apt, uPlot and the browser's driver from npm below `target/`; if one
//! is unavailable, the test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
#[expect(dead_code, reason = "shared: only the browser tests drive scenarios")]
mod chromium;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::process::Command;

use chromium::{PLAYWRIGHT, root, target};
use packages::{installed, npm, run};
use serde_json::json;

/// A new version may be faster or slower.
const UPLOT: &str = "uplot@1.6.32";

#[test]
fn charts_take_no_more_script_time_than_uplot() {
    let given = json!({
        "module": npm("browser", PLAYWRIGHT),
        "chromium": installed("chromium", "chromium"),
        "uplot": npm("uplot", UPLOT),
        "pictures": target().join("pictures"),
        "rounds": 7,
    });
    // The browser's own files.
    let temporary = tempfile::tempdir().expect("a folder");
    let mut node = Command::new(installed("node", "nodejs"));
    node.arg(root().join("tests/peers/uplot.mjs")).arg(given.to_string()).env("TMPDIR", temporary.path());
    println!("{}", run(&mut node, "a chart is slower than uPlot"));
}
