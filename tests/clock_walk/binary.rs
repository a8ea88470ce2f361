//! The steps of a seed, performed by the built binary under libfaketime: all acknowledged data is
//! there, except for deleted data, data that retention may remove, and data after damage.

#[path = "steps.rs"]
#[expect(dead_code, reason = "the walk of the store lets time pass, which a binary cannot be told to")]
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

use crate::Lent;
use crate::harness::{ORG, Server, percent, request};
use steps::{DAY, Damage, DamageKind, Deletion, HOUR, JUMPS, MINUTE, SERIES, Sending, Step, Steps};

/// The time after which a walk takes no further steps.
const WALK: Duration = Duration::from_secs(60);
/// Steps of one walk at most.
const STEPS: u32 = 20_000;
/// Takes one of this many steps that send samples: they are most of the steps of a walk.
const SENDING_ONE_OF: u64 = 12;
/// A clock that is ahead moves retention ahead by nine times the running time, which is two minutes
/// at most.
const LED: i64 = 30 * MINUTE;
/// No record of one sample ends with as many zeros.
const RECORD_BYTES_MAX: usize = 64;
/// The number of ticks of upkeep that the walk waits for; one comes every ten seconds.
const TICKS: u32 = 2;

/// The end of a record: its log file, and the number of bytes up to the end.
type LogEnd = (PathBuf, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Retention or damage was allowed to remove it.
    MayBeGone,
}

/// The samples that survive a kill and damage, and those that may be lost.
#[derive(Default)]
struct Unsealed {
    /// Samples that were sealed before and not deleted since. One that is written again after its
    /// deletion is a new sample, which only the log holds.
    sealed: BTreeSet<(u64, i64)>,
    samples: BTreeMap<(u64, i64), LogEnd>,
    deletions: Vec<(LogEnd, BTreeSet<(u64, i64)>)>,
}

struct Walk {
    lent: Lent,
    server: Option<Server>,
    secret: String,
    ahead_ms: i64,
    retention_ms: Option<i64>,
    samples: BTreeMap<(u64, i64), Fate>,
    unsealed: Option<Unsealed>,
    ticks_left: u32,
}

fn true_ms() -> i64 {
    Clock::System.now().as_ms()
}

fn value(series: u64, at_ms: i64) -> f64 {
    // Every millisecond another value, none of them exact in decimal.
    (at_ms % 1_000_003) as f64 * 1.1 + series as f64
}

/// Returns the end of the last log file, without the zeros after its records.
fn log_end(store: &Path) -> LogEnd {
    let (path, bytes) = last_log_file(store);
    (path, used(&bytes))
}

fn last_log_file(store: &Path) -> (PathBuf, Vec<u8>) {
    let files =
        std::fs::read_dir(store.join("wal")).expect("listed").map(|entry| entry.expect("read").path());
    let path = files.filter(|path| path.extension().is_some_and(|end| end == "wal")).max();
    let path = path.expect("a log file");
    let bytes = std::fs::read(&path).expect("read");
    (path, bytes)
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1
}

