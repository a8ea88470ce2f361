//! Fast path for the usual form of a `TimeSeries`: its labels in one packed field, then samples,
//! each a value followed by a time, then metadata. It reads the bytes without building fields.
//! Anything else, including errors, is left to the general decoder, which gives the same result for
//! the usual form; a property test compares both.

use super::symbols::{AppendedLabels, read_reference};
use super::{RequestDecoder, SeriesState};
use crate::ingest::protobuf::WireReader;
use crate::ingest::remote_write::fast_path::sample;

/// Field 1 of `TimeSeries`, length-delimited.
const LABELS_TAG: u8 = 1 << 3 | 2;
/// Field 2 of `TimeSeries`, length-delimited.
const SAMPLE_TAG: u8 = 2 << 3 | 2;
/// Field 5 of `TimeSeries`, length-delimited.
const METADATA_TAG: u8 = 5 << 3 | 2;
/// Fields 1, 3 and 4 of `Metadata`, varints.
const KIND_TAG: u8 = 1 << 3;
const HELP_TAG: u8 = 3 << 3;
const UNIT_TAG: u8 = 4 << 3;

impl<'a> RequestDecoder<'a, '_> {
    /// Decodes a series in the usual form. Otherwise decodes nothing and returns `None`.
    #[inline]
    pub(super) fn decode_usual(&mut self, message: &'a [u8]) -> Option<SeriesState<'a>> {
        let (first_label, first_sample) = (self.labels.used, self.batch.samples.len());
        let series = self.try_decode_usual(message);
        if series.is_none() {
            self.labels.used = first_label;
            self.batch.samples.truncate(first_sample);
        }
        series
    }

    /// Like `decode_usual`, but may leave labels and samples of a series that is not in the usual
    /// form.
    #[inline]
    fn try_decode_usual(&mut self, message: &'a [u8]) -> Option<SeriesState<'a>> {
        let mut reader = WireReader::new(message);
        let packed = reader.nested(LABELS_TAG)?;
        let AppendedLabels { references, metric } =
            self.labels.append_usual(&self.symbols, packed, self.name_symbol)?;
        let all = self.references.saturating_add(references);
        if all.div_ceil(2) > self.limits.labels_max {
            return None;
        }
        while let Some(body) = reader.nested(SAMPLE_TAG) {
            let sample = sample(body).filter(|_| self.batch.samples.len() < self.limits.samples_max)?;
            self.batch.samples.push(sample);
        }
        let metadata = reader.nested(METADATA_TAG);
        if !reader.is_empty() {
            return None;
        }
        self.references = all;
        Some(SeriesState { references, metric, metadata, ..SeriesState::default() })
    }
}

/// Parses a `Metadata` in the usual form: kind, and the symbols of help and unit.
#[inline]
pub(super) fn metadata(message: &[u8]) -> Option<(i64, u64, u64)> {
    let (mut kind, mut help, mut unit) = (0, 0, 0);
    let mut rest = message;
    if let [KIND_TAG, number @ ..0x80, after @ ..] = rest {
        (kind, rest) = (i64::from(*number), after);
    }
    if let [HELP_TAG, after @ ..] = rest {
        (help, rest) = read_reference(after)?;
    }
    if let [UNIT_TAG, after @ ..] = rest {
        (unit, rest) = read_reference(after)?;
    }
    rest.is_empty().then_some((kind, help, unit))
}
