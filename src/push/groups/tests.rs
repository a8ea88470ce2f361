//! Changes of groups, and their limits.

use super::*;
use crate::ingest::DecodeLimits;
use crate::ingest::text::Format;
use crate::model::is_stale;
use crate::push::PushFormat;

fn labels(job: &str) -> GroupingLabels {
    GroupingLabels::parse(&format!("job/{job}")).expect("valid")
}

fn push(kind: PushKind, body: &str, ttl_ms: Option<i64>) -> Push {
    let format = PushFormat::Text(Format::Prometheus);
    let read = Exposition::read(body.as_bytes(), format, &labels("a"), &DecodeLimits::default());
    Push { kind, metrics: read.expect("valid"), ttl_ms }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_s(seconds)
}

/// The names and values of a batch; `-` is a staleness marker.
fn written(change: &PushChange) -> Vec<String> {
    let batch = change.batch.batch();
    let mut all: Vec<String> = Vec::new();
    for series in &batch.series {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("valid");
        let text: Vec<_> = pairs.iter().map(|(_, value)| String::from_utf8_lossy(value)).collect();
        let value = batch.samples[series.samples.start].value;
        let value = if is_stale(value) { "-".to_owned() } else { value.to_string() };
        all.push(format!("{} {value}", text.join(",")));
    }
    all.sort();
    all
}

#[test]
fn a_put_replaces_the_group_and_a_post_metrics_of_the_same_name() {
    let mut org = OrgPushes::default();
    let first =
        org.push(labels("a"), push(PushKind::Replace, "m 1\nn{x=\"1\"} 1\n", None), at(10)).expect("fits");
    assert_eq!(written(&first), ["m 1", "n,1 1", "push_failure_time_seconds 0", "push_time_seconds 10"]);
    org.apply(first);
    let merged = org.push(labels("a"), push(PushKind::Merge, "n{x=\"2\"} 2\n", None), at(20)).expect("fits");
    assert_eq!(
        written(&merged),
        ["m 1", "n,1 -", "n,2 2", "push_failure_time_seconds 0", "push_time_seconds 20"]
    );
    org.apply(merged);
    let replaced = org.push(labels("a"), push(PushKind::Replace, "o 3\n", None), at(30)).expect("fits");
    assert_eq!(
        written(&replaced),
        ["m -", "n,2 -", "o 3", "push_failure_time_seconds 0", "push_time_seconds 30"]
    );
    org.apply(replaced);
    let deleted = org.delete(&labels("a"), at(40)).expect("readable").expect("it exists");
    assert_eq!(written(&deleted), ["o -", "push_failure_time_seconds -", "push_time_seconds -"]);
    org.apply(deleted);
    assert_eq!(org.iter().count(), 0);
    assert_eq!(org.text_bytes, 0);
}

#[test]
fn a_group_is_repeated_until_its_time_to_live_is_over() {
    let mut org = OrgPushes::default();
    let body = push(PushKind::Replace, "m 1\n", Some(150_000));
    let change = org.push(labels("a"), body, at(0)).expect("fits");
    org.apply(change);
    assert!(org.due(at(59)).is_empty());
    for second in [60, 120] {
        let due = org.due(at(second));
        assert_eq!(due, [labels("a")], "{second}");
        let repeated = org.repeat(&due[0], at(second)).expect("readable").expect("due");
        assert_eq!(written(&repeated), ["m 1", "push_failure_time_seconds 0", "push_time_seconds 0"]);
        assert_eq!(repeated.batch.batch().samples[0].at, at(second));
        org.apply(repeated);
    }
    let ended = org.repeat(&org.due(at(150))[0], at(150)).expect("readable").expect("due");
    assert!(ended.group.is_none());
    assert_eq!(written(&ended), ["m -", "push_failure_time_seconds -", "push_time_seconds -"]);
}

