//! A full disk: an ext4 in a file, mounted through a loop device and filled by another file.
//!
//! Writes of samples fail with 503 and a stable code, queries and account changes continue, freed
//! space is detected automatically, and no acknowledged data is lost. Needs root and loop devices,
//! and fails without them.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/loop_disk.rs"]
#[expect(dead_code, reason = "shared with tests/peers_read_only.rs")]
mod loop_disk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{Answer, ORG, Server, Start, bootstrap, request};
use loop_disk::LoopDisk;
use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

/// How long the server may take to notice that there is room again.
const PATIENCE: Duration = Duration::from_secs(90);
/// What the server sets aside for account changes, and gives up on a full disk.
const RESERVE_BYTES: u64 = 16 << 20;
/// Samples of a request.
const SAMPLES: i64 = 2_000;

struct Writer {
    base: Timestamp,
    next: i64,
    stored: BTreeSet<i64>,
}

fn value_of(step: i64, n: i64) -> f64 {
    // Without a pattern: eight bytes each.
    f64::from_bits(((step * SAMPLES + n) as u64 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2)
}

impl Writer {
    /// One request: a sample of each of many series at the next millisecond.
    fn write(&mut self, server: &Server, secret: &str) -> Answer {
        let step = self.next;
        let series: Vec<_> = (0..SAMPLES)
            .map(|n| {
                let labels = Labels::from_pairs([("__name__", "full".to_owned()), ("n", n.to_string())]);
                (labels, vec![Sample { at: self.base.plus_ms(step), value: value_of(step, n) }])
            })
            .collect();
        let answer = server.write(secret, &series);
        if answer.status == 204 {
            self.stored.insert(step);
        }
        // What got no 204 is not sent again: that it may be there is fine.
        self.next += 1;
        answer
    }

    fn check(&self, server: &Server, cookie: &str) {
        for n in [0, 77, SAMPLES - 1] {
            let now = Clock::System.now().as_s().to_string();
            let data = server.ask(cookie, &format!("full{{n=\"{n}\"}}[1h]"), &now);
            let mut found = BTreeSet::new();
            for pair in data["result"][0]["values"].as_array().into_iter().flatten() {
                #[expect(clippy::cast_possible_truncation, reason = "a time of this century in milliseconds")]
                let step = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64 - self.base.as_ms();
                let value: f64 = pair[1].as_str().expect("a text").parse().expect("a number");
                assert!(step < self.next && value == value_of(step, n), "invented {step}={value}");
                found.insert(step);
            }
            let lost: Vec<_> = self.stored.difference(&found).collect();
            assert!(lost.is_empty(), "{} answered samples lost: {lost:?}", lost.len());
        }
    }
}

fn serve(store: &Path) -> Server {
    Server::start(&Start { args: &["serve", "--checkpoint-every", "200ms"], dir: store, env: &bootstrap() })
}

fn half_made(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("read").path()) {
        let is_new = entry.extension().is_some_and(|ending| ending == "new");
        if entry.is_dir() {
            found.extend(half_made(&entry));
        } else if is_new {
            found.push(entry);
        }
    }
    found
}

fn change_accounts(server: &Server, cookie: &str) {
    let keys = format!("/api/v1/orgs/{ORG}/api-keys");
    for n in 0..6 {
        let body = json!({"name": format!("key {n}"), "scopes": ["read"]});
        let made = server.post_json(&keys, &[("Cookie", cookie)], &body);
        assert_eq!(made.status, 201, "account changes go on: {}", made.body);
        let path = format!("{}{keys}/{}", server.url, made.json()["id"].as_str().expect("an id"));
        let gone = request("DELETE", &path, &[("Cookie", cookie)], None);
        assert_eq!(gone.status, 204, "{}", gone.body);
    }
}

