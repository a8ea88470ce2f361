//! The follower's log, seals and manifest (docs/standby.md section 2, docs/storage.md section 8):
//! one node receives a fixed list of records, seals on its own, trims its log, crashes and starts
//! again. What queries see must always be what the received records say.

use stateright::{Model, Property};

/// The content of a record, with samples before and after the end of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    /// A sample before the end of the window.
    Early,
    /// A sample after it.
    New,
    /// The primary's seal record: it closes the window.
    Seal,
    /// A deletion of every earlier sample.
    Delete,
}

/// The records that the node receives, in order.
const RECEIVED: [Entry; 7] =
    [Entry::Early, Entry::New, Entry::Seal, Entry::Early, Entry::Delete, Entry::Early, Entry::New];

/// A rule of sealing that an exploration leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SealFault {
    /// The segment lacks late samples: those that arrived after the window was closed.
    LeavesLateSamples,
    /// The position of the seal is read after the samples.
    ReadsPositionLast,
    /// The head releases everything before the end of the window.
    ReleasesUnwritten,
    /// The head releases the samples before the manifest lists their segment.
    ReleasesBeforeListing,
    /// Records are applied before they are synced, and sealed.
    SealsBeforeSync,
    /// The manifest lists a segment whose file is not synced.
    ListsBeforeSync,
    /// The log is trimmed up to the last applied record.
    TrimsUnsealed,
    /// The node goes on after a deletion without its tombstone.
    GoesOnWithoutTombstone,
    /// A start does not commit the tombstone of the last record.
    StartsWithoutTombstone,
}

/// The node, perhaps with a fault.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    pub(crate) fault: Option<SealFault>,
    pub(crate) crashes: u8,
}

/// A set of records by number.
type Set = u16;

const fn bit(at: usize) -> Set {
    1 << at
}

/// Returns the records before number `end`.
const fn before(end: usize) -> Set {
    (1 << end) - 1
}

/// The records in a set for which `is` holds.
fn of(set: Set, is: impl Fn(Entry) -> bool) -> Set {
    (0..RECEIVED.len()).filter(|at| set & bit(*at) != 0 && is(RECEIVED[*at])).map(bit).sum()
}

/// What the manifest says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Manifest {
    /// Samples before the window's end with a lower number are in segments.
    seal: usize,
    /// The samples in listed segments.
    listed: Set,
    /// Tombstones hide samples of segments with a lower number.
    tombstone: usize,
    /// The first record of the log.
    log_begin: usize,
}

/// The steps of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SealStep {
    /// The samples are read and written. Without a position, it is read later, which is a fault.
    Written { seal: Option<usize>, samples: Set },
    /// The file is synced.
    Synced { seal: usize, samples: Set },
    /// The manifest lists the segment.
    Listed { samples: Set },
}

/// The state of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SealingState {
    // On disk.
    manifest: Manifest,
    /// Segment samples that a power cut does not lose.
    durable_segments: Set,
    written: usize,
    synced: usize,
    // In memory.
    applied: usize,
    head: Set,
    step: Option<SealStep>,
    /// A deletion was applied, and its tombstone is to be committed.
    pending: bool,
    crashes: u8,
    /// The log was set back below the seal position of the manifest.
    ran_ahead: bool,
}

/// A step of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SealAction {
    Receive,
    Sync,
    Apply,
    Tombstone,
    BeginSeal,
    SyncSegment,
    List,
    Release,
    Trim,
    Kill,
    PowerCut,
}

impl SealingState {
    fn new() -> SealingState {
        SealingState {
            manifest: Manifest::default(),
            durable_segments: 0,
            written: 0,
            synced: 0,
            applied: 0,
            head: 0,
            step: None,
            pending: false,
            crashes: 0,
            ran_ahead: false,
        }
    }

    /// The samples that queries see.
    fn visible(&self) -> Set {
        let sealed = self.manifest.listed & !before(self.manifest.tombstone);
        sealed | self.head
    }

