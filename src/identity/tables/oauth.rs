//! Linked identities and used sign-in states.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, TableKey};
use crate::model::Timestamp;

use crate::identity::tables::id::{IdentityId, SecretHash, UserId};
use crate::identity::tables::session::AuthMethod;

/// The provider of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Provider {
    /// Google.
    Google,
    /// GitHub, or a GitHub Enterprise server.
    GitHub,
    /// The configured OpenID Connect issuer.
    Oidc,
}

impl Provider {
    /// All providers.
    pub const ALL: [Provider; 3] = [Provider::Google, Provider::GitHub, Provider::Oidc];

    /// Returns the name used in paths and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Provider::Google => "google",
            Provider::GitHub => "github",
            Provider::Oidc => "oidc",
        }
    }

    /// Parses the name used in paths.
    pub fn parse(text: &str) -> Option<Provider> {
        Provider::ALL.into_iter().find(|provider| provider.as_str() == text)
    }

    /// Returns the method of a login through it.
    pub(in crate::identity) const fn method(self) -> AuthMethod {
        match self {
            Provider::Google => AuthMethod::Google,
            Provider::GitHub => AuthMethod::GitHub,
            Provider::Oidc => AuthMethod::Oidc,
        }
    }
}

/// SHA-256 of provider, issuer and subject: the lookup key of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::identity) struct IdentityKey(pub(in crate::identity) [u8; 32]);

impl TableKey for IdentityKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<IdentityKey> {
        TableKey::read(from).map(IdentityKey)
    }
}

/// A stored identity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct IdentityRow {
    pub(in crate::identity) user: UserId,
    pub(in crate::identity) id: IdentityId,
    pub(in crate::identity) provider: Provider,
    pub(in crate::identity) issuer: String,
    pub(in crate::identity) subject: String,
    pub(in crate::identity) email: Option<String>,
    pub(in crate::identity) linked_at: Timestamp,
}

impl Record for IdentityRow {
    const TABLE: u8 = 0x1c;
    const KIND: u8 = 0x1c;
    const VERSION: u8 = 1;
    type Key = IdentityKey;
}

/// Maps an account and an `idn_...` id to the key of the identity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct OwnIdentityRow(pub(in crate::identity) IdentityKey);

impl Record for OwnIdentityRow {
    const TABLE: u8 = 0x1d;
    const KIND: u8 = 0x1d;
    const VERSION: u8 = 1;
    type Key = (UserId, IdentityId);
}

/// A used state, kept until its cookie expires.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct UsedStateRow(pub(in crate::identity) Timestamp);

impl Record for UsedStateRow {
    const TABLE: u8 = 0x1e;
    const KIND: u8 = 0x1e;
    const VERSION: u8 = 1;
    type Key = SecretHash;
}
