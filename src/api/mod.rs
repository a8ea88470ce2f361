//! The only room that knows HTTP: routes, callers, limits, JSON.
//!
//! Every route group has its own small `Deps`; there is no application-wide state. A group is a
//! function `routes() -> Routes<Deps>` beside its handlers. [`table`] returns all groups in the
//! order of the specification.

pub mod access;
pub mod admin;
pub mod agent;
mod aliases;
pub mod auth;
pub mod body;
pub mod callers;
mod cookies;
mod cors;
mod csrf;
pub mod edge;
pub mod embed_use;
pub mod encoding;
pub mod error;
mod guard;
pub mod health;
pub mod host;
pub mod lanes;
pub mod layers;
pub mod limits;
pub mod listing;
pub mod openapi;
pub mod orgs;
pub mod own_metrics;
pub mod pages;
pub mod params;
pub mod prefix;
pub mod prom_json;
mod request_id;
pub mod router;
pub mod routes;
mod security_headers;
pub mod standby;
pub mod starting;
pub mod tls;
pub mod views;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tower::ServiceExt as _;

use admin::AdminDeps;
use auth::AuthDeps;
use body::{BodyBytes, BodyDeadlines, Drains};
use callers::Callers;
use cookies::Cookies;
use csrf::CookieCsrf;
use embed_use::EmbedUses;
use health::{Check, HealthDeps, StandbyNote};
use host::{AllowedHosts, LocalRequests, Network, TrustedProxies};
use lanes::Lanes;
use layers::App;
use limits::{Limits, LimitsOptions};
use orgs::OrgDeps;
use orgs::dashboards::viewer::ViewerDeps;
use orgs::delete_series::DeleteDeps;
use orgs::demo_data::DemoDeps;
use orgs::notifications::AlertApiDeps;
use orgs::push::PushDeps;
use orgs::query::engines::Engines;
use orgs::query::{QueriedMetrics, ReadDeps, ReadOptions};
use orgs::scrape::ScrapeRoom;
use orgs::scrape_targets::ScrapeViewDeps;
use orgs::write::WriteDeps;
use own_metrics::{Counters, OwnMetrics, Slugs};
use pages::shared::{SharedPages, is_shared};
use prefix::Prefix;
use router::ResponseFuture;
use routes::Routes;

use crate::clock::{Clock, Stopwatch};
use crate::forward::edge::Forwarders;
use crate::identity::{EmbedSettings, Identity};
use crate::ingest;
use crate::model::{EgressRules, OrgId, PatternCache, Timestamp};
use crate::notify::edge::NotifyHub;
use crate::outbound::{Egress, MailQueue};
use crate::promql::syntax::ExpressionCache;
use crate::promql::{MemoryPool, RangeCache};
use crate::rules::RuleEngine;
use crate::tsdb::Tsdb;
use crate::ui::Ui;

/// The rooms that the handlers use.
#[derive(Clone)]
pub struct Rooms {
    /// Accounts, organisations and credentials.
    pub identity: Arc<Identity>,
    /// The store of samples.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools for work on accounts and samples.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The queue of mails, which are sent after the response.
    pub mail: Arc<MailQueue>,
    /// The checks of `/readyz` in addition to those of the store and the mailer: `accounts`,
    /// `session_flush`.
    pub checks: Vec<(&'static str, Check)>,
    /// The counters of the edge, which the accept loop updates as well.
    pub counters: Arc<Counters>,
    /// The web UI, which serves every path that is neither a route nor below the API.
    pub pages: Option<Router>,
    /// The web UI with the page of public links and framed dashboards.
    pub shared: Option<Ui>,
    /// The running forwarding targets.
    pub forwarders: Arc<Forwarders>,
    /// The evaluation of rules.
    pub rules: Arc<RuleEngine>,
    /// The notifiers of alerts.
    pub notify: Arc<NotifyHub>,
    /// The scraped targets, and the roles that may configure them.
    pub scraping: ScrapeRoom,
}

/// The settings of the edge (docs/specification.md E).
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The URL that links begin with, without a slash at the end: `http://127.0.0.1:8095`.
    pub public_url: String,
    /// Further host names in addition to that of the public URL, `localhost`, `*.localhost` and IP
    /// addresses.
    pub allowed_hosts: Vec<String>,
    /// The origins that may send cookies across sites.
    pub trusted_origins: Vec<String>,
    /// The networks of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Whether cookies have the attribute `Secure`; `None` decides by the public URL.
    pub cookie_secure: Option<bool>,
    /// `PROMLET_METRICS_TOKEN`.
    pub metrics_token: Option<Arc<str>>,
    /// The rate limits.
    pub limits: LimitsOptions,
    /// The deadlines of request bodies.
    pub body_deadlines: BodyDeadlines,
    /// The bytes of bodies with samples, dashboards or batches in memory at once, over all
    /// requests.
    pub body_bytes_max: u64,
    /// The validity of sign-in links that responses report: `IdentityOptions::link_ttl`.
    pub link_ttl: Duration,
    /// The limits of queries.
    pub read: ReadOptions,
    /// The limits of one write request.
    pub write: ingest::DecodeLimits,
    /// The time to live of pushed groups that state none; `None` means without end.
    pub push_ttl: Option<Duration>,
    /// The requests a second of embed tokens, for new API keys that set no rate.
    pub embed_rps_default: u32,
    /// Whether the OpenAPI document is served.
    pub docs: bool,
    /// The configured sign-in providers.
    pub providers: auth::oauth::Providers,
    /// The addresses that targets of organisations may have.
    pub egress: Egress,
    /// The requests of a follower; `None` without a standby.
    pub standby: Option<Arc<standby::StandbyRequests>>,
    /// The figures of a primary or follower for `/metrics`.
    pub standby_figures: Option<own_metrics::StandbyFigures>,
    /// The note of `/readyz` about the standby.
    pub standby_note: Option<StandbyNote>,
    /// The moved organisations, for `/metrics` and `/readyz`.
    pub move_figures: Option<own_metrics::MoveFigures>,
}

