//! Decoder of Graphite's plaintext protocol, with tags (Graphite 1.1).
//!
//! ```text
//! servers.web1.load 0.5 1795226390
//! disk.used;datacenter=dc1;server=web1 42 1795226390
//! ```
//!
//! The path is the metric name, with its dots, and tags are labels; VictoriaMetrics names them in
//! the same way. The time is in seconds; without one, or with -1, it is the time of the request. An
//! invalid line is refused with its number, and the others are stored.

use super::pairs::{LABELS_PARSED_MAX, LabelPairs, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines, number};
use crate::model::{METRIC_NAME, Refusal, Sample, Timestamp};

/// Bytes of a token that an error message quotes.
const QUOTED_MAX: usize = 40;

/// Decodes a decompressed body. `default_at` is the time of lines without one.
///
/// # Errors
/// [`DecodeError`], if the whole body is refused: it is empty or exceeds a limit. Invalid lines are
/// in [`Translated::refusals`].
pub fn decode(body: &[u8], default_at: Timestamp, limits: &DecodeLimits) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut out = Translated::default();
    let mut labels = LabelPairs::default();
    for (number, line) in lines::numbered(body) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        labels.clear();
        match sample(line, default_at, &mut labels) {
            Ok(sample) => {
                out.batch.samples_of(labels.iter(), [sample]);
            }
            Err((code, reason)) => out.refuse(1, || Refusal {
                series: labels.display_series(),
                code,
                reason: format!("line {number}: {reason}"),
            }),
        }
        super::check_series(&out.batch, limits)?;
        let (found, allowed) = (out.batch.len(), limits.samples_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "samples", found, allowed });
        }
    }
    Ok(out)
}

/// Reads the labels of a line into `labels`, and returns its sample. An error is a code and a
/// sentence.
fn sample<'a>(
    line: &'a [u8],
    default_at: Timestamp,
    labels: &mut LabelPairs<'a>,
) -> Result<Sample, (&'static str, String)> {
    let wrong = |reason: String| ("invalid_line", reason);
    let line = std::str::from_utf8(line).map_err(|error| {
        ("invalid_utf8", format!("column {}: this byte is not UTF-8", error.valid_up_to().saturating_add(1)))
    })?;
    let mut words = line.split_ascii_whitespace();
    let series = words.next().unwrap_or_default();
    let mut parts = series.split(';');
    labels.push(TextSlice::Borrowed(METRIC_NAME), TextSlice::Borrowed(parts.next().unwrap_or_default()));
    for tag in parts {
        let Some((name, value)) = tag.split_once('=') else {
            return Err(wrong(format!(
                "{:?} is not a tag of the form name=value",
                truncated(tag, QUOTED_MAX)
            )));
        };
        if labels.len() >= LABELS_PARSED_MAX {
            return Err(wrong(format!("the series has more than {LABELS_PARSED_MAX} tags")));
        }
        labels.push(TextSlice::Borrowed(name), TextSlice::Borrowed(value));
    }
    if let Some(error) = labels.find_error() {
        return Err((error.code(), labels.message(error)));
    }
    let Some(value) = words.next() else {
        return Err(wrong("a line is: path value time".to_owned()));
    };
    let number = number::parse_value(value)
        .map_err(|error| wrong(format!("{:?} {}", truncated(value, QUOTED_MAX), error.message())))?;
    let at = match words.next() {
        None | Some("-1") => default_at,
        Some(time) => time_of(time).ok_or_else(|| {
            wrong(format!("{:?} is not a time in seconds since 1970", truncated(time, QUOTED_MAX)))
        })?,
    };
    match words.next() {
        None => Ok(Sample { at, value: number }),
        Some(more) => Err(wrong(format!("{:?} follows the time", truncated(more, QUOTED_MAX)))),
    }
}

/// Parses seconds, which may have a fraction.
fn time_of(text: &str) -> Option<Timestamp> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1_000).map(Timestamp::from_ms);
    }
    let seconds = number::parse_value(text).ok().filter(|seconds| seconds.is_finite())?;
    let ms = (seconds * 1_000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (ms.abs() < 9e15).then_some(ms as i64).map(Timestamp::from_ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(7_000);

    fn rows(body: &str) -> (Vec<String>, Vec<String>) {
        let read = decode(body.as_bytes(), NOW, &DecodeLimits::default()).expect("not refused as a whole");
        let batch = read.batch.batch();
        let stored = batch.series.iter().map(|series| {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("valid");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let labels: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
            let samples = batch.samples.get(series.samples.clone()).unwrap_or_default();
            let samples: Vec<String> =
                samples.iter().map(|sample| format!("{}@{}", sample.value, sample.at.as_ms())).collect();
            format!("{} {}", labels.join(","), samples.join(" "))
        });
        (stored.collect(), read.refusals.iter().map(|refusal| refusal.reason.clone()).collect())
    }

    #[test]
    fn paths_are_names_and_tags_are_labels() {
        let (stored, refused) = rows(
            "servers.web1.load 0.5 10\nservers.web1.load 1 11\r\n\ndisk;dc=a;server=b 42 1.5\nnow 1\nnow2 1 -1\n",
        );
        assert_eq!(
            stored,
            [
                "__name__=servers.web1.load 0.5@10000 1@11000",
                "__name__=disk,dc=a,server=b 42@1500",
                "__name__=now 1@7000",
                "__name__=now2 1@7000",
            ]
        );
        assert_eq!(refused, Vec::<String>::new());
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let (stored, refused) = rows(
            "a\nb x 1\nc 1 x\nd;t 1 1\ne;t=1;t=2 1 1\n;t=1 1 1\nf 1 1 1\nf 1 99999999999999999\ng 1 1\nh 1e400 1\n",
        );
        assert_eq!(stored, ["__name__=g 1@1000"]);
        assert_eq!(
            refused,
            [
                "line 1: a line is: path value time",
                "line 2: \"x\" is not a number",
                "line 3: \"x\" is not a time in seconds since 1970",
                "line 4: \"t\" is not a tag of the form name=value",
                "line 5: label name \"t\" occurs twice",
                "line 6: the series has no metric name",
                "line 7: \"1\" follows the time",
                "line 8: \"99999999999999999\" is not a time in seconds since 1970",
                "line 10: \"1e400\" is out of range: the greatest value is about 1.8e308",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_body_panics(body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            "[a-z;=. 0-9\n-]{0,100}".prop_map(String::into_bytes),
        ]) {
            let _ = decode(&body, NOW, &DecodeLimits::default());
        }
    }
}
