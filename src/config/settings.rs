//! The settings of a server and the types of their values.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::oauth::OauthSettings;
use crate::identity::{Argon2Cost, OrgCreate, SignupMode};
use crate::model::{EgressRules, Switches};
use crate::tsdb::Durability;

/// All settings of a server, resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on; port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The data folder.
    pub data_dir: PathBuf,
    /// The URL of the server for people. Links in mails are built from it only.
    pub public_url: Option<String>,
    /// Host names in addition to that of the public URL, `localhost`, `*.localhost` and IP
    /// addresses.
    pub allowed_hosts: Vec<String>,
    /// The origins of the cabinet's front end under development, which get CORS with credentials.
    pub trusted_origins: Vec<String>,
    /// The certificate for TLS; `None` serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The addresses and networks (CIDR) of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<String>,
    /// The addresses in addition to public ones that targets of organisations may have.
    pub outbound_allow: EgressRules,
    /// The time to live of pushed groups that state none; `None` means without end.
    pub push_ttl: Option<Duration>,
    /// The number of streams of live queries of one API key and its tokens at once.
    pub live_streams_per_key: u32,
    /// The number of connections open at once; `None` decides by the memory.
    pub connections_max: Option<u32>,
    /// The accounts that may create organisations.
    pub org_create: OrgCreate,
    /// The people who may create an account.
    pub signup: SignupMode,
    /// The first account, from `PROMLET_BOOTSTRAP_*`.
    pub bootstrap: Option<BootstrapSetting>,
    /// The source of the key for secrets at rest, if it is not in the folder.
    pub master_key: Option<MasterKeySetting>,
    /// The destination of mails.
    pub mail: MailSetting,
    /// The configured sign-in providers.
    pub oauth: OauthSettings,
    /// The lifetime of sign-in links.
    pub magic_link_ttl: Duration,
    /// The time after which even an active session ends; `None` for never.
    pub session_absolute: Option<Duration>,
    /// Whether cookies have the attribute `Secure`.
    pub cookie_secure: CookieSecure,
    /// The parameters of Argon2id.
    pub argon2: Argon2Cost,
    /// When a write of samples is acknowledged.
    pub durability: Durability,
    /// The retention of organisations that set none; `None` keeps samples for ever.
    pub retention: Option<Duration>,
    /// The running time for which samples must have been too old before they are removed.
    pub expiry_grace: Duration,
    /// The interval of checkpoints, for crash tests; `None` leaves it to the store.
    pub checkpoint_every: Option<Duration>,
    /// Requests a second of one session.
    pub rate_cabinet_rps: u32,
    /// Requests a second of an API key's embed tokens, for keys that set none.
    pub rate_embed_default_rps: u32,
    /// The greatest duration of a query.
    pub query_timeout: Duration,
    /// The number of samples that one query may load.
    pub query_max_samples: u64,
    /// The number of series that one selector may match; `None` leaves memory and time as the
    /// limits.
    pub query_max_series: Option<u64>,
    /// The number of series of organisations that set none; `None` leaves memory as the limit.
    pub max_series_per_org: Option<u32>,
    /// The bytes of samples and names in memory, over all organisations.
    pub head_memory_bytes: u64,
    /// The bytes of the log above which it no longer waits for its consumers.
    pub forward_log_bytes: u64,
    /// The mails about alerts that an organisation may send in an hour.
    pub notify_mails_per_hour: u32,
    /// The folder with files of Alertmanagers.
    pub notify_files: Option<PathBuf>,
    /// The number of queries that run at once.
    pub query_concurrency: Option<usize>,
    /// The enabled optional parts of the query language.
    pub switches: Switches,
    /// The bytes of values in memory, over all queries.
    pub query_memory_bytes: u64,
    /// The bytes of the result cache.
    pub query_cache_bytes: u64,
    /// The bytes of the cache of decoded values.
    pub decoded_cache_bytes: u64,
    /// Whether a damaged log is rewritten without its unreadable records.
    pub accept_loss: bool,
    /// Whether a lost master key is replaced and the secrets that it sealed are dropped.
    pub new_master_key: bool,
    /// The token with which other machines may read `/metrics`.
    pub metrics_token: Option<SecretSetting>,
    /// Whether the OpenAPI document is served.
    pub docs: bool,
    /// The folder whose dashboards all organisations see.
    pub dashboards: Option<PathBuf>,
    /// The file or folder of rules of the operator.
    pub rules: Option<PathBuf>,
    /// The slug of the organisation of these rules; the first organisation if it is missing.
    pub rules_org: Option<String>,
    /// Age up to which missed evaluations of rules are caught up; zero skips all of them.
    pub rules_catch_up: Duration,
    /// `$externalLabels` of rules, and labels of alerts for Alertmanagers.
    pub external_labels: Arc<BTreeMap<String, String>>,
    /// The configuration of scraping, and the roles that may add others.
    pub scrape: ScrapeSettings,
    /// The folder from which the UI's files are served instead of those in the binary.
    pub ui_dir: Option<PathBuf>,
    /// The log filter: a level or `tracing` directives.
    pub log: String,
    /// The format of the log.
    pub log_format: LogFormat,
    /// Whether this server has a standby.
    pub standby: StandbyMode,
    /// The token of the standby.
    pub standby_token: Option<SecretSetting>,
    /// The primary that this server follows; `None` for a server of its own.
    pub follow: Option<FollowSettings>,
    /// Warnings about the command line and the environment.
    pub warnings: Vec<String>,
}

