//! Tests of admission, eviction, invalidation and the share of each organisation.

use proptest::prelude::*;

use super::*;

static LISTED: AtomicBool = AtomicBool::new(false);

fn address(row: usize) -> BlockAddress {
    BlockAddress { segment: 1, family: 0, row, block: 0 }
}

/// Values that take slightly more than 1,000 bytes.
fn values(row: usize) -> Vec<f64> {
    (0..500).map(|i| f64::from(i * 100) + f64::from(u32::try_from(row).expect("few rows"))).collect()
}

/// Reads whole rows with one query as a segment does, and returns how many were cached.
fn read_rows(org: &Arc<OrgCache>, query: u32, rows: impl IntoIterator<Item = usize>) -> usize {
    read_addresses(org, query, rows.into_iter().map(address))
}

fn read_addresses(org: &Arc<OrgCache>, query: u32, places: impl IntoIterator<Item = BlockAddress>) -> usize {
    let mut handle = org.handle(query).expect("the cache is on");
    let mut found = 0;
    for address in places {
        let mut out = Vec::new();
        match handle.get(&address, 500, 0..500, &mut out) {
            BlockLookup::Hit(non_decreasing) => {
                assert!(non_decreasing, "the test values are non-decreasing");
                assert_eq!(out, values(address.row), "other values than were inserted");
                found += 1;
            }
            BlockLookup::Admit(since) => handle.insert(&address, &values(address.row), since, &LISTED),
            BlockLookup::Miss => assert!(out.is_empty(), "a miss appends nothing"),
        }
    }
    found
}

/// Reads these rows with two queries, so that they are cached.
fn bring_in(org: &Arc<OrgCache>, rows: std::ops::Range<usize>) {
    read_rows(org, org.query(), rows.clone());
    read_rows(org, org.query(), rows);
}

#[test]
fn a_block_is_cached_when_a_second_query_requests_it() {
    let all = BlockCache::new(1 << 20);
    let org = OrgCache::new(&all);
    let first = org.query();
    assert_eq!(read_rows(&org, first, 0..40), 0);
    assert_eq!(read_rows(&org, first, 0..40), 0, "the same query requests it twice");
    assert_eq!((all.usage().bytes, read_rows(&org, org.query(), 0..40)), (0, 0), "this query inserts it");
    assert_eq!(read_rows(&org, org.query(), 0..40), 40);
    let usage = all.usage();
    assert_eq!((usage.hits, usage.misses, usage.evicted), (40, 120, 0));
    assert!((40_000..60_000).contains(&usage.bytes), "{usage:?}");
}

#[test]
fn short_ranges_are_served_from_the_cache_but_do_not_fill_it() {
    let org = OrgCache::new(&BlockCache::new(1 << 20));
    for _ in 0..4 {
        let mut handle = org.handle(org.query()).expect("the cache is on");
        assert_eq!(handle.get(&address(0), 500, 490..500, &mut Vec::new()), BlockLookup::Miss);
    }
    bring_in(&org, 0..1);
    let mut out = vec![1.0];
    let mut handle = org.handle(org.query()).expect("the cache is on");
    assert_eq!(handle.get(&address(0), 500, 490..500, &mut out), BlockLookup::Hit(true));
    assert_eq!(out[1..], values(0)[490..]);
    // A cached column of another length belongs to another block.
    assert_eq!(handle.get(&address(0), 501, 0..501, &mut out), BlockLookup::Miss);
}

