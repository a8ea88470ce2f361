//! Administration without mail and without lock-out: the command line on a running server and on a
//! stopped folder, and a deletion that a crash interrupts.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, eventually, request};

const NEW: &str = "a rather long new phrase";

/// Runs the binary on a folder with `input` on standard input and none of this process's settings.
pub(crate) fn promlet(dir: &Path, args: &[&str], input: &str) -> Output {
    promlet_with(dir, &[], args, input)
}

/// Runs the binary as [`promlet`] does, with these variables.
pub(crate) fn promlet_with(dir: &Path, env: &[(&str, &str)], args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_promlet"))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_ARGON2", "64,1,1")
        .env("PROMLET_DATA_DIR", dir)
        .envs(env.iter().copied())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that reads nothing may already be gone.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn run_ok(dir: &Path, args: &[&str], input: &str) -> String {
    let output = promlet(dir, args, input);
    assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
pub(crate) fn run_json(dir: &Path, args: &[&str], input: &str) -> Json {
    let printed = run_ok(dir, &[args, &["--json"]].concat(), input);
    serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"))
}

/// Returns the error text of a refused command.
#[track_caller]
pub(crate) fn refused(dir: &Path, args: &[&str], input: &str) -> String {
    let output = promlet(dir, args, input);
    assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn log_in(server: &Server, email: &str, password: &str) -> u16 {
    let body = json!({ "email": email, "password": password });
    server.post_json("/api/v1/auth/login", &[], &body).status
}

fn samples() -> Vec<(Labels, Vec<Sample>)> {
    let now = Clock::System.now();
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "cli")]);
    vec![(labels, (0..50).map(|n| Sample { at: now.plus_ms(-1_000 * (50 - n)), value: 1.0 }).collect())]
}

#[test]
fn accounts_of_a_running_server_are_administered_over_its_socket() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (server, dir) = (Server::serve(dir.path()), dir.path());
    let socket = std::fs::metadata(dir.join("admin.sock")).expect("there").permissions().mode() & 0o777;
    assert_eq!(socket, 0o600);
    let made = run_ok(dir, &["user", "create", "bo@example.com", "--name", "Bo"], &format!("{NEW}\n"));
    assert!(made.contains("bo@example.com") && !made.contains(NEW), "{made}");
    assert_eq!(log_in(&server, "bo@example.com", NEW), 200);
    let list = run_json(dir, &["user", "list"], "");
    let rows = list["data"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    let bo = rows.iter().find(|row| row["email"] == "bo@example.com").expect("listed");
    assert_eq!(
        (&bo["is_admin"], &bo["has_password"], &bo["sessions"]),
        (&json!(false), &json!(true), &json!(1))
    );
    assert!(run_ok(dir, &["user", "list", "--search", "ADA"], "").contains(EMAIL));
    // Without a password, or with a weak one, nothing is created, and the error says what to do.
    assert!(refused(dir, &["user", "create", "x@example.com"], "").contains("standard input"));
    assert!(refused(dir, &["user", "create", "x@example.com"], "short\n").contains("8 characters"));
    assert!(
        refused(dir, &["user", "create", "bo@example.com"], &format!("{NEW}\n")).contains("has an account")
    );
    assert!(refused(dir, &["login-link", "x@example.com"], "").contains("promlet user list"));
    let link = run_json(dir, &["login-link", "bo@example.com"], "");
    assert!(link["url"].as_str().expect("a link").starts_with(&server.url), "{link}");
    // The newest link counts. It is alone on standard output, so that it can be piped.
    let url = run_ok(dir, &["login-link", "bo@example.com"], "");
    let url = url.trim_end();
    assert!(url.starts_with(&server.url) && !url.contains(char::is_whitespace), "{url}");
    let opened = request("GET", url, &[], None);
    assert_eq!(opened.status, 200, "{}", opened.body);
    let cookie = opened.session_cookie();
    assert_eq!(request("GET", url, &[], None).status, 401, "once");
    assert_eq!(server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).status, 200);
    let disabled = promlet(dir, &["user", "disable", "bo@example.com"], "");
    assert!(disabled.status.success() && text(&disabled.stderr).contains("its sessions have ended"));
    assert_eq!(server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).status, 401);
    assert_eq!(log_in(&server, "bo@example.com", NEW), 401);
    assert!(refused(dir, &["login-link", "bo@example.com"], "").contains("user enable"));
    run_ok(dir, &["user", "enable", "bo@example.com"], "");
    run_ok(dir, &["user", "set-password", "bo@example.com"], "yet another phrase\n");
    assert_eq!(
        (log_in(&server, "bo@example.com", NEW), log_in(&server, "bo@example.com", "yet another phrase")),
        (401, 200)
    );
    let reset = run_json(dir, &["user", "reset-2fa", "bo@example.com"], "");
    assert_eq!(reset["had_second_factor"], false);
    assert!(refused(dir, &["user", "disable", EMAIL], "").contains("last administrator"));
    run_ok(dir, &["user", "admin", "bo@example.com"], "");
    run_ok(dir, &["user", "admin", EMAIL, "--withdraw"], "");
    assert_eq!(run_json(dir, &["user", "list", "--search", EMAIL], "")["data"][0]["is_admin"], false);
}

