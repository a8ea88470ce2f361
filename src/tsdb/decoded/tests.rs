//! What comes in, what stays, what goes, and whose part it is.

use proptest::prelude::*;

use super::*;

static LISTED: AtomicBool = AtomicBool::new(false);

fn place(row: usize) -> Place {
    Place { segment: 1, family: 0, row, block: 0 }
}

/// Values that take 1,000 bytes and a few.
fn values(row: usize) -> Vec<f64> {
    (0..500).map(|i| f64::from(i * 100) + f64::from(u32::try_from(row).expect("few rows"))).collect()
}

/// What a query that reads these rows whole, as a segment does, finds there already.
fn read_rows(kept: &Arc<Kept>, query: u32, rows: impl IntoIterator<Item = usize>) -> usize {
    read_places(kept, query, rows.into_iter().map(place))
}

fn read_places(kept: &Arc<Kept>, query: u32, places: impl IntoIterator<Item = Place>) -> usize {
    let mut keeper = kept.keeper(query).expect("something is kept");
    let mut found = 0;
    for place in places {
        let mut out = Vec::new();
        match keeper.find(&place, 500, 0..500, &mut out) {
            Found::Here(rises) => {
                assert!(rises, "these do");
                assert_eq!(out, values(place.row), "other values than were kept");
                found += 1;
            }
            Found::Wanted(since) => keeper.keep(&place, &values(place.row), since, &LISTED),
            Found::Missing => assert!(out.is_empty(), "values of a block that is not there"),
        }
    }
    found
}

/// Asks for these rows with two queries, after which they are there.
fn bring_in(kept: &Arc<Kept>, rows: std::ops::Range<usize>) {
    read_rows(kept, kept.query(), rows.clone());
    read_rows(kept, kept.query(), rows);
}

#[test]
fn a_block_is_kept_when_a_second_query_wants_it() {
    let all = Decoded::new(1 << 20);
    let kept = Kept::new(&all);
    let first = kept.query();
    assert_eq!(read_rows(&kept, first, 0..40), 0);
    assert_eq!(read_rows(&kept, first, 0..40), 0, "the same query wants it twice");
    assert_eq!(
        (all.usage().bytes, read_rows(&kept, kept.query(), 0..40)),
        (0, 0),
        "it comes in with this one"
    );
    assert_eq!(read_rows(&kept, kept.query(), 0..40), 40);
    let usage = all.usage();
    assert_eq!((usage.hits, usage.misses, usage.evicted), (40, 120, 0));
    assert!((40_000..60_000).contains(&usage.bytes), "{usage:?}");
}

#[test]
fn a_part_of_a_block_is_read_and_a_little_of_one_is_no_reason_to_keep_it() {
    let kept = Kept::new(&Decoded::new(1 << 20));
    for _ in 0..4 {
        let mut keeper = kept.keeper(kept.query()).expect("something is kept");
        assert_eq!(keeper.find(&place(0), 500, 490..500, &mut Vec::new()), Found::Missing);
    }
    bring_in(&kept, 0..1);
    let mut out = vec![1.0];
    let mut keeper = kept.keeper(kept.query()).expect("something is kept");
    assert_eq!(keeper.find(&place(0), 500, 490..500, &mut out), Found::Here(true));
    assert_eq!(out[1..], values(0)[490..]);
    // A block of another length would be another block.
    assert_eq!(keeper.find(&place(0), 501, 0..501, &mut out), Found::Missing);
}

