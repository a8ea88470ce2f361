//! What each route takes, answers and refuses, beside what its row already says: who may call it.
//!
//! A refusal that follows from the row (no credential, the wrong role) or that any request may meet (too many, too large)
//! is not repeated here; `super::refusals` adds it.

use super::parameters::{self, Parameter};
use crate::api::error::Code;

/// One route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// Method and path below `/api/v1`, or at the root for what stands there.
    at: &'static str,
    pub(super) takes: Takes,
    /// Status, schema (none: no body), and what it means.
    pub(super) answers: &'static [(u16, &'static str, &'static str)],
    pub(super) refuses: &'static [Code],
    pub(super) query: &'static [&'static [Parameter]],
}

/// What a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// JSON of this shape.
    Json(&'static str),
    /// The same as JSON or as a form.
    JsonOrForm(&'static str),
    /// The query's parameters, as a form.
    Form,
    /// Samples.
    Bytes {
        media: &'static [&'static str],
        what: &'static str,
    },
}

const fn at(at: &'static str) -> Operation {
    Operation { at, takes: Takes::Nothing, answers: &[], refuses: &[], query: &[] }
}

impl Operation {
    const fn takes(mut self, json: &'static str) -> Operation {
        self.takes = Takes::Json(json);
        self
    }

    const fn query(mut self, groups: &'static [&'static [Parameter]]) -> Operation {
        self.query = groups;
        self
    }

    const fn answers(mut self, answers: &'static [(u16, &'static str, &'static str)]) -> Operation {
        self.answers = answers;
        self
    }

    const fn refuses(mut self, codes: &'static [Code]) -> Operation {
        self.refuses = codes;
        self
    }
}

const DONE: &[(u16, &str, &str)] = &[(204, "", "Done")];

/// What is known of a route; `None` where nobody described it, which a test does not let pass.
pub(super) fn of(method: &str, path: &str) -> Option<Operation> {
    let below = path.strip_prefix("/api/v1").unwrap_or(path);
    let wanted = |operation: &&Operation| {
        operation.at.split_once(' ').is_some_and(|(verb, at)| verb == method && at == below)
    };
    ACCOUNTS.iter().chain(ORGANISATIONS).chain(SERVER).find(wanted).copied().or_else(|| data(method, below))
}

/// The data endpoints are a table of their own.
fn data(method: &str, below: &str) -> Option<Operation> {
    let (_, schema, groups, refuses) = parameters::endpoint(below.strip_prefix("/orgs/{slug}/")?)?;
    let mount = below.contains("/prometheus/");
    let (takes, query) = match (method, mount) {
        ("POST", true) => (Takes::Form, *groups),
        ("POST", false) => return None,
        _ => (Takes::Nothing, *groups),
    };
    let answers: &[(u16, &str, &str)] = match *schema {
        "" => DONE,
        schema => ANSWERS.iter().find(|(name, _)| *name == schema).map(|(_, answers)| *answers)?,
    };
    Some(Operation { at: "", takes, answers, refuses, query })
}

macro_rules! answered {
    ($($name:literal)+) => { &[$(($name, &[(200, $name, "The answer")])),+] };
}

type Answered = (&'static str, &'static [(u16, &'static str, &'static str)]);

const ANSWERS: &[Answered] = answered! {
    "Query" "PrometheusQuery" "PrometheusData" "Estimate" "Queries" "Metrics" "MetricLabels" "LabelValues" "Rejects"
};

const OAUTH_START: &[Code] = &[
    Code::ProviderNotConfigured,
    Code::IdpUnavailable,
    Code::IdpError,
    Code::InvalidParameter,
    Code::Unauthenticated,
    Code::ReauthRequired,
];
/// As [`OAUTH_START`], of parameters in the query, where a link of another site leads, too.
const OAUTH_START_QUERY: &[Code] = &[
    Code::CsrfRejected,
    Code::ProviderNotConfigured,
    Code::IdpUnavailable,
    Code::IdpError,
    Code::InvalidParameter,
    Code::DuplicateParameter,
    Code::Unauthenticated,
    Code::ReauthRequired,
];
const OAUTH_BACK: &[Code] = &[
    Code::ProviderNotConfigured,
    Code::InvalidState,
    Code::OauthError,
    Code::SignupClosed,
    Code::DomainNotAllowed,
    Code::LinkRequired,
    Code::IdentityInUse,
    Code::Conflict,
    Code::AccountDisabled,
    Code::IdpUnavailable,
    Code::IdpError,
    Code::SessionInvalid,
    Code::Unauthenticated,
];

