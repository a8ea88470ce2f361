//! The segments of a repaired store. A readable segment is copied, others are rewritten without
//! their unreadable blocks.
//!
//! In a segment of histograms the side data is decisive: the rows, which hold the observation
//! counts of each histogram, are derived from it. In a damaged run the blocks of the histograms
//! have their own checksums and are saved one by one. Start timestamps and exemplars have only the
//! checksum of the run, so those of a damaged run are lost.

use std::path::Path;

use super::{REPORTED_MAX, RepairError, Repaired, copy};
use crate::kv::{Finding, OfflineControl, Weight, with_sources};
use crate::model::{Histogram, HistogramColumns, OrgId, StoreId, Timestamp};
use crate::tsdb::disk;
use crate::tsdb::error::OpenError;
use crate::tsdb::recovery::check::each_bad_block;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{
    HISTOGRAMS, NewSegment, Segment, SegmentError, SegmentMeta, SegmentWriteError, SegmentWriter,
};
use crate::tsdb::side_data::sealed;
use crate::tsdb::store::manifest;

/// The state of segments_repair segments into the new folder.
pub(super) struct SegmentRepair<'s> {
    dir: &'s Path,
    to: &'s Path,
    control: &'s mut OfflineControl,
    repaired: &'s mut Repaired,
    files: u64,
    samples: u64,
    bytes: u64,
}

impl<'s> SegmentRepair<'s> {
    pub(super) fn new(
        dir: &'s Path,
        to: &'s Path,
        control: &'s mut OfflineControl,
        repaired: &'s mut Repaired,
    ) -> SegmentRepair<'s> {
        SegmentRepair { dir, to, control, repaired, files: 0, samples: 0, bytes: 0 }
    }

    /// Describes the saved segments.
    pub(super) fn description(&self) -> String {
        format!("{} files, {} samples, {} bytes", self.files, self.samples, self.bytes)
    }

    /// Saves a listed segment, or removes it from the list.
    pub(super) fn segment(&mut self, org: OrgId, meta: &SegmentMeta) -> Result<(), RepairError> {
        let name = org.0.to_string();
        let (from, to) = (self.dir.join("segments").join(&name), self.to.join("segments").join(&name));
        disk::create_dir(&to)?;
        let file = Path::new("segments").join(&name).join(meta.file_name());
        let lost = |count: u64, what: String| Finding {
            org: Some(org),
            range: Some((Timestamp::from_ms(meta.min_ms), Timestamp::from_ms(meta.max_ms))),
            count: Some(count),
            ..Finding::new(Weight::Loss, file.clone(), what)
        };
        let segment = match Segment::open(&from, self.control.store_id(), meta) {
            Ok(segment) => segment,
            Err(SegmentError::Newer { path, .. }) => {
                let what = "written by a newer version".to_owned();
                return Err(OpenError::Foreign { path, what }.into());
            }
            Err(e) => {
                self.repaired.lost.push(lost(meta.samples, with_sources(&e)));
                manifest::unlist(self.control, meta);
                return Ok(());
            }
        };
        if segment.verify(true).is_ok() {
            copy(&from.join(meta.file_name()), &to.join(meta.file_name()))?;
            disk::sync_dir(&to)?;
            self.count(meta);
            return Ok(());
        }
        let written = write_readable(&segment, &to, self.control.store_id())?;
        manifest::unlist(self.control, meta);
        let (readable, what) = match &written {
            Some(new) => (new.samples, "rewritten without its unreadable blocks"),
            None => (0, "no block of it can be read"),
        };
        let (gone, mut bad_ones) = (meta.samples.saturating_sub(readable), Vec::new());
        each_bad_block(&segment, &mut |bad| {
            if bad.weight == Weight::Loss && self.repaired.lost.len() + bad_ones.len() < REPORTED_MAX {
                bad_ones.push(bad.finding(org, &file));
            }
        });
        if gone > 0 || !bad_ones.is_empty() {
            self.repaired.lost.push(lost(gone, what.to_owned()));
            self.repaired.lost.append(&mut bad_ones);
        }
        if let Some(new) = written {
            manifest::list(self.control, &new).map_err(RepairError::List)?;
            self.count(&new);
        }
        Ok(())
    }

    fn count(&mut self, meta: &SegmentMeta) {
        self.files += 1;
        self.samples += meta.samples;
        self.bytes += meta.file_bytes;
    }
}

