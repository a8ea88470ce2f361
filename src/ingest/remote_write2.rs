//! Prometheus remote write 2.0: an `io.prometheus.write.v2.Request` in protobuf, as one snappy block.
//!
//! | message | fields that are read |
//! |---|---|
//! | `Request` | 4 symbol (string, repeated), 5 `TimeSeries` (repeated) |
//! | `TimeSeries` | 1 labels (uint32, repeated: symbols, name and value in turn), 2 `Sample` (repeated), 3 `Histogram` (repeated), 4 `Exemplar` (repeated), 5 `Metadata`, 6 start (int64, milliseconds; senders of before 2025) |
//! | `Sample` | 1 value (double), 2 time (int64, milliseconds), 3 start (int64, milliseconds) |
//! | `Exemplar` | 1 labels (uint32, repeated: symbols), 2 value (double), 3 time (int64, milliseconds) |
//! | `Metadata` | 1 kind (enum), 3 help (uint32: a symbol), 4 unit (uint32: a symbol) |
//!
//! `Histogram` is drawn in `ingest::histogram`.
//!
//! The table of symbols is each request's own, so the references of a series say nothing in the next one. A series is known
//! by what they stand for: its label bytes here are its symbols one after the other, each as the message has it, a varint
//! length and the text. What cannot be resolved ends in a mark ([`Flaw`]), which [`parse_labels`] tells as the reason why
//! this series, and no other, is refused.

mod plain;
mod symbols;

use super::histogram::{self, bound};
use super::protobuf::{Field, Reader, WireError};
use super::remote_write::{kind, plain as samples};
use super::{DecodeError, Limits, Scratch, snappy};
use crate::model::{
    METRIC_NAME, MetricKind, MetricMetadata, Sample, Timestamp, WriteBatch, WriteExemplar, WriteSeries,
    WriteStart,
};
use symbols::{Place, Symbols, Text};

/// [`WriteBatch::encoding`] of remote write 2.0's label bytes.
pub const ENCODING: u8 = 2;

const REQUEST: &str = "Request";
const SERIES: &str = "TimeSeries";
const SAMPLE: &str = "Sample";
const EXEMPLAR: &str = "Exemplar";
const METADATA: &str = "Metadata";

/// Field 4 of `Request`, length-delimited.
const SYMBOL_TAG: u8 = 4 << 3 | 2;
/// Field 5 of `Request`, length-delimited.
const SERIES_TAG: u8 = 5 << 3 | 2;

/// References of one series that are resolved: as many labels as version 1.0 takes apart.
const REFERENCES_MAX: usize = 2 * 1_024;
/// Label bytes of one series that are put together; the store takes fewer and says so. A symbol may be long and be
/// referred to in a byte.
const SERIES_LABEL_BYTES_MAX: usize = 512 << 10;

/// `application/x-protobuf` with `proto=io.prometheus.write.v2.Request`.
pub fn accepts_type(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let mut protos = parts.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("proto").then(|| value.trim().trim_matches('"'))
    });
    media.eq_ignore_ascii_case("application/x-protobuf")
        && protos.next() == Some("io.prometheus.write.v2.Request")
        && protos.next().is_none()
}

/// Why a series cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Odd,
    Beyond,
    Utf8,
    Many,
    Long,
}

/// No text begins so: a length of more than 64 bits.
const MARK: [u8; 9] = [0xff; 9];

impl Flaw {
    const ALL: [Flaw; 5] = [Flaw::Odd, Flaw::Beyond, Flaw::Utf8, Flaw::Many, Flaw::Long];

    const fn sentence(self) -> &'static str {
        match self {
            Flaw::Odd => "its label references are odd in number",
            Flaw::Beyond => "it refers to a symbol that is not in the table",
            Flaw::Utf8 => "a text of its exemplars or metadata is not UTF-8",
            Flaw::Many => "it has more than 1024 labels",
            Flaw::Long => "its labels have more than 512 KiB",
        }
    }

    const fn byte(self) -> u8 {
        0x80 | self as u8
    }

    /// The flaw that `raw` begins with.
    fn read(raw: &[u8]) -> Option<Flaw> {
        let (byte, _) = raw.strip_prefix(&MARK)?.split_first()?;
        Flaw::ALL.into_iter().find(|flaw| flaw.byte() == *byte)
    }
}