/// A command of the binary, without the server's environment.
fn promlet(args: &[&str], paths: &[&Path]) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"));
    let output = command.env_clear().args(args).args(paths).output().expect("the binary starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Walk {
    fn new(steps: &mut Steps) -> Walk {
        let lent = Lent::new();
        let ahead_ms = if steps.roll(2) == 0 { steps.pick(&JUMPS) } else { 0 };
        stand_at(&lent, ahead_ms);
        let server = serve(&lent, &["serve"]);
        let (_, secret) = server.api_key(&server.sign_in());
        let (samples, unsealed) = (BTreeMap::new(), None);
        let retention_ms = Some(90 * DAY);
        Walk {
            lent,
            server: Some(server),
            secret,
            ahead_ms,
            retention_ms,
            samples,
            unsealed,
            ticks_left: TICKS,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("runs")
    }

    fn jump(&mut self, ahead_ms: i64) {
        self.ahead_ms = ahead_ms;
        stand_at(&self.lent, ahead_ms);
    }

    fn send(&mut self, series: u64, off_ms: i64) {
        let at = true_ms() + off_ms;
        let labels = Labels::from_pairs([("__name__", "walk"), ("series", &*series.to_string())]);
        let sample = Sample { at: promlet::model::Timestamp::from_ms(at), value: value(series, at) };
        let answer = self.server().write(&self.secret, &[(labels, vec![sample])]);
        let place = format!("off by {off_ms} ms, the clock by {} ms: {}", self.ahead_ms, answer.body);
        match answer.status {
            200 | 204 => {
                self.samples.insert((series, at), Fate::Kept);
                if let Some(unsealed) = &mut self.unsealed {
                    let end = log_end(&self.lent.store());
                    unsealed.samples.entry((series, at)).or_insert(end);
                }
            }
            503 if self.ahead_ms < -10 * MINUTE || off_ms > 0 => {
                assert_eq!(answer.code(), "clock_unconfirmed", "{place}");
            }
            // The server has run for less than 15 minutes: no sample is permanently refused for
            // being ahead of its clock.
            400 if off_ms < -HOUR => assert!(answer.body.contains("too_old"), "{place}"),
            status => panic!("{status}, {place}"),
        }
    }

    fn sending(&mut self, sending: &Sending) {
        for (series, off_ms) in &sending.samples {
            self.send(*series, *off_ms);
        }
    }

    fn seal(&self) {
        promlet(&["seal", "--data-dir"], &[&self.lent.store()]);
    }

    fn delete(&mut self, Deletion { series, pick, length_ms }: Deletion) {
        let times: Vec<i64> =
            self.samples.keys().filter(|(of, _)| *of == series).map(|(_, at)| *at).collect();
        let Some(place) = pick.checked_rem(times.len() as u64) else { return };
        let from = times[usize::try_from(place).expect("small")];
        let to = from + length_ms;
        let path = format!(
            "/api/v1/orgs/{ORG}/prometheus/api/v1/admin/tsdb/delete_series?match[]={}&start={}&end={}",
            percent(&format!("walk{{series=\"{series}\"}}")),
            seconds(from),
            seconds(to)
        );
        let cookie = self.server().sign_in();
        let deleted = self.server().post_json(&path, &[("Cookie", &cookie)], &json!({}));
        assert_eq!(deleted.status, 204, "{}", deleted.body);
        let deleted: BTreeSet<(u64, i64)> =
            self.samples.range((series, from)..=(series, to)).map(|(key, _)| *key).collect();
        self.samples.retain(|key, _| !deleted.contains(key));
        if let Some(unsealed) = &mut self.unsealed {
            unsealed.sealed.retain(|key| !deleted.contains(key));
            unsealed.samples.retain(|key, _| !deleted.contains(key));
            unsealed.deletions.push((log_end(&self.lent.store()), deleted));
        }
    }

    /// Marks the samples that retention may have removed by now.
    fn expire(&mut self) {
        let Some(age) = self.retention_ms else { return };
        let oldest = true_ms() + LED - age;
        self.samples
            .range_mut(..)
            .filter(|((_, at), _)| *at < oldest)
            .for_each(|(_, fate)| *fate = Fate::MayBeGone);
    }

    fn retain(&mut self, age_ms: Option<i64>) {
        self.expire();
        self.retention_ms = age_ms;
        let days = age_ms.map_or(json!("none"), |ms| json!(ms / DAY));
        let body = json!({ "settings": { "retention_days": days } }).to_string();
        let cookie = self.server().sign_in();
        let headers = [("Cookie", &*cookie), ("Content-Type", "application/json")];
        let url = format!("{}/api/v1/orgs/{ORG}", self.server().url);
        let set = request("PATCH", &url, &headers, Some(body.as_bytes()));
        assert_eq!(set.status, 200, "{}", set.body);
        self.expire();
    }

    fn shown(&self) -> BTreeMap<(u64, i64), f64> {
        let cookie = self.server().sign_in();
        let at = (true_ms() + 51 * 365 * DAY) / 1_000;
        let data: Json = self.server().ask(&cookie, "walk[120y]", &at.to_string());
        let mut shown = BTreeMap::new();
        for series in data["result"].as_array().expect("a matrix") {
            let number: u64 =
                series["metric"]["series"].as_str().expect("a label").parse().expect("a number");
            for pair in series["values"].as_array().expect("values") {
                #[expect(clippy::cast_possible_truncation, reason = "milliseconds of this century")]
                let at = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64;
                shown.insert((number, at), pair[1].as_str().expect("a text").parse().expect("a number"));
            }
        }
        shown
    }

    fn check(&mut self, what: &str) {
        self.expire();
        let shown = self.shown();
        for (key @ (series, at), found) in &shown {
            assert!(self.samples.contains_key(key), "{what}: {key:?} was deleted or never acknowledged");
            assert_eq!(found.to_bits(), value(*series, *at).to_bits(), "{what}: {key:?}");
        }
        for (key, fate) in &self.samples {
            assert!(*fate == Fate::MayBeGone || shown.contains_key(key), "{what}: {key:?} is gone");
        }
    }

    fn restart(&mut self, cleanly: bool) {
        let server = self.server.take().expect("runs");
        if cleanly {
            assert!(server.terminate().success());
        } else {
            server.kill();
        }
        self.server = Some(serve(&self.lent, &["serve"]));
        self.check("after a start");
    }

    /// Damages the log of a killed server after the sealed part. Records before the damage are not
    /// lost.
    fn damage(&mut self, damage: &Damage) {
        self.seal();
        self.check("before the damage");
        let sealed = self.samples.keys().copied().collect();
        self.unsealed = Some(Unsealed { sealed, ..Unsealed::default() });
        damage.before.iter().for_each(|step| self.take(step));
        self.server.take().expect("runs").kill();
        let store = self.lent.store();
        let (path, mut bytes) = last_log_file(&store);
        let place = usize::try_from(damage.pick % used(&bytes) as u64).expect("small");
        match damage.kind {
            DamageKind::Flipped(bit) => bytes[place] ^= 1 << bit,
            DamageKind::Zeros => bytes[place..].fill(0),
            DamageKind::Cut => bytes.truncate(place),
        }
        std::fs::write(&path, bytes).expect("written");
        let server = if damage.repaired {
            let (new, old) = (store.with_file_name("repaired"), store.with_file_name("damaged"));
            promlet(&["repair", "--to"], &[&new, &store]);
            std::fs::rename(&store, &old).expect("renamed");
            std::fs::rename(&new, &store).expect("renamed");
            std::fs::remove_dir_all(&old).expect("removed");
            serve(&self.lent, &["serve"])
        } else {
            serve(&self.lent, &["serve", "--accept-loss"])
        };
        self.server = Some(server);
        let is_intact = |(of, end): &LogEnd| *of < path || (*of == path && end + RECORD_BYTES_MAX <= place);
        let Unsealed { sealed, samples: ends, deletions } = self.unsealed.take().unwrap_or_default();
        let shown = self.shown();
        for (key, fate) in &mut self.samples {
            if !sealed.contains(key) && !ends.get(key).is_some_and(is_intact) && !shown.contains_key(key) {
                *fate = Fate::MayBeGone;
            }
        }
        // A deletion whose record is lost may be reverted for the data that it covered.
        for (_, deleted) in deletions.iter().filter(|(end, _)| !is_intact(end)) {
            for key in deleted {
                self.samples.entry(*key).or_insert(Fate::MayBeGone);
            }
        }
        self.check("after the damage");
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Send(sending) => self.sending(sending),
            Step::Tick => {
                if let Some(left) = self.ticks_left.checked_sub(1) {
                    self.ticks_left = left;
                    std::thread::sleep(Duration::from_secs(11));
                }
            }
            Step::Jump(ahead_ms) => self.jump(*ahead_ms),
            Step::Seal | Step::SealAndMerge => self.seal(),
            Step::Delete(deletion) => self.delete(*deletion),
            Step::Restart { cleanly, .. } => self.restart(*cleanly),
            Step::Retention(age_ms) => self.retain(*age_ms),
            Step::Damage(damage) => self.damage(damage),
            Step::Check => self.check("at any time"),
            // A running server does these by itself.
            Step::SealIfDue | Step::Checkpoint => {}
        }
    }
}

