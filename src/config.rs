//! Flags and environment to settings; the sole reader of the environment, and the only place that knows clap.
//!
//! Every variable is `PROMLET_` and the flag's name in capitals (docs/specification.md E). A flag wins over its variable, an empty
//! variable is refused. Secrets come by environment or by a file named in `…_FILE`, never by flag, so that they
//! do not show in a process list.

mod commands;
mod oauth;
mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use commands::{AccountAsk, AccountCommand, KeyRates};
use commands::{KeyCommand, OrgCommand, TokenCommand, Told, UserCommand};

use crate::model::Switches;
use crate::model::parse_duration;

pub use oauth::{GithubSetting, GoogleSetting, OauthClient, OauthSettings, OidcSetting};
pub use variables::known as known_variables;

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// `promlet serve`, and a bare `promlet`.
    Serve(Settings),
    /// `promlet demo`.
    Demo(Settings),
    /// `promlet user`, `org`, `key`, `token`, `login-link`: of the server that runs on the folder, or of the folder itself,
    /// which is then opened with these settings.
    Accounts {
        /// As the server would have them.
        settings: Settings,
        /// What to do.
        command: AccountCommand,
    },
    /// `promlet doctor`: what is wrong with an installation that has these settings.
    Doctor {
        /// As the server would have them.
        settings: Settings,
        /// For programs.
        json: bool,
    },
    /// `promlet seal`, for the server on this folder or, where none runs, the folder itself.
    Seal {
        /// The data folder.
        dir: PathBuf,
    },
    /// `promlet backup`.
    Backup {
        /// The data folder.
        dir: PathBuf,
        /// The folder to make.
        out: PathBuf,
        /// With `master.key`.
        with_key: bool,
    },
    /// `promlet restore`.
    Restore {
        /// The data folder to make.
        dir: PathBuf,
        /// The backup.
        from: PathBuf,
    },
    /// Put one segment of a backup back into a stopped folder.
    RestoreOne {
        /// The data folder.
        dir: PathBuf,
        /// The backup.
        from: PathBuf,
        /// The segment, relative to both.
        file: PathBuf,
        /// For a copy of the accounts' database.
        scratch: PathBuf,
    },
    /// `promlet check`.
    Check {
        /// A data folder or a backup.
        dir: PathBuf,
        /// Every block and every hash.
        deep: bool,
        /// For programs.
        json: bool,
        /// The master key, where it does not lie in the folder.
        master_key: Option<MasterKeySource>,
        /// Where copies may lie for a moment.
        scratch: PathBuf,
    },
    /// `promlet repair`.
    Repair {
        /// The damaged folder.
        dir: PathBuf,
        /// The folder to make.
        to: PathBuf,
        /// Where copies may lie for a moment.
        scratch: PathBuf,
    },
}

/// Everything the server can be told, resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The data folder.
    pub data_dir: PathBuf,
    /// How people reach the server; links in mail are built from this alone.
    pub public_url: Option<String>,
    /// Host names beyond the public URL's, `localhost`, `*.localhost` and IP literals.
    pub allowed_hosts: Vec<String>,
    /// Origins of the cabinet's front end under development; they get CORS with credentials.
    pub trusted_origins: Vec<String>,
    /// Our own TLS.
    pub tls: Option<TlsFiles>,
    /// Addresses and networks (CIDR) of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<String>,
    /// Who may make organisations.
    pub org_create: OrgCreate,
    /// Who may make an account.
    pub signup: Signup,
    /// The first account, from `PROMLET_BOOTSTRAP_*`.
    pub bootstrap: Option<Bootstrap>,
    /// Where the key for secrets at rest comes from, if not from the folder.
    pub master_key: Option<MasterKeySource>,
    /// Where mail goes.
    pub mail: Mail,
    /// Where people may come from to sign in.
    pub oauth: OauthSettings,
    /// Lifetime of sign-in links.
    pub magic_link_ttl: Duration,
    /// After which even a busy session ends.
    pub session_absolute: Option<Duration>,
    /// Whether cookies carry `Secure`.
    pub cookie_secure: CookieSecure,
    /// Argon2id parameters.
    pub argon2: Argon2Cost,
    /// When a 2xx on samples is answered.
    pub durability: Durability,
    /// How long samples are kept where an organisation does not say; none: for ever.
    pub retention: Option<Duration>,
    /// Running time for which samples must have been too old before they are removed.
    pub expiry_grace: Duration,
    /// How often checkpoints are made, if not as often as the store thinks right; for tests of crashes.
    pub checkpoint_every: Option<Duration>,
    /// Requests a second and session.
    pub rate_cabinet_rps: u32,
    /// Requests a second and API key, where the key does not say.
    pub rate_embed_default_rps: u32,
    /// A query's longest run.
    pub query_timeout: Duration,
    /// Samples one query may load.
    pub query_max_samples: u64,
    /// Series one selector may find; none: memory and time bound a query.
    pub query_max_series: Option<u64>,
    /// Series of an organisation that does not say; none: memory bounds them.
    pub max_series_per_org: Option<u32>,
    /// Bytes of samples and names of all organisations together.
    pub head_memory_bytes: u64,
    /// Queries running at once.
    pub query_concurrency: Option<usize>,
    /// What of the query language is switched on.
    pub switches: Switches,
    /// Bytes of values that all queries hold together.
    pub query_memory_bytes: u64,
    /// Bytes of answers that are kept to be used again.
    pub query_cache_bytes: u64,
    /// Bytes of decoded values that are kept for the next query.
    pub decoded_cache_bytes: u64,
    /// Whether a damaged log is written anew without what cannot be read.
    pub accept_loss: bool,
    /// Whether a lost master key is replaced, and what it sealed dropped.
    pub new_master_key: bool,
    /// Who may read `/metrics` from elsewhere than loopback.
    pub metrics_token: Option<Secret>,
    /// Whether the API document is served.
    pub docs: bool,
    /// Serve the UI's files from here instead of from the binary.
    pub ui_dir: Option<PathBuf>,
    /// What is logged: a level or `tracing` directives.
    pub log: String,
    /// How it is logged.
    pub log_format: LogFormat,
    /// Things said on the command line or in the environment that deserve a warning.
    pub warnings: Vec<String>,
}

