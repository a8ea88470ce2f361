//! The named types of the document, in the language of [`schema`](super::schema).

/// Name and shape.
pub(super) const TYPES: &[(&str, &str)] = &[
    // -- refusals
    (
        "Problem",
        "{ type: string 'urn:promlet:error: and the code', title: string, status: integer(400..599), code: string 'Stable; \
         never renamed', detail: string, request_id?: string 'As in X-Request-Id', errorType?: string, error?: string, \
         errors?: FieldError[], retry_after_ms?: integer, attempts_left?: integer, limit?: any, window_s?: integer, \
         scope?: string, hint?: string }",
    ),
    ("FieldError", "{ field: string, code: string, message: string }"),
    ("PrometheusError", "{ status: \"error\", errorType: string, error: string }"),
    // -- accounts
    (
        "User",
        "{ id: string, email: string, name: string, is_admin: boolean, twofa_enabled: boolean, has_password: boolean, \
         created_at: string(date-time) }",
    ),
    ("Role", "\"viewer\" | \"editor\" | \"admin\" | \"owner\""),
    ("OrgOf", "{ slug: string, name: string, role: Role }"),
    (
        "Session",
        "{ id: string, created_at: string(date-time), expires_at: string(date-time) '30 days from the last request', \
         auth_method: string }",
    ),
    ("LoginResult", "{ requires_2fa: false, user: User, orgs: OrgOf[], session: Session }"),
    (
        "NeedsCode",
        "{ requires_2fa: true, twofa_pending_login: string 'For /auth/2fa/verify; no cookie was set', expires_in: integer, redirect?: string 'From a provider: where to go afterwards' }",
    ),
    ("LoginOutcome", "LoginResult | NeedsCode"),
    ("Accepted", "{ status: \"accepted\", expires_in: integer 'Seconds' }"),
    ("RecoveryCodes", "{ recovery_codes: string[] 'Shown this once' }"),
    (
        "SeenSession",
        "{ id: string, created_at: string(date-time), expires_at: string(date-time), auth_method: string, \
         last_seen_at: string(date-time), ip: string, user_agent: string, current: boolean }",
    ),
    // -- organisations
    (
        "OrgSettings",
        "{ retention_days?: Setting, retention_bytes?: Setting, max_series?: Setting, max_new_series_per_s?: Setting, \
         max_labels?: Setting, max_label_value_bytes?: Setting, max_disk_bytes?: Setting, max_memory_bytes?: Setting, \
         max_samples_per_query?: Setting, query_timeout_s?: Setting, ooo_window_s?: Setting }",
    ),
    ("Setting", "integer(0..) | \"none\" | null"),
    (
        "Organisation",
        "{ id: string, slug: string, name: string, role: Role, created_at: string(date-time), settings: OrgSettings, \
         usage: { series: integer, samples: integer, samples_today: integer, bytes: integer, memory_bytes: integer, \
         refused: map<integer> 'Samples by code' } }",
    ),
    (
        "Member",
        "{ user_id: string, email: string, name: string, role: Role, joined_at: string(date-time), twofa_enabled?: boolean \
         'For administrators', last_seen_at?: string(date-time) | null 'For administrators' }",
    ),
    ("NewOrg", "{ slug: string(1..63) 'a to z, digits and dashes; never changes', name?: string | null }"),
    (
        "Invite",
        "{ id: string, email: string, role: Role, invited_by: string | null, created_at: string(date-time), \
         expires_at: string(date-time), url?: string 'Where mail goes to the console: somebody must carry it' }",
    ),
    (
        "Events",
        "{ data: { id: string, at: string(date-time), actor: { type: string, id: string | null, email: string | null }, \
         action: string, target: string | null, ip: string | null, request_id: string | null, result: string, meta: any }[], \
         next_cursor: string | null }",
    ),
    (
        "UserSummary",
        "{ id: string, email: string, name: string, is_admin: boolean, disabled: boolean, twofa_enabled: boolean, \
         has_password: boolean, created_at: string(date-time), last_seen_at: string(date-time) | null, sessions: integer, \
         orgs: { slug: string, role: Role }[] }",
    ),
    (
        "OrgSummary",
        "{ id: string, number: integer, slug: string, name: string, created_at: string(date-time), members: integer, \
         owners: string[], api_keys: integer, settings: OrgSettings, \
         usage: { series: integer, samples: integer, samples_today: integer, bytes: integer, memory_bytes: integer, \
         refused: map<integer> 'Samples by code' } }",
    ),
    (
        "Policy",
        "{| endpoints?: Endpoint[] | null, metrics?: string[] | null 'Globs', match?: string[] 'Label matchers, all of them', \
         exprs?: string[] | null 'Without endpoints, nothing but these may be asked', max_range_s?: integer(0..) | null, max_lookback_s?: integer(0..) | null, \
         min_step_s?: integer(0..) | null |}",
    ),
    ("Endpoint", "\"metrics\" | \"labels\" | \"range\" | \"instant\" | \"expr\""),
    ("KeyScope", "\"ingest\" | \"read\" | \"embed\""),
    (
        "EmbedSettings",
        "{| alg?: \"HS256\" | \"EdDSA\" | \"ES256\" | \"RS256\", public_key?: string | map<any> | null 'PEM, or a JWK', rate_limit_rps?: integer(1..10000), \
         max_token_ttl_s?: integer(60..86400), origins?: string[], policy?: Policy |}",
    ),
    (
        "IngestSettings",
        "{| rate_limit_rps?: integer(1..10000), samples_per_s?: integer(1..100000000), labels?: map<string> 'Forced onto \
         written series' |}",
    ),
    (
        "ReadSettings",
        "{| rate_limit_rps?: integer(1..100000) 'Of the key itself, which needs the scope read; tokens have embed.rate_limit_rps' |}",
    ),
    (
        "ApiKey",
        "{ id: string, name: string, scopes: KeyScope[], hint: string 'How the secret begins and ends', created_by: string | null, \
         created_at: string(date-time), expires_at: string(date-time) | null, last_used_at: string(date-time) | null, \
         disabled: boolean, embed: EmbedSettings, ingest: IngestSettings, read: ReadSettings, secret?: string 'Only where it was just made' }",
    ),
    (
        "Introspection",
        "{ valid: boolean, reason: string | null, detail?: string | null, header: any, claims: any, effective: any 'What the token may see' }",
    ),
    // -- questions
    ("Point", "[number, string]"),
    ("Labels", "map<string>"),
    ("Series", "{ metric: Labels, value?: Point, values?: Point[] }"),
    (
        "Result",
        "{ resultType: \"matrix\" | \"vector\" | \"scalar\" | \"string\", result: any[] 'Series of a matrix or vector; a point \
         of a scalar or string' }",
    ),
    (
        "Query",
        "{ status: \"success\", data: Result, warnings: string[], infos?: string[], query: any 'The PromQL that was evaluated, \
         and when', explain?: PlanNode, stats: { series?: integer, samples?: integer, elapsed_ms?: number } }",
    ),
    ("PrometheusQuery", "{ status: \"success\", data: Result, warnings?: string[], infos?: string[] }"),
    ("PrometheusData", "{ status: \"success\", data: any, warnings?: string[], infos?: string[] }"),
    ("Cost", "{ series: integer, samples: integer, memory_bytes: integer }"),
    (
        "PlanNode",
        "{ node: string, estimated: Cost, actual?: { series?: integer, samples?: integer, elapsed_ms?: number }, \
         inputs: PlanNode[] }",
    ),
    ("Estimate", "{ status: \"success\", data: Cost, warnings: string[] }"),
    (
        "Queries",
        "{ status: \"success\", data: { id: string, query: string, user: string, started_at: string(date-time), \
         elapsed_ms: number, samples: integer, memory_bytes: integer, progress: number(0..1) }[] 'In order of arrival' }",
    ),
    (
        "Metrics",
        "{ status: \"success\", data: Metric[] | string[], next_cursor: string | null, warnings?: string[] }",
    ),
    (
        "Metric",
        "{ name: string, type: string, help: string, unit: string, series: integer, last_seen: number | null }",
    ),
    (
        "MetricLabels",
        "{ status: \"success\", data: { name: string, values_count: integer, values?: string[] }[], warnings?: string[] }",
    ),
    (
        "LabelValues",
        "{ status: \"success\", data: string[], next_cursor: string | null, warnings?: string[] }",
    ),
    (
        "Rejects",
        "{ data: { at: string(date-time), first_at: string(date-time), count: integer, code: string, reason: string, \
         series: string | null 'null: the whole request', sender: { type: \"api_key\" | \"user\", id: string, name?: string } }[] \
         'Newest first, 100 at most; the same again is counted', refused: map<integer> 'Samples by code, since the start of \
         the process' }",
    ),
];
