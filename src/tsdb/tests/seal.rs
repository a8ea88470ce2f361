//! Tests of seals, and of everything that may interrupt them.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::model::MatchOp;

/// Calls `run` while the directories of segments are plain files.
pub(super) fn without_room_for_segments(dir: &Path, run: impl FnOnce()) {
    let segments = dir.join("segments");
    let aside = dir.join("segments-aside");
    std::fs::rename(&segments, &aside).expect("renamed");
    std::fs::create_dir(&segments).expect("made");
    for org in 0..10 {
        std::fs::write(segments.join(org.to_string()), "in the way").expect("written");
    }
    run();
    std::fs::remove_dir_all(&segments).expect("removed");
    std::fs::rename(&aside, &segments).expect("renamed back");
}

/// Writes samples of one hour for a few series, ending now.
fn fill(tsdb: &Tsdb, org: OrgId) {
    for n in 0..240i64 {
        let mut batch = BatchBuilder::default();
        for series in 0..5u32 {
            batch.series(
                &up(&format!("job-{series}")),
                [ago(3_600_000 - n * 15_000, (n * 5) as f64 + f64::from(series))],
            );
        }
        tsdb.append(org, &batch.batch(), NOW).expect("stored");
    }
}

fn samples(content: &StoreContent) -> usize {
    content.values().map(Vec::len).sum()
}

pub(super) fn log_files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir.join("wal"))
        .expect("listed")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Stops a seal after `after` steps and starts twice from the state that it left. The content must
/// not differ, neither live nor later, and no unlisted file may remain.
fn stopped_seal(
    dir: &Path,
    faults: &Arc<Faults>,
    tsdb: Opened,
    now: Timestamp,
    after: i64,
    also: impl Fn(&Stats, u32),
) -> Result<SealReport, SealError> {
    let before = content(&tsdb, ORG);
    faults.seal_steps_left.store(after, Ordering::SeqCst);
    let sealed = tsdb.seal(now);
    faults.seal_steps_left.store(-1, Ordering::SeqCst);
    assert_eq!(content(&tsdb, ORG), before, "live, stopped after {after}");
    drop(tsdb);
    for start in 0..2 {
        let (tsdb, report) = open_with(dir, options(faults));
        assert_eq!((report.read_only, report.notes, report.quarantined), (None, Vec::new(), 0));
        assert_eq!(content(&tsdb, ORG), before, "start {start} after step {after}");
        let stats = tsdb.stats();
        also(&stats, start);
        assert_eq!(segment_files(dir, ORG).len() as u64, stats.segments);
    }
    sealed
}

fn segment_files(dir: &Path, org: OrgId) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir.join(format!("segments/{org}")))
        .map(|entries| entries.map(|entry| entry.expect("entry").path()).collect())
        .unwrap_or_default();
    paths.sort();
    paths
}

#[test]
fn a_seal_moves_all_samples_and_changes_nothing_for_readers() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    fill(&tsdb, OrgId(9));
    let before = content(&tsdb, ORG);
    assert_eq!(samples(&before), 1_200);
    let report = tsdb.seal(NOW).expect("sealed");
    assert_eq!((report.orgs, report.segments, report.samples), (2, 2, 2_400));
    assert_eq!(content(&tsdb, ORG), before);
    let stats = tsdb.stats();
    assert_eq!((stats.samples, stats.segments, stats.sealed_samples, stats.seals), (0, 2, 2_400, 2));
    assert_eq!((stats.wal_files, stats.wal_file_bytes), (1, 1 << 20), "the log is trimmed and small again");
    assert_eq!(log_files(dir.path()), ["0000000002.wal"]);
    assert_eq!(tsdb.seal(NOW).expect("sealed").orgs, 0, "no sample is new");
    tsdb.close();
    drop(tsdb);
    for _ in 0..2 {
        let (tsdb, report) = open(dir.path());
        assert_eq!(
            (report.read_only, report.samples, report.notes),
            (None, 0, Vec::new()),
            "nothing is replayed"
        );
        assert_eq!(content(&tsdb, ORG), before);
        assert_eq!(content(&tsdb, OrgId(9)), before);
    }
}

