//! A power cut loses no acknowledged data and restores no revoked access.
//!
//! The data folder is on an ext4, then on an xfs, in a file mounted through a loop device. While
//! clients write samples and change accounts, the server makes checkpoints, seals and merges, drops
//! expired samples, and makes a backup now and then. For a cut the process is stopped (SIGSTOP), in
//! half of the rounds some of its dirty pages are written back at random, as a kernel would, and
//! the file system is shut down with the content of its journal and device at that moment. Then it
//! is mounted again and the binary started on it. Needs root and loop devices, and fails without
//! them.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

#[path = "binary/side_data.rs"]
mod side_data;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::{ORG, Server, Start, bootstrap, compressed, percent, request, write_request};
use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

/// On each file system; some fall into the first moments after a start.
const CUTS: usize = 15;

/// Stops every thread of the process, writes back some pages if `seed` is not 0, and shuts the file
/// system down without flushing its journal (`EXT4_IOC_SHUTDOWN`, flag 2: no log flush).
const CUT: &str = r#"
import ctypes, fcntl, os, random, signal, struct, sys, time
pid, mount, seed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.kill(pid, signal.SIGSTOP)
def state(thread): return open(f"/proc/{pid}/task/{thread}/stat").read().rsplit(")", 1)[1].split()[0]
for _ in range(5000):
    if all(state(thread) in "TZ" for thread in os.listdir(f"/proc/{pid}/task")): break
    time.sleep(0.002)
else: sys.exit("it does not stop")
rnd, libc = random.Random(seed), ctypes.CDLL(None, use_errno=True)
for folder, _, names in os.walk(mount) if seed else ():
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.isfile(path): continue
        file = os.open(path, os.O_RDWR)
        pages = os.fstat(file).st_size >> 12
        for _ in range(rnd.randrange(4) if pages else 0):
            offset, length = rnd.randrange(pages) << 12, rnd.randrange(1, 6) << 12
            libc.sync_file_range(file, ctypes.c_long(offset), ctypes.c_long(length), 7)
        os.close(file)
root = os.open(mount, os.O_RDONLY)
fcntl.ioctl(root, 0x8004587D, struct.pack("I", 2))
os.close(root)
os.kill(pid, signal.SIGKILL)
os.kill(pid, signal.SIGCONT)
"#;

/// A file system in a file.
#[derive(Clone, Copy, Debug)]
struct FileSystem {
    name: &'static str,
    make: &'static [&'static str],
    mount_options: &'static str,
}

/// Without auto_da_alloc, a rename on ext4 does not write the data of the file first.
const EXT4: FileSystem =
    FileSystem { name: "ext4", make: &["mkfs.ext4", "-q", "-F"], mount_options: "loop,noauto_da_alloc" };
const XFS: FileSystem = FileSystem { name: "xfs", make: &["mkfs.xfs", "-q"], mount_options: "loop" };

/// The file system; unmounted when dropped.
struct LoopDisk {
    kind: FileSystem,
    image: PathBuf,
    mount: PathBuf,
}

impl LoopDisk {
    fn make(dir: &Path, kind: FileSystem) -> LoopDisk {
        let disk = LoopDisk { kind, image: dir.join("image"), mount: dir.join("mount") };
        std::fs::create_dir(&disk.mount).expect("made");
        let image = std::fs::File::create(&disk.image).expect("made");
        image.set_len(2 << 30).expect("sparse");
        let (program, options) = kind.make.split_first().expect("a program");
        done(Command::new(program).args(options).arg(&disk.image));
        disk.mount();
        disk
    }

    fn mount(&self) {
        let FileSystem { name, mount_options, .. } = self.kind;
        let options = ["-t", name, "-o", mount_options];
        done(Command::new("mount").args(options).arg(&self.image).arg(&self.mount));
    }

    /// Cuts the power. With a `seed` other than 0, some dirty pages are written to the disk before.
    fn cut(&self, server: &Server, seed: usize) {
        let (pid, seed) = (server.pid().to_string(), seed.to_string());
        done(Command::new("python3").args(["-c", CUT, &pid]).arg(&self.mount).arg(&seed));
    }

