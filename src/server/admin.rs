//! `admin.sock` in the data folder: how the command line speaks to the running server, since sled has one owner.
//!
//! A Unix socket of mode 0600 in a folder of mode 0700: whoever may open it owns the data anyway. One line of JSON a
//! question and one an answer, over one connection:
//! ```text
//! {"do":"seal"}                          -> {"segments":3,"samples":120000}
//! {"do":"stage_backup","with_key":false} -> {"dir":"<folder>","store":"..","made_at":"..","account_changes":7,"log_records":9}
//!                                           the folder is removed when whoever asked ends its half of the connection,
//!                                           and then the other half ends
//! {"do":"status"}                        -> {"pid":1,"version":"0.1.0","listen":"..","public_url":"http://.."}
//! {"do":"account","command":{"what":"user_list","search":""}}  -> the command's own answer (`commands`)
//! anything that fails                    -> {"error":"<words>"}
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::commands::{Command, Commands};
use crate::clock::Clock;
use crate::identity::Identity;
use crate::kv::{Control, DataFolder, with_sources};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::upkeep::Facts;

const NAME: &str = "admin.sock";
/// A question is some hundred bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// A list of accounts or organisations may be long.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Connections at once.
const CONNECTIONS_MAX: usize = 8;
/// How long a question may take to arrive.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long whoever asked waits for the end of a connection; a server of an earlier version does not end it.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest path of a socket that every system takes.
const PATH_BYTES_MAX: usize = 100;
/// Where a backup is set aside; what a stop left there goes at the next start.
pub(super) const STAGE: &str = "backup.new";

/// What the command line may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Question {
    /// Seal every organisation's open window now.
    Seal,
    /// Set a consistent state aside for a backup, until the connection ends.
    StageBackup {
        /// With `master.key`.
        with_key: bool,
    },
    /// Who answers.
    Status,
    /// Accounts, organisations, keys, tokens.
    Account {
        /// What to do.
        command: Command,
    },
}

/// What was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Segments written.
    pub segments: u64,
    /// Samples in them.
    pub samples: u64,
}

/// A state that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// Where.
    pub dir: PathBuf,
    /// Of which store, in hex.
    pub store: String,
    /// When, as RFC 3339.
    pub made_at: String,
    /// The last account change in it.
    pub account_changes: u64,
    /// The last log record in it.
    pub log_records: u64,
}

impl Staged {
    /// What the manifest says about it.
    pub fn facts(&self, with_key: bool) -> Facts {
        Facts {
            store: self.store.clone(),
            made_at: self.made_at.clone(),
            with_key,
            account_changes: self.account_changes,
            log_records: self.log_records,
        }
    }
}

/// Why the running server did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server runs on that folder.
    #[error("no server runs on {}", dir.display())]
    NotRunning {
        /// The folder.
        dir: PathBuf,
    },
    /// The connection broke.
    #[error("the running server cannot be asked over {}", path.display())]
    Connection {
        /// The socket.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// It said no.
    #[error("the server answered: {0}")]
    Refused(String),
    /// It said something else: an older or newer program.
    #[error("the server answered what this program does not understand ({0}): is it another version?")]
    Strange(String),
}

/// A connection to the running server.
#[derive(Debug)]
pub struct Asking {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Asking {
    /// Connects to the server that runs on the data folder `dir`.
    ///
    /// # Errors
    /// [`AskError::NotRunning`] where nobody listens.
    pub fn connect(dir: &Path) -> Result<Asking, AskError> {
        let path = dir.join(NAME);
        let connected = Short::of(dir).and_then(|short| UnixStream::connect(short.path()));
        match connected {
            Ok(stream) => Ok(Asking { stream: BufReader::new(stream), path }),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Err(AskError::NotRunning { dir: dir.to_owned() })
            }
            Err(source) => Err(AskError::Connection { path, source }),
        }
    }

    /// Asks, and waits for the answer as long as it takes.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask<T: for<'d> Deserialize<'d>>(&mut self, question: &Question) -> Result<T, AskError> {
        let broken = |source| AskError::Connection { path: self.path.clone(), source };
        let line = json!(question).to_string() + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).map_err(broken)?;
        let mut answer = String::new();
        (&mut self.stream).take(ANSWER_BYTES_MAX).read_line(&mut answer).map_err(broken)?;
        if answer.is_empty() {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let strange = || AskError::Strange(answer.trim().chars().take(200).collect());
        let json: Value = serde_json::from_str(&answer).map_err(|_| strange())?;
        match json.get("error").and_then(Value::as_str) {
            Some(words) => Err(AskError::Refused(words.to_owned())),
            None => serde_json::from_value(json).map_err(|_| strange()),
        }
    }

    /// Ends the connection, and waits until the server has removed what it had set aside for it: then the next backup
    /// is not in its way. Where that takes long it does so all the same.
    pub fn end(mut self) {
        let stream = self.stream.get_ref();
        if stream.shutdown(std::net::Shutdown::Write).is_ok()
            && stream.set_read_timeout(Some(END_TIMEOUT)).is_ok()
        {
            // The end, or no end in time: nothing more is said.
            let _ = self.stream.read(&mut [0]);
        }
    }
}