#[test]
fn samples_after_a_seal_are_read_together_with_sealed_ones() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    let mut expected = content(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    let series = up("job-1");
    let known = expected.get_mut(&series.to_string()).expect("there");
    // Samples in order, late samples between others and at the same time, and samples before all
    // others.
    for sample in [ago(-1_000, 1.5), ago(1_000_001, 2.5), ago(15_000, -3.5), ago(90_000_000, 4.5)] {
        write(&tsdb, ORG, &series, &[sample]);
        known.retain(|(at, _)| *at != sample.at.as_ms());
        known.push((sample.at.as_ms(), sample.value.to_bits()));
        known.sort_unstable();
    }
    let expected = expected;
    assert_eq!(content(&tsdb, ORG), expected);
    let later = NOW.plus_ms(5_000);
    let report = tsdb.seal(later).expect("sealed");
    assert_eq!(
        (report.segments, report.samples),
        (2 + 1, 4),
        "late samples are a day apart, and one is in order"
    );
    assert_eq!(content(&tsdb, ORG), expected);
    drop(tsdb);
    assert_eq!(content(&open(dir.path()).0, ORG), expected);
}

#[test]
fn a_window_is_sealed_once_the_clock_is_past_it_and_it_is_quiet() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    let before = content(&tsdb, ORG);
    let end = NOW.as_ms().div_euclid(1_800_000) * 1_800_000;
    assert!(end + 120_000 < NOW.as_ms());
    assert_eq!(tsdb.seal_if_due(NOW).expect("asked").orgs, 0, "samples have just arrived");
    let report = tsdb.seal_if_due(NOW.plus_ms(10_000)).expect("sealed");
    let below = before.values().flatten().filter(|(at, _)| *at < end).count() as u64;
    assert_eq!((report.orgs, report.samples), (1, below));
    assert_eq!(tsdb.stats().samples, 1_200 - below);
    assert_eq!(content(&tsdb, ORG), before);
    assert_eq!(tsdb.seal_if_due(NOW.plus_ms(20_000)).expect("asked").orgs, 0);
    let next = Timestamp::from_ms(end + 1_800_000);
    assert_eq!(
        tsdb.seal_if_due(next.plus_ms(119_000)).expect("asked").orgs,
        0,
        "not two minutes past its end"
    );
    assert_eq!(tsdb.seal_if_due(next.plus_ms(120_000)).expect("sealed").orgs, 1);
    assert_eq!((tsdb.stats().samples, content(&tsdb, ORG)), (0, before));
}

#[test]
fn a_backfill_delays_a_seal_but_not_forever() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("now"), &[ago(0, 1.0)]);
    for minute in 0..15 {
        write(&tsdb, ORG, &up("old"), &[ago(86_400_000 - minute * 1_000, 1.0)]);
        assert_eq!(tsdb.seal_if_due(NOW.plus_ms(minute * 60_000)).expect("asked").orgs, 0, "minute {minute}");
    }
    write(&tsdb, ORG, &up("old"), &[ago(80_000_000, 1.0)]);
    let report = tsdb.seal_if_due(NOW.plus_ms(15 * 60_000)).expect("sealed");
    assert_eq!((report.orgs, report.samples), (1, 16));
}

#[test]
fn a_temporarily_wrong_clock_makes_no_later_sample_late() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    let in_2099 = NOW.plus_ms(73 * 365 * 86_400_000);
    tsdb.seal_if_due(in_2099).expect("asked");
    assert_eq!(tsdb.seal_if_due(in_2099.plus_ms(10_000)).expect("sealed").samples, 1_200);
    let until = NOW.as_ms().div_euclid(1_800_000) * 1_800_000 + 1_800_000;
    assert_eq!(tsdb.stores.org(ORG).expect("there").head.barrier(), until);
    assert_eq!(tsdb.seal(in_2099).expect("asked").orgs, 0);
}

#[test]
fn late_samples_wait_for_the_end_of_a_window() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    let end = NOW.as_ms().div_euclid(1_800_000) * 1_800_000 + 1_800_000 + 120_000;
    let mut sealed = 0;
    for (index, at) in (NOW.as_ms()..end + 60_000).step_by(10_000).enumerate() {
        write(&tsdb, ORG, &up("job-1"), &[ago(3_600_000 + index as i64, 1.0)]);
        tsdb.seal_if_due(Timestamp::from_ms(at)).expect("asked");
        let quiet = tsdb.seal_if_due(Timestamp::from_ms(at).plus_ms(10_000)).expect("asked");
        sealed += quiet.segments;
        assert!(sealed <= 2, "once for the last window, once for this one");
    }
    assert!(sealed >= 1);
}

