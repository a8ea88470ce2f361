//! The data folder of a stopped Prometheus, or a folder of blocks, as a source.
//!
//! Blocks are read in the order of their times, then the head. Each block is verified before its
//! first sample is copied: a damaged one is left out as a whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::batch::BatchSize;
use super::{CopyBatch, CopyMetadata, CopyPosition, CopySeries, CopyShare, CopySource, SampleCopyError};
use crate::history::block::{BlockError, BlockMeta, BlockReader, BlockSeries, META_FILE, Ulid};
use crate::history::wal::{HeadReader, HeadSample};
use crate::ingest::prometheus_chunk::ChunkSample;
use crate::model::{Labels, Sample, Timestamp};

/// The most blocks of a folder.
const BLOCKS_MAX: usize = 100_000;

/// Blocks and head of a Prometheus.
#[derive(Debug)]
pub struct PrometheusSource {
    data: PathBuf,
    blocks: Vec<(BlockMeta, PathBuf)>,
    /// The block that is read.
    open: Option<OpenBlock>,
    position: CopyPosition,
    head: HeadState,
    series_done: u64,
    problems: Vec<String>,
}

#[derive(Debug)]
struct OpenBlock {
    reader: BlockReader,
    /// The series that is read, and its next chunk.
    current: Option<(BlockSeries, usize)>,
}

