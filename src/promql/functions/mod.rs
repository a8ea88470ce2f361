//! Every function is a row of [`FUNCTIONS`] and, where it computes, a pure function in one of the families below.
//!
//! Planner, documentation and completion read the rows; a test refuses a row without a script in `tests/promql`.

pub(super) mod counter;
pub(super) mod date;
pub(super) mod extended;
pub(super) mod histogram;
pub(super) mod math;
pub(super) mod over_time;
pub(super) mod regression;
pub(super) mod sums;
mod table;

pub use table::{FUNCTIONS, function};

use super::FloatHistogram;
use super::syntax::tree::{Extension, ValueType};

/// One function of the language.
#[derive(Debug)]
pub struct Function {
    /// As written in a query; case matters.
    pub name: &'static str,
    /// The types of its arguments; extra arguments take the last one's.
    pub args: &'static [ValueType],
    /// How many arguments it may have beside `args`.
    pub arity: Arity,
    /// What it answers.
    pub returns: ValueType,
    /// Whether upstream still hides it behind a flag.
    pub experimental: bool,
    /// How it is computed.
    pub(super) kernel: Kernel,
}

/// How many arguments a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// All of them.
    Exact,
    /// The last may be left out, and up to this many stand in its place.
    Optional(u8),
    /// The last may be left out or repeated at will.
    Any,
}

impl Function {
    /// The fewest arguments it takes.
    pub fn args_min(&self) -> usize {
        if self.arity == Arity::Exact { self.args.len() } else { self.args.len() - 1 }
    }

    /// The most arguments it takes; `None` is any number.
    pub fn args_max(&self) -> Option<usize> {
        match self.arity {
            Arity::Exact => Some(self.args.len()),
            Arity::Optional(extra) => Some(self.args.len() - 1 + usize::from(extra)),
            Arity::Any => None,
        }
    }

    /// The type of the `i`-th argument.
    pub fn arg(&self, i: usize) -> Option<ValueType> {
        self.args.get(i).or(self.args.last()).copied()
    }
}

/// How a function is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    /// Value by value.
    Map(fn(f64) -> f64),
    /// Value by value, with the scalar arguments of the step; `None` drops the value.
    MapWith(fn(f64, &[f64]) -> Option<f64>),
    /// A calendar field of a time in seconds; of the evaluation time without an argument.
    Date(fn(f64) -> f64),
    /// Window by window.
    Window(WindowKernel),
    /// Of native histograms, one by one; floats have no result.
    Native(fn(&FloatHistogram) -> f64),
    /// The planner and the evaluator know it by itself.
    Special(Special),
}

/// A function of one series' window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowKernel {
    /// Called for windows with at least one sample; `None` is no result.
    pub(super) run: fn(&Window<'_>) -> Option<f64>,
    /// Looks at the scalar arguments of a step before `run`.
    pub(super) vet: Option<fn(&[f64]) -> Vet>,
    /// The result is one of the series' own samples.
    pub(super) keeps_name: bool,
    /// Meant for counters: a series not named like one gets an info.
    pub(super) counts: bool,
    /// [`Window::resets`] must be filled in.
    pub(super) needs_resets: bool,
    /// Start timestamps tell of resets, and where counts began.
    pub(super) uses_starts: bool,
    /// What is done in a window that has native histograms.
    pub(super) native: NativeWork,
    /// How a whole row of windows is computed, where that is not one window after the other.
    pub(super) columnar: Columnar,
}

/// How all windows of a series are computed at once; to the bit what `run` answers for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columnar {
    /// Each by itself.
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

/// What a function of windows does with native histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeWork {
    /// Floats alone count; it is said where there are both.
    PassOver,
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

/// What is to be said about scalar arguments.
#[derive(Debug, PartialEq)]
pub(super) enum Vet {
    /// Nothing.
    Fine,
    /// A warning.
    Warn(String),
    /// The query fails.
    Refuse(String),
}

/// Functions that are no kernel.
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

/// One series' samples in `(start_ms, end_ms]`, staleness markers left out; of an extended window also those up to one
/// lookback outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window<'a> {
    /// Ascending; never empty.
    pub(super) times: &'a [i64],
    /// As many.
    pub(super) values: &'a [f64],
    /// The open end, offset included.
    pub(super) start_ms: i64,
    /// The closed end, offset included.
    pub(super) end_ms: i64,
    /// The evaluation time, no offset.
    pub(super) at_ms: i64,
    /// The scalar arguments.
    pub(super) params: &'a [f64],
    /// Places of values lower than the one before, counted as `first` counts; only where the kernel asked.
    pub(super) resets: &'a [usize],
    /// The place of `values[0]` among all of the series' samples.
    pub(super) first: usize,
    /// The samples' start timestamps, zero where unknown; none at all where they are not looked at.
    pub(super) starts: &'a [i64],
    /// Whether samples outside of the window are there, and what for.
    pub(super) extension: Option<Extension>,
}

impl Window<'_> {
    /// The window as it was written, milliseconds.
    pub(super) fn range_ms(&self) -> i64 {
        self.end_ms.saturating_sub(self.start_ms)
    }
}

/// Milliseconds as seconds.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "PromQL's own arithmetic: seconds are a double")]
pub(super) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// A count as a value.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}
