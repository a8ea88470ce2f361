//! The request body, the responses, the errors and the query parameters of each route.
//!
//! Errors that follow from the route's row (no credential, the wrong role), and errors that any
//! request may have (too many requests, too large a body), are not listed here; `super::refusals`
//! adds them.

use super::parameters::{self, Parameter};
use crate::api::error::Code;

/// The description of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// The method, and the path relative to `/api/v1`, or to the root for routes outside of it.
    at: &'static str,
    pub(super) body: BodySchema,
    /// For each response its status, its schema (empty if it has no body), and a description.
    pub(super) responses: &'static [(u16, &'static str, &'static str)],
    pub(super) errors: &'static [Code],
    /// The query parameters, in groups that several routes share.
    pub(super) query: &'static [&'static [Parameter]],
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySchema {
    Empty,
    /// JSON with this schema.
    Json(&'static str),
    /// JSON or a form with this schema.
    JsonOrForm(&'static str),
    /// A form with the query parameters.
    Form,
    /// Samples in one of the media types `media`.
    Bytes {
        media: &'static [&'static str],
        description: &'static str,
    },
}

const fn at(at: &'static str) -> Operation {
    Operation { at, body: BodySchema::Empty, responses: &[], errors: &[], query: &[] }
}

impl Operation {
    const fn body(mut self, json: &'static str) -> Operation {
        self.body = BodySchema::Json(json);
        self
    }

    const fn query(mut self, groups: &'static [&'static [Parameter]]) -> Operation {
        self.query = groups;
        self
    }

    const fn responses(mut self, responses: &'static [(u16, &'static str, &'static str)]) -> Operation {
        self.responses = responses;
        self
    }

    const fn errors(mut self, codes: &'static [Code]) -> Operation {
        self.errors = codes;
        self
    }
}

const DONE: &[(u16, &str, &str)] = &[(204, "", "Success")];

/// Returns the description of a route, or `None` if it has none, for which a test fails.
pub(super) fn of(method: &str, path: &str) -> Option<Operation> {
    let below = path.strip_prefix("/api/v1").unwrap_or(path);
    let matches = |operation: &&Operation| {
        operation.at.split_once(' ').is_some_and(|(verb, at)| verb == method && at == below)
    };
    ACCOUNTS.iter().chain(ORGANISATIONS).chain(SERVER).find(matches).copied().or_else(|| data(method, below))
}

/// Returns the description of a data endpoint, which is in the table of [`parameters`].
fn data(method: &str, below: &str) -> Option<Operation> {
    let (_, schema, groups, errors) = parameters::endpoint(below.strip_prefix("/orgs/{slug}/")?)?;
    let body = if method == "POST" { BodySchema::Form } else { BodySchema::Empty };
    let responses: &[(u16, &str, &str)] = match *schema {
        "" => DONE,
        schema => DATA_RESPONSES.iter().find(|(name, _)| *name == schema).map(|(_, responses)| *responses)?,
    };
    Some(Operation { at: "", body, responses, errors, query: groups })
}

/// A schema and its responses.
type SchemaResponses = (&'static str, &'static [(u16, &'static str, &'static str)]);

/// The responses of the data endpoints by schema.
const DATA_RESPONSES: &[SchemaResponses] = &[
    ("Query", &[(200, "Query", "The result, and statistics of the query")]),
    ("PrometheusQuery", &[(200, "PrometheusQuery", "The result, in Prometheus' format")]),
    ("PrometheusData", &[(200, "PrometheusData", "The data, in Prometheus' format")]),
    ("text", &[(200, "text", "The samples in the Prometheus text format")]),
    ("events", &[(200, "events", "Server-sent events: `points`, `error`, `gap` and `end`")]),
    (
        "image/svg+xml",
        &[(200, "image/svg+xml", "The picture"), (304, "", "The picture that If-None-Match names")],
    ),
    ("image/png", &[(200, "image/png", "The picture"), (304, "", "The picture that If-None-Match names")]),
    (
        "samples",
        &[(
            200,
            "samples",
            "The samples; a body without its end is not complete. The header Trailer names \
             x-promlet-left-out-histograms: if the request has TE: trailers, the body ends with this trailer, the \
             number of native histograms that the format cannot have",
        )],
    ),
    ("Estimate", &[(200, "Estimate", "The estimated cost")]),
    ("Queries", &[(200, "Queries", "The running queries")]),
    ("Metrics", &[(200, "Metrics", "A page of metrics, ordered by name")]),
    (
        "Alerts",
        &[
            (200, "Alerts", "A page of alerts: firing before pending ones, the newest first"),
            (304, "", "The page that If-None-Match names"),
        ],
    ),
    ("MetricLabels", &[(200, "MetricLabels", "The labels of the metric")]),
    ("LabelValues", &[(200, "LabelValues", "A page of label values, in ascending order")]),
    ("Rejects", &[(200, "Rejects", "The last refusals")]),
];

