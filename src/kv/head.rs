//! Write-once databases of open chunks: one part of one checkpoint generation (docs/storage.md
//! section 7).
//!
//! A part is filled in ascending key order, made durable, closed, and never written again, because
//! sled does not survive bulk overwrites (docs/storage.md section 0, point 1). `tsdb` manages
//! generations, `DONE` and renames; this module only has the database. The key is `u32 org, u32 row
//! number` (big-endian), the value a frame of kind 0x40 (see [`super::frame`]) around a body that
//! `tsdb` defines.

use std::path::{Path, PathBuf};

use super::database::{Database, DatabaseError, ScanControl};
use super::frame::{self, BODY_BYTES_MAX, Frame};
use crate::model::OrgId;

/// Frame kind of rows of the head.
const KIND: u8 = 0x40;
/// Current layout version of the body that `tsdb` writes.
const VERSION: u8 = 1;
/// 4 MiB of page cache: rows are written once and read once in order, so a larger cache does not
/// help.
const CACHE_BYTES: u64 = 4 << 20;

/// Key of a row of the head: organisation, then the row's number within the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeadKey {
    /// The organisation.
    pub org: OrgId,
    /// Number of the row. Its body names the series, because one series may need several rows.
    pub row: u32,
}

impl HeadKey {
    fn bytes(self) -> [u8; 8] {
        ((u64::from(self.org.0) << 32) | u64::from(self.row)).to_be_bytes()
    }

    fn parse(bytes: &[u8]) -> Option<HeadKey> {
        let [a, b, c, d, e, f, g, h] = *<&[u8; 8]>::try_from(bytes).ok()?;
        Some(HeadKey { org: OrgId(u32::from_be_bytes([a, b, c, d])), row: u32::from_be_bytes([e, f, g, h]) })
    }
}

/// The contents of a finished part; `tsdb` records it in `DONE`, and [`read_part`] compares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSummary {
    /// Smallest key; `None` if the part is empty.
    pub first_key: Option<HeadKey>,
    /// Greatest key; `None` if the part is empty.
    pub last_key: Option<HeadKey>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of all bodies, without frames and keys.
    pub bytes: u64,
    /// CRC32C over the little-endian checksums of all rows, in key order.
    pub crc: u32,
}

impl PartSummary {
    fn add(&mut self, key: HeadKey, body: &[u8], row_crc: u32) {
        self.first_key = self.first_key.or(Some(key));
        self.last_key = Some(key);
        self.rows += 1;
        self.bytes += body.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &row_crc.to_le_bytes());
    }
}

/// Errors of writing a part, or of reading one that differs from its summary.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// sled or the file system failed.
    #[error("head part")]
    Database(#[from] DatabaseError),
    /// The body is too long. Rows are never split here: the caller must put fewer series or
    /// samples into it.
    #[error("a row of the head has {bytes} bytes; at most {allowed} are stored safely")]
    RowTooLong {
        /// Length of the body.
        bytes: usize,
        /// [`BODY_BYTES_MAX`].
        allowed: usize,
    },
    /// Keys must ascend, because the checksum of the part is computed in their order.
    #[error("head row {key:?} does not come after {last:?}")]
    OutOfOrder {
        /// The refused key.
        key: HeadKey,
        /// The previous key.
        last: HeadKey,
    },
    /// The directory already exists; a part is created once.
    #[error("head part {} exists", .0.display())]
    Exists(PathBuf),
    /// The part does not exist.
    #[error("head part {} is missing", .0.display())]
    Missing(PathBuf),
    /// Rows are missing, changed or added.
    #[error("head part {}: {found:?}, but {expected:?} is recorded", path.display())]
    Differs {
        /// Directory of the part.
        path: PathBuf,
        /// The summary that was recorded when the part was finished.
        expected: PartSummary,
        /// The summary of the rows read.
        found: PartSummary,
    },
}

/// Errors of [`read_part`].
#[derive(Debug, thiserror::Error)]
pub enum ReadPartError<E> {
    /// The part is damaged, missing or incomplete.
    #[error(transparent)]
    Part(#[from] HeadError),
    /// The caller refused a row.
    #[error(transparent)]
    Row(E),
}

/// A part being written.
pub struct HeadWriter {
    database: Database,
    summary: PartSummary,
}

impl HeadWriter {
    /// Creates the database in `dir`, which must not exist; its parent must exist.
    ///
    /// # Errors
    /// [`HeadError::Exists`], or an error of the file system or of sled.
    pub fn create(dir: &Path) -> Result<HeadWriter, HeadError> {
        if dir.exists() {
            return Err(HeadError::Exists(dir.to_owned()));
        }
        Ok(HeadWriter { database: Database::open(dir, CACHE_BYTES)?, summary: PartSummary::default() })
    }

