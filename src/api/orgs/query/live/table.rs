//! All feeds, queries and streams, with their limits, and the task that checks the credentials of
//! streams.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::evaluation::{LiveKey, LiveOrg, LiveQuery, StepQuery};
use super::feed::{Feed, Member, Place};
use crate::api::callers::{Payer, QueryAccess, StandingCaller, StandingKey};
use crate::api::embed_use::{EmbedUsage, OpenStream, ViewerNetwork};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::orgs::query::PreparedQuery;
use crate::api::orgs::query::deps::ReadDeps;
use crate::clock::Clock;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// The most streams at once, inclusive.
const STREAMS_MAX: usize = 20_000;
/// The most streams of one organisation at once, inclusive.
const ORG_STREAMS_MAX: usize = 15_000;
/// The most streams of one session at once, inclusive.
const SESSION_STREAMS_MAX: usize = 100;
/// One network has at most this part of the streams of a key, so that no viewer takes all of them.
/// An office is one network, too.
const NETWORK_PART: usize = 10;
/// A network may have as many streams in any case.
const NETWORK_STREAMS_LEAST: usize = 100;
/// The most different queries of one organisation at once, inclusive.
const QUERIES_MAX: usize = 5_000;
/// The time between two checks of a credential.
const CHECK_PERIOD: Duration = Duration::from_millis(500);
/// The credentials that are checked before other tasks run.
const CHECKS_AT_ONCE: usize = 256;

/// All live queries.
#[derive(Debug, Default)]
pub struct LiveQueries {
    table: Mutex<LiveTable>,
    evaluated: Arc<AtomicU64>,
    gaps: Arc<AtomicU64>,
    refused: AtomicU64,
}

#[derive(Default)]
struct LiveTable {
    orgs: HashMap<OrgId, OrgEntry>,
    queries: BTreeMap<LiveKey, QueryEntry>,
    feeds: BTreeMap<LiveKey, FeedEntry>,
    /// The number of streams of each payer.
    payers: HashMap<Payer, usize>,
    /// The number of streams of each key in each network.
    networks: HashMap<ViewerNetwork, usize>,
    checks: HashMap<StandingKey, Weak<CredentialCheck>>,
    is_checking: bool,
    streams: usize,
    closed: bool,
}

impl std::fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveTable").field("streams", &self.streams).finish_non_exhaustive()
    }
}

struct OrgEntry {
    shared: Arc<LiveOrg>,
    streams: usize,
    queries: usize,
}

struct QueryEntry {
    query: Arc<LiveQuery>,
    feeds: usize,
}

struct FeedEntry {
    feed: Arc<Feed>,
    streams: usize,
    task: AbortHandle,
}

/// A credential of streams. Streams with equal credentials share its checks.
pub(super) struct CredentialCheck {
    caller: StandingCaller,
    org: OrgId,
    ended: OnceLock<ApiError>,
}

impl CredentialCheck {
    /// Returns why the credential has ended, if it has.
    pub(super) fn ended(&self) -> Option<&ApiError> {
        self.ended.get()
    }
}

/// A query of a stream, with the id of its events.
pub(super) struct StreamQuery {
    pub(super) id: Option<Box<str>>,
    pub(super) query: PreparedQuery,
}

/// The numbers of live queries, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveUsage {
    /// Open streams.
    pub streams: usize,
    /// Different sets of queries.
    pub feeds: usize,
    /// Different queries.
    pub queries: usize,
    /// Evaluations since the start.
    pub evaluated: u64,
    /// Gaps of streams that were too slow, since the start.
    pub gaps: u64,
    /// Streams refused because of a limit, since the start.
    pub refused: u64,
}

impl LiveTable {
    /// Checks that one more stream is within the limits.
    fn admit(
        &self,
        org: OrgId,
        payer: &Payer,
        network: Option<ViewerNetwork>,
        of_key_max: usize,
    ) -> ApiResult<()> {
        if self.closed {
            return Err(ApiError::new(Code::ShuttingDown, "the server is shutting down"));
        }
        let of_payer = self.payers.get(payer).copied().unwrap_or_default();
        let of_network = network.and_then(|network| self.networks.get(&network)).copied().unwrap_or_default();
        let network_max = (of_key_max / NETWORK_PART).max(NETWORK_STREAMS_LEAST);
        let of_org = self.orgs.get(&org).map_or(0, |entry| entry.streams);
        let (payer_max, payer_name) = match payer {
            Payer::Session(..) => (SESSION_STREAMS_MAX, "session"),
            Payer::Key(..) => (of_key_max, "api_key"),
        };
        for (streams, streams_max, scope) in [
            (of_payer, payer_max, payer_name),
            (of_network, network_max, "network"),
            (of_org, ORG_STREAMS_MAX, "organisation"),
            (self.streams, STREAMS_MAX, "server"),
        ] {
            if streams >= streams_max {
                let detail = format!("{streams} streams are open, the most of this {scope}");
                let refused = ApiError::new(Code::AtCapacity, detail.replace("api_key", "API key"));
                return Err(refused.with("limit", streams_max as u64).with("scope", scope));
            }
        }
        Ok(())
    }

