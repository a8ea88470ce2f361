//! The last requests by connection or organisation: whether more than one is active.

use std::time::Duration;

use crate::clock::Stopwatch;

/// The last request with its connection or organisation, and the time of the last request of
/// another one.
#[derive(Debug)]
pub(super) struct Arrivals<K> {
    last: Option<(K, Stopwatch)>,
    other: Option<Stopwatch>,
}

impl<K> Default for Arrivals<K> {
    fn default() -> Arrivals<K> {
        Arrivals { last: None, other: None }
    }
}

impl<K: PartialEq + Copy> Arrivals<K> {
    /// Records a request. Returns whether no other connection or organisation sent one within
    /// `window`.
    pub(super) fn record(&mut self, from: K, now: Stopwatch, window: Duration) -> bool {
        let before = self.last.replace((from, now));
        if let Some((_, at)) = before.filter(|(before, _)| *before != from) {
            self.other = Some(at);
        }
        self.other.is_none_or(|at| at.elapsed() >= window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(60);

    #[test]
    fn a_connection_is_alone_until_another_one_sends_a_request() {
        let [one, other] = [1, 2];
        let mut arrivals = Arrivals::default();
        let mut record = |from| arrivals.record(from, Stopwatch::start(), QUIET);
        assert!(record(one) && record(one));
        // Each of them sees the recent request of the other one.
        assert!(!record(other) && !record(one));
        arrivals.other = None;
        assert!(arrivals.record(one, Stopwatch::start(), QUIET), "the other one is quiet");
    }
}
