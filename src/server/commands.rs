//! The commands of the command line on accounts: run by the running server over `admin.sock`, or on
//! a stopped folder directly.
//!
//! A command is data, so that both run the same code. Its response is JSON, which `cli` renders as
//! a table.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::moves::Moves;
use crate::api::views::api_key::{NOTHING_TO_READ, key_json};
use crate::api::views::dashboard::dashboard_json;
use crate::api::views::embed_policy::policy_from_json;
use crate::api::views::embed_token::{introspection, minted_json, token_part};
use crate::api::views::link::{invite_url, sign_in_url};
use crate::api::views::member::member_json;
use crate::api::views::org::{org_json_without_usage, orgs_json};
use crate::api::views::server::stats_json;
use crate::api::views::user::user_json;
use crate::clock::Clock;
use crate::config::{
    AccountCommand, ConnectCommand, DashboardCommand, KeyCommand, KeyRates, OrgCommand, TokenCommand,
    UserCommand,
};
use crate::entropy::Entropy;
use crate::identity::{
    DashboardDocument, DashboardError, DashboardMarks, DashboardWrite, Email, EmbedRequest, EmbedSettings,
    ExpectedVersion, Identity, IngestSettings, KeyId, KeyScopes, MintRequest, NewApiKey, NewInvite, NewOrg,
    NewUser, Org, Password, ReadSettings, Role, StoreError, User, UserChange, parse_folder,
};
use crate::kv::with_sources;
use crate::model::{OrgId, OrgSlug, Timestamp};
use crate::tsdb::Tsdb;

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
    /// The moves to other engines; `None` on a stopped folder.
    pub(super) moves: Option<&'a Moves>,
}

