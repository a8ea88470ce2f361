//! Actions of the server's administrator on accounts, over the API and on the command line
//! (docs/specification.md C8).
//!
//! On the command line `actor` is `None`: the owner of the data folder may do everything.

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::Password;
use crate::identity::auth::link::end_outstanding;
use crate::identity::auth::password::{WeakPassword, check_policy};
use crate::identity::auth::session::end_all;
use crate::identity::tables::id::UserId;
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::org::Membership;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::{AddressProof, AddressRow, Email, User, UserRow, active};

/// An account, as the administrator of the server sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSummary {
    /// The account.
    pub user: User,
    /// Last use of any of its live sessions.
    pub last_seen_at: Option<Timestamp>,
    /// Number of live sessions.
    pub sessions: usize,
    /// The organisations, ordered by slug.
    pub orgs: Vec<Membership>,
}

/// A change of an account; `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserChange {
    /// Whether the account is disabled: it cannot log in, and its sessions end at once.
    pub disabled: Option<bool>,
    /// Whether it administers the server.
    pub is_admin: Option<bool>,
}

/// An account to create on the command line.
#[derive(Clone, Debug)]
pub struct NewUser<'a> {
    /// The address.
    pub email: Email,
    /// Display name; may be empty.
    pub name: &'a str,
    /// Password; without one, the account is used with mailed links.
    pub password: Option<Password<'a>>,
    /// Whether it administers the server.
    pub is_admin: bool,
}

/// Sums over the whole instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    /// Accounts.
    pub users: usize,
    /// Disabled accounts.
    pub users_disabled: usize,
    /// Number of administrators of the server who may log in.
    pub admins: usize,
    /// Accounts with a second factor.
    pub users_with_twofa: usize,
    /// Organisations.
    pub orgs: usize,
    /// Deleted organisations that still have data on disk.
    pub orgs_being_removed: usize,
    /// Live sessions.
    pub sessions: usize,
    /// API keys.
    pub api_keys: usize,
}

/// Errors of creating or changing an account.
#[derive(Debug, thiserror::Error)]
pub enum AdministrationError {
    /// The actor does not administer the server any more: `forbidden`.
    #[error("this needs an administrator of the server")]
    Forbidden,
    /// `not_found`.
    #[error("no such account")]
    UnknownUser,
    /// The server would be left without an administrator: `conflict`.
    #[error("this is the last administrator of the server who may log in: appoint another one first")]
    LastAdmin,
    /// `email_taken`.
    #[error("the address {0} has an account already")]
    EmailTaken(Email),
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

fn require_admin(txn: &Txn<'_>, actor: Option<UserId>) -> Result<(), AdministrationError> {
    let Some(actor) = actor else { return Ok(()) };
    match active(txn, actor)? {
        Some(row) if row.is_admin => Ok(()),
        _ => Err(AdministrationError::Forbidden),
    }
}

impl Identity {
    /// Returns the administrator's view of an account.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn summary(&self, user: User, now: Timestamp) -> Result<UserSummary, StoreError> {
        let sessions = self.sessions(user.id, now);
        Ok(UserSummary {
            last_seen_at: sessions.first().map(|session| session.last_seen()),
            sessions: sessions.len(),
            orgs: self.memberships(user.id)?,
            user,
        })
    }

