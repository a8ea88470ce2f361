//! The series of one organisation: dictionaries, families, places.
//!
//! A family is the series with one metric name and one set of label names: a table with a column of dictionary codes
//! for each label and a row for each series. Selections scan columns; nothing is indexed (ENGINE.md sections 3 and 8).
//! Every text is kept once per label name, as an `Arc<str>` that rendered label sets share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use super::identity::{Ids, Key, Secret, canonical_bytes};
use super::metadata::Metadata;
use crate::model::{Label, Labels, METRIC_NAME};

/// The series limit, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct SeriesLimit {
    pub(in crate::tsdb) live: u32,
    pub(in crate::tsdb) allowed: u32,
}

/// Texts and their codes.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Dictionary {
    texts: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u32>,
    /// Estimated memory.
    bytes: u64,
    /// Codes in order of their texts, as far as somebody asked for it.
    order: RwLock<Arc<[u32]>>,
}

/// Estimated memory of a text beside its bytes: its counts, its place in both collections.
const TEXT_BYTES: u64 = 64;
/// Estimated memory of a series beside its texts: its place, both identities, some columns.
const SERIES_BYTES: u64 = 96;

impl Dictionary {
    pub(in crate::tsdb) fn code(&self, text: &str) -> Option<u32> {
        self.codes.get(text).copied()
    }

    pub(in crate::tsdb) fn text(&self, code: u32) -> Option<&Arc<str>> {
        self.texts.get(code as usize)
    }

    pub(in crate::tsdb) fn len(&self) -> usize {
        self.texts.len()
    }

    /// All codes in order of their texts. Made when it is asked for and kept; texts that came since are merged in.
    pub(in crate::tsdb) fn order(&self) -> Arc<[u32]> {
        let known = Arc::clone(&self.order.read().unwrap_or_else(PoisonError::into_inner));
        if known.len() == self.texts.len() {
            return known;
        }
        let text = |code: &u32| self.texts.get(*code as usize);
        let mut more: Vec<u32> = (0u32..).zip(&self.texts).skip(known.len()).map(|(code, _)| code).collect();
        more.sort_unstable_by_key(text);
        let mut order = Vec::with_capacity(self.texts.len());
        let mut known = known.iter().copied().peekable();
        for code in more {
            while let Some(before) = known.next_if(|before| text(before) < text(&code)) {
                order.push(before);
            }
            order.push(code);
        }
        order.extend(known);
        let order: Arc<[u32]> = order.into();
        // Texts are only ever added, and not while somebody reads: whoever was faster has stored the same.
        *self.order.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&order);
        order
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(code) = self.code(text) {
            return code;
        }
        // Codes stay below the number of series times labels, and series ids are 32 bits: memory ends long before.
        let code = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.bytes += text.len() as u64 + TEXT_BYTES;
        self.texts.push(Arc::clone(&text));
        self.codes.insert(text, code);
        code
    }
}

/// The values of one label in a family, by row.
#[derive(Debug)]
pub(in crate::tsdb) enum Column {
    /// The same in all rows: no bytes a row.
    Same(u32),
    /// A code for each row.
    Each(Vec<u32>),
}

impl Column {
    /// The code of all rows, if all have the same.
    pub(in crate::tsdb) const fn same(&self) -> Option<u32> {
        match self {
            Column::Same(code) => Some(*code),
            Column::Each(_) => None,
        }
    }

    pub(in crate::tsdb) fn code(&self, row: usize) -> Option<u32> {
        match self {
            Column::Same(code) => Some(*code),
            Column::Each(codes) => codes.get(row).copied(),
        }
    }

    /// Appends the code of row number `rows`.
    fn push(&mut self, rows: usize, code: u32) {
        match self {
            Column::Same(same) if *same == code => {}
            Column::Same(same) => {
                let mut codes = vec![*same; rows];
                codes.push(code);
                *self = Column::Each(codes);
            }
            Column::Each(codes) => codes.push(code),
        }
    }
}

/// The series of one metric name and one set of label names.
#[derive(Debug)]
pub(in crate::tsdb) struct Family {
    /// Codes of label names in order of their text, the metric name's among them.
    pub(in crate::tsdb) names: Box<[u32]>,
    /// A column for each name.
    pub(in crate::tsdb) columns: Vec<Column>,
    /// The series of each row.
    pub(in crate::tsdb) ids: Vec<u32>,
}

