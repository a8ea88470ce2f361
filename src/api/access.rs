//! The table of outcomes by kind of caller and kind of route.
//!
//! The OpenAPI document is generated from it, and `tests/api/matrix.rs` calls every route as every
//! kind of caller to verify it.

use super::error::Code;
use super::routes::{Auth, Login};
use crate::identity::{Endpoint, Role};

/// A scope of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Write samples.
    Ingest,
    /// Query the Prometheus mount.
    Read,
    /// Mint embed tokens.
    Embed,
    /// Change rules and silences.
    Alerting,
}

/// A kind of caller, relative to one organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No credential.
    Anonymous,
    /// A member of another organisation.
    Stranger,
    /// A member of this organisation with a fresh login.
    Member(Role),
    /// An owner of this organisation whose login is older than 15 minutes.
    StaleOwner,
    /// An instance administrator who is not a member, with a fresh login.
    InstanceAdmin,
    /// An instance administrator who is not a member and whose login is older than 15 minutes.
    StaleInstanceAdmin,
    /// A session that has expired after 30 days.
    ExpiredSession,
    /// A session that was ended.
    RevokedSession,
    /// A session of a disabled account.
    DisabledAccount,
    /// An embed token that grants every endpoint, one dashboard and alerts.
    Token,
    /// An embed token that grants every endpoint except that of the route.
    TokenWithout(Endpoint),
    /// An embed token of another organisation.
    ForeignToken,
    /// An expired embed token.
    ExpiredToken,
    /// An embed token from before the tokens of its key were revoked.
    RevokedToken,
    /// A public link of the dashboard in the path.
    PublicLink,
    /// A public link of another organisation.
    ForeignPublicLink,
    /// A deleted public link.
    DeletedPublicLink,
    /// An API key with one scope.
    Key(Scope),
    /// An API key of another organisation, with all scopes.
    ForeignKey,
    /// An expired API key.
    ExpiredKey,
    /// A disabled API key.
    DisabledKey,
    /// A deleted API key.
    RevokedKey,
}

/// The outcome of a caller's request on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// The caller is admitted. The response depends on the route.
    Served,
    /// The caller is refused with this code.
    Refused(Code),
}

use AccessOutcome::{Refused, Served};

impl Caller {
    /// All kinds of caller.
    pub const ALL: &[Caller] = &[
        Caller::Anonymous,
        Caller::Stranger,
        Caller::Member(Role::Viewer),
        Caller::Member(Role::Editor),
        Caller::Member(Role::Admin),
        Caller::Member(Role::Owner),
        Caller::StaleOwner,
        Caller::InstanceAdmin,
        Caller::StaleInstanceAdmin,
        Caller::ExpiredSession,
        Caller::RevokedSession,
        Caller::DisabledAccount,
        Caller::Token,
        Caller::TokenWithout(Endpoint::Metrics),
        Caller::TokenWithout(Endpoint::Labels),
        Caller::TokenWithout(Endpoint::Range),
        Caller::TokenWithout(Endpoint::Instant),
        Caller::TokenWithout(Endpoint::Expr),
        Caller::TokenWithout(Endpoint::Dashboard),
        Caller::TokenWithout(Endpoint::Alerts),
        Caller::ForeignToken,
        Caller::ExpiredToken,
        Caller::RevokedToken,
        Caller::PublicLink,
        Caller::ForeignPublicLink,
        Caller::DeletedPublicLink,
        Caller::Key(Scope::Ingest),
        Caller::Key(Scope::Read),
        Caller::Key(Scope::Embed),
        Caller::Key(Scope::Alerting),
        Caller::ForeignKey,
        Caller::ExpiredKey,
        Caller::DisabledKey,
        Caller::RevokedKey,
    ];

    /// Returns the role of a live session in the organisation: `Some(None)` for a session of an
    /// account that is not a member, `None` if there is no live session.
    const fn session(self) -> Option<Option<Role>> {
        match self {
            Caller::Member(role) => Some(Some(role)),
            Caller::StaleOwner => Some(Some(Role::Owner)),
            Caller::Stranger | Caller::InstanceAdmin | Caller::StaleInstanceAdmin => Some(None),
            _ => None,
        }
    }

