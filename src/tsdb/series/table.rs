//! The series of one organisation: dictionaries, families, places.
//!
//! A family is the series with one metric name and one set of label names: a table with a column of dictionary codes
//! for each label and a row for each series. Selections scan columns; nothing is indexed (docs/storage.md section 16).
//! Every text is kept once per label name, as an `Arc<str>` that rendered label sets share. A start fills a table by
//! columns ([`load`]), everything else row by row.

pub(in crate::tsdb) mod load;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(in crate::tsdb) use super::columns::Column;
use super::columns::{Codes, make_room};
use super::definition::Body;
pub(in crate::tsdb) use super::dictionary::Dictionary;
use super::identity::{Key, Rows, Secret, TextHash};
use super::ids::Ids;
use super::order::Order;
use super::refused::{Fingerprint, RefusedSeries};
use crate::model::{Label, Labels, METRIC_NAME};
use crate::tsdb::error::Damage;
use crate::tsdb::options::OrgLimits;

/// The series limit, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct SeriesLimit {
    pub(in crate::tsdb) live: u32,
    pub(in crate::tsdb) allowed: u32,
}

/// The series of one metric name and one set of label names.
#[derive(Debug)]
pub(in crate::tsdb) struct Family {
    /// Codes of label names in order of their text, the metric name's among them.
    pub(in crate::tsdb) names: Box<[u32]>,
    /// A column for each name.
    pub(in crate::tsdb) columns: Vec<Column>,
    /// The series of each row, ascending.
    pub(in crate::tsdb) ids: Vec<u32>,
    /// How often rows were inserted before others, which moves those. Only a start does that: a running store gives
    /// ids in ascending order.
    pub(in crate::tsdb) moved: u32,
    pub(super) order: Order,
}

/// Memory of a family beside its columns' codes and ids: itself, its names, its entries in both maps.
const FAMILY_BYTES: usize = size_of::<Family>() + 160;

impl Family {
    /// The column of a label name, if the family has it.
    pub(in crate::tsdb) fn column(&self, name: u32) -> Option<&Column> {
        self.columns.get(self.names.iter().position(|have| *have == name)?)
    }

    /// Adds a row; answers by how many bytes it grew. Ids mostly come ascending; a late one goes where it belongs.
    fn insert(&mut self, id: u32, codes: &[u32]) -> usize {
        let rows = self.ids.len();
        let is_last = self.ids.last().is_none_or(|last| *last < id);
        let row = if is_last { rows } else { self.ids.partition_point(|have| *have < id) };
        let mut grown = 0;
        for (column, code) in self.columns.iter_mut().zip(codes) {
            let before = column.bytes();
            column.insert(rows, row, *code);
            grown += column.bytes() - before;
        }
        if !is_last {
            self.moved = self.moved.wrapping_add(1);
            self.order.forget();
        }
        let before = self.ids.capacity();
        make_room(&mut self.ids);
        self.ids.insert(row, id);
        grown + (self.ids.capacity() - before) * 4
    }
}

/// A text that has no code yet.
const UNKNOWN: u32 = u32::MAX;

/// A label set as codes, names and values in order of the names.
#[derive(Debug, Default)]
struct Shape {
    names: Vec<u32>,
    codes: Vec<u32>,
}

impl Shape {
    /// What a family is known by.
    fn key(&self, metric: Option<u32>) -> Vec<u32> {
        let mut key = Vec::with_capacity(self.names.len() + 1);
        key.push(metric.unwrap_or(UNKNOWN));
        key.extend_from_slice(&self.names);
        key
    }

    fn hash(&self, hash: &TextHash, family: u32) -> u32 {
        hash_row(hash, family, &self.codes, &mut Vec::new())
    }

    fn clear(&mut self) {
        self.names.clear();
        self.codes.clear();
    }
}

/// What a look-up learns for the next one of the same request, and its buffers.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Lookup {
    shape: Shape,
    /// The label at this index was new in the last label set that no series had. It probably is in the next one, too.
    new_at: usize,
}

/// The hash of a row; `bytes` is used for it.
fn hash_row(hash: &TextHash, family: u32, codes: &[u32], bytes: &mut Vec<u8>) -> u32 {
    bytes.clear();
    bytes.extend_from_slice(&family.to_le_bytes());
    for code in codes {
        bytes.extend_from_slice(&code.to_le_bytes());
    }
    hash.of(bytes)
}

/// What is known of the texts of a body while its rows are defined.
struct Known {
    /// By shape: codes of the label names, and the place of the metric name's value.
    shapes: Vec<(Vec<u32>, Option<usize>)>,
    /// By text: the label name it was last a value of, and its code there. Hardly a text is the value of two labels.
    values: Vec<(u32, u32)>,
    /// By shape and code of the metric name's value.
    families: HashMap<(usize, u32), u32>,
    /// Those of the row at hand.
    codes: Vec<u32>,
    bytes: Vec<u8>,
}

