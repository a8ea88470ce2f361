//! The one mapping of refusals to HTTP: stable codes, statuses, titles and bodies
//! (docs/specification.md B2).
//!
//! A handler returns `Err(ApiError)`. Its response carries the error as an extension, and the
//! outermost layer writes the body, because only that layer knows the request id and the format of
//! the path: RFC 9457 problem details, the same with Prometheus' `errorType` and `error` on the
//! data endpoints, or Prometheus' own body on its mount.

pub mod data;
pub mod identity;

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::router::of_org;
use crate::ingest::otlp;

macro_rules! codes {
    ($($status:literal { $($name:ident $code:literal $title:literal,)+ })+) => {
        /// A stable error code of docs/specification.md B2. A code is never renamed, and each code
        /// has one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = concat!("`", $code, "`, ", stringify!($status), ".")] $name,)+)+
        }

        impl Code {
            /// All codes in the order of the table.
            pub const ALL: &[Code] = &[$($(Code::$name,)+)+];

            /// Returns the HTTP status.
            pub const fn status(self) -> StatusCode {
                let status = match self { $($(Code::$name)|+ => StatusCode::from_u16($status),)+ };
                match status { Ok(status) => status, Err(_) => StatusCode::INTERNAL_SERVER_ERROR }
            }

            /// Returns the stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $($(Code::$name => $code,)+)+ }
            }

            /// Returns a short title for people.
            pub const fn title(self) -> &'static str {
                match self { $($(Code::$name => $title,)+)+ }
            }
        }
    };
}