/// A process list must never show a password.
#[test]
fn a_password_is_not_an_argument() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let output = promlet(dir.path(), &["user", "create", "a@b.c", "--password", NEW], "");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = promlet(dir.path(), &["token", "inspect", "eyJ"], "");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn organisations_keys_and_tokens_of_a_running_server() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (server, dir) = (Server::serve(dir.path()), dir.path());
    run_ok(dir, &["user", "create", "bo@example.com", "--no-password"], "");
    let made = run_json(dir, &["org", "create", "shop", "--owner", "bo@example.com", "--name", "Shop"], "");
    assert_eq!((&made["slug"], &made["owners"]), (&json!("shop"), &json!(["bo@example.com"])));
    assert!(refused(dir, &["org", "create", "api", "--owner", EMAIL], "").contains("api"));
    let people = run_json(dir, &["org", "member", "shop", EMAIL, "--role", "editor"], "");
    assert_eq!(people["data"].as_array().expect("rows").len(), 2);
    assert!(
        refused(dir, &["org", "member", "shop", "bo@example.com", "--role", "viewer"], "")
            .contains("last owner")
    );
    run_ok(dir, &["org", "member", "shop", EMAIL, "--role", "owner"], "");
    run_ok(dir, &["org", "member", "shop", "bo@example.com", "--remove"], "");
    assert!(run_ok(dir, &["org", "members", "shop"], "").contains("owner"));
    assert!(refused(dir, &["org", "member", "shop", EMAIL, "--role", "king"], "").contains("viewer, editor"));
    let invite = run_json(dir, &["org", "invite", "shop", "new@example.com", "--role", "admin"], "");
    let (_, token) = invite["url"].as_str().expect("a link").split_once("#token=").expect("a token");
    let joined =
        server.post_json("/api/v1/auth/invites/accept", &[], &json!({ "token": token, "password": NEW }));
    assert_eq!(joined.status, 201, "{}", joined.body);
    let key = run_json(dir, &["key", "create", ORG, "--name", "cli", "--scopes", "ingest,embed,read"], "");
    let (id, secret) = (key["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    assert!(matches!(server.write(secret, &samples()).status, 200 | 204));
    let keys = run_ok(dir, &["key", "list", ORG], "");
    assert!(keys.contains(id) && !keys.contains(secret), "{keys}");
    assert!(
        refused(dir, &["key", "create", ORG, "--name", "x", "--scopes", "embd"], "")
            .contains("ingest, read, embed or alerting")
    );
    let mut rated = vec!["key", "create", ORG, "--name", "rated", "--scopes", "ingest,embed,read"];
    rated.extend([
        "--read-rps",
        "5000",
        "--embed-rps",
        "50",
        "--ingest-rps",
        "20",
        "--samples-per-s",
        "7000000",
    ]);
    let rated = run_json(dir, &rated, "");
    let rates = (&rated["read"]["rate_limit_rps"], &rated["embed"]["rate_limit_rps"]);
    assert_eq!(rates, (&json!(5_000), &json!(50)));
    let rates = (&rated["ingest"]["rate_limit_rps"], &rated["ingest"]["samples_per_s"]);
    assert_eq!(rates, (&json!(20), &json!(7_000_000)));
    assert_eq!(key["ingest"]["samples_per_s"], 2_000_000);
    let beyond = ["key", "create", ORG, "--name", "x", "--scopes", "read", "--read-rps", "100001"];
    assert!(refused(dir, &beyond, "").contains("read.rate_limit_rps: must be 1 to 100000"));
    let useless = ["key", "create", ORG, "--name", "x", "--scopes", "ingest", "--read-rps", "50"];
    assert!(refused(dir, &useless, "").contains("this key does not have the scope read"));
    let minted = run_json(
        dir,
        &["token", "mint", ORG, "--key", id, "--ttl", "5m", "--ms", r#"{"metrics":["up"]}"#],
        "",
    );
    let token = minted["token"].as_str().expect("a token");
    let bearer = format!("Bearer {token}");
    let asked = format!("/api/v1/orgs/{ORG}/query/instant?metric=up");
    assert_eq!(server.get(&asked, &[("Authorization", &bearer)]).status, 200);
    let seen = run_json(dir, &["token", "inspect"], token);
    assert_eq!((&seen["valid"], &seen["claims"]["org"]), (&json!(true), &json!(ORG)));
    assert!(
        refused(dir, &["token", "mint", ORG, "--key", id, "--ttl", "2h"], "")
            .contains("ttl_s: must be 1 to 3600")
    );
    assert!(
        refused(dir, &["token", "mint", ORG, "--key", id, "--ms", r#"{"metric":[]}"#], "").contains("metric")
    );
    run_ok(dir, &["key", "revoke", ORG, id], "");
    assert_eq!(server.write(secret, &samples()).status, 401);
    assert_eq!(server.get(&asked, &[("Authorization", &bearer)]).status, 401);
    assert_eq!(run_json(dir, &["token", "inspect"], token)["valid"], false);
    assert!(refused(dir, &["key", "revoke", ORG, id], "").contains("promlet key list"));
    assert!(refused(dir, &["org", "delete", "shop"], "").contains("--yes"));
    let orgs = run_ok(dir, &["org", "list"], "");
    assert!(orgs.lines().next().expect("titles").contains("OWNERS") && orgs.contains("shop"), "{orgs}");
}

/// Waits until no file of organisation `number` is in the folder.
fn wait_until_gone(server: &Server, dir: &Path, number: u64) {
    let segments = dir.join(format!("segments/{number}"));
    let names = dir.join(format!("series/{number}.reg"));
    let failure = || format!("files of organisation {number} remain:\n{}", server.log());
    eventually(Duration::from_secs(60), failure, || (!segments.exists() && !names.exists()).then_some(()));
}

/// Writes samples of `acme` into segments and returns the secret of its key and its number.
fn with_segments(server: &Server, dir: &Path) -> (String, u64) {
    let key = run_json(dir, &["key", "create", ORG, "--name", "cli", "--scopes", "ingest,read"], "");
    let secret = key["secret"].as_str().expect("a secret").to_owned();
    assert!(matches!(server.write(&secret, &samples()).status, 200 | 204));
    run_ok(dir, &["seal"], "");
    let orgs = run_json(dir, &["org", "list"], "");
    let number = orgs["data"][0]["number"].as_u64().expect("a number");
    assert!(
        dir.join(format!("segments/{number}")).is_dir() && dir.join(format!("series/{number}.reg")).exists()
    );
    (secret, number)
}

#[test]
fn a_deleted_organisation_releases_its_space_while_the_server_runs() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (server, dir) = (Server::serve(dir.path()), dir.path());
    let (secret, number) = with_segments(&server, dir);
    let cookie = server.sign_in();
    let headers = [("Cookie", cookie.as_str()), ("Content-Type", "application/json")];
    let url = format!("{}/api/v1/orgs/{ORG}", server.url);
    let gone = request("DELETE", &url, &headers, Some(br#"{"confirm":"acme"}"#));
    assert_eq!(gone.status, 202, "{}", gone.body);
    assert_eq!(server.write(&secret, &samples()).status, 401);
    wait_until_gone(&server, dir, number);
    assert_eq!(run_json(dir, &["org", "list"], "")["data"], json!([]));
    assert_eq!(server.terminate().code(), Some(0));
    let checked = promlet(dir, &["check", "--deep", dir.to_str().expect("a path")], "");
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

/// An acknowledged deletion is completed: the process is killed right after the response, and the
/// next start continues.
#[test]
fn an_acknowledged_deletion_survives_kill_9() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    let server = Server::serve(dir);
    let (secret, number) = with_segments(&server, dir);
    run_ok(dir, &["org", "create", "other", "--owner", EMAIL], "");
    let other = run_json(dir, &["key", "create", "other", "--name", "o", "--scopes", "ingest,read"], "");
    let other = other["secret"].as_str().expect("a secret").to_owned();
    let cookie = server.sign_in();
    let headers = [("Cookie", cookie.as_str()), ("Content-Type", "application/json")];
    let url = format!("{}/api/v1/orgs/{ORG}", server.url);
    assert_eq!(request("DELETE", &url, &headers, Some(br#"{"confirm":"acme"}"#)).status, 202);
    server.kill();
    let server = Server::start(&Start { args: &["serve"], dir, env: &[] });
    assert_eq!(server.write(&secret, &samples()).status, 401);
    let cookie = server.sign_in();
    let cookie = [("Cookie", cookie.as_str())];
    assert_eq!(server.get(&format!("/api/v1/orgs/{ORG}"), &cookie).status, 404);
    assert_eq!(server.post_json("/api/v1/orgs", &cookie, &json!({ "slug": ORG })).code(), "slug_taken");
    wait_until_gone(&server, dir, number);
    let made = server.post_json("/api/v1/orgs", &cookie, &json!({ "slug": "third" }));
    assert_eq!(made.status, 201, "{}", made.body);
    let mount = format!("{}/api/v1/orgs/other/prometheus/api/v1/labels", server.url);
    assert_eq!(request("GET", &mount, &[("Authorization", &format!("Bearer {other}"))], None).status, 200);
    assert_eq!(server.terminate().code(), Some(0));
}

/// The folder of a stopped server is administered directly. The part that concerns samples waits
/// for the next start.
#[test]
fn a_stopped_folder_is_administered_directly() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    let server = Server::serve(dir);
    let (secret, number) = with_segments(&server, dir);
    assert_eq!(server.terminate().code(), Some(0));
    run_ok(dir, &["user", "create", "bo@example.com"], &format!("{NEW}\n"));
    run_ok(dir, &["user", "set-password", EMAIL], "quite another phrase\n");
    let link = run_json(dir, &["login-link", "bo@example.com"], "");
    assert!(link["url"].as_str().expect("a link").starts_with("http://127.0.0.1:8095/api/v1/auth/"));
    // Names with control or invisible characters are refused, as everywhere.
    for args in [
        &["user", "create", "eve@example.com", "--no-password", "--name", "Eve\u{1b}[2J"][..],
        &["user", "create", "ev\u{200b}e@example.com", "--no-password"],
        &["org", "create", "eve", "--owner", "bo@example.com", "--name", "\u{202e}eve"],
        &["key", "create", ORG, "--scopes", "read", "--name", "\u{200d}"],
    ] {
        assert!(refused(dir, args, "").contains("visible"), "{args:?}");
    }
    run_ok(dir, &["org", "create", "shop", "--owner", "bo@example.com"], "");
    let deleted = run_json(dir, &["org", "delete", ORG, "--yes"], "");
    assert_eq!(deleted["data_is_removed"], "with the next start");
    assert!(dir.join(format!("segments/{number}")).is_dir());
    assert_eq!(run_json(dir, &["org", "list"], "")["data"].as_array().expect("rows").len(), 1);
    let server = Server::start(&Start { args: &["serve"], dir, env: &bootstrap() });
    assert_eq!(
        (log_in(&server, EMAIL, PASSWORD), log_in(&server, EMAIL, "quite another phrase")),
        (401, 200)
    );
    assert_eq!(log_in(&server, "bo@example.com", NEW), 200);
    assert_eq!(server.write(&secret, &samples()).status, 401);
    wait_until_gone(&server, dir, number);
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn dashboards_are_imported_listed_exported_and_part_of_a_backup() {
    let (dir, files) = (
        crate::harness::scratch::temporary_folder().expect("a folder"),
        crate::harness::scratch::temporary_folder().expect("a folder"),
    );
    let good = files.path().join("good.json");
    let document = r#"{ "uid": "hosts",  "title":"Hosts","tags":["linux"], "unknown": 1.50,
        "panels": [{"type":"stat","targets":[{"expr":"up"}]}] }"#;
    std::fs::write(&good, document).expect("written");
    let bad = files.path().join("bad.json");
    std::fs::write(&bad, "{\"title\": \"Broken\",\n \"panels\": 7}").expect("written");
    let (good, bad) = (good.to_str().expect("plain"), bad.to_str().expect("plain"));
    run_ok(dir.path(), &["dashboard", "check", good], "");
    assert!(refused(dir.path(), &["dashboard", "check", good, bad], "").contains("1 of 2 files"));

    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    let import = ["dashboard", "import", "--org", ORG, "--folder", "Infra", good];
    assert!(run_ok(dir.path(), &import, "").contains("hosts"));
    assert!(refused(dir.path(), &import, "").contains("already has a dashboard with the uid hosts"));
    let why = refused(dir.path(), &["dashboard", "import", "--org", ORG, bad], "");
    assert!(why.contains("bad.json") && why.contains("line 2"), "{why}");
    let again = [&import[..], &["--overwrite"]].concat();
    run_ok(dir.path(), &again, "");
    let listed = run_json(dir.path(), &["dashboard", "list", "--org", ORG], "");
    let [row] = listed["data"].as_array().expect("a list").as_slice() else { panic!("{listed}") };
    assert_eq!((&row["uid"], &row["version"], &row["folder"]), (&json!("hosts"), &json!(2), &json!("Infra")));
    let export = ["dashboard", "export", "--org", ORG, "hosts"];
    assert_eq!(run_ok(dir.path(), &export, "").trim_end(), document);

    // A backup of the running server has them, and a stopped folder is read without a server.
    let backup = files.path().join("backup");
    run_ok(dir.path(), &["backup", "--with-key", backup.to_str().expect("plain")], "");
    server.kill();
    let restored = files.path().join("restored");
    let both = [&restored, &backup].map(|path| path.to_str().expect("plain"));
    run_ok(files.path(), &["restore", both[0], both[1]], "");
    for folder in [dir.path(), &restored] {
        assert_eq!(run_ok(folder, &export, "").trim_end(), document);
    }
    let gone = refused(dir.path(), &["dashboard", "export", "--org", ORG, "other"], "");
    assert!(gone.contains("no such dashboard"), "{gone}");
}

#[test]
fn a_folder_without_a_store_is_left_alone() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let printed = refused(dir.path(), &["user", "list"], "");
    assert!(printed.contains("--data-dir"), "{printed}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
}

#[test]
fn the_doctor_reports_what_is_wrong_and_what_to_do() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).expect("set");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound").to_string();
    let examine = |more: &[&str]| {
        let output = promlet(dir, &[&["doctor", "--json", "--listen", &address], more].concat(), "");
        let found: Json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        (output.status.code().expect("a code"), found)
    };
    let part = |found: &Json, part: &str| -> Json {
        let rows = found["found"].as_array().expect("rows");
        rows.iter().find(|row| row["part"] == part).cloned().unwrap_or_default()
    };
    let (code, found) = examine(&[]);
    assert_eq!((code, &part(&found, "port")["health"]), (2, &json!("broken")), "in use: {found}");
    drop(free);
    let (_, found) = examine(&[]);
    assert_eq!(part(&found, "port")["health"], "ok");
    for good in ["folder", "key", "clock", "url", "mail", "embed"] {
        assert_eq!(part(&found, good)["health"], "ok", "{found}");
    }
    let server = Server::serve(dir);
    assert!(part(&examine(&[]).1, "server")["says"].as_str().expect("words").contains("runs"));
    assert!(part(&examine(&[]).1, "accounts")["says"].as_str().expect("words").contains("1 accounts"));
    assert_eq!(server.terminate().code(), Some(0));
    std::fs::set_permissions(dir.join("master.key"), std::fs::Permissions::from_mode(0o644)).expect("set");
    let (code, found) = examine(&[]);
    let key = part(&found, "key");
    assert_eq!((code, &key["health"]), (2, &json!("broken")));
    assert!(key["next"].as_str().expect("words").contains("chmod 600"));
    std::fs::set_permissions(dir.join("master.key"), std::fs::Permissions::from_mode(0o600)).expect("set");
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("set");
    let (code, found) = examine(&["--public-url", "http://metrics.lan"]);
    assert!(code >= 1, "{found}");
    assert_eq!(
        (&part(&found, "folder")["health"], &part(&found, "url")["health"]),
        (&json!("look"), &json!("look"))
    );
    let people = promlet(dir, &["doctor", "--listen", &address], "");
    assert!(text(&people.stdout).contains("-> chmod 700"), "{}", text(&people.stdout));
}

#[test]
fn a_server_whose_socket_was_removed_ends_when_it_is_told_to() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    std::fs::remove_file(dir.path().join("admin.sock")).expect("it was there");
    assert!(server.terminate().success());
}
