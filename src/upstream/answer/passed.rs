//! Series whose values stay the text that the server sent.
//!
//! Most results are only passed on. To parse a value and to print it again takes longer than to
//! check its text and to copy it.

use std::fmt::Write as _;

use super::scan::Scanner;
use crate::model::{Labels, Sample, Steps, Timestamp};
use crate::promql::MatrixSeries;

/// The values of one series over time, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PassedSeries {
    labels: Labels,
    /// `[[1,"2"],[3,"4"]]`, in the form that [`PassedSeries::scan`] or [`PassedSeries::print`]
    /// admits.
    points: Box<[u8]>,
    count: usize,
}

impl PassedSeries {
    /// Reads values without whitespace and escapes, up to the bracket after the last one. Their
    /// times ascend and are `steps`. Returns `None` for any other text.
    pub(super) fn scan(scanner: &mut Scanner<'_>, steps: Option<&Steps>) -> Option<(Box<[u8]>, usize)> {
        let text = scanner.rest();
        scanner.take(b"[")?;
        let (mut times, mut count) = (TimeCheck::new(steps), 0);
        loop {
            scanner.take(b"[")?;
            if !times.admits(scanner.time()?) {
                return None;
            }
            scanner.take(b",\"")?;
            scanner.skip_value()?;
            scanner.take(b"]")?;
            count += 1;
            match scanner.byte()? {
                b',' => {}
                b']' => break,
                _ => return None,
            }
        }
        let points = text.get(..text.len() - scanner.rest().len())?;
        Some((points.into(), count))
    }

    /// Writes values, whose times ascend. Numbers are not those of Prometheus to the character: an
    /// exponent may have one digit.
    pub(super) fn print(samples: &[Sample]) -> Box<[u8]> {
        let mut text = String::with_capacity(2 + samples.len() * 26);
        text.push('[');
        for Sample { at, value } in samples {
            text.push_str(if text.len() > 1 { ",[" } else { "[" });
            let (sign, ms) = (if at.as_ms() < 0 { "-" } else { "" }, at.as_ms().unsigned_abs());
            // Writing to a String cannot fail.
            let _ = match ms % 1_000 {
                0 => write!(text, "{sign}{},\"", ms / 1_000),
                fraction => write!(text, "{sign}{}.{fraction:03},\"", ms / 1_000),
            };
            let _ = match value.abs() {
                _ if value.is_nan() => write!(text, "NaN"),
                f64::INFINITY if value.is_sign_negative() => write!(text, "-Inf"),
                f64::INFINITY => write!(text, "+Inf"),
                0.0 | 1e-6..1e21 => write!(text, "{value}"),
                _ => write!(text, "{value:e}"),
            };
            text.push_str("\"]");
        }
        text.push(']');
        text.into_bytes().into()
    }

    /// Returns a series with the text of its `count` values.
    pub(super) fn new(labels: Labels, (points, count): (Box<[u8]>, usize)) -> PassedSeries {
        PassedSeries { labels, points, count }
    }

    /// Returns the labels.
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the values as a JSON array; none is `[]`.
    pub const fn points(&self) -> &[u8] {
        &self.points
    }

    /// Returns the number of values.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Parses the values.
    pub fn parsed(&self) -> MatrixSeries {
        let mut scanner = Scanner::new(&self.points);
        let mut samples = Vec::with_capacity(self.count);
        while scanner.byte().is_some()
            && let Some(sample) = next_point(&mut scanner)
        {
            samples.push(sample);
        }
        MatrixSeries { labels: self.labels.clone(), samples, histograms: Vec::new() }
    }
}

/// Reads a time and a value: `[1435781430.781,"1"]`.
#[inline]
pub(super) fn next_point(scanner: &mut Scanner<'_>) -> Option<Sample> {
    scanner.take(b"[")?;
    let is_negative = scanner.take(b"-").is_some();
    let at = scanner.time()?;
    scanner.take(b",\"")?;
    let value = scanner.value()?;
    scanner.take(b"]")?;
    let at = if is_negative { Timestamp::from_ms(-at.as_ms()) } else { at };
    Some(Sample { at, value })
}

