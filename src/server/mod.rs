//! Opens every room once, in order, and closes them in reverse.

mod accounts;
mod admin;
mod commands;
mod daily_usage;
mod doctor;
mod listener;
mod mail;
mod master_key;
mod oauth;
mod panic_monitor;
mod store;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::api::health::Check;
use crate::api::host::Network;
use crate::api::lanes::{Lanes, LanesOptions};
use crate::api::orgs::settings::apply_settings;
use crate::api::own_metrics::{Counters, OwnMetrics};
use crate::api::prefix::path_of;
use crate::api::starting::StartStage;
use crate::api::{self, ApiOptions, Deps, Rooms, pages};
use crate::clock::{Clock, Stopwatch};
use crate::config::{CookieSecure, Durability, MailSetting, OrgCreateSetting, Settings, SignupSetting};
use crate::entropy::Entropy;
use crate::identity::{
    Foundation, Identity, IdentityError, IdentityOptions, OrgCreate, SignupMode, StoreError, USERS_TABLE,
};
use crate::kv::{self, Control, ControlOptions, DataFolder, FolderError};
use crate::model::{BatchBuilder, OrgId, Timestamp};
use crate::outbound::MailQueue;
use crate::tasks::{HostMetrics, Task, TaskContext, remove_deleted};
use crate::tsdb::{self, Tsdb, Writes};
use crate::ui::Ui;

pub use accounts::{DemoAccount, FirstAccount};
pub use admin::{AdminClient, AdminError, AdminRequest, Sealed, Staged};
use admin::{AdminContext, AdminServer};
pub use commands::{AccountCommand, Hidden};
pub use doctor::{Diagnoses, Diagnosis, Severity, diagnose};
use listener::Listener;
pub use listener::ShowProgress;
use master_key::Unlocked;
pub use master_key::master_key_source;
use panic_monitor::PanicMonitor;
pub use store::{OpenAccounts, OpenStore};

