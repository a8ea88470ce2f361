//! The named schemas of the document, in the language of [`schema`](super::schema).

/// The name and the schema of each type.
pub(super) const TYPES: &[(&str, &str)] = &[
    // -- refusals
    (
        "Problem",
        "{ type: string 'urn:promlet:error: followed by the code', title: string, status: integer(400..599), code: string 'The stable error \
         code', detail: string, request_id?: string 'The request id, as in X-Request-Id', errorType?: string, error?: string, \
         errors?: FieldError[], retry_after_ms?: integer, attempts_left?: integer, limit?: any, window_s?: integer, \
         scope?: string, hint?: string, at?: string(date-time) 'The time of the evaluation that failed' }",
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
        "{ id: string, created_at: string(date-time), expires_at: string(date-time) 'Extended to 30 days by each request', \
         auth_method: string }",
    ),
    ("LoginResult", "{ requires_2fa: false, user: User, orgs: OrgOf[], session: Session }"),
    (
        "NeedsCode",
        "{ requires_2fa: true, twofa_pending_login: string 'The argument of /auth/2fa/verify; no cookie is set yet', expires_in: integer, redirect?: string 'The path to open after a sign-in with a provider' }",
    ),
    ("LoginOutcome", "LoginResult | NeedsCode"),
    ("Accepted", "{ status: \"accepted\", expires_in: integer 'The seconds until the link expires' }"),
    ("RecoveryCodes", "{ recovery_codes: string[] 'Contained only in this response' }"),
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
         max_samples_per_query?: Setting, query_timeout_s?: Setting, ooo_window_s?: Setting, \
         public_links?: boolean | null 'Whether public links of dashboards may be created and used; off by default' }",
    ),
    (
        "Engine",
        "{ engine: \"local\" | \"upstream\" | \"split\", url?: string, auth?: any, tenant?: any, \
         headers?: map<null> 'The names of further headers', tls?: any, split_after_s?: integer, version?: integer, \
         updated_at?: string(date-time), problem?: string 'The reason why the engine cannot be used', \
         circuit?: { state: \"closed\" | \"open\" | \"half_open\", failures: integer, last_error: string | null } }",
    ),
    (
        "EngineWrite",
        "{| engine?: string | null 'upstream or split; missing only for a probe of the stored engine', url?: string | null 'The URL below which the server has /api/v1/query', \
         auth?: EngineAuth | null, tenant?: EngineTenant | null, \
         headers?: map<string | null> 'Further headers; null keeps the stored value', tls?: EngineTls | null, \
         split_after_s?: integer | null 'Required for split; the age in seconds from which samples are read from the upstream' |}",
    ),
    (
        "EngineAuth",
        "{| type: string 'none, basic, bearer or oauth2', username?: string | null, \
         password?: string | null 'A missing secret keeps the stored one if the URL has the same origin', token?: string | null, \
         token_url?: string | null, client_id?: string | null, client_secret?: string | null, scopes?: string[] |}",
    ),
    (
        "EngineTenant",
        "{| type: string 'none, header, path or label', name?: string | null, value?: string | null |}",
    ),
    (
        "EngineTls",
        "{| ca_pem?: string | null 'The only authorities to trust', client_cert_pem?: string | null, \
         client_key_pem?: string | null, server_name?: string | null |}",
    ),
    ("EngineProbe", "{ ok: boolean, latency_ms?: number, code?: string, message?: string }"),
    ("Setting", "integer(0..) | \"none\" | null"),
    (
        "Organisation",
        "{ id: string, slug: string, name: string, role: Role, created_at: string(date-time), settings: OrgSettings, \
         usage: { series: integer, samples: integer, samples_today: integer, bytes: integer, memory_bytes: integer, \
         refused: map<integer> 'Refused samples by code' } }",
    ),
    (
        "Member",
        "{ user_id: string, email: string, name: string, role: Role, joined_at: string(date-time), twofa_enabled?: boolean \
         'Only for administrators', last_seen_at?: string(date-time) | null 'Only for administrators' }",
    ),
    (
        "NewOrg",
        "{ slug: string(1..63) 'Letters a to z, digits and dashes; cannot be changed', name?: string | null }",
    ),
    (
        "Invite",
        "{ id: string, email: string, role: Role, invited_by: string | null, created_at: string(date-time), \
         expires_at: string(date-time), url?: string 'The link; only if mails go to the console' }",
    ),
    (
        "TargetSettings",
        "{ url: string(..2048), auth?: any 'type none, basic, bearer or oauth2 and its members; secrets are write-only', \
         tenant?: any 'type none, header, path or label, name and value', headers?: any 'Names and values; values are write-only', \
         tls?: any 'ca_pem, client_cert_pem, client_key_pem, server_name' }",
    ),
    (
        "ScrapeConfig",
        "{ text: string | null 'Secrets are replaced by <secret>; null if that is not possible', version: integer, \
         updated_at: string(date-time), problem: string | null, notices: string[], \
         jobs: { name: string, targets: integer, dropped: integer, invalid: integer, duplicates: integer, \
         failure: string | null, \
         discoveries: { title: string, targets: integer, error: string | null }[] }[] }",
    ),
    (
        "NewForwardTarget",
        "{| name: string(1..64), target: TargetSettings, protocol?: \"auto\" | \"rw1\" | \"rw2\", compression?: \"snappy\" | \"zstd\", \
         rules?: any[] 'As write_relabel_configs of Prometheus', enabled?: boolean, from?: \"now\" | \"log\" 'Where a new target begins' |}",
    ),
    (
        "ForwardTarget",
        "{ id: string, name: string, target: any, protocol: string, compression: string, rules: any[], enabled: boolean, \
         version: integer, updated_at: string(date-time), status: ForwardStatus | null 'null if it is disabled' }",
    ),
    (
        "RuleGroup",
        "{ name: string 'With its namespace and a slash, unless that is api', namespace: string, source: \"api\" | \"file\", \
         yaml: string, version: integer, updated_at: string(date-time) | null, updated_by: string | null }",
    ),
    (
        "RuleGroupVersion",
        "{ version: integer, valid_from: string(date-time) 'Inclusive', \
         valid_until: string(date-time) | null 'Exclusive; null for the current version', \
         updated_by: string | null, bytes: integer 'Of the text' }",
    ),
    (
        "ForwardStatus",
        "{ state: string, error: string | null, protocol: string, shards: integer, lag_s: number, lag_bytes: integer, \
         lag_samples: integer 'Estimated', sent_samples: integer, sent_bytes: integer, requests: integer, \
         passed_requests: integer 'With a body as it was received', retried_requests: integer, refused_samples: integer, forgotten_samples: integer, lost_records: integer }",
    ),
    (
        "NotifyConfiguration",
        "{| alertmanagers?: any[], route?: any 'As route of Alertmanager', receivers?: any[] 'Each with email_configs, \
         webhook_configs, ntfy_configs, slack_configs; secrets are write-only and kept by id', time_intervals?: any[], \
         inhibit_rules?: any[] |}",
    ),
    (
        "NotifyState",
        "{ alerts: integer, groups: integer, silences: integer, received: integer, dropped: integer, mails_delayed: integer, \
         alertmanagers: any[], integrations: any[] 'Each with lag_s, last_error, next_retry and counters', file_errors: any }",
    ),
    (
        "NewSilence",
        "{| id?: string | null 'The silence that this one changes', matchers: any[] 'Objects of Alertmanager, or texts', \
         startsAt?: string | null, endsAt: string(date-time), createdBy?: string | null, comment?: string | null, \
         updatedAt?: any, status?: any |}",
    ),
    (
        "Silence",
        "{ id: string, matchers: any[], startsAt: string(date-time), endsAt: string(date-time), updatedAt: string(date-time), \
         createdBy: string, comment: string, status: { state: string } }",
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
         refused: map<integer> 'Refused samples by code' } }",
    ),
    (
        "Policy",
        "{| endpoints?: Endpoint[] | null, metrics?: string[] | null 'Metric names as glob patterns', match?: string[] 'Label matchers that all must match', \
         exprs?: string[] | null 'PromQL expressions; if endpoints is missing, only these may be queried', max_range_s?: integer(0..) | null, max_lookback_s?: integer(0..) | null, \
         min_step_s?: integer(0..) | null, dashboard?: DashboardPolicy | null, alerts?: AlertsPolicy | null |}",
    ),
    (
        "AlertsPolicy",
        "{| annotations?: string[] 'The annotations that may be shown', value?: boolean 'Whether the value of the expression may be shown' |}",
    ),
    (
        "DashboardPolicy",
        "{| uid: string 'If endpoints is missing, only this dashboard may be shown', \
         locked?: map<string | string[] | LockedVariable> 'Variables whose values also restrict every selection of series', \
         open?: string[] | map<string[] | null> 'Variables that the viewer sets, with the allowed values; null allows every value. Other \
         variables have the value that is saved in the dashboard' |}",
    ),
    ("LockedVariable", "{| label: string 'The label whose values are restricted', values: string[] |}"),
    (
        "Endpoint",
        "\"metrics\" | \"labels\" | \"range\" | \"instant\" | \"expr\" | \"dashboard\" | \"alerts\"",
    ),
    ("KeyScope", "\"ingest\" | \"read\" | \"embed\" | \"alerting\""),
    (
        "EmbedSettings",
        "{| alg?: \"HS256\" | \"EdDSA\" | \"ES256\" | \"RS256\", public_key?: string | map<any> | null 'A public key in PEM format or as a JWK', rate_limit_rps?: integer(1..10000), \
         max_token_ttl_s?: integer(60..86400), origins?: string[], policy?: Policy, \
         query_seconds_per_minute?: integer(1..3600) | null 'Evaluation time that all tokens of the key may use in a trailing minute; \
         null is no limit', blocked_origins?: string[] 'Origins whose pages may not use the tokens' |}",
    ),
    (
        "IngestSettings",
        "{| rate_limit_rps?: integer(1..10000), samples_per_s?: integer(1..100000000), labels?: map<string> 'Labels that replace \
         those of written series' |}",
    ),
    (
        "ReadSettings",
        "{| rate_limit_rps?: integer(1..100000) 'Limits reads with the API key, which needs the scope read; embed.rate_limit_rps limits its tokens' |}",
    ),
    (
        "ApiKey",
        "{ id: string, name: string, scopes: KeyScope[], hint: string 'The beginning and the end of the secret', created_by: string | null, \
         created_at: string(date-time), expires_at: string(date-time) | null, last_used_at: string(date-time) | null, \
         disabled: boolean, embed: { alg: \"HS256\" | \"EdDSA\" | \"ES256\" | \"RS256\", public_key: any 'As it was sent', \
         rate_limit_rps: integer, max_token_ttl_s: integer, origins: string[], policy: Policy, \
         query_seconds_per_minute: integer | null, blocked_origins: string[] }, \
         ingest: { rate_limit_rps: integer, samples_per_s: integer, labels: map<string> }, read: { rate_limit_rps: integer }, \
         secret?: string 'Only in the response that creates or rotates the key' }",
    ),
    (
        "Embeds",
        "{ since: string(date-time) 'The start of the server; earlier requests are not counted', rows_max: integer, data: EmbedPage[], \
         keys: EmbedKeyUse[] 'The keys of these pages, and those with blocked origins' }",
    ),
    (
        "EmbedPage",
        "{ api_key: { id: string, name: string | null 'null if the key was deleted' } | null 'null for a public link', \
         public_link: { id: string, name: string | null 'null if the link was deleted' } | null 'null for a token', \
         origin: string | null 'null for requests without Origin, which come from servers, or from the page of a public link; invalid for one that is not the text of an \
         origin', blocked: boolean, dashboard: { uid: string, title: string | null } | null, \
         viewers: integer(0..) 'An estimate of the different viewers of the last five minutes', streams: integer(0..) 'Open live streams', \
         requests: integer(0..), refused: integer(0..) 'Requests answered 401, 403 or 429', query_seconds: number, samples: integer(0..), \
         first_seen_at: string(date-time), last_seen_at: string(date-time) }",
    ),
    (
        "EmbedKeyUse",
        "{ id: string, name: string, query_seconds_per_minute: integer | null, query_seconds_last_minute: number, \
         blocked_origins: string[] }",
    ),
    (
        "Introspection",
        "{ valid: boolean, reason: string | null, detail?: string | null, header: any, claims: any, effective: any 'The restrictions of the token' }",
    ),
    // -- dashboards
    (
        "Dashboard",
        "{ uid: string, title: string, folder: string 'A path such as Infra/Kubernetes; empty at the top', tags: string[], \
         version: integer 'Grows with each change; 0 for a file of the server', created_at: string(date-time), \
         created_by: string | null, updated_at: string(date-time), updated_by: string | null, starred: boolean, \
         last_seen_at: string(date-time) | null 'The last view by this account', provisioned: boolean 'A read-only file of the server', \
         panels: integer, queries: integer, dashboard?: map<any> 'The document as it was sent; only for a single dashboard' }",
    ),
    (
        "DashboardVersion",
        "{ version: integer, saved_at: string(date-time), saved_by: string | null, message: string, \
         restored_from: integer | null, bytes: integer, dashboard?: map<any> 'The document; only for a single version' }",
    ),
    (
        "DashboardWrite",
        "{| dashboard: map<any> 'A dashboard in Grafana’s JSON; it is stored as sent', folder?: string(..200) | null, \
         message?: string(..200) | null 'Describes the version in the history' |}",
    ),
    (
        "PublicLink",
        "{ id: string, name: string, url: string | null 'The address to share; null if its secret was lost with the master key', \
         dashboard: string 'The uid of the dashboard', created_at: string(date-time), created_by: string | null, \
         expires_at: string(date-time) | null, disabled: boolean, last_used_at: string(date-time) | null, \
         locked: map<string | string[] | LockedVariable>, open: string[] | map<string[] | null>, max_range_s: integer | null, \
         max_lookback_s: integer | null, min_step_s: integer | null, origins: string[], rate_limit_rps: integer, \
         query_seconds_per_minute: integer }",
    ),
    (
        "PublicLinkWrite",
        "{| name?: string | null, \
         locked?: map<string | string[] | LockedVariable> | null 'Variables whose values also restrict every selection of series', \
         open?: string[] | map<string[] | null> | null 'Variables that viewers set, with the allowed values; null allows every value', \
         max_range_s?: integer(0..) | null, max_lookback_s?: integer(0..) | null, min_step_s?: integer(0..) | null, \
         origins?: string[] | null 'Origins whose pages may show the link in a frame; * by default', \
         rate_limit_rps?: integer(1..10000) | null '20 by default', \
         query_seconds_per_minute?: integer(1..3600) | null 'Evaluation time of all viewers in a trailing minute; 60 by default', \
         expires_at?: string(date-time) | null, \
         disabled?: boolean | null 'Only when a link is changed' |}",
    ),
    // -- queries
    ("Point", "[number, string]"),
    ("Labels", "map<string>"),
    ("Series", "{ metric: Labels, value?: Point, values?: Point[] }"),
    (
        "Result",
        "{ resultType: \"matrix\" | \"vector\" | \"scalar\" | \"string\", result: any[] 'The series of a matrix or vector, or the point \
         of a scalar or string' }",
    ),
    (
        "Query",
        "{ status: \"success\", data: Result, warnings: string[], infos?: string[], query: any 'The evaluated PromQL expression \
         and its times', explain?: PlanNode, stats: { series?: integer, samples?: integer, elapsed_ms?: number } }",
    ),
    ("BatchParameter", "string | number | boolean | null"),
    (
        "BatchQuery",
        "{| id: string(1..64) 'Unique in the batch', expr: string 'The PromQL expression, at most 64 KiB', \
         type: \"range\" | \"instant\", start?: BatchParameter, end?: BatchParameter, step?: BatchParameter, \
         time?: BatchParameter, limit?: BatchParameter 'The maximum number of series; also called max_series', \
         max_series?: BatchParameter, timeout?: BatchParameter, explain?: BatchParameter, nocache?: BatchParameter |}",
    ),
    (
        "LiveQuery",
        "{| id: string(1..64) 'Unique in the stream', expr: string 'The PromQL expression', step?: BatchParameter \
         '1 s to 1 h', limit?: BatchParameter 'The maximum number of series' |}",
    ),
    (
        "BatchResult",
        "{ id: string, status: \"success\", data: Result, warnings: string[], infos?: string[], query: any 'The evaluated \
         PromQL expression and its times', explain?: PlanNode, stats: { series?: integer, samples?: integer, \
         elapsed_ms?: number } }",
    ),
    (
        "BatchError",
        "{ id: string, status: \"error\", http_status: integer(400..599) 'The status of the same query as a request of its \
         own', type: string, title: string, code: string 'The stable error code', detail: string, errorType: string, \
         error: string, errors?: FieldError[] }",
    ),
    (
        "BatchEnd",
        "{ done: true, queries: integer, failed: integer 'The number of error lines', elapsed_ms: number }",
    ),
    (
        "PanelQuery",
        "{| id: string(1..64) 'Unique in the request', panel?: integer | null, ref?: string | null, \
         annotation?: integer(0..) | null 'Instead of panel and ref: the place of an annotation', \
         type: \"range\" | \"instant\", \
         step?: BatchParameter, start?: BatchParameter, end?: BatchParameter, interval?: string | null '$__interval', \
         rate_interval?: string | null '$__rate_interval', variables?: map<string[]> 'Values for this query', \
         limit?: BatchParameter |}",
    ),
    (
        "LivePanelQuery",
        "{| id: string(1..64) 'Unique in the request', panel: integer, ref: string, step?: BatchParameter, \
         range?: BatchParameter '$__range: the length of the range that the panel shows; by default the step', interval?: string | null, rate_interval?: string | null, variables?: map<string[]>, limit?: BatchParameter |}",
    ),
    (
        "DashboardView",
        "{ uid: string, title: string, version: integer, dashboard: map<any> 'The document without expressions, queries of \
         variables, and links to other dashboards', variables: map<VariableView>, \
         max_range_s: integer | null, min_step_s: integer | null }",
    ),
    (
        "VariableView",
        "{ access: \"locked\" | \"open\" | \"fixed\", value?: string[] 'Of a locked or fixed variable', \
         values?: string[] | null 'The values that an open variable may have; null stands for all' }",
    ),
    (
        "VariableOptions",
        "{ status: \"success\", data: any[] 'Texts, or series with the members metric and value', warnings: string[], \
         infos?: string[] }",
    ),
    ("BatchLine", "BatchResult | BatchError | BatchEnd"),
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
         elapsed_ms: number, samples: integer, memory_bytes: integer, progress: number(0..1) }[] 'The running queries in order of arrival' }",
    ),
    (
        "Metrics",
        "{ status: \"success\", data: Metric[] | string[], next_cursor: string | null, \
         queried_since?: number 'All later queries are in last_queried; those before may be forgotten', warnings?: string[] }",
    ),
    (
        "Metric",
        "{ name: string, type: string, help: string, unit: string, series: integer, last_seen: number | null, \
         last_queried?: number | null 'The last query that names the metric; null if none since queried_since. Absent for tokens' }",
    ),
    (
        "Alerts",
        "{ status: \"success\", data: Alert[], counts: { firing: integer, pending: integer }, next_cursor: string | null }",
    ),
    (
        "Alert",
        "{ state: \"firing\" | \"pending\", labels: Labels, active_since: number, firing_since: number | null, \
         annotations: map<string> 'Those that the token grants', value?: string 'Absent unless the token grants it' }",
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
         series: string | null 'The series; null if the whole request was refused', sender: { type: \"api_key\" | \"user\", id: string, name?: string } }[] \
         'At most 100 entries, the newest first; repeated refusals are counted', refused: map<integer> 'Refused samples by code since the start of \
         the process' }",
    ),
];
