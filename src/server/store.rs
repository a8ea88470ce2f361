//! A data folder opened for one command, without loading accounts and without listening.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::ServerError;
use super::admin::{AdminContext, BackupStage, Sealed, Staged};
use super::close::{close_accounts, close_folder};
use super::commands::AccountCommands;
use super::open::open_identity;
use super::options::{built, public_url};
use super::rule_backfill::{self, BackfillPart, BackfillRequest};
use crate::clock::Clock;
use crate::config::{AccountCommand, Settings};
use crate::entropy::Entropy;
use crate::identity::{Identity, USERS_TABLE};
use crate::kv::{Control, ControlOptions, DataFolder, FolderError, LastStop, with_sources};
use crate::model::{OrgId, StoreId, Timestamp};
use crate::rules::{RuleContext, RuleFileOptions, RuleSettings};
use crate::standby;
use crate::tsdb::{self, Durability, Tsdb};

/// The longest time after which the log of a copy is synced.
const COPY_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Promotes the follower whose stopped folder is `dir`, also one that has never caught up, if
/// `accepts_loss`. Returns the epoch.
///
/// # Errors
/// [`ServerError`]; [`FolderError::InUse`] while a server runs on it.
pub fn promote_stopped(dir: &Path, accepts_loss: bool, clock: &Clock) -> Result<u64, ServerError> {
    let (folder, control) = open_stopped(dir, clock.now(), &mut Entropy::system())?;
    let was_clean = folder.last_stop() == LastStop::Clean;
    let promoted = standby::promote_stopped(&control, accepts_loss);
    let promoted = promoted.map_err(|e| ServerError::Standby(with_sources(&e)));
    Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("accounts"))?.close()?;
    if was_clean {
        close_folder(folder, clock.now())?;
    }
    promoted
}

/// The opened store of a stopped server.
pub struct OpenStore {
    context: AdminContext,
}

/// Opens the folder of a stopped server and its accounts. A folder without a store is refused and
/// left unchanged.
fn open_stopped(
    dir: &Path,
    now: Timestamp,
    rng: &mut Entropy,
) -> Result<(Arc<DataFolder>, Arc<Control>), ServerError> {
    if !dir.join("STORE").exists() {
        return Err(FolderError::NoStore { path: dir.to_owned() }.into());
    }
    let folder = Arc::new(DataFolder::open(dir, now, rng)?);
    let options = ControlOptions { now, users_table: USERS_TABLE };
    let control = Arc::new(Control::open(&folder, &options)?.0);
    Ok((folder, control))
}

impl OpenStore {
    /// Opens the folder of a stopped server. A folder without a store is refused and left
    /// unchanged.
    ///
    /// # Errors
    /// [`ServerError`]; [`FolderError::InUse`] while a server runs on it.
    pub fn open(dir: &Path, clock: Clock) -> Result<OpenStore, ServerError> {
        let mut rng = Entropy::system();
        let opened = open_stopped(dir, clock.now(), &mut rng)?;
        OpenStore::of(opened, Durability::Synced, clock, &mut rng)
    }

    /// Opens the samples of a folder.
    fn of(
        (folder, control): (Arc<DataFolder>, Arc<Control>),
        durability: Durability,
        clock: Clock,
        rng: &mut Entropy,
    ) -> Result<OpenStore, ServerError> {
        let home = tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        let options = tsdb::Options { durability, built: built(), ..tsdb::Options::default() };
        let (tsdb, _) = Tsdb::open(home, options, rng, clock.now())?;
        let (tsdb, backing_up) = (Arc::new(tsdb), Mutex::new(()));
        let (identity, listen, public_url, embed_rps_default) = (None, String::new(), String::new(), 0);
        let context = AdminContext {
            folder,
            control,
            tsdb,
            identity,
            listen,
            public_url,
            embed_rps_default,
            clock,
            rule_settings: RuleSettings::default(),
            moves: None,
            backing_up,
            promote: None,
        };
        Ok(OpenStore { context })
    }

    /// Returns the samples.
    pub fn tsdb(&self) -> &Tsdb {
        &self.context.tsdb
    }

    /// Returns the id of the store, which differs from that of every other folder.
    pub fn store_id(&self) -> StoreId {
        self.context.folder.store_id()
    }

    /// Writes a part of a backfill of an organisation that [`OpenAccounts::admit_backfill`]
    /// returned.
    ///
    /// # Errors
    /// The reason as text.
    pub fn backfill(&self, org: OrgId, request: &BackfillRequest) -> Result<BackfillPart, String> {
        let AdminContext { tsdb, rule_settings, clock, .. } = &self.context;
        let context = RuleContext::new(rule_settings, tsdb, org);
        rule_backfill::run(context, request, clock.now())
    }

