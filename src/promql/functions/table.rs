//! The table of functions.

use super::{
    Arity, Function, Kernel, NativeKernel, RowKernel, Special, WindowKernel, counter, date, math, over_time,
    regression,
};
use crate::promql::histogram::FloatHistogram;
use crate::promql::syntax::tree::ValueType;
use crate::promql::syntax::tree::ValueType::{Matrix, Scalar, Text, Vector};

/// Returns the function named `name`, by binary search.
pub fn function(name: &str) -> Option<&'static Function> {
    let index = FUNCTIONS.binary_search_by(|row| row.name.cmp(name)).ok()?;
    FUNCTIONS.get(index)
}

const fn row(name: &'static str, args: &'static [ValueType], returns: ValueType, kernel: Kernel) -> Function {
    Function { name, args, arity: Arity::Exact, returns, experimental: false, kernel }
}

const fn map(name: &'static str, run: fn(f64) -> f64) -> Function {
    row(name, &[Vector], Vector, Kernel::Map(run))
}

const fn date_part(name: &'static str, run: fn(f64) -> f64) -> Function {
    row(name, &[Vector], Vector, Kernel::Date(run)).optional(1)
}

const fn special(
    name: &'static str,
    args: &'static [ValueType],
    returns: ValueType,
    which: Special,
) -> Function {
    row(name, args, returns, Kernel::Special(which))
}

const fn window(name: &'static str, run: fn(&super::SampleWindow<'_>) -> Option<f64>) -> Function {
    row(name, &[Matrix], Vector, Kernel::Window(kernel(run)))
}

