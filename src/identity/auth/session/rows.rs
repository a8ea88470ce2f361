//! Issuing and ending sessions within a change.

use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::audit::{self, Event};
use crate::identity::tables::id::{SecretHash, SessionId, UserId};
use crate::identity::tables::session::{AuthMethod, SeenRow, SessionKey, SessionRow};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::UserRow;

use super::{Client, SESSIONS_MAX};

/// Maximum length of a stored `User-Agent`, bytes.
const USER_AGENT_BYTES_MAX: usize = 256;

/// The values of a new session, drawn before the change because a change must be deterministic.
#[derive(Clone, Debug)]
pub(in crate::identity) struct NewSession {
    pub(in crate::identity) hash: SecretHash,
    pub(in crate::identity) id: SessionId,
    pub(in crate::identity) client: Client,
    /// Sessions to remove in the same change: the replaced and the evicted one.
    pub(in crate::identity) ends: Vec<SessionKey>,
    /// Id of the evicted session.
    pub(in crate::identity) evicts: Option<SessionId>,
}

/// The authentication of a login.
#[derive(Clone, Copy, Debug)]
pub(in crate::identity) struct LoginProof {
    pub(in crate::identity) method: AuthMethod,
    pub(in crate::identity) second_factor: bool,
}

/// Stores a session within a change. It is the only function that does.
pub(in crate::identity) fn issue(
    txn: &mut Txn<'_>,
    user: UserId,
    row: &UserRow,
    new: &NewSession,
    proof: LoginProof,
    now: Timestamp,
) -> SessionRow {
    for key in &new.ends {
        end(txn, key);
    }
    let agent = &new.client.user_agent;
    let session = SessionRow {
        id: new.id,
        created_at: now,
        auth_time: now,
        auth_method: proof.method,
        second_factor: proof.second_factor,
        epoch: row.sessions_epoch,
        ip: new.client.ip,
        user_agent: agent
            .get(..agent.floor_char_boundary(USER_AGENT_BYTES_MAX))
            .unwrap_or_default()
            .to_owned(),
    };
    txn.put(&(user, new.hash), &session);
    session
}

/// Records that a session was evicted by another one.
pub(in crate::identity) fn record_evicted(
    txn: &mut Txn<'_>,
    user: UserId,
    new: &NewSession,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(evicted) = new.evicts else { return Ok(()) };
    let event = Event::by(user, "session.revoked").target(&evicted.to_string());
    audit::record(txn, &event.detail(&format!("made room: {SESSIONS_MAX} sessions")), now)
}

/// Removes a session and its time of last use.
pub(in crate::identity) fn end(txn: &mut Txn<'_>, key: &SessionKey) {
    txn.remove::<SessionRow>(key);
    txn.remove::<SeenRow>(key);
}

/// Returns within a change whether a session is valid: it was ended neither by itself nor with all
/// sessions of its user, whose rows are swept later.
pub(in crate::identity) fn is_live(txn: &Txn<'_>, key: SessionKey) -> Result<bool, StoreError> {
    let Some(session) = read::<SessionRow>(txn, &key)? else { return Ok(false) };
    Ok(read::<UserRow>(txn, &key.0)?.is_some_and(|owner| session.epoch >= owner.sessions_epoch))
}

/// Ends all sessions of a user except `keep` within a change. Returns the new epoch.
pub(in crate::identity) fn end_all(
    txn: &mut Txn<'_>,
    user: UserId,
    keep: Option<SessionKey>,
) -> Result<u32, StoreError> {
    let mut row = read::<UserRow>(txn, &user)?.ok_or(StoreError::Inconsistent("sessions of no account"))?;
    row.sessions_epoch = row.sessions_epoch.saturating_add(1);
    txn.put(&user, &row);
    if let Some(key) = keep
        && let Some(kept) = read::<SessionRow>(txn, &key)?
    {
        txn.put(&key, &SessionRow { epoch: row.sessions_epoch, ..kept });
    }
    Ok(row.sessions_epoch)
}
