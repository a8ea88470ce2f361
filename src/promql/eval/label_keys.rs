//! Numbers for label sets that are distinguished by some of their labels.
//!
//! Each label value gets a number, once for all rows of a label table that have it. The numbers of
//! a label set's values are combined into one integer key, and only keys are compared.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{LabelMask, LabelTable, LabelValues, Labels};

/// The numbers of label sets.
pub(super) struct LabelSetNumbers<'l> {
    /// The number of each label set, from 0 in order of first appearance.
    pub(super) of: Vec<u32>,
    /// The index of the first label set of each number.
    pub(super) firsts: Vec<usize>,
    /// The names of all labels that were compared, in no order.
    pub(super) names: Vec<&'l str>,
}

/// Bytes that [`number_label_sets`] allocates for each label set at its peak: references, rows,
/// codes, keys, the table by keys, the numbers, and the indices of the first label sets.
pub(super) const NUMBERING_BYTES: usize = 8 + 4 + 4 + 8 + 32 + 4 + 8;

/// Numbers label sets. Two label sets have the same number if they are equal in all labels that
/// `keep` accepts.
pub(super) fn number_label_sets<'l>(
    sets: impl Iterator<Item = &'l Labels>,
    keep: impl Fn(&str) -> bool,
) -> LabelSetNumbers<'l> {
    let all: Vec<&Labels> = sets.collect();
    let Some(sets) = LabelSets::of(&all, &keep) else { return by_text(&all, keep) };
    let mut keys = CombinedKeys { keys: vec![0; sets.all.len()], radix: 1 };
    let mut buffers = NumberingBuffers::default();
    for name in 0..sets.names.len() {
        sets.number_values(name, &mut buffers);
        keys.combine(&buffers.codes, buffers.numbers.len() as u64 + 1);
    }
    let (of, firsts) = keys.dense();
    LabelSetNumbers { of, firsts, names: sets.names }
}

/// Largest number of label names for which each name is processed by a pass over all label sets.
/// With more names, label sets are compared as texts.
const NAMES_MAX: usize = 64;

fn by_text<'l>(all: &[&'l Labels], keep: impl Fn(&str) -> bool) -> LabelSetNumbers<'l> {
    let mut numbers: RapidHashMap<Labels, u32> = RapidHashMap::default();
    let (mut of, mut firsts) = (Vec::with_capacity(all.len()), Vec::new());
    let mut names: RapidHashMap<&str, ()> = RapidHashMap::default();
    for (at, labels) in all.iter().enumerate() {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let number = *numbers.entry(labels.filtered(&keep)).or_insert(next);
        if number == next {
            firsts.push(at);
            names.extend(labels.iter().filter(|label| keep(label.name)).map(|label| (label.name, ())));
        }
        of.push(number);
    }
    LabelSetNumbers { of, firsts, names: names.into_keys().collect() }
}

/// Label sets, prepared for numbering.
struct LabelSets<'s, 'l> {
    all: &'s [&'l Labels],
    /// The row of each label set in its table, or 0 if it is in no table.
    rows: Vec<u32>,
    runs: Vec<TableRun>,
    tables: Vec<TableColumns<'l>>,
    /// The names that `keep` accepts.
    names: Vec<&'l str>,
}

/// Consecutive label sets of the same table with the same columns.
struct TableRun {
    sets: Range<usize>,
    /// Index of the table and mask of the columns; `None` for label sets outside of tables.
    table: Option<(usize, LabelMask)>,
}

struct TableColumns<'l> {
    table: &'l Arc<LabelTable>,
    /// The table's column of each name, by index of the name.
    columns: Vec<Option<usize>>,
}

/// Buffers that are reused from name to name.
#[derive(Default)]
struct NumberingBuffers<'l> {
    /// Numbers of the values, from 1 in order of first appearance.
    numbers: RapidHashMap<&'l str, u32>,
    /// The number of each text, by table and text; 0 if it has none yet.
    text_numbers: Vec<Vec<u32>>,
    /// The number of each label set's value; 0 if it has none.
    codes: Vec<u32>,
}

