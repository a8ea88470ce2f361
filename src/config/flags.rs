//! The flags of a server: their variables, defaults and parsers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::oauth::OauthFlags;
use super::settings::{CookieSecure, LogFormat, SelfScrapeMode, StandbyMode};
use crate::identity::{Argon2Cost, OrgCreate, SignupMode};
use crate::model::{METRIC_NAME, is_label_name, parse_duration};
use crate::tsdb::Durability;

/// The bounds of the memory of samples and names: 64 MiB, which leave 256 KiB for each
/// organisation, and 1 TiB.
const HEAD_MEMORY_BYTES_MIN: u64 = 64 << 20;
const HEAD_MEMORY_BYTES_MAX: u64 = 1 << 40;
/// The bounds of the log that waits for its consumers.
const FORWARD_LOG_BYTES_MIN: u64 = 64 << 20;
const FORWARD_LOG_BYTES_MAX: u64 = 1 << 50;

#[derive(Args, Clone)]
pub(super) struct Flags {
    /// Address and port to listen on
    #[arg(long, env = "PROMLET_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8095")]
    pub(super) listen: SocketAddr,
    /// The data folder [default: data/store, for demo data/demo-store]
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// The URL of the server for people [default: http://LISTEN]
    #[arg(long, env = "PROMLET_PUBLIC_URL", value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Further host names to accept
    #[arg(long, env = "PROMLET_ALLOWED_HOSTS", value_name = "HOST,..", value_delimiter = ',')]
    pub(super) allowed_hosts: Vec<String>,
    /// Origins of a front end under development
    #[arg(long, env = "PROMLET_TRUSTED_ORIGINS", value_name = "ORIGIN,..", value_delimiter = ',')]
    pub(super) trusted_origins: Vec<String>,
    /// Serve TLS with this certificate chain (PEM); SIGHUP reloads it
    #[arg(long, env = "PROMLET_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "PROMLET_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// Proxies whose X-Forwarded-For is trusted, as addresses or networks
    #[arg(long, env = "PROMLET_TRUSTED_PROXIES", value_name = "CIDR,..", value_delimiter = ',')]
    pub(super) trusted_proxies: Vec<String>,
    /// Private addresses that targets of organisations may have, as networks, hosts or host:port.
    /// Addresses of this server need host:port
    #[arg(long, env = "PROMLET_OUTBOUND_ALLOW", value_name = "CIDR|HOST[:PORT],..", value_delimiter = ',')]
    pub(super) outbound_allow: Vec<String>,
    /// Time to live of pushed groups that set none [default: they do not expire]
    #[arg(long, env = "PROMLET_PUSH_TTL", value_name = "DURATION", value_parser = duration)]
    pub(super) push_ttl: Option<Duration>,
    /// Streams of live queries of one API key and its tokens at once
    #[arg(long, env = "PROMLET_LIVE_STREAMS_PER_KEY", value_name = "N", default_value = "10000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) live_streams_per_key: u32,
    /// Connections open at once [default: 16384; fewer with less memory or file descriptors]
    #[arg(long, env = "PROMLET_CONNECTIONS_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub(super) connections_max: Option<u32>,
    /// Who may create organisations
    #[arg(long, env = "PROMLET_ORG_CREATE", value_enum, default_value = "admin")]
    pub(super) org_create: OrgCreate,
    /// Who may create an account, apart from the first one: invited people (first, invite),
    /// everyone who can receive a mail (open), no one (closed)
    #[arg(long, env = "PROMLET_SIGNUP", value_enum, default_value = "first")]
    pub(super) signup: SignupMode,
    /// The file with the master key, if it is not in the data folder
    #[arg(long, env = "PROMLET_MASTER_KEY_FILE", value_name = "FILE")]
    pub(super) master_key_file: Option<PathBuf>,
    /// Sender of mail
    #[arg(long, env = "PROMLET_MAIL_FROM", value_name = "ADDRESS")]
    pub(super) mail_from: Option<String>,
    /// A file of certificates (PEM) to trust for the mail server in addition to those of public
    /// authorities
    #[arg(long, env = "PROMLET_SMTP_CA_FILE", value_name = "FILE")]
    pub(super) smtp_ca_file: Option<PathBuf>,
    /// `console` prints mail on standard output; `smtp` needs PROMLET_SMTP_URL
    #[arg(long, env = "PROMLET_MAILER", value_name = "console|smtp")]
    pub(super) mailer: Option<String>,
    #[command(flatten)]
    pub(super) oauth: OauthFlags,
    /// Lifetime of a sign-in link in seconds, 60 to 3600
    #[arg(long, env = "PROMLET_MAGIC_LINK_TTL", value_name = "SECONDS", default_value = "600",
          value_parser = clap::value_parser!(u64).range(60..=3600))]
    pub(super) magic_link_ttl: u64,
    /// Days after which even an active session ends; 0: sessions are extended without end
    #[arg(long, env = "PROMLET_SESSION_ABSOLUTE_DAYS", value_name = "DAYS", default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=36_500))]
    pub(super) session_absolute_days: u32,
    /// When cookies have the attribute Secure
    #[arg(long, env = "PROMLET_COOKIE_SECURE", value_enum, default_value = "auto")]
    pub(super) cookie_secure: CookieSecure,
    /// Argon2id cost: memory in KiB, passes, lanes
    #[arg(long, env = "PROMLET_ARGON2", value_name = "M,T,P", default_value = "19456,2,1", value_parser = argon2_cost)]
    pub(super) argon2: Argon2Cost,
    /// Requests a second of one session
    #[arg(long, env = "PROMLET_RATE_CABINET_RPS", value_name = "N", default_value = "60",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rate_cabinet_rps: u32,
    /// Requests a second of an API key's embed tokens, for keys that set none
    #[arg(long, env = "PROMLET_RATE_EMBED_DEFAULT_RPS", value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rate_embed_default_rps: u32,
    /// The timeout of queries, and the greatest that a request may set
    #[arg(long, env = "PROMLET_QUERY_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(super) query_timeout: Duration,
    /// Samples that one query may load
    #[arg(long, env = "PROMLET_QUERY_MAX_SAMPLES", value_name = "N", default_value = "10000000")]
    pub(super) query_max_samples: u64,
    /// Series that one selector of a query may match [default: limited only by memory and time]
    #[arg(long, env = "PROMLET_QUERY_MAX_SERIES", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) query_max_series: Option<u64>,
    /// Series of an organisation that sets no limit [default: limited only by its share of the
    /// memory]
    #[arg(long, env = "PROMLET_MAX_SERIES_PER_ORG", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_series_per_org: Option<u32>,
    /// Bytes of memory for recent samples and names of series, over all organisations (64 MiB to 1
    /// TiB). An organisation may use at most three times the remaining memory
    #[arg(long, env = "PROMLET_HEAD_MEMORY_BYTES", value_name = "N", default_value = "4294967296",
          value_parser = clap::value_parser!(u64).range(HEAD_MEMORY_BYTES_MIN..=HEAD_MEMORY_BYTES_MAX))]
    pub(super) head_memory_bytes: u64,
    /// Bytes of the log above which it no longer waits for forwarding targets that have not read it
    /// (64 MiB to 1 PiB). They then lose the oldest records; no stored sample is lost
    #[arg(long, env = "PROMLET_FORWARD_LOG_BYTES", value_name = "N", default_value = "8589934592",
          value_parser = clap::value_parser!(u64).range(FORWARD_LOG_BYTES_MIN..=FORWARD_LOG_BYTES_MAX))]
    pub(super) forward_log_bytes: u64,
    /// Mails about alerts that an organisation may send in an hour (1 to 10,000)
    #[arg(long, env = "PROMLET_NOTIFY_MAILS_PER_HOUR", value_name = "N", default_value = "60",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) notify_mails_per_hour: u32,
    /// Folder with files of Alertmanagers (file_sd in JSON or YAML), which notifications of every
    /// organisation may name
    #[arg(long, env = "PROMLET_NOTIFY_FILES", value_name = "DIR")]
    pub(super) notify_files: Option<PathBuf>,
    /// Queries that run at once [default: twice the cores, at least 2]
    #[arg(long, env = "PROMLET_QUERY_CONCURRENCY", value_name = "N")]
    pub(super) query_concurrency: Option<usize>,
    /// Optional parts of the query language, by Prometheus' names: promql-experimental-functions,
    /// promql-delayed-name-removal, promql-extended-range-selectors, promql-binop-fill-modifiers,
    /// use-start-timestamps
    #[arg(long, env = "PROMLET_ENABLE_FEATURE", value_name = "NAME,..", value_delimiter = ',')]
    pub(super) enable_feature: Vec<String>,
    /// Bytes of values in memory over all queries; at most half of them for one organisation
    #[arg(long, env = "PROMLET_QUERY_MEMORY_BYTES", value_name = "N", default_value = "1073741824")]
    pub(super) query_memory_bytes: u64,
    /// Bytes of cached results of range queries; 0 disables the cache
    #[arg(long, env = "PROMLET_QUERY_CACHE_BYTES", value_name = "N", default_value = "67108864")]
    pub(super) query_cache_bytes: u64,
    /// Bytes of cached values decoded from segments; 0 disables the cache
    #[arg(long, env = "PROMLET_DECODED_CACHE_BYTES", value_name = "N", default_value = "33554432")]
    pub(super) decoded_cache_bytes: u64,
    /// `off` hides the API document
    #[arg(long, env = "PROMLET_DOCS", value_name = "on|off", default_value = "on", value_parser = on_off,
          action = clap::ArgAction::Set)]
    pub(super) docs: bool,
    /// Whether a second server may follow this one (`promlet follow`): `async` acknowledges changes
    /// before the standby has them, `sync` afterwards, and none while no standby is connected
    #[arg(
        long,
        env = "PROMLET_STANDBY",
        value_enum,
        default_value = "off",
        requires_if("async", "standby_token_file"),
        requires_if("sync", "standby_token_file")
    )]
    pub(super) standby: StandbyMode,
    /// The file with the token of the standby
    #[arg(long, env = "PROMLET_STANDBY_TOKEN_FILE", value_name = "FILE")]
    pub(super) standby_token_file: Option<PathBuf>,
    /// When a write of samples is acknowledged: `synced`, once they are on disk; `interval:1s`
    /// (100ms to 5s), once they are written: a power cut may lose what was acknowledged within the
    /// interval, a killed process loses nothing
    #[arg(long, env = "PROMLET_DURABILITY", value_name = "MODE", default_value = "synced", value_parser = durability)]
    pub(super) durability: Durability,
    /// How long samples are kept for organisations that set no retention; `none` keeps all
    #[arg(long, env = "PROMLET_RETENTION", value_name = "DURATION|none", default_value = "90d", value_parser = retention)]
    pub(super) retention: RetentionArg,
    /// How long the server must have been running while samples were too old before they are
    /// removed, so that a wrong clock can be corrected; at most 72h, and at most a quarter of the
    /// retention
    #[arg(long, env = "PROMLET_EXPIRY_GRACE", value_name = "DURATION", default_value = "72h", value_parser = expiry_grace)]
    pub(super) expiry_grace: Duration,
    /// How often checkpoints are made
    #[arg(long, env = "PROMLET_CHECKPOINT_EVERY", value_name = "DURATION", hide = true, value_parser = duration)]
    pub(super) checkpoint_every: Option<Duration>,
    /// End a read-only start: rewrite a damaged log without its unreadable records and keep the old
    /// one in quarantine/
    #[arg(long)]
    pub(super) accept_loss: bool,
    /// Replace a lost master key: drop the secrets sealed with it (second factors, secrets that
    /// sign embed tokens), report their owners, and move the folder's old key file to quarantine/
    #[arg(long)]
    pub(super) new_master_key: bool,
    /// Show the dashboards (*.json) of this folder to all organisations, read-only; changes of the
    /// files are read within seconds
    #[arg(long, env = "PROMLET_DASHBOARDS", value_name = "DIR")]
    pub(super) dashboards: Option<PathBuf>,
    /// Evaluate the rules of this file, or of the YAML files of this folder, as Prometheus' rule
    /// files are written. SIGHUP reads them again; a file with a mistake changes nothing
    #[arg(long, env = "PROMLET_RULES", value_name = "PATH")]
    pub(super) rules: Option<PathBuf>,
    /// The organisation of the rules of --rules; the first one by default
    #[arg(long, env = "PROMLET_RULES_ORG", value_name = "SLUG", requires = "rules")]
    pub(super) rules_org: Option<String>,
    /// Age up to which missed evaluations of rules are caught up; 0s skips all of them
    #[arg(long, env = "PROMLET_RULES_CATCH_UP", value_name = "DURATION", default_value = "0s", value_parser = rules_catch_up)]
    pub(super) rules_catch_up: Duration,
    /// External labels: `$externalLabels` in templates of rules. Alertmanagers get them with each
    /// alert that has no label of the same name
    #[arg(long, env = "PROMLET_EXTERNAL_LABELS", value_name = "NAME=VALUE,..", value_delimiter = ',', value_parser = external_label)]
    pub(super) external_labels: Vec<(String, String)>,
    /// Scrape the targets of this file (`scrape_configs` as Prometheus writes them). SIGHUP reads
    /// it again
    #[arg(long, env = "PROMLET_SCRAPE_CONFIG", value_name = "FILE")]
    pub(super) scrape_config: Option<PathBuf>,
    /// The organisation that gets the samples of --scrape-config [default: the first one]
    #[arg(long, env = "PROMLET_SCRAPE_ORG", value_name = "SLUG")]
    pub(super) scrape_org: Option<String>,
    /// Store the metrics of this server and of its machine (jobs `promlet` and `host`) every 15 s
    /// in the organisation of --scrape-org or the first one: `on` always, `auto` only if it has no
    /// limits and, without --scrape-org, while it is the only one and has an administrator of the
    /// server
    #[arg(long, env = "PROMLET_SELF_SCRAPE", value_enum, default_value = "auto")]
    pub(super) self_scrape: SelfScrapeMode,
    /// `on` lets administrators of organisations set scrape configurations, whose targets are then
    /// limited to public addresses and --outbound-allow; `off` only administrators of the server
    #[arg(long, env = "PROMLET_SCRAPE_ORG_ADMINS", value_name = "on|off", default_value = "off", value_parser = on_off,
          action = clap::ArgAction::Set)]
    pub(super) scrape_org_admins: bool,
    /// Serve the UI's files from this folder, for editing them
    #[arg(long, env = "PROMLET_UI_DIR", value_name = "DIR")]
    pub(super) ui_dir: Option<PathBuf>,
    /// The log filter: a level, or tracing directives
    #[arg(long, env = "PROMLET_LOG", value_name = "LEVEL", default_value = "info")]
    pub(super) log: String,
    /// The format of the log
    #[arg(long, env = "PROMLET_LOG_FORMAT", value_enum, default_value = "text")]
    pub(super) log_format: LogFormat,
}

