//! The query parameters of all routes, and the table of the data endpoints with their responses and
//! errors (docs/specification.md C5, C6).

use serde_json::{Map, Value, json};

use crate::api::error::Code;

/// A query parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    name: &'static str,
    kind: ParameterKind,
    text: &'static str,
}

/// The type of a parameter's value, and whether the parameter is required or repeatable.
#[derive(Clone, Copy, Debug)]
enum ParameterKind {
    Text,
    Required,
    Repeated,
    RepeatedRequired,
    Time,
    Duration,
    Number,
    /// A whole number from the first to the second bound, both inclusive.
    Count(u64, u64),
    /// A whole number that is not smaller.
    Least(u64),
    OneOf(&'static [&'static str]),
}

/// A flag. An empty value counts as missing.
const FLAG: ParameterKind = ParameterKind::OneOf(&["", "0", "1", "false", "true"]);

const fn p(name: &'static str, kind: ParameterKind, text: &'static str) -> Parameter {
    Parameter { name, kind, text }
}

impl Parameter {
    pub(super) fn to_json(self) -> Value {
        json!({
            "name": self.name,
            "in": "query",
            "required": matches!(self.kind, ParameterKind::Required | ParameterKind::RepeatedRequired),
            "description": self.text,
            "schema": self.schema(),
        })
    }

