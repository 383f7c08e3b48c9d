//! Completions for shells: the commands with their flags and arguments, and every option that has an effect, with its values.

use std::fmt::Write;

use bolide_options::catalog::catalog;
use bolide_options::row::{Argument, OptionRow, Status, Value};
use bolide_other_servers::ServerSetting;
use bolide_other_servers::other_words::taken_flags;

use crate::command_flags::FILE;
use crate::manual::command_line_words::COMMAND_LINE_WORDS;
use crate::subcommand::{Subcommand, Takes};
use crate::typed_words::SERVING_WORDS;

/// Returns the script for a shell; `None` for an unknown one.
pub fn script(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

/// Names worth completing: all supported and accepted options.
fn names() -> impl Iterator<Item = (&'static OptionRow, &'static str)> {
    let rows = catalog().rows().iter().filter(|row| matches!(row.status, Status::Supported(_) | Status::Accepted(_)));
    rows.flat_map(|row| row.names.iter().map(move |&name| (row, name)))
}

/// A flag that is not a name of an option.
struct TypedFlag {
    name: &'static str,
    has_value: bool,
    help: String,
}

/// Bolide's own flags, and those of other servers that the command line takes.
fn flags_of_the_command_line() -> Vec<TypedFlag> {
    let own = COMMAND_LINE_WORDS.iter().filter(|word| catalog().get(word.name).is_none());
    let own = own.map(|word| TypedFlag { name: word.name, has_value: !word.value.is_empty(), help: word.help.to_owned() });
    let taken = taken_flags().filter(|(row, _)| COMMAND_LINE_WORDS.iter().all(|word| word.name != row.flag));
    let flag = |row: &ServerSetting, help: String| TypedFlag { name: row.flag, has_value: row.argument != Argument::None, help };
    own.chain(taken.map(|(row, help)| flag(row, help))).collect()
}

fn commands() -> String {
    Subcommand::ALL.into_iter().map(|command| command.name()).collect::<Vec<_>>().join(" ")
}

/// The words that may come first: commands, and words that serve this directory.
fn first_words() -> String {
    format!("{} {}", commands(), SERVING_WORDS.join(" "))
}

/// The words that a command's arguments can be; none if they are files, or if there are none.
fn topics(takes: Takes) -> String {
    let options = || catalog().names().collect::<Vec<_>>().join(" ");
    match takes {
        Takes::Nothing | Takes::Files => String::new(),
        Takes::Options => options(),
        Takes::Topics => format!("{} {}", commands(), options()),
        Takes::Words(words) => words.join(" "),
    }
}

/// The names of a command's flags, which are arguments of the command.
fn flags(command: Subcommand) -> String {
    command.flags().iter().map(|flag| flag.name).collect::<Vec<_>>().join(" ")
}

fn bash() -> String {
    let names = names().map(|(_, name)| name).chain(flags_of_the_command_line().iter().map(|flag| flag.name).collect::<Vec<_>>());
    let options = names.map(|name| format!("--{name}")).collect::<Vec<_>>().join(" ");
    let mut text = "_bolide() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n    COMPREPLY=()\n\
        \x20   _bolide_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }\n\
        \x20   # `--option=word` comes as three words.\n\
        \x20   [ \"$word\" = = ] && word=\n    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}\n\
        \x20   if [ \"$COMP_CWORD\" -gt 1 ]; then\n        case ${COMP_WORDS[1]} in\n"
        .to_owned();
    for command in Subcommand::ALL {
        // Writing to a String can't fail.
        let _ = writeln!(text, "        {})", command.name());
        for flag in command.flags().iter().filter(|flag| !flag.words.is_empty()) {
            if flag.words == FILE {
                let files = "COMPREPLY=($(compgen -f -- \"$word\"))";
                let _ = writeln!(text, "            [ \"$before\" = {} ] && {{ {files}; return; }}", flag.name);
                continue;
            }
            let _ = writeln!(
                text,
                "            [ \"$before\" = {} ] && {{ _bolide_words '{}'; return; }}",
                flag.name,
                flag.words.join(" ")
            );
        }
        let _ = writeln!(text, "            case $word in -*) _bolide_words '{}'; return ;; esac", flags(command));
        let _ = match command.takes() {
            Takes::Files => writeln!(text, "            COMPREPLY=($(compgen -f -- \"$word\")); return ;;"),
            takes => writeln!(text, "            _bolide_words '{}'; return ;;", topics(takes)),
        };
    }
    text.push_str("        esac\n    fi\n    case $before in\n");
    for (row, name) in self::names() {
        if let (Argument::Required, Value::OneOf(words)) = (row.argument, row.value) {
            let _ = writeln!(text, "    --{name}) _bolide_words '{}'; return ;;", words.join(" "));
        }
    }
    let _ = write!(
        text,
        "    esac\n    case $word in\n    -*) _bolide_words '{options}' ;;\n    *) COMPREPLY=($(compgen -f -- \"$word\"))\n\
        \x20      [ \"$COMP_CWORD\" -eq 1 ] && COMPREPLY+=($(compgen -W '{}' -- \"$word\")) ;;\n    esac\n}}\n\
         complete -o filenames -F _bolide bolide\n",
        first_words()
    );
    text
}

fn zsh() -> String {
    let quote = |text: &str| text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let mut text = "#compdef bolide\n_bolide() {\n  if (( CURRENT > 2 )); then\n    case $words[2] in\n".to_owned();
    // Writing to a String can't fail.
    for command in Subcommand::ALL {
        let mut specs: Vec<String> = command
            .flags()
            .iter()
            .map(|flag| {
                let words = match flag.words {
                    [] => String::new(),
                    FILE => ":file:_files".to_owned(),
                    words => format!(":form:({})", words.join(" ")),
                };
                format!("'{}[{}]{words}'", flag.name, quote(flag.help))
            })
            .collect();
        specs.push(match command.takes() {
            Takes::Files => "'*:file:_files'".to_owned(),
            takes => format!("'*:word:({})'", topics(takes)),
        });
        let _ = writeln!(
            text,
            "      {})\n        words=(\"${{(@)words[2,-1]}}\"); (( CURRENT-- ))\n        _arguments {}\n        return ;;",
            command.name(),
            specs.join(" ")
        );
    }
    text.push_str("    esac\n  fi\n  _arguments \\\n");
    for (row, name) in names() {
        let help = quote(row.help);
        let action = match row.value {
            Value::Path => ":path:_files".to_owned(),
            Value::OneOf(words) => format!(":value:({})", words.join(" ")),
            _ => ":value: ".to_owned(),
        };
        let _ = match row.argument {
            Argument::None => writeln!(text, "    '*--{name}[{help}]' \\"),
            Argument::Optional => writeln!(text, "    '*--{name}=-[{help}]:{action}' \\"),
            Argument::Required => writeln!(text, "    '*--{name}=[{help}]{action}' \\"),
        };
    }
    for flag in flags_of_the_command_line() {
        let (sign, value) = if flag.has_value { ("=", ":value: ") } else { ("", "") };
        let _ = writeln!(text, "    '*--{}{sign}[{}]{value}' \\", flag.name, quote(&flag.help));
    }
    let _ = write!(
        text,
        "    '1:command or file:_alternative \"commands:command:({})\" \"files:file:_files\"' \\\n    '*:file:_files'\n}}\n\
         # It is a function of `fpath`, or it is sourced.\n\
         if [ \"$funcstack[1]\" = _bolide ]; then _bolide \"$@\"; else compdef _bolide bolide; fi\n",
        first_words()
    );
    text
}

fn fish() -> String {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let mut text = String::new();
    // Writing to a String can't fail.
    for command in Subcommand::ALL {
        let name = command.name();
        let _ = writeln!(text, "complete -c bolide -n __fish_use_subcommand -a {name} -d '{}'", quote(command.help()));
        let within = format!("complete -c bolide -n '__fish_seen_subcommand_from {name}'");
        for flag in command.flags() {
            let words = match flag.words {
                [] => String::new(),
                FILE => " -r".to_owned(),
                words => format!(" -x -a '{}'", words.join(" ")),
            };
            let _ = writeln!(text, "{within} -l {}{words} -d '{}'", flag.name.trim_start_matches('-'), quote(flag.help));
        }
        match command.takes() {
            Takes::Files => {}
            Takes::Nothing => drop(writeln!(text, "{within} -f")),
            takes => drop(writeln!(text, "{within} -f -a '{}'", topics(takes))),
        }
    }
    for word in SERVING_WORDS {
        let _ = writeln!(text, "complete -c bolide -n __fish_use_subcommand -a {word} -d 'Serves what is in this directory'");
    }
    let no_command = format!("not __fish_seen_subcommand_from {}", commands());
    for (row, name) in names() {
        let required = match (row.argument, row.value) {
            (Argument::Required, Value::OneOf(words)) => format!(" -x -a '{}'", words.join(" ")),
            (Argument::Required, _) => " -r".to_owned(),
            _ => String::new(),
        };
        let letter =
            row.letters.iter().find(|(_, owner)| *owner == name).map(|(letter, _)| format!(" -s {letter}")).unwrap_or_default();
        let _ = writeln!(text, "complete -c bolide -n '{no_command}' -l {name}{letter}{required} -d '{}'", quote(row.help));
    }
    for flag in flags_of_the_command_line() {
        let required = if flag.has_value { " -r" } else { "" };
        let _ = writeln!(text, "complete -c bolide -n '{no_command}' -l {}{required} -d '{}'", flag.name, quote(&flag.help));
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
            assert!(Subcommand::ALL.into_iter().all(|command| script.contains(command.name())), "{shell}");
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
