//! Cancellable work of a request: metered in small units and checked before each part.

use std::cell::Cell;

/// Units between two checks. A unit is about a nanosecond of work, so a stop is noticed within some
/// 20 µs.
const UNITS_PER_CHECK: u64 = 20_000;

/// The read was cancelled; its caller knows the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the read was cancelled")]
pub struct Stopped;

/// Decides before each part of the work whether it may be done.
pub trait Conductor {
    /// Returns whether a part of `units` (about nanoseconds) may be done now.
    fn admits(&self, units: u64) -> bool;

    /// Returns whether a read may hold `bytes` in total.
    fn holds(&self, bytes: u64) -> bool;
}

/// Meters the work of one read. It asks a [`Conductor`] before every part that exceeds the units
/// left until the next check. A stop is permanent.
pub struct Pace<'a> {
    conductor: Option<&'a dyn Conductor>,
    left: Cell<u64>,
    held: Cell<u64>,
    stopped: Cell<bool>,
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("left", &self.left).field("held", &self.held).finish_non_exhaustive()
    }
}

impl<'a> Pace<'a> {
    /// Creates a pace that asks `conductor`.
    pub fn of(conductor: &'a dyn Conductor) -> Pace<'a> {
        Pace { conductor: Some(conductor), ..Pace::endless() }
    }

    /// Creates a pace that never stops, for work that no request waits for.
    pub fn endless() -> Pace<'a> {
        Pace { conductor: None, left: Cell::new(0), held: Cell::new(0), stopped: Cell::new(false) }
    }

    /// Requests `units` of work, about nanoseconds, before it is done.
    ///
    /// # Errors
    /// [`Stopped`], from the first refusal on.
    #[inline]
    pub fn spend(&self, units: u64) -> Result<(), Stopped> {
        match self.left.get().checked_sub(units) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => self.ask(units),
        }
    }

    /// Like [`Pace::spend`], for `count` items of `units` each.
    ///
    /// # Errors
    /// As for [`Pace::spend`].
    #[inline]
    pub fn spend_each(&self, count: usize, units: u64) -> Result<(), Stopped> {
        self.spend((count as u64).saturating_mul(units))
    }

    /// Requests `bytes` of memory in addition to those already held.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn hold(&self, bytes: u64) -> Result<(), Stopped> {
        let held = self.held.get().saturating_add(bytes);
        self.held.set(held);
        let may = !self.stopped.get() && self.conductor.is_none_or(|conductor| conductor.holds(held));
        if may { Ok(()) } else { self.stop() }
    }

    /// Like [`Pace::hold`], for `count` items of `bytes` each.
    ///
    /// # Errors
    /// As for [`Pace::hold`].
    pub fn hold_each(&self, count: usize, bytes: usize) -> Result<(), Stopped> {
        self.hold((count as u64).saturating_mul(bytes as u64))
    }

    /// Releases `bytes` of memory.
    pub fn release(&self, bytes: u64) {
        self.held.set(self.held.get().saturating_sub(bytes));
    }

    /// Returns whether any work was refused.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    #[cold]
    fn ask(&self, units: u64) -> Result<(), Stopped> {
        let may = !self.stopped.get() && self.conductor.is_none_or(|conductor| conductor.admits(units));
        if !may {
            return self.stop();
        }
        self.left.set(UNITS_PER_CHECK);
        Ok(())
    }

    fn stop(&self) -> Result<(), Stopped> {
        self.stopped.set(true);
        self.left.set(0);
        Err(Stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[derive(Default)]
    struct RecordingLimiter {
        asked: RefCell<Vec<u64>>,
        units_max: u64,
        bytes_max: u64,
    }

    impl Conductor for RecordingLimiter {
        fn admits(&self, units: u64) -> bool {
            self.asked.borrow_mut().push(units);
            units <= self.units_max
        }

        fn holds(&self, bytes: u64) -> bool {
            bytes <= self.bytes_max
        }
    }

    #[test]
    fn work_is_admitted_before_it_is_done_and_small_parts_are_checked_together() {
        let notes = RecordingLimiter { units_max: 1_000_000, ..RecordingLimiter::default() };
        let pace = Pace::of(&notes);
        for _ in 0..1_000 {
            assert_eq!(pace.spend(100), Ok(()));
        }
        // 100,000 units: the first part, and one check after every `UNITS_PER_CHECK` units.
        assert_eq!(notes.asked.borrow().len(), 5);
        assert_eq!(pace.spend(1_000_001), Err(Stopped));
        assert_eq!(pace.spend(1), Err(Stopped), "a refusal is final");
        assert_eq!(pace.hold(0), Err(Stopped));
        assert!(pace.is_stopped());
        assert_eq!(notes.asked.borrow().len(), 6, "nothing is asked after a refusal");
    }

    #[test]
    fn memory_is_requested_as_a_total() {
        let notes = RecordingLimiter { bytes_max: 100, ..RecordingLimiter::default() };
        let pace = Pace::of(&notes);
        assert_eq!(pace.hold(60), Ok(()));
        pace.release(30);
        assert_eq!(pace.hold_each(7, 10), Ok(()));
        assert_eq!(pace.hold(1), Err(Stopped));
        let endless = Pace::endless();
        assert_eq!((endless.spend(u64::MAX), endless.hold(u64::MAX)), (Ok(()), Ok(())));
    }
}
