//! The dependencies and the limits of the discovery and query endpoints.

use std::sync::Arc;
use std::time::Duration;

use super::active::RunningQueries;
use super::engines::Engines;
use super::inline::InlinePolicy;
use super::live::LiveQueries;
use super::queried::QueriedMetrics;
use crate::api::lanes::Lanes;
use crate::clock::Clock;
use crate::model::PatternCache;
use crate::promql::syntax::{Caps, ExpressionCache};
use crate::promql::{self, MemoryPool, RangeCache};
use crate::rules::RuleEngine;
use crate::scrape::Scrapers;
use crate::tsdb::Tsdb;

/// The dependencies of the discovery and query endpoints, including the Prometheus mount.
#[derive(Clone, Debug)]
pub struct ReadDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools that run queries.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The limits of queries.
    pub options: Arc<ReadOptions>,
    /// The running queries.
    pub active: Arc<RunningQueries>,
    /// The memory that all queries share.
    pub memory: Arc<MemoryPool>,
    /// Cached results.
    pub cache: Arc<RangeCache>,
    /// Cached regular expressions.
    pub patterns: Arc<PatternCache>,
    /// Cached expressions, parsed within the caps.
    pub expressions: Arc<ExpressionCache>,
    /// Decides which queries run inline.
    pub inline: Arc<InlinePolicy>,
    /// The location of each organisation's samples.
    pub engines: Arc<Engines>,
    /// The queries whose points are streamed.
    pub live: Arc<LiveQueries>,
    /// When metrics were queried last.
    pub queried: Arc<QueriedMetrics>,
    /// The evaluation of rules.
    pub rules: Arc<RuleEngine>,
    /// The scraped targets, whose metadata is listed; `None` if nothing is scraped.
    pub scrapers: Option<Arc<Scrapers>>,
}

/// The limits of one query (docs/specification.md C5, E).
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Limits of the evaluation: lookback, memory, and samples. An organisation's settings may
    /// override the number of samples.
    pub promql: promql::Options,
    /// The syntax limits of an expression.
    pub caps: Caps,
    /// The time from the arrival of the request to the end of encoding. A `timeout` parameter may
    /// shorten it, and an organisation's settings may override it.
    pub timeout: Duration,
    /// The most milliseconds of `end - start` on the native query paths, inclusive.
    pub range_ms_max: i64,
    /// The most bytes of one response body, inclusive.
    pub body_bytes_max: usize,
    /// The most bytes of values that all queries hold; one organisation holds at most half of them.
    pub memory_bytes_max: u64,
    /// The most bytes of cached results; one organisation holds at most half of them. Zero turns
    /// the cache off.
    pub cache_bytes_max: u64,
    /// The most streams of live queries of one API key and its tokens at once, inclusive.
    pub live_streams_per_key: usize,
}

impl Default for ReadOptions {
    /// Returns a timeout of 30 s, ranges of one year, 256 MiB per body, 1 GiB of memory (two of the
    /// largest queries of one organisation, and as much for others), 64 MiB of cached results,
    /// which are four million points, and 10,000 streams of one key.
    fn default() -> ReadOptions {
        ReadOptions {
            promql: promql::Options::default(),
            caps: Caps::default(),
            timeout: Duration::from_secs(30),
            range_ms_max: 365 * 86_400_000,
            body_bytes_max: 256 << 20,
            memory_bytes_max: 1 << 30,
            cache_bytes_max: 64 << 20,
            live_streams_per_key: 10_000,
        }
    }
}
