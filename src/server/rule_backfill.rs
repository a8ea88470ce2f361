//! Backfills of recording rules for the command line: by the running server over `admin.sock`, or
//! in a stopped folder.

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::kv::with_sources;
use crate::model::{OrgId, Steps, Timestamp};
use crate::rules::{
    Backfill, BackfillReport, RuleContext, RuleFileOptions, RulePreviewGroup, RuleSettings, decode_rule_group,
};
use crate::tsdb::Tsdb;

/// A recording rule and the times for which its series are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillRequest {
    /// The slug of the organisation.
    pub org: String,
    /// The group of the rule as YAML.
    pub group: String,
    /// The place of the rule in its group, from 0 on.
    pub place: usize,
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
    /// The start of the next request, in milliseconds since 1970; None: the backfill is complete.
    pub next_ms: Option<i64>,
}

/// Returns the organisation of a backfill, and records the backfill of a rule that begins.
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
        let rule = group.rules.get(request.place).ok_or("the group has no such rule")?;
        identity.note_backfill(None, org, rule.name(), now).map_err(|error| with_sources(&error))?;
    }
    Ok(org)
}

/// Writes a part of a backfill: a slice, so that a server that stops waits for one query only.
///
/// # Errors
/// A sentence.
pub(super) fn run(
    org: OrgId,
    tsdb: &Tsdb,
    settings: &RuleSettings,
    request: &BackfillRequest,
    now: Timestamp,
) -> Result<BackfillPart, String> {
    let options = RuleFileOptions::within(&settings.caps);
    let group = decode_rule_group(&request.group, options).map_err(|error| error.to_string())?;
    let rule = group.rules.get(request.place).ok_or("the group has no such rule")?;
    let [start, end] = [request.start_ms, request.end_ms].map(Timestamp::from_ms);
    let steps = Steps::new(start, end, request.step_ms).map_err(|error| error.to_string())?;
    let query_offset_ms = group.query_offset_ms.unwrap_or_default();
    let preview = RulePreviewGroup { limit: group.limit, query_offset_ms };
    let context = RuleContext { settings, tsdb, org, cancel: None, since: None };
    let report = Backfill::new(rule, &preview, steps, now)
        .and_then(|backfill| backfill.run_slice(start, context, now));
    let BackfillReport { stored, refused, next } = report.map_err(|error| error.to_string())?;
    Ok(BackfillPart { stored, refused, next_ms: next.map(Timestamp::as_ms) })
}
