//! Parses the words of a shell command line: quotes, escapes, variables, several commands. Variables remain: `$(NAME)` is the
//! syntax of the configuration language for them, and `$(NAME:-VALUE)` has a default, which that language expresses with
//! conditions. It executes nothing.

/// Returns the commands of a line, each as its words: `&&`, `||`, `;` and `|` separate them.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut reader = ShellReader { rest: line.chars().collect(), place: 0, words: Vec::new(), word: None, commands: Vec::new() };
    reader.read();
    reader.commands
}

struct ShellReader {
    rest: Vec<char>,
    place: usize,
    words: Vec<String>,
    /// The word that is being read; it may be empty on purpose (`""`).
    word: Option<String>,
    commands: Vec<Vec<String>>,
}

impl ShellReader {
    fn read(&mut self) {
        while let Some(letter) = self.next() {
            match letter {
                ' ' | '\t' | '\n' | '\r' => self.end_word(),
                '#' if self.word.is_none() => break,
                ';' | '&' | '|' => self.end_command(),
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '\\' => match self.next() {
                    None | Some('\n') => {}
                    Some(escaped) => self.push(escaped),
                },
                '$' => self.variable(),
                '`' => self.substitution('`'),
                other => self.push(other),
            }
        }
        self.end_command();
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest.get(self.place).copied();
        self.place += 1;
        letter
    }

    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    fn push_text(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }

    fn single_quoted(&mut self) {
        self.push_text("");
        while let Some(letter) = self.next().filter(|letter| *letter != '\'') {
            self.push(letter);
        }
    }

    fn double_quoted(&mut self) {
        self.push_text("");
        while let Some(letter) = self.next().filter(|letter| *letter != '"') {
            match letter {
                '\\' => match self.next() {
                    Some(escaped @ ('"' | '\\' | '$' | '`')) => self.push(escaped),
                    Some('\n') | None => {}
                    Some(other) => {
                        self.push('\\');
                        self.push(other);
                    }
                },
                '$' => self.variable(),
                '`' => self.substitution('`'),
                other => self.push(other),
            }
        }
    }

    /// Reads what follows a `$`.
    fn variable(&mut self) {
        match self.rest.get(self.place) {
            Some('{') => {
                self.place += 1;
                let inside = self.until('}');
                let (name, default) = match inside.split_once(":-").or_else(|| inside.split_once('-')) {
                    Some((name, default)) => (name, format!(":-{}", default.trim_matches(['"', '\'']))),
                    None => (inside.as_str(), String::new()),
                };
                self.push_text(&format!("$({name}{default})"));
            }
            Some('(') => {
                self.place += 1;
                self.substitution(')');
            }
            Some(letter) if is_name(*letter) => {
                let mut name = String::new();
                while let Some(letter) = self.rest.get(self.place).copied().filter(|letter| is_name(*letter)) {
                    name.push(letter);
                    self.place += 1;
                }
                self.push_text(&format!("$({name})"));
            }
            _ => self.push('$'),
        }
    }

    /// The output of a command is unknown before startup. The command stays between backquotes.
    fn substitution(&mut self, end: char) {
        let inside = self.until(end);
        // A line within a line (`sh -c`) has been read once already: text that looks like the name of a variable is one.
        let name = inside.split(":-").next().unwrap_or_default();
        if end == ')' && !name.is_empty() && name.chars().all(|letter| is_name(letter) && !letter.is_ascii_lowercase()) {
            return self.push_text(&format!("$({inside})"));
        }
        self.push_text(&format!("`{inside}`"));
    }

    fn until(&mut self, end: char) -> String {
        let mut text = String::new();
        while let Some(letter) = self.next().filter(|letter| *letter != end) {
            text.push(letter);
        }
        text
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}
