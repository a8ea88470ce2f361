//! Invitations into an organisation: a link for one address, valid for seven days and one use
//! (docs/specification.md C2 and C3).
//!
//! The account that an invitation creates always has the invited address (CVE-2022-39306). If the
//! address already has an account, its owner must be logged in: the link alone opens no account.

use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::Password;
use crate::identity::auth::login::{FinishedLogin, LoginOutcome, finish_login};
use crate::identity::auth::password::{WeakPassword, check_policy};
use crate::identity::auth::session::{Client, NewSession, Session};
use crate::identity::orgs::member;
use crate::identity::tables::id::{InviteId, Secret, SecretHash, SecretKind, UserId};
use crate::identity::tables::invite::{InviteRow, InviteTokenRow};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::org::{MemberRow, MembershipRow, Org, OrgRow, Role};
use crate::identity::tables::session::AuthMethod;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{AddressProof, AddressRow, Email, UserRow, active};

/// Lifetime of an invitation.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum number of open invitations of one organisation.
const INVITES_MAX: usize = 1_000;
/// Maximum number of members of one organisation. A change that may remove the last owner reads all
/// members.
const MEMBERS_MAX: usize = 10_000;

/// An open invitation, as administrators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Invite {
    /// Id in the API.
    pub id: InviteId,
    /// The invited address.
    pub email: Email,
    /// The offered role.
    pub role: Role,
    /// The inviter; `None` on the command line.
    pub invited_by: Option<UserId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Expiry.
    pub expires_at: Timestamp,
}

/// A request to invite.
#[derive(Clone, Debug)]
pub struct NewInvite {
    /// The address that the invitation is bound to.
    pub email: Email,
    /// The role to offer.
    pub role: Role,
    /// The link is mailed, and only the reader of that mail sees it.
    pub mailed: bool,
}

/// A newly created invitation.
#[derive(Debug)]
pub struct IssuedInvite {
    /// The invitation, as administrators see it.
    pub invite: Invite,
    /// `ivt_...`: for the mail, or for the person who hands the link over.
    pub token: Secret,
    /// Remaining lifetime.
    pub expires_in: Duration,
}

/// The view of an invitation that its link gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Invitation {
    /// The organisation.
    pub org: Org,
    /// The invited address.
    pub email: Email,
    /// The offered role.
    pub role: Role,
    /// Whether the address has an account, whose owner must be logged in to accept.
    pub account_exists: bool,
}

/// Errors of creating or revoking an invitation.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The organisation no longer exists, or the actor is no longer a member: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The actor's role is too low: administrators invite, only owners invite owners: `forbidden`.
    #[error("this needs the role {}", .0.as_str())]
    Forbidden(Role),
    /// The address belongs to a member: `already_member`.
    #[error("{0} is already a member")]
    AlreadyMember(Email),
    /// `validation_failed`.
    #[error("an organisation has at most {INVITES_MAX} open invitations and {MEMBERS_MAX} members")]
    TooMany,
    /// The organisation has no such invitation: `not_found`.
    #[error("no such invitation")]
    NotFound,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request to accept an invitation.
#[derive(Clone, Copy, Debug)]
pub struct AcceptInvite<'a> {
    /// Token of the link, `ivt_...`.
    pub token: &'a str,
    /// Display name of a new account.
    pub name: Option<&'a str>,
    /// Password of a new account; without one, it is used with mailed links.
    pub password: Option<Password<'a>>,
    /// The session of the request, if any.
    pub session: Option<&'a Session>,
    /// The client of the request.
    pub client: &'a Client,
    /// The session cookie of the request, if any: its session is revoked when a new one is issued.
    pub replaces: Option<&'a str>,
}

/// The result of accepting an invitation.
#[derive(Debug)]
pub enum Accepted {
    /// A new account was created, and its login finished like every other.
    Made(LoginOutcome),
    /// This existing account is a member now; its session continues.
    Joined(UserId),
}

