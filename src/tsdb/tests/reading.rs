//! Tests of selections and listings, and that no query escapes its scope.

use super::*;
use crate::model::{MatchOp, Matcher, MetricKind, NameGlob, Scope};

fn shop() -> Tsdb {
    let tsdb = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    for (name, job, zone, before) in [
        ("http_requests_total", "api", "1", 1_000),
        ("http_requests_total", "api", "2", 1_000),
        ("http_requests_total", "db", "1", 1_000),
        ("http_errors_total", "api", "", 1_000),
        ("queue_length", "api", "", 9_000),
        ("secret_total", "vault", "1", 1_000),
    ] {
        batch.series(
            &labels(&[("__name__", name), ("job", job), ("zone", zone)]),
            [ago(before, 1.0), ago(before - 500, 2.0)],
        );
    }
    batch.describe("http_requests", MetricKind::Counter, "Requests.", "").describe(
        "queue_length",
        MetricKind::Gauge,
        "",
        "",
    );
    batch.describe("secret_total", MetricKind::Counter, "Hidden.", "");
    tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    write(&tsdb, OrgId(99), &labels(&[("__name__", "http_foreign"), ("job", "foreign")]), &[ago(1_000, 1.0)]);
    tsdb
}

fn matcher(name: &str, op: MatchOp, value: &str) -> Matcher {
    Matcher::new(name, op, value).expect("valid")
}

fn shown(snapshot: &Snapshot, matchers: &[Matcher], range: TimeRange) -> Vec<String> {
    snapshot
        .select(matchers, range)
        .iter()
        .map(|s| format!("{}/{}/{}", s.labels.metric_name(), s.labels.value("job"), s.labels.value("zone")))
        .collect()
}

#[test]
fn matchers_select_series_in_the_order_of_labels() {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let tsdb = shop();
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let all = shown(&snapshot, &[], TimeRange::ALL);
    assert_eq!(all.len(), 6);
    let sorted = snapshot.select(&[], TimeRange::ALL);
    assert!(sorted.is_sorted_by(|a, b| a.labels < b.labels));
    type SelectorCase<'a> = (&'a [(&'a str, MatchOp, &'a str)], usize);
    let cases: [SelectorCase<'_>; 13] = [
        (&[("__name__", Equal, "http_requests_total")], 3),
        (&[("__name__", Regex, "http_.*")], 4),
        (&[("__name__", NotEqual, "queue_length")], 5),
        (&[("__name__", Equal, "")], 0),
        (&[("zone", Equal, "")], 2),
        (&[("zone", NotEqual, "")], 4),
        (&[("zone", Regex, "1|")], 5),
        (&[("zone", NotRegex, ".+")], 2),
        (&[("absent", Equal, "")], 6),
        (&[("absent", Regex, ".+")], 0),
        (&[("absent", NotEqual, "x")], 6),
        (&[("job", Equal, "api"), ("zone", Equal, "2")], 1),
        (&[("job", Equal, "api"), ("job", Equal, "db")], 0),
    ];
    for (case, expected) in cases {
        let matchers: Vec<Matcher> = case.iter().map(|(name, op, value)| matcher(name, *op, value)).collect();
        let found = shown(&snapshot, &matchers, TimeRange::ALL);
        assert_eq!(found.len(), expected, "{case:?}: {found:?}");
        let by_hand: Vec<_> =
            sorted.iter().filter(|s| matchers.iter().all(|m| m.admits(&s.labels))).collect();
        assert_eq!(by_hand.len(), expected, "{case:?}");
    }
    let recent = TimeRange::new(NOW.plus_ms(-5_000), NOW);
    assert_eq!(shown(&snapshot, &[], recent).len(), 5, "the queue's samples are older");
}

fn names(listing: &Listing<Arc<str>>) -> Vec<&str> {
    listing.items.iter().map(|item| &**item).collect()
}

#[test]
fn listings_are_sorted_and_limited_and_report_truncation() {
    let tsdb = shop();
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let all = TimeRange::ALL;
    assert_eq!(names(&snapshot.label_names(&[], all, 10)), ["__name__", "job", "zone"]);
    let cut = snapshot.label_names(&[], all, 2);
    assert_eq!((names(&cut), cut.truncated), (vec!["__name__", "job"], true));
    assert_eq!(names(&snapshot.label_values("job", &[], all, 10)), ["api", "db", "vault"]);
    assert!(!snapshot.label_values("job", &[], all, 3).truncated);
    assert_eq!(names(&snapshot.label_values("nothing", &[], all, 10)), Vec::<&str>::new());
    let either = [vec![matcher("zone", MatchOp::Equal, "2")], vec![matcher("job", MatchOp::Regex, "api|db")]];
    let series = snapshot.series(&either, all, 10);
    assert_eq!((series.items.len(), series.truncated), (5, false), "each once");
    assert!(snapshot.series(&either, all, 4).truncated);
    let metrics = snapshot.metrics(&MetricFilter { search: "total", ..MetricFilter::default() }, all, 2);
    let shown: Vec<_> =
        metrics.items.iter().map(|m| (&*m.name, m.kind, &*m.help, m.series, m.last_seen)).collect();
    let seen = NOW.plus_ms(-500);
    assert_eq!(
        shown,
        [
            ("http_errors_total", MetricKind::Unknown, "", 1, seen),
            ("http_requests_total", MetricKind::Counter, "Requests.", 3, seen)
        ]
    );
    assert!(metrics.truncated);
    let next =
        MetricFilter { search: "total", after: Some("http_requests_total"), ..MetricFilter::default() };
    assert_eq!(snapshot.metrics(&next, all, 2).items.len(), 1);
    let prefix = MetricFilter { prefix: "queue", ..MetricFilter::default() };
    assert_eq!(snapshot.metrics(&prefix, all, 2).items.len(), 1);
    assert_eq!(snapshot.metadata(Some("queue_length"), 5).items.len(), 1);
}

