//! Label sets told apart by a part of their labels.
//!
//! Each text gets a number, once for all rows of a table that have it; a label set is then one number made of those of its
//! labels, and only numbers are compared from there on.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{LabelMask, LabelTable, LabelValues, Labels};

/// Label sets by number.
pub(super) struct Numbered<'l> {
    /// Of each label set, from 0 in order of first appearance.
    pub(super) of: Vec<u32>,
    /// For each number the place of the first label set that has it.
    pub(super) firsts: Vec<usize>,
    /// The names that were looked at, in no order.
    pub(super) names: Vec<&'l str>,
}

/// Memory that [`numbered`] takes for each label set at its peak: the references, rows, codes, keys, the table by keys, the
/// numbers and the places of the firsts.
pub(super) const NUMBERED_BYTES: usize = 8 + 4 + 4 + 8 + 32 + 4 + 8;

/// Numbers label sets: those that do not differ in labels that are to be kept have the same number.
pub(super) fn numbered<'l>(
    sets: impl Iterator<Item = &'l Labels>,
    keep: impl Fn(&str) -> bool,
) -> Numbered<'l> {
    let all: Vec<&Labels> = sets.collect();
    let Some(sets) = Sets::of(&all, &keep) else { return by_text(&all, keep) };
    let mut keys = Keys { keys: vec![0; sets.all.len()], radix: 1 };
    let mut room = Room::default();
    for name in 0..sets.names.len() {
        sets.number_values(name, &mut room);
        keys.tell_apart_by(&room.codes, room.known.len() as u64 + 1);
    }
    let (of, firsts) = keys.dense();
    Numbered { of, firsts, names: sets.names }
}

/// All label sets are gone through for each name: of more names they are compared as texts.
const NAMES_MAX: usize = 64;

fn by_text<'l>(all: &[&'l Labels], keep: impl Fn(&str) -> bool) -> Numbered<'l> {
    let mut known: RapidHashMap<Labels, u32> = RapidHashMap::default();
    let (mut of, mut firsts) = (Vec::with_capacity(all.len()), Vec::new());
    let mut names: RapidHashMap<&str, ()> = RapidHashMap::default();
    for (at, labels) in all.iter().enumerate() {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let number = *known.entry(labels.filtered(&keep)).or_insert(next);
        if number == next {
            firsts.push(at);
            names.extend(labels.iter().filter(|label| keep(label.name)).map(|label| (label.name, ())));
        }
        of.push(number);
    }
    Numbered { of, firsts, names: names.into_keys().collect() }
}

/// Label sets in the making of their numbers.
struct Sets<'s, 'l> {
    all: &'s [&'l Labels],
    /// The row in its table of each; of those that have none, 0.
    rows: Vec<u32>,
    runs: Vec<Run>,
    tables: Vec<Tabled<'l>>,
    /// Those that are kept.
    names: Vec<&'l str>,
}

/// Neighbours that are held alike.
struct Run {
    sets: Range<usize>,
    /// The table, and which of its columns they have; none for label sets of their own.
    table: Option<(usize, LabelMask)>,
}

struct Tabled<'l> {
    table: &'l Arc<LabelTable>,
    /// By name that is kept: the column.
    columns: Vec<Option<usize>>,
}

/// What is used again for each name.
#[derive(Default)]
struct Room<'l> {
    /// From 1 on, in order of first appearance.
    known: RapidHashMap<&'l str, u32>,
    /// By table and text: the text's number, 0 where it was not asked for.
    of_texts: Vec<Vec<u32>>,
    /// By label set: its value's number, 0 where it has none.
    codes: Vec<u32>,
}

fn place_of<'l>(names: &mut Vec<&'l str>, name: &'l str) -> usize {
    // Names are interned: mostly the first look tells.
    let same = |have: &&str| std::ptr::eq(*have, name) || *have == name;
    names.iter().position(same).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

fn number<'l>(known: &mut RapidHashMap<&'l str, u32>, text: &'l str) -> u32 {
    // There are no more texts than label sets, which are rows of 32 bits.
    let next = u32::try_from(known.len() + 1).unwrap_or(u32::MAX);
    *known.entry(text).or_insert(next)
}

