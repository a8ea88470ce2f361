//! Attributes as labels.
//!
//! Most points have a few attributes whose names are all different, and different from what the resource says: they are
//! rendered one by one as they are read. Others go the careful way: two attributes that fold to one label are joined by
//! `;` in the order of their keys, what a point says goes before what was promoted from its resource, and `job`,
//! `instance` and the labels that the translation makes itself go before all.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::protobuf::{WireError, WireReader};
use super::resource::Resource;
use super::{Trouble, names};
use crate::model::{METRIC_NAME, RenderedLabels};

/// Attributes of one point or resource. The store takes fewer labels, and says so.
pub(super) const ATTRIBUTES_MAX: usize = 256;
/// From so many on, names are not compared each to each.
const FEW: usize = 16;
/// Arrays and maps in arrays and maps.
const DEPTH_MAX: usize = 16;
/// Entries of one map.
const ENTRIES_MAX: usize = 4_096;
/// Text of an attribute that is an array, a map or bytes. The store takes less, and says so.
const TEXT_BYTES_MAX: usize = 64 << 10;

const KEY_VALUE: &str = "KeyValue";
const ANY_VALUE: &str = "AnyValue";

/// Key and `AnyValue`, which is empty where it is absent: that is no value either way.
#[inline]
pub(super) fn key_value(message: &[u8]) -> Result<(&str, &[u8]), WireError> {
    let mut reader = WireReader::new(message);
    // As every encoder writes it.
    if let (Some(key), Some(value)) = (reader.nested(1 << 3 | 2), reader.nested(2 << 3 | 2))
        && reader.offset() == message.len()
    {
        let key = std::str::from_utf8(key).map_err(|_| WireError::Utf8 { message: KEY_VALUE, field: 1 })?;
        return Ok((key, value));
    }
    any_key_value(message)
}

fn any_key_value(message: &[u8]) -> Result<(&str, &[u8]), WireError> {
    let (mut key, mut value) = ("", &[][..]);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => key = field.text(KEY_VALUE)?,
            2 => value = field.bytes(KEY_VALUE)?,
            _ => {}
        }
    }
    Ok((key, value))
}

enum Value<'a> {
    None,
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Array(&'a [u8]),
    Map(&'a [u8]),
    Bytes(&'a [u8]),
}

fn value(any: &[u8]) -> Result<Value<'_>, WireError> {
    let mut value = Value::None;
    let mut reader = WireReader::new(any);
    while let Some(field) = reader.field()? {
        value = match field.number {
            1 => Value::Text(field.text(ANY_VALUE)?),
            2 => Value::Bool(field.int64(ANY_VALUE)? != 0),
            3 => Value::Int(field.int64(ANY_VALUE)?),
            4 => Value::Double(field.double(ANY_VALUE)?),
            5 => Value::Array(field.bytes(ANY_VALUE)?),
            6 => Value::Map(field.bytes(ANY_VALUE)?),
            7 => Value::Bytes(field.bytes(ANY_VALUE)?),
            _ => continue,
        }
    }
    Ok(value)
}

/// What an `AnyValue` says as a label. `text` is written to where it is not a text already.
#[inline]
pub(super) fn text<'a>(any: &'a [u8], text: &'a mut String) -> Result<&'a str, Trouble> {
    let mut reader = WireReader::new(any);
    if let Some(said) = reader.nested(1 << 3 | 2)
        && reader.offset() == any.len()
    {
        let wrong = |_| WireError::Utf8 { message: ANY_VALUE, field: 1 };
        return Ok(std::str::from_utf8(said).map_err(wrong)?);
    }
    any_text(any, text)
}

fn any_text<'a>(any: &'a [u8], text: &'a mut String) -> Result<&'a str, Trouble> {
    text.clear();
    match value(any)? {
        Value::Text(said) => return Ok(said),
        Value::None => {}
        Value::Bool(said) => text.push_str(if said { "true" } else { "false" }),
        Value::Int(said) => push(text, said),
        Value::Double(said) => push_double(said, text),
        Value::Bytes(said) => push_base64(said, text)?,
        said @ (Value::Array(_) | Value::Map(_)) => push_json(&said, 0, text)?,
    }
    Ok(text)
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "{value}");
}

