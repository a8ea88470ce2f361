//! The start timestamps of series as the log reports them, for samples that follow.

use std::collections::HashMap;

/// The most series with a start. All starts are forgotten at this number.
const SERIES_MAX: usize = 1 << 17;
/// The most changes of a series that are kept. The oldest is forgotten.
const CHANGES_MAX: usize = 32;

/// The last changes of the start timestamps of series, as (time of the sample, start) in ms. A
/// start applies from its sample on.
#[derive(Debug, Default)]
pub(crate) struct SeriesStarts(HashMap<u32, Vec<(i64, i64)>>);

impl SeriesStarts {
    /// Adds the start of a sample.
    pub(crate) fn put(&mut self, series: u32, at_ms: i64, start_ms: i64) {
        if self.0.len() >= SERIES_MAX && !self.0.contains_key(&series) {
            self.0.clear();
        }
        let changes = self.0.entry(series).or_default();
        let place = changes.partition_point(|(at, _)| *at <= at_ms);
        let before = place.checked_sub(1).and_then(|before| changes.get(before)).copied();
        match before {
            Some((_, known)) if known == start_ms => return,
            Some((at, _)) if at == at_ms => {
                changes.remove(place - 1);
                changes.insert(place - 1, (at_ms, start_ms));
            }
            _ => changes.insert(place, (at_ms, start_ms)),
        }
        if changes.len() > CHANGES_MAX {
            changes.remove(0);
        }
    }

    /// Returns the start of a sample; 0 if it is not known.
    pub(crate) fn of(&self, series: u32, at_ms: i64) -> i64 {
        let changes = self.0.get(&series).map(Vec::as_slice).unwrap_or_default();
        let place = changes.partition_point(|(at, _)| *at <= at_ms).checked_sub(1);
        place.and_then(|place| changes.get(place)).map_or(0, |(_, start)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_applies_from_its_sample_on_and_the_list_is_bounded() {
        let mut starts = SeriesStarts::default();
        starts.put(1, 10, 5);
        starts.put(1, 20, 15);
        starts.put(1, 30, 15);
        assert_eq!([9, 10, 19, 20, 40].map(|at| starts.of(1, at)), [0, 5, 5, 15, 15]);
        starts.put(1, 20, 16);
        assert_eq!((starts.of(1, 25), starts.of(2, 25)), (16, 0));
        for step in 0..1_000 {
            starts.put(1, 100 + step, step);
        }
        assert_eq!((starts.0[&1].len(), starts.of(1, 1_099), starts.of(1, 25)), (CHANGES_MAX, 999, 0));
        for series in 0..300_000 {
            starts.put(series, 1, 1);
        }
        assert!(starts.0.len() <= SERIES_MAX);
    }
}
