//! What rows are called that get a label of another row, or a new one: rows of a new table for each table that theirs are of.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{LabelColumn, LabelMask, LabelTable, LabelValues, Labels};

use super::rows::Head;

/// A table of which fewer than this part of the rows are left, or fewer rows than this, is not made anew.
const PART: usize = 4;
const TABLE_MIN: usize = 8;

/// A label of the one side.
struct Included {
    name: Arc<str>,
    texts: Vec<Arc<str>>,
    /// Of each pair one more than its text's place, or 0 where its one side lacks the label.
    of_pairs: Vec<u32>,
}

impl Included {
    fn of(name: &str, one: &[Head], pairs: &[(usize, usize)]) -> Included {
        let mut texts: Vec<Arc<str>> = Vec::new();
        let mut known: RapidHashMap<&str, u32> = RapidHashMap::default();
        let mut of_rows: Vec<Option<u32>> = vec![None; one.len()];
        let mut place = |row: usize| {
            let Some(text) = one[row].labels.get(name) else { return 0 };
            *known.entry(text).or_insert_with(|| {
                texts.push(Arc::clone(text));
                u32::try_from(texts.len()).unwrap_or(u32::MAX)
            })
        };
        let of_pair = |(_, row): &(usize, usize)| *of_rows[*row].get_or_insert_with(|| place(*row));
        let of_pairs = pairs.iter().map(of_pair).collect();
        Included { name: name.into(), texts, of_pairs }
    }
}

/// Gives the many side's rows of all pairs the labels `called` says, which are those it `keeps` and those of these names of
/// the one side, which stand in the place of its own.
pub(super) fn include(
    many: &mut [Head],
    one: &[Head],
    (pairs, names): (&[(usize, usize)], &[String]),
    keeps: impl Fn(&str) -> bool,
    called: impl Fn(&Labels, &Labels) -> Labels,
) {
    let mut included: Vec<Included> = Vec::new();
    for name in names {
        if included.iter().all(|have| *have.name != **name) {
            included.push(Included::of(name, one, pairs));
        }
    }
    let rows: Vec<usize> = pairs.iter().map(|(row, _)| *row).collect();
    let called = |labels: &Labels, pair: usize| called(labels, &one[pairs[pair].1].labels);
    give(many, &rows, &included, keeps, called);
}

/// Sets one label of all rows: to one of these texts, which all differ; `of_rows` has one more than its place, or 0 for none.
pub(super) fn set_label(heads: &mut [Head], name: &str, texts: Vec<Arc<str>>, of_rows: Vec<u32>) {
    let rows: Vec<usize> = (0..heads.len()).collect();
    let label = Included { name: name.into(), texts, of_pairs: of_rows };
    let called = |labels: &Labels, row: usize| {
        let place = label.of_pairs[row].checked_sub(1);
        let text = place.and_then(|place| label.texts.get(place as usize));
        let mut builder = labels.to_builder();
        builder.set(Arc::clone(&label.name), text.map_or_else(|| Arc::from(""), Arc::clone));
        builder.build()
    };
    give(heads, &rows, std::slice::from_ref(&label), |_| true, called);
}

