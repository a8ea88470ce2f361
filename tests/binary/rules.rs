//! Rules of files: loaded at the start and by SIGHUP, kept if a change is wrong, and backfilled.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Access, Labels, OrgId, Sample, TimeRange, Timestamp};
use promlet::server::OpenStore;
use promlet::tsdb::SampleColumns;
use serde_json::{Value as Json, json};

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, eventually};

const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) const RULES: &str = "groups:
- name: g
  interval: 100ms
  rules:
  - {record: two, expr: '1 + 1'}
  - {alert: Fires, expr: two > 1}
  - {alert: Waits, expr: two > 1, for: 1h, labels: {team: '{{ $value }}'}}
";

fn serve(dir: &Path) -> Server {
    let rules = dir.join("rules.yml");
    let args = ["serve", "--rules", rules.to_str().expect("UTF-8")];
    Server::start(&Start { args: &args, dir: &dir.join("store"), env: &bootstrap() })
}

/// Returns the alerts, ordered by their labels, each with its name, state and start.
pub(crate) fn alerts(server: &Server, cookie: &str) -> Vec<[String; 3]> {
    let answer = server.get(&format!("/api/v1/orgs/{ORG}/prometheus/api/v1/alerts"), &[("Cookie", cookie)]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text =
        |alert: &Json, path: &str| alert.pointer(path).and_then(Json::as_str).unwrap_or_default().to_owned();
    let list = answer.json()["data"]["alerts"].as_array().expect("a list").clone();
    let mut all: Vec<[String; 3]> = list
        .iter()
        .map(|alert| [text(alert, "/labels/alertname"), text(alert, "/state"), text(alert, "/activeAt")])
        .collect();
    all.sort();
    all
}

#[test]
fn a_wrong_change_of_a_file_leaves_the_rules_as_they_were() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("rules.yml");
    std::fs::write(&file, RULES).expect("written");
    let server = serve(dir.path());
    let cookie = server.sign_in();
    let names = |count: usize| {
        eventually(
            WAIT_MAX,
            || format!("there are no {count} alerts"),
            || (alerts(&server, &cookie).len() == count).then_some(()),
        );
    };
    names(2);
    std::fs::write(&file, RULES.replace("two > 1}", "two >}")).expect("written");
    server.signal("HUP");
    server.log_line("could not parse expression");
    names(2);
    std::fs::write(&file, RULES.replace("two > 1}", "two > 2}")).expect("written");
    server.signal("HUP");
    names(1);
    assert!(server.terminate().success());
}

