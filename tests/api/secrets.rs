//! docs/specification.md F10 for all requests of these suites: no issued secret is in a log line of
//! any level, in an error body, or in an address of a redirect.
//!
//! One subscriber for the whole process reads the log word by word; secrets are taken from
//! responses. Both are remembered, because a log line may precede the response that issues its
//! secret.

use std::collections::HashSet;
use std::io;
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use serde_json::Value;

use super::Reply;

/// Shorter words could be equal by chance.
const WORD_MIN: usize = 16;
/// The members of responses that are secrets.
const MEMBERS: [&str; 7] =
    ["secret", "token", "recovery_codes", "twofa_pending_login", "otpauth_url", "url", "authorize_url"];
/// Prefixes of secrets, which are recognised even if no response contained them.
const PREFIXES: [&str; 10] = ["ses_", "msk_", "mpl_", "mgl_", "rst_", "sgn_", "ivt_", "tfp_", "eml_", "eyJ"];

#[derive(Default)]
struct SeenWords {
    issued: HashSet<String>,
    logged: HashSet<String>,
    /// Log lines that contain a secret.
    leaks: Vec<String>,
    lines: usize,
}

static SEEN: LazyLock<Mutex<SeenWords>> = LazyLock::new(Mutex::default);

fn words(text: &str) -> impl Iterator<Item = &str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.split(move |c: char| !inside(c))
        .map(|word| word.trim_matches('.'))
        .filter(|word| word.len() >= WORD_MIN)
}

fn looks_secret(word: &str) -> bool {
    PREFIXES.iter().any(|start| word.strip_prefix(start).is_some_and(|rest| rest.len() >= WORD_MIN))
}

struct LogReader;

impl io::Write for LogReader {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.lines += 1;
        for word in words(&text) {
            if looks_secret(word) || seen.issued.contains(word) {
                seen.leaks.push(text.clone().into_owned());
            }
            seen.logged.insert(word.to_owned());
        }
        if text.contains(super::PASSWORD) {
            seen.leaks.push(text.into_owned());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts reading the log of this process, once.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(|| LogReader);
        log.with_max_level(tracing::Level::TRACE).init();
    });
}

/// Collects the secrets of a response. Fails if a secret is in the log, an error body or a
/// redirect.
#[track_caller]
pub(super) fn assert_no_leak(path: &str, reply: &Reply) {
    let mut fresh = HashSet::new();
    if reply.status.is_success() && !path.ends_with("/openapi.json") {
        if let Ok(body) = serde_json::from_str::<Value>(&reply.body) {
            members(&body, &mut fresh);
        }
        for cookie in reply.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
            let value = pair.split_once('=').map_or("", |(_, value)| value);
            fresh.extend(words(value).map(str::to_owned));
        }
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let early: Vec<&String> = fresh.iter().filter(|word| seen.logged.contains(*word)).collect();
    assert!(early.is_empty(), "{path}: issued now, and in the log before: {early:?}");
    assert!(seen.leaks.is_empty(), "secrets in the log: {:?}", seen.leaks);
    assert!(path.len() < 4 || seen.lines > 0, "nothing was logged, so the test checks nothing");
    let to = reply.headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or_default();
    // The fragment after `#` reaches no server and no log.
    let to = to.split('#').next().unwrap_or_default();
    // A form that is shown again contains its own token; a problem body contains none.
    let is_page =
        reply.headers.get("content-type").is_some_and(|media| media.as_bytes().starts_with(b"text/html"));
    let is_refusal = reply.status.is_client_error() || reply.status.is_server_error();
    let refusal = if is_refusal && !is_page { &*reply.body } else { "" };
    let leaked =
        words(refusal).chain(words(to)).find(|word| looks_secret(word) || seen.issued.contains(*word));
    assert_eq!(leaked, None, "{path}: {} {to}", reply.body);
    seen.issued.extend(fresh);
}

fn members(value: &Value, out: &mut HashSet<String>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all {
                match (MEMBERS.contains(&&**name), value) {
                    (true, Value::String(text)) => {
                        // Of a URL only the query or the fragment, not the server's name.
                        let secret = text.split_once(['?', '#']).map_or(&**text, |(_, rest)| rest);
                        let parts = words(secret).filter(|word| !text.contains("://") || looks_secret(word));
                        out.extend(parts.map(str::to_owned));
                    }
                    (true, Value::Array(texts)) => {
                        out.extend(texts.iter().filter_map(Value::as_str).flat_map(words).map(str::to_owned));
                    }
                    (_, value) => members(value, out),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| members(value, out)),
        _ => {}
    }
}

#[test]
fn the_log_reader_recognises_secrets() {
    let secret = format!("msk_{}", "a1B2".repeat(8));
    let of = |text: &str| words(text).any(looks_secret);
    assert!(
        of(&format!("token=\"{secret}\","))
            && of(&format!("Bearer {secret}."))
            && of("eyJhbGciOiJub25lIn0.e30.x")
    );
    assert!(!of("msk_…Kx3f") && !of("ses_ and msk_short") && !of("request{id=01JABCDEFGHJKMNPQRSTVWXYZ0}"));
}
