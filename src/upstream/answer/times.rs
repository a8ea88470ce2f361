//! The times of values.

use super::scan::{Scanner, ShortText};
use crate::model::{Steps, Timestamp};

/// The texts of the steps of a range query. Most series have the same times, so their text is
/// compared to that of an earlier series, which is faster than to parse it.
#[derive(Debug)]
pub(super) struct StepTexts {
    steps: Steps,
    /// `1435781430,"` by the index of the step; empty if it is not known.
    texts: Vec<ShortText>,
}

impl StepTexts {
    pub(super) const fn new(steps: Steps) -> StepTexts {
        StepTexts { steps, texts: Vec::new() }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.texts.capacity() * size_of::<ShortText>()
    }

    /// Reads the time of a step whose index is at least `from`, and the text after it up to the
    /// value. Returns the index.
    #[inline]
    pub(super) fn take(&mut self, scanner: &mut Scanner<'_>, from: usize) -> Option<usize> {
        if let Some(known) = self.texts.get(from)
            && scanner.take_short(*known).is_some()
        {
            return Some(from);
        }
        self.take_other(scanner, from)
    }

    /// Like [`StepTexts::take`], for a step whose text is not known or that is not the next.
    fn take_other(&mut self, scanner: &mut Scanner<'_>, from: usize) -> Option<usize> {
        let text = scanner.rest();
        let at = scanner.time()?;
        scanner.take(b",\"")?;
        let index = self.steps.index_of(at).filter(|index| *index >= from)?;
        if let Some(text) = text.get(..text.len() - scanner.rest().len()).and_then(ShortText::new) {
            if index >= self.texts.len() {
                self.texts.resize(index + 1, ShortText::default());
            }
            if let Some(known) = self.texts.get_mut(index) {
                *known = text;
            }
        }
        Some(index)
    }
}

/// Checks that times ascend, and are steps of a range query.
pub(super) struct TimeCheck<'s> {
    steps: Option<&'s Steps>,
    before: Option<Timestamp>,
}

impl<'s> TimeCheck<'s> {
    /// `None` allows all times.
    pub(super) const fn new(steps: Option<&'s Steps>) -> TimeCheck<'s> {
        TimeCheck { steps, before: None }
    }

    /// Returns whether a time may follow those that were admitted.
    pub(super) fn admits(&mut self, at: Timestamp) -> bool {
        let before = self.before.replace(at);
        before.is_none_or(|before| before < at) && self.steps.is_none_or(|steps| steps.index_of(at).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ascend_and_are_steps() {
        let steps = Steps::new(Timestamp::from_s(100), Timestamp::from_s(160), 15_000).expect("steps");
        let admits = |seconds: &[i64], steps: Option<&Steps>| {
            let mut times = TimeCheck::new(steps);
            seconds.iter().all(|at| times.admits(Timestamp::from_s(*at)))
        };
        for (seconds, is_step) in [
            (&[][..], true),
            (&[100, 115, 130, 145, 160], true),
            (&[100, 130, 160], true),
            (&[145], true),
            (&[85, 100], false),
            (&[101], false),
            (&[100, 116], false),
            (&[160, 175], false),
        ] {
            assert_eq!(admits(seconds, Some(&steps)), is_step, "{seconds:?}");
            assert!(admits(seconds, None), "{seconds:?}");
        }
        for wrong in [[100, 100], [115, 100]] {
            assert!(!admits(&wrong, Some(&steps)) && !admits(&wrong, None), "{wrong:?}");
        }
    }
}
