//! `UWSGI_…` and `BOLIDE_…` variables: `UWSGI_HTTP_SOCKET=:8080` is `http-socket = :8080`. Pure functions over text.

/// Variables that uWSGI sets for its own child processes, and those of Bolide.
const NOT_OPTIONS: &[&str] = &[
    "UWSGI_RELOADS",
    "UWSGI_VASSALS_DIR",
    "UWSGI_EMPEROR_FD",
    "UWSGI_BROODLORD_NUM",
    "UWSGI_EMPEROR_FD_CONFIG",
    "UWSGI_EMPEROR_PROXY",
    "UWSGI_JAIL_PID",
    "UWSGI_ORIGINAL_PROC_NAME",
    "BOLIDE_SHARED",
];

/// Prefixes of variables that are options.
const PREFIXES: &[&str] = &["UWSGI_", "BOLIDE_"];

/// Returns the option and the value for a variable.
pub fn pair(variable: &str, value: &str) -> Option<(String, String)> {
    if NOT_OPTIONS.contains(&variable) {
        return None;
    }
    let name = PREFIXES.iter().find_map(|prefix| variable.strip_prefix(prefix))?;
    Some((name.to_ascii_lowercase().replace('_', "-"), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn test_variables_become_options() {
        let pair = |variable, value| super::pair(variable, value).map(|(key, _)| key);
        assert_eq!(pair("UWSGI_HTTP_SOCKET", ":8080").as_deref(), Some("http-socket"));
        assert_eq!(pair("BOLIDE_PROCESSES", "4").as_deref(), Some("processes"));
        assert_eq!(pair("UWSGI_RELOADS", "1"), None);
        assert_eq!(pair("PATH", "/bin"), None);
        assert_eq!(super::pair("UWSGI_ENV", "A_B=C_D"), Some(("env".to_owned(), "A_B=C_D".to_owned())));
    }
}
