//! Login throttling that blocks guessers and not owners (docs/specification.md D4).
//!
//! Only failures count. An unknown address counts like a known one: the keys of the maps are HMACs
//! of addresses, not accounts. An attempt from an unknown browser passes three gates:
//!
//! * the pair of address and network: from the fifth failure 1, 2, 4 ... 300 s;
//! * the network: 30 failures in 5 minutes, then 60 s, doubling up to 15 minutes;
//! * the address, over all networks: 100 failures in a day, then 60 s, doubling up to an hour.
//!
//! A browser that has logged in to the address before passes only a gate of its own, with the
//! limits of a pair. So failures of other clients do not block the owner, not even on the same
//! network. The state is in memory and bounded; a restart clears it.
//!
//! An attempt is counted when it has failed, so attempts that hash at the same time all pass. Their
//! number is at most that of the password lane's threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::model::Timestamp;

use crate::identity::auth::device::DeviceId;
use crate::identity::network::Network;

/// Maximum number of entries of one map; the older half is dropped when it would grow further.
const ENTRIES_MAX: usize = 100_000;
/// Number of failures from which on a pair of address and network has to wait.
const PAIR_FREE: u32 = 5;
/// Maximum wait of a pair, seconds.
const PAIR_WAIT_MAX_S: i64 = 300;
/// Failures of a pair are forgotten after a day without another failure.
const PAIR_MEMORY_MS: i64 = 24 * 3_600 * 1_000;
/// Failures of one network within [`NETWORK_WINDOW_MS`] from which on it has to wait.
const NETWORK_FAILURES: usize = 30;
/// Five minutes.
const NETWORK_WINDOW_MS: i64 = 5 * 60 * 1_000;
/// First wait of a network, seconds; it doubles each time.
const NETWORK_WAIT_S: i64 = 60;
/// Maximum wait of a network, seconds.
const NETWORK_WAIT_MAX_S: i64 = 15 * 60;
/// The waits of a network start over after an hour without a failure.
const NETWORK_MEMORY_MS: i64 = 3_600 * 1_000;

/// Failures of one address in a day from which on unknown browsers have to wait (the limit of NIST
/// SP 800-63B).
const ADDRESS_FAILURES: u32 = 100;
/// First wait of an address, seconds; it doubles each time.
const ADDRESS_WAIT_S: i64 = 60;
/// Maximum wait of an address, seconds.
const ADDRESS_WAIT_MAX_S: i64 = 3_600;
const HOUR_MS: i64 = 3_600 * 1_000;
/// Number of hourly counters: a day, and the current hour.
const HOURS: usize = 25;

/// HMAC of a mail address, keyed with the master key.
pub(super) type AddressHash = [u8; 32];

/// A login attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Attempt {
    /// The address that it tries to log in to.
    pub(in crate::identity) address: AddressHash,
    /// The origin.
    pub(in crate::identity) from: AttemptOrigin,
}

/// The origin of a login attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) enum AttemptOrigin {
    /// A browser that has not logged in to this address before, by its network.
    Unknown(Network),
    /// A browser or session that has logged in to this address before.
    Known(DeviceId),
}

/// Failures of one address from one network or known browser.
#[derive(Clone, Copy, Debug)]
struct PairFailures {
    failures: u32,
    last_ms: i64,
}

/// Failures of one network.
#[derive(Clone, Debug, Default)]
struct NetworkFailures {
    /// Times of the failures within the window, oldest first.
    failures: Vec<i64>,
    waits: u32,
    blocked_until_ms: i64,
    last_ms: i64,
}

/// Failures of one address from unknown browsers, over all networks.
#[derive(Clone, Debug, Default)]
struct AddressFailures {
    /// Counters by hour; the first one is that of `hour`.
    failures: [u8; HOURS],
    hour: i64,
    waits: u32,
    blocked_until_ms: i64,
}

impl AddressFailures {
    fn fail(&mut self, now_ms: i64) {
        let hour = now_ms.div_euclid(HOUR_MS);
        let passed = usize::try_from(hour.saturating_sub(self.hour)).unwrap_or(0).min(HOURS);
        // After the clock was set back, failures count to the newest hour seen.
        self.failures.rotate_right(passed % HOURS);
        self.failures.iter_mut().take(passed).for_each(|count| *count = 0);
        self.hour = self.hour.max(hour);
        if let Some(first) = self.failures.first_mut() {
            *first = first.saturating_add(1);
        }
        if self.failures.iter().map(|count| u32::from(*count)).sum::<u32>() < ADDRESS_FAILURES {
            self.waits = 0;
            return;
        }
        let wait_s = doubled(ADDRESS_WAIT_S, self.waits, ADDRESS_WAIT_MAX_S);
        self.blocked_until_ms = now_ms.saturating_add(wait_s * 1_000);
        self.waits = self.waits.saturating_add(1);
    }
}