#[test]
fn high_memory_use_a_long_log_or_late_samples_cause_an_early_seal() {
    for limit in [
        |options: &mut Options| options.seal_head_bytes = 1,
        |options: &mut Options| options.seal_log_bytes = 1,
        |options: &mut Options| options.seal_late_samples = 0,
    ] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let mut options = options(&faults());
        limit(&mut options);
        let (tsdb, _) = open_with(dir.path(), options);
        write(&tsdb, ORG, &up("a"), &[ago(5, 1.0), ago(7, 2.0)]);
        assert_eq!(tsdb.seal_if_due(NOW).expect("sealed").samples, 2);
        write(&tsdb, ORG, &up("a"), &[ago(3, 1.0)]);
        assert_eq!(tsdb.seal_if_due(NOW.plus_ms(59_000)).expect("asked").orgs, 0, "not again at once");
    }
}

#[test]
fn a_repeated_sample_after_its_seal_is_judged_alike_live_and_after_a_restart() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0), ago(5, 2.0)]);
    tsdb.seal(NOW).expect("sealed");
    // Writes the same bits and other ones, at the time of the series' last sample.
    for value in [2.0, 3.0] {
        assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(5, value)]).stored, 1);
    }
    let live = content(&tsdb, ORG);
    assert_eq!(live[&up("a").to_string()].last(), Some(&(NOW.as_ms() - 5, 3f64.to_bits())));
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(content(&tsdb, ORG), live);
    assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(5, 4.0)]).stored, 1, "late: the last one wins");
    tsdb.seal(NOW).expect("sealed");
    assert_eq!(content(&tsdb, ORG)[&up("a").to_string()].last(), Some(&(NOW.as_ms() - 5, 4f64.to_bits())));
}

#[test]
fn a_seal_that_stops_at_any_step_loses_and_duplicates_nothing() {
    let mut stopped = 0;
    for after in 0..20 {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        fill(&tsdb, ORG);
        if after % 2 == 0 {
            tsdb.checkpoint().expect("made");
        }
        tsdb.seal(NOW).expect("sealed");
        write(&tsdb, ORG, &up("job-1"), &[ago(7_000, 1.0), ago(40_000_000, 2.0)]);
        write(&tsdb, ORG, &up("job-9"), &[ago(-9, 1.0)]);
        let before = content(&tsdb, ORG);
        let sealed = stopped_seal(dir.path(), &faults, tsdb, NOW.plus_ms(10), after, |stats, start| {
            assert_eq!(stats.samples + stats.sealed_samples, 1_203, "start {start} after step {after}");
        });
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        tsdb.seal(NOW.plus_ms(10)).expect("sealed");
        assert_eq!((tsdb.stats().samples, tsdb.stats().sealed_samples), (0, 1_203));
        assert_eq!(content(&tsdb, ORG), before);
        match sealed {
            Err(SealError::Stopped) => stopped += 1,
            Err(e) => panic!("{e}"),
            Ok(_) => {
                assert!(stopped >= 6, "{stopped} borders");
                return;
            }
        }
    }
    panic!("a seal has fewer steps");
}

#[test]
fn a_failed_seal_is_reported_and_retried_after_a_minute() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    tsdb.seal_if_due(NOW).expect("asked");
    let before = content(&tsdb, ORG);
    let due = NOW.plus_ms(10_000);
    without_room_for_segments(dir.path(), || drop(tsdb.seal_if_due(due).expect_err("it cannot be written")));
    assert_eq!(content(&tsdb, ORG), before);
    let notes = tsdb.health().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("organisation 3 was not sealed at"), "{notes:?}");
    assert_eq!(tsdb.stats().seals_failed, 1);
    // Samples of the closed window are late now, and the last one wins.
    write(&tsdb, ORG, &up("job-1"), &[ago(3_600_000, 77.0)]);
    let before = content(&tsdb, ORG);
    assert_eq!(tsdb.seal_if_due(due.plus_ms(59_000)).expect("asked").orgs, 0);
    assert_eq!(tsdb.seal_if_due(due.plus_ms(69_000)).expect("sealed").orgs, 1);
    assert_eq!((content(&tsdb, ORG), tsdb.health().notes), (before, Vec::new()));
}

#[test]
fn free_space_is_checked_before_a_seal() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    fill(&tsdb, ORG);
    faults.free_bytes.store(1_000, Ordering::SeqCst);
    assert!(matches!(tsdb.seal(NOW), Err(SealError::DiskFull { free: 1_000, .. })));
    assert_eq!(segment_files(dir.path(), ORG).len(), 0);
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    assert_eq!(tsdb.seal(NOW).expect("sealed").samples, 1_200);
}

