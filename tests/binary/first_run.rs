//! A new folder, the first account, a second process, shutdown.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, command};

#[test]
fn the_bootstrap_account_signs_in_and_its_variables_are_ignored_afterwards() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let me = server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).json();
    assert_eq!(me["user"]["is_admin"], true);
    assert_eq!(me["orgs"][0]["slug"], ORG);
    assert_eq!(me["orgs"][0]["role"], "owner");
    assert!(server.terminate().success(), "SIGTERM ends it with 0");

    let other = [
        ("PROMLET_BOOTSTRAP_EMAIL", "eve@example.com"),
        ("PROMLET_BOOTSTRAP_PASSWORD", "another long password"),
        ("PROMLET_BOOTSTRAP_ORG", "evil"),
    ];
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &other });
    let eve = server.post_json(
        "/api/v1/auth/login",
        &[],
        &json!({"email": "eve@example.com", "password": "another long password"}),
    );
    assert_eq!((eve.status, eve.code().as_str()), (401, "invalid_credentials"));
    let me = server.get("/api/v1/auth/me", &[("Cookie", &cookie)]);
    assert_eq!(me.status, 200, "a session outlives a restart: {}", me.body);
}

#[test]
fn without_bootstrap_a_one_time_setup_link_is_printed_and_creates_the_first_account() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::start(&Start { args: &[], dir: dir.path(), env: &[] });
    let log = server.log_line("/setup#token=");
    let token = log
        .split("/setup#token=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_else(|| panic!("no setup link in:\n{log}"));
    let config = server.get("/api/v1/auth/config", &[]).json();
    assert_eq!(config["needs_setup"], true);

    let account = |token: &str| json!({"setup_token": token, "email": EMAIL, "password": PASSWORD, "org": {"slug": ORG}});
    let forwarded = [("X-Forwarded-For", "203.0.113.9")];
    let refused = server.post_json("/api/v1/auth/signup", &forwarded, &account("wrong"));
    assert_eq!((refused.status, refused.code().as_str()), (403, "setup_token_required"), "{}", refused.body);
    let made = server.post_json("/api/v1/auth/signup", &forwarded, &account(token));
    assert_eq!(made.status, 201, "{}", made.body);
    let again = server.post_json("/api/v1/auth/signup", &[], &account(token));
    assert_eq!((again.status, again.code().as_str()), (403, "signup_closed"), "{}", again.body);
    assert_eq!(server.get("/api/v1/auth/config", &[]).json()["needs_setup"], false);
    server.sign_in();
}

#[test]
fn a_second_process_on_the_same_folder_is_refused_and_names_the_first() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let second =
        command(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() }).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(printed.contains(&server.pid().to_string()), "{printed}");
    assert_eq!(server.get("/healthz", &[]).body.trim(), "ok");
}

#[test]
fn a_folder_that_cannot_be_created_ends_the_start_with_one_line() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "no folder").expect("written");
    let below = file.join("store");
    let output = command(&Start { args: &["serve"], dir: &below, env: &bootstrap() }).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.lines().count() == 1 && printed.contains(&*below.to_string_lossy()), "{printed}");
}

#[test]
fn a_second_signal_does_not_wait_for_a_request_that_never_ends() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let address = server.url.strip_prefix("http://").expect("http");
    let mut half = TcpStream::connect(address).expect("it listens");
    let head = "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).expect("sent");
    // The response comes after the half request was read: connections are accepted in order.
    assert_eq!(server.get("/healthz", &[]).status, 200);
    server.signal("TERM");
    server.log_line("stopping");
    let status = server.terminate();
    assert_eq!(status.code(), Some(1), "not the code of a clean end");
    let server = Server::serve(dir.path());
    server.sign_in();
}

#[test]
fn an_unknown_flag_exits_with_two_and_help_with_zero() {
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_promlet")).args(args).env_clear().output().expect("it runs")
    };
    let wrong = run(&["--no-such-flag"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty());
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("demo"));
}