/// Checks that times ascend, and are steps of a range query.
pub(super) struct TimeCheck<'s> {
    steps: Option<&'s Steps>,
    before: Option<Timestamp>,
}

impl<'s> TimeCheck<'s> {
    /// `None` allows all times.
    pub(super) const fn new(steps: Option<&'s Steps>) -> TimeCheck<'s> {
        TimeCheck { steps, before: None }
    }

    /// Returns whether a time may follow those that were admitted.
    #[inline]
    pub(super) fn admits(&mut self, at: Timestamp) -> bool {
        let before = self.before.replace(at);
        if before.is_some_and(|before| before >= at) {
            return false;
        }
        let Some(steps) = self.steps else { return true };
        let step_ms = steps.step_ms().max(1);
        // Most values are one step after their predecessor, which needs no division.
        let is_next = before.is_some_and(|before| at.ms_since(before) == step_ms);
        let is_step = || at >= steps.start() && at.ms_since(steps.start()) % step_ms == 0;
        at <= steps.end() && (is_next || is_step())
    }
}

#[cfg(test)]
impl PassedSeries {
    /// Returns a series with printed values.
    pub fn printed(labels: Labels, samples: &[Sample]) -> PassedSeries {
        PassedSeries::new(labels, (PassedSeries::print(samples), samples.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_are_json_that_is_parsed_again() {
        let values = [
            (0, 0.0, r#"[0,"0"]"#),
            (1_500, -0.0, r#"[1.500,"-0"]"#),
            (-1_001, 0.1, r#"[-1.001,"0.1"]"#),
            (2_000, 1e20, r#"[2,"100000000000000000000"]"#),
            (3_000, 1e300, r#"[3,"1e300"]"#),
            (4_000, -2.5e-7, r#"[4,"-2.5e-7"]"#),
            (5_000, f64::INFINITY, r#"[5,"+Inf"]"#),
            (6_000, f64::NEG_INFINITY, r#"[6,"-Inf"]"#),
        ];
        let samples: Vec<Sample> = values
            .iter()
            .map(|(ms, value, _)| Sample { at: Timestamp::from_ms(*ms), value: *value })
            .collect();
        let series = PassedSeries::printed(Labels::default(), &samples);
        let expected = values.map(|(.., text)| text).join(",");
        assert_eq!(String::from_utf8_lossy(series.points()), format!("[{expected}]"));
        assert_eq!((series.parsed().samples, series.count()), (samples, values.len()));
        let none = PassedSeries::printed(Labels::default(), &[]);
        assert_eq!((none.points(), none.parsed().samples.len()), (&b"[]"[..], 0));
        let nan = [Sample { at: Timestamp::from_ms(1), value: f64::NAN }];
        let nan = PassedSeries::printed(Labels::default(), &nan);
        assert_eq!(nan.points(), br#"[[0.001,"NaN"]]"#);
        assert!(nan.parsed().samples[0].value.is_nan());
    }

    #[test]
    fn times_ascend_and_are_steps() {
        let steps = Steps::new(Timestamp::from_s(100), Timestamp::from_s(160), 15_000).expect("steps");
        let admits = |seconds: &[i64], steps: Option<&Steps>| {
            let mut times = TimeCheck::new(steps);
            seconds.iter().all(|at| times.admits(Timestamp::from_s(*at)))
        };
        for (seconds, is_step) in [
            (&[][..], true),
            (&[100, 115, 130, 145, 160], true),
            (&[100, 130, 160], true),
            (&[145], true),
            (&[85, 100], false),
            (&[101], false),
            (&[100, 116], false),
            (&[160, 175], false),
        ] {
            assert_eq!(admits(seconds, Some(&steps)), is_step, "{seconds:?}");
            assert!(admits(seconds, None), "{seconds:?}");
        }
        for wrong in [[100, 100], [115, 100]] {
            assert!(!admits(&wrong, Some(&steps)) && !admits(&wrong, None), "{wrong:?}");
        }
    }
}
