//! Tests of deletions: their limits, that they wait for no other organisation, and when they are
//! carried out.

use std::time::Duration;

use super::*;
use crate::model::{MatchOp, Matcher, Scope};
use crate::tsdb::options::Rest;
use crate::tsdb::store::manifest::TOMBSTONES_MAX;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// 00:00 UTC of a day before now.
const MIDNIGHT: i64 = NOW.as_ms().div_euclid(DAY) * DAY;
const OTHER: OrgId = OrgId(4);

fn store(dir: &Path) -> Opened {
    open_with(dir, Options { rest: Rest::by(|_| {}), ..options(&faults()) }).0
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

/// Writes a sample per minute for an hour.
fn hour(tsdb: &Tsdb, org: OrgId, job: &str, from: i64) {
    let samples: Vec<Sample> =
        (0..60).map(|n| Sample { at: at(from + i64::from(n) * 60_000), value: f64::from(n) }).collect();
    write(tsdb, org, &up(job), &samples);
}

fn delete(tsdb: &Tsdb, org: OrgId, job: &str, from: i64, to: i64) -> Result<DeleteReport, DeleteError> {
    let matcher = Matcher::new("job", MatchOp::Equal, job).expect("a matcher");
    tsdb.delete(org, &[vec![matcher]], TimeRange::new(at(from), at(to)), NOW)
}

fn pending(tsdb: &Tsdb) -> usize {
    tsdb.stores.org(ORG).expect("there").segments().tombstones.len()
}

fn sealed(tsdb: &Tsdb) -> u64 {
    tsdb.stats().orgs.iter().find(|org| org.org == ORG).map_or(0, |org| org.sealed_samples)
}

#[test]
fn a_deletion_waits_for_no_seal_of_another_organisation() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    for org in [ORG, OTHER] {
        hour(&tsdb, org, "a", MIDNIGHT - 3 * HOUR);
    }
    let (result, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // The locks of a seal of another organisation.
        let other = tsdb.stores.org(OTHER).expect("there");
        let (sealer, guard) = (tsdb.sealer(), other.sealing());
        let tsdb = &tsdb;
        scope.spawn(move || result.send(delete(tsdb, ORG, "a", 0, i64::MAX).expect("deleted").series));
        assert_eq!(received.recv_timeout(Duration::from_secs(60)), Ok(1), "it waits");
        drop((sealer, guard));
    });
    assert_eq!((content(&tsdb, ORG).len(), content(&tsdb, OTHER).len()), (0, 1));
}

#[test]
fn an_organisation_is_dropped_while_another_is_sealed() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    for org in [ORG, OTHER] {
        hour(&tsdb, org, "a", MIDNIGHT - 3 * HOUR);
    }
    tsdb.seal(NOW).expect("sealed");
    let (result, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let other = tsdb.stores.org(OTHER).expect("there");
        let (sealer, guard) = (tsdb.sealer(), other.sealing());
        let tsdb = &tsdb;
        scope.spawn(move || result.send(tsdb.drop_org(ORG, NOW).is_ok()));
        assert_eq!(received.recv_timeout(Duration::from_secs(60)), Ok(true), "it waits");
        drop((sealer, guard));
    });
    assert!(!dir.path().join("segments/3").exists() && dir.path().join("segments/4").exists());
    assert_eq!(content(&tsdb, OTHER).len(), 1);
}

/// A seal in progress that lists the organisation does not recreate its data, whichever step comes
/// first.
#[test]
fn a_seal_that_reaches_a_dropped_organisation_leaves_it_dropped() {
    for _ in 0..10 {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let tsdb = store(dir.path());
        for org in [ORG, OTHER] {
            hour(&tsdb, org, "a", MIDNIGHT - 3 * HOUR);
        }
        std::thread::scope(|scope| {
            let (tsdb, own) = (&tsdb, tsdb.stores.org(ORG).expect("there"));
            let guard = own.sealing();
            scope.spawn(|| tsdb.seal(NOW).expect("sealed"));
            while tsdb.sealer.try_lock().is_ok() {
                std::thread::yield_now();
            }
            scope.spawn(|| tsdb.drop_org(ORG, NOW).expect("dropped"));
            while !tsdb.stores.is_dropped(ORG) {
                std::thread::yield_now();
            }
            drop(guard);
        });
        let left = ["segments/3", "series/3.reg", "series/3.copy"];
        assert!(left.iter().all(|name| !dir.path().join(name).exists()));
        assert_eq!((content(&tsdb, ORG).len(), content(&tsdb, OTHER).len()), (0, 1));
    }
}

