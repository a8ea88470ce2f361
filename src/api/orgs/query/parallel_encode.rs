//! Encodes the beginning of a result with two threads if a core is free.
//!
//! The query's thread encodes series from the front into the body. A worker encodes pieces from the
//! back into buffers, which are appended when both threads reach the same piece. The text is the
//! same as that of one thread. Only the part that is sent at once is encoded in parallel; the rest
//! is encoded while the client reads it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::response::WHOLE_BYTES_MAX;
use super::result::value_memory_bytes;
use crate::api::prom_json::{self, ResultCursor};
use crate::promql::{Lease, MatrixSeries, ParallelTask, Value, VectorSample, WorkerPool};
use crate::sync::IgnorePoison as _;

/// The expected bytes of one piece, which take about 20 µs to encode.
const PIECE_BYTES: usize = 32 << 10;
/// Bytes encoded in about two microseconds.
const BYTES_IN_2_US: usize = 1_700;
/// The most bytes encoded in parallel. Expected bytes stay below half of it.
const PARALLEL_BYTES_MAX: usize = 2 * WHOLE_BYTES_MAX;

/// The pieces of a result, and their encoding so far.
struct EncodeTask {
    value: Arc<Value>,
    /// The series of each piece.
    pieces: Vec<Range<usize>>,
    /// The pieces that no thread has taken yet.
    left: Mutex<Range<usize>>,
    /// The texts of the pieces that workers have taken, from the last piece on.
    encoded: Mutex<Vec<Vec<u8>>>,
    bytes: AtomicUsize,
    stopped: AtomicBool,
}

