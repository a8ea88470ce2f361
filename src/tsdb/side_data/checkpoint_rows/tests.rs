//! Tests of the rows of the side table.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::super::SideRecord;
use super::super::record::LogStart;
use super::super::tests::{any_histogram, exponential};
use super::*;
use crate::model::{Exemplar, HistogramColumns, Labels, TimeRange, Timestamp};
use crate::tsdb::wal::record::RecordKind;

/// Neighbours, and series of several stripes.
const SERIES: [u32; 6] = [0, 1, 2, 999, 1_998, 2_997];

type SideContent = (Vec<HistogramColumns>, Vec<(Vec<(i64, i64)>, LateStarts)>, Vec<(u32, Exemplar)>);

fn content(side: &SideTable) -> SideContent {
    let of = |id| {
        let (mut histograms, mut starts) = (HistogramColumns::default(), (Vec::new(), LateStarts::default()));
        side.read_histograms(id, TimeRange::ALL, &mut histograms);
        side.starts(id, &mut starts.0, &mut starts.1);
        (histograms, starts)
    };
    let (histograms, starts) = SERIES.into_iter().map(of).unzip();
    let exemplars = side.exemplars().in_order().into_iter().map(|(s, e)| (s, e.clone())).collect();
    (histograms, starts, exemplars)
}

fn apply(side: &SideTable, seq: u64, kind: RecordKind, fill: impl FnOnce(&mut RecordBody)) {
    let mut body = RecordBody::default();
    fill(&mut body);
    if !body.is_empty() {
        side.apply(SideRecord { seq, kind, body: &body.finish().0 }, |_| true, |_, _| false, |_| ())
            .expect("applied");
    }
}

fn row_head(series: u32, row_seq: u64, from_ms: i64) -> RowHead {
    RowHead { org: OrgId(1), series, row_seq, in_order_from_ms: from_ms, late_from_ms: from_ms }
}

/// A target that has the definition of every series and no exemplars.
fn target(side: &SideTable) -> RowTarget<'_> {
    RowTarget { side, knows: &|_| true, has_exemplars: false }
}

/// Loads one row into an empty table.
fn loaded(first: u32, row: &[u8]) -> Result<SideTable, Damage> {
    let side = SideTable::new(Default::default());
    let mut joiner = RowJoiner::default();
    joiner.add(row_head(first, 0, i64::MIN), row, target(&side), |_| ())?;
    joiner.end()?;
    Ok(side)
}

fn put_start(side: &SideTable, seq: u64, start: LogStart) {
    apply(side, seq, RecordKind::Starts, |body| body.start(start));
}

fn bytes_of(drawn: &[&str]) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(drawn.concat().replace(' ', "").as_bytes()).expect("hexadecimal")
}

