//! The side data of a segment: for each of some series, a run of bytes that this module does not
//! interpret (see `tsdb::side_data::sealed`).
//!
//! Section SIDE_DATA:
//! ```text
//! runs, one for each series, back to back
//! index, ascending by series id:
//!   n x { u32 series id, u32 crc of {series id, run}, u64 offset of the run, u32 length }
//! last 16: u64 n, u32 crc of the index, u32 zero
//! ```
//! In a segment with histograms, a series with histograms also has a row. Its times are those of
//! the histograms, and its values are their counts of observations. So a series is found by labels
//! and time as in any other segment.

use crate::tsdb::error::Damage;

pub(super) const ENTRY_BYTES: usize = 20;
pub(super) const TAIL_BYTES: usize = 16;

/// The index entry of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SideDataEntry {
    pub(super) id: u32,
    pub(super) crc: u32,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl SideDataEntry {
    fn decode(bytes: &[u8]) -> Option<SideDataEntry> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (crc, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        Some(SideDataEntry {
            id: u32::from_le_bytes(*id),
            crc: u32::from_le_bytes(*crc),
            offset: u64::from_le_bytes(*offset),
            bytes: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// Returns the checksum of a run.
pub(super) fn run_crc(id: u32, run: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.to_le_bytes()), run)
}

/// Returns the bytes that follow the runs: the index and its end.
pub(super) fn encode_index(entries: &[SideDataEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * ENTRY_BYTES + TAIL_BYTES);
    for entry in entries {
        out.extend_from_slice(&entry.id.to_le_bytes());
        out.extend_from_slice(&entry.crc.to_le_bytes());
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.bytes.to_le_bytes());
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out
}

/// A run with its expected checksum and its offset in the section.
struct LocatedRun<'a> {
    run: &'a [u8],
    crc: u32,
    offset: usize,
}

/// The parts of the section.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideDataIndex<'a> {
    runs: &'a [u8],
    index: &'a [u8],
}

impl<'a> SideDataIndex<'a> {
    /// Locates the index; [`SideDataIndex::verify`] verifies it.
    pub(super) fn new(section: &'a [u8]) -> Result<SideDataIndex<'a>, Damage> {
        let damage = |what| Damage::new(section.len().saturating_sub(TAIL_BYTES), what);
        let (rest, tail) = section.split_last_chunk::<TAIL_BYTES>().ok_or_else(|| damage("missing index"))?;
        let count = tail.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES));
        let runs = bytes.and_then(|bytes| rest.len().checked_sub(bytes));
        let (runs, index) = runs
            .and_then(|runs| rest.split_at_checked(runs))
            .ok_or_else(|| damage("an index larger than its section"))?;
        Ok(SideDataIndex { runs, index })
    }

    /// Verifies the checksum and the order of the index.
    pub(super) fn verify(&self, section: &[u8]) -> Result<(), Damage> {
        let crc = section.last_chunk::<TAIL_BYTES>().and_then(|tail| tail.get(8..12)?.first_chunk().copied());
        if crc.map(u32::from_le_bytes) != Some(crc32c::crc32c(self.index)) {
            return Err(Damage::new(self.runs.len(), "wrong checksum of the index of side data"));
        }
        let ids: Vec<u32> = self.ids().collect();
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(Damage::new(self.runs.len(), "the index of side data does not ascend"));
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.index.len() / ENTRY_BYTES
    }

    fn entry(&self, index: usize) -> Option<SideDataEntry> {
        SideDataEntry::decode(self.index.get(index.checked_mul(ENTRY_BYTES)?..)?)
    }

    /// Returns the series ids, ascending.
    pub(super) fn ids(self) -> impl Iterator<Item = u32> + use<'a> {
        (0..self.len()).map_while(move |index| self.entry(index)).map(|entry| entry.id)
    }

    /// Returns the run of a series after verifying its checksum.
    pub(super) fn run(&self, id: u32) -> Result<Option<&'a [u8]>, Damage> {
        let Some(LocatedRun { run, crc, offset }) = self.locate(id)? else { return Ok(None) };
        if run_crc(id, run) != crc {
            return Err(Damage::new(offset, "wrong checksum of side data"));
        }
        Ok(Some(run))
    }

    /// Returns the run of a series without verifying it, to salvage the intact part of a damaged
    /// run.
    pub(super) fn unverified(&self, id: u32) -> Option<&'a [u8]> {
        self.locate(id).ok().flatten().map(|located| located.run)
    }

    /// Finds the run of a series by binary search.
    fn locate(&self, id: u32) -> Result<Option<LocatedRun<'a>>, Damage> {
        let (mut start, mut end) = (0, self.len());
        while start < end {
            let middle = usize::midpoint(start, end);
            match self.entry(middle) {
                Some(entry) if entry.id < id => start = middle + 1,
                _ => end = middle,
            }
        }
        let Some(entry) = self.entry(start).filter(|entry| entry.id == id) else { return Ok(None) };
        let offset = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let run = offset.checked_add(entry.bytes as usize).and_then(|after| self.runs.get(offset..after));
        let run = run.ok_or_else(|| Damage::new(offset, "a run extends beyond its section"))?;
        Ok(Some(LocatedRun { run, crc: entry.crc, offset }))
    }
}