    /// Checks that the queries that do not run yet are within the limit of the organisation.
    fn admit_queries<'k>(&self, org: OrgId, keys: impl Iterator<Item = &'k LiveKey>) -> ApiResult<()> {
        let new: std::collections::BTreeSet<&LiveKey> =
            keys.filter(|key| !self.queries.contains_key(key)).collect();
        let running = self.orgs.get(&org).map_or(0, |entry| entry.queries);
        if running + new.len() > QUERIES_MAX && !new.is_empty() {
            let detail = format!(
                "{running} different live queries are running; an organisation may have {QUERIES_MAX}"
            );
            return Err(ApiError::new(Code::AtCapacity, detail)
                .with("limit", QUERIES_MAX as u64)
                .with("scope", "organisation"));
        }
        Ok(())
    }

    /// Removes a feed and the queries that no other feed includes.
    fn remove_feed(&mut self, key: &LiveKey) {
        let Some(entry) = self.feeds.remove(key) else { return };
        entry.task.abort();
        for member in &entry.feed.members {
            let Some(query) = self.queries.get_mut(&member.key) else { continue };
            query.feeds -= 1;
            if query.feeds == 0 {
                self.queries.remove(&member.key);
                if let Some(org) = self.orgs.get_mut(&member.key.org) {
                    org.queries -= 1;
                }
            }
        }
    }
}

