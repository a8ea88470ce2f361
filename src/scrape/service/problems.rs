//! The problems of the targets of a configuration, in the log of the program.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::scrape::discovery::DiscoveredTargets;
use crate::scrape::target::JobTargets;

/// The problems that were reported since a configuration was taken over. The targets change again
/// and again, and each problem of a job is reported once.
#[derive(Debug, Default)]
pub(super) struct ReportedProblems(BTreeSet<(Arc<str>, &'static str)>);

impl ReportedProblems {
    /// Logs the problems of the targets that were not logged yet.
    pub(super) fn report(&mut self, targets: &DiscoveredTargets) {
        for (job, text) in self.new_ones(&targets.jobs) {
            tracing::warn!(job = &*job, "{text}");
        }
    }

    /// Returns the job and the text of each new problem.
    fn new_ones(&mut self, jobs: &[Arc<JobTargets>]) -> Vec<(Arc<str>, String)> {
        let mut found = Vec::new();
        for job in jobs {
            let name = &job.job.name;
            for (kind, text) in problems_of(job) {
                if self.0.insert((Arc::clone(name), kind)) {
                    found.push((Arc::clone(name), text));
                }
            }
        }
        found
    }
}

/// Returns the kind and the text of each problem of the targets of a job.
fn problems_of(job: &JobTargets) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if let Some(failure) = &job.failure {
        found.push(("failure", format!("every scrape of this job fails: {failure}")));
    }
    if let Some(first) = job.invalid.first() {
        let (count, reason) = (job.invalid_count, &first.reason);
        found.push(("invalid", format!("{count} targets are not valid; the first one: {reason}")));
    }
    if let Some(first) = job.duplicates.first() {
        let (count, address) = (job.duplicate_count, first.value("__address__"));
        let text =
            format!("{count} targets are given more than once, and scraped once; the first one: {address}");
        found.push(("duplicates", text));
    }
    if let Some(first) = job.shared_labels.first() {
        let text =
            format!("several targets have the same labels {first}, so their samples contradict each other");
        found.push(("shared_labels", text));
    }
    if job.excess_count > 0 {
        found.push(("excess", format!("{} targets beyond the limit are not scraped", job.excess_count)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::config::{ScrapeConfig, ScrapeFiles};
    use crate::scrape::target::job_targets;

    #[test]
    fn each_problem_of_a_job_is_reported_once_for_a_configuration() {
        let config = ScrapeConfig::parse("scrape_configs:\n- job_name: a\n", &ScrapeFiles::Refused);
        let config = config.expect("valid");
        let targets = |excess_count, failure: Option<&str>| {
            let failure = failure.map(str::to_owned);
            vec![Arc::new(JobTargets { excess_count, failure, ..job_targets(&config.jobs[0], []) })]
        };
        let mut reported = ReportedProblems::default();
        let mut texts = |jobs: Vec<Arc<JobTargets>>| -> Vec<String> {
            reported.new_ones(&jobs).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(targets(2, None)), ["2 targets beyond the limit are not scraped"]);
        assert!(texts(targets(3, None)).is_empty());
        assert_eq!(texts(targets(3, Some("x"))), ["every scrape of this job fails: x"]);
        assert!(texts(targets(2, Some("y"))).is_empty());
        assert_eq!(ReportedProblems::default().new_ones(&targets(1, None)).len(), 1);
    }
}