#[test]
fn readers_see_every_sample_at_every_moment_of_a_seal() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let series: Vec<Labels> = (0..4).map(|n| up(&format!("job-{n}"))).collect();
    let acknowledged = std::sync::atomic::AtomicI64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..20_000i64 {
                // Enough samples for a disk that is faster than the seals.
                if n >= 600 && tsdb.stats().seals > 3 {
                    break;
                }
                let mut batch = BatchBuilder::default();
                for labels in &series {
                    // Every third sample is late.
                    let at = if n % 3 == 2 { n - 40 } else { n };
                    batch.series(labels, [ago(10_000 - at * 10, at as f64)]);
                }
                tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
                acknowledged.store(n + 1, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                tsdb.seal(NOW).expect("sealed");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let until = acknowledged.load(Ordering::SeqCst);
                    let found = read_whole(&tsdb.snapshot(&Access::whole(ORG)));
                    let times: std::collections::BTreeSet<i64> = (0..until)
                        .map(|n| if n % 3 == 2 { n - 40 } else { n })
                        .map(|at| NOW.as_ms() - 10_000 + at * 10)
                        .collect();
                    for labels in &series {
                        let Some(samples) = found.get(&labels.to_string()) else {
                            assert_eq!(until, 0);
                            continue;
                        };
                        assert!(samples.is_sorted_by(|a, b| a.0 < b.0));
                        let have: std::collections::BTreeSet<i64> =
                            samples.iter().map(|(at, _)| *at).collect();
                        let missing: Vec<_> = times.difference(&have).collect();
                        assert!(missing.is_empty(), "{missing:?} of {until}");
                    }
                }
            });
        }
    });
    assert!(tsdb.stats().seals > 3, "{:?}", tsdb.stats());
    let live = content(&tsdb, ORG);
    drop(tsdb);
    assert_eq!(content(&open(dir.path()).0, ORG), live);
}

#[test]
fn samples_around_the_epoch_are_sealed_and_read() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let at = |ms: i64| Sample { at: Timestamp::from_ms(ms), value: ms as f64 };
    let all = [at(-5_000_000_000_000), at(-86_400_001), at(-1), at(0), at(1), at(86_400_000)];
    write(&tsdb, ORG, &up("a"), &all);
    let before = content(&tsdb, ORG);
    assert_eq!(tsdb.seal(NOW).expect("sealed").samples, 6);
    assert_eq!(content(&tsdb, ORG), before);
    write(&tsdb, ORG, &up("a"), &[at(-2), at(-7_000_000_000_000)]);
    let before = content(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    assert_eq!(content(&tsdb, ORG), before);
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(content(&tsdb, ORG), before);
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let range = TimeRange::new(Timestamp::from_ms(-2), Timestamp::from_ms(0));
    let found = snapshot.select(&[], range);
    let mut out = SampleColumns::default();
    snapshot.read(found[0].id, range, &mut out);
    assert_eq!(out.times, [-2, -1, 0]);
}

#[test]
fn years_of_samples_become_a_bounded_number_of_segments() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let days: Vec<Sample> = (0..900).map(|day| ago((900 - day) * 86_400_000, day as f64)).collect();
    write(&tsdb, ORG, &up("a"), &days);
    write(&tsdb, ORG, &up("b"), &[ago(60 * 365 * 86_400_000, 1.0)]);
    let before = content(&tsdb, ORG);
    let report = tsdb.seal(NOW).expect("sealed");
    assert!((3..=31).contains(&report.segments), "{report:?}");
    assert_eq!((report.samples, content(&tsdb, ORG)), (901, before.clone()));
    let week: Vec<Sample> = (0..7 * 24).map(|hour| ago(1_000 + hour * 3_600_000, -1.0)).rev().collect();
    write(&tsdb, ORG, &up("week"), &week);
    let before = content(&tsdb, ORG);
    let report = tsdb.seal(NOW).expect("sealed");
    assert!((8..=9).contains(&report.segments), "cut at days: {report:?}");
    assert_eq!(content(&tsdb, ORG), before);
}

