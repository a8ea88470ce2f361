//! The account commands: their grammar on the command line and their JSON on the admin socket.
//!
//! `cli` adds the passwords and tokens, which are never arguments, and `server` runs the commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::connect_command::ConnectCommand;
use super::flags::duration;
use super::move_command::MoveCommand;
use super::settings::SecretSetting;

/// A command on accounts, organisations, API keys or tokens. Accounts are named by their address,
/// organisations by their slug.
///
/// Its JSON is one object for all groups: `{"what":"user_list","search":""}`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize)]
#[serde(untagged)]
pub enum AccountCommand {
    /// Manage accounts of a running server or a stopped folder
    #[command(subcommand)]
    User(UserCommand),
    /// Print a link that signs an account in once, without mail
    LoginLink(LoginLinkCommand),
    /// Manage organisations and their members
    #[command(subcommand)]
    Org(OrgCommand),
    /// Manage API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Mint and inspect embed tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the configuration of a client of an organisation, with a new API key
    Connect(ConnectCommand),
    /// Import, export and list dashboards, and check files of dashboards
    #[command(subcommand)]
    Dashboard(DashboardCommand),
    /// Return totals of the running server, for `promlet doctor`
    #[command(skip)]
    Stats(StatsCommand),
}

/// The values of the parameter `what`: the names of all commands in their JSON, for the error about
/// another one.
const COMMAND_NAMES: &[&str] = &[
    "user_create",
    "user_list",
    "user_change",
    "user_set_password",
    "user_reset_twofa",
    "login_link",
    "org_create",
    "org_list",
    "org_members",
    "org_delete",
    "org_member",
    "org_invite",
    "org_move",
    "key_create",
    "key_list",
    "key_revoke",
    "token_mint",
    "token_inspect",
    "connect",
    "dashboard_import",
    "dashboard_list",
    "dashboard_export",
    "dashboard_check",
    "stats",
];

impl<'de> Deserialize<'de> for AccountCommand {
    /// Chooses the group by the first word of `what`, so that an error is about the command that
    /// was meant.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AccountCommand, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        let what = fields.get("what").ok_or_else(|| D::Error::missing_field("what"))?;
        let what = what.as_str().unwrap_or_default().to_owned();
        if !COMMAND_NAMES.contains(&what.as_str()) {
            return Err(D::Error::unknown_variant(&what, COMMAND_NAMES));
        }
        let fields = Value::Object(fields);
        let command = match what.split('_').next() {
            Some("user") => serde_json::from_value(fields).map(AccountCommand::User),
            Some("login") => serde_json::from_value(fields).map(AccountCommand::LoginLink),
            Some("org") => serde_json::from_value(fields).map(AccountCommand::Org),
            Some("key") => serde_json::from_value(fields).map(AccountCommand::Key),
            Some("token") => serde_json::from_value(fields).map(AccountCommand::Token),
            Some("connect") => serde_json::from_value(fields).map(AccountCommand::Connect),
            Some("dashboard") => serde_json::from_value(fields).map(AccountCommand::Dashboard),
            _ => serde_json::from_value(fields).map(AccountCommand::Stats),
        };
        command.map_err(D::Error::custom)
    }
}

