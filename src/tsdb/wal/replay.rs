//! Reading the log back (docs/storage.md section 10, step 7).
//!
//! Records are handed out in order of seq. At the first place that holds no valid record although bytes stand there, or
//! where a seq is skipped, the rest of the log is searched. If a later record says that the missing one was durable,
//! this is **damage**: everything readable is still handed out, and the store must not write. If none does, it is a
//! **torn tail** that was never acknowledged: nothing after it is handed out, and its bytes are cleared before the log
//! goes on.
//!
//! The search trusts nothing that a sender may have written. In files of version 2 a record counts only if it verifies
//! with the file's secret, and a record whose header verifies is passed over as a whole. In files of version 1, whose
//! checksums have no key, the search never looks into the body of a record: it continues where the bad one ends
//! ([`super::record::end_of_bad_plain_record`]). Where that end is only what a header says that may be damaged, the
//! records behind it count only if their numbers continue without a gap up to the end of the data: a record planted in a
//! body repeats the number of the one behind it. Otherwise the rest of the file counts as lost if anything in it looks
//! like a durable record. And no number may be greater than the bytes since the break allow, with [`RECORD_BYTES_MIN`]
//! for each record.
//!
//! A file that its predecessor's switch names, or that stands between two others, and is not there, is damage too.
//! Files whose records all come before the checkpoint are looked at, not read: header, length, first record.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::file::{self, LogFile};
use super::log::FullFile;
use super::pieces::Pieces;
use super::record::{
    BadEnd, BadHeader, FileHeader, Found, Header, Kind, Layout, MAGIC_WAL, Mark, OrgSpan, RECORD_BYTES_MIN,
    parse_switch,
};
use super::samples;
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::ops;
use crate::model::{OrgId, StoreId};
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::side_data;

/// A log file at most, when reading.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A torn tail is one group: 1 MiB, or one record. More bytes than this after the break are no torn tail.
const TORN_BYTES_MAX: u64 = 4 << 20;

/// Where the log begins: noted durably before anything before it is unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Begin {
    /// Number of the first file.
    pub(in crate::tsdb) file: u64,
    /// Its first record.
    pub(in crate::tsdb) seq: u64,
}

impl Default for Begin {
    fn default() -> Begin {
        Begin { file: 1, seq: 1 }
    }
}

/// What is wrong with a log beyond a torn tail.
#[derive(Debug)]
pub(in crate::tsdb) struct LogDamage {
    /// The files to keep a copy of.
    pub(in crate::tsdb) files: Vec<PathBuf>,
    /// Where in the first of them, if known.
    pub(in crate::tsdb) offset: Option<u64>,
    /// For the operator.
    pub(in crate::tsdb) text: String,
}

/// The last file, and where in it the log goes on.
#[derive(Debug)]
pub(in crate::tsdb) struct Tail {
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) header: FileHeader,
    pub(in crate::tsdb) offset: u64,
    /// Bytes after it that were written and never acknowledged.
    pub(in crate::tsdb) torn_bytes: u64,
    /// Of a file that has no record yet: the file before, which ended with a switch to it.
    pub(in crate::tsdb) before: Option<PathBuf>,
}

/// How the log ended.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct LogEnd {
    pub(in crate::tsdb) files: u64,
    pub(in crate::tsdb) file_bytes: u64,
    pub(in crate::tsdb) records: u64,
    pub(in crate::tsdb) last_seq: u64,
    /// The last file with records, or the only one. None: there is no file.
    pub(in crate::tsdb) tail: Option<Tail>,
    /// Files after it that hold no record: spares.
    pub(in crate::tsdb) spares: Vec<PathBuf>,
    /// Files before it, as far as their beginnings can be read.
    pub(in crate::tsdb) full: Vec<FullFile>,
    /// The first record of the tail's file; without one, the next.
    pub(in crate::tsdb) first_seq: u64,
    /// Files from before the log's beginning: what was left of a trimming.
    pub(in crate::tsdb) trimmed: Vec<PathBuf>,
    pub(in crate::tsdb) damage: Option<LogDamage>,
}

