//! What each kind of caller gets on each kind of route, as a table: the OpenAPI document tells it, and `tests/api/matrix.rs`
//! asks every route as every caller whether it holds.

use super::error::Code;
use super::routes::{Auth, Login};
use crate::identity::{Endpoint, Role};

/// A scope of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Write samples.
    Ingest,
    /// Ask on the Prometheus mount.
    Read,
    /// Mint embed tokens.
    Embed,
}

/// A kind of caller, seen from an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No credential.
    Nobody,
    /// A member of another organisation.
    Stranger,
    /// A member of this one, with a fresh login.
    Member(Role),
    /// An owner of this one whose login is older than 15 minutes.
    StaleOwner,
    /// An administrator of the instance who is no member, with a fresh login.
    InstanceAdmin,
    /// The same, whose login is older than 15 minutes.
    StaleInstanceAdmin,
    /// A session after its 30 days.
    ExpiredSession,
    /// A session that was ended.
    RevokedSession,
    /// A session of an account that was disabled.
    DisabledAccount,
    /// An embed token that grants everything.
    Token,
    /// An embed token that grants all endpoints but this one.
    TokenWithout(Endpoint),
    /// An embed token of another organisation.
    ForeignToken,
    /// An embed token after its time.
    ExpiredToken,
    /// An embed token made before its key's tokens were revoked.
    RevokedToken,
    /// An API key with one scope.
    Key(Scope),
    /// An API key of another organisation, with all scopes.
    ForeignKey,
    /// An API key after its time.
    ExpiredKey,
    /// An API key that was disabled.
    DisabledKey,
    /// An API key that was deleted.
    RevokedKey,
}

/// What a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In: what the route answers is its own affair.
    Served,
    /// Refused for who they are.
    Refused(Code),
}

use Outcome::{Refused, Served};

impl Caller {
    /// All of them.
    pub const ALL: &[Caller] = &[
        Caller::Nobody,
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
        Caller::ForeignToken,
        Caller::ExpiredToken,
        Caller::RevokedToken,
        Caller::Key(Scope::Ingest),
        Caller::Key(Scope::Read),
        Caller::Key(Scope::Embed),
        Caller::ForeignKey,
        Caller::ExpiredKey,
        Caller::DisabledKey,
        Caller::RevokedKey,
    ];

    /// The role of a live session in the organisation; `None` for a stranger to it.
    const fn session(self) -> Option<Option<Role>> {
        match self {
            Caller::Member(role) => Some(Some(role)),
            Caller::StaleOwner => Some(Some(Role::Owner)),
            Caller::Stranger | Caller::InstanceAdmin | Caller::StaleInstanceAdmin => Some(None),
            _ => None,
        }
    }

    /// A live session whose owner proved who they are more than 15 minutes ago.
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
        )
    }

    /// What is refused wherever a caller has to be somebody.
    const fn dead(self) -> Option<Code> {
        match self {
            Caller::Nobody => Some(Code::Unauthenticated),
            Caller::ExpiredSession | Caller::RevokedSession | Caller::DisabledAccount => {
                Some(Code::SessionInvalid)
            }
            Caller::ForeignToken => Some(Code::OrgMismatch),
            Caller::ExpiredToken => Some(Code::TokenExpired),
            Caller::RevokedToken => Some(Code::TokenInvalid),
            Caller::ExpiredKey | Caller::DisabledKey | Caller::RevokedKey => Some(Code::ApiKeyInvalid),
            _ => None,
        }
    }
}

impl Auth {
    /// What `caller` gets on a route of this kind.
    pub fn outcome(self, caller: Caller) -> Outcome {
        match self {
            Auth::Public | Auth::Operator => Served,
            Auth::Account(login) => cabinet(caller, None, login),
            Auth::Member(role, login) => cabinet(caller, Some(role), login),
            Auth::OneselfOr(role) => cabinet(caller, Some(role), Login::Any),
            Auth::InstanceAdmin(login) => instance_admin(caller, login),
            Auth::Founder => instance_admin(caller, Login::Any),
            Auth::Reader(endpoint) => match caller {
                Caller::Key(_) | Caller::ForeignKey => Refused(Code::ApiKeyNotAllowed),
                _ => reader(caller, Some(endpoint)),
            },
            Auth::MountReader(endpoint) => match caller {
                Caller::Key(scope) => keyed(scope, Scope::Read),
                Caller::ForeignKey => Refused(Code::OrgMismatch),
                _ => reader(caller, endpoint),
            },
            Auth::Machine => match caller {
                Caller::Key(scope) => keyed(scope, Scope::Ingest),
                Caller::ForeignKey => Refused(Code::OrgMismatch),
                Caller::Token | Caller::TokenWithout(_) => Refused(Code::EmbedRestricted),
                _ => member(caller, Role::Editor),
            },
            Auth::Minter => match caller {
                Caller::Key(scope) => keyed(scope, Scope::Embed),
                Caller::ForeignKey => Refused(Code::OrgMismatch),
                _ if caller.is_token() => Refused(Code::SessionRequired),
                _ => member(caller, Role::Editor),
            },
        }
    }

    /// The refusals of this kind of route, each once.
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

/// A session and nothing else: a token is none whatever it is.
fn cabinet(caller: Caller, role: Option<Role>, login: Login) -> Outcome {
    if caller.is_token() || matches!(caller, Caller::Key(_) | Caller::ForeignKey) {
        return Refused(Code::SessionRequired);
    }
    let within = role.map_or_else(|| anybody(caller), |role| member(caller, role));
    match within {
        Served if login == Login::Fresh && caller.is_stale() => Refused(Code::ReauthRequired),
        outcome => outcome,
    }
}

/// Who is no administrator is told so before anybody asks when they logged in.
fn instance_admin(caller: Caller, login: Login) -> Outcome {
    match cabinet(caller, None, Login::Any) {
        Served if !matches!(caller, Caller::InstanceAdmin | Caller::StaleInstanceAdmin) => {
            Refused(Code::Forbidden)
        }
        Served => cabinet(caller, None, login),
        refused => refused,
    }
}

fn anybody(caller: Caller) -> Outcome {
    caller.dead().map_or(Served, Refused)
}

/// A live session of the organisation, with at least this role.
fn member(caller: Caller, needed: Role) -> Outcome {
    match caller.session() {
        None => anybody(caller),
        Some(None) => Refused(Code::OrgNotFound),
        Some(Some(role)) if role.allows(needed) => Served,
        Some(Some(_)) => Refused(Code::Forbidden),
    }
}

fn reader(caller: Caller, endpoint: Option<Endpoint>) -> Outcome {
    match caller {
        Caller::TokenWithout(withheld) if endpoint == Some(withheld) => Refused(Code::EmbedRestricted),
        _ => member(caller, Role::Viewer),
    }
}

fn keyed(held: Scope, needed: Scope) -> Outcome {
    if held == needed { Served } else { Refused(Code::Forbidden) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some rows of the table, said in words.
    #[test]
    fn the_table_says_what_the_contract_says() {
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
        let range = Auth::Reader(Endpoint::Range);
        assert_eq!(range.outcome(Caller::Key(Scope::Read)), Refused(Code::ApiKeyNotAllowed));
        assert_eq!(range.outcome(Caller::TokenWithout(Endpoint::Range)), Refused(Code::EmbedRestricted));
        assert_eq!(range.outcome(Caller::TokenWithout(Endpoint::Expr)), Served);
        assert_eq!(range.outcome(Caller::ForeignToken), Refused(Code::OrgMismatch));
        assert_eq!(Auth::Public.refusals(), []);
    }
}
