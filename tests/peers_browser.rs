//! The pages in a real Chromium: the demo's sign-in link and the explore page, the embed example on
//! another origin, the first run of an empty server, the API page, and attacks by a page of another
//! origin on a signed-in browser (threat model rows 11, 13, 14, 48). `tests/peers/browser.mjs`
//! drives the browser; its screenshots are for manual inspection.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
mod chromium;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use chromium::{root, target};
use harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap};
use packages::{installed, npm, npm_all, pypi, run};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use promlet::ui::ElementFile;
use serde_json::{Value as Json, json};

/// Speaks WebDriver BiDi with Firefox.
const PUPPETEER: &str = "puppeteer-core@24";
/// The oldest React that the component supports, and the present one.
const REACTS: [(&str, [&str; 2]); 2] =
    [("react16", ["react@16.8", "react-dom@16.8"]), ("react19", ["react@19", "react-dom@19"])];
const VUE: &str = "vue@3";
const JOSE: &str = "jose@6";
const PYJWT: &str = "PyJWT[crypto]>=2.10,<3";

/// Runs one scenario; its output goes to the output of this test.
fn drive(scenario: &str, server: &Server, more: &Json) {
    if let Err(why) = chromium::drive(scenario, &server.url, more) {
        panic!("{why}; the server said:\n{}", server.log());
    }
}

/// Starts the demo. Returns it with its sign-in link and its embed token, taken from its output;
/// the other words on those lines do not matter.
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
fn the_defects_of_the_first_trial_in_a_browser_stay_fixed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("trial", &server, &json!({"link": link}));
}

#[test]
fn queries_are_written_explained_cancelled_and_exported_on_the_explore_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("explore_tools", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn dashboards_are_imported_shown_saved_and_deleted_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("dashboards", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn a_dashboard_refreshes_filters_and_shares_its_tooltip_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("live", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn a_dashboard_is_created_edited_saved_and_compared_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("editor", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn a_panel_and_variables_are_edited_with_a_live_preview_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("panel", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn a_dashboard_is_shared_by_link_embed_public_link_image_and_file_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("share", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn a_page_of_another_origin_draws_with_an_embed_token() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, _, token) = demo(dir.path());
    let example = Example::start(&token, &server.url);
    drive("embed", &server, &json!({"embed": example.url}));
}

#[test]
fn a_page_of_another_origin_shows_a_dashboard_with_tokens_of_its_own_endpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    drive("embedded", &server, &json!({"link": link, "org": "demo"}));
}

#[test]
fn firefox_shows_live_embeds_of_another_origin_also_in_private_mode() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    // A home folder without settings of the person whose machine this is.
    let home = tempfile::tempdir().expect("a folder");
    let given = json!({
        "module": npm("puppeteer", PUPPETEER), "firefox": installed("firefox-esr", "firefox-esr"),
        "profile": home.path(), "pictures": target().join("pictures"), "server": server.url, "link": link,
        "org": "demo",
    });
    let mut node = Command::new("node");
    node.arg(root().join("tests/peers/firefox_browser.mjs")).arg(given.to_string());
    if let Err(why) = chromium::end(node.env("HOME", home.path()), "firefox") {
        panic!("{why}; the server said:\n{}", server.log());
    }
}

/// The version of an element before that of this binary.
const BEFORE: &str = "0a1b2c3d";

/// Leaves the files of the element for charts in the folder of elements, as version [`BEFORE`]
/// does. They are those of this binary with another version.
fn leave_version_before(elements: &Path) {
    for file in promlet::ui::element_files().filter(|file| file.path.starts_with("/chart/")) {
        let text = String::from_utf8(file.bytes).expect("UTF-8").replace(&file.version, BEFORE);
        let file = ElementFile { version: BEFORE.to_owned(), bytes: text.into_bytes(), ..file };
        let name = file.path.trim_start_matches('/').replace('/', "+");
        let name = format!("{BEFORE}-{:016x}-{name}", file.hash());
        std::fs::write(elements.join(name), file.bytes).expect("a file");
    }
}

#[test]
fn live_charts_of_another_origin_survive_what_happens_and_explain_what_does_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, ..) = demo(dir.path());
    assert!(server.terminate().success());
    leave_version_before(&dir.path().join("elements"));
    let (server, link, _) = demo(dir.path());
    drive("embed_live", &server, &json!({"link": link, "org": "demo", "before": BEFORE}));
}

#[test]
fn components_of_react_and_vue_and_tokens_of_libraries_show_charts_of_another_origin() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, link, _) = demo(dir.path());
    let given = json!({
        "react": REACTS.map(|(name, packages)| npm_all(name, &packages)), "vue": npm("vue", VUE),
        "jose": npm("jose", JOSE), "pyjwt": pypi("jwt", PYJWT), "link": link, "org": "demo",
    });
    drive("wrappers", &server, &given);
}

