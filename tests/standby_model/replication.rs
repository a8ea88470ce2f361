//! Replication, promotion and fencing (docs/standby.md sections 3 to 6 and 8): two nodes, one
//! connection, clients, crashes. Records and account changes carry the epoch of their author, so
//! that two histories differ.

/// A rule of the protocol that an exploration leaves out. Each one must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The primary sends records that are not synced.
    SendsBeforeSync,
    /// An acknowledgement names records that are not synced.
    AcknowledgesBeforeSync,
    /// A start does not sync the records that a killed process wrote.
    StartsWithoutSync,
    /// A request is answered after the primary's own sync.
    AnswersWithoutFollower,
    /// A repeated request that makes no record is answered at once.
    AnswersRepetitionsAtOnce,
    /// A start forgets that account changes before it may wait for the follower, so that a repeated
    /// request that changes nothing is answered at once.
    ForgetsChangesAtStart,
    /// The follower acknowledges during a promotion.
    AcknowledgesDuringPromotion,
    /// A promotion keeps the epoch.
    KeepsEpoch,
    /// A primary ignores a higher epoch of a follower or of a fence request.
    IgnoresHigherEpoch,
    /// A fence is answered before its commit, so that a crash forgets it.
    FencesInMemory,
    /// A base does not carry the epoch of its primary.
    ForgetsEpochOfBase,
    /// Acknowledgements of an earlier stream count.
    AcceptsOldAcknowledgements,
    /// The handshake does not compare the last record.
    SkipsCheckOfLog,
    /// The handshake does not compare the last account change.
    SkipsCheckOfAccounts,
    /// A position whose record the primary has trimmed passes the handshake without a comparison.
    AcceptsUncheckedPosition,
    /// The primary trims its log without regard to the hold.
    IgnoresHold,
    /// A base sets the hold when it ends.
    HoldsAfterBase,
    /// A record may overtake the account changes that came before it.
    RecordsOvertakeChanges,
    /// A promotion keeps the samples of organisations that the accounts do not know.
    KeepsOrphans,
    /// All account rows replace those of the follower one by one.
    CopiesRowsInPlace,
}

/// The bounds of one exploration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) records: usize,
    pub(crate) changes: usize,
    pub(crate) kills: u8,
    pub(crate) power_cuts: u8,
    pub(crate) disconnects: u8,
    pub(crate) promotions: u8,
    pub(crate) bases: u8,
    pub(crate) restores: u8,
    /// Requests repeated by clients.
    pub(crate) repetitions: u8,
    /// Organisations are created, written to and removed.
    pub(crate) organisations: bool,
    /// The primary trims its log and its journal.
    pub(crate) trims: bool,
    /// Requests are answered after the primary's own sync.
    pub(crate) asynchronous: bool,
    /// The exploration begins before the first base.
    pub(crate) without_follower: bool,
    /// The follower's folder may be set back to an earlier copy, before a request is answered.
    pub(crate) follower_restores: u8,
}

impl Bounds {
    /// Returns whether requests are observed until they are answered. An asynchronous primary
    /// answers at once, and a restored backup loses what was answered.
    fn has_clients(&self) -> bool {
        !self.asynchronous && self.restores == 0
    }
}

/// The protocol within bounds, perhaps with a fault.
#[derive(Clone, Debug)]
pub(crate) struct Replication {
    pub(crate) bounds: Bounds,
    pub(crate) fault: Option<Fault>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    Sample { org: u8 },
    Drop { org: u8 },
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The epoch of the node that made it.
    pub(crate) author: u8,
    /// The number of backups restored before it was made: another history with the same epoch.
    pub(crate) history: u8,
    pub(crate) content: Content,
    /// The number of account changes of its author when it was made.
    pub(crate) after: u8,
}

/// The content of an account change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccountContent {
    Plain,
    Create {
        org: u8,
    },
    Remove {
        org: u8,
    },
    /// The last row of a removed organisation vanishes.
    Forget {
        org: u8,
    },
}

