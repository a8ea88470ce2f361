//! A cache of the windows of all steps by list of sample times.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::super::rows::Grid;
use super::SampleTimes;
use super::windows::{RunBuilder, SampleRange, SeriesTimes, StepWindows, WindowEdges, WindowRun};
use crate::model::Times;

/// Step windows by list of sample times. Series that are scraped together have the same times, so
/// the windows of one series serve all of them. Most series share one `Times`; other lists are
/// compared by value, which costs a fraction of computing the windows.
#[derive(Default)]
pub(super) struct WindowCache {
    cached: Vec<StepWindows>,
    /// Index in `cached` of the latest own list with this first time and this number of times.
    by_first_and_len: RapidHashMap<(i64, usize), usize>,
    /// Index in `cached` of a shared list, by its address.
    shared: RapidHashMap<usize, usize>,
    /// Index of the entry used last: neighbouring series mostly have the same times.
    last: usize,
    bytes: usize,
    /// The cache is cleared before `bytes` would exceed this limit.
    bytes_max: usize,
    edges: WindowEdges,
    /// Buffers in which runs are built.
    builder: RunBuilder,
}

/// Entries for which capacity is reserved when a second list of times occurs.
const LISTS_USUAL: usize = 64;

/// Equally spaced windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvenWindows {
    /// The first window `(after, until]` in milliseconds.
    pub(super) first: (i64, i64),
    /// Milliseconds from one window to the next, at least 1.
    pub(super) step_ms: i64,
    /// Number of windows.
    pub(super) len: usize,
}

/// Bytes that a cache entry holds for each step.
pub(super) const STEP_BYTES: usize = size_of::<(SampleRange, WindowRun)>();

impl WindowCache {
    pub(super) fn within(bytes_max: usize) -> WindowCache {
        WindowCache { bytes_max, ..WindowCache::default() }
    }

    /// Returns the windows `(after, until]` over these times, of which there is at least one. The
    /// ends must ascend. One instance serves one kind of windows on one grid, and all calls must
    /// pass the same value of `extrapolates`.
    pub(super) fn windows_for(
        &mut self,
        grid: Grid,
        times: SampleTimes<'_>,
        edges: impl Fn(i64) -> (i64, i64),
        extrapolates: bool,
    ) -> &StepWindows {
        self.set_edges(grid, edges);
        match times {
            SampleTimes::Shared(times) => self.select_shared(times, extrapolates),
            SampleTimes::Own(times) => self.select_own(times, extrapolates),
        }
        &self.cached[self.last]
    }

    /// Returns the windows of all steps if they are equally spaced.
    pub(super) fn even_windows(
        &mut self,
        grid: Grid,
        edges: impl Fn(i64) -> (i64, i64),
    ) -> Option<EvenWindows> {
        self.set_edges(grid, edges);
        let (first, step_ms) = self.edges.all.first().zip(self.edges.step_ms)?;
        Some(EvenWindows { first: *first, step_ms, len: self.edges.all.len() })
    }

    fn set_edges(&mut self, grid: Grid, edges: impl Fn(i64) -> (i64, i64)) {
        if self.edges.all.len() != grid.len {
            self.edges.set((0..grid.len).map(|step| edges(grid.at(step))));
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.cached.clear();
        self.by_first_and_len.clear();
        self.shared.clear();
        self.bytes = 0;
    }

    fn select_shared(&mut self, times: &Arc<Times>, extrapolates: bool) {
        if self.cached.get(self.last).is_some_and(|windows| windows.times.is_same(times)) {
            return;
        }
        // A cached entry holds its `Times`, so no other list can have the same address.
        let address = Arc::as_ptr(times).addr();
        if let Some(index) = self.shared.get(&address) {
            self.last = *index;
            return;
        }
        self.clear_if_full(times.len());
        let mut windows = StepWindows::over(SeriesTimes::Shared(Arc::clone(times)));
        windows.set(&self.edges, extrapolates, &mut self.builder);
        self.last = self.cached.len();
        if self.last == 1 {
            self.cached.reserve(LISTS_USUAL);
            self.shared.reserve(LISTS_USUAL);
        }
        self.cached.push(windows);
        self.shared.insert(address, self.last);
    }

    fn select_own(&mut self, times: &[i64], extrapolates: bool) {
        if self.cached.get(self.last).is_some_and(|windows| windows.times.equals(times)) {
            return;
        }
        let key = (times.first().copied().unwrap_or_default(), times.len());
        if let Some(index) = self.by_first_and_len.get(&key) {
            self.last = *index;
        } else {
            self.clear_if_full(times.len());
            self.last = self.cached.len();
            self.cached.push(StepWindows::default());
            self.by_first_and_len.insert(key, self.last);
        }
        let windows = &mut self.cached[self.last];
        if !windows.times.equals(times) {
            windows.times = SeriesTimes::Own(times.to_vec());
            windows.set(&self.edges, extrapolates, &mut self.builder);
        }
    }

    /// Clears the cache if another list with this many times would exceed `bytes_max`.
    fn clear_if_full(&mut self, times: usize) {
        let bytes = times * size_of::<i64>() + self.edges.all.len() * STEP_BYTES;
        if self.bytes + bytes > self.bytes_max {
            self.clear();
        }
        self.bytes += bytes;
    }
}
