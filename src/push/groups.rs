//! The pushed groups of one organisation, and what each push, deletion, repetition and expiry
//! writes.
//!
//! Prometheus scrapes a Pushgateway again and again, so a pushed metric stays visible until it is
//! deleted. Here the samples of each group are repeated every [`REPEAT_MS`] instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exposition::{Exposition, PushBodyError};
use super::grouping::GroupingLabels;
use crate::model::{BatchBuilder, METRIC_NAME, MetricKind, Sample, Timestamp, stale_nan};

/// The most groups of an organisation, inclusive.
const GROUPS_MAX: usize = 1_000;
/// The most bytes of text of one group, inclusive.
const GROUP_TEXT_BYTES_MAX: usize = 8 << 20;
/// The most bytes of text of all groups of an organisation, inclusive.
const ORG_TEXT_BYTES_MAX: usize = 32 << 20;
/// The time between two samples of a group: a fifth of the default lookback of a query, like the
/// usual scrape interval.
const REPEAT_MS: i64 = 60_000;

/// The two metrics of each group about its pushes.
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

/// A change of a group: what is written to the store of samples, and the group afterwards.
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
        let metrics = match push.kind {
            PushKind::Replace => push.metrics,
            PushKind::Merge => old.clone().merged(push.metrics),
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
    /// to live is over.
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
mod tests {
    use super::*;
    use crate::ingest::DecodeLimits;
    use crate::ingest::text::Format;
    use crate::model::is_stale;
    use crate::push::PushFormat;

    fn labels(job: &str) -> GroupingLabels {
        GroupingLabels::parse(&format!("job/{job}")).expect("valid")
    }

    fn push(kind: PushKind, body: &str, ttl_ms: Option<i64>) -> Push {
        let format = PushFormat::Text(Format::Prometheus);
        let read = Exposition::read(body.as_bytes(), format, &labels("a"), &DecodeLimits::default());
        Push { kind, metrics: read.expect("valid"), ttl_ms }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_s(seconds)
    }

    /// The names and values of a batch; `-` is a staleness marker.
    fn written(change: &PushChange) -> Vec<String> {
        let batch = change.batch.batch();
        let mut all: Vec<String> = Vec::new();
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("valid");
            let text: Vec<_> = pairs.iter().map(|(_, value)| String::from_utf8_lossy(value)).collect();
            let value = batch.samples[series.samples.start].value;
            let value = if is_stale(value) { "-".to_owned() } else { value.to_string() };
            all.push(format!("{} {value}", text.join(",")));
        }
        all.sort();
        all
    }

    #[test]
    fn a_put_replaces_the_group_and_a_post_metrics_of_the_same_name() {
        let mut org = OrgPushes::default();
        let first = org
            .push(labels("a"), push(PushKind::Replace, "m 1\nn{x=\"1\"} 1\n", None), at(10))
            .expect("fits");
        assert_eq!(written(&first), ["m 1", "n,1 1", "push_failure_time_seconds 0", "push_time_seconds 10"]);
        org.apply(first);
        let merged =
            org.push(labels("a"), push(PushKind::Merge, "n{x=\"2\"} 2\n", None), at(20)).expect("fits");
        assert_eq!(
            written(&merged),
            ["m 1", "n,1 -", "n,2 2", "push_failure_time_seconds 0", "push_time_seconds 20"]
        );
        org.apply(merged);
        let replaced = org.push(labels("a"), push(PushKind::Replace, "o 3\n", None), at(30)).expect("fits");
        assert_eq!(
            written(&replaced),
            ["m -", "n,2 -", "o 3", "push_failure_time_seconds 0", "push_time_seconds 30"]
        );
        org.apply(replaced);
        let deleted = org.delete(&labels("a"), at(40)).expect("readable").expect("it exists");
        assert_eq!(written(&deleted), ["o -", "push_failure_time_seconds -", "push_time_seconds -"]);
        org.apply(deleted);
        assert_eq!(org.iter().count(), 0);
        assert_eq!(org.text_bytes, 0);
    }

    #[test]
    fn a_group_is_repeated_until_its_time_to_live_is_over() {
        let mut org = OrgPushes::default();
        let body = push(PushKind::Replace, "m 1\n", Some(150_000));
        let change = org.push(labels("a"), body, at(0)).expect("fits");
        org.apply(change);
        assert!(org.due(at(59)).is_empty());
        for second in [60, 120] {
            let due = org.due(at(second));
            assert_eq!(due, [labels("a")], "{second}");
            let repeated = org.repeat(&due[0], at(second)).expect("readable").expect("due");
            assert_eq!(written(&repeated), ["m 1", "push_failure_time_seconds 0", "push_time_seconds 0"]);
            assert_eq!(repeated.batch.batch().samples[0].at, at(second));
            org.apply(repeated);
        }
        let ended = org.repeat(&org.due(at(150))[0], at(150)).expect("readable").expect("due");
        assert!(ended.group.is_none());
        assert_eq!(written(&ended), ["m -", "push_failure_time_seconds -", "push_time_seconds -"]);
    }

    #[test]
    fn samples_of_a_group_never_share_a_time() {
        let mut org = OrgPushes::default();
        let change = org.push(labels("a"), push(PushKind::Replace, "m 1\n", None), at(10)).expect("fits");
        org.apply(change);
        let change = org.push(labels("a"), push(PushKind::Replace, "m 2\n", None), at(10)).expect("fits");
        assert_eq!(change.batch.batch().samples[0].at, at(10).plus_ms(1));
        org.apply(change);
        let deleted = org.delete(&labels("a"), at(9)).expect("readable").expect("it exists");
        assert_eq!(deleted.batch.batch().samples[0].at, at(10).plus_ms(2));
    }

    #[test]
    fn a_refused_push_is_recorded_and_keeps_the_metrics() {
        let mut org = OrgPushes::default();
        assert!(org.fail(&labels("a"), at(5)).is_none());
        let change = org.push(labels("a"), push(PushKind::Replace, "m 1\n", None), at(10)).expect("fits");
        org.apply(change);
        let failed = org.fail(&labels("a"), at(20)).expect("it exists");
        assert_eq!(written(&failed), ["push_failure_time_seconds 20", "push_time_seconds 10"]);
        org.apply(failed);
        let repeated = org.repeat(&labels("a"), at(90)).expect("readable");
        assert_eq!(repeated.map(|change| change.batch.len()), Some(3));
    }

    #[test]
    fn groups_are_bounded_in_number_and_bytes() {
        let mut org = OrgPushes::default();
        for n in 0..GROUPS_MAX {
            let change = org.push(labels(&n.to_string()), push(PushKind::Replace, "m 1\n", None), at(0));
            org.apply(change.expect("fits"));
        }
        let more = |org: &OrgPushes, job: &str, body: &str| {
            org.push(labels(job), push(PushKind::Replace, body, None), at(0)).map(|_| ())
        };
        assert_eq!(more(&org, "new", "m 1\n"), Err(PushError::Groups));
        assert_eq!(more(&org, "0", "m 2\n"), Ok(()));
        let line = format!("m{{x=\"{}\"}} 1\n", "y".repeat(GROUP_TEXT_BYTES_MAX));
        assert_eq!(more(&org, "0", &line), Err(PushError::Group));
        let line = format!("m{{x=\"{}\"}} 1\n", "y".repeat(GROUP_TEXT_BYTES_MAX - 100));
        for n in 0..3 {
            let change = org.push(labels(&n.to_string()), push(PushKind::Replace, &line, None), at(0));
            org.apply(change.expect("fits"));
        }
        assert_eq!(more(&org, "3", &line), Err(PushError::Org));
    }
    /// Each of the pushes is within the limits of a body.
    #[test]
    fn pushes_that_add_up_to_more_metrics_than_a_body_may_have_are_all_kept() {
        let mut org = OrgPushes::default();
        let families = DecodeLimits::default().metadata_max * 3 / 4;
        for prefix in ["a", "b"] {
            let mut body: String = (0..families).map(|n| format!("# TYPE {prefix}{n} gauge\n")).collect();
            body.push_str(&format!("{prefix} 1\n"));
            let change = org.push(labels("a"), push(PushKind::Merge, &body, None), at(10)).expect("fits");
            org.apply(change);
        }
        let repeated = org.repeat(&labels("a"), at(90)).expect("readable").expect("it exists");
        assert_eq!(written(&repeated), ["a 1", "b 1", "push_failure_time_seconds 0", "push_time_seconds 10"]);
    }

    #[test]
    fn labels_of_a_group_weigh_once_a_series_in_its_json_tree() {
        let group = |text: &str| PushGroup {
            number: 1,
            text: text.into(),
            ttl_ms: None,
            pushed_at: Timestamp::from_ms(0),
            failed_at: None,
            sent_at: None,
        };
        let long = labels(&"a".repeat(1_000));
        let one = group("# TYPE a gauge\na 1\n").json_bytes(&long);
        let two = group("# TYPE a gauge\na 1\nb 1\n").json_bytes(&long);
        assert!(one > 1_000 && (1_000..2_000).contains(&(two - one)), "{one} {two}");
        assert!(two - one > group("b 1\n").json_bytes(&labels("a")) - 100);
    }
}
