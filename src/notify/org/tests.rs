//! The state of an organisation under an injected clock: the waits of groups, suppression,
//! receivers that fail, restarts, and a day of alerts.

mod day;
mod world;

use serde_json::{Value, json};

use super::*;
use crate::notify::alertmanager::discovery::fixed_endpoint;
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::limits::{ALERTS_MAX, TESTS_PER_HOUR_MAX};
use crate::notify::matcher::AlertMatchers;
use world::{Seen, World, print_of};

/// A route of one webhook, with 30 s, 5 min and 4 h as Alertmanager has by default.
fn one_hook() -> Value {
    json!({
        "route": { "receiver": "team", "group_by": ["alertname"] },
        "receivers": [{ "name": "team", "webhook_configs": [{ "id": "hook", "url": "http://h" }] }],
    })
}

fn times(seen: &[Seen]) -> Vec<i64> {
    seen.iter().map(|one| one.at_s).collect()
}

#[test]
fn a_group_waits_then_reports_changes_and_repeats() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[("i", "1")], 0..20_000);
    world.fire("A", &[("i", "2")], 20..20_000);
    world.fire("A", &[("i", "3")], 100..20_000);
    world.fire("B", &[], 50..400);
    world.run(0..16_000);
    let a = world.seen("hook", "A");
    // 30 s after the first alert; 5 min later with the third; 4 h after that one again.
    assert_eq!(times(&a), [30, 330, 14_730]);
    assert_eq!(a[0].firing.len(), 2);
    assert_eq!(a[1].firing.len(), 3);
    let b = world.seen("hook", "B");
    assert_eq!(times(&b), [80, 680]);
    assert_eq!((b[1].firing.len(), b[1].resolved.len()), (0, 1));
}

#[test]
fn an_earlier_start_of_a_firing_alert_is_no_new_alert_and_a_later_one_after_its_end_is() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 100..300);
    world.run(100..200);
    // Another source reports an earlier start.
    world.offer("A", &[], 50, false);
    world.run(200..1_000);
    let seen = world.seen("hook", "A");
    assert_eq!(times(&seen), [130, 430]);
    assert_eq!((seen[1].firing.len(), seen[1].resolved.len()), (0, 1));
    world.fire("A", &[], 2_000..2_600);
    world.run(2_000..2_100);
    assert_eq!(times(&world.seen("hook", "A"))[2..], [2_030]);
}

#[test]
fn an_alert_that_ends_before_the_wait_is_never_reported() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..20);
    world.run(0..2_000);
    assert!(world.all_seen().is_empty());
    assert!(world.notifier.is_idle(), "nothing is kept");
    assert!(world.rows.is_empty());
}

#[test]
fn an_alert_that_is_not_sent_again_resolves_by_itself() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..600);
    world.rules_stop_at = Some(300);
    world.run(0..3_000);
    let seen = world.seen("hook", "A");
    // The last state of 240 s was valid for 4 min; the next flush of the group is at 630 s.
    assert_eq!(times(&seen), [30, 630]);
    assert_eq!(seen[1].resolved.len(), 1);
}

#[test]
fn a_silence_holds_back_firing_alerts_and_their_report_follows_its_end() {
    let mut world = World::new(&one_hook());
    let silence = world.silence("a=~\"x|y\"", 0, 1_000);
    world.fire("A", &[("a", "x")], 0..5_000);
    world.fire("A", &[("a", "z")], 0..5_000);
    world.run(0..2_000);
    let seen = world.seen("hook", "A");
    assert_eq!(times(&seen), [30, 1_230]);
    assert_eq!((seen[0].firing.len(), seen[1].firing.len()), (1, 2));
    let view = world.notifier.silence(&silence).expect("kept");
    assert_eq!(view.to_json(world.now())["status"]["state"], "expired");
}

#[test]
fn an_alert_that_was_reported_and_then_silenced_is_reported_as_resolved() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..500);
    world.run(0..100);
    world.silence("alertname=A", 100, 10_000);
    world.run(100..2_000);
    let seen = world.seen("hook", "A");
    assert_eq!(times(&seen), [30, 630]);
    assert_eq!(seen[1].resolved.len(), 1);
}

