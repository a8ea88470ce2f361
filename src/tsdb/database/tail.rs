//! The log behind its writer, for consumers outside of this room: forwarding, standby servers and
//! moves.

use std::time::Duration;

use super::Tsdb;
use crate::model::{Exemplar, Histogram, Labels, MetricMetadata, OrgId, Timestamp};
use crate::tsdb::error::{Damage, TailError};
use crate::tsdb::report::SeriesId;
use crate::tsdb::series::{definition, metadata};
use crate::tsdb::side_data::record::{LogStart, decode_exemplars, decode_histograms, decode_starts};
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::store::pins::LogPosition;
use crate::tsdb::wal::log::tail::RawTail;
use crate::tsdb::wal::record::{RecordKind, parse_seal, parse_switch};
use crate::tsdb::wal::samples::{self, LogSample};
use crate::tsdb::wal::sink::Sink;

/// A position in the log that moves towards its end. It returns every record once the record is
/// durable and visible to queries, in the order of the log. Readers do not block writers.
///
/// A tail alone keeps no file: [`Tsdb::pin`] does.
#[derive(Debug)]
pub struct LogTail(RawTail);

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub struct TailRecord<'a> {
    /// The number: that of the record before plus 1.
    pub seq: u64,
    /// The organisation; 0 for marks and switches.
    pub org: OrgId,
    /// The type, which includes the version of the body.
    pub kind: RecordKind,
    /// The body as the log holds it.
    pub body: &'a [u8],
}

/// The decoded body of a record. [`TailRecord::samples`] decodes samples without an allocation for
/// each record.
#[derive(Clone, Debug, PartialEq)]
pub enum TailContent<'a> {
    /// Definitions of series. They precede the first record that uses the series.
    Series(Vec<(SeriesId, Labels)>),
    /// Types, help texts and units of metrics. The latest value counts.
    Metadata(Vec<MetricMetadata<'a>>),
    /// Samples. The samples of one series are in the order of their sender.
    Samples(Vec<LogSample>),
    /// Native histograms with their series and time in ms.
    Histograms(Vec<(SeriesId, i64, Histogram)>),
    /// Exemplars with their series.
    Exemplars(Vec<(SeriesId, Exemplar)>),
    /// Start timestamps. They precede the samples and histograms of their request; earlier
    /// versions wrote them after these.
    Starts(Vec<LogStart>),
    /// Samples of earlier records were deleted.
    Deletion {
        /// The first deleted millisecond.
        from_ms: i64,
        /// The last deleted millisecond.
        to_ms: i64,
        /// Ranges of series ids, both ends inclusive, ascending.
        series: Vec<(u32, u32)>,
    },
    /// The organisation was removed.
    Dropped,
    /// A window of time was closed.
    Seal {
        /// The exclusive end of the window in ms.
        until_ms: i64,
        /// Whether the seal takes samples of any time.
        all: bool,
    },
    /// A mark of the durable records.
    Mark,
    /// The log continues in another file.
    Switch {
        /// The number of the next file.
        next_file: u64,
    },
}

impl Tsdb {
    /// Returns a reader of the log whose first record is `from`, which may not exist yet.
    ///
    /// # Errors
    /// [`TailError::NoLog`], [`TailError::Trimmed`] if the record was removed, [`TailError::Ahead`]
    /// if `from` is beyond the record that is written next.
    pub fn tail(&self, from: LogPosition) -> Result<LogTail, TailError> {
        match &self.log {
            Sink::Log(log) => log.tail(from.0).map(LogTail),
            Sink::Memory(_) => Err(TailError::NoLog("it is in memory only".to_owned())),
            Sink::ReadOnly { why, .. } => Err(TailError::NoLog(why.clone())),
        }
    }

    /// Returns the labels of a series; none if the organisation has no such series.
    pub fn series_labels(&self, org: OrgId, series: SeriesId) -> Option<Labels> {
        self.stores.org(org)?.table().labels(series.0)
    }

    /// Calls `each` with the names and values of a series' labels, in the order of the names.
    /// Returns a number that only series of the same metric have; none if the organisation has no
    /// such series. New series of the organisation wait meanwhile.
    pub fn each_series_label(
        &self,
        org: OrgId,
        series: SeriesId,
        each: impl FnMut(&str, &str),
    ) -> Option<u32> {
        self.stores.org(org)?.table().each_label(series.0, each)
    }

    /// Returns the time of the newest stored sample of an organisation.
    pub fn newest_sample(&self, org: OrgId) -> Option<Timestamp> {
        self.stores.org(org)?.usage.newest()
    }
}

