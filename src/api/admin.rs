//! What instance administrators do to the whole server (docs/specification.md C8).

pub mod orgs;
pub mod users;

use std::sync::Mutex;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};

use super::body::Json;
use super::callers::Cabinet;
use super::error::{ApiError, ApiResult, Code};
use super::lanes::{Lane, Lanes};
use super::routes::{Auth, Login, Routes};
use crate::clock::Clock;
use crate::identity::{Identity, OrgSettings};
use crate::tsdb::Tsdb;

/// When to ask again while a seal runs.
const SEAL_RETRY: Duration = Duration::from_secs(10);

/// What these routes need.
#[derive(Clone, Debug)]
pub struct AdminDeps {
    /// Who is an administrator.
    pub identity: Arc<Identity>,
    /// What is sealed.
    pub tsdb: Arc<Tsdb>,
    /// Where it blocks.
    pub lanes: Lanes,
    /// What time it is.
    pub clock: Clock,
    /// One seal at a time.
    pub sealing: Arc<Mutex<()>>,
    /// What holds where an organisation has no settings of its own.
    pub defaults: Arc<OrgSettings>,
    /// As `OrgDeps::applying`.
    pub applying: Arc<Mutex<()>>,
}

impl AdminDeps {
    /// Reads rows of accounts on the account lane: listings read all of them.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Account, move || read(&identity)).await?
    }
}

/// Relative to `/api/v1`.
pub fn routes() -> Routes<AdminDeps> {
    Routes::new()
        .post(
            "/admin/seal",
            Auth::InstanceAdmin(Login::Any),
            "Seal every organisation's open window now, trim the log, give spare log files back",
            seal,
        )
        .get("/admin/users", Auth::InstanceAdmin(Login::Any), "All accounts", users::list)
        .patch(
            "/admin/users/{user_id}",
            Auth::InstanceAdmin(Login::Fresh),
            "Disable an account, or make it administrator of the server",
            users::change,
        )
        .get(
            "/admin/orgs",
            Auth::InstanceAdmin(Login::Any),
            "All organisations, and what they use",
            orgs::list,
        )
        .patch(
            "/admin/orgs/{slug}",
            Auth::InstanceAdmin(Login::Any),
            "Set an organisation's limits, also above the server's",
            orgs::change,
        )
        .get("/admin/stats", Auth::InstanceAdmin(Login::Any), "Sums over the whole server", orgs::stats)
        .get(
            "/admin/audit",
            Auth::InstanceAdmin(Login::Any),
            "Logins, and what was done to the server",
            orgs::events,
        )
}

impl AdminDeps {
    fn require_admin(&self, cabinet: &Cabinet) -> ApiResult<()> {
        match self.identity.user(cabinet.user())? {
            Some(user) if user.is_admin => Ok(()),
            _ => Err(ApiError::new(Code::Forbidden, "this is for the administrator of the server")),
        }
    }
}

async fn seal(State(deps): State<AdminDeps>, cabinet: Cabinet) -> ApiResult<Json<Value>> {
    deps.require_admin(&cabinet)?;
    let (tsdb, sealing, now) = (Arc::clone(&deps.tsdb), Arc::clone(&deps.sealing), deps.clock.now());
    let sealed = deps
        .lanes
        .run(Lane::Account, move || {
            let _one = match sealing.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(ApiError::busy(SEAL_RETRY)),
                Ok(one) => one,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            tsdb.seal_and_merge(now).map_err(|error| {
                tracing::error!("not everything was sealed: {}", crate::kv::with_sources(&error));
                ApiError::new(Code::StorageDegraded, "not everything could be sealed; nothing is lost")
                    .with_retry_after(SEAL_RETRY)
            })
        })
        .await??;
    Ok(Json(json!({ "segments": sealed.segments, "samples": sealed.samples })))
}
