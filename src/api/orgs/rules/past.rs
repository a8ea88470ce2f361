//! Replays of a rule: the alerts that it would have fired, and the series of a recording rule for
//! times before it existed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::json as views;
use crate::api::body::{Json, parse_json, read_json};
use crate::api::callers::{AlertingCaller, MemberCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane};
use crate::api::orgs::OrgDeps;
use crate::api::orgs::targets::wrong;
use crate::api::params::{PathOf, parse_span, parse_time};
use crate::clock::Stopwatch;
use crate::model::{OrgId, Steps, StepsError, Timestamp, parse_duration};
use crate::rules::{
    Backfill, BackfillLimits, BackfillTimes, ReplayError, Rule, RuleContext, RuleFileOptions,
    RulePreviewGroup, decode_rule, preview_rule,
};

/// The most steps of one backfill request. The response states where the next request continues.
const BACKFILL_STEPS_MAX: usize = 10_000;
/// The time after which a backfill request begins no further slice, so that its client sees the
/// progress.
const BACKFILL_TIME: Duration = Duration::from_secs(5);

/// A rule and a range.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PastBody {
    yaml: String,
    start: Value,
    end: Value,
    step: Value,
    query_offset: Option<String>,
    limit: Option<u32>,
}

/// A checked [`PastBody`].
struct PastRequest {
    yaml: String,
    times: BackfillTimes,
    group: RulePreviewGroup,
}

/// Checks the times of a request that evaluates all its steps.
fn checked_steps(start: Timestamp, end: Timestamp, step_ms: i64) -> ApiResult<Steps> {
    Steps::new(start, end, step_ms).or_else(|error| {
        let field = if error == StepsError::EndBeforeStart { "end" } else { "step" };
        wrong(field, error.to_string())
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl PastBody {
    fn checked(self, now: Timestamp) -> ApiResult<PastRequest> {
        let time = |name: &'static str, value: &Value| match parse_time(&text(value), now) {
            Some(at) => Ok(at),
            None => wrong(name, "must be RFC 3339, Unix seconds, or now-1h"),
        };
        let (start, end) = (time("start", &self.start)?, time("end", &self.end)?);
        let Some(step_ms) = parse_span(&text(&self.step)) else {
            return wrong("step", "must be a duration such as 1m, or seconds");
        };
        // The number of steps of a backfill is not limited, but that of each request is.
        checked_steps(start, end.min(start), step_ms)?;
        let query_offset_ms = match &self.query_offset {
            None => 0,
            Some(text) => parse_duration(text).or_else(|error| wrong("query_offset", error.to_string()))?,
        };
        let limit = usize::try_from(self.limit.unwrap_or_default()).unwrap_or(usize::MAX);
        let times = BackfillTimes { start, end, step_ms };
        Ok(PastRequest { yaml: self.yaml, times, group: RulePreviewGroup { limit, query_offset_ms } })
    }
}

fn refused(error: &ReplayError) -> ApiError {
    let detail = error.to_string();
    match error {
        ReplayError::Steps(_) => ApiError::new(Code::InvalidParameter, detail),
        ReplayError::NotRecording => {
            ApiError::new(Code::ValidationFailed, detail.clone()).with_field("yaml", "invalid", detail)
        }
        ReplayError::FutureEnd { .. } => {
            ApiError::new(Code::ValidationFailed, detail.clone()).with_field("end", "invalid", detail)
        }
        ReplayError::Evaluation { at, .. } => {
            ApiError::new(Code::QueryFailed, detail).with("at", at.to_rfc3339())
        }
        ReplayError::Store(_) => ApiError::new(Code::StorageDegraded, detail),
    }
}

impl OrgDeps {
    /// Decodes the rule of a request.
    async fn past_rule(&self, org: OrgId, yaml: String) -> ApiResult<Rule> {
        let caps = self.rules.settings().caps;
        let decode = move |_: &_| {
            decode_rule(&yaml, RuleFileOptions::within(&caps))
                .or_else(|error| wrong("yaml", error.to_string()))
        };
        self.compile(org, decode).await
    }

    /// Runs work over the samples of an organisation on the query lane. All its queries share the
    /// timeout of one query. A client that disconnects cancels it.
    async fn over_the_past<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(RuleContext<'_>) -> Result<T, ReplayError> + Send + 'static,
    ) -> ApiResult<T> {
        if self.identity.engine(org).is_some() {
            return Err(ApiError::new(Code::EngineUpstream, "the samples are on another server"));
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let (tsdb, rules, timeout) = (Arc::clone(&self.tsdb), Arc::clone(&self.rules), self.query_timeout);
        let work = move || {
            let mut settings = rules.settings().clone();
            settings.query_timeout = timeout;
            let (cancel, since) = (Some(&*cancelled), Some(Stopwatch::start()));
            work(RuleContext { cancel, since, ..RuleContext::new(&settings, &tsdb, org) })
        };
        self.lanes.run(Lane::Query(org), work).await?.map_err(|error| refused(&error))
    }
}

pub(super) async fn preview(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<PastBody>,
) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let PastRequest { yaml, times, group } = body.checked(deps.clock.now())?;
    let steps = checked_steps(times.start, times.end, times.step_ms)?;
    let rule = deps.past_rule(org, yaml).await?;
    let preview = deps.over_the_past(org, move |context| preview_rule(&rule, &group, steps, context)).await?;
    Ok(Json(views::preview(&preview)))
}

/// Writes the samples of a recording rule. Editors and API keys with the scope `alerting` store
/// recording rules, which write samples of any series, so they may backfill them, too.
pub(super) async fn backfill(
    State(deps): State<OrgDeps>,
    caller: AlertingCaller,
    PathOf(slug): PathOf<String>,
    request: Request,
) -> ApiResult<Json<Value>> {
    // The caller is checked before the body is read.
    let (org, now) = (caller.enter(&slug)?.org, deps.clock.now());
    let body: PastBody = parse_json(&read_json(request).await?)?;
    let PastRequest { yaml, times, group } = body.checked(now)?;
    let rule = deps.past_rule(org, yaml).await?;
    let rules = std::slice::from_ref(&rule);
    let mut backfill = Backfill::new(rules, &group, times, now).map_err(|error| refused(&error))?;
    let (identity, name) = (Arc::clone(&deps.identity), rule.name().to_owned());
    let record = move || {
        // The body may have arrived long after the first check.
        let actor = caller.enter(&slug)?.sender.actor();
        Ok::<_, ApiError>(identity.note_backfill(Some(actor), org, &[&name], now)?)
    };
    deps.lanes.run(Lane::Account, record).await??;
    let limits = BackfillLimits { steps: BACKFILL_STEPS_MAX, time: BACKFILL_TIME };
    let work = move |context: RuleContext<'_>| {
        let report = backfill.run(limits, context, now)?;
        Ok((report, backfill.next()))
    };
    let (report, next) = deps.over_the_past(org, work).await?;
    Ok(Json(json!({
        "stored": report.stored,
        "refused": report.refused,
        "next": next.map(Timestamp::to_rfc3339),
    })))
}
