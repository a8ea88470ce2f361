//! promlet's own metrics: counters and gauges, collected into metric families. They are formatted
//! as text for `/metrics`, or written as series into the store of an organisation that monitors its
//! own server.
//!
//! The labels of requests have few values: the pattern of the route, known methods, and the class
//! of the status.

mod notify_metrics;
mod scrape_metrics;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, StatusCode};

use super::agent::TargetStatus;
use super::embed_use::EmbedUses;
use super::lanes::Lanes;
use super::limits::Limits;
use super::orgs::query::LiveQueries;
use crate::clock::Stopwatch;
use crate::forward::edge::Forwarders;
use crate::forward::{ForwardStatus, SenderState};
use crate::identity::Identity;
use crate::model::{BatchBuilder, Labels, MetricKind, OrgId, Sample, Timestamp};
use crate::notify::edge::NotifyHub;
use crate::promql::{CacheOutcomes, MemoryPool, RangeCache};
use crate::push::totals::SeriesTotals;
use crate::rules::{RuleCounters, RuleEngine};
use crate::scrape::Scrapers;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{BlockCacheUsage, OrgStats, Stats, Tsdb, Writes};

/// The counters of the HTTP edge and of the process.
#[derive(Debug, Default)]
pub struct Counters {
    routes: Mutex<BTreeMap<Box<str>, RouteCounters>>,
    rate_limited: AtomicU64,
    panics: AtomicU64,
    /// Panics of background tasks.
    pub task_panics: AtomicU64,
    /// Starts of this data folder after an unclean shutdown, since the folder was created.
    pub unclean_stops: AtomicU64,
    /// Dashboards that are shown from files.
    pub dashboard_files: AtomicU64,
    /// Files and folders of dashboards that have a problem.
    pub dashboard_files_failed: AtomicU64,
    /// Open connections.
    pub connections: AtomicI64,
    /// Open connections that count for a session or an API key.
    pub connections_known: AtomicI64,
    /// Connections refused because of a limit.
    pub connections_refused: AtomicU64,
    /// Connections closed because they were idle, or because the client sent or read too slowly.
    pub connections_timed_out: AtomicU64,
}

/// The counters of one route.
#[derive(Clone, Debug, Default)]
struct RouteCounters {
    /// Requests by method and class of status.
    answered: BTreeMap<(&'static str, u16), u64>,
    durations: DurationHistogram,
}

#[derive(Clone, Debug, Default)]
struct DurationHistogram {
    buckets: [u64; BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
}

/// The inclusive upper bounds of the duration buckets in seconds, up to the default query timeout.
const BOUNDS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

/// Returns the label of a method; all unknown methods have the same one.
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
    /// Counts a request and its duration until the response's head was ready.
    pub fn request(&self, route: &str, method: &Method, status: StatusCode, duration: Duration) {
        let class = status.as_u16() / 100;
        let mut routes = self.routes.lock().ignore_poison();
        if !routes.contains_key(route) {
            routes.insert(route.into(), RouteCounters::default());
        }
        if let Some(RouteCounters { answered, durations }) = routes.get_mut(route) {
            *answered.entry((method_label(method), class)).or_default() += 1;
            let seconds = duration.as_secs_f64();
            for (bucket, bound) in durations.buckets.iter_mut().zip(BOUNDS_S) {
                *bucket += u64::from(seconds <= bound);
            }
            durations.count += 1;
            durations.sum_s += seconds;
        }
        drop(routes);
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.rate_limited.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a handler that panicked.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// The sources of the metrics. Cheap to clone.
#[derive(Clone)]
pub struct OwnMetrics {
    /// The store.
    pub tsdb: Arc<Tsdb>,
    /// The edge's counters.
    pub counters: Arc<Counters>,
    /// The edge's lanes.
    pub lanes: Lanes,
    /// The edge's limits.
    pub limits: Arc<Limits>,
    /// The use of embed tokens.
    pub embeds: Arc<EmbedUses>,
    /// The memory of all queries.
    pub memory: Arc<MemoryPool>,
    /// The cache of query results.
    pub cache: Arc<RangeCache>,
    /// The queries whose points are streamed.
    pub live: Arc<LiveQueries>,
    /// The totals of series whose senders report changes.
    pub totals: Option<Arc<SeriesTotals>>,
    /// The slugs of organisations.
    pub slugs: Slugs,
    /// The running forwarding targets.
    pub forwarders: Arc<Forwarders>,
    /// The evaluation of rules.
    pub rules: Arc<RuleEngine>,
    /// The notifiers of alerts.
    pub notify: Arc<NotifyHub>,
    /// The scraped targets.
    pub scrapers: Arc<Scrapers>,
    /// The time since the start of the process.
    pub uptime: Stopwatch,
    /// The figures of a primary or follower.
    pub standby: Option<StandbyFigures>,
    /// The moved organisations.
    pub moves: Option<MoveFigures>,
}

/// A gauge of a primary or follower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandbyFigure {
    /// The name of its family.
    pub name: &'static str,
    /// The text of `# HELP`.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

impl StandbyFigure {
    /// Creates a gauge that counts.
    pub fn counting(name: &'static str, help: &'static str, value: u64) -> StandbyFigure {
        StandbyFigure { name, help, value: count(value) }
    }
}

/// Reads the gauges of a primary or follower.
#[derive(Clone)]
pub struct StandbyFigures(pub Arc<dyn Fn() -> Vec<StandbyFigure> + Send + Sync>);

impl std::fmt::Debug for StandbyFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandbyFigures")
    }
}

/// The state of a moved organisation, whose log is sent to the engine that answers its queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveFigure {
    /// The bytes of the log that are not sent yet.
    pub lag_bytes: u64,
    /// The records that the log removed before they were sent.
    pub lost_records: u64,
    /// The samples that the engine refused.
    pub refused_samples: u64,
    /// The reason why no samples are sent, if any.
    pub waits_for: Option<String>,
}

