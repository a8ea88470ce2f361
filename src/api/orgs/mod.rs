//! Everything below `/orgs/{slug}`, one file per resource.
