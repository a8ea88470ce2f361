//! The primary: it checks the position of a follower, sends the records after it, and tracks the
//! acknowledgements.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::VERSION;
use super::base::{BaseError, send_base};
use super::frame::Frame;
use crate::clock::Stopwatch;
use crate::entropy::Entropy;
use crate::kv::{Control, CopiedChange, KnownChanges, StandbyRole, no_rows_check, with_sources};
use crate::model::{GateMode, StoreId, WriteGate};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{CopyError, LogCopies, LogPosition, Tsdb};

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The interval of heartbeats while a base is staged.
const BASE_HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a stream waits for progress at once.
const WAIT: Duration = Duration::from_millis(200);
/// The approximate number of bytes that are sent at once.
const PIECE_BYTES: usize = 512 << 10;
/// The time without an acknowledgement after which the follower counts as disconnected. It sends
/// one for every heartbeat.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The time between two changes of the hold in control.
const HOLD_EVERY: Duration = Duration::from_secs(5);
/// The most bytes of log after the follower's position that are kept for the follower.
const LOG_BYTES_MAX: u64 = 8 << 30;
/// The divisor of [`LOG_BYTES_MAX`] while the disk has no space for samples.
const FULL_DISK_PART: u64 = 32;
/// The greatest epoch: it grows by one with each promotion.
pub(super) const EPOCH_MAX: u64 = 1 << 32;

/// Stages a base, calls the function with its folder, the last log record and the last account
/// change in it, and removes it again.
pub type BaseSource =
    Box<dyn Fn(&mut dyn FnMut(&Path, u64, u64) -> Result<(), String>) -> Result<(), String> + Send + Sync>;

/// The parts of a primary.
pub struct PrimaryOptions {
    /// The accounts.
    pub control: Arc<Control>,
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// The id of the store.
    pub store: StoreId,
    /// Whether changes are acknowledged only once the follower has them.
    pub synchronous: bool,
    /// Stages a base.
    pub base: BaseSource,
}

/// A primary with at most one follower.
pub struct Primary {
    options: PrimaryOptions,
    gate: Arc<WriteGate>,
    state: Mutex<PrimaryState>,
    /// Held by a handshake, and by the end of a base: each stores a new link.
    linking: Mutex<()>,
    /// Held while a base is sent, so that there is one at a time.
    sending_base: Mutex<()>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct PrimaryState {
    epoch: u64,
    /// The link of the current stream; 0 if there is none.
    link: u64,
    /// Whether the follower has acknowledged anything in that stream.
    is_proven: bool,
    /// The positions that the follower acknowledged.
    log: u64,
    accounts: u64,
    last_ack: Option<Stopwatch>,
    /// The hold in control, and when it was written.
    hold: u64,
    hold_written: Option<Stopwatch>,
    hold_given_up: bool,
    /// The last record of a base that is being sent.
    base_hold: Option<u64>,
}

impl PrimaryState {
    const fn is_connected(&self) -> bool {
        self.link != 0
    }

    /// Returns the record from which the log is kept: the last one that the follower has, so that
    /// the next handshake can compare it, or that of a base, if it is earlier. 0 keeps nothing.
    fn wanted_hold(&self) -> u64 {
        if self.hold_given_up {
            return 0;
        }
        let own = self.hold.max(self.log).max(u64::from(self.is_connected()));
        match self.base_hold {
            Some(base) if own == 0 || base < own => base,
            _ => own,
        }
    }
}

/// The position that a follower reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The store.
    pub store: StoreId,
    /// The epoch.
    pub epoch: u64,
    /// The last record of its log.
    pub log: u64,
    /// The checksum of the follower's log up to that record.
    pub check: u32,
    /// The account position.
    pub accounts: u64,
    /// The CRC32C of the rows of the account change with that number; 0 if it is not known.
    pub accounts_check: u32,
    /// The id of its last stream or of its base.
    pub link: u64,
    /// Whether it needs all account rows.
    pub all_rows: bool,
}

