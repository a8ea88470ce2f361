//! Parses flags and environment variables into settings: the only reader of the environment, and
//! the only place that uses clap.
//!
//! Every variable is `PROMLET_` and the flag's name in capitals (docs/specification.md E). A flag
//! takes precedence over its variable, and an empty variable is refused. Secrets come from the
//! environment or from a file named in `…_FILE`, never from a flag, which a process list would
//! show.

mod agent;
mod commands;
mod connect_command;
mod flags;
mod history_command;
mod move_command;
pub mod oauth;
mod rules_command;
mod settings;
mod variables;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use agent::{AgentSettings, AgentTarget};
use commands::AccountInvocation;
pub use commands::{
    AccountCommand, DashboardCommand, KeyCommand, KeyRates, LoginLinkCommand, OrgCommand, StatsCommand,
    TokenCommand, UserCommand,
};
pub use connect_command::{ConnectClient, ConnectCommand};

use crate::model::{EgressRules, Switches};

use flags::Flags;
pub use history_command::{
    ExportCommand, ExportKind, HistoryPlace, HistorySelection, ImportCommand, ImportKind,
};
pub use move_command::MoveCommand;
pub use oauth::{OauthClient, OauthSettings};
use rules_command::RulesSubcommand;
pub use rules_command::{RulesBackfillCommand, RulesCommand, RulesTestCommand};
pub use settings::{
    BootstrapSetting, CookieSecure, FollowSettings, LogFormat, MailSetting, MasterKeySetting, ScrapeSettings,
    SecretSetting, SelfScrapeMode, Settings, StandbyMode, TlsFiles,
};
pub use variables::known as known_variables;

