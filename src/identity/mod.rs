//! Who is asking, and what they may see: accounts, sessions, organisations, API keys, embed tokens.
//!
//! Synchronous; `now` and `rng` are arguments. A function that says "blocks" waits for a durable commit or hashes a
//! password and belongs on a lane; the others only touch memory or read the store. Secrets are stored as hashes, or
//! sealed where they must be read again (`master`), and are found by their hash, so nothing compares them.
//!
//! | file | noun |
//! |---|---|
//! | `id`, `master`, `store`, `audit` | names and secrets, sealing, tables, what happened |
//! | `user`, `org`, `org_settings`, `member`, `setup` | accounts, organisations and roles, the first of both |
//! | `invite`, `org_removal`, `administration` | how people come into an organisation, how it goes, who runs the server |
//! | `password`, `lockout`, `device`, `login`, `totp`, `link`, `magic_link`, `session`, `reauth` | getting in, staying in |
//! | `signup`, `new_password`, `account` | making, changing and ending an account |
//! | `oauth` | getting in by an account elsewhere |
//! | `api_key`, `public_key`, `keyring`, `rotation`, `embed_token`, `token_notes`, `matcher_text`, `compiled_policy` | machines and embedded pages |

mod account;
mod address_proof;
mod administration;
mod api_key;
mod audit;
mod audit_queue;
mod compiled_policy;
mod day;
mod device;
mod embed_token;
mod id;
mod invite;
mod keyring;
mod link;
mod lockout;
mod login;
mod magic_link;
mod master;
mod matcher_text;
mod member;
mod name;
mod new_password;
mod oauth;
mod org;
mod org_removal;
mod org_settings;
mod password;
mod public_key;
mod reauth;
mod rotation;
mod sealed;
mod session;
mod setup;
mod signup;
mod store;
mod token_notes;
mod totp;
mod user;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::{Control, FolderError, LastStop, MasterKey, Record};
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

pub use account::{AccountChangeError, AddressChange, AddressChangeError};
pub use administration::{AdministrationError, InstanceCounts, NewUser, UserChange, UserSummary};
pub use api_key::{
    ApiKey, ApiKeyChange, CreatedKey, EmbedChange, EmbedPolicy, EmbedSettings, FieldError, IngestChange,
    IngestSettings, KeyError, KeyScopes, NewApiKey, ReadSettings, TokenAlgorithm,
};
pub use audit::{AuditCursor, AuditEntry, AuditPage, Origin, with_origin};
pub use device::DEVICE_TTL;
pub use embed_token::{
    EmbedGrant, EmbedRequest, Endpoint, MintError, MintRequest, MintedToken, TokenRefusal,
};
pub use id::{
    EventId, IdError, IdentityId, InviteId, KeyId, OrgKey, Secret, SecretHash, SecretKind, SessionId, UserId,
};
pub use invite::{
    AcceptError, AcceptInvite, Accepted, Invitation, Invite, InviteError, IssuedInvite, NewInvite,
};
pub use keyring::VerifiedToken;
pub use link::{LINK_TTL, LinkError, LinkMail, LinkProof, LinkRequest, OUTSTANDING_LINKS_MAX};
pub use login::{
    CodeError, CodeLogin, LoggedIn, LoginError, LoginOutcome, Password, PasswordLogin, PendingLogin,
    SecondFactor,
};
pub use magic_link::{IssuedLink, LinkLogin, LinkOutcome};
pub use master::{SealError, master_key_mark};
#[cfg(test)]
pub(crate) use matcher_text::parse as read_label_test;
pub use member::{Member, MemberError};
pub use name::NameError;
pub use new_password::{PasswordChange, PasswordChangeError, PasswordReset, PasswordResetError};
pub use oauth::{
    Admission, ExternalAccount, IdTokenCheck, IdTokenError, LinkedIdentity, OauthAttempt, OauthError,
    OauthLogin, OauthMode, OauthOutcome, OauthTicket, Profile, Provider, UnlinkError, admission,
    verify_id_token,
};
pub use org::{Limit, Membership, NewOrg, Org, OrgCreate, OrgError, OrgSettings, Role};
pub use org_removal::OrgRemovalError;
pub use org_settings::{OrgChange, OrgChangeError, Setting};
pub use password::{Argon2Cost, BadHash, CostError, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, WeakPassword};
pub use reauth::{Reauth, ReauthError};
pub use rotation::Rotation;
pub use sealed::DroppedSecrets;
pub use session::{AuthMethod, Client, SESSION_IDLE, Session, SessionCheck};
pub use setup::{Bootstrap, SetUp, SetUpError, SetUpPeer};
pub use signup::{NewAccount, SignupError, SignupMail, SignupMode};
pub use store::StoreError;
pub use totp::{Enrolment, RecoveryCodes, TwoFactorError, TwoFactorStatus};
pub use user::{Email, EmailError, User};

