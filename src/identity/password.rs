//! Password hashing and policy (docs/specification.md D2).
//!
//! A hash is stored as its PHC string, `$argon2id$v=19$m=19456,t=2,p=1$<salt>$<output>`. Hashing takes tens of
//! milliseconds and as much memory as it is told to: the caller runs it on a lane of few threads.
//!
//! A hash is verified at the cost it was made at. So that nobody learns from the time an answer takes whether an account
//! exists, or since when its password stands, every verification hashes once at every cost that is in use: the accounts'
//! own, and today's. As people log in their hashes are made anew, and the older costs go out of use.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};

use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

use super::Password;

/// What one hash costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory, KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// OWASP's minimum: 19,456 KiB, 2 passes, 1 lane.
    fn default() -> Argon2Cost {
        Argon2Cost { memory_kib: 19_456, passes: 2, lanes: 1 }
    }
}

/// No stored hash may cost more than this to verify, whoever wrote it: 1 GiB, 16 passes, 16 lanes.
const COST_MAX: Argon2Cost = Argon2Cost { memory_kib: 1 << 20, passes: 16, lanes: 16 };

/// Shortest password, characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// Longest password, bytes.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Passwords that are tried first, one a line, sorted, lower case: words and tails put together by us. The policy of
/// docs/specification.md D2 asks for some 3,000.
const COMMON: &str = include_str!("common_passwords.txt");

/// Why a new password is refused: `weak_password`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    /// Fewer than eight characters.
    #[error("a password has at least {PASSWORD_CHARS_MIN} characters")]
    TooShort,
    /// More than 1,024 bytes.
    #[error("a password has at most {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// Among the most common ones.
    #[error("this password is among the most common ones")]
    Common,
    /// The address or the organisation's name.
    #[error("a password may not be the address or the organisation's name")]
    Personal,
}

/// A password that the policy accepts; `personal` is what it may not be (address, organisation), in any letter case.
///
/// # Errors
/// [`WeakPassword`].
pub(super) fn check_policy(password: Password<'_>, personal: &[&str]) -> Result<(), WeakPassword> {
    let text = password.0;
    if text.len() > PASSWORD_BYTES_MAX {
        return Err(WeakPassword::TooLong);
    }
    if text.chars().count() < PASSWORD_CHARS_MIN {
        return Err(WeakPassword::TooShort);
    }
    let folded = text.to_lowercase();
    if COMMON.lines().any(|common| common == folded) {
        return Err(WeakPassword::Common);
    }
    if personal.iter().any(|own| !own.is_empty() && own.to_lowercase() == folded) {
        return Err(WeakPassword::Personal);
    }
    Ok(())
}

/// Parameters that Argon2 does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("argon2 takes 8 KiB a lane to 1 GiB, 1 to 16 passes, 1 to 16 lanes, not m={},t={},p={}", .0.memory_kib, .0.passes, .0.lanes)]
pub struct CostError(pub Argon2Cost);

/// A stored hash that is none, or asks for more than 1 GiB, 16 passes or 16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored password hash is damaged or costs too much")]
pub struct BadHash;

/// Costs in use at once at most, so that no folder makes a login take for ever. Each of them was `PROMLET_ARGON2` once.
const COSTS_MAX: usize = 8;

/// Hashes at one cost, and verifies at all that are in use.
#[derive(Debug)]
pub(super) struct Passwords {
    params: Params,
    /// Verified when there is nothing else to verify, so that an unknown address takes the same work.
    dummy: String,
    /// Other costs than today's at which some account's hash was made.
    older: Mutex<Arc<[Params]>>,
    /// Verifications run, against the dummy and against real hashes.
    verified: AtomicU64,
    /// KiB of memory that they went over.
    work_kib: AtomicU64,
}

/// What two hashes have in common that take the same work.
fn cost(params: &Params) -> (u32, u32, u32) {
    (params.m_cost(), params.t_cost(), params.p_cost())
}

/// The cost of a stored hash, where it has one that we would pay.
fn cost_of(stored: &str) -> Option<Params> {
    let params = PasswordHash::new(stored).ok().and_then(|hash| Params::try_from(&hash).ok())?;
    (!is_dear(&params)).then_some(params)
}

fn is_dear(params: &Params) -> bool {
    let (memory_kib, passes, lanes) = cost(params);
    memory_kib > COST_MAX.memory_kib || passes > COST_MAX.passes || lanes > COST_MAX.lanes
}

