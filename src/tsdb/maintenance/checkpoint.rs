//! Checkpoints of the head, with which a start replays minutes of the log instead of all of it
//! (docs/storage.md section 7).
//!
//! `head/<generation>/` holds databases `00`, `01`, .. of at most 65,536 series (`kv`), and `DONE`.
//! A generation is written once under the name `<generation>.new`, made durable, and renamed, which
//! makes it valid. The log remains the source of truth: if there is any doubt about a generation,
//! recovery uses the log.
//!
//! The key of a row is `u32 org, u32 row number` (big-endian), with numbers counting from 0 in each
//! part. The body has at most 3,988 bytes:
//! ```text
//!  0 u64 row seq: records up to this one are in the row      8 u32 first series id
//! 12 i64 least time of a sample in the row                  20 u8 chunks
//! 21 chunks x { u8 series id - first, u8 0 in order | 1 late, u16 samples, u16 bytes, chunk }
//! ```
//! A row holds chunks of at most 32 series. A series' chunks are in order of time, with late ones
//! last. The remaining chunks go to further rows with the same row seq. A row with 0 chunks belongs
//! to the side table (`side_data::checkpoint_rows`). `DONE` is text with one item per line:
//! ```text
//! promlet head 2     1 is read, too: its rows of the side table have items of one series each
//! store <store id>
//! generation <number>
//! replay_seq <R: every record up to it is in the rows>
//! late_from <R, since rows hold late samples too>
//! registry <org> <bytes>                                            for each organisation
//! barrier <org> <ms>                               for each organisation with a barrier
//! part <name> <rows> <bytes> <crc over all row crcs, hex> <org> <row> <org> <row>
//!                                                  the first and the last key
//! crc <CRC32C of everything before this line, hex>
//! ```

use std::path::{Path, PathBuf};

use crate::kv::{BODY_BYTES_MAX, HeadKey, HeadWriter, PartSummary, read_part};
use crate::model::{MetricMetadata, OrgId, StoreId};
use crate::sync::IgnorePoison as _;
use crate::tsdb::codec::Reader;
use crate::tsdb::disk;
use crate::tsdb::error::{CheckpointError, Damage, DiskError, GenerationError, RowError};
use crate::tsdb::head::slot;
use crate::tsdb::head::stripe::Order;
use crate::tsdb::open_progress::{OpenStep, Phase, ProgressObserver};
use crate::tsdb::report::CheckpointReport;
use crate::tsdb::series::definition::Definitions;
use crate::tsdb::series::{metadata, registry};
use crate::tsdb::side_data::checkpoint_rows::{RowHead, RowJoiner, RowTarget};
use crate::tsdb::store::{OrgStore, RowSeqs, Stores};
use crate::tsdb::wal::record::RecordKind;

/// The limit of series in a part. An open part takes 20-24 MiB of memory in sled (docs/storage.md
/// section 0, point 7).
const PART_SERIES: u32 = 65_536;
/// The limit of series in a row. They are copied under one lock.
const ROW_SERIES: u32 = 32;
/// The bytes after which a registry record is closed.
const REGISTRY_BODY_SOFT: usize = 256 << 10;
/// The limit of `DONE`: 100,000 organisations and parts.
const DONE_BYTES_MAX: u64 = 16 << 20;
/// The file name of the marker of a cleanly closed log.
pub(in crate::tsdb) const CLOSED: &str = "CLOSED";
/// The limit of the marker's bytes.
const CLOSED_BYTES_MAX: u64 = 4_096;
/// The bytes of a row before its chunks.
const ROW_HEAD_BYTES: usize = 21;
/// The bytes before each chunk of a row.
const ENTRY_HEAD_BYTES: usize = 6;

/// The folders of the store.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct Folder {
    /// `head/`.
    pub(in crate::tsdb) head: PathBuf,
    /// `series/`.
    pub(in crate::tsdb) series: PathBuf,
    /// `segments/`.
    pub(in crate::tsdb) segments: PathBuf,
    pub(in crate::tsdb) store: StoreId,
}

impl Folder {
    /// Returns the folder of an organisation's segments.
    pub(in crate::tsdb) fn segments_of(&self, org: OrgId) -> PathBuf {
        self.segments.join(org.0.to_string())
    }
}