impl Known {
    fn new(table: &mut Table, body: &Body<'_>) -> Known {
        let text = |number: &u32| body.texts.get(*number as usize).copied().unwrap_or_default();
        let mut shape = |numbers: &Vec<u32>| {
            let names = numbers.iter().map(|number| table.intern_name(text(number))).collect();
            (names, numbers.iter().position(|number| text(number) == METRIC_NAME))
        };
        let shapes = body.shapes.iter().map(&mut shape).collect();
        let values = vec![(UNKNOWN, UNKNOWN); body.texts.len()];
        Known { shapes, values, families: HashMap::new(), codes: Vec::new(), bytes: Vec::new() }
    }

    /// Sets `codes` to those of a row; answers its family.
    fn codes(&mut self, table: &mut Table, body: &Body<'_>, shape: usize, values: &[u32]) -> Option<u32> {
        let (names, metric) = self.shapes.get(shape)?;
        self.codes.clear();
        for (name, value) in names.iter().zip(values) {
            let known = self.values.get_mut(*value as usize)?;
            if known.0 != *name {
                *known = (*name, table.intern_value(*name, body.texts.get(*value as usize)?));
            }
            self.codes.push(known.1);
        }
        let metric = metric.and_then(|place| self.codes.get(place).copied());
        let key = (shape, metric.unwrap_or(UNKNOWN));
        if let Some(number) = self.families.get(&key) {
            return Some(*number);
        }
        let number = table.family(metric, &Shape { names: names.clone(), codes: self.codes.clone() });
        self.families.insert(key, number);
        Some(number)
    }
}

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
    /// Families by the code of the metric name's value and those of the label names.
    by_shape: HashMap<Box<[u32]>, u32>,
    /// One more than the family's number, by series id; 0: nothing defines it, as where a definition never became
    /// durable. The row is found among the family's ids.
    places: Codes,
    live: u32,
    /// Memory of dictionaries and families.
    column_bytes: usize,
    hash: TextHash,
    /// By the hash of family and codes.
    rows: Rows,
    raw: Ids,
    /// Series whose definition is not known to be durable: every record that uses one carries it again.
    pub(in crate::tsdb) pending: HashSet<u32>,
    /// Series that are durable in the log and not in the registry file.
    pub(in crate::tsdb) unregistered: Vec<u32>,
    pub(in crate::tsdb) refused: RefusedSeries,
}

/// Ids are dense, and a damaged or hostile definition must not make the table huge: an id may leave so many out.
const GAP_MAX: usize = 1 << 20;

impl Table {
    pub(in crate::tsdb) fn new(secret: Secret) -> Table {
        let hash = TextHash::new(&secret);
        Table {
            secret,
            names: Dictionary::new(hash.clone()),
            values: Vec::new(),
            families: Vec::new(),
            by_metric: HashMap::new(),
            by_shape: HashMap::new(),
            places: Codes::default(),
            live: 0,
            column_bytes: 0,
            hash,
            rows: Rows::default(),
            raw: Ids::default(),
            pending: HashSet::new(),
            unregistered: Vec::new(),
            refused: RefusedSeries::default(),
        }
    }

    /// Series registered.
    pub(in crate::tsdb) const fn live(&self) -> u32 {
        self.live
    }

    /// Memory, that of all orders of families and dictionaries included, whether they are there or not.
    pub(in crate::tsdb) fn bytes(&self) -> u64 {
        let ids = self.places.bytes() + self.rows.bytes() + self.raw.bytes();
        let orders = self.live as usize * 4;
        (self.column_bytes + ids + orders + self.unregistered.capacity() * 4) as u64
    }

