//! Changes that owners make to their own account: name, address, deletion (docs/specification.md
//! C2).

use std::net::IpAddr;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::link::{
    LINK_TTL, LinkError, LinkMail, end_outstanding, outstanding, store_link, use_up_link,
};
use crate::identity::auth::oauth;
use crate::identity::auth::session::{Client, Session, is_live};
use crate::identity::orgs::member::{has_other_owner, leave};
use crate::identity::tables::id::{Secret, SecretHash, SecretKind, UserId};
use crate::identity::tables::link::{LinkKind, LinkRow, LinkSlot};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::org::{MembershipRow, OrgRow, Role};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::{AddressProof, AddressRow, Email, User, UserRow, active};

/// Errors of changing an account.
#[derive(Debug, thiserror::Error)]
pub enum AccountChangeError {
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The account is the only owner of an organisation: `last_owner`.
    #[error("you are the only owner of the organisation {0}: appoint another owner, or delete it first")]
    LastOwner(String),
    /// The account is the only administrator of the server: `conflict`.
    #[error("you are the only administrator of this server: appoint another one first")]
    LastAdmin,
    /// The account no longer exists: `session_invalid`.
    #[error("no such account")]
    UnknownUser,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A changed mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressChange {
    /// The old address, which receives a notification.
    pub old: Email,
    /// The new address.
    pub new: Email,
}

/// Errors of changing an address.
#[derive(Debug, thiserror::Error)]
pub enum AddressChangeError {
    /// `link_invalid`.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Another account got the address meanwhile: `email_taken`.
    #[error("another account has this address")]
    Taken,
}

impl From<StoreError> for AddressChangeError {
    fn from(error: StoreError) -> AddressChangeError {
        AddressChangeError::Link(LinkError::Store(error))
    }
}

/// Memberships removed in one change. Each has up to five rows, and a change has at most 64.
const LEAVE_A_CHANGE: usize = 8;

/// Returns an organisation of which `user` is the only owner.
fn solely_owned(txn: &Txn<'_>, user: UserId) -> Result<Option<OrgId>, StoreError> {
    for ((_, org), membership) in txn.scan::<MembershipRow>(&user)? {
        // An organisation that is being removed needs no owner.
        let is_live = membership.role == Role::Owner && read::<OrgRow>(txn, &org)?.is_some();
        if is_live && !has_other_owner(txn, org, user)? {
            return Ok(Some(org));
        }
    }
    Ok(None)
}

/// Checks that deleting an account leaves nothing behind without an owner or administrator.
fn may_go(txn: &Txn<'_>, user: UserId, row: &UserRow) -> Result<(), AccountChangeError> {
    if let Some(org) = solely_owned(txn, user)? {
        let slug = read::<OrgRow>(txn, &org)?.map(|row| row.slug).unwrap_or_default();
        return Err(AccountChangeError::LastOwner(slug));
    }
    let rows = txn.scan::<UserRow>(&()).map_err(StoreError::from)?;
    let other_admin = rows.iter().any(|(id, other)| *id != user && other.is_admin && !other.disabled);
    if row.is_admin && !other_admin { Err(AccountChangeError::LastAdmin) } else { Ok(()) }
}

impl Identity {
    /// Renames an account. Blocks (commit).
    ///
    /// # Errors
    /// [`AccountChangeError`].
    pub fn rename_user(&self, user: UserId, name: &str) -> Result<User, AccountChangeError> {
        let name = name::parse(name)?;
        self.change(move |txn| {
            let row = active(txn, user)?.ok_or(AccountChangeError::UnknownUser)?;
            txn.put(&user, &UserRow { name, ..row });
            Ok::<_, AccountChangeError>(())
        })?;
        self.user(user)?.ok_or(AccountChangeError::UnknownUser)
    }

    /// Deletes an account: it leaves its organisations, its sessions end, and its address is free
    /// again. Objects that it created stay. Blocks (commits).
    ///
    /// # Errors
    /// [`AccountChangeError`]. Nothing was changed then, unless the store failed between two steps.
    pub fn delete_user(
        &self,
        user: UserId,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), AccountChangeError> {
        let account = self.row::<UserRow>(&user)?.ok_or(AccountChangeError::UnknownUser)?;
        let (slots, ip) = (self.slots(user, &account), client.ip);
        loop {
            let slots = slots.clone();
            let gone = self.change(move |txn| {
                let row = read::<UserRow>(txn, &user)?.ok_or(AccountChangeError::UnknownUser)?;
                may_go(txn, user, &row)?;
                let orgs = txn.scan::<MembershipRow>(&user).map_err(StoreError::from)?;
                for ((_, org), _) in orgs.iter().take(LEAVE_A_CHANGE) {
                    leave(txn, user, *org);
                }
                if orgs.len() > LEAVE_A_CHANGE {
                    return Ok(false);
                }
                end_outstanding(txn, &slots);
                txn.remove::<UserRow>(&user);
                txn.remove::<AddressRow>(&row.email);
                txn.remove::<TotpRow>(&user);
                audit::record(txn, &Event::by(user, "account.deleted").at_ip(ip), now)?;
                Ok::<_, AccountChangeError>(true)
            })?;
            if gone {
                break;
            }
        }
        // Identities of a deleted account open nothing. They are removed in a separate change
        // because the number of rows of a change is limited.
        self.change(move |txn| oauth::unlink_all(txn, user))?;
        // Session rows of a deleted account are also ignored at the next start.
        self.apply_epoch(user, u32::MAX, None, &[]);
        Ok(())
    }

