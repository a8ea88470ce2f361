//! The admission of connections, and the limits that they count for.

use super::*;
use crate::api::host::{Network, TrustedProxies};
use crate::identity::{KeyId, SessionId, UserId};
use crate::model::OrgId;

fn limiter(options: EdgeOptions) -> Arc<ConnectionLimiter> {
    ConnectionLimiter::new(options, Arc::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Returns the slot of a new connection, unless it is refused.
fn connect(limiter: &Arc<ConnectionLimiter>, from: &str) -> Option<Arc<ConnectionSlot>> {
    let address = limiter.count(ip(from))?;
    let permit = Arc::clone(&limiter.open).try_acquire_owned().ok()?;
    Some(limiter.slot(SocketAddr::new(ip(from), 1), address, permit))
}

/// docs/specification.md B3: 128 connections of one address, where an IPv6 /64 is one address.
/// Loopback and trusted proxies are exempt.
#[test]
fn an_address_has_a_limit_of_connections_and_gets_slots_back() {
    let proxy = Network::parse("10.0.0.0/8").expect("a network");
    let options = EdgeOptions { proxies: TrustedProxies(vec![proxy]), ..EdgeOptions::default() };
    let limiter = limiter(options);
    let slot = |from: &str| connect(&limiter, from);
    let mut held: Vec<Arc<ConnectionSlot>> = (0..128).filter_map(|_| slot("192.0.2.1")).collect();
    assert_eq!(held.len(), 128);
    assert!(slot("192.0.2.1").is_none() && slot("::ffff:192.0.2.1").is_none());
    let v6: Vec<Arc<ConnectionSlot>> = (0..200).filter_map(|n| slot(&format!("2001:db8::{n}"))).collect();
    assert_eq!(v6.len(), 128, "a /64 is one address");
    for exempt in ["127.0.0.1", "127.8.9.1", "::1", "10.1.2.3"] {
        assert_eq!((0..130).filter(|_| slot(exempt).is_some()).count(), 130, "{exempt}");
    }
    held.pop();
    let again = slot("192.0.2.1");
    assert!(again.is_some() && slot("192.0.2.1").is_none(), "one slot was released");
    drop((held, again, v6));
    assert!(limiter.per_ip.lock().expect("no panic").is_empty(), "addresses without connections are removed");
}

/// Returns the indices of the connections in the order in which they are closed. Index 0 is
/// silent, 1 has sent its first header, 2 and 3 are silent and reserved.
async fn eviction_order(header_timeout: Duration) -> Vec<usize> {
    let limiter = limiter(EdgeOptions { header_timeout, ..EdgeOptions::default() });
    let first = [
        ConnectionPhase::FIRST_HEAD,
        ConnectionPhase::NEXT_HEAD,
        ConnectionPhase::FIRST_HEAD,
        ConnectionPhase::FIRST_HEAD,
    ];
    let mut tasks = Vec::new();
    for (n, phase) in first.into_iter().enumerate() {
        let task = tokio::spawn(std::future::pending::<()>());
        let silent = PendingConnection {
            task: task.abort_handle(),
            phase: Arc::new(ConnectionPhase(AtomicU8::new(phase))),
            reserved: n >= 2,
            since: Instant::now(),
        };
        limiter.register(silent);
        tasks.push((n, task));
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        limiter.evict_one();
        tokio::task::yield_now().await;
        order.extend(tasks.extract_if(.., |(_, task)| task.is_finished()).map(|(n, _)| n));
    }
    order
}

#[tokio::test]
async fn silent_connections_are_closed_after_their_timeout_and_reserved_ones_at_once() {
    assert_eq!(eviction_order(Duration::ZERO).await, [0, 2, 3], "every timeout has passed");
    assert_eq!(eviction_order(Duration::from_secs(3_600)).await, [2, 3], "no timeout has passed");
}

#[test]
fn a_refused_connection_holds_no_slot() {
    let limiter = limiter(EdgeOptions { connections_per_ip: 1, ..EdgeOptions::default() });
    let held = limiter.count(ip("192.0.2.1"));
    assert!(held.is_some());
    for _ in 0..1_000 {
        assert!(limiter.count(ip("192.0.2.1")).is_none());
    }
    assert_eq!(limiter.per_ip.lock().expect("no panic").get(&ip("192.0.2.1")), Some(&1));
}

fn session(n: u8) -> Payer {
    Payer::Session(UserId::from_bytes([n; 10]), SessionId::from_bytes([n; 10]))
}

fn key(n: u8) -> Payer {
    key_of(u32::from(n), n)
}

fn key_of(org: u32, n: u8) -> Payer {
    Payer::Key(OrgId(org), KeyId::from_bytes([n; 10]))
}

/// In an office behind one address, connections of logged-in users do not count for the address.
#[test]
fn known_connections_take_no_place_of_their_address() {
    let limiter = limiter(EdgeOptions::default());
    let mut held = Vec::new();
    for n in 0..2_000_u32 {
        let slot = connect(&limiter, "192.0.2.1").expect("a place");
        slot.credit(session(u8::try_from(n / 100).expect("small")));
        held.push(slot);
    }
    assert!(limiter.per_ip.lock().expect("no panic").is_empty());
    assert_eq!(limiter.open.available_permits(), limiter.options.connections_max);
    assert_eq!(limiter.counters.connections_known.load(Ordering::Relaxed), 2_000);
    // The next 128 strangers of this address are admitted, and no more.
    let strangers: Vec<_> = (0..200).filter_map(|_| connect(&limiter, "192.0.2.1")).collect();
    assert_eq!(strangers.len(), 128);
    drop((held, strangers));
    assert_eq!(limiter.known.lock().expect("no panic").all, 0);
    assert!(limiter.known.lock().expect("no panic").of_payer.is_empty());
    assert!(limiter.known.lock().expect("no panic").of_tenant.is_empty());
}

#[test]
fn connections_beyond_the_limit_of_a_credential_count_for_their_address() {
    let options = EdgeOptions {
        known_connections_max: 8,
        connections_per_session: 2,
        connections_per_ip: 3,
        ..EdgeOptions::default()
    };
    let limiter = limiter(options);
    let credited = |payer, from: &str| {
        let slot = connect(&limiter, from)?;
        slot.credit(payer);
        Some(slot)
    };
    let of_session: Vec<_> = (0..9).filter_map(|_| credited(session(1), "192.0.2.1")).collect();
    assert_eq!(of_session.len(), 2 + 3, "two of the session, three of the address");
    let of_key: Vec<_> = (0..9).filter_map(|_| credited(key(1), "192.0.2.2")).collect();
    assert_eq!(of_key.len(), 5 + 3, "not more than three times the free ones");
    let last = credited(key(3), "192.0.2.4").expect("a place");
    assert!(last.is_known());
    // All known places are taken.
    let other = credited(key(2), "192.0.2.3").expect("a stranger's place");
    assert!(!other.is_known());
    drop(of_key);
    other.credit(key(2));
    assert!(other.is_known() && of_session.iter().filter(|slot| slot.is_known()).count() == 2);
}

/// A hostile organisation with many keys, then a hostile account with many sessions: every newcomer
/// finds known connections.
#[test]
fn many_keys_of_an_organisation_and_many_sessions_of_an_account_leave_connections_to_others() {
    let options = EdgeOptions {
        known_connections_max: 1_600,
        connections_max: 4_096,
        connections_per_ip: 4_096,
        ..EdgeOptions::default()
    };
    let limiter = limiter(options);
    let mut held = Vec::new();
    let mut known_of = |payers: &mut dyn Iterator<Item = Payer>| {
        let mut known = 0;
        for payer in payers {
            let slot = connect(&limiter, "192.0.2.1").expect("a place");
            slot.credit(payer);
            known += usize::from(slot.is_known());
            held.push(slot);
        }
        known
    };
    assert_eq!(
        known_of(&mut (0..2_000_u32).map(|n| key_of(1, u8::try_from(n % 200).expect("small")))),
        1_200
    );
    let sessions = (0..400_u32).map(|n| {
        let id = SessionId::from_bytes([u8::try_from(n % 200).expect("small"); 10]);
        Payer::Session(UserId::from_bytes([7; 10]), id)
    });
    assert_eq!(known_of(&mut { sessions }), 300);
    assert_eq!(known_of(&mut (0..100).map(|n| key_of(2, n))), 75, "three quarters of the rest");
    assert_eq!(known_of(&mut (0..18).map(|_| session(1))), 18);
    // Once the flood has ended, one key has three quarters again.
    held.clear();
    let mut known = 0;
    for _ in 0..1_600 {
        let slot = connect(&limiter, "192.0.2.1").expect("a place");
        slot.credit(key(2));
        known += usize::from(slot.is_known());
        held.push(slot);
    }
    assert_eq!(known, 1_200);
}

#[test]
fn a_connection_counts_for_the_last_credential_and_a_reserved_one_for_none() {
    let options = EdgeOptions { connections_max: 2, connections_reserved: 1, ..EdgeOptions::default() };
    let limiter = limiter(options);
    let slot = connect(&limiter, "192.0.2.1").expect("a place");
    let payers = || limiter.known.lock().expect("no panic").of_payer.keys().copied().collect::<Vec<_>>();
    slot.credit(key(1));
    slot.credit(key(1));
    assert_eq!(payers(), [key(1)]);
    slot.credit(session(1));
    assert_eq!(payers(), [session(1)]);
    let held = connect(&limiter, "192.0.2.1").expect("a place");
    let reserved = connect(&limiter, "192.0.2.1").expect("the reserved place");
    assert!(!held.reserved && reserved.reserved);
    reserved.credit(key(2));
    assert!(!reserved.is_known());
}

/// Requests behind a trusted proxy count for the address of their client until their response ends
/// or their credential is known.
#[test]
fn clients_behind_a_trusted_proxy_are_counted_by_their_own_address() {
    let proxy = Network::parse("10.0.0.0/8").expect("a network");
    let options =
        EdgeOptions { proxies: TrustedProxies(vec![proxy]), connections_per_ip: 2, ..EdgeOptions::default() };
    let limiter = limiter(options);
    let forwarded = |client: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", client.parse().expect("a value"));
        headers
    };
    let slots: Vec<_> = (0..6).filter_map(|_| connect(&limiter, "10.0.0.1")).collect();
    assert_eq!(slots.len(), 6, "the proxy itself is exempt");
    let begin = |slot: usize, client: &str| slots[slot].begin_request(&forwarded(client));
    assert!(begin(0, "203.0.113.7") && begin(1, "203.0.113.7"));
    assert!(!begin(2, "203.0.113.7"), "a third request at once");
    assert!(begin(2, "203.0.113.8"), "another client");
    // An address that the client itself sent does not count.
    assert!(!begin(3, "198.51.100.1, 203.0.113.7"));
    drop(ProxiedBody { inner: Body::empty(), slot: Arc::clone(&slots[0]) });
    assert!(begin(3, "203.0.113.7"), "the first response has ended");
    slots[1].credit(key(1));
    assert!(begin(4, "203.0.113.7"), "the second request counts for its key");
    assert!(!begin(5, "203.0.113.7"));
}
