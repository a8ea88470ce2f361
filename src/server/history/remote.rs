//! Servers as source and destination: remote write, remote read, and downloads.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::forward::encode::{BodyCompression, OutgoingSeries, RequestEncoder, WriteVersion};
use crate::history::block::compare_labels;
use crate::history::copy::{
    CopyBatch, CopyLookup, CopySeries, CopySink, FetchFailure, FetchWindow, SampleCopyError, WrittenCounts,
};
use crate::history::export::{ExportSource, LEFT_OUT_TRAILER, metadata_of};
use crate::ingest::remote_read::{self, CHUNKS_TYPE, ReadDecoder, ReadError, ReadLimits, ReadQuery};
use crate::ingest::{DecodeLimits, json_lines};
use crate::model::{
    EgressRules, Labels, METRIC_NAME, MatchOp, Matcher, MetricMetadata, RawSeries, Target, TargetAuth,
    TargetSecret, TargetTls, TargetUrl, TimeRange, percent_encoded,
};
use crate::outbound::{Egress, TargetClient, TargetError, TargetMethod, TargetRequest, TargetResponse};
use crate::server::query_string::DecimalSeconds;

/// The longest time of one request.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The longest time of a download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// The most bytes of protobuf in a request of remote write.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The most bytes of a response of a window.
const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// The memory of the samples of a window in bytes.
const WINDOW_MEMORY_MAX: u64 = 128 << 20;
/// The most attempts of a request, and the first and the longest pause between two of them.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A server, and how requests to it are authenticated.
pub(super) struct RemoteServer {
    runtime: Runtime,
    client: TargetClient,
    url: String,
}

/// The files and the user name of a credential.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemoteCredential<'c> {
    pub(super) username: Option<&'c str>,
    pub(super) secret_file: Option<&'c Path>,
    pub(super) ca_file: Option<&'c Path>,
}

/// A downloaded export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Downloaded {
    /// Its length.
    pub(super) bytes: u64,
    /// The number of native histograms that the server left out; none if it does not report it, or
    /// if a proxy removed the trailer.
    pub(super) left_out: Option<u64>,
}

/// The reason why a request has no usable answer.
enum RequestFailure {
    /// The head of the response, and the beginning of its body.
    Status(TargetHead, String),
    /// The response is larger than its limit.
    TooLarge(String),
    /// There is no response.
    Failed(String),
}

impl From<RequestFailure> for String {
    fn from(failure: RequestFailure) -> String {
        match failure {
            RequestFailure::Status(head, message) => format!("status {}: {message}", head.status),
            RequestFailure::TooLarge(message) | RequestFailure::Failed(message) => message,
        }
    }
}

impl RemoteServer {
    /// Returns the server at a URL; sends no request.
    ///
    /// # Errors
    /// A sentence, if the URL, a file or the certificates are not valid.
    pub(super) fn new(url: &str, credential: RemoteCredential<'_>) -> Result<RemoteServer, String> {
        let url = url.trim_end_matches('/');
        let mut target = Target::new(TargetUrl::parse(url).map_err(|error| format!("{url}: {error}"))?);
        let secret = credential.secret_file.map(super::read_secret).transpose()?.map(TargetSecret::new);
        target.auth = match (credential.username, secret) {
            (Some(username), Some(password)) => TargetAuth::Basic { username: username.to_owned(), password },
            (None, Some(token)) => TargetAuth::Bearer { token },
            (_, None) => TargetAuth::None,
        };
        let ca_pem = credential.ca_file.map(super::read_file).transpose()?;
        target.tls = TargetTls { ca_pem, ..TargetTls::default() };
        // The caller of the command chose the address.
        let rules = EgressRules::parse(["0.0.0.0/0", "::/0"])?;
        let client = TargetClient::new(target, Egress::new(rules, &[]))?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        Ok(RemoteServer { runtime, client, url: url.to_owned() })
    }

    fn request(&self, method: TargetMethod, suffix: String, bytes_max: u64) -> TargetRequest {
        let (headers, body, timeout) = (Vec::new(), Vec::new().into(), TIMEOUT);
        TargetRequest { method, suffix, headers, body, timeout, body_bytes_max: bytes_max }
    }

