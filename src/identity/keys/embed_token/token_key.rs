//! The verification material of a key's tokens.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};

use crate::model::{Matcher, NameGlob};

use crate::identity::keys::api_key::ApiKey;
use crate::identity::keys::dashboard_policy::matcher_texts;
use crate::identity::keys::policy_matcher::{self, PatternLimits};
use crate::identity::keys::public_key::{self, algorithm};
use crate::identity::tables::id::Secret;
use crate::identity::tables::key::{EmbedPolicy, TokenAlgorithm};

/// The verification material of a key's tokens, prepared when the key is loaded.
#[derive(Debug)]
pub(in crate::identity) struct TokenKey {
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    /// The secret, with which the server can mint; HS256 only.
    pub(super) signing: Option<Secret>,
    pub(in crate::identity) restriction: KeyRestriction,
}

/// The compiled part of a key's policy: its restrictions of every selection of series.
#[derive(Debug)]
pub(in crate::identity) struct KeyRestriction {
    pub(super) matchers: Arc<[Matcher]>,
    pub(super) names: Option<Vec<NameGlob>>,
}

impl KeyRestriction {
    /// Compiles a policy; takes about 20 ms at most.
    pub(in crate::identity) fn compile(policy: &EmbedPolicy) -> Result<KeyRestriction, TokenKeyError> {
        Ok(KeyRestriction { matchers: compile_key_policy(policy)?, names: globs(policy) })
    }
}

/// A key whose stored material is damaged: it verifies no tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an API key cannot verify embed tokens: {0}")]
pub(in crate::identity) struct TokenKeyError(String);

impl TokenKey {
    /// Prepares the material of `key`. `secret` is the key's own for HS256, `None` for other
    /// algorithms.
    pub(in crate::identity) fn new(
        key: &ApiKey,
        secret: Option<Secret>,
        policy: &CompiledKeyPolicy,
    ) -> Result<TokenKey, TokenKeyError> {
        let decoding = match (key.embed.alg, &secret, &key.embed.public_key) {
            (TokenAlgorithm::Hs256, Some(secret), None) => {
                DecodingKey::from_secret(secret.expose().as_bytes())
            }
            (TokenAlgorithm::Hs256, ..) => return Err(TokenKeyError("no sealed secret".into())),
            (alg, None, Some(pem)) => public_key::check(alg, pem).map_err(TokenKeyError)?,
            (..) => return Err(TokenKeyError("no public key".into())),
        };
        Ok(TokenKey {
            algorithm: algorithm(key.embed.alg),
            decoding,
            signing: secret,
            restriction: KeyRestriction { matchers: policy.clone()?, names: globs(&key.embed.policy) },
        })
    }
}

/// The matchers of a key's policy.
pub(in crate::identity) type CompiledKeyPolicy = Result<Arc<[Matcher]>, TokenKeyError>;

/// Compiles the matchers of a key's policy; takes about 20 ms at most.
pub(in crate::identity) fn compile_key_policy(policy: &EmbedPolicy) -> CompiledKeyPolicy {
    let matchers = policy_matcher::parse_all(&matcher_texts(policy), PatternLimits::KEY);
    matchers.map(Arc::from).map_err(|error| TokenKeyError(error.to_string()))
}

/// Returns the globs of metric names of a policy.
pub(super) fn globs(policy: &EmbedPolicy) -> Option<Vec<NameGlob>> {
    policy.metrics.as_ref().map(|names| names.iter().map(|name| NameGlob::new(name)).collect())
}
