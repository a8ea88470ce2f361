//! A primary and its follower, as two processes: copying, reads, kills of both sides, broken
//! connections, promotion and fencing (docs/standby.md).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

use crate::effort::rounds;
use crate::harness::{ORG, Server, Start, bootstrap, eventually, percent, request};

const WAIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef-standby";

/// A TCP proxy in front of the primary, whose connections a test cuts or delays.
struct Proxy {
    port: u16,
    target: Arc<Mutex<String>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// New connections are refused while this is set.
    cut: Arc<AtomicBool>,
    /// The delay of each piece in microseconds.
    delay_us: Arc<AtomicU64>,
}

impl Proxy {
    fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let proxy = Proxy {
            port,
            target: Arc::default(),
            open: Arc::default(),
            cut: Arc::default(),
            delay_us: Arc::default(),
        };
        let (target, open, cut, delay) = (
            Arc::clone(&proxy.target),
            Arc::clone(&proxy.open),
            Arc::clone(&proxy.cut),
            Arc::clone(&proxy.delay_us),
        );
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let address = target.lock().expect("unpoisoned").clone();
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let copies = [client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone()];
                let [Ok(c1), Ok(s1), Ok(c2), Ok(s2)] = copies else { continue };
                open.lock().expect("unpoisoned").extend([client, server]);
                for (from, to) in [(c1, s1), (s2, c2)] {
                    let delay = Arc::clone(&delay);
                    std::thread::spawn(move || forward(from, to, &delay));
                }
            }
        });
        proxy
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn lead_to(&self, server: &Server) {
        *self.target.lock().expect("unpoisoned") = server.url.trim_start_matches("http://").to_owned();
    }

    /// Cuts all connections in the middle of whatever they send.
    fn break_connections(&self) {
        for stream in self.open.lock().expect("unpoisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay_us: &AtomicU64) {
    let mut piece = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        let delay = delay_us.load(Ordering::SeqCst);
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(delay));
        }
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A folder with the files of a test.
struct Place {
    dir: tempfile::TempDir,
    token: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        let token = dir.path().join("token");
        std::fs::write(&token, TOKEN).expect("written");
        Place { dir, token }
    }

    fn store(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn primary(&self, name: &str, mode: &str) -> Server {
        self.begin(name, &["serve", "--checkpoint-every", "200ms"], mode)
    }

    /// Starts without waiting for `/readyz`, which is 503 while a synchronous primary has no
    /// follower.
    fn begin(&self, name: &str, args: &[&str], mode: &str) -> Server {
        let token = self.token.display().to_string();
        let standby = [format!("--standby={mode}"), "--standby-token-file".to_owned(), token];
        let args: Vec<&str> = args.iter().copied().chain(standby.iter().map(|arg| &**arg)).collect();
        Server::start_damaged(&Start { args: &args, dir: &self.store(name), env: &bootstrap() })
    }

    fn follower(&self, name: &str, url: &str) -> Server {
        let token = self.token.display().to_string();
        let args = ["follow", url, "--token-file", &token, "--checkpoint-every", "200ms"];
        Server::start_damaged(&Start { args: &args, dir: &self.store(name), env: &[] })
    }
}

fn promote(dir: &Path) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"))
        .args(["promote", "--data-dir"])
        .arg(dir)
        .env_clear()
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn value_of(step: i64) -> f64 {
    step as f64 + 0.25
}

fn batch(base: Timestamp, step: i64) -> Vec<(Labels, Vec<Sample>)> {
    let labels = Labels::from_pairs([("__name__", "standby_test")]);
    vec![(labels, vec![Sample { at: base.plus_ms(step), value: value_of(step) }])]
}

/// Returns the samples that a server has, by time after `base`. `None` if it does not answer.
fn samples(server: &Server, cookie: &str, base: Timestamp) -> Option<BTreeMap<i64, f64>> {
    let now = Clock::System.now().as_s();
    let expr = percent("standby_test[2h]");
    let path = format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={expr}&time={now}");
    let answer = server.get(&path, &[("Cookie", cookie)]);
    if answer.status != 200 {
        return None;
    }
    let mut have = BTreeMap::new();
    for pair in answer.json()["data"]["result"][0]["values"].as_array().into_iter().flatten() {
        #[expect(clippy::cast_possible_truncation, reason = "a time of this century in milliseconds")]
        let ms = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64;
        have.insert(ms - base.as_ms(), pair[1].as_str().expect("text").parse().expect("a number"));
    }
    Some(have)
}