#[test]
fn selections_and_listings_include_sealed_series() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("old"), &[ago(10_000_000, 1.0), ago(9_000_000, 1.0)]);
    tsdb.seal(NOW).expect("sealed");
    write(&tsdb, ORG, &labels(&[("__name__", "down"), ("zone", "1")]), &[ago(1_000, 1.0)]);
    tsdb.seal(NOW).expect("sealed");
    write(&tsdb, ORG, &up("new"), &[ago(10, 1.0)]);
    let access = Access::whole(ORG);
    let snapshot = tsdb.snapshot(&access);
    let range = |from: i64, to: i64| TimeRange::new(NOW.plus_ms(-from), NOW.plus_ms(-to));
    let jobs = |range| {
        let found = snapshot.label_values("job", &[], range, 10);
        found.items.iter().map(|job| job.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(jobs(TimeRange::ALL), ["new", "old"]);
    assert_eq!(jobs(range(9_500_000, 9_000_000)), ["old"]);
    assert_eq!(jobs(range(8_999_999, 11)), Vec::<String>::new());
    assert_eq!(snapshot.series(&[], TimeRange::ALL, 10).items.len(), 3);
    assert_eq!(snapshot.label_names(&[], range(2_000, 500), 10).items.len(), 2);
    let up_seen = |range| {
        let metrics = snapshot.metrics(&MetricFilter { prefix: "up", ..MetricFilter::default() }, range, 10);
        metrics.items.first().map(|metric| (metric.series, metric.last_seen))
    };
    assert_eq!(up_seen(TimeRange::ALL), Some((2, NOW.plus_ms(-10))));
    assert_eq!(up_seen(range(10_000_000, 9_500_000)), Some((1, NOW.plus_ms(-9_000_000))));
    // Scopes apply to segments, too.
    let matcher = crate::model::Matcher::new("job", MatchOp::Equal, "new").expect("valid");
    let scope = crate::model::Scope { matchers: vec![matcher], ..crate::model::Scope::default() };
    let scoped = tsdb.snapshot(&Access { org: ORG, scope });
    assert_eq!(scoped.select(&[], TimeRange::ALL).len(), 1);
    let mut out = SampleColumns::default();
    for series in snapshot.select(&[], TimeRange::ALL) {
        scoped.read(series.id, TimeRange::ALL, &mut out);
        assert_eq!(out.times.is_empty(), series.labels.value("job") != "new");
    }
    let scope =
        crate::model::Scope { min_time: Some(NOW.plus_ms(-9_500_000)), ..crate::model::Scope::default() };
    let recent = tsdb.snapshot(&Access { org: ORG, scope });
    for series in snapshot.select(&[], TimeRange::ALL) {
        recent.read(series.id, TimeRange::ALL, &mut out);
        assert_eq!(out.times.len(), 1, "{}", series.labels);
    }
    assert!(tsdb.snapshot(&Access::whole(OrgId(77))).select(&[], TimeRange::ALL).is_empty());
}

#[test]
fn a_missing_or_damaged_segment_costs_only_its_samples_and_is_reported() {
    type SegmentDamageCase = (&'static str, fn(&Path));
    let damages: [SegmentDamageCase; 3] = [
        ("gone", |path| std::fs::remove_file(path).expect("removed")),
        ("cut", |path| {
            std::fs::OpenOptions::new().write(true).open(path).and_then(|f| f.set_len(100)).expect("cut");
        }),
        ("of another organisation", |path| {
            let other = path.parent().and_then(Path::parent).expect("segments").join("9");
            let other = std::fs::read_dir(other).expect("listed").next().expect("one").expect("entry").path();
            std::fs::copy(other, path).expect("copied");
        }),
    ];
    for (what, damage) in damages {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        fill(&tsdb, OrgId(9));
        fill(&tsdb, ORG);
        tsdb.seal(NOW).expect("sealed");
        write(&tsdb, ORG, &up("job-1"), &[ago(-500, 1.0)]);
        tsdb.close();
        drop(tsdb);
        damage(&segment_files(dir.path(), ORG)[0]);
        for start in 0..2 {
            let (tsdb, report) = open(dir.path());
            assert_eq!(report.read_only, None, "{what}");
            assert!(
                report.notes.len() == 1 && report.notes[0].contains("segment 1 of organisation 3"),
                "{what}: {:?}",
                report.notes
            );
            assert_eq!(samples(&content(&tsdb, ORG)), 1 + start, "{what}: other samples are read");
            assert_eq!(samples(&content(&tsdb, OrgId(9))), 1_200, "{what}");
            let warnings = |range| {
                let snapshot = tsdb.snapshot(&Access::whole(ORG));
                snapshot.select(&[], range);
                snapshot.warnings()
            };
            assert!(warnings(TimeRange::ALL)[0].contains("0000000001-L0.seg"), "{what}");
            assert_eq!(
                warnings(TimeRange::new(NOW, NOW)),
                Vec::<String>::new(),
                "{what}: no warning for other times"
            );
            write(&tsdb, ORG, &up("job-1"), &[ago(-600, 2.0)]);
            tsdb.seal(NOW.plus_ms(1_000)).expect("sealed");
        }
    }
}

#[test]
fn a_flipped_block_is_a_warning_and_never_a_wrong_value() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    let before = content(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    tsdb.close();
    drop(tsdb);
    let path = segment_files(dir.path(), ORG).remove(0);
    let whole = std::fs::read(&path).expect("read");
    let mut reported = 0;
    for at in (64..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(&path, &bytes).expect("written");
        let (tsdb, report) = open(dir.path());
        let snapshot = tsdb.snapshot(&Access::whole(ORG));
        let mut out = SampleColumns::default();
        let mut found = 0;
        for series in snapshot.select(&[], TimeRange::ALL) {
            snapshot.read(series.id, TimeRange::ALL, &mut out);
            found += out.times.len();
            for (at, value) in out.times.iter().zip(&out.values) {
                assert!(before[&series.labels.to_string()].contains(&(*at, value.to_bits())), "byte {at}");
            }
        }
        let is_reported = !report.notes.is_empty() || !snapshot.warnings().is_empty();
        assert!(found == 1_200 || is_reported, "byte {at}: {found} samples without a report");
        reported += usize::from(is_reported);
    }
    assert!(reported > 3, "{reported}");
}

#[test]
fn names_are_restored_from_segments_if_the_registry_is_lost() {
    type RegistryDamage = fn(&Path);
    let damages: [RegistryDamage; 2] = [
        |registry| std::fs::remove_file(registry).expect("removed"),
        |registry| {
            std::fs::OpenOptions::new().write(true).open(registry).and_then(|f| f.set_len(90)).expect("cut");
        },
    ];
    for (damage, with_copy) in damages.into_iter().flat_map(|damage| [(damage, false), (damage, true)]) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        fill(&tsdb, ORG);
        tsdb.seal(NOW).expect("sealed");
        write(&tsdb, ORG, &up("after"), &[ago(-10, 1.0)]);
        let before = content(&tsdb, ORG);
        drop(tsdb);
        damage(&dir.path().join("series/3.reg"));
        if with_copy {
            damage(&dir.path().join("series/3.copy"));
        }
        let words = if with_copy { "names come from" } else { "its copy has the names" };
        let (tsdb, report) = open(dir.path());
        assert!(report.read_only.is_none() && report.notes.iter().any(|n| n.contains(words)), "{report:?}");
        assert_eq!(content(&tsdb, ORG), before);
        // The next seal repairs the state.
        tsdb.seal(NOW.plus_ms(1_000)).expect("sealed");
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!(report.notes, Vec::<String>::new());
        assert_eq!(content(&tsdb, ORG), before);
    }
}

#[test]
fn a_missing_start_of_the_log_is_damage_only_if_it_was_not_trimmed() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    write(&tsdb, ORG, &up("a"), &[ago(-10, 1.0)]);
    let sealed = tsdb.seal(NOW).expect("sealed");
    assert_eq!(sealed.samples, 0, "a sample ahead within the limit for senders stays in the head");
    let first = log_files(dir.path());
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!(report.read_only, None);
    assert_eq!(samples(&content(&tsdb, ORG)), 1_201);
    drop(tsdb);
    std::fs::remove_file(dir.path().join("wal").join(&first[0])).expect("removed");
    for _ in 0..2 {
        let (tsdb, report) = open(dir.path());
        let why = report.read_only.expect("read-only");
        assert!(why.contains("missing") || why.contains("holds no log file"), "{why}");
        assert_eq!(samples(&content(&tsdb, ORG)), 1_200, "sealed samples are read");
        assert!(matches!(tsdb.seal(NOW), Err(SealError::Closed(_))));
    }
}

