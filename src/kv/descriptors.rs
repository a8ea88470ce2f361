//! File descriptors: the limit of the process, spares for the store, and retries of failed
//! operations.
//!
//! Connections use descriptors up. Their number is bounded below the limit of the process (see
//! [`raise_limit`]), and a few descriptors are held open only to be given up when the store needs
//! one.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sync::IgnorePoison as _;

/// Number of spare descriptors.
const SPARES: usize = 16;
/// Maximum to which the soft limit is raised: some kernels reject more, and some libraries allocate
/// a table of that size.
const LIMIT_MAX: u64 = 1 << 20;
/// Pauses before the second and each later attempt, milliseconds.
const PAUSES_MS: [u64; 7] = [0, 1, 2, 5, 10, 30, 100];
/// Number of additional pauses of the last length for a sync interrupted by signals: 10 s.
const INTERRUPTIONS_MAX: usize = 100;

static SPARE: Mutex<Vec<File>> = Mutex::new(Vec::new());

fn spares() -> MutexGuard<'static, Vec<File>> {
    // The list is consistent after every statement.
    SPARE.lock().ignore_poison()
}

/// Raises the soft limit of open files to the hard one. Returns the resulting soft limit.
pub(crate) fn raise_limit() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let wanted = before.maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    let holds = |limit: Rlimit| limit.current.unwrap_or(LIMIT_MAX);
    if holds(before) < wanted
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..before })
    {
        tracing::warn!(%error, "the limit of open files stays at {}", holds(before));
    }
    holds(getrlimit(Resource::Nofile))
}

/// Opens missing spare descriptors, as far as descriptors are available.
pub(crate) fn keep_spares() {
    let mut spares = spares();
    while spares.len() < SPARES
        && let Ok(file) = File::open("/dev/null")
    {
        spares.push(file);
    }
}

/// Returns whether an operation failed for lack of a resource that may become available again:
/// descriptors, memory, or time without signals. Such an operation has had no effect.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let transient = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
    error.raw_os_error().is_some_and(|code| transient.iter().any(|errno| errno.raw_os_error() == code))
}

/// Runs an idempotent operation and retries it after a transient error, with one more spare
/// descriptor released each time.
///
/// # Errors
/// The error of the last attempt.
pub(super) fn retrying<T>(operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut gave_up = false;
    for pause in PAUSES_MS {
        match operation() {
            Err(error) if is_transient(&error) => {
                gave_up |= spares().pop().is_some();
                std::thread::sleep(Duration::from_millis(pause));
            }
            done => {
                if gave_up {
                    keep_spares();
                }
                return done;
            }
        }
    }
    operation()
}

/// Runs a sync and retries it if a signal interrupted it, which leaves the data to be written
/// unchanged.
///
/// # Errors
/// The error of the last attempt. No other failure is retried: the state after a failed sync is
/// unknown.
pub(super) fn retrying_interrupted(sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let last = PAUSES_MS.last().copied().unwrap_or_default();
    for pause in PAUSES_MS.into_iter().chain(std::iter::repeat_n(last, INTERRUPTIONS_MAX)) {
        match sync() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                std::thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    sync()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn failing(times: u32, code: i32) -> (u32, io::Result<()>) {
        let attempts = Cell::new(0);
        let done = retrying(|| {
            attempts.set(attempts.get() + 1);
            if attempts.get() > times { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
        });
        (attempts.get(), done)
    }

    #[test]
    fn only_transient_errors_are_retried() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR] {
            let code = errno.raw_os_error();
            assert!(matches!(failing(3, code), (4, Ok(()))), "{errno}");
            let (attempts, done) = failing(u32::MAX, code);
            assert_eq!(attempts as usize, PAUSES_MS.len() + 1);
            assert!(done.is_err_and(|error| is_transient(&error)));
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::ACCESS] {
            let (attempts, done) = failing(u32::MAX, errno.raw_os_error());
            assert!(attempts == 1 && done.is_err_and(|error| !is_transient(&error)), "{errno}");
        }
    }

    #[test]
    fn a_sync_is_retried_only_after_an_interruption() {
        let failing = |times: u32, code: i32| {
            let attempts = Cell::new(0);
            let done = retrying_interrupted(|| {
                attempts.set(attempts.get() + 1);
                if attempts.get() > times { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
            });
            (attempts.get(), done)
        };
        assert!(matches!(failing(6, Errno::INTR.raw_os_error()), (7, Ok(()))));
        for errno in [Errno::IO, Errno::NOSPC, Errno::NOMEM] {
            let (attempts, done) = failing(1, errno.raw_os_error());
            assert!(attempts == 1 && done.is_err(), "{errno}");
        }
    }

    #[test]
    fn spares_are_released_one_by_one_and_opened_again() {
        keep_spares();
        assert_eq!(spares().len(), SPARES);
        drop(failing(2, Errno::MFILE.raw_os_error()));
        // Another test may run concurrently: there are never more than `SPARES`.
        keep_spares();
        assert!(spares().len() <= SPARES);
    }
}
