//! Tests of control through its public interface, with faults below it: order, refusals, recovery,
//! rebuilds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use serde::{Deserialize, Serialize};

use super::*;
use crate::entropy::Entropy;
use crate::kv::files;
use crate::kv::frame::{self, Frame};
use crate::kv::ops::recording::Failing;
use crate::kv::{FolderError, JournalError, RowError, decode_body};
use crate::model::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TestUser {
    pub(super) name: String,
    pub(super) bio: Vec<u8>,
}

impl Record for TestUser {
    const TABLE: u8 = 1;
    const KIND: u8 = 1;
    const VERSION: u8 = 2;
    type Key = u32;

    fn from_older(version: u8, body: &[u8]) -> Result<TestUser, String> {
        match version {
            // Version 1 had only the name.
            1 => decode_body::<String>(body).map(|name| TestUser { name, bio: Vec::new() }),
            other => Err(format!("version {other}")),
        }
    }
}

/// Records of an older program, of a newer one, and of one with its tables mixed up, in the table
/// of users.
macro_rules! other_user {
    ($name:ident, $kind:literal, $version:literal) => {
        #[derive(Debug, Serialize, Deserialize)]
        struct $name(String);
        impl Record for $name {
            const TABLE: u8 = 1;
            const KIND: u8 = $kind;
            const VERSION: u8 = $version;
            type Key = u32;
        }
    };
}
other_user!(OlderUser, 1, 1);
other_user!(NewerUser, 1, 3);
other_user!(OtherKindUser, 9, 2);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Code;

impl Record for Code {
    const TABLE: u8 = 2;
    const KIND: u8 = 2;
    const VERSION: u8 = 1;
    type Key = (u32, String);
}

