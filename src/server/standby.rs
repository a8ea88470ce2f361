//! Connects the standby to the listener, to the accounts and to the command line.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::admin::{AdminContext, BackupStage, Staged};
use super::{Server, ServerError};
use crate::api::health::Check;
use crate::api::orgs::settings::apply_settings;
use crate::api::own_metrics::{StandbyFigure, StandbyFigures};
use crate::api::standby::StandbyRequests;
use crate::clock::{Clock, Stopwatch};
use crate::config::{FollowSettings, Settings, StandbyMode};
use crate::identity::Identity;
use crate::kv::{Control, StandbyRole, with_sources};
use crate::model::GateMode;
use crate::outbound::{StandbyClient, StandbyRequestError, StandbyResponse};
use crate::standby::{
    BaseError, Follower, FollowerState, Incoming, LinkError, Prepared, Primary, PrimaryLink, PrimaryOptions,
    fetch_base, finish_adoption, prepare_folder,
};
use crate::tsdb::{Durability, Tsdb};

/// The interval at which the primary looks after waiting changes and its follower.
const TICK: Duration = Duration::from_secs(1);
/// The wait before a further attempt to fetch a base.
const BASE_RETRY: Duration = Duration::from_secs(1);
/// How long a stop waits for streams.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(5);

/// The standby of a running server.
#[derive(Default)]
pub(super) struct Standby {
    primary: Option<Arc<Primary>>,
    follower: Option<FollowerThread>,
}

struct FollowerThread {
    follower: Arc<Follower>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The client of the primary, as the follower uses it.
struct Link(StandbyClient);

fn link_error(error: StandbyRequestError) -> LinkError {
    match error {
        StandbyRequestError::Unreachable(why) => LinkError::Unreachable(why),
        StandbyRequestError::Ended => LinkError::Ended,
        StandbyRequestError::Refused { status, body } => {
            let json: Value = serde_json::from_str(&body).unwrap_or_default();
            let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
            LinkError::Refused {
                code: text("code").unwrap_or_else(|| format!("status {status}")),
                detail: text("detail").unwrap_or_default(),
            }
        }
    }
}

impl PrimaryLink for Link {
    fn open(&self, target: &str, is_over: &dyn Fn() -> bool) -> Result<Box<dyn Incoming>, LinkError> {
        match self.0.open(target, is_over) {
            Ok(response) => Ok(Box::new(Body(response))),
            Err(error) => Err(link_error(error)),
        }
    }

    fn post(&self, target: &str) -> Result<(), LinkError> {
        self.0.post(target).map_err(link_error)
    }
}

struct Body(StandbyResponse);

impl Incoming for Body {
    fn read(&mut self, longest: Duration) -> Result<Option<Vec<u8>>, LinkError> {
        self.0.read(longest).map_err(link_error)
    }
}

fn failed(why: impl Into<String>) -> ServerError {
    ServerError::Standby(why.into())
}

fn connect(follow: &FollowSettings) -> Result<Link, ServerError> {
    let roots = follow.ca_file.as_ref().map(std::fs::read).transpose();
    let roots = roots.map_err(|e| failed(format!("the file of certificates cannot be read: {e}")))?;
    let client =
        StandbyClient::new(&follow.url, follow.token.reveal(), roots.as_deref(), follow.insecure_http);
    client.map(Link).map_err(failed)
}

/// Fetches the base of a follower if its folder has no store yet. Waits for a primary that cannot
/// be reached.
///
/// # Errors
/// [`ServerError::Standby`]: the folder has other files, or the primary refuses.
pub fn prepare_follower(settings: &Settings) -> Result<(), ServerError> {
    let Some(follow) = &settings.follow else { return Ok(()) };
    let (link, dir) = (connect(follow)?, &settings.data_dir);
    let mut waits = false;
    loop {
        match prepare_folder(dir).map_err(|e| failed(with_sources(&e)))? {
            Prepared::HasStore => return Ok(()),
            Prepared::NeedsBase => {}
        }
        let opened = link.open("/api/v1/standby/base", &|| false).map_err(BaseError::from);
        let fetched = opened.and_then(|mut incoming| {
            tracing::info!("copying the base from {}", follow.url);
            fetch_base(dir, incoming.as_mut(), &mut |_| ())
        });
        match fetched {
            Ok(()) => {
                tracing::info!("the base is complete");
                return Ok(());
            }
            Err(e @ BaseError::Link(LinkError::Refused { .. })) => return Err(failed(with_sources(&e))),
            Err(e @ (BaseError::Link(_) | BaseError::Frame(_))) => {
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!("no base yet, trying again: {}", with_sources(&e));
                }
            }
            Err(e) => return Err(failed(with_sources(&e))),
        }
        std::thread::sleep(BASE_RETRY);
    }
}

