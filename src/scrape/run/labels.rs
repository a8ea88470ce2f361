//! The labels of a scraped series: those of its line, those of the target, and relabelling.

use std::borrow::Cow;

use super::error::ScrapeError;
use crate::ingest::exposition::normalized_float;
use crate::model::{Labels, METRIC_NAME, MetricKind, Refusal};
use crate::relabel::{LabelPairs, RelabelRules};
use crate::scrape::config::{NameValidation, ScrapeJob, ScrapeLimits};

/// The prefix of a scraped label whose name the target has, too.
const EXPORTED: &str = "exported_";

/// The result of relabelling a series.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SeriesFate<'a> {
    /// The labels are those of the line and [`LabelPolicy::added`], unchanged.
    Plain,
    /// Relabelling changed the labels to these.
    Changed(LabelPairs<'a>),
    /// Relabelling dropped the series.
    Dropped,
}

/// How the labels of a target's series are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelPolicy<'a> {
    pub(super) job: &'a ScrapeJob,
    /// The labels of the target.
    pub(super) target: &'a Labels,
}

impl<'a> LabelPolicy<'a> {
    /// Relabels a series with these labels, which are in the order of its line. `kind_of`
    /// returns the type of a family; `Unknown` if it has none.
    ///
    /// # Errors
    /// [`ScrapeError`], if the series may not be stored: it fails the whole scrape.
    pub(super) fn apply(
        self,
        sent: &[(&'a str, &'a str)],
        kind_of: &dyn Fn(&str) -> MetricKind,
    ) -> Result<SeriesFate<'a>, ScrapeError> {
        let mut pairs: LabelPairs<'a> =
            sent.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect();
        let mut is_plain = !normalize_bounds(&mut pairs, kind_of);
        is_plain &= !self.merge(&mut pairs);
        pairs.retain(|(_, value)| !value.is_empty());
        let Some(is_same) = relabel(&self.job.metric_relabel.compiled, &mut pairs) else {
            return Ok(SeriesFate::Dropped);
        };
        is_plain &= is_same;
        check(&pairs, &self.job.limits, self.job.name_validation)?;
        let external = &self.job.agent_relabel.external_labels;
        is_plain &= !sent.iter().any(|(name, _)| external.get(name).is_some());
        let Some(is_same) = self.relabel_of_agent(&mut pairs) else { return Ok(SeriesFate::Dropped) };
        Ok(if is_plain && is_same { SeriesFate::Plain } else { SeriesFate::Changed(pairs) })
    }

    /// Returns the labels that a plain series gets: those of the target, and the external labels
    /// that the target does not have.
    pub(super) fn added(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let external = self.job.agent_relabel.external_labels.iter();
        let absent = external.filter(move |label| self.target.get(label.name).is_none());
        self.target.iter().chain(absent).map(|label| (label.name, label.value))
    }

    /// Returns the labels of a series about the scrapes of the target; `None` if the rules of the
    /// agent drop it.
    pub(super) fn report(self, name: &'a str) -> Option<LabelPairs<'a>> {
        let pairs = std::iter::once((METRIC_NAME, name)).chain(self.added());
        let mut pairs: LabelPairs<'a> =
            pairs.map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))).collect();
        relabel(&self.job.agent_relabel.rules, &mut pairs).map(|_| pairs)
    }

    /// Adds the external labels that are absent, and applies the rules of the agent. Returns
    /// whether the rules changed nothing; `None` if they drop the series.
    fn relabel_of_agent(self, pairs: &mut LabelPairs<'a>) -> Option<bool> {
        let agent = &self.job.agent_relabel;
        for label in &agent.external_labels {
            if !pairs.iter().any(|(name, _)| name == label.name) {
                pairs.push((Cow::Borrowed(label.name), Cow::Borrowed(label.value)));
            }
        }
        relabel(&agent.rules, pairs)
    }

    /// Adds the labels of the target. Returns whether a name was in both.
    fn merge(self, pairs: &mut LabelPairs<'a>) -> bool {
        let own = pairs.len();
        let mut conflicts = Vec::new();
        for label in self.target {
            let place = pairs.iter().take(own).position(|(name, _)| name == label.name);
            match place {
                None => pairs.push((Cow::Borrowed(label.name), Cow::Borrowed(label.value))),
                Some(place) => conflicts.push((place, label)),
            }
        }
        if conflicts.is_empty() || self.job.honor_labels {
            // An empty label of a line removes that of the target.
            return !conflicts.is_empty();
        }
        let mut moved = Vec::new();
        for (place, label) in conflicts {
            if let Some((_, value)) = pairs.get_mut(place) {
                let sent = std::mem::replace(value, Cow::Borrowed(label.value));
                if !sent.is_empty() {
                    moved.push((label.name, sent));
                }
            }
        }
        // The shortest first, so that `exported_a` finds its place before `exported_exported_a`.
        moved.sort_by_key(|(name, _)| name.len());
        for (name, sent) in moved {
            let mut exported = [EXPORTED, name].concat();
            while pairs.iter().any(|(name, value)| *name == exported && !value.is_empty()) {
                exported.insert_str(0, EXPORTED);
            }
            pairs.retain(|(name, _)| *name != exported);
            pairs.push((Cow::Owned(exported), sent));
        }
        true
    }
}

