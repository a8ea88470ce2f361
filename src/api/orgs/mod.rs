//! Everything below `/orgs/{slug}`, one file per resource.

pub mod api_keys;
pub mod audit;
pub mod delete_series;
pub mod embed_tokens;
pub mod invites;
pub mod members;
pub mod metrics;
pub mod organisations;
pub mod prometheus;
pub mod query;
pub mod rejects;
pub mod settings;
pub mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::{ApiError, ApiResult};
use super::lanes::{Lane, Lanes};
use super::limits::Limits;
use crate::clock::Clock;
use crate::identity::{Identity, OrgSettings};
use crate::model::{OrgId, PatternCache};
use crate::outbound::MailQueue;
use crate::tsdb::Tsdb;
use query::run::Watch;
use rejects::Rejects;

/// For compiling the regular expressions of a policy, unless queries have less time.
const COMPILE_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// What organisations, keys and tokens need.
#[derive(Clone, Debug)]
pub struct OrgDeps {
    /// Accounts, organisations, keys.
    pub identity: Arc<Identity>,
    /// What an organisation uses.
    pub tsdb: Arc<Tsdb>,
    /// Disk syncs.
    pub lanes: Lanes,
    /// What time it is.
    pub clock: Clock,
    /// Minting.
    pub limits: Arc<Limits>,
    /// What holds where an organisation has no settings of its own.
    pub defaults: Arc<OrgSettings>,
    /// Held while an organisation's settings go to the store of samples, so that the later change is the one that holds.
    pub applying: Arc<Mutex<()>>,
    /// The questions under way: those of a deleted organisation end.
    pub active: Arc<query::active::Active>,
    /// Invitations.
    pub mail: Arc<MailQueue>,
    /// What links in mails begin with; never the `Host` header.
    pub public_url: Arc<str>,
    /// What was refused to senders.
    pub rejects: Arc<Rejects>,
    /// Cached regular expressions.
    pub patterns: Arc<PatternCache>,
    /// The timeout of queries.
    pub query_timeout: Duration,
    /// Requests a second of new keys that do not say (`PROMLET_RATE_EMBED_DEFAULT_RPS`).
    pub embed_rps_default: u32,
}

impl OrgDeps {
    /// Reads rows of an organisation's accounts on the query lane, where its share is bounded.
    async fn read<T: Send + 'static>(
        &self,
        org: OrgId,
        read: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Query(org), move || read(&identity)).await?
    }

    /// Runs work that compiles regular expressions on the query lane. It ends after [`COMPILE_TIMEOUT_MAX`] and when the
    /// client hangs up; both are noticed before each pattern that is not cached.
    async fn compile<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let (watch, _guard) = Watch::start(self.query_timeout.min(COMPILE_TIMEOUT_MAX));
        let (identity, patterns) = (Arc::clone(&self.identity), Arc::clone(&self.patterns));
        let work =
            move || watch.compiling((&patterns, org), || work(&identity)).map_err(|e| watch.refusal(e));
        self.lanes.run(Lane::Query(org), work).await?
    }

    /// Runs a change of accounts where it may block.
    async fn change<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        change: impl FnOnce(&Identity) -> Result<T, E> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Account, move || change(&identity)).await?.map_err(Into::into)
    }
}
