//! File descriptors: how many the process may have, some kept back for the store, and operations that are tried again.
//!
//! Connections are what uses descriptors up. They are bounded below what the process may have ([`raise_limit`] says how
//! much that is), and a few descriptors are held open for nothing else but to be given up when the store needs one.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sync::IgnorePoison as _;

/// Descriptors that are kept back.
const SPARES: usize = 16;
/// The soft limit is raised to this at most: some kernels reject more, and some libraries keep a table of all.
const LIMIT_MAX: u64 = 1 << 20;
/// Pauses before the second and each later attempt.
const PAUSES_MS: [u64; 7] = [0, 1, 2, 5, 10, 30, 100];
/// Pauses of the last length for a sync that signals interrupt: 10 s.
const INTERRUPTIONS_MAX: usize = 100;

static SPARE: Mutex<Vec<File>> = Mutex::new(Vec::new());

fn spares() -> MutexGuard<'static, Vec<File>> {
    // A list of files is whole after every statement.
    SPARE.lock().ignore_poison()
}

/// Raises the soft limit of open files to the hard one. Returns the soft limit that holds afterwards.
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

/// Opens the spare descriptors, as many of them as are missing and to be had.
pub(crate) fn keep_spares() {
    let mut spares = spares();
    while spares.len() < SPARES
        && let Ok(file) = File::open("/dev/null")
    {
        spares.push(file);
    }
}

/// Whether an operation failed for want of something that comes back: descriptors, memory, or time without signals. It
/// has done nothing then.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let transient = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
    error.raw_os_error().is_some_and(|code| transient.iter().any(|errno| errno.raw_os_error() == code))
}

/// Does something that may be done twice; again where it failed for want of something that comes back, with one spare
/// descriptor more each time.
///
/// # Errors
/// Those of the last attempt.
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

/// Does a sync; again where a signal interrupted it, which leaves what is to be written as it was.
///
/// # Errors
/// Those of the last attempt. No other failure is tried again: what a sync that failed left behind is unknown.
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
    fn what_comes_back_is_tried_again_and_nothing_else_is() {
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
    fn a_sync_is_tried_again_where_a_signal_interrupted_it_and_never_otherwise() {
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
    fn spares_are_given_up_one_by_one_and_opened_again() {
        keep_spares();
        assert_eq!(spares().len(), SPARES);
        drop(failing(2, Errno::MFILE.raw_os_error()));
        // Another test may be at it as well: never more than there should be.
        keep_spares();
        assert!(spares().len() <= SPARES);
    }
}
