//! Reading and changing the dashboards of an organisation.

use data_encoding::BASE32_NOPAD;

use crate::entropy::Entropy;
use crate::kv::{CHANGE_ROWS_MAX, Txn};
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::dashboards::document::{self, DocumentError, PackedDashboard};
use crate::identity::tables::compressed::compressed_rows;
use crate::identity::tables::dashboard::{
    DashboardRemovalRow, DashboardRow, DashboardUsageRow, DocumentRow, HistoryRow, VersionEntry,
};
use crate::identity::tables::id::UserId;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// Maximum number of dashboards of an organisation.
pub const DASHBOARDS_MAX: u32 = 500;
/// Maximum compressed size of all versions of all dashboards of an organisation, bytes.
pub const DASHBOARDS_STORED_BYTES_MAX: u64 = 16 << 20;
/// Number of versions that are kept of each dashboard.
pub const DASHBOARD_VERSIONS_MAX: usize = 20;
/// Maximum length of the message of a version, characters.
const MESSAGE_CHARS_MAX: usize = 200;
/// Number of deleted uids whose last version is remembered.
const DELETED_MAX: usize = 100;
/// Upper bound of the rows of a change without documents: the dashboard, its history, the totals
/// and the audit entry.
const OTHER_ROWS_MAX: usize = 13;

/// A dashboard without its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    /// The uid.
    pub uid: String,
    /// The title.
    pub title: String,
    /// Path such as `Infra/Kubernetes`; empty at the top.
    pub folder: String,
    /// The tags.
    pub tags: Vec<String>,
    /// The current version; it only grows. 0 for a provisioned dashboard.
    pub version: u32,
    /// Time of creation.
    pub created_at: Timestamp,
    /// The creator; `None` on the command line and for files.
    pub created_by: Option<UserId>,
    /// Time of the current version.
    pub updated_at: Timestamp,
    /// The author of the current version.
    pub updated_by: Option<UserId>,
    /// Number of panels, rows included.
    pub panels: u32,
    /// Number of queries.
    pub queries: u32,
}

/// A stored version of a dashboard, without its document.
#[derive(Clone, Debug, PartialEq)]
pub struct DashboardVersion {
    /// The number.
    pub version: u32,
    /// Time of saving.
    pub saved_at: Timestamp,
    /// The author; `None` on the command line.
    pub saved_by: Option<UserId>,
    /// The author's message; may be empty.
    pub message: String,
    /// The version whose document was restored.
    pub restored_from: Option<u32>,
    /// Length of the document, bytes.
    pub bytes: u32,
}

/// A version to store.
#[derive(Clone, Debug)]
pub struct DashboardWrite {
    /// The document.
    pub packed: PackedDashboard,
    /// The folder; `None` keeps the present one.
    pub folder: Option<String>,
    /// A message for the history.
    pub message: String,
}

/// The version that a change expects to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Any version.
    Any,
    /// The expected version; 0 is none.
    Exactly(u32),
}

impl ExpectedVersion {
    /// Returns the version, `None` for any.
    pub const fn version(self) -> Option<u32> {
        match self {
            ExpectedVersion::Any => None,
            ExpectedVersion::Exactly(version) => Some(version),
        }
    }
}

/// Errors of changing dashboards.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// `not_found`.
    #[error("this organisation has no such dashboard")]
    NotFound,
    /// `not_found`.
    #[error("version {0} of this dashboard is not stored; the newest {DASHBOARD_VERSIONS_MAX} are")]
    NoVersion(u32),
    /// `already_exists`.
    #[error("this organisation already has a dashboard with the uid {0}")]
    Exists(String),
    /// `provisioned`.
    #[error("the dashboard {0} comes from a file of the server and can be changed only there")]
    Provisioned(String),
    /// `version_conflict`.
    #[error("the dashboard has version {0} now: read it again, or send If-Match: * to replace it")]
    Conflict(u32),
    /// `limit_reached`.
    #[error("an organisation has at most {DASHBOARDS_MAX} dashboards")]
    TooMany,
    /// `limit_reached`.
    #[error(
        "the versions of an organisation's dashboards have at most {DASHBOARDS_STORED_BYTES_MAX} bytes when compressed"
    )]
    TooLarge,
    /// `limit_reached`.
    #[error("an account can star at most {0} dashboards of an organisation")]
    TooManyStars(usize),
    /// `invalid_dashboard` and `dashboard_too_large`.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DashboardRow {
    fn view(self, uid: String) -> Dashboard {
        Dashboard {
            uid,
            title: self.title,
            folder: self.folder,
            tags: self.tags,
            version: self.version,
            created_at: self.created_at,
            created_by: self.created_by,
            updated_at: self.updated_at,
            updated_by: self.updated_by,
            panels: self.panels,
            queries: self.queries,
        }
    }
}

