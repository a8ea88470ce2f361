//! The ends of series of rules that were replaced or removed shortly before the process started.
//!
//! The engine ends such series after the change, and plans this in memory. A killed process may
//! have stopped before, so a start plans it again for the versions that were replaced in the last
//! hour. Series that have ended, or that another rule continues, are left as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{evaluates, key_of};
use crate::identity::{Identity, RULE_TEXTS_BYTES_MAX, ReplacedRuleVersion};
use crate::model::{OrgId, Timestamp};
use crate::promql::syntax::Caps;
use crate::rules::{Rule, RuleEngine, RuleFileOptions, RuleGroup, RuleGroupKey, decode_rule_group};

/// How long ago a version may have been replaced, in milliseconds, as Prometheus'
/// `rules.alert.for-outage-tolerance`.
pub const REPLACED_MS_MAX: i64 = 3_600_000;
/// The most versions of an organisation whose series are ended, inclusive; the newest ones.
const REPLACED_MAX: usize = 1_000;

/// Plans the ends of the series of rules that were replaced or removed before the process started.
/// To be called at the start and after a promotion, when the engine has the stored groups. Returns
/// whether the versions could be read.
pub fn end_replaced(identity: &Identity, engine: &RuleEngine, now: Timestamp) -> bool {
    let replaced = match identity.replaced_rule_versions(now.plus_ms(-REPLACED_MS_MAX)) {
        Ok(replaced) => replaced,
        Err(error) => {
            tracing::warn!("versions of groups of rules cannot be read: {error}");
            return false;
        }
    };
    let mut by_org: BTreeMap<OrgId, Vec<ReplacedRuleVersion>> = BTreeMap::new();
    for one in replaced {
        by_org.entry(one.place.org).or_default().push(one);
    }
    let caps = engine.settings().caps;
    for (org, mut versions) in by_org.into_iter().filter(|(org, _)| evaluates(identity, *org)) {
        versions.sort_by_key(|one| std::cmp::Reverse(one.replaced_at));
        let mut bytes = 0;
        let fits = |one: &ReplacedRuleVersion| {
            bytes += usize::try_from(one.bytes).unwrap_or(usize::MAX);
            bytes <= RULE_TEXTS_BYTES_MAX
        };
        for one in versions.into_iter().take(REPLACED_MAX).take_while(fits) {
            if let Some(group) = ended_rules(identity, &one, &caps) {
                engine.end_replaced(&ended_key(org, &one), group, one.replaced_at);
            }
        }
    }
    true
}

/// Returns the identity of the replaced version in the engine.
fn ended_key(org: OrgId, one: &ReplacedRuleVersion) -> RuleGroupKey {
    let key = key_of(&one.place);
    RuleGroupKey::of_replaced(org, key.source.as_str(), &key.name, one.version.into())
}

/// Returns the group of a replaced version with the rules that the next version does not have;
/// `None` if it has all, or if a text cannot be read.
fn ended_rules(identity: &Identity, one: &ReplacedRuleVersion, caps: &Caps) -> Option<RuleGroup> {
    let read = |version: u32| -> Option<RuleGroup> {
        let text = identity.rule_group_text(&one.place, version).ok()?;
        decode_rule_group(&text, RuleFileOptions::within(caps)).ok()
    };
    without_rules_of(read(one.version)?, one.next.and_then(read).as_ref())
}

/// Returns `before` with the rules that the version `after` does not have, or writes differently;
/// `None` if there are none.
pub fn without_rules_of(mut before: RuleGroup, after: Option<&RuleGroup>) -> Option<RuleGroup> {
    let kept: BTreeSet<String> = after.into_iter().flat_map(|after| &after.rules).map(result_of).collect();
    before.rules.retain(|rule| !kept.contains(&result_of(rule)));
    (!before.rules.is_empty()).then_some(before)
}

/// Returns a text that is equal for two rules that write the same series.
fn result_of(rule: &Rule) -> String {
    format!("{} {:?} {:?} {}", rule.alerting().is_some(), rule.name(), rule.labels, rule.expr)
}
