//! The pushed groups of one organisation, and the samples that each push, deletion, repetition and
//! expiry writes.
//!
//! Prometheus scrapes a Pushgateway again and again, so a pushed metric stays visible until it is
//! deleted. Here the samples of each group are repeated every [`REPEAT_MS`] instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exposition::{Exposition, PushBodyError};
use super::grouping::GroupingLabels;
use crate::model::{BatchBuilder, METRIC_NAME, MetricKind, Sample, Timestamp, WriteBatch, stale_nan};

/// The most groups of an organisation, inclusive.
const GROUPS_MAX: usize = 1_000;
/// The most bytes of text of one group, inclusive.
const GROUP_TEXT_BYTES_MAX: usize = 8 << 20;
/// The most bytes of text of all groups of an organisation, inclusive.
const ORG_TEXT_BYTES_MAX: usize = 32 << 20;
/// The time between two samples of a group: a fifth of the default lookback of a query, like the
/// usual scrape interval.
const REPEAT_MS: i64 = 60_000;

/// The two metrics of each group about its pushes. A pushed metric of the same name is left out, as
/// a Pushgateway replaces it.
const PUSH_TIME: &str = "push_time_seconds";
const FAILURE_TIME: &str = "push_failure_time_seconds";

/// A pushed group.
#[derive(Clone, Debug, PartialEq)]
pub struct PushGroup {
    /// The number of the stored row, from 1.
    pub number: u64,
    /// The metrics, in the text format of [`Exposition::to_text`].
    pub text: Arc<str>,
    /// The time from a push to the end of the group, in milliseconds; `None` means without end.
    pub ttl_ms: Option<i64>,
    /// The time of the last push that was stored.
    pub pushed_at: Timestamp,
    /// The time of the last push that was refused.
    pub failed_at: Option<Timestamp>,
    /// The time of the newest samples, if they were written since the start of the server.
    pub sent_at: Option<Timestamp>,
}

impl PushGroup {
    /// Returns whether the group has ended.
    fn has_ended(&self, now: Timestamp) -> bool {
        self.ttl_ms.is_some_and(|ttl_ms| now.ms_since(self.pushed_at) >= ttl_ms)
    }

    /// Returns a time for new samples: now, but later than the newest samples.
    fn next_at(&self, now: Timestamp) -> Timestamp {
        self.sent_at.map_or(now, |sent| now.max(sent.plus_ms(1)))
    }

    /// Estimates the bytes of the group as a tree of JSON, in which each series has its own labels
    /// and those of the group.
    pub fn json_bytes(&self, labels: &GroupingLabels) -> u64 {
        /// The memory of a value in the tree besides its text.
        const VALUE_BYTES: usize = 64;
        let own: usize = labels.iter().map(|(name, value)| name.len() + value.len() + VALUE_BYTES).sum();
        // Each series is a line. Short texts of the body grow to values of the tree.
        let lines = self.text.lines().filter(|line| !line.starts_with('#')).count();
        let series = lines.saturating_mul(own + 4 * VALUE_BYTES);
        series.saturating_add(self.text.len().saturating_mul(4)) as u64
    }

    /// Reads the metrics from the text.
    ///
    /// # Errors
    /// [`PushBodyError`], if there is too little memory. The text was written from valid metrics,
    /// and damage of the disk is noticed when rows are read.
    pub fn metrics(&self, labels: &GroupingLabels) -> Result<Exposition, PushBodyError> {
        Exposition::of_stored(self.text.as_bytes(), labels)
    }
}

/// How a push treats the other metrics of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushKind {
    /// `PUT`: the group has the pushed metrics only.
    Replace,
    /// `POST`: metrics of other names are kept.
    Merge,
}

/// A push.
#[derive(Clone, Debug)]
pub struct Push {
    /// How other metrics of the group are treated.
    pub kind: PushKind,
    /// The metrics.
    pub metrics: Exposition,
    /// See [`PushGroup::ttl_ms`].
    pub ttl_ms: Option<i64>,
}

