//! Tests of the head against a model of three maps per series.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::Timestamp;

/// Series of two stripes, and of two blocks of one stripe.
const SERIES: [u32; 4] = [0, 1, 40, 1_500];

#[derive(Clone, Debug)]
enum HeadStep {
    Append {
        series: usize,
        at: i64,
        bits: u64,
    },
    Close {
        until: i64,
    },
    Release,
    Reopen,
    Delete {
        series: usize,
        first: i64,
        last: i64,
    },
    Reload,
    /// A start begins or ends.
    ShortTails(bool),
}

/// Times mostly continue from the current time (the number of steps), and sometimes jump.
fn step() -> impl Strategy<Value = HeadStep> {
    let at = prop_oneof![
        20 => 0i64..40,
        4 => -300i64..40,
        1 => prop_oneof![Just(-70_000_000_000i64), Just(5_000_000_000), Just(70_000)],
    ];
    let bits = prop_oneof![4 => 0u64..3, 1 => any::<u64>()];
    prop_oneof![
        60 => (0usize..4, at, bits).prop_map(|(series, at, bits)| HeadStep::Append { series, at, bits }),
        1 => (-100i64..60).prop_map(|until| HeadStep::Close { until }),
        1 => Just(HeadStep::Release),
        1 => Just(HeadStep::Reopen),
        1 => (0usize..4, -200i64..40, 0i64..200)
            .prop_map(|(series, first, length)| HeadStep::Delete { series, first, last: first + length }),
        1 => Just(HeadStep::Reload),
        1 => any::<bool>().prop_map(HeadStep::ShortTails),
    ]
}

/// The rules in their simplest form.
#[derive(Clone, Default)]
struct HeadModel {
    in_order: BTreeMap<i64, u64>,
    frozen: BTreeMap<i64, u64>,
    late: BTreeMap<i64, u64>,
}

impl HeadModel {
    fn put(&mut self, at: i64, bits: u64, barrier: i64) -> Option<u64> {
        let last = self.in_order.last_key_value().map(|(at, bits)| (*at, *bits));
        match last {
            _ if at < barrier => {}
            Some((last, have)) if at == last => return (bits != have).then_some(have),
            Some((last, _)) if at < last => {}
            _ => {
                // If the newest samples in order were deleted, a late one may have this time. The
                // last write wins.
                self.late.remove(&at);
                self.frozen.remove(&at);
                self.in_order.insert(at, bits);
                return None;
            }
        }
        let known = [&self.late, &self.frozen, &self.in_order].into_iter().find_map(|map| map.get(&at));
        if known != Some(&bits) {
            self.late.insert(at, bits);
        }
        None
    }

    fn close(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.frozen.extend(late);
    }

    fn closed(&self, barrier: i64) -> Vec<(i64, u64)> {
        let mut all = self.in_order.clone();
        all.extend(&self.frozen);
        all.into_iter().filter(|(at, _)| *at < barrier).collect()
    }

    fn release(&mut self, barrier: i64) {
        self.in_order.retain(|at, _| *at >= barrier);
        self.frozen.retain(|at, _| *at >= barrier);
        self.reopen();
    }

    fn reopen(&mut self) {
        let newer = std::mem::replace(&mut self.late, std::mem::take(&mut self.frozen));
        self.late.extend(newer);
    }

    fn reload(&mut self) {
        self.reopen();
        self.late.retain(|at, bits| self.in_order.get(at) != Some(bits));
    }

    fn delete(&mut self, first: i64, last: i64) {
        for map in [&mut self.in_order, &mut self.frozen, &mut self.late] {
            map.retain(|at, _| *at < first || last < *at);
        }
    }

    fn all(&self) -> Vec<(i64, u64)> {
        let mut all = self.in_order.clone();
        all.extend(&self.frozen);
        all.extend(&self.late);
        all.into_iter().collect()
    }
}

fn head() -> Head {
    Head::new(Arc::default(), false)
}

/// A head as during a start.
fn short_tails() -> Head {
    Head::new(Arc::default(), true)
}

fn pairs(out: &SampleColumns) -> Vec<(i64, u64)> {
    out.times.iter().copied().zip(out.values.iter().map(|value| value.to_bits())).collect()
}

fn read(head: &Head, series: u32, range: TimeRange) -> (Vec<(i64, u64)>, i64) {
    let mut out = SampleColumns::default();
    let released = head
        .stripe(series)
        .map_or(i64::MIN, |s| s.read().expect("no panic").read(slot(series), range, &mut out));
    (pairs(&out), released)
}

fn closed(head: &Head, series: u32) -> Vec<(i64, u64)> {
    let mut out = SampleColumns::default();
    head.copy_closed(series, &mut out);
    pairs(&out)
}

