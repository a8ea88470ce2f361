//! Viewers of live queries over real connections, while the server restarts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
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

#[test]
fn viewers_miss_double_and_reorder_no_step_over_a_restart() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let key = json!({ "name": "viewers", "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000 } });
    let made = server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)], &key);
    assert_eq!(made.status, 201, "{}", made.body);
    let bearer = format!("Bearer {}", made.json()["secret"].as_str().expect("a secret"));
    let path = format!("/api/v1/orgs/{ORG}/embed/tokens");
    let minted = server.post_json(&path, &[("Authorization", &*bearer)], &json!({}));
    assert_eq!(minted.status, 201, "{}", minted.body);
    let query = |id: &str, expr: &str, step: u64| json!({ "id": id, "expr": expr, "step": step });
    let queries = [query("A", "time()", 1), query("B", "vector(1)", 1), query("C", "vector(2)", 2)];
    let target = LiveTarget {
        address: Arc::new(Mutex::new(address(&server))),
        path: format!("/api/v1/orgs/{ORG}/query/live"),
        token: minted.json()["token"].as_str().expect("a token").to_owned(),
        body: json!({ "queries": queries }).to_string(),
        viewing: Arc::default(),
    };
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