/// The settings of scraping.
#[derive(Debug, Clone, Default)]
pub struct ScrapeSettings {
    /// The file with `scrape_configs`.
    pub config: Option<PathBuf>,
    /// The slug of the organisation that gets the samples of the file; `None` for the only one.
    pub org: Option<String>,
    /// Whether administrators of organisations may set scrape configurations.
    pub org_admins: bool,
    /// Whether the metrics of this server and of its machine are stored.
    pub itself: SelfScrapeMode,
}

/// Whether the metrics of a server and of its machine are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SelfScrapeMode {
    /// They are not stored.
    #[default]
    Off,
    /// They are stored in the organisation that is named for scraping, or in the only one if an
    /// administrator of the server is a member, unless they would count against its limits.
    Auto,
    /// They are stored in the organisation that is named for scraping, or in the first one.
    On,
}

/// Whether a server has a standby, and when it acknowledges changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StandbyMode {
    /// The server has no standby.
    #[default]
    Off,
    /// Changes are acknowledged once they are durable here.
    Async,
    /// Changes are acknowledged once they are durable here and on the standby.
    Sync,
}

/// The primary of a follower.
#[derive(Debug, Clone)]
pub struct FollowSettings {
    /// Its URL.
    pub url: String,
    /// The standby token.
    pub token: SecretSetting,
    /// A file of certificates (PEM) to trust in addition to the public ones.
    pub ca_file: Option<PathBuf>,
    /// Whether an `http` URL may lead to another machine.
    pub insecure_http: bool,
}

impl Settings {
    /// Returns the scheme of the listener: `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// A certificate chain and its key in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A secret text that `Debug` does not show. As JSON it is the text itself: only
/// [`AccountCommand`](super::AccountCommand) is serialized, for the admin socket.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretSetting(String);

impl SecretSetting {
    /// Creates a secret.
    pub const fn new(text: String) -> SecretSetting {
        SecretSetting(text)
    }

    /// Returns the text. The caller must keep it out of logs and responses.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The first account, defined by the environment.
#[derive(Debug, Clone)]
pub struct BootstrapSetting {
    /// The address.
    pub email: String,
    /// The password.
    pub password: SecretSetting,
    /// The slug of the organisation that it owns.
    pub org: String,
}

/// The source of the master key.
#[derive(Debug, Clone)]
pub enum MasterKeySetting {
    /// The key: 32 bytes in base64.
    Value(SecretSetting),
    /// A file that contains the key.
    File(PathBuf),
}

/// The destination of mails.
#[derive(Debug, Clone)]
pub enum MailSetting {
    /// Standard output, one line for each mail.
    Console,
    /// A mail server.
    Smtp {
        /// `smtps://user:password@host:465`
        url: SecretSetting,
        /// The sender.
        from: String,
        /// A PEM file of certificates to trust in addition to those of public authorities.
        ca_file: Option<PathBuf>,
    },
}

/// `PROMLET_COOKIE_SECURE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CookieSecure {
    /// If the public URL is https.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `PROMLET_LOG_FORMAT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object on each line.
    Json,
}
