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
use std::net::IpAddr;
use std::time::Duration;

use crate::model::Timestamp;

use crate::identity::auth::device::DeviceId;

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

/// A network: an IPv4 address, or the /64 of an IPv6 address, because a single host owns a whole
/// /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Network([u8; 8]);

impl Network {
    /// Returns the network of a peer.
    pub(in crate::identity) fn of(ip: IpAddr) -> Network {
        match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                // IPv6 addresses in 0::/8 are not routed, so no /64 equals this.
                Network([0, 0, 0, 4, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Network([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// HMAC of a mail address, keyed with the master key.
pub(super) type AddressHash = [u8; 32];

/// A login attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Attempt {
    /// The address that it tries to log in to.
    pub(in crate::identity) address: AddressHash,
    /// Its origin.
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

    /// Clears the failures of the pair and of the address after a success. Those of the network
    /// stay, or a guesser could clear them with an account of their own.
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
mod tests {
    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp::from_s(1_800_000_000 + s)
    }

    fn attempt(address: u8, ip: &str) -> Attempt {
        Attempt { address: [address; 32], from: stranger(ip) }
    }

    fn stranger(ip: &str) -> AttemptOrigin {
        AttemptOrigin::Unknown(Network::of(ip.parse().expect("an address")))
    }

    #[test]
    fn from_the_fifth_failure_the_wait_doubles_up_to_five_minutes_and_is_exact() {
        let mut login_throttle = LoginThrottle::default();
        let guess = attempt(1, "192.0.2.1");
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..16 {
            // The failures are too far apart for the network's gate, so only the pair's gate acts.
            now += 3_000;
            assert_eq!(login_throttle.admit(&guess, at(now)), Ok(()));
            login_throttle.fail(&guess, at(now));
            match login_throttle.admit(&guess, at(now)) {
                Ok(()) => waits.push(0),
                Err(wait) => {
                    let wait = i64::try_from(wait.as_secs()).expect("short");
                    assert!(
                        login_throttle.admit(&guess, at(now + wait - 1)).is_err()
                            && login_throttle.admit(&guess, at(now + wait)).is_ok()
                    );
                    waits.push(wait);
                }
            }
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn the_owner_elsewhere_is_not_locked_out() {
        let mut login_throttle = LoginThrottle::default();
        for _ in 0..29 {
            login_throttle.fail(&attempt(1, "192.0.2.1"), at(0));
        }
        assert!(login_throttle.admit(&attempt(1, "192.0.2.1"), at(0)).is_err());
        assert!(login_throttle.admit(&attempt(1, "192.0.2.2"), at(0)).is_ok());
        assert!(login_throttle.admit(&attempt(2, "192.0.2.1"), at(0)).is_ok());
    }

    #[test]
    fn thirty_failures_of_one_network_block_it_for_all_addresses_for_doubling_times() {
        let mut login_throttle = LoginThrottle::default();
        let mut now = 0;
        for expected in [60, 120, 240, 480, 900, 900] {
            for address in 0..30 {
                assert_eq!(login_throttle.admit(&attempt(100 + address, "2001:db8:1:2::9"), at(now)), Ok(()));
                login_throttle.fail(&attempt(address, &format!("2001:db8:1:2::{address}")), at(now));
            }
            let other_host_of_the_64 = attempt(200, "2001:db8:1:2:ffff::1");
            assert_eq!(
                login_throttle.admit(&other_host_of_the_64, at(now)),
                Err(Duration::from_secs(expected))
            );
            assert_eq!(login_throttle.admit(&attempt(200, "2001:db8:1:3::1"), at(now)), Ok(()));
            now += i64::try_from(expected).expect("short");
        }
    }

    #[test]
    fn a_success_clears_the_pair_but_not_the_network() {
        let mut login_throttle = LoginThrottle::default();
        let owner = attempt(1, "192.0.2.1");
        for _ in 0..6 {
            login_throttle.fail(&owner, at(0));
        }
        assert!(login_throttle.admit(&owner, at(0)).is_err());
        login_throttle.succeed(&owner);
        assert!(login_throttle.admit(&owner, at(0)).is_ok());
        for _ in 0..24 {
            login_throttle.fail(&attempt(2, "192.0.2.1"), at(0));
        }
        assert_eq!(login_throttle.admit(&owner, at(0)), Err(Duration::from_secs(60)));
    }

    #[test]
    fn a_million_addresses_do_not_grow_the_maps_beyond_their_limit() {
        let mut login_throttle = LoginThrottle::default();
        for n in 0..1_000_000_u32 {
            let mut address = [0; 32];
            address[..4].copy_from_slice(&n.to_le_bytes());
            let network = Network([
                0x20,
                1,
                0,
                0,
                n.to_le_bytes()[0],
                n.to_le_bytes()[1],
                n.to_le_bytes()[2],
                n.to_le_bytes()[3],
            ]);
            login_throttle.fail(&Attempt { address, from: AttemptOrigin::Unknown(network) }, at(0));
        }
        let entries =
            [login_throttle.pairs.len(), login_throttle.networks.len(), login_throttle.addresses.len()];
        assert!(entries.into_iter().all(|count| count <= ENTRIES_MAX), "{entries:?}");
    }

    /// Returns an address in the n-th of many networks.
    fn network(n: u32) -> String {
        format!("2001:db8:{:x}:{:x}::1", n >> 16, n & 0xffff)
    }

    #[test]
    fn a_hundred_failures_from_many_networks_delay_unknown_browsers_and_no_known_one() {
        let mut login_throttle = LoginThrottle::default();
        let mut elsewhere = 0;
        let mut fresh = || {
            elsewhere += 1;
            attempt(1, &network(elsewhere))
        };
        for number in 0..100 {
            let guess = fresh();
            assert_eq!(login_throttle.admit(&guess, at(number * 600)), Ok(()), "guess {number}");
            login_throttle.fail(&guess, at(number * 600));
        }
        let mut now = 99 * 600;
        for expected in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            assert_eq!(login_throttle.admit(&fresh(), at(now)), Err(Duration::from_secs(expected)));
            assert_eq!(login_throttle.admit(&attempt(2, &network(0)), at(now)), Ok(()), "another address");
            let known = Attempt { address: [1; 32], from: AttemptOrigin::Known([1; 16]) };
            assert_eq!(login_throttle.admit(&known, at(now)), Ok(()));
            now += i64::try_from(expected).expect("short");
            let guess = fresh();
            assert_eq!(login_throttle.admit(&guess, at(now)), Ok(()), "the wait is exact");
            login_throttle.fail(&guess, at(now));
        }
        // A day without failures ends the waits.
        now += 25 * 3_600;
        login_throttle.fail(&fresh(), at(now));
        assert_eq!(login_throttle.admit(&fresh(), at(now)), Ok(()));
    }

    #[test]
    fn a_known_browser_waits_only_for_its_own_failures() {
        let mut login_throttle = LoginThrottle::default();
        let known = |browser: u8| Attempt { address: [1; 32], from: AttemptOrigin::Known([browser; 16]) };
        for _ in 0..6 {
            login_throttle.fail(&known(1), at(0));
        }
        assert_eq!(login_throttle.admit(&known(1), at(0)), Err(Duration::from_secs(2)));
        assert_eq!(login_throttle.admit(&known(2), at(0)), Ok(()));
        assert_eq!(login_throttle.admit(&attempt(1, "192.0.2.1"), at(0)), Ok(()));
    }

    #[test]
    fn a_new_password_clears_the_failures_of_its_address() {
        let mut login_throttle = LoginThrottle::default();
        for n in 0..120 {
            login_throttle.fail(&attempt(1, &network(n)), at(0));
            login_throttle.fail(&attempt(1, "192.0.2.1"), at(0));
            login_throttle.fail(&attempt(2, "192.0.2.2"), at(0));
        }
        login_throttle.forget(&[1; 32]);
        assert_eq!(login_throttle.admit(&attempt(1, &network(9)), at(0)), Ok(()));
        assert!(
            login_throttle.admit(&attempt(2, &network(9)), at(0)).is_err(),
            "other addresses' failures stay"
        );
        assert!(
            login_throttle.admit(&attempt(1, "192.0.2.1"), at(0)).is_err(),
            "the network's failures stay"
        );
    }

    #[test]
    fn a_mapped_ipv4_address_is_the_ipv4_address() {
        assert_eq!(
            Network::of("::ffff:192.0.2.1".parse().expect("ip")),
            Network::of("192.0.2.1".parse().expect("ip"))
        );
    }
}
