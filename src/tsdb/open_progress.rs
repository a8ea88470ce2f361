//! How far a start is, told to whoever started it, who may also end it.

use std::sync::Arc;

/// What a start is reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The registries: which series there are. Counted in bytes.
    #[default]
    Names,
    /// The segments. Counted in segments.
    Segments,
    /// The newest checkpoint. Counted in rows.
    Checkpoint,
    /// What came after it. Counted in bytes.
    Log,
}

impl Phase {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Names => "names",
            Phase::Segments => "segments",
            Phase::Checkpoint => "checkpoint",
            Phase::Log => "log",
        }
    }

    /// What is counted.
    pub const fn unit(self) -> &'static str {
        match self {
            Phase::Names | Phase::Log => "bytes",
            Phase::Segments => "segments",
            Phase::Checkpoint => "rows",
        }
    }
}

/// How far a start is in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What is read.
    pub phase: Phase,
    /// Which file of it, from 1.
    pub file: u64,
    /// Of how many.
    pub files: u64,
    /// How much of all files is done, in the phase's unit.
    pub done: u64,
    /// Of how much; 0 where that is not known.
    pub all: u64,
    /// Records of the log that were applied.
    pub records: u64,
    /// Samples of theirs that were stored.
    pub samples: u64,
}

impl Step {
    /// How much of the phase is done, in percent.
    pub fn percent(&self) -> Option<f64> {
        (self.all > 0).then(|| (self.done as f64 / self.all as f64 * 100.0).min(100.0))
    }
}

/// Whether a start goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It ends with [`super::OpenError::Stopped`]; the folder is as a crash at this moment would leave it.
    No,
}

/// Who looks on. Called often, by the thread that reads: it should answer at once.
#[derive(Clone)]
pub struct Onlooker(Arc<dyn Fn(&Step) -> Go + Send + Sync>);

impl Onlooker {
    /// Told each step by a call of this.
    pub fn by(look: impl Fn(&Step) -> Go + Send + Sync + 'static) -> Onlooker {
        Onlooker(Arc::new(look))
    }

    pub(super) fn see(&self, step: &Step) -> Result<(), Stopped> {
        match (self.0)(step) {
            Go::On => Ok(()),
            Go::No => Err(Stopped),
        }
    }
}

impl Default for Onlooker {
    fn default() -> Onlooker {
        Onlooker::by(|_| Go::On)
    }
}

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onlooker")
    }
}

/// Who looks on has ended the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the store was open")]
pub(super) struct Stopped;
