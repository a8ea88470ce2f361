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
//! Other fields are skipped. An invalid line is refused with its number, and the others are stored.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::pairs::{LABELS_PARSED_MAX, LabelPairs, LabelSetError, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines, number};
use crate::model::{Refusal, Sample, Timestamp};

/// Decodes a decompressed body. Cost: one pass; per line nothing is allocated except what the batch
/// holds and strings with escapes.
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
        line.clear(limits.samples_max.saturating_sub(out.batch.len()));
        let read = line.read(bytes);
        if line.over_limit {
            let (what, allowed) = ("samples", limits.samples_max);
            return Err(DecodeError::TooLarge { what, found: allowed.saturating_add(1), allowed });
        }
        if let Err(error) = read {
            let samples = line.values.len().max(line.times.len()).max(1);
            out.refuse(samples, || Refusal {
                series: line.pairs.display_series(),
                code: error.code(),
                reason: format!("line {number}: {}", error.reason(&line)),
            });
            continue;
        }
        if line.values.is_empty() {
            continue;
        }
        let samples = line.times.iter().zip(&line.values);
        let samples = samples.map(|(at, value)| Sample { at: Timestamp::from_ms(at.0), value: value.0 });
        out.batch.samples_of(line.pairs.iter(), samples);
        super::check_series(&out.batch, limits)?;
    }
    Ok(out)
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
                let unexpected = || E::invalid_value(serde::de::Unexpected::Str(truncated(text, 40)), &self);
                number::parse_value(text).map(SampleValue).ok_or_else(unexpected)
            }
        }

        json.deserialize_any(SampleValueVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::text;
    use crate::ingest::text::Format;

    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

    fn decoded(text: &str) -> Translated {
        decode(text.as_bytes(), &DecodeLimits::default()).expect("within the limits")
    }

    /// Label bytes, and times and value bits of each sample.
    type SeriesRows = Vec<(Vec<u8>, Vec<(i64, u64)>)>;

    fn rows(read: &Translated) -> SeriesRows {
        let batch = read.batch.batch();
        let of = |series: &crate::model::WriteSeries<'_>| {
            let samples = &batch.samples[series.samples.clone()];
            let samples = samples.iter().map(|s| (s.at.as_ms(), s.value.to_bits())).collect();
            (series.raw_labels.to_vec(), samples)
        };
        batch.series.iter().map(of).collect()
    }

    #[test]
    fn a_json_line_equals_the_same_samples_in_the_text_format() {
        let json = concat!(
            r#"{"metric":{"__name__":"up","job":"node_exporter","instance":"localhost:9100"},"#,
            r#""values":[0,1.5,null,"Infinity","-Infinity","NaN",-2e-3],"#,
            r#""timestamps":[1549891472010,1549891487724,3,4,5,6,7]}"#,
            "\r\n\n",
            r#" {"timestamps":[-1],"x":{"y":[1,{"z":null}]},"values":[1],"metric":{"__name__":"a\"b\n\u00e4"}} "#,
        );
        let read = decoded(json);
        assert_eq!(read.refusals, []);
        let up = r#"up{job="node_exporter",instance="localhost:9100"}"#;
        let text = format!(
            "{up} 0 1549891472010\n{up} 1.5 1549891487724\n{up} NaN 3\n{up} +Inf 4\n{up} -Inf 5\n{up} NaN 6\n\
             {up} -2e-3 7\n{{\"a\\\"b\\n\u{e4}\"}} 1 -1\n"
        );
        let text = text::decode(text.as_bytes(), Format::Prometheus, NOW, &DecodeLimits::default());
        assert_eq!(rows(&read), rows(&text.expect("valid")));
    }

    #[test]
    fn an_invalid_json_line_is_refused_with_its_position_and_the_others_are_stored() {
        let good = r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1]}"#;
        let cases = [
            ("nonsense", "column 2: expected ident", 1),
            (
                "[1]",
                "column 0: invalid type: sequence, expected an object with metric, values and timestamps",
                1,
            ),
            (r#"{"metric":{"__name__":"up"},"values":[1]}"#, "column 41: missing field `timestamps`", 1),
            (
                r#"{"metric":{"__name__":"up"},"values":[1,2],"timestamps":[1]}"#,
                "2 values and 1 timestamps; their numbers must be equal",
                2,
            ),
            (
                r#"{"metric":{"__name__":"up"},"values":["x"],"timestamps":[1]}"#,
                "column 41: invalid value: string \"x\", expected a number, null, \"NaN\", \"Infinity\" or \"-Infinity\"",
                1,
            ),
            (
                r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1.5]}"#,
                "column 58: invalid type: floating point `1.5`, expected i64",
                1,
            ),
            (
                r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1],"values":[1]}"#,
                "column 66: duplicate field `values`",
                1,
            ),
            (
                r#"{"metric":{"__name__":"up","a":"b","a":"c"},"values":[1,2],"timestamps":[1,2]}"#,
                "label name \"a\" occurs twice",
                2,
            ),
            (
                r#"{"metric":{"__name__":"up","":"b"},"values":[1],"timestamps":[1]}"#,
                "a label name is empty",
                1,
            ),
            (r#"{"metric":{"a":"b"},"values":[1],"timestamps":[1]}"#, "the series has no metric name", 1),
            (
                r#"{"metric":{"__name__":1},"values":[1],"timestamps":[1]}"#,
                "column 23: invalid type: integer `1`, expected a string",
                1,
            ),
            (
                r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1]} x"#,
                "column 60: trailing characters",
                1,
            ),
            (
                r#"{"metric":{"__name__":"up"},"values":[1],"timest"#,
                "column 48: EOF while parsing a string",
                1,
            ),
        ];
        for (line, reason, samples) in cases {
            let read = decoded(&format!("{good}\n{line}\n{good}"));
            assert_eq!(read.refusals.len(), 1, "{line}");
            assert_eq!(read.refusals[0].reason, format!("line 2: {reason}"), "{line}");
            assert_eq!((read.refused, read.batch.len()), (samples, 2), "{line}");
        }
        let torn = decode(b"{\"metric\":{\"a\":\"\xff\"}}\n", &DecodeLimits::default()).expect("small");
        assert_eq!(torn.refusals[0].reason, "line 1: column 17: this byte is not UTF-8");
    }

    #[test]
    fn a_line_without_samples_is_not_stored() {
        let read = decoded(r#"{"metric":{"__name__":"up"},"values":[],"timestamps":[]}"#);
        assert_eq!((read.refused, read.batch.batch().series.len()), (0, 0));
    }

    #[test]
    fn limits_of_json_lines_are_enforced() {
        let few = DecodeLimits {
            series_max: 1,
            samples_max: 3,
            decompressed_bytes_max: 500,
            ..DecodeLimits::default()
        };
        let error_of = |text: &str| decode(text.as_bytes(), &few).map(|_| ()).map_err(|e| e.to_string());
        let of = |n: usize| {
            let numbers = vec!["1"; n].join(",");
            format!(
                "{{\"metric\":{{\"__name__\":\"up\"}},\"values\":[{numbers}],\"timestamps\":[{numbers}]}}\n"
            )
        };
        let too_many = |n: usize, what: &str, most: usize| {
            Err(format!("the request has {n} {what}; at most {most} are allowed"))
        };
        assert_eq!(error_of(&of(3)), Ok(()));
        assert_eq!(error_of(&of(4)), too_many(4, "samples", 3));
        assert_eq!(error_of(&(of(1) + &of(1))), Ok(()), "one series still");
        assert_eq!(error_of(&(of(1) + &of(1).replace("up", "down"))), too_many(2, "series", 1));
        assert_eq!(error_of(&" ".repeat(501)), too_many(501, "bytes after decompression", 500));
        assert_eq!(error_of(""), Err("the body is empty".to_owned()));
        let deep = format!("{{\"x\":{}\n", "[".repeat(100_000));
        assert_eq!(
            decode(deep.as_bytes(), &DecodeLimits::default()).expect("small").refused,
            1,
            "no recursion"
        );
    }

    proptest! {
        #[test]
        fn json_line_samples_round_trip_to_the_bit(
            labels in prop::collection::btree_map(any::<String>(), any::<String>(), 0..5),
            samples in prop::collection::vec((any::<i64>(), any::<f64>()), 1..8),
        ) {
            let mut labels = labels;
            labels.remove("");
            labels.insert("__name__".to_owned(), "up".to_owned());
            let values: Vec<String> = samples.iter().map(|(_, value)| match value {
                value if value.is_nan() => "null".to_owned(),
                value if value.is_infinite() => format!("\"{value}\""),
                value => format!("{value:?}"),
            }).collect();
            let times: Vec<i64> = samples.iter().map(|(at, _)| *at).collect();
            let metric = serde_json::to_string(&labels).expect("texts");
            let line = format!("{{\"metric\":{metric},\"values\":[{}],\"timestamps\":{times:?}}}", values.join(","));
            let read = decoded(&line);
            prop_assert_eq!(&read.refusals, &[]);
            let bits = |value: f64| if value.is_nan() { number::NORMAL_NAN.to_bits() } else { value.to_bits() };
            let expected: Vec<(i64, u64)> = samples.iter().map(|(at, value)| (*at, bits(*value))).collect();
            prop_assert_eq!(&rows(&read)[0].1, &expected);
            let mut pairs = Vec::new();
            let batch = read.batch.batch();
            (batch.parse_labels)(batch.series[0].raw_labels, &mut pairs).expect("labels");
            let expected: Vec<_> = labels.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            prop_assert_eq!(pairs, expected);
        }

        #[test]
        fn arbitrary_json_lines_are_decoded_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 1..300),
            pieces in prop::collection::vec(
                prop::sample::select(vec!["{", "}", "[", "]", "\"metric\":", "\"values\":", "\"timestamps\":", "1", ",", "null", "\"__name__\":", "\"up\"", "\n"]),
                1..50,
            ),
        ) {
            let few = DecodeLimits { series_max: 2, samples_max: 3, ..DecodeLimits::default() };
            for body in [&bytes[..], pieces.concat().as_bytes()] {
                let Ok(read) = decode(body, &few) else { continue };
                let batch = read.batch.batch();
                prop_assert!(batch.series.len() <= 2 && batch.samples.len() <= 3);
                prop_assert!(read.refusals.len() <= read.refused);
                prop_assert!(read.refusals.iter().all(|refusal| refusal.reason.starts_with("line ")));
            }
        }
    }
}
