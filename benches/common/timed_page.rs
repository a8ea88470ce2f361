//! Scripts that time pages in Chromium.

use std::process::Command;

use serde_json::{Value as Json, json};

use crate::chromium::{PLAYWRIGHT, root};
use crate::packages::{installed, npm, run};

/// Runs a script of `tests/peers` with the driver, the browser and `more`. Returns the object that
/// it prints.
pub(crate) fn time_page(script: &str, more: &Json) -> Json {
    let mut given = json!({
        "module": npm("browser", PLAYWRIGHT),
        "chromium": installed("chromium", "chromium"),
    });
    let object = given.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    let temporary = tempfile::tempdir().expect("a folder");
    let mut node = Command::new(installed("node", "nodejs"));
    node.arg(root().join("tests/peers").join(script)).arg(given.to_string());
    let said = run(node.env("TMPDIR", temporary.path()), "the page does not draw");
    serde_json::from_str(&said).expect("JSON")
}
