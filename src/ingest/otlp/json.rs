//! Conversion of OTLP in JSON to the same request in protobuf.
//!
//! The conversion takes one pass and keeps nothing but its output. Each message type has a table of
//! its fields, whose kinds determine how values are written. The length of a message is written
//! once the message has ended. As in protobuf's JSON mapping, names are in camel case or with
//! underscores, 64-bit numbers are numbers or strings, doubles may be `"NaN"` or `"-Infinity"`,
//! enums are numbers or names, `null` means absent, and unknown fields are skipped. As in OTLP's,
//! ids are in hexadecimal digits (base64 if the length says so) and other bytes in base64. Anything
//! else is an error with its position; no value is dropped silently. The JSON parser limits the
//! depth.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::number::parse_value;
use super::super::protobuf::{put_bytes, put_varint};
use super::super::{DecodeError, DecodeLimits};

/// The type of a field.
#[derive(Clone, Copy, Debug)]
enum FieldKind {
    Text,
    Bool,
    Double,
    Fixed64,
    /// Written as the bits of a fixed64.
    Sfixed64,
    Int64,
    Uint64,
    Uint32,
    Sint32,
    Enum(&'static [(&'static str, u64)]),
    Bytes,
    /// Bytes in hexadecimal digits; the number is the length of the id in bytes.
    Id(usize),
    MessageSpec(&'static MessageSpec),
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
struct FieldSpec {
    /// The name in camel case.
    name: &'static str,
    number: u64,
    kind: FieldKind,
    /// The field is repeated: an array in JSON.
    repeated: bool,
}

/// A message type with those of its fields that are read.
#[derive(Debug)]
struct MessageSpec {
    name: &'static str,
    fields: &'static [FieldSpec],
}

const fn single(name: &'static str, number: u64, kind: FieldKind) -> FieldSpec {
    FieldSpec { name, number, kind, repeated: false }
}

const fn repeated(name: &'static str, number: u64, kind: FieldKind) -> FieldSpec {
    FieldSpec { name, number, kind, repeated: true }
}

static REQUEST: MessageSpec = MessageSpec {
    name: "ExportMetricsServiceRequest",
    fields: &[repeated("resourceMetrics", 1, FieldKind::MessageSpec(&RESOURCE_METRICS))],
};
static RESOURCE_METRICS: MessageSpec = MessageSpec {
    name: "ResourceMetrics",
    fields: &[
        single("resource", 1, FieldKind::MessageSpec(&RESOURCE)),
        repeated("scopeMetrics", 2, FieldKind::MessageSpec(&SCOPE_METRICS)),
    ],
};
static RESOURCE: MessageSpec = MessageSpec {
    name: "Resource",
    fields: &[repeated("attributes", 1, FieldKind::MessageSpec(&KEY_VALUE))],
};
static SCOPE_METRICS: MessageSpec =
    MessageSpec { name: "ScopeMetrics", fields: &[repeated("metrics", 2, FieldKind::MessageSpec(&METRIC))] };
static METRIC: MessageSpec = MessageSpec {
    name: "Metric",
    fields: &[
        single("name", 1, FieldKind::Text),
        single("description", 2, FieldKind::Text),
        single("unit", 3, FieldKind::Text),
        single("gauge", 5, FieldKind::MessageSpec(&GAUGE)),
        single("sum", 7, FieldKind::MessageSpec(&SUM)),
        single("histogram", 9, FieldKind::MessageSpec(&HISTOGRAM)),
        single("exponentialHistogram", 10, FieldKind::MessageSpec(&EXPONENTIAL)),
        single("summary", 11, FieldKind::MessageSpec(&SUMMARY)),
    ],
};
const TEMPORALITY: FieldSpec = single(
    "aggregationTemporality",
    2,
    FieldKind::Enum(&[
        ("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0),
        ("AGGREGATION_TEMPORALITY_DELTA", 1),
        ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2),
    ]),
);
static GAUGE: MessageSpec = MessageSpec {
    name: "Gauge",
    fields: &[repeated("dataPoints", 1, FieldKind::MessageSpec(&NUMBER_POINT))],
};
static SUM: MessageSpec = MessageSpec {
    name: "Sum",
    fields: &[
        repeated("dataPoints", 1, FieldKind::MessageSpec(&NUMBER_POINT)),
        TEMPORALITY,
        single("isMonotonic", 3, FieldKind::Bool),
    ],
};
static HISTOGRAM: MessageSpec = MessageSpec {
    name: "Histogram",
    fields: &[repeated("dataPoints", 1, FieldKind::MessageSpec(&HISTOGRAM_POINT)), TEMPORALITY],
};
static EXPONENTIAL: MessageSpec = MessageSpec {
    name: "ExponentialHistogram",
    fields: &[repeated("dataPoints", 1, FieldKind::MessageSpec(&EXPONENTIAL_POINT)), TEMPORALITY],
};
static SUMMARY: MessageSpec = MessageSpec {
    name: "Summary",
    fields: &[repeated("dataPoints", 1, FieldKind::MessageSpec(&SUMMARY_POINT))],
};
const START: FieldSpec = single("startTimeUnixNano", 2, FieldKind::Fixed64);
const TIME: FieldSpec = single("timeUnixNano", 3, FieldKind::Fixed64);
static NUMBER_POINT: MessageSpec = MessageSpec {
    name: "NumberDataPoint",
    fields: &[
        repeated("attributes", 7, FieldKind::MessageSpec(&KEY_VALUE)),
        START,
        TIME,
        single("asDouble", 4, FieldKind::Double),
        single("asInt", 6, FieldKind::Sfixed64),
        repeated("exemplars", 5, FieldKind::MessageSpec(&EXEMPLAR)),
        single("flags", 8, FieldKind::Uint32),
    ],
};
static HISTOGRAM_POINT: MessageSpec = MessageSpec {
    name: "HistogramDataPoint",
    fields: &[
        repeated("attributes", 9, FieldKind::MessageSpec(&KEY_VALUE)),
        START,
        TIME,
        single("count", 4, FieldKind::Fixed64),
        single("sum", 5, FieldKind::Double),
        repeated("bucketCounts", 6, FieldKind::Fixed64),
        repeated("explicitBounds", 7, FieldKind::Double),
        repeated("exemplars", 8, FieldKind::MessageSpec(&EXEMPLAR)),
        single("flags", 10, FieldKind::Uint32),
    ],
};
static EXPONENTIAL_POINT: MessageSpec = MessageSpec {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        repeated("attributes", 1, FieldKind::MessageSpec(&KEY_VALUE)),
        START,
        TIME,
        single("count", 4, FieldKind::Fixed64),
        single("sum", 5, FieldKind::Double),
        single("scale", 6, FieldKind::Sint32),
        single("zeroCount", 7, FieldKind::Fixed64),
        single("positive", 8, FieldKind::MessageSpec(&BUCKETS)),
        single("negative", 9, FieldKind::MessageSpec(&BUCKETS)),
        single("flags", 10, FieldKind::Uint32),
        repeated("exemplars", 11, FieldKind::MessageSpec(&EXEMPLAR)),
        single("zeroThreshold", 14, FieldKind::Double),
    ],
};
static BUCKETS: MessageSpec = MessageSpec {
    name: "Buckets",
    fields: &[single("offset", 1, FieldKind::Sint32), repeated("bucketCounts", 2, FieldKind::Uint64)],
};
static SUMMARY_POINT: MessageSpec = MessageSpec {
    name: "SummaryDataPoint",
    fields: &[
        repeated("attributes", 7, FieldKind::MessageSpec(&KEY_VALUE)),
        START,
        TIME,
        single("count", 4, FieldKind::Fixed64),
        single("sum", 5, FieldKind::Double),
        repeated("quantileValues", 6, FieldKind::MessageSpec(&QUANTILE)),
        single("flags", 8, FieldKind::Uint32),
    ],
};
static QUANTILE: MessageSpec = MessageSpec {
    name: "ValueAtQuantile",
    fields: &[single("quantile", 1, FieldKind::Double), single("value", 2, FieldKind::Double)],
};
static EXEMPLAR: MessageSpec = MessageSpec {
    name: "Exemplar",
    fields: &[
        repeated("filteredAttributes", 7, FieldKind::MessageSpec(&KEY_VALUE)),
        single("timeUnixNano", 2, FieldKind::Fixed64),
        single("asDouble", 3, FieldKind::Double),
        single("asInt", 6, FieldKind::Sfixed64),
        single("spanId", 4, FieldKind::Id(8)),
        single("traceId", 5, FieldKind::Id(16)),
    ],
};
static KEY_VALUE: MessageSpec = MessageSpec {
    name: "KeyValue",
    fields: &[single("key", 1, FieldKind::Text), single("value", 2, FieldKind::MessageSpec(&ANY_VALUE))],
};
static ANY_VALUE: MessageSpec = MessageSpec {
    name: "AnyValue",
    fields: &[
        single("stringValue", 1, FieldKind::Text),
        single("boolValue", 2, FieldKind::Bool),
        single("intValue", 3, FieldKind::Int64),
        single("doubleValue", 4, FieldKind::Double),
        single("arrayValue", 5, FieldKind::MessageSpec(&ARRAY_VALUE)),
        single("kvlistValue", 6, FieldKind::MessageSpec(&KEY_VALUE_LIST)),
        single("bytesValue", 7, FieldKind::Bytes),
    ],
};
static ARRAY_VALUE: MessageSpec =
    MessageSpec { name: "ArrayValue", fields: &[repeated("values", 1, FieldKind::MessageSpec(&ANY_VALUE))] };
