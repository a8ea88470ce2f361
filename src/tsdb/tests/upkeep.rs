//! Model tests of seals, compactions, deletions, retention and crashes between their steps, against
//! a map.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{MatchOp, Matcher};
use crate::tsdb::options::Rest;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// 00:00 UTC of a day before now.
const MIDNIGHT: i64 = NOW.as_ms().div_euclid(DAY) * DAY;

/// Returns options without pauses.
fn patient(faults: &Arc<Faults>) -> Options {
    Options { rest: Rest::by(|_| {}), ..options(faults) }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn put(tsdb: &Tsdb, job: &str, at_ms: i64, value: f64) -> bool {
    write(tsdb, ORG, &up(job), &[Sample { at: at(at_ms), value }]).stored == 1
}

/// Writes a sample per minute.
fn minutes(tsdb: &Tsdb, job: &str, from: i64, count: i64) {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let samples: Vec<Sample> =
        (0..count).map(|n| Sample { at: at(from + n * 60_000), value: (n * n % 1_000) as f64 }).collect();
    write(tsdb, ORG, &up(job), &samples);
}

fn job_is(job: &str) -> Vec<Matcher> {
    vec![Matcher::new("job", MatchOp::Equal, job).expect("a matcher")]
}

fn files(dir: &Path) -> BTreeSet<String> {
    let dir = dir.join("segments").join(ORG.to_string());
    if dir.exists() { disk::names(&dir).expect("listed").into_iter().collect() } else { BTreeSet::new() }
}

fn listed(tsdb: &Tsdb) -> BTreeSet<String> {
    let Some(store) = tsdb.stores.org(ORG) else { return BTreeSet::new() };
    store.segments().metas().iter().map(|meta| meta.file_name()).collect()
}

/// Returns level, first and last hour since midnight of each segment, in order of number.
fn shape(tsdb: &Tsdb) -> Vec<(u8, i64, i64)> {
    let set = tsdb.stores.org(ORG).expect("there").segments();
    let hour = |ms: i64| (ms - MIDNIGHT).div_euclid(HOUR);
    set.metas().iter().map(|meta| (meta.level, hour(meta.min_ms), hour(meta.max_ms))).collect()
}

#[test]
fn a_forced_compaction_makes_one_segment_of_a_day_and_changes_no_sample() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for hour in -20..0 {
        minutes(&tsdb, "a", MIDNIGHT + hour * HOUR, 60);
        minutes(&tsdb, "b", MIDNIGHT + hour * HOUR, 60);
        tsdb.seal(at(MIDNIGHT + (hour + 1) * HOUR)).expect("sealed");
    }
    minutes(&tsdb, "late", MIDNIGHT - 10 * HOUR, 30);
    tsdb.seal(NOW).expect("sealed");
    let before = content(&tsdb, ORG);
    assert_eq!(shape(&tsdb).len(), 21);
    let report = tsdb.compact(NOW).expect("compacted");
    assert_eq!(shape(&tsdb).iter().map(|(_, from, to)| (*from, *to)).collect::<Vec<_>>(), [(-20, -1)]);
    assert_eq!((report.jobs, report.merged, report.made, report.removed), (1, 21, 1, 21));
    assert_eq!(content(&tsdb, ORG), before);
    assert_eq!(files(dir.path()), listed(&tsdb));
    assert_eq!(tsdb.compact(NOW).expect("nothing to do"), UpkeepReport::default());
    tsdb.close();
    drop(tsdb);
    let (again, report) = open_with(dir.path(), patient(&faults()));
    assert_eq!((content(&again, ORG), report.notes), (before, Vec::new()));
}

