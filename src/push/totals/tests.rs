//! Totals of one organisation over a store in memory.

use super::*;
use crate::model::{BatchBuilder, Sample, stale_nan};
use crate::tsdb::Tsdb;

const ORG: OrgId = OrgId(1);
const NOW: Timestamp = Timestamp::from_s(1_800_000_000);

struct Fixture {
    tsdb: Tsdb,
    totals: SeriesTotals,
}

fn at(seconds: i64) -> Timestamp {
    NOW.plus_ms(seconds * 1_000)
}

fn series(name: &str) -> RenderedLabels {
    let mut labels = RenderedLabels::default();
    labels.push("__name__", name);
    labels
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { tsdb: Tsdb::scaffold(), totals: SeriesTotals::default() }
    }

    /// Adds a point that covers the interval from `start` to `end`, and stores its total.
    fn add(&self, name: &str, (start, end): (i64, i64), change: f64) -> Result<f64, DeltaRefusal> {
        self.request(name, (start, end), change, true)
    }

    fn request(
        &self,
        name: &str,
        (start, end): (i64, i64),
        change: f64,
        is_stored: bool,
    ) -> Result<f64, DeltaRefusal> {
        let org = self.totals.of(ORG);
        let stored = StoredTotals::new(&self.tsdb, ORG, &[], NOW);
        let mut totals = RequestTotals::new(&org, &self.totals.counts, stored, NOW);
        let labels = series(name);
        totals.admit(&[&labels], DeltaTimes { start: Some(at(start)), at: at(end) })?;
        let total = totals.add(&[&labels], at(end), change);
        if is_stored {
            let mut batch = BatchBuilder::default();
            batch.series_rendered(&[&labels], [Sample { at: at(end), value: total }]);
            self.tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
            totals.keep();
        }
        Ok(total)
    }

    /// Forgets all totals in memory, as a restart does.
    fn restart(&mut self) {
        self.totals = SeriesTotals::default();
    }

    fn counts(&self) -> [u64; 4] {
        let DeltaCounts { gaps, overlaps, reordered, repeated, .. } = &self.totals.counts;
        [gaps, overlaps, reordered, repeated].map(|counter| counter.load(Ordering::Relaxed))
    }
}

#[test]
fn changes_add_up() {
    let fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 1.0), Ok(1.0));
    assert_eq!(fixture.add("m", (-50, -40), 2.5), Ok(3.5));
    assert_eq!(fixture.add("n", (-50, -40), 7.0), Ok(7.0));
    assert_eq!(fixture.counts(), [0, 0, 0, 0]);
}

#[test]
fn gaps_and_overlaps_are_counted_and_added() {
    let fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 1.0), Ok(1.0));
    assert_eq!(fixture.add("m", (-45, -40), 1.0), Ok(2.0));
    assert_eq!(fixture.counts(), [1, 0, 0, 0]);
    assert_eq!(fixture.add("m", (-41, -30), 1.0), Ok(3.0));
    assert_eq!(fixture.counts(), [1, 1, 0, 0]);
}

#[test]
fn repeated_and_reordered_points_are_refused_and_counted() {
    let fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 1.0), Ok(1.0));
    assert_eq!(fixture.add("m", (-60, -50), 1.0), Err(DeltaRefusal::Repeated));
    assert_eq!(fixture.add("m", (-55, -50), 1.0), Err(DeltaRefusal::Reordered));
    assert_eq!(fixture.add("m", (-70, -60), 1.0), Err(DeltaRefusal::Reordered));
    assert_eq!(fixture.counts(), [0, 0, 2, 1]);
    assert_eq!(fixture.add("m", (-50, -40), 1.0), Ok(2.0), "the total did not change");
    assert_eq!(fixture.add("m", (-20, -30), 1.0), Err(DeltaRefusal::StartAfterEnd));
}

#[test]
fn a_total_continues_from_its_stored_sample_after_a_restart() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 5.0), Ok(5.0));
    fixture.restart();
    assert_eq!(
        fixture.add("m", (-60, -50), 5.0),
        Err(DeltaRefusal::Repeated),
        "sent again after the restart"
    );
    assert_eq!(fixture.add("m", (-50, -40), 2.0), Ok(7.0));
}

#[test]
fn a_total_without_recent_samples_continues_from_one_of_the_last_day() {
    let fixture = Fixture::new();
    for (name, seconds) in [("m", -80_000), ("n", -90_000)] {
        let mut batch = BatchBuilder::default();
        batch.series_rendered(&[&series(name)], [Sample { at: at(seconds), value: 5.0 }]);
        let stored = fixture.tsdb.append(ORG, &batch.batch(), at(seconds)).expect("stored");
        assert_eq!(stored.refused, 0, "{name}");
    }
    assert_eq!(fixture.add("m", (-60, -50), 2.0), Ok(7.0));
    assert_eq!(fixture.add("n", (-60, -50), 2.0), Ok(2.0));
}

