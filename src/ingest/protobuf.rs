//! A reader of the protobuf wire format that borrows from the message. It knows varints, lengths
//! and tags, but no message types.
//!
//! A message is a sequence of fields, each a `tag` and a payload. The tag is the varint `field
//! number << 3 | wire type`:
//!
//! | wire type | payload |
//! |---|---|
//! | 0 | varint: 7 bits per byte, low group first, at most 10 bytes |
//! | 1 | 8 bytes, little-endian |
//! | 2 | varint length, then that many bytes |
//! | 5 | 4 bytes, little-endian |
//!
//! Groups (wire types 3 and 4) are refused: no message that is read here ever had one. Source:
//! <https://protobuf.dev/programming-guides/encoding/>.

/// An error in the encoding. Each `offset` is in bytes from the start of the message in which the
/// error was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("the message is truncated at byte {offset}")]
    Truncated {
        /// Position of the truncated number or fixed-size value.
        offset: usize,
    },
    /// A length exceeds the rest of its message.
    #[error("a field at byte {offset} declares {declared} bytes, but only {left} are left")]
    Length {
        /// Position after the length.
        offset: usize,
        /// The declared length.
        declared: u64,
        /// Bytes left in the message.
        left: usize,
    },
    /// A varint of more than 64 bits.
    #[error("a number at byte {offset} has more than 64 bits")]
    Varint {
        /// Position of its first byte.
        offset: usize,
    },
    /// A field number of 0 or beyond 2^29 - 1, or a wire type that does not exist.
    #[error("no valid field begins at byte {offset}")]
    Tag {
        /// Position of the tag.
        offset: usize,
    },
    /// A known field whose payload has the wrong wire type.
    #[error("field {field} of {message} has wire type {found}, not {expected}")]
    Type {
        /// Name of the message type.
        message: &'static str,
        /// Field number.
        field: u32,
        /// Wire type of the field's type.
        expected: u8,
        /// Wire type that was sent.
        found: u8,
    },
    /// A string that is not UTF-8, as proto3 requires.
    #[error("field {field} of {message} is not UTF-8")]
    Utf8 {
        /// Name of the message type.
        message: &'static str,
        /// Field number.
        field: u32,
    },
}

/// One field of a message; the payload borrows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) payload: Payload<'a>,
}

/// A payload, by wire type. The value of wire type 5 is never used, so it is not kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// A cursor over the fields of one message, front to back. It allocates nothing. After an error its
/// position is undefined.
#[derive(Clone, Debug)]
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
    length: usize,
}

const FIELD_NUMBER_MAX: u64 = (1 << 29) - 1;

impl<'a> WireReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: message, length: message.len() }
    }

    /// Returns the position of the next field, in bytes from the start of the message.
    pub(super) fn offset(&self) -> usize {
        self.length.saturating_sub(self.rest.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next field; `None` at the end of the message.
    ///
    /// # Errors
    /// [`WireError`], if the field is malformed or truncated.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<Field<'a>>, WireError> {
        let offset = self.offset();
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > FIELD_NUMBER_MAX {
            return Err(WireError::Tag { offset });
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.chunk()?)),
            2 => Payload::Bytes(self.bytes()?),
            5 => {
                self.chunk::<4>()?;
                Payload::Fixed32
            }
            _ => return Err(WireError::Tag { offset }),
        };
        let number = u32::try_from(number).map_err(|_| WireError::Tag { offset })?;
        Ok(Some(Field { number, payload }))
    }

    /// Reads the payload of the next field if its tag is the single byte `tag` and its length takes
    /// at most two bytes, as nearly all fields of a request do. Otherwise reads nothing and returns
    /// `None`; [`WireReader::field`] then reads the field or reports the error.
    #[inline]
    pub(super) fn nested(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (first, after) = self.rest.split_first()?;
        let (length, after) = match *after {
            [length @ ..0x80, ref after @ ..] => (usize::from(length), after),
            [low, high @ ..0x80, ref after @ ..] => (usize::from(low & 0x7f) | usize::from(high) << 7, after),
            _ => return None,
        };
        let (message, after) = after.split_at_checked(length).filter(|_| *first == tag)?;
        self.rest = after;
        Some(message)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        // Tags, lengths below 128 and small values take one byte: nearly all varints of remote
        // write.
        if let Some((&first, after)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = after;
            return Ok(u64::from(first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let offset = self.offset();
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some((&byte, after)) = self.rest.split_first() else {
                return Err(WireError::Truncated { offset });
            };
            self.rest = after;
            let group = u64::from(byte & 0x7f);
            // The tenth byte holds only bit 63.
            if shift == 63 && byte > 1 {
                return Err(WireError::Varint { offset });
            }
            value |= group << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint { offset })
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let offset = self.offset();
        let (chunk, after) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated { offset })?;
        self.rest = after;
        Ok(*chunk)
    }

    /// Reads a varint, which is the length of the following field in bytes.
    pub(super) fn length(&mut self) -> Result<u64, WireError> {
        self.varint()
    }

    /// Reads a varint length and that many bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let declared = self.varint()?;
        let wrong = || WireError::Length { offset: self.offset(), declared, left: self.rest.len() };
        let length = usize::try_from(declared).map_err(|_| wrong())?;
        let (bytes, after) = self.rest.split_at_checked(length).ok_or_else(wrong)?;
        self.rest = after;
        Ok(bytes)
    }
}