impl Settings {
    /// What the listener speaks: `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// A certificate chain and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A text that never shows itself.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The text; the caller keeps it from logs and answers.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The first account, told in advance.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Its address.
    pub email: String,
    /// Its password.
    pub password: Secret,
    /// The slug of the organisation it owns.
    pub org: String,
}

/// Where the master key comes from.
#[derive(Debug, Clone)]
pub enum MasterKeySource {
    /// 32 bytes in base64.
    Value(Secret),
    /// A file that holds it.
    File(PathBuf),
}

/// Where mail goes.
#[derive(Debug, Clone)]
pub enum Mail {
    /// One line a mail on standard output.
    Console,
    /// To a server, from an address.
    Smtp {
        /// `smtps://user:password@host:465`
        url: Secret,
        /// The sender.
        from: String,
        /// Certificates to trust beside the web's, PEM.
        ca_file: Option<PathBuf>,
    },
}

/// Who may make organisations (`PROMLET_ORG_CREATE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrgCreate {
    /// Instance admins.
    Admin,
    /// Everybody with an account.
    Any,
}

/// Who may make an account beside the first one (`PROMLET_SIGNUP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Signup {
    /// Nobody; people are invited.
    First,
    /// Everybody who can read a mail.
    Open,
    /// People who are invited.
    Invite,
    /// Nobody, not even who is invited.
    Closed,
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
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `PROMLET_DURABILITY`: when a 2xx on samples is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once they are on disk.
    Synced,
    /// Once they are written; they are on disk within this time.
    Interval(Duration),
}

/// Memory in KiB, passes, lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Parallel lanes.
    pub lanes: u32,
}

