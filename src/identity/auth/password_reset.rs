//! Password changes, authorised by the current password or by a mailed link (docs/specification.md
//! C2).
//!
//! Either way everything that the old password gave access to ends: sessions, pending logins and
//! mailed links. The second factor stays.

use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::address_proof;
use crate::identity::auth::credentials::Password;
use crate::identity::auth::link::{
    GivenProof, LINK_TTL, LinkError, LinkMail, LinkProof, LinkRequest, Opening, end_outstanding, open_link,
    use_up_link,
};
use crate::identity::auth::login::LoggedIn;
use crate::identity::auth::magic_link::AccountLink;
use crate::identity::auth::password::{WeakPassword, check_policy};
use crate::identity::auth::reauth::{GivenPassword, OwnPasswordCheck};
use crate::identity::auth::session::{Client, LoginProof, Session, end_all, is_live, issue};
use crate::identity::tables::id::{SecretKind, UserId};
use crate::identity::tables::link::{LinkKind, LinkRow, LinkSlot};
use crate::identity::tables::store::StoreError;
use crate::identity::tables::user::{Email, UserRow, active};

/// A request to change the password.
#[derive(Clone, Copy, Debug)]
pub struct PasswordChange<'a> {
    /// The current password. An account without one passes `None`; a fresh login is required
    /// instead.
    pub current: Option<Password<'a>>,
    /// The new password, which must meet the policy.
    pub new: Password<'a>,
    /// The client of the request.
    pub client: &'a Client,
}

/// Errors of a password change.
#[derive(Debug, thiserror::Error)]
pub enum PasswordChangeError {
    /// The current password is wrong or missing: `invalid_credentials`.
    #[error("the current password is wrong, or was not sent")]
    InvalidCredentials,
    /// The account has no password, and the login is not fresh: `reauth_required`.
    #[error("log in again to set a password: the last login is older than 15 minutes")]
    NotFresh,
    /// `weak_password`.
    #[error(transparent)]
    Weak(#[from] WeakPassword),
    /// `login_throttled`.
    #[error("too many failures, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Time until the next attempt is accepted.
        retry_after: Duration,
    },
    /// The session ended during the request: `session_invalid`.
    #[error("the session has ended")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request to set a password with a mailed link.
#[derive(Clone, Copy, Debug)]
pub struct PasswordReset<'a> {
    /// Token of the link, `rst_...`.
    pub token: &'a str,
    /// Evidence that the link was opened by the person it was sent to.
    pub proof: LinkProof<'a>,
    /// The new password, which must meet the policy.
    pub new: Password<'a>,
    /// The client of the request.
    pub client: &'a Client,
}

/// Errors of a password reset.
#[derive(Debug, thiserror::Error)]
pub enum PasswordResetError {
    /// `link_invalid`, `email_confirmation_required`.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// `weak_password`; the link still works.
    #[error(transparent)]
    Weak(#[from] WeakPassword),
}

impl From<StoreError> for PasswordResetError {
    fn from(error: StoreError) -> PasswordResetError {
        PasswordResetError::Link(LinkError::Store(error))
    }
}

/// Stores a new password within a change and ends everything that the old one gave access to.
/// Returns the new epoch of sessions.
fn replace(
    txn: &mut Txn<'_>,
    user: UserId,
    row: UserRow,
    hash: String,
    slots: &[LinkSlot],
) -> Result<u32, StoreError> {
    txn.put(&user, &UserRow { password: Some(hash), ..row });
    end_outstanding(txn, slots);
    end_all(txn, user, None)
}

impl Identity {
    /// Checks a password against the policy; it must not contain the account's address or the name
    /// of one of its organisations.
    fn check_new_password(
        &self,
        user: UserId,
        account: &UserRow,
        password: Password<'_>,
    ) -> Result<Result<(), WeakPassword>, StoreError> {
        let orgs = self.memberships(user)?;
        let names = orgs.iter().flat_map(|member| [member.org.slug.as_str(), &member.org.name]);
        let personal: Vec<&str> = std::iter::once(account.email.as_str()).chain(names).collect();
        Ok(check_policy(password, &personal))
    }