#[test]
fn large_blocks_are_copied_and_small_ones_joined() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for (from, count) in [(-1_200, 300), (-900, 40), (-860, 40), (-800, 700)] {
        minutes(&tsdb, "a", MIDNIGHT + from * 60_000, count);
        tsdb.seal(NOW).expect("sealed");
    }
    let before = content(&tsdb, ORG);
    tsdb.compact(NOW).expect("compacted");
    let set = tsdb.stores.org(ORG).expect("there").segments();
    let part = &set.parts[0];
    let mut blocks = Vec::new();
    let walk = part.segment.each_block(0, 0, |_, block| {
        blocks.push(block.count);
        Ok(true)
    });
    walk.expect("whole");
    assert_eq!((set.parts.len(), blocks), (1, vec![300, 780]));
    assert_eq!(content(&tsdb, ORG), before);
    part.segment.verify(true).expect("whole");
}

#[test]
fn a_segment_file_stays_until_its_last_reader_is_gone() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for hour in [-3, -2] {
        minutes(&tsdb, "a", MIDNIGHT + hour * HOUR, 60);
        tsdb.seal(NOW).expect("sealed");
    }
    let reader = tsdb.stores.org(ORG).expect("there").segments();
    assert_eq!(tsdb.compact(NOW).expect("compacted").removed, 0);
    assert_eq!((files(dir.path()).len(), listed(&tsdb).len()), (3, 1));
    drop(reader);
    assert_eq!(tsdb.maintain(NOW).expect("done").removed, 2);
    assert_eq!(files(dir.path()), listed(&tsdb));
}

#[test]
fn maintenance_merges_two_hours_and_then_the_day() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for hour in 0..4 {
        minutes(&tsdb, "a", MIDNIGHT - DAY + hour * HOUR, 60);
        tsdb.seal(at(MIDNIGHT - DAY + (hour + 1) * HOUR)).expect("sealed");
    }
    let before = content(&tsdb, ORG);
    // The day is not over: the last sample is from 03:59.
    for (jobs, hours) in [(1, vec![(-24, -23), (-22, -22), (-21, -21)]), (0, vec![])] {
        let report = tsdb.maintain(NOW).expect("done");
        assert_eq!(report.jobs, jobs);
        if !hours.is_empty() {
            let found: BTreeSet<(i64, i64)> = shape(&tsdb).iter().map(|(_, from, to)| (*from, *to)).collect();
            assert_eq!(found, hours.into_iter().collect());
        }
    }
    minutes(&tsdb, "a", MIDNIGHT + HOUR, 60);
    tsdb.seal(NOW).expect("sealed");
    while tsdb.maintain(NOW).expect("done").jobs > 0 {}
    let levels: Vec<(u8, i64, i64)> = shape(&tsdb);
    assert_eq!(levels.len(), 2, "{levels:?}");
    assert!(levels.contains(&(2, -24, -21)), "{levels:?}");
    let after = content(&tsdb, ORG);
    let (series, samples) = before.first_key_value().expect("one");
    assert_eq!(after[series][..samples.len()], samples[..]);
}

#[test]
fn a_damaged_segment_is_not_merged_and_no_other_sample_is_lost() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for hour in [-3, -2] {
        minutes(&tsdb, "a", MIDNIGHT + hour * HOUR, 60);
        tsdb.seal(NOW).expect("sealed");
    }
    let name = listed(&tsdb).first().cloned().expect("one");
    let path = dir.path().join("segments").join(ORG.to_string()).join(name);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[70] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let before = files(dir.path());
    let refused = tsdb.compact(NOW);
    assert!(
        matches!(&refused, Err(UpkeepError::Merge { what, .. }) if what.contains("byte 64")),
        "{refused:?}"
    );
    assert_eq!((files(dir.path()), listed(&tsdb)), (before.clone(), before));
    assert_eq!(tsdb.compact(NOW).expect("not tried again").jobs, 0);
}

