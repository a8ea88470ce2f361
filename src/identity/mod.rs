//! Accounts and access: users, sessions, organisations, API keys and embed tokens.
//!
//! The room is synchronous; `now` and `rng` are arguments. A function documented as "Blocks" waits
//! for a durable commit or hashes a password and must run on a lane; all others only use memory or
//! read the store. Secrets are stored as hashes, or sealed where the server must read them again
//! (`master`). They are looked up by their hash, so no secret is ever compared byte by byte.
//!
//! | part | subject |
//! |---|---|
//! | `network` | networks of peers |
//! | `options` | the operator's settings |
//! | `origin` | the origin of a request, for the audit log |
//! | `tables` | stored rows and their keys: ids, secrets, sealing, names, audit entries |
//! | `store` | access to the database of accounts |
//! | `audit` | the audit log |
//! | `auth` | passwords, throttling, mailed links, second factors, providers, sessions |
//! | `keys` | API keys and embed tokens |
//! | `dashboards` | dashboards, their versions, stars, files and public links |
//! | `orgs` | organisations, members, invitations, removal |
//! | `accounts` | set-up, sign-up, changes, deletion and administration of accounts |
//!
//! A part uses those before it; `tests/tidy.rs` checks this. `tables` and the parts before it do
//! not use [`Identity`].