/// docs/specification.md D7: no response contains what a scope hides.
#[test]
fn a_scope_holds_in_every_listing() {
    let tsdb = shop();
    let globs = |list: &[&str]| list.iter().map(|glob| NameGlob::new(glob)).collect::<Vec<_>>();
    let scope = |matchers: Vec<Matcher>, names: Vec<Vec<NameGlob>>| Scope { matchers, names, min_time: None };
    let scopes = [
        (scope(vec![matcher("job", MatchOp::Equal, "api")], vec![]), vec!["api"], 4),
        (scope(vec![matcher("job", MatchOp::NotEqual, "vault")], vec![]), vec!["api", "db"], 5),
        (scope(vec![], vec![globs(&["http_*", "queue_length"])]), vec!["api", "db"], 5),
        (
            scope(vec![], vec![globs(&["http_*", "secret_total"]), globs(&["http_*", "queue*"])]),
            vec!["api", "db"],
            4,
        ),
        (scope(vec![], vec![vec![]]), vec![], 0),
        (scope(vec![matcher("job", MatchOp::Equal, "api")], vec![globs(&["http_r*"])]), vec!["api"], 2),
    ];
    let whole = tsdb.snapshot(&Access::whole(ORG));
    let everything = whole.select(&[], TimeRange::ALL);
    let all = TimeRange::ALL;
    for (scope, jobs, count) in scopes {
        let snapshot = tsdb.snapshot(&Access { org: ORG, scope: scope.clone() });
        assert!(snapshot.is_scoped());
        let visible = snapshot.select(&[], all);
        assert_eq!(visible.len(), count, "{scope:?}");
        // Asking for the hidden series by name or by pattern finds nothing more.
        let wide = [
            vec![matcher("job", MatchOp::Regex, ".*")],
            vec![matcher("__name__", MatchOp::Equal, "secret_total")],
        ];
        assert_eq!(snapshot.series(&wide, all, 100).items.len(), count);
        assert_eq!(names(&snapshot.label_values("job", &wide, all, 100)), jobs);
        let metrics = snapshot.metrics(&MetricFilter::default(), all, 100).items;
        assert_eq!(metrics.iter().map(|m| m.series).sum::<u64>(), count as u64);
        assert!(metrics.iter().all(|m| &*m.name != "secret_total"));
        assert!(snapshot.metadata(None, 100).items.iter().all(|d| &*d.name != "secret_total"));
        assert_eq!(snapshot.label_names(&[], all, 100).items.is_empty(), count == 0);
        // An id from elsewhere reads nothing.
        let mut out = SampleColumns::default();
        for series in &everything {
            snapshot.read(series.id, all, &mut out);
            let seen = visible.iter().any(|v| v.id == series.id);
            assert_eq!(out.times.len(), if seen { 2 } else { 0 }, "{}", series.labels);
        }
    }
}

#[test]
fn a_scope_in_time_hides_older_samples_everywhere() {
    let tsdb = shop();
    let min_time = Some(NOW.plus_ms(-700));
    let snapshot = tsdb.snapshot(&Access { org: ORG, scope: Scope { min_time, ..Scope::default() } });
    let visible = snapshot.select(&[], TimeRange::ALL);
    assert_eq!(visible.len(), 5);
    let mut out = SampleColumns::default();
    for series in &visible {
        snapshot.read(series.id, TimeRange::ALL, &mut out);
        assert_eq!(out.times, [NOW.as_ms() - 500]);
    }
    assert!(
        names(&snapshot.label_values("__name__", &[], TimeRange::ALL, 9))
            .iter()
            .all(|name| *name != "queue_length")
    );
    assert_eq!(snapshot.metrics(&MetricFilter::default(), TimeRange::ALL, 9).items.len(), 3);
    assert!(snapshot.metadata(None, 9).items.iter().all(|d| &*d.name != "queue_length"));
    assert_eq!(snapshot.series(&[], TimeRange::ALL, 9).items.len(), 5);
}

#[test]
fn organisations_see_only_their_own_series_and_unknown_ones_see_none() {
    let tsdb = shop();
    let foreign = tsdb.snapshot(&Access::whole(OrgId(99)));
    assert_eq!(shown(&foreign, &[], TimeRange::ALL), ["http_foreign/foreign/"]);
    let unknown = tsdb.snapshot(&Access::whole(OrgId(5)));
    assert!(shown(&unknown, &[], TimeRange::ALL).is_empty());
    assert!(unknown.label_names(&[], TimeRange::ALL, 9).items.is_empty());
    assert_eq!(tsdb.stats().orgs.len(), 2, "reading creates no organisation");
}