/// Reads the states of the moved organisations.
#[derive(Clone)]
pub struct MoveFigures(pub Arc<dyn Fn() -> Vec<(OrgId, MoveFigure)> + Send + Sync>);

impl std::fmt::Debug for MoveFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MoveFigures")
    }
}

/// A lookup of organisations' slugs.
#[derive(Clone)]
pub struct Slugs(pub Arc<Identity>);

impl Slugs {
    fn of(&self, org: OrgId) -> Option<String> {
        self.0.org(org).ok().flatten().map(|org| org.slug.as_str().to_owned())
    }
}

/// The most moved organisations that `/readyz` names.
const MOVE_NOTES_MAX: usize = 8;

/// The sources of an agent's metrics. Cheap to clone.
#[derive(Clone)]
pub struct AgentMetrics {
    /// The store whose log is the queue.
    pub tsdb: Arc<Tsdb>,
    /// The edge's counters.
    pub counters: Arc<Counters>,
    /// The edge's lanes.
    pub lanes: Lanes,
    /// The states of the targets.
    pub targets: TargetStatus,
    /// The scraped targets; `None` without `--scrape-config`.
    pub scrapers: Option<Arc<Scrapers>>,
    /// The time since the start of the process.
    pub uptime: Stopwatch,
}

impl AgentMetrics {
    /// Formats the metrics in Prometheus' text format 0.0.4.
    pub fn text(&self) -> String {
        let mut families = process(self.uptime);
        families.extend(self.counters.read());
        families.extend(lanes(&self.lanes));
        families.extend(store_totals(&self.tsdb, &self.counters, &self.tsdb.stats()));
        let row = |(target, status)| (vec![("target", target)], status);
        let targets: Vec<TargetRow> = (self.targets)().into_iter().map(row).collect();
        families.extend(of_targets(&targets));
        if let Some(scrapers) = &self.scrapers {
            families.extend(scrape_metrics::families(scrapers, |_| Some(None)));
        }
        text_of(families)
    }
}

