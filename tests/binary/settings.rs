//! The effects of the variables of docs/specification.md E that no other test sets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, command};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "/wECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn start(dir: &std::path::Path, more: &[(&str, &str)]) -> Server {
    let env: Vec<_> = bootstrap().into_iter().chain(more.iter().copied()).collect();
    Server::start(&Start { args: &["serve"], dir, env: &env })
}

/// Returns the status of a request with this host name.
fn status_for(server: &Server, host: &str) -> String {
    let address = server.url.strip_prefix("http://").expect("plain");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn access_and_pages_follow_the_settings() {
    let (dir, pages) = (
        crate::harness::scratch::temporary_folder().expect("a folder"),
        crate::harness::scratch::temporary_folder().expect("a folder"),
    );
    std::fs::write(pages.path().join("index.html"), "<p>edited</p>").expect("written");
    let server = start(
        dir.path(),
        &[
            ("PROMLET_ALLOWED_HOSTS", "metrics.internal, other.internal"),
            ("PROMLET_TRUSTED_ORIGINS", "http://localhost:5173"),
            ("PROMLET_ORG_CREATE", "any"),
            ("PROMLET_SIGNUP", "open"),
            ("PROMLET_METRICS_TOKEN", "a token for metrics"),
            ("PROMLET_SINGUP", "closed"),
            ("PROMLET_DOCS", "off"),
            ("PROMLET_UI_DIR", pages.path().to_str().expect("text")),
            ("PROMLET_RATE_EMBED_DEFAULT_RPS", "7"),
            ("PROMLET_ENABLE_FEATURE", "no-such-thing,promql-experimental-functions"),
        ],
    );
    let hosts = ["metrics.internal", "other.internal:8095", "localhost", "evil.example"];
    assert_eq!(hosts.map(|host| status_for(&server, host)), ["200", "200", "200", "421"]);

    let from = |origin| server.get("/api/v1/orgs", &[("Origin", origin)]);
    let allowed = |answer: &Answer| answer.header("access-control-allow-credentials").map(str::to_owned);
    assert_eq!(allowed(&from("http://localhost:5173")).as_deref(), Some("true"));
    assert_eq!(allowed(&from("http://localhost:5174")), None);

    let proxied = ("X-Forwarded-For", "203.0.113.9");
    assert_eq!(server.get("/metrics", &[]).status, 200, "this machine");
    assert_eq!(server.get("/metrics", &[proxied]).status, 401);
    for (token, status) in [("a token for metrics", 200), ("another", 401)] {
        let bearer = format!("Bearer {token}");
        assert_eq!(server.get("/metrics", &[proxied, ("Authorization", &bearer)]).status, status);
    }

    assert_eq!(["/docs", "/api/v1/openapi.json"].map(|path| server.get(path, &[]).status), [404, 404]);
    assert!(server.get("/", &[]).body.contains("<p>edited</p>"));
    // An unknown feature is a warning, and so is an unknown variable.
    server.log_line("no-such-thing");
    server.log_line("PROMLET_SINGUP is set but is not a setting: did you mean PROMLET_SIGNUP?");

    server.post_json("/api/v1/auth/signup", &[], &json!({ "email": "new@example.com" }));
    let mail = server.line(|line| line.contains("kind=signup "));
    let token = mail.split("token=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a token");
    let body = json!({ "token": token, "email": "new@example.com", "password": "a password of mine" });
    let made = server.post_json("/api/v1/auth/signup/complete", &[], &body);
    assert_eq!(made.status, 201, "{}", made.body);
    let mine = made.session_cookie();
    let org = server.post_json("/api/v1/orgs", &[("Cookie", &mine)], &json!({ "slug": "mine" }));
    assert_eq!(org.status, 201, "{}", org.body);
    let key = json!({ "name": "page", "scopes": ["embed"] });
    let key = server.post_json("/api/v1/orgs/mine/api-keys", &[("Cookie", &mine)], &key).json();
    assert_eq!(key["embed"]["rate_limit_rps"], 7);
}

#[test]
fn a_flag_takes_the_values_that_its_variable_takes() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let output = |args: &[&str], env: &[(&str, &str)]| {
        let args = [&["doctor", "--json"], args].concat();
        let output = command(&Start { args: &args, dir: dir.path(), env }).output().expect("it runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let cases = [
        ("--docs", "PROMLET_DOCS", &["on", "off"][..], "maybe"),
        ("--oauth-oidc-trust-email", "PROMLET_OAUTH_OIDC_TRUST_EMAIL", &["0", "1", "true", "false"], "2"),
    ];
    for (flag, variable, values, wrong) in cases {
        for value in values {
            for printed in [
                output(&[flag, value], &[]),
                output(&[&format!("{flag}={value}")], &[]),
                output(&[], &[(variable, value)]),
            ] {
                assert!(!printed.contains("error:"), "{flag} {value}: {printed}");
            }
        }
        for printed in [output(&[flag, wrong], &[]), output(&[], &[(variable, wrong)])] {
            assert!(printed.contains(&format!("invalid value '{wrong}' for '{flag}")), "{printed}");
        }
    }
    // A flag that has a variable is listed with the name of its value.
    let help = Command::new(env!("CARGO_BIN_EXE_promlet")).env_clear().args(["serve", "--help"]).output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("text");
    let mut flag = "";
    let mut variables = 0;
    for line in help.lines().map(str::trim) {
        if line.starts_with("--") {
            flag = line;
        }
        if line.contains("[env: PROMLET_") {
            variables += 1;
            assert!(flag.contains(" <"), "{flag} takes no value; {line}");
        }
    }
    assert!(variables > 40, "{variables} of:\n{help}");
}

#[test]
fn the_limits_of_a_query_follow_the_settings() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let few = [
        ("PROMLET_QUERY_MAX_SAMPLES", "10"),
        ("PROMLET_QUERY_CONCURRENCY", "1"),
        ("PROMLET_RATE_CABINET_RPS", "3"),
        ("PROMLET_QUERY_MAX_SERIES", "2"),
        ("PROMLET_MAX_SERIES_PER_ORG", "3"),
    ];
    let server = start(dir.path(), &few);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let now = Clock::System.now();
    let samples = (0..20).map(|step| Sample { at: now.plus_ms(-step * 1_000), value: 1.0 }).rev().collect();
    let written = server.write(&secret, &[(Labels::from_pairs([("__name__", "many")]), samples)]);
    assert_eq!(written.status, 204, "{}", written.body);
    let bearer = format!("Bearer {secret}");
    let ask = |expr: &str| {
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={expr}");
        server.get(&path, &[("Authorization", &bearer)])
    };
    assert_eq!(ask("many").status, 200);
    let dear = ask("count_over_time(many%5B1m%5D)");
    assert_eq!((dear.status, dear.json()["errorType"].as_str()), (422, Some("execution")), "{}", dear.body);
    // Two series of another name are stored, a third one exceeds the limit of the organisation.
    let several = |name: &str, series: usize| -> Vec<_> {
        let labels = |n: usize| Labels::from_pairs([("__name__", name.to_owned()), ("n", n.to_string())]);
        (0..series).map(|n| (labels(n), vec![Sample { at: now, value: 1.0 }])).collect()
    };
    let refused = server.write(&secret, &several("several", 3));
    assert_eq!((refused.status, refused.json()["errors"][0]["code"].as_str()), (400, Some("series_limit")));
    assert_eq!(ask("count(several)").status, 200);
    let dear = ask("count(%7B__name__=~%22.%2B%22%7D)");
    assert_eq!((dear.status, dear.json()["errorType"].as_str()), (422, Some("execution")), "{}", dear.body);
    assert!(dear.body.contains("finds 3 series, more than the 2"), "{}", dear.body);
    let limits = server.get("/api/v1/auth/me", &[("Cookie", &cookie)]);
    assert_eq!(limits.header("ratelimit-policy"), Some("\"cabinet\";q=3;w=1"));
}

