//! The response to a batch: lines in the order in which they are ready.
//!
//! The stream starts slices of work while the connection polls it, so a client that does not read
//! stops the batch, and one that disconnects cancels it. Lines are compressed on the answer lane,
//! and flushed, so that the client can decompress each one when it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::mpsc::UnboundedReceiver;

use super::queue::{BatchQueue, QueuedLine};
use crate::api::encoding::{Coding, Encoder};
use crate::api::error::ApiResult;
use crate::api::lanes::Reply;
use crate::api::orgs::query::body::EncodedLine;
use crate::api::orgs::query::response::{CHUNK_BYTES, DOWNLOAD_MAX};

type StreamError = Box<dyn std::error::Error + Send + Sync>;
type Slice = Pin<Box<dyn Future<Output = ()> + Send>>;
type Encoding = Pin<Box<dyn Future<Output = ApiResult<std::io::Result<(Encoder, Vec<u8>)>>> + Send>>;

/// The body of a response.
pub(super) struct BatchStream {
    queue: Arc<BatchQueue>,
    lines: UnboundedReceiver<QueuedLine>,
    /// The slices that wait for a thread or run.
    slices: Vec<Slice>,
    /// A long line, and the bytes that it counts in the backlog.
    long: Option<(Body, u64)>,
    coding: Coding,
    state: EncoderState,
    /// The last line has been encoded.
    is_complete: bool,
}

enum EncoderState {
    /// No chunk is being encoded.
    Idle(Encoder),
    Busy(Encoding),
    /// The body has ended.
    Ended,
}

impl BatchStream {
    /// Returns the body of a response, and its coding.
    pub(super) fn body(
        queue: Arc<BatchQueue>,
        lines: UnboundedReceiver<QueuedLine>,
        coding: Coding,
    ) -> (Body, Coding) {
        let (encoder, coding) = Encoder::new(coding, 0);
        let state = EncoderState::Idle(encoder);
        let stream =
            BatchStream { queue, lines, slices: Vec::new(), long: None, coding, state, is_complete: false };
        (Body::new(stream), coding)
    }

    /// Polls the slices, and starts new ones.
    fn drive(&mut self, context: &mut Context<'_>) {
        self.slices.retain_mut(|slice| slice.as_mut().poll(context).is_pending());
        while self.slices.len() < self.queue.slices_max() {
            let mut slice: Slice = Box::pin(run_slice(Arc::clone(&self.queue)));
            if slice.as_mut().poll(context).is_pending() {
                self.slices.push(slice);
            }
        }
    }

    /// Takes a line, or asks to be polled again when there is one.
    fn next_line(&mut self, context: &mut Context<'_>) -> Option<QueuedLine> {
        // `poll_recv` returns `Pending` also if this task has received many lines.
        if let Ok(line) = self.lines.try_recv() {
            return Some(line);
        }
        match self.lines.poll_recv(context) {
            Poll::Ready(line) => line,
            Poll::Pending => None,
        }
    }

    /// Returns the text of the lines that are ready, about [`CHUNK_BYTES`] at most. An empty text
    /// means none.
    fn ready_text(&mut self, context: &mut Context<'_>) -> Result<Vec<u8>, StreamError> {
        let mut text = Vec::new();
        while text.len() < CHUNK_BYTES {
            if let Some((body, bytes)) = &mut self.long {
                match hyper::body::Body::poll_frame(Pin::new(body), context) {
                    Poll::Ready(Some(frame)) => {
                        text.extend_from_slice(&frame?.into_data().unwrap_or_default());
                    }
                    Poll::Ready(None) => {
                        self.queue.sent(*bytes);
                        self.long = None;
                    }
                    Poll::Pending => break,
                }
                continue;
            }
            let Some(QueuedLine { prefix, rest, bytes }) = self.next_line(context) else { break };
            text.extend_from_slice(&prefix);
            match rest {
                EncodedLine::Whole(rest, _lease) => {
                    self.queue.sent(bytes);
                    text.extend_from_slice(&rest);
                }
                EncodedLine::Large(body, _) => self.long = Some((body, bytes)),
            }
        }
        let all_sent = text.is_empty() && self.long.is_none() && self.lines.is_empty();
        if all_sent && self.slices.is_empty() && !self.is_complete && self.queue.waiting() == 0 {
            self.is_complete = true;
            text = self.queue.last_line();
        }
        Ok(text)
    }

    /// Starts compressing a text on the answer lane.
    fn encode(&self, mut encoder: Encoder, text: Vec<u8>) -> Encoding {
        let (lanes, org, is_last) = (self.queue.lanes().clone(), self.queue.org(), self.is_complete);
        let encode = move |reply: Reply<_>| {
            let done = encoder.push(&text).and_then(|()| match is_last {
                true => {
                    let mut rest = Vec::new();
                    encoder.finish(&mut rest).map(|()| rest)
                }
                false => encoder.flush().map(|()| encoder.take()),
            });
            drop(reply.send(done.map(|bytes| (encoder, bytes))));
        };
        Box::pin(async move { lanes.run_answer(org, encode).await })
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, StreamError>>> {
        if self.queue.since().elapsed() > DOWNLOAD_MAX {
            return Poll::Ready(Some(Err("the client took too long to read the response".into())));
        }
        self.drive(context);
        loop {
            match std::mem::replace(&mut self.state, EncoderState::Ended) {
                EncoderState::Busy(mut encoding) => match encoding.as_mut().poll(context) {
                    Poll::Pending => {
                        self.state = EncoderState::Busy(encoding);
                        return Poll::Pending;
                    }
                    Poll::Ready(encoded) => {
                        let (encoder, bytes) = encoded??;
                        if !self.is_complete {
                            self.state = EncoderState::Idle(encoder);
                        }
                        if !bytes.is_empty() {
                            return Poll::Ready(Some(Ok(bytes)));
                        }
                    }
                },
                EncoderState::Idle(encoder) => {
                    let text = self.ready_text(context)?;
                    // Lines that were taken may make room for further queries.
                    self.drive(context);
                    if text.is_empty() {
                        self.state = EncoderState::Idle(encoder);
                        if self.slices.is_empty() {
                            // The last slice ended just now, and nothing would wake this task.
                            continue;
                        }
                        return Poll::Pending;
                    }
                    if self.coding != Coding::Identity {
                        self.state = EncoderState::Busy(self.encode(encoder, text));
                        continue;
                    }
                    if !self.is_complete {
                        self.state = EncoderState::Idle(encoder);
                    }
                    return Poll::Ready(Some(Ok(text)));
                }
                EncoderState::Ended => return Poll::Ready(None),
            }
        }
    }
}

/// Runs a slice on the query lane, or a group of queries on another server.
async fn run_slice(queue: Arc<BatchQueue>) {
    if queue.is_remote() {
        return queue.run_remote_group().await;
    }
    let running = Arc::clone(&queue);
    let work = move || running.run_slice();
    if let Err(refused) = queue.lanes().run_within(queue.lane(), queue.remaining(), work).await {
        queue.after_refusal(refused).await;
    }
}

impl hyper::body::Body for BatchStream {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let next = self.next(context);
        if let Poll::Ready(Some(Err(error))) = &next {
            tracing::warn!(org = self.queue.org().0, "a response to a batch ended early: {error}");
            self.state = EncoderState::Ended;
            self.queue.close();
        }
        next.map_ok(|bytes| Frame::data(bytes.into()))
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.queue.close();
    }
}
