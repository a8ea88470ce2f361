//! The listed segments of one organisation, and the other state that a reader needs besides the
//! head.
//!
//! A set is immutable. A change publishes the next set (`OrgStore::publish`) after control has
//! committed the same change, and a reader keeps its set. An unlisted segment stays in [`Obsolete`]
//! until its last reader has been dropped. Its file is then unlinked.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::manifest::Tombstone;
use crate::model::TimeRange;
use crate::tsdb::segment::{HISTOGRAMS, Segment, SegmentMeta};
use crate::tsdb::series::table::Table;
use crate::tsdb::wal::record::OrgSpan;

/// An open segment, with the mapping from the table's families to its own.
#[derive(Debug)]
pub(in crate::tsdb) struct IndexedSegment {
    pub(in crate::tsdb) segment: Segment,
    /// Pairs of the table's family number and the segment's, ascending.
    families: Box<[(u32, u32)]>,
    /// The result of [`Segment::common_span`], computed at the first use.
    common: OnceLock<Option<(i64, i64)>>,
}

impl IndexedSegment {
    /// Looks up each family's first series in the table. A family without a defined series is
    /// omitted, since no query can select it.
    pub(in crate::tsdb) fn new(segment: Segment, table: &Table) -> IndexedSegment {
        let mut families: Vec<(u32, u32)> = (0u32..)
            .zip(0..segment.families())
            .filter_map(|(number, family)| {
                let first = segment.ids(family)?.get(0)?;
                Some((table.family_of(first)?, number))
            })
            .collect();
        families.sort_unstable();
        IndexedSegment { segment, families: families.into(), common: OnceLock::new() }
    }

    pub(in crate::tsdb) fn meta(&self) -> &SegmentMeta {
        self.segment.meta()
    }

    /// Returns whether its rows hold the times and observation counts of histograms.
    pub(in crate::tsdb) fn has_histograms(&self) -> bool {
        self.meta().flags & HISTOGRAMS != 0
    }

    /// Returns the segment's number of a family of the table.
    pub(in crate::tsdb) fn family(&self, table_family: u32) -> Option<usize> {
        let index = self.families.binary_search_by_key(&table_family, |(family, _)| *family).ok()?;
        self.families.get(index).map(|(_, number)| *number as usize)
    }

    pub(in crate::tsdb) fn overlaps(&self, range: TimeRange) -> bool {
        overlaps(self.meta(), range)
    }

    /// Returns whether every row has samples in the range, as far as a check of a few times can
    /// tell.
    pub(in crate::tsdb) fn reaches_with_all(&self, range: TimeRange) -> bool {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let common = self.common.get_or_init(|| self.segment.common_span());
        common.is_some_and(|(from, to)| start <= end && from <= end && start <= to)
    }
}

fn overlaps(meta: &SegmentMeta, range: TimeRange) -> bool {
    let (start, end) = (range.start.as_ms(), range.end.as_ms());
    start <= end && meta.min_ms <= end && start <= meta.max_ms
}

/// A listed segment that cannot be opened. Queries of its time carry a warning.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct UnreadableSegment {
    pub(in crate::tsdb) meta: SegmentMeta,
}

/// The segments of one organisation at one moment.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct SegmentSet {
    /// The last committed seal record.
    pub(in crate::tsdb) seal_seq: u64,
    /// The exclusive end of the sealed time: every sample of a record up to `seal_seq` with an
    /// earlier time is in a segment.
    pub(in crate::tsdb) sealed_until: i64,
    /// Every sample of a record up to this one is in a segment, for every time.
    pub(in crate::tsdb) sealed_all_seq: u64,
    /// The segments in order of last record and number. If two have a sample of a series at the
    /// same time, the later one wins. The output of a compaction takes the place of its newest
    /// source, even if other segments were sealed meanwhile.
    pub(in crate::tsdb) parts: Vec<Arc<IndexedSegment>>,
    pub(in crate::tsdb) bad: Vec<UnreadableSegment>,
    /// The tombstones in order of number.
    pub(in crate::tsdb) tombstones: Vec<(u64, Arc<Tombstone>)>,
}

