//! The rows in sled, their counts, and the only way to change them; shared by the committer,
//! recovery and readers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard};

use crate::kv::database::{Database, DatabaseError, ScanControl};
use crate::kv::frame::{self, DamagedRow, Frame};
use crate::kv::record::{self, Record};
use crate::kv::rows::{self, RowChanges};
use crate::model::StoreId;
use crate::sync::IgnorePoison as _;

/// Key of the row with the counts of all other rows: table 0, name "commit".
pub(super) const META_KEY: &[u8] = b"\x00commit";
const META_FRAME: Frame = Frame { version: 1, kind: 1, flags: 0 };
/// Page cache of control; the accounts are small.
const CACHE_BYTES: u64 = 8 << 20;

/// The last change in the database, the number of rows of each table, and a sum over them. It is
/// rewritten in the batch of every commit.
///
/// ```text
///  0 u64 seq of the last change   8 u64 wrapping sum of all row checksums   16 16 store id
/// 32 u16 tables                  34 tables x {u8 table, u64 rows}
/// ```
/// The sum detects a truncated file of sled, which may open without an error and with older values
/// of some rows, each of them intact. Rows of table 0 are in neither figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) seq: u64,
    /// Wrapping sum of the checksums of all rows.
    pub(super) sum: u64,
    pub(super) store: StoreId,
    /// Number of rows by first key byte, without table 0.
    pub(super) rows: BTreeMap<u8, u64>,
}

impl Meta {
    /// Returns the figures of a database without rows.
    pub(super) fn empty(store: StoreId) -> Meta {
        Meta { seq: 0, sum: 0, store, rows: BTreeMap::new() }
    }

    /// Updates the figures for one changed row, given the checksums of its old and new value.
    fn count(&mut self, table: u8, old: Option<u32>, new: Option<u32>) {
        let rows = self.rows.entry(table).or_default();
        *rows = rows.saturating_add(new.is_some().into()).saturating_sub(old.is_some().into());
        let sum = self.sum.wrapping_add(new.unwrap_or_default().into());
        self.sum = sum.wrapping_sub(old.unwrap_or_default().into());
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.seq.to_le_bytes().to_vec();
        out.extend_from_slice(&self.sum.to_le_bytes());
        out.extend_from_slice(&self.store.0);
        out.extend_from_slice(&u16::try_from(self.rows.len()).expect("at most 255 tables").to_le_bytes());
        for (table, rows) in &self.rows {
            out.push(*table);
            out.extend_from_slice(&rows.to_le_bytes());
        }
        out
    }

    fn decode(body: &[u8]) -> Option<Meta> {
        let (seq, rest) = body.split_first_chunk::<8>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let (store, rest) = rest.split_first_chunk::<16>()?;
        let (count, tables) = rest.split_first_chunk::<2>()?;
        let (entries, left) = tables.as_chunks::<9>();
        if !left.is_empty() || entries.len() != usize::from(u16::from_le_bytes(*count)) {
            return None;
        }
        let rows = entries.iter().map(|[t, n @ ..]| (*t, u64::from_le_bytes(*n))).collect();
        Some(Meta {
            seq: u64::from_le_bytes(*seq),
            sum: u64::from_le_bytes(*sum),
            store: StoreId(*store),
            rows,
        })
    }
}

/// The storage of the rows.
enum Backing {
    Database(Database),
    /// In memory until the process ends, on a disk without room for the database. Export and
    /// journal have all rows.
    Memory {
        dir: PathBuf,
        rows: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    },
}

/// Returns one row by its key.
pub(super) type RowReader<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, DatabaseError>;

/// Receives a value: its key, its frame and its body.
pub(super) type ValueVisitor<'a> = &'a mut dyn FnMut(&[u8], Frame, &[u8]) -> Result<(), DamagedRow>;

/// The open database, or its replacement in memory.
pub(super) struct ControlState {
    backing: Backing,
    /// Write-locked while a batch is applied, so that no reader sees a part of one.
    applying: RwLock<()>,
}

impl ControlState {
    pub(super) fn open(dir: &Path) -> Result<ControlState, DatabaseError> {
        let backing = Backing::Database(Database::open(dir, CACHE_BYTES)?);
        Ok(ControlState { backing, applying: RwLock::new(()) })
    }