fn index_of<'l>(names: &mut Vec<&'l str>, name: &'l str) -> usize {
    // Names are interned, so the pointers are mostly equal.
    let same = |have: &&str| std::ptr::eq(*have, name) || *have == name;
    names.iter().position(same).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

fn number<'l>(numbers: &mut RapidHashMap<&'l str, u32>, text: &'l str) -> u32 {
    // There are no more texts than label sets, whose rows have 32 bits.
    let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
    *numbers.entry(text).or_insert(next)
}

impl<'s, 'l> LabelSets<'s, 'l> {
    /// Returns `None` if there are more than `NAMES_MAX` names.
    fn of(all: &'s [&'l Labels], keep: impl Fn(&str) -> bool) -> Option<LabelSets<'s, 'l>> {
        let mut rows = Vec::with_capacity(all.len());
        let (mut runs, mut tables): (Vec<TableRun>, Vec<TableColumns<'l>>) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        let mut table_indices: RapidHashMap<usize, usize> = RapidHashMap::default();
        // The previous label set outside of tables, whose names were collected.
        let mut last: Option<&Labels> = None;
        for (at, labels) in all.iter().copied().enumerate() {
            let in_table = labels.row();
            rows.push(in_table.map_or(0, |(_, row, _)| row));
            let extends = |run: &&mut TableRun| match (run.table, in_table) {
                (Some((table, mask)), Some((of, _, has))) => {
                    mask == has
                        && tables.get(table).is_some_and(|table_columns| Arc::ptr_eq(table_columns.table, of))
                }
                (None, None) => true,
                _ => false,
            };
            match runs.last_mut().filter(extends) {
                Some(run) => run.sets.end = at + 1,
                None => {
                    let table = in_table.map(|(table, _, mask)| {
                        let index = *table_indices.entry(Arc::as_ptr(table).addr()).or_insert(tables.len());
                        if index == tables.len() {
                            tables.push(TableColumns { table, columns: Vec::new() });
                        }
                        (index, mask)
                    });
                    runs.push(TableRun { sets: at..at + 1, table });
                }
            }
            if in_table.is_none() {
                let same_names = |last: &Labels| {
                    last.len() == labels.len()
                        && last.iter().zip(labels).all(|(a, b)| std::ptr::eq(a.name, b.name))
                };
                if !last.is_some_and(same_names) {
                    for label in labels.iter().filter(|label| keep(label.name)) {
                        index_of(&mut names, label.name);
                    }
                    if names.len() > NAMES_MAX {
                        return None;
                    }
                    last = Some(labels);
                }
            }
        }
        for table_columns in &mut tables {
            for (at, column) in table_columns.table.columns().iter().enumerate() {
                if keep(&column.name) {
                    let index = index_of(&mut names, &column.name);
                    table_columns.columns.resize(table_columns.columns.len().max(index + 1), None);
                    table_columns.columns[index] = Some(at);
                }
            }
            if names.len() > NAMES_MAX {
                return None;
            }
        }
        Some(LabelSets { all, rows, runs, tables, names })
    }

    /// Numbers the values of one name.
    fn number_values(
        &self,
        name: usize,
        NumberingBuffers { numbers, text_numbers, codes }: &mut NumberingBuffers<'l>,
    ) {
        numbers.clear();
        codes.clear();
        text_numbers.iter_mut().for_each(Vec::clear);
        text_numbers.resize_with(self.tables.len(), Vec::new);
        for run in &self.runs {
            let Some((index, mask)) = run.table else {
                let own = self.all[run.sets.clone()].iter();
                let value = |labels: &&'l Labels| labels.get(self.names[name]);
                codes.extend(own.map(|labels| value(labels).map_or(0, |value| number(numbers, value))));
                continue;
            };
            let TableColumns { table, columns } = &self.tables[index];
            let column = columns.get(name).copied().flatten().filter(|at| mask >> at & 1 == 1);
            let end = codes.len() + run.sets.len();
            match column.and_then(|at| table.columns().get(at)).map(|column| &column.values) {
                None => codes.resize(end, 0),
                Some(LabelValues::Same(text)) => codes.resize(end, number(numbers, text)),
                Some(LabelValues::Each { texts, places }) if run.sets.len() < texts.len() / 4 => {
                    let text = |row: &u32| &texts[places[*row as usize] as usize];
                    let rows = self.rows[run.sets.clone()].iter();
                    codes.extend(rows.map(|row| number(numbers, text(row))));
                }
                Some(LabelValues::Each { texts, places }) => {
                    let text_numbers = &mut text_numbers[index];
                    text_numbers.resize(texts.len(), 0);
                    codes.extend(self.rows[run.sets.clone()].iter().map(|row| {
                        let text = places[*row as usize] as usize;
                        if text_numbers[text] == 0 {
                            text_numbers[text] = number(numbers, &texts[text]);
                        }
                        text_numbers[text]
                    }));
                }
            }
        }
    }
}