    /// The samples that the applied records say.
    fn expected(&self) -> Set {
        let is_sample = |entry| matches!(entry, Entry::Early | Entry::New);
        let deleted = (0..self.applied).filter(|at| RECEIVED[*at] == Entry::Delete).max().unwrap_or(0);
        of(before(self.applied), is_sample) & !before(deleted)
    }

    fn is_closed(&self) -> bool {
        RECEIVED.iter().take(self.applied).any(|entry| *entry == Entry::Seal)
    }

    /// Returns whether an applied deletion lacks its tombstone.
    fn lacks_tombstone(&self) -> bool {
        let deletion = (0..self.applied).rev().find(|at| RECEIVED[*at] == Entry::Delete);
        deletion.is_some_and(|at| self.manifest.tombstone < at)
    }

    fn apply(&mut self, at: usize) {
        self.applied = at + 1;
        let is_sealed = at < self.manifest.seal && RECEIVED[at] == Entry::Early;
        match RECEIVED[at] {
            Entry::Early | Entry::New if !is_sealed => self.head |= bit(at),
            Entry::Delete => self.head &= !before(at),
            Entry::Early | Entry::New | Entry::Seal => {}
        }
    }
}

impl Sealing {
    fn has(&self, fault: SealFault) -> bool {
        self.fault == Some(fault)
    }

    fn start(&self, state: &mut SealingState) {
        (state.head, state.applied, state.step) = (0, state.manifest.log_begin, None);
        state.pending = false;
        // A start syncs the log before it counts.
        state.synced = state.written;
        state.ran_ahead |= state.manifest.seal > state.written;
        for at in state.manifest.log_begin..state.written {
            state.apply(at);
        }
        let commits = !self.has(SealFault::StartsWithoutTombstone);
        if commits && state.applied > 0 && RECEIVED[state.applied - 1] == Entry::Delete {
            state.manifest.tombstone = state.applied - 1;
        }
    }

    fn step(&self, state: &mut SealingState, action: SealAction) -> bool {
        let applies_early = self.has(SealFault::SealsBeforeSync);
        match action {
            SealAction::Receive => {
                // A record after a deletion is not even written before the tombstone.
                let waits = state.written > 0 && RECEIVED[state.written - 1] == Entry::Delete;
                let waits = waits && (state.pending || state.applied < state.written);
                if state.written == RECEIVED.len() || waits && !self.has(SealFault::GoesOnWithoutTombstone) {
                    return false;
                }
                state.written += 1;
            }
            SealAction::Sync if state.synced < state.written => state.synced = state.written,
            SealAction::Apply => {
                let end = if applies_early { state.written } else { state.synced };
                if state.applied >= end {
                    return false;
                }
                state.pending |= RECEIVED[state.applied] == Entry::Delete;
                state.apply(state.applied);
            }
            SealAction::Tombstone if state.pending => {
                state.pending = false;
                let deletion = (0..state.applied).rev().find(|at| RECEIVED[*at] == Entry::Delete);
                state.manifest.tombstone = deletion.unwrap_or(0);
            }
            SealAction::BeginSeal => {
                let has_work = of(state.head, |entry| entry == Entry::Early) != 0;
                if state.step.is_some() || !state.is_closed() || !has_work || state.lacks_tombstone() {
                    return false;
                }
                // Position and samples are read under one lock.
                let seal = Some(state.applied).filter(|_| !self.has(SealFault::ReadsPositionLast));
                let samples = self.frozen(state, state.applied);
                state.step = Some(SealStep::Written { seal, samples });
            }
            SealAction::SyncSegment => {
                let Some(SealStep::Written { seal, samples }) = state.step else { return false };
                let seal = seal.unwrap_or(state.applied);
                state.durable_segments |= samples;
                if self.has(SealFault::ReleasesBeforeListing) {
                    state.head &= !samples;
                }
                state.step = Some(SealStep::Synced { seal, samples });
            }
            SealAction::List => {
                let (seal, samples) = match state.step {
                    Some(SealStep::Synced { seal, samples }) => (seal, samples),
                    Some(SealStep::Written { seal, samples }) if self.has(SealFault::ListsBeforeSync) => {
                        (seal.unwrap_or(state.applied), samples)
                    }
                    _ => return false,
                };
                state.manifest.seal = seal;
                state.manifest.listed |= samples;
                state.step = Some(SealStep::Listed { samples });
            }
            SealAction::Release => {
                let Some(SealStep::Listed { samples }) = state.step else { return false };
                let released = match self.has(SealFault::ReleasesUnwritten) {
                    true => of(state.head, |entry| entry == Entry::Early),
                    false => samples,
                };
                state.head &= !released;
                state.step = None;
            }
            SealAction::Trim => {
                // Records whose samples are in segments, up to the first that is not.
                let is_needed = |at: usize| state.head & bit(at) != 0;
                let covered = (0..state.manifest.seal.min(state.applied)).take_while(|at| !is_needed(*at));
                let end = match self.has(SealFault::TrimsUnsealed) {
                    true => state.applied,
                    false => covered.count(),
                };
                if end <= state.manifest.log_begin || state.lacks_tombstone() {
                    return false;
                }
                state.manifest.log_begin = end;
            }
            SealAction::Kill | SealAction::PowerCut if state.crashes < self.crashes => {
                state.crashes += 1;
                if action == SealAction::PowerCut {
                    state.written = state.synced;
                    state.manifest.listed &= state.durable_segments;
                }
                self.start(state);
            }
            _ => return false,
        }
        true
    }