    /// Changes the password of a session's owner. All sessions, pending logins and links end; the
    /// returned session is new. Failures count like those of a login. Blocks (hashes, commit): run
    /// it on the password lane.
    ///
    /// # Errors
    /// [`PasswordChangeError`].
    pub fn change_password(
        &self,
        session: &Session,
        request: &PasswordChange<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoggedIn, PasswordChangeError> {
        let (user, client) = (session.user, request.client);
        let account = self.row::<UserRow>(&user)?.ok_or(PasswordChangeError::SessionOver)?;
        self.check_new_password(user, &account, request.new)??;
        self.check_current_password(session, &account, request, now)?;
        let hash = self.passwords.hash(request.new, rng);
        let drawn = self.draw(user, client, None, rng);
        let (new, slots, old) = (drawn.new.clone(), self.slots(user, &account), session.key());
        let proof = LoginProof { method: session.auth_method, second_factor: session.second_factor };
        let verified = account.password;
        let (row, epoch) = self.change(move |txn| {
            // A session that ended during the hashing changes nothing.
            if !is_live(txn, old)? {
                return Err(PasswordChangeError::SessionOver);
            }
            let row = active(txn, user)?.ok_or(PasswordChangeError::SessionOver)?;
            if row.password != verified {
                return Err(PasswordChangeError::InvalidCredentials);
            }
            let epoch = replace(txn, user, row, hash, &slots)?;
            let row = active(txn, user)?.ok_or(PasswordChangeError::SessionOver)?;
            let session = issue(txn, user, &row, &new, proof, now);
            audit::record(txn, &Event::by(user, "password.changed").at_ip(new.client.ip), now)?;
            Ok((session, epoch))
        })?;
        self.apply_epoch(user, epoch, None, &[]);
        Ok(self.logged_in(user, drawn.session, &drawn.new, row)?)
    }

    fn check_current_password(
        &self,
        session: &Session,
        account: &UserRow,
        request: &PasswordChange<'_>,
        now: Timestamp,
    ) -> Result<(), PasswordChangeError> {
        if account.password.is_none() {
            return if session.is_fresh(now) { Ok(()) } else { Err(PasswordChangeError::NotFresh) };
        }
        let given = request.current.ok_or(PasswordChangeError::InvalidCredentials)?;
        let given = GivenPassword { password: given, client: request.client, purpose: "password change" };
        match self.check_own_password(session, account, given, now)? {
            OwnPasswordCheck::Right => Ok(()),
            OwnPasswordCheck::Wrong => Err(PasswordChangeError::InvalidCredentials),
            OwnPasswordCheck::Throttled(retry_after) => Err(PasswordChangeError::Throttled { retry_after }),
        }
    }

    /// Creates a link that sets a new password. Returns `None`, after the same work, if there is no
    /// account to mail. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_reset(
        &self,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let made = AccountLink { kind: LinkKind::Reset, secret: SecretKind::Reset, ttl: LINK_TTL };
        self.mail_to_account(&made, request, now, rng)
    }

    /// Sets a new password with a mailed link, which works exactly once. Returns the account's
    /// address, for a notification. Creates no session, ends all sessions, and clears failed
    /// logins. Blocks (hash, commit): run it on the password lane.
    ///
    /// # Errors
    /// [`PasswordResetError`].
    pub fn reset_password(
        &self,
        request: &PasswordReset<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Email, PasswordResetError> {
        let hash = SecretKind::Reset.hash_of(request.token).ok_or(LinkError::Invalid)?;
        let link = self.row::<LinkRow>(&hash)?.filter(|link| now < link.expires_at);
        let user = link.and_then(|link| link.user).ok_or(LinkError::Invalid)?;
        let account = self.row::<UserRow>(&user)?.ok_or(LinkError::Invalid)?;
        self.check_new_password(user, &account, request.new)??;
        let new = self.passwords.hash(request.new, rng);
        let (proof, ip) = (GivenProof::of(request.proof), request.client.ip);
        let (slots, mail_proves) = (self.slots(user, &account), self.mail_proves());
        // A wrong address is counted within the change, so the change succeeds with it as its
        // value.
        let (address, epoch) = self.change::<Result<(String, u32), LinkError>, LinkError>(move |txn| {
            let row = active(txn, user)?.ok_or(LinkError::Invalid)?;
            let opening =
                Opening { hash, kinds: &[LinkKind::Reset], address: &row.email, proof: &proof, from: ip };
            let link = match open_link(txn, &opening, now)? {
                Ok(link) => link,
                Err(refused) => return Ok(Err(refused)),
            };
            use_up_link(txn, hash, &link);
            let address = row.email.clone();
            let row = match mail_proves {
                true => {
                    address_proof::prove(txn, user, &slots, ip, now)?;
                    active(txn, user)?.ok_or(LinkError::Invalid)?
                }
                false => row,
            };
            let epoch = replace(txn, user, row, new, &slots)?;
            audit::record(txn, &Event::by(user, "password.reset").at_ip(ip), now)?;
            Ok(Ok((address, epoch)))
        })??;
        self.apply_epoch(user, epoch, None, &[]);
        self.login_throttle().forget(&self.address_hash(&address));
        Ok(Email::parse(&address).map_err(|_| StoreError::Inconsistent("an account's address is none"))?)
    }
}
