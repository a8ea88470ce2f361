//! An encoder that writes a message in protobuf and in JSON. It shares no code with the decoder
//! except the varint.

use serde_json::{Map, Value as Json, json};

use crate::ingest::protobuf::put_varint as varint;

/// A message in both encodings.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) protobuf: Vec<u8>,
    pub(super) json: Map<String, Json>,
}

fn zigzag(value: i32) -> u64 {
    let value = i64::from(value);
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn json_double(value: f64) -> Json {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}

/// Large integers are strings, as protobuf's JSON mapping demands; small ones are numbers, as many
/// senders write them.
fn json_whole(value: i128) -> Json {
    match i64::try_from(value) {
        Ok(small) if small.unsigned_abs() < 1_000 => json!(small),
        _ => json!(value.to_string()),
    }
}

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    fn tag(&mut self, number: u64, kind: u64) {
        varint(number << 3 | kind, &mut self.protobuf);
    }

    fn raw(&mut self, number: u64, bytes: &[u8]) {
        self.tag(number, 2);
        varint(bytes.len() as u64, &mut self.protobuf);
        self.protobuf.extend_from_slice(bytes);
    }

    fn with_json(mut self, name: &str, value: Json) -> Message {
        self.json.insert(name.to_owned(), value);
        self
    }

    pub(super) fn text(mut self, number: u64, name: &str, value: &str) -> Message {
        self.raw(number, value.as_bytes());
        self.with_json(name, json!(value))
    }

    pub(super) fn varint(mut self, number: u64, name: &str, value: i64) -> Message {
        self.tag(number, 0);
        varint(value.cast_unsigned(), &mut self.protobuf);
        self.with_json(name, json_whole(value.into()))
    }

    pub(super) fn bool(mut self, number: u64, name: &str, value: bool) -> Message {
        self.tag(number, 0);
        self.protobuf.push(u8::from(value));
        self.with_json(name, json!(value))
    }

    pub(super) fn sint32(mut self, number: u64, name: &str, value: i32) -> Message {
        self.tag(number, 0);
        varint(zigzag(value), &mut self.protobuf);
        self.with_json(name, json!(value))
    }

    pub(super) fn double(mut self, number: u64, name: &str, value: f64) -> Message {
        self.tag(number, 1);
        self.protobuf.extend_from_slice(&value.to_le_bytes());
        self.with_json(name, json_double(value))
    }

    pub(super) fn fixed64(mut self, number: u64, name: &str, value: u64) -> Message {
        self.tag(number, 1);
        self.protobuf.extend_from_slice(&value.to_le_bytes());
        self.with_json(name, json_whole(value.into()))
    }

    pub(super) fn sfixed64(mut self, number: u64, name: &str, value: i64) -> Message {
        self.tag(number, 1);
        self.protobuf.extend_from_slice(&value.to_le_bytes());
        self.with_json(name, json_whole(value.into()))
    }

    pub(super) fn base64(mut self, number: u64, name: &str, value: &[u8]) -> Message {
        self.raw(number, value);
        self.with_json(name, json!(data_encoding::BASE64.encode(value)))
    }

    pub(super) fn hex(mut self, number: u64, name: &str, value: &[u8]) -> Message {
        self.raw(number, value);
        self.with_json(name, json!(data_encoding::HEXUPPER.encode(value)))
    }

    pub(super) fn one(mut self, number: u64, name: &str, value: Message) -> Message {
        self.raw(number, &value.protobuf);
        self.with_json(name, Json::Object(value.json))
    }

    pub(super) fn many(mut self, number: u64, name: &str, values: Vec<Message>) -> Message {
        values.iter().for_each(|value| self.raw(number, &value.protobuf));
        self.with_json(name, values.into_iter().map(|value| Json::Object(value.json)).collect())
    }

    /// Adds a packed field.
    pub(super) fn fixed64s(mut self, number: u64, name: &str, values: &[u64]) -> Message {
        self.raw(number, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        self.with_json(name, values.iter().map(|value| json_whole((*value).into())).collect())
    }

    /// Adds a packed field.
    pub(super) fn doubles(mut self, number: u64, name: &str, values: &[f64]) -> Message {
        self.raw(number, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        self.with_json(name, values.iter().map(|value| json_double(*value)).collect())
    }

    /// Adds a packed field.
    pub(super) fn varints(mut self, number: u64, name: &str, values: &[u64]) -> Message {
        let mut packed = Vec::new();
        values.iter().for_each(|value| varint(*value, &mut packed));
        self.raw(number, &packed);
        self.with_json(name, values.iter().map(|value| json_whole((*value).into())).collect())
    }

    pub(super) fn json_bytes(&self) -> Vec<u8> {
        Json::Object(self.json.clone()).to_string().into_bytes()
    }
}

/// An attribute value.
#[derive(Clone, Debug)]
pub(super) enum AnyValue {
    None,
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Array(Vec<AnyValue>),
    Map(Vec<(String, AnyValue)>),
}

impl From<&str> for AnyValue {
    fn from(text: &str) -> AnyValue {
        AnyValue::Text(text.to_owned())
    }
}

pub(super) fn any_value(value: &AnyValue) -> Message {
    let message = Message::new();
    match value {
        AnyValue::None => message,
        AnyValue::Text(value) => message.text(1, "stringValue", value),
        AnyValue::Bool(value) => message.bool(2, "boolValue", *value),
        AnyValue::Int(value) => message.varint(3, "intValue", *value),
        AnyValue::Double(value) => message.double(4, "doubleValue", *value),
        AnyValue::Bytes(value) => message.base64(7, "bytesValue", value),
        AnyValue::Array(value) => {
            let values = Message::new().many(1, "values", value.iter().map(any_value).collect());
            message.one(5, "arrayValue", values)
        }
        AnyValue::Map(value) => {
            let values = value.iter().map(|(key, value)| key_value(key, value)).collect();
            message.one(6, "kvlistValue", Message::new().many(1, "values", values))
        }
    }
}

pub(super) fn key_value(key: &str, value: &AnyValue) -> Message {
    Message::new().text(1, "key", key).one(2, "value", any_value(value))
}

/// Adds attributes in this field.
pub(super) fn attributes(message: Message, number: u64, pairs: &[(&str, AnyValue)]) -> Message {
    message.many(number, "attributes", pairs.iter().map(|(key, value)| key_value(key, value)).collect())
}

/// Adds string attributes in this field.
pub(super) fn texts(message: Message, number: u64, pairs: &[(&str, &str)]) -> Message {
    let pairs: Vec<(&str, AnyValue)> =
        pairs.iter().map(|(key, value)| (*key, AnyValue::from(*value))).collect();
    attributes(message, number, &pairs)
}

/// Returns a `ResourceMetrics` with one scope.
pub(super) fn resource_metrics(resource: &[(&str, &str)], metrics: Vec<Message>) -> Message {
    let scope = Message::new().text(1, "name", "tests").text(2, "version", "1.0");
    let scope_metrics = Message::new().one(1, "scope", scope).many(2, "metrics", metrics);
    Message::new().one(1, "resource", texts(Message::new(), 1, resource)).many(
        2,
        "scopeMetrics",
        vec![scope_metrics],
    )
}

pub(super) fn request(resources: Vec<Message>) -> Message {
    Message::new().many(1, "resourceMetrics", resources)
}

pub(super) fn metric(name: &str, unit: &str) -> Message {
    Message::new().text(1, "name", name).text(2, "description", "What it is.").text(3, "unit", unit)
}

pub(super) const DELTA: i64 = 1;
pub(super) const CUMULATIVE: i64 = 2;

pub(super) fn gauge(name: &str, unit: &str, points: Vec<Message>) -> Message {
    metric(name, unit).one(5, "gauge", Message::new().many(1, "dataPoints", points))
}

pub(super) fn sum(
    name: &str,
    unit: &str,
    temporality: i64,
    monotonic: bool,
    points: Vec<Message>,
) -> Message {
    let data = Message::new()
        .many(1, "dataPoints", points)
        .varint(2, "aggregationTemporality", temporality)
        .bool(3, "isMonotonic", monotonic);
    metric(name, unit).one(7, "sum", data)
}

pub(super) fn histogram(name: &str, unit: &str, points: Vec<Message>) -> Message {
    let data = Message::new().many(1, "dataPoints", points).varint(2, "aggregationTemporality", CUMULATIVE);
    metric(name, unit).one(9, "histogram", data)
}

pub(super) fn exponential(name: &str, unit: &str, points: Vec<Message>) -> Message {
    let data = Message::new().many(1, "dataPoints", points).varint(2, "aggregationTemporality", CUMULATIVE);
    metric(name, unit).one(10, "exponentialHistogram", data)
}

pub(super) fn summary(name: &str, unit: &str, points: Vec<Message>) -> Message {
    metric(name, unit).one(11, "summary", Message::new().many(1, "dataPoints", points))
}

/// The time of most points, in nanoseconds.
pub(super) const AT: u64 = 1_795_000_000_123_456_789;
/// The start of most points, in nanoseconds.
pub(super) const SINCE: u64 = 1_794_999_000_000_000_000;

/// Returns a point with a time and a start.
pub(super) fn timed() -> Message {
    Message::new().fixed64(2, "startTimeUnixNano", SINCE).fixed64(3, "timeUnixNano", AT)
}

/// Returns a point of a gauge or a sum.
pub(super) fn double_point(pairs: &[(&str, &str)], value: f64) -> Message {
    texts(timed().double(4, "asDouble", value), 7, pairs)
}

/// Returns an exemplar with a trace and a span.
pub(super) fn exemplar(value: f64, filtered: &[(&str, &str)]) -> Message {
    let filtered = filtered.iter().map(|(key, value)| key_value(key, &AnyValue::from(*value))).collect();
    Message::new()
        .many(7, "filteredAttributes", filtered)
        .fixed64(2, "timeUnixNano", AT - 5_000_000)
        .double(3, "asDouble", value)
        .hex(4, "spanId", &[0xab; 8])
        .hex(5, "traceId", &[0x0c; 16])
}
