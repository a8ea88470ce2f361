//! The listener, bound before the store is opened, so that clients see the progress of the start
//! and that the process runs. It also begins to handle signals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ServerError;
use super::options::api_options;
use crate::api::ApiOptions;
use crate::api::edge::{self, EdgeOptions};
use crate::api::host::TrustedProxies;
use crate::api::lanes::STACK_BYTES;
use crate::api::layers::App;
use crate::api::own_metrics::Counters;
use crate::api::prefix::path_of;
use crate::api::starting::{StartProgress, StartStage, SwitchableApp};
use crate::api::tls::Certificates;
use crate::clock::Clock;
use crate::config::Settings;
use crate::kv::descriptors;
use crate::tasks::{Panics, Task, TaskContext, memory_bytes};
use crate::tsdb::{OpenControl, ProgressObserver};

/// The time that a stopped start has to end. It normally ends at its next step, but may hang if the
/// disk does not respond.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may continue after a start was stopped. Responses are immediate, so only a
/// slow client needs it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval at which the progress of a start is reported.
const REPORT_PERIOD: Duration = Duration::from_millis(200);
/// The duration after which the progress of a start is reported at all.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// The greatest interval between two log lines about the progress. It doubles until then.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Shows a line about the progress of a start in place of the previous line. An empty line ends it.
pub type ShowProgress = Box<dyn FnMut(&str) + Send>;

/// The bound address with its runtime and the app that is served there.
pub(super) struct Listener {
    runtime: Runtime,
    pub(super) address: SocketAddr,
    pub(super) options: ApiOptions,
    apps: SwitchableApp,
    progress: Arc<StartProgress>,
    stop: watch::Receiver<bool>,
    served: JoinHandle<usize>,
}

/// The number of connections that the kernel completes before the server accepts them. Linux takes
/// at most `net.core.somaxconn`, 4,096 by default. With 128, the default of the standard library, a
/// burst of viewers or logins meets resets and retries after a second.
const BACKLOG: u32 = 4_096;