proptest! {
    #[test]
    fn a_checkpoint_restores_the_side_table(
        histograms in prop::collection::vec((0usize..6, -50i64..50, any_histogram()), 0..60),
        starts in prop::collection::vec((0usize..6, -50i64..50, 1i64..4), 0..30),
        exemplars in prop::collection::vec((0usize..6, 0i64..50, "[a-z]{0,9}"), 0..30),
        row_max in prop_oneof![4usize..200, Just(3_967)],
        barrier in prop_oneof![Just(i64::MIN), -60i64..60],
    ) {
        let side = SideTable::new(Default::default());
        side.close_window(barrier);
        for (seq, (id, at, histogram)) in histograms.iter().enumerate() {
            apply(&side, seq as u64, RecordKind::Histograms, |body| body.histograms(SERIES[*id], &[(*at, histogram)]));
        }
        apply(&side, 99, RecordKind::Starts, |body| {
            for (id, at_ms, start_ms) in &starts {
                body.start(LogStart { series: SERIES[*id], at_ms: *at_ms, start_ms: *start_ms });
            }
        });
        apply(&side, 100, RecordKind::Exemplars, |body| {
            for (id, at, text) in &exemplars {
                let labels = Labels::from_pairs([("trace_id", text.as_str())]);
                body.exemplar(SERIES[*id], &Exemplar { labels, value: 1.0, at: Timestamp::from_ms(*at) });
            }
        });
        let again = SideTable::new(Default::default());
        let mut joiner = RowJoiner::default();
        for group in side.checkpoint_rows(row_max) {
            for row in group.rows {
                prop_assert!(row.bytes.len() <= row_max);
                let (head, mut series) = (row_head(row.first, group.row_seq, i64::MIN), BTreeSet::new());
                let added = joiner.add(head, &row.bytes, target(&again), |id| { series.insert(id); });
                prop_assert_eq!(added, Ok(()));
                prop_assert_eq!((series.first(), series.len()), (Some(&row.first), row.series as usize));
            }
        }
        prop_assert_eq!(joiner.end(), Ok(()));
        prop_assert_eq!(content(&again), content(&side));
        let count = |side: &SideTable| side.counters.histograms.load(Ordering::Relaxed);
        prop_assert_eq!(count(&again), count(&side));
    }

    #[test]
    fn a_reader_never_panics(rows in prop::collection::vec((0u32..2, prop::collection::vec(any::<u8>(), 0..60)), 0..4), kind in 0u8..7) {
        let side = SideTable::new(Default::default());
        let mut joiner = RowJoiner::default();
        for (id, mut row) in rows {
            if let Some(first) = row.first_mut() {
                *first = *first & GOES_ON | kind;
            }
            let _ = joiner.add(row_head(id, 0, 0), &row, target(&side), |_| ());
        }
    }

    #[test]
    fn a_changed_or_shortened_pack_never_panics(change in any::<(usize, u8)>(), cut: usize) {
        let mut row = bytes_of(&PACKED);
        let (at, length) = (change.0 % row.len(), cut % row.len());
        row[at] ^= change.1;
        let _ = loaded(7, &row);
        let _ = loaded(u32::MAX, &row);
        row.truncate(length);
        let _ = loaded(7, &row);
    }
}

/// The rows that the side table of [`example`] had in generations of version 1.
const ONE_SERIES: [&str; 4] = [
    "80 0100 0000 0000000000000000 00",
    "00 0100 00 00 02 00 00 06 06",
    "02 0000 02 01 02 04",
    "04 0000 01 00 03 0e",
];

/// The series' row now has the same items and those of a neighbour.
const PACKED: [&str; 5] = [
    "05",
    "00 00 01 12 0000 0000000000000000 00 00 00 02 00 00 06 06",
    "00 02 04 02 01 02 04",
    "00 04 04 01 00 03 0e",
    "c901 02 05 06 01 06 c801",
];

/// Returns a table with a histogram, a start timestamp and a late one of series 7, and a start
/// timestamp of series 208 if `neighbour`.
fn example(neighbour: bool) -> SideTable {
    let side = SideTable::new(Default::default());
    let histogram = exponential(0, 0.0, &[], &[], 0.0, 3, &[]);
    apply(&side, 5, RecordKind::Histograms, |body| body.histograms(7, &[(1, &histogram)]));
    put_start(&side, 6, LogStart { series: 7, at_ms: 1, start_ms: -1 });
    if neighbour {
        put_start(&side, 6, LogStart { series: 208, at_ms: 3, start_ms: -97 });
    }
    side.close_window(1);
    put_start(&side, 7, LogStart { series: 7, at_ms: 0, start_ms: -2 });
    side
}

#[test]
fn the_bytes_match_the_documented_format() {
    let side = example(true);
    let groups: Vec<CheckpointRows> = side.checkpoint_rows(3_967).collect();
    let [mut group, exemplars] = <[CheckpointRows; 2]>::try_from(groups).expect("one stripe, and exemplars");
    assert_eq!((group.row_seq, group.histograms, exemplars.rows.len()), (7, 1, 0));
    let row = group.rows.pop().expect("a row");
    assert!(group.rows.is_empty());
    assert_eq!((row.first, row.series), (7, 2));
    assert_eq!(data_encoding::HEXLOWER.encode(&row.bytes), PACKED.concat().replace(' ', ""));
}

