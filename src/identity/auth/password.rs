//! Password hashing and policy (docs/specification.md D2).
//!
//! A hash is stored as its PHC string, `$argon2id$v=19$m=19456,t=2,p=1$<salt>$<output>`. Hashing
//! takes tens of milliseconds and `memory_kib` of memory: the caller runs it on a lane of few
//! threads.
//!
//! A hash is verified at the cost at which it was created. The response time must not reveal
//! whether an account exists or how old its password is. So every verification hashes once at each
//! cost in use: those of the accounts and today's. A login replaces a hash of an older cost, so
//! older costs go out of use.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};

use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

use crate::identity::auth::credentials::Password;
use crate::identity::options::{Argon2Cost, CostError};
use crate::identity::tables::store::BadHash;

/// Maximum cost of verifying a stored hash: 1 GiB, 16 passes, 16 lanes.
const COST_MAX: Argon2Cost = Argon2Cost { memory_kib: 1 << 20, passes: 16, lanes: 16 };

/// Minimum length of a password, characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// Maximum length of a password, bytes.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// The most commonly guessed passwords, one a line, sorted, in lower case: our own combinations of
/// words and suffixes. The policy of docs/specification.md D2 requires about 3,000.
const COMMON: &str = include_str!("common_passwords.txt");

/// Reasons to refuse a new password: `weak_password`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    /// Fewer than eight characters.
    #[error("a password has at least {PASSWORD_CHARS_MIN} characters")]
    TooShort,
    /// More than 1,024 bytes.
    #[error("a password has at most {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// The password is in the list of common passwords.
    #[error("this password is among the most common ones")]
    Common,
    /// The password equals the address or the name of the organisation.
    #[error("a password must not be the address or the organisation's name")]
    Personal,
}

/// Checks a password against the policy. It must not equal any text in `personal` (address,
/// organisation), ignoring case.
///
/// # Errors
/// [`WeakPassword`].
pub(in crate::identity) fn check_policy(
    password: Password<'_>,
    personal: &[&str],
) -> Result<(), WeakPassword> {
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

/// Maximum number of older costs, so that no data folder makes a login arbitrarily slow. Each was
/// once the value of `PROMLET_ARGON2`.
const COSTS_MAX: usize = 8;

/// Password hashing at today's cost, and verification at all costs in use.
#[derive(Debug)]
pub(in crate::identity) struct Passwords {
    params: Params,
    /// Hash that is verified if there is no other, so that an unknown address causes the same work.
    dummy: String,
    /// Older costs at which the hash of any account was created.
    older: Mutex<Arc<[Params]>>,
    /// Number of verifications, those against the dummy included.
    verified: AtomicU64,
    /// KiB of memory that they processed.
    work_kib: AtomicU64,
}

/// Returns the parameters that determine the work of a hash.
fn cost(params: &Params) -> (u32, u32, u32) {
    (params.m_cost(), params.t_cost(), params.p_cost())
}

/// Returns the cost of a stored hash if it is within the maximum.
fn cost_of(stored: &str) -> Option<Params> {
    let params = PasswordHash::new(stored).ok().and_then(|hash| Params::try_from(&hash).ok())?;
    (!exceeds_max(&params)).then_some(params)
}

fn exceeds_max(params: &Params) -> bool {
    let (memory_kib, passes, lanes) = cost(params);
    memory_kib > COST_MAX.memory_kib || passes > COST_MAX.passes || lanes > COST_MAX.lanes
}

impl Passwords {
    /// Checks the cost and creates the dummy.
    pub(in crate::identity) fn new(cost: Argon2Cost, rng: &mut Entropy) -> Result<Passwords, CostError> {
        let within = cost.memory_kib <= COST_MAX.memory_kib
            && cost.passes <= COST_MAX.passes
            && cost.lanes <= COST_MAX.lanes;
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None)
            .ok()
            .filter(|_| within)
            .ok_or(CostError(cost))?;
        // Random bytes in place of a hash: no password is known for it, and no start has to hash
        // one.
        let dummy = phc(&params, &rng.bytes::<16>(), &rng.bytes::<32>());
        let (older, verified, work_kib) = (Mutex::new(Arc::default()), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Passwords { params, dummy, older, verified, work_kib })
    }

    /// Updates the costs in use from all stored hashes.
    pub(in crate::identity) fn update_costs<'a>(&self, stored: impl Iterator<Item = &'a str>) {
        let mut older: Vec<Params> = Vec::new();
        for params in stored.filter_map(cost_of) {
            if cost(&params) != cost(&self.params) && !older.iter().any(|one| cost(one) == cost(&params)) {
                older.push(params);
            }
        }
        // A fixed order, independent of that of the accounts; the most expensive costs are kept.
        older.sort_unstable_by_key(|params| std::cmp::Reverse((work(params), cost(params))));
        older.truncate(COSTS_MAX);
        *self.older.lock().ignore_poison() = older.into();
    }

    /// Returns whether hashes of another cost than today's exist.
    pub(in crate::identity) fn has_older_costs(&self) -> bool {
        !self.older.lock().ignore_poison().is_empty()
    }

    /// Returns the PHC string of a password, with a new salt of 16 bytes.
    pub(in crate::identity) fn hash(&self, password: Password<'_>, rng: &mut Entropy) -> String {
        let salt: [u8; 16] = rng.bytes();
        let hash = output(&self.params, password.0.as_bytes(), &salt, OUTPUT_BYTES)
            .expect("the cost was checked by Passwords::new and the password's length by the policy");
        phc(&self.params, &salt, &hash)
    }

    /// Returns whether `password` matches `stored`; without `stored`, does the same work and
    /// returns `false`. The work does not depend on the cost of `stored`: one hash at each cost in
    /// use.
    pub(in crate::identity) fn verify(
        &self,
        password: Password<'_>,
        stored: Option<&str>,
    ) -> Result<bool, BadHash> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        let text = stored.unwrap_or(&self.dummy);
        let hash = PasswordHash::new(text).map_err(|_| BadHash)?;
        let params = Params::try_from(&hash).map_err(|_| BadHash)?;
        let too_expensive = exceeds_max(&params);
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return Err(BadHash) };
        if too_expensive
            || hash.algorithm.as_str() != "argon2id"
            || hash.version.is_some_and(|version| version != 19)
        {
            return Err(BadHash);
        }
        // An empty or over-long password is refused after the work, like any wrong one.
        let bytes = password.0.as_bytes();
        let bytes = bytes.get(..PASSWORD_BYTES_MAX).unwrap_or(bytes);
        let found = output(&params, bytes, salt, expected.len()).ok_or(BadHash)?;
        let older = Arc::clone(&self.older.lock().ignore_poison());
        for other in older.iter().chain([&self.params]).filter(|other| cost(other) != cost(&params)) {
            // The result is unused; `black_box` keeps the compiler from removing the work.
            black_box(output(other, bytes, salt, OUTPUT_BYTES));
            self.work_kib.fetch_add(work(other), Ordering::Relaxed);
        }
        self.work_kib.fetch_add(work(&params), Ordering::Relaxed);
        // Compared in constant time.
        let right = Output::new(&found).is_ok_and(|found| found == *expected);
        Ok(right && stored.is_some() && password.0.len() <= PASSWORD_BYTES_MAX)
    }

    /// Returns whether `stored` was created at another cost than today's.
    pub(super) fn is_outdated(&self, stored: &str) -> bool {
        cost_of(stored).is_none_or(|params| cost(&params) != cost(&self.params))
    }

    /// Returns the number of verifications so far, the dummy's included.
    pub(in crate::identity) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Returns the KiB that all verifications have processed so far.
    pub(in crate::identity) fn work_kib(&self) -> u64 {
        self.work_kib.load(Ordering::Relaxed)
    }
}

