//! The body that defines series, in the log (type 2) and in the registry (type 32).
//!
//! ```text
//! varint strings, strings x {varint bytes, UTF-8}
//! varint shapes,  shapes x {varint labels, labels x varint string}          label names, ascending
//! varint rows,    rows x {zigzag varint series id - the id before, varint shape,
//!                         labels x varint string}
//! ```
//! Each body has its own dictionary: a damaged record loses only the series that it defines.

use std::collections::HashMap;

use rapidhash::RapidHashMap;

use super::table::Table;
use crate::tsdb::codec::{Reader, put_text, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

/// A builder of one body.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Definitions {
    strings: HashMap<Box<str>, u64>,
    shapes: HashMap<Vec<u64>, u64>,
    /// For rows of one table: strings by the codes of label name and value, shapes by family.
    by_code: RapidHashMap<(u32, u32), u64>,
    by_family: RapidHashMap<u32, u64>,
    head: Vec<u8>,
    shape_bytes: Vec<u8>,
    rows: Vec<u8>,
    count: u64,
    last_id: i64,
}

impl Definitions {
    /// Adds a series. Its pairs must be sorted by name.
    pub(in crate::tsdb) fn add<'a>(
        &mut self,
        id: u32,
        pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) {
        let shape: Vec<u64> = pairs.clone().map(|(name, _)| self.string(name)).collect();
        let shape = self.shape(shape);
        self.begin_row(id, shape);
        for (_, value) in pairs {
            let value = self.string(value);
            put_varint(&mut self.rows, value);
        }
    }

    /// Like [`Definitions::add`], for a series of a table, which must be the same in all calls.
    /// Each text of the table is looked up once, not once per series. A series that is not in the
    /// table is skipped.
    pub(in crate::tsdb) fn add_known(&mut self, id: u32, table: &Table) {
        let (Some((family, row)), Some(number)) = (table.row_of(id), table.family_of(id)) else { return };
        let shape = self.by_family.get(&number).copied().unwrap_or_else(|| {
            let names = family.names.iter().filter_map(|name| table.names.text(*name));
            let shape = names.map(|name| self.string(name)).collect();
            let shape = self.shape(shape);
            self.by_family.insert(number, shape);
            shape
        });
        self.begin_row(id, shape);
        for (name, column) in family.names.iter().zip(&family.columns) {
            let Some(code) = column.code(row) else { continue };
            let value = self.by_code.get(&(*name, code)).copied().unwrap_or_else(|| {
                let text = table.values(*name).and_then(|values| values.text(code));
                let value = self.string(text.map(AsRef::as_ref).unwrap_or_default());
                self.by_code.insert((*name, code), value);
                value
            });
            put_varint(&mut self.rows, value);
        }
    }

    fn begin_row(&mut self, id: u32, shape: u64) {
        put_zigzag(&mut self.rows, i64::from(id) - self.last_id);
        self.last_id = i64::from(id);
        put_varint(&mut self.rows, shape);
        self.count += 1;
    }

    /// Returns the number of a list of names.
    fn shape(&mut self, shape: Vec<u64>) -> u64 {
        let next = self.shapes.len() as u64;
        let known = self.shapes.get(&shape).copied();
        known.unwrap_or_else(|| {
            put_varint(&mut self.shape_bytes, shape.len() as u64);
            shape.iter().for_each(|name| put_varint(&mut self.shape_bytes, *name));
            self.shapes.insert(shape, next);
            next
        })
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.insert(text.into(), number);
        put_text(&mut self.head, text);
        number
    }

    /// Returns the length of the body in bytes, at most 15 too long for the three counts.
    pub(in crate::tsdb) fn bytes(&self) -> usize {
        self.head.len() + self.shape_bytes.len() + self.rows.len() + 15
    }

    pub(in crate::tsdb) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the body.
    pub(in crate::tsdb) fn finish(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.bytes());
        for (count, bytes) in [
            (self.strings.len() as u64, &self.head),
            (self.shapes.len() as u64, &self.shape_bytes),
            (self.count, &self.rows),
        ] {
            put_varint(&mut body, count);
            body.extend_from_slice(bytes);
        }
        body
    }
}

/// A reader of a body. Texts and shapes are decoded first, rows one by one.
pub(in crate::tsdb) struct Body<'a> {
    pub(in crate::tsdb) texts: Vec<&'a str>,
    /// By shape: the numbers of the label names, which ascend by text.
    pub(in crate::tsdb) shapes: Vec<Vec<u32>>,
    reader: Reader<'a>,
    id: i64,
    rows: usize,
}