/// What the operator decides about accounts (docs/specification.md E).
#[derive(Clone, Debug)]
pub struct IdentityOptions {
    /// `PROMLET_ARGON2`.
    pub argon2: Argon2Cost,
    /// `PROMLET_MAGIC_LINK_TTL`; 600 s.
    pub link_ttl: Duration,
    /// `PROMLET_SESSION_ABSOLUTE_DAYS`; none: sessions slide without end.
    pub session_absolute: Option<Duration>,
    /// `PROMLET_ORG_CREATE`.
    pub org_create: OrgCreate,
    /// `PROMLET_SIGNUP`.
    pub signup: SignupMode,
    /// Mail goes to a mail server and not to the console, so a used link proves who reads its address.
    pub mail_leaves: bool,
}

impl Default for IdentityOptions {
    fn default() -> IdentityOptions {
        IdentityOptions {
            argon2: Argon2Cost::default(),
            link_ttl: Duration::from_secs(600),
            session_absolute: None,
            org_create: OrgCreate::default(),
            signup: SignupMode::default(),
            mail_leaves: false,
        }
    }
}

/// Makes the mark that set-up is over: `DataFolder::mark_initialised`.
pub type MarkInitialised = Box<dyn Fn(Timestamp) -> Result<(), FolderError> + Send + Sync>;

/// The table of accounts, for `ControlOptions::users_table`.
pub const USERS_TABLE: u8 = <user::UserRow as Record>::TABLE;

/// What accounts stand on.
pub struct Foundation {
    /// Where they are stored. Close it after [`Identity::close`].
    pub control: Arc<Control>,
    /// Of this folder, bound to it with [`master_key_mark`].
    pub master_key: MasterKey,
    /// How the last run ended: after anything but a clean stop, sessions get their ten minutes.
    pub last_stop: LastStop,
    /// Called after the first account is durable and before anyone is told.
    pub mark_initialised: MarkInitialised,
}

/// Why accounts could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The hashing cost is out of bounds.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// What is stored could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All accounts of this instance.
pub struct Identity {
    control: Arc<Control>,
    sealing: master::SealingKey,
    options: IdentityOptions,
    passwords: password::Passwords,
    lockout: Mutex<lockout::Lockout>,
    sessions: session::Sessions,
    keyring: keyring::Keyring,
    token_policies: compiled_policy::CompiledPolicies,
    org_settings: org_settings::InMemory,
    /// Organisations that are gone and of which something is left.
    removing: Mutex<std::collections::BTreeSet<OrgId>>,
    setup: Mutex<Option<SecretHash>>,
    has_users: AtomicBool,
    mark_initialised: MarkInitialised,
    audit_queue: Mutex<audit_queue::Queue>,
    audit_sweep: Mutex<audit::AuditSweep>,
    token_notes: token_notes::TokenNotes,
    /// When the slow sweeps run next, milliseconds.
    next_sweep_ms: AtomicI64,
}

