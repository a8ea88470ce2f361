//! What the command line asks of accounts: of the running server over `admin.sock`, or of a stopped folder directly.
//!
//! A command is data, so that both ways do the very same; its answer is JSON, which `cli` makes a table of for people.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::admin as shown;
use crate::api::orgs::{api_keys, embed_tokens, invites};
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

/// A text on its way over the socket that never shows itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// One command. Accounts are named by their address, organisations by their slug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Command {
    /// `user create`
    UserCreate {
        /// Its address.
        email: String,
        /// What it is called.
        name: String,
        /// None: it is entered by links.
        password: Option<Hidden>,
        /// Administrator of the server.
        admin: bool,
    },
    /// `user list`
    UserList {
        /// Only addresses and names with this in them.
        search: String,
    },
    /// `user disable`, `user enable`, `user admin`
    UserChange {
        /// Whose.
        email: String,
        /// May not log in.
        disabled: Option<bool>,
        /// Administrator of the server.
        admin: Option<bool>,
    },
    /// `user set-password`
    UserSetPassword {
        /// Whose.
        email: String,
        /// The new one.
        password: Hidden,
    },
    /// `user reset-2fa`
    UserResetTwofa {
        /// Whose.
        email: String,
    },
    /// `login-link`
    LoginLink {
        /// Whose.
        email: String,
    },
    /// `org create`
    OrgCreate {
        /// Its name in URLs.
        slug: String,
        /// What people call it.
        name: String,
        /// The address of its owner.
        owner: String,
    },
    /// `org list`
    OrgList,
    /// `org members`
    OrgMembers {
        /// Whose.
        slug: String,
    },
    /// `org delete`
    OrgDelete {
        /// Which.
        slug: String,
    },
    /// `org member`
    OrgMember {
        /// Of which.
        slug: String,
        /// Who.
        email: String,
        /// What they are from now on; none takes them out.
        role: Option<String>,
    },
    /// `org invite`
    OrgInvite {
        /// Into which.
        slug: String,
        /// Whom.
        email: String,
        /// What they will be.
        role: String,
    },
    /// `key create`
    KeyCreate {
        /// Of which organisation.
        slug: String,
        /// What people call it.
        name: String,
        /// Of `ingest read embed`.
        scopes: Vec<String>,
        /// Seconds until it ends; none: never.
        expires_in_s: Option<u64>,
        /// Limits other than the defaults.
        #[serde(default)]
        rates: KeyRates,
    },
    /// `key list`
    KeyList {
        /// Of which organisation.
        slug: String,
    },
    /// `key revoke`
    KeyRevoke {
        /// Of which organisation.
        slug: String,
        /// Which.
        id: String,
    },
    /// `token mint`
    TokenMint {
        /// Of which organisation.
        slug: String,
        /// The key that signs.
        key: String,
        /// Its life in seconds; none: an hour, or less where the key says so.
        ttl_s: Option<u32>,
        /// The viewer.
        sub: Option<String>,
        /// The claim `ms`, as JSON.
        ms: Option<Value>,
    },
    /// `token inspect`
    TokenInspect {
        /// The token.
        token: Hidden,
    },
    /// `doctor` asks what a running server knows.
    Stats,
}

/// What commands work on.
pub(super) struct Commands<'a> {
    pub(super) identity: &'a Identity,
    /// None on a stopped folder: what commands need of samples waits for the next start.
    pub(super) tsdb: Option<&'a Tsdb>,
    pub(super) public_url: &'a str,
    pub(super) clock: &'a Clock,
    /// Requests a second of new keys.
    pub(super) embed_rps_default: u32,
}

/// Words for the person at the keyboard: what is wrong, and what to do next.
type Answer = Result<Value, String>;

fn words(error: impl std::error::Error) -> String {
    with_sources(&error)
}