codes! {
    400 {
        BadRequest "bad_request" "Bad request",
        InvalidJson "invalid_json" "Invalid JSON",
        InvalidParameter "invalid_parameter" "Invalid parameter",
        DuplicateParameter "duplicate_parameter" "Duplicate parameter",
        BadExpr "bad_expr" "Bad expression",
        InvalidState "invalid_state" "Invalid state",
        OauthError "oauth_error" "Sign-in with the provider failed",
        EmailConfirmationRequired "email_confirmation_required" "E-mail address must be confirmed",
    }
    401 {
        Unauthenticated "unauthenticated" "Not signed in",
        SessionRequired "session_required" "A session is required",
        SessionInvalid "session_invalid" "The session has ended",
        TokenInvalid "token_invalid" "Invalid token",
        TokenExpired "token_expired" "Token expired",
        TokenNotYetValid "token_not_yet_valid" "Token not yet valid",
        ApiKeyInvalid "api_key_invalid" "Invalid API key",
        ApiKeyNotAllowed "api_key_not_allowed" "API key not allowed here",
        InvalidCredentials "invalid_credentials" "Wrong e-mail address or password",
        InvalidCode "invalid_code" "Wrong code",
        CodeAlreadyUsed "code_already_used" "Code already used",
        PendingLoginInvalid "pending_login_invalid" "The login must be started again",
        LinkInvalid "link_invalid" "The link is not valid",
        PublicLinkInvalid "public_link_invalid" "Invalid public link",
    }
    403 {
        Forbidden "forbidden" "Forbidden",
        OrgMismatch "org_mismatch" "Token of another organisation",
        EmbedRestricted "embed_restricted" "Not granted to this token",
        MetricNotAllowed "metric_not_allowed" "Metric not granted to this token",
        OriginNotAllowed "origin_not_allowed" "Origin not allowed",
        CsrfRejected "csrf_rejected" "Cross-site request refused",
        ReauthRequired "reauth_required" "A fresh login is required",
        SignupClosed "signup_closed" "Sign-up is closed",
        AccountDisabled "account_disabled" "Account disabled",
        DomainNotAllowed "domain_not_allowed" "E-mail domain not allowed",
        SetupTokenRequired "setup_token_required" "Setup token required",
        PublicLinksOff "public_links_off" "Public links are turned off",
    }
    404 {
        NotFound "not_found" "Not found",
        OrgNotFound "org_not_found" "Organisation not found",
        MetricNotFound "metric_not_found" "Metric not found",
        LabelNotFound "label_not_found" "Label not found",
        ProviderNotConfigured "provider_not_configured" "Provider not configured",
    }
    405 { MethodNotAllowed "method_not_allowed" "Method not allowed", }
    406 { NotAcceptable "not_acceptable" "Not acceptable", }
    408 { RequestTimeout "request_timeout" "The request took too long to arrive", }
    409 {
        SlugTaken "slug_taken" "Slug already taken",
        EmailTaken "email_taken" "E-mail address already taken",
        AlreadyMember "already_member" "Already a member",
        LastOwner "last_owner" "The last owner must stay",
        TwofaAlreadyEnabled "twofa_already_enabled" "Second factor already enabled",
        TwofaNotEnabled "twofa_not_enabled" "Second factor not enabled",
        LinkRequired "link_required" "Log in first to link this identity",
        IdentityInUse "identity_in_use" "Identity already in use",
        KeyIsAsymmetric "key_is_asymmetric" "The server does not have the private key",
        Conflict "conflict" "Conflict",
        AlreadyExists "already_exists" "Already exists",
        Provisioned "provisioned" "Provided by a file of the server",
        LimitReached "limit_reached" "Limit reached",
        EngineUpstream "engine_upstream" "Samples are on another server",
    }
    412 { VersionConflict "version_conflict" "Another version is stored", }
    413 {
        BodyTooLarge "body_too_large" "Body too large",
        DashboardTooLarge "dashboard_too_large" "Dashboard too large",
    }
    414 { UriTooLong "uri_too_long" "URL too long", }
    415 { UnsupportedMediaType "unsupported_media_type" "Unsupported media type", }
    421 { HostNotAllowed "host_not_allowed" "Host not allowed", }
    422 {
        ValidationFailed "validation_failed" "Validation failed",
        QueryTooExpensive "query_too_expensive" "Query too expensive",
        // Not in B2: an expression without a result on this data, which is not the fault of a
        // field.
        QueryFailed "query_failed" "Query failed",
        UpstreamUnsupported "upstream_unsupported" "Not possible with this engine",
        ProbeFailed "probe_failed" "The target does not answer as it should",
        WeakPassword "weak_password" "Password too weak",
        InvalidDashboard "invalid_dashboard" "Invalid dashboard",
    }
    428 { PreconditionRequired "precondition_required" "If-Match is required", }
    429 {
        RateLimited "rate_limited" "Too many requests",
        LoginThrottled "login_throttled" "Too many failed logins",
        TwofaThrottled "twofa_throttled" "Too many wrong codes",
        MailThrottled "mail_throttled" "Too many mails",
    }
    431 { HeadersTooLarge "headers_too_large" "Headers too large", }
    500 { Internal "internal" "Internal error", }
    502 {
        IdpUnavailable "idp_unavailable" "Provider unavailable",
        IdpError "idp_error" "Provider answered with an error",
        UpstreamError "upstream_error" "The upstream failed",
    }
    503 {
        Busy "busy" "Busy",
        QueryTimeout "query_timeout" "Query timed out",
        QueryCancelled "query_cancelled" "Query cancelled",
        StorageDegraded "storage_degraded" "Storage degraded",
        ShuttingDown "shutting_down" "Shutting down",
        UpstreamUnavailable "upstream_unavailable" "Upstream not available",
        // Not in B2: before the store is open, only health is served.
        Starting "starting" "Starting",
        IngestThrottled "ingest_throttled" "Ingestion throttled",
        // Not in B2: an organisation has used up its memory or disk space; the server itself is
        // healthy.
        AtCapacity "at_capacity" "The organisation is at capacity",
        // Not in B2: a sample is ahead of a clock that may itself be slow. Senders keep the sample.
        ClockUnconfirmed "clock_unconfirmed" "The server's clock is not confirmed",
        // Not in B2: this server may not take changes, or no standby confirmed one in time.
        Follower "follower" "This server is a follower",
        Fenced "fenced" "Another server took over",
        StandbyMissing "standby_missing" "No standby is connected",
    }
}

impl Code {
    /// Returns Prometheus' `errorType` (docs/specification.md B2).
    pub const fn error_type(self) -> &'static str {
        if matches!(self, Code::QueryTimeout) {
            return "timeout";
        }
        match self.status().as_u16() {
            401 => "unauthorized",
            403 => "forbidden",
            404 => "not_found",
            422 => "execution",
            429 => "too_many_requests",
            500.. => "internal",
            _ => "bad_data",
        }
    }
}

