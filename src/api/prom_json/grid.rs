//! Points of many series, whose times are mostly the same.
//!
//! The steps of an answer are the steps of each of its series: what stands in front of a value is written for the first
//! series and copied for the others.

use super::digits::{self, ROOM};
use crate::model::{Sample, Timestamp};

/// Points put side by side before they go into the body.
const TOGETHER: usize = 32;
/// Bytes of a point: what stands in front of the value, the value, `"]`.
const POINT_ROOM: usize = PREFIX_ROOM + ROOM + 8;
/// `,[` and a time and `,"`.
const PREFIX_ROOM: usize = ROOM + 8;
/// Of what stands in front of a value; only times of this millennium and their like are kept.
const KEPT: usize = 24;
/// As many steps as one question has.
const TIMES_MAX: usize = 11_000;

/// The times of the series before, as text; ascending.
#[derive(Default)]
pub(super) struct Grid {
    times: Vec<Known>,
    /// No other series asks for these times: one of them is enough to write the next.
    alone: bool,
}

#[derive(Clone, Copy)]
struct Known {
    at: Timestamp,
    /// `,[1795222800,"`
    text: [u8; KEPT],
    length: usize,
}

/// After `,[17`.
const DIGITS_AT: usize = 4;

impl Known {
    /// The last eight of ten digits of a whole number of seconds, where they are all that differs from this one's.
    #[inline]
    fn digits_of(&self, at: Timestamp) -> Option<[u8; 8]> {
        let seconds =
            |at: Timestamp| u64::try_from(at.as_ms()).ok().filter(|ms| ms % 1_000 == 0).map(|ms| ms / 1_000);
        let (own, seconds) = (seconds(self.at)?, seconds(at)?);
        let (high, low) = (seconds / digits::EIGHT, seconds % digits::EIGHT);
        let alike = own / digits::EIGHT == high && (10..100).contains(&high);
        alike.then(|| digits::eight_digits(low))
    }
}

impl Grid {
    /// For so many series.
    pub(super) fn of(series: usize) -> Grid {
        Grid { times: Vec::new(), alone: series < 2 }
    }

    /// Appends `[1795222800,"1.5"],[1795222815,"2"]`, with a comma in front unless it is `first`.
    pub(super) fn points(&mut self, samples: &[Sample], first: bool, out: &mut Vec<u8>) {
        let mut room = [0; TOGETHER * POINT_ROOM];
        let mut skipped = usize::from(first);
        let mut place = samples.first().map_or(0, |sample| self.place_of(sample.at));
        for some in samples.chunks(TOGETHER) {
            let mut end = 0;
            let ends = [some.first(), some.last()];
            if ends.iter().flatten().all(|sample| digits::is_long(sample.value)) {
                let values = some.iter().map(|sample| sample.value);
                let before = |room: &mut [u8], end, number| {
                    some.get(number)
                        .map_or(end, |sample: &Sample| self.before_value(room, end, sample.at, &mut place))
                };
                end = digits::numbers::<TOGETHER>(&mut room, values, before, b"\"]");
            } else {
                for sample in some {
                    end = self.before_value(&mut room, end, sample.at, &mut place);
                    end = digits::number(&mut room, end, sample.value);
                    end = digits::put(&mut room, end, b"\"]", 2);
                }
            }
            out.extend_from_slice(&room[skipped..end]);
            skipped = 0;
        }
    }

    /// Appends `[1795222800,"1.5"]`.
    pub(super) fn point(&mut self, at: Timestamp, value: f64, out: &mut Vec<u8>) {
        let mut room = [0; POINT_ROOM];
        let end = self.before_value(&mut room, 0, at, &mut 0);
        let end = digits::number(&mut room, end, value);
        let end = digits::put(&mut room, end, b"\"]", 2);
        out.extend_from_slice(&room[1..end]);
    }

    /// `place`: where the time stands if it is known; moved on to the next one.
    #[inline]
    fn before_value(&mut self, room: &mut [u8], end: usize, at: Timestamp, place: &mut usize) -> usize {
        if let Some(known) = self.times.get(*place)
            && known.at == at
        {
            *place += 1;
            return digits::put(room, end, &known.text, known.length);
        }
        self.look_for(room, end, at, place)
    }

