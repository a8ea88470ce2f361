//! Native histograms of one series, in two adjacent blocks: their times, then 1 to 1,024 histograms
//! with at most 65,536 cells in all (counts, spans, bounds).
//!
//! ```text
//! histogram block   0 u32 crc of {u32 series id, u32 samples, 4..end}
//!                   4 runs to the end: samples of one shape each
//! run   varint samples   u8 0 integers, 1 floats   i8 schema   8 bytes zero threshold
//!       varint n, n x 8 bytes custom bounds
//!       varint n, n x {zigzag offset, varint length} positive spans; then negative ones
//!       columns of its samples:
//!         reset hints          u8 flags, column (see `integers`)
//!         sums                 varint bytes, body (see `values`)
//!         integers             zero counts, then the buckets one after another, then counts less
//!                              what is in buckets, wrapping: 0 but for NaN observations; each
//!                              u8 flags, column
//!         floats               zero counts, the buckets, counts; each varint bytes, body
//! ```
//! The column of a bucket is that of a counter. A bucket that does not change takes four bytes for
//! each run.

use std::sync::Arc;

use super::columns::{self, ColumnSlice};
use super::integers::{self, FLAG_BITS};
use super::{BLOCK_SAMPLES, put_times, set_crc, times_of, value_crc, values, verified};
use crate::model::{BucketSpan, CounterReset, Histogram, HistogramColumns, HistogramCounts, HistogramShape};
use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

/// Cells of a block at most, so that a decoded block takes no more than about two megabytes.
const CELLS_MAX: usize = 1 << 16;

/// Returns the number of cells that one histogram of this shape takes.
fn cells(shape: &HistogramShape) -> usize {
    let spans = shape.positive().len() + shape.negative().len();
    4 + shape.buckets() + spans + shape.custom_values().len()
}

/// Returns how many of the first samples fit one block: at least one, unless there is none.
fn fitting(samples: &[(i64, &Histogram)]) -> usize {
    let mut left = CELLS_MAX;
    let fits = |sample: &&(i64, &Histogram)| match left.checked_sub(cells(sample.1.shape())) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    samples.iter().take(BLOCK_SAMPLES).take_while(fits).count()
}

/// Returns whether the counts are floats.
pub(crate) const fn is_float(histogram: &Histogram) -> bool {
    matches!(histogram.counts(), HistogramCounts::Float { .. })
}

/// Appends a time block and a histogram block of the first samples of a series, which ascend in
/// time, as many as fit one block. Returns their number.
pub(crate) fn put(out: &mut Vec<u8>, series: u32, samples: &[(i64, &Histogram)]) -> usize {
    let count = fitting(samples);
    let (times, histograms): (Vec<i64>, Vec<&Histogram>) = samples.iter().take(count).copied().unzip();
    if count == 0 {
        return 0;
    }
    put_times(out, &times);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let same_shape = |a: &&Histogram, b: &&Histogram| {
        is_float(a) == is_float(b) && (Arc::ptr_eq(a.shape(), b.shape()) || a.shape() == b.shape())
    };
    for run in histograms.chunk_by(same_shape) {
        put_run(out, run);
    }
    set_crc(out, start, |rest| value_crc(series, count, rest));
    count
}

/// Appends a run: histograms of one shape and type of counts.
fn put_run(out: &mut Vec<u8>, run: &[&Histogram]) {
    let Some(first) = run.first() else { return };
    put_varint(out, run.len() as u64);
    put_shape(out, first.shape(), is_float(first));
    put_column(out, run.iter().map(|histogram| histogram.reset() as u64));
    put_values(out, run.iter().map(|histogram| histogram.sum().to_bits()));
    let buckets = 0..first.shape().buckets();
    if is_float(first) {
        let floats = || {
            run.iter().filter_map(|histogram| match histogram.counts() {
                HistogramCounts::Float { count, zero, buckets } => Some((*count, *zero, buckets)),
                HistogramCounts::Integer { .. } => None,
            })
        };
        put_values(out, floats().map(|(_, zero, _)| zero.to_bits()));
        for bucket in buckets {
            let count = |buckets: &Vec<f64>| buckets.get(bucket).copied().unwrap_or_default().to_bits();
            put_values(out, floats().map(|(.., buckets)| count(buckets)));
        }
        put_values(out, floats().map(|(count, ..)| count.to_bits()));
        return;
    }
    let integers = || {
        run.iter().filter_map(|histogram| match histogram.counts() {
            HistogramCounts::Integer { count, zero, buckets } => Some((*count, *zero, buckets)),
            HistogramCounts::Float { .. } => None,
        })
    };
    put_column(out, integers().map(|(_, zero, _)| zero));
    for bucket in buckets {
        put_column(out, integers().map(|(.., buckets)| buckets.get(bucket).copied().unwrap_or_default()));
    }
    put_column(out, integers().map(|(count, zero, buckets)| count.wrapping_sub(within(zero, buckets))));
}