/// A type that its serializer refuses.
#[derive(Debug, Serialize, Deserialize)]
struct Odd(#[serde(serialize_with = "never")] u8);

fn never<S: serde::Serializer>(_: &u8, _: S) -> Result<S::Ok, S::Error> {
    Err(serde::ser::Error::custom("odd"))
}

impl Record for Odd {
    const TABLE: u8 = 4;
    const KIND: u8 = 4;
    const VERSION: u8 = 1;
    type Key = ();
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastSeen(Timestamp);

impl Record for LastSeen {
    const TABLE: u8 = 3;
    const KIND: u8 = 3;
    const VERSION: u8 = 1;
    type Key = u32;
}

impl SideRecord for LastSeen {
    type Main = TestUser;

    fn main_key(key: &u32) -> u32 {
        *key
    }
}

#[derive(Debug, thiserror::Error)]
enum TestRefusal {
    #[error("used")]
    Used,
    #[error(transparent)]
    Read(#[from] DatabaseError),
}

pub(super) const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

pub(super) fn user(name: &str) -> TestUser {
    TestUser { name: name.to_owned(), bio: Vec::new() }
}

pub(super) fn folder(dir: &Path) -> DataFolder {
    DataFolder::open(&dir.join("store"), NOW, &mut Entropy::seeded(1)).expect("folder")
}

pub(super) fn open(folder: &DataFolder) -> Result<(Control, RecoveryReport), OpenError> {
    Control::open(folder, &ControlOptions { now: NOW, users_table: TestUser::TABLE })
}

pub(super) fn opened(folder: &DataFolder) -> Control {
    open(folder).expect("control").0
}

pub(super) fn put(control: &Control, key: u32, value: TestUser) -> Result<(), CommitError<DatabaseError>> {
    control.commit(move |tx| {
        tx.put(&key, &value);
        Ok(())
    })
}

pub(super) fn remove(control: &Control, key: u32) {
    let removed = control.commit(move |tx| {
        tx.remove::<TestUser>(&key);
        Ok::<_, DatabaseError>(())
    });
    removed.expect("removed");
}

/// Queues a change without waiting for its reply.
fn queue<F>(control: &Control, closure: F) -> Receiver<Result<(), CommitFailure>>
where
    F: FnOnce(&mut Txn<'_>) -> Result<(), DatabaseError> + Send + 'static,
{
    let (reply, answer) = sync_channel(1);
    let run = Box::new(|txn: &mut Txn<'_>| closure(txn).is_ok());
    control.jobs.as_ref().expect("open").send(CommitterRequest::Change { run, reply }).expect("running");
    answer
}

pub(super) fn users(control: &Control) -> Vec<(u32, String)> {
    let all = control.scan::<TestUser>(&()).expect("scan");
    all.into_iter().map(|(key, user)| (key, user.name)).collect()
}

#[test]
fn a_change_is_visible_to_later_changes_and_present_after_a_restart() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let (control, report) = open(&folder).expect("new");
    assert_eq!((report.start, report.seq, report.rows), (Start::Created, 0, 0));
    put(&control, 2, user("b")).expect("put");
    put(&control, 1, user("a")).expect("put");
    let seen = control.commit(|tx| {
        tx.put(&(1, "x".to_owned()), &Code);
        tx.remove::<TestUser>(&2);
        tx.remove::<TestUser>(&77);
        tx.put(&3, &user("c"));
        assert_eq!(tx.get::<TestUser>(&2)?, None);
        Ok::<_, DatabaseError>(tx.scan::<TestUser>(&())?.len())
    });
    assert_eq!(seen.expect("commit"), 2);
    for _ in 0..2 {
        assert_eq!(users(&control), [(1, "a".to_owned()), (3, "c".to_owned())]);
        assert_eq!(control.scan::<Code>(&1_u32).expect("scan"), [((1, "x".to_owned()), Code)]);
        assert_eq!(control.scan::<Code>(&2_u32).expect("scan"), []);
        assert_eq!(control.get::<TestUser>(&2).expect("get"), None);
    }
    control.close().expect("clean");
    let (control, report) = open(&folder).expect("again");
    assert_eq!((report.start, report.seq, report.rows, report.applied), (Start::Intact, 3, 3, 0));
    assert!(report.initialised_made, "users without INITIALISED");
    assert_eq!(users(&control), [(1, "a".to_owned()), (3, "c".to_owned())]);
}

#[test]
fn a_refused_a_panicking_and_an_overlong_change_store_nothing() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let control = opened(&folder(temp.path()));
    let refused = control.commit(|tx| {
        tx.put(&1, &user("a"));
        Err::<(), _>(TestRefusal::Used)
    });
    assert!(matches!(refused, Err(CommitError::Refused(TestRefusal::Used))));
    let panicked = control.commit::<(), TestRefusal, _>(|tx| {
        tx.put(&1, &user("a"));
        panic!("a bug")
    });
    match panicked {
        Err(CommitError::Failed(CommitFailure::Panicked(words))) => assert_eq!(&*words, "a bug"),
        other => panic!("{other:?}"),
    }
    let failure = |outcome: Result<(), CommitError<TestRefusal>>| match outcome {
        Err(CommitError::Failed(CommitFailure::Change(e))) => e,
        other => panic!("{other:?}"),
    };
    let long = failure(control.commit(|tx| {
        tx.put(&1, &TestUser { name: "a".to_owned(), bio: vec![1; 200_000] });
        tx.put(&2, &user("b"));
        Ok(())
    }));
    assert!(matches!(*long, ChangeError::Row { table: 1, source: RowError::ValueTooLong { .. } }), "{long}");
    let key = failure(control.commit(|tx| {
        tx.put(&(1, "x".repeat(600)), &Code);
        Ok(())
    }));
    assert!(matches!(*key, ChangeError::Row { table: 2, source: RowError::KeyTooLong { .. } }), "{key}");
    let many = failure(control.commit(|tx| {
        (0..65).for_each(|n| tx.put(&n, &user("a")));
        Ok(())
    }));
    assert!(matches!(*many, ChangeError::TooManyRows), "{many}");
    let large = failure(control.commit(|tx| {
        (0..63).for_each(|n| tx.put(&n, &TestUser { name: "a".to_owned(), bio: vec![1; 3_950] }));
        Ok(())
    }));
    assert!(matches!(*large, ChangeError::TooLarge { bytes } if bytes > CHANGE_BYTES_MAX), "{large}");
    let odd = failure(control.commit(|tx| {
        tx.put(&(), &Odd(1));
        Ok(())
    }));
    assert!(matches!(&*odd, ChangeError::Encode { table: 4, what } if what.contains("odd")), "{odd}");
    assert_eq!(users(&control), []);
    assert_eq!(control.health(), Ok(()));
    put(&control, 1, user("a")).expect("still open");
}

#[test]
fn of_thirty_two_concurrent_uses_of_a_use_once_row_exactly_one_succeeds() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let control = opened(&folder(temp.path()));
    for round in 0..10_u32 {
        let code = move || (round, "code".to_owned());
        control
            .commit(move |tx| {
                tx.put(&code(), &Code);
                Ok::<_, DatabaseError>(())
            })
            .expect("made");
        let wins = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..32_u32)
                .map(|n| {
                    let control = &control;
                    scope.spawn(move || {
                        let used = control.commit(move |tx| {
                            tx.get::<Code>(&code())?.ok_or(TestRefusal::Used)?;
                            tx.remove::<Code>(&code());
                            tx.put(&(round * 100 + n), &user("winner"));
                            Ok::<_, TestRefusal>(())
                        });
                        match used {
                            Ok(()) => 1,
                            Err(CommitError::Refused(TestRefusal::Used)) => 0,
                            Err(e) => panic!("{e}"),
                        }
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().expect("joined")).sum::<i32>()
        });
        assert_eq!(wins, 1);
        assert_eq!(users(&control).len(), round as usize + 1);
    }
}

#[test]
fn a_late_side_row_is_never_stored_without_its_main_row() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    for key in 0..100 {
        put(&control, key, user("u")).expect("put");
    }
    let late = |at: i64| (0..100).map(|key| (key, LastSeen(Timestamp::from_ms(at)))).collect::<Vec<_>>();
    assert_eq!(control.put_side(late(1)).expect("side"), SideReport { kept: 100, dropped: 0 });
    control
        .commit(|tx| {
            tx.remove::<TestUser>(&7);
            tx.remove::<LastSeen>(&7);
            Ok::<_, DatabaseError>(())
        })
        .expect("revoked");
    assert_eq!(control.put_side(late(2)).expect("side"), SideReport { kept: 99, dropped: 1 });
    assert_eq!(control.get::<LastSeen>(&7).expect("get"), None);
    drop(control);
    let control = opened(&folder);
    assert_eq!(control.get::<LastSeen>(&7).expect("get"), None);
    assert_eq!(control.get::<LastSeen>(&8).expect("get"), Some(LastSeen(Timestamp::from_ms(2))));
}

#[test]
fn a_long_value_is_split_joined_shrunk_and_removed_without_leftovers_and_blobs_stays_empty() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    let long = |n: usize| TestUser { name: "long".to_owned(), bio: (0..=250).cycle().take(n).collect() };
    for length in [190_000, 12_000, 100_000, 10, 3_980, 3_990, 0] {
        put(&control, 1, long(length)).expect("put");
        put(&control, 2, user("next")).expect("put");
        assert_eq!(control.get::<TestUser>(&1).expect("get"), Some(long(length)));
        let inside = control
            .commit(|tx| Ok::<_, DatabaseError>((tx.get::<TestUser>(&1)?, tx.scan::<TestUser>(&())?.len())));
        assert_eq!(inside.expect("commit"), (Some(long(length)), 2));
        assert_eq!(users(&control).len(), 2);
        let rows = control.shared.state.rows(&[TestUser::TABLE]).expect("rows");
        assert_eq!(rows.len(), 1 + (length + 6).div_ceil(frame::BODY_BYTES_MAX).max(1), "{length}");
        assert!(rows.values().all(|value| value.len() <= frame::VALUE_BYTES_MAX));
    }
    put(&control, 1, long(50_000)).expect("put");
    control
        .commit(|tx| {
            tx.remove::<TestUser>(&1);
            Ok::<_, DatabaseError>(())
        })
        .expect("removed");
    assert_eq!(control.shared.state.rows(&[TestUser::TABLE]).expect("rows").len(), 1);
    drop(control);
    let (_control, report) = open(&folder).expect("again");
    assert_eq!((report.start, report.rows, report.blobs), (Start::Intact, 1, 0));
}

