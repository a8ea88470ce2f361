//! Verification of a whole segment.

use super::super::format::{COLUMNS, DATA, DICTIONARIES, FAMILIES, SECTIONS, SIDE_DATA, Section, TIMES};
use super::super::map::{AccessPattern, Map};
use super::{FamilyRow, HISTOGRAMS, Segment, SegmentDamage, TimelineCache, section_of};
use crate::model::TimeRange;
use crate::tsdb::error::Damage;
use crate::tsdb::report::SampleColumns;

impl Segment {
    /// Verifies the checksums of all sections. `deep` also decodes every block and label, and
    /// checks order and counts.
    pub(in crate::tsdb) fn verify(&self, deep: bool) -> Result<(), SegmentDamage> {
        self.map.advise(AccessPattern::Sequential);
        let verified = self.verify_sections().and_then(|()| if deep { self.verify_rows() } else { Ok(()) });
        self.map.advise(AccessPattern::Normal);
        verified
    }

    fn verify_sections(&self) -> Result<(), SegmentDamage> {
        for section in [DATA, TIMES, COLUMNS, FAMILIES, DICTIONARIES, SIDE_DATA] {
            checked(&self.map, &self.sections, section).map_err(|damage| self.with_cause(damage))?;
        }
        self.intact()
    }

    fn verify_rows(&self) -> Result<(), SegmentDamage> {
        let wrong = |what| self.at(FAMILIES, Damage::new(0, what));
        let (mut series, mut samples) = (0u64, 0u64);
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        let mut out = SampleColumns::default();
        let mut timelines = TimelineCache::default();
        for family in 0..self.families {
            let rows = self.rows(family)?;
            let ids = self.ids_of(&rows);
            if ids.iter().count() != ids.len() || !ids.iter().is_sorted_by(|a, b| a < b) {
                return Err(wrong("series ids do not ascend"));
            }
            for row in 0..ids.len() {
                out.times.clear();
                out.values.clear();
                self.read(FamilyRow { rows: &rows, row }, TimeRange::ALL, &mut timelines, None, &mut out)?;
                let span = out.times.first().copied().zip(out.times.last().copied());
                if span.is_none() || span != self.span(family, row) || !out.times.is_sorted_by(|a, b| a < b) {
                    return Err(wrong("the times of samples differ from the span of their row"));
                }
                if !self.series_labels(family, row)?.is_sorted_by(|(a, _), (b, _)| a < b) {
                    return Err(wrong("label names do not ascend"));
                }
                let (first, last) = span.unwrap_or_default();
                (least, most) = (least.min(first), most.max(last));
                samples += out.times.len() as u64;
                series += 1;
            }
        }
        for id in self.side_data_ids() {
            self.side_data(id)?;
        }
        let meta = &self.meta;
        let spans = if meta.flags & HISTOGRAMS == 0 {
            (least, most) == (meta.min_ms, meta.max_ms)
        } else {
            // Side data may reach beyond the times of the rows.
            samples == 0 || (meta.min_ms <= least && most <= meta.max_ms)
        };
        if !spans || (series, samples) != (u64::from(meta.series), meta.samples) {
            return Err(wrong("series, samples or times differ from the footer"));
        }
        Ok(())
    }
}

/// Verifies the checksum of a section. The offset of the damage is that of the section in the file.
pub(super) fn checked(map: &Map, sections: &[Section; SECTIONS], section: usize) -> Result<(), Damage> {
    const WRONG: [&str; SECTIONS] = [
        "wrong checksum of the value blocks",
        "wrong checksum of the time blocks",
        "wrong checksum of the columns",
        "wrong checksum of the families",
        "wrong checksum of the dictionaries",
        "wrong checksum of the side data",
    ];
    let found = crc32c::crc32c(section_of(map, sections, section));
    match (sections.get(section), WRONG.get(section)) {
        (Some(section), Some(what)) if section.crc != found => Err(Damage { offset: section.offset, what }),
        _ => Ok(()),
    }
}