#[test]
fn pending_deletions_are_bounded_and_a_seal_carries_them_out() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    hour(&tsdb, ORG, "a", MIDNIGHT - 10 * HOUR);
    for n in 0..10 {
        hour(&tsdb, ORG, "b", MIDNIGHT - 10 * HOUR + n * HOUR);
    }
    tsdb.seal(NOW).expect("sealed");
    let minute = |n: i64| MIDNIGHT - 10 * HOUR + n * 60_000;
    for n in 0..i64::try_from(TOMBSTONES_MAX).expect("few") {
        delete(&tsdb, ORG, "b", minute(n), minute(n)).expect("deleted");
    }
    let before = content(&tsdb, ORG);
    let last = minute(400);
    let refused = delete(&tsdb, ORG, "b", last, last);
    let words = refused.as_ref().map_err(ToString::to_string).expect_err("too many");
    assert!(
        words.starts_with("256 deletions of 256 ranges of series are pending")
            && words.contains("promlet seal"),
        "{words}"
    );
    assert!(matches!(refused, Err(DeleteError::TooMany { waiting: TOMBSTONES_MAX, .. })));
    assert_eq!(content(&tsdb, ORG), before, "nothing was deleted");
    tsdb.seal_and_merge(NOW).expect("sealed");
    assert_eq!(pending(&tsdb), 0);
    assert!(content(&tsdb, ORG) == before);
    assert_eq!(delete(&tsdb, ORG, "b", last, last).expect("below the limit").series, 1);
    tsdb.close();
    drop(tsdb);
    let after = content(&store(dir.path()), ORG);
    assert_eq!(after[&up("b").to_string()].len() + 1, before[&up("b").to_string()].len());
}

#[test]
fn a_seal_carries_out_deletions_of_the_newest_samples() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    hour(&tsdb, ORG, "a", MIDNIGHT - 3 * HOUR);
    hour(&tsdb, ORG, "a", MIDNIGHT - 2 * HOUR);
    delete(&tsdb, ORG, "a", MIDNIGHT - 2 * HOUR, i64::MAX).expect("deleted");
    assert_eq!(pending(&tsdb), 1);
    assert_eq!(tsdb.seal_and_merge(NOW).expect("sealed").samples, 60);
    assert_eq!(pending(&tsdb), 0);
}

/// After a start only the log has the deleted samples and their times.
#[test]
fn a_seal_after_a_start_carries_out_deletions_of_the_newest_samples() {
    for checkpoint in [false, true] {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let tsdb = store(dir.path());
        hour(&tsdb, ORG, "a", MIDNIGHT - 3 * HOUR);
        hour(&tsdb, ORG, "a", MIDNIGHT - 2 * HOUR);
        delete(&tsdb, ORG, "a", MIDNIGHT - 2 * HOUR, i64::MAX).expect("deleted");
        if checkpoint {
            tsdb.checkpoint().expect("made");
        }
        tsdb.close();
        drop(tsdb);
        let tsdb = store(dir.path());
        assert_eq!(pending(&tsdb), 1);
        assert_eq!(tsdb.seal_and_merge(NOW).expect("sealed").samples, 60);
        assert_eq!((pending(&tsdb), tsdb.stats().wal_files), (0, 1), "checkpoint: {checkpoint}");
    }
}