#[test]
fn after_a_failed_sync_every_change_is_refused_and_reads_still_work() {
    for at_database in [false, true] {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let folder = folder(temp.path());
        let control = opened(&folder);
        put(&control, 1, user("before")).expect("put");
        let fault = |on: bool| match at_database {
            true => control.shared.state.database().fail_sync.store(on, Ordering::SeqCst),
            false => control.faults.journal_sync.store(on, Ordering::SeqCst),
        };
        fault(true);
        let fenced = |outcome| matches!(outcome, Err(CommitError::Failed(CommitFailure::Fenced(_))));
        assert!(fenced(put(&control, 2, user("during"))));
        // The disk works again, but its contents are unknown.
        fault(false);
        assert!(fenced(put(&control, 3, user("after"))));
        assert!(control.health().expect_err("fenced").reason.contains("sync"));
        assert_eq!(control.get::<TestUser>(&1).expect("read"), Some(user("before")));
        assert!(matches!(control.close(), Err(CloseError::Fenced(_))));
        let control = opened(&folder);
        let names = users(&control);
        assert_eq!(names[0], (1, "before".to_owned()));
        // A change without a reply may be present after a restart; one that was refused later never
        // is.
        assert!(names.iter().all(|(key, _)| *key < 3), "{names:?}");
        put(&control, 3, user("after")).expect("open again");
    }
}

#[test]
fn without_room_for_a_journal_file_nothing_is_written_and_the_change_may_be_retried() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    let journal = folder.path().join("journal");
    // A directory in place of the next file simulates a full disk.
    std::fs::create_dir(journal.join("00000003.jnl.new")).expect("made");
    let big = |n: u8| TestUser { name: "big".to_owned(), bio: vec![n; 100_000] };
    let mut kept = Vec::new();
    let refused = loop {
        let n = u8::try_from(kept.len()).expect("few");
        match put(&control, n.into(), big(n)) {
            Ok(()) => kept.push(n),
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, CommitError::Failed(CommitFailure::NoRoom(_))), "{refused}");
    assert_eq!((kept.len(), control.health()), (4, Ok(())));
    assert_eq!(control.get::<TestUser>(&4).expect("get"), None);
    // The same holds within one group: a change that saw a discarded change must be discarded as
    // well.
    let (open_gate, gate) = sync_channel::<()>(1);
    let gated = queue(&control, move |_| {
        gate.recv().expect("opened");
        Ok(())
    });
    let unkept = queue(&control, move |tx| {
        tx.put(&4, &big(4));
        Ok(())
    });
    let after_it = queue(&control, |tx| {
        assert!(tx.get::<TestUser>(&4)?.is_some());
        (100..160).for_each(|key| tx.put(&key, &user("saw it")));
        Ok(())
    });
    open_gate.send(()).expect("waits");
    for answer in [gated, unkept, after_it] {
        let answer = answer.recv().expect("answered");
        assert!(matches!(answer, Err(CommitFailure::NoRoom(_))), "{answer:?}");
    }
    assert_eq!(control.scan::<TestUser>(&()).expect("scan").len(), 4);
    std::fs::remove_dir(journal.join("00000003.jnl.new")).expect("room");
    put(&control, 4, big(4)).expect("tried again");
    drop(control);
    assert_eq!(users(&opened(&folder)).len(), 5);
}

/// Stores all users in as few changes as they fit in. Returns the number of users of each change.
fn put_in_steps(
    control: &Control,
    users: &[(u32, TestUser)],
) -> Result<Vec<usize>, CommitError<DatabaseError>> {
    let mut steps = Vec::new();
    let mut rest = users.to_vec();
    while !rest.is_empty() {
        let items = rest.clone();
        let step = control.commit(move |tx| {
            tx.as_many_as_fit(&items, |tx, (key, user)| {
                tx.put(key, user);
                Ok(())
            })
        })?;
        rest.drain(..step);
        steps.push(step);
    }
    Ok(steps)
}

