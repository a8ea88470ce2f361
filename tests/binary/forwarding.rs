//! Forwarding from one promlet to another: kills of either side at any moment lose nothing, and the
//! values are the same to the bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::{Value as Json, json};

use crate::harness::{Answer, ORG, Server, Start, bootstrap, eventually, percent, request};
use crate::lying_target::{Lie, LyingTarget};

const SERIES: usize = 20;
/// The number of series of a request that is passed on as it was received.
const SERIES_PASSED: usize = 600;
const STEP_MS: i64 = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(120);

fn serve(dir: &Path) -> Server {
    let args = ["serve", "--outbound-allow", "127.0.0.1"];
    Server::start(&Start { args: &args, dir, env: &bootstrap() })
}

fn serve_at(dir: &Path, address: &str) -> Server {
    let args = ["serve", "--outbound-allow", "127.0.0.1", "--listen", address];
    Server::start_at(&Start { args: &args, dir, env: &bootstrap() })
}

fn batch(base: Timestamp, step: i64, series: usize) -> Vec<(Labels, Vec<Sample>)> {
    let one = |series: usize| {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), "forward_test".to_owned()),
            ("series".to_owned(), series.to_string()),
        ]);
        let value = series as f64 * 1_000.0 + step as f64 / 3.0;
        (labels, vec![Sample { at: base.plus_ms(step * STEP_MS), value }])
    };
    (0..series).map(one).collect()
}

/// Returns all samples of the test's series: values by series and time, as texts.
fn content(server: &Server, secret: &str, base: Timestamp) -> BTreeMap<String, Vec<(String, String)>> {
    let bearer = format!("Bearer {secret}");
    let path = format!(
        "/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={}",
        percent("forward_test[2h]"),
        base.as_s() + 3_600
    );
    let answer = server.get(&path, &[("Authorization", &bearer)]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let series = answer.json()["data"]["result"].as_array().expect("a matrix").clone();
    let values = |series: &Json| {
        let values = series["values"].as_array().expect("values").iter();
        values.map(|pair| (pair[0].to_string(), pair[1].as_str().expect("a text").to_owned())).collect()
    };
    series.iter().map(|series| (series["metric"].to_string(), values(series))).collect()
}

/// Sends a request with the cookie of a session.
fn cabinet(server: &Server, method: &str, path: &str, cookie: &str, body: Option<&Json>) -> Answer {
    let body = body.map(Json::to_string);
    let headers = [("Cookie", cookie), ("Content-Type", "application/json")];
    request(method, &format!("{}{path}", server.url), &headers, body.as_deref().map(str::as_bytes))
}

fn add_target(source: &Server, cookie: &str, url: &str, token: &str, protocol: &str) -> Json {
    let body = json!({
        "name": "there",
        "protocol": protocol,
        "target": { "url": url, "auth": { "type": "bearer", "token": token } },
        "from": "log",
    });
    let made = cabinet(source, "POST", &format!("/api/v1/orgs/{ORG}/forward"), cookie, Some(&body));
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()
}

fn shown(source: &Server, cookie: &str) -> Json {
    cabinet(source, "GET", &format!("/api/v1/orgs/{ORG}/forward/1"), cookie, None).json()
}

#[test]
fn kill_dash_nine_of_either_side_while_forwarding_loses_nothing() {
    kill_either_side(10, "auto", SERIES);
}

#[test]
fn kill_dash_nine_of_either_side_while_bodies_are_passed_on_loses_nothing() {
    kill_either_side(6, "rw1", SERIES_PASSED);
}

/// Sends requests with one sample of each of `series` series, and kills source and target in turns.
fn kill_either_side(kills: usize, protocol: &str, series: usize) {
    let seed = 20_261_127;
    println!("seed {seed}");
    let mut rng = Entropy::seeded(seed);
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let base = Timestamp::from_s(Clock::System.now().as_s() - 3_000);
    let (mut source, mut target) = (serve(&here), serve(&there));
    let (_, secret) = source.api_key(&source.sign_in());
    let (_, target_secret) = target.api_key(&target.sign_in());
    let address = target.url.trim_start_matches("http://").to_owned();
    assert_eq!(source.write(&secret, &batch(base, 0, series)).status, 204);
    let url = format!("{}/api/v1/orgs/{ORG}/write", target.url);
    add_target(&source, &source.sign_in(), &url, &target_secret, protocol);
    let mut step = 1;
    for kill in 0..kills {
        let [more] = rng.bytes();
        let writes = 5 + more % 20;
        for _ in 0..writes {
            assert_eq!(source.write(&secret, &batch(base, step, series)).status, 204);
            step += 1;
        }
        std::thread::sleep(Duration::from_millis(700).mul_f64(rng.unit()));
        if kill % 2 == 0 {
            source.kill();
            source = serve(&here);
        } else {
            target.kill();
            target = serve_at(&there, &address);
        }
    }
    let cookie = source.sign_in();
    if series >= SERIES_PASSED {
        // Once everything from before the kills has been sent.
        let failure = || format!("no body is passed on: {}", shown(&source, &cookie));
        eventually(WAIT_MAX, failure, || {
            assert_eq!(source.write(&secret, &batch(base, step, series)).status, 204);
            step += 1;
            (shown(&source, &cookie)["status"]["passed_requests"] != 0).then_some(())
        });
    }
    let expected = content(&source, &secret, base);
    let count: usize = expected.values().map(Vec::len).sum();
    assert_eq!(count, series * usize::try_from(step).expect("small"), "nothing is lost at the source");
    let failure = || format!("the target lacks samples: {}\n{}", shown(&source, &cookie), source.log());
    eventually(WAIT_MAX, failure, || (content(&target, &target_secret, base) == expected).then_some(()));
    let failure = || format!("the lag does not end: {}", shown(&source, &cookie));
    let state = eventually(WAIT_MAX, failure, || {
        let state = shown(&source, &cookie)["status"].clone();
        (state["lag_samples"] == 0).then_some(state)
    });
    assert_eq!((&state["state"], &state["refused_samples"]), (&json!("running"), &json!(0)), "{state}");
    assert_eq!((&state["forgotten_samples"], &state["lost_records"]), (&json!(0), &json!(0)), "{state}");
    assert_eq!(state["passed_requests"] != 0, series >= SERIES_PASSED, "{state}");
    assert!(source.terminate().success(), "it stops cleanly");
}

#[test]
fn a_probe_shows_what_a_target_says_and_a_page_in_html_is_no_receiver() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let source = serve(folder.path());
    let cookie = source.sign_in();
    let lies = [Lie::Accept, Lie::Status(400), Lie::Page400, Lie::Page, Lie::Status(503)];
    let next = AtomicUsize::new(0);
    let target = LyingTarget::start(move |_| lies[next.fetch_add(1, Ordering::SeqCst) % lies.len()]);
    let made = cabinet(
        &source,
        "POST",
        &format!("/api/v1/orgs/{ORG}/forward"),
        &cookie,
        Some(&json!({ "name": "there", "target": { "url": target.url }, "enabled": false })),
    );
    assert_eq!(made.status, 201, "{}", made.body);
    for (ok, status, text) in [
        (true, Json::Null, ""),
        (true, json!(400), "no, and the reason is long"),
        (false, Json::Null, "sent to HTTPS port"),
        (false, Json::Null, "Please sign in"),
        (false, json!(503), "no, and the reason is long"),
    ] {
        let path = format!("/api/v1/orgs/{ORG}/forward/1/probe");
        let probe = cabinet(&source, "POST", &path, &cookie, None).json();
        assert_eq!((&probe["ok"], &probe["status"]), (&json!(ok), &status), "{probe}");
        assert!(probe["message"].as_str().unwrap_or_default().contains(text), "{probe}");
    }
}

