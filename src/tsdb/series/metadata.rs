//! What senders say about metrics: type, help, unit. The last word counts.
//!
//! Body of a metadata record, in the log (type 4) and in the registry (type 33):
//! ```text
//! varint n, n x { varint bytes, name   u8 kind (remote write's numbers)   varint bytes, help   varint bytes, unit }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{MetricKind, MetricMetadata};
use crate::tsdb::codec::{Reader, put_text, put_varint};
use crate::tsdb::error::Damage;
use crate::tsdb::options::OrgLimits;

/// What is known about one metric (family) name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Known {
    pub(in crate::tsdb) kind: MetricKind,
    pub(in crate::tsdb) help: Arc<str>,
    pub(in crate::tsdb) unit: Arc<str>,
}

/// All that is known of an organisation's metrics.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Metadata {
    by_name: BTreeMap<Arc<str>, Known>,
    /// Names that the registry file does not have as they are now.
    pub(in crate::tsdb) unregistered: Vec<Arc<str>>,
}

impl Metadata {
    pub(in crate::tsdb) fn get(&self, name: &str) -> Option<(&Arc<str>, &Known)> {
        self.by_name.get_key_value(name)
    }

    pub(in crate::tsdb) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.by_name.iter()
    }

    /// Whether the log should hear of this: new or changed, and within the limits.
    pub(in crate::tsdb) fn is_news(&self, said: &MetricMetadata<'_>, limits: &OrgLimits) -> Result<bool, ()> {
        let fits = [said.help, said.unit].iter().all(|text| text.len() <= limits.help_bytes_max)
            && !said.name.is_empty()
            && said.name.len() <= limits.name_bytes_max;
        match self.by_name.get(said.name) {
            Some(known)
                if known.kind == said.kind && *known.help == *said.help && *known.unit == *said.unit =>
            {
                Ok(false)
            }
            known => {
                let room = known.is_some() || self.by_name.len() < limits.metadata_max;
                if fits && room { Ok(true) } else { Err(()) }
            }
        }
    }

    /// Takes over what a record says. Bounded by the check before the record was written.
    pub(in crate::tsdb) fn set(&mut self, said: &MetricMetadata<'_>, registered: bool) {
        let name: Arc<str> = match self.by_name.get_key_value(said.name) {
            Some((name, _)) => Arc::clone(name),
            None => said.name.into(),
        };
        if !registered {
            self.unregistered.push(Arc::clone(&name));
        }
        self.by_name.insert(name, Known { kind: said.kind, help: said.help.into(), unit: said.unit.into() });
    }
}

/// Builds a body.
pub(in crate::tsdb) fn encode<'a>(metadata: impl ExactSizeIterator<Item = MetricMetadata<'a>>) -> Vec<u8> {
    let mut body = Vec::new();
    put_varint(&mut body, metadata.len() as u64);
    for said in metadata {
        put_text(&mut body, said.name);
        body.push(said.kind as u8);
        put_text(&mut body, said.help);
        put_text(&mut body, said.unit);
    }
    body
}

/// Hands out what a body says.
///
/// # Errors
/// [`Damage`] where it is none.
pub(in crate::tsdb) fn decode(
    body: &[u8],
    on_metric: &mut dyn FnMut(&MetricMetadata<'_>),
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
    fn the_bytes_are_the_drawing_and_come_back() {
        let said = MetricMetadata { name: "up", kind: MetricKind::Gauge, help: "Is it.", unit: "" };
        let body = encode([said.clone()].into_iter());
        assert_eq!(body, b"\x01\x02up\x02\x06Is it.\x00");
        let mut found = 0;
        let read = decode(&body, &mut |back| {
            assert_eq!(*back, said);
            found += 1;
        });
        assert_eq!((read, found), (Ok(()), 1));
        assert!(decode(b"\x01\x02up\x08\x00\x00", &mut |_| {}).is_err());
    }
}
