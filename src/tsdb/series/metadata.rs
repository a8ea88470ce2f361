//! Metadata of metrics from senders: type, help, unit. The latest value counts.
//!
//! The body of a metadata record, in the log (type 4) and in the registry (type 33):
//! ```text
//! varint n, n x { varint bytes, name   u8 kind (numbers of remote write)
//!                 varint bytes, help   varint bytes, unit }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{MetricKind, MetricMetadata};
use crate::tsdb::codec::{Reader, put_text, put_varint};
use crate::tsdb::error::Damage;
use crate::tsdb::options::OrgLimits;

/// The metadata of one metric (family) name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct StoredMetadata {
    pub(in crate::tsdb) kind: MetricKind,
    pub(in crate::tsdb) help: Arc<str>,
    pub(in crate::tsdb) unit: Arc<str>,
}

/// The metadata of an organisation's metrics.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Metadata {
    by_name: BTreeMap<Arc<str>, StoredMetadata>,
    /// Names whose current metadata is not in the registry file.
    pub(in crate::tsdb) unregistered: Vec<Arc<str>>,
}

impl Metadata {
    pub(in crate::tsdb) fn get(&self, name: &str) -> Option<(&Arc<str>, &StoredMetadata)> {
        self.by_name.get_key_value(name)
    }

    pub(in crate::tsdb) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &StoredMetadata)> {
        self.by_name.iter()
    }

    /// Returns whether metadata has to be logged: it is new or changed. `Err` if it exceeds the
    /// limits.
    pub(in crate::tsdb) fn has_changed(
        &self,
        metric: &MetricMetadata<'_>,
        limits: &OrgLimits,
    ) -> Result<bool, ()> {
        let fits = [metric.help, metric.unit].iter().all(|text| text.len() <= limits.help_bytes_max)
            && !metric.name.is_empty()
            && metric.name.len() <= limits.name_bytes_max;
        match self.by_name.get(metric.name) {
            Some(known)
                if known.kind == metric.kind
                    && *known.help == *metric.help
                    && *known.unit == *metric.unit =>
            {
                Ok(false)
            }
            known => {
                let room = known.is_some() || self.by_name.len() < limits.metadata_max;
                if fits && room { Ok(true) } else { Err(()) }
            }
        }
    }

    /// Sets the metadata of a record. The limits were checked before the record was written.
    pub(in crate::tsdb) fn set(&mut self, metric: &MetricMetadata<'_>, registered: bool) {
        let name: Arc<str> = match self.by_name.get_key_value(metric.name) {
            Some((name, _)) => Arc::clone(name),
            None => metric.name.into(),
        };
        if !registered {
            self.unregistered.push(Arc::clone(&name));
        }
        self.by_name.insert(
            name,
            StoredMetadata { kind: metric.kind, help: metric.help.into(), unit: metric.unit.into() },
        );
    }
}

/// Encodes a body.
pub(in crate::tsdb) fn encode<'a>(metadata: impl ExactSizeIterator<Item = MetricMetadata<'a>>) -> Vec<u8> {
    let mut body = Vec::new();
    put_varint(&mut body, metadata.len() as u64);
    for metric in metadata {
        put_text(&mut body, metric.name);
        body.push(metric.kind as u8);
        put_text(&mut body, metric.help);
        put_text(&mut body, metric.unit);
    }
    body
}

/// Calls `on_metric` with each metric of a body.
///
/// # Errors
/// [`Damage`] if the body is invalid.
pub(in crate::tsdb) fn decode<'a>(
    body: &'a [u8],
    on_metric: &mut dyn FnMut(&MetricMetadata<'a>),
) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    for _ in 0..reader.count(4)? {
        let name = reader.text()?;
        let kind =
            MetricKind::from_number(reader.u8()?).ok_or_else(|| reader.damage("unknown kind of metric"))?;
        on_metric(&MetricMetadata { name, kind, help: reader.text()?, unit: reader.text()? });
    }
    reader.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_documented_bytes_and_decodes() {
        let metadata = MetricMetadata { name: "up", kind: MetricKind::Gauge, help: "Is it.", unit: "" };
        let body = encode([metadata].into_iter());
        assert_eq!(body, b"\x01\x02up\x02\x06Is it.\x00");
        let mut found = 0;
        let read = decode(&body, &mut |back| {
            assert_eq!(*back, metadata);
            found += 1;
        });
        assert_eq!((read, found), (Ok(()), 1));
        assert!(decode(b"\x01\x02up\x08\x00\x00", &mut |_| {}).is_err());
    }
}