/// The positions up to which a follower has made its copies durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The link of the stream.
    pub link: u64,
    /// The follower's epoch.
    pub epoch: u64,
    /// The last record of its log.
    pub log: u64,
    /// The account position.
    pub accounts: u64,
}

/// The reason why a request of a follower is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The follower belongs to another store.
    #[error("this is store {0}, but the follower copies another store")]
    OtherStore(StoreId),
    /// Another process has a higher epoch: this one is fenced.
    #[error("this server is not the primary: it knows of epoch {0}")]
    Fenced(u64),
    /// A fence of this server's own epoch.
    #[error("this server is the primary of epoch {0} itself")]
    SameEpoch(u64),
    /// The follower has records that the primary does not have.
    #[error("the follower has diverged: {0}")]
    Diverged(String),
    /// Another follower has taken its place, or this server is older than the follower's last
    /// stream.
    #[error("this follower is not the one that was last connected, or this server is an older copy")]
    Unknown,
    /// The log no longer has the records that the follower needs.
    #[error("the log no longer has the records that the follower needs; it needs a new base")]
    Trimmed,
    /// An acknowledgement of an older stream.
    #[error("this stream was replaced by another one")]
    OldStream,
    /// The primary failed; the request may be repeated.
    #[error("{0}")]
    Failed(String),
}

impl Refused {
    /// Returns the stable code and the HTTP status.
    pub const fn code(&self) -> (&'static str, u16) {
        match self {
            Refused::OtherStore(_) => ("standby_other_store", 409),
            Refused::Fenced(_) => ("fenced", 409),
            Refused::SameEpoch(_) => ("standby_same_epoch", 409),
            Refused::Diverged(_) => ("standby_diverged", 409),
            Refused::Unknown => ("standby_unknown", 409),
            Refused::Trimmed => ("standby_trimmed", 410),
            Refused::OldStream => ("standby_old_stream", 409),
            Refused::Failed(_) => ("standby_failed", 503),
        }
    }
}

/// The state of a primary, for metrics and `/readyz`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrimaryStatus {
    /// Whether changes wait for the follower.
    pub synchronous: bool,
    /// Whether a follower is connected.
    pub connected: bool,
    /// The epoch.
    pub epoch: u64,
    /// The records that the follower has not acknowledged.
    pub records_behind: u64,
    /// The account changes of all tables after the follower's position.
    pub changes_behind: u64,
    /// The records whose clients wait for the follower.
    pub waiting: usize,
    /// Whether the log was given up because it became too long.
    pub hold_given_up: bool,
}

impl Primary {
    /// Creates the primary and keeps account changes from now on. The log is kept since the store
    /// was opened.
    ///
    /// # Errors
    /// The reason as text.
    pub fn new(options: PrimaryOptions) -> Result<Arc<Primary>, String> {
        let row = options.control.standby().map_err(|e| with_sources(&e))?;
        let gate = Arc::clone(options.control.gate());
        gate.keep_changes();
        if options.synchronous && row.role == StandbyRole::Primary {
            gate.set_mode(GateMode::Synchronous);
        }
        let state = PrimaryState { epoch: row.epoch, hold: row.hold, ..PrimaryState::default() };
        Ok(Arc::new(Primary {
            options,
            gate,
            state: Mutex::new(state),
            linking: Mutex::default(),
            sending_base: Mutex::default(),
            closed: AtomicBool::new(false),
        }))
    }

