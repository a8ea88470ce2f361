//! `admin.sock` in the data folder, over which the command line talks to the running server,
//! because sled allows only one owner.
//!
//! A Unix socket of mode 0600 in a folder of mode 0700: a process that may open it owns the data
//! anyway. A connection carries requests and responses, each one line of JSON:
//! ```text
//! {"do":"seal"}                          -> {"segments":3,"samples":120000}
//! {"do":"stage_backup","with_key":false} -> {"dir":"<folder>","store":"..","made_at":"..",
//!                                            "account_changes":7,"log_records":9}
//! {"do":"status"}                        -> {"pid":1,"version":"0.1.0","listen":"..",
//!                                            "public_url":"http://.."}
//! {"do":"account","command":{"what":"user_list","search":""}}
//!                                        -> the response of the command (`commands`)
//! {"do":"promote"}                       -> {"epoch":2}
//! {"do":"backfill","request":{..}}       -> {"stored":10000,"refused":0,"next_ms":1764264600000}
//! any failure                            -> {"error":"<text>"}
//! ```
//!
//! A staged folder is removed when the client shuts down its half of the connection. Then the
//! server closes the other half.

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

use super::commands::AccountCommands;
use super::moves::Moves;
use super::rule_backfill::{self, BackfillRequest};
use crate::clock::Clock;
use crate::config::AccountCommand;
use crate::identity::Identity;
use crate::kv::{Control, DataFolder, with_sources};
use crate::rules::{RuleContext, RuleFileOptions, RuleSettings};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::upkeep::Facts;

const NAME: &str = "admin.sock";
/// The greatest size of a request. It is usually some hundred bytes, but may contain a dashboard of
/// 1 MiB, whose quotes are escaped.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The size of one read of a request.
const READ_BYTES: usize = 16 << 10;
/// The greatest size of a response. A list of accounts or organisations may be long.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// The number of connections at once.
const CONNECTIONS_MAX: usize = 8;
/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for the server to close the connection. Servers of earlier versions do
/// not close it.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The greatest length of a socket's path that every system supports.
const PATH_BYTES_MAX: usize = 100;
/// The folder in which a backup is staged. A start removes the socket of an earlier process.
pub(super) const STAGE: &str = "backup.new";

/// A request of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum AdminRequest {
    /// Seal the open window of every organisation.
    Seal,
    /// Stage a consistent state for a backup until the connection ends.
    StageBackup {
        /// Include `master.key`.
        with_key: bool,
    },
    /// Report the process, version and addresses of the server.
    Status,
    /// Make this follower the primary.
    Promote {
        /// Whether to promote a follower that has never caught up with its primary.
        accepts_loss: bool,
    },
    /// Write a part of the past of a recording rule.
    Backfill {
        /// The rule and the times.
        request: BackfillRequest,
    },
    /// Run a command on accounts, organisations, API keys or tokens.
    Account {
        /// The command.
        command: AccountCommand,
    },
}

/// The result of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The segments written.
    pub segments: u64,
    /// The samples in them.
    pub samples: u64,
}

/// A staged state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// The folder that holds it.
    pub dir: PathBuf,
    /// The id of the store, in hexadecimal.
    pub store: String,
    /// The time of the state, as RFC 3339.
    pub made_at: String,
    /// The number of the last account change in it.
    pub account_changes: u64,
    /// The number of the last log record in it.
    pub log_records: u64,
}

