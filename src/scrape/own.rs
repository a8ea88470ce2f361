//! This server as a target. Its metrics are read in the process, and it is listed with the scraped
//! targets.

use std::sync::Arc;

use super::config::{ScrapeConfig, ScrapeFiles};
use super::discovery::TargetGroup;
use super::run::{ScrapeStatus, ScrapeTargetReport};
use super::service::{ScrapePool, ScrapeSource, ScrapeView};
use super::target::{JobTargets, job_targets};
use crate::model::{Labels, OrgId};

/// The job of this server.
const CONFIG: &str = "scrape_configs: [{job_name: promlet, scrape_interval: 15s}]";

/// This server as a target of an organisation.
#[derive(Clone, Debug)]
pub struct OwnTarget {
    /// The organisation that gets the samples.
    pub org: OrgId,
    /// The job with one target; see [`own_job`].
    pub job: Arc<JobTargets>,
    /// The state.
    pub status: ScrapeStatus,
}

/// Returns the job of this server. `instance` is the label of its samples, `scheme` is `http` or
/// `https`, and `address` is its host and port. `None` if they are no target.
pub fn own_job(instance: &str, scheme: &str, address: &str) -> Option<Arc<JobTargets>> {
    let config = ScrapeConfig::parse(CONFIG, &ScrapeFiles::Refused).ok()?;
    let labels = Labels::from_pairs([("instance", instance), ("__scheme__", scheme)]);
    let group = TargetGroup { targets: vec![address.to_owned()], labels };
    let targets = job_targets(config.jobs.first()?, [&group]);
    (targets.active.len() == 1).then(|| Arc::new(targets))
}

impl OwnTarget {
    /// Adds the target to those of its organisation.
    pub(super) fn add_to(&self, view: &mut ScrapeView) {
        let targets = Arc::clone(&self.job);
        let reports = targets
            .active
            .iter()
            .map(|target| ScrapeTargetReport { target: Arc::clone(target), status: self.status.clone() });
        view.reports.extend(reports);
        view.pools.push(ScrapePool { source: ScrapeSource::File, targets, discoveries: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_target_has_the_labels_of_its_samples_and_the_address_of_the_server() {
        let job = own_job("box", "http", "127.0.0.1:8095").expect("a target");
        let target = &job.active[0];
        assert_eq!(target.labels, Labels::from_pairs([("instance", "box"), ("job", "promlet")]));
        assert_eq!((target.url.as_str(), target.interval_ms), ("http://127.0.0.1:8095/metrics", 15_000));
        let secure = own_job("box", "https", "[::1]:8095").expect("a target");
        assert_eq!(secure.active[0].url, "https://[::1]:8095/metrics");
        assert!(own_job("box", "http", "a b").is_none());
        let own = OwnTarget { org: OrgId(1), job, status: ScrapeStatus::default() };
        let mut view = ScrapeView::default();
        own.add_to(&mut view);
        assert_eq!((view.pools.len(), view.reports.len()), (1, 1));
    }
}
