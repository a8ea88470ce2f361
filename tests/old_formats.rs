//! Every on-disk version ever landed stays openable.
//!
//! `fixtures/v<n>.pack` is a complete data folder of that version, as a killed server left it:
//! accounts, journal, registries, a checkpoint, two log files. It was made once and is never
//! edited. A pack is a sequence of files:
//! ```text
//! u16 bytes of the path, u32 bytes of the content, path,
//! content: pieces of { u32 literal bytes, the bytes, u32 repeats, u8 the repeated byte }
//! ```
//! It holds what [`expected`] says, in the organisations 1 (`acme`) and 2 (`beta`).
//!
//! `fixtures/v1-everything.pack` was made later, by [`folder::make_of`]: sealed and merged
//! segments, histograms, start timestamps (some of them late), exemplars, side rows of a
//! checkpoint of version 1, two exports. `fixtures/v1-shared-rows.pack` is the same with a
//! checkpoint of version 2, whose side rows hold items of several series. Before you change that
//! function, copy it here.

#[expect(dead_code, reason = "others damage such folders")]
mod folder;
#[path = "../src/kv/scratch.rs"]
mod scratch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder, LastStop, Start};
use promlet::model::{Access, OrgId, Pace, TimeRange, Timestamp};
use promlet::tsdb::{Home, Options, SampleColumns, Tsdb};

/// A few minutes after the newest sample.
const NOW: Timestamp = Timestamp::from_ms(FIRST_MS + 3_600_000);
const FIRST_MS: i64 = 1_795_000_000_000;
const USERS_TABLE: u8 = 1;

type Content = BTreeMap<String, Vec<(i64, u64)>>;

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at_checked(bytes).expect("a pack is whole");
    *rest = after;
    taken
}

fn number(rest: &mut &[u8]) -> usize {
    let bytes = take(rest, 4).try_into().expect("four bytes");
    usize::try_from(u32::from_le_bytes(bytes)).expect("fits")
}

fn unpack(mut pack: &[u8], dir: &Path) {
    while !pack.is_empty() {
        let path_bytes = take(&mut pack, 2);
        let path_bytes = usize::from(u16::from_le_bytes([path_bytes[0], path_bytes[1]]));
        let packed = number(&mut pack);
        let path = dir.join(std::str::from_utf8(take(&mut pack, path_bytes)).expect("a path"));
        let mut pieces = take(&mut pack, packed);
        let mut content = Vec::new();
        while !pieces.is_empty() {
            let literal = number(&mut pieces);
            content.extend_from_slice(take(&mut pieces, literal));
            let repeats = number(&mut pieces);
            let repeated = take(&mut pieces, 1)[0];
            content.resize(content.len() + repeats, repeated);
        }
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }
}