/// The socket's path, or one through a descriptor of the folder where it is too long for a socket.
struct Short {
    path: PathBuf,
    _dir: Option<fs::File>,
}

impl Short {
    fn of(dir: &Path) -> io::Result<Short> {
        let path = dir.join(NAME);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Short { path, _dir: None });
        }
        let open = fs::File::open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd()));
        Ok(Short { path, _dir: Some(open) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// What questions are answered with.
pub(super) struct Answering {
    pub(super) folder: Arc<DataFolder>,
    pub(super) control: Arc<Control>,
    pub(super) tsdb: Arc<Tsdb>,
    /// Accounts; none where a folder was opened for its samples alone.
    pub(super) identity: Option<Arc<Identity>>,
    /// Where it listens; empty where it does not.
    pub(super) listen: String,
    /// What links begin with.
    pub(super) public_url: String,
    /// Requests a second of new API keys.
    pub(super) embed_rps_default: u32,
    pub(super) clock: Clock,
    /// One backup at a time.
    pub(super) backing_up: Mutex<()>,
}

impl Answering {
    fn perform(&self, command: Command) -> Result<Value, String> {
        let identity = self.identity.as_deref().ok_or("accounts are not open here")?;
        let commands = Commands {
            identity,
            tsdb: Some(&self.tsdb),
            public_url: &self.public_url,
            clock: &self.clock,
            embed_rps_default: self.embed_rps_default,
        };
        commands.perform(command)
    }
}

/// The connections that are open, by the number each was accepted with.
#[derive(Default)]
struct Open(Mutex<BTreeMap<u64, UnixStream>>);

impl Open {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        // Nothing under it panics.
        self.0.lock().ignore_poison()
    }

    fn list(self: &Arc<Self>, number: u64, copy: UnixStream) -> Listed {
        self.lock().insert(number, copy);
        Listed { open: Arc::clone(self), number }
    }
}

/// One of them, until dropped: the copy that is listed would keep the connection open.
struct Listed {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
    }
}

/// The thread that answers.
pub(super) struct Admin {
    dir: PathBuf,
    ending: Arc<AtomicBool>,
    open: Arc<Open>,
    /// The listening socket itself: its name in the folder may be gone.
    listening: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on the folder's socket. The folder is locked, so a socket that is there is a dead one's.
    pub(super) fn start(answering: Answering) -> io::Result<Admin> {
        let dir = answering.folder.path().to_owned();
        remove_stage(&dir)?;
        match fs::remove_file(dir.join(NAME)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let short = Short::of(&dir)?;
        let listener = UnixListener::bind(short.path())?;
        fs::set_permissions(short.path(), fs::Permissions::from_mode(0o600))?;
        let ending = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Open::default());
        let (end, streams) = (Arc::clone(&ending), Arc::clone(&open));
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || accept(&listener, &Arc::new(answering), &end, &streams))?;
        Ok(Admin { dir, ending, open, listening, thread: Some(thread) })
    }

    /// Ends it: what is being done is finished, who waits is cut off.
    pub(super) fn stop(mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes the thread up; if that fails it has ended by itself.
        let _ = self.listening.shutdown(std::net::Shutdown::Both);
        for stream in self.open.lock().values() {
            // Whoever was asked may have gone.
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told when it happened.
            let _ = thread.join();
        }
        // The next start removes it if this does not.
        let _ = fs::remove_file(self.dir.join(NAME));
    }
}