/// Returns the head that a start loads from a checkpoint of this head.
fn reloaded(head: &Head, again: Head) -> Head {
    again.close_window(head.barrier());
    for series in SERIES {
        let Some(stripe) = head.stripe(series) else { continue };
        stripe.read().expect("no panic").copy_chunks(slot(series), |order, samples, least, bytes| {
            assert!(bytes.len() < 3_000);
            let mut minis = crate::tsdb::chunk::decode(bytes);
            assert_eq!(minis.next().expect("a chunk").and_then(|m| m.times().first().copied()), Some(least));
            let load = |stripe: &mut Stripe| stripe.load_chunk(slot(series), order, samples, bytes, i64::MIN);
            again.load(series, load).expect("loads");
        });
        again.load(series, |stripe| stripe.shorten_tails(slot(series)));
    }
    again
}

fn range(first: i64, last: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_ms(first), Timestamp::from_ms(last))
}

fn check(head: &Head, models: &[HeadModel; 4], ends: (i64, i64), released: i64) -> Result<(), TestCaseError> {
    let mut all = Vec::new();
    for (series, model) in SERIES.into_iter().zip(models) {
        let expected = model.all();
        let (have, until) = read(head, series, TimeRange::ALL);
        prop_assert_eq!(&have, &expected);
        // A stripe may be newer than the release.
        prop_assert!(until == released || until == i64::MIN);
        let within: Vec<_> =
            expected.iter().filter(|(at, _)| ends.0 <= *at && *at <= ends.1).copied().collect();
        prop_assert_eq!(read(head, series, range(ends.0, ends.1)).0, within);
        prop_assert_eq!(closed(head, series), model.closed(head.barrier()));
        let span = head.stripe(series).and_then(|s| s.read().expect("no panic").span(slot(series)));
        prop_assert_eq!(span.map(|s| s.first), expected.first().map(|s| s.0));
        prop_assert_eq!(span.map(|s| s.last), expected.last().map(|s| s.0));
        all.extend(expected.iter().map(|s| s.0));
    }
    prop_assert_eq!(head.least_ms(), all.iter().min().copied());
    prop_assert_eq!(head.greatest_ms(), all.iter().max().copied());
    let count = |of: fn(&HeadModel) -> usize| models.iter().map(of).sum::<usize>() as u64;
    let counters = &head.counters;
    let late = count(|m| m.late.len() + m.frozen.len());
    prop_assert_eq!(counters.late.load(Ordering::Relaxed), late);
    prop_assert_eq!(counters.samples.load(Ordering::Relaxed), late + count(|m| m.in_order.len()));
    prop_assert_eq!(head.total_bytes.load(Ordering::Relaxed), counters.bytes.load(Ordering::Relaxed));
    Ok(())
}

proptest! {
    #[test]
    fn a_head_equals_its_model(
        steps in prop::collection::vec(step(), 1..600),
        ends in (-60i64..700, -60i64..700),
    ) {
        let mut head = head();
        let mut models: [HeadModel; 4] = Default::default();
        let (mut now, mut barrier, mut released) = (0, i64::MIN, i64::MIN);
        for (seq, step) in (1..).zip(&steps) {
            match *step {
                HeadStep::Append { series, at, bits } => {
                    now += 1;
                    let sample = LogSample { series: SERIES[series], at_ms: now + at, bits };
                    let outcome = head.apply(seq, &[sample], |_| false);
                    let have = models[series].put(now + at, bits, barrier);
                    prop_assert_eq!(outcome.stored, u64::from(have.is_none()));
                    prop_assert_eq!(outcome.first.first().map(|first| first.have), have);
                }
                HeadStep::Close { until } => {
                    barrier = barrier.max(now + until);
                    head.close_window(now + until);
                    models.iter_mut().for_each(HeadModel::close);
                }
                HeadStep::Release if barrier > i64::MIN => {
                    released = barrier;
                    head.release_closed();
                    models.iter_mut().for_each(|model| model.release(barrier));
                }
                HeadStep::Release => {}
                HeadStep::Reopen => {
                    head.reopen();
                    models.iter_mut().for_each(HeadModel::reopen);
                }
                HeadStep::Delete { series, first, last } => {
                    head.delete(SERIES[series], range(now + first, now + last));
                    models[series].delete(now + first, now + last);
                }
                HeadStep::ShortTails(short_tails) => head.set_short_tails(short_tails),
                HeadStep::Reload => {
                    // A crash loses the freeze, not the samples. The times of releases are not part
                    // of a checkpoint.
                    head.reopen();
                    models.iter_mut().for_each(HeadModel::reload);
                    head = reloaded(&head, short_tails());
                    released = i64::MIN;
                }
            }
        }
        check(&head, &models, ends, released)?;
        for again in [reloaded(&head, super::tests::head()), reloaded(&head, short_tails())] {
            for (series, model) in SERIES.into_iter().zip(&models) {
                prop_assert_eq!(read(&again, series, TimeRange::ALL).0, model.all());
            }
        }
    }
}