    fn state(&self) -> MutexGuard<'_, PrimaryState> {
        self.state.lock().ignore_poison()
    }

    /// Ends all streams, because the server stops.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.gate.note_progress();
    }

    /// Ends the current stream.
    fn end_stream(&self, state: &mut PrimaryState) {
        state.link = 0;
        self.gate.set_connected(false);
        self.gate.note_progress();
    }

    /// Checks the position of a follower and begins its stream, which ends the previous stream.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn begin(self: &Arc<Self>, request: &StreamRequest) -> Result<Stream, Refused> {
        let PrimaryOptions { control, tsdb, store, .. } = &self.options;
        if request.store != *store {
            return Err(Refused::OtherStore(*store));
        }
        let failed = |e: &dyn std::error::Error| Refused::Failed(with_sources(e));
        let link_at_first = control.standby().map_err(|e| failed(&e))?.link;
        let _alone = self.linking.lock().ignore_poison();
        let row = control.standby().map_err(|e| failed(&e))?;
        if row.link != link_at_first {
            // The client may have given the request up. The newer stream may have its link already.
            return Err(Refused::Failed("another handshake was faster".to_owned()));
        }
        if request.epoch > row.epoch {
            self.fence(request.epoch)?;
            return Err(Refused::Fenced(request.epoch));
        }
        if row.role != StandbyRole::Primary || matches!(self.gate.mode(), GateMode::Fenced(_)) {
            return Err(Refused::Fenced(row.epoch));
        }
        if request.link != row.link && request.link != row.link_before {
            return Err(Refused::Unknown);
        }
        let acknowledged = row.hold.max(self.state().log);
        if request.log.max(1) < acknowledged {
            let text = format!("it has lost records up to {acknowledged}, which it had acknowledged");
            return Err(Refused::Diverged(text));
        }
        let log_end = tsdb.last_stored_record();
        if request.log > log_end {
            let text = format!("it has log record {}, this log ends with {log_end}", request.log);
            return Err(Refused::Diverged(text));
        }
        match tsdb.log_check(request.log) {
            Ok(check) if check != request.check => {
                let text = format!("the logs differ before record {}", request.log);
                return Err(Refused::Diverged(text));
            }
            Ok(_) => {}
            Err(CopyError::Trimmed { .. }) => return Err(Refused::Trimmed),
            Err(e) => return Err(failed(&e)),
        }
        match LogCopies::from(request.log + 1).read(tsdb, log_end, 1) {
            Ok(_) => {}
            Err(CopyError::Trimmed { .. }) => return Err(Refused::Trimmed),
            Err(e) => return Err(failed(&e)),
        }
        let last = control.last_change();
        if request.accounts > last {
            let text = format!("it has account change {}, the last one is {last}", request.accounts);
            return Err(Refused::Diverged(text));
        }
        let all_rows = request.all_rows || !self.has_same_change(request)?;
        let (link, known) = (random_link(), request.link);
        let linked = control.change_standby(move |row| (row.link, row.link_before) = (link, known));
        linked.map_err(|e| failed(&e))?;
        // Accounts of which it has only some rows count as none.
        let accounts = if request.all_rows { 0 } else { request.accounts };
        {
            let mut state = self.state();
            if let GateMode::Fenced(epoch) = self.gate.mode() {
                return Err(Refused::Fenced(epoch));
            }
            (state.link, state.is_proven, state.epoch) = (link, false, row.epoch);
            (state.log, state.accounts) = (request.log, accounts);
            state.last_ack = Some(Stopwatch::start());
            state.hold_given_up = false;
            tsdb.hold_log(state.wanted_hold());
            self.gate.set_connected(true);
        }
        // Ends the stream before.
        self.gate.note_progress();
        self.confirm(request.log, accounts);
        tracing::info!(log = request.log, accounts = request.accounts, "a follower has connected");
        Ok(Stream {
            primary: Arc::clone(self),
            link,
            reader: LogCopies::from(request.log + 1),
            accounts: request.accounts,
            all_rows,
            rows: None,
            hello: Some(Frame::Hello {
                version: VERSION,
                epoch: row.epoch,
                link,
                log_end,
                accounts_end: control.last_account_change(),
            }),
            seen: 0,
            quiet: Stopwatch::start(),
        })
    }

    /// Compares the last account change of a follower. Returns false if it is not known on one
    /// side, so that all rows must be copied.
    fn has_same_change(&self, request: &StreamRequest) -> Result<bool, Refused> {
        let (Some(before), 1..) = (request.accounts.checked_sub(1), request.accounts_check) else {
            return Ok(false);
        };
        let known = self.options.control.changes_after(before);
        let KnownChanges::Changes(changes) = known.map_err(|e| Refused::Failed(with_sources(&e)))? else {
            return Ok(false);
        };
        let own = changes.first().filter(|change| change.seq == request.accounts);
        if own.map_or_else(no_rows_check, CopiedChange::check) == request.accounts_check {
            return Ok(true);
        }
        Err(Refused::Diverged(format!("account change {} differs", request.accounts)))
    }

    fn confirm(&self, log: u64, accounts: u64) {
        self.options.tsdb.confirm(log);
        self.options.control.confirm(accounts);
    }

    /// Records the positions that the follower has made durable. Returns the primary's epoch.
    ///
    /// # Errors
    /// [`Refused`]; nothing is acknowledged then.
    pub fn acknowledge(&self, ack: Acknowledgement) -> Result<u64, Refused> {
        let PrimaryOptions { control, tsdb, .. } = &self.options;
        if ack.log > tsdb.last_stored_record() || ack.accounts > control.last_change() {
            return Err(Refused::Diverged(
                "it acknowledges records or changes that were never sent".to_owned(),
            ));
        }
        let epoch = {
            let mut state = self.state();
            if ack.epoch > state.epoch {
                drop(state);
                self.fence(ack.epoch)?;
                return Err(Refused::Fenced(ack.epoch));
            }
            if !state.is_connected() || ack.link != state.link || ack.epoch != state.epoch {
                return Err(Refused::OldStream);
            }
            if !state.is_proven {
                // The follower knows this link: the previous one is no longer needed, and a copy of
                // its folder from that time must not connect.
                let link = ack.link;
                let proven = control.change_standby(move |row| {
                    if row.link == link {
                        row.link_before = link;
                    }
                });
                proven.map_err(|e| Refused::Failed(with_sources(&e)))?;
                state.is_proven = true;
            }
            state.log = state.log.max(ack.log);
            state.accounts = state.accounts.max(ack.accounts);
            state.last_ack = Some(Stopwatch::start());
            tsdb.hold_log(state.wanted_hold());
            state.epoch
        };
        self.confirm(ack.log, ack.accounts);
        Ok(epoch)
    }

    /// Fences this server if `epoch` is higher than its own. Returns the epoch that this server
    /// knows.
    ///
    /// Closes the gate first. When this returns, the store has durably ceased to be the primary.
    ///
    /// # Errors
    /// [`Refused::SameEpoch`] and [`Refused::Fenced`]: this server is a primary of that epoch or a
    /// later one. [`Refused::Failed`]: the request must be repeated; the gate may be closed.
    pub fn fence(&self, epoch: u64) -> Result<u64, Refused> {
        let PrimaryOptions { control, tsdb, .. } = &self.options;
        let row = control.standby().map_err(|e| Refused::Failed(with_sources(&e)))?;
        match row.role {
            StandbyRole::Fenced | StandbyRole::Follower if epoch <= row.epoch => return Ok(row.epoch),
            StandbyRole::Primary if epoch == row.epoch => return Err(Refused::SameEpoch(epoch)),
            StandbyRole::Primary if epoch < row.epoch => return Err(Refused::Fenced(row.epoch)),
            StandbyRole::Follower => {
                return Err(Refused::Failed("this server is a follower and will hear of it".to_owned()));
            }
            StandbyRole::Primary | StandbyRole::Fenced if epoch > EPOCH_MAX => {
                return Err(Refused::Failed(format!("epoch {epoch} is too high")));
            }
            StandbyRole::Primary | StandbyRole::Fenced => {}
        }
        tracing::error!(epoch, "another server was promoted: this one accepts no more changes");
        self.gate.set_mode(GateMode::Fenced(epoch));
        self.end_stream(&mut self.state());
        tsdb.refuse_waiting();
        control.refuse_waiting();
        let fenced = control.change_standby(move |row| {
            if epoch > row.epoch {
                (row.role, row.epoch) = (StandbyRole::Fenced, epoch);
            }
        });
        fenced.map(|row| row.epoch).map_err(|e| Refused::Failed(with_sources(&e)))
    }

    /// Checks the store of a fence request, then fences.
    ///
    /// # Errors
    /// As for [`Primary::fence`], and [`Refused::OtherStore`].
    pub fn fence_store(&self, store: StoreId, epoch: u64) -> Result<u64, Refused> {
        if store == self.options.store {
            self.fence(epoch)
        } else {
            Err(Refused::OtherStore(self.options.store))
        }
    }

    /// Sends a base as encoded frames, in pieces, until `send` returns false.
    ///
    /// # Errors
    /// [`BaseError`].
    pub fn send_base(&self, send: &mut (dyn FnMut(Vec<u8>) -> bool + Send)) -> Result<(), BaseError> {
        let PrimaryOptions { control, tsdb, .. } = &self.options;
        let Ok(_alone) = self.sending_base.try_lock() else {
            return Err(BaseError::Source("another base is being sent".to_owned()));
        };
        let row = control.standby().map_err(|e| BaseError::Source(with_sources(&e)))?;
        if row.role != StandbyRole::Primary {
            return Err(BaseError::Source("this server is fenced".to_owned()));
        }
        // The hold begins before the base is staged, so that the log after the base stays.
        let hold = tsdb.last_stored_record().max(1);
        let keep = |base_hold: Option<u64>| {
            let mut state = self.state();
            if base_hold.is_some() && state.hold_given_up {
                (state.hold, state.log, state.hold_given_up) = (0, 0, false);
            }
            state.base_hold = base_hold;
            tsdb.hold_log(state.wanted_hold());
        };
        keep(Some(hold));
        let sent = self.stage_and_send(hold, row.epoch, send);
        keep(None);
        sent
    }

    fn stage_and_send(
        &self,
        hold: u64,
        epoch: u64,
        send: &mut (dyn FnMut(Vec<u8>) -> bool + Send),
    ) -> Result<(), BaseError> {
        let PrimaryOptions { base, .. } = &self.options;
        let mut failed = None;
        let link = random_link();
        let send = Mutex::new(send);
        let (staging, is_staged) = mpsc::channel::<()>();
        let mut staging = Some(staging);
        let staged = std::thread::scope(|scope| {
            // Heartbeats keep the follower connected during the staging. The staging ends if one
            // cannot be sent.
            let sender = &send;
            let heartbeats = move || {
                while let Err(RecvTimeoutError::Timeout) = is_staged.recv_timeout(BASE_HEARTBEAT) {
                    let mut out = Vec::new();
                    Frame::Heartbeat { log_end: hold, accounts_end: 0 }.encode(&mut out);
                    let mut send = sender.lock().ignore_poison();
                    if !send(out) {
                        return;
                    }
                }
            };
            let spawned = std::thread::Builder::new().name("base-heartbeat".to_owned());
            spawned.spawn_scoped(scope, heartbeats).map_err(|e| e.to_string())?;
            let staged = base(&mut |dir, log, accounts| {
                drop(staging.take());
                let end = Frame::BaseEnd { files: 0, log, accounts, epoch, link };
                let mut replace = || self.replace_follower(link, hold);
                let mut send = send.lock().ignore_poison();
                match send_base(dir, &end, &mut replace, &mut **send) {
                    Ok(()) => Ok(()),
                    Err(e) => {
                        let why = e.to_string();
                        failed = Some(e);
                        Err(why)
                    }
                }
            });
            drop(staging.take());
            staged
        });
        match (staged, failed) {
            (_, Some(e)) => Err(e),
            (Err(why), None) => Err(BaseError::Source(why)),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Makes the follower with the base `link` the only follower. The log is kept for it from
    /// `hold` on. The acknowledgements of another one no longer count.
    fn replace_follower(&self, link: u64, hold: u64) -> Result<(), BaseError> {
        let _alone = self.linking.lock().ignore_poison();
        let linked = self.options.control.change_standby(move |row| {
            (row.link, row.link_before, row.hold) = (link, link, hold);
        });
        linked.map_err(|e| BaseError::Source(with_sources(&e)))?;
        let mut state = self.state();
        (state.hold, state.log, state.accounts) = (hold, 0, 0);
        self.end_stream(&mut state);
        Ok(())
    }

    /// Expires waiting changes, notices a silent follower, stores the hold, and gives it up if the
    /// log takes too much room. Call it once a second.
    pub fn tick(&self) {
        self.tick_with(LOG_BYTES_MAX);
    }

    /// Does the work of [`Primary::tick`] with another limit of the log after the follower's
    /// position.
    pub(super) fn tick_with(&self, log_bytes_max: u64) {
        let PrimaryOptions { control, tsdb, .. } = &self.options;
        tsdb.expire_waiting();
        control.expire_waiting();
        let stored = {
            let mut state = self.state();
            let is_silent = state.last_ack.is_some_and(|last| last.elapsed() > SILENCE_MAX);
            if state.is_connected() && is_silent {
                tracing::warn!("the follower acknowledges nothing any more: its stream ends");
                self.end_stream(&mut state);
            }
            let limit = match tsdb.lacks_room_for_samples() {
                true => log_bytes_max / FULL_DISK_PART,
                false => log_bytes_max,
            };
            let held_bytes = tsdb.log_bytes_from(LogPosition(state.log.max(1)));
            if state.hold_given_up && state.is_connected() && held_bytes <= limit / 2 {
                state.hold_given_up = false;
            }
            let wanted = state.wanted_hold();
            let held_bytes = tsdb.log_bytes_from(LogPosition(wanted));
            if wanted > 0 && held_bytes > limit {
                tracing::error!("the log is no longer kept for the follower, which needs a new base");
                (state.hold_given_up, state.hold_written) = (true, None);
            }
            let wanted = state.wanted_hold();
            tsdb.hold_log(wanted);
            let is_due = state.hold_written.is_none_or(|since| since.elapsed() >= HOLD_EVERY);
            (is_due && wanted != state.hold && state.base_hold.is_none()).then(|| {
                (state.hold, state.hold_written) = (wanted, Some(Stopwatch::start()));
                wanted
            })
        };
        if let Some(hold) = stored
            && let Err(e) = control.change_standby(move |row| row.hold = hold)
        {
            tracing::warn!("the position of the follower was not stored: {}", with_sources(&e));
        }
    }

    /// Returns the state for metrics and `/readyz`.
    pub fn status(&self) -> PrimaryStatus {
        let PrimaryOptions { control, tsdb, synchronous, .. } = &self.options;
        let state = self.state();
        PrimaryStatus {
            synchronous: *synchronous,
            connected: state.is_connected(),
            epoch: state.epoch,
            records_behind: tsdb.last_stored_record().saturating_sub(state.log),
            changes_behind: control.last_account_change().saturating_sub(state.accounts),
            waiting: tsdb.waiting_for_follower(),
            hold_given_up: state.hold_given_up,
        }
    }

    /// Returns the number of the last account change.
    pub fn last_account_change(&self) -> u64 {
        self.options.control.last_account_change()
    }

    /// Returns whether the follower has the account changes up to `seq`, or none is waited for.
    pub fn has_accounts_up_to(&self, seq: u64) -> bool {
        !self.is_waiting_mode() || seq <= self.state().accounts
    }

    /// Returns whether changes wait for the follower now.
    pub fn is_waiting_mode(&self) -> bool {
        self.gate.mode() == GateMode::Synchronous
    }

    fn is_current(&self, link: u64) -> bool {
        self.state().link == link && !self.closed.load(Ordering::SeqCst)
    }
}

/// All account rows while they are sent.
struct SentRows {
    rows: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// The number and the check of the last change in them.
    seq: u64,
    check: u32,
}

/// The stream to one follower.
pub struct Stream {
    primary: Arc<Primary>,
    link: u64,
    reader: LogCopies,
    /// The last account change that was sent.
    accounts: u64,
    all_rows: bool,
    rows: Option<SentRows>,
    hello: Option<Frame>,
    seen: u64,
    quiet: Stopwatch,
}

/// Returns a random number other than 0.
fn random_link() -> u64 {
    u64::from_le_bytes(Entropy::system().bytes()).max(1)
}

impl Stream {
    /// Waits for the next frames and returns them encoded; `None` if the stream has ended.
    pub fn next_piece(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(hello) = self.hello.take() {
            hello.encode(&mut out);
            return Some(out);
        }
        while self.primary.is_current(self.link) {
            if let Err(why) = self.gather(&mut out) {
                tracing::error!("the stream to the follower has ended: {why}");
                return None;
            }
            if out.is_empty() && self.quiet.elapsed() >= HEARTBEAT {
                let PrimaryOptions { control, tsdb, .. } = &self.primary.options;
                let (log_end, accounts_end) = (tsdb.last_stored_record(), control.last_account_change());
                Frame::Heartbeat { log_end, accounts_end }.encode(&mut out);
            }
            if !out.is_empty() {
                self.quiet = Stopwatch::start();
                return Some(out);
            }
            self.seen = self.primary.gate.wait_for_progress(self.seen, WAIT);
        }
        None
    }

    /// Appends the next account rows.
    fn gather_rows(&mut self, out: &mut Vec<u8>) {
        let Some(SentRows { rows, seq, check }) = &mut self.rows else { return };
        while out.len() < PIECE_BYTES {
            let Some((key, value)) = rows.next() else {
                Frame::RowsEnd(*seq, *check).encode(out);
                self.accounts = *seq;
                self.rows = None;
                return;
            };
            Frame::Row(key, value).encode(out);
        }
    }

    /// Appends the records and changes that the follower lacks.
    ///
    /// A record follows all account changes that were made before it was durable. So a follower
    /// never has samples of an organisation that its accounts do not know yet.
    fn gather(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        if self.rows.is_some() {
            self.gather_rows(out);
            return Ok(());
        }
        let PrimaryOptions { control, tsdb, .. } = &self.primary.options;
        let log_end = tsdb.last_stored_record();
        let known = if std::mem::take(&mut self.all_rows) {
            control.all_account_rows()
        } else {
            control.changes_after(self.accounts)
        };
        match known.map_err(|e| with_sources(&e))? {
            KnownChanges::Changes(changes) if !changes.is_empty() => {
                for change in changes {
                    self.accounts = change.seq;
                    Frame::Change(change).encode(out);
                }
                // More changes may follow.
                return Ok(());
            }
            KnownChanges::Changes(_) => {}
            KnownChanges::Rows { seq, check, rows } => {
                Frame::RowsBegin(seq).encode(out);
                self.rows = Some(SentRows { rows: rows.into_iter(), seq, check });
                return Ok(());
            }
            KnownChanges::Beyond { last } => {
                return Err(format!("account change {} is beyond the last one, {last}", self.accounts));
            }
        }
        for record in self.reader.read(tsdb, log_end, PIECE_BYTES).map_err(|e| with_sources(&e))? {
            Frame::Record(record).encode(out);
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.primary.state();
        if state.link == self.link {
            self.primary.end_stream(&mut state);
            tracing::warn!("the follower has disconnected");
        }
    }
}