#[test]
fn a_compaction_needs_twice_the_bytes_of_its_sources() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), patient(&faults));
    for hour in [-3, -2] {
        minutes(&tsdb, "a", MIDNIGHT + hour * HOUR, 60);
        tsdb.seal(NOW).expect("sealed");
    }
    faults.free_bytes.store(1 << 20, Ordering::SeqCst);
    assert!(matches!(tsdb.compact(NOW), Err(UpkeepError::DiskFull { free: 1_048_576, .. })));
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    assert_eq!(tsdb.compact(NOW).expect("compacted").jobs, 1);
}

#[test]
fn retention_drops_whole_segments_durably() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for hour in [-72, -48, -2] {
        minutes(&tsdb, "a", MIDNIGHT + hour * HOUR, 60);
        tsdb.seal(NOW).expect("sealed");
    }
    // Retains samples from this many minutes before midnight on. The newest sample is from 22:59.
    let keep = |minutes: i64| {
        let age = (minutes - 61) * 60_000;
        let retention = Some(Duration::from_millis(age.unsigned_abs()));
        tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    };
    let shown = || content(&tsdb, ORG).values().next().map_or(0, Vec::len);
    keep(72 * 60);
    assert_eq!((tsdb.maintain(NOW).expect("done").expired, shown()), (0, 180));
    // Samples that are too old in a segment that is not are hidden.
    keep(72 * 60 - 20);
    assert_eq!((tsdb.maintain(NOW).expect("done").expired, shown()), (0, 160));
    keep(70 * 60);
    assert_eq!(tsdb.maintain(NOW).expect("done").expired, 1);
    assert_eq!(files(dir.path()), listed(&tsdb));
    assert_eq!(listed(&tsdb).len(), 2);
    tsdb.set_limits(ORG, OrgLimits { retention_bytes: Some(1), ..OrgLimits::default() });
    assert_eq!(tsdb.maintain(NOW).expect("done").expired, 2);
    assert_eq!(content(&tsdb, ORG), StoreContent::new());
    tsdb.close();
    drop(tsdb);
    let (again, report) = open_with(dir.path(), patient(&faults()));
    assert_eq!((content(&again, ORG), report.notes), (StoreContent::new(), Vec::new()));
}

#[test]
fn a_server_started_with_the_clock_a_year_ahead_drops_and_refuses_nothing() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let limits = OrgLimits { retention: Some(Duration::from_secs(90 * 86_400)), ..OrgLimits::default() };
    let (elapsed, expiry_grace) = (Elapsed::default(), Options::default().expiry_grace);
    let options =
        || Options { limits: limits.clone(), elapsed: elapsed.clone(), expiry_grace, ..patient(&faults()) };
    let (tsdb, _) = open_with(dir.path(), options());
    minutes(&tsdb, "a", MIDNIGHT - 80 * DAY, 60);
    tsdb.seal(NOW).expect("sealed");
    minutes(&tsdb, "a", MIDNIGHT - 2 * HOUR, 60);
    let before = content(&tsdb, ORG);
    tsdb.close();
    drop(tsdb);
    let (tsdb, _) = open_with(dir.path(), options());
    let ahead = NOW.plus_ms(365 * DAY);
    assert_eq!(tsdb.maintain(ahead).expect("done").expired, 0);
    assert_eq!(content(&tsdb, ORG), before);
    let mut batch = BatchBuilder::default();
    batch.series(&up("b"), [ago(1_000, 1.0)]);
    assert_eq!(tsdb.append(ORG, &batch.batch(), ahead).expect("stored").stored, 1);
    assert_eq!(tsdb.maintain(ahead).expect("done").expired, 0, "a year without samples");
}

#[test]
fn a_sample_from_the_future_drops_and_hides_nothing() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), Options { ahead_max: None, ..patient(&faults()) });
    let retention = Some(Duration::from_secs(90 * 86_400));
    tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    minutes(&tsdb, "a", MIDNIGHT - 2 * DAY, 60);
    tsdb.seal(NOW).expect("sealed");
    assert!(put(&tsdb, "future", NOW.as_ms() + 1_000 * DAY, 1.0));
    let before = content(&tsdb, ORG);
    assert_eq!(tsdb.maintain(NOW).expect("done").expired, 0);
    assert_eq!(content(&tsdb, ORG), before);
    assert!(put(&tsdb, "b", NOW.as_ms() - 80 * DAY, 1.0), "late samples are accepted as before");
}

