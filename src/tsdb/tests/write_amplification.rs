//! The bytes that the store writes for one sample. This command prints the figures: `cargo test
//! --lib tsdb::tests::write_amplification -- --nocapture`.

use super::*;
use crate::kv::ops::recording::{Op, Recording};
use crate::model::WriteBatch;

const SERIES: i64 = 10_000;
/// Enough rounds that the first two log files, which are filled with zeros, are a small part.
const ROUNDS: i64 = 200;
/// The least bytes that a write dirties: a page.
const PAGE: u64 = 4_096;

/// Fills a batch with one scrape of counters, histogram buckets, decimal gauges, byte counts,
/// ratios and flags.
fn scrape(batch: &mut WriteBatch<'_>, round: i64) {
    let mut entropy = Entropy::seeded(round.unsigned_abs());
    for (index, sample) in (0_i64..).zip(&mut batch.samples) {
        let noise = i64::from(u16::from_le_bytes(entropy.bytes()) % 997);
        sample.at = NOW.plus_ms((round - ROUNDS) * 15_000 + index / 20);
        sample.value = match index % 10 {
            0..=3 => (index * 131 + round * (index % 89) + noise) as f64,
            4 => ((index * 7_919) % 50_000_000 + round * 1_000 + noise) as f64,
            5 => (noise + 1_000) as f64 / 10.0,
            6 => (noise * 1_048_576) as f64,
            7 => (index * 37 + round) as f64 + noise as f64 / 997.0,
            8 => 1.0,
            _ => 0.0,
        };
    }
}

/// Returns the bytes of the pages of all writes below the folder, and of the zeros among them.
fn written(ops: &[Op]) -> (u64, u64) {
    let (mut all, mut zeros) = (0, 0);
    for op in ops {
        if let Op::Write { offset, bytes, .. } = op {
            let end = offset + bytes.len() as u64;
            all += (end.div_ceil(PAGE) - offset / PAGE) * PAGE;
            if bytes.iter().all(|byte| *byte == 0) {
                zeros += bytes.len() as u64;
            }
        }
    }
    (all, zeros)
}

#[test]
fn a_sample_of_large_requests_takes_at_most_eight_written_bytes() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let mut builder = BatchBuilder::default();
    for i in 0..SERIES {
        builder.series(&up(&format!("job-{i}")), [ago(0, 0.0)]);
    }
    let mut batch = builder.batch();
    let recording = Recording::start(dir.path());
    let (tsdb, _) = open(dir.path());
    for round in 0..ROUNDS {
        scrape(&mut batch, round);
        let report = tsdb.append(ORG, &batch, NOW).expect("stored");
        assert_eq!((report.stored, report.refused), (SERIES.unsigned_abs(), 0));
    }
    tsdb.seal(NOW).expect("sealed");
    let (written, zeros) = written(&recording.finish().ops);
    let samples = (SERIES * ROUNDS).unsigned_abs();
    // The first two log files, of 1 MiB each, are filled before the size of groups is known, and
    // accounts have a journal.
    assert!(zeros <= 3 << 20, "{zeros} bytes of zeros");
    assert!(written <= 8 * samples, "{written} bytes for {samples} samples");
    println!(
        "{:.2} bytes per sample, {:.2} of them zeros",
        written as f64 / samples as f64,
        zeros as f64 / samples as f64
    );
}
