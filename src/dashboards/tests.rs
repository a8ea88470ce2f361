//! Values of variables in queries.
