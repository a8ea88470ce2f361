//! The frames of a stream and of a base, drawn in docs/standby.md, section 4. Integers are
//! little-endian.

use crate::kv::CopiedChange;
use crate::model::OrgId;
use crate::tsdb::LogRecord;

/// The limit of a frame's body: a record of the log has at most 16 MiB.
pub(super) const BODY_BYTES_MAX: usize = 17 << 20;
/// The length of a frame's header.
const HEADER_BYTES: usize = 9;
/// The limit of a path in a base.
const PATH_BYTES_MAX: usize = 512;

/// One message of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first frame of a stream.
    Hello {
        /// The version of the protocol.
        version: u16,
        /// The primary's epoch.
        epoch: u64,
        /// The random id of the stream, for acknowledgements and for the next handshake.
        link: u64,
        /// The last durable record.
        log_end: u64,
        /// The last account change.
        accounts_end: u64,
    },
    /// A record of the log.
    Record(LogRecord),
    /// An account change.
    Change(CopiedChange),
    /// The ends of log and accounts; sent when nothing else was sent for a second.
    Heartbeat {
        /// The last durable record.
        log_end: u64,
        /// The last account change.
        accounts_end: u64,
    },
    /// All account rows follow, as of this change.
    RowsBegin(u64),
    /// One account row.
    Row(Vec<u8>, Vec<u8>),
    /// The account rows as of this change, whose rows have this checksum, are complete.
    RowsEnd(u64, u32),
    /// A file of a base follows.
    File {
        /// The length.
        bytes: u64,
        /// The path in the folder.
        path: String,
    },
    /// The next bytes of the file.
    Data(Vec<u8>),
    /// The base is complete.
    BaseEnd {
        /// The number of files.
        files: u64,
        /// The last record in it.
        log: u64,
        /// The last account change in it.
        accounts: u64,
        /// The primary's epoch.
        epoch: u64,
        /// The random id of the base, for the first handshake.
        link: u64,
    },
}

/// The reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream is invalid: {0}")]
pub struct FrameError(pub &'static str);

impl Frame {
    const fn code(&self) -> u8 {
        match self {
            Frame::Hello { .. } => 1,
            Frame::Record(_) => 2,
            Frame::Change(_) => 3,
            Frame::Heartbeat { .. } => 4,
            Frame::RowsBegin(_) => 5,
            Frame::Row(..) => 6,
            Frame::RowsEnd(..) => 7,
            Frame::File { .. } => 8,
            Frame::Data(_) => 9,
            Frame::BaseEnd { .. } => 10,
        }
    }

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES - 1]);
        out.push(self.code());
        self.encode_body(out);
        let length = u32::try_from(out.len() - start - HEADER_BYTES).unwrap_or(u32::MAX);
        let crc = crc32c::crc32c(out.get(start + HEADER_BYTES - 1..).unwrap_or_default());
        let header = [length.to_le_bytes(), crc.to_le_bytes()].concat();
        for (to, from) in out.iter_mut().skip(start).zip(header) {
            *to = from;
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        let words = |out: &mut Vec<u8>, words: &[u64]| {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        };
        match self {
            Frame::Hello { version, epoch, link, log_end, accounts_end } => {
                out.extend_from_slice(&version.to_le_bytes());
                words(out, &[*epoch, *link, *log_end, *accounts_end]);
            }
            Frame::Record(record) => {
                words(out, &[record.seq]);
                out.extend_from_slice(&record.org.0.to_le_bytes());
                out.extend_from_slice(&[record.kind, record.version]);
                out.extend_from_slice(&record.next_file_bytes.to_le_bytes());
                out.extend_from_slice(&record.body);
            }
            Frame::Change(change) => {
                words(out, &[change.seq]);
                out.extend_from_slice(&change.rows);
            }
            Frame::Heartbeat { log_end, accounts_end } => words(out, &[*log_end, *accounts_end]),
            Frame::RowsBegin(seq) => words(out, &[*seq]),
            Frame::RowsEnd(seq, check) => {
                words(out, &[*seq]);
                out.extend_from_slice(&check.to_le_bytes());
            }
            Frame::Row(key, value) => {
                let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            Frame::File { bytes, path } => {
                words(out, &[*bytes]);
                out.extend_from_slice(path.as_bytes());
            }
            Frame::Data(data) => out.extend_from_slice(data),
            Frame::BaseEnd { files, log, accounts, epoch, link } => {
                words(out, &[*files, *log, *accounts, *epoch, *link]);
            }
        }
    }

    fn decode(code: u8, body: &[u8]) -> Result<Frame, FrameError> {
        let mut rest = body;
        let short = FrameError("a frame is too short");
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<8>().ok_or(short)?;
            rest = behind;
            Ok::<_, FrameError>(u64::from_le_bytes(*word))
        };
        let frame = match code {
            1 => {
                let (version, words) = body.split_first_chunk::<2>().ok_or(short)?;
                let [epoch, link, log_end, accounts_end] = all_words(words)?;
                let version = u16::from_le_bytes(*version);
                return Ok(Frame::Hello { version, epoch, link, log_end, accounts_end });
            }
            2 => {
                let seq = word()?;
                let (org, behind) = rest.split_first_chunk::<4>().ok_or(short)?;
                let ([kind, version], behind) = behind.split_first_chunk::<2>().ok_or(short)?;
                let (next, body) = behind.split_first_chunk::<4>().ok_or(short)?;
                return Ok(Frame::Record(LogRecord {
                    seq,
                    org: OrgId(u32::from_le_bytes(*org)),
                    kind: *kind,
                    version: *version,
                    next_file_bytes: u32::from_le_bytes(*next),
                    body: body.to_vec(),
                }));
            }
            3 => {
                let seq = word()?;
                return Ok(Frame::Change(CopiedChange { seq, rows: rest.into() }));
            }
            4 => Frame::Heartbeat { log_end: word()?, accounts_end: word()? },
            5 => Frame::RowsBegin(word()?),
            6 => {
                let (length, behind) = body.split_first_chunk::<2>().ok_or(short)?;
                let length = usize::from(u16::from_le_bytes(*length));
                let (key, value) = behind.split_at_checked(length).ok_or(short)?;
                return Ok(Frame::Row(key.to_vec(), value.to_vec()));
            }
            7 => {
                let seq = word()?;
                let check = rest.try_into().map_err(|_| FrameError("a frame has a wrong length"))?;
                return Ok(Frame::RowsEnd(seq, u32::from_le_bytes(check)));
            }
            8 => {
                let bytes = word()?;
                let path = std::str::from_utf8(rest).map_err(|_| FrameError("a path is not valid UTF-8"))?;
                if path.len() > PATH_BYTES_MAX {
                    return Err(FrameError("a path is too long"));
                }
                return Ok(Frame::File { bytes, path: path.to_owned() });
            }
            9 => return Ok(Frame::Data(body.to_vec())),
            10 => {
                let [files, log, accounts, epoch, link] = all_words(body)?;
                return Ok(Frame::BaseEnd { files, log, accounts, epoch, link });
            }
            _ => return Err(FrameError("a frame is of an unknown type")),
        };
        if rest.is_empty() { Ok(frame) } else { Err(FrameError("a frame is too long")) }
    }
}

