//! Sample times that several series share.

use std::sync::OnceLock;

/// Ascending sample times that several series share, in milliseconds since 1970. Times at a
/// constant interval are expanded to a list only on demand: a scrape every 15 s for a day is 5,760
/// times, described by three numbers.
#[derive(Debug)]
pub struct Times {
    regular: Option<RegularTimes>,
    /// The list exists from the beginning if the times are not regular.
    list: OnceLock<Vec<i64>>,
}

/// Times at a constant interval. All of them are valid times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegularTimes {
    /// The first one, in milliseconds since the epoch.
    pub first: i64,
    /// Milliseconds, at least one.
    pub interval_ms: i64,
    /// Number of times.
    pub len: usize,
}

impl RegularTimes {
    /// Returns the time with this index.
    #[inline]
    pub fn at(self, place: usize) -> Option<i64> {
        (place < self.len).then(|| self.time_at(place))
    }

    #[inline]
    fn time_at(self, place: usize) -> i64 {
        self.first.wrapping_add(self.interval_ms.wrapping_mul(i64::try_from(place).unwrap_or_default()))
    }

    /// All times, ascending.
    fn all(self) -> impl ExactSizeIterator<Item = i64> {
        (0..self.len).map(move |place| self.time_at(place))
    }
}

impl Times {
    /// Returns the number of times.
    pub fn len(&self) -> usize {
        self.regular.map_or_else(|| self.list().len(), |regular| regular.len)
    }

    /// Returns whether there are no times.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the times as a list, which is created on first use.
    pub fn list(&self) -> &[i64] {
        self.list.get_or_init(|| self.regular.map_or_else(Vec::new, |regular| regular.all().collect()))
    }

    /// Returns the times as a regular sequence, if there are two or more at equal intervals.
    pub fn regular(&self) -> Option<RegularTimes> {
        self.regular
    }
}

/// A builder of [`Times`] from ascending parts.
#[derive(Debug, Default)]
pub struct TimesBuilder {
    /// All times so far, while they are equally far apart. Less than two are any.
    regular: Option<RegularTimes>,
    /// All times so far, if they are not equally far apart.
    list: Vec<i64>,
}

impl TimesBuilder {
    /// Returns the number of times added.
    pub fn len(&self) -> usize {
        self.regular.map_or(self.list.len(), |regular| regular.len)
    }

    /// Returns whether no time was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds times that are equally far apart, after all that came before.
    pub fn push_regular(&mut self, more: RegularTimes) {
        if more.len == 0 {
            return;
        }
        if more.interval_ms > 0 {
            match &mut self.regular {
                Some(regular)
                    if regular.interval_ms == more.interval_ms
                        && regular.time_at(regular.len) == more.first
                        && regular.first < more.first =>
                {
                    regular.len += more.len;
                    return;
                }
                None if self.list.is_empty() => {
                    self.regular = Some(more);
                    return;
                }
                _ => {}
            }
        }
        self.list_mut().extend(more.all());
    }

    /// Adds times after all earlier ones.
    pub fn push(&mut self, more: &Times) {
        match more.regular {
            Some(regular) => self.push_regular(regular),
            None => self.list_mut().extend_from_slice(more.list()),
        }
    }

    /// Returns all times as a list, which may be changed as long as it ascends.
    pub fn list_mut(&mut self) -> &mut Vec<i64> {
        if let Some(regular) = self.regular.take() {
            self.list.extend(regular.all());
        }
        &mut self.list
    }

    /// Removes all times but the last one.
    pub fn keep_last(&mut self) {
        if let Some(regular) = &mut self.regular {
            *regular = RegularTimes { first: regular.time_at(regular.len - 1), len: 1, ..*regular };
        }
        self.list.drain(..self.list.len().saturating_sub(1));
    }

    /// Builds the times.
    pub fn build(mut self) -> Times {
        if let Some(regular) = self.regular.filter(|regular| regular.len > 1) {
            return Times { regular: Some(regular), list: OnceLock::new() };
        }
        self.list_mut();
        Times { regular: None, list: OnceLock::from(self.list) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Piece {
        Regular { gap: i64, apart: i64, len: usize },
        Listed(Vec<i64>),
    }

    fn any_piece() -> impl Strategy<Value = Piece> {
        let apart = || prop_oneof![4 => Just(15i64), 1 => 1i64..20];
        prop_oneof![
            4 => (apart(), apart(), 0usize..5).prop_map(|(gap, apart, len)| Piece::Regular { gap, apart, len }),
            1 => prop::collection::vec(apart(), 0..4).prop_map(Piece::Listed),
        ]
    }

    proptest! {
        /// Times that are added in pieces equal those in a list and those added one by one.
        #[test]
        fn times_that_come_in_pieces_are_all_that_came(
            start in prop_oneof![Just(0i64), Just(i64::MIN), Just(i64::MAX - 600)],
            pieces in prop::collection::vec(any_piece(), 0..6),
            last_alone in any::<bool>(),
        ) {
            let (mut expected, mut builder) = (Vec::new(), TimesBuilder::default());
            let mut end = start;
            for piece in pieces {
                let mut these = TimesBuilder::default();
                match piece {
                    Piece::Regular { gap, apart, len } => {
                        these.push_regular(RegularTimes { first: end + gap, interval_ms: apart, len });
                    }
                    Piece::Listed(gaps) => {
                        let mut at = end;
                        these.list_mut().extend(gaps.iter().map(|gap| {
                            at += gap;
                            at
                        }));
                    }
                }
                let these = these.build();
                expected.extend_from_slice(these.list());
                builder.push(&these);
                prop_assert_eq!(builder.len(), expected.len());
                end = expected.last().copied().unwrap_or(start);
            }
            if last_alone {
                builder.keep_last();
                expected.drain(..expected.len().saturating_sub(1));
            }
            let times = builder.build();
            prop_assert_eq!(times.len(), expected.len());
            let alike = |pair: &[i64]| pair[1] - pair[0] == expected[1] - expected[0];
            match times.regular() {
                Some(regular) => {
                    prop_assert_eq!((0..regular.len).filter_map(|place| regular.at(place)).collect::<Vec<_>>(), expected.clone());
                    prop_assert_eq!(regular.at(regular.len), None);
                    prop_assert!(regular.len > 1 && expected.windows(2).all(alike));
                }
                None => prop_assert_eq!(times.is_empty(), expected.is_empty()),
            }
            prop_assert_eq!(times.list(), &expected[..]);
        }
    }

    #[test]
    fn pieces_that_go_on_alike_stay_steady() {
        let mut builder = TimesBuilder::default();
        builder.push_regular(RegularTimes { first: 0, interval_ms: 15, len: 1_024 });
        builder.push_regular(RegularTimes { first: 15 * 1_024, interval_ms: 15, len: 416 });
        let all = RegularTimes { first: 0, interval_ms: 15, len: 1_440 };
        assert_eq!(builder.build().regular(), Some(all));
    }
}
