//! The hub: the notifiers of all organisations, and the thread that drives them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;

use super::send::{Deliverer, MAILS_WAITING_MAX, RunningTests, check_target, run_mails};
use super::{NotifyDeps, NotifyLoad};
use crate::entropy::Entropy;
use crate::model::{Alert, AlertSink, OrgId, Timestamp};
use crate::notify::alertmanager::discovery::{AmEndpoint, file_endpoints, fixed_endpoint};
use crate::notify::config::{AmConfig, NotifyDocument, NotifyIntegration};
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::limits::{ALERTMANAGERS_ACTIVE_MAX, INBOX_MAX, TARGETS_FILE_BYTES_MAX};
use crate::notify::message::DeliveryContent;
use crate::notify::org::{NotifyStatus, OrgNotifier, OrgOptions, TestRefusal};
use crate::sync::IgnorePoison as _;

/// How often files of Alertmanagers are read, in milliseconds.
const FILES_EVERY_MS: i64 = 30_000;

/// The state of an organisation cannot be read or stored at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotifyUnavailable {
    /// The organisation does not exist.
    #[error("no such organisation")]
    NoOrg,
    /// This server does not send notifications: it follows another one, or stops.
    #[error("this server does not send notifications at the moment")]
    Inactive,
    /// The store failed.
    #[error("the state of notifications cannot be stored: {0}")]
    Store(String),
}

/// Counters of the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotifyFigures {
    /// Alerts that were dropped because the notifier was too slow.
    pub inbox_dropped: u64,
    /// Panics that were caught.
    pub panics: u64,
    /// Failures to store the state.
    pub store_errors: u64,
}

pub(super) struct OrgSlot {
    pub(super) org: OrgId,
    /// Distinguishes this state from an earlier one of the same organisation.
    pub(super) generation: u64,
    /// Held while changes are taken and stored, so that they are stored in their order.
    pub(super) saving: Mutex<()>,
    pub(super) state: Mutex<OrgState>,
}

pub(super) struct OrgState {
    /// When the notifier was last advanced.
    pub(super) stepped_at: Option<Timestamp>,
    pub(super) notifier: OrgNotifier,
    pub(super) document: Option<NotifyDocument>,
    /// When files of Alertmanagers were last read.
    pub(super) files_at: Option<Timestamp>,
    /// The Alertmanagers of each file, when it could last be read.
    pub(super) file_endpoints: BTreeMap<Arc<str>, Vec<AmEndpoint>>,
    pub(super) file_errors: BTreeMap<Arc<str>, String>,
}

pub(super) struct FinishedDelivery {
    pub(super) org: OrgId,
    pub(super) generation: u64,
    pub(super) number: u64,
    pub(super) outcome: DeliveryOutcome,
}

#[derive(Default)]
pub(super) struct HubInbox {
    /// The new alerts of each organisation. One without alerts is loaded if it is not yet.
    pub(super) alerts: BTreeMap<OrgId, VecDeque<Alert>>,
    pub(super) finished: Vec<FinishedDelivery>,
    pub(super) is_woken: bool,
    pub(super) is_closing: bool,
}

pub(super) struct HubShared {
    pub(super) deps: NotifyDeps,
    pub(super) deliverer: Deliverer,
    pub(super) orgs: Mutex<BTreeMap<OrgId, Arc<OrgSlot>>>,
    /// Organisations that cannot be loaded, and when that is tried again.
    pub(super) paused: Mutex<BTreeMap<OrgId, Timestamp>>,
    pub(super) inbox: Mutex<HubInbox>,
    pub(super) wake: Condvar,
    pub(super) is_active: AtomicBool,
    pub(super) next_generation: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) inbox_dropped: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) store_errors: AtomicU64,
}