    /// One more than the greatest id.
    pub(in crate::tsdb) fn ids_end(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Appends the series of each key, if its raw bytes were seen.
    pub(in crate::tsdb) fn by_raw_many(&self, keys: &[Key], out: &mut Vec<Option<u32>>) {
        self.raw.get_many(keys, out);
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
        lookup: &mut Lookup,
    ) -> Result<u32, SeriesLimit> {
        let id = self.ids_end();
        if self.live >= series_max || id == u32::MAX {
            let limit = SeriesLimit { live: self.live, allowed: series_max };
            return self.find_only(pairs, lookup).ok_or(limit);
        }
        match self.find(pairs, &mut lookup.shape, false) {
            Some(known) => Ok(known),
            None => {
                self.add(id, &mut lookup.shape, pairs);
                self.pending.insert(id);
                let hash = &self.hash;
                self.refused.registered(|| Fingerprint::of(hash, pairs));
                Ok(id)
            }
        }
    }

    /// The series with these sorted pairs. Stops at the first text that is new, which is most often found by one look into
    /// one dictionary.
    fn find_only(&self, pairs: &[(&str, &str)], lookup: &mut Lookup) -> Option<u32> {
        let is_new = |(name, value): &(&str, &str)| {
            self.names.code(name).and_then(|name| self.values(name)?.code(value)).is_none()
        };
        if pairs.get(lookup.new_at).is_some_and(is_new) {
            return None;
        }
        let found = self.find(pairs, &mut lookup.shape, true);
        if let Some(at) = lookup.shape.codes.iter().position(|code| *code == UNKNOWN) {
            lookup.new_at = at;
        }
        found
    }

    /// Remembers that no series has these sorted pairs; see [`RefusedSeries::add_unknown`].
    pub(in crate::tsdb) fn remember_unknown(
        &mut self,
        key: Key,
        pairs: &[(&str, &str)],
        limits: &OrgLimits,
        entries_max: usize,
    ) {
        let hash = &self.hash;
        self.refused.add_unknown(key, || Fingerprint::of(hash, pairs), limits, entries_max);
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
        let mut shape = Shape::default();
        let known = self.find(pairs, &mut shape, false);
        if self.may_define(id, known)? {
            self.add(id, &mut shape, pairs);
            if !registered {
                self.unregistered.push(id);
            }
        }
        Ok(())
    }

    /// Whether this id is to be given to a label set; `known`: the series that has it.
    fn may_define(&mut self, id: u32, known: Option<u32>) -> Result<bool, &'static str> {
        match known {
            Some(known) if known == id => {
                if self.pending.remove(&id) {
                    self.unregistered.push(id);
                }
                Ok(false)
            }
            Some(_) => Err("its labels are those of another series"),
            None if self.knows(id) => Err("its id is that of another series"),
            None if id as usize > self.places.len() + GAP_MAX || id == u32::MAX => {
                Err("its id is out of all proportion")
            }
            None => {
                // Its label set may be among those that were refused.
                self.refused.clear();
                Ok(true)
            }
        }
    }