const FACTOR: &str = "{ code?: string, recovery_code?: string, password?: string }";

const ACCOUNTS: &[Operation] = &[
    at("POST /auth/login")
        .takes("{ email: string(..254), password: string(1..1024) }")
        .answers(&[(200, "LoginOutcome", "A session and its cookie, or what is needed for one")])
        .refuses(&[Code::InvalidCredentials, Code::LoginThrottled]),
    at("POST /auth/magic-link/request")
        .takes("{ email: string(..254), redirect?: string 'A path of this server' }")
        .answers(&[(202, "Accepted", "Whether there is such an account or not")])
        .refuses(&[Code::MailThrottled]),
    at("GET /auth/magic-link/verify")
        .query(&[parameters::TOKEN])
        .answers(&[
            (200, "html LoginOutcome", "With mail on the console: a session. Otherwise an HTML page with one button"),
            (303, "", "The same, for browsers"),
        ])
        .refuses(&[Code::LinkInvalid, Code::InvalidParameter, Code::DuplicateParameter]),
    Operation { takes: Takes::JsonOrForm("{ token: string, email?: string 'In a browser that did not ask for the link' }"), ..at("POST /auth/magic-link/verify") }
        .answers(&[(200, "LoginOutcome", "A session and its cookie, or what is needed for one"), (303, "", "The same, for forms")])
        .refuses(&[Code::LinkInvalid, Code::EmailConfirmationRequired, Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /auth/2fa/verify")
        .takes("{ twofa_pending_login: string, code?: string, recovery_code?: string }")
        .answers(&[(200, "LoginResult", "A session and its cookie")])
        .refuses(&[Code::PendingLoginInvalid, Code::InvalidCode, Code::CodeAlreadyUsed, Code::TwofaThrottled]),
    at("GET /auth/config").answers(&[(
        200,
        "{ needs_setup: boolean, setup_token_required: boolean, signup: string, providers: any[], magic_link: boolean, \
         mailer: string, password: { min_length: integer, max_bytes: integer }, version: string }",
        "What a login page shows",
    )]),
    at("GET /auth/providers").answers(&[(200, "{ data: { id: string, name: string, start_url: string }[] }", "The configured ones")]),
    at("POST /auth/signup")
        .takes(
            "{ setup_token?: string | null, email: string(..254), password?: string | null 'Needed for the first account', \
             name?: string | null, org?: NewOrg | null 'Needed for the first account' }",
        )
        .answers(&[
            (201, "LoginResult", "The first account, and its session"),
            (202, "Accepted", "With PROMLET_SIGNUP=open: a mail is on its way, whether there is such an account or not"),
        ])
        .refuses(&[Code::SignupClosed, Code::SetupTokenRequired, Code::WeakPassword, Code::MailThrottled]),
    at("POST /auth/signup/complete")
        .takes(
            "{ token: string, email?: string | null, password?: string | null, name?: string | null, org?: NewOrg | null }",
        )
        .answers(&[(201, "LoginOutcome", "The account, and its session")])
        .refuses(&[
            Code::LinkInvalid,
            Code::EmailConfirmationRequired,
            Code::EmailTaken,
            Code::WeakPassword,
            Code::SignupClosed,
            Code::SlugTaken,
            Code::Forbidden,
            Code::Conflict,
        ]),
    at("POST /auth/logout").answers(&[(204, "", "Signed out, with and without a session")]),
    at("PATCH /auth/me").takes("{ name: string(..200) }").answers(&[(200, "User", "As it is now")]),
    at("DELETE /auth/me").answers(&[(204, "", "Gone")]).refuses(&[Code::LastOwner, Code::Conflict]),
    at("POST /auth/password/change")
        .takes("{ current_password?: string | null, new_password: string }")
        .answers(&[(200, "LoginResult", "A new session; all others are over")])
        .refuses(&[Code::InvalidCredentials, Code::WeakPassword, Code::LoginThrottled, Code::ReauthRequired]),
    at("POST /auth/password/reset/request")
        .takes("{ email: string(..254) }")
        .answers(&[(202, "Accepted", "Whether there is such an account or not")])
        .refuses(&[Code::MailThrottled]),
    at("POST /auth/password/reset/confirm")
        .takes("{ token: string, email?: string | null, new_password: string }")
        .answers(&[(200, "{ status: \"password_changed\" }", "Set; all sessions are over")])
        .refuses(&[Code::LinkInvalid, Code::EmailConfirmationRequired, Code::WeakPassword]),
    at("POST /auth/email/change")
        .takes("{ new_email: string(..254) }")
        .answers(&[(202, "Accepted", "A link goes to the new address")])
        .refuses(&[Code::MailThrottled]),
    at("POST /auth/email/confirm")
        .takes("{ token: string }")
        .answers(&[(200, "{ status: \"email_changed\", email: string }", "Changed; the old address is told")])
        .refuses(&[Code::LinkInvalid, Code::EmailTaken]),
    at("POST /auth/invites/lookup")
        .takes("{ token: string }")
        .answers(&[(
            200,
            "{ org: { slug: string, name: string }, email: string, role: Role, account_exists: boolean }",
            "What it is for; nothing is used up",
        )])
        .refuses(&[Code::LinkInvalid]),
    at("POST /auth/invites/accept")
        .takes("{ token: string, name?: string | null, password?: string | null }")
        .answers(&[
            (200, "LoginResult", "You are a member"),
            (201, "LoginResult", "A new account with the invited address, and its session"),
        ])
        .refuses(&[
            Code::SignupClosed,
            Code::LinkInvalid,
            Code::LinkRequired,
            Code::WeakPassword,
        ]),
    at("GET /auth/oauth/{provider}/start")
        .query(&[parameters::OAUTH_START])
        .answers(&[(302, "", "To the provider"), (303, "", "Back to the login page, which says what is wrong")])
        .refuses(OAUTH_START_QUERY),
    at("POST /auth/oauth/{provider}/start")
        .takes("{ redirect?: string | null 'A path of this server', mode?: \"login\" | \"link\" | null }")
        .answers(&[(200, "{ authorize_url: string, state: string, expires_in: integer }", "Where to send the browser; the cookie ms_oauth is set")])
        .refuses(OAUTH_START),
    at("GET /auth/oauth/{provider}/callback")
        .query(&[parameters::OAUTH_BACK])
        .answers(&[(303, "", "Signed in, or a page that says what is missing: /login?error= and a code of the JSON twin")]),
    at("POST /auth/oauth/{provider}/callback")
        .takes(
            "{ code?: string | null, state?: string | null, iss?: string | null, error?: string | null, \
             error_description?: string | null }",
        )
        .answers(&[(200, "LoginOutcome", "A session and its cookie, with created, linked and redirect; or what is needed for one")])
        .refuses(OAUTH_BACK),
    at("DELETE /auth/identities/{id}").answers(DONE).refuses(&[Code::NotFound, Code::Conflict]),
    at("GET /auth/me").answers(&[(
        200,
        "{ user: User, session: Session, orgs: OrgOf[], identities: any[], \
         twofa: { enabled: boolean, recovery_codes_left: integer } }",
        "The account",
    )]),
    at("POST /auth/reauth")
        .takes(FACTOR)
        .answers(&[(200, "{ auth_time: string(date-time) }", "The session is fresh for 15 minutes")])
        .refuses(&[
            Code::InvalidCredentials,
            Code::InvalidCode,
            Code::CodeAlreadyUsed,
            Code::LoginThrottled,
            Code::TwofaThrottled,
        ]),
    at("GET /auth/sessions")
        .query(&[parameters::PAGE])
        .answers(&[(200, "{ data: SeenSession[], next_cursor: string | null }", "The live ones, the newest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("DELETE /auth/sessions")
        .query(&[parameters::INCLUDE_CURRENT])
        .answers(&[(200, "{ revoked: integer }", "How many were ended")])
        .refuses(&[Code::InvalidParameter]),
    at("DELETE /auth/sessions/{id}").answers(DONE).refuses(&[Code::NotFound]),
    at("GET /auth/2fa").answers(&[(
        200,
        "{ enabled: boolean, enabled_at: string(date-time) | null, recovery_codes_left: integer }",
        "The second factor",
    )]),
    at("POST /auth/2fa/enroll")
        .answers(&[(200, "{ secret: string, otpauth_url: string, qr_png: string 'A data: URL', expires_in: integer }", "What an authenticator app needs")])
        .refuses(&[Code::TwofaAlreadyEnabled]),
    at("POST /auth/2fa/confirm")
        .takes("{ code: string }")
        .answers(&[(200, "RecoveryCodes", "Enabled; the session has a new cookie, the others are over")])
        .refuses(&[Code::InvalidCode, Code::TwofaAlreadyEnabled, Code::TwofaNotEnabled, Code::TwofaThrottled]),
    at("POST /auth/2fa/disable")
        .takes(FACTOR)
        .answers(DONE)
        .refuses(&[
            Code::InvalidCredentials,
            Code::InvalidCode,
            Code::CodeAlreadyUsed,
            Code::TwofaNotEnabled,
            Code::TwofaThrottled,
        ]),
    at("POST /auth/2fa/recovery-codes")
        .takes("{ code: string }")
        .answers(&[(200, "RecoveryCodes", "Ten new ones; the old ones are void")])
        .refuses(&[Code::InvalidCode, Code::CodeAlreadyUsed, Code::TwofaNotEnabled, Code::TwofaThrottled]),
];

const KEY: &str = "{| name: string, scopes: KeyScope[], expires_at?: string(date-time) | null, embed?: EmbedSettings | null, \
                   ingest?: IngestSettings | null, read?: ReadSettings | null |}";

const ORGANISATIONS: &[Operation] = &[
    at("GET /orgs")
        .query(&[parameters::PAGE])
        .answers(&[(
            200,
            "{ data: { slug: string, name: string, role: Role, created_at: string(date-time) }[], \
             next_cursor: string | null }",
            "Those you belong to, by slug",
        )])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs")
        .takes("NewOrg")
        .answers(&[(201, "Organisation", "Made; you own it")])
        .refuses(&[Code::SlugTaken, Code::Conflict]),
    at("GET /orgs/{slug}").answers(&[(200, "Organisation", "The organisation")]),
    at("PATCH /orgs/{slug}")
        .takes("{| name?: string | null, settings?: OrgSettings | null |}")
        .answers(&[(200, "Organisation", "As it is now")])
        .refuses(&[Code::Forbidden]),
    at("DELETE /orgs/{slug}")
        .takes("{ confirm: string 'The slug' }")
        .answers(&[(202, "{ slug: string, status: \"deleting\" }", "Keys and tokens are dead; samples go in the background")]),
    at("GET /orgs/{slug}/members")
        .query(&[parameters::PAGE])
        .answers(&[(200, "{ data: Member[], next_cursor: string | null }", "Everybody, in the order they joined")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /orgs/{slug}/members/{user_id}")
        .takes("{| role: Role |}")
        .answers(&[(200, "Member", "As it is now")])
        .refuses(&[Code::NotFound, Code::LastOwner]),
    at("DELETE /orgs/{slug}/members/{user_id}").answers(DONE).refuses(&[Code::NotFound, Code::LastOwner]),
    at("GET /orgs/{slug}/invites")
        .query(&[parameters::PAGE])
        .answers(&[(200, "{ data: Invite[], next_cursor: string | null }", "The open ones, the oldest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/invites")
        .takes("{| email: string(..254), role: Role |}")
        .answers(&[(201, "Invite", "Good for seven days, once, for this address")])
        .refuses(&[Code::AlreadyMember, Code::MailThrottled, Code::Forbidden]),
    at("DELETE /orgs/{slug}/invites/{id}").answers(DONE).refuses(&[Code::NotFound]),
    at("GET /orgs/{slug}/audit")
        .query(&[parameters::EVENTS])
        .answers(&[(200, "Events", "Newest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("GET /orgs/{slug}/api-keys")
        .query(&[parameters::PAGE])
        .answers(&[(200, "{ data: ApiKey[], next_cursor: string | null }", "Without secrets, the oldest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/api-keys")
        .takes(KEY)
        .answers(&[(201, "ApiKey", "The key; its secret is shown this once")])
        .refuses(&[Code::QueryTimeout]),
    at("GET /orgs/{slug}/api-keys/{id}").answers(&[(200, "ApiKey", "The key")]).refuses(&[Code::NotFound]),
    at("PATCH /orgs/{slug}/api-keys/{id}")
        .takes(
            "{| name?: string | null, scopes?: KeyScope[] | null, expires_at?: string(date-time) | null, disabled?: boolean | null, \
             embed?: EmbedSettings | null, ingest?: IngestSettings | null, read?: ReadSettings | null |}",
        )
        .answers(&[(200, "ApiKey", "As it is now")])
        .refuses(&[Code::NotFound, Code::ReauthRequired, Code::QueryTimeout]),
    at("DELETE /orgs/{slug}/api-keys/{id}").answers(DONE).refuses(&[Code::NotFound]),
    at("POST /orgs/{slug}/api-keys/{id}/revoke-tokens").answers(DONE).refuses(&[Code::NotFound]),
    at("POST /orgs/{slug}/api-keys/{id}/rotate")
        .takes("{| overlap_s: integer(0..604800) |}")
        .answers(&[(200, "ApiKey", "With its new secret")])
        .refuses(&[Code::NotFound]),
    at("POST /orgs/{slug}/embed/tokens")
        .takes("{| api_key_id?: string | null, ttl_s?: integer(0..) | null, sub?: string | null, ms?: Policy | null |}")
        .answers(&[(201, "{ token: string, expires_at: string(date-time), kid: string }", "The token")])
        .refuses(&[Code::NotFound, Code::KeyIsAsymmetric, Code::Conflict, Code::Forbidden, Code::QueryTimeout]),
    at("POST /orgs/{slug}/embed/introspect")
        .takes("{| token: string, origin?: string | null |}")
        .answers(&[(200, "Introspection", "Why it fails, and what it may see")]),
    at("GET /orgs/{slug}/ingest/rejects").answers(&[(200, "Rejects", "What was refused")]),
    at("GET /orgs/{slug}/queries").answers(&[(200, "Queries", "Those that run")]),
    at("DELETE /orgs/{slug}/queries/{id}").answers(DONE).refuses(&[Code::NotFound]),
    at("GET /orgs/{slug}/prometheus").answers(&[(200, "text", "A sentence")]),
    at("GET /orgs/{slug}/prometheus/-/healthy").answers(&[(200, "text", "A sentence")]),
    at("GET /orgs/{slug}/prometheus/-/ready").answers(&[(200, "text", "A sentence")]),
    written("POST /orgs/{slug}/prometheus/api/v1/write"),
    written("POST /orgs/{slug}/write"),
    exported("POST /orgs/{slug}/otlp/v1/metrics"),
    exported("POST /orgs/{slug}/prometheus/api/v1/otlp/v1/metrics"),
    imported("POST /orgs/{slug}/import", &["text/plain", "application/openmetrics-text"], TEXT, &[parameters::IMPORT]),
    imported(
        "POST /orgs/{slug}/import/prometheus",
        &["text/plain", "application/openmetrics-text"],
        TEXT,
        &[parameters::IMPORT],
    ),
    imported(
        "POST /orgs/{slug}/import/jsonl",
        &["application/x-ndjson", "application/json"],
        "Lines of `{\"metric\":{…},\"values\":[…],\"timestamps\":[…]}`, times in milliseconds; as it is or in gzip",
        &[parameters::IMPORT],
    ),
    imported(
        "POST /orgs/{slug}/import/csv",
        &["text/csv"],
        "Lines whose columns `format` names; as it is or in gzip",
        &[parameters::COLUMNS, parameters::IMPORT],
    ),
];

const TEXT: &str = "Prometheus' text format, or OpenMetrics; as it is or in gzip";

const fn imported(
    path: &'static str,
    media: &'static [&'static str],
    what: &'static str,
    query: &'static [&'static [Parameter]],
) -> Operation {
    Operation { takes: Takes::Bytes { media, what }, ..at(path) }
        .query(query)
        .answers(&[(
            200,
            "{ accepted: integer, rejected: integer, errors: any[] }",
            "Every sample is stored; the header Durability says synced or buffered",
        )])
        .refuses(&[
            Code::IngestThrottled,
            Code::AtCapacity,
            Code::UnsupportedMediaType,
            Code::InvalidParameter,
            Code::DuplicateParameter,
        ])
}

const fn written(path: &'static str) -> Operation {
    Operation {
        takes: Takes::Bytes {
            media: &["application/x-protobuf"],
            what: "A prometheus.WriteRequest, or with proto=io.prometheus.write.v2.Request in the media type that \
                message, in protobuf, as one snappy block",
        },
        ..at(path)
    }
    .answers(&[(204, "", "Every sample is stored; the header Durability says synced or buffered. To remote write 2.0 the headers \
          X-Prometheus-Remote-Write-{Samples,Histograms,Exemplars}-Written say how many, as they do on a 400")])
    .refuses(&[Code::IngestThrottled, Code::AtCapacity, Code::UnsupportedMediaType])
}

const fn exported(path: &'static str) -> Operation {
    Operation {
        takes: Takes::Bytes {
            media: &["application/x-protobuf", "application/json"],
            what: "An ExportMetricsServiceRequest; as it is or in gzip",
        },
        ..at(path)
    }
    .answers(&[(
        200,
        "protobuf",
        "An ExportMetricsServiceResponse in the request's encoding: what is not counted in its partial success is \
         stored; the header Durability says synced or buffered",
    )])
    .refuses(&[Code::IngestThrottled, Code::AtCapacity, Code::UnsupportedMediaType])
}

const SERVER: &[Operation] = &[
    at("GET /admin/users")
        .query(&[parameters::SEARCH, parameters::PAGE])
        .answers(&[(200, "{ data: UserSummary[], next_cursor: string | null }", "Everybody")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /admin/users/{user_id}")
        .takes("{| disabled?: boolean | null, is_admin?: boolean | null |}")
        .answers(&[(200, "UserSummary", "As it is now; a disabled account's sessions are over")])
        .refuses(&[Code::NotFound, Code::Conflict]),
    at("GET /admin/orgs")
        .query(&[parameters::PAGE])
        .answers(&[(200, "{ data: OrgSummary[], next_cursor: string | null }", "All, the oldest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /admin/orgs/{slug}")
        .takes("{| settings: OrgSettings |}")
        .answers(&[(200, "OrgSummary", "As it is now")])
        .refuses(&[Code::OrgNotFound]),
    at("GET /admin/stats").answers(&[(200, "map<any>", "Sums over the whole server")]),
    at("GET /admin/audit")
        .query(&[parameters::EVENTS])
        .answers(&[(200, "Events", "Newest first")])
        .refuses(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /admin/seal").answers(&[(200, "{ segments: integer, samples: integer }", "What was sealed")]),
    at("GET /healthz").answers(&[(200, "text", "ok")]),
    at("GET /readyz").answers(&[
        (200, "{ status: string, checks: map<string>, notes?: any }", "Every part works"),
        (
            503,
            "{ status: string, checks: map<string>, notes?: any, recovery?: any }",
            "Some part does not, or the store is still being opened (`recovery` says how far it is)",
        ),
    ]),
    at("GET /metrics")
        .answers(&[(200, "text", "Prometheus' text format")])
        .refuses(&[Code::Unauthenticated, Code::TokenInvalid]),
    at("GET /health").answers(&[(
        200,
        "{ status: \"ok\", version: string, uptime_s: integer }",
        "It answers",
    )]),
    at("GET /openapi.json").answers(&[(200, "any", "OpenAPI 3.1")]),
];

/// Every schema in the tables above.
#[cfg(test)]
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    ACCOUNTS.iter().chain(ORGANISATIONS).chain(SERVER).flat_map(|operation| {
        let taken = match operation.takes {
            Takes::Json(text) | Takes::JsonOrForm(text) => Some(text),
            Takes::Nothing | Takes::Form | Takes::Bytes { .. } => None,
        };
        let answered = operation.answers.iter().map(|(_, text, _)| *text);
        taken.into_iter().chain(
            answered
                .filter(|text| !matches!(*text, "" | "text" | "protobuf"))
                .map(|text| text.strip_prefix("html ").unwrap_or(text)),
        )
    })
}