impl<'a> Body<'a> {
    /// Decodes texts and shapes.
    ///
    /// # Errors
    /// [`Damage`] if they are invalid.
    pub(in crate::tsdb) fn open(body: &'a [u8]) -> Result<Body<'a>, Damage> {
        let mut reader = Reader::new(body);
        let count = reader.count(1)?;
        let texts = (0..count).map(|_| reader.text()).collect::<Result<Vec<_>, _>>()?;
        let count = reader.count(1)?;
        let mut shapes: Vec<Vec<u32>> = Vec::with_capacity(count);
        for _ in 0..count {
            let labels = reader.count(1)?;
            let number = |_| text_number(&mut reader, texts.len());
            let shape = (0..labels).map(number).collect::<Result<Vec<_>, _>>()?;
            if !shape.iter().map(|number| texts.get(*number as usize)).is_sorted_by(|a, b| a < b) {
                return Err(reader.damage("label names do not ascend"));
            }
            shapes.push(shape);
        }
        let rows = reader.count(2)?;
        Ok(Body { texts, shapes, reader, id: 0, rows })
    }

    /// Returns the id of the next series and the number of its shape, and appends the numbers of
    /// its values to `values`. Returns None after the last row.
    ///
    /// # Errors
    /// [`Damage`] if the row is invalid, or if bytes follow the last row.
    pub(in crate::tsdb) fn next(&mut self, values: &mut Vec<u32>) -> Result<Option<(u32, usize)>, Damage> {
        let Some(left) = self.rows.checked_sub(1) else { return self.reader.end().map(|()| None) };
        self.rows = left;
        self.id = self.id.wrapping_add(self.reader.zigzag()?);
        let id = u32::try_from(self.id).map_err(|_| self.reader.damage("series id over 32 bits"))?;
        let number = usize::try_from(self.reader.varint()?).unwrap_or(usize::MAX);
        let shape = self.shapes.get(number).ok_or_else(|| self.reader.damage("no such shape"))?;
        for _ in shape {
            values.push(text_number(&mut self.reader, self.texts.len())?);
        }
        Ok(Some((id, number)))
    }
}

/// Returns the ids of a body's series.
///
/// # Errors
/// [`Damage`] if the body is invalid.
pub(in crate::tsdb) fn ids(body: &[u8]) -> Result<Vec<u32>, Damage> {
    let mut body = Body::open(body)?;
    let (mut ids, mut values) = (Vec::with_capacity(body.rows), Vec::new());
    while let Some((id, _)) = body.next(&mut values)? {
        ids.push(id);
        values.clear();
    }
    Ok(ids)
}

#[inline]
fn text_number(reader: &mut Reader<'_>, texts: usize) -> Result<u32, Damage> {
    let number = reader.varint()?;
    let known = usize::try_from(number).is_ok_and(|number| number < texts);
    u32::try_from(number).ok().filter(|_| known).ok_or_else(|| reader.damage("no such string"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tsdb::series::identity::HashSecret;
    use crate::tsdb::series::table::Lookup;

    type DefinedSeries = (u32, Vec<(String, String)>);

    fn encode(series: &[DefinedSeries]) -> Vec<u8> {
        let mut definitions = Definitions::default();
        for (id, pairs) in series {
            definitions.add(*id, pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        }
        definitions.finish()
    }

    type SeriesCallback<'a> = &'a mut dyn FnMut(u32, &[(&str, &str)]);

    fn decode(body: &[u8], on_series: SeriesCallback<'_>) -> Result<(), Damage> {
        let mut body = Body::open(body)?;
        let mut values = Vec::new();
        while let Some((id, shape)) = body.next(&mut values)? {
            let values = std::mem::take(&mut values);
            let text = |number: &u32| body.texts[*number as usize];
            let pairs: Vec<_> = body.shapes[shape].iter().map(text).zip(values.iter().map(text)).collect();
            on_series(id, &pairs);
        }
        Ok(())
    }

    fn all(body: &[u8]) -> Result<Vec<DefinedSeries>, Damage> {
        let mut out = Vec::new();
        decode(body, &mut |id, pairs| {
            out.push((id, pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()));
        })?;
        Ok(out)
    }

    #[test]
    fn a_body_has_the_documented_bytes() {
        let of = |id, name: &str, job: &str| {
            (id, vec![("__name__".to_owned(), name.to_owned()), ("job".to_owned(), job.to_owned())])
        };
        let body = encode(&[of(3, "up", "a"), of(4, "up", "up")]);
        let mut documented = vec![4, 8];
        documented.extend_from_slice(b"__name__\x03job\x02up\x01a");
        documented.extend_from_slice(&[1, 2, 0, 1]);
        documented.extend_from_slice(&[2, 6, 0, 2, 3, 2, 0, 2, 2]);
        assert_eq!(body, documented);
    }

    fn series() -> impl Strategy<Value = Vec<DefinedSeries>> {
        let pairs = prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..4)
            .prop_map(|m| m.into_iter().collect());
        prop::collection::vec((any::<u32>(), pairs), 0..20)
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(series in series()) {
            prop_assert_eq!(all(&encode(&series)), Ok(series));
        }

        #[test]
        fn series_of_a_table_give_the_same_body(series in series()) {
            let mut table = Table::new(HashSecret::of(&[7; 32], 1));
            let mut ids = Vec::new();
            for (_, pairs) in &series {
                let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                ids.push(table.find_or_add(&pairs, u32::MAX, &mut Lookup::default()).expect("there is room"));
            }
            let mut known = Definitions::default();
            ids.iter().for_each(|id| known.add_known(*id, &table));
            known.add_known(u32::MAX, &table);
            let series: Vec<DefinedSeries> = ids.into_iter().zip(series).map(|(id, (_, pairs))| (id, pairs)).collect();
            prop_assert_eq!(known.finish(), encode(&series));
        }

        #[test]
        fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = all(&bytes);
        }
    }
}