#[test]
fn a_change_takes_as_many_items_as_fit_and_undoes_the_next_one() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    let long = |bytes: usize| TestUser { name: "long".to_owned(), bio: vec![7; bytes] };
    let small: Vec<_> = (0..150).map(|key| (key, user("small"))).collect();
    assert_eq!(put_in_steps(&control, &small).expect("stored"), [64, 64, 22]);
    // 25 rows each, so the rows are the limit; then 120 kB each, so the bytes are.
    let rows: Vec<_> = (200..205).map(|key| (key, long(95_000))).collect();
    assert_eq!(put_in_steps(&control, &rows).expect("stored"), [2, 2, 1]);
    let bytes: Vec<_> = (300..303).map(|key| (key, long(122_000))).collect();
    assert_eq!(put_in_steps(&control, &bytes).expect("stored"), [2, 1]);
    let before = users(&control).len();
    assert_eq!(before, 150 + 5 + 3);
    // The first item is stored at any size; items that were stored before stay.
    let too_long = [(400, user("short")), (401, long(200_000))];
    let refused = put_in_steps(&control, &too_long).expect_err("too long");
    assert!(matches!(refused, CommitError::Failed(CommitFailure::Change(_))), "{refused}");
    assert_eq!(users(&control).len(), before);
    drop(control);
    assert_eq!(users(&opened(&folder)).len(), before);
}

#[test]
fn a_change_refused_for_lack_of_resources_never_reappears() {
    for errno in [rustix::io::Errno::NOMEM, rustix::io::Errno::INTR] {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let folder = folder(temp.path());
        let control = opened(&folder);
        put(&control, 1, user("before")).expect("put");
        let journal = folder.path().join("journal/00000001.jnl");
        // The writes and the clean-up after them fail; the next change repeats the clean-up.
        let failing = Failing::leaving_bytes(&journal, 9, errno.raw_os_error());
        let (open_gate, gate) = sync_channel::<()>(1);
        let gated = queue(&control, move |_| {
            gate.recv().expect("opened");
            Ok(())
        });
        let put_one = |key: u32| {
            queue(&control, move |tx| {
                tx.put(&key, &user("refused"));
                Ok(())
            })
        };
        let both = [put_one(2), put_one(3)];
        open_gate.send(()).expect("waits");
        drop(gated.recv().expect("answered"));
        for answer in both.map(|both| both.recv().expect("answered")) {
            assert!(matches!(answer, Err(CommitFailure::NoRoom(_))), "{answer:?}");
        }
        assert_eq!(control.health(), Ok(()));
        drop(failing);
        // The value is as long as the first one, so that the second would follow it.
        put(&control, 2, user("refused")).expect("tried again");
        let expected = users(&control);
        assert_eq!(expected.len(), 2);
        drop(control);
        std::fs::remove_dir_all(folder.path().join("control")).expect("rebuilt from the journal");
        let control = opened(&folder);
        assert_eq!(users(&control), expected);
        put(&control, 3, user("after")).expect("open");
    }
}

#[test]
fn on_a_full_disk_changes_use_the_reserve_then_are_refused_and_resume_with_free_space() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    let reserve = folder.path().join("reserve");
    control.free.store(1 << 40, Ordering::SeqCst);
    // The file is created after the reply, so the second change waits until the first one is
    // finished.
    put(&control, 1, user("before")).expect("put");
    put(&control, 2, user("before")).expect("put");
    assert!(reserve.exists());
    control.free.store(1 << 20, Ordering::SeqCst);
    put(&control, 3, user("from the reserve")).expect("put");
    assert!(!reserve.exists());
    control.free.store(0, Ordering::SeqCst);
    let refused = put(&control, 4, user("refused")).expect_err("full");
    let CommitError::Failed(CommitFailure::NoRoom(why)) = refused else { panic!("{refused}") };
    assert_eq!((control.health(), control.get::<TestUser>(&4).expect("get")), (Ok(()), None));
    assert!(why.source.to_string().contains("0 bytes are free"), "{why}");
    control.free.store(1 << 40, Ordering::SeqCst);
    put(&control, 4, user("after")).expect("put");
    put(&control, 5, user("after")).expect("put");
    assert!(reserve.exists(), "set aside again");
    assert_eq!(users(&control).len(), 5);
}

#[test]
fn concurrent_writers_read_their_confirmed_changes() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    std::thread::scope(|scope| {
        for t in 0..16_u8 {
            let control = &control;
            scope.spawn(move || {
                for i in 0..40_u32 {
                    let bio = vec![t; (i as usize % 8) * 2_000];
                    put(
                        control,
                        u32::from(t) * 1_000 + i,
                        TestUser { name: format!("{t}/{i}"), bio: bio.clone() },
                    )
                    .expect("put");
                    assert_eq!(
                        control
                            .get::<TestUser>(&(u32::from(t) * 1_000 + i))
                            .expect("get")
                            .expect("there")
                            .bio,
                        bio
                    );
                    // The value grows and shrinks under concurrent reads: no reader sees a part of
                    // a change.
                    put(control, 99_999, TestUser { name: "shared".to_owned(), bio }).expect("put");
                    control.get::<TestUser>(&99_999).expect("never torn").expect("there");
                }
            });
        }
    });
    let before = control.scan::<TestUser>(&()).expect("scan");
    assert_eq!(before.len(), 16 * 40 + 1);
    control.close().expect("clean");
    assert_eq!(opened(&folder).scan::<TestUser>(&()).expect("scan"), before);
}