impl<'a> Field<'a> {
    /// Returns the payload of a nested message, `string` or `bytes`.
    pub(super) fn bytes(&self, message: &'static str) -> Result<&'a [u8], WireError> {
        match self.payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong_type(message, 2)),
        }
    }

    /// Returns the payload of a `string`.
    pub(super) fn text(&self, message: &'static str) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes(message)?).map_err(|_| WireError::Utf8 { message, field: self.number })
    }

    /// Returns the payload of a `double`.
    pub(super) fn double(&self, message: &'static str) -> Result<f64, WireError> {
        match self.payload {
            Payload::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(self.wrong_type(message, 1)),
        }
    }

    /// Returns the payload of a `fixed64`.
    pub(super) fn fixed64(&self, message: &'static str) -> Result<u64, WireError> {
        match self.payload {
            Payload::Fixed64(bits) => Ok(bits),
            _ => Err(self.wrong_type(message, 1)),
        }
    }

    /// Returns the payload of an `int64`, `bool` or enum: two's complement in 64 bits.
    pub(super) fn int64(&self, message: &'static str) -> Result<i64, WireError> {
        match self.payload {
            Payload::Varint(bits) => Ok(bits.cast_signed()),
            _ => Err(self.wrong_type(message, 0)),
        }
    }

    /// Returns the payload of a `uint64`, or the bits of a `sint32` or `sint64` before
    /// [`unzigzag`].
    pub(super) fn uint64(&self, message: &'static str) -> Result<u64, WireError> {
        self.int64(message).map(i64::cast_unsigned)
    }

    /// Calls `each` with every value of a repeated varint field, packed or not.
    pub(super) fn varints<E: From<WireError>>(
        &self,
        message: &'static str,
        mut each: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Payload::Bytes(bytes) = self.payload else { return each(self.uint64(message)?) };
        let mut packed = WireReader::new(bytes);
        while !packed.rest.is_empty() {
            each(packed.varint()?)?;
        }
        Ok(())
    }

    /// Calls `each` with every value of a repeated `double` field, packed or not.
    pub(super) fn doubles<E: From<WireError>>(
        &self,
        message: &'static str,
        mut each: impl FnMut(f64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.fixed64s(message, |bits| each(f64::from_bits(bits)))
    }

    /// Calls `each` with every value of a repeated `fixed64` field, packed or not.
    pub(super) fn fixed64s<E: From<WireError>>(
        &self,
        message: &'static str,
        mut each: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Payload::Bytes(bytes) = self.payload else { return each(self.fixed64(message)?) };
        let mut packed = WireReader::new(bytes);
        while !packed.rest.is_empty() {
            each(u64::from_le_bytes(packed.chunk()?))?;
        }
        Ok(())
    }

    fn wrong_type(&self, message: &'static str, expected: u8) -> WireError {
        let found = match self.payload {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Fixed32 => 5,
        };
        WireError::Type { message, field: self.number, expected, found }
    }
}

