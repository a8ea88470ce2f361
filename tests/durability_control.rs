//! kill -9 during account changes: every acknowledged change is stored, and every stored change was
//! requested.
//!
//! The test starts its own binary again as a child that commits changes from several threads and
//! prints `ack` after each. After a seeded number of them the test kills the child and compares the
//! store with a model. Every change also sets its thread's progress row in the same commit. The
//! store therefore records which changes it holds, and a partial change is detected.

#[path = "../src/kv/scratch.rs"]
mod scratch;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use promlet::entropy::Entropy;
use promlet::kv::{
    Control, ControlOptions, DataFolder, DatabaseError, Record, RecoveryReport, SideRecord, Start,
};
use promlet::model::Timestamp;
use serde::{Deserialize, Serialize};

/// Where the child finds the store; without it, [`child_of_the_kill_loop`] has nothing to do.
const STORE: &str = "PROMLET_TEST_KILL_LOOP_STORE";
const THREADS: u32 = 4;
const SLOTS: u32 = 8;
const KILLS: u64 = 24;
const SEED: u64 = 20_261_121;
/// A child whose parent is gone ends after this many changes a thread.
const CHANGES_MAX: u32 = 20_000;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    written_by_change: u32,
    body: Vec<u8>,
}

impl Record for Account {
    const TABLE: u8 = 1;
    const KIND: u8 = 1;
    const VERSION: u8 = 1;
    type Key = (u32, u32);
}

#[derive(Serialize, Deserialize)]
struct Progress(u32);

impl Record for Progress {
    const TABLE: u8 = 2;
    const KIND: u8 = 2;
    const VERSION: u8 = 1;
    type Key = u32;
}

#[derive(Serialize, Deserialize)]
struct LastSeen(u32);

impl Record for LastSeen {
    const TABLE: u8 = 3;
    const KIND: u8 = 3;
    const VERSION: u8 = 1;
    type Key = (u32, u32);
}

impl SideRecord for LastSeen {
    type Main = Account;

    fn main_key(key: &(u32, u32)) -> (u32, u32) {
        *key
    }
}

/// What change number `n` of thread `t` does to which slot: sets a body, or removes the account.
fn change(t: u32, n: u32) -> (u32, Option<Account>) {
    let mut rng = Entropy::seeded(u64::from(t) << 32 | u64::from(n));
    let [slot, kind, fill, size] = rng.bytes();
    let body = match kind % 4 {
        0 => return (u32::from(slot) % SLOTS, None),
        // Spans several rows: half of one would not join.
        1 => vec![fill; 4_000 + usize::from(size) * 40],
        _ => vec![fill; usize::from(size)],
    };
    (u32::from(slot) % SLOTS, Some(Account { written_by_change: n, body }))
}

fn open(path: &Path) -> (DataFolder, Control, RecoveryReport) {
    let now = Timestamp::from_s(1_700_000_000);
    let folder = DataFolder::open(path, now, &mut Entropy::seeded(SEED)).expect("the folder opens");
    let options = ControlOptions { now, users_table: Account::TABLE };
    let (control, report) = Control::open(&folder, &options).expect("control opens");
    (folder, control, report)
}

fn progress(control: &Control, t: u32) -> u32 {
    control.get::<Progress>(&t).expect("read").map_or(0, |p| p.0)
}

#[test]
fn child_of_the_kill_loop() {
    #[expect(clippy::disallowed_methods, reason = "how this test's parent talks to its child")]
    let Some(path) = std::env::var_os(STORE) else { return };
    let (_folder, control, _) = open(Path::new(&path));
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let control = &control;
            scope.spawn(move || {
                for n in progress(control, t) + 1..CHANGES_MAX {
                    let committed = control.commit(move |tx| {
                        let (slot, account) = change(t, n);
                        match account {
                            Some(account) => tx.put(&(t, slot), &account),
                            None => {
                                tx.remove::<Account>(&(t, slot));
                                tx.remove::<LastSeen>(&(t, slot));
                            }
                        }
                        tx.put(&t, &Progress(n));
                        Ok::<_, DatabaseError>(())
                    });
                    committed.expect("committed");
                    std::io::stderr()
                        .write_all(format!("ack {t} {n}\n").as_bytes())
                        .expect("the parent reads");
                    if n % 5 == 0 {
                        // All slots, including those of removed accounts and of the other threads.
                        let keys = (0..THREADS * SLOTS).map(|k| ((k / SLOTS, k % SLOTS), LastSeen(n)));
                        control.put_side(keys.collect()).expect("side rows");
                    }
                }
            });
        }
    });
}

/// Runs a child until it has acknowledged `acks` changes and kills it. Returns the last
/// acknowledged change of each thread.
fn run_and_kill(path: &Path, acks: u64) -> BTreeMap<u32, u32> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "child_of_the_kill_loop", "--nocapture", "--test-threads=1"])
        .env(STORE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut answered = BTreeMap::new();
    let mut take = |line: String| {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("ack"), "the child says: {line}");
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok()).expect("a number");
        answered.insert(number(), number());
    };
    for _ in 0..acks {
        take(lines.next().expect("the child answers").expect("text"));
    }
    child.kill().expect("killed");
    // The output before its death.
    lines.for_each(|line| take(line.expect("text")));
    child.wait().expect("gone");
    answered
}

fn check(control: &Control, answered: &BTreeMap<u32, u32>, context: &str) {
    let mut expected = BTreeMap::new();
    for t in 0..THREADS {
        let held = progress(control, t);
        let acked = answered.get(&t).copied().unwrap_or_default();
        assert!(held >= acked, "{context}: thread {t} was answered {acked}, the store holds {held}");
        assert!(
            acked == 0 || held <= acked + 1,
            "{context}: thread {t} asked for {}, the store holds {held}",
            acked + 1
        );
        for n in 1..=held {
            match change(t, n) {
                (slot, Some(account)) => drop(expected.insert((t, slot), account)),
                (slot, None) => drop(expected.remove(&(t, slot))),
            }
        }
    }
    let found = control.scan::<Account>(&()).expect("scan");
    assert!(found.iter().map(|(k, v)| (k, v)).eq(expected.iter()), "{context}: the accounts differ");
    for (key, _) in control.scan::<LastSeen>(&()).expect("scan") {
        assert!(expected.contains_key(&key), "{context}: {key:?} was seen after it was removed");
    }
}

#[test]
fn kill_nine_loses_no_answered_change_and_invents_none() {
    let temp = crate::scratch::temporary_folder().expect("temp");
    let path = temp.path().join("store");
    let mut rng = Entropy::seeded(SEED);
    let mut changes = 0;
    for kill in 1..=KILLS {
        let [a, b] = rng.bytes();
        let acks = 1 + u64::from(u16::from_le_bytes([a, b])) % 400;
        let context = format!("seed {SEED}, kill {kill} after {acks} answers");
        let answered = run_and_kill(&path, acks);
        changes += acks;
        if kill % 4 == 0 {
            std::fs::remove_dir_all(path.join("control")).expect("removed");
        }
        let (_folder, control, report) = open(&path);
        let rebuilt = matches!(report.start, Start::Rebuilt { .. });
        assert_eq!(rebuilt, kill % 4 == 0, "{context}: {report:?}");
        check(&control, &answered, &context);
        assert_eq!(report.blobs, 0, "{context}");
        control.close().expect("a clean close");
    }
    let (_folder, control, report) = open(&path);
    assert!(matches!(report.start, Start::Intact) && report.seq > changes, "{report:?}");
    check(&control, &BTreeMap::new(), "after everything");
}