/// Checks that `get_many` and `get` agree on these ranges, and returns how many are cached.
fn get_many(org: &Arc<OrgCache>, ranges: &[BlockRange]) -> usize {
    let (mut out, mut found) = (vec![-1.0], Vec::new());
    org.handle(org.query()).expect("the cache is on").get_many(ranges, &mut out, &mut found);
    assert_eq!(found.len(), ranges.len());
    let mut handle = org.handle(org.query()).expect("the cache is on");
    for (range, found) in ranges.iter().zip(&found) {
        let mut expected = Vec::new();
        let one = handle.get(&range.address, range.count, range.wanted.clone(), &mut expected);
        match found {
            RangeLookup::Hit(start, non_decreasing) => {
                assert_eq!(one, BlockLookup::Hit(*non_decreasing));
                assert_eq!(out[*start..start + range.wanted.len()], expected, "{range:?}");
            }
            RangeLookup::Cached => {
                assert!(matches!(one, BlockLookup::Hit(_)) && range.wanted.len() > 32, "{range:?}");
            }
            RangeLookup::Miss => assert!(!matches!(one, BlockLookup::Hit(_)), "{range:?} is cached"),
            RangeLookup::TooLittle => assert_eq!(one, BlockLookup::Miss, "{range:?}"),
        }
    }
    found.iter().filter(|found| matches!(found, RangeLookup::Hit(..) | RangeLookup::Cached)).count()
}

#[test]
fn get_many_finds_short_ranges_of_many_blocks() {
    let all = BlockCache::new(1 << 20);
    let org = OrgCache::new(&all);
    let range = |row| BlockRange { address: address(row), count: 500, wanted: row..row + 7 };
    let ranges: Vec<BlockRange> = (0..60).map(range).collect();
    assert_eq!(get_many(&org, &ranges), 0, "nothing was inserted");
    bring_in(&org, 8..40);
    assert_eq!(get_many(&org, &ranges), 32);
    let other_length: Vec<BlockRange> =
        ranges.iter().map(|range| BlockRange { count: 501, ..range.clone() }).collect();
    assert_eq!(get_many(&org, &other_length), 0, "a cached block of another length is not used");
    let many: Vec<BlockRange> =
        ranges.iter().map(|range| BlockRange { wanted: 100..400, ..range.clone() }).collect();
    assert_eq!(get_many(&org, &many), 32);
    let before = all.usage();
    org.handle(org.query()).expect("the cache is on").get_many(&ranges, &mut Vec::new(), &mut Vec::new());
    assert_eq!(all.usage().hits, before.hits + 32);
    org.remove_segments(&[1]);
    assert_eq!(get_many(&org, &ranges), 0, "the segment is no longer listed");
}

#[test]
fn an_export_inserts_nothing_and_evicts_nothing() {
    let all = BlockCache::new(64 << 10);
    let org = OrgCache::new(&all);
    bring_in(&org, 0..32);
    let before = all.usage();
    for from in (1_024..9_216).step_by(1_024) {
        read_rows(&org, org.query(), from..from + 1_024);
    }
    assert_eq!((all.usage().bytes, all.usage().evicted), (before.bytes, 0));
    assert_eq!(read_rows(&org, org.query(), 0..32), 32);
}

#[test]
fn an_export_does_not_fill_the_groups_of_a_dashboard() {
    let all = BlockCache::new(1 << 20);
    let org = OrgCache::new(&all);
    bring_in(&org, 3..4);
    let bytes = all.usage().bytes;
    read_rows(&org, org.query(), 0..16);
    assert_eq!(all.usage().bytes, bytes);
    // A second request shows that the first was not an export.
    read_rows(&org, org.query(), 0..16);
    assert_eq!(read_rows(&org, org.query(), 0..16), 16);
}

#[test]
fn a_working_set_larger_than_the_cache_is_cached_in_part() {
    let all = BlockCache::new(64 << 10);
    let org = OrgCache::new(&all);
    let mut last = 0;
    for round in 0..6 {
        last = read_rows(&org, org.query(), 0..320);
        assert!(all.usage().bytes <= 64 << 10, "{:?}", all.usage());
        assert!(round < 2 || last >= 32, "round {round}: {last} of 320 rows");
    }
    assert!(last < 64, "there is room for 60 rows");
}

#[test]
fn the_least_recently_used_groups_are_evicted() {
    let all = BlockCache::new(80 << 10);
    let org = OrgCache::new(&all);
    bring_in(&org, 0..32);
    bring_in(&org, 32..64);
    assert_eq!(read_rows(&org, org.query(), 0..32), 32);
    // The rows were first requested before the cached ones were used, so they are not admitted. The
    // next request caches them.
    bring_in(&org, 64..80);
    assert_eq!(read_rows(&org, org.query(), 64..80), 16, "{:?}", all.usage());
    assert_eq!(read_rows(&org, org.query(), 0..32), 32, "used since the others");
    assert!(read_rows(&org, org.query(), 32..64) < 32);
    assert!(all.usage().evicted > 0);
}