fn keys(server: &Server, cookie: &str) -> BTreeSet<String> {
    let answer = eventually(
        WAIT,
        || format!("no list of keys; log:\n{}", server.log()),
        || {
            let answer = server.get(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", cookie)]);
            (answer.status == 200).then_some(answer)
        },
    );
    let list = answer.json();
    let names = list["data"].as_array().expect("a list").iter();
    names.map(|key| key["name"].as_str().expect("a name").to_owned()).collect()
}

fn make_key(server: &Server, cookie: &str, name: &str) -> crate::harness::Answer {
    let body = json!({"name": name, "scopes": ["read"]});
    server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", cookie)], &body)
}

/// Waits until the follower has the samples `wanted` and no others.
fn wait_for_samples(server: &Server, cookie: &str, base: Timestamp, wanted: &BTreeSet<i64>) {
    let failure = || {
        let have = samples(server, cookie, base).map(|have| have.len());
        format!("has {have:?} samples of {}; log:\n{}", wanted.len(), server.log())
    };
    eventually(WAIT, failure, || {
        let have = samples(server, cookie, base)?;
        (have.keys().copied().collect::<BTreeSet<_>>() == *wanted).then_some(())
    });
}

#[test]
fn a_follower_copies_everything_serves_reads_refuses_changes_and_takes_over() {
    let place = Place::new();
    let primary = place.primary("primary", "async");
    let cookie = primary.sign_in();
    let (_, secret) = primary.api_key(&cookie);
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let mut sent = BTreeSet::new();
    let mut send = |server: &Server, steps: std::ops::Range<i64>| {
        for step in steps {
            let answer = server.write(&secret, &batch(base, step));
            assert_eq!(answer.status, 204, "{}", answer.body);
            sent.insert(step);
        }
        sent.clone()
    };
    send(&primary, 0..50);
    let sealed = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"))
        .args(["seal", "--data-dir"])
        .arg(place.store("primary"))
        .env_clear()
        .output()
        .expect("runs");
    assert!(sealed.status.success());
    send(&primary, 50..100);
    let follower = place.follower("follower", &primary.url);
    let all = send(&primary, 100..150);
    wait_for_samples(&follower, &cookie, base, &all);

    assert_eq!(make_key(&primary, &cookie, "later").status, 201);
    eventually(WAIT, || follower.log(), || keys(&follower, &cookie).contains("later").then_some(()));
    let refused = follower.write(&secret, &batch(base, 900));
    assert_eq!((refused.status, refused.code()), (503, "follower".to_owned()), "{}", refused.body);
    let refused = make_key(&follower, &cookie, "no");
    assert_eq!((refused.status, refused.code()), (503, "follower".to_owned()), "{}", refused.body);

    // No other credential opens the requests of a follower, and without --standby there are none.
    for (headers, status) in
        [(vec![], 401), (vec![("Cookie", &*cookie)], 401), (vec![("Authorization", "Bearer wrong")], 401)]
    {
        assert_eq!(primary.get("/api/v1/standby/base", &headers).status, status);
    }
    let token = format!("Bearer {TOKEN}");
    assert_eq!(follower.get("/api/v1/standby/base", &[("Authorization", &token)]).status, 404);

    // A seal on the primary, and further samples in the same files.
    let sealed = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"))
        .args(["seal", "--data-dir"])
        .arg(place.store("primary"))
        .env_clear()
        .output()
        .expect("runs");
    assert!(sealed.status.success());
    let all = send(&primary, 150..200);
    wait_for_samples(&follower, &cookie, base, &all);

    assert!(promote(&place.store("follower")).contains("epoch 2"));
    let answer = follower.write(&secret, &batch(base, 200));
    assert_eq!(answer.status, 204, "{}", answer.body);
    assert_eq!(make_key(&follower, &cookie, "after").status, 201);
    let failure = || format!("not fenced:\n{}", primary.log());
    eventually(WAIT, failure, || (primary.write(&secret, &batch(base, 900)).status == 503).then_some(()));
    let refused = primary.write(&secret, &batch(base, 900));
    assert_eq!(refused.code(), "fenced", "{}", refused.body);
    assert_eq!(make_key(&primary, &cookie, "no").code(), "fenced");
    let mut all = all;
    all.insert(200);
    wait_for_samples(&follower, &cookie, base, &all);

    // Both survive a restart in their roles.
    primary.kill();
    follower.kill();
    let fenced = place.primary("primary", "async");
    assert_eq!(fenced.write(&secret, &batch(base, 901)).code(), "fenced");
    let promoted = place.follower("follower", &fenced.url);
    wait_for_samples(&promoted, &cookie, base, &all);
    assert_eq!(promoted.write(&secret, &batch(base, 201)).status, 204);
    assert!(promoted.terminate().success(), "it stops cleanly");
}

/// What the client of a synchronous primary saw.
#[derive(Default)]
struct Seen {
    samples: BTreeSet<i64>,
    unsure: BTreeSet<i64>,
    keys: BTreeSet<String>,
    keys_unsure: BTreeSet<String>,
}

#[test]
fn synchronously_no_kill_and_no_broken_connection_loses_an_acknowledged_change() {
    let rounds = rounds(4, 20);
    let seed = 20_261_126;
    println!("seed {seed}");
    let mut rng = Entropy::seeded(seed);
    let place = Place::new();
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let first = place.primary("a", "async");
    let cookie = first.sign_in();
    let (_, secret) = first.api_key(&cookie);
    assert!(first.terminate().success());
    let proxy = Proxy::start();
    let mut primary = place.begin("a", &["serve", "--checkpoint-every", "200ms"], "sync");
    let refused = primary.write(&secret, &batch(base, 0));
    assert_eq!(refused.code(), "standby_missing", "{}", refused.body);
    proxy.lead_to(&primary);
    let mut follower = place.follower("b", &proxy.url());
    let mut seen = Seen::default();
    let count = AtomicU64::default();
    let mut next = 1;
    for round in 0..rounds {
        primary.wait_ready();
        let (first, dying) = (next, AtomicBool::new(false));
        let delay = Duration::from_millis(100).mul_f64(1.0 + 4.0 * rng.unit());
        proxy.delay_us.store(if round % 4 == 3 { 3_000 } else { 0 }, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&primary, &secret, base, first, &dying, &count));
            let accounts = scope.spawn(|| change_until(&primary, &cookie, round, &dying));
            std::thread::sleep(delay);
            match round % 3 {
                0 => kill(primary.pid()),
                1 => kill(follower.pid()),
                _ => proxy.break_connections(),
            }
            std::thread::sleep(Duration::from_millis(100));
            dying.store(true, Ordering::SeqCst);
            let (after, acknowledged, unsure) = writer.join().expect("the writer");
            next = after;
            seen.samples.extend(acknowledged);
            seen.unsure.extend(unsure);
            let (made, unsure) = accounts.join().expect("the admin");
            seen.keys.extend(made);
            seen.keys_unsure.extend(unsure);
        });
        match round % 3 {
            0 => {
                primary = place.begin("a", &["serve", "--checkpoint-every", "200ms"], "sync");
                proxy.lead_to(&primary);
            }
            1 => follower = place.follower("b", &proxy.url()),
            _ => {}
        }
    }
    println!("{} acknowledged samples, {} keys", seen.samples.len(), seen.keys.len());
    assert!(seen.samples.len() > rounds * 3 && seen.keys.len() > rounds / 2, "it did write");
    primary.wait_ready();
    // The first machine dies in the middle of writes, and the second one takes over.
    let dying = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&primary, &secret, base, next, &dying, &count));
        std::thread::sleep(Duration::from_millis(200));
        kill(primary.pid());
        dying.store(true, Ordering::SeqCst);
        let (_, acknowledged, unsure) = writer.join().expect("the writer");
        seen.samples.extend(acknowledged);
        seen.unsure.extend(unsure);
    });
    drop(primary);
    promote(&place.store("b"));
    check(&follower, &cookie, base, &seen);
    follower.kill();
    let follower = place.follower("b", &proxy.url());
    check(&follower, &cookie, base, &seen);
    assert!(follower.terminate().success(), "it stops cleanly");
}

