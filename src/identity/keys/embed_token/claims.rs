//! The claims of embed tokens as JSON.

use std::collections::BTreeMap;

use serde::de::{Deserializer, IgnoredAny, Visitor};
use serde::{Deserialize, Serialize};

use crate::identity::keys::dashboard_policy::{DashboardClaim, from_object};
use crate::identity::tables::key::{AlertsPolicy, EmbedPolicy, Endpoint};

/// Maximum date: 2^53 seconds, the largest range of integers that a double represents exactly.
const DATE_MAX_S: i64 = 1 << 53;

/// The claim `ms`: restrictions of a token. Unknown fields and `null` are refused, because a typo
/// would grant more access.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TokenRestrictions {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    metrics: Option<Vec<String>>,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    matchers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    exprs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    max_range_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    max_lookback_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    min_step_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    origins: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    dashboard: Option<DashboardClaim>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    alerts: Option<AlertsClaim>,
}

/// The JSON form of an [`AlertsPolicy`].
#[derive(Debug, Serialize)]
struct AlertsClaim {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    value: bool,
}

impl<'de> Deserialize<'de> for AlertsClaim {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AlertsClaim, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members {
            #[serde(default)]
            annotations: Vec<String>,
            #[serde(default)]
            value: bool,
        }
        let Members { annotations, value } = from_object(from)?;
        Ok(AlertsClaim { annotations, value })
    }
}

impl From<AlertsPolicy> for AlertsClaim {
    fn from(AlertsPolicy { annotations, value }: AlertsPolicy) -> AlertsClaim {
        AlertsClaim { annotations, value }
    }
}

impl From<AlertsClaim> for AlertsPolicy {
    fn from(AlertsClaim { annotations, value }: AlertsClaim) -> AlertsPolicy {
        AlertsPolicy { annotations, value }
    }
}

/// The field names of [`TokenRestrictions`]. As a claim outside of `ms`, each would be ignored and
/// so grant more access.
const MS_FIELDS: [&str; 10] = [
    "endpoints",
    "metrics",
    "match",
    "exprs",
    "max_range_s",
    "max_lookback_s",
    "min_step_s",
    "origins",
    "dashboard",
    "alerts",
];

/// Returns whether a claim looks like a restriction, also with different letter case, such as `MS`
/// or `Match`.
pub(super) fn is_nearly_a_restriction(claim: &str) -> bool {
    MS_FIELDS.iter().chain(&["ms"]).any(|name| name.eq_ignore_ascii_case(claim))
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Deserialises restrictions from an object only; see [`from_object`].
fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TokenRestrictions>, D::Error> {
    from_object(from).map(Some)
}

impl From<TokenRestrictions> for EmbedPolicy {
    fn from(ms: TokenRestrictions) -> EmbedPolicy {
        EmbedPolicy {
            endpoints: ms.endpoints,
            metrics: ms.metrics,
            matchers: ms.matchers.unwrap_or_default(),
            exprs: ms.exprs,
            max_range_s: ms.max_range_s,
            max_lookback_s: ms.max_lookback_s,
            min_step_s: ms.min_step_s,
            origins: ms.origins,
            dashboard: ms.dashboard.map(DashboardClaim::into_policy),
            alerts: ms.alerts.map(AlertsPolicy::from),
        }
    }
}

impl From<EmbedPolicy> for TokenRestrictions {
    fn from(policy: EmbedPolicy) -> TokenRestrictions {
        TokenRestrictions {
            endpoints: policy.endpoints,
            metrics: policy.metrics,
            matchers: Some(policy.matchers).filter(|list| !list.is_empty()),
            exprs: policy.exprs,
            max_range_s: policy.max_range_s,
            max_lookback_s: policy.max_lookback_s,
            min_step_s: policy.min_step_s,
            origins: policy.origins,
            dashboard: policy.dashboard.map(DashboardClaim::from),
            alerts: policy.alerts.map(AlertsClaim::from),
        }
    }
}

impl EmbedPolicy {
    /// Parses `embed.policy` of a key, or `ms` of a request to mint, in the API's form: `null`
    /// restricts nothing, and an unknown field is refused.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn from_json(json: &serde_json::Value) -> Result<EmbedPolicy, String> {
        let serde_json::Value::Object(fields) = json else { return Err("must be an object".into()) };
        let set =
            fields.iter().filter(|(name, value)| !value.is_null() || !MS_FIELDS.contains(&name.as_str()));
        let object = set.map(|(name, value)| (name.clone(), value.clone())).collect();
        let ms: TokenRestrictions =
            serde_json::from_value(serde_json::Value::Object(object)).map_err(|e| e.to_string())?;
        Ok(ms.into())
    }
}

/// Seconds since 1970, whole or with a fraction (RFC 7519 section 2), rounded down.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumericDate(pub(super) i64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NumericDate, D::Error> {
        struct Seconds;
        impl Visitor<'_> for Seconds {
            type Value = NumericDate;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("seconds since 1970, 0 to 2^53")
            }

            fn visit_u64<E: serde::de::Error>(self, s: u64) -> Result<NumericDate, E> {
                let s = i64::try_from(s).ok().filter(|s| *s <= DATE_MAX_S);
                s.map(NumericDate).ok_or_else(|| E::custom("not a date"))
            }

            #[expect(
                clippy::cast_possible_truncation,
                reason = "a whole number of at most 2^53: checked in the line before"
            )]
            fn visit_f64<E: serde::de::Error>(self, s: f64) -> Result<NumericDate, E> {
                let fits = (0.0..=9_007_199_254_740_992.0).contains(&s);
                if fits { Ok(NumericDate(s.floor() as i64)) } else { Err(E::custom("not a date")) }
            }
        }
        from.deserialize_any(Seconds)
    }
}

/// The claims of a token to verify.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub(super) org: String,
    pub(super) iat: NumericDate,
    pub(super) exp: NumericDate,
    pub(super) nbf: Option<NumericDate>,
    pub(super) iss: Option<String>,
    pub(super) sub: Option<String>,
    /// For the log only; there is no list of revoked ids.
    pub(super) jti: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "object")]
    pub(super) ms: Option<TokenRestrictions>,
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, IgnoredAny>,
}

/// The claims of a token that this server mints.
#[derive(Serialize)]
pub(super) struct MintedClaims<'a> {
    pub(super) aud: &'static str,
    pub(super) org: &'a str,
    pub(super) iat: i64,
    pub(super) exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ms: Option<TokenRestrictions>,
}
