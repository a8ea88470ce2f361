//! Starts through seals, checkpoints and replays.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns the start at each time of `TIMES`, from sealed content and the head.
fn by_time(sealed: &Sealed, head: &StartTimestamps) -> Vec<Option<i64>> {
    let (mut changes, mut late) = sealed.clone();
    head.copy_all(&mut changes, &mut late);
    sort_and_dedup_starts(&mut changes);
    let changes = late.merged_into(changes);
    let at = |time: i64| changes.iter().take_while(|(from, _)| *from <= time).last();
    TIMES.map(|time| at(time).map(|(_, start)| *start)).collect()
}

type Sealed = (Vec<(i64, i64)>, LateStarts);

const TIMES: std::ops::Range<i64> = 0..60;

#[derive(Clone, Debug)]
enum StartStep {
    Put(i64, i64),
    /// A seal of the times before the greatest one minus this.
    Seal(i64),
    FailedSeal(i64),
    /// Loads the head from a checkpoint.
    Checkpoint,
    /// Replays all records onto an empty head, or onto one that has their content.
    Replay {
        empty: bool,
    },
}

fn step() -> impl Strategy<Value = StartStep> {
    prop_oneof![
        8 => (TIMES, 0i64..4).prop_map(|(at, start)| StartStep::Put(at, start)),
        1 => (0i64..30).prop_map(StartStep::Seal),
        1 => (0i64..30).prop_map(StartStep::FailedSeal),
        1 => Just(StartStep::Checkpoint),
        1 => any::<bool>().prop_map(|empty| StartStep::Replay { empty }),
    ]
}

proptest! {
    #[test]
    fn every_sample_has_its_start_and_replays_and_seals_change_nothing(steps in prop::collection::vec(step(), 0..60)) {
        let (mut head, mut model) = (StartTimestamps::default(), BTreeMap::new());
        let (mut sealed, mut log) = (Sealed::default(), Vec::new());
        // The barrier, and the one that is recorded with the segments.
        let (mut barrier, mut recorded) = (i64::MIN, i64::MIN);
        for (seq, step) in (0u64..).zip(&steps) {
            let before = by_time(&sealed, &head);
            match step {
                StartStep::Put(at, start) => {
                    head.put(*at, *start, seq, barrier);
                    log.push((*at, *start, seq, barrier));
                    model.insert(*at, *start);
                }
                StartStep::Seal(back) | StartStep::FailedSeal(back) => {
                    let greatest = model.last_key_value().map_or(0, |(at, _)| *at);
                    barrier = barrier.max(greatest - back);
                    head.close(barrier);
                    if matches!(step, StartStep::Seal(_)) {
                        head.copy_closed(barrier, &mut sealed.0, &mut sealed.1);
                        head.release(barrier);
                        log.retain(|(at, ..)| *at >= barrier);
                        recorded = barrier;
                    } else {
                        head.reopen();
                    }
                }
                StartStep::Checkpoint => {
                    let mut bytes = Vec::new();
                    head.encode(&mut bytes);
                    let late = std::mem::take(&mut head.late);
                    head = StartTimestamps { late, ..StartTimestamps::decode(&bytes).expect("decoded") };
                }
                StartStep::Replay { empty } => {
                    if *empty {
                        head = StartTimestamps::default();
                    }
                    for (at, start, seq, barrier) in &log {
                        head.put(*at, *start, *seq, recorded.max(*barrier));
                    }
                }
            }
            let after = by_time(&sealed, &head);
            if !matches!(step, StartStep::Put(..)) {
                prop_assert_eq!(&after, &before, "{:?}", step);
            }
            for (at, start) in &model {
                prop_assert_eq!(after[usize::try_from(*at).expect("small")], Some(*start), "at {}", at);
            }
            prop_assert!(head.changes.is_sorted_by(|a, b| a.0 < b.0));
        }
    }

    #[test]
    fn samples_out_of_order_with_the_same_start_take_no_memory(times in prop::collection::vec(1i64..60, 0..60)) {
        let mut starts = StartTimestamps::default();
        starts.put(0, 7, 0, i64::MIN);
        for (seq, at) in (1u64..).zip(times) {
            starts.put(at, 7, seq, i64::MIN);
        }
        prop_assert_eq!((starts.changes, starts.late), (vec![(0, 7)], LateStarts::default()));
    }

    #[test]
    fn a_seal_of_all_times_loses_no_start(
        first in prop::collection::vec((0i64..40, 0i64..4), 0..30),
        second in prop::collection::vec((40i64..60, 0i64..4), 0..30),
        again in prop::option::of(0i64..4),
        fails: bool,
    ) {
        let (mut head, mut sealed) = (StartTimestamps::default(), Sealed::default());
        let mut model = BTreeMap::new();
        // The newest start of the first ones may be sent again with another value.
        let newest = first.iter().map(|(at, _)| *at).max();
        let again = newest.zip(again);
        for (seq, (at, start)) in (0u64..).zip(first.iter().chain(&again).chain(&second)) {
            if seq == first.len() as u64 {
                head.close_all();
            }
            head.put(*at, *start, seq, i64::MIN);
            model.insert(*at, *start);
        }
        for done in [false, true] {
            if done && fails {
                head.reopen();
            } else if done {
                head.copy_closed(i64::MIN, &mut sealed.0, &mut sealed.1);
                head.release(i64::MIN);
            }
            let found = by_time(&sealed, &head);
            for (at, start) in &model {
                prop_assert_eq!(found[usize::try_from(*at).expect("small")], Some(*start), "at {}", at);
            }
        }
    }
}

#[test]
fn a_steady_counter_is_one_change() {
    let mut starts = StartTimestamps::default();
    for time in 0..1_000 {
        starts.put(time * 15_000, if time < 500 { 7 } else { 8_000 }, 0, i64::MIN);
    }
    assert_eq!(starts.changes, [(0, 7), (7_500_000, 8_000)]);
    assert_eq!(within(&starts.changes, 1, 100), [(0, 7)]);
    assert_eq!(within(&starts.changes, 8_000_000, 9_000_000), [(7_500_000, 8_000)]);
    starts.release(9_000_000);
    assert_eq!(starts.changes, [(7_500_000, 8_000)]);
}