/// One field that failed validation: an entry of `errors[]`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FieldError {
    /// The parameter or the path in the body: `expr`, `org.slug`.
    pub field: Cow<'static, str>,
    /// A stable code: `required`, `too_long`, `parse`, ...
    pub code: Cow<'static, str>,
    /// The reason as a sentence.
    pub message: String,
}

/// An error response: a code, a sentence for the client, and the additions of the code. Contains no
/// secrets and no internal causes.
#[derive(Clone, Debug)]
pub struct ApiError(Box<Refused>);

#[derive(Clone, Debug)]
struct Refused {
    code: Code,
    detail: Cow<'static, str>,
    fields: Vec<FieldError>,
    extra: Vec<(&'static str, Value)>,
    retry_after: Option<Duration>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// The header with the code of an error whose body has another format.
const ERROR_CODE: header::HeaderName = header::HeaderName::from_static("x-error-code");

/// The result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// Returns an error with a sentence for the client.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError(Box::new(Refused {
            code,
            detail: detail.into(),
            fields: Vec::new(),
            extra: Vec::new(),
            retry_after: None,
            headers: Vec::new(),
        }))
    }

    /// Returns 500 `internal`. The cause is logged here and nowhere else; the client gets the
    /// request id.
    pub fn internal(cause: impl std::fmt::Display) -> ApiError {
        tracing::error!("internal error: {cause}");
        ApiError::new(Code::Internal, "something went wrong; the log has it under this request id")
    }

    /// Returns 422 `validation_failed` for one field.
    pub fn invalid_field(field: &'static str, code: &'static str, message: impl Into<String>) -> ApiError {
        let message = message.into();
        ApiError::new(Code::ValidationFailed, message.clone()).with_field(field, code, message)
    }

    /// Returns 400 `invalid_parameter` for one query parameter.
    pub fn invalid_parameter(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> ApiError {
        let (field, message) = (field.into(), message.into());
        ApiError::new(Code::InvalidParameter, format!("invalid parameter {field:?}: {message}"))
            .with_field(field, "invalid", message)
    }

    /// Returns 503 `busy` with `Retry-After: after`.
    pub fn busy(after: Duration) -> ApiError {
        ApiError::new(Code::Busy, "the server is busy; try again shortly").with_retry_after(after)
    }

    /// Returns 503 `shutting_down`.
    pub fn shutting_down() -> ApiError {
        ApiError::new(Code::ShuttingDown, "the server is shutting down")
            .with_retry_after(Duration::from_secs(1))
    }

    /// Adds an entry to `errors[]`.
    #[must_use]
    pub fn with_field(
        mut self,
        field: impl Into<Cow<'static, str>>,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> ApiError {
        self.0.fields.push(FieldError { field: field.into(), code: code.into(), message: message.into() });
        self
    }

    /// Adds a member to the body, such as `attempts_left`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> ApiError {
        self.0.extra.push((name, value.into()));
        self
    }

    /// Sets `Retry-After`, in whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> ApiError {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> ApiError {
        self.0.headers.push((name, value));
        self
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the sentence for the client.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Renders the response in one of the formats.
    pub fn render(&self, form: ErrorFormat, request_id: Option<&str>) -> Response {
        let code = self.0.code;
        let status = form.status(code);
        let text = |body: Value| body.to_string().into_bytes();
        let (media, body) = match form {
            ErrorFormat::Prometheus => ("application/json", text(self.prometheus_body())),
            ErrorFormat::Alertmanager => ("application/json", text(json!(self.0.detail))),
            ErrorFormat::Problem => ("application/problem+json", text(self.problem_body(request_id, false))),
            ErrorFormat::Data => ("application/problem+json", text(self.problem_body(request_id, true))),
            ErrorFormat::Otlp(encoding) => (encoding.content_type(), otlp::status(encoding, self.detail())),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if form == ErrorFormat::Alertmanager {
            headers.insert(ERROR_CODE, HeaderValue::from_static(code.as_str()));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        if let Some(after) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, self.challenge());
        }
        for (name, value) in &self.0.headers {
            headers.append(name, value.clone());
        }
        response
    }

    /// Returns the problem body alone.
    pub(super) fn problem(&self, request_id: &str) -> String {
        self.problem_body(Some(request_id), false).to_string()
    }

    /// Returns the members of the problem body for a line of a batch, in which the HTTP status is
    /// `http_status`.
    pub(super) fn line_members(&self) -> Map<String, Value> {
        let Value::Object(mut members) = self.problem_body(None, true) else { return Map::new() };
        members.remove("status");
        members.insert("http_status".into(), self.0.code.status().as_u16().into());
        members
    }

    fn prometheus_body(&self) -> Value {
        json!({ "status": "error", "errorType": self.0.code.error_type(), "error": self.0.detail })
    }

    fn problem_body(&self, request_id: Option<&str>, data_endpoint: bool) -> Value {
        let code = self.0.code;
        let mut body = Map::new();
        body.insert("type".into(), format!("urn:promlet:error:{}", code.as_str()).into());
        body.insert("title".into(), code.title().into());
        body.insert("status".into(), code.status().as_u16().into());
        body.insert("code".into(), code.as_str().into());
        body.insert("detail".into(), self.0.detail.as_ref().into());
        if let Some(id) = request_id {
            body.insert("request_id".into(), id.into());
        }
        if data_endpoint {
            body.insert("errorType".into(), code.error_type().into());
            body.insert("error".into(), self.0.detail.as_ref().into());
        }
        // The header has whole seconds only, so the body of every 429 has milliseconds.
        if let Some(after) = self.0.retry_after.filter(|_| code.status() == StatusCode::TOO_MANY_REQUESTS) {
            let ms = u64::try_from(after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
            body.insert("retry_after_ms".into(), ms.into());
        }
        for (name, value) in &self.0.extra {
            body.insert((*name).into(), value.clone());
        }
        if !self.0.fields.is_empty() {
            body.insert("errors".into(), json!(self.0.fields));
        }
        Value::Object(body)
    }

    /// Returns the value of `WWW-Authenticate` (RFC 6750, section 3): `Bearer`, with an error only
    /// if a token was sent. The outermost layer adds `Basic` for programs; browsers would open a
    /// login dialog.
    fn challenge(&self) -> HeaderValue {
        let presented = matches!(
            self.0.code,
            Code::TokenInvalid
                | Code::TokenExpired
                | Code::TokenNotYetValid
                | Code::ApiKeyInvalid
                | Code::ApiKeyNotAllowed
                | Code::PublicLinkInvalid
                | Code::SessionRequired
        );
        if !presented {
            return HeaderValue::from_static("Bearer realm=\"metrics\"");
        }
        let described: String =
            self.0.detail.chars().filter(|c| (' '..='~').contains(c) && !matches!(c, '"' | '\\')).collect();
        let text =
            format!("Bearer realm=\"metrics\", error=\"invalid_token\", error_description=\"{described}\"");
        HeaderValue::try_from(text)
            .unwrap_or(HeaderValue::from_static("Bearer realm=\"metrics\", error=\"invalid_token\""))
    }
}

