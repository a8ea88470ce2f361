//! Rate limits (docs/specification.md B3).
//!
//! The two limits of the specification, per session and per API key, are exact sliding windows: at
//! most N requests are accepted in any trailing 1,000 ms. All other limits are governor's leaky
//! bucket (GCRA), which lets a burst of up to twice the rate through in its first second. This
//! precision suffices where the specification names no number. All maps are bounded.

mod buckets;
mod charge;
mod sliding_window;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use governor::RateLimiter;
use governor::state::keyed::HashMapStateStore;

use super::error::{ApiError, ApiResult, Code};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::identity::{IngestSettings, KeyId, SessionId, UserId};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
pub(in crate::api) use buckets::Ticker;
use buckets::{KeyedBuckets, PlainLimiter, per_second, spread};
pub use charge::Charge;
use charge::{charged, rate_limited};
use sliding_window::KeyedWindows;

/// The number of mails of one [`MailClass`] in an hour.
pub const MAILS_AN_HOUR: u32 = 100;
/// The number of invitations that one organisation, and one account, may mail in an hour.
pub const INVITATIONS_AN_HOUR: u32 = 100;

/// The number of versions of dashboards that one organisation may store in a minute.
pub const DASHBOARD_SAVES_A_MINUTE: u32 = 120;

/// The limits that an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct LimitsOptions {
    /// Requests a second of one session (docs/specification.md B3).
    pub cabinet_rps: u32,
    /// Requests a second without a valid credential, per address.
    pub anonymous_rps: u32,
    /// The greatest number of entries of each map.
    pub entries_max: usize,
}

impl Default for LimitsOptions {
    fn default() -> LimitsOptions {
        LimitsOptions { cabinet_rps: 60, anonymous_rps: 200, entries_max: 100_000 }
    }
}

/// The buckets of one ingesting API key, and the settings that they were made for: requests a
/// second and samples a second.
struct IngestBuckets {
    settings: (u32, u32),
    requests: PlainLimiter<()>,
    samples: PlainLimiter<()>,
}

/// A class of mails with its own hourly limit, so that a flood of one class does not delay another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MailClass {
    /// Links that sign in or set a new password.
    Links,
    /// Links that create an account, to any address.
    Signups,
    /// Links that prove the new address of an account.
    NewAddresses,
}

/// A party that an invitation is charged to. Each invitation is charged to both, so that an account
/// with many organisations cannot send more invitations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Inviter {
    Org(OrgId),
    Account(UserId),
}

/// All rate limits of the edge.
pub struct Limits {
    options: LimitsOptions,
    ticker: Ticker,
    sessions: KeyedWindows<SessionId>,
    keys: KeyedWindows<KeyId>,
    readers: KeyedWindows<KeyId>,
    anonymous: KeyedBuckets<IpAddr>,
    ingest: Mutex<HashMap<KeyId, Arc<IngestBuckets>>>,
    mail_to: KeyedBuckets<[u8; 32]>,
    mail_to_known: KeyedBuckets<[u8; 32]>,
    mail_to_from: KeyedBuckets<([u8; 32], IpAddr)>,
    invited: KeyedBuckets<[u8; 32]>,
    mail_from: KeyedBuckets<IpAddr>,
    mail: KeyedBuckets<MailClass>,
    invitations: KeyedBuckets<Inviter>,
    minting: KeyedBuckets<KeyId>,
    saves: KeyedBuckets<OrgId>,
}

impl Limits {
    /// Returns unused limits.
    pub fn new(options: LimitsOptions, clock: &Clock) -> Limits {
        let ticker = Ticker::start(clock);
        let most = options.entries_max;
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let (quarter_hour, hour) = (Duration::from_secs(15 * 60), Duration::from_secs(3_600));
        let minute = Duration::from_secs(60);
        Limits {
            sessions: KeyedWindows::new(),
            keys: KeyedWindows::new(),
            readers: KeyedWindows::new(),
            anonymous: KeyedBuckets::new(per_second(options.anonymous_rps), unspecified, &ticker, most),
            ingest: Mutex::new(HashMap::new()),
            mail_to: KeyedBuckets::new(spread(20, hour), [0; 32], &ticker, most),
            mail_to_known: KeyedBuckets::new(spread(5, quarter_hour), [0; 32], &ticker, most),
            mail_to_from: KeyedBuckets::new(spread(3, quarter_hour), ([0; 32], unspecified), &ticker, most),
            invited: KeyedBuckets::new(spread(3, quarter_hour), [0; 32], &ticker, most),
            mail_from: KeyedBuckets::new(spread(10, quarter_hour), unspecified, &ticker, most),
            // Three keys at most, so that this map needs no other bound.
            mail: KeyedBuckets::new(spread(MAILS_AN_HOUR, hour), MailClass::Links, &ticker, usize::MAX),
            invitations: KeyedBuckets::new(
                spread(INVITATIONS_AN_HOUR, hour),
                Inviter::Org(OrgId(0)),
                &ticker,
                most,
            ),
            minting: KeyedBuckets::new(per_second(20), KeyId::from_bytes([0; 10]), &ticker, most),
            saves: KeyedBuckets::new(spread(DASHBOARD_SAVES_A_MINUTE, minute), OrgId(0), &ticker, most),
            options,
            ticker,
        }
    }

