//! How much work randomised tests do.

/// Returns `thorough` if the variable `PROMLET_TESTS` is `thorough`, as in `.ci/run`, and `quick`
/// otherwise. For the number of seeds, cases or rounds of a test.
#[expect(clippy::disallowed_methods, reason = "a longer run is requested from outside")]
pub(crate) fn rounds<N>(quick: N, thorough: N) -> N {
    if std::env::var_os("PROMLET_TESTS").is_some_and(|value| value == "thorough") { thorough } else { quick }
}
