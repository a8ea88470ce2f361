//! Tests of lock waits: the log and statistics never wait for a reader, reads without waiting
//! return at once, and selections are correct while series are added.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::model::{MatchOp, Matcher, MetricKind, Pace, Scope};
use crate::sync::IgnorePoison as _;

fn batch(job: &str) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    batch.series(&labels(&[("__name__", "up"), ("job", job)]), [ago(1_000, 1.0)]);
    batch.describe("up", MetricKind::Gauge, job, "");
    batch
}

#[test]
fn neither_the_log_nor_statistics_wait_for_the_series_table() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let (tsdb, _) = open(dir.path());
    tsdb.append(ORG, &batch("a").batch(), NOW).expect("stored");
    let more = batch("b");
    let appending = tsdb.prepare(ORG, &more.batch(), NOW).expect("admitted");
    let store = tsdb.stores.org(ORG).expect("it has written");
    {
        // Like a slow reader with a writer behind it.
        let _table = store.table_mut();
        let (done, received) = std::sync::mpsc::channel();
        tsdb.commit_then(appending, move |appended| done.send(appended.is_ok()).expect("received"));
        assert_eq!(received.recv(), Ok(true), "definitions, metadata and samples are applied");
        let _checkpoints = tsdb.checkpoints.lock().ignore_poison();
        let _exemplars = store.side.exemplars();
        let stats = tsdb.stats();
        assert_eq!((stats.series, stats.orgs[0].exemplars, stats.checkpoints), (2, 0, 0));
        assert!(!tsdb.checkpoint_due());
    }
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    assert_eq!(&*snapshot.metadata(None, 9).items[0].help, "b");
    // Definitions that became durable meanwhile are in the registry before their log file is
    // removed.
    tsdb.seal(NOW).expect("sealed");
    drop((snapshot, store, tsdb));
    let (tsdb, _) = open(dir.path());
    assert_eq!(tsdb.snapshot(&Access::whole(ORG)).select(&[], TimeRange::ALL).len(), 2);
}

#[test]
fn a_read_without_waiting_is_given_up_if_a_lock_is_taken() {
    let tsdb = Tsdb::scaffold();
    tsdb.append(ORG, &batch("a").batch(), NOW).expect("stored");
    let store = tsdb.stores.org(ORG).expect("it has written");
    let busy = Arc::new(AtomicBool::new(false));
    let mut snapshot = tsdb.snapshot(&Access::whole(ORG)).without_waiting(Arc::clone(&busy));
    let pace = Pace::endless();
    let id = snapshot.select(&[], TimeRange::ALL)[0].id;
    let selector = [Matcher::equal("job", "a")];
    assert!(!snapshot.is_given_up());
    let given_up = |what: &str, read: &dyn Fn(&Snapshot) -> bool| {
        assert!(read(&snapshot), "{what} finds something");
        assert!(busy.swap(false, Ordering::Relaxed), "{what} is given up");
    };
    {
        let _table = store.table_mut();
        given_up("a selection", &|snapshot| snapshot.paced(&pace).select(&[], TimeRange::ALL).is_err());
        given_up("a listing", &|snapshot| snapshot.paced(&pace).label_names(&[], TimeRange::ALL, 9).is_err());
        given_up("exemplars", &|snapshot| {
            let _exemplars = store.side.exemplars();
            snapshot.paced(&pace).exemplars(&[&selector], TimeRange::ALL, 9).is_err()
        });
        let mut out = SampleColumns::default();
        snapshot.read(id, TimeRange::ALL, &mut out);
        assert!(busy.swap(false, Ordering::Relaxed), "a read needs the number of the family");
        let _metadata = store.metadata_mut();
        given_up("metadata", &|snapshot| snapshot.paced(&pace).metadata(None, 9).is_err());
    }
    snapshot.wait_for_locks();
    assert_eq!(snapshot.select(&selector, TimeRange::ALL).len(), 1);
    assert!(!snapshot.is_given_up());
}

