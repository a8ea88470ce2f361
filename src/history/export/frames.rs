//! Series as answers to remote read: streamed chunks, or samples.

use super::blocks::{chunks_of, first_part};
use super::{ExportPieces, ExportSource, StoreExport};
use crate::history::copy::SampleCopyError;
use crate::ingest::prometheus_chunk::EncodedChunk;
use crate::ingest::remote_read::{TimeSeriesMessage, put_chunk_frame};
use crate::model::TimeRange;

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
    /// The places of the query and of its series, and the times of the series that are not encoded
    /// yet; all of them if there is no rest.
    query: usize,
    series: usize,
    rest: Option<TimeRange>,
}

impl FramePieces {
    /// Returns the answer to these queries, in their order.
    pub const fn new(queries: Vec<FrameQuery>) -> FramePieces {
        FramePieces { queries, query: 0, series: 0, rest: None }
    }

    /// Appends the next part of a series. Returns whether there was another part.
    fn part(&mut self, out: &mut Vec<u8>) -> Result<bool, SampleCopyError> {
        let Some(query) = self.queries.get_mut(self.query) else { return Ok(false) };
        if self.series >= query.source.selected_len() {
            (self.query, self.series) = (self.query.saturating_add(1), 0);
            return Ok(self.query < self.queries.len());
        }
        let (part, later) = first_part(self.rest.unwrap_or(query.range));
        let raw = query.source.read(self.series, part)?;
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
        self.rest = later;
        if later.is_none() {
            self.series = self.series.saturating_add(1);
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
        let (mut series, mut rest) = (TimeSeriesMessage::default(), Some(query.range));
        while let Some(times) = rest {
            let (part, later) = first_part(times);
            series.push(&query.source.read(place, part)?);
            if series.len().saturating_add(out.len()) > bytes_max {
                return Ok(None);
            }
            rest = later;
        }
        series.put_into(&mut out);
    }
    Ok((out.len() <= bytes_max).then_some(out))
}
