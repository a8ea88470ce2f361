//! The totals that are stored: the newest samples of series.

use std::cell::OnceCell;

use super::{LOOKBACK_MS, SeriesTotal, TotalValue};
use crate::model::{
    Access, HistogramColumns, MatchOp, Matcher, OrgId, RenderedLabels, TimeRange, Timestamp, is_stale,
};
use crate::tsdb::{SampleColumns, SeriesId, Snapshot, Tsdb};

/// How far back a total is looked for first.
const RECENT_MS: i64 = 600_000;

/// Reads the totals of one organisation.
#[derive(Debug)]
pub struct StoredTotals<'t> {
    tsdb: &'t Tsdb,
    org: OrgId,
    /// Labels that replace those of the sender, as in the stored series.
    pub(super) forced_labels: &'t [(Box<str>, Box<str>)],
    now: Timestamp,
    /// Made for the first series, when the totals are locked, so that it has the samples of all
    /// requests before.
    snapshot: OnceCell<Snapshot>,
}

impl<'t> StoredTotals<'t> {
    /// Returns the totals of an organisation, whose series get these labels.
    pub fn new(
        tsdb: &'t Tsdb,
        org: OrgId,
        forced_labels: &'t [(Box<str>, Box<str>)],
        now: Timestamp,
    ) -> StoredTotals<'t> {
        StoredTotals { tsdb, org, forced_labels, now, snapshot: OnceCell::new() }
    }

    /// Returns the total of the series with exactly these labels: its newest sample. `None` without
    /// one since [`LOOKBACK_MS`], or if it is a staleness marker.
    pub(super) fn find(&self, labels: &[(&str, &str)]) -> Option<SeriesTotal> {
        let matchers = labels.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value));
        let matchers: Vec<Matcher> = matchers.collect::<Result<_, _>>().ok()?;
        // All samples of a range are read, and most series have a recent one.
        let newest = |lookback_ms| self.newest(&matchers, lookback_ms);
        let (id, at, value) = newest(RECENT_MS).or_else(|| newest(LOOKBACK_MS))?;
        let origin = self.snapshot().starts(id, self.since(LOOKBACK_MS)).last().map(|change| change.start);
        let origin = origin.filter(|start| start.as_ms() != 0);
        Some(SeriesTotal { at, start: None, origin, value: value? })
    }

    /// Returns the newest sample of the series with exactly these labels since `lookback_ms`, with
    /// its time; its value is `None` if it is a staleness marker.
    fn newest(
        &self,
        labels: &[Matcher],
        lookback_ms: i64,
    ) -> Option<(SeriesId, Timestamp, Option<TotalValue>)> {
        let (snapshot, range) = (self.snapshot(), self.since(lookback_ms));
        let found = snapshot.select(labels, range);
        let id = found.iter().find(|series| series.labels.iter().count() == labels.len())?.id;
        let (mut samples, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
        snapshot.read(id, range, &mut samples);
        snapshot.read_histograms(id, range, &mut histograms);
        let number = samples.times.last().zip(samples.values.last());
        let number =
            number.map(|(at, value)| (*at, (!is_stale(*value)).then_some(TotalValue::Number(*value))));
        let native = histograms.times.last().zip(histograms.histograms.last());
        let native = native.map(|(at, histogram)| {
            (*at, (!histogram.is_stale()).then(|| TotalValue::Native(Box::new(histogram.clone()))))
        });
        // If both have a sample at the same time, the number counts.
        let (at_ms, value) = [native, number].into_iter().flatten().max_by_key(|(at_ms, _)| *at_ms)?;
        Some((id, Timestamp::from_ms(at_ms), value))
    }

    fn snapshot(&self) -> &Snapshot {
        self.snapshot.get_or_init(|| self.tsdb.snapshot(&Access::whole(self.org)))
    }

    /// Samples may be ahead of the clock of the server.
    fn since(&self, lookback_ms: i64) -> TimeRange {
        TimeRange::new(self.now.plus_ms(-lookback_ms), self.now.plus_ms(LOOKBACK_MS))
    }
}

/// Returns the labels that a sender's series has in the store, in order: forced labels replace its
/// own, and empty ones are left out.
pub(super) fn stored_labels<'l>(
    series: &'l [&RenderedLabels],
    forced_labels: &'l [(Box<str>, Box<str>)],
) -> Vec<(&'l str, &'l str)> {
    let is_forced = |name: &str| forced_labels.iter().any(|(forced, _)| **forced == *name);
    let own = series.iter().flat_map(|part| part.pairs()).filter(|(name, _)| !is_forced(name));
    let forced = forced_labels.iter().map(|(name, value)| (&**name, &**value));
    let mut labels: Vec<_> = own.chain(forced).filter(|(_, value)| !value.is_empty()).collect();
    labels.sort_unstable();
    labels
}
