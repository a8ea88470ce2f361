//! Retention and deletions, on a disk that loses power at any time. Acknowledged removals stay
//! removed, and nothing else is lost. The accounts' journal is on that disk, as in
//! [`super::sealing`].

use std::time::Duration;

use super::*;
use crate::model::Matcher;

/// The number of states tried after each operation. Opening one creates a new database of accounts.
const STATES: usize = 3;
const DAY_MS: i64 = 86_400_000;

/// The acknowledged operations besides the batches: samples are written, one series is deleted,
/// another expires.
const WRITTEN: usize = 100;
const DELETED: usize = 101;
const EXPIRED: usize = 102;

fn shrinking_trace() -> Trace {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
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
    let dir = crate::kv::scratch::temporary_folder().expect("made");
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
            return Some("it holds samples that were never sent".to_owned());
        }
        if !deleted.is_empty() && answered(DELETED) {
            return Some("deleted samples reappeared".to_owned());
        }
        if !old.is_empty() && answered(EXPIRED) {
            return Some("samples that retention dropped reappeared".to_owned());
        }
        let in_between = cut.answered.iter().any(|number| *number > 2 && *number < WRITTEN);
        if answered(WRITTEN) && !in_between && (old.is_empty() || deleted.is_empty()) {
            return Some("samples are missing that were neither deleted nor expired".to_owned());
        }
        judge_found(&cut.answered, found)
    });
    complaint.map(|what| format!("after {} operations: {what}", cut.at))
}

#[test]
fn a_power_cut_restores_nothing_that_retention_or_a_deletion_removed_and_loses_nothing_else() {
    assert_eq!(shrinking_trace().cuts(STATES, &[], judge_shrunk), None);
}
