//! The samples of the head of a stopped Prometheus, as it would restore them at its start.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::block::{BlockError, DeletedRanges, numbered_files};
use super::head_chunks::read_chunks;
use super::record::{LogEntry, decode};
use super::segments::{read_segment, segments};
use crate::ingest::prometheus_chunk::{self, ChunkError, ChunkSample};
use crate::model::{Label, Labels, MetricKind};

/// The greatest memory of the labels of all series in bytes, roughly.
const LABEL_BYTES_MAX: usize = 2 << 30;
/// The estimated memory of a series without its labels, and of a label without its texts.
const SERIES_BYTES: usize = 96;
const LABEL_BYTES: usize = 32;

/// The head of a stopped Prometheus.
#[derive(Debug)]
pub struct HeadReader {
    chunks: Vec<PathBuf>,
    log: Vec<PathBuf>,
    late_log: Vec<PathBuf>,
    series: HashMap<u64, Labels>,
    texts: HashSet<Arc<str>>,
    label_bytes: usize,
    deleted: DeletedRanges,
    metadata: HashMap<String, SeriesMetadata>,
    /// The time of the last sample of each series that is in a chunk, except for samples out of
    /// order. The log has these samples as well.
    chunked_until_ms: HashMap<u64, i64>,
    /// Samples in order that are before this time are in blocks.
    valid_from_ms: i64,
    problems: Vec<String>,
}

/// A sample of the head.
#[derive(Clone, Debug)]
pub struct HeadSample<'h> {
    /// The labels of its series.
    pub labels: &'h Labels,
    /// The time in milliseconds.
    pub at_ms: i64,
    /// The value.
    pub sample: ChunkSample,
}

/// The metadata of a metric in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesMetadata {
    /// The type.
    pub kind: MetricKind,
    /// The unit; may be empty.
    pub unit: String,
    /// The help text; may be empty.
    pub help: String,
}

impl HeadReader {
    /// Reads the series of the head in the data folder of a Prometheus. `valid_from_ms` is the
    /// exclusive end of its blocks. A damaged log ends before the damage, and
    /// [`HeadReader::problems`] names it.
    ///
    /// # Errors
    /// [`BlockError`] if a folder cannot be read, or if there are too many series.
    pub fn open(data: &Path, valid_from_ms: i64) -> Result<HeadReader, BlockError> {
        let mut head = HeadReader {
            chunks: numbered_files(&data.join("chunks_head"))?,
            log: segments(&data.join("wal"))?,
            late_log: segments(&data.join("wbl"))?,
            series: HashMap::new(),
            texts: HashSet::new(),
            label_bytes: 0,
            deleted: DeletedRanges::default(),
            metadata: HashMap::new(),
            chunked_until_ms: HashMap::new(),
            valid_from_ms,
            problems: Vec::new(),
        };
        let log = head.log.clone();
        let read = read_log(&log, &mut |entry| head.add_entry(entry));
        if let Err(error) = read {
            match error {
                BlockError::Damaged { .. } => head.problems.push(error.to_string()),
                other => return Err(other),
            }
        }
        head.texts = HashSet::new();
        Ok(head)
    }

