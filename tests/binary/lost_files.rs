//! Recovery from lost files by the operator: a new master key, one segment from a backup.

use std::path::{Path, PathBuf};
use std::process::Output;

use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

use crate::harness::{Answer, EMAIL, ORG, PASSWORD, Server, Start, bootstrap, command};
use crate::upkeep::{
    check, copy_tree, expected, files_below, output_text, promlet, samples, seal, stopped, succeeded, write,
};
use crate::used_once::{code, step};

fn start(dir: &Path, args: &[&str]) -> Server {
    Server::start(&Start { args, dir, env: &bootstrap() })
}

/// Runs a start that must be refused and returns its one line of error.
fn refused(dir: &Path, args: &[&str]) -> String {
    let output: Output =
        command(&Start { args, dir, env: &bootstrap() }).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("promlet: ")).collect();
    assert_eq!(lines.len(), 1, "one line: {errors}");
    lines.concat()
}

fn log_in(server: &Server) -> Answer {
    server.post_json("/api/v1/auth/login", &[], &json!({ "email": EMAIL, "password": PASSWORD }))
}

struct Sealed {
    key: String,
    secret: String,
    token: String,
}

/// Creates a second factor, and an API key that has signed an embed token.
fn with_sealed_secrets(server: &Server) -> Sealed {
    let cookie = server.sign_in();
    let post = |path: &str, body| server.post_json(path, &[("Cookie", &cookie)], &body);
    let (key, secret) = server.api_key(&cookie);
    let minted = post(&format!("/api/v1/orgs/{ORG}/embed/tokens"), json!({ "api_key_id": key })).json();
    let token = minted["token"].as_str().expect("a token").to_owned();
    assert_eq!(query_with(server, &token).status, 200);
    let enrolled = post("/api/v1/auth/2fa/enroll", json!({})).json();
    let now = code(enrolled["secret"].as_str().expect("a secret"), step());
    let confirmed = post("/api/v1/auth/2fa/confirm", json!({ "code": now }));
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    assert_eq!(log_in(server).json()["requires_2fa"], true);
    Sealed { key, secret, token }
}

fn query_with(server: &Server, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let path = format!("/api/v1/orgs/{ORG}/query/expr-instant?expr=1");
    server.get(&path, &[("Authorization", &bearer)])
}

/// Checks that the secrets sealed with the old key are gone, and everything else is there.
fn check_after_new_key(server: &Server, sealed: &Sealed) {
    let login = log_in(server);
    assert_eq!(login.status, 200, "{}", login.body);
    assert_ne!(login.json()["requires_2fa"], true, "no code is required: {}", login.body);
    let cookie = login.session_cookie();
    assert_eq!(query_with(server, &sealed.token).status, 401, "a token signed with the old secret");
    let mint = json!({ "api_key_id": sealed.key });
    let tokens = format!("/api/v1/orgs/{ORG}/embed/tokens");
    let minted = server.post_json(&tokens, &[("Cookie", &cookie)], &mint);
    assert!((400..500).contains(&minted.status), "not before it is rotated: {}", minted.body);
    let base = promlet::clock::Clock::System.now();
    assert!(write(server, &sealed.secret, base, 0), "the API key itself still works");
    let rotate = format!("/api/v1/orgs/{ORG}/api-keys/{}/rotate", sealed.key);
    let rotated = server.post_json(&rotate, &[("Cookie", &cookie)], &json!({ "overlap_s": 3_600 }));
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let minted = server.post_json(&tokens, &[("Cookie", &cookie)], &mint).json();
    assert_eq!(query_with(server, minted["token"].as_str().expect("a token")).status, 200);
}

