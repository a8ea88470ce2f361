//! Uploaded public keys that verify embed tokens: SPKI PEM, or one JWK (RFC 7517).
//!
//! Both are converted to a PEM that is checked completely, so that a verification with it can
//! neither fail nor panic because of the key. A JWK is converted to its SubjectPublicKeyInfo (RFC
//! 5280 section 4.1.2.7): a fixed head and the key for Ed25519 (RFC 8410) and P-256 (RFC 5480),
//! four nested values for RSA (RFC 3279).

use data_encoding::{BASE64, BASE64URL_NOPAD};
use jsonwebtoken::crypto::rust_crypto::DEFAULT_PROVIDER;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use crate::identity::tables::key::TokenAlgorithm;

/// Maximum length of a PEM, bytes; an RSA key of 4,096 bits needs 800.
const PEM_BYTES_MAX: usize = 2 * 1_024;
const RSA_BITS_MIN: usize = 2_048;

const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";

/// Returns the name of an algorithm in the `jsonwebtoken` crate.
pub(super) fn algorithm(alg: TokenAlgorithm) -> Algorithm {
    match alg {
        TokenAlgorithm::Hs256 => Algorithm::HS256,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::Rs256 => Algorithm::RS256,
    }
}

/// Returns the PEM of an uploaded key: the text itself, or that of the JWK in it.
///
/// # Errors
/// A description of the problem.
pub(super) fn to_pem(alg: TokenAlgorithm, uploaded: &str) -> Result<String, String> {
    let text = uploaded.trim();
    if !text.starts_with('{') {
        return Ok(text.to_owned());
    }
    if text.len() > 2 * PEM_BYTES_MAX {
        return Err(format!("a JWK has at most {} bytes", 2 * PEM_BYTES_MAX));
    }
    let jwk: Value = serde_json::from_str(text).map_err(|_| "is neither SPKI PEM nor a JWK".to_owned())?;
    let spki = spki_of(alg, &jwk)?;
    let encoded = BASE64.encode(&spki);
    let mut pem = String::from(PEM_BEGIN);
    for (at, letter) in encoded.char_indices() {
        if at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(letter);
    }
    Ok(format!("{pem}\n{PEM_END}\n"))
}

fn spki_of(alg: TokenAlgorithm, jwk: &Value) -> Result<Vec<u8>, String> {
    const ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    const P256: [u8; 27] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
    ];
    const RSA: [u8; 15] =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    // Private members: `d` of every asymmetric key, `k` of a symmetric one, and the rest of RSA.
    if ["d", "k", "p", "q", "dp", "dq", "qi"].iter().any(|member| jwk.get(member).is_some()) {
        return Err("contains a private key; upload only the public key".into());
    }
    let says = |member: &str| jwk.get(member).and_then(Value::as_str);
    if says("alg").is_some_and(|said| said != alg.as_str()) || says("use").is_some_and(|said| said != "sig") {
        return Err(format!("is a JWK for something else than {} signatures", alg.as_str()));
    }
    let bytes = |member: &str| {
        let decoded = says(member).and_then(|text| BASE64URL_NOPAD.decode(text.as_bytes()).ok());
        decoded.ok_or_else(|| format!("is a JWK without a base64url member {member:?}"))
    };
    let coordinate = |member: &str| {
        bytes(member)?.try_into().map_err(|_| format!("is a JWK whose {member:?} has not 32 bytes"))
    };
    match (alg, says("kty"), says("crv")) {
        (TokenAlgorithm::EdDsa, Some("OKP"), Some("Ed25519")) => {
            let x: [u8; 32] = coordinate("x")?;
            Ok([&ED25519[..], &x].concat())
        }
        (TokenAlgorithm::Es256, Some("EC"), Some("P-256")) => {
            let (x, y): ([u8; 32], [u8; 32]) = (coordinate("x")?, coordinate("y")?);
            Ok([&P256[..], &x, &y].concat())
        }
        (TokenAlgorithm::Rs256, Some("RSA"), _) => {
            let numbers = [integer(&bytes("n")?), integer(&bytes("e")?)].concat();
            // The BIT STRING consists of whole bytes, so no bits are unused.
            let key = [&[0][..], &tagged(0x30, &numbers)].concat();
            Ok(tagged(0x30, &[&RSA[..], &tagged(0x03, &key)].concat()))
        }
        _ => Err(format!("is not a JWK for {}", alg.as_str())),
    }
}

