//! A whole server in one process and one temporary folder, with a clock that tests advance.

#[path = "contract.rs"]
mod contract;
#[path = "met.rs"]
pub(crate) mod met;
#[path = "../../src/kv/scratch.rs"]
mod scratch;
#[path = "secrets.rs"]
mod secrets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::BodyExt as _;
use promlet::api::callers::{Endpoint, IngestCaller, PrometheusCaller, QueryCaller};
use promlet::api::error::{ApiResult, Code};
use promlet::api::host::Peer;
use promlet::api::lanes::{Lanes, LanesOptions};
use promlet::api::layers::App;
use promlet::api::orgs::notifications::store::{AccountsNotifyStore, ConfiguredMailer};
use promlet::api::orgs::scrape::{ScrapeReload, ScrapeReloaded, ScrapeRoom};
use promlet::api::own_metrics::Counters;
use promlet::api::params::PathOf;
use promlet::api::routes::{Auth, RouteDoc, Routes};
use promlet::api::{self, ApiOptions, Rooms};
use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::forward::ForwardDeps;
use promlet::forward::edge::Forwarders;
use promlet::identity::{
    Argon2Cost, Client, Foundation, Identity, IdentityOptions, LoginOutcome, NewOrg, OrgCreate, Password,
    PasswordLogin, SetUp, SetUpPeer, SignupMode,
};
use promlet::kv::{Control, ControlOptions, DataFolder, LastStop, MasterKey};
use promlet::model::{ByteBudget, Labels, OrgId, OrgSlug, Timestamp, WriteBatch};
use promlet::notify::edge::{NotifyDeps, NotifyHub};
use promlet::outbound::{MailQueue, Mailer, Outbox};
use promlet::rules::RuleEngine;
use promlet::scrape::run::{ScrapeDeps, ScrapeDone, ScrapeLiveSeries, ScrapeSink, ScrapeStored, ScrapeWork};
use promlet::scrape::{Scrapers, ScrapersDeps};
use promlet::tsdb::{self, Appended, KeyedBatch, LabelsKey, Tsdb};
use serde_json::{Value, json};
use sha2::Sha256;
use tower::ServiceExt as _;

use contract::Contract;

pub(crate) const EMAIL: &str = "ada@example.com";
pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) struct TestServer {
    pub(crate) router: App,
    pub(crate) rows: Vec<RouteDoc>,
    contract: Contract,
    pub(crate) control: Arc<Control>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) tsdb: Arc<Tsdb>,
    pub(crate) forwarders: Arc<Forwarders>,
    pub(crate) rules: Arc<RuleEngine>,
    pub(crate) notify: Arc<NotifyHub>,
    pub(crate) scrapers: Arc<Scrapers>,
    pub(crate) clock: Clock,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Arc<Counters>,
    /// Uptime of the store in seconds.
    pub(crate) ran_s: Arc<AtomicU64>,
    pub(crate) deps: api::Deps,
    rooms: Rooms,
    options: ApiOptions,
    /// Dropped last, because the other fields have files open in it.
    _folder: tempfile::TempDir,
}

/// Options of a test server.
pub(crate) struct TestServerOptions {
    pub(crate) options: ApiOptions,
    pub(crate) console: bool,
    pub(crate) set_up: bool,
    pub(crate) signup: SignupMode,
    pub(crate) org_create: OrgCreate,
    /// Lifetime of login links.
    pub(crate) link_ttl: Duration,
    pub(crate) lanes: LanesOptions,
    /// Whether samples are stored in the folder or only in memory.
    pub(crate) stored: bool,
    /// Whether every route panics instead of running its handler.
    pub(crate) panics: bool,
    /// Whether the store has run for less than the 15 minutes after which it trusts the clock.
    pub(crate) just_started: bool,
    /// Whether administrators of organisations may configure scraping.
    pub(crate) scrape_org_admins: bool,
    /// The number of jobs of the file of `--scrape-config`, or why it is wrong.
    pub(crate) scrape_file: Option<Result<usize, &'static str>>,
}