#[test]
fn an_item_that_fits_no_pack_has_the_rows_of_version_1() {
    let rows: Vec<SideRow> = example(false).checkpoint_rows(14).flat_map(|group| group.rows).collect();
    let hex: Vec<String> = rows.iter().map(|row| data_encoding::HEXLOWER.encode(&row.bytes)).collect();
    assert_eq!(hex, ONE_SERIES.map(|row| row.replace(' ', "")));
}

#[test]
fn rows_of_version_1_are_loaded() {
    let (side, mut joiner) = (SideTable::new(Default::default()), RowJoiner::default());
    for row in ONE_SERIES {
        let row = bytes_of(&[row]);
        assert_eq!(joiner.add(row_head(7, 7, i64::MIN), &row, target(&side), |id| assert_eq!(id, 7)), Ok(()));
    }
    assert_eq!(joiner.end(), Ok(()));
    let of = |side: &SideTable| {
        let (mut histograms, mut starts) = (HistogramColumns::default(), (Vec::new(), LateStarts::default()));
        side.read_histograms(7, TimeRange::ALL, &mut histograms);
        side.starts(7, &mut starts.0, &mut starts.1);
        (histograms, starts)
    };
    assert_eq!(of(&side), of(&example(false)));
}

#[test]
fn start_timestamps_of_many_series_share_rows() {
    let side = SideTable::new(Default::default());
    apply(&side, 1, RecordKind::Starts, |body| {
        for series in 0..50_000 {
            body.start(LogStart { series, at_ms: 1_795_000_000_000, start_ms: 1_794_000_000_000 });
        }
    });
    let rows: Vec<SideRow> = side.checkpoint_rows(3_967).flat_map(|group| group.rows).collect();
    let (bytes, series): (usize, u32) =
        rows.iter().fold((0, 0), |(bytes, series), row| (bytes + row.bytes.len(), series + row.series));
    assert_eq!(series, 50_000);
    assert!(bytes <= 50_000 * 22 && rows.len() <= 300, "{bytes} bytes in {} rows", rows.len());
}

#[test]
fn damage_of_a_pack_is_found_and_has_its_place() {
    let damaged = |first, drawn: &[&str]| loaded(first, &bytes_of(drawn)).map(|_| ()).expect_err("damaged");
    let undefined = |row: &[&str]| {
        let side = SideTable::new(Default::default());
        let to = RowTarget { knows: &|id| id != 208, ..target(&side) };
        RowJoiner::default().add(row_head(7, 0, i64::MIN), &bytes_of(row), to, |_| ())
    };
    assert_eq!(damaged(7, &["05"]), Damage::new(1, "cut short"));
    let wrong_number = [PACKED[0], &PACKED[1].replace("00 00 01", "00 00 02")];
    assert_eq!(damaged(7, &wrong_number), Damage::new(5, "wrong number of histograms in a chunk"));
    assert_eq!(undefined(&PACKED), Err(Damage::new(39, "a series without a definition")));
    assert_eq!(damaged(u32::MAX, &["05 01 02 04 02 01 02 04"]), Damage::new(2, "series id over 32 bits"));
    assert_eq!(
        damaged(7, &["05 00 03 04 02 01 02 04"]),
        Damage::new(3, "unknown kind of item in a side row")
    );
    assert_eq!(damaged(7, &["05 00 02 05 02 01 02 04"]), Damage::new(4, "count beyond the body"));
    // The second change is not after the first.
    assert_eq!(
        damaged(7, &["05 00 02 06 02 02 02 04 02 04"]),
        Damage::new(9, "start timestamps do not ascend")
    );
    let (side, mut joiner) = (SideTable::new(Default::default()), RowJoiner::default());
    joiner.add(row_head(7, 0, i64::MIN), &[0x82, 0, 0, 2], target(&side), |_| ()).expect("a part");
    let next = joiner.add(row_head(7, 0, i64::MIN), &bytes_of(&PACKED), target(&side), |_| ());
    assert_eq!(next, Err(Damage::new(1, "a side row does not continue the one before")));
}