/// Recent login failures.
#[derive(Debug, Default)]
pub(in crate::identity) struct LoginThrottle {
    pairs: AgingMap<Attempt, PairFailures>,
    networks: AgingMap<Network, NetworkFailures>,
    addresses: AgingMap<AddressHash, AddressFailures>,
}

impl LoginThrottle {
    /// Returns whether an attempt is accepted now. The error is the time until one will be, at
    /// least one second.
    pub(in crate::identity) fn admit(&mut self, attempt: &Attempt, now: Timestamp) -> Result<(), Duration> {
        let now_ms = now.as_ms();
        // A clock that was set back must not extend a wait beyond its maximum.
        let left = |until_ms: i64, most_s: i64| until_ms.saturating_sub(now_ms).min(most_s * 1_000);
        let pair =
            self.pairs.entry(attempt).filter(|pair| now_ms.saturating_sub(pair.last_ms) < PAIR_MEMORY_MS);
        let mut left_ms = pair.map_or(0, |pair| {
            left(pair.last_ms.saturating_add(pair_wait_ms(pair.failures)), PAIR_WAIT_MAX_S)
        });
        if let AttemptOrigin::Unknown(network) = attempt.from {
            let network = self
                .networks
                .entry(&network)
                .map_or(0, |peer| left(peer.blocked_until_ms, NETWORK_WAIT_MAX_S));
            let address = self
                .addresses
                .entry(&attempt.address)
                .map_or(0, |target| left(target.blocked_until_ms, ADDRESS_WAIT_MAX_S));
            left_ms = left_ms.max(network).max(address);
        }
        if left_ms <= 0 {
            return Ok(());
        }
        // Rounded up to whole seconds, so that an attempt after this time is accepted.
        Err(Duration::from_secs(left_ms.unsigned_abs().div_ceil(1_000)))
    }

    /// Counts a failure.
    pub(in crate::identity) fn fail(&mut self, attempt: &Attempt, now: Timestamp) {
        let now_ms = now.as_ms();
        let pair = self.pairs.entry_or(attempt, || PairFailures { failures: 0, last_ms: now_ms });
        if now_ms.saturating_sub(pair.last_ms) >= PAIR_MEMORY_MS {
            pair.failures = 0;
        }
        pair.failures = pair.failures.saturating_add(1);
        pair.last_ms = now_ms;

        let AttemptOrigin::Unknown(network) = attempt.from else { return };
        self.addresses.entry_or(&attempt.address, AddressFailures::default).fail(now_ms);
        let peer = self.networks.entry_or(&network, NetworkFailures::default);
        if now_ms.saturating_sub(peer.last_ms) >= NETWORK_MEMORY_MS {
            peer.waits = 0;
        }
        peer.last_ms = now_ms;
        peer.failures.retain(|at| now_ms.saturating_sub(*at) < NETWORK_WINDOW_MS);
        peer.failures.push(now_ms);
        if peer.failures.len() >= NETWORK_FAILURES {
            let wait_s = doubled(NETWORK_WAIT_S, peer.waits, NETWORK_WAIT_MAX_S);
            peer.blocked_until_ms = now_ms.saturating_add(wait_s * 1_000);
            peer.waits = peer.waits.saturating_add(1);
            peer.failures.clear();
        }
    }

    /// Clears the failures of the pair and of the address after a success. The failures of the
    /// network stay, or a guesser could clear them with an account of their own.
    pub(super) fn succeed(&mut self, attempt: &Attempt) {
        self.pairs.remove(attempt);
        self.addresses.remove(&attempt.address);
    }

    /// Clears all failures of an address whose password was replaced.
    pub(in crate::identity) fn forget(&mut self, address: &AddressHash) {
        self.pairs.retain(|attempt| attempt.address != *address);
        self.addresses.remove(address);
    }
}

fn pair_wait_ms(failures: u32) -> i64 {
    match failures.checked_sub(PAIR_FREE) {
        None => 0,
        Some(beyond) => doubled(1, beyond, PAIR_WAIT_MAX_S) * 1_000,
    }
}

/// Returns `first` doubled `times` times, at most `max`.
fn doubled(first: i64, times: u32, max: i64) -> i64 {
    first.saturating_mul(1 << times.min(30)).min(max)
}

/// A map that drops its least recently written entries: when the newer half is full, the older half
/// is dropped.
#[derive(Debug)]
struct AgingMap<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for AgingMap<K, V> {
    fn default() -> AgingMap<K, V> {
        AgingMap { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> AgingMap<K, V> {
    fn entry(&self, key: &K) -> Option<&V> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    fn entry_or(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        if !self.newer.contains_key(key) && self.newer.len() >= ENTRIES_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        let older = &mut self.older;
        self.newer.entry(*key).or_insert_with(|| older.remove(key).unwrap_or_else(new))
    }

    fn remove(&mut self, key: &K) {
        self.newer.remove(key);
        self.older.remove(key);
    }

    fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.newer.retain(|key, _| keep(key));
        self.older.retain(|key, _| keep(key));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

#[cfg(test)]
mod tests;
