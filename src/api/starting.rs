//! What is answered while the store is still being opened: `/healthz` as ever, `/readyz` with how far it is, and
//! everything else 503 `starting`. Nothing here reads a body or waits for anything.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::dispatch::{Answering, Dispatch};
use super::error::{ApiError, Code};
use super::layers::{Gate, Site};
use super::own_metrics::Counters;
use super::{ApiOptions, OptionsError, gate};
use crate::clock::Stopwatch;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{OpenStep, Phase};

/// A start takes seconds; who asks again sooner learns nothing new.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What a start is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Opening the accounts.
    #[default]
    Accounts,
    /// Reading samples.
    Samples(OpenStep),
    /// Everything is read; the rest takes no time worth telling.
    Rest,
}

/// How far a start is, set by who opens the rooms and read by who asks.
#[derive(Debug)]
pub struct Progress {
    stage: Mutex<Stage>,
    since: Stopwatch,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { stage: Mutex::default(), since: Stopwatch::start() }
    }
}

impl Progress {
    /// Notes where the start is.
    pub fn set(&self, stage: Stage) {
        *self.stage.lock().ignore_poison() = stage;
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        *self.stage.lock().ignore_poison()
    }

    /// How long it takes so far.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Stage {
    /// The stable word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Stage::Accounts => "control",
            Stage::Samples(step) => step.phase.as_str(),
            Stage::Rest => "finishing",
        }
    }

    /// `recovery` in the body of `/readyz`.
    fn json(&self, elapsed: Duration) -> Value {
        let mut body = json!({ "phase": self.as_str(), "elapsed_s": tenths(elapsed.as_secs_f64()) });
        if let Stage::Samples(step) = self {
            let OpenStep { phase, file, files, done, all, records, samples } = *step;
            body["percent"] = json!(step.percent().map(tenths));
            (body["file"], body["files"]) = (file.into(), files.into());
            (body["done"], body["all"], body["unit"]) = (done.into(), all.into(), phase.unit().into());
            if phase == Phase::Log {
                (body["records"], body["samples"]) = (records.into(), samples.into());
            }
        }
        body
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match self {
            Stage::Accounts => return f.write_str("the accounts are being opened"),
            Stage::Rest => return f.write_str("everything is read, the last preparations are made"),
            Stage::Samples(step) => step,
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

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The site that answers now: that of the start, and once it is there the one of the open rooms. Connections that were
/// made meanwhile go on.
#[derive(Clone, Debug)]
pub struct Front {
    starting: Site,
    open: Arc<OnceLock<Site>>,
}

impl Front {
    /// Answers for a server that is being opened.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn starting(
        progress: Arc<Progress>,
        options: &ApiOptions,
        counters: Arc<Counters>,
    ) -> Result<Front, OptionsError> {
        let gate: Gate = gate(options, counters)?;
        let answers = move |request: Request| -> Answering {
            let answer = answer(&progress, request.uri().path());
            Box::pin(async move { answer })
        };
        let starting = Site::new(Dispatch::default(), Arc::new(answers), gate, None);
        Ok(Front { starting, open: Arc::default() })
    }

    /// From now on this site answers. Only the first call counts.
    pub fn open(&self, site: Site) {
        // A second site would be one too many: the wiring makes one.
        let _ = self.open.set(site);
    }

    /// Whether the rooms answer.
    pub fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// What answers now.
    pub fn site(&self) -> Site {
        self.open.get().unwrap_or(&self.starting).clone()
    }
}

impl From<Site> for Front {
    fn from(site: Site) -> Front {
        Front { starting: site, open: Arc::default() }
    }
}

fn answer(progress: &Progress, path: &str) -> Response {
    match path {
        "/healthz" => "ok".into_response(),
        "/readyz" => {
            let stage = progress.stage();
            // The body that this path always has: whoever waits looks at its status, which is no number.
            let body = json!({
                "status": "starting",
                "checks": { "storage": stage.to_string() },
                "recovery": stage.json(progress.elapsed()),
            });
            let retry_after = (header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
            (StatusCode::SERVICE_UNAVAILABLE, [retry_after], Json(body)).into_response()
        }
        _ => ApiError::new(Code::Starting, "the store is being opened; /readyz says how far it is")
            .with_retry_after(RETRY_AFTER)
            .into_response(),
    }
}