    /// Sends a request, and repeats it after a failure that may pass. Returns the response with its
    /// body.
    fn exchange(&self, request: &TargetRequest) -> Result<(TargetHead, Vec<u8>), RequestFailure> {
        let (mut pause, mut attempts_left) = (PAUSE, ATTEMPTS);
        loop {
            let answered = self.runtime.block_on(async {
                let response = self.client.send(request.clone()).await?;
                let head = TargetHead::of(&response);
                Ok::<_, TargetError>((head, response.body.bytes().await?))
            });
            let failure = match answered {
                Ok((head, body)) if head.status < 300 => return Ok((head, body)),
                Ok((head, body)) => {
                    let message: String = String::from_utf8_lossy(&body).chars().take(300).collect();
                    let may_pass = head.status == 429 || head.status >= 500;
                    let failure = RequestFailure::Status(head, message.trim().to_owned());
                    if !may_pass {
                        return Err(failure);
                    }
                    failure
                }
                Err(error @ TargetError::TooLarge(_)) => {
                    return Err(RequestFailure::TooLarge(error.to_string()));
                }
                Err(error) => RequestFailure::Failed(format!("{}: {error}", self.url)),
            };
            attempts_left -= 1;
            if attempts_left == 0 {
                return Err(failure);
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    /// Returns whether any series that a selector matches has samples in a range; of all series if
    /// there are no selectors.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn has_series(&self, selectors: &[String], range: TimeRange) -> Result<bool, String> {
        let [start, end] = [range.start, range.end].map(|at| DecimalSeconds(at.as_ms()));
        let mut suffix = format!("/api/v1/series?limit=1&start={start}&end={end}");
        let all = [ALL_SERIES.to_owned()];
        push_selectors(if selectors.is_empty() { &all[..] } else { selectors }, &mut suffix);
        let request = self.request(TargetMethod::Get, suffix, WINDOW_BYTES_MAX);
        let failed = |reason: String| format!("{}: {reason}", self.url);
        let (_, body) = self.exchange(&request).map_err(|failure| failed(String::from(failure)))?;
        let answer: SeriesAnswer =
            serde_json::from_slice(&body).map_err(|error| failed(format!("no list of series: {error}")))?;
        Ok(!answer.data.is_empty())
    }

    /// Reads the samples that match, by remote read.
    fn read(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<Vec<RawSeries>, FetchFailure> {
        let queries = [ReadQuery { matchers, range }];
        let failed = |error: ReadError| match error {
            ReadError::TooLarge { .. } | ReadError::Memory => FetchFailure::TooLarge(error.to_string()),
            other => FetchFailure::Failed(format!("{}: {other}", self.url)),
        };
        let mut request = self.request(TargetMethod::Post, "/api/v1/read".to_owned(), WINDOW_BYTES_MAX);
        request.headers = vec![
            ("content-type", "application/x-protobuf".to_owned()),
            ("content-encoding", "snappy".to_owned()),
            ("x-prometheus-remote-read-version", "0.1.0".to_owned()),
        ];
        request.body = remote_read::request(&queries, true).map_err(failed)?.into();
        let (head, body) = match self.exchange(&request) {
            Ok(answered) => answered,
            Err(RequestFailure::TooLarge(message)) => return Err(FetchFailure::TooLarge(message)),
            // Prometheus refuses a query of too many samples in this way.
            Err(RequestFailure::Status(TargetHead { status: 400 | 413 | 422, .. }, message))
                if message.contains("limit") =>
            {
                return Err(FetchFailure::TooLarge(message));
            }
            Err(other) => return Err(FetchFailure::Failed(format!("{}: {}", self.url, String::from(other)))),
        };
        let limits = ReadLimits { bytes_max: WINDOW_MEMORY_MAX, ..ReadLimits::default() };
        let mut decoder = ReadDecoder::new(&queries, limits, Box::new(|_| true));
        let mut series = if head.content_type.starts_with(CHUNKS_TYPE) {
            decoder.push(&body).map_err(failed)?;
            decoder.finish().map_err(failed)?
        } else {
            decoder.samples(&body).map_err(failed)?
        };
        series.iter_mut().for_each(RawSeries::finish);
        Ok(series)
    }

    /// Writes the body of an export to a file as it arrives.
    pub(super) fn download(
        &self,
        suffix: String,
        out: &mut dyn Write,
        observe: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Downloaded, String> {
        let mut request = self.request(TargetMethod::Get, suffix, u64::MAX);
        request.headers = vec![("te", "trailers".to_owned()), ("connection", "te".to_owned())];
        request.timeout = DOWNLOAD_TIMEOUT;
        self.runtime.block_on(async {
            let response = self.client.send(request).await.map_err(|error| error.to_string())?;
            if response.status >= 300 {
                return Err(response.into_error().await.to_string());
            }
            let (mut body, mut bytes) = (response.body, 0_u64);
            while let Some(piece) = body.next().await.map_err(|error| error.to_string())? {
                out.write_all(&piece).map_err(|error| error.to_string())?;
                bytes = bytes.saturating_add(piece.len() as u64);
                if !observe(bytes) {
                    return Err("stopped".to_owned());
                }
            }
            let left_out = body.trailer(LEFT_OUT_TRAILER).and_then(|text| text.parse().ok());
            Ok(Downloaded { bytes, left_out })
        })
    }
}

/// The selector of all series.
const ALL_SERIES: &str = "{__name__!=\"\"}";

/// The response of `GET /api/v1/series`.
#[derive(serde::Deserialize)]
struct SeriesAnswer {
    data: Vec<serde::de::IgnoredAny>,
}

/// The fields of the head of a response that are used.
struct TargetHead {
    status: u16,
    content_type: String,
    /// The samples and histograms that the receiver wrote, if it says so.
    written: Option<u64>,
    /// Whether the receiver waited, because others send requests to it.
    gave_way: bool,
}

impl TargetHead {
    fn of(response: &TargetResponse) -> TargetHead {
        let count = |name: &str| response.header(name).and_then(|text| text.parse::<u64>().ok());
        let samples = count("x-prometheus-remote-write-samples-written");
        let histograms = count("x-prometheus-remote-write-histograms-written").unwrap_or_default();
        TargetHead {
            status: response.status,
            content_type: response.header("content-type").unwrap_or_default().to_owned(),
            written: samples.map(|samples| samples.saturating_add(histograms)),
            gave_way: response.header("gave-way").is_some(),
        }
    }
}

/// A server that takes samples by remote write 2.0. Requests give way to those of others.
pub(super) struct RemoteSink<'r> {
    server: &'r RemoteServer,
    encoder: RequestEncoder,
    /// The samples after which a request ends.
    request_samples: u64,
}

/// The samples of a request: few while others send requests to the server, which wait for it.
const REQUEST_SAMPLES: u64 = 65_536;
const SHORT_REQUEST_SAMPLES: u64 = SERIES_SAMPLES as u64;

impl<'r> RemoteSink<'r> {
    pub(super) fn new(server: &'r RemoteServer) -> RemoteSink<'r> {
        let encoder = RequestEncoder::new(WriteVersion::V2, BodyCompression::Snappy, REQUEST_BYTES_MAX);
        RemoteSink { server, encoder, request_samples: REQUEST_SAMPLES }
    }

    /// Sends the series that are in the encoder.
    fn send(&mut self, samples: u64, counts: &mut WrittenCounts) -> Result<(), SampleCopyError> {
        if self.encoder.is_empty() {
            return Ok(());
        }
        let encoded = self.encoder.finish().map_err(|error| SampleCopyError::Sink(error.to_string()))?;
        let mut request = self.server.request(TargetMethod::Post, "/api/v1/write".to_owned(), 1 << 20);
        request.headers = vec![
            ("content-type", WriteVersion::V2.content_type().to_owned()),
            ("content-encoding", BodyCompression::Snappy.content_encoding().to_owned()),
            ("x-prometheus-remote-write-version", WriteVersion::V2.version_header().to_owned()),
            ("priority", "u=7".to_owned()),
        ];
        request.body = encoded.body.into();
        match self.server.exchange(&request) {
            Ok((head, _)) => {
                self.request_samples = if head.gave_way { SHORT_REQUEST_SAMPLES } else { REQUEST_SAMPLES };
                let written = head.written.unwrap_or(samples).min(samples);
                counts.stored = counts.stored.saturating_add(written);
                counts.refused = counts.refused.saturating_add(samples.saturating_sub(written));
                Ok(())
            }
            // Some samples were refused for good; the others are stored.
            Err(RequestFailure::Status(TargetHead { status: 400, written, .. }, message)) => {
                let written = written.unwrap_or_default().min(samples);
                counts.stored = counts.stored.saturating_add(written);
                counts.refused = counts.refused.saturating_add(samples.saturating_sub(written));
                if counts.reasons.len() < CopyBatch::REASONS_MAX {
                    counts.reasons.push(message);
                }
                Ok(())
            }
            Err(other) => Err(SampleCopyError::Sink(String::from(other))),
        }
    }
}

/// The samples of a series that are sent at once.
const SERIES_SAMPLES: usize = 4_096;

impl CopySink for RemoteSink<'_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        let mut counts = WrittenCounts::default();
        let mut samples = 0_u64;
        let described = batch.metadata.iter().map(|one| {
            let metadata =
                MetricMetadata { name: &one.name, kind: one.kind, help: &one.help, unit: &one.unit };
            (metadata.name, metadata)
        });
        let described: HashMap<&str, MetricMetadata<'_>> = described.collect();
        for series in &batch.series {
            let metadata = metadata_of(&series.labels, |name| described.get(name).copied());
            for part in parts_of(series) {
                let outgoing = OutgoingSeries { metadata, ..part };
                let len = part.samples.len().saturating_add(part.histograms.len()) as u64;
                if self.encoder.push(&outgoing).is_err() {
                    self.send(samples, &mut counts)?;
                    samples = 0;
                    let pushed = self.encoder.push(&outgoing);
                    pushed.map_err(|_| {
                        SampleCopyError::Sink("a series does not fit into a request".to_owned())
                    })?;
                }
                samples = samples.saturating_add(len);
                if samples >= self.request_samples {
                    self.send(samples, &mut counts)?;
                    samples = 0;
                }
            }
        }
        self.send(samples, &mut counts)?;
        Ok(counts)
    }
}

/// Splits a series into parts that fit into a request.
fn parts_of(series: &CopySeries) -> impl Iterator<Item = OutgoingSeries<'_>> {
    let empty = OutgoingSeries::of_samples(&series.labels, &[]);
    let floats = series.samples.chunks(SERIES_SAMPLES).map(move |samples| OutgoingSeries {
        samples,
        starts: &series.starts,
        ..empty
    });
    let natives = series.histograms.chunks(1_000);
    let natives = natives.map(move |histograms| OutgoingSeries { histograms, ..empty });
    let exemplars = series.exemplars.chunks(1_000);
    floats.chain(natives).chain(exemplars.map(move |exemplars| OutgoingSeries { exemplars, ..empty }))
}

/// A server that is read by remote read.
pub(super) struct RemoteReadFetch {
    pub(super) server: RemoteServer,
    /// Selectors; all series if there are none.
    pub(super) selectors: Vec<Vec<Matcher>>,
}

impl RemoteReadFetch {
    /// Reads the samples that any of the selectors matches.
    fn read(&self, range: TimeRange) -> Result<Vec<RawSeries>, FetchFailure> {
        if self.selectors.is_empty() {
            let all = Matcher::new(METRIC_NAME, MatchOp::Regex, ".+");
            let all = all.map_err(|error| FetchFailure::Failed(error.to_string()))?;
            return self.server.read(vec![all], range);
        }
        let mut found = Vec::new();
        for matchers in &self.selectors {
            found.extend(self.server.read(matchers.clone(), range)?);
        }
        Ok(found)
    }
}

impl FetchWindow for RemoteReadFetch {
    fn identity(&self) -> String {
        format!("remote-read {}", self.server.url)
    }

