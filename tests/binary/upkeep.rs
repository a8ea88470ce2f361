//! Operations on a folder: seal, backup, restore, check, repair.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::Value as Json;

use crate::harness::{ORG, Server, Start, bootstrap};

const SERIES: usize = 8;

/// Runs the binary without any of this process's settings.
pub(crate) fn promlet(args: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.env_clear().args(args).args(paths);
    command.output().expect("the binary starts")
}

pub(crate) fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

pub(crate) fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", output_text(output));
    output_text(output)
}

pub(crate) fn seal(dir: &Path) -> String {
    succeeded(&promlet(&["seal", "--data-dir"], &[dir]))
}

/// Returns the JSON report of `check` and its exit code.
pub(crate) fn check(deep: bool, dir: &Path) -> (Json, i32) {
    let args: &[&str] = if deep { &["check", "--json", "--deep"] } else { &["check", "--json"] };
    let output = promlet(args, &[dir]);
    let json =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output_text(&output)));
    // The text report has the same exit code.
    let human = promlet(&["check", "--deep"][..if deep { 2 } else { 1 }], &[dir]);
    assert_eq!(human.status.code(), output.status.code(), "{}", output_text(&human));
    (json, output.status.code().expect("an exit code"))
}

fn now() -> Timestamp {
    Clock::System.now()
}

fn value(series: usize, step: i64) -> f64 {
    series as f64 * 1e6 + step as f64 + 0.25
}

/// Writes one sample of each series, `step` seconds after `base`.
pub(crate) fn write(server: &Server, secret: &str, base: Timestamp, step: i64) -> bool {
    let one = |series: usize| {
        let pairs = [("__name__".to_owned(), "upkeep".to_owned()), ("series".to_owned(), series.to_string())];
        let sample = Sample { at: base.plus_ms(step * 1_000), value: value(series, step) };
        (Labels::from_pairs(pairs), vec![sample])
    };
    let batch: Vec<_> = (0..SERIES).map(one).collect();
    matches!(server.write(secret, &batch).status, 200 | 204)
}

/// Returns every sample of the last two hours, by series and second after `base`.
pub(crate) fn samples(server: &Server, cookie: &str, base: Timestamp) -> BTreeMap<(usize, i64), f64> {
    let data = server.ask(cookie, "upkeep[2h]", &now().as_s().to_string());
    let mut found = BTreeMap::new();
    for series in data["result"].as_array().expect("a matrix") {
        let number: usize = series["metric"]["series"].as_str().expect("a label").parse().expect("a number");
        for pair in series["values"].as_array().expect("values") {
            #[expect(clippy::cast_possible_truncation, reason = "a second of this century")]
            let at = pair[0].as_f64().expect("a time").round() as i64 - base.as_s();
            let value = pair[1].as_str().expect("a text").parse().expect("a number");
            assert!(found.insert((number, at), value).is_none(), "one sample a time");
        }
    }
    found
}

pub(crate) fn expected(steps: impl Iterator<Item = i64>) -> BTreeMap<(usize, i64), f64> {
    steps.flat_map(|step| (0..SERIES).map(move |series| ((series, step), value(series, step)))).collect()
}

fn key_ids(server: &Server, cookie: &str) -> Vec<String> {
    let listed = server.get(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", cookie)]).json();
    let keys = listed["data"].as_array().expect("a list").iter();
    keys.map(|key| key["id"].as_str().expect("id").to_owned()).collect()
}

pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("read").path()) {
        match entry.is_dir() {
            true => found.extend(files_below(&entry)),
            // Skips the socket that a killed server leaves.
            false if entry.is_file() => found.push(entry),
            false => {}
        }
    }
    found.sort();
    found
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed").map(|entry| entry.expect("read").path()) {
        let target = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy_tree(&entry, &target);
        } else if entry.is_file() {
            std::fs::copy(&entry, target).expect("copied");
        }
    }
}

/// Returns the time an hour ago, at a whole second.
fn an_hour_ago() -> Timestamp {
    Timestamp::from_s(now().as_s() - 3_600)
}

