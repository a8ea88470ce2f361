//! Verification of ID tokens (OpenID Connect Core 3.1.3.7).
//!
//! The `jsonwebtoken` crate checks the signature with a key of the issuer's own set. This module
//! selects the key and the algorithm and checks every claim, with the caller's `now`. HMAC
//! algorithms are never accepted: they would make the client secret a signing key.

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Number, Value};
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::model::Timestamp;

/// Maximum length of an ID token in bytes; some tokens list the groups of their subject.
const TOKEN_BYTES_MAX: usize = 64 * 1_024;
/// Maximum number of keys read from one key set.
const KEYS_MAX: usize = 100;
/// Allowed clock difference, seconds.
const LEEWAY_S: i64 = 30;
/// OpenID Connect Core: a subject has at most 255 characters.
const SUBJECT_BYTES_MAX: usize = 255;
/// Minimum length of an RSA modulus in bytes: 2,048 bits.
const RSA_BYTES_MIN: usize = 256;

/// A token and the expected values of its claims.
#[derive(Clone, Copy)]
pub struct IdTokenCheck<'a> {
    /// The JWT.
    pub token: &'a str,
    /// The issuer's key set, as JSON.
    pub keys: &'a str,
    /// Expected `iss`; compared exactly.
    pub issuer: &'a str,
    /// Expected `aud`.
    pub client_id: &'a str,
    /// The nonce of the authorization request.
    pub nonce: &'a str,
    /// The access token of the same token response, for `at_hash`.
    pub access_token: &'a str,
}

/// Errors of [`verify_id_token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// The set has no key with the token's `kid`. The key may be new: fetch the set and retry.
    #[error("the ID token names a key that is not in the issuer's key set")]
    UnknownKey,
    /// The token fails any other check; the field names the check.
    #[error("the ID token is refused ({0})")]
    Refused(&'static str),
}

/// Claims about a person, from an ID token or the userinfo endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Profile {
    /// The provider's id of the person.
    pub sub: String,
    /// Mail address.
    pub email: Option<String>,
    /// Whether the provider states that the person owns the address; some providers send a string.
    #[serde(default, deserialize_with = "said_true")]
    pub email_verified: Option<bool>,
    /// Display name.
    pub name: Option<String>,
    /// Google: the organisation that owns the account.
    pub hd: Option<String>,
}

fn said_true<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    Ok(match Option::<Value>::deserialize(from)? {
        Some(Value::Bool(said)) => Some(said),
        Some(Value::String(text)) => Some(text == "true"),
        Some(_) => Some(false),
        None => None,
    })
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: Number,
    iat: Number,
    nbf: Option<Number>,
    nonce: Option<String>,
    at_hash: Option<String>,
    #[serde(flatten)]
    profile: Profile,
}

/// Verifies the signature and the claims of a token.
///
/// # Errors
/// [`IdTokenError`].
pub fn verify_id_token(check: &IdTokenCheck<'_>, now: Timestamp) -> Result<Profile, IdTokenError> {
    let refused = IdTokenError::Refused;
    if check.token.len() > TOKEN_BYTES_MAX {
        return Err(refused("size"));
    }
    let (kid, algorithm) = header(check.token)?;
    let key = key(check.keys, kid.as_deref(), algorithm)?;
    let mut validation = Validation::new(algorithm);
    // All claims are compared below.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let claims = jsonwebtoken::decode::<Claims>(check.token, &key, &validation)
        .map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::Json(_) => refused("claims"),
            _ => refused("signature"),
        })?
        .claims;
    if claims.iss != check.issuer {
        return Err(refused("iss"));
    }
    let several = match &claims.aud {
        Audience::One(one) if one == check.client_id => false,
        Audience::Many(many) if many.iter().any(|one| one == check.client_id) => many.len() > 1,
        _ => return Err(refused("aud")),
    };
    match claims.azp.as_deref() {
        Some(party) if party == check.client_id => {}
        None if !several => {}
        _ => return Err(refused("azp")),
    }
    check_times(&claims, now)?;
    if claims.nonce.as_deref() != Some(check.nonce) {
        return Err(refused("nonce"));
    }
    if claims.at_hash.is_some_and(|said| said != access_token_hash(algorithm, check.access_token)) {
        return Err(refused("at_hash"));
    }
    if claims.profile.sub.is_empty() || claims.profile.sub.len() > SUBJECT_BYTES_MAX {
        return Err(refused("sub"));
    }
    Ok(claims.profile)
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), IdTokenError> {
    let refused = IdTokenError::Refused;
    let now_s = now.as_s();
    if now_s >= seconds(&claims.exp).ok_or(refused("exp"))?.saturating_add(LEEWAY_S) {
        return Err(refused("exp"));
    }
    let future = |date: &Number| seconds(date).is_none_or(|s| s > now_s.saturating_add(LEEWAY_S));
    if future(&claims.iat) {
        return Err(refused("iat"));
    }
    if claims.nbf.as_ref().is_some_and(future) {
        return Err(refused("nbf"));
    }
    Ok(())
}