/// Returns the sum of the zero bucket and the other buckets, wrapping.
fn within(zero: u64, buckets: &[u64]) -> u64 {
    buckets.iter().fold(zero, |all, bucket| all.wrapping_add(*bucket))
}

/// Appends a shape and the type of its counts, as blocks and the head's chunks contain them.
pub(crate) fn put_shape(out: &mut Vec<u8>, shape: &HistogramShape, float: bool) {
    out.push(u8::from(float));
    // Every schema fits: -53 to 8.
    out.push(i8::try_from(shape.schema()).unwrap_or_default().cast_unsigned());
    out.extend_from_slice(&shape.zero_threshold().to_bits().to_le_bytes());
    put_varint(out, shape.custom_values().len() as u64);
    for bound in shape.custom_values() {
        out.extend_from_slice(&bound.to_bits().to_le_bytes());
    }
    for spans in [shape.positive(), shape.negative()] {
        put_varint(out, spans.len() as u64);
        for span in spans {
            put_zigzag(out, i64::from(span.offset));
            put_varint(out, u64::from(span.length));
        }
    }
}

/// Appends a column of integers with its flags.
fn put_column(out: &mut Vec<u8>, column: impl Iterator<Item = u64>) {
    let column: Vec<i64> = column.map(u64::cast_signed).collect();
    let plan = integers::plan(&mut integers::PlanBuffers::default(), &column, false);
    out.push(plan.flags);
    plan.put(out);
}

/// Appends a body of values with its length.
fn put_values(out: &mut Vec<u8>, patterns: impl Iterator<Item = u64>) {
    let mut body = Vec::new();
    values::put(&mut body, &patterns.collect::<Vec<_>>(), &mut values::ValueBuffers::default());
    put_varint(out, body.len() as u64);
    out.append(&mut body);
}

/// Appends the samples of a time block and a histogram block to `out`.
///
/// # Errors
/// [`Damage`] if the bytes are not two blocks of this series, or have a wrong checksum. `out` is
/// then unchanged.
pub(crate) fn of(blocks: &[u8], series: u32, out: &mut HistogramColumns) -> Result<(), Damage> {
    let before = out.len();
    let taken = take(blocks, series, out);
    if taken.is_err() {
        out.times.truncate(before);
        out.histograms.truncate(before);
    }
    taken
}

/// Decodes both blocks. On damage some samples may have been appended.
fn take(blocks: &[u8], series: u32, out: &mut HistogramColumns) -> Result<(), Damage> {
    let before = out.len();
    let times = times_of(blocks, &mut out.times)?;
    let count = out.times.len() - before;
    let within = |damage: Damage| Damage { offset: damage.offset + times as u64, ..damage };
    let block = verified(blocks.get(times..).unwrap_or_default(), series, count).map_err(within)?;
    let mut reader = Reader::new(block);
    reader.u32()?;
    take_runs(&mut reader, count, &mut out.histograms).map_err(within)
}

/// Decodes all runs of a block of `count` histograms.
fn take_runs(reader: &mut Reader<'_>, count: usize, out: &mut Vec<Histogram>) -> Result<(), Damage> {
    let (mut left, mut cells_left) = (count, CELLS_MAX);
    while left > 0 {
        let rows = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        if rows == 0 || rows > left {
            return Err(reader.damage("a run of 0 histograms, or of more than are in the block"));
        }
        left -= rows;
        let (shape, float) = take_shape(reader)?;
        // Neither product overflows: rows are at most 1,024, and the cells of a shape are bounded.
        cells_left = cells_left
            .checked_sub(rows * cells(&shape))
            .ok_or_else(|| reader.damage("more histograms than a block may hold"))?;
        take_run(reader, rows, &Arc::new(shape), float, out)?;
    }
    reader.end()
}