#[test]
fn an_old_version_is_read_and_a_newer_one_or_another_kind_is_damage() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    control
        .commit(|tx| {
            tx.put(&1, &OlderUser("old".to_owned()));
            tx.put(&2, &NewerUser("new".to_owned()));
            tx.put(&3, &OtherKindUser("no".to_owned()));
            Ok::<_, DatabaseError>(())
        })
        .expect("put");
    assert_eq!(control.get::<TestUser>(&1).expect("migrated"), Some(user("old")));
    let words = |key: u32| match control.get::<TestUser>(&key) {
        Err(DatabaseError::Damaged { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(words(2), "row 0100000002: version 3 is newer than 2");
    assert_eq!(words(3), "row 0100000003: kind 9 in the table of kind 1");
}

#[test]
fn a_master_key_is_bound_once() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let bind = |control: &Control, mark| control.bind_master_key([mark; 32]).expect("committed");
    let control = opened(&folder);
    assert_eq!((bind(&control, 1), bind(&control, 1)), (KeyBinding::First, KeyBinding::Same));
    drop(control);
    let control = opened(&folder);
    assert_eq!((bind(&control, 2), bind(&control, 1)), (KeyBinding::Other, KeyBinding::Same));
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    files::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// Creates a stopped store with 120 changes and no exports, as an older program leaves it. Beside
/// it are `exports` with the export of the clean stop, and `control` and `journal` from after the
/// first 60 changes.
fn store_with_a_past(dir: &Path) -> (DataFolder, Vec<(u32, TestUser)>) {
    let folder = folder(dir);
    let control = opened(&folder);
    for n in 0..120_u32 {
        if n == 60 {
            copy_tree(&folder.path().join("control"), &dir.join("control"));
            copy_tree(&folder.path().join("journal"), &dir.join("journal"));
        }
        let bio = if n % 10 == 0 { 9_000 } else { 3_000 };
        put(&control, n % 50, TestUser { name: n.to_string(), bio: vec![n.to_le_bytes()[0]; bio] })
            .expect("put");
    }
    let all = control.scan::<TestUser>(&()).expect("scan");
    control.close().expect("clean");
    copy_tree(&folder.path().join("exports"), &dir.join("exports"));
    std::fs::remove_dir_all(folder.path().join("exports")).expect("removed");
    (folder, all)
}

fn restore(dir: &Path, folder: &DataFolder, name: &str) {
    std::fs::remove_dir_all(folder.path().join(name)).expect("removed");
    copy_tree(&dir.join(name), &folder.path().join(name));
}

#[test]
fn a_database_behind_its_journal_catches_up() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (folder, all) = store_with_a_past(temp.path());
    restore(temp.path(), &folder, "control");
    let (control, report) = open(&folder).expect("recovered");
    assert_eq!((report.start, report.seq, report.applied), (Start::CaughtUp, 120, 60));
    assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all);
    drop(control);
    assert_eq!(open(&folder).expect("twice").1.start, Start::Intact);
}

pub(super) fn missing(result: Result<(Control, RecoveryReport), OpenError>) -> (u64, u64) {
    match result {
        Err(OpenError::ChangesMissing { first, last, .. }) => (first, last),
        other => panic!("{:?}", other.map(|o| o.1)),
    }
}

/// Flips one bit.
pub(super) fn damage_file(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[offset] ^= 1;
    std::fs::write(path, &bytes).expect("write");
}

#[test]
fn a_journal_that_lacks_confirmed_changes_is_replaced_after_an_export_while_control_is_intact() {
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 7] = [
        ("of yesterday", |journal, past| {
            std::fs::remove_dir_all(journal).expect("removed");
            copy_tree(&past.join("journal"), journal);
        }),
        ("deleted", |journal, _| std::fs::remove_dir_all(journal).expect("removed")),
        ("without its first file", |journal, _| {
            std::fs::remove_file(journal.join("00000001.jnl")).expect("removed");
        }),
        ("damaged in the middle", |journal, _| damage_file(&journal.join("00000001.jnl"), 50_000)),
        ("damaged at the end", |journal, _| {
            let path = journal.join("00000002.jnl");
            let end = std::fs::read(&path).expect("read").iter().rposition(|b| *b != 0).expect("written");
            damage_file(&path, end - 20);
        }),
        ("with a damaged header", |journal, _| damage_file(&journal.join("00000001.jnl"), 20)),
        ("cut short", |journal, _| {
            for number in 1..=2 {
                std::fs::write(journal.join(format!("{number:08}.jnl")), b"").expect("written");
            }
        }),
    ];
    for (name, damage) in damages {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let (folder, all) = store_with_a_past(temp.path());
        let journal = folder.path().join("journal");
        damage(&journal, temp.path());
        let (control, report) = open(&folder).expect(name);
        assert_eq!((report.start, report.seq, report.exported), (Start::Intact, 120, Some(120)), "{name}");
        assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all, "{name}");
        put(&control, 500, user("after")).expect("put");
        put(&control, 501, user("after")).expect("put");
        drop(control);
        // Another start gives the same state, and the remaining files suffice for a rebuild.
        let (control, report) = open(&folder).expect(name);
        assert_eq!((report.start, report.seq, report.exported), (Start::Intact, 122, None), "{name}");
        assert!(report.notes.is_empty(), "{name}: {:?}", report.notes);
        drop(control);
        std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
        let (control, report) = open(&folder).expect(name);
        assert!(matches!(report.start, Start::Rebuilt { export: Some(_), .. }), "{name}: {:?}", report.start);
        assert_eq!((report.seq, users(&control).len()), (122, all.len() + 2), "{name}");
    }
}

