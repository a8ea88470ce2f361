//! Columns of integers: each integer is predicted from those before it, and the prediction errors
//! are packed. [`super::columns`] decodes them.
//!
//! All arithmetic wraps at 64 bits, so any integers are reproduced. With x the column, g a factor
//! that divides every x - first, and q = (x - first) / g:
//! ```text
//! zigzag varint first
//! varint g, if FACTOR is set (else 1)
//! for a second integer and more:
//!   zigzag varint centre c
//!   varint step s, for order 3 alone
//!   errors r, one for each integer but the first:
//!     order 0 level       r = q - c
//!     order 1 difference  r = q - q before - c
//!     order 2 change      r = (q - q before) - (the difference before it; c before the first)
//!     order 3 grid        r = q - c - s x index
//!   SPARSE set    varint count of errors that are not 0 (at most 128), and if there are any: a
//!                 mini of their distances (index - index before - 1, the first's from the start),
//!                 a mini of zigzag(r) - 1; minis as in `pack`
//!   else          zigzag(r), 128 to a mini, fewer in the last one
//! ```

use super::pack::{MINI, MiniNumber as _, bits, low_half, put_list, put_mini};
use crate::tsdb::codec::{put_varint, put_zigzag, unzigzag, zigzag};

/// Flags of a column. The order is in the low two bits.
pub(super) const SPARSE: u8 = 4;
pub(super) const FACTOR: u8 = 8;
/// Mask of all flags.
pub(super) const FLAG_BITS: u8 = 15;

pub(super) const LEVEL: u8 = 0;
pub(super) const DIFFERENCE: u8 = 1;
pub(super) const CHANGE: u8 = 2;
pub(super) const GRID: u8 = 3;

/// The approximate number of errors that are examined to choose a prediction. Examining more takes
/// more time than the saved bytes are worth.
const EXAMINED_ERRORS: usize = 64;
/// Errors from which the centre of a candidate is computed: in short blocks, in long blocks.
const CENTRE_OF: [usize; 2] = [16, 32];
/// Errors, out of all, from which the centre of the chosen prediction is computed.
const CENTRE_AT: usize = 128;

/// The plan for encoding a column.
#[derive(Debug)]
pub(super) struct ColumnPlan {
    pub(super) flags: u8,
    first: i64,
    factor: u64,
    centre: i64,
    step: u64,
    errors: Vec<u64>,
    /// An estimate of the encoded size in bits.
    pub(super) cost: u64,
}

/// Buffers that are reused for each plan.
#[derive(Debug, Default)]
pub(super) struct PlanBuffers {
    q: Vec<i64>,
    raw: Vec<i64>,
    chosen: Vec<i64>,
    /// Buffers of discarded plans.
    errors: Vec<Vec<u64>>,
}

impl PlanBuffers {
    /// Takes back the buffer of a plan.
    pub(super) fn recycle(&mut self, plan: ColumnPlan) {
        // At most three plans exist at a time.
        if self.errors.len() < 3 {
            self.errors.push(plan.errors);
        }
    }
}

/// Divides the integers by their greatest common factor. Returns the first integer and the factor.
fn divide_by_common_factor(column: &[i64], q: &mut Vec<i64>) -> (i64, u64) {
    let first = column.first().copied().unwrap_or_default();
    let mut factor = 0u64;
    for x in column {
        let distance = x.wrapping_sub(first).unsigned_abs();
        if factor == 0 {
            factor = distance;
        } else if !divides(factor, distance) {
            factor = greatest_common_divisor(factor, distance);
            if factor == 1 {
                break;
            }
        }
    }
    // A greater factor does not fit a positive i64, or leaves few distinct numbers anyway.
    let factor = if factor > 1 << 62 { 1 } else { factor.max(1) };
    let divisor = factor.cast_signed();
    q.clear();
    if factor.is_power_of_two() {
        q.extend(column.iter().map(|x| x.wrapping_sub(first) >> factor.trailing_zeros()));
    } else {
        q.extend(column.iter().map(|x| x.wrapping_sub(first) / divisor));
    }
    (first, factor)
}