/// As JSON has numbers in Go: plain from 1e-6 up to 1e21, else with an exponent that has a sign.
fn push_double(value: f64, out: &mut String) {
    let size = value.abs();
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        out.push_str(&if size >= 1e21 { text.replace('e', "e+") } else { text });
    } else {
        push(out, value);
    }
}

fn push_base64(bytes: &[u8], out: &mut String) -> Result<(), Trouble> {
    fits(out.len().saturating_add(bytes.len()))?;
    data_encoding::BASE64.encode_append(bytes, out);
    Ok(())
}

fn fits(bytes: usize) -> Result<(), Trouble> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("an attribute that is no plain text has more than {TEXT_BYTES_MAX} bytes as one");
    Err(Trouble::Point("label_value_too_long", reason))
}

fn push_json(said: &Value<'_>, depth: usize, out: &mut String) -> Result<(), Trouble> {
    if depth >= DEPTH_MAX {
        let reason = format!("an attribute has more than {DEPTH_MAX} values in each other");
        return Err(Trouble::Point("attribute_too_deep", reason));
    }
    let deeper = depth.saturating_add(1);
    match *said {
        Value::None => out.push_str("null"),
        Value::Text(said) => push_quoted(said, out)?,
        Value::Bool(said) => push(out, said),
        Value::Int(said) => push(out, said),
        // JSON has no such numbers.
        Value::Double(said) if !said.is_finite() => {
            out.push('"');
            push_double(said, out);
            out.push('"');
        }
        Value::Double(said) => push_double(said, out),
        Value::Bytes(said) => {
            out.push('"');
            push_base64(said, out)?;
            out.push('"');
        }
        Value::Array(values) => {
            out.push('[');
            let mut comma = "";
            let mut reader = WireReader::new(values);
            while let Some(field) = reader.field()? {
                if field.number == 1 {
                    out.push_str(comma);
                    comma = ",";
                    push_json(&value(field.bytes("ArrayValue")?)?, deeper, out)?;
                }
            }
            out.push(']');
        }
        Value::Map(entries) => push_json_map(entries, deeper, out)?,
    }
    fits(out.len())
}

fn push_json_map(message: &[u8], depth: usize, out: &mut String) -> Result<(), Trouble> {
    let mut entries = Vec::new();
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        if field.number == 1 {
            if entries.len() >= ENTRIES_MAX {
                let reason = format!("an attribute is a map of more than {ENTRIES_MAX} entries");
                return Err(Trouble::Point("label_value_too_long", reason));
            }
            entries.push(key_value(field.bytes("KeyValueList")?)?);
        }
    }
    // Of one key the later value.
    let entries: BTreeMap<&str, &[u8]> = entries.into_iter().collect();
    out.push('{');
    for (place, (key, any)) in entries.into_iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        push_quoted(key, out)?;
        out.push(':');
        push_json(&value(any)?, depth, out)?;
    }
    out.push('}');
    Ok(())
}

fn push_quoted(text: &str, out: &mut String) -> Result<(), Trouble> {
    fits(out.len().saturating_add(text.len()))?;
    out.push_str(&serde_json::Value::from(text).to_string());
    Ok(())
}

/// Attributes by the labels they fold to; those that fold to one, joined in the order of their keys.
pub(super) fn fold(mut attributes: Vec<(String, String)>) -> BTreeMap<String, String> {
    let mut folded: BTreeMap<String, String> = BTreeMap::new();
    attributes.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (key, value) in attributes {
        let mut name = String::new();
        names::label(&key, &mut name);
        match folded.get_mut(&name) {
            Some(joined) => {
                joined.push(';');
                joined.push_str(&value);
            }
            None => drop(folded.insert(name, value)),
        }
    }
    folded
}

/// A set of names that says quickly that one is not in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sieve(u64);

impl Sieve {
    pub(super) fn add(&mut self, name: &str) {
        self.0 |= Sieve::bit(name);
    }

    pub(super) fn merge(&mut self, other: Sieve) {
        self.0 |= other.0;
    }

    /// False: certainly no name is in both.
    fn meets(self, other: Sieve) -> bool {
        self.0 & other.0 != 0
    }

