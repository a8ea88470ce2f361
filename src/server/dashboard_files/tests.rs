//! Tests of the reader of dashboard files.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const NOW: Timestamp = Timestamp::from_s(2_000_000_000);

struct Folder {
    dir: TempDir,
    files: DashboardFiles,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().expect("a folder");
        let files = DashboardFiles::open(dir.path()).expect("it exists");
        Folder { dir, files }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("created");
        fs::write(path, text).expect("written");
    }

    fn dashboard(&self, path: &str, uid: &str, title: &str) {
        self.write(path, &format!(r#"{{"uid":"{uid}","title":"{title}"}}"#));
    }

    /// Makes two passes, after which nothing is read again, and returns the reports.
    fn settle(&mut self) -> Vec<String> {
        let reports: Vec<Report> = (0..2).flat_map(|_| self.files.pass(NOW).reports).collect();
        let text = |report: Report| format!("{} {}", report.path.display(), report.problem);
        reports.into_iter().map(text).collect()
    }

    fn shown(&self) -> Vec<(String, String)> {
        let all = self.files.dashboards();
        all.into_iter().map(|(uid, file)| (uid, file.dashboard.title.clone())).collect()
    }

    #[track_caller]
    fn assert_shown(&self, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(uid, title)| ((*uid).into(), (*title).into())).collect();
        assert_eq!(self.shown(), wanted);
    }
}

#[test]
fn files_appear_change_and_disappear_with_the_folder() {
    let mut folder = Folder::new();
    folder.dashboard("a.json", "a", "A");
    folder.write("Infra/Disks/b.JSON", r#"{"title":"B"}"#);
    folder.write("readme.txt", "not a dashboard");
    folder.dashboard(".hidden.json", "h", "H");
    folder.dashboard("..data/c.json", "c", "C");
    assert_eq!(folder.settle(), Vec::<String>::new());
    let uid = provisioned_uid("Infra/Disks/b.JSON");
    assert_eq!(uid.len(), 37);
    folder.assert_shown(&[("a", "A"), (&uid, "B")]);
    assert_eq!(folder.files.dashboards()[&uid].dashboard.folder, "Infra/Disks");
    assert!(!folder.files.pass(NOW).changed, "nothing changed");

    folder.dashboard("a.json", "a", "A2");
    assert!(folder.files.pass(NOW).changed);
    folder.assert_shown(&[("a", "A2"), (&uid, "B")]);
    fs::remove_dir_all(folder.path("Infra")).expect("removed");
    assert!(folder.files.pass(NOW).changed);
    folder.assert_shown(&[("a", "A2")]);
}

#[test]
fn a_broken_file_keeps_its_last_good_version_and_is_reported_once_a_change() {
    let mut folder = Folder::new();
    folder.dashboard("a.json", "a", "A");
    folder.settle();
    folder.write("a.json", "{\"title\": \"A\",\n \"panels\": 7}");
    assert_eq!(folder.files.pass(NOW).reports, [], "it may be half-written");
    let reports = folder.files.pass(NOW).reports;
    assert_eq!(reports.len(), 1);
    assert!(reports[0].keeps_last);
    assert!(reports[0].problem.to_string().ends_with("at line 2 column 12"), "{}", reports[0].problem);
    assert_eq!(folder.settle(), Vec::<String>::new(), "once");
    folder.assert_shown(&[("a", "A")]);
    assert_eq!(folder.files.counts(), (1, 1));
    folder.write("a.json", "{\"title\": \"A\",\n \"panels\": 7}\n");
    assert_eq!(folder.settle().len(), 1, "another change with the same problem");
    folder.dashboard("a.json", "a", "A3");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[("a", "A3")]);
    assert_eq!(folder.files.counts(), (1, 0));
}

#[test]
fn problems_at_the_start_are_reported_at_once_with_their_place() {
    let mut folder = Folder::new();
    fs::write(folder.path("bytes.json"), b"{\"title\":\n \"\xff\"}").expect("written");
    folder.write("deep.json", &"[".repeat(100_000));
    folder.write("large.json", &" ".repeat(DASHBOARD_BYTES_MAX + 1));
    fs::create_dir(folder.path("folder.json")).expect("created");
    symlink("nowhere", folder.path("link.json")).expect("linked");
    let mut state = 1_u32;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(state >> 26).expect("6 bits"))
    })
    .filter(|c| *c != '\\')
    .take(400_000)
    .collect();
    folder.write("noise.json", &format!(r#"{{"title":"T","noise":"{noise}"}}"#));
    let reports = folder.files.pass(NOW).reports;
    let texts: Vec<_> = reports.iter().map(|report| report.problem.to_string()).collect();
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert!(texts[4].contains("bytes when compressed"), "{texts:?}");
    assert_eq!(texts[0], "is not UTF-8 at line 2 column 3");
    assert!(texts[1].contains("at most 64 levels of nesting"), "{texts:?}");
    assert!(texts[2].contains("at most 1048576 bytes"), "{texts:?}");
    assert!(texts[3].starts_with("cannot be read"), "{texts:?}");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[]);
}

