//! Sample times that several series share.

use std::sync::OnceLock;

/// Ascending sample times that several series share, in milliseconds since 1970. Times at a
/// constant interval are expanded to a list only on demand: a scrape every 15 s for a day is 5,760
/// times, described by three numbers.
#[derive(Debug)]
pub struct Times {
    steady: Option<Steady>,
    /// There from the beginning where they are not steady.
    list: OnceLock<Vec<i64>>,
}

/// Times at a constant interval. All of them are valid times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// The first one, in milliseconds since the epoch.
    pub first: i64,
    /// Milliseconds, at least one.
    pub apart: i64,
    /// How many there are.
    pub len: usize,
}

impl Steady {
    /// Returns the time with this index.
    #[inline]
    pub fn at(self, place: usize) -> Option<i64> {
        (place < self.len).then(|| self.reckon(place))
    }

    #[inline]
    fn reckon(self, place: usize) -> i64 {
        self.first.wrapping_add(self.apart.wrapping_mul(i64::try_from(place).unwrap_or_default()))
    }

    /// All of them, ascending.
    fn all(self) -> impl ExactSizeIterator<Item = i64> {
        (0..self.len).map(move |place| self.reckon(place))
    }
}

impl Times {
    /// Returns the number of times.
    pub fn len(&self) -> usize {
        self.steady.map_or_else(|| self.list().len(), |steady| steady.len)
    }

    /// Returns whether there are no times.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the times as a list, which is created on first use.
    pub fn list(&self) -> &[i64] {
        self.list.get_or_init(|| self.steady.map_or_else(Vec::new, |steady| steady.all().collect()))
    }

    /// Of times that are equally far apart, two at least: which they are.
    pub fn steady(&self) -> Option<Steady> {
        self.steady
    }
}

/// A builder of [`Times`] from ascending parts.
#[derive(Debug, Default)]
pub struct TimesBuilder {
    /// All that came, as long as they are equally far apart. Less than two are any.
    steady: Option<Steady>,
    /// All that came otherwise.
    list: Vec<i64>,
}

impl TimesBuilder {
    /// Returns the number of times added.
    pub fn len(&self) -> usize {
        self.steady.map_or(self.list.len(), |steady| steady.len)
    }

    /// Returns whether no time was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds times that are equally far apart, after all that came before.
    pub fn push_steady(&mut self, more: Steady) {
        if more.len == 0 {
            return;
        }
        if more.apart > 0 {
            match &mut self.steady {
                Some(steady)
                    if steady.apart == more.apart
                        && steady.reckon(steady.len) == more.first
                        && steady.first < more.first =>
                {
                    steady.len += more.len;
                    return;
                }
                None if self.list.is_empty() => {
                    self.steady = Some(more);
                    return;
                }
                _ => {}
            }
        }
        self.list_mut().extend(more.all());
    }

    /// Adds times after all earlier ones.
    pub fn push(&mut self, more: &Times) {
        match more.steady {
            Some(steady) => self.push_steady(steady),
            None => self.list_mut().extend_from_slice(more.list()),
        }
    }

    /// Returns all times as a list, which may be changed as long as it ascends.
    pub fn list_mut(&mut self) -> &mut Vec<i64> {
        if let Some(steady) = self.steady.take() {
            self.list.extend(steady.all());
        }
        &mut self.list
    }

    /// Removes all times but the last one.
    pub fn keep_last(&mut self) {
        if let Some(steady) = &mut self.steady {
            *steady = Steady { first: steady.reckon(steady.len - 1), len: 1, ..*steady };
        }
        self.list.drain(..self.list.len().saturating_sub(1));
    }

    /// Builds the times.
    pub fn build(mut self) -> Times {
        if let Some(steady) = self.steady.filter(|steady| steady.len > 1) {
            return Times { steady: Some(steady), list: OnceLock::new() };
        }
        self.list_mut();
        Times { steady: None, list: OnceLock::from(self.list) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Piece {
        Steady { gap: i64, apart: i64, len: usize },
        Listed(Vec<i64>),
    }

    fn any_piece() -> impl Strategy<Value = Piece> {
        let apart = || prop_oneof![4 => Just(15i64), 1 => 1i64..20];
        prop_oneof![
            4 => (apart(), apart(), 0usize..5).prop_map(|(gap, apart, len)| Piece::Steady { gap, apart, len }),
            1 => prop::collection::vec(apart(), 0..4).prop_map(Piece::Listed),
        ]
    }

    proptest! {
        /// Times that came in whatever pieces are those that came, in a list and one by one.
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
                    Piece::Steady { gap, apart, len } => {
                        these.push_steady(Steady { first: end + gap, apart, len });
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
            match times.steady() {
                Some(steady) => {
                    prop_assert_eq!((0..steady.len).filter_map(|place| steady.at(place)).collect::<Vec<_>>(), expected.clone());
                    prop_assert_eq!(steady.at(steady.len), None);
                    prop_assert!(steady.len > 1 && expected.windows(2).all(alike));
                }
                None => prop_assert_eq!(times.is_empty(), expected.is_empty()),
            }
            prop_assert_eq!(times.list(), &expected[..]);
        }
    }

    #[test]
    fn pieces_that_go_on_alike_stay_steady() {
        let mut builder = TimesBuilder::default();
        builder.push_steady(Steady { first: 0, apart: 15, len: 1_024 });
        builder.push_steady(Steady { first: 15 * 1_024, apart: 15, len: 416 });
        let all = Steady { first: 0, apart: 15, len: 1_440 };
        assert_eq!(builder.build().steady(), Some(all));
    }
}
