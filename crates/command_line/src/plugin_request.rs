//! The words after `bolide plugin`. Pure data: the library of the master builds, in the process of the command.

use std::path::PathBuf;

/// What `bolide plugin` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginRequest {
    /// Print the directory of `bolide_app.h`.
    Header,
    /// Build the library of a plugin that the package has, or of a C file.
    Build { what: String, into: Option<PathBuf> },
}

impl PluginRequest {
    /// Reads the arguments after the name of the command.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub fn read(words: &[String]) -> Result<PluginRequest, String> {
        let mut plain = Vec::new();
        let mut into = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("--into", directory)) => into = Some(PathBuf::from(directory)),
                _ if word == "--into" => into = Some(words.next().ok_or("`--into` needs a value: DIR")?.into()),
                _ if word.starts_with('-') => return Err(format!("`{word}` is not expected here")),
                _ => plain.push(word.as_str()),
            }
        }
        match (plain.as_slice(), into) {
            (["header"], None) => Ok(PluginRequest::Header),
            (["header"], Some(_)) => Err("`--into` is for `build`".to_owned()),
            (["build", what], into) => Ok(PluginRequest::Build { what: (*what).to_owned(), into }),
            (["build"], _) => Err("write what to build: `lua`, or the path of a C file".to_owned()),
            (["build", _, other, ..] | ["header", other, ..], _) => Err(format!("`{other}` is an unexpected argument")),
            ([], _) => Err("write `build` or `header`".to_owned()),
            ([other, ..], _) => Err(format!("there is no action `{other}`; the actions are build, header")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PluginRequest, String> {
        PluginRequest::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    #[test]
    fn a_plugin_is_built_where_the_flag_says() {
        let build = |into: Option<&str>| PluginRequest::Build { what: "lua".to_owned(), into: into.map(PathBuf::from) };
        assert_eq!(read("build lua"), Ok(build(None)));
        assert_eq!(read("build lua --into /srv"), Ok(build(Some("/srv"))));
        assert_eq!(read("build --into=/srv lua"), Ok(build(Some("/srv"))));
        assert_eq!(read("header"), Ok(PluginRequest::Header));
    }

    #[test]
    fn invalid_words_are_refused_with_the_reason() {
        for (text, expected) in [
            ("", "write `build` or `header`"),
            ("build", "write what to build: `lua`, or the path of a C file"),
            ("build lua perl", "`perl` is an unexpected argument"),
            ("build lua --into", "`--into` needs a value: DIR"),
            ("build --force lua", "`--force` is not expected here"),
            ("header --into /srv", "`--into` is for `build`"),
            ("make lua", "there is no action `make`; the actions are build, header"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }
}
