//! Type, help text and unit of metrics: those that senders described last, and those of the scraped
//! targets that describe a metric in another way.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::{limit, per_metric_limit};
use crate::api::error::ApiResult;
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::body::BodyFormat;
use crate::api::orgs::query::request::ReadRequest;
use crate::api::orgs::query::run::QueryRun;
use crate::api::prom_json;
use crate::model::MetricKind;
use crate::scrape::run::ScrapeMetadata;
use crate::tsdb::Description;

/// The most descriptions of a metric, inclusive.
const VARIANTS_MAX: usize = 10;
/// The most different lists of metadata of targets that are compared, inclusive. Targets of one
/// kind share theirs.
const LISTS_MAX: usize = 1_000;

/// A description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MetricVariant<'m> {
    kind: MetricKind,
    help: &'m str,
    unit: &'m str,
}

impl MetricVariant<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":"#);
        prom_json::text(self.kind.as_str(), out);
        out.extend_from_slice(br#","help":"#);
        prom_json::text(self.help, out);
        out.extend_from_slice(br#","unit":"#);
        prom_json::text(self.unit, out);
        out.push(b'}');
    }
}

/// Returns up to `most` descriptions of each metric of `stored`, which is in order of names: the
/// stored one, and then different ones of targets in their order. Metrics without a stored
/// description are left out.
fn variants<'m>(
    stored: &'m [Description],
    targets: &'m [Arc<ScrapeMetadata>],
    most: usize,
) -> Vec<Vec<MetricVariant<'m>>> {
    let of_stored = |one: &'m Description| MetricVariant { kind: one.kind, help: &one.help, unit: &one.unit };
    let mut all: Vec<Vec<_>> = stored.iter().map(|one| vec![of_stored(one)]).collect();
    for entry in targets.iter().flat_map(|target| target.entries()) {
        let Ok(index) = stored.binary_search_by(|one| (*one.name).cmp(&entry.metric)) else { continue };
        let variant = MetricVariant { kind: entry.kind, help: &entry.help, unit: &entry.unit };
        if let Some(known) = all.get_mut(index)
            && known.len() < most
            && !known.contains(&variant)
        {
            known.push(variant);
        }
    }
    all
}

pub(super) async fn metadata(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let metric = params.one(&["metric"])?;
    let limit = limit(&mut params)?.unwrap_or(usize::MAX);
    let most = per_metric_limit(&mut params)?.map_or(VARIANTS_MAX, |limit| limit.min(VARIANTS_MAX));
    let scraped = query.org_of_targets().zip(deps.scrapers.clone());
    let work = move |run: &mut QueryRun| {
        let found = run.metadata(metric.as_deref(), limit)?;
        let targets = scraped.as_ref().map(|(org, scrapers)| scrapers.metadata(*org, LISTS_MAX));
        let targets = targets.unwrap_or_default();
        let variants = variants(&found.items, &targets, most);
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":{"#);
            for (index, (metric, variants)) in found.items.iter().zip(&variants).enumerate() {
                out.write(|out| {
                    if index > 0 {
                        out.push(b',');
                    }
                    prom_json::text(&metric.name, out);
                    out.extend_from_slice(b":[");
                    for (index, variant) in variants.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        variant.write(out);
                    }
                    out.push(b']');
                })?;
            }
            out.raw(b"}");
            Ok(())
        })
    };
    deps.respond(query, work).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MetricMetadata;
    use crate::scrape::run::ScrapeMetadataPool;

    fn target(described: &[(&str, MetricKind, &str)]) -> Arc<ScrapeMetadata> {
        let sent =
            described.iter().map(|(name, kind, help)| MetricMetadata { name, kind: *kind, help, unit: "" });
        ScrapeMetadataPool::default().shared(&sent.collect::<Vec<_>>())
    }

    #[test]
    fn different_descriptions_of_targets_follow_the_stored_one_up_to_a_limit() {
        let stored = ["a", "c"].map(|name| Description {
            name: name.into(),
            kind: MetricKind::Gauge,
            help: "Stored.".into(),
            unit: "".into(),
        });
        let mut targets = vec![
            target(&[("a", MetricKind::Gauge, "Stored."), ("b", MetricKind::Gauge, "Not stored.")]),
            target(&[("a", MetricKind::Counter, "Stored."), ("c", MetricKind::Gauge, "Other.")]),
            target(&[("a", MetricKind::Counter, "Stored.")]),
        ];
        let shown = |targets: &[Arc<ScrapeMetadata>], most: usize| -> Vec<Vec<String>> {
            let text = |one: &MetricVariant<'_>| format!("{} {}", one.kind.as_str(), one.help);
            variants(&stored, targets, most).iter().map(|all| all.iter().map(text).collect()).collect()
        };
        assert_eq!(
            shown(&targets, VARIANTS_MAX),
            [["gauge Stored.", "counter Stored."], ["gauge Stored.", "gauge Other."]]
        );
        assert_eq!(shown(&targets, 1), [["gauge Stored."], ["gauge Stored."]]);
        targets.extend((0..20).map(|n| target(&[("c", MetricKind::Gauge, &n.to_string())])));
        assert_eq!(shown(&targets, VARIANTS_MAX)[1].len(), VARIANTS_MAX);
        assert_eq!(shown(&[], VARIANTS_MAX), [["gauge Stored."], ["gauge Stored."]]);
    }
}
