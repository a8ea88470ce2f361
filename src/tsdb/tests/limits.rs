//! Tests of refusals, and that the rest of a request is stored (docs/specification.md C7).

use std::time::Duration;

use super::*;
use crate::model::{MetricKind, STALE_NAN_BITS};

#[test]
fn samples_outside_the_window_are_refused_one_by_one() {
    let tsdb = Tsdb::in_memory(options(&faults()), [0; 32]);
    let day = 86_400_000;
    let limits = OrgLimits { retention: Some(Duration::from_secs(86_400)), ..OrgLimits::default() };
    tsdb.set_limits(OrgId(2), limits);
    // Organisation, milliseconds before now, expected refusal.
    let cases = [
        (1, 0, None),
        (1, -600_000, None),
        (1, -600_001, Some("too_far_in_future")),
        (1, i64::MIN / 2, Some("too_far_in_future")),
        (1, 3_650 * day, None),
        (1, NOW.as_ms() + 62_135_596_800_000, None),
        (1, NOW.as_ms() + 62_135_596_800_001, Some("out_of_bounds")),
        // Ages count from the newest sample, which is one millisecond old.
        (2, day + 1, None),
        (2, day + 2, Some("too_old")),
    ];
    for (index, (org, before, code)) in cases.into_iter().enumerate() {
        let series = up(&index.to_string());
        let report = write(&tsdb, OrgId(org), &series, &[ago(before, 1.0), ago(1, 2.0)]);
        assert_eq!(report.refusals.first().map(|r| r.code), code, "{before}: {report:?}");
        assert_eq!(report.stored, 2 - u64::from(code.is_some()), "{before}");
        assert_eq!(report.refused, u64::from(code.is_some()), "{before}");
    }
    for at in [i64::MIN, i64::MAX] {
        let sample = Sample { at: Timestamp::from_ms(at), value: 1.0 };
        assert_eq!(write(&tsdb, ORG, &up("x"), &[sample]).refused, 1);
    }
}

#[test]
fn a_series_without_a_stored_sample_is_not_registered() {
    let tsdb = Tsdb::in_memory(options(&faults()), [0; 32]);
    let report = write(&tsdb, ORG, &up("a"), &[ago(-3_600_000, 1.0), ago(-3_600_001, 1.0)]);
    assert_eq!((report.refused, report.refused_by_code.as_slice()), (2, &[("too_far_in_future", 2)][..]));
    assert_eq!(report.refusals[0].series, r#"{__name__="up", job="a"}"#);
    assert_eq!(tsdb.stats().series, 0);
    write(&tsdb, ORG, &up("a"), &[ago(-3_600_000, 1.0), ago(0, 1.0)]);
    assert_eq!(tsdb.stats().series, 1);
}

#[test]
fn a_duplicate_sample_is_accepted_with_the_same_bits_and_refused_with_others() {
    let tsdb = Tsdb::scaffold();
    let stale = f64::from_bits(STALE_NAN_BITS);
    write(&tsdb, ORG, &up("a"), &[ago(10, stale)]);
    assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(10, stale)]).stored, 1);
    let report = write(&tsdb, ORG, &up("a"), &[ago(10, f64::NAN), ago(9, 1.0)]);
    assert_eq!((report.stored, report.refused), (1, 1));
    let refusal = &report.refusals[0];
    assert_eq!((refusal.code, refusal.series.as_str()), ("duplicate_sample", r#"{__name__="up", job="a"}"#));
    let found = content(&tsdb, ORG);
    assert_eq!(found.values().next().expect("a series")[0].1, STALE_NAN_BITS);
}

#[test]
fn late_samples_are_stored_and_the_last_one_wins() {
    let tsdb = Tsdb::scaffold();
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0), ago(5, 2.0)]);
    assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(7, 3.0), ago(20, 4.0), ago(10, 5.0)]).stored, 3);
    let at = |ms: i64, value: f64| (NOW.as_ms() - ms, value.to_bits());
    assert_eq!(
        content(&tsdb, ORG).into_values().next(),
        Some(vec![at(20, 4.0), at(10, 5.0), at(7, 3.0), at(5, 2.0)])
    );
    assert_eq!(tsdb.stats().orgs[0].late_samples, 3);
}

