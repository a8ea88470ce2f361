//! A cache of parsed expressions and selectors per organisation. A dashboard sends the same ones
//! every few seconds. Parsing one takes 5 to 20 µs. Its tree is shared by its queries.

use std::sync::Arc;

use super::tree::Expr;
use super::{Caps, SyntaxError, parse, parse_selector};
use crate::model::{LruBounds, Matcher, OrgId, OrgLru, Pattern};

/// Bounds in bytes: room for about a thousand expressions of one organisation, of which a large
/// dashboard has some hundreds.
const BOUNDS: LruBounds = LruBounds { all: 16 << 20, org: 2 << 20, one: 256 << 10 };
/// Bounds in bytes: room for some hundreds of selectors of one organisation.
const SELECTOR_BOUNDS: LruBounds = LruBounds { all: 4 << 20, org: 512 << 10, one: 64 << 10 };
/// The bytes counted for an entry in addition to its texts and its tree. They include the overhead
/// of the allocator, and bound the number of entries.
const ENTRY_BYTES: usize = 1 << 10;

/// Parsed expressions and selectors by organisation and text, all within the same caps.
#[derive(Debug)]
pub struct ExpressionCache {
    caps: Caps,
    expressions: OrgLru<Arc<Expr>>,
    selectors: OrgLru<Arc<[Matcher]>>,
}

impl ExpressionCache {
    /// Returns an empty cache whose texts are parsed within `caps`.
    pub fn new(caps: Caps) -> ExpressionCache {
        ExpressionCache { caps, expressions: OrgLru::new(BOUNDS), selectors: OrgLru::new(SELECTOR_BOUNDS) }
    }

    /// Like [`parse`], within the caps and cached.
    ///
    /// # Errors
    /// The errors of [`parse`]. Errors are not cached.
    pub fn parse(&self, org: OrgId, text: &str) -> Result<Arc<Expr>, SyntaxError> {
        if let Some(cached) = self.expressions.get(org, text) {
            return Ok(cached);
        }
        let expr = parse(text, &self.caps)?.expr;
        // A search with a compiled pattern needs buffers that grow (`PatternCache`).
        let has_compiled = |matcher: &Matcher| matcher.pattern().is_some_and(Pattern::is_compiled);
        if !expr.selectors().into_iter().flatten().any(has_compiled) {
            // A clone has no spare capacity.
            let cached = Arc::new(expr.clone());
            let bytes = ENTRY_BYTES + text.len() + cached.memory_usage();
            self.expressions.insert(org, text, Arc::clone(&cached), bytes);
            return Ok(cached);
        }
        Ok(Arc::new(expr))
    }

