//! The scrape configuration of an organisation that is set by the API.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::targets::wrong;
use crate::api::body::Json;
use crate::api::callers::{SessionCaller, org_not_found};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::entropy::Entropy;
use crate::identity::{
    Identity, Role, SCRAPE_TEXT_BYTES_MAX, ScrapeConfigChangeError, StoredScrapeConfig, UserId,
};
use crate::model::OrgId;
use crate::scrape::config::{ScrapeConfig, ScrapeFiles};
use crate::scrape::{ScrapeSource, ScrapeView, Scrapers};

/// The result of a reload of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeReloaded {
    /// The number of jobs.
    pub jobs: usize,
    /// Sentences about keys that have no effect.
    pub notices: Vec<String>,
}

/// Reads the file of `--scrape-config` again. An error is a sentence with file, line and column,
/// and the old configuration stays.
type ReloadFn = Arc<dyn Fn() -> Result<ScrapeReloaded, String> + Send + Sync>;

/// Reads the file of `--scrape-config` again; `None` if the server runs without it.
#[derive(Clone, Default)]
pub struct ScrapeReload(pub Option<ReloadFn>);

impl std::fmt::Debug for ScrapeReload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScrapeReload")
    }
}

/// The scraped targets, and the roles that may configure them.
#[derive(Clone, Debug)]
pub struct ScrapeRoom {
    /// The scraped targets.
    pub scrapers: Arc<Scrapers>,
    /// Whether administrators of organisations may set scrape configurations.
    pub org_admins: bool,
    /// Reads the file of `--scrape-config` again.
    pub reload: ScrapeReload,
}

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    const PATH: &str = "/orgs/{slug}/scrape-config";
    Routes::new()
        .get(PATH, Auth::ScrapeAdmin, "Get the scrape configuration of an organisation", show)
        .put(PATH, Auth::ScrapeAdmin, "Set the scrape configuration of an organisation", replace)
        .delete(PATH, Auth::ScrapeAdmin, "Remove the scrape configuration of an organisation", remove)
}

/// The text that stands for a secret in responses.
const HIDDEN: &str = "<secret>";

/// A configuration as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScrapeConfigBody {
    text: String,
}

/// A caller who may configure the scraping of the organisation in the path. It is checked before
/// the body is read.
struct ScrapeAdmin {
    caller: SessionCaller,
    slug: String,
    org: OrgId,
}

/// Returns the organisation `slug` if the caller may configure its scraping.
fn configurable_org(caller: &SessionCaller, slug: &str, deps: &OrgDeps) -> ApiResult<OrgId> {
    match caller.require_instance_admin() {
        Ok(()) => Ok(deps.identity.org_by_slug(slug)?.ok_or_else(org_not_found)?.id),
        Err(refused) if !deps.scraping.org_admins => Err(refused),
        Err(_) => Ok(caller.membership(slug, Role::Admin)?.org.id),
    }
}

impl ScrapeAdmin {
    /// Runs a change on the account lane, which may wait for disk syncs. The caller is checked
    /// again just before, because the body may have arrived long after the first check.
    async fn change<T: Send + 'static>(
        self,
        deps: OrgDeps,
        change: impl FnOnce(&Identity, OrgId, UserId) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let lanes = deps.lanes.clone();
        let work = move || {
            let org = configurable_org(&self.caller, &self.slug, &deps)?;
            change(&deps.identity, org, self.caller.user())
        };
        lanes.run(Lane::Account, work).await?
    }
}

impl FromRequestParts<OrgDeps> for ScrapeAdmin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, deps: &OrgDeps) -> ApiResult<ScrapeAdmin> {
        let caller = SessionCaller::from_request_parts(parts, &()).await?;
        let PathOf(slug) = PathOf::<String>::from_request_parts(parts, &()).await?;
        let org = configurable_org(&caller, &slug, deps)?;
        Ok(ScrapeAdmin { caller, slug, org })
    }
}

/// Returns the text of a configuration without its secrets. `None` if a secret cannot be hidden,
/// because the text writes it in several lines or with escapes.
fn without_secrets(text: &str, config: &ScrapeConfig) -> Option<String> {
    let secrets = config.secrets();
    let mut hidden = text.to_owned();
    for secret in &secrets {
        for line in secret.lines().filter(|line| !line.is_empty()) {
            hidden = hidden.replace(line, HIDDEN);
        }
    }
    let shown = ScrapeConfig::parse(&hidden, &ScrapeFiles::Refused).ok();
    let is_hidden = |shown: ScrapeConfig| {
        shown.secrets().iter().all(|shown| !secrets.contains(shown) || shown.is_empty())
    };
    (secrets.is_empty() || shown.is_some_and(is_hidden)).then_some(hidden)
}