#[test]
fn unlisted_segment_files_are_removed_or_quarantined() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    tsdb.seal(NOW).expect("sealed");
    let before = content(&tsdb, ORG);
    drop(tsdb);
    let path = segment_files(dir.path(), ORG).remove(0);
    let stranger = path.with_file_name("0000000900-L0.seg");
    std::fs::copy(&path, &stranger).expect("copied");
    std::fs::write(path.with_file_name("0000000901-L0.seg.new"), "half").expect("written");
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only.clone(), report.quarantined), (None, 1));
    assert!(report.notes[0].contains("is not listed and was moved to quarantine"), "{:?}", report.notes);
    assert_eq!(segment_files(dir.path(), ORG).len(), 1);
    assert_eq!(content(&tsdb, ORG), before);
    drop(tsdb);
    assert_eq!(open(dir.path()).1.notes, Vec::<String>::new());
}

#[test]
fn a_seal_makes_written_records_durable() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let hour = std::time::Duration::from_secs(3_600);
    let (tsdb, _) =
        open_with(dir.path(), Options { durability: Durability::Interval(hour), ..options(&faults) });
    write(&tsdb, ORG, &up("a"), &[ago(5, 1.0)]);
    let before = tsdb.stats().wal_syncs;
    faults.seal_steps_left.store(0, Ordering::SeqCst);
    assert!(matches!(tsdb.seal(NOW), Err(SealError::Stopped)));
    assert!(tsdb.stats().wal_syncs > before, "before a segment is listed");
}