    fn schema(self) -> Value {
        match self.kind {
            ParameterKind::Text | ParameterKind::Required => json!({ "type": "string" }),
            ParameterKind::Repeated | ParameterKind::RepeatedRequired => {
                json!({ "type": "array", "items": { "type": "string" } })
            }
            ParameterKind::Time => {
                json!({ "type": "string", "examples": ["1795226400", "2026-11-21T10:00:00Z", "now-15m"] })
            }
            ParameterKind::Duration => json!({ "type": "string", "examples": ["15", "5m", "1h30m"] }),
            ParameterKind::Number => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
            ParameterKind::Count(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            ParameterKind::Least(least) => json!({ "type": "integer", "minimum": least }),
            ParameterKind::OneOf(words) => json!({ "type": "string", "enum": words }),
        }
    }
}

/// Returns the schema of a form with these parameters.
pub(super) fn form(parameters: &[Parameter]) -> Value {
    let properties: Map<String, Value> =
        parameters.iter().map(|one| (one.name.to_owned(), one.schema())).collect();
    let required: Vec<&str> = parameters
        .iter()
        .filter(|one| matches!(one.kind, ParameterKind::Required | ParameterKind::RepeatedRequired))
        .map(|one| one.name)
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

const FUNCTIONS: &[&str] = &[
    "none",
    "rate",
    "increase",
    "irate",
    "delta",
    "idelta",
    "deriv",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "quantile_over_time",
];
const AGGREGATIONS: &[&str] = &[
    "none",
    "sum",
    "avg",
    "min",
    "max",
    "count",
    "stddev",
    "quantile",
    "topk",
    "bottomk",
    "histogram_quantile",
];

const STRUCTURED: &[Parameter] = &[
    p("metric", ParameterKind::Text, "The metric name; required without expr"),
    p("match", ParameterKind::Repeated, "A label matcher: label, one of = != =~ !~, value; all must match"),
    p("fn", ParameterKind::OneOf(FUNCTIONS), "The function to apply to a window of each series"),
    p(
        "window",
        ParameterKind::Duration,
        "The window of fn; the default is the step, but at least five minutes",
    ),
    p("agg", ParameterKind::OneOf(AGGREGATIONS), "The aggregation of series"),
    p("by", ParameterKind::Text, "The labels to group by, separated by commas"),
    p("without", ParameterKind::Text, "The labels to remove before grouping, separated by commas"),
    p("q", ParameterKind::Number, "The quantile, from 0 to 1"),
    p("k", ParameterKind::Count(1, 100), "The number of series of topk and bottomk"),
    p("offset", ParameterKind::Duration, "The time by which to shift the query back"),
    p("expr", ParameterKind::Text, "A PromQL expression instead of a structured query"),
];
const EXPR: &[Parameter] = &[p("expr", ParameterKind::Required, "The PromQL expression, at most 64 KiB")];
const OVER_RANGE: &[Parameter] = &[
    p("start", ParameterKind::Time, "The time of the first step; one hour before the end by default"),
    p("end", ParameterKind::Time, "The latest time of a step, inclusive; now by default"),
    p(
        "step",
        ParameterKind::Duration,
        "The time between two steps; by default at most 250 steps, and at least 15 seconds",
    ),
];
const PICTURE: &[Parameter] = &[
    p("start", ParameterKind::Time, "The time of the first step; one hour before the end by default"),
    p(
        "end",
        ParameterKind::Time,
        "The latest time of a step, inclusive; by default the newest multiple of the step",
    ),
    p("step", ParameterKind::Duration, "The time between two steps; by default a round one for two pixels"),
    p("width", ParameterKind::Count(100, 2_000), "The width in CSS pixels; 800 by default"),
    p("height", ParameterKind::Count(60, 2_000), "The height in CSS pixels; 320 by default"),
    p("scale", ParameterKind::Count(1, 3), "The pixels of a PNG for one CSS pixel; 1 by default"),
    p("theme", ParameterKind::OneOf(&["", "light", "dark"]), "The colours; light by default"),
    p("title", ParameterKind::Text, "The heading, at most 256 characters"),
    p(
        "unit",
        ParameterKind::Text,
        "bytes, bytes/s, seconds, percent (of 1), or a suffix; at most 256 characters",
    ),
    p(
        "legend",
        ParameterKind::Text,
        "The names of the series, with {{label}} in them; by default the labels that differ",
    ),
    p(
        "tz",
        ParameterKind::Text,
        "The time zone of the axis: UTC, which is the default, an offset such as +02:00, or an IANA name",
    ),
];
const PANEL: &[Parameter] = &[
    p(
        "dashboard",
        ParameterKind::Text,
        "The uid of a dashboard, whose panel is drawn instead of a query. Each parameter var-NAME sets a value of a variable",
    ),
    p("panel", ParameterKind::Text, "The id of the panel, a whole number; required with dashboard"),
    p("ref", ParameterKind::Text, "The only query of the panel to draw; by default all"),
];
const LIVE: &[Parameter] = &[
    p(
        "step",
        ParameterKind::Duration,
        "The time between two steps, from 1 second to 1 hour; 15 seconds by default",
    ),
    p(
        "since",
        ParameterKind::Time,
        "The last step that is not sent; by default the first event is the newest step",
    ),
    p("count", ParameterKind::Count(1, 1_000_000), "The number of events after which the stream ends"),
];
const AT_TIME: &[Parameter] = &[p("time", ParameterKind::Time, "The time of the evaluation; now by default")];
const COSTS: &[Parameter] = &[
    p("limit", ParameterKind::Count(1, 10_000), "The maximum number of series; 1,000 by default"),
    p(
        "timeout",
        ParameterKind::Duration,
        "The timeout of the query; at most the server's timeout, which is the default",
    ),
];
const EXPLAIN: &[Parameter] =
    &[p("explain", FLAG, "Whether to add the plan with the estimated and actual cost of each node")];
const NOCACHE: &[Parameter] = &[p("nocache", FLAG, "Whether to bypass the result cache")];
const TIMEOUT: &[Parameter] = &[p(
    "timeout",
    ParameterKind::Duration,
    "The timeout of the query; at most the server's timeout, which is the default",
)];
const WITHIN: &[Parameter] = &[
    p("match", ParameterKind::Repeated, "A selector; a series is included if any selector matches"),
    p(
        "start",
        ParameterKind::Time,
        "The start of the time range; only series with samples in it are included",
    ),
    p("end", ParameterKind::Time, "The end of the time range; only series with samples in it are included"),
];
const LISTED: &[Parameter] = &[
    p("match", ParameterKind::Repeated, "A selector; a series is included if any selector matches"),
    p(
        "start",
        ParameterKind::Time,
        "The start of the time range; without start and end, metrics in the head and of the last 24 hours are listed",
    ),
    p("end", ParameterKind::Time, "The end of the time range; only metrics with samples in it are listed"),
];
const PAGED: &[Parameter] = &[
    p("search", ParameterKind::Text, "Only items that contain this text"),
    p("limit", ParameterKind::Count(1, 10_000), "The maximum number of items; 1,000 by default"),
    p("cursor", ParameterKind::Text, "The next_cursor of the previous page"),
];
const METRICS: &[Parameter] = &[
    p("prefix", ParameterKind::Text, "Only metrics whose name begins with this text"),
    p("format", ParameterKind::OneOf(&["full", "names"]), "Whether to list objects or only names"),
];
const VALUES: &[Parameter] = &[p(
    "values",
    ParameterKind::Count(0, 1_000),
    "The maximum number of values of each label; 20 by default",
)];
const MOUNT_QUERY: &[Parameter] = &[p("query", ParameterKind::Required, "The PromQL expression")];
const MOUNT_COSTS: &[Parameter] = &[
    p(
        "timeout",
        ParameterKind::Duration,
        "The timeout of the query; at most the server's timeout, which is the default",
    ),
    p("limit", ParameterKind::Least(0), "The maximum number of series; 0 means no limit"),
    p("lookback_delta", ParameterKind::Duration, "The lookback of instant selectors"),
    p("stats", ParameterKind::OneOf(&["", "true", "all"]), "Whether to add statistics; any value does"),
];
const MOUNT_RANGE: &[Parameter] = &[
    p("start", ParameterKind::Required, "The time of the first step"),
    p("end", ParameterKind::Required, "The latest time of a step, inclusive"),
    p("step", ParameterKind::Required, "The time between two steps"),
];
const MOUNT_SERIES: &[Parameter] = &[p(
    "match[]",
    ParameterKind::RepeatedRequired,
    "A selector; a series is included if any selector matches",
)];
const MOUNT_MATCH: &[Parameter] =
    &[p("match[]", ParameterKind::Repeated, "A selector; a series is included if any selector matches")];
const MOUNT_BETWEEN: &[Parameter] = &[
    p(
        "start",
        ParameterKind::Time,
        "The start of the time range; only series with samples in it are included",
    ),
    p("end", ParameterKind::Time, "The end of the time range; only series with samples in it are included"),
    p("limit", ParameterKind::Least(0), "The maximum number of items; 0 means no limit"),
];
const MOUNT_DELETE: &[Parameter] = &[
    p(
        "match[]",
        ParameterKind::RepeatedRequired,
        "A selector; samples of a series are deleted if any selector matches",
    ),
    p("start", ParameterKind::Time, "The time of the first sample to delete, inclusive; no bound by default"),
    p("end", ParameterKind::Time, "The time of the last sample to delete, inclusive; no bound by default"),
];
const MOUNT_RULES: &[Parameter] = &[
    p("type", ParameterKind::OneOf(&["", "alert", "record"]), "The only kind of rules to return"),
    p("rule_name[]", ParameterKind::Repeated, "The names of the rules to return"),
    p("rule_group[]", ParameterKind::Repeated, "The names of the groups to return"),
    p("file[]", ParameterKind::Repeated, "The files or namespaces of the groups to return"),
    p("match[]", ParameterKind::Repeated, "A selector of the rules to return by their labels"),
    p("exclude_alerts", FLAG, "Whether the alerts of rules are left out"),
    p("group_limit", ParameterKind::Least(1), "The maximum number of groups"),
    p("group_next_token", ParameterKind::Text, "The token of the next page, with group_limit"),
];
const EXPORTED: &[Parameter] = &[
    p(
        "match[]",
        ParameterKind::Repeated,
        "A selector; a series is exported if any selector matches; all by default",
    ),
    p("start", ParameterKind::Time, "The time of the first sample, inclusive; no bound by default"),
    p("end", ParameterKind::Time, "The time of the last sample, inclusive; no bound by default"),
    p(
        "format",
        ParameterKind::OneOf(&["jsonl", "csv", "openmetrics", "prometheus"]),
        "The format; JSON lines by default",
    ),
];
const MOUNT_STATUS: &[Parameter] =
    &[p("limit", ParameterKind::Count(1, 10_000), "The maximum number of items of each list; 10 by default")];
const MOUNT_METADATA: &[Parameter] = &[
    p("metric", ParameterKind::Text, "The only metric to return"),
    p("limit", ParameterKind::Least(0), "The maximum number of metrics; 0 means no limit"),
    p(
        "limit_per_metric",
        ParameterKind::Least(0),
        "The maximum number of descriptions of a metric; at most 10",
    ),
];

const MOUNT_TARGETS: &[Parameter] = &[
    p("state", ParameterKind::Text, "`active`, `dropped` or `any`; `any` by default"),
    p("scrapePool", ParameterKind::Text, "The only job"),
];
const MOUNT_TARGET_METADATA: &[Parameter] = &[
    p("match_target", ParameterKind::Text, "A selector of targets by their labels"),
    p("metric", ParameterKind::Text, "The only metric"),
    p("limit", ParameterKind::Least(0), "The maximum number of rows; 0 means no limit"),
];
const MOUNT_RELABEL_STEPS: &[Parameter] = &[
    p("scrapePool", ParameterKind::Required, "The job"),
    p("labels", ParameterKind::Required, "The labels before relabelling, as a JSON object"),
];

pub(super) const IMPORT: &[Parameter] = &[
    p("timestamp", ParameterKind::Time, "The time of samples without a time of their own; now by default"),
    p(
        "labels",
        ParameterKind::Repeated,
        "A label name=value that replaces the sender's label on every series; labels of the API key take precedence",
    ),
];
pub(super) const PUSH: &[Parameter] = &[p(
    "ttl",
    ParameterKind::Duration,
    "The time after which the group ends and its series become stale; 0 means without end. The header X-Push-TTL does the same",
)];
pub(super) const COLUMNS: &[Parameter] = &[p(
    "format",
    ParameterKind::Text,
    "The columns, such as 1:label:city,2:metric:temperature,3:time:unix_s; by default the first line names them",
)];
pub(super) const INFLUX: &[Parameter] = &[
    p(
        "precision",
        ParameterKind::OneOf(&["ns", "us", "ms", "s", "m", "h"]),
        "The unit of times; nanoseconds by default",
    ),
    p(
        "db",
        ParameterKind::Text,
        "The label db of series without such a tag; for version 2 the parameter is bucket",
    ),
];
pub(super) const TOKEN: &[Parameter] = &[p("token", ParameterKind::Required, "The token of the link")];
pub(super) const OAUTH_START: &[Parameter] = &[
    p("redirect", ParameterKind::Text, "The path of this server to open after the sign-in"),
    p(
        "mode",
        ParameterKind::OneOf(&["login", "link"]),
        "Whether to sign in, or to link the identity to the account of the session",
    ),
];
pub(super) const OAUTH_BACK: &[Parameter] = &[
    p("code", ParameterKind::Text, "The authorization code of the provider"),
    p("state", ParameterKind::Text, "The state that was sent to the provider"),
    p("iss", ParameterKind::Text, "The issuer, if the provider sends it"),
    p("error", ParameterKind::Text, "The error code of the provider"),
    p("error_description", ParameterKind::Text, "The error description of the provider"),
];
pub(super) const PROBE: &[Parameter] =
    &[p("probe", FLAG, "Whether the target is checked before it is stored; true by default")];

pub(super) const PAGE: &[Parameter] = &[
    p("limit", ParameterKind::Count(1, 1_000), "The maximum number of items; 1,000 by default"),
    p("cursor", ParameterKind::Text, "The next_cursor of the previous page"),
];
pub(super) const DASHBOARDS: &[Parameter] = &[
    p(
        "q",
        ParameterKind::Text,
        "Only dashboards whose title, tags or folder contain this text, ignoring letter case",
    ),
    p("tag", ParameterKind::Text, "Only dashboards with this tag"),
    p("folder", ParameterKind::Text, "Only dashboards in this folder and the folders below it"),
    p("starred", FLAG, "Only dashboards that this account has starred, or has not"),
];
pub(super) const SEARCH: &[Parameter] = &[p(
    "search",
    ParameterKind::Text,
    "Only accounts whose address or name contains this text, ignoring letter case",
)];
pub(super) const EVENTS: &[Parameter] = &[
    p("limit", ParameterKind::Count(1, 1_000), "The maximum number of entries; 50 by default"),
    p("cursor", ParameterKind::Text, "The next_cursor of the previous page"),
    p(
        "action",
        ParameterKind::Text,
        "Only entries with this action, such as login.fail, or with this prefix, such as key.*",
    ),
];
pub(super) const ALERTS: &[Parameter] = &[
    p("active", FLAG, "Whether alerts that are neither silenced nor inhibited are included; true by default"),
    p("silenced", FLAG, "Whether silenced alerts are included; true by default"),
    p("inhibited", FLAG, "Whether inhibited alerts are included; true by default"),
    p("receiver", ParameterKind::Text, "Only alerts of receivers whose whole name this pattern matches"),
    p("filter", ParameterKind::Repeated, "Only alerts that these matchers match"),
];
const EMBEDDED_ALERTS: &[Parameter] = &[
    p(
        "state",
        ParameterKind::OneOf(&["firing", "pending"]),
        "Only alerts in this state; both states by default",
    ),
    p("match", ParameterKind::Repeated, "Only alerts whose series ALERTS one of these selectors selects"),
    p("limit", ParameterKind::Count(1, 1_000), "The maximum number of alerts; 1,000 by default"),
    p("cursor", ParameterKind::Text, "The next_cursor of the previous page"),
];
pub(super) const SILENCES: &[Parameter] =
    &[p("filter", ParameterKind::Repeated, "Only silences whose matchers have values that these match")];
pub(super) const INCLUDE_CURRENT: &[Parameter] = &[p(
    "include_current",
    ParameterKind::OneOf(&["true", "false"]),
    "Whether to end the current session as well",
)];

/// The empty schema of a response without a body.
const NO_BODY: &str = "";

/// The errors of an endpoint without parameters. The parameters are parsed nevertheless.
const TARGETS: &[Code] = &[Code::InvalidParameter, Code::DuplicateParameter];
const RELABEL_STEPS: &[Code] = &[Code::InvalidParameter, Code::DuplicateParameter, Code::NotFound];
const UNREAD: &[Code] = &[Code::InvalidParameter];
const NUMBERS: &[Code] =
    &[Code::InvalidParameter, Code::DuplicateParameter, Code::QueryTooExpensive, Code::QueryTimeout];
const LISTING: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
];
const METRIC_LABELS: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
    Code::MetricNotFound,
];
const LABEL_VALUES: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
    Code::LabelNotFound,
];
const EXPRESSION: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryFailed,
    Code::QueryTimeout,
    Code::QueryCancelled,
];
const EITHER: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::MetricNotAllowed,
    Code::QueryTooExpensive,
    Code::QueryFailed,
    Code::QueryTimeout,
    Code::QueryCancelled,
];
/// The errors of a query, and those for a dashboard or panel that does not exist.
const PICTURE_ERRORS: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::MetricNotAllowed,
    Code::NotFound,
    Code::QueryTooExpensive,
    Code::QueryFailed,
    Code::QueryTimeout,
    Code::QueryCancelled,
];
/// The errors before a live query begins. Later ones are events.
const LIVE_ERRORS: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::MetricNotAllowed,
    Code::QueryTooExpensive,
    Code::QueryFailed,
    Code::QueryTimeout,
    Code::QueryCancelled,
    Code::AtCapacity,
];
/// The errors of an estimate, which cannot be cancelled, because it is not listed among the running
/// queries.
const ESTIMATE: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryFailed,
    Code::QueryTimeout,
];
const FORMAT: &[Code] =
    &[Code::InvalidParameter, Code::DuplicateParameter, Code::BadExpr, Code::EmbedRestricted];
