//! A new password: by who knows the old one, or by who reads the account's mail (docs/specification.md C2).
//!
//! Either way everything that the old one opened ends: sessions, pending logins, mailed links. The second factor stays.

use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use super::address_proof;
use super::audit::{self, Event};
use super::link::{
    GivenProof, LINK_TTL, LinkKind, LinkRow, LinkSlot, Opening, end_outstanding, open_link, use_up_link,
};
use super::magic_link::ForAccount;
use super::password::{WeakPassword, check_policy};
use super::reauth::OwnPassword;
use super::session::{Proof, end_all, issue, stands};
use super::user::{UserRow, active};
use super::{
    Client, Email, Identity, LinkError, LinkMail, LinkProof, LinkRequest, LoggedIn, Password, SecretKind,
    Session, StoreError, UserId,
};

/// A change of password.
#[derive(Clone, Copy, Debug)]
pub struct PasswordChange<'a> {
    /// The password until now; none where the account has none, then a fresh login takes its place.
    pub current: Option<Password<'a>>,
    /// Must meet the policy.
    pub new: Password<'a>,
    /// From where.
    pub client: &'a Client,
}

/// Why the password was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PasswordChangeError {
    /// The current one is wrong, or was not given: `invalid_credentials`.
    #[error("the current password is wrong, or was not sent")]
    InvalidCredentials,
    /// There is no current one, and the login is not fresh: `reauth_required`.
    #[error("log in again to set a password: the last login is older than 15 minutes")]
    NotFresh,
    /// `weak_password`.
    #[error(transparent)]
    Weak(#[from] WeakPassword),
    /// `login_throttled`.
    #[error("too many failures, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at.
        retry_after: Duration,
    },
    /// The session ended meanwhile: `session_invalid`.
    #[error("the session is over")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A new password by a mailed link.
#[derive(Clone, Copy, Debug)]
pub struct PasswordReset<'a> {
    /// `rst_...`.
    pub token: &'a str,
    /// What shows that the right person opened it.
    pub proof: LinkProof<'a>,
    /// Must meet the policy.
    pub new: Password<'a>,
    /// From where.
    pub client: &'a Client,
}

/// Why a mailed link set no password.
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

/// Stores a new password in a change and ends all that the old one opened; the new epoch.
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
    /// That a password is good enough for an account: not its address, nor the name of one of its organisations.
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

    /// Changes the password of a session's owner. All sessions, pending logins and links end; the answer is a new
    /// session. Failures count like those of a login. Blocks (hashes, commit): run it on the password lane.
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
        let proof = Proof { method: session.auth_method, second_factor: session.second_factor };
        let verified = account.password;
        let (row, epoch) = self.change(move |txn| {
            // Whoever was logged out meanwhile changes nothing.
            if !stands(txn, old)? {
                return Err(PasswordChangeError::SessionOver);
            }
            let row = active(txn, user)?.ok_or(PasswordChangeError::SessionOver)?;
            if row.password != verified {
                return Err(PasswordChangeError::InvalidCredentials);
            }
            let epoch = replace(txn, user, row, hash, &slots)?;
            let row = active(txn, user)?.ok_or(PasswordChangeError::SessionOver)?;
            let session = issue(txn, user, &row, &new, proof, now);
            audit::note(txn, &Event::by(user, "password.changed").at_ip(new.client.ip), now)?;
            Ok((session, epoch))
        })?;
        self.settle_epoch(user, epoch, None, &[]);
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
        match self.check_own_password(session, account, given, (request.client, "password change"), now)? {
            OwnPassword::Right => Ok(()),
            OwnPassword::Wrong => Err(PasswordChangeError::InvalidCredentials),
            OwnPassword::Throttled(retry_after) => Err(PasswordChangeError::Throttled { retry_after }),
        }
    }

    /// A link that sets a new password. Always accepted: `None` when there is nobody to mail, after the same work.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_reset(
        &self,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let made = ForAccount { kind: LinkKind::Reset, secret: SecretKind::Reset, ttl: LINK_TTL };
        self.mail_to_account(&made, request, now, rng)
    }

    /// Sets a new password by a mailed link, exactly once; the account's address, to tell its owner. No session is made,
    /// all sessions end, and failed logins are forgotten. Blocks (hash, commit): run it on the password lane.
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
        // A wrong address is counted in the change, so it is its value and not its error.
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
            audit::note(txn, &Event::by(user, "password.reset").at_ip(ip), now)?;
            Ok(Ok((address, epoch)))
        })??;
        self.settle_epoch(user, epoch, None, &[]);
        self.lockout().forget(&self.address_hash(&address));
        Ok(Email::parse(&address).map_err(|_| StoreError::Inconsistent("an account's address is none"))?)
    }
}
