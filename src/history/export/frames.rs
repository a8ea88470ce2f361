//! Series as answers to remote read: streamed chunks, or samples.

use super::blocks::chunks_of;
use super::{ExportPieces, ExportSource, StoreExport};
use crate::history::copy::SampleCopyError;
use crate::ingest::prometheus_chunk::EncodedChunk;
use crate::ingest::remote_read::{put_chunk_frame, put_time_series};
use crate::model::{TimeRange, Timestamp};

/// The bytes after which a piece ends.
const PIECE_BYTES: usize = 128 << 10;
/// The series after which a piece ends.
const PIECE_SERIES: usize = 256;
/// The bytes of chunks after which a frame ends.
const FRAME_BYTES: usize = 512 << 10;

/// The series of one query of remote read, and its range.
#[derive(Debug)]
pub struct FrameQuery {
    /// The series.
    pub source: StoreExport,
    /// The times, both ends inclusive, with samples.
    pub range: TimeRange,
}

/// The answer to a request of remote read as frames of chunks.
#[derive(Debug)]
pub struct FramePieces {
    queries: Vec<FrameQuery>,
    /// The place of the query, of its series, and the time of the next part of the series.
    query: usize,
    series: usize,
    from: Option<Timestamp>,
}

impl FramePieces {
    /// Returns the answer to these queries, in their order.
    pub const fn new(queries: Vec<FrameQuery>) -> FramePieces {
        FramePieces { queries, query: 0, series: 0, from: None }
    }

    /// Appends the next part of a series. Returns whether there was one.
    fn part(&mut self, out: &mut Vec<u8>) -> Result<bool, SampleCopyError> {
        let Some(query) = self.queries.get_mut(self.query) else { return Ok(false) };
        if self.series >= query.source.selected_len() {
            (self.query, self.series, self.from) = (self.query.saturating_add(1), 0, None);
            return Ok(self.query < self.queries.len());
        }
        let from = self.from.unwrap_or(query.range.start);
        let last = from.as_ms().saturating_add(super::PART_MS - 1).min(query.range.end.as_ms());
        let raw = query.source.read(self.series, TimeRange::new(from, Timestamp::from_ms(last)))?;
        let labels = raw.labels.clone();
        let chunks = chunks_of(raw);
        let mut rest = &chunks[..];
        while !rest.is_empty() {
            let (mut bytes, mut count) = (0_usize, 0_usize);
            for chunk in rest {
                (bytes, count) = (bytes.saturating_add(chunk.data.len()), count.saturating_add(1));
                if bytes >= FRAME_BYTES {
                    break;
                }
            }
            let (some, more): (&[EncodedChunk], _) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            put_chunk_frame(&labels, some, self.query, out);
            rest = more;
        }
        self.from = Some(Timestamp::from_ms(last.saturating_add(1)));
        if last >= query.range.end.as_ms() {
            (self.series, self.from) = (self.series.saturating_add(1), None);
        }
        Ok(true)
    }
}

impl ExportPieces for FramePieces {
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, SampleCopyError> {
        let mut out = Vec::new();
        let mut parts = 0_usize;
        while out.len() < PIECE_BYTES && parts < PIECE_SERIES {
            if !self.part(&mut out)? {
                return Ok((parts > 0).then_some(out));
            }
            parts = parts.saturating_add(1);
        }
        Ok(Some(out))
    }
}

/// Returns the series of a query as a message `QueryResult`; none if it has more than `bytes_max`
/// bytes.
///
/// # Errors
/// [`SampleCopyError`].
pub fn samples_of_query(
    query: &mut FrameQuery,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, SampleCopyError> {
    let mut out = Vec::new();
    for place in 0..query.source.selected_len() {
        let mut from = query.range.start;
        let mut whole = crate::model::RawSeries::default();
        while from <= query.range.end {
            let last = from.as_ms().saturating_add(super::PART_MS - 1).min(query.range.end.as_ms());
            let part = query.source.read(place, TimeRange::new(from, Timestamp::from_ms(last)))?;
            whole.labels = part.labels.clone();
            whole.append(part);
            if whole.len().saturating_mul(11).saturating_add(out.len()) > bytes_max {
                return Ok(None);
            }
            from = Timestamp::from_ms(last.saturating_add(1));
        }
        if !whole.is_empty() {
            put_time_series(&whole, &mut out);
        }
        if out.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(out))
}
