//! The follower: it copies the primary's log and accounts, acknowledges what it has made durable,
//! and is promoted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::VERSION;
use super::frame::{Frame, FrameError, FrameReader};
use crate::clock::{Clock, Stopwatch};
use crate::kv::{self, Control, CopiedChange, StandbyRole, with_sources};
use crate::model::{GateMode, StoreId};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{CopyError, LogRecord, Tsdb};

/// How long a read of the stream waits at once, which bounds the wait for a promotion.
const READ_WAIT: Duration = Duration::from_millis(100);
/// The time without a frame after which the connection counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The first and the longest wait before a further connection.
const RETRY_MIN: Duration = Duration::from_millis(30);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// The wait between two attempts to fence the old primary.
const FENCE_EVERY: Duration = Duration::from_secs(1);
/// The longest wait of a promotion for the end of the copying.
const PROMOTE_MAX: Duration = Duration::from_secs(30);
/// The limit of all account rows of a primary in bytes.
const ROWS_BYTES_MAX: usize = 512 << 20;

/// The reason why a request to the primary failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It cannot be reached.
    #[error("the primary cannot be reached: {0}")]
    Unreachable(String),
    /// It refused the request.
    #[error("the primary refused ({code}): {detail}")]
    Refused {
        /// The stable code.
        code: String,
        /// The sentence of the response.
        detail: String,
    },
    /// The connection has ended.
    #[error("the connection to the primary has ended")]
    Ended,
}

/// The primary, as a follower reaches it.
pub trait PrimaryLink: Send + Sync {
    /// Begins a request whose response is read piece by piece.
    ///
    /// # Errors
    /// [`LinkError`].
    fn open(&self, target: &str) -> Result<Box<dyn Incoming>, LinkError>;

    /// Sends a request without a body and waits for the response, for a short time only.
    ///
    /// # Errors
    /// [`LinkError`].
    fn post(&self, target: &str) -> Result<(), LinkError>;
}

/// The body of a response.
pub trait Incoming: Send {
    /// Returns the next bytes; `None` if none came within `longest`.
    ///
    /// # Errors
    /// [`LinkError::Ended`] at the end.
    fn read(&mut self, longest: Duration) -> Result<Option<Vec<u8>>, LinkError>;
}

/// The state of a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FollowerState {
    /// It is not connected, for this reason.
    Disconnected(String),
    /// It copies.
    #[default]
    Connecting,
    /// It copies what happens now.
    Streaming,
    /// It was promoted.
    Promoted,
}

/// The state of a follower, for metrics and `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// The state.
    pub state: FollowerState,
    /// The records that the primary had more when it sent its last frame.
    pub records_behind: u64,
    /// The account changes that it had more.
    pub changes_behind: u64,
    /// The time since this follower last had everything.
    pub lag: Duration,
}

/// The reason why a follower was not promoted.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// It is none.
    #[error("this server is not a follower")]
    NotAFollower,
    /// Only a part of the accounts was copied.
    #[error("the accounts are incomplete: the follower must reach the primary once more, or be restored")]
    Incomplete,
    /// The copying did not end in time.
    #[error("the follower is still storing a batch; try again")]
    Busy,
    /// The role was not stored: it is a follower still.
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
    /// Since this follower last had everything.
    current: Option<Stopwatch>,
}

