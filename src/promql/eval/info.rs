//! `info`: labels of info series, such as `target_info`, are added to the series of the same instance and job
//! (prometheus promql/info.go).
//!
//! Info series are grouped once by name, instance and job. At each step the newest sample of a group speaks for it; what
//! the groups say together is added to a row's labels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::QueryError;
use crate::promql::plan::{InfoNode, Selector, SelectorOutput};
use crate::promql::syntax::tree::Span;

use super::Context;
use super::rows::{Duplicates, Grid, Head, Point, Rows, is_absent};

/// What identifies a target; upstream knows no others either.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// Which target a series is of.
type Target = [String; 2];

fn target(labels: &Labels) -> Target {
    IDENTIFYING.map(|name| labels.value(name).to_owned())
}

/// The info series of one name and target: for each step the row that speaks.
struct Group {
    speaks: Vec<Option<usize>>,
}

impl Context<'_> {
    pub(super) fn info(&self, node: &InfoNode, grid: Grid) -> Result<Rows, QueryError> {
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
        let mut out = Rows::new(&self.meter, grid.len);
        let mut places: HashMap<Labels, usize> = HashMap::new();
        for (i, head) in base.heads.iter().enumerate() {
            self.budget.check()?;
            let known = groups.get(&target(&head.labels)).filter(|_| !is_info[i]);
            let known = known.map_or(&[][..], |groups| &groups[..]);
            let optional = optional || is_info[i];
            self.tell(node, (&base, i), (&info, known, optional), (&mut out, &mut places))?;
        }
        out.settle_all()?;
        out.merged(Duplicates::Merge)
    }

    /// The info series that may speak, each sample its own time in seconds.
    fn info_series(
        &self,
        node: &InfoNode,
        grid: Grid,
        base: &Rows,
        is_info: &[bool],
    ) -> Result<Rows, QueryError> {
        let mut known: [HashSet<&str>; 2] = Default::default();
        for (head, _) in base.heads.iter().zip(is_info).filter(|(_, is_info)| !**is_info) {
            for (name, known) in IDENTIFYING.into_iter().zip(&mut known) {
                let value = head.labels.value(name);
                if !value.is_empty() {
                    known.insert(value);
                }
            }
        }
        if known.iter().all(HashSet::is_empty) {
            return Ok(Rows::new(&self.meter, grid.len));
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
            let mut tests = IDENTIFYING.into_iter().zip(&known);
            tests.all(|(name, known)| known.is_empty() || known.contains(labels.value(name)))
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

    /// Adds one row, under as many label sets as info series say different things over time.
    fn tell(
        &self,
        node: &InfoNode,
        (base, i): (&Rows, usize),
        (info, groups, optional): (&Rows, &[Group], bool),
        (out, places): (&mut Rows, &mut HashMap<Labels, usize>),
    ) -> Result<(), QueryError> {
        let head = &base.heads[i];
        // Who spoke last, and the row it led to: that changes rarely.
        let mut last: Option<(Vec<Option<usize>>, usize)> = None;
        for step in 0..base.steps() {
            let Some(point) = base.point(i, step) else { continue };
            let speakers: Vec<Option<usize>> = groups.iter().map(|group| group.speaker(step)).collect();
            if !optional && speakers.iter().all(Option::is_none) {
                continue;
            }
            let place = match &last {
                Some((before, place)) if *before == speakers => *place,
                _ => {
                    let said = speakers.iter().flatten().map(|row| &info.heads[*row].labels);
                    let labels = enriched(&head.labels, said, node)?;
                    let place = match places.get(&labels) {
                        Some(place) => *place,
                        None => {
                            let drops_name = head.drops_name;
                            out.push_paid(Head { labels: labels.clone(), drops_name })?;
                            places.insert(labels, out.len() - 1);
                            out.len() - 1
                        }
                    };
                    last = Some((speakers, place));
                    place
                }
            };
            if out.point(place, step).is_some() {
                return Err(super::rows::same_labelset());
            }
            match point {
                Point::Float(value) => out.row_mut(place)[step] = value,
                Point::Histogram(histogram) => out.put_histogram(place, step, Arc::clone(histogram))?,
            }
        }
        Ok(())
    }
}

/// Steps at which any row has a value: nothing is asked of info series at others.
fn present(rows: &Rows) -> Vec<bool> {
    let mut present = vec![false; rows.steps()];
    (0..rows.len()).for_each(|i| rows.mark_present(i, &mut present));
    present
}

/// The groups of each target, in order of name.
fn grouped(info: &Rows, active: &[bool]) -> Result<HashMap<Target, Vec<Group>>, QueryError> {
    let mut targets: HashMap<Target, BTreeMap<&str, Group>> = HashMap::new();
    for (i, head) in info.heads.iter().enumerate() {
        let groups = targets.entry(target(&head.labels)).or_default();
        let group = groups
            .entry(head.labels.value(METRIC_NAME))
            .or_insert_with(|| Group { speaks: vec![None; info.steps()] });
        group.hear(info, i, active)?;
    }
    Ok(targets.into_iter().map(|(target, names)| (target, names.into_values().collect())).collect())
}

impl Group {
    fn speaker(&self, step: usize) -> Option<usize> {
        self.speaks.get(step).copied().flatten()
    }

    /// At each step the row with the newest sample speaks. Two of the same time contradict each other.
    fn hear(&mut self, info: &Rows, row: usize, active: &[bool]) -> Result<(), QueryError> {
        let steps = info.row(row).iter().zip(active).enumerate();
        for (step, (at, _)) in steps.filter(|(_, (at, active))| **active && !is_absent(**at)) {
            if let Some(other) = self.speaker(step) {
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
            self.speaks[step] = Some(row);
        }
        Ok(())
    }
}

/// The labels, and those of info series that are not there yet and were asked for.
fn enriched<'l>(
    labels: &Labels,
    said: impl Iterator<Item = &'l Labels>,
    node: &InfoNode,
) -> Result<Labels, QueryError> {
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    for info in said {
        for label in info.iter() {
            let (name, value) = (label.name, label.value);
            let wanted = node.data.is_empty() || node.data.iter().any(|test| test.name() == name);
            if name == METRIC_NAME || !wanted {
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