/// Listens on `address`.
///
/// # Errors
/// The operating system's error, for example for an address in use.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows, the option would allow a second process to take the address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Binds the address and starts to serve the app of a server that is being opened.
    pub(super) fn open(settings: &Settings, counters: Arc<Counters>) -> Result<Listener, ServerError> {
        let files_max = descriptors::raise_limit();
        descriptors::keep_spares();
        let memory_bytes = memory_bytes();
        let connections = ConnectionShares::of(settings.connections_max, files_max, memory_bytes);
        if connections.all() < settings.connections_max.map_or(CONNECTIONS_DEFAULT, |max| max as usize) {
            tracing::warn!(
                "{} connections at once: the process may open {files_max} files and use {} MiB of memory",
                connections.all(),
                memory_bytes >> 20,
            );
        }
        // The edge is thin: the lanes do all long work. With one edge thread on each of two cores,
        // requests wake both in turn for nothing, which costs 7 % of ingestion's CPU time.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.div_ceil(4).clamp(1, 8))
            .enable_all()
            .thread_name("edge")
            // Short queries are evaluated on these threads.
            .thread_stack_size(STACK_BYTES)
            .build()
            .map_err(ServerError::Thread)?;
        let requested = settings.listen;
        let listener = {
            let _inside = runtime.enter();
            bind(requested).map_err(|e| ServerError::Listen(requested, e))?
        };
        let address = listener.local_addr().map_err(|e| ServerError::Listen(requested, e))?;
        let options = api_options(settings, address)?;
        let progress = Arc::new(StartProgress::default());
        let apps = SwitchableApp::starting(Arc::clone(&progress), &options, Arc::clone(&counters))?;
        let tls = settings.tls.as_ref().map(|files| Certificates::read(&files.cert, &files.key));
        let tls = tls.transpose()?.map(Arc::new);
        let edge_options = EdgeOptions {
            proxies: TrustedProxies(options.trusted_proxies.clone()),
            prefix: path_of(&options.public_url).to_owned(),
            tls: tls.clone(),
            connections_max: connections.strangers,
            known_connections_max: connections.known,
            ..EdgeOptions::default()
        };
        let (stop_sender, stop) = watch::channel(false);
        let signals = {
            let _inside = runtime.enter();
            StopSignals::register()
        };
        runtime.spawn(handle_signals(signals, stop_sender, apps.clone()));
        if let Some(certificates) = tls {
            on_hang_up(&runtime, move || match certificates.read_again() {
                Ok(()) => tracing::info!("the certificate was reloaded; new connections use it"),
                Err(error) => tracing::error!("the certificate was not reloaded: {error}"),
            });
        }
        let mut stopping = stop.clone();
        let shutdown = async move {
            // An error means that signals are no longer handled. The server continues.
            if stopping.wait_for(|stopping| *stopping).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let served = runtime.spawn(edge::serve(listener, apps.clone(), edge_options, counters, shutdown));
        let scheme = settings.scheme();
        tracing::info!("health is served on {scheme}://{address} while the store is opened");
        Ok(Listener { runtime, address, options, apps, progress, stop, served })
    }

    /// Sets the current stage of the start.
    pub(super) fn set_stage(&self, stage: StartStage) {
        self.progress.set(stage);
    }

    /// Returns an observer that publishes the progress of opening the store, and stops the opening
    /// when the process receives a signal to stop.
    pub(super) fn observer(&self) -> ProgressObserver {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        ProgressObserver::new(move |step| {
            progress.set(StartStage::Samples(*step));
            if *stop.borrow() { OpenControl::Stop } else { OpenControl::Continue }
        })
    }

    /// Reports a long start in the log and through `show`, until the task is stopped.
    pub(super) fn report_progress(
        &self,
        clock: Clock,
        show: Option<ShowProgress>,
    ) -> Result<Task, ServerError> {
        let progress = Arc::clone(&self.progress);
        let mut reporter = ProgressReporter { log_at: REPORT_AFTER, show };
        let tick = move |_| reporter.tick(&progress);
        // A panic here is harmless: no samples are written yet.
        let panics = Arc::new(Panics::new(|_, _| ()));
        Task::start("start", REPORT_PERIOD, TaskContext { clock, panics }, tick).map_err(ServerError::Thread)
    }

    /// Runs `end` as soon as the process receives a signal to stop, while open requests are still
    /// served.
    pub(super) fn on_shutdown(&self, end: impl FnOnce() + Send + 'static) {
        let mut stop = self.stop.clone();
        self.runtime.spawn(async move {
            if stop.wait_for(|stopping| *stopping).await.is_ok() {
                end();
            }
        });
    }

    /// Runs `reload` at each SIGHUP, which then no longer ends the process. It must not block for
    /// long.
    pub(super) fn on_hang_up(&self, reload: impl Fn() + Send + 'static) {
        on_hang_up(&self.runtime, reload);
    }

    /// Installs the app of the open server.
    pub(super) fn install_app(&self, app: App) {
        self.apps.install(app);
    }

    /// Returns the runtime, which ends with [`Listener::wait`].
    pub(super) fn runtime(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// Waits until the process receives a signal to stop and the last request has its response.
    /// Then calls `end`, before the runtime ends.
    pub(super) fn wait(self, end: impl FnOnce()) {
        let dropped = self.runtime.block_on(self.served);
        match dropped {
            Ok(0) => {}
            Ok(dropped) => tracing::warn!(dropped, "connections were still busy after the grace period"),
            Err(error) => tracing::error!("the accept loop ended early: {error}"),
        }
        end();
    }

    /// As [`Listener::wait`], with a shorter grace period, after a start that was stopped.
    pub(super) fn close_quickly(self) {
        // Requests that are cut off here had no response to wait for.
        let _ = self.runtime.block_on(async { tokio::time::timeout(DRAIN_TIMEOUT, self.served).await });
    }
}

/// Returns how many connections leave the store its share of `files_max` descriptors: half of a
/// small number, 256 of a large one.
fn connections_within(files_max: u64) -> usize {
    let for_store = (files_max / 2).clamp(48, 256);
    // With fewer, health could not be served beside an ordinary client.
    usize::try_from(files_max.saturating_sub(for_store)).unwrap_or(usize::MAX).max(24)
}

/// The connections at once, unless the setting says otherwise: 10,000 viewers and the requests of
/// their pages.
const CONNECTIONS_DEFAULT: usize = 16_384;
/// The memory of one connection in bytes, rounded up.
const CONNECTION_BYTES: u64 = 32 << 10;

/// How many connections may be open, with and without a valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnectionShares {
    strangers: usize,
    known: usize,
}

impl ConnectionShares {
    /// Divides the connections that the setting, the descriptors and an eighth of the memory allow.
    /// Strangers have the first 1,024.
    fn of(setting: Option<u32>, files_max: u64, memory_bytes: u64) -> ConnectionShares {
        let by_memory = match memory_bytes {
            0 => CONNECTIONS_DEFAULT,
            bytes => usize::try_from(bytes / 8 / CONNECTION_BYTES).unwrap_or(usize::MAX),
        };
        let wanted = setting.map_or(CONNECTIONS_DEFAULT.min(by_memory), |connections| connections as usize);
        let all = wanted.min(connections_within(files_max)).max(24);
        let strangers = all.min(EdgeOptions::default().connections_max);
        ConnectionShares { strangers, known: all - strangers }
    }

    fn all(self) -> usize {
        self.strangers + self.known
    }
}

struct ProgressReporter {
    /// The elapsed time of the next log line.
    log_at: Duration,
    show: Option<ShowProgress>,
}

impl ProgressReporter {
    fn tick(&mut self, progress: &StartProgress) {
        let (elapsed, stage) = (progress.elapsed(), progress.stage());
        if elapsed < REPORT_AFTER {
            return;
        }
        let log = self.is_due(elapsed);
        if let Some(show) = &mut self.show {
            // The log may go to the same terminal.
            show(&if log { String::new() } else { stage.to_string() });
        }
        if log {
            tracing::info!("not ready after {} s: {stage}", elapsed.as_secs());
        }
    }

