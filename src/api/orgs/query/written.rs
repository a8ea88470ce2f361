//! The beginning of a result's text, written by as many threads as are free.
//!
//! The question's own thread writes series from the front, straight into the body; a hand writes from the back, piece by
//! piece, into buffers of its own, which are put behind when the two have met. The text is the same as one thread's. More
//! than what is sent whole is not begun together: the rest is written as the client takes it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answer::{WHOLE_MAX, value_bytes};
use crate::api::prom_json::{self, Cursor};
use crate::promql::{Crew, Lease, MatrixSeries, Together, Value, VectorSample};

/// Text of one piece, about: some 20 µs.
const PIECE: usize = 32 << 10;
/// Bytes that are written in two microseconds, about.
const BYTES_IN_2_US: usize = 1_700;
/// What several threads may write of one result: what they expect comes to less.
const TOGETHER_MAX: usize = 2 * WHOLE_MAX;

struct Writing {
    value: Arc<Value>,
    /// The series of each piece.
    pieces: Vec<Range<usize>>,
    /// Pieces that nobody has taken.
    left: Mutex<Range<usize>>,
    /// From the back.
    written: Mutex<Vec<Vec<u8>>>,
    bytes: AtomicUsize,
    stopped: AtomicBool,
}

impl Together for Writing {
    fn help(&self, stays: &dyn Fn() -> bool) {
        while stays() && !self.stopped.load(Ordering::Relaxed) {
            // Taken and given a place at once: pieces lie in the order in which they were taken.
            let (piece, place) = {
                let mut written = lock(&self.written);
                let Some(piece) = self.next(Range::next_back) else { break };
                written.push(Vec::new());
                (piece, written.len() - 1)
            };
            let mut text = Vec::with_capacity(PIECE + PIECE / 4);
            self.write(piece, &mut text);
            if let Some(place) = lock(&self.written).get_mut(place) {
                *place = text;
            }
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Writing {
    fn next(&self, take: impl FnOnce(&mut Range<usize>) -> Option<usize>) -> Option<usize> {
        if self.bytes.load(Ordering::Relaxed) > TOGETHER_MAX {
            return None;
        }
        take(&mut lock(&self.left))
    }

    fn write(&self, piece: usize, text: &mut Vec<u8>) {
        let before = text.len();
        if let Some(series) = self.pieces.get(piece) {
            prom_json::some(&self.value, series.clone(), text);
        }
        self.bytes.fetch_add(text.len() - before, Ordering::Relaxed);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what comes before the series, and those that are worth being written by several threads, where a core is free;
/// answers from where on the rest is to be written. `lease` pays for the text.
pub(super) fn begun(value: &Arc<Value>, crew: &Crew, lease: Option<&Lease>, text: &mut Vec<u8>) -> Cursor {
    let cost_ns = prom_json::likely_bytes(value).min(TOGETHER_MAX) / BYTES_IN_2_US * 2_000;
    let Some(hand) = crew.hire(cost_ns as u64) else { return Cursor::default() };
    let held = value_bytes(value).saturating_add(TOGETHER_MAX as u64);
    let pieces = pieces(value);
    if pieces.len() < 2 || lease.is_some_and(|lease| lease.grow_to(held, &|| false).is_err()) {
        return Cursor::default();
    }
    let work = Arc::new(Writing {
        value: Arc::clone(value),
        left: Mutex::new(0..pieces.len()),
        pieces,
        written: Mutex::default(),
        bytes: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
    });
    let helpers = crew.call(vec![hand], &work);
    prom_json::begin(value, text);
    let mut until = 0;
    while let Some(piece) = work.next(Range::next) {
        work.write(piece, text);
        until = piece + 1;
    }
    helpers.dismiss(|| true);
    if lock(&work.left).is_empty() {
        let behind = std::mem::take(&mut *lock(&work.written));
        behind.iter().rev().for_each(|piece| text.extend_from_slice(piece));
        until = work.pieces.len();
    }
    let series = until.checked_sub(1).and_then(|last| work.pieces.get(last)).map_or(0, |piece| piece.end);
    Cursor::after(series)
}

/// The series of an answer that is sent whole, or of so much of a larger one, in pieces. Histograms are of any length:
/// nothing from the first on is among them.
fn pieces(value: &Value) -> Vec<Range<usize>> {
    const SERIES: usize = 200;
    const POINT: usize = 26;
    let of_matrix = |series: &MatrixSeries| {
        series.histograms.is_empty().then(|| SERIES + POINT.saturating_mul(series.samples.len()))
    };
    let of_vector = |sample: &VectorSample| sample.histogram.is_none().then_some(SERIES + POINT);
    match value {
        Value::Scalar { .. } | Value::Text { .. } => Vec::new(),
        Value::Vector(series) => cut(series.iter().map_while(of_vector)),
        Value::Matrix(series) => cut(series.iter().map_while(of_matrix)),
    }
}

fn cut(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut from, mut length, mut all) = (0, 0, 0usize);
    for (place, of_series) in lengths.enumerate() {
        length += of_series;
        all = all.saturating_add(of_series);
        if length >= PIECE {
            pieces.push(from..place + 1);
            (from, length) = (place + 1, 0);
        }
        if all >= WHOLE_MAX {
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
    fn what_several_threads_write_is_what_one_writes() {
        let values = [
            matrix(&[2_000; 40]),
            matrix(&[1, 20_000, 0, 3, 9_000, 1, 1]),
            matrix(&[100_000]),
            matrix(&[]),
            vector(3_000, 10),
            // More than is expected, and more than is begun together.
            vector(4_000, 3_000),
            Value::Scalar { at: Timestamp::from_s(1), value: 1.0 },
        ];
        for value in values.map(Arc::new) {
            let mut whole = Vec::new();
            prom_json::result(&value, usize::MAX, &mut whole).expect("bounded by nothing");
            for cores in [1, 2, 4] {
                let crew = Crew::eager(cores);
                let _question = crew.enter();
                let mut text = Vec::new();
                let mut cursor = begun(&value, &crew, None, &mut text);
                assert!(text.len() < TOGETHER_MAX + (1 << 20), "{}", text.len());
                assert!(cursor.fill(&value, usize::MAX, &mut text));
                assert!(text == whole, "{} and {} bytes by {cores}", text.len(), whole.len());
            }
        }
    }

    #[test]
    fn where_there_is_no_memory_for_more_one_thread_writes() {
        let (value, crew) = (Arc::new(matrix(&[2_000; 40])), Crew::eager(2));
        let _question = crew.enter();
        for (bytes, together) in [(1 << 20, false), (1 << 30, true)] {
            let lease = MemoryPool::new(bytes).lease(OrgId(1));
            let mut text = Vec::new();
            begun(&value, &crew, Some(&lease), &mut text);
            assert_eq!(!text.is_empty(), together);
        }
    }
}