    fn fetch(&mut self, range: TimeRange) -> Result<CopyBatch, FetchFailure> {
        let series = self.read(range)?.into_iter().map(CopySeries::from).collect();
        Ok(CopyBatch { series, ..CopyBatch::default() })
    }
}

/// A VictoriaMetrics that is read by its export of JSON lines.
pub(super) struct VictoriaFetch {
    pub(super) server: RemoteServer,
    /// Selectors as text; all series if there are none.
    pub(super) selectors: Vec<String>,
}

impl FetchWindow for VictoriaFetch {
    fn identity(&self) -> String {
        format!("victoriametrics {}", self.server.url)
    }

    fn fetch(&mut self, range: TimeRange) -> Result<CopyBatch, FetchFailure> {
        let all = [ALL_SERIES.to_owned()];
        let selectors = if self.selectors.is_empty() { &all[..] } else { &self.selectors };
        let mut suffix = "/api/v1/export?reduce_mem_usage=0".to_owned();
        push_selectors(selectors, &mut suffix);
        let [start, end] = [range.start, range.end].map(|at| DecimalSeconds(at.as_ms()));
        suffix.push_str(&format!("&start={start}&end={end}"));
        let request = self.server.request(TargetMethod::Get, suffix, WINDOW_BYTES_MAX);
        let body = match self.server.exchange(&request) {
            Ok((_, body)) => body,
            Err(RequestFailure::TooLarge(message)) => return Err(FetchFailure::TooLarge(message)),
            Err(other) => {
                return Err(FetchFailure::Failed(format!("{}: {}", self.server.url, String::from(other))));
            }
        };
        if body.trim_ascii().is_empty() {
            return Ok(CopyBatch::default());
        }
        let decoded = json_lines::decode(&body, &DecodeLimits::default());
        let decoded = decoded.map_err(|error| match error.is_size() {
            true => FetchFailure::TooLarge(error.to_string()),
            false => FetchFailure::Failed(error.to_string()),
        })?;
        Ok(CopyBatch::of_text(&decoded, 0))
    }
}

/// Appends the parameters of selectors to a query string that has a parameter already.
pub(super) fn push_selectors<'s>(selectors: impl IntoIterator<Item = &'s String>, suffix: &mut String) {
    for selector in selectors {
        suffix.push_str("&match[]=");
        suffix.push_str(&percent_encoded(selector));
    }
}

