//! Sign-in with an account at a provider: Google, GitHub, or any OpenID Connect issuer
//! (docs/specification.md D6).
//!
//! An identity is (provider, issuer, subject), never a mail address (CVE-2023-3128). A provider's
//! statement about an address only decides whether an account may be created for it, or whether an
//! existing account may be linked.
//!
//! | file | subject |
//! |---|---|
//! | `state_cookie` | the sealed cookie that carries a sign-in to the provider and back |
//! | `id_token` | verification of ID tokens of OpenID providers |
//! | `sign_in` | the account that an identity signs in to: linked, by address, new, or none |

mod id_token;
mod sign_in;
mod state_cookie;

use sha2::{Digest, Sha256};

use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::id::{IdentityId, SecretHash, UserId};
use crate::identity::tables::oauth::{IdentityKey, IdentityRow, OwnIdentityRow, Provider, UsedStateRow};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{Email, active};

pub use id_token::{IdTokenCheck, IdTokenError, Profile, verify_id_token};
pub use sign_in::{Admission, OauthError, OauthLogin, OauthOutcome, admission};
pub use state_cookie::{OauthAttempt, OauthMode, OauthTicket};

/// An account at a provider, as the provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The provider.
    pub provider: Provider,
    /// The provider's issuer URL: two installations of one provider are two issuers.
    pub issuer: String,
    /// The provider's id of the person; a provider never assigns it to another person.
    pub subject: String,
    /// The mail address, if the provider disclosed one.
    pub email: Option<Email>,
    /// The provider states that the person owns the address.
    pub email_verified: bool,
    /// The provider is trusted for this address: it may sign in to an existing account with it.
    pub email_trusted: bool,
    /// Display name; may be empty.
    pub name: String,
    /// The operator lets this person create an account (`…_ALLOWED_DOMAINS`, `…_ALLOWED_ORGS`).
    pub welcome: bool,
}

/// A linked identity, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedIdentity {
    /// The id in the API.
    pub id: IdentityId,
    /// The provider.
    pub provider: Provider,
    /// The mail address, as the provider reported it last.
    pub email: Option<String>,
    /// Time of linking.
    pub linked_at: Timestamp,
}

/// Errors of unlinking an identity.
#[derive(Debug, thiserror::Error)]
pub enum UnlinkError {
    /// `not_found`.
    #[error("you have no such identity")]
    NotFound,
    /// `conflict`.
    #[error("this is the last way to sign in to this account: set a password first")]
    LastWay,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum number of identities of one account.
const IDENTITIES_MAX: usize = 20;
/// Maximum number of rows that one sweep removes.
const SWEEP_ROWS: usize = 1_000;

impl IdentityKey {
    fn of(account: &ExternalAccount) -> IdentityKey {
        let mut hash = Sha256::new();
        for part in [account.provider.as_str(), &account.issuer, &account.subject] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(part.as_bytes());
        }
        IdentityKey(hash.finalize().into())
    }
}

/// Returns the row of a linked identity; `None` also when its account no longer exists.
fn owner(txn: &Txn<'_>, key: IdentityKey) -> Result<Option<IdentityRow>, StoreError> {
    let Some(row) = read::<IdentityRow>(txn, &key)? else { return Ok(None) };
    Ok(read::<crate::identity::tables::user::UserRow>(txn, &row.user)?.map(|_| row))
}

/// Links an identity within a change.
fn link(
    txn: &mut Txn<'_>,
    user: UserId,
    id: IdentityId,
    account: &ExternalAccount,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = IdentityKey::of(account);
    let row = IdentityRow {
        user,
        id,
        provider: account.provider,
        issuer: account.issuer.clone(),
        subject: account.subject.clone(),
        email: account.email.as_ref().map(|email| email.as_str().to_owned()),
        linked_at: now,
    };
    txn.put(&key, &row);
    txn.put(&(user, id), &OwnIdentityRow(key));
    let event = Event::by(user, "oauth.linked")
        .target(account.provider.as_str())
        .detail(row.email.as_deref().unwrap_or_default());
    audit::record(txn, &event, now)
}

/// Unlinks all identities of an account within a change.
pub(in crate::identity) fn unlink_all(txn: &mut Txn<'_>, user: UserId) -> Result<(), StoreError> {
    for (key, OwnIdentityRow(identity)) in txn.scan::<OwnIdentityRow>(&user)? {
        txn.remove::<IdentityRow>(&identity);
        txn.remove::<OwnIdentityRow>(&key);
    }
    Ok(())
}

impl Identity {
    /// Returns the identities linked to an account, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn identities(&self, user: UserId) -> Result<Vec<LinkedIdentity>, StoreError> {
        let mut found = Vec::new();
        for ((_, id), OwnIdentityRow(key)) in self.rows::<OwnIdentityRow>(&user)? {
            // The identity was unlinked between the two reads.
            let Some(row) = self.row::<IdentityRow>(&key)? else { continue };
            found.push(LinkedIdentity {
                id,
                provider: row.provider,
                email: row.email,
                linked_at: row.linked_at,
            });
        }
        found.sort_by_key(|identity| (identity.linked_at, identity.id));
        Ok(found)
    }

    /// Unlinks an identity. `mail_opens`: sign-in links reach the account's owner, so another way
    /// to sign in remains. Blocks (commit).
    ///
    /// # Errors
    /// [`UnlinkError`].
    pub fn unlink_identity(
        &self,
        user: UserId,
        id: IdentityId,
        mail_opens: bool,
        now: Timestamp,
    ) -> Result<(), UnlinkError> {
        self.change(move |txn| {
            let own = txn.scan::<OwnIdentityRow>(&user).map_err(StoreError::from)?;
            let found = own.iter().find(|((_, own), _)| *own == id).map(|(_, row)| row.0);
            let (Some(key), Some(account)) = (found, active(txn, user)?) else {
                return Err(UnlinkError::NotFound);
            };
            if own.len() == 1 && account.password.is_none() && !mail_opens {
                return Err(UnlinkError::LastWay);
            }
            let row = read::<IdentityRow>(txn, &key)?;
            let row = row.ok_or(StoreError::Inconsistent("an account's identity is not there"))?;
            txn.remove::<IdentityRow>(&key);
            txn.remove::<OwnIdentityRow>(&(user, id));
            let event = Event::by(user, "oauth.unlinked")
                .target(row.provider.as_str())
                .detail(row.email.as_deref().unwrap_or_default());
            Ok(audit::record(txn, &event, now)?)
        })
    }

    /// Removes used states whose cookies have expired.
    pub(in crate::identity) fn sweep_oauth(&self, now: Timestamp) -> Result<(), StoreError> {
        let expired = self.rows::<UsedStateRow>(&())?.into_iter().filter(|(_, row)| now >= row.0);
        let expired: Vec<SecretHash> = expired.map(|(hash, _)| hash).take(SWEEP_ROWS).collect();
        self.remove_all::<UsedStateRow>(&expired)
    }
}
