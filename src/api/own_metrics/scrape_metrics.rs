//! The metrics of scraping.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MetricFamily, MetricKind, count};
use crate::model::OrgId;
use crate::scrape::{MissedScrapes, ScrapeTotals, Scrapers};

/// The value of the label `org`; `None` in an agent, whose metrics do not have it.
type OrgLabel = Option<String>;

/// Returns the labels of a row.
fn row_labels(org: &OrgLabel, others: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let others = others.iter().map(|(name, value)| (*name, (*value).to_owned()));
    org.iter().map(|slug| ("org", slug.clone())).chain(others).collect()
}

/// Returns the families. `label` returns `None` for organisations that do not exist any more.
pub(super) fn families(scrapers: &Scrapers, label: impl Fn(OrgId) -> Option<OrgLabel>) -> Vec<MetricFamily> {
    let totals = scrapers.totals();
    if totals.is_empty() {
        return Vec::new();
    }
    let rows: Vec<(OrgLabel, ScrapeTotals)> =
        totals.into_iter().filter_map(|(org, totals)| Some((label(org)?, totals))).collect();
    let mut targets = MetricFamily::new(
        "promlet_scrape_targets",
        MetricKind::Gauge,
        "Scraped targets of an organisation, by the result of their last scrape.",
    );
    for (org, totals) in &rows {
        for (health, count_of) in [("up", totals.up), ("down", totals.down), ("unknown", totals.unknown)] {
            targets.row(row_labels(org, &[("health", health)]), count(count_of));
        }
    }
    let family = |name, help, value: fn(&ScrapeTotals) -> u64| {
        let mut family = MetricFamily::new(name, MetricKind::Counter, help);
        for (org, totals) in &rows {
            family.row(row_labels(org, &[]), count(value(totals)));
        }
        family
    };
    let missed = scrapers.missed().into_iter().filter_map(|(org, jobs)| Some((label(org)?, jobs)));
    vec![
        targets,
        family("promlet_scrapes_total", "Scrapes of the running targets.", |totals| totals.scrapes),
        family("promlet_scrape_failures_total", "Scrapes of the running targets that failed.", |totals| {
            totals.failures
        }),
        missed_family(missed),
        family("promlet_scrape_refused_samples_total", "Scraped samples that were not stored.", |totals| {
            totals.refused
        }),
        family(
            "promlet_scrape_discovery_failures_total",
            "Refreshes of discoveries that failed; the last targets stay.",
            |totals| totals.discovery_failures,
        ),
    ]
}

/// Returns the scrapes that the jobs of organisations missed. `job` is the label of the server's
/// own samples, so the label of a job is `scrape_job`, as in Prometheus' own metrics.
fn missed_family(orgs: impl Iterator<Item = (OrgLabel, BTreeMap<Arc<str>, MissedScrapes>)>) -> MetricFamily {
    let mut family = MetricFamily::new(
        "promlet_scrape_missed_total",
        MetricKind::Counter,
        "Scrapes of the running targets of a job that were skipped because they were late, or dropped because \
         too many responses waited.",
    );
    for (org, jobs) in orgs {
        for (job, of) in jobs {
            for (reason, scrapes) in [("skipped", of.skipped), ("dropped", of.dropped)] {
                family.row(row_labels(&org, &[("scrape_job", &*job), ("reason", reason)]), count(scrapes));
            }
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::super::text_of;
    use super::*;

    #[test]
    fn missed_scrapes_are_counted_by_job_and_reason() {
        let jobs = [("a \"b\"\\\n", 3, 0), ("node", 0, 2)].map(|(job, skipped, dropped)| {
            let missed = MissedScrapes { skipped, dropped };
            (Arc::from(job), missed)
        });
        let orgs = [(Some("acme".to_owned()), jobs.into_iter().collect())];
        let text = text_of(vec![missed_family(orgs.into_iter())]);
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"promlet_scrape_missed_total{org="acme",scrape_job="a \"b\"\\\n",reason="skipped"} 3"#,
            r#"promlet_scrape_missed_total{org="acme",scrape_job="a \"b\"\\\n",reason="dropped"} 0"#,
            r#"promlet_scrape_missed_total{org="acme",scrape_job="node",reason="skipped"} 0"#,
            r#"promlet_scrape_missed_total{org="acme",scrape_job="node",reason="dropped"} 2"#,
        ];
        assert_eq!(rows, expected);
    }
}