impl VersionEntry {
    fn view(self) -> DashboardVersion {
        DashboardVersion {
            version: self.version,
            saved_at: self.saved_at,
            saved_by: self.saved_by,
            message: self.message,
            restored_from: self.restored_from,
            bytes: self.bytes,
        }
    }
}

/// Parses the message of a version.
///
/// # Errors
/// [`DocumentError::Field`].
pub fn parse_message(text: &str) -> Result<String, DocumentError> {
    let message = text.trim();
    let chars = message.chars().count();
    if chars > MESSAGE_CHARS_MAX {
        let message = format!("has at most {MESSAGE_CHARS_MAX} characters; this one has {chars}");
        return Err(DocumentError::Field { field: "message", message });
    }
    Ok(message.to_owned())
}

/// The author and the kind of a new version.
struct Save<'a> {
    org: OrgId,
    uid: &'a str,
    actor: Option<UserId>,
    message: String,
    restored_from: Option<u32>,
    now: Timestamp,
}

/// Stores a document as the newest version of a dashboard, and removes the oldest version if there
/// are more than [`DASHBOARD_VERSIONS_MAX`] and the change has room for it.
fn put_version(
    txn: &mut Txn<'_>,
    save: &Save<'_>,
    row: &DashboardRow,
    document: &DocumentRow,
    usage: &mut DashboardUsageRow,
) -> Result<(), DashboardError> {
    let key = (save.org, save.uid.to_owned());
    let mut history = read::<HistoryRow>(txn, &key)?.unwrap_or_default();
    let stored_bytes = u32::try_from(document.compressed.len()).unwrap_or(u32::MAX);
    let mut rows = OTHER_ROWS_MAX + compressed_rows(stored_bytes);
    while history.0.len() >= DASHBOARD_VERSIONS_MAX
        && let Some(oldest) = history.0.first()
    {
        rows += compressed_rows(oldest.stored_bytes);
        if rows > CHANGE_ROWS_MAX {
            break;
        }
        txn.remove::<DocumentRow>(&(save.org, key.1.clone(), oldest.version));
        usage.stored_bytes = usage.stored_bytes.saturating_sub(u64::from(oldest.stored_bytes));
        history.0.remove(0);
    }
    usage.stored_bytes += u64::from(stored_bytes);
    if usage.stored_bytes > DASHBOARDS_STORED_BYTES_MAX {
        return Err(DashboardError::TooLarge);
    }
    history.0.push(VersionEntry {
        version: row.version,
        saved_at: save.now,
        saved_by: save.actor,
        message: save.message.clone(),
        restored_from: save.restored_from,
        bytes: document.bytes,
        stored_bytes,
    });
    txn.put(&(save.org, key.1.clone(), row.version), document);
    txn.put(&key, &history);
    txn.put(&key, row);
    txn.put(&save.org, usage);
    Ok(())
}