fn check(server: &Server, cookie: &str, base: Timestamp, seen: &Seen) {
    let failure = || format!("no samples:\n{}", server.log());
    let have = eventually(WAIT, failure, || samples(server, cookie, base));
    for step in &seen.samples {
        assert_eq!(have.get(step), Some(&value_of(*step)), "acknowledged sample {step}");
    }
    for (step, value) in &have {
        let is_known = seen.samples.contains(step) || seen.unsure.contains(step);
        assert!(is_known && *value == value_of(*step), "invented sample {step}={value}");
    }
    let names = keys(server, cookie);
    for name in &seen.keys {
        assert!(names.contains(name), "acknowledged key {name}");
    }
    for name in names.iter().filter(|name| *name != "test") {
        assert!(seen.keys.contains(name) || seen.keys_unsure.contains(name), "invented key {name}");
    }
}

fn kill(pid: u32) {
    let sent = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("runs");
    assert!(sent.success());
}

/// Writes one sample after the other, and counts the acknowledged ones. Returns the next step, the
/// acknowledged and the unsure ones.
fn write_until(
    server: &Server,
    secret: &str,
    base: Timestamp,
    first: i64,
    dying: &AtomicBool,
    count: &AtomicU64,
) -> (i64, Vec<i64>, Vec<i64>) {
    let (mut acknowledged, mut unsure) = (Vec::new(), Vec::new());
    let mut step = first;
    while !dying.load(Ordering::SeqCst) {
        let answer = server.write(secret, &batch(base, step));
        match answer.status {
            204 => {
                acknowledged.push(step);
                count.fetch_add(1, Ordering::SeqCst);
            }
            503 | 0 => {
                unsure.push(step);
                std::thread::sleep(Duration::from_millis(20));
            }
            other => panic!("{other}: {}", answer.body),
        }
        step += 1;
    }
    (step, acknowledged, unsure)
}

