//! A primary and a follower in one process, without a network between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::kv::{
    CommitError, Control, ControlOptions, DataFolder, DatabaseError, Record, StandbyRole, StandbyRow,
};
use crate::model::effort::rounds;
use crate::model::{
    Access, BatchBuilder, GateMode, Labels, Matcher, OrgId, Sample, StandbyRefusal, StoreId, TimeRange,
    Timestamp,
};
use crate::tsdb::{AppendError, Home, Options, SampleColumns, Tsdb};

const ORG: OrgId = OrgId(7);
const NOW: Timestamp = Timestamp::from_s(1_795_000_000);
/// Long enough for a busy machine.
const WAIT: Duration = Duration::from_secs(60);

/// An open store.
struct Store {
    folder: DataFolder,
    control: Arc<Control>,
    tsdb: Arc<Tsdb>,
}

impl Store {
    fn open(dir: &Path) -> Store {
        let rng = &mut Entropy::seeded(7);
        let folder = DataFolder::open_following(dir, NOW, rng).expect("a folder");
        let (control, _) =
            Control::open(&folder, &ControlOptions { now: NOW, users_table: 1 }).expect("opens");
        let control = Arc::new(control);
        finish_adoption(dir, &control).expect("adopted");
        let home = Home { dir, store: folder.store_id(), control: Arc::clone(&control) };
        let options = Options { ahead_max: None, ..Options::default() };
        let (tsdb, report) = Tsdb::open(home, options, rng, NOW).expect("opens");
        assert_eq!(report.read_only, None);
        let tsdb = Arc::new(tsdb);
        if control.standby().expect("read").role == StandbyRole::Follower {
            tsdb.complete_last_record(NOW).expect("completed");
        }
        Store { folder, control, tsdb }
    }

    fn primary(&self, synchronous: bool) -> Arc<Primary> {
        let (control, tsdb) = (Arc::clone(&self.control), Arc::clone(&self.tsdb));
        let dir = self.folder.path().to_owned();
        let staging = (Arc::clone(&self.control), Arc::clone(&self.tsdb));
        let base: BaseSource = Box::new(move |send| {
            let to = dir.join("backup.new");
            std::fs::create_dir(&to).map_err(|e| e.to_string())?;
            let mut accounts = 0;
            let log = staging.1.stage_backup(&to, &mut || {
                accounts = staging.0.copy_to(&to).map_err(|e| e.to_string())?.seq;
                Ok(())
            });
            let log = log.map_err(|e| e.to_string())?;
            std::fs::copy(dir.join("STORE"), to.join("STORE")).map_err(|e| e.to_string())?;
            let sent = send(&to, log, accounts);
            std::fs::remove_dir_all(&to).map_err(|e| e.to_string())?;
            sent
        });
        let store = self.folder.store_id();
        Primary::new(PrimaryOptions { control, tsdb, store, synchronous, base }).expect("a primary")
    }

    fn append(&self, series: u32, ms: i64, value: f64) -> Result<u64, AppendError> {
        let mut batch = BatchBuilder::default();
        let labels = Labels::from_pairs([("__name__", "m".to_owned()), ("n", series.to_string())]);
        batch.series(&labels, [Sample { at: NOW.plus_ms(ms), value }]);
        self.tsdb.append(ORG, &batch.batch(), NOW).map(|report| report.stored)
    }

    fn delete(&self, series: u32, range: TimeRange) {
        let matchers = [Matcher::equal("__name__", "m"), Matcher::equal("n", &series.to_string())];
        self.tsdb.delete(ORG, &[matchers.to_vec()], range, NOW).expect("deleted");
    }

    /// Returns all samples by labels and time.
    fn samples(&self) -> Vec<(String, i64, u64)> {
        let snapshot = self.tsdb.snapshot(&Access::whole(ORG));
        let mut found = Vec::new();
        for series in snapshot.select(&[], TimeRange::ALL) {
            let mut out = SampleColumns::default();
            snapshot.read(series.id, TimeRange::ALL, &mut out);
            let name = series.labels.to_string();
            let samples = out.times.iter().zip(&out.values);
            found.extend(samples.map(|(at, value)| (name.clone(), *at, value.to_bits())));
        }
        found.sort();
        found
    }
}