/// How far the reading is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct Place {
    /// The file at hand, from 1.
    pub(in crate::tsdb) file: u64,
    pub(in crate::tsdb) files: u64,
    /// Bytes done, and of how many; files that are only looked at are not counted.
    pub(in crate::tsdb) bytes: u64,
    pub(in crate::tsdb) bytes_all: u64,
    pub(in crate::tsdb) records: u64,
}

/// Takes each record; an error ends the reading.
pub(in crate::tsdb) type OnRecord<'a> = &'a mut dyn FnMut(&Header, &[u8], &Place) -> Result<(), OpenError>;

/// A record found after a break: file, place.
struct Later {
    path: PathBuf,
    offset: u64,
}

/// Hands out every record after `from_seq`.
///
/// Files whose records all come before are looked at and not read: what they hold is in the checkpoint.
///
/// # Errors
/// [`OpenError`] where a file cannot be read, is another store's or a newer version's, and what `on_record` says.
/// Damage is not an error.
pub(in crate::tsdb) fn replay(
    dir: &Path,
    store: StoreId,
    begin: Begin,
    from_seq: u64,
    on_record: OnRecord<'_>,
) -> Result<LogEnd, OpenError> {
    let from_seq = from_seq.max(begin.seq.saturating_sub(1));
    let end = LogEnd::default();
    let place = Place::default();
    let (memory, expected, next_file, broken) = (Vec::new(), None, None, None);
    let mut walk = Walk {
        dir,
        store,
        begin,
        from_seq,
        on_record,
        end,
        place,
        memory,
        expected,
        next_file,
        broken,
        passed: 0,
        data_end: 0,
    };
    walk.files()?;
    Ok(walk.end)
}

struct Walk<'a> {
    dir: &'a Path,
    store: StoreId,
    begin: Begin,
    from_seq: u64,
    on_record: OnRecord<'a>,
    end: LogEnd,
    place: Place,
    /// For the pieces of files.
    memory: Vec<u8>,
    /// The next seq; none before the first record.
    expected: Option<u64>,
    /// The file that the last switch names.
    next_file: Option<u64>,
    broken: Option<Break>,
    /// Bytes of the files before the one at hand, with those that are missing.
    passed: u64,
    /// Where the last record ended, or where the log begins; counted as `passed` is.
    data_end: u64,
}

/// Where the unbroken log ends.
struct Break {
    /// The seq that is missing there.
    seq: u64,
    path: PathBuf,
    offset: u64,
    what: &'static str,
    /// A later record was durable after the missing one was.
    vouched: bool,
    /// Where the last record before it ended, counted as [`Walk::passed`] is.
    data_end: u64,
    /// Whether the file it is in was searched.
    searched: bool,
    /// The valid records since.
    later: Vec<Later>,
}

/// Records of a file of version 1 behind a bad one whose end is not certain: they count once their numbers continue
/// without a gap up to the end of the data.
struct Doubt {
    /// Where the bad record begins.
    offset: u64,
    /// How many records had been found before it, and whether one of them had vouched.
    later: usize,
    vouched: bool,
    /// There is a record behind it.
    has_record: bool,
}

impl Break {
    /// The greatest number that a record at this place may have, counted as [`Walk::passed`] is.
    const fn greatest_seq_at(&self, place: u64) -> u64 {
        self.seq.saturating_add(place.saturating_sub(self.data_end) / RECORD_BYTES_MIN)
    }

    /// Remembers the state before a bad record whose end is not certain.
    fn doubt(&self, offset: u64) -> Doubt {
        Doubt { offset, later: self.later.len(), vouched: self.vouched, has_record: false }
    }

    /// Takes what the header of a later record says of the missing one. `first`: both are in one file.
    fn note(&mut self, found: &Header, first: bool) {
        self.vouched |= found.vouches_to().is_some_and(|durable| durable >= self.seq);
        // The next file is begun only when everything before it is durable.
        self.vouched |= !first;
    }

