//! Backfills of recording rules for the command line: by the running server over `admin.sock`, or
//! in a stopped folder.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp};
use crate::rules::{
    Backfill, BackfillLimits, BackfillTimes, RuleContext, RuleFileOptions, RulePreviewGroup,
    decode_rule_group,
};

/// The time after which a request begins no further slice. Each request begins with short slices.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Recording rules and the times for which their series are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillRequest {
    /// The slug of the organisation.
    pub org: String,
    /// A group of recording rules as YAML.
    pub group: String,
    /// The first time, in milliseconds since 1970.
    pub start_ms: i64,
    /// The last time, inclusive, in milliseconds since 1970.
    pub end_ms: i64,
    /// The time between two evaluations, in milliseconds.
    pub step_ms: i64,
    /// Whether an earlier request has begun this backfill.
    pub continues: bool,
}

/// The samples that a request wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillPart {
    /// Samples that are stored, including those that were stored before.
    pub stored: u64,
    /// Samples that the store refused.
    pub refused: u64,
    /// The start of the next request, in milliseconds since 1970; `None`: the backfill is complete.
    pub next_ms: Option<i64>,
}

/// Returns the organisation of a backfill, and records the rules of a backfill that begins.
///
/// # Errors
/// A sentence.
pub(super) fn admit(
    identity: &Identity,
    request: &BackfillRequest,
    caps: RuleFileOptions<'_>,
    now: Timestamp,
) -> Result<OrgId, String> {
    let org = identity.org_by_slug(&request.org).map_err(|error| with_sources(&error))?;
    let unknown = || format!("there is no organisation {:?}: `promlet org list` lists all", request.org);
    let org = org.ok_or_else(unknown)?.id;
    if identity.engine(org).is_some() {
        return Err(format!("the samples of {} are on another server", request.org));
    }
    if !request.continues {
        let group = decode_rule_group(&request.group, caps).map_err(|error| error.to_string())?;
        let names: Vec<&str> = group.rules.iter().map(|rule| rule.name()).collect();
        let recorded = identity.note_backfill(None, org, &names, now);
        recorded.map_err(|error| with_sources(&error))?;
    }
    Ok(org)
}

/// Writes a part of a backfill: slices until [`REQUEST_TIME`] has passed.
///
/// # Errors
/// A sentence.
pub(super) fn run(
    context: RuleContext<'_>,
    request: &BackfillRequest,
    now: Timestamp,
) -> Result<BackfillPart, String> {
    let sentence = |error: crate::rules::ReplayError| error.to_string();
    let options = RuleFileOptions::within(&context.settings.caps);
    let group = decode_rule_group(&request.group, options).map_err(|error| error.to_string())?;
    let [start, end] = [request.start_ms, request.end_ms].map(Timestamp::from_ms);
    let times = BackfillTimes { start, end, step_ms: request.step_ms };
    let query_offset_ms = group.query_offset_ms.unwrap_or_default();
    let preview = RulePreviewGroup { limit: group.limit, query_offset_ms };
    let mut backfill = Backfill::new(&group.rules, &preview, times, now).map_err(sentence)?;
    let limits = BackfillLimits { steps: usize::MAX, time: REQUEST_TIME };
    let report = backfill.run(limits, context, now).map_err(sentence)?;
    let next_ms = backfill.next().map(Timestamp::as_ms);
    Ok(BackfillPart { stored: report.stored, refused: report.refused, next_ms })
}