/// A row of accounts.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Account(u32);

impl Record for Account {
    const TABLE: u8 = 0x3f;
    const KIND: u8 = 0x3f;
    const VERSION: u8 = 1;
    type Key = u32;
}

impl Store {
    fn change_account(&self, value: u32) -> Result<(), CommitError<DatabaseError>> {
        self.control.commit(move |tx| {
            tx.put(&1, &Account(value));
            Ok(())
        })
    }

    /// Returns this follower's handshake.
    fn request(&self) -> StreamRequest {
        let row = self.control.standby().expect("read");
        let log = self.tsdb.last_stored_record();
        StreamRequest {
            store: self.folder.store_id(),
            epoch: row.epoch,
            log,
            check: self.tsdb.log_check(log).expect("read"),
            accounts: row.accounts,
            accounts_check: row.accounts_check,
            link: row.link,
            all_rows: false,
        }
    }
}

/// Begins a stream whose acknowledgements the test sends by hand. Returns its link.
fn begin(hub: &Arc<Primary>, request: &StreamRequest) -> Result<(Stream, u64), Refused> {
    let mut stream = hub.begin(request)?;
    let mut reader = FrameReader::default();
    reader.push(&stream.next_piece().expect("a hello"));
    match reader.next_frame().expect("valid") {
        Some(Frame::Hello { link, .. }) => Ok((stream, link)),
        other => panic!("no hello: {other:?}"),
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).expect("copied");
        }
    }
}

/// A link within the process, which breaks after some pieces.
struct Direct {
    primary: Arc<Primary>,
    is_cut: AtomicBool,
    /// Whether acknowledgements do not arrive yet.
    is_held: AtomicBool,
}

struct DirectBody(Option<Stream>, std::vec::IntoIter<Vec<u8>>);

impl Incoming for DirectBody {
    fn read(&mut self, _: Duration) -> Result<Option<Vec<u8>>, LinkError> {
        match &mut self.0 {
            Some(stream) => stream.next_piece().map(Some).ok_or(LinkError::Ended),
            None => self.1.next().map(Some).ok_or(LinkError::Ended),
        }
    }
}

fn parameter(target: &str, name: &str) -> u64 {
    let (_, query) = target.split_once('?').expect("a query");
    let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn store_in(target: &str) -> StoreId {
    let hex = target.split("store=").nth(1).and_then(|rest| rest.get(..32)).expect("a store");
    StoreId(data_encoding::HEXLOWER.decode(hex.as_bytes()).expect("hex").try_into().expect("16 bytes"))
}

fn refused(refused: &Refused) -> LinkError {
    LinkError::Refused { code: refused.code().0.to_owned(), detail: refused.to_string() }
}

impl PrimaryLink for Direct {
    fn open(&self, target: &str, _: &dyn Fn() -> bool) -> Result<Box<dyn Incoming>, LinkError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(LinkError::Unreachable("cut".to_owned()));
        }
        if target.ends_with("/base") {
            let mut pieces = Vec::new();
            self.primary
                .send_base(&mut |piece| {
                    pieces.push(piece);
                    true
                })
                .expect("a base");
            return Ok(Box::new(DirectBody(None, pieces.into_iter())));
        }
        let request = StreamRequest {
            store: store_in(target),
            epoch: parameter(target, "epoch"),
            log: parameter(target, "log"),
            check: u32::try_from(parameter(target, "check")).expect("a checksum"),
            accounts: parameter(target, "accounts"),
            accounts_check: u32::try_from(parameter(target, "rows_check")).expect("a checksum"),
            link: parameter(target, "link"),
            all_rows: target.ends_with("rows=all"),
        };
        let stream = self.primary.begin(&request).map_err(|e| refused(&e))?;
        Ok(Box::new(DirectBody(Some(stream), Vec::new().into_iter())))
    }

    fn post(&self, target: &str) -> Result<(), LinkError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(LinkError::Unreachable("cut".to_owned()));
        }
        let epoch = parameter(target, "epoch");
        if target.contains("/fence?") {
            return self.primary.fence_store(store_in(target), epoch).map(drop).map_err(|e| refused(&e));
        }
        until(|| !self.is_held.load(Ordering::SeqCst));
        let (log, accounts) = (parameter(target, "log"), parameter(target, "accounts"));
        let ack = Acknowledgement { link: parameter(target, "link"), epoch, log, accounts };
        self.primary.acknowledge(ack).map(drop).map_err(|e| refused(&e))
    }
}

