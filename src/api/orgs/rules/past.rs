//! Replays of a rule: the alerts that it would have fired, and the series of a recording rule for
//! times before it existed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::json as views;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane};
use crate::api::orgs::OrgDeps;
use crate::api::orgs::targets::wrong;
use crate::api::params::{parse_span, parse_time};
use crate::clock::Stopwatch;
use crate::model::{OrgId, Steps, StepsError, Timestamp, parse_duration};
use crate::rules::{
    Backfill, BackfillReport, BackfillTimes, ReplayError, Rule, RuleContext, RuleFileOptions,
    RulePreviewGroup, decode_rule, preview_rule,
};

/// The most steps of one backfill request. The response states where the next request continues.
const BACKFILL_STEPS_MAX: usize = 10_000;

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
    steps: Steps,
    group: RulePreviewGroup,
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
        let steps = Steps::new(start, end, step_ms).or_else(|error| {
            let field = if error == StepsError::EndBeforeStart { "end" } else { "step" };
            wrong(field, error.to_string())
        })?;
        let query_offset_ms = match &self.query_offset {
            None => 0,
            Some(text) => parse_duration(text).or_else(|error| wrong("query_offset", error.to_string()))?,
        };
        let limit = usize::try_from(self.limit.unwrap_or_default()).unwrap_or(usize::MAX);
        Ok(PastRequest { yaml: self.yaml, steps, group: RulePreviewGroup { limit, query_offset_ms } })
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
        ReplayError::Evaluation { .. } => ApiError::new(Code::QueryFailed, detail),
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
            work(RuleContext { settings: &settings, tsdb: &tsdb, org, cancel, since })
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
    let PastRequest { yaml, steps, group } = body.checked(deps.clock.now())?;
    let rule = deps.past_rule(org, yaml).await?;
    let preview = deps.over_the_past(org, move |context| preview_rule(&rule, &group, steps, context)).await?;
    Ok(Json(views::preview(&preview)))
}

pub(super) async fn backfill(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<PastBody>,
) -> ApiResult<Json<Value>> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let PastRequest { yaml, steps, group } = body.checked(now)?;
    let rule = deps.past_rule(org, yaml).await?;
    let times = BackfillTimes { start: steps.start(), end: steps.end(), step_ms: steps.step_ms() };
    let rules = std::slice::from_ref(&rule);
    let mut backfill = Backfill::new(rules, &group, times, now).map_err(|error| refused(&error))?;
    let (identity, name) = (Arc::clone(&deps.identity), rule.name().to_owned());
    let record = move || {
        caller.recheck()?;
        Ok::<_, ApiError>(identity.note_backfill(Some(user), org, &[&name], now)?)
    };
    deps.lanes.run(Lane::Account, record).await??;
    let work = move |context: RuleContext<'_>| {
        let (mut report, watch) = (BackfillReport::default(), Stopwatch::start());
        // The first step of the next request.
        let end = steps.at(BACKFILL_STEPS_MAX.min(steps.len()));
        while let Some(from) = backfill.next().filter(|from| *from < end) {
            let left = end.ms_since(from) / steps.step_ms();
            // Each slice has the whole timeout, so that a request makes progress.
            let context = RuleContext { since: Some(Stopwatch::start()), ..context };
            let slice = backfill.run_slice(usize::try_from(left).unwrap_or(usize::MAX), context, now)?;
            report.stored += slice.stored;
            report.refused += slice.refused;
            if watch.elapsed() >= context.settings.query_timeout {
                break;
            }
        }
        Ok((report, backfill.next()))
    };
    let (report, next) = deps.over_the_past(org, work).await?;
    Ok(Json(json!({
        "stored": report.stored,
        "refused": report.refused,
        "next": next.map(Timestamp::to_rfc3339),
    })))
}