/// The samples at a running server.
pub(super) struct RemoteLookup<'r>(pub(super) &'r RemoteServer);

impl CopyLookup for RemoteLookup<'_> {
    fn samples(&mut self, labels: &Labels, range: TimeRange) -> Result<RawSeries, SampleCopyError> {
        let matchers = labels.iter().map(|label| Matcher::equal(label.name, label.value)).collect();
        let found = self.0.read(matchers, range).map_err(|failure| match failure {
            FetchFailure::TooLarge(reason) | FetchFailure::Failed(reason) => SampleCopyError::Lookup(reason),
        })?;
        let own = found.into_iter().find(|one| one.labels == *labels);
        Ok(own.unwrap_or_else(|| RawSeries::new(labels.clone())))
    }
}

/// The samples at a running server, for an export to blocks. The samples of a block are in memory.
pub(super) struct RemoteExport {
    pub(super) fetch: RemoteReadFetch,
    window: Vec<RawSeries>,
}

impl RemoteExport {
    pub(super) const fn new(fetch: RemoteReadFetch) -> RemoteExport {
        RemoteExport { fetch, window: Vec::new() }
    }
}

impl ExportSource for RemoteExport {
    fn select(&mut self, range: TimeRange) -> Result<Vec<Labels>, SampleCopyError> {
        // Frees the memory of the last block first.
        self.window.clear();
        self.window = self.fetch.read(range).map_err(|failure| match failure {
            FetchFailure::TooLarge(reason) => {
                SampleCopyError::Source(format!("{reason}: use fewer --block-hours, or --match"))
            }
            FetchFailure::Failed(reason) => SampleCopyError::Source(reason),
        })?;
        self.window.retain(|series| !series.is_empty());
        self.window.sort_by(|a, b| compare_labels(&a.labels, &b.labels));
        self.window.dedup_by(|a, b| a.labels == b.labels);
        Ok(self.window.iter().map(|series| series.labels.clone()).collect())
    }

    fn read(&mut self, place: usize, _: TimeRange) -> Result<RawSeries, SampleCopyError> {
        Ok(self.window.get_mut(place).map(std::mem::take).unwrap_or_default())
    }
}
