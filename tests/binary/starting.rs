//! The time before the store is open: responses, stopping a start, ending it at once.
//!
//! A start is blocked while it reads the checkpoint: a named pipe replaces `DONE` and provides no
//! content until the test does.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};

use crate::harness::{Answer, ORG, Server, Start, bootstrap, request};

/// A checkpoint that cannot be read until it is released.
struct HeldUp {
    done: PathBuf,
    aside: PathBuf,
}

impl HeldUp {
    /// Blocks the checkpoint that the clean stop of a store wrote.
    fn new(dir: &Path) -> HeldUp {
        let entries = std::fs::read_dir(dir.join("head")).expect("checkpoints");
        // The marker of a log that ended cleanly is beside it.
        let mut generations = entries.map(|entry| entry.expect("one").path()).filter(|path| path.is_dir());
        let done = generations.next().expect("a clean stop makes a checkpoint").join("DONE");
        let aside = dir.join("head").join("DONE.aside");
        std::fs::rename(&done, &aside).expect("set aside");
        assert!(Command::new("mkfifo").arg(&done).status().expect("mkfifo runs").success());
        HeldUp { done, aside }
    }

    /// Lets the start continue: it reads the original content and finds the file in its place
    /// again.
    fn release(self) {
        // Waits until the start opens the pipe, too.
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&self.done).expect("it is being read");
        let content = std::fs::read(&self.aside).expect("read");
        std::fs::rename(&self.aside, &self.done).expect("put back");
        pipe.write_all(&content).expect("read by the start");
    }
}

/// Starts the server and waits until it is blocked.
fn start(dir: &Path) -> (Server, Answer) {
    let server = Server::start_early(&Start { args: &["serve"], dir, env: &bootstrap() });
    loop {
        let ready = server.get("/readyz", &[]);
        assert_eq!(ready.status, 503, "{}", ready.body);
        if ready.json()["recovery"]["phase"] == "checkpoint" {
            return (server, ready);
        }
    }
}

/// Creates a stopped store with one sample. Returns its session cookie, the secret of its API key,
/// and the time of the sample.
fn stopped_store(dir: &Path) -> (String, String, Timestamp) {
    let at = Timestamp::from_s(Clock::System.now().as_s() - 60);
    let server = Server::serve(dir);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    assert_eq!(server.write(&secret, &one_sample(at)).status, 204);
    assert!(server.terminate().success());
    (cookie, secret, at)
}

fn one_sample(at: Timestamp) -> Vec<(Labels, Vec<Sample>)> {
    let labels = Labels::from_pairs([("__name__".to_owned(), "kept".to_owned())]);
    vec![(labels, vec![Sample { at, value: 1.5 }])]
}

#[test]
fn while_the_store_is_opened_health_is_served_and_everything_else_is_503_with_retry_after() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (cookie, secret, at) = stopped_store(dir.path());
    let held_up = HeldUp::new(dir.path());
    let (server, ready) = start(dir.path());

    let alive = server.get("/healthz", &[]);
    assert_eq!((alive.status, alive.body.as_str()), (200, "ok"));
    let body = ready.json();
    assert_eq!(body["status"], "starting", "{body}");
    assert_eq!(body["checks"]["storage"], "the checkpoint is being read", "{body}");
    assert!(body["recovery"]["elapsed_s"].is_number(), "{body}");
    assert_eq!(ready.header("Retry-After"), Some("2"));
    assert!(ready.header("X-Request-Id").is_some());

    let bearer = format!("Bearer {secret}");
    let long = vec![b'x'; 4 << 20];
    let (write, login) = (format!("/api/v1/orgs/{ORG}/write"), "/api/v1/auth/login");
    let asked = [
        ("GET", "/", None),
        ("GET", "/metrics", None),
        ("GET", "/api/v1/health", None),
        ("POST", login, Some(&b"{}"[..])),
        ("POST", &write, Some(&long[..])),
        ("DELETE", "/no/such/path", None),
    ];
    for (method, path, body) in asked {
        let headers = [("Authorization", &*bearer)];
        let answer = request(method, &format!("{}{path}", server.url), &headers, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "starting"),
            "{method} {path}: {}",
            answer.body
        );
        assert_eq!(answer.header("Retry-After"), Some("2"), "{method} {path}");
    }
    let mount = server.get(&format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query=up"), &[]);
    assert_eq!((mount.status, mount.json()["status"].as_str()), (503, Some("error")), "{}", mount.body);
    assert!(!server.log().contains("listening on"), "that is logged when it is ready:\n{}", server.log());

    held_up.release();
    server.wait_ready();
    server.log_line("listening on ");
    let kept = server.ask(&cookie, "kept", &at.as_s().to_string());
    assert_eq!(kept["result"][0]["value"][1], "1.5", "{kept}");
    assert_eq!(server.write(&secret, &one_sample(at)).status, 204);
    assert!(server.terminate().success());
}