#[test]
fn a_closed_store_seals_nothing_and_does_not_wait() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, ORG);
    tsdb.close();
    assert!(matches!(tsdb.seal(NOW), Err(SealError::Log(AppendError::Closed))));
    assert_eq!(samples(&content(&tsdb, ORG)), 1_200);
}

#[test]
fn samples_that_a_failed_seal_made_late_are_late_after_a_checkpoint_and_a_start() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(50_000, 1.0)]);
    write(&tsdb, ORG, &up("b"), &[ago(1_000, 1.0)]);
    without_room_for_segments(dir.path(), || assert!(tsdb.seal(NOW).is_err()));
    tsdb.checkpoint().expect("made");
    // Before the barrier, so late: the last one written wins, though it is the newest of the
    // series.
    for value in [2.0, 3.0] {
        assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(20_000, value)]).stored, 1);
    }
    let before = content(&tsdb, ORG);
    assert_eq!(before[&up("a").to_string()].last().expect("one").1, 3.0f64.to_bits());
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(content(&tsdb, ORG), before);
    assert_eq!(tsdb.stores.org(ORG).expect("there").head.barrier(), ago(999, 0.0).at.as_ms());
}

#[test]
fn a_sample_that_was_late_before_a_deletion_is_late_in_a_replay() {
    for at_checkpoint in 0..6 {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        let checkpoint = |step: i32| {
            if at_checkpoint == step {
                tsdb.checkpoint().expect("made");
            }
        };
        write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
        checkpoint(1);
        write(&tsdb, ORG, &up("a"), &[ago(5_000, 2.0)]);
        checkpoint(2);
        assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(5_000, 3.0)]).stored, 1, "the last late one wins");
        checkpoint(3);
        let matcher = crate::model::Matcher::new("job", MatchOp::Equal, "a").expect("one");
        let range = TimeRange::new(ago(2_000, 0.0).at, NOW);
        tsdb.delete(ORG, &[vec![matcher]], range, NOW).expect("deleted");
        checkpoint(4);
        write(&tsdb, ORG, &up("a"), &[ago(1_000, 4.0)]);
        checkpoint(5);
        let before = content(&tsdb, ORG);
        let values: Vec<f64> = before.values().flatten().map(|(_, bits)| f64::from_bits(*bits)).collect();
        assert_eq!(values, [3.0, 4.0]);
        drop(tsdb);
        assert_eq!(content(&open(dir.path()).0, ORG), before, "checkpoint {at_checkpoint}");
    }
}

#[test]
fn a_store_with_a_fenced_control_writes_no_more_segments() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for hour in [3, 2] {
        write(&tsdb, ORG, &up("a"), &[ago(hour * 3_600_000, 1.0)]);
        tsdb.seal(NOW).expect("sealed");
    }
    fill(&tsdb, ORG);
    let before = content(&tsdb, ORG);
    tsdb._control.fail_syncs();
    assert!(matches!(tsdb.seal(NOW), Err(SealError::Manifest(_))));
    let files = segment_files(dir.path(), ORG);
    assert_eq!(files.len(), 3, "it is unknown whether the third is listed");
    for _ in 0..5 {
        assert!(matches!(tsdb.seal(NOW), Err(SealError::Manifest(_))));
        assert!(matches!(tsdb.compact(NOW), Err(UpkeepError::Manifest(_))));
        assert_eq!(segment_files(dir.path(), ORG), files);
    }
    assert_eq!(content(&tsdb, ORG), before);
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(content(&tsdb, ORG), before);
    tsdb.seal(NOW).expect("sealed");
    tsdb.compact(NOW).expect("merged");
    assert_eq!((content(&tsdb, ORG), segment_files(dir.path(), ORG).len()), (before, 1));
}

