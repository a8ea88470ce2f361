//! What the data endpoints take and refuse (docs/specification.md C5, C6), as a table.

use serde_json::{Map, Value, json};

use crate::api::error::Code;

/// One query parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    name: &'static str,
    kind: Kind,
    text: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Required,
    Repeated,
    RepeatedRequired,
    Time,
    Duration,
    Number,
    Count(u64, u64),
    /// At least so many.
    Least(u64),
    OneOf(&'static [&'static str]),
}

/// A switch; an empty one counts as not given.
const FLAG: Kind = Kind::OneOf(&["", "0", "1", "false", "true"]);

const fn p(name: &'static str, kind: Kind, text: &'static str) -> Parameter {
    Parameter { name, kind, text }
}

impl Parameter {
    pub(super) fn to_json(self) -> Value {
        json!({
            "name": self.name,
            "in": "query",
            "required": matches!(self.kind, Kind::Required | Kind::RepeatedRequired),
            "description": self.text,
            "schema": self.schema(),
        })
    }

    fn schema(self) -> Value {
        match self.kind {
            Kind::Text | Kind::Required => json!({ "type": "string" }),
            Kind::Repeated | Kind::RepeatedRequired => {
                json!({ "type": "array", "items": { "type": "string" } })
            }
            Kind::Time => {
                json!({ "type": "string", "examples": ["1795226400", "2026-11-21T10:00:00Z", "now-15m"] })
            }
            Kind::Duration => json!({ "type": "string", "examples": ["15", "5m", "1h30m"] }),
            Kind::Number => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
            Kind::Count(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Least(least) => json!({ "type": "integer", "minimum": least }),
            Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
        }
    }
}

/// The same as the members of a form.
pub(super) fn form(parameters: &[Parameter]) -> Value {
    let properties: Map<String, Value> =
        parameters.iter().map(|one| (one.name.to_owned(), one.schema())).collect();
    let required: Vec<&str> = parameters
        .iter()
        .filter(|one| matches!(one.kind, Kind::Required | Kind::RepeatedRequired))
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
    p("metric", Kind::Text, "The metric; required unless expr is given"),
    p("match", Kind::Repeated, "label op value, with op one of = != =~ !~; all must hold"),
    p("fn", Kind::OneOf(FUNCTIONS), "A function over a window"),
    p("window", Kind::Duration, "The window of fn; by default the step, five minutes at least"),
    p("agg", Kind::OneOf(AGGREGATIONS), "How series become groups"),
    p("by", Kind::Text, "Labels that make a group, separated by commas"),
    p("without", Kind::Text, "Labels that do not make a group, separated by commas"),
    p("q", Kind::Number, "The quantile"),
    p("k", Kind::Count(1, 100), "How many of topk and bottomk"),
    p("offset", Kind::Duration, "How far back in time"),
    p("expr", Kind::Text, "PromQL, in place of all of the above"),
];
const EXPR: &[Parameter] = &[p("expr", Kind::Required, "PromQL, up to 64 KiB")];
const OVER_RANGE: &[Parameter] = &[
    p("start", Kind::Time, "The first step; an hour before the end by default"),
    p("end", Kind::Time, "The last step; now by default"),
    p("step", Kind::Duration, "Between steps; by default some 250 points, 15 seconds at least"),
];
const AT_TIME: &[Parameter] = &[p("time", Kind::Time, "The moment; now by default")];
const COSTS: &[Parameter] = &[
    p("limit", Kind::Count(1, 10_000), "Series at most; 1,000 by default"),
    p("timeout", Kind::Duration, "At most the server's, which is the default"),
];
const EXPLAIN: &[Parameter] = &[p("explain", FLAG, "Adds the plan: expected and actual cost of each node")];
const NOCACHE: &[Parameter] =
    &[p("nocache", FLAG, "1 computes everything anew, and keeps nothing for later")];
const TIMEOUT: &[Parameter] = &[p("timeout", Kind::Duration, "At most the server's, which is the default")];
const WITHIN: &[Parameter] = &[
    p("match", Kind::Repeated, "Selectors; a series counts if it passes any"),
    p("start", Kind::Time, "Only what has data from here"),
    p("end", Kind::Time, "Only what has data up to here"),
];
const LISTED: &[Parameter] = &[
    p("match", Kind::Repeated, "Selectors; a series counts if it passes any"),
    p(
        "start",
        Kind::Time,
        "Only metrics with samples from here on; without start and end, metrics in the head and of the last 24 hours",
    ),
    p("end", Kind::Time, "Only metrics with samples up to here"),
];
const PAGED: &[Parameter] = &[
    p("search", Kind::Text, "Only what contains this text"),
    p("limit", Kind::Count(1, 10_000), "Items at most; 1,000 by default"),
    p("cursor", Kind::Text, "next_cursor of the page before"),
];
const METRICS: &[Parameter] = &[
    p("prefix", Kind::Text, "Only names that begin with this text"),
    p("format", Kind::OneOf(&["full", "names"]), "Objects, or names alone"),
];
const VALUES: &[Parameter] =
    &[p("values", Kind::Count(0, 1_000), "Values shown of each label; 20 by default")];
const MOUNT_QUERY: &[Parameter] = &[p("query", Kind::Required, "PromQL")];
const MOUNT_COSTS: &[Parameter] = &[
    p("timeout", Kind::Duration, "At most the server's, which is the default"),
    p("limit", Kind::Least(0), "Series at most; 0 is no limit"),
    p("lookback_delta", Kind::Duration, "How far back an instant selector looks"),
];
const MOUNT_RANGE: &[Parameter] = &[
    p("start", Kind::Required, "The first step"),
    p("end", Kind::Required, "The last step"),
    p("step", Kind::Required, "Between steps"),
];
const MOUNT_SERIES: &[Parameter] =
    &[p("match[]", Kind::RepeatedRequired, "Selectors; a series counts if it passes any")];
const MOUNT_MATCH: &[Parameter] =
    &[p("match[]", Kind::Repeated, "Selectors; a series counts if it passes any")];
const MOUNT_BETWEEN: &[Parameter] = &[
    p("start", Kind::Time, "Only what has data from here"),
    p("end", Kind::Time, "Only what has data up to here"),
    p("limit", Kind::Least(0), "Items at most; 0 is no limit"),
];
const MOUNT_DELETE: &[Parameter] = &[
    p("match[]", Kind::RepeatedRequired, "Selectors; a series loses samples if it passes any"),
    p("start", Kind::Time, "The first sample to go; from the beginning by default"),
    p("end", Kind::Time, "The last sample to go; up to the end by default"),
];
const MOUNT_STATUS: &[Parameter] = &[p("limit", Kind::Count(1, 10_000), "Items of each list; 10 by default")];
const MOUNT_METADATA: &[Parameter] = &[
    p("metric", Kind::Text, "Only this metric"),
    p("limit", Kind::Least(0), "Metrics at most; 0 is no limit"),
];

pub(super) const IMPORT: &[Parameter] = &[
    p("timestamp", Kind::Time, "The time of samples that have none of their own; now by default"),
    p(
        "labels",
        Kind::Repeated,
        "name=value, added to every series in place of the sender's; labels of the key win",
    ),
];
pub(super) const COLUMNS: &[Parameter] = &[p(
    "format",
    Kind::Text,
    "What the columns are, as in 1:label:city,2:metric:temperature,3:time:unix_s; by default the first line says it",
)];
pub(super) const TOKEN: &[Parameter] = &[p("token", Kind::Required, "From the link")];
pub(super) const OAUTH_START: &[Parameter] = &[
    p("redirect", Kind::Text, "A path of this server to go on with"),
    p("mode", Kind::OneOf(&["login", "link"]), "link adds the identity to the account that is signed in"),
];
pub(super) const OAUTH_BACK: &[Parameter] = &[
    p("code", Kind::Text, "From the provider"),
    p("state", Kind::Text, "As it was sent there"),
    p("iss", Kind::Text, "The issuer, where the provider says it"),
    p("error", Kind::Text, "From the provider"),
    p("error_description", Kind::Text, "From the provider"),
];
pub(super) const PAGE: &[Parameter] = &[
    p("limit", Kind::Count(1, 1_000), "Rows at most; 1,000 by default"),
    p("cursor", Kind::Text, "next_cursor of the page before"),
];
pub(super) const SEARCH: &[Parameter] =
    &[p("search", Kind::Text, "Only accounts whose address or name contains this text, in any letter case")];
pub(super) const EVENTS: &[Parameter] = &[
    p("limit", Kind::Count(1, 1_000), "Rows at most; 50 by default"),
    p("cursor", Kind::Text, "next_cursor of the page before"),
    p("action", Kind::Text, "Only this one, as in login.fail; or all that begin so, as in key.*"),
];
pub(super) const INCLUDE_CURRENT: &[Parameter] =
    &[p("include_current", Kind::OneOf(&["true", "false"]), "true ends this session, too")];

/// In place of a schema: the answer has no body.
const NOTHING: &str = "";

/// Of parameters that nobody takes: they are read all the same.
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
/// Not among the questions under way, so that nobody ends it.
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
const EXEMPLARS: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::EmbedRestricted,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
];
const DELETE: &[Code] = &[
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::BadExpr,
    Code::QueryTooExpensive,
    Code::QueryTimeout,
    Code::AtCapacity,
    Code::ShuttingDown,
];

