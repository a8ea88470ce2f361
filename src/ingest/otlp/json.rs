//! OTLP in JSON, brought to the bytes that the same request has in protobuf.
//!
//! One pass, nothing kept but what is written: a message's fields are looked up in its table, each value is written as its
//! field's kind says, and a message's length is put before it once it has ended. As protobuf's JSON has it: names in camel
//! case or with underscores, 64-bit numbers as numbers or texts, doubles also as `"NaN"` or `"-Infinity"`, enums as numbers
//! or names, `null` as absent, fields that are not known passed over. As OTLP's has it: ids in hexadecimal digits (base64
//! where the length says so), other bytes in base64. All else is an error that says where, and never a value left out.
//! How deep a text may be is bounded by its parser.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::protobuf::{put_bytes, put_varint};
use super::super::{DecodeError, DecodeLimits};

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Bool,
    Double,
    Fixed64,
    /// As bits of a fixed64.
    Sfixed64,
    Int64,
    Uint64,
    Uint32,
    Sint32,
    Enum(&'static [(&'static str, u64)]),
    Bytes,
    /// Bytes; so many in hexadecimal digits.
    Id(usize),
    Message(&'static Message),
}

/// One field.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// In camel case.
    name: &'static str,
    number: u64,
    kind: Kind,
    /// An array.
    many: bool,
}

/// The fields of a message that are read.
#[derive(Debug)]
struct Message {
    name: &'static str,
    fields: &'static [Field],
}

const fn one(name: &'static str, number: u64, kind: Kind) -> Field {
    Field { name, number, kind, many: false }
}

const fn many(name: &'static str, number: u64, kind: Kind) -> Field {
    Field { name, number, kind, many: true }
}

static REQUEST: Message = Message {
    name: "ExportMetricsServiceRequest",
    fields: &[many("resourceMetrics", 1, Kind::Message(&RESOURCE_METRICS))],
};
static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[
        one("resource", 1, Kind::Message(&RESOURCE)),
        many("scopeMetrics", 2, Kind::Message(&SCOPE_METRICS)),
    ],
};
static RESOURCE: Message =
    Message { name: "Resource", fields: &[many("attributes", 1, Kind::Message(&KEY_VALUE))] };
static SCOPE_METRICS: Message =
    Message { name: "ScopeMetrics", fields: &[many("metrics", 2, Kind::Message(&METRIC))] };
static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        one("name", 1, Kind::Text),
        one("description", 2, Kind::Text),
        one("unit", 3, Kind::Text),
        one("gauge", 5, Kind::Message(&GAUGE)),
        one("sum", 7, Kind::Message(&SUM)),
        one("histogram", 9, Kind::Message(&HISTOGRAM)),
        one("exponentialHistogram", 10, Kind::Message(&EXPONENTIAL)),
        one("summary", 11, Kind::Message(&SUMMARY)),
    ],
};
const TEMPORALITY: Field = one(
    "aggregationTemporality",
    2,
    Kind::Enum(&[
        ("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0),
        ("AGGREGATION_TEMPORALITY_DELTA", 1),
        ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2),
    ]),
);
static GAUGE: Message =
    Message { name: "Gauge", fields: &[many("dataPoints", 1, Kind::Message(&NUMBER_POINT))] };
static SUM: Message = Message {
    name: "Sum",
    fields: &[
        many("dataPoints", 1, Kind::Message(&NUMBER_POINT)),
        TEMPORALITY,
        one("isMonotonic", 3, Kind::Bool),
    ],
};
static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[many("dataPoints", 1, Kind::Message(&HISTOGRAM_POINT)), TEMPORALITY],
};
static EXPONENTIAL: Message = Message {
    name: "ExponentialHistogram",
    fields: &[many("dataPoints", 1, Kind::Message(&EXPONENTIAL_POINT)), TEMPORALITY],
};
static SUMMARY: Message =
    Message { name: "Summary", fields: &[many("dataPoints", 1, Kind::Message(&SUMMARY_POINT))] };
