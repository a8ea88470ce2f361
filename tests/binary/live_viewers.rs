//! Viewers of live queries over real connections: while the server restarts, and beside viewers
//! that do not read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use crate::harness::{ORG, Server, eventually};
use crate::viewers::{LiveTarget, Viewed, view};

const VIEWERS: usize = 300;
/// The steps of each viewer before the server stops, and after it has started again.
const STEPS: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(120);

fn address(server: &Server) -> std::net::SocketAddr {
    server.url.trim_start_matches("http://").parse().expect("an address")
}

/// Returns a stream of a set of queries, with a token of a key that the server makes.
fn target(server: &Server, queries: &Json) -> LiveTarget {
    let cookie = server.sign_in();
    let key = json!({ "name": "viewers", "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000 } });
    let made = server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)], &key);
    assert_eq!(made.status, 201, "{}", made.body);
    let bearer = format!("Bearer {}", made.json()["secret"].as_str().expect("a secret"));
    let path = format!("/api/v1/orgs/{ORG}/embed/tokens");
    let minted = server.post_json(&path, &[("Authorization", &*bearer)], &json!({}));
    assert_eq!(minted.status, 201, "{}", minted.body);
    LiveTarget {
        address: Arc::new(Mutex::new(address(server))),
        path: format!("/api/v1/orgs/{ORG}/query/live"),
        token: minted.json()["token"].as_str().expect("a token").to_owned(),
        body: json!({ "queries": queries }).to_string(),
        in_gzip: false,
        viewing: Arc::default(),
    }
}

#[test]
fn viewers_miss_double_and_reorder_no_step_over_a_restart() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let query = |id: &str, expr: &str, step: u64| json!({ "id": id, "expr": expr, "step": step });
    let queries = [query("A", "time()", 1), query("B", "vector(1)", 1), query("C", "vector(2)", 2)];
    let target = LiveTarget { in_gzip: true, ..target(&server, &json!(queries)) };
    let (moved, viewing, folder) =
        (Arc::clone(&target.address), Arc::clone(&target.viewing), dir.path().to_owned());
    let restarted = std::thread::spawn(move || {
        let viewed = || viewing.steps.load(Ordering::Relaxed);
        let wait_for = |steps: usize| {
            let failure = || format!("{} steps, not {steps}", viewed());
            eventually(WAIT_MAX, failure, || (viewed() >= steps).then_some(()));
        };
        wait_for(VIEWERS * STEPS);
        assert!(server.terminate().success());
        let server = Server::serve(&folder);
        *moved.lock().expect("unpoisoned") = address(&server);
        // Each viewer catches up one or two steps at least.
        wait_for(viewed() + VIEWERS * STEPS);
        viewing.stop.store(true, Ordering::Relaxed);
        server
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let all: Vec<Viewed> = runtime.block_on(async {
        let until = Instant::now() + 2 * WAIT_MAX;
        let tasks: Vec<_> = (0..VIEWERS).map(|_| tokio::spawn(view(target.clone(), until))).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.expect("no panic"));
        }
        all
    });
    let server = restarted.join().expect("restarted");
    for viewed in &all {
        assert!(viewed.steps.windows(2).all(|pair| pair[1] == pair[0] + 1_000), "{viewed:?}");
        assert!(viewed.steps.len() > STEPS && viewed.connections >= 2, "{viewed:?}");
        assert_eq!((viewed.gaps, viewed.errors), (0, 0), "{viewed:?}");
        // The id of a step comes before its last event.
        assert!(viewed.points + 1 >= 2 * viewed.steps.len() + viewed.steps.len() / 2, "{viewed:?}");
    }
    drop(server);
}

/// Viewers that never read, and how many of them connect in each step.
const SILENT: usize = 200;
const SILENT_AT_ONCE: usize = 40;
/// The series of the result, the bytes of a label of each, and the queries of the set. A state has
/// about 8 MiB, more than the sockets of a connection hold.
const WIDE_SERIES: usize = 4_000;
const WIDE_LABEL_BYTES: usize = 120;
const WIDE_QUERIES: usize = 10;
/// The most memory that the viewers may cost: 64 MiB of an organisation's events, the newest state
/// while it is written and sent, and 192 KiB of each connection. Without a bound they would cost
/// 1.6 GiB.
const SILENT_BYTES_MAX: u64 = 320 << 20;