/// The samples that were acknowledged with a 2xx before the server was killed.
fn expected() -> (Content, Content) {
    let (mut acme, mut beta) = (Content::new(), Content::new());
    let at = |ms: i64| FIRST_MS + ms;
    for series in 0..20 {
        let name = format!(r#"{{__name__="http_requests_total", instance="i{series}", job="api"}}"#);
        let value = |j: i64| (series * 1_000 + j * 7) as f64 + 0.25 * (j % 4) as f64;
        acme.insert(name, (0..40).map(|j| (at(j * 15_000), value(j).to_bits())).collect());
    }
    let odd = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX, 0.1, 1e-300, 123_456.789];
    let patterns = [0x7ff0_0000_0000_0002, 0x7ff8_0000_0000_0001, 0xfff8_0000_00ab_cdef];
    let bits = odd.iter().map(|v| v.to_bits()).chain(patterns);
    acme.insert(r#"{__name__="odd"}"#.to_owned(), (0..).map(|i| at(i * 1_000)).zip(bits).collect());
    // The fourth came late, and so did a second word about the second.
    let late = [(0, 0.0), (1, 1.5), (2, 2.0), (3, 3.5), (5, 5.0), (6, 6.0)];
    let late = late.iter().map(|(s, v): &(i64, f64)| (at(s * 1_000), v.to_bits())).collect();
    acme.insert(r#"{__name__="late"}"#.to_owned(), late);
    for wide in 0..7u32 {
        let labels = (0..45).map(|i| format!(r#"l{i:02}="{}{wide}{i:02}", "#, "x".repeat(3_996)));
        let name = format!(r#"{{__name__="wide", {}w="{wide}"}}"#, labels.collect::<String>());
        acme.insert(name, vec![(at(0), f64::from(wide).to_bits())]);
    }
    for job in 0..3u32 {
        let samples = (0..10).map(|j| (at(j * 60_000), f64::from(job).to_bits())).collect();
        beta.insert(format!(r#"{{__name__="up", job="j{job}"}}"#), samples);
    }
    beta.insert(r#"{__name__="up", job="j9"}"#.to_owned(), vec![(at(60_000), 9f64.to_bits())]);
    (acme, beta)
}

fn content(tsdb: &Tsdb, org: OrgId) -> Content {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let mut out = SampleColumns::default();
    let mut content = Content::new();
    for series in snapshot.select(&[], TimeRange::ALL) {
        snapshot.read(series.id, TimeRange::ALL, &mut out);
        let samples = out.times.iter().copied().zip(out.values.iter().map(|v| v.to_bits()));
        content.insert(series.labels.to_string(), samples.collect());
    }
    content
}

fn opens(pack: &[u8]) {
    let (acme, beta) = expected();
    let dir = crate::scratch::temporary_folder().expect("made");
    unpack(pack, dir.path());
    for start in 0..2 {
        let mut rng = Entropy::seeded(1);
        let folder = DataFolder::open(dir.path(), NOW, &mut rng).expect("opens");
        assert_eq!((folder.last_stop(), folder.is_initialised().expect("read")), (LastStop::Unclean, true));
        let options = ControlOptions { now: NOW, users_table: USERS_TABLE };
        let (control, report) = Control::open(&folder, &options).expect("opens");
        assert_eq!(report.start, Start::Intact, "start {start}");
        let control = Arc::new(control);
        let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::clone(&control) };
        let (tsdb, report) = Tsdb::open(home, Options::default(), &mut rng, NOW).expect("opens");
        assert_eq!((report.read_only, report.notes, report.series), (None, Vec::new(), 33), "start {start}");
        assert!(content(&tsdb, OrgId(1)) == acme && content(&tsdb, OrgId(2)) == beta, "start {start}");
        let described = tsdb.snapshot(&Access::whole(OrgId(1)));
        let described = described.paced(&Pace::endless()).metadata(None, 9).expect("no deadline").items;
        assert_eq!(described.iter().map(|d| &*d.help).collect::<Vec<_>>(), ["Requests answered."]);
        drop(tsdb);
        drop(control);
    }
}

#[test]
fn a_folder_of_version_1_opens_and_holds_everything() {
    opens(include_bytes!("fixtures/v1.pack"));
}

#[test]
fn a_folder_with_everything_beside_the_floats_opens_and_holds_it() {
    let made = crate::scratch::temporary_folder().expect("made");
    let (_open, expected) = folder::make_of(made.path(), 40, 40);
    let packs = [
        ("promlet head 1", include_bytes!("fixtures/v1-everything.pack").as_slice()),
        ("promlet head 2", include_bytes!("fixtures/v1-shared-rows.pack").as_slice()),
    ];
    for (checkpoint, pack) in packs {
        let dir = crate::scratch::temporary_folder().expect("made");
        unpack(pack, dir.path());
        let done = std::fs::read_to_string(dir.path().join("head/1/DONE")).expect("read");
        assert_eq!(done.lines().next(), Some(checkpoint));
        for start in 0..2 {
            let opened = folder::try_open(dir.path(), false).expect("opens");
            assert_eq!(opened.said, Vec::<String>::new(), "{checkpoint}, start {start}");
            assert!(opened.held() == expected, "{checkpoint}, start {start}");
        }
    }
}