/// Errors of accepting an invitation.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Unknown, used, revoked or expired, or its organisation no longer exists: always
    /// `link_invalid`.
    #[error("this invitation is not valid any more")]
    Invalid,
    /// The address has an account, and its owner is not logged in: `link_required`.
    #[error("this address has an account: log in with it, then accept")]
    LogInFirst,
    /// `PROMLET_SIGNUP=closed` and the address has no account: `signup_closed`.
    #[error("this server does not allow new accounts, not even by invitation (PROMLET_SIGNUP=closed)")]
    SignupClosed,
    /// `weak_password`.
    #[error(transparent)]
    Password(#[from] WeakPassword),
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl InviteRow {
    fn view(&self, id: InviteId) -> Result<Invite, StoreError> {
        let email = Email::parse(&self.email)
            .map_err(|_| StoreError::Inconsistent("an invitation's address is none"))?;
        Ok(Invite {
            id,
            email,
            role: self.role,
            invited_by: self.invited_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
        })
    }
}

/// Removes an invitation and the lookup entry of its link.
pub(in crate::identity) fn remove(txn: &mut Txn<'_>, key: &(OrgId, InviteId), row: &InviteRow) {
    txn.remove::<InviteRow>(key);
    txn.remove::<InviteTokenRow>(&row.token);
}

/// A valid invitation and its organisation.
struct ValidInvite {
    key: (OrgId, InviteId),
    row: InviteRow,
    org: OrgRow,
    account: Option<UserId>,
}

fn find(txn: &Txn<'_>, token: SecretHash, now: Timestamp) -> Result<Option<ValidInvite>, StoreError> {
    let Some(InviteTokenRow(org, id)) = read::<InviteTokenRow>(txn, &token)? else { return Ok(None) };
    let row = read::<InviteRow>(txn, &(org, id))?.filter(|row| now < row.expires_at);
    let (Some(row), Some(org_row)) = (row, read::<OrgRow>(txn, &org)?) else { return Ok(None) };
    let account = read::<AddressRow>(txn, &row.email)?.map(|row| row.0);
    Ok(Some(ValidInvite { key: (org, id), row, org: org_row, account }))
}

/// The values of a new account, drawn before the change.
struct Newcomer {
    id: UserId,
    name: String,
    password: Option<String>,
    drawn: (NewSession, SecretHash),
}

/// The result of the change that accepts an invitation.
enum AcceptResult {
    Joined(UserId),
    Made(FinishedLogin),
}

impl Identity {
    /// Invites an address. An open invitation of the same address ends. `actor` is `None` on the
    /// command line. Blocks (commit).
    ///
    /// # Errors
    /// [`InviteError`].
    pub fn invite(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        wanted: NewInvite,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<IssuedInvite, InviteError> {
        let (id, token) = (InviteId::random(rng), Secret::random(SecretKind::Invite, rng));
        let row = InviteRow {
            email: wanted.email.as_str().to_owned(),
            role: wanted.role,
            token: token.hash(),
            invited_by: actor,
            created_at: now,
            expires_at: now.plus(LIFETIME),
            address_proof: AddressProof::from_bool(wanted.mailed),
        };
        let invite = row.view(id)?;
        if self.rows::<MemberRow>(&org)?.len() >= MEMBERS_MAX {
            return Err(InviteError::TooMany);
        }
        self.change(move |txn| {
            if read::<OrgRow>(txn, &org)?.is_none() {
                return Err(InviteError::UnknownOrg);
            }
            let needed = row.role.max(Role::Admin);
            if let Some(actor) = actor {
                let own = read::<MembershipRow>(txn, &(actor, org))?.ok_or(InviteError::UnknownOrg)?;
                if !own.role.allows(needed) {
                    return Err(InviteError::Forbidden(needed));
                }
            }
            if let Some(AddressRow(user)) = read::<AddressRow>(txn, &row.email)?
                && read::<MembershipRow>(txn, &(user, org))?.is_some()
            {
                return Err(InviteError::AlreadyMember(wanted.email));
            }
            let open = txn.scan::<InviteRow>(&org).map_err(StoreError::from)?;
            if let Some((key, same)) = open.iter().find(|(_, other)| other.email == row.email) {
                remove(txn, key, same);
            } else if open.len() >= INVITES_MAX {
                return Err(InviteError::TooMany);
            }
            txn.put(&(org, id), &row);
            txn.put(&row.token, &InviteTokenRow(org, id));
            let event = Event::by_actor(actor, "invite.created").of(org).target(&row.email);
            Ok(audit::record(txn, &event.detail(row.role.as_str()), now)?)
        })?;
        Ok(IssuedInvite { invite, token, expires_in: LIFETIME })
    }

    /// Returns an organisation's open invitations, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn invites(&self, org: OrgId, now: Timestamp) -> Result<Vec<Invite>, StoreError> {
        let rows = self.rows::<InviteRow>(&org)?.into_iter().filter(|(_, row)| now < row.expires_at);
        let mut found = rows.map(|((_, id), row)| row.view(id)).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|invite| (invite.created_at, invite.id));
        Ok(found)
    }

    /// Returns whether any organisation has invited this address. Reads all invitations.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn is_invited(&self, email: &Email, now: Timestamp) -> Result<bool, StoreError> {
        let rows = self.rows::<InviteRow>(&())?;
        Ok(rows.iter().any(|(_, row)| row.email == email.as_str() && now < row.expires_at))
    }

    /// Revokes an invitation. Blocks (commit).
    ///
    /// # Errors
    /// [`InviteError::NotFound`], also for another organisation's invitation.
    pub fn revoke_invite(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        id: InviteId,
        now: Timestamp,
    ) -> Result<(), InviteError> {
        self.change(move |txn| {
            let row = read::<InviteRow>(txn, &(org, id))?.ok_or(InviteError::NotFound)?;
            remove(txn, &(org, id), &row);
            let event = Event::by_actor(actor, "invite.revoked").of(org).target(&row.email);
            Ok(audit::record(txn, &event, now)?)
        })
    }

    /// Returns the invitation behind a link; `None` if the link is not valid.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn invitation(&self, token: &str, now: Timestamp) -> Result<Option<Invitation>, StoreError> {
        let Some(hash) = SecretKind::Invite.hash_of(token) else { return Ok(None) };
        let Some(InviteTokenRow(org, id)) = self.row::<InviteTokenRow>(&hash)? else { return Ok(None) };
        let row = self.row::<InviteRow>(&(org, id))?.filter(|row| now < row.expires_at);
        let (Some(row), Some(found)) = (row, self.org(org)?) else { return Ok(None) };
        let account_exists = self.row::<AddressRow>(&row.email)?.is_some();
        let Invite { email, role, .. } = row.view(id)?;
        Ok(Some(Invitation { org: found, email, role, account_exists }))
    }

    /// Accepts an invitation, once. Blocks (hash, commit): run it on the password lane.
    ///
    /// # Errors
    /// [`AcceptError`]; the invitation then stays valid.
    pub fn accept_invite(
        &self,
        attempt: &AcceptInvite<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Accepted, AcceptError> {
        let token = SecretKind::Invite.hash_of(attempt.token).ok_or(AcceptError::Invalid)?;
        // Checked before anything is hashed: an invalid link must not cause work.
        let invitation = self.invitation(attempt.token, now)?.ok_or(AcceptError::Invalid)?;
        let session = attempt.session.map(|session| session.user);
        if invitation.account_exists {
            let change = self.change(move |txn| accept(txn, token, session, None, now))?;
            return match change {
                AcceptResult::Joined(user) => Ok(Accepted::Joined(user)),
                AcceptResult::Made(_) => Err(StoreError::Inconsistent("an account from nothing").into()),
            };
        }
        if !self.options.signup.takes_invited() {
            return Err(AcceptError::SignupClosed);
        }
        let name = name::parse(attempt.name.unwrap_or_default())?;
        if let Some(password) = attempt.password {
            let org = &invitation.org;
            check_policy(password, &[invitation.email.as_str(), org.slug.as_str(), &org.name])?;
        }
        let id = UserId::random(rng);
        let drawn = self.draw(id, attempt.client, attempt.replaces, rng);
        let newcomer = Newcomer {
            id,
            name,
            password: attempt.password.map(|password| self.passwords.hash(password, rng)),
            drawn: (drawn.new.clone(), drawn.pending_hash),
        };
        match self.change(move |txn| accept(txn, token, session, Some(newcomer), now))? {
            AcceptResult::Joined(user) => Ok(Accepted::Joined(user)),
            AcceptResult::Made(finished) => Ok(Accepted::Made(self.outcome(id, drawn, finished)?)),
        }
    }

    /// Removes expired invitations.
    pub(in crate::identity) fn sweep_invites(&self, now: Timestamp) -> Result<(), StoreError> {
        let expired = self.rows::<InviteRow>(&())?.into_iter().filter(|(_, row)| now >= row.expires_at);
        self.change_each(&expired.take(SWEEP_INVITES).collect::<Vec<_>>(), |txn, (key, row)| {
            remove(txn, key, row);
            Ok(())
        })
    }
}