#[test]
fn silences_are_changed_in_place_or_replaced() {
    let mut world = World::new(&one_hook());
    let new = |text: &str, end: i64| {
        let mut matchers = AlertMatchers::default();
        matchers.push_text(text).expect("valid");
        let (starts_at, ends_at) = (world::at(0), world::at(end));
        NewSilence { matchers, starts_at, ends_at, created_by: "ada".into(), comment: String::new() }
    };
    let notifier = &mut world.notifier;
    let id = notifier.set_silence(None, new("a=1", 100), world::at(0)).expect("valid");
    assert_eq!(notifier.set_silence(Some(&id), new("a=1", 200), world::at(10)), Ok(Arc::clone(&id)));
    let other = notifier.set_silence(Some(&id), new("a=2", 200), world::at(10)).expect("valid");
    assert_ne!(other, id);
    assert_eq!(notifier.silence(&id).expect("kept").ends_at, world::at(10), "ended");
    assert_eq!(notifier.expire_silence("x", world::at(10)), Err(SilenceError::NotFound));
    for (text, end) in [("a=\"\"", 100), ("a=1", 0), ("", 100)] {
        let refused = notifier.set_silence(None, new(text, end), world::at(0));
        assert!(matches!(refused, Err(SilenceError::Invalid { .. })), "{text}");
    }
    let most = crate::notify::limits::SILENCES_MAX - 2;
    for _ in 0..most {
        notifier.set_silence(None, new("a=1", 100), world::at(0)).expect("room");
    }
    assert_eq!(notifier.set_silence(None, new("a=1", 100), world::at(0)), Err(SilenceError::TooMany));
    // Expired silences are removed after five days.
    notifier.step(world::at(6 * 86_400));
    assert_eq!(notifier.silences().count(), 0);
}

#[test]
fn an_acknowledged_alert_is_not_repeated_and_its_end_is_reported() {
    let mut config = one_hook();
    config["route"]["repeat_interval"] = json!("10m");
    let mut world = World::new(&config);
    world.fire("A", &[], 0..5_000);
    world.run(0..700);
    assert_eq!(times(&world.seen("hook", "A")), [30, 630]);
    let print = print_of("A", &[]);
    let now = world.now();
    let acknowledged = world.notifier.acknowledge(print, "ada", "on it", now);
    assert_eq!(acknowledged.map(|one| one.author), Ok("ada".to_owned()));
    world.deliver(usize::MAX);
    world.kill_and_restart();
    world.run(700..6_000);
    let seen = world.seen("hook", "A");
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[2].resolved.len(), 1);
    // The next start is reported.
    world.fire("A", &[], 6_000..8_000);
    world.run(6_000..7_000);
    assert_eq!(world.seen("hook", "A")[3].firing.len(), 1);
    let refused = world.notifier.acknowledge(print_of("B", &[]), "ada", "", world::at(7_000));
    assert_eq!(refused.map(drop), Err(AcknowledgeError::NotFiring));
}

#[test]
fn a_source_inhibits_targets_with_equal_labels_until_it_ends() {
    let mut config = one_hook();
    config["inhibit_rules"] = json!([{
        "source_matchers": ["severity=page"], "target_matchers": ["severity=~\"ticket|page\""], "equal": ["job"],
    }]);
    let mut world = World::new(&config);
    world.fire("Down", &[("severity", "page"), ("job", "x")], 0..1_000);
    world.fire("Slow", &[("severity", "ticket"), ("job", "x")], 0..5_000);
    world.fire("Slow", &[("severity", "ticket"), ("job", "y")], 0..5_000);
    world.run(0..3_000);
    assert_eq!(times(&world.seen("hook", "Down")), [30, 1_230], "it does not inhibit itself");
    let slow = world.seen("hook", "Slow");
    assert_eq!(times(&slow), [30, 1_230]);
    assert_eq!((slow[0].firing.len(), slow[1].firing.len()), (1, 2));
}