    fn bit(name: &str) -> u64 {
        let (first, last) = match *name.as_bytes() {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => (0, 0),
        };
        let mixed = usize::from(first)
            .wrapping_mul(7)
            .wrapping_add(usize::from(last).wrapping_mul(13))
            .wrapping_add(name.len().wrapping_mul(31));
        1_u64.rotate_left(u32::try_from(mixed & 63).unwrap_or_default())
    }
}

/// The labels of one point, but for its name and what its resource says. Reused from point to point.
#[derive(Debug, Default)]
pub(super) struct PointLabels {
    rendered: RenderedLabels,
    /// Keys and the names they fold to, by their places in a point: the next point of a metric mostly has the same.
    names: Vec<Name>,
    /// How many of them are this point's.
    count: usize,
    sieve: Sieve,
    /// Names meet: the careful way.
    entangled: bool,
    /// The resource's labels are among the rendered ones.
    whole: bool,
    text: String,
}

#[derive(Debug, Default)]
struct Name {
    key: String,
    label: String,
    sieve: Sieve,
}

impl Name {
    fn set(&mut self, key: &str) {
        self.key.clear();
        self.key.push_str(key);
        names::label(key, &mut self.label);
        self.sieve = Sieve::default();
        self.sieve.add(&self.label);
    }
}

impl PointLabels {
    /// Begins a point.
    pub(super) fn clear(&mut self) {
        self.rendered.clear();
        self.count = 0;
        self.sieve = Sieve::default();
        self.entangled = false;
        self.whole = false;
    }

    /// Adds a `KeyValue`.
    #[inline]
    pub(super) fn add(&mut self, message: &[u8]) -> Result<(), Trouble> {
        let place = self.count;
        if place >= FEW {
            if place >= ATTRIBUTES_MAX {
                return Err(too_many());
            }
            self.entangled = true;
        }
        let (key, any) = key_value(message)?;
        if place >= self.names.len() {
            let mut name = Name::default();
            name.set(key);
            self.names.push(name);
        }
        // There is one at this place now.
        let (before, rest) = self.names.split_at_mut(place);
        let Some(name) = rest.first_mut() else { return Ok(()) };
        if name.key != key {
            name.set(key);
        }
        if self.sieve.meets(name.sieve) && !self.entangled {
            self.entangled = before.iter().any(|before| before.label == name.label);
        }
        self.sieve.merge(name.sieve);
        self.count = place.saturating_add(1);
        let value = text(any, &mut self.text)?;
        // An empty value is no label; its name counts all the same.
        if !value.is_empty() && !self.entangled {
            self.rendered.push(&name.label, value);
        }
        Ok(())
    }

    /// Ends a point: `message` with its attributes in the field of this number. `made`: the label that the translation makes
    /// itself, `le` or `quantile`.
    pub(super) fn finish(
        &mut self,
        (message, number): (&[u8], u32),
        resource: &Resource,
        made: Option<&str>,
    ) -> Result<(), Trouble> {
        let is_made = |name: &str| name == METRIC_NAME || Some(name) == made;
        let of_resource = |name: &str| resource.labels().any(|(own, _)| own == name);
        let meets = |name: &Name| {
            is_made(&name.label) || (resource.sieve().meets(name.sieve) && of_resource(&name.label))
        };
        if !self.entangled && !self.names.iter().take(self.count).any(meets) {
            return Ok(());
        }
        let mut attributes = Vec::new();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == number {
                let (key, any) = key_value(field.bytes("a data point")?)?;
                attributes.push((key.to_owned(), text(any, &mut self.text)?.to_owned()));
            }
        }
        let mut labels = fold(attributes);
        labels.retain(|name, _| !is_made(name));
        resource.complete(&mut labels);
        self.rendered.clear();
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            self.rendered.push(name, value);
        }
        self.whole = true;
        Ok(())
    }

    /// What is rendered: the point's own labels, and its resource's.
    pub(super) fn parts<'a>(&'a self, resource: &'a Resource) -> [&'a RenderedLabels; 2] {
        [&self.rendered, if self.whole { resource.nothing() } else { resource.rendered() }]
    }
}

/// The refusal of a point or resource with too many attributes.
pub(super) fn too_many() -> Trouble {
    Trouble::Point("too_many_labels", format!("it has more than {ATTRIBUTES_MAX} attributes"))
}