/// Creates a stopped folder with two segments, later samples in the log, and an account with an API
/// key.
pub(crate) fn stopped(dir: &Path) -> Timestamp {
    let base = an_hour_ago();
    let server = Server::serve(dir);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    for steps in [0..100, 100..200] {
        steps.for_each(|step| assert!(write(&server, &secret, base, step)));
        assert!(seal(dir).starts_with("sealed 800 samples into 1 segments"), "{}", server.log());
    }
    (200..250).for_each(|step| assert!(write(&server, &secret, base, step)));
    server.kill();
    base
}

#[test]
fn seal_works_on_a_running_server_over_its_socket_by_http_and_on_a_stopped_folder() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = an_hour_ago();
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    (0..50).for_each(|step| assert!(write(&server, &secret, base, step)));
    assert!(seal(dir.path()).starts_with("sealed 400 samples into 1 segments"));
    assert!(seal(dir.path()).starts_with("sealed 0 samples into 0 segments"), "there is nothing left");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(dir.path().join("admin.sock")).expect("there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    (50..60).for_each(|step| assert!(write(&server, &secret, base, step)));
    let sealed = server.post_json("/api/v1/admin/seal", &[("Cookie", &cookie)], &serde_json::json!({}));
    assert_eq!((sealed.status, sealed.json()), (200, serde_json::json!({"segments": 1, "samples": 80})));
    let refused = server.post_json("/api/v1/admin/seal", &[], &serde_json::json!({}));
    assert_eq!(refused.status, 401, "{}", refused.body);
    (60..70).for_each(|step| assert!(write(&server, &secret, base, step)));
    server.kill();
    assert!(seal(dir.path()).starts_with("sealed 80 samples into 1 segments"), "on the stopped folder");
    let server = Server::serve(dir.path());
    assert_eq!(samples(&server, &cookie, base), expected(0..70));
    assert!(server.terminate().success());
    assert!(!dir.path().join("admin.sock").exists());
    let nothing = promlet(&["seal", "--data-dir"], &[&dir.path().join("nothing")]);
    assert!(
        !nothing.status.success() && output_text(&nothing).contains("holds no promlet store"),
        "{}",
        output_text(&nothing)
    );
    assert!(!dir.path().join("nothing").exists(), "no folder is created");
}

#[test]
fn a_backup_during_writes_contains_everything_acknowledged_before_and_is_restored_with_the_same_results() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let (backup, restored) = (out.path().join("backup"), out.path().join("restored"));
    let base = an_hour_ago();
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let (kept, secret) = server.api_key(&cookie);
    for step in 0..300 {
        assert!(write(&server, &secret, base, step));
        if step == 150 {
            seal(dir.path());
        }
    }
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(300));
    let before = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for step in 300.. {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                assert!(write(&server, &secret, base, step), "writes go on");
                answered.store(usize::try_from(step).expect("positive") + 1, Ordering::SeqCst);
            }
        });
        while answered.load(Ordering::SeqCst) < 320 {
            std::thread::yield_now();
        }
        let before = answered.load(Ordering::SeqCst);
        let text = succeeded(&promlet(&["backup", "--data-dir"], &[dir.path(), &backup]));
        assert!(text.contains("without master.key"), "{text}");
        done.store(true, Ordering::SeqCst);
        writer.join().expect("the writer");
        before
    });
    let (late, _) = server.api_key(&cookie);
    assert!(!dir.path().join("backup.new").exists(), "the staged files are removed");
    let all = samples(&server, &cookie, base);
    server.kill();

    let (report, code) = check(true, &backup);
    assert_eq!((code, &report["kind"]), (0, &Json::from("backup")), "{report:#}");
    let names: Vec<_> = files_below(&backup).iter().map(|path| path.display().to_string()).collect();
    assert!(!names.iter().any(|name| name.contains("master.key") || name.contains("/control/")), "{names:?}");
    assert!(succeeded(&promlet(&["restore"], &[&restored, &backup])).contains("put yours into"));
    std::fs::copy(dir.path().join("master.key"), restored.join("master.key")).expect("copied");
    let (report, code) = check(true, &restored);
    assert_eq!(code, 0, "{report:#}");
    let server = Server::serve(&restored);
    let found = samples(&server, &cookie, base);
    let promised = expected(0..i64::try_from(before).expect("few"));
    assert!(promised.iter().all(|(place, value)| found.get(place) == Some(value)), "{} samples", found.len());
    assert!(found.iter().all(|(place, value)| all.get(place) == Some(value)), "and nothing was invented");
    let keys = key_ids(&server, &server.sign_in());
    assert!(keys.contains(&kept) && !keys.contains(&late), "{keys:?}");
    assert!(write(&server, &secret, base, 3_000), "the restored store goes on");
    assert!(server.terminate().success());
    let again = promlet(&["restore"], &[&restored, &backup]);
    assert!(
        !again.status.success() && output_text(&again).contains("is not empty"),
        "{}",
        output_text(&again)
    );
}

