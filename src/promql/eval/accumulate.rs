//! What the rows of each group come to: they are added one after the other, each value to what its group has at its step.

use crate::promql::functions::sums::{Mean, Sum, Variance};
use crate::promql::syntax::tree::AggregateOp;
use crate::simd::simd_dispatch;

use super::rows::{ABSENT, is_absent};

/// Groups by steps of something that grows with each row.
pub(super) trait Accumulate: Send {
    /// Adds a row to a group; of two rows the one that is added first comes first.
    fn add(&mut self, group: usize, row: &[f64]);

    /// The groups' rows, one after the other.
    fn finish(self: Box<Self>) -> Vec<f64>;
}

/// Bytes that an accumulator holds for each group and step beside the value that it answers; none for aggregations that
/// are not a matter of adding.
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

/// An accumulator of nothing yet, where there is one. Its memory was paid for: a value and [`extra_bytes`] each.
pub(super) fn accumulator(op: AggregateOp, groups: usize, steps: usize) -> Option<Box<dyn Accumulate>> {
    let absent = || vec![ABSENT; groups * steps];
    Some(match op {
        AggregateOp::Sum => Box::new(Sums::of(groups, steps)),
        AggregateOp::Avg => Box::new(States::of((groups, steps), Mean::of, Mean::add, Mean::value)),
        AggregateOp::Stdvar => {
            Box::new(States::of((groups, steps), Variance::of, Variance::add, Variance::value))
        }
        AggregateOp::Stddev => {
            let deviation = |state: &Variance| state.value().sqrt();
            Box::new(States::of((groups, steps), Variance::of, Variance::add, deviation))
        }
        AggregateOp::Count => {
            Box::new(Values { steps, values: absent(), first: |_| 1.0, add: |count, _| count + 1.0 })
        }
        AggregateOp::Group => Box::new(Values { steps, values: absent(), first: |_| 1.0, add: |one, _| one }),
        AggregateOp::Min => {
            let add = |least: f64, value| if value < least || least.is_nan() { value } else { least };
            Box::new(Values { steps, values: absent(), first: |value| value, add })
        }
        AggregateOp::Max => {
            let add = |most: f64, value| if value > most || most.is_nan() { value } else { most };
            Box::new(Values { steps, values: absent(), first: |value| value, add })
        }
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio
        | AggregateOp::Quantile
        | AggregateOp::CountValues => return None,
    })
}

/// Sums and what they lack, apart: they are added to without a branch for each value.
struct Sums {
    steps: usize,
    sums: Vec<f64>,
    lacking: Vec<f64>,
    /// Of each [`TOGETHER`] steps of each group: rows added, while all of their values were ordinary.
    ordinary: Vec<Option<u32>>,
}

/// Values that are looked at together. Windows of the first steps mostly have no value yet: that is told of a few alone.
const TOGETHER: usize = 32;

/// Far enough from infinity that nothing below leaves the finite numbers.
const ORDINARY_MAX: f64 = 1e300;

/// As many sums of so large values as there may be series are ordinary.
const ORDINARY_VALUE_MAX: f64 = 1e290;

impl Sums {
    fn of(groups: usize, steps: usize) -> Sums {
        let (len, pieces) = (groups * steps, groups * steps.div_ceil(TOGETHER));
        Sums { steps, sums: vec![ABSENT; len], lacking: vec![0.0; len], ordinary: vec![Some(0); pieces] }
    }
}

/// Whether none is further from zero; absence is a NaN, which is not.
#[inline(always)]
fn all_within(values: &[f64], most: f64) -> bool {
    values.iter().fold(true, |all, value| all & (value.abs() <= most))
}

/// Whether none that is there is further from zero.
#[inline(always)]
fn all_within_or_absent(values: &[f64], most: f64) -> bool {
    values.iter().fold(true, |all, value| all & ((value.abs() <= most) | is_absent(*value)))
}

impl Accumulate for Sums {
    fn add(&mut self, group: usize, row: &[f64]) {
        simd_dispatch!(self.add_row(group, row));
    }

    fn finish(self: Box<Self>) -> Vec<f64> {
        let Sums { mut sums, lacking, .. } = *self;
        for (value, rest) in sums.iter_mut().zip(&lacking) {
            if !is_absent(*value) {
                *value = Sum { sum: *value, rest: *rest }.value();
            }
        }
        sums
    }
}

impl Sums {
    #[inline(always)]
    fn add_row(&mut self, group: usize, row: &[f64]) {
        let inside = group * self.steps..(group + 1) * self.steps;
        let pieces = self.steps.div_ceil(TOGETHER);
        let ordinary = &mut self.ordinary[group * pieces..(group + 1) * pieces];
        let sums = self.sums[inside.clone()].chunks_mut(TOGETHER);
        let lacking = self.lacking[inside].chunks_mut(TOGETHER);
        for (((values, sums), lacking), ordinary) in row.chunks(TOGETHER).zip(sums).zip(lacking).zip(ordinary)
        {
            let rows = ordinary.filter(|rows| *rows < u32::MAX && all_within(values, ORDINARY_VALUE_MAX));
            *ordinary = rows.map(|rows| rows + 1);
            match rows {
                Some(0) => sums.copy_from_slice(values),
                // Their sums are ordinary as well.
                Some(_) => add_ordinary(values, sums, lacking),
                None if all_within_or_absent(values, ORDINARY_MAX)
                    && all_within_or_absent(sums, ORDINARY_MAX) =>
                {
                    add_present(values, sums, lacking);
                }
                None => add_any(values, sums, lacking),
            }
        }
    }
}

