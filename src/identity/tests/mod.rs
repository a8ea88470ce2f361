//! Tests of the room through its public interface: `Identity` over a real store in a temporary
//! folder.

mod accounts;
mod address_proofs;
mod dashboards;
mod embed;
mod full_audit;
mod keys;
mod links;
mod login_model;
mod logins;
mod oauth;
mod orgs;
mod password_resets;
mod public_links;
mod removal;
mod rule_files;
mod rule_versions;
mod sessions;
mod signups;
mod stored;
mod two_factor;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::identity::auth::session;
use crate::identity::keys::{embed_token, keyring};
use crate::identity::orgs::member;
use crate::identity::tables::invite::{InviteRow, InviteTokenRow};
use crate::identity::tables::key::{KeyRow, RotatedRow, UsedRow};
use crate::identity::tables::link::{LinkRow, OutstandingRow};
use crate::identity::tables::org::{MemberRow, MembershipRow, NextOrgRow};
use crate::identity::tables::session::SessionRow;
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::AddressProof;
use crate::identity::tables::{store, user};
use crate::kv::{ControlOptions, DataFolder};
use crate::model::OrgSlug;

pub(super) const EMAIL: &str = "ada@example.org";
pub(super) const PASSWORD: &str = "correct horse battery";
/// A minimal hashing cost, to keep tests fast.
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 };
pub(super) const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// An instance in its own temporary folder, with a clock that advances only on demand.
pub(super) struct TestInstance {
    pub(super) now: Timestamp,
    pub(super) rng: Entropy,
    options: IdentityOptions,
    open: Option<OpenInstance>,
    /// Removed after the instance is closed.
    dir: tempfile::TempDir,
}

struct OpenInstance {
    folder: Arc<DataFolder>,
    control: Arc<Control>,
    identity: Arc<Identity>,
}

impl TestInstance {
    /// Opens an instance without any account.
    pub(super) fn empty() -> TestInstance {
        let options = IdentityOptions { argon2: CHEAP, ..IdentityOptions::default() };
        TestInstance::with(options)
    }

    pub(super) fn with(options: IdentityOptions) -> TestInstance {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let now = Timestamp::from_rfc3339("2026-11-21T10:00:00Z").expect("a time");
        let mut instance = TestInstance { dir, now, rng: Entropy::seeded(7), options, open: None };
        instance.open(MasterKey([9; 32]));
        instance
    }

    /// Opens an instance with the account [`EMAIL`], instance administrator and owner of `acme`.
    pub(super) fn with_owner() -> TestInstance {
        let mut instance = TestInstance::empty();
        let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
        instance
            .identity()
            .bootstrap(&bootstrap, instance.now, &mut instance.rng)
            .expect("set up")
            .expect("the first");
        instance
    }

    /// Like [`TestInstance::with_owner`], with mail sent to a mail server.
    pub(super) fn with_mail_server() -> TestInstance {
        let mut instance = TestInstance::with_owner();
        let options = IdentityOptions { argon2: CHEAP, mail_leaves: true, ..IdentityOptions::default() };
        instance.restart_with(options, MasterKey([9; 32]));
        instance
    }

