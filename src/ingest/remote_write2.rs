//! Decoder of Prometheus remote write 2.0: an `io.prometheus.write.v2.Request` in protobuf, as one
//! snappy block.
//!
//! Fields that are read, by message:
//! * `Request`: 4 symbol (string, repeated), 5 `TimeSeries` (repeated)
//! * `TimeSeries`: 1 labels (uint32, repeated: symbols, name and value alternating), 2 `Sample`
//!   (repeated), 3 `Histogram` (repeated), 4 `Exemplar` (repeated), 5 `Metadata`, 6 start (int64,
//!   milliseconds; senders of before 2025)
//! * `Sample`: 1 value (double), 2 time (int64, milliseconds), 3 start (int64, milliseconds)
//! * `Exemplar`: 1 labels (uint32, repeated: symbols), 2 value (double), 3 time (int64,
//!   milliseconds)
//! * `Metadata`: 1 kind (enum), 3 help (uint32: a symbol), 4 unit (uint32: a symbol)
//!
//! `ingest::histogram` reads `Histogram`.
//!
//! Every request has a symbol table of its own, so the references of a series cannot identify it in
//! the next request. A series is identified by the symbols themselves: its label bytes are its
//! symbols in sequence, each encoded as in the message, with a varint length before the text. If a
//! series cannot be resolved, its label bytes end in a mark ([`SeriesError`]). [`parse_labels`]
//! then returns the reason, which refuses this series and no other.

mod fast_path;
mod symbols;

use super::histogram::{self, check_count};
use super::protobuf::{Field, WireError, WireReader};
use super::remote_write::{fast_path as samples, metric_kind};
use super::{DecodeError, DecodeLimits, DecodeScratch, snappy, zstd_frames};
use crate::model::{
    METRIC_NAME, MetricKind, MetricMetadata, Sample, Timestamp, WriteBatch, WriteExemplar, WriteSeries,
    WriteStart,
};
use symbols::{LabelBuffer, SymbolRange, Symbols};

/// [`WriteBatch::encoding`] of label bytes of remote write 2.0.
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

/// References of one series that are resolved, at most: as many labels as version 1.0 parses.
const REFERENCES_MAX: usize = 2 * 1_024;
/// Label bytes of one series that are assembled, at most. The store allows fewer and reports the
/// excess. A long symbol can be referred to by a single byte, so a limit on the body would not
/// bound memory.
const SERIES_LABEL_BYTES_MAX: usize = 512 << 10;

/// Returns whether a `Content-Type` selects this version: `application/x-protobuf` with
/// `proto=io.prometheus.write.v2.Request`.
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

/// The reason why a series cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesError {
    OddReferences,
    UnknownSymbol,
    InvalidUtf8,
    TooManyLabels,
    TooLong,
}

/// The bytes before the code of a [`SeriesError`]. No symbol begins like this: it would be a length
/// of more than 64 bits.
const ERROR_MARK: [u8; 9] = [0xff; 9];

impl SeriesError {
    const ALL: [SeriesError; 5] = [
        SeriesError::OddReferences,
        SeriesError::UnknownSymbol,
        SeriesError::InvalidUtf8,
        SeriesError::TooManyLabels,
        SeriesError::TooLong,
    ];

    const fn message(self) -> &'static str {
        match self {
            SeriesError::OddReferences => "it has an odd number of label references",
            SeriesError::UnknownSymbol => "it refers to a symbol that is not in the symbol table",
            SeriesError::InvalidUtf8 => "a string of its exemplars or metadata is not UTF-8",
            SeriesError::TooManyLabels => "it has more than 1024 labels",
            SeriesError::TooLong => "its labels have more than 512 KiB",
        }
    }

    const fn byte(self) -> u8 {
        0x80 | self as u8
    }

    /// Returns the error that `raw` begins with, if any.
    fn read(raw: &[u8]) -> Option<SeriesError> {
        let (byte, _) = raw.strip_prefix(&ERROR_MARK)?.split_first()?;
        SeriesError::ALL.into_iter().find(|error| error.byte() == *byte)
    }
}

/// Decodes one request. Cost: one pass over the decompressed bytes, and one copy of each label of
/// each series.
///
/// # Errors
/// [`DecodeError`]; a partial batch is never returned. Invalid references of a series are reported
/// by [`parse_labels`], which refuses the series instead of the request.
pub fn decode<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    let DecodeScratch { body: bytes, labels } = scratch;
    decode_message(snappy::decompress(body, limits, bytes)?, limits, labels)
}