/// Gives these rows, the pairs' many sides, the labels they keep and those that are included; `called` says the same of
/// labels and a pair, for what is not worth a table.
fn give(
    many: &mut [Head],
    rows: &[usize],
    included: &[Included],
    keeps: impl Fn(&str) -> bool,
    called: impl Fn(&Labels, usize) -> Labels,
) {
    let stays = |name: &str| keeps(name) && included.iter().all(|label| *label.name != *name);
    // The pairs of each table.
    let mut tables: Vec<(Arc<LabelTable>, Vec<usize>)> = Vec::new();
    let mut places: RapidHashMap<usize, usize> = RapidHashMap::default();
    let mut others: Vec<usize> = Vec::new();
    for (pair, row) in rows.iter().enumerate() {
        let Some((table, ..)) = many[*row].labels.row() else {
            others.push(pair);
            continue;
        };
        let place = *places.entry(Arc::as_ptr(table).addr()).or_insert(tables.len());
        match tables.get_mut(place) {
            Some((_, of_table)) => of_table.push(pair),
            None => tables.push((Arc::clone(table), vec![pair])),
        }
    }
    for (table, of_table) in tables {
        let rows_of = || of_table.iter().filter_map(|pair| many[rows[*pair]].labels.row());
        let few = of_table.len() < TABLE_MIN || of_table.len().saturating_mul(PART) < table.rows();
        let made = if few {
            None
        } else {
            made(&table, rows_of().map(|(_, row, _)| row), &of_table, included, stays)
        };
        let Some(Made { table: made, moved, new }) = made else {
            others.extend(of_table);
            continue;
        };
        let mut last: Option<(LabelMask, LabelMask)> = None;
        for (number, pair) in (0u32..).zip(&of_table) {
            let labels = &mut many[rows[*pair]].labels;
            let has = labels.row().map_or(0, |(_, _, has)| has);
            let kept = match last {
                Some((of, kept)) if of == has => kept,
                _ => {
                    let bits = moved.iter().map(|(from, to)| (has >> from & 1) << to);
                    bits.fold(0, |mask, bit| mask | bit)
                }
            };
            last = Some((has, kept));
            let mask = new.iter().fold(kept, |mask, (label, to)| {
                mask | LabelMask::from(included[*label].of_pairs[*pair] > 0) << to
            });
            *labels = Labels::of_row(&made, number, mask);
        }
    }
    for pair in others {
        let labels = &mut many[rows[pair]].labels;
        *labels = called(labels, pair);
    }
}

/// A table of what pairs are called.
struct Made {
    table: Arc<LabelTable>,
    /// Columns of the old table that stay, and where they are now.
    moved: Vec<(usize, usize)>,
    /// Labels that are included, and their columns.
    new: Vec<(usize, usize)>,
}

/// Where a column is from.
enum From<'c> {
    Old(usize, &'c LabelColumn),
    New(usize, &'c Included),
}

impl From<'_> {
    fn name(&self) -> &Arc<str> {
        match self {
            From::Old(_, column) => &column.name,
            From::New(_, label) => &label.name,
        }
    }
}

/// None where it would have too many columns.
fn made(
    table: &LabelTable,
    rows: impl Iterator<Item = u32>,
    pairs: &[usize],
    included: &[Included],
    stays: impl Fn(&str) -> bool,
) -> Option<Made> {
    let rows: Vec<usize> = rows.map(|row| row as usize).collect();
    let old = table.columns().iter().enumerate().filter(|(_, column)| stays(&column.name));
    let new = included.iter().enumerate().filter(|(_, label)| !label.texts.is_empty());
    let mut from: Vec<From<'_>> = old.map(|(at, column)| From::Old(at, column)).collect();
    from.extend(new.map(|(at, label)| From::New(at, label)));
    from.sort_by(|a, b| a.name().cmp(b.name()));
    let (mut columns, mut moved, mut new) = (Vec::with_capacity(from.len()), Vec::new(), Vec::new());
    for (to, from) in from.iter().enumerate() {
        let values = match from {
            From::Old(at, column) => {
                moved.push((*at, to));
                match &column.values {
                    LabelValues::Same(text) => LabelValues::Same(Arc::clone(text)),
                    LabelValues::Each { texts, places } => {
                        let places = rows.iter().map(|row| places[*row]).collect();
                        LabelValues::Each { texts: texts.clone(), places }
                    }
                }
            }
            From::New(at, label) => {
                new.push((*at, to));
                let places = pairs.iter().map(|pair| label.of_pairs[*pair].saturating_sub(1)).collect();
                LabelValues::Each { texts: label.texts.clone(), places }
            }
        };
        columns.push(LabelColumn { name: Arc::clone(from.name()), values });
    }
    let table = Arc::new(LabelTable::new(columns, rows.len(), false)?);
    Some(Made { table, moved, new })
}