fn apply(head: &Head, samples: &[(u32, i64, u64)]) -> ApplyOutcome {
    let samples: Vec<LogSample> = samples
        .iter()
        .map(|(series, at_ms, bits)| LogSample { series: *series, at_ms: *at_ms, bits: *bits })
        .collect();
    head.apply(1, &samples, |_| false)
}

#[test]
fn a_sample_before_the_barrier_is_late_whatever_the_series_has() {
    let head = head();
    assert_eq!(head.barrier(), i64::MIN);
    head.close_window(100);
    head.close_window(50);
    assert_eq!(head.barrier(), 100, "the barrier never decreases");
    assert_eq!(apply(&head, &[(0, 99, 1), (0, 100, 2), (0, 99, 3)]).stored, 3);
    assert_eq!(head.counters.late.load(Ordering::Relaxed), 1);
    assert_eq!(closed(&head, 0), [], "a sample after the window was closed is not part of it");
    assert_eq!(read(&head, 0, TimeRange::ALL).0, [(99, 3), (100, 2)]);
    assert_eq!(apply(&head, &[(0, 100, 9)]).refused, 1);
}

#[test]
fn a_seal_takes_exactly_the_samples_that_arrived_before_it() {
    let head = head();
    apply(&head, &[(0, 10, 1), (0, 30, 2), (0, 20, 3), (0, 110, 4), (0, 105, 5), (1_500, 7, 8)]);
    head.close_window(100);
    apply(&head, &[(0, 20, 6), (0, 105, 7), (0, 120, 8)]);
    assert_eq!(closed(&head, 0), [(10, 1), (20, 3), (30, 2)]);
    assert_eq!(closed(&head, 1_500), [(7, 8)]);
    let all = [(10, 1), (20, 6), (30, 2), (105, 7), (110, 4), (120, 8)];
    assert_eq!(read(&head, 0, TimeRange::ALL), (all.to_vec(), i64::MIN));
    head.release_closed();
    let left = [(20, 6), (105, 7), (110, 4), (120, 8)];
    assert_eq!(read(&head, 0, TimeRange::ALL), (left.to_vec(), 100));
    assert_eq!((head.least_ms(), head.greatest_ms()), (Some(20), Some(120)));
    assert_eq!(read(&head, 1_500, TimeRange::ALL), (vec![], 100));
    // The next window takes the remaining samples.
    head.close_window(200);
    assert_eq!(closed(&head, 0), left);
    head.release_closed();
    assert_eq!((head.least_ms(), head.counters.samples.load(Ordering::Relaxed)), (None, 0));
}

#[test]
fn a_failed_seal_changes_no_sample() {
    let head = head();
    apply(&head, &[(0, 10, 1), (0, 30, 2), (0, 20, 3), (0, 15, 3)]);
    head.close_window(100);
    apply(&head, &[(0, 20, 4)]);
    head.reopen();
    assert_eq!(closed(&head, 0), [(10, 1), (30, 2)]);
    head.close_window(100);
    assert_eq!(closed(&head, 0), [(10, 1), (15, 3), (20, 4), (30, 2)]);
}

#[test]
fn a_deleted_sample_may_be_written_again_with_other_bits() {
    let head = head();
    apply(&head, &[(0, 10, 1), (0, 20, 2), (0, 5, 3)]);
    head.delete(0, range(20, 30));
    assert_eq!(apply(&head, &[(0, 20, 7)]).stored, 1);
    head.delete(0, range(0, 10));
    assert_eq!(read(&head, 0, TimeRange::ALL).0, [(20, 7)]);
    head.delete(0, TimeRange::ALL);
    assert_eq!((head.least_ms(), head.counters.samples.load(Ordering::Relaxed)), (None, 0));
}

/// Checks the memory for senders that keep their interval and those that do not, and that the same
/// samples are read.
#[test]
fn irregular_times_take_memory_from_the_first_one_on() {
    let head = head();
    let put = |at: i64, series: u32| {
        head.apply(1, &[LogSample { series, at_ms: at, bits: at.cast_unsigned() }], |_| false);
    };
    let bytes = || head.counters.bytes.load(Ordering::Relaxed);
    for round in 0..12 {
        (0..64).for_each(|series| put(round * 15_000, series));
    }
    let regular = bytes();
    put(12 * 15_000 + 3, 7);
    assert!(bytes() > regular && bytes() < regular + 1_200, "{} after {regular}", bytes());
    for round in 12..40 {
        (0..64).filter(|series| (round, *series) != (12, 7)).for_each(|series| put(round * 15_000, series));
    }
    for series in 0..64 {
        let times: Vec<i64> = read(&head, series, TimeRange::ALL).0.into_iter().map(|(at, _)| at).collect();
        let off = |round: i64| if (round, series) == (12, 7) { 3 } else { 0 };
        assert_eq!(times, (0..40).map(|round| round * 15_000 + off(round)).collect::<Vec<_>>(), "{series}");
    }
    // Four series have as many records as full tails.
    assert_eq!(head.touch(&[0, 7, 63, 5_000]), 3 * 2);
    head.close_window(i64::MAX);
    head.release_closed();
    assert_eq!(bytes(), 0);
}