/// A path, the schema of its answer, its parameters, and what it refuses of its own.
pub(super) type Endpoint = (&'static str, &'static str, &'static [&'static [Parameter]], &'static [Code]);

/// What below `/api/v1/orgs/{slug}/` answers with which schema to which parameters.
const ENDPOINTS: &[Endpoint] = &[
    ("metrics", "Metrics", &[METRICS, LISTED, PAGED], LISTING),
    ("metrics/{name}/labels", "MetricLabels", &[VALUES, WITHIN], METRIC_LABELS),
    ("labels/{label}/values", "LabelValues", &[WITHIN, PAGED], LABEL_VALUES),
    ("query/range", "Query", &[STRUCTURED, OVER_RANGE, COSTS, EXPLAIN, NOCACHE], EITHER),
    ("query/instant", "Query", &[STRUCTURED, AT_TIME, COSTS, EXPLAIN], EITHER),
    ("query/expr-instant", "Query", &[EXPR, AT_TIME, COSTS, EXPLAIN], EXPRESSION),
    ("query/expr-range", "Query", &[EXPR, OVER_RANGE, COSTS, EXPLAIN, NOCACHE], EXPRESSION),
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
    ("prometheus/api/v1/admin/tsdb/delete_series", NOTHING, &[MOUNT_DELETE], DELETE),
    ("prometheus/api/v1/status/tsdb", "PrometheusData", &[MOUNT_STATUS], NUMBERS),
    ("prometheus/api/v1/query_exemplars", "PrometheusData", &[MOUNT_QUERY, MOUNT_BETWEEN], EXEMPLARS),
    ("prometheus/api/v1/rules", "PrometheusData", &[], UNREAD),
    ("prometheus/api/v1/alerts", "PrometheusData", &[], UNREAD),
];

/// What is below `/api/v1/orgs/{slug}/`.
pub(super) fn endpoint(below: &str) -> Option<&'static Endpoint> {
    ENDPOINTS.iter().find(|(path, ..)| *path == below)
}
