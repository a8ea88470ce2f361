//! The Pushgateway through the router (docs/specification.md C7).

use std::time::Duration;

use axum::body::Body;
use promlet::api::ApiOptions;
use promlet::model::GateMode;
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{DataFixture, escaped};

const JOB: &str = "push/metrics/job/backup/instance/a";

async fn send(fixture: &DataFixture, method: &str, path: &str, body: impl Into<Body>) -> Reply {
    let path = format!("/api/v1/orgs/acme/{path}");
    fixture.server.send(ask(method, &path, &fixture.agent).body(body.into()).expect("a request")).await
}

async fn is_pushed(fixture: &DataFixture, method: &str, path: &str, body: &str) {
    let reply = send(fixture, method, path, body.to_owned()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("durability")),
        (200, "synced"),
        "{path}: {}",
        reply.body
    );
}

async fn send_as(fixture: &DataFixture, method: &str, path: &str, media: &str, body: &[u8]) -> Reply {
    let request = ask(method, &format!("/api/v1/orgs/acme/{path}"), &fixture.agent)
        .header("content-type", media)
        .body(Body::from(body.to_vec()));
    fixture.server.send(request.expect("a request")).await
}

/// Returns the series that an expression selects now, each as labels and value.
async fn found(fixture: &DataFixture, expr: &str) -> Vec<String> {
    let at = fixture.server.clock.now().as_seconds();
    let reply = fixture.get(&format!("query/expr-instant?expr={}&time={at}", escaped(expr))).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut found: Vec<String> = reply.value()["data"]["result"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|series| format!("{} {}", series["metric"], series["value"][1].as_str().expect("a value")))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn pushed_metrics_have_the_labels_of_their_group() {
    let fixture = DataFixture::new().await;
    is_pushed(&fixture, "PUT", JOB, "# TYPE done gauge\ndone{job=\"other\",disk=\"b\"} 1\n").await;
    assert_eq!(
        found(&fixture, "done").await,
        [r#"{"__name__":"done","disk":"b","instance":"a","job":"backup"} 1"#]
    );
    assert_eq!(found(&fixture, "push_time_seconds").await.len(), 1);
    assert!(found(&fixture, "push_failure_time_seconds").await[0].ends_with(" 0"));
    // Clients of a Pushgateway encode values with slashes, and send to a URL without organisation.
    let alias = "/metrics/job@base64/YmF0Y2gvam9i/path@base64/L3Zhci90bXA";
    let request = ask("POST", alias, &fixture.agent).body(Body::from("encoded 2\n"));
    let reply = fixture.server.send(request.expect("a request")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(
        found(&fixture, "encoded").await,
        [r#"{"__name__":"encoded","job":"batch/job","path":"/var/tmp"} 2"#]
    );
}

#[tokio::test]
async fn put_replaces_post_merges_and_delete_ends_a_group() {
    let fixture = DataFixture::new().await;
    is_pushed(&fixture, "PUT", JOB, "a 1\nb{x=\"1\"} 1\n").await;
    fixture.server.pass(Duration::from_secs(1));
    is_pushed(&fixture, "POST", JOB, "b{x=\"2\"} 2\n").await;
    let names = "{__name__=~\"a|b|c\"}";
    assert_eq!(found(&fixture, names).await.len(), 2, "a, and the new b");
    fixture.server.pass(Duration::from_secs(1));
    is_pushed(&fixture, "PUT", JOB, "c 3\n").await;
    assert_eq!(found(&fixture, names).await.len(), 1);
    fixture.server.pass(Duration::from_secs(1));
    for _ in 0..2 {
        assert_eq!(send(&fixture, "DELETE", JOB, "").await.status, 202);
    }
    assert_eq!(found(&fixture, "{job=\"backup\"}").await, Vec::<String>::new());
    is_pushed(&fixture, "PUT", "push/metrics/job/empty", "").await;
    assert_eq!(found(&fixture, "push_time_seconds").await.len(), 1);
}

#[tokio::test]
async fn bodies_that_a_pushgateway_refuses_are_refused_and_the_time_is_recorded() {
    let fixture = DataFixture::new().await;
    is_pushed(&fixture, "PUT", JOB, "a 1\n").await;
    fixture.server.pass(Duration::from_secs(5));
    for (body, word) in [("a 1 1000\n", "timestamp"), ("nonsense\n", "line 1"), ("a 1\na 2\n", "twice")] {
        let reply = send(&fixture, "PUT", JOB, body).await;
        reply.is(400, "bad_request");
        assert!(reply.body.contains(word), "{}", reply.body);
    }
    let now = fixture.server.clock.now().as_seconds();
    assert!(found(&fixture, "push_failure_time_seconds").await[0].ends_with(&format!(" {now}")));
    assert_eq!(found(&fixture, "a").await.len(), 1, "the metrics are as before");
    for (path, word) in
        [("push/metrics/job/", "job"), ("push/metrics/job/a/b", "no value"), ("push/metrics/x/y", "job/")]
    {
        let reply = send(&fixture, "PUT", path, "a 1\n").await;
        assert!(reply.status == 400 || reply.status == 404, "{path}: {}", reply.body);
        assert!(reply.body.contains(word), "{path}: {}", reply.body);
    }
    for media in ["application/vnd.google.protobuf; encoding=text", "application/json"] {
        send_as(&fixture, "PUT", JOB, media, b"x").await.is(415, "unsupported_media_type");
    }
    let reader = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await.1;
    let request =
        ask("PUT", &format!("/api/v1/orgs/acme/{JOB}"), &Who::Bearer(reader)).body(Body::from("a 1\n"));
    fixture.server.send(request.expect("a request")).await.is(403, "forbidden");
}

/// The limits of labels and series apply to the push as a whole, and not to the push after it.
#[tokio::test]
async fn a_push_with_a_series_that_is_not_admitted_changes_nothing() {
    let fixture = DataFixture::new().await;
    is_pushed(&fixture, "PUT", JOB, "a 1\n").await;
    fixture.server.pass(Duration::from_secs(5));
    let value = "v".repeat(5_000);
    let reply = send(&fixture, "PUT", JOB, format!("a 2\nbad{{l=\"{value}\"}} 1\n")).await;
    reply.is(400, "bad_request");
    assert!(reply.body.contains("0 samples stored"), "{}", reply.body);
    assert!(found(&fixture, "a").await[0].ends_with(" 1"), "the metrics are as before");
    let now = fixture.server.clock.now().as_seconds();
    assert!(found(&fixture, "push_failure_time_seconds").await[0].ends_with(&format!(" {now}")));
    let listed = fixture.server.get("/api/v1/orgs/acme/push/api/v1/metrics", &fixture.agent).await.value();
    assert_eq!(listed["data"][0]["last_push_successful"], false, "{listed}");
    assert_eq!(listed["data"][0]["bad"], Value::Null, "{listed}");
    fixture.server.pass(Duration::from_secs(5));
    is_pushed(&fixture, "PUT", JOB, "a 3\n").await;
    assert!(found(&fixture, "a").await[0].ends_with(" 3"));
}

/// A body that was copied from the metrics of a Pushgateway has them.
#[tokio::test]
async fn the_times_of_a_group_are_not_those_of_its_body() {
    let fixture = DataFixture::new().await;
    let body = "# TYPE push_time_seconds gauge\npush_time_seconds 5\npush_failure_time_seconds 6\na 1\n";
    for method in ["PUT", "POST"] {
        is_pushed(&fixture, method, JOB, body).await;
        let now = fixture.server.clock.now().as_seconds();
        assert!(found(&fixture, "push_time_seconds").await[0].ends_with(&format!(" {now}")));
        assert!(found(&fixture, "push_failure_time_seconds").await[0].ends_with(" 0"));
        fixture.server.pass(Duration::from_secs(5));
    }
    assert_eq!(found(&fixture, "{job=\"backup\"}").await.len(), 3);
}

/// Its text takes several rows of the account store, even compressed.
#[tokio::test]
async fn a_large_group_is_replaced_and_deleted() {
    let fixture = DataFixture::new().await;
    let lines = |salt: u64| -> String {
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(salt);
        (0..12_000).map(|n| format!("m{{n=\"{:016x}{:016x}\"}} {n}\n", hash(n), hash(n + 99_999))).collect()
    };
    is_pushed(&fixture, "PUT", JOB, &lines(0x1234_5679)).await;
    fixture.server.pass(Duration::from_secs(5));
    is_pushed(&fixture, "PUT", JOB, "m 1\n").await;
    fixture.server.pass(Duration::from_secs(5));
    is_pushed(&fixture, "PUT", JOB, &lines(0x9876_5433)).await;
    fixture.server.pass(Duration::from_secs(5));
    assert_eq!(send(&fixture, "DELETE", JOB, "").await.status, 202);
    assert_eq!(found(&fixture, "count(m)").await, [""; 0]);
}

/// A group stays visible as if it were scraped, and ends after its time to live.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_repeated_until_its_time_to_live_is_over_also_after_a_restart() {
    let mut fixture = DataFixture::new().await;
    let brief = "push/metrics/job/brief?ttl=20m";
    is_pushed(&fixture, "PUT", brief, "a 1\n").await;
    is_pushed(&fixture, "PUT", "push/metrics/job/lasting", "b 2\nc{q=\"\\\"\"} 3\n").await;
    let tick = async |fixture: &DataFixture, seconds: u64| {
        fixture.server.pass(Duration::from_secs(seconds));
        let (deps, now) = (fixture.server.deps.clone(), fixture.server.clock.now());
        std::thread::spawn(move || deps.repeat_pushes(now)).join().expect("a tick");
    };
    for _ in 0..9 {
        tick(&fixture, 60).await;
    }
    assert_eq!(found(&fixture, "{__name__=~\"a|b|c\"}").await.len(), 3, "nine minutes later");
    fixture.server.restart();
    for _ in 0..9 {
        tick(&fixture, 60).await;
    }
    assert_eq!(found(&fixture, "{__name__=~\"a|b|c\"}").await.len(), 3, "after a restart");
    let count = found(&fixture, "count_over_time(b[20m])").await;
    assert!(count[0].ends_with(" 19"), "one push and eighteen repetitions: {count:?}");
    tick(&fixture, 180).await;
    assert_eq!(found(&fixture, "{job=\"brief\"}").await, Vec::<String>::new(), "its time is over");
    assert_eq!(found(&fixture, "{job=\"lasting\"}").await.len(), 4);
    fixture.server.restart();
    tick(&fixture, 60).await;
    assert_eq!(found(&fixture, "{job=\"brief\"}").await, Vec::<String>::new(), "and its row is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_live_comes_from_the_parameter_the_header_or_the_setting() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.push_ttl = Some(Duration::from_secs(100));
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let fixture = DataFixture::of(server).await;
    is_pushed(&fixture, "PUT", "push/metrics/job/default", "a 1\n").await;
    is_pushed(&fixture, "PUT", "push/metrics/job/never?ttl=0", "a 1\n").await;
    let request = ask("PUT", "/api/v1/orgs/acme/push/metrics/job/header", &fixture.agent)
        .header("x-push-ttl", "1h")
        .body(Body::from("a 1\n"));
    assert_eq!(fixture.server.send(request.expect("a request")).await.status, 200);
    fixture.server.pass(Duration::from_secs(120));
    let (deps, now) = (fixture.server.deps.clone(), fixture.server.clock.now());
    std::thread::spawn(move || deps.repeat_pushes(now)).join().expect("a tick");
    assert_eq!(found(&fixture, "count(a)").await, ["{} 2"], "the default is over");
    for wrong in ["ttl=x", "ttl=1ms", "ttl=11y", "ttl=-1h"] {
        send(&fixture, "PUT", &format!("{JOB}?{wrong}"), "a 1\n").await.is(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn labels_of_the_api_key_belong_to_the_group() {
    let fixture = DataFixture::new().await;
    let fields = json!({ "scopes": ["ingest"], "ingest": { "labels": { "source": "laptop" } } });
    let key = Who::Bearer(fixture.server.key(&fixture.cabinet, fields).await.1);
    let path = format!("/api/v1/orgs/acme/{JOB}");
    for (who, value) in [(&fixture.agent, 1), (&key, 2)] {
        let request = ask("PUT", &path, who).body(Body::from(format!("a {value}\n")));
        assert_eq!(fixture.server.send(request.expect("a request")).await.status, 200);
    }
    assert_eq!(found(&fixture, "count(a)").await, ["{} 2"], "two groups");
    assert!(found(&fixture, "a{source=\"laptop\"}").await[0].ends_with(" 2"));
    let listed = async |who: &Who| {
        let reply = fixture.server.get("/api/v1/orgs/acme/push/api/v1/metrics", who).await;
        reply.value()["data"].as_array().expect("a list").len()
    };
    assert_eq!((listed(&fixture.agent).await, listed(&key).await), (2, 1), "it sees its own groups only");
}

#[tokio::test]
async fn pushed_groups_are_listed_as_a_pushgateway_lists_them() {
    let fixture = DataFixture::new().await;
    is_pushed(
        &fixture,
        "PUT",
        JOB,
        "# HELP done Whether.\n# TYPE done gauge\ndone{disk=\"b\"} 1.5\nmost +Inf\n",
    )
    .await;
    let reply = fixture.server.get("/api/v1/orgs/acme/push/api/v1/metrics", &fixture.agent).await;
    let group = reply.value()["data"][0].clone();
    assert_eq!(group["labels"], json!({ "job": "backup", "instance": "a" }));
    assert_eq!(group["last_push_successful"], true);
    let done = &group["done"];
    assert_eq!((&done["type"], &done["help"]), (&json!("GAUGE"), &json!("Whether.")));
    let labels = json!({ "job": "backup", "instance": "a", "disk": "b" });
    assert_eq!(done["metrics"], json!([{ "labels": labels, "value": "1.5" }]));
    assert_eq!(group["most"]["metrics"][0]["value"], "+Inf");
    assert!(group["push_time_seconds"]["metrics"][0]["value"].is_string());
    let status = fixture.server.get("/api/v1/status", &fixture.agent).await;
    assert!(status.value()["data"]["build_information"]["version"].is_string(), "{}", status.body);
}

const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// A gauge `files` 3 with the label disk="b", and a histogram `seconds` with the buckets 1 and
/// +Inf.
const MESSAGES: &[u8] = b"\x29\x0a\x05files\x12\x06Files.\x18\x01\x22\x16\x0a\x09\x0a\x04disk\x12\x01b\
    \x12\x09\x09\x00\x00\x00\x00\x00\x00\x08\x40\
    \x27\x0a\x07seconds\x18\x04\x22\x1a\x3a\x18\x08\x02\x11\x00\x00\x00\x00\x00\x00\x08\x40\
    \x1a\x0b\x08\x01\x11\x00\x00\x00\x00\x00\x00\xf0\x3f";

/// Go's client sends messages; Python's sends text.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_stored_listed_and_repeated_as_the_text_of_the_same_metrics() {
    let mut fixture = DataFixture::new().await;
    let text = "# HELP files Files.\n# TYPE files gauge\nfiles{disk=\"b\"} 3\n# TYPE seconds histogram\n\
                seconds_bucket{le=\"1\"} 1\nseconds_bucket{le=\"+Inf\"} 2\nseconds_sum 3\nseconds_count 2\n";
    is_pushed(&fixture, "PUT", "push/metrics/job/text", text).await;
    for method in ["PUT", "POST"] {
        let reply = send_as(&fixture, method, "push/metrics/job/messages", PROTOBUF, MESSAGES).await;
        assert_eq!((reply.status.as_u16(), reply.header("durability")), (200, "synced"), "{}", reply.body);
    }
    is_pushed(&fixture, "POST", "push/metrics/job/messages", "other 1\n").await;
    let series = async |fixture: &DataFixture, job: &str| {
        let expr = format!("{{job=\"{job}\",__name__=~\"files|seconds.*\"}}");
        let found = found(fixture, &expr).await;
        found.iter().map(|one| one.replace(job, "")).collect::<Vec<_>>()
    };
    let expected = series(&fixture, "text").await;
    assert_eq!(expected.len(), 5);
    assert_eq!(series(&fixture, "messages").await, expected);
    fixture.server.restart();
    fixture.server.pass(Duration::from_secs(61));
    let (deps, now) = (fixture.server.deps.clone(), fixture.server.clock.now());
    std::thread::spawn(move || deps.repeat_pushes(now)).join().expect("a tick");
    assert_eq!(series(&fixture, "messages").await, expected, "repeated");
    let listed = fixture.server.get("/api/v1/orgs/acme/push/api/v1/metrics", &fixture.agent).await.value();
    let [messages, text] = [&listed["data"][0], &listed["data"][1]];
    assert_eq!(messages["labels"]["job"], "messages");
    for name in ["files", "seconds_bucket", "seconds_sum", "seconds_count"] {
        let shown = |group: &Value| group[name]["metrics"].to_string().replace("messages", "text");
        assert_eq!(shown(messages), shown(text), "{name}");
        assert_eq!(messages[name]["type"], text[name]["type"], "{name}");
    }
    // A zero threshold makes the histogram a native one.
    let native =
        b"\x18\x0a\x01n\x18\x04\x22\x11\x3a\x0f\x08\x02\x28\x06\x31\x00\x00\x00\x00\x00\x00\xf0\x3f\x38\x02";
    let reply = send_as(&fixture, "PUT", "push/metrics/job/messages", PROTOBUF, native).await;
    reply.is(400, "bad_request");
    assert!(reply.body.contains("native histogram"), "{}", reply.body);
    assert_eq!(series(&fixture, "messages").await, expected, "nothing of it is stored");
}

/// Bodies of pushes may be as large as those of other writes.
#[tokio::test]
async fn a_large_group_is_stored_and_read_again() {
    let mut fixture = DataFixture::new().await;
    let lines: String =
        (0..20_000).map(|n| format!("m{{n=\"{n}\",text=\"{}\"}} {n}\n", "x".repeat(40 + n % 7))).collect();
    assert!(lines.len() > 1 << 20);
    is_pushed(&fixture, "PUT", JOB, &lines).await;
    is_pushed(&fixture, "POST", JOB, "n 1\n").await;
    fixture.server.restart();
    let reply = fixture.server.get("/api/v1/orgs/acme/push/api/v1/metrics", &fixture.agent).await;
    let group: Value = reply.value()["data"][0].clone();
    assert_eq!(group["m"]["metrics"].as_array().map(Vec::len), Some(20_000));
    assert_eq!(group["n"]["metrics"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_bomb_is_refused_during_decompression() {
    let fixture = DataFixture::new().await;
    let bomb = || {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![b' '; (64 << 20) + 1]).expect("memory");
        encoder.finish().expect("memory")
    };
    let request = ask("PUT", &format!("/api/v1/orgs/acme/{JOB}"), &fixture.agent)
        .header("content-encoding", "gzip")
        .body(Body::from(bomb()));
    fixture.server.send(request.expect("a request")).await.is(413, "body_too_large");
}

/// Otherwise it would continue with the groups of the time before it was promoted.
#[tokio::test]
async fn a_follower_loads_no_groups_before_it_is_promoted() {
    let mut fixture = DataFixture::new().await;
    is_pushed(&fixture, "PUT", JOB, "a 1\n").await;
    fixture.server.restart();
    fixture.server.control.gate().set_mode(GateMode::Follower);
    send(&fixture, "PUT", JOB, "a 2\n").await.is(503, "follower");
    let list = "/api/v1/orgs/acme/push/api/v1/metrics";
    let listed = fixture.server.get(list, &fixture.agent).await.value();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "those of the primary: {listed}");
    fixture.server.control.gate().set_mode(GateMode::Open);
    let listed = fixture.server.get(list, &fixture.agent).await.value();
    assert_eq!(listed["data"][0]["a"]["metrics"][0]["value"], "1", "{listed}");
}