impl ValueEnum for OrgCreate {
    fn value_variants<'a>() -> &'a [OrgCreate] {
        &[OrgCreate::Admin, OrgCreate::Any]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            OrgCreate::Admin => PossibleValue::new("admin").help("Administrators of the server"),
            OrgCreate::Any => PossibleValue::new("any").help("Everyone with an account"),
        })
    }
}

impl ValueEnum for SignupMode {
    fn value_variants<'a>() -> &'a [SignupMode] {
        &[SignupMode::First, SignupMode::Open, SignupMode::Invite, SignupMode::Closed]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            SignupMode::First | SignupMode::Invite => "Invited people only",
            SignupMode::Open => "Everyone who can receive a mail",
            SignupMode::Closed => "No one, not even invited people",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let ms = parse_duration(text).map_err(|e| e.to_string())?;
    u64::try_from(ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| "must be more than zero".into())
}

/// Wraps an `Option`, because clap reads a plain `Option` as "may be missing".
#[derive(Clone, Copy)]
pub(super) struct RetentionArg(pub(super) Option<Duration>);

fn retention(text: &str) -> Result<RetentionArg, String> {
    /// Shorter retentions are refused, because a mistaken unit would delete nearly all samples.
    const LEAST: Duration = Duration::from_secs(3_600);
    if text == "none" {
        return Ok(RetentionArg(None));
    }
    match duration(text)? {
        kept if kept >= LEAST => Ok(RetentionArg(Some(kept))),
        _ => Err("an hour at least, as in 90d, or none".into()),
    }
}

fn expiry_grace(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(72 * 3_600);
    let ms = parse_duration(text).map_err(|e| e.to_string())?;
    let grace = u64::try_from(ms).ok().map(Duration::from_millis).filter(|grace| *grace <= MOST);
    grace.ok_or_else(|| "must be from 0s to 72h".into())
}

fn rules_catch_up(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(24 * 3_600);
    let ms = parse_duration(text).map_err(|e| e.to_string())?;
    let time = u64::try_from(ms).ok().map(Duration::from_millis).filter(|time| *time <= MOST);
    time.ok_or_else(|| "must be from 0s to 24h".into())
}

fn external_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    if !is_label_name(name) || name == METRIC_NAME {
        return Err(format!("{name:?} cannot be the name of a label"));
    }
    if value.is_empty() {
        return Err(format!("the label {name} has no value"));
    }
    Ok((name.to_owned(), value.to_owned()))
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