impl Staged {
    /// Returns the facts for the manifest of the backup.
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

/// The reason why the running server did not serve a request.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// No server runs on that folder.
    #[error("no server runs on {}", dir.display())]
    NotRunning {
        /// The folder.
        dir: PathBuf,
    },
    /// The connection broke.
    #[error("cannot communicate with the running server over {}", path.display())]
    Connection {
        /// The socket.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server returned an error.
    #[error("the server responded: {0}")]
    Refused(String),
    /// The response is not understood, because the server is an older or newer version.
    #[error("this program does not understand the server's response ({0}): is it another version?")]
    NotUnderstood(String),
}

/// A connection to the running server.
#[derive(Debug)]
pub struct AdminClient {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl AdminClient {
    /// Connects to the server that runs on the data folder `dir`.
    ///
    /// # Errors
    /// [`AdminError::NotRunning`] if no server listens.
    pub fn connect(dir: &Path) -> Result<AdminClient, AdminError> {
        let path = dir.join(NAME);
        let connected = SocketPath::of(dir).and_then(|socket| UnixStream::connect(socket.path()));
        match connected {
            Ok(stream) => Ok(AdminClient { stream: BufReader::new(stream), path }),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Err(AdminError::NotRunning { dir: dir.to_owned() })
            }
            Err(source) => Err(AdminError::Connection { path, source }),
        }
    }

    /// Sends a request and waits for the response, however long it takes.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn request<T: for<'d> Deserialize<'d>>(&mut self, request: &AdminRequest) -> Result<T, AdminError> {
        let broken = |source| AdminError::Connection { path: self.path.clone(), source };
        let line = json!(request).to_string() + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).map_err(broken)?;
        let mut response = String::new();
        (&mut self.stream).take(RESPONSE_BYTES_MAX).read_line(&mut response).map_err(broken)?;
        if response.is_empty() {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let not_understood = || AdminError::NotUnderstood(response.trim().chars().take(200).collect());
        let json: Value = serde_json::from_str(&response).map_err(|_| not_understood())?;
        match json.get("error").and_then(Value::as_str) {
            Some(message) => Err(AdminError::Refused(message.to_owned())),
            None => serde_json::from_value(json).map_err(|_| not_understood()),
        }
    }

    /// Closes the connection and waits until the server has removed the staged files, so that the
    /// next backup can stage its own. After `END_TIMEOUT` the client returns, and the server
    /// removes it later.
    pub fn close(mut self) {
        let stream = self.stream.get_ref();
        if stream.shutdown(std::net::Shutdown::Write).is_ok()
            && stream.set_read_timeout(Some(END_TIMEOUT)).is_ok()
        {
            // The read returned the end of the stream or a timeout. No more bytes arrive.
            let _ = self.stream.read(&mut [0]);
        }
    }
}

/// The path of the socket. If it is too long for a socket, a path through a descriptor of the
/// folder.
struct SocketPath {
    path: PathBuf,
    _dir: Option<fs::File>,
}

impl SocketPath {
    fn of(dir: &Path) -> io::Result<SocketPath> {
        let path = dir.join(NAME);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(SocketPath { path, _dir: None });
        }
        let open = fs::File::open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd()));
        Ok(SocketPath { path, _dir: Some(open) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The dependencies of the requests.
pub(super) struct AdminContext {
    pub(super) folder: Arc<DataFolder>,
    pub(super) control: Arc<Control>,
    pub(super) tsdb: Arc<Tsdb>,
    /// The accounts; `None` if a folder was opened for its samples only.
    pub(super) identity: Option<Arc<Identity>>,
    /// The address that the server listens on; empty if it does not listen.
    pub(super) listen: String,
    /// The URL that links begin with.
    pub(super) public_url: String,
    /// The requests a second of embed tokens, for new API keys.
    pub(super) embed_rps_default: u32,
    pub(super) clock: Clock,
    /// The settings of the evaluations of a backfill.
    pub(super) rule_settings: RuleSettings,
    /// The moves to other engines; `None` if a folder was opened for its samples only.
    pub(super) moves: Option<Arc<Moves>>,
    /// Held during a backup, so that there is one at a time.
    pub(super) backing_up: Mutex<()>,
    /// Promotes this follower; `None` if a folder was opened for one command.
    pub(super) promote: Option<Promotion>,
}

/// Promotes this server and returns the response. `true` also promotes a follower that has never
/// caught up.
pub(super) type Promotion = Box<dyn Fn(bool) -> Result<Value, String> + Send + Sync>;

impl AdminContext {
    fn perform(&self, command: AccountCommand) -> Result<Value, String> {
        let identity = self.identity.as_deref().ok_or("accounts are not open here")?;
        let commands = AccountCommands {
            identity,
            tsdb: Some(&self.tsdb),
            public_url: &self.public_url,
            clock: &self.clock,
            embed_rps_default: self.embed_rps_default,
            moves: self.moves.as_deref(),
        };
        commands.perform(command)
    }

    fn backfill(&self, request: &BackfillRequest, stopping: &AtomicBool) -> Result<Value, String> {
        let identity = self.identity.as_deref().ok_or("accounts are not open here")?;
        let now = self.clock.now();
        let options = RuleFileOptions::within(&self.rule_settings.caps);
        let org = rule_backfill::admit(identity, request, options, now)?;
        let (tsdb, settings) = (&self.tsdb, &self.rule_settings);
        let context = RuleContext { cancel: Some(stopping), ..RuleContext::new(settings, tsdb, org) };
        let part = rule_backfill::run(context, request, now)?;
        Ok(json!(part))
    }
}

/// The open connections by the number in which they were accepted.
#[derive(Default)]
struct OpenConnections(Mutex<BTreeMap<u64, UnixStream>>);

impl OpenConnections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        // No code under this lock panics.
        self.0.lock().ignore_poison()
    }

    fn register(self: &Arc<Self>, number: u64, copy: UnixStream) -> ConnectionGuard {
        self.lock().insert(number, copy);
        ConnectionGuard { open: Arc::clone(self), number }
    }
}