#[derive(Parser)]
#[command(
    name = "promlet",
    version,
    about = "A metrics server in one binary and one data folder.",
    long_about = "A metrics server in one binary and one data folder: Prometheus remote write in, PromQL out, with accounts, \
                  organisations and embed tokens. Without a command it serves.",
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum Command {
    /// Serve from a data folder (what a bare `promlet` does)
    Serve(Box<Flags>),
    /// Serve with an organisation `demo`, generated history and live metrics of this machine
    Demo(Box<Flags>),
    /// Accounts: of a running server, or of a stopped folder
    #[command(subcommand)]
    User(UserCommand),
    /// Print a link that signs an account in, once: no mail needed
    LoginLink {
        /// Its address
        email: String,
        #[command(flatten)]
        told: Told,
    },
    /// Organisations and who belongs to them
    #[command(subcommand)]
    Org(OrgCommand),
    /// API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Embed tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Say what is wrong with this installation; exit code 0 nothing, 1 something to look at, 2 something that does not work
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Write what is in memory to segments now, and trim the log
    Seal(Place),
    /// Make a backup of a running server's folder, or of a stopped one
    Backup {
        /// The folder to make; it must not exist yet, or be empty
        out: PathBuf,
        /// Put the master key into the backup, too: whoever has both can read every sealed secret
        #[arg(long)]
        with_key: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Make a data folder from a backup, after every hash is verified; or put one segment of it back
    Restore {
        /// The data folder to make; it must not exist yet, or be empty. With --file: a stopped one
        dir: PathBuf,
        /// The backup
        from: PathBuf,
        /// Put only this segment back, where it is damaged or gone: `segments/ORG/NAME.seg`
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Read a stopped data folder or a backup and say what is wrong with it; exit code 0 nothing, 1 what the next start puts right,
    /// 2 loss, a folder that the server refuses, or one that cannot be read. Looks for the master key where the server does
    /// (PROMLET_MASTER_KEY, PROMLET_MASTER_KEY_FILE)
    Check {
        /// The data folder or the backup
        dir: PathBuf,
        /// Read and decode every block of every segment; of a backup, every hash
        #[arg(long)]
        deep: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a new data folder with what is provably good in a damaged one, and say what is lost
    Repair {
        /// The damaged data folder; it is not changed
        dir: PathBuf,
        /// The folder to make; it must not exist yet, or be empty
        #[arg(long, value_name = "NEW")]
        to: PathBuf,
    },
}

/// Which data folder.
#[derive(Args, Clone)]
struct Place {
    /// The data folder
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR", default_value = "data/store")]
    data_dir: PathBuf,
}

#[derive(Args, Clone)]
struct Flags {
    /// Address and port to listen on
    #[arg(long, env = "PROMLET_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8095")]
    listen: SocketAddr,
    /// The data folder [default: data/store, for demo data/demo-store]
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How people reach the server [default: http://LISTEN]
    #[arg(long, env = "PROMLET_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// More host names to answer to
    #[arg(long, env = "PROMLET_ALLOWED_HOSTS", value_name = "HOST,..", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// Origins of a front end under development
    #[arg(long, env = "PROMLET_TRUSTED_ORIGINS", value_name = "ORIGIN,..", value_delimiter = ',')]
    trusted_origins: Vec<String>,
    /// Speak TLS with this certificate chain (PEM); SIGHUP reads it again
    #[arg(long, env = "PROMLET_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "PROMLET_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Proxies whose X-Forwarded-For is believed, as addresses or networks
    #[arg(long, env = "PROMLET_TRUSTED_PROXIES", value_name = "CIDR,..", value_delimiter = ',')]
    trusted_proxies: Vec<String>,
    /// Who may make organisations
    #[arg(long, env = "PROMLET_ORG_CREATE", value_enum, default_value = "admin")]
    org_create: OrgCreate,
    /// Who may make an account beside the first one: people who are invited (first, invite), everybody who can read a mail
    /// (open), nobody (closed)
    #[arg(long, env = "PROMLET_SIGNUP", value_enum, default_value = "first")]
    signup: Signup,
    /// Where the master key lies, if not in the data folder
    #[arg(long, env = "PROMLET_MASTER_KEY_FILE", value_name = "FILE")]
    master_key_file: Option<PathBuf>,
    /// Sender of mail
    #[arg(long, env = "PROMLET_MAIL_FROM", value_name = "ADDRESS")]
    mail_from: Option<String>,
    /// A file of certificates (PEM) that the mail server's may be signed with, beside the web's
    #[arg(long, env = "PROMLET_SMTP_CA_FILE", value_name = "FILE")]
    smtp_ca_file: Option<PathBuf>,
    /// `console` prints mail on standard output; `smtp` needs PROMLET_SMTP_URL
    #[arg(long, env = "PROMLET_MAILER", value_name = "console|smtp")]
    mailer: Option<String>,
    #[command(flatten)]
    oauth: oauth::OauthFlags,
    /// Seconds a sign-in link lives, 60 to 3600
    #[arg(long, env = "PROMLET_MAGIC_LINK_TTL", value_name = "SECONDS", default_value = "600",
          value_parser = clap::value_parser!(u64).range(60..=3600))]
    magic_link_ttl: u64,
    /// Days after which even a busy session ends; 0: sessions slide without end
    #[arg(long, env = "PROMLET_SESSION_ABSOLUTE_DAYS", value_name = "DAYS", default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=36_500))]
    session_absolute_days: u32,
    /// Whether cookies carry Secure
    #[arg(long, env = "PROMLET_COOKIE_SECURE", value_enum, default_value = "auto")]
    cookie_secure: CookieSecure,
    /// Argon2id cost: memory in KiB, passes, lanes
    #[arg(long, env = "PROMLET_ARGON2", value_name = "M,T,P", default_value = "19456,2,1", value_parser = argon2_cost)]
    argon2: Argon2Cost,
    /// Requests a second and session
    #[arg(long, env = "PROMLET_RATE_CABINET_RPS", value_name = "N", default_value = "60",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate_cabinet_rps: u32,
    /// Requests a second and API key, where the key does not say
    #[arg(long, env = "PROMLET_RATE_EMBED_DEFAULT_RPS", value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate_embed_default_rps: u32,
    /// A query's longest run
    #[arg(long, env = "PROMLET_QUERY_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    query_timeout: Duration,
    /// Samples one query may load
    #[arg(long, env = "PROMLET_QUERY_MAX_SAMPLES", value_name = "N", default_value = "10000000")]
    query_max_samples: u64,
    /// Series one selector of a query may find [default: no limit but memory and time]
    #[arg(long, env = "PROMLET_QUERY_MAX_SERIES", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    query_max_series: Option<u64>,
    /// Series an organisation may have where it does not say [default: no limit but its share of the memory]
    #[arg(long, env = "PROMLET_MAX_SERIES_PER_ORG", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_series_per_org: Option<u32>,
    /// Bytes of memory for recent samples and for names of series, of all organisations together (64 MiB to
    /// 1 TiB). An organisation may use three times of what is left
    #[arg(long, env = "PROMLET_HEAD_MEMORY_BYTES", value_name = "N", default_value = "4294967296",
          value_parser = clap::value_parser!(u64).range(HEAD_MEMORY_BYTES_MIN..=HEAD_MEMORY_BYTES_MAX))]
    head_memory_bytes: u64,
    /// Queries running at once [default: twice the cores, at least 2]
    #[arg(long, env = "PROMLET_QUERY_CONCURRENCY", value_name = "N")]
    query_concurrency: Option<usize>,
    /// Parts of the query language, by Prometheus' names: promql-experimental-functions, promql-delayed-name-removal,
    /// promql-extended-range-selectors, promql-binop-fill-modifiers, use-start-timestamps
    #[arg(long, env = "PROMLET_ENABLE_FEATURE", value_name = "NAME,..", value_delimiter = ',')]
    enable_feature: Vec<String>,
    /// Bytes of values that all queries hold together; one organisation's at most half of them
    #[arg(long, env = "PROMLET_QUERY_MEMORY_BYTES", value_name = "N", default_value = "1073741824")]
    query_memory_bytes: u64,
    /// Bytes of answers to range queries that are kept to be used again; 0 keeps none
    #[arg(long, env = "PROMLET_QUERY_CACHE_BYTES", value_name = "N", default_value = "67108864")]
    query_cache_bytes: u64,
    /// Bytes of values from segments that are kept decoded for the next query; 0 keeps none
    #[arg(long, env = "PROMLET_DECODED_CACHE_BYTES", value_name = "N", default_value = "33554432")]
    decoded_cache_bytes: u64,
    /// `off` hides the API document
    #[arg(long, env = "PROMLET_DOCS", value_name = "on|off", default_value = "on", value_parser = on_off,
          action = clap::ArgAction::Set)]
    docs: bool,
    /// When a 2xx on samples is answered: `synced`, once they are on disk; `interval:1s` (100ms to 5s), once they are written:
    /// a power cut may take what was answered within the interval, a killed process loses nothing
    #[arg(long, env = "PROMLET_DURABILITY", value_name = "MODE", default_value = "synced", value_parser = durability)]
    durability: Durability,
    /// How long samples are kept where an organisation does not say; `none` keeps all
    #[arg(long, env = "PROMLET_RETENTION", value_name = "DURATION|none", default_value = "90d", value_parser = retention)]
    retention: Retention,
    /// How long the server must have been running while samples were too old before they are removed, so that a wrong clock
    /// can be put right; at most 72h, and at most a quarter of the retention
    #[arg(long, env = "PROMLET_EXPIRY_GRACE", value_name = "DURATION", default_value = "72h", value_parser = expiry_grace)]
    expiry_grace: Duration,
    /// How often checkpoints are made
    #[arg(long, env = "PROMLET_CHECKPOINT_EVERY", value_name = "DURATION", hide = true, value_parser = duration)]
    checkpoint_every: Option<Duration>,
    /// End a read-only start: write a damaged log anew without the records that cannot be read, keep the old one in quarantine/
    #[arg(long)]
    accept_loss: bool,
    /// The master key is lost: make a new one, drop what was sealed with the old (second factors, secrets that sign embed
    /// tokens) and say whose it was; the folder's old key file goes to quarantine/
    #[arg(long)]
    new_master_key: bool,
    /// Serve the UI's files from this folder (editing)
    #[arg(long, env = "PROMLET_UI_DIR", value_name = "DIR")]
    ui_dir: Option<PathBuf>,
    /// What is logged: a level, or tracing directives
    #[arg(long, env = "PROMLET_LOG", value_name = "LEVEL", default_value = "info")]
    log: String,
    /// How it is logged
    #[arg(long, env = "PROMLET_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
}

