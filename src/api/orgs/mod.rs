//! Everything below `/orgs/{slug}`, one file per resource.

pub mod api_keys;
pub mod embed_tokens;
pub mod metrics;
pub mod organisations;
pub mod prometheus;
pub mod query;
pub mod write;

use std::sync::Arc;

use super::error::{ApiError, ApiResult};
use super::lanes::{Lane, Lanes};
use super::limits::Limits;
use crate::clock::Clock;
use crate::identity::Identity;
use crate::tsdb::Tsdb;

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
}

impl OrgDeps {
    /// Runs a change of accounts where it may block.
    async fn change<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        change: impl FnOnce(&Identity) -> Result<T, E> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(Lane::Account, move || change(&identity)).await?.map_err(Into::into)
    }
}