const OAUTH_START: &[Code] = &[
    Code::ProviderNotConfigured,
    Code::IdpUnavailable,
    Code::IdpError,
    Code::InvalidParameter,
    Code::Unauthenticated,
    Code::ReauthRequired,
];
/// The errors of [`OAUTH_START`], and those of query parameters and of links from other sites.
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
        .body("{ email: string(..254), password: string(1..1024) }")
        .responses(&[(200, "LoginOutcome", "A session and its cookie, or a pending login that needs a code")])
        .errors(&[Code::InvalidCredentials, Code::LoginThrottled]),
    at("POST /auth/magic-link/request")
        .body("{ email: string(..254), redirect?: string 'The path of this server to open after the sign-in' }")
        .responses(&[(202, "Accepted", "Accepted. The response is the same whether the account exists or not")])
        .errors(&[Code::MailThrottled]),
    at("GET /auth/magic-link/verify")
        .query(&[parameters::TOKEN])
        .responses(&[
            (200, "html LoginOutcome", "A session if mails go to the console, otherwise an HTML page with a button to sign in"),
            (303, "", "A redirect after the sign-in of a browser"),
        ])
        .errors(&[Code::LinkInvalid, Code::InvalidParameter, Code::DuplicateParameter]),
    Operation { body: BodySchema::JsonOrForm("{ token: string, email?: string 'The mail address; required in a browser that did not request the link' }"), ..at("POST /auth/magic-link/verify") }
        .responses(&[(200, "LoginOutcome", "A session and its cookie, or a pending login that needs a code"), (303, "", "A redirect after the sign-in by a form")])
        .errors(&[Code::LinkInvalid, Code::EmailConfirmationRequired, Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /auth/2fa/verify")
        .body("{ twofa_pending_login: string, code?: string, recovery_code?: string }")
        .responses(&[(200, "LoginResult", "The session and its cookie")])
        .errors(&[Code::PendingLoginInvalid, Code::InvalidCode, Code::CodeAlreadyUsed, Code::TwofaThrottled]),
    at("GET /auth/config").responses(&[(
        200,
        "{ needs_setup: boolean, setup_token_required: boolean, signup: string, providers: any[], magic_link: boolean, \
         mailer: string, password: { min_length: integer, max_bytes: integer }, version: string }",
        "The configuration of the login page",
    )]),
    at("GET /auth/providers").responses(&[(200, "{ data: { id: string, name: string, start_url: string }[] }", "The configured sign-in providers")]),
    at("POST /auth/signup")
        .body(
            "{ setup_token?: string | null, email: string(..254), password?: string | null 'Required for the first account', \
             name?: string | null, org?: NewOrg | null 'Required for the first account' }",
        )
        .responses(&[
            (201, "LoginResult", "The first account and its session"),
            (202, "Accepted", "If PROMLET_SIGNUP is open: a mail is sent. The response is the same whether the account exists or not"),
        ])
        .errors(&[Code::SignupClosed, Code::SetupTokenRequired, Code::WeakPassword, Code::MailThrottled]),
    at("POST /auth/signup/complete")
        .body(
            "{ token: string, email?: string | null, password?: string | null, name?: string | null, org?: NewOrg | null }",
        )
        .responses(&[(201, "LoginOutcome", "The account and its session")])
        .errors(&[
            Code::LinkInvalid,
            Code::EmailConfirmationRequired,
            Code::EmailTaken,
            Code::WeakPassword,
            Code::SignupClosed,
            Code::SlugTaken,
            Code::Forbidden,
            Code::Conflict,
        ]),
    at("POST /auth/logout").responses(&[(204, "", "Signed out, or there was no session")]),
    at("PATCH /auth/me").body("{ name: string(..200) }").responses(&[(200, "User", "The changed object")]),
    at("DELETE /auth/me").responses(&[(204, "", "The account is deleted")]).errors(&[Code::LastOwner, Code::Conflict]),
    at("POST /auth/password/change")
        .body("{ current_password?: string | null, new_password: string }")
        .responses(&[(200, "LoginResult", "A new session; all other sessions are ended")])
        .errors(&[Code::InvalidCredentials, Code::WeakPassword, Code::LoginThrottled, Code::ReauthRequired]),
    at("POST /auth/password/reset/request")
        .body("{ email: string(..254) }")
        .responses(&[(202, "Accepted", "Accepted. The response is the same whether the account exists or not")])
        .errors(&[Code::MailThrottled]),
    at("POST /auth/password/reset/confirm")
        .body("{ token: string, email?: string | null, new_password: string }")
        .responses(&[(200, "{ status: \"password_changed\" }", "The password is changed, and all sessions are ended")])
        .errors(&[Code::LinkInvalid, Code::EmailConfirmationRequired, Code::WeakPassword]),
    at("POST /auth/email/change")
        .body("{ new_email: string(..254) }")
        .responses(&[(202, "Accepted", "A link is mailed to the new address")])
        .errors(&[Code::MailThrottled]),
    at("POST /auth/email/confirm")
        .body("{ token: string }")
        .responses(&[(200, "{ status: \"email_changed\", email: string }", "The address is changed, and a mail is sent to the old one")])
        .errors(&[Code::LinkInvalid, Code::EmailTaken]),
    at("POST /auth/invites/lookup")
        .body("{ token: string }")
        .responses(&[(
            200,
            "{ org: { slug: string, name: string }, email: string, role: Role, account_exists: boolean }",
            "The organisation and the address of the invitation, which stays valid",
        )])
        .errors(&[Code::LinkInvalid]),
    at("POST /auth/invites/accept")
        .body("{ token: string, name?: string | null, password?: string | null }")
        .responses(&[
            (200, "LoginResult", "The account is a member of the organisation"),
            (201, "LoginResult", "A new account with the invited address and its session"),
        ])
        .errors(&[
            Code::SignupClosed,
            Code::LinkInvalid,
            Code::LinkRequired,
            Code::WeakPassword,
        ]),
    at("GET /auth/oauth/{provider}/start")
        .query(&[parameters::OAUTH_START])
        .responses(&[(302, "", "A redirect to the provider"), (303, "", "A redirect to the login page, which shows the error")])
        .errors(OAUTH_START_QUERY),
    at("POST /auth/oauth/{provider}/start")
        .body("{ redirect?: string | null 'The path of this server to open after the sign-in', mode?: \"login\" | \"link\" | null }")
        .responses(&[(200, "{ authorize_url: string, state: string, expires_in: integer }", "The URL to which to send the browser; the cookie ms_oauth is set")])
        .errors(OAUTH_START),
    at("GET /auth/oauth/{provider}/callback")
        .query(&[parameters::OAUTH_BACK])
        .responses(&[(303, "", "A redirect after the sign-in, or to /login?error= with an error code of the JSON request")]),
    at("POST /auth/oauth/{provider}/callback")
        .body(
            "{ code?: string | null, state?: string | null, iss?: string | null, error?: string | null, \
             error_description?: string | null }",
        )
        .responses(&[(200, "LoginOutcome", "A session and its cookie, with created, linked and redirect, or a pending login that needs a code")])
        .errors(OAUTH_BACK),
    at("DELETE /auth/identities/{id}").responses(DONE).errors(&[Code::NotFound, Code::Conflict]),
    at("GET /auth/me").responses(&[(
        200,
        "{ user: User, session: Session, orgs: OrgOf[], identities: any[], \
         twofa: { enabled: boolean, recovery_codes_left: integer } }",
        "The account, its session, organisations and identities",
    )]),
    at("POST /auth/reauth")
        .body(FACTOR)
        .responses(&[(200, "{ auth_time: string(date-time) }", "The session is fresh for 15 minutes")])
        .errors(&[
            Code::InvalidCredentials,
            Code::InvalidCode,
            Code::CodeAlreadyUsed,
            Code::LoginThrottled,
            Code::TwofaThrottled,
        ]),
    at("GET /auth/sessions")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: SeenSession[], next_cursor: string | null }", "The valid sessions, the newest first")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("DELETE /auth/sessions")
        .query(&[parameters::INCLUDE_CURRENT])
        .responses(&[(200, "{ revoked: integer }", "The number of ended sessions")])
        .errors(&[Code::InvalidParameter]),
    at("DELETE /auth/sessions/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("GET /auth/2fa").responses(&[(
        200,
        "{ enabled: boolean, enabled_at: string(date-time) | null, recovery_codes_left: integer }",
        "The state of the second factor",
    )]),
    at("POST /auth/2fa/enroll")
        .responses(&[(200, "{ secret: string, otpauth_url: string, qr_png: string 'A QR code as a data: URL', expires_in: integer }", "The secret for an authenticator app")])
        .errors(&[Code::TwofaAlreadyEnabled]),
    at("POST /auth/2fa/confirm")
        .body("{ code: string }")
        .responses(&[(200, "RecoveryCodes", "The second factor is enabled, the session has a new cookie, and the other sessions are ended")])
        .errors(&[Code::InvalidCode, Code::TwofaAlreadyEnabled, Code::TwofaNotEnabled, Code::TwofaThrottled]),
    at("POST /auth/2fa/disable")
        .body(FACTOR)
        .responses(DONE)
        .errors(&[
            Code::InvalidCredentials,
            Code::LoginThrottled,
            Code::InvalidCode,
            Code::CodeAlreadyUsed,
            Code::TwofaNotEnabled,
            Code::TwofaThrottled,
        ]),
    at("POST /auth/2fa/recovery-codes")
        .body("{ code: string }")
        .responses(&[(200, "RecoveryCodes", "Ten new recovery codes; the old ones are invalid")])
        .errors(&[Code::InvalidCode, Code::CodeAlreadyUsed, Code::TwofaNotEnabled, Code::TwofaThrottled]),
];

