//! The body of a response: events of a shared query, and the checks of the credential.
//!
//! hyper polls the body while the connection takes bytes, so nothing is buffered for a client that
//! does not read; the write timeout of the connection ends it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::Frame;
use serde_json::Value;
use tokio::time::Instant;

use super::shared::{LiveEvent, LiveShare};
use crate::api::callers::StandingCaller;
use crate::api::error::{ApiError, Code};
use crate::clock::Clock;
use crate::model::Timestamp;

/// The time between two checks of the credential.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// A comment is sent after as many checks without an event, so that proxies keep the connection.
const QUIET_CHECKS: u32 = 15;

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
    share: LiveShare,
    caller: StandingCaller,
    clock: Clock,
    /// The newest step that was sent or skipped.
    sent: Timestamp,
    pending: VecDeque<Bytes>,
    /// The number of events that may still be sent.
    left: Option<usize>,
    check_at: Instant,
    quiet_checks: u32,
    /// Nothing follows the pending frames.
    is_ending: bool,
}

impl LiveStream {
    /// Returns a stream of the events after the step `sent`, at most `count` of them.
    pub(super) fn new(
        share: LiveShare,
        caller: StandingCaller,
        clock: Clock,
        count: Option<usize>,
        sent: Timestamp,
    ) -> LiveStream {
        let viewer = Viewer {
            share,
            caller,
            clock,
            sent,
            // Proxies that delay the first bytes learn at once that this is a stream.
            pending: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
            left: count,
            check_at: Instant::now() + CHECK_PERIOD,
            quiet_checks: 0,
            is_ending: false,
        };
        LiveStream(State::Idle(Box::new(viewer)))
    }

    /// Appends an event before the stream begins.
    pub(super) fn push(&mut self, event: LiveEvent) {
        if let State::Idle(viewer) = &mut self.0 {
            viewer.push(event);
        }
    }

    /// Appends a gap before the stream begins. Both ends are inclusive.
    pub(super) fn push_gap(&mut self, from: Timestamp, to: Timestamp) {
        if let State::Idle(viewer) = &mut self.0 {
            viewer.push_gap(from, to);
        }
    }
}

impl Viewer {
    fn push(&mut self, event: LiveEvent) {
        if self.is_ending {
            return;
        }
        self.sent = self.sent.max(event.at);
        self.quiet_checks = 0;
        self.pending.push_back(event.text);
        if let Some(left) = &mut self.left {
            *left -= 1;
            self.is_ending = *left == 0;
        }
    }

    fn push_gap(&mut self, from: Timestamp, to: Timestamp) {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        crate::api::prom_json::time(from, &mut start);
        crate::api::prom_json::time(to, &mut end);
        let [start, end] = [start, end].map(|text| String::from_utf8_lossy(&text).into_owned());
        self.pending.push_back(format!("event: gap\ndata: {{\"start\":{start},\"end\":{end}}}\n\n").into());
    }

    fn end(&mut self, error: &ApiError) {
        let problem = Value::from(error.line_members());
        self.pending.push_back(format!("event: end\ndata: {problem}\n\n").into());
        self.is_ending = true;
    }

    /// Takes the events that are new.
    fn take_events(&mut self) {
        if self.share.is_before(self.sent) {
            let detail = "the server's clock went back; connect again";
            return self.end(&ApiError::new(Code::Busy, detail));
        }
        let new = self.share.events_after(self.sent);
        if let Some((from, to)) = new.gap {
            self.push_gap(from, to);
        }
        for event in new.events {
            self.push(event);
        }
    }

    /// Checks the credential, and keeps the connection alive.
    fn check(&mut self) {
        self.check_at = Instant::now() + CHECK_PERIOD;
        if let Err(refused) = self.caller.check(self.clock.now()) {
            return self.end(&refused);
        }
        self.quiet_checks += 1;
        if self.quiet_checks >= QUIET_CHECKS {
            self.quiet_checks = 0;
            self.pending.push_back(Bytes::from_static(b": alive\n\n"));
        }
    }

    /// Waits for the next frame; `None` ends the stream.
    async fn next(mut self: Box<Viewer>) -> (Box<Viewer>, Option<Bytes>) {
        loop {
            // A client that reads slowly comes here late: its credential is checked before it gets
            // anything more.
            if Instant::now() >= self.check_at && !self.is_ending {
                self.check();
                if self.is_ending {
                    self.pending.drain(..self.pending.len() - 1);
                }
            }
            if let Some(frame) = self.pending.pop_front() {
                return (self, Some(frame));
            }
            if self.is_ending {
                return (self, None);
            }
            let Viewer { share, check_at, .. } = &mut *self;
            let open = tokio::select! {
                open = share.changed() => open,
                () = tokio::time::sleep_until(*check_at) => true,
            };
            if open {
                self.take_events();
            } else {
                let detail = "the server is shutting down; connect again";
                self.end(&ApiError::new(Code::ShuttingDown, detail));
            }
        }
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
