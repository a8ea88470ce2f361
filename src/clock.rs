//! The wall clock, read only at the edge.
//!
//! The core takes `now: Timestamp` as an argument; only `api`, `outbound`, `tasks` and the wiring
//! hold a [`Clock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::model::Timestamp;

/// The source of the current time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// Milliseconds since the Unix epoch, set by the test that holds the clock.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Returns a clock that stands at `at` until [`Clock::advance`] moves it.
    pub fn manual(at: Timestamp) -> Clock {
        Clock::Manual(Arc::new(AtomicI64::new(at.as_ms())))
    }

    /// Returns the current time. Before 1970 it is negative.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => wall(),
            Clock::Manual(ms) => Timestamp::from_ms(ms.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward; has no effect on the system clock.
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

/// A monotonic stopwatch for durations in logs, statistics and deadlines; never for expiry.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a stopwatch.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Returns the milliseconds since the start, with fractions.
    pub fn elapsed_ms(&self) -> f64 {
        self.elapsed().as_secs_f64() * 1_000.0
    }
}
