//! Selects series: those that the matchers match and that have samples in the range, in order of
//! their labels.

pub(super) mod grouped;
pub(super) mod labels;
pub(super) mod liveness;
pub(super) mod matching;
pub(super) mod sort;
