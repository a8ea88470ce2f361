//! A feed: the events of a set of queries, merged once for all streams of that set.
//!
//! The task of a feed starts the evaluations of each step when it is due, collects their results,
//! and appends them as one batch, which every stream sends as it is. A query that is slower than
//! [`GRACE`] is sent in a later batch, so that it does not delay the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use axum::body::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::evaluation::{LiveKey, LiveOrg, LiveQuery, StepResult};
use super::gzip::{deflate, is_worthwhile};
use super::newest_due;
use super::text::{EventText, PIECE_BYTES};
use crate::api::error::{ApiError, Code};
use crate::api::prom_json;
use crate::clock::Clock;
use crate::model::{OrgId, Timestamp};
use crate::promql::{Lease, MemoryPool};
use crate::sync::IgnorePoison as _;

/// The most batches that are kept for slow streams, inclusive.
const BATCHES_MAX: usize = 16;
/// The most bytes of the batches that are kept; the newest one is always kept.
const BATCHES_BYTES_MAX: usize = 1 << 20;
/// The longest time that a result waits for the others of its step, and then for its compression.
const GRACE: Duration = Duration::from_millis(100);
/// The longest sleep between two reads of the wall clock, which may change.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Streams are woken after as long without a batch, so that they send a comment.
pub(super) const QUIET_PERIOD: Duration = Duration::from_secs(15);

/// The newest step of each query that was sent or skipped.
pub(super) type Positions = Arc<[Timestamp]>;

/// A query of a set.
pub(super) struct Member {
    /// The id in the events; `None` for the only query of a stream.
    pub(super) id: Option<Box<str>>,
    pub(super) key: LiveKey,
    pub(super) query: Arc<LiveQuery>,
    pub(super) step_ms: i64,
}

/// Events as they are sent.
#[derive(Clone)]
pub(super) struct Events {
    pub(super) text: Arc<EventText>,
    /// Whether any query has an `id`.
    pub(super) is_complete: bool,
}

/// Events that are sent together.
pub(super) struct Batch {
    sequence: u64,
    pub(super) events: Events,
    /// The positions before and after the batch.
    before: Positions,
    after: Positions,
    complete_before: Timestamp,
}

/// The events of a set of queries.
pub(super) struct Feed {
    pub(super) members: Box<[Member]>,
    pub(super) org: OrgId,
    shared: Arc<LiveOrg>,
    memory: Arc<MemoryPool>,
    state: Mutex<FeedState>,
    /// Changes with each batch, when the feed ends, and when a credential has ended.
    pub(super) changed: watch::Sender<()>,
    ended: OnceLock<ApiError>,
    /// The reason why no query has further steps. All batches are sent before streams end with it.
    refused: OnceLock<ApiError>,
    /// Counts the streams that were too slow, for `/metrics`.
    gaps: Arc<AtomicU64>,
    /// Whether a stream in gzip has joined, so that batches are compressed before streams wake.
    has_gzip: AtomicBool,
}

struct FeedState {
    batches: VecDeque<Arc<Batch>>,
    /// The newest points at a place, which new streams share while one of them sends them, and the
    /// sequence of that place.
    beginning: (u64, Weak<EventText>),
    positions: Positions,
    complete_before: Timestamp,
    next_sequence: u64,
}

/// The place of a stream in a feed: the next batch, and the positions before it.
#[derive(Clone)]
pub(super) struct Place {
    sequence: u64,
    pub(super) positions: Positions,
    /// All steps before this time are sent or skipped.
    pub(super) complete_before: Timestamp,
}

