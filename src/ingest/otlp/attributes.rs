//! Translation of attributes to labels.
//!
//! Most points have a few attributes whose names all differ from each other and from those of the
//! resource. They are rendered one by one as they are read. All others take a slower path:
//! attributes that fold to the same label name are joined by `;` in the order of their keys, a
//! point's attributes replace those promoted from its resource, and `job`, `instance` and the
//! labels that the translation makes itself replace all others.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::protobuf::{WireError, WireReader};
use super::resource::Resource;
use super::{TranslateError, names};
use crate::model::{METRIC_NAME, RenderedLabels};

/// Attributes of one point or resource, at most. The store allows fewer labels and reports the
/// excess.
pub(super) const ATTRIBUTES_MAX: usize = 256;
/// Number of attributes up to which names are compared pairwise; with more, the slower path is
/// taken.
const PAIRWISE_MAX: usize = 16;
/// Depth of nested arrays and maps, at most.
const DEPTH_MAX: usize = 16;
/// Entries of one map, at most.
const ENTRIES_MAX: usize = 4_096;
/// Bytes of an array, a map or bytes as text, at most. The store allows less and reports the
/// excess.
const TEXT_BYTES_MAX: usize = 64 << 10;

const KEY_VALUE: &str = "KeyValue";
const ANY_VALUE: &str = "AnyValue";

/// Reads the key and the encoded `AnyValue` of a `KeyValue`. An absent value is empty, which means
/// no value as well.
#[inline]
pub(super) fn key_value(message: &[u8]) -> Result<(&str, &[u8]), WireError> {
    let mut reader = WireReader::new(message);
    // The usual form: key and value, in this order.
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

enum AttributeValue<'a> {
    None,
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Array(&'a [u8]),
    Map(&'a [u8]),
    Bytes(&'a [u8]),
}

fn read_value(any: &[u8]) -> Result<AttributeValue<'_>, WireError> {
    let mut value = AttributeValue::None;
    let mut reader = WireReader::new(any);
    while let Some(field) = reader.field()? {
        value = match field.number {
            1 => AttributeValue::Text(field.text(ANY_VALUE)?),
            2 => AttributeValue::Bool(field.int64(ANY_VALUE)? != 0),
            3 => AttributeValue::Int(field.int64(ANY_VALUE)?),
            4 => AttributeValue::Double(field.double(ANY_VALUE)?),
            5 => AttributeValue::Array(field.bytes(ANY_VALUE)?),
            6 => AttributeValue::Map(field.bytes(ANY_VALUE)?),
            7 => AttributeValue::Bytes(field.bytes(ANY_VALUE)?),
            _ => continue,
        }
    }
    Ok(value)
}

/// Returns an `AnyValue` as label text. `text` is the buffer for values that are not strings.
#[inline]
pub(super) fn text<'a>(any: &'a [u8], text: &'a mut String) -> Result<&'a str, TranslateError> {
    let mut reader = WireReader::new(any);
    if let Some(value) = reader.nested(1 << 3 | 2)
        && reader.offset() == any.len()
    {
        let wrong = |_| WireError::Utf8 { message: ANY_VALUE, field: 1 };
        return Ok(std::str::from_utf8(value).map_err(wrong)?);
    }
    any_text(any, text)
}

fn any_text<'a>(any: &'a [u8], text: &'a mut String) -> Result<&'a str, TranslateError> {
    text.clear();
    match read_value(any)? {
        AttributeValue::Text(value) => return Ok(value),
        AttributeValue::None => {}
        AttributeValue::Bool(value) => text.push_str(if value { "true" } else { "false" }),
        AttributeValue::Int(value) => push(text, value),
        AttributeValue::Double(value) => push_double(value, text),
        AttributeValue::Bytes(value) => push_base64(value, text)?,
        value @ (AttributeValue::Array(_) | AttributeValue::Map(_)) => push_json(&value, 0, text)?,
    }
    Ok(text)
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "{value}");
}

/// Appends a double as Go writes numbers in JSON: without an exponent from 1e-6 up to 1e21
/// (exclusive), otherwise with one, which has a sign.
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

fn push_base64(bytes: &[u8], out: &mut String) -> Result<(), TranslateError> {
    check_text_length(out.len().saturating_add(bytes.len()))?;
    data_encoding::BASE64.encode_append(bytes, out);
    Ok(())
}

fn check_text_length(bytes: usize) -> Result<(), TranslateError> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("an attribute that is not a string has more than {TEXT_BYTES_MAX} bytes as text");
    Err(TranslateError::Point("label_value_too_long", reason))
}

