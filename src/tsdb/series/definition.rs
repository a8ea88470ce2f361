//! The body that defines series, in the log (type 2) and in the registry (type 32).
//!
//! ```text
//! varint strings, strings x {varint bytes, UTF-8}
//! varint shapes,  shapes x {varint labels, labels x varint string}          label names, ascending
//! varint rows,    rows x {zigzag varint series id - the id before, varint shape, labels x varint string}
//! ```
//! Its dictionary is its own: a damaged record costs the series it defines, and no other.

use std::collections::HashMap;

use crate::tsdb::bytes::{Reader, put_text, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

/// Collects series for one body.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Definitions {
    strings: HashMap<Box<str>, u64>,
    shapes: HashMap<Vec<u64>, u64>,
    head: Vec<u8>,
    shape_bytes: Vec<u8>,
    rows: Vec<u8>,
    count: u64,
    last_id: i64,
}

impl Definitions {
    /// Adds a series; its pairs are sorted.
    pub(in crate::tsdb) fn add<'a>(
        &mut self,
        id: u32,
        pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) {
        let shape: Vec<u64> = pairs.clone().map(|(name, _)| self.string(name)).collect();
        let next = self.shapes.len() as u64;
        let known = self.shapes.get(&shape).copied();
        let shape = known.unwrap_or_else(|| {
            put_varint(&mut self.shape_bytes, shape.len() as u64);
            shape.iter().for_each(|name| put_varint(&mut self.shape_bytes, *name));
            self.shapes.insert(shape, next);
            next
        });
        put_zigzag(&mut self.rows, i64::from(id) - self.last_id);
        self.last_id = i64::from(id);
        put_varint(&mut self.rows, shape);
        for (_, value) in pairs {
            let value = self.string(value);
            put_varint(&mut self.rows, value);
        }
        self.count += 1;
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

    /// About how many bytes the body has; exact but for the three counts.
    pub(in crate::tsdb) fn bytes(&self) -> usize {
        self.head.len() + self.shape_bytes.len() + self.rows.len() + 15
    }

    pub(in crate::tsdb) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The body.
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

/// Takes a series: id and sorted pairs.
pub(in crate::tsdb) type OnSeries<'a> = &'a mut dyn FnMut(u32, &[(&str, &str)]);

/// Hands out the series of a body.
///
/// # Errors
/// [`Damage`] where it is none; series before it were handed out.
pub(in crate::tsdb) fn decode(body: &[u8], on_series: OnSeries<'_>) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    let count = reader.count(1)?;
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        strings.push(reader.text()?);
    }
    let string = |reader: &mut Reader<'_>| {
        let number = reader.varint()?;
        let found = usize::try_from(number).ok().and_then(|n| strings.get(n));
        found.copied().ok_or_else(|| reader.damage("no such string"))
    };
    let count = reader.count(1)?;
    let mut shapes: Vec<Vec<&str>> = Vec::with_capacity(count);
    for _ in 0..count {
        let labels = reader.count(1)?;
        let shape = (0..labels).map(|_| string(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        if !shape.is_sorted_by(|a, b| a < b) {
            return Err(reader.damage("label names do not ascend"));
        }
        shapes.push(shape);
    }
    let mut id = 0i64;
    let mut pairs = Vec::new();
    for _ in 0..reader.count(2)? {
        id = id.wrapping_add(reader.zigzag()?);
        let number = u32::try_from(id).map_err(|_| reader.damage("series id over 32 bits"))?;
        let shape = usize::try_from(reader.varint()?).ok().and_then(|n| shapes.get(n));
        let shape = shape.ok_or_else(|| reader.damage("no such shape"))?;
        pairs.clear();
        for name in shape {
            pairs.push((*name, string(&mut reader)?));
        }
        on_series(number, &pairs);
    }
    reader.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Series = (u32, Vec<(String, String)>);

    fn encode(series: &[Series]) -> Vec<u8> {
        let mut definitions = Definitions::default();
        for (id, pairs) in series {
            definitions.add(*id, pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        }
        definitions.finish()
    }

    fn all(body: &[u8]) -> Result<Vec<Series>, Damage> {
        let mut out = Vec::new();
        decode(body, &mut |id, pairs| {
            out.push((id, pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()));
        })?;
        Ok(out)
    }

    #[test]
    fn the_bytes_are_the_drawing() {
        let of = |id, name: &str, job: &str| {
            (id, vec![("__name__".to_owned(), name.to_owned()), ("job".to_owned(), job.to_owned())])
        };
        let body = encode(&[of(3, "up", "a"), of(4, "up", "up")]);
        let mut drawn = vec![4, 8];
        drawn.extend_from_slice(b"__name__\x03job\x02up\x01a");
        drawn.extend_from_slice(&[1, 2, 0, 1]);
        drawn.extend_from_slice(&[2, 6, 0, 2, 3, 2, 0, 2, 2]);
        assert_eq!(body, drawn);
    }

    fn series() -> impl Strategy<Value = Vec<Series>> {
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
        fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = all(&bytes);
        }
    }
}