/// The content of `DONE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct GenerationInfo {
    pub(in crate::tsdb) generation: u64,
    pub(in crate::tsdb) replay_seq: u64,
    pub(in crate::tsdb) registries: Vec<(OrgId, u64)>,
    /// The barriers at `replay_seq`. A failed seal may have raised one, and its record is not
    /// replayed.
    pub(in crate::tsdb) barriers: Vec<(OrgId, i64)>,
    pub(in crate::tsdb) parts: Vec<(String, PartSummary)>,
}

/// Returns the barriers of all heads, in order of organisation.
pub(in crate::tsdb) fn barriers(stores: &Stores) -> Vec<(OrgId, i64)> {
    let all = stores.all();
    let barriers = all.iter().map(|store| (store.org, store.head.barrier()));
    barriers.filter(|(_, barrier)| *barrier > i64::MIN).collect()
}

/// The state of the heads that a checkpoint covers.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct CheckpointStart {
    /// Every record up to this one is in the heads.
    pub(in crate::tsdb) replay_seq: u64,
    /// The barriers at that record.
    pub(in crate::tsdb) barriers: Vec<(OrgId, i64)>,
}

/// Writes a generation. `log_is_durable` makes the log durable up to the content of the rows, or
/// returns the reason why it cannot: after a power cut, rows of lost records would hide the records
/// that get their numbers afterwards.
pub(in crate::tsdb) fn write(
    folder: &Folder,
    stores: &Stores,
    start: CheckpointStart,
    log_is_durable: impl FnOnce() -> Result<(), CheckpointError>,
) -> Result<CheckpointReport, CheckpointError> {
    let CheckpointStart { replay_seq, barriers } = start;
    let orgs = stores.all();
    let mut registries = Vec::new();
    for store in &orgs {
        registries.push((store.org, append_registry(folder, store)?.bytes));
    }
    let generation = generations(&folder.head)?.first().map_or(1, |newest| newest + 1);
    let new = folder.head.join(format!("{generation}.new"));
    if new.exists() {
        disk::remove_dir_all(&new)?;
    }
    disk::create_dir(&new)?;
    let mut report = CheckpointReport { generation, replay_seq, ..CheckpointReport::default() };
    let mut parts = PartWriter { dir: new.clone(), open: None, done: Vec::new() };
    for store in &orgs {
        write_org(store, &mut parts, &mut report)?;
        write_side(store, &mut parts, &mut report)?;
    }
    parts.finish()?;
    let done = GenerationInfo { generation, replay_seq, registries, barriers, parts: parts.done };
    for (_, part) in &done.parts {
        report.parts += 1;
        report.rows += part.rows;
        report.bytes += part.bytes;
    }
    let path = new.join("DONE");
    let file = disk::create_file(&path)?;
    disk::write_at(&file, &path, done.encode(folder.store).as_bytes(), 0)?;
    disk::sync_file(&file, &path)?;
    disk::sync_dir(&new)?;
    log_is_durable()?;
    disk::rename(&new, &folder.head.join(generation.to_string()))?;
    disk::sync_dir(&folder.head)?;
    // The new generation is valid from here on.
    for older in generations(&folder.head)?.into_iter().filter(|older| *older < generation) {
        let path = folder.head.join(older.to_string());
        disk::remove_dir_all(&path)?;
    }
    disk::sync_dir(&folder.head)?;
    Ok(report)
}

/// The content of `head/CLOSED`: the log was closed cleanly at a record up to which a checkpoint
/// holds everything. A clean stop writes it. The next start removes it before the log takes a
/// record. Text:
/// ```text
/// promlet log closed 1
/// store <store id>
/// last <number of the last record>
/// crc <CRC32C of everything before this line, hex>
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct ClosedMarker {
    pub(in crate::tsdb) last_seq: u64,
}

impl ClosedMarker {
    fn text(self, store: StoreId) -> String {
        let text = format!("promlet log closed 1\nstore {store}\nlast {}\n", self.last_seq);
        let crc = crc32c::crc32c(text.as_bytes());
        text + &format!("crc {crc:08x}\n")
    }

    /// Reads the marker; none if it does not exist or is invalid.
    pub(in crate::tsdb) fn read(folder: &Folder) -> Option<ClosedMarker> {
        let bytes = disk::read_file(&folder.head.join(CLOSED), CLOSED_BYTES_MAX).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let last_seq = text.lines().nth(2)?.strip_prefix("last ")?.parse().ok()?;
        let closed = ClosedMarker { last_seq };
        (closed.text(folder.store) == text).then_some(closed)
    }