/// Stages a backup and returns the connection, as `promlet backup` does while it copies.
fn stage_backup(dir: &Path) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(UnixStream::connect(dir.join("admin.sock")).expect("the server listens"));
    stream.get_mut().write_all(b"{\"do\":\"stage_backup\",\"with_key\":false}\n").expect("sent");
    let mut answer = String::new();
    stream.read_line(&mut answer).expect("answered");
    assert!(answer.contains("account_changes") && dir.join("backup.new").is_dir(), "{answer}");
    stream
}

#[test]
fn the_connection_of_a_backup_closes_only_after_its_staged_files_are_removed() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    for _ in 0..3 {
        let mut stream = stage_backup(dir.path());
        // Removing this many files takes a while.
        for number in 0..2_000 {
            std::fs::write(dir.path().join("backup.new").join(number.to_string()), "").expect("written");
        }
        stream.get_ref().shutdown(Shutdown::Write).expect("open");
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        assert_eq!(stream.read(&mut [0]).expect("the connection ends"), 0);
        assert!(!dir.path().join("backup.new").exists(), "it ended too soon");
    }
    assert!(server.terminate().success());
}

#[test]
fn a_failed_backup_does_not_block_the_next_one() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    for round in 0..20 {
        let failed = promlet(&["backup", "--data-dir"], &[dir.path(), &out.path().join("missing/backup")]);
        assert!(
            !failed.status.success() && output_text(&failed).contains("missing"),
            "{}",
            output_text(&failed)
        );
        assert!(!dir.path().join("backup.new").exists(), "round {round}: the staged files are still there");
    }
    succeeded(&promlet(&["backup", "--data-dir"], &[dir.path(), &out.path().join("backup")]));
    assert!(server.terminate().success());
}

#[test]
fn a_stop_does_not_wait_for_a_backup_however_many_commands_followed_it() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let copying = stage_backup(dir.path());
    for _ in 0..10 {
        assert!(seal(dir.path()).starts_with("sealed 0 samples"));
    }
    assert!(server.terminate().success());
    assert!(!dir.path().join("backup.new").exists());
    drop(copying);
}

#[test]
fn a_damaged_backup_is_never_restored_and_check_names_every_file() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let backup = out.path().join("backup");
    stopped(dir.path());
    // It also works on a stopped folder, and with the key.
    let text = succeeded(&promlet(&["backup", "--with-key", "--data-dir"], &[dir.path(), &backup]));
    assert!(!text.contains("without master.key"), "{text}");
    for (number, victim) in files_below(&backup).into_iter().enumerate() {
        let whole = std::fs::read(&victim).expect("read");
        for cut in [false, true] {
            let mut bytes = whole.clone();
            if cut {
                bytes.pop();
            } else {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            std::fs::write(&victim, &bytes).expect("written");
            let target = out.path().join(format!("restored-{number}-{cut}"));
            let refused = promlet(&["restore"], &[&target, &backup]);
            let name = victim.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(
                !refused.status.success() && output_text(&refused).contains(&name),
                "{}",
                output_text(&refused)
            );
            assert!(!target.exists(), "nothing was written");
        }
        std::fs::write(&victim, &whole).expect("written");
    }
    std::fs::remove_file(backup.join("MANIFEST.json")).expect("removed");
    // With the key the backup lacks nothing else.
    let (report, code) = check(true, &backup);
    assert!(code == 2 && report.to_string().contains("MANIFEST.json"), "{report:#}");
    let unfinished = promlet(&["restore"], &[&out.path().join("x"), &backup]);
    assert!(output_text(&unfinished).contains("never finished"), "{}", output_text(&unfinished));
}