#[test]
fn mail_that_cannot_be_sent_is_reported_and_does_not_affect_readiness() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let own = [("PROMLET_SMTP_URL", "smtp://127.0.0.1:1"), ("PROMLET_MAIL_FROM", "promlet@example.com")];
    let env: Vec<_> = bootstrap().into_iter().chain(own).collect();
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
    assert_eq!(server.get("/readyz", &[]).json()["checks"]["mailer"], "ok", "no mail was sent yet");
    let asked = server.post_json("/api/v1/auth/magic-link/request", &[], &json!({ "email": EMAIL }));
    assert_eq!(asked.status, 202, "{}", asked.body);
    server.log_line("a mail was not sent and is tried again");
    let ready = server.get("/readyz", &[]);
    assert_eq!((ready.status, &ready.json()["status"]), (200, &json!("degraded")), "{}", ready.body);
    let printed = ready.json()["checks"]["mailer"].clone();
    assert_eq!(printed, "mail cannot be sent at the moment, 1 waiting; see the log");
    assert!(server.terminate().success(), "a stop waits for no mail server");
}

#[test]
fn a_mail_server_without_required_tls_is_a_warning() {
    let from = ("PROMLET_MAIL_FROM", "promlet@example.com");
    for url in [
        "SMTP://u:p@mail.example.org:587?tls=opportunistic",
        "smtp://u:p@mail.example.org:587?tls=opportunistic&tls=required",
        "smtp://localhost.example.org:587",
    ] {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        let env: Vec<_> = bootstrap().into_iter().chain([("PROMLET_SMTP_URL", url), from]).collect();
        let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
        server.log_line("PROMLET_SMTP_URL does not require TLS");
        assert!(server.terminate().success(), "{url}");
    }
}

#[test]
fn health_and_metrics_are_served_on_loopback() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let ready = server.get("/readyz", &[]);
    let checks =
        json!({ "storage": "ok", "accounts": "ok", "session_flush": "ok", "tasks": "ok", "mailer": "ok" });
    let mut printed = ready.json();
    // The machine's disk may be nearly full, which is reported but not a fault of the server.
    let notes = printed.as_object_mut().expect("an object").remove("notes").unwrap_or_else(|| json!([]));
    let notes: Vec<String> =
        notes.as_array().expect("a list").iter().map(std::string::ToString::to_string).collect();
    assert!(notes.iter().all(|note| note.contains("bytes are free on the disk")), "{notes:?}");
    let status = if notes.is_empty() { "ok" } else { "degraded" };
    assert_eq!(printed, json!({ "status": status, "checks": checks }));
    let metrics = server.get("/metrics", &[]);
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.contains("# TYPE promlet_"), "{}", metrics.body);
    let proxied = server.get("/metrics", &[("X-Forwarded-For", "203.0.113.9")]);
    assert_eq!(proxied.status, 401, "not through a proxy");
}

/// Returns the bytes that a folder takes on disk, without the reserve for a full disk.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("read").path());
    let bytes = entries.filter(|path| path.file_name().is_some_and(|name| name != "reserve")).map(|path| {
        let found = std::fs::symlink_metadata(&path).expect("there");
        found.blocks() * 512 + if found.is_dir() { disk_bytes(&path) } else { 0 }
    });
    bytes.sum()
}

#[test]
fn a_new_and_an_idle_server_use_little_disk_and_memory() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    for start in ["fresh", "once more"] {
        let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
        server.sign_in();
        let disk = disk_bytes(dir.path());
        assert!(disk < 8 << 20, "{start}: {disk} bytes");
        // Anonymous memory only: pages of the test binary are larger than those of the release
        // binary.
        let anon = server.status_bytes("RssAnon");
        assert!(anon < 12 << 20, "{start}: {anon} bytes");
        assert!(server.terminate().success());
        let disk = disk_bytes(dir.path());
        assert!(disk < 8 << 20, "{start}, stopped: {disk} bytes");
    }
}
