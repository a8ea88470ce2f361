//! Writes a segment in one pass. Blocks are written to the file as they are added; the directory
//! stays in memory until the end.

use std::fs::File;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::block::{BLOCK_SAMPLES, ValueEncoder, verified};
use super::directory::{DirectoryBuilder, TimeBlocks};
use super::format::{
    ALIGNMENT, COLUMNS, DATA, DICTIONARIES, FAMILIES, Footer, SECTIONS, SIDE_DATA, Section, SegmentHeader,
    TIMES,
};
use super::side_data::{SideDataEntry, encode_index, run_crc};
use super::{FILE_BYTES_MAX, HISTOGRAMS, SegmentMeta, SegmentWriteError};
use crate::model::{OrgId, StoreId};
use crate::tsdb::codec::put_varint;
use crate::tsdb::disk;
use crate::tsdb::error::{Damage, DiskError};

/// Size of the write buffer in bytes. Larger blocks bypass it.
const BUFFER_BYTES: usize = 1 << 20;
/// A segment is full when its time blocks exceed this memory in bytes, since they are written after
/// all value blocks. 1 M series with separate times then fill several segments.
const TIMES_BYTES_MAX: usize = 24 << 20;
/// A segment is full when its directory exceeds this memory in bytes, which is at about 1.5 M
/// series.
const DIRECTORY_BYTES_MAX: usize = 40 << 20;

/// The properties of a new segment.
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

/// Samples of a series. The parts of a series follow one another in time.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) enum SeriesPart<'a> {
    /// Samples to encode.
    Samples { times: &'a [i64], bits: &'a [u64] },
    /// A value block of the same series, copied as it is, and its times.
    Block { times: &'a [i64], bytes: &'a [u8] },
}

/// The reason why a series was not written.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum SeriesWriteError {
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// The block of this part is damaged. No part of the series was written.
    #[error("block of part {part}: {damage}")]
    Damaged { part: usize, damage: Damage },
}

/// A segment that is being written.
#[derive(Debug)]
pub(in crate::tsdb) struct SegmentWriter {
    out: HashedFile,
    dir: PathBuf,
    store: StoreId,
    meta: SegmentMeta,
    directory: DirectoryBuilder,
    times: TimeBlocks,
    data_crc: u32,
    series: SeriesBuffers,
    codec: ValueEncoder,
    side_data: Option<SideDataRuns>,
}

/// Runs of side data, kept in a separate file until all rows are written.
#[derive(Debug)]
struct SideDataRuns {
    out: HashedFile,
    entries: Vec<SideDataEntry>,
}

/// Buffers for the series that is being written.
#[derive(Debug, Default)]
struct SeriesBuffers {
    blocks: Vec<u8>,
    /// The end of each block in `blocks`.
    ends: Vec<usize>,
    /// The offset in TIMES of each block's times.
    list: Vec<i64>,
    lengths: Vec<u8>,
}

impl SeriesBuffers {
    fn clear(&mut self) {
        self.blocks.clear();
        self.ends.clear();
        self.list.clear();
        self.lengths.clear();
    }

    /// Ends the block that was appended to `blocks` last. `time_block` is the offset in TIMES of
    /// its times.
    fn end_block(&mut self, time_block: u32) {
        self.ends.push(self.blocks.len());
        self.list.push(i64::from(time_block));
    }

    /// Encodes the lengths of all blocks but the last.
    fn measure(&mut self) {
        let mut start = 0;
        for end in self.ends.iter().take(self.ends.len().saturating_sub(1)) {
            put_varint(&mut self.lengths, (end - start) as u64);
            start = *end;
        }
    }
}

/// A file that is appended to, with a running hash of its content.
#[derive(Debug)]
struct HashedFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes written before those in the buffer.
    written: u64,
    hash: Sha256,
}