/// The notifications of all organisations.
pub struct NotifyHub {
    shared: Arc<HubShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for NotifyHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifyHub").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl NotifyHub {
    /// Starts the threads. The hub sends nothing before [`NotifyHub::activate`].
    ///
    /// # Errors
    /// The operating system's error if a thread cannot be started.
    pub fn start(deps: NotifyDeps) -> std::io::Result<NotifyHub> {
        let (mails, jobs) = mpsc::sync_channel(MAILS_WAITING_MAX);
        let mailer = Arc::clone(&deps.mailer);
        let shared = Arc::new(HubShared {
            deliverer: Deliverer::new(deps.clone(), mails),
            deps,
            orgs: Mutex::default(),
            paused: Mutex::default(),
            inbox: Mutex::default(),
            wake: Condvar::new(),
            is_active: AtomicBool::new(false),
            next_generation: AtomicU64::new(1),
            in_flight: AtomicU64::new(0),
            inbox_dropped: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            store_errors: AtomicU64::new(0),
        });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let mail = named("alert-mail").spawn(move || run_mails(&mailer, &jobs))?;
        let driven = Arc::clone(&shared);
        let notify = named("notify").spawn(move || driven.run())?;
        Ok(NotifyHub { shared, threads: Mutex::new(vec![notify, mail]) })
    }

    /// Begins to send; the thread loads all organisations. Has no effect on an active hub.
    pub fn activate(&self) {
        if self.shared.is_active.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.shared.deps.store.orgs() {
            Ok(orgs) => {
                let mut inbox = self.shared.inbox.lock().ignore_poison();
                for org in orgs {
                    inbox.alerts.entry(org).or_default();
                }
            }
            Err(why) => {
                tracing::warn!("the state of notifications cannot be read: {why}");
                self.shared.is_active.store(false, Ordering::SeqCst);
            }
        }
        self.shared.wake();
    }

    /// Ends all sending, because another server sends now. The state stays stored.
    pub fn deactivate(&self) {
        if self.shared.is_active.swap(false, Ordering::SeqCst) {
            self.shared.orgs.lock().ignore_poison().clear();
        }
    }

    /// Forgets the organisations that do not exist any more.
    pub fn retain(&self, exists: impl Fn(OrgId) -> bool) {
        let known: Vec<OrgId> = self.shared.orgs.lock().ignore_poison().keys().copied().collect();
        for org in known.into_iter().filter(|org| !exists(*org)) {
            self.shared.orgs.lock().ignore_poison().remove(&org);
            self.shared.deliverer.forget(org);
        }
    }

    /// Reads or changes the state of an organisation, and stores changed rows. Blocks (commit).
    ///
    /// # Errors
    /// [`NotifyUnavailable`]. After [`NotifyUnavailable::Store`], the change is in memory and
    /// storing it is retried.
    pub fn with_org<R>(
        &self,
        org: OrgId,
        work: impl FnOnce(&mut OrgNotifier, Timestamp) -> R,
    ) -> Result<R, NotifyUnavailable> {
        let slot = self.shared.slot(org)?;
        let now = self.shared.deps.clock.now();
        let result = work(&mut slot.state.lock().ignore_poison().notifier, now);
        self.shared.save(&slot).map_err(NotifyUnavailable::Store)?;
        self.shared.wake();
        Ok(result)
    }

    /// Reads the state of an organisation.
    ///
    /// # Errors
    /// [`NotifyUnavailable`].
    pub fn read_org<R>(
        &self,
        org: OrgId,
        read: impl FnOnce(&OrgNotifier, Timestamp) -> R,
    ) -> Result<R, NotifyUnavailable> {
        let slot = self.shared.slot(org)?;
        let state = slot.state.lock().ignore_poison();
        Ok(read(&state.notifier, self.shared.deps.clock.now()))
    }

    /// Returns the state of the receivers, and the errors of files of Alertmanagers by id.
    ///
    /// # Errors
    /// [`NotifyUnavailable`].
    pub fn status(
        &self,
        org: OrgId,
    ) -> Result<(NotifyStatus, BTreeMap<Arc<str>, String>), NotifyUnavailable> {
        let slot = self.shared.slot(org)?;
        let state = slot.state.lock().ignore_poison();
        Ok((state.notifier.status(self.shared.deps.clock.now()), state.file_errors.clone()))
    }

    /// Returns the state of the receivers of all loaded organisations.
    pub fn statuses(&self) -> Vec<(OrgId, NotifyStatus)> {
        let now = self.shared.deps.clock.now();
        let slots: Vec<Arc<OrgSlot>> = self.shared.orgs.lock().ignore_poison().values().cloned().collect();
        let status = |slot: &Arc<OrgSlot>| (slot.org, slot.state.lock().ignore_poison().notifier.status(now));
        slots.iter().map(status).collect()
    }

