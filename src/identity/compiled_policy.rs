//! A cache of compiled token policies.
//!
//! Compiling the matchers of a token is the one expensive step of verifying it. The result depends on the text of the
//! matchers alone, so the cache holds nothing that could outlive a key, a revocation or an expiry: signature, claims and
//! the key's present policy are checked with every request.
//!
//! Entries are grouped by organisation, bounded in bytes per organisation and in total, and found by the exact text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{LruBounds, Matcher, OrgId, OrgLru};

use super::EmbedPolicy;
use super::matcher_text::{self, PatternLimits};

/// `one` is above what [`PatternLimits::TOKEN`] allows, so that every valid policy can be cached.
const BOUNDS: LruBounds = LruBounds { all: 8 << 20, org: 1 << 20, one: 192 << 10 };
/// The bytes of an entry beside its texts and its patterns, about. It also bounds the number of entries.
const ENTRY_BYTES: usize = 1 << 10;

/// The matchers of a policy, or that they do not compile.
type Compiled = Option<Arc<[Matcher]>>;

/// Compiled matchers of token policies, by organisation and text.
#[derive(Debug)]
pub(super) struct CompiledPolicies {
    cache: OrgLru<Compiled>,
    compilations: AtomicU64,
}

impl Default for CompiledPolicies {
    fn default() -> CompiledPolicies {
        CompiledPolicies { cache: OrgLru::new(BOUNDS), compilations: AtomicU64::new(0) }
    }
}

impl CompiledPolicies {
    /// The matchers of a token's policy; `None` if they do not compile within a token's limits.
    pub(super) fn matchers(&self, org: OrgId, policy: &EmbedPolicy) -> Compiled {
        if policy.matchers.is_empty() {
            return Some(Arc::default());
        }
        let text = cache_key(&policy.matchers);
        if let Some(compiled) = self.cache.get(org, &text) {
            return compiled;
        }
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let compiled: Compiled =
            matcher_text::parse_all(&policy.matchers, PatternLimits::TOKEN).ok().map(Arc::from);
        let patterns: usize = compiled.iter().flat_map(|all| all.iter()).map(Matcher::memory_usage).sum();
        self.cache.insert(org, &text, compiled.clone(), patterns + text.len() + ENTRY_BYTES);
        compiled
    }

    /// The number of policies that were compiled so far.
    pub(super) fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }
}

/// One text of all matchers. Each is preceded by its length, so that no two lists have the same text.
fn cache_key(matchers: &[String]) -> String {
    matchers.iter().map(|text| format!("{}:{text}", text.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(matchers: &[&str]) -> EmbedPolicy {
        EmbedPolicy {
            matchers: matchers.iter().map(|&text| text.to_owned()).collect(),
            ..EmbedPolicy::default()
        }
    }

    #[test]
    fn a_policy_is_compiled_once_and_a_bad_one_too() {
        let policies = CompiledPolicies::default();
        let (good, bad) = (policy(&["a=~\"x.*y\""]), policy(&["a=~\"(\""]));
        for _ in 0..10 {
            assert_eq!(policies.matchers(OrgId(1), &good).map(|all| all.len()), Some(1));
            assert!(policies.matchers(OrgId(1), &bad).is_none());
        }
        assert_eq!(policies.compilations(), 2);
        assert_eq!(policies.matchers(OrgId(1), &policy(&[])).map(|all| all.len()), Some(0));
        assert_eq!(policies.compilations(), 2, "a policy without matchers has nothing to compile");
        assert!(policies.matchers(OrgId(2), &good).is_some());
        assert_eq!(policies.compilations(), 3, "organisations share nothing");
    }

    #[test]
    fn two_lists_of_matchers_never_share_an_entry() {
        let key = |texts: &[&str]| cache_key(&policy(texts).matchers);
        assert_ne!(key(&["a=b", "c=d"]), key(&["a=b3:c=d"]));
        assert_ne!(key(&["a=b", "c=d"]), key(&["c=d", "a=b"]));
        assert_ne!(key(&["a=b"]), key(&["a=b", ""]));
    }

    #[test]
    fn a_flood_of_policies_stays_within_its_bounds_and_leaves_other_organisations_alone() {
        let policies = CompiledPolicies::default();
        let own = policy(&["mine=~\"x.*y\""]);
        assert!(policies.matchers(OrgId(1), &own).is_some());
        for n in 0..3_000 {
            let text = format!("a=~\"{n}.*[a-z]{{20}}\"");
            assert!(policies.matchers(OrgId(2), &policy(&[&text])).is_some());
        }
        policies.cache.check_sums();
        let (entries, bytes) = policies.cache.held(OrgId(2));
        assert!(entries < 1_024 && bytes <= BOUNDS.org, "{entries} entries, {bytes} bytes");
        assert!(policies.matchers(OrgId(1), &own).is_some());
        assert_eq!(policies.compilations(), 3_001, "the other organisation kept its entry");
    }

    /// Sizes are printed with `--nocapture`; the limits must leave room for what people write.
    #[test]
    fn ordinary_patterns_fit_in_a_token_and_large_ones_do_not() {
        let policies = CompiledPolicies::default();
        let admits = |pattern: &str| {
            let text = format!("a=~\"{pattern}\"");
            let compiled = policies.matchers(OrgId(1), &policy(&[&text]));
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
