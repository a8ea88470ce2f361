//! Bodies of remote write that have just been stored, for targets that may get them as they were
//! received.
//!
//! A body is queued before its records can be read from the log, and has their positions. A sender
//! passes on a body in place of its records, or reads the records and drops the body. So a queue
//! that is full, or a process that ends, loses nothing: the records are in the log.
//!
//! Bodies of version 1.0 with snappy are joined to larger requests without decoding them. A message
//! that follows another of the same type is merged with it (Protocol Buffers encoding, "Last One
//! Wins"), and in a snappy block all references point backwards by a distance, so that the elements
//! of another block may precede them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock, Weak};

use super::encode::{BodyCompression, WriteVersion};
use crate::ingest::put_varint;
use crate::model::{ByteBudget, ByteCharge, OrgId};
use crate::outbound::Bytes;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{LogPosition, LogSpan};

/// The bytes of all queued bodies, of which one target has at most half: 16 MiB.
const BODIES_BYTES: u64 = 16 << 20;
/// The fewest samples of a body that is passed on, inclusive. Smaller ones are sent together, from
/// the log.
pub const PASSED_SAMPLES_MIN: u64 = 500;
/// The most samples of bodies that are joined, inclusive.
pub(super) const JOINED_SAMPLES_MAX: u64 = 10_000;
/// The most bytes of bodies that are joined, inclusive.
const JOINED_BYTES_MAX: usize = 512 << 10;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyFormat {
    /// The version of remote write.
    pub version: WriteVersion,
    /// The compression.
    pub compression: BodyCompression,
}

/// The format of bodies that can be joined. Bodies of version 2.0 have symbol tables.
const JOINED_FORMAT: BodyFormat =
    BodyFormat { version: WriteVersion::V1, compression: BodyCompression::Snappy };

/// A body whose samples are all in the log.
#[derive(Debug)]
pub struct ReceivedBody {
    /// Its records.
    pub span: LogSpan,
    /// The body as it was received.
    pub body: Bytes,
    /// Its bytes, while they are in memory.
    pub(super) charge: ByteCharge,
}

/// The queue of a target.
pub struct ReceivedQueue {
    budget: ByteBudget,
    state: Mutex<WaitingBodies>,
    /// Called when a body was added to an empty queue. It must be short.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct WaitingBodies {
    format: BodyFormat,
    bodies: VecDeque<ReceivedBody>,
    /// The samples of the bodies.
    samples: u64,
    /// The position from which on bodies know the records before them.
    known_from: LogPosition,
}

impl std::fmt::Debug for ReceivedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivedQueue").field("bytes", &self.budget.bytes()).finish_non_exhaustive()
    }
}

impl ReceivedQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, WaitingBodies> {
        self.state.lock().ignore_poison()
    }

    /// Accepts bodies of another format from now on, and drops the queued ones if it differs.
    pub(super) fn set_format(&self, format: BodyFormat) {
        let mut state = self.lock();
        if state.format != format {
            state.format = format;
            (state.samples, state.bodies) = (0, VecDeque::new());
        }
    }

    /// Adds a body, unless too many bytes are queued.
    fn push(&self, format: BodyFormat, span: LogSpan, body: &Bytes) {
        let mut charge = self.budget.charge();
        if !charge.grow(body.len() as u64) {
            return;
        }
        let mut state = self.lock();
        if state.format != format {
            return;
        }
        let was_empty = state.bodies.is_empty();
        state.bodies.push_back(ReceivedBody { span, body: body.clone(), charge });
        state.samples = state.samples.saturating_add(span.samples);
        let is_due = was_empty || state.samples >= JOINED_SAMPLES_MAX;
        drop(state);
        if is_due {
            (self.wake)();
        }
    }

    /// Drops the bodies whose records are partly or all before `position`. Returns the bodies that
    /// may be sent in the next request. `None` if there is none, or if other records of the
    /// organisation are between the first of them and `position`.
    ///
    /// `readable_to` is the last record that can be read from the log.
    pub(super) fn next_run(&self, position: LogPosition, readable_to: LogPosition) -> Option<ReceivedRun> {
        let mut state = self.lock();
        while state.bodies.front().is_some_and(|body| body.span.first < position) {
            state.pop();
        }
        if position < state.known_from {
            return None;
        }
        let can_join = state.format == JOINED_FORMAT;
        let mut run = ReceivedRun::default();
        let (mut position, mut bytes) = (position, 0);
        for ReceivedBody { span, body, .. } in &state.bodies {
            if span.before >= position {
                // The log comes first.
                run.is_full = true;
                break;
            }
            if span.last > readable_to {
                break;
            }
            let is_joined = run.bodies > 0;
            bytes += body.len();
            let samples = run.samples.saturating_add(span.samples);
            if is_joined && (!can_join || samples > JOINED_SAMPLES_MAX || bytes > JOINED_BYTES_MAX) {
                run.is_full = true;
                break;
            }
            (run.bodies, run.samples) = (run.bodies + 1, samples);
            position = LogPosition(span.last.0.saturating_add(1));
        }
        run.is_full |= run.bodies > 0 && (!can_join || run.samples >= JOINED_SAMPLES_MAX);
        (run.bodies > 0 || !(state.bodies.is_empty() || run.is_full)).then_some(run)
    }

    /// Returns the first bodies.
    pub(super) fn pop(&self, bodies: usize) -> Vec<ReceivedBody> {
        let mut state = self.lock();
        (0..bodies).map_while(|_| state.pop()).collect()
    }
}

