//! schemathesis sends the running server every request that its OpenAPI document allows, and some
//! that it does not, once with each kind of credential. No response may be undocumented, violate
//! its schema, or be a 500.
//!
//! schemathesis comes from PyPI into a virtual environment below `target/`; if it is unavailable,
//! the test fails and reports it. `tests/peers/schemathesis.txt` lists accepted findings with their
//! reasons and can only shrink.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use harness::{ORG, Server, Start, bootstrap};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Of each of four credentials; the whole is about two minutes.
const SECONDS: &str = "30";

/// A kind of credential, and the operations that are requested with it.
struct Caller<'a> {
    name: &'a str,
    header: Option<String>,
    /// A session, passed as the parameter of the document, because a generated value would replace
    /// a header.
    session: Option<&'a str>,
    /// Further arguments: which operations.
    which: &'a [&'a str],
}

/// These end the session that asks, or never end; they are asked without one.
const ENDS_SESSIONS: [&str; 10] = [
    "--exclude-path-regex",
    "/query/live",
    "--exclude-path-regex",
    "/auth/(logout|sessions|me|password|2fa|email)",
    "--exclude-path-regex",
    "/(members|api-keys)/.*",
    "--exclude-method",
    "DELETE",
    "--exclude-path-regex",
    "/admin/users/",
];

/// A live query has no end, so a client that reads whole responses waits for ever.
const DATA: [&str; 4] = [
    "--include-path-regex",
    "/orgs/[^/]+/(metrics|labels|query|prometheus|write|embed/tokens)",
    "--exclude-path-regex",
    "/query/live",
];

/// Every check of a single request and its response. Left out: `positive_data_acceptance`, because
/// a text that is valid in the JSON Schema may be invalid as PromQL, slug or id; `use_after_free`,
/// `ensure_resource_availability` and `object_level_authorization`, which need inverse operations
/// and are covered by `tests/api`; and `ignored_auth`, which the matrix covers for every route.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,unsupported_method,\
                      allow_header_conformance";

/// How it makes a body of bytes.
const HOOKS: &str = "import schemathesis

@schemathesis.serializer('application/x-protobuf')
def protobuf(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()
";

/// What it found: check, method and path, once each, with the first message.
fn found(report: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(report).expect("a report");
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Json>(line) else { continue };
        collect(&event, "", &mut all);
    }
    all
}

/// Failures stand in checks of cases of scenarios; where exactly changes between versions.
fn collect(value: &Json, operation: &str, all: &mut BTreeMap<String, String>) {
    match value {
        Json::Object(members) => {
            let label = members.get("label").or(members.get("operation")).and_then(Json::as_str);
            let operation = label.filter(|label| label.contains(" /")).unwrap_or(operation);
            let failed = members.get("status").and_then(Json::as_str) == Some("failure");
            if let (true, Some(name), Some(failure)) = (
                failed,
                members.get("name").and_then(Json::as_str),
                members.get("failure").or(members.get("failure_info")),
            ) {
                all.entry(format!("{name} {operation}")).or_insert_with(|| failure.to_string());
            }
            members.values().for_each(|member| collect(member, operation, all));
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, operation, all)),
        _ => {}
    }
}

/// Check, words of the message, reason.
struct Explained {
    check: &'static str,
    words: &'static str,
}

fn explained() -> Vec<Explained> {
    let lines = include_str!("peers/schemathesis.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let (what, reason) = line.split_once(" => ").unwrap_or_else(|| panic!("no reason in {line:?}"));
        let (check, words) = what.split_once(' ').unwrap_or_else(|| panic!("no words in {line:?}"));
        assert!(reason.len() > 20 && words.len() > 10, "{line:?}");
        Explained { check, words }
    };
    lines.map(read).collect()
}

/// What its questions are made from; another one is asked for by hand, now and then.
#[expect(clippy::disallowed_methods, reason = "a test's own setting, not promlet's")]
fn seed() -> String {
    std::env::var("PROMLET_TEST_SEED").unwrap_or_else(|_| "1".to_owned())
}

/// What is explained can only become less.
const EXPLAINED_MAX: usize = 3;

