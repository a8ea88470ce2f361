//! Accumulators of aggregations: rows are added one after the other, each value to the state of its
//! group at its step.

use crate::promql::sums::{Mean, Sum, Variance};
use crate::promql::syntax::tree::AggregateOp;
use crate::simd::simd_dispatch;

use super::rows::{ABSENT, is_absent};

/// State for each group and step, to which rows are added.
pub(super) trait Accumulate: Send {
    /// Adds a row to a group. The order of additions matters for floating-point results.
    fn add(&mut self, group: usize, row: &[f64]);

    /// Returns the rows of the groups, one after the other.
    fn finish(self: Box<Self>) -> Vec<f64>;
}

/// Returns the bytes that an accumulator needs for each group and step, in addition to the
/// resulting value. Returns `None` for aggregations that have no accumulator.
pub(super) fn extra_bytes(op: AggregateOp) -> Option<u64> {
    match op {
        AggregateOp::Count | AggregateOp::Group | AggregateOp::Min | AggregateOp::Max => Some(0),
        AggregateOp::Sum => Some(size_of::<f64>() as u64),
        AggregateOp::Avg => Some(size_of::<Option<Mean>>() as u64),
        AggregateOp::Stdvar | AggregateOp::Stddev => Some(size_of::<Option<Variance>>() as u64),
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio
        | AggregateOp::Quantile
        | AggregateOp::CountValues => None,
    }
}

/// Returns an empty accumulator, if the aggregation has one. The caller has charged a value and
/// [`extra_bytes`] for each group and step.
pub(super) fn accumulator(op: AggregateOp, groups: usize, steps: usize) -> Option<Box<dyn Accumulate>> {
    let absent = || vec![ABSENT; groups * steps];
    Some(match op {
        AggregateOp::Sum => Box::new(CompensatedSums::of(groups, steps)),
        AggregateOp::Avg => Box::new(GenericStates::of(groups, steps, Mean::of, Mean::add, Mean::value)),
        AggregateOp::Stdvar => {
            Box::new(GenericStates::of(groups, steps, Variance::of, Variance::add, Variance::value))
        }
        AggregateOp::Stddev => {
            let deviation = |state: &Variance| state.value().sqrt();
            Box::new(GenericStates::of(groups, steps, Variance::of, Variance::add, deviation))
        }
        AggregateOp::Count => {
            Box::new(ValueStates { steps, values: absent(), first: |_| 1.0, add: |count, _| count + 1.0 })
        }
        AggregateOp::Group => {
            Box::new(ValueStates { steps, values: absent(), first: |_| 1.0, add: |one, _| one })
        }
        AggregateOp::Min => {
            let add = |least: f64, value| if value < least || least.is_nan() { value } else { least };
            Box::new(ValueStates { steps, values: absent(), first: |value| value, add })
        }
        AggregateOp::Max => {
            let add = |most: f64, value| if value > most || most.is_nan() { value } else { most };
            Box::new(ValueStates { steps, values: absent(), first: |value| value, add })
        }
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio
        | AggregateOp::Quantile
        | AggregateOp::CountValues => return None,
    })
}

/// Sums with Neumaier's compensation in separate arrays, so that adding needs no branch per value.
struct CompensatedSums {
    steps: usize,
    sums: Vec<f64>,
    compensations: Vec<f64>,
    /// For each block of [`BLOCK_STEPS`] steps of each group: the number of rows added, as long as
    /// all of their values were ordinary.
    ordinary: Vec<Option<u32>>,
}

/// Steps of a row that are added by the same branch. The first steps of a row often have no value;
/// only their block then takes the slower branch.
const BLOCK_STEPS: usize = 32;

/// Magnitude below which all intermediate results of the functions below stay finite.
const ORDINARY_MAX: f64 = 1e300;

/// Limit for single values: sums of as many of them as there may be series are below
/// [`ORDINARY_MAX`].
const ORDINARY_VALUE_MAX: f64 = 1e290;

impl CompensatedSums {
    fn of(groups: usize, steps: usize) -> CompensatedSums {
        let (len, blocks) = (groups * steps, groups * steps.div_ceil(BLOCK_STEPS));
        CompensatedSums {
            steps,
            sums: vec![ABSENT; len],
            compensations: vec![0.0; len],
            ordinary: vec![Some(0); blocks],
        }
    }
}