/// Fills a head with `rounds` samples of 64 series, checks that all are readable, and returns the
/// bytes and records.
fn filled(head: &Head, rounds: i64, at: impl Fn(i64, u32) -> i64) -> (u64, usize) {
    let value = |round: i64, series: u32| (round * 7 + i64::from(series)) as f64 / 10.0;
    for round in 0..rounds {
        for series in 0..64 {
            let bits = value(round, series).to_bits();
            head.apply(1, &[LogSample { series, at_ms: at(round, series), bits }], |_| false);
        }
    }
    for series in 0..64 {
        let all: Vec<_> =
            (0..rounds).map(|round| (at(round, series), value(round, series).to_bits())).collect();
        assert_eq!(read(head, series, TimeRange::ALL).0, all, "{series}");
    }
    (head.counters.bytes.load(Ordering::Relaxed), head.touch(&(0..64).collect::<Vec<_>>()))
}

#[test]
fn a_start_keeps_tails_short_without_more_records() {
    let regular = |round: i64, series: u32| round * 15_000 + i64::from(series);
    let (mut most, mut most_of_start) = (0, 0);
    for rounds in 1..=80 {
        let ((live, records), (start, of_start)) =
            (filled(&head(), rounds, regular), filled(&short_tails(), rounds, regular));
        (most, most_of_start) = (most.max(live), most_of_start.max(start));
        // There are as many full records, and at most one more that will be joined.
        assert!(
            (records..=records + 64).contains(&of_start),
            "{of_start} records for {records}, {rounds} rounds"
        );
        if rounds > 4 {
            assert!(start + 64 * 60 < live, "{start} B for {live}, {rounds} rounds");
        }
    }
    assert!(most_of_start * 4 < most * 3, "{most_of_start} B at most for {most}");
}

#[test]
fn records_with_irregular_times_are_joined_too() {
    let jitter = |round: i64, series: u32| round * 15_000 + (round * 7 + i64::from(series)) % 5;
    let ((live, records), (start, of_start)) =
        (filled(&head(), 200, jitter), filled(&short_tails(), 200, jitter));
    assert!(
        of_start <= records + 128 && start < live,
        "{of_start} records, {start} B for {records}, {live} B"
    );
    // A permanently changed interval is recorded once.
    let changed = |round: i64, _| if round < 50 { round * 15_000 } else { 750_000 + (round - 50) * 20_000 };
    let ((live, records), (start, of_start)) =
        (filled(&head(), 200, changed), filled(&short_tails(), 200, changed));
    assert!(
        of_start <= records + 128 && start < live,
        "{of_start} records, {start} B for {records}, {live} B"
    );
}

#[test]
fn after_a_start_tails_grow_to_the_usual_memory() {
    let put = |head: &Head, rounds: std::ops::Range<i64>| {
        for (round, series) in rounds.flat_map(|round| (0..64).map(move |series| (round, series))) {
            let sample = LogSample { series, at_ms: round * 15_000, bits: (round as f64).to_bits() };
            head.apply(1, &[sample], |_| false);
        }
        head.counters.bytes.load(Ordering::Relaxed)
    };
    let (never, after) = (head(), short_tails());
    put(&never, 0..90);
    put(&after, 0..90);
    after.set_short_tails(false);
    let (never, after) = (put(&never, 90..200), put(&after, 90..200));
    assert!(after < never + 64 * 40, "{after} B, {never} without a start");
}

/// Series that end in the middle of a record that would be joined keep the pages of those that
/// continue.
#[test]
fn records_that_are_never_joined_do_not_keep_replaced_memory() {
    let head = short_tails();
    for round in 0..400i64 {
        // A round has some series of each page.
        for series in (0..STRIPE_SERIES).filter(|series| round / 4 <= i64::from(*series % 100)) {
            let bits = ((round * 31 + i64::from(series) * 17) as f64 / 10.0).to_bits();
            head.apply(1, &[LogSample { series, at_ms: round * 15_000, bits }], |_| false);
        }
    }
    let bytes = head.counters.bytes.load(Ordering::Relaxed);
    let samples = head.counters.samples.load(Ordering::Relaxed);
    // Samples take less than a byte each. If replaced records were never released, it would be 600
    // kB.
    assert!(bytes < u64::from(STRIPE_SERIES) * 70 + samples + (96 << 10), "{bytes} B for {samples} samples");
}
