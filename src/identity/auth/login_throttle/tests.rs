//! Tests of the three gates and of the bounds of the maps.

use std::net::Ipv6Addr;

use super::*;
use crate::model::effort::rounds;

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
        assert_eq!(login_throttle.admit(&other_host_of_the_64, at(now)), Err(Duration::from_secs(expected)));
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
fn any_number_of_addresses_does_not_grow_the_maps_beyond_their_limit() {
    let mut login_throttle = LoginThrottle::default();
    for n in 0..rounds(250_000, 1_000_000_u32) {
        let mut address = [0; 32];
        address[..4].copy_from_slice(&n.to_le_bytes());
        let [a, b, c, d] = n.to_le_bytes().map(u16::from);
        let network = Network::of(Ipv6Addr::new(0x2001, 0, a << 8 | b, c << 8 | d, 0, 0, 0, 0).into());
        login_throttle.fail(&Attempt { address, from: AttemptOrigin::Unknown(network) }, at(0));
    }
    let entries = [login_throttle.pairs.len(), login_throttle.networks.len(), login_throttle.addresses.len()];
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
    assert!(login_throttle.admit(&attempt(2, &network(9)), at(0)).is_err(), "other addresses' failures stay");
    assert!(login_throttle.admit(&attempt(1, "192.0.2.1"), at(0)).is_err(), "the network's failures stay");
}

#[test]
fn a_mapped_ipv4_address_is_the_ipv4_address() {
    assert_eq!(
        Network::of("::ffff:192.0.2.1".parse().expect("ip")),
        Network::of("192.0.2.1".parse().expect("ip"))
    );
}
