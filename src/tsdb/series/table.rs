//! The series of one organisation: dictionaries and families.
//!
//! A family is the series with one metric name and one set of label names: a table with a column of
//! dictionary codes for each label and a row for each series. Selections scan columns; there is no
//! index (docs/storage.md section 16). Each text is stored once per label name, as an `Arc<str>`
//! that rendered label sets share. A start fills a table by columns ([`load`]), everything else row
//! by row.

pub(in crate::tsdb) mod load;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(in crate::tsdb) use super::columns::CodeColumn;
use super::columns::{Codes, reserve_one};
use super::definition::Body;
pub(in crate::tsdb) use super::dictionary::Dictionary;
use super::identity::{HashSecret, IdTable, LabelsKey, TextHash};
use super::ids::Ids;
use super::order::CachedOrder;
use super::refused::{Fingerprint, RefusedSeries};
use crate::model::{Label, Labels, METRIC_NAME};
use crate::tsdb::error::Damage;
use crate::tsdb::options::OrgLimits;

/// The error for a new series beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct SeriesLimit {
    pub(in crate::tsdb) live: u32,
    pub(in crate::tsdb) allowed: u32,
}

/// The series of one metric name and one set of label names.
#[derive(Debug)]
pub(in crate::tsdb) struct Family {
    /// Codes of the label names, in order of their text, including the metric name's.
    pub(in crate::tsdb) names: Box<[u32]>,
    /// A column for each name.
    pub(in crate::tsdb) columns: Vec<CodeColumn>,
    /// The series of each row, ascending.
    pub(in crate::tsdb) ids: Vec<u32>,
    /// The number of insertions before existing rows, which move those. They happen only during a
    /// start: a running store assigns ids in ascending order.
    pub(in crate::tsdb) moved: u32,
    pub(super) order: CachedOrder,
}

/// The memory of a family without its columns' codes and ids: itself, its names, its entries in
/// both maps.
const FAMILY_BYTES: usize = size_of::<Family>() + 160;

impl Family {
    /// Returns the column of a label name, if the family has it.
    pub(in crate::tsdb) fn column(&self, name: u32) -> Option<&CodeColumn> {
        self.columns.get(self.names.iter().position(|have| *have == name)?)
    }

    /// Adds a row, and returns the growth in bytes. Ids mostly ascend; any other row is inserted in
    /// order.
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
            self.order.clear();
        }
        let before = self.ids.capacity();
        reserve_one(&mut self.ids);
        self.ids.insert(row, id);
        grown + (self.ids.capacity() - before) * 4
    }
}

/// The code of a text that has none.
const UNKNOWN: u32 = u32::MAX;

/// A label set as codes of names and values, in order of the names.
#[derive(Debug, Default)]
struct LabelCodes {
    names: Vec<u32>,
    codes: Vec<u32>,
}

impl LabelCodes {
    /// Returns the key of the label set's family.
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

/// The buffers of a lookup, and a hint for the next lookup of the same request.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Lookup {
    shape: LabelCodes,
    /// The index of the new label in the last label set that no series had. The next label set
    /// probably has a new label there, too.
    new_at: usize,
}

/// Returns the hash of a row. `bytes` is a buffer.
fn hash_row(hash: &TextHash, family: u32, codes: &[u32], bytes: &mut Vec<u8>) -> u32 {
    bytes.clear();
    bytes.extend_from_slice(&family.to_le_bytes());
    for code in codes {
        bytes.extend_from_slice(&code.to_le_bytes());
    }
    hash.of(bytes)
}

/// The codes of a body's texts, filled while its rows are defined.
struct BodyCodes {
    /// By shape: the codes of the label names, and the index of the metric name's value.
    shapes: Vec<(Vec<u32>, Option<usize>)>,
    /// By text: the label name it was last a value of, and its code there. Few texts are values of
    /// two labels.
    values: Vec<(u32, u32)>,
    /// The families, by shape and code of the metric name.
    families: HashMap<(usize, u32), u32>,
    /// The codes of the current row.
    codes: Vec<u32>,
    bytes: Vec<u8>,
}

