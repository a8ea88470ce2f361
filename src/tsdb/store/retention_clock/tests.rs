//! Tests of the retention clock: wrong clocks, stops of the server, and the bytes of its row.

use proptest::prelude::*;

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const START_MS: i64 = 1_795_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn body_of(clock: &RetentionClock) -> Vec<u8> {
    crate::kv::encode_body(clock).expect("encodes")
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

#[test]
fn a_clock_a_year_ahead_moves_retention_by_at_most_nine_times_the_running_time() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    for tick in 1..=360 {
        clock.advance(at(START_MS + 365 * DAY_MS + tick * 10_000), Duration::from_secs(10));
    }
    assert_eq!(clock.reached(), at(START_MS + 9 * HOUR_MS));
    assert_eq!(clock.confirmed(GRACE_MAX), None, "and no time is confirmed");
    clock.advance(at(START_MS + HOUR_MS), hours(1));
    assert_eq!(clock.reached(), at(START_MS + HOUR_MS), "the clock was corrected");
}

#[test]
fn a_new_clock_begins_at_the_latest_time_that_the_build_or_a_sample_confirms() {
    let (built, day_later) = (at(START_MS), at(START_MS + DAY_MS));
    let begun = |wall, built, newest| RetentionClock::new(wall, built, newest).reached();
    let ahead = at(START_MS + 365 * DAY_MS);
    assert_eq!(begun(ahead, Some(built), None), built, "an empty store, the clock a year ahead");
    assert_eq!(begun(ahead, Some(built), Some(day_later)), day_later);
    assert_eq!(begun(ahead, Some(day_later), Some(built)), day_later, "samples from before the build");
    assert_eq!(begun(built, Some(day_later), Some(ahead)), built, "the wall clock is earlier than both");
    assert_eq!(begun(ahead, None, Some(built)), built);
    assert_eq!(begun(ahead, None, None), ahead);
}

#[test]
fn an_empty_store_whose_clock_is_a_year_ahead_gains_eight_hours_an_hour() {
    let mut clock = RetentionClock::new(at(START_MS + 365 * DAY_MS), Some(at(START_MS)), None);
    for hour in 1..=10 {
        clock.advance(at(START_MS + 365 * DAY_MS + hour * HOUR_MS), hours(1));
        assert_eq!(clock.reached(), at(START_MS + hour * 9 * HOUR_MS));
    }
}

#[test]
fn samples_are_stored_for_72_hours_of_running_after_the_wall_clock_went_back() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    clock.advance(at(START_MS + HOUR_MS), hours(1));
    for hour in 1..=72 {
        clock.advance(at(START_MS + (hour - 365 * 24) * HOUR_MS), hours(1));
        assert_eq!(clock.latest(), at(START_MS + (1 + hour) * HOUR_MS), "after {hour} hours");
    }
    assert_eq!(clock.remaining_hold(), Some(Duration::ZERO));
    let fell = clock.clone();
    clock.advance(at(START_MS + (73 - 365 * 24) * HOUR_MS), hours(1));
    assert_eq!(clock.latest(), at(START_MS + (73 - LATEST_FALL) * HOUR_MS));
    let mut clock = fell;
    clock.advance(at(START_MS + 74 * HOUR_MS), hours(1));
    assert_eq!((clock.latest(), clock.remaining_hold()), (at(START_MS + 74 * HOUR_MS), None), "corrected");
}

#[test]
fn a_grace_period_continues_across_a_restart_and_a_moment_with_a_correct_clock() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    for hour in 1..=50 {
        clock.advance(at(START_MS + (hour - 30) * HOUR_MS), hours(1));
        clock = decode_body(&body_of(&clock)).expect("decodes");
    }
    assert_eq!(clock.remaining_hold(), Some(hours(22)));
    clock.advance(at(START_MS + 50 * HOUR_MS), Duration::ZERO);
    clock.advance(at(START_MS + 21 * HOUR_MS), hours(1));
    assert_eq!((clock.latest(), clock.remaining_hold()), (at(START_MS + 51 * HOUR_MS), Some(hours(71))));
}

#[test]
fn the_latest_time_follows_a_jump_ahead_no_faster_than_the_retention_clock() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    clock.advance(at(START_MS + 50 * 365 * DAY_MS), hours(1));
    assert_eq!((clock.reached(), clock.latest()), (at(START_MS + 9 * HOUR_MS), at(START_MS + 9 * HOUR_MS)));
}

#[test]
fn a_corrected_jump_ahead_leaves_no_trace() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    clock.advance(at(START_MS + HOUR_MS), hours(1));
    for hour in 2..=4 {
        clock.advance(at(START_MS + 365 * DAY_MS), hours(1));
        assert_eq!(clock.latest(), at(START_MS + (9 * hour - 8) * HOUR_MS));
    }
    clock.advance(at(START_MS + 5 * HOUR_MS), hours(1));
    assert_eq!((clock.latest(), clock.remaining_hold()), (clock.reached(), None));
    clock.advance(at(START_MS + 10 * HOUR_MS), hours(5));
    assert_eq!((clock.reached(), clock.latest()), (at(START_MS + 10 * HOUR_MS), at(START_MS + 10 * HOUR_MS)));
}