    /// Adds a row of at most [`BODY_BYTES_MAX`] bytes; keys must ascend strictly.
    ///
    /// # Errors
    /// [`HeadError::RowTooLong`], [`HeadError::OutOfOrder`]: nothing was written. After any other
    /// error the part must be discarded.
    pub fn put(&mut self, key: HeadKey, body: &[u8]) -> Result<(), HeadError> {
        if body.len() > BODY_BYTES_MAX {
            return Err(HeadError::RowTooLong { bytes: body.len(), allowed: BODY_BYTES_MAX });
        }
        if let Some(last) = self.summary.last_key.filter(|last| *last >= key) {
            return Err(HeadError::OutOfOrder { key, last });
        }
        let stored_key = key.bytes();
        let value = frame::seal(&stored_key, Frame { version: VERSION, kind: KIND, flags: 0 }, body);
        let row_crc = frame::open(&stored_key, &value).map_or(0, |(_, _, crc)| crc);
        self.database.insert(&stored_key, value)?;
        self.summary.add(key, body, row_crc);
        Ok(())
    }

    /// Makes every row durable and closes the database. It may be renamed (with its generation)
    /// afterwards.
    ///
    /// # Errors
    /// An error of the file system or of sled. The part must then be discarded, and not finished
    /// again.
    pub fn finish(self) -> Result<PartSummary, HeadError> {
        self.database.flush()?;
        self.database.sync_blobs()?;
        self.database.close()?;
        Ok(self.summary)
    }
}

/// Reads a finished part in key order and compares it with its recorded summary.
///
/// Rows are passed on before the final comparison: after an error the caller must discard all
/// of them. Needs write access, because sled cannot open a database without.
///
/// # Errors
/// [`ReadPartError::Part`] if anything differs from `expected`; [`ReadPartError::Row`] with the
/// error of `on_row`.
pub fn read_part<E>(
    dir: &Path,
    expected: &PartSummary,
    mut on_row: impl FnMut(HeadKey, &[u8]) -> Result<(), E>,
) -> Result<(), ReadPartError<E>> {
    if !dir.join("db").exists() {
        return Err(HeadError::Missing(dir.to_owned()).into());
    }
    let database = Database::open(dir, CACHE_BYTES).map_err(HeadError::from)?;
    let damaged = |source| HeadError::Database(DatabaseError::Damaged { path: dir.to_owned(), source });
    let mut found = PartSummary::default();
    let mut refused: Option<ReadPartError<E>> = None;
    let mut one = |key: &[u8], value: &[u8]| -> Result<(), ReadPartError<E>> {
        let content = |what: String| damaged(frame::DamagedRow::Content { key: key.to_vec(), what });
        let (frame, body, row_crc) = frame::open(key, value).map_err(damaged)?;
        let head_key = HeadKey::parse(key).ok_or_else(|| content("its key is not 8 bytes".to_owned()))?;
        if (frame.kind, frame.version) != (KIND, VERSION) {
            return Err(content(format!("kind {} version {}", frame.kind, frame.version)).into());
        }
        found.add(head_key, body, row_crc);
        on_row(head_key, body).map_err(ReadPartError::Row)
    };
    let scanned = database.scan(&[], |key, value| match one(key, value) {
        Ok(()) => ScanControl::Continue,
        Err(e) => {
            refused = Some(e);
            ScanControl::Stop
        }
    });
    drop(database);
    if let Some(e) = refused {
        return Err(e);
    }
    scanned.map_err(HeadError::from)?;
    if found != *expected {
        return Err(HeadError::Differs { path: dir.to_owned(), expected: *expected, found }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(org: u32, row: u32) -> HeadKey {
        HeadKey { org: OrgId(org), row }
    }

    fn part(dir: &Path, rows: u32, body_bytes: usize) -> PartSummary {
        let mut writer = HeadWriter::create(dir).expect("created");
        for i in 0..rows {
            writer.put(key(1 + i / 100, i % 100 * 32), &vec![i.to_le_bytes()[0]; body_bytes]).expect("put");
        }
        writer.finish().expect("finished")
    }

    fn collect(dir: &Path, expected: &PartSummary) -> Result<Vec<(HeadKey, Vec<u8>)>, ReadPartError<()>> {
        let mut rows = Vec::new();
        read_part(dir, expected, |k, b| {
            rows.push((k, b.to_vec()));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn a_finished_part_returns_its_rows_in_key_order_and_leaves_blobs_empty() {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let dir = temp.path().join("00");
        let summary = part(&dir, 2_048, 1_600);
        assert_eq!((summary.rows, summary.bytes), (2_048, 2_048 * 1_600));
        assert_eq!((summary.first_key, summary.last_key), (Some(key(1, 0)), Some(key(21, 47 * 32))));
        let rows = collect(&dir, &summary).expect("whole");
        assert_eq!(rows.len(), 2_048);
        assert!(rows.is_sorted_by_key(|r| r.0));
        assert!(rows.iter().enumerate().all(|(i, r)| r.1 == vec![i.to_le_bytes()[0]; 1_600]));
        assert_eq!(std::fs::read_dir(dir.join("blobs")).expect("there").count(), 0);
        // Opened again right after the drop, while sled's threads may still hold the lock.
        assert_eq!(collect(&dir, &summary).expect("again").len(), 2_048);
    }

    #[test]
    fn rows_of_the_greatest_size_stay_out_of_blobs() {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let dir = temp.path().join("00");
        let summary = part(&dir, 500, BODY_BYTES_MAX);
        assert_eq!(std::fs::read_dir(dir.join("blobs")).expect("there").count(), 0);
        assert_eq!(collect(&dir, &summary).expect("whole").len(), 500);
    }

    #[test]
    fn a_row_over_four_thousand_bytes_or_out_of_order_is_refused() {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let mut writer = HeadWriter::create(&temp.path().join("00")).expect("created");
        assert!(matches!(
            writer.put(key(1, 0), &vec![0; BODY_BYTES_MAX + 1]),
            Err(HeadError::RowTooLong { bytes: 3_989, allowed: 3_988 })
        ));
        writer.put(key(1, 32), b"x").expect("put");
        assert!(matches!(writer.put(key(1, 32), b"x"), Err(HeadError::OutOfOrder { .. })));
        assert!(matches!(writer.put(key(1, 0), b"x"), Err(HeadError::OutOfOrder { .. })));
        assert_eq!(writer.finish().expect("finished").rows, 1);
        assert!(matches!(HeadWriter::create(&temp.path().join("00")), Err(HeadError::Exists(_))));
    }

    #[test]
    fn a_part_that_differs_from_its_summary_is_detected() {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let dir = temp.path().join("00");
        let summary = part(&dir, 10, 100);
        for wrong in [
            PartSummary { rows: 11, ..summary },
            PartSummary { crc: summary.crc ^ 1, ..summary },
            PartSummary { bytes: 0, ..summary },
            PartSummary { last_key: None, ..summary },
        ] {
            assert!(
                matches!(collect(&dir, &wrong), Err(ReadPartError::Part(HeadError::Differs { .. }))),
                "{wrong:?}"
            );
        }
        assert!(matches!(
            collect(&temp.path().join("01"), &summary),
            Err(ReadPartError::Part(HeadError::Missing(_)))
        ));
        let refused = read_part(&dir, &summary, |_, _| Err("no"));
        assert!(matches!(refused, Err(ReadPartError::Row("no"))));
    }

    #[test]
    fn a_damaged_part_is_an_error_and_never_a_panic() {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let dir = temp.path().join("00");
        let summary = part(&dir, 200, 300);
        let path = dir.join("db");
        let whole = std::fs::read(&path).expect("read");
        for at in (0..whole.len()).step_by(whole.len() / 12) {
            let mut bad = whole.clone();
            bad[at..(at + 512).min(whole.len())].fill(0xa5);
            std::fs::write(&path, &bad).expect("write");
            // The damage may hit space that no page uses; then every row is intact, verified by its
            // checksum.
            if let Ok(rows) = collect(&dir, &summary) {
                assert_eq!(rows.len(), 200, "damage at {at}");
            }
        }
    }
}