impl Place {
    /// Returns the sequence of the next batch, which identifies the place in its feed.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// An event of a batch: its step, the index of its query, and its content.
struct FeedEvent {
    at: Timestamp,
    member: usize,
    content: EventContent,
}

enum EventContent {
    /// The steps from this one up to the step before `at` are skipped.
    SkippedFrom(Timestamp),
    Result(StepResult),
}

/// The state of a member while the feed runs.
struct Progress {
    /// The next step, which is being evaluated if `is_running`.
    next: Timestamp,
    is_running: bool,
    /// The query is refused; there are no further steps.
    is_over: bool,
}

impl Feed {
    /// Creates a feed whose events begin after the steps that are due now.
    pub(super) fn new(
        members: Box<[Member]>,
        org: OrgId,
        shared: &Arc<LiveOrg>,
        memory: Arc<MemoryPool>,
        gaps: Arc<AtomicU64>,
        now: Timestamp,
    ) -> Feed {
        let due = |member: &Member| newest_due(now, member.step_ms);
        let positions = members.iter().map(due).collect();
        let next = members.iter().map(|member| due(member).plus_ms(member.step_ms));
        let state = FeedState {
            batches: VecDeque::new(),
            beginning: (0, Weak::new()),
            positions,
            complete_before: next.min().unwrap_or(Timestamp::MAX),
            next_sequence: 0,
        };
        let (changed, ended, refused) = (watch::Sender::new(()), OnceLock::new(), OnceLock::new());
        let shared = Arc::clone(shared);
        let (state, has_gzip) = (Mutex::new(state), AtomicBool::new(false));
        Feed { members, org, shared, memory, state, changed, ended, refused, gaps, has_gzip }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        // Consistent after every statement.
        self.state.lock().ignore_poison()
    }

    /// Returns the place after the newest batch.
    pub(super) fn newest_place(&self) -> Place {
        let FeedState { positions, complete_before, next_sequence, .. } = &*self.state();
        Place {
            sequence: *next_sequence,
            positions: Arc::clone(positions),
            complete_before: *complete_before,
        }
    }

    /// Returns the batch at a place, which moves on, and the events of the gap before it. The
    /// newest batch is never skipped.
    pub(super) fn take(&self, place: &mut Place) -> Option<(Arc<Batch>, Option<Bytes>)> {
        let state = self.state();
        let first = state.batches.front()?.sequence;
        let index = place.sequence.saturating_sub(first);
        let batch = Arc::clone(state.batches.get(usize::try_from(index).ok()?)?);
        drop(state);
        let gap = (batch.sequence > place.sequence).then(|| {
            self.gaps.fetch_add(1, Ordering::Relaxed);
            self.gaps_between(&place.positions, &batch.before)
        });
        *place = Place {
            sequence: batch.sequence + 1,
            positions: Arc::clone(&batch.after),
            complete_before: batch.complete_before,
        };
        Some((batch, gap))
    }

    /// Returns an event for each query with steps between two positions.
    fn gaps_between(&self, from: &Positions, to: &Positions) -> Bytes {
        let mut text = Vec::new();
        for ((member, from), to) in self.members.iter().zip(from.iter()).zip(to.iter()) {
            if from < to {
                write_gap(member, from.plus_ms(member.step_ms), *to, &mut text);
            }
        }
        text.into()
    }

    /// Ends all streams with an error.
    pub(super) fn end(&self, error: ApiError) {
        // Only the first end of a feed is recorded.
        let _ = self.ended.set(error);
        self.changed.send_replace(());
    }

    /// Returns why the feed has ended, if it has.
    pub(super) fn ended(&self) -> Option<&ApiError> {
        self.ended.get()
    }

    /// Returns why there are no further batches: every query has been refused.
    pub(super) fn refused(&self) -> Option<&ApiError> {
        self.refused.get()
    }