/// Maximum number of expired invitations that one sweep removes.
const SWEEP_INVITES: usize = 1_200;

/// Decides within the change that uses the invitation up, so that only one of two concurrent
/// requests accepts it.
fn accept(
    txn: &mut Txn<'_>,
    token: SecretHash,
    session: Option<UserId>,
    newcomer: Option<Newcomer>,
    now: Timestamp,
) -> Result<AcceptResult, AcceptError> {
    let ValidInvite { key, row, org, account } = find(txn, token, now)?.ok_or(AcceptError::Invalid)?;
    let accepted = |user: UserId| {
        Event::by(user, "invite.accepted").of(key.0).target(&row.email).detail(row.role.as_str())
    };
    if let Some(user) = account {
        if session != Some(user) || active(txn, user)?.is_none() {
            return Err(AcceptError::LogInFirst);
        }
        // An administrator may have given them a higher role meanwhile.
        let now_is = read::<MembershipRow>(txn, &(user, key.0))?;
        if now_is.is_none_or(|now_is| now_is.role < row.role) {
            member::join(txn, user, key.0, row.role, now_is.map_or(now, |row| row.joined_at));
        }
        remove(txn, &key, &row);
        audit::record(txn, &accepted(user), now)?;
        return Ok(AcceptResult::Joined(user));
    }
    // The account was deleted between the first check and the change.
    let Newcomer { id, name, password, drawn } = newcomer.ok_or(AcceptError::Invalid)?;
    let user = UserRow {
        email: row.email.clone(),
        name,
        is_admin: false,
        disabled: false,
        password,
        created_at: now,
        sessions_epoch: 0,
        address_proof: row.address_proof,
    };
    txn.put(&id, &user);
    txn.put(&user.email, &AddressRow(id));
    member::join(txn, id, key.0, row.role, now);
    remove(txn, &key, &row);
    audit::record(txn, &accepted(id), now)?;
    audit::record(txn, &Event::by(id, "user.created").target(&user.email).detail(&org.slug), now)?;
    Ok(AcceptResult::Made(finish_login(txn, id, &user, AuthMethod::Invite, &drawn, now)?))
}