fn push_json(value: &AttributeValue<'_>, depth: usize, out: &mut String) -> Result<(), TranslateError> {
    if depth >= DEPTH_MAX {
        let reason = format!("an attribute has more than {DEPTH_MAX} levels of nesting");
        return Err(TranslateError::Point("attribute_too_deep", reason));
    }
    let deeper = depth.saturating_add(1);
    match *value {
        AttributeValue::None => out.push_str("null"),
        AttributeValue::Text(value) => push_quoted(value, out)?,
        AttributeValue::Bool(value) => push(out, value),
        AttributeValue::Int(value) => push(out, value),
        // JSON has no such numbers, so they are strings.
        AttributeValue::Double(value) if !value.is_finite() => {
            out.push('"');
            push_double(value, out);
            out.push('"');
        }
        AttributeValue::Double(value) => push_double(value, out),
        AttributeValue::Bytes(value) => {
            out.push('"');
            push_base64(value, out)?;
            out.push('"');
        }
        AttributeValue::Array(values) => {
            out.push('[');
            let mut comma = "";
            let mut reader = WireReader::new(values);
            while let Some(field) = reader.field()? {
                if field.number == 1 {
                    out.push_str(comma);
                    comma = ",";
                    push_json(&read_value(field.bytes("ArrayValue")?)?, deeper, out)?;
                }
            }
            out.push(']');
        }
        AttributeValue::Map(entries) => push_json_map(entries, deeper, out)?,
    }
    check_text_length(out.len())
}

fn push_json_map(message: &[u8], depth: usize, out: &mut String) -> Result<(), TranslateError> {
    let mut entries = Vec::new();
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        if field.number == 1 {
            if entries.len() >= ENTRIES_MAX {
                let reason = format!("an attribute is a map with more than {ENTRIES_MAX} entries");
                return Err(TranslateError::Point("label_value_too_long", reason));
            }
            entries.push(key_value(field.bytes("KeyValueList")?)?);
        }
    }
    // If a key occurs twice, the last value counts.
    let entries: BTreeMap<&str, &[u8]> = entries.into_iter().collect();
    out.push('{');
    for (index, (key, any)) in entries.into_iter().enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        push_quoted(key, out)?;
        out.push(':');
        push_json(&read_value(any)?, depth, out)?;
    }
    out.push('}');
    Ok(())
}

fn push_quoted(text: &str, out: &mut String) -> Result<(), TranslateError> {
    check_text_length(out.len().saturating_add(text.len()))?;
    out.push_str(&serde_json::Value::from(text).to_string());
    Ok(())
}

/// Returns attributes by label name. Values of attributes that fold to the same name are joined by
/// `;` in the order of their keys.
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

/// A Bloom filter of names: a single bit per name, so that most pairs of sets are shown to be
/// disjoint without a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameFilter(u64);

impl NameFilter {
    pub(super) fn add(&mut self, name: &str) {
        self.0 |= NameFilter::bit(name);
    }

    pub(super) fn merge(&mut self, other: NameFilter) {
        self.0 |= other.0;
    }

