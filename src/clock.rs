//! The wall clock, read only at the edge.
//!
//! The core takes `now: Timestamp` as an argument; what holds a [`Clock`] is `api`, `outbound`, `tasks` and the wiring.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::model::Timestamp;

/// Where `now` comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// Milliseconds since the Unix epoch, moved by the test that holds it.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `at` until [`Clock::advance`] moves it.
    pub fn manual(at: Timestamp) -> Clock {
        Clock::Manual(Arc::new(AtomicI64::new(at.as_ms())))
    }

    /// The present, in milliseconds since the Unix epoch. A wall clock before 1970 reads as the negative time it says.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => wall(),
            Clock::Manual(ms) => Timestamp::from_ms(ms.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward; the system clock is not ours to move and ignores it.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(ms) = self {
            ms.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
fn wall() -> Timestamp {
    let ms = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    };
    Timestamp::from_ms(ms)
}

/// Monotonic time since a moment, for durations in logs, statistics and deadlines; never for expiry.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Milliseconds since the start, with fractions.
    pub fn elapsed_ms(&self) -> f64 {
        self.elapsed().as_secs_f64() * 1_000.0
    }
}
