//! Sessions over months, and clocks that jump, in the built binary, with the clock that Debian's libfaketime lends it (API.md D1).
//!
//! libfaketime is unpacked below `target/`; where it cannot be had the test fails and says so. Only the wall clock is moved:
//! timeouts go by the monotonic one.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::path::PathBuf;

use harness::{Server, Start, bootstrap};
use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

/// The library that lies about the time.
fn faketime() -> PathBuf {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folder = packages::debian("faketime", &["libfaketime"]).join("usr/lib").join(machine);
    let library = folder.join("faketime/libfaketimeMT.so.1");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// A server whose wall clock is moved by a file.
struct Lent {
    dir: tempfile::TempDir,
    library: PathBuf,
}

impl Lent {
    fn new() -> Lent {
        let lent = Lent { dir: tempfile::tempdir().expect("a folder"), library: faketime() };
        lent.stand_at("+0");
        lent
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ahead")
    }

    /// How far the clock is ahead from here on: `+29d`, `+30.5d`.
    fn stand_at(&self, ahead: &str) {
        // Written beside it and renamed, so that no look at it finds half of it.
        let new = self.dir.path().join("ahead.new");
        std::fs::write(&new, format!("{ahead}\n")).expect("written");
        std::fs::rename(&new, self.file()).expect("renamed");
    }

    fn serve(&self) -> Server {
        let (library, file) = (self.library.to_string_lossy(), self.file());
        let file = file.to_string_lossy();
        let clock = [
            ("LD_PRELOAD", &*library),
            ("FAKETIME_TIMESTAMP_FILE", &*file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let env: Vec<_> = bootstrap().into_iter().chain(clock).collect();
        let store = self.dir.path().join("store");
        Server::start(&Start { args: &["serve"], dir: &store, env: &env })
    }
}

fn me(server: &Server, cookie: &str) -> u16 {
    server.get("/api/v1/auth/me", &[("Cookie", cookie)]).status
}

#[test]
fn a_session_slides_for_months_and_ends_after_thirty_idle_days() {
    let lent = Lent::new();
    let server = lent.serve();
    let cookie = server.sign_in();
    for day in ["+29d", "+58d", "+87d"] {
        lent.stand_at(day);
        assert_eq!(me(&server, &cookie), 200, "{day}");
    }
    lent.stand_at("+118d");
    assert_eq!(me(&server, &cookie), 401, "31 idle days");
    server.kill();
    let server = lent.serve();
    assert_eq!(me(&server, &cookie), 401, "no guard brings it back");
    let fresh = server.sign_in();
    let out = server.post_json("/api/v1/auth/logout", &[("Cookie", &fresh)], &json!({}));
    assert_eq!((out.status, me(&server, &fresh)), (204, 401));
}

#[test]
fn a_crash_right_after_the_answer_of_day_29_does_not_shorten_a_session() {
    let lent = Lent::new();
    let server = lent.serve();
    let cookie = server.sign_in();
    lent.stand_at("+29.99d");
    assert_eq!(me(&server, &cookie), 200);
    server.kill();
    lent.stand_at("+59.98d");
    let server = lent.serve();
    assert_eq!(me(&server, &cookie), 200, "30 days from the last answer are not over");
    lent.stand_at("+90.5d");
    assert_eq!(me(&server, &cookie), 401);
}

/// What the server's clock is off by, and whether samples of that time may be stored.
const JUMPS: [(&str, i64); 7] = [
    ("+0", 0),
    ("+0", 0),
    ("+40m", 40 * 60_000),
    ("-40m", -40 * 60_000),
    ("+91d", 91 * DAY_MS),
    ("+365d", 365 * DAY_MS),
    ("-365d", -365 * DAY_MS),
];
const DAY_MS: i64 = 24 * 3_600_000;

fn query(server: &Server, secret: &str, expr: &str, at: Timestamp) -> f64 {
    let path = format!(
        "/api/v1/orgs/{}/prometheus/api/v1/query?query={}&time={}",
        harness::ORG,
        harness::percent(expr),
        at.as_ms() / 1_000
    );
    let answer = server.get(&path, &[("Authorization", &format!("Bearer {secret}"))]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let value = answer.json()["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
    value.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn write(server: &Server, secret: &str, name: &str, times: &[Timestamp]) -> u16 {
    let samples = times.iter().map(|at| Sample { at: *at, value: 1.0 }).collect();
    let labels = Labels::from_pairs([("__name__", name)]);
    server.write(secret, &[(labels, samples)]).status
}

#[test]
fn a_server_whose_clock_jumps_keeps_its_history_and_ends_its_log() {
    let mut rng = Entropy::system();
    let seed = u64::from_le_bytes(rng.bytes());
    println!("seed {seed}");
    let mut rng = Entropy::seeded(seed);
    let lent = Lent::new();
    let store = lent.dir.path().join("store");
    let seal = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"));
        command.env_clear().args(["seal", "--data-dir"]).arg(&store);
        assert!(command.output().expect("the binary starts").status.success());
    };
    let mut server = lent.serve();
    let (_, secret) = server.api_key(&server.sign_in());
    let base = Clock::System.now();
    let history: Vec<Timestamp> = (1..=85).rev().map(|day| base.plus_ms(-day * DAY_MS)).collect();
    assert!((200..300).contains(&write(&server, &secret, "history", &history)));
    seal();
    let mut right = 0;
    for step in 0..16 {
        let (ahead, off) = JUMPS[usize::from(rng.bytes::<1>()[0]) % JUMPS.len()];
        lent.stand_at(ahead);
        let now = Clock::System.now();
        if off >= 0 {
            let status = write(&server, &secret, "wrong", &[now.plus_ms(off)]);
            assert!((200..300).contains(&status), "seed {seed}, step {step}, {ahead}: {status}");
        }
        let status = write(&server, &secret, "right", &[now]);
        assert!((200..300).contains(&status), "seed {seed}, step {step}, {ahead}: {status}");
        right += 1;
        match rng.bytes::<1>()[0] % 4 {
            0 => seal(),
            1 => {
                server.kill();
                server = lent.serve();
            }
            2 => {
                assert!(server.terminate().success(), "seed {seed}, step {step}");
                server = lent.serve();
            }
            // A tick of upkeep comes every ten seconds.
            _ => std::thread::sleep(std::time::Duration::from_secs(11)),
        }
        let (kept, at) =
            (query(&server, &secret, "count_over_time(history[86d])", base), Clock::System.now());
        assert!((kept - 85.0).abs() < 0.5, "seed {seed}, step {step}, {ahead}: {kept} of the history");
        let kept = query(&server, &secret, "count_over_time(right[1h])", at.plus_ms(1_000));
        assert!(
            (kept - f64::from(right)).abs() < 0.5,
            "seed {seed}, step {step}, {ahead}: {kept} of {right}"
        );
    }
    lent.stand_at("+0");
    server.kill();
    let server = lent.serve();
    seal();
    let metrics = server.get("/metrics", &[]).body;
    let files = metrics.lines().find_map(|line| line.strip_prefix("promlet_wal_files "));
    let files: f64 = files.and_then(|text| text.parse().ok()).expect("told");
    assert!(files <= 3.0, "seed {seed}: {files} log files");
}