/// What of these pieces is found at once is what is found one after the other; how many are.
fn find_few(kept: &Arc<Kept>, pieces: &[Piece]) -> usize {
    let (mut out, mut found) = (vec![-1.0], Vec::new());
    kept.keeper(kept.query()).expect("something is kept").find_few(pieces, &mut out, &mut found);
    assert_eq!(found.len(), pieces.len());
    let mut keeper = kept.keeper(kept.query()).expect("something is kept");
    for (piece, found) in pieces.iter().zip(&found) {
        let mut expected = Vec::new();
        let one = keeper.find(&piece.place, piece.count, piece.wanted.clone(), &mut expected);
        match found {
            FoundPiece::Here(start, rises) => {
                assert_eq!(one, Found::Here(*rises));
                assert_eq!(out[*start..start + piece.wanted.len()], expected, "{piece:?}");
            }
            FoundPiece::Kept => {
                assert!(matches!(one, Found::Here(_)) && piece.wanted.len() > 32, "{piece:?}");
            }
            FoundPiece::Missing => assert!(!matches!(one, Found::Here(_)), "{piece:?} is there"),
            FoundPiece::Little => assert_eq!(one, Found::Missing, "{piece:?}"),
        }
    }
    found.iter().filter(|found| matches!(found, FoundPiece::Here(..) | FoundPiece::Kept)).count()
}

#[test]
fn few_values_of_many_blocks_are_found_at_once() {
    let all = Decoded::new(1 << 20);
    let kept = Kept::new(&all);
    let piece = |row| Piece { place: place(row), count: 500, wanted: row..row + 7 };
    let pieces: Vec<Piece> = (0..60).map(piece).collect();
    assert_eq!(find_few(&kept, &pieces), 0, "nothing was ever kept");
    bring_in(&kept, 8..40);
    assert_eq!(find_few(&kept, &pieces), 32);
    let other_length: Vec<Piece> = pieces.iter().map(|piece| Piece { count: 501, ..piece.clone() }).collect();
    assert_eq!(find_few(&kept, &other_length), 0, "a block of another length would be another block");
    let many: Vec<Piece> = pieces.iter().map(|piece| Piece { wanted: 100..400, ..piece.clone() }).collect();
    assert_eq!(find_few(&kept, &many), 32);
    let before = all.usage();
    kept.keeper(kept.query()).expect("something is kept").find_few(&pieces, &mut Vec::new(), &mut Vec::new());
    assert_eq!(all.usage().hits, before.hits + 32);
    kept.forget(&[1]);
    assert_eq!(find_few(&kept, &pieces), 0, "the segment is listed no more");
}

#[test]
fn an_export_moves_nothing_in_and_nothing_out() {
    let all = Decoded::new(64 << 10);
    let kept = Kept::new(&all);
    bring_in(&kept, 0..32);
    let before = all.usage();
    for from in (1_024..9_216).step_by(1_024) {
        read_rows(&kept, kept.query(), from..from + 1_024);
    }
    assert_eq!((all.usage().bytes, all.usage().evicted), (before.bytes, 0));
    assert_eq!(read_rows(&kept, kept.query(), 0..32), 32);
}

#[test]
fn an_export_does_not_fill_the_groups_of_a_dashboard() {
    let all = Decoded::new(1 << 20);
    let kept = Kept::new(&all);
    bring_in(&kept, 3..4);
    let bytes = all.usage().bytes;
    read_rows(&kept, kept.query(), 0..16);
    assert_eq!(all.usage().bytes, bytes);
    // What is wanted again is no export.
    read_rows(&kept, kept.query(), 0..16);
    assert_eq!(read_rows(&kept, kept.query(), 0..16), 16);
}

#[test]
fn of_more_than_there_is_room_for_a_part_stays() {
    let all = Decoded::new(64 << 10);
    let kept = Kept::new(&all);
    let mut last = 0;
    for round in 0..6 {
        last = read_rows(&kept, kept.query(), 0..320);
        assert!(all.usage().bytes <= 64 << 10, "{:?}", all.usage());
        assert!(round < 2 || last >= 32, "round {round}: {last} of 320 rows");
    }
    assert!(last < 64, "there is room for 60 rows");
}

#[test]
fn what_was_used_longest_ago_makes_room() {
    let all = Decoded::new(80 << 10);
    let kept = Kept::new(&all);
    bring_in(&kept, 0..32);
    bring_in(&kept, 32..64);
    assert_eq!(read_rows(&kept, kept.query(), 0..32), 32);
    // Wanted before what is there was used, they do not come in; wanted again they do.
    bring_in(&kept, 64..80);
    assert_eq!(read_rows(&kept, kept.query(), 64..80), 16, "{:?}", all.usage());
    assert_eq!(read_rows(&kept, kept.query(), 0..32), 32, "used since the others");
    assert!(read_rows(&kept, kept.query(), 32..64) < 32);
    assert!(all.usage().evicted > 0);
}

