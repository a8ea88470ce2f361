//! The use of embed tokens and public links: a bounded table in memory of the pages that use them,
//! and the evaluation time that the tokens of each key share.
//!
//! A row is an API key or public link, an `Origin`, and the dashboard that the token names. The
//! table is lost at a restart. Callers choose origins, so the rows of a key, of an organisation and
//! of all organisations are limited, and new rows of a key never displace those of other keys.
//!
//! A request takes the lock of the table once, for a lookup; all else are atomic counters.
//!
//! | file | subject |
//! |---|---|
//! | `budget` | the evaluation time of a key in a trailing minute |
//! | `viewers` | an estimate of the different viewers of the last five minutes |

mod budget;
mod viewers;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::error::{ApiError, ApiResult, Code};
use super::limits::{self, Ticker};
use crate::clock::{Clock, Stopwatch};
use crate::identity::{ApiKey, KeyId};
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use budget::EvaluationBudget;
use viewers::Viewers;

/// The most rows of one key, inclusive. The row that was used least recently is replaced.
const KEY_ROWS_MAX: usize = 100;
/// The most rows of one organisation, inclusive.
pub const ORG_ROWS_MAX: usize = 500;
/// The most rows of all organisations, inclusive.
const ROWS_MAX: usize = 5_000;
/// The most keys whose evaluation time is remembered, inclusive.
const BUDGETS_MAX: usize = 100_000;
/// The most characters of an origin that is shown as it was sent.
const ORIGIN_CHARS_MAX: usize = 256;
/// The origin of requests whose `Origin` is not the text of an origin.
const INVALID_ORIGIN: &str = "invalid";

/// The key of a row of counters. Rows of one API key are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    key: KeyId,
    is_link: bool,
    /// `None` for requests without `Origin`, which come from servers, or from pages of this server.
    origin: Option<Box<str>>,
    dashboard: Option<Box<str>>,
}

/// The counters of one row.
#[derive(Debug)]
struct Row {
    first_seen: Timestamp,
    last_seen_ms: AtomicI64,
    /// Monotonic; decides which row is replaced.
    used_us: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    evaluated_us: AtomicU64,
    samples: AtomicU64,
    streams: AtomicUsize,
    viewers: Mutex<Viewers>,
}

impl Row {
    fn see(&self, viewer: u64, now: Timestamp, now_us: u64) {
        self.last_seen_ms.store(now.as_ms(), Ordering::Relaxed);
        self.used_us.fetch_max(now_us, Ordering::Relaxed);
        self.viewers.lock().ignore_poison().add(viewer, minute(now_us));
    }
}

fn minute(now_us: u64) -> u64 {
    now_us / 60_000_000
}

#[derive(Debug, Default)]
struct UseTable {
    orgs: BTreeMap<OrgId, BTreeMap<RowKey, Arc<Row>>>,
    rows: usize,
    budgets: HashMap<KeyId, Arc<Mutex<EvaluationBudget>>>,
}

impl UseTable {
    /// Makes room for a row of a key of an organisation.
    fn make_room(&mut self, org: OrgId, key: KeyId) {
        let own = self.orgs.get(&org);
        let of_key = own.map_or(0, |own| own.keys().filter(|row| row.key == key).count());
        if of_key >= KEY_ROWS_MAX {
            self.evict(org, key);
        } else if own.is_some_and(|own| own.len() >= ORG_ROWS_MAX) {
            self.evict_of(org);
        } else if self.rows >= ROWS_MAX
            && let Some((&largest, _)) = self.orgs.iter().max_by_key(|(_, rows)| rows.len())
        {
            self.evict_of(largest);
        }
    }

    /// Removes a row of the key with the most rows.
    fn evict_of(&mut self, org: OrgId) {
        let mut counts: BTreeMap<KeyId, usize> = BTreeMap::new();
        for row in self.orgs.get(&org).into_iter().flat_map(BTreeMap::keys) {
            *counts.entry(row.key).or_default() += 1;
        }
        if let Some((key, _)) = counts.into_iter().max_by_key(|(_, rows)| *rows) {
            self.evict(org, key);
        }
    }