#[test]
fn the_memory_of_samples_and_names_follows_the_setting() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let refused = |bytes: &str| {
        let env = [("PROMLET_HEAD_MEMORY_BYTES", bytes)];
        let output =
            command(&Start { args: &["serve"], dir: dir.path(), env: &env }).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for beyond in ["67108863", "1099511627777", "4GiB"] {
        let text = refused(beyond);
        assert!(text.contains("--head-memory-bytes"), "{beyond}: {text}");
    }
    // Names may use three times the remaining memory of half of the limit: 24 MiB of 64 MiB, which
    // are 6,100 label values of 4,000 bytes. A request is measured against the memory that remained
    // before it.
    let written = |env: &[(&str, &str)]| {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        let server = start(dir.path(), env);
        let (_, secret) = server.api_key(&server.sign_in());
        let now = Clock::System.now();
        let request = |first: u32| {
            let series = (first..first + 1_000).map(|n| {
                let labels =
                    [("__name__", "wide".to_owned()), ("value", format!("{n:04}{}", "x".repeat(3_996)))];
                (Labels::from_pairs(labels), vec![Sample { at: now, value: 1.0 }])
            });
            server.write(&secret, &series.collect::<Vec<_>>())
        };
        (0..9).map(|number| request(number * 1_000)).collect::<Vec<_>>()
    };
    let written_in_little = written(&[("PROMLET_HEAD_MEMORY_BYTES", "67108864")]);
    assert_eq!(written_in_little[0].status, 204, "{}", written_in_little[0].body);
    let last = &written_in_little[8];
    assert_eq!((last.status, last.json()["errors"][0]["code"].as_str()), (400, Some("memory_limit")));
    assert!(written(&[]).iter().all(|written| written.status == 204));
}