/// A forwarding target: its labels and its state.
type TargetRow = (Vec<(&'static str, String)>, ForwardStatus);

/// Returns the metrics of forwarding targets.
fn of_targets(targets: &[TargetRow]) -> Vec<MetricFamily> {
    if targets.is_empty() {
        return Vec::new();
    }
    let family = |name, kind, help, value: fn(&ForwardStatus) -> f64| {
        let mut family = MetricFamily::new(name, kind, help);
        for (labels, status) in targets {
            family.row(labels.clone(), value(status));
        }
        family
    };
    let gauge = |name, help, value| family(name, MetricKind::Gauge, help, value);
    let counter = |name, help, value| family(name, MetricKind::Counter, help, value);
    vec![
        gauge("promlet_forward_up", "Whether a target accepts requests: 1, or 0.", |status| {
            f64::from(u8::from(status.state == SenderState::Running))
        }),
        gauge(
            "promlet_forward_lag_seconds",
            "How far the first sample that a target has not acknowledged is behind the newest stored one.",
            |status| count(status.lag_ms) / 1_000.0,
        ),
        gauge(
            "promlet_forward_lag_bytes",
            "Bytes of the log that a target has not acknowledged.",
            |status| count(status.lag_bytes),
        ),
        gauge(
            "promlet_forward_lag_samples",
            "Samples that a target has not acknowledged, estimated.",
            |status| count(status.lag_samples),
        ),
        counter("promlet_forward_sent_samples_total", "Samples that a target acknowledged.", |status| {
            count(status.counts.accepted_samples)
        }),
        counter("promlet_forward_sent_bytes_total", "Bytes of bodies sent to a target.", |status| {
            count(status.counts.sent_bytes)
        }),
        counter("promlet_forward_requests_total", "Requests to a target.", |status| {
            count(status.counts.requests)
        }),
        counter(
            "promlet_forward_passed_requests_total",
            "Requests to a target with a body as it was received.",
            |status| count(status.counts.passed_requests),
        ),
        counter(
            "promlet_forward_retried_requests_total",
            "Requests that failed and were repeated.",
            |status| count(status.counts.retried_requests),
        ),
        counter(
            "promlet_forward_refused_samples_total",
            "Samples that a target refused for good.",
            |status| count(status.counts.refused_samples),
        ),
        counter(
            "promlet_forward_forgotten_samples_total",
            "Samples that a target acknowledged and reported as not written.",
            |status| count(status.counts.forgotten_samples),
        ),
        counter(
            "promlet_forward_lost_records_total",
            "Log records that were removed before they were sent to a target, since it exists.",
            |status| count(status.counts.lost_records),
        ),
    ]
}

/// Returns the metrics of the evaluation of rules.
fn rule_families(counters: &RuleCounters) -> Vec<MetricFamily> {
    let gauge = |name, help, value| single(name, MetricKind::Gauge, help, count(value));
    let counter = |name, help, value| single(name, MetricKind::Counter, help, value);
    let RuleCounters { groups, rules, evaluations, failures, missed, panics, samples, busy_us, sent } =
        *counters;
    vec![
        gauge("promlet_rule_groups", "Groups of rules of all organisations.", groups),
        gauge("promlet_rules", "Rules of all organisations.", rules),
        counter(
            "promlet_rule_group_evaluations_total",
            "Evaluations of groups of rules.",
            count(evaluations),
        ),
        counter("promlet_rule_failures_total", "Evaluations of rules that failed.", count(failures)),
        counter(
            "promlet_rule_missed_evaluations_total",
            "Evaluations of groups that were skipped because they were late.",
            count(missed),
        ),
        counter("promlet_rule_panics_total", "Evaluations that panicked.", count(panics)),
        counter("promlet_rule_samples_total", "Samples that rules wrote.", count(samples)),
        counter(
            "promlet_rule_seconds_total",
            "Time that evaluations took, in seconds.",
            count(busy_us) / 1e6,
        ),
        counter("promlet_rule_alerts_sent_total", "Alerts that were passed on.", count(sent)),
    ]
}

fn text_of(families: Vec<MetricFamily>) -> String {
    let mut out = String::new();
    for MetricFamily { name, kind, help, rows } in families {
        // Writing into a String does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        for MetricRow { suffix, labels, value } in rows {
            let pairs: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = match pairs.is_empty() {
                true => writeln!(out, "{name}{suffix} {value}"),
                false => writeln!(out, "{name}{suffix}{{{}}} {value}", pairs.join(",")),
            };
        }
    }
    out
}

/// Escapes the value of a label. Names of jobs may have any characters.
fn escaped(value: &str) -> Cow<'_, str> {
    match value.contains(['\\', '"', '\n']) {
        true => value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n").into(),
        false => value.into(),
    }
}

