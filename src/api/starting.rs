//! Responses while the store is being opened: `/healthz` as usual, `/readyz` with the progress, and
//! 503 `starting` for everything else. Nothing here reads a body or waits.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{ApiError, Code};
use super::layers::{App, EdgePolicy};
use super::own_metrics::Counters;
use super::router::{ResponseFuture, RouteTree};
use super::{ApiOptions, OptionsError, edge_policy};
use crate::clock::Stopwatch;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{OpenStep, Phase};

/// The time after which a client should retry. A start takes seconds, so an earlier request learns
/// nothing new.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The current stage of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartStage {
    /// Opening the accounts.
    #[default]
    Accounts,
    /// Reading samples.
    Samples(OpenStep),
    /// Preparing the last parts, which takes little time.
    Rest,
}

/// The progress of a start. The thread that opens the store sets it, requests read it.
#[derive(Debug)]
pub struct StartProgress {
    stage: Mutex<StartStage>,
    since: Stopwatch,
}

impl Default for StartProgress {
    fn default() -> StartProgress {
        StartProgress { stage: Mutex::default(), since: Stopwatch::start() }
    }
}

impl StartProgress {
    /// Sets the current stage.
    pub fn set(&self, stage: StartStage) {
        *self.stage.lock().ignore_poison() = stage;
    }

    /// Returns the current stage.
    pub fn stage(&self) -> StartStage {
        *self.stage.lock().ignore_poison()
    }

    /// Returns the time since the start began.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl StartStage {
    /// Returns the stable name of the stage, as `/readyz` shows it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StartStage::Accounts => "control",
            StartStage::Samples(step) => step.phase.as_str(),
            StartStage::Rest => "finishing",
        }
    }

    /// Returns the member `recovery` of the body of `/readyz`.
    fn json(&self, elapsed: Duration) -> Value {
        let mut body =
            json!({ "phase": self.as_str(), "elapsed_s": rounded_to_tenths(elapsed.as_secs_f64()) });
        if let StartStage::Samples(step) = self {
            let OpenStep { phase, file, files, done, all, records, samples } = *step;
            body["percent"] = json!(step.percent().map(rounded_to_tenths));
            (body["file"], body["files"]) = (file.into(), files.into());
            (body["done"], body["all"], body["unit"]) = (done.into(), all.into(), phase.unit().into());
            if phase == Phase::Log {
                (body["records"], body["samples"]) = (records.into(), samples.into());
            }
        }
        body
    }
}

impl std::fmt::Display for StartStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match self {
            StartStage::Accounts => return f.write_str("the accounts are being opened"),
            StartStage::Rest => return f.write_str("everything was read; the last preparations are running"),
            StartStage::Samples(step) => step,
        };
        f.write_str(match step.phase {
            Phase::Names => "the names of series are being read",
            Phase::Segments => "the segments are being opened",
            Phase::Checkpoint => "the checkpoint is being read",
            Phase::Log => "the log is being replayed",
        })?;
        if step.files > 0 && step.phase != Phase::Segments {
            write!(f, ", file {} of {}", step.file, step.files)?;
        }
        let (done, all) = (step.done, step.all);
        match step.percent() {
            Some(percent) if matches!(step.phase, Phase::Names | Phase::Log) => {
                write!(f, ", {} of {} MiB, {percent:.0} %", done >> 20, all >> 20)?;
            }
            Some(percent) => write!(f, ", {done} of {all} {}, {percent:.0} %", step.phase.unit())?,
            None => {}
        }
        match step.phase {
            Phase::Log => write!(f, ", {} records, {} samples", step.records, step.samples),
            _ => Ok(()),
        }
    }
}

fn rounded_to_tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The app that handles requests: first that of the start, then, once the store is open, the full
/// one. Open connections remain open across the switch.
#[derive(Clone, Debug)]
pub struct SwitchableApp {
    starting: App,
    install: Arc<OnceLock<App>>,
}

impl SwitchableApp {
    /// Handles requests while the server is being opened.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn starting(
        progress: Arc<StartProgress>,
        options: &ApiOptions,
        counters: Arc<Counters>,
    ) -> Result<SwitchableApp, OptionsError> {
        let edge_policy: EdgePolicy = edge_policy(options, counters)?;
        let answers = move |request: Request| -> ResponseFuture {
            let answer = answer(&progress, request.uri().path());
            Box::pin(async move { answer })
        };
        let starting = App::new(RouteTree::default(), Arc::new(answers), edge_policy, None);
        Ok(SwitchableApp { starting, install: Arc::default() })
    }

    /// Installs the app that handles all requests from now on. Only the first call has an effect.
    pub fn install(&self, app: App) {
        // The wiring calls this once.
        let _ = self.install.set(app);
    }

    /// Returns whether the full app is installed.
    pub fn is_installed(&self) -> bool {
        self.install.get().is_some()
    }

    /// Returns the app that handles requests now.
    pub fn app(&self) -> App {
        self.install.get().unwrap_or(&self.starting).clone()
    }
}

impl From<App> for SwitchableApp {
    fn from(app: App) -> SwitchableApp {
        SwitchableApp { starting: app, install: Arc::default() }
    }
}

fn answer(progress: &StartProgress, path: &str) -> Response {
    match path {
        "/healthz" => "ok".into_response(),
        "/readyz" => {
            let stage = progress.stage();
            // The usual shape of this body. Clients check the text of `status`.
            let body = json!({
                "status": "starting",
                "checks": { "storage": stage.to_string() },
                "recovery": stage.json(progress.elapsed()),
            });
            let retry_after = (header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
            (StatusCode::SERVICE_UNAVAILABLE, [retry_after], Json(body)).into_response()
        }
        _ => ApiError::new(Code::Starting, "the store is being opened; /readyz shows the progress")
            .with_retry_after(RETRY_AFTER)
            .into_response(),
    }
}