fn direct(primary: &Arc<Primary>) -> Arc<Direct> {
    let (primary, [is_cut, is_held]) = (Arc::clone(primary), [const { AtomicBool::new(false) }; 2]);
    Arc::new(Direct { primary, is_cut, is_held })
}

fn follow(dir: &Path, link: &Direct) -> Store {
    assert_eq!(prepare_folder(dir).expect("empty"), Prepared::NeedsBase);
    fetch_base(dir, link.open("/api/v1/standby/base", &|| false).expect("a base").as_mut(), &mut |_| ())
        .expect("copied");
    Store::open(dir)
}

fn follower(store: &Store) -> Arc<Follower> {
    let (control, tsdb) = (Arc::clone(&store.control), Arc::clone(&store.tsdb));
    Follower::new(control, tsdb, store.folder.store_id(), Clock::manual(NOW), Box::new(|| true))
}

/// Starts a thread that copies until the follower is stopped.
fn copy_on_thread(copying: &Arc<Follower>, link: &Arc<Direct>) -> std::thread::JoinHandle<()> {
    let (copying, link) = (Arc::clone(copying), Arc::clone(link));
    std::thread::spawn(move || copying.copy(link.as_ref()))
}

/// Copies until the follower has everything, then stops.
fn catch_up(primary: &Store, store: &Store, link: &Arc<Direct>) {
    let link_before = store.control.standby().expect("read").link;
    let copying = follower(store);
    let thread = copy_on_thread(&copying, link);
    // A handshake stores another link even if the follower has all records and changes.
    until(|| {
        let has_log = store.tsdb.last_stored_record() == primary.tsdb.last_stored_record();
        let row = store.control.standby().expect("read");
        has_log
            && row.link != link_before
            && row.caught_up
            && row.accounts >= primary.control.last_account_change()
    });
    assert!(copying.stop());
    thread.join().expect("ended");
}

