//! Laws over random alerts, restarts and receivers, and a day of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{Rule, Seen, World};
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::labels::AlertFingerprint;

const WAIT_S: i64 = 30;
const INTERVAL_S: i64 = 120;
const REPEAT_S: i64 = 3_600;

fn config() -> Value {
    json!({
        "route": {
            "receiver": "one", "group_by": ["alertname"], "group_interval": "2m", "repeat_interval": "1h",
            "routes": [{ "matchers": ["i=~\"[0-4]\""], "receiver": "two", "continue": true },
                       { "matchers": ["i=~\".+\""], "receiver": "one" }],
        },
        "receivers": [
            { "name": "one", "webhook_configs": [{ "id": "a", "url": "http://a" }] },
            { "name": "two", "webhook_configs": [{ "id": "b", "url": "http://b" }] },
        ],
    })
}

type Told = BTreeMap<(String, String, String), (Vec<i64>, Vec<i64>)>;

/// Returns the times at which each integration heard of each alert: firing and resolved.
fn notified(seen: &[Seen]) -> Told {
    let mut notified = Told::new();
    for one in seen {
        for (print, start) in &one.firing {
            let key = (one.integration.clone(), print.clone(), start.clone());
            notified.entry(key).or_default().0.push(one.at_s);
        }
        for (print, start) in &one.resolved {
            let key = (one.integration.clone(), print.clone(), start.clone());
            notified.entry(key).or_default().1.push(one.at_s);
        }
    }
    notified
}

fn key_of(integration: &str, rule: &Rule) -> (String, String, String) {
    let print = AlertFingerprint::of(&rule.labels).to_string();
    (integration.to_owned(), print, super::world::at(rule.fires.start).to_rfc3339())
}

fn integrations_of(rule: &Rule) -> &'static [&'static str] {
    match rule.labels["i"].parse::<u32>() {
        Ok(0..=4) => &["a", "b"],
        _ => &["a"],
    }
}

/// Random alerts that do not overlap with others of the same labels.
fn rules(length_s: i64) -> impl Strategy<Value = Vec<(u8, u8, i64, i64)>> {
    proptest::collection::vec((0_u8..3, 0_u8..8, 0..length_s, 10..length_s / 2), 1..20)
}

fn add_rules(world: &mut World, rules: &[(u8, u8, i64, i64)]) {
    let mut free_from: BTreeMap<(u8, u8), i64> = BTreeMap::new();
    let mut rules = rules.to_vec();
    rules.sort_by_key(|rule| rule.2);
    for (name, i, start, length) in rules {
        let free = free_from.entry((name, i)).or_insert(0);
        // Resolved long enough that its message is out before it fires again.
        let start = start.max(*free) / 10 * 10;
        let end = (start + length) / 10 * 10 + 10;
        *free = end + 5_000;
        world.fire(&format!("A{name}"), &[("i", &i.to_string())], start..end);
    }
}

/// Checks the contract for each alert and integration. `late_s` is the longest delay by failures
/// and restarts; `doubles` is the most notifications that may be repeated.
fn check(world: &World, end_s: i64, late_s: i64, doubles: usize) -> Result<(), TestCaseError> {
    let notified = notified(world.all_seen());
    let mut repeated = 0;
    for rule in &world.rules {
        for integration in integrations_of(rule) {
            let (firing, resolved) = notified.get(&key_of(integration, rule)).cloned().unwrap_or_default();
            let deadline = rule.fires.start + WAIT_S + INTERVAL_S + 20 + late_s;
            if deadline < rule.fires.end.min(end_s) {
                let first = firing.first().copied();
                prop_assert!(first.is_some_and(|at| at <= deadline), "{integration} {rule:?} {firing:?}");
            }
            let is_over = rule.fires.end + INTERVAL_S + 20 + late_s < end_s;
            if !firing.is_empty() && is_over {
                prop_assert!(!resolved.is_empty(), "{integration} {rule:?}: no resolved message");
                prop_assert!(resolved.len() <= 1 + doubles, "{integration} {rule:?} {resolved:?}");
            }
            repeated += resolved.len().saturating_sub(1);
            if firing.is_empty() {
                prop_assert!(resolved.is_empty(), "resolved without firing: {rule:?}");
            }
        }
    }
    // Between two notifications about the same start is the repeat interval, or the group changed.
    for one in world.all_seen() {
        let mut earlier = world.all_seen().iter().filter(|other| {
            other.integration == one.integration && other.at_s < one.at_s && other.at_s > one.at_s - REPEAT_S
        });
        let alike =
            |other: &&Seen| other.firing == one.firing && !one.firing.is_empty() && one.resolved.is_empty();
        let last = earlier.rfind(|other| other.name == one.name);
        repeated += usize::from(last.as_ref().is_some_and(alike));
    }
    prop_assert!(repeated <= doubles, "{repeated} notifications were repeated");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_firing_alert_is_notified_in_time_and_resolved_once(rules in rules(8_000)) {
        let mut world = World::new(&config());
        add_rules(&mut world, &rules);
        world.run(0..16_000);
        check(&world, 16_000, 0, 0)?;
    }

    #[test]
    fn a_kill_at_any_moment_repeats_nothing_that_was_stored(
        rules in rules(8_000),
        kills in proptest::collection::vec(1_i64..1_500, 0..12),
        down in 0_i64..60,
    ) {
        let mut world = World::new(&config());
        add_rules(&mut world, &rules);
        let mut now = 0;
        let late = i64::try_from(kills.len()).expect("few") * (down + WAIT_S + 60 + 360);
        for after in kills {
            let after = after / 10 * 10;
            world.run(now..now + after);
            now += after + down / 10 * 10;
            world.kill_and_restart();
        }
        world.run(now..now + 30_000);
        check(&world, now + 30_000, late, 0)?;
    }

    #[test]
    fn a_kill_between_a_delivery_and_its_record_repeats_only_that_one(
        rules in rules(4_000),
        kill in 0_i64..4_000,
        deliveries in 0_usize..3,
    ) {
        let mut world = World::new(&config());
        add_rules(&mut world, &rules);
        let kill = kill / 10 * 10;
        world.run(0..kill);
        world.run(kill..kill + 10);
        let was_killed = world.deliver(deliveries);
        world.kill_and_restart();
        world.run(kill + 10..kill + 20_000);
        check(&world, kill + 20_000, 420, usize::from(was_killed) * 20)?;
    }

    #[test]
    fn failures_delay_notifications_and_lose_none(
        rules in rules(6_000),
        start in 0_i64..6_000,
        length in 0_i64..3_600,
    ) {
        let mut world = World::new(&config());
        add_rules(&mut world, &rules);
        let error = DeliveryOutcome::Retry { after_ms: None, error: "500".to_owned() };
        world.fail("b", start..start + length, error);
        world.run(0..20_000);
        check(&world, 20_000, length + 310, 0)?;
    }
}

#[test]
fn a_day_of_alerts_takes_seconds_and_leaves_nothing_behind() {
    let mut world = World::new(&config());
    for number in 0..400_i64 {
        let start = number * 200;
        let i = (number % 8).to_string();
        world.fire(
            &format!("A{}", number % 40),
            &[("i", &i), ("n", &number.to_string())],
            start..start + 600,
        );
    }
    world.run(0..90_000);
    check(&world, 90_000, 0, 0).expect("the contract");
    assert!(world.notifier.is_idle());
    assert!(world.rows.is_empty(), "{} rows are left", world.rows.len());
}
