//! The text formats against prometheus_client, the Python client library of Prometheus: promlet
//! parses its exposition, and agrees with its two parsers on generated and on broken documents.
//!
//! The package comes from PyPI into a folder below `target/`; if it is unavailable, the test fails
//! and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/text/differ.rs"]
mod differ;
#[path = "peers/text/door.rs"]
mod door;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const CLIENT: &str = "prometheus-client==0.26.0";

/// Runs one of `tests/peers/*.py` with these lines as its input. Returns its output.
fn python(script: &str, input: &str) -> String {
    let mut child = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script))
        .env("PYTHONPATH", packages::pypi("text", CLIENT))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("python3 does not start: {e}"));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    // Beside the reading below: both pipes are shorter than what goes through them.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads to the end");
    assert!(output.status.success(), "{script} failed");
    String::from_utf8(output.stdout).expect("UTF-8")
}
