//! Tests of the segments that are read ahead.

use super::*;

/// Writes and seals samples of two organisations.
fn sealed(dir: &Path) -> StoreContent {
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

/// Returns the requested units and all units of each organisation's segments.
fn asked(tsdb: &Tsdb) -> Vec<(usize, usize)> {
    let stores = tsdb.stores.all();
    let mut all: Vec<_> =
        stores.iter().flat_map(|s| s.segments().parts.clone()).map(|p| p.segment.requested_units()).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_start_reads_the_newest_segments_up_to_the_limit_and_others_on_demand() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let content_before = sealed(dir.path());
    let with = |warm_bytes_max| {
        let (tsdb, report) = open_with(dir.path(), Options { warm_bytes_max, ..options(&faults()) });
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        tsdb.prefetch.wait();
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
    assert_eq!(asked(&tsdb), all, "the prefetch completed");
    drop(tsdb);
    let tsdb = with(1);
    assert_eq!(asked(&tsdb).iter().filter(|(asked, _)| *asked > 0).count(), 1, "{:?}", asked(&tsdb));
    drop(tsdb);
    let tsdb = with(0);
    assert!(asked(&tsdb).iter().all(|(asked, _)| *asked == 0));
    assert_eq!(content(&tsdb, ORG), content_before);
    assert!(asked(&tsdb).iter().any(|(asked, _)| *asked > 0), "reads request units");
}

#[test]
fn closing_a_store_during_the_prefetch_loses_nothing() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let content_before = sealed(dir.path());
    let (tsdb, _) = open_with(dir.path(), Options { warm_bytes_max: u64::MAX, ..options(&faults()) });
    assert_eq!(content(&tsdb, ORG), content_before);
    tsdb.close();
    tsdb.close();
    assert_eq!(content(&tsdb, ORG), content_before, "reads continue after the end of all threads");
}