#[test]
fn quiet_hours_delay_firing_and_resolved_alerts_to_their_end() {
    let mut config = one_hook();
    config["time_intervals"] = json!([{ "name": "night", "time_intervals": [
        { "times": [{ "start_time": "00:00", "end_time": "01:00" }] }] }]);
    config["route"]["routes"] = json!([{ "matchers": ["q=1"], "mute_time_intervals": ["night"] }]);
    let mut world = World::new(&config);
    world.fire("A", &[("q", "1")], 0..6_000);
    world.fire("B", &[("q", "0")], 0..6_000);
    world.run(0..84_000);
    assert_eq!(times(&world.seen("hook", "A")), [3_630, 6_030]);
    assert_eq!(times(&world.seen("hook", "B")), [30, 6_030]);
    world.fire("A", &[("q", "1")], 85_000..87_000);
    world.run(84_000..95_000);
    // The day ended meanwhile: the resolved message waits for one o'clock.
    assert_eq!(times(&world.seen("hook", "A"))[2..], [85_030, 90_130]);
}

#[test]
fn a_receiver_that_fails_for_an_hour_delays_no_other_and_then_gets_the_present_state() {
    let mut config = one_hook();
    let hook = json!({ "id": "broken", "url": "http://b" });
    config["receivers"][0]["webhook_configs"].as_array_mut().expect("a list").push(hook);
    let mut world = World::new(&config);
    world.fail("broken", 0..3_600, DeliveryOutcome::Retry { after_ms: None, error: "500".into() });
    world.fire("A", &[], 0..1_000);
    world.fire("A", &[("i", "2")], 500..9_000);
    world.run(0..5_000);
    assert_eq!(times(&world.seen("hook", "A")), [30, 630, 1_230]);
    let late = world.seen("broken", "A");
    assert_eq!(late.len(), 1, "{late:?}");
    assert!((3_600..3_910).contains(&late[0].at_s));
    assert_eq!((late[0].firing.len(), late[0].resolved.len()), (1, 0), "the first one is over");
    let status = world.notifier.status(world.now());
    let broken = status.integrations.iter().find(|one| &*one.id == "broken").expect("known");
    assert!(broken.counts.retried > 10 && broken.counts.retried < 40, "{:?}", broken.counts);
    assert_eq!(broken.last_error.as_ref().map(|error| error.text.as_str()), Some("500"));
}

#[test]
fn a_lag_and_the_next_attempt_are_shown_and_retry_after_is_obeyed() {
    let mut world = World::new(&one_hook());
    world.fail("hook", 0..10_000, DeliveryOutcome::Retry { after_ms: Some(1_800_000), error: "503".into() });
    world.fire("A", &[], 0..9_000);
    world.run(0..1_000);
    let status = world.notifier.status(world.now());
    assert_eq!(status.integrations[0].lag_ms, 960_000);
    assert_eq!(status.integrations[0].next_retry, Some(world::at(1_830)));
    assert_eq!(status.integrations[0].counts.retried, 1);
}

#[test]
fn a_refused_notification_is_tried_again_with_the_next_look_at_the_group() {
    let mut world = World::new(&one_hook());
    world.fail("hook", 0..600, DeliveryOutcome::Refused { error: "404".into() });
    world.fire("A", &[], 0..9_000);
    world.run(0..1_000);
    assert_eq!(times(&world.seen("hook", "A")), [630]);
    assert_eq!(world.notifier.status(world.now()).integrations[0].counts.refused, 2);
}

#[test]
fn a_restart_repeats_nothing_and_loses_no_resolved_message() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..20_000);
    world.fire("B", &[], 0..250);
    world.run(0..200);
    // While the server is down, B ends, and its rule is removed.
    world.kill_and_restart();
    world.rules.retain(|rule| rule.name == "A");
    world.run(300..14_000);
    assert_eq!(times(&world.seen("hook", "A")), [30]);
    let b = world.seen("hook", "B");
    assert_eq!((b.len(), b[1].resolved.len()), (2, 1), "{b:?}");
    world.run(14_000..15_000);
    assert_eq!(world.seen("hook", "A").len(), 2, "the repeat interval has passed");
}