const KEY: &str = "{| name: string, scopes: KeyScope[], expires_at?: string(date-time) | null, embed?: EmbedSettings | null, \
                   ingest?: IngestSettings | null, read?: ReadSettings | null |}";

const PAST_OF_A_RULE: &str = "{| yaml: string 'One rule, as in a rule file of Prometheus', start: any, end: any, step: any, \
                              query_offset?: string | null, limit?: integer | null |}";
const PAST_ERRORS: &[Code] = &[Code::EngineUpstream, Code::QueryFailed, Code::QueryTimeout];
const RULER_ERRORS: &[Code] = &[Code::NotFound];
const RULER_DONE: &[(u16, &str, &str)] =
    &[(202, "{ status: string, data: any, errorType: string, error: string }", "The change is stored")];

const ORGANISATIONS: &[Operation] = &[
    at("GET /orgs")
        .query(&[parameters::PAGE])
        .responses(&[(
            200,
            "{ data: { slug: string, name: string, role: Role, created_at: string(date-time) }[], \
             next_cursor: string | null }",
            "The organisations of the account, ordered by slug",
        )])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs")
        .body("NewOrg")
        .responses(&[(201, "Organisation", "The organisation is created, and the account owns it")])
        .errors(&[Code::SlugTaken, Code::Conflict]),
    at("GET /orgs/{slug}").responses(&[(200, "Organisation", "The organisation")]),
    at("PATCH /orgs/{slug}")
        .body("{| name?: string | null, settings?: OrgSettings | null |}")
        .responses(&[(200, "Organisation", "The changed object")])
        .errors(&[Code::Forbidden]),
    at("DELETE /orgs/{slug}")
        .body("{ confirm: string 'The slug of the organisation' }")
        .responses(&[(202, "{ slug: string, status: \"deleting\" }", "Keys and tokens are invalid; samples are removed in the background")]),
    at("GET /orgs/{slug}/members")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: Member[], next_cursor: string | null }", "The members, in the order in which they joined")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /orgs/{slug}/members/{user_id}")
        .body("{| role: Role |}")
        .responses(&[(200, "Member", "The changed object")])
        .errors(&[Code::NotFound, Code::LastOwner]),
    at("DELETE /orgs/{slug}/members/{user_id}").responses(DONE).errors(&[Code::NotFound, Code::LastOwner]),
    at("GET /orgs/{slug}/invites")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: Invite[], next_cursor: string | null }", "The open invitations, the oldest first")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/invites")
        .body("{| email: string(..254), role: Role |}")
        .responses(&[(201, "Invite", "The invitation, which this address can accept once within seven days")])
        .errors(&[Code::AlreadyMember, Code::MailThrottled, Code::Forbidden]),
    at("DELETE /orgs/{slug}/invites/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/forward")
        .responses(&[(200, "{ data: ForwardTarget[] }", "The forwarding targets and their state")]),
    at("POST /orgs/{slug}/forward")
        .body("NewForwardTarget")
        .responses(&[(201, "ForwardTarget", "The target. Samples that are accepted from now on are sent to it")])
        .errors(&[Code::AlreadyExists, Code::Conflict, Code::LimitReached]),
    at("GET /orgs/{slug}/forward/{id}")
        .responses(&[(200, "ForwardTarget", "The target and its state")])
        .errors(&[Code::NotFound]),
    at("PUT /orgs/{slug}/forward/{id}")
        .body("NewForwardTarget")
        .responses(&[(200, "ForwardTarget", "The changed target, which continues at its place in the log")])
        .errors(&[Code::NotFound, Code::AlreadyExists, Code::Conflict]),
    at("DELETE /orgs/{slug}/forward/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/forward/{id}/probe")
        .responses(&[(
            200,
            "{ ok: boolean, status: integer | null, code: string | null, message: string | null, latency_ms: integer }",
            "Whether the target accepts requests. What is wrong with it is the result, not an error",
        )])
        .errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/forward/{id}/refused")
        .responses(&[(
            200,
            "{ data: { at: string(date-time), status: integer, text: string, samples: integer, first_series: string }[], \
             refused_samples: integer }",
            "The last 16 bodies that the target refused for good, the newest first",
        )])
        .errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/rule-groups")
        .responses(&[(200, "{ data: RuleGroup[] }", "The groups of the organisation, and those of files of the operator")]),
    at("GET /orgs/{slug}/rule-groups/{name}")
        .responses(&[(200, "RuleGroup", "The group; the header ETag has its version")])
        .errors(&[Code::NotFound]),
    at("PUT /orgs/{slug}/rule-groups/{name}")
        .body("{| yaml: string 'One group, as in a rule file of Prometheus' |}")
        .responses(&[
            (200, "RuleGroup", "The changed group; the header ETag has its version"),
            (201, "RuleGroup", "The new group; the header ETag has its version"),
        ])
        .errors(&[
            Code::InvalidParameter,
            Code::LimitReached,
            Code::NotFound,
            Code::PreconditionRequired,
            Code::QueryTimeout,
            Code::VersionConflict,
        ]),
    at("DELETE /orgs/{slug}/rule-groups/{name}")
        .responses(DONE)
        .errors(&[Code::NotFound, Code::VersionConflict]),
    at("GET /orgs/{slug}/rule-groups/{name}/versions")
        .query(&[parameters::PAGE])
        .responses(&[(
            200,
            "{ data: RuleGroupVersion[], next_cursor: string | null }",
            "The versions of the group, the newest first; also of a removed group. Empty for a group of a file",
        )])
        .errors(&[Code::NotFound, Code::InvalidParameter, Code::DuplicateParameter]),
    at("GET /orgs/{slug}/rule-groups/{name}/versions/{version}")
        .responses(&[(200, "yaml", "The text of the version; the header ETag has its number")])
        .errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/rules/preview")
        .body(PAST_OF_A_RULE)
        .responses(&[(
            200,
            "{ transitions: { at: string(date-time), state: \"pending\" | \"firing\" | \"resolved\" | \"inactive\", labels: map<string>, value: string }[], \
             series: { metric: map<string>, values: any[] }[], truncated: boolean, \
             estimate: { series: integer, samples: integer, memory_bytes: integer } 'The estimated cost of one evaluation' }",
            "The simulated result of the rule",
        )])
        .errors(PAST_ERRORS),
    at("POST /orgs/{slug}/rules/backfill")
        .body(PAST_OF_A_RULE)
        .responses(&[(
            200,
            "{ stored: integer, refused: integer, next: string(date-time) | null 'Where the next request begins; null if the backfill is complete' }",
            "The written samples",
        )])
        .errors(PAST_ERRORS),
    at("GET /orgs/{slug}/prometheus/config/v1/rules")
        .responses(&[(200, "yaml", "The groups by namespace")])
        .errors(RULER_ERRORS),
    at("GET /orgs/{slug}/prometheus/config/v1/rules/{namespace}")
        .responses(&[(200, "yaml", "The groups of the namespace")])
        .errors(RULER_ERRORS),
    at("GET /orgs/{slug}/prometheus/config/v1/rules/{namespace}/{group}")
        .responses(&[(200, "yaml", "The group")])
        .errors(RULER_ERRORS),
    Operation {
        body: BodySchema::Bytes { media: &["application/yaml"], description: "One group of rules" },
        ..at("POST /orgs/{slug}/prometheus/config/v1/rules/{namespace}")
    }
    .responses(RULER_DONE)
    .errors(&[Code::InvalidParameter, Code::LimitReached, Code::QueryTimeout]),
    at("DELETE /orgs/{slug}/prometheus/config/v1/rules/{namespace}")
        .responses(RULER_DONE)
        .errors(&[Code::NotFound]),
    at("DELETE /orgs/{slug}/prometheus/config/v1/rules/{namespace}/{group}")
        .responses(RULER_DONE)
        .errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/notifications")
        .responses(&[(200, "NotifyConfiguration", "The configuration without its secrets; ETag is its version")]),
    at("PUT /orgs/{slug}/notifications")
        .body("NotifyConfiguration")
        .responses(&[(200, "NotifyConfiguration", "The new configuration without its secrets; ETag is its version")])
        .errors(&[Code::PreconditionRequired, Code::VersionConflict]),
    at("GET /orgs/{slug}/notifications/status").responses(&[(200, "NotifyState", "The state of the receivers")]),
    at("POST /orgs/{slug}/notifications/test")
        .body("{| receiver: string |}")
        .responses(&[(
            200,
            "{ data: { id: string, type: string, ok: boolean, error: string | null }[] }",
            "Which integrations accepted the test. What is wrong with a receiver is the result, not an error",
        )])
        .errors(&[Code::NotFound, Code::LimitReached]),
    at("GET /orgs/{slug}/silences").responses(&[(200, "{ data: Silence[] }", "The silences, expired ones for 5 days")]),
    at("POST /orgs/{slug}/silences")
        .body("NewSilence")
        .responses(&[(201, "Silence", "The silence")])
        .errors(&[Code::LimitReached]),
    at("GET /orgs/{slug}/silences/{id}").responses(&[(200, "Silence", "The silence")]).errors(&[Code::NotFound]),
    at("PUT /orgs/{slug}/silences/{id}")
        .body("NewSilence")
        .responses(&[(200, "Silence", "The changed silence, or the one that replaces it")])
        .errors(&[Code::NotFound, Code::LimitReached]),
    at("DELETE /orgs/{slug}/silences/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/alerts/{fingerprint}/acknowledgement")
        .body("{| comment?: string(..1024) |}")
        .responses(&[(
            200,
            "{ starts_at: string(date-time), author: string, comment: string, at: string(date-time) }",
            "The acknowledgement",
        )])
        .errors(&[Code::NotFound]),
    at("DELETE /orgs/{slug}/alerts/{fingerprint}/acknowledgement").responses(DONE).errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/alertmanager/api/v2/status").responses(&[(200, "any", "The status in Alertmanager's format")]),
    at("GET /orgs/{slug}/alertmanager/api/v2/receivers")
        .responses(&[(200, "{ name: string }[]", "The receivers")]),
    at("GET /orgs/{slug}/alertmanager/api/v2/alerts")
        .query(&[parameters::ALERTS])
        .responses(&[(200, "any[]", "The firing alerts in Alertmanager's format, each with its acknowledgement")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/alertmanager/api/v2/alerts")
        .body("any[]")
        .responses(&[(200, "", "The alerts are accepted")])
        .errors(&[Code::IngestThrottled]),
    at("GET /orgs/{slug}/alertmanager/api/v2/alerts/groups")
        .query(&[parameters::ALERTS])
        .responses(&[(200, "any[]", "The groups with firing alerts, in Alertmanager's format")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("GET /orgs/{slug}/alertmanager/api/v2/silences")
        .query(&[parameters::SILENCES])
        .responses(&[(200, "Silence[]", "The silences")])
        .errors(&[Code::InvalidParameter]),
    at("POST /orgs/{slug}/alertmanager/api/v2/silences")
        .body("NewSilence")
        .responses(&[(200, "{ silenceID: string }", "The id of the resulting silence")])
        .errors(&[Code::NotFound, Code::LimitReached]),
    at("GET /orgs/{slug}/alertmanager/api/v2/silence/{id}")
        .responses(&[(200, "Silence", "The silence")])
        .errors(&[Code::NotFound]),
    at("DELETE /orgs/{slug}/alertmanager/api/v2/silence/{id}")
        .responses(&[(200, "", "The silence has ended")])
        .errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/prometheus/api/v1/alertmanagers")
        .responses(&[(200, "any", "The Alertmanagers in use, in Prometheus' format")]),
    at("GET /orgs/{slug}/scrape-config")
        .responses(&[(200, "ScrapeConfig", "The configuration without its secrets, and the state of its jobs")])
        .errors(&[Code::NotFound, Code::OrgNotFound]),
    at("PUT /orgs/{slug}/scrape-config")
        .body("{| text: string 'scrape_configs in YAML, as Prometheus writes them, at most 1 MiB; it may not name local files' |}")
        .responses(&[(200, "ScrapeConfig", "The new configuration without its secrets")])
        .errors(&[Code::OrgNotFound]),
    at("DELETE /orgs/{slug}/scrape-config").responses(DONE).errors(&[Code::NotFound, Code::OrgNotFound]),
    at("GET /orgs/{slug}/audit")
        .query(&[parameters::EVENTS])
        .responses(&[(200, "Events", "The entries, the newest first")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("GET /orgs/{slug}/api-keys")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: ApiKey[], next_cursor: string | null }", "The API keys without their secrets, the oldest first")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/api-keys")
        .body(KEY)
        .responses(&[(201, "ApiKey", "The API key; only this response contains its secret")])
        .errors(&[Code::QueryTimeout]),
    at("GET /orgs/{slug}/api-keys/{id}").responses(&[(200, "ApiKey", "The API key")]).errors(&[Code::NotFound]),
    at("PATCH /orgs/{slug}/api-keys/{id}")
        .body(
            "{| name?: string | null, scopes?: KeyScope[] | null, expires_at?: string(date-time) | null, disabled?: boolean | null, \
             embed?: EmbedSettings | null, ingest?: IngestSettings | null, read?: ReadSettings | null |}",
        )
        .responses(&[(200, "ApiKey", "The changed object")])
        .errors(&[Code::NotFound, Code::ReauthRequired, Code::QueryTimeout]),
    at("DELETE /orgs/{slug}/api-keys/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/api-keys/{id}/revoke-tokens").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/api-keys/{id}/block-origin")
        .body("{| origin: string 'An origin such as https://app.example.com' |}")
        .responses(&[(200, "ApiKey", "The key")])
        .errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/api-keys/{id}/rotate")
        .body("{| overlap_s: integer(0..604800) |}")
        .responses(&[(200, "ApiKey", "The API key with its new secret")])
        .errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/dashboards")
        .query(&[parameters::DASHBOARDS, parameters::PAGE])
        .responses(&[(200, "{ data: Dashboard[], next_cursor: string | null }", "The dashboards without their documents, ordered by title")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/dashboards")
        .body("DashboardWrite")
        .responses(&[(201, "Dashboard", "The dashboard without its document; Location is its path, and ETag its version")])
        .errors(&[Code::AlreadyExists, Code::Provisioned, Code::LimitReached, Code::DashboardTooLarge, Code::InvalidDashboard]),
    at("GET /orgs/{slug}/dashboards/{uid}")
        .responses(&[
            (200, "Dashboard", "The dashboard with its document; ETag is its version"),
            (304, "", "The version that If-None-Match names"),
        ])
        .errors(&[Code::NotFound]),
    at("PUT /orgs/{slug}/dashboards/{uid}")
        .body("DashboardWrite")
        .responses(&[(200, "Dashboard", "The new version without its document; ETag is its version")])
        .errors(&[
            Code::NotFound,
            Code::Provisioned,
            Code::LimitReached,
            Code::VersionConflict,
            Code::PreconditionRequired,
            Code::DashboardTooLarge,
            Code::InvalidDashboard,
        ]),
    at("DELETE /orgs/{slug}/dashboards/{uid}")
        .responses(DONE)
        .errors(&[Code::NotFound, Code::Provisioned, Code::VersionConflict]),
    at("PUT /orgs/{slug}/dashboards/{uid}/star").responses(DONE).errors(&[Code::NotFound, Code::LimitReached]),
    at("DELETE /orgs/{slug}/dashboards/{uid}/star").responses(DONE).errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/dashboards/{uid}/versions")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: DashboardVersion[], next_cursor: string | null }", "The stored versions, the newest first")])
        .errors(&[Code::NotFound, Code::InvalidParameter, Code::DuplicateParameter]),
    at("GET /orgs/{slug}/dashboards/{uid}/versions/{version}")
        .responses(&[(200, "DashboardVersion", "The version with its document")])
        .errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/dashboards/{uid}/versions/{version}/restore")
        .responses(&[(200, "Dashboard", "The new version without its document; ETag is its version")])
        .errors(&[
            Code::NotFound,
            Code::Provisioned,
            Code::LimitReached,
            Code::VersionConflict,
            Code::PreconditionRequired,
        ]),
    at("GET /orgs/{slug}/dashboards/{uid}/links")
        .query(&[parameters::PAGE])
        .responses(&[(200, "{ data: PublicLink[], next_cursor: string | null }", "The public links, the oldest first")])
        .errors(&[Code::NotFound, Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /orgs/{slug}/dashboards/{uid}/links")
        .body("PublicLinkWrite")
        .responses(&[(201, "PublicLink", "The public link")])
        .errors(&[Code::NotFound, Code::PublicLinksOff, Code::LimitReached]),
    at("PATCH /orgs/{slug}/dashboards/{uid}/links/{id}")
        .body("PublicLinkWrite")
        .responses(&[(200, "PublicLink", "The changed object")])
        .errors(&[Code::NotFound, Code::PublicLinksOff]),
    at("DELETE /orgs/{slug}/dashboards/{uid}/links/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/embed/tokens")
        .body("{| api_key_id?: string | null, ttl_s?: integer(0..) | null, sub?: string | null, ms?: Policy | null |}")
        .responses(&[(201, "{ token: string, expires_at: string(date-time), kid: string }", "The embed token")])
        .errors(&[Code::NotFound, Code::KeyIsAsymmetric, Code::Conflict, Code::Forbidden, Code::QueryTimeout]),
    at("GET /orgs/{slug}/embeds").responses(&[(200, "Embeds", "The pages, the most recently seen first")]),
    at("POST /orgs/{slug}/dashboards/{uid}/revoke-embeds").responses(DONE).errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/embed/introspect")
        .body("{| token: string, origin?: string | null |}")
        .responses(&[(200, "Introspection", "The reason why the token fails, or what it grants")]),
    at("POST /orgs/{slug}/demo-data")
        .responses(&[(200, "{ samples: integer(0..) }", "The samples of the last six hours are stored")])
        .errors(&[Code::AlreadyExists, Code::Conflict, Code::BadRequest, Code::AtCapacity, Code::EngineUpstream]),
    at("GET /orgs/{slug}/engine").responses(&[(200, "Engine", "The engine without its secrets; ETag is its version")]),
    at("PUT /orgs/{slug}/engine")
        .body("EngineWrite")
        .query(&[parameters::PROBE])
        .responses(&[(200, "Engine", "The new engine without its secrets; ETag is its version")])
        .errors(&[
            Code::ProbeFailed,
            Code::Conflict,
            Code::VersionConflict,
            Code::InvalidParameter,
            Code::DuplicateParameter,
        ]),
    at("DELETE /orgs/{slug}/engine").responses(DONE).errors(&[Code::Conflict, Code::VersionConflict]),
    at("POST /orgs/{slug}/engine/probe")
        .body("EngineWrite")
        .responses(&[(200, "EngineProbe", "The latency of the target, or the reason why it cannot be used")]),
    at("GET /orgs/{slug}/ingest/rejects").responses(&[(200, "Rejects", "The last refusals")]),
    at("GET /orgs/{slug}/dashboards/{uid}/view")
        .responses(&[
            (200, "DashboardView", "The dashboard; ETag identifies its version and what the token grants"),
            (304, "", "The version that If-None-Match names"),
        ])
        .errors(&[Code::NotFound]),
    at("POST /orgs/{slug}/dashboards/{uid}/data")
        .body(
            "{| variables?: map<string[]> 'Values of variables that the viewer may set; $__all stands for All', \
             start?: BatchParameter, end?: BatchParameter, timeout?: BatchParameter, \
             queries: PanelQuery[] 'At most 1,000' |}",
        )
        .responses(&[(
            200,
            "ndjson BatchLine",
            "A line for each query as soon as it is ready, and a last line with `done`; a response without it is not \
             complete",
        )])
        .errors(&[Code::NotFound, Code::InvalidParameter]),
    at("POST /orgs/{slug}/dashboards/{uid}/options")
        .body(
            "{| variable: string, variables?: map<string[]> 'Values of the variables that its query refers to', \
             start?: BatchParameter, end?: BatchParameter |}",
        )
        .responses(&[(200, "VariableOptions", "The options before the regular expression of the variable")])
        .errors(&[
            Code::NotFound,
            Code::InvalidParameter,
            Code::BadExpr,
            Code::QueryTooExpensive,
            Code::QueryFailed,
            Code::QueryTimeout,
        ]),
    at("POST /orgs/{slug}/dashboards/{uid}/live")
        .body(
            "{| variables?: map<string[]>, queries: LivePanelQuery[] '1 to 100', \
             since?: BatchParameter 'The last step that is not sent; the header Last-Event-ID precedes it', \
             count?: BatchParameter 'The stream ends after as many steps' |}",
        )
        .responses(&[(200, "events", "Server-sent events: `points`, `error`, `gap` and `end`")])
        .errors(&[Code::NotFound, Code::InvalidParameter, Code::AtCapacity]),
    at("POST /orgs/{slug}/query/batch")
        .body(
            "{| start?: BatchParameter, end?: BatchParameter, step?: BatchParameter, time?: BatchParameter, \
             timeout?: BatchParameter, queries: BatchQuery[] 'At most 1,000' |}",
        )
        .responses(&[(
            200,
            "ndjson BatchLine",
            "A line for each query as soon as it is ready, and a last line with `done`; a response without it is not \
             complete",
        )])
        .errors(&[Code::InvalidParameter]),
    at("POST /orgs/{slug}/query/live")
        .body(
            "{| queries: LiveQuery[] 'At least one, at most 100', since?: BatchParameter 'The last step that is not sent; \
             the header Last-Event-ID precedes it', count?: BatchParameter 'The stream ends after as many steps' |}",
        )
        .responses(&[(
            200,
            "events",
            "Server-sent events: `points`, `error`, `gap` and `end`. `id` is on the last event of a step",
        )])
        .errors(&[Code::InvalidParameter, Code::AtCapacity]),
    at("GET /orgs/{slug}/queries").responses(&[(200, "Queries", "The running queries")]),
    at("DELETE /orgs/{slug}/queries/{id}").responses(DONE).errors(&[Code::NotFound]),
    at("GET /orgs/{slug}/prometheus").responses(&[(200, "text", "A confirmation")]),
    at("GET /orgs/{slug}/prometheus/-/healthy").responses(&[(200, "text", "The server is healthy")]),
    at("GET /orgs/{slug}/prometheus/-/ready").responses(&[(200, "text", "The server is ready")]),
    Operation {
        body: BodySchema::Bytes {
            media: &["application/x-protobuf"],
            description: "A prometheus.ReadRequest in one snappy block",
        },
        ..at("POST /orgs/{slug}/prometheus/api/v1/read")
    }
    .responses(&[(200, "read", "Streamed chunks if the request accepts them, or samples in one snappy block")])
    .errors(&[
        Code::BadExpr,
        Code::EmbedRestricted,
        Code::QueryTooExpensive,
        Code::QueryTimeout,
        Code::UpstreamUnsupported,
    ]),
    at("GET /orgs/{slug}/prometheus/api/v1/export/native"),
    at("POST /orgs/{slug}/prometheus/api/v1/import/native"),
    remote_write("POST /orgs/{slug}/prometheus/api/v1/write"),
    remote_write("POST /orgs/{slug}/write"),
    otlp_export("POST /orgs/{slug}/otlp/v1/metrics"),
    otlp_export("POST /orgs/{slug}/prometheus/api/v1/otlp/v1/metrics"),
    import("POST /orgs/{slug}/import", &["text/plain", "application/openmetrics-text"], TEXT, &[parameters::IMPORT]),
    import(
        "POST /orgs/{slug}/import/prometheus",
        &["text/plain", "application/openmetrics-text"],
        TEXT,
        &[parameters::IMPORT],
    ),
    import(
        "POST /orgs/{slug}/import/jsonl",
        &["application/x-ndjson", "application/json"],
        LINES,
        &[parameters::IMPORT],
    ),
    import(
        "POST /orgs/{slug}/import/csv",
        &["text/csv"],
        "Lines with the columns of `format`; optionally in gzip",
        &[parameters::COLUMNS, parameters::IMPORT],
    ),
    import("POST /orgs/{slug}/import/graphite", &["text/plain"], GRAPHITE, &[parameters::IMPORT]),
    import_without_counts(
        "POST /orgs/{slug}/prometheus/api/v1/import",
        &["application/x-ndjson", "application/json"],
        LINES,
        &[parameters::IMPORT],
    ),
    import_without_counts(
        "POST /orgs/{slug}/prometheus/api/v1/import/prometheus",
        &["text/plain", "application/openmetrics-text"],
        TEXT,
        &[parameters::IMPORT],
    ),
    import_without_counts(
        "POST /orgs/{slug}/influx/write",
        &["text/plain"],
        INFLUX,
        &[parameters::INFLUX, parameters::IMPORT],
    ),
    import_without_counts(
        "POST /orgs/{slug}/influx/api/v2/write",
        &["text/plain"],
        INFLUX,
        &[parameters::INFLUX, parameters::IMPORT],
    ),
    pushed("PUT /orgs/{slug}/push/metrics/{grouping}"),
    pushed("POST /orgs/{slug}/push/metrics/{grouping}"),
    at("DELETE /orgs/{slug}/push/metrics/{grouping}")
        .responses(&[(202, "", "The group is deleted, and its series are stale")])
        .errors(&[Code::IngestThrottled, Code::AtCapacity]),
    at("GET /orgs/{slug}/push/api/v1/metrics")
        .responses(&[(200, "{ status: \"success\", data: any[] }", "The groups, as a Pushgateway lists them")])
        .errors(&[Code::IngestThrottled, Code::QueryTooExpensive]),
    at("GET /orgs/{slug}/push/api/v1/status")
        .responses(&[(200, "{ status: \"success\", data: any }", "The version and the start of the server")])
        .errors(&[Code::IngestThrottled]),
    at("GET /orgs/{slug}/influx/ping").responses(&[(204, "", "The server answers")]),
    at("GET /orgs/{slug}/influx/health").responses(&[(
        200,
        "{ name: string, status: string, message: string, version: string, checks: any[] }",
        "The server answers",
    )]),
    at("GET /orgs/{slug}/prometheus/health").responses(&[(200, "text", "The server is healthy")]),
];

const LINES: &str = "Lines of `{\"metric\":{…},\"values\":[…],\"timestamps\":[…]}`, times in milliseconds; optionally in gzip";
const GRAPHITE: &str = "Lines of `path;tag=value number seconds`; optionally in gzip";
const INFLUX: &str = "Line protocol of InfluxDB; optionally in gzip";

const TEXT: &str = "The Prometheus text format or OpenMetrics; optionally in gzip";
const PUSHED: &str =
    "The Prometheus text format, OpenMetrics, or delimited MetricFamily messages; optionally in gzip";

const fn pushed(path: &'static str) -> Operation {
    let media = &["text/plain", "application/vnd.google.protobuf"];
    Operation { body: BodySchema::Bytes { media, description: PUSHED }, ..at(path) }
        .query(&[parameters::PUSH])
        .responses(&[(200, "", "Every sample is stored; the header Durability is synced or buffered")])
        .errors(&[
            Code::IngestThrottled,
            Code::AtCapacity,
            Code::UnsupportedMediaType,
            Code::InvalidParameter,
            Code::DuplicateParameter,
            Code::LimitReached,
        ])
}

const fn import(
    path: &'static str,
    media: &'static [&'static str],
    description: &'static str,
    query: &'static [&'static [Parameter]],
) -> Operation {
    Operation { body: BodySchema::Bytes { media, description }, ..at(path) }
        .query(query)
        .responses(&[(
            200,
            "{ accepted: integer, rejected: integer, errors: any[] }",
            "Every sample is stored; the header Durability is synced or buffered",
        )])
        .errors(&[
            Code::IngestThrottled,
            Code::AtCapacity,
            Code::ClockUnconfirmed,
            Code::UnsupportedMediaType,
            Code::InvalidParameter,
            Code::DuplicateParameter,
        ])
}

const fn import_without_counts(
    path: &'static str,
    media: &'static [&'static str],
    description: &'static str,
    query: &'static [&'static [Parameter]],
) -> Operation {
    import(path, media, description, query).responses(&[(
        204,
        "",
        "Every sample is stored; the header Durability is synced or buffered, and Skipped-Fields counts fields that are not numbers",
    )])
}