    /// The rest of a file of version 1, from where nothing in it can be told from what senders wrote: it is damage if
    /// anything there looks like a record that was durable after the missing one, and none of it is handed out.
    fn note_unsearched(
        &mut self,
        pieces: &mut Pieces,
        passed: u64,
        from: u64,
        first: bool,
    ) -> Result<(), DiskError> {
        let mut offset = from;
        while offset < pieces.length() && !self.vouched {
            let may_have = self.seq..=self.greatest_seq_at(passed.saturating_add(offset));
            let possible = pieces
                .plain_header(offset)?
                .filter(|header| header.kind.is_some() && may_have.contains(&header.seq));
            if possible.is_some()
                && let Found::Record(found, ..) = pieces.record(offset)?
            {
                self.note(&found, first);
            }
            offset += 8;
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn files(&mut self) -> Result<(), OpenError> {
        let mut files = Vec::new();
        let names = if self.dir.is_dir() { disk::names(self.dir)? } else { Vec::new() };
        for name in names {
            if let Some(number) = file::number_of(&name) {
                files.push((number, self.dir.join(name)));
            }
        }
        files.sort_unstable();
        let kept = files.partition_point(|(number, _)| *number < self.begin.file);
        self.end.trimmed = files.drain(..kept).map(|(_, path)| path).collect();
        let starts = files.iter().map(|(_, path)| FileStart::read(path)).collect::<Result<Vec<_>, _>>()?;
        // Of the first files those are skipped behind which another begins that still comes in time.
        let in_time = |start: &&FileStart| start.first_seq.is_some_and(|first| first <= self.from_seq + 1);
        let skipped = starts.iter().skip(1).take_while(in_time).count();
        if files.first().is_some_and(|(number, _)| *number == self.begin.file) {
            // A file that was left for before its first record came: the numbers go on where the log begins.
            self.end.last_seq = self.begin.seq.saturating_sub(1);
        }
        self.place.files = files.len() as u64;
        for (_, path) in files.iter().skip(skipped) {
            self.place.bytes_all += std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
        }
        let mut bytes_before = 0;
        let mut before: Option<u64> = self.begin.file.checked_sub(1);
        for (place, (number, path)) in files.iter().enumerate() {
            self.end.files += 1;
            self.place.file = self.end.files;
            let bytes = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
            self.end.file_bytes += bytes;
            if let Some(before) = before.filter(|before| before + 1 != *number) {
                let missing = file::path_of(self.dir, before + 1);
                let text = match number - before - 1 {
                    1 => format!("log file {} is missing", missing.display()),
                    more => format!("{more} log files are missing from {} on", missing.display()),
                };
                self.passed =
                    self.passed.saturating_add((number - before - 1).saturating_mul(FILE_BYTES_MAX));
                self.note_damage(path, text);
            }
            before = Some(*number);
            if let (Some(start), Some(next)) = (starts.get(place), starts.get(place + 1)) {
                self.end.full.extend(start.full(*number, path, bytes, next));
            }
            if place < skipped {
                self.look_at(*number, path)?;
            } else {
                self.place.bytes = bytes_before;
                bytes_before += bytes;
                let mut pieces = Pieces::open(path, FILE_BYTES_MAX, std::mem::take(&mut self.memory))?;
                self.file(*number, path, &mut pieces)?;
                self.memory = pieces.into_memory();
            }
            self.passed = self.passed.saturating_add(capacity(path, bytes)?);
        }
        self.judge_break()?;
        self.judge_end(before);
        let tail = self.end.tail.as_ref().map_or(0, |tail| tail.header.number);
        self.end.full.retain(|file| file.number < tail);
        self.end.full.extend(self.left_for_an_empty_file(&files)?);
        let place = files.iter().position(|(number, _)| *number == tail);
        let first = place.and_then(|place| starts.get(place)?.first_seq);
        self.end.first_seq = first.unwrap_or(self.end.last_seq.saturating_add(1));
        Ok(())
    }

    /// A file's header; what is wrong with it is noted, and whose it is not is an error.
    fn header(&mut self, number: u64, path: &Path, content: &[u8]) -> Result<FileHeader, OpenError> {
        let foreign = |what: &str| OpenError::Foreign { path: path.to_owned(), what: what.to_owned() };
        match FileHeader::parse(content, MAGIC_WAL) {
            Ok(header) if header.store != self.store => Err(foreign("a log file of another store")),
            Ok(header) if header.number != number => {
                self.note_damage(path, format!("{} is log file {}", path.display(), header.number));
                Ok(header)
            }
            Ok(header) if header.layout == Layout::Lost => {
                self.note_damage(path, format!("{}: the secret of its records is damaged", path.display()));
                Ok(header)
            }
            Ok(header) => Ok(header),
            Err(BadHeader::Newer) => Err(foreign("written by a newer version")),
            Err(BadHeader::Damaged(what)) => {
                self.note_damage_at(path, 0, format!("{}: {what}", path.display()));
                let layout = Layout::of(content, number);
                Ok(FileHeader { file_bytes: 0, store: self.store, number, created_ms: 0, before: 0, layout })
            }
        }
    }

    /// A file that the checkpoint covers: it has to be there and whole in its outlines, for the checkpoint is a copy.
    fn look_at(&mut self, number: u64, path: &Path) -> Result<(), OpenError> {
        let start = read_start(path)?;
        self.header(number, path, &start)?;
        if let Some(text) = cut_short(path)? {
            self.note_damage(path, text);
        }
        let layout = Layout::of(&start, number);
        let at = layout.first_record();
        let what = match layout.find(start.get(at..).unwrap_or_default()) {
            Found::Record(..) => return Ok(()),
            Found::Unreadable(..) => UNREADABLE,
            Found::Bad(what) => what,
            Found::End => "there is no record, though later files have some",
        };
        let text = format!("log damaged at byte {at} of {} ({what})", path.display());
        self.note_damage_at(path, at as u64, text);
        Ok(())
    }

    fn file(&mut self, number: u64, path: &Path, pieces: &mut Pieces) -> Result<(), OpenError> {
        let header = self.header(number, path, pieces.header()?)?;
        let goes_on = self.next_file == Some(number);
        let records_before = self.end.records;
        let mut offset = pieces.first_record();
        while self.broken.is_none() {
            match pieces.record(offset)? {
                Found::Record(found, body, bytes) if self.fits(&found) => {
                    offset += bytes as u64;
                    self.place.bytes += bytes as u64;
                    self.data_end = self.passed.saturating_add(offset);
                    self.hand_out(&found, body, path)?;
                }
                Found::Record(..) => self.break_at(path, offset, "records are missing before it"),
                Found::Unreadable(..) => self.break_at(path, offset, UNREADABLE),
                Found::Bad(what) => self.break_at(path, offset, what),
                Found::End => {
                    if pieces.written_from(offset)? > offset {
                        self.break_at(path, offset, "bytes after the end of data");
                    }
                    break;
                }
            }
        }
        let had_records = self.end.records > records_before;
        if self.broken.is_some() {
            self.search(path, offset, header, pieces)?;
        } else if had_records || goes_on || self.end.tail.is_none() {
            let before = self.end.tail.take().map(|tail| tail.path).filter(|_| !had_records);
            self.end.tail = Some(Tail { path: path.to_owned(), header, offset, torn_bytes: 0, before });
        } else {
            self.end.spares.push(path.to_owned());
        }
        Ok(())
    }

    /// Whether this record is the next one.
    fn fits(&self, found: &Header) -> bool {
        match self.expected {
            Some(expected) => found.seq == expected,
            // The first record that is read: everything before it is in the checkpoint, or was never written.
            None => found.seq > 0 && found.seq <= self.from_seq.saturating_add(1),
        }
    }

    fn hand_out(&mut self, found: &Header, body: &[u8], path: &Path) -> Result<(), OpenError> {
        if found.kind.is_none() {
            let what = format!("record {} was written by a newer version", found.seq);
            return Err(OpenError::Foreign { path: path.to_owned(), what });
        }
        self.end.records += 1;
        self.end.last_seq = found.seq;
        self.expected = Some(found.seq.saturating_add(1));
        if found.kind == Some(Kind::Switch) {
            match parse_switch(body) {
                Ok(next) => self.next_file = Some(next),
                Err(e) => self.note_damage(path, format!("{}: switch {}: {e}", path.display(), found.seq)),
            }
        }
        if found.seq > self.from_seq {
            self.place.records = self.end.records;
            (self.on_record)(found, body, &self.place)?;
        }
        Ok(())
    }

    fn break_at(&mut self, path: &Path, offset: u64, what: &'static str) {
        let seq = self.expected.unwrap_or(self.begin.seq);
        let path = path.to_owned();
        self.broken = Some(Break {
            seq,
            path,
            offset,
            what,
            vouched: false,
            data_end: self.data_end,
            searched: false,
            later: Vec::new(),
        });
    }

    /// Notes every valid record after the break in this file.
    fn search(
        &mut self,
        path: &Path,
        from: u64,
        header: FileHeader,
        pieces: &mut Pieces,
    ) -> Result<(), OpenError> {
        let (passed, is_plain) = (self.passed, pieces.layout() == Layout::Plain);
        let Some(broken) = &mut self.broken else { return Ok(()) };
        let first = !std::mem::replace(&mut broken.searched, true);
        let mut offset = if first { from } else { pieces.first_record() };
        let seen_before = broken.later.len();
        // In a file of version 1: the number that the record at `offset` should have.
        let mut here = first.then_some(broken.seq);
        let mut doubt: Option<Doubt> = None;
        while offset < pieces.length() {
            let may_have = broken.seq..=broken.greatest_seq_at(passed.saturating_add(offset));
            match pieces.record(offset)? {
                Found::Record(found, _, bytes)
                    if may_have.contains(&found.seq) && (doubt.is_none() || here == Some(found.seq)) =>
                {
                    if let Some(doubt) = &mut doubt {
                        doubt.has_record = true;
                    }
                    broken.note(&found, first);
                    broken.later.push(Later { path: path.to_owned(), offset });
                    offset += bytes as u64;
                    here = Some(found.seq.saturating_add(1));
                }
                // Its header verified: it ends there, whatever its body contains.
                Found::Unreadable(found, bytes) => {
                    if may_have.contains(&found.seq) {
                        broken.note(&found, first);
                    }
                    offset += bytes as u64;
                }
                found if is_plain => {
                    let is_end = found == Found::End;
                    let whole = if let Found::Record(_, _, bytes) = found { Some(bytes) } else { None };
                    if is_end
                        && doubt.as_ref().is_some_and(|doubt| doubt.has_record)
                        && pieces.written_from(offset)? == offset
                    {
                        doubt = None;
                        break;
                    }
                    let end = match (whole, here) {
                        (Some(bytes), None) => Some(BadEnd { bytes, is_certain: true }),
                        // A number out of its turn where the place is in doubt.
                        (Some(_), Some(_)) if doubt.is_some() => None,
                        (_, Some(seq)) => pieces.end_of_bad_record(offset, seq)?,
                        (None, None) => None,
                    };
                    let Some(end) = end else {
                        if doubt.is_none() {
                            broken.note_unsearched(pieces, passed, offset, first)?;
                        }
                        break;
                    };
                    if !end.is_certain && doubt.is_none() {
                        doubt = Some(broken.doubt(offset));
                    }
                    here = here.map(|seq| seq.saturating_add(1));
                    offset += end.bytes as u64;
                }
                // Of another time, but certainly a record: nothing in it is looked at. One whose number is too great is not
                // applied, and no crash leaves it.
                Found::Record(found, _, bytes) => {
                    if found.seq > broken.seq {
                        broken.vouched = true;
                    }
                    offset += bytes as u64;
                }
                Found::Bad(_) | Found::End => offset += 8,
            }
        }
        // A file that records fill to its last byte has no other end.
        if let Some(doubt) = doubt.filter(|doubt| !doubt.has_record || offset < pieces.length()) {
            broken.later.truncate(doubt.later);
            broken.vouched = doubt.vouched;
            broken.note_unsearched(pieces, passed, doubt.offset, first)?;
        }
        if first {
            let torn_bytes = pieces.written_from(from)? - from;
            if torn_bytes > TORN_BYTES_MAX {
                broken.vouched = true;
            }
            let before = self.end.tail.take().map(|tail| tail.path);
            let before = before.filter(|_| from <= pieces.first_record());
            self.end.tail = Some(Tail { path: path.to_owned(), header, offset: from, torn_bytes, before });
        } else if broken.later.len() == seen_before {
            self.end.spares.push(path.to_owned());
        }
        Ok(())
    }

    /// The file before the tail where the tail has no record yet, so that nothing in it tells of that file.
    fn left_for_an_empty_file(&self, files: &[(u64, PathBuf)]) -> Result<Option<FullFile>, DiskError> {
        let Some(path) = self.end.tail.as_ref().and_then(|tail| tail.before.as_ref()) else {
            return Ok(None);
        };
        let Some((number, _)) = files.iter().find(|(_, have)| have == path) else { return Ok(None) };
        let first_seq = FileStart::read(path)?.first_seq;
        let spans = spans_of_file(path)?;
        let bytes = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
        Ok(first_seq.map(|first_seq| FullFile {
            number: *number,
            path: path.clone(),
            bytes,
            first_seq,
            last_seq: self.end.last_seq,
            spans: Some(spans.into_values().collect()),
        }))
    }

    /// Decides whether the newest file is the last one that there was.
    fn judge_end(&mut self, newest: Option<u64>) {
        if let (Some(next), Some(newest)) = (self.next_file, newest)
            && next > newest
        {
            let from = self.end.last_seq.saturating_add(1);
            let text = format!(
                "log file {next} is missing, as the end of log file {newest} says: records from {from} on are lost"
            );
            let path = file::path_of(self.dir, newest);
            self.note_damage(&path, text);
        }
    }

    /// Decides what a break was.
    fn judge_break(&mut self) -> Result<(), OpenError> {
        let Some(broken) = self.broken.take() else { return Ok(()) };
        if !broken.vouched {
            return Ok(());
        }
        let (mut missing, mut next) = (Vec::new(), broken.seq);
        let mut open: Option<(&Path, Pieces)> = None;
        for later in &broken.later {
            let pieces = match open.take() {
                Some((path, pieces)) if path == later.path => pieces,
                other => {
                    let memory = other.map_or_else(Vec::new, |(_, pieces)| pieces.into_memory());
                    Pieces::open(&later.path, FILE_BYTES_MAX, memory)?
                }
            };
            let (_, pieces) = open.insert((&later.path, pieces));
            if let Found::Record(found, body, _) = pieces.record(later.offset)?
                && found.seq >= next
            {
                if found.seq > next {
                    missing.push(format!("{next}-{}", found.seq - 1));
                }
                next = found.seq.saturating_add(1);
                self.hand_out(&found, body, &broken.path)?;
            }
        }
        let records = if missing.is_empty() { "none of them lost".to_owned() } else { missing.join(", ") };
        let text = format!(
            "log damaged at byte {} of {} ({}): records {records} unreadable",
            broken.offset,
            broken.path.display(),
            broken.what
        );
        self.note_damage_at(&broken.path, broken.offset, text);
        Ok(())
    }

    fn note_damage(&mut self, path: &Path, text: String) {
        match &mut self.end.damage {
            Some(damage) => {
                damage.text = format!("{}; {text}", damage.text);
                damage.files.push(path.to_owned());
            }
            none => *none = Some(LogDamage { files: vec![path.to_owned()], offset: None, text }),
        }
    }

    /// As [`Walk::note_damage`], with the place in the file.
    fn note_damage_at(&mut self, path: &Path, offset: u64, text: String) {
        self.note_damage(path, text);
        if let Some(damage) = self.end.damage.as_mut().filter(|damage| damage.files.len() == 1) {
            damage.offset = Some(offset);
        }
    }
}

/// What is wrong with a record whose header verifies.
const UNREADABLE: &str = "record body differs from its checksum";

/// Bytes that a file had room for, by its header or by its length; the most that a file has where its header is damaged.
fn capacity(path: &Path, length: u64) -> Result<u64, DiskError> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    file.take(64).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    let bytes = FileHeader::parse(&start, MAGIC_WAL).map(|header| u64::from(header.file_bytes));
    Ok(length.max(bytes.unwrap_or(FILE_BYTES_MAX)))
}

/// The header and the first record, which is a mark of at most 0.35 MB.
fn read_start(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    let mut start = Vec::new();
    let some = KEYED_FILE_HEADER_BYTES as u64 + 4_096;
    (&file).take(some).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    let layout = Layout::of(&start, number_in(path));
    let rest = start.get(layout.first_record()..).unwrap_or_default();
    let whole = layout.promised_bytes(rest);
    if whole > rest.len() && whole <= 400 << 10 {
        start.resize(layout.first_record() + whole, 0);
        match file.read_exact_at(&mut start, 0) {
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(DiskError::at("read", path)(e));
            }
            _ => {}
        }
    }
    Ok(start)
}