#[test]
fn what_few_values_were_read_of_was_used() {
    let all = Decoded::new(80 << 10);
    let kept = Kept::new(&all);
    bring_in(&kept, 0..32);
    bring_in(&kept, 32..64);
    let few = |rows: std::ops::Range<usize>| -> Vec<Piece> {
        rows.map(|row| Piece { place: place(row), count: 500, wanted: 499..500 }).collect()
    };
    assert_eq!(find_few(&kept, &few(0..32)), 32);
    bring_in(&kept, 64..80);
    bring_in(&kept, 64..80);
    assert_eq!(find_few(&kept, &few(0..32)), 32, "used since the others");
    assert!(find_few(&kept, &few(32..64)) < 32);
}

#[test]
fn an_organisation_takes_what_is_left_and_gives_others_their_part() {
    let all = Decoded::new(256 << 10);
    let (large, small) = (Kept::new(&all), Kept::new(&all));
    for _ in 0..4 {
        read_rows(&large, large.query(), 0..1_000);
    }
    assert!(large.bytes() > 240 << 10, "alone it has all: {}", large.bytes());
    for _ in 0..4 {
        read_rows(&small, small.query(), 0..1_000);
        read_rows(&large, large.query(), 0..1_000);
    }
    let (of_large, of_small) = (large.bytes(), small.bytes());
    assert!(of_small > 100 << 10 && of_small <= 132 << 10, "{of_small}");
    assert!(of_large > 100 << 10, "{of_large}");
    // However much one asks for, the other keeps its part.
    for from in (0..40_000).step_by(1_000) {
        bring_in(&large, from..from + 1_000);
    }
    assert_eq!(small.bytes(), of_small);
    assert!(all.usage().bytes <= 256 << 10);
    drop(small);
    assert_eq!(all.usage().bytes, large.bytes(), "its memory is free again");
}

#[test]
fn what_is_of_a_segment_goes_with_it_and_does_not_come_back() {
    let all = Decoded::new(1 << 20);
    let kept = Kept::new(&all);
    let of_segment = |segment| (0..32).map(move |row| Place { segment, ..place(row) });
    for segment in [1, 2, 1, 2] {
        read_places(&kept, kept.query(), of_segment(segment));
    }
    let both = all.usage().bytes;
    let retired = AtomicBool::new(true);
    kept.forget(&[1]);
    assert_eq!(all.usage().bytes, both / 2);
    let query = kept.query();
    let mut keeper = kept.keeper(query).expect("something is kept");
    for place in of_segment(1) {
        if let Found::Wanted(since) = keeper.find(&place, 500, 0..500, &mut Vec::new()) {
            keeper.keep(&place, &values(place.row), since, &retired);
        }
    }
    assert_eq!(all.usage().bytes, both / 2, "a reader that goes on keeps nothing of it");
    assert_eq!(read_places(&kept, kept.query(), of_segment(2)), 32);
    kept.close();
    read_places(&kept, kept.query(), of_segment(2));
    read_places(&kept, kept.query(), of_segment(2));
    assert_eq!(all.usage().bytes, 0, "nothing is kept for an organisation that is gone");
}

#[test]
fn what_nobody_uses_is_given_back() {
    let all = Decoded::new(1 << 20);
    let kept = Kept::new(&all);
    let at = |seconds: i64| Timestamp::from_ms(seconds * 1_000);
    bring_in(&kept, 0..32);
    bring_in(&kept, 32..64);
    let whole = all.usage().bytes;
    assert_eq!(all.age(at(0)), 0);
    assert_eq!(all.age(at(300)), 0);
    assert_eq!(read_rows(&kept, kept.query(), 0..32), 32);
    assert_eq!(all.age(at(599)), 0);
    assert_eq!((all.age(at(600)), all.usage().bytes), (whole / 2, whole / 2));
    assert_eq!(all.age(at(610)), 0, "used since then");
    assert_eq!(all.age(at(1_200)), whole / 2);
    // A clock that was set back does not stop it.
    bring_in(&kept, 0..32);
    assert_eq!((all.age(at(10)), all.age(at(609)), all.age(at(610))), (0, 0, whole / 2));
}

