//! The commands of the command line on accounts: run by the running server over `admin.sock`, or on
//! a stopped folder directly.
//!
//! A command is data, so that both run the same code. Its response is JSON, which `cli` renders as
//! a table.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::views::api_key::{NOTHING_TO_READ, key_json};
use crate::api::views::embed_policy::policy_from_json;
use crate::api::views::embed_token::{introspection, minted_json, token_part};
use crate::api::views::link::{invite_url, sign_in_url};
use crate::api::views::member::member_json;
use crate::api::views::org::{org_json_without_usage, orgs_json};
use crate::api::views::server::stats_json;
use crate::api::views::user::user_json;
use crate::clock::Clock;
use crate::config::KeyRates;
use crate::entropy::Entropy;
use crate::identity::{
    Email, EmbedRequest, EmbedSettings, Identity, IngestSettings, KeyId, KeyScopes, MintRequest, NewApiKey,
    NewInvite, NewOrg, NewUser, Org, Password, ReadSettings, Role, StoreError, User, UserChange,
};
use crate::kv::with_sources;
use crate::model::{OrgId, OrgSlug, Timestamp};
use crate::tsdb::Tsdb;

/// A secret text that can be sent over the socket but is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A command. Accounts are named by their address, organisations by their slug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum AccountCommand {
    /// `user create`
    UserCreate {
        /// The address of the account.
        email: String,
        /// The name of the account.
        name: String,
        /// The password; `None` for an account that signs in by links.
        password: Option<Hidden>,
        /// Whether the account administers the server.
        admin: bool,
    },
    /// `user list`
    UserList {
        /// A part of the addresses and names to list.
        search: String,
    },
    /// `user disable`, `user enable`, `user admin`
    UserChange {
        /// The address of the account.
        email: String,
        /// Whether the account is disabled; `None` keeps it.
        disabled: Option<bool>,
        /// Whether the account administers the server; `None` keeps it.
        admin: Option<bool>,
    },
    /// `user set-password`
    UserSetPassword {
        /// The address of the account.
        email: String,
        /// The new password.
        password: Hidden,
    },
    /// `user reset-2fa`
    UserResetTwofa {
        /// The address of the account.
        email: String,
    },
    /// `login-link`
    LoginLink {
        /// The address of the account.
        email: String,
    },
    /// `org create`
    OrgCreate {
        /// The name in URLs.
        slug: String,
        /// The display name.
        name: String,
        /// The address of the owner.
        owner: String,
    },
    /// `org list`
    OrgList,
    /// `org members`
    OrgMembers {
        /// The organisation.
        slug: String,
    },
    /// `org delete`
    OrgDelete {
        /// The organisation.
        slug: String,
    },
    /// `org member`
    OrgMember {
        /// The organisation.
        slug: String,
        /// The address of the account.
        email: String,
        /// The new role; `None` removes the member.
        role: Option<String>,
    },
    /// `org invite`
    OrgInvite {
        /// The organisation.
        slug: String,
        /// The address of the invited person.
        email: String,
        /// The role after acceptance.
        role: String,
    },
    /// `key create`
    KeyCreate {
        /// The organisation.
        slug: String,
        /// The name of the key.
        name: String,
        /// The scopes, of `ingest`, `read`, `embed`.
        scopes: Vec<String>,
        /// The seconds until the key expires; `None` for never.
        expires_in_s: Option<u64>,
        /// The limits that differ from the defaults.
        #[serde(default)]
        rates: KeyRates,
    },
    /// `key list`
    KeyList {
        /// The organisation.
        slug: String,
    },
    /// `key revoke`
    KeyRevoke {
        /// The organisation.
        slug: String,
        /// The id of the key.
        id: String,
    },
    /// `token mint`
    TokenMint {
        /// The organisation.
        slug: String,
        /// The id of the API key that signs.
        key: String,
        /// The lifetime in seconds; `None` for an hour, or the key's maximum if that is less.
        ttl_s: Option<u32>,
        /// The claim `sub`: the viewer.
        sub: Option<String>,
        /// The claim `ms`, as JSON.
        ms: Option<Value>,
    },
    /// `token inspect`
    TokenInspect {
        /// The token.
        token: Hidden,
    },
    /// Totals of the running server, for `doctor`.
    Stats,
}