#[test]
fn a_half_written_file_is_read_again_even_if_its_times_are_the_same() {
    let mut folder = Folder::new();
    folder.dashboard("a.json", "a", "A");
    let stamp = FileStamp::of(&fs::metadata(folder.path("a.json")).expect("there"));
    assert!(read_file(&folder.path("a.json"), stamp, TOTAL_BYTES_MAX).is_ok());
    let before = FileStamp { bytes: stamp.bytes - 1, ..stamp };
    let read = read_file(&folder.path("a.json"), before, TOTAL_BYTES_MAX);
    assert_eq!(read, Err(FileProblem::Changing), "it grew after it was listed");
    folder.files.pass(NOW);
    let state = folder.files.files.get_mut(Path::new("a.json")).expect("known");
    let stamp = state.stamp;
    assert!(!state.settled);
    // The new file has the same size and, as on a coarse clock, the same times.
    folder.dashboard("a.json", "a", "B");
    let changed = FileStamp::of(&fs::metadata(folder.path("a.json")).expect("there"));
    assert_eq!(stamp.map(|stamp| stamp.bytes), Some(changed.bytes));
    folder.files.files.get_mut(Path::new("a.json")).expect("known").stamp = Some(changed);
    assert!(folder.files.pass(NOW).changed);
    folder.assert_shown(&[("a", "B")]);
}

#[test]
fn a_uid_belongs_to_the_file_that_shows_it() {
    let mut folder = Folder::new();
    folder.dashboard("b.json", "x", "B");
    folder.settle();
    folder.dashboard("a.json", "x", "A");
    folder.dashboard("b.json", "x", "B2");
    assert_eq!(folder.settle(), ["a.json has the uid x of b.json"]);
    folder.assert_shown(&[("x", "B2")]);
    // The second file is shown once the uid is free.
    fs::remove_file(folder.path("b.json")).expect("removed");
    folder.settle();
    folder.assert_shown(&[("x", "A")]);
    // A file that takes over the uid of another keeps its own last version.
    folder.dashboard("c.json", "y", "C");
    folder.settle();
    folder.dashboard("c.json", "x", "C2");
    assert_eq!(folder.settle(), ["c.json has the uid x of a.json"]);
    folder.assert_shown(&[("x", "A"), ("y", "C")]);
    // Two files exchange their uids, and a file is renamed.
    folder.dashboard("a.json", "y", "A3");
    folder.dashboard("c.json", "x", "C3");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[("x", "C3"), ("y", "A3")]);
    fs::rename(folder.path("c.json"), folder.path("0.json")).expect("renamed");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[("x", "C3"), ("y", "A3")]);
    // A new file gets the uid that another file no longer has, although that file does not get its
    // next uid.
    folder.dashboard("a.json", "x", "A4");
    folder.dashboard("d.json", "y", "D");
    assert_eq!(folder.settle(), ["a.json has the uid x of 0.json"]);
    folder.assert_shown(&[("x", "C3"), ("y", "D")]);
}

#[test]
fn files_that_exchange_their_uids_one_after_the_other_are_both_shown() {
    let mut folder = Folder::new();
    folder.dashboard("a.json", "x", "A");
    folder.dashboard("b.json", "y", "B");
    folder.settle();
    folder.dashboard("b.json", "x", "B2");
    assert_eq!(folder.settle(), ["b.json has the uid x of a.json"]);
    folder.assert_shown(&[("x", "A"), ("y", "B")]);
    folder.dashboard("a.json", "y", "A2");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[("x", "B2"), ("y", "A2")]);
}

#[test]
fn links_to_files_are_followed_and_links_to_folders_are_not() {
    let mut folder = Folder::new();
    folder.dashboard(".versions/1/a.json", "a", "A1");
    folder.dashboard(".versions/2/a.json", "a", "A2");
    symlink(".versions/1", folder.path(".current")).expect("linked");
    symlink(".current/a.json", folder.path("a.json")).expect("linked");
    fs::create_dir(folder.path("sub")).expect("created");
    symlink("..", folder.path("sub/loop")).expect("linked");
    symlink("self.json", folder.path("self.json")).expect("linked");
    symlink("sub", folder.path("named.json")).expect("linked");
    let reports = folder.settle();
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert_eq!(reports[0], "named.json is not a regular file");
    assert!(reports[1].starts_with("self.json cannot be read"), "{reports:?}");
    assert_eq!(reports[2], "sub/loop is a link to a folder, which is not followed");
    folder.assert_shown(&[("a", "A1")]);
    // As a mounted ConfigMap changes: the link moves, the files stay.
    fs::remove_file(folder.path(".current")).expect("removed");
    symlink(".versions/2", folder.path(".current")).expect("linked");
    assert_eq!(folder.settle(), Vec::<String>::new());
    folder.assert_shown(&[("a", "A2")]);
}

