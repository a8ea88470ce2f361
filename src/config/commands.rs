//! What the command line says about accounts: its grammar alone. What is done, is done by `server`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::duration;

/// A command about accounts, organisations, keys or tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountCommand {
    /// What to do.
    pub ask: AccountAsk,
    /// For programs.
    pub json: bool,
}

/// What to do. Accounts are named by their address, organisations by their slug.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the command of its name, and its fields are that command's arguments"
)]
pub enum AccountAsk {
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

/// Where, and how it is told.
#[derive(Args, Clone)]
pub(super) struct Told {
    /// The data folder, of a running server or of a stopped one
    #[arg(long, env = "PROMLET_DATA_DIR", value_name = "DIR", default_value = "data/store")]
    pub(super) data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `promlet user`
#[derive(Subcommand)]
pub(super) enum UserCommand {
    /// Make an account; its password comes from standard input, or from PROMLET_PASSWORD or PROMLET_PASSWORD_FILE
    Create {
        /// Its address
        email: String,
        /// What it is called
        #[arg(long, default_value = "")]
        name: String,
        /// Administrator of the server; the first account always is
        #[arg(long)]
        admin: bool,
        /// Without a password: it is entered by links (promlet login-link)
        #[arg(long)]
        no_password: bool,
        #[command(flatten)]
        told: Told,
    },
    /// All accounts
    List {
        /// Only addresses and names with this text in them
        #[arg(long, default_value = "")]
        search: String,
        #[command(flatten)]
        told: Told,
    },
    /// Keep an account from logging in, and end its sessions now
    Disable {
        /// Its address
        email: String,
        #[command(flatten)]
        told: Told,
    },
    /// Let a disabled account log in again
    Enable {
        /// Its address
        email: String,
        #[command(flatten)]
        told: Told,
    },
    /// Make an account administrator of the server
    Admin {
        /// Its address
        email: String,
        /// Make it none
        #[arg(long)]
        withdraw: bool,
        #[command(flatten)]
        told: Told,
    },
    /// Give an account a new password, from standard input, PROMLET_PASSWORD or PROMLET_PASSWORD_FILE; its sessions end
    SetPassword {
        /// Its address
        email: String,
        #[command(flatten)]
        told: Told,
    },
    /// Take an account's second factor away; its sessions end
    #[command(name = "reset-2fa")]
    ResetTwofa {
        /// Its address
        email: String,
        #[command(flatten)]
        told: Told,
    },
}

/// `promlet org`
#[derive(Subcommand)]
pub(super) enum OrgCommand {
    /// Make an organisation
    Create {
        /// Its name in URLs
        slug: String,
        /// The address of its owner
        #[arg(long, value_name = "EMAIL")]
        owner: String,
        /// What people call it
        #[arg(long, default_value = "")]
        name: String,
        #[command(flatten)]
        told: Told,
    },
    /// All organisations, and what they use
    List {
        #[command(flatten)]
        told: Told,
    },
    /// Who belongs to an organisation
    Members {
        /// Which
        slug: String,
        #[command(flatten)]
        told: Told,
    },
    /// Put an account into an organisation, give it another role, or take it out
    Member {
        /// Which organisation
        slug: String,
        /// Whose address
        email: String,
        /// viewer, editor, admin or owner
        #[arg(long, required_unless_present = "remove")]
        role: Option<String>,
        /// Take it out
        #[arg(long, conflicts_with = "role")]
        remove: bool,
        #[command(flatten)]
        told: Told,
    },
    /// Print a link that lets an address join, with an account or without
    Invite {
        /// Into which organisation
        slug: String,
        /// Whom
        email: String,
        /// viewer, editor, admin or owner
        #[arg(long, default_value = "viewer")]
        role: String,
        #[command(flatten)]
        told: Told,
    },
    /// Delete an organisation and everything in it
    Delete {
        /// Which
        slug: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        told: Told,
    },
}

/// Limits of a new API key, where they are not the defaults.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRates {
    /// Requests a second that the key reads [default: 1000]
    #[arg(long, value_name = "N")]
    pub read_rps: Option<u32>,
    /// Requests a second of all its embed tokens together [default: 100, or what the server says]
    #[arg(long, value_name = "N")]
    pub embed_rps: Option<u32>,
    /// Requests a second that the key writes [default: 100]
    #[arg(long, value_name = "N")]
    pub ingest_rps: Option<u32>,
    /// Samples a second that the key writes [default: 2000000]
    #[arg(long, value_name = "N")]
    pub samples_per_s: Option<u32>,
}

/// `promlet key`
#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Make an API key; its secret is printed this once
    Create {
        /// Of which organisation
        slug: String,
        /// What people call it
        #[arg(long)]
        name: String,
        /// Of ingest, read, embed
        #[arg(long, value_name = "SCOPE,..", value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// When it ends, from now, as in 90d
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires_in: Option<Duration>,
        #[command(flatten)]
        rates: KeyRates,
        #[command(flatten)]
        told: Told,
    },
    /// An organisation's API keys
    List {
        /// Which
        slug: String,
        #[command(flatten)]
        told: Told,
    },
    /// Delete an API key; it and its tokens are refused from now on
    Revoke {
        /// Of which organisation
        slug: String,
        /// ak_…
        id: String,
        #[command(flatten)]
        told: Told,
    },
}

