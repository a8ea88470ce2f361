//! Sign-in with a real OpenID provider: npm's `oidc-provider`, certified by the OpenID Foundation,
//! driven through its pages without a browser. Misbehaving providers are tested in
//! `tests/api/oauth.rs`.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::{Answer, EMAIL, Server, Start, bootstrap, percent, request};
use serde_json::{Value as Json, json};

/// What the test was written against; a new major version may have other pages.
const PACKAGE: &str = "oidc-provider@9";

/// The provider; killed when dropped.
struct Provider(Child);

impl Provider {
    fn start(port: u16, redirect_uri: &str) -> Provider {
        let mut child = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/oidc_provider.mjs"))
            .arg(packages::npm("oidc", PACKAGE))
            .args([&port.to_string(), redirect_uri])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("node does not start: {e}"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let provider = Provider(child);
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| line == "ready"),
            "the provider ended before it listened"
        );
        // Whatever it says later must have somewhere to go.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        provider
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cookies of one site, and no pages.
#[derive(Default)]
struct Browser(BTreeMap<String, String>);

impl Browser {
    fn ask(&mut self, url: &str, form: Option<&str>) -> Answer {
        let cookies: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let mut headers = vec![("Cookie", cookies.as_str())];
        if form.is_some() {
            headers.push(("Content-Type", "application/x-www-form-urlencoded"));
        }
        let method = if form.is_some() { "POST" } else { "GET" };
        let answer = request(method, url, &headers, form.map(str::as_bytes));
        for (_, set) in answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let pair = set.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }
}

/// Returns the text between `before` and the next quote.
fn quoted<'a>(page: &'a str, before: &str) -> &'a str {
    let rest = page.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {page}")).1;
    rest.split('"').next().unwrap_or_default()
}

/// Goes through the provider's pages as `person`, until it sends the browser back to `home`.
fn agree(issuer: &str, authorize_url: &str, person: &str, home: &str) -> String {
    let mut browser = Browser::default();
    let mut answer = browser.ask(authorize_url, None);
    for _ in 0..12 {
        if let Some(to) = answer.header("location").map(str::to_owned) {
            if to.starts_with(home) {
                return to;
            }
            let to = if to.starts_with('/') { format!("{issuer}{to}") } else { to };
            answer = browser.ask(&to, None);
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let prompt = quoted(&answer.body, "name=\"prompt\" value=\"").to_owned();
        let action = quoted(&answer.body, "action=\"").to_owned();
        let to = if action.starts_with('/') { format!("{issuer}{action}") } else { action };
        answer = browser.ask(&to, Some(&format!("prompt={prompt}&login={}&password=x", percent(person))));
    }
    panic!("the provider asks and asks: {}", answer.body)
}

/// Parameters of a URL, decoded.
fn query(url: &str) -> BTreeMap<String, String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

struct Pair {
    server: Server,
    _provider: Provider,
    issuer: String,
    callback: String,
}

/// promlet and the provider, each knowing the other.
fn pair(dir: &Path, more: &[(&str, &str)]) -> Pair {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let issuer = format!("http://127.0.0.1:{port}");
    let mut env = bootstrap().to_vec();
    env.extend([
        ("PROMLET_OAUTH_OIDC_ISSUER", issuer.as_str()),
        ("PROMLET_OAUTH_OIDC_CLIENT_ID", "promlet"),
        ("PROMLET_OAUTH_OIDC_CLIENT_SECRET", "a secret with spaces & signs"),
    ]);
    env.extend(more);
    let server = Server::start(&Start { args: &["serve"], dir, env: &env });
    let callback = format!("{}/api/v1/auth/oauth/oidc/callback", server.url);
    let provider = Provider::start(port, &callback);
    Pair { server, _provider: provider, issuer, callback }
}

impl Pair {
    /// A sign-in up to what the provider sends back: its parameters, and the cookie.
    fn go(&self, person: &str, session: &str, mode: &str) -> (BTreeMap<String, String>, String) {
        let start = self.server.post_json(
            "/api/v1/auth/oauth/oidc/start",
            &[("Cookie", session)],
            &json!({ "mode": mode, "redirect": "/explore" }),
        );
        assert_eq!(start.status, 200, "{}\n{}", start.body, self.server.log());
        let set = start.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let ticket = set.map(|(_, value)| value.split(';').next().unwrap_or_default().to_owned());
        let ticket = ticket.into_iter().find(|cookie| cookie.starts_with("ms_oauth=")).expect("a ticket");
        let url = start.json()["authorize_url"].as_str().expect("a URL").to_owned();
        (query(&agree(&self.issuer, &url, person, &self.callback)), ticket)
    }

    fn back(&self, sent: &BTreeMap<String, String>, cookies: &str) -> Answer {
        self.server.post_json("/api/v1/auth/oauth/oidc/callback", &[("Cookie", cookies)], &json!(sent))
    }

    fn sign_in(&self, person: &str) -> Answer {
        let (sent, ticket) = self.go(person, "", "login");
        self.back(&sent, &ticket)
    }
}

fn told(answer: &Answer) -> (Json, Json) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    (answer.json()["created"].clone(), answer.json()["linked"].clone())
}