/// Writes a segment with the same number that holds all readable blocks; none if there are none.
fn write_readable(
    segment: &Segment,
    to: &Path,
    store: StoreId,
) -> Result<Option<SegmentMeta>, SegmentWriteError> {
    let SegmentMeta { org, seq, level, flags, first_log_seq, last_log_seq, .. } = *segment.meta();
    let replaces = segment.meta().replaces.clone();
    let new = NewSegment { org, seq, level, flags, first_log_seq, last_log_seq, replaces };
    let mut writer = SegmentWriter::create(to, store, new)?;
    for family in 0..segment.families() {
        let (Ok(names), Some(ids)) = (segment.names(family), segment.ids(family)) else { continue };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut begun = false;
        for row in 0..ids.len() {
            let (Some(id), Ok(values)) = (ids.get(row), segment.series_values(family, row)) else { continue };
            let (times, bits) = if flags & HISTOGRAMS == 0 {
                row_of(segment, family, row)
            } else {
                let histograms = histograms_of(segment, id);
                let counts = histograms.histograms.iter().map(|histogram| histogram.count().to_bits());
                (histograms.times, counts.collect())
            };
            let ascending = times.is_sorted_by(|a, b| a < b);
            if times.is_empty() || !ascending || times.len() != bits.len() {
                continue;
            }
            if !begun {
                writer.family(&names)?;
                begun = true;
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            writer.series(id, &values, &times, &bits)?;
        }
    }
    let mut is_empty = writer.series_count() == 0;
    for id in segment.side_data_ids() {
        let run = run_of(segment, id);
        if !run.is_empty() {
            // Start timestamps and exemplars have no time of their own, so they keep the end of the
            // segment.
            let last = segment.meta().max_ms;
            let times = histograms_of(segment, id).times;
            let span = times.first().copied().zip(times.last().copied()).unwrap_or((last, last));
            writer.put_side_data(id, &run, span)?;
            is_empty = false;
        }
    }
    if is_empty {
        writer.abandon()?;
        return Ok(None);
    }
    Ok(Some(writer.finish()?))
}

/// Reads the readable blocks of a row of floats.
fn row_of(segment: &Segment, family: usize, row: usize) -> (Vec<i64>, Vec<u64>) {
    let mut columns = SampleColumns::default();
    // An error of the scan ends the series. Blocks that cannot be decoded are skipped.
    let _ = segment.each_block(family, row, |id, block| {
        let _ = segment.decode(id, &block, &mut columns);
        Ok(true)
    });
    (columns.times, columns.values.iter().map(|value| value.to_bits()).collect())
}

/// Reads the readable histograms of a series.
fn histograms_of(segment: &Segment, id: u32) -> HistogramColumns {
    let mut histograms = HistogramColumns::default();
    if id != sealed::EXEMPLARS_ID
        && let Some(run) = segment.side_data_unverified(id)
    {
        sealed::salvage_histograms(run, &mut histograms);
    }
    histograms
}

/// Returns a valid run unchanged, and a damaged run with its readable histograms.
fn run_of(segment: &Segment, id: u32) -> Vec<u8> {
    if let Ok(Some(run)) = segment.side_data(id)
        && sealed::verify(id, run).is_ok()
    {
        return run.to_vec();
    }
    let HistogramColumns { times, histograms } = histograms_of(segment, id);
    let samples: Vec<(i64, &Histogram)> = times.into_iter().zip(&histograms).collect();
    let mut run = Vec::new();
    sealed::put_histograms(&mut run, &samples);
    run
}
