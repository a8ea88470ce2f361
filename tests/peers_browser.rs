//! The pages in a real Chromium: the demo's sign-in link and the explore page, the embed example on another origin,
//! and the first run of an empty server. `tests/peers/browser.mjs` drives; its pictures are for looking at.
//!
//! Chromium comes by apt, its driver (playwright-core) by npm below `target/`; where either cannot be had the test
//! fails and says so.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use harness::{Server, Start};
use serde_json::{Value as Json, json};

/// The driver's major version: a new one may drop the Chromium of Debian stable.
const PLAYWRIGHT: &str = "playwright-core@1";

struct Tools {
    chromium: PathBuf,
    /// The folder with `node_modules`.
    module: PathBuf,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's target folder: `CARGO_TARGET_TMPDIR` is its `tmp`.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp lies in the target folder")
}

/// Where `name` is on the path.
fn program(name: &str) -> Option<PathBuf> {
    let output = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().expect("a shell");
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

fn run(command: &mut Command, why: &str) {
    let shown = format!("{command:?}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .unwrap_or_else(|e| panic!("{shown} does not start: {e}; {why}"));
    assert!(status.success(), "{shown} failed: {why}");
}

/// The program `name`, installed from the Debian package of that name when it is missing.
fn installed(name: &str, package: &str) -> PathBuf {
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
fn drive(scenario: &str, server: &Server, more: &Json) {
    let tools = tools();
    let mut given = json!({
        "module": tools.module, "chromium": tools.chromium, "pictures": target().join("pictures"), "server": server.url,
    });
    let object = given.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    let status = Command::new("node")
        .arg(root().join("tests/peers/browser.mjs"))
        .args([scenario, &given.to_string()])
        .stdin(Stdio::null())
        .status()
        .expect("node starts");
    assert!(status.success(), "{scenario}: see the lines above; the server said:\n{}", server.log());
}

/// The demo, its sign-in link and its embed token, as it prints them: whatever words stand before them on their lines.
fn demo(dir: &Path) -> (Server, String, String) {
    let server = Server::start(&Start { args: &["demo"], dir, env: &[] });
    let (mut link, mut token) = (None, None);
    while link.is_none() || token.is_none() {
        let line = server.line(|line| line.contains("verify?token=") || line.contains("eyJ"));
        let word = |wanted: &dyn Fn(&str) -> bool| {
            line.split_whitespace().find(|word| wanted(word)).map(str::to_owned)
        };
        if line.contains("verify?token=") {
            link = word(&|word| word.starts_with("http"));
        } else if !line.trim_start().starts_with("curl ") {
            token = word(&|word| word.starts_with("eyJ"));
        }
    }
    (server, link.expect("printed"), token.expect("printed"))
}

/// `examples/embed_page` as its README starts it, on a port of its own; killed when dropped.
struct Example {
    child: Child,
    url: String,
}

impl Example {
    fn start(token: &str, server: &str) -> Example {
        let cargo = env!("CARGO");
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--example", "embed_page"])
            .env("CARGO_TARGET_DIR", target())
            .current_dir(root());
        run(&mut build, "the example builds");
        let program = target().join("debug/examples/embed_page");
        let mut child = Command::new(program)
            .args([token, server, "demo", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it says where it is");
        let url = line
            .split_whitespace()
            .find(|word| word.starts_with("http"))
            .unwrap_or_else(|| panic!("no address in {line:?}"));
        let url = url.trim_end_matches('/').to_owned();
        Example { child, url }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_sign_in_link_leads_to_a_page_that_draws_what_is_typed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("explore", &server, &json!({"link": link}));
}

#[test]
fn a_page_of_another_origin_draws_with_an_embed_token() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, _, token) = demo(dir.path());
    let example = Example::start(&token, &server.url);
    drive("embed", &server, &json!({"embed": example.url}));
}

#[test]
fn an_empty_server_takes_its_first_account_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &[] });
    drive("modules", &server, &json!({}));
    drive("first_run", &server, &json!({}));
}
