//! The pages in a real Chromium: the demo's sign-in link and the explore page, the embed example on another origin, the
//! first run of an empty server, the page of the API, and what a page of another origin can do to a signed-in browser
//! (threat model rows 11, 13, 14, 48). `tests/peers/browser.mjs` drives; its pictures are for looking at.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
mod chromium;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use chromium::{root, run, target};
use harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

/// Runs one scenario; its words go to this test's output.
fn drive(scenario: &str, server: &Server, more: &Json) {
    if let Err(why) = chromium::drive(scenario, &server.url, more) {
        panic!("{why}; the server said:\n{}", server.log());
    }
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

/// A server with an account, and the same in words for the browser.
fn served(dir: &Path) -> (Server, Json) {
    let server = Server::start(&Start { args: &["serve"], dir, env: &bootstrap() });
    (server, json!({ "email": EMAIL, "password": PASSWORD, "org": ORG }))
}

#[test]
fn the_page_of_the_api_is_readable_searchable_and_tries_things() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("docs", &server, &account);
}

/// API.md F11, F12.
#[test]
fn f11_a_page_on_another_port_of_localhost_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("csrf", &server, &account);
    let cookie = server.sign_in();
    let orgs = server.get("/api/v1/orgs", &[("Cookie", &cookie)]);
    assert!(!orgs.body.contains("evil"), "{}", orgs.body);
}

/// API.md F13.
#[test]
fn f13_a_name_that_was_rebound_to_this_machine_reads_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, mut account) = served(dir.path());
    let flags = json!(["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
    account["flags"] = flags;
    drive("rebinding", &server, &account);
}

/// API.md F14.
#[test]
fn f14_no_page_of_ours_is_shown_in_a_frame_of_another_origin() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("framing", &server, &account);
}

/// API.md F48: names are foreign bytes.
#[test]
fn f48_names_that_are_markup_stay_text() {
    const MARKUP: &str = "<img src=x onerror=alert(document.domain)>";
    let dir = tempfile::tempdir().expect("a folder");
    let (server, mut account) = served(dir.path());
    let (_, secret) = server.api_key(&server.sign_in());
    let series = [("markup", MARKUP), ("other", "\"><script>alert(1)</script>")].map(|(name, value)| {
        let labels = Labels::from_pairs([("__name__", name), ("where", value)]);
        (labels, vec![Sample { at: Clock::System.now(), value: 1.0 }])
    });
    let written = server.write(&secret, &series);
    assert_eq!(written.status, 204, "{}", written.body);
    account["markup"] = MARKUP.into();
    drive("markup", &server, &account);
}