/// The number in the name of a log file.
fn number_in(path: &Path) -> u64 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    file::number_of(&name).unwrap_or_default()
}

/// What the first record of a file says.
struct FileStart {
    first_seq: Option<u64>,
    /// About the file before; empty where it says nothing.
    spans: Vec<OrgSpan>,
}

impl FileStart {
    /// Reads the first record alone; one that cannot be read is looked at with its file.
    fn read(path: &Path) -> Result<FileStart, DiskError> {
        let start = read_start(path)?;
        let layout = Layout::of(&start, number_in(path));
        Ok(match layout.find(start.get(layout.first_record()..).unwrap_or_default()) {
            Found::Record(header, body, _) => {
                let mark = (header.kind == Some(Kind::Mark)).then(|| Mark::parse(body).ok()).flatten();
                let spans = mark.map(|mark| mark.orgs).unwrap_or_default();
                FileStart { first_seq: Some(header.seq), spans }
            }
            _ => FileStart { first_seq: None, spans: Vec::new() },
        })
    }

    /// The file that this is the start of, told by the start of the `next` one.
    fn full(&self, number: u64, path: &Path, bytes: u64, next: &FileStart) -> Option<FullFile> {
        Some(FullFile {
            number,
            path: path.to_owned(),
            bytes,
            first_seq: self.first_seq?,
            last_seq: next.first_seq?.checked_sub(1)?,
            spans: (!next.spans.is_empty()).then(|| next.spans.clone()),
        })
    }
}

