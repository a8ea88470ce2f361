//! Writes a segment in one pass: blocks go to the file as they come, the directory waits in memory until the end.

use std::fs::File;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::beside::{Entry, encode_index, run_crc};
use super::block::{BLOCK_SAMPLES, Codec, verified};
use super::directory::{Directory, Times};
use super::format::{
    ALIGNMENT, BESIDE, COLUMNS, DATA, DICTIONARIES, FAMILIES, Footer, Header, SECTIONS, Section, TIMES,
};
use super::{FILE_BYTES_MAX, HISTOGRAMS, SegmentMeta, SegmentWriteError};
use crate::model::{OrgId, StoreId};
use crate::tsdb::codec::put_varint;
use crate::tsdb::disk;
use crate::tsdb::error::{Damage, DiskError};

/// Bytes that wait for the file at most, but for one block.
const BUFFER_BYTES: usize = 1 << 20;
/// A segment is full when its time blocks take so much memory: they go to the file last. 1 M series of which each has
/// times of its own then make several segments.
const TIMES_BYTES_MAX: usize = 24 << 20;
/// A segment is full when its directory takes so much memory, about 1.5 M series.
const DIRECTORY_BYTES_MAX: usize = 40 << 20;

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

/// Some samples of a series, to follow one another in time.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) enum Piece<'a> {
    /// To be encoded.
    Samples { times: &'a [i64], bits: &'a [u64] },
    /// A value block of the same series, taken over as it is, and its times.
    Block { times: &'a [i64], bytes: &'a [u8] },
}

/// Why a series was not written.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum PieceError {
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// The block of this piece is damaged; nothing of the series was written.
    #[error("block of piece {piece}: {damage}")]
    Damaged { piece: usize, damage: Damage },
}

/// A segment in the making.
#[derive(Debug)]
pub(in crate::tsdb) struct SegmentWriter {
    out: Stream,
    dir: PathBuf,
    store: StoreId,
    meta: SegmentMeta,
    directory: Directory,
    times: Times,
    data_crc: u32,
    series: Scratch,
    codec: Codec,
    beside: Option<BesideRuns>,
}

/// What stands beside the rows, in a file of its own until they are all written.
#[derive(Debug)]
struct BesideRuns {
    out: Stream,
    entries: Vec<Entry>,
}

/// What becomes of one series.
#[derive(Debug, Default)]
struct Scratch {
    blocks: Vec<u8>,
    /// Where each of the blocks ends.
    ends: Vec<usize>,
    /// The time block of each.
    list: Vec<i64>,
    lengths: Vec<u8>,
}

impl Scratch {
    fn clear(&mut self) {
        self.blocks.clear();
        self.ends.clear();
        self.list.clear();
        self.lengths.clear();
    }

    fn end_block(&mut self, time_block: u32) {
        self.ends.push(self.blocks.len());
        self.list.push(i64::from(time_block));
    }

    /// The lengths of all blocks but the last.
    fn measure(&mut self) {
        let mut start = 0;
        for end in self.ends.iter().take(self.ends.len().saturating_sub(1)) {
            put_varint(&mut self.lengths, (end - start) as u64);
            start = *end;
        }
    }
}

/// A file that grows at its end, under a running hash of what is written.
#[derive(Debug)]
struct Stream {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    written: u64,
    hash: Sha256,
}

impl Stream {
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

