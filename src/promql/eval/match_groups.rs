//! Match groups: the rows of both sides of a join with equal values of the matching labels.

use crate::model::{Labels, METRIC_NAME};
use crate::promql::budget::Charge;
use crate::promql::error::QueryError;
use crate::promql::syntax::tree::Matching;

use super::Context;
use super::label_keys::{NUMBERING_BYTES, number_label_sets};
use super::rows::{LabelledRows, is_metadata};

/// The rows of both sides of a join.
#[derive(Clone, Copy)]
pub(super) struct JoinSides<'r> {
    pub(super) many: &'r LabelledRows,
    pub(super) one: &'r LabelledRows,
}

/// The rows of both sides with equal values of the matching labels.
pub(super) struct MatchGroup<'g> {
    /// The matching labels and their values.
    pub(super) shared: Labels,
    /// Rows of the many side; for one-to-one matching, of the left side.
    pub(super) many: &'g [usize],
    /// Rows of the one side.
    pub(super) one: &'g [usize],
}

/// All match groups, by number.
pub(super) struct MatchGroups {
    pub(super) many: SideRows,
    pub(super) one: SideRows,
    /// For each group, the index of the first row with its labels; rows of the one side are counted
    /// after those of the many side.
    firsts: Vec<usize>,
    /// Whether any matching label is removed together with the metric name.
    pub(super) metadata: bool,
}

/// The rows of one side, group by group.
pub(super) struct SideRows {
    rows: Vec<usize>,
    /// For each group, the exclusive end of its rows.
    ends: Vec<usize>,
}

impl SideRows {
    fn new(groups: usize, of_rows: &[u32]) -> SideRows {
        let mut ends = vec![0; groups + 1];
        of_rows.iter().for_each(|group| ends[*group as usize + 1] += 1);
        for group in 0..groups {
            ends[group + 1] += ends[group];
        }
        let mut rows = vec![0; of_rows.len()];
        // The position of each group's next row, which is the group's end once all rows are placed.
        for (row, group) in of_rows.iter().enumerate() {
            let position = &mut ends[*group as usize];
            rows[*position] = row;
            *position += 1;
        }
        ends.truncate(groups);
        SideRows { rows, ends }
    }

    pub(super) fn of(&self, group: usize) -> &[usize] {
        let from = group.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[from..self.ends[group]]
    }
}

/// Bytes of a row while the rows of both sides are grouped: its group number, its position in its
/// group, and its group.
const GROUPED_BYTES: usize = NUMBERING_BYTES + 4 * size_of::<usize>();

impl Context<'_> {
    /// Charges the memory of [`MatchGroups::new`] for `rows` rows of both sides.
    pub(super) fn charge_grouping(&self, rows: usize) -> Result<Charge, QueryError> {
        let mut charge = self.meter.charge();
        charge.add_bytes(rows.saturating_mul(GROUPED_BYTES) as u64)?;
        Ok(charge)
    }
}

impl MatchGroups {
    pub(super) fn new(many: &LabelledRows, one: &LabelledRows, matching: &Matching) -> MatchGroups {
        let heads = many.heads.iter().chain(&one.heads);
        let numbers = number_label_sets(heads.map(|head| &head.labels), |name| must_be_equal(matching, name));
        let (of_many, of_one) = numbers.of.split_at(many.len());
        let groups = numbers.firsts.len();
        let (many, one) = (SideRows::new(groups, of_many), SideRows::new(groups, of_one));
        let metadata = numbers.names.iter().any(|name| is_metadata(name));
        MatchGroups { many, one, firsts: numbers.firsts, metadata }
    }

    pub(super) fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Returns the groups in order, with the labels that their rows share.
    pub(super) fn each<'g>(
        &'g self,
        sides: JoinSides<'g>,
        matching: &'g Matching,
    ) -> impl Iterator<Item = MatchGroup<'g>> {
        let JoinSides { many, one } = sides;
        self.firsts.iter().enumerate().map(move |(group, first)| {
            let head = many.heads.get(*first).unwrap_or_else(|| &one.heads[first - many.len()]);
            let shared = head.labels.filtered(|name| must_be_equal(matching, name));
            MatchGroup { shared, many: self.many.of(group), one: self.one.of(group) }
        })
    }
}

fn must_be_equal(matching: &Matching, name: &str) -> bool {
    let listed = matching.labels.iter().any(|label| label == name);
    if matching.on { listed } else { name != METRIC_NAME && !listed }
}
