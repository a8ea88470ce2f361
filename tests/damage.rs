//! Every file of a data folder cut short, with a flipped bit, and deleted: what becomes of it stands as a table in
//! ARCHITECTURE.md ("When a file is damaged"), and this test does to each file what the table says and looks.
//!
//! Whatever the word in the table: no sample is ever another than the one that was sent, nothing is missing that no
//! sentence names, and a second start says the same as the first.

#[path = "folder/start.rs"]
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{
    Control, ControlOptions, DataFolder, DatabaseError, KeyBinding, MasterKeySource, Record, Start,
};
use promlet::model::{Access, BatchBuilder, Labels, OrgId, Sample, TimeRange, Timestamp};
use promlet::tsdb::{Home, SampleColumns, Tsdb, Writes};
use serde::{Deserialize, Serialize};
use start::{options, words};

const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);
const ORG: OrgId = OrgId(1);

#[derive(Debug, Serialize, Deserialize)]
struct User(String);

impl Record for User {
    const TABLE: u8 = 1;
    const KIND: u8 = 1;
    const VERSION: u8 = 1;
    type Key = u32;
}

type Content = BTreeMap<String, Vec<(i64, u64)>>;

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    samples: Content,
    users: Vec<(u32, String)>,
}

/// What a start said and found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The table's word.
    word: &'static str,
    /// Everything that was said.
    said: Vec<String>,
    held: Held,
}

struct Opened {
    tsdb: Tsdb,
    control: Arc<Control>,
    said: Vec<String>,
    rebuilt: bool,
    folder: DataFolder,
}

/// As the server does it; an error is what it would print before it ends.
fn open(dir: &Path) -> Result<Opened, String> {
    let mut rng = Entropy::seeded(1);
    let folder = DataFolder::open(dir, NOW, &mut rng).map_err(|e| words(&e))?;
    let control_options = ControlOptions { now: NOW, users_table: User::TABLE };
    let (control, report) = Control::open(&folder, &control_options).map_err(|e| words(&e))?;
    let mut said = report.notes;
    let rebuilt = matches!(report.start, Start::Rebuilt { .. });
    if let Start::Rebuilt { why, .. } = report.start {
        said.push(why);
    }
    let key = folder.master_key(&MasterKeySource::Folder, &mut rng).map_err(|e| words(&e))?;
    let bound = control.bind_master_key(key.0).map_err(|e| words(&e))?;
    if bound == KeyBinding::Other {
        return Err("master.key is not the key that this store was bound to".to_owned());
    }
    let control = Arc::new(control);
    let home = Home { dir, store: folder.store_id(), control: Arc::clone(&control) };
    let (tsdb, report) = Tsdb::open(home, options(), &mut rng, NOW).map_err(|e| words(&e))?;
    said.extend(report.notes);
    said.extend(report.read_only);
    Ok(Opened { tsdb, control, said, rebuilt, folder })
}

fn read(opened: &Opened) -> (Held, Vec<String>) {
    let snapshot = opened.tsdb.snapshot(&Access::whole(ORG));
    let mut out = SampleColumns::default();
    let mut held = Held::default();
    for series in snapshot.select(&[], TimeRange::ALL) {
        snapshot.read(series.id, TimeRange::ALL, &mut out);
        let samples = out.times.iter().copied().zip(out.values.iter().map(|value| value.to_bits()));
        held.samples.insert(series.labels.to_string(), samples.collect());
    }
    held.users =
        opened.control.scan::<User>(&()).expect("users").into_iter().map(|(id, user)| (id, user.0)).collect();
    (held, snapshot.warnings())
}

