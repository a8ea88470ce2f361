//! The series whose labels a sender remembers.
//!
//! A sender of more series in turn than the cache holds finds none of them again. Then the cache
//! holds few series, so that the processor's caches keep their memory, until the numbers of the
//! series that were not found show that a large cache would find them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::batch::ForwardedSeries;

/// The most series of a large cache. All are forgotten at this number.
const SERIES_MAX: usize = 1 << 17;
/// The most series of a small cache.
const FEW_SERIES_MAX: usize = 1 << 11;

/// The series of a sender by number. `None` stands for a series that the rules drop.
#[derive(Debug, Default)]
pub(super) struct SeriesCache {
    series: HashMap<u32, Option<Arc<ForwardedSeries>>>,
    /// Lookups that found a series since all were forgotten.
    found: usize,
    is_small: bool,
    /// The numbers of the last inserted series of a small cache, at most [`SERIES_MAX`].
    inserted: HashSet<u32>,
    /// Series that were inserted while their number was in `inserted`: those that a large cache
    /// would have found.
    inserted_again: usize,
}

impl SeriesCache {
    /// Returns a series.
    pub(super) fn get(&mut self, id: u32) -> Option<Option<Arc<ForwardedSeries>>> {
        let known = self.series.get(&id)?.clone();
        self.found = self.found.saturating_add(1);
        Some(known)
    }

    /// Adds a series that [`SeriesCache::get`] did not find.
    pub(super) fn insert(&mut self, id: u32, series: Option<Arc<ForwardedSeries>>) {
        if self.is_small {
            self.inserted_again += usize::from(!self.inserted.insert(id));
            if self.inserted.len().max(self.inserted_again) >= SERIES_MAX {
                self.is_small = self.inserted_again < SERIES_MAX;
                self.inserted = HashSet::new();
                self.inserted_again = 0;
            }
        } else if self.series.len() >= SERIES_MAX && self.found < SERIES_MAX {
            self.is_small = true;
            // Its table is too large for few series.
            self.series = HashMap::new();
        }
        if self.series.len() >= if self.is_small { FEW_SERIES_MAX } else { SERIES_MAX } {
            self.clear();
        }
        self.series.insert(id, series);
    }

    /// Forgets all series.
    pub(super) fn clear(&mut self) {
        self.series.clear();
        self.found = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up this many series in turn. Returns the number of those that were found.
    fn turn(cache: &mut SeriesCache, series: usize) -> usize {
        let ids = 0..u32::try_from(series).expect("few");
        let look_up = |id: u32| {
            let is_found = cache.get(id).is_some();
            if !is_found {
                cache.insert(id, None);
            }
            is_found
        };
        ids.map(look_up).filter(|is_found| *is_found).count()
    }

    #[test]
    fn a_cache_is_small_only_while_it_would_find_no_series_again() {
        let mut cache = SeriesCache::default();
        let fits = SERIES_MAX / 2;
        assert_eq!([turn(&mut cache, fits), turn(&mut cache, fits)], [0, fits]);
        // The series that were found before keep it large once.
        turn(&mut cache, SERIES_MAX * 2);
        for _ in 0..4 {
            assert_eq!(turn(&mut cache, SERIES_MAX * 2), 0);
            assert!(cache.is_small && cache.series.len() <= FEW_SERIES_MAX);
            assert!(cache.series.capacity() < SERIES_MAX / 8 && cache.inserted.len() <= SERIES_MAX);
        }
        let turns = (0..8).take_while(|_| turn(&mut cache, fits) < fits).count();
        assert!(turns < 6 && !cache.is_small, "{turns} turns");
        assert_eq!(turn(&mut cache, fits), fits);
    }
}