#[test]
fn rule_files_are_checked_and_compared_on_the_command_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("right.yml"), RULES).expect("written");
    std::fs::write(path("other.yml"), RULES.replace("two > 1}", "two > 2}")).expect("written");
    std::fs::write(path("wrong.yml"), "groups:\n- nam: x\n").expect("written");
    let run = |command: &str, files: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_promlet"))
            .env_clear()
            .args(["rules", command])
            .args(files.iter().map(|file| path(file)))
            .output()
            .expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = run("check", &["right.yml"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("right.yml\n  SUCCESS: 3 rules found\n\n"), "{text}");
    let (code, text) = run("check", &["right.yml", "wrong.yml"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("line 2, column 3: unknown key \"nam\"; did you mean \"name\"?"), "{text}");
    assert_eq!(run("diff", &["right.yml", "right.yml"]), (Some(0), String::new()));
    let (code, text) = run("diff", &["right.yml", "other.yml"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("~ g\n  - ") && text.contains("two > 2"), "{text}");
}

#[test]
fn rules_of_a_file_are_evaluated_as_soon_as_there_is_an_organisation() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = dir.path().join("rules.yml");
    std::fs::write(&rules, RULES).expect("written");
    let args = ["serve", "--rules", rules.to_str().expect("UTF-8")];
    let server = Server::start(&Start { args: &args, dir: &dir.path().join("store"), env: &[] });
    server.log_line("are not evaluated yet: there is no organisation");
    let log = server.log_line("/setup#token=");
    let token = log.split("/setup#token=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let account =
        json!({ "setup_token": token, "email": EMAIL, "password": PASSWORD, "org": { "slug": ORG } });
    let made = server.post_json("/api/v1/auth/signup", &[], &account);
    assert_eq!(made.status, 201, "{}", made.body);
    let cookie = server.sign_in();
    let fires = || (alerts(&server, &cookie).len() == 2).then_some(());
    eventually(WAIT_MAX, || format!("there are no alerts\n{}", server.log()), fires);
    assert!(server.terminate().success());
}

#[test]
fn templates_have_the_external_labels_of_the_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = dir.path().join("rules.yml");
    let group = "groups: [{name: g, interval: 100ms, rules: [\
                 {alert: 'Up', expr: vector(1), labels: {at: '{{ $externalLabels.cluster }}'}}]}]";
    std::fs::write(&rules, group).expect("written");
    let rules = rules.to_str().expect("UTF-8");
    let args = ["serve", "--rules", rules, "--external-labels", "cluster=c1,replica=a=b"];
    let server = Server::start(&Start { args: &args, dir: &dir.path().join("store"), env: &bootstrap() });
    let cookie = server.sign_in();
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/alerts");
    let labels = || {
        let labels = server.get(&path, &[("Cookie", &cookie)]).json()["data"]["alerts"][0]["labels"].clone();
        labels.is_object().then_some(labels)
    };
    let labels = eventually(WAIT_MAX, || server.log(), labels);
    assert_eq!(labels, json!({ "alertname": "Up", "at": "c1" }));
    assert!(server.terminate().success());
}

/// Returns a backfill of the rules in `backfill.yml` from 1,000 s before `now_s` until then.
fn backfill_command(dir: &Path, now_s: i64, args: &[&str]) -> Command {
    let [start, end] = [now_s - 1_000, now_s].map(|at| at.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command
        .env_clear()
        .env("PROMLET_ARGON2", "64,1,1")
        .env("PROMLET_DATA_DIR", dir.join("store"))
        .args(["rules", "backfill", "--start", &start, "--end", &end])
        .args(args)
        .arg(dir.join("backfill.yml"));
    command
}

fn backfill(dir: &Path, now_s: i64, args: &[&str]) -> (Option<i32>, String) {
    let output = backfill_command(dir, now_s, args).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn recording_rules_are_backfilled_by_a_running_server_and_in_a_stopped_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let group = "groups:\n- name: past\n  interval: 100s\n  rules:\n  - {record: twice, expr: x * 2}\n  \
                 - {alert: Ignored, expr: x > 0}\n  - {record: four_times, expr: twice * 2}\n";
    std::fs::write(dir.path().join("backfill.yml"), group).expect("written");
    let store = dir.path().join("store");
    let server = Server::serve(&store);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let now_s = Clock::System.now().as_s() / 100 * 100;
    let labels = Labels::from_pairs([("__name__", "x")]);
    let samples = (0..=20).map(|n| Sample { at: Timestamp::from_s(now_s - 1_000 + n * 50), value: n as f64 });
    assert_eq!(server.write(&secret, &[(labels, samples.collect())]).status, 204);
    let found = |server: &Server, name: &str| {
        let query = format!("query=sum(sum_over_time({name}[2000s]))&time={now_s}");
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?{query}");
        let cookie = server.sign_in();
        server.get(&path, &[("Cookie", &cookie)]).json()["data"]["result"][0]["value"][1].clone()
    };
    let (code, text) = backfill(dir.path(), now_s, &["--org", ORG]);
    assert_eq!((code, text.as_str()), (Some(0), "past: 2 rules, 22 samples, 0 refused\n"));
    assert_eq!([found(&server, "twice"), found(&server, "four_times")], ["220", "440"]);
    let (code, text) = backfill(dir.path(), now_s, &["--org", "none"]);
    assert!(code == Some(1) && text.contains("there is no organisation \"none\""), "{text}");
    let (code, text) = backfill(dir.path(), now_s, &["--org", ORG, "--rule", "Ignored"]);
    assert!(code == Some(1) && text.contains("the files have no such recording rule"), "{text}");
    let audit = format!("/api/v1/orgs/{ORG}/audit?action=rules.backfilled");
    let audit = server.get(&audit, &[("Cookie", &cookie)]).json();
    let targets: Vec<&Json> =
        audit["data"].as_array().expect("rows").iter().map(|row| &row["target"]).collect();
    assert_eq!(targets, ["four_times", "twice"]);
    assert!(server.terminate().success());

    let (code, text) = backfill(dir.path(), now_s, &["--org", ORG, "--rule", "twice", "--step", "50s"]);
    assert_eq!((code, text.as_str()), (Some(0), "past: 1 rule, 21 samples, 0 refused\n"));
    // More steps than a range query may have.
    let steps = ["--org", ORG, "--rule", "twice", "--step", "50ms"];
    let (code, text) = backfill(dir.path(), now_s, &steps);
    assert_eq!((code, text.as_str()), (Some(0), "past: 1 rule, 20 001 samples, 0 refused\n"));
    let server = Server::serve(&store);
    // Each value of x is the result of the 1,000 steps until the next one.
    assert_eq!(found(&server, "twice"), (2 * (190 * 1_000 + 20)).to_string());
    assert!(server.terminate().success());
}

/// Rules that read their own samples and those of each other, and of which series end.
const PAST: &str = "groups:
- name: past
  rules:
  - {record: steps, expr: 'sum(steps) + 1 or vector(1)'}
  - {record: blinks, expr: x unless blinks}
  - {record: ahead, expr: blinks offset -1s}
  - {record: sums, expr: 'sum(ahead) + sum(twice)'}
  - {record: twice, expr: 2 * (x % 7 > 3)}
";

/// Starts a server on a store with samples of `x`, on which `PAST` is to be backfilled.
fn server_with_past(dir: &Path, now_s: i64) -> Server {
    std::fs::write(dir.join("backfill.yml"), PAST).expect("written");
    let server = Server::serve(&dir.join("store"));
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let series = ["a", "b"].map(|job| {
        let at = |n: i64| Timestamp::from_s(now_s - 1_000 + n * 10);
        let samples = (0..=100).map(|n| Sample { at: at(n), value: (n * n) as f64 });
        (Labels::from_pairs([("__name__", "x"), ("job", job)]), samples.collect())
    });
    assert_eq!(server.write(&secret, &series).status, 204);
    server
}

/// Stops a server, and returns the times and bits of all samples of its store, staleness markers
/// among them.
fn stored(server: Server, dir: &Path) -> Vec<(String, Vec<(i64, u64)>)> {
    assert!(server.terminate().success());
    let store = OpenStore::open(&dir.join("store"), Clock::System).expect("it opens");
    let snapshot = store.tsdb().snapshot(&Access::whole(OrgId(1)));
    let read = |series: promlet::tsdb::SelectedSeries| {
        let mut columns = SampleColumns::default();
        snapshot.read(series.id, TimeRange::ALL, &mut columns);
        let bits = columns.values.iter().map(|value| value.to_bits());
        (series.labels.to_string(), columns.times.iter().copied().zip(bits).collect())
    };
    let all = snapshot.select(&[], TimeRange::ALL).into_iter().map(read).collect();
    drop(snapshot);
    store.close().expect("closed");
    all
}

#[test]
fn a_backfill_that_is_interrupted_and_repeated_writes_what_an_uninterrupted_one_writes() {
    let (whole, cut) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let now_s = Clock::System.now().as_s();
    let args = ["--org", ORG, "--step", "2s"];
    let server = server_with_past(whole.path(), now_s);
    let (code, text) = backfill(whole.path(), now_s, &args);
    assert!(code == Some(0) && text.ends_with(", 0 refused\n"), "{text}");
    let expected = stored(server, whole.path());

    let mut server = server_with_past(cut.path(), now_s);
    let steps = |server: &Server, cookie: &str| {
        let query = format!("query=count_over_time(steps[2000s])&time={now_s}");
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?{query}");
        let answer = server.get(&path, &[("Cookie", cookie)]).json();
        let count = answer["data"]["result"][0]["value"][1].as_str().map(str::parse);
        count.map_or(0, |count| count.expect("a number"))
    };
    for is_server_killed in [false, true] {
        let cookie = server.sign_in();
        let wanted = steps(&server, &cookie) + 100;
        let mut command = backfill_command(cut.path(), now_s, &args);
        let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        eventually(
            WAIT_MAX,
            || "the backfill does not advance".to_owned(),
            || (steps(&server, &cookie) >= wanted.min(501)).then_some(()),
        );
        if is_server_killed {
            server.kill();
            server = Server::serve(&cut.path().join("store"));
        } else {
            client.kill().expect("killed");
        }
        client.wait().expect("it ends");
    }
    let (code, text) = backfill(cut.path(), now_s, &args);
    assert!(code == Some(0) && text.ends_with(", 0 refused\n"), "{text}");
    assert_eq!(stored(server, cut.path()), expected);
}
