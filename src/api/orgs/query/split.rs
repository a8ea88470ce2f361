//! `engine: split`: the samples before a border are on another server, the newer ones are here.
//!
//! A query that reads only samples from the border on is evaluated here, as without an engine. One
//! that reads only older samples is sent to the server. Any other is evaluated here, over the
//! samples of both: [`promql::raw_reads`] computes the ranges that its selectors read before the
//! border. Their raw samples are fetched, and the snapshot reads them as its older source
//! ([`Snapshot::with_older`]). So an evaluation does no I/O.
//!
//! At a time at which both sides have a sample of a series, the one here counts. Results of such
//! queries are not cached, because changes on the server are unknown here.
//!
//! The matchers of the caller's scope are sent with those of each selector. The snapshot applies
//! the scope again to the samples of the upstream.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::{EvalOptions, EvaluatedData, QueryRun};
use super::source::{UpstreamRun, other_answer};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::ingest::remote_read::{self, ReadDecoder, ReadError, ReadLimits, ReadQuery};
use crate::model::{Matcher, RawSeries, Scope, TimeRange, Timestamp};
use crate::promql::syntax::tree::Expr;
use crate::promql::{self, Lease, Query, QueryError, RawRead};
use crate::tsdb::{Listing, OlderSamples, Snapshot};
use crate::upstream::{AnswerData, RawAnswer, UpstreamRead};

/// The warning about samples that came through the query API.
const LOSSY: &str = "the upstream offers no remote read: staleness markers before the border are missing";

/// The split of a running query.
pub(super) struct SplitRun {
    /// The time of the first sample that is only here.
    border: Timestamp,
    /// The memory of the samples of the server.
    lease: Arc<Lease>,
    /// The decoded samples of each evaluation by the number of its first answer, so that an
    /// execution that is repeated finds them.
    decoded: RefCell<BTreeMap<usize, OlderPart>>,
    /// Whether anything came through the query API.
    is_lossy: Cell<bool>,
}

/// The samples of one evaluation, and their memory in bytes.
#[derive(Clone)]
struct OlderPart {
    samples: OlderSamples,
    bytes: u64,
    /// The number of the first answer after those of this evaluation.
    next: usize,
}

/// A snapshot with the samples of both sides, and the memory of those of the server.
pub(super) struct SplitSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) older_bytes: u64,
}

/// The location of a query's samples.
enum Side {
    Here,
    Upstream,
    Both(Vec<ReadQuery>),
}

impl SplitRun {
    /// Starts a split whose border is `after_ms` milliseconds before `now`, rounded down to a whole
    /// minute, but not before `kept_from`, from which samples are kept here.
    pub(super) fn new(now: Timestamp, after_ms: i64, kept_from: Timestamp, lease: Arc<Lease>) -> SplitRun {
        let border = border(now, after_ms, kept_from);
        SplitRun { border, lease, decoded: RefCell::default(), is_lossy: Cell::new(false) }
    }

    /// Drops the samples that were decoded from the answers from an index on.
    pub(super) fn forget_from(&self, place: usize) {
        self.decoded.borrow_mut().split_off(&place);
    }

    /// Returns whether a range has times before the border.
    pub(super) fn reaches(&self, range: TimeRange) -> bool {
        range.start < self.border
    }

    fn side(&self, reads: Vec<RawRead>, scope: &Scope, forced: &[Matcher]) -> Side {
        let is_older = |read: &RawRead| read.range.end < self.border;
        if !reads.is_empty() && reads.iter().all(is_older) {
            return Side::Upstream;
        }
        let older = reads.into_iter().filter_map(|read| older_part(read, self.border, scope, forced));
        let older: Vec<ReadQuery> = older.collect();
        if older.is_empty() { Side::Here } else { Side::Both(older) }
    }
}

