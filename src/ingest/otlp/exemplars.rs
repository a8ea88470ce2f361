//! Translation of exemplars: the trace and span of one observation, and attributes that its series
//! does not have.

use super::super::protobuf::WireReader;
use super::attributes::{ATTRIBUTES_MAX, fold, key_value, text};
use super::points::{from_ns, signed_double};
use super::translate::BatchSink;
use super::{DecodeError, TranslateError};
use crate::model::{Exemplar, Labels, Timestamp};

const EXEMPLAR: &str = "Exemplar";

/// Bytes of a trace id; a span id is shorter.
const ID_BYTES_MAX: usize = 16;

/// Calls `take` with each exemplar of a point, which is in field `number` and has the time `at`. An
/// invalid exemplar is refused, and the point is stored.
///
/// # Errors
/// [`TranslateError`], if the point is malformed or a limit is exceeded.
pub(super) fn each<'l>(
    point: &[u8],
    number: u32,
    at: Timestamp,
    sink: &mut BatchSink<'l>,
    mut take: impl FnMut(Exemplar, &mut BatchSink<'l>) -> Result<(), DecodeError>,
) -> Result<(), TranslateError> {
    let mut reader = WireReader::new(point);
    while let Some(field) = reader.field()? {
        if field.number != number {
            continue;
        }
        match exemplar(field.bytes("a data point")?, at) {
            Ok(exemplar) => take(exemplar, sink)?,
            Err(TranslateError::Point(code, reason)) => {
                sink.refuse(0, &[], (code, format!("an exemplar: {reason}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn exemplar(message: &[u8], point_at: Timestamp) -> Result<Exemplar, TranslateError> {
    let (mut at, mut value) = (point_at, None);
    let mut labels: Vec<(String, String)> = Vec::new();
    let (mut attributes, mut has_too_many, mut buffer) = (Vec::new(), false, String::new());
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            2 => match field.fixed64(EXEMPLAR)? {
                0 => {}
                ns => at = from_ns(ns),
            },
            3 => value = Some(field.double(EXEMPLAR)?),
            6 => value = Some(signed_double(field.fixed64(EXEMPLAR)?)),
            4 => labels.extend(id("span_id", field.bytes(EXEMPLAR)?)?),
            5 => labels.extend(id("trace_id", field.bytes(EXEMPLAR)?)?),
            7 => {
                let (key, any) = key_value(field.bytes(EXEMPLAR)?)?;
                has_too_many |= attributes.len() >= ATTRIBUTES_MAX;
                if !has_too_many {
                    attributes.push((key.to_owned(), text(any, &mut buffer)?.to_owned()));
                }
            }
            _ => {}
        }
    }
    let Some(value) = value else {
        return Err(TranslateError::Point("missing_value", "it has no value (asDouble or asInt)".to_owned()));
    };
    let ids = Labels::from_pairs(labels);
    let all = Labels::from_pairs(
        fold(attributes).into_iter().chain(ids.iter().map(|id| (id.name.to_string(), id.value.to_string()))),
    );
    let exemplar = Exemplar { labels: all, value, at };
    // If the labels are too long, the attributes are dropped but the trace is kept, since exemplars
    // exist for it.
    if has_too_many || exemplar.label_chars() > Exemplar::LABEL_CHARS_MAX {
        return Ok(Exemplar { labels: ids, ..exemplar });
    }
    Ok(exemplar)
}

/// Returns an id as a label in hexadecimal digits; `None` if it is all zeros, which is an invalid
/// id.
fn id(name: &str, bytes: &[u8]) -> Result<Option<(String, String)>, TranslateError> {
    if bytes.len() > ID_BYTES_MAX {
        let reason = format!("its {name} has {} bytes; at most {ID_BYTES_MAX} are allowed", bytes.len());
        return Err(TranslateError::Point("exemplar_id", reason));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    Ok(Some((name.to_owned(), data_encoding::HEXLOWER.encode(bytes))))
}
