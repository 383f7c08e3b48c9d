//! Which files are configurations of vassals, and how one is named on a command line. Pure functions. The emperor runs them.

/// The endings of configurations, each with the option that reads it. uWSGI knows the same.
const KINDS: [(&str, &str); 6] =
    [(".xml", "--xml"), (".ini", "--ini"), (".yml", "--yaml"), (".yaml", "--yaml"), (".js", "--json"), (".json", "--json")];
/// The option for the endings of `emperor-extra-extension`.
const OTHER: &str = "--ini";

/// Bytes of the name of a vassal, as in uWSGI.
const MAX_NAME_BYTES: usize = 254;

/// Returns the option that reads a file of this name, or `None` if it is not a configuration. `extensions` are those of
/// `emperor-extra-extension`.
pub fn option_of(name: &str, extensions: &[String]) -> Option<&'static str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let is_extra = extensions.iter().any(|extension| !extension.is_empty() && name.ends_with(extension.as_str()));
    let known = KINDS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, option)| *option);
    if is_extra { Some(OTHER) } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_known_by_its_ending_alone() {
        let extra = [".conf".to_owned(), String::new()];
        for (name, option) in [
            ("one.ini", Some("--ini")),
            (".hidden.ini", Some("--ini")),
            ("/srv/one/uwsgi.xml", Some("--xml")),
            ("one.yml", Some("--yaml")),
            ("one.yaml", Some("--yaml")),
            ("one.js", Some("--json")),
            ("one.json", Some("--json")),
            ("one.conf", Some("--ini")),
            ("one.ini.bak", None),
            ("one.ini~", None),
            ("one.txt", None),
            ("one.skel", None),
            ("ini", None),
            ("", None),
        ] {
            assert_eq!(option_of(name, &extra), option, "{name}");
        }
        assert_eq!(option_of(&format!("{}.ini", "x".repeat(251)), &[]), None);
    }
}
