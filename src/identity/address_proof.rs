//! Whether the holder of an account reads mail sent to its address, and what the first proof of it ends.
//!
//! An account can be made without such a proof: by an invitation whose link the inviter carries (console mail), or on
//! the word of an identity provider that is not trusted for addresses. Its maker may have chosen the password, and the
//! address may belong to another person. So an identity elsewhere is linked by its address to an account with a proven
//! address only, and the first proof ends what opened the account before: password, sessions, pending logins, linked
//! identities and outstanding links. The second factor stays, as after a reset of the password; the operator removes it
//! with `promlet user reset-2fa`.
//!
//! The same holds for accounts of versions that did not note proofs. Most of them were made by their owners, who enter as
//! before until they use a mailed link; that link signs them in, and they choose a new password.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::kv::Txn;
use crate::model::Timestamp;

use super::audit::{self, Event};
use super::link::{LinkSlot, end_outstanding};
use super::oauth;
use super::session::end_all;
use super::store::read;
use super::user::UserRow;
use super::{Identity, StoreError, UserId};

/// What is known of the address of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AddressProof {
    // Stored by their place in this list: new ones come last.
    /// The account was made by a version that did not note it, so its maker may have planted it: treated as `Missing`.
    Unknown,
    /// No holder of the account showed that they read mail sent to the address.
    Missing,
    /// A link mailed to the address was used, a trusted provider vouched for it, or the operator made the account.
    Given,
}

impl AddressProof {
    /// Given, or missing.
    pub(super) const fn from_bool(given: bool) -> AddressProof {
        if given { AddressProof::Given } else { AddressProof::Missing }
    }
}

/// Notes in a change that a link mailed to the account's address was used. If that is the first proof, whatever opened the
/// account before ends, and the new epoch of sessions is returned.
pub(super) fn prove(
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
    audit::note(txn, &Event::by(user, "email.proven").at_ip(ip).detail(ended), now)?;
    Ok(Some(epoch))
}

impl Identity {
    /// Whether a used link proves an address: links of console mail are read by whoever reads the console.
    pub(super) const fn mail_proves(&self) -> bool {
        self.options.mail_leaves
    }
}