/// A key for each label set, all below `radix`.
struct CombinedKeys {
    keys: Vec<u64>,
    radix: u64,
}

impl CombinedKeys {
    /// Extends the keys by the codes of another label, all below `count`.
    fn combine(&mut self, codes: &[u32], count: u64) {
        if codes.first().is_none_or(|first| codes.iter().all(|code| code == first)) {
            return;
        }
        let radix = self.radix.checked_mul(count).unwrap_or_else(|| {
            // The keys would overflow: renumber them densely, so that the radix is at most the
            // number of label sets.
            let (numbers, firsts) = std::mem::take(self).dense();
            self.keys = numbers.into_iter().map(u64::from).collect();
            (firsts.len() as u64).saturating_mul(count)
        });
        for (key, code) in self.keys.iter_mut().zip(codes) {
            *key = *key * count + u64::from(*code);
        }
        self.radix = radix;
    }

    /// Returns numbers without gaps in order of first appearance, and the index of the first label
    /// set of each.
    fn dense(self) -> (Vec<u32>, Vec<usize>) {
        let CombinedKeys { keys, radix } = self;
        let mut firsts = Vec::new();
        let mut next = |at: usize| {
            firsts.push(at);
            u32::try_from(firsts.len()).unwrap_or(u32::MAX)
        };
        // Cells hold the number plus one. An array is fastest unless it is mostly empty.
        let dense = usize::try_from(radix).ok().filter(|cells| *cells <= keys.len().saturating_mul(4));
        let numbers = if let Some(cells) = dense {
            let mut table = vec![0_u32; cells];
            let number = |(at, key): (usize, &u64)| {
                let cell = &mut table[usize::try_from(*key).unwrap_or_default()];
                if *cell == 0 {
                    *cell = next(at);
                }
                *cell - 1
            };
            keys.iter().enumerate().map(number).collect()
        } else {
            let mut table: RapidHashMap<u64, u32> = RapidHashMap::default();
            table.reserve(keys.len());
            let number = |(at, key): (usize, &u64)| *table.entry(*key).or_insert_with(|| next(at)) - 1;
            keys.iter().enumerate().map(number).collect()
        };
        (numbers, firsts)
    }
}

