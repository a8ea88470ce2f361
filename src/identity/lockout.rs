//! Login throttling that locks out guessers and not owners (API.md D4).
//!
//! Only failures count, and an unknown address counts like a known one: the map's keys are HMACs of the address, not
//! accounts. Two gates: the pair of address and network (from the fifth failure 1, 2, 4 ... 300 s), and the network
//! alone (30 failures in 5 minutes: 60 s, doubling to 15 minutes). In memory only, bounded; a restart forgets.
//!
//! An attempt is counted when it failed, so attempts that hash at the same moment all pass the gate: at most as many
//! as the password lane has threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use crate::model::Timestamp;

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
    pub(super) network: Network,
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

/// The failures of the recent past.
#[derive(Debug, Default)]
pub(super) struct Lockout {
    pairs: Recent<Attempt, Pair>,
    networks: Recent<Network, Peer>,
}

impl Lockout {
    /// Whether an attempt will be looked at now; otherwise how long until one will, at least one second.
    pub(super) fn admit(&mut self, attempt: &Attempt, now: Timestamp) -> Result<(), Duration> {
        let now_ms = now.as_ms();
        let pair =
            self.pairs.entry(attempt).filter(|pair| now_ms.saturating_sub(pair.last_ms) < PAIR_MEMORY_MS);
        let pair_until =
            pair.map_or(i64::MIN, |pair| pair.last_ms.saturating_add(pair_wait_ms(pair.failures)));
        let network_until =
            self.networks.entry(&attempt.network).map_or(i64::MIN, |peer| peer.blocked_until_ms);
        let left_ms = pair_until.max(network_until).saturating_sub(now_ms);
        if left_ms <= 0 {
            return Ok(());
        }
        // Whole seconds, rounded up, so that the answer is true; a clock set back must not make anybody wait longer than the rule.
        let left_s = (left_ms.saturating_add(999) / 1_000).min(NETWORK_WAIT_MAX_S);
        Err(Duration::from_secs(u64::try_from(left_s).unwrap_or(1)))
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

        let peer = self.networks.entry_or(&attempt.network, Peer::default);
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

    /// A success from there: the pair starts over. The network does not, or one account of the guesser's own would reset it.
    pub(super) fn succeed(&mut self, attempt: &Attempt) {
        self.pairs.remove(attempt);
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
        Attempt { address: [address; 32], network: Network::of(ip.parse().expect("an address")) }
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
            lockout.fail(&Attempt { address, network }, at(0));
        }
        assert!(lockout.pairs.len() <= ENTRIES_MAX && lockout.networks.len() <= ENTRIES_MAX);
    }

    #[test]
    fn a_mapped_ipv4_address_is_the_ipv4_address() {
        assert_eq!(
            Network::of("::ffff:192.0.2.1".parse().expect("ip")),
            Network::of("192.0.2.1".parse().expect("ip"))
        );
    }
}
