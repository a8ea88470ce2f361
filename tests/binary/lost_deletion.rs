//! A deletion whose record was lost with the end of the log. Samples acknowledged after the
//! recovery are kept, whichever recovery was chosen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promlet::clock::Clock;
use promlet::model::Timestamp;
use serde_json::json;

use crate::harness::{ORG, Server, Start, bootstrap};
use crate::upkeep::{copy_tree, expected, promlet, samples, seal, succeeded, write};

/// How the end of the log is lost, from the record of the deletion or from earlier on.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Cut,
    Zeros,
    CutBehindTheFirstRecord,
    Empty,
    Gone,
}

/// The operator's choice of recovery.
#[derive(Clone, Copy, Debug)]
enum Recovery {
    AcceptLoss,
    Repair,
}

fn log_file(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir.join("wal")).expect("listed").map(|entry| entry.expect("read").path());
    files.filter(|path| path.extension().is_some_and(|end| end == "wal")).max().expect("a log file")
}

/// Returns the offset of the end of the records in the last log file.
fn log_end(dir: &Path) -> usize {
    let bytes = std::fs::read(log_file(dir)).expect("read");
    (bytes.iter().rposition(|byte| *byte != 0).expect("records") + 1).next_multiple_of(8)
}

fn lose(dir: &Path, loss: Loss, at: usize) {
    let path = log_file(dir);
    let mut bytes = std::fs::read(&path).expect("read");
    match loss {
        Loss::Cut => bytes.truncate(at),
        Loss::Zeros => bytes[at..].fill(0),
        Loss::CutBehindTheFirstRecord => bytes.truncate(64),
        Loss::Empty => bytes.clear(),
        Loss::Gone => return std::fs::remove_file(&path).expect("removed"),
    }
    std::fs::write(&path, bytes).expect("written");
}

/// Checks that only sent samples are there, and all samples of the steps `kept`.
fn holds(server: &Server, cookie: &str, base: Timestamp, kept: &[std::ops::Range<i64>], case: &str) {
    let found: BTreeMap<(usize, i64), f64> = samples(server, cookie, base);
    let sent = expected(0..60);
    assert!(found.iter().all(|(key, value)| sent.get(key) == Some(value)), "{case}: nothing is invented");
    let kept = expected(kept.iter().cloned().flatten());
    let missing: Vec<_> = kept.keys().filter(|key| !found.contains_key(key)).collect();
    assert!(missing.is_empty(), "{case}: acknowledged and gone: {missing:?}");
}

#[test]
fn samples_acknowledged_after_a_deletion_was_lost_with_the_end_of_the_log_survive_kill_dash_nine() {
    let live = crate::harness::scratch::temporary_folder().expect("made");
    let server = Server::serve(live.path());
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let base = Timestamp::from_s(Clock::System.now().as_s() - 3_000);
    // Half of the deleted samples are in a segment, the other half in the log only.
    (0..10).for_each(|step| assert!(write(&server, &secret, base, step)));
    seal(live.path());
    (10..20).for_each(|step| assert!(write(&server, &secret, base, step)));
    let at = log_end(live.path());
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/admin/tsdb/delete_series?match[]=upkeep");
    let deleted = server.post_json(&path, &[("Cookie", &cookie)], &json!({}));
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert!(samples(&server, &cookie, base).is_empty());
    server.kill();

    for loss in [Loss::Cut, Loss::Zeros, Loss::CutBehindTheFirstRecord, Loss::Empty, Loss::Gone] {
        for recovery in [Recovery::AcceptLoss, Recovery::Repair] {
            let case = format!("{loss:?}, {recovery:?}");
            let folder = crate::harness::scratch::temporary_folder().expect("made");
            let mut dir = folder.path().join("damaged");
            copy_tree(live.path(), &dir);
            lose(&dir, loss, at);
            let server = match recovery {
                Recovery::AcceptLoss => {
                    let args = ["serve", "--accept-loss"];
                    Server::start(&Start { args: &args, dir: &dir, env: &bootstrap() })
                }
                Recovery::Repair => {
                    let new = folder.path().join("repaired");
                    succeeded(&promlet(&["repair", "--to"], &[&new, &dir]));
                    dir = new;
                    Server::serve(&dir)
                }
            };
            let cookie = server.sign_in();
            holds(&server, &cookie, base, &[], &case);
            // Write some of the deleted times again, and later ones.
            (5..15).chain(20..60).for_each(|step| assert!(write(&server, &secret, base, step), "{case}"));
            let kept = [5..15, 20..60];
            holds(&server, &cookie, base, &kept, &case);
            server.kill();
            let server = Server::serve(&dir);
            holds(&server, &server.sign_in(), base, &kept, &format!("{case}, after a kill"));
            seal(&dir);
            holds(&server, &server.sign_in(), base, &kept, &format!("{case}, sealed"));
            server.kill();
            let server = Server::serve(&dir);
            holds(&server, &server.sign_in(), base, &kept, &format!("{case}, sealed and killed"));
        }
    }
}
