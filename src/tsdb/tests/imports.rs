//! Imports: samples that go to segments without the log.

use proptest::prelude::*;

use super::side::histogram;
use super::*;
use crate::model::{Histogram, Matcher};

const DAY_MS: i64 = 86_400_000;

/// Returns batches of a few series. The last ones repeat times of the first ones with other values.
fn batches(days: i64) -> Vec<(Labels, Vec<Sample>)> {
    let step_ms = days * DAY_MS / 100;
    let samples = |numbers: std::ops::Range<i64>, value: f64| -> Vec<Sample> {
        numbers.map(|n| ago(days * DAY_MS - n * step_ms, value)).collect()
    };
    let mut all: Vec<(Labels, Vec<Sample>)> =
        (0..5).map(|n| (up(&format!("job-{n}")), samples(0..60, n as f64))).collect();
    all.push((up("job-1"), samples(20..50, 7.5)));
    all.push((up("job-3"), samples(30..59, -1.0)));
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

/// Returns the content of a store to which the batches are written.
fn expected(all: &[(Labels, Vec<Sample>)]) -> StoreContent {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for (series, samples) in all {
        write(&tsdb, ORG, series, samples);
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
        // The head has another value, which is replaced, and the same one as its newest.
        let earlier = Sample { value: 99.0, ..all[0].1[3] };
        write(&tsdb, ORG, &all[0].0, &[earlier, all[0].1[5]]);
        let mut import = tsdb.import(ORG);
        for one in &all {
            let report = take(&mut import, one);
            assert_eq!((report.stored, report.refused), (one.1.len() as u64, 0));
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

#[test]
fn a_folder_that_had_a_follower_logs_its_imports() {
    let one = &batches(1)[0];
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    // The log is no longer kept for the follower, but may still have all records that the follower
    // needs.
    tsdb._control.change_standby(|row| (row.link, row.hold) = (5, 0)).expect("stored");
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    take(&mut tsdb.import(ORG), one);
    assert_eq!(samples(&tsdb), 60, "logged and applied");
}

#[test]
fn a_clock_that_goes_back_before_the_flush_loses_no_sample() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let mut import = tsdb.import(ORG);
    take(&mut import, &(up("a"), vec![ago(2_000, 1.0), ago(0, 2.0)]));
    import.flush(NOW.plus_ms(-DAY_MS)).expect("sealed");
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 3.0)]);
    tsdb.seal(NOW).expect("sealed");
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.notes), (None, Vec::new()));
    let bits =
        [ago(2_000, 1.0), ago(1_000, 3.0), ago(0, 2.0)].map(|one| (one.at.as_ms(), one.value.to_bits()));
    assert_eq!(content(&tsdb, ORG)[&up("a").to_string()], bits);
}