fn until(holds: impl Fn() -> bool) {
    let watch = crate::clock::Stopwatch::start();
    while !holds() {
        assert!(watch.elapsed() < WAIT, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A primary with one sample, and its follower, which has everything.
struct FollowedPrimary {
    /// The folder of the primary.
    path: PathBuf,
    primary: Store,
    link: Arc<Direct>,
    second: Store,
    /// Removed after both are closed.
    dir: tempfile::TempDir,
}

impl FollowedPrimary {
    fn start() -> FollowedPrimary {
        let (dir, path, b) = folders();
        let primary = Store::open(&path);
        primary.append(1, 0, 1.0).expect("stored");
        let link = direct(&primary.primary(false));
        let second = follow(&b, &link);
        catch_up(&primary, &second, &link);
        FollowedPrimary { dir, path, primary, link, second }
    }

    /// Stops the primary. Returns its folder, a copy of it, and the follower.
    fn stopped_and_copied(self) -> (tempfile::TempDir, PathBuf, PathBuf, Store) {
        let FollowedPrimary { dir, path, primary, link, second } = self;
        drop((link, primary));
        let backup = dir.path().join("backup");
        copy_folder(&path, &backup);
        (dir, path, backup, second)
    }
}

/// Stores samples and seals them.
fn seal_some(primary: &Store) {
    for n in 0..20 {
        primary.append(1, n * 1_000, 1.0).expect("stored");
    }
    primary.tsdb.seal(NOW.plus_ms(30_000)).expect("sealed");
}

fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    (dir, a, b)
}

#[test]
fn a_follower_that_is_killed_at_any_record_has_what_the_primary_has() {
    for seed in 0..rounds(3, 12) {
        let rng = &mut Entropy::seeded(seed);
        let (_dir, a, b) = folders();
        let primary = Store::open(&a);
        let link = direct(&primary.primary(false));
        let clock = std::cell::Cell::new(0);
        let change = |primary: &Store, rng: &mut Entropy| {
            let time = clock.get();
            let series = u32::from(rng.bytes::<1>()[0] % 5);
            match rng.bytes::<1>()[0] % 40 {
                0 => drop(primary.tsdb.seal(NOW.plus_ms(time)).expect("sealed")),
                1 => primary.delete(series, TimeRange { start: NOW, end: NOW.plus_ms(time / 2) }),
                // Late, at the time of an earlier sample.
                2..8 => drop(primary.append(series, time / 3, rng.unit()).expect("stored")),
                _ => {
                    clock.set(time + 20_000);
                    primary.append(series, time + 20_000, rng.unit()).expect("stored");
                }
            }
        };
        for _ in 0..30 {
            change(&primary, rng);
        }
        let mut second = follow(&b, &link);
        for _ in 0..4 {
            for _ in 0..40 {
                change(&primary, rng);
            }
            catch_up(&primary, &second, &link);
            assert_eq!(second.samples(), primary.samples(), "seed {seed}");
            if rng.unit() < 0.5 {
                second.tsdb.seal_if_due(NOW.plus_ms(clock.get())).expect("sealed");
                assert_eq!(second.samples(), primary.samples(), "seed {seed}, after its own seal");
            }
            // The process ends without a clean stop, so the next start replays its log.
            drop(second);
            second = Store::open(&b);
            assert_eq!(second.samples(), primary.samples(), "seed {seed}, after a restart");
        }
    }
}

#[test]
fn a_synchronous_primary_answers_nothing_that_its_follower_does_not_have() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    primary.append(1, 0, 1.0).expect("stored");
    let hub = primary.primary(true);
    assert_eq!(primary.append(1, 1_000, 1.0), Err(AppendError::Standby(StandbyRefusal::Missing)));
    let link = direct(&hub);
    let second = follow(&b, &link);
    let copying = follower(&second);
    let thread = copy_on_thread(&copying, &link);
    until(|| hub.status().connected);
    for n in 1..50 {
        primary.append(1, n * 1_000, 2.0).expect("acknowledged");
        assert!(i64::try_from(second.samples().len()).expect("few") > n, "sample {n} is on both");
    }
    assert_eq!(second.append(1, 99_000, 2.0), Err(AppendError::Standby(StandbyRefusal::Follower)));
    // The link breaks: a waiting change fails after ten ticks, and so does its repetition.
    link.is_cut.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| primary.append(1, 60_000, 3.0));
        until(|| primary.tsdb.waiting_for_follower() > 0 || writer.is_finished());
        (0..10).for_each(|_| hub.tick());
        assert_eq!(writer.join().expect("ended"), Err(AppendError::Standby(StandbyRefusal::Missing)));
    });
    until(|| !hub.status().connected);
    assert_eq!(primary.append(1, 60_000, 3.0), Err(AppendError::Standby(StandbyRefusal::Missing)));
    // After the fault ends, the same sample is answered only once the follower has it.
    link.is_cut.store(false, Ordering::SeqCst);
    until(|| primary.append(1, 60_000, 3.0).is_ok());
    assert_eq!(second.samples(), primary.samples());
    assert!(copying.stop());
    thread.join().expect("ended");

    assert_eq!(copying.promote(GateMode::Open, false).expect("promoted"), 2);
    second.append(1, 70_000, 4.0).expect("stored");
    let is_fenced = |store: &Store| store.control.standby().expect("read").role == StandbyRole::Fenced;
    copying.fence_old(link.as_ref(), &|| is_fenced(&primary));
    let fenced = Err(AppendError::Standby(StandbyRefusal::Fenced { epoch: 2 }));
    assert_eq!(primary.append(1, 80_000, 4.0), fenced);
    drop((hub, link, copying, primary));
    let old = Store::open(&a);
    assert_eq!(old.append(1, 80_000, 4.0), fenced, "it stays fenced");
}