impl Default for TestServerOptions {
    fn default() -> TestServerOptions {
        TestServerOptions {
            options: ApiOptions::new("http://127.0.0.1:8095"),
            console: false,
            set_up: true,
            signup: SignupMode::First,
            org_create: OrgCreate::Admin,
            link_ttl: Duration::from_secs(600),
            lanes: LanesOptions::for_cores(2),
            stored: false,
            panics: false,
            just_started: false,
            scrape_org_admins: false,
            scrape_file: None,
        }
    }
}

/// Routes that stand in for the data endpoints: they enter the organisation and return the granted
/// access.
fn probes() -> Routes {
    async fn read(reader: QueryCaller, PathOf(slug): PathOf<String>) -> ApiResult<String> {
        reader.enter(&slug, Endpoint::Range).map(|entered| format!("{entered:?}"))
    }
    async fn expr(reader: QueryCaller, PathOf(slug): PathOf<String>) -> ApiResult<String> {
        reader.enter(&slug, Endpoint::Expr).map(|entered| format!("{entered:?}"))
    }
    async fn dashboard(reader: QueryCaller, PathOf(slug): PathOf<String>) -> ApiResult<String> {
        reader.enter(&slug, Endpoint::Dashboard).map(|entered| format!("{entered:?}"))
    }
    async fn mount(reader: PrometheusCaller, PathOf(slug): PathOf<String>) -> ApiResult<String> {
        reader.enter(&slug, Endpoint::Expr).map(|entered| format!("{entered:?}"))
    }
    async fn write(machine: IngestCaller, PathOf(slug): PathOf<String>, body: Body) -> ApiResult<StatusCode> {
        let writing = machine.enter(&slug)?;
        promlet::api::body::read(body, usize::MAX).await?;
        writing.charge_samples(1_000)?;
        Ok(StatusCode::NO_CONTENT)
    }
    #[expect(clippy::panic, reason = "panicking is what it is for")]
    async fn panics() -> StatusCode {
        panic!("a probe that panics with a secret ses_AAAA");
    }
    Routes::new()
        .get("/api/v1/orgs/{slug}/query/probe-range", Auth::QueryCaller(Endpoint::Range), "probe", read)
        .get("/api/v1/orgs/{slug}/query/probe-expr", Auth::QueryCaller(Endpoint::Expr), "probe", expr)
        .get(
            "/api/v1/orgs/{slug}/query/probe-dashboard",
            Auth::QueryCaller(Endpoint::Dashboard),
            "probe",
            dashboard,
        )
        .get(
            "/api/v1/orgs/{slug}/prometheus/api/v1/probe",
            Auth::PrometheusCaller(Some(Endpoint::Expr)),
            "probe",
            mount,
        )
        .post(
            "/api/v1/orgs/{slug}/prometheus/api/v1/probe",
            Auth::PrometheusCaller(Some(Endpoint::Expr)),
            "probe",
            mount,
        )
        .post("/api/v1/orgs/{slug}/import/probe", Auth::IngestCaller, "probe", write)
        .get("/api/v1/probe-panic", Auth::Public, "probe", panics)
}

/// Whether a route exists only in tests.
pub(crate) fn is_test_route(path: &str) -> bool {
    ["/query/probe-", "/v1/probe", "/import/probe"].iter().any(|part| path.contains(part))
}

/// Returns the same routes with handlers that panic.
fn panicking(rows: &[RouteDoc]) -> Routes {
    #[expect(clippy::panic, reason = "panicking is what it is for")]
    async fn panics() -> StatusCode {
        panic!("a handler that panics with a secret ses_AAAA");
    }
    rows.iter().filter(|row| !is_test_route(&row.path)).fold(Routes::new(), |table, row| {
        // Route paths are static; the table is built once per server.
        let path: &'static str = row.path.clone().leak();
        match row.method {
            "POST" => table.post(path, row.auth, row.summary, panics),
            "PUT" => table.put(path, row.auth, row.summary, panics),
            "PATCH" => table.patch(path, row.auth, row.summary, panics),
            "DELETE" => table.delete(path, row.auth, row.summary, panics),
            _ => table.get(path, row.auth, row.summary, panics),
        }
    })
}