fn accept(listener: &UnixListener, answering: &Arc<Answering>, ending: &Arc<AtomicBool>, open: &Arc<Open>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for number in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if ending.load(Ordering::SeqCst) => break,
            Err(error) => {
                tracing::warn!(%error, "the admin socket failed; commands on the running server do not work any more");
                break;
            }
        };
        threads.retain(|thread| !thread.is_finished());
        if open.lock().len() >= CONNECTIONS_MAX {
            answer_line(&stream, &json!({"error": "too many commands at once: try again in a moment"}));
            continue;
        }
        let Ok(copy) = stream.try_clone() else { continue };
        let listed = open.list(number, copy);
        // Whoever ends it looked for those that are open after it said so.
        if ending.load(Ordering::SeqCst) {
            break;
        }
        let answering = Arc::clone(answering);
        let spawned = std::thread::Builder::new().name("admin-command".to_owned()).spawn(move || {
            converse(&stream, &answering);
            drop(listed);
        });
        // Without a thread the connection ends here.
        threads.extend(spawned.ok());
    }
    for thread in threads {
        // As above.
        let _ = thread.join();
    }
}

/// Answers question after question until the other side ends.
fn converse(stream: &UnixStream, answering: &Answering) {
    let mut staged: Option<Stage<'_>> = None;
    // Whoever asks for a backup keeps the connection open as long as the copying takes.
    while let Some(question) = next_question(stream, staged.is_some()) {
        let answer = match question {
            Err(words) => json!({ "error": words }),
            Ok(Question::Status) => json!({
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "listen": answering.listen,
                "public_url": answering.public_url,
            }),
            Ok(Question::Account { command }) => match answering.perform(command) {
                Ok(answer) => answer,
                Err(words) => json!({ "error": words }),
            },
            Ok(Question::Seal) => seal(answering),
            Ok(Question::StageBackup { with_key }) => match Stage::make(answering, with_key) {
                Ok((stage, answer)) => {
                    staged = Some(stage);
                    answer
                }
                Err(words) => json!({ "error": words }),
            },
        };
        if !answer_line(stream, &answer) {
            break;
        }
    }
    drop(staged);
}

fn next_question(mut stream: &UnixStream, waits: bool) -> Option<Result<Question, String>> {
    let timeout = if waits { None } else { Some(QUESTION_TIMEOUT) };
    stream.set_read_timeout(timeout).ok()?;
    let mut line = Vec::new();
    let mut byte = [0; 1];
    while line.len() <= QUESTION_BYTES_MAX {
        match stream.read(&mut byte) {
            Ok(1) if byte == *b"\n" => {
                let read = serde_json::from_slice(&line);
                return Some(read.map_err(|e| format!("not a question this version knows: {e}")));
            }
            Ok(1) => line.extend_from_slice(&byte),
            _ => return None,
        }
    }
    None
}

fn answer_line(mut stream: &UnixStream, answer: &Value) -> bool {
    stream.write_all((answer.to_string() + "\n").as_bytes()).is_ok()
}

fn seal(answering: &Answering) -> Value {
    match answering.tsdb.seal_and_merge(answering.clock.now()) {
        Ok(done) => json!(Sealed { segments: done.segments, samples: done.samples }),
        Err(error) => json!({ "error": with_sources(&error) }),
    }
}

/// A state set aside in the data folder; removed when dropped.
pub(super) struct Stage<'a> {
    dir: PathBuf,
    _one: std::sync::MutexGuard<'a, ()>,
}

impl<'a> Stage<'a> {
    /// Sets the state of this moment aside (docs/storage.md section 13).
    pub(super) fn make(answering: &'a Answering, with_key: bool) -> Result<(Stage<'a>, Value), String> {
        let one = match answering.backing_up.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("another backup is under way".to_owned()),
        };
        let Answering { folder, control, tsdb, clock, .. } = answering;
        let dir = folder.path().join(STAGE);
        remove_stage(folder.path()).map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
        fs::create_dir(&dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
        let stage = Stage { dir, _one: one };
        let mut changes = 0;
        let log_records = tsdb
            .stage_backup(&stage.dir, &mut || {
                // While segments and log stand still: the list of segments in it is that of the files beside it.
                changes = control.copy_to(&stage.dir).map_err(|e| with_sources(&e))?.seq;
                Ok(())
            })
            .map_err(|e| with_sources(&e))?;
        let mut names = vec!["STORE", "INITIALISED"];
        if with_key {
            names.push("master.key");
        }
        for name in names {
            match fs::copy(folder.path().join(name), stage.dir.join(name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && name == "INITIALISED" => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(format!("{} is not in the data folder", name));
                }
                other => drop(other.map_err(|e| format!("cannot copy {name}: {e}"))?),
            }
        }
        let staged = Staged {
            dir: stage.dir.clone(),
            store: folder.store_id().to_string(),
            made_at: clock.now().to_rfc3339(),
            account_changes: changes,
            log_records,
        };
        Ok((stage, json!(staged)))
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, "what was set aside for a backup stays until the next start: {}", self.dir.display());
        }
    }
}

fn remove_stage(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir.join(STAGE)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