#[test]
fn samples_of_a_group_never_share_a_time() {
    let mut org = OrgPushes::default();
    let change = org.push(labels("a"), push(PushKind::Replace, "m 1\n", None), at(10)).expect("fits");
    org.apply(change);
    let change = org.push(labels("a"), push(PushKind::Replace, "m 2\n", None), at(10)).expect("fits");
    assert_eq!(change.batch.batch().samples[0].at, at(10).plus_ms(1));
    org.apply(change);
    let deleted = org.delete(&labels("a"), at(9)).expect("readable").expect("it exists");
    assert_eq!(deleted.batch.batch().samples[0].at, at(10).plus_ms(2));
}

#[test]
fn a_refused_push_is_recorded_and_keeps_the_metrics() {
    let mut org = OrgPushes::default();
    assert!(org.fail(&labels("a"), at(5)).is_none());
    let change = org.push(labels("a"), push(PushKind::Replace, "m 1\n", None), at(10)).expect("fits");
    org.apply(change);
    let failed = org.fail(&labels("a"), at(20)).expect("it exists");
    assert_eq!(written(&failed), ["push_failure_time_seconds 20", "push_time_seconds 10"]);
    org.apply(failed);
    let repeated = org.repeat(&labels("a"), at(90)).expect("readable");
    assert_eq!(repeated.map(|change| change.batch.len()), Some(3));
}

#[test]
fn groups_are_bounded_in_number_and_bytes() {
    let mut org = OrgPushes::default();
    for n in 0..GROUPS_MAX {
        let change = org.push(labels(&n.to_string()), push(PushKind::Replace, "m 1\n", None), at(0));
        org.apply(change.expect("fits"));
    }
    let more = |org: &OrgPushes, job: &str, body: &str| {
        org.push(labels(job), push(PushKind::Replace, body, None), at(0)).map(|_| ())
    };
    assert_eq!(more(&org, "new", "m 1\n"), Err(PushError::Groups));
    assert_eq!(more(&org, "0", "m 2\n"), Ok(()));
    let line = format!("m{{x=\"{}\"}} 1\n", "y".repeat(GROUP_TEXT_BYTES_MAX));
    assert_eq!(more(&org, "0", &line), Err(PushError::Group));
    let line = format!("m{{x=\"{}\"}} 1\n", "y".repeat(GROUP_TEXT_BYTES_MAX - 100));
    for n in 0..3 {
        let change = org.push(labels(&n.to_string()), push(PushKind::Replace, &line, None), at(0));
        org.apply(change.expect("fits"));
    }
    assert_eq!(more(&org, "3", &line), Err(PushError::Org));
}
/// Each of the pushes is within the limits of a body.
#[test]
fn pushes_that_add_up_to_more_metrics_than_a_body_may_have_are_all_kept() {
    let mut org = OrgPushes::default();
    let families = DecodeLimits::default().metadata_max * 3 / 4;
    for prefix in ["a", "b"] {
        let mut body: String = (0..families).map(|n| format!("# TYPE {prefix}{n} gauge\n")).collect();
        body.push_str(&format!("{prefix} 1\n"));
        let change = org.push(labels("a"), push(PushKind::Merge, &body, None), at(10)).expect("fits");
        org.apply(change);
    }
    let repeated = org.repeat(&labels("a"), at(90)).expect("readable").expect("it exists");
    assert_eq!(written(&repeated), ["a 1", "b 1", "push_failure_time_seconds 0", "push_time_seconds 10"]);
}

#[test]
fn labels_of_a_group_weigh_once_a_series_in_its_json_tree() {
    let group = |text: &str| PushGroup {
        number: 1,
        text: text.into(),
        ttl_ms: None,
        pushed_at: Timestamp::from_ms(0),
        failed_at: None,
        sent_at: None,
    };
    let long = labels(&"a".repeat(1_000));
    let one = group("# TYPE a gauge\na 1\n").json_bytes(&long);
    let two = group("# TYPE a gauge\na 1\nb 1\n").json_bytes(&long);
    assert!(one > 1_000 && (1_000..2_000).contains(&(two - one)), "{one} {two}");
    assert!(two - one > group("b 1\n").json_bytes(&labels("a")) - 100);
}
