//! Which series have samples in a range: those whose head reaches into it, and those whose row of a segment does.
//!
//! Asked series by series, so that a question that has heard enough looks no further: the head first, which has nearly
//! every series that is written; then the segments, newest first.

use std::sync::{PoisonError, RwLockReadGuard};

use super::Snapshot;
use crate::model::TimeRange;
use crate::tsdb::head::stripe::{Span, Stripe};
use crate::tsdb::head::{STRIPE_SERIES, Spans, slot};
use crate::tsdb::segment::{Ids, Spans as RowSpans};
use crate::tsdb::segments::SegmentSet;
use crate::tsdb::store::OrgStore;

/// Seals that may come in between before an answer is taken as it is.
const TRIES_MAX: usize = 8;

/// Answers a question with what was there at its time.
///
/// A seal makes its segments known before the head lets go of their samples. A question that took the segments before
/// and met the head after would miss them: it is asked again.
pub(super) fn look<T>(
    snapshot: &Snapshot,
    store: &OrgStore,
    range: TimeRange,
    mut question: impl FnMut(&mut Presence<'_>) -> T,
) -> T {
    let range = snapshot.within(range);
    let mut tries = 0;
    loop {
        tries += 1;
        let set = store.segments();
        let spans = store.head.spans();
        let mut presence = Presence {
            head: Cursor { spans: &spans, held: None, released_until: i64::MIN },
            set: &set,
            family: None,
            range,
        };
        let answer = question(&mut presence);
        if presence.head.released_until <= set.sealed_until || tries == TRIES_MAX {
            return answer;
        }
    }
}

/// What series have in a range.
pub(super) struct Presence<'s> {
    head: Cursor<'s>,
    set: &'s SegmentSet,
    /// The family asked for last, and where it lies in the segments of the range, newest first.
    family: Option<(u32, Vec<(Ids<'s>, RowSpans<'s>)>)>,
    range: TimeRange,
}

impl Presence<'_> {
    /// Whether a series of this family (a number of the table's) has samples in the range.
    pub(super) fn has(&mut self, family: u32, id: u32) -> bool {
        self.head.span(id).is_some_and(|span| span.overlaps(self.range))
            || self.in_segments(family, id).is_some()
    }

    /// The time of its newest sample, if it has any in the range.
    pub(super) fn newest(&mut self, family: u32, id: u32) -> Option<i64> {
        let head = self.head.span(id);
        if let Some(span) = head.filter(|span| span.overlaps(self.range)) {
            return Some(span.last);
        }
        let sealed = self.in_segments(family, id)?;
        Some(head.map_or(sealed, |span| span.last.max(sealed)))
    }

    /// The last time in the newest segment where its span reaches into the range.
    fn in_segments(&mut self, family: u32, id: u32) -> Option<i64> {
        if self.set.parts.is_empty() {
            return None;
        }
        if self.family.as_ref().is_none_or(|(number, _)| *number != family) {
            let parts = self.set.overlapping(self.range).rev();
            let places = parts.filter_map(|part| {
                let number = part.family(family)?;
                Some((part.segment.ids(number)?, part.segment.spans(number).ok()?))
            });
            self.family = Some((family, places.collect()));
        }
        let (_, places) = self.family.as_ref()?;
        places.iter().find_map(|(ids, spans)| {
            let (first, last) = spans.get(ids.row_of(id)?)?;
            Span { first, last }.overlaps(self.range).then_some(last)
        })
    }
}

/// A reader of the head that keeps to one stripe's lock while it can.
struct Cursor<'s> {
    spans: &'s Spans,
    held: Option<(u32, RwLockReadGuard<'s, Stripe>)>,
    /// The latest of what its stripes have let go of.
    released_until: i64,
}

impl Cursor<'_> {
    fn span(&mut self, id: u32) -> Option<Span> {
        let number = id / STRIPE_SERIES;
        if self.held.as_ref().is_none_or(|(have, _)| *have != number) {
            self.held = None;
            let stripe = self.spans.stripe(number)?.read().unwrap_or_else(PoisonError::into_inner);
            self.released_until = self.released_until.max(stripe.released_until());
            self.held = Some((number, stripe));
        }
        self.held.as_ref()?.1.span(slot(id))
    }
}