/// Like [`decode`], for a body in zstd.
///
/// # Errors
/// Those of [`decode`].
pub fn decode_zstd<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    let DecodeScratch { body: bytes, labels } = scratch;
    decode_message(zstd_frames::decompress(body, limits, bytes)?, limits, labels)
}

fn decode_message<'a>(
    message: &'a [u8],
    limits: &DecodeLimits,
    labels: &'a mut Vec<u8>,
) -> Result<WriteBatch<'a>, DecodeError> {
    let (symbols, series) = split_request(message, limits)?;
    let series_count = series.len();
    let batch = WriteBatch::new(ENCODING, parse_labels, is_labels, series_count);
    let mut all = symbols.ranges.iter();
    let name_symbol = all.position(|symbol| symbols.bytes(*symbol) == METRIC_NAME_SYMBOL);
    let mut decoder = RequestDecoder {
        batch,
        symbols,
        name_symbol: name_symbol.map_or(u64::MAX, |place| place as u64),
        labels: LabelBuffer { bytes: labels, used: 0 },
        ends: Vec::with_capacity(series_count),
        references: 0,
        buckets: 0,
        described: Vec::new(),
        limits,
    };
    for message in series {
        decoder.series(message)?;
    }
    let RequestDecoder { mut batch, labels, ends, .. } = decoder;
    let labels: &'a [u8] = labels.bytes;
    let mut start = 0;
    for (series, end) in batch.series.iter_mut().zip(ends) {
        series.raw_labels = labels.get(start..end).unwrap_or_default();
        start = end;
    }
    Ok(batch)
}

/// `__name__` as a symbol.
const METRIC_NAME_SYMBOL: &[u8] = b"\x08__name__";
const _: () = assert!(METRIC_NAME.len() == 8 && METRIC_NAME_SYMBOL.len() == 9);

/// Returns the symbols and the series of a request. Series may come before the symbols that they
/// refer to.
///
/// # Errors
/// [`DecodeError`], if the message is malformed or has too many symbols or series.
fn split_request<'a>(
    message: &'a [u8],
    limits: &DecodeLimits,
) -> Result<(Symbols<'a>, Vec<&'a [u8]>), DecodeError> {
    let (mut ranges, mut all): (Vec<SymbolRange>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    let mut request = WireReader::new(message);
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
                check_count("symbols", ranges.len(), limits.symbols_max)?;
                let whole = message.get(start..request.offset()).unwrap_or_default();
                let tag = whole.iter().position(|byte| *byte < 0x80).unwrap_or_default().saturating_add(1);
                let (start, length) = (start.saturating_add(tag), whole.len().saturating_sub(tag));
                // Cannot fail in practice: a snappy block declares its length in 32 bits.
                let (Ok(start), Ok(length)) = (u32::try_from(start), u32::try_from(length)) else {
                    let (found, allowed) = (message.len(), u32::MAX as usize);
                    return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
                };
                ranges.push(SymbolRange { start, length });
            }
            5 => check_count("series", all.len().saturating_sub(1), limits.series_max)?,
            _ => {}
        }
    }
    Ok((Symbols::new(message, ranges), all))
}

/// The state of decoding one request.
struct RequestDecoder<'a, 'l> {
    batch: WriteBatch<'a>,
    symbols: Symbols<'a>,
    /// The reference of `__name__`; the first if there are several, `u64::MAX` if there is none.
    name_symbol: u64,
    /// The label bytes of all series in sequence.
    labels: LabelBuffer<'a>,
    /// The end of the label bytes of each series in `batch`.
    ends: Vec<usize>,
    /// Label references of all series so far.
    references: usize,
    buckets: usize,
    /// The last packed description of each metric, by the symbol of its name, so that the thousand
    /// series of one metric describe it once. Empty until a series has metadata.
    described: Vec<u64>,
    limits: &'l DecodeLimits,
}

/// The state of decoding one series.
#[derive(Default)]
struct SeriesState<'a> {
    references: usize,
    /// The previous reference, if it was a label name.
    name: Option<u64>,
    /// The symbol of the metric name.
    metric: Option<u64>,
    metadata: Option<&'a [u8]>,
    start_ms: i64,
    error: Option<SeriesError>,
}

