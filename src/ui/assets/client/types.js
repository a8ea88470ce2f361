// The types of the API's answers, as far as pages read them (docs/specification.md C). No code.

/**
 * @typedef {'viewer'|'editor'|'admin'|'owner'} Role
 * @typedef {{slug: string, name: string, role: Role}} OrgOfUser
 * @typedef {{id: string, name: string, email: string, has_password: boolean, is_admin: boolean}}
 *   User
 * @typedef {{user: User, orgs: OrgOfUser[], twofa: {enabled: boolean}, identities?: any[]}} Me
 *
 * @typedef {Object} AuthConfig
 * @property {boolean} [needs_setup]
 * @property {boolean} [setup_token_required]
 * @property {{min_length?: number}} [password]
 * @property {{name: string, start_url: string}[]} [providers]
 * @property {string} [signup]
 * @property {boolean} [magic_link]
 * @property {string} [mailer]
 *
 * @typedef {Object} Metric
 * @property {string} name
 * @property {string} type counter, gauge, histogram, summary or unknown
 * @property {string} [help]
 * @property {string} [unit]
 * @property {number} series
 * @property {number|null} [last_seen] unix seconds of the newest sample
 * @property {number|null} [last_queried] unix seconds of the last query that names it
 *
 * @typedef {Object} Policy
 * @property {string[]|null} [endpoints]
 * @property {string[]|null} [metrics]
 * @property {string[]} [match]
 * @property {string[]|null} [exprs]
 * @property {number|null} [max_range_s]
 * @property {number|null} [max_lookback_s]
 * @property {{annotations?: string[], value?: boolean}|null} [alerts]
 * @property {number|null} [min_step_s]
 * @property {Object<string, any>|null} [dashboard] a dashboard, its locked and its open variables
 *
 * @typedef {Object} ApiKey
 * @property {string} id
 * @property {string} name
 * @property {string[]} scopes
 * @property {string} hint
 * @property {string|null} expires_at
 * @property {string|null} last_used_at
 * @property {boolean} disabled
 * @property {{alg: string, public_key?: string|null, origins: string[], policy: Policy,
 *   rate_limit_rps: number, max_token_ttl_s: number, query_seconds_per_minute: number|null,
 *   blocked_origins: string[]}} embed
 * @property {{labels: Object<string, string>, rate_limit_rps: number, samples_per_s: number}}
 *   ingest
 * @property {{rate_limit_rps: number}} read
 *
 * @typedef {{series?: number, samples?: number, elapsed_ms?: number}} QueryStats
 * @typedef {{data: {resultType: string, result: any}, stats?: QueryStats, warnings?: string[],
 *   infos?: string[]}} QueryAnswer
 */

export {};