#[test]
fn a_clock_that_goes_back_delays_no_seal() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let mut options = options(&faults());
    options.seal_head_bytes = 1;
    let (tsdb, _) = open_with(dir.path(), options);
    let ahead = NOW.plus_ms(365 * 86_400_000);
    write(&tsdb, ORG, &up("a"), &[ago(5_000, 1.0)]);
    without_room_for_segments(dir.path(), || assert!(tsdb.seal_if_due(ahead).is_err()));
    assert_eq!(tsdb.seal_if_due(NOW).expect("sealed").samples, 1, "neither the failure nor the early seal");
}

#[test]
fn samples_in_order_after_a_deletion_win_over_late_ones_before_it() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (mut tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0), ago(5_000, 2.0), ago(4_000, 2.5)]);
    let matcher = crate::model::Matcher::new("job", MatchOp::Equal, "a").expect("one");
    let range = TimeRange::new(ago(2_000, 0.0).at, NOW);
    tsdb.delete(ORG, &[vec![matcher]], range, NOW).expect("deleted");
    for (ms, value) in [(5_000, 3.0), (4_000, 3.5)] {
        assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(ms, value)]).stored, 1);
        let bits: Vec<u64> = content(&tsdb, ORG).into_values().flatten().map(|(_, bits)| bits).collect();
        assert!(bits.contains(&f64::to_bits(value)), "{value}: {bits:?}");
        tsdb.checkpoint().expect("made");
        drop(tsdb);
        tsdb = open(dir.path()).0;
        let again: Vec<u64> = content(&tsdb, ORG).into_values().flatten().map(|(_, bits)| bits).collect();
        assert_eq!(again, bits);
    }
}

#[test]
fn a_seal_of_many_segments_can_stop_between_its_changes() {
    let week: Vec<Sample> =
        (0..7 * 24).rev().map(|hour| ago(1_000 + hour * 3_600_000, hour as f64)).collect();
    let mut ends = 0;
    #[expect(clippy::explicit_counter_loop, reason = "it counts the stops, which end before the loop does")]
    for after in 0..20 {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        write(&tsdb, ORG, &up("a"), &week);
        let before = content(&tsdb, ORG);
        let sealed = stopped_seal(dir.path(), &faults, tsdb, NOW, after, |_, _| {});
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        tsdb.seal(NOW).expect("sealed");
        assert_eq!((tsdb.stats().samples, content(&tsdb, ORG)), (0, before));
        if sealed.is_ok() {
            assert!(ends > 6, "{ends}");
            return;
        }
        ends += 1;
    }
    panic!("a seal has fewer steps");
}

/// A file with samples that were ahead of the clock and are in segments, and with a later seal
/// before their time, goes once that time has come, even if no more samples arrive.
#[test]
fn a_seal_releases_a_log_file_of_an_organisation_without_new_samples() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), Options { seal_log_bytes: 1, ..options(&faults()) });
    let append = |now: Timestamp| {
        let mut batch = BatchBuilder::default();
        batch.series(&up("a"), [Sample { at: now, value: 1.0 }]);
        assert_eq!(tsdb.append(ORG, &batch.batch(), now).expect("stored").stored, 1);
    };
    let ahead = NOW.plus_ms(50 * 60_000);
    append(ahead);
    assert_eq!(tsdb.seal_if_due(NOW).expect("sealed").samples, 1, "a seal of all times");
    append(NOW);
    assert_eq!(tsdb.seal(NOW.plus_ms(1_000)).expect("sealed").samples, 1);
    assert_eq!(tsdb.stats().wal_files, 2, "a time of the first file is still ahead");
    for minutes in [60, 61, 62] {
        tsdb.seal(NOW.plus_ms(minutes * 60_000)).expect("sealed");
        assert_eq!(tsdb.stats().wal_files, 1, "after {minutes} minutes");
    }
    assert_eq!(content(&tsdb, ORG)[&up("a").to_string()].len(), 2);
}
