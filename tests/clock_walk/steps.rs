//! The sequence of steps that follows from a seed: clocks that jump, senders with other clocks,
//! restarts, seals, deletions and damage. The walks of the store and of the binary share it.

use super::Entropy;

pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;
/// The number of series.
pub(super) const SERIES: u64 = 4;
/// The errors that the clock of a machine or a sender may have, in milliseconds.
pub(super) const JUMPS: [i64; 17] = [
    MINUTE,
    5 * MINUTE,
    -5 * MINUTE,
    40 * MINUTE,
    -40 * MINUTE,
    3 * HOUR,
    -3 * HOUR,
    2 * DAY,
    -DAY,
    -2 * DAY,
    40 * DAY,
    91 * DAY,
    365 * DAY,
    10 * 365 * DAY,
    50 * 365 * DAY,
    -365 * DAY,
    -20_000 * DAY,
];

/// Durations for which a machine is off. No sum of them equals a jump: such a jump would look like
/// a clock being corrected.
const OFF: [i64; 6] = [0, 0, 90_000, 67 * MINUTE, 55 * HOUR, 30 * DAY + 11 * HOUR];

/// A step of a walk.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Sending),
    /// A tick of upkeep.
    Tick,
    /// The machine's clock has this error from now on, in milliseconds.
    Jump(i64),
    SealIfDue,
    Seal,
    SealAndMerge,
    Delete(Deletion),
    Checkpoint,
    Restart {
        cleanly: bool,
        /// For how long the machine is off.
        off_ms: i64,
    },
    /// The retention is changed; none: samples of any age are kept.
    Retention(Option<i64>),
    Damage(Damage),
    Check,
}

impl Step {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Send(_) => "samples",
            Step::Tick => "tick",
            Step::Jump(_) => "jump",
            Step::SealIfDue => "seal if due",
            Step::Seal => "seal",
            Step::SealAndMerge => "merge",
            Step::Delete(_) => "delete",
            Step::Checkpoint => "checkpoint",
            Step::Restart { .. } => "start",
            Step::Retention(_) => "retention",
            Step::Damage(_) => "damage",
            Step::Check => "check",
        }
    }
}

/// Time that passes, then samples.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) ran_ms: i64,
    /// Series, and how far the sender's clock is off.
    pub(super) samples: Vec<(u64, i64)>,
}

/// A deletion from one sample of a series on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deletion {
    pub(super) series: u64,
    /// Picks the sample.
    pub(super) pick: u64,
    pub(super) length_ms: i64,
}

/// Damage of the log of a killed server, after the sealed part.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// The steps between the last seal and the kill: samples and deletions.
    pub(super) before: Vec<Step>,
    /// Picks the byte.
    pub(super) pick: u64,
    pub(super) kind: DamageKind,
    /// Whether `promlet repair` is used instead of `serve --accept-loss`.
    pub(super) repaired: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DamageKind {
    /// This bit of the byte is flipped.
    Flipped(u8),
    /// All bytes from there on become zeros.
    Zeros,
    /// The file ends there.
    Cut,
}

/// The steps of a seed.
#[derive(Debug)]
pub(super) struct Steps(Entropy);

impl Steps {
    pub(super) fn new(seed: u64) -> Steps {
        Steps(Entropy::seeded(seed))
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        u64::from_le_bytes(self.0.bytes()) % sides
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let place = usize::try_from(self.roll(from.len() as u64)).expect("small");
        from[place]
    }

    fn sending(&mut self) -> Step {
        let ran_ms = self.pick(&[0, 1_000, 15_000, MINUTE, 5 * MINUTE, 30 * MINUTE]);
        let off = if self.roll(12) == 0 { self.pick(&JUMPS) } else { 0 };
        let samples = (0..=self.roll(2)).map(|series| {
            let series = (series + self.roll(SERIES)) % SERIES;
            let late = if self.roll(8) == 0 { self.roll(600_000).cast_signed() } else { 0 };
            (series, off - late)
        });
        Step::Send(Sending { ran_ms, samples: samples.collect() })
    }

    fn deletion(&mut self) -> Step {
        let (series, pick) = (self.roll(SERIES), self.roll(u64::MAX));
        Step::Delete(Deletion { series, pick, length_ms: self.pick(&[0, HOUR, DAY, 30 * DAY]) })
    }

    fn damage(&mut self) -> Step {
        let before = (0..self.roll(30)).map(|_| match self.roll(8) {
            0 => self.deletion(),
            _ => self.sending(),
        });
        let before = before.collect();
        let kind = match self.roll(3) {
            0 => DamageKind::Flipped(u8::try_from(self.roll(8)).expect("small")),
            1 => DamageKind::Zeros,
            _ => DamageKind::Cut,
        };
        Step::Damage(Damage { before, pick: self.roll(u64::MAX), kind, repaired: self.roll(2) == 0 })
    }

    pub(super) fn draw(&mut self) -> Step {
        match self.roll(10_000) {
            0..8_200 => self.sending(),
            8_200..9_200 => Step::Tick,
            9_200..9_700 => Step::Jump(if self.roll(5) < 2 { 0 } else { self.pick(&JUMPS) }),
            9_700..9_800 => Step::SealIfDue,
            9_800..9_830 => Step::Seal,
            9_830..9_840 => Step::SealAndMerge,
            9_840..9_870 => self.deletion(),
            9_870..9_890 => Step::Checkpoint,
            9_890..9_925 => Step::Restart { cleanly: self.roll(2) == 0, off_ms: self.pick(&OFF) },
            9_925..9_975 => {
                Step::Retention(self.pick(&[None, Some(DAY), Some(4 * DAY), Some(4 * DAY), Some(90 * DAY)]))
            }
            9_975..9_980 => self.damage(),
            _ => Step::Check,
        }
    }
}