#[test]
fn without_control_a_journal_that_lacks_confirmed_changes_is_refused_with_their_numbers_and_unchanged() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (folder, all) = store_with_a_past(temp.path());
    let journal = folder.path().join("journal");
    copy_tree(&journal, &temp.path().join("whole"));
    std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
    // The first file is missing.
    std::fs::remove_file(journal.join("00000001.jnl")).expect("removed");
    let (first, last) = missing(open(&folder));
    assert!(first == 1 && (40..100).contains(&last), "{last}");
    // One change in the middle is damaged.
    restore_whole(temp.path(), &folder);
    damage_file(&journal.join("00000001.jnl"), 50_000);
    let (first, last) = missing(open(&folder));
    assert!(first == last && (2..100).contains(&first), "{first}-{last}");
    // The last file is empty: the number of its changes is unknown.
    restore_whole(temp.path(), &folder);
    std::fs::write(journal.join("00000002.jnl"), b"").expect("written");
    match open(&folder) {
        Err(OpenError::EndMissing { first, why }) => assert!((40..100).contains(&first), "{first}: {why}"),
        other => panic!("{:?}", other.map(|o| o.1)),
    }
    // The name of an export has the number of its last change, even if its contents are not
    // readable.
    restore(temp.path(), &folder, "journal");
    copy_tree(&temp.path().join("exports"), &folder.path().join("exports"));
    let export = folder.path().join("exports/control-0000000120.plx");
    damage_file(&export, 500);
    assert_eq!(missing(open(&folder)), (61, 120));
    // After everything is restored, all rows are present: no refusal has changed anything.
    restore_whole(temp.path(), &folder);
    let (control, report) = open(&folder).expect("rebuilt");
    assert!(matches!(report.start, Start::Rebuilt { export: None, .. }));
    assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all);
}

fn restore_whole(dir: &Path, folder: &DataFolder) {
    std::fs::remove_dir_all(folder.path().join("journal")).expect("removed");
    copy_tree(&dir.join("whole"), &folder.path().join("journal"));
}

#[test]
fn a_damaged_database_is_rebuilt_from_the_journal_and_kept_in_quarantine() {
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 10] = [
        ("deleted", |control, _| std::fs::remove_dir_all(control).expect("removed")),
        ("db deleted", |control, _| std::fs::remove_file(control.join("db")).expect("removed")),
        ("emptied", |control, _| std::fs::write(control.join("db"), b"").expect("written")),
        ("truncated", |control, _| {
            let length = std::fs::metadata(control.join("db")).expect("there").len();
            let file = std::fs::OpenOptions::new().write(true).open(control.join("db")).expect("open");
            file.set_len(length / 2).expect("cut");
        }),
        ("overwritten", |control, _| {
            let mut bytes = std::fs::read(control.join("db")).expect("read");
            let end = bytes.len();
            bytes[end / 8..end / 2].fill(0xa5);
            std::fs::write(control.join("db"), bytes).expect("written");
        }),
        ("half swapped", |control, _| {
            std::fs::rename(control, control.with_extension("new")).expect("renamed")
        }),
        ("a row changed", |control, _| {
            let database = crate::kv::database::Database::open(control, 1 << 20).expect("open");
            let mut value = database.get(&[1, 0, 0, 0, 5]).expect("get").expect("there");
            value[40] ^= 1;
            database.insert(&[1, 0, 0, 0, 5], value).expect("insert");
            database.flush().expect("flush");
        }),
        ("a row of yesterday", |control, past| {
            let row = |dir: &Path| crate::kv::database::Database::open(dir, 1 << 20).expect("open");
            let old = row(&past.join("control")).get(&[1, 0, 0, 0, 5]).expect("get").expect("there");
            let database = row(control);
            database.insert(&[1, 0, 0, 0, 5], old).expect("insert");
            database.flush().expect("flush");
        }),
        ("a row lost", |control, _| {
            let database = crate::kv::database::Database::open(control, 1 << 20).expect("open");
            database.apply([([1, 0, 0, 0, 5].as_slice(), None)].into_iter()).expect("removed");
            database.flush().expect("flush");
        }),
        ("without meta", |control, _| {
            let database = crate::kv::database::Database::open(control, 1 << 20).expect("open");
            database.apply([(b"\x00commit".as_slice(), None)].into_iter()).expect("removed");
            database.flush().expect("flush");
        }),
    ];
    for (name, damage) in damages {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let (folder, all) = store_with_a_past(temp.path());
        let path = folder.path().join("control");
        let stays = name != "deleted" && name != "half swapped";
        damage(&path, temp.path());
        let (control, report) = open(&folder).expect(name);
        match report.start {
            Start::Rebuilt { quarantined, .. } => {
                assert_eq!(quarantined.is_some_and(|at| at.exists()), stays, "{name}");
                assert_eq!((report.seq, report.applied), (120, 120), "{name}");
            }
            // sled opens a truncated file with an older state and without an error; the sum shows
            // that this state is intact.
            Start::CaughtUp if name == "truncated" => assert!(report.seq == 120 && report.applied > 0),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all, "{name}");
        put(&control, 500, user("after")).expect("put");
        drop(control);
        let (control, report) = open(&folder).expect(name);
        assert_eq!((report.start, report.seq), (Start::Intact, 121), "{name}");
        assert_eq!(users(&control).len(), all.len() + 1, "{name}");
    }
}