impl Family {
    /// The column of a label name, if the family has it.
    pub(in crate::tsdb) fn column(&self, name: u32) -> Option<&Column> {
        self.columns.get(self.names.iter().position(|have| *have == name)?)
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    family: u32,
    row: u32,
}

const NOWHERE: Place = Place { family: u32::MAX, row: u32::MAX };

/// All series of one organisation.
#[derive(Debug)]
pub(in crate::tsdb) struct Table {
    pub(in crate::tsdb) secret: Secret,
    /// Label names.
    pub(in crate::tsdb) names: Dictionary,
    /// Values, by code of their label name.
    values: Vec<Dictionary>,
    pub(in crate::tsdb) families: Vec<Family>,
    /// Families by code of the metric name's value.
    by_metric: HashMap<u32, Vec<u32>>,
    by_shape: HashMap<(u32, Box<[u32]>), u32>,
    /// By series id; ids of definitions that never became durable stay empty.
    places: Vec<Place>,
    live: u32,
    /// Estimated memory of all texts.
    text_bytes: u64,
    canonical: Ids,
    raw: Ids,
    /// Series whose definition is not known to be durable: every record that uses one carries it again.
    pub(in crate::tsdb) pending: HashSet<u32>,
    /// Series that are durable in the log and not in the registry file.
    pub(in crate::tsdb) unregistered: Vec<u32>,
    pub(in crate::tsdb) metadata: Metadata,
}

/// Ids are dense, and a damaged or hostile definition must not make the table huge: an id may leave so many out.
const GAP_MAX: usize = 1 << 20;

impl Table {
    pub(in crate::tsdb) fn new(secret: Secret) -> Table {
        Table {
            secret,
            names: Dictionary::default(),
            values: Vec::new(),
            families: Vec::new(),
            by_metric: HashMap::new(),
            by_shape: HashMap::new(),
            places: Vec::new(),
            live: 0,
            text_bytes: 0,
            canonical: Ids::default(),
            raw: Ids::default(),
            pending: HashSet::new(),
            unregistered: Vec::new(),
            metadata: Metadata::default(),
        }
    }

    /// Series registered.
    pub(in crate::tsdb) const fn live(&self) -> u32 {
        self.live
    }

    /// Estimated memory.
    pub(in crate::tsdb) const fn bytes(&self) -> u64 {
        self.text_bytes + self.live as u64 * SERIES_BYTES
    }

    /// One more than the greatest id.
    pub(in crate::tsdb) fn ids_end(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The series with these raw bytes, if they were seen.
    #[inline]
    pub(in crate::tsdb) fn by_raw(&self, key: Key) -> Option<u32> {
        self.raw.get(&key).copied()
    }

    /// Remembers raw bytes. At most 4 for each series; beyond that all are forgotten and learnt again, so that a
    /// sender that writes its labels in ever new ways cannot fill the memory.
    pub(in crate::tsdb) fn remember_raw(&mut self, key: Key, id: u32) {
        let bound = (self.live as usize).saturating_mul(4).max(4_096);
        if self.raw.len() >= bound {
            self.raw.clear();
        }
        self.raw.insert(key, id);
    }

    /// The series with these sorted pairs, registered as pending if it is new.
    ///
    /// # Errors
    /// [`SeriesLimit`] where it is new and there are enough.
    pub(in crate::tsdb) fn find_or_add(
        &mut self,
        pairs: &[(&str, &str)],
        series_max: u32,
    ) -> Result<u32, SeriesLimit> {
        let mut bytes = Vec::new();
        canonical_bytes(&mut bytes, pairs);
        let key = self.secret.canonical().key(&bytes);
        if let Some(id) = self.canonical.get(&key) {
            return Ok(*id);
        }
        let id = self.ids_end();
        if self.live >= series_max || id == u32::MAX {
            return Err(SeriesLimit { live: self.live, allowed: series_max });
        }
        self.add(id, key, pairs);
        self.pending.insert(id);
        Ok(id)
    }

    /// Takes over a definition that is durable. `registered`: it was read from the registry file.
    ///
    /// # Errors
    /// A sentence where the id or the labels are taken otherwise, or the id is out of all proportion.
    pub(in crate::tsdb) fn define(
        &mut self,
        id: u32,
        pairs: &[(&str, &str)],
        registered: bool,
    ) -> Result<(), &'static str> {
        let mut bytes = Vec::new();
        canonical_bytes(&mut bytes, pairs);
        let key = self.secret.canonical().key(&bytes);
        match self.canonical.get(&key) {
            Some(known) if *known == id => {
                if self.pending.remove(&id) {
                    self.unregistered.push(id);
                }
                return Ok(());
            }
            Some(_) => return Err("its labels are those of another series"),
            None => {}
        }
        let place = self.places.get(id as usize);
        if place.is_some_and(|place| place.family != NOWHERE.family) {
            return Err("its id is that of another series");
        }
        if id as usize > self.places.len() + GAP_MAX || id == u32::MAX {
            return Err("its id is out of all proportion");
        }
        self.add(id, key, pairs);
        if !registered {
            self.unregistered.push(id);
        }
        Ok(())
    }