#[test]
fn days_are_merged_during_an_import_and_an_end_at_any_step_of_that_loses_no_sample() {
    // Each series has samples of three days, which arrive day by day.
    let day_of = |day: i64, part: i64| {
        let samples = (0..40).map(|n| ago((3 - day) * DAY_MS + (part * 40 + n) * 60_000, n as f64));
        (up(&format!("job-{part}")), samples.rev().collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..3).flat_map(|day| (0..3).map(move |part| day_of(day, part))).collect();
    let expected = expected(&all);
    let import_by_day = |tsdb: &Tsdb| -> Result<(), SealError> {
        let mut import = tsdb.import(ORG);
        for one in &all {
            take(&mut import, one);
            import.begin_seal(NOW).expect("samples wait").run()?;
        }
        import.flush(NOW)
    };
    for steps in 0.. {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        faults.upkeep_steps_left.store(steps, Ordering::SeqCst);
        let outcome = import_by_day(&tsdb);
        faults.upkeep_steps_left.store(-1, Ordering::SeqCst);
        let segments = tsdb.stores.org(ORG).expect("written").segments().parts.len();
        drop(tsdb);
        let (tsdb, report) = open_with(dir.path(), options(&faults));
        assert_eq!((report.read_only, report.notes, report.quarantined), (None, Vec::new(), 0));
        import_by_day(&tsdb).expect("sealed");
        assert_eq!(content(&tsdb, ORG), expected, "stopped after {steps}");
        if outcome.is_ok() {
            assert!(steps > 6, "{steps} steps");
            assert!(segments < all.len(), "{segments} segments: earlier days are merged");
            break;
        }
    }
}

#[derive(Clone, Debug)]
enum ImportStep {
    /// Floats of a series: minutes before now, which may be negative, and values; and the minutes
    /// of its histograms.
    Append(u8, Vec<(i64, u8)>, Vec<i64>),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = ImportStep> {
    // The last minutes have several values of one time, and some samples are ahead of the clock.
    let minute = || prop_oneof![-4i64..20, 0i64..4_000, 0i64..200_000];
    let floats = prop::collection::vec((minute(), 0u8..3), 0..40);
    let sorted = (0u8..3, floats, any::<bool>(), prop::collection::vec(minute(), 0..3)).prop_map(
        |(series, mut floats, is_sorted, histograms)| {
            if is_sorted {
                floats.sort_by_key(|(minute, _)| -minute);
            }
            ImportStep::Append(series, floats, histograms)
        },
    );
    prop_oneof![8 => sorted, 2 => Just(ImportStep::Flush), 1 => Just(ImportStep::Reopen)]
}

fn builder(series: u8, floats: &[(i64, u8)], histograms: &[i64]) -> BatchBuilder {
    let at = |minute: i64| NOW.plus_ms(-minute * 60_000);
    let mut batch = BatchBuilder::default();
    let floats = floats.iter().map(|(minute, value)| Sample { at: at(*minute), value: f64::from(*value) });
    batch.series(&up(&series.to_string()), floats);
    batch.histograms(histograms.iter().map(|minute| (at(*minute), histogram(minute.unsigned_abs() + 1))));
    batch
}

type Native = (String, Vec<(i64, Histogram)>);

/// Returns the floats and histograms of a store.
fn everything(tsdb: &Tsdb) -> (StoreContent, Vec<Native>) {
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let mut natives = Vec::new();
    for series in snapshot.select(&[], TimeRange::ALL) {
        let (mut floats, mut out) = (SampleColumns::default(), HistogramColumns::default());
        snapshot.read_both(series.id, TimeRange::ALL, Timestamp::MIN, &mut floats, &mut out);
        natives.push((series.labels.to_string(), out.times.into_iter().zip(out.histograms).collect()));
    }
    natives.sort_by(|a, b| a.0.cmp(&b.0));
    (read_whole(&snapshot), natives)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(6, 400)))]

    #[test]
    fn an_import_stores_and_refuses_the_same_samples_as_the_writer(
        before in prop::collection::vec((0i64..4_000, 0u8..3), 0..20),
        unsealed in prop::collection::vec((-4i64..20, 0u8..3), 0..5),
        steps in prop::collection::vec(step(), 1..12),
    ) {
        let folders = [(); 2].map(|()| crate::kv::scratch::temporary_folder().expect("made"));
        let [mut written, mut imported] = [&folders[0], &folders[1]].map(|dir| open(dir.path()).0);
        for tsdb in [&written, &imported] {
            tsdb.append(ORG, &builder(1, &before, &[]).batch(), NOW).expect("stored");
            tsdb.seal(NOW).expect("sealed");
            tsdb.append(ORG, &builder(1, &unsealed, &[]).batch(), NOW).expect("stored");
        }
        let mut steps = steps.into_iter().peekable();
        while steps.peek().is_some() {
            let mut import = imported.import(ORG);
            for step in steps.by_ref() {
                match step {
                    ImportStep::Append(series, floats, histograms) => {
                        let batch = builder(series, &floats, &histograms);
                        let mut one = written.append(ORG, &batch.batch(), NOW).expect("stored");
                        let mut other = import.append(&batch.batch(), NOW).expect("stored");
                        // The refusals of samples ahead of the clock come first.
                        for report in [&mut one, &mut other] {
                            report.refusals.sort_by(|a, b| a.reason.cmp(&b.reason));
                        }
                        prop_assert_eq!(other, one);
                    }
                    ImportStep::Flush => {
                        written.seal(NOW).expect("sealed");
                        import.flush(NOW).expect("sealed");
                        prop_assert_eq!(everything(&imported), everything(&written));
                    }
                    ImportStep::Reopen => break,
                }
            }
            written.seal(NOW).expect("sealed");
            import.flush(NOW).expect("sealed");
            drop((written, imported));
            [written, imported] = [&folders[0], &folders[1]].map(|dir| open(dir.path()).0);
            prop_assert_eq!(everything(&imported), everything(&written));
        }
        for tsdb in [&written, &imported] {
            tsdb.compact(NOW).expect("merged");
        }
        prop_assert_eq!(everything(&imported), everything(&written));
    }

    #[test]
    fn an_import_stores_and_refuses_the_same_samples_whenever_its_seals_run(
        before in prop::collection::vec((0i64..4_000, 0u8..3), 0..20),
        unsealed in prop::collection::vec((-4i64..20, 0u8..3), 0..5),
        steps in prop::collection::vec(step(), 1..16),
    ) {
        let folders = [(); 2].map(|()| crate::kv::scratch::temporary_folder().expect("made"));
        let [at_once, later] = [&folders[0], &folders[1]].map(|dir| open(dir.path()).0);
        for tsdb in [&at_once, &later] {
            tsdb.append(ORG, &builder(1, &before, &[]).batch(), NOW).expect("stored");
            tsdb.seal(NOW).expect("sealed");
            tsdb.append(ORG, &builder(1, &unsealed, &[]).batch(), NOW).expect("stored");
        }
        {
            let mut imports = [at_once.import(ORG), later.import(ORG)];
            // A thread may run the seal at any moment before the next one, or before histograms.
            let mut waiting: Option<ImportSeal<'_>> = None;
            for step in &steps {
                match step {
                    ImportStep::Append(series, floats, histograms) => {
                        if !histograms.is_empty() && let Some(seal) = waiting.take() {
                            seal.run().expect("sealed");
                        }
                        let batch = builder(*series, floats, histograms);
                        let reports =
                            imports.each_mut().map(|one| one.append(&batch.batch(), NOW).expect("stored"));
                        prop_assert_eq!(&reports[0], &reports[1]);
                    }
                    ImportStep::Flush | ImportStep::Reopen => {
                        if let Some(seal) = imports[0].begin_seal(NOW) {
                            seal.run().expect("sealed");
                        }
                        if let Some(seal) = waiting.take() {
                            seal.run().expect("sealed");
                        }
                        waiting = imports[1].begin_seal(NOW);
                    }
                }
            }
            if let Some(seal) = waiting {
                seal.run().expect("sealed");
            }
            for import in &mut imports {
                import.flush(NOW).expect("sealed");
            }
        }
        prop_assert_eq!(everything(&later), everything(&at_once));
        drop((at_once, later));
        let [at_once, later] = [&folders[0], &folders[1]].map(|dir| open(dir.path()).0);
        prop_assert_eq!(everything(&later), everything(&at_once));
    }
}
