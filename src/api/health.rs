//! Is it alive, is it ready, and what has it done: `/healthz`, `/readyz`, `/api/v1/health`, `/metrics` (API.md C8).
//!
//! Rooms keep plain counters; this file prints them in Prometheus' text format (0.0.4). The labels of requests are
//! bounded: the matched pattern, known methods, the class of the status.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use super::error::{ApiError, ApiResult, Code};
use super::host::{self, Peer};
use super::lanes::Lanes;
use super::limits::Limits;
use super::routes::{Auth, Routes};
use crate::clock::Stopwatch;
use crate::tsdb::{Tsdb, Writes};

/// What a room says when asked whether it works: `Err` is a sentence for the operator.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Counters of the edge.
#[derive(Debug, Default)]
pub struct Counters {
    requests: Mutex<BTreeMap<(String, &'static str, u16), u64>>,
    durations: Mutex<BTreeMap<String, Histogram>>,
    rate_limited: AtomicU64,
    panics: AtomicU64,
    /// Connections open now.
    pub connections: AtomicI64,
    /// Connections refused at the limits.
    pub connections_refused: AtomicU64,
    /// Connections closed because a header, a body or a reader was too slow.
    pub connections_timed_out: AtomicU64,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
}

/// Upper bounds in seconds: from a cached answer to the query timeout.
const BOUNDS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

/// A bounded word for a method.
pub fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

impl Counters {
    /// Counts one answered request.
    pub fn request(&self, route: &str, method: &Method, status: StatusCode, took: Duration) {
        let class = status.as_u16() / 100;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route.to_owned(), method_label(method), class)).or_default() += 1;
        drop(requests);
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = durations.entry(route.to_owned()).or_default();
        let seconds = took.as_secs_f64();
        for (bucket, bound) in histogram.buckets.iter_mut().zip(BOUNDS_S) {
            *bucket += u64::from(seconds <= bound);
        }
        histogram.count += 1;
        histogram.sum_s += seconds;
        drop(durations);
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.rate_limited.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a handler that panicked.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the health routes look at.
#[derive(Clone)]
pub struct HealthDeps {
    /// The store.
    pub tsdb: Arc<Tsdb>,
    /// More checks by name: `control`, `session_flush`, `mailer`.
    pub checks: Vec<(&'static str, Check)>,
    /// The edge's counters.
    pub counters: Arc<Counters>,
    /// The edge's lanes.
    pub lanes: Lanes,
    /// The edge's limits.
    pub limits: Arc<Limits>,
    /// Since the start of the process.
    pub uptime: Stopwatch,
    /// What `Authorization: Bearer` may be instead of a loopback peer, on `/metrics`.
    pub metrics_token: Option<Arc<str>>,
}

/// The routes that stand at the root.
pub fn routes() -> Routes<HealthDeps> {
    Routes::new()
        .get("/healthz", Auth::Public, "Answers `ok` while the process answers at all", healthz)
        .get("/readyz", Auth::Public, "Whether every part works", readyz)
        .get("/metrics", Auth::Operator, "promlet's own metrics in Prometheus' text format", metrics)
        .get("/api/v1/health", Auth::Public, "Version and uptime", health)
}

async fn healthz() -> &'static str {
    "ok"
}

async fn health(State(deps): State<HealthDeps>) -> Json<Value> {
    Json(
        json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "uptime_s": deps.uptime.elapsed().as_secs() }),
    )
}

async fn readyz(State(deps): State<HealthDeps>) -> Response {
    let health = deps.tsdb.health();
    let storage = match health.writes {
        Writes::Open => Ok(()),
        Writes::DiskFull { free, needed } => {
            Err(format!("{free} bytes are free on the disk, {needed} are needed"))
        }
        Writes::Fenced(_) => Err("a write to the log failed; restart".to_owned()),
        Writes::ReadOnly(_) => Err("the log is damaged; repair".to_owned()),
        Writes::Closed => Err("shutting down".to_owned()),
    };
    let checks = deps.checks.iter().map(|(name, check)| (*name, check()));
    let mut results = Map::new();
    let mut ready = true;
    for (name, result) in std::iter::once(("storage", storage)).chain(checks) {
        ready &= result.is_ok();
        results.insert(name.to_owned(), result.map_or_else(Value::from, |()| "ok".into()));
    }
    // A store with notes still takes samples: ready, and it says what an operator should know.
    let status = match (ready, health.notes.is_empty()) {
        (true, true) => "ok",
        (true, false) => "degraded",
        (false, _) => "unavailable",
    };
    let mut body = json!({ "status": status, "checks": results });
    if !health.notes.is_empty() {
        body["notes"] = json!(health.notes);
    }
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(body)).into_response()
}

async fn metrics(
    State(deps): State<HealthDeps>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    admit_operator(&deps, peer.map(|Extension(Peer(peer))| peer), &headers)?;
    let mut response = exposition(&deps).into_response();
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

fn admit_operator(deps: &HealthDeps, peer: Option<SocketAddr>, headers: &HeaderMap) -> ApiResult<()> {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = sent
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if let (Some((_, sent)), Some(token)) = (bearer, &deps.metrics_token) {
        return match same_secret(sent.trim(), token) {
            true => Ok(()),
            false => Err(ApiError::new(Code::TokenInvalid, "this is not the metrics token")),
        };
    }
    match peer {
        Some(peer) if host::is_local(peer.ip(), headers) => Ok(()),
        _ => Err(ApiError::new(
            Code::Unauthenticated,
            "metrics are for this machine, or for whoever has PROMLET_METRICS_TOKEN",
        )),
    }
}

/// Compares hashes, so that the time taken says nothing about the token.
fn same_secret(sent: &str, token: &str) -> bool {
    crate::identity::SecretHash::of(sent) == crate::identity::SecretHash::of(token)
}

/// Prometheus' text format, written line by line.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Label values here are our own patterns and words; quotes and backslashes never occur in them.
    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }
}

