//! Opens every room once, in order, and closes them in reverse.

mod accounts;
mod admin;
mod agent;
mod background;
mod close;
mod commands;
mod daily_usage;
pub mod dashboard_files;
mod doctor;
mod element_files;
mod error;
pub mod history;
mod listener;
mod mail;
mod master_key;
mod moves;
mod notify;
mod oauth;
mod open;
mod operator_org;
mod options;
mod panic_monitor;
mod query_string;
mod rule_backfill;
pub(crate) mod rules;
mod scraping;
mod serving;
mod standby;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::api::Rooms;
use crate::api::own_metrics::Counters;
use crate::clock::{Clock, Stopwatch};
use crate::config::{MailSetting, Settings};
use crate::identity::Identity;
use crate::kv::{Control, DataFolder};
use crate::model::OrgId;
use crate::outbound::MailQueue;
use crate::rules::RuleEngine;
use crate::tasks::Task;
use crate::tsdb::{self, Tsdb};

use crate::forward::edge::Forwarders;
use crate::notify::edge::NotifyHub;
pub use accounts::{DemoAccount, FirstAccount};
use admin::AdminServer;
pub use admin::{AdminClient, AdminError, AdminRequest, Sealed, Staged};
pub use agent::Agent;
use close::{close_accounts, close_folder, close_samples};
use dashboard_files::DashboardFiles;
pub use doctor::{Diagnoses, Diagnosis, Severity, diagnose};
pub use error::ServerError;
use listener::Listener;
pub use listener::ShowProgress;
pub use master_key::master_key_source;
use moves::Moves;
use panic_monitor::PanicMonitor;
pub use rule_backfill::{BackfillPart, BackfillRequest};
use scraping::Scraping;
pub use standby::prepare_follower;
pub use store::{OpenAccounts, OpenStore, promote_stopped};

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
    moves: Option<Arc<Moves>>,
    forwarders: Option<Arc<Forwarders>>,
    rules: Option<Arc<RuleEngine>>,
    /// The receiver of alerts; opened before rules are evaluated, closed after that.
    notify: Option<Arc<NotifyHub>>,
    scraping: Option<Arc<Scraping>>,
    listener: Listener,
    /// The parts that handle requests, dropped before the rooms are closed.
    serving: Option<(Rooms, Arc<MailQueue>)>,
    live_metrics: Option<(OrgId, Duration)>,
    /// The folder of dashboards, until [`Server::listen`] reads it.
    dashboard_files: Option<DashboardFiles>,
    /// Whether the last flush of sessions and API keys in use reached the disk.
    flushed: Arc<AtomicBool>,
    panic_monitor: PanicMonitor,
    standby: standby::Standby,
    /// Prefetches the program's own pages; ends with the server at the latest.
    _prefetch: tsdb::Prefetch,
}

impl Server {
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
        let Server {
            clock,
            folder,
            control,
            identity,
            tsdb,
            tasks,
            admin,
            moves,
            forwarders,
            rules,
            notify,
            scraping,
            listener,
            serving,
            standby,
            ..
        } = self;
        listener.wait(|| {
            moves.iter().for_each(|moves| {
                moves.begin_stop();
                moves.stop();
            });
            scraping.iter().for_each(|scraping| scraping.stop());
            forwarders.iter().for_each(|forwarders| forwarders.stop_all());
            rules.iter().for_each(|rules| rules.stop());
        });
        drop((forwarders, rules));
        // The notifier stops after the rules, which send alerts to it.
        notify.iter().for_each(|notify| notify.close());
        drop(notify);
        drop(scraping);
        // Queued mails are sent before the end.
        drop(serving);
        if let Some(admin) = admin {
            admin.stop();
        }
        drop(moves);
        for task in tasks {
            task.stop();
        }
        standby.stop();
        let now = clock.now();
        let fenced = close_samples(&tsdb, now);
        if identity.accepts_changes()
            && let Err(error) = daily_usage::DailyUsageRecorder::default().record(&identity, &tsdb, now)
        {
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

    /// Returns the URL of the server: `--public-url`, or the address that it listens on.
    pub fn public_url(&self) -> String {
        options::public_url(&self.settings, self.listener.address)
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
