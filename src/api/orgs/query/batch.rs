//! `query/batch`: many queries in one request, answered line by line (docs/specification.md C5).
//!
//! `queue` runs the queries on the query lane, and `stream` sends their lines. A query of a batch
//! is a query of `query/expr-range` or `query/expr-instant`: its members are the parameters of
//! those paths, and its line contains their response. The queries of a dashboard's panels run in
//! the same way (`dashboards/{uid}/data`).

mod queue;
mod stream;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::Response;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::deadline::QueryDeadline;
use super::deps::ReadDeps;
use super::request::BatchRequest;
use super::response::response_of;
use super::{AcceptedQuery, PreparedQuery, QueryKind, QueryMode, QueryParams};
use crate::api::body::parse_json;
use crate::api::callers::{Endpoint, Permission, QueryAccess};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::Params;
use crate::api::routes::{Auth, Routes};
use crate::clock::Stopwatch;
use crate::model::Timestamp;
use crate::promql::{Lease, QueryError};
use queue::BatchQueue;
use stream::BatchStream;

/// The most queries of one batch, inclusive.
const QUERIES_MAX: usize = 1_000;
/// The most characters of a query's id, inclusive.
const ID_CHARS_MAX: usize = 64;
/// The longest time in which equal queries are looked for. Queries beyond it are evaluated one by
/// one.
const GROUPING_MAX: Duration = Duration::from_millis(50);
/// How often the texts of a body are in memory: as they were sent, as members, as parameters, and
/// printed while equal queries are looked for.
const TEXT_COPIES: usize = 4;
/// The bytes of memory that are counted for one query in addition to its texts.
const QUERY_BYTES: usize = 1_024;

/// The route, relative to `/api/v1`.
pub(super) fn routes() -> Routes<ReadDeps> {
    Routes::new().post(
        "/orgs/{slug}/query/batch",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Evaluate many PromQL expressions and stream their results",
        batch,
    )
}

async fn batch(State(deps): State<ReadDeps>, request: BatchRequest) -> ApiResult<Response> {
    let BatchRequest { access, body } = request;
    respond(deps, access, move |deps, access| Batch::parse(deps, access, &body)).await
}

/// Runs a batch and streams its lines. `parse` runs on a lane, because that takes some milliseconds
/// for 1 MiB, and on one where it does not wait for queries: a batch beside a slow one is answered,
/// and its queries wait up to their timeout.
pub(in crate::api::orgs) async fn respond(
    deps: ReadDeps,
    access: QueryAccess,
    parse: impl FnOnce(&ReadDeps, &QueryAccess) -> ApiResult<Batch> + Send + 'static,
) -> ApiResult<Response> {
    let since = Stopwatch::start();
    let (lane, coding) = (access.lane(), access.coding);
    let parsing = deps.clone();
    let parse = move || parse(&parsing, &access).map(|batch| (batch, access));
    let (batch, access) = deps.lanes.run_before_queries(lane, parse).await??;
    let (queue, lines) = BatchQueue::new(deps, access, batch, since);
    let (body, coding) = BatchStream::body(queue, lines, coding);
    Ok(response_of(body, coding, HeaderValue::from_static("application/x-ndjson")))
}

/// A query of a batch. Its error, if any, becomes its line of the response.
pub(in crate::api::orgs) struct BatchQuery {
    pub(in crate::api::orgs) id: Box<str>,
    pub(in crate::api::orgs) query: ApiResult<PreparedQuery>,
}

/// A parsed batch.
pub(in crate::api::orgs) struct Batch {
    /// The queries in groups of equal ones.
    groups: VecDeque<Vec<BatchQuery>>,
    timeout: Option<Duration>,
    /// The memory of the queries, charged until the batch ends.
    lease: Lease,
}

/// The memory of a batch's queries.
pub(in crate::api::orgs) struct BatchMemory {
    lease: Lease,
    bytes: u64,
}

impl BatchMemory {
    /// Charges the texts of a body.
    ///
    /// # Errors
    /// 422 or 503 if there is not enough memory.
    pub(in crate::api::orgs) fn of_body(
        deps: &ReadDeps,
        access: &QueryAccess,
        body: &[u8],
    ) -> ApiResult<BatchMemory> {
        let mut memory = BatchMemory { lease: deps.memory.lease(access.access.org), bytes: 0 };
        memory.charge(body.len() * TEXT_COPIES)?;
        Ok(memory)
    }

    /// Charges a query whose expression has `text_bytes` that are not a part of the body.
    ///
    /// # Errors
    /// 422 or 503 if there is not enough memory.
    pub(in crate::api::orgs) fn charge_query(&mut self, text_bytes: usize) -> ApiResult<()> {
        self.charge(text_bytes * TEXT_COPIES + QUERY_BYTES)
    }

    fn charge(&mut self, bytes: usize) -> ApiResult<()> {
        self.bytes += bytes as u64;
        Ok(self.lease.grow_to(self.bytes, &|| false).map_err(QueryError::from)?)
    }
}

