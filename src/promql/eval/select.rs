//! Instant selectors: for each step the newest sample within the lookback.

use crate::model::{TimeRange, Timestamp, is_stale};
use crate::promql::QueryError;
use crate::promql::functions::seconds;
use crate::promql::plan::Selector;
use crate::tsdb::SampleColumns;

use super::Context;
use super::rows::{Grid, Head, Rows};

impl Context<'_> {
    /// One row for each series that has a sample for any step; `times` asks for the samples' times in seconds.
    pub(super) fn select(&self, selector: &Selector, times: bool, grid: Grid) -> Result<Rows, QueryError> {
        let lookback = self.options.lookback_ms;
        let first = selector.when.look(grid.start_ms);
        let last = selector.when.look(grid.last());
        // Left-open: the sample that is exactly one lookback old is too old.
        let oldest = first.saturating_sub(lookback).saturating_add(1);
        let range = TimeRange::new(Timestamp::from_ms(oldest), Timestamp::from_ms(last));
        let found = self.snapshot.select(&selector.matchers, range);
        self.meter.found_series(found.len())?;
        self.meter.foresee(found.len(), grid.len, self.budget)?;
        let mut rows = Rows::with_room(&self.meter, found.len(), grid.len)?;
        let mut columns = SampleColumns::default();
        for series in found {
            self.budget.check()?;
            self.snapshot.read(series.id, range, &mut columns);
            self.meter.read_samples(columns.times.len());
            let row = rows.push_absent(Head { labels: series.labels, drops_name: false });
            let mut next = 0;
            for (step, out) in row.iter_mut().enumerate() {
                let look = selector.when.look(grid.at(step));
                next += columns.times[next..].iter().take_while(|at| **at <= look).count();
                let Some(newest) = next.checked_sub(1) else { continue };
                let (at, value) = (columns.times[newest], columns.values[newest]);
                // A marker hides everything before it.
                if at > look.saturating_sub(lookback) && !is_stale(value) {
                    *out = if times { seconds(at) } else { value };
                }
            }
            rows.settle_last()?;
        }
        if times { self.unnamed(rows) } else { Ok(rows) }
    }
}