/// Returns the KiB that one hash processes.
fn work(params: &Params) -> u64 {
    u64::from(params.m_cost()).saturating_mul(u64::from(params.t_cost()))
}

/// Length of a new hash, bytes.
const OUTPUT_BYTES: usize = 32;
/// Number of 1 KiB blocks from which on an allocator maps each allocation separately and returns it
/// to the system at once. glibc keeps up to 32 MiB otherwise, and a process would stay twice as
/// large after its first login.
const OWN_MAPPING_BLOCKS: usize = 33 << 10;

/// Returns the Argon2id output for a password; `None` if the inputs are out of bounds.
fn output(params: &Params, password: &[u8], salt: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    let blocks = params.block_count();
    // Reserved memory beyond the blocks is never touched, so it uses address space only.
    let mut memory = Vec::with_capacity(blocks.max(OWN_MAPPING_BLOCKS));
    memory.resize(blocks, Block::default());
    let mut out = vec![0; bytes];
    argon2.hash_password_into_with_memory(password, salt, &mut out, &mut memory).ok()?;
    Some(out)
}

/// Returns the PHC string of a hash.
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
    fn the_policy_refuses_commonly_guessed_passwords() {
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
    fn the_common_list_is_sorted_and_has_no_entry_below_the_minimum_length() {
        let lines: Vec<&str> = COMMON.lines().collect();
        assert!(lines.len() > 3_000);
        assert!(
            lines.is_sorted()
                && lines.iter().all(|l| l.len() >= PASSWORD_CHARS_MIN && *l == l.to_lowercase())
        );
    }

    #[test]
    fn only_the_right_password_verifies_and_an_unknown_user_costs_a_hash_as_well() {
        let mut rng = Entropy::seeded(1);
        let passwords = Passwords::new(CHEAP, &mut rng).expect("cheap");
        let stored = passwords.hash(Password("open sesame"), &mut rng);
        assert_eq!(passwords.verify(Password("open sesame"), Some(&stored)), Ok(true));
        assert_eq!(passwords.verify(Password("open sesam"), Some(&stored)), Ok(false));
        assert_eq!(passwords.verify(Password("open sesame"), None), Ok(false));
        assert_eq!(passwords.verified(), 3);
    }

    #[test]
    fn a_stored_hash_above_the_maximum_cost_is_refused() {
        let mut rng = Entropy::seeded(1);
        let passwords = Passwords::new(CHEAP, &mut rng).expect("cheap");
        let stored = passwords.hash(Password("open sesame"), &mut rng);
        for costly in ["m=1048577,t=1,p=1", "m=8,t=17,p=1", "m=1048576,t=1,p=17"] {
            let text = stored.replace("m=8,t=1,p=1", costly);
            assert_ne!(text, stored);
            assert_eq!(passwords.verify(Password("open sesame"), Some(&text)), Err(BadHash), "{costly}");
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
    fn a_cost_outside_of_argon2s_limits_is_refused() {
        for cost in [
            Argon2Cost { memory_kib: 1, ..CHEAP },
            Argon2Cost { passes: 0, ..CHEAP },
            Argon2Cost { memory_kib: u32::MAX, ..CHEAP },
        ] {
            assert_eq!(Passwords::new(cost, &mut Entropy::seeded(1)).err(), Some(CostError(cost)));
        }
    }
}
