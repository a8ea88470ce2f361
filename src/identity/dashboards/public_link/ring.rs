//! All public links in memory, indexed by id, by the hash of their secret and by dashboard.
//!
//! After every change a link is loaded again from the store, under the ring's lock, so that the
//! ring holds the later of two concurrent changes. A deleted link leaves the ring before its
//! deletion is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::model::{OrgId, OrgSlug, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::keys::api_key::{self, ApiKey, KeyUsage, LINK_SECRET};
use crate::identity::keys::embed_token::{EmbedGrant, KeyRestriction};
use crate::identity::keys::keyring::SharedDashboard;
use crate::identity::tables::dashboard::{DashboardRemovalRow, DashboardRow};
use crate::identity::tables::id::{KeyId, SecretHash};
use crate::identity::tables::key::{EmbedPolicy, EmbedSettings, IngestSettings, KeyScopes, ReadSettings};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::public_link::{PublicLinkRow, PublicLinkUsedRow};
use crate::identity::tables::store::StoreError;

use super::{DASHBOARD_LINKS_MAX, ORG_LINKS_MAX, PublicLink, PublicLinkError, PublicLinkRefusal};

/// The key of a link: organisation, uid of the dashboard, id.
pub type LinkKey = (OrgId, String, KeyId);

/// The links of one dashboard, oldest first.
type DashboardLinks = BTreeMap<(Timestamp, KeyId), Arc<PublicLink>>;

/// The public links of all organisations.
#[derive(Debug, Default)]
pub(in crate::identity) struct PublicLinks {
    ring: RwLock<LinkRing>,
    creating: Mutex<()>,
}

#[derive(Debug, Default)]
struct LinkRing {
    by_id: HashMap<KeyId, Arc<PublicLink>>,
    by_secret: HashMap<SecretHash, KeyId>,
    by_org: BTreeMap<OrgId, BTreeMap<String, DashboardLinks>>,
    /// Links whose last use waits for the next flush.
    used: Vec<Arc<PublicLink>>,
}

impl LinkRing {
    fn insert(&mut self, link: Arc<PublicLink>) {
        self.remove(link.key.id);
        self.by_secret.insert(link.secret, link.key.id);
        self.by_id.insert(link.key.id, Arc::clone(&link));
        let dashboards = self.by_org.entry(link.key.org).or_default();
        let links = dashboards.entry(link.dashboard.clone()).or_default();
        links.insert((link.key.created_at, link.key.id), link);
    }

    fn remove(&mut self, id: KeyId) {
        let Some(link) = self.by_id.remove(&id) else { return };
        self.by_secret.remove(&link.secret);
        let Some(dashboards) = self.by_org.get_mut(&link.key.org) else { return };
        if let Some(links) = dashboards.get_mut(&link.dashboard) {
            links.remove(&(link.key.created_at, id));
            if links.is_empty() {
                dashboards.remove(&link.dashboard);
            }
        }
    }
}

impl PublicLinks {
    fn read(&self) -> RwLockReadGuard<'_, LinkRing> {
        self.ring.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, LinkRing> {
        self.ring.write().ignore_poison()
    }

    /// Waits until no other link is being created.
    pub(super) fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.creating.lock().ignore_poison()
    }

    pub(super) fn check_room(&self, org: OrgId, uid: &str) -> Result<(), PublicLinkError> {
        let ring = self.read();
        let Some(dashboards) = ring.by_org.get(&org) else { return Ok(()) };
        if dashboards.get(uid).is_some_and(|links| links.len() >= DASHBOARD_LINKS_MAX) {
            let detail = format!("a dashboard has at most {DASHBOARD_LINKS_MAX} public links");
            return Err(PublicLinkError::TooMany(detail));
        }
        if dashboards.values().map(BTreeMap::len).sum::<usize>() >= ORG_LINKS_MAX {
            let detail = format!("an organisation has at most {ORG_LINKS_MAX} public links");
            return Err(PublicLinkError::TooMany(detail));
        }
        Ok(())
    }

    /// Removes a link from the ring.
    pub(super) fn remove(&self, id: KeyId) {
        self.write().remove(id);
    }

    /// Removes all links of an organisation from the ring.
    pub(in crate::identity) fn forget_org(&self, org: OrgId) {
        let mut ring = self.write();
        let all = ring.by_org.remove(&org).into_iter().flatten().flat_map(|(_, links)| links.into_keys());
        let all: Vec<KeyId> = all.map(|(_, id)| id).collect();
        all.into_iter().for_each(|id| ring.remove(id));
    }
}