    /// Charges a request to its session, by default at most 60 a second.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `session`. A refused request is not counted.
    pub fn charge_session(&self, session: SessionId) -> ApiResult<Charge> {
        let limit = self.options.cabinet_rps;
        let remaining = self.sessions.charge(session, limit, self.ticker.now_us(), self.options.entries_max);
        charged("cabinet", "session", limit, remaining)
    }

    /// Charges a request with an embed token to the API key that signed it. All tokens of a key
    /// share its window.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `api_key`. A refused request is not counted.
    pub fn charge_key(&self, key: KeyId, limit: u32) -> ApiResult<Charge> {
        let remaining = self.keys.charge(key, limit, self.ticker.now_us(), self.options.entries_max);
        charged("embed", "api_key", limit, remaining)
    }

    /// Charges a read by an API key to the key's window for reads, which its tokens do not share.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `api_key`. A refused request is not counted.
    pub fn charge_reader(&self, key: KeyId, limit: u32) -> ApiResult<Charge> {
        let remaining = self.readers.charge(key, limit, self.ticker.now_us(), self.options.entries_max);
        charged("read", "api_key", limit, remaining)
    }

    /// Charges a request without a valid credential to its address.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `ip`.
    pub fn charge_address(&self, ip: IpAddr) -> ApiResult<Charge> {
        let limit = self.options.anonymous_rps;
        let refused = |wait: Duration| rate_limited("ip", "ip", limit, wait);
        let remaining = self.anonymous.charge(&network(ip)).map_err(refused)?;
        Ok(Charge { policy: "ip", limit, remaining })
    }

    /// Charges one ingest request to its API key.
    ///
    /// # Errors
    /// 503 `ingest_throttled` with a jittered `Retry-After`. Senders keep the samples and resend.
    pub fn charge_ingest(&self, key: KeyId, settings: &IngestSettings) -> ApiResult<()> {
        let buckets = self.ingest_buckets(key, settings);
        let refused =
            |_| ingest_throttled(format!("this key may send {} requests a second", buckets.settings.0));
        buckets.requests.check_key(&()).map_err(refused)
    }