const fn kernel(run: fn(&super::SampleWindow<'_>) -> Option<f64>) -> WindowKernel {
    let (native, row_kernel) = (NativeKernel::FloatsOnly, RowKernel::Each);
    let (needs_resets, uses_starts) = (false, false);
    WindowKernel {
        run,
        check_params: None,
        keeps_name: false,
        counts: false,
        needs_resets,
        uses_starts,
        native,
        row_kernel,
    }
}

/// Returns a kernel that uses counter resets and start timestamps.
const fn counted(run: fn(&super::SampleWindow<'_>) -> Option<f64>) -> WindowKernel {
    WindowKernel { needs_resets: true, uses_starts: true, ..kernel(run) }
}

impl Function {
    const fn optional(self, extra: u8) -> Function {
        Function { arity: Arity::Optional(extra), ..self }
    }

    /// Sets the computation of a window function on native histograms.
    const fn with_native(self, native: NativeKernel) -> Function {
        match self.kernel {
            Kernel::Window(kernel) => {
                Function { kernel: Kernel::Window(WindowKernel { native, ..kernel }), ..self }
            }
            _ => self,
        }
    }

    /// Sets the row kernel of a window function.
    const fn row_kernel(self, row_kernel: RowKernel) -> Function {
        match self.kernel {
            Kernel::Window(kernel) => {
                Function { kernel: Kernel::Window(WindowKernel { row_kernel, ..kernel }), ..self }
            }
            _ => self,
        }
    }

    const fn any(self) -> Function {
        Function { arity: Arity::Any, ..self }
    }

    const fn experimental(self) -> Function {
        Function { experimental: true, ..self }
    }
}

/// All functions of the language, sorted by name.
pub static FUNCTIONS: &[Function] = &[
    map("abs", f64::abs),
    special("absent", &[Vector], Vector, Special::Absent),
    special("absent_over_time", &[Matrix], Vector, Special::AbsentOverTime),
    map("acos", f64::acos),
    map("acosh", f64::acosh),
    map("asin", f64::asin),
    map("asinh", f64::asinh),
    map("atan", f64::atan),
    map("atanh", f64::atanh),
    window("avg_over_time", over_time::avg).with_native(NativeKernel::Mean).row_kernel(RowKernel::Mean),
    map("ceil", f64::ceil),
    window("changes", counter::changes).with_native(NativeKernel::Changes).row_kernel(RowKernel::Changes),
    row("clamp", &[Vector, Scalar, Scalar], Vector, Kernel::MapWith(math::clamp)),
    row("clamp_max", &[Vector, Scalar], Vector, Kernel::MapWith(math::clamp_max)),
    row("clamp_min", &[Vector, Scalar], Vector, Kernel::MapWith(math::clamp_min)),
    map("cos", f64::cos),
    map("cosh", f64::cosh),
    window("count_over_time", over_time::count_samples)
        .with_native(NativeKernel::Count)
        .row_kernel(RowKernel::Count),
    date_part("day_of_month", date::day_of_month),
    date_part("day_of_week", date::day_of_week),
    date_part("day_of_year", date::day_of_year),
    date_part("days_in_month", date::days_in_month),
    map("deg", math::deg),
    window("delta", counter::delta).with_native(NativeKernel::Delta).row_kernel(RowKernel::Delta),
    window("deriv", regression::deriv).row_kernel(RowKernel::Slope),
    row(
        "double_exponential_smoothing",
        &[Matrix, Scalar, Scalar],
        Vector,
        Kernel::Window(WindowKernel {
            check_params: Some(regression::check_smoothing),
            ..kernel(regression::double_exponential_smoothing)
        }),
    )
    .experimental(),
    special("end", &[], Scalar, Special::End).experimental(),
    map("exp", f64::exp),
    row(
        "first_over_time",
        &[Matrix],
        Vector,
        Kernel::Window(WindowKernel { keeps_name: true, ..kernel(over_time::first) }),
    )
    .with_native(NativeKernel::First)
    .row_kernel(RowKernel::First),
    map("floor", f64::floor),
    row("histogram_avg", &[Vector], Vector, Kernel::Native(|h| h.sum() / h.count())),
    row("histogram_count", &[Vector], Vector, Kernel::Native(FloatHistogram::count)),
    special("histogram_fraction", &[Scalar, Scalar, Vector], Vector, Special::HistogramFraction),
    special("histogram_quantile", &[Scalar, Vector], Vector, Special::HistogramQuantile),
    special("histogram_quantiles", &[Vector, Text, Scalar, Scalar], Vector, Special::HistogramQuantiles)
        .optional(9)
        .experimental(),
    row("histogram_stddev", &[Vector], Vector, Kernel::Native(|h| h.variance().sqrt())),
    row("histogram_stdvar", &[Vector], Vector, Kernel::Native(FloatHistogram::variance)),
    row("histogram_sum", &[Vector], Vector, Kernel::Native(FloatHistogram::sum)),
    date_part("hour", date::hour),
    window("idelta", counter::idelta).with_native(NativeKernel::LastDelta).row_kernel(RowKernel::LastDelta),
    row(
        "increase",
        &[Matrix],
        Vector,
        Kernel::Window(WindowKernel { counts: true, ..counted(counter::increase) }),
    )
    .with_native(NativeKernel::Increase)
    .row_kernel(RowKernel::Increase),
    special("info", &[Vector, Vector], Vector, Special::Info).optional(1).experimental(),
    row("irate", &[Matrix], Vector, Kernel::Window(counted(counter::irate)))
        .with_native(NativeKernel::LastRate)
        .row_kernel(RowKernel::LastRate),
    special("label_join", &[Vector, Text, Text, Text], Vector, Special::LabelJoin).any(),
    special("label_replace", &[Vector, Text, Text, Text, Text], Vector, Special::LabelReplace),
    row(
        "last_over_time",
        &[Matrix],
        Vector,
        Kernel::Window(WindowKernel { keeps_name: true, ..kernel(over_time::last) }),
    )
    .with_native(NativeKernel::Last)
    .row_kernel(RowKernel::Last),
    map("ln", f64::ln),
    map("log10", f64::log10),
    map("log2", f64::log2),
    window("mad_over_time", over_time::mad).experimental(),
    special("max_of", &[Scalar, Scalar], Scalar, Special::MaxOf).experimental(),
    window("max_over_time", over_time::max).row_kernel(RowKernel::Greatest),
    special("min_of", &[Scalar, Scalar], Scalar, Special::MinOf).experimental(),
    window("min_over_time", over_time::min).row_kernel(RowKernel::Least),
    date_part("minute", date::minute),
    date_part("month", date::month),
    special("pi", &[], Scalar, Special::Pi),
    row("predict_linear", &[Matrix, Scalar], Vector, Kernel::Window(kernel(regression::predict_linear)))
        .row_kernel(RowKernel::Forecast),
    window("present_over_time", over_time::present)
        .with_native(NativeKernel::Present)
        .row_kernel(RowKernel::Present),
    row(
        "quantile_over_time",
        &[Scalar, Matrix],
        Vector,
        Kernel::Window(WindowKernel {
            check_params: Some(over_time::check_quantile),
            ..kernel(over_time::quantile_of)
        }),
    ),
    map("rad", math::rad),
    special("range", &[], Scalar, Special::Range).experimental(),
    row("rate", &[Matrix], Vector, Kernel::Window(WindowKernel { counts: true, ..counted(counter::rate) }))
        .with_native(NativeKernel::Rate)
        .row_kernel(RowKernel::Rate),
    row("resets", &[Matrix], Vector, Kernel::Window(counted(counter::resets)))
        .with_native(NativeKernel::Resets)
        .row_kernel(RowKernel::Resets),
    row("round", &[Vector, Scalar], Vector, Kernel::MapWith(math::round)).optional(1),
    special("scalar", &[Vector], Scalar, Special::Scalar),
    map("sgn", math::sgn),
    map("sin", f64::sin),
    map("sinh", f64::sinh),
    special("sort", &[Vector], Vector, Special::Sort),
    special("sort_by_label", &[Vector, Text], Vector, Special::SortByLabel).any().experimental(),
    special("sort_by_label_desc", &[Vector, Text], Vector, Special::SortByLabelDesc).any().experimental(),
    special("sort_desc", &[Vector], Vector, Special::SortDesc),
    map("sqrt", f64::sqrt),
    special("start", &[], Scalar, Special::Start).experimental(),
    special("start_timestamp", &[Vector], Vector, Special::StartTimestamp).experimental(),
    window("stddev_over_time", over_time::stddev).row_kernel(RowKernel::Deviation),
    window("stdvar_over_time", over_time::stdvar).row_kernel(RowKernel::Variance),
    special("step", &[], Scalar, Special::Step).experimental(),
    window("sum_over_time", over_time::sum).with_native(NativeKernel::Sum).row_kernel(RowKernel::Sum),
    map("tan", f64::tan),
    map("tanh", f64::tanh),
    special("time", &[], Scalar, Special::Time),
    special("timestamp", &[Vector], Vector, Special::Timestamp),
    window("ts_of_first_over_time", over_time::ts_of_first)
        .with_native(NativeKernel::FirstTime)
        .experimental()
        .row_kernel(RowKernel::FirstTime),
    window("ts_of_last_over_time", over_time::ts_of_last)
        .with_native(NativeKernel::LastTime)
        .experimental()
        .row_kernel(RowKernel::LastTime),
    window("ts_of_max_over_time", over_time::ts_of_max).experimental().row_kernel(RowKernel::GreatestTime),
    window("ts_of_min_over_time", over_time::ts_of_min).experimental().row_kernel(RowKernel::LeastTime),
    special("vector", &[Scalar], Vector, Special::Vector),
    date_part("year", date::year),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_every_name_is_found() {
        assert!(FUNCTIONS.is_sorted_by_key(|row| row.name));
        assert!(FUNCTIONS.iter().all(|row| std::ptr::eq(function(row.name).expect("found"), row)));
        assert!(function("Rate").is_none(), "case matters");
    }
}
