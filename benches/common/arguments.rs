//! The arguments of a bench after `--`.

use std::str::FromStr;

/// Returns the arguments without those of cargo, such as `--bench`.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect()
}

/// Returns the number at a place, beginning with 0.
///
/// # Panics
/// If the argument at the place is no number.
pub(crate) fn number<N: FromStr>(arguments: &[String], place: usize, default: N) -> N {
    let parsed = |text: &String| text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    arguments.get(place).map_or(default, parsed)
}
