//! Builds every room once, in order, and closes them in reverse.

mod accounts;
mod admin;
mod commands;
mod day;
mod doctor;
mod door;
mod mail;
mod master_key;
mod oauth;
mod store;
mod unwell;

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
use crate::api::starting::Stage;
use crate::api::{self, ApiOptions, Deps, Rooms, pages};
use crate::clock::{Clock, Stopwatch};
use crate::config::{
    CookieSecure, Durability, Mail as MailSetting, OrgCreate as OrgCreateSetting, Settings,
    Signup as SignupSetting,
};
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
use admin::{Admin, Answering};
pub use admin::{AskError, Asking, Question, Sealed, Staged};
pub use commands::{Command, Hidden};
pub use doctor::{Diagnoses, Diagnosis, Health, diagnose};
use door::Door;
pub use door::Show;
use master_key::Unlocked;
pub use master_key::master_key_source;
pub use store::{OpenAccounts, OpenStore};
use unwell::Unwell;

/// So much of the newest segments is read ahead of the first questions.
const WARM_BYTES: u64 = 64 << 20;
/// And so long a start waits for that: a disk reads some tens of megabytes meanwhile.
const WARMING_MAX: Duration = Duration::from_millis(100);
/// How often sessions and keys are looked at for what is not yet on disk (docs/specification.md D1).
const FLUSH_PERIOD: Duration = Duration::from_secs(5);
/// How often what was stored today is noted, if it grew.
const DAY_PERIOD: Duration = Duration::from_secs(60);
/// How often it is asked whether an export of the accounts is due, and a failed one tried again.
const EXPORT_PERIOD: Duration = Duration::from_secs(60);
/// How often it is asked whether a checkpoint or a seal is due.
const STORE_PERIOD: Duration = Duration::from_secs(10);
/// The period in which the end of the log is noted outside of it: the most that may go unnoticed of a log that is rolled
/// back after a kill.
const MARK_PERIOD: Duration = Duration::from_secs(5);
/// How often it is asked whether an organisation was deleted; a look at memory.
const REMOVAL_PERIOD: Duration = Duration::from_secs(1);
/// How often the limiters forget who has been quiet.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Why the server does not start, or did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Accounts on disk.
    #[error("the accounts cannot be opened")]
    Control(#[from] kv::OpenError),
    /// Accounts in memory.
    #[error("the accounts cannot be read")]
    Identity(#[from] IdentityError),
    /// A change of accounts.
    #[error(transparent)]
    Account(#[from] StoreError),
    /// The master key.
    #[error("{0}")]
    MasterKey(String),
    /// Samples on disk.
    #[error("the samples cannot be opened")]
    Tsdb(#[from] tsdb::OpenError),
    /// A damaged log could not be written anew.
    #[error("the damaged log could not be written anew")]
    AcceptLoss(#[from] tsdb::RepairError),
    /// The address.
    #[error("cannot listen on {0}: {1}; is another program using it? (--listen takes another address)")]
    Listen(SocketAddr, std::io::Error),
    /// The certificate.
    #[error("no TLS")]
    Tls(#[from] api::tls::TlsError),
    /// Threads.
    #[error("the operating system gives no thread")]
    Thread(#[source] std::io::Error),
    /// The public URL and its kin.
    #[error(transparent)]
    Api(#[from] api::OptionsError),
    /// The mail setting.
    #[error(transparent)]
    Mail(#[from] crate::outbound::SmtpError),
    /// A sign-in provider that cannot be asked.
    #[error("sign-in by a provider: {0}")]
    Oauth(String),
    /// Told to stop before the store was open: everything was closed in order.
    #[error("stopped before the store was open")]
    Stopped,
    /// The log of samples took no writes any more: this is no clean stop, the next start checks everything.
    #[error("the log of samples was closed to writes: {0}")]
    Fenced(String),
    /// Something outlived its users.
    #[error(
        "{0} could not be closed in order; nothing acknowledged is lost, the next start checks everything"
    )]
    StillInUse(&'static str),
    /// Closing accounts.
    #[error("the accounts were not closed in order")]
    Close(#[from] kv::CloseError),
}

/// The server between opening and the end.
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
    admin: Option<Admin>,
    door: Door,
    /// What answers requests; given up before the rooms themselves are closed.
    answering: Option<(Rooms, Arc<MailQueue>)>,
    watching: Option<(OrgId, Duration)>,
    /// Whether the last flush of sessions and keys in use reached the disk.
    flushed: Arc<AtomicBool>,
    unwell: Unwell,
    /// Ends with the server, if it has not yet.
    _program: tsdb::Prefetch,
}

impl Server {
    /// Locks the folder, binds the address, and opens every room that stores something. Until [`Server::listen`] only
    /// health is answered. `show` is told how far it is, where it takes more than a second.
    ///
    /// # Errors
    /// [`ServerError`]; the folder is left as a crash would leave it, which every start knows how to read.
    /// [`ServerError::Stopped`]: it is left in order.
    pub fn open(settings: Settings, clock: Clock, show: Option<Show>) -> Result<Server, ServerError> {
        let uptime = Stopwatch::start();
        let program = tsdb::prefetch_program();
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let mut rng = Entropy::system();
        let now = clock.now();
        let folder = Arc::new(DataFolder::open(&settings.data_dir, now, &mut rng)?);
        let counters: Arc<Counters> = Arc::default();
        let door = Door::open(&settings, Arc::clone(&counters))?;
        let teller = door.tell(clock.clone(), show)?;
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
        let options = tsdb_options(&settings, door.observer());
        let home = tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        if settings.accept_loss {
            for lost in tsdb::accept_loss(&home, &mut rng, now)? {
                tracing::warn!(count = lost.count, "accepted as lost: {}", lost.what);
            }
        }
        let (tsdb, report) = match Tsdb::open(home, options, &mut rng, now) {
            Err(tsdb::OpenError::Stopped) => {
                drop(teller);
                door.close_soon();
                close_accounts(identity, control, now)?;
                close_folder(folder, now)?;
                return Err(ServerError::Stopped);
            }
            opened => opened?,
        };
        door.note(Stage::Rest);
        tracing::info!(
            mode = ?report.mode, series = report.series, records = report.records, samples = report.samples,
            trimmed_bytes = report.trimmed_bytes, quarantined = report.quarantined,
            "samples are open after {:.0} ms", watch.elapsed_ms()
        );
        report_samples(&report);
        let tsdb = Arc::new(tsdb);
        apply_settings(&identity, &tsdb)?;
        if let Err(error) = day::resume(&identity, &tsdb, now) {
            tracing::warn!(%error, "what was stored today before this start is not counted in usage.samples_today");
        }
        drop(teller);
        let unwell = Unwell::watch(&tsdb, &counters);
        // Last, so that a start that is refused changes nothing.
        let counted = folder.unclean_stops().inspect(|count| {
            counters.unclean_stops.store(*count, Ordering::Relaxed);
        });
        if let Err(error) = counted.and_then(|_| folder.begin_serving(now)) {
            tracing::warn!(%error, "stops that were none in order cannot be counted (promlet_unclean_shutdown_total)");
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
            door,
            answering: None,
            watching: None,
            flushed: Arc::new(AtomicBool::new(true)),
            unwell,
            _program: program,
        };
        Ok(server)
    }

    /// Starts the work that repeats, and answers requests from here on.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn listen(&mut self) -> Result<(), ServerError> {
        self.answer_commands();
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
        let options = &self.door.options;
        let deps = Deps::new(&rooms, options);
        let site = api::site(api::table(&rooms, &deps), &rooms, &deps, options)?;
        self.start_watching(deps.own_metrics(&rooms))?;
        self.keep_going("limits", SWEEP_PERIOD, move |_| deps.sweep())?;
        // Who asks at once would ask the disk beside what reads it through, and wait longer than this.
        self.tsdb.wait_until_warm(WARMING_MAX);
        self.door.let_in(|front| front.open(site));
        self.answering = Some((rooms, mail));
        Ok(())
    }

    /// Answers the command line over the folder's socket. A file system without sockets costs these commands alone.
    fn answer_commands(&mut self) {
        let answering = Answering {
            folder: Arc::clone(&self.folder),
            control: Arc::clone(&self.control),
            tsdb: Arc::clone(&self.tsdb),
            identity: Some(Arc::clone(&self.identity)),
            listen: self.door.address.to_string(),
            public_url: self.public_url(),
            embed_rps_default: self.settings.rate_embed_default_rps,
            clock: self.clock.clone(),
            backing_up: Mutex::default(),
        };
        match Admin::start(answering) {
            Ok(admin) => self.admin = Some(admin),
            Err(error) => tracing::warn!(
                %error,
                "no admin.sock could be made in the data folder: promlet seal and promlet backup need the server stopped"
            ),
        }
    }

    fn start_tasks(&mut self) -> Result<(), ServerError> {
        let identity = Arc::clone(&self.identity);
        let flushed = Arc::clone(&self.flushed);
        self.keep_going("session-flush", FLUSH_PERIOD, move |now| {
            let noted = identity.tick(now);
            flushed.store(noted.is_ok(), Ordering::Relaxed);
            if let Err(error) = noted {
                tracing::error!(%error, "sessions and keys in use could not be noted on disk");
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        self.keep_going("org-removal", REMOVAL_PERIOD, move |now| {
            match remove_deleted(&identity, &tsdb, now) {
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    "a deleted organisation is gone for everybody and not yet from the disk: {}",
                    kv::with_sources(&error)
                ),
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let mut noted = day::Noted::default();
        self.keep_going("stored-today", DAY_PERIOD, move |now| {
            if let Err(error) = noted.note(&identity, &tsdb, now) {
                tracing::warn!(%error, "what was stored today could not be noted on disk");
            }
        })?;
        let control = Arc::clone(&self.control);
        self.keep_going("accounts-export", EXPORT_PERIOD, move |now| match control.export_if_due(now) {
            Ok(None) => {}
            Ok(Some(made)) => tracing::info!(?made, "accounts are exported"),
            Err(error) => {
                tracing::warn!(%error, "no export of the accounts was made; the journal keeps everything")
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.keep_going("log-mark", MARK_PERIOD, move |_| tsdb.note_log_mark())?;
        let tsdb = Arc::clone(&self.tsdb);
        self.keep_going("seal", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.seal_if_due(now) {
                tracing::warn!(
                    "not everything that is due was sealed; the log keeps it: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.keep_going("upkeep", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.maintain(now) {
                tracing::warn!(
                    "segments were not merged or removed; nothing is lost: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        let period = self.settings.checkpoint_every.map_or(STORE_PERIOD, |every| every.min(STORE_PERIOD));
        self.keep_going("checkpoint", period, move |now| {
            if !tsdb.checkpoint_due() {
                return;
            }
            let watch = Stopwatch::start();
            match tsdb.checkpoint(now) {
                Ok(done) => tracing::info!(?done, "checkpoint {} in {:.0} ms", done.generation, watch.elapsed_ms()),
                Err(error) => tracing::warn!(%error, "no checkpoint was made; the log keeps everything, the next start takes longer"),
            }
        })
    }

    /// Calls `tick` now and each `period`, until the server ends.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub fn keep_going(
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
        TaskContext { clock: self.clock.clone(), panics: self.unwell.panics() }
    }

    /// Has live metrics of this machine and of promlet written into `org` while it runs.
    pub fn watch_this_machine(&mut self, org: OrgId, period: Duration) {
        self.watching = Some((org, period));
    }

    /// The first reading is there before the first request is answered.
    fn start_watching(&mut self, own: OwnMetrics) -> Result<(), ServerError> {
        let Some((org, period)) = self.watching else { return Ok(()) };
        let mut host = HostMetrics::new();
        let tsdb = Arc::clone(&self.tsdb);
        let mut described = false;
        let mut tick = move |now| {
            let mut batch = BatchBuilder::default();
            host.read(now, &mut batch);
            own.write(now, !described, &mut batch);
            described = true;
            if let Err(error) = tsdb.append(org, &batch.batch(), now) {
                tracing::warn!(%error, "this machine's metrics were not stored");
            }
        };
        tick(self.clock.now());
        let task =
            Task::after(period, "live-metrics", period, self.common(), tick).map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }

    /// Goes on until SIGTERM, SIGINT or Ctrl-C; then drains, stops the tasks, and closes every room in order.
    ///
    /// # Errors
    /// [`ServerError`] of the closing; what was acknowledged is on disk whatever it says.
    pub fn run(mut self) -> Result<(), ServerError> {
        if self.answering.is_none() {
            self.listen()?;
        }
        tracing::info!("listening on {}://{}", self.settings.scheme(), self.door.address);
        let Server { clock, folder, control, identity, tsdb, tasks, admin, door, answering, .. } = self;
        door.wait();
        // What was queued is sent before the end.
        drop(answering);
        if let Some(admin) = admin {
            admin.stop();
        }
        for task in tasks {
            task.stop();
        }
        let now = clock.now();
        let fenced = close_samples(&tsdb, now);
        if let Err(error) = day::Noted::default().note(&identity, &tsdb, now) {
            tracing::warn!(%error, "what was stored today could not be noted on disk");
        }
        drop(tsdb);
        // Whoever still held one of them would make this no clean stop; the next start then reads it as after a crash.
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
        let ui = ui.below(path_of(&self.door.options.public_url));
        if self.settings.docs { ui } else { ui.without_docs() }
    }

    fn checks(&self) -> Vec<(&'static str, Check)> {
        let control = Arc::clone(&self.control);
        let accounts: Check = Arc::new(move || control.health().map_err(|fenced| fenced.to_string()));
        let flushed = Arc::clone(&self.flushed);
        let session_flush: Check = Arc::new(move || match flushed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("sessions in use could not be noted on disk; the log says why".to_owned()),
        });
        vec![("accounts", accounts), ("session_flush", session_flush), ("tasks", self.unwell.check())]
    }

    /// How people reach it: `--public-url`, or the address it listens on.
    pub fn public_url(&self) -> String {
        public_url(&self.settings, self.door.address)
    }

    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// Milliseconds since the start.
    pub fn uptime_ms(&self) -> f64 {
        self.uptime.elapsed_ms()
    }

    /// Whether mail is printed.
    pub fn mails_to_console(&self) -> bool {
        matches!(self.settings.mail, MailSetting::Console)
    }

    /// The samples.
    pub fn tsdb(&self) -> &Arc<Tsdb> {
        &self.tsdb
    }

    /// What time it is.
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

/// When this program was built, to the day (`build.rs`).
fn built() -> Option<Timestamp> {
    env!("PROMLET_BUILT_S").parse().ok().map(Timestamp::from_s)
}

/// Logs what was found wrong at the start.
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
    // What an organisation that is alone may use.
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

/// Ends writing; why the log takes none, if it took none before this.
fn close_samples(tsdb: &Tsdb, now: Timestamp) -> Option<String> {
    let fenced = match tsdb.health().writes {
        Writes::Fenced(why) | Writes::Stopped(why) | Writes::ReadOnly(why) => Some(why),
        Writes::Open | Writes::DiskFull { .. } | Writes::Closed => None,
    };
    // With everything in segments, or else in a checkpoint, the next start replays nothing. The checkpoint of an empty
    // head is empty, and spares that start the reading of an older one.
    if let Err(error) = tsdb.seal(now) {
        tracing::warn!("not everything was sealed: {}", kv::with_sources(&error));
    }
    if let Err(error) = tsdb.checkpoint(now) {
        tracing::warn!(%error, "no last checkpoint was made; the next start replays the log instead");
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
    tracing::info!("ended in order");
    Ok(())
}

/// Reads addresses and networks.
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
        master_key::begin_anew(&identity, folder, control, key, now)?;
    }
    Ok(identity)
}