/// Returns a NumericDate in whole seconds since 1970; it may have a fraction (RFC 7519 section 2).
fn seconds(date: &Number) -> Option<i64> {
    date.as_i64().or_else(|| {
        let s = date.as_f64().filter(|s| (0.0..=9_007_199_254_740_992.0).contains(s))?;
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^53: checked in the line before")]
        Some(s.floor() as i64)
    })
}

/// Returns the `kid` and the algorithm of a token.
fn header(token: &str) -> Result<(Option<String>, Algorithm), IdTokenError> {
    let form = IdTokenError::Refused("form");
    let part = token.split('.').next().ok_or(form.clone())?;
    let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| form.clone())?;
    let header: Value = serde_json::from_slice(&bytes).map_err(|_| form)?;
    // `crit` lists extensions that the receiver must understand; none is supported (RFC 7515
    // section 4.1.11).
    if header.get("crit").is_some() {
        return Err(IdTokenError::Refused("crit"));
    }
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(|alg| alg.parse::<Algorithm>().ok());
    let asymmetric = |alg: &Algorithm| !matches!(alg, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512);
    let algorithm = algorithm.filter(asymmetric).ok_or(IdTokenError::Refused("alg"))?;
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(IdTokenError::Refused("kid")),
    };
    Ok((kid, algorithm))
}

/// Returns the only key of the set that may have signed the token: the one with this `kid` or,
/// without a `kid`, the only one usable with the algorithm.
fn key(keys: &str, kid: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, IdTokenError> {
    let unfit = IdTokenError::Refused("keys");
    let set: Value = serde_json::from_str(keys).map_err(|_| unfit.clone())?;
    let all = set.get("keys").and_then(Value::as_array).ok_or(unfit)?;
    // A key of an unsupported type is skipped; the other keys stay usable.
    let known = all.iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
    let named = known.filter(|key| kid.is_none() || key.common.key_id.as_deref() == kid);
    let mut fitting = named.filter(|key| fits(key, algorithm));
    match (fitting.next(), fitting.next()) {
        (Some(key), None) => DecodingKey::from_jwk(&key).map_err(|_| IdTokenError::Refused("key")),
        (Some(_), Some(_)) => Err(IdTokenError::Refused("several keys")),
        (None, _) => Err(IdTokenError::UnknownKey),
    }
}

/// Returns whether a key is meant for signatures of this algorithm and is strong enough. It also
/// rejects keys on which the crate would panic.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    if key.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return false;
    }
    if key.common.key_algorithm.is_some_and(|said| said != algorithm.into()) {
        return false;
    }
    let bytes = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).unwrap_or_default();
    match (&key.algorithm, algorithm) {
        (
            AlgorithmParameters::RSA(rsa),
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512,
        ) => bytes(&rsa.n).iter().skip_while(|byte| **byte == 0).count() >= RSA_BYTES_MIN,
        (AlgorithmParameters::EllipticCurve(ec), Algorithm::ES256) => {
            ec.curve == EllipticCurve::P256 && [&ec.x, &ec.y].iter().all(|part| bytes(part).len() == 32)
        }
        (AlgorithmParameters::EllipticCurve(ec), Algorithm::ES384) => {
            ec.curve == EllipticCurve::P384 && [&ec.x, &ec.y].iter().all(|part| bytes(part).len() == 48)
        }
        (AlgorithmParameters::OctetKeyPair(pair), Algorithm::EdDSA) => {
            pair.curve == EllipticCurve::Ed25519 && bytes(&pair.x).len() == 32
        }
        _ => false,
    }
}

/// Returns the left half of the access token's hash; the signature algorithm selects the hash.
fn access_token_hash(algorithm: Algorithm, access_token: &str) -> String {
    let token = access_token.as_bytes();
    match algorithm {
        Algorithm::RS384 | Algorithm::PS384 | Algorithm::ES384 => left_half(&Sha384::digest(token)),
        Algorithm::RS512 | Algorithm::PS512 | Algorithm::EdDSA => left_half(&Sha512::digest(token)),
        _ => left_half(&Sha256::digest(token)),
    }
}

fn left_half(hash: &[u8]) -> String {
    BASE64URL_NOPAD.encode(hash.get(..hash.len() / 2).unwrap_or_default())
}