/// Checks that the role of the store fits the command.
pub(super) fn admit_role(settings: &Settings, dir: &Path, control: &Control) -> Result<(), ServerError> {
    if settings.follow.is_some() {
        finish_adoption(dir, control).map_err(|e| failed(with_sources(&e)))?;
    }
    let row = control.standby().map_err(|e| failed(with_sources(&e)))?;
    match (row.role, &settings.follow) {
        (StandbyRole::Follower, None) => Err(failed(
            "this folder follows another server: start it with `promlet follow`, or promote it with `promlet promote`",
        )),
        (StandbyRole::Follower, Some(_)) if settings.accept_loss => {
            Err(failed("a follower accepts no loss: give it a new base, or promote it first"))
        }
        (StandbyRole::Primary, Some(_)) if row.epoch == 1 => {
            Err(failed("this folder belongs to a primary: a follower needs a folder of its own"))
        }
        (StandbyRole::Fenced, Some(_)) => Err(failed(
            "this folder belongs to a primary that was replaced: a follower needs an empty folder",
        )),
        (StandbyRole::Fenced, None) => {
            let epoch = row.epoch;
            tracing::error!(epoch, "another server was promoted in place of this one: only reads are served");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Reads the accounts again, and applies the settings of organisations. Returns whether that
/// succeeded.
fn reload(identity: &Identity, tsdb: &Tsdb, clock: &Clock) -> bool {
    let reloaded = identity.reload(clock.now()).map_err(|e| with_sources(&e));
    let applied = reloaded.and_then(|()| apply_settings(identity, tsdb).map_err(|e| with_sources(&e)));
    if let Err(error) = &applied {
        tracing::error!("the accounts in memory are older than those on disk: {error}");
    }
    applied.is_ok()
}

/// Drops the samples of organisations that the accounts of a promoted follower no longer know: the
/// old primary had removed them, but the record of it did not arrive.
fn drop_unknown_orgs(identity: &Identity, tsdb: &Tsdb, clock: &Clock) {
    let (Ok(known), removing) = (identity.orgs(), identity.removals()) else { return };
    for org in tsdb.orgs() {
        if known.iter().any(|one| one.id == org) || removing.contains(&org) {
            continue;
        }
        tracing::warn!(org = org.0, "the accounts do not know this organisation: its samples are dropped");
        if let Err(error) = tsdb.drop_org(org, clock.now()) {
            tracing::warn!("they were not dropped: {}", with_sources(&error));
        }
    }
}

/// Returns the mode of a primary's gate.
fn gate_mode(mode: StandbyMode) -> GateMode {
    if mode == StandbyMode::Sync { GateMode::Synchronous } else { GateMode::Open }
}

impl Standby {
    /// Returns a function that promotes this server, calls `tidy`, and returns the response of the
    /// command.
    pub(super) fn promotion(
        &self,
        mode: StandbyMode,
        tidy: impl Fn() + Send + Sync + 'static,
    ) -> super::admin::Promotion {
        let follower = self.follower.as_ref().map(|running| Arc::clone(&running.follower));
        Box::new(move |accepts_loss| {
            let follower = follower.as_ref().ok_or("this server is not a follower")?;
            let epoch = follower.promote(gate_mode(mode), accepts_loss).map_err(|e| with_sources(&e))?;
            tidy();
            Ok(json!({ "epoch": epoch }))
        })
    }

    /// Returns the check of `/readyz` for a primary that acknowledges nothing without its follower.
    pub(super) fn check(&self) -> Option<Check> {
        let primary = self.primary.clone()?;
        Some(Arc::new(move || {
            let status = primary.status();
            if primary.is_waiting_mode() && !status.connected {
                return Err("no standby is connected: changes are refused".to_owned());
            }
            Ok(())
        }))
    }

    /// Returns the note of `/readyz` about a standby that is behind. Reads are served all the same.
    pub(super) fn note(&self) -> Check {
        let primary = self.primary.clone();
        let follower = self.follower.as_ref().map(|running| Arc::clone(&running.follower));
        Arc::new(move || {
            if let Some(status) = follower.as_ref().map(|follower| follower.status()) {
                let s = status.lag.as_secs();
                match status.state {
                    FollowerState::Disconnected(why) => {
                        return Err(format!("not following for {s} s: {why}"));
                    }
                    FollowerState::Connecting => {
                        let records = status.records_behind;
                        return Err(format!("{records} log records behind the primary for {s} s"));
                    }
                    FollowerState::Streaming => return Ok(()),
                    FollowerState::Promoted => {}
                }
            }
            match primary.as_ref().map(|primary| primary.status()) {
                Some(status) if status.hold_given_up => {
                    Err("the log is no longer kept for the standby, which needs a new base".to_owned())
                }
                Some(status) if !status.connected => Err("none is connected".to_owned()),
                Some(_) | None => Ok(()),
            }
        })
    }

    /// Returns the figures for `/metrics`.
    pub(super) fn figures(&self) -> StandbyFigures {
        let primary = self.primary.clone();
        let follower = self.follower.as_ref().map(|running| Arc::clone(&running.follower));
        let figure = StandbyFigure::counting;
        StandbyFigures(Arc::new(move || {
            let mut figures = Vec::new();
            if let Some(status) = primary.as_ref().map(|primary| primary.status()) {
                let connected = u64::from(status.connected);
                figures.extend([
                    figure("promlet_standby_connected", "1 while a follower is connected.", connected),
                    figure(
                        "promlet_standby_epoch",
                        "The epoch, which grows with each promotion.",
                        status.epoch,
                    ),
                    figure(
                        "promlet_standby_records_behind",
                        "Log records that the follower has not acknowledged.",
                        status.records_behind,
                    ),
                    figure(
                        "promlet_standby_records_waiting",
                        "Log records whose clients wait for the follower.",
                        status.waiting as u64,
                    ),
                ]);
            }
            if let Some(status) = follower.as_ref().map(|follower| follower.status()) {
                let connected = matches!(status.state, FollowerState::Streaming | FollowerState::Connecting);
                figures.extend([
                    figure(
                        "promlet_follower_connected",
                        "1 while this follower is connected to its primary.",
                        u64::from(connected),
                    ),
                    figure(
                        "promlet_follower_records_behind",
                        "Log records that the primary had more at its last message.",
                        status.records_behind,
                    ),
                    StandbyFigure {
                        name: "promlet_follower_lag_seconds",
                        help: "Seconds since this follower last had every record of its primary.",
                        value: status.lag.as_secs_f64(),
                    },
                ]);
            }
            figures
        }))
    }

    /// Ends streams and copying, and waits for their threads.
    pub(super) fn stop(self) {
        if let Some(FollowerThread { follower, stopping, thread }) = self.follower {
            stopping.store(true, Ordering::SeqCst);
            follower.stop();
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        if let Some(primary) = self.primary {
            primary.close();
            let watch = Stopwatch::start();
            while Arc::strong_count(&primary) > 1 && watch.elapsed() < STREAMS_TIMEOUT {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Server {
    /// Returns the function of `promlet promote`.
    pub(super) fn promotion(&self) -> super::admin::Promotion {
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let clock = self.clock.clone();
        self.standby.promotion(self.settings.standby, move || drop_unknown_orgs(&identity, &tsdb, &clock))
    }

    /// Completes a promotion, also one of the stopped folder, and begins to follow if this is a
    /// follower. The accounts in memory follow the copied rows.
    pub(super) fn start_following(&mut self) -> Result<(), ServerError> {
        let row = self.control.standby().map_err(|e| failed(with_sources(&e)))?;
        let is_follower = row.role == StandbyRole::Follower;
        let is_promoted = row.role == StandbyRole::Primary && row.epoch > 1;
        if is_promoted {
            let completed = self.tsdb.complete_last_record(self.clock.now());
            completed.map_err(|e| failed(with_sources(&e)))?;
            drop_unknown_orgs(&self.identity, &self.tsdb, &self.clock);
        }
        let Some(follow) = self.settings.follow.clone() else { return Ok(()) };
        if is_follower {
            // The base has the pins of the primary's consumers, which do not move here.
            for pin in self.tsdb.pins() {
                self.tsdb.unpin(pin.consumer).map_err(|e| failed(with_sources(&e)))?;
            }
        }
        let link = connect(&follow)?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let clock = self.clock.clone();
        let reload_accounts = Box::new(move || reload(&identity, &tsdb, &clock));
        let (control, tsdb) = (Arc::clone(&self.control), Arc::clone(&self.tsdb));
        let store = self.folder.store_id();
        let follower = Follower::new(control, tsdb, store, self.clock.clone(), reload_accounts);
        if !is_follower {
            follower.set_promoted();
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let (copying, is_over) = (Arc::clone(&follower), Arc::clone(&stopping));
        let thread = std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
            if is_follower {
                copying.copy(&link);
                copying.wait_for_promotion(&|| is_over.load(Ordering::SeqCst));
            }
            copying.fence_old(&link, &|| is_over.load(Ordering::SeqCst));
        });
        let thread = thread.map_err(ServerError::Thread)?;
        self.standby.follower = Some(FollowerThread { follower, stopping, thread });
        Ok(())
    }

    /// Keeps nothing for a follower any more: this server is started without a standby.
    fn give_up_standby(&self) -> Result<(), ServerError> {
        let row = self.control.standby().map_err(|e| failed(with_sources(&e)))?;
        if row.hold > 0 {
            tracing::warn!("started without --standby: the log is no longer kept for the follower");
            self.tsdb.hold_log(0);
            let stored = self.control.change_standby(|row| row.hold = 0);
            stored.map_err(|e| failed(with_sources(&e)))?;
        }
        Ok(())
    }

    /// Serves streams if the settings enable it. Returns the requests of followers.
    pub(super) fn start_primary(
        &mut self,
        admin: &Arc<AdminContext>,
    ) -> Result<Option<Arc<StandbyRequests>>, ServerError> {
        let mode = self.settings.standby;
        let token = self.settings.standby_token.as_ref().filter(|_| mode != StandbyMode::Off);
        let Some(token) = token else { return self.give_up_standby().map(|()| None) };
        if mode == StandbyMode::Sync && self.tsdb.durability() != Durability::Synced {
            return Err(failed("--standby=sync needs --durability=synced"));
        }
        let stage = Arc::clone(admin);
        let options = PrimaryOptions {
            control: Arc::clone(&self.control),
            tsdb: Arc::clone(&self.tsdb),
            store: self.folder.store_id(),
            synchronous: mode == StandbyMode::Sync,
            base: Box::new(move |send| {
                let with_key = stage.folder.path().join("master.key").exists();
                let (held, response) = BackupStage::create(&stage, with_key)?;
                let staged: Staged = serde_json::from_value(response).map_err(|e| e.to_string())?;
                let sent = send(&staged.dir, staged.log_records, staged.account_changes);
                drop(held);
                sent
            }),
        };
        let primary = Primary::new(options).map_err(failed)?;
        let requests = StandbyRequests::start(Arc::clone(&primary), token.reveal());
        let requests = requests.map_err(ServerError::Thread)?;
        let ticking = Arc::clone(&primary);
        let (identity, tsdb, control) =
            (Arc::clone(&self.identity), Arc::clone(&self.tsdb), Arc::clone(&self.control));
        let clock = self.clock.clone();
        self.start_task("standby", TICK, move |_| {
            ticking.tick();
            if control.take_unconfirmed() && !reload(&identity, &tsdb, &clock) {
                control.set_unconfirmed();
            }
        })?;
        let closing = Arc::clone(&primary);
        self.listener.on_shutdown(move || closing.close());
        self.standby.primary = Some(primary);
        Ok(Some(requests))
    }
}