fn exposition(deps: &HealthDeps) -> String {
    let mut out = Exposition(String::new());
    out.family("promlet_build_info", "gauge", "Always 1; the version is a label.");
    out.sample("promlet_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    out.single(
        "promlet_uptime_seconds",
        "gauge",
        "Seconds since the start.",
        deps.uptime.elapsed().as_secs_f64(),
    );
    write_requests(&mut out, &deps.counters);
    write_edge(&mut out, deps);
    write_store(&mut out, &deps.tsdb);
    out.0
}

fn write_requests(out: &mut Exposition, counters: &Counters) {
    out.family("promlet_http_requests_total", "counter", "Requests answered, by matched route.");
    let requests = counters.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for ((route, method, class), count) in requests {
        out.sample(
            "promlet_http_requests_total",
            &format!("route=\"{route}\",method=\"{method}\",status=\"{class}xx\""),
            count,
        );
    }
    let name = "promlet_http_request_duration_seconds";
    out.family(name, "histogram", "Time until the response's head was ready.");
    let durations = counters.durations.lock().unwrap_or_else(PoisonError::into_inner);
    for (route, histogram) in durations.iter() {
        for (count, bound) in histogram.buckets.iter().zip(BOUNDS_S) {
            out.sample(&format!("{name}_bucket"), &format!("route=\"{route}\",le=\"{bound}\""), count);
        }
        out.sample(&format!("{name}_bucket"), &format!("route=\"{route}\",le=\"+Inf\""), histogram.count);
        out.sample(&format!("{name}_sum"), &format!("route=\"{route}\""), histogram.sum_s);
        out.sample(&format!("{name}_count"), &format!("route=\"{route}\""), histogram.count);
    }
}

fn write_edge(out: &mut Exposition, deps: &HealthDeps) {
    let counters = &deps.counters;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    out.single(
        "promlet_http_rate_limited_total",
        "counter",
        "Requests answered 429.",
        read(&counters.rate_limited),
    );
    out.single("promlet_http_panics_total", "counter", "Handlers that panicked.", read(&counters.panics));
    let open = counters.connections.load(Ordering::Relaxed);
    out.single("promlet_connections", "gauge", "Connections open now.", open);
    out.single(
        "promlet_connections_refused_total",
        "counter",
        "Connections refused at the limits.",
        read(&counters.connections_refused),
    );
    let slow = read(&counters.connections_timed_out);
    out.single(
        "promlet_connections_timed_out_total",
        "counter",
        "Connections closed for being slow or idle.",
        slow,
    );
    let lanes = deps.lanes.gauges();
    out.family("promlet_lane_running", "gauge", "Work running on a lane.");
    for (lane, running, _, _) in lanes {
        out.sample("promlet_lane_running", &format!("lane=\"{lane}\""), running);
    }
    out.family("promlet_lane_waiting", "gauge", "Work waiting for a lane.");
    for (lane, _, waiting, _) in lanes {
        out.sample("promlet_lane_waiting", &format!("lane=\"{lane}\""), waiting);
    }
    out.family("promlet_lane_refused_total", "counter", "Work refused because a lane was full.");
    for (lane, _, _, refused) in lanes {
        out.sample("promlet_lane_refused_total", &format!("lane=\"{lane}\""), refused);
    }
    out.family("promlet_limiter_entries", "gauge", "Callers that a limiter remembers.");
    for (limiter, entries) in deps.limits.entries() {
        out.sample("promlet_limiter_entries", &format!("limiter=\"{limiter}\""), entries);
    }
}

fn write_store(out: &mut Exposition, tsdb: &Tsdb) {
    let stats = tsdb.stats();
    out.single("promlet_series", "gauge", "Series registered.", stats.series);
    out.single("promlet_head_samples", "gauge", "Samples in the head.", stats.samples);
    out.single("promlet_head_bytes", "gauge", "Bytes of the head.", stats.head_bytes);
    out.single("promlet_samples_stored_total", "counter", "Samples stored.", stats.stored_total);
    out.single("promlet_samples_refused_total", "counter", "Samples refused.", stats.refused_total);
    out.single("promlet_wal_files", "gauge", "Files of the log.", stats.wal_files);
    out.single("promlet_wal_file_bytes", "gauge", "Bytes of the log's files.", stats.wal_file_bytes);
    out.single(
        "promlet_wal_written_bytes_total",
        "counter",
        "Bytes written to the log.",
        stats.wal_written_bytes,
    );
    out.single("promlet_wal_records_total", "counter", "Records written to the log.", stats.wal_records);
    out.single("promlet_wal_syncs_total", "counter", "Syncs of the log.", stats.wal_syncs);
    out.single("promlet_checkpoints_total", "counter", "Checkpoints made.", stats.checkpoints);
    out.single(
        "promlet_checkpoints_failed_total",
        "counter",
        "Checkpoints that failed.",
        stats.checkpoints_failed,
    );
    let writable = u8::from(tsdb.health().writes == Writes::Open);
    out.single("promlet_store_writable", "gauge", "1 while the store takes samples.", writable);
}
