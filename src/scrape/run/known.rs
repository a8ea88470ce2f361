//! The series of a target's last scrapes: their final labels, and which of them get a marker
//! when they disappear.
//!
//! A series is known by the hash of its labels as the target sends them. While a target sends the
//! same series in the same order, a scrape only compares hashes. Final labels are compressed,
//! because only markers and scrapes without a template need them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The most bytes of final labels that are kept for markers, inclusive. Series beyond get none.
const MARKER_BYTES_MAX: usize = 256 << 20;
/// The level of compression.
const LEVEL: i32 = 1;

/// The labels of a series after relabelling, compared with those that the target sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownFate {
    /// The target's labels were added, and nothing else changed.
    Plain,
    /// The final labels begin here in the list of changed labels.
    Changed(u32),
    /// Relabelling dropped it.
    Dropped,
}

/// A series of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownOne {
    /// The hash of its labels as sent.
    pub(super) hash: u64,
    pub(super) fate: KnownFate,
    /// Whether it gets a marker when it disappears.
    pub(super) is_tracked: bool,
    /// Whether its samples are native histograms.
    pub(super) is_histogram: bool,
    /// Whether a series before it in the scrape has the same labels.
    pub(super) is_repeated: bool,
}

/// The series of a target.
#[derive(Debug)]
pub(super) struct KnownSeries {
    secrets: RapidSecrets,
    /// The series of the last scrape that succeeded, in order.
    all: Vec<KnownOne>,
    /// The labels of changed series.
    changed: CompressedRecords,
    /// The final labels of the live, tracked and not dropped series.
    finals: CompressedRecords,
    /// Whether all live series have their markers already: the last scrape failed.
    is_marked: bool,
}

/// Records, each after its length, in one compressed text.
#[derive(Debug, Default)]
struct CompressedRecords {
    compressed: Vec<u8>,
    /// The bytes of all records.
    bytes: usize,
}

impl CompressedRecords {
    /// Compression of bytes in memory fails only without memory. Then there are no records.
    fn of(records: &[u8]) -> CompressedRecords {
        if records.is_empty() {
            return CompressedRecords::default();
        }
        let mut compressed = zstd::bulk::compress(records, LEVEL).unwrap_or_default();
        compressed.shrink_to_fit();
        CompressedRecords { compressed, bytes: records.len() }
    }

    fn records(&self) -> Vec<u8> {
        match self.bytes {
            0 => Vec::new(),
            bytes => zstd::bulk::decompress(&self.compressed, bytes).unwrap_or_default(),
        }
    }
}

/// The labels of changed series.
#[derive(Debug)]
pub(super) struct ChangedLabels(Vec<u8>);

impl ChangedLabels {
    /// Returns the final labels of a changed series.
    pub(super) fn at(&self, at: u32) -> &[u8] {
        record_at(&self.0, at)
    }
}

/// A series of a scrape in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenOne {
    pub(super) hash: u64,
    pub(super) is_tracked: bool,
    pub(super) is_histogram: bool,
}

/// The series of a scrape with changes, while they are collected.
#[derive(Debug)]
pub(super) struct KnownChange {
    /// The place in `all` by hash, of series before and of this scrape.
    places: HashMap<u64, KnownPlace>,
    all: Vec<KnownOne>,
    /// The labels of changed series of the last scrape, and of this one.
    changed_before: ChangedLabels,
    changed: Vec<u8>,
    finals: Vec<u8>,
    pub(super) added: u64,
}

#[derive(Clone, Copy, Debug)]
enum KnownPlace {
    Before(usize),
    Now(usize),
}

/// The result of looking up a series of a scrape whose series changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recall {
    /// The series is new and must be relabelled.
    New,
    /// The series was in the last scrape.
    Known(KnownFate),
    /// The series occurred before in this scrape.
    Repeated(KnownFate),
}

impl KnownSeries {
    pub(super) fn new(seed: u64) -> KnownSeries {
        KnownSeries {
            secrets: RapidSecrets::seed(seed),
            all: Vec::new(),
            changed: CompressedRecords::default(),
            finals: CompressedRecords::default(),
            is_marked: false,
        }
    }