    fn at(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Zeros up to the next place where a section may begin.
    fn align(&mut self) -> Result<u64, DiskError> {
        const ZEROS: [u8; 64] = [0; 64];
        let missing = usize::try_from(self.at().next_multiple_of(ALIGNMENT) - self.at()).unwrap_or_default();
        self.put(ZEROS.get(..missing).unwrap_or_default())?;
        Ok(self.at())
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section, DiskError> {
        let offset = self.align()?;
        self.put(bytes)?;
        Ok(Section { crc: crc32c::crc32c(bytes), offset, bytes: bytes.len() as u64 })
    }
}

/// The runs and their index, copied behind everything else.
fn beside_section(out: &mut Stream, runs: Option<BesideRuns>) -> Result<Section, SegmentWriteError> {
    let offset = out.align()?;
    let mut crc = 0;
    let mut entries = Vec::new();
    if let Some(mut runs) = runs {
        runs.out.flush()?;
        let mut piece = vec![0; BUFFER_BYTES];
        let mut at = 0;
        while at < runs.out.written {
            let left = usize::try_from(runs.out.written - at).unwrap_or(BUFFER_BYTES);
            let piece = piece.get_mut(..left.min(BUFFER_BYTES)).unwrap_or_default();
            std::os::unix::fs::FileExt::read_exact_at(&runs.out.file, piece, at)
                .map_err(DiskError::at("read", &runs.out.path))?;
            crc = crc32c::crc32c_append(crc, piece);
            out.put(piece)?;
            at += piece.len() as u64;
        }
        disk::remove_file(&runs.out.path)?;
        entries = runs.entries;
    }
    entries.sort_unstable_by_key(|entry| entry.id);
    if !entries.is_sorted_by(|a, b| a.id < b.id) {
        return Err(SegmentWriteError::Shape("histograms of a series twice"));
    }
    let index = encode_index(&entries);
    out.put(&index)?;
    Ok(Section { crc: crc32c::crc32c_append(crc, &index), offset, bytes: out.at() - offset })
}

fn without_blocks(written: Result<(), PieceError>) -> Result<(), SegmentWriteError> {
    match written {
        Err(PieceError::Write(error)) => Err(error),
        // There are no blocks among the pieces.
        Ok(()) | Err(PieceError::Damaged { .. }) => Ok(()),
    }
}

impl SegmentWriter {
    /// Begins the file `<name>.new`; `dir` is `segments/<org>` and exists.
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
        let mut out = Stream { file, path, buffer: Vec::new(), written: 0, hash: Sha256::new() };
        let header = Header {
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
            directory: Directory::default(),
            times: Times::default(),
            data_crc: 0,
            series: Scratch::default(),
            codec: Codec::default(),
            beside: None,
        })
    }

    /// Begins a family: the series of one metric name that have exactly these label names, ascending, the metric name's
    /// among them. A family comes once in a segment.
    pub(in crate::tsdb) fn family(&mut self, names: &[&str]) -> Result<(), SegmentWriteError> {
        self.directory.family(names, self.data_bytes())
    }

    /// Adds a series of the family, with a value for each of its names. Ids ascend within the family, times ascend
    /// strictly; `bits` are the values' bit patterns. A series without samples is left out.
    pub(in crate::tsdb) fn series(
        &mut self,
        id: u32,
        values: &[&str],
        times: &[i64],
        bits: &[u64],
    ) -> Result<(), SegmentWriteError> {
        without_blocks(self.pieces(id, values, &[Piece::Samples { times, bits }]))
    }

    /// As [`SegmentWriter::series`], with the numbers of the values.
    pub(in crate::tsdb) fn series_numbered(
        &mut self,
        id: u32,
        numbers: &[u32],
        times: &[i64],
        bits: &[u64],
    ) -> Result<(), SegmentWriteError> {
        without_blocks(self.numbered(id, numbers, &[Piece::Samples { times, bits }]))
    }

