//! Values kept decoded, as queries meet them: the same answers, and nothing that was deleted.

use std::time::Duration;

use super::*;
use crate::model::{MatchOp, Matcher};

/// Reads everything with three queries: the second keeps it, the third finds it. All see the same.
fn read_thrice(tsdb: &Tsdb, org: OrgId) -> Content {
    let first = content(tsdb, org);
    assert_eq!(content(tsdb, org), first);
    assert_eq!(content(tsdb, org), first);
    first
}

fn kept_bytes(tsdb: &Tsdb) -> u64 {
    tsdb.stats().decoded.bytes
}

/// 400 samples, the last one so many milliseconds before now.
fn samples(ms: i64) -> Vec<Sample> {
    (0..400).rev().map(|n| ago(ms + n * 15_000, n as f64 / 4.0)).collect()
}

#[test]
fn what_is_deleted_is_not_read_from_memory() {
    let dir = tempfile::tempdir().expect("made");
    let (tsdb, _) = open(dir.path());
    for job in ["a", "b"] {
        write(&tsdb, ORG, &up(job), &samples(0));
    }
    assert_eq!((read_thrice(&tsdb, ORG).len(), kept_bytes(&tsdb)), (2, 0), "of the head nothing is kept");
    tsdb.seal(NOW).expect("sealed");
    let all = read_thrice(&tsdb, ORG);
    let kept = tsdb.stats().decoded;
    assert!(kept.hits > 0 && kept.bytes > 0, "{kept:?}");
    let matcher = Matcher::new("job", MatchOp::Equal, "a").expect("one");
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::ALL, NOW).expect("deleted");
    let is_left = |(job, samples): (&String, &Vec<(i64, u64)>)| {
        let is_b = *job == up("b").to_string();
        assert_eq!(samples.len(), if is_b { 400 } else { 0 }, "{job}");
        is_b
    };
    assert!(read_thrice(&tsdb, ORG).iter().any(is_left), "masked");
    tsdb.seal_and_merge(NOW).expect("carried out");
    assert_eq!(kept_bytes(&tsdb), 0, "the file is gone, and what was kept of it");
    let left = read_thrice(&tsdb, ORG);
    assert!(left.iter().any(is_left));
    assert_eq!(left.get(&up("b").to_string()), all.get(&up("b").to_string()));
    assert!(kept_bytes(&tsdb) > 0);
    tsdb.drop_org(ORG, NOW).expect("dropped");
    assert_eq!((kept_bytes(&tsdb), content(&tsdb, ORG)), (0, Content::new()));
}

#[test]
fn of_what_is_kept_it_is_known_whether_it_rises() {
    let dir = tempfile::tempdir().expect("made");
    let (tsdb, _) = open(dir.path());
    // Several blocks; the second series falls anywhere, between two blocks and inside of one.
    write(
        &tsdb,
        ORG,
        &up("rises"),
        &(0..3_000).rev().map(|n| ago(n * 15_000, -(n as f64))).collect::<Vec<_>>(),
    );
    for fall in (100..2_900).step_by(100) {
        let falls = (0..3_000).rev().map(|n| ago(n * 15_000, if n == fall { -1e6 } else { -(n as f64) }));
        write(&tsdb, ORG, &up(&format!("falls-{fall}")), &falls.collect::<Vec<_>>());
    }
    tsdb.seal(NOW).expect("sealed");
    // That it is told of no other ones is looked at there.
    read_thrice(&tsdb, ORG);
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let found = snapshot.select(&[], TimeRange::ALL);
    let mut reader = snapshot.reader(TimeRange::ALL, NOW);
    let (mut out, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
    let mut rising = 0;
    for series in found {
        reader.read(series.id, &mut out, &mut histograms);
        rising += usize::from(out.is_known_to_rise());
        out.change();
        assert!(!out.is_known_to_rise(), "what may be changed is not known");
    }
    assert_eq!(rising, 1);
}

#[test]
fn what_retention_drops_is_not_kept() {
    let dir = tempfile::tempdir().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &samples(5 * 86_400_000));
    tsdb.seal(NOW).expect("sealed");
    read_thrice(&tsdb, ORG);
    assert!(kept_bytes(&tsdb) > 0);
    write(&tsdb, ORG, &up("a"), &samples(0));
    let retention = Some(Duration::from_secs(86_400));
    tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    tsdb.maintain(NOW).expect("done");
    assert_eq!(kept_bytes(&tsdb), 0);
    assert_eq!(read_thrice(&tsdb, ORG).values().map(Vec::len).sum::<usize>(), 400);
}

#[test]
fn two_organisations_with_the_same_numbers_are_two() {
    let dir = tempfile::tempdir().expect("made");
    let (tsdb, _) = open(dir.path());
    let other = OrgId(4);
    write(&tsdb, ORG, &up("a"), &samples(0));
    write(&tsdb, other, &up("a"), &samples(15_000));
    tsdb.seal(NOW).expect("sealed");
    let (of_one, of_other) = (read_thrice(&tsdb, ORG), read_thrice(&tsdb, other));
    assert_ne!(of_one, of_other);
    let both = kept_bytes(&tsdb);
    tsdb.drop_org(ORG, NOW).expect("dropped");
    assert_eq!((kept_bytes(&tsdb), read_thrice(&tsdb, other)), (both / 2, of_other));
}