mod accounts;
mod audit;
mod auth;
mod dashboards;
mod keys;
mod network;
mod options;
mod orgs;
mod origin;
mod store;
mod tables;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::entropy::Entropy;
use crate::kv::{Control, FolderError, LastStop, MasterKey, Record};
use crate::model::{GateMode, OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

pub use accounts::account::{AccountChangeError, AddressChange, AddressChangeError};
pub use accounts::administration::{AdministrationError, InstanceCounts, NewUser, UserChange, UserSummary};
pub use accounts::sealed::DroppedSecrets;
pub use accounts::setup::{Bootstrap, SetUp, SetUpError, SetUpPeer};
pub use accounts::signup::{NewAccount, SignupError, SignupMail};
pub use audit::event::AlertingActor;
pub use audit::log::{AuditCursor, AuditEntry, AuditPage};
pub use auth::credentials::{Password, SecondFactor};
pub use auth::device::DEVICE_TTL;
pub use auth::link::{LINK_TTL, LinkError, LinkMail, LinkProof, LinkRequest, OUTSTANDING_LINKS_MAX};
pub use auth::login::{
    CodeError, CodeLogin, LoggedIn, LoginError, LoginOutcome, PasswordLogin, PendingLogin,
};
pub use auth::magic_link::{IssuedLink, LinkLogin, LinkOutcome};
pub use auth::oauth::{
    Admission, ExternalAccount, IdTokenCheck, IdTokenError, LinkedIdentity, OauthAttempt, OauthError,
    OauthLogin, OauthMode, OauthOutcome, OauthTicket, Profile, UnlinkError, admission, verify_id_token,
};
pub use auth::password::{PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, WeakPassword};
pub use auth::password_reset::{PasswordChange, PasswordChangeError, PasswordReset, PasswordResetError};
pub use auth::reauth::{Reauth, ReauthError};
pub use auth::second_factor::RecoveryCodes;
pub use auth::session::{Client, SESSION_IDLE, Session, SessionCheck};
pub use auth::totp::{Enrolment, TwoFactorError, TwoFactorStatus};
pub use dashboards::document::{
    DASHBOARD_BYTES_MAX, DASHBOARD_STORED_BYTES_MAX, DashboardDocument, DocumentError, PackedDashboard,
    check_depth, parse_folder,
};
pub use dashboards::provisioned::{ProvisionedDashboard, ProvisionedDashboards, provisioned_uid};
pub use dashboards::public_link::{
    DASHBOARD_LINKS_MAX, LINK_QUERY_SECONDS_DEFAULT, LINK_RATE_DEFAULT, LinkKey, NewPublicLink,
    ORG_LINKS_MAX, PublicLink, PublicLinkChange, PublicLinkError, PublicLinkRefusal,
};
pub use dashboards::store::{
    DASHBOARD_VERSIONS_MAX, DASHBOARDS_MAX, DASHBOARDS_STORED_BYTES_MAX, Dashboard, DashboardError,
    DashboardVersion, DashboardWrite, ExpectedVersion, parse_message,
};
pub use dashboards::views::DashboardMarks;
pub use keys::api_key::{
    ApiKey, ApiKeyChange, CreatedKey, EmbedChange, FieldError, IngestChange, KeyError, NewApiKey,
};
pub use keys::dashboard_policy::DashboardGrant;
pub use keys::embed_token::{EmbedGrant, EmbedRequest, MintError, MintRequest, MintedToken, TokenRefusal};
pub use keys::keyring::{SharedDashboard, VerifiedToken};
#[cfg(test)]
pub(crate) use keys::policy_matcher::parse as read_label_test;
pub use keys::rotation::Rotation;
pub use options::{Argon2Cost, CostError, IdentityOptions, OrgCreate, SignupMode};
pub use orgs::engine::{Engine, EngineError, NewEngine};
pub use orgs::forward::{FORWARD_TARGETS_MAX, ForwardTarget, ForwardTargetError, NewForwardTarget};
pub use orgs::invite::{
    AcceptError, AcceptInvite, Accepted, Invitation, Invite, InviteError, IssuedInvite, NewInvite,
};
pub use orgs::member::{Member, MemberError};
pub use orgs::moving::MoveStateError;
pub use orgs::notify::{NotificationsError, NotifyStateChange, StoredNotifications, StoredNotifyState};
pub use orgs::org::{NewOrg, OrgError};
pub use orgs::org_removal::OrgRemovalError;
pub use orgs::org_settings::{OrgChange, OrgChangeError, Setting};
pub use orgs::push::{StoredPush, StoredPushError};
pub use orgs::replaced_rules::ReplacedRuleVersion;
pub use orgs::rule_file::{FileRuleGroup, RemovedFileGroup};
pub use orgs::rule_group::{
    NewRuleGroup, RULE_GROUP_BYTES_MAX, RULE_GROUPS_STORED_MAX, RULE_TEXTS_BYTES_MAX, RULES_STORED_MAX,
    RuleGroupError, RuleGroupPlace, RuleGroupWrite, StoredRuleGroup,
};
pub use orgs::rule_version::{RULE_VERSIONS_BYTES_MAX, RULE_VERSIONS_MAX, RuleGroupVersion};
pub use orgs::scrape::{SCRAPE_TEXT_BYTES_MAX, ScrapeConfigChangeError, StoredScrapeConfig};
pub use origin::{Origin, with_origin};
pub use tables::dashboard::is_dashboard_uid;
pub use tables::engine::EngineKind;
pub use tables::id::{
    EventId, IdError, IdentityId, InviteId, KeyId, OrgKey, Secret, SecretHash, SecretKind, SessionId, UserId,
};
pub use tables::key::{
    AlertsPolicy, DashboardPolicy, EmbedPolicy, EmbedSettings, Endpoint, IngestSettings, KeyScopes,
    LockedVariable, ReadSettings, TokenAlgorithm,
};
pub use tables::master::{SealError, master_key_mark};
pub use tables::moving::{HistoryCursor, MoveCounts, MoveDirection, MoveRow, MoveStep};
pub use tables::name::NameError;
pub use tables::oauth::Provider;
pub use tables::org::{Limit, Membership, Org, OrgSettings, Role};
pub use tables::session::AuthMethod;
pub use tables::store::{BadHash, StoreError};
pub use tables::user::{Email, EmailError, User};

/// Writes the marker of a finished set-up: `DataFolder::mark_initialised`.
pub type MarkInitialised = Box<dyn Fn(Timestamp) -> Result<(), FolderError> + Send + Sync>;

/// Tag of the table of accounts, for `ControlOptions::users_table`.
pub const USERS_TABLE: u8 = <tables::user::UserRow as Record>::TABLE;

/// The dependencies of an [`Identity`].
pub struct Foundation {
    /// The database of accounts. Close it after [`Identity::close`].
    pub control: Arc<Control>,
    /// The master key of this data folder, bound to it with [`master_key_mark`].
    pub master_key: MasterKey,
    /// How the last run ended. After anything but a clean stop, loaded sessions get a grace period
    /// of ten minutes.
    pub last_stop: LastStop,
    /// Called after the commit of the first account is durable and before the response is sent.
    pub mark_initialised: MarkInitialised,
}

/// Errors of [`Identity::open`].
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The hashing cost is out of bounds.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All accounts of this instance.
pub struct Identity {
    control: Arc<Control>,
    sealing: tables::master::SealingKey,
    options: IdentityOptions,
    passwords: auth::password::Passwords,
    login_throttle: Mutex<auth::login_throttle::LoginThrottle>,
    sessions: auth::session::Sessions,
    keyring: keys::keyring::Keyring,
    token_policies: keys::compiled_policy::CompiledPolicies,
    dashboard_tokens: keys::dashboard_tokens::DashboardTokens,
    public_links: dashboards::public_link::PublicLinks,
    org_settings: orgs::org_settings::SettingsCache,
    moved: orgs::moving::MovedOrgs,
    forwarding: orgs::forward::ForwardingOrgs,
    engines: orgs::engine::EngineCache,
    /// Deleted organisations that still have data on disk.
    removing: Mutex<std::collections::BTreeSet<OrgId>>,
    setup: Mutex<Option<SecretHash>>,
    has_users: AtomicBool,
    mark_initialised: MarkInitialised,
    audit_queue: Mutex<audit::queue::AuditQueue>,
    audit_sweep: Mutex<audit::sweep::AuditSweep>,
    refusal_log: keys::refusal_log::RefusalLog,
    dashboard_views: Mutex<dashboards::views::PendingViews>,
    provisioned: Mutex<Arc<dashboards::provisioned::ProvisionedDashboards>>,
    /// Time of the next slow sweep, in milliseconds since 1970.
    next_sweep_ms: AtomicI64,
}

/// Interval between two sweeps of expired rows.
const SWEEP_EVERY_MS: i64 = 10 * 60 * 1_000;

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Identity {
    /// Loads sessions and keys into memory. Hashes one password: the dummy of unknown accounts.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(
        foundation: Foundation,
        options: IdentityOptions,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Identity, IdentityError> {
        let passwords = auth::password::Passwords::new(options.argon2, rng)?;
        let identity = Identity {
            control: foundation.control,
            sealing: tables::master::SealingKey::new(&foundation.master_key),
            options,
            passwords,
            login_throttle: Mutex::default(),
            sessions: auth::session::Sessions::default(),
            keyring: keys::keyring::Keyring::default(),
            token_policies: keys::compiled_policy::CompiledPolicies::default(),
            dashboard_tokens: keys::dashboard_tokens::DashboardTokens::default(),
            public_links: dashboards::public_link::PublicLinks::default(),
            org_settings: orgs::org_settings::SettingsCache::default(),
            moved: orgs::moving::MovedOrgs::default(),
            forwarding: orgs::forward::ForwardingOrgs::default(),
            engines: orgs::engine::EngineCache::default(),
            removing: Mutex::default(),
            setup: Mutex::default(),
            has_users: AtomicBool::new(false),
            mark_initialised: foundation.mark_initialised,
            audit_queue: Mutex::default(),
            audit_sweep: Mutex::default(),
            refusal_log: keys::refusal_log::RefusalLog::default(),
            dashboard_views: Mutex::default(),
            provisioned: Mutex::default(),
            next_sweep_ms: AtomicI64::new(now.as_ms()),
        };
        identity.load(foundation.last_stop != LastStop::Clean, now)?;
        Ok(identity)
    }

    fn load(&self, unclean: bool, now: Timestamp) -> Result<(), StoreError> {
        self.has_users.store(self.update_password_costs()? > 0, Ordering::Release);
        self.load_sessions(unclean, now)?;
        self.load_removals()?;
        self.load_keys()?;
        self.load_dashboard_tokens()?;
        self.load_public_links()?;
        self.load_org_settings()?;
        self.load_moved()?;
        self.load_forwarding()?;
        self.load_engines()
    }

    /// Replaces everything that is cached in memory by the stored rows, which were changed without
    /// this module: copied from a primary, or stored although their caller got an error.
    ///
    /// # Errors
    /// [`StoreError`]; parts of the cache may be older than others, and the next call retries.
    pub fn reload(&self, now: Timestamp) -> Result<(), StoreError> {
        self.load(false, now)
    }

    /// Returns whether this process may change accounts now: it neither follows another one nor was
    /// replaced by one, and its follower is connected if it needs one.
    pub fn accepts_changes(&self) -> bool {
        let gate = self.control.gate();
        match gate.mode() {
            GateMode::Open => true,
            GateMode::Synchronous => gate.is_connected(),
            GateMode::Follower | GateMode::Fenced(_) => false,
        }
    }

    /// Returns whether another process acts for the organisations: this one follows it, or was
    /// replaced by it. Then nothing is forwarded or moved from here.
    pub fn is_replica(&self) -> bool {
        matches!(self.control.gate().mode(), GateMode::Follower | GateMode::Fenced(_))
    }

    /// Returns whether this process may not change accounts, because it follows another one.
    pub fn is_follower(&self) -> bool {
        self.control.gate().is_follower()
    }

    /// Flushes delayed renewals and queued audit entries, and removes some expired rows. Runs every
    /// 5 s. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; the next tick writes the rest.
    pub fn tick(&self, now: Timestamp) -> Result<(), StoreError> {
        self.flush_sessions()?;
        self.flush_keys()?;
        self.flush_public_links()?;
        self.flush_audit(now, false)?;
        self.flush_dashboard_views(now, false)?;
        let due = now.as_ms() >= self.next_sweep_ms.load(Ordering::Acquire);
        if due {
            self.next_sweep_ms.store(now.plus_ms(SWEEP_EVERY_MS).as_ms(), Ordering::Release);
            self.sweep_logins(now)?;
            self.sweep_oauth(now)?;
            self.sweep_invites(now)?;
            self.audit_sweep().begin();
            self.sweep_rotations(now)?;
            self.remove_deleted_documents(&())?;
            // Each login with a hash of an older cost replaces it by one of the current cost.
            if self.passwords.has_older_costs() {
                self.update_password_costs()?;
            }
        }
        self.sweep_audit(now)?;
        self.sweep_sessions(due, now)
    }

    /// Flushes all delayed renewals at a clean stop. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; the stop then does not count as clean.
    pub fn close(&self, now: Timestamp) -> Result<(), StoreError> {
        self.flush_all_sessions()?;
        self.flush_keys()?;
        self.flush_public_links()?;
        self.flush_dashboard_views(now, true)?;
        self.flush_audit(now, true)
    }

    /// Equalises the cost of all verifications to that of the most expensive stored hash. Returns
    /// the number of accounts.
    fn update_password_costs(&self) -> Result<usize, StoreError> {
        let users = self.rows::<tables::user::UserRow>(&())?;
        self.passwords.update_costs(users.iter().filter_map(|(_, row)| row.password.as_deref()));
        Ok(users.len())
    }

    /// Returns the KiB of memory that all password verifications have processed so far, the dummy's
    /// included.
    pub fn password_work_kib(&self) -> u64 {
        self.passwords.work_kib()
    }

    /// Returns the number of password verifications so far, the dummy's included.
    pub fn passwords_verified(&self) -> u64 {
        self.passwords.verified()
    }

    fn login_throttle(&self) -> MutexGuard<'_, auth::login_throttle::LoginThrottle> {
        self.login_throttle.lock().ignore_poison()
    }

    fn setup(&self) -> MutexGuard<'_, Option<SecretHash>> {
        self.setup.lock().ignore_poison()
    }

    fn audit_queue(&self) -> MutexGuard<'_, audit::queue::AuditQueue> {
        self.audit_queue.lock().ignore_poison()
    }

    fn audit_sweep(&self) -> MutexGuard<'_, audit::sweep::AuditSweep> {
        self.audit_sweep.lock().ignore_poison()
    }

    /// Queues an audit entry for a refusal in memory; the next tick writes it.
    fn record_failure(&self, event: audit::Event, now: Timestamp) {
        let event = event.with_thread_origin();
        self.audit_queue().failure(event, now);
    }

    /// Queues an audit entry for the use of a valid credential in memory; the next tick writes it.
    fn record_access(&self, event: audit::Event, now: Timestamp) {
        let event = event.with_thread_origin();
        self.audit_queue().notice(event, now);
    }
}