#[test]
fn the_master_key_comes_from_the_configured_source_and_no_other_key_opens_the_folder() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = start(dir.path(), &[("PROMLET_MASTER_KEY", KEY)]);
    let cookie = server.sign_in();
    assert!(!dir.path().join("master.key").exists(), "no key is stored in the folder");
    assert!(server.terminate().success());

    let file = dir.path().join("key elsewhere");
    std::fs::write(&file, KEY).expect("written");
    let file = file.to_str().expect("text");
    let mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(file, permissions).expect("ours");
    };
    mode(0o600);
    let server = start(dir.path(), &[("PROMLET_MASTER_KEY_FILE", file)]);
    assert_eq!(server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).status, 200, "the same key");
    assert!(server.terminate().success());
    let guessed =
        start(dir.path(), &[("PROMLET_MASTER_KEY_FILE", file), ("PROMLET_METRICS_TOKEN", "a short token")]);
    guessed.log_line("PROMLET_METRICS_TOKEN has less than 16 bytes");
    assert!(guessed.terminate().success());

    let refused = |env: &[(&str, &str)]| {
        let output = command(&Start { args: &["serve"], dir: dir.path(), env }).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let both = refused(&[("PROMLET_MASTER_KEY", KEY), ("PROMLET_MASTER_KEY_FILE", file)]);
    assert!(both.contains("both set"), "{both}");
    let short = refused(&[("PROMLET_MASTER_KEY", "AAECAw==")]);
    assert!(short.contains("32"), "{short}");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "\n").expect("written");
    let empty = refused(&[("PROMLET_METRICS_TOKEN_FILE", empty.to_str().expect("text"))]);
    assert!(empty.contains("empty is empty"), "{empty}");
    mode(0o644);
    let readable = refused(&[("PROMLET_MASTER_KEY_FILE", file)]);
    assert!(readable.contains("key elsewhere"), "{readable}");
    let other = refused(&[("PROMLET_MASTER_KEY", OTHER_KEY)]);
    assert!(other.to_lowercase().contains("key"), "{other}");
}