    fn add(&mut self, id: u32, key: Key, pairs: &[(&str, &str)]) {
        let mut grown = self.names.bytes;
        let names: Box<[u32]> = pairs.iter().map(|(name, _)| self.names.intern(name)).collect();
        grown = self.names.bytes - grown;
        self.values.resize_with(self.names.len(), Dictionary::default);
        let mut intern = |name: u32, value: &str| {
            let dictionary = self.values.get_mut(name as usize)?;
            let before = dictionary.bytes;
            let code = dictionary.intern(value);
            grown += dictionary.bytes - before;
            Some(code)
        };
        let codes: Vec<u32> =
            names.iter().zip(pairs).map(|(name, (_, value))| intern(*name, value).unwrap_or(0)).collect();
        self.text_bytes += grown;
        let metric =
            pairs.iter().position(|(name, _)| *name == METRIC_NAME).and_then(|at| codes.get(at)).copied();
        // A series without a metric name is refused before this; in a strange definition it is a family of its own.
        let metric = metric.unwrap_or(u32::MAX);
        let number = self.family(metric, &names, &codes);
        let Some(family) = self.families.get_mut(number as usize) else { return };
        let row = family.ids.len();
        for (column, code) in family.columns.iter_mut().zip(&codes) {
            column.push(row, *code);
        }
        family.ids.push(id);
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, NOWHERE);
        }
        if let Some(place) = self.places.get_mut(id as usize) {
            *place = Place { family: number, row: u32::try_from(row).unwrap_or(u32::MAX) };
        }
        self.canonical.insert(key, id);
        self.live += 1;
    }

    fn family(&mut self, metric: u32, names: &[u32], codes: &[u32]) -> u32 {
        let shape = (metric, Box::from(names));
        if let Some(number) = self.by_shape.get(&shape) {
            return *number;
        }
        let number = u32::try_from(self.families.len()).unwrap_or(u32::MAX);
        let columns = codes.iter().map(|code| Column::Same(*code)).collect();
        self.families.push(Family { names: names.into(), columns, ids: Vec::new() });
        self.by_metric.entry(metric).or_default().push(number);
        self.by_shape.insert(shape, number);
        number
    }

    /// The families of one metric name, with their numbers.
    pub(in crate::tsdb) fn families_of(&self, metric: &str) -> impl Iterator<Item = (u32, &Family)> {
        let code = self.names.code(METRIC_NAME).and_then(|name| self.values.get(name as usize)?.code(metric));
        let numbers = code.and_then(|code| self.by_metric.get(&code));
        numbers
            .into_iter()
            .flatten()
            .filter_map(|number| Some((*number, self.families.get(*number as usize)?)))
    }

    /// The values of a label name, by its code.
    pub(in crate::tsdb) fn values(&self, name: u32) -> Option<&Dictionary> {
        self.values.get(name as usize)
    }

    /// The metric name of a family.
    pub(in crate::tsdb) fn metric_name(&self, family: &Family) -> Option<&Arc<str>> {
        let name = self.names.code(METRIC_NAME)?;
        let place = family.names.iter().position(|n| *n == name)?;
        self.values(name)?.text(family.columns.get(place)?.code(0)?)
    }

    /// The labels of a row.
    pub(in crate::tsdb) fn row_labels(&self, family: &Family, row: usize) -> Labels {
        let mut labels = Vec::with_capacity(family.names.len());
        for (name, column) in family.names.iter().zip(&family.columns) {
            let value = column.code(row).and_then(|code| self.values(*name)?.text(code));
            if let (Some(name), Some(value)) = (self.names.text(*name), value) {
                labels.push(Label { name: Arc::clone(name), value: Arc::clone(value) });
            }
        }
        Labels::from_sorted(labels)
    }

    /// The labels of a series.
    pub(in crate::tsdb) fn labels(&self, id: u32) -> Option<Labels> {
        let place = self.places.get(id as usize)?;
        let family = self.families.get(place.family as usize)?;
        Some(self.row_labels(family, place.row as usize))
    }

    /// The number of a series' family.
    pub(in crate::tsdb) fn family_of(&self, id: u32) -> Option<u32> {
        self.places.get(id as usize).map(|place| place.family).filter(|family| *family != NOWHERE.family)
    }

    /// Whether a definition of this series is known.
    pub(in crate::tsdb) fn knows(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|place| place.family != NOWHERE.family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(Secret::of(&[1; 32], 1))
    }

    #[test]
    fn a_series_is_found_again_and_rendered() {
        let mut table = table();
        let a = [("__name__", "up"), ("job", "a")];
        let b = [("__name__", "up"), ("job", "b")];
        let c = [("__name__", "down"), ("job", "b"), ("zone", "1")];
        for (id, pairs) in [(0, &a[..]), (1, &b[..]), (2, &c[..]), (0, &a[..]), (2, &c[..])] {
            assert_eq!(table.find_or_add(pairs, 3), Ok(id));
        }
        assert_eq!(table.find_or_add(&[("__name__", "x")], 3), Err(SeriesLimit { live: 3, allowed: 3 }));
        assert_eq!(table.labels(1).map(|l| l.to_string()).as_deref(), Some(r#"{__name__="up", job="b"}"#));
        assert_eq!(table.labels(3), None);
        assert_eq!(table.families.len(), 2);
        assert_eq!(
            table.families_of("up").map(|(n, f)| (n, f.ids.clone())).collect::<Vec<_>>(),
            [(0, vec![0, 1])]
        );
    }

    #[test]
    fn the_order_of_texts_grows_with_them() {
        let mut dictionary = Dictionary::default();
        assert!(dictionary.order().is_empty());
        for (texts, expected) in
            [(&["m", "c", "x"][..], &[1, 0, 2][..]), (&["d", "z", "a"], &[5, 1, 3, 0, 2, 4])]
        {
            texts.iter().for_each(|text| drop(dictionary.intern(text)));
            assert_eq!((&*dictionary.order(), &*dictionary.order()), (expected, expected));
        }
    }

    #[test]
    fn definitions_agree_or_are_refused() {
        let mut table = table();
        let a = [("__name__", "up")];
        assert_eq!(table.define(5, &a, false), Ok(()));
        assert_eq!(table.define(5, &a, false), Ok(()));
        assert!(table.define(6, &a, false).is_err());
        assert!(table.define(5, &[("__name__", "x")], false).is_err());
        assert!(table.define(u32::MAX - 1, &[("__name__", "x")], false).is_err());
        assert_eq!(table.find_or_add(&[("__name__", "y")], 10), Ok(6));
        assert_eq!((table.live(), table.unregistered.as_slice()), (2, &[5][..]));
        assert_eq!(table.define(6, &[("__name__", "y")], false), Ok(()));
        assert_eq!((table.pending.len(), table.unregistered.as_slice()), (0, &[5, 6][..]));
    }

    #[test]
    fn raw_bytes_are_bounded() {
        let mut table = table();
        let domain = table.secret.domain(0, &[]);
        for n in 0..10_000u32 {
            table.remember_raw(domain.key(&n.to_le_bytes()), n);
        }
        assert!(table.raw.len() <= 4_096);
        assert_eq!(table.by_raw(domain.key(&9_999u32.to_le_bytes())), Some(9_999));
    }
}
