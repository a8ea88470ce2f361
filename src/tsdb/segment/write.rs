//! Writes a segment in one pass.

use std::path::Path;

use super::{SegmentMeta, SegmentWriteError};
use crate::model::{OrgId, StoreId};

/// What a new segment is to be.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct NewSegment {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) level: u8,
    /// [`super::LATE`] and [`super::HISTOGRAMS`].
    pub(in crate::tsdb) flags: u8,
    pub(in crate::tsdb) first_log_seq: u64,
    pub(in crate::tsdb) last_log_seq: u64,
    pub(in crate::tsdb) replaces: Vec<u64>,
}

/// A segment in the making.
#[derive(Debug)]
pub(in crate::tsdb) struct SegmentWriter {}

impl SegmentWriter {
    /// Begins `<dir>/<name>.new`; `dir` is `segments/<org>` and exists.
    pub(in crate::tsdb) fn create(
        _dir: &Path,
        _store: StoreId,
        _new: NewSegment,
    ) -> Result<SegmentWriter, SegmentWriteError> {
        Err(SegmentWriteError::Shape("not written yet"))
    }

    /// Begins a family: the series of one metric name that have exactly these label names, ascending, the metric name's
    /// among them. A family comes once in a segment.
    pub(in crate::tsdb) fn family(&mut self, _names: &[&str]) -> Result<(), SegmentWriteError> {
        Err(SegmentWriteError::Shape("not written yet"))
    }

    /// Adds a series of the family, with a value for each of its names. Ids ascend within the family, times ascend
    /// strictly; `bits` are the values' bit patterns. A series without samples is left out.
    pub(in crate::tsdb) fn series(
        &mut self,
        _id: u32,
        _values: &[&str],
        _times: &[i64],
        _bits: &[u64],
    ) -> Result<(), SegmentWriteError> {
        Err(SegmentWriteError::Shape("not written yet"))
    }

    /// Series written so far.
    pub(in crate::tsdb) fn series_count(&self) -> u32 {
        0
    }

    /// Whether the next series belongs into another segment, since this one nears 4 GiB.
    pub(in crate::tsdb) fn is_full(&self) -> bool {
        false
    }

    /// Writes the directory, syncs the file, gives it its name and syncs the directory it lies in. A segment without
    /// samples is an error of shape: [`SegmentWriter::abandon`] it.
    pub(in crate::tsdb) fn finish(self) -> Result<SegmentMeta, SegmentWriteError> {
        Err(SegmentWriteError::Shape("not written yet"))
    }

    /// Removes what was written.
    pub(in crate::tsdb) fn abandon(self) -> Result<(), SegmentWriteError> {
        Ok(())
    }
}
