//! The set operators `and`, `or` and `unless`.

use std::sync::Arc;

use crate::promql::error::QueryError;
use crate::promql::syntax::tree::{BinaryOp, Matching};

use super::Context;
use super::match_groups::MatchGroups;
use super::parallel_rows::SeriesCheckInterval;
use super::rows::{ABSENT, Duplicates, LabelledRows};

impl Context<'_> {
    pub(super) fn set_operator(
        &self,
        op: BinaryOp,
        matching: &Matching,
        mut lhs: LabelledRows,
        rhs: &LabelledRows,
    ) -> Result<LabelledRows, QueryError> {
        let _grouping = self.charge_grouping(lhs.len() + rhs.len())?;
        let groups = MatchGroups::new(&lhs, rhs, matching);
        let mut mask = vec![false; lhs.steps().max(rhs.steps())];
        let mut interval = SeriesCheckInterval::default();
        if op == BinaryOp::Or {
            return self.union(&groups, lhs, rhs, &mut mask);
        }
        for group in 0..groups.len() {
            let (left, right) = (groups.many.of(group), groups.one.of(group));
            if left.is_empty() || right.is_empty() && op == BinaryOp::Unless {
                continue;
            }
            mask.fill(false);
            right.iter().for_each(|right| rhs.mark_present(*right, &mut mask));
            for left in left {
                if interval.is_due(mask.len()) {
                    self.budget.check()?;
                }
                for (value, there) in lhs.row_mut(*left).iter_mut().zip(&mask) {
                    *value = if *there == (op == BinaryOp::And) { *value } else { ABSENT };
                }
                if lhs.has_histograms() {
                    let hidden =
                        mask.iter().enumerate().filter(|(_, there)| **there != (op == BinaryOp::And));
                    for (step, _) in hidden {
                        lhs.take_histogram(*left, step);
                    }
                }
            }
        }
        lhs.drop_empty();
        Ok(lhs)
    }

    /// Evaluates `or`: the rows of the left side, and those of the right side at steps at which no
    /// row of the same group on the left is present.
    fn union(
        &self,
        groups: &MatchGroups,
        mut lhs: LabelledRows,
        rhs: &LabelledRows,
        mask: &mut [bool],
    ) -> Result<LabelledRows, QueryError> {
        let mut hidden: Vec<Option<usize>> = vec![None; rhs.len()];
        for group in (0..groups.len()).filter(|group| !groups.many.of(*group).is_empty()) {
            groups.one.of(group).iter().for_each(|row| hidden[*row] = Some(group));
        }
        lhs.reserve_rows(rhs.len())?;
        let mut interval = SeriesCheckInterval::default();
        for ((i, (head, row)), hidden) in rhs.iter().enumerate().zip(hidden) {
            if interval.is_due(mask.len()) {
                self.budget.check()?;
            }
            mask.fill(false);
            for left in hidden.map_or(&[][..], |group| groups.many.of(group)) {
                lhs.mark_present(*left, mask);
            }
            let target = lhs.push_absent(head.clone());
            for ((value, hidden), target) in row.iter().zip(&*mask).zip(target) {
                *target = if *hidden { ABSENT } else { *value };
            }
            copy_histograms(rhs, i, &mut lhs, |step| !mask[step])?;
        }
        lhs.recount()?;
        lhs.merge_duplicates(Duplicates::Merge)
    }
}

/// Copies the histograms of a row to the last row of `out`, at the steps that are `shown`.
fn copy_histograms(
    from: &LabelledRows,
    row: usize,
    out: &mut LabelledRows,
    shown: impl Fn(usize) -> bool,
) -> Result<(), QueryError> {
    let last = out.len() - 1;
    for (step, histogram) in from.row_histograms(row).filter(|(step, _)| shown(*step)) {
        out.put_histogram(last, step, Arc::clone(histogram))?;
    }
    Ok(())
}
