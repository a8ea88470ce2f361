//! What an expression yields while it is evaluated: rows of values, one for each series, one value for each step.
//!
//! A step without a value holds [`ABSENT`]: the staleness marker's bits. No result can be that NaN: the store's markers
//! are filtered where samples are read, and arithmetic only makes quiet NaNs, which these bits are not.

use std::collections::HashMap;
use std::rc::Rc;

use crate::model::{Labels, METRIC_NAME, STALE_NAN_BITS};
use crate::promql::QueryError;
use crate::promql::budget::{Charge, Meter};

/// No value at this step.
pub(super) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Whether there is no value.
#[inline]
pub(super) fn is_absent(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// The steps something is evaluated at; may be none, inside a subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) start_ms: i64,
    pub(super) step_ms: i64,
    pub(super) len: usize,
}

impl Grid {
    /// The time of the `i`-th step; saturates.
    pub(super) fn at(&self, i: usize) -> i64 {
        let ahead = self.step_ms.saturating_mul(i64::try_from(i).unwrap_or(i64::MAX));
        self.start_ms.saturating_add(ahead)
    }

    pub(super) fn last(&self) -> i64 {
        self.at(self.len.saturating_sub(1))
    }

    /// The first step alone.
    pub(super) fn once(&self) -> Grid {
        Grid { start_ms: self.start_ms, step_ms: self.step_ms, len: self.len.min(1) }
    }
}

/// Whose a row is.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) labels: Labels,
    /// The name goes at the end of the query (delayed name removal).
    pub(super) drops_name: bool,
}

/// Rows of one value per step. No two rows of a finished node have equal labels, and none is without any value.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) heads: Vec<Head>,
    /// Row by row, `steps` each.
    values: Vec<f64>,
    steps: usize,
    charge: Charge,
}

/// One number for each step.
#[derive(Debug)]
pub(super) struct Scalars {
    pub(super) values: Vec<f64>,
    _charge: Charge,
}

impl Scalars {
    /// `len` times `value`, paid before it is allocated.
    pub(super) fn filled(meter: &Rc<Meter>, len: usize, value: f64) -> Result<Scalars, QueryError> {
        let mut charge = meter.charge();
        charge.add_values(len)?;
        charge.add_samples(len)?;
        Ok(Scalars { values: vec![value; len], _charge: charge })
    }
}

/// What two rows of equal labels mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    /// They are one series, unless both have a value at one step.
    Merge,
    /// An error, as upstream has it for functions of windows.
    Refuse,
}

impl Rows {
    pub(super) fn new(meter: &Rc<Meter>, steps: usize) -> Rows {
        Rows { heads: Vec::new(), values: Vec::new(), steps, charge: meter.charge() }
    }

