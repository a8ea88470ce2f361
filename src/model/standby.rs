//! Whether a process accepts changes, and when it acknowledges them (docs/standby.md section 3).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::sync::IgnorePoison as _;

/// The reason why a change is refused or not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandbyRefusal {
    /// This process is a follower: `follower`.
    #[error("this server follows another one and accepts no changes; send them to the primary")]
    Follower,
    /// Another process was promoted: `fenced`.
    #[error("another server was promoted in place of this one (epoch {epoch}); send changes there")]
    Fenced {
        /// The higher epoch.
        epoch: u64,
    },
    /// Changes are acknowledged only with a follower, and none is connected or none has confirmed
    /// the change in time: `standby_missing`.
    #[error("no standby has confirmed the change, and this server acknowledges nothing without one")]
    Missing,
}

/// The mode of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateMode {
    /// Changes are accepted, and acknowledged when they are durable here.
    #[default]
    Open,
    /// Changes are accepted while a follower is connected, and acknowledged when they are durable
    /// there, too.
    Synchronous,
    /// Only copied changes are accepted.
    Follower,
    /// No changes are accepted: a process with this epoch took over.
    Fenced(u64),
}

/// How a durable change is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// Now.
    Acknowledge,
    /// The change is answered when the follower has confirmed it.
    Wait,
    /// Never.
    Refuse(StandbyRefusal),
}

/// The one place in a process that decides whether changes are accepted and when they are
/// acknowledged. The log and the accounts share it.
#[derive(Debug, Default)]
pub struct WriteGate {
    mode: Mutex<GateMode>,
    connected: AtomicBool,
    /// Counts the groups of changes that became durable and visible.
    progress: Mutex<u64>,
    progressed: Condvar,
    /// Whether changes of accounts are kept for a follower.
    keeps_changes: AtomicBool,
    refused: AtomicU64,
}

impl WriteGate {
    fn locked(&self) -> MutexGuard<'_, GateMode> {
        self.mode.lock().ignore_poison()
    }

    /// Returns the mode.
    pub fn mode(&self) -> GateMode {
        *self.locked()
    }

    /// Sets the mode. A fenced gate changes only to a higher epoch.
    pub fn set_mode(&self, mode: GateMode) {
        let mut own = self.locked();
        match (*own, mode) {
            (GateMode::Fenced(have), GateMode::Fenced(new)) if new > have => *own = mode,
            (GateMode::Fenced(_), _) => {}
            _ => *own = mode,
        }
    }

    /// Returns whether this process is a follower.
    pub fn is_follower(&self) -> bool {
        self.mode() == GateMode::Follower
    }

    /// Sets whether a follower is connected.
    pub fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::SeqCst);
    }

    /// Returns whether a follower is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::SeqCst)
    }

    /// Checks whether a new change may be made.
    ///
    /// # Errors
    /// [`StandbyRefusal`]: nothing may be written.
    pub fn admit(&self) -> Result<(), StandbyRefusal> {
        let refusal = match self.mode() {
            GateMode::Open => return Ok(()),
            GateMode::Synchronous if self.is_connected() => return Ok(()),
            GateMode::Synchronous => StandbyRefusal::Missing,
            GateMode::Follower => StandbyRefusal::Follower,
            GateMode::Fenced(epoch) => StandbyRefusal::Fenced { epoch },
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(refusal)
    }

    /// Returns how a change is answered that is durable and visible here.
    pub fn answer(&self) -> GateAnswer {
        match self.mode() {
            GateMode::Open => GateAnswer::Acknowledge,
            GateMode::Synchronous => GateAnswer::Wait,
            GateMode::Follower => GateAnswer::Refuse(StandbyRefusal::Follower),
            GateMode::Fenced(epoch) => GateAnswer::Refuse(StandbyRefusal::Fenced { epoch }),
        }
    }

    /// Returns the number of refused changes.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Keeps changes of accounts for a follower from now on.
    pub fn keep_changes(&self) {
        self.keeps_changes.store(true, Ordering::SeqCst);
    }

    /// Returns whether changes of accounts are kept for a follower.
    pub fn keeps_changes(&self) -> bool {
        self.keeps_changes.load(Ordering::SeqCst)
    }

    /// Wakes up the streams: further changes are durable and visible.
    pub fn note_progress(&self) {
        let mut progress = self.progress.lock().ignore_poison();
        *progress = progress.wrapping_add(1);
        drop(progress);
        self.progressed.notify_all();
    }

    /// Returns the number of calls of [`WriteGate::note_progress`] once it differs from `seen`, or
    /// after `longest`.
    pub fn wait_for_progress(&self, seen: u64, longest: Duration) -> u64 {
        let progress = self.progress.lock().ignore_poison();
        if *progress != seen {
            return *progress;
        }
        let (progress, _) = self.progressed.wait_timeout(progress, longest).ignore_poison();
        *progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronous_gate_accepts_changes_only_with_a_follower() {
        let gate = WriteGate::default();
        assert_eq!((gate.admit(), gate.answer()), (Ok(()), GateAnswer::Acknowledge));
        gate.set_mode(GateMode::Synchronous);
        assert_eq!((gate.admit(), gate.answer()), (Err(StandbyRefusal::Missing), GateAnswer::Wait));
        gate.set_connected(true);
        assert_eq!((gate.admit(), gate.answer()), (Ok(()), GateAnswer::Wait));
        gate.set_mode(GateMode::Follower);
        assert_eq!(gate.admit(), Err(StandbyRefusal::Follower));
    }

    #[test]
    fn a_fenced_gate_stays_fenced() {
        let gate = WriteGate::default();
        gate.set_mode(GateMode::Fenced(3));
        for mode in [GateMode::Open, GateMode::Synchronous, GateMode::Follower, GateMode::Fenced(2)] {
            gate.set_mode(mode);
            assert_eq!(gate.admit(), Err(StandbyRefusal::Fenced { epoch: 3 }), "{mode:?}");
        }
        gate.set_mode(GateMode::Fenced(4));
        assert_eq!(gate.answer(), GateAnswer::Refuse(StandbyRefusal::Fenced { epoch: 4 }));
    }
}