    /// Mounts the file system again, as after the return of the power.
    fn mount_again(&self) {
        done(Command::new("umount").arg(&self.mount));
        self.mount();
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // After a failure the server may still use it: unmount lazily, without a second panic.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

fn done(command: &mut Command) {
    packages::run(command, "this test needs root and loop devices");
}

fn serve(store: &Path) -> Server {
    Server::start(&Start {
        args: &["serve", "--checkpoint-every", "200ms", "--expiry-grace", "0s"],
        dir: store,
        env: &bootstrap(),
    })
}

/// Makes retention drop samples until the cut; `cycle` continues where the last cut ended it.
/// Returns how often samples were dropped.
fn perform_step(
    server: &Server,
    (cookie, secret): (&str, &str),
    base: Timestamp,
    cycle: &mut i64,
    dying: &AtomicBool,
) -> usize {
    let mut dropped = 0;
    while !dying.load(Ordering::SeqCst) {
        if (200..300).contains(&side_data::perform_step(server, cookie, secret, base, *cycle)) {
            dropped += usize::from(*cycle % side_data::STEPS == side_data::STEPS - 1);
            *cycle += 1;
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    dropped
}

/// Seals and merges until the cut, counts the seals in `sealed`, and makes a backup now and then.
/// Returns the number of backups.
fn keep_house(
    server: &Server,
    cookie: &str,
    store: &Path,
    sealed: &AtomicUsize,
    dying: &AtomicBool,
) -> usize {
    let mut backups = 0;
    for n in 0.. {
        if dying.load(Ordering::SeqCst) {
            break;
        }
        let answer = server.post_json("/api/v1/admin/seal", &[("Cookie", cookie)], &json!({}));
        sealed.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
        if n % 4 == 3 {
            let to = store.with_file_name(format!("backup-{}-{n}", server.pid()));
            let made = Command::new(env!("CARGO_BIN_EXE_promlet"))
                .arg("backup")
                .arg(&to)
                .arg("--data-dir")
                .arg(store)
                .output()
                .expect("the binary starts");
            backups += usize::from(made.status.success());
            // The backup may be incomplete, or its file system shut down.
            let _ = std::fs::remove_dir_all(&to);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    backups
}

/// Waits until `least` seals are done, or for half a minute; the sums at the end show a timeout.
fn wait_until_sealed(sealed: &AtomicUsize, least: usize) {
    for _ in 0..15_000 {
        if sealed.load(Ordering::SeqCst) >= least {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[derive(Default)]
struct Samples {
    /// Milliseconds after the base, answered with a 2xx.
    stored: BTreeSet<i64>,
    tried: i64,
}

#[derive(Default)]
struct Accounts {
    /// Secrets of keys that were made, and of those that were removed as well.
    live: Vec<String>,
    revoked: Vec<String>,
    /// Cookies of sessions that were ended.
    ended: Vec<String>,
}

fn value_of(step: i64) -> f64 {
    step as f64 + 0.25
}

/// Writes samples until the end of the process.
fn write(server: &Server, secret: &str, base: Timestamp, oracle: &mut Samples, dying: &AtomicBool) {
    let labels = Labels::from_pairs([("__name__", "cut")]);
    while !dying.load(Ordering::SeqCst) {
        let step = oracle.tried;
        oracle.tried += 1;
        let sample = Sample { at: base.plus_ms(step), value: value_of(step) };
        let mut request = write_request(&[(labels.clone(), vec![sample])]);
        side_data::add(&mut request, base, step);
        if server.write_raw(secret, &compressed(&request)).status == 204 {
            oracle.stored.insert(step);
        }
    }
}

/// Makes keys, removes every second one, and ends sessions.
fn change_accounts(server: &Server, cookie: &str, oracle: &mut Accounts, dying: &AtomicBool) {
    let keys = format!("/api/v1/orgs/{ORG}/api-keys");
    for n in 0.. {
        if dying.load(Ordering::SeqCst) {
            return;
        }
        let body = json!({"name": format!("key {n}"), "scopes": ["read"]});
        let made = server.post_json(&keys, &[("Cookie", cookie)], &body);
        if made.status != 201 {
            // Over the rate limit, or the end.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let made = made.json();
        let secret = made["secret"].as_str().expect("a secret").to_owned();
        if n % 2 == 0 {
            oracle.live.push(secret);
            continue;
        }
        let path = format!("{}{keys}/{}", server.url, made["id"].as_str().expect("an id"));
        if request("DELETE", &path, &[("Cookie", cookie)], None).status == 204 {
            oracle.revoked.push(secret);
        }
        if n % 3 == 0 {
            let login = json!({"email": harness::EMAIL, "password": harness::PASSWORD});
            let session = server.post_json("/api/v1/auth/login", &[], &login);
            if session.status == 200 {
                let session = session.session_cookie();
                let out = server.post_json("/api/v1/auth/logout", &[("Cookie", &session)], &json!({}));
                if out.status == 204 {
                    oracle.ended.push(session);
                }
            }
        }
    }
}

/// Repeats a request while the response is 429, and returns the first other response.
fn status(server: &Server, path: &str, header: (&str, &str)) -> harness::Answer {
    for _ in 0..200 {
        let answer = server.get(path, &[header]);
        if answer.status != 429 {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("429 for ten seconds");
}

fn check_samples(server: &Server, cookie: &str, base: Timestamp, oracle: &Samples, round: usize) {
    let now = Clock::System.now().as_s();
    let path = format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={}&time={now}", percent("cut[1h]"));
    let answer = status(server, &path, ("Cookie", cookie));
    assert_eq!(answer.status, 200, "cut {round}: {}", answer.body);
    let data = answer.json()["data"].clone();
    let mut found = BTreeSet::new();
    for pair in data["result"][0]["values"].as_array().into_iter().flatten() {
        #[expect(clippy::cast_possible_truncation, reason = "a time of this century in milliseconds")]
        let step = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64 - base.as_ms();
        let value: f64 = pair[1].as_str().expect("a text").parse().expect("a number");
        assert!(step < oracle.tried && value == value_of(step), "cut {round}: invented {step}={value}");
        found.insert(step);
    }
    let lost: Vec<_> = oracle.stored.difference(&found).collect();
    assert!(lost.is_empty(), "cut {round}: {} answered samples lost: {lost:?}", lost.len());
}

fn check_accounts(server: &Server, oracle: &Accounts, round: usize) {
    let probe = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query=1&time=1");
    let keys = [(&oracle.live, 200), (&oracle.revoked, 401)];
    for (secret, expected) in keys.iter().flat_map(|(keys, code)| keys.iter().rev().take(10).zip([*code; 10]))
    {
        let answer = status(server, &probe, ("Authorization", &format!("Bearer {secret}")));
        assert_eq!(answer.status, expected, "cut {round}: {}", answer.body);
    }
    for session in oracle.ended.iter().rev().take(10) {
        let answer = status(server, &format!("/api/v1/orgs/{ORG}/api-keys"), ("Cookie", session));
        assert_eq!(answer.status, 401, "cut {round}: an ended session is back");
    }
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_answered_and_brings_nothing_back_on_ext4() {
    cuts(EXT4);
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_answered_and_brings_nothing_back_on_xfs() {
    packages::installed("mkfs.xfs", "xfsprogs");
    cuts(XFS);
}

fn cuts(kind: FileSystem) {
    let mut rng = Entropy::seeded(20_261_121);
    let dir = tempfile::tempdir().expect("a folder");
    let disk = LoopDisk::make(dir.path(), kind);
    let store = disk.mount.join("store");
    let base = Timestamp::from_s(Clock::System.now().as_s() - 1_800);
    let (mut samples, mut accounts) = (Samples::default(), Accounts::default());
    let (mut sealed, mut dropped, mut backups, mut cycle) = (0, 0, 0, 0);
    let mut server = serve(&store);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    for round in 0..CUTS {
        let (dying, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&server, &secret, base, &mut samples, &dying));
            scope.spawn(|| change_accounts(&server, &cookie, &mut accounts, &dying));
            let house = scope.spawn(|| keep_house(&server, &cookie, &store, &done, &dying));
            let drops = scope.spawn(|| perform_step(&server, (&cookie, &secret), base, &mut cycle, &dying));
            // A busy machine takes longer to get as far. Every fourth cut comes before any seal is
            // done.
            wait_until_sealed(&done, round % 4);
            std::thread::sleep(Duration::from_millis(1_000).mul_f64(rng.unit()));
            // All clients still send while everything stops; responses received by then count.
            disk.cut(&server, if round % 2 == 0 { 0 } else { round });
            dying.store(true, Ordering::SeqCst);
            backups += house.join().expect("no panic");
            sealed += done.load(Ordering::SeqCst);
            dropped += drops.join().expect("no panic");
        });
        server.kill();
        disk.mount_again();
        server = serve(&store);
        check_samples(&server, &cookie, base, &samples, round);
        check_accounts(&server, &accounts, round);
    }
    println!(
        "{}: {CUTS} cuts, {} samples, {sealed} seals, {dropped} drops, {backups} backups, {} keys, {} revoked, {} sessions ended",
        kind.name,
        samples.stored.len(),
        accounts.live.len(),
        accounts.revoked.len(),
        accounts.ended.len()
    );
    assert!(samples.stored.len() > 20 * CUTS && accounts.revoked.len() > CUTS && !accounts.ended.is_empty());
    assert!(sealed > CUTS && dropped > CUTS / 5 && backups > 0);
    assert!(server.terminate().success(), "and it still ends in order");
    let tried = samples.tried;
    let histograms = side_data::check(&store, base, &samples.stored, |step| (0..tried).contains(&step));
    println!("{}: {histograms} histograms", kind.name);
}