/// What it objects to, asking as one caller: operation and check, and why.
fn asked(
    caller: &Caller<'_>,
    (st, seed): (&Path, &str),
    server: &Server,
    dir: &Path,
) -> BTreeMap<String, String> {
    let mut settings = format!(
        "[parameters]\n\"path.slug\" = \"{ORG}\"\n\"path.name\" = \"up\"\n\"path.label\" = \"job\"\n"
    );
    if let Some(session) = caller.session {
        settings.push_str(&format!("\"cookie.ms_session\" = \"{session}\"\n"));
    }
    std::fs::write(dir.join("schemathesis.toml"), settings).expect("written");
    let report = dir.join(format!("{}.ndjson", caller.name));
    let mut command = Command::new(st);
    command
        .current_dir(dir)
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .arg("run")
        .arg(format!("{}/api/v1/openapi.json", server.url))
        .args([
            "--checks",
            CHECKS,
            "--max-time",
            SECONDS,
            "--seed",
            seed,
            "--continue-on-failure",
            "--no-shrink",
        ])
        .args(["--suppress-health-check", "all", "--workers", "1", "--no-color", "--report", "ndjson"])
        .arg("--report-ndjson-path")
        .arg(&report)
        .args(caller.which);
    if let Some(header) = &caller.header {
        command.args(["--header", header]);
    }
    let output = command.stdin(Stdio::null()).output().expect("schemathesis starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tail: String =
        said.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    println!("{}:\n{tail}", caller.name);
    let found = found(&report);
    // Its exit code says whether there was anything; the report says what.
    assert!(
        output.status.success() || !found.is_empty(),
        "{}: {said}\n{}",
        caller.name,
        String::from_utf8_lossy(&output.stderr)
    );
    found
}

#[test]
fn no_answer_is_other_than_documented_whoever_asks() {
    let st = packages::environment("schemathesis", SCHEMATHESIS).join("st");
    let dir = tempfile::tempdir().expect("a folder");
    let mut env = bootstrap().to_vec();
    env.push(("PROMLET_RATE_CABINET_RPS", "10000"));
    env.push(("PROMLET_RATE_EMBED_DEFAULT_RPS", "10000"));
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
    let cookie = server.sign_in();
    let (key, secret) = server.api_key(&cookie);
    let series = [(
        Labels::from_pairs([("__name__", "up"), ("job", "api")]),
        vec![Sample { at: Clock::System.now(), value: 1.0 }],
    )];
    assert_eq!(server.write(&secret, &series).status, 204);
    let minted = server.post_json(
        &format!("/api/v1/orgs/{ORG}/embed/tokens"),
        &[("Cookie", &cookie)],
        &json!({ "api_key_id": key }),
    );
    let token = minted.json()["token"].as_str().expect("a token").to_owned();
    let bearer = |secret: &str| Some(format!("Authorization: Bearer {secret}"));
    let callers = [
        Caller { name: "nobody", header: None, session: None, which: &[] },
        Caller {
            name: "session",
            header: None,
            session: cookie.strip_prefix("ms_session="),
            which: &ENDS_SESSIONS,
        },
        Caller { name: "token", header: bearer(&token), session: None, which: &DATA },
        Caller { name: "key", header: bearer(&secret), session: None, which: &DATA },
    ];
    std::fs::write(dir.path().join("hooks.py"), HOOKS).expect("written");
    let seed = seed();
    let mut unexplained = Vec::new();
    let explained = explained();
    let mut met = BTreeSet::new();
    for caller in callers {
        let found = asked(&caller, (&st, &seed), &server, dir.path());
        for (what, why) in found {
            let fits = |one: &&Explained| what.starts_with(one.check) && why.contains(one.words);
            match explained.iter().find(fits) {
                Some(one) => {
                    met.insert(one.words);
                }
                None => unexplained.push(format!("{} as {}: {why}", what, caller.name)),
            }
        }
        assert_eq!(server.get("/healthz", &[]).status, 200);
        if caller.session.is_some() {
            let me = server.get("/api/v1/auth/me", &[("Cookie", &cookie)]);
            assert_eq!(me.status, 200, "the credential was valid to the end: {}", me.body);
        }
    }
    assert!(!server.log().contains("a handler panicked"), "{}", server.log());
    let gone: Vec<_> = explained.iter().map(|one| one.words).filter(|words| !met.contains(words)).collect();
    println!("explained and not met this time: {gone:?}");
    assert!(explained.len() <= EXPLAINED_MAX, "{} are explained", explained.len());
    assert!(unexplained.is_empty(), "{} of them:\n{}", unexplained.len(), unexplained.join("\n"));
}
