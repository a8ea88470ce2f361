//! Labels that rows get from other rows or from `label_replace` and `label_join`. Builds a new
//! table for each label table of the rows.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{LabelColumn, LabelMask, LabelTable, LabelValues, Labels};

use super::rows::RowHead;

/// A new table is built only if at least one in `SHARE_MIN` rows of the old table remain, and at
/// least `TABLE_MIN` rows.
const SHARE_MIN: usize = 4;
const TABLE_MIN: usize = 8;

/// A label that is added to rows, for example by `group_left`.
struct IncludedLabel {
    name: Arc<str>,
    texts: Vec<Arc<str>>,
    /// For each pair one more than the index of its text, or 0 if its one side lacks the label.
    of_pairs: Vec<u32>,
}

impl IncludedLabel {
    fn of(name: &str, one: &[RowHead], pairs: &[(usize, usize)]) -> IncludedLabel {
        let mut texts: Vec<Arc<str>> = Vec::new();
        let mut numbers: RapidHashMap<&str, u32> = RapidHashMap::default();
        let mut of_rows: Vec<Option<u32>> = vec![None; one.len()];
        let mut index = |row: usize| {
            let Some(text) = one[row].labels.get(name) else { return 0 };
            *numbers.entry(text).or_insert_with(|| {
                texts.push(Arc::clone(text));
                u32::try_from(texts.len()).unwrap_or(u32::MAX)
            })
        };
        let of_pair = |(_, row): &(usize, usize)| *of_rows[*row].get_or_insert_with(|| index(*row));
        let of_pairs = pairs.iter().map(of_pair).collect();
        IncludedLabel { name: name.into(), texts, of_pairs }
    }
}

/// Sets the labels of the many side's rows in all pairs to those returned by `labels_of`. These
/// must be the labels that the row `keeps` and the labels of the one side with the given names,
/// which replace the row's own.
pub(super) fn include(
    many: &mut [RowHead],
    one: &[RowHead],
    pairs: &[(usize, usize)],
    names: &[String],
    keeps: impl Fn(&str) -> bool,
    labels_of: impl Fn(&Labels, &Labels) -> Labels,
) {
    let mut included: Vec<IncludedLabel> = Vec::new();
    for name in names {
        if included.iter().all(|have| *have.name != **name) {
            included.push(IncludedLabel::of(name, one, pairs));
        }
    }
    let rows: Vec<usize> = pairs.iter().map(|(row, _)| *row).collect();
    let labels_of = |labels: &Labels, pair: usize| labels_of(labels, &one[pairs[pair].1].labels);
    set_labels(many, &rows, &included, keeps, labels_of);
}

/// Sets one label of all rows. `texts` are its different values; `of_rows` has one more than the
/// index of each row's value, or 0 to remove the label.
pub(super) fn set_label(heads: &mut [RowHead], name: &str, texts: Vec<Arc<str>>, of_rows: Vec<u32>) {
    let rows: Vec<usize> = (0..heads.len()).collect();
    let label = IncludedLabel { name: name.into(), texts, of_pairs: of_rows };
    let labels_of = |labels: &Labels, row: usize| {
        let index = label.of_pairs[row].checked_sub(1);
        let text = index.and_then(|index| label.texts.get(index as usize));
        let mut builder = labels.to_builder();
        builder.set(Arc::clone(&label.name), text.map_or_else(|| Arc::from(""), Arc::clone));
        builder.build()
    };
    set_labels(heads, &rows, std::slice::from_ref(&label), |_| true, labels_of);
}