static KEY_VALUE_LIST: MessageSpec = MessageSpec {
    name: "KeyValueList",
    fields: &[repeated("values", 1, FieldKind::MessageSpec(&KEY_VALUE))],
};

/// Converts a request from JSON to protobuf.
///
/// # Errors
/// [`DecodeError::Json`] with the position; [`DecodeError::TooLarge`], if the protobuf exceeds the
/// limit of a decompressed body.
pub(super) fn to_protobuf(body: &[u8], limits: &DecodeLimits) -> Result<Vec<u8>, DecodeError> {
    let allowed = limits.decompressed_bytes_max;
    let mut out = ProtobufWriter { bytes: Vec::new(), allowed };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read =
        MessageSeed { message: &REQUEST, out: &mut out }.deserialize(&mut json).and_then(|()| json.end());
    match read {
        Ok(()) => Ok(out.bytes),
        Err(_) if out.is_full() => {
            let (what, found) = ("bytes as protobuf", out.bytes.len());
            Err(DecodeError::TooLarge { what, found, allowed })
        }
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let message = error.to_string();
            let position = format!(" at line {line} column {column}");
            let reason = message.strip_suffix(&position).unwrap_or(&message).to_owned();
            Err(DecodeError::Json { reason, line, column })
        }
    }
}

