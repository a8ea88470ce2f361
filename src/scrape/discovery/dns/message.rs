//! DNS messages: a query of one name, and its answers.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::settings::DnsRecordType;

/// The most records of a response that are read, inclusive.
const RECORDS_MAX: usize = 10_000;
/// The most bytes of a name, inclusive (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// The most parts of a name, those behind pointers included.
const NAME_PARTS_MAX: usize = 128;
/// The class of the internet.
const CLASS_IN: u16 = 1;

/// A record of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsRecord {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// A service.
    Srv {
        /// The host, with a final dot.
        target: String,
        /// The port.
        port: u16,
    },
    /// A mail server, with a final dot.
    Mx(String),
    /// A name server, with a final dot.
    Ns(String),
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsResponse {
    /// The response code: 0 for success, 3 for a name that does not exist.
    pub(super) code: u8,
    /// Whether the response was cut, so that the query must be repeated over TCP.
    pub(super) is_truncated: bool,
    /// The records of the requested type.
    pub(super) records: Vec<DnsRecord>,
}

/// The reason why a message cannot be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DnsError {
    /// The name is not valid.
    #[error("the name is not a valid domain name")]
    InvalidName,
    /// The response is shorter than its counts and lengths.
    #[error("the response is truncated")]
    Cut,
    /// A name in the response is not valid.
    #[error("the response contains an invalid name")]
    InvalidResponseName,
    /// The response does not answer the query.
    #[error("the response belongs to another query")]
    OtherQuery,
    /// The response has too many records.
    #[error("the response has more than {RECORDS_MAX} records")]
    TooManyRecords,
}

const fn type_code(record: DnsRecordType) -> u16 {
    match record {
        DnsRecordType::A => 1,
        DnsRecordType::Ns => 2,
        DnsRecordType::Mx => 15,
        DnsRecordType::Aaaa => 28,
        DnsRecordType::Srv => 33,
    }
}

