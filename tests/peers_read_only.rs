//! A file system that becomes read-only under the running server, as after an I/O error, and one
//! that is mounted read-only: no 2xx without durable data, no panic, and all acknowledged data is
//! there later.
//!
//! Needs root and loop devices, and fails without them.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/loop_disk.rs"]
#[expect(dead_code, reason = "shared with tests/peers_full_disk.rs")]
mod loop_disk;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use harness::{ORG, Server, Start, bootstrap, command};
use loop_disk::LoopDisk;
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

/// Writes a sample `step` seconds after `base` and returns the status.
fn write(server: &Server, secret: &str, base: Timestamp, step: i64) -> u16 {
    let labels = Labels::from_pairs([("__name__", "steady")]);
    let sample = Sample { at: base.plus_ms(step * 1_000), value: step as f64 };
    server.write(secret, &[(labels, vec![sample])]).status
}

/// Every sample of the last hour, by seconds after `base`.
fn read(server: &Server, cookie: &str, base: Timestamp) -> BTreeMap<i64, String> {
    let data = server.ask(cookie, "steady[1h]", &Clock::System.now().as_s().to_string());
    let values = data["result"][0]["values"].as_array().into_iter().flatten();
    #[expect(clippy::cast_possible_truncation, reason = "a second of this century")]
    let second = |pair: &serde_json::Value| pair[0].as_f64().expect("a time").round() as i64 - base.as_s();
    values.map(|pair| (second(pair), pair[1].as_str().expect("a text").to_owned())).collect()
}

fn written(steps: std::ops::Range<i64>) -> BTreeMap<i64, String> {
    steps.map(|step| (step, step.to_string())).collect()
}

/// Runs a start that must fail with one line and exit code 1. Returns its standard error.
fn refused(dir: &Path) -> String {
    let output = command(&Start { args: &["serve"], dir, env: &bootstrap() }).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("promlet: ")).count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// The exit code of a check, and its report.
fn check(dir: &Path) -> (Option<i32>, String) {
    let mut check = Command::new(env!("CARGO_BIN_EXE_promlet"));
    check.env_clear().args(["check", "--deep"]).arg(dir);
    let output = check.output().expect("runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_file_system_that_becomes_read_only_stops_writes_and_nothing_else_and_a_read_only_one_ends_a_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = LoopDisk::make(dir.path(), 1 << 30);
    let store = disk.mount.join("store");
    let start = || Server::start(&Start { args: &["serve"], dir: &store, env: &bootstrap() });
    let server = start();
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    for step in 0..50 {
        assert_eq!(write(&server, &secret, base, step), 204);
        if step == 25 {
            let sealed = server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &json!({}));
            assert_eq!(sealed.status, 200, "{}", sealed.body);
        }
    }
    disk.break_down();
    for step in 50..60 {
        assert_eq!(write(&server, &secret, base, step), 503, "{}", server.log());
    }
    let keys = format!("/api/v1/orgs/{ORG}/api-keys");
    let made = server.post_json(&keys, &[("Cookie", &cookie)], &json!({"name": "late", "scopes": ["read"]}));
    assert_eq!((made.status, made.code().as_str()), (503, "storage_degraded"), "{}", made.body);
    let sealed = server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &json!({}));
    assert!(sealed.status >= 500, "{}", sealed.body);
    assert_eq!(server.get("/healthz", &[]).status, 200);
    let ready = server.get("/readyz", &[]);
    assert!(ready.status == 503 && ready.body.contains("restart"), "{}", ready.body);
    assert_eq!(read(&server, &cookie, base), written(0..50), "reading goes on");
    let keys_now = server.get(&keys, &[("Cookie", &cookie)]).json();
    assert_eq!(keys_now["data"].as_array().map(Vec::len), Some(1), "{keys_now}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
    // No clean stop, and it does end: by saying so, whatever sled does where it cannot write.
    assert_eq!(server.terminate().code(), Some(1));

    // As the operator finds it after a restart of the machine: mounted, and read-only.
    disk.mount_again("loop,ro");
    let said = refused(&store);
    assert!(said.contains("Read-only file system"), "{said}");
    let said = refused(&disk.mount.join("new/store"));
    assert!(said.contains("Read-only file system"), "{said}");
    // A check needs no write access there. The copy of the registry was not synced when the disk
    // failed.
    let (code, report) = check(&store);
    assert!(code == Some(1) && report.contains("series/1.copy"), "{report}");
    assert!(report.contains("nothing acknowledged is lost"), "{report}");
    disk.mount_again("loop,rw");
    let server = start();
    assert_eq!(read(&server, &cookie, base), written(0..50), "and nothing that was answered is lost");
    assert_eq!(write(&server, &secret, base, 60), 204);
    let keys_now = server.get(&keys, &[("Cookie", &cookie)]).json();
    let names = keys_now["data"].as_array().expect("a list").iter().map(|key| key["name"].clone());
    assert!(names.eq([json!("test")]), "{keys_now}");
    assert!(server.terminate().success());
    assert_eq!(check(&store).0, Some(0));
}
