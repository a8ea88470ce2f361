//! Every file of a data folder is truncated, changed by one bit, and deleted. The outcome of each
//! is a row of the table "When a file is damaged" in docs/storage.md, which this test compares.
//!
//! Whatever the outcome, no sample has another value than the one that was sent, no loss is
//! unreported, and a second start reports the same as the first.

#[path = "folder/mod.rs"]
mod folder;
#[path = "../src/kv/scratch.rs"]
mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use folder::{AccountRow, FolderContents, NOW, copy_tree, make, try_open};
use promlet::kv::{MasterKeySource, Record as _};
use promlet::tsdb::Writes;
use promlet::upkeep::{self, CheckOptions, Finding, Weight};

/// The messages of a start, and the data that it found.
#[derive(Debug, PartialEq)]
struct Found {
    /// The outcome, as a word of the table.
    word: &'static str,
    /// All messages.
    said: Vec<String>,
    held: FolderContents,
}

/// Makes a folder with every kind of file, in the state after a kill. Returns its contents.
fn killed(dir: &Path) -> FolderContents {
    let live = crate::scratch::temporary_folder().expect("made");
    let (opened, held) = make(live.path());
    copy_tree(live.path(), dir);
    drop(opened);
    held
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("listed") {
        let path = entry.expect("entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Bits of the accounts' database that are flipped, one after the other.
const PLACES: usize = 120;
const DAMAGES: [&str; 3] = ["cut short", "one bit flipped", "deleted"];

fn damage(path: &Path, how: &str) {
    let content = fs::read(path).expect("read");
    match how {
        "deleted" => return fs::remove_file(path).expect("removed"),
        "cut short" => return fs::write(path, &content[..content.len() / 2]).expect("written"),
        _ => {}
    }
    // Within what was written, not within the zeros behind it.
    let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut content = content;
    // Log and journal begin with 4,128 bytes: a header, the secret of the records twice, and zeros
    // between the copies.
    let is_keyed = path.extension().is_some_and(|e| e == "wal" || e == "jnl");
    let place = match written.checked_sub(4_128).filter(|_| is_keyed) {
        Some(0) => 25,
        Some(records) => 4_128 + records * 2 / 5,
        None => written * 2 / 5,
    };
    if let Some(byte) = content.get_mut(place) {
        *byte ^= 4;
    }
    fs::write(path, content).expect("written");
}

/// Starts on the folder, reads it, and describes the outcome by a word of the table.
fn start(dir: &Path, whole: &FolderContents) -> Found {
    let opened = try_open(dir, false).and_then(|opened| opened.bind_key().map(|()| opened));
    let opened = match opened {
        Ok(opened) => opened,
        Err(why) => {
            return Found { word: "refuses to start", said: vec![why], held: FolderContents::default() };
        }
    };
    let (held, warnings) = opened.read();
    let read_only = matches!(opened.tsdb.health().writes, Writes::ReadOnly(_));
    let word = match (read_only, warnings.is_empty(), opened.said.is_empty()) {
        (true, ..) => "read-only",
        (_, false, _) => "warning",
        _ if held != *whole => "LOST IN SILENCE",
        _ if opened.rebuilt.is_some() => "rebuilt",
        (_, _, false) => "nothing lost, told",
        _ => "nothing lost",
    };
    let said = opened.said.iter().chain(&opened.rebuilt).cloned().chain(warnings).collect();
    Found { word, said, held }
}

/// Returns the name of a file in the first column of the table.
fn kind(dir: &Path, path: &Path) -> String {
    let below = path.strip_prefix(dir).expect("below").to_string_lossy().into_owned();
    let among = |folder: &str| {
        let all: Vec<PathBuf> = files(&dir.join(folder));
        (all.iter().position(|other| other == path).expect("listed"), all.len())
    };
    match below.split('/').next().unwrap_or_default() {
        "wal" => match among("wal") {
            (place, all) if place + 2 == all => "`wal/*.wal`, the one being written".to_owned(),
            (place, all) if place + 1 == all => "`wal/*.wal`, the spare one".to_owned(),
            (0, _) => "`wal/*.wal`, the oldest".to_owned(),
            _ => "`wal/*.wal`, another".to_owned(),
        },
        "journal" => match among("journal") {
            (place, all) if place + 1 == all => "`journal/*.jnl`, the spare one".to_owned(),
            _ => "`journal/*.jnl`, the one being written".to_owned(),
        },
        "exports" => match among("exports") {
            (1, _) => "`exports/*.plx`, the newer".to_owned(),
            _ => "`exports/*.plx`, the older".to_owned(),
        },
        "head" => format!("`head/<n>/{}`", below.splitn(3, '/').nth(2).unwrap_or_default()),
        "control" if below.contains("/snap.") => "`control/snap.*`".to_owned(),
        "series" if below.ends_with(".copy") => "`series/<org>.copy`".to_owned(),
        "series" => "`series/<org>.reg`".to_owned(),
        "segments" => "`segments/<org>/*.seg`".to_owned(),
        _ => format!("`{below}`"),
    }
}

/// Returns the table of docs/storage.md: the outcome by file and damage.
fn table() -> BTreeMap<(String, &'static str), String> {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/storage.md")).expect("read");
    let (_, section) = text.split_once("## When a file is damaged").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut table = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [file, words @ ..] = cells.as_slice() else { continue };
        assert_eq!(words.len(), DAMAGES.len(), "{line}");
        for (how, word) in DAMAGES.iter().zip(words) {
            table.insert(((*file).to_owned(), *how), (*word).to_owned());
        }
    }
    table
}

#[test]
fn every_file_cut_short_changed_or_deleted_has_the_outcome_of_the_table() {
    let origin = crate::scratch::temporary_folder().expect("made");
    let whole = killed(origin.path());
    let table = table();
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    for file in files(origin.path()) {
        let kind = kind(origin.path(), &file);
        for how in DAMAGES {
            let dir = crate::scratch::temporary_folder().expect("made");
            copy_tree(origin.path(), dir.path());
            damage(&dir.path().join(file.strip_prefix(origin.path()).expect("below")), how);
            let first = start(dir.path(), &whole);
            let again = start(dir.path(), &whole);
            let name = file.file_name().expect("named").to_string_lossy().into_owned();
            let told = first.said.iter().any(|said| {
                said.contains(&name)
                    || kind.split('/').next().is_some_and(|k| said.contains(k.trim_matches('`')))
            });
            let expected = table.get(&(kind.clone(), how)).map_or("(not in the table)", String::as_str);
            let complaint = [
                (!expected.split(" or ").any(|word| word == first.word))
                    .then(|| format!("is {:?}, the table says {expected:?}", first.word)),
                whole.missing(&first.held).err().map(|what| format!("invents: {what}")),
                (matches!(first.word, "read-only" | "warning" | "refuses to start") && !told)
                    .then(|| "names no file".to_owned()),
                (matches!(first.word, "read-only" | "warning" | "refuses to start")
                    && again.word != first.word)
                    .then(|| format!("is {:?} at the second start", again.word)),
                (again.word == "LOST IN SILENCE").then(|| "loses in silence at the second start".to_owned()),
            ];
            wrong.extend(
                complaint.into_iter().flatten().map(|what| format!("{kind} {how}: {what}: {:?}", first.said)),
            );
            tried.insert((kind.clone(), how));
        }
    }
    let untried: Vec<_> = table.keys().filter(|row| !tried.contains(row)).collect();
    assert!(wrong.is_empty() && untried.is_empty(), "{}\nrows of no file: {untried:?}", wrong.join("\n"));
}

/// Returns the verdict of a deep check, and its findings. Asserts that the check does not change
/// the folder.
fn check(dir: &Path) -> (Weight, Vec<Finding>) {
    let scratch = crate::scratch::temporary_folder().expect("made");
    let options = CheckOptions {
        deep: true,
        users_table: AccountRow::TABLE,
        master_key: MasterKeySource::Folder,
        key_mark: |key, _| key.0,
        scratch: scratch.path().join("scratch"),
    };
    let content = || {
        files(dir).into_iter().map(|path| (path.clone(), fs::read(path).expect("read"))).collect::<Vec<_>>()
    };
    let before = content();
    let checked = upkeep::check(dir, &options, &mut |_| ());
    assert!(before == content(), "a check changed {}", dir.display());
    match checked {
        Ok(report) => (report.weight(), report.findings),
        // The command line has the same exit code for both.
        Err(e) => (Weight::Loss, vec![Finding::new(Weight::Loss, "", e.to_string())]),
    }
}

/// Returns whether the verdict of a check agrees with the outcome of a start.
fn agrees(word: &str, verdict: Weight) -> bool {
    match word {
        "refuses to start" | "read-only" | "warning" => verdict == Weight::Loss,
        "rebuilt" | "nothing lost, told" => verdict == Weight::Repairable,
        "nothing lost" => verdict <= Weight::Repairable,
        _ => false,
    }
}

/// Returns every damage of a file with this content, by name; `None` deletes the file.
fn damages(content: &[u8], other: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = vec![
        ("deleted".to_owned(), None),
        ("emptied".to_owned(), Some(Vec::new())),
        ("all zeros".to_owned(), Some(vec![0; content.len()])),
        ("another file".to_owned(), Some(other.to_vec())),
    ];
    // Within what was written, not within the zeros behind it.
    let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for part in [1, 5, 9] {
        let at = written * part / 10;
        all.push((format!("cut to {at}"), Some(content[..at].to_vec())));
        let mut zeroed = content.to_vec();
        zeroed[at..].fill(0);
        all.push((format!("zeros from {at}"), Some(zeroed)));
    }
    for place in [0, 9, 20, 40, 60, 4_100, written / 3, written / 2, written.saturating_sub(2)] {
        let mut flipped = content.to_vec();
        if let Some(byte) = flipped.get_mut(place) {
            *byte ^= 1 << (place % 8);
            all.push((format!("bit flipped at {place}"), Some(flipped)));
        }
    }
    all
}

/// Damages each file of `origin` in every way, on all processors. Returns the number of attempts,
/// and a complaint for each verdict that differs and each wrong value.
fn disagreements(
    origin: &Path,
    whole: &FolderContents,
    of_interest: &(dyn Fn(&str) -> bool + Sync),
) -> (usize, Vec<String>) {
    let next = AtomicUsize::new(0);
    let sum = Mutex::new((0, Vec::new()));
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            threads.spawn(|| {
                let all = files(origin);
                while let Some(file) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (tried, wrong) = disagreements_of(file, origin, whole, of_interest);
                    let mut sum = sum.lock().expect("unpoisoned");
                    sum.0 += tried;
                    sum.1.extend(wrong);
                }
            });
        }
    });
    sum.into_inner().expect("unpoisoned")
}