impl<'s, 'l> Sets<'s, 'l> {
    /// None where there are too many names.
    fn of(all: &'s [&'l Labels], keep: impl Fn(&str) -> bool) -> Option<Sets<'s, 'l>> {
        let mut rows = Vec::with_capacity(all.len());
        let (mut runs, mut tables): (Vec<Run>, Vec<Tabled<'l>>) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        let mut places: RapidHashMap<usize, usize> = RapidHashMap::default();
        // The names that were met last in a label set of its own.
        let mut last: Option<&Labels> = None;
        for (at, labels) in all.iter().copied().enumerate() {
            let held = labels.row();
            rows.push(held.map_or(0, |(_, row, _)| row));
            let goes_on = |run: &&mut Run| match (run.table, held) {
                (Some((table, mask)), Some((of, _, has))) => {
                    mask == has && tables.get(table).is_some_and(|tabled| Arc::ptr_eq(tabled.table, of))
                }
                (None, None) => true,
                _ => false,
            };
            match runs.last_mut().filter(goes_on) {
                Some(run) => run.sets.end = at + 1,
                None => {
                    let table = held.map(|(table, _, mask)| {
                        let place = *places.entry(Arc::as_ptr(table).addr()).or_insert(tables.len());
                        if place == tables.len() {
                            tables.push(Tabled { table, columns: Vec::new() });
                        }
                        (place, mask)
                    });
                    runs.push(Run { sets: at..at + 1, table });
                }
            }
            if held.is_none() {
                let alike = |last: &Labels| {
                    last.len() == labels.len()
                        && last.iter().zip(labels).all(|(a, b)| std::ptr::eq(a.name, b.name))
                };
                if !last.is_some_and(alike) {
                    for label in labels.iter().filter(|label| keep(label.name)) {
                        place_of(&mut names, label.name);
                    }
                    if names.len() > NAMES_MAX {
                        return None;
                    }
                    last = Some(labels);
                }
            }
        }
        for tabled in &mut tables {
            for (at, column) in tabled.table.columns().iter().enumerate() {
                if keep(&column.name) {
                    let place = place_of(&mut names, &column.name);
                    tabled.columns.resize(tabled.columns.len().max(place + 1), None);
                    tabled.columns[place] = Some(at);
                }
            }
            if names.len() > NAMES_MAX {
                return None;
            }
        }
        Some(Sets { all, rows, runs, tables, names })
    }

    /// Numbers the values of one name.
    fn number_values(&self, name: usize, Room { known, of_texts, codes }: &mut Room<'l>) {
        known.clear();
        codes.clear();
        of_texts.iter_mut().for_each(Vec::clear);
        of_texts.resize_with(self.tables.len(), Vec::new);
        for run in &self.runs {
            let Some((place, mask)) = run.table else {
                let own = self.all[run.sets.clone()].iter();
                let value = |labels: &&'l Labels| labels.get(self.names[name]);
                codes.extend(own.map(|labels| value(labels).map_or(0, |value| number(known, value))));
                continue;
            };
            let Tabled { table, columns } = &self.tables[place];
            let column = columns.get(name).copied().flatten().filter(|at| mask >> at & 1 == 1);
            let end = codes.len() + run.sets.len();
            match column.and_then(|at| table.columns().get(at)).map(|column| &column.values) {
                None => codes.resize(end, 0),
                Some(LabelValues::Same(text)) => codes.resize(end, number(known, text)),
                Some(LabelValues::Each { texts, places }) if run.sets.len() < texts.len() / 4 => {
                    let text = |row: &u32| &texts[places[*row as usize] as usize];
                    let rows = self.rows[run.sets.clone()].iter();
                    codes.extend(rows.map(|row| number(known, text(row))));
                }
                Some(LabelValues::Each { texts, places }) => {
                    let of_texts = &mut of_texts[place];
                    of_texts.resize(texts.len(), 0);
                    codes.extend(self.rows[run.sets.clone()].iter().map(|row| {
                        let text = places[*row as usize] as usize;
                        if of_texts[text] == 0 {
                            of_texts[text] = number(known, &texts[text]);
                        }
                        of_texts[text]
                    }));
                }
            }
        }
    }
}

/// A number for each label set, below the radix.
struct Keys {
    keys: Vec<u64>,
    radix: u64,
}

impl Keys {
    /// By one more label: the codes of its values, all below `count`.
    fn tell_apart_by(&mut self, codes: &[u32], count: u64) {
        if codes.first().is_none_or(|first| codes.iter().all(|code| code == first)) {
            return;
        }
        let radix = self.radix.checked_mul(count).unwrap_or_else(|| {
            // As many as there are label sets, and so far from the end once more.
            let (numbers, firsts) = std::mem::take(self).dense();
            self.keys = numbers.into_iter().map(u64::from).collect();
            (firsts.len() as u64).saturating_mul(count)
        });
        for (key, code) in self.keys.iter_mut().zip(codes) {
            *key = *key * count + u64::from(*code);
        }
        self.radix = radix;
    }