#[test]
fn get_many_counts_as_a_use() {
    let all = BlockCache::new(80 << 10);
    let org = OrgCache::new(&all);
    bring_in(&org, 0..32);
    bring_in(&org, 32..64);
    let few = |rows: std::ops::Range<usize>| -> Vec<BlockRange> {
        rows.map(|row| BlockRange { address: address(row), count: 500, wanted: 499..500 }).collect()
    };
    assert_eq!(get_many(&org, &few(0..32)), 32);
    bring_in(&org, 64..80);
    bring_in(&org, 64..80);
    assert_eq!(get_many(&org, &few(0..32)), 32, "used since the others");
    assert!(get_many(&org, &few(32..64)) < 32);
}

#[test]
fn an_organisation_uses_free_memory_and_yields_the_share_of_others() {
    let all = BlockCache::new(256 << 10);
    let (large, small) = (OrgCache::new(&all), OrgCache::new(&all));
    for _ in 0..4 {
        read_rows(&large, large.query(), 0..1_000);
    }
    assert!(large.bytes() > 240 << 10, "alone it may use everything: {}", large.bytes());
    for _ in 0..4 {
        read_rows(&small, small.query(), 0..1_000);
        read_rows(&large, large.query(), 0..1_000);
    }
    let (of_large, of_small) = (large.bytes(), small.bytes());
    assert!(of_small > 100 << 10 && of_small <= 132 << 10, "{of_small}");
    assert!(of_large > 100 << 10, "{of_large}");
    // However much one organisation reads, the other keeps its share.
    for from in (0..40_000).step_by(1_000) {
        bring_in(&large, from..from + 1_000);
    }
    assert_eq!(small.bytes(), of_small);
    assert!(all.usage().bytes <= 256 << 10);
    drop(small);
    assert_eq!(all.usage().bytes, large.bytes(), "its memory is released");
}

#[test]
fn blocks_of_a_segment_are_removed_with_it_and_not_inserted_again() {
    let all = BlockCache::new(1 << 20);
    let org = OrgCache::new(&all);
    let of_segment = |segment| (0..32).map(move |row| BlockAddress { segment, ..address(row) });
    for segment in [1, 2, 1, 2] {
        read_addresses(&org, org.query(), of_segment(segment));
    }
    let both = all.usage().bytes;
    let retired = AtomicBool::new(true);
    org.remove_segments(&[1]);
    assert_eq!(all.usage().bytes, both / 2);
    let query = org.query();
    let mut handle = org.handle(query).expect("the cache is on");
    for address in of_segment(1) {
        if let BlockLookup::Admit(since) = handle.get(&address, 500, 0..500, &mut Vec::new()) {
            handle.insert(&address, &values(address.row), since, &retired);
        }
    }
    assert_eq!(all.usage().bytes, both / 2, "a query that still reads the segment inserts nothing");
    assert_eq!(read_addresses(&org, org.query(), of_segment(2)), 32);
    org.close();
    read_addresses(&org, org.query(), of_segment(2));
    read_addresses(&org, org.query(), of_segment(2));
    assert_eq!(all.usage().bytes, 0, "nothing is cached for a removed organisation");
}

#[test]
fn idle_groups_are_released() {
    let all = BlockCache::new(1 << 20);
    let org = OrgCache::new(&all);
    let at = |seconds: i64| Timestamp::from_ms(seconds * 1_000);
    bring_in(&org, 0..32);
    bring_in(&org, 32..64);
    let whole = all.usage().bytes;
    assert_eq!(all.evict_idle(at(0)), 0);
    assert_eq!(all.evict_idle(at(300)), 0);
    assert_eq!(read_rows(&org, org.query(), 0..32), 32);
    assert_eq!(all.evict_idle(at(599)), 0);
    assert_eq!((all.evict_idle(at(600)), all.usage().bytes), (whole / 2, whole / 2));
    assert_eq!(all.evict_idle(at(610)), 0, "used since then");
    assert_eq!(all.evict_idle(at(1_200)), whole / 2);
    // Setting the clock back does not stop the eviction.
    bring_in(&org, 0..32);
    assert_eq!((all.evict_idle(at(10)), all.evict_idle(at(609)), all.evict_idle(at(610))), (0, 0, whole / 2));
}