    /// Evaluates the steps, each when it is due, until the feed ends, every query is refused, or
    /// the task is aborted.
    pub(super) async fn run(&self, clock: &Clock) {
        let start = self.newest_place().positions;
        let progress = |(member, at): (&Member, &Timestamp)| Progress {
            next: at.plus_ms(member.step_ms),
            is_running: false,
            is_over: false,
        };
        let mut members: Vec<Progress> = self.members.iter().zip(start.iter()).map(progress).collect();
        let mut running: JoinSet<(usize, StepResult)> = JoinSet::new();
        let mut pending: Vec<FeedEvent> = Vec::new();
        let mut refusal: Option<ApiError> = None;
        let mut flush_at: Option<Instant> = None;
        let mut quiet_until = Instant::now() + QUIET_PERIOD;
        loop {
            let now = clock.now();
            let Some(wait) = self.start_due(&mut members, now, &mut running, &mut pending) else {
                let detail = "the server's clock went back; connect again";
                return self.end(ApiError::new(Code::Busy, detail));
            };
            let mut wake_at = (Instant::now() + wait.min(SLEEP_MAX)).min(quiet_until);
            wake_at = flush_at.map_or(wake_at, |flush_at| wake_at.min(flush_at));
            let mut done = tokio::select! {
                done = running.join_next(), if !running.is_empty() => done,
                () = tokio::time::sleep_until(wake_at) => None,
            };
            while let Some(joined) = done {
                // An evaluation that panicked is reported by its lane. The tasks are never aborted.
                if let Ok((index, result)) = joined
                    && let (Some(progress), Some(member)) = (members.get_mut(index), self.members.get(index))
                {
                    let at = progress.next;
                    progress.is_over = result.is_final();
                    refusal = result.0.as_ref().err().filter(|_| progress.is_over).cloned().or(refusal);
                    progress.is_running = false;
                    progress.next = at.plus_ms(member.step_ms);
                    pending.push(FeedEvent { at, member: index, content: EventContent::Result(result) });
                    flush_at.get_or_insert_with(|| Instant::now() + GRACE);
                }
                done = running.try_join_next();
            }
            let is_late = flush_at.is_some_and(|flush_at| Instant::now() >= flush_at);
            if !pending.is_empty() && (running.is_empty() || is_late) {
                self.push(std::mem::take(&mut pending), &members).await;
                if let Some(refusal) = refusal.take_if(|_| members.iter().all(|member| member.is_over)) {
                    let _ = self.refused.set(refusal);
                    self.changed.send_replace(());
                    return;
                }
                flush_at = None;
                quiet_until = Instant::now() + QUIET_PERIOD;
            } else if Instant::now() >= quiet_until {
                self.changed.send_replace(());
                quiet_until = Instant::now() + QUIET_PERIOD;
            }
        }
    }

    /// Starts the evaluations that are due. Returns the time until the next one, or `None` if the
    /// clock went back.
    fn start_due(
        &self,
        members: &mut [Progress],
        now: Timestamp,
        running: &mut JoinSet<(usize, StepResult)>,
        pending: &mut Vec<FeedEvent>,
    ) -> Option<Duration> {
        let mut wait = SLEEP_MAX;
        for (index, (progress, member)) in members.iter_mut().zip(&self.members).enumerate() {
            if progress.is_running || progress.is_over {
                continue;
            }
            let wait_ms = progress.next.ms_since(now);
            if wait_ms > 2 * member.step_ms {
                return None;
            }
            if wait_ms > 0 {
                wait = wait.min(Duration::from_millis(wait_ms.unsigned_abs()));
                continue;
            }
            // Evaluations that cannot keep up skip steps that no stream would receive.
            let oldest = newest_due(now, member.step_ms).plus_ms(-member.step_ms * (BATCHES_MAX as i64 - 1));
            if oldest > progress.next {
                let content = EventContent::SkippedFrom(progress.next);
                pending.push(FeedEvent { at: oldest, member: index, content });
                progress.next = oldest;
            }
            progress.is_running = true;
            let (query, at) = (Arc::clone(&member.query), progress.next);
            running.spawn(async move { (index, query.at(at).await) });
        }
        Some(wait)
    }

    /// Appends a batch for each step, so that streams can end after any, and wakes the streams.
    async fn push(&self, mut events: Vec<FeedEvent>, members: &[Progress]) {
        events
            .sort_by_key(|event| (event.at, event.member, matches!(event.content, EventContent::Result(_))));
        // No more events follow for a step that precedes the next step of every query.
        let next = members.iter().filter(|member| !member.is_over).map(|member| member.next);
        let complete_before = next.min().unwrap_or(Timestamp::MAX);
        while let Some(at) = events.first().map(|event| event.at) {
            let later = events.split_off(events.partition_point(|event| event.at <= at));
            let complete_before = later.first().map_or(complete_before, |next| complete_before.min(next.at));
            self.push_step(std::mem::replace(&mut events, later), complete_before).await;
        }
        self.changed.send_replace(());
    }