impl ApiOptions {
    /// Returns the defaults for a server whose public URL is `public_url`.
    pub fn new(public_url: &str) -> ApiOptions {
        ApiOptions {
            public_url: public_url.trim_end_matches('/').to_owned(),
            allowed_hosts: Vec::new(),
            trusted_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            cookie_secure: None,
            metrics_token: None,
            limits: LimitsOptions::default(),
            body_deadlines: BodyDeadlines::default(),
            body_bytes_max: 256 << 20,
            link_ttl: Duration::from_secs(600),
            read: ReadOptions::default(),
            write: ingest::DecodeLimits::default(),
            push_ttl: None,
            embed_rps_default: EmbedSettings::default().rate_limit_rps,
            docs: true,
            providers: auth::oauth::Providers::default(),
            egress: Egress::new(EgressRules::default(), &[]),
            standby: None,
            standby_figures: None,
            standby_note: None,
            move_figures: None,
        }
    }
}

/// An option that the edge cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The public URL is not an `http://` or `https://` URL with a host.
    #[error("the public URL {0:?} is not http://host or https://host")]
    PublicUrl(String),
    /// A trusted proxy is not an address or a network.
    #[error("a trusted proxy is an address or a network such as 10.0.0.0/8, not {0:?}")]
    TrustedProxy(String),
    /// A trusted origin is not an origin.
    #[error("invalid trusted origin: {0}")]
    TrustedOrigin(String),
}

/// Returns the route table in the order of the specification, without the layers. The OpenAPI
/// document is generated from its rows.
pub fn table(rooms: &Rooms, deps: &Deps) -> Routes {
    let routes = Routes::new()
        .merge(auth::routes().with(deps.auth.clone()).below("/api/v1/auth"))
        .merge(orgs::organisations::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::members::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::invites::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::engine::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::audit::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::forward::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::rules::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::rules::alert_list::routes().with(deps.read.clone()).below("/api/v1"))
        .merge(orgs::rules::mimir::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::notifications::routes().with(deps.alerts.clone()).below("/api/v1"))
        .merge(orgs::notifications::alertmanager::routes().with(deps.alerts.clone()).below("/api/v1"))
        .merge(orgs::scrape::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::rejects::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::api_keys::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::embed_tokens::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::embeds::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::dashboards::routes().with(deps.orgs.clone()).below("/api/v1"))
        .merge(orgs::dashboards::viewer::routes().with(deps.viewer.clone()).below("/api/v1"))
        .merge(orgs::query::render::routes().with(deps.viewer.clone()).below("/api/v1"))
        .merge(orgs::metrics::routes().with(deps.read.clone()).below("/api/v1"))
        .merge(orgs::query::routes().with(deps.read.clone()).below("/api/v1"))
        .merge(orgs::query::active::routes().with(deps.read.clone()).below("/api/v1"))
        .merge(orgs::prometheus::routes().with(deps.read.clone()).below("/api/v1"))
        .merge(orgs::scrape_targets::routes().with(deps.scrape_view()).below("/api/v1"))
        .merge(orgs::delete_series::routes().with(deps.delete(rooms)).below("/api/v1"))
        .merge(orgs::write::routes().with(deps.write.clone()).below("/api/v1"))
        .merge(orgs::push::routes().with(deps.push.clone()).below("/api/v1"))
        .merge(orgs::demo_data::routes().with(deps.demo.clone()).below("/api/v1"))
        .merge(admin::routes().with(deps.admin.clone()).below("/api/v1"))
        .merge(health::routes().with(deps.health(rooms)));
    match &deps.docs {
        Some(server) => openapi::document(routes, server),
        None => routes,
    }
}

