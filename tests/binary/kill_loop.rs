//! `kill -9` at any moment loses nothing that was acknowledged, and invents nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

use crate::harness::{ORG, Server, Start, bootstrap};
use crate::{ingest_protocols, side_data};

/// The number of kills. Checkpoints every 200 ms, seals, merges and retention run all the time, so
/// kills hit all of them.
const KILLS: usize = 50;
const SERIES: usize = 10;

/// The writer's record of its writes. A write is a time in milliseconds after `base`; it is
/// acknowledged if its response was 2xx.
#[derive(Default)]
struct Oracle {
    acknowledged: BTreeSet<i64>,
    unanswered: BTreeSet<i64>,
    keys_made: BTreeMap<String, String>,
    keys_removed: BTreeSet<String>,
    keys_unanswered: BTreeSet<String>,
}

fn value_of(series: usize, step: i64) -> f64 {
    series as f64 * 1e6 + step as f64 + 0.25
}

fn batch(base: Timestamp, step: i64) -> Vec<(Labels, Vec<Sample>)> {
    let one = |series: usize| {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), "kill_test".to_owned()),
            ("series".to_owned(), series.to_string()),
        ]);
        (labels, vec![Sample { at: base.plus_ms(step), value: value_of(series, step) }])
    };
    (0..SERIES).map(one).collect()
}