    /// Returns whether the session is live but its login is older than 15 minutes.
    const fn is_stale(self) -> bool {
        matches!(self, Caller::StaleOwner | Caller::StaleInstanceAdmin)
    }

    const fn is_token(self) -> bool {
        matches!(
            self,
            Caller::Token
                | Caller::TokenWithout(_)
                | Caller::ForeignToken
                | Caller::ExpiredToken
                | Caller::RevokedToken
                | Caller::PublicLink
                | Caller::ForeignPublicLink
                | Caller::DeletedPublicLink
        )
    }

    /// Returns the code with which every route that needs a caller refuses this one.
    const fn refusal(self) -> Option<Code> {
        match self {
            Caller::Anonymous => Some(Code::Unauthenticated),
            Caller::ExpiredSession | Caller::RevokedSession | Caller::DisabledAccount => {
                Some(Code::SessionInvalid)
            }
            Caller::ForeignToken | Caller::ForeignPublicLink => Some(Code::OrgMismatch),
            Caller::ExpiredToken => Some(Code::TokenExpired),
            Caller::RevokedToken => Some(Code::TokenInvalid),
            Caller::DeletedPublicLink => Some(Code::PublicLinkInvalid),
            Caller::ExpiredKey | Caller::DisabledKey | Caller::RevokedKey => Some(Code::ApiKeyInvalid),
            _ => None,
        }
    }
}

impl Auth {
    /// Returns the outcome for `caller` on a route of this kind.
    pub fn outcome(self, caller: Caller) -> AccessOutcome {
        match self {
            Auth::Public | Auth::Operator => Served,
            Auth::Account(login) => session_caller(caller, None, login),
            Auth::Member(role, login) => session_caller(caller, Some(role), login),
            Auth::OneselfOr(role) => session_caller(caller, Some(role), Login::Any),
            Auth::InstanceAdmin(login) => instance_admin(caller, login),
            Auth::Founder | Auth::ScrapeAdmin => instance_admin(caller, Login::Any),
            Auth::QueryCaller(endpoint) | Auth::PictureCaller(endpoint) => match caller {
                Caller::Key(_) | Caller::ForeignKey => Refused(Code::ApiKeyNotAllowed),
                _ => query_caller(caller, Some(endpoint)),
            },
            Auth::PrometheusCaller(endpoint) => match caller {
                Caller::Key(scope) => require_scope(scope, Scope::Read),
                Caller::ForeignKey => Refused(Code::OrgMismatch),
                _ => query_caller(caller, endpoint),
            },
            Auth::IngestCaller => writer(caller, Scope::Ingest),
            Auth::AlertingCaller => writer(caller, Scope::Alerting),
            Auth::MintCaller => match caller {
                Caller::Key(scope) => require_scope(scope, Scope::Embed),
                Caller::ForeignKey => Refused(Code::OrgMismatch),
                _ if caller.is_token() => Refused(Code::SessionRequired),
                _ => member(caller, Role::Editor),
            },
        }
    }

    /// Returns the codes with which this kind of route refuses callers, each once.
    pub fn refusals(self) -> Vec<Code> {
        let mut codes = Vec::new();
        for caller in Caller::ALL {
            if let Refused(code) = self.outcome(*caller)
                && !codes.contains(&code)
            {
                codes.push(code);
            }
        }
        codes
    }
}

/// Admits sessions only. A token or an API key does not count, valid or not.
fn session_caller(caller: Caller, role: Option<Role>, login: Login) -> AccessOutcome {
    if caller.is_token() || matches!(caller, Caller::Key(_) | Caller::ForeignKey) {
        return Refused(Code::SessionRequired);
    }
    let within = role.map_or_else(|| any_session(caller), |role| member(caller, role));
    match within {
        Served if login == Login::Fresh && caller.is_stale() => Refused(Code::ReauthRequired),
        outcome => outcome,
    }
}

/// Admits instance administrators. The role is checked before the age of the login.
fn instance_admin(caller: Caller, login: Login) -> AccessOutcome {
    match session_caller(caller, None, Login::Any) {
        Served if !matches!(caller, Caller::InstanceAdmin | Caller::StaleInstanceAdmin) => {
            Refused(Code::Forbidden)
        }
        Served => session_caller(caller, None, login),
        refused => refused,
    }
}