/// The dependencies of all route groups, created once.
#[derive(Clone, Debug)]
pub struct Deps {
    auth: AuthDeps,
    orgs: OrgDeps,
    alerts: AlertApiDeps,
    viewer: ViewerDeps,
    read: ReadDeps,
    write: Arc<WriteDeps>,
    push: PushDeps,
    demo: DemoDeps,
    admin: AdminDeps,
    limits: Arc<Limits>,
    embeds: Arc<EmbedUses>,
    metrics_token: Option<Arc<str>>,
    local: LocalRequests,
    uptime: Stopwatch,
    standby_figures: Option<own_metrics::StandbyFigures>,
    standby_note: Option<StandbyNote>,
    move_figures: Option<own_metrics::MoveFigures>,
    /// The public URL for the OpenAPI document; `None` if the document is not served.
    docs: Option<Arc<str>>,
}

/// Creates the dependencies of the routes about accounts.
fn auth_deps(rooms: &Rooms, options: &ApiOptions, limits: &Arc<Limits>) -> AuthDeps {
    AuthDeps {
        identity: Arc::clone(&rooms.identity),
        lanes: rooms.lanes.clone(),
        clock: rooms.clock.clone(),
        limits: Arc::clone(limits),
        cookies: Cookies::of(&options.public_url, options.cookie_secure),
        mail: Arc::clone(&rooms.mail),
        public_url: options.public_url.as_str().into(),
        link_ttl: options.link_ttl,
        providers: options.providers.clone(),
    }
}

/// Creates the dependencies of the routes that read samples.
fn read_deps(rooms: &Rooms, options: &ApiOptions, orgs: &OrgDeps) -> ReadDeps {
    ReadDeps {
        tsdb: Arc::clone(&rooms.tsdb),
        lanes: rooms.lanes.clone(),
        clock: rooms.clock.clone(),
        options: Arc::new(options.read.clone()),
        active: Arc::clone(&orgs.active),
        memory: MemoryPool::new(options.read.memory_bytes_max),
        cache: Arc::new(RangeCache::new(options.read.cache_bytes_max)),
        patterns: Arc::clone(&orgs.patterns),
        expressions: Arc::new(ExpressionCache::new(options.read.caps)),
        inline: Arc::default(),
        engines: Arc::clone(&orgs.engines),
        live: Arc::default(),
        queried: Arc::new(QueriedMetrics::new(rooms.clock.now())),
        rules: Arc::clone(&rooms.rules),
        scrapers: Some(Arc::clone(&orgs.scraping.scrapers)),
    }
}