    /// Checks that the servers of a configuration can be used: certificates can be read. Sends no
    /// request.
    ///
    /// # Errors
    /// The id of the integration or Alertmanager, and a sentence.
    pub fn check(&self, document: &NotifyDocument) -> Result<(), (Arc<str>, String)> {
        let config = document.config();
        let targets = config.integrations.iter().filter_map(|one| Some((&one.id, one.kind.target()?)));
        let alertmanagers = config.alertmanagers.iter().map(|one| (&one.id, &one.target));
        for (id, target) in targets.chain(alertmanagers) {
            check_target(target, &self.shared.deps.egress).map_err(|why| (Arc::clone(id), why))?;
        }
        Ok(())
    }

    /// Uses a configuration that has been stored.
    ///
    /// # Errors
    /// [`NotifyUnavailable`]; then the configuration is used once the organisation can be loaded.
    pub fn set_document(&self, org: OrgId, document: NotifyDocument) -> Result<(), NotifyUnavailable> {
        let slot = self.shared.slot(org)?;
        let now = self.shared.deps.clock.now();
        self.shared.deliverer.forget(org);
        slot.state.lock().ignore_poison().set_document(document, &self.shared.deps, now);
        self.shared.save(&slot).map_err(NotifyUnavailable::Store)?;
        self.shared.wake();
        Ok(())
    }