#[test]
fn check_reports_what_is_whole_what_is_repairable_and_what_is_lost() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    stopped(dir.path());
    let (report, code) = check(true, dir.path());
    assert_eq!((code, &report["result"]), (0, &Json::from("note")), "{report:#}");
    let path_of = |part: &str, ending: &str| {
        let found = files_below(&dir.path().join(part));
        found.into_iter().find(|path| path.to_string_lossy().ends_with(ending)).expect("there")
    };
    let segment = path_of("segments", ".seg");
    let log = path_of("wal", ".wal");
    let damaged = |name: &str, damage: &dyn Fn(&Path)| {
        let copy = crate::harness::scratch::temporary_folder().expect("a folder");
        copy_tree(dir.path(), copy.path());
        damage(copy.path());
        let before: Vec<_> =
            files_below(copy.path()).iter().map(|p| std::fs::read(p).expect("read")).collect();
        let (report, code) = check(true, copy.path());
        let after: Vec<_> =
            files_below(copy.path()).iter().map(|p| std::fs::read(p).expect("read")).collect();
        assert!(before == after, "{name}: check changes nothing");
        let first = report["findings"][0].clone();
        (code, first, report)
    };
    let inside = |copy: &Path, path: &Path| copy.join(path.strip_prefix(dir.path()).expect("inside"));
    let flip = |path: &Path, offset: usize| {
        let mut bytes = std::fs::read(path).expect("read");
        bytes[offset] ^= 1;
        std::fs::write(path, bytes).expect("written");
    };
    // A block of a segment is damaged.
    let (code, first, report) = damaged("block", &|copy| flip(&inside(copy, &segment), 70));
    assert_eq!((code, &first["weight"]), (2, &Json::from("loss")), "{report:#}");
    assert!(first["file"].as_str().is_some_and(|file| file.ends_with(".seg")), "{first}");
    assert!(first["offset"].is_u64() && first["org"].is_u64(), "{first}");
    // A segment is missing: its organisation, time range and number of samples are reported.
    let (code, first, _) =
        damaged("segment", &|copy| std::fs::remove_file(inside(copy, &segment)).expect("removed"));
    // All sealed samples, unless a new day has begun.
    let count = first["count"].as_u64().expect("a count");
    assert!(code == 2 && (100..=1_600).contains(&count), "{first}");
    assert!(first["range"][0].is_string() && first["org"].is_u64(), "{first}");
    // The log is damaged in the middle.
    let (code, first, _) = damaged("log", &|copy| flip(&inside(copy, &log), 4_300));
    assert_eq!(code, 2, "{first}");
    assert!(first["what"].as_str().is_some_and(|what| what.contains("unreadable")), "{first}");
    // The log ends with half a record.
    let (code, first, _) = damaged("tail", &|copy| {
        let path = inside(copy, &log);
        let bytes = std::fs::read(&path).expect("read");
        let end = bytes.iter().rposition(|b| *b != 0).expect("written");
        flip(&path, (end + 64).next_multiple_of(8));
    });
    assert_eq!((code, &first["weight"]), (1, &Json::from("repairable")), "{first}");
    // Accounts are repairable as long as another copy exists.
    let (code, first, _) =
        damaged("control", &|copy| std::fs::write(copy.join("control/db"), b"").expect("written"));
    assert_eq!(code, 1, "{first}");
    let (code, first, report) = damaged("journal", &|copy| {
        std::fs::write(copy.join("control/db"), b"").expect("written");
        flip(&copy.join("journal/00000001.jnl"), 4_200);
        std::fs::remove_dir_all(copy.join("exports")).expect("removed");
    });
    assert_eq!((code, &first["weight"]), (2, &Json::from("loss")), "{first}");
    assert!(report.to_string().contains("are missing"), "{report:#}");
}

#[test]
fn a_folder_in_use_is_not_checked_and_its_process_is_named() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let refused = promlet(&["check"], &[dir.path()]);
    assert!(output_text(&refused).contains(&format!("pid {}", server.pid())), "{}", output_text(&refused));
    assert_eq!(refused.status.code(), Some(2));
    let foreign = crate::harness::scratch::temporary_folder().expect("a folder");
    let refused = promlet(&["check"], &[foreign.path()]);
    assert!(output_text(&refused).contains("holds no promlet store"), "{}", output_text(&refused));
}