fn duration(text: &str) -> Result<Duration, String> {
    let ms = parse_duration(text).map_err(|e| e.to_string())?;
    u64::try_from(ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| "must be more than zero".into())
}

/// An `Option` of its own, since clap reads `Option` as "may be missing".
#[derive(Clone, Copy)]
struct Retention(Option<Duration>);

fn retention(text: &str) -> Result<Retention, String> {
    /// Less is a slip of the unit: it would throw nearly everything away.
    const LEAST: Duration = Duration::from_secs(3_600);
    if text == "none" {
        return Ok(Retention(None));
    }
    match duration(text)? {
        kept if kept >= LEAST => Ok(Retention(Some(kept))),
        _ => Err("an hour at least, as in 90d, or none".into()),
    }
}

fn expiry_grace(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(72 * 3_600);
    let ms = parse_duration(text).map_err(|e| e.to_string())?;
    let grace = u64::try_from(ms).ok().map(Duration::from_millis).filter(|grace| *grace <= MOST);
    grace.ok_or_else(|| "must be from 0s to 72h".into())
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("either on or off".into()),
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "synced" => Ok(Durability::Synced),
        _ => {
            let interval = text.strip_prefix("interval:").and_then(|text| duration(text).ok());
            let within = |interval: &Duration| {
                (Duration::from_millis(100)..=Duration::from_secs(5)).contains(interval)
            };
            interval.filter(within).map(Durability::Interval).ok_or_else(|| {
                "either `synced`: every 2xx on a write means the samples are on disk, or `interval:` and 100ms to 5s, within \
                 which they get there"
                    .into()
            })
        }
    }
}

