//! The log as a queue: only names are in memory, and pins alone decide how long records stay.

use super::*;
use crate::model::{MatchOp, Matcher};

const CONSUMER: ConsumerId = ConsumerId { kind: ConsumerKind::Agent, number: 1 };

fn queue_options(faults: &Arc<Faults>) -> Options {
    Options { queue_only: true, ..options(faults) }
}

fn small_files() -> Arc<Faults> {
    let faults = faults();
    faults.log_file_bytes.store(8_192, Ordering::SeqCst);
    faults
}

/// Returns the time and bits of all samples in the log from a position on.
fn queued(tsdb: &Tsdb, from: LogPosition) -> Vec<(i64, u64)> {
    let mut tail = tsdb.tail(from).expect("a tail");
    let (mut all, mut samples) = (Vec::new(), Vec::new());
    while let Some(record) = tail.next(Duration::ZERO).expect("read") {
        record.samples(&mut samples).expect("decodes");
        all.extend(samples.iter().map(|sample| (sample.at_ms, sample.bits)));
    }
    all
}

#[test]
fn a_queue_keeps_samples_in_the_log_and_out_of_memory_across_restarts() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let mut expected = Vec::new();
    for round in 0..3_i32 {
        let (tsdb, report) = open_with(dir.path(), queue_options(&faults()));
        assert!(report.read_only.is_none());
        tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
        let samples: Vec<Sample> =
            (0..100).map(|n| ago(1_000 - n, f64::from(round) * 1_000.0 + n as f64)).collect();
        assert_eq!(write(&tsdb, ORG, &up("a"), &samples).stored, 100);
        // A repetition is kept as well: the target decides.
        assert_eq!(write(&tsdb, ORG, &up("a"), &samples[..1]).stored, 1);
        let written = samples.iter().chain(&samples[..1]);
        expected.extend(written.map(|sample| (sample.at.as_ms(), sample.value.to_bits())));
        assert_eq!(queued(&tsdb, LogPosition(1)), expected);
        let stats = tsdb.stats();
        assert_eq!((stats.samples, stats.head_bytes, stats.series), (0, 0, 1), "{stats:?}");
        assert!(content(&tsdb, ORG).values().all(Vec::is_empty));
        if round == 1 {
            tsdb.seal(NOW).expect("sealed");
            tsdb.checkpoint().expect("made");
            tsdb.close();
        }
    }
}

#[test]
fn histograms_and_exemplars_of_a_queue_are_counted_and_kept_in_the_log() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), queue_options(&faults()));
    let mut builder = BatchBuilder::default();
    builder.series(&up("a"), []);
    builder.histograms([(NOW, side::histogram(1))]);
    builder.exemplar(crate::model::Exemplar { labels: Labels::default(), value: 1.5, at: NOW });
    let report = tsdb.append(ORG, &builder.batch(), NOW).expect("stored");
    assert_eq!((report.stored, report.histograms, report.exemplars, report.refused), (1, 1, 1, 0));
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    let mut kinds = Vec::new();
    while let Some(record) = tail.next(Duration::ZERO).expect("read") {
        kinds.push(record.kind);
    }
    assert!(kinds.contains(&RecordKind::Histograms) && kinds.contains(&RecordKind::Exemplars), "{kinds:?}");
    assert_eq!(tsdb.stats().head_bytes, 0);
}

#[test]
fn a_queue_is_trimmed_up_to_the_position_of_its_consumer_and_no_further() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), queue_options(&small_files()));
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    for n in 0..2_000 {
        assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(1_000_000 - n, n as f64)]).refused, 0);
    }
    let files = tsdb.stats().wal_files;
    assert!(files > 3, "{files} files");
    tsdb.seal(NOW).expect("sealed");
    assert_eq!(queued(&tsdb, LogPosition(1)).len(), 2_000, "nothing is forwarded, so all is kept");
    tsdb.advance_pin(CONSUMER, tsdb.log_end());
    tsdb.save_pins();
    tsdb.seal(NOW).expect("sealed");
    assert!(tsdb.stats().wal_files <= 2, "{} of {files} files", tsdb.stats().wal_files);
    assert!(matches!(tsdb.tail(LogPosition(1)), Err(TailError::Trimmed { .. })));
    assert_eq!(tsdb.stats().segments, 0, "a queue has no segments");
    let matcher = Matcher::new("job", MatchOp::Equal, "a").expect("a matcher");
    assert_eq!(tsdb.snapshot(&Access::whole(ORG)).select(&[matcher], TimeRange::ALL).len(), 0);
}