    /// Appends a batch of the events of one step.
    async fn push_step(&self, mut events: Vec<FeedEvent>, complete_before: Timestamp) {
        let results = |event: &FeedEvent| match &event.content {
            EventContent::Result(result) => Some((event.at, event.member, result.clone())),
            EventContent::SkippedFrom(_) => None,
        };
        let mut after: Vec<Timestamp> = self.state().positions.to_vec();
        for (at, member, _) in events.iter().filter_map(results) {
            if let Some(position) = after.get_mut(member) {
                *position = (*position).max(at);
            }
        }
        let text = self.write(&events, complete_before);
        let (text, lease) = match self.lease(text.len()) {
            Some(lease) => (text, lease),
            None => {
                // Error events name the steps that streams miss.
                for event in &mut events {
                    if let EventContent::Result(result) = &mut event.content {
                        *result = no_memory();
                    }
                }
                (self.write(&events, complete_before), self.memory.lease(self.org))
            }
        };
        let text = EventText::new(&self.shared, text, Some(lease));
        if self.has_gzip.load(Ordering::Relaxed) {
            self.compress(&text).await;
        }
        let mut state = self.state();
        let (before, after) = (Arc::clone(&state.positions), Positions::from(after));
        (state.positions, state.complete_before) = (Arc::clone(&after), complete_before);
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        let is_complete = events.first().is_some_and(|event| event.at < complete_before);
        let events = Events { text, is_complete };
        if let Some(former) = state.batches.back() {
            former.events.text.count();
        }
        state.batches.push_back(Arc::new(Batch { sequence, events, before, after, complete_before }));
        loop {
            self.shared.release_texts();
            let bytes: usize = state.batches.iter().map(|batch| batch.events.text.held_bytes()).sum();
            let own = bytes > BATCHES_BYTES_MAX || state.batches.len() > BATCHES_MAX;
            let exceeded = own || self.shared.has_too_many_bytes();
            if !exceeded || state.batches.len() <= 1 {
                break;
            }
            if let Some(batch) = state.batches.pop_front() {
                self.shared.unkept.add(&batch.events.text);
            }
        }
    }

    /// Notes that a stream in gzip has joined.
    pub(super) fn note_gzip(&self) {
        self.has_gzip.store(true, Ordering::Relaxed);
    }

    /// Compresses a text once, unless it is short or very long, there is no memory, or no thread
    /// has compressed it within [`GRACE`]. Returns whether there is a compressed text.
    pub(super) async fn compress(&self, text: &EventText) -> bool {
        if !is_worthwhile(text.len()) {
            return false;
        }
        let compress = async |text: Bytes| {
            let lease = self.lease(text.len())?;
            let deflated = self.shared.lanes.run_answer(self.org, move |reply| {
                // A dropped caller needs no result.
                drop(reply.send(deflate(&text)));
            });
            let deflated = tokio::time::timeout(GRACE, deflated).await.ok()?.ok()??;
            lease.shrink_to(deflated.bytes.len() as u64);
            Some((deflated, lease))
        };
        text.compress(compress).await
    }

    /// Leases the memory of a text. Releases texts that no feed keeps if it does not suffice.
    fn lease(&self, bytes: usize) -> Option<Lease> {
        let lease = self.memory.lease(self.org);
        let grown = || lease.grow_to(bytes as u64, &|| false).is_ok();
        let mut is_grown = grown();
        if !is_grown {
            self.shared.unkept.release_while(|| {
                is_grown = grown();
                !is_grown
            });
        }
        lease.shrink_to(bytes as u64);
        is_grown.then_some(lease)
    }

    /// Returns the newest points at the place with this sequence, if a stream is sending them.
    pub(super) fn known_beginning(&self, sequence: u64) -> Option<Arc<EventText>> {
        let (of, text) = &self.state().beginning;
        text.upgrade().filter(|text| *of == sequence && !text.is_released())
    }

    /// Lets other streams at the place with this sequence send the same text.
    pub(super) fn share_beginning(&self, sequence: u64, text: &Arc<EventText>) {
        self.state().beginning = (sequence, Arc::downgrade(text));
    }