    /// Returns the hash of labels as sent, or of another text of the target.
    pub(super) fn hash(&self, raw: &[u8]) -> u64 {
        rapidhash_v3_seeded(raw, &self.secrets)
    }

    /// Returns the series if a scrape has the same ones as the last, in the same order.
    pub(super) fn unchanged(&self, seen: &[SeenOne]) -> Option<&[KnownOne]> {
        let is_same = self.all.len() == seen.len()
            && self.all.iter().zip(seen).all(|(known, seen)| {
                known.hash == seen.hash
                    && known.is_tracked == seen.is_tracked
                    && known.is_histogram == seen.is_histogram
            });
        is_same.then_some(&*self.all)
    }

    /// Returns the series of the last scrape that succeeded, in order.
    pub(super) fn all(&self) -> &[KnownOne] {
        &self.all
    }

    /// Records a scrape for which [`KnownSeries::unchanged`] returned the series.
    pub(super) fn keep(&mut self) {
        self.is_marked = false;
    }

    /// Returns the final labels of all changed series.
    pub(super) fn changed_labels(&self) -> ChangedLabels {
        ChangedLabels(self.changed.records())
    }

    /// Begins a scrape with changes. Nothing changes until [`KnownSeries::replace`].
    pub(super) fn change(&self, series: usize) -> KnownChange {
        let places = self.all.iter().enumerate();
        let mut by_hash = HashMap::with_capacity(self.all.len().max(series));
        for (place, one) in places.filter(|(_, one)| !one.is_repeated) {
            by_hash.insert(one.hash, KnownPlace::Before(place));
        }
        KnownChange {
            places: by_hash,
            all: Vec::with_capacity(series),
            changed_before: self.changed_labels(),
            changed: Vec::new(),
            finals: Vec::new(),
            added: 0,
        }
    }

    /// Looks up the next series of a scrape, and records it with the labels that were found.
    pub(super) fn recall(&self, change: &mut KnownChange, seen: SeenOne) -> Recall {
        let now = KnownPlace::Now(change.all.len());
        let (recall, is_repeated) = match change.places.entry(seen.hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(now);
                (Recall::New, false)
            }
            Entry::Occupied(mut occupied) => match *occupied.get() {
                KnownPlace::Before(place) => {
                    occupied.insert(now);
                    let fate = self.all.get(place).map_or(KnownFate::Dropped, |one| one.fate);
                    let fate = match fate {
                        KnownFate::Changed(at) => {
                            let labels = change.changed_before.at(at);
                            KnownFate::Changed(put_record(&mut change.changed, labels))
                        }
                        fate => fate,
                    };
                    (Recall::Known(fate), false)
                }
                KnownPlace::Now(place) => {
                    let fate = change.all.get(place).map_or(KnownFate::Dropped, |one| one.fate);
                    (Recall::Repeated(fate), true)
                }
            },
        };
        let fate = match recall {
            Recall::New => KnownFate::Dropped,
            Recall::Known(fate) | Recall::Repeated(fate) => fate,
        };
        let SeenOne { hash, is_tracked, is_histogram } = seen;
        change.all.push(KnownOne { hash, fate, is_tracked, is_histogram, is_repeated });
        recall
    }

    /// Ends a scrape with changes. Calls `mark` with the final labels of each series that had no
    /// marker and is not tracked any more, and whether it was one of native histograms. Series of
    /// other lines that have the same final labels now count as well.
    pub(super) fn replace(&mut self, change: KnownChange, mut mark: impl FnMut(&[u8], bool)) {
        let KnownChange { places, mut all, changed, finals, .. } = change;
        let is_gone = |one: &KnownOne| match places.get(&one.hash) {
            Some(KnownPlace::Now(place)) => !all.get(*place).is_some_and(|now| now.is_tracked),
            Some(KnownPlace::Before(_)) | None => true,
        };
        if !self.is_marked {
            let mut present = None;
            self.for_each_final(is_gone, |labels, is_histogram| {
                let present = present.get_or_insert_with(|| keys_of(&finals));
                if !present.contains(&labels_key(labels)) {
                    mark(labels, is_histogram);
                }
            });
        }
        all.shrink_to_fit();
        self.all = all;
        self.changed = CompressedRecords::of(&changed);
        self.finals = CompressedRecords::of(&finals);
        self.is_marked = false;
    }

    /// Records a failed scrape: calls `mark` with the final labels of all series that have no
    /// marker yet.
    pub(super) fn fail(&mut self, mark: impl FnMut(&[u8], bool)) {
        if !self.is_marked {
            self.for_each_final(|_| true, mark);
        }
        self.is_marked = true;
    }

    /// Calls `each` with the final labels of the tracked series that `filter` selects.
    fn for_each_final(&self, filter: impl Fn(&KnownOne) -> bool, mut each: impl FnMut(&[u8], bool)) {
        let has_final = |one: &&KnownOne| one.has_final();
        if !self.all.iter().filter(has_final).any(&filter) {
            return;
        }
        let finals = self.finals.records();
        let mut at = 0;
        for one in self.all.iter().filter(has_final) {
            let Some(record) = next_record(&finals, &mut at) else { return };
            if filter(one) {
                each(record, one.is_histogram);
            }
        }
    }
}