const fn remote_write(path: &'static str) -> Operation {
    Operation {
        body: BodySchema::Bytes {
            media: &["application/x-protobuf"],
            description: "A protobuf message in one snappy block, or in zstd: a prometheus.WriteRequest, or the message that the \
                media type names with proto=io.prometheus.write.v2.Request",
        },
        ..at(path)
    }
    .responses(&[(204, "", "Every sample is stored; the header Durability is synced or buffered. For remote write 2.0, the headers \
          X-Prometheus-Remote-Write-{Samples,Histograms,Exemplars}-Written contain the numbers of stored items, also with status 400. \
          A request with Priority: u=7 gives way: while others send requests, the response waits, and has Gave-Way: 1")])
    .errors(&[
        Code::IngestThrottled,
        Code::AtCapacity,
        Code::ClockUnconfirmed,
        Code::UnsupportedMediaType,
    ])
}

const fn otlp_export(path: &'static str) -> Operation {
    Operation {
        body: BodySchema::Bytes {
            media: &["application/x-protobuf", "application/json"],
            description: "An ExportMetricsServiceRequest; optionally in gzip",
        },
        ..at(path)
    }
    .responses(&[(
        200,
        "protobuf",
        "An ExportMetricsServiceResponse in the request's encoding. Its partial success has the number of refused \
         samples; all others are stored. The header Durability is synced or buffered",
    )])
    .errors(&[
        Code::IngestThrottled,
        Code::AtCapacity,
        Code::ClockUnconfirmed,
        Code::UnsupportedMediaType,
    ])
}