impl Default for CombinedKeys {
    fn default() -> CombinedKeys {
        CombinedKeys { keys: Vec::new(), radix: 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::LabelColumn;

    #[test]
    fn label_sets_with_equal_values_get_the_same_number() {
        let of = |id: &str, group: &str| Labels::from_pairs([("id", id), ("group", group)]);
        let sets = [of("1", "a"), of("2", "b"), of("3", "a"), of("2", "b")];
        let by_group = number_label_sets(sets.iter(), |name| name == "group");
        assert_eq!((by_group.of, by_group.firsts), (vec![0, 1, 0, 1], vec![0, 1]));
        let by_nothing = number_label_sets(sets.iter(), |_| false);
        assert_eq!((by_nothing.of, by_nothing.firsts), (vec![0; 4], vec![0]));
    }

    #[test]
    fn combinations_beyond_64_bits_get_different_numbers() {
        // 2,000 values of each of eight names make 2^87 combinations.
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let of = |n: usize| {
            let value = |at: usize| (n * (2 * at + 1) % 2_000).to_string();
            Labels::from_pairs(names.iter().enumerate().map(|(at, name)| (*name, value(at))))
        };
        let sets: Vec<Labels> = (0..4_000).map(of).collect();
        let numbers: Vec<u32> = (0..2_000).chain(0..2_000).collect();
        assert_eq!(number_label_sets(sets.iter(), |_| true).of, numbers);
    }

    #[test]
    fn label_sets_with_very_many_names_get_different_numbers() {
        let of = |n: usize| {
            let name = format!("name{}", n % 70);
            Labels::from_pairs([(name.as_str(), "x"), ("always", ["even", "odd"][n % 2])])
        };
        let sets: Vec<Labels> = (0..210).map(of).collect();
        let numbers: Vec<u32> = (0..210).map(|n| n % 70).collect();
        let found = number_label_sets(sets.iter(), |_| true);
        assert_eq!((found.of, found.firsts, found.names.len()), (numbers, (0..70).collect(), 71));
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const TEXTS: [&str; 4] = ["", "x", "y", "z"];

    /// Returns the label sets, some as rows of tables.
    fn label_sets(sets: &[([usize; 4], usize)]) -> Vec<Labels> {
        let tables: Vec<Arc<LabelTable>> = (0..2)
            .map(|turn: usize| {
                let mut texts: Vec<Arc<str>> = TEXTS[1..].iter().map(|text| Arc::from(*text)).collect();
                texts.rotate_left(turn);
                let column = |(at, name): (usize, &&str)| {
                    let index = |(values, _): &([usize; 4], usize)| {
                        let text = TEXTS[values[at].max(1)];
                        let index = texts.iter().position(|have| **have == *text).expect("listed");
                        u32::try_from(index).expect("small")
                    };
                    let places = sets.iter().map(index).collect();
                    LabelColumn {
                        name: (*name).into(),
                        values: LabelValues::Each { texts: texts.clone(), places },
                    }
                };
                let columns = NAMES.iter().enumerate().map(column).collect();
                Arc::new(LabelTable::new(columns, sets.len(), false).expect("whole"))
            })
            .collect();
        let in_table = |(at, (values, how)): (usize, &([usize; 4], usize))| match tables.get(*how) {
            Some(table) => {
                let bit = |(at, value): (usize, &usize)| LabelMask::from(*value > 0) << at;
                let mask = values.iter().enumerate().map(bit).sum();
                Labels::of_row(table, u32::try_from(at).expect("few"), mask)
            }
            None => Labels::from_pairs(NAMES.iter().zip(values).map(|(name, value)| (*name, TEXTS[*value]))),
        };
        sets.iter().enumerate().map(in_table).collect()
    }

    proptest! {
        #[test]
        fn numbers_distinguish_label_sets_exactly_as_their_texts_do(
            sets in prop::collection::vec(([0usize..4, 0..4, 0..4, 0..4], 0usize..3), 1..40),
            kept in 0usize..16,
        ) {
            let sets = label_sets(&sets);
            let keep = |name: &str| NAMES.iter().position(|have| *have == name).is_some_and(|at| kept >> at & 1 == 1);
            let numbers = number_label_sets(sets.iter(), keep);
            let mut firsts: Vec<Labels> = Vec::new();
            for (labels, number) in sets.iter().zip(&numbers.of) {
                let kept = labels.filtered(keep);
                let index = firsts.iter().position(|have| *have == kept).unwrap_or_else(|| {
                    firsts.push(kept);
                    firsts.len() - 1
                });
                prop_assert_eq!(index, *number as usize);
            }
            let found: Vec<Labels> = numbers.firsts.iter().map(|at| sets[*at].filtered(keep)).collect();
            prop_assert_eq!(found, firsts);
            prop_assert!(numbers.names.iter().all(|name| keep(name)));
        }
    }
}