#[test]
fn a_full_disk_stops_samples_alone_and_is_over_when_there_is_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = LoopDisk::make(dir.path(), 3 << 30);
    let store = disk.mount.join("store");
    let server = serve(&store);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let mut writer = Writer { base, next: 0, stored: BTreeSet::new() };
    for round in 0..3 {
        for _ in 0..20 {
            let answer = writer.write(&server, &secret);
            assert_eq!(answer.status, 204, "round {round}: {}", answer.body);
        }
        // To the threshold, or to the last block, while a seal is at work.
        std::thread::scope(|scope| {
            let seal = scope
                .spawn(|| server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &json!({})).status);
            disk.fill(if round == 0 { 250 << 20 } else { 0 });
            let status = seal.join().expect("answered");
            println!("round {round}: a seal beside it says {status}, {} bytes are free", disk.free());
        });
        // The audit entry of the seal may need the reserve while the ballast still grows and takes
        // that as well.
        if !store.join("reserve").exists() && disk.free() < RESERVE_BYTES {
            disk.free_of_ballast(RESERVE_BYTES);
        }
        let refused = (0..3_000).map(|_| writer.write(&server, &secret)).find(|answer| answer.status != 204);
        let refused = refused.expect("the log has no room for ever");
        assert_eq!((refused.status, refused.code().as_str()), (503, "storage_degraded"), "{}", refused.body);
        assert!(refused.header("Retry-After").is_some(), "{:?}", refused.headers);
        let ready = server.get("/readyz", &[]);
        assert!(ready.status == 503 && ready.body.contains("disk"), "{}", ready.body);
        writer.check(&server, &cookie);
        change_accounts(&server, &cookie);
        disk.make_room();
        let begun = Stopwatch::start();
        loop {
            let answer = writer.write(&server, &secret);
            if answer.status == 204 {
                break;
            }
            assert_eq!(answer.status, 503, "{}", answer.body);
            assert!(begun.elapsed() < PATIENCE, "it does not notice that there is room: {}", server.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("round {round}: {} requests stored", writer.stored.len());
        writer.check(&server, &cookie);
        // The next account change, or a timer within a minute, restores the reserve.
        change_accounts(&server, &cookie);
    }
    assert_eq!(server.get("/readyz", &[]).status, 200);
    let sealed = server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &json!({}));
    assert_eq!(sealed.status, 200, "{}", sealed.body);
    assert_eq!(half_made(&store.join("segments")), Vec::<PathBuf>::new());
    // Another program takes the reserve as well: changes are refused, and succeed again once there
    // is space, without a restart.
    disk.fill(0);
    change_accounts(&server, &cookie);
    disk.fill(0);
    let body = json!({"name": "one too many", "scopes": ["read"]});
    let refused = server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)], &body);
    assert_eq!((refused.status, refused.code().as_str()), (503, "storage_degraded"), "{}", refused.body);
    writer.check(&server, &cookie);
    disk.make_room();
    change_accounts(&server, &cookie);
    disk.fill(0);
    server.kill();
    // A start on a full disk reads; with room it is as before.
    disk.make_room();
    let server = serve(&store);
    writer.check(&server, &cookie);
    assert_eq!(writer.write(&server, &secret).status, 204);
    assert!(server.terminate().success());
    let check = Command::new(env!("CARGO_BIN_EXE_promlet"))
        .env_clear()
        .args(["check", "--deep"])
        .arg(&store)
        .output()
        .expect("runs");
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stdout));
    let listed = serve(&store);
    let keys = listed.get(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)]).json();
    assert_eq!(keys["data"].as_array().map(Vec::len), Some(1), "{keys}");
}

/// A file system in memory with a limit of bytes and of files.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, options: &str) -> SmallDisk {
        std::fs::create_dir(&at).expect("made");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&at).status().expect("runs");
        assert!(mounted.success(), "mounting needs root");
        SmallDisk(at)
    }

    /// Takes every file that there may still be, or every byte.
    fn fill(&self, bytes: bool) {
        let dir = self.0.join("fill");
        std::fs::create_dir(&dir).expect("made");
        if bytes {
            let mut file = std::fs::File::create(dir.join("all")).expect("made");
            while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
        } else {
            (0..).take_while(|n| std::fs::File::create(dir.join(n.to_string())).is_ok()).for_each(drop);
        }
    }

    fn make_room(&self) {
        std::fs::remove_dir_all(self.0.join("fill")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A second time where the server's last file is still being closed.
        for options in ["--", "-l"] {
            if Command::new("umount").arg(options).arg(&self.0).status().is_ok_and(|status| status.success())
            {
                return;
            }
        }
    }
}

fn generations(store: &Path) -> BTreeSet<std::ffi::OsString> {
    std::fs::read_dir(store.join("head"))
        .expect("listed")
        .map(|entry| entry.expect("read").file_name())
        .collect()
}

#[test]
fn a_start_on_a_full_disk_after_a_kill_serves_reads_and_recovers_without_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    for (round, bytes) in [false, true, false, true].into_iter().enumerate() {
        let disk = SmallDisk::mount(dir.path().join(round.to_string()), "size=700M,nr_inodes=300");
        let store = disk.0.join("store");
        let server = serve(&store);
        let cookie = server.sign_in();
        let (_, secret) = server.api_key(&cookie);
        let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
        let mut writer = Writer { base, next: 0, stored: BTreeSet::new() };
        for n in 0..20 {
            assert_eq!(writer.write(&server, &secret).status, 204);
            if round > 1 && n == 10 {
                let sealed = server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &json!({}));
                assert_eq!(sealed.status, 200, "{}", sealed.body);
            }
        }
        server.kill();
        disk.fill(bytes);
        let server = serve(&store);
        writer.check(&server, &cookie);
        let before = generations(&store);
        disk.make_room();
        let begun = Stopwatch::start();
        loop {
            let answer = writer.write(&server, &secret);
            if answer.status == 204 && generations(&store).difference(&before).next().is_some() {
                break;
            }
            assert!([204, 503].contains(&answer.status), "{}", answer.body);
            assert!(begun.elapsed() < PATIENCE, "round {round}: no recovery: {}", server.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        change_accounts(&server, &cookie);
        writer.check(&server, &cookie);
        server.kill();
        let server = serve(&store);
        writer.check(&server, &cookie);
        assert!(server.terminate().success());
    }
}