    /// Seals all samples.
    ///
    /// # Errors
    /// The reason as text.
    pub fn seal(&self) -> Result<Sealed, String> {
        let done =
            self.context.tsdb.seal_and_merge(self.context.clock.now()).map_err(|e| with_sources(&e))?;
        Ok(Sealed { segments: done.segments, samples: done.samples })
    }

    /// Stages a consistent state for a backup while `copy` runs.
    ///
    /// # Errors
    /// The reason as text, or the error of `copy`.
    pub fn with_stage<T, E: From<String>>(
        &self,
        with_key: bool,
        copy: impl FnOnce(&Staged) -> Result<T, E>,
    ) -> Result<T, E> {
        let (stage, answer) = BackupStage::create(&self.context, with_key)?;
        let staged: Staged = serde_json::from_value(answer).map_err(|e| E::from(e.to_string()))?;
        let copied = copy(&staged);
        drop(stage);
        copied
    }

    /// Closes the folder cleanly.
    ///
    /// # Errors
    /// [`ServerError`]; sealed samples stay sealed.
    pub fn close(self) -> Result<(), ServerError> {
        let AdminContext { folder, control, tsdb, clock, .. } = self.context;
        tsdb.close();
        drop(tsdb);
        Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("accounts"))?.close()?;
        let folder = Arc::try_unwrap(folder).map_err(|_| ServerError::StillInUse("the data folder"))?;
        Ok(folder.close_clean(clock.now())?)
    }
}

/// The accounts of a stopped server, opened for one command. The samples stay closed, so the
/// content of their log does not matter.
pub struct OpenAccounts {
    folder: Arc<DataFolder>,
    control: Arc<Control>,
    identity: Identity,
    clock: Clock,
    public_url: String,
    embed_rps_default: u32,
}

impl OpenAccounts {
    /// Opens the accounts of the folder that `settings` name. A folder without a store is refused
    /// and left unchanged.
    ///
    /// # Errors
    /// [`ServerError`]; [`FolderError::InUse`] while a server runs on it.
    pub fn open(settings: &Settings, clock: Clock) -> Result<OpenAccounts, ServerError> {
        let dir = &settings.data_dir;
        let mut rng = Entropy::system();
        let now = clock.now();
        let (folder, control) = open_stopped(dir, now, &mut rng)?;
        let identity = open_identity(settings, &folder, &control, now, &mut rng)?;
        let public_url = public_url(settings, settings.listen);
        let embed_rps_default = settings.rate_embed_default_rps;
        Ok(OpenAccounts { folder, control, identity, clock, public_url, embed_rps_default })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// The reason as text.
    pub fn perform(&self, command: AccountCommand) -> Result<Value, String> {
        let commands = AccountCommands {
            identity: &self.identity,
            tsdb: None,
            public_url: &self.public_url,
            clock: &self.clock,
            embed_rps_default: self.embed_rps_default,
            moves: None,
        };
        commands.perform(command)
    }

    /// Returns the organisation with this slug, if there is one.
    ///
    /// # Errors
    /// The reason as text.
    pub fn org(&self, slug: &str) -> Result<Option<OrgId>, String> {
        Ok(self.identity.org_by_slug(slug).map_err(|e| with_sources(&e))?.map(|org| org.id))
    }

    /// Returns the organisation of a backfill, and records the backfill.
    ///
    /// # Errors
    /// The reason as text.
    pub fn admit_backfill(&self, request: &BackfillRequest) -> Result<OrgId, String> {
        rule_backfill::admit(&self.identity, request, RuleFileOptions::default(), self.clock.now())
    }

    /// Closes the accounts, and opens the samples for a copy. Imported samples are durable once
    /// they are sealed: the log is synced within a second, and at each seal.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn into_store(self) -> Result<OpenStore, ServerError> {
        let OpenAccounts { folder, control, identity, clock, .. } = self;
        if identity.accepts_changes() {
            identity.close(clock.now())?;
        }
        drop(identity);
        let durability = Durability::Interval(COPY_SYNC_INTERVAL);
        OpenStore::of((folder, control), durability, clock, &mut Entropy::system())
    }

    /// Closes the folder. An unclean stop before remains one, because the samples were not opened.
    ///
    /// # Errors
    /// [`ServerError`]; completed commands stay completed.
    pub fn close(self) -> Result<(), ServerError> {
        let OpenAccounts { folder, control, identity, clock, .. } = self;
        let was_clean = folder.last_stop() == LastStop::Clean;
        close_accounts(Arc::new(identity), control, clock.now())?;
        // Dropping the accounts released the last other reference to the folder.
        if was_clean { close_folder(folder, clock.now()) } else { Ok(()) }
    }
}