impl BodyCodes {
    fn new(table: &mut Table, body: &Body<'_>) -> BodyCodes {
        let text = |number: &u32| body.texts.get(*number as usize).copied().unwrap_or_default();
        let mut shape = |numbers: &Vec<u32>| {
            let names = numbers.iter().map(|number| table.intern_name(text(number))).collect();
            (names, numbers.iter().position(|number| text(number) == METRIC_NAME))
        };
        let shapes = body.shapes.iter().map(&mut shape).collect();
        let values = vec![(UNKNOWN, UNKNOWN); body.texts.len()];
        BodyCodes { shapes, values, families: HashMap::new(), codes: Vec::new(), bytes: Vec::new() }
    }

    /// Sets `codes` to those of a row, and returns the row's family.
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
        let number = table.family(metric, &LabelCodes { names: names.clone(), codes: self.codes.clone() });
        self.families.insert(key, number);
        Some(number)
    }
}

/// All series of one organisation.
#[derive(Debug)]
pub(in crate::tsdb) struct Table {
    pub(in crate::tsdb) secret: HashSecret,
    /// Label names.
    pub(in crate::tsdb) names: Dictionary,
    /// Values, by code of their label name.
    values: Vec<Dictionary>,
    pub(in crate::tsdb) families: Vec<Family>,
    /// Families by code of the metric name's value.
    by_metric: HashMap<u32, Vec<u32>>,
    /// Families by the code of the metric name's value, followed by those of the label names.
    by_shape: HashMap<Box<[u32]>, u32>,
    /// By series id: one more than the family's number, or 0 if the id has no definition, as when a
    /// definition never became durable. The row is found by a search for the id in the family.
    places: Codes,
    live: u32,
    /// Memory of dictionaries and families, in bytes.
    column_bytes: usize,
    hash: TextHash,
    /// Ids by the hash of family and codes.
    rows: IdTable,
    raw: Ids,
    /// Series whose definition may not be durable yet: every record that uses one repeats its
    /// definition.
    pub(in crate::tsdb) pending: HashSet<u32>,
    /// Series that are durable in the log, but missing from the registry file.
    pub(in crate::tsdb) unregistered: Vec<u32>,
    pub(in crate::tsdb) refused: RefusedSeries,
}

/// The most ids that a definition may leave out. Ids are dense, and a damaged or hostile definition
/// must not make the table huge.
const GAP_MAX: usize = 1 << 20;