#[test]
fn an_empty_server_takes_its_first_account_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &[] });
    drive("modules", &server, &json!({}));
    drive("first_run", &server, &json!({}));
}

#[test]
fn the_first_minute_leads_from_an_empty_server_to_samples_and_a_dashboard() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &[] });
    drive("data", &server, &json!({ "org": "acme" }));
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

#[test]
fn accounts_and_organisations_are_administered_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("cabinet", &server, &account);
}

#[test]
fn the_shell_is_usable_by_keyboard_and_leads_to_every_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("shell", &server, &account);
}

#[test]
fn a_page_of_another_origin_lists_the_alerts_of_its_token() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("alert_list", &server, &account);
}

#[test]
fn pages_that_embed_are_listed_blocked_and_revoked_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("embeds", &server, &account);
}

#[test]
fn targets_alerts_rules_and_notifications_are_shown_and_changed_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("alerting", &server, &account);
}

#[test]
fn a_group_of_rules_is_written_evaluated_silenced_and_deleted_in_the_browser() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("alerting_server", &server, &account);
}

/// The address that a line of the console mailer ends in, below the server's.
fn mailed(server: &Server, kind: &str) -> String {
    let line = server.line(|line| line.starts_with("MAIL ") && line.contains(&format!("kind={kind} ")));
    let url = line.split_whitespace().find_map(|word| word.strip_prefix("url=")).expect("an address");
    url.strip_prefix(&server.url).expect("ours").to_owned()
}

/// The new address of the account after the page of a mailed link has confirmed it.
const CHANGED: &str = "ada2@example.com";

#[test]
fn pages_that_links_lead_to_and_refusals_are_readable_and_usable() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut env = bootstrap().to_vec();
    env.push(("PROMLET_SIGNUP", "open"));
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
    let cookie = server.sign_in();
    let post = |path: &str, headers: &[(&str, &str)], body: Json| {
        let answer = server.post_json(path, headers, &body);
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
        answer
    };
    post("/api/v1/auth/password/reset/request", &[], json!({ "email": EMAIL }));
    let reset = mailed(&server, "password_reset");
    post("/api/v1/auth/signup", &[], json!({ "email": "new@example.com" }));
    let signup = mailed(&server, "signup");
    let session = [("Cookie", &*cookie)];
    post("/api/v1/auth/email/change", &session, json!({ "new_email": CHANGED }));
    let email = mailed(&server, "email_confirm");
    let invites = format!("/api/v1/orgs/{ORG}/invites");
    let invited = post(&invites, &session, json!({ "email": "bo@example.com", "role": "editor" })).json();
    let invite = invited["url"].as_str().and_then(|url| url.strip_prefix(&server.url)).expect("an address");
    let links = json!({ "reset": reset, "signup": signup, "email": email, "invite": invite });
    drive(
        "people",
        &server,
        &json!({ "email": EMAIL, "password": PASSWORD, "changed": CHANGED, "links": links }),
    );
}

#[test]
fn the_page_of_a_mailed_sign_in_link_works_without_scripts() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut env = bootstrap().to_vec();
    // No server listens there: the page is the same for every link.
    env.extend([
        ("PROMLET_SMTP_URL", "smtp://127.0.0.1:9"),
        ("PROMLET_MAIL_FROM", "promlet@metrics.example"),
    ]);
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
    drive("mailed_link", &server, &json!({ "link": "/api/v1/auth/magic-link/verify?token=mgl_none" }));
}

/// docs/specification.md F11, F12.
#[test]
fn f11_a_page_on_another_port_of_localhost_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("csrf", &server, &account);
    let cookie = server.sign_in();
    let orgs = server.get("/api/v1/orgs", &[("Cookie", &cookie)]);
    assert!(!orgs.body.contains("evil"), "{}", orgs.body);
}

/// docs/specification.md F12: on plain `localhost` the name of the session cookie gives no
/// protection; on a public name it does.
#[test]
fn f12_another_port_plants_cookies_on_localhost_and_none_on_a_name_of_ours() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, mut account) = served(dir.path());
    let cookie = server.sign_in();
    account["attacker"] = cookie.split_once('=').expect("a value").1.into();
    drive("planted", &server, &account);
}

/// docs/specification.md F13.
#[test]
fn f13_a_name_that_was_rebound_to_this_machine_reads_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, mut account) = served(dir.path());
    let flags = json!(["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
    account["flags"] = flags;
    drive("rebinding", &server, &account);
}

/// docs/specification.md F14.
#[test]
fn f14_no_page_of_ours_is_shown_in_a_frame_of_another_origin() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("framing", &server, &account);
}

/// docs/specification.md F60.
#[test]
fn f60_a_shared_page_is_framed_by_listed_origins_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, account) = served(dir.path());
    drive("shared", &server, &account);
}

/// docs/specification.md F48: names are foreign bytes.
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