/// What a file's records hold of each organisation, for the first mark of the next file.
pub(in crate::tsdb) fn spans_of_file(path: &Path) -> Result<BTreeMap<OrgId, OrgSpan>, DiskError> {
    let mut pieces = Pieces::open(path, FILE_BYTES_MAX, Vec::new())?;
    let mut spans = BTreeMap::new();
    let mut scratch = Vec::new();
    let mut offset = pieces.first_record();
    while let Found::Record(header, body, bytes) = pieces.record(offset)? {
        offset += bytes as u64;
        let org = header.org;
        if matches!(header.kind, Some(Kind::Mark | Kind::Switch)) {
            continue;
        }
        let span = spans.entry(org).or_insert(OrgSpan { org, greatest_ms: i64::MIN, last_seq: 0 });
        span.last_seq = header.seq;
        let beside = header.kind.map_or(i64::MIN, |kind| side_data::record::greatest_ms(kind, body));
        span.greatest_ms = span.greatest_ms.max(beside);
        if let Some(kind) = header.kind.filter(|kind| kind.is_samples())
            && samples::decode(kind, body, &mut scratch).is_ok()
        {
            let greatest = scratch.iter().map(|sample| sample.at_ms).max();
            span.greatest_ms = span.greatest_ms.max(greatest.unwrap_or(i64::MIN));
        }
    }
    Ok(spans)
}

