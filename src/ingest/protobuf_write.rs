//! A writer of fields of the protobuf wire format. Fields with their default value are left out, as
//! encoders of proto3 do, but the negative zero is written.

pub(crate) use super::protobuf::{put_bytes, put_varint};

/// Returns the tag of a varint field.
const fn varint_tag(field: u64) -> u64 {
    field << 3
}

/// Appends an `int64` or enum field.
pub(crate) fn put_int64(field: u64, value: i64, out: &mut Vec<u8>) {
    put_uint64(field, value.cast_unsigned(), out);
}

/// Appends a `uint64` field.
pub(crate) fn put_uint64(field: u64, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        put_varint(varint_tag(field), out);
        put_varint(value, out);
    }
}

/// Appends a `uint64` field of a `oneof`, which is written even if it is zero.
pub(crate) fn put_chosen_uint64(field: u64, value: u64, out: &mut Vec<u8>) {
    put_varint(varint_tag(field), out);
    put_varint(value, out);
}

/// Appends a `sint32` field.
pub(crate) fn put_sint32(field: u64, value: i32, out: &mut Vec<u8>) {
    put_uint64(field, zigzag(i64::from(value)), out);
}

/// Appends a `double` field.
pub(crate) fn put_double(field: u64, value: f64, out: &mut Vec<u8>) {
    if value.to_bits() != 0 {
        put_chosen_double(field, value, out);
    }
}

/// Appends a `double` field of a `oneof`, which is written even if it is zero.
pub(crate) fn put_chosen_double(field: u64, value: f64, out: &mut Vec<u8>) {
    put_varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `string` field.
pub(crate) fn put_text(field: u64, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        put_bytes(field, text.as_bytes(), out);
    }
}

/// Appends the tag and length of a nested message of `length` bytes, which follows.
pub(crate) fn put_head(field: u64, length: usize, out: &mut Vec<u8>) {
    put_varint(field << 3 | 2, out);
    put_varint(length as u64, out);
}

/// Returns the bytes of a varint: 1 to 10.
pub(crate) const fn varint_bytes(value: u64) -> usize {
    // Seven bits a byte; zero takes one byte as well.
    let bits = 64_usize.saturating_sub((value | 1).leading_zeros() as usize);
    bits.div_ceil(7)
}

/// Returns the bytes of an `int64` field whose number is below 16.
pub(crate) const fn int64_bytes(value: i64) -> usize {
    if value == 0 { 0 } else { varint_bytes(value.cast_unsigned()).saturating_add(1) }
}

/// Returns the bytes of a `double` field whose number is below 16.
pub(crate) const fn double_bytes(value: f64) -> usize {
    if value.to_bits() == 0 { 0 } else { 9 }
}

/// Encodes a number so that small numbers of either sign are short (`sint32`, `sint64`).
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}