fn argon2_cost(text: &str) -> Result<Argon2Cost, String> {
    let parts: Vec<u32> = text.split(',').map_while(|part| part.trim().parse().ok()).collect();
    let [memory_kib, passes, lanes] = parts[..] else {
        return Err("three numbers: memory in KiB, passes, lanes, as in 19456,2,1".into());
    };
    if !(8..=1_048_576).contains(&memory_kib)
        || !(1..=16).contains(&passes)
        || !(1..=16).contains(&lanes)
        || memory_kib < 8 * lanes
    {
        return Err("memory 8 to 1048576 KiB and 8 a lane at least, passes 1 to 16, lanes 1 to 16".into());
    }
    Ok(Argon2Cost { memory_kib, passes, lanes })
}

/// Why the settings do not hold together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line itself, or a request for help: print it and use its exit code.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// Two settings contradict each other, or one names something that is not there.
    #[error("{0}")]
    Settings(String),
}

impl ConfigError {
    /// Prints where such things go (help on stdout, errors on stderr) and answers the exit code.
    pub fn report(&self) -> u8 {
        match self {
            ConfigError::CommandLine(error) => {
                // A closed standard output while printing help is the reader's wish, not a failure.
                let _ = error.print();
                u8::try_from(error.exit_code()).unwrap_or(2)
            }
            ConfigError::Settings(text) => {
                eprintln!("promlet: {text}");
                2
            }
        }
    }
}

/// Reads the process's own command line and environment.
///
/// # Errors
/// [`ConfigError`] for anything that does not parse or hold together; also for `--help` and `--version`.
pub fn from_process() -> Result<Invocation, ConfigError> {
    refuse_empty_variables()?;
    let line = CommandLine::try_parse()?;
    match line.command {
        None => Ok(Invocation::Serve(settings(line.flags, "data/store")?)),
        Some(Command::Serve(flags)) => Ok(Invocation::Serve(settings(*flags, "data/store")?)),
        Some(Command::Demo(flags)) => Ok(Invocation::Demo(settings(*flags, "data/demo-store")?)),
        Some(Command::User(command)) => accounts(command.read()),
        Some(Command::LoginLink { email, told }) => accounts((told, AccountAsk::LoginLink { email })),
        Some(Command::Org(command)) => accounts(command.read()),
        Some(Command::Key(command)) => accounts(command.read()),
        Some(Command::Token(command)) => accounts(command.read()),
        Some(Command::Doctor { json, flags }) => {
            Ok(Invocation::Doctor { settings: settings(*flags, "data/store")?, json })
        }
        Some(Command::Seal(place)) => Ok(Invocation::Seal { dir: place.data_dir }),
        Some(Command::Backup { out, with_key, place }) => {
            Ok(Invocation::Backup { dir: place.data_dir, out, with_key })
        }
        Some(Command::Restore { dir, from, file: None }) => Ok(Invocation::Restore { dir, from }),
        Some(Command::Restore { dir, from, file: Some(file) }) => {
            Ok(Invocation::RestoreOne { dir, from, file, scratch: scratch() })
        }
        Some(Command::Check { dir, deep, json }) => {
            let flags = CommandLine::try_parse_from(["promlet"])?.flags;
            let master_key = master_key(flags.master_key_file)?;
            Ok(Invocation::Check { dir, deep, json, master_key, scratch: scratch() })
        }
        Some(Command::Repair { dir, to }) => Ok(Invocation::Repair { dir, to, scratch: scratch() }),
    }
}

/// A command about accounts takes the server's settings from the environment: on a stopped folder it is the server.
fn accounts((told, ask): (Told, AccountAsk)) -> Result<Invocation, ConfigError> {
    let line = CommandLine::try_parse_from(["promlet"])?;
    let settings = Settings { data_dir: told.data_dir, ..settings(line.flags, "data/store")? };
    Ok(Invocation::Accounts { settings, command: AccountCommand { ask, json: told.json } })
}

/// A password for a command: from PROMLET_PASSWORD, or from the file that PROMLET_PASSWORD_FILE names.
///
/// # Errors
/// [`ConfigError::Settings`] where both are set, or the file cannot be read.
pub fn password() -> Result<Option<Secret>, ConfigError> {
    secret("PROMLET_PASSWORD")
}

/// A folder of this process below the system's place for such, not made yet.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("promlet-{}", std::process::id()))
}

/// Where the environment and the flags say that the master key is; none: in the folder.
fn master_key(file: Option<PathBuf>) -> Result<Option<MasterKeySource>, ConfigError> {
    match (secret_value("PROMLET_MASTER_KEY"), file) {
        (Some(_), Some(_)) => Err(ConfigError::Settings(
            "PROMLET_MASTER_KEY and PROMLET_MASTER_KEY_FILE are both set; leave one".into(),
        )),
        (Some(value), None) => Ok(Some(MasterKeySource::Value(value))),
        (None, file) => Ok(file.map(MasterKeySource::File)),
    }
}