/// Opens a store, in memory without a folder. `ran_s` is how long the process has run, in seconds.
fn open_store(home: Option<tsdb::Home<'_>>, ran_s: &Arc<AtomicU64>, now: Timestamp) -> Tsdb {
    let elapsed = Arc::clone(ran_s);
    let elapsed = tsdb::Elapsed::by(move || Duration::from_secs(elapsed.load(Ordering::Relaxed)));
    let options = tsdb::Options { elapsed, ..tsdb::Options::default() };
    match home {
        Some(home) => Tsdb::open(home, options, &mut Entropy::seeded(3), now).expect("an empty store").0,
        None => Tsdb::in_memory(options, [0; 32]),
    }
}

/// Starts the notifiers of a server.
fn notify_hub(
    identity: &Arc<Identity>,
    mailer: &Mailer,
    plan: &TestServerOptions,
    clock: &Clock,
) -> Arc<NotifyHub> {
    let store = AccountsNotifyStore {
        identity: Arc::clone(identity),
        public_url: plan.options.public_url.as_str().into(),
    };
    let hub = NotifyHub::start(NotifyDeps {
        store: Arc::new(store),
        mailer: Arc::new(ConfiguredMailer(mailer.clone())),
        egress: plan.options.egress.clone(),
        runtime: runtime(),
        clock: clock.clone(),
        mails_per_hour: 60,
        external_labels: Arc::default(),
        files: None,
    });
    let hub = hub.expect("threads");
    hub.activate();
    Arc::new(hub)
}

impl TestServer {
    /// Replaces everything above the stores, as a restart does.
    pub(crate) fn restart(&mut self) {
        self.deps = api::Deps::new(&self.rooms, &self.options);
        let table = api::table(&self.rooms, &self.deps).merge(probes());
        self.router = api::app(table, &self.rooms, &self.deps, &self.options).expect("options fit");
    }

