//! How much work randomised tests do.

/// Returns `thorough` if the variable `PROMLET_TESTS` is `thorough`, as in `.ci/run`, and `quick`
/// otherwise. Tests use it for their number of seeds, cases or rounds.
pub(crate) fn rounds<N>(quick: N, thorough: N) -> N {
    if variable("PROMLET_TESTS").is_some_and(|value| value == "thorough") { thorough } else { quick }
}

/// Returns the walks that a variable of the form `first seed,number of seeds,steps` selects: the
/// seeds, and the steps of each. `None` if it is not set.
pub(crate) fn requested_walks(name: &str) -> Option<(std::ops::Range<u64>, u64)> {
    let setting = variable(name)?;
    let numbers: Vec<u64> = setting.split(',').filter_map(|number| number.parse().ok()).collect();
    match *numbers.as_slice() {
        [first, seeds, steps] => Some((first..first + seeds, steps)),
        _ => None,
    }
}

/// Returns a variable of the environment.
#[expect(clippy::disallowed_methods, reason = "a longer run is requested from outside")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