fn change_until(
    server: &Server,
    cookie: &str,
    round: usize,
    dying: &AtomicBool,
) -> (Vec<String>, Vec<String>) {
    let (mut made, mut unsure) = (Vec::new(), Vec::new());
    for n in 0.. {
        if dying.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("key-{round}-{n}");
        match make_key(server, cookie, &name).status {
            201 => made.push(name),
            429 => {}
            503 | 0 => unsure.push(name),
            other => panic!("making a key: {other}"),
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    (made, unsure)
}

/// Both sides live, and clients write to both: only the promoted one acknowledges anything.
#[test]
fn in_a_partition_the_promoted_follower_has_everything_that_either_side_acknowledges() {
    let place = Place::new();
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let first = place.primary("a", "async");
    let cookie = first.sign_in();
    let (_, secret) = first.api_key(&cookie);
    assert!(first.terminate().success());
    let old = place.begin("a", &["serve", "--checkpoint-every", "200ms"], "sync");
    let proxy = Proxy::start();
    proxy.lead_to(&old);
    let new = place.follower("b", &proxy.url());
    old.wait_ready();
    let mut seen = Seen::default();
    let is_over = AtomicBool::new(false);
    let (by_old, by_new) = (AtomicU64::default(), AtomicU64::default());
    let wait_for_some = |count: &AtomicU64| {
        eventually(WAIT, || "no sample is stored".into(), || (count.load(Ordering::SeqCst) > 3).then_some(()))
    };
    std::thread::scope(|scope| {
        let to_old = scope.spawn(|| write_until(&old, &secret, base, 0, &is_over, &by_old));
        let accounts = scope.spawn(|| change_until(&old, &cookie, 0, &is_over));
        wait_for_some(&by_old);
        // The partition, in which the old primary goes on getting requests.
        proxy.cut.store(true, Ordering::SeqCst);
        proxy.break_connections();
        std::thread::sleep(Duration::from_millis(300));
        let watch = promlet::clock::Stopwatch::start();
        assert!(promote(&place.store("b")).contains("epoch 2"));
        println!("promoted within {} ms", watch.elapsed().as_millis());
        let to_new = scope.spawn(|| write_until(&new, &secret, base, 500_000, &is_over, &by_new));
        let answer = old.write(&secret, &batch(base, 400_000));
        assert_eq!(answer.code(), "standby_missing", "it does not know yet: {}", answer.body);
        wait_for_some(&by_new);
        // It heals.
        proxy.cut.store(false, Ordering::SeqCst);
        let failure = || format!("not fenced:\n{}", old.log());
        eventually(WAIT, failure, || {
            (old.write(&secret, &batch(base, 400_001)).code() == "fenced").then_some(())
        });
        is_over.store(true, Ordering::SeqCst);
        for written in [to_old, to_new] {
            let (_, acknowledged, unsure) = written.join().expect("a writer");
            assert!(acknowledged.len() > 3, "it did write");
            seen.samples.extend(acknowledged);
            seen.unsure.extend(unsure);
        }
        let (made, unsure) = accounts.join().expect("the admin");
        seen.keys.extend(made);
        seen.keys_unsure.extend(unsure);
    });
    seen.unsure.extend([400_000, 400_001]);
    check(&new, &cookie, base, &seen);
    // The old primary stays fenced, and the new one keeps everything.
    new.kill();
    assert_eq!(old.write(&secret, &batch(base, 400_002)).code(), "fenced");
    let new = place.follower("b", &proxy.url());
    check(&new, &cookie, base, &seen);
    assert!(new.terminate().success(), "it stops cleanly");
}

#[test]
fn folders_are_opened_in_their_roles_only() {
    let place = Place::new();
    let primary = place.primary("primary", "async");
    let follower = place.follower("follower", &primary.url);
    // Without a note it has caught up, so that it may be promoted.
    eventually(
        WAIT,
        || follower.log(),
        || {
            let ready = follower.get("/readyz", &[]);
            (ready.status == 200 && !ready.body.contains("standby")).then_some(())
        },
    );
    follower.kill();
    let refused = |args: &[&str], words: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"))
            .args(args)
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(place.store("follower"))
            .env_clear()
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{args:?}: {text}");
    };
    refused(&["serve"], "this folder follows another server");
    // A primary that is gone leaves the follower readable.
    let url = primary.url.clone();
    primary.kill();
    let follower = place.follower("follower", &url);
    assert_eq!(request("GET", &format!("{}/healthz", follower.url), &[], None).status, 200);
    follower.kill();
    assert!(promote(&place.store("follower")).contains("epoch 2"), "a stopped follower is promoted, too");
}
