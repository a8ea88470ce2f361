//! The record of a deletion, and its application to the head.
//!
//! Body of the record (type 8):
//! ```text
//! i64 first ms, i64 last ms, both inclusive;   varint ranges n;
//! n x { varint first series id - the id after the range before, varint series - 1 }
//! ```
//! The record of a dropped organisation (type 6) has a body of one zero byte.

use super::OrgStore;
use super::manifest::TOMBSTONE_RANGES_MAX;
use crate::model::{TimeRange, Timestamp};
use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// The content of a deletion record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Deletion {
    pub(in crate::tsdb) from_ms: i64,
    pub(in crate::tsdb) to_ms: i64,
    /// Ranges of series ids, both ends inclusive, ascending and not adjacent.
    pub(in crate::tsdb) series: Vec<(u32, u32)>,
}

impl Deletion {
    pub(in crate::tsdb) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.series.len() * 4);
        out.extend_from_slice(&self.from_ms.to_le_bytes());
        out.extend_from_slice(&self.to_ms.to_le_bytes());
        put_varint(&mut out, self.series.len() as u64);
        let mut next = 0u64;
        for (first, last) in &self.series {
            put_varint(&mut out, u64::from(*first).saturating_sub(next));
            put_varint(&mut out, u64::from(last.saturating_sub(*first)));
            next = u64::from(*last) + 1;
        }
        out
    }

    /// Decodes the body of a deletion record.
    ///
    /// # Errors
    /// [`Damage`] if the body is invalid.
    pub(in crate::tsdb) fn decode(body: &[u8]) -> Result<Deletion, Damage> {
        let mut reader = Reader::new(body);
        let (from_ms, to_ms) = (reader.i64()?, reader.i64()?);
        let ranges = reader.count(2)?;
        if ranges > TOMBSTONE_RANGES_MAX {
            return Err(reader.damage("too many ranges of series"));
        }
        let mut series = Vec::with_capacity(ranges);
        let mut next = 0u64;
        for _ in 0..ranges {
            let first = next.checked_add(reader.varint()?);
            let last = first.zip(Some(reader.varint()?)).and_then(|(first, more)| first.checked_add(more));
            let range = first
                .zip(last)
                .and_then(|(first, last)| Some((u32::try_from(first).ok()?, u32::try_from(last).ok()?)));
            let Some((first, last)) = range else { return Err(reader.damage("series ids over 32 bits")) };
            series.push((first, last));
            next = u64::from(last) + 1;
        }
        reader.end()?;
        Ok(Deletion { from_ms, to_ms, series })
    }

    fn range(&self) -> TimeRange {
        TimeRange::new(Timestamp::from_ms(self.from_ms), Timestamp::from_ms(self.to_ms))
    }

    /// Removes the samples from the head, except for series whose checkpoint rows (`floats`,
    /// `side_data`) already include this deletion. `exemplars` is whether the present exemplars are
    /// older than the deletion.
    pub(in crate::tsdb) fn apply(
        &self,
        store: &OrgStore,
        floats: impl Fn(u32) -> bool,
        side_data: impl Fn(u32) -> bool,
        exemplars: bool,
    ) {
        // Takes no lock of the series table: the thread that writes the log must not wait for it.
        let end = store.usage.ids_end();
        for (first, last) in &self.series {
            for id in *first..(*last).saturating_add(1).min(end) {
                if !floats(id) {
                    store.head.delete(id, self.range());
                }
                if !side_data(id) {
                    store.side.delete(id, self.range());
                }
                if exemplars {
                    store.side.delete_exemplars(id, self.range());
                }
            }
        }
    }
}