#[test]
fn concurrent_readers_get_the_inserted_values_and_all_bytes_are_accounted_for() {
    let all = BlockCache::new(96 << 10);
    let orgs = [OrgCache::new(&all), OrgCache::new(&all)];
    std::thread::scope(|threads| {
        for org in &orgs {
            for from in [0, 8, 40] {
                threads.spawn(move || {
                    for _ in 0..40 {
                        read_rows(org, org.query(), from..from + 64);
                    }
                });
            }
            threads.spawn(move || {
                for _ in 0..10 {
                    org.remove_segments(&[1]);
                }
            });
        }
    });
    let usage = all.usage();
    assert_eq!(usage.hits + usage.misses, 2 * 3 * 40 * 64);
    assert!(usage.bytes <= 96 << 10, "{usage:?}");
    assert_eq!(usage.bytes, orgs.iter().map(|org| org.bytes()).sum::<u64>());
    orgs.iter().for_each(|org| org.remove_segments(&[1]));
    assert_eq!(all.usage().bytes, 0);
}

#[test]
fn a_cache_of_0_bytes_is_off() {
    let org = OrgCache::new(&BlockCache::new(0));
    assert!(org.handle(org.query()).is_none());
}

#[derive(Clone, Debug)]
enum CacheAction {
    Read { org: usize, segment: u64, from: usize, rows: usize },
    Forget { org: usize, segment: u64 },
    Age,
}

fn act() -> impl Strategy<Value = CacheAction> {
    prop_oneof![
        12 => (0usize..3, 1u64..4, 0usize..200, 1usize..80)
            .prop_map(|(org, segment, from, rows)| CacheAction::Read { org, segment, from, rows }),
        1 => (0usize..3, 1u64..4).prop_map(|(org, segment)| CacheAction::Forget { org, segment }),
        1 => Just(CacheAction::Age),
    ]
}

proptest! {
    /// Every hit has the inserted values (checked by [`read_addresses`]), the bound holds, and all
    /// bytes are accounted for.
    #[test]
    fn the_bound_holds_for_any_sequence_of_actions(
        acts in prop::collection::vec(act(), 1..60),
        bytes_max in prop_oneof![Just(1_000u64), Just(5_000), 10_000u64..200_000],
    ) {
        let all = BlockCache::new(bytes_max);
        let orgs: Vec<Arc<OrgCache>> = (0..3).map(|_| OrgCache::new(&all)).collect();
        for (step, act) in acts.into_iter().enumerate() {
            match act {
                CacheAction::Read { org, segment, from, rows } => {
                    let places = (from..from + rows).map(|row| BlockAddress { segment, ..address(row) });
                    read_addresses(&orgs[org], orgs[org].query(), places.clone());
                    let few = places.take(RANGES_MAX).map(|address| BlockRange { address, count: 500, wanted: 490..500 });
                    get_many(&orgs[org], &few.collect::<Vec<_>>());
                }
                CacheAction::Forget { org, segment } => orgs[org].remove_segments(&[segment]),
                CacheAction::Age => {
                    let seconds = i64::try_from(step).expect("few") * 300;
                    all.evict_idle(Timestamp::from_ms(seconds * 1_000));
                }
            }
            prop_assert!(all.usage().bytes <= bytes_max);
            for org in &orgs {
                let shards = org.shards.get().into_iter().flat_map(|shards| shards.iter());
                let held: u64 = shards.map(|shard| read(shard).values().map(|group| group.bytes()).sum::<u64>()).sum();
                prop_assert_eq!(org.bytes(), held);
            }
            prop_assert_eq!(all.usage().bytes, orgs.iter().map(|org| org.bytes()).sum::<u64>());
        }
        drop(orgs);
        prop_assert_eq!(all.usage().bytes, 0);
    }
}