#[test]
fn another_stores_database_is_not_used() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (folder, all) = store_with_a_past(temp.path());
    let other = DataFolder::open(&temp.path().join("other"), NOW, &mut Entropy::seeded(2)).expect("folder");
    put(&opened(&other), 1, user("stranger")).expect("put");
    std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
    copy_tree(&other.path().join("control"), &folder.path().join("control"));
    let (control, report) = open(&folder).expect("rebuilt");
    assert!(matches!(report.start, Start::Rebuilt { .. }));
    assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all);
    drop(control);
    std::fs::remove_dir_all(folder.path().join("journal")).expect("removed");
    copy_tree(&other.path().join("journal"), &folder.path().join("journal"));
    assert!(matches!(open(&folder), Err(OpenError::Journal(JournalError::Foreign { .. }))));
}

/// Users in control, in the journal, in an export, `INITIALISED`: all sixteen combinations.
#[test]
fn first_set_up_is_offered_only_if_no_user_ever_existed() {
    for bits in 0..16 {
        let [in_control, in_journal, in_export, initialised] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let folder = folder(temp.path());
        let control = opened(&folder);
        put(&control, 1, user("owner")).expect("put");
        control.close().expect("clean");
        for (kept, name) in [(in_control, "control"), (in_journal, "journal"), (in_export, "exports")] {
            if !kept {
                std::fs::remove_dir_all(folder.path().join(name)).expect("removed");
            }
        }
        if initialised {
            folder.mark_initialised(NOW).expect("marked");
        }
        let found = open(&folder).map(|(control, _)| users(&control).len());
        let anywhere = in_control || in_journal || in_export;
        match (anywhere, initialised) {
            (true, _) => assert!(matches!(found, Ok(1)), "{bits}: {found:?}"),
            (false, true) => assert!(matches!(found, Err(OpenError::AccountsGone { .. })), "{bits}"),
            (false, false) => assert!(matches!(found, Ok(0)), "{bits}: {found:?}"),
        }
        assert_eq!(folder.is_initialised().expect("read"), initialised || anywhere, "{bits}");
    }
    // An emptied table of users counts as missing as well.
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    opened(&folder).close().expect("clean");
    folder.mark_initialised(NOW).expect("marked");
    assert!(matches!(open(&folder), Err(OpenError::AccountsGone { .. })));
    std::fs::write(folder.path().join("INITIALISED"), "promlet initialised\n").expect("written");
    // A damaged marker also proves that the store had users.
    assert!(matches!(open(&folder), Err(OpenError::AccountsGone { .. })));
}

#[test]
fn a_damaged_identity_is_rewritten_from_journal_and_exports_and_never_becomes_another_stores() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let made = folder(temp.path());
    let (id, dir) = (made.store_id(), made.path().to_owned());
    let control = opened(&made);
    put(&control, 1, user("owner")).expect("put");
    control.close().expect("clean");
    drop(made);
    let reopen = || DataFolder::open(&dir, NOW, &mut Entropy::seeded(9));
    let marker = dir.join("STORE");
    let whole = std::fs::read(&marker).expect("read");
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|at| whole[..at].to_vec()).collect();
    damaged.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 7);
        bytes
    }));
    for bytes in &damaged {
        std::fs::write(&marker, bytes).expect("written");
        let found = reopen().expect("mended");
        assert_eq!((found.store_id(), found.notes().len()), (id, 1));
        drop(found);
        let again = reopen().expect("whole");
        assert_eq!((again.store_id(), again.notes()), (id, &[][..]));
    }
    // Files of another store prevent the decision.
    let other = crate::kv::scratch::temporary_folder().expect("temp");
    let stranger =
        DataFolder::open(&other.path().join("store"), NOW, &mut Entropy::seeded(4)).expect("folder");
    assert_ne!(stranger.store_id(), id);
    let control = opened(&stranger);
    put(&control, 1, user("stranger")).expect("put");
    control.close().expect("clean");
    stranger.mark_initialised(NOW).expect("marked");
    let theirs = |name: &str| stranger.path().join(name);
    let refuses = |what: &str| {
        std::fs::write(&marker, &whole[..20]).expect("written");
        let refused = reopen();
        assert!(matches!(refused, Err(FolderError::Damaged { .. })), "{what}: {refused:?}");
    };
    for name in ["INITIALISED", "journal/00000001.jnl"] {
        let mine = dir.join(name.replace('1', "9"));
        std::fs::copy(theirs(name), &mine).expect("copied");
        refuses(name);
        std::fs::remove_file(mine).expect("removed");
    }
    let mut named = whole.clone();
    let theirs_id = stranger.store_id().to_string();
    named[26..58].copy_from_slice(theirs_id.as_bytes());
    assert!(String::from_utf8_lossy(&named).contains(&format!("id {theirs_id}")));
    std::fs::write(&marker, &named).expect("written");
    assert!(matches!(reopen(), Err(FolderError::Damaged { .. })), "the text names another store");
    for name in ["journal", "exports"] {
        std::fs::remove_dir_all(dir.join(name)).expect("removed");
    }
    refuses("no evidence");
}

