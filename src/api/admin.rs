//! The endpoints for administrators of the server (docs/specification.md C8).

pub mod orgs;
pub mod users;

use std::sync::Mutex;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};

use super::body::Json;
use super::error::{ApiError, ApiResult, Code};
use super::lanes::{Lane, Lanes};
use super::orgs::scrape::ScrapeReload;
use super::routes::{Auth, Login, Routes};
use crate::clock::Clock;
use crate::identity::{Identity, OrgSettings};
use crate::tsdb::Tsdb;

/// The `Retry-After` while a seal runs.
const SEAL_RETRY: Duration = Duration::from_secs(10);

/// The dependencies of these routes.
#[derive(Clone, Debug)]
pub struct AdminDeps {
    /// The accounts.
    pub identity: Arc<Identity>,
    /// The store of samples.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools for blocking work.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// Held while a seal runs, so that only one seal runs at a time.
    pub sealing: Arc<Mutex<()>>,
    /// The limits of organisations without settings of their own.
    pub defaults: Arc<OrgSettings>,
    /// The same lock as `OrgDeps::applying`.
    pub applying: Arc<Mutex<()>>,
    /// Reads the file of `--scrape-config` again.
    pub reload: ScrapeReload,
}

impl AdminDeps {
    /// Reads accounts on the account lane, because listings read all of them.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Account, move || read(&identity)).await?
    }
}

/// Returns the routes, relative to `/api/v1`.
pub fn routes() -> Routes<AdminDeps> {
    Routes::new()
        .post(
            "/admin/seal",
            Auth::InstanceAdmin(Login::Any),
            "Seal the open window of every organisation, trim the log, and free spare log files",
            seal,
        )
        .post(
            "/admin/scrape/reload",
            Auth::InstanceAdmin(Login::Any),
            "Read the file of --scrape-config again; the old configuration stays if the new one is wrong",
            reload_scrape_config,
        )
        .get("/admin/users", Auth::InstanceAdmin(Login::Any), "List all accounts", users::list)
        .patch(
            "/admin/users/{user_id}",
            Auth::InstanceAdmin(Login::Fresh),
            "Disable an account, or make it an administrator of the server",
            users::change,
        )
        .get(
            "/admin/orgs",
            Auth::InstanceAdmin(Login::Any),
            "List all organisations and their usage",
            orgs::list,
        )
        .patch(
            "/admin/orgs/{slug}",
            Auth::InstanceAdmin(Login::Any),
            "Set the limits of an organisation, even above those of the server",
            orgs::change,
        )
        .get(
            "/admin/stats",
            Auth::InstanceAdmin(Login::Any),
            "Return totals over the whole server",
            orgs::stats,
        )
        .get(
            "/admin/audit",
            Auth::InstanceAdmin(Login::Any),
            "List logins and changes to the server",
            orgs::events,
        )
}

async fn seal(State(deps): State<AdminDeps>) -> ApiResult<Json<Value>> {
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
                ApiError::new(Code::StorageDegraded, "not everything could be sealed; no samples are lost")
                    .with_retry_after(SEAL_RETRY)
            })
        })
        .await??;
    Ok(Json(json!({ "segments": sealed.segments, "samples": sealed.samples })))
}

async fn reload_scrape_config(State(deps): State<AdminDeps>) -> ApiResult<Json<Value>> {
    let Some(reload) = deps.reload.0.clone() else {
        return Err(ApiError::new(Code::NotFound, "the server runs without --scrape-config"));
    };
    let reloaded = deps.lanes.run(Lane::Account, move || reload()).await?;
    let report = reloaded.map_err(|why| ApiError::new(Code::ValidationFailed, why))?;
    Ok(Json(json!({ "jobs": report.jobs, "notices": report.notices })))
}