    /// Makes the marker durable.
    pub(in crate::tsdb) fn write(self, folder: &Folder) -> Result<(), DiskError> {
        let (path, new) = (folder.head.join(CLOSED), folder.head.join("CLOSED.new"));
        let file = disk::create_file(&new)?;
        disk::write_at(&file, &new, self.text(folder.store).as_bytes(), 0)?;
        disk::sync_file(&file, &new)?;
        disk::rename(&new, &path)?;
        disk::sync_dir(&folder.head)
    }

    /// Removes the marker durably, if it is there.
    pub(in crate::tsdb) fn remove(folder: &Folder) -> Result<(), DiskError> {
        if disk::remove_if_there(&folder.head.join(CLOSED))? {
            disk::sync_dir(&folder.head)?;
        }
        Ok(())
    }
}

/// Returns the record up to which the newest valid checkpoint holds everything; 0 without one.
pub(in crate::tsdb) fn newest_replay_seq(head: &Path, store: StoreId) -> u64 {
    let done = |generation: u64| {
        let bytes = disk::read_file(&head.join(generation.to_string()).join("DONE"), DONE_BYTES_MAX).ok()?;
        GenerationInfo::parse(&String::from_utf8(bytes).ok()?, store).ok()
    };
    let generations = if head.is_dir() { generations(head).unwrap_or_default() } else { Vec::new() };
    generations.into_iter().find_map(done).map_or(0, |done| done.replay_seq)
}

/// Returns the numbers of the present generations, newest first.
pub(in crate::tsdb) fn generations(head: &Path) -> Result<Vec<u64>, DiskError> {
    let mut found: Vec<u64> = disk::names(head)?.iter().filter_map(|name| name.parse().ok()).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Appends the definitions in the log that the registry file lacks, and makes the file durable.
pub(in crate::tsdb) fn append_registry(
    folder: &Folder,
    store: &OrgStore,
) -> Result<registry::End, DiskError> {
    // The lock is held from the check for missing parts until the checkpoint is recorded, since a
    // checkpoint and a seal may run at the same time.
    let mut end = store.registry();
    let mut records = Vec::new();
    store.take_durable();
    let series = store.table().unregistered.len();
    let mut definitions = Definitions::default();
    for from in (0..series).step_by(DEFINED_AT_ONCE) {
        // New series are only added after these.
        let table = store.table();
        let ids = table.unregistered.get(from..series.min(from + DEFINED_AT_ONCE));
        for id in ids.unwrap_or_default() {
            definitions.add_known(*id, &table);
            if definitions.bytes() >= REGISTRY_BODY_SOFT {
                records.push((RecordKind::RegistrySeries, std::mem::take(&mut definitions).finish()));
            }
        }
    }
    if !definitions.is_empty() {
        records.push((RecordKind::RegistrySeries, definitions.finish()));
    }
    let metrics = {
        let metadata = store.metadata();
        for names in metadata.unregistered.chunks(16) {
            let descriptions: Vec<MetricMetadata<'_>> = names
                .iter()
                .filter_map(|name| metadata.get(name))
                .map(|(name, known)| MetricMetadata {
                    name,
                    kind: known.kind,
                    help: &known.help,
                    unit: &known.unit,
                })
                .collect();
            records.push((RecordKind::RegistryMetadata, metadata::encode(descriptions.into_iter())));
        }
        metadata.unregistered.len()
    };
    *end = registry::append(&folder.series, folder.store, store.org, *end, &records)?;
    // Definitions that arrived meanwhile follow these.
    store.table_mut().unregistered.drain(..series);
    store.metadata_mut().unregistered.drain(..metrics);
    Ok(*end)
}

/// The number of series that are encoded under one lock of the table.
const DEFINED_AT_ONCE: usize = 4_096;

/// The databases of a generation while they are written, one at a time.
struct PartWriter {
    dir: PathBuf,
    open: Option<OpenPart>,
    done: Vec<(String, PartSummary)>,
}

/// The database that is being written.
struct OpenPart {
    name: String,
    writer: HeadWriter,
    series: u32,
    /// The organisation of the last row.
    org: OrgId,
    next_row: u32,
}

impl PartWriter {
    /// Returns a part with room for the given number of series.
    fn with_room(&mut self, org: OrgId, series: u32) -> Result<&mut OpenPart, CheckpointError> {
        if self.open.as_ref().is_some_and(|open| open.series + series > PART_SERIES) {
            self.finish()?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let name = format!("{:02}", self.done.len());
                let writer = HeadWriter::create(&self.dir.join(&name))?;
                OpenPart { name, writer, series: 0, org, next_row: 0 }
            }
        };
        if open.org != org {
            (open.org, open.next_row) = (org, 0);
        }
        open.series += series;
        Ok(self.open.insert(open))
    }

    fn finish(&mut self) -> Result<(), CheckpointError> {
        if let Some(open) = self.open.take() {
            self.done.push((open.name, open.writer.finish()?));
        }
        Ok(())
    }
}