/// The options that all account commands share.
#[derive(Args, Clone)]
pub(super) struct CommonArgs {
    /// The data folder of a running server or a stopped one
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR", default_value = "data/store")]
    pub(super) data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// An account command with the common options.
pub(super) struct AccountInvocation {
    pub(super) command: AccountCommand,
    pub(super) common: CommonArgs,
}

impl FromArgMatches for AccountInvocation {
    fn from_arg_matches(matches: &ArgMatches) -> Result<AccountInvocation, clap::Error> {
        let mut innermost = matches;
        while let Some((_, inner)) = innermost.subcommand() {
            innermost = inner;
        }
        let common = CommonArgs::from_arg_matches(innermost)?;
        Ok(AccountInvocation { command: AccountCommand::from_arg_matches(matches)?, common })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = AccountInvocation::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for AccountInvocation {
    fn augment_subcommands(command: Command) -> Command {
        let groups = AccountCommand::augment_subcommands(Command::new("groups"));
        // Without a display order of their own, the groups are listed in the order in which they
        // are added.
        let unplaced = |group: &Command| group.clone().display_order(Resettable::Reset);
        groups.get_subcommands().map(unplaced).map(with_common_args).fold(command, Command::subcommand)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        AccountInvocation::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        AccountCommand::has_subcommand(name)
    }
}

/// Adds the common options after those of the command, or of each command of a group.
fn with_common_args(command: Command) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(with_common_args);
    }
    // `augment_args` replaces the description.
    let about = Resettable::from(command.get_about().cloned());
    let long_about = Resettable::from(command.get_long_about().cloned());
    CommonArgs::augment_args(command).about(about).long_about(long_about)
}

/// `promlet user`
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum UserCommand {
    /// Create an account; its password comes from standard input, PROMLET_PASSWORD or
    /// PROMLET_PASSWORD_FILE
    #[serde(rename = "user_create")]
    Create {
        /// The address of the account
        email: String,
        /// The name of the account
        #[arg(long, default_value = "")]
        name: String,
        /// Make it an administrator of the server; the first account always is one
        #[arg(long)]
        admin: bool,
        /// Create it without a password: it signs in by links (promlet login-link)
        #[arg(long)]
        #[serde(skip)]
        no_password: bool,
        /// The password, which `cli` reads; `None` for an account that signs in by links
        #[arg(skip)]
        password: Option<SecretSetting>,
    },
    /// List all accounts
    #[serde(rename = "user_list")]
    List {
        /// Only addresses and names that contain this text
        #[arg(long, default_value = "")]
        search: String,
    },
    /// Disable an account and end its sessions
    #[serde(rename(serialize = "user_change"), skip_deserializing)]
    Disable {
        /// The address of the account
        email: String,
        /// Always `Some(true)`
        #[arg(skip = Some(true))]
        disabled: Option<bool>,
        /// Always `None`
        #[arg(skip)]
        admin: Option<bool>,
    },
    /// Enable a disabled account
    #[serde(rename(serialize = "user_change"), skip_deserializing)]
    Enable {
        /// The address of the account
        email: String,
        /// Always `Some(false)`
        #[arg(skip = Some(false))]
        disabled: Option<bool>,
        /// Always `None`
        #[arg(skip)]
        admin: Option<bool>,
    },
    /// Make an account an administrator of the server
    #[serde(rename(serialize = "user_change"), skip_deserializing)]
    Admin {
        /// The address of the account
        email: String,
        /// Always `None`
        #[arg(skip)]
        disabled: Option<bool>,
        /// Withdraw the role instead
        #[arg(long = "withdraw", action = ArgAction::SetFalse)]
        admin: Option<bool>,
    },
    /// Change an account: the form of the three commands above on the admin socket. They have its
    /// fields, so that they serialize to it
    #[command(skip)]
    #[serde(rename = "user_change")]
    Change {
        /// The address of the account
        email: String,
        /// Whether the account is disabled; `None` keeps it
        disabled: Option<bool>,
        /// Whether the account administers the server; `None` keeps it
        admin: Option<bool>,
    },
    /// Set the password of an account, from standard input, PROMLET_PASSWORD or
    /// PROMLET_PASSWORD_FILE; its sessions end
    #[serde(rename = "user_set_password")]
    SetPassword {
        /// The address of the account
        email: String,
        /// The new password, which `cli` reads
        #[arg(skip)]
        password: SecretSetting,
    },
    /// Remove the second factor of an account; its sessions end
    #[command(name = "reset-2fa")]
    #[serde(rename = "user_reset_twofa")]
    ResetTwofa {
        /// The address of the account
        email: String,
    },
}

/// `promlet login-link`
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(tag = "what", rename = "login_link")]
pub struct LoginLinkCommand {
    /// The address of the account
    pub email: String,
}