#[test]
fn a_wrong_credential_is_shown_and_its_correction_sends_everything() {
    let folder = crate::harness::scratch::temporary_folder().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let base = Timestamp::from_s(Clock::System.now().as_s() - 3_000);
    let (source, target) = (serve(&here), serve(&there));
    let (cookie, (_, secret)) = (source.sign_in(), source.api_key(&source.sign_in()));
    let (_, target_secret) = target.api_key(&target.sign_in());
    assert_eq!(source.write(&secret, &batch(base, 0, SERIES)).status, 204);
    let url = format!("{}/api/v1/orgs/{ORG}/write", target.url);
    add_target(&source, &cookie, &url, "pmk_wrong", "auto");
    let path = format!("/api/v1/orgs/{ORG}/forward/1");
    let probe = cabinet(&source, "POST", &format!("{path}/probe"), &cookie, None).json();
    assert_eq!((&probe["ok"], &probe["status"]), (&json!(false), &json!(401)), "{probe}");
    let failure = || format!("not shown: {}", shown(&source, &cookie));
    eventually(WAIT_MAX, failure, || {
        (shown(&source, &cookie)["status"]["state"] == "misconfigured").then_some(())
    });
    let ready = source.get("/readyz", &[]);
    assert!(
        ready.status == 200 && ready.body.contains("1 cannot send") && !ready.body.contains("status 401"),
        "{}",
        ready.body
    );
    let body = json!({
        "name": "there",
        "target": { "url": url, "auth": { "type": "bearer", "token": target_secret } },
    });
    assert_eq!(cabinet(&source, "PUT", &path, &cookie, Some(&body)).status, 200);
    let probe = cabinet(&source, "POST", &format!("{path}/probe"), &cookie, None).json();
    assert_eq!(probe["ok"], json!(true), "{probe}");
    let expected = content(&source, &secret, base);
    let failure = || format!("not sent: {}", shown(&source, &cookie));
    eventually(WAIT_MAX, failure, || (content(&target, &target_secret, base) == expected).then_some(()));
}