/// Flips a bit in the middle of the written part of the newest log file with records.
fn damage_log(dir: &Path) {
    let mut logs = files_below(&dir.join("wal"));
    logs.retain(|path| path.to_string_lossy().ends_with(".wal"));
    let ends = logs.iter().map(|path| {
        let bytes = std::fs::read(path).expect("read");
        bytes.iter().rposition(|b| *b != 0).unwrap_or(0)
    });
    let (end, path) = ends.zip(&logs).max().expect("a log");
    let mut bytes = std::fs::read(path).expect("read");
    // Records begin after the file header.
    bytes[(4_128 + end) / 2] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn repair_saves_undamaged_data_to_a_new_folder_and_reports_what_is_lost() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = stopped(dir.path());
    let whole = out.path().join("whole");
    let text = succeeded(&promlet(&["repair", "--to"], &[&whole, dir.path()]));
    assert!(text.contains("nothing is lost"), "{text}");
    let segments: Vec<_> = files_below(&dir.path().join("segments"));
    let mut bytes = std::fs::read(&segments[0]).expect("read");
    bytes[70] ^= 1;
    std::fs::write(&segments[0], bytes).expect("written");
    damage_log(dir.path());
    std::fs::write(dir.path().join("control/db"), b"").expect("written");
    let before: Vec<_> = files_below(dir.path()).iter().map(|p| std::fs::read(p).expect("read")).collect();
    let saved = out.path().join("saved");
    let text = succeeded(&promlet(&["repair", "--to"], &[&saved, dir.path()]));
    let after: Vec<_> = files_below(dir.path()).iter().map(|p| std::fs::read(p).expect("read")).collect();
    assert!(before == after, "never in place");
    assert!(text.contains("rewritten") && text.contains("is lost"), "{text}");
    let (report, code) = check(true, &saved);
    assert_eq!(code, 0, "{report:#}");
    let all = expected(0..250);
    for (folder, is_whole) in [(&whole, true), (&saved, false)] {
        let server = Server::serve(folder);
        let cookie = server.sign_in();
        let found = samples(&server, &cookie, base);
        assert!(found.iter().all(|(place, value)| all.get(place) == Some(value)), "nothing is invented");
        match is_whole {
            true => assert_eq!(found, all),
            // One block of a series, at most 200 samples, and one record of the log are lost.
            false => assert!((1_750..2_000).contains(&found.len()), "{} samples", found.len()),
        }
        let (_, secret) = server.api_key(&cookie);
        assert!(write(&server, &secret, base, 3_000), "it accepts samples");
        assert!(server.terminate().success());
        let server = Server::serve(folder);
        assert_eq!(samples(&server, &cookie, base).len(), found.len() + SERIES);
    }
}

#[test]
fn accept_loss_ends_a_read_only_start_and_keeps_the_old_log() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = stopped(dir.path());
    damage_log(dir.path());
    let start = |args| Server::start(&Start { args, dir: dir.path(), env: &bootstrap() });
    let server = start(&["serve", "--accept-loss"]);
    server.log_line("accepted as lost");
    let cookie = server.sign_in();
    let found = samples(&server, &cookie, base);
    let all = expected(0..250);
    assert!(found.iter().all(|(place, value)| all.get(place) == Some(value)), "nothing is invented");
    assert_eq!(found.len(), all.len() - SERIES, "one record, one sample of each series");
    let (_, secret) = server.api_key(&cookie);
    assert!(write(&server, &secret, base, 3_000), "it takes samples");
    server.kill();
    let kept = std::fs::read_dir(dir.path().join("quarantine")).expect("there");
    let kept: Vec<_> =
        kept.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect();
    assert!(kept.iter().any(|name| name.ends_with("-wal")), "{kept:?}");
    let server = start(&["serve"]);
    assert_eq!(samples(&server, &cookie, base).len(), found.len() + SERIES);
    assert!(server.terminate().success());
    let server = start(&["serve", "--accept-loss"]);
    assert!(!server.log().contains("accepted as lost"), "nothing is lost any more: {}", server.log());
}

/// Runs a command that is killed after `ms` milliseconds. Returns whether it had succeeded before.
fn killed_after(ms: f64, args: &[&str], paths: &[&Path]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.env_clear().args(args).args(paths).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    std::thread::sleep(Duration::from_secs_f64(ms / 1_000.0));
    let ended = child.try_wait().expect("ours").is_some_and(|status| status.success());
    // It may already be gone.
    let _ = child.kill();
    child.wait().expect("reaped");
    ended
}

