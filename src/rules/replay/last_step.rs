//! The series of the last steps of backfills, for the requests that continue them.

use std::collections::HashSet;
use std::sync::Arc;

use super::Backfill;
use crate::model::{Labels, LruBounds, OrgId, OrgLru};

/// Bounds in bytes: room for some tens of thousands of series of one organisation.
const BOUNDS: LruBounds = LruBounds { all: 64 << 20, org: 16 << 20, one: 8 << 20 };
/// The bytes of a series besides its labels.
const SERIES_BYTES: usize = 64;
/// The bytes of a label besides its texts.
const LABEL_BYTES: usize = 32;

/// The series of the last step of each unfinished backfill of one rule that reads its own samples.
/// An evaluation at that time would now read the samples of that time, so the store does not tell
/// them.
#[derive(Debug)]
pub struct LastSteps(OrgLru<Arc<HashSet<Labels>>>);

impl Default for LastSteps {
    fn default() -> LastSteps {
        LastSteps(OrgLru::new(BOUNDS))
    }
}

impl LastSteps {
    /// Gives a new backfill the series of the step before its first one, if they are known. `rule`
    /// is the text of its rule.
    pub fn restore(&self, org: OrgId, rule: &str, backfill: &mut Backfill) {
        if let Some(series) = backfill.continuation(rule).and_then(|key| self.0.get(org, &key)) {
            backfill.continue_after(series);
        }
    }

    /// Keeps the series of the last step of a backfill that a later request continues.
    pub fn keep(&self, org: OrgId, rule: &str, backfill: &Backfill) {
        let Some((key, series)) = backfill.continuation(rule).zip(backfill.series_of_last_step()) else {
            return;
        };
        let texts = series.iter().flat_map(Labels::iter);
        let texts: usize = texts.map(|label| LABEL_BYTES + label.name.len() + label.value.len()).sum();
        let bytes = key.len() + texts + SERIES_BYTES * series.len();
        if bytes <= BOUNDS.one {
            self.0.insert(org, &key, Arc::new(series.clone()), bytes);
        }
    }
}