    /// Returns the metadata of metrics by their names, in no order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &SeriesMetadata)> {
        self.metadata.iter().map(|(name, metadata)| (name.as_str(), metadata))
    }

    /// Returns a sentence for each file that is damaged.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    fn add_entry(&mut self, entry: LogEntry<'_>) -> Result<(), BlockError> {
        match entry {
            LogEntry::Series { number, labels } => self.add_series(number, &labels),
            LogEntry::Deleted { series, start_ms, end_ms } => {
                self.deleted.add(series, start_ms, end_ms);
                Ok(())
            }
            LogEntry::Metadata { series, kind, unit, help } => {
                if let Some(labels) = self.series.get(&series) {
                    let metadata = SeriesMetadata { kind, unit: unit.to_owned(), help: help.to_owned() };
                    self.metadata.insert(labels.metric_name().to_owned(), metadata);
                }
                Ok(())
            }
            LogEntry::Unknown(kind) => {
                let problem = format!("records of the unknown type {kind} were skipped");
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
                Ok(())
            }
            LogEntry::Float { .. } | LogEntry::Native { .. } | LogEntry::Other => Ok(()),
        }
    }

    fn add_series(&mut self, number: u64, labels: &[(&str, &str)]) -> Result<(), BlockError> {
        let mut own = Vec::with_capacity(labels.len());
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            own.push(Label { name: self.text(name), value: self.text(value) });
        }
        own.sort_by(|a, b| a.name.cmp(&b.name));
        own.dedup_by(|a, b| a.name == b.name);
        self.label_bytes = self
            .label_bytes
            .saturating_add(SERIES_BYTES)
            .saturating_add(own.len().saturating_mul(LABEL_BYTES));
        if self.label_bytes > LABEL_BYTES_MAX {
            return Err(BlockError::Limit("the labels of the head need more than 2 GiB of memory"));
        }
        self.series.insert(number, Labels::from_sorted(own));
        Ok(())
    }

    /// Returns the text, which equal labels share.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let own: Arc<str> = text.into();
        self.label_bytes = self.label_bytes.saturating_add(text.len()).saturating_add(LABEL_BYTES);
        self.texts.insert(Arc::clone(&own));
        own
    }

    /// Calls `each` with every sample of the head that is not deleted: first those of chunks, then
    /// those of the log. A sample may occur twice, if it arrived out of order. A damaged file ends
    /// before the damage.
    ///
    /// # Errors
    /// [`BlockError`] if a file cannot be read, and the errors of `each` but
    /// [`BlockError::Damaged`].
    pub fn samples(&mut self, each: EachHeadSample<'_>) -> Result<(), BlockError> {
        for path in self.chunks.clone() {
            let read = self.chunk_samples(&path, each);
            self.keep_problem(read)?;
        }
        for (log, is_late) in [(self.log.clone(), false), (self.late_log.clone(), true)] {
            let read = read_log(&log, &mut |entry| self.log_sample(entry, is_late, each));
            self.keep_problem(read)?;
        }
        Ok(())
    }

    fn keep_problem(&mut self, read: Result<(), BlockError>) -> Result<(), BlockError> {
        match read {
            Err(error @ BlockError::Damaged { .. }) => {
                let problem = error.to_string();
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
                Ok(())
            }
            other => other,
        }
    }

    fn chunk_samples(&mut self, path: &Path, each: EachHeadSample<'_>) -> Result<(), BlockError> {
        let HeadReader { series, deleted, chunked_until_ms, valid_from_ms, .. } = self;
        read_chunks(path, &mut |chunk| {
            let Some(labels) = series.get(&chunk.series) else { return Ok(()) };
            if !chunk.is_out_of_order {
                if chunk.last_ms < *valid_from_ms {
                    return Ok(());
                }
                let until = chunked_until_ms.entry(chunk.series).or_insert(chunk.last_ms);
                *until = (*until).max(chunk.last_ms);
            }
            let mut outcome = Ok(());
            let decoded = prometheus_chunk::decode::<ChunkError>(chunk.kind, chunk.data, |at_ms, sample| {
                if outcome.is_ok() && !deleted.hides(chunk.series, at_ms) {
                    outcome = each(HeadSample { labels, at_ms, sample });
                }
                Ok(())
            });
            decoded.map_err(|error| chunk.damaged(error.to_string()))?;
            outcome
        })
    }

    fn log_sample(
        &self,
        entry: LogEntry<'_>,
        is_late: bool,
        each: EachHeadSample<'_>,
    ) -> Result<(), BlockError> {
        let (number, at_ms, sample) = match entry {
            LogEntry::Float { series, at_ms, value } => (series, at_ms, ChunkSample::Float(value)),
            LogEntry::Native { series, at_ms, value } => (series, at_ms, ChunkSample::Native(value)),
            _ => return Ok(()),
        };
        let Some(labels) = self.series.get(&number) else { return Ok(()) };
        let is_chunked = self.chunked_until_ms.get(&number).is_some_and(|until| at_ms <= *until);
        let is_known = !is_late && (is_chunked || at_ms < self.valid_from_ms);
        if is_known || self.deleted.hides(number, at_ms) {
            return Ok(());
        }
        each(HeadSample { labels, at_ms, sample })
    }
}

/// Receives the samples of a head.
pub type EachHeadSample<'e> = &'e mut dyn FnMut(HeadSample<'_>) -> Result<(), BlockError>;

/// Calls `each` with each entry of the records of a log.
fn read_log(
    segments: &[PathBuf],
    each: &mut dyn FnMut(LogEntry<'_>) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    for (place, path) in segments.iter().enumerate() {
        let is_last = place.saturating_add(1) == segments.len();
        read_segment(path, is_last, &mut |record, place| {
            let mut outcome = Ok(());
            let decoded = decode(record, &mut |entry| {
                if outcome.is_ok() {
                    outcome = each(entry);
                }
            });
            decoded.map_err(|reason| place.damaged(reason))?;
            outcome
        })?;
    }
    Ok(())
}