/// The command of `promlet doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename = "stats")]
pub struct StatsCommand {}

/// `promlet org`
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum OrgCommand {
    /// Create an organisation
    #[serde(rename = "org_create")]
    Create {
        /// The name in URLs
        slug: String,
        /// The address of its owner
        #[arg(long, value_name = "EMAIL")]
        owner: String,
        /// The display name
        #[arg(long, default_value = "")]
        name: String,
    },
    /// List all organisations and their usage
    #[serde(rename = "org_list")]
    List,
    /// List the members of an organisation
    #[serde(rename = "org_members")]
    Members {
        /// The organisation
        slug: String,
    },
    /// Add an account to an organisation, change its role, or remove it
    #[serde(rename = "org_member")]
    Member {
        /// The organisation
        slug: String,
        /// The address of the account
        email: String,
        /// viewer, editor, admin or owner
        #[arg(long, required_unless_present = "remove")]
        role: Option<String>,
        /// Remove the account
        #[arg(long, conflicts_with = "role")]
        #[serde(skip)]
        remove: bool,
    },
    /// Print a link with which an address can join, with or without an account
    #[serde(rename = "org_invite")]
    Invite {
        /// The organisation
        slug: String,
        /// The address to invite
        email: String,
        /// viewer, editor, admin or owner
        #[arg(long, default_value = "viewer")]
        role: String,
    },
    /// Move the samples of an organisation to another engine, or back
    #[serde(rename = "org_move")]
    Move(Box<MoveCommand>),
    /// Delete an organisation and everything in it
    #[serde(rename = "org_delete")]
    Delete {
        /// The organisation
        slug: String,
        /// Do not ask for confirmation
        #[arg(long)]
        #[serde(skip)]
        yes: bool,
    },
}

/// The limits of a new API key that differ from the defaults.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRates {
    /// Reads a second by the key [default: 1000]
    #[arg(long, value_name = "N")]
    pub read_rps: Option<u32>,
    /// Requests a second of all its embed tokens together [default: 100, or the server's setting]
    #[arg(long, value_name = "N")]
    pub embed_rps: Option<u32>,
    /// Write requests a second by the key [default: 100]
    #[arg(long, value_name = "N")]
    pub ingest_rps: Option<u32>,
    /// Samples a second by the key [default: 2000000]
    #[arg(long, value_name = "N")]
    pub samples_per_s: Option<u32>,
}

/// `promlet key`
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum KeyCommand {
    /// Create an API key; its secret is printed only this once
    #[serde(rename = "key_create")]
    Create {
        /// The organisation
        slug: String,
        /// The name of the key
        #[arg(long)]
        name: String,
        /// The scopes, of ingest, read, embed, alerting
        #[arg(long, value_name = "SCOPE,..", value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// The time until the key expires, as in 90d
        #[arg(long = "expires-in", value_name = "DURATION", value_parser = seconds)]
        expires_in_s: Option<u64>,
        /// The limits that differ from the defaults
        #[command(flatten)]
        #[serde(default)]
        rates: KeyRates,
    },
    /// List the API keys of an organisation
    #[serde(rename = "key_list")]
    List {
        /// The organisation
        slug: String,
    },
    /// Delete an API key; the key and its tokens are refused from now on
    #[serde(rename = "key_revoke")]
    Revoke {
        /// The organisation
        slug: String,
        /// The id of the key, ak_…
        id: String,
    },
}

