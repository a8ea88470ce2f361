//! A cache of compiled token policies.
//!
//! Compiling the matchers of a token, which include its locked variables, is the only expensive
//! step of verifying it. The result depends on the text of the matchers alone, so no entry can
//! outlive a key, a revocation or an expiry: signature, claims and the key's current policy are
//! checked with every request.
//!
//! Entries belong to the API key that signed the token and are looked up by the exact text. They
//! are bounded in bytes per organisation and in total. Within an organisation the key with the most
//! bytes loses entries, so a flood of one key's tokens removes no entry of a key that uses less.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{LruBounds, Matcher, OrgId, OrgLru};

use crate::identity::keys::dashboard_policy::matcher_texts;
use crate::identity::keys::policy_matcher::{self, PatternLimits};
use crate::identity::tables::id::KeyId;
use crate::identity::tables::key::EmbedPolicy;

/// `one` is above what [`PatternLimits::TOKEN`] allows, so that every valid policy can be cached.
const BOUNDS: LruBounds = LruBounds { all: 8 << 20, org: 1 << 20, one: 192 << 10 };
/// Approximate size of an entry without its texts and patterns, in bytes. It also bounds the number
/// of entries.
const ENTRY_BYTES: usize = 1 << 10;

/// The compiled matchers of a policy; `None` if they do not compile.
type Compiled = Option<Arc<[Matcher]>>;

/// Compiled matchers of token policies, by organisation and text.
#[derive(Debug)]
pub(in crate::identity) struct CompiledPolicies {
    cache: OrgLru<Compiled, KeyId>,
    compilations: AtomicU64,
}

impl Default for CompiledPolicies {
    fn default() -> CompiledPolicies {
        CompiledPolicies { cache: OrgLru::new(BOUNDS), compilations: AtomicU64::new(0) }
    }
}

impl CompiledPolicies {
    /// Returns the matchers of a policy if no pattern has to be compiled for them.
    pub(super) fn cached(&self, org: OrgId, key: KeyId, policy: &EmbedPolicy) -> Option<Compiled> {
        let texts = matcher_texts(policy);
        if texts.iter().all(|text| !text.contains('~')) {
            return Some(self.compile(org, key, &texts));
        }
        self.cache.get(org, &cache_key(key, &texts))
    }

    /// Returns the matchers of a policy of a token that `key` signed; `None` if they do not compile
    /// within a token's limits. Compiling takes about 4 ms at most: the slowest known pattern takes
    /// 1 ms, and the limits of a token admit four of them.
    pub(in crate::identity) fn matchers(&self, org: OrgId, key: KeyId, policy: &EmbedPolicy) -> Compiled {
        self.compile(org, key, &matcher_texts(policy))
    }

    fn compile(&self, org: OrgId, key: KeyId, texts: &[String]) -> Compiled {
        if texts.is_empty() {
            return Some(Arc::default());
        }
        let text = cache_key(key, texts);
        if let Some(compiled) = self.cache.get(org, &text) {
            return compiled;
        }
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let compiled: Compiled = policy_matcher::parse_all(texts, PatternLimits::TOKEN).ok().map(Arc::from);
        let patterns: usize = compiled.iter().flat_map(|all| all.iter()).map(Matcher::memory_usage).sum();
        self.cache.insert_of((org, key), &text, compiled.clone(), patterns + text.len() + ENTRY_BYTES);
        compiled
    }

    /// Returns the number of policies compiled so far.
    pub(super) fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }
}

