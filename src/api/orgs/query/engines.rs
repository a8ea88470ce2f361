//! The engines of organisations: the one place that decides where a read goes.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use crate::api::error::{ApiError, ApiResult, Code};
use crate::identity::{Engine, EngineKind, Identity};
use crate::model::{OrgId, TimeRange, Timestamp};
use crate::outbound::Egress;
use crate::sync::IgnorePoison as _;
use crate::upstream::{CircuitState, Upstream};

/// The location of an organisation's samples.
#[derive(Clone, Debug)]
pub enum ReadEngine {
    /// The local store.
    Local,
    /// Another server.
    Upstream(Arc<Upstream>),
    /// In the local store if they are recent, otherwise on another server.
    Split {
        /// The other server.
        upstream: Arc<Upstream>,
        /// The age in milliseconds from which samples are read there.
        split_after_ms: i64,
    },
}

/// The clients of the engines in use. A client is made when it is used first, and replaced when its
/// engine has changed.
pub struct Engines {
    /// `None` if all organisations read local samples.
    identity: Option<Arc<Identity>>,
    egress: Egress,
    clients: RwLock<HashMap<OrgId, EngineClient>>,
}

/// An engine and its client, or the reason why there is none.
type EngineClient = (Arc<Engine>, Result<Arc<Upstream>, String>);

impl std::fmt::Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engines").finish_non_exhaustive()
    }
}

impl Engines {
    /// Returns the engines of all organisations.
    pub fn new(identity: Arc<Identity>, egress: Egress) -> Engines {
        Engines { identity: Some(identity), egress, clients: RwLock::default() }
    }

    /// Returns engines without accounts: all organisations read local samples.
    pub fn local() -> Engines {
        let egress = Egress::new(crate::model::EgressRules::default(), &[]);
        Engines { identity: None, egress, clients: RwLock::default() }
    }

    fn engine(&self, org: OrgId) -> Option<Arc<Engine>> {
        self.identity.as_ref()?.engine(org)
    }

    /// Returns whether another server has samples of an organisation. Does not access the disk.
    pub fn is_remote(&self, org: OrgId) -> bool {
        self.engine(org).is_some()
    }

    /// Returns which addresses may be connected to.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Returns the engine of an organisation. Does not access the disk.
    ///
    /// # Errors
    /// 503 `upstream_unavailable` if its target cannot be read.
    pub fn of(&self, org: OrgId) -> ApiResult<ReadEngine> {
        let Some(engine) = self.engine(org) else { return Ok(ReadEngine::Local) };
        let upstream = self.client(org, &engine).map_err(|why| {
            ApiError::new(Code::UpstreamUnavailable, format!("the engine cannot be used: {why}"))
        })?;
        Ok(match engine.kind {
            EngineKind::Upstream => ReadEngine::Upstream(upstream),
            EngineKind::Split => {
                let split_after_ms = i64::try_from(engine.split_after_s.saturating_mul(1_000));
                ReadEngine::Split { upstream, split_after_ms: split_after_ms.unwrap_or(i64::MAX) }
            }
        })
    }

    fn client(&self, org: OrgId, engine: &Arc<Engine>) -> Result<Arc<Upstream>, String> {
        if let Some((known, client)) = self.clients.read().ignore_poison().get(&org)
            && Arc::ptr_eq(known, engine)
        {
            return client.clone();
        }
        let client = match &engine.target {
            Some(target) => Upstream::new(target.clone(), self.egress.clone()).map(Arc::new),
            None => Err("its target was sealed with another master key; set it again".to_owned()),
        };
        let mut clients = self.clients.write().ignore_poison();
        // Clients of engines that no longer exist are closed.
        clients.retain(|org, _| self.engine(*org).is_some());
        clients.insert(org, (Arc::clone(engine), client.clone()));
        client
    }

    /// Returns the client of an organisation's engine, if it has been used.
    pub fn in_use(&self, org: OrgId) -> Option<Arc<Upstream>> {
        let engine = self.engine(org)?;
        let clients = self.clients.read().ignore_poison();
        let (known, client) = clients.get(&org)?;
        client.as_ref().ok().filter(|_| Arc::ptr_eq(known, &engine)).cloned()
    }

    /// Returns the number of organisations with an engine of their own, and of those whose circuit
    /// is not closed.
    pub fn counts(&self) -> (usize, usize) {
        let all = self.identity.as_ref().map_or_else(Default::default, |identity| identity.engines());
        let is_open = |org: OrgId| {
            self.in_use(org).is_some_and(|upstream| upstream.status().circuit != CircuitState::Closed)
        };
        (all.len(), all.iter().filter(|(org, _)| is_open(*org)).count())
    }

    /// Checks that all samples of a range are stored here.
    ///
    /// # Errors
    /// 409 `engine_upstream`.
    pub fn require_local(&self, org: OrgId, range: TimeRange, now: Timestamp) -> ApiResult<()> {
        let Some(engine) = self.engine(org) else { return Ok(()) };
        let after_ms = i64::try_from(engine.split_after_s.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let border = Timestamp::from_ms(now.as_ms().saturating_sub(after_ms));
        match engine.kind {
            EngineKind::Split if range.start >= border => Ok(()),
            EngineKind::Split => Err(ApiError::new(
                Code::EngineUpstream,
                format!("samples before {} are on another server; delete them there", border.to_rfc3339()),
            )),
            EngineKind::Upstream => Err(ApiError::new(
                Code::EngineUpstream,
                "the samples of this organisation are on another server; delete them there",
            )),
        }
    }

    /// Checks that samples of an organisation are stored here. The samples of a moved organisation
    /// are also sent to its engine, and those of a forwarding organisation to its targets.
    ///
    /// # Errors
    /// 409 `engine_upstream`.
    pub fn require_local_writes(&self, org: OrgId) -> ApiResult<()> {
        let is_sent_on = |identity: &Arc<Identity>| identity.is_moved(org) || identity.is_forwarding(org);
        let is_sent_on = || self.identity.as_ref().is_some_and(is_sent_on);
        match self.engine(org) {
            Some(engine) if engine.kind == EngineKind::Upstream && !is_sent_on() => Err(ApiError::new(
                Code::EngineUpstream,
                "the samples of this organisation are on another server; send them there",
            )),
            _ => Ok(()),
        }
    }
}