#[test]
fn a_segment_dropped_for_its_bytes_restores_no_overridden_value() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    minutes(&tsdb, "a", MIDNIGHT - 10 * HOUR, 400);
    tsdb.seal(NOW).expect("sealed");
    let (from, count) = (MIDNIGHT - 9 * HOUR, 20);
    let late: Vec<Sample> = (0..count).map(|n| Sample { at: at(from + n * 60_000), value: -1.0 }).collect();
    write(&tsdb, ORG, &up("a"), &late);
    tsdb.seal(NOW).expect("sealed");
    let before = content(&tsdb, ORG);
    let bytes: u64 = tsdb.stats().segment_bytes;
    for less in [1, bytes / 2, bytes - 1] {
        let retention_bytes = Some(bytes - less);
        tsdb.set_limits(ORG, OrgLimits { retention_bytes, ..OrgLimits::default() });
        tsdb.maintain(NOW).expect("done");
        let now = content(&tsdb, ORG);
        for (series, samples) in &now {
            assert!(samples.iter().all(|sample| before[series].contains(sample)), "{less} bytes less");
        }
        assert!(tsdb.stats().segment_bytes <= bytes - less);
    }
}

#[test]
fn deleted_samples_stay_deleted_and_later_ones_are_new() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    for job in ["a", "b"] {
        minutes(&tsdb, job, MIDNIGHT - 3 * HOUR, 60);
    }
    tsdb.seal(NOW).expect("sealed");
    minutes(&tsdb, "a", MIDNIGHT - 2 * HOUR, 60);
    let from = MIDNIGHT - 3 * HOUR + 30 * 60_000;
    let range = TimeRange::new(at(from), at(from + HOUR));
    assert!(matches!(tsdb.delete(ORG, &[], range, NOW), Err(DeleteError::NoSelector)));
    let report = tsdb.delete(ORG, &[job_is("a"), job_is("a")], range, NOW).expect("deleted");
    assert_eq!(report, DeleteReport { series: 1, segments: 1 });
    assert!(put(&tsdb, "a", from + 60_000, 7.5), "a new sample where one was deleted");
    let expected = content(&tsdb, ORG);
    let a = &expected[&up("a").to_string()];
    assert_eq!(a.len(), 30 + 1 + 29);
    assert_eq!(expected[&up("b").to_string()].len(), 60);
    let mut tsdb = tsdb;
    for step in 0..4 {
        match step {
            0 => {}
            1 => drop(tsdb.seal(NOW).expect("sealed")),
            2 => drop(tsdb.compact(NOW).expect("compacted")),
            _ => {
                let tombstones = tsdb.stores.org(ORG).expect("there").segments().tombstones.len();
                assert_eq!(tombstones, 0, "no file holds the samples");
            }
        }
        assert_eq!(content(&tsdb, ORG), expected, "step {step}");
        tsdb.close();
        drop(tsdb);
        (tsdb, _) = open_with(dir.path(), patient(&faults()));
        assert_eq!(content(&tsdb, ORG), expected, "step {step}, opened again");
    }
}