/// Number of bytes of the length of a nested message. It is constant, so that the length can be
/// filled in afterwards. A length of minimal size would move the whole message, once for each
/// message around it: seconds of work for a body of 60 kB that gzip made of one long string in a
/// hundred nested objects.
const LENGTH_BYTES: usize = 5;

/// The protobuf output and its limit in bytes.
struct ProtobufWriter {
    bytes: Vec<u8>,
    allowed: usize,
}

impl ProtobufWriter {
    fn is_full(&self) -> bool {
        self.bytes.len() > self.allowed
    }

    fn check_size<E: Error>(&self) -> Result<(), E> {
        if self.is_full() { Err(E::custom("the request is too large")) } else { Ok(()) }
    }

    fn varint(&mut self, field: &FieldSpec, value: u64) {
        put_varint(field.number << 3, &mut self.bytes);
        put_varint(value, &mut self.bytes);
    }

    fn fixed64(&mut self, field: &FieldSpec, bits: u64) {
        put_varint(field.number << 3 | 1, &mut self.bytes);
        self.bytes.extend_from_slice(&bits.to_le_bytes());
    }

    fn bytes(&mut self, field: &FieldSpec, bytes: &[u8]) {
        put_bytes(field.number, bytes, &mut self.bytes);
    }

    /// Begins a nested message. Returns the start of its contents, for
    /// [`ProtobufWriter::end_message`].
    fn begin_message(&mut self, field: &FieldSpec) -> usize {
        put_varint(field.number << 3 | 2, &mut self.bytes);
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        self.bytes.len()
    }

