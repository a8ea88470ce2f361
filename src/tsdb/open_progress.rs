//! The progress of opening a store, reported to an observer that may also stop it.

use std::sync::Arc;

/// The phase of opening a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Reading the registries of series. Progress is counted in bytes.
    #[default]
    Names,
    /// Opening the segments. Progress is counted in segments.
    Segments,
    /// Loading the newest checkpoint. Progress is counted in rows.
    Checkpoint,
    /// Replaying the log after the checkpoint. Progress is counted in bytes.
    Log,
}

impl Phase {
    /// Returns the stable name of the phase.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Names => "names",
            Phase::Segments => "segments",
            Phase::Checkpoint => "checkpoint",
            Phase::Log => "log",
        }
    }

    /// Returns the unit that is counted.
    pub const fn unit(self) -> &'static str {
        match self {
            Phase::Names | Phase::Log => "bytes",
            Phase::Segments => "segments",
            Phase::Checkpoint => "rows",
        }
    }
}

/// The progress within one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenStep {
    /// The current phase.
    pub phase: Phase,
    /// The current file, counted from 1.
    pub file: u64,
    /// The number of files.
    pub files: u64,
    /// The completed amount over all files, in the phase's unit.
    pub done: u64,
    /// The total amount; 0 if unknown.
    pub all: u64,
    /// Log records applied.
    pub records: u64,
    /// Samples of those records that were stored.
    pub samples: u64,
}

impl OpenStep {
    /// Returns the completed share of the phase in percent.
    pub fn percent(&self) -> Option<f64> {
        (self.all > 0).then(|| (self.done as f64 / self.all as f64 * 100.0).min(100.0))
    }
}

/// The observer's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenControl {
    /// Continue to open the store.
    Continue,
    /// Stop with [`super::OpenError::Stopped`]. The folder is as a crash at this moment would leave
    /// it.
    Stop,
}

/// A callback for the progress. The reading thread calls it often, so it must return quickly.
#[derive(Clone)]
pub struct ProgressObserver(Arc<dyn Fn(&OpenStep) -> OpenControl + Send + Sync>);

impl ProgressObserver {
    /// Creates an observer from a callback.
    pub fn new(look: impl Fn(&OpenStep) -> OpenControl + Send + Sync + 'static) -> ProgressObserver {
        ProgressObserver(Arc::new(look))
    }

    pub(super) fn report(&self, step: &OpenStep) -> Result<(), OpenStopped> {
        match (self.0)(step) {
            OpenControl::Continue => Ok(()),
            OpenControl::Stop => Err(OpenStopped),
        }
    }
}

impl Default for ProgressObserver {
    fn default() -> ProgressObserver {
        ProgressObserver::new(|_| OpenControl::Continue)
    }
}

impl std::fmt::Debug for ProgressObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgressObserver")
    }
}

/// The error of a start that the observer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the store was open")]
pub(super) struct OpenStopped;