#[test]
fn readers_side_by_side_find_what_was_kept_and_every_byte_is_counted() {
    let all = Decoded::new(96 << 10);
    let orgs = [Kept::new(&all), Kept::new(&all)];
    std::thread::scope(|threads| {
        for kept in &orgs {
            for from in [0, 8, 40] {
                threads.spawn(move || {
                    for _ in 0..40 {
                        read_rows(kept, kept.query(), from..from + 64);
                    }
                });
            }
            threads.spawn(move || {
                for _ in 0..10 {
                    kept.forget(&[1]);
                }
            });
        }
    });
    let usage = all.usage();
    assert_eq!(usage.hits + usage.misses, 2 * 3 * 40 * 64);
    assert!(usage.bytes <= 96 << 10, "{usage:?}");
    assert_eq!(usage.bytes, orgs.iter().map(|kept| kept.bytes()).sum::<u64>());
    orgs.iter().for_each(|kept| kept.forget(&[1]));
    assert_eq!(all.usage().bytes, 0);
}

#[test]
fn of_no_bytes_nothing_is_kept() {
    let kept = Kept::new(&Decoded::new(0));
    assert!(kept.keeper(kept.query()).is_none());
}

#[derive(Clone, Debug)]
enum Act {
    Read { org: usize, segment: u64, from: usize, rows: usize },
    Forget { org: usize, segment: u64 },
    Age,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (0usize..3, 1u64..4, 0usize..200, 1usize..80)
            .prop_map(|(org, segment, from, rows)| Act::Read { org, segment, from, rows }),
        1 => (0usize..3, 1u64..4).prop_map(|(org, segment)| Act::Forget { org, segment }),
        1 => Just(Act::Age),
    ]
}

proptest! {
    /// What is found is what was kept ([`read_places`] looks), never more than may be, and every byte is counted.
    #[test]
    fn whatever_is_asked_for_the_bound_holds(
        acts in prop::collection::vec(act(), 1..60),
        bytes_max in prop_oneof![Just(1_000u64), Just(5_000), 10_000u64..200_000],
    ) {
        let all = Decoded::new(bytes_max);
        let orgs: Vec<Arc<Kept>> = (0..3).map(|_| Kept::new(&all)).collect();
        for (step, act) in acts.into_iter().enumerate() {
            match act {
                Act::Read { org, segment, from, rows } => {
                    let places = (from..from + rows).map(|row| Place { segment, ..place(row) });
                    read_places(&orgs[org], orgs[org].query(), places.clone());
                    let few = places.take(PIECES_MAX).map(|place| Piece { place, count: 500, wanted: 490..500 });
                    find_few(&orgs[org], &few.collect::<Vec<_>>());
                }
                Act::Forget { org, segment } => orgs[org].forget(&[segment]),
                Act::Age => {
                    let seconds = i64::try_from(step).expect("few") * 300;
                    all.age(Timestamp::from_ms(seconds * 1_000));
                }
            }
            prop_assert!(all.usage().bytes <= bytes_max);
            for kept in &orgs {
                let shards = kept.shards.get().into_iter().flat_map(|shards| shards.iter());
                let held: u64 = shards.map(|shard| read(shard).values().map(|group| group.bytes()).sum::<u64>()).sum();
                prop_assert_eq!(kept.bytes(), held);
            }
            prop_assert_eq!(all.usage().bytes, orgs.iter().map(|kept| kept.bytes()).sum::<u64>());
        }
        drop(orgs);
        prop_assert_eq!(all.usage().bytes, 0);
    }
}