pub(super) fn sealed_for(id: &KeyId) -> SealedFor<'_> {
    SealedFor { kind: "public_link", id: id.as_bytes() }
}

/// Returns the policy of a stored link: the dashboard and nothing else.
pub(super) fn policy_of(row: &PublicLinkRow) -> EmbedPolicy {
    EmbedPolicy {
        dashboard: Some(row.dashboard.clone()),
        max_range_s: row.max_range_s,
        max_lookback_s: row.max_lookback_s,
        min_step_s: row.min_step_s,
        ..EmbedPolicy::default()
    }
}

/// Compiles the matchers of a stored link.
fn restriction(id: KeyId, row: &PublicLinkRow) -> Option<KeyRestriction> {
    let compiled = KeyRestriction::compile(&policy_of(row));
    if let Err(error) = &compiled {
        tracing::error!(link.id = %id, %error, "a public link is refused");
    }
    compiled.ok()
}

fn link(
    (org, uid, id): LinkKey,
    slug: &OrgSlug,
    row: PublicLinkRow,
    restriction: Option<KeyRestriction>,
    usage: Arc<KeyUsage>,
) -> PublicLink {
    let policy = policy_of(&row);
    let embed = EmbedSettings {
        rate_limit_rps: row.rate_limit_rps,
        query_seconds_per_minute: Some(row.query_seconds_per_minute),
        origins: row.origins,
        policy,
        ..EmbedSettings::default()
    };
    let key = ApiKey {
        id,
        org,
        slug: slug.clone(),
        name: row.name,
        scopes: KeyScopes::default(),
        hint: String::new(),
        created_by: row.created_by,
        created_at: row.created_at,
        expires_at: row.expires_at,
        disabled: row.disabled,
        embed,
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
        tokens_valid_after: None,
        secret_kept: row.sealed.is_some(),
        usage,
    };
    PublicLink {
        key,
        dashboard: uid,
        dashboard_version: row.dashboard_version,
        secret: row.secret,
        sealed: row.sealed,
        restriction,
    }
}

impl Identity {
    /// Loads all public links into a new ring, which replaces the present one only if it is
    /// complete.
    pub(in crate::identity) fn load_public_links(&self) -> Result<(), StoreError> {
        // Compile before the ring is locked: every request with a link reads it.
        let ahead = self.rows::<PublicLinkRow>(&())?.into_iter();
        let compiled = |key: &LinkKey, row: &PublicLinkRow| (restriction(key.2, row), policy_of(row));
        let mut ahead: HashMap<_, _> = ahead.map(|(key, row)| (key.2, compiled(&key, &row))).collect();
        let mut ring = self.public_links.write();
        let slugs: HashMap<OrgId, OrgSlug> = self.orgs()?.into_iter().map(|org| (org.id, org.slug)).collect();
        let used: HashMap<LinkKey, PublicLinkUsedRow> =
            self.rows::<PublicLinkUsedRow>(&())?.into_iter().collect();
        let mut deleted: HashMap<(OrgId, String), u32> = HashMap::new();
        for ((org, uid, version), _) in self.rows::<DashboardRemovalRow>(&())? {
            let newest = deleted.entry((org, uid)).or_default();
            *newest = version.max(*newest);
        }
        let mut loaded = LinkRing::default();
        for (key, row) in self.rows::<PublicLinkRow>(&())? {
            let Some(slug) = slugs.get(&key.0) else {
                if self.is_being_removed(key.0) {
                    continue;
                }
                return Err(StoreError::Inconsistent("a public link of no organisation"));
            };
            // The removal of the links of a deleted dashboard was interrupted.
            let of_deleted = deleted.get(&(key.0, key.1.clone()));
            if of_deleted.is_some_and(|version| row.dashboard_version <= *version) {
                continue;
            }
            let known = ring.by_id.get(&key.2).map(|link| Arc::clone(&link.key.usage));
            let stored = || Arc::new(KeyUsage::stored(used.get(&key).map(|row| row.0)));
            let usage = known.unwrap_or_else(stored);
            let restriction = match ahead.remove(&key.2) {
                Some((compiled, policy)) if policy == policy_of(&row) => compiled,
                // Another change was committed in between.
                _ => restriction(key.2, &row),
            };
            loaded.insert(Arc::new(link(key, slug, row, restriction, usage)));
        }
        loaded.used = std::mem::take(&mut ring.used);
        *ring = loaded;
        Ok(())
    }