impl PrometheusSource {
    /// Lists the blocks in a folder, or takes the folder as a block. A block whose description
    /// cannot be read is left out, with its reason in [`CopySource::problems`].
    ///
    /// # Errors
    /// [`SampleCopyError`] if the folder cannot be read or has neither blocks nor a log.
    pub fn open(folder: &Path) -> Result<PrometheusSource, SampleCopyError> {
        let failed =
            |error| SampleCopyError::Block(BlockError::Io { file: folder.to_owned(), source: error });
        let mut source = PrometheusSource {
            data: folder.to_owned(),
            blocks: Vec::new(),
            open: None,
            position: CopyPosition::default(),
            head: HeadState::Unread,
            series_done: 0,
            problems: Vec::new(),
        };
        if folder.join(META_FILE).exists() {
            source.add_block(folder);
        } else {
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.file_name().to_str().is_some_and(|name| Ulid::parse(name).is_some()) {
                    source.add_block(&entry.path());
                }
                if source.blocks.len() > BLOCKS_MAX {
                    return Err(SampleCopyError::Source(format!(
                        "the folder has more than {BLOCKS_MAX} blocks"
                    )));
                }
            }
        }
        if source.blocks.is_empty() && source.problems.is_empty() && !folder.join("wal").exists() {
            return Err(SampleCopyError::Source(format!(
                "{} has neither blocks nor a log of Prometheus",
                folder.display()
            )));
        }
        source.blocks.sort_by(|(a, _), (b, _)| (a.min_time, &a.ulid).cmp(&(b.min_time, &b.ulid)));
        Ok(source)
    }

    fn add_block(&mut self, folder: &Path) {
        match BlockMeta::read(folder) {
            Ok(meta) => self.blocks.push((meta, folder.to_owned())),
            Err(error) => self.problems.push(format!("a block is skipped: {error}")),
        }
    }

    /// Returns the descriptions of the blocks, in the order in which they are read.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockMeta> {
        self.blocks.iter().map(|(meta, _)| meta)
    }

    /// Opens and verifies the block at the position. Returns whether a block is open.
    fn open_block(&mut self) -> Result<bool, SampleCopyError> {
        while self.open.is_none() {
            let place = usize::try_from(self.position.part).unwrap_or(usize::MAX);
            let Some((_, folder)) = self.blocks.get(place) else { return Ok(false) };
            let opened = BlockReader::open(folder).and_then(|mut reader| {
                if self.position.offset == 0 {
                    reader.verify()?;
                }
                Ok(reader)
            });
            match opened {
                Ok(reader) => self.open = Some(OpenBlock { reader, current: None }),
                Err(error) => {
                    self.problems.push(format!("a block is skipped: {error}"));
                    self.next_part();
                }
            }
        }
        Ok(true)
    }

    fn next_part(&mut self) {
        self.open = None;
        self.position = CopyPosition { part: self.position.part.saturating_add(1), offset: 0, lines: 0 };
    }

    /// Returns the next samples of the open block; none at its end.
    fn block_batch(&mut self) -> Result<Option<CopyBatch>, BlockError> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let (mut batch, mut size) = (CopyBatch::default(), BatchSize::default());
        while !size.is_full() {
            let (series, chunk) = match open.current.take() {
                Some(current) => current,
                None => {
                    let place = u32::try_from(self.position.offset).unwrap_or(u32::MAX);
                    if place >= open.reader.series_count() {
                        break;
                    }
                    (open.reader.series(place)?, 0)
                }
            };
            let mut part = CopySeries { labels: series.labels.clone(), ..CopySeries::default() };
            let mut next = chunk;
            while next < series.chunks.len() && !size.is_full() {
                open.reader.chunk_samples(&series, next, |at_ms, sample| {
                    push(&mut part, &mut size, at_ms, sample);
                })?;
                next = next.saturating_add(1);
            }
            if next < series.chunks.len() {
                open.current = Some((series, next));
            } else {
                self.position.offset = self.position.offset.saturating_add(1);
                self.series_done = self.series_done.saturating_add(1);
            }
            if !part.is_empty() {
                batch.series.push(part);
            }
        }
        Ok((!batch.series.is_empty() || open.current.is_some()).then_some(batch))
    }

    /// Starts to read the head.
    fn start_head(&self) -> Result<Receiver<HeadMessage>, SampleCopyError> {
        let in_order = self.blocks.iter().filter(|(meta, _)| !meta.is_from_out_of_order());
        let valid_from_ms = in_order.map(|(meta, _)| meta.max_time).max().unwrap_or(i64::MIN);
        let data = self.data.clone();
        let (sender, receiver) = sync_channel(HEAD_BATCHES_WAITING);
        let thread = std::thread::Builder::new().name("history-head".to_owned());
        let started = thread.spawn(move || {
            let last = match read_head(&data, valid_from_ms, &sender) {
                Ok(problems) => HeadMessage::End(problems),
                Err(error) => HeadMessage::Failed(error),
            };
            // The source may have been dropped.
            let _ = sender.send(last);
        });
        started.map_err(|error| SampleCopyError::Source(error.to_string()))?;
        Ok(receiver)
    }

    fn head_batch(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        if matches!(self.head, HeadState::Unread) {
            self.head = HeadState::Reading(self.start_head()?);
        }
        let HeadState::Reading(messages) = &self.head else { return Ok(None) };
        match messages.recv() {
            Ok(HeadMessage::Batch(batch)) => Ok(Some(batch)),
            Ok(HeadMessage::End(problems)) => {
                self.problems.extend(problems);
                self.head = HeadState::Done;
                Ok(None)
            }
            Ok(HeadMessage::Failed(error)) => Err(error.into()),
            Err(_) => Err(SampleCopyError::Source("the thread that reads the head ended early".to_owned())),
        }
    }
}

/// The batches of the head that wait for the sink, at most.
const HEAD_BATCHES_WAITING: usize = 2;

/// The state of the thread that reads the head.
#[derive(Debug)]
enum HeadState {
    Unread,
    Reading(Receiver<HeadMessage>),
    Done,
}

#[derive(Debug)]
enum HeadMessage {
    Batch(CopyBatch),
    /// The end, with the damaged files.
    End(Vec<String>),
    Failed(BlockError),
}