/// The response of a command, or a message for the user: the error, and the next step.
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
            AccountCommand::User(command) => self.run_user_command(command),
            AccountCommand::LoginLink(command) => self.login_link(&command.email),
            AccountCommand::Org(command) => self.run_org_command(command),
            AccountCommand::Key(command) => self.run_key_command(command),
            AccountCommand::Token(command) => self.run_token_command(command),
            AccountCommand::Connect(command) => self.connect(command),
            AccountCommand::Dashboard(command) => self.run_dashboard_command(command),
            AccountCommand::Stats(_) => match self.tsdb {
                Some(tsdb) => stats_json(self.identity, tsdb, self.now()).map_err(error_text),
                None => Ok(Value::Null),
            },
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
        summary.as_ref().map(user_json).ok_or_else(|| "the account no longer exists".to_owned())
    }

    fn run_user_command(&self, command: UserCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            UserCommand::Create { email, name, password, admin, no_password: _ } => {
                let email = Email::parse(&email).map_err(|e| format!("{email:?}: {e}"))?;
                let password = password.as_ref().map(|password| Password(password.reveal()));
                let new = NewUser { email, name: &name, password, is_admin: admin };
                let created = identity.create_user(&new, now, &mut Entropy::system()).map_err(error_text)?;
                self.user_json(&created)
            }
            UserCommand::List { search } => {
                let matches = identity.users_found(&search).map_err(error_text)?.into_iter();
                let rows = matches.map(|user| Ok(user_json(&identity.summary(user, now)?)));
                let rows = rows.collect::<Result<Vec<_>, StoreError>>().map_err(error_text)?;
                Ok(json!({ "data": rows }))
            }
            UserCommand::Disable { email, disabled, admin }
            | UserCommand::Enable { email, disabled, admin }
            | UserCommand::Admin { email, disabled, admin }
            | UserCommand::Change { email, disabled, admin } => {
                let user = self.user(&email)?;
                let change = UserChange { disabled, is_admin: admin };
                identity.change_user(None, user.id, change, now).map_err(error_text)?;
                self.user_json(&user)
            }
            UserCommand::SetPassword { email, password } => {
                let user = self.user(&email)?;
                let rng = &mut Entropy::system();
                identity
                    .replace_password(user.id, Password(password.reveal()), now, rng)
                    .map_err(error_text)?;
                self.user_json(&user)
            }
            UserCommand::ResetTwofa { email } => {
                let user = self.user(&email)?;
                let had = identity.reset_two_factor(user.id, now).map_err(error_text)?;
                Ok(json!({ "email": user.email.as_str(), "had_second_factor": had }))
            }
        }
    }

    fn login_link(&self, email: &str) -> CommandResult {
        let user = self.user(email)?;
        if user.disabled {
            return Err(format!("{email} is disabled: `promlet user enable {email}` first"));
        }
        let rng = &mut Entropy::system();
        let link = self.identity.issue_login_link(user.id, None, self.now(), rng).map_err(error_text)?;
        let url = sign_in_url(self.public_url, link.token.expose());
        Ok(json!({ "email": user.email.as_str(), "url": url, "expires_in": link.expires_in.as_secs() }))
    }

    fn run_org_command(&self, command: OrgCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        let rng = &mut Entropy::system();
        match command {
            OrgCommand::Create { slug, name, owner } => {
                let owner = self.user(&owner)?;
                let slug = OrgSlug::parse(&slug).map_err(|e| format!("{slug:?}: {}", error_text(e)))?;
                let created = identity
                    .create_org_for(None, owner.id, NewOrg { slug, name }, now, rng)
                    .map_err(error_text)?;
                Ok(self.orgs_json(&[created.org])?.into_iter().next().unwrap_or_default())
            }
            OrgCommand::List => {
                let orgs = identity.orgs().map_err(error_text)?;
                Ok(json!({ "data": self.orgs_json(&orgs)? }))
            }
            OrgCommand::Move(command) => {
                let org = self.org(&command.slug)?;
                let moves = self.moves.ok_or("a move needs the running server")?;
                moves.perform(&org, &command)
            }
            OrgCommand::Members { slug } => self.members(&self.org(&slug)?),
            OrgCommand::Delete { slug, yes: _ } => {
                let org = self.org(&slug)?;
                identity.delete_org(None, org.id, now).map_err(error_text)?;
                let when = if self.tsdb.is_some() { "now, in the background" } else { "with the next start" };
                Ok(json!({ "slug": org.slug.as_str(), "status": "deleting", "data_is_removed": when }))
            }
            OrgCommand::Member { slug, email, role, remove: _ } => {
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
            OrgCommand::Invite { slug, email, role } => {
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

    fn run_key_command(&self, command: KeyCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            KeyCommand::Create { slug, name, scopes, expires_in_s, rates } => {
                let org = self.org(&slug)?;
                let has = |scope: &str| scopes.iter().any(|one| one == scope);
                let known = ["ingest", "read", "embed", "alerting"];
                if let Some(odd) = scopes.iter().find(|one| !known.contains(&one.as_str())) {
                    return Err(format!("a scope is ingest, read, embed or alerting, not {odd:?}"));
                }
                if rates.read_rps.is_some() && !has("read") {
                    return Err(format!("--read-rps {NOTHING_TO_READ}"));
                }
                let embed_rps = rates.embed_rps.unwrap_or(self.embed_rps_default);
                let (read, ingest) = (ReadSettings::default(), IngestSettings::default());
                let key = NewApiKey {
                    name,
                    scopes: KeyScopes {
                        ingest: has("ingest"),
                        read: has("read"),
                        embed: has("embed"),
                        alerting: has("alerting"),
                    },
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
            KeyCommand::List { slug } => {
                let keys = identity.keys(self.org(&slug)?.id);
                Ok(json!({ "data": keys.iter().map(|key| key_json(key)).collect::<Vec<_>>() }))
            }
            KeyCommand::Revoke { slug, id } => {
                let (org, key) = (self.org(&slug)?, read_key(&id)?);
                identity
                    .delete_key(org.id, None, key, now)
                    .map_err(|e| format!("{}: `promlet key list {slug}` lists all", error_text(e)))?;
                Ok(json!({ "id": id, "status": "revoked" }))
            }
        }
    }

    /// Creates the API key of a client, with the scope that it needs, and returns it with the URL
    /// of the organisation in the API. `base_url_source` names the origin of the URL: the
    /// `argument` `--url`, the running `server`, or the `settings` of the command.
    fn connect(&self, command: ConnectCommand) -> CommandResult {
        let ConnectCommand { client, slug, name, url } = command;
        let source = match (&url, self.tsdb) {
            (Some(_), _) => "argument",
            (None, Some(_)) => "server",
            (None, None) => "settings",
        };
        let url = url.as_deref().unwrap_or(self.public_url);
        if !is_plain_url(url) {
            return Err(format!(
                "{url:?} is not the URL of a server: give one with --url, as in https://metrics.example.com"
            ));
        }
        let mut row = self.run_key_command(KeyCommand::Create {
            slug: slug.clone(),
            name: name.unwrap_or_else(|| client.as_str().to_owned()),
            scopes: vec![client.scope().to_owned()],
            expires_in_s: None,
            rates: KeyRates::default(),
        })?;
        row["base_url"] = format!("{}/api/v1/orgs/{slug}", url.trim_end_matches('/')).into();
        row["base_url_source"] = source.into();
        Ok(row)
    }

    fn run_dashboard_command(&self, command: DashboardCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            DashboardCommand::Import { slug, folder, overwrite, text, files: _ } => {
                let org = self.org(&slug)?.id;
                let packed = DashboardDocument::parse(text).and_then(DashboardDocument::pack);
                let packed = packed.map_err(error_text)?;
                let folder = folder.as_deref().map(parse_folder).transpose().map_err(error_text)?;
                let write = DashboardWrite { packed, folder, message: "promlet dashboard import".to_owned() };
                let rng = &mut Entropy::system();
                let stored = match identity.create_dashboard(org, None, write.clone(), now, rng) {
                    Err(DashboardError::Exists(uid)) if overwrite => {
                        identity.update_dashboard(org, None, &uid, ExpectedVersion::Any, write, now)
                    }
                    Err(error @ DashboardError::Exists(_)) => {
                        return Err(format!("{}: --overwrite replaces it", error_text(error)));
                    }
                    stored => stored,
                };
                Ok(dashboard_json(&stored.map_err(error_text)?, false, &DashboardMarks::default()))
            }
            DashboardCommand::List { slug } => {
                let stored = identity.dashboards(self.org(&slug)?.id).map_err(error_text)?;
                let mut rows: BTreeMap<&str, Value> = BTreeMap::new();
                let provisioned = identity.provisioned_dashboards();
                let files = provisioned.values().map(|file| (&file.dashboard, true));
                // A stored dashboard hides a file with the same uid.
                for (one, is_file) in files.chain(stored.iter().map(|one| (one, false))) {
                    rows.insert(&one.uid, dashboard_json(one, is_file, &DashboardMarks::default()));
                }
                Ok(json!({ "data": rows.into_values().collect::<Vec<_>>() }))
            }
            DashboardCommand::Export { uid, slug } => {
                let found = identity.dashboard_with_text(self.org(&slug)?.id, &uid).map_err(error_text)?;
                let provisioned = || {
                    let file = identity.provisioned_dashboards().get(&uid).cloned()?;
                    Some((file.dashboard.clone(), file.text.as_ref().to_owned()))
                };
                let (dashboard, text) = found.or_else(provisioned).ok_or_else(|| {
                    format!("no such dashboard: `promlet dashboard list --org {slug}` lists all")
                })?;
                Ok(json!({ "uid": dashboard.uid, "version": dashboard.version, "text": text }))
            }
            DashboardCommand::Check { files: _ } => {
                Err("`promlet dashboard check` needs no server".to_owned())
            }
        }
    }

    fn run_token_command(&self, command: TokenCommand) -> CommandResult {
        let (identity, now) = (self.identity, self.now());
        match command {
            TokenCommand::Mint { slug, key, ttl_s, sub, ms } => {
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
            TokenCommand::Inspect { token } => {
                let claims = token_part(token.reveal(), 1).unwrap_or_default();
                let slug = claims["org"].as_str().unwrap_or_default().to_owned();
                // A token of no organisation here is inspected as well, with an organisation that
                // has no keys.
                let org = identity.org_by_slug(&slug).map_err(error_text)?.map_or(OrgId(0), |org| org.id);
                let request = EmbedRequest { token: token.reveal(), slug: &slug, origin: None };
                Ok(introspection(identity, org, &request, now))
            }
        }
    }
}

/// Returns whether a text is a URL without query, user or any character that YAML, TOML or a shell
/// treats specially.
fn is_plain_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/%[]".contains(&b);
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(fits))
}

fn read_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("a role is viewer, editor, admin or owner, not {text:?}"))
}

fn read_key(text: &str) -> Result<KeyId, String> {
    text.parse().map_err(|e: crate::identity::IdError| format!("{text:?}: {e}"))
}
