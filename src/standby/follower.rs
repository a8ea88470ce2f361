//! The follower: it copies the primary's log and accounts, acknowledges the records that are
//! durable in its store, and can be promoted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::VERSION;
use super::frame::{Frame, FrameError, FrameReader};
use super::primary::EPOCH_MAX;
use crate::clock::{Clock, Stopwatch};
use crate::kv::{self, Control, CopiedChange, StandbyRole, StandbyRow, with_sources};
use crate::model::{GateMode, StoreId};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{CopyError, LogRecord, Tsdb};

/// The longest wait of one read of the stream. A promotion waits for the read.
const READ_WAIT: Duration = Duration::from_millis(100);
/// The time without a frame after which the connection counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The first and the longest delay before a reconnect.
const RETRY_MIN: Duration = Duration::from_millis(30);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// The interval between two attempts to fence the old primary, before and after the first success.
/// They continue because its folder may be restored to an earlier state.
const FENCE_EVERY: Duration = Duration::from_secs(1);
const FENCE_AGAIN: Duration = Duration::from_secs(30);
/// The shortest time between two readings of all accounts.
const RELOAD_EVERY: Duration = Duration::from_millis(200);
/// The longest time that a promotion waits for the end of the copying.
const PROMOTE_MAX: Duration = Duration::from_secs(30);
/// The limit of all account rows of a primary in bytes.
const ROWS_BYTES_MAX: usize = 512 << 20;

/// The reason why a request to the primary failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The primary cannot be reached.
    #[error("the primary cannot be reached: {0}")]
    Unreachable(String),
    /// The primary refused the request.
    #[error("the primary refused ({code}): {detail}")]
    Refused {
        /// The stable error code.
        code: String,
        /// The message of the response.
        detail: String,
    },
    /// The connection has ended.
    #[error("the connection to the primary has ended")]
    Ended,
}

/// A transport to the primary.
pub trait PrimaryLink: Send + Sync {
    /// Begins a request whose response is read piece by piece. Fails soon after `is_over` returns
    /// true.
    ///
    /// # Errors
    /// [`LinkError`].
    fn open(&self, target: &str, is_over: &dyn Fn() -> bool) -> Result<Box<dyn Incoming>, LinkError>;

    /// Sends a request without a body and waits a short time for the response.
    ///
    /// # Errors
    /// [`LinkError`].
    fn post(&self, target: &str) -> Result<(), LinkError>;
}

/// The body of a response.
pub trait Incoming: Send {
    /// Returns the next bytes; `None` if none arrived within `longest`.
    ///
    /// # Errors
    /// [`LinkError::Ended`] at the end.
    fn read(&mut self, longest: Duration) -> Result<Option<Vec<u8>>, LinkError>;
}

/// The state of a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FollowerState {
    /// The follower is not connected; the text is the reason.
    Disconnected(String),
    /// The follower connects, or copies older records.
    #[default]
    Connecting,
    /// The follower has caught up, and copies new records as they are written.
    Streaming,
    /// The follower was promoted.
    Promoted,
}

/// The state of a follower, for metrics and `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// The state.
    pub state: FollowerState,
    /// The number of records that the follower lacked when the primary sent its last frame.
    pub records_behind: u64,
    /// The number of account changes that the follower lacked then.
    pub changes_behind: u64,
    /// The time since the follower last had all records and changes.
    pub lag: Duration,
}

/// The reason why a follower was not promoted.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// The server is not a follower.
    #[error("this server is not a follower")]
    NotAFollower,
    /// Only a part of the accounts was copied.
    #[error("the accounts are incomplete: the follower must reach the primary once more, or be restored")]
    Incomplete,
    /// The follower has never caught up with its primary.
    #[error(
        "this follower has not caught up with its primary since its base{missing}: changes that the primary          acknowledged may be lost; `promlet promote --accept-loss` promotes it all the same"
    )]
    Behind {
        /// A description of the missing records; empty if they are not known.
        missing: String,
    },
    /// The copying did not end in time.
    #[error("the follower is still storing a batch; try again")]
    Busy,
    /// The role was not stored, so the server is still a follower.
    #[error("the promotion was not stored: {0}")]
    Failed(String),
}