    /// Removes the row of a key that was used least recently. One with open streams is in use.
    fn evict(&mut self, org: OrgId, key: KeyId) {
        let Some(own) = self.orgs.get_mut(&org) else { return };
        let of_key = own.iter().filter(|(row, _)| row.key == key);
        let last_use = |row: &Row| {
            let is_open = row.streams.load(Ordering::Relaxed) > 0;
            (is_open, row.used_us.load(Ordering::Relaxed))
        };
        let oldest = of_key.min_by_key(|(_, row)| last_use(row));
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            own.remove(&oldest);
            self.rows -= 1;
        }
        if self.orgs.get(&org).is_some_and(BTreeMap::is_empty) {
            self.orgs.remove(&org);
        }
    }
}

/// The totals for `/metrics`, since the start of the process.
#[derive(Debug, Default)]
struct Totals {
    requests: AtomicU64,
    refused: AtomicU64,
    over_budget: AtomicU64,
    evaluated_us: AtomicU64,
    streams: AtomicUsize,
}

/// A snapshot of the totals.
#[derive(Clone, Copy, Debug)]
pub struct EmbedTotals {
    /// Requests with a valid embed token.
    pub requests: u64,
    /// Requests with a valid embed token that were answered 401, 403 or 429.
    pub refused: u64,
    /// Requests and evaluations refused because the budget of a key was used up.
    pub over_budget: u64,
    /// The evaluation time.
    pub evaluated: Duration,
    /// Open live streams.
    pub streams: usize,
    /// Rows of the table.
    pub rows: usize,
}

/// The use of embed tokens of all organisations.
#[derive(Debug)]
pub struct EmbedUses {
    table: Mutex<UseTable>,
    totals: Totals,
    ticker: Ticker,
    since: Timestamp,
    hasher: RandomState,
}

/// A request with a valid embed token or public link.
#[derive(Clone, Copy, Debug)]
pub struct EmbedUse<'a> {
    /// The key that signed the token, or that of a public link.
    pub key: &'a ApiKey,
    /// Whether the credential is a public link.
    pub is_link: bool,
    /// The header `Origin`.
    pub origin: Option<&'a str>,
    /// The uid of the dashboard that the token names.
    pub dashboard: Option<&'a str>,
    /// The `sub` of the token. Without one, the network of the client stands for the viewer.
    pub viewer: Option<&'a str>,
    /// The address of the client.
    pub client: IpAddr,
}

/// A row as the API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedRow {
    /// The key that signed the tokens, or the public link.
    pub key: KeyId,
    /// Whether the credential is a public link.
    pub is_link: bool,
    /// `None` for requests without `Origin`.
    pub origin: Option<Box<str>>,
    /// The uid of the dashboard that the tokens name.
    pub dashboard: Option<Box<str>>,
    /// An estimate of the different viewers of the last five minutes, with those of open streams.
    pub viewers: u32,
    /// Open live streams.
    pub streams: usize,
    /// Requests.
    pub requests: u64,
    /// Requests answered 401, 403 or 429.
    pub refused: u64,
    /// The evaluation time.
    pub evaluated: Duration,
    /// Samples that evaluations read; those in cached results are not counted.
    pub samples: u64,
    /// The first request of this row.
    pub first_seen: Timestamp,
    /// The newest request; now if a stream is open.
    pub last_seen: Timestamp,
}

impl EmbedUses {
    /// Returns an empty table that begins now.
    pub fn new(clock: &Clock) -> Arc<EmbedUses> {
        Arc::new(EmbedUses {
            table: Mutex::default(),
            totals: Totals::default(),
            ticker: Ticker::start(clock),
            since: clock.now(),
            hasher: RandomState::new(),
        })
    }

