//! Locks that ignore poisoning.
//!
//! A panic poisons the locks that its thread holds. Code under our locks either cannot panic, or
//! leaves the locked data consistent at every point where it can. So other threads continue with
//! the data, and one panic does not stop the server.

use std::sync::{PoisonError, TryLockError};

/// Extends the results of [`std::sync::Mutex`], [`std::sync::RwLock`] and [`std::sync::Condvar`].
pub(crate) trait IgnorePoison {
    /// The value of the successful call, usually a guard.
    type Guard;

    /// Returns the guard, whether or not a thread panicked while it held the lock.
    fn ignore_poison(self) -> Self::Guard;
}

impl<G> IgnorePoison for Result<G, PoisonError<G>> {
    type Guard = G;

    fn ignore_poison(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G> IgnorePoison for Result<G, TryLockError<G>> {
    /// `None` if the lock is held by another thread.
    type Guard = Option<G>;

    fn ignore_poison(self) -> Option<G> {
        match self {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_lock_is_usable_after_a_panic_under_it() {
        let number = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let panics = || {
                let _guard = number.lock();
                panic!("under the lock");
            };
            scope.spawn(panics).join()
        });
        assert!(panicked.is_err() && number.is_poisoned());
        assert_eq!(*number.lock().ignore_poison(), 1);
        let guard = number.try_lock().ignore_poison();
        assert!(guard.is_some() && number.try_lock().ignore_poison().is_none());
    }
}
