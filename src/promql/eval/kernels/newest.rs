//! The newest sample in each step's window, where samples are equally far apart and windows too.

use super::super::rows::ABSENT;
use super::frames::Even;
use crate::model::Steady;

/// Which it is at each step, where every window is a whole number of samples after the one before: steps without a sample,
/// steps whose sample is so many further on each, steps whose sample is the last one, and steps without any again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    /// Steps before the first sample.
    before: usize,
    /// The sample of the first step after those, and how many samples further on that of each next one is.
    from: usize,
    stride: usize,
    /// How many steps go on so, and whether their samples are in their windows: all are, or none.
    moving: usize,
    reached: bool,
    /// Steps after them that have the last sample in their windows.
    resting: usize,
}

impl Newest {
    /// None where the windows are not a whole number of samples apart, or at the end of what times there are.
    pub(super) fn of(steady: Steady, windows: Even) -> Option<Newest> {
        let Even { first: (after, until), apart, len } = windows;
        if steady.apart <= 0 || apart % steady.apart != 0 {
            return None;
        }
        let stride = usize::try_from(apart / steady.apart).ok()?;
        let last_place = steady.len.checked_sub(1)?;
        let last = steady.at(last_place)?;
        let reach = until.checked_sub(after)?;
        let late = steady.first.checked_sub(until)?.max(0);
        let before = usize::try_from(late / apart + i64::from(late % apart != 0)).ok()?.min(len);
        // Of the first step after those.
        let until = until.checked_add(apart.checked_mul(i64::try_from(before).ok()?)?)?;
        let since = until.checked_sub(steady.first)?;
        let from = usize::try_from(since.max(0) / steady.apart).ok()?;
        let further = last_place.checked_sub(from).map_or(0, |left| left / stride + 1);
        let moving = further.min(len - before);
        let since_last =
            until.checked_add(apart.checked_mul(i64::try_from(moving).ok()?)?)?.checked_sub(last)?;
        let left = reach.checked_sub(since_last)?;
        let resting = if left > 0 { usize::try_from((left - 1) / apart).ok()? + 1 } else { 0 };
        let resting = resting.min(len - before - moving);
        Some(Newest { before, from, stride, moving, reached: since % steady.apart < reach, resting })
    }

    /// Fills a row with what is `told` of those samples.
    pub(super) fn fill(
        self,
        steady: Steady,
        values: &[f64],
        told: impl Fn(i64, f64) -> f64,
        row: &mut [f64],
    ) {
        debug_assert_eq!(values.len(), steady.len, "a value for each time");
        let told = |place: usize, value: &f64| told(steady.at(place).unwrap_or_default(), *value);
        let (before, row) = row.split_at_mut(self.before);
        before.fill(ABSENT);
        let (moving, row) = row.split_at_mut(self.moving);
        if self.reached {
            let places = (self.from..).step_by(self.stride);
            let found = values.get(self.from..).unwrap_or_default().iter().step_by(self.stride);
            for ((out, value), place) in moving.iter_mut().zip(found).zip(places) {
                *out = told(place, value);
            }
        } else {
            moving.fill(ABSENT);
        }
        let (resting, after) = row.split_at_mut(self.resting);
        resting.fill(values.last().map_or(ABSENT, |value| told(steady.len - 1, value)));
        after.fill(ABSENT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::frames::tests::shared;
    use super::super::{Floats, Scratch, TimesOf};
    use super::*;
    use crate::promql::eval::rows::Grid;

    fn fives(of: std::ops::Range<i64>) -> impl Strategy<Value = i64> {
        of.prop_map(|n| n * 5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// What is reckoned of steady times is what is found in a list of them. All are multiples of 5: edges and samples meet.
        #[test]
        fn the_newest_sample_is_reckoned_as_it_is_found(
            (first, apart, samples) in (fives(-60..60), prop_oneof![Just(15i64), fives(1..8)], 1usize..60),
            (start_ms, step_ms, len) in (
                prop_oneof![4 => fives(-100..100), 1 => Just(i64::MAX - 400), 1 => Just(i64::MIN + 400)],
                prop_oneof![2 => Just(15i64), 2 => Just(60), 1 => fives(1..16)],
                2usize..60,
            ),
            lookback in prop_oneof![1 => Just(300i64), 2 => fives(1..20)],
            held in prop::option::weighted(0.1, fives(0..20)),
        ) {
            let times: Vec<i64> = (0..samples).map(|n| first + apart * i64::try_from(n).expect("few")).collect();
            let values: Vec<f64> = (0..samples).map(|n| n as f64).collect();
            let grid = Grid { start_ms, step_ms, len };
            // As `@` holds it.
            let edges = |at: i64| {
                let at = held.unwrap_or(at);
                (at.saturating_sub(lookback), at)
            };
            let told = |at: i64, value: f64| value + at as f64 / 1_000.0;
            let row_of = |times: TimesOf<'_>| {
                let mut row = vec![-1.0; len];
                let floats = Floats { times, values: &values, rises: false };
                Scratch::within(1 << 20).newest(grid, floats, edges, told, &mut row);
                row.iter().map(|value| value.to_bits()).collect::<Vec<u64>>()
            };
            let shared: Arc<_> = shared(&times, apart);
            prop_assert_eq!(row_of(TimesOf::Shared(&shared)), row_of(TimesOf::Own(&times)));
        }
    }

    #[test]
    fn a_scrape_each_15_s_looked_at_each_minute_is_each_fourth_sample() {
        let steady = Steady { first: 100_000, apart: 15_000, len: 41 };
        let windows = Even { first: (-240_000, 60_000), apart: 60_000, len: 20 };
        let expected = Newest { before: 1, from: 1, stride: 4, moving: 10, reached: true, resting: 5 };
        assert_eq!(Newest::of(steady, windows), Some(expected));
        assert_eq!(Newest::of(steady, Even { apart: 50_000, ..windows }), None, "no whole number of samples");
    }
}