/// Knuth's sum of two, and what it rounds away: to the bit what Neumaier's choice between greater and less comes to, without
/// a choice.
#[inline(always)]
fn sum_of_two(sum: f64, value: f64) -> (f64, f64) {
    let next = sum + value;
    let of_value = next - sum;
    let of_sum = next - of_value;
    (next, (sum - of_sum) + (value - of_value))
}

#[inline(always)]
fn add_ordinary(values: &[f64], sums: &mut [f64], lacking: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(lacking) {
        let (next, lost) = sum_of_two(*sum, *value);
        *rest += lost;
        *sum = next;
    }
}

/// The same where some of either are absent.
#[inline(always)]
fn add_present(values: &[f64], sums: &mut [f64], lacking: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(lacking) {
        let (next, lost) = sum_of_two(*sum, *value);
        let (no_sum, no_value) = (is_absent(*sum), is_absent(*value));
        *rest = if no_sum | no_value { *rest } else { *rest + lost };
        // The first value is the sum.
        let next = if no_sum { *value } else { next };
        *sum = if no_value { *sum } else { next };
    }
}

fn add_any(values: &[f64], sums: &mut [f64], lacking: &mut [f64]) {
    for ((value, sum), rest) in values.iter().zip(sums).zip(lacking) {
        let mut next = Sum { sum: *sum, rest: *rest };
        next.add(*value);
        // The first value is the sum, whatever absence and it would come to.
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

/// Where the state is the value itself.
struct Values<F, A> {
    steps: usize,
    values: Vec<f64>,
    first: F,
    add: A,
}

impl<F: Fn(f64) -> f64 + Send, A: Fn(f64, f64) -> f64 + Send> Accumulate for Values<F, A> {
    fn add(&mut self, group: usize, row: &[f64]) {
        let states = &mut self.values[group * self.steps..(group + 1) * self.steps];
        let (first, add) = (&self.first, &self.add);
        simd_dispatch!(add_each(row, states, first, add));
    }

    fn finish(self: Box<Self>) -> Vec<f64> {
        self.values
    }
}

/// A state of any kind for each group and step.
struct States<S, F, A, V> {
    steps: usize,
    states: Vec<Option<S>>,
    first: F,
    add: A,
    value: V,
}

impl<S: Copy, F, A, V> States<S, F, A, V> {
    fn of((groups, steps): (usize, usize), first: F, add: A, value: V) -> States<S, F, A, V> {
        States { steps, states: vec![None; groups * steps], first, add, value }
    }
}

impl<S, F, A, V> Accumulate for States<S, F, A, V>
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

    /// Whole rows of 70 steps added at once are, to the bit, what adding value by value comes to.
    fn same_sums(rows: &[Vec<f64>]) -> Result<(), TestCaseError> {
        let mut together = Sums::of(1, 70);
        let (mut sums, mut lacking) = (vec![ABSENT; 70], vec![0.0; 70]);
        for row in rows {
            together.add(0, row);
            add_any(row, &mut sums, &mut lacking);
        }
        let bits = |all: &[f64]| all.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
        prop_assert_eq!(bits(&together.sums), bits(&sums));
        prop_assert_eq!(bits(&together.lacking), bits(&lacking));
        Ok(())
    }

    proptest! {
        #[test]
        fn sums_of_ordinary_rows_are_what_adding_value_by_value_comes_to(
            rows in prop::collection::vec(prop::collection::vec(-1e6..1e6f64, 70), 1..12),
            strange in prop::option::of((0usize..12, 0usize..70, number())),
        ) {
            let mut rows = rows;
            if let Some((row, step, value)) = strange {
                let row = row % rows.len();
                rows[row][step] = value;
            }
            same_sums(&rows)?;
        }

        /// As where the first windows reach back to before the first sample, and series begin and end in between.
        #[test]
        fn sums_of_rows_with_gaps_are_what_adding_value_by_value_comes_to(
            rows in prop::collection::vec((prop::collection::vec(-1e6..1e6f64, 70), 0usize..70, 0usize..70), 1..12),
        ) {
            let gapped = |(mut row, from, to): (Vec<f64>, usize, usize)| {
                row.iter_mut().enumerate().filter(|(at, _)| *at < from.min(to) || *at >= from.max(to)).for_each(|(_, value)| *value = ABSENT);
                row
            };
            same_sums(&rows.into_iter().map(gapped).collect::<Vec<_>>())?;
        }

        #[test]
        fn sums_are_what_adding_value_by_value_comes_to(
            rows in prop::collection::vec(prop::collection::vec(number(), 70), 1..12),
        ) {
            same_sums(&rows)?;
        }
    }
}
