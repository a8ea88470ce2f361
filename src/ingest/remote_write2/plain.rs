//! A `TimeSeries` as nearly all of them are sent: its labels in one run, then its samples, each of them a value and a time,
//! then what is said of its metric. Read without building fields; whatever is otherwise, or wrong, is left to the general
//! reader, which says the same of these (a property test holds both together).

use super::symbols::{Put, reference};
use super::{Reading, Series};
use crate::ingest::protobuf::Reader;
use crate::ingest::remote_write::plain::sample;

/// Field 1 of `TimeSeries`, length-delimited.
const LABELS_TAG: u8 = 1 << 3 | 2;
/// Field 2.
const SAMPLE_TAG: u8 = 2 << 3 | 2;
/// Field 5.
const METADATA_TAG: u8 = 5 << 3 | 2;
/// Fields 1, 3 and 4 of `Metadata`, varints.
const KIND_TAG: u8 = 1 << 3;
const HELP_TAG: u8 = 3 << 3;
const UNIT_TAG: u8 = 4 << 3;

impl<'a> Reading<'a, '_> {
    /// Takes a series in; none, and nothing is taken in, where there is more to it.
    #[inline]
    pub(super) fn usual(&mut self, message: &'a [u8]) -> Option<Series<'a>> {
        let (first_label, first_sample) = (self.labels.used, self.batch.samples.len());
        let series = self.usual_parts(message);
        if series.is_none() {
            self.labels.used = first_label;
            self.batch.samples.truncate(first_sample);
        }
        series
    }

    #[inline]
    fn usual_parts(&mut self, message: &'a [u8]) -> Option<Series<'a>> {
        let mut reader = Reader::new(message);
        let packed = reader.nested(LABELS_TAG)?;
        let Put { references, metric } = self.labels.put_usual(&self.symbols, packed, self.name_symbol)?;
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
        Some(Series { references, metric, metadata, ..Series::default() })
    }
}

/// Kind, help and unit of a `Metadata` as nearly all are.
#[inline]
pub(super) fn metadata(message: &[u8]) -> Option<(i64, u64, u64)> {
    let (mut kind, mut help, mut unit) = (0, 0, 0);
    let mut rest = message;
    if let [KIND_TAG, number @ ..0x80, after @ ..] = rest {
        (kind, rest) = (i64::from(*number), after);
    }
    if let [HELP_TAG, after @ ..] = rest {
        (help, rest) = reference(after)?;
    }
    if let [UNIT_TAG, after @ ..] = rest {
        (unit, rest) = reference(after)?;
    }
    rest.is_empty().then_some((kind, help, unit))
}