/// A change of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Change {
    pub(crate) author: u8,
    pub(crate) history: u8,
    pub(crate) content: AccountContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Primary,
    Follower,
    Fenced,
}

/// A process with its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) up: bool,
    /// Its folder is emptied for a base.
    pub(crate) emptied: bool,
    // On disk.
    pub(crate) role: Role,
    pub(crate) epoch: u8,
    /// All records ever; those before `begin` are trimmed.
    pub(crate) log: Vec<Record>,
    pub(crate) synced: usize,
    pub(crate) begin: usize,
    /// The record from which the log is kept for the follower.
    pub(crate) hold: usize,
    pub(crate) accounts: Vec<Change>,
    /// The first change that the journal still has.
    pub(crate) journal_begin: usize,
    /// Account rows are being replaced in place.
    pub(crate) incomplete: bool,
    // In memory.
    pub(crate) gate_closed: bool,
    /// The first step of a promotion is done.
    pub(crate) stopped: bool,
    /// It forgot at its start what waits for the follower.
    pub(crate) forgot: bool,
}

impl Node {
    pub(crate) fn new(role: Role) -> Node {
        Node {
            up: true,
            emptied: false,
            role,
            epoch: 1,
            log: Vec::new(),
            synced: 0,
            begin: 0,
            hold: 0,
            accounts: Vec::new(),
            journal_begin: 0,
            incomplete: false,
            gate_closed: false,
            stopped: false,
            forgot: false,
        }
    }

    /// Returns a node whose folder waits for a base.
    pub(crate) fn emptied() -> Node {
        Node { up: false, emptied: true, ..Node::new(Role::Fenced) }
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.up && self.role == Role::Primary
    }

    pub(crate) fn is_open_primary(&self) -> bool {
        self.is_primary() && !self.gate_closed
    }

    pub(crate) fn is_follower(&self) -> bool {
        self.up && self.role == Role::Follower
    }

    /// Returns whether accounts and samples of the organisations of a primary agree.
    pub(crate) fn keeps_orgs_apart(&self) -> bool {
        let agrees = |org: u8| {
            let is_lost = self.knows(org) && !self.is_removed(org) && self.is_dropped(org);
            let is_orphan = !self.knows(org) && self.has_samples(org);
            !is_lost && !is_orphan
        };
        self.role != Role::Primary || (1..=self.greatest_logged()).all(agrees)
    }

    pub(crate) fn knows(&self, org: u8) -> bool {
        let of = |change: &Change| match change.content {
            AccountContent::Create { org: one } if one == org => Some(true),
            AccountContent::Forget { org: one } if one == org => Some(false),
            _ => None,
        };
        self.accounts.iter().rev().find_map(of).unwrap_or(false)
    }

    pub(crate) fn is_removed(&self, org: u8) -> bool {
        self.accounts.iter().any(|change| change.content == AccountContent::Remove { org })
    }

    pub(crate) fn is_dropped(&self, org: u8) -> bool {
        self.log.iter().any(|record| record.content == Content::Drop { org })
    }

    pub(crate) fn has_samples(&self, org: u8) -> bool {
        self.log.iter().any(|record| record.content == Content::Sample { org }) && !self.is_dropped(org)
    }

    /// Returns the greatest id of an organisation that an account change names, 0 for none.
    pub(crate) fn greatest_known(&self) -> u8 {
        let created = self.accounts.iter().filter_map(|change| match change.content {
            AccountContent::Create { org } => Some(org),
            _ => None,
        });
        created.max().unwrap_or(0)
    }

    pub(crate) fn greatest_logged(&self) -> u8 {
        let orgs = self.log.iter().map(|record| match record.content {
            Content::Sample { org } | Content::Drop { org } => org,
        });
        orgs.max().unwrap_or(0)
    }
}

/// A frame in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    Record(usize, Record),
    Change(usize, Change),
    /// All account rows, up to this number of changes.
    Rows(usize),
}

/// The most frames in flight.
const FRAMES_MAX: usize = 1;
/// The most acknowledgements in flight.
const ACKS_MAX: usize = 1;