impl HashedFile {
    /// Appends bytes, through the buffer if they fit.
    fn put(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() > BUFFER_BYTES {
            self.hash.update(bytes);
            disk::write_at(&self.file, &self.path, bytes, self.written)?;
            self.written += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.hash.update(&self.buffer);
        disk::write_at(&self.file, &self.path, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the length of the file, the buffer included.
    fn at(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends zeros up to the next offset where a section may begin, and returns that offset.
    fn align(&mut self) -> Result<u64, DiskError> {
        const ZEROS: [u8; 64] = [0; 64];
        let missing = usize::try_from(self.at().next_multiple_of(ALIGNMENT) - self.at()).unwrap_or_default();
        self.put(ZEROS.get(..missing).unwrap_or_default())?;
        Ok(self.at())
    }

    /// Appends a section at the next aligned offset.
    fn section(&mut self, bytes: &[u8]) -> Result<Section, DiskError> {
        let offset = self.align()?;
        self.put(bytes)?;
        Ok(Section { crc: crc32c::crc32c(bytes), offset, bytes: bytes.len() as u64 })
    }
}

/// Appends the section of side data: the runs and their index.
fn put_side_data_section(
    out: &mut HashedFile,
    runs: Option<SideDataRuns>,
) -> Result<Section, SegmentWriteError> {
    let offset = out.align()?;
    let mut crc = 0;
    let mut entries = Vec::new();
    if let Some(mut runs) = runs {
        runs.out.flush()?;
        let mut part = vec![0; BUFFER_BYTES];
        let mut at = 0;
        while at < runs.out.written {
            let left = usize::try_from(runs.out.written - at).unwrap_or(BUFFER_BYTES);
            let part = part.get_mut(..left.min(BUFFER_BYTES)).unwrap_or_default();
            std::os::unix::fs::FileExt::read_exact_at(&runs.out.file, part, at)
                .map_err(DiskError::at("read", &runs.out.path))?;
            crc = crc32c::crc32c_append(crc, part);
            out.put(part)?;
            at += part.len() as u64;
        }
        disk::remove_file(&runs.out.path)?;
        entries = runs.entries;
    }
    entries.sort_unstable_by_key(|entry| entry.id);
    if !entries.is_sorted_by(|a, b| a.id < b.id) {
        return Err(SegmentWriteError::Shape("duplicate side data of a series"));
    }
    let index = encode_index(&entries);
    out.put(&index)?;
    Ok(Section { crc: crc32c::crc32c_append(crc, &index), offset, bytes: out.at() - offset })
}

/// Converts the error of a series without copied blocks.
fn without_blocks(written: Result<(), SeriesWriteError>) -> Result<(), SegmentWriteError> {
    match written {
        Err(SeriesWriteError::Write(error)) => Err(error),
        // The parts contain no block.
        Ok(()) | Err(SeriesWriteError::Damaged { .. }) => Ok(()),
    }
}

impl SegmentWriter {
    /// Creates the file `<name>.new`. `dir` is `segments/<org>` and must exist.
    pub(in crate::tsdb) fn create(
        dir: &Path,
        store: StoreId,
        new: NewSegment,
    ) -> Result<SegmentWriter, SegmentWriteError> {
        if new.replaces.len() > usize::from(u16::MAX) {
            let (found, allowed) = (new.replaces.len() as u64, u64::from(u16::MAX));
            return Err(SegmentWriteError::TooLarge { what: "segments replaced", found, allowed });
        }
        let meta = SegmentMeta {
            org: new.org,
            seq: new.seq,
            level: new.level,
            flags: new.flags,
            series: 0,
            min_ms: i64::MAX,
            max_ms: i64::MIN,
            file_bytes: 0,
            samples: 0,
            first_log_seq: new.first_log_seq,
            last_log_seq: new.last_log_seq,
            footer_crc: 0,
            sha256: [0; 16],
            replaces: new.replaces,
        };
        let path = dir.join(format!("{}.new", meta.file_name()));
        let file = disk::create_file(&path)?;
        let mut out = HashedFile { file, path, buffer: Vec::new(), written: 0, hash: Sha256::new() };
        let header = SegmentHeader {
            store,
            org: meta.org,
            level: meta.level,
            flags: meta.flags,
            seq: meta.seq,
            first_log_seq: meta.first_log_seq,
        };
        out.put(&header.encode())?;
        Ok(SegmentWriter {
            out,
            dir: dir.to_owned(),
            store,
            meta,
            directory: DirectoryBuilder::default(),
            times: TimeBlocks::default(),
            data_crc: 0,
            series: SeriesBuffers::default(),
            codec: ValueEncoder::default(),
            side_data: None,
        })
    }

    /// Begins a family: the series of one metric name with exactly these label names, which ascend
    /// and include that of the metric name. A family may occur once in a segment.
    pub(in crate::tsdb) fn family(&mut self, names: &[&str]) -> Result<(), SegmentWriteError> {
        self.directory.family(names, self.data_bytes())
    }

    /// Adds a series of the family, with a value for each label name. Ids ascend within the family,
    /// and times ascend strictly; `bits` are the bit patterns of the values. A series without
    /// samples is left out.
    pub(in crate::tsdb) fn series(
        &mut self,
        id: u32,
        values: &[&str],
        times: &[i64],
        bits: &[u64],
    ) -> Result<(), SegmentWriteError> {
        without_blocks(self.put_parts(id, values, &[SeriesPart::Samples { times, bits }]))
    }

    /// As [`SegmentWriter::series`], with the values given by number.
    pub(in crate::tsdb) fn series_numbered(
        &mut self,
        id: u32,
        numbers: &[u32],
        times: &[i64],
        bits: &[u64],
    ) -> Result<(), SegmentWriteError> {
        without_blocks(self.put_parts_numbered(id, numbers, &[SeriesPart::Samples { times, bits }]))
    }

    /// Adds a series in parts, which may be blocks of other segments. On an error no part of the
    /// series is written.
    pub(in crate::tsdb) fn put_parts(
        &mut self,
        id: u32,
        values: &[&str],
        parts: &[SeriesPart<'_>],
    ) -> Result<(), SeriesWriteError> {
        self.directory.admits(id, values.len())?;
        let numbers: Vec<u32> =
            values.iter().enumerate().map(|(index, value)| self.directory.number(index, value)).collect();
        self.put_parts_numbered(id, &numbers, parts)
    }

    /// Returns the number of a value of the label at this index of the family's label names, for
    /// [`SegmentWriter::put_parts_numbered`]. The number is valid for that label in all families of
    /// this segment, so callers may reuse it.
    pub(in crate::tsdb) fn number(&mut self, index: usize, value: &str) -> u32 {
        self.directory.number(index, value)
    }

    /// As [`SegmentWriter::put_parts`], with the values given by number.
    pub(in crate::tsdb) fn put_parts_numbered(
        &mut self,
        id: u32,
        numbers: &[u32],
        parts: &[SeriesPart<'_>],
    ) -> Result<(), SeriesWriteError> {
        self.directory.admits(id, numbers.len())?;
        self.series.clear();
        let mut span: Option<(i64, i64)> = None;
        let mut samples = 0;
        for (index, part) in parts.iter().enumerate() {
            let (SeriesPart::Samples { times, .. } | SeriesPart::Block { times, .. }) = part;
            let (Some(first), Some(last)) = (times.first(), times.last()) else { continue };
            let ascending =
                times.is_sorted_by(|a, b| a < b) && span.is_none_or(|(_, before)| before < *first);
            if !ascending {
                return Err(SegmentWriteError::Shape("times do not ascend").into());
            }
            match part {
                SeriesPart::Samples { times, bits } if times.len() == bits.len() => {
                    for (times, bits) in times.chunks(BLOCK_SAMPLES).zip(bits.chunks(BLOCK_SAMPLES)) {
                        self.codec.put_values(&mut self.series.blocks, id, bits);
                        self.series.end_block(self.times.offset_of(times)?);
                    }
                }
                SeriesPart::Block { times, bytes } if times.len() <= BLOCK_SAMPLES => {
                    let block = verified(bytes, id, times.len())
                        .map_err(|damage| SeriesWriteError::Damaged { part: index, damage })?;
                    self.series.blocks.extend_from_slice(block);
                    self.series.end_block(self.times.offset_of(times)?);
                }
                _ => {
                    return Err(
                        SegmentWriteError::Shape("the number of values differs from that of times").into()
                    );
                }
            }
            span = Some((span.map_or(*first, |(first, _)| first), *last));
            samples += times.len() as u64;
        }
        let Some(span) = span else { return Ok(()) };
        self.series.measure();
        for bytes in [&self.series.lengths, &self.series.blocks].into_iter().filter(|bytes| !bytes.is_empty())
        {
            self.data_crc = crc32c::crc32c_append(self.data_crc, bytes);
            self.out.put(bytes).map_err(SegmentWriteError::Disk)?;
        }
        self.directory.row(id, numbers, &self.series.list, span, self.data_bytes())?;
        self.meta.samples += samples;
        self.meta.min_ms = self.meta.min_ms.min(span.0);
        self.meta.max_ms = self.meta.max_ms.max(span.1);
        Ok(())
    }

    /// Adds the side data of a series, at most once per series, to a segment with
    /// [`super::HISTOGRAMS`]. Extends the segment's range of time by `span`, both ends inclusive.
    pub(in crate::tsdb) fn put_side_data(
        &mut self,
        id: u32,
        run: &[u8],
        span: (i64, i64),
    ) -> Result<(), SegmentWriteError> {
        let mut runs = match self.side_data.take() {
            Some(runs) => runs,
            None => {
                let path = self.dir.join(format!("{}.beside.new", self.meta.file_name()));
                let file = disk::create_file(&path)?;
                let out = HashedFile { file, path, buffer: Vec::new(), written: 0, hash: Sha256::new() };
                SideDataRuns { out, entries: Vec::new() }
            }
        };
        let bytes = u32::try_from(run.len()).map_err(|_| SegmentWriteError::TooLarge {
            what: "bytes of side data of one series",
            found: run.len() as u64,
            allowed: u64::from(u32::MAX),
        })?;
        runs.entries.push(SideDataEntry { id, crc: run_crc(id, run), offset: runs.out.at(), bytes });
        let put = runs.out.put(run);
        self.side_data = Some(runs);
        put?;
        self.meta.min_ms = self.meta.min_ms.min(span.0);
        self.meta.max_ms = self.meta.max_ms.max(span.1);
        Ok(())
    }

    /// Returns the number of series written so far.
    pub(in crate::tsdb) fn series_count(&self) -> u32 {
        self.directory.rows()
    }

    /// Returns the bytes of value blocks written so far.
    pub(in crate::tsdb) fn data_bytes(&self) -> u64 {
        // The header is not part of the data.
        self.out.at().saturating_sub(ALIGNMENT)
    }

    /// Returns whether the next series belongs into another segment, because the file nears 4 GiB
    /// or the directory its bound of memory. The family may continue in the next segment.
    pub(in crate::tsdb) fn is_full(&self) -> bool {
        let memory = self.directory.memory();
        self.out.at() + (self.times.bytes().len() + 2 * memory) as u64 > FILE_BYTES_MAX - (64 << 20)
            || self.times.bytes().len() > TIMES_BYTES_MAX
            || memory > DIRECTORY_BYTES_MAX
    }

    /// Writes the directory, syncs the file, renames it and syncs its folder. A segment without
    /// samples is an error of shape; discard it with [`SegmentWriter::abandon`]. On an error the
    /// files are removed, since on a full disk they would take the space of the next attempt.
    pub(in crate::tsdb) fn finish(self) -> Result<SegmentMeta, SegmentWriteError> {
        let runs = self.side_data.as_ref().map(|runs| runs.out.path.clone());
        let paths: Vec<PathBuf> = runs.into_iter().chain([self.out.path.clone()]).collect();
        let finished = self.write_rest();
        if finished.is_err() {
            for path in paths {
                // The error of the write is returned, and this one is only logged. The next start
                // removes the file.
                if let Err(left) = disk::remove_if_there(&path) {
                    tracing::warn!("{}", left.line());
                }
            }
        }
        finished
    }

    /// Writes everything after the value blocks, and renames the file.
    fn write_rest(mut self) -> Result<SegmentMeta, SegmentWriteError> {
        if self.meta.samples == 0 && self.side_data.is_none() {
            return Err(SegmentWriteError::Shape("a segment without samples"));
        }
        self.meta.series = self.directory.rows();
        let mut sections = [Section::default(); SECTIONS];
        sections[DATA] = Section { crc: self.data_crc, offset: ALIGNMENT, bytes: self.data_bytes() };
        sections[TIMES] = self.out.section(self.times.bytes())?;
        let encoded = self.directory.encode()?;
        sections[COLUMNS] = self.out.section(&encoded.columns)?;
        sections[FAMILIES] = self.out.section(&encoded.families)?;
        sections[DICTIONARIES] = self.out.section(&encoded.dictionaries)?;
        if self.meta.flags & HISTOGRAMS != 0 {
            sections[SIDE_DATA] = put_side_data_section(&mut self.out, self.side_data.take())?;
        }
        let start = self.out.align()?;
        let mut footer = Footer { sections, meta: self.meta };
        let bytes = footer.encode(self.store, start);
        self.out.put(&bytes)?;
        self.out.flush()?;
        disk::sync_file(&self.out.file, &self.out.path)?;
        let mut meta = footer.meta;
        if let Some(half) = self.out.hash.finalize().first_chunk() {
            meta.sha256 = *half;
        }
        disk::rename(&self.out.path, &self.dir.join(meta.file_name()))?;
        disk::sync_dir(&self.dir)?;
        Ok(meta)
    }

    /// Removes the written files.
    pub(in crate::tsdb) fn abandon(self) -> Result<(), DiskError> {
        if let Some(runs) = &self.side_data {
            disk::remove_file(&runs.out.path)?;
        }
        disk::remove_file(&self.out.path)
    }
}
