//! Recording and alerting rules.