impl LiveQueries {
    fn table(&self) -> MutexGuard<'_, LiveTable> {
        self.table.lock().ignore_poison()
    }

    /// Adds a stream of a set of queries. A new set begins after the steps that are due now.
    ///
    /// # Errors
    /// 503 `at_capacity` with too many streams or queries, and 503 `shutting_down`.
    pub(super) fn join(
        self: &Arc<LiveQueries>,
        deps: &ReadDeps,
        access: &QueryAccess,
        caller: StandingCaller,
        queries: Vec<StreamQuery>,
    ) -> ApiResult<StreamShare> {
        let org = access.access.org;
        let restrictions = LiveKey::restrictions(access);
        let keys: Vec<LiveKey> =
            queries.iter().map(|one| LiveKey::of(org, &restrictions, &one.query)).collect();
        let ids = queries.iter().map(|one| one.id.as_deref());
        let key = LiveKey::of_set(org, ids.zip(&keys));
        let (payer, standing) = (caller.payer()?, caller.key()?);
        let network = access.usage.as_ref().and_then(EmbedUsage::network);
        let mut table = self.table();
        let of_key_max = deps.options.live_streams_per_key;
        let admitted = table.admit(org, &payer, network, of_key_max).and_then(|()| {
            match table.feeds.contains_key(&key) {
                true => Ok(()),
                false => table.admit_queries(org, keys.iter()),
            }
        });
        if let Err(refused) = admitted {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refused);
        }
        let is_over = |feed: &Feed| feed.ended().or(feed.refused()).is_some();
        if table.feeds.get(&key).is_some_and(|entry| is_over(&entry.feed)) {
            table.remove_feed(&key);
        }
        let entry = table.orgs.entry(org).or_insert_with(|| OrgEntry {
            shared: Arc::new(LiveOrg::new(&deps.lanes)),
            streams: 0,
            queries: 0,
        });
        entry.streams += 1;
        let shared = Arc::clone(&entry.shared);
        if !table.feeds.contains_key(&key) {
            let queries = queries.into_iter().zip(keys).collect();
            let feed = self.start_feed(&mut table, deps, access, &shared, queries);
            let (running, clock) = (Arc::clone(&feed), deps.clock.clone());
            let task = tokio::spawn(async move { running.run(&clock).await }).abort_handle();
            table.feeds.insert(key.clone(), FeedEntry { feed, streams: 0, task });
        }
        let feed = table.feeds.get_mut(&key).map(|entry| {
            entry.streams += 1;
            Arc::clone(&entry.feed)
        });
        let feed = feed.ok_or_else(|| ApiError::internal("a feed that was inserted is missing"))?;
        table.streams += 1;
        *table.payers.entry(payer).or_default() += 1;
        if let Some(network) = network {
            *table.networks.entry(network).or_default() += 1;
        }
        let credential = self.check_of(&mut table, standing, caller, org, &deps.clock);
        drop(table);
        let changes = feed.changed.subscribe();
        let place = feed.newest_place();
        let counted = access.usage.as_ref().map(EmbedUsage::open_stream);
        let live = Arc::clone(self);
        Ok(StreamShare { live, key, payer, network, feed, changes, credential, place, _counted: counted })
    }

    /// Creates a feed, and those of its queries that do not run yet.
    fn start_feed(
        &self,
        table: &mut LiveTable,
        deps: &ReadDeps,
        access: &QueryAccess,
        shared: &Arc<LiveOrg>,
        queries: Vec<(StreamQuery, LiveKey)>,
    ) -> Arc<Feed> {
        let org = access.access.org;
        let mut members = Vec::with_capacity(queries.len());
        let mut started = 0;
        for (StreamQuery { id, query }, key) in queries {
            let step_ms = query.window.steps.step_ms();
            let entry = table.queries.entry(key.clone()).or_insert_with(|| {
                started += 1;
                let query = StepQuery::new(deps.clone(), access.clone(), query);
                let query = LiveQuery::new(query, Arc::clone(shared), Arc::clone(&self.evaluated));
                QueryEntry { query: Arc::new(query), feeds: 0 }
            });
            entry.feeds += 1;
            members.push(Member { id, key, query: Arc::clone(&entry.query), step_ms });
        }
        if let Some(entry) = table.orgs.get_mut(&org) {
            entry.queries += started;
        }
        let (memory, gaps) = (Arc::clone(&deps.memory), Arc::clone(&self.gaps));
        Arc::new(Feed::new(members.into(), org, shared, memory, gaps, deps.clock.now()))
    }

    /// Returns the check of a credential, and starts the task that repeats it.
    fn check_of(
        self: &Arc<LiveQueries>,
        table: &mut LiveTable,
        key: StandingKey,
        caller: StandingCaller,
        org: OrgId,
        clock: &Clock,
    ) -> Arc<CredentialCheck> {
        let known = table.checks.get(&key).and_then(Weak::upgrade);
        let check = known.unwrap_or_else(|| {
            let check = Arc::new(CredentialCheck { caller, org, ended: OnceLock::new() });
            table.checks.insert(key, Arc::downgrade(&check));
            check
        });
        if !table.is_checking {
            table.is_checking = true;
            let (live, clock) = (Arc::clone(self), clock.clone());
            tokio::spawn(async move { live.check_credentials(&clock).await });
        }
        check
    }

    /// Checks all credentials periodically, until no stream is left.
    async fn check_credentials(&self, clock: &Clock) {
        loop {
            tokio::time::sleep(CHECK_PERIOD).await;
            let Some(checks) = self.credentials() else { return };
            for some in checks.chunks(CHECKS_AT_ONCE) {
                for check in some.iter().filter(|check| check.ended().is_none()) {
                    if let Err(refused) = check.caller.check(clock.now())
                        && check.ended.set(refused).is_ok()
                    {
                        self.wake(check.org);
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the credentials of all streams, or `None` if there are none and their checks end.
    fn credentials(&self) -> Option<Vec<Arc<CredentialCheck>>> {
        let mut table = self.table();
        table.checks.retain(|_, check| check.strong_count() > 0);
        table.is_checking = !table.checks.is_empty();
        table.is_checking.then(|| table.checks.values().filter_map(Weak::upgrade).collect())
    }

    /// Wakes all streams of an organisation, so that those of an ended credential end.
    fn wake(&self, org: OrgId) {
        let table = self.table();
        for entry in table.feeds.values().filter(|entry| entry.feed.org == org) {
            entry.feed.changed.send_replace(());
        }
    }

    /// Ends all streams, because the server shuts down.
    pub fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        for entry in table.feeds.values() {
            entry.task.abort();
            let detail = "the server is shutting down; connect again";
            entry.feed.end(ApiError::new(Code::ShuttingDown, detail));
        }
    }

    /// Returns the numbers of live queries, for `/metrics`.
    pub fn usage(&self) -> LiveUsage {
        let table = self.table();
        LiveUsage {
            streams: table.streams,
            feeds: table.feeds.len(),
            queries: table.queries.len(),
            evaluated: self.evaluated.load(Ordering::Relaxed),
            gaps: self.gaps.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// The share of a stream in a feed. The last one ends the feed.
pub(super) struct StreamShare {
    live: Arc<LiveQueries>,
    key: LiveKey,
    payer: Payer,
    network: Option<ViewerNetwork>,
    pub(super) feed: Arc<Feed>,
    pub(super) changes: watch::Receiver<()>,
    pub(super) credential: Arc<CredentialCheck>,
    /// The next batch that is sent.
    pub(super) place: Place,
    /// Counts the stream in the list of embeds.
    _counted: Option<OpenStream>,
}

impl StreamShare {
    /// Returns why the stream has ended, if it has.
    pub(super) fn ended(&self) -> Option<&ApiError> {
        self.credential.ended().or_else(|| self.feed.ended())
    }
}

/// Counts one stream less.
fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(streams) = counts.get_mut(key) {
        *streams -= 1;
        if *streams == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        let mut table = self.live.table();
        table.streams -= 1;
        release(&mut table.payers, &self.payer);
        if let Some(network) = &self.network {
            release(&mut table.networks, network);
        }
        // A feed that has ended may have been replaced.
        let own = table.feeds.get_mut(&self.key).filter(|entry| Arc::ptr_eq(&entry.feed, &self.feed));
        if let Some(entry) = own {
            entry.streams -= 1;
            if entry.streams == 0 {
                table.remove_feed(&self.key);
            }
        }
        if let Some(entry) = table.orgs.get_mut(&self.key.org) {
            entry.streams -= 1;
            if entry.streams == 0 {
                table.orgs.remove(&self.key.org);
            }
        }
    }
}