/// Like `disagreements`, for one file.
fn disagreements_of(
    file: &Path,
    origin: &Path,
    whole: &FolderContents,
    of_interest: &(dyn Fn(&str) -> bool + Sync),
) -> (usize, Vec<String>) {
    let (mut tried, mut wrong) = (0, Vec::new());
    let kind = kind(origin, file);
    if of_interest(&kind) {
        let all = files(origin);
        let below = file.strip_prefix(origin).expect("below");
        let number = all.iter().position(|one| one == file).expect("listed");
        let other = fs::read(&all[(number + 7) % all.len()]).expect("read");
        for (how, content) in damages(&fs::read(file).expect("read"), &other) {
            let dir = crate::scratch::temporary_folder().expect("made");
            copy_tree(origin, dir.path());
            let path = dir.path().join(below);
            match content {
                Some(content) => fs::write(&path, content).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let (verdict, findings) = check(dir.path());
            let found = start(dir.path(), whole);
            tried += 1;
            // A log that was rolled back to before its newest mark looks like a shorter log. At the
            // end of a record nothing shows the loss; within a record the report claims nothing
            // unknown. A changed bit of the last record looks like a record that was cut while it
            // was written, and is reported as that.
            let is_told = |text: &str| {
                text.contains("may have been answered")
                    && text.contains("known to have been durable up to record")
            };
            let start_tells = found.said.iter().any(|said| is_told(said));
            let is_rolled_back = kind.contains("the one being written")
                && (how.starts_with("zeros from") || how.starts_with("bit flipped") && start_tells);
            if is_rolled_back && found.word == "LOST IN SILENCE" {
                let check_tells = findings.iter().any(|finding| is_told(&finding.what));
                let is_known = verdict == Weight::Repairable;
                if start_tells != check_tells || is_known == found.said.is_empty() || verdict == Weight::Loss
                {
                    wrong.push(format!("{kind} {how}: start: {:?}\n    check: {findings:?}", found.said));
                }
                continue;
            }
            if !agrees(found.word, verdict) {
                wrong.push(format!(
                    "{kind} ({}) {how}: a start is {:?}, the check says {verdict:?}\n    start: {:?}\n    check: {findings:?}",
                    below.display(),
                    found.word,
                    found.said
                ));
            }
            if let Err(what) = whole.missing(&found.held) {
                wrong.push(format!("{kind} {how}: invents: {what}"));
            }
        }
    }
    (tried, wrong)
}

#[test]
fn a_check_and_a_start_agree_over_every_file_damaged_in_every_way() {
    let origin = crate::scratch::temporary_folder().expect("made");
    let whole = killed(origin.path());
    assert_eq!(check(origin.path()), (Weight::Note, Vec::new()));
    let (tried, wrong) = disagreements(origin.path(), &whole, &|_| true);
    println!("{tried} damaged folders");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 300, "{tried}");
}