/// Returns whether no magnitude exceeds `most`. Returns `false` for absent values, which are NaN.
#[inline(always)]
fn all_within(values: &[f64], most: f64) -> bool {
    values.iter().fold(true, |all, value| all & (value.abs() <= most))
}

/// Returns whether no magnitude of a present value exceeds `most`.
#[inline(always)]
fn all_within_or_absent(values: &[f64], most: f64) -> bool {
    values.iter().fold(true, |all, value| all & ((value.abs() <= most) | is_absent(*value)))
}

impl Accumulate for CompensatedSums {
    fn add(&mut self, group: usize, row: &[f64]) {
        simd_dispatch!(self.add_row(group, row));
    }

    fn finish(self: Box<Self>) -> Vec<f64> {
        let CompensatedSums { mut sums, compensations, .. } = *self;
        for (value, rest) in sums.iter_mut().zip(&compensations) {
            if !is_absent(*value) {
                *value = Sum { sum: *value, rest: *rest }.value();
            }
        }
        sums
    }
}

impl CompensatedSums {
    #[inline(always)]
    fn add_row(&mut self, group: usize, row: &[f64]) {
        let inside = group * self.steps..(group + 1) * self.steps;
        let blocks = self.steps.div_ceil(BLOCK_STEPS);
        let ordinary = &mut self.ordinary[group * blocks..(group + 1) * blocks];
        let sums = self.sums[inside.clone()].chunks_mut(BLOCK_STEPS);
        let compensations = self.compensations[inside].chunks_mut(BLOCK_STEPS);
        for (((values, sums), compensations), ordinary) in
            row.chunks(BLOCK_STEPS).zip(sums).zip(compensations).zip(ordinary)
        {
            let rows = ordinary.filter(|rows| *rows < u32::MAX && all_within(values, ORDINARY_VALUE_MAX));
            *ordinary = rows.map(|rows| rows + 1);
            match rows {
                Some(0) => sums.copy_from_slice(values),
                // Sums of ordinary values are ordinary as well.
                Some(_) => add_ordinary(values, sums, compensations),
                None if all_within_or_absent(values, ORDINARY_MAX)
                    && all_within_or_absent(sums, ORDINARY_MAX) =>
                {
                    add_present(values, sums, compensations);
                }
                None => add_any(values, sums, compensations),
            }
        }
    }
}

/// Returns a sum and its rounding error by Knuth's branch-free formula. The error equals, to the
/// bit, that of Neumaier's formula, which compares magnitudes.
#[inline(always)]
fn two_sum(sum: f64, value: f64) -> (f64, f64) {
    let next = sum + value;
    let of_value = next - sum;
    let of_sum = next - of_value;
    (next, (sum - of_sum) + (value - of_value))
}

#[inline(always)]
fn add_ordinary(values: &[f64], sums: &mut [f64], compensations: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(compensations) {
        let (next, lost) = two_sum(*sum, *value);
        *rest += lost;
        *sum = next;
    }
}

/// Like `add_ordinary`, for values and sums of which some may be absent.
#[inline(always)]
fn add_present(values: &[f64], sums: &mut [f64], compensations: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(compensations) {
        let (next, lost) = two_sum(*sum, *value);
        let (no_sum, no_value) = (is_absent(*sum), is_absent(*value));
        *rest = if no_sum | no_value { *rest } else { *rest + lost };
        // The first value becomes the sum.
        let next = if no_sum { *value } else { next };
        *sum = if no_value { *sum } else { next };
    }
}

fn add_any(values: &[f64], sums: &mut [f64], compensations: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(compensations) {
        let mut next = Sum { sum: *sum, rest: *rest };
        next.add(*value);
        // The first value becomes the sum; adding it to the absent sum would yield NaN.
        let next = if is_absent(*sum) { Sum::of(*value) } else { next };
        let next = if is_absent(*value) { Sum { sum: *sum, rest: *rest } } else { next };
        (*sum, *rest) = (next.sum, next.rest);
    }
}

#[inline(always)]
fn add_each(row: &[f64], states: &mut [f64], first: impl Fn(f64) -> f64, add: impl Fn(f64, f64) -> f64) {
    for (value, state) in row.iter().zip(states) {
        if !is_absent(*value) {
            *state = if is_absent(*state) { first(*value) } else { add(*state, *value) };
        }
    }
}

/// Accumulator whose state is the resulting value.
struct ValueStates<F, A> {
    steps: usize,
    values: Vec<f64>,
    first: F,
    add: A,
}