/// The connection, as the primary knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) primary: usize,
    pub(crate) number: u8,
    pub(crate) frames: Vec<Frame>,
    pub(crate) sent_log: usize,
    pub(crate) sent_accounts: usize,
    pub(crate) acked_log: usize,
    pub(crate) acked_accounts: usize,
}

/// An acknowledgement in flight. It may arrive after its connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acknowledgement {
    pub(crate) to: usize,
    pub(crate) stream: u8,
    pub(crate) log: usize,
    pub(crate) accounts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Position {
    /// The number of records that must be acknowledged.
    Log(usize),
    Accounts(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Waiting,
    Answered,
    /// 503, or no answer. The client may repeat it.
    Failed,
}

/// A request of a client that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientRequest {
    pub(crate) node: usize,
    pub(crate) position: Position,
    /// What it wrote, with which an answer is compared.
    pub(crate) wrote: Wrote,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrote {
    Record(Record),
    Change(Change),
}

/// A staged base.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Base {
    pub(crate) of: usize,
    pub(crate) epoch: u8,
    pub(crate) log: Vec<Record>,
    pub(crate) begin: usize,
    pub(crate) accounts: Vec<Change>,
}

/// The state of the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) nodes: [Node; 2],
    pub(crate) stream: Option<Stream>,
    pub(crate) streams: u8,
    pub(crate) acks: Vec<Acknowledgement>,
    pub(crate) requests: Vec<ClientRequest>,
    pub(crate) base: Option<Base>,
    pub(crate) kills: u8,
    pub(crate) power_cuts: u8,
    pub(crate) disconnects: u8,
    pub(crate) promotions: u8,
    pub(crate) bases: u8,
    pub(crate) restores: u8,
    pub(crate) repetitions: u8,
    pub(crate) follower_restores: u8,
    /// A new organisation has samples of another one.
    pub(crate) leaked: bool,
    /// An epoch on disk decreased.
    pub(crate) epoch_decreased: bool,
    /// The log exceeded its bound, so that a hold was given up.
    pub(crate) gave_up: bool,
    /// A node answered a change after it had heard of a higher epoch.
    pub(crate) fenced_answered: bool,
    /// The highest epoch of which each node confirmed that it heard.
    pub(crate) heard: [u8; 2],
}

impl State {
    pub(crate) fn new(bounds: &Bounds) -> State {
        let mut nodes = [Node::new(Role::Primary), Node::new(Role::Follower)];
        if bounds.without_follower {
            nodes = [Node { hold: usize::MAX, ..Node::new(Role::Primary) }, Node::emptied()];
        }
        State {
            nodes,
            stream: None,
            streams: 0,
            acks: Vec::new(),
            requests: Vec::new(),
            base: None,
            kills: 0,
            power_cuts: 0,
            disconnects: 0,
            promotions: 0,
            bases: 0,
            restores: 0,
            repetitions: 0,
            follower_restores: 0,
            leaked: false,
            epoch_decreased: false,
            gave_up: false,
            fenced_answered: false,
            heard: [0; 2],
        }
    }

    /// Records that a node made a change, which an asynchronous one answers at once.
    fn note_change(&mut self, node: usize, asynchronous: bool) {
        self.fenced_answered |= asynchronous && self.heard[node] > self.nodes[node].epoch;
    }

    /// Returns whether every answered change is on the disk of each node that serves or may be
    /// promoted: followers, and the primary with the highest epoch.
    pub(crate) fn keeps_answered(&self) -> bool {
        let highest =
            self.nodes.iter().filter(|node| node.role == Role::Primary).map(|node| node.epoch).max();
        let may_serve = |node: &&Node| match node.role {
            Role::Primary => Some(node.epoch) == highest,
            Role::Follower => true,
            Role::Fenced => false,
        };
        let answered = self.requests.iter().filter(|request| request.outcome == Outcome::Answered);
        let serving: Vec<&Node> = self.nodes.iter().filter(may_serve).collect();
        answered.into_iter().all(|request| {
            serving.iter().all(|node| match (request.position, request.wrote) {
                (Position::Log(log), Wrote::Record(record)) => {
                    log <= node.synced && node.log.get(log - 1) == Some(&record)
                }
                (Position::Accounts(accounts), Wrote::Change(change)) => {
                    !node.incomplete && node.accounts.get(accounts - 1) == Some(&change)
                }
                (Position::Log(_), Wrote::Change(_)) | (Position::Accounts(_), Wrote::Record(_)) => false,
            })
        })
    }
}

