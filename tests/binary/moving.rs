//! `promlet org move` to a second promlet: kills of either side at any moment lose and double
//! nothing, and a wrong target is reported before anything is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::Value as Json;

use crate::harness::{ORG, Server, Start, bootstrap, eventually, percent, request};

/// The number of kills, alternately of the source and of the target.
const KILLS: u64 = 10;
const SERIES: usize = 40;
/// The samples of a series before the move.
const HISTORY: i64 = 3_000;
const STEP_MS: i64 = 15_000;
const WAIT_MAX: Duration = Duration::from_secs(120);

const ALLOWED: [&str; 3] = ["serve", "--outbound-allow", "127.0.0.1"];

fn serve(dir: &Path) -> Server {
    Server::start(&Start { args: &ALLOWED, dir, env: &bootstrap() })
}

fn serve_at(dir: &Path, address: &str) -> Server {
    let args = ["serve", "--outbound-allow", "127.0.0.1", "--listen", address];
    Server::start_at(&Start { args: &args, dir, env: &bootstrap() })
}

/// Runs a command of `promlet org move` on the source.
fn org_move(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_promlet"))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_DATA_DIR", dir)
        .args(["org", "move", ORG])
        .args(args)
        .arg("--json")
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

fn status(dir: &Path) -> Option<Json> {
    let output = org_move(dir, &["--status"]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn value_of(series: usize, step: i64) -> f64 {
    series as f64 * 1_000.0 + step as f64 / 3.0
}

fn batch(base: Timestamp, steps: std::ops::Range<i64>) -> Vec<(Labels, Vec<Sample>)> {
    let one = |series: usize| {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), format!("move_test_{}", series % 3)),
            ("series".to_owned(), series.to_string()),
        ]);
        let sample = |step: i64| Sample { at: base.plus_ms(step * STEP_MS), value: value_of(series, step) };
        (labels, steps.clone().map(sample).collect())
    };
    (0..SERIES).map(one).collect()
}

/// Returns all samples of the test's series: values by series and time, as texts.
fn content(server: &Server, secret: &str, base: Timestamp) -> BTreeMap<String, Vec<(String, String)>> {
    let bearer = format!("Bearer {secret}");
    let now = base.plus_ms((HISTORY + 10_000) * STEP_MS).as_s();
    let mut all = BTreeMap::new();
    for number in 0..3 {
        let expr = format!("move_test_{number}[{}s]", (HISTORY + 10_000) * STEP_MS / 1_000 + 60);
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={now}", percent(&expr));
        let answer = server.get(&path, &[("Authorization", &bearer)]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        for series in answer.json()["data"]["result"].as_array().expect("a matrix") {
            let values = series["values"].as_array().expect("values").iter();
            let pair = |pair: &Json| (pair[0].to_string(), pair[1].as_str().expect("a text").to_owned());
            all.insert(series["metric"].to_string(), values.map(pair).collect());
        }
    }
    all
}

fn write_url(server: &Server) -> String {
    format!("{}/api/v1/orgs/{ORG}/write", server.url)
}

#[test]
fn kill_dash_nine_of_either_side_during_a_move_loses_and_doubles_nothing() {
    let seed = 20_261_126;
    println!("seed {seed}");
    let mut rng = Entropy::seeded(seed);
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-(HISTORY + 200) * STEP_MS);
    let (mut source, mut target) = (serve(&here), serve(&there));
    let (_, secret) = source.api_key(&source.sign_in());
    let (_, target_secret) = target.api_key(&target.sign_in());
    let address = target.url.trim_start_matches("http://").to_owned();
    for first in (0..HISTORY).step_by(200) {
        assert_eq!(source.write(&secret, &batch(base, first..first + 200)).status, 204);
    }
    let token = folder.path().join("token");
    std::fs::write(&token, &target_secret).expect("written");
    let token = token.to_str().expect("UTF-8");
    let url = write_url(&target);
    let started = org_move(&here, &["--to", &url, "--token-file", token, "--settle", "1", "--detach"]);
    assert!(started.status.success(), "{started:?}");
    let (mut step, mut steps) = (HISTORY, BTreeSet::new());
    for kill in 0..KILLS {
        // The first kills come while history is sent, the last two afterwards.
        if kill + 2 >= KILLS {
            let failure = || format!("the history does not end: {:?}\n{}", status(&here), source.log());
            let is_after = |state: &Json| state["step"] != "history";
            eventually(WAIT_MAX, failure, || status(&here).filter(is_after));
        }
        let delay = Duration::from_millis(250 * (kill + 1)).mul_f64(rng.unit());
        let is_dying = AtomicBool::new(false);
        // A sender writes all the time.
        step = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut next = step;
                while !is_dying.load(Ordering::SeqCst) && next < step + 10 {
                    match source.write(&secret, &batch(base, next..next + 1)).status {
                        204 => next += 1,
                        // The same samples are sent again after the kill.
                        _ => break,
                    }
                }
                next
            });
            std::thread::sleep(delay);
            steps.extend(status(&here).map(|state| state["step"].to_string()));
            is_dying.store(true, Ordering::SeqCst);
            writer.join().expect("the writer")
        });
        if kill % 2 == 0 {
            source.kill();
            source = serve(&here);
        } else {
            target.kill();
            target = serve_at(&there, &address);
        }
    }
    let failure = || format!("the move does not end: {:?}\n{}", status(&here), source.log());
    let done =
        eventually(WAIT_MAX, failure, || status(&here).filter(|state| state["running"] == Json::Bool(false)));
    println!("{done}; kills during {steps:?}");
    assert!(steps.len() > 1, "kills came at several steps: {steps:?}");
    assert_eq!((&done["complete"], &done["error"]), (&Json::Bool(true), &Json::Null), "{}", source.log());
    for count in ["refused", "different", "rounded"] {
        assert_eq!(done[count], 0, "{done}");
    }
    // Samples after the switch are forwarded.
    let failure = || format!("the target lacks samples: {:?}", status(&here));
    eventually(WAIT_MAX, failure, || {
        let found = content(&target, &target_secret, base);
        found.values().all(|samples| samples.len() >= usize::try_from(step).expect("small")).then_some(())
    });
    check_content(&content(&target, &target_secret, base), base, step);
    check_content(&content(&source, &secret, base), base, step);
}