    /// Pays for and allocates up to `rows` rows; they still have to be pushed.
    pub(super) fn with_room(meter: &Rc<Meter>, rows: usize, steps: usize) -> Result<Rows, QueryError> {
        let mut charge = meter.charge();
        charge.add_rows(rows, steps)?;
        let values = Vec::with_capacity(rows.saturating_mul(steps));
        Ok(Rows { heads: Vec::with_capacity(rows), values, steps, charge })
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(super) fn row(&self, i: usize) -> &[f64] {
        let from = i * self.steps;
        &self.values[from..from + self.steps]
    }

    pub(super) fn row_mut(&mut self, i: usize) -> &mut [f64] {
        let from = i * self.steps;
        &mut self.values[from..from + self.steps]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Head, &[f64])> {
        self.heads.iter().enumerate().map(|(i, head)| (head, self.row(i)))
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// The heads to change, and the charge for what that takes.
    pub(super) fn heads_and_charge(&mut self) -> (&mut [Head], &mut Charge) {
        (&mut self.heads, &mut self.charge)
    }

    /// Adds a row without values, in room that was paid for by [`Rows::with_room`].
    pub(super) fn push_absent(&mut self, head: Head) -> &mut [f64] {
        self.heads.push(head);
        self.values.resize(self.heads.len() * self.steps, ABSENT);
        self.row_mut(self.heads.len() - 1)
    }

    /// Adds a row without values and pays for it.
    pub(super) fn push_paid(&mut self, head: Head) -> Result<&mut [f64], QueryError> {
        self.charge.add_rows(1, self.steps)?;
        Ok(self.push_absent(head))
    }

    /// Takes the last row back where it stayed without values; else counts its samples.
    pub(super) fn settle_last(&mut self) -> Result<(), QueryError> {
        let Some(last) = self.heads.len().checked_sub(1) else { return Ok(()) };
        let present = self.row(last).iter().filter(|value| !is_absent(**value)).count();
        if present == 0 {
            self.heads.pop();
            self.values.truncate(last * self.steps);
        }
        self.charge.add_samples(present)
    }

    /// Counts all present samples, for rows whose rows were filled side by side.
    pub(super) fn settle_all(&mut self) -> Result<(), QueryError> {
        self.drop_empty();
        let present = self.values.iter().filter(|value| !is_absent(**value)).count();
        self.charge.add_samples(present)
    }

    /// Removes rows that have no value at any step.
    pub(super) fn drop_empty(&mut self) {
        let steps = self.steps;
        let mut kept = 0;
        for i in 0..self.heads.len() {
            if self.row(i).iter().all(|value| is_absent(*value)) {
                continue;
            }
            if kept != i {
                self.heads.swap(kept, i);
                self.values.copy_within(i * steps..(i + 1) * steps, kept * steps);
            }
            kept += 1;
        }
        self.heads.truncate(kept);
        self.values.truncate(kept * steps);
    }

    /// Rows in the order of `places`, each a row's index.
    pub(super) fn reordered(mut self, places: &[usize]) -> Rows {
        let heads = places.iter().map(|i| self.heads[*i].clone()).collect();
        let values = places.iter().flat_map(|i| self.row(*i).iter().copied()).collect();
        self.heads = heads;
        self.values = values;
        self
    }

    /// Rows of more steps, all with the value of the only one there is.
    pub(super) fn repeated(self, meter: &Rc<Meter>, steps: usize) -> Result<Rows, QueryError> {
        if steps == self.steps {
            return Ok(self);
        }
        let mut out = Rows::with_room(meter, self.len(), steps)?;
        for (i, head) in self.heads.iter().enumerate() {
            let value = self.row(i).first().copied().unwrap_or(ABSENT);
            out.push_absent(head.clone()).fill(value);
            out.settle_last()?;
        }
        Ok(out)
    }

    /// Makes rows of equal labels one, or refuses.
    pub(super) fn merged(mut self, duplicates: Duplicates) -> Result<Rows, QueryError> {
        if self.heads.len() < 2 {
            return Ok(self);
        }
        let mut first_of: HashMap<Labels, usize> = HashMap::with_capacity(self.heads.len());
        let mut merged = false;
        for i in 0..self.heads.len() {
            let into = *first_of.entry(self.heads[i].labels.clone()).or_insert(i);
            if into == i {
                continue;
            }
            if duplicates == Duplicates::Refuse {
                return Err(same_labelset());
            }
            let (before, after) = self.values.split_at_mut(i * self.steps);
            let target = &mut before[into * self.steps..(into + 1) * self.steps];
            for (have, value) in target.iter_mut().zip(&mut after[..self.steps]) {
                if is_absent(*value) {
                    continue;
                }
                if !is_absent(*have) {
                    return Err(same_labelset());
                }
                *have = std::mem::replace(value, ABSENT);
            }
            let drops_name = self.heads[i].drops_name;
            self.heads[into].drops_name |= drops_name;
            merged = true;
        }
        if merged {
            self.drop_empty();
        }
        Ok(self)
    }

    /// Takes names off: at once, or marked for the end of the query.
    pub(super) fn without_names(mut self, delayed: bool, duplicates: Duplicates) -> Result<Rows, QueryError> {
        if delayed {
            for head in &mut self.heads {
                head.drops_name = true;
            }
            return Ok(self);
        }
        // Where all have one name (or none), taking it off cannot make two of them equal.
        let mut names = self.heads.iter().map(|head| metadata(&head.labels));
        let first = names.next();
        let unique = names.all(|name| Some(name) == first);
        for head in &mut self.heads {
            head.labels = nameless(&head.labels);
        }
        if unique { Ok(self) } else { self.merged(duplicates) }
    }

    /// Carries out the removals that were marked.
    pub(super) fn clean(mut self) -> Result<Rows, QueryError> {
        if self.heads.iter().all(|head| !head.drops_name) {
            return Ok(self);
        }
        for head in &mut self.heads {
            if head.drops_name {
                head.labels = nameless(&head.labels);
                head.drops_name = false;
            }
        }
        self.merged(Duplicates::Merge)
    }
}

/// The error of two equal label sets at one step.
pub(super) fn same_labelset() -> QueryError {
    QueryError::execution("vector cannot contain metrics with the same labelset")
}

/// The labels that go with the metric's name.
pub(super) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == "__unit__"
}

fn metadata(labels: &Labels) -> [&str; 3] {
    [labels.value(METRIC_NAME), labels.value("__type__"), labels.value("__unit__")]
}

/// The labels without the metric's name.
pub(super) fn nameless(labels: &Labels) -> Labels {
    labels.filtered(|name| !is_metadata(name))
}