/// Reads one request. Cost: one pass over the decompressed bytes, and one copy of each label of each series.
///
/// # Errors
/// [`DecodeError`]; nothing partial is ever returned. What is wrong with the references of a series is told by
/// [`parse_labels`]: that refuses the series, not the request.
pub fn decode<'a>(
    body: &[u8],
    limits: &Limits,
    scratch: &'a mut Scratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    let Scratch { body: bytes, labels } = scratch;
    let message = snappy::decompress(body, limits, bytes)?;
    let (symbols, series) = outline(message, limits)?;
    let likely = series.len();
    let batch = WriteBatch::new(ENCODING, parse_labels, is_labels, likely);
    let mut all = symbols.places.iter();
    let name_symbol = all.position(|symbol| symbols.bytes(*symbol) == NAME_SYMBOL);
    let mut reading = Reading {
        batch,
        symbols,
        name_symbol: name_symbol.map_or(u64::MAX, |place| place as u64),
        labels: Text { bytes: labels, used: 0 },
        ends: Vec::with_capacity(likely),
        references: 0,
        buckets: 0,
        described: Vec::new(),
        limits,
    };
    for message in series {
        reading.series(message)?;
    }
    let Reading { mut batch, labels, ends, .. } = reading;
    let labels: &'a [u8] = labels.bytes;
    let mut start = 0;
    for (series, end) in batch.series.iter_mut().zip(ends) {
        series.raw_labels = labels.get(start..end).unwrap_or_default();
        start = end;
    }
    Ok(batch)
}

/// `__name__` as a symbol.
const NAME_SYMBOL: &[u8] = b"\x08__name__";
const _: () = assert!(METRIC_NAME.len() == 8 && NAME_SYMBOL.len() == 9);

/// The symbols and the series of a request; series need not come after what they refer to.
fn outline<'a>(message: &'a [u8], limits: &Limits) -> Result<(Symbols<'a>, Vec<&'a [u8]>), DecodeError> {
    let (mut places, mut all): (Vec<Place>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    let mut request = Reader::new(message);
    loop {
        let start = request.offset();
        let field = if request.nested(SYMBOL_TAG).is_some() {
            4
        } else if let Some(series) = request.nested(SERIES_TAG) {
            all.push(series);
            5
        } else {
            let Some(field) = request.field()? else { break };
            match field.number {
                4 => drop(field.bytes(REQUEST)?),
                5 => all.push(field.bytes(REQUEST)?),
                _ => {}
            }
            field.number
        };
        match field {
            4 => {
                bound("symbols", places.len(), limits.symbols_max)?;
                let whole = message.get(start..request.offset()).unwrap_or_default();
                let tag = whole.iter().position(|byte| *byte < 0x80).unwrap_or_default().saturating_add(1);
                let (start, length) = (start.saturating_add(tag), whole.len().saturating_sub(tag));
                // A snappy block declares its length in 32 bits.
                let (Ok(start), Ok(length)) = (u32::try_from(start), u32::try_from(length)) else {
                    let (found, allowed) = (message.len(), u32::MAX as usize);
                    return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
                };
                places.push(Place { start, length });
            }
            5 => bound("series", all.len().saturating_sub(1), limits.series_max)?,
            _ => {}
        }
    }
    Ok((Symbols::new(message, places), all))
}

/// A request on its way from messages to a batch.
struct Reading<'a, 'l> {
    batch: WriteBatch<'a>,
    symbols: Symbols<'a>,
    /// The reference of `__name__`, the first if there are several.
    name_symbol: u64,
    /// The label bytes of all series,
    labels: Text<'a>,
    /// and where each one's end.
    ends: Vec<usize>,
    /// References to labels, of all series.
    references: usize,
    buckets: usize,
    /// By the symbol of the name: what the metadata before it said of it, so that a thousand series of one metric
    /// describe it once. Empty until there is metadata.
    described: Vec<u64>,
    limits: &'l Limits,
}

/// One series on its way.
#[derive(Default)]
struct Series<'a> {
    references: usize,
    /// The reference before, where it was a label's name.
    name: Option<u64>,
    /// The symbol of the metric's name.
    metric: Option<u64>,
    metadata: Option<&'a [u8]>,
    created_ms: i64,
    flaw: Option<Flaw>,
}