    #[inline(never)]
    fn look_for(&mut self, room: &mut [u8], end: usize, at: Timestamp, place: &mut usize) -> usize {
        let last = self.times.last();
        let is_last = last.is_none_or(|last| last.at < at);
        if !is_last {
            *place = self.place_of(at);
            if let Some(known) = self.times.get(*place).filter(|known| known.at == at) {
                *place += 1;
                return digits::put(room, end, &known.text, known.length);
            }
        }
        if is_last
            && let Some(last) = last
            && let Some(digits) = last.digits_of(at)
        {
            let Known { mut text, length, .. } = *last;
            let after = digits::put(room, end, &text, length);
            digits::put(room, end + DIGITS_AT, &digits, 8);
            if !self.alone {
                digits::put(&mut text, DIGITS_AT, &digits, 8);
                self.keep(Known { at, text, length }, place);
            }
            return after;
        }
        let mut text = [0; PREFIX_ROOM];
        let length = digits::put(&mut text, 0, b",[", 2);
        let length = digits::time(&mut text, length, at);
        let length = digits::put(&mut text, length, b",\"", 2);
        if is_last && length <= KEPT {
            let mut kept = [0; KEPT];
            kept.copy_from_slice(&text[..KEPT]);
            self.keep(Known { at, text: kept, length }, place);
        }
        digits::put(room, end, &text, length)
    }

    /// Keeps one more time, the last so far.
    fn keep(&mut self, known: Known, place: &mut usize) {
        if self.alone {
            self.times.clear();
        }
        if self.times.len() < TIMES_MAX {
            self.times.push(known);
            *place = self.times.len();
        }
    }

    /// Where a time would stand, or the one after it would: times of steps lie as far apart as the first two.
    fn place_of(&self, at: Timestamp) -> usize {
        let [first, second, ..] = self.times.as_slice() else { return 0 };
        let apart = second.at.as_ms().saturating_sub(first.at.as_ms()).max(1);
        let place = usize::try_from(at.as_ms().saturating_sub(first.at.as_ms()) / apart).unwrap_or(0);
        // What is not here is not waited for here either.
        place + usize::from(self.times.get(place).is_some_and(|known| known.at < at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever was written before, a time is written as by itself.
        #[test]
        fn times_that_follow_one_another_are_written_as_each_by_itself(
            start in prop_oneof![
                Just(1_799_999_700_000_i64), Just(9_999_999_700_000), Just(999_999_999_700_000), Just(-700_000), Just(0),
                any::<u32>().prop_map(|s| i64::from(s) * 1_000), -1_000_000_000_000_000..1_000_000_000_000_000i64,
            ],
            apart in prop_oneof![Just(15_000i64), Just(60_000), Just(1_000), 1i64..100_000, Just(50_000_000_000)],
            missing in prop::collection::vec(0usize..80, 0..6),
            series in 1usize..4,
        ) {
            let mut grid = Grid::of(series);
            for number in 0..series {
                let stays = |i: &usize| missing.get(number..).is_none_or(|missing| !missing.contains(i));
                let at = |i: usize| Timestamp::from_ms(start + apart * i64::try_from(i).unwrap_or(0));
                let samples: Vec<Sample> =
                    (0..80).filter(stays).map(|i| Sample { at: at(i), value: 1.5 }).collect();
                let (mut expected, mut out) = (Vec::new(), Vec::new());
                for sample in &samples {
                    let mut room = [0; ROOM];
                    let end = digits::time(&mut room, 0, sample.at);
                    expected.extend_from_slice(if expected.is_empty() { b"[" } else { b",[" });
                    expected.extend_from_slice(&room[..end]);
                    expected.extend_from_slice(b",\"1.5\"]");
                }
                grid.points(&samples, true, &mut out);
                prop_assert_eq!(String::from_utf8(out), String::from_utf8(expected));
            }
        }

        /// Whatever stands beside it, a value is written as by itself.
        #[test]
        fn values_that_follow_one_another_are_written_as_each_by_itself(
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
            let (mut together, mut alone) = (Vec::new(), Vec::new());
            Grid::of(2).points(&samples, true, &mut together);
            for (place, sample) in samples.iter().enumerate() {
                if place > 0 {
                    alone.push(b',');
                }
                Grid::of(2).point(sample.at, sample.value, &mut alone);
            }
            prop_assert_eq!(String::from_utf8(together), String::from_utf8(alone));
        }
    }
}
