//! The side data of one series in memory.

use super::histograms::Histograms;
use super::start_timestamps::StartTimestamps;

/// The data of one series.
#[derive(Debug, Default)]
pub(super) struct SideSeries {
    /// `None` until the first histogram, because most series have start timestamps only.
    pub(super) histograms: Option<Box<Histograms>>,
    pub(super) starts: StartTimestamps,
    /// Its contribution to [`super::SideCounters`].
    pub(super) counted: SeriesUsage,
}

/// The contribution of a series to the counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeriesUsage {
    pub(super) histograms: u64,
    pub(super) late: u64,
    pub(super) bytes: u64,
}

impl SideSeries {
    /// Returns the least and the greatest time of the histograms.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        self.histograms.as_ref()?.span()
    }

    /// Changes the histograms, if there ever were any.
    pub(super) fn change_histograms(&mut self, change: impl FnOnce(&mut Histograms)) {
        if let Some(histograms) = &mut self.histograms {
            change(histograms);
        }
    }

    /// Returns the present contribution to the counters.
    pub(super) fn usage(&self) -> SeriesUsage {
        let bytes = size_of::<SideSeries>() as u64 + self.starts.memory();
        let Some(histograms) = &self.histograms else {
            return SeriesUsage { bytes, ..SeriesUsage::default() };
        };
        let (in_order, late) = histograms.counts();
        SeriesUsage { histograms: in_order + late, late, bytes: bytes + histograms.memory() }
    }
}
