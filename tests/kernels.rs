//! The evaluator against an oracle: the plainest evaluation there is, one step after the other, one sample after the
//! other, over samples that lie in a map. It shares nothing with the evaluator but the parser; the formulas are written
//! down again. What both answer is compared bit by bit.

#[path = "kernels/data.rs"]
mod data;
#[path = "kernels/expressions.rs"]
mod expressions;
#[path = "kernels/kept.rs"]
mod kept;
#[path = "kernels/laws.rs"]
#[expect(clippy::panic, reason = "helpers of tests give up as tests do")]
mod laws;
#[path = "kernels/native.rs"]
mod native;
#[path = "kernels/oracle.rs"]
mod oracle;
#[path = "kernels/windows.rs"]
mod windows;
