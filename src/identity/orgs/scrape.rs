//! The scrape configuration of an organisation that was set by the API, and the targets that are
//! remembered for the next start.

use std::sync::Arc;

use data_encoding::BASE64;

use crate::entropy::Entropy;
use crate::kv::{ChangeError, CommitFailure, Record as _, RowError};
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::compressed::{packed, unpacked};
use crate::identity::tables::id::UserId;
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::scrape::ScrapeRow;
use crate::identity::tables::store::{StoreError, read};

/// The most bytes of a scrape configuration that is set by the API, inclusive.
pub const SCRAPE_TEXT_BYTES_MAX: usize = 1 << 20;

/// The most bytes of the remembered targets as JSON, inclusive.
const TARGETS_BYTES_MAX: usize = 32 << 20;
/// The prefix of remembered targets that are compressed, then in base64. No JSON text begins so.
const PACKED_PREFIX: &str = "z:";

/// A stored scrape configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredScrapeConfig {
    /// The YAML text, which may contain secrets; `None` if it cannot be unsealed with this master
    /// key.
    pub text: Option<String>,
    /// Increases with each change; never 0.
    pub version: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

impl std::fmt::Debug for StoredScrapeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredScrapeConfig").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Errors of changing a scrape configuration.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeConfigChangeError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// `not_found`.
    #[error("the organisation has no scrape configuration of its own")]
    NotFound,
    /// 413 `body_too_large`.
    #[error("a scrape configuration has at most {SCRAPE_TEXT_BYTES_MAX} bytes")]
    TooLarge,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Identity {
    /// Returns the scrape configuration of an organisation.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scrape_config(&self, org: OrgId) -> Result<Option<StoredScrapeConfig>, StoreError> {
        Ok(self.row::<ScrapeRow>(&org)?.and_then(|row| self.open_scrape(org, &row)))
    }

    /// Returns the versions of the scrape configurations of all organisations.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scrape_versions(&self) -> Result<Vec<(OrgId, u32)>, StoreError> {
        let rows = self.rows::<ScrapeRow>(&())?.into_iter();
        Ok(rows.filter(|(_, row)| row.sealed_text.is_some()).map(|(org, row)| (org, row.version)).collect())
    }

    fn open_scrape(&self, org: OrgId, row: &ScrapeRow) -> Option<StoredScrapeConfig> {
        let sealed = row.sealed_text.as_ref()?;
        let id = org.0.to_be_bytes();
        let text = self.sealing.open(SealedFor { kind: "scrape", id: &id }, sealed).ok();
        let text = text.and_then(|text| unpacked(text, SCRAPE_TEXT_BYTES_MAX));
        Some(StoredScrapeConfig { text, version: row.version, updated_at: row.updated_at })
    }

    /// Sets the scrape configuration of an organisation. The caller must check the text, and that
    /// `actor` may set it. Blocks (commit).
    ///
    /// # Errors
    /// [`ScrapeConfigChangeError`]; then nothing is changed.
    pub fn set_scrape_config(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        text: &str,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<StoredScrapeConfig, ScrapeConfigChangeError> {
        if text.len() > SCRAPE_TEXT_BYTES_MAX {
            return Err(ScrapeConfigChangeError::TooLarge);
        }
        let id = org.0.to_be_bytes();
        let packed = packed(text).map_err(|_| ScrapeConfigChangeError::TooLarge)?;
        let sealed = self.sealing.seal(SealedFor { kind: "scrape", id: &id }, &packed, rng);
        let version = self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(ScrapeConfigChangeError::UnknownOrg)?;
            let before = read::<ScrapeRow>(txn, &org)?.unwrap_or_default();
            let row = ScrapeRow {
                sealed_text: Some(sealed),
                version: before.version.wrapping_add(1).max(1),
                updated_at: now,
                updated_by: actor,
                targets: before.targets,
            };
            txn.put(&org, &row);
            audit::record(txn, &Event::by_actor(actor, "scrape.changed").of(org), now)?;
            Ok::<_, ScrapeConfigChangeError>(row.version)
        })?;
        Ok(StoredScrapeConfig { text: Some(text.to_owned()), version, updated_at: now })
    }

    /// Removes the scrape configuration of an organisation. Blocks (commit).
    ///
    /// # Errors
    /// [`ScrapeConfigChangeError`]; then nothing is changed.
    pub fn remove_scrape_config(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        now: Timestamp,
    ) -> Result<(), ScrapeConfigChangeError> {
        self.change(move |txn| {
            let row = read::<ScrapeRow>(txn, &org)?.filter(|row| row.sealed_text.is_some());
            let row = row.ok_or(ScrapeConfigChangeError::NotFound)?;
            txn.put(&org, &ScrapeRow { sealed_text: None, updated_at: now, updated_by: actor, ..row });
            audit::record(txn, &Event::by_actor(actor, "scrape.removed").of(org), now)?;
            Ok::<_, ScrapeConfigChangeError>(())
        })
    }

    /// Returns the labels of the targets that were scraped last, as the JSON text that was stored;
    /// empty if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scraped_targets(&self, org: OrgId) -> Result<String, StoreError> {
        let stored = self.row::<ScrapeRow>(&org)?.map(|row| row.targets).unwrap_or_default();
        let Some(encoded) = stored.strip_prefix(PACKED_PREFIX) else { return Ok(stored) };
        let packed = BASE64.decode(encoded.as_bytes()).ok();
        let damaged = StoreError::Inconsistent("the remembered targets of an organisation are damaged");
        packed.and_then(|packed| unpacked(packed, TARGETS_BYTES_MAX)).ok_or(damaged)
    }

    /// Stores the labels of the targets of an organisation as JSON. Does nothing if the
    /// organisation no longer exists. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; then nothing is changed.
    pub fn set_scraped_targets(&self, org: OrgId, mut targets: String) -> Result<(), StoreError> {
        if targets.len() > TARGETS_BYTES_MAX {
            let source = RowError::ValueTooLong { bytes: targets.len(), allowed: TARGETS_BYTES_MAX };
            let too_long = ChangeError::Row { table: ScrapeRow::TABLE, source };
            return Err(CommitFailure::Change(Arc::new(too_long)).into());
        }
        if let Ok(packed) = packed(&targets)
            && packed.len() < targets.len()
        {
            targets = format!("{PACKED_PREFIX}{}", BASE64.encode(&packed));
        }
        self.change(move |txn| {
            if read::<OrgRow>(txn, &org)?.is_some() {
                let row = read::<ScrapeRow>(txn, &org)?.unwrap_or_default();
                txn.put(&org, &ScrapeRow { targets, ..row });
            }
            Ok::<_, StoreError>(())
        })
    }
}