/// Encodes an ASN.1 value in DER: tag, shortest length, value.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(value.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let length = value.len().to_be_bytes();
            let digits = length.iter().position(|byte| *byte > 0).map_or(&[][..], |at| &length[at..]);
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(value);
    out
}

/// Encodes a non-negative INTEGER, without leading zeros except one that keeps it from being
/// negative.
fn integer(big_endian: &[u8]) -> Vec<u8> {
    let from = big_endian.iter().position(|byte| *byte > 0).unwrap_or(big_endian.len());
    let digits = big_endian.get(from..).unwrap_or_default();
    let sign: &[u8] = if digits.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    tagged(0x02, &[sign, digits].concat())
}

/// Parses a public key (SPKI PEM) and makes sure that a verification with it can neither fail nor
/// panic because of the key.
///
/// # Errors
/// A description of the problem.
pub(in crate::identity) fn check(alg: TokenAlgorithm, pem: &str) -> Result<DecodingKey, String> {
    if pem.len() > PEM_BYTES_MAX || !pem.trim_start().starts_with(PEM_BEGIN) {
        return Err(
            "must be a public key as SPKI PEM (-----BEGIN PUBLIC KEY-----) of at most 2,048 bytes, or a JWK"
                .into(),
        );
    }
    let wrong = |_| format!("is not a public key for {}", alg.as_str());
    let key = match alg {
        TokenAlgorithm::Hs256 => return Err("HS256 does not use a public key".into()),
        TokenAlgorithm::EdDsa => DecodingKey::from_ed_pem(pem.as_bytes()).map_err(wrong)?,
        TokenAlgorithm::Es256 => DecodingKey::from_ec_pem(pem.as_bytes()).map_err(wrong)?,
        TokenAlgorithm::Rs256 => DecodingKey::from_rsa_pem(pem.as_bytes()).map_err(wrong)?,
    };
    let bytes = key.try_get_as_bytes().map_err(wrong)?;
    match alg {
        // The crate slices 32 bytes without a length check.
        TokenAlgorithm::EdDsa if bytes.len() != 32 => return Err("is not a public key for EdDSA".into()),
        TokenAlgorithm::Rs256 => {
            let (modulus, _) =
                (DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(bytes).map_err(wrong)?;
            let bits = bits_of(&modulus);
            if bits < RSA_BITS_MIN {
                return Err(format!("RSA needs at least 2,048 bits, this key has {bits}"));
            }
        }
        _ => {}
    }
    (DEFAULT_PROVIDER.verifier_factory)(&algorithm(alg), &key).map_err(wrong)?;
    Ok(key)
}

fn bits_of(big_endian: &[u8]) -> usize {
    let from = big_endian.iter().position(|byte| *byte > 0).unwrap_or(big_endian.len());
    let digits = big_endian.get(from..).unwrap_or_default();
    let unused = digits.first().map_or(0, |first| first.leading_zeros() as usize);
    (digits.len() * 8).saturating_sub(unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_integers_are_der() {
        assert_eq!(tagged(0x04, &[1, 2]), [4, 2, 1, 2]);
        assert_eq!(tagged(0x04, &[7; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(tagged(0x04, &[7; 0x1_00])[..4], [4, 0x82, 1, 0]);
        assert_eq!(integer(&[1, 0, 1]), [2, 3, 1, 0, 1]);
        assert_eq!(integer(&[0, 0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[]), [2, 1, 0]);
    }

    #[test]
    fn the_bit_length_ignores_leading_zeros() {
        assert_eq!([&[][..], &[0], &[1], &[0, 0x80], &[0x7f, 0xff]].map(bits_of), [0, 0, 1, 8, 15]);
    }
}
