//! The cookie `ms_oauth`, which carries a sign-in to the provider and back. The server keeps no
//! state for it, so no memory can be exhausted.
//!
//! The cookie value is base64url of a plaintext sealed for the provider (`master`), so the cookie
//! of one provider cannot be opened at another's callback. Plaintext:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | version, 2 |
//! | 1..33 | state |
//! | 33..65 | nonce |
//! | 65..97 | PKCE verifier |
//! | 97..105 | expiry, i64 milliseconds, little endian |
//! | 105 | 0 to log in, 1 to link |
//! | 106..116 | to link: the account |
//! | 116..126 | to link: the session that started the sign-in and must finish it |
//! | the rest | path to go to afterwards |
//!
//! In URLs, state, nonce and verifier are base64url of these bytes. Version 1 had no session.
//! Version 1 is not read: a cookie expires after ten minutes, so none is left after an update.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use crate::entropy::Entropy;
use crate::identity::Identity;
use crate::identity::auth::session::Session;
use crate::identity::tables::id::{Secret, SecretHash, SessionId, UserId};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::oauth::Provider;
use crate::model::Timestamp;

const VERSION: u8 = 2;
/// Maximum duration of a sign-in at the provider.
const LIFETIME: Duration = Duration::from_secs(600);
/// Longest cookie value, characters; browsers keep 4,096 with name and attributes.
const COOKIE_CHARS_MAX: usize = 3_900;

/// Purpose of a sign-in at a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OauthMode {
    /// Log in.
    LogIn,
    /// Link the identity to the account of a logged-in person.
    Link {
        /// The account.
        user: UserId,
        /// The owner's session. Its end also ends the attempts that it started.
        session: SessionId,
    },
}

/// The start of a sign-in at a provider.
#[derive(Debug)]
pub struct OauthTicket {
    /// The value of the cookie `ms_oauth`.
    pub cookie: Secret,
    /// Sent to the provider, which returns it with the code.
    pub state: Secret,
    /// Sent to the provider, which returns it inside the ID token.
    pub nonce: Secret,
    /// PKCE `code_challenge`, method S256.
    pub challenge: String,
    /// Lifetime of the cookie: 600 s.
    pub expires_in: Duration,
}

/// A sign-in whose state matched that of its cookie.
#[derive(Clone, Debug)]
pub struct OauthAttempt {
    /// The provider.
    pub provider: Provider,
    /// The purpose.
    pub mode: OauthMode,
    /// Path on this server to go to afterwards; checked before it was sealed.
    pub redirect: String,
    /// Expected nonce of the ID token.
    pub nonce: Secret,
    /// PKCE `code_verifier`.
    pub verifier: Secret,
    pub(super) state: SecretHash,
    pub(super) expires_at: Timestamp,
}

impl Session {
    /// Returns the mode that links an identity to the account of this session.
    pub const fn link_mode(&self) -> OauthMode {
        OauthMode::Link { user: self.user, session: self.id }
    }
}

fn text(bytes: &[u8]) -> Secret {
    Secret::new(BASE64URL_NOPAD.encode(bytes))
}

const fn sealed_for(provider: Provider) -> SealedFor<'static> {
    SealedFor { kind: "ms_oauth", id: provider.as_str().as_bytes() }
}

