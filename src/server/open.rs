//! Opens the rooms that store something, in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::close::{close_accounts, close_folder};
use super::dashboard_files::DashboardFiles;
use super::listener::{Listener, ShowProgress};
use super::master_key::{self, Unlocked};
use super::options::{identity_options, tsdb_options};
use super::panic_monitor::PanicMonitor;
use super::{Server, ServerError, daily_usage, standby};
use crate::api::orgs::settings::apply_settings;
use crate::api::own_metrics::Counters;
use crate::api::starting::StartStage;
use crate::clock::{Clock, Stopwatch};
use crate::config::Settings;
use crate::entropy::Entropy;
use crate::identity::{Foundation, Identity, USERS_TABLE};
use crate::kv::{self, Control, ControlOptions, DataFolder};
use crate::model::Timestamp;
use crate::tsdb::{self, Tsdb};

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
        let dashboard_files = open_dashboard_files(&settings)?;
        let mut rng = Entropy::system();
        let now = clock.now();
        let folder = match settings.follow {
            Some(_) => DataFolder::open_following(&settings.data_dir, now, &mut rng)?,
            None => DataFolder::open(&settings.data_dir, now, &mut rng)?,
        };
        let folder = Arc::new(folder);
        let counters: Arc<Counters> = Arc::default();
        let listener = Listener::open(&settings, Arc::clone(&counters))?;
        let reporter = listener.report_progress(clock.clone(), show)?;
        let (control, report) = Control::open(&folder, &ControlOptions { now, users_table: USERS_TABLE })?;
        report_accounts(&report);
        let control = Arc::new(control);
        standby::admit_role(&settings, folder.path(), &control)?;
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
        // This step is last, so that a refused start changes nothing.
        let unclean_stops = folder.unclean_stops().inspect(|count| {
            counters.unclean_stops.store(*count, Ordering::Relaxed);
        });
        if let Err(error) = unclean_stops.and_then(|_| folder.begin_serving(now)) {
            tracing::warn!(%error, "cannot record unclean shutdowns (promlet_unclean_shutdown_total)");
        }
        Ok(Server {
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
            moves: None,
            forwarders: None,
            rules: None,
            notify: None,
            scraping: None,
            listener,
            serving: None,
            live_metrics: None,
            dashboard_files,
            flushed: Arc::new(AtomicBool::new(true)),
            panic_monitor,
            standby: standby::Standby::default(),
            _prefetch: prefetch,
        })
    }
}

/// Returns the reader of `--dashboards`, which has read nothing yet.
fn open_dashboard_files(settings: &Settings) -> Result<Option<DashboardFiles>, ServerError> {
    let open = |dir: &Path| {
        DashboardFiles::open(dir).map_err(|reason| ServerError::Dashboards { dir: dir.to_owned(), reason })
    };
    settings.dashboards.as_deref().map(open).transpose()
}

/// Logs how the accounts were opened.
fn report_accounts(report: &kv::RecoveryReport) {
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

/// Opens the accounts with the right master key, or with a new one if the operator asks for it.
pub(super) fn open_identity(
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
    let identity = Identity::open(foundation, identity_options(settings), now, rng)?;
    if let Unlocked::New(key) = &unlocked {
        master_key::adopt_new_key(&identity, folder, control, key, now)?;
    }
    Ok(identity)
}