/// What to tell about a file that is shorter than its header says.
///
/// All bytes of a log file are durable before its first record: no crash makes it shorter, so records may be gone.
pub(in crate::tsdb) fn cut_short(path: &Path) -> Result<Option<String>, DiskError> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    let length = file.metadata().map_err(DiskError::at("look at", path))?.len();
    file.take(KEYED_FILE_HEADER_BYTES as u64).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    Ok(match FileHeader::parse(&start, MAGIC_WAL) {
        Ok(header) if length < u64::from(header.file_bytes) => Some(format!(
            "{} has {length} bytes of {}: records behind byte {length} may be lost",
            path.display(),
            header.file_bytes
        )),
        // Whatever else is wrong with a header is told where its records are read.
        _ => None,
    })
}

/// Clears a torn tail and opens the file for more records.
pub(in crate::tsdb) fn resume(tail: &Tail) -> Result<LogFile, DiskError> {
    let file = disk::open_file(&tail.path)?;
    if tail.torn_bytes > 0 {
        disk::write_zeros(&file, &tail.path, tail.offset, tail.torn_bytes)
            .map_err(DiskError::at("clear the torn tail of", &tail.path))?;
    }
    let FileHeader { number, file_bytes: bytes, layout, .. } = tail.header;
    if tail.torn_bytes > 0 || tail.offset > layout.first_record() as u64 {
        // A killed process may have left records that only the page cache has. From here on they count as durable.
        ops::sync_all(&file, &tail.path).map_err(DiskError::at("sync", &tail.path))?;
    }
    Ok(LogFile { file, path: tail.path.clone(), number, bytes, layout })
}
