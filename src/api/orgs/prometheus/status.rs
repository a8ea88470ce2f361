//! The paths on which Prometheus reports about itself: flags, runtime, replay of its log,
//! notifications of its UI, and its own metrics.
//!
//! Many organisations share a server, so nothing here names its host, its folders or other
//! organisations. Members without a meaning in promlet are empty or zero.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{PROMETHEUS_VERSION, success};
use crate::api::callers::Endpoint;
use crate::api::error::ApiResult;
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::request::ReadRequest;
use crate::api::routes::{Auth, Routes};
use crate::model::format_duration;

/// Adds the routes below `/orgs/{slug}`.
pub(super) fn routes(routes: Routes<ReadDeps>) -> Routes<ReadDeps> {
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/parse_query",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: get the tree of an expression",
        super::parse_query,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/status/flags",
        Auth::PrometheusCaller(None),
        "Prometheus: get the flags that affect queries",
        flags,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/status/runtimeinfo",
        Auth::PrometheusCaller(None),
        "Prometheus: get the start time of the server, and the retention",
        runtime_info,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/status/walreplay",
        Auth::PrometheusCaller(None),
        "Prometheus: get the progress of the start; always complete",
        wal_replay,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/notifications",
        Auth::PrometheusCaller(None),
        "Prometheus: list notifications of the web UI; always empty",
        notifications,
    );
    routes.get(
        "/orgs/{slug}/prometheus/metrics",
        Auth::PrometheusCaller(None),
        "Prometheus: get metrics about the server that are the same for all organisations",
        metrics,
    )
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

async fn flags(State(deps): State<ReadDeps>, _: ReadRequest) -> ApiResult<Response> {
    let options = &deps.options;
    let flags = [
        ("enable-feature", String::new()),
        ("query.lookback-delta", format_duration(options.promql.lookback_ms)),
        ("query.max-samples", options.promql.limits.samples_max.to_string()),
        ("query.timeout", format_duration(milliseconds(options.timeout))),
        ("web.enable-otlp-receiver", "true".to_owned()),
        ("web.enable-remote-write-receiver", "true".to_owned()),
    ];
    let flags: Map<String, Value> =
        flags.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Ok(success(&flags.into()))
}

async fn runtime_info(State(deps): State<ReadDeps>, _: ReadRequest) -> ApiResult<Response> {
    let retention = deps.tsdb.default_limits().retention;
    let retention = retention.map_or_else(String::new, |kept| format_duration(milliseconds(kept)));
    let started = deps.queried.started_at().to_rfc3339();
    Ok(success(&json!({
        "startTime": started,
        "CWD": "",
        "hostname": "",
        "serverTime": deps.clock.now().to_rfc3339(),
        "reloadConfigSuccess": true,
        "lastConfigTime": started,
        "corruptionCount": 0,
        "goroutineCount": 0,
        "GOMAXPROCS": 0,
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": retention,
    })))
}

/// Reports a finished replay. While the server starts, every route responds with 503 `starting`.
async fn wal_replay(_: ReadRequest) -> ApiResult<Response> {
    Ok(success(&json!({ "min": 0, "max": 0, "current": 0 })))
}

async fn notifications(_: ReadRequest) -> ApiResult<Response> {
    Ok(success(&json!([])))
}

/// Returns the version and the start time. Metrics about other callers are at `/metrics` of the
/// server, for its operator.
async fn metrics(State(deps): State<ReadDeps>, _: ReadRequest) -> ApiResult<Response> {
    let version = env!("CARGO_PKG_VERSION");
    let started = deps.queried.started_at().as_ms() / 1_000;
    let text = format!(
        "# HELP prometheus_build_info The version of Prometheus whose API this server has.\n\
         # TYPE prometheus_build_info gauge\n\
         prometheus_build_info{{version=\"{PROMETHEUS_VERSION}\"}} 1\n\
         # HELP prometheus_ready Whether the server is ready.\n\
         # TYPE prometheus_ready gauge\n\
         prometheus_ready 1\n\
         # HELP promlet_build_info The version of this server.\n\
         # TYPE promlet_build_info gauge\n\
         promlet_build_info{{version=\"{version}\"}} 1\n\
         # HELP process_start_time_seconds The start of this server in seconds since 1970.\n\
         # TYPE process_start_time_seconds gauge\n\
         process_start_time_seconds {started}\n"
    );
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
