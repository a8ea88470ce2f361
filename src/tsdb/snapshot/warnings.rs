//! What a reader is told about samples that cannot be read.

use std::sync::{Arc, Mutex};

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
use crate::tsdb::segment::SegmentDamage;
use crate::tsdb::segments::{IndexedSegment, UnreadableSegment};

/// Sentences at most; more of them would be the same trouble again.
const TEXTS_MAX: usize = 10;

/// Shared by a snapshot and its clones. Names files, never the folder: whoever reads it may be a stranger.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings {
    texts: Arc<Mutex<Vec<String>>>,
    /// About a damaged log: which samples are missing is unknown, so every reader of samples is told.
    log: Option<Arc<str>>,
}

impl Warnings {
    pub(super) fn all(&self) -> Vec<String> {
        self.texts.lock().ignore_poison().clone()
    }

    /// Sets what readers are told about the log.
    pub(super) fn of_the_log(&mut self, text: Option<Arc<str>>) {
        self.log = text;
    }

    /// Samples are looked for.
    pub(super) fn looked(&self) {
        if let Some(text) = &self.log {
            self.say(text.to_string());
        }
    }

    /// A listed segment that could not be opened has samples of a range that was asked for.
    pub(super) fn bad(&self, bad: &UnreadableSegment) {
        let time = |ms: i64| Timestamp::from_ms(ms).to_rfc3339();
        self.say(format!(
            "samples from {} to {} may be missing: segment {} cannot be used",
            time(bad.meta.min_ms),
            time(bad.meta.max_ms),
            bad.meta.file_name()
        ));
    }

    /// A block or a directory of a segment is damaged.
    pub(super) fn damage(&self, part: &IndexedSegment, damage: &SegmentDamage) {
        let said = self.say(format!(
            "some samples are missing: segment {} is damaged at byte {}: {}",
            part.meta().file_name(),
            damage.offset,
            damage.what
        ));
        if said {
            tracing::error!("{damage}");
        }
    }

    fn say(&self, text: String) -> bool {
        let mut texts = self.texts.lock().ignore_poison();
        let is_new = texts.len() < TEXTS_MAX && !texts.contains(&text);
        if is_new {
            texts.push(text);
        }
        is_new
    }
}