    /// Returns false only if no name is in both sets.
    fn may_intersect(self, other: NameFilter) -> bool {
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

/// The labels of one point except its metric name and those of its resource. Reused from point to
/// point.
#[derive(Debug, Default)]
pub(super) struct PointLabels {
    rendered: RenderedLabels,
    /// Attribute keys with the label names that they fold to, by position. The next point of a
    /// metric usually has the same keys.
    names: Vec<FoldedName>,
    /// Number of names that belong to the current point.
    count: usize,
    filter: NameFilter,
    /// Label names may collide, so the slower path must be taken.
    has_collisions: bool,
    /// `rendered` includes the labels of the resource.
    includes_resource: bool,
    text: String,
}

/// An attribute key and the label name that it folds to.
#[derive(Debug, Default)]
struct FoldedName {
    key: String,
    label: String,
    filter: NameFilter,
}

impl FoldedName {
    fn set(&mut self, key: &str) {
        self.key.clear();
        self.key.push_str(key);
        names::label(key, &mut self.label);
        self.filter = NameFilter::default();
        self.filter.add(&self.label);
    }
}

impl PointLabels {
    /// Begins a new point.
    pub(super) fn clear(&mut self) {
        self.rendered.clear();
        self.count = 0;
        self.filter = NameFilter::default();
        self.has_collisions = false;
        self.includes_resource = false;
    }

    /// Adds a `KeyValue`.
    ///
    /// # Errors
    /// [`TranslateError`], if it is malformed or there are more than `ATTRIBUTES_MAX`.
    #[inline]
    pub(super) fn add(&mut self, message: &[u8]) -> Result<(), TranslateError> {
        let index = self.count;
        if index >= PAIRWISE_MAX {
            if index >= ATTRIBUTES_MAX {
                return Err(too_many());
            }
            self.has_collisions = true;
        }
        let (key, any) = key_value(message)?;
        if index >= self.names.len() {
            let mut name = FoldedName::default();
            name.set(key);
            self.names.push(name);
        }
        // `names` has an entry at this position now.
        let (before, rest) = self.names.split_at_mut(index);
        let Some(name) = rest.first_mut() else { return Ok(()) };
        if name.key != key {
            name.set(key);
        }
        if self.filter.may_intersect(name.filter) && !self.has_collisions {
            self.has_collisions = before.iter().any(|before| before.label == name.label);
        }
        self.filter.merge(name.filter);
        self.count = index.saturating_add(1);
        let value = text(any, &mut self.text)?;
        // An empty value makes no label, but its name takes part in collisions.
        if !value.is_empty() && !self.has_collisions {
            self.rendered.push(&name.label, value);
        }
        Ok(())
    }

    /// Ends a point. `message` is the encoded point with its attributes in field `number`, which
    /// the slower path reads again. `own_label` is the label that the translation adds itself, `le`
    /// or `quantile`.
    pub(super) fn finish(
        &mut self,
        message: &[u8],
        number: u32,
        resource: &Resource,
        own_label: Option<&str>,
    ) -> Result<(), TranslateError> {
        let is_own_label = |name: &str| name == METRIC_NAME || Some(name) == own_label;
        let of_resource = |name: &str| resource.labels().any(|(own, _)| own == name);
        let may_intersect = |name: &FoldedName| {
            is_own_label(&name.label)
                || (resource.filter().may_intersect(name.filter) && of_resource(&name.label))
        };
        if !self.has_collisions && !self.names.iter().take(self.count).any(may_intersect) {
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
        labels.retain(|name, _| !is_own_label(name));
        resource.complete(&mut labels);
        self.rendered.clear();
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            self.rendered.push(name, value);
        }
        self.includes_resource = true;
        Ok(())
    }

    /// Returns the rendered labels of the point and of its resource.
    pub(super) fn parts<'a>(&'a self, resource: &'a Resource) -> [&'a RenderedLabels; 2] {
        [&self.rendered, if self.includes_resource { resource.no_labels() } else { resource.rendered() }]
    }
}

/// Returns the error for a point or resource with too many attributes.
pub(super) fn too_many() -> TranslateError {
    TranslateError::Point("too_many_labels", format!("it has more than {ATTRIBUTES_MAX} attributes"))
}
