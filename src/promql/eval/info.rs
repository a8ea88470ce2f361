//! `info`: adds labels of info series, such as `target_info`, to series of the same instance and
//! job (Prometheus promql/info.go).
//!
//! Info series are grouped once by name, instance and job. At each step the newest sample of a
//! group selects the info series whose labels are used. The labels of all groups of a target are
//! added to a row's labels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::error::QueryError;
use crate::promql::plan::{InfoNode, Selector, SelectorOutput};
use crate::promql::syntax::tree::Span;

use super::Context;
use super::rows::{Duplicates, Grid, LabelledRows, Point, RowHead, is_absent};

/// Identifying labels of a target; Prometheus knows no others either.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// The values of the identifying labels of a series.
type TargetKey = [String; 2];

fn target(labels: &Labels) -> TargetKey {
    IDENTIFYING.map(|name| labels.value(name).to_owned())
}

/// The info series of one name and target: at each step the row whose labels are used.
struct InfoGroup {
    selected: Vec<Option<usize>>,
}

/// The info series of one row's target.
#[derive(Clone, Copy)]
struct TargetInfo<'i> {
    /// All info series.
    info: &'i LabelledRows,
    /// The groups of the target; empty if the row is an info series itself.
    groups: &'i [InfoGroup],
    /// The row is part of the result even without info series.
    optional: bool,
}

/// The output rows, and the index of each label set.
struct EnrichedRows {
    rows: LabelledRows,
    by_labels: HashMap<Labels, usize>,
}