fn border(now: Timestamp, after_ms: i64, kept_from: Timestamp) -> Timestamp {
    const MINUTE_MS: i64 = 60_000;
    let at = now.as_ms().saturating_sub(after_ms);
    let by_age = at.saturating_sub(at.rem_euclid(MINUTE_MS));
    let kept = kept_from.as_ms();
    // Rounded up: samples before it may be removed at any moment.
    let by_retention = kept.saturating_add((-kept.max(-i64::MAX)).rem_euclid(MINUTE_MS));
    Timestamp::from_ms(by_age.max(by_retention))
}

/// Returns the part of a read before the border and within the scope's time, with the matchers that
/// the caller cannot remove. `None` if there is none.
fn older_part(read: RawRead, border: Timestamp, scope: &Scope, forced: &[Matcher]) -> Option<ReadQuery> {
    let start = scope.min_time.map_or(read.range.start, |least| read.range.start.max(least));
    let end = read.range.end.min(border.plus_ms(-1));
    let matchers = forced.iter().cloned().chain(read.matchers).collect();
    (start <= end).then_some(ReadQuery { matchers, range: TimeRange::new(start, end) })
}

impl QueryRun {
    /// Evaluates a query on the side that has its samples, or here over the samples of both.
    pub(super) fn evaluate_split(
        &self,
        run: &UpstreamRun,
        split: &SplitRun,
        query: &Query,
        options: promql::Options,
        eval: EvalOptions,
    ) -> ApiResult<EvaluatedData> {
        let reads = self.within(|budget| promql::raw_reads(query, &options, budget))?;
        let forced = self.forced(run)?;
        let older = match split.side(reads, &self.access.scope, forced.matchers()) {
            Side::Here => return Ok(self.evaluate_here(query, &self.snapshot, &options, eval)?.into()),
            Side::Upstream => match self.evaluate_upstream(run, query, &options) {
                // Queries that the upstream cannot answer are evaluated here.
                Err(refused) if refused.code() == Code::UpstreamUnsupported && !run.is_waiting() => {
                    let reads = self.within(|budget| promql::raw_reads(query, &options, budget))?;
                    let scope = &self.access.scope;
                    let part = |read| older_part(read, split.border, scope, forced.matchers());
                    reads.into_iter().filter_map(part).collect()
                }
                done => return done,
            },
            Side::Both(older) => older,
        };
        let both = self.split_snapshot(run, split, &older)?;
        let mut options = options;
        let limits = &mut options.limits;
        limits.memory_bytes_max = limits.memory_bytes_max.saturating_sub(both.older_bytes);
        let mut result = self.evaluate_here(query, &both.snapshot, &options, eval)?;
        if split.is_lossy.get() {
            result.annotations.warnings.push(LOSSY.to_owned());
        }
        Ok(result.into())
    }

    /// Returns the snapshot for an evaluation that is not sent to the server, such as one that
    /// reports its cost. `None` without a split.
    pub(super) fn snapshot_of_both(
        &self,
        query: &Query,
        options: &promql::Options,
    ) -> ApiResult<Option<SplitSnapshot>> {
        let Some((run, split)) = self.split() else { return Ok(None) };
        let reads = self.within(|budget| promql::raw_reads(query, options, budget))?;
        let forced = self.forced(run)?;
        let part = |read| older_part(read, split.border, &self.access.scope, forced.matchers());
        let older: Vec<ReadQuery> = reads.into_iter().filter_map(part).collect();
        self.split_snapshot(run, split, &older).map(Some)
    }

    /// Returns the split, if the organisation's engine is split.
    pub(super) fn split(&self) -> Option<(&UpstreamRun, &SplitRun)> {
        let run = self.upstream.as_ref()?;
        Some((run, run.split.as_ref()?))
    }

    fn split_snapshot(
        &self,
        run: &UpstreamRun,
        split: &SplitRun,
        older: &[ReadQuery],
    ) -> ApiResult<SplitSnapshot> {
        if older.is_empty() {
            return Ok(SplitSnapshot { snapshot: self.snapshot.clone(), older_bytes: 0 });
        }
        let OlderPart { samples, bytes, .. } = self.older_samples(run, split, older)?;
        let snapshot = self.snapshot.clone();
        let snapshot = self.pacing(|pace| snapshot.with_older(&samples, pace))?;
        Ok(SplitSnapshot { snapshot, older_bytes: bytes })
    }

