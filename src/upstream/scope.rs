//! The matchers that a caller cannot remove, as a part of the query that is sent.
//!
//! The scope's matchers precede those of the query: `absent` takes its labels from matchers for
//! equality, and one that follows another of the same label would remove it.

use crate::model::{METRIC_NAME, MatchOp, Matcher, NameGlob, Pattern, PatternError, Scope};
use crate::promql::syntax::tree::{DurationExpr, Expr, QueryTimes, VectorSelector};

/// The reason why a query cannot be sent to another server: 422 `upstream_unsupported`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Matchers that are put into every selector.
#[derive(Clone, Debug, Default)]
pub struct ForcedMatchers(Vec<Matcher>);

impl ForcedMatchers {
    /// Returns the matchers of a scope, without its time, and of the tenant.
    ///
    /// # Errors
    /// [`PatternError`], if a list of names is too large to be one regular expression.
    pub fn of(scope: &Scope, tenant: Option<&Matcher>) -> Result<ForcedMatchers, PatternError> {
        let mut all: Vec<Matcher> = tenant.into_iter().cloned().collect();
        all.extend(scope.matchers.iter().cloned());
        for list in &scope.names {
            if list.is_empty() {
                // No name passes. No server has a series with two names.
                all.extend(["a", "b"].map(|name| Matcher::equal(METRIC_NAME, name)));
                continue;
            }
            let pattern = list.iter().map(pattern_of).collect::<Vec<_>>().join("|");
            all.push(Matcher::new(METRIC_NAME, MatchOp::Regex, &pattern)?);
        }
        Ok(ForcedMatchers(all))
    }

    /// Returns the matchers.
    pub fn matchers(&self) -> &[Matcher] {
        &self.0
    }

    /// Returns whether the scope has no matchers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an expression in which every selector has these matchers. All durations are numbers.
    /// A subquery without a step gets `subquery_step_ms`, because the default of the server may be
    /// another one.
    ///
    /// # Errors
    /// [`Unsupported`] if the expression reads series without a selector.
    pub fn restrict(
        &self,
        expr: &Expr,
        times: QueryTimes,
        subquery_step_ms: i64,
    ) -> Result<Expr, Unsupported> {
        let calls = |name: &str| {
            expr.nodes().any(|node| matches!(node, Expr::Call(call) if call.name.eq_ignore_ascii_case(name)))
        };
        if !self.is_empty() && calls("info") {
            let why = "info() selects series by itself, which cannot be restricted on the upstream";
            return Err(Unsupported(why.to_owned()));
        }
        let is_absent = calls("absent") || calls("absent_over_time");
        let forced = if is_absent { self.without_equality()? } else { self.0.clone() };
        let add = |selector: &mut VectorSelector| {
            // An equal matcher of the query itself is enough; `absent` shows its label.
            let all = self.0.iter().zip(&forced);
            let missing = all.filter(|(original, _)| !contains(&selector.matchers, original));
            let missing: Vec<Matcher> = missing.map(|(_, forced)| forced.clone()).collect();
            selector.matchers.splice(0..0, missing);
        };
        let mut wrong = None;
        let mut fix = |duration: &mut DurationExpr, is_offset: bool| {
            let ms = if is_offset { duration.offset_ms(times) } else { duration.positive_ms(times) };
            match ms {
                Ok(ms) => *duration = DurationExpr::Fixed(ms),
                Err(error) => wrong = Some(Unsupported(error.to_string())),
            }
        };
        let mut restricted = expr.clone();
        restricted.visit_mut(&mut |node| match node {
            Expr::Vector(selector) => {
                add(selector);
                fix(&mut selector.offset, true);
            }
            Expr::Matrix(matrix) => {
                add(&mut matrix.selector);
                fix(&mut matrix.selector.offset, true);
                fix(&mut matrix.range, false);
            }
            Expr::Subquery(subquery) => {
                fix(&mut subquery.range, false);
                fix(&mut subquery.offset, true);
                match &mut subquery.step {
                    Some(step) => fix(step, false),
                    step => *step = Some(DurationExpr::Fixed(subquery_step_ms)),
                }
            }
            _ => {}
        });
        wrong.map_or(Ok(restricted), Err)
    }

    /// Returns the matchers with each equality as a regular expression of the same values. The
    /// result of `absent` then has no labels of them.
    fn without_equality(&self) -> Result<Vec<Matcher>, Unsupported> {
        let of = |matcher: &Matcher| match matcher.op() {
            MatchOp::Equal => Matcher::new(matcher.name(), MatchOp::Regex, &Pattern::escape(matcher.value())),
            _ => Ok(matcher.clone()),
        };
        self.0.iter().map(of).collect::<Result<_, _>>().map_err(|error| Unsupported(error.to_string()))
    }