impl Table {
    pub(in crate::tsdb) fn new(secret: HashSecret) -> Table {
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
            rows: IdTable::default(),
            raw: Ids::default(),
            pending: HashSet::new(),
            unregistered: Vec::new(),
            refused: RefusedSeries::default(),
        }
    }

    /// Returns the number of registered series.
    pub(in crate::tsdb) const fn live(&self) -> u32 {
        self.live
    }

    /// Returns the memory in bytes. It includes all orders of families and dictionaries, whether
    /// they exist or not.
    pub(in crate::tsdb) fn bytes(&self) -> u64 {
        let ids = self.places.bytes() + self.rows.bytes() + self.raw.bytes();
        let orders = self.live as usize * 4;
        (self.column_bytes + ids + orders + self.unregistered.capacity() * 4) as u64
    }

    /// Returns one more than the greatest id.
    pub(in crate::tsdb) fn ids_end(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Appends the series of each key, or None for raw bytes that are not cached. Keys that repeat
    /// refused label sets in order are not looked up.
    pub(in crate::tsdb) fn by_raw_many(
        &self,
        keys: &[LabelsKey],
        limits: &OrgLimits,
        out: &mut Vec<Option<u32>>,
    ) {
        self.raw.get_many_unless(keys, self.refused.recognizer(limits), out);
    }

    /// Caches the series of raw label bytes. The cache is cleared when it has 4 entries per series,
    /// so a sender that keeps changing the encoding of its labels cannot fill the memory.
    pub(in crate::tsdb) fn cache_raw(&mut self, key: LabelsKey, id: u32) {
        let bound = (self.live as usize).saturating_mul(4).max(4_096);
        if self.raw.len() >= bound {
            self.raw.clear();
        }
        self.raw.insert(key, id);
    }

    /// Returns the series with these sorted pairs. A new series is registered as pending.
    ///
    /// # Errors
    /// [`SeriesLimit`] if the series is new and the limit is reached.
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

    /// Returns the series with these sorted pairs. It stops at the first new text, which is mostly
    /// found by one lookup in one dictionary.
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

    /// Returns the series with these sorted pairs, if there is one.
    pub(in crate::tsdb) fn known(&self, pairs: &[(&str, &str)], lookup: &mut Lookup) -> Option<u32> {
        self.find(pairs, &mut lookup.shape, true)
    }

    /// Records that no series has these sorted pairs; see [`RefusedSeries::add_unknown`].
    pub(in crate::tsdb) fn record_unknown(
        &mut self,
        key: LabelsKey,
        pairs: &[(&str, &str)],
        limits: &OrgLimits,
        entries_max: usize,
    ) {
        let hash = &self.hash;
        self.refused.add_unknown(key, || Fingerprint::of(hash, pairs), limits, entries_max);
    }

    /// Adds a durable definition that the registry file does not have yet.
    ///
    /// # Errors
    /// A sentence if the id or the labels belong to another series, or if the id is far too large.
    pub(in crate::tsdb) fn define(&mut self, id: u32, pairs: &[(&str, &str)]) -> Result<(), &'static str> {
        let mut shape = LabelCodes::default();
        let known = self.find(pairs, &mut shape, false);
        if self.may_define(id, known)? {
            self.add(id, &mut shape, pairs);
            self.unregistered.push(id);
        }
        Ok(())
    }

    /// Returns whether to assign this id to a label set. `known` is the series that has the label
    /// set.
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
                Err("its id is far too large")
            }
            None => {
                // The label set may be among the refused ones.
                self.refused.clear();
                Ok(true)
            }
        }
    }

    /// Marks the definitions of these series as durable. Series that were defined otherwise are
    /// skipped.
    pub(in crate::tsdb) fn mark_durable(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            if self.pending.remove(&id) {
                self.unregistered.push(id);
            }
        }
    }

    /// Adds the definitions of a whole body, like [`Table::define`], with one lookup for each text.
    ///
    /// # Errors
    /// [`Damage`] if the body is invalid, or for the first wrong series; the other series are
    /// defined.
    pub(in crate::tsdb) fn define_all(&mut self, body: &[u8], registered: bool) -> Result<(), Damage> {
        let mut body = Body::open(body)?;
        let mut known = BodyCodes::new(self, &body);
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

    /// Returns the series with these pairs. Sets `shape` to the codes of their texts; if
    /// `until_new`, only up to the first text without a code.
    fn find(&self, pairs: &[(&str, &str)], shape: &mut LabelCodes, until_new: bool) -> Option<u32> {
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

    fn add(&mut self, id: u32, shape: &mut LabelCodes, pairs: &[(&str, &str)]) {
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

    /// Adds the row of a series.
    fn place(&mut self, id: u32, number: u32, codes: &[u32], hash: u32) {
        let Some(family) = self.families.get_mut(number as usize) else { return };
        self.column_bytes += family.insert(id, codes);
        self.places.set(id as usize, number + 1);
        self.rows.insert(hash, id);
        self.live += 1;
    }

    fn family(&mut self, metric: Option<u32>, shape: &LabelCodes) -> u32 {
        let key = shape.key(metric);
        if let Some(number) = self.by_shape.get(key.as_slice()) {
            return *number;
        }
        // There are at most as many families as series, and series ids end before this.
        let number = u32::try_from(self.families.len()).unwrap_or(UNKNOWN);
        let columns: Vec<CodeColumn> = shape.codes.iter().map(|code| CodeColumn::Same(*code)).collect();
        self.column_bytes += FAMILY_BYTES + columns.len() * (size_of::<CodeColumn>() + 8);
        let (names, ids, order) = (shape.names.as_slice().into(), Vec::new(), CachedOrder::default());
        self.families.push(Family { names, columns, ids, moved: 0, order });
        // Append refuses a series without a metric name. A family without one is listed under
        // `UNKNOWN`.
        self.by_metric.entry(metric.unwrap_or(UNKNOWN)).or_default().push(number);
        self.by_shape.insert(key.into(), number);
        number
    }

    /// Returns the numbers of the families with this metric name.
    pub(in crate::tsdb) fn families_of(&self, metric: &str) -> &[u32] {
        let code = self.names.code(METRIC_NAME).and_then(|name| self.values.get(name as usize)?.code(metric));
        code.and_then(|code| self.by_metric.get(&code)).map_or(&[], Vec::as_slice)
    }

    /// Returns the values of a label name, by its code.
    pub(in crate::tsdb) fn values(&self, name: u32) -> Option<&Dictionary> {
        self.values.get(name as usize)
    }

    /// Returns the dictionary of names, and then those of the values of each name.
    pub(super) fn dictionaries(&self) -> impl Iterator<Item = &Dictionary> {
        std::iter::once(&self.names).chain(&self.values)
    }

    /// Returns the metric name of a family.
    pub(in crate::tsdb) fn metric_name(&self, family: &Family) -> Option<&Arc<str>> {
        let name = self.names.code(METRIC_NAME)?;
        let place = family.names.iter().position(|n| *n == name)?;
        self.values(name)?.text(family.columns.get(place)?.code(0)?)
    }

    /// Returns the labels of a row.
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

    /// Calls `each` with the names and values of a series' labels, in the order of the names.
    /// Returns the number of the series' family.
    pub(in crate::tsdb) fn each_label(&self, id: u32, mut each: impl FnMut(&str, &str)) -> Option<u32> {
        let number = self.family_of(id)?;
        let (family, row) = self.row_of(id)?;
        for (name, column) in family.names.iter().zip(&family.columns) {
            let value = column.code(row).and_then(|code| self.values(*name)?.text(code));
            if let (Some(name), Some(value)) = (self.names.text(*name), value) {
                each(name, value);
            }
        }
        Some(number)
    }

    /// Returns the labels of a series.
    pub(in crate::tsdb) fn labels(&self, id: u32) -> Option<Labels> {
        let (family, row) = self.row_of(id)?;
        Some(self.row_labels(family, row))
    }

    /// Returns the number of a series' family.
    pub(in crate::tsdb) fn family_of(&self, id: u32) -> Option<u32> {
        self.places.get(id as usize)?.checked_sub(1)
    }

    /// Returns the family of a series and its row.
    pub(super) fn row_of(&self, id: u32) -> Option<(&Family, usize)> {
        let family = self.families.get(self.family_of(id)? as usize)?;
        Some((family, family.ids.binary_search(&id).ok()?))
    }

    /// Returns whether the table has a definition of this series.
    pub(in crate::tsdb) fn knows(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|place| place > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(HashSecret::of(&[1; 32], 1))
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
        let each = |id| {
            let mut pairs = Vec::new();
            let number = table.each_label(id, |name, value| pairs.push((name.to_owned(), value.to_owned())));
            number.map(|number| (number, Labels::from_pairs(pairs)))
        };
        let expected = |number, id| table.labels(id).map(|labels| (number, labels));
        assert_eq!([each(0), each(1), each(2)], [expected(0, 0), expected(0, 1), expected(1, 2)]);
        assert_eq!(each(3), None);
        assert_eq!(table.families.len(), 2);
        assert_eq!(
            (table.families_of("up"), table.families.first().map(|family| &*family.ids)),
            (&[0][..], Some(&[0, 1][..]))
        );
    }

    #[test]
    fn definitions_that_conflict_are_refused() {
        let mut table = table();
        let a = [("__name__", "up")];
        assert_eq!(table.define(5, &a), Ok(()));
        assert_eq!(table.define(5, &a), Ok(()));
        assert!(table.define(6, &a).is_err());
        assert!(table.define(5, &[("__name__", "x")]).is_err());
        assert!(table.define(u32::MAX - 1, &[("__name__", "x")]).is_err());
        assert_eq!(table.find_or_add(&[("__name__", "y")], 10, &mut Lookup::default()), Ok(6));
        assert_eq!((table.live(), table.unregistered.as_slice()), (2, &[5][..]));
        assert_eq!(table.define(6, &[("__name__", "y")]), Ok(()));
        assert_eq!((table.pending.len(), table.unregistered.as_slice()), (0, &[5, 6][..]));
    }

    #[test]
    fn the_cache_of_raw_label_bytes_is_bounded() {
        let mut table = table();
        let domain = table.secret.domain(0, &[]);
        for n in 0..10_000u32 {
            table.cache_raw(domain.key(&n.to_le_bytes()), n);
        }
        assert!(table.raw.len() <= 4_096);
        assert_eq!(table.raw.get(domain.key(&9_999u32.to_le_bytes())), Some(9_999));
    }
}
