//! The queue of an Alertmanager.

use super::*;
use crate::model::{Target, TargetUrl};

fn queue() -> AmQueue {
    let target = Target::new(TargetUrl::parse("http://am:9093").expect("valid"));
    let path = "/api/v2/alerts".to_owned();
    AmQueue::new(AmEndpoint { key: "am".to_owned(), target, path, timeout_ms: 1_000 })
}

fn at(s: i64) -> Timestamp {
    Timestamp::from_s(s)
}

fn alert(name: &str, start: i64) -> (AlertFingerprint, AmAlert) {
    let labels = AlertLabels::from([("alertname".to_owned(), name.to_owned())]);
    let alert = AmAlert {
        labels: Arc::new(labels.clone()),
        annotations: Arc::new(AlertLabels::new()),
        starts_at: at(start),
        ends_at: at(start + 60),
        generator_url: "http://p/?e=1".to_owned(),
    };
    (AlertFingerprint::of(&labels), alert)
}

fn push(queue: &mut AmQueue, name: &str, start: i64, now: i64) {
    let (fingerprint, alert) = alert(name, start);
    queue.push(fingerprint, alert, at(now));
}

fn names(body: &[u8]) -> Vec<String> {
    let list: Vec<Value> = serde_json::from_slice(body).expect("JSON");
    list.iter().map(|one| one["labels"]["alertname"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn alerts_have_the_json_of_alertmanager() {
    let (_, alert) = alert("A", 0);
    let expected = json!({
        "labels": { "alertname": "A" },
        "annotations": {},
        "startsAt": "1970-01-01T00:00:00Z",
        "endsAt": "1970-01-01T00:01:00Z",
        "generatorURL": "http://p/?e=1",
    });
    assert_eq!(alert.to_json(), expected);
}

#[test]
fn one_request_is_in_flight_and_a_failed_one_is_repeated_with_newer_states() {
    let (queue, rng) = (&mut queue(), &mut Entropy::seeded(1));
    push(queue, "A", 0, 0);
    push(queue, "B", 0, 0);
    let body = queue.take(at(0)).expect("alerts wait");
    assert_eq!(names(&body), ["A", "B"]);
    push(queue, "A", 5, 5);
    push(queue, "C", 5, 5);
    assert_eq!(queue.take(at(5)), None, "one is in flight");
    assert_eq!((queue.len(), queue.lag_ms(at(5))), (4, 5_000));
    let error = "down".to_owned();
    queue.finish(DeliveryOutcome::Retry { after_ms: Some(30_000), error }, at(6), rng);
    assert_eq!(queue.take(at(35)), None);
    assert_eq!(queue.next_retry(), Some(at(36)));
    let body = queue.take(at(36)).expect("the delay has ended");
    assert_eq!(names(&body), ["B", "A", "C"]);
    assert!(String::from_utf8_lossy(&body).contains("1970-01-01T00:00:05Z"), "the newer state of A");
    queue.finish(DeliveryOutcome::Sent, at(36), rng);
    assert_eq!((queue.len(), queue.history.counts.sent, queue.history.counts.retried), (0, 1, 1));
    assert_eq!(queue.next_retry(), None);
}

#[test]
fn a_full_queue_drops_the_oldest_alerts_and_counts_them() {
    let (queue, rng) = (&mut queue(), &mut Entropy::seeded(1));
    for number in 0..AM_QUEUED_MAX + 10 {
        push(queue, &number.to_string(), 0, 0);
    }
    assert_eq!((queue.len(), queue.history.counts.dropped_alerts), (AM_QUEUED_MAX, 10));
    let body = queue.take(at(0)).expect("alerts wait");
    assert_eq!((names(&body).len(), names(&body)[0].as_str()), (AM_BATCH_MAX, "10"));
    for number in 0..AM_BATCH_MAX {
        push(queue, &format!("new {number}"), 0, 0);
    }
    queue.finish(DeliveryOutcome::Retry { after_ms: None, error: String::new() }, at(0), rng);
    assert_eq!(queue.len(), AM_QUEUED_MAX);
    assert_eq!(queue.history.counts.dropped_alerts, 10 + AM_BATCH_MAX as u64);
    let body = queue.take(at(400)).expect("alerts wait");
    queue.finish(DeliveryOutcome::Refused { error: "400".to_owned() }, at(400), rng);
    assert_eq!(queue.history.counts.dropped_alerts, 10 + AM_BATCH_MAX as u64 + names(&body).len() as u64);
}