impl Passwords {
    /// Checks the cost and makes the dummy.
    pub(super) fn new(cost: Argon2Cost, rng: &mut Entropy) -> Result<Passwords, CostError> {
        let within = cost.memory_kib <= COST_MAX.memory_kib
            && cost.passes <= COST_MAX.passes
            && cost.lanes <= COST_MAX.lanes;
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None)
            .ok()
            .filter(|_| within)
            .ok_or(CostError(cost))?;
        // Random bytes in the place of a hash: no password is known to have it, and none has to be hashed at every start.
        let dummy = phc(&params, &rng.bytes::<16>(), &rng.bytes::<32>());
        let (older, verified, work_kib) = (Mutex::new(Arc::default()), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Passwords { params, dummy, older, verified, work_kib })
    }

    /// Takes in which costs are in use: those of all hashes that are stored.
    pub(super) fn note_costs<'a>(&self, stored: impl Iterator<Item = &'a str>) {
        let mut older: Vec<Params> = Vec::new();
        for params in stored.filter_map(cost_of) {
            if cost(&params) != cost(&self.params) && !older.iter().any(|one| cost(one) == cost(&params)) {
                older.push(params);
            }
        }
        // In one order, whatever the accounts': the dearest ones stay.
        older.sort_unstable_by_key(|params| std::cmp::Reverse((work(params), cost(params))));
        older.truncate(COSTS_MAX);
        *self.older.lock().ignore_poison() = older.into();
    }

    /// Whether there are hashes of another cost than today's.
    pub(super) fn has_older_costs(&self) -> bool {
        !self.older.lock().ignore_poison().is_empty()
    }

    /// The PHC string of a password, with a fresh salt of 16 bytes.
    pub(super) fn hash(&self, password: Password<'_>, rng: &mut Entropy) -> String {
        let salt: [u8; 16] = rng.bytes();
        let hash = output(&self.params, password.0.as_bytes(), &salt, OUTPUT_BYTES)
            .expect("the cost was checked by Passwords::new and the password's length by the policy");
        phc(&self.params, &salt, &hash)
    }

    /// Whether `password` is the one behind `stored`; without one, does the same work and says no. The work is the same
    /// whatever `stored` cost: one hash at each cost in use.
    pub(super) fn verify(&self, password: Password<'_>, stored: Option<&str>) -> Result<bool, BadHash> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        let text = stored.unwrap_or(&self.dummy);
        let hash = PasswordHash::new(text).map_err(|_| BadHash)?;
        let params = Params::try_from(&hash).map_err(|_| BadHash)?;
        let dear = is_dear(&params);
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return Err(BadHash) };
        if dear || hash.algorithm.as_str() != "argon2id" || hash.version.is_some_and(|version| version != 19)
        {
            return Err(BadHash);
        }
        // An empty or over-long password is refused after the work, like any wrong one.
        let bytes = password.0.as_bytes();
        let bytes = bytes.get(..PASSWORD_BYTES_MAX).unwrap_or(bytes);
        let found = output(&params, bytes, salt, expected.len()).ok_or(BadHash)?;
        let older = Arc::clone(&self.older.lock().ignore_poison());
        for other in older.iter().chain([&self.params]).filter(|other| cost(other) != cost(&params)) {
            // Nobody looks at it, which must be no reason to leave it out.
            black_box(output(other, bytes, salt, OUTPUT_BYTES));
            self.work_kib.fetch_add(work(other), Ordering::Relaxed);
        }
        self.work_kib.fetch_add(work(&params), Ordering::Relaxed);
        // Compared in constant time.
        let right = Output::new(&found).is_ok_and(|found| found == *expected);
        Ok(right && stored.is_some() && password.0.len() <= PASSWORD_BYTES_MAX)
    }

    /// Whether `stored` was made at another cost than today's.
    pub(super) fn is_outdated(&self, stored: &str) -> bool {
        cost_of(stored).is_none_or(|params| cost(&params) != cost(&self.params))
    }

    /// Verifications run so far, the dummy's included.
    pub(super) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// KiB that verifications went over so far.
    pub(super) fn work_kib(&self) -> u64 {
        self.work_kib.load(Ordering::Relaxed)
    }
}

/// KiB that one hash goes over.
fn work(params: &Params) -> u64 {
    u64::from(params.m_cost()).saturating_mul(u64::from(params.t_cost()))
}

/// Bytes of a hash that is made today.
const OUTPUT_BYTES: usize = 32;
/// Blocks of 1 KiB from which on an allocator asks the system for each allocation by itself, and gives it back at once:
/// glibc keeps up to 32 MiB otherwise, and a process that has seen one login would be twice as large ever after.
const OWN_MAPPING_BLOCKS: usize = 33 << 10;

