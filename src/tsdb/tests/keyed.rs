//! Batches whose series are named by the keys of their labels.

use super::*;
use crate::model::WriteStart;

fn batch(samples: &[(&Labels, Sample)]) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    for (labels, sample) in samples {
        batch.series(labels, [*sample]);
    }
    batch
}

fn append_keyed(tsdb: &Tsdb, org: OrgId, keyed: KeyedBatch<'_>) -> Option<AppendReport> {
    let appending = tsdb.prepare_keyed(org, keyed, NOW).expect("admitted")?;
    let (done, received) = std::sync::mpsc::channel();
    tsdb.commit_then(appending, move |appended| done.send(appended.expect("stored")).expect("received"));
    Some(received.recv().expect("written").report())
}

#[test]
fn samples_by_keys_are_those_of_the_labels() {
    let folders = [(); 2].map(|()| crate::kv::scratch::temporary_folder().expect("a folder"));
    let [by_keys, by_labels] = folders.each_ref().map(|dir| open(dir.path()).0);
    let (a, b) = (up("a"), up("b"));
    let first = batch(&[(&b, ago(20_000, 1.0)), (&a, ago(20_000, 2.0))]);
    for tsdb in [&by_keys, &by_labels] {
        tsdb.append(ORG, &first.batch(), NOW).expect("stored");
    }
    let keys = by_keys.series_keys(ORG, &first.batch());
    for (n, ms) in [(3.0, 10_000), (4.0, 10_000), (5.0, 70_000_000_000_000), (6.0, 0)] {
        let samples = [ago(ms, n), ago(ms, n + 0.5)];
        let start = WriteStart { series: 1, at: ago(ms, n).at, start: ago(30_000, n).at };
        let mut labelled = batch(&[(&b, samples[0]), (&a, samples[1])]);
        labelled.start(start.at, start.start);
        let expected = by_labels.append(ORG, &labelled.batch(), NOW).expect("stored");
        let keyed = KeyedBatch { keys: &keys, samples: samples.to_vec(), starts: vec![start] };
        let found = append_keyed(&by_keys, ORG, keyed).expect("known");
        assert_eq!(
            format!("{found:?}"),
            format!("{expected:?}"),
            "also a duplicate and a time before the year 1"
        );
    }
    assert_eq!(content(&by_keys, ORG), content(&by_labels, ORG));
}

#[test]
fn a_batch_with_an_unknown_key_is_not_stored() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = open(dir.path()).0;
    let known = batch(&[(&up("a"), ago(0, 1.0))]);
    let both = batch(&[(&up("a"), ago(0, 2.0)), (&up("b"), ago(0, 2.0))]);
    assert!(tsdb.series_keys(ORG, &both.batch()).is_empty(), "no sample is stored");
    tsdb.append(ORG, &known.batch(), NOW).expect("stored");
    let keys = tsdb.series_keys(ORG, &both.batch());
    let keyed = || KeyedBatch { keys: &keys, samples: vec![ago(0, 2.0); 2], starts: Vec::new() };
    assert!(append_keyed(&tsdb, ORG, keyed()).is_none(), "one is unknown");
    assert_eq!(content(&tsdb, ORG).len(), 1);
    tsdb.append(OrgId(9), &both.batch(), NOW).expect("stored");
    assert!(append_keyed(&tsdb, OrgId(9), keyed()).is_none(), "another organisation");
    let short = KeyedBatch { keys: &keys[..1], samples: vec![ago(0, 2.0); 2], starts: Vec::new() };
    assert!(append_keyed(&tsdb, ORG, short).is_none(), "a key is missing");
}

#[test]
fn batches_that_are_committed_together_have_one_sync_and_their_own_results() {
    let dir = crate::kv::scratch::temporary_folder().expect("a folder");
    let tsdb = open(dir.path()).0;
    tsdb.append(ORG, &batch(&[(&up("a"), ago(20_000, 1.0))]).batch(), NOW).expect("stored");
    let syncs = || tsdb.stats().wal_syncs;
    let before = syncs();
    let (done, received) = std::sync::mpsc::channel();
    let batches = [("a", 20_000, 5.0), ("b", 10_000, 2.0), ("c", 0, 3.0)].map(|(job, ms, value)| {
        let done = done.clone();
        let appending = tsdb.prepare(ORG, &batch(&[(&up(job), ago(ms, value))]).batch(), NOW);
        let reply = move |appended: Result<Appended, _>| {
            done.send((job, appended.expect("stored").report())).expect("received");
        };
        (appending.expect("admitted"), reply)
    });
    tsdb.commit_all_then(batches);
    drop(done);
    let reports: Vec<_> = received.iter().map(|(job, report)| (job, report.stored, report.refused)).collect();
    assert_eq!(reports, [("a", 0, 1), ("b", 1, 0), ("c", 1, 0)], "a has another value at that time");
    assert_eq!(syncs() - before, 1);
    assert_eq!(content(&tsdb, ORG).len(), 3);
}