/// The reason why copying stopped.
#[derive(Debug, thiserror::Error)]
enum CopyStop {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Records(#[from] CopyError),
    #[error(transparent)]
    Accounts(#[from] kv::AccountCopyError),
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, Default)]
struct Progress {
    state: FollowerState,
    log_end: u64,
    accounts_end: u64,
    /// The time since the follower last had all records and changes.
    current: Option<Stopwatch>,
}

/// Reads the stored accounts into memory. Returns whether that succeeded.
pub type ReloadAccounts = Box<dyn Fn() -> bool + Send + Sync>;

/// The follower of a running server.
pub struct Follower {
    control: Arc<Control>,
    tsdb: Arc<Tsdb>,
    store: StoreId,
    clock: Clock,
    /// Reads the stored accounts into memory. Returns whether that succeeded.
    reload_accounts: ReloadAccounts,
    /// Whether account changes were stored since the last reload.
    needs_reload: AtomicBool,
    progress: Mutex<Progress>,
    stopping: AtomicBool,
    is_copying: Mutex<bool>,
    has_stopped: Condvar,
}

impl Follower {
    /// Creates a follower that copies into the open store.
    pub fn new(
        control: Arc<Control>,
        tsdb: Arc<Tsdb>,
        store: StoreId,
        clock: Clock,
        reload_accounts: ReloadAccounts,
    ) -> Arc<Follower> {
        let progress = Mutex::new(Progress { current: Some(Stopwatch::start()), ..Progress::default() });
        Arc::new(Follower {
            control,
            tsdb,
            store,
            clock,
            reload_accounts,
            needs_reload: AtomicBool::new(false),
            progress,
            stopping: AtomicBool::new(false),
            is_copying: Mutex::new(false),
            has_stopped: Condvar::new(),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().ignore_poison()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Copies until [`Follower::stop`] or a promotion, and connects again after each failure.
    pub fn copy(&self, link: &dyn PrimaryLink) {
        *self.is_copying.lock().ignore_poison() = true;
        // Dropped after a panic, too; otherwise a promotion would wait for its timeout.
        let _guard = CopyingGuard(self);
        let mut wait = RETRY_MIN;
        while !self.is_stopping() {
            let had = self.tsdb.last_stored_record();
            let stop = self.connect(link).err();
            let Some(stop) = stop.filter(|_| !self.is_stopping()) else { break };
            let text = with_sources(&stop);
            let is_news = self.progress().state != FollowerState::Disconnected(text.clone());
            if is_news {
                tracing::warn!("copying has stopped and is tried again: {text}");
            }
            self.progress().state = FollowerState::Disconnected(text);
            if self.tsdb.last_stored_record() > had {
                wait = RETRY_MIN;
            }
            self.pause(wait);
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    /// Waits for at most `longest`, or until the follower is to stop.
    fn pause(&self, longest: Duration) {
        let watch = Stopwatch::start();
        while watch.elapsed() < longest && !self.is_stopping() {
            std::thread::sleep(longest.min(Duration::from_millis(50)));
        }
    }

    /// Connects and copies until the connection fails or the follower is to stop.
    fn connect(&self, link: &dyn PrimaryLink) -> Result<(), CopyStop> {
        let failed = |e: &dyn std::error::Error| CopyStop::Failed(with_sources(e));
        // The handshake acknowledges the last record.
        self.tsdb.complete_last_record(self.clock.now())?;
        let row = self.control.standby().map_err(|e| failed(&e))?;
        let log = self.tsdb.last_stored_record();
        let check = match self.tsdb.log_check(log) {
            Ok(check) => check,
            // A seal of this store removed the record from the log.
            Err(CopyError::Trimmed { .. }) => 0,
            Err(e) => return Err(e.into()),
        };
        let mut target = format!(
            "/api/v1/standby/stream?store={}&epoch={}&log={log}&check={check}&accounts={}&rows_check={}&link={}",
            self.store, row.epoch, row.accounts, row.accounts_check, row.link
        );
        if row.incomplete {
            target.push_str("&rows=all");
        }
        let mut incoming = link.open(&target, &|| self.is_stopping())?;
        let mut copying = Copying {
            follower: self,
            epoch: row.epoch,
            link: None,
            caught_up: row.caught_up,
            log,
            accounts: row.accounts,
            rows: None,
        };
        let acknowledgements = Acknowledgements::default();
        std::thread::scope(|scope| {
            let sender = std::thread::Builder::new().name("standby-ack".to_owned());
            let spawned = sender.spawn_scoped(scope, || acknowledgements.send(link));
            let _end = EndOnDrop(&acknowledgements);
            spawned.map_err(|e| failed(&e))?;
            self.copy_stream(incoming.as_mut(), &mut copying, &acknowledgements)
        })
    }

    /// Copies until the stream fails or the follower is to stop.
    fn copy_stream(
        &self,
        incoming: &mut dyn Incoming,
        copying: &mut Copying<'_>,
        acknowledgements: &Acknowledgements,
    ) -> Result<(), CopyStop> {
        let mut reader = FrameReader::default();
        let mut quiet = Stopwatch::start();
        let mut reloaded = Stopwatch::start();
        while !self.is_stopping() {
            let mut batch = StoredTogether::default();
            while let Some(frame) = reader.next_frame()? {
                copying.take(frame, &mut batch)?;
            }
            if batch.has_frames {
                copying.store(batch)?;
                // This is the last step before the acknowledgement, and a promotion waits for its
                // end.
                if self.is_stopping() {
                    return Ok(());
                }
                if let Some(target) = copying.acknowledgement() {
                    acknowledgements.put(target);
                }
            }
            acknowledgements.check()?;
            if self.needs_reload.load(Ordering::SeqCst) && reloaded.elapsed() >= RELOAD_EVERY {
                self.reload();
                reloaded = Stopwatch::start();
            }
            match incoming.read(READ_WAIT)? {
                Some(bytes) => {
                    quiet = Stopwatch::start();
                    reader.push(&bytes);
                }
                None if quiet.elapsed() > SILENCE_MAX => return Err(LinkError::Ended.into()),
                None => {}
            }
        }
        Ok(())
    }

    /// Reads the accounts into memory again.
    fn reload(&self) {
        self.needs_reload.store(false, Ordering::SeqCst);
        if !(self.reload_accounts)() {
            self.needs_reload.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the copying and waits for it.
    pub fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        let watch = Stopwatch::start();
        let mut is_copying = self.is_copying.lock().ignore_poison();
        while *is_copying && watch.elapsed() < PROMOTE_MAX {
            let (again, _) = self.has_stopped.wait_timeout(is_copying, READ_WAIT).ignore_poison();
            is_copying = again;
        }
        !*is_copying
    }

    /// Makes this server the primary: ends the copying, stores the role and the next epoch, and
    /// opens the gate in the mode `mode`. A follower that has never caught up is promoted only if
    /// `accepts_loss`. Returns the epoch.
    ///
    /// # Errors
    /// [`PromoteError`]: the server is still a follower. After [`PromoteError::Busy`] and
    /// [`PromoteError::Failed`] it does not copy until its next start or a further promotion.
    pub fn promote(&self, mode: GateMode, accepts_loss: bool) -> Result<u64, PromoteError> {
        let failed = |e: &dyn std::error::Error| PromoteError::Failed(with_sources(e));
        let row = self.control.standby().map_err(|e| failed(&e))?;
        let missing = match self.status().records_behind {
            0 => String::new(),
            records => format!(" and lacks {records} log records or more"),
        };
        admit_promotion(&row, accepts_loss, missing)?;
        if !self.stop() {
            return Err(PromoteError::Busy);
        }
        self.tsdb.complete_last_record(self.clock.now()).map_err(|e| failed(&e))?;
        let epoch = promote_store(&self.control, accepts_loss)?;
        // Without this, the first change would be based on older accounts.
        self.reload();
        self.control.gate().set_mode(mode);
        self.tsdb.begin_own_records();
        self.progress().state = FollowerState::Promoted;
        tracing::warn!(epoch, "this server is the primary now");
        Ok(epoch)
    }

    /// Records that this store was promoted by an earlier process or command.
    pub fn set_promoted(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.progress().state = FollowerState::Promoted;
    }

    /// Waits until this server is promoted, or `is_over` returns true.
    pub fn wait_for_promotion(&self, is_over: &dyn Fn() -> bool) {
        while !is_over() && self.progress().state != FollowerState::Promoted {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends the promotion to the old primary until `is_over` returns true: every [`FENCE_EVERY`]
    /// until it confirms that it is fenced, and every [`FENCE_AGAIN`] afterwards.
    pub fn fence_old(&self, link: &dyn PrimaryLink, is_over: &dyn Fn() -> bool) {
        let mut said = String::new();
        while !is_over() {
            let Ok(row) = self.control.standby() else { return };
            if row.role != StandbyRole::Primary {
                return;
            }
            let target = format!("/api/v1/standby/fence?store={}&epoch={}", self.store, row.epoch);
            let fenced = link.post(&target);
            let text = match &fenced {
                Ok(()) => "the old primary is fenced".to_owned(),
                Err(e) => format!("the old primary is not fenced yet: {e}"),
            };
            if said != text {
                match &fenced {
                    Ok(()) => tracing::info!("{text}"),
                    Err(_) => tracing::warn!("{text}"),
                }
                said = text;
            }
            let pause = if fenced.is_ok() { FENCE_AGAIN } else { FENCE_EVERY };
            let watch = Stopwatch::start();
            while watch.elapsed() < pause && !is_over() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Returns the state for metrics and `/readyz`.
    pub fn status(&self) -> FollowerStatus {
        let accounts = self.control.standby().map_or(0, |row| row.accounts);
        let log = self.tsdb.last_stored_record();
        let progress = self.progress();
        FollowerStatus {
            state: progress.state.clone(),
            records_behind: progress.log_end.saturating_sub(log),
            changes_behind: progress.accounts_end.saturating_sub(accounts),
            lag: progress.current.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }
}

/// Stores the role of a primary with the next epoch in the control of a follower that is not
/// copying. Returns the epoch.
///
/// # Errors
/// [`PromoteError`].
pub(super) fn promote_store(control: &Control, accepts_loss: bool) -> Result<u64, PromoteError> {
    let failed = |e: &dyn std::error::Error| PromoteError::Failed(with_sources(e));
    let row = control.standby().map_err(|e| failed(&e))?;
    admit_promotion(&row, accepts_loss, String::new())?;
    let epoch = row.epoch.saturating_add(1);
    if epoch > EPOCH_MAX {
        return Err(PromoteError::Failed(format!("epoch {epoch} is too high")));
    }
    let promoted = control.change_standby(move |row| {
        (row.role, row.epoch, row.hold) = (StandbyRole::Primary, epoch, 0);
    });
    promoted.map(|row| row.epoch).map_err(|e| failed(&e))
}

/// Checks that a store with this role row may be promoted.
fn admit_promotion(row: &StandbyRow, accepts_loss: bool, missing: String) -> Result<(), PromoteError> {
    match row.role {
        StandbyRole::Primary | StandbyRole::Fenced => Err(PromoteError::NotAFollower),
        StandbyRole::Follower if row.incomplete => Err(PromoteError::Incomplete),
        StandbyRole::Follower if !row.caught_up && !accepts_loss => Err(PromoteError::Behind { missing }),
        StandbyRole::Follower => Ok(()),
    }
}

/// The acknowledgements of one connection. A thread sends them, so the next batch is stored
/// meanwhile.
#[derive(Default)]
struct Acknowledgements {
    state: Mutex<AcknowledgementState>,
    changed: Condvar,
}

#[derive(Default)]
struct AcknowledgementState {
    /// The next request.
    due: Option<String>,
    failure: Option<LinkError>,
    is_over: bool,
}

impl Acknowledgements {
    /// Sends a request soon. It replaces the one that is due, whose positions it includes.
    fn put(&self, target: String) {
        self.state.lock().ignore_poison().due = Some(target);
        self.changed.notify_one();
    }

    /// Returns the error of a request that failed.
    fn check(&self) -> Result<(), LinkError> {
        match &self.state.lock().ignore_poison().failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Sends what is due until the end of the connection, or until a request fails.
    fn send(&self, link: &dyn PrimaryLink) {
        loop {
            let mut state = self.state.lock().ignore_poison();
            while state.due.is_none() && !state.is_over {
                state = self.changed.wait(state).ignore_poison();
            }
            let Some(target) = state.due.take().filter(|_| !state.is_over) else { return };
            drop(state);
            if let Err(failure) = link.post(&target) {
                self.state.lock().ignore_poison().failure = Some(failure);
                return;
            }
        }
    }
}

/// Ends the thread of the acknowledgements.
struct EndOnDrop<'a>(&'a Acknowledgements);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.state.lock().ignore_poison().is_over = true;
        self.0.changed.notify_one();
    }
}

/// Records the end of the copying.
struct CopyingGuard<'f>(&'f Follower);

impl Drop for CopyingGuard<'_> {
    fn drop(&mut self) {
        *self.0.is_copying.lock().ignore_poison() = false;
        self.0.has_stopped.notify_all();
    }
}

/// Account rows with their keys.
type AccountRows = Vec<(Vec<u8>, Vec<u8>)>;

/// The frames that are stored together.
#[derive(Default)]
struct StoredTogether {
    records: Vec<LogRecord>,
    changes: Vec<CopiedChange>,
    /// All account rows, with the number and the check of their last change.
    rows: Option<(u64, u32, AccountRows)>,
    has_frames: bool,
}

/// The state of one connection.
struct Copying<'f> {
    follower: &'f Follower,
    epoch: u64,
    /// The id of the stream, from the hello.
    link: Option<u64>,
    /// Whether this follower has caught up before.
    caught_up: bool,
    /// The positions that are durable in this store.
    log: u64,
    accounts: u64,
    /// All account rows while they arrive, with their bytes.
    rows: Option<(u64, AccountRows, usize)>,
}

impl Copying<'_> {
    fn take(&mut self, frame: Frame, batch: &mut StoredTogether) -> Result<(), CopyStop> {
        batch.has_frames = true;
        if self.link.is_none() && !matches!(frame, Frame::Hello { .. }) {
            return Err(FrameError("the stream does not begin with a hello").into());
        }
        if self.rows.is_some() && !matches!(frame, Frame::Row(..) | Frame::RowsEnd(..)) {
            return Err(FrameError("account rows are interrupted").into());
        }
        match frame {
            Frame::Hello { version, epoch, link, log_end, accounts_end } => {
                if self.link.is_some() || version != VERSION {
                    return Err(FrameError("a second hello, or one of another version").into());
                }
                self.greet(epoch, link)?;
                self.link = Some(link);
                self.note_ends(log_end, accounts_end);
            }
            Frame::Record(record) => {
                self.note_ends(record.seq, 0);
                batch.records.push(record);
            }
            Frame::Change(change) => {
                self.note_ends(0, change.seq);
                batch.changes.push(change);
            }
            Frame::Heartbeat { log_end, accounts_end } => self.note_ends(log_end, accounts_end),
            Frame::RowsBegin(seq) => self.rows = Some((seq, Vec::new(), 0)),
            Frame::Row(key, value) => {
                let (_, rows, bytes) = self.rows.as_mut().ok_or(FrameError("a row without a beginning"))?;
                *bytes += key.len() + value.len();
                if *bytes > ROWS_BYTES_MAX {
                    return Err(FrameError("the account rows are too long").into());
                }
                rows.push((key, value));
            }
            Frame::RowsEnd(seq, check) => {
                let (begun, rows, _) = self.rows.take().ok_or(FrameError("an end without rows"))?;
                if begun != seq || batch.rows.is_some() || !batch.changes.is_empty() {
                    return Err(FrameError("account rows of two positions").into());
                }
                batch.rows = Some((seq, check, rows));
            }
            Frame::File { .. } | Frame::Data(_) | Frame::BaseEnd { .. } => {
                return Err(FrameError("a frame of a base in a stream").into());
            }
        }
        Ok(())
    }

    /// Stores the epoch of the primary and the id of the stream, before the first record.
    fn greet(&mut self, epoch: u64, link: u64) -> Result<(), CopyStop> {
        if epoch < self.epoch {
            let own = self.epoch;
            return Err(CopyStop::Failed(format!(
                "the primary has epoch {epoch}, this follower knows {own}"
            )));
        }
        if epoch > EPOCH_MAX {
            return Err(FrameError("the epoch is too high").into());
        }
        let stored = self.follower.control.change_standby(move |row| (row.epoch, row.link) = (epoch, link));
        stored.map_err(|e| CopyStop::Failed(with_sources(&e)))?;
        self.epoch = epoch;
        Ok(())
    }

    fn note_ends(&self, log_end: u64, accounts_end: u64) {
        let mut progress = self.follower.progress();
        progress.log_end = progress.log_end.max(log_end);
        progress.accounts_end = progress.accounts_end.max(accounts_end);
    }

    /// Makes a batch durable.
    fn store(&mut self, batch: StoredTogether) -> Result<(), CopyStop> {
        let StoredTogether { records, changes, rows, .. } = batch;
        let Follower { control, tsdb, clock, needs_reload, .. } = self.follower;
        let mut has_changed = false;
        if let Some((seq, check, rows)) = rows {
            control.store_rows(seq, check, rows)?;
            (self.accounts, has_changed) = (seq, true);
        }
        if let Some(last) = changes.last() {
            let seq = last.seq;
            control.store_changes(&changes)?;
            (self.accounts, has_changed) = (self.accounts.max(seq), true);
        }
        if let Some(last) = records.last() {
            let seq = last.seq;
            tsdb.store_records(records, clock.now())?;
            self.log = seq;
        }
        if has_changed {
            needs_reload.store(true, Ordering::SeqCst);
        }
        let mut progress = self.follower.progress();
        let has_all = self.log >= progress.log_end && self.accounts >= progress.accounts_end;
        if has_all && !self.caught_up && self.rows.is_none() {
            let stored = control.change_standby(|row| row.caught_up = true);
            stored.map_err(|e| CopyStop::Failed(with_sources(&e)))?;
            self.caught_up = true;
        }
        if has_all {
            progress.current = Some(Stopwatch::start());
        }
        progress.state = if has_all { FollowerState::Streaming } else { FollowerState::Connecting };
        Ok(())
    }

    /// Returns the request that acknowledges everything that is stored; `None` before the hello.
    fn acknowledgement(&self) -> Option<String> {
        let Copying { epoch, log, accounts, .. } = self;
        let link = self.link?;
        Some(format!("/api/v1/standby/ack?link={link}&epoch={epoch}&log={log}&accounts={accounts}"))
    }
}