#[test]
fn a_request_that_is_not_stored_changes_no_total() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 5.0), Ok(5.0));
    for _ in 0..2 {
        assert_eq!(fixture.request("m", (-50, -40), 2.0, false), Ok(7.0), "it is sent again");
        assert_eq!(fixture.request("n", (-50, -40), 2.0, false), Ok(2.0));
    }
    fixture.restart();
    assert_eq!(fixture.add("m", (-50, -40), 2.0), Ok(7.0));
}

#[test]
fn a_staleness_marker_ends_a_total() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.add("m", (-60, -50), 5.0), Ok(5.0));
    let mut batch = BatchBuilder::default();
    batch.series_rendered(&[&series("m")], [Sample { at: at(-45), value: stale_nan() }]);
    fixture.tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    fixture.restart();
    assert_eq!(fixture.add("m", (-40, -30), 2.0), Ok(2.0));
}

#[test]
fn series_beyond_the_limit_leave_memory_and_continue_from_their_samples() {
    let fixture = Fixture::new();
    fixture.totals.of(ORG).lock().ignore_poison().series_max = 10;
    for name in 0..30 {
        assert_eq!(fixture.add(&format!("m{name}"), (-60, -50), 1.0), Ok(1.0));
    }
    let org = fixture.totals.of(ORG);
    let kept = org.lock().ignore_poison();
    assert!(kept.young.len() + kept.old.len() <= 10);
    drop(kept);
    assert!(fixture.totals.counts.evicted.load(Ordering::Relaxed) >= 20);
    for name in 0..30 {
        assert_eq!(fixture.add(&format!("m{name}"), (-50, -40), 1.0), Ok(2.0), "{name}");
    }
}

#[test]
fn labels_of_the_api_key_are_part_of_the_stored_series() {
    let fixture = Fixture::new();
    let forced: [(Box<str>, Box<str>); 1] = [("source".into(), "a".into())];
    let mut batch = BatchBuilder::default();
    batch.series_of([("__name__", "m"), ("source", "a")], [Sample { at: at(-50), value: 5.0 }]);
    batch.series_of([("__name__", "m"), ("source", "b")], [Sample { at: at(-50), value: 9.0 }]);
    batch.series_of([("__name__", "m"), ("source", "a"), ("x", "y")], [Sample { at: at(-50), value: 8.0 }]);
    fixture.tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    let stored = StoredTotals::new(&fixture.tsdb, ORG, &forced, NOW);
    let labels = series("m");
    let found = stored.find(&stored_labels(&[&labels], &forced)).expect("a sample");
    assert_eq!((found.at, found.value), (at(-50), TotalValue::Number(5.0)));
    let stored = StoredTotals::new(&fixture.tsdb, ORG, &[], NOW);
    assert_eq!(stored.find(&stored_labels(&[&labels], &[])), None);
}

/// Their series differ in the store, so a total in memory belongs to only one of these series.
#[test]
fn senders_with_different_forced_labels_have_totals_of_their_own() {
    let fixture = Fixture::new();
    let org = fixture.totals.of(ORG);
    let labels = series("m");
    for (source, change) in [("a", 5.0), ("b", 3.0)] {
        let forced: [(Box<str>, Box<str>); 1] = [("source".into(), source.into())];
        let stored = StoredTotals::new(&fixture.tsdb, ORG, &forced, NOW);
        let mut totals = RequestTotals::new(&org, &fixture.totals.counts, stored, NOW);
        let times = DeltaTimes { start: Some(at(-60)), at: at(-50) };
        assert_eq!(totals.admit(&[&labels], times), Ok(times.start), "{source}");
        assert_eq!(totals.add(&[&labels], at(-50), change), change, "{source}");
        totals.keep();
    }
}

#[test]
fn idle_totals_leave_memory_unless_a_request_has_them() {
    let fixture = Fixture::new();
    let of_request = fixture.totals.of(ORG);
    fixture.totals.sweep(NOW);
    assert!(Arc::ptr_eq(&of_request, &fixture.totals.of(ORG)), "all requests change the same totals");
    of_request.lock().ignore_poison().used_at = NOW;
    drop(of_request);
    let remaining = |now: Timestamp| {
        fixture.totals.sweep(now);
        fixture.totals.orgs.lock().ignore_poison().len()
    };
    assert_eq!(remaining(NOW.plus_ms(IDLE_MS - 1)), 1);
    assert_eq!(remaining(NOW.plus_ms(IDLE_MS)), 0);
}
