//! The selectors of a request: their parsing, their limits, and the memory of their patterns.

use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult};
use crate::model::{MatchOp, Matcher, OrgId};
use crate::promql::syntax::{Caps, ExpressionCache};

/// The most selectors of one request; each is a scan.
const SELECTORS_MAX: usize = 32;

/// Parses at most `SELECTORS_MAX` selectors. All of them together may have as many regular
/// expressions as one expression.
///
/// # Errors
/// 400 `bad_expr` and `invalid_parameter`.
pub(in crate::api::orgs) fn selectors(
    cache: &ExpressionCache,
    org: OrgId,
    texts: &[String],
    parameter: &'static str,
    caps: &Caps,
) -> ApiResult<Vec<Vec<Matcher>>> {
    if texts.len() > SELECTORS_MAX {
        let message = format!("{} selectors, more than the {SELECTORS_MAX} allowed", texts.len());
        return Err(ApiError::invalid_parameter(parameter, message));
    }
    let mut patterns_left = caps.regex_matchers;
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        let matchers =
            cache.selector(org, text, patterns_left).map_err(|error| bad_expression(parameter, &error))?;
        patterns_left = patterns_left.saturating_sub(patterns(&matchers));
        all.push(matchers);
    }
    Ok(all)
}

/// Returns the bytes of the compiled patterns of selectors, and of searches with them.
pub(in crate::api::orgs) fn pattern_bytes(selectors: &[impl AsRef<[Matcher]>]) -> usize {
    selectors.iter().flat_map(|matchers| matchers.as_ref()).map(Matcher::pattern_bytes).sum()
}

/// Returns the number of regular expressions among `matchers`. As in an expression, an alternation
/// of literals counts as a set and not as a regular expression.
pub(in crate::api::orgs) fn patterns(matchers: &[Matcher]) -> usize {
    let is_set = |pattern: &str| pattern.chars().all(|c| c.is_alphanumeric() || " _-/:,|".contains(c));
    let is_pattern = |op| matches!(op, MatchOp::Regex | MatchOp::NotRegex);
    matchers.iter().filter(|matcher| is_pattern(matcher.op()) && !is_set(matcher.value())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_literals_do_not_count_as_patterns() {
        let of = |text: &str| patterns(&[Matcher::new("a", MatchOp::Regex, text).expect("valid")]);
        assert_eq!((of("api|web-1|a:b"), of("api.*"), of("(a|b)"), of("")), (0, 1, 1, 0));
        assert_eq!(patterns(&[Matcher::equal("a", ".*")]), 0);
    }
}