    /// Returns the texts of selectors with these matchers; of one that selects all series if there
    /// are no `selectors`.
    pub fn selectors(&self, selectors: &[Vec<Matcher>]) -> Vec<String> {
        let of = |own: &[Matcher]| {
            let mut matchers = self.0.clone();
            matchers.extend_from_slice(own);
            // Servers refuse a selector that may match the empty label set.
            if matchers.iter().all(|matcher| matcher.matches("")) {
                matchers.extend(Matcher::new(METRIC_NAME, MatchOp::NotEqual, ""));
            }
            Expr::selector(matchers).to_string()
        };
        match selectors.is_empty() {
            true => vec![of(&[])],
            false => selectors.iter().map(|own| of(own)).collect(),
        }
    }
}

fn contains(matchers: &[Matcher], wanted: &Matcher) -> bool {
    matchers.iter().any(|matcher| {
        (matcher.name(), matcher.op(), matcher.value()) == (wanted.name(), wanted.op(), wanted.value())
    })
}

/// Returns a regular expression that matches exactly the names of a glob.
fn pattern_of(glob: &NameGlob) -> String {
    glob.as_str().split('*').map(Pattern::escape).collect::<Vec<_>>().join(".*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Features;
    use crate::promql::syntax::{Caps, parse};

    fn printed(text: &str, scope: &Scope) -> Result<String, Unsupported> {
        let forced = ForcedMatchers::of(scope, None).expect("patterns");
        let caps = Caps { features: Features::ALL, ..Caps::default() };
        let expr = parse(text, &caps).unwrap_or_else(|error| panic!("{text}: {error}")).expr;
        let times = QueryTimes { step_ms: 15_000, range_ms: 60_000 };
        Ok(forced.restrict(&expr, times, 60_000)?.to_string())
    }

    fn tenant_a() -> Scope {
        Scope { matchers: vec![Matcher::equal("tenant", "a\"b")], ..Scope::default() }
    }

    #[test]
    fn every_selector_gets_the_matchers_and_no_other_text() {
        let m = r#"tenant="a\"b""#;
        for (text, expected) in [
            ("up", format!("up{{{m}}}")),
            (
                "sum(rate(x{job=\"a\"}[5m] offset 1m)) / y",
                format!("sum(rate(x{{{m}, job=\"a\"}}[5m] offset 1m)) / y{{{m}}}"),
            ),
            ("max_over_time(x[1h:])", format!("max_over_time(x{{{m}}}[1h:1m])")),
            ("x{tenant=\"b\"}", format!("x{{{m}, tenant=\"b\"}}")),
            ("topk(scalar(k), x) or vector(1)", format!("topk(scalar(k{{{m}}}), x{{{m}}}) or vector(1)")),
            ("{__name__=~\"a|b\"}", format!("{{{m}, __name__=~\"a|b\"}}")),
            ("1 + 2", "1 + 2".to_owned()),
        ] {
            assert_eq!(printed(text, &tenant_a()).expect("supported"), expected, "{text}");
        }
    }

    #[test]
    fn absent_shows_no_label_of_the_scope() {
        let found = printed("absent(x{tenant=\"c\"})", &tenant_a()).expect("supported");
        assert_eq!(found, r#"absent(x{tenant=~"a\"b", tenant="c"})"#);
        let found = printed("absent(x{tenant=\"a\\\"b\"})", &tenant_a()).expect("supported");
        assert_eq!(found, r#"absent(x{tenant="a\"b"})"#);
    }

    #[test]
    fn lists_of_names_are_patterns() {
        let globs = |texts: &[&str]| texts.iter().map(|text| NameGlob::new(text)).collect::<Vec<_>>();
        let scope = |names| Scope { names, ..Scope::default() };
        let found = printed("up", &scope(vec![globs(&["http_*", "a.b"])])).expect("supported");
        assert_eq!(found, r#"{__name__=~"http_.*|a\\.b", __name__="up"}"#);
        let found = printed("up", &scope(vec![Vec::new()])).expect("supported");
        assert_eq!(found, r#"{__name__="a", __name__="b", __name__="up"}"#);
    }

    #[test]
    fn a_restricted_caller_cannot_use_info() {
        assert!(printed("info(up)", &tenant_a()).is_err());
        assert!(printed("sum(info(up, {version=\"1\"}))", &tenant_a()).is_err());
        assert!(printed("info(up)", &Scope::default()).is_ok());
    }

    #[test]
    fn a_selector_of_a_listing_never_matches_everything_by_itself() {
        let of = |scope: &Scope, own: &[Vec<Matcher>]| {
            ForcedMatchers::of(scope, None).expect("patterns").selectors(own)
        };
        assert_eq!(of(&Scope::default(), &[]), [r#"{__name__!=""}"#]);
        assert_eq!(of(&tenant_a(), &[]), [r#"{tenant="a\"b"}"#]);
        assert_eq!(of(&tenant_a(), &[vec![Matcher::equal(METRIC_NAME, "up")]]), [r#"up{tenant="a\"b"}"#]);
        let other = Scope {
            matchers: vec![Matcher::new("env", MatchOp::NotEqual, "prod").expect("valid")],
            ..Scope::default()
        };
        assert_eq!(of(&other, &[]), [r#"{env!="prod", __name__!=""}"#]);
    }
}
