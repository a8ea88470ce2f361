//! The routes below `/orgs/{slug}`, one file per resource.

pub mod api_keys;
pub mod audit;
pub mod dashboards;
pub mod delete_series;
pub mod demo_data;
pub mod embed_tokens;
pub mod embeds;
pub mod engine;
mod etag;
pub mod forward;
pub mod invites;
pub mod members;
pub mod metrics;
pub mod notifications;
pub mod organisations;
pub mod prometheus;
pub mod push;
pub mod query;
pub mod rejects;
pub mod rules;
pub mod scrape;
pub mod scrape_targets;
pub mod settings;
mod targets;
pub mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::callers::MemberCaller;
use super::embed_use::EmbedUses;
use super::error::{ApiError, ApiResult};
use super::lanes::{Lane, Lanes};
use super::limits::Limits;
use crate::clock::Clock;
use crate::forward::edge::Forwarders;
use crate::identity::{Identity, OrgSettings};
use crate::model::{OrgId, PatternCache};
use crate::outbound::MailQueue;
use crate::rules::RuleEngine;
use crate::tsdb::Tsdb;
use query::deadline::QueryDeadline;
use rejects::Rejects;
use scrape::ScrapeRoom;

/// The longest time to compile the regular expressions of a policy. A shorter query timeout applies
/// instead.
const COMPILE_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The dependencies of the routes of organisations, keys and tokens.
#[derive(Clone, Debug)]
pub struct OrgDeps {
    /// The accounts, organisations and keys.
    pub identity: Arc<Identity>,
    /// The store of samples, for the usage and the limits of organisations.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools for work that waits for disk syncs or compiles patterns.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The rate limits of minting and of invitations.
    pub limits: Arc<Limits>,
    /// The server's defaults for settings that an organisation does not set.
    pub defaults: Arc<OrgSettings>,
    /// Locked while an organisation's settings are applied to the store of samples, so that the
    /// store ends with the newest settings.
    pub applying: Arc<Mutex<()>>,
    /// The running queries; those of a deleted organisation are cancelled.
    pub active: Arc<query::active::RunningQueries>,
    /// The mail queue, for invitations.
    pub mail: Arc<MailQueue>,
    /// The prefix of links in mails; never taken from the `Host` header.
    pub public_url: Arc<str>,
    /// The last refusals of each organisation.
    pub rejects: Arc<Rejects>,
    /// Cached regular expressions.
    pub patterns: Arc<PatternCache>,
    /// The timeout of queries.
    pub query_timeout: Duration,
    /// The default rate limit of a new key's tokens, in requests per second
    /// (`PROMLET_RATE_EMBED_DEFAULT_RPS`).
    pub embed_rps_default: u32,
    /// The use of embed tokens.
    pub embeds: Arc<EmbedUses>,
    /// The location of each organisation's samples.
    pub engines: Arc<query::engines::Engines>,
    /// The running forwarding targets.
    pub forwarders: Arc<Forwarders>,
    /// The evaluation of rules.
    pub rules: Arc<RuleEngine>,
    /// The scraped targets.
    pub scraping: ScrapeRoom,
}

impl OrgDeps {
    /// Reads accounts or audit entries of an organisation on the query lane, where its share is
    /// bounded.
    async fn read<T: Send + 'static>(
        &self,
        org: OrgId,
        read: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Query(org), move || read(&identity)).await?
    }

    /// Runs work that compiles regular expressions on the query lane. It is cancelled after
    /// [`COMPILE_TIMEOUT_MAX`] and when the client disconnects; both are checked before each
    /// pattern that is not cached.
    async fn compile<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(&Identity) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let (deadline, _guard) = QueryDeadline::start(self.query_timeout.min(COMPILE_TIMEOUT_MAX));
        let (identity, patterns) = (Arc::clone(&self.identity), Arc::clone(&self.patterns));
        let work = move || {
            let done = deadline.with_patterns(&patterns, org, || work(&identity));
            done.map_err(|error| deadline.error_or(error))
        };
        self.lanes.run(Lane::Query(org), work).await?
    }

    /// Runs a change by a member on the account lane, which may wait for disk syncs. The member is
    /// checked again first ([`MemberCaller::recheck`]).
    async fn change<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        caller: &MemberCaller,
        change: impl FnOnce(&Identity) -> Result<T, E> + Send + 'static,
    ) -> ApiResult<T> {
        let (identity, caller) = (Arc::clone(&self.identity), caller.clone());
        let change = move || {
            caller.recheck()?;
            change(&identity).map_err(Into::into)
        };
        self.lanes.run(Lane::Account, change).await?
    }
}
