//! The evaluator compared, to the bit, with an oracle: the simplest evaluation, step by step and
//! sample by sample, over samples in a map. The oracle shares only the parser with the evaluator;
//! the formulas are implemented independently.

#[path = "kernels/data.rs"]
mod data;
#[path = "kernels/expressions.rs"]
mod expressions;
#[path = "kernels/laws.rs"]
#[expect(clippy::panic, reason = "test helpers may panic like tests")]
mod laws;
#[path = "kernels/native.rs"]
mod native;
#[path = "kernels/oracle.rs"]
mod oracle;
#[path = "../src/kv/scratch.rs"]
mod scratch;
#[path = "kernels/split.rs"]
mod split;
#[path = "kernels/subquery_cache.rs"]
mod subquery_cache;
#[path = "kernels/windows.rs"]
mod windows;
