//! Sums, means, variances and quantiles that several families of functions share.

use super::numbers::count;

/// A running sum with Neumaier's compensation, added in the caller's order.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::promql) struct Sum {
    pub(in crate::promql) sum: f64,
    /// The compensation: the accumulated rounding error of the additions.
    pub(in crate::promql) rest: f64,
}

impl Sum {
    pub(in crate::promql) const fn of(first: f64) -> Sum {
        Sum { sum: first, rest: 0.0 }
    }

    /// Adds `value` and accumulates the rounding error; an infinite sum clears the compensation.
    #[inline]
    pub(in crate::promql) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        // Written as selects rather than branches, because the greater operand is unpredictable.
        let (greater, less) =
            if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
        let rest = self.rest + ((greater - sum) + less);
        self.rest = if sum.is_infinite() { 0.0 } else { rest };
        self.sum = sum;
    }

    /// Adds another sum together with its compensation.
    #[inline]
    pub(in crate::promql) fn merge(&mut self, other: Sum) {
        self.add(other.sum);
        self.rest += other.rest;
    }

    /// Multiplies sum and compensation by `factor`.
    #[inline]
    pub(in crate::promql) fn scaled(self, factor: f64) -> Sum {
        Sum { sum: self.sum * factor, rest: self.rest * factor }
    }

    /// Divides sum and compensation by `divisor`.
    #[inline]
    pub(in crate::promql) fn divided(self, divisor: f64) -> Sum {
        Sum { sum: self.sum / divisor, rest: self.rest / divisor }
    }

    /// Returns whether sum and compensation are both 0.
    #[inline]
    pub(in crate::promql) fn is_zero(self) -> bool {
        self.sum == 0.0 && self.rest == 0.0
    }

    /// Returns whether the sum is infinite.
    #[inline]
    pub(in crate::promql) fn is_infinite(self) -> bool {
        self.sum.is_infinite()
    }

    /// Returns the compensated sum; an infinite sum is returned unchanged.
    pub(in crate::promql) fn value(&self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.rest }
    }

    /// Returns sum plus compensation, even if the sum is infinite.
    pub(in crate::promql) fn total(&self) -> f64 {
        self.sum + self.rest
    }
}

/// A running mean: computed from a compensated sum while the sum is finite, afterwards updated
/// incrementally.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct Mean {
    /// The sum, or the mean if `incremental`.
    state: Sum,
    count: f64,
    incremental: bool,
}

impl Mean {
    pub(in crate::promql) const fn of(first: f64) -> Mean {
        Mean { state: Sum::of(first), count: 1.0, incremental: false }
    }

    #[inline]
    pub(in crate::promql) fn add(&mut self, value: f64) {
        let before = self.count;
        self.count += 1.0;
        if !self.incremental {
            let mut next = self.state;
            next.add(value);
            if !next.sum.is_infinite() {
                self.state = next;
                return;
            }
            self.incremental = true;
            self.state = Sum { sum: self.state.sum / before, rest: self.state.rest / before };
        }
        let share = before / self.count;
        self.state = Sum { sum: share * self.state.sum, rest: share * self.state.rest };
        self.state.add(value / self.count);
    }

    pub(in crate::promql) fn value(&self) -> f64 {
        if self.incremental {
            self.state.sum + self.state.rest
        } else {
            self.state.sum / self.count + self.state.rest / self.count
        }
    }
}

/// Welford's population variance without compensation, as the `stdvar` aggregation computes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct Variance {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Variance {
    pub(in crate::promql) fn of(first: f64) -> Variance {
        Variance { count: 1.0, mean: first, squares: if first.is_finite() { 0.0 } else { f64::NAN } }
    }

    pub(in crate::promql) fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }

    pub(in crate::promql) fn value(&self) -> f64 {
        self.squares / self.count
    }
}

/// Welford's population variance with compensation, as `stdvar_over_time` computes it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::promql) struct CompensatedVariance {
    pub(in crate::promql) count: f64,
    pub(in crate::promql) mean: Sum,
    pub(in crate::promql) squares: Sum,
}

impl CompensatedVariance {
    #[inline]
    pub(in crate::promql) fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean.total();
        self.mean.add(delta / self.count);
        self.squares.add(delta * (value - self.mean.total()));
    }

    pub(in crate::promql) fn variance(&self) -> f64 {
        self.squares.total() / self.count
    }
}

/// Returns the population variance of `values`.
pub(in crate::promql) fn compensated_variance(values: &[f64]) -> f64 {
    let mut spread = CompensatedVariance::default();
    for value in values {
        spread.add(*value);
    }
    spread.variance()
}

/// Compares values in the order that quantiles use: ascending, NaN first.
pub(in crate::promql) fn nan_first(a: &f64, b: &f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal),
    }
}

/// Returns the `q`-quantile with linear interpolation, and reorders `values`. Returns NaN for an
/// empty slice or a NaN `q`, `-Inf` for `q < 0` and `+Inf` for `q > 1`.
pub(in crate::promql) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let last = values.len() - 1;
    let rank = q * count(last);
    let index = floor_index(rank).min(last);
    let (_, lower, above) = values.select_nth_unstable_by(index, nan_first);
    let upper = above.iter().copied().min_by(nan_first).unwrap_or(*lower);
    let weight = rank - rank.floor();
    *lower * (1.0 - weight) + upper * weight
}

/// Rounds down a rank between 0 and the length of a slice.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 <= rank <= a length; the cast rounds down"
)]
fn floor_index(rank: f64) -> usize {
    rank as usize
}

/// Returns the maximum as Go's `math.Max` does: +Inf before NaN, NaN before other values, +0 before
/// -0.
pub(in crate::promql) fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        if a.is_sign_negative() { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

/// Returns the minimum as Go's `math.Min` does: -Inf before NaN, NaN before other values, -0 before
/// +0.
pub(in crate::promql) fn min(a: f64, b: f64) -> f64 {
    -max(-a, -b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compensated_sum_keeps_terms_that_a_plain_sum_rounds_away() {
        let mut sum = Sum::default();
        for value in [5.0, 1e100, 3.0, -1e100] {
            sum.add(value);
        }
        assert_eq!(sum.value(), 8.0);
    }

    #[test]
    fn a_mean_is_finite_although_the_sum_overflows() {
        let mut mean = Mean::of(f64::MAX);
        mean.add(f64::MAX);
        mean.add(f64::MAX);
        assert!((mean.value() / f64::MAX - 1.0).abs() < 1e-15, "{}", mean.value());
        let mut mixed = Mean::of(f64::INFINITY);
        mixed.add(f64::NEG_INFINITY);
        assert!(mixed.value().is_nan());
    }

    #[test]
    fn quantiles_interpolate_and_sort_nan_first() {
        let cases: [(f64, &[f64], f64); 5] = [
            (0.5, &[3.0, 1.0], 2.0),
            (1.0, &[3.0, 1.0, 2.0], 3.0),
            (-0.1, &[1.0], f64::NEG_INFINITY),
            (1.1, &[1.0], f64::INFINITY),
            (1.0, &[f64::NAN, 7.0], 7.0),
        ];
        for (q, values, expected) in cases {
            assert_eq!(quantile(q, &mut values.to_vec()), expected, "{q} of {values:?}");
        }
        assert!(quantile(0.5, &mut []).is_nan());
    }
}