/// Opens a stream and reads nothing.
fn connect(target: &LiveTarget) -> TcpStream {
    let mut stream = TcpStream::connect(*target.address.lock().expect("unpoisoned")).expect("a connection");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    stream.write_all(target.request(None).as_bytes()).expect("a request");
    stream
}

/// Reads a stream up to the step `last` or a later one, or to its end. Returns its steps.
fn steps(stream: TcpStream, last: i64) -> Vec<i64> {
    let (mut steps, mut line) = (Vec::new(), Vec::new());
    let mut reader = BufReader::new(stream);
    while steps.last().is_none_or(|step| *step < last) {
        line.clear();
        if reader.read_until(b'\n', &mut line).expect("a line") == 0 {
            break;
        }
        if let Some(id) = line.strip_prefix(b"id: ") {
            steps.push(String::from_utf8_lossy(id).trim().parse().expect("an id"));
        }
    }
    steps
}

#[test]
fn viewers_that_never_read_cost_bounded_memory_and_a_slow_viewer_gets_the_newest_points() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let (_, secret) = server.api_key(&server.sign_in());
    let (at, filler) = (Clock::System.now(), "x".repeat(WIDE_LABEL_BYTES));
    let one = |n: usize| {
        let labels = [("__name__", "wide".to_owned()), ("n", n.to_string()), ("filler", filler.clone())];
        (Labels::from_pairs(labels), vec![Sample { at, value: 1.0 }])
    };
    let series: Vec<_> = (0..WIDE_SERIES).map(one).collect();
    assert_eq!(server.write(&secret, &series).status, 204);
    let query = |n: usize| json!({ "id": n.to_string(), "expr": "wide", "step": 1, "limit": WIDE_SERIES });
    let target = target(&server, &json!((0..WIDE_QUERIES).map(query).collect::<Vec<_>>()));
    let (fast, viewing) = (target.clone(), Arc::clone(&target.viewing));
    let viewer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(view(fast, Instant::now() + 2 * WAIT_MAX))
    });
    let viewed = || viewing.steps.load(Ordering::Relaxed);
    let wait_for = |steps: usize| {
        let failure = || format!("{} steps, not {steps}: {}", viewed(), server.log());
        eventually(WAIT_MAX, failure, || (viewed() >= steps).then_some(()));
    };
    wait_for(4);
    let before = server.status_bytes("VmHWM");
    // A viewer that does not read for some steps gets the newest points, after a gap.
    let slow = connect(&target);
    wait_for(viewed() + 6);
    let newest = Clock::System.now().as_ms() / 1_000 * 1_000;
    let seen = steps(slow, newest);
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    assert!(seen.last().is_some_and(|last| *last >= newest), "{seen:?} without {newest}");
    assert!(seen.windows(2).any(|pair| pair[1] > pair[0] + 1_000), "states were dropped: {seen:?}");

    let slow = connect(&target);
    let mut silent = Vec::new();
    while silent.len() < SILENT {
        silent.extend((0..SILENT_AT_ONCE).map(|_| connect(&target)));
        wait_for(viewed() + 1);
    }
    wait_for(viewed() + 4);
    let after = server.status_bytes("VmHWM");
    assert!(after - before <= SILENT_BYTES_MAX, "{} MiB, then {} MiB", before >> 20, after >> 20);
    // The state of the slow viewer may have been released, which ends its stream.
    let newest = Clock::System.now().as_ms() / 1_000 * 1_000;
    let mut seen = steps(slow, newest);
    if seen.last().is_none_or(|last| *last < newest) {
        seen.extend(steps(connect(&target), newest));
    }
    assert!(seen.last().is_some_and(|last| *last >= newest), "{seen:?} without {newest}");
    wait_for(viewed() + 2);
    viewing.stop.store(true, Ordering::Relaxed);
    let viewed = viewer.join().expect("no panic");
    // On a busy machine the evaluation of a step may take longer than a step.
    assert!(viewed.steps.is_sorted_by(|one, next| one < next), "{viewed:?}");
    assert_eq!(viewed.errors, 0, "{viewed:?}");
    drop(silent);
}