/// `promlet dashboard`
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum DashboardCommand {
    /// Import dashboards in Grafana's JSON
    #[serde(rename = "dashboard_import")]
    Import {
        /// The files
        // `cli` sends one command for each.
        #[arg(required = true, value_name = "FILE")]
        #[serde(skip)]
        files: Vec<PathBuf>,
        /// The organisation
        #[arg(long = "org", value_name = "SLUG")]
        slug: String,
        /// The folder of the dashboards, as in Infra/Linux
        #[arg(long)]
        folder: Option<String>,
        /// Replace dashboards with the same uid
        #[arg(long)]
        overwrite: bool,
        /// The document, which `cli` reads
        #[arg(skip)]
        text: String,
    },
    /// List the dashboards of an organisation
    #[serde(rename = "dashboard_list")]
    List {
        /// The organisation
        #[arg(long = "org", value_name = "SLUG")]
        slug: String,
    },
    /// Print the document of a dashboard, as it was imported or last saved
    #[serde(rename = "dashboard_export")]
    Export {
        /// The uid of the dashboard
        uid: String,
        /// The organisation
        #[arg(long = "org", value_name = "SLUG")]
        slug: String,
    },
    /// Check files of dashboards without a server; a folder as a server with --dashboards reads it
    #[serde(rename = "dashboard_check")]
    Check {
        /// The files and folders
        #[arg(required = true, value_name = "FILE")]
        #[serde(skip)]
        files: Vec<PathBuf>,
    },
}

/// `promlet token`
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum TokenCommand {
    /// Mint an embed token
    #[serde(rename = "token_mint")]
    Mint {
        /// The organisation
        slug: String,
        /// The id of the API key that signs, ak_…
        #[arg(long)]
        key: String,
        /// The lifetime of the token [default: an hour, or the key's maximum if that is less]
        #[arg(long = "ttl", value_name = "DURATION", value_parser = ttl_seconds)]
        ttl_s: Option<u32>,
        /// The claim `sub`: the viewer
        #[arg(long)]
        sub: Option<String>,
        /// The claim `ms`: what the token may read, as JSON: '{"match":["customer=\"c42\""]}'
        // As parsed, it is the text of the argument; `cli` replaces this by the JSON.
        #[arg(long, value_name = "JSON", value_parser = plain_text)]
        ms: Option<Value>,
    },
    /// Show the claims of an embed token and why it fails; reads it from standard input, so that no
    /// process list shows it
    #[serde(rename = "token_inspect")]
    Inspect {
        /// The token, which `cli` reads
        #[arg(skip)]
        token: SecretSetting,
    },
}

fn seconds(text: &str) -> Result<u64, String> {
    duration(text).map(|duration: Duration| duration.as_secs())
}

/// Parses a duration. `u32::MAX` stands for anything longer, which no key allows.
fn ttl_seconds(text: &str) -> Result<u32, String> {
    seconds(text).map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX))
}