#[test]
fn an_end_that_a_client_set_survives_a_restart() {
    let mut world = World::new(&one_hook());
    world.post_until("A", 900);
    world.run(0..100);
    world.kill_and_restart();
    assert_eq!(world.end_s(), 900);
    world.post_until("A", 1_500);
    world.run(100..200);
    world.kill_and_restart();
    assert_eq!(world.end_s(), 1_500, "the changed end");
    world.run(200..4_000);
    let seen = world.seen("hook", "A");
    let resolved = seen.last().expect("resolved");
    assert!(resolved.resolved.len() == 1 && resolved.at_s >= 1_500, "{seen:?}");
}

#[test]
fn after_a_restart_an_alert_without_an_own_end_stays_valid_as_long_as_after_it_was_sent() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..20_000);
    world.run(0..200);
    world.kill_and_restart();
    assert_eq!(world.end_s(), 190 + 240);
    // A client whose end moves with each sending.
    let mut world = World::new(&one_hook());
    for start in [0, 60, 120, 180] {
        world.run(start..start + 60);
        world.post_until("A", start + 50 + 240);
    }
    world.run(240..270);
    world.kill_and_restart();
    assert_eq!(world.end_s(), 260 + 240);
}

#[test]
fn an_hour_that_the_clock_jumps_neither_resolves_nor_delays_alerts() {
    for jump in [-3_600, 3_600] {
        let mut world = World::new(&one_hook());
        world.fire("A", &[], 0..30_000);
        world.run(10_000..10_100);
        let before = world.all_seen().len();
        world.fire("B", &[], 0..30_000);
        world.run(10_100 + jump..10_400 + jump);
        let after = &world.all_seen()[before..];
        assert_eq!(after.len(), 1, "{jump}: {after:?}");
        assert_eq!((after[0].name.as_str(), after[0].firing.len()), ("B", 1));
        world.run(10_400 + jump..12_000 + jump);
        assert_eq!(world.all_seen().len(), before + 1, "{jump}");
    }
}

#[test]
fn alerts_are_bounded_and_dropped_ones_are_counted() {
    let mut world = World::new(&one_hook());
    for number in 0..ALERTS_MAX + 5 {
        world.offer("A", &[("i", &number.to_string())], 0, false);
    }
    world.offer("Large", &[("x", &"y".repeat(40_000))], 0, false);
    let status = world.notifier.status(world::at(0));
    assert_eq!((status.alerts, status.groups, status.counts.dropped), (ALERTS_MAX, 1, 6));
    // One message has a bounded number of alerts; the others follow at once.
    world.run_steps(0..60);
    let seen = world.seen("hook", "A");
    let notified: usize = seen.iter().map(|one| one.firing.len()).sum();
    assert_eq!((seen.len(), notified), (ALERTS_MAX / 200, ALERTS_MAX));
    assert!(seen.iter().all(|one| one.at_s <= 60));
    // All alerts are known after a kill.
    assert!(world.rows.values().all(|row| row.len() < 100_000));
    world.kill_and_restart();
    world.run_steps(60..95);
    assert_eq!(world.all_seen().len(), seen.len());
}

#[test]
fn mails_are_limited_per_hour_and_the_rest_follows_in_the_next_one() {
    let mut world = World::new(&json!({
        "route": { "receiver": "team", "group_by": ["..."] },
        "receivers": [{ "name": "team", "email_configs": [{ "id": "m", "to": ["a@b.c", "d@e.f"] }] }],
    }));
    for number in 0..30 {
        world.fire("A", &[("i", &number.to_string())], 0..9_000);
    }
    world.run(0..100);
    assert_eq!(world.mails, 20, "the limit of these tests");
    world.kill_and_restart();
    world.run(100..3_600);
    assert_eq!(world.mails, 20, "a restart gives no new budget");
    world.run(3_600..4_000);
    assert_eq!(world.mails, 40);
    let refused = world.notifier.test("team", world.now()).map(drop);
    assert_eq!(refused, Err(TestRefusal::TooMany));
    let status = world.notifier.status(world.now());
    assert!(status.integrations[0].last_error.as_ref().is_some_and(|error| error.text.contains("limit")));
}

