//! The address, bound before anything is read: whoever comes meanwhile is told how far the start is, and nobody has to
//! guess whether the process lives. Signals are heard from here on, too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ServerError;
use crate::api::ApiOptions;
use crate::api::edge::{self, EdgeOptions};
use crate::api::host::TrustedProxies;
use crate::api::lanes::STACK_BYTES;
use crate::api::own_metrics::Counters;
use crate::api::prefix::path_of;
use crate::api::starting::{Front, Progress, Stage};
use crate::api::tls::Certificates;
use crate::clock::Clock;
use crate::config::Settings;
use crate::kv::descriptors;
use crate::tasks::{Panics, Task, TaskContext};
use crate::tsdb::{OpenControl, ProgressObserver};

/// A start that was told to stop ends at its next step. One that does not get there, because the disk does not answer,
/// is ended after this.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may go on after a start was stopped; they are answered at once, so only a slow reader waits.
const DRAIN: Duration = Duration::from_secs(1);
/// How often it is asked how far the start is.
const TELL_PERIOD: Duration = Duration::from_millis(200);
/// A start of less than this needs no words.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// It is told again after twice the time, and after this at the latest.
const TELL_AGAIN_MAX: Duration = Duration::from_secs(60);

/// Shows a line about how far a start is in place of the one before; the empty one ends it.
pub type Show = Box<dyn FnMut(&str) + Send>;

/// A bound address and what is answered there.
pub(super) struct Door {
    runtime: Runtime,
    pub(super) address: SocketAddr,
    pub(super) options: ApiOptions,
    front: Front,
    progress: Arc<Progress>,
    stop: watch::Receiver<bool>,
    served: JoinHandle<usize>,
}

impl Door {
    /// Binds the address and answers for a server that is being opened.
    pub(super) fn open(settings: &Settings, counters: Arc<Counters>) -> Result<Door, ServerError> {
        let files_max = descriptors::raise_limit();
        descriptors::keep_spares();
        let connections_max = connections_within(files_max).min(EdgeOptions::default().connections_max);
        if connections_max < EdgeOptions::default().connections_max {
            tracing::warn!(
                "{connections_max} connections at once: the process may open {files_max} files only"
            );
        }
        // The edge is thin: all work of length is the lanes'. With a thread of it on each of two cores, requests wake one
        // after the other for nothing: 7 % of ingestion's CPU time.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.div_ceil(4).clamp(1, 8))
            .enable_all()
            .thread_name("edge")
            // Brief questions are evaluated here.
            .thread_stack_size(STACK_BYTES)
            .build()
            .map_err(ServerError::Thread)?;
        let wanted = settings.listen;
        let listener =
            runtime.block_on(TcpListener::bind(wanted)).map_err(|e| ServerError::Listen(wanted, e))?;
        let address = listener.local_addr().map_err(|e| ServerError::Listen(wanted, e))?;
        let options = super::api_options(settings, address)?;
        let progress = Arc::new(Progress::default());
        let front = Front::starting(Arc::clone(&progress), &options, Arc::clone(&counters))?;
        let tls = settings.tls.as_ref().map(|files| Certificates::read(&files.cert, &files.key));
        let tls = tls.transpose()?.map(Arc::new);
        let at_the_door = EdgeOptions {
            proxies: TrustedProxies(options.trusted_proxies.clone()),
            prefix: path_of(&options.public_url).to_owned(),
            tls: tls.clone(),
            connections_max,
            ..EdgeOptions::default()
        };
        let (tell, stop) = watch::channel(false);
        let signals = {
            let _inside = runtime.enter();
            Signals::hear()
        };
        runtime.spawn(heed_signals(signals, tell, front.clone()));
        if let Some(certificates) = tls {
            runtime.spawn(heed_hang_ups(certificates));
        }
        let mut told = stop.clone();
        let shutdown = async move {
            // An error means that nobody hears signals any more, which ends nothing.
            if told.wait_for(|told| *told).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let served = runtime.spawn(edge::serve(listener, front.clone(), at_the_door, counters, shutdown));
        let scheme = settings.scheme();
        tracing::info!("health is answered on {scheme}://{address} while the store is opened");
        Ok(Door { runtime, address, options, front, progress, stop, served })
    }

    /// Notes where the start is.
    pub(super) fn note(&self, stage: Stage) {
        self.progress.set(stage);
    }

    /// Tells who asks how far the store is, and ends its opening when the process is told to stop.
    pub(super) fn observer(&self) -> ProgressObserver {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        ProgressObserver::new(move |step| {
            progress.set(Stage::Samples(*step));
            if *stop.borrow() { OpenControl::Stop } else { OpenControl::Continue }
        })
    }

    /// Says in the log, and by `show`, how far a start is that takes long; until the task is stopped.
    pub(super) fn tell(&self, clock: Clock, show: Option<Show>) -> Result<Task, ServerError> {
        let progress = Arc::clone(&self.progress);
        let mut teller = Teller { log_at: TELL_AFTER, show };
        let tick = move |_| teller.tick(&progress);
        // Nothing is written yet that a panic here could stop.
        let panics = Arc::new(Panics::new(|_, _| ()));
        Task::start("start", TELL_PERIOD, TaskContext { clock, panics }, tick).map_err(ServerError::Thread)
    }

    /// From now on the rooms answer.
    pub(super) fn let_in(&self, front: impl FnOnce(&Front)) {
        front(&self.front);
    }

    /// Waits until the process is told to stop and the last request is answered.
    pub(super) fn wait(self) {
        let dropped = self.runtime.block_on(self.served);
        match dropped {
            Ok(0) => {}
            Ok(dropped) => tracing::warn!(dropped, "connections were still busy after the grace period"),
            Err(error) => tracing::error!("the accept loop ended early: {error}"),
        }
    }

    /// As [`Door::wait`], after a start that was stopped.
    pub(super) fn close_soon(self) {
        // Whoever is cut off had no answer to wait for.
        let _ = self.runtime.block_on(async { tokio::time::timeout(DRAIN, self.served).await });
    }
}

/// The connections that leave the store its part of this number of descriptors: half of a small number, 256 of a large.
fn connections_within(files_max: u64) -> usize {
    let for_store = (files_max / 2).clamp(48, 256);
    // Below this not even health could be answered beside an ordinary client.
    usize::try_from(files_max.saturating_sub(for_store)).unwrap_or(usize::MAX).max(24)
}

struct Teller {
    /// When the log is told next.
    log_at: Duration,
    show: Option<Show>,
}

impl Teller {
    fn tick(&mut self, progress: &Progress) {
        let (elapsed, stage) = (progress.elapsed(), progress.stage());
        if elapsed < TELL_AFTER {
            return;
        }
        let log = self.is_due(elapsed);
        if let Some(show) = &mut self.show {
            // The log may be written to the same terminal.
            show(&if log { String::new() } else { stage.to_string() });
        }
        if log {
            tracing::info!("not ready after {} s: {stage}", elapsed.as_secs());
        }
    }