impl<'a> Reading<'a, '_> {
    fn series(&mut self, message: &'a [u8]) -> Result<(), DecodeError> {
        let (first_label, first_sample) = (self.labels.used, self.batch.samples.len());
        let (first_histogram, first_exemplar) = (self.batch.histograms.len(), self.batch.exemplars.len());
        let first_start = self.batch.starts.len();
        let mut series = match self.usual(message) {
            Some(series) => series,
            None => self.any(message)?,
        };
        if !series.references.is_multiple_of(2) {
            series.flaw = series.flaw.or(Some(Flaw::Odd));
        }
        if let Some(message) = series.metadata.filter(|message| !message.is_empty())
            && let Err(flaw) = self.describe(message, series.metric)?
        {
            series.flaw = series.flaw.or(Some(flaw));
        }
        let samples = first_sample..self.batch.samples.len();
        let has_rare =
            self.batch.histograms.len() > first_histogram || self.batch.exemplars.len() > first_exemplar;
        // A series with nothing to store is no series, as in version 1.0; one that cannot be read is told of.
        if samples.is_empty() && !has_rare && series.flaw.is_none() {
            self.labels.used = first_label;
            return Ok(());
        }
        if let Some(flaw) = series.flaw {
            self.labels.put_slowly(&MARK);
            self.labels.put_slowly(&[flaw.byte()]);
        }
        if series.created_ms != 0 && self.batch.starts.len() == first_start {
            self.start_all(first_sample, first_histogram, series.created_ms);
        }
        let (found, allowed) = (self.labels.used, self.limits.decompressed_bytes_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "bytes of labels", found, allowed });
        }
        self.ends.push(found);
        self.batch.series.push(WriteSeries { raw_labels: &[], samples });
        Ok(())
    }

    /// Takes in what a series has, whatever and in whatever order.
    fn any(&mut self, message: &'a [u8]) -> Result<Series<'a>, DecodeError> {
        let first_label = self.labels.used;
        let mut series = Series::default();
        let mut reader = Reader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => self.label_references(&field, first_label, &mut series)?,
                2 => self.sample(field.bytes(SERIES)?)?,
                3 => self.histogram(field.bytes(SERIES)?)?,
                4 => self.exemplar(field.bytes(SERIES)?, &mut series)?,
                5 => series.metadata = Some(field.bytes(SERIES)?),
                6 => series.created_ms = field.int64(SERIES)?,
                _ => {}
            }
        }
        Ok(series)
    }

    fn label_references(
        &mut self,
        field: &Field<'_>,
        first_label: usize,
        series: &mut Series<'_>,
    ) -> Result<(), DecodeError> {
        let bytes_max = first_label.saturating_add(SERIES_LABEL_BYTES_MAX);
        let before = series.references;
        field.varints(SERIES, |reference| {
            match series.name.take() {
                None => series.name = Some(reference),
                Some(name) if name == self.name_symbol => series.metric = Some(reference),
                Some(_) => {}
            }
            series.references = series.references.saturating_add(1);
            if series.flaw.is_none() {
                match self.symbols.get(reference) {
                    None => series.flaw = Some(Flaw::Beyond),
                    Some(_) if series.references > REFERENCES_MAX => series.flaw = Some(Flaw::Many),
                    Some(symbol) if self.labels.used.saturating_add(symbol.length as usize) > bytes_max => {
                        series.flaw = Some(Flaw::Long);
                    }
                    Some(symbol) => self.labels.put(&self.symbols, symbol),
                }
            }
            Ok::<_, WireError>(())
        })?;
        self.references = self.references.saturating_add(series.references.saturating_sub(before));
        let (found, allowed) = (self.references.div_ceil(2), self.limits.labels_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "labels", found, allowed });
        }
        Ok(())
    }

    fn sample(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        bound("samples", self.batch.samples.len(), self.limits.samples_max)?;
        if let Some(sample) = samples::sample(message) {
            self.batch.samples.push(sample);
            return Ok(());
        }
        let (mut sample, mut start_ms) = (Sample { at: Timestamp::from_ms(0), value: 0.0 }, 0);
        let mut reader = Reader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => sample.value = field.double(SAMPLE)?,
                2 => sample.at = Timestamp::from_ms(field.int64(SAMPLE)?),
                3 => start_ms = field.int64(SAMPLE)?,
                _ => {}
            }
        }
        self.batch.samples.push(sample);
        self.start(sample.at, start_ms);
        Ok(())
    }

    #[cold]
    fn histogram(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let start_ms = histogram::add(&mut self.batch, message, self.limits, &mut self.buckets)?;
        let at = self.batch.histograms.last().map(|sample| sample.at);
        at.into_iter().for_each(|at| self.start(at, start_ms));
        Ok(())
    }

    /// Zero says that there is none.
    fn start(&mut self, at: Timestamp, start_ms: i64) {
        if start_ms != 0 {
            let (series, start) = (self.batch.series.len(), Timestamp::from_ms(start_ms));
            self.batch.starts.push(WriteStart { series, at, start });
        }
    }

    #[cold]
    fn start_all(&mut self, first_sample: usize, first_histogram: usize, start_ms: i64) {
        let samples = self.batch.samples.iter().skip(first_sample).map(|sample| sample.at);
        let histograms = self.batch.histograms.iter().skip(first_histogram).map(|sample| sample.at);
        let times: Vec<Timestamp> = samples.chain(histograms).collect();
        times.into_iter().for_each(|at| self.start(at, start_ms));
    }

    #[cold]
    fn exemplar(&mut self, message: &[u8], series: &mut Series<'_>) -> Result<(), DecodeError> {
        bound("exemplars", self.batch.exemplars.len(), self.limits.exemplars_max)?;
        let first = self.batch.exemplar_labels.len();
        let (mut value, mut at_ms, mut name, mut flaw) = (0.0, 0, None, None);
        let mut reader = Reader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => field.varints(EXEMPLAR, |reference| {
                    match (self.symbols.text(reference), name.take()) {
                        (Err(found), _) => flaw = Some(found),
                        (Ok(text), None) => name = Some(text),
                        (Ok(text), Some(name)) => {
                            let (have, allowed) =
                                (self.batch.exemplar_labels.len(), self.limits.exemplar_labels_max);
                            bound("exemplar labels", have, allowed)?;
                            self.batch.exemplar_labels.push((name, text));
                        }
                    }
                    Ok::<_, DecodeError>(())
                })?,
                2 => value = field.double(EXEMPLAR)?,
                3 => at_ms = field.int64(EXEMPLAR)?,
                _ => {}
            }
        }
        series.flaw = series.flaw.or(flaw).or(name.map(|_| Flaw::Odd));
        let labels = first..self.batch.exemplar_labels.len();
        let (place, at) = (self.batch.series.len(), Timestamp::from_ms(at_ms));
        self.batch.exemplars.push(WriteExemplar { series: place, labels, value, at });
        Ok(())
    }

    /// Takes over what a series says of its metric. `Ok(Err(_))`: what the series has to be refused for.
    fn describe(&mut self, message: &[u8], metric: Option<u64>) -> Result<Result<(), Flaw>, DecodeError> {
        let (number, help, unit) = match plain::metadata(message) {
            Some(read) => read,
            None => metadata(message)?,
        };
        let kind = kind(number);
        if self.symbols.get(help.max(unit)).is_none() {
            // A table without its empty first symbol is no reason to refuse what refers to nothing.
            return Ok(if help.max(unit) == 0 { Ok(()) } else { Err(Flaw::Beyond) });
        }
        let Some(metric) = metric.filter(|metric| self.symbols.get(*metric).is_some()) else {
            return Ok(Ok(()));
        };
        if self.described.is_empty() {
            self.described = vec![0; self.symbols.places.len()];
        }
        let said = 1 | (kind as u64) << 1 | help << 4 | unit << 34;
        let before = usize::try_from(metric).ok().and_then(|place| self.described.get_mut(place));
        if before.is_none_or(|before| std::mem::replace(before, said) == said) {
            return Ok(Ok(()));
        }
        let texts = (self.symbols.text(metric), self.symbols.text(help), self.symbols.text(unit));
        let (Ok(name), Ok(help), Ok(unit)) = texts else { return Ok(Err(Flaw::Utf8)) };
        if kind != MetricKind::Unknown || !help.is_empty() || !unit.is_empty() {
            bound("metric descriptions", self.batch.metadata.len(), self.limits.metadata_max)?;
            self.batch.metadata.push(MetricMetadata { name: family(name, kind), kind, help, unit });
        }
        Ok(Ok(()))
    }
}