    /// Like [`parse_selector`], within the caps and cached, with at most `patterns` regular
    /// expressions.
    ///
    /// # Errors
    /// The errors of [`parse_selector`]. Errors are not cached.
    pub fn selector(&self, org: OrgId, text: &str, patterns: usize) -> Result<Vec<Matcher>, SyntaxError> {
        if let Some(cached) = self.selectors.get(org, text) {
            return Ok(cached.to_vec());
        }
        let matchers = parse_selector(text, &Caps { regex_matchers: patterns, ..self.caps })?;
        // Sets do not count as regular expressions.
        let is_set = |pattern: &Pattern| pattern.set_matches().is_some();
        if matchers.iter().all(|matcher| matcher.pattern().is_none_or(is_set)) {
            let bytes = matchers.iter().map(|matcher| size_of::<Matcher>() + matcher.memory_usage());
            let bytes = ENTRY_BYTES + text.len() + bytes.sum::<usize>();
            self.selectors.insert(org, text, matchers.as_slice().into(), bytes);
        }
        Ok(matchers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Aggregate, Binary, MatrixSelector, Subquery, Term};
    use super::*;

    #[test]
    fn a_cached_expression_equals_a_parsed_one_and_belongs_to_one_organisation() {
        let cache = ExpressionCache::new(Caps::default());
        let text = "sum by (job) (rate(http_requests_total{code=\"500\"}[5m] offset 1h)) / 2";
        let expected = parse(text, &Caps::default()).expect("valid").expr;
        for _ in 0..3 {
            assert_eq!(format!("{:?}", cache.parse(OrgId(1), text).expect("valid")), format!("{expected:?}"));
        }
        assert_eq!((cache.expressions.held(OrgId(1)).0, cache.expressions.held(OrgId(2)).0), (1, 0));
        cache.parse(OrgId(1), "sum(").expect_err("open");
        cache.parse(OrgId(1), "up{job=~\"a.*b\"}").expect("valid");
        assert_eq!(cache.expressions.held(OrgId(1)).0, 1, "no errors, no regular expressions");
        for n in 0..4_000 {
            cache.parse(OrgId(1), &format!("up + {n}")).expect("valid");
        }
        cache.expressions.check_sums();
        assert!(cache.expressions.held(OrgId(1)).0 < 2_000, "the bound was reached");
    }

    #[test]
    fn a_cached_selector_equals_a_parsed_one_and_belongs_to_one_organisation() {
        let cache = ExpressionCache::new(Caps::default());
        let render = |org, text: &str, patterns| {
            cache.selector(OrgId(org), text, patterns).map(|all| format!("{all:?}"))
        };
        let text = "http_requests_total{code!=\"500\", job=\"api\"}";
        let expected = format!("{:?}", parse_selector(text, &Caps::default()).expect("valid"));
        for _ in 0..3 {
            assert_eq!(render(1, text, 0).as_ref(), Ok(&expected));
        }
        assert_eq!((cache.selectors.held(OrgId(1)).0, cache.selectors.held(OrgId(2)).0), (1, 0));
        for _ in 0..2 {
            render(1, "up{job=~\"a.*b\"}", 1).expect("one is allowed");
            render(1, "up{job=~\"a.*b\"}", 0).expect_err("one too many, also if it is cached");
            render(1, "up or up", 9).expect_err("no selector");
        }
        assert_eq!(cache.selectors.held(OrgId(1)).0, 1, "no errors, no regular expressions");
        assert_eq!(cache.expressions.held(OrgId(1)).0, 0, "selectors are not expressions");
    }

    #[test]
    fn expressions_and_selectors_with_sets_are_cached_and_those_with_compiled_patterns_are_not() {
        let cache = ExpressionCache::new(Caps::default());
        let entries = |text: &str| {
            cache.parse(OrgId(1), text).expect("valid");
            cache.selector(OrgId(1), text, 1).expect("valid");
            (cache.expressions.held(OrgId(1)).0, cache.selectors.held(OrgId(1)).0)
        };
        assert_eq!(entries("up{job=~\"api|web\"}"), (1, 1));
        // A prefix counts as a regular expression, of which a request may have fewer.
        assert_eq!(entries("up{job=~\"api.*\"}"), (2, 1));
        assert_eq!(entries("up{job=~\"a.*b\"}"), (2, 1));
    }

    #[test]
    fn the_expressions_of_a_large_dashboard_are_cached_together() {
        let cache = ExpressionCache::new(Caps::default());
        let text = |n: u32| {
            format!(
                "sum by (instance, mode) (rate(node_cpu_seconds_total{{instance=\"$node\",job=\"$job\"}}[4m])) \
                 / on (instance) group_left sum by (instance) (node_memory_bytes{{instance=\"$node\"}}) * {n}"
            )
        };
        for n in 0..500 {
            cache.parse(OrgId(1), &text(n)).expect("valid");
        }
        assert_eq!(cache.expressions.held(OrgId(1)).0, 500);
    }

    #[test]
    fn the_memory_of_an_expression_contains_all_parts() {
        let usage = |text: &str| parse(text, &Caps::default()).expect("valid").expr.clone().memory_usage();
        let x = usage("x");
        assert!(x > size_of::<Expr>() + size_of::<Matcher>());
        // The first text has a part more than the second one, and at least these bytes more.
        let parts = [
            ("-x", "x", size_of::<Expr>()),
            ("x{a=\"bc\"}", "x", size_of::<Matcher>() + 3),
            ("x{a=~\"b|c\"}", "x{a=\"b|c\"}", 2 * size_of::<Box<str>>()),
            ("x offset (1m + 2m)", "x offset 3m", 3 * size_of::<Term>()),
            ("x[5m]", "x", size_of::<MatrixSelector>()),
            ("x[(1m + 2m)]", "x[3m]", 3 * size_of::<Term>()),
            ("x[5m:1m]", "x", size_of::<Subquery>()),
            ("x + x", "x", x + size_of::<Binary>()),
            ("x + on (a, bc) x", "x + x", 2 * size_of::<String>() + 3),
            ("x + on (a) group_left (b) x", "x + on (a) x", size_of::<String>() + 1),
            ("abs(x)", "x", size_of::<Expr>() + 3),
            ("sum(x)", "x", size_of::<Aggregate>()),
            ("sum by (a, bc) (x)", "sum(x)", 2 * size_of::<String>() + 3),
            ("count_values(\"abc\", x)", "count(x)", size_of::<Expr>() + 3),
        ];
        for (longer, shorter, bytes) in parts {
            let (more, less) = (usage(longer), usage(shorter));
            assert!(more >= less + bytes, "{longer}: {more}, {shorter}: {less}, at least {bytes} more");
        }
    }
}