impl Deps {
    /// Creates the dependencies of all route groups.
    pub fn new(rooms: &Rooms, options: &ApiOptions) -> Deps {
        let limits = Arc::new(Limits::new(options.limits, &rooms.clock));
        let auth = auth_deps(rooms, options, &limits);
        let rejects = Arc::default();
        let active: Arc<orgs::query::active::RunningQueries> = Arc::default();
        let patterns: Arc<PatternCache> = Arc::default();
        let embeds = EmbedUses::new(&rooms.clock);
        let engines = Arc::new(Engines::new(Arc::clone(&rooms.identity), options.egress.clone()));
        let orgs = OrgDeps {
            identity: Arc::clone(&rooms.identity),
            tsdb: Arc::clone(&rooms.tsdb),
            lanes: rooms.lanes.clone(),
            clock: rooms.clock.clone(),
            limits: Arc::clone(&limits),
            defaults: Arc::new(orgs::settings::defaults(&options.read, rooms.tsdb.default_limits())),
            applying: Arc::default(),
            active: Arc::clone(&active),
            mail: Arc::clone(&rooms.mail),
            public_url: options.public_url.as_str().into(),
            rejects: Arc::clone(&rejects),
            patterns: Arc::clone(&patterns),
            query_timeout: options.read.timeout,
            embed_rps_default: options.embed_rps_default,
            embeds: Arc::clone(&embeds),
            engines: Arc::clone(&engines),
            forwarders: Arc::clone(&rooms.forwarders),
            rules: Arc::clone(&rooms.rules),
            scraping: rooms.scraping.clone(),
        };
        let read = read_deps(rooms, options, &orgs);
        let write = Arc::new(WriteDeps {
            tsdb: Arc::clone(&rooms.tsdb),
            lanes: rooms.lanes.clone(),
            clock: rooms.clock.clone(),
            limits: options.write,
            rejects,
            engines,
            totals: Some(Arc::default()),
            relabel: None,
            received: rooms.forwarders.received(),
        });
        let push = PushDeps {
            write: Arc::clone(&write),
            identity: Arc::clone(&rooms.identity),
            groups: Arc::default(),
            ttl: options.push_ttl,
            started: rooms.clock.now(),
        };
        let admin = AdminDeps {
            identity: Arc::clone(&rooms.identity),
            tsdb: Arc::clone(&rooms.tsdb),
            lanes: rooms.lanes.clone(),
            clock: rooms.clock.clone(),
            sealing: Arc::default(),
            defaults: Arc::clone(&orgs.defaults),
            applying: Arc::clone(&orgs.applying),
            reload: rooms.scraping.reload.clone(),
        };
        let viewer = ViewerDeps::new(Arc::clone(&rooms.identity), read.clone());
        let alerts =
            AlertApiDeps { orgs: orgs.clone(), hub: Arc::clone(&rooms.notify), changing: Arc::default() };
        let demo = DemoDeps { orgs: orgs.clone(), loading: Arc::default() };
        Deps {
            auth,
            orgs,
            alerts,
            viewer,
            read,
            write,
            push,
            demo,
            admin,
            limits,
            embeds,
            metrics_token: options.metrics_token.clone(),
            local: LocalRequests::of(&options.public_url),
            uptime: Stopwatch::start(),
            standby_figures: options.standby_figures.clone(),
            standby_note: options.standby_note.clone(),
            move_figures: options.move_figures.clone(),
            docs: options.docs.then(|| options.public_url.as_str().into()),
        }
    }

    /// Removes idle entries of the rate limiters. To be called once a minute.
    pub fn sweep(&self) {
        self.limits.sweep();
        self.embeds.sweep();
        if let Some(totals) = &self.write.totals {
            totals.sweep(self.write.clock.now());
        }
    }

    /// Repeats the samples of pushed groups that are due, and ends expired groups. To be called
    /// every few seconds; blocks.
    pub fn repeat_pushes(&self, now: Timestamp) {
        self.push.repeat(now);
    }

    /// Ends the responses that have no end of their own, because the server shuts down.
    pub fn close_streams(&self) {
        self.read.live.close();
    }

    /// Returns the metrics of this server.
    pub fn own_metrics(&self, rooms: &Rooms) -> OwnMetrics {
        OwnMetrics {
            tsdb: Arc::clone(&rooms.tsdb),
            counters: Arc::clone(&rooms.counters),
            lanes: rooms.lanes.clone(),
            limits: Arc::clone(&self.limits),
            embeds: Arc::clone(&self.embeds),
            memory: Arc::clone(&self.read.memory),
            cache: Arc::clone(&self.read.cache),
            live: Arc::clone(&self.read.live),
            totals: self.write.totals.clone(),
            slugs: Slugs(Arc::clone(&rooms.identity)),
            forwarders: Arc::clone(&rooms.forwarders),
            rules: Arc::clone(&rooms.rules),
            notify: Arc::clone(&rooms.notify),
            scrapers: Arc::clone(&rooms.scraping.scrapers),
            uptime: self.uptime,
            standby: self.standby_figures.clone(),
            moves: self.move_figures.clone(),
        }
    }

    fn scrape_view(&self) -> ScrapeViewDeps {
        ScrapeViewDeps { scrapers: Arc::clone(&self.orgs.scraping.scrapers), lanes: self.orgs.lanes.clone() }
    }

    /// Returns the check whether samples of an organisation may be stored here. An error is a
    /// sentence.
    pub fn local_writes(&self) -> impl Fn(OrgId) -> Result<(), String> + Send + Sync + use<> {
        let engines = Arc::clone(&self.orgs.engines);
        move |org| engines.require_local_writes(org).map_err(|error| error.detail().to_owned())
    }

    fn delete(&self, rooms: &Rooms) -> DeleteDeps {
        DeleteDeps { read: self.read.clone(), identity: Arc::clone(&rooms.identity) }
    }