    /// Fills in the length of the message that began at `start`.
    fn end_message(&mut self, start: usize) {
        let mut length = self.bytes.len().saturating_sub(start) as u64;
        let prefix = self.bytes.get_mut(start.saturating_sub(LENGTH_BYTES)..start).unwrap_or_default();
        for byte in &mut *prefix {
            *byte = length.to_le_bytes()[0] | 0x80;
            length >>= 7;
        }
        if let Some(last) = prefix.last_mut() {
            *last &= 0x7f;
        }
    }
}

/// Deserializes a message from a JSON object.
struct MessageSeed<'o> {
    message: &'static MessageSpec,
    out: &'o mut ProtobufWriter,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object: {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(FieldNameSeed(self.message))? {
            match field {
                Some(field) => {
                    map.next_value_seed(FieldValueSeed { field, in_array: false, out: &mut *self.out })?
                }
                None => _ = map.next_value::<IgnoredAny>()?,
            }
            self.out.check_size()?;
        }
        Ok(())
    }
}

/// Deserializes the name of a field; `None` if it is unknown.
struct FieldNameSeed(&'static MessageSpec);

impl<'de> DeserializeSeed<'de> for FieldNameSeed {
    type Value = Option<&'static FieldSpec>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed {
    type Value = Option<&'static FieldSpec>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a field of {}", self.0.name)
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| matches_name(field.name, name)))
    }
}

/// Returns whether `name` is the name `camel`, in camel case or with underscores.
fn matches_name(camel: &str, name: &str) -> bool {
    if camel == name {
        return true;
    }
    let mut rest = name.bytes();
    camel.bytes().all(|byte| {
        let next = rest.next();
        if byte.is_ascii_uppercase() {
            next == Some(b'_') && rest.next() == Some(byte.to_ascii_lowercase())
        } else {
            next == Some(byte)
        }
    }) && rest.next().is_none()
}

/// Deserializes the value of a field, or an element of its array.
struct FieldValueSeed<'o> {
    field: &'static FieldSpec,
    in_array: bool,
    out: &'o mut ProtobufWriter,
}