impl Identity {
    /// Starts a sign-in at a provider. The caller has checked that `redirect` is a path on this
    /// server.
    pub fn begin_oauth(
        &self,
        provider: Provider,
        mode: OauthMode,
        redirect: &str,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> OauthTicket {
        let (state, nonce, verifier): ([u8; 32], [u8; 32], [u8; 32]) =
            (rng.bytes(), rng.bytes(), rng.bytes());
        let mut plain = vec![VERSION];
        plain.extend_from_slice(&state);
        plain.extend_from_slice(&nonce);
        plain.extend_from_slice(&verifier);
        plain.extend_from_slice(&now.plus(LIFETIME).as_ms().to_le_bytes());
        match mode {
            OauthMode::LogIn => plain.push(0),
            OauthMode::Link { user, session } => {
                plain.push(1);
                plain.extend_from_slice(user.as_bytes());
                plain.extend_from_slice(session.as_bytes());
            }
        }
        plain.extend_from_slice(redirect.as_bytes());
        let sealed = self.sealing.seal(sealed_for(provider), &plain, rng);
        let challenge = BASE64URL_NOPAD.encode(&Sha256::digest(text(&verifier).expose().as_bytes()));
        OauthTicket {
            cookie: text(&sealed),
            state: text(&state),
            nonce: text(&nonce),
            challenge,
            expires_in: LIFETIME,
        }
    }

    /// Continues a sign-in. Returns `None` for a cookie that does not open, belongs to another
    /// provider, has expired, or has another state.
    pub fn resume_oauth(
        &self,
        provider: Provider,
        cookie: &str,
        state: &str,
        now: Timestamp,
    ) -> Option<OauthAttempt> {
        if cookie.len() > COOKIE_CHARS_MAX {
            return None;
        }
        let sealed = BASE64URL_NOPAD.decode(cookie.as_bytes()).ok()?;
        let plain = self.sealing.open(sealed_for(provider), &sealed).ok()?;
        let attempt = read(provider, &plain)?;
        // The hashes are compared, so the timing does not depend on the secret.
        (attempt.state == SecretHash::of(state) && now < attempt.expires_at).then_some(attempt)
    }
}

fn read(provider: Provider, plain: &[u8]) -> Option<OauthAttempt> {
    let (&[VERSION], rest) = plain.split_first_chunk::<1>()? else { return None };
    let (state, rest) = rest.split_first_chunk::<32>()?;
    let (nonce, rest) = rest.split_first_chunk::<32>()?;
    let (verifier, rest) = rest.split_first_chunk::<32>()?;
    let (expires_at, rest) = rest.split_first_chunk::<8>()?;
    let (mode, redirect) = match rest.split_first()? {
        (0, rest) => (OauthMode::LogIn, rest),
        (1, rest) => {
            let (user, rest) = rest.split_first_chunk::<10>()?;
            let (session, rest) = rest.split_first_chunk::<10>()?;
            let (user, session) = (UserId::from_bytes(*user), SessionId::from_bytes(*session));
            (OauthMode::Link { user, session }, rest)
        }
        _ => return None,
    };
    Some(OauthAttempt {
        provider,
        mode,
        redirect: String::from_utf8(redirect.to_vec()).ok()?,
        nonce: text(nonce),
        verifier: text(verifier),
        state: text(state).hash(),
        expires_at: Timestamp::from_ms(i64::from_le_bytes(*expires_at)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_of_version_2_is_read_and_every_truncation_is_refused() {
        let mut plain = vec![2];
        plain.extend([2; 32]);
        plain.extend([3; 32]);
        plain.extend([4; 32]);
        plain.extend(1_800_000_000_000_i64.to_le_bytes());
        plain.push(1);
        plain.extend([5; 10]);
        plain.extend([6; 10]);
        plain.extend(b"/x");
        let attempt = read(Provider::Oidc, &plain).expect("a ticket");
        let (user, session) = (UserId::from_bytes([5; 10]), SessionId::from_bytes([6; 10]));
        assert_eq!(attempt.mode, OauthMode::Link { user, session });
        assert_eq!(attempt.redirect, "/x");
        assert_eq!(attempt.nonce.expose(), BASE64URL_NOPAD.encode(&[3; 32]));
        assert_eq!(attempt.verifier.expose(), BASE64URL_NOPAD.encode(&[4; 32]));
        assert_eq!(attempt.state, SecretHash::of(&BASE64URL_NOPAD.encode(&[2; 32])));
        assert_eq!(attempt.expires_at, Timestamp::from_s(1_800_000_000));
        for cut in 0..126 {
            assert!(read(Provider::Oidc, &plain[..cut]).is_none(), "cut at {cut}");
        }
        plain[0] = 1;
        assert!(read(Provider::Oidc, &plain).is_none(), "another version");
    }
}