/// A lane's name, running jobs, waiting jobs, and refused jobs so far.
type LaneGauge = (&'static str, usize, usize, u64);

/// A metric, its description and its values.
struct MetricFamily {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    rows: Vec<MetricRow>,
}

/// A value with its labels. `suffix` follows the family's name in the values of histograms.
struct MetricRow {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl MetricFamily {
    fn new(name: &'static str, kind: MetricKind, help: &'static str) -> MetricFamily {
        MetricFamily { name, kind, help, rows: Vec::new() }
    }

    fn row(&mut self, labels: Vec<(&'static str, String)>, value: f64) {
        self.rows.push(MetricRow { suffix: "", labels, value });
    }
}

fn single(name: &'static str, kind: MetricKind, help: &'static str, value: f64) -> MetricFamily {
    let mut family = MetricFamily::new(name, kind, help);
    family.row(Vec::new(), value);
    family
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 lose their last digits, as in every Prometheus exporter"
)]
fn count(n: u64) -> f64 {
    n as f64
}

fn size(n: usize) -> f64 {
    count(n as u64)
}

impl OwnMetrics {
    /// Formats the metrics in Prometheus' text format 0.0.4.
    pub fn text(&self) -> String {
        text_of(self.read())
    }

    /// Writes the metrics as samples at `at` with the label `job="promlet"`, and their metadata if
    /// `describe` is set.
    pub fn write(&self, at: Timestamp, describe: bool, out: &mut BatchBuilder) {
        for MetricFamily { name, kind, help, rows } in self.read() {
            if describe {
                out.describe(name, kind, help, "");
            }
            for MetricRow { suffix, labels, value } in rows {
                let own = [("__name__", format!("{name}{suffix}")), ("job", "promlet".to_owned())];
                out.series(&Labels::from_pairs(own.into_iter().chain(labels)), [Sample { at, value }]);
            }
        }
    }

    fn read(&self) -> Vec<MetricFamily> {
        let mut all = process(self.uptime);
        all.extend(self.counters.read());
        all.extend(self.edge());
        all.extend(self.queries());
        all.extend(self.deltas());
        all.extend(self.embeds());
        all.extend(self.store());
        all.extend(self.forwarding());
        all.extend(notify_metrics::families(&self.notify, &self.slugs));
        all.extend(scrape_metrics::families(&self.scrapers, |org| self.slugs.of(org).map(Some)));
        all.extend(self.moved());
        all.extend(rule_families(&self.rules.counters()));
        for StandbyFigure { name, help, value } in self.standby.iter().flat_map(|figures| (figures.0)()) {
            all.push(single(name, MetricKind::Gauge, help, value));
        }
        all
    }

    fn edge(&self) -> Vec<MetricFamily> {
        let mut entries = MetricFamily::new(
            "promlet_limiter_entries",
            MetricKind::Gauge,
            "Callers that a limiter remembers.",
        );
        for (limiter, callers) in self.limits.entries() {
            entries.row(vec![("limiter", limiter.to_owned())], size(callers));
        }
        let mut families = lanes(&self.lanes);
        families.push(entries);
        families
    }

    fn queries(&self) -> Vec<MetricFamily> {
        let memory = self.memory.usage();
        let cache = self.cache.usage();
        let live = self.live.usage();
        let gauge = |name, help, value| single(name, MetricKind::Gauge, help, count(value));
        let lookups = |name, help, of: CacheOutcomes| {
            let mut family = MetricFamily::new(name, MetricKind::Counter, help);
            for (result, times) in [("hit", of.hits), ("extended", of.extended), ("miss", of.misses)] {
                family.row(vec![("result", result.to_owned())], count(times));
            }
            family
        };
        vec![
            single(
                "promlet_query_brief_total",
                MetricKind::Counter,
                "Fast queries evaluated inline, on the thread of their connection.",
                count(self.lanes.inlined_total()),
            ),
            lookups(
                "promlet_query_cache_requests_total",
                "Range queries by result of the cache lookup: hit, extended (a part was cached), miss.",
                cache.ranges,
            ),
            lookups(
                "promlet_query_cache_subqueries_total",
                "Subqueries by result of the cache lookup: hit, extended (a part was cached), miss.",
                cache.subqueries,
            ),
            gauge("promlet_query_cache_bytes", "Bytes of cached results.", cache.bytes),
            gauge("promlet_query_cache_entries", "Cached results.", cache.entries as u64),
            single(
                "promlet_query_cache_evicted_total",
                MetricKind::Counter,
                "Cached results evicted to make room for others.",
                count(cache.evicted),
            ),
            gauge("promlet_live_streams", "Open streams of live queries.", live.streams as u64),
            gauge("promlet_live_sets", "Different sets of queries of open streams.", live.feeds as u64),
            gauge("promlet_live_queries", "Different queries of open streams.", live.queries as u64),
            single(
                "promlet_live_evaluations_total",
                MetricKind::Counter,
                "Evaluations of live queries at one step.",
                count(live.evaluated),
            ),
            single(
                "promlet_live_gaps_total",
                MetricKind::Counter,
                "Gaps in streams of live queries, because the client was too slow.",
                count(live.gaps),
            ),
            single(
                "promlet_live_refused_total",
                MetricKind::Counter,
                "Streams of live queries refused because of a limit.",
                count(live.refused),
            ),
            gauge("promlet_query_memory_bytes", "Bytes that all queries hold.", memory.bytes),
            gauge("promlet_query_memory_limit_bytes", "Bytes that all queries may hold.", memory.bytes_max),
            single(
                "promlet_query_memory_waiting",
                MetricKind::Gauge,
                "Queries that wait for memory.",
                size(memory.waiting),
            ),
            single(
                "promlet_query_memory_refused_total",
                MetricKind::Counter,
                "Queries refused because other queries held the memory.",
                count(memory.refused),
            ),
        ]
    }

    fn deltas(&self) -> [MetricFamily; 2] {
        let mut points = MetricFamily::new(
            "promlet_otlp_delta_points_total",
            MetricKind::Counter,
            "OTLP points of delta temporality after a gap, with an overlap, or refused as reordered or repeated.",
        );
        let counts = self.totals.as_ref().map(|totals| &totals.counts);
        let read = |counter: &AtomicU64| count(counter.load(Ordering::Relaxed));
        for (kind, counter) in counts.into_iter().flat_map(|counts| {
            [
                ("gap", &counts.gaps),
                ("overlap", &counts.overlaps),
                ("reordered", &counts.reordered),
                ("repeated", &counts.repeated),
            ]
        }) {
            points.row(vec![("kind", kind.to_owned())], read(counter));
        }
        let evicted = single(
            "promlet_otlp_delta_evicted_series_total",
            MetricKind::Counter,
            "Series with OTLP deltas whose totals were evicted from memory and are read again from the store.",
            counts.map_or(0.0, |counts| read(&counts.evicted)),
        );
        [points, evicted]
    }

    fn embeds(&self) -> Vec<MetricFamily> {
        let totals = self.embeds.totals();
        let counter = |name, help, value| single(name, MetricKind::Counter, help, value);
        vec![
            counter(
                "promlet_embed_requests_total",
                "Requests with a valid embed token.",
                count(totals.requests),
            ),
            counter(
                "promlet_embed_refused_total",
                "Requests with a valid embed token that were answered 401, 403 or 429.",
                count(totals.refused),
            ),
            counter(
                "promlet_embed_over_budget_total",
                "Queries of embed tokens refused because their key used up its evaluation time.",
                count(totals.over_budget),
            ),
            counter(
                "promlet_embed_query_seconds_total",
                "Evaluation time of embed tokens.",
                totals.evaluated.as_secs_f64(),
            ),
            single(
                "promlet_embed_streams",
                MetricKind::Gauge,
                "Open live streams of embed tokens.",
                size(totals.streams),
            ),
            single(
                "promlet_embed_pages",
                MetricKind::Gauge,
                "Origins and dashboards in the list of embeds, over all organisations.",
                size(totals.rows),
            ),
        ]
    }

    /// Returns the usage and the refused samples of the organisations with the most series. Their
    /// number is limited, so that `/metrics` stays short.
    fn organisations(&self, mut orgs: Vec<OrgStats>) -> Vec<MetricFamily> {
        const ORGS_MAX: usize = 200;
        orgs.sort_by_key(|org| (Reverse(org.series), org.org));
        orgs.truncate(ORGS_MAX);
        let gauge = |name, help| MetricFamily::new(name, MetricKind::Gauge, help);
        let mut series = gauge("promlet_org_series", "Series of an organisation.");
        let mut memory = gauge("promlet_org_memory_bytes", "Estimated memory of an organisation.");
        let mut disk = gauge("promlet_org_disk_bytes", "Bytes on the disk that belong to an organisation.");
        let mut refused = MetricFamily::new(
            "promlet_org_refused_samples_total",
            MetricKind::Counter,
            "Samples refused, by reason. Senders repeat those that were refused at capacity.",
        );
        for org in orgs {
            let Some(slug) = self.slugs.of(org.org) else { continue };
            let label = || vec![("org", slug.clone())];
            series.row(label(), count(org.series));
            memory.row(label(), count(org.memory_bytes));
            disk.row(label(), count(org.disk_bytes));
            for (code, samples) in org.refused_by_code {
                refused.row(vec![("org", slug.clone()), ("reason", code.to_owned())], count(samples));
            }
        }
        vec![series, memory, disk, refused]
    }

    /// Returns the state of the forwarding targets.
    fn forwarding(&self) -> Vec<MetricFamily> {
        let row = |((org, number), status): ((OrgId, u32), ForwardStatus)| {
            let labels = vec![("org", self.slugs.of(org)?), ("target", number.to_string())];
            Some((labels, status))
        };
        let rows: Vec<TargetRow> = self.forwarders.statuses().into_iter().filter_map(row).collect();
        of_targets(&rows)
    }

    /// Returns the state of the moved organisations.
    fn moved(&self) -> Vec<MetricFamily> {
        let figures: Vec<_> = self.moves.iter().flat_map(|moves| (moves.0)()).collect();
        if figures.is_empty() {
            return Vec::new();
        }
        let rows: Vec<(String, MoveFigure)> =
            figures.into_iter().filter_map(|(org, figure)| Some((self.slugs.of(org)?, figure))).collect();
        let family = |name, kind, help, value: fn(&MoveFigure) -> u64| {
            let mut family = MetricFamily::new(name, kind, help);
            for (slug, figure) in &rows {
                family.row(vec![("org", slug.clone())], count(value(figure)));
            }
            family
        };
        vec![
            family(
                "promlet_move_lag_bytes",
                MetricKind::Gauge,
                "Bytes of the log that were not sent to the engine of a moved organisation.",
                |figure| figure.lag_bytes,
            ),
            family(
                "promlet_move_waits",
                MetricKind::Gauge,
                "1 while the engine of a moved organisation does not accept samples.",
                |figure| u64::from(figure.waits_for.is_some()),
            ),
            family(
                "promlet_move_lost_records_total",
                MetricKind::Counter,
                "Records that the log removed before they were sent to the engine of a moved organisation.",
                |figure| figure.lost_records,
            ),
            family(
                "promlet_move_refused_samples_total",
                MetricKind::Counter,
                "Samples that the engine of a moved organisation refused.",
                |figure| figure.refused_samples,
            ),
        ]
    }

    /// Returns sentences for `/readyz` about moved organisations that need a look.
    pub(super) fn move_notes(&self) -> Vec<String> {
        let note = |(org, figure): (OrgId, MoveFigure)| match (figure.waits_for, figure.lost_records) {
            (Some(reason), _) => {
                Some(format!("samples of the moved organisation {org} are not sent to its engine: {reason}"))
            }
            (None, lost @ 1..) => Some(format!(
                "the engine of the moved organisation {org} lacks {lost} log records: the log reached its limit"
            )),
            (None, 0) => None,
        };
        let figures = self.moves.iter().flat_map(|moves| (moves.0)());
        figures.filter_map(note).take(MOVE_NOTES_MAX).collect()
    }

    fn store(&self) -> Vec<MetricFamily> {
        let mut stats = self.tsdb.stats();
        let orgs = std::mem::take(&mut stats.orgs);
        let mut families = store_totals(&self.tsdb, &self.counters, &stats);
        families.extend(decoded(&stats.decoded));
        families.extend(self.organisations(orgs));
        families
    }
}

impl Counters {
    fn read(&self) -> Vec<MetricFamily> {
        let mut requests = MetricFamily::new(
            "promlet_http_requests_total",
            MetricKind::Counter,
            "Requests by route, method and class of status.",
        );
        let routes = self.routes.lock().ignore_poison().clone();
        for (route, counters) in &routes {
            for ((method, class), answered) in &counters.answered {
                requests.row(
                    vec![
                        ("route", route.to_string()),
                        ("method", (*method).to_owned()),
                        ("status", format!("{class}xx")),
                    ],
                    count(*answered),
                );
            }
        }
        let load = |counter: &AtomicU64| count(counter.load(Ordering::Relaxed));
        let counter = |name, help, value| single(name, MetricKind::Counter, help, value);
        let gauge = |name, help, value: &AtomicI64| {
            let value = u64::try_from(value.load(Ordering::Relaxed)).unwrap_or(0);
            single(name, MetricKind::Gauge, help, count(value))
        };
        vec![
            requests,
            durations(&routes),
            counter(
                "promlet_http_rate_limited_total",
                "Requests refused with status 429.",
                load(&self.rate_limited),
            ),
            counter("promlet_http_panics_total", "Panics of request handlers.", load(&self.panics)),
            counter("promlet_task_panics_total", "Panics of background tasks.", load(&self.task_panics)),
            gauge("promlet_connections", "Open connections.", &self.connections),
            gauge(
                "promlet_connections_known",
                "Open connections that count for a session or an API key.",
                &self.connections_known,
            ),
            counter(
                "promlet_connections_refused_total",
                "Connections refused because of a limit.",
                load(&self.connections_refused),
            ),
            counter(
                "promlet_connections_timed_out_total",
                "Connections closed because they were slow or idle.",
                load(&self.connections_timed_out),
            ),
        ]
    }
}

/// Returns the metrics of the store that concern no organisation.
fn store_totals(tsdb: &Tsdb, counters: &Counters, stats: &Stats) -> Vec<MetricFamily> {
    let gauge = |name, help, value| single(name, MetricKind::Gauge, help, count(value));
    let counter = |name, help, value| single(name, MetricKind::Counter, help, count(value));
    vec![
        gauge("promlet_series", "Registered series.", stats.series),
        gauge("promlet_head_samples", "Samples in the head.", stats.samples),
        gauge("promlet_head_bytes", "Bytes of the head.", stats.head_bytes),
        counter("promlet_samples_stored_total", "Samples stored.", stats.stored_total),
        counter("promlet_samples_refused_total", "Samples refused.", stats.refused_total),
        gauge("promlet_disk_free_bytes", "Free bytes on the disk.", stats.disk_free_bytes),
        gauge("promlet_wal_files", "Log files.", stats.wal_files),
        gauge(
            "promlet_wal_trimmed_files",
            "Log files that are no longer needed and could not be removed yet.",
            stats.wal_trimmed_files,
        ),
        gauge("promlet_wal_file_bytes", "Bytes of the log files.", stats.wal_file_bytes),
        counter(
            "promlet_wal_unlinks_failed_total",
            "Failed attempts to remove log files.",
            stats.wal_unlinks_failed,
        ),
        counter("promlet_wal_written_bytes_total", "Bytes written to the log.", stats.wal_written_bytes),
        counter("promlet_wal_records_total", "Records written to the log.", stats.wal_records),
        counter("promlet_wal_syncs_total", "Syncs of the log.", stats.wal_syncs),
        counter("promlet_checkpoints_total", "Checkpoints written.", stats.checkpoints),
        counter("promlet_checkpoints_failed_total", "Checkpoints that failed.", stats.checkpoints_failed),
        gauge("promlet_segments", "Listed segments.", stats.segments),
        gauge("promlet_segment_samples", "Samples in segments.", stats.sealed_samples),
        gauge("promlet_segment_bytes", "Bytes of segment files.", stats.segment_bytes),
        gauge(
            "promlet_retention_lag_seconds",
            "Seconds by which the wall clock is ahead of the retention clock.",
            stats.retention_lag.as_secs(),
        ),
        gauge(
            "promlet_segments_waiting",
            "Segments that are expired by the wall clock, but not yet by the retention clock.",
            stats.segments_waiting,
        ),
        counter("promlet_seals_total", "Seals of an organisation's samples.", stats.seals),
        counter("promlet_seals_failed_total", "Seals that failed.", stats.seals_failed),
        counter(
            "promlet_unclean_shutdown_total",
            "Starts of this data folder after an unclean shutdown, such as a kill, a crash or a power cut.",
            counters.unclean_stops.load(Ordering::Relaxed),
        ),
        gauge(
            "promlet_dashboard_files",
            "Dashboards that are shown from files (--dashboards).",
            counters.dashboard_files.load(Ordering::Relaxed),
        ),
        gauge(
            "promlet_dashboard_files_failed",
            "Files and folders of dashboards that cannot be used; the log has the reasons.",
            counters.dashboard_files_failed.load(Ordering::Relaxed),
        ),
        gauge(
            "promlet_store_writable",
            "1 while the store accepts samples, otherwise 0.",
            u64::from(tsdb.health().writes == Writes::Open),
        ),
    ]
}
/// Returns the version and the age of the process.
fn process(uptime: Stopwatch) -> Vec<MetricFamily> {
    let mut build =
        MetricFamily::new("promlet_build_info", MetricKind::Gauge, "Always 1; the version is a label.");
    build.row(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0);
    let help = "Seconds since the start of the process.";
    let uptime = uptime.elapsed().as_secs_f64();
    vec![build, single("promlet_uptime_seconds", MetricKind::Gauge, help, uptime)]
}

fn lanes(lanes: &Lanes) -> Vec<MetricFamily> {
    let lanes = lanes.gauges();
    let of_lanes = |name, kind, help, value: fn(&LaneGauge) -> f64| {
        let mut family = MetricFamily::new(name, kind, help);
        for lane in &lanes {
            family.row(vec![("lane", lane.0.to_owned())], value(lane));
        }
        family
    };
    vec![
        of_lanes("promlet_lane_running", MetricKind::Gauge, "Running jobs of a lane.", |lane| size(lane.1)),
        of_lanes("promlet_lane_waiting", MetricKind::Gauge, "Waiting jobs of a lane.", |lane| size(lane.2)),
        of_lanes(
            "promlet_lane_refused_total",
            MetricKind::Counter,
            "Jobs refused because a lane was full, or the wait was too long.",
            |lane| count(lane.3),
        ),
    ]
}

/// Returns the metrics of the cache of decoded blocks.
fn decoded(usage: &BlockCacheUsage) -> Vec<MetricFamily> {
    let mut blocks = MetricFamily::new(
        "promlet_decoded_cache_blocks_total",
        MetricKind::Counter,
        "Blocks of values that queries read, by result of the cache lookup.",
    );
    for (result, times) in [("hit", usage.hits), ("miss", usage.misses)] {
        blocks.row(vec![("result", result.to_owned())], count(times));
    }
    let gauge = |name, help, value| single(name, MetricKind::Gauge, help, count(value));
    vec![
        blocks,
        gauge("promlet_decoded_cache_bytes", "Bytes of cached decoded values.", usage.bytes),
        gauge(
            "promlet_decoded_cache_limit_bytes",
            "Bytes that cached decoded values may have.",
            usage.bytes_max,
        ),
        single(
            "promlet_decoded_cache_evicted_total",
            MetricKind::Counter,
            "Groups of cached blocks that were evicted for others or because they were not used.",
            count(usage.evicted),
        ),
    ]
}

fn durations(routes: &BTreeMap<Box<str>, RouteCounters>) -> MetricFamily {
    let help = "Time until the response's head was ready.";
    let mut family = MetricFamily::new("promlet_http_request_duration_seconds", MetricKind::Histogram, help);
    for (route, RouteCounters { durations, .. }) in routes {
        let mut put = |suffix, bound: Option<String>, value| {
            let route = [("route", route.to_string())];
            let labels = route.into_iter().chain(bound.map(|bound| ("le", bound))).collect();
            family.rows.push(MetricRow { suffix, labels, value });
        };
        for (below, bound) in durations.buckets.iter().zip(BOUNDS_S) {
            put("_bucket", Some(bound.to_string()), count(*below));
        }
        put("_bucket", Some("+Inf".to_owned()), count(durations.count));
        put("_sum", None, durations.sum_s);
        put("_count", None, count(durations.count));
    }
    family
}