/// `promlet token`
#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Mint an embed token
    Mint {
        /// Of which organisation
        slug: String,
        /// The API key that signs, ak_…
        #[arg(long)]
        key: String,
        /// Its life [default: an hour, or less where the key says so]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        ttl: Option<Duration>,
        /// The viewer
        #[arg(long)]
        sub: Option<String>,
        /// What it may see, as JSON: '{"match":["customer=\"c42\""]}'
        #[arg(long, value_name = "JSON")]
        ms: Option<String>,
        #[command(flatten)]
        told: Told,
    },
    /// Say what an embed token holds, and why it fails; from standard input, so that it shows in no process list
    Inspect {
        #[command(flatten)]
        told: Told,
    },
}

/// What a command says and where.
type Read = (Told, AccountAsk);

impl UserCommand {
    pub(super) fn read(self) -> Read {
        match self {
            UserCommand::Create { email, name, admin, no_password, told } => {
                (told, AccountAsk::UserCreate { email, name, admin, no_password })
            }
            UserCommand::List { search, told } => (told, AccountAsk::UserList { search }),
            UserCommand::Disable { email, told } => (told, AccountAsk::UserDisable { email }),
            UserCommand::Enable { email, told } => (told, AccountAsk::UserEnable { email }),
            UserCommand::Admin { email, withdraw, told } => (told, AccountAsk::UserAdmin { email, withdraw }),
            UserCommand::SetPassword { email, told } => (told, AccountAsk::UserSetPassword { email }),
            UserCommand::ResetTwofa { email, told } => (told, AccountAsk::UserResetTwofa { email }),
        }
    }
}

impl OrgCommand {
    pub(super) fn read(self) -> Read {
        match self {
            OrgCommand::Create { slug, owner, name, told } => {
                (told, AccountAsk::OrgCreate { slug, name, owner })
            }
            OrgCommand::List { told } => (told, AccountAsk::OrgList),
            OrgCommand::Members { slug, told } => (told, AccountAsk::OrgMembers { slug }),
            OrgCommand::Member { slug, email, role, remove, told } => {
                let role = role.filter(|_| !remove);
                (told, AccountAsk::OrgMember { slug, email, role })
            }
            OrgCommand::Invite { slug, email, role, told } => {
                (told, AccountAsk::OrgInvite { slug, email, role })
            }
            OrgCommand::Delete { slug, yes, told } => (told, AccountAsk::OrgDelete { slug, yes }),
        }
    }
}

impl KeyCommand {
    pub(super) fn read(self) -> Read {
        match self {
            KeyCommand::Create { slug, name, scopes, expires_in, rates, told } => {
                (told, AccountAsk::KeyCreate { slug, name, scopes, expires_in, rates })
            }
            KeyCommand::List { slug, told } => (told, AccountAsk::KeyList { slug }),
            KeyCommand::Revoke { slug, id, told } => (told, AccountAsk::KeyRevoke { slug, id }),
        }
    }
}

impl TokenCommand {
    pub(super) fn read(self) -> Read {
        match self {
            TokenCommand::Mint { slug, key, ttl, sub, ms, told } => {
                (told, AccountAsk::TokenMint { slug, key, ttl, sub, ms })
            }
            TokenCommand::Inspect { told } => (told, AccountAsk::TokenInspect),
        }
    }
}