#[test]
fn a_start_that_is_told_to_stop_ends_cleanly_and_the_next_one_finds_everything() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (cookie, _, at) = stopped_store(dir.path());
    let held_up = HeldUp::new(dir.path());
    let (server, _) = start(dir.path());
    server.signal("TERM");
    server.log_line("stopping");
    held_up.release();
    let status = server.ended();
    assert!(status.success(), "{status}");
    assert!(dir.path().join("CLEAN").exists(), "it is a clean stop");

    let server = Server::serve(dir.path());
    let kept = server.ask(&cookie, "kept", &at.as_s().to_string());
    assert_eq!(kept["result"][0]["value"][1], "1.5", "{kept}");
}

#[test]
fn a_second_signal_ends_a_start_that_hangs() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (cookie, _, _) = stopped_store(dir.path());
    let held_up = HeldUp::new(dir.path());
    let (server, _) = start(dir.path());
    server.signal("TERM");
    server.log_line("stopping");
    assert_eq!(server.terminate().code(), Some(1), "not the code of a clean end");

    std::fs::rename(&held_up.aside, &held_up.done).expect("put back");
    let server = Server::serve(dir.path());
    assert_eq!(server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).status, 200);
}

#[test]
fn an_address_in_use_ends_the_start_before_anything_is_read() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.args(["serve", "--listen", &address, "--data-dir"]).arg(dir.path()).env_clear();
    let ended = command.output().expect("it runs");
    assert_eq!(ended.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        errors.contains(&format!("cannot listen on {address}")) && errors.contains("--listen"),
        "{errors}"
    );
    assert!(!dir.path().join("wal").exists(), "nothing was made but the folder itself");
}

/// docs/storage.md 17: unclean stops of a folder are counted over all starts.
#[test]
fn unclean_stops_are_counted() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let start = || Server::serve(dir.path());
    let counted = |server: &Server| {
        let text = server.get("/metrics", &[]).body;
        let row = text.lines().find_map(|line| line.strip_prefix("promlet_unclean_shutdown_total "));
        row.expect("it is there").to_owned()
    };
    let server = start();
    assert_eq!(counted(&server), "0", "a new folder");
    server.kill();
    let server = start();
    assert_eq!(counted(&server), "1");
    server.kill();
    let server = start();
    assert_eq!(counted(&server), "2");
    assert!(server.terminate().success());
    assert_eq!(counted(&start()), "2", "the last stop was a clean one");
}

/// `usage.samples_today` is exact after a clean stop. After a crash it may lack the last minute and
/// is never too high.
#[test]
fn samples_stored_today_are_known_after_a_restart() {
    let day = || Clock::System.now().as_ms().div_euclid(86_400_000);
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let first = day();
    let today = |server: &Server| {
        let org = server.get(&format!("/api/v1/orgs/{ORG}"), &[("Cookie", &server.sign_in())]).json();
        org["usage"]["samples_today"].as_u64().expect("a number")
    };
    let write = |server: &Server, secret: &str, count: i64| {
        let samples = (0..count).map(|n| Sample { at: Clock::System.now().plus_ms(n), value: 1.0 });
        let series = [(Labels::from_pairs([("__name__", "up")]), samples.collect::<Vec<_>>())];
        let written = server.write(secret, &series);
        assert_eq!(written.status, 204, "{}", written.body);
    };
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    let (_, secret) = server.api_key(&server.sign_in());
    write(&server, &secret, 5);
    assert!(server.terminate().success());
    let server = Server::serve(dir.path());
    let after_a_stop = today(&server);
    write(&server, &secret, 3);
    let more = today(&server);
    server.kill();
    let after_a_crash = today(&Server::serve(dir.path()));
    // If a new day has begun, its count starts at zero.
    if day() == first {
        assert_eq!((after_a_stop, more), (5, 8));
        assert!((5..=8).contains(&after_a_crash), "{after_a_crash}");
    }
}