/// Decodes the zigzag encoding of `sint32` and `sint64`, in which small numbers of either sign are
/// short.
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg()
}

/// Reads a message with the text fields 1 and 2: the name and the value of a label.
pub(super) fn label_pair<'a>(
    bytes: &'a [u8],
    message: &'static str,
) -> Result<(&'a str, &'a str), WireError> {
    let (mut name, mut value) = ("", "");
    let mut reader = WireReader::new(bytes);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => name = field.text(message)?,
            2 => value = field.text(message)?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Reads a message with the `double` fields 1 and 2, such as a rank and a value.
pub(super) fn double_pair(bytes: &[u8], message: &'static str) -> Result<(f64, f64), WireError> {
    let (mut first, mut second) = (0.0, 0.0);
    let mut reader = WireReader::new(bytes);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => first = field.double(message)?,
            2 => second = field.double(message)?,
            _ => {}
        }
    }
    Ok((first, second))
}

/// Appends `value` as a varint.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a field of wire type 2: a nested message, a string, or packed numbers.
pub(crate) fn put_bytes(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(field << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(bytes: &[u8]) -> Result<Vec<Field<'_>>, WireError> {
        let mut reader = WireReader::new(bytes);
        let mut found = Vec::new();
        while let Some(field) = reader.field()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = [0x08, 0x96, 0x01, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 2, b'h', b'i', 0x25, 1, 2, 3, 4];
        let of = |number, payload| Field { number, payload };
        let expected = [
            of(1, Payload::Varint(150)),
            of(2, Payload::Fixed64(1)),
            of(3, Payload::Bytes(b"hi")),
            of(4, Payload::Fixed32),
        ];
        assert_eq!(fields(&bytes).expect("valid"), expected);
    }

    #[test]
    fn malformed_bytes_are_reported_with_their_position() {
        let cases: [(&[u8], WireError); 9] = [
            (&[0x08], WireError::Truncated { offset: 1 }),
            (&[0x80], WireError::Truncated { offset: 0 }),
            (&[0x12, 5, 1], WireError::Length { offset: 2, declared: 5, left: 1 }),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                WireError::Length { offset: 11, declared: u64::MAX, left: 0 },
            ),
            (
                &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
                WireError::Varint { offset: 1 },
            ),
            (&[0x00], WireError::Tag { offset: 0 }),
            (&[0x0b], WireError::Tag { offset: 0 }),
            (&[0x11, 1, 2, 3], WireError::Truncated { offset: 1 }),
            (&[0xfa, 0xff, 0xff, 0xff, 0xff, 0x01], WireError::Tag { offset: 0 }),
        ];
        for (bytes, expected) in cases {
            assert_eq!(fields(bytes), Err(expected), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_known_field_of_the_wrong_type_is_refused() {
        let field = Field { number: 2, payload: Payload::Fixed32 };
        let wrong = |expected| WireError::Type { message: "X", field: 2, expected, found: 5 };
        assert_eq!(field.bytes("X"), Err(wrong(2)));
        assert_eq!(field.int64("X"), Err(wrong(0)));
        assert_eq!(field.double("X").map(f64::to_bits), Err(wrong(1)));
        let bad = Field { number: 2, payload: Payload::Bytes(b"\xff") };
        assert_eq!(bad.text("X"), Err(WireError::Utf8 { message: "X", field: 2 }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_the_wire_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = fields(&bytes);
        }

        #[test]
        fn a_varint_round_trips(value: u64) {
            let mut bytes = vec![0x08];
            let mut rest = value;
            while rest >= 0x80 {
                bytes.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
                rest >>= 7;
            }
            bytes.push(u8::try_from(rest).expect("seven bits"));
            prop_assert_eq!(fields(&bytes), Ok(vec![Field { number: 1, payload: Payload::Varint(value) }]));
        }
    }
}