impl<'de> DeserializeSeed<'de> for FieldValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl FieldValueSeed<'_> {
    /// Returns whether a single value is expected here rather than an array.
    const fn expects_single(&self) -> bool {
        self.in_array || !self.field.repeated
    }

    fn type_error<E: Error>(&self, found: impl fmt::Display) -> E {
        struct Expected<'v, 'o>(&'v FieldValueSeed<'o>);
        impl fmt::Display for Expected<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expected(f)
            }
        }
        E::custom(format_args!("{found} instead of {}", Expected(self)))
    }

    fn expected(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.field.kind {
            _ if !self.expects_single() => "an array",
            FieldKind::Text => "a string",
            FieldKind::Bool => "true or false",
            FieldKind::Double => "a number",
            FieldKind::Fixed64 | FieldKind::Uint64 => "a non-negative 64-bit integer",
            FieldKind::Sfixed64 | FieldKind::Int64 => "a 64-bit integer",
            FieldKind::Uint32 => "a non-negative 32-bit integer",
            FieldKind::Sint32 => "a 32-bit integer",
            FieldKind::Enum(_) => "a number or name of the enum",
            FieldKind::Bytes => "bytes in base64",
            FieldKind::Id(_) => "an id in hexadecimal digits",
            FieldKind::MessageSpec(_) => "an object",
        };
        write!(f, "{} ({kind})", self.field.name)
    }

    /// Writes an integer.
    ///
    /// # Errors
    /// A type error, if the field has another type or the value is out of its range.
    fn whole<E: Error>(self, value: i128) -> Result<(), E> {
        let type_error = || self.type_error(value);
        let unsigned = || u64::try_from(value).map_err(|_| type_error());
        let signed = || i64::try_from(value).map_err(|_| type_error());
        if !self.expects_single() {
            return Err(type_error());
        }
        match self.field.kind {
            FieldKind::Fixed64 => {
                let bits = unsigned()?;
                self.out.fixed64(self.field, bits);
            }
            FieldKind::Sfixed64 => {
                let bits = signed()?.cast_unsigned();
                self.out.fixed64(self.field, bits);
            }
            FieldKind::Uint64 => {
                let value = unsigned()?;
                self.out.varint(self.field, value);
            }
            FieldKind::Int64 => {
                let value = signed()?.cast_unsigned();
                self.out.varint(self.field, value);
            }
            FieldKind::Enum(_) => {
                let value = i32::try_from(value).map_err(|_| type_error())?;
                self.out.varint(self.field, i64::from(value).cast_unsigned());
            }
            FieldKind::Uint32 => {
                let value = u32::try_from(value).map_err(|_| type_error())?;
                self.out.varint(self.field, u64::from(value));
            }
            FieldKind::Sint32 => {
                let value = i64::from(i32::try_from(value).map_err(|_| type_error())?);
                self.out.varint(self.field, (value << 1 ^ value >> 63).cast_unsigned());
            }
            _ => return Err(type_error()),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for FieldValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected(f)
    }

    /// `null` means that the field is absent.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.in_array { Err(self.type_error("null")) } else { Ok(()) }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Bool if self.expects_single() => self.out.varint(self.field, u64::from(value)),
            _ => return Err(self.type_error(value)),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Double => self.visit_f64(super::points::double(value)),
            _ => self.whole(i128::from(value)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Double => self.visit_f64(super::points::signed_double(value.cast_unsigned())),
            _ => self.whole(i128::from(value)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Double if self.expects_single() => self.out.fixed64(self.field, value.to_bits()),
            // `1e3` is an integer as well.
            FieldKind::Fixed64
            | FieldKind::Sfixed64
            | FieldKind::Int64
            | FieldKind::Uint64
            | FieldKind::Uint32
            | FieldKind::Sint32
                if value.fract() == 0.0 && value.abs() < 1e30 =>
            {
                let whole = format!("{value:.0}").parse().map_err(|_| self.type_error(value))?;
                return self.whole(whole);
            }
            _ => return Err(self.type_error(value)),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // Long strings are quoted by their first 64 characters.
        let type_error = || self.type_error(format_args!("{:?}", text.chars().take(64).collect::<String>()));
        if !self.expects_single() {
            return Err(type_error());
        }
        match self.field.kind {
            FieldKind::Text => self.out.bytes(self.field, text.as_bytes()),
            FieldKind::Double => {
                let value = parse_value(text.trim()).map_err(|_| type_error())?;
                self.out.fixed64(self.field, value.to_bits());
            }
            FieldKind::Fixed64
            | FieldKind::Sfixed64
            | FieldKind::Int64
            | FieldKind::Uint64
            | FieldKind::Uint32
            | FieldKind::Sint32 => {
                let value = text.trim().parse::<i128>().map_err(|_| type_error())?;
                return self.whole(value);
            }
            FieldKind::Enum(names) => {
                let (_, value) = names.iter().find(|(name, _)| *name == text).ok_or_else(type_error)?;
                self.out.varint(self.field, *value);
            }
            FieldKind::Bytes => {
                let bytes = base64(text).ok_or_else(type_error)?;
                self.out.bytes(self.field, &bytes);
            }
            FieldKind::Id(length) => {
                let hex = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
                // An id in base64 that happens to be valid hexadecimal has the wrong number of
                // digits for it.
                let id = hex.filter(|id| id.is_empty() || id.len() == length);
                let id =
                    id.or_else(|| base64(text).filter(|id| id.len() == length)).ok_or_else(type_error)?;
                self.out.bytes(self.field, &id);
            }
            FieldKind::Bool | FieldKind::MessageSpec(_) => return Err(type_error()),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        if self.expects_single() {
            return Err(self.type_error("an array"));
        }
        let field = self.field;
        while array
            .next_element_seed(FieldValueSeed { field, in_array: true, out: &mut *self.out })?
            .is_some()
        {
            self.out.check_size()?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let FieldKind::MessageSpec(message) = self.field.kind else {
            return Err(self.type_error("an object"));
        };
        if !self.expects_single() {
            return Err(self.type_error("an object"));
        }
        let start = self.out.begin_message(self.field);
        MessageSeed { message, out: &mut *self.out }.visit_map(map)?;
        self.out.end_message(start);
        Ok(())
    }
}

/// Decodes base64 of either alphabet, padded or not, as protobuf's JSON mapping does.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let plain = data_encoding::BASE64_NOPAD.decode(text);
    plain.or_else(|_| data_encoding::BASE64URL_NOPAD.decode(text)).ok()
}
