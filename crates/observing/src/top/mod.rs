//! `bolide top`: the workers of a running instance and their requests, live. The master answers one question a second at most,
//! and the command measures the processes itself. Without a terminal it prints lines. The command-line process runs it.

mod model;
mod numbers;
mod plain;
mod rows;
mod sample;
mod stack;
mod tables;
mod terminal;
mod threads;
mod view;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::EXIT_REFUSED;
use serde_json::json;

use crate::instances::{Refusal, ask_about};
use crate::output::{Ending, say};
use crate::trace;
use crate::usage::Usages;

use model::{Action, Model};
use sample::{Looks, Sample};
use terminal::{Screen, ScreenEvent};

/// The most seconds between two looks.
const MAX_EVERY_S: u32 = 3600;

/// The instance, and what was seen of it.
#[derive(Debug, Default)]
struct Watched {
    instance: Option<String>,
    usages: Usages,
    looks: Looks,
}

/// Watches an instance until a key, a signal, or the end of the instance or of the output's reader.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let every_s = request.number("--every", MAX_EVERY_S).map_err(|why| (EXIT_REFUSED, why))?.unwrap_or(1);
    let every = Duration::from_secs(every_s.into());
    let mut watched = Watched { instance: request.arguments.first().cloned(), ..Watched::default() };
    // An instance that is not there is told before the terminal changes.
    let first = watched.look(&BTreeSet::new())?;
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_terminal && !request.has("--once") {
        return watch(&mut watched, first.unwrap_or_default(), every);
    }
    loop {
        std::thread::sleep(every);
        if let Some(sample) = watched.look(&BTreeSet::new())? {
            say(output, &plain::lines(&sample))?;
            if request.has("--once") {
                return Ok(());
            }
            say(output, "\n")?;
        }
    }
}

impl Watched {
    /// Asks and measures. `unfolded` are the processes whose threads are wanted. `None`: nothing is new since the last look.
    fn look(&mut self, unfolded: &BTreeSet<i64>) -> Result<Option<Sample>, Refusal> {
        let (_, mut answer) = ask_about(self.instance.as_deref(), &json!({"ask": "top"}))?;
        if self.looks.has_seen(&answer) {
            return Ok(None);
        }
        self.usages.add_to(&mut answer);
        Ok(Some(self.looks.sample(&answer, unfolded)))
    }
}

fn watch(watched: &mut Watched, first: Sample, every: Duration) -> Result<(), Ending> {
    let mut model = Model::default();
    model.take(first);
    let mut screen = Screen::open()?;
    let mut next = Instant::now() + every;
    loop {
        screen.draw(|frame| view::draw(frame, &model))?;
        let left = next.saturating_duration_since(Instant::now());
        match screen.wait(left.as_millis() as u64 + 1)? {
            ScreenEvent::End => return Ok(()),
            ScreenEvent::Key(key) => match model.press(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(()),
                Action::Look => next = Instant::now(),
                Action::ReadStack(pid) => model.show_stack(stack_of(watched.instance.as_deref(), pid)),
            },
            ScreenEvent::Redraw => screen.begin_again()?,
            ScreenEvent::Nothing => {}
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            match watched.look(model.unfolded()) {
                Ok(Some(sample)) => model.take(sample),
                Ok(None) => {}
                // It may be restarted: the screen stays, and shows that.
                Err((_, why)) => model.take_trouble(why),
            }
        }
    }
}

fn stack_of(instance: Option<&str>, pid: i64) -> String {
    let here = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    stack::shortened(&trace::of_process(instance, pid), &here.to_string_lossy())
}