/// Returns whether `factor` divides `number`.
const fn divides(factor: u64, number: u64) -> bool {
    // Powers of two are the usual factors, and need no division.
    if factor.is_power_of_two() { number & (factor - 1) == 0 } else { number.is_multiple_of(factor) }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A predictor of an integer from those before it. Its errors are centred afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Predictor {
    number: u8,
    /// The step of a grid; 0 for other orders.
    step: u64,
}

impl Predictor {
    const fn new(number: u8) -> Predictor {
        Predictor { number, step: 0 }
    }

    /// Replaces `raw` with the first error and every `stride`th of the others, before centring.
    fn sample_errors(self, q: &[i64], stride: usize, raw: &mut Vec<i64>) {
        raw.clear();
        let [a, b, ..] = q else { return };
        let threes = q.windows(3).step_by(stride).filter_map(|three| three.first_chunk());
        match self.number {
            LEVEL => {
                raw.push(*b);
                raw.extend(threes.map(|[_, _, c]| *c));
            }
            DIFFERENCE => {
                raw.push(b.wrapping_sub(*a));
                raw.extend(threes.map(|[_, b, c]| c.wrapping_sub(*b)));
            }
            CHANGE => {
                // The first difference is the centre.
                raw.push(0);
                raw.extend(threes.map(|[a, b, c]| c.wrapping_sub(*b).wrapping_sub(b.wrapping_sub(*a))));
            }
            _ => {
                let mut grid = self.step.cast_signed();
                raw.push(b.wrapping_sub(grid));
                let stride = self.step.cast_signed().wrapping_mul(i64::try_from(stride).unwrap_or(1));
                raw.extend(threes.map(|[_, _, c]| {
                    grid = grid.wrapping_add(stride);
                    c.wrapping_sub(grid)
                }));
            }
        }
    }

    /// Replaces `errors` with all centred errors in zigzag encoding.
    fn fold(self, q: &[i64], centre: i64, errors: &mut Vec<u64>) {
        errors.clear();
        let rest = q.get(1..).unwrap_or_default();
        match self.number {
            LEVEL => errors.extend(rest.iter().map(|x| zigzag(x.wrapping_sub(centre)))),
            DIFFERENCE => {
                errors
                    .extend(q.iter().zip(rest).map(|(a, b)| zigzag(b.wrapping_sub(*a).wrapping_sub(centre))));
            }
            CHANGE => {
                errors.extend(rest.first().map(|_| 0));
                errors.extend(
                    q.windows(3)
                        .filter_map(|three| three.first_chunk())
                        .map(|[a, b, c]| zigzag(c.wrapping_sub(*b).wrapping_sub(b.wrapping_sub(*a)))),
                );
            }
            _ => {
                let mut grid = centre;
                errors.extend(rest.iter().map(|x| {
                    grid = grid.wrapping_add(self.step.cast_signed());
                    zigzag(x.wrapping_sub(grid))
                }));
            }
        }
    }
}

/// Returns the median of at most `most` evenly spaced errors, or 0 if more than an eighth of them
/// are 0.
fn centre_of(errors: &[i64], most: usize, chosen: &mut Vec<i64>) -> i64 {
    let stride = errors.len().div_ceil(most).max(1);
    chosen.clear();
    if stride == 1 {
        chosen.extend_from_slice(errors);
    } else {
        chosen.extend(errors.iter().step_by(stride));
    }
    if chosen.iter().filter(|error| **error == 0).count() * 8 > chosen.len() || chosen.is_empty() {
        return 0;
    }
    let middle = chosen.len() / 2;
    *chosen.select_nth_unstable(middle).1
}

/// Estimates the bits that errors take with this centre.
fn cost_of(raw: &[i64], centre: i64) -> u64 {
    let errors = || raw.iter().map(|error| zigzag(error.wrapping_sub(centre)));
    raw.len() as u64 + lengths(errors)
}

/// Returns the sum of the significant bits of all numbers.
fn lengths<I: Iterator<Item = u64>>(numbers: impl Fn() -> I) -> u64 {
    if numbers().fold(0, |all, number| all | number) >> 31 == 0 {
        u64::from(numbers().map(|number| low_half(number).length()).sum::<u32>())
    } else {
        numbers().map(|number| u64::from(bits(number))).sum()
    }
}

/// A predictor and its cost.
struct PredictorChoice {
    order: Predictor,
    cost: u64,
    /// Number of examined errors.
    seen: u64,
}

/// Returns the best predictor, judged by every `stride`th error.
fn choose(
    q: &[i64],
    stride: usize,
    steps: &[u64],
    raw: &mut Vec<i64>,
    chosen: &mut Vec<i64>,
) -> PredictorChoice {
    let mut best = PredictorChoice { order: Predictor::new(LEVEL), cost: u64::MAX, seen: 0 };
    let [short, long] = CENTRE_OF;
    let most = if q.len() > 128 { long } else { short };
    let grids = steps.iter().map(|step| Predictor { number: GRID, step: *step });
    for order in [LEVEL, DIFFERENCE, CHANGE].map(Predictor::new).into_iter().chain(grids) {
        order.sample_errors(q, stride, raw);
        let centre = if order.number == CHANGE { 0 } else { centre_of(raw, most, chosen) };
        let (cost, seen) = (cost_of(raw, centre), raw.len() as u64);
        if cost < best.cost {
            best = PredictorChoice { order, cost, seen };
        }
        if best.cost == seen {
            // All examined integers are predicted exactly, so no other predictor is better.
            break;
        }
    }
    best
}

/// Plans the encoding of a column of at least one integer. `grids` also tries regular grids.
pub(super) fn plan(scratch: &mut PlanBuffers, column: &[i64], grids: bool) -> ColumnPlan {
    let PlanBuffers { q, raw, chosen, errors } = scratch;
    let (first, factor) = divide_by_common_factor(column, q);
    let mut errors = errors.pop().unwrap_or_default();
    let steps = if grids { steps(q) } else { Vec::new() };
    // An odd stride does not coincide with most periods of the data.
    let stride = if grids { 1 } else { (q.len() / EXAMINED_ERRORS) | 1 };
    let mut best = choose(q, stride, &steps, raw, chosen);
    if stride > 1 && best.cost < best.seen * 2 {
        // There are few errors, so each of them matters.
        best = choose(q, 1, &steps, raw, chosen);
    }
    let order = best.order;
    let centre = if order.number == CHANGE {
        first_of_differences(q)
    } else {
        order.sample_errors(q, (q.len() / CENTRE_AT) | 1, raw);
        centre_of(raw, usize::MAX, chosen)
    };
    order.fold(q, centre, &mut errors);
    let cost = errors.len() as u64 + lengths(|| errors.iter().copied());
    let odd = errors.iter().filter(|error| **error != 0).count();
    let sparse = if odd * 10 < errors.len() && odd <= MINI { SPARSE } else { 0 };
    let flags = order.number | sparse | if factor == 1 { 0 } else { FACTOR };
    ColumnPlan { flags, first, factor, centre, step: order.step, errors, cost }
}

/// Returns the steps that a regular sender may use: the mean one, and round numbers near it.
fn steps(q: &[i64]) -> Vec<u64> {
    let last = q.last().copied().unwrap_or_default();
    let count = i64::try_from(q.len()).unwrap_or(i64::MAX).saturating_sub(1).max(1);
    let mean = last / count;
    let near = |round: i64| mean.saturating_add(round / 2) / round * round;
    [1, 10, 100, 500, 1_000].map(near).into_iter().filter(|step| *step > 0).map(i64::cast_unsigned).collect()
}

/// Returns the first difference, or 0 if there is only one integer.
fn first_of_differences(q: &[i64]) -> i64 {
    match q {
        [a, b, ..] => b.wrapping_sub(*a),
        _ => 0,
    }
}

impl ColumnPlan {
    /// Returns whether the column has minis that can only be decoded one after another.
    pub(super) fn is_long(&self) -> bool {
        self.flags & SPARSE == 0 && self.errors.len() > MINI
    }

    /// Turns this into the plan of the column from its last integer to its first. Each error is
    /// between the same two or three integers, seen from the other side. `column` must be the
    /// planned one. Grids are left unchanged.
    pub(super) fn turn(&mut self, column: &[i64]) {
        let [first, .., before, last] = column else {
            return;
        };
        let factor = self.factor.cast_signed();
        let part = |distance: i64| {
            if factor == 1 { distance } else { distance / factor }
        };
        match self.flags & 3 {
            LEVEL => {
                // The last integer needs no error any more, and the first one does.
                self.errors.pop();
                self.errors.reverse();
                let centre = self.centre;
                self.centre = centre.wrapping_sub(part(last.wrapping_sub(*first)));
                self.errors.push(zigzag(0i64.wrapping_sub(centre)));
            }
            DIFFERENCE => {
                self.errors.reverse();
                for error in &mut self.errors {
                    *error = zigzag(0i64.wrapping_sub(unzigzag(*error)));
                }
                self.centre = 0i64.wrapping_sub(self.centre);
            }
            CHANGE => {
                // The first difference is the centre, from either side.
                if let Some((_, rest)) = self.errors.split_first_mut() {
                    rest.reverse();
                }
                let [before, last] = [before, last].map(|x| part(x.wrapping_sub(*first)));
                self.centre = before.wrapping_sub(last);
            }
            _ => return,
        }
        self.first = *last;
    }

    /// Appends the column, without the flags, which the caller writes. Returns the end of its first
    /// mini, if it has one.
    pub(super) fn put(&self, out: &mut Vec<u8>) -> usize {
        put_zigzag(out, self.first);
        if self.flags & FACTOR != 0 {
            put_varint(out, self.factor);
        }
        if self.errors.is_empty() {
            return out.len();
        }
        put_zigzag(out, self.centre);
        if self.flags & 3 == GRID {
            put_varint(out, self.step);
        }
        if self.flags & SPARSE == 0 {
            let (first, rest) = self.errors.split_at(self.errors.len().min(MINI));
            put_mini(out, first);
            let end = out.len();
            put_list(out, rest);
            return end;
        }
        let (mut gaps, mut odd) = (Vec::new(), Vec::new());
        let mut next = 0;
        for (index, error) in (0u64..).zip(&self.errors) {
            if *error != 0 {
                gaps.push(index - next);
                odd.push(error - 1);
                next = index + 1;
            }
        }
        put_varint(out, gaps.len() as u64);
        if !gaps.is_empty() {
            put_mini(out, &gaps);
            put_mini(out, &odd);
        }
        out.len()
    }
}