#[test]
fn kill_dash_nine_at_any_moment_loses_no_acknowledged_sample_and_no_acknowledged_account_change() {
    let seed = 20_261_121;
    println!("seed {seed}");
    let mut rng = Entropy::seeded(seed);
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let mut oracle = Oracle::default();
    let mut server = serve(dir.path());
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let (mut step, mut sealed, mut dropped, mut cycle) = (0, 0, 0, 0);
    for kill in 0..KILLS {
        // On a busy machine the server progresses more slowly, so wait for a number of writes
        // first.
        let least = kill % 10;
        let delay = Duration::from_millis(300).mul_f64(rng.unit());
        let (dying, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        let first = step;
        std::thread::scope(|scope| {
            let samples = scope.spawn(|| write_until_dead(&server, &secret, base, first, &dying, &written));
            let accounts = scope.spawn(|| change_accounts_until_dead(&server, &cookie, kill, &dying));
            let seals = scope.spawn(|| seal_until_dead(&server, &cookie, &secret, base, &mut cycle, &dying));
            wait_until_written(&written, least);
            std::thread::sleep(delay);
            dying.store(true, Ordering::SeqCst);
            kill_by_pid(server.pid());
            let (next, acknowledged, unanswered) = samples.join().expect("the writer");
            step = next;
            oracle.acknowledged.extend(acknowledged);
            oracle.unanswered.extend(unanswered);
            let done = seals.join().expect("the sealer");
            (sealed, dropped) = (sealed + done.0, dropped + done.1);
            let changes = accounts.join().expect("the admin");
            oracle.keys_made.extend(changes.keys_made);
            oracle.keys_removed.extend(changes.keys_removed);
            oracle.keys_unanswered.extend(changes.keys_unanswered);
        });
        server.kill();
        (0..kill % 3).for_each(|_| kill_a_start(dir.path(), rng.unit()));
        server = serve(dir.path());
        check_samples(&server, &cookie, base, &oracle, kill);
        check_accounts(&server, &cookie, &oracle, kill);
    }
    println!(
        "{KILLS} kills, {} acknowledged writes of {SERIES} samples, {} unanswered",
        oracle.acknowledged.len(),
        oracle.unanswered.len()
    );
    println!("{sealed} seals, {dropped} times dropped what is too old");
    println!("{} keys made, {} removed", oracle.keys_made.len(), oracle.keys_removed.len());
    assert!(
        oracle.acknowledged.len() >= 4 * KILLS && oracle.keys_made.len() > KILLS / 2 && sealed > KILLS / 5,
        "the loop did write between kills"
    );
    assert!(dropped > 3, "old samples were dropped: {dropped}");
    assert!(server.terminate().success(), "it still stops cleanly");
    let sent = |step: i64| oracle.acknowledged.contains(&step) || oracle.unanswered.contains(&step);
    let histograms = side_data::check(dir.path(), base, &oracle.acknowledged, sent);
    println!("{histograms} histograms");
}

const ARGS: [&str; 5] = ["serve", "--checkpoint-every", "200ms", "--expiry-grace", "0s"];

fn serve(dir: &std::path::Path) -> Server {
    Server::start(&Start { args: &ARGS, dir, env: &bootstrap() })
}

/// Starts the server and kills it before the store is open, or shortly after.
fn kill_a_start(dir: &std::path::Path, when: f64) {
    let server = Server::start_early(&Start { args: &ARGS, dir, env: &bootstrap() });
    std::thread::sleep(Duration::from_millis(40).mul_f64(when * when));
    server.kill();
}

/// Seals and merges everything again and again, with retention dropping an old sample in between.
/// Continues the `cycle` where the last kill interrupted it. Returns the number of acknowledged
/// seals and drops.
fn seal_until_dead(
    server: &Server,
    cookie: &str,
    secret: &str,
    base: Timestamp,
    cycle: &mut i64,
    dying: &AtomicBool,
) -> (usize, usize) {
    let (mut sealed, mut dropped) = (0, 0);
    loop {
        let step = side_data::CycleStep::of(*cycle);
        match side_data::perform_step(server, cookie, secret, base, *cycle) {
            200..300 => {
                sealed += usize::from(step == side_data::CycleStep::Seal);
                dropped += usize::from(*cycle % side_data::STEPS == side_data::STEPS - 1);
                *cycle += 1;
            }
            429 | 503 => std::thread::sleep(Duration::from_millis(20)),
            0 if dying.load(Ordering::SeqCst) => return (sealed, dropped),
            other => panic!("{step:?}: {other}"),
        }
    }
}

fn kill_by_pid(pid: u32) {
    let sent =
        std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

/// Writes one step after the other, each by another protocol. Returns the next free step, the
/// acknowledged steps, and those without a response.
fn write_until_dead(
    server: &Server,
    secret: &str,
    base: Timestamp,
    first: i64,
    dying: &AtomicBool,
    written: &AtomicUsize,
) -> (i64, Vec<i64>, Vec<i64>) {
    let (mut acknowledged, mut unanswered) = (Vec::new(), Vec::new());
    let mut step = first;
    while unanswered.is_empty() {
        let mut side_data = Vec::new();
        side_data::add(&mut side_data, base, step);
        let answer = ingest_protocols::send(server, secret, step, &batch(base, step), &side_data);
        match answer.status {
            200 | 204 => {
                assert_eq!(answer.header("Durability"), Some("synced"));
                acknowledged.push(step);
                written.fetch_add(1, Ordering::SeqCst);
            }
            0 if dying.load(Ordering::SeqCst) => unanswered.push(step),
            other => panic!("{other}: {}", answer.body),
        }
        step += 1;
    }
    (step, acknowledged, unanswered)
}

/// Waits until `least` writes were acknowledged. After half a minute it returns, and the writer
/// reports the reason.
fn wait_until_written(written: &AtomicUsize, least: usize) {
    for _ in 0..15_000 {
        if written.load(Ordering::SeqCst) >= least {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Creates API keys and removes every second one.
fn change_accounts_until_dead(server: &Server, cookie: &str, round: usize, dying: &AtomicBool) -> Oracle {
    let mut done = Oracle::default();
    for n in 0.. {
        let name = format!("key-{round}-{n}");
        let made = server.post_json(
            &format!("/api/v1/orgs/{ORG}/api-keys"),
            &[("Cookie", cookie)],
            &json!({"name": name, "scopes": ["read"]}),
        );
        match made.status {
            201 => {
                let id = made.json()["id"].as_str().expect("id").to_owned();
                done.keys_made.insert(id.clone(), name.clone());
                if n % 2 == 0 {
                    continue;
                }
                let path = format!("{}/api/v1/orgs/{ORG}/api-keys/{id}", server.url);
                match crate::harness::request("DELETE", &path, &[("Cookie", cookie)], None).status {
                    204 => drop(done.keys_removed.insert(id)),
                    429 => {}
                    0 if dying.load(Ordering::SeqCst) => {
                        done.keys_unanswered.insert(name);
                        return done;
                    }
                    other => panic!("removing a key: {other}"),
                }
            }
            // 60 requests a second and session: wait for the window instead of polling it.
            429 => std::thread::sleep(Duration::from_millis(20)),
            0 if dying.load(Ordering::SeqCst) => {
                done.keys_unanswered.insert(name);
                return done;
            }
            other => panic!("making a key: {other} {}", made.body),
        }
    }
    done
}

fn check_samples(server: &Server, cookie: &str, base: Timestamp, oracle: &Oracle, kill: usize) {
    let now = Clock::System.now().as_s();
    for series in 0..SERIES {
        let data = ask_patiently(server, cookie, &format!("kill_test{{series=\"{series}\"}}[1h]"), now);
        let mut have = BTreeMap::new();
        for pair in data["result"][0]["values"].as_array().into_iter().flatten() {
            #[expect(clippy::cast_possible_truncation, reason = "a time of this century in milliseconds")]
            let ms = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64;
            let value: f64 = pair[1].as_str().expect("a text").parse().expect("a number");
            assert!(have.insert(ms - base.as_ms(), value).is_none(), "one sample a time");
        }
        for step in &oracle.acknowledged {
            let found = have.get(step);
            assert_eq!(
                found,
                Some(&value_of(series, *step)),
                "kill {kill}: acknowledged sample {step} of series {series}"
            );
        }
        for (step, value) in &have {
            let known = oracle.acknowledged.contains(step) || oracle.unanswered.contains(step);
            assert!(
                known && *value == value_of(series, *step),
                "kill {kill}: invented sample {step}={value} of series {series}"
            );
        }
    }
}

fn check_accounts(server: &Server, cookie: &str, oracle: &Oracle, kill: usize) {
    let answer = patiently(|| server.get(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", cookie)]));
    let listed = answer.json();
    let have: BTreeMap<&str, &str> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|key| (key["id"].as_str().expect("id"), key["name"].as_str().expect("name")))
        .collect();
    for (id, name) in &oracle.keys_made {
        let removed = oracle.keys_removed.contains(id);
        let unsure = oracle.keys_unanswered.contains(name);
        assert!(
            unsure || have.contains_key(&**id) != removed,
            "kill {kill}: key {name} made, removed: {removed}"
        );
    }
    for (id, name) in have {
        let known =
            oracle.keys_made.contains_key(id) || oracle.keys_unanswered.contains(name) || name == "test";
        assert!(known, "kill {kill}: invented key {name}");
    }
}

fn ask_patiently(server: &Server, cookie: &str, expr: &str, at: i64) -> serde_json::Value {
    let path =
        format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={}&time={at}", crate::harness::percent(expr));
    patiently(|| server.get(&path, &[("Cookie", cookie)])).json()["data"].clone()
}

fn patiently(ask: impl Fn() -> crate::harness::Answer) -> crate::harness::Answer {
    for _ in 0..100 {
        let answer = ask();
        if answer.status != 429 {
            assert_eq!(answer.status, 200, "{}", answer.body);
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("429 for five seconds");
}