/// Checks that every series has its acknowledged samples once, and at most one that was not
/// acknowledged.
fn check_content(found: &BTreeMap<String, Vec<(String, String)>>, base: Timestamp, steps: i64) {
    assert_eq!(found.len(), SERIES);
    for (labels, samples) in found {
        let labels: Json = serde_json::from_str(labels).expect("JSON");
        let series: usize = labels["series"].as_str().and_then(|text| text.parse().ok()).expect("a number");
        assert!(samples.len() <= usize::try_from(steps + 1).expect("small"), "{labels}: {}", samples.len());
        for (step, (at, value)) in (0..).zip(samples) {
            let expected = base.plus_ms(step * STEP_MS).as_seconds();
            assert_eq!(at.parse::<f64>().expect("a time"), expected, "{labels}: step {step}");
            assert_eq!(
                value.parse::<f64>().expect("a value"),
                value_of(series, step),
                "{labels}: step {step}"
            );
        }
    }
}

#[test]
fn a_wrong_target_is_reported_before_anything_is_stored() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let (_source, target) = (serve(&here), serve(&there));
    let token = folder.path().join("token");
    std::fs::write(&token, "pmk_wrong").expect("written");
    let token = token.to_str().expect("UTF-8");
    let url = write_url(&target);
    let cases: [(&[&str], &str); 5] = [
        (&["--to", &url, "--token-file", token], "401"),
        (&["--to", "http://127.0.0.1:9/write"], "does not answer queries"),
        (&["--to", "http://169.254.169.254/write"], "outbound-allow"),
        (&["--to", "http://h/insert"], "--read is needed"),
        (&["--back"], "was not moved"),
    ];
    for (args, reason) in cases {
        let output = org_move(&here, args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{args:?}: {text}");
    }
    assert!(status(&here).is_none(), "nothing is stored");
    assert_eq!(request("GET", &format!("{}/readyz", target.url), &[], None).status, 200);
}

#[test]
fn a_dry_run_reports_figures_and_sends_nothing() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let (source, target) = (serve(&here), serve(&there));
    let (_, secret) = source.api_key(&source.sign_in());
    let (_, target_secret) = target.api_key(&target.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-100 * STEP_MS);
    assert_eq!(source.write(&secret, &batch(base, 0..50)).status, 204);
    let token = folder.path().join("token");
    std::fs::write(&token, &target_secret).expect("written");
    let token = token.to_str().expect("UTF-8");
    let output = org_move(&here, &["--to", &write_url(&target), "--token-file", token, "--dry-run"]);
    assert!(output.status.success(), "{output:?}");
    let plan: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&plan["series"], &plan["samples"], &plan["metrics"]), (&40.into(), &2_000.into(), &3.into()));
    assert!(content(&target, &target_secret, base).is_empty());
    assert!(status(&here).is_none());
}

