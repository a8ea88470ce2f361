//! The records that a checkpoint contains, by series.

use std::collections::BTreeMap;

use crate::model::OrgId;

/// The sequence number up to which the checkpoint contains each series, for the replay.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct RowSeqs {
    by_org: BTreeMap<OrgId, Vec<u64>>,
    /// The numbers of the side table.
    side_by_org: BTreeMap<OrgId, Vec<u64>>,
}

impl RowSeqs {
    pub(in crate::tsdb) fn set(&mut self, org: OrgId, series: u32, seq: u64) {
        set(self.by_org.entry(org).or_default(), series, seq);
    }

    pub(in crate::tsdb) fn set_side(&mut self, org: OrgId, series: u32, seq: u64) {
        set(self.side_by_org.entry(org).or_default(), series, seq);
    }

    pub(in crate::tsdb) fn side_of(&self, org: OrgId) -> &[u64] {
        self.side_by_org.get(&org).map_or(&[], Vec::as_slice)
    }

    pub(in crate::tsdb) fn of(&self, org: OrgId) -> &[u64] {
        self.by_org.get(&org).map_or(&[], Vec::as_slice)
    }
}

/// Returns a function that tests whether the checkpoint already contains a record's samples of a
/// series.
pub(in crate::tsdb) fn skipped(rows: Option<&RowSeqs>, org: OrgId, seq: u64) -> impl Fn(u32) -> bool + '_ {
    let rows = rows.map_or(&[][..], |rows| rows.of(org));
    move |series| rows.get(series as usize).is_some_and(|have| seq <= *have)
}

fn set(seqs: &mut Vec<u64>, series: u32, seq: u64) {
    if seqs.len() <= series as usize {
        seqs.resize(series as usize + 1, 0);
    }
    if let Some(place) = seqs.get_mut(series as usize) {
        // Rows of one series have the same number. The row of exemplars has 0 for series 0.
        *place = (*place).max(seq);
    }
}