/// Argon2id of a password; none where its inputs are out of bounds.
fn output(params: &Params, password: &[u8], salt: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    let blocks = params.block_count();
    // What is reserved beyond the blocks is never touched, so it costs an address and no memory.
    let mut memory = Vec::with_capacity(blocks.max(OWN_MAPPING_BLOCKS));
    memory.resize(blocks, Block::default());
    let mut out = vec![0; bytes];
    argon2.hash_password_into_with_memory(password, salt, &mut out, &mut memory).ok()?;
    Some(out)
}

/// The string form of a hash.
fn phc(params: &Params, salt: &[u8], hash: &[u8]) -> String {
    let text = |bytes: &[u8]| data_encoding::BASE64_NOPAD.encode(bytes);
    let (memory_kib, passes, lanes) = (params.m_cost(), params.t_cost(), params.p_cost());
    format!("$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${}${}", text(salt), text(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 };

    #[test]
    fn the_policy_refuses_what_is_guessed_first() {
        let cases = [
            ("correct horse", Ok(())),
            ("Zürich-3", Ok(())),
            ("short", Err(WeakPassword::TooShort)),
            ("ääääääää", Ok(())),
            ("äääääää", Err(WeakPassword::TooShort)),
            ("Password123", Err(WeakPassword::Common)),
            ("12345678", Err(WeakPassword::Common)),
            ("Ada@Example.org", Err(WeakPassword::Personal)),
        ];
        for (text, expected) in cases {
            assert_eq!(check_policy(Password(text), &["ada@example.org", ""]), expected, "{text}");
        }
        assert_eq!(check_policy(Password(&"x".repeat(1_025)), &[]), Err(WeakPassword::TooLong));
        assert_eq!(check_policy(Password(&"x".repeat(1_024)), &[]), Ok(()));
    }

    #[test]
    fn the_common_list_is_sorted_and_of_lengths_that_count() {
        let lines: Vec<&str> = COMMON.lines().collect();
        assert!(lines.len() > 3_000);
        assert!(
            lines.is_sorted()
                && lines.iter().all(|l| l.len() >= PASSWORD_CHARS_MIN && *l == l.to_lowercase())
        );
    }

    #[test]
    fn only_the_right_password_verifies_and_an_unknown_user_costs_a_hash_too() {
        let mut rng = Entropy::seeded(1);
        let passwords = Passwords::new(CHEAP, &mut rng).expect("cheap");
        let stored = passwords.hash(Password("open sesame"), &mut rng);
        assert_eq!(passwords.verify(Password("open sesame"), Some(&stored)), Ok(true));
        assert_eq!(passwords.verify(Password("open sesam"), Some(&stored)), Ok(false));
        assert_eq!(passwords.verify(Password("open sesame"), None), Ok(false));
        assert_eq!(passwords.verified(), 3);
    }

    #[test]
    fn a_stored_hash_cannot_ask_for_more_than_the_cap() {
        let mut rng = Entropy::seeded(1);
        let passwords = Passwords::new(CHEAP, &mut rng).expect("cheap");
        let stored = passwords.hash(Password("open sesame"), &mut rng);
        for dear in ["m=1048577,t=1,p=1", "m=8,t=17,p=1", "m=1048576,t=1,p=17"] {
            let text = stored.replace("m=8,t=1,p=1", dear);
            assert_ne!(text, stored);
            assert_eq!(passwords.verify(Password("open sesame"), Some(&text)), Err(BadHash), "{dear}");
        }
        for text in ["", "plain", &stored.replace("argon2id", "argon2i")] {
            assert_eq!(passwords.verify(Password("open sesame"), Some(text)), Err(BadHash), "{text}");
        }
    }

    #[test]
    fn a_hash_of_another_cost_still_verifies_and_is_outdated() {
        let mut rng = Entropy::seeded(1);
        let old = Passwords::new(CHEAP, &mut rng).expect("cheap");
        let stored = old.hash(Password("open sesame"), &mut rng);
        let new = Passwords::new(Argon2Cost { memory_kib: 16, ..CHEAP }, &mut rng).expect("cheap");
        assert_eq!(new.verify(Password("open sesame"), Some(&stored)), Ok(true));
        assert!(new.is_outdated(&stored) && !old.is_outdated(&stored));
    }

    #[test]
    fn a_cost_that_argon2_does_not_take_is_refused() {
        for cost in [
            Argon2Cost { memory_kib: 1, ..CHEAP },
            Argon2Cost { passes: 0, ..CHEAP },
            Argon2Cost { memory_kib: u32::MAX, ..CHEAP },
        ] {
            assert_eq!(Passwords::new(cost, &mut Entropy::seeded(1)).err(), Some(CostError(cost)));
        }
    }
}
