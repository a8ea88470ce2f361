//! Strict parsing of query and path parameters (docs/specification.md B, C5): no value is guessed,
//! and a repeated parameter is refused.
//!
//! A handler takes the parameters that it knows; the response's warnings name the others. The
//! parameters of the URL and of the form are one list, so that a check and the evaluation cannot
//! use different ones.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::fmt::Display;
use std::hash::{Hash as _, Hasher};
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::error::{ApiError, ApiResult, Code};
use super::router::parameters;
use crate::model::{Timestamp, parse_duration};

/// An extractor of percent-decoded path parameters. A parameter that is not UTF-8 is refused with
/// an [`ApiError`].
#[derive(Clone, Copy, Debug)]
pub struct PathOf<T>(pub T);

/// A type to which the parameters of a path are converted.
pub trait PathValues: Sized {
    /// Converts all parameters of a path, in their order. Returns `None` if their number is
    /// different.
    fn of(parameters: Vec<(&str, Cow<'_, str>)>) -> Option<Self>;
}

impl PathValues for String {
    fn of(parameters: Vec<(&str, Cow<'_, str>)>) -> Option<String> {
        let [(_, one)] = <[_; 1]>::try_from(parameters).ok()?;
        Some(one.into_owned())
    }
}

impl PathValues for (String, String) {
    fn of(parameters: Vec<(&str, Cow<'_, str>)>) -> Option<(String, String)> {
        let [(_, one), (_, other)] = <[_; 2]>::try_from(parameters).ok()?;
        Some((one.into_owned(), other.into_owned()))
    }
}

impl PathValues for (String, String, String) {
    fn of(parameters: Vec<(&str, Cow<'_, str>)>) -> Option<(String, String, String)> {
        let [(_, one), (_, two), (_, three)] = <[_; 3]>::try_from(parameters).ok()?;
        Some((one.into_owned(), two.into_owned(), three.into_owned()))
    }
}

impl<T: PathValues + Send, S: Send + Sync> FromRequestParts<S> for PathOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<PathOf<T>> {
        let mismatch =
            || ApiError::internal("a handler takes a different number of parameters than its path has");
        T::of(parameters(parts)?).map(PathOf).ok_or_else(mismatch)
    }
}

/// The parameters of one request that its handler has not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pairs: Vec<(String, String)>,
}

impl Params {
    /// Parses the URL's query.
    ///
    /// # Errors
    /// 400 `invalid_parameter` for text that is not UTF-8, and for more than [`Params::COUNT_MAX`]
    /// parameters.
    pub fn of_query(query: Option<&str>) -> ApiResult<Params> {
        Params::merged(query, b"")
    }

    /// Returns parameters that were members of a JSON object.
    pub fn of_pairs(pairs: Vec<(String, String)>) -> Params {
        Params { pairs }
    }

    /// The most parameters of a request, inclusive. No endpoint accepts more than 32 of one name.
    pub const COUNT_MAX: usize = 1_000;

    /// Parses the URL's query and a form. The content type of the form is ignored, because some
    /// clients send a wrong one.
    ///
    /// # Errors
    /// Those of [`Params::of_query`].
    pub fn merged(query: Option<&str>, form: &[u8]) -> ApiResult<Params> {
        let mut pairs = Vec::new();
        for raw in [query.unwrap_or_default().as_bytes(), form] {
            // The decoder replaces bytes that are not UTF-8 by U+FFFD. The character itself is
            // valid input.
            let legitimate = LazyCell::new(|| count(raw, b"%ef%bf%bd") + count(raw, "\u{fffd}".as_bytes()));
            let replaced = |text: &str| if text.is_ascii() { 0 } else { text.matches('\u{fffd}').count() };
            let mut found = 0;
            for (name, value) in form_urlencoded::parse(raw) {
                found += replaced(&name) + replaced(&value);
                if found > 0 && found > *legitimate {
                    return Err(ApiError::invalid_parameter(shortened(&name), "not valid UTF-8"));
                }
                if pairs.len() == Params::COUNT_MAX {
                    let detail = format!("a request has at most {} parameters", Params::COUNT_MAX);
                    return Err(ApiError::new(Code::InvalidParameter, detail));
                }
                pairs.push((name.into_owned(), value.into_owned()));
            }
        }
        Ok(Params { pairs })
    }

    /// Takes a parameter that may occur once, under any of its names. An empty value counts as
    /// missing.
    ///
    /// # Errors
    /// 400 `duplicate_parameter`.
    pub fn one(&mut self, names: &[&'static str]) -> ApiResult<Option<String>> {
        let mut found: Option<String> = None;
        let mut count = 0;
        self.pairs.retain_mut(|(name, value)| {
            let matches = names.contains(&name.as_str());
            if matches {
                count += 1;
                found = Some(std::mem::take(value));
            }
            !matches
        });
        if count > 1 {
            let name = names.first().copied().unwrap_or_default();
            let message = format!("parameter {name:?} is given {count} times");
            return Err(ApiError::new(Code::DuplicateParameter, message.clone()).with_field(
                name,
                "duplicate",
                message,
            ));
        }
        Ok(found.filter(|value| !value.is_empty()))
    }

    /// Hashes the remaining parameters, except those with these names.
    pub fn hash_without(&self, names: &[&str], hasher: &mut impl Hasher) {
        let others = self.pairs.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        others.for_each(|pair| pair.hash(hasher));
    }

    /// Returns whether a parameter occurs, even with an empty value. Does not take it.
    pub fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(given, _)| given == name)
    }

    /// Takes all values of a repeatable parameter, in their order.
    pub fn many(&mut self, names: &[&'static str]) -> Vec<String> {
        let mut found = Vec::new();
        self.pairs.retain_mut(|(name, value)| {
            let matches = names.contains(&name.as_str());
            if matches {
                found.push(std::mem::take(value));
            }
            !matches
        });
        found
    }

    /// Takes all parameters whose names begin with `prefix`, and returns them without it.
    pub fn take_prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let is_wanted = |pair: &mut (String, String)| pair.0.starts_with(prefix);
        let taken = self.pairs.extract_if(.., is_wanted);
        taken.map(|(name, value)| (name[prefix.len()..].to_owned(), value)).collect()
    }

    /// Takes a time in a format of [`parse_time`].
    ///
    /// # Errors
    /// 400 `duplicate_parameter` and `invalid_parameter`.
    pub fn time(&mut self, name: &'static str, now: Timestamp) -> ApiResult<Option<Timestamp>> {
        let Some(text) = self.one(&[name])? else { return Ok(None) };
        let wrong = || {
            ApiError::invalid_parameter(
                name,
                format!("cannot parse {:?} to a valid timestamp", shortened(&text)),
            )
        };
        parse_time(&text, now).map(Some).ok_or_else(wrong)
    }

    /// Takes a duration in a format of [`parse_span`], and returns milliseconds.
    ///
    /// # Errors
    /// 400 `duplicate_parameter` and `invalid_parameter`.
    pub fn duration_ms(&mut self, name: &'static str) -> ApiResult<Option<i64>> {
        let Some(text) = self.one(&[name])? else { return Ok(None) };
        let wrong = || {
            ApiError::invalid_parameter(
                name,
                format!("cannot parse {:?} to a valid duration", shortened(&text)),
            )
        };
        parse_span(&text).map(Some).ok_or_else(wrong)
    }

    /// Takes a number. `kind` describes the expected values in the error, such as `a whole number`.
    ///
    /// # Errors
    /// 400 `duplicate_parameter` and `invalid_parameter`.
    pub fn number<T: FromStr>(&mut self, name: &'static str, kind: impl Display) -> ApiResult<Option<T>> {
        let Some(text) = self.one(&[name])? else { return Ok(None) };
        let wrong = |_| ApiError::invalid_parameter(name, format!("{:?} is not {kind}", shortened(&text)));
        text.parse().map(Some).map_err(wrong)
    }

    /// Takes a whole number from `least` to `most`, both inclusive.
    ///
    /// # Errors
    /// 400 `duplicate_parameter` and `invalid_parameter`.
    pub fn count(&mut self, name: &'static str, least: usize, most: usize) -> ApiResult<Option<usize>> {
        let kind = std::fmt::from_fn(|f| write!(f, "a whole number from {least} to {most}"));
        let found: Option<usize> = self.number(name, &kind)?;
        match found {
            Some(count) if !(least..=most).contains(&count) => {
                Err(ApiError::invalid_parameter(name, format!("{count} is not {kind}")))
            }
            found => Ok(found),
        }
    }

    /// Returns the names of the remaining parameters, each once, at most ten. `_` is omitted,
    /// because cache busters use it.
    pub fn unknown(&self) -> Vec<String> {
        const NAMED_MAX: usize = 10;
        let mut names: Vec<String> = Vec::new();
        for (name, _) in &self.pairs {
            let name = shortened(name);
            if name != "_" && !names.contains(&name) && names.len() < NAMED_MAX {
                names.push(name);
            }
        }
        names
    }
}

/// Returns how often `needle` occurs in `hay`, without regard to ASCII letter case.
fn count(hay: &[u8], needle: &[u8]) -> usize {
    hay.windows(needle.len()).filter(|window| window.eq_ignore_ascii_case(needle)).count()
}

/// Shortens a client's text to at most 100 bytes and an ellipsis, for use in a response.
pub fn shortened(text: &str) -> String {
    const BYTES_MAX: usize = 100;
    let cut = text.floor_char_boundary(BYTES_MAX);
    let dots = if cut < text.len() { "…" } else { "" };
    format!("{}{dots}", &text[..cut])
}

/// The greatest distance of a time from 1970 in seconds, inclusive, as in Prometheus (web/api/v1,
/// `minTime` and `maxTime`). The constant is 292 million years. Adding any offset or window that
/// PromQL allows does not overflow 64 bits of milliseconds.
const SECONDS_MAX: i64 = i64::MAX / 1_000 - 62_135_596_801;

/// Parses a time: RFC 3339, Unix seconds with fractions (rounded to the millisecond), `now`,
/// `now-15m`, or `now+1h`.
pub fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let limit_ms = SECONDS_MAX * 1_000;
    let within = |at: Timestamp| (-limit_ms..=limit_ms).contains(&at.as_ms()).then_some(at);
    if let Some(rest) = text.strip_prefix("now") {
        let shift = match rest.split_at_checked(1) {
            None => 0,
            Some(("-", ago)) => -parse_duration(ago).ok()?,
            // A plus sign in a URL decodes to a space.
            Some(("+" | " ", ahead)) => parse_duration(ahead).ok()?,
            Some(_) => return None,
        };
        return within(now.plus_ms(shift));
    }
    if let Some(ms) = seconds(text) {
        return within(Timestamp::from_ms(ms));
    }
    // Go's texts of the earliest and the latest time, which Prometheus' clients send.
    match text {
        "-292273086-05-16T16:47:06Z" => Some(Timestamp::from_ms(-limit_ms)),
        "292277025-08-18T07:12:54.999999999Z" | "292277025-08-18T07:12:54.999Z" => {
            Some(Timestamp::from_ms(limit_ms))
        }
        _ => Timestamp::from_rfc3339(text).and_then(within),
    }
}

/// Parses a duration to milliseconds: Prometheus' syntax (`1h30m`), or seconds with fractions,
/// which may be negative and are rounded. The magnitude is at most 2^63 nanoseconds (292 years), as
/// in Prometheus.
pub fn parse_span(text: &str) -> Option<i64> {
    const MS_MAX: i64 = i64::MAX / 1_000_000;
    seconds(text).or_else(|| parse_duration(text).ok()).filter(|ms| (-MS_MAX..=MS_MAX).contains(ms))
}

/// Converts decimal seconds to milliseconds. `inf` and `nan` are not accepted.
fn seconds(text: &str) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E')) {
        return None;
    }
    let ms = (text.parse::<f64>().ok()? * 1_000.0).round();
    // 2^63 is exact as a double; every value strictly within the bounds fits into 64 bits.
    let bound = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within 63 bits")]
    (ms > -bound && ms < bound).then_some(ms as i64)
}

/// Unescapes a label name such as `U__my_2e_label` from Prometheus' clients (`model.UnescapeName`,
/// value encoding): `__` stands for `_`, and `_2e_` for the character with that hexadecimal number.
/// Any other text is returned unchanged.
pub fn unescape_name(name: &str) -> Cow<'_, str> {
    name.strip_prefix("U__").and_then(unescaped).map_or(Cow::Borrowed(name), Cow::Owned)
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('_') {
        out.push_str(plain);
        let (code, after) = after.split_once('_')?;
        match code {
            "" => out.push('_'),
            hex if hex.len() <= 6 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                out.push(u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?);
            }
            _ => return None,
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests;
