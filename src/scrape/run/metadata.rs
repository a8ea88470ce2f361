//! The type, help and unit of a target's metrics.
//!
//! Targets of one kind have the same metadata, so equal ones share their memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::model::{MetricKind, MetricMetadata};
use crate::sync::IgnorePoison as _;

/// The most metrics of a target whose metadata is kept, inclusive.
const ENTRIES_MAX: usize = 10_000;
/// The most bytes of a target's metadata that are kept, inclusive.
const BYTES_MAX: usize = 1 << 20;

/// The metadata of a target, in the order of its response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ScrapeMetadata {
    hash: u64,
    entries: Vec<ScrapeMetadataEntry>,
}

/// The metadata of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeMetadataEntry {
    /// The name of the metric.
    pub metric: Box<str>,
    /// The type.
    pub kind: MetricKind,
    /// The help text; may be empty.
    pub help: Box<str>,
    /// The unit; may be empty.
    pub unit: Box<str>,
}

impl ScrapeMetadata {
    /// Returns the entries. At most 10,000 entries and 1 MiB of text are kept.
    pub fn entries(&self) -> &[ScrapeMetadataEntry] {
        &self.entries
    }

    /// Returns whether it was made from this list.
    pub(super) fn is_of(&self, sent: &[MetricMetadata<'_>]) -> bool {
        self.hash == hash_of(sent)
    }
}

fn hash_of(sent: &[MetricMetadata<'_>]) -> u64 {
    sent.iter().fold(0, |hash, one| {
        let secrets = RapidSecrets::seed(hash ^ one.kind as u64 ^ 0x9e37_79b9_7f4a_7c15);
        let texts = [one.name, one.help, one.unit];
        texts
            .iter()
            .fold(hash, |hash, text| hash.rotate_left(17) ^ rapidhash_v3_seeded(text.as_bytes(), &secrets))
    })
}

/// The metadata in use, so that targets share equal ones.
#[derive(Debug, Default)]
pub struct ScrapeMetadataPool(Mutex<HashMap<u64, Weak<ScrapeMetadata>>>);

impl ScrapeMetadataPool {
    /// Returns the metadata of a response, shared with other targets.
    pub fn shared(&self, sent: &[MetricMetadata<'_>]) -> Arc<ScrapeMetadata> {
        let hash = hash_of(sent);
        let mut pool = self.0.lock().ignore_poison();
        if let Some(known) = pool.get(&hash).and_then(Weak::upgrade) {
            return known;
        }
        let mut bytes = 0;
        let bounded = sent.iter().take(ENTRIES_MAX).take_while(|one| {
            bytes += one.name.len() + one.help.len() + one.unit.len();
            bytes <= BYTES_MAX
        });
        let entries = bounded.map(|one| ScrapeMetadataEntry {
            metric: one.name.into(),
            kind: one.kind,
            help: one.help.into(),
            unit: one.unit.into(),
        });
        let made = Arc::new(ScrapeMetadata { hash, entries: entries.collect() });
        pool.retain(|_, known| known.strong_count() > 0);
        pool.insert(hash, Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(help: &str) -> [MetricMetadata<'_>; 2] {
        let one = MetricMetadata { name: "a", kind: MetricKind::Counter, help, unit: "" };
        [one, MetricMetadata { name: "b", ..one }]
    }

    #[test]
    fn equal_metadata_is_shared_and_forgotten_with_its_last_target() {
        let pool = ScrapeMetadataPool::default();
        let one = pool.shared(&sent("x"));
        let same = pool.shared(&sent("x"));
        let other = pool.shared(&sent("y"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(one.is_of(&sent("x")) && !one.is_of(&sent("y")) && one.entries().len() == 2);
        drop((one, same));
        pool.shared(&sent("z"));
        assert_eq!(pool.0.lock().expect("no panic").len(), 2);
    }

    #[test]
    fn metadata_of_a_target_is_bounded() {
        let help = "x".repeat(60_000);
        let many = vec![MetricMetadata { name: "a", kind: MetricKind::Gauge, help: &help, unit: "" }; 50];
        assert!(ScrapeMetadataPool::default().shared(&many).entries().len() < 20);
    }
}