#[test]
fn a_dropped_organisation_leaves_no_files_and_never_reappears() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    minutes(&tsdb, "a", MIDNIGHT - 3 * HOUR, 60);
    tsdb.seal(NOW).expect("sealed");
    minutes(&tsdb, "a", MIDNIGHT - 2 * HOUR, 60);
    write(&tsdb, OrgId(4), &up("other"), &[ago(1_000, 1.0)]);
    tsdb.checkpoint().expect("a checkpoint");
    tsdb.drop_org(ORG, NOW).expect("dropped");
    assert_eq!(content(&tsdb, ORG), StoreContent::new());
    let gone =
        || ["segments/3", "series/3.reg", "series/3.copy"].iter().all(|name| !dir.path().join(name).exists());
    assert!(gone());
    tsdb.close();
    drop(tsdb);
    let (again, report) = open_with(dir.path(), patient(&faults()));
    assert_eq!((content(&again, ORG), content(&again, OrgId(4)).len()), (StoreContent::new(), 1));
    assert_eq!(report.notes, Vec::<String>::new());
    again.maintain(NOW).expect("done");
    assert!(gone());
    assert!(again.seal(NOW).expect("sealed").log_files_removed > 0, "its records hold no log file");
}

#[derive(Clone, Debug)]
enum UpkeepStep {
    Put {
        job: usize,
        at: i64,
    },
    Many {
        job: usize,
        at: i64,
        count: i64,
    },
    Seal,
    Compact,
    Maintain,
    Delete {
        job: usize,
        from: i64,
        to: i64,
    },
    Checkpoint,
    Restart,
    /// A compaction that ends after this many steps, and a start after it.
    Crash {
        steps: i64,
    },
}

const JOBS: [&str; 3] = ["a", "b", "c"];

fn step() -> impl Strategy<Value = UpkeepStep> {
    // Minutes around a midnight.
    let time = || -1_500i64..900;
    prop_oneof![
        3 => (0usize..3, time()).prop_map(|(job, at)| UpkeepStep::Put { job, at }),
        4 => (0usize..3, time(), 1i64..400).prop_map(|(job, at, count)| UpkeepStep::Many { job, at, count }),
        4 => Just(UpkeepStep::Seal),
        2 => Just(UpkeepStep::Compact),
        2 => Just(UpkeepStep::Maintain),
        2 => (0usize..3, time(), 0i64..500).prop_map(|(job, from, more)| UpkeepStep::Delete { job, from, to: from + more }),
        1 => Just(UpkeepStep::Checkpoint),
        1 => Just(UpkeepStep::Restart),
        3 => (0i64..7).prop_map(|steps| UpkeepStep::Crash { steps }),
    ]
}

type SampleModel = BTreeMap<String, BTreeMap<i64, u64>>;