fn write(tsdb: &Tsdb, first: i64, count: i64) {
    for at in first..first + count {
        let mut batch = BatchBuilder::default();
        for series in 0..6i64 {
            let labels = Labels::from_pairs([("__name__", "m".to_owned()), ("series", series.to_string())]);
            let bits = ((at * 7 + series) as u64 + 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
            batch.series(
                &labels,
                [Sample { at: NOW.plus_ms(at * 15_000 - 90_000_000), value: f64::from_bits(bits) }],
            );
        }
        let report = tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
        assert_eq!((report.stored, report.refused), (6, 0));
    }
}

fn put_user(control: &Control, id: u32, name: &str) {
    let user = User(name.to_owned());
    let put = control.commit(move |tx| {
        tx.put(&id, &user);
        Ok::<(), DatabaseError>(())
    });
    put.expect("put");
}

/// A folder with every kind of file in it, as a killed server leaves it, and what it holds.
fn make(dir: &Path) -> Held {
    let live = tempfile::tempdir().expect("made");
    for round in 0..2u32 {
        // Each ordered end makes an export of the accounts.
        let opened = open(live.path()).expect("opens");
        put_user(&opened.control, round, &format!("user {round}"));
        opened.folder.mark_initialised(NOW).expect("marked");
        let Opened { tsdb, control, .. } = opened;
        tsdb.close();
        drop(tsdb);
        Arc::into_inner(control).expect("let go of").close().expect("closed");
    }
    let opened = open(live.path()).expect("opens");
    put_user(&opened.control, 7, "user 7");
    write(&opened.tsdb, 0, 150);
    opened.tsdb.seal(NOW).expect("sealed");
    write(&opened.tsdb, 1_000, 150);
    opened.tsdb.checkpoint(NOW).expect("made");
    write(&opened.tsdb, 2_000, 150);
    put_user(&opened.control, 8, "user 8");
    let (held, warnings) = read(&opened);
    assert!(warnings.is_empty() && held.samples.len() == 6 && held.users.len() == 4);
    assert!(held.samples.values().all(|samples| samples.len() == 450));
    copy_tree(live.path(), dir);
    held
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("listed") {
        let path = entry.expect("entry").path();
        let target = to.join(path.file_name().expect("named"));
        if path.is_dir() {
            copy_tree(&path, &target)
        } else {
            fs::copy(&path, &target).map(|_| ()).expect("copied")
        }
    }
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
    if let Some(byte) = content.get_mut(written * 2 / 5) {
        *byte ^= 4;
    }
    fs::write(path, content).expect("written");
}

/// Starts on the folder, looks, and gives it the word that the table uses.
fn start(dir: &Path, whole: &Held) -> Found {
    let opened = match open(dir) {
        Ok(opened) => opened,
        Err(why) => return Found { word: "refuses to start", said: vec![why], held: Held::default() },
    };
    let (held, warnings) = read(&opened);
    let read_only = matches!(opened.tsdb.health().writes, Writes::ReadOnly(_));
    let word = match (read_only, warnings.is_empty(), opened.said.is_empty()) {
        (true, ..) => "read-only",
        (_, false, _) => "warning",
        _ if held != *whole => "LOST IN SILENCE",
        _ if opened.rebuilt => "rebuilt",
        (_, _, false) => "nothing lost, told",
        _ => "nothing lost",
    };
    let said = opened.said.iter().cloned().chain(warnings).collect();
    Found { word, said, held }
}

/// The names in the table's first column, by what they stand for.
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
        "series" => "`series/<org>.reg`".to_owned(),
        "segments" => "`segments/<org>/*.seg`".to_owned(),
        _ => format!("`{below}`"),
    }
}

/// The table of ARCHITECTURE.md: outcome by file and damage.
fn table() -> BTreeMap<(String, &'static str), String> {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).expect("read");
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

/// Whether what is there of the samples was sent, and what is missing is nothing that could be said to be there.
fn invented(found: &Held, whole: &Held) -> Option<String> {
    for (series, samples) in &found.samples {
        let sent: BTreeSet<&(i64, u64)> = whole.samples.get(series).into_iter().flatten().collect();
        if let Some(strange) = samples.iter().find(|sample| !sent.contains(sample)) {
            return Some(format!("{series} holds {strange:?}"));
        }
    }
    found.users.iter().find(|user| !whole.users.contains(user)).map(|user| format!("{user:?}"))
}

#[test]
fn every_file_cut_short_changed_or_deleted_has_the_outcome_of_the_table() {
    let origin = tempfile::tempdir().expect("made");
    let whole = make(origin.path());
    let table = table();
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    for file in files(origin.path()) {
        let kind = kind(origin.path(), &file);
        for how in DAMAGES {
            let dir = tempfile::tempdir().expect("made");
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
                (first.word != expected).then(|| format!("is {:?}, the table says {expected:?}", first.word)),
                invented(&first.held, &whole).map(|what| format!("invents: {what}")),
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