    fn table(&self) -> MutexGuard<'_, UseTable> {
        // Consistent after every statement.
        self.table.lock().ignore_poison()
    }

    /// Returns when the table began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Counts a request, and returns the handle that counts its effects.
    pub fn record(self: &Arc<EmbedUses>, used: EmbedUse<'_>, now: Timestamp) -> EmbedUsage {
        let EmbedUse { key, is_link, origin, dashboard, viewer, client } = used;
        let network = limits::network(client);
        let viewer = match viewer {
            Some(viewer) => self.hasher.hash_one(viewer),
            None => self.hasher.hash_one(network),
        };
        let now_us = self.ticker.now_us();
        let row_key = RowKey {
            key: key.id,
            is_link,
            origin: origin.map(shown_origin),
            dashboard: dashboard.map(Box::from),
        };
        let mut table = self.table();
        let known = table.orgs.get(&key.org).and_then(|own| own.get(&row_key)).map(Arc::clone);
        let row = known.unwrap_or_else(|| {
            table.make_room(key.org, key.id);
            let row = Arc::new(Row {
                first_seen: now,
                last_seen_ms: AtomicI64::new(now.as_ms()),
                used_us: AtomicU64::new(now_us),
                requests: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                evaluated_us: AtomicU64::new(0),
                samples: AtomicU64::new(0),
                streams: AtomicUsize::new(0),
                viewers: Mutex::default(),
            });
            table.orgs.entry(key.org).or_default().insert(row_key, Arc::clone(&row));
            table.rows += 1;
            row
        });
        if table.budgets.len() >= BUDGETS_MAX && !table.budgets.contains_key(&key.id) {
            // A key then has its whole budget once more.
            table.budgets.clear();
        }
        let budget = Arc::clone(table.budgets.entry(key.id).or_default());
        drop(table);
        row.requests.fetch_add(1, Ordering::Relaxed);
        row.see(viewer, now, now_us);
        self.totals.requests.fetch_add(1, Ordering::Relaxed);
        let seconds = key.embed.query_seconds_per_minute;
        EmbedUsage { uses: Arc::clone(self), row, budget, key: key.id, seconds, viewer, network }
    }

    /// Returns the rows of an organisation, the one that was seen last first.
    pub fn rows(&self, org: OrgId, now: Timestamp) -> Vec<EmbedRow> {
        let rows: Vec<(RowKey, Arc<Row>)> = {
            let table = self.table();
            let own = table.orgs.get(&org).into_iter().flatten();
            own.map(|(key, row)| (key.clone(), Arc::clone(row))).collect()
        };
        let this_minute = minute(self.ticker.now_us());
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shown = rows.into_iter().map(|(key, row)| {
            let streams = row.streams.load(Ordering::Relaxed);
            EmbedRow {
                key: key.key,
                is_link: key.is_link,
                origin: key.origin,
                dashboard: key.dashboard,
                viewers: row.viewers.lock().ignore_poison().count(this_minute),
                streams,
                requests: load(&row.requests),
                refused: load(&row.refused),
                evaluated: Duration::from_micros(load(&row.evaluated_us)),
                samples: load(&row.samples),
                first_seen: row.first_seen,
                last_seen: match streams {
                    0 => Timestamp::from_ms(row.last_seen_ms.load(Ordering::Relaxed)),
                    _ => now,
                },
            }
        });
        let mut shown: Vec<EmbedRow> = shown.collect();
        shown.sort_by(|a, b| b.last_seen.cmp(&a.last_seen).then_with(|| a.key.cmp(&b.key)));
        shown
    }

    /// Returns the evaluation time that the tokens of a key used in the last minute.
    pub fn evaluated_last_minute(&self, key: KeyId) -> Duration {
        let budget = self.table().budgets.get(&key).map(Arc::clone);
        budget.map_or(Duration::ZERO, |budget| budget.lock().ignore_poison().used(self.ticker.now_us()))
    }

    /// Removes the rows of a deleted organisation.
    pub fn forget(&self, org: OrgId) {
        let mut table = self.table();
        let removed = table.orgs.remove(&org).map_or(0, |own| own.len());
        table.rows -= removed;
    }

    /// Forgets the evaluation times of keys that used none in the last minute. To be called once a
    /// minute.
    pub fn sweep(&self) {
        let now_us = self.ticker.now_us();
        let is_used = |budget: &Arc<Mutex<EvaluationBudget>>| {
            // A handle may still charge a budget that others refer to.
            Arc::strong_count(budget) > 1 || budget.lock().ignore_poison().used(now_us) > Duration::ZERO
        };
        self.table().budgets.retain(|_, budget| is_used(budget));
    }

    /// Returns the totals, for `/metrics`.
    pub fn totals(&self) -> EmbedTotals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EmbedTotals {
            requests: load(&self.totals.requests),
            refused: load(&self.totals.refused),
            over_budget: load(&self.totals.over_budget),
            evaluated: Duration::from_micros(load(&self.totals.evaluated_us)),
            streams: self.totals.streams.load(Ordering::Relaxed),
            rows: self.table().rows,
        }
    }
}