impl WaitingBodies {
    fn pop(&mut self) -> Option<ReceivedBody> {
        let body = self.bodies.pop_front()?;
        self.samples = self.samples.saturating_sub(body.span.samples);
        Some(body)
    }
}

/// Bodies that may be sent in one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedRun {
    /// Their number; 0 if the records of the first body cannot be read from the log yet.
    pub(super) bodies: usize,
    samples: u64,
    /// Whether no further body can join them.
    pub(super) is_full: bool,
}

/// Joins bodies of [`JOINED_FORMAT`]. `None` if one of them is not valid.
pub(super) fn join(bodies: &[Bytes]) -> Option<Bytes> {
    let [first, more @ ..] = bodies else { return None };
    if more.is_empty() {
        return Some(first.clone());
    }
    let blocks: Vec<(u64, &[u8])> = bodies.iter().map(|body| split_length(body)).collect::<Option<_>>()?;
    let length = blocks.iter().try_fold(0_u64, |sum, (length, _)| sum.checked_add(*length))?;
    let length = u64::from(u32::try_from(length).ok()?);
    let mut joined = Vec::with_capacity(blocks.iter().map(|(_, elements)| elements.len()).sum::<usize>() + 5);
    put_varint(length, &mut joined);
    blocks.iter().for_each(|(_, elements)| joined.extend_from_slice(elements));
    Some(joined.into())
}

/// Divides a snappy block into the length of its content, a varint of at most 32 bits, and its
/// elements.
fn split_length(block: &[u8]) -> Option<(u64, &[u8])> {
    let bytes = block.iter().take(5).position(|byte| *byte < 0x80)? + 1;
    let (length, elements) = block.split_at_checked(bytes)?;
    let bits = |(place, byte): (usize, &u8)| u64::from(byte & 0x7f) << (7 * place);
    Some((length.iter().enumerate().map(bits).sum(), elements))
}

/// The queues of all targets.
#[derive(Debug)]
pub struct ReceivedBodies {
    budget: ByteBudget,
    queues: RwLock<HashMap<OrgId, Vec<Weak<ReceivedQueue>>>>,
}

impl Default for ReceivedBodies {
    fn default() -> ReceivedBodies {
        ReceivedBodies::new(BODIES_BYTES)
    }
}

impl ReceivedBodies {
    /// Creates a set without queues, whose bodies have at most this many bytes, inclusive.
    pub(super) fn new(bytes_max: u64) -> ReceivedBodies {
        ReceivedBodies { budget: ByteBudget::new(bytes_max), queues: RwLock::default() }
    }

    /// Returns a queue for the bodies of an organisation, which are queued until it is dropped.
    /// `end` is the end of the log. `wake` is called when a body was added to the empty queue.
    pub(super) fn queue(
        &self,
        org: OrgId,
        format: BodyFormat,
        end: LogPosition,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Arc<ReceivedQueue> {
        let state = WaitingBodies { format, bodies: VecDeque::new(), samples: 0, known_from: end };
        let queue = Arc::new(ReceivedQueue {
            budget: self.budget.share(),
            state: Mutex::new(state),
            wake: Box::new(wake),
        });
        let mut queues = self.queues.write().ignore_poison();
        queues.retain(|_, queues| {
            queues.retain(|queue| queue.strong_count() > 0);
            !queues.is_empty()
        });
        queues.entry(org).or_default().push(Arc::downgrade(&queue));
        queue
    }

    /// Returns whether a target of the organisation takes bodies of this format.
    pub fn wants(&self, org: OrgId, format: BodyFormat) -> bool {
        let queues = self.queues.read().ignore_poison();
        let queues = queues.get(&org).into_iter().flatten();
        queues.filter_map(Weak::upgrade).any(|queue| queue.lock().format == format)
    }

    /// Queues a body for the targets that take its format. Must be called before the records can be
    /// read from the log; otherwise the targets may have read them.
    pub fn add(&self, org: OrgId, format: BodyFormat, span: LogSpan, body: &Bytes) {
        if span.samples < PASSED_SAMPLES_MIN {
            return;
        }
        let queues = self.queues.read().ignore_poison();
        for queue in queues.get(&org).into_iter().flatten().filter_map(Weak::upgrade) {
            queue.push(format, span, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_blocks_have_the_content_of_all(
            contents in prop::collection::vec(prop::collection::vec(0..4u8, 0..2_000), 1..6),
        ) {
            let block = |content: &Vec<u8>| {
                Bytes::from(snap::raw::Encoder::new().compress_vec(content).expect("small"))
            };
            let blocks: Vec<Bytes> = contents.iter().map(block).collect();
            let joined = join(&blocks).expect("valid");
            let content = snap::raw::Decoder::new().decompress_vec(&joined).expect("valid");
            prop_assert_eq!(content, contents.concat());
        }

        #[test]
        fn no_bytes_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..4)) {
            let blocks: Vec<Bytes> = blocks.into_iter().map(Bytes::from).collect();
            let _ = join(&blocks);
        }
    }

    #[test]
    fn a_block_whose_length_is_not_valid_is_not_joined() {
        let block = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
        assert_eq!(join(&[]), None);
        for wrong in [&b""[..], b"\x80", b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x0f"] {
            assert_eq!(join(&[block(b"\x01\x00a"), block(wrong)]), None, "{wrong:?}");
        }
        assert_eq!(join(&[block(b"\x01\x00a"), block(b"\x81\x00\x00b")]), Some(block(b"\x02\x00a\x00b")));
    }
}
