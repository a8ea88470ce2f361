//! Imports: samples that go to segments without the log.

use super::*;
use crate::model::Matcher;

const DAY_MS: i64 = 86_400_000;

/// Returns batches of a few series. The last ones repeat times of the first ones with other values.
fn batches(days: i64) -> Vec<(Labels, Vec<Sample>)> {
    let step_ms = days * DAY_MS / 100;
    let samples =
        |from: i64, value: f64| (from..from + 60).map(|n| ago(days * DAY_MS - n * step_ms, value)).collect();
    let mut all: Vec<(Labels, Vec<Sample>)> =
        (0..5).map(|n| (up(&format!("job-{n}")), samples(0, n as f64))).collect();
    all.push((up("job-1"), samples(40, 7.5)));
    all.push((up("job-3"), samples(30, -1.0)));
    all
}

fn take(import: &mut SampleImport<'_>, (series, samples): &(Labels, Vec<Sample>)) -> AppendReport {
    let mut batch = BatchBuilder::default();
    batch.series(series, samples.iter().copied());
    import.append(&batch.batch(), NOW).expect("taken")
}

fn import_all(tsdb: &Tsdb, all: &[(Labels, Vec<Sample>)]) -> Result<(), SealError> {
    let mut import = tsdb.import(ORG);
    for one in all {
        take(&mut import, one);
    }
    import.flush(NOW)
}

/// Returns the content of a store to which the batches are written one after the other, each sealed
/// before the next.
fn expected(all: &[(Labels, Vec<Sample>)]) -> StoreContent {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for (series, samples) in all {
        write(&tsdb, ORG, series, samples);
        tsdb.seal(NOW).expect("sealed");
    }
    content(&tsdb, ORG)
}

/// Returns the number of samples.
fn samples(tsdb: &Tsdb) -> usize {
    content(tsdb, ORG).values().flatten().count()
}

#[test]
fn imported_samples_are_those_of_a_write_and_survive_a_restart_and_a_merge() {
    for days in [1, 3, 40] {
        let all = batches(days);
        let expected = expected(&all);
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        // Samples in the head, which the import's later values replace.
        write(&tsdb, ORG, &all[0].0, &[all[0].1[3]]);
        let earlier = Sample { value: 99.0, ..all[0].1[5] };
        write(&tsdb, ORG, &all[0].0, &[earlier]);
        let mut import = tsdb.import(ORG);
        for one in &all {
            let report = take(&mut import, one);
            assert_eq!((report.stored, report.refused), (60, 0));
        }
        assert_eq!(samples(&tsdb), 2, "nothing is visible before the flush");
        import.flush(NOW).expect("sealed");
        assert_eq!(content(&tsdb, ORG), expected, "{days} days");
        import.flush(NOW).expect("there is nothing left to do");
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, report.notes, report.quarantined), (None, Vec::new(), 0));
        assert_eq!(content(&tsdb, ORG), expected, "{days} days, after a restart");
        tsdb.compact(NOW).expect("merged");
        assert_eq!(content(&tsdb, ORG), expected, "{days} days, merged");
        import_all(&tsdb, &all).expect("sealed");
        assert_eq!(content(&tsdb, ORG), expected, "{days} days, imported twice");
    }
}

#[test]
fn an_import_that_ends_at_any_step_leaves_no_file_and_a_repeated_one_stores_everything_once() {
    for days in [1, 40] {
        let all = batches(days);
        let expected = expected(&all);
        for steps in 0.. {
            let dir = crate::kv::scratch::temporary_folder().expect("made");
            let faults = faults();
            let (tsdb, _) = open_with(dir.path(), options(&faults));
            write(&tsdb, ORG, &up("other"), &[ago(5, 1.0)]);
            faults.seal_steps_left.store(steps, Ordering::SeqCst);
            let outcome = import_all(&tsdb, &all);
            faults.seal_steps_left.store(-1, Ordering::SeqCst);
            drop(tsdb);
            let (tsdb, report) = open_with(dir.path(), options(&faults));
            assert_eq!((report.read_only, report.notes, report.quarantined), (None, Vec::new(), 0));
            let mut found = content(&tsdb, ORG);
            assert!(found.remove(&up("other").to_string()).is_some(), "stopped after {steps}");
            let is_whole = found.values().all(Vec::is_empty) || found == expected;
            assert!(is_whole || days > 1, "stopped after {steps}: part of a flush");
            import_all(&tsdb, &all).expect("sealed");
            found = content(&tsdb, ORG);
            found.remove(&up("other").to_string());
            assert_eq!(found, expected, "stopped after {steps}");
            if outcome.is_ok() {
                assert!(steps > 3, "{steps} steps");
                break;
            }
        }
    }
}

#[test]
fn what_the_store_does_not_accept_is_refused_by_an_import() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let limits = OrgLimits { retention: Some(Duration::from_secs(86_400)), ..OrgLimits::default() };
    tsdb.set_limits(ORG, limits);
    let mut import = tsdb.import(ORG);
    let old = ago(2 * DAY_MS, 1.0);
    let ahead = ago(-3_600_000, 1.0);
    let soon = ago(-1_000, 1.0);
    let twice = ago(10, 2.0);
    let other = Sample { value: 3.0, ..twice };
    let report = take(&mut import, &(up("a"), vec![old, twice, other, twice, soon, ahead]));
    assert_eq!((report.stored, report.refused), (3, 3));
    let codes: Vec<&str> = report.refused_by_code.iter().map(|(code, _)| *code).collect();
    for code in ["too_old", "too_far_in_future", "duplicate_sample"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    import.flush(NOW).expect("sealed");
    let found = content(&tsdb, ORG);
    let times: Vec<i64> = found[&up("a").to_string()].iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [twice.at.as_ms(), soon.at.as_ms()]);
}

#[test]
fn deletions_before_an_import_spare_its_samples_and_later_ones_remove_them() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let all = batches(1);
    let expected = expected(&all);
    let everything = [vec![Matcher::equal("__name__", "up")]];
    import_all(&tsdb, &all).expect("sealed");
    tsdb.delete(ORG, &everything, TimeRange::ALL, NOW).expect("deleted");
    assert_eq!(samples(&tsdb), 0);
    import_all(&tsdb, &all).expect("sealed");
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(content(&tsdb, ORG), expected);
    tsdb.delete(ORG, &everything, TimeRange::ALL, NOW).expect("deleted");
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(samples(&tsdb), 0);
}

#[test]
fn a_log_that_a_follower_or_another_consumer_reads_gets_the_imported_samples() {
    let one = &batches(1)[0];
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    tsdb.hold_log(1);
    let mut import = tsdb.import(ORG);
    take(&mut import, one);
    assert_eq!(samples(&tsdb), 60, "logged and applied");
    import.flush(NOW).expect("sealed");
    assert_eq!(samples(&tsdb), 60);
    let consumer = ConsumerId { kind: ConsumerKind::Forward, number: 7 };
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    tsdb.pin(consumer, LogPosition(1)).expect("pinned");
    take(&mut tsdb.import(ORG), one);
    assert_eq!(samples(&tsdb), 60, "logged and applied");
}
