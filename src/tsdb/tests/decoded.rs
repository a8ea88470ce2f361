//! Tests of the cache of decoded values in queries: the same results, and no deleted samples.

use std::time::Duration;

use super::*;
use crate::model::{MatchOp, Matcher};

/// Reads everything with three queries: the second stores the values, the third uses them. All
/// results are equal.
fn read_thrice(tsdb: &Tsdb, org: OrgId) -> StoreContent {
    let first = content(tsdb, org);
    assert_eq!(content(tsdb, org), first);
    assert_eq!(content(tsdb, org), first);
    first
}

fn cached_bytes(tsdb: &Tsdb) -> u64 {
    tsdb.stats().decoded.bytes
}

/// Returns 400 samples, the last one `ms` milliseconds before now.
fn samples(ms: i64) -> Vec<Sample> {
    (0..400).rev().map(|n| ago(ms + n * 15_000, n as f64 / 4.0)).collect()
}

#[test]
fn deleted_samples_are_not_read_from_the_cache() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for job in ["a", "b"] {
        write(&tsdb, ORG, &up(job), &samples(0));
    }
    assert_eq!((read_thrice(&tsdb, ORG).len(), cached_bytes(&tsdb)), (2, 0), "the head is not cached");
    tsdb.seal(NOW).expect("sealed");
    let all = read_thrice(&tsdb, ORG);
    let cached = tsdb.stats().decoded;
    assert!(cached.hits > 0 && cached.bytes > 0, "{cached:?}");
    let matcher = Matcher::new("job", MatchOp::Equal, "a").expect("one");
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::ALL, NOW).expect("deleted");
    let is_left = |(job, samples): (&String, &Vec<(i64, u64)>)| {
        let is_b = *job == up("b").to_string();
        assert_eq!(samples.len(), if is_b { 400 } else { 0 }, "{job}");
        is_b
    };
    assert!(read_thrice(&tsdb, ORG).iter().any(is_left), "hidden");
    tsdb.seal_and_merge(NOW).expect("carried out");
    assert_eq!(cached_bytes(&tsdb), 0, "the file and its cached values are gone");
    let left = read_thrice(&tsdb, ORG);
    assert!(left.iter().any(is_left));
    assert_eq!(left.get(&up("b").to_string()), all.get(&up("b").to_string()));
    assert!(cached_bytes(&tsdb) > 0);
    tsdb.drop_org(ORG, NOW).expect("dropped");
    assert_eq!((cached_bytes(&tsdb), content(&tsdb, ORG)), (0, StoreContent::new()));
}

#[test]
fn the_cache_knows_which_blocks_are_non_decreasing() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    // Several blocks. The other series fall at any place, between two blocks and inside of one.
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
    // The helper checks that no other series is reported as non-decreasing.
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
        assert!(!out.is_known_to_rise(), "nothing is known of values that may change");
    }
    assert_eq!(rising, 1);
}

#[test]
fn samples_that_retention_drops_are_removed_from_the_cache() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &samples(5 * 86_400_000));
    tsdb.seal(NOW).expect("sealed");
    read_thrice(&tsdb, ORG);
    assert!(cached_bytes(&tsdb) > 0);
    write(&tsdb, ORG, &up("a"), &samples(0));
    let retention = Some(Duration::from_secs(86_400));
    tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    tsdb.maintain(NOW).expect("done");
    assert_eq!(cached_bytes(&tsdb), 0);
    assert_eq!(read_thrice(&tsdb, ORG).values().map(Vec::len).sum::<usize>(), 400);
}

#[test]
fn organisations_with_the_same_series_numbers_have_separate_caches() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let other = OrgId(4);
    write(&tsdb, ORG, &up("a"), &samples(0));
    write(&tsdb, other, &up("a"), &samples(15_000));
    tsdb.seal(NOW).expect("sealed");
    let (of_one, of_other) = (read_thrice(&tsdb, ORG), read_thrice(&tsdb, other));
    assert_ne!(of_one, of_other);
    let both = cached_bytes(&tsdb);
    tsdb.drop_org(ORG, NOW).expect("dropped");
    assert_eq!((cached_bytes(&tsdb), read_thrice(&tsdb, other)), (both / 2, of_other));
}
