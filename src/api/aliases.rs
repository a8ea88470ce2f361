//! Paths without an organisation (docs/specification.md C7, "Root aliases"): clients that take only
//! a host send to them. The credential names the organisation.
//!
//! The path of such a request is replaced by the path below `/api/v1/orgs/{slug}` before anything
//! else reads it. Limits, error formats, routes and the restrictions of tokens are therefore those
//! of that path. The credential is verified afterwards, as always; here it only names a slug.
//!
//! No path of the API is an alias: [`below_org`] lists the first segments of Prometheus' API, none
//! of which is `orgs`, `auth`, `health`, `openapi.json` or a path of the administration.

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

use crate::model::OrgSlug;

/// The slug of requests whose credential names no organisation. No organisation has it.
pub(super) const NO_SLUG: &str = "-";

/// The first segments below `/api/v1` that belong to Prometheus' API or to VictoriaMetrics'.
const MOUNTED: [&str; 20] = [
    "alertmanagers",
    "alerts",
    "export",
    "format_query",
    "import",
    "label",
    "labels",
    "metadata",
    "notifications",
    "otlp",
    "parse_query",
    "query",
    "query_exemplars",
    "query_range",
    "read",
    "rules",
    "scrape_pools",
    "series",
    "targets",
    "write",
];

/// Returns the path below `/api/v1/orgs/{slug}/` that a path stands for; `None` if it is not an
/// alias.
fn below_org(path: &str) -> Option<String> {
    let whole = match path {
        "/write" => "influx/write",
        "/api/v2/write" => "influx/api/v2/write",
        "/ping" => "influx/ping",
        "/health" => "influx/health",
        "/v1/metrics" | "/otlp/v1/metrics" => "otlp/v1/metrics",
        "/federate" => "prometheus/federate",
        "/-/healthy" => "prometheus/-/healthy",
        "/-/ready" => "prometheus/-/ready",
        "/api/v1/push" => "prometheus/api/v1/write",
        "/api/v1/import/csv" => "import/csv",
        "/api/v1/import/jsonl" => "import/jsonl",
        "/api/v1/import/graphite" => "import/graphite",
        // Paths of a Pushgateway.
        "/api/v1/metrics" => "push/api/v1/metrics",
        "/api/v1/status" => "push/api/v1/status",
        "/prometheus" => "prometheus",
        _ => "",
    };
    if !whole.is_empty() {
        return Some(whole.to_owned());
    }
    if path.starts_with("/metrics/job/") || path.starts_with("/metrics/job@base64/") {
        return Some(format!("push{path}"));
    }
    if let Some(rest) = path.strip_prefix("/prometheus/") {
        return Some(format!("prometheus/{rest}"));
    }
    let rest = path.strip_prefix("/api/v1/")?;
    let mut segments = rest.split('/');
    let first = segments.next()?;
    let is_mounted = MOUNTED.contains(&first)
        || (first == "status" && segments.next().is_some())
        || rest.starts_with("admin/tsdb/");
    is_mounted.then(|| format!("prometheus/api/v1/{rest}"))
}

/// Replaces the path of an alias. `slug` returns the organisation that the credential names; it is
/// called for aliases only.
pub(super) fn resolve(uri: &mut Uri, slug: impl FnOnce() -> Option<String>) {
    if let Some(below) = below_org(uri.path()) {
        let slug = slug();
        // A slug adds no segment to the path.
        let slug = slug.as_deref().filter(|slug| OrgSlug::parse(slug).is_ok()).unwrap_or(NO_SLUG);
        set_path(uri, &format!("/api/v1/orgs/{slug}/{below}"));
    }
    if let Some(path) = joined_group(uri.path()) {
        set_path(uri, &path);
    }
}

/// Returns the path of a pushed group with its labels in one segment: the slashes between them and
/// their percent signs are percent-encoded. `None` if the path is of no group or has one segment.
fn joined_group(path: &str) -> Option<String> {
    let (before, group) = path.strip_prefix("/api/v1/orgs/")?.split_once("/push/metrics/")?;
    if before.contains('/') || !group.contains('/') {
        return None;
    }
    Some(format!("/api/v1/orgs/{before}/push/metrics/{}", group.replace('%', "%25").replace('/', "%2F")))
}

fn set_path(uri: &mut Uri, path: &str) {
    let target = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    if let Ok(target) = PathAndQuery::try_from(target) {
        parts.path_and_query = Some(target);
        if let Ok(resolved) = Uri::from_parts(parts) {
            *uri = resolved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(target: &str, slug: Option<&str>) -> String {
        let mut uri: Uri = target.parse().expect("a URI");
        resolve(&mut uri, || slug.map(str::to_owned));
        uri.to_string()
    }

    #[test]
    fn an_alias_stands_for_a_path_of_the_organisation_of_the_credential() {
        for (alias, path) in [
            ("/api/v1/write", "prometheus/api/v1/write"),
            ("/api/v1/query?query=up", "prometheus/api/v1/query?query=up"),
            ("/api/v1/label/job/values", "prometheus/api/v1/label/job/values"),
            ("/api/v1/status/buildinfo", "prometheus/api/v1/status/buildinfo"),
            ("/api/v1/targets/metadata", "prometheus/api/v1/targets/metadata"),
            ("/api/v1/admin/tsdb/delete_series", "prometheus/api/v1/admin/tsdb/delete_series"),
            ("/api/v1/import", "prometheus/api/v1/import"),
            ("/api/v1/import/prometheus", "prometheus/api/v1/import/prometheus"),
            ("/api/v1/import/csv?format=x", "import/csv?format=x"),
            ("/api/v1/otlp/v1/metrics", "prometheus/api/v1/otlp/v1/metrics"),
            ("/metrics/job/a/b/c", "push/metrics/job%2Fa%2Fb%2Fc"),
            ("/metrics/job@base64/YQ/a/%20", "push/metrics/job@base64%2FYQ%2Fa%2F%2520"),
            ("/write?db=x", "influx/write?db=x"),
            ("/api/v2/write", "influx/api/v2/write"),
            ("/v1/metrics", "otlp/v1/metrics"),
            ("/prometheus/api/v1/query", "prometheus/api/v1/query"),
        ] {
            assert_eq!(resolved(alias, Some("acme")), format!("/api/v1/orgs/acme/{path}"));
            assert_eq!(resolved(alias, None), format!("/api/v1/orgs/-/{path}"));
        }
    }

    #[test]
    fn paths_of_the_api_keep_their_meaning() {
        for path in [
            "/",
            "/metrics",
            "/metrics/jobs/x",
            "/healthz",
            "/readyz",
            "/api/v1/health",
            "/api/v1/openapi.json",
            "/api/v1/orgs",
            "/api/v1/orgs/acme/write",
            "/api/v1/orgs/acme/metrics",
            "/api/v1/auth/me",
            "/auth/login",
            "/api/v1/admin/users",
            "/api/v1/admin/stats",
            "/api/v1/querying",
            "/api/v2/query",
        ] {
            assert_eq!(resolved(path, Some("acme")), path);
        }
    }

    #[test]
    fn a_credential_cannot_add_segments_to_the_path() {
        for slug in ["../acme", "acme/members", "a%2fb", "", "A"] {
            assert_eq!(resolved("/api/v1/write", Some(slug)), "/api/v1/orgs/-/prometheus/api/v1/write");
        }
    }
}
