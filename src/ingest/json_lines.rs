//! Decoder of JSON lines as VictoriaMetrics exports them: each line is a series with its samples in
//! two arrays.
//!
//! ```text
//! {"metric":{"__name__":"up"},"values":[1,null],"timestamps":[1549891472010,1549891487724]}
//! ```
//!
//! Times are in milliseconds. A value is a number or, for what JSON lacks: `null` (VictoriaMetrics'
//! NaN), `"NaN"`, `"Infinity"`, `"-Infinity"`, or any other string that is a value in the text
//! format. `null` becomes an ordinary NaN, since the export does not tell staleness markers apart.
//! `NaN`, `+Inf`, `-Inf`, `Infinity` and `-Infinity` without quotes are accepted as well; `vmctl`
//! sends the first three.
//! Other fields are skipped. An invalid line is refused with its number, and the others are stored.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::number::{self, ValueError};
use super::pairs::{LABELS_PARSED_MAX, LabelPairs, LabelSetError, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines};
use crate::model::{Refusal, Sample, Timestamp};

/// Decodes a decompressed body. Cost: one pass; per line, only the contents of the batch and
/// strings with escapes are allocated.
///
/// # Errors
/// [`DecodeError`], if the whole body is refused: it is empty or exceeds a limit. Invalid lines are
/// in [`Translated::refusals`].
pub fn decode(body: &[u8], limits: &DecodeLimits) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut out = Translated::default();
    let mut line = LineParser::default();
    for (number, bytes) in lines::numbered(body) {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let samples_left = limits.samples_max.saturating_sub(out.batch.len());
        line.clear(samples_left);
        let read = line.read(bytes);
        if matches!(read, Err(JsonLineError::Json(_)))
            && let Some(quoted) = with_words_quoted(bytes)
        {
            let mut again = LineParser::default();
            again.clear(samples_left);
            let read_again = again.read(&quoted);
            // The positions in errors are those of the line as sent.
            if read_again.is_ok() || again.over_limit {
                keep(&again, read_again, number, &mut out, limits)?;
                continue;
            }
        }
        keep(&line, read, number, &mut out, limits)?;
    }
    Ok(out)
}

/// Stores the samples of a line, or refuses the line.
///
/// # Errors
/// [`DecodeError::TooLarge`].
fn keep(
    line: &LineParser<'_>,
    read: Result<(), JsonLineError>,
    number: usize,
    out: &mut Translated,
    limits: &DecodeLimits,
) -> Result<(), DecodeError> {
    if line.over_limit {
        let (what, allowed) = ("samples", limits.samples_max);
        return Err(DecodeError::TooLarge { what, found: allowed.saturating_add(1), allowed });
    }
    if let Err(error) = read {
        let samples = line.values.len().max(line.times.len()).max(1);
        out.refuse(samples, || Refusal {
            series: line.pairs.display_series(),
            code: error.code(),
            reason: format!("line {number}: {}", error.reason(line)),
        });
        return Ok(());
    }
    if line.values.is_empty() {
        return Ok(());
    }
    let samples = line.times.iter().zip(&line.values);
    let samples = samples.map(|(at, value)| Sample { at: Timestamp::from_ms(at.0), value: value.0 });
    out.batch.samples_of(line.pairs.iter(), samples);
    super::check_series(&out.batch, limits)
}

