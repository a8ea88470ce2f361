//! The grammar of the account commands on the command line. `server` runs them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::flags::duration;

/// A command on accounts, organisations, API keys or tokens, as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountInvocation {
    /// The action.
    pub action: AccountAction,
    /// Print JSON.
    pub json: bool,
}

/// The action of an account command. Accounts are named by their address, organisations by their
/// slug.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the command of its name with its arguments")]
pub enum AccountAction {
    UserCreate {
        email: String,
        name: String,
        admin: bool,
        no_password: bool,
    },
    UserList {
        search: String,
    },
    UserDisable {
        email: String,
    },
    UserEnable {
        email: String,
    },
    UserAdmin {
        email: String,
        withdraw: bool,
    },
    UserSetPassword {
        email: String,
    },
    UserResetTwofa {
        email: String,
    },
    LoginLink {
        email: String,
    },
    OrgCreate {
        slug: String,
        name: String,
        owner: String,
    },
    OrgList,
    OrgMembers {
        slug: String,
    },
    OrgMember {
        slug: String,
        email: String,
        role: Option<String>,
    },
    OrgInvite {
        slug: String,
        email: String,
        role: String,
    },
    OrgDelete {
        slug: String,
        yes: bool,
    },
    KeyCreate {
        slug: String,
        name: String,
        scopes: Vec<String>,
        expires_in: Option<Duration>,
        rates: KeyRates,
    },
    KeyList {
        slug: String,
    },
    KeyRevoke {
        slug: String,
        id: String,
    },
    TokenMint {
        slug: String,
        key: String,
        ttl: Option<Duration>,
        sub: Option<String>,
        ms: Option<String>,
    },
    TokenInspect,
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

/// `promlet user`
#[derive(Subcommand)]
pub(super) enum UserCommand {
    /// Create an account; its password comes from standard input, PROMLET_PASSWORD or
    /// PROMLET_PASSWORD_FILE
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
        no_password: bool,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List all accounts
    List {
        /// Only addresses and names that contain this text
        #[arg(long, default_value = "")]
        search: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Disable an account and end its sessions
    Disable {
        /// The address of the account
        email: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Enable a disabled account
    Enable {
        /// The address of the account
        email: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Make an account an administrator of the server
    Admin {
        /// The address of the account
        email: String,
        /// Withdraw the role instead
        #[arg(long)]
        withdraw: bool,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Set the password of an account, from standard input, PROMLET_PASSWORD or
    /// PROMLET_PASSWORD_FILE; its sessions end
    SetPassword {
        /// The address of the account
        email: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Remove the second factor of an account; its sessions end
    #[command(name = "reset-2fa")]
    ResetTwofa {
        /// The address of the account
        email: String,
        #[command(flatten)]
        common: CommonArgs,
    },
}

/// `promlet org`
#[derive(Subcommand)]
pub(super) enum OrgCommand {
    /// Create an organisation
    Create {
        /// The name in URLs
        slug: String,
        /// The address of its owner
        #[arg(long, value_name = "EMAIL")]
        owner: String,
        /// The display name
        #[arg(long, default_value = "")]
        name: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List all organisations and their usage
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List the members of an organisation
    Members {
        /// The organisation
        slug: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Add an account to an organisation, change its role, or remove it
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
        remove: bool,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Print a link with which an address can join, with or without an account
    Invite {
        /// The organisation
        slug: String,
        /// The address to invite
        email: String,
        /// viewer, editor, admin or owner
        #[arg(long, default_value = "viewer")]
        role: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Delete an organisation and everything in it
    Delete {
        /// The organisation
        slug: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: CommonArgs,
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
#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Create an API key; its secret is printed only this once
    Create {
        /// The organisation
        slug: String,
        /// The name of the key
        #[arg(long)]
        name: String,
        /// Its scopes, of ingest, read, embed
        #[arg(long, value_name = "SCOPE,..", value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// The time until the key expires, as in 90d
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires_in: Option<Duration>,
        #[command(flatten)]
        rates: KeyRates,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List the API keys of an organisation
    List {
        /// The organisation
        slug: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Delete an API key; the key and its tokens are refused from now on
    Revoke {
        /// The organisation
        slug: String,
        /// The id of the key, ak_…
        id: String,
        #[command(flatten)]
        common: CommonArgs,
    },
}

/// `promlet token`
#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Mint an embed token
    Mint {
        /// The organisation
        slug: String,
        /// The id of the API key that signs, ak_…
        #[arg(long)]
        key: String,
        /// The lifetime of the token [default: an hour, or the key's maximum if that is less]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        ttl: Option<Duration>,
        /// The claim `sub`: the viewer
        #[arg(long)]
        sub: Option<String>,
        /// The claim `ms`: what the token may read, as JSON: '{"match":["customer=\"c42\""]}'
        #[arg(long, value_name = "JSON")]
        ms: Option<String>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Show the claims of an embed token and why it fails; reads it from standard input, so that no
    /// process list shows it
    Inspect {
        #[command(flatten)]
        common: CommonArgs,
    },
}

/// The common options and the action of a parsed command.
pub(super) type ParsedCommand = (CommonArgs, AccountAction);

impl UserCommand {
    pub(super) fn into_parts(self) -> ParsedCommand {
        match self {
            UserCommand::Create { email, name, admin, no_password, common } => {
                (common, AccountAction::UserCreate { email, name, admin, no_password })
            }
            UserCommand::List { search, common } => (common, AccountAction::UserList { search }),
            UserCommand::Disable { email, common } => (common, AccountAction::UserDisable { email }),
            UserCommand::Enable { email, common } => (common, AccountAction::UserEnable { email }),
            UserCommand::Admin { email, withdraw, common } => {
                (common, AccountAction::UserAdmin { email, withdraw })
            }
            UserCommand::SetPassword { email, common } => (common, AccountAction::UserSetPassword { email }),
            UserCommand::ResetTwofa { email, common } => (common, AccountAction::UserResetTwofa { email }),
        }
    }
}

impl OrgCommand {
    pub(super) fn into_parts(self) -> ParsedCommand {
        match self {
            OrgCommand::Create { slug, owner, name, common } => {
                (common, AccountAction::OrgCreate { slug, name, owner })
            }
            OrgCommand::List { common } => (common, AccountAction::OrgList),
            OrgCommand::Members { slug, common } => (common, AccountAction::OrgMembers { slug }),
            OrgCommand::Member { slug, email, role, remove, common } => {
                let role = role.filter(|_| !remove);
                (common, AccountAction::OrgMember { slug, email, role })
            }
            OrgCommand::Invite { slug, email, role, common } => {
                (common, AccountAction::OrgInvite { slug, email, role })
            }
            OrgCommand::Delete { slug, yes, common } => (common, AccountAction::OrgDelete { slug, yes }),
        }
    }
}

impl KeyCommand {
    pub(super) fn into_parts(self) -> ParsedCommand {
        match self {
            KeyCommand::Create { slug, name, scopes, expires_in, rates, common } => {
                (common, AccountAction::KeyCreate { slug, name, scopes, expires_in, rates })
            }
            KeyCommand::List { slug, common } => (common, AccountAction::KeyList { slug }),
            KeyCommand::Revoke { slug, id, common } => (common, AccountAction::KeyRevoke { slug, id }),
        }
    }
}

impl TokenCommand {
    pub(super) fn into_parts(self) -> ParsedCommand {
        match self {
            TokenCommand::Mint { slug, key, ttl, sub, ms, common } => {
                (common, AccountAction::TokenMint { slug, key, ttl, sub, ms })
            }
            TokenCommand::Inspect { common } => (common, AccountAction::TokenInspect),
        }
    }
}