/// Writes a query of a name, which may end in a dot.
///
/// # Errors
/// [`DnsError::InvalidName`].
pub(super) fn encode_query(id: u16, name: &str, record: DnsRecordType) -> Result<Vec<u8>, DnsError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(DnsError::InvalidName);
    }
    let mut out = Vec::with_capacity(name.len() + 18);
    out.extend_from_slice(&id.to_be_bytes());
    // Recursion is desired; one question.
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for part in name.split('.') {
        let length = u8::try_from(part.len()).ok().filter(|length| (1..=63).contains(length));
        out.push(length.ok_or(DnsError::InvalidName)?);
        out.extend_from_slice(part.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&type_code(record).to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    Ok(out)
}

/// Reads the response to the query `query`, which [`encode_query`] wrote.
///
/// # Errors
/// [`DnsError`].
pub(super) fn decode_response(
    bytes: &[u8],
    query: &[u8],
    record: DnsRecordType,
) -> Result<DnsResponse, DnsError> {
    let mut reader = MessageReader { bytes, at: 0 };
    let id = reader.u16()?;
    let flags = reader.u16()?;
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    let is_response = flags & 0x8000 != 0;
    if !is_response || query.get(..2) != Some(&id.to_be_bytes()) || questions != 1 {
        return Err(DnsError::OtherQuery);
    }
    let question = reader.at;
    reader.name()?;
    reader.skip(4)?;
    let asked = bytes.get(question..reader.at).unwrap_or_default();
    if !query.get(12..).is_some_and(|query| query.eq_ignore_ascii_case(asked)) {
        return Err(DnsError::OtherQuery);
    }
    let is_truncated = flags & 0x0200 != 0;
    let [_, low] = flags.to_be_bytes();
    let mut response = DnsResponse { code: low & 15, is_truncated, records: Vec::new() };
    if is_truncated {
        return Ok(response);
    }
    if usize::from(answers) > RECORDS_MAX {
        return Err(DnsError::TooManyRecords);
    }
    for _ in 0..answers {
        response.records.extend(reader.record(record)?);
    }
    Ok(response)
}

struct MessageReader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> MessageReader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], DnsError> {
        let end = self.at.checked_add(count).ok_or(DnsError::Cut)?;
        let taken = self.bytes.get(self.at..end).ok_or(DnsError::Cut)?;
        self.at = end;
        Ok(taken)
    }

    fn skip(&mut self, count: usize) -> Result<(), DnsError> {
        self.take(count).map(drop)
    }

    fn u16(&mut self) -> Result<u16, DnsError> {
        let taken = self.take(2)?;
        Ok(taken.iter().fold(0, |value, byte| value << 8 | u16::from(*byte)))
    }

    fn u8(&mut self) -> Result<u8, DnsError> {
        self.take(1)?.first().copied().ok_or(DnsError::Cut)
    }

    /// Reads a name, and returns it with a final dot.
    fn name(&mut self) -> Result<String, DnsError> {
        let mut name = String::new();
        let mut part_at = self.at;
        let mut has_jumped = false;
        for _ in 0..NAME_PARTS_MAX {
            let mut part = MessageReader { bytes: self.bytes, at: part_at };
            let length = part.u8()?;
            match length {
                0 => {
                    if !has_jumped {
                        self.at = part.at;
                    }
                    return Ok(if name.is_empty() { ".".to_owned() } else { name });
                }
                1..=63 => {
                    push_part(&mut name, part.take(usize::from(length))?)?;
                    part_at = part.at;
                }
                0xc0.. => {
                    let target = usize::from(u16::from(length & 0x3f) << 8 | u16::from(part.u8()?));
                    // A pointer leads to an earlier part, so names end.
                    if target >= part_at {
                        return Err(DnsError::InvalidResponseName);
                    }
                    if !has_jumped {
                        self.at = part.at;
                    }
                    (has_jumped, part_at) = (true, target);
                }
                _ => return Err(DnsError::InvalidResponseName),
            }
        }
        Err(DnsError::InvalidResponseName)
    }

    /// Reads a record; `None` if it has another type or class.
    fn record(&mut self, wanted: DnsRecordType) -> Result<Option<DnsRecord>, DnsError> {
        self.name()?;
        let (code, class) = (self.u16()?, self.u16()?);
        self.skip(4)?;
        let length = usize::from(self.u16()?);
        let start = self.at;
        self.skip(length)?;
        if code != type_code(wanted) || class != CLASS_IN {
            return Ok(None);
        }
        let data = self.bytes.get(..self.at).unwrap_or_default();
        let mut data = MessageReader { bytes: data, at: start };
        let record = match wanted {
            DnsRecordType::A => {
                let address: [u8; 4] = data.take(4)?.try_into().map_err(|_| DnsError::Cut)?;
                DnsRecord::A(address.into())
            }
            DnsRecordType::Aaaa => {
                let address: [u8; 16] = data.take(16)?.try_into().map_err(|_| DnsError::Cut)?;
                DnsRecord::Aaaa(address.into())
            }
            DnsRecordType::Srv => {
                // Priority and weight do not matter: all targets are scraped.
                data.skip(4)?;
                let port = data.u16()?;
                DnsRecord::Srv { target: data.name()?, port }
            }
            DnsRecordType::Mx => {
                data.skip(2)?;
                DnsRecord::Mx(data.name()?)
            }
            DnsRecordType::Ns => DnsRecord::Ns(data.name()?),
        };
        Ok(Some(record))
    }
}

fn push_part(name: &mut String, part: &[u8]) -> Result<(), DnsError> {
    let is_plain = part.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'.' | b'/' | b'\\'));
    let part = std::str::from_utf8(part).ok().filter(|_| is_plain);
    name.push_str(part.ok_or(DnsError::InvalidResponseName)?);
    name.push('.');
    if name.len() > NAME_BYTES_MAX + 1 { Err(DnsError::InvalidResponseName) } else { Ok(()) }
}

#[cfg(test)]
#[path = "tests.rs"]
pub(in crate::scrape::discovery) mod tests;