/// A step of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    WriteSample(usize),
    ChangeAccount(usize),
    CreateOrg(usize),
    RemoveOrg(usize),
    DropOrg(usize),
    ForgetOrg(usize),
    Sync(usize),
    SendRecord,
    SendChange,
    Receive,
    EndRows,
    Acknowledge,
    DeliverAck(usize),
    Answer(usize),
    Fail(usize),
    Repeat(usize),
    Disconnect,
    Connect(usize),
    Kill(usize),
    PowerCut(usize),
    Start(usize),
    MoveHold,
    GiveUpHold(usize),
    Trim(usize),
    TrimJournal(usize),
    StopStream(usize),
    Promote(usize),
    Fence(usize),
    CommitFence(usize),
    StageBase(usize),
    InstallBase,
    RestoreBackup(usize),
    RestoreFollower,
}

/// Returns the other node.
pub(crate) const fn other(node: usize) -> usize {
    1 - node
}

impl Replication {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn record(&self, state: &State, node: usize, content: Content) -> Record {
        let Node { epoch, ref accounts, .. } = state.nodes[node];
        let after = u8::try_from(accounts.len()).expect("few changes");
        Record { author: epoch, history: state.restores, content, after }
    }

    pub(crate) fn change(state: &State, node: usize, content: AccountContent) -> Change {
        Change { author: state.nodes[node].epoch, history: state.restores, content }
    }

    /// Returns whether a primary accepts changes now.
    pub(crate) fn accepts(&self, state: &State, node: usize) -> bool {
        let is_connected = state.stream.as_ref().is_some_and(|stream| stream.primary == node);
        state.nodes[node].is_open_primary() && (self.bounds.asynchronous || is_connected)
    }

    /// Appends a record. `is_request` if a client waits for it.
    pub(crate) fn append(&self, state: &mut State, node: usize, content: Content, is_request: bool) {
        let record = self.record(state, node, content);
        state.nodes[node].log.push(record);
        if self.bounds.organisations {
            // The steps between writing and syncing are explored without organisations.
            state.nodes[node].synced = state.nodes[node].log.len();
        }
        state.note_change(node, self.bounds.asynchronous);
        if is_request && self.bounds.has_clients() {
            let position = Position::Log(state.nodes[node].log.len());
            let wrote = Wrote::Record(record);
            state.requests.push(ClientRequest { node, position, wrote, outcome: Outcome::Waiting });
        }
    }

    pub(crate) fn commit(&self, state: &mut State, node: usize, content: AccountContent, is_request: bool) {
        let change = Replication::change(state, node, content);
        state.nodes[node].accounts.push(change);
        state.note_change(node, self.bounds.asynchronous);
        if is_request && self.bounds.has_clients() {
            let position = Position::Accounts(state.nodes[node].accounts.len());
            let wrote = Wrote::Change(change);
            state.requests.push(ClientRequest { node, position, wrote, outcome: Outcome::Waiting });
        }
    }

    pub(crate) fn is_reached(&self, state: &State, request: &ClientRequest) -> bool {
        let node = &state.nodes[request.node];
        if !node.is_open_primary() {
            return false;
        }
        let own = match request.position {
            Position::Log(log) => log <= node.synced,
            Position::Accounts(_) => true,
        };
        if self.bounds.asynchronous || self.has(Fault::AnswersWithoutFollower) {
            return own;
        }
        let Some(stream) = state.stream.as_ref().filter(|stream| stream.primary == request.node) else {
            return false;
        };
        own && match request.position {
            Position::Log(log) => log <= stream.acked_log,
            Position::Accounts(accounts) => accounts <= stream.acked_accounts,
        }
    }