impl<F: Fn(f64) -> f64 + Send, A: Fn(f64, f64) -> f64 + Send> Accumulate for ValueStates<F, A> {
    fn add(&mut self, group: usize, row: &[f64]) {
        let states = &mut self.values[group * self.steps..(group + 1) * self.steps];
        let (first, add) = (&self.first, &self.add);
        simd_dispatch!(add_each(row, states, first, add));
    }

    fn finish(self: Box<Self>) -> Vec<f64> {
        self.values
    }
}

/// Accumulator with a state of any type.
struct GenericStates<S, F, A, V> {
    steps: usize,
    states: Vec<Option<S>>,
    first: F,
    add: A,
    value: V,
}

impl<S: Copy, F, A, V> GenericStates<S, F, A, V> {
    fn of(groups: usize, steps: usize, first: F, add: A, value: V) -> GenericStates<S, F, A, V> {
        GenericStates { steps, states: vec![None; groups * steps], first, add, value }
    }
}

impl<S, F, A, V> Accumulate for GenericStates<S, F, A, V>
where
    S: Copy + Send,
    F: Fn(f64) -> S + Send,
    A: Fn(&mut S, f64) + Send,
    V: Fn(&S) -> f64 + Send,
{
    fn add(&mut self, group: usize, row: &[f64]) {
        let states = &mut self.states[group * self.steps..(group + 1) * self.steps];
        for (value, state) in row.iter().zip(states) {
            if !is_absent(*value) {
                match state {
                    Some(state) => (self.add)(state, *value),
                    None => *state = Some((self.first)(*value)),
                }
            }
        }
    }

    fn finish(self: Box<Self>) -> Vec<f64> {
        let value = |state: &Option<S>| state.as_ref().map_or(ABSENT, &self.value);
        self.states.iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = f64> {
        let few = prop_oneof![Just(0.0), Just(-0.0), Just(ABSENT), Just(f64::NAN), Just(f64::INFINITY)];
        let near = (-8i32..8, -40i32..40).prop_map(|(n, e)| f64::from(n) * 1.1 * 2f64.powi(e));
        prop_oneof![1 => few, 8 => near, 2 => any::<f64>(), 1 => Just(f64::MAX), 1 => Just(5e-324)]
    }

    /// Checks that adding rows of 70 steps as a whole equals adding value by value, to the bit.
    fn check_sums(rows: &[Vec<f64>]) -> Result<(), TestCaseError> {
        let mut whole = CompensatedSums::of(1, 70);
        let (mut sums, mut compensations) = (vec![ABSENT; 70], vec![0.0; 70]);
        for row in rows {
            whole.add(0, row);
            add_any(row, &mut sums, &mut compensations);
        }
        let bits = |all: &[f64]| all.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
        prop_assert_eq!(bits(&whole.sums), bits(&sums));
        prop_assert_eq!(bits(&whole.compensations), bits(&compensations));
        Ok(())
    }

    proptest! {
        #[test]
        fn sums_of_ordinary_rows_equal_value_by_value_sums(
            rows in prop::collection::vec(prop::collection::vec(-1e6..1e6f64, 70), 1..12),
            unusual in prop::option::of((0usize..12, 0usize..70, number())),
        ) {
            let mut rows = rows;
            if let Some((row, step, value)) = unusual {
                let row = row % rows.len();
                rows[row][step] = value;
            }
            check_sums(&rows)?;
        }

        /// Gaps at the start and end of rows, as of series that begin and end in between.
        #[test]
        fn sums_of_rows_with_gaps_equal_value_by_value_sums(
            rows in prop::collection::vec((prop::collection::vec(-1e6..1e6f64, 70), 0usize..70, 0usize..70), 1..12),
        ) {
            let gapped = |(mut row, from, to): (Vec<f64>, usize, usize)| {
                row.iter_mut().enumerate().filter(|(at, _)| *at < from.min(to) || *at >= from.max(to)).for_each(|(_, value)| *value = ABSENT);
                row
            };
            check_sums(&rows.into_iter().map(gapped).collect::<Vec<_>>())?;
        }

        #[test]
        fn sums_of_any_values_equal_value_by_value_sums(
            rows in prop::collection::vec(prop::collection::vec(number(), 70), 1..12),
        ) {
            check_sums(&rows)?;
        }
    }
}