fn write_org(
    store: &OrgStore,
    parts: &mut PartWriter,
    report: &mut CheckpointReport,
) -> Result<(), CheckpointError> {
    let end = store.table().ids_end();
    for first in (0..end).step_by(ROW_SERIES as usize) {
        let Some(stripe) = store.head.stripe(first) else { continue };
        let mut rows = RowBuilder::new(first);
        let mut series = 0;
        {
            let stripe = stripe.read().ignore_poison();
            rows.row_seq = stripe.applied_seq;
            for id in first..first.saturating_add(ROW_SERIES).min(end) {
                let before = rows.samples;
                stripe.copy_chunks(slot(id), |order, samples, least, chunk| {
                    rows.add(id, order, samples, least, chunk)
                });
                series += u32::from(rows.samples > before);
            }
        }
        report.series += u64::from(series);
        report.samples += rows.samples;
        if series == 0 {
            continue;
        }
        let part = parts.with_room(store.org, series)?;
        for body in rows.finish() {
            part.writer.put(HeadKey { org: store.org, row: part.next_row }, &body)?;
            part.next_row += 1;
        }
    }
    Ok(())
}

/// Writes histograms, start timestamps and exemplars.
fn write_side(
    store: &OrgStore,
    parts: &mut PartWriter,
    report: &mut CheckpointReport,
) -> Result<(), CheckpointError> {
    for group in store.side.checkpoint_rows(BODY_BYTES_MAX - ROW_HEAD_BYTES) {
        report.samples += group.histograms;
        for row in group.rows {
            let part = parts.with_room(store.org, row.series.min(ROW_SERIES))?;
            let mut body = row_head(group.row_seq, row.first, i64::MAX, 0).to_vec();
            body.extend_from_slice(&row.bytes);
            part.writer.put(HeadKey { org: store.org, row: part.next_row }, &body)?;
            part.next_row += 1;
        }
    }
    Ok(())
}

fn row_head(row_seq: u64, first: u32, least: i64, chunks: u8) -> [u8; ROW_HEAD_BYTES] {
    let mut head = [0; ROW_HEAD_BYTES];
    head[..8].copy_from_slice(&row_seq.to_le_bytes());
    head[8..12].copy_from_slice(&first.to_le_bytes());
    head[12..20].copy_from_slice(&least.to_le_bytes());
    head[20] = chunks;
    head
}

/// The rows of one group of series.
struct RowBuilder {
    first: u32,
    row_seq: u64,
    samples: u64,
    full: Vec<Vec<u8>>,
    entries: Vec<u8>,
    count: u8,
    least: i64,
}

impl RowBuilder {
    const fn new(first: u32) -> RowBuilder {
        RowBuilder {
            first,
            row_seq: 0,
            samples: 0,
            full: Vec::new(),
            entries: Vec::new(),
            count: 0,
            least: i64::MAX,
        }
    }