impl Batch {
    /// Returns a batch of queries.
    ///
    /// # Errors
    /// 400 `invalid_parameter` for `timeout`.
    pub(in crate::api::orgs) fn new(
        deps: &ReadDeps,
        access: &QueryAccess,
        queries: Vec<BatchQuery>,
        timeout: Option<Parameter>,
        memory: BatchMemory,
    ) -> ApiResult<Batch> {
        let BatchMemory { lease, bytes } = memory;
        lease.shrink_to(bytes);
        let timeout = super::request::timeout(&mut Params::of_pairs(pairs([("timeout", timeout)])))?;
        Ok(Batch { groups: group(deps, access, queries), timeout, lease })
    }

    /// Parses a body. Runs on a lane.
    ///
    /// # Errors
    /// 400 `invalid_json` and `invalid_parameter`, 422 `validation_failed`, 422 or 503 if there is
    /// not enough memory.
    fn parse(deps: &ReadDeps, access: &QueryAccess, body: &[u8]) -> ApiResult<Batch> {
        let mut memory = BatchMemory::of_body(deps, access, body)?;
        let body: BatchBody = parse_json(body)?;
        body.queries.check(|item| &item.id)?;
        let now = deps.clock.now();
        let mut queries = Vec::with_capacity(body.queries.listed.len());
        for item in &body.queries.listed {
            memory.charge_query(0)?;
            let query = body.prepare(item, deps, access, now);
            queries.push(BatchQuery { id: item.id.as_str().into(), query });
        }
        Batch::new(deps, access, queries, body.timeout, memory)
    }
}

/// Groups queries that have the same result: the same expression after parsing, and the same
/// parameters. An expression that does not parse is a group of its own, and fails when it runs.
fn group(deps: &ReadDeps, access: &QueryAccess, queries: Vec<BatchQuery>) -> VecDeque<Vec<BatchQuery>> {
    let org = access.access.org;
    let mut groups: VecDeque<Vec<BatchQuery>> = VecDeque::with_capacity(queries.len());
    let mut known: HashMap<String, usize> = HashMap::new();
    let (deadline, _guard) = QueryDeadline::start(GROUPING_MAX);
    deadline.with_patterns(&deps.patterns, org, || {
        for query in queries {
            let is_late = deadline.admit(0).is_err();
            let key = query.query.as_ref().ok().filter(|_| !is_late).and_then(|prepared| {
                let QueryKind::Expression(text) = &prepared.params.kind else { return None };
                Some(prepared.key(&deps.expressions.parse(org, text).ok()?.to_string()))
            });
            let group = key.map(|key| *known.entry(key).or_insert(groups.len()));
            match group.and_then(|group| groups.get_mut(group)) {
                Some(group) => group.push(query),
                None => groups.push_back(vec![query]),
            }
        }
    });
    groups
}

impl PreparedQuery {
    /// Returns a text that only queries with the same result have in common. `expr` is the printed
    /// expression.
    fn key(&self, expr: &str) -> String {
        let PreparedQuery { params, window, timeout, unused } = self;
        let instant = params.mode == QueryMode::Instant;
        format!("{instant} {} {:?} {window:?} {timeout:?} {unused:?} {expr}", params.explain, params.eval)
    }
}

/// The body of a request. Times and `timeout` hold for all queries; a query may have its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    start: Option<Parameter>,
    end: Option<Parameter>,
    step: Option<Parameter>,
    time: Option<Parameter>,
    timeout: Option<Parameter>,
    queries: BatchItems<BatchItem>,
}

/// A query in the body. Its members are the parameters of the endpoint for one query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchItem {
    id: String,
    expr: String,
    #[serde(rename = "type")]
    kind: BatchItemKind,
    start: Option<Parameter>,
    end: Option<Parameter>,
    step: Option<Parameter>,
    time: Option<Parameter>,
    #[serde(alias = "max_series")]
    limit: Option<Parameter>,
    timeout: Option<Parameter>,
    explain: Option<Parameter>,
    nocache: Option<Parameter>,
}

/// The kind of a query in a body.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::api::orgs) enum BatchItemKind {
    Range,
    Instant,
}

impl BatchBody {
    /// Parses a query. An instant query without a time has the time of the batch, or its `end`.
    fn prepare(
        &self,
        item: &BatchItem,
        deps: &ReadDeps,
        access: &QueryAccess,
        now: Timestamp,
    ) -> ApiResult<PreparedQuery> {
        let (mode, start, end, step, time) = match item.kind {
            BatchItemKind::Range => {
                let own = |own, all| [own, all].into_iter().find_map(Parameter::given);
                let (start, end) = (own(&item.start, &self.start), own(&item.end, &self.end));
                (QueryMode::Range, start, end, own(&item.step, &self.step), item.time.clone())
            }
            BatchItemKind::Instant => {
                let time = [&item.time, &self.time, &self.end].into_iter().find_map(Parameter::given);
                (QueryMode::Instant, item.start.clone(), item.end.clone(), item.step.clone(), time)
            }
        };
        let members = [
            ("expr", Some(Parameter(item.expr.clone()))),
            ("start", start),
            ("end", end),
            ("step", step),
            ("time", time),
            ("limit", item.limit.clone()),
            ("timeout", item.timeout.clone()),
            ("explain", item.explain.clone()),
            ("nocache", item.nocache.clone()),
        ];
        access.grant.require(Permission::Endpoint(Endpoint::Expr))?;
        prepare(pairs(members), mode == QueryMode::Instant, deps, access, now)
    }
}