/// Applies rules. Returns whether they changed nothing; `None` if they drop the series.
fn relabel(rules: &RelabelRules, pairs: &mut LabelPairs<'_>) -> Option<bool> {
    if rules.is_empty() {
        return Some(true);
    }
    let mut before = pairs.clone();
    if !rules.apply(pairs) {
        return None;
    }
    before.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Some(before == *pairs)
}

/// Writes the label `le` of classic histograms and `quantile` of summaries as OpenMetrics does, so
/// that it does not depend on the format. Returns whether one changed.
fn normalize_bounds(pairs: &mut LabelPairs<'_>, kind_of: &dyn Fn(&str) -> MetricKind) -> bool {
    let Some(place) = pairs.iter().position(|(name, _)| name == "le" || name == "quantile") else {
        return false;
    };
    let metric = pairs.iter().find(|(name, _)| name == METRIC_NAME).map_or("", |(_, value)| value);
    let (family, kind) = match pairs.get(place).map(|(name, _)| &**name) {
        Some("le") => (metric.strip_suffix("_bucket").unwrap_or(metric), MetricKind::Histogram),
        _ => (metric, MetricKind::Summary),
    };
    if kind_of(family) != kind {
        return false;
    }
    let Some((_, value)) = pairs.get_mut(place) else { return false };
    match normalized_float(value) {
        Some(normalized) => {
            *value = Cow::Owned(normalized);
            true
        }
        None => false,
    }
}