impl ParallelTask for EncodeTask {
    fn run(&self, should_continue: &dyn Fn() -> bool) {
        while should_continue() && !self.stopped.load(Ordering::Relaxed) {
            // Under one lock, so that pieces are listed in the order in which they were taken.
            let (piece, index) = {
                let mut encoded = lock(&self.encoded);
                let Some(piece) = self.next(Range::next_back) else { break };
                encoded.push(Vec::new());
                (piece, encoded.len() - 1)
            };
            let mut text = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
            self.encode(piece, &mut text);
            if let Some(entry) = lock(&self.encoded).get_mut(index) {
                *entry = text;
            }
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl EncodeTask {
    fn next(&self, take: impl FnOnce(&mut Range<usize>) -> Option<usize>) -> Option<usize> {
        if self.bytes.load(Ordering::Relaxed) > PARALLEL_BYTES_MAX {
            return None;
        }
        take(&mut lock(&self.left))
    }

    fn encode(&self, piece: usize, text: &mut Vec<u8>) {
        let before = text.len();
        if let Some(series) = self.pieces.get(piece) {
            prom_json::series_range(&self.value, series.clone(), text);
        }
        self.bytes.fetch_add(text.len() - before, Ordering::Relaxed);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    of.lock().ignore_poison()
}

/// Encodes the text before the series and, if a core is free, the first series in parallel. Returns
/// the position from which the caller encodes the rest. The text is charged to `lease`.
pub(super) fn encode_prefix(
    value: &Arc<Value>,
    workers: &WorkerPool,
    lease: Option<&Lease>,
    text: &mut Vec<u8>,
) -> ResultCursor {
    let cost_ns = prom_json::estimated_bytes(value).min(PARALLEL_BYTES_MAX) / BYTES_IN_2_US * 2_000;
    let Some(slot) = workers.try_acquire(cost_ns as u64) else { return ResultCursor::default() };
    let held = value_memory_bytes(value).saturating_add(PARALLEL_BYTES_MAX as u64);
    let pieces = pieces(value);
    if pieces.len() < 2 || lease.is_some_and(|lease| lease.grow_to(held, &|| false).is_err()) {
        return ResultCursor::default();
    }
    let task = Arc::new(EncodeTask {
        value: Arc::clone(value),
        left: Mutex::new(0..pieces.len()),
        pieces,
        encoded: Mutex::default(),
        bytes: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
    });
    let active = workers.spawn(vec![slot], &task);
    prom_json::write_head(value, text);
    let mut until = 0;
    while let Some(piece) = task.next(Range::next) {
        task.encode(piece, text);
        until = piece + 1;
    }
    active.join(|| true);
    if lock(&task.left).is_empty() {
        let behind = std::mem::take(&mut *lock(&task.encoded));
        behind.iter().rev().for_each(|piece| text.extend_from_slice(piece));
        until = task.pieces.len();
    }
    let series = until.checked_sub(1).and_then(|last| task.pieces.get(last)).map_or(0, |piece| piece.end);
    ResultCursor::after(series)
}

/// Splits the part of a result that is sent at once into pieces. The length of histograms is not
/// estimated, so the pieces end before the first series with one.
fn pieces(value: &Value) -> Vec<Range<usize>> {
    const SERIES: usize = 200;
    const POINT: usize = 26;
    let of_matrix = |series: &MatrixSeries| {
        series.histograms.is_empty().then(|| SERIES + POINT.saturating_mul(series.samples.len()))
    };
    let of_vector = |sample: &VectorSample| sample.histogram.is_none().then_some(SERIES + POINT);
    match value {
        Value::Scalar { .. } | Value::Text { .. } => Vec::new(),
        Value::Vector(series) => split(series.iter().map_while(of_vector)),
        Value::Matrix(series) => split(series.iter().map_while(of_matrix)),
    }
}

fn split(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut from, mut length, mut all) = (0, 0, 0usize);
    for (place, of_series) in lengths.enumerate() {
        length += of_series;
        all = all.saturating_add(of_series);
        if length >= PIECE_BYTES {
            pieces.push(from..place + 1);
            (from, length) = (place + 1, 0);
        }
        if all >= WHOLE_BYTES_MAX {
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Labels, OrgId, Sample, Timestamp};
    use crate::promql::MemoryPool;

    fn matrix(samples: &[usize]) -> Value {
        let points = |count: usize| {
            (0..count)
                .map(|n| Sample { at: Timestamp::from_s(n as i64 * 15), value: n as f64 * 1.5 })
                .collect()
        };
        let one = |(n, count): (usize, &usize)| MatrixSeries {
            labels: Labels::from_pairs([("n", n.to_string().as_str())]),
            samples: points(*count),
            histograms: Vec::new(),
        };
        Value::Matrix(samples.iter().enumerate().map(one).collect())
    }

    fn vector(series: usize, label_bytes: usize) -> Value {
        let long = "x".repeat(label_bytes);
        let one = |n: usize| VectorSample {
            labels: Labels::from_pairs([("long", long.as_str()), ("n", n.to_string().as_str())]),
            at: Timestamp::from_s(1),
            value: n as f64,
            histogram: None,
        };
        Value::Vector((0..series).map(one).collect())
    }

    #[test]
    fn two_threads_encode_the_same_text_as_one() {
        let values = [
            matrix(&[2_000; 40]),
            matrix(&[1, 20_000, 0, 3, 9_000, 1, 1]),
            matrix(&[100_000]),
            matrix(&[]),
            vector(3_000, 10),
            // More bytes than expected, and more than are encoded in parallel.
            vector(4_000, 3_000),
            Value::Scalar { at: Timestamp::from_s(1), value: 1.0 },
        ];
        for value in values.map(Arc::new) {
            let mut whole = Vec::new();
            prom_json::result(&value, usize::MAX, &mut whole).expect("no limit");
            for cores in [1, 2, 4] {
                let workers = WorkerPool::eager(cores);
                let _query = workers.begin_query();
                let mut text = Vec::new();
                let mut cursor = encode_prefix(&value, &workers, None, &mut text);
                assert!(text.len() < PARALLEL_BYTES_MAX + (1 << 20), "{}", text.len());
                assert!(cursor.fill(&value, usize::MAX, &mut text));
                assert!(text == whole, "{} and {} bytes by {cores}", text.len(), whole.len());
            }
        }
    }

    #[test]
    fn without_memory_for_a_second_thread_nothing_is_encoded_in_parallel() {
        let (value, workers) = (Arc::new(matrix(&[2_000; 40])), WorkerPool::eager(2));
        let _query = workers.begin_query();
        for (bytes, parallel) in [(1 << 20, false), (1 << 30, true)] {
            let lease = MemoryPool::new(bytes).lease(OrgId(1));
            let mut text = Vec::new();
            encode_prefix(&value, &workers, Some(&lease), &mut text);
            assert_eq!(!text.is_empty(), parallel);
        }
    }
}