    /// Takes note that the definitions of these series are durable. Those that were defined otherwise are left alone.
    pub(in crate::tsdb) fn are_durable(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            if self.pending.remove(&id) {
                self.unregistered.push(id);
            }
        }
    }

    /// Takes over the definitions of a whole body, the texts of which are looked up once each; as [`Table::define`].
    ///
    /// # Errors
    /// [`Damage`] where it is none, or the first thing that is wrong with a series; the others are defined.
    pub(in crate::tsdb) fn define_all(&mut self, body: &[u8], registered: bool) -> Result<(), Damage> {
        let mut body = Body::open(body)?;
        let mut known = Known::new(self, &body);
        let (mut values, mut wrong) = (Vec::new(), None);
        while let Some((id, shape)) = body.next(&mut values)? {
            let number = known.codes(self, &body, shape, &values);
            values.clear();
            let Some(number) = number else { continue };
            let hash = hash_row(&self.hash, number, &known.codes, &mut known.bytes);
            let have = self.find_row(number, &known.codes, hash);
            match self.may_define(id, have) {
                Ok(true) => {
                    self.place(id, number, &known.codes, hash);
                    if !registered {
                        self.unregistered.push(id);
                    }
                }
                Ok(false) => {}
                Err(what) => _ = wrong.get_or_insert(what),
            }
        }
        wrong.map_or(Ok(()), |what| Err(Damage::new(0, what)))
    }

    /// The series with these pairs. Sets `shape` to what is known of their texts; if `until_new`, up to the first that is
    /// not known.
    fn find(&self, pairs: &[(&str, &str)], shape: &mut Shape, until_new: bool) -> Option<u32> {
        shape.clear();
        let mut metric = None;
        for (name, value) in pairs {
            let name_code = self.names.code(name);
            let code = name_code.and_then(|code| self.values(code)?.code(value));
            shape.names.push(name_code.unwrap_or(UNKNOWN));
            shape.codes.push(code.unwrap_or(UNKNOWN));
            if until_new && code.is_none() {
                return None;
            }
            if *name == METRIC_NAME {
                metric = code;
            }
        }
        if shape.codes.contains(&UNKNOWN) {
            return None;
        }
        let family = self.by_shape.get(shape.key(metric).as_slice()).copied()?;
        self.find_row(family, &shape.codes, shape.hash(&self.hash, family))
    }

    fn find_row(&self, family: u32, codes: &[u32], hash: u32) -> Option<u32> {
        let same = |id: u32| {
            self.family_of(id) == Some(family)
                && self.row_of(id).is_some_and(|(family, row)| {
                    family.columns.iter().zip(codes).all(|(column, code)| column.code(row) == Some(*code))
                })
        };
        self.rows.find(hash, same)
    }

    fn add(&mut self, id: u32, shape: &mut Shape, pairs: &[(&str, &str)]) {
        let mut metric = None;
        for ((name, value), (name_code, code)) in
            pairs.iter().zip(shape.names.iter_mut().zip(&mut shape.codes))
        {
            if *name_code == UNKNOWN {
                *name_code = self.intern_name(name);
            }
            if *code == UNKNOWN {
                *code = self.intern_value(*name_code, value);
            }
            if *name == METRIC_NAME {
                metric = Some(*code);
            }
        }
        let number = self.family(metric, shape);
        let hash = shape.hash(&self.hash, number);
        self.place(id, number, &shape.codes, hash);
    }

    fn intern_name(&mut self, name: &str) -> u32 {
        let before = self.names.bytes();
        let code = self.names.intern(name);
        self.column_bytes += self.names.bytes() - before;
        let hash = &self.hash;
        self.values.resize_with(self.names.len(), || Dictionary::new(hash.clone()));
        code
    }

    fn intern_value(&mut self, name: u32, value: &str) -> u32 {
        let Some(dictionary) = self.values.get_mut(name as usize) else { return UNKNOWN };
        let before = dictionary.bytes();
        let code = dictionary.intern(value);
        self.column_bytes += dictionary.bytes() - before;
        code
    }

    /// Gives a series its row.
    fn place(&mut self, id: u32, number: u32, codes: &[u32], hash: u32) {
        let Some(family) = self.families.get_mut(number as usize) else { return };
        self.column_bytes += family.insert(id, codes);
        self.places.set(id as usize, number + 1);
        self.rows.insert(hash, id);
        self.live += 1;
    }

    fn family(&mut self, metric: Option<u32>, shape: &Shape) -> u32 {
        let key = shape.key(metric);
        if let Some(number) = self.by_shape.get(key.as_slice()) {
            return *number;
        }
        // Families are as many as series at most, and their ids end before this.
        let number = u32::try_from(self.families.len()).unwrap_or(UNKNOWN);
        let columns: Vec<Column> = shape.codes.iter().map(|code| Column::Same(*code)).collect();
        self.column_bytes += FAMILY_BYTES + columns.len() * (size_of::<Column>() + 8);
        let (names, ids, order) = (shape.names.as_slice().into(), Vec::new(), Order::default());
        self.families.push(Family { names, columns, ids, moved: 0, order });
        // A series without a metric name is refused before this; in a strange definition it is a family of its own.
        self.by_metric.entry(metric.unwrap_or(UNKNOWN)).or_default().push(number);
        self.by_shape.insert(key.into(), number);
        number
    }

    /// The numbers of the families of one metric name.
    pub(in crate::tsdb) fn families_of(&self, metric: &str) -> &[u32] {
        let code = self.names.code(METRIC_NAME).and_then(|name| self.values.get(name as usize)?.code(metric));
        code.and_then(|code| self.by_metric.get(&code)).map_or(&[], Vec::as_slice)
    }

    /// The values of a label name, by its code.
    pub(in crate::tsdb) fn values(&self, name: u32) -> Option<&Dictionary> {
        self.values.get(name as usize)
    }

    /// The names, and the values of each.
    pub(super) fn dictionaries(&self) -> impl Iterator<Item = &Dictionary> {
        std::iter::once(&self.names).chain(&self.values)
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
        let (family, row) = self.row_of(id)?;
        Some(self.row_labels(family, row))
    }

    /// The number of a series' family.
    pub(in crate::tsdb) fn family_of(&self, id: u32) -> Option<u32> {
        self.places.get(id as usize)?.checked_sub(1)
    }

    /// Where a series stands.
    pub(super) fn row_of(&self, id: u32) -> Option<(&Family, usize)> {
        let family = self.families.get(self.family_of(id)? as usize)?;
        Some((family, family.ids.binary_search(&id).ok()?))
    }

    /// Whether a definition of this series is known.
    pub(in crate::tsdb) fn knows(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|place| place > 0)
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
            assert_eq!(table.find_or_add(pairs, 3, &mut Lookup::default()), Ok(id));
        }
        assert_eq!(
            table.find_or_add(&[("__name__", "x")], 3, &mut Lookup::default()),
            Err(SeriesLimit { live: 3, allowed: 3 })
        );
        assert_eq!(table.labels(1).map(|l| l.to_string()).as_deref(), Some(r#"{__name__="up", job="b"}"#));
        assert_eq!(table.labels(3), None);
        assert_eq!(table.families.len(), 2);
        assert_eq!(
            (table.families_of("up"), table.families.first().map(|family| &*family.ids)),
            (&[0][..], Some(&[0, 1][..]))
        );
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
        assert_eq!(table.find_or_add(&[("__name__", "y")], 10, &mut Lookup::default()), Ok(6));
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
        assert_eq!(table.raw.get(domain.key(&9_999u32.to_le_bytes())), Some(9_999));
    }
}
