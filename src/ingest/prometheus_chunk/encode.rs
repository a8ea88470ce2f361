//! An encoder of chunks of samples.

use super::bit_writer::{BitWriter, XorState};
use super::encode_histograms::HistogramEncoder;
use super::{ChunkKind, ChunkSample};
use crate::model::Histogram;

/// A chunk under construction.
#[derive(Clone, Debug, Default)]
pub struct ChunkEncoder {
    state: EncoderState,
    samples: u16,
    first_ms: i64,
    last_ms: i64,
}

#[derive(Clone, Debug, Default)]
enum EncoderState {
    #[default]
    Empty,
    Floats(FloatEncoder),
    Natives(Box<HistogramEncoder>),
}

/// The encoder of a float chunk, after its first sample.
#[derive(Clone, Debug)]
struct FloatEncoder {
    out: BitWriter,
    last_ms: i64,
    delta: i64,
    value: XorState,
}

/// An encoded chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedChunk {
    /// The encoding.
    pub kind: ChunkKind,
    /// The time of its first sample in milliseconds.
    pub first_ms: i64,
    /// The time of its last sample in milliseconds.
    pub last_ms: i64,
    /// The number of samples.
    pub samples: u16,
    /// The bytes, without encoding and checksum.
    pub data: Vec<u8>,
}

impl ChunkEncoder {
    /// Appends a sample, and returns whether it fits into this chunk. If not, the chunk is
    /// unchanged, and the sample is the first of another chunk. An empty chunk takes every sample.
    pub fn push(&mut self, at_ms: i64, sample: &ChunkSample) -> bool {
        match sample {
            ChunkSample::Float(value) => self.push_float(at_ms, *value),
            ChunkSample::Native(histogram) => self.push_histogram(at_ms, histogram),
        }
    }

    /// Like [`ChunkEncoder::push`], for a float.
    pub fn push_float(&mut self, at_ms: i64, value: f64) -> bool {
        if self.samples == u16::MAX {
            return false;
        }
        match &mut self.state {
            EncoderState::Empty => self.state = EncoderState::Floats(FloatEncoder::new(at_ms, value)),
            EncoderState::Floats(floats) => floats.push(self.samples, at_ms, value),
            EncoderState::Natives(_) => return false,
        }
        self.count(at_ms);
        true
    }

    /// Like [`ChunkEncoder::push`], for a native histogram.
    pub fn push_histogram(&mut self, at_ms: i64, histogram: &Histogram) -> bool {
        if self.samples == u16::MAX {
            return false;
        }
        match &mut self.state {
            EncoderState::Empty => {
                self.state = EncoderState::Natives(Box::new(HistogramEncoder::new(at_ms, histogram)));
            }
            EncoderState::Natives(natives) => {
                if !natives.push(at_ms, histogram) {
                    return false;
                }
            }
            EncoderState::Floats(_) => return false,
        }
        self.count(at_ms);
        true
    }

    fn count(&mut self, at_ms: i64) {
        if self.samples == 0 {
            self.first_ms = at_ms;
        }
        self.last_ms = at_ms;
        self.samples = self.samples.saturating_add(1);
    }

    /// Returns the number of samples.
    pub const fn samples(&self) -> u16 {
        self.samples
    }

    /// Returns the bytes of the chunk so far, without the number of samples.
    pub fn byte_len(&self) -> usize {
        match &self.state {
            EncoderState::Empty => 0,
            EncoderState::Floats(floats) => floats.out.byte_len(),
            EncoderState::Natives(natives) => natives.byte_len(),
        }
    }

    /// Returns the chunk, and leaves an empty one; none if there are no samples.
    pub fn take(&mut self) -> Option<EncodedChunk> {
        let ChunkEncoder { state, samples, first_ms, last_ms } = std::mem::take(self);
        let (kind, body) = match state {
            EncoderState::Empty => return None,
            EncoderState::Floats(floats) => (ChunkKind::Floats, floats.out.finish()),
            EncoderState::Natives(natives) => (natives.kind(), natives.finish()),
        };
        let mut data = Vec::with_capacity(body.len().saturating_add(2));
        data.extend_from_slice(&samples.to_be_bytes());
        data.extend_from_slice(&body);
        Some(EncodedChunk { kind, first_ms, last_ms, samples, data })
    }
}

impl FloatEncoder {
    fn new(at_ms: i64, value: f64) -> FloatEncoder {
        let mut out = BitWriter::default();
        out.varint(at_ms);
        out.bits(value.to_bits(), 64);
        FloatEncoder { out, last_ms: at_ms, delta: 0, value: XorState::new(value.to_bits()) }
    }

    /// Appends a sample after `samples` others.
    fn push(&mut self, samples: u16, at_ms: i64, value: f64) {
        let delta = at_ms.wrapping_sub(self.last_ms);
        if samples == 1 {
            self.out.uvarint(delta.cast_unsigned());
        } else {
            self.out.delta_of_delta(delta.wrapping_sub(self.delta));
        }
        self.out.xor(&mut self.value, value.to_bits());
        (self.last_ms, self.delta) = (at_ms, delta);
    }
}
