//! Login throttling that locks out guessers and not owners (docs/specification.md D4).
//!
//! Only failures count, and an unknown address counts like a known one: the map's keys are HMACs of the address, not
//! accounts. Three gates stand before a stranger: the pair of address and network (from the fifth failure 1, 2, 4 ...
//! 300 s), the network alone (30 failures in 5 minutes: 60 s, doubling to 15 minutes), and the address alone, over all
//! networks (100 failures in a day: 60 s, doubling to an hour). A browser that logged in to the address before has a gate
//! of its own, like a pair's, and passes the others: what strangers do does not keep the owner out, on the same network
//! neither. In memory only, bounded; a restart forgets.
//!
//! An attempt is counted when it failed, so attempts that hash at the same moment all pass the gate: at most as many
//! as the password lane has threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use crate::model::Timestamp;

use super::device::DeviceId;

/// Entries one map may hold; the oldest half goes when it would grow further.
const ENTRIES_MAX: usize = 100_000;
/// From this failure on a pair of address and network waits.
const PAIR_FREE: u32 = 5;
/// Longest wait of a pair, seconds.
const PAIR_WAIT_MAX_S: i64 = 300;
/// A pair's failures are forgotten after a day without another.
const PAIR_MEMORY_MS: i64 = 24 * 3_600 * 1_000;
/// Failures of one network within [`NETWORK_WINDOW_MS`] that make it wait.
const NETWORK_FAILURES: usize = 30;
/// Five minutes.
const NETWORK_WINDOW_MS: i64 = 5 * 60 * 1_000;
/// First wait of a network, seconds; doubles.
const NETWORK_WAIT_S: i64 = 60;
/// Longest wait of a network, seconds.
const NETWORK_WAIT_MAX_S: i64 = 15 * 60;
/// A network's waits start over after an hour without a failure.
const NETWORK_MEMORY_MS: i64 = 3_600 * 1_000;

/// Failures of one address in a day that make strangers wait (NIST SP 800-63B's bound).
const ADDRESS_FAILURES: u32 = 100;
/// First wait of an address, seconds; doubles.
const ADDRESS_WAIT_S: i64 = 60;
/// Longest wait of an address, seconds.
const ADDRESS_WAIT_MAX_S: i64 = 3_600;
const HOUR_MS: i64 = 3_600 * 1_000;
/// Hours that are counted apart: a day, and the one that has begun.
const HOURS: usize = 25;

/// A network: an IPv4 address, or the /64 of an IPv6 one, since a single host has that many addresses to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Network([u8; 8]);

