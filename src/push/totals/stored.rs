//! The totals that are stored: the newest samples of series.

use std::cell::OnceCell;

use super::{LOOKBACK_MS, SeriesTotal, TotalValue};
use crate::model::{
    Access, HistogramColumns, MatchOp, Matcher, OrgId, RenderedLabels, TimeRange, Timestamp, is_stale,
};
use crate::tsdb::{SampleColumns, Snapshot, Tsdb};

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

    /// Returns the newest sample of the series with exactly these labels; `None` without one since
    /// [`LOOKBACK_MS`], or if it is a staleness marker.
    pub(super) fn find(&self, labels: &[(&str, &str)]) -> Option<SeriesTotal> {
        let snapshot = self.snapshot.get_or_init(|| self.tsdb.snapshot(&Access::whole(self.org)));
        let matchers = labels.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value));
        let matchers: Vec<Matcher> = matchers.collect::<Result<_, _>>().ok()?;
        let end = self.now.plus_ms(LOOKBACK_MS);
        let range = TimeRange::new(self.now.plus_ms(-LOOKBACK_MS), end);
        let found = snapshot.select(&matchers, range);
        let id = found.iter().find(|series| series.labels.iter().count() == labels.len())?.id;
        let (mut samples, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
        snapshot.read(id, range, &mut samples);
        snapshot.read_histograms(id, range, &mut histograms);
        let number = samples.times.last().zip(samples.values.last());
        let number = number.map(|(at, value)| (*at, *value));
        let native = histograms.times.last().zip(histograms.histograms.last());
        let is_native = native.is_some_and(|(at, _)| number.is_none_or(|(other, _)| *at > other));
        let (at_ms, value) = match (native, number) {
            (Some((at, histogram)), _) if is_native => {
                let is_usable = !histogram.is_stale();
                (*at, is_usable.then(|| TotalValue::Native(Box::new(histogram.clone())))?)
            }
            (_, Some((at, value))) => (at, (!is_stale(value)).then_some(TotalValue::Number(value))?),
            _ => return None,
        };
        let origin = snapshot.starts(id, range).last().map(|change| change.start);
        let origin = origin.filter(|start| start.as_ms() != 0);
        Some(SeriesTotal { at: Timestamp::from_ms(at_ms), start: None, origin, value })
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