/// The reason why a push changes nothing: it exceeds a limit, or its group cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PushError {
    /// Too many groups.
    #[error("an organisation has at most {GROUPS_MAX} pushed groups: delete some, or push with a ttl")]
    Groups,
    /// The group is too large.
    #[error("the metrics of a pushed group have at most {GROUP_TEXT_BYTES_MAX} bytes as text")]
    Group,
    /// All groups together are too large.
    #[error("the pushed groups of an organisation have at most {ORG_TEXT_BYTES_MAX} bytes as text")]
    Org,
    /// The metrics that the group has cannot be read.
    #[error(transparent)]
    Unreadable(#[from] PushBodyError),
}

/// A change of a group: the samples that are written, and the group afterwards.
#[derive(Debug)]
pub struct PushChange {
    /// The labels of the group, which are the forced labels of the batch.
    pub labels: GroupingLabels,
    /// The samples.
    pub batch: BatchBuilder,
    /// The group afterwards; `None` if it is removed.
    pub group: Option<PushGroup>,
    /// The number of the group.
    pub number: u64,
}

impl PushChange {
    /// Returns the samples, with the labels of the group as forced labels.
    pub fn forced_batch(&self) -> WriteBatch<'_> {
        let mut batch = self.batch.batch();
        batch.forced_labels = self.labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
        batch
    }
}

/// The pushed groups of an organisation.
#[derive(Debug, Default)]
pub struct OrgPushes {
    groups: BTreeMap<GroupingLabels, PushGroup>,
    text_bytes: usize,
    last_number: u64,
}

impl OrgPushes {
    /// Adds a group that was stored.
    pub fn load(&mut self, labels: GroupingLabels, group: PushGroup) {
        self.last_number = self.last_number.max(group.number);
        self.put(labels, group);
    }

    fn put(&mut self, labels: GroupingLabels, group: PushGroup) {
        let added = group.text.len();
        let removed = self.groups.insert(labels, group).map_or(0, |before| before.text.len());
        self.text_bytes = (self.text_bytes + added).saturating_sub(removed);
    }

