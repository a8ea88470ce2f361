//! The functions of the language: the table [`FUNCTIONS`], and pure functions that compute the
//! results, grouped into modules by family.
//!
//! The planner, the documentation and the completion read the table. A test fails for a row without
//! a script in `tests/promql`.

pub(super) mod counter;
pub(super) mod date;
pub(super) mod extended;
pub(super) mod histogram;
pub(super) mod math;
pub(super) mod over_time;
pub(super) mod regression;
mod table;

pub use table::{FUNCTIONS, function};

use super::histogram::FloatHistogram;
use super::syntax::tree::{Extension, ValueType};

/// One function of the language.
#[derive(Debug)]
pub struct Function {
    /// The name in queries, case-sensitive.
    pub name: &'static str,
    /// The types of the arguments; further arguments have the last type.
    pub args: &'static [ValueType],
    /// The valid numbers of arguments, relative to the length of `args`.
    pub arity: Arity,
    /// The type of the result.
    pub returns: ValueType,
    /// Whether Prometheus requires the feature flag `promql-experimental-functions`.
    pub experimental: bool,
    /// The code that computes the result.
    pub(super) kernel: Kernel,
}

/// The numbers of arguments that a function accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly the arguments in `args`.
    Exact,
    /// The last argument may be omitted, or replaced by up to this many arguments of its type.
    Optional(u8),
    /// The last argument may be omitted, or repeated any number of times.
    Any,
}

impl Function {
    /// Returns the lowest accepted number of arguments.
    pub fn args_min(&self) -> usize {
        if self.arity == Arity::Exact { self.args.len() } else { self.args.len() - 1 }
    }

    /// Returns the highest accepted number of arguments; `None` means unlimited.
    pub fn args_max(&self) -> Option<usize> {
        match self.arity {
            Arity::Exact => Some(self.args.len()),
            Arity::Optional(extra) => Some(self.args.len() - 1 + usize::from(extra)),
            Arity::Any => None,
        }
    }

    /// Returns the type of argument `i`, counted from 0; `None` if the function has no arguments.
    pub fn arg(&self, i: usize) -> Option<ValueType> {
        self.args.get(i).or(self.args.last()).copied()
    }
}

/// The code that computes a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    /// Maps each value by itself.
    Map(fn(f64) -> f64),
    /// Maps each value with the scalar arguments of its step; `None` drops the value.
    MapWith(fn(f64, &[f64]) -> Option<f64>),
    /// Returns a calendar field of a time in seconds; without an argument, of the evaluation time.
    Date(fn(f64) -> f64),
    /// Computes one value per window of samples.
    Window(WindowKernel),
    /// Maps each native histogram to a value; floats are dropped.
    Native(fn(&FloatHistogram) -> f64),
    /// Implemented by the planner and the evaluator themselves.
    Special(Special),
}

/// A function of the samples of one series in one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowKernel {
    /// Computes the result of a window with at least one sample; `None` means no result.
    pub(super) run: fn(&SampleWindow<'_>) -> Option<f64>,
    /// Checks the scalar arguments of a step before `run` is called.
    pub(super) check_params: Option<fn(&[f64]) -> ParamCheck>,
    /// The result keeps the metric name, because it is one of the samples of the series.
    pub(super) keeps_name: bool,
    /// The function expects counters: series whose names do not end like those of counters cause an
    /// info annotation.
    pub(super) counts: bool,
    /// [`SampleWindow::resets`] must be set.
    pub(super) needs_resets: bool,
    /// The function uses start timestamps to find resets and the time at which a counter began.
    pub(super) uses_starts: bool,
    /// The computation in windows that contain native histograms.
    pub(super) native: NativeKernel,
    /// The code that computes all windows of a series at once.
    pub(super) row_kernel: RowKernel,
}

/// The code that computes all windows of a series at once. Its results equal those of
/// [`WindowKernel::run`] to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKernel {
    /// Calls [`WindowKernel::run`] for each window.
    Each,
    Changes,
    Count,
    Delta,
    Deviation,
    First,
    FirstTime,
    Forecast,
    Greatest,
    GreatestTime,
    Increase,
    Last,
    /// `idelta`.
    LastDelta,
    /// `irate`.
    LastRate,
    LastTime,
    Least,
    LeastTime,
    Mean,
    Present,
    Rate,
    Resets,
    Slope,
    Sum,
    Variance,
}

/// The computation of a window function on native histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeKernel {
    /// Uses floats only. A window with both floats and histograms causes an info annotation.
    FloatsOnly,
    Changes,
    Count,
    Delta,
    First,
    FirstTime,
    Increase,
    Last,
    /// `idelta`.
    LastDelta,
    /// `irate`.
    LastRate,
    LastTime,
    Mean,
    Present,
    Rate,
    Resets,
    Sum,
}

/// The result of checking scalar arguments.
#[derive(Debug, PartialEq)]
pub(super) enum ParamCheck {
    /// The arguments are valid.
    Valid,
    /// The query continues with this warning.
    Warn(String),
    /// The query fails with this message.
    Reject(String),
}

/// Functions without a kernel of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Absent,
    AbsentOverTime,
    End,
    HistogramFraction,
    HistogramQuantile,
    HistogramQuantiles,
    Info,
    LabelJoin,
    LabelReplace,
    MaxOf,
    MinOf,
    Pi,
    Range,
    Scalar,
    Sort,
    SortDesc,
    SortByLabel,
    SortByLabelDesc,
    Start,
    StartTimestamp,
    Step,
    Time,
    Timestamp,
    Vector,
}

/// The samples of one series in `(start_ms, end_ms]`, without staleness markers. An extended window
/// also contains the samples up to one lookback outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleWindow<'a> {
    /// Sample times in milliseconds, ascending; never empty.
    pub(super) times: &'a [i64],
    /// Sample values, one per time.
    pub(super) values: &'a [f64],
    /// The exclusive start of the window in milliseconds, offset applied.
    pub(super) start_ms: i64,
    /// The inclusive end of the window in milliseconds, offset applied.
    pub(super) end_ms: i64,
    /// The evaluation time in milliseconds, offset not applied.
    pub(super) at_ms: i64,
    /// The scalar arguments at this step.
    pub(super) params: &'a [f64],
    /// Indices of values that are lower than their predecessor, counted from the first sample of
    /// the series like `first`; set only if [`WindowKernel::needs_resets`].
    pub(super) resets: &'a [usize],
    /// The index of `values[0]` among all samples of the series.
    pub(super) first: usize,
    /// The start timestamps of the samples in milliseconds, 0 if unknown; empty if they are not
    /// used.
    pub(super) starts: &'a [i64],
    /// The modifier `anchored` or `smoothed`, for which the samples around the window are included.
    pub(super) extension: Option<Extension>,
}

impl SampleWindow<'_> {
    /// Returns the length of the window in milliseconds, without the extension.
    pub(super) fn range_ms(&self) -> i64 {
        self.end_ms.saturating_sub(self.start_ms)
    }
}