/// Checks that the folder is either a complete store, or reported as none. Returns whether it is a
/// store.
fn is_whole_or_none(folder: &Path, held: &BTreeMap<(usize, i64), f64>, base: Timestamp) -> bool {
    if !folder.join("STORE").exists() {
        let refused = promlet(&["check"], &[folder]);
        assert!(output_text(&refused).contains("holds no promlet store"), "{}", output_text(&refused));
        return false;
    }
    let (report, code) = check(true, folder);
    assert!(code < 2, "{report:#}");
    let server = Server::serve(folder);
    assert_eq!(samples(&server, &server.sign_in(), base), *held);
    assert!(server.terminate().success());
    true
}

#[test]
fn a_killed_backup_restore_or_repair_leaves_a_complete_result_or_none_that_is_accepted() {
    let mut rng = Entropy::seeded(20_261_121);
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = stopped(dir.path());
    let held = expected(0..250);
    let whole = out.path().join("whole");
    succeeded(&promlet(&["backup", "--with-key", "--data-dir"], &[dir.path(), &whole]));
    let mut seen = [0, 0];
    for kill in 0..12 {
        let to = out.path().join(format!("to-{kill}"));
        let ms = 160.0 * rng.unit();
        let (args, paths): (&[&str], _) = match kill % 2 {
            0 => (&["restore"], [to.as_path(), &whole]),
            _ => (&["repair", "--to"], [to.as_path(), dir.path()]),
        };
        let ended = killed_after(ms, args, &paths);
        if !to.exists() || std::fs::read_dir(&to).expect("listed").next().is_none() {
            assert!(!ended);
            continue;
        }
        let is_whole = is_whole_or_none(&to, &held, base);
        assert!(is_whole || !ended, "it exited successfully");
        seen[usize::from(is_whole)] += 1;
        let again = promlet(args, &paths);
        assert!(output_text(&again).contains("is not empty"), "{}", output_text(&again));
    }
    println!("{seen:?} incomplete, complete");
    // Backups of a running server that still accepts samples.
    let server = Server::serve(dir.path());
    for kill in 0..6 {
        let to = out.path().join(format!("backup-{kill}"));
        let ended =
            killed_after(200.0 * rng.unit(), &["backup", "--with-key", "--data-dir"], &[dir.path(), &to]);
        let restored = out.path().join(format!("restored-{kill}"));
        let output = promlet(&["restore"], &[&restored, &to]);
        if output.status.success() {
            assert!(is_whole_or_none(&restored, &held, base));
        } else {
            assert!(!ended && output_text(&output).contains("MANIFEST.json"), "{}", output_text(&output));
        }
    }
    // The lock of the previous backup is released.
    let last = out.path().join("last");
    for _ in 0..100 {
        let output = promlet(&["backup", "--with-key", "--data-dir"], &[dir.path(), &last]);
        if output.status.success() {
            break;
        }
        assert!(output_text(&output).contains("another backup is in progress"), "{}", output_text(&output));
    }
    assert_eq!(check(true, &last).1, 0);
    assert!(!dir.path().join("backup.new").exists());
    server.kill();
}

#[test]
fn a_killed_start_that_accepts_a_loss_has_either_done_it_or_not() {
    let mut rng = Entropy::seeded(7);
    let origin = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = stopped(origin.path());
    damage_log(origin.path());
    let all = expected(0..250);
    for _ in 0..6 {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        copy_tree(origin.path(), dir.path());
        let args = ["serve", "--accept-loss", "--listen", "127.0.0.1:0", "--data-dir"];
        killed_after(250.0 * rng.unit(), &args, &[dir.path()]);
        // Whatever it had done by then, a second start completes it.
        let start = |args| Server::start(&Start { args, dir: dir.path(), env: &bootstrap() });
        let server = start(&["serve", "--accept-loss"]);
        let cookie = server.sign_in();
        let found = samples(&server, &cookie, base);
        assert_eq!(found.len(), all.len() - SERIES, "one record, one sample of each series");
        assert!(found.iter().all(|(place, value)| all.get(place) == Some(value)), "nothing is invented");
        let (_, secret) = server.api_key(&cookie);
        assert!(write(&server, &secret, base, 3_000), "it takes samples");
        assert!(server.terminate().success());
    }
}