const SERVER: &[Operation] = &[
    at("GET /admin/users")
        .query(&[parameters::SEARCH, parameters::PAGE])
        .responses(&[(
            200,
            "{ data: UserSummary[], next_cursor: string | null }",
            "The accounts, the oldest first",
        )])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /admin/users/{user_id}")
        .body("{| disabled?: boolean | null, is_admin?: boolean | null |}")
        .responses(&[(
            200,
            "UserSummary",
            "The changed account; the sessions of a disabled account are ended",
        )])
        .errors(&[Code::NotFound, Code::Conflict]),
    at("GET /admin/orgs")
        .query(&[parameters::PAGE])
        .responses(&[(
            200,
            "{ data: OrgSummary[], next_cursor: string | null }",
            "The organisations, the oldest first",
        )])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("PATCH /admin/orgs/{slug}")
        .body("{| settings: OrgSettings |}")
        .responses(&[(200, "OrgSummary", "The changed object")])
        .errors(&[Code::OrgNotFound]),
    at("GET /admin/stats").responses(&[(200, "map<any>", "Totals of the whole server")]),
    at("GET /admin/audit")
        .query(&[parameters::EVENTS])
        .responses(&[(200, "Events", "The entries, the newest first")])
        .errors(&[Code::InvalidParameter, Code::DuplicateParameter]),
    at("POST /admin/seal").responses(&[(
        200,
        "{ segments: integer, samples: integer }",
        "The sealed segments and samples",
    )]),
    at("POST /admin/scrape/reload")
        .responses(&[(
            200,
            "{ jobs: integer, notices: string[] }",
            "The file was read; its targets are scraped",
        )])
        .errors(&[Code::NotFound, Code::ValidationFailed]),
    at("GET /healthz").responses(&[(200, "text", "The server is alive")]),
    at("GET /readyz").responses(&[
        (200, "{ status: string, checks: map<string>, notes?: any }", "All checks pass"),
        (
            503,
            "{ status: string, checks: map<string>, notes?: any, recovery?: any }",
            "A check fails, or the store is being opened; `recovery` shows the progress",
        ),
    ]),
    at("GET /metrics")
        .responses(&[(200, "text", "The metrics in the Prometheus text format")])
        .errors(&[Code::Unauthenticated, Code::TokenInvalid]),
    at("GET /health").responses(&[(
        200,
        "{ status: \"ok\", version: string, uptime_s: integer }",
        "The server is alive",
    )]),
    at("GET /openapi.json").responses(&[(200, "any", "The OpenAPI 3.1 document")]),
];

/// Returns every schema in the tables above.
#[cfg(test)]
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    ACCOUNTS.iter().chain(ORGANISATIONS).chain(SERVER).flat_map(|operation| {
        let taken = match operation.body {
            BodySchema::Json(text) | BodySchema::JsonOrForm(text) => Some(text),
            BodySchema::Empty | BodySchema::Form | BodySchema::Bytes { .. } => None,
        };
        let answered = operation.responses.iter().map(|(_, text, _)| *text);
        taken.into_iter().chain(
            answered
                .filter(|text| !matches!(*text, "" | "text" | "yaml" | "events" | "protobuf" | "read"))
                .map(|text| text.strip_prefix("html ").or(text.strip_prefix("ndjson ")).unwrap_or(text)),
        )
    })
}