fn usage_of(txn: &Txn<'_>, org: OrgId) -> Result<DashboardUsageRow, DashboardError> {
    // After the deletion of the organisation a row of it would never be removed.
    if read::<OrgRow>(txn, &org)?.is_none() {
        return Err(DashboardError::UnknownOrg);
    }
    Ok(read::<DashboardUsageRow>(txn, &org)?.unwrap_or_default())
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn check_expected(expected: ExpectedVersion, version: u32) -> Result<(), DashboardError> {
    match expected {
        ExpectedVersion::Exactly(other) if other != version => Err(DashboardError::Conflict(version)),
        _ => Ok(()),
    }
}

impl Identity {
    /// Creates a dashboard under the uid of its document, or under a random one. Blocks (commit).
    ///
    /// # Errors
    /// [`DashboardError`]; then nothing is changed.
    pub fn create_dashboard(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        write: DashboardWrite,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Dashboard, DashboardError> {
        let random = || BASE32_NOPAD.encode(&rng.bytes::<10>()).to_ascii_lowercase();
        let uid = write.packed.document().uid().map_or_else(random, str::to_owned);
        if self.provisioned_dashboards().get(&uid).is_some() {
            return Err(DashboardError::Provisioned(uid));
        }
        let dashboard = uid.clone();
        self.change(move |txn| {
            let mut usage = usage_of(txn, org)?;
            if read::<DashboardRow>(txn, &(org, uid.clone()))?.is_some() {
                return Err(DashboardError::Exists(uid));
            }
            if usage.dashboards >= DASHBOARDS_MAX {
                return Err(DashboardError::TooMany);
            }
            usage.dashboards += 1;
            let deleted = usage.deleted.iter().position(|(deleted, _)| *deleted == uid);
            let before = deleted.map_or(0, |at| usage.deleted.remove(at).1);
            let document = write.packed.document();
            let row = DashboardRow {
                title: document.title().to_owned(),
                folder: write.folder.unwrap_or_default(),
                tags: document.tags().to_vec(),
                version: before.saturating_add(1),
                created_at: now,
                created_by: actor,
                updated_at: now,
                updated_by: actor,
                panels: count(document.panels()),
                queries: count(document.queries()),
            };
            let save = Save { org, uid: &uid, actor, message: write.message, restored_from: None, now };
            put_version(txn, &save, &row, &write.packed.row, &mut usage)?;
            let event = Event::by_actor(actor, "dashboard.created").of(org).target(&uid);
            audit::record(txn, &event.detail(&row.title), now)?;
            Ok(row)
        })
        .map(|row| row.view(dashboard))
    }

    /// Stores a new version of a dashboard. Blocks (commit).
    ///
    /// # Errors
    /// [`DashboardError`]; then nothing is changed.
    #[expect(clippy::too_many_arguments, reason = "a dashboard is named by organisation and uid")]
    pub fn update_dashboard(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        uid: &str,
        expected: ExpectedVersion,
        write: DashboardWrite,
        now: Timestamp,
    ) -> Result<Dashboard, DashboardError> {
        self.save_dashboard(org, actor, uid, expected, write, None, now)
    }

    /// Stores the document of an older version as a new version. Blocks (commit).
    ///
    /// # Errors
    /// [`DashboardError`]; then nothing is changed.
    #[expect(clippy::too_many_arguments, reason = "a dashboard is named by organisation and uid")]
    pub fn restore_dashboard(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        uid: &str,
        version: u32,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<Dashboard, DashboardError> {
        self.require_stored(org, uid)?;
        let text = self.dashboard_text(org, uid, version)?.ok_or(DashboardError::NoVersion(version))?;
        let packed = document::DashboardDocument::parse(text)?.pack()?;
        let write = DashboardWrite { packed, folder: None, message: String::new() };
        self.save_dashboard(org, actor, uid, expected, write, Some(version), now)
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of its two callers")]
    fn save_dashboard(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        uid: &str,
        expected: ExpectedVersion,
        write: DashboardWrite,
        restored_from: Option<u32>,
        now: Timestamp,
    ) -> Result<Dashboard, DashboardError> {
        self.require_stored(org, uid)?;
        self.prune_versions(org, uid)?;
        let dashboard = uid.to_owned();
        let uid = uid.to_owned();
        let row = self.change(move |txn| {
            let mut usage = usage_of(txn, org)?;
            let mut row = read::<DashboardRow>(txn, &(org, uid.clone()))?.ok_or(DashboardError::NotFound)?;
            check_expected(expected, row.version)?;
            let document = write.packed.document();
            row.title = document.title().to_owned();
            row.tags = document.tags().to_vec();
            row.folder = write.folder.unwrap_or(row.folder);
            row.panels = count(document.panels());
            row.queries = count(document.queries());
            row.version = row.version.saturating_add(1);
            (row.updated_at, row.updated_by) = (now, actor);
            let save = Save { org, uid: &uid, actor, message: write.message, restored_from, now };
            put_version(txn, &save, &row, &write.packed.row, &mut usage)?;
            let (action, detail) = match restored_from {
                None => ("dashboard.updated", format!("version {}: {}", row.version, row.title)),
                Some(from) => ("dashboard.restored", format!("version {} from {from}", row.version)),
            };
            let event = Event::by_actor(actor, action).of(org).target(&uid).detail(&detail);
            audit::record(txn, &event, now)?;
            Ok::<_, DashboardError>(row)
        })?;
        self.prune_versions(org, &dashboard)?;
        Ok(row.view(dashboard))
    }

    /// Removes the versions beyond the newest [`DASHBOARD_VERSIONS_MAX`] that no earlier change had
    /// room to remove. Reads one row if there are none.
    fn prune_versions(&self, org: OrgId, uid: &str) -> Result<(), StoreError> {
        let key = (org, uid.to_owned());
        loop {
            let surplus = |history: &HistoryRow| history.0.len().saturating_sub(DASHBOARD_VERSIONS_MAX);
            if self.row::<HistoryRow>(&key)?.is_none_or(|history| surplus(&history) == 0) {
                return Ok(());
            }
            let key = key.clone();
            self.change(move |txn| {
                let Some(mut history) = read::<HistoryRow>(txn, &key)? else { return Ok(()) };
                if surplus(&history) == 0 {
                    return Ok(());
                }
                let oldest = history.0.remove(0);
                let mut usage = read::<DashboardUsageRow>(txn, &org)?.unwrap_or_default();
                usage.stored_bytes = usage.stored_bytes.saturating_sub(u64::from(oldest.stored_bytes));
                txn.remove::<DocumentRow>(&(org, key.1.clone(), oldest.version));
                txn.put(&key, &history);
                txn.put(&org, &usage);
                Ok::<_, StoreError>(())
            })?;
        }
    }

    /// Deletes a dashboard with all versions and public links. Blocks the calling thread (commits).
    ///
    /// # Errors
    /// [`DashboardError`]; then the dashboard stays.
    pub fn delete_dashboard(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        uid: &str,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<(), DashboardError> {
        self.require_stored(org, uid)?;
        let key = (org, uid.to_owned());
        let version = self.change(move |txn| {
            let mut usage = usage_of(txn, org)?;
            let uid = key.1.clone();
            let row = read::<DashboardRow>(txn, &key)?.ok_or(DashboardError::NotFound)?;
            check_expected(expected, row.version)?;
            let history = read::<HistoryRow>(txn, &key)?.unwrap_or_default();
            let documents = history.0.iter().map(|entry| (entry.version, entry.stored_bytes)).collect();
            txn.remove::<DashboardRow>(&key);
            txn.remove::<HistoryRow>(&key);
            txn.put(&(org, uid.clone(), row.version), &DashboardRemovalRow(documents));
            usage.dashboards = usage.dashboards.saturating_sub(1);
            if usage.deleted.len() >= DELETED_MAX {
                usage.deleted.remove(0);
            }
            usage.deleted.push((uid.clone(), row.version));
            txn.put(&org, &usage);
            let event = Event::by_actor(actor, "dashboard.deleted").of(org).target(&uid);
            audit::record(txn, &event.detail(&row.title), now)?;
            Ok::<_, DashboardError>(row.version)
        })?;
        // The dashboard is deleted. The next sweep removes links and documents if this fails.
        self.forget_links_of_dashboard(org, uid, version);
        let _ = self.remove_deleted_documents(&org);
        Ok(())
    }

    /// Refuses a change of a dashboard that is only provisioned.
    pub(super) fn require_stored(&self, org: OrgId, uid: &str) -> Result<(), DashboardError> {
        if self.row::<DashboardRow>(&(org, uid.to_owned()))?.is_some() {
            return Ok(());
        }
        match self.provisioned_dashboards().get(uid) {
            Some(_) => Err(DashboardError::Provisioned(uid.to_owned())),
            None => Err(DashboardError::NotFound),
        }
    }

    /// Returns a stored dashboard; `None` if the organisation has none with this uid.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboard(&self, org: OrgId, uid: &str) -> Result<Option<Dashboard>, StoreError> {
        let row = self.row::<DashboardRow>(&(org, uid.to_owned()))?;
        Ok(row.map(|row| row.view(uid.to_owned())))
    }

    /// Returns a stored dashboard and its document.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboard_with_text(
        &self,
        org: OrgId,
        uid: &str,
    ) -> Result<Option<(Dashboard, String)>, StoreError> {
        // Between the two reads the version may be replaced, and its document removed.
        for _ in 0..3 {
            let Some(dashboard) = self.dashboard(org, uid)? else { return Ok(None) };
            if let Some(text) = self.dashboard_text(org, uid, dashboard.version)? {
                return Ok(Some((dashboard, text)));
            }
        }
        Err(StoreError::Inconsistent("a dashboard has no document"))
    }

    /// Returns the document of one version; `None` if it is not stored.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboard_text(&self, org: OrgId, uid: &str, version: u32) -> Result<Option<String>, StoreError> {
        let row = self.row::<DocumentRow>(&(org, uid.to_owned(), version))?;
        row.map(|row| document::unpack(&row)).transpose()
    }

    /// Returns the stored versions of a dashboard, newest first; `None` without the dashboard.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboard_versions(
        &self,
        org: OrgId,
        uid: &str,
    ) -> Result<Option<Vec<DashboardVersion>>, StoreError> {
        let key = (org, uid.to_owned());
        if self.row::<DashboardRow>(&key)?.is_none() {
            return Ok(None);
        }
        let history = self.row::<HistoryRow>(&key)?.unwrap_or_default();
        let newest = history.0.into_iter().rev().take(DASHBOARD_VERSIONS_MAX);
        Ok(Some(newest.map(VersionEntry::view).collect()))
    }

    /// Returns the stored dashboards of an organisation in the order of their uids. Reads all rows,
    /// but no document.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboards(&self, org: OrgId) -> Result<Vec<Dashboard>, StoreError> {
        let rows = self.rows::<DashboardRow>(&org)?.into_iter();
        Ok(rows.map(|((_, uid), row)| row.view(uid)).collect())
    }
}