/// Kind, help and unit of a `Metadata`.
fn metadata(message: &[u8]) -> Result<(i64, u64, u64), WireError> {
    let (mut number, mut help, mut unit) = (0, 0, 0);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => number = field.int64(METADATA)?,
            3 => help = field.uint64(METADATA)?,
            4 => unit = field.uint64(METADATA)?,
            _ => {}
        }
    }
    Ok((number, help, unit))
}

/// The name that a series' metric is described under: version 1.0 and every listing know `x`, of which `x_bucket` is a part.
fn family(name: &str, kind: MetricKind) -> &str {
    let suffixes: &[&str] = match kind {
        MetricKind::Histogram => &["_bucket", "_sum", "_count"],
        MetricKind::GaugeHistogram => &["_bucket", "_gsum", "_gcount"],
        MetricKind::Summary => &["_sum", "_count"],
        _ => &[],
    };
    let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    base.filter(|base| !base.is_empty()).unwrap_or(name)
}

/// Takes the label bytes of a series apart.
///
/// # Errors
/// A sentence, where the series could not be resolved.
pub fn parse_labels<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
    const BROKEN: &str = "its labels are cut short";
    let mut reader = Reader::new(raw);
    let mut name = None;
    loop {
        let rest = raw.get(reader.offset()..).unwrap_or_default();
        if let Some(flaw) = Flaw::read(rest) {
            return Err(flaw.sentence());
        }
        if rest.is_empty() {
            return if name.is_none() { Ok(()) } else { Err(BROKEN) };
        }
        let text = reader.bytes().map_err(|_| BROKEN)?;
        match name.take() {
            None => name = Some(text),
            Some(name) => pairs.push((name, text)),
        }
    }
}

fn is_labels(raw: &[u8]) -> bool {
    parse_labels(raw, &mut Vec::new()).is_ok()
}

#[cfg(test)]
mod tests;
