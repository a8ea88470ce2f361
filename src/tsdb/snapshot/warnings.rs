//! Warnings about samples that cannot be read.

use std::sync::{Arc, Mutex};

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
use crate::tsdb::segment::SegmentDamage;
use crate::tsdb::store::segments::{IndexedSegment, UnreadableSegment};

/// The most warnings per snapshot. Further ones would report the same problem again.
const TEXTS_MAX: usize = 10;

/// Warnings of a snapshot and its clones. They name files but never the folder, because any client
/// may read them.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings {
    texts: Arc<Mutex<Vec<String>>>,
    /// The warning about a damaged log. It is not known which samples are missing, so every read of
    /// samples gets it.
    log: Option<Arc<str>>,
}

impl Warnings {
    pub(super) fn all(&self) -> Vec<String> {
        self.texts.lock().ignore_poison().clone()
    }

    /// Sets the warning about the log.
    pub(super) fn set_log_warning(&mut self, text: Option<Arc<str>>) {
        self.log = text;
    }

    /// Adds the warning about the log, if there is one; called before samples are looked up.
    pub(super) fn add_log_warning(&self) {
        if let Some(text) = &self.log {
            self.add(text.to_string());
        }
    }

    /// Adds a warning about a listed segment that could not be opened and overlaps a requested
    /// range.
    pub(super) fn bad(&self, bad: &UnreadableSegment) {
        let time = |ms: i64| Timestamp::from_ms(ms).to_rfc3339();
        self.add(format!(
            "samples from {} to {} may be missing: segment {} cannot be used",
            time(bad.meta.min_ms),
            time(bad.meta.max_ms),
            bad.meta.file_name()
        ));
    }

    /// Adds a warning about a damaged block or directory of a segment.
    pub(super) fn damage(&self, part: &IndexedSegment, damage: &SegmentDamage) {
        let is_new = self.add(format!(
            "some samples are missing: segment {} is damaged at byte {}: {}",
            part.meta().file_name(),
            damage.offset,
            damage.what
        ));
        if is_new {
            tracing::error!("{damage}");
        }
    }

    fn add(&self, text: String) -> bool {
        let mut texts = self.texts.lock().ignore_poison();
        let is_new = texts.len() < TEXTS_MAX && !texts.contains(&text);
        if is_new {
            texts.push(text);
        }
        is_new
    }
}