    fn add(&mut self, id: u32, order: Order, samples: u16, least: i64, chunk: &[u8]) {
        let entry = ENTRY_HEAD_BYTES + chunk.len();
        if self.count == u8::MAX || ROW_HEAD_BYTES + self.entries.len() + entry > BODY_BYTES_MAX {
            self.close();
        }
        // A chunk has at most 143 samples and 2.7 kB, and a row 32 series, so none of these is ever
        // truncated.
        self.entries.push(u8::try_from(id - self.first).unwrap_or(u8::MAX));
        self.entries.push(u8::from(order == Order::Late));
        self.entries.extend_from_slice(&samples.to_le_bytes());
        self.entries.extend_from_slice(&u16::try_from(chunk.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.entries.extend_from_slice(chunk);
        self.samples += u64::from(samples);
        self.count += 1;
        self.least = self.least.min(least);
    }

    fn close(&mut self) {
        if self.count > 0 {
            let mut body = Vec::with_capacity(ROW_HEAD_BYTES + self.entries.len());
            body.extend_from_slice(&row_head(self.row_seq, self.first, self.least, self.count));
            body.append(&mut self.entries);
            self.full.push(body);
            (self.count, self.least) = (0, i64::MAX);
        }
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        self.close();
        self.full
    }
}

/// Loads one generation into empty heads, and records its content in `rows`.
///
/// # Errors
/// [`GenerationError`]. The heads then hold a part of it and must be discarded.
pub(in crate::tsdb) fn load(
    folder: &Folder,
    generation: u64,
    stores: &Stores,
    rows: &mut RowSeqs,
    observer: &ProgressObserver,
) -> Result<GenerationInfo, GenerationError> {
    let dir = folder.head.join(generation.to_string());
    let bytes = disk::read_file(&dir.join("DONE"), DONE_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| GenerationError::Done("not text".to_owned()))?;
    let done = GenerationInfo::parse(&text, folder.store).map_err(GenerationError::Done)?;
    if done.generation != generation {
        return Err(GenerationError::Done(format!("it is that of generation {}", done.generation)));
    }
    for (org, noted) in done.registries.iter().filter(|(org, _)| !stores.is_dropped(*org)) {
        let have = stores.org(*org).map_or(0, |store| store.registry().bytes);
        if have < *noted {
            let what = format!("the registry of organisation {org} has {have} valid bytes of {noted}");
            return Err(GenerationError::Done(what));
        }
    }
    let mut joiner = RowJoiner::default();
    let (files, all) = (done.parts.len() as u64, done.parts.iter().map(|(_, part)| part.rows).sum());
    let mut step = OpenStep { phase: Phase::Checkpoint, files, all, ..OpenStep::default() };
    for (name, part) in &done.parts {
        step.file += 1;
        let (rows, joiner) = (&mut *rows, &mut joiner);
        let mut loader = RowLoader { stores, rows, joiner, replay_seq: done.replay_seq };
        read_part(&dir.join(name), part, |key, body| -> Result<(), RowError> {
            step.done += 1;
            observer.report(&step)?;
            Ok(loader.load(key.org, body)?)
        })?;
    }
    joiner.end().map_err(|e| GenerationError::Done(e.to_string()))?;
    for (org, until_ms) in done.barriers.iter().filter(|(org, _)| !stores.is_dropped(*org)) {
        let store = stores.org_or_new(*org);
        // If control knows of a seal after the generation, control's barrier is newer. Barriers may
        // fall, so the later one counts, not the greater one.
        if store.segments().seal_seq <= done.replay_seq {
            store.set_barrier(*until_ms);
        }
    }
    Ok(done)
}

/// Loads the rows of a generation.
struct RowLoader<'l> {
    stores: &'l Stores,
    rows: &'l mut RowSeqs,
    joiner: &'l mut RowJoiner,
    replay_seq: u64,
}

impl RowLoader<'_> {
    fn load(&mut self, org: OrgId, body: &[u8]) -> Result<(), Damage> {
        let RowLoader { stores, rows, joiner, replay_seq } = self;
        let replay_seq = *replay_seq;
        let mut reader = Reader::new(body);
        if stores.is_dropped(org) {
            return Ok(());
        }
        let (row_seq, first, _least) = (reader.u64()?, reader.u32()?, reader.i64()?);
        let store = stores.org(org).ok_or_else(|| reader.damage("an organisation without a registry"))?;
        let table = store.table();
        let chunks = reader.u8()?;
        if chunks == 0 {
            let sealed = store.segments();
            let late_from_ms = if row_seq <= sealed.seal_seq { sealed.sealed_until } else { i64::MIN };
            let (in_order_from_ms, late_from_ms) = match row_seq <= sealed.sealed_all_seq {
                true => (i64::MAX, i64::MAX),
                false => (sealed.sealed_until, late_from_ms),
            };
            // A seal takes every exemplar. Exemplars of older rows are in segments, were deleted
            // since, or are in the log.
            let has_exemplars = sealed.seal_seq >= replay_seq;
            let head = RowHead { org, series: first, row_seq, in_order_from_ms, late_from_ms };
            let to = RowTarget { side: &store.side, knows: &|id| table.knows(id), has_exemplars };
            return joiner.add(head, reader.rest(), to, |id| rows.set_side(org, id, row_seq));
        }
        for _ in 0..chunks {
            let id = first
                .checked_add(u32::from(reader.u8()?))
                .ok_or_else(|| reader.damage("series id over 32 bits"))?;
            let order = match reader.u8()? {
                0 => Order::InOrder,
                1 => Order::Late,
                _ => return Err(reader.damage("unknown order")),
            };
            let (samples, bytes) = (reader.u16()?, reader.u16()?);
            let chunk = reader.take(usize::from(bytes))?;
            if !table.knows(id) {
                return Err(reader.damage("a series that nothing defines"));
            }
            // Samples from before the last seal and before its end are in segments. So are all such
            // samples in chunks in order.
            let sealed = store.segments();
            let in_segments = order == Order::InOrder || row_seq <= sealed.seal_seq;
            let from_ms = match in_segments {
                true if row_seq <= sealed.sealed_all_seq => i64::MAX,
                true => sealed.sealed_until,
                false => i64::MIN,
            };
            store.head.load(id, |stripe| {
                stripe.applied_seq = stripe.applied_seq.max(row_seq);
                stripe.load_chunk(slot(id), order, samples, chunk, from_ms)
            })?;
            rows.set(org, id, row_seq);
        }
        store.head.load(first, |stripe| stripe.shorten_tails(slot(first)));
        reader.end()
    }
}