impl Context<'_> {
    pub(super) fn info(&self, node: &InfoNode, grid: Grid) -> Result<LabelledRows, QueryError> {
        let base = self.vector(&node.arg, grid)?;
        let is_info: Vec<bool> = self.budget.pacing(None, |pace| {
            let is_info = |name: &str| {
                for test in &node.names {
                    if !test.matches_within(name, pace)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            base.heads.iter().map(|head| is_info(head.labels.value(METRIC_NAME))).collect()
        })?;
        let info = self.info_series(node, grid, &base, &is_info)?;
        let groups = grouped(&info, &present(&base))?;
        let optional = node.data.iter().all(|test| test.matches(""));
        let rows = LabelledRows::new(&self.meter, grid.len);
        let mut out = EnrichedRows { rows, by_labels: HashMap::new() };
        for (i, head) in base.heads.iter().enumerate() {
            self.budget.check()?;
            let candidates = groups.get(&target(&head.labels)).filter(|_| !is_info[i]);
            let candidates = candidates.map_or(&[][..], |groups| &groups[..]);
            let optional = optional || is_info[i];
            let target = TargetInfo { info: &info, groups: candidates, optional };
            self.add_row(node, &base, i, target, &mut out)?;
        }
        let EnrichedRows { rows: mut out, .. } = out;
        out.finish_all()?;
        out.merge_duplicates(Duplicates::Merge)
    }

    /// Returns the info series of the targets of `base`. The value of each sample is its own time
    /// in seconds.
    fn info_series(
        &self,
        node: &InfoNode,
        grid: Grid,
        base: &LabelledRows,
        is_info: &[bool],
    ) -> Result<LabelledRows, QueryError> {
        let mut candidates: [HashSet<&str>; 2] = Default::default();
        for (head, _) in base.heads.iter().zip(is_info).filter(|(_, is_info)| !**is_info) {
            for (name, candidates) in IDENTIFYING.into_iter().zip(&mut candidates) {
                let value = head.labels.value(name);
                if !value.is_empty() {
                    candidates.insert(value);
                }
            }
        }
        if candidates.iter().all(HashSet::is_empty) {
            return Ok(LabelledRows::new(&self.meter, grid.len));
        }
        let matchers = node.names.iter().chain(&node.data).cloned().collect();
        let selector = Selector {
            matchers,
            when: node.when,
            look: SelectorOutput::Time,
            counts_only: true,
            span: Span::default(),
        };
        let admit = |labels: &Labels| {
            let mut tests = IDENTIFYING.into_iter().zip(&candidates);
            tests.all(|(name, candidates)| candidates.is_empty() || candidates.contains(labels.value(name)))
        };
        if self.snapshot.has_histograms() {
            let values = Selector { look: SelectorOutput::Value, ..selector };
            let rows = self.select_where(&values, grid, &admit)?;
            if rows.has_histograms() {
                return Err(QueryError::execution("info sample should be float"));
            }
            return self.select_where(&Selector { look: SelectorOutput::Time, ..values }, grid, &admit);
        }
        self.select_where(&selector, grid, &admit)
    }

    /// Adds one row, divided into as many label sets as the info series yield over time.
    fn add_row(
        &self,
        node: &InfoNode,
        base: &LabelledRows,
        i: usize,
        target: TargetInfo<'_>,
        out: &mut EnrichedRows,
    ) -> Result<(), QueryError> {
        let TargetInfo { info, groups, optional } = target;
        let EnrichedRows { rows: out, by_labels } = out;
        let head = &base.heads[i];
        // The selected info series of the previous step and their output row: both rarely change.
        let mut last: Option<(Vec<Option<usize>>, usize)> = None;
        for step in 0..base.steps() {
            let Some(point) = base.point(i, step) else { continue };
            let selected: Vec<Option<usize>> = groups.iter().map(|group| group.selected_at(step)).collect();
            if !optional && selected.iter().all(Option::is_none) {
                continue;
            }
            let row = match &last {
                Some((before, row)) if *before == selected => *row,
                _ => {
                    let info_labels = selected.iter().flatten().map(|row| &info.heads[*row].labels);
                    let labels = enriched(&head.labels, info_labels, node)?;
                    let row = match by_labels.get(&labels) {
                        Some(row) => *row,
                        None => {
                            let drops_name = head.drops_name;
                            out.push_charged(RowHead { labels: labels.clone(), drops_name })?;
                            by_labels.insert(labels, out.len() - 1);
                            out.len() - 1
                        }
                    };
                    last = Some((selected, row));
                    row
                }
            };
            if out.point(row, step).is_some() {
                return Err(super::rows::same_labelset());
            }
            match point {
                Point::Float(value) => out.row_mut(row)[step] = value,
                Point::Histogram(histogram) => out.put_histogram(row, step, Arc::clone(histogram))?,
            }
        }
        Ok(())
    }
}

/// Returns the steps at which any row has a value. Info series are not needed at other steps.
fn present(rows: &LabelledRows) -> Vec<bool> {
    let mut present = vec![false; rows.steps()];
    (0..rows.len()).for_each(|i| rows.mark_present(i, &mut present));
    present
}

/// Returns the groups of each target in the order of names.
fn grouped(info: &LabelledRows, active: &[bool]) -> Result<HashMap<TargetKey, Vec<InfoGroup>>, QueryError> {
    let mut targets: HashMap<TargetKey, BTreeMap<&str, InfoGroup>> = HashMap::new();
    for (i, head) in info.heads.iter().enumerate() {
        let groups = targets.entry(target(&head.labels)).or_default();
        let group = groups
            .entry(head.labels.value(METRIC_NAME))
            .or_insert_with(|| InfoGroup { selected: vec![None; info.steps()] });
        group.select(info, i, active)?;
    }
    Ok(targets.into_iter().map(|(target, names)| (target, names.into_values().collect())).collect())
}

impl InfoGroup {
    fn selected_at(&self, step: usize) -> Option<usize> {
        self.selected.get(step).copied().flatten()
    }

    /// Selects `row` at the steps at which its sample is the newest of the group. Fails if two
    /// samples have the same time.
    fn select(&mut self, info: &LabelledRows, row: usize, active: &[bool]) -> Result<(), QueryError> {
        let steps = info.row(row).iter().zip(active).enumerate();
        for (step, (at, _)) in steps.filter(|(_, (at, active))| **active && !is_absent(**at)) {
            if let Some(other) = self.selected_at(step) {
                let newest = info.row(other)[step];
                if newest > *at {
                    continue;
                }
                if newest == *at {
                    let (other, this) = (&info.heads[other].labels, &info.heads[row].labels);
                    let ms = at * 1_000.0;
                    return Err(QueryError::execution(format!(
                        "found duplicate series for info metric: existing {other} @ {ms:.0}, new {this} @ {ms:.0}"
                    )));
                }
            }
            self.selected[step] = Some(row);
        }
        Ok(())
    }
}

/// Returns the labels of a row with the selected labels of info series that it lacks.
fn enriched<'l>(
    labels: &Labels,
    info_labels: impl Iterator<Item = &'l Labels>,
    node: &InfoNode,
) -> Result<Labels, QueryError> {
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    for info in info_labels {
        for label in info.iter() {
            let (name, value) = (label.name, label.value);
            let is_selected = node.data.is_empty() || node.data.iter().any(|test| test.name() == name);
            if name == METRIC_NAME || !is_selected {
                continue;
            }
            if added.get(name).is_some_and(|other| *other != value) {
                return Err(QueryError::execution(format!("conflicting label: {name}")));
            }
            if labels.value(name).is_empty() {
                added.insert(name, value);
            }
        }
    }
    if added.is_empty() {
        return Ok(labels.clone());
    }
    let mut builder = labels.to_builder();
    for (name, value) in added {
        builder.set(name, value);
    }
    Ok(builder.build())
}