#[test]
fn a_lost_master_key_is_replaced_only_on_request_and_the_owners_of_dropped_secrets_are_logged() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = start(dir.path(), &["serve"]);
    let sealed = with_sealed_secrets(&server);
    server.kill();
    let file = dir.path().join("master.key");
    let key = std::fs::read_to_string(&file).expect("the key");

    // Nothing is lost if the key is restored, however it was lost.
    let other = "0123456789abcdef".repeat(4);
    for lost in [None, Some("half a ke"), Some(other.as_str())] {
        std::fs::remove_file(&file).expect("removed");
        if let Some(text) = lost {
            put_key(&file, text);
        }
        let why = refused(dir.path(), &["serve"]);
        assert!(why.contains("master.key"), "{lost:?}: {why}");
        put_key(&file, &key);
    }
    let server = start(dir.path(), &["serve", "--new-master-key"]);
    server.log_line("is the right key, nothing is dropped");
    assert_eq!(log_in(&server).json()["requires_2fa"], true);
    server.kill();

    for lost in [None, Some("half a ke"), Some(other.as_str())] {
        let copy = crate::harness::scratch::temporary_folder().expect("a folder");
        copy_tree(dir.path(), copy.path());
        let file = copy.path().join("master.key");
        std::fs::remove_file(&file).expect("removed");
        if let Some(text) = lost {
            put_key(&file, text);
        }
        let server = start(copy.path(), &["serve", "--new-master-key"]);
        server.log_line(&format!("{EMAIL} has lost the second factor"));
        server.log_line(&format!("embed tokens of API key {} of {ORG} fail", sealed.key));
        let new = std::fs::read_to_string(&file).expect("the new key");
        assert!(![Some(new.as_str()), Some(key.as_str())].contains(&lost) && new.trim().len() == 64);
        let kept = files_below(&copy.path().join(if lost.is_some() { "quarantine" } else { "wal" }));
        let kept = kept.iter().filter(|path| path.to_string_lossy().ends_with("-master.key")).count();
        assert_eq!(kept, usize::from(lost.is_some()), "the old key file is kept");
        check_after_new_key(&server, &sealed);
        server.kill();
        // It is now the key of this store, and the flag has no further effect.
        let server = start(copy.path(), &["serve", "--new-master-key"]);
        server.log_line("is the right key, nothing is dropped");
        assert_eq!(log_in(&server).status, 200);
        server.kill();
        let server = start(copy.path(), &["serve"]);
        assert_eq!(log_in(&server).status, 200);
    }
}

#[test]
fn a_lost_master_key_outside_the_folder_is_never_created_but_accepted_if_the_operator_provides_one() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let (store, place) = (dir.path().join("store"), dir.path().join("key"));
    put_key(&place, &"ab".repeat(32));
    let path = place.display().to_string();
    let env = [bootstrap().as_slice(), &[("PROMLET_MASTER_KEY_FILE", path.as_str())]].concat();
    let with = |args| Server::start(&Start { args, dir: &store, env: &env });
    let server = with(&["serve"]);
    let sealed = with_sealed_secrets(&server);
    server.kill();
    std::fs::remove_file(&place).expect("removed");
    let output = command(&Start { args: &["serve", "--new-master-key"], dir: &store, env: &env }).output();
    let output = output.expect("the binary starts");
    assert!(
        output.status.code() == Some(1) && output_text(&output).contains(&path),
        "{}",
        output_text(&output)
    );
    assert!(!place.exists() && !store.join("master.key").exists());
    put_key(&place, &"cd".repeat(32));
    let server = with(&["serve", "--new-master-key"]);
    check_after_new_key(&server, &sealed);
}

fn put_key(place: &Path, text: &str) {
    std::fs::write(place, text).expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place, private).expect("private");
}

fn restore_one(dir: &Path, backup: &Path, file: &str) -> Output {
    promlet(&["restore", "--file", file], &[dir, backup])
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

/// Returns the files of a folder that a refusal must not change. `LOCK` may change, because it
/// names the last process.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = files_below(dir).into_iter().filter(|path| !path.ends_with("LOCK"));
    files.map(|path| (path.clone(), std::fs::read(path).expect("read"))).collect()
}

