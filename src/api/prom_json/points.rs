//! The points of many series, most of which have the same times.
//!
//! All series of a range query have the same steps. So the text before each value is formatted for
//! the first series, and copied for the others.

use super::digits::{self, NUMBER_BYTES};
use crate::model::{Sample, Timestamp};

/// The points that are formatted in a buffer before they are appended to the body.
const POINTS_AT_ONCE: usize = 32;
/// The most bytes of a point: the prefix, the value, `"]` and excess bytes.
const POINT_BYTES: usize = PREFIX_BYTES + NUMBER_BYTES + 8;
/// The most bytes of a prefix: `,[`, a time, `,"` and excess bytes.
const PREFIX_BYTES: usize = NUMBER_BYTES + 8;
/// The most bytes of a stored prefix. Only prefixes of unusual times are longer.
const PREFIX_BYTES_MAX: usize = 24;
/// The most stored times, as many as a query has steps.
const TIMES_MAX: usize = 11_000;

/// Writes points, and copies the text of times that earlier series had.
#[derive(Default)]
pub(super) struct PointWriter {
    /// Times of earlier points, ascending.
    times: Vec<TimePrefix>,
    /// Whether the result has only one series. Then only the last time is stored.
    single_series: bool,
}

/// A time and its prefix.
#[derive(Clone, Copy)]
struct TimePrefix {
    at: Timestamp,
    /// A text such as `,[1795222800,"`, of `length` bytes.
    text: [u8; PREFIX_BYTES_MAX],
    length: usize,
}

/// The index of the last eight digits of ten, after a text such as `,[17`.
const DIGITS_AT: usize = 4;

impl TimePrefix {
    /// Returns the last eight digits of `at`, if both times are whole seconds with ten digits and
    /// have the same first two digits.
    #[inline]
    fn digits_of(&self, at: Timestamp) -> Option<[u8; 8]> {
        let seconds =
            |at: Timestamp| u64::try_from(at.as_ms()).ok().filter(|ms| ms % 1_000 == 0).map(|ms| ms / 1_000);
        let (own, seconds) = (seconds(self.at)?, seconds(at)?);
        let (high, low) = (seconds / digits::EIGHT, seconds % digits::EIGHT);
        let differs_in_low_digits = own / digits::EIGHT == high && (10..100).contains(&high);
        differs_in_low_digits.then(|| digits::eight_digits(low))
    }
}

impl PointWriter {
    /// Returns a writer for the points of `series` series.
    pub(super) fn new(series: usize) -> PointWriter {
        PointWriter { times: Vec::new(), single_series: series < 2 }
    }

    /// Appends `[1795222800,"1.5"],[1795222815,"2"]`, after a comma unless `first` is set.
    pub(super) fn points(&mut self, samples: &[Sample], first: bool, out: &mut Vec<u8>) {
        let mut buf = [0; POINTS_AT_ONCE * POINT_BYTES];
        let mut skipped = usize::from(first);
        let mut position = samples.first().map_or(0, |sample| self.position_of(sample.at));
        for some in samples.chunks(POINTS_AT_ONCE) {
            let mut end = 0;
            let ends = [some.first(), some.last()];
            if ends.iter().flatten().all(|sample| digits::is_long(sample.value)) {
                let values = some.iter().map(|sample| sample.value);
                let before = |buf: &mut [u8], end, number| {
                    some.get(number)
                        .map_or(end, |sample: &Sample| self.write_prefix(buf, end, sample.at, &mut position))
                };
                end = digits::numbers::<POINTS_AT_ONCE>(&mut buf, values, before, b"\"]");
            } else {
                for sample in some {
                    end = self.write_prefix(&mut buf, end, sample.at, &mut position);
                    end = digits::number(&mut buf, end, sample.value);
                    end = digits::put(&mut buf, end, b"\"]", 2);
                }
            }
            out.extend_from_slice(&buf[skipped..end]);
            skipped = 0;
        }
    }

    /// Appends `[1795222800,"1.5"]`.
    pub(super) fn point(&mut self, at: Timestamp, value: f64, out: &mut Vec<u8>) {
        let mut buf = [0; POINT_BYTES];
        let end = self.write_prefix(&mut buf, 0, at, &mut 0);
        let end = digits::number(&mut buf, end, value);
        let end = digits::put(&mut buf, end, b"\"]", 2);
        out.extend_from_slice(&buf[1..end]);
    }

    /// Writes the prefix of a point. `position` is the expected index of its time in `times`; it
    /// advances to the next time.
    #[inline]
    fn write_prefix(&mut self, buf: &mut [u8], end: usize, at: Timestamp, position: &mut usize) -> usize {
        if let Some(stored) = self.times.get(*position)
            && stored.at == at
        {
            *position += 1;
            return digits::put(buf, end, &stored.text, stored.length);
        }
        self.lookup(buf, end, at, position)
    }