    /// Creates a link that makes `new` the address of a session's account, valid as long as the
    /// session. Returns `None` if the address already has an account, so that the response does not
    /// reveal accounts. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_email_change(
        &self,
        session: &Session,
        new: &Email,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let (user, asked_by) = session.key();
        let token = Secret::random(SecretKind::Email, rng);
        let hash = token.hash();
        let (slot, sealed) =
            (self.link_slot(LinkKind::Email, &user.to_string()), self.seal_address(hash, new, rng));
        let address = new.as_str().to_owned();
        let free = self.change(move |txn| {
            let free = read::<AddressRow>(txn, &address)?.is_none();
            let link = LinkRow {
                kind: LinkKind::Email,
                user: free.then_some(user),
                slot,
                expires_at: now.plus(LINK_TTL),
                redirect: None,
                browser: None,
                wrong_addresses: 0,
                address: Some(sealed),
                asked_by: Some(asked_by),
            };
            store_link(txn, hash, &link)?;
            Ok::<_, StoreError>(free)
        })?;
        Ok(free.then(|| LinkMail { to: new.clone(), token, expires_in: LINK_TTL }))
    }

    /// Makes the address that a link was sent to the one of its account, exactly once. Links to the
    /// old address end. Blocks (commit).
    ///
    /// # Errors
    /// [`AddressChangeError`].
    pub fn confirm_email(
        &self,
        token: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<AddressChange, AddressChangeError> {
        let hash = SecretKind::Email.hash_of(token).ok_or(LinkError::Invalid)?;
        let link = self.row::<LinkRow>(&hash)?.ok_or(LinkError::Invalid)?;
        let user = link.user.ok_or(LinkError::Invalid)?;
        let new = self.sealed_address(hash, &link)?.ok_or(LinkError::Invalid)?;
        let account = self.row::<UserRow>(&user)?.ok_or(LinkError::Invalid)?;
        let slots = self.slots(user, &account);
        let mail_proves = self.mail_proves();
        let exchange = AddressExchange { hash, user, new: new.clone(), slots, mail_proves, ip: client.ip };
        let old = self.change(move |txn| exchange.make(txn, now))?;
        let parsed = |text: &str| {
            Email::parse(text).map_err(|_| StoreError::Inconsistent("an account's address is none"))
        };
        Ok(AddressChange { old: parsed(&old)?, new: parsed(&new)? })
    }
}

/// A change of an account's address.
struct AddressExchange {
    hash: SecretHash,
    user: UserId,
    new: String,
    /// Slots of the links that end with the old address.
    slots: Vec<LinkSlot>,
    mail_proves: bool,
    ip: IpAddr,
}

impl AddressExchange {
    /// Replaces the address within the change that uses the link up. Returns the old address.
    fn make(self, txn: &mut Txn<'_>, now: Timestamp) -> Result<String, AddressChangeError> {
        let AddressExchange { hash, user, new, slots, mail_proves, ip } = self;
        let link = outstanding(txn, hash, &[LinkKind::Email], now)?.ok_or(LinkError::Invalid)?;
        let row = active(txn, user)?.ok_or(LinkError::Invalid)?;
        // The end of the session that requested the change revokes the request.
        let asked_by = link.asked_by.ok_or(LinkError::Invalid)?;
        if !is_live(txn, (user, asked_by))? {
            return Err(LinkError::Invalid.into());
        }
        if read::<AddressRow>(txn, &new)?.is_some() {
            return Err(AddressChangeError::Taken);
        }
        use_up_link(txn, hash, &link);
        end_outstanding(txn, &slots);
        txn.remove::<AddressRow>(&row.email);
        txn.put(&new, &AddressRow(user));
        let address_proof = AddressProof::from_bool(mail_proves);
        txn.put(&user, &UserRow { email: new, address_proof, ..row.clone() });
        audit::record(txn, &Event::by(user, "email.changed").at_ip(ip), now)?;
        Ok(row.email)
    }
}