#[test]
fn one_segment_is_restored_from_a_backup_and_foreign_files_are_refused() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let out = crate::harness::scratch::temporary_folder().expect("a folder");
    let backup = out.path().join("backup");
    let base = stopped(dir.path());
    succeeded(&promlet(&["backup", "--data-dir"], &[dir.path(), &backup]));
    let segments = files_below(&backup.join("segments"));
    let victim = segments.first().expect("sealed").strip_prefix(&backup).expect("inside").to_owned();
    let name = victim.display().to_string();
    let place = dir.path().join(&victim);

    let whole = succeeded(&restore_one(dir.path(), &backup, &name));
    assert!(whole.contains("nothing to do"), "{whole}");
    for damaged in [false, true] {
        if damaged {
            // A new file: the old one is a hard link to the backup's.
            let bytes = std::fs::read(&place).expect("read");
            std::fs::remove_file(&place).expect("removed");
            std::fs::write(&place, bytes).expect("written");
            flip(&place, 70);
        } else {
            std::fs::remove_file(&place).expect("removed");
        }
        assert_eq!(check(true, dir.path()).1, 2, "its samples are lost");
        let done = succeeded(&restore_one(dir.path(), &backup, &name));
        assert!(done.contains(&format!("restored {name}")), "{done}");
        assert_eq!(done.contains("is kept in"), damaged, "{done}");
        let (report, code) = check(true, dir.path());
        assert_eq!(code, 0, "{report:#}");
    }
    let server = start(dir.path(), &["serve"]);
    assert_eq!(samples(&server, &server.sign_in(), base), expected(0..250));
    let busy = restore_one(dir.path(), &backup, &name);
    assert!(!busy.status.success() && output_text(&busy).contains("in use"), "{}", output_text(&busy));
    server.kill();

    // Files that do not belong there, and the error for each.
    let other = crate::harness::scratch::temporary_folder().expect("a folder");
    stopped(other.path());
    let damaged = out.path().join("damaged");
    copy_tree(&backup, &damaged);
    flip(&damaged.join(&victim), 70);
    let gone = crate::harness::scratch::temporary_folder().expect("a folder");
    copy_tree(dir.path(), gone.path());
    std::fs::remove_file(gone.path().join(&victim)).expect("removed");
    let nowhere = out.path().join("nowhere");
    let log = files_below(&backup.join("wal"));
    let log = log.first().expect("a log").strip_prefix(&backup).expect("inside").display().to_string();
    let refusals: [(&Path, &Path, &str, &str); 7] = [
        (other.path(), &backup, &name, "is of store"),
        (gone.path(), &damaged, &name, "SHA-256 differs"),
        (gone.path(), dir.path(), &name, "MANIFEST.json"),
        (gone.path(), &backup, "segments/1/99-L0.seg", "has no segments/1/99-L0.seg"),
        (gone.path(), &backup, &log, "only segments"),
        (gone.path(), &backup, "segments/../../x.seg", "only segments"),
        (&nowhere, &backup, &name, "holds no promlet store"),
    ];
    for (dir, from, file, words) in refusals {
        let before = if dir.exists() { content(dir) } else { Vec::new() };
        let refused = restore_one(dir, from, file);
        assert!(
            refused.status.code() == Some(1) && output_text(&refused).contains(words),
            "{words}: {}",
            output_text(&refused)
        );
        assert_eq!(dir.exists(), dir != nowhere);
        assert!(!dir.exists() || content(dir) == before, "{words}: nothing is changed");
    }

    // A segment that was merged since is not restored beside the merged one.
    let server = start(dir.path(), &["serve"]);
    let (_, secret) = server.api_key(&server.sign_in());
    assert!(write(&server, &secret, base, 20) && write(&server, &secret, base, 300));
    server.kill();
    seal(dir.path());
    let place = dir.path().join(&victim);
    if !place.exists() {
        let refused = restore_one(dir.path(), &backup, &name);
        assert!(output_text(&refused).contains("does not list"), "{}", output_text(&refused));
        assert!(!place.exists());
    } else {
        panic!("the test wants a segment that was merged: {:?}", files_below(&dir.path().join("segments")));
    }
}