    /// Adds a series in pieces, blocks of other segments among them. No series is written on an error.
    pub(in crate::tsdb) fn pieces(
        &mut self,
        id: u32,
        values: &[&str],
        pieces: &[Piece<'_>],
    ) -> Result<(), PieceError> {
        self.directory.admits(id, values.len())?;
        let numbers: Vec<u32> =
            values.iter().enumerate().map(|(place, value)| self.directory.number(place, value)).collect();
        self.numbered(id, &numbers, pieces)
    }

    /// The number of a value of the family's label at this place, for [`SegmentWriter::numbered`]. It holds for that label
    /// in all families of this segment: whoever writes many series with it asks once.
    pub(in crate::tsdb) fn number(&mut self, place: usize, value: &str) -> u32 {
        self.directory.number(place, value)
    }

    /// As [`SegmentWriter::pieces`], with the numbers of the values.
    pub(in crate::tsdb) fn numbered(
        &mut self,
        id: u32,
        numbers: &[u32],
        pieces: &[Piece<'_>],
    ) -> Result<(), PieceError> {
        self.directory.admits(id, numbers.len())?;
        self.series.clear();
        let mut span: Option<(i64, i64)> = None;
        let mut samples = 0;
        for (place, piece) in pieces.iter().enumerate() {
            let (Piece::Samples { times, .. } | Piece::Block { times, .. }) = piece;
            let (Some(first), Some(last)) = (times.first(), times.last()) else { continue };
            let ascending =
                times.is_sorted_by(|a, b| a < b) && span.is_none_or(|(_, before)| before < *first);
            if !ascending {
                return Err(SegmentWriteError::Shape("times do not ascend").into());
            }
            match piece {
                Piece::Samples { times, bits } if times.len() == bits.len() => {
                    for (times, bits) in times.chunks(BLOCK_SAMPLES).zip(bits.chunks(BLOCK_SAMPLES)) {
                        self.codec.put_values(&mut self.series.blocks, id, bits);
                        self.series.end_block(self.times.place(times)?);
                    }
                }
                Piece::Block { times, bytes } if times.len() <= BLOCK_SAMPLES => {
                    let block = verified(bytes, id, times.len())
                        .map_err(|damage| PieceError::Damaged { piece: place, damage })?;
                    self.series.blocks.extend_from_slice(block);
                    self.series.end_block(self.times.place(times)?);
                }
                _ => return Err(SegmentWriteError::Shape("not a value for each time").into()),
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

    /// Puts a run of bytes beside the row of a series, once for each; of a segment that has [`super::HISTOGRAMS`]. The
    /// segment's time reaches over `span`.
    pub(in crate::tsdb) fn beside(
        &mut self,
        id: u32,
        run: &[u8],
        (first, last): (i64, i64),
    ) -> Result<(), SegmentWriteError> {
        let mut runs = match self.beside.take() {
            Some(runs) => runs,
            None => {
                let path = self.dir.join(format!("{}.beside.new", self.meta.file_name()));
                let file = disk::create_file(&path)?;
                let out = Stream { file, path, buffer: Vec::new(), written: 0, hash: Sha256::new() };
                BesideRuns { out, entries: Vec::new() }
            }
        };
        let bytes = u32::try_from(run.len()).map_err(|_| SegmentWriteError::TooLarge {
            what: "bytes of one series' histograms",
            found: run.len() as u64,
            allowed: u64::from(u32::MAX),
        })?;
        runs.entries.push(Entry { id, crc: run_crc(id, run), offset: runs.out.at(), bytes });
        let put = runs.out.put(run);
        self.beside = Some(runs);
        put?;
        self.meta.min_ms = self.meta.min_ms.min(first);
        self.meta.max_ms = self.meta.max_ms.max(last);
        Ok(())
    }

    /// Series written so far.
    pub(in crate::tsdb) fn series_count(&self) -> u32 {
        self.directory.rows()
    }

    /// Bytes written so far, without the directory.
    pub(in crate::tsdb) fn data_bytes(&self) -> u64 {
        // The header is not data.
        self.out.at().saturating_sub(ALIGNMENT)
    }

    /// Whether the next series belongs into another segment, since this one nears 4 GiB or what it keeps in memory its
    /// bound. A family may go on there.
    pub(in crate::tsdb) fn is_full(&self) -> bool {
        let memory = self.directory.memory();
        self.out.at() + (self.times.bytes().len() + 2 * memory) as u64 > FILE_BYTES_MAX - (64 << 20)
            || self.times.bytes().len() > TIMES_BYTES_MAX
            || memory > DIRECTORY_BYTES_MAX
    }

    /// Writes the directory, syncs the file, gives it its name and syncs the directory it lies in. A segment without
    /// samples is an error of shape: [`SegmentWriter::abandon`] it. What was written is removed on an error: on a full disk
    /// it would take the room that the next try needs.
    pub(in crate::tsdb) fn finish(self) -> Result<SegmentMeta, SegmentWriteError> {
        let runs = self.beside.as_ref().map(|runs| runs.out.path.clone());
        let paths: Vec<PathBuf> = runs.into_iter().chain([self.out.path.clone()]).collect();
        let finished = self.write_rest();
        if finished.is_err() {
            for path in paths {
                // Why nothing was written says more; what is left here goes with the next start.
                if let Err(left) = disk::remove_if_there(&path) {
                    tracing::warn!("{}", left.line());
                }
            }
        }
        finished
    }

    fn write_rest(mut self) -> Result<SegmentMeta, SegmentWriteError> {
        if self.meta.samples == 0 && self.beside.is_none() {
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
            sections[BESIDE] = beside_section(&mut self.out, self.beside.take())?;
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

    /// Removes what was written.
    pub(in crate::tsdb) fn abandon(self) -> Result<(), DiskError> {
        if let Some(runs) = &self.beside {
            disk::remove_file(&runs.out.path)?;
        }
        disk::remove_file(&self.out.path)
    }
}