    /// Writes the prefix of a time that is not at the expected index, and stores it if it is the
    /// newest.
    #[inline(never)]
    fn lookup(&mut self, buf: &mut [u8], end: usize, at: Timestamp, position: &mut usize) -> usize {
        let last = self.times.last();
        let is_last = last.is_none_or(|last| last.at < at);
        if !is_last {
            *position = self.position_of(at);
            if let Some(stored) = self.times.get(*position).filter(|stored| stored.at == at) {
                *position += 1;
                return digits::put(buf, end, &stored.text, stored.length);
            }
        }
        if is_last
            && let Some(last) = last
            && let Some(digits) = last.digits_of(at)
        {
            let TimePrefix { mut text, length, .. } = *last;
            let after = digits::put(buf, end, &text, length);
            digits::put(buf, end + DIGITS_AT, &digits, 8);
            if !self.single_series {
                digits::put(&mut text, DIGITS_AT, &digits, 8);
                self.push(TimePrefix { at, text, length }, position);
            }
            return after;
        }
        let mut text = [0; PREFIX_BYTES];
        let length = digits::put(&mut text, 0, b",[", 2);
        let length = digits::time(&mut text, length, at);
        let length = digits::put(&mut text, length, b",\"", 2);
        if is_last && length <= PREFIX_BYTES_MAX {
            let mut stored = [0; PREFIX_BYTES_MAX];
            stored.copy_from_slice(&text[..PREFIX_BYTES_MAX]);
            self.push(TimePrefix { at, text: stored, length }, position);
        }
        digits::put(buf, end, &text, length)
    }

    /// Stores a time that is newer than all others.
    fn push(&mut self, prefix: TimePrefix, position: &mut usize) {
        if self.single_series {
            self.times.clear();
        }
        if self.times.len() < TIMES_MAX {
            self.times.push(prefix);
            *position = self.times.len();
        }
    }

    /// Returns the expected index of a time, assuming that all times have the distance of the first
    /// two.
    fn position_of(&self, at: Timestamp) -> usize {
        let [first, second, ..] = self.times.as_slice() else { return 0 };
        let interval_ms = second.at.as_ms().saturating_sub(first.at.as_ms()).max(1);
        let position =
            usize::try_from(at.as_ms().saturating_sub(first.at.as_ms()) / interval_ms).unwrap_or(0);
        // A missing time cannot occur at this index any more, so the next index is expected.
        position + usize::from(self.times.get(position).is_some_and(|stored| stored.at < at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The text of a time does not depend on the times before it.
        #[test]
        fn times_of_several_series_have_the_same_text_as_single_times(
            start in prop_oneof![
                Just(1_799_999_700_000_i64), Just(9_999_999_700_000), Just(999_999_999_700_000), Just(-700_000), Just(0),
                any::<u32>().prop_map(|s| i64::from(s) * 1_000), -1_000_000_000_000_000..1_000_000_000_000_000i64,
            ],
            apart in prop_oneof![Just(15_000i64), Just(60_000), Just(1_000), 1i64..100_000, Just(50_000_000_000)],
            missing in prop::collection::vec(0usize..80, 0..6),
            series in 1usize..4,
        ) {
            let mut writer = PointWriter::new(series);
            for number in 0..series {
                let stays = |i: &usize| missing.get(number..).is_none_or(|missing| !missing.contains(i));
                let at = |i: usize| Timestamp::from_ms(start + apart * i64::try_from(i).unwrap_or(0));
                let samples: Vec<Sample> =
                    (0..80).filter(stays).map(|i| Sample { at: at(i), value: 1.5 }).collect();
                let (mut expected, mut out) = (Vec::new(), Vec::new());
                for sample in &samples {
                    let mut buf = [0; NUMBER_BYTES];
                    let end = digits::time(&mut buf, 0, sample.at);
                    expected.extend_from_slice(if expected.is_empty() { b"[" } else { b",[" });
                    expected.extend_from_slice(&buf[..end]);
                    expected.extend_from_slice(b",\"1.5\"]");
                }
                writer.points(&samples, true, &mut out);
                prop_assert_eq!(String::from_utf8(out), String::from_utf8(expected));
            }
        }

        /// The text of a value does not depend on its neighbours.
        #[test]
        fn many_values_have_the_same_text_as_single_values(
            values in prop::collection::vec(
                prop_oneof![
                    12 => (1.0..1e6f64).prop_map(|value| value / 285.0),
                    2 => (-14i32..16, 1.0..10.0f64).prop_map(|(power, value)| -value * 10f64.powi(power)),
                    1 => (0u32..1_000_000).prop_map(|value| f64::from(value) / 1_000.0),
                    1 => (any::<u64>(), 0u32..64).prop_map(|(bits, away)| (bits >> away) as f64),
                    1 => any::<f64>(),
                    1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-0.0), Just(999_999_999_999.999_9)],
                ],
                1..100,
            ),
        ) {
            let at = |i: usize| Timestamp::from_s(1_795_222_800 + 15 * i64::try_from(i).unwrap_or(0));
            let samples: Vec<Sample> =
                values.iter().enumerate().map(|(i, value)| Sample { at: at(i), value: *value }).collect();
            let (mut together, mut single_series) = (Vec::new(), Vec::new());
            PointWriter::new(2).points(&samples, true, &mut together);
            for (position, sample) in samples.iter().enumerate() {
                if position > 0 {
                    single_series.push(b',');
                }
                PointWriter::new(2).point(sample.at, sample.value, &mut single_series);
            }
            prop_assert_eq!(String::from_utf8(together), String::from_utf8(single_series));
        }
    }
}