fn all_words<const N: usize>(body: &[u8]) -> Result<[u64; N], FrameError> {
    let (words, rest) = body.as_chunks::<8>();
    match (<&[[u8; 8]; N]>::try_from(words), rest) {
        (Ok(words), []) => Ok(words.map(u64::from_le_bytes)),
        _ => Err(FrameError("a frame has a wrong length")),
    }
}

/// Splits received bytes into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// The bytes at the front that are used up.
    used: usize,
}

impl FrameReader {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: nothing more can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let bytes = self.buffer.get(self.used..).unwrap_or_default();
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, c0, c1, c2, c3, code] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > BODY_BYTES_MAX {
            return Err(FrameError("a frame is longer than 17 MiB"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[code]), body);
        if crc != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(FrameError("the checksum of a frame differs"));
        }
        let frame = Frame::decode(code, body)?;
        self.used += HEADER_BYTES + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Hello { version: 1, epoch: 2, link: 6, log_end: 4, accounts_end: 5 },
            Frame::Record(LogRecord {
                seq: 7,
                org: OrgId(9),
                kind: 1,
                version: 2,
                next_file_bytes: 1 << 20,
                body: vec![1, 2, 3],
            }),
            Frame::Change(CopiedChange { seq: 8, rows: vec![0, 0].into() }),
            Frame::Heartbeat { log_end: 10, accounts_end: 11 },
            Frame::RowsBegin(12),
            Frame::Row(vec![1, 2], vec![3]),
            Frame::RowsEnd(12, 13),
            Frame::File { bytes: 13, path: "wal/0000000001.wal".to_owned() },
            Frame::Data(vec![5; 300]),
            Frame::BaseEnd { files: 1, log: 2, accounts: 3, epoch: 4, link: 5 },
        ]
    }

    #[test]
    fn frames_in_pieces_of_any_size_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        frames().iter().for_each(|frame| frame.encode(&mut bytes));
        for size in [1, 2, 7, 64, bytes.len()] {
            let (mut reader, mut found) = (FrameReader::default(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().expect("valid") {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames(), "{size}");
        }
    }

    #[test]
    fn a_heartbeat_has_its_golden_bytes() {
        let mut bytes = Vec::new();
        Frame::Heartbeat { log_end: 1, accounts_end: 2 }.encode(&mut bytes);
        let body = [4, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let crc = crc32c::crc32c(&body).to_le_bytes();
        assert_eq!(bytes, [&[16, 0, 0, 0][..], &crc, &body].concat());
    }

    #[test]
    fn each_flipped_bit_is_noticed() {
        let mut bytes = Vec::new();
        frames()[1].encode(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut reader = FrameReader::default();
            reader.push(&damaged);
            assert!(!matches!(reader.next_frame(), Ok(Some(_))), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), code in 0u8..12) {
            let _ = Frame::decode(code, &bytes);
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }
    }
}
