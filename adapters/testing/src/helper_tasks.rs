//! Helpers of the test language: what each does is a word, and all of them write down when they begin and end, so that a test sees which of
//! them have run at once. A process that was forked as a helper runs it; the master asks for the list.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use bolide_contract::settings;
use bolide_prototype::Helper;

/// The variable of `env` that names the tasks of an instance's helpers, with commas between them.
pub const HELPERS: &str = "TEST_HELPERS";
/// The file of the notes, in the folder of `chdir`.
pub const NOTES: &str = "helpers";

/// Takes the helpers from [`HELPERS`] into the settings.
pub fn of_environment(settings: &mut settings::Settings) {
    let variables = &settings.application.environment;
    let tasks = variables.iter().rfind(|(name, _)| name == HELPERS).map_or("", |(_, value)| value.as_str());
    let tasks = tasks.split(',').filter(|task| !task.is_empty());
    settings.helpers = tasks.map(|task| settings::Helper { task: task.to_owned() }).collect();
}

/// What one helper does.
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
        let word = helper.ok_or_else(|| io::Error::other(format!("there is no helper {number}")))?.task.clone();
        let notes = settings.application.chdir.clone().unwrap_or_default().join(NOTES);
        Ok(Task { word, number, generation, notes })
    }

    /// `unready`: this has no end. `broken`: it fails.
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

    /// `idle`: waits for its end. `slow`: ends some time after it was told to. `stubborn`: does not end.
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

    /// One line, which is written whole: `2 1 4711 works`.
    fn note(&self, what: &str) -> io::Result<()> {
        let line = format!("{} {} {} {what}\n", self.generation, self.number, std::process::id());
        File::options().create(true).append(true).open(&self.notes)?.write_all(line.as_bytes())
    }
}
