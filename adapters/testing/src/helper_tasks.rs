//! Helpers of the test language. The task of each is a word. All of them note when they begin and end, so that a test sees which
//! of them ran at the same time. They do not know requests. A process that was forked as a helper runs them; the master asks for
//! the list.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use bolide_contract::settings;
use bolide_prototype::Helper;

/// The variable of `env` that lists the tasks of an instance's helpers, separated by commas.
pub const HELPERS: &str = "TEST_HELPERS";
/// The name of the file of notes, in the directory of `chdir`.
pub const NOTES: &str = "helpers";

/// Puts the helpers of [`HELPERS`] into the settings.
pub fn of_environment(settings: &mut settings::Settings) {
    let variables = &settings.application.environment;
    let tasks = variables.iter().rfind(|(name, _)| name == HELPERS).map_or("", |(_, value)| value.as_str());
    let tasks = tasks.split(',').filter(|task| !task.is_empty());
    settings.helpers = tasks.map(|task| settings::Helper::new(settings::Task::Word(task.to_owned()))).collect();
}

/// The task of one helper.
pub struct Task {
    word: String,
    number: u32,
    generation: u32,
    notes: PathBuf,
}

impl Task {
    /// # Errors
    /// The settings have no helper of this number.
    pub fn of(settings: &settings::Settings, generation: u32, number: u32) -> io::Result<Task> {
        let helper = settings.helpers.get(number as usize - 1);
        let task = &helper.ok_or_else(|| io::Error::other(format!("there is no helper {number}")))?.task;
        let settings::Task::Word(word) = task else {
            return Err(io::Error::other(format!("the test language has no task {task:?}")));
        };
        let word = word.clone();
        let notes = settings.application.chdir.clone().unwrap_or_default().join(NOTES);
        Ok(Task { word, number, generation, notes })
    }

    /// `unready`: never returns. `broken`: fails.
    ///
    /// # Errors
    /// The notes can't be written.
    pub fn set_up(&self) -> io::Result<()> {
        self.note("born")?;
        match self.word.as_str() {
            "unready" => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            "broken" => Err(io::Error::other("this helper is broken")),
            _ => Ok(()),
        }
    }

    /// `idle`: waits for the order to end. `slow`: ends some time after the order. `stubborn`: does not end.
    ///
    /// # Errors
    /// The notes can't be written.
    pub fn work(&self, mut helper: Helper) -> io::Result<i32> {
        self.note("works")?;
        while !helper.wait_for_end(None)? {}
        match self.word.as_str() {
            "stubborn" => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            "slow" => std::thread::sleep(Duration::from_millis(300)),
            _ => {}
        }
        self.note("ends")?;
        Ok(0)
    }

    /// Appends one line in a single write: `2 1 4711 works`.
    fn note(&self, what: &str) -> io::Result<()> {
        let line = format!("{} {} {} {what}\n", self.generation, self.number, std::process::id());
        File::options().create(true).append(true).open(&self.notes)?.write_all(line.as_bytes())
    }
}