    fn open(&mut self, key: MasterKey) {
        let folder = Arc::new(DataFolder::open(self.dir.path(), self.now, &mut self.rng).expect("a folder"));
        let (control, _) =
            Control::open(&folder, &ControlOptions { now: self.now, users_table: USERS_TABLE })
                .expect("control");
        let control = Arc::new(control);
        let marked = Arc::clone(&folder);
        let foundation = Foundation {
            control: Arc::clone(&control),
            master_key: key,
            last_stop: folder.last_stop(),
            mark_initialised: Box::new(move |now| marked.mark_initialised(now)),
        };
        let identity =
            Identity::open(foundation, self.options.clone(), self.now, &mut self.rng).expect("identity");
        self.open = Some(OpenInstance { folder, control, identity: Arc::new(identity) });
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.open.as_ref().expect("open").identity)
    }

    pub(super) fn advance_ms(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    /// Restarts as after `kill -9`: nothing more is written.
    pub(super) fn crash(&mut self) {
        self.open = None;
        self.open(MasterKey([9; 32]));
    }

    /// Stops cleanly and starts again.
    pub(super) fn restart(&mut self) {
        self.stop();
        self.open(MasterKey([9; 32]));
    }

    pub(super) fn restart_with(&mut self, options: IdentityOptions, key: MasterKey) {
        self.stop();
        self.options = options;
        self.open(key);
    }

    fn stop(&mut self) {
        let OpenInstance { folder, control, identity } = self.open.take().expect("open");
        identity.close(self.now).expect("written");
        drop(identity);
        Arc::into_inner(control).expect("the only one").close().expect("closed");
        Arc::into_inner(folder).expect("the only one").close_clean(self.now).expect("marked");
    }

    /// Returns all bytes of all files of the folder.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    all.extend(std::fs::read(path).expect("a file"));
                }
            }
        }
        all
    }

    pub(super) fn owner(&self) -> User {
        self.identity().user_by_email(&Email::parse(EMAIL).expect("valid")).expect("read").expect("there")
    }

    /// Returns the organisation `acme`.
    pub(super) fn acme(&self) -> Org {
        self.identity().membership(self.owner().id, "acme").expect("read").expect("there").org
    }

    pub(super) fn login(&mut self, password: &str) -> Result<LoginOutcome, LoginError> {
        self.login_as(EMAIL, password, "192.0.2.1", None)
    }

    pub(super) fn login_as(
        &mut self,
        email: &str,
        password: &str,
        ip: &str,
        replaces: Option<&str>,
    ) -> Result<LoginOutcome, LoginError> {
        let client = &client(ip);
        let attempt = PasswordLogin { email, password: Password(password), client, replaces, device: None };
        let now = self.now;
        self.identity().login(&attempt, now, &mut self.rng)
    }

    /// Logs the owner in with the password.
    pub(super) fn session(&mut self) -> LoggedIn {
        match self.login(PASSWORD).expect("the right password") {
            LoginOutcome::LoggedIn(session) => session,
            LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
        }
    }

    /// Returns the state of a session cookie as a word.
    pub(super) fn check(&self, token: &Secret) -> &'static str {
        match self.identity().session(token.expose(), self.now) {
            SessionCheck::Live(_) => "live",
            SessionCheck::LiveOncePersisted(_) => "live once persisted",
            SessionCheck::Expired(_) => "expired",
            SessionCheck::Ended(_) => "ended, still stored",
            SessionCheck::Unknown => "unknown",
        }
    }

    /// Creates another account without any organisation.
    pub(super) fn add_user(&mut self, email: &str) -> UserId {
        let id = UserId::random(&mut self.rng);
        let (email, password) =
            (email.to_owned(), self.identity().passwords.hash(Password(PASSWORD), &mut self.rng));
        let created_at = self.now;
        self.identity()
            .change(move |txn| {
                let row = user::UserRow {
                    email: email.clone(),
                    name: String::new(),
                    is_admin: false,
                    disabled: false,
                    password: Some(password),
                    created_at,
                    sessions_epoch: 0,
                    address_proof: AddressProof::Given,
                };
                txn.put(&id, &row);
                txn.put(&email, &user::AddressRow(id));
                Ok::<_, StoreError>(())
            })
            .expect("stored");
        id
    }

    pub(super) fn disable(&self, user: UserId) {
        self.identity()
            .change(move |txn| {
                let row = store::read::<user::UserRow>(txn, &user)?.expect("there");
                txn.put(&user, &user::UserRow { disabled: true, ..row });
                Ok::<_, StoreError>(())
            })
            .expect("stored");
    }
}

pub(super) fn client(ip: &str) -> Client {
    Client { ip: ip.parse().expect("an address"), user_agent: "test".into() }
}

pub(super) fn slug(text: &str) -> OrgSlug {
    OrgSlug::parse(text).expect("a slug")
}

/// Runs `work` on `threads` threads that start together. Returns their results in order.
pub(super) fn race<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(threads);
    let (start, work) = (&start, &work);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    start.wait();
                    work(number)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}