fn as_content(model: &SampleModel) -> StoreContent {
    let samples = |samples: &BTreeMap<i64, u64>| samples.iter().map(|(at, bits)| (*at, *bits)).collect();
    model.iter().filter(|(_, s)| !s.is_empty()).map(|(job, s)| (up(job).to_string(), samples(s))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_store_equals_a_map_through_upkeep_and_crashes(steps in prop::collection::vec(step(), 1..30)) {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let faults = faults();
        let (mut tsdb, _) = open_with(dir.path(), patient(&faults));
        let mut model = SampleModel::new();
        let minute = |n: i64| MIDNIGHT - 5 * DAY + n * 60_000;
        let mut value = 0.0f64;
        for (number, step) in steps.into_iter().enumerate() {
            match &step {
                UpkeepStep::Put { job, at } => {
                    value += 1.0;
                    if put(&tsdb, JOBS[*job], minute(*at), value) {
                        model.entry(JOBS[*job].to_owned()).or_default().insert(minute(*at), value.to_bits());
                    }
                }
                UpkeepStep::Many { job, at, count } => {
                    // Each step uses its own times, so that no sample is refused.
                    let own = 30_000 + i64::try_from(number).expect("few steps");
                    let samples: Vec<Sample> = (0..*count)
                        .map(|n| {
                            value += 1.0;
                            Sample { at: Timestamp::from_ms(minute(at + n) + own), value }
                        })
                        .collect();
                    prop_assert_eq!(write(&tsdb, ORG, &up(JOBS[*job]), &samples).refused, 0);
                    let kept = model.entry(JOBS[*job].to_owned()).or_default();
                    kept.extend(samples.iter().map(|sample| (sample.at.as_ms(), sample.value.to_bits())));
                }
                UpkeepStep::Seal => drop(tsdb.seal(NOW).expect("sealed")),
                UpkeepStep::Compact => {
                    tsdb.compact(NOW).expect("compacted");
                    prop_assert_eq!(files(dir.path()), listed(&tsdb));
                }
                UpkeepStep::Maintain => drop(tsdb.maintain(NOW).expect("done")),
                UpkeepStep::Delete { job, from, to } => {
                    let range = TimeRange::new(Timestamp::from_ms(minute(*from)), Timestamp::from_ms(minute(*to)));
                    tsdb.delete(ORG, &[job_is(JOBS[*job])], range, NOW).expect("deleted");
                    if let Some(samples) = model.get_mut(JOBS[*job]) {
                        samples.retain(|at, _| !range.contains(Timestamp::from_ms(*at)));
                    }
                }
                UpkeepStep::Checkpoint => drop(tsdb.checkpoint().expect("a checkpoint")),
                UpkeepStep::Restart => {
                    tsdb.close();
                    drop(tsdb);
                    (tsdb, _) = open_with(dir.path(), patient(&faults));
                }
                UpkeepStep::Crash { steps } => {
                    faults.upkeep_steps_left.store(*steps, Ordering::SeqCst);
                    let stopped = tsdb.compact(NOW);
                    prop_assert!(matches!(stopped, Ok(_) | Err(UpkeepError::Stopped)), "{:?}", stopped);
                    faults.upkeep_steps_left.store(-1, Ordering::SeqCst);
                    drop(tsdb);
                    let report;
                    (tsdb, report) = open_with(dir.path(), patient(&faults));
                    prop_assert_eq!(report.notes, Vec::<String>::new());
                    tsdb.maintain(NOW).expect("done");
                    prop_assert_eq!(files(dir.path()), listed(&tsdb));
                }
            }
            prop_assert_eq!(content(&tsdb, ORG), as_content(&model), "{:?}", step);
        }
    }
}

#[test]
fn samples_that_are_too_old_are_hidden_while_their_segment_stays() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    minutes(&tsdb, "a", MIDNIGHT - 3 * HOUR, 60);
    tsdb.seal(NOW).expect("sealed");
    minutes(&tsdb, "a", MIDNIGHT - 2 * HOUR, 60);
    let keep = |from: i64| {
        let newest = MIDNIGHT - 2 * HOUR + 59 * 60_000;
        let retention = Some(Duration::from_millis((newest - from).unsigned_abs()));
        tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
        assert_eq!(tsdb.maintain(NOW).expect("done").expired, 0);
        content(&tsdb, ORG).values().map(Vec::len).sum::<usize>()
    };
    assert_eq!(keep(MIDNIGHT - 3 * HOUR + 20 * 60_000), 100);
    assert_eq!(keep(MIDNIGHT - 3 * HOUR + 59 * 60_000), 61);
    // Samples deleted while they are hidden do not reappear.
    tsdb.delete(ORG, &[job_is("a")], TimeRange::new(at(0), at(MIDNIGHT - 3 * HOUR + 9 * 60_000)), NOW)
        .expect("deleted");
    assert_eq!(keep(MIDNIGHT - 4 * HOUR), 110);
}

#[test]
fn samples_of_a_dropped_organisation_hold_no_log_file() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open_with(dir.path(), patient(&faults()));
    minutes(&tsdb, "a", MIDNIGHT - 3 * HOUR, 60);
    tsdb.drop_org(ORG, NOW).expect("dropped");
    let report = write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
    assert_eq!((report.stored, content(&tsdb, ORG)), (0, StoreContent::new()));
    write(&tsdb, OrgId(4), &up("other"), &[ago(1_000, 1.0)]);
    assert!(tsdb.seal(NOW).expect("sealed").log_files_removed > 0);
    assert_eq!(seal::log_files(dir.path()).len(), 1);
}