impl GenerationInfo {
    pub(in crate::tsdb) fn encode(&self, store: StoreId) -> String {
        use std::fmt::Write as _;
        let mut text = format!("promlet head 2\nstore {store}\ngeneration {}\n", self.generation);
        let r = self.replay_seq;
        // Writing to a String cannot fail.
        let _ = write!(text, "replay_seq {r}\nlate_from {r}\n");
        for (org, bytes) in &self.registries {
            let _ = writeln!(text, "registry {org} {bytes}");
        }
        for (org, until_ms) in &self.barriers {
            let _ = writeln!(text, "barrier {org} {until_ms}");
        }
        for (name, part) in &self.parts {
            let _ = write!(text, "part {name} {} {} {:08x}", part.rows, part.bytes, part.crc);
            for key in [part.first_key, part.last_key].into_iter().flatten() {
                let _ = write!(text, " {} {}", key.org, key.row);
            }
            text.push('\n');
        }
        let crc = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc {crc:08x}");
        text
    }

    pub(in crate::tsdb) fn parse(text: &str, store: StoreId) -> Result<GenerationInfo, String> {
        let at = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        let (covered, last) = text.split_at_checked(at).ok_or("cut short")?;
        if last != format!("crc {:08x}\n", crc32c::crc32c(covered.as_bytes())) {
            return Err("checksum differs".to_owned());
        }
        let mut done = GenerationInfo::default();
        for (number, line) in covered.lines().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let wrong = || format!("line {}: {line:?}", number + 1);
            let numeral = |word: &str| word.parse::<u64>().map_err(|_| wrong());
            let small = |word: &str| word.parse::<u32>().map_err(|_| wrong());
            match *words.as_slice() {
                ["promlet", "head", "1" | "2"] if number == 0 => {}
                ["store", id] if id == store.to_string() => {}
                ["generation", n] => done.generation = numeral(n)?,
                ["replay_seq", n] => done.replay_seq = numeral(n)?,
                ["late_from", n] if numeral(n)? == done.replay_seq => {}
                ["registry", org, bytes] => done.registries.push((OrgId(small(org)?), numeral(bytes)?)),
                ["barrier", org, until_ms] => {
                    done.barriers.push((OrgId(small(org)?), until_ms.parse().map_err(|_| wrong())?));
                }
                ["part", name, rows, bytes, crc, first_org, first_row, last_org, last_row]
                    if name.bytes().all(|b| b.is_ascii_digit()) =>
                {
                    let key =
                        |org, row| Ok::<_, String>(HeadKey { org: OrgId(small(org)?), row: small(row)? });
                    let crc = u32::from_str_radix(crc, 16).map_err(|_| wrong())?;
                    let (first_key, last_key) =
                        (Some(key(first_org, first_row)?), Some(key(last_org, last_row)?));
                    let summary = PartSummary {
                        first_key,
                        last_key,
                        rows: numeral(rows)?,
                        bytes: numeral(bytes)?,
                        crc,
                    };
                    done.parts.push((name.to_owned(), summary));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_marker_with_any_changed_byte_is_invalid() {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let at = |name: &str| dir.path().join(name);
        let store = StoreId([0x5a; 16]);
        let folder =
            Folder { head: dir.path().to_owned(), series: at("series"), segments: at("segments"), store };
        assert_eq!(ClosedMarker::read(&folder), None);
        let closed = ClosedMarker { last_seq: 77 };
        closed.write(&folder).expect("written");
        assert_eq!(ClosedMarker::read(&folder), Some(closed));
        let bytes = std::fs::read(at(CLOSED)).expect("read");
        let drawn = b"promlet log closed 1\nstore 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\nlast 77\ncrc ";
        assert!(bytes.starts_with(drawn) && bytes.len() == drawn.len() + 9);
        for place in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[place] ^= 1;
            std::fs::write(at(CLOSED), bad).expect("written");
            assert_eq!(ClosedMarker::read(&folder), None, "byte {place}");
        }
        ClosedMarker::remove(&folder).expect("removed");
        ClosedMarker::remove(&folder).expect("nothing to remove");
    }

    #[test]
    fn done_has_its_golden_text_and_parses_to_itself() {
        let key = |org, row| Some(HeadKey { org: OrgId(org), row });
        let part =
            PartSummary { first_key: key(1, 0), last_key: key(2, 9), rows: 12, bytes: 345, crc: 0xabc };
        let done = GenerationInfo {
            generation: 3,
            replay_seq: 77,
            registries: vec![(OrgId(1), 640), (OrgId(2), 64)],
            barriers: vec![(OrgId(2), -9)],
            parts: vec![("00".to_owned(), part)],
        };
        let store = StoreId([0x5a; 16]);
        let text = done.encode(store);
        let drawn = "promlet head 2\nstore 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\ngeneration 3\nreplay_seq 77\nlate_from 77\n\
                     registry 1 640\nregistry 2 64\nbarrier 2 -9\npart 00 12 345 00000abc 1 0 2 9\ncrc ";
        assert_eq!(text, format!("{drawn}{:08x}\n", crc32c::crc32c(&text.as_bytes()[..text.len() - 13])));
        assert_eq!(GenerationInfo::parse(&text, store), Ok(done.clone()));
        let of_version = |version: u8| {
            let text = drawn.replace("head 2", &format!("head {version}"));
            format!("{text}{:08x}\n", crc32c::crc32c(&text.as_bytes()[..text.len() - 4]))
        };
        assert_eq!(GenerationInfo::parse(&of_version(1), store), Ok(done));
        assert!(GenerationInfo::parse(&of_version(3), store).is_err());
        assert!(GenerationInfo::parse(&text, StoreId([0; 16])).is_err());
        for cut in 0..text.len() {
            assert!(GenerationInfo::parse(&text[..cut], store).is_err(), "cut at {cut}");
        }
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(GenerationInfo::parse(&text, store).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn the_row_has_its_golden_bytes() {
        let mut rows = RowBuilder::new(32);
        rows.row_seq = 5;
        rows.add(33, Order::Late, 2, -1, b"abc");
        let drawn = [
            5, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1, 1, 2, 0, 3, 0,
        ];
        let body = rows.finish().concat();
        assert_eq!(body[..27], drawn);
        assert_eq!(&body[27..], b"abc");
    }

    #[test]
    fn rows_stay_within_the_limit_of_a_body() {
        let mut rows = RowBuilder::new(0);
        for _ in 0..500 {
            rows.add(0, Order::InOrder, 1, 0, &[7; 700]);
            rows.add(0, Order::InOrder, 1, 0, &[7; 3]);
        }
        assert_eq!(rows.samples, 1_000);
        let bodies = rows.finish();
        assert!(bodies.len() > 1 && bodies.iter().all(|body| body.len() <= BODY_BYTES_MAX));
    }
}
