//! Types that are stored in control: a table, a kind, a version and a key; the body is bincode.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{DamagedRow, Frame};
use super::key::TableKey;
use super::rows::VALUE_BODY_BYTES_MAX;

/// A type with its own table in control.
///
/// Its serde form is its format on disk. A change of the fields needs a new [`Record::VERSION`], a
/// [`Record::from_older`] that reads the existing bytes, and a committed fixture of them.
pub trait Record: Serialize + DeserializeOwned {
    /// First byte of every key; 0 belongs to this room, 0x20 to 0x2f to the store of samples.
    const TABLE: u8;
    /// Tag of the record type; a row with another tag in the table is damage.
    const KIND: u8;
    /// The version that is written.
    const VERSION: u8;
    /// The rest of the key.
    type Key: TableKey;

    /// Decodes a body written by an older version, with [`decode_body`] and the old type.
    ///
    /// # Errors
    /// A description of the problem. Newer versions are refused before and never passed here.
    fn from_older(version: u8, _body: &[u8]) -> Result<Self, String> {
        Err(format!("version {version} is older than any this program reads"))
    }
}

/// Rows that are ignored without a main row, such as the last use of a session. The last seconds of
/// them may be lost, but they must never make a revoked object valid again.
pub trait SideRecord: Record {
    /// The table of the main rows.
    type Main: Record;

    /// Returns the key of the main row that must exist for a row of this key to be stored.
    fn main_key(key: &Self::Key) -> <Self::Main as Record>::Key;
}

const BINCODE: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<VALUE_BODY_BYTES_MAX>,
> = bincode::config::standard().with_limit::<VALUE_BODY_BYTES_MAX>();

/// Encodes a value as the body that [`decode_body`] reads.
///
/// # Errors
/// A description of the problem, if the body is longer than a stored value may be.
pub fn encode_body<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    bincode::serde::encode_to_vec(value, BINCODE).map_err(|e| e.to_string())
}

/// Decodes a stored body as `T`, which must use all of its bytes.
///
/// # Errors
/// A description of the problem, which [`Record::from_older`] may return.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let (value, used) = bincode::serde::decode_from_slice(body, BINCODE).map_err(|e| e.to_string())?;
    if used == body.len() { Ok(value) } else { Err(format!("{} bytes after the value", body.len() - used)) }
}

/// Returns the whole key of a row: the table, then the key.
pub(super) fn full_key<R: Record>(key: &R::Key) -> Vec<u8> {
    prefix::<R, R::Key>(key)
}

/// Returns the table, then the leading parts of a key.
pub(super) fn prefix<R: Record, P: TableKey>(leading: &P) -> Vec<u8> {
    let mut out = vec![R::TABLE];
    leading.write(&mut out);
    out
}

pub(super) fn decode<R: Record>(key: &[u8], frame: Frame, body: &[u8]) -> Result<R, DamagedRow> {
    let content = |what: String| DamagedRow::Content { key: key.to_vec(), what };
    if frame.kind != R::KIND {
        return Err(content(format!("kind {} in the table of kind {}", frame.kind, R::KIND)));
    }
    match frame.version.cmp(&R::VERSION) {
        std::cmp::Ordering::Equal => decode_body(body),
        std::cmp::Ordering::Less => R::from_older(frame.version, body),
        std::cmp::Ordering::Greater => Err(format!("version {} is newer than {}", frame.version, R::VERSION)),
    }
    .map_err(content)
}

pub(super) fn decode_key<R: Record>(key: &[u8]) -> Result<R::Key, DamagedRow> {
    let mut rest = key.get(1..).unwrap_or_default();
    R::Key::read(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or_else(|| DamagedRow::Content { key: key.to_vec(), what: "not a key of its table".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct SampleRecord {
        name: String,
        at: i64,
        roles: Vec<(u32, bool)>,
        left: Option<u64>,
    }

    fn sample() -> SampleRecord {
        SampleRecord {
            name: "ada".to_owned(),
            at: -2,
            roles: vec![(7, true), (300, false)],
            left: Some(70_000),
        }
    }

    /// bincode 2, "standard": variable-length integers, zigzag for signed numbers, 251 u16, 252
    /// u32; fields in order, without names.
    const GOLDEN: [u8; 18] =
        [3, b'a', b'd', b'a', 3, 2, 7, 1, 251, 0x2c, 0x01, 0, 1, 252, 0x70, 0x11, 0x01, 0x00];

    #[test]
    fn bodies_are_bincode_in_its_standard_configuration() {
        assert_eq!(encode_body(&sample()), Ok(GOLDEN.to_vec()));
        assert_eq!(decode_body(&GOLDEN), Ok(sample()));
    }

    #[test]
    fn a_body_with_too_few_or_too_many_bytes_is_refused() {
        for cut in 0..GOLDEN.len() {
            assert!(decode_body::<SampleRecord>(&GOLDEN[..cut]).is_err(), "{cut}");
        }
        let longer = [GOLDEN.as_slice(), &[0]].concat();
        assert_eq!(decode_body::<SampleRecord>(&longer), Err("1 bytes after the value".to_owned()));
        // A length that no stored value can have is refused before anything is allocated for it.
        assert!(decode_body::<Vec<u8>>(&[253, 0, 0, 0, 0, 0, 1, 0, 0]).is_err());
    }
}