/// Between two looks for what expired.
const SWEEP_EVERY_MS: i64 = 10 * 60 * 1_000;

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Identity {
    /// Loads sessions and keys, and hashes one password.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(
        foundation: Foundation,
        options: IdentityOptions,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Identity, IdentityError> {
        let passwords = password::Passwords::new(options.argon2, rng)?;
        let identity = Identity {
            control: foundation.control,
            sealing: master::SealingKey::new(&foundation.master_key),
            options,
            passwords,
            lockout: Mutex::default(),
            sessions: session::Sessions::default(),
            keyring: keyring::Keyring::default(),
            token_policies: compiled_policy::CompiledPolicies::default(),
            org_settings: org_settings::InMemory::default(),
            removing: Mutex::default(),
            setup: Mutex::default(),
            has_users: AtomicBool::new(false),
            mark_initialised: foundation.mark_initialised,
            audit_queue: Mutex::default(),
            audit_sweep: Mutex::default(),
            token_notes: token_notes::TokenNotes::default(),
            next_sweep_ms: AtomicI64::new(now.as_ms()),
        };
        identity.has_users.store(identity.note_password_costs()? > 0, Ordering::Release);
        identity.load_sessions(foundation.last_stop != LastStop::Clean, now)?;
        identity.load_removals()?;
        identity.load_keys()?;
        identity.load_org_settings()?;
        Ok(identity)
    }

    /// Every 5 s: writes renewals that lag and failures that wait, sweeps some of what expired. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; what was not written is tried again.
    pub fn tick(&self, now: Timestamp) -> Result<(), StoreError> {
        self.flush_sessions()?;
        self.flush_keys()?;
        self.flush_audit(now, false)?;
        let due = now.as_ms() >= self.next_sweep_ms.load(Ordering::Acquire);
        if due {
            self.next_sweep_ms.store(now.plus_ms(SWEEP_EVERY_MS).as_ms(), Ordering::Release);
            self.sweep_logins(now)?;
            self.sweep_oauth(now)?;
            self.sweep_invites(now)?;
            self.audit_sweep().begin();
            self.sweep_rotations(now)?;
            // Each login with an old hash makes it anew.
            if self.passwords.has_older_costs() {
                self.note_password_costs()?;
            }
        }
        self.sweep_audit(now)?;
        self.sweep_sessions(due, now)
    }

    /// Clean stop: writes every renewal that lags at all. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]: the stop was not a clean one.
    pub fn close(&self, now: Timestamp) -> Result<(), StoreError> {
        self.flush_all_sessions()?;
        self.flush_keys()?;
        self.flush_audit(now, true)
    }

    /// Has every verification take what the dearest of them takes; the number of accounts.
    fn note_password_costs(&self) -> Result<usize, StoreError> {
        let users = self.rows::<user::UserRow>(&())?;
        self.passwords.note_costs(users.iter().filter_map(|(_, row)| row.password.as_deref()));
        Ok(users.len())
    }

    /// KiB of memory that password verifications went over so far: the work that was done, whoever asked.
    pub fn password_work_kib(&self) -> u64 {
        self.passwords.work_kib()
    }

    /// Password verifications run so far, the dummy's included.
    pub fn passwords_verified(&self) -> u64 {
        self.passwords.verified()
    }

    fn lockout(&self) -> MutexGuard<'_, lockout::Lockout> {
        self.lockout.lock().ignore_poison()
    }

    fn setup(&self) -> MutexGuard<'_, Option<SecretHash>> {
        self.setup.lock().ignore_poison()
    }

    fn audit_queue(&self) -> MutexGuard<'_, audit_queue::Queue> {
        self.audit_queue.lock().ignore_poison()
    }

    fn audit_sweep(&self) -> MutexGuard<'_, audit::AuditSweep> {
        self.audit_sweep.lock().ignore_poison()
    }

    /// Notes a refusal in memory; the next tick writes it.
    fn note_failure(&self, event: audit::Event, now: Timestamp) {
        let event = event.with_origin_here();
        self.audit_queue().failure(event, now);
    }

    /// Notes a use of a valid credential in memory; the next tick writes it.
    fn note_access(&self, event: audit::Event, now: Timestamp) {
        let event = event.with_origin_here();
        self.audit_queue().notice(event, now);
    }
}