    #[expect(clippy::needless_pass_by_value, reason = "a plan is made for one server")]
    pub(crate) fn build(plan: TestServerOptions) -> TestServer {
        secrets::watch();
        let folder = scratch::temporary_folder().expect("a temporary folder");
        let clock = Clock::manual(Timestamp::from_s(1_800_000_000));
        let now = clock.now();
        let data = DataFolder::open(folder.path(), now, &mut Entropy::seeded(1)).expect("a new folder");
        let (control, _) =
            Control::open(&data, &ControlOptions { now, users_table: 1 }).expect("a new database");
        let control = Arc::new(control);
        let foundation = Foundation {
            control: Arc::clone(&control),
            master_key: MasterKey([7; 32]),
            last_stop: LastStop::New,
            mark_initialised: Box::new(|_| Ok(())),
        };
        let options = IdentityOptions {
            argon2: Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 },
            signup: plan.signup,
            org_create: plan.org_create,
            mail_leaves: !plan.console,
            link_ttl: plan.link_ttl,
            ..IdentityOptions::default()
        };
        let identity =
            Identity::open(foundation, options, now, &mut Entropy::seeded(2)).expect("accounts open");
        let outbox = Outbox::default();
        let mailer = if plan.console { Mailer::Console } else { Mailer::Memory(outbox.clone()) };
        let ran_s = Arc::new(AtomicU64::new(0));
        let home = tsdb::Home { dir: folder.path(), store: data.store_id(), control: Arc::clone(&control) };
        let tsdb = open_store(plan.stored.then_some(home), &ran_s, now);
        if !plan.just_started {
            ran_s.store(3_600, Ordering::Relaxed);
        }
        let tsdb = Arc::new(tsdb);
        let forwarders = Arc::new(Forwarders::new(ForwardDeps {
            tsdb: Arc::clone(&tsdb),
            egress: plan.options.egress.clone(),
            runtime: runtime(),
            clock: clock.clone(),
            received: Arc::default(),
        }));
        let rules = RuleEngine::scaffold(&tsdb, &clock);
        let identity = Arc::new(identity);
        let notify = notify_hub(&identity, &mailer, &plan, &clock);
        let tsdb_of_scrapes = Arc::clone(&tsdb);
        let rooms = Rooms {
            identity,
            tsdb,
            lanes: Lanes::start(&plan.lanes).expect("threads"),
            clock: clock.clone(),
            mail: Arc::new(MailQueue::start(mailer, clock.clone()).expect("a thread")),
            checks: Vec::new(),
            counters: Arc::new(Counters::default()),
            pages: Some(Router::new().fallback(async || "a page")),
            shared: Some(promlet::ui::Ui::embedded()),
            forwarders,
            rules,
            notify,
            scraping: scraping(&tsdb_of_scrapes, &plan, &clock),
        };
        let deps = api::Deps::new(&rooms, &plan.options);
        let table = api::table(&rooms, &deps).merge(probes());
        let rows = table.rows().to_vec();
        let table = if plan.panics { panicking(&rows) } else { table };
        let router = api::app(table, &rooms, &deps, &plan.options).expect("options fit");
        let server = TestServer {
            router,
            contract: Contract::of(&rows),
            rows,
            control,
            identity: Arc::clone(&rooms.identity),
            tsdb: Arc::clone(&rooms.tsdb),
            forwarders: Arc::clone(&rooms.forwarders),
            deps,
            rooms: rooms.clone(),
            options: plan.options.clone(),
            rules: Arc::clone(&rooms.rules),
            notify: Arc::clone(&rooms.notify),
            scrapers: Arc::clone(&rooms.scraping.scrapers),
            clock,
            outbox,
            counters: Arc::clone(&rooms.counters),
            ran_s,
            _folder: folder,
        };
        if plan.set_up {
            server.set_up();
        }
        server
    }

    /// Starts a server with the account `EMAIL`, which owns `acme`.
    pub(crate) fn new() -> TestServer {
        TestServer::build(TestServerOptions::default())
    }

    fn set_up(&self) {
        let client = Client { ip: "127.0.0.1".parse().expect("an address"), user_agent: String::new() };
        let request = SetUp {
            token: None,
            peer: SetUpPeer::Local,
            email: EMAIL,
            password: Password(PASSWORD),
            name: "Ada",
            org: NewOrg { slug: OrgSlug::parse("acme").expect("a slug"), name: "Acme".into() },
            client: &client,
        };
        self.identity.set_up(&request, self.clock.now(), &mut Entropy::system()).expect("the first account");
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let reply = Reply {
            status: parts.status,
            refused: parts.extensions.get::<Code>().copied(),
            headers: parts.headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        };
        self.contract.assert_documented(&method, &path, &reply);
        secrets::assert_no_leak(&path, &reply);
        reply
    }

    pub(crate) async fn get(&self, path: &str, who: &Who) -> Reply {
        self.send(ask("GET", path, who).body(Body::empty()).expect("a request")).await
    }

    pub(crate) async fn delete(&self, path: &str, who: &Who) -> Reply {
        self.send(ask("DELETE", path, who).body(Body::empty()).expect("a request")).await
    }

    pub(crate) async fn post(&self, path: &str, who: &Who, body: Value) -> Reply {
        self.json("POST", path, who, body).await
    }

    pub(crate) async fn json(&self, method: &str, path: &str, who: &Who, body: Value) -> Reply {
        let request = ask(method, path, who).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_string())).expect("a request")).await
    }

    /// Logs the account in. Returns its session.
    pub(crate) async fn log_in(&self) -> Who {
        let reply = self
            .post("/api/v1/auth/login", &Who::Nobody, json!({ "email": EMAIL, "password": PASSWORD }))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        Who::Cookie(reply.session_cookie().expect("a session cookie"))
    }

    /// Creates an API key of `acme`. Returns its id and secret.
    pub(crate) async fn key(&self, cabinet: &Who, fields: Value) -> (String, String) {
        let mut body = json!({ "name": "test" });
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let reply = self.post("/api/v1/orgs/acme/api-keys", cabinet, body).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        (reply.text("id"), reply.text("secret"))
    }

    /// Mints an embed token of `acme`.
    pub(crate) async fn token(&self, cabinet: &Who, key: &str, fields: Value) -> Who {
        let mut body = json!({ "api_key_id": key });
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let reply = self.post("/api/v1/orgs/acme/embed/tokens", cabinet, body).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        Who::Bearer(reply.text("token"))
    }

    /// Like [`TestServer::log_in`], but calls `Identity` directly, not through a lane.
    pub(crate) fn log_in_from_within(&self) -> Who {
        let client = Client { ip: "127.0.0.1".parse().expect("an address"), user_agent: String::new() };
        let password = Password(PASSWORD);
        let attempt = PasswordLogin { email: EMAIL, password, client: &client, replaces: None, device: None };
        match self.identity.login(&attempt, self.clock.now(), &mut Entropy::system()) {
            Ok(LoginOutcome::LoggedIn(login)) => Who::Cookie(login.token.expose().to_owned()),
            other => unreachable!("{other:?}"),
        }
    }

    /// Makes every further change of accounts fail.
    pub(crate) fn break_the_disk(&self) {
        self.control.refuse_changes("the disk of this test");
    }

    /// Checks a response that did not come from [`TestServer::send`] against the OpenAPI document.
    pub(crate) fn assert_documented(&self, method: &str, path: &str, reply: &Reply) {
        self.contract.assert_documented(method, path, reply);
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

/// The credential of a request.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Nobody,
    Cookie(String),
    Bearer(String),
    Basic(String, String),
}