/// Returns the seconds for `Retry-After`, rounded up, at least 1.
fn whole_seconds(after: Duration) -> u64 {
    after.as_millis().div_ceil(1_000).clamp(1, 86_400 * 366).try_into().unwrap_or(1)
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.detail)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.render(ErrorFormat::Problem, None);
        response.extensions_mut().insert(self);
        response
    }
}

/// The format of an error body. The path decides, and for OTLP the content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// RFC 9457.
    Problem,
    /// RFC 9457 with Prometheus' `errorType` and `error`: discover and query (docs/specification.md
    /// C5).
    Data,
    /// Prometheus' own error body: its mount (docs/specification.md C6).
    Prometheus,
    /// The sentence as a string of JSON, as Alertmanager has it, and the code in the header
    /// `x-error-code`: its API (docs/specification.md C14).
    Alertmanager,
    /// A `google.rpc.Status` in the encoding of the request: OTLP/HTTP (docs/specification.md C7).
    Otlp(otlp::Encoding),
}

impl ErrorFormat {
    /// Returns the format of errors of a request, by its path and, for OTLP, by its content type.
    pub fn of(path: &str, headers: &HeaderMap) -> ErrorFormat {
        if !path.ends_with("/otlp/v1/metrics") {
            return ErrorFormat::of_path(path);
        }
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        content_type
            .and_then(otlp::Encoding::of)
            .map_or_else(|| ErrorFormat::of_path(path), ErrorFormat::Otlp)
    }

