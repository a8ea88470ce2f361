//! The segments of one organisation that count, and what else a reader must know beside the head.
//!
//! A set never changes: whoever changes it publishes the next one (`OrgStore::publish`) after control has committed the
//! same, and a reader keeps the one it took. A segment that is listed no more is kept in [`Obsolete`] until the last
//! reader has let go of it; its file is unlinked then.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::manifest::Tombstone;
use super::segment::{HISTOGRAMS, Segment, SegmentMeta};
use super::series::table::Table;
use super::wal::record::OrgSpan;
use crate::model::TimeRange;

/// An open segment, and where a family of the table lies in it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) segment: Segment,
    /// Number of the table's family, number of the segment's; ascending.
    families: Box<[(u32, u32)]>,
    /// See [`Segment::common_span`]; looked for once it is asked for.
    common: OnceLock<Option<(i64, i64)>>,
}

impl Part {
    /// Looks up each family's first series in the table. A family whose series nothing defines is left out: nobody can
    /// ask for it.
    pub(super) fn new(segment: Segment, table: &Table) -> Part {
        let mut families: Vec<(u32, u32)> = (0u32..)
            .zip(0..segment.families())
            .filter_map(|(number, family)| {
                let first = segment.ids(family)?.get(0)?;
                Some((table.family_of(first)?, number))
            })
            .collect();
        families.sort_unstable();
        Part { segment, families: families.into(), common: OnceLock::new() }
    }

    pub(super) fn meta(&self) -> &SegmentMeta {
        self.segment.meta()
    }

    /// Whether its rows are of histograms: their times, and how many observations each counts.
    pub(super) fn has_histograms(&self) -> bool {
        self.meta().flags & HISTOGRAMS != 0
    }

    /// The segment's number of a family of the table.
    pub(super) fn family(&self, table_family: u32) -> Option<usize> {
        let place = self.families.binary_search_by_key(&table_family, |(family, _)| *family).ok()?;
        self.families.get(place).map(|(_, number)| *number as usize)
    }

    pub(super) fn overlaps(&self, range: TimeRange) -> bool {
        overlaps(self.meta(), range)
    }

    /// Whether every row reaches into the range, as far as a look at few times can tell.
    pub(super) fn reaches_with_all(&self, range: TimeRange) -> bool {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let common = self.common.get_or_init(|| self.segment.common_span());
        common.is_some_and(|(from, to)| start <= end && from <= end && start <= to)
    }
}

fn overlaps(meta: &SegmentMeta, range: TimeRange) -> bool {
    let (start, end) = (range.start.as_ms(), range.end.as_ms());
    start <= end && meta.min_ms <= end && start <= meta.max_ms
}

/// A segment that is listed and cannot be opened: queries of its time carry a warning.
#[derive(Clone, Debug)]
pub(super) struct Bad {
    pub(super) meta: SegmentMeta,
}

/// What is beside the head of one organisation, at one moment.
#[derive(Clone, Debug)]
pub(super) struct SegmentSet {
    /// The last committed seal record.
    pub(super) seal_seq: u64,
    /// Every sample of a record up to `seal_seq` and a time before this is in a segment.
    pub(super) sealed_until: i64,
    /// Every sample of a record up to this one is in a segment, whatever its time.
    pub(super) sealed_all_seq: u64,
    /// In order of last record and number: where two hold the same moment of a series, the later wins. A compaction's
    /// output stands where its newest source stood, whatever was sealed meanwhile.
    pub(super) parts: Vec<Arc<Part>>,
    pub(super) bad: Vec<Bad>,
    /// By number.
    pub(super) tombstones: Vec<(u64, Arc<Tombstone>)>,
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
    /// Whether a sample of this record is in a segment already.
    pub(super) fn has_record(&self, seq: u64, at_ms: i64) -> bool {
        seq <= self.sealed_all_seq || (seq <= self.seal_seq && at_ms < self.sealed_until)
    }

    /// Whether everything that a log file has of the organisation is in segments.
    pub(super) fn covers(&self, span: &OrgSpan) -> bool {
        self.has_record(span.last_seq, span.greatest_ms)
    }

    /// Segments of this range that cannot be read.
    pub(super) fn bad_in(&self, range: TimeRange) -> impl Iterator<Item = &Bad> {
        self.bad.iter().filter(move |bad| overlaps(&bad.meta, range))
    }

    /// The same with other segments: `drop` by number, `add` opened.
    pub(super) fn with(&self, drop: &[u64], add: Vec<Arc<Part>>) -> SegmentSet {
        let mut next = self.clone();
        next.parts.retain(|part| !drop.contains(&part.meta().seq));
        next.bad.retain(|bad| !drop.contains(&bad.meta.seq));
        next.parts.extend(add);
        next.order();
        next
    }

    /// Bytes of all files that are listed.
    pub(super) fn file_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.meta());
        parts.chain(self.bad.iter().map(|bad| &bad.meta)).map(|meta| meta.file_bytes).sum()
    }

    /// Puts the segments into the order that [`SegmentSet::parts`] tells.
    pub(super) fn order(&mut self) {
        self.parts.sort_unstable_by_key(|part| (part.meta().last_log_seq, part.meta().seq));
    }

    /// Deletions that are about a series of a segment.
    pub(super) fn tombstones_of(&self, part: &Part, series: u32) -> impl Iterator<Item = &Tombstone> {
        let last = part.meta().last_log_seq;
        let about = move |tombstone: &&Tombstone| last <= tombstone.upto_seq && tombstone.names(series);
        self.tombstones.iter().map(|(_, tombstone)| &**tombstone).filter(about)
    }

    /// The segments that have histograms and what else stands beside the rows, those that win last.
    pub(super) fn beside(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.parts.iter().filter(|part| part.has_histograms())
    }

    /// List entries of everything that is listed, in order of number.
    pub(super) fn metas(&self) -> Vec<&SegmentMeta> {
        let mut metas: Vec<&SegmentMeta> =
            self.parts.iter().map(|part| part.meta()).chain(self.bad.iter().map(|bad| &bad.meta)).collect();
        metas.sort_unstable_by_key(|meta| meta.seq);
        metas
    }
}

/// A file that is to go once no reader holds its segment.
#[derive(Debug)]
pub(super) struct Obsolete {
    pub(super) seq: u64,
    pub(super) path: PathBuf,
    pub(super) reason: String,
    /// None: nobody can hold it.
    pub(super) part: Option<Arc<Part>>,
}

impl Obsolete {
    /// Whether the file may be unlinked.
    pub(super) fn is_free(&self) -> bool {
        self.part.as_ref().is_none_or(|part| Arc::strong_count(part) == 1)
    }
}