    /// Ends a process. Clients get no answers.
    pub(crate) fn end(state: &mut State, node: usize) {
        let stopped = &mut state.nodes[node];
        (stopped.up, stopped.gate_closed, stopped.stopped) = (false, false, false);
        state.stream = None;
        for request in state.requests.iter_mut().filter(|request| request.node == node) {
            if request.outcome == Outcome::Waiting {
                request.outcome = Outcome::Failed;
            }
        }
    }

    /// Performs the handshake between the follower `node` and the other node.
    pub(crate) fn connect(&self, state: &mut State, node: usize) -> bool {
        let primary = other(node);
        let theirs = state.nodes[primary].epoch;
        if state.nodes[node].epoch > theirs {
            let epoch = state.nodes[node].epoch;
            return self.fence(state, primary, epoch);
        }
        if !self.has(Fault::StartsWithoutSync) {
            state.nodes[node].synced = state.nodes[node].log.len();
        }
        let (follower, serving) = (&state.nodes[node], &state.nodes[primary]);
        let have = follower.log.len();
        let durable = if self.has(Fault::SendsBeforeSync) { serving.log.len() } else { serving.synced };
        if have > durable || have < serving.begin {
            return false;
        }
        if have > 0 && !self.has(Fault::SkipsCheckOfLog) {
            let is_comparable = have > serving.begin;
            if is_comparable && follower.log[have - 1] != serving.log[have - 1] {
                return false;
            }
            if !is_comparable && !self.has(Fault::AcceptsUncheckedPosition) {
                return false;
            }
        }
        let known = follower.accounts.len();
        if known > serving.accounts.len() {
            return false;
        }
        let last_differs = known > 0 && follower.accounts[known - 1] != serving.accounts[known - 1];
        if last_differs && !self.has(Fault::SkipsCheckOfAccounts) {
            return false;
        }
        let is_led_to = known >= serving.journal_begin && !follower.incomplete;
        let all = serving.accounts.len();
        let (frames, sent_accounts) =
            if is_led_to { (Vec::new(), known) } else { (vec![Frame::Rows(all)], all) };
        state.streams += 1;
        state.stream = Some(Stream {
            primary,
            number: state.streams,
            frames,
            sent_log: have,
            sent_accounts,
            acked_log: have,
            acked_accounts: if is_led_to { known } else { 0 },
        });
        state.nodes[node].epoch = theirs;
        true
    }

    /// Lets `node` hear of a higher epoch: the gate closes, and the fence is committed by a later
    /// step.
    pub(crate) fn fence(&self, state: &mut State, node: usize, epoch: u8) -> bool {
        let fenced = &mut state.nodes[node];
        if fenced.gate_closed || !fenced.is_primary() || fenced.epoch >= epoch || state.heard[node] == epoch {
            return false;
        }
        if self.has(Fault::IgnoresHigherEpoch) {
            state.heard[node] = epoch;
        } else {
            fenced.gate_closed = true;
        }
        true
    }

    pub(crate) fn receive(&self, state: &mut State) -> bool {
        let Some(stream) = &mut state.stream else { return false };
        let follower = other(stream.primary);
        let node = &mut state.nodes[follower];
        if stream.frames.is_empty() {
            return false;
        }
        match stream.frames.remove(0) {
            Frame::Record(at, record) if at == node.log.len() => node.log.push(record),
            Frame::Change(at, change) if at == node.accounts.len() => node.accounts.push(change),
            Frame::Record(..) | Frame::Change(..) => return false,
            Frame::Rows(all) => {
                if self.has(Fault::CopiesRowsInPlace) {
                    node.incomplete = true;
                    stream.frames.insert(0, Frame::Rows(all));
                    return true;
                }
                let primary = stream.primary;
                let rows = state.nodes[primary].accounts.get(..all).unwrap_or_default().to_vec();
                state.nodes[follower].accounts = rows;
            }
        }
        true
    }

