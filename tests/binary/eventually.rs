//! The only wait of the tests: polls until a condition holds.

use std::time::Duration;

use promlet::clock::Stopwatch;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `probe` until it returns a value, and returns that value.
///
/// # Panics
/// With the text of `failure` if `probe` returns none within `limit`.
#[expect(clippy::panic, reason = "a condition that never holds fails the test")]
#[track_caller]
pub(crate) fn eventually<T>(
    limit: Duration,
    failure: impl Fn() -> String,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let waited = Stopwatch::start();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        if waited.elapsed() >= limit {
            panic!("after {:?}: {}", waited.elapsed(), failure());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