/// A follower while its server runs.
pub struct Follower {
    control: Arc<Control>,
    tsdb: Arc<Tsdb>,
    store: StoreId,
    clock: Clock,
    /// Called after account changes were stored.
    on_accounts: Box<dyn Fn() + Send + Sync>,
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
        on_accounts: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Follower> {
        let progress = Mutex::new(Progress { current: Some(Stopwatch::start()), ..Progress::default() });
        Arc::new(Follower {
            control,
            tsdb,
            store,
            clock,
            on_accounts,
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
        *self.is_copying.lock().ignore_poison() = false;
        self.has_stopped.notify_all();
    }

    /// Waits, but not longer than until the follower is to stop.
    fn pause(&self, longest: Duration) {
        let watch = Stopwatch::start();
        while watch.elapsed() < longest && !self.is_stopping() {
            std::thread::sleep(longest.min(Duration::from_millis(50)));
        }
    }

    /// Connects and copies until the connection fails or the follower is to stop.
    fn connect(&self, link: &dyn PrimaryLink) -> Result<(), CopyStop> {
        let failed = |e: &dyn std::error::Error| CopyStop::Failed(with_sources(e));
        let row = self.control.standby().map_err(|e| failed(&e))?;
        let log = self.tsdb.last_stored_record();
        let check = match self.tsdb.log_check(log) {
            Ok(check) => check,
            // Its own seal trimmed it.
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
        let mut incoming = link.open(&target)?;
        let mut copying = Copying {
            follower: self,
            epoch: row.epoch,
            stream: None,
            log,
            accounts: row.accounts,
            rows: None,
        };
        let mut reader = FrameReader::default();
        let mut quiet = Stopwatch::start();
        while !self.is_stopping() {
            let mut batch = StoredTogether::default();
            while let Some(frame) = reader.next_frame()? {
                copying.take(frame, &mut batch)?;
            }
            if batch.has_frames {
                copying.store(batch)?;
                // The last step before the acknowledgement: a promotion waits for its end.
                if self.is_stopping() {
                    return Ok(());
                }
                copying.acknowledge(link)?;
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
    /// opens the gate in the mode `mode`. Returns the epoch.
    ///
    /// # Errors
    /// [`PromoteError`]: it is a follower still, and does not copy until its next start or a
    /// further promotion.
    pub fn promote(&self, mode: GateMode) -> Result<u64, PromoteError> {
        let failed = |e: &dyn std::error::Error| PromoteError::Failed(with_sources(e));
        let row = self.control.standby().map_err(|e| failed(&e))?;
        if row.role != StandbyRole::Follower {
            return Err(PromoteError::NotAFollower);
        }
        if !self.stop() {
            return Err(PromoteError::Busy);
        }
        let epoch = promote_store(&self.control)?;
        self.control.gate().set_mode(mode);
        self.tsdb.begin_own_records();
        (self.on_accounts)();
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

    /// Tells the old primary of the promotion until it has confirmed that it is fenced, or
    /// `is_over` returns true.
    pub fn fence_old(&self, link: &dyn PrimaryLink, is_over: &dyn Fn() -> bool) {
        while !is_over() {
            let Ok(row) = self.control.standby() else { return };
            if row.role != StandbyRole::Primary || row.old_is_fenced {
                return;
            }
            let target = format!("/api/v1/standby/fence?store={}&epoch={}", self.store, row.epoch);
            match link.post(&target) {
                Ok(()) => {
                    tracing::info!("the old primary is fenced");
                    if let Err(e) = self.control.change_standby(|row| row.old_is_fenced = true) {
                        tracing::warn!("this was not stored: {}", with_sources(&e));
                    }
                    return;
                }
                Err(e) => tracing::debug!("the old primary is not fenced yet: {e}"),
            }
            let watch = Stopwatch::start();
            while watch.elapsed() < FENCE_EVERY && !is_over() {
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

/// Stores the role of a primary with the next epoch in a follower's control, which does not copy
/// now. Returns the epoch.
///
/// # Errors
/// [`PromoteError`].
pub(super) fn promote_store(control: &Control) -> Result<u64, PromoteError> {
    let failed = |e: &dyn std::error::Error| PromoteError::Failed(with_sources(e));
    let row = control.standby().map_err(|e| failed(&e))?;
    if row.role != StandbyRole::Follower {
        return Err(PromoteError::NotAFollower);
    }
    if row.incomplete {
        return Err(PromoteError::Incomplete);
    }
    let promoted = control.change_standby(|row| {
        (row.role, row.epoch) = (StandbyRole::Primary, row.epoch + 1);
        (row.hold, row.old_is_fenced) = (0, false);
    });
    promoted.map(|row| row.epoch).map_err(|e| failed(&e))
}

/// Account rows with their keys.
type AccountRows = Vec<(Vec<u8>, Vec<u8>)>;

/// The frames that are stored together.
#[derive(Default)]
struct StoredTogether {
    records: Vec<LogRecord>,
    changes: Vec<CopiedChange>,
    rows: Option<(u64, AccountRows)>,
    has_frames: bool,
}

/// The state of one connection.
struct Copying<'f> {
    follower: &'f Follower,
    epoch: u64,
    /// The number of the stream, from the hello.
    stream: Option<u64>,
    /// The positions that are durable here.
    log: u64,
    accounts: u64,
    /// All account rows while they arrive, with their bytes.
    rows: Option<(u64, AccountRows, usize)>,
}

impl Copying<'_> {
    fn take(&mut self, frame: Frame, batch: &mut StoredTogether) -> Result<(), CopyStop> {
        batch.has_frames = true;
        if self.stream.is_none() && !matches!(frame, Frame::Hello { .. }) {
            return Err(FrameError("the stream does not begin with a hello").into());
        }
        if self.rows.is_some() && !matches!(frame, Frame::Row(..) | Frame::RowsEnd(_)) {
            return Err(FrameError("account rows are interrupted").into());
        }
        match frame {
            Frame::Hello { version, epoch, stream, link, log_end, accounts_end } => {
                if self.stream.is_some() || version != VERSION {
                    return Err(FrameError("a second hello, or one of another version").into());
                }
                self.greet(epoch, link)?;
                self.stream = Some(stream);
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
            Frame::RowsEnd(seq) => {
                let (begun, rows, _) = self.rows.take().ok_or(FrameError("an end without rows"))?;
                if begun != seq || batch.rows.is_some() || !batch.changes.is_empty() {
                    return Err(FrameError("account rows of two positions").into());
                }
                batch.rows = Some((seq, rows));
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
        let Follower { control, tsdb, clock, on_accounts, .. } = self.follower;
        let mut has_changed = false;
        if let Some((seq, rows)) = rows {
            control.store_rows(seq, rows)?;
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
            on_accounts();
        }
        let mut progress = self.follower.progress();
        let has_all = self.log >= progress.log_end;
        if has_all {
            progress.current = Some(Stopwatch::start());
        }
        progress.state = if has_all { FollowerState::Streaming } else { FollowerState::Connecting };
        Ok(())
    }

    fn acknowledge(&self, link: &dyn PrimaryLink) -> Result<(), CopyStop> {
        let Some(stream) = self.stream else { return Ok(()) };
        let Copying { epoch, log, accounts, .. } = self;
        let target =
            format!("/api/v1/standby/ack?stream={stream}&epoch={epoch}&log={log}&accounts={accounts}");
        Ok(link.post(&target)?)
    }
}
