//! Seals of late samples for imports.

use super::seal::without_room_for_segments;
use super::*;

const LATE_MS: i64 = 3_600_000;

fn few_late() -> Options {
    let mut options = options(&faults());
    options.seal_late_samples = 3;
    options
}

fn write_at(tsdb: &Tsdb, samples: &[Sample], now: Timestamp) {
    let mut batch = BatchBuilder::default();
    batch.series(&up("a"), samples.iter().copied());
    tsdb.append(ORG, &batch.batch(), now).expect("stored");
}

#[test]
fn many_late_samples_are_sealed_without_closing_the_window() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), few_late());
    write(&tsdb, ORG, &up("a"), &[ago(2 * LATE_MS, 1.0), ago(1_000, 2.0)]);
    tsdb.seal(NOW).expect("sealed");
    let now = NOW.plus_ms(60_000);
    write(&tsdb, ORG, &up("a"), &[ago(-50_000, 3.0)]);
    write(&tsdb, ORG, &up("b"), &[ago(LATE_MS, 4.0), ago(LATE_MS - 1, 5.0), ago(LATE_MS - 2, 6.0)]);
    assert!(!tsdb.has_many_late(ORG));
    assert_eq!(tsdb.seal_late(ORG, now).expect("asked").samples, 0, "there are few");
    write(&tsdb, ORG, &up("a"), &[ago(LATE_MS, 7.0)]);
    assert!(tsdb.has_many_late(ORG));
    let before = content(&tsdb, ORG);
    assert_eq!(tsdb.seal_late(ORG, now).expect("sealed").samples, 4);
    assert_eq!((tsdb.has_many_late(ORG), tsdb.stats().samples), (false, 1), "the newest one stays in memory");
    assert_eq!(content(&tsdb, ORG), before);
    // A sample before the newest one, and after the sealed time, is in order for another series.
    write(&tsdb, ORG, &up("b"), &[ago(-40_000, 8.0)]);
    assert_eq!(tsdb.stats().samples, 2);
    let before = content(&tsdb, ORG);
    drop(tsdb);
    let (tsdb, _) = open_with(dir.path(), few_late());
    assert_eq!(content(&tsdb, ORG), before);
}

#[test]
fn a_window_that_has_ended_closes_after_a_seal_of_late_samples() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), few_late());
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
    tsdb.seal(NOW).expect("sealed");
    let end_ms = NOW.as_ms().div_euclid(1_800_000) * 1_800_000 + 1_800_000;
    let now = Timestamp::from_ms(end_ms + 130_000);
    let in_window = Sample { at: Timestamp::from_ms(end_ms - 1_000), value: 2.0 };
    write_at(&tsdb, &[in_window], now);
    assert_eq!(tsdb.seal_if_due(now).expect("asked").samples, 0, "samples of the window still arrive");
    let late: Vec<Sample> = (0..4).map(|n| ago(LATE_MS + n, 3.0)).collect();
    write_at(&tsdb, &late, now);
    assert_eq!(tsdb.seal_late(ORG, now).expect("sealed").samples, 4);
    tsdb.seal_if_due(now.plus_ms(1_000)).expect("asked");
    assert_eq!(tsdb.seal_if_due(now.plus_ms(11_000)).expect("sealed").samples, 1);
    assert_eq!(tsdb.stats().samples, 0);
}

#[test]
fn a_failed_seal_of_late_samples_is_not_repeated_at_once() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), few_late());
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
    tsdb.seal(NOW).expect("sealed");
    let late: Vec<Sample> = (0..4).map(|n| ago(LATE_MS + n, 3.0)).collect();
    write(&tsdb, ORG, &up("a"), &late);
    let before = content(&tsdb, ORG);
    without_room_for_segments(dir.path(), || assert!(tsdb.seal_late(ORG, NOW).is_err()));
    assert_eq!(content(&tsdb, ORG), before);
    assert_eq!(tsdb.seal_late(ORG, NOW.plus_ms(59_000)).expect("asked").samples, 0);
    assert_eq!(tsdb.seal_late(ORG, NOW.plus_ms(60_000)).expect("sealed").samples, 4);
    assert_eq!(content(&tsdb, ORG), before);
}