    /// Returns the status of an error. Clients of Alertmanager know 400, 404 and 500 only, and show
    /// no text of an error with another status.
    pub fn status(self, code: Code) -> StatusCode {
        let status = code.status();
        let is_of_body = matches!(status, StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY);
        if self == ErrorFormat::Alertmanager && is_of_body { StatusCode::BAD_REQUEST } else { status }
    }

    /// Returns the format of errors of a path.
    pub fn of_path(path: &str) -> ErrorFormat {
        let Some(parts) = of_org(path) else { return ErrorFormat::Problem };
        let mut parts = parts.skip(1);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            // A sender whose encoding is unknown is no OTLP client.
            (Some("prometheus"), Some("api"), Some("v1"), Some("otlp")) => ErrorFormat::Problem,
            (Some("prometheus"), ..) => ErrorFormat::Prometheus,
            (Some("alertmanager"), ..) => ErrorFormat::Alertmanager,
            (Some("metrics" | "labels" | "query"), ..)
            | (Some("dashboards"), Some(_), Some("view" | "data" | "options" | "live"), None) => {
                ErrorFormat::Data
            }
            (Some("alerts"), None, ..) => ErrorFormat::Data,
            _ => ErrorFormat::Problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_one_lower_case_name_and_unique() {
        let words: std::collections::BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(
                code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{code:?}"
            );
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }

    #[test]
    fn the_path_decides_the_error_format() {
        let cases = [
            ("/api/v1/auth/login", ErrorFormat::Problem),
            ("/api/v1/orgs/acme", ErrorFormat::Problem),
            ("/api/v1/orgs/acme/metrics", ErrorFormat::Data),
            ("/api/v1/orgs/acme/alerts", ErrorFormat::Data),
            ("/api/v1/orgs/acme/alerts/0123456789abcdef/acknowledgement", ErrorFormat::Problem),
            ("/api/v1/orgs/acme/labels/job/values", ErrorFormat::Data),
            ("/api/v1/orgs/acme/labels/job/values", ErrorFormat::Data),
            ("/api/v1/orgs/acme/query/range", ErrorFormat::Data),
            ("/api/v1/orgs/acme/prometheus/api/v1/query", ErrorFormat::Prometheus),
            ("/api/v1/orgs/acme/prometheus/api/v1/write", ErrorFormat::Prometheus),
            ("/api/v1/orgs/acme/alertmanager/api/v2/silences", ErrorFormat::Alertmanager),
            ("/api/v1/orgs/acme/write", ErrorFormat::Problem),
        ];
        for (path, form) in cases {
            assert_eq!(ErrorFormat::of_path(path), form, "{path}");
        }
    }

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        for (ms, s) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (299_999, 300)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), s);
        }
    }

    #[test]
    fn the_body_of_every_429_has_retry_after_ms() {
        let wait = Duration::from_micros(1_500_001);
        for code in [Code::LoginThrottled, Code::TwofaThrottled, Code::MailThrottled] {
            let body = ApiError::new(code, "wait").with_retry_after(wait).problem_body(None, false);
            assert_eq!(body.get("retry_after_ms"), Some(&json!(1_501)), "{code:?}");
        }
        let body = ApiError::new(Code::Busy, "wait").with_retry_after(wait).problem_body(None, false);
        assert_eq!(body.get("retry_after_ms"), None);
    }

    #[test]
    fn a_challenge_never_carries_quotes_or_line_breaks() {
        let error = ApiError::new(Code::TokenInvalid, "bad \"kid\"\r\nX: y");
        let value = error.challenge();
        assert_eq!(
            value.to_str().expect("visible"),
            "Bearer realm=\"metrics\", error=\"invalid_token\", error_description=\"bad kidX: y\""
        );
    }
}