/// A parsed command line.
#[derive(Debug)]
pub enum Invocation {
    /// `promlet serve`, also without a command.
    Serve(Settings),
    /// `promlet demo`.
    Demo(Settings),
    /// `promlet agent`: forwards received and scraped samples.
    Agent {
        /// The settings that an agent shares with a server.
        settings: Settings,
        /// The token, the rules and the targets.
        agent: AgentSettings,
    },
    /// `promlet user`, `org`, `key`, `token`, `login-link`, `connect`, `dashboard`: for the server
    /// that runs on the folder, or for a stopped folder, which is opened with these settings.
    Accounts {
        /// The settings that the server would have.
        settings: Settings,
        /// The command.
        command: AccountCommand,
        /// Print JSON.
        json: bool,
    },
    /// `promlet doctor`: diagnoses an installation with these settings.
    Doctor {
        /// The settings that the server would have.
        settings: Settings,
        /// Print JSON.
        json: bool,
    },
    /// `promlet rules`: commands on files of rules, without a server.
    Rules(RulesCommand),
    /// `promlet rules backfill`, by the server on this folder or, if none runs, in the folder.
    RulesBackfill {
        /// The settings for a stopped folder.
        settings: Settings,
        /// The arguments.
        command: Box<RulesBackfillCommand>,
    },
    /// `promlet follow`.
    Follow(Settings),
    /// `promlet promote`, for the follower on this folder or, if none runs, for the folder itself.
    Promote {
        /// The data folder.
        dir: PathBuf,
        /// Also promote a follower that has never caught up
        accepts_loss: bool,
    },
    /// `promlet seal`, for the server on this folder or, if none runs, for the folder itself.
    Seal {
        /// The data folder.
        dir: PathBuf,
    },
    /// `promlet import`, and `promlet verify-import`.
    Import {
        /// The settings that the server would have.
        settings: Settings,
        /// The command.
        command: Box<ImportCommand>,
        /// Compare the source with the stored samples instead.
        verify: bool,
    },
    /// `promlet export`.
    Export {
        /// The settings that the server would have.
        settings: Settings,
        /// The command.
        command: Box<ExportCommand>,
    },
    /// `promlet backup`.
    Backup {
        /// The data folder.
        dir: PathBuf,
        /// The folder to create.
        out: PathBuf,
        /// Include `master.key`.
        with_key: bool,
    },
    /// `promlet restore`.
    Restore {
        /// The data folder to create.
        dir: PathBuf,
        /// The backup.
        from: PathBuf,
    },
    /// `promlet restore --file`: restores one segment of a backup into a stopped folder.
    RestoreOne {
        /// The data folder.
        dir: PathBuf,
        /// The backup.
        from: PathBuf,
        /// The path of the segment, relative to both.
        file: PathBuf,
        /// A folder for a temporary copy of the accounts' database.
        scratch: PathBuf,
    },
    /// `promlet check`.
    Check {
        /// A data folder or a backup.
        dir: PathBuf,
        /// Check every block and every hash.
        deep: bool,
        /// Print JSON.
        json: bool,
        /// The master key, if it is not in the folder.
        master_key: Option<MasterKeySetting>,
        /// A folder for temporary copies.
        scratch: PathBuf,
    },
    /// `promlet scrape check`: reads a configuration and prints its targets.
    ScrapeCheck {
        /// The file.
        file: PathBuf,
        /// Print JSON.
        json: bool,
    },
    /// `promlet repair`.
    Repair {
        /// The damaged folder.
        dir: PathBuf,
        /// The folder to create.
        to: PathBuf,
        /// A folder for temporary copies.
        scratch: PathBuf,
    },
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
    /// Serve a data folder (also without a command)
    Serve(Box<Flags>),
    /// Serve an organisation `demo` with generated history and live metrics of this machine
    Demo(Box<Flags>),
    /// Receive and scrape samples and forward them, without accounts and queries: remote write,
    /// OTLP, text and --scrape-config in, remote write out. Samples wait in the data folder while a
    /// target is down
    Agent {
        /// The file with the rules and the targets (JSON)
        #[arg(long, env = "PROMLET_AGENT_CONFIG", value_name = "FILE")]
        config: PathBuf,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    #[command(flatten)]
    Account(AccountInvocation),
    /// Diagnose this installation; exit code 0 without findings, 1 with warnings, 2 if something
    /// does not work
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Follow another server as its standby: copy its samples and accounts, and answer reads
    Follow {
        /// The URL of the primary
        url: String,
        /// The file with the standby token of the primary
        #[arg(long, value_name = "FILE")]
        token_file: PathBuf,
        /// A file of certificates (PEM) to trust for the primary in addition to those of public
        /// authorities
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// Send the token over http to another machine. Use it only in a network that you trust
        #[arg(long)]
        insecure_http: bool,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Make a follower the primary. The old primary refuses changes as soon as it learns of that
    Promote {
        /// Also promote a follower that has not caught up since its base copy. Changes that it
        /// lacks are lost
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
    /// Write the samples in memory to segments and trim the log
    Seal(DataDirArg),
    /// Import samples from a file, from a Prometheus or from another server
    Import {
        #[command(flatten)]
        command: Box<ImportCommand>,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
    /// Compare the samples of a source with those that were imported from it
    VerifyImport {
        #[command(flatten)]
        command: Box<ImportCommand>,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
    /// Export samples to a file, or to blocks of a Prometheus
    Export {
        #[command(flatten)]
        command: Box<ExportCommand>,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
    /// Back up the folder of a running server, or a stopped folder
    Backup {
        /// The folder to create; it must not exist yet, or be empty
        out: PathBuf,
        /// Include the master key in the backup: anyone who has both can read every sealed secret
        #[arg(long)]
        with_key: bool,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
    /// Restore a data folder from a backup after verifying every hash, or restore one segment
    Restore {
        /// The data folder to create; it must not exist yet, or be empty. With --file: a stopped
        /// one
        dir: PathBuf,
        /// The backup
        from: PathBuf,
        /// Restore only this segment, which is damaged or missing: `segments/ORG/NAME.seg`
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Check a stopped data folder or a backup; exit code 0 without damage, 1 for damage that the
    /// next start repairs, 2 for loss, a folder that the server refuses, or one that cannot be
    /// read. Finds the master key as the server does (PROMLET_MASTER_KEY, PROMLET_MASTER_KEY_FILE)
    Check {
        /// The data folder or the backup
        dir: PathBuf,
        /// Also read and decode every block of every segment, or verify every hash of a backup
        #[arg(long)]
        deep: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check and test rule files, and write the past of recording rules
    #[command(subcommand)]
    Rules(RulesSubcommand),
    /// Check a scrape configuration
    Scrape {
        #[command(subcommand)]
        command: ScrapeSubcommand,
    },
    /// Save the provably undamaged data of a damaged folder to a new one, and report what is lost
    Repair {
        /// The damaged data folder; it is not changed
        dir: PathBuf,
        /// The folder to create; it must not exist yet, or be empty
        #[arg(long, value_name = "NEW")]
        to: PathBuf,
    },
}

#[derive(Subcommand)]
enum ScrapeSubcommand {
    /// Read a scrape configuration as --scrape-config does and print its targets; exit code 1 with
    /// file, line and column if it is wrong. No target is requested
    Check {
        /// The file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The option that names the data folder.
#[derive(Args, Clone)]
struct DataDirArg {
    /// The data folder
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR", default_value = "data/store")]
    data_dir: PathBuf,
}

/// The reason why the command line or the settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An error of the command line itself, or a request for help: print it and use its exit code.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// Two settings contradict each other, or one names something that does not exist.
    #[error("{0}")]
    Settings(String),
}

impl ConfigError {
    /// Prints the text (help on standard output, errors on standard error) and returns the exit
    /// code.
    pub fn report(&self) -> u8 {
        match self {
            ConfigError::CommandLine(error) => {
                // A reader may close standard output while help is printed, which is not a failure.
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

/// Parses the command line and environment of this process.
///
/// # Errors
/// [`ConfigError`] if the settings cannot be parsed or contradict each other; also for `--help` and
/// `--version`.
pub fn from_process() -> Result<Invocation, ConfigError> {
    refuse_empty_variables()?;
    let line = CommandLine::try_parse()?;
    match line.command {
        None => Ok(Invocation::Serve(settings(line.flags, "data/store")?)),
        Some(Command::Serve(flags)) => Ok(Invocation::Serve(settings(*flags, "data/store")?)),
        Some(Command::Demo(flags)) => Ok(Invocation::Demo(settings(*flags, "data/demo-store")?)),
        Some(Command::Agent { config, flags }) => {
            let settings = settings(*flags, "data/agent")?;
            let agent = agent::read(&config, secret("PROMLET_AGENT_TOKEN")?)?;
            agent.check_listener(&settings)?;
            Ok(Invocation::Agent { settings, agent })
        }
        Some(Command::Account(invocation)) => accounts(invocation),
        Some(Command::Doctor { json, flags }) => {
            Ok(Invocation::Doctor { settings: settings(*flags, "data/store")?, json })
        }
        Some(Command::Follow { url, token_file, ca_file, insecure_http, flags }) => {
            let follow = FollowSettings { url, token: token_in(&token_file)?, ca_file, insecure_http };
            let settings = settings(*flags, "data/standby")?;
            Ok(Invocation::Follow(Settings { follow: Some(follow), ..settings }))
        }
        Some(Command::Promote { accept_loss, data_dir_arg }) => {
            Ok(Invocation::Promote { dir: data_dir_arg.data_dir, accepts_loss: accept_loss })
        }
        Some(Command::Seal(data_dir_arg)) => Ok(Invocation::Seal { dir: data_dir_arg.data_dir }),
        Some(Command::Import { command, data_dir_arg }) => {
            Ok(Invocation::Import { settings: stopped_settings(data_dir_arg)?, command, verify: false })
        }
        Some(Command::VerifyImport { command, data_dir_arg }) => {
            Ok(Invocation::Import { settings: stopped_settings(data_dir_arg)?, command, verify: true })
        }
        Some(Command::Export { command, data_dir_arg }) => {
            Ok(Invocation::Export { settings: stopped_settings(data_dir_arg)?, command })
        }
        Some(Command::Backup { out, with_key, data_dir_arg }) => {
            Ok(Invocation::Backup { dir: data_dir_arg.data_dir, out, with_key })
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
        Some(Command::Rules(RulesSubcommand::Backfill { command, data_dir_arg })) => {
            Ok(Invocation::RulesBackfill { settings: stopped_settings(data_dir_arg)?, command })
        }
        Some(Command::Rules(RulesSubcommand::Files(command))) => Ok(Invocation::Rules(command)),
        Some(Command::Scrape { command: ScrapeSubcommand::Check { file, json } }) => {
            Ok(Invocation::ScrapeCheck { file, json })
        }
        Some(Command::Repair { dir, to }) => Ok(Invocation::Repair { dir, to, scratch: scratch() }),
    }
}

/// Returns the server's settings from the environment, which a stopped folder is opened with.
fn stopped_settings(data_dir_arg: DataDirArg) -> Result<Settings, ConfigError> {
    let line = CommandLine::try_parse_from(["promlet"])?;
    Ok(Settings { data_dir: data_dir_arg.data_dir, ..settings(line.flags, "data/store")? })
}

/// Builds an account command with the server's settings from the environment, which a stopped
/// folder is opened with.
fn accounts(invocation: AccountInvocation) -> Result<Invocation, ConfigError> {
    let AccountInvocation { command, common } = invocation;
    let line = CommandLine::try_parse_from(["promlet"])?;
    let settings = Settings { data_dir: common.data_dir, ..settings(line.flags, "data/store")? };
    Ok(Invocation::Accounts { settings, command, json: common.json })
}

/// Returns the password for a command from PROMLET_PASSWORD, or from the file that
/// PROMLET_PASSWORD_FILE names.
///
/// # Errors
/// [`ConfigError::Settings`] if both are set, or the file cannot be read.
pub fn password() -> Result<Option<SecretSetting>, ConfigError> {
    secret("PROMLET_PASSWORD")
}

/// Returns the path of a temporary folder for this process, which does not exist yet.
fn scratch() -> PathBuf {
    let named = |number: u32| std::env::temp_dir().join(format!("promlet-{}-{number}", std::process::id()));
    // A killed process with the same id may have left its folder.
    (0..u32::MAX).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(u32::MAX))
}

/// Returns the source of the master key; `None` for the folder.
fn master_key(file: Option<PathBuf>) -> Result<Option<MasterKeySetting>, ConfigError> {
    match (secret_value("PROMLET_MASTER_KEY"), file) {
        (Some(_), Some(_)) => Err(ConfigError::Settings(
            "PROMLET_MASTER_KEY and PROMLET_MASTER_KEY_FILE are both set; leave one".into(),
        )),
        (Some(value), None) => Ok(Some(MasterKeySetting::Value(value))),
        (None, file) => Ok(file.map(MasterKeySetting::File)),
    }
}

fn external_labels(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut labels = BTreeMap::new();
    for (name, value) in pairs {
        if labels.contains_key(&name) {
            return Err(ConfigError::Settings(format!("--external-labels names {name} twice")));
        }
        labels.insert(name, value);
    }
    Ok(labels)
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
    let is_secret = tls.is_some() || public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    if !flags.listen.ip().is_loopback() && !is_secret {
        warnings.push(readable_on(flags.listen));
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
        outbound_allow: outbound_allow(&flags.outbound_allow)?,
        connections_max: flags.connections_max,
        push_ttl: flags.push_ttl,
        live_streams_per_key: flags.live_streams_per_key,
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
        forward_log_bytes: flags.forward_log_bytes,
        notify_mails_per_hour: flags.notify_mails_per_hour,
        notify_files: flags.notify_files.clone(),
        query_concurrency: flags.query_concurrency,
        switches,
        query_memory_bytes: flags.query_memory_bytes,
        query_cache_bytes: flags.query_cache_bytes,
        decoded_cache_bytes: flags.decoded_cache_bytes,
        accept_loss: flags.accept_loss,
        new_master_key: flags.new_master_key,
        metrics_token,
        docs: flags.docs,
        dashboards: flags.dashboards,
        rules: flags.rules,
        rules_org: flags.rules_org,
        rules_catch_up: flags.rules_catch_up,
        external_labels: Arc::new(external_labels(flags.external_labels)?),
        scrape: ScrapeSettings {
            config: flags.scrape_config,
            org: flags.scrape_org,
            org_admins: flags.scrape_org_admins,
            itself: flags.self_scrape,
        },
        ui_dir: flags.ui_dir,
        log: flags.log,
        log_format: flags.log_format,
        standby: flags.standby,
        standby_token: flags.standby_token_file.as_deref().map(token_in).transpose()?,
        follow: None,
        warnings,
    })
}

/// Returns the warning about a public address without https.
fn readable_on(address: SocketAddr) -> String {
    format!(
        "listening on {address} without https: passwords and cookies cross the network readable; put a TLS proxy \
         in front and set --public-url https://…"
    )
}

fn outbound_allow(entries: &[String]) -> Result<EgressRules, ConfigError> {
    EgressRules::parse(entries.iter().map(String::as_str)).map_err(|entry| {
        let message = format!("--outbound-allow takes networks, hosts and host:port, not {entry:?}");
        ConfigError::Settings(message)
    })
}

/// The length in bytes below which a standby token is refused: it opens everything.
const STANDBY_TOKEN_BYTES: usize = 32;

/// Reads a standby token from its file.
fn token_in(file: &std::path::Path) -> Result<SecretSetting, ConfigError> {
    let refused = |why: String| ConfigError::Settings(format!("the token file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| refused(e.to_string()))?;
    let token = text.trim();
    let is_plain = token.bytes().all(|b| b.is_ascii_graphic());
    if token.len() < STANDBY_TOKEN_BYTES || !is_plain {
        return Err(refused(format!(
            "a standby token has at least {STANDBY_TOKEN_BYTES} printable characters: generate one with `openssl rand -hex 32`"
        )));
    }
    Ok(SecretSetting::new(token.to_owned()))
}

/// Turns on features by name. Unknown names are warnings, because the same list may be meant for
/// Prometheus.
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

/// Checks host names. Text that can never be in a `Host` header would be useless, and `*` might be
/// taken for a wildcard.
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
            "PROMLET_ALLOWED_HOSTS: {item:?} is not a host name: give no scheme, no port and no *, as in metrics.example.com"
        )))
    });
    checked.collect()
}

/// The length in bytes below which a token for `/metrics` gets a warning. Clients may try tokens
/// without a limit.
const METRICS_TOKEN_BYTES: usize = 16;

fn metrics_token(warnings: &mut Vec<String>) -> Result<Option<SecretSetting>, ConfigError> {
    let token = secret("PROMLET_METRICS_TOKEN")?;
    if token.as_ref().is_some_and(|token| token.reveal().len() < METRICS_TOKEN_BYTES) {
        warnings.push(format!(
            "PROMLET_METRICS_TOKEN has less than {METRICS_TOKEN_BYTES} bytes: it can be guessed; generate one with `openssl rand -hex 32`"
        ));
    }
    Ok(token)
}

/// Refuses console mail with a public https URL: it prints sign-in links into the log
/// (docs/specification.md K4).
fn check_public_url(url: &str, mail: &MailSetting) -> Result<(), ConfigError> {
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
        && matches!(mail, MailSetting::Console)
        && secret_value("PROMLET_ALLOW_CONSOLE_MAIL").is_none_or(|v| v.reveal() != "1")
    {
        return Err(ConfigError::Settings(format!(
            "with {url} mail cannot be printed to the console, because everyone who reads the log could sign in: set PROMLET_SMTP_URL, or \
             PROMLET_ALLOW_CONSOLE_MAIL=1 if only you read it"
        )));
    }
    Ok(())
}

fn mail(
    mailer: Option<&str>,
    url: Option<SecretSetting>,
    from: Option<String>,
    ca_file: Option<PathBuf>,
) -> Result<MailSetting, ConfigError> {
    match (mailer, url) {
        (Some("console") | None, None) | (Some("console"), Some(_)) => Ok(MailSetting::Console),
        (Some("smtp") | None, Some(url)) => {
            let from = from.ok_or_else(|| {
                ConfigError::Settings("PROMLET_SMTP_URL is set: set the sender with PROMLET_MAIL_FROM".into())
            })?;
            Ok(MailSetting::Smtp { url, from, ca_file })
        }
        (Some("smtp"), None) => {
            Err(ConfigError::Settings("PROMLET_MAILER=smtp needs PROMLET_SMTP_URL".into()))
        }
        (Some(other), _) => {
            Err(ConfigError::Settings(format!("PROMLET_MAILER is console or smtp, not {other:?}")))
        }
    }
}

fn bootstrap() -> Result<Option<BootstrapSetting>, ConfigError> {
    let parts = (
        variable("PROMLET_BOOTSTRAP_EMAIL"),
        secret("PROMLET_BOOTSTRAP_PASSWORD")?,
        variable("PROMLET_BOOTSTRAP_ORG"),
    );
    match parts {
        (None, None, None) => Ok(None),
        (Some(email), Some(password), Some(org)) => Ok(Some(BootstrapSetting { email, password, org })),
        _ => Err(ConfigError::Settings(
            "the first account needs all three: PROMLET_BOOTSTRAP_EMAIL, PROMLET_BOOTSTRAP_PASSWORD (or …_PASSWORD_FILE) and \
             PROMLET_BOOTSTRAP_ORG"
                .into(),
        )),
    }
}

/// Returns a secret from its variable, or from the file that `NAME_FILE` names, without one
/// trailing line end.
fn secret(name: &str) -> Result<Option<SecretSetting>, ConfigError> {
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
            match text {
                "" => Err(ConfigError::Settings(format!("{name}_FILE: {path} is empty"))),
                text => Ok(Some(SecretSetting::new(text.to_owned()))),
            }
        }
    }
}

fn secret_value(name: &str) -> Option<SecretSetting> {
    variable(name).map(SecretSetting::new)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Refuses empty variables such as `PROMLET_LISTEN=`, which could mean the default or nothing.
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
pub(crate) mod tests;