impl KnownOne {
    fn has_final(&self) -> bool {
        self.is_tracked && !self.is_repeated && self.fate != KnownFate::Dropped
    }
}

impl KnownChange {
    /// Records the result of relabelling the series of the last call of [`KnownSeries::recall`].
    pub(super) fn set(&mut self, fate: KnownFate) {
        if let Some(last) = self.all.last_mut() {
            last.fate = fate;
        }
        self.added += u64::from(fate != KnownFate::Dropped);
    }

    /// Stores the final labels of a changed series, and returns where they begin.
    pub(super) fn changed(&mut self, labels: &[u8]) -> KnownFate {
        KnownFate::Changed(put_record(&mut self.changed, labels))
    }

    /// Returns the final labels of a changed series of this scrape.
    pub(super) fn changed_labels(&self, at: u32) -> &[u8] {
        record_at(&self.changed, at)
    }

    /// Stores the final labels of the last series for its marker.
    pub(super) fn put_final(&mut self, labels: &[u8]) {
        let Some(last) = self.all.last_mut() else { return };
        if !last.has_final() {
            return;
        }
        match self.finals.len() + labels.len() + 4 <= MARKER_BYTES_MAX {
            true => drop(put_record(&mut self.finals, labels)),
            false => last.is_tracked = false,
        }
    }
}

/// Returns a number that does not depend on the order of labels in the encoding of batches. Empty
/// labels do not count.
pub(super) fn labels_key(labels: &[u8]) -> u64 {
    let (mut at, mut key) = (0, 0_u64);
    while let Some(name) = next_record(labels, &mut at) {
        let value = next_record(labels, &mut at).unwrap_or_default();
        if !value.is_empty() {
            let name = rapidhash_v3_seeded(name, &RapidSecrets::seed(0));
            key = key.wrapping_add(rapidhash_v3_seeded(value, &RapidSecrets::seed(name)));
        }
    }
    key
}

fn keys_of(finals: &[u8]) -> HashSet<u64> {
    let mut at = 0;
    std::iter::from_fn(|| next_record(finals, &mut at)).map(labels_key).collect()
}

/// Appends a record, and returns its place.
fn put_record(out: &mut Vec<u8>, record: &[u8]) -> u32 {
    let at = u32::try_from(out.len()).unwrap_or(u32::MAX);
    let length = u32::try_from(record.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(record);
    at
}

fn record_at(records: &[u8], at: u32) -> &[u8] {
    let mut at = usize::try_from(at).unwrap_or(usize::MAX);
    next_record(records, &mut at).unwrap_or_default()
}

/// Returns the record at a place, and advances the place behind it.
pub(super) fn next_record<'r>(records: &'r [u8], at: &mut usize) -> Option<&'r [u8]> {
    let (length, rest) = records.get(*at..)?.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    *at += 4 + length;
    rest.get(..length)
}