#[test]
fn a_deletion_that_covers_earlier_ones_replaces_them() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    for job in ["a", "b"] {
        hour(&tsdb, ORG, job, MIDNIGHT - 3 * HOUR);
    }
    tsdb.seal(NOW).expect("sealed");
    let start = MIDNIGHT - 3 * HOUR;
    for n in 1..60 {
        delete(&tsdb, ORG, "a", start, start + n * 60_000).expect("deleted");
        assert_eq!(pending(&tsdb), 1);
    }
    // Deletions of other series or times are not covered.
    delete(&tsdb, ORG, "b", start, start + 60_000).expect("deleted");
    delete(&tsdb, ORG, "b", start + 60_000, start + 120_000).expect("deleted");
    assert_eq!(pending(&tsdb), 3);
    // A sample in between is new only to the earlier deletions.
    write(&tsdb, ORG, &up("a"), &[Sample { at: at(start), value: 7.0 }]);
    tsdb.seal(NOW).expect("sealed");
    delete(&tsdb, ORG, "a", start, start + HOUR).expect("deleted");
    assert_eq!(pending(&tsdb), 3);
    for _ in 0..2 {
        let found = content(&tsdb, ORG);
        assert_eq!((found.len(), found[&up("b").to_string()].len()), (1, 57));
        tsdb.seal_and_merge(NOW).expect("merged");
    }
    assert_eq!(pending(&tsdb), 0);
}

/// Several deletions together may leave no sample between the first and the last time that a
/// segment states for a series, or only some in the middle.
#[test]
fn a_series_without_samples_is_not_listed_however_many_deletions_emptied_it() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    let from = MIDNIGHT - 3 * HOUR;
    let minute = |n: i64| from + n * 60_000;
    for job in ["adjacent", "gap", "middle"] {
        hour(&tsdb, ORG, job, from);
    }
    let two = [Sample { at: at(minute(0)), value: 1.0 }, Sample { at: at(minute(59)), value: 2.0 }];
    write(&tsdb, ORG, &up("ends"), &two);
    hour(&tsdb, ORG, "whole", from);
    tsdb.seal(NOW).expect("sealed");
    let delete = |job, from, to| delete(&tsdb, ORG, job, minute(from), minute(to)).expect("deleted");
    delete("adjacent", -1, 20);
    delete("adjacent", 21, 60);
    delete("gap", 0, 30);
    delete("gap", 40, 59);
    delete("gap", 31, 39);
    delete("middle", 0, 20);
    delete("middle", 40, 59);
    delete("ends", 0, 5);
    delete("ends", 50, 59);
    assert_eq!(pending(&tsdb), 9, "no deletion is carried out yet");
    let jobs = |scope: &Access| {
        let snapshot = tsdb.snapshot(scope);
        let found = snapshot.select(&[], TimeRange::ALL);
        let jobs: Vec<String> = found.iter().map(|series| series.labels.to_string()).collect();
        let values = snapshot.label_values("job", &[], TimeRange::ALL, usize::MAX);
        assert_eq!(values.items.len(), jobs.len(), "{values:?}");
        jobs
    };
    let (middle, whole) = (up("middle").to_string(), up("whole").to_string());
    assert_eq!(jobs(&Access::whole(ORG)), [middle.clone(), whole.clone()]);
    assert_eq!(content(&tsdb, ORG)[&middle].len(), 19);
    // A scope that hides the remaining samples hides the series, too.
    let since = |n| {
        let scope = Scope { min_time: Some(at(minute(n))), ..Scope::default() };
        Access { org: ORG, scope }
    };
    assert_eq!(jobs(&since(30)), [middle, whole.clone()]);
    assert_eq!(jobs(&since(45)), [whole]);
    let last_seen = |job: &str| {
        let matcher = Matcher::new("job", MatchOp::Equal, job).expect("a matcher");
        let snapshot = tsdb.snapshot(&Access::whole(ORG));
        let filter = MetricFilter { selectors: &[vec![matcher]], ..MetricFilter::default() };
        let found = snapshot.metrics(&filter, TimeRange::ALL, usize::MAX);
        found.items.first().map(|metric| metric.last_seen)
    };
    assert_eq!(last_seen("middle"), Some(at(minute(39))));
    assert_eq!(last_seen("whole"), Some(at(minute(59))));
    assert_eq!(last_seen("gap"), None);
}