#[test]
fn a_follower_stores_records_while_an_acknowledgement_is_on_its_way() {
    let FollowedPrimary { dir: _dir, primary, link, second, .. } = FollowedPrimary::start();
    let hub = &link.primary;
    let copying = follower(&second);
    let thread = copy_on_thread(&copying, &link);
    until(|| hub.status().connected && hub.status().records_behind == 0);
    link.is_held.store(true, Ordering::SeqCst);
    for n in 1..4 {
        primary.append(1, n * 1_000, 1.0).expect("stored");
        until(|| second.samples() == primary.samples());
    }
    assert_eq!(hub.status().records_behind, 3, "nothing is acknowledged yet");
    link.is_held.store(false, Ordering::SeqCst);
    until(|| hub.status().records_behind == 0);
    assert!(copying.stop());
    thread.join().expect("ended");
}

#[test]
fn another_follower_or_a_diverged_log_is_noticed() {
    let FollowedPrimary { dir, primary, link, second, .. } = FollowedPrimary::start();
    let c = dir.path().join("c");
    let third = follow(&c, &link);
    let row = second.control.standby().expect("read");
    let target = |row: &StandbyRow, log: u64, check: u32, epoch: u64| {
        let (store, accounts, link) = (primary.folder.store_id(), row.accounts, row.link);
        format!(
            "/api/v1/standby/stream?store={store}&epoch={epoch}&log={log}&check={check}&accounts={accounts}&link={link}"
        )
    };
    let code = |target: &str| match link.open(target, &|| false) {
        Err(LinkError::Refused { code, .. }) => code,
        Err(other) => other.to_string(),
        Ok(_) => "ok".to_owned(),
    };
    let end = second.tsdb.last_stored_record();
    assert_eq!(code(&target(&row, end, 0, 1)), "standby_unknown", "the third has replaced the second");
    let row = third.control.standby().expect("read");
    let end = third.tsdb.last_stored_record();
    let check = third.tsdb.log_check(end).expect("read");
    assert_eq!(code(&target(&row, end + 100, check, 1)), "standby_diverged");
    assert_eq!(code(&target(&row, end, check ^ 1, 1)), "standby_diverged");
    assert_eq!(code(&target(&row, end, check, 1)), "ok");
    let other = target(&row, end, check, 1).replace(&primary.folder.store_id().to_string(), &"0".repeat(32));
    assert_eq!(code(&other), "standby_other_store");
    // A higher epoch fences.
    assert_eq!(code(&target(&row, end, check, 9)), "fenced");
    assert!(primary.append(1, 5_000, 1.0).is_err());
    assert_eq!(primary.control.standby().expect("read").role, StandbyRole::Fenced);
}

#[test]
fn a_base_that_was_cut_short_is_begun_again_and_hostile_paths_are_refused() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    primary.append(1, 0, 1.0).expect("stored");
    let hub = primary.primary(false);
    let mut pieces = Vec::new();
    hub.send_base(&mut |piece| {
        pieces.push(piece);
        true
    })
    .expect("sent");
    for cut in [1, pieces.len() / 2, pieces.len() - 1] {
        assert_eq!(prepare_folder(&b).expect("prepared"), Prepared::NeedsBase);
        let some: Vec<_> = pieces.iter().take(cut).cloned().collect();
        let mut body = DirectBody(None, some.into_iter());
        assert!(fetch_base(&b, &mut body, &mut |_| ()).is_err(), "{cut}");
        assert!(!b.join("STORE").exists());
    }
    assert_eq!(prepare_folder(&b).expect("prepared"), Prepared::NeedsBase);
    fetch_base(&b, &mut DirectBody(None, pieces.into_iter()), &mut |_| ()).expect("whole");
    assert!(DataFolder::open(&b, NOW, &mut Entropy::seeded(1)).is_err(), "no other command opens it");
    for path in ["../x", "/etc/x", "wal/../../x", "control/db", "", "wal/a/b/c", ".ssh/x", "wal/a b"] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let mut bytes = Vec::new();
        Frame::File { bytes: 1, path: path.to_owned() }.encode(&mut bytes);
        let mut body = DirectBody(None, vec![bytes].into_iter());
        let error = fetch_base(&dir.path().join("f"), &mut body, &mut |_| ()).expect_err("refused");
        assert!(matches!(error, BaseError::Frame(_)), "{path:?}: {error}");
    }
}