    /// Returns whether a log line is due: after 1, 2, 4, ... seconds, so that a start of an hour
    /// logs about sixty lines.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        if elapsed < self.log_at {
            return false;
        }
        self.log_at = elapsed + elapsed.min(REPORT_INTERVAL_MAX);
        true
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        if let Some(show) = &mut self.show {
            show("");
        }
    }
}

/// Stops the server at the first signal. A second one ends the process at once, after which the
/// next start recovers as from a crash.
async fn handle_signals(mut signals: StopSignals, stop: watch::Sender<bool>, apps: SwitchableApp) {
    signals.next().await;
    // An error means that the process is already ending.
    let _ = stop.send(true);
    tracing::info!("stopping: open requests are finished first; a second signal ends it at once");
    let timed_out = async {
        tokio::time::sleep(STOP_TIMEOUT).await;
        if apps.is_installed() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = signals.next() => tracing::warn!("second stop signal: ending at once; the next start checks everything"),
        () = timed_out => tracing::warn!("the start does not stop in time: ending at once; the next start recovers everything"),
    }
    std::process::exit(1);
}

/// Runs `reload` at each SIGHUP. If there is nothing to reload, the signal keeps its default
/// action.
#[cfg(unix)]
fn on_hang_up(runtime: &Runtime, reload: impl Fn() + Send + 'static) {
    runtime.spawn(async move {
        match signal::unix::signal(signal::unix::SignalKind::hangup()) {
            Ok(mut signals) => {
                while signals.recv().await.is_some() {
                    reload();
                }
            }
            Err(error) => tracing::warn!(%error, "SIGHUP cannot be handled; changed files need a restart"),
        }
    });
}

/// Does nothing on systems without signals, where changed files need a restart.
#[cfg(not(unix))]
fn on_hang_up(_: &Runtime, _: impl Fn() + Send + 'static) {}

/// The signals that ask the process to end, received since this was created.
#[cfg(unix)]
struct StopSignals(Vec<signal::unix::Signal>);

#[cfg(unix)]
impl StopSignals {
    /// Registers SIGTERM and SIGINT (Ctrl-C). Must be called within the runtime.
    fn register() -> StopSignals {
        let kinds = [signal::unix::SignalKind::terminate(), signal::unix::SignalKind::interrupt()];
        let signals = kinds.into_iter().filter_map(|kind| {
            signal::unix::signal(kind)
                .inspect_err(|error| {
                    tracing::warn!(%error, "signal {} cannot be handled", kind.as_raw_value());
                })
                .ok()
        });
        StopSignals(signals.collect())
    }

    /// Waits for a signal. Waits for ever if none can be handled, so that the failure does not stop
    /// the server.
    async fn next(&mut self) {
        let any = |cx: &mut Context<'_>| match self.0.iter_mut().any(|one| one.poll_recv(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(any).await;
    }
}

/// Ctrl-C, on systems without signals.
#[cfg(not(unix))]
struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    fn register() -> StopSignals {
        StopSignals
    }

    async fn next(&mut self) {
        if let Err(error) = signal::ctrl_c().await {
            tracing::warn!(%error, "Ctrl-C cannot be handled; kill the process to end it");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_store_its_descriptors() {
        for (files_max, connections) in [
            (64, 24),
            (128, 64),
            (256, 128),
            (512, 256),
            (1_024, 768),
            (1_280, 1_024),
            (1 << 20, (1 << 20) - 256),
        ] {
            assert_eq!(connections_within(files_max), connections, "{files_max}");
        }
    }

    #[test]
    fn connections_follow_the_setting_the_descriptors_and_the_memory() {
        let shares = |setting, files_max, memory_mib: u64| {
            let ConnectionShares { strangers, known } =
                ConnectionShares::of(setting, files_max, memory_mib << 20);
            (strangers, known)
        };
        let (many, large) = (1 << 20, 1 << 16);
        assert_eq!(shares(None, many, large), (1_024, 15_360));
        assert_eq!(shares(None, many, 1_024), (1_024, 3_072), "an eighth of 1 GiB");
        assert_eq!(shares(None, 20_000, large), (1_024, 15_360));
        assert_eq!(shares(None, 4_096, large), (1_024, 2_816));
        assert_eq!(shares(None, 128, large), (64, 0), "as few as before");
        assert_eq!(shares(Some(100_000), many, 1_024), (1_024, 98_976), "the operator decides");
        assert_eq!(shares(Some(100_000), 4_096, large), (1_024, 2_816), "within the descriptors");
        assert_eq!(shares(Some(64), many, large), (64, 0));
    }

    #[test]
    fn a_long_start_is_logged_after_1_2_4_seconds_and_then_each_minute() {
        let mut reporter = ProgressReporter { log_at: REPORT_AFTER, show: None };
        let stopping: Vec<u64> = (0..400).filter(|s| reporter.is_due(Duration::from_secs(*s))).collect();
        assert_eq!(stopping, [1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364]);
    }
}
