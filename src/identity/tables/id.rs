//! Public ids of accounts, keys and similar objects, and the secrets that people carry
//! (docs/specification.md B, ids).
//!
//! An id is a prefix and 16 lower-case base32 characters: 80 random bits. It is public. A secret is
//! a prefix and 43 base64url characters: 256 random bits. It is shown once, stored as its SHA-256
//! and looked up by that hash, so no comparison depends on the secret.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{BASE64URL_NOPAD, Encoding, Specification};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::entropy::Entropy;
use crate::kv::TableKey;

/// A text that is not an id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of this kind is {prefix} and 16 characters of a-z and 2-7")]
pub struct IdError {
    /// The prefix of such an id.
    pub prefix: &'static str,
}

/// RFC 4648 base32 in lower case, without padding.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 distinct ASCII symbols")
});

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name([u8; 10]);

        impl $name {
            /// The prefix of the text form.
            pub const PREFIX: &str = $prefix;

            /// Draws a new id; 80 random bits.
            pub fn random(rng: &mut Entropy) -> $name {
                $name(rng.bytes())
            }

            /// Returns the stored form.
            pub const fn as_bytes(&self) -> &[u8; 10] {
                &self.0
            }

            /// Creates an id from its stored form.
            pub const fn from_bytes(bytes: [u8; 10]) -> $name {
                $name(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, BASE32.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl TableKey for $name {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }

            fn read(from: &mut &[u8]) -> Option<$name> {
                TableKey::read(from).map($name)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<$name, IdError> {
                let refused = IdError { prefix: $prefix };
                let digits = text.strip_prefix($prefix).filter(|digits| digits.len() == 16).ok_or(refused)?;
                let bytes = BASE32.decode(digits.as_bytes()).map_err(|_| refused)?;
                Ok($name(bytes.try_into().map_err(|_| refused)?))
            }
        }
    )*};
}

ids! {
    /// Id of an account.
    UserId "usr_";
    /// Public id of an organisation; the store uses `OrgId`.
    OrgKey "org_";
    /// Public id of a session; it reveals nothing about the cookie.
    SessionId "sid_";
    /// Id of an API key, and the `kid` of the tokens that it signs.
    KeyId "ak_";
    /// Id of an audit entry.
    EventId "evt_";
    /// Id of a linked account at a sign-in provider.
    IdentityId "idn_";
    /// Public id of an invitation; it reveals nothing about its link.
    InviteId "inv_";
}

/// SHA-256 of a secret's whole text: the stored form and the lookup key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    /// Hashes a text.
    pub fn of(secret: &str) -> SecretHash {
        SecretHash(Sha256::digest(secret.as_bytes()).into())
    }
}

impl TableKey for SecretHash {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<SecretHash> {
        TableKey::read(from).map(SecretHash)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(***)")
    }
}

/// A secret that is about to be handed out. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    /// Draws a secret: `prefix` and 43 base64url characters, 256 random bits.
    pub fn random(prefix: SecretKind, rng: &mut Entropy) -> Secret {
        let bytes: [u8; 32] = rng.bytes();
        Secret(format!("{}{}", prefix.prefix(), BASE64URL_NOPAD.encode(&bytes)).into())
    }

    /// Returns the text, for the one response, cookie or mail that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the stored form.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The kind of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// `ses_`: a session; the value of the cookie `ms_session`.
    Session,
    /// `mgl_`: a sign-in link.
    MagicLink,
    /// `tfp_`: a login that still needs its second factor.
    PendingLogin,
    /// `sgn_`: the set-up of the first account, and sign-up links.
    Setup,
    /// `rst_`: a link that sets a new password.
    Reset,
    /// `eml_`: a link that proves a new address.
    Email,
    /// `ivt_`: an invitation.
    Invite,
}

impl SecretKind {
    /// Returns the prefix of the text form.
    pub const fn prefix(self) -> &'static str {
        match self {
            SecretKind::Session => "ses_",
            SecretKind::MagicLink => "mgl_",
            SecretKind::PendingLogin => "tfp_",
            SecretKind::Setup => "sgn_",
            SecretKind::Reset => "rst_",
            SecretKind::Email => "eml_",
            SecretKind::Invite => "ivt_",
        }
    }

    /// Returns the hash by which `text` is looked up; `None` if it is not well-formed, so that
    /// arbitrary bytes are not even hashed.
    pub fn hash_of(self, text: &str) -> Option<SecretHash> {
        let digits = text.strip_prefix(self.prefix())?;
        let fits =
            digits.len() == 43 && digits.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        fits.then(|| SecretHash::of(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_with_its_prefix_and_read_back() {
        let id = KeyId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 255]);
        assert_eq!(id.to_string(), "ak_aaaqeayeaudaoch7");
        assert_eq!("ak_aaaqeayeaudaoch7".parse(), Ok(id));
        assert_eq!(UserId::from_bytes([255; 10]).to_string(), "usr_7777777777777777");
    }

    #[test]
    fn malformed_ids_are_refused() {
        let bad = [
            "",
            "ak_",
            "ak_aaaaaaaaaaaaaaa",
            "ak_aaaaaaaaaaaaaaaaa",
            "ak_AAAAAAAAAAAAAAAA",
            "ak_aaaaaaaaaaaaaaa1",
            "usr_aaaaaaaaaaaaaaaa",
            "../ak_aaaaaaaaaaaaaaaa",
            "ak_aaaaaaaaaaaaaaa\n",
            "ak_äaaaaaaaaaaaaaa",
        ];
        for text in bad {
            assert_eq!(text.parse::<KeyId>(), Err(IdError { prefix: "ak_" }), "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_found_by_its_hash_and_does_not_print() {
        let secret = Secret::random(SecretKind::Session, &mut Entropy::seeded(1));
        assert_eq!(secret.expose().len(), 47);
        assert_eq!(SecretKind::Session.hash_of(secret.expose()), Some(secret.hash()));
        assert_eq!(format!("{secret:?} {secret} {:?}", secret.hash()), "*** *** SecretHash(***)");
        for foreign in [
            "",
            "ses_",
            &secret.expose()[1..],
            &format!("{}A", secret.expose()),
            &secret.expose().replace("ses_", "mgl_"),
            &format!("ses_{}", "!".repeat(43)),
        ] {
            assert_eq!(SecretKind::Session.hash_of(foreign), None, "{foreign}");
        }
    }
}