#[test]
fn a_deletion_without_its_tombstone_is_acknowledged_once_it_has_it() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    seal_some(&primary);
    let hub = primary.primary(false);
    let link = direct(&hub);
    let second = follow(&b, &link);
    let copying = follower(&second);
    let thread = copy_on_thread(&copying, &link);
    until(|| hub.status().connected && hub.status().records_behind == 0);
    // The record fits into the log, and the tombstone does not.
    second.control.pretend_free(0);
    primary.delete(1, TimeRange::ALL);
    let end = primary.tsdb.last_stored_record();
    until(|| !matches!(copying.status().state, FollowerState::Streaming | FollowerState::Connecting));
    std::thread::sleep(Duration::from_millis(300));
    assert!(hub.status().records_behind > 0, "{:?} of {end}", hub.status());
    second.control.pretend_free(u64::MAX);
    until(|| hub.status().connected && hub.status().records_behind == 0);
    assert_eq!((primary.samples(), second.samples()), (vec![], vec![]));
    assert!(copying.stop());
    thread.join().expect("ended");
    drop((copying, second));
    assert_eq!(Store::open(&b).samples(), [], "after a restart");
}

#[test]
fn after_a_restart_an_earlier_change_counts_only_once_the_follower_has_it() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    let hub = primary.primary(true);
    let link = direct(&hub);
    let second = follow(&b, &link);
    let copying = follower(&second);
    let thread = copy_on_thread(&copying, &link);
    until(|| hub.status().connected);
    primary.change_account(1).expect("confirmed");
    let confirmed = hub.last_account_change();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            link.is_cut.store(true, Ordering::SeqCst);
            primary.change_account(2)
        });
        until(|| hub.last_account_change() > confirmed || change.is_finished());
        (0..10).for_each(|_| hub.tick());
        assert!(change.join().expect("ended").is_err());
    });
    assert!(copying.stop());
    thread.join().expect("ended");
    assert!(hub.has_accounts_up_to(confirmed), "an earlier change does not wait for a later one");
    assert!(!hub.has_accounts_up_to(hub.last_account_change()));
    drop((link, hub, primary));
    let primary = Store::open(&a);
    let hub = primary.primary(true);
    assert!(!hub.has_accounts_up_to(hub.last_account_change()), "the follower may lack it");
    let link = direct(&hub);
    catch_up(&primary, &second, &link);
    // The follower's last acknowledgement may have been cut off; the next handshake repeats it.
    let _stream = begin(&hub, &second.request()).expect("begun");
    assert!(hub.has_accounts_up_to(hub.last_account_change()));
    assert_eq!(second.control.scan::<Account>(&()).expect("read"), [(1, Account(2))]);
}

#[test]
fn a_primary_of_the_same_epoch_is_not_fenced_and_an_older_copy_is_fenced_again() {
    let (_dir, a, backup, second) = FollowedPrimary::start().stopped_and_copied();
    let promoted = follower(&second);
    assert_eq!(promoted.promote(GateMode::Open, false).expect("promoted"), 2);
    let own = second.primary(false);
    let code = |epoch| own.fence_store(second.folder.store_id(), epoch).expect_err("refused").code().0;
    assert_eq!((code(2), code(1)), ("standby_same_epoch", "fenced"), "a primary confirms no fence");
    assert_eq!(code(u64::MAX), "standby_failed", "such an epoch would overflow");
    assert_eq!(second.control.standby().expect("read").role, StandbyRole::Primary);
    for folder in [&a, &backup] {
        let old = Store::open(folder);
        let link = direct(&old.primary(false));
        let is_fenced = || old.control.standby().expect("read").role == StandbyRole::Fenced;
        assert!(!is_fenced());
        promoted.fence_old(link.as_ref(), &is_fenced);
        assert_eq!(old.append(1, 1, 1.0), Err(AppendError::Standby(StandbyRefusal::Fenced { epoch: 2 })));
    }
}