impl Who {
    pub(crate) fn secret(&self) -> &str {
        match self {
            Who::Nobody => "",
            Who::Cookie(secret) | Who::Bearer(secret) | Who::Basic(_, secret) => secret,
        }
    }
}

/// Starts a request from a loopback peer.
pub(crate) fn ask(method: &str, path: &str, who: &Who) -> axum::http::request::Builder {
    ask_from("127.0.0.1:50000", method, path, who)
}

pub(crate) fn ask_from(peer: &str, method: &str, path: &str, who: &Who) -> axum::http::request::Builder {
    let peer: SocketAddr = peer.parse().expect("an address");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "127.0.0.1:8095")
        .extension(Peer(peer));
    match who {
        Who::Nobody => request,
        Who::Cookie(value) => request.header(header::COOKIE, format!("ms_session={value}")),
        Who::Bearer(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        Who::Basic(user, secret) => {
            let encoded = data_encoding::BASE64.encode(format!("{user}:{secret}").as_bytes());
            request.header(header::AUTHORIZATION, format!("Basic {encoded}"))
        }
    }
}

/// Signs a JWT as a customer's backend does, without a request to the server.
pub(crate) fn signed(kid: &str, secret: &str, claims: &Value) -> String {
    let part = |value: &Value| data_encoding::BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let message = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT", "kid": kid })), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(message.as_bytes());
    format!("{message}.{}", data_encoding::BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// The server's error code, because Prometheus' error body contains none.
    pub(crate) refused: Option<Code>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    /// Whether the response is this error, by its code and, where the body has one, the body's.
    pub(crate) fn refuses(&self, code: Code) -> bool {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let word = &body["code"];
        self.refused == Some(code)
            && (self.status == code.status() || self.header("x-error-code") == code.as_str())
            && (!word.is_string() || word == code.as_str())
            && (!body["errorType"].is_string() || body["errorType"] == code.error_type())
    }

    pub(crate) fn value(&self) -> Value {
        let value = serde_json::from_str(&self.body);
        assert!(value.is_ok(), "no JSON: {:?}", self.body);
        value.unwrap_or_default()
    }

    pub(crate) fn text(&self, field: &str) -> String {
        let value = self.value();
        let text = value[field].as_str();
        assert!(text.is_some(), "no text {field} in {}", self.body);
        text.unwrap_or_default().to_owned()
    }

    pub(crate) fn code(&self) -> String {
        self.text("code")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns `name=value` of a cookie that the response sets.
    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        let set = self.headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = set.map(|text| text.split(';').next().unwrap_or_default());
        pairs.find(|pair| pair.split('=').next() == Some(name)).map(str::to_owned)
    }

    /// Returns the value that the response gives to the session cookie.
    pub(crate) fn session_cookie(&self) -> Option<String> {
        let set = self.headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = set
            .filter_map(|text| text.strip_prefix("ms_session="))
            .map(|rest| rest.split(';').next().unwrap_or_default().to_owned());
        let first = values.next();
        assert_eq!(values.next(), None, "one decision about the session");
        first
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code().as_str()), (status, code), "{}", self.body);
        let body = self.value();
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("urn:promlet:error:{code}"));
        assert_eq!(body["request_id"].as_str().expect("a request id"), self.header("x-request-id"));
        assert!(body["title"].is_string() && body["detail"].is_string());
        assert_eq!(self.headers.contains_key(header::WWW_AUTHENTICATE), status == 401);
    }
}