#[test]
fn numbers_and_bytes_of_files_are_bounded() {
    let mut folder = Folder::new();
    for number in 0..=FILES_MAX {
        folder.dashboard(&format!("{number:04}.json"), &format!("u{number}"), "T");
    }
    let reports = folder.settle();
    assert_eq!(reports, [" has 501 files, and the first 500 in the order of their paths are used"]);
    assert_eq!(folder.shown().len(), FILES_MAX);
    assert!(!folder.shown().iter().any(|(uid, _)| uid == "u500"));

    let mut folder = Folder::new();
    let text = format!(r#"{{"title":"T","filler":"{}"}}"#, " ".repeat(DASHBOARD_BYTES_MAX - 30));
    for number in 0..=64 {
        folder.write(&format!("{number:04}.json"), &text);
    }
    let reports = folder.settle();
    let wanted = format!("0064.json has {} bytes, and all files together may have 67108864", text.len());
    assert_eq!(reports, [wanted]);
    fs::remove_file(folder.path("0000.json")).expect("removed");
    assert_eq!(folder.settle(), Vec::<String>::new());
    assert_eq!(folder.files.counts(), (64, 0), "there is room now");

    let mut folder = Folder::new();
    folder.dashboard("1/2/3/4/5/6/7/8/a.json", "a", "A");
    folder.dashboard("1/2/3/4/5/6/7/8/9/b.json", "b", "B");
    assert_eq!(folder.settle(), ["1/2/3/4/5/6/7/8/9 is more than 8 folders deep"]);
    folder.assert_shown(&[("a", "A")]);
}

#[test]
fn a_folder_that_cannot_be_listed_changes_nothing() {
    let mut folder = Folder::new();
    folder.dashboard("a.json", "a", "A");
    folder.settle();
    let (there, away) = (folder.dir.path().to_owned(), folder.dir.path().with_extension("away"));
    fs::rename(&there, &away).expect("renamed");
    let reports = folder.settle();
    assert_eq!(reports.len(), 1, "{reports:?}");
    folder.assert_shown(&[("a", "A")]);
    fs::rename(&away, &there).expect("renamed");
    for number in 0..=ENTRIES_MAX {
        File::create(folder.path(&format!("{number}.json"))).expect("created");
    }
    assert_eq!(folder.settle(), [" has more than 10000 entries, so no change is read"]);
    folder.assert_shown(&[("a", "A")]);
}

#[test]
fn impossible_times_of_files_are_clamped() {
    let stamp = |s| FileStamp { file: (0, 0), bytes: 0, modified: (s, 0), changed: (0, 0) };
    let at = |s| stamp(s).modified_at(NOW).as_s();
    assert_eq!([at(i64::MIN), at(-1), at(7), at(i64::MAX)], [0, 0, 7, NOW.as_s()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happened before, files without problems are shown as a fresh start shows them, and
    /// no uid is shown twice.
    #[test]
    fn a_running_server_shows_what_a_fresh_start_shows(
        changes in prop::collection::vec((0..5_u8, 0..7_u8, any::<bool>()), 1..24),
    ) {
        let mut folder = Folder::new();
        for (file, content, looks) in changes {
            let path = format!("{file}.json");
            match content {
                0 => drop(fs::remove_file(folder.path(&path))),
                1 => folder.write(&path, "{ half"),
                2 => folder.write(&path, r#"{"title":"Without a uid"}"#),
                // Two passes here may fall into one tick of the file system's clock, which seconds
                // separate in a server. So contents differ in length.
                uid => {
                    let title = format!("{file} {}", "x".repeat(usize::from(uid)));
                    folder.dashboard(&path, &format!("u{uid}"), &title);
                }
            }
            if looks {
                folder.files.pass(NOW);
            }
        }
        for _ in 0..6 {
            folder.files.pass(NOW);
        }
        let mut fresh = DashboardFiles::open(folder.dir.path()).expect("it exists");
        fresh.pass(NOW);
        let shown = folder.files.files.values().filter(|file| file.shown.is_some()).count();
        prop_assert_eq!(shown, folder.files.dashboards().len());
        if fresh.counts().1 == 0 {
            let titles = |files: &DashboardFiles| {
                let all = files.dashboards().into_iter();
                all.map(|(uid, file)| (uid, file.text.clone())).collect::<Vec<_>>()
            };
            prop_assert_eq!(titles(&folder.files), titles(&fresh));
            prop_assert_eq!(folder.files.counts().1, 0);
        }
    }
}