const START: Field = one("startTimeUnixNano", 2, Kind::Fixed64);
const TIME: Field = one("timeUnixNano", 3, Kind::Fixed64);
static NUMBER_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        many("attributes", 7, Kind::Message(&KEY_VALUE)),
        START,
        TIME,
        one("asDouble", 4, Kind::Double),
        one("asInt", 6, Kind::Sfixed64),
        many("exemplars", 5, Kind::Message(&EXEMPLAR)),
        one("flags", 8, Kind::Uint32),
    ],
};
static HISTOGRAM_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        many("attributes", 9, Kind::Message(&KEY_VALUE)),
        START,
        TIME,
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        many("bucketCounts", 6, Kind::Fixed64),
        many("explicitBounds", 7, Kind::Double),
        many("exemplars", 8, Kind::Message(&EXEMPLAR)),
        one("flags", 10, Kind::Uint32),
    ],
};
static EXPONENTIAL_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        many("attributes", 1, Kind::Message(&KEY_VALUE)),
        START,
        TIME,
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        one("scale", 6, Kind::Sint32),
        one("zeroCount", 7, Kind::Fixed64),
        one("positive", 8, Kind::Message(&BUCKETS)),
        one("negative", 9, Kind::Message(&BUCKETS)),
        one("flags", 10, Kind::Uint32),
        many("exemplars", 11, Kind::Message(&EXEMPLAR)),
        one("zeroThreshold", 14, Kind::Double),
    ],
};
static BUCKETS: Message = Message {
    name: "Buckets",
    fields: &[one("offset", 1, Kind::Sint32), many("bucketCounts", 2, Kind::Uint64)],
};
static SUMMARY_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        many("attributes", 7, Kind::Message(&KEY_VALUE)),
        START,
        TIME,
        one("count", 4, Kind::Fixed64),
        one("sum", 5, Kind::Double),
        many("quantileValues", 6, Kind::Message(&QUANTILE)),
        one("flags", 8, Kind::Uint32),
    ],
};
static QUANTILE: Message = Message {
    name: "ValueAtQuantile",
    fields: &[one("quantile", 1, Kind::Double), one("value", 2, Kind::Double)],
};
static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        many("filteredAttributes", 7, Kind::Message(&KEY_VALUE)),
        one("timeUnixNano", 2, Kind::Fixed64),
        one("asDouble", 3, Kind::Double),
        one("asInt", 6, Kind::Sfixed64),
        one("spanId", 4, Kind::Id(8)),
        one("traceId", 5, Kind::Id(16)),
    ],
};
static KEY_VALUE: Message = Message {
    name: "KeyValue",
    fields: &[one("key", 1, Kind::Text), one("value", 2, Kind::Message(&ANY_VALUE))],
};
static ANY_VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        one("stringValue", 1, Kind::Text),
        one("boolValue", 2, Kind::Bool),
        one("intValue", 3, Kind::Int64),
        one("doubleValue", 4, Kind::Double),
        one("arrayValue", 5, Kind::Message(&ARRAY_VALUE)),
        one("kvlistValue", 6, Kind::Message(&KEY_VALUE_LIST)),
        one("bytesValue", 7, Kind::Bytes),
    ],
};
static ARRAY_VALUE: Message =
    Message { name: "ArrayValue", fields: &[many("values", 1, Kind::Message(&ANY_VALUE))] };
static KEY_VALUE_LIST: Message =
    Message { name: "KeyValueList", fields: &[many("values", 1, Kind::Message(&KEY_VALUE))] };

/// The protobuf of a request in JSON.
pub(super) fn to_protobuf(body: &[u8], limits: &DecodeLimits) -> Result<Vec<u8>, DecodeError> {
    let allowed = limits.decompressed_bytes_max;
    let mut out = Out { bytes: Vec::new(), allowed };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = Object { message: &REQUEST, out: &mut out }.deserialize(&mut json).and_then(|()| json.end());
    match read {
        Ok(()) => Ok(out.bytes),
        Err(_) if out.is_full() => {
            let (what, found) = ("bytes as protobuf", out.bytes.len());
            Err(DecodeError::TooLarge { what, found, allowed })
        }
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let told = error.to_string();
            let place = format!(" at line {line} column {column}");
            let reason = told.strip_suffix(&place).unwrap_or(&told).to_owned();
            Err(DecodeError::Json { reason, line, column })
        }
    }
}

