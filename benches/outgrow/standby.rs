//! The cost of a synchronous standby.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Server, Start, bootstrap, eventually};
use crate::median::median;
use crate::sender::{Destination, send};
use crate::{Bodies, TURNS};

const SENDERS: usize = 8;
const WAIT_MAX: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef-outgrow";

/// Starts a primary in a mode of `--standby`.
fn primary(dir: &Path, mode: &str, token: &str) -> Server {
    let mode = format!("--standby={mode}");
    let args = ["serve", mode.as_str(), "--standby-token-file", token];
    Server::start_damaged(&Start { args: &args, dir, env: &bootstrap() })
}

/// Moves all threads of a process to one processor.
fn pin(server: &Server, processor: &str) {
    let pid = server.pid().to_string();
    let moved = Command::new("taskset").args(["-a", "-p", "-c", processor, &pid]).output();
    assert!(moved.is_ok_and(|moved| moved.status.success()), "taskset moves {pid} to {processor}");
}

/// Returns the samples per second of all senders.
fn rate(server: &Server, secret: &str, bodies: &Bodies) -> f64 {
    bodies.samples as f64 / send(&Destination::promlet(server, secret), &bodies.all, SENDERS)
}

fn alone(bodies: &Bodies, is_pinned: bool) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::serve(folder.path());
    if is_pinned {
        pin(&server, "0");
    }
    let (_, secret) = server.api_key(&server.sign_in());
    rate(&server, &secret, bodies)
}

fn followed(bodies: &Bodies, is_pinned: bool) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).expect("written");
    let token = token.display().to_string();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // Accounts are set up without a follower.
    let server = primary(&first, "async", &token);
    let (_, secret) = server.api_key(&server.sign_in());
    let follow = |url: &str| {
        let args = ["follow", url, "--token-file", &token];
        Server::start_damaged(&Start { args: &args, dir: &second, env: &[] })
    };
    let follower = follow(&server.url);
    let is_level = |server: &Server| {
        let metrics = server.get("/metrics", &[]).body;
        let has = |row: &str| metrics.lines().any(|line| line == row);
        has("promlet_standby_connected 1") && has("promlet_standby_records_behind 0")
    };
    let wait = |server: &Server| {
        let failure = || format!("the follower is behind:\n{}", server.log());
        eventually(WAIT_MAX, failure, || is_level(server).then_some(()));
    };
    wait(&server);
    assert!(follower.terminate().success(), "the follower ends");
    assert!(server.terminate().success(), "the primary ends");
    let server = primary(&first, "sync", &token);
    let follower = follow(&server.url);
    if is_pinned {
        pin(&server, "0");
        pin(&follower, "1");
    }
    wait(&server);
    server.wait_ready();
    rate(&server, &secret, bodies)
}

pub(crate) fn measure(bodies: &Bodies) {
    println!("\nstandby, {SENDERS} senders, samples per second      alone   synchronous   ratio (goal 0.6)");
    for (name, is_pinned) in [("all processes share the processors", false), ("one processor for each", true)]
    {
        let (mut single, mut both) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            single.push(alone(bodies, is_pinned));
            both.push(followed(bodies, is_pinned));
        }
        let (single, both) = (median(&single), median(&both));
        println!("{name:<42} {single:>10.0} {both:>13.0} {:>7.2}", both / single);
    }
}