    /// Returns the samples of the server for these reads, or ends the execution until they are
    /// fetched.
    fn older_samples(
        &self,
        run: &UpstreamRun,
        split: &SplitRun,
        reads: &[ReadQuery],
    ) -> ApiResult<OlderPart> {
        let place = run.place();
        let first = self.remote_read(split, reads, true)?;
        let known = split.decoded.borrow().get(&place).cloned();
        if let Some(known) = known.filter(|_| run.is_answered(place, &first)) {
            run.skip_to(known.next);
            return Ok(known);
        }
        let mut raw = self.raw_series(run, split, reads, first)?;
        if let Some(tenant) = run.tenant() {
            for series in &mut raw {
                series.labels = series.labels.filtered(|name| name != tenant.name());
            }
        }
        let samples = OlderSamples::new(raw);
        let bytes = samples.bytes();
        let held = self.held_older(split).saturating_add(bytes);
        split.lease.grow_to(held, &|| false).map_err(QueryError::from)?;
        let part = OlderPart { samples, bytes, next: run.place() };
        split.decoded.borrow_mut().insert(place, part.clone());
        Ok(part)
    }

    /// Returns the memory of all samples that were decoded.
    fn held_older(&self, split: &SplitRun) -> u64 {
        split.decoded.borrow().values().fold(0, |bytes, part| bytes.saturating_add(part.bytes))
    }

    /// Returns the remote read for these reads. It accepts streamed chunks if `chunks` is true.
    fn remote_read(&self, split: &SplitRun, reads: &[ReadQuery], chunks: bool) -> ApiResult<UpstreamRead> {
        let body = remote_read::request(reads, chunks).map_err(|error| self.refused(split, &error))?;
        Ok(UpstreamRead::RemoteRead { body: body.into() })
    }

    /// Decodes the answers of the server.
    fn raw_series(
        &self,
        run: &UpstreamRun,
        split: &SplitRun,
        reads: &[ReadQuery],
        first: UpstreamRead,
    ) -> ApiResult<Vec<RawSeries>> {
        let decoded = |read| -> ApiResult<_> {
            let answer = run.answer(read)?;
            match &answer.data {
                AnswerData::Raw(raw) => Ok(Some(self.decode(raw, split, reads))),
                AnswerData::NoRemoteRead => Ok(None),
                _ => Err(other_answer()),
            }
        };
        let found = match decoded(first)? {
            // Newer encodings of chunks are not read here, but every server can also send samples.
            Some(Err(ReadError::ChunkEncoding(_))) => decoded(self.remote_read(split, reads, false)?)?,
            found => found,
        };
        match found {
            Some(decoded) => decoded.map_err(|error| self.refused(split, &error)),
            None => self.matrices(run, split, reads),
        }
    }

    /// Returns the samples that the query API gives for these reads.
    fn matrices(
        &self,
        run: &UpstreamRun,
        split: &SplitRun,
        reads: &[ReadQuery],
    ) -> ApiResult<Vec<RawSeries>> {
        split.is_lossy.set(true);
        let mut bodies = Vec::new();
        for read in reads {
            // The window of a matrix selector excludes its start.
            let range_ms = read.range.end.ms_since(read.range.start).saturating_add(1);
            let selector = format!("{}[{range_ms}ms]", Expr::selector(read.matchers.clone()));
            let answer = run.answer(UpstreamRead::RawMatrix { selector, at: read.range.end })?;
            let AnswerData::Raw(raw) = &answer.data else { return Err(other_answer()) };
            bodies.push(raw.body.clone());
        }
        self.decoder(split, reads).matrices(&bodies).map_err(|error| self.refused(split, &error))
    }

