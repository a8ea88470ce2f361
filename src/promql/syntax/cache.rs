//! A cache of parsed expressions and selectors per organisation. A dashboard sends the same ones
//! every few seconds. Parsing one takes 5 to 20 µs, cloning its tree about 1 µs.

use std::sync::Arc;

use super::tree::Expr;
use super::{Caps, SyntaxError, parse, parse_selector};
use crate::model::{LruBounds, Matcher, OrgId, OrgLru};

/// Bounds in bytes: room for some tens of panels of one organisation at least, as most trees take a
/// tenth of the bytes counted.
const BOUNDS: LruBounds = LruBounds { all: 16 << 20, org: 2 << 20, one: 256 << 10 };
/// Bounds in bytes: room for some hundreds of selectors of one organisation.
const SELECTOR_BOUNDS: LruBounds = LruBounds { all: 4 << 20, org: 512 << 10, one: 64 << 10 };
/// The most bytes of a tree for each byte of its text: `+1` makes two nodes. The matchers of a
/// selector take fewer.
const BYTES_A_BYTE: usize = 256;
/// The bytes of a tree that do not depend on its text.
const TREE_BYTES: usize = 1 << 10;

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
    pub fn parse(&self, org: OrgId, text: &str) -> Result<Expr, SyntaxError> {
        if let Some(cached) = self.expressions.get(org, text) {
            return Ok(Expr::clone(&cached));
        }
        let expr = parse(text, &self.caps)?.expr;
        if let Some(bytes) = entry_bytes(text) {
            self.expressions.insert(org, text, Arc::new(expr.clone()), bytes);
        }
        Ok(expr)
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
        if let Some(bytes) = entry_bytes(text) {
            self.selectors.insert(org, text, matchers.as_slice().into(), bytes);
        }
        Ok(matchers)
    }
}

/// Returns the bytes counted for a parsed text. `None` if it has regular expressions, which are not
/// cached here: their memory is bounded in the cache of patterns.
fn entry_bytes(text: &str) -> Option<usize> {
    let has_patterns = text.contains("=~") || text.contains("!~");
    (!has_patterns).then(|| text.len().saturating_mul(BYTES_A_BYTE).saturating_add(TREE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Binary;
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
        for n in 0..2_000 {
            cache.parse(OrgId(1), &format!("up + {n}")).expect("valid");
        }
        cache.expressions.check_sums();
        assert!(cache.expressions.held(OrgId(1)).0 < 1_000, "the bound was reached");
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
    fn a_tree_is_no_larger_than_the_bytes_counted_for_it() {
        let chain = |piece: &str, count: usize| format!("1{}", piece.repeat(count));
        let wrapped = |open: &str, count: usize| format!("{}x{}", open.repeat(count), ")".repeat(count));
        let texts = [
            "1".to_owned(),
            "x".to_owned(),
            chain("+1", 256),
            chain("/-1", 200),
            wrapped("(", 60),
            wrapped("ln(", 60),
        ];
        for text in texts {
            let expr = parse(&text, &Caps::default()).expect("within the caps").expr;
            let of_node = |node: &Expr| match node {
                Expr::Binary(_) => size_of::<Expr>() + size_of::<Binary>(),
                _ => size_of::<Expr>(),
            };
            let bytes: usize = expr.nodes().map(of_node).sum();
            assert!(bytes <= text.len() * BYTES_A_BYTE + TREE_BYTES, "{text}: {bytes}");
        }
    }
}