#[test]
fn an_organisation_moves_away_drops_its_samples_here_and_returns_with_all_of_them() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let (source, target) = (serve(&here), serve(&there));
    let (_, secret) = source.api_key(&source.sign_in());
    let (_, target_secret) = target.api_key(&target.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-400 * STEP_MS);
    assert_eq!(source.write(&secret, &batch(base, 0..300)).status, 204);
    let before = content(&source, &secret, base);
    let token = folder.path().join("token");
    std::fs::write(&token, &target_secret).expect("written");
    let token = token.to_str().expect("UTF-8");
    let is_over = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        // No query fails while the organisation is switched.
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(content(&source, &secret, base), before);
            }
        });
        let moved = org_move(&here, &["--to", &write_url(&target), "--token-file", token]);
        is_over.store(true, Ordering::SeqCst);
        moved
    });
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    assert_eq!(content(&target, &target_secret, base), before);
    assert_eq!(content(&source, &secret, base), before);
    // Later samples are forwarded.
    assert_eq!(source.write(&secret, &batch(base, 300..310)).status, 204);
    let failure = || "later samples are not at the target".to_owned();
    let all = eventually(WAIT_MAX, failure, || {
        Some(content(&target, &target_secret, base)).filter(|all| all.values().all(|one| one.len() == 310))
    });
    let again = org_move(&here, &["--to", &write_url(&target), "--token-file", token]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is moved already"), "{again:?}");
    // Nothing is removed without a confirmation.
    let unconfirmed = org_move(&here, &["--drop-local"]);
    let text = String::from_utf8_lossy(&unconfirmed.stderr).into_owned();
    assert!(!unconfirmed.status.success() && text.contains("staleness markers"), "{text}");
    assert!(text.contains("--yes") && status(&here).expect("moved")["dropped"] == false, "{text}");
    let dropped = org_move(&here, &["--drop-local", "--yes"]);
    assert!(dropped.status.success(), "{dropped:?}");
    let metrics = request("GET", &format!("{}/metrics", source.url), &[], None).body;
    assert!(metrics.contains(&format!("promlet_move_waits{{org=\"{ORG}\"}} 0")), "{metrics}");
    assert_eq!(content(&source, &secret, base), all);
    let back = org_move(&here, &["--back"]);
    assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
    let state: Json = serde_json::from_slice(&back.stdout).expect("JSON");
    assert_eq!((&state["step"], &state["refused"]), (&"returned".into(), &0.into()), "{state}");
    assert_eq!(content(&source, &secret, base), all);
}

#[test]
fn a_running_move_ends_at_once_when_it_or_the_server_is_stopped() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let (source, target) = (serve(&here), serve(&there));
    let (_, secret) = source.api_key(&source.sign_in());
    let (_, target_secret) = target.api_key(&target.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-(HISTORY + 200) * STEP_MS);
    for first in (0..HISTORY).step_by(200) {
        assert_eq!(source.write(&secret, &batch(base, first..first + 200)).status, 204);
    }
    let token = folder.path().join("token");
    std::fs::write(&token, &target_secret).expect("written");
    let (token, url) = (token.to_str().expect("UTF-8").to_owned(), write_url(&target));
    let begin = || org_move(&here, &["--to", &url, "--token-file", &token, "--detach"]);
    assert!(begin().status.success());
    // The target hangs in the middle of the history.
    target.signal("STOP");
    let watch = Stopwatch::start();
    let stopped = org_move(&here, &["--stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    target.signal("CONT");
    assert!(begin().status.success());
    target.signal("STOP");
    let watch = Stopwatch::start();
    assert!(source.terminate().success());
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    target.signal("CONT");
    // The move continues with the next start, also with another credential of the same target.
    let source = serve(&here);
    let (_, other_secret) = target.api_key(&target.sign_in());
    std::fs::write(&token, &other_secret).expect("written");
    let elsewhere = org_move(&here, &["--to", "http://127.0.0.1:9/api/v1/write", "--detach"]);
    let text = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert!(text.contains("`--stop` ends it") || text.contains("is moved already, to"), "{text}");
    let moved = org_move(&here, &["--to", &url, "--token-file", &token]);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    check_content(&content(&source, &secret, base), base, HISTORY);
}