    /// Returns whether the dashboard of a stored link is deleted, and the removal of its links was
    /// interrupted. Such a link is never in the ring.
    fn is_removed_with_its_dashboard(
        &self,
        (org, uid, _): &LinkKey,
        row: &PublicLinkRow,
    ) -> Result<bool, StoreError> {
        let removals = self.rows::<DashboardRemovalRow>(&(*org, uid.clone()))?;
        Ok(removals.iter().any(|((.., version), _)| row.dashboard_version <= *version))
    }

    /// Updates the ring with the stored state of one link.
    pub(super) fn reload_public_link(&self, key: &LinkKey) -> Result<Option<Arc<PublicLink>>, StoreError> {
        // Compile before the ring is locked: every request with a link reads it.
        let ahead = self.row::<PublicLinkRow>(key)?.map(|row| (restriction(key.2, &row), policy_of(&row)));
        let mut ring = self.public_links.write();
        let Some(row) = self.row::<PublicLinkRow>(key)? else {
            ring.remove(key.2);
            return Ok(None);
        };
        if self.is_removed_with_its_dashboard(key, &row)? {
            ring.remove(key.2);
            return Ok(None);
        }
        // After the deletion of the organisation a link of it would stay in the ring.
        let Some(org) = self.row::<OrgRow>(&key.0)? else { return Ok(None) };
        let slug = OrgSlug::parse(&org.slug)
            .map_err(|_| StoreError::Inconsistent("an organisation's slug is none"))?;
        let usage = ring.by_id.get(&key.2).map(|link| Arc::clone(&link.key.usage));
        let usage = usage.unwrap_or_else(|| Arc::new(KeyUsage::stored(None)));
        let restriction = match ahead {
            Some((compiled, policy)) if policy == policy_of(&row) => compiled,
            // Another change was committed in between.
            _ => restriction(key.2, &row),
        };
        let link = Arc::new(link(key.clone(), &slug, row, restriction, usage));
        ring.insert(Arc::clone(&link));
        Ok(Some(link))
    }

    /// Removes the links of a deleted dashboard from the ring.
    pub(in crate::identity) fn forget_links_of_dashboard(&self, org: OrgId, uid: &str, version: u32) {
        let links = self.public_links(org, uid);
        let gone = links.iter().filter(|link| link.dashboard_version <= version);
        gone.for_each(|link| self.public_links.remove(link.key.id));
    }

    /// Ends the streams of the links of dashboards: a response that began with a link ends when the
    /// link's place in the ring has another value.
    pub(in crate::identity) fn renew_links_of(&self, is_affected: impl Fn(&str) -> bool) {
        let affected: Vec<LinkKey> = {
            let ring = self.public_links.read();
            let links = ring.by_id.values().filter(|link| is_affected(&link.dashboard));
            links.map(|link| (link.key.org, link.dashboard.clone(), link.key.id)).collect()
        };
        for key in affected {
            if let Err(error) = self.reload_public_link(&key) {
                tracing::error!(link.id = %key.2, %error, "a public link cannot be read");
                self.public_links.remove(key.2);
            }
        }
    }

    /// Returns the public links of a dashboard, oldest first. Does not access the disk.
    pub fn public_links(&self, org: OrgId, uid: &str) -> Vec<Arc<PublicLink>> {
        let ring = self.public_links.read();
        let links = ring.by_org.get(&org).and_then(|dashboards| dashboards.get(uid));
        links.into_iter().flat_map(|links| links.values().cloned()).collect()
    }

    /// Returns a public link; `None` also for a link of another organisation or dashboard. Does not
    /// access the disk.
    pub fn public_link(&self, (org, uid, id): &LinkKey) -> Option<Arc<PublicLink>> {
        let found = self.public_links.read().by_id.get(id).cloned();
        found.filter(|link| link.key.org == *org && link.dashboard == *uid)
    }