impl Reply {
    /// Checks an error of Alertmanager's API: a string as body, and the code in a header.
    #[track_caller]
    pub(crate) fn refuses_as_alertmanager(&self, status: u16, code: &str) {
        let found = (self.status.as_u16(), self.header("x-error-code"), self.refused.map(Code::as_str));
        assert_eq!(found, (status, code, Some(code)), "{}", self.body);
        assert_eq!(self.header("content-type"), "application/json");
        assert!(self.value().is_string(), "{}", self.body);
    }
}

/// Stores scraped samples, and remembers no targets.
struct ScrapeStore(Arc<Tsdb>);

impl ScrapeSink for ScrapeStore {
    fn spawn(&self, _: OrgId, work: ScrapeWork, _: Duration) -> bool {
        std::thread::spawn(work);
        true
    }

    fn commit(&self, org: OrgId, batch: &WriteBatch<'_>, now: Timestamp, done: ScrapeDone) {
        let report = self.0.append(org, batch, now).map_err(|error| error.to_string());
        done(report.map(|report| ScrapeStored { refused: report.refused, reason: None }));
    }

    fn series_keys(&self, org: OrgId, batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        self.0.series_keys(org, batch)
    }

    fn commit_keyed(
        &self,
        org: OrgId,
        batch: KeyedBatch<'_>,
        now: Timestamp,
        done: ScrapeDone,
    ) -> Result<(), ScrapeDone> {
        let appending = match self.0.prepare_keyed(org, batch, now) {
            Ok(Some(appending)) => appending,
            Ok(None) => return Err(done),
            Err(error) => {
                done(Err(error.to_string()));
                return Ok(());
            }
        };
        self.0.commit_then(appending, move |appended| {
            let report = appended.map(Appended::report).map_err(|error| error.to_string());
            done(report.map(|report| ScrapeStored { refused: report.refused, reason: None }));
        });
        Ok(())
    }

    fn live_series(&self, _: OrgId, _: &Labels, _: Timestamp) -> Vec<ScrapeLiveSeries> {
        Vec::new()
    }
}

fn scraping(tsdb: &Arc<Tsdb>, plan: &TestServerOptions, clock: &Clock) -> ScrapeRoom {
    let sink = Arc::new(ScrapeStore(Arc::clone(tsdb)));
    let of_file = ScrapeDeps {
        sink,
        egress: plan.options.egress.clone(),
        runtime: runtime(),
        clock: clock.clone(),
        settings: Arc::default(),
        bodies: ByteBudget::new(1 << 30),
    };
    let deps = ScrapersDeps { of_api: of_file.clone(), of_file, memory: None, resolver: None };
    ScrapeRoom {
        scrapers: Scrapers::new(deps),
        org_admins: plan.scrape_org_admins,
        reload: ScrapeReload(plan.scrape_file.map(|read| -> Arc<dyn Fn() -> _ + Send + Sync> {
            Arc::new(move || match read {
                Ok(jobs) => Ok(ScrapeReloaded { jobs, notices: Vec::new() }),
                Err(why) => Err(why.to_owned()),
            })
        })),
    }
}

/// Returns the runtime of the requests to forwarding targets.
fn runtime() -> tokio::runtime::Handle {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    let new = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    RUNTIME.get_or_init(|| new().expect("a runtime")).handle().clone()
}
