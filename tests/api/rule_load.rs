//! Rules that are expensive: a large result is stored whole, and evaluations that do not end delay
//! neither queries nor writes.

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::model::{Access, BatchBuilder, Labels, MatchOp, Matcher, Sample, TimeRange};
use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::rules::put;
use crate::test_server::{TestServer, Who, ask};

const MOUNT: &str = "/api/v1/orgs/acme/prometheus";
/// The series of an evaluation: more than one write has, and those with `PROMLET_TESTS=thorough`.
const SERIES: usize = 60_000;
const SERIES_THOROUGH: usize = 1_000_000;
/// The series of one write.
const SERIES_A_WRITE: usize = 50_000;
/// The longest wait in a loop.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns the value of an expression now, which has one sample.
async fn value(server: &TestServer, who: &Who, expr: &str) -> Value {
    let path = format!("{MOUNT}/api/v1/query?query={expr}");
    let reply = server.get(&path, who).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"]["result"][0]["value"][1].clone()
}

#[tokio::test]
async fn a_rule_that_yields_a_million_samples_drops_none() {
    let is_thorough = variable("PROMLET_TESTS").is_some_and(|value| value == "thorough");
    let series = if is_thorough { SERIES_THOROUGH } else { SERIES };
    let server = TestServer::new();
    let owner = server.log_in().await;
    let org = server.identity.orgs().expect("read")[0].id;
    let now = server.clock.now();
    for first in (0..series).step_by(SERIES_A_WRITE) {
        let mut batch = BatchBuilder::default();
        for number in first..series.min(first + SERIES_A_WRITE) {
            let labels = Labels::from_pairs([("__name__", "x"), ("number", &number.to_string())]);
            batch.series(&labels, [Sample { at: now, value: 1.0 }]);
        }
        assert_eq!(server.tsdb.append(org, &batch.batch(), now).expect("stored").refused, 0);
    }
    let group = "name: g\ninterval: 10s\nrules:\n- {record: y, expr: x + 1}\n";
    assert_eq!(put(&server, &owner, "g", group, None).await.status, 201);
    server.rules.run_due(server.clock.now());
    // Each evaluation is a query within the memory of one query.
    for evaluations in 1..=2 {
        server.pass(Duration::from_secs(10));
        server.rules.run_due(server.clock.now());
        let counters = server.rules.counters();
        let samples = u64::try_from(evaluations * series).expect("small");
        assert_eq!((counters.samples, counters.failures), (samples, 0));
    }
    assert_eq!(value(&server, &owner, "count(y==2)").await, series.to_string());
    let all = value(&server, &owner, "sum(count_over_time(y[1m]))").await;
    assert_eq!(all, (2 * series).to_string());
    let rules = server.get(&format!("{MOUNT}/api/v1/rules"), &owner).await.value();
    assert_eq!(rules["data"]["groups"][0]["rules"][0]["health"], "ok");
}

/// An expression that takes minutes, also without samples, and little memory.
const ENDLESS: &str =
    "max_over_time((quantile_over_time(0.5, (vector(time() * 7919 % 86399))[1d:1s]))[1d:1s])";
/// The threads that evaluate rules. Each is busy with an endless rule.
const RULE_THREADS: usize = 2;

#[tokio::test]
async fn endless_rules_delay_neither_queries_nor_writes() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let org = server.identity.orgs().expect("read")[0].id;
    let (_, secret) = server.key(&owner, json!({ "scopes": ["ingest"] })).await;
    for number in 0..=RULE_THREADS {
        // The second rule reads the first one, whose sample is stored before its evaluation.
        let group = format!(
            "name: g{number}\ninterval: 10s\nrules:\n- {{record: started, expr: vector(1), labels: {{g: g{number}}}}}\n\
             - {{record: endless, expr: '{ENDLESS} and on () started'}}\n"
        );
        let stored = put(&server, &owner, &format!("g{number}"), &group, None).await;
        assert_eq!(stored.status, 201, "{}", stored.body);
    }
    server.rules.run_due(server.clock.now());
    server.pass(Duration::from_secs(10));
    server.rules.start(RULE_THREADS).expect("threads");
    let started = || {
        let matcher = Matcher::new("__name__", MatchOp::Equal, "started").expect("valid");
        let snapshot = server.tsdb.snapshot(&Access::whole(org));
        snapshot.select(&[matcher], TimeRange::ALL).len()
    };
    eventually(
        WAIT_MAX,
        || format!("{} of {RULE_THREADS} evaluations have begun", started()),
        || (started() == RULE_THREADS).then_some(()),
    );
    assert_eq!(server.rules.counters().evaluations, 0);
    // A query and a write that would wait for a rule would see the end of its evaluation.
    let write = ask("POST", "/api/v1/orgs/acme/import", &Who::Bearer(secret))
        .header(header::CONTENT_TYPE, "text/plain")
        .body(Body::from("written 7\n"));
    let written = server.send(write.expect("a request")).await;
    assert!(written.status.is_success(), "{}", written.body);
    assert_eq!(value(&server, &owner, "written").await, "7");
    assert_eq!(value(&server, &owner, "sum(started)").await, RULE_THREADS.to_string());
    let path = "/api/v1/orgs/acme/rules/backfill";
    let now = server.clock.now().as_s();
    let past =
        json!({ "yaml": "{record: past, expr: vector(3)}", "start": now - 60, "end": now, "step": 10 });
    assert_eq!(server.post(path, &owner, past).await.value()["stored"], 7);
    let counters = server.rules.counters();
    assert_eq!((counters.evaluations, counters.failures), (0, 0), "the evaluations still run");
    assert_eq!(started(), RULE_THREADS, "the third group waits for a thread");
    server.rules.stop();
    // The evaluations were cancelled.
    assert!(server.rules.counters().failures >= 2, "{:?}", server.rules.counters());
}

/// Returns a variable of the environment.
#[expect(clippy::disallowed_methods, reason = "a longer run is requested from outside")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
