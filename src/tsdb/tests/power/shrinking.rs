//! Retention and deletions, on a disk that loses power at any moment: what was said to be gone stays gone, and nothing else
//! goes with it. The accounts' journal is on that disk, as in [`super::sealing`].

use std::time::Duration;

use super::*;
use crate::model::Matcher;

/// States tried after each operation: opening one costs a new database of accounts.
const STATES: usize = 3;
const DAY_MS: i64 = 86_400_000;

/// What was answered beside the batches: samples are there, a series is deleted, another is dropped for its age.
const WRITTEN: usize = 100;
const DELETED: usize = 101;
const EXPIRED: usize = 102;

fn shrinking_trace() -> Trace {
    let dir = tempfile::tempdir().expect("made");
    drop(open_with(dir.path(), small_files()));
    std::fs::remove_dir_all(dir.path().join("accounts/control")).expect("removed");
    let recording = Recording::start(dir.path());
    let (tsdb, _) = open_with(dir.path(), small_files());
    let batches = batches();
    let append = |number: usize| {
        let (series, samples) = &batches[number];
        write(&tsdb, ORG, series, samples);
        recording.answered(number);
    };
    (0..3).for_each(append);
    write(&tsdb, ORG, &up("old"), &[ago(5 * DAY_MS, 1.0)]);
    write(&tsdb, ORG, &up("deleted"), &[ago(50_000, 2.0)]);
    recording.answered(WRITTEN);
    tsdb.seal(NOW).expect("sealed");
    append(3);
    let deleted = [vec![Matcher::equal("job", "deleted")]];
    assert_eq!(tsdb.delete(ORG, &deleted, TimeRange::ALL, NOW).expect("deleted").series, 1);
    recording.answered(DELETED);
    let retention = Some(Duration::from_secs(86_400));
    tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    assert_eq!(tsdb.maintain(NOW).expect("done").expired, 1);
    recording.answered(EXPIRED);
    append(4);
    tsdb.seal(NOW).expect("sealed");
    assert!(tsdb.compact(NOW).expect("merged").jobs > 0, "the deletion is carried out");
    append(5);
    drop(tsdb);
    recording.finish()
}

fn judge_shrunk(cut: &Cut) -> Option<String> {
    let dir = tempfile::tempdir().expect("made");
    let (tsdb, complaint) = match opened(cut, dir.path()) {
        Ok(opened) => opened,
        Err(complaint) => return Some(complaint),
    };
    let complaint = complaint.or_else(|| {
        let mut found = content(&tsdb, ORG);
        let mut left = |job: &str| found.remove(&up(job).to_string()).unwrap_or_default();
        let (old, deleted) = (left("old"), left("deleted"));
        let answered = |what: usize| cut.answered.contains(&what);
        let is_one_of = |left: &[(i64, u64)], sent: &Sample| {
            left.iter().all(|one| *one == (sent.at.as_ms(), sent.value.to_bits()))
        };
        if !is_one_of(&old, &ago(5 * DAY_MS, 1.0)) || !is_one_of(&deleted, &ago(50_000, 2.0)) {
            return Some("it holds what was never sent".to_owned());
        }
        if !deleted.is_empty() && answered(DELETED) {
            return Some("what was deleted is back".to_owned());
        }
        if !old.is_empty() && answered(EXPIRED) {
            return Some("what retention dropped is back".to_owned());
        }
        let in_between = cut.answered.iter().any(|number| *number > 2 && *number < WRITTEN);
        if answered(WRITTEN) && !in_between && (old.is_empty() || deleted.is_empty()) {
            return Some("it lacks what nobody took away".to_owned());
        }
        judge_found(&cut.answered, found)
    });
    complaint.map(|what| format!("after {} operations: {what}", cut.at))
}

#[test]
fn a_power_cut_brings_nothing_back_that_retention_or_a_deletion_took_and_takes_nothing_else() {
    assert_eq!(shrinking_trace().cuts(STATES, 1, &[], judge_shrunk), None);
}
