//! Demo data: the samples of the generated web shop, for an organisation that has none of its own
//! yet (docs/specification.md C7).
//!
//! They are stored as samples that were sent: the limits of the organisation hold, and refusals are
//! listed. The audit log records the request before the first sample is stored. The first batch
//! has one scrape, so that an organisation without room for the series stores next to nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use serde_json::{Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::{MemberCaller, Sender};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::routes::{Auth, Login, Routes};
use crate::demo::ShopHistory;
use crate::identity::Role;
use crate::model::{Access, MatchOp, Matcher, OrgId, Pace, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;

/// The scrapes of one batch: about 16,000 samples, well below the limit of a log record.
const SCRAPES_A_BATCH: usize = 60;

/// The dependencies of the route.
#[derive(Clone, Debug)]
pub struct DemoDeps {
    /// Accounts, samples and lanes.
    pub orgs: OrgDeps,
    /// The organisations whose demo data is being stored.
    pub loading: Arc<Mutex<BTreeSet<OrgId>>>,
}

/// The route, relative to `/api/v1`.
pub fn routes() -> Routes<DemoDeps> {
    Routes::new().post(
        "/orgs/{slug}/demo-data",
        Auth::Member(Role::Editor, Login::Any),
        "Write the samples of a generated web shop",
        load,
    )
}

async fn load(State(deps): State<DemoDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.orgs.clock.now());
    deps.orgs.engines.require_local_writes(org)?;
    let loading = deps.begin(org)?;
    let lanes = deps.orgs.lanes.clone();
    let tsdb = Arc::clone(&deps.orgs.tsdb);
    if lanes.run(Lane::Query(org), move || has_shop(&tsdb, org)).await?? {
        let detail = format!(
            "the organisation has metrics whose names begin with {}; delete these series first",
            ShopHistory::PREFIX
        );
        return Err(ApiError::new(Code::AlreadyExists, detail));
    }
    let identity = Arc::clone(&deps.orgs.identity);
    let record = move || -> ApiResult<()> {
        caller.recheck()?;
        Ok(identity.note_demo_data(user, org, now)?)
    };
    lanes.run(Lane::Account, record).await??;
    // One job that a disconnect does not end: a part of the history is never left behind. The
    // query lane bounds the share of an organisation.
    let store = move || {
        let _loading = loading;
        deps.store(org, user, now)
    };
    let samples = lanes.run(Lane::Query(org), store).await??;
    Ok(Json(json!({ "samples": samples })))
}

/// Returns whether the organisation has samples of metrics with the shop's prefix.
fn has_shop(tsdb: &crate::tsdb::Tsdb, org: OrgId) -> ApiResult<bool> {
    let pattern = format!("{}.*", ShopHistory::PREFIX);
    let matcher = Matcher::new("__name__", MatchOp::Regex, &pattern)
        .map_err(|_| ApiError::internal("the pattern of the shop's names does not compile"))?;
    let snapshot = tsdb.snapshot(&Access::whole(org));
    // The search has one fixed pattern and ends at the first series.
    let pace = Pace::endless();
    let found = snapshot.paced(&pace).exists(&[vec![matcher]], TimeRange::ALL);
    found.map_err(|_| ApiError::internal("a search without a deadline was stopped"))
}

/// An organisation in [`DemoDeps::loading`]; removed on drop.
struct Loading {
    org: OrgId,
    all: Arc<Mutex<BTreeSet<OrgId>>>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.all.lock().ignore_poison().remove(&self.org);
    }
}

impl DemoDeps {
    /// Admits one request of an organisation at a time.
    fn begin(&self, org: OrgId) -> ApiResult<Loading> {
        if !self.loading.lock().ignore_poison().insert(org) {
            return Err(ApiError::new(Code::Conflict, "the demo data of this organisation is being stored"));
        }
        Ok(Loading { org, all: Arc::clone(&self.loading) })
    }

    /// Stores the history. Returns the number of samples. Blocks (one sync a batch).
    fn store(&self, org: OrgId, user: crate::identity::UserId, now: Timestamp) -> ApiResult<u64> {
        let mut history = ShopHistory::before(now);
        let (mut stored, mut scrapes) = (0, 1);
        while let Some(batch) = history.next_batch(now, scrapes) {
            scrapes = SCRAPES_A_BATCH;
            let report = self.orgs.tsdb.append(org, &batch.batch(), now)?;
            stored += report.stored;
            if report.refused == 0 {
                continue;
            }
            let reason = report.refusals.first().map_or("", |refusal| &refusal.reason);
            let detail = format!("{stored} samples stored, {} refused: {reason}", report.refused);
            let error = ApiError::new(Code::BadRequest, detail)
                .with("stored", stored)
                .with("refused", report.refused);
            self.orgs.rejects.record(org, &Sender::User(user), report.refusals, now);
            return Err(error);
        }
        Ok(stored)
    }
}
