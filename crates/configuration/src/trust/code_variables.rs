//! Variables that choose the code of a program, and whether the file that sets them is root's alone. Runs in the process that
//! reads the configuration.

use std::path::Path;

use super::Writer;

/// Names of such variables: those that sudo removes, and those of usual programs and libraries. A shell finds programs, an
/// interpreter its modules, and a library its plugins and settings by them.
const NAMES: &[&str] = &[
    "ENV",
    "HOME",
    "IFS",
    "PS4",
    "FPATH",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "GLOBIGNORE",
    "ZDOTDIR",
    "NULLCMD",
    "READNULLCMD",
    "TMPPREFIX",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    "TZDIR",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "RESOLV_HOST_CONF",
    "VIRTUAL_ENV",
    "DJANGO_SETTINGS_MODULE",
];
const BEGINNINGS: &[&str] = &[
    "LD_",
    "_RLD",
    "LDR_",
    "DYLD_",
    "PYTHON",
    "PERL",
    "RUBY",
    "NODE_",
    "JAVA_",
    "_JAVA_",
    "JDK_",
    "BASH_",
    "GIT_",
    "OPENSSL_",
    "GLIBC_",
    "MALLOC_",
    "KRB5_",
    "XDG_",
    "GEM_",
    "NPM_",
    "npm_",
    "LUA_",
    "PHP",
    "GTK_",
    "QT_",
    "GCONV_",
    "SSL_CERT_",
    "CURL_",
];
const ENDS: &[&str] = &["PATH", "_HOME", "OPTIONS", "OPTS"];
/// A shell takes a value that begins like this for a function.
const FUNCTION: &str = "()";

/// Returns whether a variable decides which code or settings a program loads.
pub fn chooses_code(name: &str, value: &str) -> bool {
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || ENDS.iter().any(|end| name.ends_with(end))
        || value.trim_start().starts_with(FUNCTION)
}

/// Returns whether a user other than root may write the file: the application's, or the owner of it or of a directory above it.
pub fn is_foreign(path: &Path, writer: &Writer) -> bool {
    writer.weak_point(path).is_some() || super::foreign_place(path).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_choose_code_are_known_by_name_and_by_value() {
        for name in ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "BASH_ENV", "PERL5OPT", "NODE_OPTIONS", "CLASSPATH"] {
            assert!(chooses_code(name, "x"), "{name}");
        }
        assert!(chooses_code("x", "() { :; }; id"));
        for name in ["TZ", "LANG", "DATABASE_URL", "SECRET_KEY", "DEBUG", "PORT"] {
            assert!(!chooses_code(name, "x"), "{name}");
        }
    }
}
