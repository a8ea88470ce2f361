//! Expressions and selectors that were parsed, kept for the next time that their organisation asks them, as a dashboard does
//! every few seconds: to parse one takes 5 to 20 µs, to copy its tree about one.

use std::sync::Arc;

use super::tree::Expr;
use super::{Caps, SyntaxError, parse, parse_selector};
use crate::model::{Matcher, OrgId, ShelfBounds, Shelves};

/// Some tens of panels of one organisation, or far more: most trees take a tenth of what is counted.
const BOUNDS: ShelfBounds = ShelfBounds { all: 16 << 20, org: 2 << 20, one: 256 << 10 };
/// Some hundreds of selectors of one organisation.
const SELECTOR_BOUNDS: ShelfBounds = ShelfBounds { all: 4 << 20, org: 512 << 10, one: 64 << 10 };
/// What the tree of a text takes at most: `+1` makes two nodes. The matchers of a selector take less.
const BYTES_A_BYTE: usize = 256;
const TREE_BYTES: usize = 1 << 10;

/// Trees by organisation and text, all within the same caps.
#[derive(Debug)]
pub struct KeptExpressions {
    caps: Caps,
    shelves: Shelves<Arc<Expr>>,
    selectors: Shelves<Arc<[Matcher]>>,
}

impl KeptExpressions {
    /// None yet.
    pub fn within(caps: Caps) -> KeptExpressions {
        KeptExpressions {
            caps,
            shelves: Shelves::within(BOUNDS),
            selectors: Shelves::within(SELECTOR_BOUNDS),
        }
    }

    /// As [`parse`], within the caps.
    ///
    /// # Errors
    /// As [`parse`]; what is wrong is read anew each time.
    pub fn parse(&self, org: OrgId, text: &str) -> Result<Expr, SyntaxError> {
        if let Some(kept) = self.shelves.find(org, text) {
            return Ok(Expr::clone(&kept));
        }
        let expr = parse(text, &self.caps)?.expr;
        if let Some(bytes) = bytes_to_keep(text) {
            self.shelves.keep(org, text, Arc::new(expr.clone()), bytes);
        }
        Ok(expr)
    }

    /// As [`parse_selector`], within the caps; of regular expressions only `patterns` are allowed.
    ///
    /// # Errors
    /// As [`parse_selector`]; what is wrong is read anew each time.
    pub fn selector(&self, org: OrgId, text: &str, patterns: usize) -> Result<Vec<Matcher>, SyntaxError> {
        if let Some(kept) = self.selectors.find(org, text) {
            return Ok(kept.to_vec());
        }
        let matchers = parse_selector(text, &Caps { regex_matchers: patterns, ..self.caps })?;
        if let Some(bytes) = bytes_to_keep(text) {
            self.selectors.keep(org, text, matchers.as_slice().into(), bytes);
        }
        Ok(matchers)
    }
}

/// What is counted for what a text was parsed to. None where it has regular expressions: what they take is bounded where
/// they are kept, and would not be here.
fn bytes_to_keep(text: &str) -> Option<usize> {
    let has_patterns = text.contains("=~") || text.contains("!~");
    (!has_patterns).then(|| text.len().saturating_mul(BYTES_A_BYTE).saturating_add(TREE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Binary;
    use super::*;

    #[test]
    fn an_expression_is_the_same_however_often_it_is_asked_and_kept_for_its_organisation_alone() {
        let kept = KeptExpressions::within(Caps::default());
        let text = "sum by (job) (rate(http_requests_total{code=\"500\"}[5m] offset 1h)) / 2";
        let expected = parse(text, &Caps::default()).expect("valid").expr;
        for _ in 0..3 {
            assert_eq!(format!("{:?}", kept.parse(OrgId(1), text).expect("valid")), format!("{expected:?}"));
        }
        assert_eq!((kept.shelves.held(OrgId(1)).0, kept.shelves.held(OrgId(2)).0), (1, 0));
        kept.parse(OrgId(1), "sum(").expect_err("open");
        kept.parse(OrgId(1), "up{job=~\"a.*b\"}").expect("valid");
        assert_eq!(kept.shelves.held(OrgId(1)).0, 1, "no errors, no regular expressions");
        for n in 0..2_000 {
            kept.parse(OrgId(1), &format!("up + {n}")).expect("valid");
        }
        kept.shelves.check_sums();
        assert!(kept.shelves.held(OrgId(1)).0 < 1_000, "the bound was met");
    }

    #[test]
    fn a_selector_is_the_same_however_often_it_is_asked_and_kept_for_its_organisation_alone() {
        let kept = KeptExpressions::within(Caps::default());
        let told = |org, text: &str, patterns| {
            kept.selector(OrgId(org), text, patterns).map(|all| format!("{all:?}"))
        };
        let text = "http_requests_total{code!=\"500\", job=\"api\"}";
        let expected = format!("{:?}", parse_selector(text, &Caps::default()).expect("valid"));
        for _ in 0..3 {
            assert_eq!(told(1, text, 0).as_ref(), Ok(&expected));
        }
        assert_eq!((kept.selectors.held(OrgId(1)).0, kept.selectors.held(OrgId(2)).0), (1, 0));
        for _ in 0..2 {
            told(1, "up{job=~\"a.*b\"}", 1).expect("one is allowed");
            told(1, "up{job=~\"a.*b\"}", 0).expect_err("one too many, however often it was allowed");
            told(1, "up or up", 9).expect_err("no selector");
        }
        assert_eq!(kept.selectors.held(OrgId(1)).0, 1, "no errors, no regular expressions");
        assert_eq!(kept.shelves.held(OrgId(1)).0, 0, "and none of it is an expression");
    }

    #[test]
    fn a_tree_takes_no_more_than_is_counted_for_it() {
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