    /// Returns the accounts, ordered by id. A `search` text selects those whose address or name
    /// contains it, ignoring case.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn users_found(&self, search: &str) -> Result<Vec<User>, StoreError> {
        let search = search.to_lowercase();
        let wanted =
            |user: &User| user.email.as_str().contains(&search) || user.name.to_lowercase().contains(&search);
        Ok(self.users()?.into_iter().filter(wanted).collect())
    }

    /// Returns the administrator's view of an account by its id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user_summary(&self, user: UserId, now: Timestamp) -> Result<Option<UserSummary>, StoreError> {
        self.user(user)?.map(|user| self.summary(user, now)).transpose()
    }

    /// Returns the sums over the whole instance. Cost: linear in accounts, organisations and
    /// sessions.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn instance_counts(&self, now: Timestamp) -> Result<InstanceCounts, StoreError> {
        let users = self.users()?;
        let count = |wanted: &dyn Fn(&User) -> bool| users.iter().filter(|user| wanted(user)).count();
        Ok(InstanceCounts {
            users: users.len(),
            users_disabled: count(&|user| user.disabled),
            admins: count(&|user| user.is_admin && !user.disabled),
            users_with_twofa: count(&|user| user.twofa_enabled),
            orgs: self.orgs()?.len(),
            orgs_being_removed: self.removals().len(),
            sessions: users.iter().map(|user| self.sessions(user.id, now).len()).sum(),
            api_keys: self.keys_count(),
        })
    }

    /// Disables or enables an account, or grants or withdraws administration of the server. The
    /// sessions of a disabled account have ended when this returns. Blocks (commit).
    ///
    /// # Errors
    /// [`AdministrationError`]; then nothing is changed.
    pub fn change_user(
        &self,
        actor: Option<UserId>,
        user: UserId,
        change: UserChange,
        now: Timestamp,
    ) -> Result<(), AdministrationError> {
        let epoch = self.change(move |txn| {
            require_admin(txn, actor)?;
            let row = read::<UserRow>(txn, &user)?.ok_or(AdministrationError::UnknownUser)?;
            let changed = UserRow {
                disabled: change.disabled.unwrap_or(row.disabled),
                is_admin: change.is_admin.unwrap_or(row.is_admin),
                ..row.clone()
            };
            let (was, is) = (row.is_admin && !row.disabled, changed.is_admin && !changed.disabled);
            if was && !is && !has_other_admin(txn, user)? {
                return Err(AdministrationError::LastAdmin);
            }
            txn.put(&user, &changed);
            let mut actions = Vec::new();
            if changed.disabled != row.disabled {
                actions.push(if changed.disabled { "admin.user_disabled" } else { "admin.user_enabled" });
            }
            if changed.is_admin != row.is_admin {
                actions.push(if changed.is_admin { "admin.granted" } else { "admin.withdrawn" });
            }
            for action in actions {
                let event = Event::by_actor(actor, action).target(&user.to_string());
                audit::record(txn, &event.detail(&row.email), now)?;
            }
            let ends = changed.disabled && !row.disabled;
            Ok(if ends { Some(end_all(txn, user, None)?) } else { None })
        })?;
        self.end_sessions_in_memory(user, epoch);
        Ok(())
    }

    /// Ends a user's sessions in memory after a change that ended them in the store.
    fn end_sessions_in_memory(&self, user: UserId, epoch: Option<u32>) {
        if let Some(epoch) = epoch {
            let (_, ended) = self.end_in_memory(user, None);
            self.apply_epoch(user, epoch, None, &ended);
        }
    }

    /// Creates an account. The first one of all administers the server. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`AdministrationError`]; then nothing is changed.
    pub fn create_user(
        &self,
        new: &NewUser<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<User, AdministrationError> {
        let name = name::parse(new.name)?;
        if let Some(password) = new.password {
            check_policy(password, &[new.email.as_str()])?;
        }
        let id = UserId::random(rng);
        let (email, is_admin) = (new.email.clone(), new.is_admin || self.needs_setup());
        let row = UserRow {
            email: email.as_str().to_owned(),
            name,
            is_admin,
            disabled: false,
            password: new.password.map(|password| self.passwords.hash(password, rng)),
            created_at: now,
            sessions_epoch: 0,
            address_proof: AddressProof::Given,
        };
        self.change(move |txn| {
            if read::<AddressRow>(txn, &row.email)?.is_some() {
                return Err(AdministrationError::EmailTaken(email));
            }
            txn.put(&id, &row);
            txn.put(&row.email, &AddressRow(id));
            let event = Event::unattributed("admin.user_created").target(&id.to_string()).detail(&row.email);
            Ok(audit::record(txn, &event, now)?)
        })?;
        self.account_made(now)?;
        self.user(id)?.ok_or(AdministrationError::UnknownUser)
    }

    /// Replaces the password of an account, ends its sessions and outstanding links, and clears its
    /// failed logins. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`AdministrationError`]; then nothing is changed.
    pub fn replace_password(
        &self,
        user: UserId,
        password: Password<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<(), AdministrationError> {
        let account = self.row::<UserRow>(&user)?.ok_or(AdministrationError::UnknownUser)?;
        check_policy(password, &[&account.email])?;
        let (hash, slots) = (self.passwords.hash(password, rng), self.slots(user, &account));
        let epoch = self.change(move |txn| {
            let row = read::<UserRow>(txn, &user)?.ok_or(AdministrationError::UnknownUser)?;
            let event =
                Event::unattributed("admin.password_set").target(&user.to_string()).detail(&row.email);
            txn.put(&user, &UserRow { password: Some(hash), ..row });
            end_outstanding(txn, &slots);
            audit::record(txn, &event, now)?;
            Ok::<_, AdministrationError>(end_all(txn, user, None)?)
        })?;
        self.end_sessions_in_memory(user, Some(epoch));
        self.login_throttle().forget(&self.address_hash(&account.email));
        Ok(())
    }

    /// Removes an account's second factor, for an owner who has lost phone and recovery codes. Ends
    /// its sessions. Returns whether the account had a second factor. Blocks (commit).
    ///
    /// # Errors
    /// [`AdministrationError`]; then nothing is changed.
    pub fn reset_two_factor(&self, user: UserId, now: Timestamp) -> Result<bool, AdministrationError> {
        let epoch = self.change(move |txn| {
            let row = read::<UserRow>(txn, &user)?.ok_or(AdministrationError::UnknownUser)?;
            if read::<TotpRow>(txn, &user)?.is_none() {
                return Ok::<_, AdministrationError>(None);
            }
            txn.remove::<TotpRow>(&user);
            let event = Event::unattributed("admin.twofa_reset").target(&user.to_string()).detail(&row.email);
            audit::record(txn, &event, now)?;
            Ok(Some(end_all(txn, user, None)?))
        })?;
        self.end_sessions_in_memory(user, epoch);
        Ok(epoch.is_some())
    }
}

/// Returns whether another account than `user` administers the server and may log in.
fn has_other_admin(txn: &Txn<'_>, user: UserId) -> Result<bool, StoreError> {
    let users = txn.scan::<UserRow>(&())?;
    Ok(users.iter().any(|(id, row)| *id != user && row.is_admin && !row.disabled))
}