    fn decoder<'r>(&self, split: &'r SplitRun, reads: &[ReadQuery]) -> ReadDecoder<'r> {
        let limits = &self.options.promql.limits;
        let limits = ReadLimits {
            bytes_max: limits.memory_bytes_max.saturating_sub(self.held_older(split)),
            series_max: usize::try_from(limits.series_max).unwrap_or(usize::MAX),
            ..ReadLimits::default()
        };
        let (lease, held, deadline) =
            (Arc::clone(&split.lease), self.held_older(split), self.deadline.clone());
        let hold = move |bytes: u64| {
            deadline.admit(0).is_ok() && lease.grow_to(bytes.saturating_add(held), &|| false).is_ok()
        };
        ReadDecoder::new(reads, limits, Box::new(hold))
    }

    fn decode(
        &self,
        RawAnswer { content_type, body }: &RawAnswer,
        split: &SplitRun,
        reads: &[ReadQuery],
    ) -> Result<Vec<RawSeries>, ReadError> {
        let mut decoder = self.decoder(split, reads);
        if content_type.starts_with(remote_read::CHUNKS_TYPE) {
            decoder.push(body)?;
            decoder.finish()
        } else if content_type.starts_with(remote_read::SAMPLES_TYPE) {
            decoder.samples(body)
        } else {
            Err(ReadError::ContentType)
        }
    }

    /// Maps an error of an answer. Missing memory is an error of the query.
    fn refused(&self, split: &SplitRun, error: &ReadError) -> ApiError {
        let allowed = self.options.promql.limits.memory_bytes_max;
        match error {
            ReadError::Memory => {
                let needed = split.lease.bytes().saturating_add(1);
                self.error_or(QueryError::MemoryBusy { needed, held: needed, allowed }.into())
            }
            ReadError::TooLarge { what: "bytes of samples", found, .. } => {
                QueryError::TooMuchMemory { needed: *found, allowed }.into()
            }
            ReadError::TooLarge { what: "series", found, allowed } => {
                QueryError::TooManySeries { found: *found, allowed: *allowed }.into()
            }
            ReadError::OutOfMemory(error) => QueryError::OutOfMemory(*error).into(),
            ReadError::Lossy => ApiError::new(Code::UpstreamUnsupported, error.to_string()),
            error => {
                tracing::warn!("an upstream's answer to a remote read is invalid: {error}");
                let detail = match self.grant.is_token() {
                    true => "the upstream failed".to_owned(),
                    false => format!("the upstream's answer is invalid: {error}"),
                };
                ApiError::new(Code::UpstreamError, detail)
            }
        }
    }
}

/// Returns the union of two sorted listings, with at most `limit` items.
pub(super) fn union<T: Ord>(a: Listing<T>, b: Listing<T>, limit: usize) -> Listing<T> {
    let truncated = a.truncated || b.truncated;
    let mut items: Vec<T> = a.items.into_iter().chain(b.items).collect();
    items.sort();
    items.dedup();
    let truncated = truncated || items.len() > limit;
    items.truncate(limit);
    Listing { items, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_is_sorted_without_duplicates_and_knows_what_is_left_out() {
        let list = |items: &[u8], truncated| Listing { items: items.to_vec(), truncated };
        let all = union(list(&[1, 3, 5], false), list(&[2, 3], false), 10);
        assert_eq!(all, list(&[1, 2, 3, 5], false));
        assert_eq!(union(list(&[1, 3], false), list(&[2], false), 2), list(&[1, 2], true));
        assert_eq!(union(list(&[1], true), list(&[], false), 5), list(&[1], true));
    }

    #[test]
    fn the_border_is_a_whole_minute_and_not_before_what_is_kept_here() {
        let of = |kept_s| border(Timestamp::from_s(10_000), 4_000_000, Timestamp::from_s(kept_s)).as_ms();
        assert_eq!(
            [0, 5_940, 5_941, 6_001, 6_060].map(of),
            [6_000_000, 6_000_000, 6_000_000, 6_060_000, 6_060_000]
        );
        assert_eq!(border(Timestamp::from_s(100), i64::MAX, Timestamp::MIN).as_ms() % 60_000, 0);
    }
}