#[test]
fn the_gained_time_is_reported_until_the_grace_period_ends() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    clock.advance(at(START_MS + HOUR_MS), hours(1));
    assert_eq!(clock.gained(), Duration::ZERO);
    let mut gained = Vec::new();
    for hour in 2..=100 {
        clock.advance(at(START_MS + (hour + 40) * HOUR_MS), hours(1));
        gained.push(clock.gained());
    }
    // The clock catches up with 40 hours after 5 hours. The mark before that is the first one
    // for 72 hours more.
    assert_eq!(gained.iter().position(|gained| *gained == hours(40)), Some(4));
    let over = gained.iter().rposition(|gained| !gained.is_zero());
    assert!(over.is_some_and(|hour| (71..=77).contains(&hour)), "{over:?}");
}

#[test]
fn a_server_that_was_stopped_for_a_month_catches_up_within_four_days_of_running() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    clock.advance(at(START_MS), hours(100));
    let mut wall = START_MS + 30 * DAY_MS;
    for _ in 0..4 * 24 {
        wall += HOUR_MS;
        clock.advance(at(wall), hours(1));
    }
    assert_eq!(clock.reached(), at(wall));
    for _ in 0..72 {
        wall += HOUR_MS;
        clock.advance(at(wall), hours(1));
    }
    assert_eq!(clock.confirmed(GRACE_MAX), Some(at(wall - 72 * HOUR_MS)));
}

#[test]
fn a_minute_in_1970_delays_retention_by_eight_minutes() {
    let mut clock = RetentionClock::new(at(START_MS), None, None);
    let mut wall = START_MS;
    for _ in 0..200 {
        wall += HOUR_MS;
        clock.advance(at(wall), hours(1));
    }
    let before = clock.confirmed(GRACE_MAX);
    assert_eq!(before, Some(at(wall - 72 * HOUR_MS)));
    clock.advance(at(0), Duration::from_secs(60));
    assert_eq!(clock.confirmed(GRACE_MAX), before);
    assert_eq!(clock.reached(), at(wall - 8 * 60_000));
    assert_eq!(clock.latest(), at(wall + 60_000), "samples of a correct sender are accepted");
    clock.advance(at(wall + HOUR_MS), hours(1));
    assert_eq!(clock.reached(), at(wall + HOUR_MS));
}

#[test]
fn the_row_has_its_golden_bytes() {
    let marks = vec![ClockMark { running_ms: 3, at_ms: -2 }];
    let steady = ClockMark { running_ms: 8, at_ms: -9 };
    let clock = RetentionClock {
        running_ms: 300,
        reached_ms: 2,
        latest_ms: 5,
        marks,
        behind_since_ms: Some(7),
        steady,
    };
    // bincode: 300 is 251 and a u16; signed numbers are zigzag; a list begins with its length,
    // an option with 0 or 1.
    let body = [251, 0x2c, 0x01, 4, 10, 1, 3, 3, 1, 7, 8, 17];
    assert_eq!(body_of(&clock), body);
    assert_eq!(decode_body::<RetentionClock>(&body), Ok(clock));
}

#[test]
fn version_1_of_the_row_is_read() {
    let body = [251, 0x2c, 0x01, 4, 10, 1, 3, 3];
    let marks = vec![ClockMark { running_ms: 3, at_ms: -2 }];
    let steady = ClockMark { running_ms: 300, at_ms: 5 };
    let (running_ms, reached_ms, latest_ms) = (300, 2, 5);
    let clock = RetentionClock { running_ms, reached_ms, latest_ms, marks, behind_since_ms: None, steady };
    assert_eq!(RetentionClock::from_older(1, &body), Ok(clock));
    assert!(RetentionClock::from_older(0, &body).is_err());
}

proptest! {
    /// The retention clock advances only with the running time, not with the wall clock, and every
    /// confirmed time was reached a whole grace period ago.
    #[test]
    fn no_sequence_of_clocks_confirms_a_time_that_did_not_last(
        steps in prop::collection::vec((-400i64..400, 0u64..12, any::<bool>()), 1..200),
    ) {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        let mut stored = clock.clone();
        // The time reached at each running time of this history. A restart loses the part that
        // was not stored.
        let mut history: Vec<(u64, i64)> = Vec::new();
        let mut running = 0;
        for (days, ran, restarts) in steps {
            if restarts {
                clock = stored.clone();
                running = clock.running_ms;
                history.retain(|(then, _)| *then <= running);
            }
            let (before, ran) = (clock.clone(), hours(ran));
            clock.advance(at(START_MS + days * DAY_MS), ran);
            let ran_ms = i64::try_from(ran.as_millis()).expect("hours");
            prop_assert!(clock.reached_ms - before.reached_ms <= ran_ms * (1 + CATCH_UP));
            // Samples that agree with the latest time are not refused. Only the retention clock
            // moves it faster than time passes.
            prop_assert!(clock.latest_ms >= clock.reached_ms);
            prop_assert!(clock.latest_ms <= clock.reached_ms.max(before.latest_ms + ran_ms));
            let held = clock.behind_since_ms.is_some_and(|since| clock.running_ms - since <= GRACE_MAX_MS);
            prop_assert!(!held || clock.latest_ms >= before.latest_ms + ran_ms);
            running += ran_ms.unsigned_abs();
            history.push((running, clock.reached().as_ms()));
            let grace = u64::try_from(GRACE_MAX.as_millis()).expect("72 hours");
            if let Some(confirmed) = clock.confirmed(GRACE_MAX) {
                let lately = history.iter().filter(|(then, _)| then + grace > running);
                prop_assert!(lately.clone().all(|(_, reached)| confirmed.as_ms() <= *reached));
            }
            prop_assert!(clock.marks.len() <= 146 && clock.marks.is_sorted_by(|a, b| a.running_ms < b.running_ms));
            if clock.is_due(Some(&stored)) {
                stored = clock.clone();
            }
        }
    }
}