    /// Charges samples to their API key. A batch that exceeds the limit of one second is charged
    /// that limit, otherwise it could never be accepted.
    pub fn charge_samples(&self, key: KeyId, settings: &IngestSettings, samples: usize) -> ApiResult<()> {
        let buckets = self.ingest_buckets(key, settings);
        let share = u32::try_from(samples).unwrap_or(u32::MAX).min(buckets.settings.1);
        let Some(share) = NonZeroU32::new(share) else { return Ok(()) };
        let refused =
            || ingest_throttled(format!("this key may send {} samples a second", buckets.settings.1));
        match buckets.samples.check_key_n(&(), share) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(refused()),
        }
    }

    fn ingest_buckets(&self, key: KeyId, settings: &IngestSettings) -> Arc<IngestBuckets> {
        let settings_now = (settings.rate_limit_rps.max(1), settings.samples_per_s.max(1));
        let mut all = self.ingest.lock().ignore_poison();
        if let Some(existing) = all.get(&key).filter(|existing| existing.settings == settings_now) {
            return Arc::clone(existing);
        }
        if all.len() >= self.options.entries_max {
            // Clearing the map lets each key send at most one more second's burst.
            all.clear();
        }
        let limiter =
            |rate| RateLimiter::new(per_second(rate), HashMapStateStore::default(), self.ticker.clone());
        let buckets = Arc::new(IngestBuckets {
            settings: settings_now,
            requests: limiter(settings_now.0),
            samples: limiter(settings_now.1),
        });
        all.insert(key, Arc::clone(&buckets));
        buckets
    }

    /// Charges a mail to the IP address that requests it.
    pub fn charge_mail_from(&self, ip: IpAddr) -> ApiResult<()> {
        let refused = |wait| {
            ApiError::new(Code::MailThrottled, "too many mails were requested from this address")
                .with_retry_after(wait)
        };
        self.mail_from.charge(&network(ip)).map(drop).map_err(refused)
    }

    /// Returns whether a mail to this address (given as its hash) may be sent: 3 in 15 minutes for
    /// each requesting network, and 20 an hour for all networks. The response does not reveal the
    /// result.
    pub fn admits_mail_to(&self, address_hash: [u8; 32], client_ip: IpAddr) -> bool {
        self.mail_to_from.charge(&(address_hash, network(client_ip))).is_ok()
            && self.mail_to.charge(&address_hash).is_ok()
    }

    /// Returns whether a mail to this address may be sent on the request of a browser that has
    /// logged in to its account: 5 in 15 minutes, independent of other requests.
    pub fn admits_mail_to_known(&self, address_hash: [u8; 32]) -> bool {
        self.mail_to_known.charge(&address_hash).is_ok()
    }

    /// Charges a mailed invitation to its organisation and its sender, at most
    /// [`INVITATIONS_AN_HOUR`] each, and to its address (given as its hash), 3 in 15 minutes over
    /// all organisations.
    ///
    /// # Errors
    /// 429 `mail_throttled`.
    pub fn charge_invitation(&self, org: OrgId, sender: UserId, address_hash: [u8; 32]) -> ApiResult<()> {
        let refused =
            |text: &'static str, wait| ApiError::new(Code::MailThrottled, text).with_retry_after(wait);
        let all = [
            (Inviter::Org(org), "this organisation sent 100 invitations within an hour"),
            (Inviter::Account(sender), "this account sent 100 invitations within an hour"),
        ];
        for (payer, text) in all {
            self.invitations.charge(&payer).map_err(|wait| refused(text, wait))?;
        }
        let text = "this address was sent three invitations within a quarter of an hour";
        self.invited.charge(&address_hash).map(drop).map_err(|wait| refused(text, wait))
    }

    /// Returns whether a mail of this class may be sent on the request of a browser that the
    /// account does not know: [`MAILS_AN_HOUR`] for the whole server. Only mails that are really
    /// sent are charged. Requests for addresses without an account would otherwise use up the
    /// limit of those with one.
    pub fn admits_mail(&self, class: MailClass) -> bool {
        self.mail.charge(&class).is_ok()
    }

    /// Charges a minted token to its API key, at most 20 a second.
    pub fn charge_minting(&self, key: KeyId) -> ApiResult<Charge> {
        const LIMIT: u32 = 20;
        let refused = |wait| rate_limited("minting", "api_key", LIMIT, wait);
        let remaining = self.minting.charge(&key).map_err(refused)?;
        Ok(Charge { policy: "minting", limit: LIMIT, remaining })
    }

    /// Charges a version of a dashboard to its organisation, at most [`DASHBOARD_SAVES_A_MINUTE`].
    /// Every 2 MiB of changes cause an export of all accounts, which other changes wait for.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `organisation`.
    pub fn charge_dashboard(&self, org: OrgId) -> ApiResult<()> {
        let refused = |wait| {
            let detail =
                format!("an organisation stores at most {DASHBOARD_SAVES_A_MINUTE} dashboards a minute");
            ApiError::new(Code::RateLimited, detail)
                .with("limit", DASHBOARD_SAVES_A_MINUTE)
                .with("window_s", 60)
                .with("scope", "organisation")
                .with_retry_after(wait)
        };
        self.saves.charge(&org).map(drop).map_err(refused)
    }

    /// Removes buckets that are unused again. To be called once a minute.
    pub fn sweep(&self) {
        for bucket in [&self.anonymous, &self.mail_from] {
            bucket.limiter.retain_recent();
        }
        for bucket in [&self.mail_to, &self.mail_to_known, &self.invited] {
            bucket.limiter.retain_recent();
        }
        self.mail_to_from.limiter.retain_recent();
        self.invitations.limiter.retain_recent();
        self.minting.limiter.retain_recent();
        self.saves.limiter.retain_recent();
    }

    /// Returns the current number of entries of sessions, API keys and addresses.
    pub fn entries(&self) -> [(&'static str, usize); 3] {
        let keys = self.keys.len() + self.readers.len();
        [("session", self.sessions.len()), ("api_key", keys), ("ip", self.anonymous.limiter.len())]
    }
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the error for a throttled sender, with a jittered `Retry-After`.
fn ingest_throttled(detail: String) -> ApiError {
    ApiError::new(Code::IngestThrottled, detail).with_retry_after(jittered_retry())
}

/// Returns 2 to 10 seconds for the `Retry-After` of a 503 response to a sender. The jitter spreads
/// senders that were refused together (docs/storage.md section 18).
pub fn jittered_retry() -> Duration {
    Duration::from_secs_f64(2.0 + 8.0 * Entropy::system().unit())
}

/// Returns the network that a client is charged as: an IPv4 address, or the /64 of an IPv6 address.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits())),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::OUTSTANDING_LINKS_MAX;
    use crate::model::Timestamp;
    use crate::model::effort::rounds;

    fn limits(entries_max: usize) -> (Limits, Clock) {
        let clock = Clock::manual(Timestamp::from_s(1_800_000_000));
        (Limits::new(LimitsOptions { entries_max, ..LimitsOptions::default() }, &clock), clock)
    }

    fn session(n: u8) -> SessionId {
        SessionId::from_bytes([n; 10])
    }

    #[test]
    fn the_sixty_first_request_in_a_second_is_refused_and_not_counted() {
        let (limits, clock) = limits(100);
        for n in 0..60 {
            assert_eq!(limits.charge_session(session(1)).expect("within the limit").remaining, 59 - n);
        }
        clock.advance(Duration::from_millis(400));
        for _ in 0..1_000 {
            assert_eq!(
                limits.charge_session(session(1)).expect_err("over the limit").code(),
                Code::RateLimited
            );
        }
        assert!(limits.charge_session(session(2)).is_ok(), "another session has its own window");
        clock.advance(Duration::from_millis(599));
        assert!(limits.charge_session(session(1)).is_err(), "999 ms after the first");
        clock.advance(Duration::from_millis(1));
        assert!(limits.charge_session(session(1)).is_ok(), "1,000 ms after the first");
    }

    #[test]
    fn a_flood_of_addresses_does_not_grow_the_map_beyond_its_bound() {
        let (limits, clock) = limits(1_000);
        for n in 0..rounds(20_000, 200_000u64) {
            let ip = Ipv6Addr::from_bits(u128::from(n) << 64);
            let _ = limits.charge_address(IpAddr::V6(ip));
            if n % 1_000 == 0 {
                clock.advance(Duration::from_millis(1));
            }
        }
        // The shared bucket of newcomers is one more than the bound.
        assert!(limits.entries()[2].1 <= 1_001, "{:?}", limits.entries());
    }

    #[test]
    fn more_sessions_in_one_second_than_the_map_holds_are_refused() {
        let (limits, clock) = limits(3);
        for n in 0..3 {
            assert!(limits.charge_session(session(n)).is_ok());
        }
        assert!(limits.charge_session(session(9)).is_err());
        clock.advance(Duration::from_secs(1));
        assert!(limits.charge_session(session(9)).is_ok());
        assert_eq!(limits.entries()[0].1, 1);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_as_one() {
        let ip = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        assert_eq!(ip("::ffff:192.0.2.1"), ip("192.0.2.1"));
        assert_ne!(ip("192.0.2.1"), ip("192.0.2.2"));
    }

    #[test]
    fn samples_beyond_the_share_are_refused_and_a_giant_batch_counts_as_one_second() {
        let (limits, clock) = limits(10);
        let key = KeyId::from_bytes([7; 10]);
        let settings = IngestSettings { samples_per_s: 1_000, ..IngestSettings::default() };
        assert!(limits.charge_samples(key, &settings, 5_000_000).is_ok());
        assert_eq!(
            limits.charge_samples(key, &settings, 10).expect_err("empty").code(),
            Code::IngestThrottled
        );
        clock.advance(Duration::from_secs(1));
        assert!(limits.charge_samples(key, &settings, 999).is_ok());
        assert!(limits.charge_samples(key, &settings, 0).is_ok());
    }

    #[test]
    fn mails_to_one_address_stop_after_three_of_a_network_and_twenty_of_all() {
        let (limits, clock) = limits(100);
        let client_ip = |n: u8| IpAddr::from([192, 0, 2, n]);
        let sent = |client_ip| (0..10).filter(|_| limits.admits_mail_to([1; 32], client_ip)).count();
        assert_eq!(sent(client_ip(1)), 3);
        assert!(limits.admits_mail_to([2; 32], client_ip(1)));
        assert_eq!((2..20).map(|n| sent(client_ip(n))).sum::<usize>(), 17);
        assert_eq!((0..10).filter(|_| limits.admits_mail_to_known([1; 32])).count(), 5);
        clock.advance(Duration::from_secs(15 * 60));
        assert_eq!(sent(client_ip(1)), 3);
    }

    /// A link is valid for at most an hour. Beyond the bound, the oldest link is dropped.
    #[test]
    fn an_hour_admits_fewer_mails_to_an_address_than_links_are_kept() {
        let (limits, clock) = limits(100_000);
        let mut sent = 0;
        for second in 0..=3_600_u32 {
            let network = IpAddr::V6(Ipv6Addr::from_bits(u128::from(second) << 64));
            sent += usize::from(limits.admits_mail_to([1; 32], network));
            sent += usize::from(limits.admits_mail_to_known([1; 32]));
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(sent, 40 + 25);
        assert!(sent + 25 <= OUTSTANDING_LINKS_MAX, "with a restart in between");
    }
}