/// A nested message's length is a varint of this many bytes, whatever it is, and written when it is known. With as few as
/// it needs, all that is in the message would be moved, and once more for each message around it: seconds of work in 60 kB
/// that gzip made of one long text in a hundred objects.
const LENGTH_BYTES: usize = 5;

/// What is written.
struct Out {
    bytes: Vec<u8>,
    allowed: usize,
}

impl Out {
    fn is_full(&self) -> bool {
        self.bytes.len() > self.allowed
    }

    fn check<E: Error>(&self) -> Result<(), E> {
        if self.is_full() { Err(E::custom("the request is too large")) } else { Ok(()) }
    }

    fn varint(&mut self, field: &Field, value: u64) {
        put_varint(field.number << 3, &mut self.bytes);
        put_varint(value, &mut self.bytes);
    }

    fn fixed64(&mut self, field: &Field, bits: u64) {
        put_varint(field.number << 3 | 1, &mut self.bytes);
        self.bytes.extend_from_slice(&bits.to_le_bytes());
    }

    fn bytes(&mut self, field: &Field, bytes: &[u8]) {
        put_bytes(field.number, bytes, &mut self.bytes);
    }

    /// Begins a nested message; [`Out::end`] of what this returns ends it.
    fn begin(&mut self, field: &Field) -> usize {
        put_varint(field.number << 3 | 2, &mut self.bytes);
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        self.bytes.len()
    }

    /// Says before what has been written since `start` how much it is.
    fn end(&mut self, start: usize) {
        let mut length = self.bytes.len().saturating_sub(start) as u64;
        let place = self.bytes.get_mut(start.saturating_sub(LENGTH_BYTES)..start).unwrap_or_default();
        for byte in &mut *place {
            *byte = length.to_le_bytes()[0] | 0x80;
            length >>= 7;
        }
        if let Some(last) = place.last_mut() {
            *last &= 0x7f;
        }
    }
}

/// A message: a JSON object, or `null`.
struct Object<'o> {
    message: &'static Message,
    out: &'o mut Out,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object: {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Key(self.message))? {
            match field {
                Some(field) => map.next_value_seed(Value { field, in_array: false, out: &mut *self.out })?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
            self.out.check()?;
        }
        Ok(())
    }
}

/// The field of a name; none where it is not known.
struct Key(&'static Message);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a field of {}", self.0.name)
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| is_name(field.name, name)))
    }
}

