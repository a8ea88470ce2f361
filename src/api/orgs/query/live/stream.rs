//! The body of a response: the batches of a feed, after the events that a stream begins with.
//!
//! hyper polls the body while its buffer of the connection has room (`edge::READ_BYTES_MAX`). So a
//! client that does not read costs that buffer, a piece beyond it, and the text that is being sent,
//! which `text` shares and bounds. The write timeout of the connection ends it. A stream has no
//! timer of its own: its feed wakes it for each batch, for comments, and when its credential has
//! ended.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::time::Instant;

use super::evaluation::StepResult;
use super::feed::{Events, Feed, Member, Positions, QUIET_PERIOD, write_error};
use super::gzip::GzipStream;
use super::table::StreamShare;
use super::text::EventText;
use super::{CATCH_UP_MAX, StreamSpan, newest_due};
use crate::api::encoding::Coding;
use crate::api::error::ApiError;
use crate::model::Timestamp;

/// The first line of a response: a client connects again after 2 s. Proxies that delay the first
/// bytes learn at once that this is a stream.
pub(super) const RETRY: &[u8] = b"retry: 2000\n\n";

/// The next frame of a stream; `None` is its end.
type NextFrame = Pin<Box<dyn Future<Output = (Box<Viewer>, Option<Bytes>)> + Send>>;

/// The body of a response.
pub(super) struct LiveStream(State);

enum State {
    /// No frame is being awaited. Boxed, because it moves into each future.
    Idle(Box<Viewer>),
    Waiting(NextFrame),
    Ended,
}

/// The state of one stream.
struct Viewer {
    share: StreamShare,
    /// The state of a response in gzip.
    gzip: Option<GzipStream>,
    /// Events that are sent before anything else.
    pending: Option<Bytes>,
    /// The text that is sent next.
    sending: Option<SendingText>,
    beginning: Beginning,
    /// The number of complete steps that may still be sent.
    left: Option<usize>,
    last_sent: Instant,
    /// Whether nothing follows the pending frame and the text.
    is_ending: bool,
}

/// A text that a connection is taking.
struct SendingText {
    text: Arc<EventText>,
    /// Whether the stream sends the compressed text.
    is_deflated: bool,
    /// The bytes that the connection has taken.
    sent: usize,
}

/// The events before the first batch.
#[derive(Clone, Copy)]
enum Beginning {
    /// The newest result of each query.
    Newest,
    /// The results of the steps after this one, in order.
    After(Timestamp),
    /// All are sent.
    Done,
}

impl LiveStream {
    /// Returns a stream that begins with `errors`, which are events. Its coding is gzip or none.
    pub(super) fn new(share: StreamShare, span: StreamSpan, errors: &[u8], coding: Coding) -> LiveStream {
        let mut first = [RETRY, errors].concat();
        let beginning = match span.since {
            None => Beginning::Newest,
            Some(since) => {
                let gaps = missed(&share, since);
                first.extend_from_slice(&share.feed.write_gaps(&gaps));
                Beginning::After(since)
            }
        };
        let gzip = (coding == Coding::Gzip).then(GzipStream::default);
        if gzip.is_some() {
            share.feed.note_gzip();
        }
        let viewer = Viewer {
            share,
            gzip,
            pending: Some(first.into()),
            sending: None,
            beginning,
            left: span.count,
            last_sent: Instant::now(),
            is_ending: false,
        };
        LiveStream(State::Idle(Box::new(viewer)))
    }
}