#[test]
fn tests_of_a_receiver_are_limited() {
    let mut world = World::new(&one_hook());
    assert_eq!(world.notifier.test("x", world::at(0)).map(drop), Err(TestRefusal::NoReceiver));
    for _ in 0..TESTS_PER_HOUR_MAX {
        assert_eq!(world.notifier.test("team", world::at(0)).expect("allowed").len(), 1);
    }
    assert_eq!(world.notifier.test("team", world::at(0)).map(drop), Err(TestRefusal::TooMany));
    assert!(world.notifier.test("team", world::at(3_600)).is_ok());
}

#[test]
fn a_changed_configuration_keeps_what_receivers_know() {
    let mut world = World::new(&one_hook());
    world.fire("A", &[], 0..9_000);
    world.run(0..100);
    let mut config = one_hook();
    config["route"]["repeat_interval"] = json!("5h");
    let hook = json!({ "id": "second", "url": "http://b" });
    config["receivers"][0]["webhook_configs"].as_array_mut().expect("a list").push(hook);
    world.set_config(&config);
    world.run(100..2_000);
    assert_eq!(times(&world.seen("hook", "A")), [30]);
    assert_eq!(times(&world.seen("second", "A")), [330]);
    world.set_config(&json!({}));
    world.run(2_000..2_010);
    assert!(world.rows.is_empty(), "what was notified to removed receivers is forgotten");
}

#[test]
fn alertmanagers_get_every_state_and_an_own_queue() {
    let mut world = World::new(&json!({ "alertmanagers": [
        { "id": "one", "url": "http://one:9093" }, { "id": "two", "url": "http://two:9093" }] }));
    let config = Arc::clone(world.notifier.config());
    world.notifier.set_alertmanagers(config.alertmanagers.iter().map(fixed_endpoint).collect());
    world.fail("one", 0..9_000, DeliveryOutcome::Retry { after_ms: None, error: "500".into() });
    world.fire("A", &[], 0..90);
    world.run(0..300);
    let status = world.notifier.status(world.now());
    let [one, two] = &status.alertmanagers[..] else { panic!("{status:?}") };
    assert_eq!((one.queued, two.queued), (1, 0), "only the newest state of the alert waits");
    assert!(one.lag_ms > 200_000 && one.last_error.is_some() && one.next_retry.is_some());
    assert_eq!(two.counts.sent, 6, "firing twice, resolved four times");
}

#[test]
fn an_alertmanager_that_a_file_names_twice_keeps_its_queue() {
    let mut world = World::new(&json!({ "alertmanagers": [{ "id": "one", "url": "http://one:9093" }] }));
    let config = Arc::clone(world.notifier.config());
    let twice = || [&config.alertmanagers[0]; 2].map(fixed_endpoint).to_vec();
    world.notifier.set_alertmanagers(twice());
    world.fail("one", 0..9_000, DeliveryOutcome::Retry { after_ms: None, error: "500".into() });
    world.fire("A", &[], 0..90);
    world.run(0..10);
    world.notifier.set_alertmanagers(twice());
    let status = world.notifier.status(world.now());
    let queued: Vec<usize> = status.alertmanagers.iter().map(|one| one.queued).collect();
    assert_eq!(queued, [1]);
}

#[test]
fn views_show_alerts_groups_and_what_holds_them_back() {
    let mut world = World::new(&one_hook());
    let silence = world.silence("alertname=A", 0, 1_000);
    world.fire("A", &[], 0..900);
    world.fire("B", &[], 0..900);
    world.run(0..60);
    let now = world.now();
    let alerts = world.notifier.alerts(now);
    let a = alerts.iter().find(|alert| alert.labels["alertname"] == "A").expect("fires");
    assert_eq!((a.silenced_by.as_slice(), &*a.receivers[0]), ([silence].as_slice(), "team"));
    assert_eq!(a.generator_url, "http://p/graph?expr=up%7Bjob%3D%22A%22%7D");
    assert_eq!(world.notifier.groups(now).len(), 2);
}