/// Returns the response about a configuration. Parses the text twice, so it runs on a lane.
fn config_json(stored: &StoredScrapeConfig, view: &ScrapeView) -> Value {
    let parsed = stored.text.as_ref().map(|text| ScrapeConfig::parse(text, &ScrapeFiles::Refused));
    let problem = match &parsed {
        None => Some("the configuration was sealed with another master key; set it again".to_owned()),
        Some(Err(error)) => Some(error.to_string()),
        Some(Ok(_)) => None,
    };
    let config = parsed.and_then(Result::ok);
    let text = stored.text.as_ref().zip(config.as_ref());
    let jobs = view.pools.iter().filter(|pool| pool.source == ScrapeSource::Api).map(|pool| {
        let discoveries = pool.discoveries.iter().map(|discovery| {
            json!({ "title": discovery.title, "targets": discovery.targets, "error": discovery.error })
        });
        json!({
            "name": &*pool.targets.job.name,
            "targets": pool.targets.active.len(),
            "dropped": pool.targets.dropped_count,
            "invalid": pool.targets.invalid_count,
            "duplicates": pool.targets.duplicate_count,
            "failure": pool.targets.failure,
            "discoveries": discoveries.collect::<Vec<_>>(),
        })
    });
    json!({
        "text": text.and_then(|(text, config)| without_secrets(text, config)),
        "version": stored.version,
        "updated_at": stored.updated_at.to_rfc3339(),
        "problem": problem,
        "notices": config.map(|config| config.notices).unwrap_or_default(),
        "jobs": jobs.collect::<Vec<_>>(),
    })
}

async fn show(State(deps): State<OrgDeps>, ScrapeAdmin { org, .. }: ScrapeAdmin) -> ApiResult<Json<Value>> {
    let scrapers = Arc::clone(&deps.scraping.scrapers);
    let read = move |identity: &Identity| {
        let stored = identity.scrape_config(org)?.ok_or(ScrapeConfigChangeError::NotFound)?;
        Ok(config_json(&stored, &scrapers.view(org)))
    };
    Ok(Json(deps.read(org, read).await?))
}

async fn replace(
    State(deps): State<OrgDeps>,
    admin: ScrapeAdmin,
    Json(body): Json<ScrapeConfigBody>,
) -> ApiResult<Json<Value>> {
    if body.text.len() > SCRAPE_TEXT_BYTES_MAX {
        return Err(ScrapeConfigChangeError::TooLarge.into());
    }
    let now = deps.clock.now();
    let scrapers = Arc::clone(&deps.scraping.scrapers);
    let change = move |identity: &Identity, org: OrgId, user: UserId| {
        let config = ScrapeConfig::parse(&body.text, &ScrapeFiles::Refused)
            .or_else(|error| wrong("text", error.to_string()))?;
        if config.secrets().iter().any(|secret| secret == HIDDEN) {
            return wrong("text", format!("replace {HIDDEN} by the secret, which is never returned"));
        }
        let rng = &mut Entropy::system();
        let stored = identity.set_scrape_config(Some(user), org, &body.text, now, rng)?;
        apply(&scrapers, org, Arc::new(config), stored.version);
        Ok(config_json(&stored, &scrapers.view(org)))
    };
    Ok(Json(admin.change(deps, change).await?))
}

async fn remove(State(deps): State<OrgDeps>, admin: ScrapeAdmin) -> ApiResult<StatusCode> {
    let now = deps.clock.now();
    let scrapers = Arc::clone(&deps.scraping.scrapers);
    let change = move |identity: &Identity, org: OrgId, user: UserId| {
        identity.remove_scrape_config(Some(user), org, now)?;
        scrapers.remove(org, ScrapeSource::Api);
        Ok(())
    };
    admin.change(deps, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn apply(scrapers: &Scrapers, org: OrgId, config: Arc<ScrapeConfig>, version: u32) {
    if let Err(error) = scrapers.configure((org, ScrapeSource::Api), config, version, Entropy::system()) {
        tracing::error!(org = org.0, "scraping does not start: {error}");
    }
}

/// Runs the stored configurations, and ends the targets of removed organisations. To be
/// called at the start, and then from time to time.
pub fn reconcile(identity: &Identity, scrapers: &Scrapers) {
    let (stored, orgs) = match (identity.scrape_versions(), identity.orgs()) {
        (Ok(stored), Ok(orgs)) => (stored, orgs),
        (Err(error), _) | (_, Err(error)) => {
            return tracing::warn!("scrape configurations cannot be read: {error}");
        }
    };
    for (org, source, _) in scrapers.configured() {
        if !orgs.iter().any(|known| known.id == org) {
            scrapers.forget(org);
        } else if source == ScrapeSource::Api && !stored.iter().any(|(known, _)| *known == org) {
            scrapers.remove(org, source);
        }
    }
    let running = scrapers.configured();
    for (org, version) in stored {
        let is_running = running.contains(&(org, ScrapeSource::Api, version));
        if !is_running && orgs.iter().any(|known| known.id == org) {
            start_stored(identity, scrapers, org);
        }
    }
}

fn start_stored(identity: &Identity, scrapers: &Scrapers, org: OrgId) {
    let stored = match identity.scrape_config(org) {
        Ok(Some(stored)) => stored,
        Ok(None) => return,
        Err(error) => return tracing::warn!(org = org.0, "the scrape configuration cannot be read: {error}"),
    };
    let Some(text) = &stored.text else { return };
    match ScrapeConfig::parse(text, &ScrapeFiles::Refused) {
        Ok(config) => apply(scrapers, org, Arc::new(config), stored.version),
        Err(error) => tracing::warn!(org = org.0, "the scrape configuration is wrong: {error}"),
    }
}