/// The dependencies of the commands.
pub(super) struct AccountCommands<'a> {
    pub(super) identity: &'a Identity,
    /// `None` on a stopped folder. The part of a command that concerns samples then runs at the
    /// next start.
    pub(super) tsdb: Option<&'a Tsdb>,
    pub(super) public_url: &'a str,
    pub(super) clock: &'a Clock,
    /// The requests a second of embed tokens, for new API keys.
    pub(super) embed_rps_default: u32,
}

/// The response of a command, or a text for the user: what is wrong and what to do next.
type CommandResult = Result<Value, String>;

fn error_text(error: impl std::error::Error) -> String {
    with_sources(&error)
}

impl AccountCommands<'_> {
    /// Runs a command.
    ///
    /// # Errors
    /// The reason as text.
    pub(super) fn perform(&self, command: AccountCommand) -> CommandResult {
        match command {
            AccountCommand::UserCreate { .. }
            | AccountCommand::UserList { .. }
            | AccountCommand::UserChange { .. }
            | AccountCommand::UserSetPassword { .. }
            | AccountCommand::UserResetTwofa { .. }
            | AccountCommand::LoginLink { .. } => self.run_user_command(command),
            AccountCommand::KeyCreate { .. }
            | AccountCommand::KeyList { .. }
            | AccountCommand::KeyRevoke { .. }
            | AccountCommand::TokenMint { .. }
            | AccountCommand::TokenInspect { .. } => self.run_key_command(command),
            command => self.run_org_command(command),
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn user(&self, email: &str) -> Result<User, String> {
        let address = Email::parse(email).map_err(|e| format!("{email:?}: {e}"))?;
        let user = self.identity.user_by_email(&address).map_err(error_text)?;
        user.ok_or_else(|| {
            format!("no account has the address {address}: `promlet user list` lists all, `promlet user create` creates one")
        })
    }

    fn org(&self, slug: &str) -> Result<Org, String> {
        let org = self.identity.org_by_slug(slug).map_err(error_text)?;
        org.ok_or_else(|| format!("there is no organisation {slug:?}: `promlet org list` lists all"))
    }

    fn user_json(&self, user: &User) -> CommandResult {
        let summary = self.identity.user_summary(user.id, self.now()).map_err(error_text)?;
        summary.as_ref().map(user_json).ok_or_else(|| "the account is gone".to_owned())
    }

    fn run_user_command(&self, command: AccountCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            AccountCommand::UserCreate { email, name, password, admin } => {
                let email = Email::parse(&email).map_err(|e| format!("{email:?}: {e}"))?;
                let password = password.as_ref().map(|password| Password(&password.0));
                let new = NewUser { email, name: &name, password, is_admin: admin };
                let created = identity.create_user(&new, now, &mut Entropy::system()).map_err(error_text)?;
                self.user_json(&created)
            }
            AccountCommand::UserList { search } => {
                let matches = identity.users_found(&search).map_err(error_text)?.into_iter();
                let rows = matches.map(|user| Ok(user_json(&identity.summary(user, now)?)));
                let rows = rows.collect::<Result<Vec<_>, StoreError>>().map_err(error_text)?;
                Ok(json!({ "data": rows }))
            }
            AccountCommand::UserChange { email, disabled, admin } => {
                let user = self.user(&email)?;
                let change = UserChange { disabled, is_admin: admin };
                identity.change_user(None, user.id, change, now).map_err(error_text)?;
                self.user_json(&user)
            }
            AccountCommand::UserSetPassword { email, password } => {
                let user = self.user(&email)?;
                let rng = &mut Entropy::system();
                identity.replace_password(user.id, Password(&password.0), now, rng).map_err(error_text)?;
                self.user_json(&user)
            }
            AccountCommand::UserResetTwofa { email } => {
                let user = self.user(&email)?;
                let had = identity.reset_two_factor(user.id, now).map_err(error_text)?;
                Ok(json!({ "email": user.email.as_str(), "had_second_factor": had }))
            }
            AccountCommand::LoginLink { email } => {
                let user = self.user(&email)?;
                if user.disabled {
                    return Err(format!("{email} is disabled: `promlet user enable {email}` first"));
                }
                let rng = &mut Entropy::system();
                let link = identity.issue_login_link(user.id, None, now, rng).map_err(error_text)?;
                let url = sign_in_url(self.public_url, link.token.expose());
                Ok(
                    json!({ "email": user.email.as_str(), "url": url, "expires_in": link.expires_in.as_secs() }),
                )
            }
            other => self.run_org_command(other),
        }
    }

    fn run_org_command(&self, command: AccountCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        let rng = &mut Entropy::system();
        match command {
            AccountCommand::OrgCreate { slug, name, owner } => {
                let owner = self.user(&owner)?;
                let slug = OrgSlug::parse(&slug).map_err(|e| format!("{slug:?}: {}", error_text(e)))?;
                let created = identity
                    .create_org_for(None, owner.id, NewOrg { slug, name }, now, rng)
                    .map_err(error_text)?;
                Ok(self.orgs_json(&[created.org])?.into_iter().next().unwrap_or_default())
            }
            AccountCommand::OrgList => {
                let orgs = identity.orgs().map_err(error_text)?;
                Ok(json!({ "data": self.orgs_json(&orgs)? }))
            }
            AccountCommand::OrgMembers { slug } => self.members(&self.org(&slug)?),
            AccountCommand::OrgDelete { slug } => {
                let org = self.org(&slug)?;
                identity.delete_org(None, org.id, now).map_err(error_text)?;
                let when = if self.tsdb.is_some() { "now, in the background" } else { "with the next start" };
                Ok(json!({ "slug": org.slug.as_str(), "status": "deleting", "data_is_removed": when }))
            }
            AccountCommand::OrgMember { slug, email, role } => {
                let (org, user) = (self.org(&slug)?, self.user(&email)?);
                let is_member = identity.member(org.id, user.id, now).map_err(error_text)?.is_some();
                match role {
                    None => identity.remove_member(None, org.id, user.id, now),
                    Some(role) if is_member => {
                        identity.change_role(None, org.id, user.id, read_role(&role)?, now)
                    }
                    Some(role) => identity.add_member(org.id, user.id, read_role(&role)?, now),
                }
                .map_err(error_text)?;
                self.members(&org)
            }
            AccountCommand::OrgInvite { slug, email, role } => {
                let org = self.org(&slug)?;
                let email = Email::parse(&email).map_err(|e| format!("{email:?}: {e}"))?;
                let wanted = NewInvite { email, role: read_role(&role)?, mailed: false };
                let issued = identity.invite(None, org.id, wanted, now, rng).map_err(error_text)?;
                Ok(json!({
                    "id": issued.invite.id.to_string(),
                    "email": issued.invite.email.as_str(),
                    "role": issued.invite.role.as_str(),
                    "url": invite_url(self.public_url, issued.token.expose()),
                    "expires_at": issued.invite.expires_at.to_rfc3339(),
                }))
            }
            AccountCommand::Stats => match self.tsdb {
                Some(tsdb) => stats_json(identity, tsdb, now).map_err(error_text),
                None => Ok(Value::Null),
            },
            other => Err(format!("not a command about organisations: {other:?}")),
        }
    }

    fn orgs_json(&self, orgs: &[Org]) -> Result<Vec<Value>, String> {
        let (identity, now) = (self.identity, self.now());
        match self.tsdb {
            Some(tsdb) => orgs_json(identity, tsdb, orgs, now).map_err(error_text),
            None => {
                let one = |org| org_json_without_usage(identity, org, now).map_err(error_text);
                orgs.iter().map(one).collect()
            }
        }
    }

    fn members(&self, org: &Org) -> CommandResult {
        let members = self.identity.members(org.id, self.now()).map_err(error_text)?;
        let rows = members.iter().map(|member| {
            let mut row = member_json(member);
            row["last_seen_at"] = member.last_seen_at.map(|at| at.to_rfc3339()).into();
            row
        });
        Ok(json!({ "data": rows.collect::<Vec<_>>() }))
    }

    fn run_key_command(&self, command: AccountCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            AccountCommand::KeyCreate { slug, name, scopes, expires_in_s, rates } => {
                let org = self.org(&slug)?;
                let has = |scope: &str| scopes.iter().any(|one| one == scope);
                if let Some(odd) =
                    scopes.iter().find(|one| !["ingest", "read", "embed"].contains(&one.as_str()))
                {
                    return Err(format!("a scope is ingest, read or embed, not {odd:?}"));
                }
                if rates.read_rps.is_some() && !has("read") {
                    return Err(format!("--read-rps {}", NOTHING_TO_READ));
                }
                let embed_rps = rates.embed_rps.unwrap_or(self.embed_rps_default);
                let (read, ingest) = (ReadSettings::default(), IngestSettings::default());
                let key = NewApiKey {
                    name,
                    scopes: KeyScopes { ingest: has("ingest"), read: has("read"), embed: has("embed") },
                    expires_at: expires_in_s.map(|s| now.plus(std::time::Duration::from_secs(s))),
                    embed: EmbedSettings { rate_limit_rps: embed_rps, ..EmbedSettings::default() },
                    ingest: IngestSettings {
                        rate_limit_rps: rates.ingest_rps.unwrap_or(ingest.rate_limit_rps),
                        samples_per_s: rates.samples_per_s.unwrap_or(ingest.samples_per_s),
                        ..ingest
                    },
                    read: ReadSettings { rate_limit_rps: rates.read_rps.unwrap_or(read.rate_limit_rps) },
                };
                let rng = &mut Entropy::system();
                let created = identity.create_key(org.id, None, key, now, rng).map_err(error_text)?;
                let mut row = key_json(&created.key);
                row["secret"] = created.secret.expose().into();
                Ok(row)
            }
            AccountCommand::KeyList { slug } => {
                let keys = identity.keys(self.org(&slug)?.id);
                Ok(json!({ "data": keys.iter().map(|key| key_json(key)).collect::<Vec<_>>() }))
            }
            AccountCommand::KeyRevoke { slug, id } => {
                let (org, key) = (self.org(&slug)?, read_key(&id)?);
                identity
                    .delete_key(org.id, None, key, now)
                    .map_err(|e| format!("{}: `promlet key list {slug}` lists all", error_text(e)))?;
                Ok(json!({ "id": id, "status": "revoked" }))
            }
            AccountCommand::TokenMint { slug, key, ttl_s, sub, ms } => {
                let (org, key) = (self.org(&slug)?, read_key(&key)?);
                let longest = identity.key(org.id, key).map(|key| key.embed.max_token_ttl_s);
                let longest =
                    longest.ok_or_else(|| format!("no such key: `promlet key list {slug}` lists all"))?;
                let ms = ms.as_ref().map(policy_from_json).transpose()?;
                let request = MintRequest { key, ttl_s: ttl_s.unwrap_or(3_600.min(longest)), sub, ms };
                let minted = identity.mint(org.id, &request, now).map_err(error_text)?;
                identity.note_minted(org.id, key, None, now);
                Ok(minted_json(&minted))
            }
            AccountCommand::TokenInspect { token } => {
                let claims = token_part(&token.0, 1).unwrap_or_default();
                let slug = claims["org"].as_str().unwrap_or_default().to_owned();
                // A token of no organisation here is inspected as well, with an organisation that
                // has no keys.
                let org = identity.org_by_slug(&slug).map_err(error_text)?.map_or(OrgId(0), |org| org.id);
                let request = EmbedRequest { token: &token.0, slug: &slug, origin: None };
                Ok(introspection(identity, org, &request, now))
            }
            other => Err(format!("not a command about keys: {other:?}")),
        }
    }
}

fn read_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("a role is viewer, editor, admin or owner, not {text:?}"))
}

fn read_key(text: &str) -> Result<KeyId, String> {
    text.parse().map_err(|e: crate::identity::IdError| format!("{text:?}: {e}"))
}