#[test]
fn an_acknowledgement_for_the_stream_of_an_earlier_process_does_not_count() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    primary.append(1, 0, 1.0).expect("stored");
    let hub = primary.primary(false);
    let second = follow(&b, &direct(&hub));
    let (stream, link) = begin(&hub, &second.request()).expect("begun");
    drop((stream, hub));
    let hub = primary.primary(false);
    let (_stream, other) = begin(&hub, &second.request()).expect("begun");
    let (log, accounts) = (primary.tsdb.last_stored_record(), 0);
    let ack = |link| hub.acknowledge(Acknowledgement { link, epoch: 1, log, accounts });
    assert_eq!(ack(link).expect_err("refused").code().0, "standby_old_stream");
    assert_eq!(ack(other).expect("counts"), 1);
}

#[test]
fn of_two_overlapping_handshakes_the_one_that_the_follower_heard_of_remains() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    let hub = primary.primary(false);
    let second = follow(&b, &direct(&hub));
    let request = second.request();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| begin(&hub, &request)));
        both.into_iter().map(|one| one.join().expect("ended")).collect()
    });
    let mut links = outcomes.iter().flatten().map(|(_, link)| *link);
    let stored = primary.control.standby().expect("read").link;
    assert!(links.any(|link| link == stored), "the stored link was sent");
    // The new follower acknowledges, so from now on only its link is known.
    let current = Acknowledgement { link: stored, epoch: 1, log: request.log, accounts: 0 };
    hub.acknowledge(current).expect("counts");
    assert_eq!(begin(&hub, &request).err().expect("refused").code().0, "standby_unknown");
    assert!(begin(&hub, &StreamRequest { link: stored, ..request }).is_ok());
}

#[test]
fn a_follower_that_lost_acknowledged_records_or_never_had_all_is_not_taken_for_a_whole_one() {
    let (dir, a, b) = folders();
    let primary = Store::open(&a);
    primary.append(1, 0, 1.0).expect("stored");
    let hub = primary.primary(false);
    let link = direct(&hub);
    let second = follow(&b, &link);
    primary.append(1, 1_000, 1.0).expect("stored");
    let refused = follower(&second).promote(GateMode::Open, false);
    assert!(matches!(refused, Err(PromoteError::Behind { .. })), "{refused:?}");
    let refused = promote_stopped(&second.control, false);
    assert!(matches!(refused, Err(PromoteError::Behind { .. })), "{refused:?}");
    catch_up(&primary, &second, &link);
    assert!(second.control.standby().expect("read").caught_up);
    drop(second);
    let backup = dir.path().join("backup");
    copy_folder(&b, &backup);
    let second = Store::open(&b);
    primary.append(1, 2_000, 1.0).expect("stored");
    catch_up(&primary, &second, &link);
    drop(second);
    let restored = Store::open(&backup);
    assert!(begin(&hub, &restored.request()).is_err(), "its link is that of an earlier stream");
    let row = Store::open(&b).control.standby().expect("read");
    let request = StreamRequest { link: row.link, ..restored.request() };
    assert_eq!(begin(&hub, &request).err().expect("refused").code().0, "standby_diverged");
    assert_eq!(promote_stopped(&restored.control, false).expect("it had everything once"), 2);

    let third = follow(&dir.path().join("c"), &link);
    assert_eq!(follower(&third).promote(GateMode::Open, true).expect("the loss is accepted"), 2);
}

#[test]
fn a_log_that_was_given_up_stays_so_until_the_follower_has_nearly_caught_up() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    let hub = primary.primary(false);
    let second = follow(&b, &direct(&hub));
    let (_stream, link) = begin(&hub, &second.request()).expect("begun");
    let ack = |log| {
        hub.acknowledge(Acknowledgement { link, epoch: 1, log, accounts: 0 }).expect("counts");
        primary.tsdb.held_from()
    };
    for n in 0..200 {
        primary.append(1, n * 1_000, 1.0).expect("stored");
    }
    let end = primary.tsdb.last_stored_record();
    assert_eq!(ack(2), 2);
    hub.tick_with(1_000);
    assert!(hub.status().hold_given_up);
    assert_eq!((ack(2), ack(3)), (0, 0), "an acknowledgement does not hold it again");
    assert_eq!(primary.control.standby().expect("read").hold, 0, "a restart does not, either");
    ack(end);
    hub.tick_with(1_000);
    assert_eq!((hub.status().hold_given_up, primary.tsdb.held_from()), (false, end));
    drop(hub);
    let held = primary.control.change_standby(|row| row.hold = 7).expect("stored").hold;
    drop(primary);
    assert_eq!(Store::open(&a).tsdb.held_from(), held, "before the first task runs");
}