    fn health(&self, rooms: &Rooms) -> HealthDeps {
        HealthDeps {
            own: self.own_metrics(rooms),
            checks: rooms.checks.clone(),
            standby: self.standby_note.clone(),
            mail: Arc::clone(&rooms.mail),
            metrics_token: self.metrics_token.clone(),
            local: self.local,
            engines: Arc::clone(&self.read.engines),
        }
    }
}

/// Puts the layers in front of the [`table`] and the web UI behind it.
pub fn app(table: Routes, rooms: &Rooms, deps: &Deps, options: &ApiOptions) -> Result<App, OptionsError> {
    // A proxy may change the Host that a browser's Origin is compared with. The origin of the
    // public URL is always trusted.
    let own_origin = public_origin(&options.public_url).to_owned();
    let origins: Vec<String> = options.trusted_origins.iter().cloned().chain([own_origin.clone()]).collect();
    let csrf = CookieCsrf::new(&origins).map_err(OptionsError::TrustedOrigin)?;
    let edge_policy = edge_policy(options, Arc::clone(&rooms.counters))?;
    let callers = Callers {
        identity: Arc::clone(&rooms.identity),
        lanes: rooms.lanes.clone(),
        clock: rooms.clock.clone(),
        limits: Arc::clone(&deps.limits),
        embeds: Arc::clone(&deps.embeds),
        cookies: deps.auth.cookies,
        proxies: TrustedProxies(options.trusted_proxies.clone()),
        local: deps.local,
        own_origin: own_origin.to_ascii_lowercase().into(),
    };
    // The alias below `/auth`: the same handlers, without documentation.
    let alias = auth::routes().with(deps.auth.clone()).below("/auth");
    let pages = rooms.pages.clone();
    let routes = table.merge(alias).into_route_tree();
    let shared = rooms.shared.clone().map(|ui| {
        Arc::new(SharedPages {
            ui,
            identity: Arc::clone(&rooms.identity),
            clock: rooms.clock.clone(),
            limits: Arc::clone(&deps.limits),
            proxies: TrustedProxies(options.trusted_proxies.clone()),
        })
    });
    let fallback = move |request: Request| -> ResponseFuture {
        match &shared {
            Some(shared) if is_shared(request.uri().path()) => {
                let shared = Arc::clone(shared);
                Box::pin(async move { shared.answer(request) })
            }
            _ => Box::pin(fallback(pages.clone(), request)),
        }
    };
    let auth_policy =
        layers::AuthPolicy { csrf, callers: Arc::new(callers), standby: options.standby.clone() };
    Ok(App::new(routes, Arc::new(fallback), edge_policy, Some(auth_policy)))
}

/// Checks the options without opening anything.
pub fn check(options: &ApiOptions) -> Result<(), OptionsError> {
    public_host(&options.public_url).map(|_| ())
}

fn edge_policy(options: &ApiOptions, counters: Arc<Counters>) -> Result<layers::EdgePolicy, OptionsError> {
    let host = public_host(&options.public_url)?;
    Ok(layers::EdgePolicy {
        hosts: Arc::new(AllowedHosts::new(options.allowed_hosts.iter().cloned().chain([host]))),
        trusted_origins: options.trusted_origins.clone().into(),
        deadlines: options.body_deadlines,
        body_bytes: Arc::new(BodyBytes::new(options.body_bytes_max)),
        drains: Drains::new(options.body_deadlines),
        counters,
        prefix: Prefix::of(&options.public_url),
        https_only: security_headers::covers_whole_host(&options.public_url),
    })
}

async fn fallback(pages: Option<Router>, request: Request) -> Response {
    match pages {
        Some(pages) if !callers::is_api(request.uri().path()) => {
            let Ok(response) = pages.oneshot(request).await;
            response
        }
        _ => layers::not_found(request.method(), request.uri()).into_response(),
    }
}

/// Returns the URL without its path.
fn public_origin(url: &str) -> &str {
    url.strip_suffix(prefix::path_of(url)).unwrap_or(url)
}

fn public_host(url: &str) -> Result<String, OptionsError> {
    let refused = || OptionsError::PublicUrl(url.to_owned());
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).ok_or_else(refused)?;
    let authority = rest.split('/').next().unwrap_or_default();
    let host = host::without_port(authority);
    // Host and path are inserted into pages, cookies and redirects without escaping.
    let plain = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    let path = prefix::path_of(url);
    let fits = rest.strip_prefix(authority) == Some(path) && path.split('/').skip(1).all(plain);
    if host.is_empty() || host.contains(['@', '?', '#']) || !fits {
        Err(refused())
    } else {
        Ok(host.to_owned())
    }
}
