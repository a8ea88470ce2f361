//! Warns about variables that are set but not read. A typing error such as `PROMLET_SINGUP=closed`
//! would otherwise silently leave a default in force.
//!
//! This is a warning and not a refusal, because other programs set names with the same prefix. A
//! Kubernetes service called `promlet` puts `PROMLET_PORT` and `PROMLET_SERVICE_HOST` into every
//! container, and the backend of a page may keep an API key's secret there.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::CommandLine;

/// The variables that hold secrets, each also with `_FILE`. They have no flags. The variables of
/// sign-in providers follow from their client ids ([`client_secret`]).
const SECRETS: [&str; 6] = [
    "PROMLET_AGENT_TOKEN",
    "PROMLET_BOOTSTRAP_PASSWORD",
    "PROMLET_MASTER_KEY",
    "PROMLET_METRICS_TOKEN",
    "PROMLET_PASSWORD",
    "PROMLET_SMTP_URL",
];
/// The variables that are neither flags nor secrets.
const OTHERS: [&str; 3] = ["PROMLET_ALLOW_CONSOLE_MAIL", "PROMLET_BOOTSTRAP_EMAIL", "PROMLET_BOOTSTRAP_ORG"];

/// The greatest edit distance of a suggested name.
const EDIT_DISTANCE_MAX: usize = 3;

/// Returns a warning for each name in `set` that begins with `PROMLET_` and is not read.
pub(super) fn unread(set: impl Iterator<Item = String>) -> Vec<String> {
    let ours = |name: &String| name.starts_with("PROMLET_") && !is_of_an_orchestrator(name);
    let mut found: Vec<String> = set.filter(ours).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let known = known();
    found.retain(|name| !known.contains(name));
    found.sort_unstable();
    let warning = |name: String| {
        let near = known.iter().map(|one| (letters_between(&name, one), one)).min();
        match near.filter(|(letters, _)| *letters <= EDIT_DISTANCE_MAX) {
            Some((_, one)) => format!("{name} is set but is not a setting: did you mean {one}?"),
            None => format!("{name} is set but is not a setting"),
        }
    };
    found.into_iter().map(warning).collect()
}

fn is_of_an_orchestrator(name: &str) -> bool {
    name == "PROMLET_PORT" || name.starts_with("PROMLET_PORT_") || name.starts_with("PROMLET_SERVICE_")
}

/// Returns every variable that promlet reads.
pub fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = OTHERS.into_iter().map(str::to_owned).collect();
    let mut secrets: Vec<String> = SECRETS.into_iter().map(str::to_owned).collect();
    let mut commands = vec![CommandLine::command()];
    while let Some(command) = commands.pop() {
        for name in command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()) {
            known.insert(name.to_owned());
            secrets.extend(client_secret(name));
        }
        commands.extend(command.get_subcommands().cloned());
    }
    for name in secrets {
        known.extend([format!("{name}_FILE"), name]);
    }
    known
}

/// Returns the variable of the secret that belongs to the client id of a sign-in provider.
fn client_secret(name: &str) -> Option<String> {
    let provider = name.strip_prefix("PROMLET_OAUTH_")?.strip_suffix("_CLIENT_ID")?;
    Some(super::oauth::secret_name(provider))
}

/// Returns the Levenshtein distance of two names.
fn letters_between(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut corner = at;
        let mut left = at + 1;
        for (cell, wanted) in row.iter_mut().skip(1).zip(other.bytes()) {
            let above = *cell;
            left = (corner + usize::from(letter != wanted)).min(above + 1).min(left + 1);
            corner = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(names: &[&str]) -> Vec<String> {
        unread(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn a_variable_that_is_not_read_is_a_warning_with_a_suggestion() {
        assert_eq!(
            warnings(&[
                "PROMLET_SINGUP",
                "PATH",
                "PROMLET_SIGNUP",
                "PROMLET_OAUTH_OIDC_ALOWED_DOMAINS",
                "PROMLET_API_SECRET"
            ]),
            [
                "PROMLET_API_SECRET is set but is not a setting",
                "PROMLET_OAUTH_OIDC_ALOWED_DOMAINS is set but is not a setting: did you mean PROMLET_OAUTH_OIDC_ALLOWED_DOMAINS?",
                "PROMLET_SINGUP is set but is not a setting: did you mean PROMLET_SIGNUP?",
            ]
        );
        let of_kubernetes = ["PROMLET_PORT", "PROMLET_PORT_8095_TCP_ADDR", "PROMLET_SERVICE_HOST"];
        assert_eq!(warnings(&of_kubernetes), Vec::<String>::new());
        assert_eq!(["", "kitten", "ab"].map(|text| letters_between(text, "sitting")), [7, 3, 7]);
    }

    /// clap treats a `bool` as a switch unless told otherwise, while its variable takes a value.
    #[test]
    fn every_flag_that_has_a_variable_takes_a_value_as_the_variable_does() {
        let mut commands = vec![CommandLine::command()];
        let mut checked = 0;
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments().filter(|argument| argument.get_env().is_some()) {
                assert!(argument.get_action().takes_values(), "{} {argument}", command.get_name());
                checked += 1;
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(checked > 100, "{checked} flags");
    }

    /// Every name in the sources is known, as is the file variable of each secret.
    #[test]
    fn every_variable_in_the_sources_is_known() {
        let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let read = |path| std::fs::read_to_string(path).expect("a source file");
        let mut sources = read(src.join("config.rs"));
        for entry in std::fs::read_dir(src.join("config")).expect("a folder") {
            let path = entry.expect("an entry").path();
            // This file names variables that are unknown on purpose.
            if !path.ends_with("variables.rs") {
                sources.push_str(&read(path));
            }
        }
        let mut names: Vec<&str> = sources
            .split("PROMLET_")
            .skip(1)
            .map(|rest| {
                rest.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
                    .next()
                    .unwrap_or_default()
            })
            .filter(|name| name.len() > 3 && !name.ends_with('_'))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() > 40, "{names:?}");
        let names: Vec<String> = names.iter().map(|name| format!("PROMLET_{name}")).collect();
        assert_eq!(unread(names.into_iter()), Vec::<String>::new());
    }
}
