//! Comparison of results with the histograms of scripts.

use std::collections::BTreeMap;

use promlet::promql::FloatHistogram;
pub(crate) use promlet::rules::unit_test::series::HistogramLiteral as Literal;

use super::expect::almost_equal;

/// Returns whether a result equals a described histogram, apart from rounding.
pub(crate) fn matches(expected: &Literal, found: &FloatHistogram) -> bool {
    let filled = |all: &BTreeMap<i32, f64>| -> Vec<(i32, f64)> {
        all.iter().filter(|(_, count)| **count != 0.0).map(|(index, count)| (*index, *count)).collect()
    };
    let same = |wanted: Vec<(i32, f64)>, found: Vec<(i32, f64)>| {
        let found: Vec<_> = found.into_iter().filter(|(_, count)| *count != 0.0).collect();
        wanted.len() == found.len()
            && wanted.iter().zip(&found).all(|(a, b)| a.0 == b.0 && almost_equal(a.1, b.1))
    };
    expected.schema == found.schema()
        && almost_equal(expected.count, found.count())
        && almost_equal(expected.sum, found.sum())
        && expected.bounds == found.custom_values()
        && expected.threshold == found.zero_threshold()
        && almost_equal(expected.zero, found.zero_count())
        && same(filled(&expected.positive), found.positive().collect())
        && same(filled(&expected.negative), found.negative().collect())
        && (!expected.compares_reset || expected.reset == found.reset())
}
