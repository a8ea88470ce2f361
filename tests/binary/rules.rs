//! Rules of files: loaded at the start and by SIGHUP, kept if a change is wrong, and the state of
//! alerts after kills.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, eventually};

/// The number of kills.
const KILLS: usize = 6;
const WAIT_MAX: Duration = Duration::from_secs(60);

const RULES: &str = "groups:
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
fn alerts(server: &Server, cookie: &str) -> Vec<[String; 3]> {
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
fn kills_change_no_state_and_no_start_of_an_alert() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("rules.yml"), RULES).expect("written");
    let mut server = serve(dir.path());
    let cookie = server.sign_in();
    let both = |server: &Server| {
        let found = alerts(server, &cookie);
        (found.len() == 2).then_some(found)
    };
    let first = eventually(WAIT_MAX, || "there are no alerts".to_owned(), || both(&server));
    assert_eq!([&first[0][1], &first[1][1]], ["firing", "pending"]);
    for kill in 0..KILLS {
        server.kill();
        server = serve(dir.path());
        let now = eventually(WAIT_MAX, || format!("no alerts after kill {kill}"), || both(&server));
        assert_eq!(now, first, "kill {kill}");
    }
    assert!(server.terminate().success());
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