/// Layouts of the whole folder that crashes and operators leave: the names of the changed files,
/// and the result of a start.
#[test]
fn a_check_and_a_start_agree_over_missing_replaced_and_half_mended_directories() {
    let sealed = crate::scratch::temporary_folder().expect("made");
    let whole = killed(sealed.path());
    let fresh = crate::scratch::temporary_folder().expect("made");
    let written = {
        let live = crate::scratch::temporary_folder().expect("made");
        let opened = try_open(live.path(), false).expect("opens");
        opened.bind_key().expect("bound");
        folder::write(&opened.tsdb, 3_000, 3);
        opened.tsdb.note_log_mark();
        let held = opened.held();
        copy_tree(live.path(), fresh.path());
        drop(opened);
        held
    };
    let clean = crate::scratch::temporary_folder().expect("made");
    {
        let live = crate::scratch::temporary_folder().expect("made");
        let (opened, _) = make(live.path());
        opened.tsdb.checkpoint().expect("made");
        opened.close();
        copy_tree(live.path(), clean.path());
    }
    let gone = |names: &'static [&'static str]| {
        move |dir: &Path| names.iter().for_each(|name| fs::remove_dir_all(dir.join(name)).expect("removed"))
    };
    let replaced = |name: &'static str| {
        move |dir: &Path| {
            fs::remove_dir_all(dir.join(name)).expect("removed");
            fs::write(dir.join(name), b"a file").expect("written");
        }
    };
    type Change<'c> = &'c dyn Fn(&Path);
    let cases: [(&str, &Path, &FolderContents, &str, Change<'_>); 9] = [
        ("half mended", sealed.path(), &whole, "nothing lost", &|dir| {
            fs::rename(dir.join("wal"), dir.join("wal.mended")).expect("renamed");
        }),
        ("not mended yet", sealed.path(), &whole, "nothing lost", &|dir| {
            fs::create_dir(dir.join("wal.mended")).expect("made");
        }),
        ("without log", fresh.path(), &written, "read-only", &gone(&["wal"])),
        ("without samples", fresh.path(), &written, "read-only", &gone(&["wal", "series", "head"])),
        ("quarantine is a file", clean.path(), &whole, "refuses to start", &replaced("quarantine")),
        ("wal is a file", clean.path(), &whole, "refuses to start", &replaced("wal")),
        ("head is a file", clean.path(), &whole, "refuses to start", &replaced("head")),
        ("series is a file", clean.path(), &whole, "refuses to start", &replaced("series")),
        ("segments is a file", clean.path(), &whole, "refuses to start", &replaced("segments")),
    ];
    for (name, origin, whole, word, change) in cases {
        let dir = crate::scratch::temporary_folder().expect("made");
        copy_tree(origin, dir.path());
        change(dir.path());
        let (verdict, findings) = check(dir.path());
        let found = start(dir.path(), whole);
        assert_eq!(found.word, word, "{name}: {:?}", found.said);
        assert!(agrees(word, verdict), "{name}: {verdict:?} {findings:?}");
    }

    // Repair saves all of a log that was mended but not renamed yet.
    let dir = crate::scratch::temporary_folder().expect("made");
    copy_tree(sealed.path(), dir.path());
    fs::rename(dir.path().join("wal"), dir.path().join("wal.mended")).expect("renamed");
    let out = crate::scratch::temporary_folder().expect("made");
    let saved = out.path().join("saved");
    let scratch = out.path().join("scratch");
    let mut rng = promlet::entropy::Entropy::seeded(9);
    upkeep::repair(dir.path(), &saved, &scratch, &mut rng, &mut |_| ()).expect("repaired");
    assert_eq!(start(&saved, &whole).held, whole);
}

