//! The metadata of metrics: an object of lists of entries. The first entry of a metric counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{AnswerError, invalid};
use crate::model::MetricKind;
use crate::tsdb::Description;

/// The most metrics with metadata, inclusive.
const METRICS_MAX: usize = 200_000;
/// The memory of a description, without the bytes of its texts.
const DESCRIPTION_BYTES: usize = size_of::<Description>() + 3 * 2 * size_of::<usize>();

#[derive(Deserialize)]
struct MetadataEntry {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    help: String,
    #[serde(default)]
    unit: String,
}

/// The first entry of a list; the others are skipped.
struct FirstEntry(Option<MetadataEntry>);

impl<'de> Deserialize<'de> for FirstEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FirstEntry, D::Error> {
        struct FirstVisitor;

        impl<'de> Visitor<'de> for FirstVisitor {
            type Value = FirstEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FirstEntry, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FirstEntry(first))
            }
        }

        from.deserialize_seq(FirstVisitor)
    }
}

/// The described metrics by name.
struct Metadata(BTreeMap<String, Description>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Metadata, D::Error> {
        struct MetadataVisitor;

        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the metadata of metrics")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((name, FirstEntry(entry))) = map.next_entry::<String, _>()? {
                    let Some(MetadataEntry { kind, help, unit }) = entry else { continue };
                    if all.len() == METRICS_MAX {
                        return Err(A::Error::custom(format!("more than {METRICS_MAX} metrics")));
                    }
                    let (help, unit) = (help.into(), unit.into());
                    let one = Description { name: name.as_str().into(), kind: kind_of(&kind), help, unit };
                    all.insert(name, one);
                }
                Ok(Metadata(all))
            }
        }

        from.deserialize_map(MetadataVisitor)
    }
}

fn kind_of(text: &str) -> MetricKind {
    let mut all = (0..=u8::MAX).map_while(MetricKind::from_number);
    all.find(|kind| kind.as_str() == text).unwrap_or_default()
}

/// Returns the descriptions of metrics, sorted by name.
pub(super) fn descriptions(data: Option<&str>) -> Result<Vec<Description>, AnswerError> {
    let Metadata(all) = match data {
        Some(data) => serde_json::from_str(data).or_else(invalid)?,
        None => return invalid("data is missing"),
    };
    Ok(all.into_values().collect())
}

/// Returns the memory of descriptions in bytes.
pub(super) fn bytes_of(all: &[Description]) -> u64 {
    let of = |one: &Description| {
        let texts = [one.name.len(), one.help.len(), one.unit.len()];
        texts.iter().fold(DESCRIPTION_BYTES, |bytes, text| bytes.saturating_add(*text))
    };
    all.iter().fold(0_u64, |bytes, one| bytes.saturating_add(of(one) as u64))
}