#[test]
fn people_sign_in_by_a_real_provider_and_a_code_works_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let pair = pair(dir.path(), &[("PROMLET_OAUTH_OIDC_ALLOWED_DOMAINS", "example.com")]);
    let (sent, ticket) = pair.go("alice", "", "login");
    assert_eq!(sent["iss"], pair.issuer, "it names itself (RFC 9207)");
    let mut unnamed = sent.clone();
    unnamed.remove("iss");
    assert_eq!(pair.back(&unnamed, &ticket).code(), "invalid_state", "and is held to that");
    let first = pair.back(&sent, &ticket);
    assert_eq!(told(&first), (json!(true), json!(false)), "{}", pair.server.log());
    assert_eq!(first.json()["user"]["email"], "alice@example.com");
    assert_eq!(first.json()["redirect"], "/explore");
    assert_eq!(pair.back(&sent, &ticket).code(), "oauth_error");
    let again = pair.sign_in("alice");
    assert_eq!(told(&again), (json!(false), json!(false)));
    assert_eq!(again.json()["user"]["id"], first.json()["user"]["id"]);
    assert_eq!(pair.sign_in("unverified-bob").code(), "domain_not_allowed");

    // The browser's way.
    let (sent, ticket) = pair.go("alice", "", "login");
    let query: Vec<String> = sent.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
    let path = format!("/api/v1/auth/oauth/oidc/callback?{}", query.join("&"));
    let page = pair.server.get(&path, &[("Cookie", &ticket)]);
    assert_eq!((page.status, page.header("location")), (303, Some("/explore")), "{}", page.body);
    assert_eq!(pair.server.get("/api/v1/auth/me", &[("Cookie", &page.session_cookie())]).status, 200);
}

/// docs/specification.md F21: the address of an account, claimed elsewhere.
#[test]
fn an_address_alone_opens_nobodys_account() {
    let dir = tempfile::tempdir().expect("a folder");
    let person = EMAIL.split('@').next().expect("a name");
    let distrusted = pair(dir.path(), &[]);
    assert_eq!(distrusted.sign_in(person).code(), "link_required");
    assert_eq!(distrusted.sign_in("carol").code(), "signup_closed");
    // Its owner links it, and from then on it opens.
    let session = distrusted.server.sign_in();
    let (sent, ticket) = distrusted.go("somebody-else", &session, "link");
    assert_eq!(told(&distrusted.back(&sent, &format!("{ticket}; {session}"))), (json!(false), json!(true)));
    assert_eq!(distrusted.sign_in("somebody-else").json()["user"]["email"], EMAIL);

    let dir = tempfile::tempdir().expect("a folder");
    let trusted = pair(dir.path(), &[("PROMLET_OAUTH_OIDC_TRUST_EMAIL", "1")]);
    assert_eq!(told(&trusted.sign_in(person)), (json!(false), json!(true)));
    assert!(trusted.server.line(|line| line.starts_with("MAIL ")).contains("kind=identity_linked"));
}