/// Prepares an expression whose parameters, `expr` included, are those of a URL. The caller checks
/// that the credential grants it.
///
/// # Errors
/// 400 `invalid_parameter`, 403 `embed_restricted`.
pub(in crate::api::orgs) fn prepare(
    pairs: Vec<(String, String)>,
    instant: bool,
    deps: &ReadDeps,
    access: &QueryAccess,
    now: Timestamp,
) -> ApiResult<PreparedQuery> {
    let mode = if instant { QueryMode::Instant } else { QueryMode::Range };
    let mut params = Params::of_pairs(pairs);
    let query = QueryParams::take(&mut params, mode, AcceptedQuery::ExpressionOnly)?;
    query.prepare(&mut params, now, deps.options.range_ms_max, &access.grant)
}

/// Returns the members that are present, as parameters of a URL.
pub(in crate::api::orgs) fn pairs<const N: usize>(
    members: [(&str, Option<Parameter>); N],
) -> Vec<(String, String)> {
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.0)));
    present.collect()
}

/// A parameter as the text that it would have in a URL: `1.5` and `"1.5"` are the same time.
#[derive(Clone)]
pub(in crate::api::orgs) struct Parameter(pub(in crate::api::orgs) String);

impl Parameter {
    /// Returns a parameter that is present and not empty.
    pub(in crate::api::orgs) fn given(parameter: &Option<Parameter>) -> Option<Parameter> {
        parameter.clone().filter(|Parameter(text)| !text.is_empty())
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Parameter, D::Error> {
        struct ParameterVisitor;

        impl Visitor<'_> for ParameterVisitor {
            type Value = Parameter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true or false")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Parameter, E> {
                Ok(Parameter(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter(value.to_string()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter(value.to_string()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Parameter, E> {
                Ok(Parameter(value.to_string()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter(value.to_string()))
            }
        }

        from.deserialize_any(ParameterVisitor)
    }
}

/// The queries of a body, at most [`QUERIES_MAX`], and the number that were sent.
pub(in crate::api::orgs) struct BatchItems<T> {
    pub(in crate::api::orgs) listed: Vec<T>,
    count: usize,
}

impl<T> BatchItems<T> {
    /// Checks the number and the ids of the queries.
    ///
    /// # Errors
    /// 422 `validation_failed`.
    pub(in crate::api::orgs) fn check(&self, id_of: impl Fn(&T) -> &str) -> ApiResult<()> {
        let BatchItems { listed, count } = self;
        if *count > QUERIES_MAX {
            let message = format!("{count} queries, more than the {QUERIES_MAX} allowed");
            return Err(
                ApiError::invalid_field("queries", "too_many", message).with("limit", QUERIES_MAX as u64)
            );
        }
        check_ids(listed.iter().map(id_of))
    }
}

/// Checks the lengths of the ids of queries, and that no two are equal.
///
/// # Errors
/// 422 `validation_failed`.
pub(super) fn check_ids<'i>(ids: impl Iterator<Item = &'i str>) -> ApiResult<()> {
    let mut known = HashSet::new();
    for (place, id) in ids.enumerate() {
        let refused = |code, message: String| {
            let field = Cow::from(format!("queries[{place}].id"));
            Err(ApiError::new(Code::ValidationFailed, message.clone()).with_field(field, code, message))
        };
        let chars = id.chars().count();
        if !(1..=ID_CHARS_MAX).contains(&chars) {
            let message = format!("an id of {chars} characters; 1 to {ID_CHARS_MAX} are allowed");
            return refused("length", message);
        }
        if !known.insert(id) {
            return refused("duplicate", format!("two queries have the id {id:?}"));
        }
    }
    Ok(())
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BatchItems<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BatchItems<T>, D::Error> {
        struct ItemsVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
            type Value = BatchItems<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of queries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<BatchItems<T>, A::Error> {
                let mut listed = Vec::new();
                while listed.len() < QUERIES_MAX {
                    let Some(item) = array.next_element()? else {
                        let count = listed.len();
                        return Ok(BatchItems { listed, count });
                    };
                    listed.push(item);
                }
                let mut count = listed.len();
                while array.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(BatchItems { listed, count })
            }
        }

        from.deserialize_seq(ItemsVisitor(PhantomData))
    }
}