#[test]
fn known_series_are_accepted_beyond_the_series_limit() {
    let tsdb = Tsdb::scaffold();
    tsdb.set_limits(ORG, OrgLimits { series_max: 2, ..OrgLimits::default() });
    let mut batch = BatchBuilder::default();
    for job in ["a", "b", "c", "a"] {
        batch.series(&up(job), [ago(10, 1.0)]);
    }
    let report = tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    assert_eq!((report.stored, report.refused), (3, 1));
    assert_eq!(
        (report.refusals[0].code, report.refusals[0].series.as_str()),
        ("series_limit", r#"{__name__="up", job="c"}"#)
    );
    assert_eq!(write(&tsdb, ORG, &up("b"), &[ago(9, 1.0)]).stored, 1);
    assert_eq!(
        write(&tsdb, OrgId(4), &up("c"), &[ago(9, 1.0)]).stored,
        1,
        "another organisation has its own limit"
    );
}

#[test]
fn ten_refusals_are_named_and_all_are_counted() {
    let tsdb = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    for n in 0..30 {
        batch.series(&labels(&[("job", &n.to_string())]), [ago(10, 1.0), ago(9, 1.0)]);
    }
    let report = tsdb.append(ORG, &batch.batch(), NOW).expect("answered");
    assert_eq!((report.stored, report.refused, report.refusals.len()), (0, 60, 10));
    assert_eq!(report.refusals[0].code, "missing_metric_name");
}

#[test]
fn forced_labels_make_another_series() {
    let tsdb = Tsdb::scaffold();
    let mut builder = BatchBuilder::default();
    builder.series(&up("a"), [ago(10, 1.0)]);
    tsdb.append(ORG, &builder.batch(), NOW).expect("stored");
    let mut batch = builder.batch();
    batch.forced_labels = vec![("job".into(), "forced".into()), ("zone".into(), "1".into())];
    tsdb.append(ORG, &batch, NOW).expect("stored");
    let names: Vec<String> = content(&tsdb, ORG).into_keys().collect();
    assert_eq!(names, [r#"{__name__="up", job="a"}"#, r#"{__name__="up", job="forced", zone="1"}"#]);
}

#[test]
fn descriptions_survive_a_restart_and_are_bounded() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    tsdb.set_limits(ORG, OrgLimits { metadata_max: 2, help_bytes_max: 5, ..OrgLimits::default() });
    let mut batch = BatchBuilder::default();
    batch.series(&up("a"), [ago(10, 1.0)]);
    batch.describe("up", MetricKind::Gauge, "first", "").describe("b", MetricKind::Counter, "b", "s");
    batch.describe("long", MetricKind::Gauge, "longer", "");
    tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    let before = tsdb.stats().wal_records;
    tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    assert_eq!(tsdb.stats().wal_records, before + 1, "no description is new");
    tsdb.checkpoint().expect("made");
    let mut news = BatchBuilder::default();
    news.describe("up", MetricKind::Gauge, "last", "").describe("c", MetricKind::Gauge, "", "");
    tsdb.append(ORG, &news.batch(), NOW).expect("stored");
    assert_eq!(tsdb.stats().orgs[0].metadata_dropped_total, 3);
    let descriptions = |tsdb: &Tsdb| {
        let listing = tsdb.snapshot(&Access::whole(ORG)).metadata(None, 10);
        listing
            .items
            .into_iter()
            .map(|d| format!("{} {} {} {}", d.name, d.kind.as_str(), d.help, d.unit))
            .collect::<Vec<_>>()
    };
    let expected = ["b counter b s", "up gauge last "];
    assert_eq!(descriptions(&tsdb), expected);
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(descriptions(&tsdb), expected);
    tsdb.checkpoint().expect("made");
    drop(tsdb);
    assert_eq!(descriptions(&open(dir.path()).0), expected);
}