/// Returns the line with `NaN` and the words for infinities in quotes where they stand outside of
/// strings; `None` if there is none of them.
fn with_words_quoted(line: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 6] = [b"NaN", b"-Infinity", b"-Inf", b"+Inf", b"Infinity", b"Inf"];
    let mut out: Vec<u8> = Vec::new();
    let (mut at, mut copied, mut in_string) = (0usize, 0usize, false);
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        let step = match rest.first() {
            Some(b'"') => {
                in_string = !in_string;
                1
            }
            Some(b'\\') if in_string => 2,
            Some(b'N' | b'-' | b'+' | b'I') if !in_string => {
                match WORDS.iter().find(|word| rest.starts_with(word)) {
                    Some(word) => {
                        out.extend_from_slice(line.get(copied..at)?);
                        out.extend([b"\"", *word, b"\""].concat());
                        copied = at.saturating_add(word.len());
                        word.len()
                    }
                    None => 1,
                }
            }
            _ => 1,
        };
        at = at.saturating_add(step);
    }
    out.extend_from_slice(line.get(copied..).filter(|_| copied > 0)?);
    Some(out)
}

/// The reason why a line is refused.
enum JsonLineError {
    Utf8(usize),
    Json(serde_json::Error),
    Labels(LabelSetError),
    Lengths,
}

impl JsonLineError {
    fn code(&self) -> &'static str {
        match self {
            JsonLineError::Utf8(_) => "invalid_utf8",
            JsonLineError::Json(_) => "invalid_line",
            JsonLineError::Labels(problem) => problem.code(),
            JsonLineError::Lengths => "unequal_lengths",
        }
    }

    fn reason(&self, line: &LineParser<'_>) -> String {
        match self {
            JsonLineError::Utf8(at) => format!("column {}: this byte is not UTF-8", at.saturating_add(1)),
            JsonLineError::Json(e) => {
                let message = e.to_string();
                let position = format!(" at line {} column {}", e.line(), e.column());
                let message = message.strip_suffix(&position).unwrap_or(&message);
                // The parser expects the rest of `null`, `true` or `false`.
                let message = match message {
                    "expected ident" | "expected value" => "expected a number or null",
                    other => other,
                };
                format!("column {}: {}", e.column(), truncated(message, REASON_MAX))
            }
            JsonLineError::Labels(problem) => line.pairs.message(*problem),
            JsonLineError::Lengths => {
                let (values, times) = (line.values.len(), line.times.len());
                format!("{values} values and {times} timestamps; their numbers must be equal")
            }
        }
    }
}

/// Bytes of a JSON error that a refusal quotes, since it may contain parts of the line.
const REASON_MAX: usize = 200;

/// The state of parsing one line. Reused from line to line.
#[derive(Default)]
struct LineParser<'a> {
    pairs: LabelPairs<'a>,
    values: Vec<SampleValue>,
    times: Vec<TimestampMs>,
    /// Samples that the request may still contain.
    samples_left: usize,
    /// The line has more samples than that.
    over_limit: bool,
}

impl<'a> LineParser<'a> {
    fn clear(&mut self, samples_left: usize) {
        self.pairs.clear();
        self.values.clear();
        self.times.clear();
        (self.samples_left, self.over_limit) = (samples_left, false);
    }