#[test]
fn a_base_keeps_its_log_while_another_follower_goes_on_and_then_replaces_it() {
    let (dir, a, b) = folders();
    let primary = Store::open(&a);
    let hub = primary.primary(false);
    let second = follow(&b, &direct(&hub));
    let (_stream, link) = begin(&hub, &second.request()).expect("begun");
    let begins_at = primary.tsdb.last_stored_record().max(1);
    let ack = |log| hub.acknowledge(Acknowledgement { link, epoch: 1, log, accounts: 0 });
    let mut pieces = Vec::new();
    hub.send_base(&mut |piece| {
        pieces.push(piece);
        primary.append(1, i64::try_from(pieces.len()).expect("few") * 1_000, 1.0).expect("stored");
        let counts = ack(primary.tsdb.last_stored_record());
        hub.tick_with(u64::MAX);
        counts.is_err() || primary.tsdb.held_from() == begins_at
    })
    .expect("the log after the base is kept, and the first follower goes on until its end");
    assert_eq!(ack(begins_at).expect_err("replaced").code().0, "standby_old_stream");
    assert!(!hub.status().connected);
    let c = dir.path().join("c");
    assert_eq!(prepare_folder(&c).expect("empty"), Prepared::NeedsBase);
    fetch_base(&c, &mut DirectBody(None, pieces.into_iter()), &mut |_| ()).expect("whole");
    let third = Store::open(&c);
    hub.tick_with(u64::MAX);
    catch_up(&primary, &third, &direct(&hub));
    assert_eq!(third.samples(), primary.samples());
    assert_eq!(begin(&hub, &second.request()).err().expect("refused").code().0, "standby_unknown");
}

#[test]
fn a_deletion_that_the_follower_has_not_confirmed_is_hidden_everywhere() {
    let (_dir, a, b) = folders();
    let primary = Store::open(&a);
    seal_some(&primary);
    primary.append(1, 40_000, 1.0).expect("stored");
    let hub = primary.primary(true);
    let second = follow(&b, &direct(&hub));
    let (stream, _) = begin(&hub, &second.request()).expect("begun");
    let matchers = [vec![Matcher::equal("__name__", "m")]];
    let deleted = std::thread::scope(|scope| {
        let delete = scope.spawn(|| primary.tsdb.delete(ORG, &matchers, TimeRange::ALL, NOW));
        until(|| primary.tsdb.waiting_for_follower() > 0);
        assert_eq!(primary.samples(), [], "while it waits, no lock is held and nothing is half done");
        (0..10).for_each(|_| hub.tick());
        delete.join().expect("ended")
    });
    assert!(deleted.is_err(), "{deleted:?}");
    drop((stream, hub));
    drop(primary);
    let primary = Store::open(&a);
    assert_eq!(primary.samples(), []);
    catch_up(&primary, &second, &direct(&primary.primary(true)));
    assert_eq!(second.samples(), []);
}

#[test]
fn an_older_copy_of_the_primary_is_noticed() {
    let (_dir, a, backup, second) = FollowedPrimary::start().stopped_and_copied();
    let primary = Store::open(&a);
    // Only the link distinguishes the copies after a stream without a record.
    let (_stream, _) = begin(&primary.primary(false), &second.request()).expect("begun");
    catch_up(&primary, &second, &direct(&primary.primary(false)));
    let old = Store::open(&backup);
    let refused = begin(&old.primary(false), &second.request()).err().expect("refused");
    assert_eq!(refused.code().0, "standby_unknown", "{refused}");
}