impl Default for SegmentSet {
    fn default() -> SegmentSet {
        SegmentSet {
            seal_seq: 0,
            sealed_until: i64::MIN,
            sealed_all_seq: 0,
            parts: Vec::new(),
            bad: Vec::new(),
            tombstones: Vec::new(),
        }
    }
}

impl SegmentSet {
    /// Returns whether a sample of this record is in a segment already.
    pub(in crate::tsdb) fn has_record(&self, seq: u64, at_ms: i64) -> bool {
        seq <= self.sealed_all_seq || (seq <= self.seal_seq && at_ms < self.sealed_until)
    }

    /// Returns whether all samples of the organisation in a log file are in segments.
    pub(in crate::tsdb) fn covers(&self, span: &OrgSpan) -> bool {
        self.has_record(span.last_seq, span.greatest_ms)
    }

    /// Returns the unreadable segments of this range.
    pub(in crate::tsdb) fn bad_in(&self, range: TimeRange) -> impl Iterator<Item = &UnreadableSegment> {
        self.bad.iter().filter(move |bad| overlaps(&bad.meta, range))
    }

    /// Returns a copy without the segments numbered in `drop` and with the opened segments `add`.
    pub(in crate::tsdb) fn with(&self, drop: &[u64], add: Vec<Arc<IndexedSegment>>) -> SegmentSet {
        let mut next = self.clone();
        next.parts.retain(|part| !drop.contains(&part.meta().seq));
        next.bad.retain(|bad| !drop.contains(&bad.meta.seq));
        next.parts.extend(add);
        next.order();
        next
    }

    /// Returns the bytes of all listed files.
    pub(in crate::tsdb) fn file_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.meta());
        parts.chain(self.bad.iter().map(|bad| &bad.meta)).map(|meta| meta.file_bytes).sum()
    }

    /// Sorts the segments in the order of [`SegmentSet::parts`].
    pub(in crate::tsdb) fn order(&mut self) {
        self.parts.sort_unstable_by_key(|part| (part.meta().last_log_seq, part.meta().seq));
    }

    /// Returns the deletions that apply to a series of a segment.
    pub(in crate::tsdb) fn tombstones_of(
        &self,
        part: &IndexedSegment,
        series: u32,
    ) -> impl Iterator<Item = &Tombstone> {
        let last = part.meta().last_log_seq;
        let about = move |tombstone: &&Tombstone| last <= tombstone.upto_seq && tombstone.names(series);
        self.tombstones.iter().map(|(_, tombstone)| &**tombstone).filter(about)
    }

    /// Returns the segments with histograms and other side data. Later segments win over earlier
    /// ones.
    pub(in crate::tsdb) fn beside(&self) -> impl Iterator<Item = &Arc<IndexedSegment>> {
        self.parts.iter().filter(|part| part.has_histograms())
    }

    /// Returns the list entries of all listed segments, in order of number.
    pub(in crate::tsdb) fn metas(&self) -> Vec<&SegmentMeta> {
        let mut metas: Vec<&SegmentMeta> =
            self.parts.iter().map(|part| part.meta()).chain(self.bad.iter().map(|bad| &bad.meta)).collect();
        metas.sort_unstable_by_key(|meta| meta.seq);
        metas
    }
}

/// A file that is removed once its segment has no reader.
#[derive(Debug)]
pub(in crate::tsdb) struct Obsolete {
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) reason: String,
    /// `None` if no reader can have it.
    pub(in crate::tsdb) part: Option<Arc<IndexedSegment>>,
}

impl Obsolete {
    /// Returns whether the file may be unlinked.
    pub(in crate::tsdb) fn is_free(&self) -> bool {
        self.part.as_ref().is_none_or(|part| Arc::strong_count(part) == 1)
    }
}
