//! Samples in and out of files, and the blocks of Prometheus.