fn settings(flags: Flags, default_dir: &str) -> Result<Settings, ConfigError> {
    let set = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut warnings = variables::unread(set);
    let smtp_url = secret("PROMLET_SMTP_URL")?;
    let mail = mail(flags.mailer.as_deref(), smtp_url, flags.mail_from, flags.smtp_ca_file)?;
    let public_url = flags.public_url.map(|url| url.trim_end_matches('/').to_owned());
    if let Some(url) = &public_url {
        check_public_url(url, &mail)?;
    }
    let tls = flags.tls_cert.zip(flags.tls_key).map(|(cert, key)| TlsFiles { cert, key });
    if tls.is_some() && public_url.as_deref().is_some_and(|url| url.starts_with("http://")) {
        return Err(ConfigError::Settings(
            "PROMLET_TLS_CERT is set, but the public URL begins with http://: links would not work".into(),
        ));
    }
    if !flags.listen.ip().is_loopback()
        && tls.is_none()
        && !public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
    {
        warnings.push(format!(
            "listening on {} without https: passwords and cookies cross the network readable; put a TLS proxy in front and set \
             --public-url https://…",
            flags.listen
        ));
    }
    let master_key = master_key(flags.master_key_file)?;
    let switches = switches(flags.enable_feature, &mut warnings);
    let metrics_token = metrics_token(&mut warnings)?;
    Ok(Settings {
        listen: flags.listen,
        data_dir: flags.data_dir.unwrap_or_else(|| default_dir.into()),
        public_url,
        allowed_hosts: host_names(flags.allowed_hosts)?,
        trusted_origins: tidy_list(flags.trusted_origins),
        tls,
        trusted_proxies: tidy_list(flags.trusted_proxies),
        org_create: flags.org_create,
        signup: flags.signup,
        bootstrap: bootstrap()?,
        master_key,
        mail,
        oauth: oauth::settings(flags.oauth)?,
        magic_link_ttl: Duration::from_secs(flags.magic_link_ttl),
        session_absolute: (flags.session_absolute_days > 0)
            .then(|| Duration::from_secs(u64::from(flags.session_absolute_days) * 86_400)),
        cookie_secure: flags.cookie_secure,
        argon2: flags.argon2,
        durability: flags.durability,
        retention: flags.retention.0,
        expiry_grace: flags.expiry_grace,
        checkpoint_every: flags.checkpoint_every,
        rate_cabinet_rps: flags.rate_cabinet_rps,
        rate_embed_default_rps: flags.rate_embed_default_rps,
        query_timeout: flags.query_timeout,
        query_max_samples: flags.query_max_samples,
        query_max_series: flags.query_max_series,
        max_series_per_org: flags.max_series_per_org,
        head_memory_bytes: flags.head_memory_bytes,
        query_concurrency: flags.query_concurrency,
        switches,
        query_memory_bytes: flags.query_memory_bytes,
        query_cache_bytes: flags.query_cache_bytes,
        decoded_cache_bytes: flags.decoded_cache_bytes,
        accept_loss: flags.accept_loss,
        new_master_key: flags.new_master_key,
        metrics_token,
        docs: flags.docs,
        ui_dir: flags.ui_dir,
        log: flags.log,
        log_format: flags.log_format,
        warnings,
    })
}

/// A name that means nothing here may mean something to another Prometheus that is started with the same list.
fn switches(names: Vec<String>, warnings: &mut Vec<String>) -> Switches {
    let mut switches = Switches::default();
    for name in tidy_list(names) {
        if let Err(unknown) = switches.turn_on(&name) {
            warnings.push(format!("--enable-feature: {unknown}"));
        }
    }
    switches
}

fn tidy_list(items: Vec<String>) -> Vec<String> {
    items.into_iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

/// Names alone: what can never be in a `Host` header would be waited for in vain, and `*` might be thought to be every name.
fn host_names(items: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let is_name = |name: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        inner.parse::<std::net::IpAddr>().is_ok() || !name.is_empty() && name.bytes().all(fits)
    };
    let checked = tidy_list(items).into_iter().map(|item| {
        let name = item.strip_suffix('.').unwrap_or(&item);
        if is_name(name) {
            return Ok(name.to_owned());
        }
        Err(ConfigError::Settings(format!(
            "PROMLET_ALLOWED_HOSTS: {item:?} is no host name: it has neither scheme nor port nor *, as metrics.example.com"
        )))
    });
    checked.collect()
}

/// The least and the most memory of samples and names: 64 MiB, which leave 256 KiB for each organisation, and 1 TiB.
const HEAD_MEMORY_BYTES_MIN: u64 = 64 << 20;
const HEAD_MEMORY_BYTES_MAX: u64 = 1 << 40;

/// A token for `/metrics` of fewer bytes is told at the start: it is compared as often as somebody cares to ask.
const METRICS_TOKEN_BYTES: usize = 16;

fn metrics_token(warnings: &mut Vec<String>) -> Result<Option<Secret>, ConfigError> {
    let token = secret("PROMLET_METRICS_TOKEN")?;
    if token.as_ref().is_some_and(|token| token.reveal().len() < METRICS_TOKEN_BYTES) {
        warnings.push(format!(
            "PROMLET_METRICS_TOKEN has less than {METRICS_TOKEN_BYTES} bytes: that can be guessed; take `openssl rand -hex 32`"
        ));
    }
    Ok(token)
}