impl Network {
    /// The network of a peer.
    pub(super) fn of(ip: IpAddr) -> Network {
        match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                // 0/8 of IPv6 is not routed, so no /64 looks like this.
                Network([0, 0, 0, 4, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Network([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// HMAC of an address, made with the master key.
pub(super) type AddressHash = [u8; 32];

/// Who tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    /// Which address.
    pub(super) address: AddressHash,
    /// From where.
    pub(super) from: Origin,
}

/// From where an attempt comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// From some network.
    Stranger(Network),
    /// From a browser, or by a session, that has logged in to this address before.
    Known(DeviceId),
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    failures: u32,
    last_ms: i64,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    /// Within the window, oldest first.
    failures: Vec<i64>,
    waits: u32,
    blocked_until_ms: i64,
    last_ms: i64,
}

/// Strangers' failures with one address, over all networks.
#[derive(Clone, Debug, Default)]
struct Target {
    /// By hour, the one of `hour` first.
    failures: [u8; HOURS],
    hour: i64,
    waits: u32,
    blocked_until_ms: i64,
}

impl Target {
    fn fail(&mut self, now_ms: i64) {
        let hour = now_ms.div_euclid(HOUR_MS);
        let passed = usize::try_from(hour.saturating_sub(self.hour)).unwrap_or(0).min(HOURS);
        // A clock set back counts to the newest hour that was seen.
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

/// The failures of the recent past.
#[derive(Debug, Default)]
pub(super) struct Lockout {
    pairs: Recent<Attempt, Pair>,
    networks: Recent<Network, Peer>,
    addresses: Recent<AddressHash, Target>,
}

impl Lockout {
    /// Whether an attempt will be looked at now; otherwise how long until one will, at least one second.
    pub(super) fn admit(&mut self, attempt: &Attempt, now: Timestamp) -> Result<(), Duration> {
        let now_ms = now.as_ms();
        // A clock set back must not make anybody wait longer than the rule.
        let left = |until_ms: i64, most_s: i64| until_ms.saturating_sub(now_ms).min(most_s * 1_000);
        let pair =
            self.pairs.entry(attempt).filter(|pair| now_ms.saturating_sub(pair.last_ms) < PAIR_MEMORY_MS);
        let mut left_ms = pair.map_or(0, |pair| {
            left(pair.last_ms.saturating_add(pair_wait_ms(pair.failures)), PAIR_WAIT_MAX_S)
        });
        if let Origin::Stranger(network) = attempt.from {
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
        // Whole seconds, rounded up, so that the answer is true.
        Err(Duration::from_secs(left_ms.unsigned_abs().div_ceil(1_000)))
    }

    /// Counts a failure.
    pub(super) fn fail(&mut self, attempt: &Attempt, now: Timestamp) {
        let now_ms = now.as_ms();
        let pair = self.pairs.entry_or(attempt, || Pair { failures: 0, last_ms: now_ms });
        if now_ms.saturating_sub(pair.last_ms) >= PAIR_MEMORY_MS {
            pair.failures = 0;
        }
        pair.failures = pair.failures.saturating_add(1);
        pair.last_ms = now_ms;

        let Origin::Stranger(network) = attempt.from else { return };
        self.addresses.entry_or(&attempt.address, Target::default).fail(now_ms);
        let peer = self.networks.entry_or(&network, Peer::default);
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

    /// A success from there: pair and address start over. The network does not, or one account of the guesser's own would
    /// reset it.
    pub(super) fn succeed(&mut self, attempt: &Attempt) {
        self.pairs.remove(attempt);
        self.addresses.remove(&attempt.address);
    }

    /// The address has a new password: all that failed with the old one is forgotten.
    pub(super) fn forget(&mut self, address: &AddressHash) {
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

/// `first` doubled `times`, at most `max`.
fn doubled(first: i64, times: u32, max: i64) -> i64 {
    first.saturating_mul(1 << times.min(30)).min(max)
}

/// A map that forgets what was not touched for longest: two halves, and the older one goes when the newer is full.
#[derive(Debug)]
struct Recent<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Recent<K, V> {
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

    fn stranger(ip: &str) -> Origin {
        Origin::Stranger(Network::of(ip.parse().expect("an address")))
    }

    #[test]
    fn from_the_fifth_failure_the_wait_doubles_to_five_minutes_and_is_honest() {
        let mut lockout = Lockout::default();
        let guess = attempt(1, "192.0.2.1");
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..16 {
            // A quiet network, so that only the pair's gate is seen.
            now += 3_000;
            assert_eq!(lockout.admit(&guess, at(now)), Ok(()));
            lockout.fail(&guess, at(now));
            match lockout.admit(&guess, at(now)) {
                Ok(()) => waits.push(0),
                Err(wait) => {
                    let wait = i64::try_from(wait.as_secs()).expect("short");
                    assert!(
                        lockout.admit(&guess, at(now + wait - 1)).is_err()
                            && lockout.admit(&guess, at(now + wait)).is_ok()
                    );
                    waits.push(wait);
                }
            }
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn the_owner_elsewhere_is_not_locked_out() {
        let mut lockout = Lockout::default();
        for _ in 0..29 {
            lockout.fail(&attempt(1, "192.0.2.1"), at(0));
        }
        assert!(lockout.admit(&attempt(1, "192.0.2.1"), at(0)).is_err());
        assert!(lockout.admit(&attempt(1, "192.0.2.2"), at(0)).is_ok());
        assert!(lockout.admit(&attempt(2, "192.0.2.1"), at(0)).is_ok());
    }

    #[test]
    fn thirty_failures_of_one_network_stop_it_for_all_addresses_ever_longer() {
        let mut lockout = Lockout::default();
        let mut now = 0;
        for expected in [60, 120, 240, 480, 900, 900] {
            for address in 0..30 {
                assert_eq!(lockout.admit(&attempt(100 + address, "2001:db8:1:2::9"), at(now)), Ok(()));
                lockout.fail(&attempt(address, &format!("2001:db8:1:2::{address}")), at(now));
            }
            let other_host_of_the_64 = attempt(200, "2001:db8:1:2:ffff::1");
            assert_eq!(lockout.admit(&other_host_of_the_64, at(now)), Err(Duration::from_secs(expected)));
            assert_eq!(lockout.admit(&attempt(200, "2001:db8:1:3::1"), at(now)), Ok(()));
            now += i64::try_from(expected).expect("short");
        }
    }

    #[test]
    fn a_success_clears_the_pair_but_not_the_network() {
        let mut lockout = Lockout::default();
        let owner = attempt(1, "192.0.2.1");
        for _ in 0..6 {
            lockout.fail(&owner, at(0));
        }
        assert!(lockout.admit(&owner, at(0)).is_err());
        lockout.succeed(&owner);
        assert!(lockout.admit(&owner, at(0)).is_ok());
        for _ in 0..24 {
            lockout.fail(&attempt(2, "192.0.2.1"), at(0));
        }
        assert_eq!(lockout.admit(&owner, at(0)), Err(Duration::from_secs(60)));
    }

    #[test]
    fn a_million_addresses_do_not_grow_the_map() {
        let mut lockout = Lockout::default();
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
            lockout.fail(&Attempt { address, from: Origin::Stranger(network) }, at(0));
        }
        let entries = [lockout.pairs.len(), lockout.networks.len(), lockout.addresses.len()];
        assert!(entries.into_iter().all(|count| count <= ENTRIES_MAX), "{entries:?}");
    }

    /// The n-th of many networks.
    fn network(n: u32) -> String {
        format!("2001:db8:{:x}:{:x}::1", n >> 16, n & 0xffff)
    }

    #[test]
    fn a_hundred_failures_from_everywhere_slow_strangers_down_and_no_known_browser() {
        let mut lockout = Lockout::default();
        let mut elsewhere = 0;
        let mut fresh = || {
            elsewhere += 1;
            attempt(1, &network(elsewhere))
        };
        for number in 0..100 {
            let guess = fresh();
            assert_eq!(lockout.admit(&guess, at(number * 600)), Ok(()), "guess {number}");
            lockout.fail(&guess, at(number * 600));
        }
        let mut now = 99 * 600;
        for expected in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            assert_eq!(lockout.admit(&fresh(), at(now)), Err(Duration::from_secs(expected)));
            assert_eq!(lockout.admit(&attempt(2, &network(0)), at(now)), Ok(()), "another address");
            let known = Attempt { address: [1; 32], from: Origin::Known([1; 16]) };
            assert_eq!(lockout.admit(&known, at(now)), Ok(()));
            now += i64::try_from(expected).expect("short");
            let guess = fresh();
            assert_eq!(lockout.admit(&guess, at(now)), Ok(()), "the wait is true");
            lockout.fail(&guess, at(now));
        }
        // A quiet day ends it.
        now += 25 * 3_600;
        lockout.fail(&fresh(), at(now));
        assert_eq!(lockout.admit(&fresh(), at(now)), Ok(()));
    }

    #[test]
    fn a_known_browser_that_fails_waits_by_itself() {
        let mut lockout = Lockout::default();
        let known = |browser: u8| Attempt { address: [1; 32], from: Origin::Known([browser; 16]) };
        for _ in 0..6 {
            lockout.fail(&known(1), at(0));
        }
        assert_eq!(lockout.admit(&known(1), at(0)), Err(Duration::from_secs(2)));
        assert_eq!(lockout.admit(&known(2), at(0)), Ok(()));
        assert_eq!(lockout.admit(&attempt(1, "192.0.2.1"), at(0)), Ok(()));
    }

    #[test]
    fn a_new_password_forgets_what_failed_with_the_old_one() {
        let mut lockout = Lockout::default();
        for n in 0..120 {
            lockout.fail(&attempt(1, &network(n)), at(0));
            lockout.fail(&attempt(1, "192.0.2.1"), at(0));
            lockout.fail(&attempt(2, "192.0.2.2"), at(0));
        }
        lockout.forget(&[1; 32]);
        assert_eq!(lockout.admit(&attempt(1, &network(9)), at(0)), Ok(()));
        assert!(lockout.admit(&attempt(2, &network(9)), at(0)).is_err(), "others' are kept");
        assert!(lockout.admit(&attempt(1, "192.0.2.1"), at(0)).is_err(), "and those of the network");
    }

    #[test]
    fn a_mapped_ipv4_address_is_the_ipv4_address() {
        assert_eq!(
            Network::of("::ffff:192.0.2.1".parse().expect("ip")),
            Network::of("192.0.2.1".parse().expect("ip"))
        );
    }
}