    /// Returns the samples that a seal at this position takes from the head.
    fn frozen(&self, state: &SealingState, seal: usize) -> Set {
        let early = of(state.head & before(seal), |entry| entry == Entry::Early);
        let closed = RECEIVED.iter().position(|entry| *entry == Entry::Seal).unwrap_or(0);
        if self.has(SealFault::LeavesLateSamples) { early & before(closed) } else { early }
    }
}

impl Model for Sealing {
    type State = SealingState;
    type Action = SealAction;

    fn init_states(&self) -> Vec<SealingState> {
        vec![SealingState::new()]
    }

    fn actions(&self, _: &SealingState, actions: &mut Vec<SealAction>) {
        use SealAction::*;
        actions.extend([Receive, Sync, Apply, Tombstone, BeginSeal, SyncSegment, List, Release, Trim]);
        actions.extend([Kill, PowerCut]);
    }

    fn next_state(&self, last: &SealingState, action: SealAction) -> Option<SealingState> {
        let mut state = last.clone();
        self.step(&mut state, action).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Sealing>> {
        vec![
            Property::always(QUERIES_SEE_THE_LOG, |_, state: &SealingState| {
                // While a deletion lacks its tombstone, no query is answered.
                state.lacks_tombstone() || state.visible() == state.expected()
            }),
            Property::always(SEALS_ARE_IN_THE_LOG, |_, state: &SealingState| !state.ran_ahead),
            Property::always(GOES_ON, |_, state: &SealingState| {
                !state.lacks_tombstone() || state.applied > 0 && RECEIVED[state.applied - 1] == Entry::Delete
            }),
            Property::sometimes(ALL_IS_SEALED, |_, state: &SealingState| {
                state.applied == RECEIVED.len() && state.manifest.log_begin > 5
            }),
        ]
    }
}

pub(crate) const QUERIES_SEE_THE_LOG: &str = "I9 queries see what the received records say";
pub(crate) const SEALS_ARE_IN_THE_LOG: &str = "I10 the manifest names no record beyond the log";
pub(crate) const GOES_ON: &str = "I7 only the last record lacks its tombstone";
pub(crate) const ALL_IS_SEALED: &str = "everything before the end of the window is sealed and trimmed";