/// Sets the labels of these rows to the labels they keep and the included ones. `labels_of` returns
/// the same labels for a single pair; it is used if a table does not pay off.
fn set_labels(
    many: &mut [RowHead],
    rows: &[usize],
    included: &[IncludedLabel],
    keeps: impl Fn(&str) -> bool,
    labels_of: impl Fn(&Labels, usize) -> Labels,
) {
    let keeps_column = |name: &str| keeps(name) && included.iter().all(|label| *label.name != *name);
    // The pairs of each table.
    let mut tables: Vec<(Arc<LabelTable>, Vec<usize>)> = Vec::new();
    let mut indices: RapidHashMap<usize, usize> = RapidHashMap::default();
    let mut others: Vec<usize> = Vec::new();
    for (pair, row) in rows.iter().enumerate() {
        let Some((table, ..)) = many[*row].labels.row() else {
            others.push(pair);
            continue;
        };
        let index = *indices.entry(Arc::as_ptr(table).addr()).or_insert(tables.len());
        match tables.get_mut(index) {
            Some((_, of_table)) => of_table.push(pair),
            None => tables.push((Arc::clone(table), vec![pair])),
        }
    }
    for (table, of_table) in tables {
        let rows_of = || of_table.iter().filter_map(|pair| many[rows[*pair]].labels.row());
        let few = of_table.len() < TABLE_MIN || of_table.len().saturating_mul(SHARE_MIN) < table.rows();
        let built = if few {
            None
        } else {
            build_table(&table, rows_of().map(|(_, row, _)| row), &of_table, included, keeps_column)
        };
        let Some(PairTable { table: new_table, moved, new }) = built else {
            others.extend(of_table);
            continue;
        };
        let mut last: Option<(LabelMask, LabelMask)> = None;
        for (number, pair) in (0u32..).zip(&of_table) {
            let labels = &mut many[rows[*pair]].labels;
            let mask_of_row = labels.row().map_or(0, |(_, _, mask_of_row)| mask_of_row);
            let kept = match last {
                Some((of, kept)) if of == mask_of_row => kept,
                _ => {
                    let bits = moved.iter().map(|(from, to)| (mask_of_row >> from & 1) << to);
                    bits.fold(0, |mask, bit| mask | bit)
                }
            };
            last = Some((mask_of_row, kept));
            let mask = new.iter().fold(kept, |mask, (label, to)| {
                mask | LabelMask::from(included[*label].of_pairs[*pair] > 0) << to
            });
            *labels = Labels::of_row(&new_table, number, mask);
        }
    }
    for pair in others {
        let labels = &mut many[rows[pair]].labels;
        *labels = labels_of(labels, pair);
    }
}

/// The new label table of some pairs.
struct PairTable {
    table: Arc<LabelTable>,
    /// Columns of the old table that are kept: old and new index.
    moved: Vec<(usize, usize)>,
    /// Included labels: index of the label and of its column.
    new: Vec<(usize, usize)>,
}

/// The origin of a column.
enum ColumnSource<'c> {
    Old(usize, &'c LabelColumn),
    New(usize, &'c IncludedLabel),
}

impl ColumnSource<'_> {
    fn name(&self) -> &Arc<str> {
        match self {
            ColumnSource::Old(_, column) => &column.name,
            ColumnSource::New(_, label) => &label.name,
        }
    }
}

/// Builds the new table. Returns `None` if it would have too many columns.
fn build_table(
    table: &LabelTable,
    rows: impl Iterator<Item = u32>,
    pairs: &[usize],
    included: &[IncludedLabel],
    keeps_column: impl Fn(&str) -> bool,
) -> Option<PairTable> {
    let rows: Vec<usize> = rows.map(|row| row as usize).collect();
    let old = table.columns().iter().enumerate().filter(|(_, column)| keeps_column(&column.name));
    let new = included.iter().enumerate().filter(|(_, label)| !label.texts.is_empty());
    let mut from: Vec<ColumnSource<'_>> = old.map(|(at, column)| ColumnSource::Old(at, column)).collect();
    from.extend(new.map(|(at, label)| ColumnSource::New(at, label)));
    from.sort_by(|a, b| a.name().cmp(b.name()));
    let (mut columns, mut moved, mut new) = (Vec::with_capacity(from.len()), Vec::new(), Vec::new());
    for (to, from) in from.iter().enumerate() {
        let values = match from {
            ColumnSource::Old(at, column) => {
                moved.push((*at, to));
                match &column.values {
                    LabelValues::Same(text) => LabelValues::Same(Arc::clone(text)),
                    LabelValues::Each { texts, places } => {
                        let places = rows.iter().map(|row| places[*row]).collect();
                        LabelValues::Each { texts: texts.clone(), places }
                    }
                }
            }
            ColumnSource::New(at, label) => {
                new.push((*at, to));
                let places = pairs.iter().map(|pair| label.of_pairs[*pair].saturating_sub(1)).collect();
                LabelValues::Each { texts: label.texts.clone(), places }
            }
        };
        columns.push(LabelColumn { name: Arc::clone(from.name()), values });
    }
    let table = Arc::new(LabelTable::new(columns, rows.len(), false)?);
    Some(PairTable { table, moved, new })
}