/// Removes a connection from the list when dropped. The listed copy would keep it open.
struct ConnectionGuard {
    open: Arc<OpenConnections>,
    number: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
    }
}

/// The thread that serves the socket.
pub(super) struct AdminServer {
    dir: PathBuf,
    stopping: Arc<AtomicBool>,
    open: Arc<OpenConnections>,
    /// The listening socket itself, because its file in the folder may have been removed.
    listening: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Listens on the folder's socket. The folder is locked, so an existing socket is a leftover.
    pub(super) fn start(context: Arc<AdminContext>) -> io::Result<AdminServer> {
        let dir = context.folder.path().to_owned();
        remove_stage(&dir)?;
        match fs::remove_file(dir.join(NAME)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = SocketPath::of(&dir)?;
        let listener = UnixListener::bind(socket.path())?;
        fs::set_permissions(socket.path(), fs::Permissions::from_mode(0o600))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let open = Arc::new(OpenConnections::default());
        let (stop_flag, streams) = (Arc::clone(&stopping), Arc::clone(&open));
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || accept(&listener, &context, &stop_flag, &streams))?;
        Ok(AdminServer { dir, stopping, open, listening, thread: Some(thread) })
    }

    /// Stops the thread. Requests in progress are finished, except for backfills, which end with an
    /// error. Waiting clients are disconnected.
    pub(super) fn stop(mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread up. If that fails, the thread has already ended.
        let _ = self.listening.shutdown(std::net::Shutdown::Both);
        for stream in self.open.lock().values() {
            // The client may have disconnected.
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        // If this fails, the next start removes it.
        let _ = fs::remove_file(self.dir.join(NAME));
    }
}

fn accept(
    listener: &UnixListener,
    context: &Arc<AdminContext>,
    stopping: &Arc<AtomicBool>,
    open: &Arc<OpenConnections>,
) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for number in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if stopping.load(Ordering::SeqCst) => break,
            Err(error) => {
                tracing::warn!(%error, "the admin socket failed; commands no longer reach the running server");
                break;
            }
        };
        threads.retain(|thread| !thread.is_finished());
        if open.lock().len() >= CONNECTIONS_MAX {
            write_response(&stream, &json!({"error": "too many commands at once: try again in a moment"}));
            continue;
        }
        let Ok(copy) = stream.try_clone() else { continue };
        let guard = open.register(number, copy);
        // `stop` sets the flag before it lists open connections, so check it after registering.
        if stopping.load(Ordering::SeqCst) {
            break;
        }
        let (context, stopping) = (Arc::clone(context), Arc::clone(stopping));
        let spawned = std::thread::Builder::new().name("admin-command".to_owned()).spawn(move || {
            serve_connection(&stream, &context, &stopping);
            drop(guard);
        });
        // If no thread can be started, the connection is closed here.
        threads.extend(spawned.ok());
    }
    for thread in threads {
        // A panic was reported when it happened.
        let _ = thread.join();
    }
}