    /// Creates an empty state in memory that replaces the database in `dir`, for which the disk has
    /// no room.
    pub(super) fn in_memory(dir: &Path) -> ControlState {
        let backing = Backing::Memory { dir: dir.to_owned(), rows: RwLock::default() };
        ControlState { backing, applying: RwLock::new(()) }
    }

    fn dir(&self) -> &Path {
        match &self.backing {
            Backing::Database(database) => database.dir(),
            Backing::Memory { dir, .. } => dir,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        match &self.backing {
            Backing::Database(database) => database.get(key),
            Backing::Memory { rows, .. } => Ok(read(rows).get(key).cloned()),
        }
    }

    fn scan(
        &self,
        prefix: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> ScanControl,
    ) -> Result<(), DatabaseError> {
        match &self.backing {
            Backing::Database(database) => database.scan(prefix, each),
            Backing::Memory { rows, .. } => {
                let rows = read(rows);
                let found = rows.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
                for (key, value) in found {
                    if matches!(each(key, value), ScanControl::Stop) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn scan_back(
        &self,
        prefix: &[u8],
        below: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> ScanControl,
    ) -> Result<(), DatabaseError> {
        match &self.backing {
            Backing::Database(database) => database.scan_back(prefix, below, each),
            Backing::Memory { rows, .. } => {
                let rows = read(rows);
                let found = rows.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
                let found: Vec<_> =
                    found.filter(|(key, _)| below.is_none_or(|below| key.as_slice() < below)).collect();
                for (key, value) in found.into_iter().rev() {
                    if matches!(each(key, value), ScanControl::Stop) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.applying.read().ignore_poison()
    }

    pub(super) fn damaged(&self, source: DamagedRow) -> DatabaseError {
        DatabaseError::Damaged { path: self.dir().to_owned(), source }
    }

    /// Returns one row; callers that need several rows of one moment hold
    /// [`ControlState::reading`].
    pub(super) fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get(key)
    }

    /// Returns the value under `key`, whose rows `row` returns.
    pub(super) fn value<R: Record>(
        &self,
        key: &[u8],
        row: RowReader<'_>,
    ) -> Result<Option<R>, DatabaseError> {
        let Some((frame, body)) = self.joined(key, row)? else { return Ok(None) };
        record::decode(key, frame, &body).map(Some).map_err(|e| self.damaged(e))
    }

    fn joined(&self, key: &[u8], row: RowReader<'_>) -> Result<Option<(Frame, Vec<u8>)>, DatabaseError> {
        let Some(first) = row(key)? else { return Ok(None) };
        let mut failed = None;
        let joined = rows::join(key, &first, &mut |further| {
            row(further).unwrap_or_else(|e| {
                failed = Some(e);
                None
            })
        });
        match failed {
            Some(e) => Err(e),
            None => joined.map(Some).map_err(|e| self.damaged(e)),
        }
    }

    /// Returns the rows whose keys begin with `prefix`.
    pub(super) fn rows(&self, prefix: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, DatabaseError> {
        let mut found = BTreeMap::new();
        self.scan(prefix, |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            ScanControl::Continue
        })?;
        Ok(found)
    }

    /// Returns the rows of the last `values` values whose keys begin with `prefix` and are below
    /// `below`.
    pub(super) fn rows_back(
        &self,
        prefix: &[u8],
        below: Option<&[u8]>,
        values: usize,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, DatabaseError> {
        let mut found = BTreeMap::new();
        let mut left = values;
        let mut bad = None;
        if values == 0 {
            return Ok(found);
        }
        self.scan_back(prefix, below, |key, value| {
            // Further rows of a value follow its first row, so a backward scan returns them before
            // it.
            match frame::open(key, value) {
                Ok((frame, ..)) => left -= usize::from(!rows::is_further(frame)),
                Err(e) => bad = Some(e),
            }
            found.insert(key.to_vec(), value.to_vec());
            if left == 0 || bad.is_some() { ScanControl::Stop } else { ScanControl::Continue }
        })?;
        bad.map_or(Ok(found), |e| Err(self.damaged(e)))
    }

    /// Passes all rows in key order to `each`, the meta row included, until it returns `Stop`.
    pub(super) fn each_row(
        &self,
        each: impl FnMut(&[u8], &[u8]) -> ScanControl,
    ) -> Result<(), DatabaseError> {
        self.scan(&[], each)
    }

    /// Returns the stored figures; `None` if this database was never finished.
    pub(super) fn meta(&self) -> Result<Option<Meta>, DatabaseError> {
        let Some(value) = self.get(META_KEY)? else { return Ok(None) };
        let (frame, body, _) = frame::open(META_KEY, &value).map_err(|e| self.damaged(e))?;
        let strange =
            || self.damaged(DamagedRow::Content { key: META_KEY.to_vec(), what: format!("{frame:?}") });
        if frame != META_FRAME {
            return Err(strange());
        }
        Meta::decode(body).map(Some).ok_or_else(strange)
    }

    /// Applies `changes` together with their meta row, and makes them durable.
    pub(super) fn apply(&self, meta: &mut Meta, changes: &RowChanges, seq: u64) -> Result<(), DatabaseError> {
        let mut next = Meta { seq, ..meta.clone() };
        for (key, value) in changes {
            let Some(table) = key.first().copied().filter(|table| *table != 0) else { continue };
            let crc = |value: &Vec<u8>| frame::open(key, value).map(|(_, _, crc)| crc);
            let old = self.get(key)?.as_ref().map(crc).transpose().map_err(|e| self.damaged(e))?;
            let new = value.as_ref().map(crc).transpose().map_err(|e| self.damaged(e))?;
            next.count(table, old, new);
        }
        next.rows.retain(|_, count| *count > 0);
        let meta_value = frame::seal(META_KEY, META_FRAME, &next.encode());
        let rows = changes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        {
            let _alone = self.applying.write().ignore_poison();
            let rows = rows.chain([(META_KEY, Some(meta_value.as_slice()))]);
            match &self.backing {
                Backing::Database(database) => database.apply(rows)?,
                Backing::Memory { rows: held, .. } => {
                    let mut held = held.write().ignore_poison();
                    for (key, value) in rows {
                        match value {
                            Some(value) => drop(held.insert(key.to_vec(), value.to_vec())),
                            None => drop(held.remove(key)),
                        }
                    }
                }
            }
        }
        if let Backing::Database(database) = &self.backing {
            database.flush()?;
        }
        *meta = next;
        Ok(())
    }

    /// Reads every row and compares the rows with the figures.
    pub(super) fn verify(&self, meta: &Meta) -> Result<(), String> {
        let mut found = Meta { seq: meta.seq, ..Meta::empty(meta.store) };
        let mut first_bad = None;
        let scanned = self.scan(&[], |key, value| match frame::open(key, value) {
            Ok((_, _, crc)) => {
                if let Some(table) = key.first().filter(|t| **t != 0) {
                    found.count(*table, None, Some(crc));
                }
                ScanControl::Continue
            }
            Err(e) => {
                first_bad = Some(e);
                ScanControl::Stop
            }
        });
        scanned.map_err(|e| e.to_string())?;
        match first_bad {
            Some(bad) => Err(bad.to_string()),
            None if found.rows != meta.rows => {
                Err(format!("tables have {:?} rows, but {:?} are recorded", found.rows, meta.rows))
            }
            None if found != *meta => Err("some rows are older than the last change".to_owned()),
            None => Ok(()),
        }
    }

    pub(super) fn sync_blobs(&self) -> Result<u64, DatabaseError> {
        match &self.backing {
            Backing::Database(database) => database.sync_blobs(),
            Backing::Memory { .. } => Ok(0),
        }
    }

    pub(super) fn close(self) -> Result<(), DatabaseError> {
        match self.backing {
            Backing::Database(database) => database.close(),
            Backing::Memory { .. } => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn database(&self) -> &Database {
        let database = match &self.backing {
            Backing::Database(database) => Some(database),
            Backing::Memory { .. } => None,
        };
        database.expect("a database on the disk")
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().ignore_poison()
}

/// Passes the joined values of `rows` in key order to `each`.
pub(super) fn values(rows: &BTreeMap<Vec<u8>, Vec<u8>>, each: ValueVisitor<'_>) -> Result<(), DamagedRow> {
    for (key, value) in rows {
        if rows::is_further(frame::open(key, value)?.0) {
            continue;
        }
        let (frame, body) = rows::join(key, value, &mut |further| rows.get(further).cloned())?;
        each(key, frame, &body)?;
    }
    Ok(())
}