impl Commands<'_> {
    /// Does it.
    ///
    /// # Errors
    /// In words.
    pub(super) fn perform(&self, command: Command) -> Answer {
        match command {
            Command::UserCreate { .. }
            | Command::UserList { .. }
            | Command::UserChange { .. }
            | Command::UserSetPassword { .. }
            | Command::UserResetTwofa { .. }
            | Command::LoginLink { .. } => self.of_users(command),
            Command::KeyCreate { .. }
            | Command::KeyList { .. }
            | Command::KeyRevoke { .. }
            | Command::TokenMint { .. }
            | Command::TokenInspect { .. } => self.of_keys(command),
            command => self.of_orgs(command),
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn user(&self, email: &str) -> Result<User, String> {
        let address = Email::parse(email).map_err(|e| format!("{email:?}: {e}"))?;
        let found = self.identity.user_by_email(&address).map_err(words)?;
        found.ok_or_else(|| {
            format!("no account has the address {address}: `promlet user list` shows all, `promlet user create` makes one")
        })
    }

    fn org(&self, slug: &str) -> Result<Org, String> {
        let found = self.identity.org_by_slug(slug).map_err(words)?;
        found.ok_or_else(|| format!("there is no organisation {slug:?}: `promlet org list` shows all"))
    }

    fn shown(&self, user: &User) -> Answer {
        let summary = self.identity.user_summary(user.id, self.now()).map_err(words)?;
        summary.as_ref().map(shown::users::to_json).ok_or_else(|| "the account is gone".to_owned())
    }

    fn of_users(&self, command: Command) -> Answer {
        let (identity, now) = (self.identity, self.now());
        match command {
            Command::UserCreate { email, name, password, admin } => {
                let email = Email::parse(&email).map_err(|e| format!("{email:?}: {e}"))?;
                let password = password.as_ref().map(|password| Password(&password.0));
                let new = NewUser { email, name: &name, password, is_admin: admin };
                let made = identity.create_user(&new, now, &mut Entropy::system()).map_err(words)?;
                self.shown(&made)
            }
            Command::UserList { search } => {
                let found = identity.users_found(&search).map_err(words)?.into_iter();
                let rows = found.map(|user| Ok(shown::users::to_json(&identity.summary(user, now)?)));
                let rows = rows.collect::<Result<Vec<_>, StoreError>>().map_err(words)?;
                Ok(json!({ "data": rows }))
            }
            Command::UserChange { email, disabled, admin } => {
                let user = self.user(&email)?;
                let change = UserChange { disabled, is_admin: admin };
                identity.change_user(None, user.id, change, now).map_err(words)?;
                self.shown(&user)
            }
            Command::UserSetPassword { email, password } => {
                let user = self.user(&email)?;
                let rng = &mut Entropy::system();
                identity.replace_password(user.id, Password(&password.0), now, rng).map_err(words)?;
                self.shown(&user)
            }
            Command::UserResetTwofa { email } => {
                let user = self.user(&email)?;
                let had = identity.reset_two_factor(user.id, now).map_err(words)?;
                Ok(json!({ "email": user.email.as_str(), "had_second_factor": had }))
            }
            Command::LoginLink { email } => {
                let user = self.user(&email)?;
                if user.disabled {
                    return Err(format!("{email} is disabled: `promlet user enable {email}` first"));
                }
                let rng = &mut Entropy::system();
                let link = identity.issue_login_link(user.id, None, now, rng).map_err(words)?;
                let url = self.public_url;
                let url = format!("{url}/api/v1/auth/magic-link/verify?token={}", link.token.expose());
                Ok(
                    json!({ "email": user.email.as_str(), "url": url, "expires_in": link.expires_in.as_secs() }),
                )
            }
            other => self.of_orgs(other),
        }
    }

    fn of_orgs(&self, command: Command) -> Answer {
        let (identity, now) = (self.identity, self.now());
        let rng = &mut Entropy::system();
        match command {
            Command::OrgCreate { slug, name, owner } => {
                let owner = self.user(&owner)?;
                let slug = OrgSlug::parse(&slug).map_err(|e| format!("{slug:?}: {}", words(e)))?;
                let made = identity
                    .create_org_for(None, owner.id, NewOrg { slug, name }, now, rng)
                    .map_err(words)?;
                Ok(self.orgs_shown(&[made.org])?.into_iter().next().unwrap_or_default())
            }
            Command::OrgList => {
                let orgs = identity.orgs().map_err(words)?;
                Ok(json!({ "data": self.orgs_shown(&orgs)? }))
            }
            Command::OrgMembers { slug } => self.members(&self.org(&slug)?),
            Command::OrgDelete { slug } => {
                let org = self.org(&slug)?;
                identity.delete_org(None, org.id, now).map_err(words)?;
                let when = if self.tsdb.is_some() { "now, in the background" } else { "with the next start" };
                Ok(json!({ "slug": org.slug.as_str(), "status": "deleting", "data_is_removed": when }))
            }
            Command::OrgMember { slug, email, role } => {
                let (org, user) = (self.org(&slug)?, self.user(&email)?);
                let is_member = identity.member(org.id, user.id, now).map_err(words)?.is_some();
                match role {
                    None => identity.remove_member(None, org.id, user.id, now),
                    Some(role) if is_member => {
                        identity.change_role(None, org.id, user.id, read_role(&role)?, now)
                    }
                    Some(role) => identity.add_member(org.id, user.id, read_role(&role)?, now),
                }
                .map_err(words)?;
                self.members(&org)
            }
            Command::OrgInvite { slug, email, role } => {
                let org = self.org(&slug)?;
                let email = Email::parse(&email).map_err(|e| format!("{email:?}: {e}"))?;
                let wanted = NewInvite { email, role: read_role(&role)?, mailed: false };
                let issued = identity.invite(None, org.id, wanted, now, rng).map_err(words)?;
                Ok(json!({
                    "id": issued.invite.id.to_string(),
                    "email": issued.invite.email.as_str(),
                    "role": issued.invite.role.as_str(),
                    "url": invites::invite_url(self.public_url, issued.token.expose()),
                    "expires_at": issued.invite.expires_at.to_rfc3339(),
                }))
            }
            Command::Stats => match self.tsdb {
                Some(tsdb) => shown::orgs::stats_json(identity, tsdb, now).map_err(words),
                None => Ok(Value::Null),
            },
            other => Err(format!("not a command about organisations: {other:?}")),
        }
    }

    fn orgs_shown(&self, orgs: &[Org]) -> Result<Vec<Value>, String> {
        let (identity, now) = (self.identity, self.now());
        match self.tsdb {
            Some(tsdb) => shown::orgs::all_json(identity, tsdb, orgs, now).map_err(words),
            None => {
                let one = |org| shown::orgs::without_usage(identity, org, now).map_err(words);
                orgs.iter().map(one).collect()
            }
        }
    }

    fn members(&self, org: &Org) -> Answer {
        let members = self.identity.members(org.id, self.now()).map_err(words)?;
        let rows = members.iter().map(|member| {
            json!({
                "user_id": member.user.id.to_string(),
                "email": member.user.email.as_str(),
                "name": member.user.name,
                "role": member.role.as_str(),
                "joined_at": member.joined_at.to_rfc3339(),
                "last_seen_at": member.last_seen_at.map(|at| at.to_rfc3339()),
            })
        });
        Ok(json!({ "data": rows.collect::<Vec<_>>() }))
    }

    fn of_keys(&self, command: Command) -> Answer {
        let (identity, now) = (self.identity, self.now());
        match command {
            Command::KeyCreate { slug, name, scopes, expires_in_s, rates } => {
                let org = self.org(&slug)?;
                let has = |scope: &str| scopes.iter().any(|one| one == scope);
                if let Some(odd) =
                    scopes.iter().find(|one| !["ingest", "read", "embed"].contains(&one.as_str()))
                {
                    return Err(format!("a scope is ingest, read or embed, not {odd:?}"));
                }
                if rates.read_rps.is_some() && !has("read") {
                    return Err(format!("--read-rps {}", api_keys::NOTHING_TO_READ));
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
                let made = identity.create_key(org.id, None, key, now, rng).map_err(words)?;
                let mut row = api_keys::key_json(&made.key);
                row["secret"] = made.secret.expose().into();
                Ok(row)
            }
            Command::KeyList { slug } => {
                let keys = identity.keys(self.org(&slug)?.id);
                Ok(json!({ "data": keys.iter().map(|key| api_keys::key_json(key)).collect::<Vec<_>>() }))
            }
            Command::KeyRevoke { slug, id } => {
                let (org, key) = (self.org(&slug)?, read_key(&id)?);
                identity
                    .delete_key(org.id, None, key, now)
                    .map_err(|e| format!("{}: `promlet key list {slug}` shows all", words(e)))?;
                Ok(json!({ "id": id, "status": "revoked" }))
            }
            Command::TokenMint { slug, key, ttl_s, sub, ms } => {
                let (org, key) = (self.org(&slug)?, read_key(&key)?);
                let longest = identity.key(org.id, key).map(|key| key.embed.max_token_ttl_s);
                let longest =
                    longest.ok_or_else(|| format!("no such key: `promlet key list {slug}` shows all"))?;
                let ms = ms.as_ref().map(|sent| api_keys::policy("ms", sent)).transpose();
                let ms = ms.map_err(|refused| refused.detail().to_owned())?;
                let request = MintRequest { key, ttl_s: ttl_s.unwrap_or(3_600.min(longest)), sub, ms };
                let minted = identity.mint(org.id, &request, now).map_err(words)?;
                identity.note_minted(org.id, key, None, now);
                Ok(json!({
                    "token": minted.token.expose(),
                    "expires_at": minted.expires_at.to_rfc3339(),
                    "kid": minted.kid.to_string(),
                }))
            }
            Command::TokenInspect { token } => {
                let claims = embed_tokens::part(&token.0, 1).unwrap_or_default();
                let slug = claims["org"].as_str().unwrap_or_default().to_owned();
                // One of no organisation here is looked at, too: no key is its own then.
                let org = identity.org_by_slug(&slug).map_err(words)?.map_or(OrgId(0), |org| org.id);
                let request = EmbedRequest { token: &token.0, slug: &slug, origin: None };
                Ok(embed_tokens::introspection(identity, org, &request, now))
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