/// Whether a name is this one, in camel case or with underscores.
fn is_name(camel: &str, name: &str) -> bool {
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

/// The value of a field, or one of its array.
struct Value<'o> {
    field: &'static Field,
    in_array: bool,
    out: &'o mut Out,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Value<'_> {
    /// Whether one value may stand here, not an array of them.
    const fn is_one(&self) -> bool {
        self.in_array || !self.field.many
    }

    fn wrong<E: Error>(&self, found: impl fmt::Display) -> E {
        struct Expected<'v, 'o>(&'v Value<'o>);
        impl fmt::Display for Expected<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expected(f)
            }
        }
        E::custom(format_args!("{found} where {} stands", Expected(self)))
    }

    fn expected(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.field.kind {
            _ if !self.is_one() => "an array",
            Kind::Text => "a text",
            Kind::Bool => "true or false",
            Kind::Double => "a number",
            Kind::Fixed64 | Kind::Uint64 => "a whole number of 64 bits, not negative",
            Kind::Sfixed64 | Kind::Int64 => "a whole number of 64 bits",
            Kind::Uint32 => "a whole number of 32 bits, not negative",
            Kind::Sint32 => "a whole number of 32 bits",
            Kind::Enum(_) => "one of the enum's numbers or names",
            Kind::Bytes => "bytes in base64",
            Kind::Id(_) => "an id in hexadecimal digits",
            Kind::Message(_) => "an object",
        };
        write!(f, "{} ({kind})", self.field.name)
    }

    /// Writes a whole number.
    fn whole<E: Error>(self, value: i128) -> Result<(), E> {
        let wrong = || self.wrong(value);
        let unsigned = || u64::try_from(value).map_err(|_| wrong());
        let signed = || i64::try_from(value).map_err(|_| wrong());
        if !self.is_one() {
            return Err(wrong());
        }
        match self.field.kind {
            Kind::Fixed64 => {
                let bits = unsigned()?;
                self.out.fixed64(self.field, bits);
            }
            Kind::Sfixed64 => {
                let bits = signed()?.cast_unsigned();
                self.out.fixed64(self.field, bits);
            }
            Kind::Uint64 => {
                let value = unsigned()?;
                self.out.varint(self.field, value);
            }
            Kind::Int64 => {
                let value = signed()?.cast_unsigned();
                self.out.varint(self.field, value);
            }
            Kind::Enum(_) => {
                let value = i32::try_from(value).map_err(|_| wrong())?;
                self.out.varint(self.field, i64::from(value).cast_unsigned());
            }
            Kind::Uint32 => {
                let value = u32::try_from(value).map_err(|_| wrong())?;
                self.out.varint(self.field, u64::from(value));
            }
            Kind::Sint32 => {
                let value = i64::from(i32::try_from(value).map_err(|_| wrong())?);
                self.out.varint(self.field, (value << 1 ^ value >> 63).cast_unsigned());
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected(f)
    }

    /// `null`: the field is absent.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.in_array { Err(self.wrong("null")) } else { Ok(()) }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Bool if self.is_one() => self.out.varint(self.field, u64::from(value)),
            _ => return Err(self.wrong(value)),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => self.visit_f64(super::points::double(value)),
            _ => self.whole(i128::from(value)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => self.visit_f64(super::points::signed_double(value.cast_unsigned())),
            _ => self.whole(i128::from(value)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double if self.is_one() => self.out.fixed64(self.field, value.to_bits()),
            // `1e3` is a whole number as well.
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Int64 | Kind::Uint64 | Kind::Uint32 | Kind::Sint32
                if value.fract() == 0.0 && value.abs() < 1e30 =>
            {
                let whole = format!("{value:.0}").parse().map_err(|_| self.wrong(value))?;
                return self.whole(whole);
            }
            _ => return Err(self.wrong(value)),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // Long ones are told by their beginning.
        let wrong = || self.wrong(format_args!("{:?}", text.chars().take(64).collect::<String>()));
        if !self.is_one() {
            return Err(wrong());
        }
        match self.field.kind {
            Kind::Text => self.out.bytes(self.field, text.as_bytes()),
            Kind::Double => {
                let value: f64 = text.trim().parse().map_err(|_| wrong())?;
                self.out.fixed64(self.field, value.to_bits());
            }
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Int64 | Kind::Uint64 | Kind::Uint32 | Kind::Sint32 => {
                let value = text.trim().parse::<i128>().map_err(|_| wrong())?;
                return self.whole(value);
            }
            Kind::Enum(names) => {
                let (_, value) = names.iter().find(|(name, _)| *name == text).ok_or_else(wrong)?;
                self.out.varint(self.field, *value);
            }
            Kind::Bytes => {
                let bytes = base64(text).ok_or_else(wrong)?;
                self.out.bytes(self.field, &bytes);
            }
            Kind::Id(length) => {
                let hex = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
                // As many digits as are bytes in base64 are not as many as an id has.
                let id = hex.filter(|id| id.is_empty() || id.len() == length);
                let id = id.or_else(|| base64(text).filter(|id| id.len() == length)).ok_or_else(wrong)?;
                self.out.bytes(self.field, &id);
            }
            Kind::Bool | Kind::Message(_) => return Err(wrong()),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        if self.is_one() {
            return Err(self.wrong("an array"));
        }
        let field = self.field;
        while array.next_element_seed(Value { field, in_array: true, out: &mut *self.out })?.is_some() {
            self.out.check()?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(message) = self.field.kind else { return Err(self.wrong("an object")) };
        if !self.is_one() {
            return Err(self.wrong("an object"));
        }
        let start = self.out.begin(self.field);
        Object { message, out: &mut *self.out }.visit_map(map)?;
        self.out.end(start);
        Ok(())
    }
}

/// Base64 in either alphabet, padded or not, as protobuf's JSON takes it.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let plain = data_encoding::BASE64_NOPAD.decode(text);
    plain.or_else(|_| data_encoding::BASE64URL_NOPAD.decode(text)).ok()
}