fn plain_text(text: &str) -> Result<Value, std::convert::Infallible> {
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::config::{Command, CommandLine};

    fn parse(line: &str) -> AccountInvocation {
        let line = CommandLine::try_parse_from(["promlet"].into_iter().chain(line.split(' ')));
        match line.map(|line| line.command) {
            Ok(Some(Command::Account(invocation))) => invocation,
            Ok(_) => panic!("not an account command"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Programs of earlier versions send and read this JSON.
    #[test]
    fn account_commands_keep_their_json_on_the_admin_socket() {
        let cases = [
            (
                "user create a@b.c --no-password",
                r#"{"admin":false,"email":"a@b.c","name":"","password":null,"what":"user_create"}"#,
            ),
            ("user list --search x", r#"{"search":"x","what":"user_list"}"#),
            ("user disable a@b.c", r#"{"admin":null,"disabled":true,"email":"a@b.c","what":"user_change"}"#),
            ("user enable a@b.c", r#"{"admin":null,"disabled":false,"email":"a@b.c","what":"user_change"}"#),
            ("user admin a@b.c", r#"{"admin":true,"disabled":null,"email":"a@b.c","what":"user_change"}"#),
            (
                "user admin a@b.c --withdraw",
                r#"{"admin":false,"disabled":null,"email":"a@b.c","what":"user_change"}"#,
            ),
            ("user set-password a@b.c", r#"{"email":"a@b.c","password":"","what":"user_set_password"}"#),
            ("user reset-2fa a@b.c", r#"{"email":"a@b.c","what":"user_reset_twofa"}"#),
            ("login-link a@b.c", r#"{"email":"a@b.c","what":"login_link"}"#),
            ("org create s --owner a@b.c", r#"{"name":"","owner":"a@b.c","slug":"s","what":"org_create"}"#),
            ("org list", r#"{"what":"org_list"}"#),
            ("org members s", r#"{"slug":"s","what":"org_members"}"#),
            (
                "org member s a@b.c --role editor",
                r#"{"email":"a@b.c","role":"editor","slug":"s","what":"org_member"}"#,
            ),
            (
                "org member s a@b.c --remove",
                r#"{"email":"a@b.c","role":null,"slug":"s","what":"org_member"}"#,
            ),
            ("org invite s a@b.c", r#"{"email":"a@b.c","role":"viewer","slug":"s","what":"org_invite"}"#),
            ("org delete s --yes", r#"{"slug":"s","what":"org_delete"}"#),
            (
                "key create s --name k --scopes read,embed --expires-in 1h --read-rps 5",
                r#"{"expires_in_s":3600,"name":"k","rates":{"embed_rps":null,"ingest_rps":null,"read_rps":5,"samples_per_s":null},"scopes":["read","embed"],"slug":"s","what":"key_create"}"#,
            ),
            ("key list s", r#"{"slug":"s","what":"key_list"}"#),
            ("key revoke s ak_1", r#"{"id":"ak_1","slug":"s","what":"key_revoke"}"#),
            (
                "token mint s --key ak_1 --ttl 5m",
                r#"{"key":"ak_1","ms":null,"slug":"s","sub":null,"ttl_s":300,"what":"token_mint"}"#,
            ),
            ("token inspect", r#"{"token":"","what":"token_inspect"}"#),
            (
                "connect otel --org s",
                r#"{"client":"otel","name":null,"slug":"s","url":null,"what":"connect"}"#,
            ),
            (
                "connect grafana --org s --name n --url http://h/p",
                r#"{"client":"grafana","name":"n","slug":"s","url":"http://h/p","what":"connect"}"#,
            ),
            (
                "dashboard import a.json b.json --org s --folder F --overwrite",
                r#"{"folder":"F","overwrite":true,"slug":"s","text":"","what":"dashboard_import"}"#,
            ),
            ("dashboard list --org s", r#"{"slug":"s","what":"dashboard_list"}"#),
            ("dashboard export u --org s", r#"{"slug":"s","uid":"u","what":"dashboard_export"}"#),
        ];
        let json_of = |command: &AccountCommand| serde_json::json!(command).to_string();
        for (line, json) in cases {
            assert_eq!(json_of(&parse(line).command), json, "{line}");
            let read: AccountCommand = serde_json::from_str(json).expect(line);
            assert_eq!(json_of(&read), json, "{line}");
        }
        let stats = r#"{"what":"stats"}"#;
        assert_eq!(json_of(&serde_json::from_str(stats).expect("known")), stats);
    }

    #[test]
    fn an_unknown_or_incomplete_command_is_refused_with_the_reason() {
        for (json, reason) in [
            (r#"{"what":"user_create","name":"","admin":true}"#, "missing field `email`"),
            (r#"{"what":"org_rename"}"#, "unknown variant `org_rename`"),
            (r#"{"what":"user_disable","email":"a@b.c"}"#, "unknown variant `user_disable`"),
            (r#"{"what":"reboot"}"#, "unknown variant `reboot`, expected one of `user_create`, `user_list`"),
            (r#"{"search":""}"#, "missing field `what`"),
        ] {
            let error = serde_json::from_str::<AccountCommand>(json).expect_err("refused");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn every_account_command_takes_the_common_options() {
        for line in [
            "user list",
            "login-link a@b.c",
            "org list",
            "key list s",
            "token inspect",
            "connect curl --org s",
        ] {
            let invocation = parse(&format!("{line} --json --data-dir d"));
            let common = invocation.common;
            assert!(common.json && common.data_dir == std::path::Path::new("d"), "{line}");
        }
    }
}