    /// Begins to send a test to each integration of a receiver. Blocks (load).
    ///
    /// # Errors
    /// [`NotifyUnavailable`], or [`TestRefusal`] inside.
    pub fn start_test(
        &self,
        org: OrgId,
        receiver: &str,
    ) -> Result<Result<RunningTests, TestRefusal>, NotifyUnavailable> {
        let slot = self.shared.slot(org)?;
        let now = self.shared.deps.clock.now();
        let tests = slot.state.lock().ignore_poison().notifier.test(receiver, now);
        let tests = match tests {
            Ok(tests) => tests,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.shared.wake();
        let start = |(integration, content): (Arc<NotifyIntegration>, DeliveryContent)| {
            let (on_outcome, outcome) = tokio::sync::oneshot::channel();
            // The caller may have stopped waiting.
            let report = Box::new(move |outcome| drop(on_outcome.send(outcome)));
            self.shared.deliverer.start(org, integration.id.to_string(), content, report);
            (integration, outcome)
        };
        Ok(Ok(RunningTests(tests.into_iter().map(start).collect())))
    }

    /// Returns the counters.
    pub fn figures(&self) -> NotifyFigures {
        NotifyFigures {
            inbox_dropped: self.shared.inbox_dropped.load(Ordering::Relaxed),
            panics: self.shared.panics.load(Ordering::Relaxed),
            store_errors: self.shared.store_errors.load(Ordering::Relaxed),
        }
    }

    /// Waits for running deliveries, for a few seconds at most, stores the state, and ends the
    /// threads.
    pub fn close(&self) {
        self.shared.inbox.lock().ignore_poison().is_closing = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().ignore_poison());
        let mut threads = threads.into_iter();
        // A panic of a thread was already printed.
        if let Some(notify) = threads.next() {
            let _ = notify.join();
        }
        self.shared.deliverer.end_mails();
        self.shared.is_active.store(false, Ordering::SeqCst);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for NotifyHub {
    fn drop(&mut self) {
        self.close();
    }
}

impl AlertSink for NotifyHub {
    fn send(&self, org: OrgId, alerts: Vec<Alert>, _now: Timestamp) {
        if !self.shared.is_active.load(Ordering::SeqCst) {
            return;
        }
        {
            let mut inbox = self.shared.inbox.lock().ignore_poison();
            let waiting = inbox.alerts.entry(org).or_default();
            waiting.extend(alerts);
            let excess = waiting.len().saturating_sub(INBOX_MAX);
            waiting.drain(..excess);
            self.shared.inbox_dropped.fetch_add(excess as u64, Ordering::Relaxed);
        }
        self.shared.wake();
    }
}

impl OrgState {
    fn set_document(&mut self, document: NotifyDocument, deps: &NotifyDeps, now: Timestamp) {
        self.notifier.set_config(Arc::clone(document.config()), now);
        self.document = Some(document);
        self.files_at = None;
        self.file_endpoints.clear();
        self.file_errors.clear();
        self.read_files(deps, now);
    }

    /// Reads the files of Alertmanagers if that is due, and sets the Alertmanagers.
    pub(super) fn read_files(&mut self, deps: &NotifyDeps, now: Timestamp) {
        let Some(document) = &self.document else { return };
        let config = Arc::clone(document.config());
        let has_files = config.alertmanagers.iter().any(|one| one.file.is_some());
        let is_due = self.files_at.is_none_or(|at| now.ms_since(at).abs() >= FILES_EVERY_MS);
        if !is_due || (self.files_at.is_some() && !has_files) {
            return;
        }
        self.files_at = Some(now);
        let mut all = Vec::new();
        for one in &config.alertmanagers {
            let Some(file) = &one.file else {
                all.push(fixed_endpoint(one));
                continue;
            };
            match read_file(deps, one, file) {
                Ok(found) => {
                    self.file_errors.remove(&one.id);
                    self.file_endpoints.insert(Arc::clone(&one.id), found);
                }
                // The Alertmanagers of the last readable file stay in use.
                Err(why) => {
                    self.file_errors.insert(Arc::clone(&one.id), why);
                }
            }
            all.extend(self.file_endpoints.get(&one.id).cloned().unwrap_or_default());
        }
        all.truncate(ALERTMANAGERS_ACTIVE_MAX);
        self.notifier.set_alertmanagers(all);
    }
}

fn read_file(deps: &NotifyDeps, config: &AmConfig, name: &str) -> Result<Vec<AmEndpoint>, String> {
    let folder = deps.files.as_ref().ok_or("the operator has set no folder for files of Alertmanagers")?;
    let path = folder.join(name);
    let size = std::fs::metadata(&path).map_err(|error| format!("{name}: {error}"))?.len();
    if size > TARGETS_FILE_BYTES_MAX as u64 {
        return Err(format!("{name}: {size} bytes, more than the {TARGETS_FILE_BYTES_MAX} allowed"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
    file_endpoints(config, name, &text).map_err(|why| format!("{name}: {why}"))
}

impl HubShared {
    pub(super) fn wake(&self) {
        self.inbox.lock().ignore_poison().is_woken = true;
        self.wake.notify_all();
    }

    /// Returns the state of an organisation, loading it first if necessary.
    pub(super) fn slot(&self, org: OrgId) -> Result<Arc<OrgSlot>, NotifyUnavailable> {
        let now = self.deps.clock.now();
        let mut orgs = self.orgs.lock().ignore_poison();
        // Under the lock: `deactivate` clears the states after it has set this.
        if !self.is_active.load(Ordering::SeqCst) {
            return Err(NotifyUnavailable::Inactive);
        }
        if let Some(slot) = orgs.get(&org) {
            return Ok(Arc::clone(slot));
        }
        let loaded = self.deps.store.load(org).map_err(|why| {
            self.store_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(org = org.0, "the state of notifications cannot be read: {why}");
            NotifyUnavailable::Store(why)
        })?;
        let NotifyLoad { rows, document, external_url, expr_url } = loaded.ok_or(NotifyUnavailable::NoOrg)?;
        let options = OrgOptions {
            mails_per_hour: self.deps.mails_per_hour,
            external_labels: Arc::clone(&self.deps.external_labels),
            external_url,
            expr_url,
        };
        let mut notifier = OrgNotifier::new(options, Entropy::system());
        let config = document.as_ref().map(|document| Arc::clone(document.config())).unwrap_or_default();
        notifier.restore(rows, config, now);
        let mut state = OrgState {
            stepped_at: None,
            notifier,
            document,
            files_at: None,
            file_endpoints: BTreeMap::new(),
            file_errors: BTreeMap::new(),
        };
        state.read_files(&self.deps, now);
        let generation = self.next_generation.fetch_add(1, Ordering::SeqCst);
        let slot = OrgSlot { org, generation, saving: Mutex::default(), state: Mutex::new(state) };
        let slot = Arc::new(slot);
        orgs.insert(org, Arc::clone(&slot));
        Ok(slot)
    }

    /// Stores the changes of an organisation.
    pub(super) fn save(&self, slot: &OrgSlot) -> Result<(), String> {
        let _saving = slot.saving.lock().ignore_poison();
        let changes = slot.state.lock().ignore_poison().notifier.take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        self.deps.store.save(slot.org, &changes).inspect_err(|why| {
            self.store_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(org = slot.org.0, "the state of notifications was not stored: {why}");
            slot.state.lock().ignore_poison().notifier.return_changes(changes);
        })
    }
}