/// Console mail prints sign-in links; behind a public https name that would be a log full of keys (docs/specification.md K4).
fn check_public_url(url: &str, mail: &Mail) -> Result<(), ConfigError> {
    let host = url.strip_prefix("https://").map(|rest| {
        let authority = rest.split('/').next().unwrap_or_default();
        match authority.find(']') {
            Some(end) => authority.get(..=end).unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        }
    });
    if host.is_none() && !url.starts_with("http://") {
        return Err(ConfigError::Settings(format!(
            "--public-url {url:?} must begin with http:// or https://"
        )));
    }
    let public = host.is_some_and(|host| {
        host != "localhost" && !host.ends_with(".localhost") && !host.starts_with("127.") && host != "[::1]"
    });
    if public
        && matches!(mail, Mail::Console)
        && secret_value("PROMLET_ALLOW_CONSOLE_MAIL").is_none_or(|v| v.reveal() != "1")
    {
        return Err(ConfigError::Settings(format!(
            "with {url} mail cannot go to the console, where anybody who reads the log could sign in: set PROMLET_SMTP_URL, or \
             PROMLET_ALLOW_CONSOLE_MAIL=1 if only you read it"
        )));
    }
    Ok(())
}

fn mail(
    mailer: Option<&str>,
    url: Option<Secret>,
    from: Option<String>,
    ca_file: Option<PathBuf>,
) -> Result<Mail, ConfigError> {
    match (mailer, url) {
        (Some("console") | None, None) | (Some("console"), Some(_)) => Ok(Mail::Console),
        (Some("smtp") | None, Some(url)) => {
            let from = from.ok_or_else(|| {
                ConfigError::Settings("PROMLET_SMTP_URL is set: say the sender with PROMLET_MAIL_FROM".into())
            })?;
            Ok(Mail::Smtp { url, from, ca_file })
        }
        (Some("smtp"), None) => {
            Err(ConfigError::Settings("PROMLET_MAILER=smtp needs PROMLET_SMTP_URL".into()))
        }
        (Some(other), _) => {
            Err(ConfigError::Settings(format!("PROMLET_MAILER is console or smtp, not {other:?}")))
        }
    }
}

fn bootstrap() -> Result<Option<Bootstrap>, ConfigError> {
    let parts = (
        variable("PROMLET_BOOTSTRAP_EMAIL"),
        secret("PROMLET_BOOTSTRAP_PASSWORD")?,
        variable("PROMLET_BOOTSTRAP_ORG"),
    );
    match parts {
        (None, None, None) => Ok(None),
        (Some(email), Some(password), Some(org)) => Ok(Some(Bootstrap { email, password, org })),
        _ => Err(ConfigError::Settings(
            "the first account needs all three: PROMLET_BOOTSTRAP_EMAIL, PROMLET_BOOTSTRAP_PASSWORD (or …_PASSWORD_FILE) and \
             PROMLET_BOOTSTRAP_ORG"
                .into(),
        )),
    }
}

/// A secret from its variable, or from the file that `NAME_FILE` names (one trailing line end is not part of it).
fn secret(name: &str) -> Result<Option<Secret>, ConfigError> {
    let file = variable(&format!("{name}_FILE"));
    match (secret_value(name), file) {
        (Some(_), Some(_)) => {
            Err(ConfigError::Settings(format!("{name} and {name}_FILE are both set; leave one")))
        }
        (Some(value), None) => Ok(Some(value)),
        (None, None) => Ok(None),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|e| ConfigError::Settings(format!("{name}_FILE: cannot read {path}: {e}")))?;
            let text = text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
            Ok(Some(Secret(text.to_owned())))
        }
    }
}

