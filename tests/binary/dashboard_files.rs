//! Dashboards from files (`--dashboards`): read at the start, changed while the server runs, and
//! read-only for everyone.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, command, eventually, request};

const WAIT: Duration = Duration::from_secs(30);

fn start(dir: &Path, files: &Path) -> Server {
    let mut env = bootstrap().to_vec();
    env.push(("PROMLET_DASHBOARDS", files.to_str().expect("plain")));
    Server::start(&Start { args: &["serve"], dir, env: &env })
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.env_clear().env("PROMLET_DATA_DIR", dir).args(args).output().expect("it runs")
}

fn place(uid: &str) -> String {
    format!("/api/v1/orgs/{ORG}/dashboards/{uid}")
}

/// Waits until a dashboard has this status and its response this text.
#[track_caller]
fn wait_for(server: &Server, cookie: &str, uid: &str, status: u16, text: &str) -> Answer {
    let get = || server.get(&place(uid), &[("Cookie", cookie)]);
    let failure = || format!("{uid} is not {status} with {text}: {:?}\n{}", get(), server.log());
    eventually(WAIT, failure, || Some(get()).filter(|got| got.status == status && got.body.contains(text)))
}

#[test]
fn files_are_shown_followed_and_never_changed() {
    let (dir, files) = (
        crate::harness::scratch::temporary_folder().expect("a folder"),
        crate::harness::scratch::temporary_folder().expect("a folder"),
    );
    let hosts = files.path().join("hosts.json");
    fs::write(&hosts, r#"{"uid":"hosts", "title":"Hosts","n":1.50}"#).expect("written");
    fs::create_dir_all(files.path().join("Infra/Disks")).expect("created");
    fs::write(files.path().join("Infra/Disks/d.json"), r#"{"uid":"disks","title":"Disks"}"#)
        .expect("written");
    fs::write(files.path().join("broken.json"), "{\"title\":\n oops}").expect("written");
    let server = start(dir.path(), files.path());
    let cookie = server.sign_in();
    let own = [("Cookie", &*cookie), ("Content-Type", "application/json"), ("If-Match", "*")];
    let send = |method, path: &str, body: Option<&str>| {
        request(method, &format!("{}{path}", server.url), &own, body.map(str::as_bytes))
    };

    // The first request sees them, and the log names the broken one with its line.
    let first = server.get(&place("hosts"), &[("Cookie", &cookie)]);
    assert!(first.body.contains(r#""dashboard":{"uid":"hosts", "title":"Hosts","n":1.50}"#), "{first:?}");
    assert_eq!(first.json()["provisioned"], json!(true));
    assert_eq!(server.get(&place("disks"), &[("Cookie", &cookie)]).json()["folder"], "Infra/Disks");
    let log = server.log_line("broken.json");
    assert!(log.contains("broken.json expected value at line 2 column 2"), "{log}");
    let metrics = server.get("/metrics", &[]).body;
    assert!(metrics.contains("\npromlet_dashboard_files 2\n"), "{metrics}");
    assert!(metrics.contains("\npromlet_dashboard_files_failed 1\n"), "{metrics}");

    // They are read-only, and can be starred and exported.
    let body = r#"{"dashboard":{"title":"Mine"}}"#;
    assert_eq!(send("PUT", &place("hosts"), Some(body)).code(), "provisioned");
    assert_eq!(send("DELETE", &place("hosts"), None).code(), "provisioned");
    let versions = server.get(&format!("{}/versions", place("hosts")), &[("Cookie", &cookie)]);
    assert_eq!(versions.json()["data"], json!([]));
    assert_eq!(send("PUT", &format!("{}/star", place("hosts")), None).status, 204);
    let all = format!("/api/v1/orgs/{ORG}/dashboards?starred=true");
    assert_eq!(server.get(&all, &[("Cookie", &cookie)]).json()["data"][0]["uid"], "hosts");
    let exported = run(dir.path(), &["dashboard", "export", "--org", ORG, "hosts"]);
    let exported = String::from_utf8(exported.stdout).expect("text");
    assert_eq!(exported.trim_end(), r#"{"uid":"hosts", "title":"Hosts","n":1.50}"#);
    let listed = run(dir.path(), &["dashboard", "list", "--org", ORG, "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!((&listed["data"][0]["uid"], &listed["data"][1]["uid"]), (&json!("disks"), &json!("hosts")));

    // A change, a new file, a broken change, its repair, and the end of a file.
    fs::write(&hosts, r#"{"uid":"hosts","title":"Hosts 2"}"#).expect("written");
    let changed = wait_for(&server, &cookie, "hosts", 200, "Hosts 2");
    assert_ne!(first.header("etag"), changed.header("etag"));
    fs::write(files.path().join("new.json"), r#"{"uid":"new","title":"New"}"#).expect("written");
    wait_for(&server, &cookie, "new", 200, "New");
    fs::write(&hosts, "{\"uid\":\"hosts\",\n\"title\":7}").expect("written");
    let log = server.log_line("its last good version is kept");
    assert!(log.contains("hosts.json invalid type: integer `7`, expected a string at line 2"), "{log}");
    wait_for(&server, &cookie, "hosts", 200, "Hosts 2");
    fs::write(&hosts, r#"{"uid":"hosts","title":"Hosts 3"}"#).expect("written");
    wait_for(&server, &cookie, "hosts", 200, "Hosts 3");
    fs::remove_file(&hosts).expect("removed");
    wait_for(&server, &cookie, "hosts", 404, "not_found");
    assert_eq!(server.log().matches("broken.json expected").count(), 1, "{}", server.log());
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_missing_folder_of_dashboards_refuses_the_start() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let missing = dir.path().join("no-such-folder");
    let store = dir.path().join("store");
    let args = ["serve", "--dashboards", missing.to_str().expect("plain")];
    let output = command(&Start { args: &args, dir: &store, env: &bootstrap() }).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("no-such-folder") && errors.contains("--dashboards names it"), "{errors}");
    assert!(!store.exists(), "a refused start creates nothing");
}

#[test]
fn a_check_of_a_folder_judges_as_the_server_does() {
    let files = crate::harness::scratch::temporary_folder().expect("a folder");
    fs::write(files.path().join("a.json"), r#"{"uid":"x","title":"A"}"#).expect("written");
    fs::create_dir(files.path().join("sub")).expect("created");
    fs::write(files.path().join("sub/b.json"), r#"{"uid":"x","title":"B"}"#).expect("written");
    let check = |path: &Path| run(files.path(), &["dashboard", "check", path.to_str().expect("plain")]);
    assert!(check(&files.path().join("sub/b.json")).status.success(), "alone it is right");
    let whole = check(files.path());
    assert!(!whole.status.success());
    let printed = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(printed.contains("has the uid x of a.json"), "{printed}");
    assert!(String::from_utf8_lossy(&whole.stderr).contains("1 of 2 files"), "{whole:?}");
}
