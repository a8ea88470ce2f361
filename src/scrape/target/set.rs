//! The targets of a job, from the groups of all its discoveries.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{ScrapeTarget, TargetOutcome, build_target, discovered_labels};
use crate::model::Labels;
use crate::scrape::config::ScrapeJob;
use crate::scrape::discovery::TargetGroup;

/// The most targets of a job before relabelling, inclusive. Further ones are left out and counted.
pub const TARGETS_PER_JOB_MAX: usize = 50_000;
/// The most active targets of a configuration, inclusive. Further ones are left out and counted.
pub const TARGETS_MAX: usize = 100_000;
/// The most dropped targets of a job that are kept for display, inclusive.
const DROPPED_MAX: usize = 1_000;
/// The most invalid and the most duplicate targets of a job that are kept for display, inclusive.
const REPORTED_MAX: usize = 100;

/// A target whose labels after relabelling are not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidScrapeTarget {
    /// The labels before relabelling.
    pub discovered: Labels,
    /// The reason.
    pub reason: String,
}

/// The targets of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTargets {
    /// The job.
    pub job: Arc<ScrapeJob>,
    /// The targets that are scraped, in the order of their discovery, without duplicates.
    pub active: Vec<Arc<ScrapeTarget>>,
    /// The labels before relabelling of the first targets that rules dropped.
    pub dropped: Vec<Labels>,
    /// The number of targets that rules dropped.
    pub dropped_count: usize,
    /// The first targets that are not valid.
    pub invalid: Vec<InvalidScrapeTarget>,
    /// The number of targets that are not valid.
    pub invalid_count: usize,
    /// The labels before relabelling of the first targets that equal an earlier one.
    pub duplicates: Vec<Labels>,
    /// The number of targets that equal an earlier one.
    pub duplicate_count: usize,
    /// The first label sets that several active targets with different URLs share, so that their
    /// samples contradict each other.
    pub shared_labels: Vec<Labels>,
    /// The number of targets beyond [`TARGETS_PER_JOB_MAX`] or [`TARGETS_MAX`].
    pub excess_count: usize,
    /// The reason why every scrape of this job fails: more targets than `target_limit`.
    pub failure: Option<String>,
}

impl JobTargets {
    fn new(job: &Arc<ScrapeJob>) -> JobTargets {
        JobTargets {
            job: Arc::clone(job),
            active: Vec::new(),
            dropped: Vec::new(),
            dropped_count: 0,
            invalid: Vec::new(),
            invalid_count: 0,
            duplicates: Vec::new(),
            duplicate_count: 0,
            shared_labels: Vec::new(),
            excess_count: 0,
            failure: None,
        }
    }

    /// Leaves out the active targets after the first `count`.
    pub(in crate::scrape) fn limit_active(&mut self, count: usize) {
        self.excess_count += self.active.len().saturating_sub(count);
        self.active.truncate(count);
    }
}

fn push_bounded<T>(list: &mut Vec<T>, max: usize, value: T) {
    if list.len() < max {
        list.push(value);
    }
}

/// Builds the targets of a job.
pub fn job_targets<'g>(
    job: &Arc<ScrapeJob>,
    groups: impl IntoIterator<Item = &'g TargetGroup>,
) -> JobTargets {
    let mut set = JobTargets::new(job);
    let mut known: HashSet<u64> = HashSet::new();
    let mut by_labels: HashMap<Labels, usize> = HashMap::new();
    let kept = match usize::try_from(job.limits.keep_dropped_targets) {
        Ok(0) | Err(_) => DROPPED_MAX,
        Ok(limit) => limit.min(DROPPED_MAX),
    };
    let targets = groups
        .into_iter()
        .flat_map(|group| group.targets.iter().map(move |address| (address, &group.labels)));
    for (place, (address, labels)) in targets.enumerate() {
        if place >= TARGETS_PER_JOB_MAX {
            set.excess_count += 1;
            continue;
        }
        let discovered = discovered_labels(job, address, labels);
        match build_target(job, &discovered) {
            TargetOutcome::Active(target) if !known.insert(target.hash) => {
                set.duplicate_count += 1;
                push_bounded(&mut set.duplicates, REPORTED_MAX, discovered);
            }
            TargetOutcome::Active(target) => {
                let count = by_labels.entry(target.labels.clone()).or_default();
                *count += 1;
                if *count == 2 {
                    push_bounded(&mut set.shared_labels, REPORTED_MAX, target.labels.clone());
                }
                set.active.push(Arc::from(target));
            }
            TargetOutcome::Dropped => {
                set.dropped_count += 1;
                push_bounded(&mut set.dropped, kept, discovered);
            }
            TargetOutcome::Invalid(reason) => {
                set.invalid_count += 1;
                push_bounded(&mut set.invalid, REPORTED_MAX, InvalidScrapeTarget { discovered, reason });
            }
        }
    }
    let limit = job.limits.target_limit;
    if limit > 0 && set.active.len() as u64 > limit {
        let count = set.active.len();
        set.failure = Some(format!("target_limit exceeded (number of targets: {count}, limit: {limit})"));
    }
    set
}