fn secret_value(name: &str) -> Option<Secret> {
    variable(name).map(Secret)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// `PROMLET_LISTEN=` in a service file is a slip that could as well mean "the default" as "nothing": say so.
fn refuse_empty_variables() -> Result<(), ConfigError> {
    let empty = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let name = name.to_string_lossy().into_owned();
        (value.is_empty() && name.starts_with("PROMLET_")).then_some(name)
    };
    match std::env::vars_os().find_map(empty) {
        Some(name) => {
            Err(ConfigError::Settings(format!("{name} is set but empty; give it a value or unset it")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The settings of this command line.
    pub(crate) fn parse(args: &[&str]) -> Result<Settings, String> {
        let line = CommandLine::try_parse_from([&["promlet"], args].concat()).map_err(|e| e.to_string())?;
        let flags = match line.command {
            None => line.flags,
            Some(Command::Serve(flags) | Command::Demo(flags)) => *flags,
            Some(_) => return Err("it serves nothing".to_owned()),
        };
        let mut settings = settings(flags, "data/store").map_err(|e| e.to_string())?;
        // Of variables of the test run; `variables` has tests of its own.
        settings.warnings.retain(|warning| !warning.contains("is set and is no setting"));
        Ok(settings)
    }

    #[test]
    fn a_bare_promlet_serves_on_loopback_from_data_store() {
        let settings = parse(&[]).expect("defaults are valid");
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8095");
        assert_eq!(settings.data_dir, PathBuf::from("data/store"));
        assert_eq!(settings.rate_cabinet_rps, 60);
        assert_eq!(settings.rate_embed_default_rps, 100);
        assert_eq!(settings.retention, Some(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn retention_is_a_duration_or_none() {
        let kept = |text: &str| parse(&["--retention", text]).map(|settings| settings.retention);
        assert_eq!(kept("none"), Ok(None));
        assert_eq!(kept("1y"), Ok(Some(Duration::from_secs(365 * 86_400))));
    }

    #[test]
    fn flags_stand_with_and_without_the_command() {
        for args in [
            &["--listen", "127.0.0.1:1"][..],
            &["serve", "--listen", "127.0.0.1:1"],
            &["demo", "--listen", "127.0.0.1:1"],
        ] {
            assert_eq!(parse(args).expect("valid").listen.port(), 1, "{args:?}");
        }
    }

    #[test]
    fn samples_are_answered_once_synced_or_within_an_interval() {
        assert_eq!(parse(&[]).expect("valid").durability, Durability::Synced);
        let found = parse(&["--durability", "interval:1s"]).expect("valid").durability;
        assert_eq!(found, Durability::Interval(Duration::from_secs(1)));
    }

    #[test]
    fn lists_are_taken_apart_at_commas() {
        let settings = parse(&["--trusted-proxies", "10.0.0.0/8, fd00::/8,"]).expect("valid");
        assert_eq!(settings.trusted_proxies, ["10.0.0.0/8", "fd00::/8"]);
    }

    #[test]
    fn what_does_not_hold_together_is_refused_in_words() {
        let cases = [
            (&["--durability", "fast"][..], "synced"),
            (&["--durability", "interval:99ms"], "100ms to 5s"),
            (&["--durability", "interval:6s"], "100ms to 5s"),
            (&["--argon2", "1,1"], "three numbers"),
            (&["--argon2", "9,1,2"], "8 a lane"),
            (&["--query-timeout", "0s"], "more than zero"),
            (&["--retention", "0"], "more than zero"),
            (&["--expiry-grace", "73h"], "from 0s to 72h"),
            (&["--retention", "90"], "valid duration"),
            (&["--retention", "90s"], "an hour at least"),
            (&["--retention", "ever"], "invalid value"),
            (&["--mailer", "smtp"], "PROMLET_SMTP_URL"),
            (&["--public-url", "ftp://x"], "http://"),
            (&["--public-url", "https://metrics.example.com"], "PROMLET_SMTP_URL"),
            (&["--magic-link-ttl", "59"], "60"),
            (&["--tls-cert", "a.pem"], "--tls-key"),
            (&["--tls-cert", "a", "--tls-key", "b", "--public-url", "http://a"], "begins with http://"),
            (&["--magic-link-ttl", "3601"], "3600"),
            (&["--argon2", "8,17,1"], "passes 1 to 16"),
            (&["--signup", "maybe"], "invalid value"),
            (&["--session-absolute-days", "36501"], "36500"),
        ];
        for (args, words) in cases {
            let error = parse(args).expect_err("refused");
            assert!(error.contains(words), "{args:?}: {error}");
        }
    }

    #[test]
    fn a_feature_that_nobody_knows_is_a_warning_and_the_others_are_on() {
        let told = ["--enable-feature", "no-such-thing,promql-experimental-functions,native-histograms"];
        let settings = parse(&told).expect("allowed");
        assert!(settings.switches.syntax.experimental_functions);
        let [warning] = &settings.warnings[..] else { panic!("one: {:?}", settings.warnings) };
        assert!(warning.contains("unknown feature \"no-such-thing\""), "{warning}");
    }

    #[test]
    fn a_name_that_no_host_header_holds_is_refused() {
        let told = ["--allowed-hosts", "Metrics.example.com, grafana.internal.,192.0.2.1,[2001:db8::1]"];
        let names = ["Metrics.example.com", "grafana.internal", "192.0.2.1", "[2001:db8::1]"];
        assert_eq!(parse(&told).expect("names").allowed_hosts, names);
        for wrong in
            ["*", "*.example.com", "https://example.com", "example.com:8095", "example.com/x", "[x]", "."]
        {
            let error = parse(&["--allowed-hosts", wrong]).expect_err(wrong);
            assert!(error.contains("PROMLET_ALLOWED_HOSTS") && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn console_mail_is_for_this_machine() {
        for local in
            ["https://localhost:8095", "https://metrics.localhost", "https://127.0.0.1", "https://[::1]:8095"]
        {
            assert!(parse(&["--public-url", local]).is_ok(), "{local}");
        }
        for public in ["https://metrics.example.com", "https://[2001:db8::1]:8095", "https://192.0.2.1"] {
            assert!(parse(&["--public-url", public]).is_err(), "{public}");
        }
    }

    #[test]
    fn sessions_slide_without_end_unless_days_are_said() {
        assert_eq!(parse(&[]).expect("valid").session_absolute, None);
        let days = parse(&["--session-absolute-days", "90"]).expect("valid").session_absolute;
        assert_eq!(days, Some(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn a_listener_beyond_loopback_without_https_is_warned_about() {
        assert!(parse(&["--listen", "0.0.0.0:8095"]).expect("allowed").warnings[0].contains("without https"));
    }

    #[test]
    fn a_secret_never_prints_itself() {
        assert_eq!(format!("{:?}", Secret("hunter2".into())), "***");
    }
}
