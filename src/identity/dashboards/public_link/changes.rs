//! Creating, changing and deleting public links.

use std::sync::Arc;

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::keys::api_key::{self, FieldError, FieldErrors, LINK_SECRET};
use crate::identity::keys::policy_matcher::PatternLimits;
use crate::identity::tables::dashboard::DashboardRow;
use crate::identity::tables::id::{KeyId, Secret, UserId};
use crate::identity::tables::name;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::public_link::{PublicLinkRow, PublicLinkUsedRow};
use crate::identity::tables::store::{StoreError, read};

use super::ring::{LinkKey, policy_of, sealed_for};
use super::{NewPublicLink, PublicLink, PublicLinkChange, PublicLinkError};

/// Maximum size of the names and values of a link's variables together, bytes. A change of the
/// store has room for three times as much.
const VARIABLES_BYTES_MAX: usize = 64 * 1_024;
/// Number of links that one change removes, each of two rows.
const LINKS_A_CHANGE: usize = 20;

const NO_DASHBOARD: PublicLinkError = PublicLinkError::NotFound("this organisation has no such dashboard");
const NO_LINK: PublicLinkError = PublicLinkError::NotFound("this dashboard has no such public link");

impl Identity {
    /// Creates a public link of a stored or provisioned dashboard. Blocks (commit).
    ///
    /// # Errors
    /// [`PublicLinkError`]; then nothing is changed.
    pub fn create_public_link(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        new: NewPublicLink,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Arc<PublicLink>, PublicLinkError> {
        let id = KeyId::random(rng);
        let secret = api_key::random_secret(LINK_SECRET, id, rng);
        let mut row = PublicLinkRow {
            name: name::parse(&new.name)?,
            secret: secret.hash(),
            sealed: Some(self.sealing.seal(sealed_for(&id), secret.expose().as_bytes(), rng)),
            created_by: actor,
            created_at: now,
            expires_at: new.expires_at,
            disabled: false,
            dashboard_version: 0,
            dashboard: new.dashboard,
            max_range_s: new.max_range_s,
            max_lookback_s: new.max_lookback_s,
            min_step_s: new.min_step_s,
            origins: new.origins,
            rate_limit_rps: new.rate_limit_rps,
            query_seconds_per_minute: new.query_seconds_per_minute,
        };
        validate(&row, now)?;
        let uid = row.dashboard.uid.clone();
        let provisioned = self.provisioned_dashboards().contains_key(&uid);
        // Held until the link is in the ring, so that concurrent requests do not exceed the limits.
        let _creating = self.public_links.one_at_a_time();
        self.public_links.check_room(org, &uid)?;
        let key: LinkKey = (org, uid, id);
        let stored = key.clone();
        self.change(move |txn| {
            let settings = read::<OrgRow>(txn, &org)?.ok_or(NO_DASHBOARD)?.settings;
            if !settings.public_links {
                return Err(PublicLinkError::Off);
            }
            row.dashboard_version = match read::<DashboardRow>(txn, &(org, stored.1.clone()))? {
                Some(dashboard) => dashboard.version,
                None if provisioned => 0,
                None => return Err(NO_DASHBOARD),
            };
            txn.put(&stored, &row);
            audit::record(txn, &event(actor, "public_link.created", &stored), now)?;
            Ok(())
        })?;
        self.reload_public_link(&key)?.ok_or(NO_DASHBOARD)
    }

    /// Changes a public link. Blocks (commit).
    ///
    /// # Errors
    /// [`PublicLinkError`]; then nothing is changed. [`PublicLinkError::Off`] if a link is enabled
    /// while the organisation does not allow any.
    pub fn change_public_link(
        &self,
        key: &LinkKey,
        actor: Option<UserId>,
        change: PublicLinkChange,
        now: Timestamp,
    ) -> Result<Arc<PublicLink>, PublicLinkError> {
        if self.public_link(key).is_none() {
            return Err(NO_LINK);
        }
        let stored = key.clone();
        self.change(move |txn| {
            let before = read::<PublicLinkRow>(txn, &stored)?.ok_or(NO_LINK)?;
            let settings = read::<OrgRow>(txn, &stored.0)?.ok_or(NO_LINK)?.settings;
            if change.disabled == Some(false) && !settings.public_links {
                return Err(PublicLinkError::Off);
            }
            let after = changed(before.clone(), change, now)?;
            let differences = differences(&before, &after).join(" ");
            txn.put(&stored, &after);
            let event = event(actor, "public_link.updated", &stored);
            audit::record(txn, &event.detail(&format!("{} {differences}", stored.1)), now)?;
            Ok(())
        })?;
        self.reload_public_link(key)?.ok_or(NO_LINK)
    }

    /// Deletes a public link; from then on it is refused. Blocks (commit).
    ///
    /// # Errors
    /// [`PublicLinkError`]. After a [`PublicLinkError::Store`] the link is still refused until the
    /// next start.
    pub fn delete_public_link(
        &self,
        key: &LinkKey,
        actor: Option<UserId>,
        now: Timestamp,
    ) -> Result<(), PublicLinkError> {
        if self.public_link(key).is_none() {
            return Err(NO_LINK);
        }
        self.public_links.remove(key.2);
        let stored = key.clone();
        self.change(move |txn| {
            txn.remove::<PublicLinkRow>(&stored);
            txn.remove::<PublicLinkUsedRow>(&stored);
            audit::record(txn, &event(actor, "public_link.deleted", &stored), now)?;
            Ok::<_, PublicLinkError>(())
        })?;
        // A concurrent change of the same link may have inserted it again.
        self.reload_public_link(key)?;
        Ok(())
    }

    /// Deletes all public links of a dashboard. Blocks (a commit for each).
    ///
    /// # Errors
    /// [`PublicLinkError::Store`]; then some links may remain.
    pub fn delete_public_links(
        &self,
        org: OrgId,
        uid: &str,
        actor: Option<UserId>,
        now: Timestamp,
    ) -> Result<(), PublicLinkError> {
        for link in self.public_links(org, uid) {
            match self.delete_public_link(&(org, uid.to_owned(), link.key.id), actor, now) {
                // Another member may delete links at the same time.
                Ok(()) | Err(PublicLinkError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the links of a deleted dashboard whose last version was `version`. Blocks (commits).
    pub(in crate::identity) fn remove_links_of_dashboard(
        &self,
        org: OrgId,
        uid: &str,
        version: u32,
    ) -> Result<(), StoreError> {
        let rows = self.rows::<PublicLinkRow>(&(org, uid.to_owned()))?;
        let gone = rows.into_iter().filter(|(_, row)| row.dashboard_version <= version);
        self.remove_public_links(&gone.map(|(key, _)| key).collect::<Vec<_>>())
    }

    /// Removes the links of a deleted organisation. Blocks (commits).
    pub(in crate::identity) fn remove_links_of_org(&self, org: OrgId) -> Result<(), StoreError> {
        let rows = self.rows::<PublicLinkRow>(&org)?;
        self.remove_public_links(&rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    }

    fn remove_public_links(&self, links: &[LinkKey]) -> Result<(), StoreError> {
        for some in links.chunks(LINKS_A_CHANGE) {
            let rows = some.to_vec();
            self.change(move |txn| {
                for key in &rows {
                    txn.remove::<PublicLinkRow>(key);
                    txn.remove::<PublicLinkUsedRow>(key);
                }
                Ok::<_, StoreError>(())
            })?;
            some.iter().for_each(|(.., id)| self.public_links.remove(*id));
        }
        Ok(())
    }

    /// Returns the secret of a link; `None` if it was lost with the master key.
    pub fn public_link_secret(&self, link: &PublicLink) -> Option<Secret> {
        let opened = self.sealing.open(sealed_for(&link.key.id), link.sealed.as_deref()?);
        match opened.map(String::from_utf8) {
            Ok(Ok(text)) => Some(Secret::new(text)),
            Ok(Err(_)) | Err(_) => {
                tracing::error!(link.id = %link.key.id, "the secret of a public link cannot be opened");
                None
            }
        }
    }

    /// Removes the sealed secrets after the loss of their master key: the links still work, but
    /// their addresses are no longer known. Returns their number. Blocks (commits).
    pub(in crate::identity) fn drop_link_secrets(&self) -> Result<usize, StoreError> {
        let rows = self.rows::<PublicLinkRow>(&())?;
        let sealed: Vec<LinkKey> =
            rows.into_iter().filter(|(_, row)| row.sealed.is_some()).map(|(key, _)| key).collect();
        for key in &sealed {
            let stored = key.clone();
            self.change(move |txn| {
                if let Some(row) = read::<PublicLinkRow>(txn, &stored)? {
                    txn.put(&stored, &PublicLinkRow { sealed: None, ..row });
                }
                Ok::<_, StoreError>(())
            })?;
            self.reload_public_link(key)?;
        }
        Ok(sealed.len())
    }
}

fn event(actor: Option<UserId>, action: &'static str, (org, uid, id): &LinkKey) -> Event {
    Event::by_actor(actor, action).of(*org).target(&id.to_string()).detail(uid)
}

/// Returns the API names of the settings that differ, without their values.
fn differences(before: &PublicLinkRow, after: &PublicLinkRow) -> Vec<&'static str> {
    let (one, other) = (&before.dashboard, &after.dashboard);
    let all = [
        ("name", before.name != after.name),
        ("locked", one.locked != other.locked),
        ("open", one.open != other.open),
        ("max_range_s", before.max_range_s != after.max_range_s),
        ("max_lookback_s", before.max_lookback_s != after.max_lookback_s),
        ("min_step_s", before.min_step_s != after.min_step_s),
        ("origins", before.origins != after.origins),
        ("rate_limit_rps", before.rate_limit_rps != after.rate_limit_rps),
        ("query_seconds_per_minute", before.query_seconds_per_minute != after.query_seconds_per_minute),
        ("expires_at", before.expires_at != after.expires_at),
        ("disabled", before.disabled != after.disabled),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Applies a change to a row and validates the result as a whole.
fn changed(
    mut row: PublicLinkRow,
    change: PublicLinkChange,
    now: Timestamp,
) -> Result<PublicLinkRow, PublicLinkError> {
    // A stored name that today's rules refuse stays while another field changes.
    row.name = change.name.map_or(Ok(row.name), |text| name::parse(&text))?;
    // An expiry in the past ends the streams, too.
    let checked_at = if change.expires_at.is_some() { now } else { Timestamp::MIN };
    row.dashboard.locked = change.locked.unwrap_or(row.dashboard.locked);
    row.dashboard.open = change.open.unwrap_or(row.dashboard.open);
    row.max_range_s = change.max_range_s.unwrap_or(row.max_range_s);
    row.max_lookback_s = change.max_lookback_s.unwrap_or(row.max_lookback_s);
    row.min_step_s = change.min_step_s.unwrap_or(row.min_step_s);
    row.origins = change.origins.unwrap_or(row.origins);
    row.rate_limit_rps = change.rate_limit_rps.unwrap_or(row.rate_limit_rps);
    row.query_seconds_per_minute = change.query_seconds_per_minute.unwrap_or(row.query_seconds_per_minute);
    row.expires_at = change.expires_at.unwrap_or(row.expires_at);
    row.disabled = change.disabled.unwrap_or(row.disabled);
    validate(&row, checked_at)?;
    Ok(row)
}

/// Validates a new or changed link as a whole. Compiles the matchers of its locked variables.
fn validate(row: &PublicLinkRow, now: Timestamp) -> Result<(), PublicLinkError> {
    let mut found = FieldErrors::default();
    found.require(row.expires_at.is_none_or(|at| at > now), "expires_at", "must be in the future");
    found.within(&row.rate_limit_rps, 1..=10_000, "rate_limit_rps");
    found.within(&row.query_seconds_per_minute, 1..=3_600, "query_seconds_per_minute");
    found.require_origins(&row.origins, "origins");
    let open = row.dashboard.open.iter().map(|(name, values)| (name, values.as_ref()));
    let locked = row.dashboard.locked.iter().map(|(name, locked)| (name, Some(&locked.values)));
    let bytes: usize = open
        .chain(locked)
        .map(|(name, values)| name.len() + values.into_iter().flatten().map(String::len).sum::<usize>())
        .sum();
    if bytes > VARIABLES_BYTES_MAX {
        let message = format!("the variables have at most {VARIABLES_BYTES_MAX} bytes together");
        found.require(false, "locked", message);
    } else {
        for message in api_key::policy_errors(&policy_of(row), PatternLimits::KEY) {
            let field = if message.contains("open") { "open" } else { "locked" };
            found.require(false, field, message);
        }
    }
    let errors: Vec<FieldError> = found.into_errors();
    if errors.is_empty() { Ok(()) } else { Err(PublicLinkError::Validation(errors)) }
}
