//! What of segments is read from the disk, and when.

use super::*;

/// Sealed samples of two organisations.
fn sealed(dir: &Path) -> Content {
    let (tsdb, _) = open(dir);
    for (org, hours) in [(ORG, 1..4), (OrgId(4), 2..3)] {
        for hour in hours {
            for n in 0..200i64 {
                write(&tsdb, org, &up(&format!("job-{n}")), &[ago(hour * 3_600_000 + n, n as f64)]);
            }
        }
    }
    tsdb.seal(NOW).expect("sealed");
    let content = content(&tsdb, ORG);
    tsdb.close();
    content
}

/// Of each organisation's segments, in how many units they were asked for, and of how many.
fn asked(tsdb: &Tsdb) -> Vec<(usize, usize)> {
    let stores = tsdb.stores.all();
    let mut all: Vec<_> =
        stores.iter().flat_map(|s| s.segments().parts.clone()).map(|p| p.segment.units_asked()).collect();
    all.sort_unstable();
    all
}

#[test]
fn after_a_start_the_newest_segments_are_read_up_to_the_bound_and_otherwise_what_is_looked_at() {
    let dir = tempfile::tempdir().expect("a folder");
    let content_before = sealed(dir.path());
    let with = |warm_bytes_max| {
        let (tsdb, report) = open_with(dir.path(), Options { warm_bytes_max, ..options(&faults()) });
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        tsdb.warming.wait();
        tsdb
    };
    let tsdb = with(u64::MAX);
    let all = asked(&tsdb);
    assert!(all.len() >= 2 && all.iter().all(|(asked, of)| asked == of), "{all:?}");
    assert_eq!(content(&tsdb, ORG), content_before);
    tsdb.wait_until_warm(Duration::MAX);
    drop(tsdb);
    let (tsdb, _) = open_with(dir.path(), Options { warm_bytes_max: u64::MAX, ..options(&faults()) });
    tsdb.wait_until_warm(Duration::ZERO);
    tsdb.wait_until_warm(Duration::from_secs(60));
    assert_eq!(asked(&tsdb), all, "it was waited for");
    drop(tsdb);
    let tsdb = with(1);
    assert_eq!(asked(&tsdb).iter().filter(|(asked, _)| *asked > 0).count(), 1, "{:?}", asked(&tsdb));
    drop(tsdb);
    let tsdb = with(0);
    assert!(asked(&tsdb).iter().all(|(asked, _)| *asked == 0));
    assert_eq!(content(&tsdb, ORG), content_before);
    assert!(asked(&tsdb).iter().any(|(asked, _)| *asked > 0), "what is read is asked for");
}

#[test]
fn ending_while_segments_are_read_ahead_costs_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let content_before = sealed(dir.path());
    let (tsdb, _) = open_with(dir.path(), Options { warm_bytes_max: u64::MAX, ..options(&faults()) });
    assert_eq!(content(&tsdb, ORG), content_before);
    tsdb.close();
    tsdb.close();
    assert_eq!(content(&tsdb, ORG), content_before, "reads go on after the end of all threads");
}
