//! Slow clients of an attacker (docs/specification.md F42): slowhttptest opens more connections
//! than the limit, each with a slow header, body or reader. The number of connections stays
//! bounded, health checks respond meanwhile, and afterwards everything is as before.
//!
//! slowhttptest comes from Debian's archive, unpacked below `target/`; if it is unavailable, the
//! test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::process::{Command, Stdio};
use std::time::Duration;

use harness::Server;
use promlet::clock::Stopwatch;

/// More connections than the 1,024 that are accepted.
const CONNECTIONS: &str = "1200";
/// The duration of each attack, longer than the ten seconds that a header may take.
const SECONDS: &str = "11";

/// Returns the value of one of the server's own metrics.
fn metric(server: &Server, name: &str) -> f64 {
    let page = server.get("/metrics", &[]).body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn f42_slow_clients_hold_neither_health_nor_memory() {
    let program = packages::debian("slowhttptest", &["slowhttptest"]).join("usr/bin/slowhttptest");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(dir.path());
    let before = resident_kib(&server);
    let attacks: [(&str, &str, &[&str]); 3] = [
        ("slow headers", "/api/v1/auth/me", &["-H", "-i", "4", "-x", "24", "-t", "GET"]),
        (
            "slow bodies",
            "/api/v1/auth/login",
            &["-B", "-i", "4", "-x", "8", "-s", "8192", "-t", "POST", "-f", "application/json"],
        ),
        (
            "slow readers",
            "/api/v1/openapi.json",
            &["-X", "-w", "10", "-y", "20", "-n", "3", "-z", "5", "-k", "3"],
        ),
    ];
    for (name, path, words) in attacks {
        let mut attack = Command::new(&program)
            .args(["-c", CONNECTIONS, "-r", "600", "-l", SECONDS, "-p", "5"])
            .args(words)
            .args(["-u", &format!("{}{path}", server.url)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("slowhttptest starts");
        let (mut asked, mut most) = (0, 0.0f64);
        while attack.try_wait().expect("ours").is_none() {
            let health = server.get("/healthz", &[]);
            assert_eq!((health.status, &*health.body), (200, "ok"), "{name}: {}", server.log());
            most = most.max(metric(&server, "promlet_connections"));
            asked += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{name}: health answered {asked} times, {most} connections at most");
        // Slow bodies are soon refused for their missing credential, so fewer of them are open at
        // once.
        assert!(asked > 5 && most > 100.0 && most <= 1_024.0, "{name}: {asked} answers, {most} connections");
        // The attacker's sockets are closed by now or soon, and its address may send requests
        // again.
        let begun = Stopwatch::start();
        while server.get("/api/v1/auth/config", &[]).status != 200 {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{name}: the attack is over, but no request is served"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let grown = resident_kib(&server).saturating_sub(before);
    println!("it grew by {grown} KiB");
    assert!(grown < 150 * 1_024, "{grown} KiB");
}
