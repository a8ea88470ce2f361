//! Pushed groups of metrics, and totals of streams that send deltas.