/// Returns the exit code and the output of a deep check.
fn checked(dir: &Path) -> (Option<i32>, String) {
    let output = promlet(&["check", "--deep"], &[dir]);
    (output.status.code(), output_text(&output))
}

/// A function that damages a folder.
type DamageFn<'d> = &'d dyn Fn(&Path);

#[test]
fn a_check_exits_with_1_if_a_start_repairs_the_folder_and_with_2_if_it_refuses_it() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = stopped(dir.path());
    let copy = |damage: &dyn Fn(&Path)| {
        let copy = crate::harness::scratch::temporary_folder().expect("a folder");
        copy_tree(dir.path(), copy.path());
        damage(copy.path());
        copy
    };
    assert_eq!(checked(dir.path()).0, Some(0));
    let repairable: [(&str, DamageFn<'_>); 4] = [
        ("INITIALISED", &|dir| flip(&dir.join("INITIALISED"), 30)),
        ("STORE", &|dir| flip(&dir.join("STORE"), 30)),
        ("STORE", &|dir| std::fs::write(dir.join("STORE"), b"").expect("written")),
        ("series", &|dir| {
            files_below(&dir.join("series"))
                .iter()
                .for_each(|path| std::fs::remove_file(path).expect("removed"));
        }),
    ];
    for (name, damage) in repairable {
        let copy = copy(damage);
        let (code, text) = checked(copy.path());
        assert!(code == Some(1) && text.contains(name), "{name}: {text}");
        let server = start(copy.path(), &["serve"]);
        let cookie = server.sign_in();
        assert_eq!(samples(&server, &cookie, base), expected(0..250), "{name}");
        assert!(server.terminate().success());
        let (code, text) = checked(copy.path());
        assert_eq!(code, Some(0), "{name}: {text}");
    }
    let refusals: [(&str, DamageFn<'_>); 3] = [
        ("master.key", &|dir| std::fs::write(dir.join("master.key"), "half a ke").expect("written")),
        ("master.key", &|dir| std::fs::remove_file(dir.join("master.key")).expect("removed")),
        ("STORE", &|dir| std::fs::remove_file(dir.join("STORE")).expect("removed")),
    ];
    for (name, damage) in refusals {
        let copy = copy(damage);
        let (code, text) = checked(copy.path());
        assert!(
            code == Some(2) && (text.contains(name) || text.contains("no promlet store")),
            "{name}: {text}"
        );
        refused(copy.path(), &["serve"]);
    }
    // An identity is never taken over from another store.
    let other = crate::harness::scratch::temporary_folder().expect("a folder");
    start(other.path(), &["serve"]).kill();
    let mixed = copy(&|dir| {
        flip(&dir.join("STORE"), 30);
        std::fs::copy(other.path().join("INITIALISED"), dir.join("INITIALISED")).expect("copied");
    });
    assert_eq!(checked(mixed.path()).0, Some(2));
    assert!(refused(mixed.path(), &["serve"]).contains("STORE is damaged"));
}

#[test]
fn queries_over_a_damaged_log_get_a_warning_and_a_missing_log_can_be_accepted_as_lost() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = start(dir.path(), &["serve"]);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let base = Timestamp::from_s(promlet::clock::Clock::System.now().as_s() - 60);
    assert!((0..3).all(|step| write(&server, &secret, base, step)));
    server.kill();
    std::fs::remove_dir_all(dir.path().join("wal")).expect("removed");
    assert_eq!(checked(dir.path()).0, Some(2));

    // It never becomes ready.
    let server = Server::start_early(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    server.log_line("listening on ");
    let cookie = server.sign_in();
    let now = promlet::clock::Clock::System.now().as_s();
    let asked = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query=upkeep&time={now}");
    let native = format!("/api/v1/orgs/{ORG}/query/expr-instant?expr=upkeep&time={now}");
    for path in [asked, native] {
        let answer = server.get(&path, &[("Cookie", &cookie)]);
        assert!(answer.status == 200 && answer.body.contains("the log is damaged in wal"), "{}", answer.body);
        assert!(!answer.body.contains(&dir.path().display().to_string()), "{}", answer.body);
    }
    assert!(!write(&server, &secret, base, 4), "read-only");
    server.kill();

    let server = start(dir.path(), &["serve", "--accept-loss"]);
    server.log_line("accepted as lost");
    assert!(write(&server, &secret, base, 5));
    server.kill();
    let server = start(dir.path(), &["serve"]);
    assert_eq!(samples(&server, &server.sign_in(), base), expected(5..6));
}

/// Writes one sample of the series `name`, `step` seconds after `base`.
fn write_one(server: &Server, secret: &str, name: &str, base: Timestamp, step: i64) {
    let labels = Labels::from_pairs([("__name__", name), ("kind", "ephemeral")]);
    let sample = Sample { at: base.plus_ms(step * 1_000), value: step as f64 };
    let answer = server.write(secret, &[(labels, vec![sample])]);
    assert!(matches!(answer.status, 200 | 204), "{}", answer.body);
}

/// Returns whether a file below `dir` contains the text.
fn holds(dir: &Path, text: &str) -> bool {
    let has = |path: &PathBuf| {
        std::fs::read(path).expect("read").windows(text.len()).any(|window| window == text.as_bytes())
    };
    files_below(dir).iter().any(has)
}

/// The deletion removes the last row of the series from the segments. Its definition left the log
/// long before.
#[test]
fn a_damaged_registry_loses_no_sample_of_a_series_that_was_deleted_and_written_again() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let base = Timestamp::from_s(promlet::clock::Clock::System.now().as_s() - 3_000);
    let server = start(dir.path(), &["serve"]);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    for step in 0..20 {
        write_one(&server, &secret, "deleted_metric", base, step);
        write_one(&server, &secret, "other_metric", base, step);
    }
    seal(dir.path());
    let delete =
        format!("/api/v1/orgs/{ORG}/prometheus/api/v1/admin/tsdb/delete_series?match[]=deleted_metric");
    let deleted = server.post_json(&delete, &[("Cookie", &cookie)], &json!({}));
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    (0..2).for_each(|_| drop(seal(dir.path())));
    write_one(&server, &secret, "deleted_metric", base, 2_000);
    let found = server.ask(&cookie, "deleted_metric[1h]", &(base.as_s() + 2_900).to_string());
    assert_eq!(found["result"][0]["values"].as_array().map(Vec::len), Some(1), "{found}");
    server.kill();
    for folder in ["wal", "segments", "head"] {
        assert!(!holds(&dir.path().join(folder), "deleted_metric"), "{folder} has the name");
    }
    let registry = Path::new("series/1.reg");
    let damages: [(&str, DamageFn<'_>); 4] = [
        ("deleted", &|path| std::fs::remove_file(path).expect("removed")),
        ("emptied", &|path| std::fs::write(path, b"").expect("written")),
        ("flipped in its header", &|path| flip(path, 20)),
        ("flipped in a record", &|path| flip(path, 110)),
    ];
    for (how, damage) in damages {
        let copy = crate::harness::scratch::temporary_folder().expect("a folder");
        copy_tree(dir.path(), copy.path());
        damage(&copy.path().join(registry));
        let (code, text) = checked(copy.path());
        assert!(code == Some(1) && text.contains("1.reg"), "{how}: {text}");
        let out = crate::harness::scratch::temporary_folder().expect("a folder");
        let saved = out.path().join("saved");
        let repaired = promlet(&["repair", "--to"], &[&saved, copy.path()]);
        assert!(repaired.status.success(), "{how}: {}", output_text(&repaired));
        for dir in [copy.path(), &saved] {
            for _ in 0..2 {
                let server = start(dir, &["serve"]);
                let cookie = server.sign_in();
                let again = server.ask(&cookie, "deleted_metric[1h]", &(base.as_s() + 2_900).to_string());
                assert_eq!(again, found, "{how}: {}", server.log());
                server.kill();
            }
            assert_eq!(checked(dir).0, Some(0), "{how}: {}", checked(dir).1);
        }
    }
}