impl<'a> RequestDecoder<'a, '_> {
    fn series(&mut self, message: &'a [u8]) -> Result<(), DecodeError> {
        let (first_label, first_sample) = (self.labels.used, self.batch.samples.len());
        let (first_histogram, first_exemplar) = (self.batch.histograms.len(), self.batch.exemplars.len());
        let first_start = self.batch.starts.len();
        let mut series = match self.decode_usual(message) {
            Some(series) => series,
            None => self.decode_any(message)?,
        };
        if !series.references.is_multiple_of(2) {
            series.error = series.error.or(Some(SeriesError::OddReferences));
        }
        if let Some(message) = series.metadata.filter(|message| !message.is_empty())
            && let Err(error) = self.describe(message, series.metric)?
        {
            series.error = series.error.or(Some(error));
        }
        let samples = first_sample..self.batch.samples.len();
        let has_side_data =
            self.batch.histograms.len() > first_histogram || self.batch.exemplars.len() > first_exemplar;
        // A series without any data is not stored, as in version 1.0. One with an error is kept, so
        // that it is reported.
        if samples.is_empty() && !has_side_data && series.error.is_none() {
            self.labels.used = first_label;
            return Ok(());
        }
        if let Some(error) = series.error {
            self.labels.append_bytes(&ERROR_MARK);
            self.labels.append_bytes(&[error.byte()]);
        }
        if series.start_ms != 0 && self.batch.starts.len() == first_start {
            self.add_start_of_all(first_sample, first_histogram, series.start_ms);
        }
        let (found, allowed) = (self.labels.used, self.limits.decompressed_bytes_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "bytes of labels", found, allowed });
        }
        self.ends.push(found);
        self.batch.series.push(WriteSeries { raw_labels: &[], samples });
        Ok(())
    }

    /// Decodes a series with any fields in any order.
    fn decode_any(&mut self, message: &'a [u8]) -> Result<SeriesState<'a>, DecodeError> {
        let first_label = self.labels.used;
        let mut series = SeriesState::default();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => self.label_references(&field, first_label, &mut series)?,
                2 => self.sample(field.bytes(SERIES)?)?,
                3 => self.histogram(field.bytes(SERIES)?)?,
                4 => self.exemplar(field.bytes(SERIES)?, &mut series)?,
                5 => series.metadata = Some(field.bytes(SERIES)?),
                6 => series.start_ms = field.int64(SERIES)?,
                _ => {}
            }
        }
        Ok(series)
    }

    fn label_references(
        &mut self,
        field: &Field<'_>,
        first_label: usize,
        series: &mut SeriesState<'_>,
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
            if series.error.is_none() {
                match self.symbols.get(reference) {
                    None => series.error = Some(SeriesError::UnknownSymbol),
                    Some(_) if series.references > REFERENCES_MAX => {
                        series.error = Some(SeriesError::TooManyLabels);
                    }
                    Some(symbol) if self.labels.used.saturating_add(symbol.length as usize) > bytes_max => {
                        series.error = Some(SeriesError::TooLong);
                    }
                    Some(symbol) => self.labels.append(&self.symbols, symbol),
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
        check_count("samples", self.batch.samples.len(), self.limits.samples_max)?;
        if let Some(sample) = samples::sample(message) {
            self.batch.samples.push(sample);
            return Ok(());
        }
        let (mut sample, mut start_ms) = (Sample { at: Timestamp::from_ms(0), value: 0.0 }, 0);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => sample.value = field.double(SAMPLE)?,
                2 => sample.at = Timestamp::from_ms(field.int64(SAMPLE)?),
                3 => start_ms = field.int64(SAMPLE)?,
                _ => {}
            }
        }
        self.batch.samples.push(sample);
        self.add_start(sample.at, start_ms);
        Ok(())
    }

    #[cold]
    fn histogram(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let start_ms = histogram::add(&mut self.batch, message, self.limits, &mut self.buckets)?;
        let at = self.batch.histograms.last().map(|sample| sample.at);
        at.into_iter().for_each(|at| self.add_start(at, start_ms));
        Ok(())
    }

    /// Adds a start timestamp to the sample at `at`; 0 means that there is none.
    fn add_start(&mut self, at: Timestamp, start_ms: i64) {
        if start_ms != 0 {
            let (series, start) = (self.batch.series.len(), Timestamp::from_ms(start_ms));
            self.batch.starts.push(WriteStart { series, at, start });
        }
    }

    /// Adds the start timestamp of the series to all its samples and histograms.
    #[cold]
    fn add_start_of_all(&mut self, first_sample: usize, first_histogram: usize, start_ms: i64) {
        let samples = self.batch.samples.iter().skip(first_sample).map(|sample| sample.at);
        let histograms = self.batch.histograms.iter().skip(first_histogram).map(|sample| sample.at);
        let times: Vec<Timestamp> = samples.chain(histograms).collect();
        times.into_iter().for_each(|at| self.add_start(at, start_ms));
    }

    #[cold]
    fn exemplar(&mut self, message: &[u8], series: &mut SeriesState<'_>) -> Result<(), DecodeError> {
        check_count("exemplars", self.batch.exemplars.len(), self.limits.exemplars_max)?;
        let first = self.batch.exemplar_labels.len();
        let (mut value, mut at_ms, mut name, mut error) = (0.0, 0, None, None);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => field.varints(EXEMPLAR, |reference| {
                    match (self.symbols.text(reference), name.take()) {
                        (Err(found), _) => error = Some(found),
                        (Ok(text), None) => name = Some(text),
                        (Ok(text), Some(name)) => {
                            let (have, allowed) =
                                (self.batch.exemplar_labels.len(), self.limits.exemplar_labels_max);
                            check_count("exemplar labels", have, allowed)?;
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
        series.error = series.error.or(error).or(name.map(|_| SeriesError::OddReferences));
        let labels = first..self.batch.exemplar_labels.len();
        let (place, at) = (self.batch.series.len(), Timestamp::from_ms(at_ms));
        self.batch.exemplars.push(WriteExemplar { series: place, labels, value, at });
        Ok(())
    }

    /// Adds the metric description of a series to the batch, unless the same one was added last.
    /// `Ok(Err(_))` is the reason to refuse the series.
    fn describe(
        &mut self,
        message: &[u8],
        metric: Option<u64>,
    ) -> Result<Result<(), SeriesError>, DecodeError> {
        let (number, help, unit) = match fast_path::metadata(message) {
            Some(read) => read,
            None => metadata(message)?,
        };
        let kind = metric_kind(number);
        if self.symbols.get(help.max(unit)).is_none() {
            // A request whose table lacks the empty first symbol is accepted while nothing refers
            // to it.
            return Ok(if help.max(unit) == 0 { Ok(()) } else { Err(SeriesError::UnknownSymbol) });
        }
        let Some(metric) = metric.filter(|metric| self.symbols.get(*metric).is_some()) else {
            return Ok(Ok(()));
        };
        if self.described.is_empty() {
            self.described = vec![0; self.symbols.ranges.len()];
        }
        let description = 1 | (kind as u64) << 1 | help << 4 | unit << 34;
        let before = usize::try_from(metric).ok().and_then(|place| self.described.get_mut(place));
        if before.is_none_or(|before| std::mem::replace(before, description) == description) {
            return Ok(Ok(()));
        }
        let texts = (self.symbols.text(metric), self.symbols.text(help), self.symbols.text(unit));
        let (Ok(name), Ok(help), Ok(unit)) = texts else { return Ok(Err(SeriesError::InvalidUtf8)) };
        if kind != MetricKind::Unknown || !help.is_empty() || !unit.is_empty() {
            check_count("metric descriptions", self.batch.metadata.len(), self.limits.metadata_max)?;
            self.batch.metadata.push(MetricMetadata { name: family(name, kind), kind, help, unit });
        }
        Ok(Ok(()))
    }
}

/// Parses a `Metadata`: kind, and the symbols of help and unit.
fn metadata(message: &[u8]) -> Result<(i64, u64, u64), WireError> {
    let (mut number, mut help, mut unit) = (0, 0, 0);
    let mut reader = WireReader::new(message);
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

/// Returns the family name under which a metric is described: `x` for the series `x_bucket`, as in
/// version 1.0 and in all listings.
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

/// Parses the label bytes of a series.
///
/// # Errors
/// A sentence for the sender, if the series could not be resolved.
pub fn parse_labels<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
    const BROKEN: &str = "its labels are truncated";
    let mut reader = WireReader::new(raw);
    let mut name = None;
    loop {
        let rest = raw.get(reader.offset()..).unwrap_or_default();
        if let Some(error) = SeriesError::read(rest) {
            return Err(error.message());
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