/// Series with new labels and values are added while another thread selects within a scope.
#[test]
fn series_added_during_a_selection_never_escape_its_matchers() {
    let tsdb = Tsdb::scaffold();
    let write = |n: usize| {
        let mut batch = BatchBuilder::default();
        let (value, hidden) = (format!("v{n}"), format!("h{}", n % 7));
        let mut pairs = vec![("__name__", "m"), ("value", value.as_str())];
        // Now and then the label is new to the store.
        let name = format!("label_{}", n / 50);
        if !n.is_multiple_of(3) {
            pairs.push((&name, "secret"));
            pairs.push(("zone", &hidden));
        }
        batch.series(&labels(&pairs), [ago(1_000, 1.0)]);
        tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    };
    (0..100).for_each(write);
    let rounds = 40;
    std::thread::scope(|scope| {
        scope.spawn(|| (100..1_000).for_each(write));
        for round in 0..rounds {
            let hidden = format!("label_{}", round % 20);
            let scope = Scope {
                matchers: vec![
                    Matcher::new(&hidden, MatchOp::NotEqual, "secret").expect("valid"),
                    Matcher::new("zone", MatchOp::NotRegex, "h[0-3]+").expect("valid"),
                ],
                ..Scope::default()
            };
            let snapshot = tsdb.snapshot(&Access { org: ORG, scope: scope.clone() });
            let matcher = Matcher::new("value", MatchOp::Regex, "v.*[02468]").expect("valid");
            let found = snapshot.select(std::slice::from_ref(&matcher), TimeRange::ALL);
            let passes = |labels: &Labels| {
                scope.matchers.iter().all(|one| one.admits(labels)) && matcher.admits(labels)
            };
            assert!(found.iter().all(|series| passes(&series.labels)), "{found:?}");
            assert!(found.is_sorted_by(|a, b| a.labels < b.labels));
            // All series from before the selection are found.
            let old = (0..100).step_by(6).count();
            let first = |series: &&crate::tsdb::SelectedSeries| {
                series.labels.value("value")[1..].parse::<usize>().expect("a number") < 100
                    && series.labels.value("zone").is_empty()
            };
            assert_eq!(found.iter().filter(first).count(), old);
            let listed = snapshot.label_values("zone", &[], TimeRange::ALL, 99);
            assert!(listed.items.iter().all(|zone| &**zone > "h3"), "{listed:?}");
            let listed = snapshot.label_values("value", &[vec![matcher.clone()]], TimeRange::ALL, 9_999);
            assert!(listed.items.is_sorted() && listed.items.len() >= old);
        }
    });
}

/// A listing that locked the series table twice would wait forever for a writer between both locks.
/// The work is bounded: each store gets one series a round.
#[test]
fn listings_are_complete_and_return_beside_4_000_new_series() {
    const STORES: usize = 40;
    const ROUNDS: usize = 100;
    let all = usize::MAX;
    let selectors = [vec![Matcher::new("value", MatchOp::Regex, "v.+").expect("valid")]];
    let visible = Scope { matchers: vec![Matcher::equal("zone", "z")], ..Scope::default() };
    for store in 0..STORES {
        let tsdb = Tsdb::scaffold();
        let write = |n: usize| {
            // Now and then the metric and the label are new to the store.
            let (metric, label) = (format!("m{}", n / 20), format!("label_{}", n / 10));
            let pairs = [("__name__", &*metric), ("value", &*format!("v{n}")), (&*label, "x"), ("zone", "z")];
            let mut batch = BatchBuilder::default();
            batch.series(&labels(&pairs), [ago(1_000, 1.0)]);
            tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
        };
        std::thread::scope(|threads| {
            // Without capacity, so the writer begins a round when the listings do.
            let (next, rounds) = std::sync::mpsc::sync_channel(0);
            threads.spawn(move || rounds.iter().for_each(write));
            for round in 0..ROUNDS {
                next.send(round).expect("the writer has stored all earlier series");
                let scope = if round.is_multiple_of(2) { Scope::default() } else { visible.clone() };
                let snapshot = tsdb.snapshot(&Access { org: ORG, scope });
                // The series of this round may have come before the listing or not.
                let check = |what: &str, listed: usize| {
                    assert!((round..=round + 1).contains(&listed), "{what}: {listed} in round {round}");
                };
                let range = TimeRange::ALL;
                match (store + round) % 5 {
                    0 => check("all values", snapshot.label_values("value", &[], range, all).items.len()),
                    1 => check("values", snapshot.label_values("value", &selectors, range, all).items.len()),
                    2 => check("series", snapshot.series(&selectors, range, all).items.len()),
                    3 => {
                        let names = snapshot.label_names(&selectors, range, all).items;
                        let own = names.iter().filter(|name| name.starts_with("label_")).count();
                        assert!((round.div_ceil(10)..=round / 10 + 1).contains(&own), "{names:?}");
                        assert!(snapshot.exists(&selectors, range) || round == 0);
                    }
                    _ => {
                        let metrics = snapshot.metrics(&MetricFilter::default(), range, all).items;
                        let series: u64 = metrics.iter().map(|one| one.series).sum();
                        check("metrics", usize::try_from(series).expect("small"));
                        let summaries = snapshot.label_summaries(&[], range, 3);
                        let values = summaries.iter().find(|one| &*one.name == "value");
                        check("summaries", values.map_or(0, |one| one.count));
                    }
                }
            }
        });
    }
}