/// Seconds since 1970, with three decimals.
fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1_000), ms.rem_euclid(1_000))
}

fn stand_at(lent: &Lent, ahead_ms: i64) {
    let sign = if ahead_ms < 0 { '-' } else { '+' };
    lent.stand_at(&format!("{sign}{}", ahead_ms.abs() / 1_000));
}

fn serve(lent: &Lent, args: &[&str]) -> Server {
    lent.serve_with(&[args, &["--expiry-grace", "1s"][..]].concat())
}

#[test]
fn no_sequence_of_wrong_clocks_damage_and_restarts_loses_what_the_server_acknowledged() {
    let seed = u64::from(u32::from_le_bytes(Entropy::system().bytes()));
    println!("seed {seed}");
    let mut steps = Steps::new(seed);
    let mut walk = Walk::new(&mut steps);
    let began_behind = walk.ahead_ms < 0;
    walk.send(0, 0);
    walk.jump(0);
    for day in 1_i64..=85 {
        walk.send(day.unsigned_abs() % SERIES, -day * DAY);
    }
    walk.seal();
    walk.check("history");
    let began = Stopwatch::start();
    let mut damaged = BTreeSet::new();
    for number in 0..STEPS {
        let step = steps.draw();
        if began.elapsed() > WALK && damaged.len() == 2 {
            break;
        }
        match &step {
            Step::Send(_) if steps.roll(SENDING_ONE_OF) > 0 => continue,
            Step::Damage(damage) => drop(damaged.insert(damage.repaired)),
            // Both ways out of damage are taken, however slow the machine is.
            _ if began.elapsed() > WALK => continue,
            _ => {}
        }
        println!("step {number}: {step:?}");
        walk.take(&step);
    }
    walk.jump(0);
    walk.restart(false);
    walk.send(0, 0);
    // Samples as far ahead of the clock as senders may be wait for that time.
    walk.jump(2 * HOUR);
    walk.seal();
    walk.check("at the end");
    let metrics = walk.server().get("/metrics", &[]).body;
    let files = metrics.lines().find_map(|line| line.strip_prefix("promlet_wal_files "));
    let files: f64 = files.and_then(|text| text.parse().ok()).expect("told");
    assert!(files <= 3.0, "{files} log files");
    // A server that ran by a clock of last year has not caught up yet.
    walk.jump(0);
    if !began_behind {
        walk.retain(Some(90 * DAY));
        walk.send(0, -70 * DAY);
        walk.seal();
        walk.retain(Some(DAY));
        walk.server().log_line("retention dropped segments");
        walk.check("after retention");
    }
}