    /// Finds the public link with a secret. Records no use. Does not access the disk.
    ///
    /// # Errors
    /// [`PublicLinkRefusal`].
    pub fn find_public_link(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Arc<PublicLink>, PublicLinkRefusal> {
        let hash = api_key::secret_hash(LINK_SECRET, secret).ok_or(PublicLinkRefusal::Unknown)?;
        let found = {
            let ring = self.public_links.read();
            ring.by_secret.get(&hash).and_then(|id| ring.by_id.get(id)).cloned()
        };
        let link = found.ok_or(PublicLinkRefusal::Unknown)?;
        self.check_public_link(&link, now)?;
        Ok(link)
    }

    /// Returns the dashboard that a page may show with a public link. Records no use.
    ///
    /// # Errors
    /// [`PublicLinkRefusal`]; [`PublicLinkRefusal::Unknown`] also if the file of the dashboard was
    /// removed.
    pub fn shared_by_link(&self, secret: &str, now: Timestamp) -> Result<SharedDashboard, PublicLinkRefusal> {
        let link = self.find_public_link(secret, now)?;
        // If the row cannot be read, the requests of the page report the error.
        if matches!(self.has_dashboard(link.key.org, &link.dashboard), Ok(false)) {
            return Err(PublicLinkRefusal::Unknown);
        }
        Ok(SharedDashboard {
            slug: link.key.slug.clone(),
            uid: link.dashboard.clone(),
            origins: vec![link.key.embed.origins.clone()],
        })
    }

    /// Returns the access that a public link grants, and records its use. Does not access the disk.
    ///
    /// # Errors
    /// [`PublicLinkRefusal::Unknown`] if the stored policy is damaged.
    pub fn use_public_link(
        &self,
        link: &Arc<PublicLink>,
        now: Timestamp,
    ) -> Result<EmbedGrant, PublicLinkRefusal> {
        let grant = link.grant(now)?;
        if link.key.usage.record(now) {
            self.public_links.write().used.push(Arc::clone(link));
        }
        Ok(grant)
    }

    /// Checks that a link is as it was when a request found it, and still allowed. Does not access
    /// the disk.
    ///
    /// # Errors
    /// [`PublicLinkRefusal`]; [`PublicLinkRefusal::Changed`] after any change of the link.
    pub fn recheck_public_link(
        &self,
        link: &Arc<PublicLink>,
        now: Timestamp,
    ) -> Result<(), PublicLinkRefusal> {
        let current = self.public_links.read().by_id.get(&link.key.id).cloned();
        let current = current.ok_or(PublicLinkRefusal::Unknown)?;
        self.check_public_link(&current, now)?;
        match Arc::ptr_eq(&current, link) {
            true => Ok(()),
            false => Err(PublicLinkRefusal::Changed),
        }
    }

    fn check_public_link(&self, link: &PublicLink, now: Timestamp) -> Result<(), PublicLinkRefusal> {
        if !self.org_settings(link.key.org).public_links {
            return Err(PublicLinkRefusal::Off);
        }
        if link.key.disabled {
            return Err(PublicLinkRefusal::Disabled);
        }
        if link.key.is_refused(now) {
            return Err(PublicLinkRefusal::Expired);
        }
        Ok(())
    }

    /// Returns whether an organisation has a stored or provisioned dashboard with this uid.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_dashboard(&self, org: OrgId, uid: &str) -> Result<bool, StoreError> {
        let stored = self.row::<DashboardRow>(&(org, uid.to_owned()))?.is_some();
        Ok(stored || self.provisioned_dashboards().contains_key(uid))
    }

    /// Writes the times of last use of public links.
    pub(in crate::identity) fn flush_public_links(&self) -> Result<(), StoreError> {
        let used = std::mem::take(&mut self.public_links.write().used);
        let times: Vec<_> =
            used.iter().filter_map(|link| Some((link, link.key.usage.begin_flush()?))).collect();
        let row = |link: &PublicLink, at| {
            ((link.key.org, link.dashboard.clone(), link.key.id), PublicLinkUsedRow(at))
        };
        self.put_side(times.iter().map(|(link, at)| row(link, *at)).collect())?;
        times.iter().for_each(|(link, at)| link.key.usage.flushed(*at));
        Ok(())
    }
}