    /// Whether the log is told now: after 1, 2, 4, ... seconds, so that a start of an hour is some sixty lines.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        if elapsed < self.log_at {
            return false;
        }
        self.log_at = elapsed + elapsed.min(TELL_AGAIN_MAX);
        true
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some(show) = &mut self.show {
            show("");
        }
    }
}

/// Tells the server to stop; said again, the process ends at once, which every start knows how to read.
async fn heed_signals(mut signals: Signals, tell: watch::Sender<bool>, front: Front) {
    signals.next().await;
    // Nobody left to tell: the process is at its end.
    let _ = tell.send(true);
    tracing::info!("stopping: open requests are finished first; a second signal ends it at once");
    let overdue = async {
        tokio::time::sleep(STOP_PATIENCE).await;
        if front.is_open() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = signals.next() => tracing::warn!("told to stop again: ending at once; the next start checks everything"),
        () = overdue => tracing::warn!("the start does not come to an end: ending at once; nothing was changed that the next start does not know of"),
    }
    std::process::exit(1);
}

/// Reads the certificate again whenever SIGHUP says so. Without TLS that signal keeps its old meaning.
#[cfg(unix)]
async fn heed_hang_ups(certificates: Arc<Certificates>) {
    let mut heard = match signal::unix::signal(signal::unix::SignalKind::hangup()) {
        Ok(heard) => heard,
        Err(error) => {
            return tracing::warn!(%error, "SIGHUP cannot be heard; a new certificate needs a restart");
        }
    };
    while heard.recv().await.is_some() {
        match certificates.read_again() {
            Ok(()) => tracing::info!("the certificate was read again; connections from now on get it"),
            Err(error) => tracing::error!("the certificate stays as it was: {error}"),
        }
    }
}

/// As above, on systems without signals: a restart reads the certificate again.
#[cfg(not(unix))]
async fn heed_hang_ups(_: Arc<Certificates>) {}

/// What asks the process to end, heard from the making of this on.
#[cfg(unix)]
struct Signals(Vec<signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    /// SIGTERM, and SIGINT, which is Ctrl-C. To be called within the runtime.
    fn hear() -> Signals {
        let kinds = [signal::unix::SignalKind::terminate(), signal::unix::SignalKind::interrupt()];
        let heard = kinds.into_iter().filter_map(|kind| {
            signal::unix::signal(kind)
                .inspect_err(|error| {
                    tracing::warn!(%error, "signal {} cannot be heard", kind.as_raw_value());
                })
                .ok()
        });
        Signals(heard.collect())
    }

    /// Waits for one; for ever where none can be heard, so that a server is not stopped by that.
    async fn next(&mut self) {
        let any = |cx: &mut Context<'_>| match self.0.iter_mut().any(|one| one.poll_recv(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(any).await;
    }
}

/// As above, on systems without signals: Ctrl-C.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn hear() -> Signals {
        Signals
    }

    async fn next(&mut self) {
        if let Err(error) = signal::ctrl_c().await {
            tracing::warn!(%error, "Ctrl-C cannot be heard; ending the process by force ends it");
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
    fn a_long_start_is_told_after_one_two_four_seconds_and_then_each_minute() {
        let mut teller = Teller { log_at: TELL_AFTER, show: None };
        let told: Vec<u64> = (0..400).filter(|s| teller.is_due(Duration::from_secs(*s))).collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364]);
    }
}