/// The bytes of the newest segments that are read ahead of the first queries.
const WARM_BYTES: u64 = 64 << 20;
/// How long a start waits for that. A disk reads some tens of megabytes in this time.
const WARMING_MAX: Duration = Duration::from_millis(100);
/// How often sessions and API keys in use are recorded on disk (docs/specification.md D1).
const FLUSH_PERIOD: Duration = Duration::from_secs(5);
/// How often the samples stored today are recorded, if their number grew.
const DAY_PERIOD: Duration = Duration::from_secs(60);
/// How often an export of the accounts is made if one is due, or retried if it failed.
const EXPORT_PERIOD: Duration = Duration::from_secs(60);
/// How often checkpoints, seals and merges are made if they are due.
const STORE_PERIOD: Duration = Duration::from_secs(10);
/// How often the end of the log is recorded outside of it: the longest part of a log whose loss, by
/// a rollback after a kill, may go unnoticed.
const MARK_PERIOD: Duration = Duration::from_secs(5);
/// How often deleted organisations are looked for, which reads memory only.
const REMOVAL_PERIOD: Duration = Duration::from_secs(1);
/// How often the rate limiters remove idle entries.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// The reason why the server does not start, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The accounts on disk cannot be opened.
    #[error("the accounts cannot be opened")]
    Control(#[from] kv::OpenError),
    /// The accounts cannot be loaded into memory.
    #[error("the accounts cannot be read")]
    Identity(#[from] IdentityError),
    /// A change of accounts failed.
    #[error(transparent)]
    Account(#[from] StoreError),
    /// The master key is missing or wrong.
    #[error("{0}")]
    MasterKey(String),
    /// The samples cannot be opened.
    #[error("the samples cannot be opened")]
    Tsdb(#[from] tsdb::OpenError),
    /// A damaged log could not be rewritten.
    #[error("the damaged log could not be rewritten")]
    AcceptLoss(#[from] tsdb::RepairError),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}; is another program using it? (choose another address with --listen)")]
    Listen(SocketAddr, std::io::Error),
    /// The certificate cannot be used.
    #[error("TLS cannot be set up")]
    Tls(#[from] api::tls::TlsError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The public URL or a related option is invalid.
    #[error(transparent)]
    Api(#[from] api::OptionsError),
    /// The mail setting is invalid.
    #[error(transparent)]
    Mail(#[from] crate::outbound::SmtpError),
    /// A sign-in provider cannot be set up.
    #[error("sign-in by a provider: {0}")]
    Oauth(String),
    /// The process was told to stop before the store was open. Everything was closed cleanly.
    #[error("stopped before the store was open")]
    Stopped,
    /// The log of samples accepted no more writes. This is not a clean stop, so the next start
    /// checks everything.
    #[error("the log of samples was closed to writes: {0}")]
    Fenced(String),
    /// A part was still in use when it was to be closed.
    #[error(
        "{0} could not be closed cleanly; nothing acknowledged is lost, the next start checks everything"
    )]
    StillInUse(&'static str),
    /// The accounts could not be closed.
    #[error("the accounts were not closed cleanly")]
    Close(#[from] kv::CloseError),
}

/// An open server.
pub struct Server {
    settings: Settings,
    clock: Clock,
    uptime: Stopwatch,
    folder: Arc<DataFolder>,
    control: Arc<Control>,
    identity: Arc<Identity>,
    tsdb: Arc<Tsdb>,
    counters: Arc<Counters>,
    tasks: Vec<Task>,
    admin: Option<AdminServer>,
    listener: Listener,
    /// The parts that handle requests, dropped before the rooms are closed.
    serving: Option<(Rooms, Arc<MailQueue>)>,
    live_metrics: Option<(OrgId, Duration)>,
    /// Whether the last flush of sessions and API keys in use reached the disk.
    flushed: Arc<AtomicBool>,
    panic_monitor: PanicMonitor,
    /// Prefetches the program's own pages; ends with the server at the latest.
    _prefetch: tsdb::Prefetch,
}

impl Server {
    /// Locks the folder, binds the address, and opens every room that stores something. Until
    /// [`Server::listen`] only health is served. `show` gets the progress of a start of over a
    /// second.
    ///
    /// # Errors
    /// [`ServerError`]. The folder is left as after a crash, from which every start recovers. After
    /// [`ServerError::Stopped`] it is closed cleanly.
    pub fn open(settings: Settings, clock: Clock, show: Option<ShowProgress>) -> Result<Server, ServerError> {
        let uptime = Stopwatch::start();
        let prefetch = tsdb::prefetch_program();
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let mut rng = Entropy::system();
        let now = clock.now();
        let folder = Arc::new(DataFolder::open(&settings.data_dir, now, &mut rng)?);
        let counters: Arc<Counters> = Arc::default();
        let listener = Listener::open(&settings, Arc::clone(&counters))?;
        let reporter = listener.report_progress(clock.clone(), show)?;
        let (control, report) = Control::open(&folder, &ControlOptions { now, users_table: USERS_TABLE })?;
        let (changes, rows, torn_bytes) = (report.seq, report.rows, report.torn_bytes);
        match &report.start {
            kv::Start::Rebuilt { why, export, quarantined } => {
                tracing::warn!(
                    changes,
                    rows,
                    torn_bytes,
                    ?export,
                    ?quarantined,
                    "accounts were rebuilt from an export and their journal: {why}"
                );
            }
            start => tracing::info!(?start, changes, rows, torn_bytes, "accounts are open"),
        }
        for note in &report.notes {
            tracing::warn!("accounts: {note}");
        }
        let control = Arc::new(control);
        let identity = Arc::new(open_identity(&settings, &folder, &control, now, &mut rng)?);
        let watch = Stopwatch::start();
        let options = tsdb_options(&settings, listener.observer());
        let home = tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        if settings.accept_loss {
            for lost in tsdb::accept_loss(&home, &mut rng, now)? {
                tracing::warn!(count = lost.count, "accepted as lost: {}", lost.what);
            }
        }
        let (tsdb, report) = match Tsdb::open(home, options, &mut rng, now) {
            Err(tsdb::OpenError::Stopped) => {
                drop(reporter);
                listener.close_quickly();
                close_accounts(identity, control, now)?;
                close_folder(folder, now)?;
                return Err(ServerError::Stopped);
            }
            opened => opened?,
        };
        listener.set_stage(StartStage::Rest);
        tracing::info!(
            mode = ?report.mode, series = report.series, records = report.records, samples = report.samples,
            trimmed_bytes = report.trimmed_bytes, quarantined = report.quarantined,
            "samples are open after {:.0} ms", watch.elapsed_ms()
        );
        report_samples(&report);
        let tsdb = Arc::new(tsdb);
        apply_settings(&identity, &tsdb)?;
        if let Err(error) = daily_usage::resume(&identity, &tsdb, now) {
            tracing::warn!(%error, "usage.samples_today does not count the samples stored before this start");
        }
        drop(reporter);
        let panic_monitor = PanicMonitor::watch(&tsdb, &counters);
        // Last, so that a refused start changes nothing.
        let unclean_stops = folder.unclean_stops().inspect(|count| {
            counters.unclean_stops.store(*count, Ordering::Relaxed);
        });
        if let Err(error) = unclean_stops.and_then(|_| folder.begin_serving(now)) {
            tracing::warn!(%error, "cannot record unclean shutdowns (promlet_unclean_shutdown_total)");
        }
        let server = Server {
            settings,
            clock,
            uptime,
            folder,
            control,
            identity,
            tsdb,
            counters,
            tasks: Vec::new(),
            admin: None,
            listener,
            serving: None,
            live_metrics: None,
            flushed: Arc::new(AtomicBool::new(true)),
            panic_monitor,
            _prefetch: prefetch,
        };
        Ok(server)
    }

    /// Starts the background tasks and begins to handle requests.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn listen(&mut self) -> Result<(), ServerError> {
        self.start_admin_server();
        self.start_tasks()?;
        let lanes = Lanes::start(&self.lanes_options()).map_err(ServerError::Thread)?;
        let mailer = mail::mailer(&self.settings.mail)?;
        if mail::sends_readable(&mailer) {
            tracing::warn!("{}; {}", mail::READABLE, mail::READABLE_NEXT);
        }
        let mail = MailQueue::start(mailer, self.clock.clone());
        let mail = Arc::new(mail.map_err(ServerError::Thread)?);
        let rooms = Rooms {
            identity: Arc::clone(&self.identity),
            tsdb: Arc::clone(&self.tsdb),
            lanes,
            clock: self.clock.clone(),
            mail: Arc::clone(&mail),
            checks: self.checks(),
            counters: Arc::clone(&self.counters),
            pages: Some(pages::router(self.ui())),
        };
        let options = &self.listener.options;
        let deps = Deps::new(&rooms, options);
        let app = api::app(api::table(&rooms, &deps), &rooms, &deps, options)?;
        self.start_live_metrics(deps.own_metrics(&rooms))?;
        self.start_task("limits", SWEEP_PERIOD, move |_| deps.sweep())?;
        // The first queries would otherwise compete with this prefetch for the disk, and take
        // longer.
        self.tsdb.wait_until_warm(WARMING_MAX);
        self.listener.install_app(app);
        self.serving = Some((rooms, mail));
        Ok(())
    }

    /// Serves the command line over the folder's socket. Without it, on a file system without
    /// sockets, only these commands fail.
    fn start_admin_server(&mut self) {
        let serving = AdminContext {
            folder: Arc::clone(&self.folder),
            control: Arc::clone(&self.control),
            tsdb: Arc::clone(&self.tsdb),
            identity: Some(Arc::clone(&self.identity)),
            listen: self.listener.address.to_string(),
            public_url: self.public_url(),
            embed_rps_default: self.settings.rate_embed_default_rps,
            clock: self.clock.clone(),
            backing_up: Mutex::default(),
        };
        match AdminServer::start(serving) {
            Ok(admin) => self.admin = Some(admin),
            Err(error) => tracing::warn!(
                %error,
                "cannot create admin.sock in the data folder: promlet seal and promlet backup need the server stopped"
            ),
        }
    }

    fn start_tasks(&mut self) -> Result<(), ServerError> {
        let identity = Arc::clone(&self.identity);
        let flushed = Arc::clone(&self.flushed);
        self.start_task("session-flush", FLUSH_PERIOD, move |now| {
            let recorded = identity.tick(now);
            flushed.store(recorded.is_ok(), Ordering::Relaxed);
            if let Err(error) = recorded {
                tracing::error!(%error, "cannot record sessions and API keys in use on disk");
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        self.start_task("org-removal", REMOVAL_PERIOD, move |now| {
            match remove_deleted(&identity, &tsdb, now) {
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    "a deleted organisation is still on disk, though invisible: {}",
                    kv::with_sources(&error)
                ),
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let mut recorder = daily_usage::DailyUsageRecorder::default();
        self.start_task("stored-today", DAY_PERIOD, move |now| {
            if let Err(error) = recorder.record(&identity, &tsdb, now) {
                tracing::warn!(%error, "cannot record the samples stored today on disk");
            }
        })?;
        let control = Arc::clone(&self.control);
        self.start_task("accounts-export", EXPORT_PERIOD, move |now| match control.export_if_due(now) {
            Ok(None) => {}
            Ok(Some(made)) => tracing::info!(?made, "accounts are exported"),
            Err(error) => {
                tracing::warn!(%error, "the accounts were not exported; the journal keeps everything")
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("log-mark", MARK_PERIOD, move |_| tsdb.note_log_mark())?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("seal", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.seal_if_due(now) {
                tracing::warn!(
                    "not everything due was sealed; the log keeps the samples: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("upkeep", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.maintain(now) {
                tracing::warn!(
                    "segments were not merged or removed; nothing is lost: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        let period = self.settings.checkpoint_every.map_or(STORE_PERIOD, |every| every.min(STORE_PERIOD));
        self.start_task("checkpoint", period, move |now| {
            if !tsdb.checkpoint_due() {
                return;
            }
            let watch = Stopwatch::start();
            match tsdb.checkpoint(now) {
                Ok(done) => tracing::info!(?done, "checkpoint {} in {:.0} ms", done.generation, watch.elapsed_ms()),
                Err(error) => tracing::warn!(%error, "no checkpoint was written; the log keeps everything, the next start takes longer"),
            }
        })
    }

    /// Calls `tick` now and every `period` until the server ends.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub fn start_task(
        &mut self,
        name: &'static str,
        period: Duration,
        tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> Result<(), ServerError> {
        let task = Task::start(name, period, self.common(), tick).map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }

    fn common(&self) -> TaskContext {
        TaskContext { clock: self.clock.clone(), panics: self.panic_monitor.panics() }
    }

    /// Writes live metrics of this machine and of promlet into `org` while the server runs.
    pub fn collect_live_metrics(&mut self, org: OrgId, period: Duration) {
        self.live_metrics = Some((org, period));
    }

    /// Starts live metrics. The first ones are stored before the first request is handled.
    fn start_live_metrics(&mut self, own: OwnMetrics) -> Result<(), ServerError> {
        let Some((org, period)) = self.live_metrics else { return Ok(()) };
        let mut host = HostMetrics::new();
        let tsdb = Arc::clone(&self.tsdb);
        let mut described = false;
        let mut tick = move |now| {
            let mut batch = BatchBuilder::default();
            host.read(now, &mut batch);
            own.write(now, !described, &mut batch);
            described = true;
            if let Err(error) = tsdb.append(org, &batch.batch(), now) {
                tracing::warn!(%error, "the metrics of this machine were not stored");
            }
        };
        tick(self.clock.now());
        let task =
            Task::after(period, "live-metrics", period, self.common(), tick).map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }

    /// Runs until SIGTERM, SIGINT or Ctrl-C. Then drains requests, stops the tasks, and closes
    /// every room in order.
    ///
    /// # Errors
    /// [`ServerError`] of closing. Everything acknowledged is on disk in any case.
    pub fn run(mut self) -> Result<(), ServerError> {
        if self.serving.is_none() {
            self.listen()?;
        }
        tracing::info!("listening on {}://{}", self.settings.scheme(), self.listener.address);
        let Server { clock, folder, control, identity, tsdb, tasks, admin, listener, serving, .. } = self;
        listener.wait();
        // Queued mails are sent before the end.
        drop(serving);
        if let Some(admin) = admin {
            admin.stop();
        }
        for task in tasks {
            task.stop();
        }
        let now = clock.now();
        let fenced = close_samples(&tsdb, now);
        if let Err(error) = daily_usage::DailyUsageRecorder::default().record(&identity, &tsdb, now) {
            tracing::warn!(%error, "cannot record the samples stored today on disk");
        }
        drop(tsdb);
        // A part that is still in use makes this an unclean stop; the next start then recovers as
        // after a crash.
        close_accounts(identity, control, now)?;
        if let Some(why) = fenced {
            return Err(ServerError::Fenced(why));
        }
        close_folder(folder, now)
    }
    fn lanes_options(&self) -> LanesOptions {
        let mut options = LanesOptions::for_this_machine();
        if let Some(threads) = self.settings.query_concurrency {
            options.query.threads = threads.clamp(1, 1_024);
            options.query.threads_per_org = (options.query.threads / 2).max(1);
        }
        options
    }

    fn ui(&self) -> Ui {
        let ui = self.settings.ui_dir.clone().map_or_else(Ui::default, Ui::from_dir);
        let ui = ui.below(path_of(&self.listener.options.public_url));
        if self.settings.docs { ui } else { ui.without_docs() }
    }

    fn checks(&self) -> Vec<(&'static str, Check)> {
        let control = Arc::clone(&self.control);
        let accounts: Check = Arc::new(move || control.health().map_err(|fenced| fenced.to_string()));
        let flushed = Arc::clone(&self.flushed);
        let session_flush: Check = Arc::new(move || match flushed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("sessions in use could not be recorded on disk; the log has the reason".to_owned()),
        });
        vec![("accounts", accounts), ("session_flush", session_flush), ("tasks", self.panic_monitor.check())]
    }

    /// Returns the URL of the server: `--public-url`, or the address that it listens on.
    pub fn public_url(&self) -> String {
        public_url(&self.settings, self.listener.address)
    }

    /// Returns the path of the data folder.
    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the time since the start in milliseconds.
    pub fn uptime_ms(&self) -> f64 {
        self.uptime.elapsed_ms()
    }

    /// Returns whether mails are printed on the console.
    pub fn mails_to_console(&self) -> bool {
        matches!(self.settings.mail, MailSetting::Console)
    }

    /// Returns the store of samples.
    pub fn tsdb(&self) -> &Arc<Tsdb> {
        &self.tsdb
    }

    /// Returns the wall clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn public_url(settings: &Settings, address: SocketAddr) -> String {
    settings.public_url.clone().unwrap_or_else(|| format!("{}://{address}", settings.scheme()))
}

fn api_options(settings: &Settings, address: SocketAddr) -> Result<ApiOptions, ServerError> {
    let mut options = ApiOptions::new(&public_url(settings, address));
    options.allowed_hosts.clone_from(&settings.allowed_hosts);
    options.trusted_origins.clone_from(&settings.trusted_origins);
    options.cookie_secure = match settings.cookie_secure {
        CookieSecure::Auto => None,
        CookieSecure::Always => Some(true),
        CookieSecure::Never => Some(false),
    };
    options.link_ttl = settings.magic_link_ttl;
    options.providers = oauth::providers(&settings.oauth)?;
    options.read.timeout = settings.query_timeout;
    options.read.promql.limits.samples_max = settings.query_max_samples;
    options.read.promql.limits.series_max = settings.query_max_series.unwrap_or(u64::MAX);
    options.read.promql.delayed_name_removal = settings.switches.delayed_name_removal;
    options.read.promql.use_start_timestamps = settings.switches.use_start_timestamps;
    options.read.caps.features = settings.switches.syntax;
    options.read.memory_bytes_max = settings.query_memory_bytes;
    options.read.cache_bytes_max = settings.query_cache_bytes;
    options.metrics_token = settings.metrics_token.as_ref().map(|token| token.reveal().into());
    options.limits.cabinet_rps = settings.rate_cabinet_rps;
    options.embed_rps_default = settings.rate_embed_default_rps;
    options.docs = settings.docs;
    options.trusted_proxies = trusted_proxies(&settings.trusted_proxies)?;
    Ok(options)
}

/// Returns the day on which this program was built (`build.rs`).
fn built() -> Option<Timestamp> {
    env!("PROMLET_BUILT_S").parse().ok().map(Timestamp::from_s)
}

/// Logs the damage that was found at the start.
fn report_samples(report: &tsdb::RecoveryReport) {
    for note in report.notes.iter().chain(&report.read_only) {
        tracing::error!("{note}");
    }
    if let Some(torn) = &report.torn_tail {
        tracing::warn!("{torn}");
    }
}

fn tsdb_options(settings: &Settings, observer: tsdb::ProgressObserver) -> tsdb::Options {
    let mut options = tsdb::Options { observer, ..tsdb::Options::default() };
    options.limits.retention = settings.retention;
    options.limits.series_max = settings.max_series_per_org.unwrap_or(u32::MAX);
    options.built = built();
    options.expiry_grace = settings.expiry_grace;
    options.head_bytes_max = settings.head_memory_bytes;
    // The share of an organisation that is alone.
    options.seal_head_bytes = settings.head_memory_bytes / 4 * 3;
    options.decoded_bytes_max = settings.decoded_cache_bytes;
    options.warm_bytes_max = WARM_BYTES;
    options.durability = match settings.durability {
        Durability::Synced => tsdb::Durability::Synced,
        Durability::Interval(interval) => tsdb::Durability::Interval(interval),
    };
    options.checkpoint_every = settings.checkpoint_every.unwrap_or(options.checkpoint_every);
    options
}

/// Seals, writes a checkpoint, and closes the store. Returns the reason why the log accepts no
/// writes, if it accepted none before.
fn close_samples(tsdb: &Tsdb, now: Timestamp) -> Option<String> {
    let fenced = match tsdb.health().writes {
        Writes::Fenced(why) | Writes::Stopped(why) | Writes::ReadOnly(why) => Some(why),
        Writes::Open | Writes::DiskFull { .. } | Writes::Closed => None,
    };
    // With everything in segments or a checkpoint, the next start replays nothing. The checkpoint
    // of an empty head is empty and spares the next start reading an older one.
    if let Err(error) = tsdb.seal(now) {
        tracing::warn!("not everything was sealed: {}", kv::with_sources(&error));
    }
    if let Err(error) = tsdb.checkpoint(now) {
        tracing::warn!(%error, "no final checkpoint was written; the next start replays the log instead");
    }
    tsdb.close();
    fenced
}

fn close_accounts(identity: Arc<Identity>, control: Arc<Control>, now: Timestamp) -> Result<(), ServerError> {
    identity.close(now)?;
    drop(identity);
    let control = Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("accounts"))?;
    Ok(control.close()?)
}

fn close_folder(folder: Arc<DataFolder>, now: Timestamp) -> Result<(), ServerError> {
    let folder = Arc::try_unwrap(folder).map_err(|_| ServerError::StillInUse("the data folder"))?;
    folder.close_clean(now)?;
    tracing::info!("stopped cleanly");
    Ok(())
}

/// Parses addresses and networks.
fn trusted_proxies(texts: &[String]) -> Result<Vec<Network>, api::OptionsError> {
    let read =
        |text: &String| Network::parse(text).ok_or_else(|| api::OptionsError::TrustedProxy(text.clone()));
    texts.iter().map(read).collect()
}

fn open_identity(
    settings: &Settings,
    folder: &Arc<DataFolder>,
    control: &Arc<Control>,
    now: Timestamp,
    rng: &mut Entropy,
) -> Result<Identity, ServerError> {
    let unlocked = master_key::unlock(settings, folder, control, now, rng)?;
    let marker = Arc::clone(folder);
    let foundation = Foundation {
        control: Arc::clone(control),
        master_key: unlocked.key(),
        last_stop: folder.last_stop(),
        mark_initialised: Box::new(move |now| marker.mark_initialised(now)),
    };
    let options = IdentityOptions {
        argon2: crate::identity::Argon2Cost {
            memory_kib: settings.argon2.memory_kib,
            passes: settings.argon2.passes,
            lanes: settings.argon2.lanes,
        },
        link_ttl: settings.magic_link_ttl,
        session_absolute: settings.session_absolute,
        org_create: match settings.org_create {
            OrgCreateSetting::Admin => OrgCreate::Admin,
            OrgCreateSetting::Any => OrgCreate::Any,
        },
        signup: match settings.signup {
            SignupSetting::First => SignupMode::First,
            SignupSetting::Open => SignupMode::Open,
            SignupSetting::Invite => SignupMode::Invite,
            SignupSetting::Closed => SignupMode::Closed,
        },
        mail_leaves: matches!(settings.mail, MailSetting::Smtp { .. }),
    };
    let identity = Identity::open(foundation, options, now, rng)?;
    if let Unlocked::New(key) = &unlocked {
        master_key::adopt_new_key(&identity, folder, control, key, now)?;
    }
    Ok(identity)
}