/// Returns the text of an origin as it is shown.
fn shown_origin(sent: &str) -> Box<str> {
    let is_one = sent.len() <= ORIGIN_CHARS_MAX
        && sent.bytes().all(|b| b.is_ascii_graphic())
        && (sent == "null" || sent.contains("://"));
    if is_one { sent.into() } else { INVALID_ORIGIN.into() }
}

/// The handle of a request with an embed token: it counts the samples, refusals and streams of the
/// request, and charges its evaluation time to the key. Cheap to clone.
#[derive(Clone)]
pub struct EmbedUsage {
    uses: Arc<EmbedUses>,
    row: Arc<Row>,
    budget: Arc<Mutex<EvaluationBudget>>,
    key: KeyId,
    /// The budget in seconds a minute; `None` is no limit.
    seconds: Option<u32>,
    /// The hash of the viewer.
    viewer: u64,
    /// The network of the client.
    network: IpAddr,
}

/// The viewers of a key in one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewerNetwork {
    key: KeyId,
    network: IpAddr,
}

impl std::fmt::Debug for EmbedUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbedUsage").field("key", &self.key).finish_non_exhaustive()
    }
}

impl EmbedUsage {
    /// Returns the key to which the request is charged.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Returns the network of the viewer, unless it is this machine, which may be a proxy.
    pub fn network(&self) -> Option<ViewerNetwork> {
        let network = ViewerNetwork { key: self.key, network: self.network };
        (!self.network.is_loopback()).then_some(network)
    }

    /// Checks that the key has evaluation time left in this minute.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `embed_budget`.
    pub fn admit(&self) -> ApiResult<()> {
        let Some(seconds) = self.seconds else { return Ok(()) };
        let budget = Duration::from_secs(seconds.into());
        let wait = self.budget.lock().ignore_poison().wait(budget, self.uses.ticker.now_us());
        let Some(wait) = wait else { return Ok(()) };
        self.uses.totals.over_budget.fetch_add(1, Ordering::Relaxed);
        let detail = format!(
            "the queries of this embed used {seconds} s of evaluation time within a minute, the budget of its key"
        );
        let error = ApiError::new(Code::RateLimited, detail)
            .with("limit", seconds)
            .with("window_s", 60)
            .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
            .with("scope", "embed_budget");
        Err(error.with_retry_after(wait))
    }

    /// Begins an evaluation, whose time is charged when the returned guard is dropped.
    pub fn begin(&self) -> Evaluation {
        Evaluation { usage: self.clone(), since: Stopwatch::start() }
    }

    /// Counts samples that an evaluation read.
    pub fn add_samples(&self, samples: u64) {
        self.row.samples.fetch_add(samples, Ordering::Relaxed);
    }

    /// Counts a request that was answered 401, 403 or 429.
    pub fn refused(&self) {
        self.row.refused.fetch_add(1, Ordering::Relaxed);
        self.uses.totals.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a live stream until the returned guard is dropped.
    pub fn open_stream(&self) -> OpenStream {
        self.row.streams.fetch_add(1, Ordering::Relaxed);
        self.row.viewers.lock().ignore_poison().open(self.viewer);
        self.uses.totals.streams.fetch_add(1, Ordering::Relaxed);
        OpenStream(self.clone())
    }
}

/// A running evaluation; charged on drop, also after a panic.
#[derive(Debug)]
pub struct Evaluation {
    usage: EmbedUsage,
    since: Stopwatch,
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        let EmbedUsage { uses, row, budget, .. } = &self.usage;
        let used_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        row.evaluated_us.fetch_add(used_us, Ordering::Relaxed);
        uses.totals.evaluated_us.fetch_add(used_us, Ordering::Relaxed);
        budget.lock().ignore_poison().charge(used_us, uses.ticker.now_us());
    }
}

/// An open live stream; counted until it is dropped.
#[derive(Debug)]
pub struct OpenStream(EmbedUsage);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let EmbedUsage { uses, row, viewer, .. } = &self.0;
        row.streams.fetch_sub(1, Ordering::Relaxed);
        row.viewers.lock().ignore_poison().close(*viewer, minute(uses.ticker.now_us()));
        uses.totals.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
