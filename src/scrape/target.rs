//! A target: one URL that is scraped, with the labels that its samples get.

mod build;
mod set;
mod url;

pub(super) use build::stable_hash;
pub use build::{RelabelStep, TargetOutcome, build_target, discovered_labels, relabel_steps};
pub use set::{InvalidScrapeTarget, JobTargets, TARGETS_MAX, TARGETS_PER_JOB_MAX, job_targets};

use std::sync::Arc;

use super::config::ScrapeJob;
use crate::model::{Labels, TargetUrl};

/// A target after relabelling. Two targets of a job are the same if their `hash` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeTarget {
    /// The job.
    pub job: Arc<ScrapeJob>,
    /// The URL as it is shown, with the query: `http://localhost:9100/metrics?a=b`.
    pub url: String,
    /// Scheme, host and port of the URL.
    pub base: TargetUrl,
    /// Path and query of the URL; begins with `/`.
    pub path_and_query: String,
    /// The time from one scrape to the next, in milliseconds; at least 1.
    pub interval_ms: i64,
    /// The longest time of a scrape, in milliseconds; from 1 to the interval, inclusive.
    pub timeout_ms: i64,
    /// The labels of each sample: sorted, with `job` and `instance`, without those that begin with
    /// `__`.
    pub labels: Labels,
    /// The labels before relabelling.
    pub discovered: Labels,
    /// The hash of `labels` and `url`. It is the same in every process, so that the offset of a
    /// target's scrapes survives a restart.
    pub hash: u64,
}
