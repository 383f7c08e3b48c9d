//! Completions for shells: the commands, and every option that does something.

use std::fmt::Write;

use crate::catalogue::catalogue;
use crate::catalogue::row::{Argument, Row, Status, Value};
use crate::command_table::Command;

/// The script for a shell; `None` for one that is not known.
pub fn script(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

/// Names worth completing: all of what is supported or accepted.
fn names() -> impl Iterator<Item = (&'static Row, &'static str)> {
    let rows = catalogue().rows().iter().filter(|row| matches!(row.status, Status::Supported(_) | Status::Accepted(_)));
    rows.flat_map(|row| row.names.iter().map(move |&name| (row, name)))
}

fn commands() -> String {
    Command::ALL.into_iter().map(|command| command.name()).collect::<Vec<_>>().join(" ")
}

fn bash() -> String {
    let options = names().map(|(_, name)| format!("--{name}")).collect::<Vec<_>>().join(" ");
    let bare = catalogue().names().collect::<Vec<_>>().join(" ");
    format!(
        "_bolide() {{\n    local word=${{COMP_WORDS[COMP_CWORD]}}\n    case ${{COMP_WORDS[1]}} in\n\
         \x20       explain|options) [ \"$COMP_CWORD\" -gt 1 ] && {{ COMPREPLY=($(compgen -W '{bare}' -- \"$word\")); return; }} ;;\n\
         \x20       completions) [ \"$COMP_CWORD\" -gt 1 ] && {{ COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return; }} ;;\n    esac\n\
         \x20   case $word in\n        -*) COMPREPLY=($(compgen -W '{options}' -- \"$word\")) ;;\n\
         \x20       *) COMPREPLY=($(compgen -f -- \"$word\"))\n           [ \"$COMP_CWORD\" -eq 1 ] && COMPREPLY+=($(compgen -W '{}' -- \"$word\")) ;;\n    esac\n}}\n\
         complete -o filenames -F _bolide bolide\n",
        commands()
    )
}

fn zsh() -> String {
    let mut text = "#compdef bolide\n_arguments \\\n".to_owned();
    // Writing to a String can't fail.
    for (row, name) in names() {
        let help = row.help.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
        let action = match row.value {
            Value::Path => ":path:_files".to_owned(),
            Value::OneOf(words) => format!(":value:({})", words.join(" ")),
            _ => ":value: ".to_owned(),
        };
        let _ = match row.argument {
            Argument::None => writeln!(text, "  '*--{name}[{help}]' \\"),
            Argument::Optional => writeln!(text, "  '*--{name}=-[{help}]:{action}' \\"),
            Argument::Required => writeln!(text, "  '*--{name}=[{help}]{action}' \\"),
        };
    }
    let _ = writeln!(
        text,
        "  '1:command or file:_alternative \"commands:command:({})\" \"files:file:_files\"' \\\n  '*:file:_files'",
        commands()
    );
    text
}

fn fish() -> String {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let mut text = String::new();
    // Writing to a String can't fail.
    for command in Command::ALL {
        let _ =
            writeln!(text, "complete -c bolide -n __fish_use_subcommand -a {} -d '{}'", command.name(), quote(command.help()));
    }
    for (row, name) in names() {
        let required = match (row.argument, row.value) {
            (Argument::Required, Value::OneOf(words)) => format!(" -x -a '{}'", words.join(" ")),
            (Argument::Required, _) => " -r".to_owned(),
            _ => String::new(),
        };
        let letter =
            row.letters.iter().find(|(_, owner)| *owner == name).map(|(letter, _)| format!(" -s {letter}")).unwrap_or_default();
        let _ = writeln!(text, "complete -c bolide -l {name}{letter}{required} -d '{}'", quote(row.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_completions_name_every_supported_option() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell).expect("the shell is known");
            for (_, name) in names() {
                assert!(script.contains(name), "{shell}: {name}");
            }
            assert!(Command::ALL.into_iter().all(|command| script.contains(command.name())), "{shell}");
        }
        assert_eq!(script("tcsh"), None);
    }

    #[test]
    fn test_completions_are_valid_for_the_shells_that_are_here() {
        for shell in ["bash", "zsh", "fish"] {
            let Ok(mut child) = std::process::Command::new(shell).arg("-n").stdin(std::process::Stdio::piped()).spawn() else {
                continue;
            };
            let script = script(shell).expect("the shell is known");
            std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), script.as_bytes()).expect("the shell reads");
            assert!(child.wait().expect("the shell ends").success(), "{shell} does not read its completions");
        }
    }
}
