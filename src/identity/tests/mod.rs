//! The room's promises, kept through its own door: `Identity` over a real store in a temporary folder.

mod accounts;
mod address_proofs;
mod embed;
mod full_audit;
mod keys;
mod links;
mod login_model;
mod logins;
mod new_passwords;
mod oauth;
mod orgs;
mod removal;
mod sessions;
mod signups;
mod stored;
mod two_factor;

use std::sync::Arc;

use super::*;
use crate::kv::{ControlOptions, DataFolder};
use crate::model::OrgSlug;

pub(super) const EMAIL: &str = "ada@example.org";
pub(super) const PASSWORD: &str = "correct horse battery";
/// Hashing in a test should cost nothing.
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 };
pub(super) const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// An instance in a folder of its own, with a clock that stands until it is moved.
pub(super) struct House {
    dir: tempfile::TempDir,
    pub(super) now: Timestamp,
    pub(super) rng: Entropy,
    options: IdentityOptions,
    open: Option<Open>,
}

struct Open {
    folder: Arc<DataFolder>,
    control: Arc<Control>,
    identity: Arc<Identity>,
}

impl House {
    /// Without any account.
    pub(super) fn empty() -> House {
        let options = IdentityOptions { argon2: CHEAP, ..IdentityOptions::default() };
        House::with(options)
    }

    pub(super) fn with(options: IdentityOptions) -> House {
        let dir = tempfile::tempdir().expect("a folder");
        let now = Timestamp::from_rfc3339("2026-11-21T10:00:00Z").expect("a time");
        let mut house = House { dir, now, rng: Entropy::seeded(7), options, open: None };
        house.open(MasterKey([9; 32]));
        house
    }

    /// With the account [`EMAIL`], instance administrator and owner of `acme`.
    pub(super) fn furnished() -> House {
        let mut house = House::empty();
        let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
        house
            .identity()
            .bootstrap(&bootstrap, house.now, &mut house.rng)
            .expect("set up")
            .expect("the first");
        house
    }

    /// The same, and its mail goes to a mail server.
    pub(super) fn mailing() -> House {
        let mut house = House::furnished();
        let options = IdentityOptions { argon2: CHEAP, mail_leaves: true, ..IdentityOptions::default() };
        house.restart_with(options, MasterKey([9; 32]));
        house
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
        self.open = Some(Open { folder, control, identity: Arc::new(identity) });
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.open.as_ref().expect("open").identity)
    }

    pub(super) fn advance_ms(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    /// As after `kill -9`: nothing more is written.
    pub(super) fn crash(&mut self) {
        self.open = None;
        self.open(MasterKey([9; 32]));
    }

    /// A clean stop and a start.
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
        let Open { folder, control, identity } = self.open.take().expect("open");
        identity.close(self.now).expect("written");
        drop(identity);
        Arc::into_inner(control).expect("the only one").close().expect("closed");
        Arc::into_inner(folder).expect("the only one").close_clean(self.now).expect("marked");
    }

    /// Every byte of every file of the folder.
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

    /// The organisation `acme`.
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

    /// A session of the owner, by password.
    pub(super) fn session(&mut self) -> LoggedIn {
        match self.login(PASSWORD).expect("the right password") {
            LoginOutcome::LoggedIn(session) => session,
            LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
        }
    }

    /// What a cookie is now, in a word.
    pub(super) fn check(&self, token: &Secret) -> &'static str {
        match self.identity().session(token.expose(), self.now) {
            SessionCheck::Live(_) => "live",
            SessionCheck::LiveOncePersisted(_) => "live once persisted",
            SessionCheck::Expired(_) => "expired",
            SessionCheck::Ended(_) => "ended, unknown to the disk",
            SessionCheck::Unknown => "unknown",
        }
    }

    /// Another account, without any organisation.
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
                    address_proof: address_proof::AddressProof::Given,
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

/// Runs `work` on so many threads that start together; what each returned.
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
