//! The state of alerts and their notifications while the server is killed at random moments, during
//! its start, too.
//!
//! `PROMLET_TEST_RULE_KILLS=seed,1,kills` asks for other kills.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::entropy::Entropy;
use serde_json::{Value as Json, json};

use crate::effort;
use crate::harness::{ORG, Server, Start, bootstrap, eventually, request};
use crate::rules::{RULES, alerts};

/// The number of kills in a quick and in a thorough run.
const KILLS: [u64; 2] = [6, 200];
/// The longest time between the start of a server, or its first complete answer, and its kill.
const LIFE_MAX: Duration = Duration::from_millis(600);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// One more rule of the group, which fires for two seconds and is resolved for two seconds.
const BLINKS: &str = "  - {alert: Blinks, expr: 'floor(vector(time() / 2)) % 2 == 0'}\n";

/// A message: status, fingerprint, start of the alert.
type Message = [String; 3];

/// The deliveries of each message.
#[derive(Default)]
struct Messages(Mutex<BTreeMap<Message, BTreeSet<String>>>);

impl Messages {
    /// Returns a webhook receiver's URL, and what it received.
    fn receive() -> (String, Arc<Messages>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
        let messages = Arc::new(Messages::default());
        let kept = Arc::clone(&messages);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A killed server sends a part of a request.
                let _ = kept.answer(stream);
            }
        });
        (url, messages)
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_read_timeout(Some(WAIT_MAX)).ok()?;
        let (mut bytes, mut piece) = (Vec::new(), [0; 8_192]);
        let (head, body) = loop {
            let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
            bytes.extend(&piece[..read]);
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length: usize = header(&head, "content-length")?.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                break (head, bytes[end + 4..].to_vec());
            }
        };
        let delivery = header(&head, "x-promlet-delivery").expect("an id").to_owned();
        let body: Json = serde_json::from_slice(&body).expect("JSON");
        for alert in body["alerts"].as_array().expect("alerts") {
            let text = |name: &str| alert[name].as_str().expect(name).to_owned();
            let message = [text("status"), text("fingerprint"), text("startsAt")];
            self.0.lock().expect("unpoisoned").entry(message).or_default().insert(delivery.clone());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok()
    }

    /// Checks that each message had one delivery, whatever was repeated. Returns the number of
    /// messages of a status.
    fn check(&self, seed: u64, status: &str) -> usize {
        let all = self.0.lock().expect("unpoisoned");
        let doubled: Vec<_> = all.iter().filter(|(_, deliveries)| deliveries.len() > 1).collect();
        assert!(doubled.is_empty(), "seed {seed}: {doubled:#?}");
        all.keys().filter(|message| message[0] == status).count()
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn configure(server: &Server, cookie: &str, hook: &str) {
    let configuration = json!({
        "route": { "receiver": "all", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s" },
        "receivers": [{ "name": "all", "webhook_configs": [{ "id": "hook", "url": hook }] }],
    });
    let url = format!("{}/api/v1/orgs/{ORG}/notifications", server.url);
    let headers = [("Cookie", cookie), ("If-Match", "*"), ("Content-Type", "application/json")];
    let stored = request("PUT", &url, &headers, Some(configuration.to_string().as_bytes()));
    assert_eq!(stored.status, 200, "{}", stored.body);
}

/// Returns the alerts that fire or wait all the time, once both are there.
fn steady(server: &Server, cookie: &str) -> Option<Vec<[String; 3]>> {
    let mut found = alerts(server, cookie);
    found.retain(|alert| alert[0] != "Blinks");
    (found.len() == 2).then_some(found)
}

/// Returns the numbers of firing and resolved messages.
fn run(seed: u64, kills: u64) -> [usize; 2] {
    println!("seed {seed}, {kills} kills");
    let mut rng = Entropy::seeded(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let rules = dir.path().join("rules.yml");
    std::fs::write(&rules, format!("{RULES}{BLINKS}")).expect("written");
    let args = ["serve", "--outbound-allow", "127.0.0.1", "--rules", rules.to_str().expect("UTF-8")];
    let (store, env) = (dir.path().join("store"), bootstrap());
    let start = Start { args: &args, dir: &store, env: &env };
    let (hook, messages) = Messages::receive();
    let mut server = Server::start(&start);
    let cookie = server.sign_in();
    configure(&server, &cookie, &hook);
    let none = || "there are no alerts".to_owned();
    let first = eventually(WAIT_MAX, none, || steady(&server, &cookie));
    assert_eq!([&first[0][1], &first[1][1]], ["firing", "pending"]);
    for kill in 0..kills {
        std::thread::sleep(LIFE_MAX.mul_f64(rng.unit()));
        server.kill();
        // A third of the servers are killed while they start.
        if rng.unit() < 1.0 / 3.0 {
            server = Server::start_early(&start);
            continue;
        }
        server = Server::start(&start);
        let failure = || format!("seed {seed}: no alerts after kill {kill}");
        let now = eventually(WAIT_MAX, failure, || steady(&server, &cookie));
        assert_eq!(now, first, "seed {seed}, kill {kill}");
    }
    server.wait_ready();
    // Every firing alert that blinks is resolved, once the last server has had time for it.
    let settled = || {
        let [firing, resolved] = ["firing", "resolved"].map(|status| messages.check(seed, status));
        (firing >= 2 && resolved + 2 >= firing).then_some([firing, resolved])
    };
    let failure =
        || format!("seed {seed}: messages are missing: {:#?}", messages.0.lock().expect("unpoisoned"));
    let counts = eventually(WAIT_MAX, failure, settled);
    assert_eq!(steady(&server, &cookie), Some(first), "seed {seed}");
    assert!(server.terminate().success());
    counts
}

#[test]
fn kills_change_no_state_and_no_start_of_an_alert_and_double_no_notification() {
    let [quick, thorough] = KILLS;
    let usual = (20_261_127..20_261_128, effort::rounds(quick, thorough));
    let (seeds, kills) = effort::requested_walks("PROMLET_TEST_RULE_KILLS").unwrap_or(usual);
    for seed in seeds {
        let [firing, resolved] = run(seed, kills);
        println!("seed {seed}: {firing} firing and {resolved} resolved messages, each delivered once");
    }
}

fn change_group(server: &Server, cookie: &str, name: &str, rules: Option<&str>) {
    let url = format!("{}/api/v1/orgs/{ORG}/rule-groups/{name}", server.url);
    let headers = [("Cookie", cookie), ("If-Match", "*"), ("Content-Type", "application/json")];
    let yaml = |rules: &str| json!({ "yaml": format!("name: {name}\ninterval: 2s\nrules: [{rules}]") });
    let body = rules.map(|rules| yaml(rules).to_string());
    let method = if body.is_some() { "PUT" } else { "DELETE" };
    let done = request(method, &url, &headers, body.as_deref().map(str::as_bytes));
    assert!((200..300).contains(&done.status), "{}", done.body);
}

/// Waits until exactly these series of the tests below are found.
fn wait_for_series(server: &Server, cookie: &str, wanted: &[&str]) {
    let query = "/prometheus/api/v1/query?query=%7B__name__%3D~%22kept%7Cdropped%7Cgone%22%7D";
    let found = || {
        let found = server.get(&format!("/api/v1/orgs/{ORG}{query}"), &[("Cookie", cookie)]).json();
        let series = found["data"]["result"].as_array().expect("a vector").clone();
        let name = |one: &Json| one["metric"]["__name__"].as_str().unwrap_or_default().to_owned();
        let mut names: Vec<String> = series.iter().map(name).collect();
        names.sort();
        (names == wanted).then_some(())
    };
    eventually(WAIT_MAX, || format!("the series are not {wanted:?}"), found);
}

/// Without their markers, the series would be found for five minutes.
#[test]
fn series_of_rules_that_were_removed_just_before_a_kill_end_after_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let (store, env) = (dir.path().join("store"), bootstrap());
    let start = Start { args: &["serve"], dir: &store, env: &env };
    let server = Server::start(&start);
    let cookie = server.sign_in();
    let [kept, dropped] = ["{record: kept, expr: vector(1)}", "{record: dropped, expr: vector(2)}"];
    change_group(&server, &cookie, "g", Some(&format!("{kept}, {dropped}")));
    change_group(&server, &cookie, "h", Some("{record: gone, expr: vector(3)}"));
    wait_for_series(&server, &cookie, &["dropped", "gone", "kept"]);
    change_group(&server, &cookie, "g", Some(kept));
    change_group(&server, &cookie, "h", None);
    server.kill();
    // The second kill follows before anything has ended.
    Server::start(&start).kill();
    let server = Server::start(&start);
    wait_for_series(&server, &cookie, &["kept"]);
    assert!(server.terminate().success());
}

#[test]
fn series_of_rules_that_left_a_file_while_the_server_was_killed_end_after_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = dir.path().join("rules.yml");
    let write = |rest: &str| {
        let kept = "{record: kept, expr: vector(1)}";
        let text = format!("groups:\n- {{name: g, interval: 2s, rules: [{kept}{rest}]}}\n");
        std::fs::write(&rules, text).expect("written");
    };
    write(", {record: dropped, expr: vector(2)}");
    let (store, env) = (dir.path().join("store"), bootstrap());
    let args = ["serve", "--rules", rules.to_str().expect("UTF-8")];
    let start = Start { args: &args, dir: &store, env: &env };
    let server = Server::start(&start);
    let cookie = server.sign_in();
    wait_for_series(&server, &cookie, &["dropped", "kept"]);
    server.kill();
    write("");
    Server::start(&start).kill();
    let server = Server::start(&start);
    wait_for_series(&server, &cookie, &["kept"]);
    // Without files, all of them end.
    server.kill();
    let server = Server::start(&Start { args: &["serve"], ..start });
    wait_for_series(&server, &cookie, &[]);
    assert!(server.terminate().success());
}