/// Sends the samples of the head in batches. Returns a sentence for each damaged file.
fn read_head(
    data: &Path,
    valid_from_ms: i64,
    sender: &SyncSender<HeadMessage>,
) -> Result<Vec<String>, BlockError> {
    let mut head = HeadReader::open(data, valid_from_ms)?;
    let mut batches = HeadBatches::default();
    let described = head.metadata().map(|(name, one)| CopyMetadata {
        name: name.to_owned(),
        kind: one.kind,
        help: one.help.clone(),
        unit: one.unit.clone(),
    });
    batches.current.metadata = described.collect();
    let stopped = || BlockError::Limit("the copy was stopped");
    head.samples(&mut |sample| match batches.push(sample) {
        Some(batch) => sender.send(HeadMessage::Batch(batch)).map_err(|_| stopped()),
        None => Ok(()),
    })?;
    let last = batches.take();
    if !last.series.is_empty() || !last.metadata.is_empty() {
        sender.send(HeadMessage::Batch(last)).map_err(|_| stopped())?;
    }
    Ok(head.problems().to_vec())
}

/// Appends a sample to a series of a batch with this size.
#[inline]
fn push(series: &mut CopySeries, size: &mut BatchSize, at_ms: i64, sample: ChunkSample) {
    let at = Timestamp::from_ms(at_ms);
    match sample {
        ChunkSample::Float(value) => {
            size.add_floats(1);
            series.samples.push(Sample { at, value });
        }
        ChunkSample::Native(histogram) => {
            size.add_histogram(&histogram);
            series.histograms.push((at, histogram));
        }
    }
}

/// The samples of a head, which arrive in any order of series.
#[derive(Debug, Default)]
struct HeadBatches {
    current: CopyBatch,
    places: HashMap<Labels, usize>,
    size: BatchSize,
}

impl HeadBatches {
    /// Adds a sample. Returns the batch if it is full.
    fn push(&mut self, one: HeadSample<'_>) -> Option<CopyBatch> {
        let place = match self.places.get(one.labels) {
            Some(place) => *place,
            None => {
                let place = self.current.series.len();
                self.current.series.push(CopySeries { labels: one.labels.clone(), ..CopySeries::default() });
                self.places.insert(one.labels.clone(), place);
                place
            }
        };
        let series = self.current.series.get_mut(place)?;
        push(series, &mut self.size, one.at_ms, one.sample);
        self.size.is_full().then(|| self.take())
    }

    /// Returns the batch, and begins the next one.
    fn take(&mut self) -> CopyBatch {
        self.places.clear();
        self.size = BatchSize::default();
        std::mem::take(&mut self.current)
    }
}

impl CopySource for PrometheusSource {
    fn identity(&self) -> String {
        let names: Vec<&str> = self.blocks.iter().map(|(meta, _)| meta.ulid.as_str()).collect();
        format!("blocks {:08x} {}", crate::history::block::checksum(names.join(" ").as_bytes()), names.len())
    }

    fn resume(&mut self, position: CopyPosition) -> Result<(), SampleCopyError> {
        let before = usize::try_from(position.part).unwrap_or(usize::MAX);
        let series = self.blocks.iter().take(before).map(|(meta, _)| meta.stats.num_series);
        self.series_done = series.sum::<u64>().saturating_add_signed(position.offset);
        self.position = position;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        while self.open_block()? {
            match self.block_batch() {
                Ok(Some(batch)) => return Ok(Some(batch)),
                Ok(None) => self.next_part(),
                Err(error @ BlockError::Damaged { .. }) => {
                    // The block was verified when it was opened, so it has changed since.
                    self.problems.push(format!("the rest of a block is skipped: {error}"));
                    self.next_part();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.head_batch()
    }

    /// Returns the position after the last whole series. The head has no position, so it is read
    /// again from its start.
    fn position(&self) -> CopyPosition {
        self.position
    }

    fn share(&self) -> CopyShare {
        let all = self.blocks.iter().map(|(meta, _)| meta.stats.num_series).sum();
        CopyShare { done: self.series_done.min(all), all }
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}
