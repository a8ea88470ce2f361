//! Linked identities and used sign-in states.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, TableKey};
use crate::model::Timestamp;

use crate::identity::tables::id::{IdentityId, SecretHash, UserId};

/// The provider of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Provider {
    // Variants are stored by their index: append new ones.
    /// Google.
    Google,
    /// GitHub, or a GitHub Enterprise server.
    GitHub,
    /// The configured OpenID Connect issuer.
    Oidc,
}

/// The properties of a provider in this room.
#[derive(Clone, Copy, Debug)]
struct ProviderRow {
    /// The name in paths and responses. The names of its settings contain it in upper case.
    name: &'static str,
    /// The number of a login through it in stored sessions: unique among all methods of a login
    /// ([`AuthMethod`](crate::identity::AuthMethod)), and never reused.
    login_number: u32,
    address_trust: AddressTrust,
}

/// The addresses for which a provider may sign in to an existing account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum AddressTrust {
    /// Every address that it states to be verified.
    Verified,
    /// The own mailboxes and those of its customers. Of other addresses Google only knows that the
    /// person owned them at some time.
    GoogleMailboxes,
    /// Every address that it states to be verified, if the operator trusts it.
    Operator,
}

impl Provider {
    /// All providers, in the order of the login page.
    pub const ALL: [Provider; 3] = [Provider::Google, Provider::GitHub, Provider::Oidc];

    const fn row(self) -> ProviderRow {
        let (name, login_number, address_trust) = match self {
            Provider::Google => ("google", 3, AddressTrust::GoogleMailboxes),
            Provider::GitHub => ("github", 4, AddressTrust::Verified),
            Provider::Oidc => ("oidc", 5, AddressTrust::Operator),
        };
        ProviderRow { name, login_number, address_trust }
    }

    /// Returns the name used in paths and responses.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Parses the name used in paths.
    pub fn parse(text: &str) -> Option<Provider> {
        Provider::ALL.into_iter().find(|provider| provider.as_str() == text)
    }

    /// Returns the number of a login through it in stored sessions.
    pub(in crate::identity) const fn login_number(self) -> u32 {
        self.row().login_number
    }

    /// Returns the addresses for which it may sign in to an existing account.
    pub(in crate::identity) const fn address_trust(self) -> AddressTrust {
        self.row().address_trust
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tables::session::AuthMethod;
    use crate::kv::decode_body;

    /// Names are in URLs and hashed into the keys of identities; both numbers are stored.
    #[test]
    fn the_names_and_the_stored_numbers_of_providers_do_not_change() {
        let known = [("google", 0, 3), ("github", 1, 4), ("oidc", 2, 5)];
        assert_eq!(Provider::ALL.len(), known.len(), "add the new provider to this list");
        for (name, number, login_number) in known {
            let provider = Provider::parse(name).expect("known");
            assert_eq!(decode_body::<Provider>(&[number]), Ok(provider));
            assert_eq!(decode_body::<AuthMethod>(&[login_number]), Ok(AuthMethod::Provider(provider)));
        }
    }
}
