//! The restrictions of an embed token, apart from the series of its scope: the only check of a
//! token's permissions.
//!
//! Every read asks [`Grant::require`] for each [`Permission`] that it needs: for its endpoint when
//! the caller enters the organisation, for its steps before it waits for a lane, and for its
//! expression and windows once they are parsed. The series and the age of samples are not
//! permissions: the snapshot hides what the scope excludes.

use std::sync::Arc;

use crate::api::error::{ApiError, ApiResult, Code};
use crate::identity::{AlertsPolicy, DashboardGrant, EmbedGrant, Endpoint};
use crate::model::{Steps, TimeRange, Timestamp};
use crate::promql::syntax::tree::Expr;
use crate::promql::{self, Query};

/// The permissions of a reading caller, apart from the series. `Default` restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The verified token; `None` for sessions and API keys.
    token: Option<Arc<EmbedGrant>>,
    /// The greatest `end - start`, in milliseconds, inclusive.
    max_range_ms: Option<i64>,
    /// The smallest `step`, in milliseconds, inclusive.
    min_step_ms: Option<i64>,
}

/// Something that a token may withhold.
#[derive(Clone, Copy)]
pub(in crate::api) enum Permission<'a> {
    /// Permission to use an endpoint.
    Endpoint(Endpoint),
    /// Permission to see the dashboard with this uid.
    Dashboard(&'a str),
    /// Permission to query a metric by its name.
    Metric(&'a str),
    /// Permission to evaluate or format an expression.
    Expression {
        /// The expression.
        expr: &'a Expr,
        /// Returns the canonical form of an expression that the token lists, or `None` if it does
        /// not parse. Such an expression grants nothing.
        canonical: &'a dyn Fn(&str) -> Option<String>,
    },
    /// Permission to read names, number or exemplars of the series behind a result. A token that
    /// lists expressions grants their results, but not the names, the number or the exemplars of
    /// the series that they read.
    SeriesOfResults,
    /// Permission to evaluate an expression at these steps.
    Steps(&'a Steps),
    /// Permission to list exemplars over a time range.
    Range(TimeRange),
    /// To replace the lookback of the server by this one, in milliseconds. An instant selector
    /// reads that much time.
    Lookback(i64),
    /// Permission to read the windows of a query. They may be longer than `start` to `end`:
    /// `x[30d]` at one time reads thirty days, and `x[1d:1s]` has a range and a step of its own.
    Windows(&'a Query, &'a promql::Options),
}

impl Grant {
    /// Returns the grant of a verified token.
    pub(super) fn of(token: Arc<EmbedGrant>) -> Grant {
        let ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let (max_range_ms, min_step_ms) = (token.max_range_s.map(ms), token.min_step_s.map(ms));
        Grant { token: Some(token), max_range_ms, min_step_ms }
    }

    /// Returns whether the caller is an embed token. Responses then report that the scope may have
    /// hidden series.
    pub(in crate::api) fn is_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the dashboard that a token grants; `None` for sessions, which see every dashboard.
    pub(in crate::api) fn dashboard(&self) -> Option<&DashboardGrant> {
        self.token.as_ref()?.dashboard.as_ref()
    }

    /// Returns the alert fields that a token may show; `None` for sessions, which see all of them,
    /// and for tokens that grant no alerts.
    pub(in crate::api) fn alerts(&self) -> Option<&AlertsPolicy> {
        let token = self.token.as_ref().filter(|token| token.allows(Endpoint::Alerts))?;
        token.alerts.as_ref()
    }

    /// Returns the greatest `end - start` in milliseconds, inclusive.
    pub(in crate::api) fn max_range_ms(&self) -> Option<i64> {
        self.max_range_ms
    }

    /// Returns the greatest age of samples that may be read, in seconds.
    pub(in crate::api) fn max_lookback_s(&self) -> Option<u64> {
        self.token.as_ref()?.max_lookback_s
    }

    /// Returns the time of the earliest sample that may be read at `now`.
    pub(in crate::api) fn min_time(&self, now: Timestamp) -> Option<Timestamp> {
        self.token.as_ref()?.min_time(now)
    }

    /// Returns the time at which the credential expires, if it is a token.
    pub(in crate::api) fn expires_at(&self) -> Option<Timestamp> {
        Some(self.token.as_ref()?.expires_at)
    }

    /// Returns the smallest step in milliseconds, inclusive.
    pub(in crate::api) fn min_step_ms(&self) -> Option<i64> {
        self.min_step_ms
    }

    /// Returns a text that grants of equal restrictions have in common, apart from endpoints. The
    /// spellings are treated alike: a query is allowed under all of them or none, with the same
    /// report.
    pub(in crate::api) fn key(&self) -> String {
        let exprs = self.token.as_ref().map_or(&[][..], |token| &token.exprs);
        let lookback_s = self.max_lookback_s();
        format!("{exprs:?} {:?} {:?} {lookback_s:?}", self.max_range_ms, self.min_step_ms)
    }

    /// Checks that the caller has a permission. Sessions and API keys have all of them.
    ///
    /// # Errors
    /// 403 `embed_restricted`, or `metric_not_allowed` for [`Permission::Metric`].
    pub(in crate::api) fn require(&self, permission: Permission<'_>) -> ApiResult<()> {
        let Some(token) = &self.token else { return Ok(()) };
        let refused = |detail: &'static str| Err(ApiError::new(Code::EmbedRestricted, detail));
        match permission {
            Permission::Endpoint(endpoint) if !token.allows(endpoint) => {
                refused("this token does not grant this endpoint")
            }
            Permission::Dashboard(uid) if token.dashboard.as_ref().is_none_or(|one| one.uid != uid) => {
                refused("this token does not grant this dashboard")
            }
            Permission::Metric(name) if !token.scope.admits_name(name) => {
                Err(ApiError::new(Code::MetricNotAllowed, "this token does not grant this metric"))
            }
            Permission::Expression { expr, canonical } if token.restricts_exprs() => {
                let requested = expr.to_string();
                let same = |listed: &String| {
                    *listed == requested || canonical(listed).is_some_and(|listed| listed == requested)
                };
                match token.exprs.iter().all(|list| list.iter().any(same)) {
                    true => Ok(()),
                    false => refused("this token does not grant this expression"),
                }
            }
            Permission::SeriesOfResults if token.restricts_exprs() => refused(
                "this token grants the results of listed expressions, but no information about their series",
            ),
            Permission::Steps(steps) => {
                self.require_at_most("ranges", steps.end().ms_since(steps.start()))?;
                self.require_at_least("steps", steps.step_ms())
            }
            Permission::Range(range) => self.require_at_most("ranges", range.end.ms_since(range.start)),
            Permission::Lookback(ms) => self.require_at_most("lookbacks", ms),
            Permission::Windows(query, options) => self.require_windows(query, options),
            Permission::Endpoint(_)
            | Permission::Dashboard(_)
            | Permission::Metric(_)
            | Permission::Expression { .. }
            | Permission::SeriesOfResults => Ok(()),
        }
    }

    fn require_windows(&self, query: &Query, options: &promql::Options) -> ApiResult<()> {
        if self.max_range_ms.is_none() && self.min_step_ms.is_none() {
            return Ok(());
        }
        for window in promql::windows(query, options) {
            self.require_at_most("windows", window.range_ms)?;
            if let Some(step_ms) = window.step_ms {
                self.require_at_least("subqueries with steps", step_ms)?;
            }
        }
        Ok(())
    }

    fn require_at_most(&self, what: &str, ms: i64) -> ApiResult<()> {
        match self.max_range_ms.filter(|most| ms > *most) {
            Some(most) => {
                let detail = format!("this token grants {what} of {} s at most", most / 1_000);
                Err(ApiError::new(Code::EmbedRestricted, detail))
            }
            None => Ok(()),
        }
    }

    fn require_at_least(&self, what: &str, ms: i64) -> ApiResult<()> {
        match self.min_step_ms.filter(|least| ms < *least) {
            Some(least) => {
                let detail = format!("this token grants {what} of {} s at least", least / 1_000);
                Err(ApiError::new(Code::EmbedRestricted, detail))
            }
            None => Ok(()),
        }
    }

    /// Replaces the open bounds of a range by the widest ones that the caller may read.
    pub(in crate::api) fn close_range(&self, range: TimeRange, now: Timestamp) -> TimeRange {
        let Some(most) = self.max_range_ms else { return range };
        let end = if range.end == Timestamp::MAX { now.max(range.start) } else { range.end };
        let start = if range.start == Timestamp::MIN { end.plus_ms(-most) } else { range.start };
        TimeRange::new(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::identity::KeyId;
    use crate::model::{NameGlob, OrgId, Scope};
    use crate::promql::syntax::{self, Caps};

    /// A token for `up` within a minute, at steps of 10 seconds or more.
    fn token() -> Grant {
        Grant::of(Arc::new(EmbedGrant {
            key: KeyId::from_bytes([1; 10]),
            rate_limit_rps: 1,
            org: OrgId(1),
            scope: Scope { names: vec![vec![NameGlob::new("up")]], ..Scope::default() },
            endpoints: Some(vec![Endpoint::Expr]),
            dashboard: Some(DashboardGrant {
                uid: "node".to_owned(),
                locked: BTreeMap::new(),
                open: BTreeMap::new(),
            }),
            alerts: None,
            exprs: vec![vec!["sum(up)".to_owned()]],
            max_range_s: Some(60),
            max_lookback_s: None,
            min_step_s: Some(10),
            origins: Vec::new(),
            sub: None,
            issued_at: None,
            expires_at: Timestamp::from_s(0),
        }))
    }

    fn parsed(text: &str) -> Expr {
        syntax::parse(text, &Caps::default()).expect("valid").expr
    }

    #[test]
    fn a_token_has_only_the_permissions_that_it_grants_and_a_session_has_all() {
        let steps = |range_s, step_ms| {
            Steps::new(Timestamp::from_s(0), Timestamp::from_s(range_s), step_ms).expect("valid")
        };
        let range = |end_s| TimeRange::new(Timestamp::from_s(0), Timestamp::from_s(end_s));
        let query = |text: &str| Query {
            expr: parsed(text).into(),
            text: text.into(),
            steps: Steps::once(Timestamp::from_s(0)),
            instant: true,
        };
        let options = promql::Options::default();
        let canonical = |listed: &str| Some(parsed(listed).to_string());
        let expression = |expr| Permission::Expression { expr, canonical: &canonical };
        let (listed, other) = (parsed("sum (up)"), parsed("up"));
        let (fits, fits_steps) = (query("up[1m:10s]"), steps(60, 10_000));
        let granted = [
            Permission::Endpoint(Endpoint::Expr),
            Permission::Dashboard("node"),
            Permission::Metric("up"),
            expression(&listed),
            Permission::Steps(&fits_steps),
            Permission::Range(range(60)),
            Permission::Lookback(60_000),
            Permission::Windows(&fits, &options),
        ];
        let (long, fine) = (query("up[61s]"), query("up[1m:9s]"));
        let (long_steps, fine_steps) = (steps(61, 10_000), steps(60, 9_999));
        let withheld = [
            Permission::Endpoint(Endpoint::Metrics),
            Permission::Endpoint(Endpoint::Dashboard),
            Permission::Dashboard("nodes"),
            Permission::Metric("upper"),
            expression(&other),
            Permission::SeriesOfResults,
            Permission::Steps(&long_steps),
            Permission::Steps(&fine_steps),
            Permission::Range(range(61)),
            Permission::Lookback(60_001),
            Permission::Windows(&long, &options),
            Permission::Windows(&fine, &options),
        ];
        for (at, permission) in granted.into_iter().enumerate() {
            assert!(token().require(permission).is_ok(), "{at}");
        }
        for (at, permission) in withheld.into_iter().enumerate() {
            assert!(token().require(permission).is_err(), "{at}");
            assert!(Grant::default().require(permission).is_ok(), "{at}");
        }
    }

    #[test]
    fn open_ranges_are_closed_to_the_widest_range_of_a_token() {
        let (now, at) = (Timestamp::from_s(1_000), Timestamp::from_s);
        let closed = |start, end| token().close_range(TimeRange::new(start, end), now);
        let range = |start_s, end_s| TimeRange::new(at(start_s), at(end_s));
        assert_eq!(closed(Timestamp::MIN, Timestamp::MAX), range(940, 1_000));
        assert_eq!(closed(at(10), Timestamp::MAX), range(10, 1_000));
        assert_eq!(closed(Timestamp::MIN, at(500)), range(440, 500));
        assert_eq!(Grant::default().close_range(TimeRange::ALL, now), TimeRange::ALL);
    }
}