    /// Writes events in order. The last one of a complete step has an `id`.
    fn write(&self, events: &[FeedEvent], complete_before: Timestamp) -> Vec<u8> {
        let mut text = Vec::new();
        for (index, FeedEvent { at, member, content }) in events.iter().enumerate() {
            let Some(of) = self.members.get(*member) else { continue };
            match content {
                EventContent::SkippedFrom(first) => {
                    write_gap(of, *first, at.plus_ms(-of.step_ms), &mut text);
                }
                EventContent::Result(result) => {
                    let is_last = events.get(index + 1).is_none_or(|next| next.at != *at);
                    write_result(of, *at, result, is_last && *at < complete_before, &mut text);
                }
            }
        }
        text
    }

    /// Writes results in order of their steps, for a stream that begins or catches up. The
    /// last one has an `id` if its step is before `complete_before`.
    pub(super) fn write_step(
        &self,
        results: &[(usize, Timestamp, StepResult)],
        complete_before: Timestamp,
    ) -> Events {
        let is_complete = results.last().is_some_and(|(_, at, _)| *at < complete_before);
        let write = |replacement: Option<&StepResult>| {
            let mut text = Vec::new();
            for (index, (member, at, result)) in results.iter().enumerate() {
                let is_last = index + 1 == results.len();
                if let Some(member) = self.members.get(*member) {
                    let result = replacement.unwrap_or(result);
                    write_result(member, *at, result, is_last && is_complete, &mut text);
                }
            }
            text
        };
        let text = write(None);
        let (text, lease) = match text.len() > PIECE_BYTES {
            // The connection takes it whole.
            false => (text, None),
            true => match self.lease(text.len()) {
                Some(lease) => (text, Some(lease)),
                None => (write(Some(&no_memory())), None),
            },
        };
        // Before the new text counts: it is the newest of its stream.
        self.shared.release_texts();
        let text = EventText::new(&self.shared, text, lease);
        self.shared.unkept.add(&text);
        Events { text, is_complete }
    }

    /// Writes gaps: the index of each query, and its first and last step that is not sent.
    pub(super) fn write_gaps(&self, gaps: &[(usize, Timestamp, Timestamp)]) -> Bytes {
        let mut text = Vec::new();
        for (member, first, last) in gaps {
            if let Some(member) = self.members.get(*member) {
                write_gap(member, *first, *last, &mut text);
            }
        }
        text.into()
    }
}

/// Returns the result of a step whose points have no memory.
fn no_memory() -> StepResult {
    StepResult(Err(ApiError::new(Code::Busy, "there is no memory for the events")))
}

/// Writes the beginning of the data of an event, up to its first member.
fn write_opening(member: &Member, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(id) = &member.id {
        out.extend_from_slice(b"\"id\":");
        prom_json::text(id, out);
        out.push(b',');
    }
}

fn write_result(member: &Member, at: Timestamp, result: &StepResult, has_id: bool, out: &mut Vec<u8>) {
    if has_id {
        out.extend_from_slice(format!("id: {}\n", at.as_ms()).as_bytes());
    }
    match &result.0 {
        Ok(points) => {
            out.extend_from_slice(b"event: points\ndata: ");
            write_opening(member, out);
            out.extend_from_slice(&points.members);
        }
        Err(error) => {
            out.extend_from_slice(b"event: error\ndata: ");
            write_error(member.id.as_deref(), Some(at), error, out);
        }
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes an error as a JSON object, with the id of its query and its step. The events of a stream
/// of one query have neither.
pub(super) fn write_error(id: Option<&str>, at: Option<Timestamp>, error: &ApiError, out: &mut Vec<u8>) {
    let mut members = error.line_members();
    if let Some(id) = id {
        members.insert("id".to_owned(), id.into());
        if let Some(at) = at {
            let mut time = Vec::new();
            prom_json::time(at, &mut time);
            // The text of a time is a number.
            let time = serde_json::from_slice(&time).unwrap_or(Value::Null);
            members.insert("time".to_owned(), time);
        }
    }
    out.extend_from_slice(Value::from(members).to_string().as_bytes());
}

/// Writes a gap; both ends are inclusive.
fn write_gap(member: &Member, first: Timestamp, last: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: gap\ndata: ");
    write_opening(member, out);
    out.extend_from_slice(b"\"start\":");
    prom_json::time(first, out);
    out.extend_from_slice(b",\"end\":");
    prom_json::time(last, out);
    out.extend_from_slice(b"}\n\n");
}
