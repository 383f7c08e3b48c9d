//! Color for texts that people read: on terminals only, and subject to NO_COLOR, FORCE_COLOR and TERM=dumb. It must not know the
//! texts. Runs in the process of a command; startup does not use it.

use std::io::IsTerminal;

use bolide_configuration::diagnostic::Severity;
use bolide_configuration::host_info::HostInfo;

/// Whether a text is colored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    /// For standard output.
    pub fn of(host: &HostInfo) -> Paint {
        Paint { is_on: is_on(&|name| host.variable(name), std::io::stdout().is_terminal()) }
    }

    pub fn title(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Text to type literally: commands, options.
    pub fn name(self, text: &str) -> String {
        self.wrap("36", text)
    }

    /// Less important text.
    pub fn aside(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub fn severity(self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
            Severity::Note => "1;36",
        };
        self.wrap(code, text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.is_on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// no-color.org and force-color.org: a variable counts if it is not empty, and NO_COLOR takes precedence.
fn is_on<'a>(variable: &dyn Fn(&str) -> Option<&'a str>, is_terminal: bool) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    if is_set("NO_COLOR") {
        return false;
    }
    match variable("FORCE_COLOR") {
        Some("0" | "false") => false,
        Some(value) if !value.is_empty() => true,
        _ => is_terminal && variable("TERM") != Some("dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_color_is_for_terminals_and_as_the_environment_asks() {
        type Case = (&'static [(&'static str, &'static str)], bool, bool);
        let cases: &[Case] = &[
            (&[], true, true),
            (&[], false, false),
            (&[("NO_COLOR", "1")], true, false),
            (&[("NO_COLOR", "")], true, true),
            (&[("FORCE_COLOR", "1")], false, true),
            (&[("FORCE_COLOR", "0")], true, false),
            (&[("NO_COLOR", "1"), ("FORCE_COLOR", "1")], true, false),
            (&[("TERM", "dumb")], true, false),
            (&[("TERM", "xterm")], true, true),
        ];
        for (variables, is_terminal, wanted) in cases {
            let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|&(_, value)| value);
            assert_eq!(is_on(&variable, *is_terminal), *wanted, "{variables:?} {is_terminal}");
        }
    }
}