    /// Numbers without gaps, in order of first appearance, and where each is met first.
    fn dense(self) -> (Vec<u32>, Vec<usize>) {
        let Keys { keys, radix } = self;
        let mut firsts = Vec::new();
        let mut next = |at: usize| {
            firsts.push(at);
            u32::try_from(firsts.len()).unwrap_or(u32::MAX)
        };
        // One more than the number; a table is the fastest where it is not mostly empty.
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

impl Default for Keys {
    fn default() -> Keys {
        Keys { keys: Vec::new(), radix: 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::LabelColumn;

    #[test]
    fn equal_texts_have_one_number_wherever_they_lie() {
        let of = |id: &str, group: &str| Labels::from_pairs([("id", id), ("group", group)]);
        let sets = [of("1", "a"), of("2", "b"), of("3", "a"), of("2", "b")];
        let by_group = numbered(sets.iter(), |name| name == "group");
        assert_eq!((by_group.of, by_group.firsts), (vec![0, 1, 0, 1], vec![0, 1]));
        let by_nothing = numbered(sets.iter(), |_| false);
        assert_eq!((by_nothing.of, by_nothing.firsts), (vec![0; 4], vec![0]));
    }

    #[test]
    fn more_values_than_one_number_has_room_for_are_told_apart() {
        // 2,000 values of each of eight names are 2^87 label sets.
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let of = |n: usize| {
            let value = |at: usize| (n * (2 * at + 1) % 2_000).to_string();
            Labels::from_pairs(names.iter().enumerate().map(|(at, name)| (*name, value(at))))
        };
        let sets: Vec<Labels> = (0..4_000).map(of).collect();
        let numbers: Vec<u32> = (0..2_000).chain(0..2_000).collect();
        assert_eq!(numbered(sets.iter(), |_| true).of, numbers);
    }

    #[test]
    fn label_sets_of_very_many_names_are_told_apart_as_well() {
        let of = |n: usize| {
            let name = format!("name{}", n % 70);
            Labels::from_pairs([(name.as_str(), "x"), ("always", ["even", "odd"][n % 2])])
        };
        let sets: Vec<Labels> = (0..210).map(of).collect();
        let numbers: Vec<u32> = (0..210).map(|n| n % 70).collect();
        let found = numbered(sets.iter(), |_| true);
        assert_eq!((found.of, found.firsts, found.names.len()), (numbers, (0..70).collect(), 71));
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const TEXTS: [&str; 4] = ["", "x", "y", "z"];

    /// The same label sets as rows of tables or not.
    fn held(sets: &[([usize; 4], usize)]) -> Vec<Labels> {
        let tables: Vec<Arc<LabelTable>> = (0..2)
            .map(|turn: usize| {
                let mut texts: Vec<Arc<str>> = TEXTS[1..].iter().map(|text| Arc::from(*text)).collect();
                texts.rotate_left(turn);
                let column = |(at, name): (usize, &&str)| {
                    let place = |(values, _): &([usize; 4], usize)| {
                        let text = TEXTS[values[at].max(1)];
                        let place = texts.iter().position(|have| **have == *text).expect("listed");
                        u32::try_from(place).expect("small")
                    };
                    let places = sets.iter().map(place).collect();
                    LabelColumn {
                        name: (*name).into(),
                        values: LabelValues::Each { texts: texts.clone(), places },
                    }
                };
                let columns = NAMES.iter().enumerate().map(column).collect();
                Arc::new(LabelTable::new(columns, sets.len(), false).expect("whole"))
            })
            .collect();
        let held = |(at, (values, how)): (usize, &([usize; 4], usize))| match tables.get(*how) {
            Some(table) => {
                let bit = |(at, value): (usize, &usize)| LabelMask::from(*value > 0) << at;
                let mask = values.iter().enumerate().map(bit).sum();
                Labels::of_row(table, u32::try_from(at).expect("few"), mask)
            }
            None => Labels::from_pairs(NAMES.iter().zip(values).map(|(name, value)| (*name, TEXTS[*value]))),
        };
        sets.iter().enumerate().map(held).collect()
    }

    proptest! {
        #[test]
        fn numbers_tell_label_sets_apart_as_their_texts_do(
            sets in prop::collection::vec(([0usize..4, 0..4, 0..4, 0..4], 0usize..3), 1..40),
            kept in 0usize..16,
        ) {
            let sets = held(&sets);
            let keep = |name: &str| NAMES.iter().position(|have| *have == name).is_some_and(|at| kept >> at & 1 == 1);
            let numbers = numbered(sets.iter(), keep);
            let mut firsts: Vec<Labels> = Vec::new();
            for (labels, number) in sets.iter().zip(&numbers.of) {
                let kept = labels.filtered(keep);
                let place = firsts.iter().position(|have| *have == kept).unwrap_or_else(|| {
                    firsts.push(kept);
                    firsts.len() - 1
                });
                prop_assert_eq!(place, *number as usize);
            }
            let found: Vec<Labels> = numbers.firsts.iter().map(|at| sets[*at].filtered(keep)).collect();
            prop_assert_eq!(found, firsts);
            prop_assert!(numbers.names.iter().all(|name| keep(name)));
        }
    }
}