/// Decodes the bytes of [`put_shape`].
///
/// # Errors
/// [`Damage`] if the bytes are not a valid shape.
pub(crate) fn take_shape(reader: &mut Reader<'_>) -> Result<(HistogramShape, bool), Damage> {
    let float = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(reader.damage("unknown kind of counts")),
    };
    let schema = i32::from(reader.u8()?.cast_signed());
    let threshold = f64::from_bits(reader.u64()?);
    let mut bounds = Vec::new();
    for _ in 0..reader.count(8)? {
        bounds.push(f64::from_bits(reader.u64()?));
    }
    let mut sides = [Vec::new(), Vec::new()];
    for spans in &mut sides {
        for _ in 0..reader.count(2)? {
            let offset = i32::try_from(reader.zigzag()?);
            let length = u32::try_from(reader.varint()?);
            let (Ok(offset), Ok(length)) = (offset, length) else {
                return Err(reader.damage("a span beyond all buckets"));
            };
            spans.push(BucketSpan { offset, length });
        }
    }
    let [positive, negative] = sides;
    HistogramShape::new(schema, threshold, bounds, positive, negative)
        .map(|shape| (shape, float))
        .map_err(|_| reader.damage("invalid histogram shape"))
}

/// Decodes a column that `put_column` has written.
fn take_column(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<u64>, Damage> {
    let flags = reader.u8()? & FLAG_BITS;
    let mut column = Vec::with_capacity(rows);
    columns::take(reader, ColumnSlice::whole(flags, rows), |part: &[u64]| {
        column.extend_from_slice(part);
    })?;
    Ok(column)
}

/// Decodes a body that `put_values` has written.
fn take_values(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<f64>, Damage> {
    let length = reader.count(1)?;
    let mut body = Reader::new(reader.take(length)?);
    let mut column = Vec::with_capacity(rows);
    values::take(&mut body, rows, 0..rows, &mut column)?;
    body.end()?;
    Ok(column)
}

/// Decodes the columns of zero counts, buckets and counts, and returns them row by row.
fn take_rows<T: Copy>(
    reader: &mut Reader<'_>,
    rows: usize,
    buckets: usize,
    take: impl Fn(&mut Reader<'_>, usize) -> Result<Vec<T>, Damage>,
) -> Result<Vec<(T, T, Vec<T>)>, Damage> {
    let zeros = take(reader, rows)?;
    let mut counts = vec![Vec::with_capacity(buckets); rows];
    for _ in 0..buckets {
        for (row, count) in counts.iter_mut().zip(take(reader, rows)?) {
            row.push(count);
        }
    }
    let all = take(reader, rows)?;
    Ok(all.into_iter().zip(zeros).zip(counts).map(|((all, zero), buckets)| (all, zero, buckets)).collect())
}

/// Decodes the samples of a run.
fn take_run(
    reader: &mut Reader<'_>,
    rows: usize,
    shape: &Arc<HistogramShape>,
    float: bool,
    out: &mut Vec<Histogram>,
) -> Result<(), Damage> {
    let resets = take_column(reader, rows)?;
    let sums = take_values(reader, rows)?;
    let buckets = shape.buckets();
    let counts: Vec<HistogramCounts> = if float {
        let rows = take_rows(reader, rows, buckets, take_values)?.into_iter();
        rows.map(|(count, zero, buckets)| HistogramCounts::Float { count, zero, buckets }).collect()
    } else {
        let rows = take_rows(reader, rows, buckets, take_column)?.into_iter();
        rows.map(|(rest, zero, buckets)| {
            let count = rest.wrapping_add(within(zero, &buckets));
            HistogramCounts::Integer { count, zero, buckets }
        })
        .collect()
    };
    for ((reset, sum), counts) in resets.into_iter().zip(sums).zip(counts) {
        let reset = u8::try_from(reset).ok().and_then(CounterReset::from_number);
        let reset = reset.ok_or_else(|| reader.damage("unknown reset hint"))?;
        let histogram = Histogram::new(Arc::clone(shape), reset, sum, counts);
        out.push(histogram.map_err(|_| reader.damage("invalid histogram"))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
