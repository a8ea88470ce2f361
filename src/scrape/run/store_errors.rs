//! What the store refused of the scrapes of a target: the text that a status shows, and when it is
//! logged again.

use std::collections::BTreeMap;

use super::edge::{ScrapeRefusal, ScrapeStored};
use super::error::shown;
use crate::model::Timestamp;

/// The time after which the same reason is logged again for the same target, in milliseconds.
const REPEAT_MS: i64 = 3_600_000;
/// The code of a batch of which nothing was stored.
const WHOLE_BATCH: &str = "batch";

/// The reasons for which samples of a target were not stored.
#[derive(Debug, Default)]
pub(super) struct StoreErrors {
    /// When each reason was last logged, by its code.
    logged: BTreeMap<&'static str, Timestamp>,
}

/// A reason for which samples of a scrape were not stored.
pub(super) struct StoreError {
    /// The text for the status.
    pub(super) text: String,
    /// Whether it has to be logged.
    pub(super) is_due: bool,
}

impl StoreErrors {
    /// Returns the error of a batch that was stored at `at` except for `refused` samples; none if
    /// all were stored.
    pub(super) fn refused(&mut self, stored: &ScrapeStored, at: Timestamp) -> Option<StoreError> {
        let ScrapeStored { refused: refused @ 1.., reason } = stored else { return None };
        let (code, why) = match reason {
            Some(ScrapeRefusal { code, text }) => (*code, text.as_str()),
            None => ("refused", "the store refused it"),
        };
        let text = match refused {
            1 => format!("1 sample of the scrape was not stored: {why}"),
            many => format!("{many} samples of the scrape were not stored; the first: {why}"),
        };
        Some(self.error(code, &text, at))
    }

    /// Returns the error of a batch of which nothing was stored.
    pub(super) fn failed(&mut self, error: &str, at: Timestamp) -> StoreError {
        self.error(WHOLE_BATCH, &format!("the scrape was not stored: {error}"), at)
    }

    fn error(&mut self, code: &'static str, text: &str, at: Timestamp) -> StoreError {
        let is_due = self.logged.get(code).is_none_or(|last| at.ms_since(*last) >= REPEAT_MS);
        if is_due {
            self.logged.insert(code, at);
        }
        StoreError { text: shown(text), is_due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_due_once_an_hour() {
        let mut errors = StoreErrors::default();
        let stored = |code| {
            let reason = Some(ScrapeRefusal { code, text: "{a=\"b\"}: x".to_owned() });
            ScrapeStored { refused: 2, reason }
        };
        let at = Timestamp::from_s;
        let mut is_due = |code, s| errors.refused(&stored(code), at(s)).map(|error| error.is_due);
        assert_eq!([is_due("a", 0), is_due("a", 60), is_due("b", 60)], [true, false, true].map(Some));
        assert_eq!([is_due("a", 3_599), is_due("a", 3_600)], [false, true].map(Some));
        let text = errors.refused(&stored("a"), at(0)).map(|error| error.text);
        let expected = "2 samples of the scrape were not stored; the first: {a=\"b\"}: x";
        assert_eq!(text.as_deref(), Some(expected));
        assert!(errors.refused(&ScrapeStored::default(), at(0)).is_none());
        assert!(errors.failed("no space", at(0)).is_due && !errors.failed("no memory", at(1)).is_due);
    }
}