/// On a full disk sled cannot even open an intact database. Here it is damaged, and there is no
/// room for a new one.
#[test]
fn a_start_without_room_for_the_database_serves_reads_and_changes_without_loss() {
    const ENOSPC: i32 = 28;
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    for n in 0..30 {
        put(&control, n, user(&n.to_string())).expect("put");
    }
    let all = control.scan::<TestUser>(&()).expect("scan");
    drop(control);
    let new = folder.path().join("control.new");
    let damage = || std::fs::write(folder.path().join("control/db"), b"").expect("written");
    damage();
    let failing = Failing::after(&new, 0, ENOSPC, true);
    let (control, report) = open(&folder).expect("open");
    assert!(failing.was_met() && matches!(report.start, Start::InMemory { .. }), "{report:?}");
    assert_eq!(report.notes.len(), 1, "{report:?}");
    assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all);
    assert_eq!(
        control.scan_back::<TestUser>(&(), Some(&20), 2).expect("scan").first().map(|row| row.0),
        Some(19)
    );
    put(&control, 77, user("later")).expect("put");
    assert_eq!(control.get::<TestUser>(&77).expect("get"), Some(user("later")));
    control.close().expect("clean");
    drop(failing);
    // The next start with room creates the database with all rows.
    let (control, report) = open(&folder).expect("open");
    assert!(matches!(report.start, Start::Rebuilt { .. }), "{report:?}");
    let now = control.scan::<TestUser>(&()).expect("scan");
    assert!(now.len() == all.len() + 1 && all.iter().all(|row| now.contains(row)));
    drop(control);
    // Without a journal only the database may have the last changes.
    damage();
    std::fs::remove_dir_all(folder.path().join("journal")).expect("removed");
    let failing = Failing::after(&new, 0, ENOSPC, true);
    assert!(matches!(open(&folder), Err(OpenError::Database(_))));
    drop(failing);
    assert_eq!(opened(&folder).scan::<TestUser>(&()).expect("scan").len(), now.len());
}

#[test]
fn files_in_blobs_are_synced_and_empty_snapshots_removed_at_opening() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (folder, all) = store_with_a_past(temp.path());
    let control = folder.path().join("control");
    std::fs::write(control.join("snap.0000000000000001.generating"), b"").expect("written");
    std::fs::write(control.join("blobs").join("1"), b"x").expect("written");
    let (opened, report) = open(&folder).expect("open");
    assert!(!control.join("snap.0000000000000001.generating").exists());
    assert_eq!((report.start, report.blobs), (Start::Intact, 1));
    assert_eq!(opened.scan::<TestUser>(&()).expect("scan"), all);
}

#[test]
fn control_equals_a_map_through_random_changes_and_restarts() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let mut rng = Entropy::seeded(42);
    let mut model: BTreeMap<u32, TestUser> = BTreeMap::new();
    for _ in 0..8 {
        let control = opened(&folder);
        for _ in 0..60 {
            let [key, kind, size, fill] = rng.bytes();
            let key = u32::from(key % 16);
            let value = TestUser { name: fill.to_string(), bio: vec![fill; usize::from(size) * 60] };
            let changed = value.clone();
            let outcome = control.commit(move |tx| {
                match kind % 4 {
                    0 => tx.remove::<TestUser>(&key),
                    1 => {
                        tx.remove::<TestUser>(&key);
                        tx.put(&key, &changed);
                    }
                    2 => {
                        tx.put(&key, &user("first"));
                        tx.put(&key, &changed);
                    }
                    _ => {
                        tx.put(&key, &changed);
                        return Err(TestRefusal::Used);
                    }
                }
                Ok(())
            });
            match kind % 4 {
                0 => drop(model.remove(&key)),
                1 | 2 => drop(model.insert(key, value)),
                _ => assert!(outcome.is_err()),
            }
        }
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, value.clone())).collect();
        assert_eq!(control.scan::<TestUser>(&()).expect("scan"), expected);
    }
    assert!(matches!(open(&folder).expect("open").1.start, Start::Intact));
    std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
    let rebuilt = opened(&folder).scan::<TestUser>(&()).expect("scan");
    assert_eq!(rebuilt, model.into_iter().collect::<Vec<_>>());
}

#[test]
fn the_meta_row_has_the_documented_layout() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    put(&control, 1, user("a")).expect("put");
    let key = b"\x00commit";
    let value = control.shared.state.row(key).expect("row").expect("there");
    let (frame, body, _) = frame::open(key, &value).expect("whole");
    assert_eq!(frame, Frame { version: 1, kind: 1, flags: 0 });
    let row = control.shared.state.row(&[1, 0, 0, 0, 1]).expect("row").expect("there");
    let mut expected = vec![1, 0, 0, 0, 0, 0, 0, 0];
    expected.extend_from_slice(&row[8..12]);
    expected.extend_from_slice(&[0; 4]);
    expected.extend_from_slice(&folder.store_id().0);
    expected.extend_from_slice(&[1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(body, expected);
}
