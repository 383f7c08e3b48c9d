//! What a C file says about its own build, in comments near its top. It does not run the compiler. The process of
//! `bolide plugin build` runs it.
//!
//! ```c
//! // bolide-build: pkg-config lua5.4 lua5.3
//! // bolide-build: flags $(perl -MExtUtils::Embed -e ccopts -e ldopts)
//! // bolide-build: debian liblua5.4-dev
//! ```

/// What begins such a line.
const MARK: &str = "// bolide-build:";

/// The lines are among this number of first lines.
const MAX_LINES: usize = 30;

/// How to build a C file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Packages of pkg-config: the first one that is installed has the flags.
    pub libraries: Vec<String>,
    /// Flags of the compiler, as a shell expands them.
    pub flags: Vec<String>,
    /// The packages of Debian that have what the file includes.
    pub debian: Vec<String>,
}

impl Recipe {
    /// Reads the lines of a C file.
    ///
    /// # Errors
    /// A line begins with an unknown word, or ends behind it: one sentence with the number of the line.
    pub fn of_source(text: &str) -> Result<Recipe, String> {
        let mut recipe = Recipe::default();
        for (number, line) in text.lines().take(MAX_LINES).enumerate() {
            let Some(rest) = line.trim().strip_prefix(MARK) else { continue };
            let (word, values) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            let values = values.trim();
            let words = || values.split_ascii_whitespace().map(str::to_owned);
            let fault = match word {
                _ if values.is_empty() => format!("`{word}` has nothing behind it"),
                "pkg-config" => {
                    recipe.libraries.extend(words());
                    continue;
                }
                "debian" => {
                    recipe.debian.extend(words());
                    continue;
                }
                "flags" => {
                    recipe.flags.push(values.to_owned());
                    continue;
                }
                other => format!("`{other}` is none of pkg-config, flags and debian"),
            };
            return Err(format!("line {}: {fault}", number + 1));
        }
        Ok(recipe)
    }

    /// The command that installs what the file includes, if the file says that.
    pub fn advice(&self) -> Option<String> {
        (!self.debian.is_empty()).then(|| format!("apt install {}", self.debian.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_how_to_build_it_near_its_top() {
        let text = "// Lua.\n// bolide-build: pkg-config lua5.4 lua5.3\n// bolide-build: debian liblua5.4-dev\n\
            // bolide-build: flags $(echo -lm)\n";
        let recipe = Recipe::of_source(text).expect("read");
        assert_eq!(recipe.libraries, ["lua5.4", "lua5.3"]);
        assert_eq!(recipe.flags, ["$(echo -lm)"]);
        assert_eq!(recipe.advice().as_deref(), Some("apt install liblua5.4-dev"));
        let late = format!("{}// bolide-build: wrong\n", "\n".repeat(MAX_LINES));
        assert_eq!(Recipe::of_source(&late), Ok(Recipe::default()));
    }

    #[test]
    fn a_line_that_says_nothing_is_refused_with_its_number() {
        for (text, expected) in [
            ("\n// bolide-build: cmake x", "line 2: `cmake` is none of pkg-config, flags and debian"),
            ("// bolide-build: flags", "line 1: `flags` has nothing behind it"),
        ] {
            assert_eq!(Recipe::of_source(text), Err(expected.to_owned()));
        }
    }
}
