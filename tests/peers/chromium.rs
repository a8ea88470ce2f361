//! Chromium and its driver, for the tests that look at pages.
//!
//! Chromium comes by apt, its driver (playwright-core) by npm below `target/`; where either cannot be had the test fails
//! and says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value as Json, json};

/// The driver's major version: a new one may drop the Chromium of Debian stable.
const PLAYWRIGHT: &str = "playwright-core@1";

struct Tools {
    chromium: PathBuf,
    /// The folder with `node_modules`.
    module: PathBuf,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder: `CARGO_TARGET_TMPDIR` is its `tmp`.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp lies in the target folder")
}

/// Where `name` is on the path.
fn program(name: &str) -> Option<PathBuf> {
    let output = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().expect("a shell");
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

pub(crate) fn run(command: &mut Command, why: &str) {
    let shown = format!("{command:?}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .unwrap_or_else(|e| panic!("{shown} does not start: {e}; {why}"));
    assert!(status.success(), "{shown} failed: {why}");
}

/// The program `name`, installed from the Debian package of that name when it is missing.
pub(crate) fn installed(name: &str, package: &str) -> PathBuf {
    program(name).unwrap_or_else(|| {
        let why = format!(
            "{name} is needed and comes with Debian's package {package}; as root: apt-get install {package}"
        );
        let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.starts_with(b"0"));
        for words in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", package]] {
            // Without root only a password-free sudo can help; anything else would wait for a person.
            let mut command = Command::new(if root { "apt-get" } else { "sudo" });
            if !root {
                command.args(["-n", "apt-get"]);
            }
            run(command.args(words).env("DEBIAN_FRONTEND", "noninteractive"), &why);
        }
        program(name).unwrap_or_else(|| panic!("apt installed {package}, but there is no {name}"))
    })
}

/// Installs once, whichever test comes first.
fn tools() -> &'static Tools {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let chromium = installed("chromium", "chromium");
        installed("node", "nodejs");
        let module = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
        if !module.join("node_modules/playwright-core/package.json").exists() {
            installed("npm", "npm");
            std::fs::create_dir_all(&module).expect("the target folder is ours");
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
                .arg(&module)
                .arg(PLAYWRIGHT);
            run(&mut npm, "the browser's driver comes from npm");
        }
        Tools { chromium, module }
    })
}

/// Runs one scenario of the driver; its words go to this test's output.
pub(crate) fn drive(scenario: &str, server: &str, more: &Json) -> Result<(), String> {
    let tools = tools();
    let mut given = json!({
        "module": tools.module, "chromium": tools.chromium, "pictures": target().join("pictures"), "server": server,
    });
    let object = given.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    let status = Command::new("node")
        .arg(root().join("tests/peers/browser.mjs"))
        .args([scenario, &given.to_string()])
        .stdin(Stdio::null())
        .status()
        .expect("node starts");
    if status.success() { Ok(()) } else { Err(format!("{scenario}: see the lines above")) }
}