impl LogTail {
    /// Returns the next record. Waits at most `wait` for it; none if there is none by then.
    ///
    /// # Errors
    /// [`TailError`]. The position does not change. After [`TailError::Trimmed`] a new tail from
    /// the record after the lost ones continues. [`TailError::Closed`] comes after the last record.
    pub fn next(&mut self, wait: Duration) -> Result<Option<TailRecord<'_>>, TailError> {
        let found = self.0.next(wait)?;
        Ok(found.map(|record| TailRecord {
            seq: record.seq,
            org: record.org,
            kind: record.kind,
            body: record.body,
        }))
    }

    /// Returns the position of the next record.
    pub fn position(&self) -> LogPosition {
        LogPosition(self.0.next_seq())
    }

    /// Moves the position forward to a record that can be read or is the next one to be written.
    /// The records in between are not read.
    pub fn skip_to(&mut self, to: LogPosition) {
        self.0.skip_to(to.0);
    }

    /// Returns the position of the last record that can be read.
    pub fn readable_to(&self) -> LogPosition {
        LogPosition(self.0.readable_seq())
    }

    /// Returns the number of records that can be read without waiting.
    pub fn ready_records(&self) -> u64 {
        self.0.readable_seq().saturating_add(1).saturating_sub(self.0.next_seq())
    }
}

impl<'a> TailRecord<'a> {
    /// Replaces `out` with the samples of the record. Without samples, `out` is empty afterwards.
    ///
    /// # Errors
    /// [`TailError::Body`].
    pub fn samples(&self, out: &mut Vec<LogSample>) -> Result<(), TailError> {
        out.clear();
        if !self.kind.is_samples() {
            return Ok(());
        }
        samples::decode(self.kind, self.body, out).map_err(|e| self.damaged(e))
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// [`TailError::Body`].
    pub fn content(&self) -> Result<TailContent<'a>, TailError> {
        self.decode().map_err(|e| self.damaged(e))
    }

    const fn damaged(&self, source: Damage) -> TailError {
        TailError::Body { seq: self.seq, source }
    }

    fn decode(&self) -> Result<TailContent<'a>, Damage> {
        let body = self.body;
        Ok(match self.kind {
            RecordKind::Samples | RecordKind::SamplesV1 => {
                let mut out = Vec::new();
                samples::decode(self.kind, body, &mut out)?;
                TailContent::Samples(out)
            }
            RecordKind::Series | RecordKind::RegistrySeries => TailContent::Series(definitions(body)?),
            RecordKind::Metadata | RecordKind::RegistryMetadata => {
                let mut out = Vec::new();
                metadata::decode(body, &mut |metric| out.push(*metric))?;
                TailContent::Metadata(out)
            }
            RecordKind::Histograms => {
                let mut out = Vec::new();
                decode_histograms(body, |series, mut rows| {
                    while let Some((at_ms, histogram)) = rows.next()? {
                        out.push((SeriesId(series), at_ms, histogram));
                    }
                    Ok(())
                })?;
                TailContent::Histograms(out)
            }
            RecordKind::Exemplars => {
                let mut out = Vec::new();
                decode_exemplars(body, |series, exemplar| out.push((SeriesId(series), exemplar)))?;
                TailContent::Exemplars(out)
            }
            RecordKind::Starts => {
                let mut out = Vec::new();
                decode_starts(body, |start| out.push(start))?;
                TailContent::Starts(out)
            }
            RecordKind::Delete => {
                let Deletion { from_ms, to_ms, series } = Deletion::decode(body)?;
                TailContent::Deletion { from_ms, to_ms, series }
            }
            RecordKind::Dropped => TailContent::Dropped,
            RecordKind::Seal => TailContent::Seal { until_ms: parse_seal(body)?, all: false },
            RecordKind::SealAll => TailContent::Seal { until_ms: parse_seal(body)?, all: true },
            RecordKind::Mark => TailContent::Mark,
            RecordKind::Switch => TailContent::Switch { next_file: parse_switch(body)? },
        })
    }
}

fn definitions(body: &[u8]) -> Result<Vec<(SeriesId, Labels)>, Damage> {
    let mut body = definition::Body::open(body)?;
    let (mut out, mut values) = (Vec::new(), Vec::new());
    while let Some((id, shape)) = body.next(&mut values)? {
        let text = |number: &u32| body.texts.get(*number as usize).copied().unwrap_or_default();
        let names = body.shapes.get(shape).into_iter().flatten().map(text);
        out.push((SeriesId(id), Labels::from_pairs(names.zip(values.iter().map(text)))));
        values.clear();
    }
    Ok(out)
}