/// Checks the labels of a series against the limits of the job.
fn check(
    pairs: &LabelPairs<'_>,
    limits: &ScrapeLimits,
    validation: NameValidation,
) -> Result<(), ScrapeError> {
    let series = || Refusal::series_text(pairs.iter().map(|(name, value)| (&**name, &**value)));
    let invalid = |reason: &str| ScrapeError::Invalid { reason: reason.to_owned(), series: series() };
    let Some((_, metric)) = pairs.iter().find(|(name, _)| name == METRIC_NAME) else {
        return Err(invalid("a series has no metric name after relabelling"));
    };
    if validation == NameValidation::Legacy {
        let is_word = |text: &str, extra: &[u8]| {
            !text.starts_with(|c: char| c.is_ascii_digit())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || extra.contains(&b))
        };
        if !is_word(metric, b":") || pairs.iter().any(|(name, _)| !is_word(name, b"")) {
            return Err(invalid("a name is not valid (metric_name_validation_scheme: legacy)"));
        }
    }
    let exceeds = |found: usize, allowed: u64| allowed > 0 && found as u64 > allowed;
    let refuse = |what, found, allowed, limit| {
        Err(ScrapeError::LabelLimit { series: series(), what, found, allowed, limit })
    };
    if exceeds(pairs.len(), limits.label_limit) {
        return refuse("labels", pairs.len(), limits.label_limit, "label_limit");
    }
    for (name, value) in pairs {
        let (names, values) = (limits.label_name_length_limit, limits.label_value_length_limit);
        if exceeds(name.len(), names) {
            return refuse("bytes in a label name", name.len(), names, "label_name_length_limit");
        }
        if exceeds(value.len(), values) {
            return refuse("bytes in a label value", value.len(), values, "label_value_length_limit");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relabel::{RelabelRule, RelabelRules};
    use crate::scrape::run::target_run::tests::job;

    fn rules(json: &str) -> RelabelRules {
        let rules: Vec<RelabelRule> = serde_json::from_str(json).expect("rules");
        RelabelRules::parse(&rules).expect("valid")
    }

    fn of(
        job: &ScrapeJob,
        target: &[(&'static str, &'static str)],
        sent: &[(&'static str, &'static str)],
    ) -> String {
        let target = Labels::from_pairs(target.iter().copied());
        let kind_of = |family: &str| match family {
            "h" => MetricKind::Histogram,
            "s" => MetricKind::Summary,
            _ => MetricKind::Unknown,
        };
        match (LabelPolicy { job, target: &target }).apply(sent, &kind_of) {
            Ok(SeriesFate::Plain) => "plain".to_owned(),
            Ok(SeriesFate::Dropped) => "dropped".to_owned(),
            Ok(SeriesFate::Changed(mut pairs)) => {
                pairs.sort();
                pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_label_of_both_is_exported_or_wins_by_honor_labels() {
        let mut job = job();
        let target = [("instance", "i"), ("job", "j")];
        for (sent, exported, honored) in [
            (&[("__name__", "up"), ("a", "b")][..], "plain", "plain"),
            (
                &[("__name__", "up"), ("job", "own")],
                "__name__=up exported_job=own instance=i job=j",
                "__name__=up instance=i job=own",
            ),
            (
                &[("__name__", "up"), ("job", "own"), ("exported_job", "first")],
                "__name__=up exported_exported_job=own exported_job=first instance=i job=j",
                "__name__=up exported_job=first instance=i job=own",
            ),
            (&[("__name__", "up"), ("instance", "")], "__name__=up instance=i job=j", "__name__=up job=j"),
        ] {
            job.honor_labels = false;
            assert_eq!(of(&job, &target, sent), exported);
            job.honor_labels = true;
            assert_eq!(of(&job, &target, sent), honored);
        }
    }

    #[test]
    fn two_exported_names_do_not_collide() {
        let target = [("a", "1"), ("exported_a", "2")];
        let sent = [("__name__", "m"), ("exported_a", "x"), ("a", "y")];
        assert_eq!(
            of(&job(), &target, &sent),
            "__name__=m a=1 exported_a=2 exported_exported_a=y exported_exported_exported_a=x"
        );
    }

    #[test]
    fn bounds_of_histograms_and_summaries_are_written_as_in_openmetrics() {
        for (sent, expected) in [
            ([("__name__", "h_bucket"), ("le", "1")], "__name__=h_bucket le=1.0"),
            ([("__name__", "h_bucket"), ("le", "1.0")], "plain"),
            ([("__name__", "x_bucket"), ("le", "1")], "plain"),
            ([("__name__", "s"), ("quantile", "1")], "__name__=s quantile=1.0"),
            ([("__name__", "s"), ("le", "1")], "plain"),
        ] {
            assert_eq!(of(&job(), &[], &sent), expected, "{sent:?}");
        }
    }

    #[test]
    fn metric_relabelling_drops_changes_and_needs_a_name() {
        let mut job = job();
        job.metric_relabel.compiled = rules(
            r#"[{"source_labels": ["__name__"], "regex": "debug_.*", "action": "drop"},
                {"regex": "pod", "action": "labeldrop"},
                {"source_labels": ["lose"], "regex": "yes", "target_label": "__name__", "replacement": ""}]"#,
        );
        let target = [("job", "j")];
        assert_eq!(of(&job, &target, &[("__name__", "debug_x")]), "dropped");
        assert_eq!(of(&job, &target, &[("__name__", "x"), ("pod", "p")]), "__name__=x job=j");
        assert_eq!(of(&job, &target, &[("zone", "z"), ("__name__", "x")]), "plain");
        let lost = of(&job, &target, &[("__name__", "x"), ("lose", "yes")]);
        assert!(lost.contains("no metric name"), "{lost}");
    }

    #[test]
    fn limits_count_the_final_labels_and_name_the_series() {
        let mut job = job();
        let sent = [("__name__", "metric"), ("long_name", "v"), ("b", "a long value")];
        job.limits = ScrapeLimits { label_limit: 4, ..ScrapeLimits::default() };
        assert_eq!(of(&job, &[("job", "j")], &sent), "plain");
        job.limits.label_limit = 3;
        assert_eq!(
            of(&job, &[("job", "j")], &sent),
            r#"the series {__name__="metric", long_name="v", b="a long value", job="j"} has 4 labels; at most 3 are allowed (label_limit)"#
        );
        job.limits = ScrapeLimits { label_name_length_limit: 8, ..ScrapeLimits::default() };
        assert!(of(&job, &[], &sent).contains("9 bytes in a label name"));
        job.limits = ScrapeLimits { label_value_length_limit: 11, ..ScrapeLimits::default() };
        assert!(of(&job, &[], &sent).contains("12 bytes in a label value"));
        job.limits = ScrapeLimits::default();
        job.name_validation = NameValidation::Legacy;
        assert!(of(&job, &[], &[("__name__", "a.b")]).contains("legacy"));
        assert!(of(&job, &[], &[("__name__", "a"), ("b.c", "d")]).contains("legacy"));
        assert_eq!(of(&job, &[], &[("__name__", "a:b")]), "plain");
    }
}