fn any_session(caller: Caller) -> AccessOutcome {
    caller.refusal().map_or(Served, Refused)
}

/// Admits live sessions of the organisation with at least this role.
fn member(caller: Caller, needed: Role) -> AccessOutcome {
    match caller.session() {
        None => any_session(caller),
        Some(None) => Refused(Code::OrgNotFound),
        Some(Some(role)) if role.allows(needed) => Served,
        Some(Some(_)) => Refused(Code::Forbidden),
    }
}

fn query_caller(caller: Caller, endpoint: Option<Endpoint>) -> AccessOutcome {
    match caller {
        Caller::TokenWithout(withheld) if endpoint == Some(withheld) => Refused(Code::EmbedRestricted),
        Caller::PublicLink if endpoint != Some(Endpoint::Dashboard) => Refused(Code::EmbedRestricted),
        _ => member(caller, Role::Viewer),
    }
}

/// Admits editors and API keys with this scope.
fn writer(caller: Caller, needed: Scope) -> AccessOutcome {
    match caller {
        Caller::Key(scope) => require_scope(scope, needed),
        Caller::ForeignKey => Refused(Code::OrgMismatch),
        Caller::Token | Caller::TokenWithout(_) | Caller::PublicLink => Refused(Code::EmbedRestricted),
        _ => member(caller, Role::Editor),
    }
}

fn require_scope(held: Scope, needed: Scope) -> AccessOutcome {
    if held == needed { Served } else { Refused(Code::Forbidden) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks some rows of the table against the specification.
    #[test]
    fn the_table_matches_the_specification() {
        let keys = Auth::Member(Role::Admin, Login::Fresh);
        assert_eq!(keys.outcome(Caller::Member(Role::Owner)), Served);
        assert_eq!(keys.outcome(Caller::Member(Role::Editor)), Refused(Code::Forbidden));
        assert_eq!(keys.outcome(Caller::StaleOwner), Refused(Code::ReauthRequired));
        assert_eq!(keys.outcome(Caller::Stranger), Refused(Code::OrgNotFound));
        assert_eq!(keys.outcome(Caller::InstanceAdmin), Refused(Code::OrgNotFound), "no implicit access");
        assert_eq!(keys.outcome(Caller::ExpiredToken), Refused(Code::SessionRequired));
        let administration = Auth::InstanceAdmin(Login::Fresh);
        assert_eq!(administration.outcome(Caller::InstanceAdmin), Served);
        assert_eq!(administration.outcome(Caller::StaleInstanceAdmin), Refused(Code::ReauthRequired));
        assert_eq!(administration.outcome(Caller::StaleOwner), Refused(Code::Forbidden), "no administrator");
        assert_eq!(Auth::InstanceAdmin(Login::Any).outcome(Caller::StaleInstanceAdmin), Served);
        let range = Auth::QueryCaller(Endpoint::Range);
        assert_eq!(range.outcome(Caller::Key(Scope::Read)), Refused(Code::ApiKeyNotAllowed));
        assert_eq!(range.outcome(Caller::TokenWithout(Endpoint::Range)), Refused(Code::EmbedRestricted));
        assert_eq!(range.outcome(Caller::TokenWithout(Endpoint::Expr)), Served);
        assert_eq!(range.outcome(Caller::ForeignToken), Refused(Code::OrgMismatch));
        assert_eq!(range.outcome(Caller::PublicLink), Refused(Code::EmbedRestricted));
        assert_eq!(Auth::QueryCaller(Endpoint::Dashboard).outcome(Caller::PublicLink), Served);
        assert_eq!(Auth::PrometheusCaller(None).outcome(Caller::PublicLink), Refused(Code::EmbedRestricted));
        assert_eq!(Auth::AlertingCaller.outcome(Caller::Key(Scope::Ingest)), Refused(Code::Forbidden));
        assert_eq!(Auth::IngestCaller.outcome(Caller::Key(Scope::Alerting)), Refused(Code::Forbidden));
        assert_eq!(Auth::Public.refusals(), []);
    }
}
