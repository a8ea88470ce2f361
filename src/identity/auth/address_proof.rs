//! Whether the holder of an account reads mail sent to its address, and the access that the first
//! proof of this ends.
//!
//! An account can be created without such a proof: by an invitation whose link the inviter hands
//! over (console mail), or by an identity provider that is not trusted for addresses. Its creator
//! may have chosen the password, and the address may belong to another person. So an identity is
//! linked by address only to an account with a proven address, and the first proof ends everything
//! that opened the account before: password, sessions, pending logins, linked identities and
//! outstanding links. The second factor stays, as after a password reset; the operator removes it
//! with `promlet user reset-2fa`.
//!
//! The same holds for accounts of versions that did not record proofs. Most of them were created by
//! their owners, who log in as before until they use a mailed link; that link signs them in, and
//! they choose a new password.

use std::net::IpAddr;

use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::link::end_outstanding;
use crate::identity::auth::oauth;
use crate::identity::auth::session::end_all;
use crate::identity::tables::id::UserId;
use crate::identity::tables::link::LinkSlot;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{AddressProof, UserRow};

/// Records within a change that a link mailed to the account's address was used. On the first
/// proof, everything that opened the account before ends, and the new epoch of sessions is
/// returned.
pub(in crate::identity) fn prove(
    txn: &mut Txn<'_>,
    user: UserId,
    slots: &[LinkSlot],
    ip: IpAddr,
    now: Timestamp,
) -> Result<Option<u32>, StoreError> {
    let row = read::<UserRow>(txn, &user)?.ok_or(StoreError::Inconsistent("an address of no account"))?;
    match row.address_proof {
        AddressProof::Given => return Ok(None),
        AddressProof::Missing | AddressProof::Unknown => {}
    }
    txn.put(&user, &UserRow { address_proof: AddressProof::Given, password: None, ..row });
    oauth::unlink_all(txn, user)?;
    end_outstanding(txn, slots);
    let epoch = end_all(txn, user, None)?;
    let ended = "first proof: older password, sessions and identities ended";
    audit::record(txn, &Event::by(user, "email.proven").at_ip(ip).detail(ended), now)?;
    Ok(Some(epoch))
}

impl Identity {
    /// Returns whether a used link proves an address. Links of console mail do not: the operator
    /// reads the console.
    pub(in crate::identity) const fn mail_proves(&self) -> bool {
        self.options.mail_leaves
    }
}
