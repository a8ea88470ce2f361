//! Sessions, their last use, and pending logins.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord};
use crate::model::Timestamp;

use crate::identity::tables::id::{SecretHash, SessionId, UserId};
use crate::identity::tables::oauth::Provider;

/// The method of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub enum AuthMethod {
    /// Address and password.
    Password,
    /// A link from a mail, the console or the command line.
    MagicLink,
    /// The creation of the first account.
    Setup,
    /// An account at a provider.
    Provider(Provider),
    /// A mailed link that created the account.
    Signup,
    /// An invitation that created the account.
    Invite,
}

/// The methods that are not providers, with their stored numbers. The numbers of providers are in
/// the same range: [`Provider::login_number`].
const METHODS: [(AuthMethod, u32); 5] = [
    (AuthMethod::Password, 0),
    (AuthMethod::MagicLink, 1),
    (AuthMethod::Setup, 2),
    (AuthMethod::Signup, 6),
    (AuthMethod::Invite, 7),
];

impl AuthMethod {
    /// Returns all methods with their stored numbers.
    fn numbered() -> impl Iterator<Item = (AuthMethod, u32)> {
        let of_providers =
            Provider::ALL.into_iter().map(|one| (AuthMethod::Provider(one), one.login_number()));
        METHODS.into_iter().chain(of_providers)
    }

    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            AuthMethod::Password => "password",
            AuthMethod::MagicLink => "magic_link",
            AuthMethod::Setup => "setup",
            AuthMethod::Provider(provider) => provider.as_str(),
            AuthMethod::Signup => "signup",
            AuthMethod::Invite => "invite",
        }
    }
}

impl From<AuthMethod> for u32 {
    fn from(method: AuthMethod) -> u32 {
        match method {
            AuthMethod::Provider(provider) => provider.login_number(),
            method => METHODS
                .into_iter()
                .find(|(known, _)| *known == method)
                .map(|(_, number)| number)
                .expect("every method but a provider has a row in METHODS"),
        }
    }
}

impl TryFrom<u32> for AuthMethod {
    type Error = String;

    fn try_from(number: u32) -> Result<AuthMethod, String> {
        let found = AuthMethod::numbered().find(|(_, known)| *known == number);
        found.map(|(method, _)| method).ok_or_else(|| format!("{number} is not a login method"))
    }
}

/// Key of a session's rows.
pub(in crate::identity) type SessionKey = (UserId, SecretHash);

/// A stored session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct SessionRow {
    pub(in crate::identity) id: SessionId,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) auth_time: Timestamp,
    pub(in crate::identity) auth_method: AuthMethod,
    pub(in crate::identity) second_factor: bool,
    /// The session has ended if this is below its user's `sessions_epoch`.
    pub(in crate::identity) epoch: u32,
    pub(in crate::identity) ip: IpAddr,
    pub(in crate::identity) user_agent: String,
}

impl Record for SessionRow {
    const TABLE: u8 = 0x05;
    const KIND: u8 = 0x05;
    const VERSION: u8 = 1;
    type Key = SessionKey;
}

/// Time of a session's last use; without a row it is the time of the login.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct SeenRow(pub(in crate::identity) Timestamp);

impl Record for SeenRow {
    const TABLE: u8 = 0x06;
    const KIND: u8 = 0x06;
    const VERSION: u8 = 1;
    type Key = SessionKey;
}

impl SideRecord for SeenRow {
    type Main = SessionRow;

    fn main_key(key: &SessionKey) -> SessionKey {
        *key
    }
}

/// A stored pending login.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct PendingRow {
    pub(in crate::identity) user: UserId,
    /// The first factor.
    pub(in crate::identity) method: AuthMethod,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) tries: u8,
    /// The user's `sessions_epoch`: the end of all sessions also ends pending logins.
    pub(in crate::identity) epoch: u32,
}

impl Record for PendingRow {
    const TABLE: u8 = 0x04;
    const KIND: u8 = 0x04;
    const VERSION: u8 = 1;
    type Key = SecretHash;
}