    /// Returns the groups in order of their labels.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupingLabels, &PushGroup)> {
        self.groups.iter()
    }

    /// Returns the change of a push. Call [`OrgPushes::apply`] once the samples and the group are
    /// stored.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn push(&self, labels: GroupingLabels, push: Push, now: Timestamp) -> Result<PushChange, PushError> {
        let before = self.groups.get(&labels);
        if before.is_none() && self.groups.len() >= GROUPS_MAX {
            return Err(PushError::Groups);
        }
        let old = before.map(|group| group.metrics(&labels)).transpose()?.unwrap_or_default();
        let pushed = push.metrics.without(&[PUSH_TIME, FAILURE_TIME]);
        let metrics = match push.kind {
            PushKind::Replace => pushed,
            PushKind::Merge => old.clone().merged(pushed),
        };
        let text: Arc<str> = metrics.to_text().into();
        if text.len() > GROUP_TEXT_BYTES_MAX {
            return Err(PushError::Group);
        }
        let others = self.text_bytes.saturating_sub(before.map_or(0, |group| group.text.len()));
        if others.saturating_add(text.len()) > ORG_TEXT_BYTES_MAX {
            return Err(PushError::Org);
        }
        let number = before.map_or(self.last_number + 1, |group| group.number);
        let at = before.map_or(now, |group| group.next_at(now));
        let group = PushGroup {
            number,
            text,
            ttl_ms: push.ttl_ms,
            pushed_at: now,
            failed_at: before.and_then(|group| group.failed_at),
            sent_at: Some(at),
        };
        let mut batch = BatchBuilder::default();
        metrics.write(at, true, &mut batch);
        old.write_stale(&metrics, at, &mut batch);
        write_times(&group, at, true, &mut batch);
        Ok(PushChange { labels, batch, group: Some(group), number })
    }

    /// Returns the change of a refused push: the time of the failure. `None` if there is no such
    /// group.
    pub fn fail(&self, labels: &GroupingLabels, now: Timestamp) -> Option<PushChange> {
        let before = self.groups.get(labels)?;
        let at = before.next_at(now);
        let group = PushGroup { failed_at: Some(now), sent_at: Some(at), ..before.clone() };
        let mut batch = BatchBuilder::default();
        write_times(&group, at, false, &mut batch);
        Some(PushChange { labels: labels.clone(), batch, number: group.number, group: Some(group) })
    }

    /// Returns the change of a deletion: the series of it become stale; `None` if there is no
    /// such group.
    ///
    /// # Errors
    /// [`PushBodyError`], if the group cannot be read.
    pub fn delete(
        &self,
        labels: &GroupingLabels,
        now: Timestamp,
    ) -> Result<Option<PushChange>, PushBodyError> {
        let Some(before) = self.groups.get(labels) else { return Ok(None) };
        let at = before.next_at(now);
        let mut batch = BatchBuilder::default();
        before.metrics(labels)?.write_stale(&Exposition::default(), at, &mut batch);
        for name in [PUSH_TIME, FAILURE_TIME] {
            batch.series_of([(METRIC_NAME, name)], [Sample { at, value: stale_nan() }]);
        }
        Ok(Some(PushChange { labels: labels.clone(), batch, group: None, number: before.number }))
    }

    /// Returns the groups that are due: their samples are older than [`REPEAT_MS`], or their time
    /// to live has ended.
    pub fn due(&self, now: Timestamp) -> Vec<GroupingLabels> {
        let is_due = |group: &PushGroup| {
            group.has_ended(now) || group.sent_at.is_none_or(|sent| now.ms_since(sent) >= REPEAT_MS)
        };
        self.groups.iter().filter(|(_, group)| is_due(group)).map(|(labels, _)| labels.clone()).collect()
    }

    /// Returns the change of a group that is due: the repetition of its samples, or its end. Only
    /// the latter changes the stored row. `None` if there is no such group.
    ///
    /// # Errors
    /// [`PushBodyError`], if the group cannot be read.
    pub fn repeat(
        &self,
        labels: &GroupingLabels,
        now: Timestamp,
    ) -> Result<Option<PushChange>, PushBodyError> {
        let Some(before) = self.groups.get(labels) else { return Ok(None) };
        if before.has_ended(now) {
            return self.delete(labels, now);
        }
        let at = before.next_at(now);
        let mut batch = BatchBuilder::default();
        before.metrics(labels)?.write(at, false, &mut batch);
        let group = PushGroup { sent_at: Some(at), ..before.clone() };
        write_times(&group, at, false, &mut batch);
        Ok(Some(PushChange { labels: labels.clone(), batch, number: group.number, group: Some(group) }))
    }

    /// Applies a change.
    pub fn apply(&mut self, change: PushChange) {
        match change.group {
            Some(group) => {
                self.last_number = self.last_number.max(group.number);
                self.put(change.labels, group);
            }
            None => {
                let removed = self.groups.remove(&change.labels).map_or(0, |group| group.text.len());
                self.text_bytes = self.text_bytes.saturating_sub(removed);
            }
        }
    }
}

fn write_times(group: &PushGroup, at: Timestamp, describes: bool, batch: &mut BatchBuilder) {
    let seconds = |time: Timestamp| Sample { at, value: time.as_seconds() };
    let failed = group.failed_at.map_or(Sample { at, value: 0.0 }, seconds);
    batch.series_of([(METRIC_NAME, PUSH_TIME)], [seconds(group.pushed_at)]);
    batch.series_of([(METRIC_NAME, FAILURE_TIME)], [failed]);
    if describes {
        let last = "The last Unix time when changing this group in the Pushgateway";
        batch.describe(PUSH_TIME, MetricKind::Gauge, &format!("{last} succeeded."), "");
        batch.describe(FAILURE_TIME, MetricKind::Gauge, &format!("{last} failed."), "");
    }
}

#[cfg(test)]
mod tests;
