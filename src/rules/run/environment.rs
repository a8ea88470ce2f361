//! The inputs of evaluations besides the samples: settings of the server, queries, and limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::model::{Access, OrgId, Steps, Timestamp};
use crate::promql::explain::{Estimate, estimate};
use crate::promql::syntax::{Caps, parse};
use crate::promql::{
    Budget, LEASE_UNIT, Lease, MemoryPool, Options, Query, QueryError, Value, VectorSample, run,
};
use crate::rules::group::TemplateQuery;
use crate::tsdb::{Snapshot, Tsdb};

/// The interval of groups without one, in milliseconds, as in Prometheus.
const INTERVAL_MS: i64 = 60_000;
/// The longest time of one query of a rule, as Prometheus' `query.timeout`.
const QUERY_TIMEOUT: Duration = Duration::from_secs(120);

/// The settings of evaluations.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// `$externalLabels` of templates.
    pub external_labels: Arc<BTreeMap<String, String>>,
    /// `$externalURL` of templates.
    pub external_url: Arc<str>,
    /// The options of queries.
    pub options: Options,
    /// The caps of expressions in templates.
    pub caps: Caps,
    /// The memory that all queries of the process share.
    pub memory: Option<Arc<MemoryPool>>,
    /// The longest time of one query.
    pub query_timeout: Duration,
    /// The interval of groups without one, in milliseconds.
    pub interval_ms: i64,
}

impl Default for RuleSettings {
    fn default() -> RuleSettings {
        RuleSettings {
            external_labels: Arc::default(),
            external_url: Arc::from(""),
            options: Options::default(),
            caps: Caps::default(),
            memory: None,
            query_timeout: QUERY_TIMEOUT,
            interval_ms: INTERVAL_MS,
        }
    }
}

/// The samples of one organisation, as its rules read and write them.
#[derive(Clone, Copy, Debug)]
pub struct RuleContext<'a> {
    /// The settings.
    pub settings: &'a RuleSettings,
    /// The store.
    pub tsdb: &'a Tsdb,
    /// The organisation.
    pub org: OrgId,
    /// Set when the result is no longer needed.
    pub cancel: Option<&'a AtomicBool>,
    /// The start of `query_timeout` for all queries together; None: each query has its own time.
    pub since: Option<Stopwatch>,
    /// The memory of queries that run one after the other; None: each query leases its own.
    pub lease: Option<&'a Arc<Lease>>,
}

impl<'a> RuleContext<'a> {
    /// Returns the context of evaluations that nothing cancels.
    pub fn new(settings: &'a RuleSettings, tsdb: &'a Tsdb, org: OrgId) -> RuleContext<'a> {
        RuleContext { settings, tsdb, org, cancel: None, since: None, lease: None }
    }

    /// Returns a lease of zero bytes for all queries of a group.
    pub(in crate::rules) fn new_lease(&self) -> Option<Arc<Lease>> {
        self.settings.memory.as_ref().map(|pool| Arc::new(pool.lease(self.org)))
    }

    /// Returns the view of the whole organisation.
    pub(in crate::rules) fn snapshot(&self) -> Snapshot {
        self.tsdb.snapshot(&Access::whole(self.org))
    }

    /// Returns whether the result is no longer needed.
    pub(in crate::rules) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Checks that work without a query may continue.
    pub(in crate::rules) fn check(&self) -> Result<(), QueryError> {
        if self.is_cancelled() {
            return Err(QueryError::Cancelled);
        }
        let expired = self.since.is_some_and(|since| since.elapsed() >= self.settings.query_timeout);
        if expired { Err(QueryError::Timeout) } else { Ok(()) }
    }

    /// Evaluates a query.
    pub(in crate::rules) fn value(&self, snapshot: &Snapshot, query: &Query) -> Result<Value, QueryError> {
        self.within_budget(|budget| run(query, snapshot, &self.settings.options, budget))
            .map(|result| result.value)
    }

    /// Estimates the cost of a query without evaluating it.
    pub(in crate::rules) fn estimate(
        &self,
        snapshot: &Snapshot,
        query: &Query,
    ) -> Result<Estimate, QueryError> {
        self.within_budget(|budget| estimate(query, snapshot, &self.settings.options, budget))
    }

    fn within_budget<T>(
        &self,
        work: impl FnOnce(&Budget<'_>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let watch = self.since.unwrap_or_else(Stopwatch::start);
        let expired = || watch.elapsed() >= self.settings.query_timeout;
        self.check()?;
        let budget = Budget {
            cancel: self.cancel,
            expired: Some(&expired),
            lease: self.lease.map(Arc::clone).or_else(|| self.new_lease()),
            ..Budget::default()
        };
        let result = work(&budget);
        if let Some(lease) = self.lease {
            lease.shrink_to(LEASE_UNIT);
        }
        result
    }

    /// Evaluates an instant query; a scalar is one sample without labels.
    pub(in crate::rules) fn vector(
        &self,
        snapshot: &Snapshot,
        query: &Query,
    ) -> Result<Vec<VectorSample>, QueryError> {
        match self.value(snapshot, query)? {
            Value::Vector(samples) => Ok(samples),
            Value::Scalar { at, value } => {
                Ok(vec![VectorSample { labels: Default::default(), at, value, histogram: None }])
            }
            Value::Text { .. } | Value::Matrix(_) => {
                Err(QueryError::BadQuery("rule result is not a vector or scalar".to_owned()))
            }
        }
    }
}

/// The queries of templates at one time.
pub(in crate::rules) struct TemplateQueries<'a> {
    pub(in crate::rules) context: RuleContext<'a>,
    pub(in crate::rules) snapshot: &'a Snapshot,
    pub(in crate::rules) at: Timestamp,
}

impl TemplateQuery for TemplateQueries<'_> {
    fn query(&self, expr: &str) -> Result<Vec<VectorSample>, String> {
        let parsed = parse(expr, &self.context.settings.caps).map_err(|error| error.to_string())?;
        let query =
            Query { expr: parsed.expr.into(), text: expr.into(), steps: Steps::once(self.at), instant: true };
        self.context.vector(self.snapshot, &query).map_err(|error| error.to_string())
    }
}