    pub(crate) fn promote(&self, state: &mut State, node: usize) {
        let promoted = &mut state.nodes[node];
        promoted.role = Role::Primary;
        if !self.has(Fault::KeepsEpoch) {
            promoted.epoch += 1;
        }
        promoted.stopped = false;
        promoted.hold = 0;
        if !self.has(Fault::KeepsOrphans) {
            for org in 1..=promoted.greatest_logged() {
                let node_state = &state.nodes[node];
                if node_state.has_samples(org) && !node_state.knows(org) {
                    self.append(state, node, Content::Drop { org }, false);
                }
            }
        }
    }

    /// Takes a step. Returns `false` if it is not possible or changes nothing.
    #[expect(clippy::too_many_lines, reason = "one arm for each step of the protocol")]
    pub(crate) fn step(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::WriteSample(node) => {
                let org = state.nodes[node].greatest_known();
                if self.bounds.organisations && (org == 0 || state.nodes[node].is_removed(org)) {
                    return false;
                }
                self.append(state, node, Content::Sample { org }, true);
            }
            Action::ChangeAccount(node) => self.commit(state, node, AccountContent::Plain, true),
            Action::CreateOrg(node) => {
                let of = &state.nodes[node];
                let org = of.greatest_known() + 1;
                state.leaked |= of.log.iter().any(|record| record.content == Content::Sample { org });
                self.commit(state, node, AccountContent::Create { org }, true);
            }
            Action::RemoveOrg(node) => {
                let org = state.nodes[node].greatest_known();
                if org == 0 || state.nodes[node].is_removed(org) || !state.nodes[node].knows(org) {
                    return false;
                }
                self.commit(state, node, AccountContent::Remove { org }, true);
            }
            Action::DropOrg(node) => {
                let org = state.nodes[node].greatest_known();
                if !state.nodes[node].is_removed(org) || state.nodes[node].is_dropped(org) {
                    return false;
                }
                self.append(state, node, Content::Drop { org }, false);
            }
            Action::ForgetOrg(node) => {
                let (of, org) = (&state.nodes[node], state.nodes[node].greatest_known());
                let is_dropped =
                    of.log.iter().take(of.synced).any(|record| record.content == Content::Drop { org });
                if !is_dropped || !of.knows(org) {
                    return false;
                }
                self.commit(state, node, AccountContent::Forget { org }, false);
            }
            Action::Sync(node) => state.nodes[node].synced = state.nodes[node].log.len(),
            Action::SendRecord => return self.send_record(state),
            Action::SendChange => return self.send_change(state),
            Action::Receive => return self.receive(state),
            Action::EndRows => {
                let Some(stream) = &mut state.stream else { return false };
                let (primary, follower) = (stream.primary, other(stream.primary));
                if !state.nodes[follower].incomplete || stream.frames.pop().is_none() {
                    return false;
                }
                state.nodes[follower].accounts = state.nodes[primary].accounts.clone();
                state.nodes[follower].incomplete = false;
            }
            Action::Acknowledge => return self.acknowledge(state),
            Action::DeliverAck(at) => {
                let ack = state.acks.remove(at);
                let Some(stream) = &mut state.stream else { return true };
                let is_current = ack.stream == stream.number || self.has(Fault::AcceptsOldAcknowledgements);
                if stream.primary == ack.to && is_current {
                    stream.acked_log = stream.acked_log.max(ack.log);
                    stream.acked_accounts = stream.acked_accounts.max(ack.accounts);
                }
            }
            Action::Answer(at) => {
                let request = state.requests[at];
                if !self.is_reached(state, &request) {
                    return false;
                }
                state.fenced_answered |= state.heard[request.node] > state.nodes[request.node].epoch;
                state.requests[at].outcome = Outcome::Answered;
            }
            Action::Fail(at) => state.requests[at].outcome = Outcome::Failed,
            Action::Repeat(at) => {
                state.repetitions += 1;
                let request = state.requests[at];
                let of = &state.nodes[request.node];
                // Only a repetition of samples that are still stored makes no record of its own.
                let is_there = match (request.position, request.wrote) {
                    (Position::Log(log), Wrote::Record(record)) => of.log.get(log - 1) == Some(&record),
                    (Position::Accounts(accounts), Wrote::Change(change)) => {
                        of.accounts.get(accounts - 1) == Some(&change)
                    }
                    (Position::Log(_), Wrote::Change(_)) | (Position::Accounts(_), Wrote::Record(_)) => false,
                };
                // A request that changes no account is not refused while no follower is connected.
                let (is_taken, forgot) = match request.position {
                    Position::Log(_) => (self.accepts(state, request.node), false),
                    Position::Accounts(_) => (of.is_open_primary(), of.forgot),
                };
                if !is_there || !is_taken {
                    return false;
                }
                let at_once = self.has(Fault::AnswersRepetitionsAtOnce) || forgot;
                state.requests[at].outcome = if at_once { Outcome::Answered } else { Outcome::Waiting };
            }
            Action::Disconnect => {
                state.disconnects += 1;
                state.stream = None;
            }
            Action::Connect(node) => {
                return state.nodes[other(node)].is_open_primary() && self.connect(state, node);
            }
            Action::Kill(node) => {
                state.kills += 1;
                Replication::end(state, node);
            }
            Action::PowerCut(node) => {
                state.power_cuts += 1;
                Replication::end(state, node);
                let cut = &mut state.nodes[node];
                cut.log.truncate(cut.synced);
            }
            Action::Start(node) => {
                let started = &mut state.nodes[node];
                if started.emptied {
                    return false;
                }
                started.up = true;
                started.forgot = self.has(Fault::ForgetsChangesAtStart);
                if !self.has(Fault::StartsWithoutSync) {
                    started.synced = started.log.len();
                }
            }
            Action::MoveHold => {
                let Some(stream) = &state.stream else { return false };
                let acked = stream.acked_log;
                // The follower's last record stays, so that a handshake can compare it.
                let hold = acked.saturating_sub(1);
                let node = &mut state.nodes[stream.primary];
                if hold <= node.hold {
                    return false;
                }
                node.hold = hold;
            }
            Action::GiveUpHold(node) => {
                if state.gave_up {
                    return false;
                }
                state.gave_up = true;
                state.nodes[node].hold = usize::MAX;
            }
            Action::Trim(node) => {
                let of = &mut state.nodes[node];
                let until = if self.has(Fault::IgnoresHold) { of.synced } else { of.synced.min(of.hold) };
                if until <= of.begin {
                    return false;
                }
                of.begin = until;
            }
            Action::TrimJournal(node) => {
                let of = &mut state.nodes[node];
                if of.journal_begin == of.accounts.len() {
                    return false;
                }
                of.journal_begin = of.accounts.len();
            }
            Action::StopStream(node) => {
                let of = &mut state.nodes[node];
                if of.incomplete {
                    return false;
                }
                of.stopped = true;
                if !self.has(Fault::AcknowledgesDuringPromotion) {
                    of.synced = of.log.len();
                    state.stream = None;
                }
            }
            Action::Promote(node) => {
                state.promotions += 1;
                self.promote(state, node);
            }
            Action::Fence(node) => {
                let (by, epoch) = (&state.nodes[other(node)], state.nodes[other(node)].epoch);
                let is_told = by.is_primary() && state.nodes[node].is_primary();
                return is_told && self.fence(state, node, epoch);
            }
            Action::CommitFence(node) => {
                let epoch = state.nodes[other(node)].epoch;
                let fenced = &mut state.nodes[node];
                if fenced.role != Role::Primary || state.heard[node] == epoch {
                    return false;
                }
                // The answer to the request leaves with this step.
                state.heard[node] = epoch;
                if self.has(Fault::FencesInMemory) {
                    return true;
                }
                (fenced.role, fenced.epoch) = (Role::Fenced, epoch);
                state.stream = state.stream.take().filter(|stream| stream.primary != node);
            }
            Action::StageBase(node) => {
                let of = &state.nodes[other(node)];
                let is_replaced = matches!(state.nodes[node].role, Role::Fenced | Role::Follower);
                if !is_replaced || !of.is_open_primary() || state.base.is_some() {
                    return false;
                }
                state.bases += 1;
                let log = of.log.get(..of.synced).unwrap_or_default().to_vec();
                let base = Base {
                    of: other(node),
                    epoch: of.epoch,
                    begin: of.begin,
                    accounts: of.accounts.clone(),
                    log,
                };
                if !self.has(Fault::HoldsAfterBase) {
                    state.nodes[other(node)].hold = base.log.len().saturating_sub(1);
                }
                state.base = Some(base);
                Replication::end(state, node);
                state.nodes[node] = Node::emptied();
            }
            Action::InstallBase => {
                let Some(base) = state.base.take() else { return false };
                let node = other(base.of);
                if self.has(Fault::HoldsAfterBase) {
                    state.nodes[base.of].hold = base.log.len().saturating_sub(1);
                }
                state.heard[node] = 0;
                state.nodes[node] = Node {
                    epoch: if self.has(Fault::ForgetsEpochOfBase) { 1 } else { base.epoch },
                    synced: base.log.len(),
                    begin: base.begin,
                    log: base.log,
                    accounts: base.accounts,
                    ..Node::new(Role::Follower)
                };
            }
            Action::RestoreFollower => {
                let Some(node) = state.nodes.iter().position(|node| node.role == Role::Follower) else {
                    return false;
                };
                let is_answered = |request: &ClientRequest| request.outcome == Outcome::Answered;
                if state.requests.iter().any(is_answered) || state.nodes[node].log.pop().is_none() {
                    return false;
                }
                state.follower_restores += 1;
                state.nodes[node].synced = state.nodes[node].log.len();
                Replication::end(state, node);
            }
            Action::RestoreBackup(node) => {
                let of = &mut state.nodes[node];
                if of.role != Role::Primary || of.log.len() + of.accounts.len() == 0 {
                    return false;
                }
                state.restores += 1;
                Replication::end(state, node);
                let of = &mut state.nodes[node];
                of.log.pop();
                of.accounts.pop();
                of.synced = of.log.len();
                of.begin = of.begin.min(of.synced);
                of.journal_begin = of.journal_begin.min(of.accounts.len());
            }
        }
        true
    }

    fn send_record(&self, state: &mut State) -> bool {
        let Some(stream) = &mut state.stream else { return false };
        let primary = &state.nodes[stream.primary];
        let durable = if self.has(Fault::SendsBeforeSync) { primary.log.len() } else { primary.synced };
        let at = stream.sent_log;
        let Some(record) = primary.log.get(at).filter(|_| at < durable && at >= primary.begin) else {
            return false;
        };
        // Changes that were made before the record are sent before it.
        let waits =
            stream.sent_accounts < usize::from(record.after) && !self.has(Fault::RecordsOvertakeChanges);
        if waits || stream.frames.len() == FRAMES_MAX {
            return false;
        }
        stream.frames.push(Frame::Record(at, *record));
        stream.sent_log += 1;
        true
    }

    fn send_change(&self, state: &mut State) -> bool {
        let Some(stream) = &mut state.stream else { return false };
        let at = stream.sent_accounts;
        let Some(change) = state.nodes[stream.primary].accounts.get(at) else { return false };
        if stream.frames.len() == FRAMES_MAX {
            return false;
        }
        stream.frames.push(Frame::Change(at, *change));
        stream.sent_accounts += 1;
        true
    }

    fn acknowledge(&self, state: &mut State) -> bool {
        let Some(stream) = state.stream.as_ref().filter(|_| self.bounds.trims || !self.bounds.asynchronous)
        else {
            return false;
        };
        let follower = &state.nodes[other(stream.primary)];
        if follower.incomplete || state.acks.len() == ACKS_MAX {
            return false;
        }
        let log = if self.has(Fault::AcknowledgesBeforeSync) { follower.log.len() } else { follower.synced };
        let ack = Acknowledgement {
            to: stream.primary,
            stream: stream.number,
            log,
            accounts: follower.accounts.len(),
        };
        if log <= stream.acked_log && ack.accounts <= stream.acked_accounts {
            return false;
        }
        state.acks.push(ack);
        true
    }
}
