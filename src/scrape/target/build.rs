//! Builds targets from discovered labels: the labels before relabelling, relabelling, and the
//! checks of the result.
//!
//! Source: `scrape_config` and `relabel_config` in the documentation of Prometheus' configuration.
//! No default port is added to an address, as in Prometheus 3.

use std::borrow::Cow;
use std::sync::Arc;

use super::ScrapeTarget;
use super::url::{PARAM_PREFIX, path_and_query};
use crate::model::{DurationError, Labels, LabelsBuilder, TargetUrl, format_duration, parse_duration};
use crate::relabel::{LabelPairs, RelabelRule, RelabelRules};
use crate::scrape::config::ScrapeJob;

/// The label with the host and port of a target.
const ADDRESS: &str = "__address__";
/// The label with the scheme of the URL.
const SCHEME: &str = "__scheme__";
/// The label with the path of the URL.
const METRICS_PATH: &str = "__metrics_path__";
/// The label with the time from one scrape to the next.
const INTERVAL: &str = "__scrape_interval__";
/// The label with the longest time of a scrape.
const TIMEOUT: &str = "__scrape_timeout__";
/// The prefix of labels that samples do not get, those of discoveries (`__meta_`) included.
const INTERNAL_PREFIX: &str = "__";

/// The result of relabelling a discovered target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetOutcome {
    /// The target is scraped.
    Active(Box<ScrapeTarget>),
    /// A relabelling rule dropped the target.
    Dropped,
    /// The labels after relabelling are not a valid target, for this reason.
    Invalid(String),
}

/// Returns the labels of a target before relabelling. Labels of the target win over those of its
/// group, and both over those of the job.
pub fn discovered_labels(job: &ScrapeJob, address: &str, group: &Labels) -> Labels {
    let mut labels = group.to_builder();
    labels.set(ADDRESS, address);
    let of_target = labels.build();
    let mut labels = of_target.to_builder();
    let mut add = |name: &str, value: &str| {
        if of_target.get(name).is_none() {
            labels.set(name, value);
        }
    };
    add("job", &job.name);
    add(INTERVAL, &format_duration(job.interval_ms));
    add(TIMEOUT, &format_duration(job.timeout_ms));
    add(METRICS_PATH, &job.metrics_path);
    add(SCHEME, job.scheme.as_str());
    for (name, values) in &job.params {
        if let Some(first) = values.first() {
            add(&format!("{PARAM_PREFIX}{name}"), first);
        }
    }
    labels.build()
}

fn pairs_of(labels: &Labels) -> LabelPairs<'_> {
    labels.iter().map(|label| (Cow::Borrowed(label.name), Cow::Borrowed(label.value))).collect()
}

fn labels_of(pairs: &LabelPairs<'_>) -> Labels {
    Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value)))
}

/// Applies the rules of a job to discovered labels, and checks the result.
pub fn build_target(job: &Arc<ScrapeJob>, discovered: &Labels) -> TargetOutcome {
    let mut pairs = pairs_of(discovered);
    if !job.relabel.compiled.apply(&mut pairs) {
        return TargetOutcome::Dropped;
    }
    match checked_target(job, discovered, &labels_of(&pairs)) {
        Ok(target) => TargetOutcome::Active(Box::new(target)),
        Err(reason) => TargetOutcome::Invalid(reason),
    }
}

fn checked_target(
    job: &Arc<ScrapeJob>,
    discovered: &Labels,
    relabelled: &Labels,
) -> Result<ScrapeTarget, String> {
    let address = relabelled.value(ADDRESS);
    if address.is_empty() {
        return Err("no address".to_owned());
    }
    if address.contains(['/', '?', '#', '\\', '@']) {
        return Err(format!("{address:?} is not a valid hostname"));
    }
    let (interval_ms, timeout_ms) = times(relabelled)?;
    let scheme = relabelled.value(SCHEME);
    if !["http", "https"].contains(&scheme) {
        return Err(format!("unsupported protocol scheme {scheme:?}"));
    }
    let origin = format!("{scheme}://{address}");
    let base = TargetUrl::parse(&origin).map_err(|why| format!("{address:?}: {why}"))?;
    let path_and_query = path_and_query(job, relabelled, relabelled.value(METRICS_PATH));
    let labels = final_labels(relabelled, address);
    let url = format!("{origin}{path_and_query}");
    Ok(ScrapeTarget {
        job: Arc::clone(job),
        base,
        hash: stable_hash(&labels, &url),
        url,
        path_and_query,
        interval_ms,
        timeout_ms,
        labels,
        discovered: discovered.clone(),
    })
}

/// Returns interval and timeout in milliseconds.
fn times(labels: &Labels) -> Result<(i64, i64), String> {
    let parse = |what: &str, name: &str| {
        let text = labels.value(name);
        let ms = parse_duration(text).map_err(|error| match error {
            DurationError::Syntax(_) if text.is_empty() => {
                format!("error parsing scrape {what}: empty duration string")
            }
            error => format!("error parsing scrape {what}: {error}"),
        })?;
        if ms == 0 { Err(format!("scrape {what} cannot be 0")) } else { Ok(ms) }
    };
    let (interval_ms, timeout_ms) = (parse("interval", INTERVAL)?, parse("timeout", TIMEOUT)?);
    match timeout_ms > interval_ms {
        true => Err(format!(
            "scrape timeout cannot be greater than scrape interval ({:?} > {:?})",
            labels.value(TIMEOUT),
            labels.value(INTERVAL)
        )),
        false => Ok((interval_ms, timeout_ms)),
    }
}

/// Removes internal labels, and sets `instance` if it is absent.
fn final_labels(relabelled: &Labels, address: &str) -> Labels {
    let mut labels: LabelsBuilder =
        relabelled.filtered(|name| !name.starts_with(INTERNAL_PREFIX)).to_builder();
    if relabelled.get("instance").is_none() {
        labels.set("instance", address);
    }
    labels.build()
}

/// Returns the 64-bit FNV-1a hash of labels and a text, which is the same in every process.
pub(in crate::scrape) fn stable_hash(labels: &Labels, text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // A byte that does not occur in UTF-8 separates the texts.
    let texts = labels.iter().flat_map(|label| [label.name, label.value]).chain([text]);
    let bytes = texts.flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The labels of a target after one of its job's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelabelStep {
    /// The rule.
    pub rule: RelabelRule,
    /// The labels after it.
    pub labels: Labels,
    /// Whether the target is kept. After a rule that drops it there are no further steps.
    pub keep: bool,
}

/// Returns the labels after each rule of a job, up to the rule that drops the target, inclusive.
pub fn relabel_steps(job: &ScrapeJob, discovered: &Labels) -> Vec<RelabelStep> {
    let mut labels = discovered.clone();
    let mut steps = Vec::with_capacity(job.relabel.source.len());
    for rule in &job.relabel.source {
        // The rules of a job are compiled already, so these are valid and cached.
        let Ok(compiled) = RelabelRules::parse(std::slice::from_ref(rule)) else { break };
        let mut pairs = pairs_of(&labels);
        let keep = compiled.apply(&mut pairs);
        let after = labels_of(&pairs);
        labels = after;
        steps.push(RelabelStep { rule: rule.clone(), labels: labels.clone(), keep });
        if !keep {
            break;
        }
    }
    steps
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
