//! Points of delta temporality: changes since the previous point, which are added up to cumulative
//! values. The totals are kept outside of the decoder, by an implementation of [`DeltaTotals`].

use super::TranslateError;
use super::translate::Translator;
use crate::model::{Histogram, HistogramError, RenderedLabels, Timestamp};

/// The interval of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaTimes {
    /// The start, exclusive; `None` if the sender states none.
    pub start: Option<Timestamp>,
    /// The end, inclusive: the time of the point.
    pub at: Timestamp,
}

/// The reason why a point is not added to the total of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaRefusal {
    /// The point repeats the previous one.
    #[error("it repeats the previous point, which was already added")]
    Repeated,
    /// The point is not newer than the previous one.
    #[error("its time is not after that of the previous point; changes are added in order")]
    Reordered,
    /// The start of the point is after its time.
    #[error("its start is after its time")]
    StartAfterEnd,
}

impl DeltaRefusal {
    /// Returns a stable code for programs.
    const fn code(self) -> &'static str {
        match self {
            DeltaRefusal::Repeated => "delta_repeated",
            DeltaRefusal::Reordered => "delta_reordered",
            DeltaRefusal::StartAfterEnd => "delta_start_after_end",
        }
    }
}

/// The totals of series with points of delta temporality. A series is given by parts of its labels.
pub trait DeltaTotals {
    /// Admits the point of a stream, which one of its series identifies. Returns the start of the
    /// total, if it is known.
    ///
    /// # Errors
    /// [`DeltaRefusal`]; the totals of the stream are then unchanged.
    fn admit(
        &mut self,
        series: &[&RenderedLabels],
        times: DeltaTimes,
    ) -> Result<Option<Timestamp>, DeltaRefusal>;

    /// Adds a change to the total of a series, which begins at zero. Returns the total.
    fn add(&mut self, series: &[&RenderedLabels], at: Timestamp, change: f64) -> f64;

    /// Adds a native histogram to the total of a series. Returns the total.
    ///
    /// # Errors
    /// [`HistogramError`]; the total is then lost, and the next point begins a new one.
    fn add_histogram(
        &mut self,
        series: &[&RenderedLabels],
        at: Timestamp,
        change: Histogram,
    ) -> Result<Histogram, HistogramError>;

    /// Ends a total: the sender has no value. The next point begins a new one.
    fn end(&mut self, series: &[&RenderedLabels]);
}

/// Checks a change of a sum.
///
/// # Errors
/// A point without a finite value, or with a negative one in a monotonic sum: its total would be
/// wrong from then on.
pub(super) fn check_change(change: f64, is_monotonic: bool) -> Result<(), TranslateError> {
    let wrong = |code, what: &str| Err(TranslateError::Point(code, format!("its change {change} is {what}")));
    if !change.is_finite() {
        return wrong("delta_not_finite", "no finite number");
    }
    if is_monotonic && change < 0.0 {
        return wrong("delta_negative", "negative, and its sum is monotonic");
    }
    Ok(())
}

impl From<DeltaRefusal> for TranslateError {
    fn from(refusal: DeltaRefusal) -> TranslateError {
        TranslateError::Point(refusal.code(), refusal.to_string())
    }
}

impl<'l> Translator<'l> {
    /// Returns the totals, if the current metric has delta temporality.
    pub(super) fn totals<'t>(
        totals: &'t mut Option<&'l mut (dyn DeltaTotals + 'l)>,
        is_delta: bool,
    ) -> Option<&'t mut (dyn DeltaTotals + 'l)> {
        totals.as_deref_mut().filter(|_| is_delta)
    }
}