/// Serves requests until the client closes the connection.
fn serve_connection(stream: &UnixStream, context: &AdminContext, stopping: &AtomicBool) {
    let mut staged: Option<BackupStage<'_>> = None;
    // A client that stages a backup keeps the connection open while it copies.
    while let Some(request) = read_request(stream, staged.is_some()) {
        let response = match request {
            Err(message) => json!({ "error": message }),
            Ok(AdminRequest::Status) => json!({
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "listen": context.listen,
                "public_url": context.public_url,
            }),
            Ok(AdminRequest::Account { command }) => match context.perform(command) {
                Ok(response) => response,
                Err(message) => json!({ "error": message }),
            },
            Ok(AdminRequest::Backfill { request }) => {
                let part = context.backfill(&request, stopping);
                part.unwrap_or_else(|message| json!({ "error": message }))
            }
            Ok(AdminRequest::Seal) => seal(context),
            Ok(AdminRequest::Promote { accepts_loss }) => {
                let promote = context.promote.as_ref().ok_or("this server is not a follower");
                let promoted = promote.map_err(str::to_owned).and_then(|promote| promote(accepts_loss));
                promoted.unwrap_or_else(|message| json!({ "error": message }))
            }
            Ok(AdminRequest::StageBackup { with_key }) => match BackupStage::create(context, with_key) {
                Ok((stage, response)) => {
                    staged = Some(stage);
                    response
                }
                Err(message) => json!({ "error": message }),
            },
        };
        if !write_response(stream, &response) {
            break;
        }
    }
    drop(staged);
}

fn read_request(mut stream: &UnixStream, is_staging: bool) -> Option<Result<AdminRequest, String>> {
    let timeout = if is_staging { None } else { Some(REQUEST_TIMEOUT) };
    stream.set_read_timeout(timeout).ok()?;
    let mut line = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    while line.len() <= REQUEST_BYTES_MAX {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        line.extend_from_slice(piece.get(..read)?);
        // A client waits for the response before it sends anything more.
        if let Some(request) = line.strip_suffix(b"\n") {
            let read = serde_json::from_slice(request);
            return Some(read.map_err(|e| format!("this version does not know this request: {e}")));
        }
    }
    None
}

fn write_response(mut stream: &UnixStream, response: &Value) -> bool {
    stream.write_all((response.to_string() + "\n").as_bytes()).is_ok()
}

fn seal(context: &AdminContext) -> Value {
    match context.tsdb.seal_and_merge(context.clock.now()) {
        Ok(done) => json!(Sealed { segments: done.segments, samples: done.samples }),
        Err(error) => json!({ "error": with_sources(&error) }),
    }
}

/// A state staged in the data folder, which is removed when this is dropped.
pub(super) struct BackupStage<'a> {
    dir: PathBuf,
    _one: std::sync::MutexGuard<'a, ()>,
}

impl<'a> BackupStage<'a> {
    /// Stages the current state (docs/storage.md section 13).
    pub(super) fn create(
        context: &'a AdminContext,
        with_key: bool,
    ) -> Result<(BackupStage<'a>, Value), String> {
        let one = match context.backing_up.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("another backup is in progress".to_owned()),
        };
        let AdminContext { folder, control, tsdb, clock, .. } = context;
        let dir = folder.path().join(STAGE);
        remove_stage(folder.path()).map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
        fs::create_dir(&dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
        let stage = BackupStage { dir, _one: one };
        let mut changes = 0;
        let log_records = tsdb
            .stage_backup(&stage.dir, &mut || {
                // Segments and log do not change meanwhile, so the copied list of segments matches
                // the files.
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

impl Drop for BackupStage<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, "the files staged for a backup stay until the next start: {}", self.dir.display());
        }
    }
}

fn remove_stage(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir.join(STAGE)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