    fn read(&mut self, bytes: &'a [u8]) -> Result<(), JsonLineError> {
        let text = std::str::from_utf8(bytes).map_err(|e| JsonLineError::Utf8(e.valid_up_to()))?;
        let mut json = serde_json::Deserializer::from_str(text);
        (&mut *self).deserialize(&mut json).map_err(JsonLineError::Json)?;
        json.end().map_err(JsonLineError::Json)?;
        if let Some(problem) = self.pairs.find_error() {
            return Err(JsonLineError::Labels(problem));
        }
        if self.values.len() == self.times.len() { Ok(()) } else { Err(JsonLineError::Lengths) }
    }
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> DeserializeSeed<'a> for &mut LineParser<'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for &mut LineParser<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metric, values and timestamps")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        const FIELDS: [&str; 3] = ["metric", "values", "timestamps"];
        let mut seen = [false; FIELDS.len()];
        while let Some(JsonText(name)) = fields.next_key()? {
            let index = FIELDS.iter().position(|field| *field == name);
            if let Some((field, seen)) = index.and_then(|at| Some((FIELDS.get(at)?, seen.get_mut(at)?)))
                && std::mem::replace(seen, true)
            {
                return Err(A::Error::duplicate_field(field));
            }
            let LineParser { pairs, values, times, samples_left, over_limit } = &mut *self;
            match index {
                Some(0) => fields.next_value_seed(LabelsSeed { pairs })?,
                Some(1) => fields.next_value_seed(ArraySeed {
                    out: values,
                    samples_left: *samples_left,
                    over_limit,
                })?,
                Some(2) => fields.next_value_seed(ArraySeed {
                    out: times,
                    samples_left: *samples_left,
                    over_limit,
                })?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        match FIELDS.iter().zip(seen).find(|(_, seen)| !seen) {
            Some((field, _)) => Err(A::Error::missing_field(field)),
            None => Ok(()),
        }
    }
}

/// Deserializes the labels into `pairs`, duplicates included, so that they are detected.
struct LabelsSeed<'l, 'a> {
    pairs: &'l mut LabelPairs<'a>,
}

impl<'a> DeserializeSeed<'a> for LabelsSeed<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for LabelsSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of label names and values")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut labels: A) -> Result<(), A::Error> {
        while let Some((JsonText(name), JsonText(value))) = labels.next_entry()? {
            if self.pairs.len() >= LABELS_PARSED_MAX {
                return Err(A::Error::custom("the series has more than 1024 labels"));
            }
            let [name, value] = [name, value].map(|text| match text {
                Cow::Borrowed(text) => TextSlice::Borrowed(text),
                Cow::Owned(text) => self.pairs.unescape(|out| out.push_str(&text)),
            });
            self.pairs.push(name, value);
        }
        Ok(())
    }
}

/// Deserializes an array into a vector that is reused from line to line.
struct ArraySeed<'l, T> {
    out: &'l mut Vec<T>,
    samples_left: usize,
    over_limit: &'l mut bool,
}

impl<'a, T: Deserialize<'a>> DeserializeSeed<'a> for ArraySeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a, T: Deserialize<'a>> Visitor<'a> for ArraySeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            if self.out.len() >= self.samples_left {
                *self.over_limit = true;
                return Err(A::Error::custom("too many samples"));
            }
            self.out.push(item);
        }
        Ok(())
    }
}

/// A time in milliseconds.
#[derive(Deserialize)]
struct TimestampMs(i64);

/// A sample value.
struct SampleValue(f64);

impl<'a> Deserialize<'a> for SampleValue {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<SampleValue, D::Error> {
        struct SampleValueVisitor;

        impl Visitor<'_> for SampleValueVisitor {
            type Value = SampleValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, null, \"NaN\", \"Infinity\" or \"-Infinity\"")
            }

            fn visit_f64<E>(self, value: f64) -> Result<SampleValue, E> {
                Ok(SampleValue(value))
            }

            #[expect(clippy::cast_precision_loss, reason = "a sample is a double: the nearest one")]
            fn visit_u64<E>(self, value: u64) -> Result<SampleValue, E> {
                Ok(SampleValue(value as f64))
            }

            #[expect(clippy::cast_precision_loss, reason = "a sample is a double: the nearest one")]
            fn visit_i64<E>(self, value: i64) -> Result<SampleValue, E> {
                Ok(SampleValue(value as f64))
            }

            fn visit_unit<E>(self) -> Result<SampleValue, E> {
                Ok(SampleValue(number::NORMAL_NAN))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SampleValue, E> {
                number::parse_value(text).map(SampleValue).map_err(|error| match error {
                    ValueError::NotANumber => {
                        E::invalid_value(serde::de::Unexpected::Str(truncated(text, 40)), &self)
                    }
                    ValueError::OutOfRange => {
                        E::custom(format_args!("{:?} {}", truncated(text, 40), error.message()))
                    }
                })
            }
        }

        json.deserialize_any(SampleValueVisitor)
    }
}

#[cfg(test)]
mod tests;
