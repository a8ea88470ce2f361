//! The permissions that the extractors return for one organisation.

use std::sync::Arc;
use std::time::Duration;

use super::grant::Grant;
use crate::api::embed_use::EmbedUsage;
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::limits::Limits;
use crate::identity::{AlertingActor, ApiKey, KeyId, Limit, OrgSettings, UserId};
use crate::model::{Access, OrgId};

/// The permission of a caller to query one organisation.
#[derive(Clone, Debug)]
pub struct QueryAccess {
    /// The series and times that snapshots may read. `scope.min_time` already includes the token's
    /// look-back.
    pub access: Access,
    /// The restrictions on endpoints, expressions, range and step.
    pub grant: Grant,
    /// The organisation's limits of one query.
    pub quota: Quota,
    /// The id of the user or the API key, for the list of active queries.
    pub requester: Box<str>,
    /// The content coding of the response.
    pub coding: Coding,
    /// No other connection has sent a request recently.
    pub sole_connection: bool,
    /// Counts and charges the evaluations of an embed token; `None` for other callers.
    pub usage: Option<EmbedUsage>,
}

impl QueryAccess {
    /// Returns the lane of the caller's queries.
    pub fn lane(&self) -> Lane {
        match self.usage {
            Some(_) => Lane::Embed(self.access.org),
            None => Lane::Query(self.access.org),
        }
    }

    /// Returns the key that evaluations are charged to, for embed tokens.
    pub fn charged_key(&self) -> Option<KeyId> {
        self.usage.as_ref().map(EmbedUsage::key)
    }
}

/// An organisation's own limits of one query (docs/specification.md C3). `Default` leaves both to
/// the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// The number of samples that a query may read.
    pub samples: Limit,
    /// The time that a query may take, in seconds.
    pub timeout_s: Limit,
}

impl Quota {
    /// Returns the limits in an organisation's settings.
    pub fn of(settings: &OrgSettings) -> Quota {
        Quota { samples: settings.max_samples_per_query, timeout_s: settings.query_timeout_s }
    }

    /// Returns the number of samples that one query may read.
    pub fn samples_max(&self, default: u64) -> u64 {
        self.samples.or(Some(default)).unwrap_or(u64::MAX)
    }

    /// Returns how long one query may take.
    pub fn timeout(&self, default: Duration) -> Duration {
        match self.timeout_s {
            Limit::Default => default,
            Limit::Unlimited => Duration::MAX,
            Limit::At(seconds) => Duration::from_secs(seconds),
        }
    }
}

/// The permission of a caller to write samples to one organisation.
#[derive(Clone, Debug)]
pub struct IngestAccess {
    /// The organisation that receives the samples.
    pub org: OrgId,
    /// The labels that the API key sets on every series.
    pub forced_labels: Vec<(Box<str>, Box<str>)>,
    pub(super) key: Option<Arc<ApiKey>>,
    pub(super) user: Option<UserId>,
    /// `None` in an agent, which has no API keys.
    pub(super) limits: Option<Arc<Limits>>,
}

/// The permission of a caller to change the rules and silences of one organisation.
#[derive(Clone, Debug)]
pub struct AlertingAccess {
    /// The organisation.
    pub org: OrgId,
    /// The caller.
    pub sender: Sender,
}

/// The sender of samples or of a change of rules and silences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// An API key.
    Key {
        /// The id.
        id: KeyId,
        /// The name that its creator gave it.
        name: String,
    },
    /// The account of a session.
    User(UserId),
}

impl Sender {
    pub(super) fn of_key(key: &ApiKey) -> Sender {
        Sender::Key { id: key.id, name: key.name.clone() }
    }

    /// Returns the credential for the audit log.
    pub fn actor(&self) -> AlertingActor {
        match self {
            Sender::User(user) => AlertingActor::User(*user),
            Sender::Key { id, .. } => AlertingActor::Key(*id),
        }
    }
}

/// Checks that an API key may write series of any labels, as rules do, and change the handling of
/// the alerts of any series.
///
/// # Errors
/// 403 `forbidden` for an API key with forced labels.
pub(super) fn require_any_labels(key: &ApiKey) -> ApiResult<()> {
    if key.ingest.labels.is_empty() {
        return Ok(());
    }
    let detail = "an API key with forced labels sends samples only: rules, alerts and silences concern \
                  other series, too";
    Err(ApiError::new(Code::Forbidden, detail))
}

impl IngestAccess {
    /// Returns the permission of a caller that an agent admitted.
    pub(in crate::api) fn of_agent(org: OrgId) -> IngestAccess {
        IngestAccess { org, forced_labels: Vec::new(), key: None, user: None, limits: None }
    }

    /// Checks that the caller may send alerts of any series.
    ///
    /// # Errors
    /// 403 `forbidden` for an API key with forced labels.
    pub fn require_any_labels(&self) -> ApiResult<()> {
        self.key.as_deref().map_or(Ok(()), require_any_labels)
    }

    /// Returns the sender of the samples.
    pub fn sender(&self) -> Option<Sender> {
        let key = self.key.as_deref().map(Sender::of_key);
        key.or_else(|| self.user.map(Sender::User))
    }

    /// Charges `samples` to the API key's limit of samples per second. A session has no such limit.
    ///
    /// # Errors
    /// 503 `ingest_throttled` with a jittered `Retry-After`: Prometheus keeps the samples and
    /// resends them after a 503 (docs/specification.md B3).
    pub fn charge_samples(&self, samples: usize) -> ApiResult<()> {
        match (&self.key, &self.limits) {
            (Some(key), Some(limits)) => limits.charge_samples(key.id, &key.ingest, samples),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organisation_can_lower_and_raise_the_limits_of_a_query() {
        let half_a_minute = Duration::from_secs(30);
        let quota = |limit| Quota { samples: limit, timeout_s: limit };
        let cost = |limit| (quota(limit).samples_max(9), quota(limit).timeout(half_a_minute));
        assert_eq!(cost(Limit::Default), (9, half_a_minute));
        assert_eq!(cost(Limit::At(300)), (300, Duration::from_secs(300)));
        assert_eq!(cost(Limit::Unlimited), (u64::MAX, Duration::MAX));
    }
}