const RULES: &[Code] = &[Code::InvalidParameter, Code::DuplicateParameter, Code::BadExpr, Code::QueryTimeout];
const EXEMPLARS: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
];
const FEDERATE: &[Code] = &[
    Code::InvalidParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
];
const EXPORT: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
    Code::UpstreamUnsupported,
];
const DELETE: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
    Code::AtCapacity,
    Code::ShuttingDown,
    Code::EngineUpstream,
];

/// A path, the schema of its response, its parameters, and its own errors.
pub(super) type EndpointRow = (&'static str, &'static str, &'static [&'static [Parameter]], &'static [Code]);

/// The data endpoints, relative to `/api/v1/orgs/{slug}/`.
const ENDPOINTS: &[EndpointRow] = &[
    ("metrics", "Metrics", &[METRICS, LISTED, PAGED], LISTING),
    ("metrics/{name}/labels", "MetricLabels", &[VALUES, WITHIN], METRIC_LABELS),
    ("labels/{label}/values", "LabelValues", &[WITHIN, PAGED], LABEL_VALUES),
    ("query/range", "Query", &[STRUCTURED, OVER_RANGE, COSTS, EXPLAIN, NOCACHE], EITHER),
    ("query/instant", "Query", &[STRUCTURED, AT_TIME, COSTS, EXPLAIN], EITHER),
    ("query/expr-instant", "Query", &[EXPR, AT_TIME, COSTS, EXPLAIN], EXPRESSION),
    ("query/expr-range", "Query", &[EXPR, OVER_RANGE, COSTS, EXPLAIN, NOCACHE], EXPRESSION),
    ("query/live", "events", &[STRUCTURED, LIVE, COSTS], LIVE_ERRORS),
    ("alerts", "Alerts", &[EMBEDDED_ALERTS], RULES),
    ("render.svg", "image/svg+xml", &[STRUCTURED, PANEL, PICTURE, TIMEOUT, NOCACHE], PICTURE_ERRORS),
    ("render.png", "image/png", &[STRUCTURED, PANEL, PICTURE, TIMEOUT, NOCACHE], PICTURE_ERRORS),
    ("query/estimate", "Estimate", &[EXPR, OVER_RANGE, AT_TIME, TIMEOUT], ESTIMATE),
    ("prometheus/api/v1/query", "PrometheusQuery", &[MOUNT_QUERY, AT_TIME, MOUNT_COSTS], EXPRESSION),
    (
        "prometheus/api/v1/query_range",
        "PrometheusQuery",
        &[MOUNT_QUERY, MOUNT_RANGE, MOUNT_COSTS, NOCACHE],
        EXPRESSION,
    ),
    ("prometheus/api/v1/series", "PrometheusData", &[MOUNT_SERIES, MOUNT_BETWEEN], LISTING),
    ("prometheus/api/v1/labels", "PrometheusData", &[MOUNT_MATCH, MOUNT_BETWEEN], LISTING),
    ("prometheus/api/v1/label/{label}/values", "PrometheusData", &[MOUNT_MATCH, MOUNT_BETWEEN], LISTING),
    ("prometheus/api/v1/metadata", "PrometheusData", &[MOUNT_METADATA], NUMBERS),
    ("prometheus/api/v1/format_query", "PrometheusData", &[MOUNT_QUERY], FORMAT),
    ("prometheus/api/v1/status/buildinfo", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/admin/tsdb/delete_series", NO_BODY, &[MOUNT_DELETE], DELETE),
    ("prometheus/api/v1/status/tsdb", "PrometheusData", &[MOUNT_STATUS], NUMBERS),
    ("prometheus/api/v1/query_exemplars", "PrometheusData", &[MOUNT_QUERY, MOUNT_BETWEEN], EXEMPLARS),
    ("prometheus/api/v1/rules", "PrometheusData", &[MOUNT_RULES], RULES),
    ("export", "samples", &[EXPORTED], EXPORT),
    ("prometheus/api/v1/export", "samples", &[EXPORTED], EXPORT),
    ("prometheus/api/v1/targets", "PrometheusData", &[MOUNT_TARGETS], TARGETS),
    ("prometheus/api/v1/targets/metadata", "PrometheusData", &[MOUNT_TARGET_METADATA], TARGETS),
    ("prometheus/api/v1/targets/relabel_steps", "PrometheusData", &[MOUNT_RELABEL_STEPS], RELABEL_STEPS),
    ("prometheus/api/v1/scrape_pools", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/alerts", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/parse_query", "PrometheusData", &[MOUNT_QUERY], FORMAT),
    ("prometheus/api/v1/status/config", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/status/flags", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/status/runtimeinfo", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/status/walreplay", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/notifications", "PrometheusData", &[], UNREAD),
    ("prometheus/metrics", "text", &[], UNREAD),
    ("prometheus/federate", "text", &[MOUNT_MATCH], FEDERATE),
];

/// Returns the data endpoint with this path relative to `/api/v1/orgs/{slug}/`.
pub(super) fn endpoint(below: &str) -> Option<&'static EndpointRow> {
    ENDPOINTS.iter().find(|(path, ..)| *path == below)
}