/// The records are read with the other copy.
#[test]
fn a_check_and_a_start_report_each_damaged_copy_of_a_secret() {
    let origin = crate::scratch::temporary_folder().expect("made");
    let whole = killed(origin.path());
    for file in files(&origin.path().join("wal")) {
        for place in [70, 4_100] {
            let dir = crate::scratch::temporary_folder().expect("made");
            copy_tree(origin.path(), dir.path());
            let path = dir.path().join(file.strip_prefix(origin.path()).expect("below"));
            let mut bytes = fs::read(&path).expect("read");
            bytes[place] ^= 1;
            fs::write(&path, bytes).expect("written");
            let (verdict, findings) = check(dir.path());
            let name = file.file_name().expect("named");
            assert!(
                verdict == Weight::Repairable && findings[0].file.ends_with(name),
                "{place}: {findings:?}"
            );
            assert_eq!(start(dir.path(), &whole).word, "nothing lost, told", "{place}");
        }
    }
}

/// After a clean stop, segments and the last checkpoint hold everything; the log holds no other
/// data.
#[test]
fn damage_of_a_log_that_ended_in_order_loses_nothing_and_leaves_the_store_open_to_writes() {
    let origin = crate::scratch::temporary_folder().expect("made");
    let whole = {
        let live = crate::scratch::temporary_folder().expect("made");
        let (opened, held) = make(live.path());
        opened.tsdb.seal(NOW).expect("sealed");
        opened.tsdb.checkpoint().expect("made");
        opened.close();
        copy_tree(live.path(), origin.path());
        held
    };
    assert_eq!(check(origin.path()), (Weight::Note, Vec::new()));
    let (tried, mut wrong) = disagreements(origin.path(), &whole, &|kind| kind.contains("wal/"));
    let no_log = crate::scratch::temporary_folder().expect("made");
    copy_tree(origin.path(), no_log.path());
    fs::remove_dir_all(no_log.path().join("wal")).expect("removed");
    assert_eq!(check(no_log.path()).0, Weight::Repairable);
    for word in ["nothing lost, told", "nothing lost"] {
        let found = start(no_log.path(), &whole);
        assert_eq!(found.word, word, "{:?}", found.said);
    }
    for file in files(&origin.path().join("wal")) {
        for (how, content) in damages(&fs::read(&file).expect("read"), b"other") {
            let dir = crate::scratch::temporary_folder().expect("made");
            copy_tree(origin.path(), dir.path());
            let path = dir.path().join(file.strip_prefix(origin.path()).expect("below"));
            match content {
                Some(content) => fs::write(&path, content).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let found = start(dir.path(), &whole);
            if !found.word.starts_with("nothing lost") {
                wrong.push(format!("{} {how}: {:?}: {:?}", file.display(), found.word, found.said));
                continue;
            }
            // Writes go on with higher numbers, and a kill after them loses none.
            let opened = try_open(dir.path(), false).expect("opens");
            folder::write(&opened.tsdb, 3_000, 3);
            let held = opened.held();
            drop(opened);
            let again = try_open(dir.path(), false).expect("opens");
            if again.held() != held {
                wrong.push(format!("{} {how}: samples are gone after a kill", file.display()));
            }
        }
    }
    assert!(wrong.is_empty() && tried > 15, "{tried}\n{}", wrong.join("\n"));
}

/// Whether the accounts' database was rebuilt, the content of the folder, and every row of that
/// database as in an export.
fn all_rows(dir: &Path) -> (bool, FolderContents, Vec<u8>) {
    let opened = try_open(dir, false).expect("opens");
    let (held, warnings) = opened.read();
    assert_eq!(warnings, Vec::<String>::new());
    let copies = crate::scratch::temporary_folder().expect("made");
    opened.control.copy_to(copies.path()).expect("copied");
    let newest = files(&copies.path().join("exports")).pop().expect("an export");
    (opened.rebuilt.is_some(), held, fs::read(newest).expect("read"))
}

/// sled rewrites a page wherever it changes and leaves the older copies in its file, where nothing
/// reads them again. A flipped bit there goes unnoticed and has no effect. The test checks this row
/// by row.
#[test]
fn a_flipped_bit_of_the_accounts_database_is_noticed_or_no_row_has_it() {
    let origin = crate::scratch::temporary_folder().expect("made");
    killed(origin.path());
    let copy = || {
        let dir = crate::scratch::temporary_folder().expect("made");
        copy_tree(origin.path(), dir.path());
        dir
    };
    let whole = all_rows(copy().path());
    assert!(!whole.0, "an undamaged database is taken as it is");
    let database = Path::new("control/db");
    let content = fs::read(origin.path().join(database)).expect("read");
    let written: Vec<usize> = (0..content.len()).filter(|at| content.get(*at) != Some(&0)).collect();
    let mut noticed = 0;
    for place in 0..PLACES {
        let at = *written.get(place * written.len() / PLACES).expect("within");
        let dir = copy();
        let mut bad = content.clone();
        if let Some(byte) = bad.get_mut(at) {
            *byte ^= 1 << (place % 8);
        }
        fs::write(dir.path().join(database), bad).expect("written");
        let (rebuilt, held, rows) = all_rows(dir.path());
        assert!(held == whole.1 && rows == whole.2, "byte {at}: rebuilt: {rebuilt}");
        noticed += usize::from(rebuilt);
    }
    println!("{noticed} of {PLACES} flipped bits were noticed, the others are in pages that were left");
    assert!((1..PLACES).contains(&noticed), "{noticed}");
}