#[test]
fn deleted_samples_are_gone_from_the_disk_within_a_day_even_without_other_merges() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    hour(&tsdb, ORG, "a", MIDNIGHT - 2 * DAY);
    hour(&tsdb, ORG, "b", MIDNIGHT - 2 * DAY);
    tsdb.seal_and_merge(NOW).expect("sealed");
    hour(&tsdb, OTHER, "a", MIDNIGHT - 3 * HOUR);
    tsdb.seal(NOW).expect("sealed");
    assert_eq!(tsdb.maintain(NOW).expect("done").jobs, 0);
    delete(&tsdb, ORG, "a", 0, i64::MAX).expect("deleted");
    let expected = content(&tsdb, ORG);
    for (minutes, jobs, left) in [(0, 0, 120), (59, 0, 120), (61, 1, 60)] {
        let done = tsdb.maintain(NOW.plus_ms(minutes * 60_000)).expect("done");
        assert_eq!((done.jobs, sealed(&tsdb)), (jobs, left), "after {minutes} minutes");
    }
    // The log file with the record was closed. The next seal or the next check removes it.
    tsdb.seal(NOW.plus_ms(2 * HOUR)).expect("sealed");
    tsdb.maintain(NOW.plus_ms(3 * HOUR)).expect("done");
    assert_eq!((pending(&tsdb), content(&tsdb, ORG)), (0, expected.clone()));
    tsdb.close();
    drop(tsdb);
    assert_eq!(content(&store(dir.path()), ORG), expected);
}

#[test]
fn deletions_found_at_a_start_come_before_other_merges() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    hour(&tsdb, ORG, "a", MIDNIGHT - 5 * DAY);
    tsdb.seal_and_merge(NOW).expect("sealed");
    for quarter in 0..5 {
        write(&tsdb, ORG, &up("b"), &[Sample { at: at(MIDNIGHT - DAY + quarter * HOUR / 2), value: 1.0 }]);
        tsdb.seal(at(MIDNIGHT - DAY + quarter * HOUR / 2)).expect("sealed");
    }
    delete(&tsdb, ORG, "a", 0, MIDNIGHT - 5 * DAY + 29 * 60_000).expect("deleted");
    tsdb.close();
    drop(tsdb);
    let tsdb = store(dir.path());
    let before = tsdb.stats().segments;
    assert_eq!(tsdb.maintain(NOW).expect("done").jobs, 1);
    assert_eq!((tsdb.stats().segments, sealed(&tsdb)), (before, 35), "the other merge waits");
    assert_eq!(tsdb.maintain(NOW).expect("done").jobs, 1);
    assert!(tsdb.stats().segments < before);
}

#[test]
fn an_organisation_with_unmergeable_segments_delays_no_other() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = store(dir.path());
    // With one loop per organisation the clock would go back between them and set the end of the
    // sealed time back.
    for half in 0..5 {
        let from = MIDNIGHT - DAY + half * HOUR / 2;
        for org in [ORG, OTHER] {
            write(&tsdb, org, &up("a"), &[Sample { at: at(from), value: 1.0 }]);
            tsdb.seal(at(from)).expect("sealed");
        }
    }
    let folder = dir.path().join("segments").join(ORG.to_string());
    for name in disk::names(&folder).expect("listed") {
        let mut bytes = std::fs::read(folder.join(&name)).expect("read");
        bytes[66] ^= 1;
        std::fs::write(folder.join(&name), bytes).expect("written");
    }
    let segments = |org: OrgId| tsdb.stores.org(org).expect("there").segments().metas().len();
    let before = segments(OTHER);
    assert!(matches!(tsdb.maintain(NOW), Err(UpkeepError::Merge { org: ORG, .. })));
    assert!(segments(OTHER) < before);
}