/// Returns the event after which nothing follows.
pub(super) fn end_event(error: &ApiError) -> Bytes {
    let mut text = b"event: end\ndata: ".to_vec();
    write_error(None, None, error, &mut text);
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// Returns the oldest step of a query that a stream catches up.
fn oldest(position: Timestamp, step_ms: i64) -> Timestamp {
    position.plus_ms(-step_ms.saturating_mul(CATCH_UP_MAX - 1))
}

/// Returns the steps after `since` that are too many to catch up: the index of each query, its
/// first and its last one.
fn missed(share: &StreamShare, since: Timestamp) -> Vec<(usize, Timestamp, Timestamp)> {
    let Feed { members, .. } = &*share.feed;
    let steps = members.iter().zip(share.place.positions.iter()).enumerate();
    let gap = |(index, (member, position)): (usize, (&Member, &Timestamp))| {
        let first = newest_due(since, member.step_ms).plus_ms(member.step_ms);
        let oldest = oldest(*position, member.step_ms);
        (first < oldest).then(|| (index, first, oldest.plus_ms(-member.step_ms)))
    };
    steps.filter_map(gap).collect()
}

/// Returns the queries that have a step right after `after`, up to their position, and that step.
fn next_step(feed: &Feed, positions: &Positions, after: Timestamp) -> Option<(Timestamp, Vec<usize>)> {
    let steps = feed.members.iter().zip(positions.iter()).map(|(member, position)| {
        let next = newest_due(after, member.step_ms).plus_ms(member.step_ms);
        let next = next.max(oldest(*position, member.step_ms));
        (next <= *position).then_some(next)
    });
    let steps: Vec<Option<Timestamp>> = steps.collect();
    let first = steps.iter().flatten().min().copied()?;
    Some((first, (0..steps.len()).filter(|index| steps.get(*index) == Some(&Some(first))).collect()))
}

/// Returns the results of queries at their steps, the earliest first. Steps without a kept result
/// are evaluated concurrently.
async fn results(feed: &Feed, steps: Vec<(usize, Timestamp)>) -> Vec<(usize, Timestamp, StepResult)> {
    let (mut known, mut tasks) = (Vec::with_capacity(steps.len()), tokio::task::JoinSet::new());
    for (index, at) in steps {
        let Some(member) = feed.members.get(index) else { continue };
        if let Some(result) = member.query.known(at) {
            known.push((index, at, result));
            continue;
        }
        let query = Arc::clone(&member.query);
        tasks.spawn(async move { (index, at, query.at(at).await) });
    }
    known.extend(tasks.join_all().await);
    known.sort_by_key(|(index, at, _)| (*at, *index));
    known
}

impl Viewer {
    /// Sends events next. `is_complete` if they end a step.
    async fn push(&mut self, Events { text, is_complete }: Events) {
        let is_deflated = match (&self.gzip, text.checksum()) {
            (None, _) => false,
            (Some(_), Some(checksum)) => checksum.is_some(),
            // Boxed, because the feed has compressed most texts.
            (Some(_), None) => Box::pin(self.share.feed.compress(&text)).await,
        };
        self.sending = Some(SendingText { text, is_deflated, sent: 0 });
        if let Some(left) = self.left.as_mut().filter(|_| is_complete) {
            *left -= 1;
            self.is_ending = *left == 0;
        }
    }

    /// Returns the next frame before the first batch.
    async fn begin(&mut self) -> Option<Events> {
        let feed = Arc::clone(&self.share.feed);
        let (positions, complete_before) =
            (Arc::clone(&self.share.place.positions), self.share.place.complete_before);
        match self.beginning {
            Beginning::Newest => {
                self.beginning = Beginning::Done;
                let sequence = self.share.place.sequence();
                let is_complete = positions.iter().max().is_some_and(|newest| *newest < complete_before);
                let known = || feed.known_beginning(sequence).map(|text| Events { text, is_complete });
                if let Some(events) = known() {
                    return Some(events);
                }
                let steps = positions.iter().copied().enumerate().collect();
                let results = results(&feed, steps).await;
                // Another stream that waited for the same evaluations may have written them.
                if let Some(events) = known() {
                    return Some(events);
                }
                let events = (!results.is_empty()).then(|| feed.write_step(&results, complete_before))?;
                if results.iter().all(|(_, _, result)| result.0.is_ok()) {
                    feed.share_beginning(sequence, &events.text);
                }
                Some(events)
            }
            Beginning::After(since) => {
                let Some((at, members)) = next_step(&feed, &positions, since) else {
                    self.beginning = Beginning::Done;
                    return None;
                };
                self.beginning = Beginning::After(at);
                let steps = members.into_iter().map(|index| (index, at)).collect();
                let results = results(&feed, steps).await;
                Some(feed.write_step(&results, complete_before))
            }
            Beginning::Done => None,
        }
    }

    /// Returns the next frame of a text; `None` if it was released.
    fn send(&mut self, mut sending: SendingText) -> Option<Bytes> {
        let SendingText { text, is_deflated, sent } = &mut sending;
        let (mut frame, is_last) = text.piece(*sent, *is_deflated)?;
        *sent += frame.len();
        match &mut self.gzip {
            Some(gzip) if !*is_deflated => frame = gzip.store(&frame),
            Some(gzip) if is_last => {
                if let Some(checksum) = text.checksum().flatten() {
                    gzip.add(checksum);
                }
            }
            _ => {}
        }
        self.sending = (!is_last).then_some(sending);
        Some(frame)
    }

    /// Waits for the next frame; `None` ends the stream.
    async fn next(mut self: Box<Viewer>) -> (Box<Viewer>, Option<Bytes>) {
        loop {
            // A client that reads slowly comes here late: its credential is checked before it gets
            // anything more.
            if let Some(error) = self.share.ended().filter(|_| !self.is_ending) {
                let text = end_event(error);
                // Nothing can follow a part of an event.
                if self.sending.take().is_some_and(|sending| sending.sent > 0) {
                    return (self, None);
                }
                (self.pending, self.is_ending) = (Some(text), true);
            }
            if let Some(events) = self.pending.take() {
                self.last_sent = Instant::now();
                let frame = match &mut self.gzip {
                    Some(gzip) => gzip.store(&events),
                    None => events,
                };
                return (self, Some(frame));
            }
            if let Some(sending) = self.sending.take() {
                self.last_sent = Instant::now();
                // A stream whose text was released ends. Its client connects again.
                let frame = self.send(sending);
                return (self, frame);
            }
            if self.is_ending {
                let last = self.gzip.take().map(GzipStream::end);
                return (self, last);
            }
            if !matches!(self.beginning, Beginning::Done) {
                // Boxed, because most streams wait for a batch, not here.
                if let Some(events) = Box::pin(self.begin()).await {
                    self.push(events).await;
                }
                continue;
            }
            // Marked before the look, so that a batch after it wakes the stream.
            self.share.changes.mark_unchanged();
            let StreamShare { feed, place, .. } = &mut self.share;
            // Read before the batches, the last of which was appended before it was set.
            let refused = feed.refused().map(end_event);
            match feed.take(place) {
                Some((batch, None)) => self.push(batch.events.clone()).await,
                Some((batch, Some(gap))) => {
                    self.pending = Some(gap);
                    self.push(batch.events.clone()).await;
                }
                None if refused.is_some() => (self.pending, self.is_ending) = (refused, true),
                None if self.last_sent.elapsed() >= QUIET_PERIOD => {
                    self.pending = Some(Bytes::from_static(b": alive\n\n"));
                }
                None => {
                    // The sender exists as long as the share.
                    let _ = self.share.changes.changed().await;
                }
            }
        }
    }
}

impl From<LiveStream> for Body {
    fn from(stream: LiveStream) -> Body {
        Body::new(stream)
    }
}

impl hyper::body::Body for LiveStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut waiting: NextFrame = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(viewer) => Box::pin(viewer.next()),
            State::Waiting(waiting) => waiting,
            State::Ended => return Poll::Ready(None),
        };
        match waiting.as_mut().poll(context) {
            Poll::Ready((viewer, Some(frame))) => {
                self.0 = State::Idle(viewer);
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
            Poll::Ready((_, None)) => Poll::Ready(None),
            Poll::Pending => {
                self.0 = State::Waiting(waiting);
                Poll::Pending
            }
        }
    }
}