/// Returns the cache key of a key's matchers. The length before each text makes the keys of two
/// lists distinct.
fn cache_key(key: KeyId, matchers: &[String]) -> String {
    let texts = matchers.iter().map(|text| format!("{}:{text}", text.len()));
    std::iter::once(key.to_string()).chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    /// Returns the key id of a seed.
    fn key(seed: u64) -> KeyId {
        KeyId::random(&mut Entropy::seeded(seed))
    }

    fn policy(matchers: &[&str]) -> EmbedPolicy {
        EmbedPolicy {
            matchers: matchers.iter().map(|&text| text.to_owned()).collect(),
            ..EmbedPolicy::default()
        }
    }

    #[test]
    fn valid_and_invalid_policies_are_compiled_once() {
        let policies = CompiledPolicies::default();
        let (good, bad) = (policy(&["a=~\"x.*y\""]), policy(&["a=~\"(\""]));
        for _ in 0..10 {
            assert_eq!(policies.matchers(OrgId(1), key(1), &good).map(|all| all.len()), Some(1));
            assert!(policies.matchers(OrgId(1), key(1), &bad).is_none());
        }
        assert_eq!(policies.compilations(), 2);
        assert_eq!(policies.matchers(OrgId(1), key(1), &policy(&[])).map(|all| all.len()), Some(0));
        assert_eq!(policies.compilations(), 2, "a policy without matchers has nothing to compile");
        assert!(policies.matchers(OrgId(2), key(2), &good).is_some());
        assert_eq!(policies.compilations(), 3, "organisations share nothing");
    }

    #[test]
    fn two_lists_of_matchers_never_share_an_entry() {
        let of = |texts: &[&str]| cache_key(key(1), &policy(texts).matchers);
        assert_ne!(of(&["a=b", "c=d"]), of(&["a=b3:c=d"]));
        assert_ne!(of(&["a=b", "c=d"]), of(&["c=d", "a=b"]));
        assert_ne!(of(&["a=b"]), of(&["a=b", ""]));
        assert_ne!(of(&["a=b"]), cache_key(key(2), &policy(&["a=b"]).matchers));
    }

    #[test]
    fn a_flood_of_policies_stays_within_its_bounds_and_leaves_other_organisations_alone() {
        let policies = CompiledPolicies::default();
        let own = policy(&["mine=~\"x.*y\""]);
        assert!(policies.matchers(OrgId(1), key(1), &own).is_some());
        for n in 0..3_000 {
            let text = format!("a=~\"{n}.*[a-z]{{20}}\"");
            assert!(policies.matchers(OrgId(2), key(2), &policy(&[&text])).is_some());
        }
        policies.cache.check_sums();
        let (entries, bytes) = policies.cache.held(OrgId(2));
        assert!(entries < 1_024 && bytes <= BOUNDS.org, "{entries} entries, {bytes} bytes");
        assert!(policies.matchers(OrgId(1), key(1), &own).is_some());
        assert_eq!(policies.compilations(), 3_001, "the other organisation kept its entry");
    }

    #[test]
    fn a_flood_of_one_keys_policies_leaves_the_other_keys_of_its_organisation_alone() {
        let policies = CompiledPolicies::default();
        let own = policy(&["mine=~\"x.*y\""]);
        assert!(policies.cached(OrgId(1), key(1), &own).is_none());
        assert!(policies.matchers(OrgId(1), key(1), &own).is_some());
        for n in 0..1_500 {
            let text = format!("a=~\"{n}.*[a-z]{{20}}\"");
            assert!(policies.matchers(OrgId(1), key(2), &policy(&[&text])).is_some());
        }
        policies.cache.check_sums();
        assert!(policies.cache.held(OrgId(1)).0 < 1_500, "the bound was reached");
        assert!(policies.cached(OrgId(1), key(1), &own).flatten().is_some(), "the other key kept its entry");
        assert!(policies.cached(OrgId(1), key(2), &own).is_none(), "keys share nothing");
        assert!(
            policies.cached(OrgId(1), key(2), &policy(&["a=b"])).flatten().is_some(),
            "nothing to compile"
        );
    }

    /// Sizes are printed with `--nocapture`; the limits must admit the patterns that people use.
    #[test]
    fn ordinary_patterns_fit_in_a_token_and_large_ones_do_not() {
        let policies = CompiledPolicies::default();
        let admits = |pattern: &str| {
            let text = format!("a=~\"{pattern}\"");
            let compiled = policies.matchers(OrgId(1), key(1), &policy(&[&text]));
            let bytes = compiled.iter().flat_map(|all| all.iter()).map(Matcher::memory_usage).sum::<usize>();
            eprintln!("{pattern}: {bytes}");
            compiled.is_some()
        };
        for pattern in [
            "prod|stage",
            ".*-prod-.*",
            "(?i)eu-(west|north)-[0-9]+",
            "[a-z0-9-]+.example.com(:[0-9]+)?",
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "(web|api|db)[0-9]{1,3}|cache.+",
        ] {
            assert!(admits(pattern), "{pattern}");
        }
        for pattern in ["(x{50}){50}", "[a-z]{1000}{2}"] {
            assert!(!admits(pattern), "{pattern}");
        }
    }
}
