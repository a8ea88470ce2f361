//! Connects the open rooms to the listener: tasks, lanes, mail queue and the route table.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::admin::{AdminContext, AdminServer};
use super::moves::Moves;
use super::options::lanes_options;
use super::{Server, ServerError, element_files, mail, rules};
use crate::api::health::{Check, StandbyNote};
use crate::api::lanes::Lanes;
use crate::api::orgs::forward::reconcile;
use crate::api::prefix::path_of;
use crate::api::{self, ApiOptions, Deps, Rooms, pages};
use crate::forward::ForwardDeps;
use crate::forward::edge::Forwarders;
use crate::model::AlertSink;
use crate::outbound::MailQueue;
use crate::ui::{ElementFile, Ui};

/// How long a start waits for the newest segments to be read ahead. A disk reads some tens of
/// megabytes in this time.
const WARMING_MAX: Duration = Duration::from_millis(100);
/// How often targets and pins of removed organisations, and a promotion, are looked for.
const FORWARD_PERIOD: Duration = Duration::from_secs(10);
/// The interval between two searches for pushed groups whose samples must be repeated, or that have
/// expired.
const PUSH_PERIOD: Duration = Duration::from_secs(5);
/// How often the rate limiters remove idle entries.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

impl Server {
    /// Starts the background tasks and begins to handle requests.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn listen(&mut self) -> Result<(), ServerError> {
        self.start_following()?;
        let moves = Arc::new(Moves::new(
            Arc::clone(&self.identity),
            Arc::clone(&self.tsdb),
            self.clock.clone(),
            self.listener.options.egress.clone(),
            self.listener.runtime(),
        ));
        self.moves = Some(Arc::clone(&moves));
        let admin = Arc::new(self.admin_context());
        self.start_tasks()?;
        self.start_dashboard_files()?;
        let lanes = Lanes::start(&lanes_options(&self.settings)).map_err(ServerError::Thread)?;
        let mailer = mail::mailer(&self.settings.mail)?;
        if mail::sends_readable(&mailer) {
            tracing::warn!("{}; {}", mail::READABLE, mail::READABLE_NEXT);
        }
        let mail = MailQueue::start(mailer, self.clock.clone());
        let mail = Arc::new(mail.map_err(ServerError::Thread)?);
        let forwarders = Arc::new(Forwarders::new(ForwardDeps {
            tsdb: Arc::clone(&self.tsdb),
            egress: self.listener.options.egress.clone(),
            runtime: self.listener.runtime(),
            clock: self.clock.clone(),
            received: Arc::default(),
        }));
        let notify = Arc::new(self.start_notify(mail.mailer().clone())?);
        let rules = rules::engine(
            &self.settings,
            (Arc::clone(&self.tsdb), self.clock.clone(), Some(Arc::clone(&notify) as Arc<dyn AlertSink>)),
            &self.listener.options.read,
            &self.public_url(),
        );
        let scraping = Arc::new(self.start_scraping()?);
        self.scraping = Some(Arc::clone(&scraping));
        let mut rooms = Rooms {
            identity: Arc::clone(&self.identity),
            tsdb: Arc::clone(&self.tsdb),
            lanes,
            clock: self.clock.clone(),
            mail: Arc::clone(&mail),
            checks: self.checks(),
            counters: Arc::clone(&self.counters),
            pages: Some(pages::router(self.ui().with_others(self.element_files()))),
            shared: Some(self.ui()),
            forwarders: Arc::clone(&forwarders),
            rules: Arc::clone(&rules),
            notify: Arc::clone(&notify),
            scraping: scraping.room(),
        };
        let options = ApiOptions {
            standby: self.start_primary(&admin)?,
            standby_figures: Some(self.standby.figures()),
            standby_note: Some(StandbyNote(self.standby.note())),
            move_figures: Some(moves.figures()),
            ..self.listener.options.clone()
        };
        let options = &options;
        rooms.checks.extend(self.standby.check().map(|check| ("standby", check)));
        self.start_admin_server(admin);
        let deps = Deps::new(&rooms, options);
        let app = api::app(api::table(&rooms, &deps), &rooms, &deps, options)?;
        self.start_live_metrics(deps.own_metrics(&rooms))?;
        scraping.check_writes_by(deps.local_writes());
        self.start_self_scrape(deps.own_metrics(&rooms), &scraping)?;
        self.listener.on_shutdown({
            let (deps, moves) = (deps.clone(), Arc::clone(&moves));
            move || {
                moves.begin_stop();
                deps.close_streams();
            }
        });
        let pushed = deps.clone();
        self.start_task("push", PUSH_PERIOD, move |now| pushed.repeat_pushes(now))?;
        self.start_task("limits", SWEEP_PERIOD, move |_| deps.sweep())?;
        // The first queries would otherwise compete with this prefetch for the disk, and take
        // longer.
        self.tsdb.wait_until_warm(WARMING_MAX);
        self.listener.install_app(app);
        self.forwarders = Some(Arc::clone(&forwarders));
        self.follow_notify(&notify)?;
        self.notify = Some(notify);
        self.start_forwarding(moves, forwarders)?;
        self.start_rules(&rules)?;
        self.rules = Some(rules);
        self.run_scraping(&scraping)?;
        self.serving = Some((rooms, mail));
        Ok(())
    }

    fn start_forwarding(
        &mut self,
        moves: Arc<Moves>,
        forwarders: Arc<Forwarders>,
    ) -> Result<(), ServerError> {
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let send = move |now| {
            // A follower begins after its promotion, and a primary that was replaced ends.
            if identity.is_replica() {
                moves.follow();
                return forwarders.stop_all();
            }
            moves.tick();
            reconcile(&identity, &forwarders, &tsdb, now);
        };
        send(self.clock.now());
        self.start_task("forward", FORWARD_PERIOD, send)
    }

    fn admin_context(&self) -> AdminContext {
        AdminContext {
            folder: Arc::clone(&self.folder),
            control: Arc::clone(&self.control),
            tsdb: Arc::clone(&self.tsdb),
            identity: Some(Arc::clone(&self.identity)),
            listen: self.listener.address.to_string(),
            public_url: self.public_url(),
            embed_rps_default: self.settings.rate_embed_default_rps,
            clock: self.clock.clone(),
            rule_settings: rules::rule_settings(
                &self.settings,
                &self.listener.options.read,
                &self.public_url(),
            ),
            moves: self.moves.clone(),
            backing_up: Mutex::default(),
            promote: Some(self.promotion()),
        }
    }

    /// Serves the command line over the folder's socket. Without it, on a file system without
    /// sockets, only these commands fail.
    fn start_admin_server(&mut self, serving: Arc<AdminContext>) {
        match AdminServer::start(serving) {
            Ok(admin) => self.admin = Some(admin),
            Err(error) => tracing::warn!(
                %error,
                "cannot create admin.sock in the data folder: promlet seal and promlet backup need the server stopped"
            ),
        }
    }

    fn ui(&self) -> Ui {
        let ui = self.settings.ui_dir.clone().map_or_else(Ui::default, Ui::from_dir);
        let ui = ui.below(path_of(&self.listener.options.public_url));
        if self.settings.docs { ui } else { ui.without_docs() }
    }

    /// Returns the files of elements of other versions, and stores those of this program. Without
    /// them, a page that runs such an element has no tooltips until it is loaded again.
    fn element_files(&self) -> Vec<ElementFile> {
        let dir = self.folder.path().join(element_files::FOLDER);
        let others = element_files::others(&dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the files of embedded charts of earlier versions");
            Vec::new()
        });
        if let Err(error) = element_files::store(&dir) {
            tracing::warn!(%error, "cannot store the files of embedded charts for later versions");
        }
        others
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
}
