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
    /// No other series asks for these times: the last one is enough to write the next.
    only_last: bool,
}

struct Known {
    at: Timestamp,
    /// `,[1795222800,"`
    text: [u8; KEPT],
    length: usize,
}

impl Known {
    /// A whole number of seconds after another one, where the last eight of ten digits are all that differs.
    fn followed_by(&self, at: Timestamp) -> Option<Known> {
        let seconds =
            |at: Timestamp| u64::try_from(at.as_ms()).ok().filter(|ms| ms % 1_000 == 0).map(|ms| ms / 1_000);
        let (before, seconds) = (seconds(self.at)?, seconds(at)?);
        let (high, low) = (seconds / digits::EIGHT, seconds % digits::EIGHT);
        if before / digits::EIGHT != high || !(10..100).contains(&high) {
            return None;
        }
        let mut text = self.text;
        // `,[17` stays.
        digits::put(&mut text, 4, &digits::eight_digits(low), 8);
        Some(Known { at, text, length: self.length })
    }
}

impl Grid {
    /// For so many series.
    pub(super) fn of(series: usize) -> Grid {
        Grid { times: Vec::new(), only_last: series < 2 }
    }

    /// Appends `[1795222800,"1.5"],[1795222815,"2"]`, with a comma in front unless it is `first`.
    pub(super) fn points(&mut self, samples: &[Sample], first: bool, out: &mut Vec<u8>) {
        let mut room = [0; TOGETHER * POINT_ROOM];
        let mut skipped = usize::from(first);
        let mut place = samples.first().map_or(0, |sample| self.place_of(sample.at));
        for some in samples.chunks(TOGETHER) {
            let mut end = 0;
            for sample in some {
                end = self.before_value(&mut room, end, sample.at, &mut place);
                end = digits::number(&mut room, end, sample.value);
                end = digits::put(&mut room, end, b"\"]", 2);
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
        let mut text = [0; PREFIX_ROOM];
        let length = match last.and_then(|last| last.followed_by(at)) {
            Some(known) => digits::put(&mut text, 0, &known.text, known.length),
            None => {
                let length = digits::put(&mut text, 0, b",[", 2);
                let length = digits::time(&mut text, length, at);
                digits::put(&mut text, length, b",\"", 2)
            }
        };
        if is_last && length <= KEPT && self.times.len() < TIMES_MAX {
            let mut kept = [0; KEPT];
            kept.copy_from_slice(&text[..KEPT]);
            if self.only_last {
                self.times.clear();
            }
            self.times.push(Known { at, text: kept, length });
            *place = self.times.len();
        }
        digits::put(room, end, &text, length)
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
