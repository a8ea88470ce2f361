//! `promlet scrape check`: reads a scrape configuration and prints its targets.

use std::path::Path;

use serde_json::{Value, json};

use super::output::print;
use crate::api::views::labels::labels_json;
use crate::clock::Clock;
use crate::scrape::config::ScrapeConfig;
use crate::scrape::discovery::{DiscoveredTargets, DiscoveryManager, DueRefresh};
use crate::scrape::target::JobTargets;

/// Reads the configuration and the files that it names, and prints the targets. Discoveries by HTTP
/// and DNS are listed without a request to them.
pub(super) fn check(file: &Path, json: bool) -> anyhow::Result<()> {
    let config = ScrapeConfig::read(file).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut manager = DiscoveryManager::default();
    let now = Clock::System.now();
    manager.reconfigure(&config, now);
    let not_asked: Vec<String> =
        manager.refresh(now).iter().map(|due: &DueRefresh| due.config.title()).collect();
    let failed: Vec<String> = manager
        .statuses()
        .into_iter()
        .flat_map(|job| job.discoveries)
        .filter_map(|discovery| Some(format!("{}: {}", discovery.title, discovery.error?)))
        .collect();
    let targets = manager.changed_targets().unwrap_or_default();
    let report = CheckedScrape { config, targets, not_asked, failed };
    let text = if json { format!("{:#}\n", report.as_json()) } else { report.as_text() };
    print(text)?;
    match report.failed.is_empty() {
        true => Ok(()),
        false => anyhow::bail!("{} of the files with targets cannot be read", report.failed.len()),
    }
}

/// A configuration and its targets.
struct CheckedScrape {
    config: ScrapeConfig,
    targets: DiscoveredTargets,
    /// Discoveries that send requests, which a check does not do.
    not_asked: Vec<String>,
    /// Discoveries with an error.
    failed: Vec<String>,
}

impl CheckedScrape {
    fn as_text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        self.config.notices.iter().for_each(|notice| line(format!("note: {notice}")));
        for job in &self.targets.jobs {
            let JobTargets { active, dropped_count, invalid, duplicate_count, .. } = &**job;
            line(format!(
                "job {:?}: active {}, dropped {dropped_count}, not valid {}, duplicates {duplicate_count}",
                job.job.name,
                active.len(),
                job.invalid_count,
            ));
            active.iter().for_each(|target| line(format!("  {} {}", target.url, target.labels)));
            for one in invalid {
                line(format!("  not valid: {} in {}", one.reason, one.discovered));
            }
            job.failure.iter().for_each(|failure| line(format!("  {failure}")));
        }
        self.not_asked.iter().for_each(|title| line(format!("not requested by this check: {title}")));
        self.failed.iter().for_each(|error| line(format!("failed: {error}")));
        out
    }

    fn as_json(&self) -> Value {
        let jobs = self.targets.jobs.iter().map(|job| {
            let active = job.active.iter().map(|target| {
                json!({
                    "url": target.url,
                    "labels": labels_json(&target.labels),
                    "discovered_labels": labels_json(&target.discovered),
                })
            });
            let invalid = job.invalid.iter().map(
                |one| json!({ "discovered_labels": labels_json(&one.discovered), "reason": one.reason }),
            );
            json!({
                "name": &*job.job.name,
                "targets": active.collect::<Vec<_>>(),
                "dropped": job.dropped_count,
                "invalid": invalid.collect::<Vec<_>>(),
                "duplicates": job.duplicate_count,
                "failure": job.failure,
            })
        });
        json!({
            "notices": self.config.notices,
            "jobs": jobs.collect::<Vec<_>>(),
            "not_asked": self.not_asked,
            "failed": self.failed,
        })
    }
}
