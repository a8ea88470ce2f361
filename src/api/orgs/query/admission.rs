//! What a caller may read: the checks of ranges, steps and selectors.

use crate::api::callers::Grant;
use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::model::{MatchOp, Matcher, OrgId, Steps, TimeRange, Timestamp};
use crate::promql::syntax::{Caps, ExpressionCache};
use crate::promql::{self, Query};

/// The most selectors of one request; each is a scan.
const SELECTORS_MAX: usize = 32;

/// Checks every window of a query against an embed token. A query reads more than `start` to `end`:
/// `x[30d]` at one time reads thirty days, and `x[1d:1s]` has a range and a step of its own. The
/// age of samples, `max_lookback_s`, is not checked here, because the snapshot hides older samples.
pub(super) fn admit_windows(grant: &Grant, query: &Query, options: &promql::Options) -> ApiResult<()> {
    if grant.max_range_ms.is_none() && grant.min_step_ms.is_none() {
        return Ok(());
    }
    let refused = |detail: String| Err(ApiError::new(Code::EmbedRestricted, detail));
    for window in promql::windows(query, options) {
        if let Some(most) = grant.max_range_ms.filter(|most| window.range_ms > *most) {
            return refused(format!("this token grants windows of {} s at most", most / 1_000));
        }
        let least = grant.min_step_ms.filter(|least| window.step_ms.is_some_and(|step| step < *least));
        if let Some(least) = least {
            return refused(format!(
                "this token grants subqueries with steps of {} s at least",
                least / 1_000
            ));
        }
    }
    Ok(())
}

/// Checks the lookback of a request against an embed token. An instant selector reads that much
/// time.
pub(super) fn admit_lookback(grant: &Grant, lookback_ms: Option<i64>) -> ApiResult<()> {
    match grant.max_range_ms.filter(|most| lookback_ms.is_some_and(|ms| ms > *most)) {
        Some(most) => {
            let detail = format!("this token grants lookbacks of {} s at most", most / 1_000);
            Err(ApiError::new(Code::EmbedRestricted, detail))
        }
        None => Ok(()),
    }
}

/// Limits the time range of a listing to the range that an embed token grants. A missing bound
/// becomes the widest one granted.
///
/// # Errors
/// 403 `embed_restricted`.
pub(in crate::api::orgs) fn admit_range(
    grant: &Grant,
    range: TimeRange,
    now: Timestamp,
) -> ApiResult<TimeRange> {
    let Some(most) = grant.max_range_ms else { return Ok(range) };
    let end = if range.end == Timestamp::MAX { now.max(range.start) } else { range.end };
    let start = if range.start == Timestamp::MIN { end.plus_ms(-most) } else { range.start };
    if end.ms_since(start) > most {
        let detail = format!("this token grants ranges of {} s at most", most / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    Ok(TimeRange::new(start, end))
}

/// Checks a time range and its step against an embed token.
///
/// # Errors
/// 403 `embed_restricted`.
pub(in crate::api::orgs) fn admit_steps(grant: &Grant, steps: &Steps) -> ApiResult<()> {
    let range_ms = steps.end().ms_since(steps.start());
    if let Some(most) = grant.max_range_ms.filter(|most| range_ms > *most) {
        let detail = format!("this token grants ranges of {} s at most", most / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    if let Some(least) = grant.min_step_ms.filter(|least| steps.step_ms() < *least) {
        let detail = format!("this token grants steps of {} s at least", least / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    Ok(())
}

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
